/* mla_attn.cu - absorbed latent attention over the paged KV rows of a step. NUMERICS.md, `mla_attn`.
 *
 * The forms, each in a file of its own: mla_pair.cuh, two blocks side by side for up to 64 (token, head) rows. */
#include "spec.cuh"
#include "mla_pair.cuh"
