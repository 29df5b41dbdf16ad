/* self_check/cases.h - declarations shared by self_check.c and the probes of the ops. Private to this folder.
 *
 * self_check/<stem>.c holds the probes of an op: a function that builds the image of each, and their known answers. An answer is the
 * XXH3-128 of the image after the op as NUMERICS.md defines it, and changes only with that text; `build/tests/test_self_check --record`
 * prints the answers of the CPU reference. Numbers come from integers alone, so that every computer builds the same image. Counts are the
 * smallest that still cross the edges that matter: a block's threads, a tile, a page, a chunk, a slice. Rows that a step does not have, and
 * every gap, are poison: NaN as bf16 and as fp32. Read next: images.h, embed.c. */
#ifndef VERBATIM_SELF_CHECK_CASES_H
#define VERBATIM_SELF_CHECK_CASES_H
#include "self_check/self_check.h"

typedef struct self_check_image {
  uint8_t *bytes;   /* SELF_CHECK_BYTES */
  uint64_t used;
  uint64_t random;  /* state of the generator                                              */
  uint32_t form;    /* number of the probe among the op's                                  */
  uint32_t kv_lora_rank, rope_dim; /* 0: the probe is for all models                       */
  self_check_launch *launch;       /* grid, judged_bytes, args with addresses of the image */
} self_check_image;

typedef struct self_check_probe {
  uint32_t seed;                   /* where its random numbers start */
  uint32_t form;                   /* the form that `build` builds   */
  uint32_t kv_lora_rank, rope_dim; /* of the models that the probe is for, 0: all; for mla_prefill nope_dim and v_dim, for attn head_dim and
                                      v_dim, for kv_rope the columns of the widest head, 0 */
  const char *name, *answer;
} self_check_probe;

typedef struct self_check_op {
  void (*build)(self_check_image *image);
  uint32_t probe_count;
  const self_check_probe *probes;
} self_check_op;

/* The probes of every stem of kernels.def. */
#define KERNEL(stem) extern const self_check_op self_check_##stem;
#include "kernels_src/kernels.def"
#undef KERNEL

/* Properties of a form of the op's probes: whether it gathers rows, computes products in place of a gemm, or has top-k lists; its KV
 * format; its heads; whether it is for kernels that send words with tags; whether rows are dequantized piece by piece. */
bool self_check_moe_gemm_gathers(uint32_t form);
bool self_check_fp8_moe_gemm_gathers(uint32_t form);
bool self_check_qkv_rope_absorbs(uint32_t form);
bool self_check_mla_fold_lifts(uint32_t form);
uint32_t self_check_mla_attn_kv_format(uint32_t form);
uint32_t self_check_attn_kv_format(uint32_t form);
bool self_check_mla_attn_lists(uint32_t form);
bool self_check_mla_attn_one_chunk(uint32_t form);
uint32_t self_check_index_score_heads(uint32_t form);
bool self_check_exchange_has_tags(uint32_t form);
bool self_check_kv_widen_has_pieces(uint32_t form);
bool self_check_mla_expand_has_pieces(uint32_t form);

#endif
