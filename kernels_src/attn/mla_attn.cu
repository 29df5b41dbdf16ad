/* mla_attn.cu - absorbed latent attention over the paged KV rows of a step. NUMERICS.md, `mla_attn`.
 *
 * form     | chosen for                         | rows        | CTAs per token | load     | scores  | values  | store
 * decode   | up to 32 heads, decode or gathered | 8, 16 or 32 | 1, or 4 (*)    | 1-2 wg   | 1-2 wg  | 1-2 wg  | the value wg
 * cluster  | prompts, more heads                | 64          | 2, a cluster   | 1 wg     | 1 wg    | 2 wg    | the value wg
 * pingpong | 65 to 128 heads, one-chunk lists   | 64 a CTA    | 2, a cluster   | 1-2 wg   | 2 wg: scores and values in turn, store
 * split    | the same of 33 to 128, few tokens  | 64, twice   | 8, 16 or 32    | 2 wg     | 2 wg: first scores, then values, store
 *
 * wg: warpgroups. Rows: (token, head) pairs. Gathered: KV rows named by index lists or in another format than bf16, which TMA cannot load.
 * (*) If there are four CTAs for each piece, each computes a quarter of the output columns and all scores; for one token, as a cluster, a
 * quarter of these too. The planner chooses the form by its SPEC constant (planner/specialise.c); work items: attn/pieces.cuh. Read next:
 * attn/README.md. */
#include "spec.cuh"
#if SPEC_PAIR
#include "attn/cluster/form.cuh"
#elif SPEC_SPREAD
#include "attn/split/form.cuh"
#elif SPEC_TURNS
#include "attn/pingpong/form.cuh"
#else
#include "attn/decode/form.cuh"
#endif
