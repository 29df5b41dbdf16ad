/* self_check/cases.h - what self_check.c and self_check/cases.c share: an image under construction. Private to these two. */
#ifndef VERBATIM_SELF_CHECK_CASES_H
#define VERBATIM_SELF_CHECK_CASES_H
#include "self_check/self_check.h"

typedef struct self_check_image {
  uint8_t *bytes;   /* SELF_CHECK_BYTES */
  uint64_t used;
  uint64_t random;  /* state of the generator */
  uint32_t form;    /* which of the op's probes */
  uint32_t kv_lora_rank, rope_dim; /* 0 where the probe is for all models */
  self_check_launch *launch;       /* grid, judged_bytes, args with addresses of the image */
} self_check_image;

typedef void self_check_build_case(self_check_image *image);

/* self_check_cases_<stem>: the probes of an op. */
/* Whether the form of the probe of moe_gemm, or of fp8_moe_gemm, gathers, and whether that of qkv_rope has products. */
bool self_check_cases_gather(uint32_t form);
bool self_check_cases_fp8_gather(uint32_t form);
bool self_check_cases_absorb(uint32_t form);
bool self_check_cases_lift(uint32_t form);
/* Of index_score: heads of the indexer. */
uint32_t self_check_cases_index_heads(uint32_t form);

/* Of a form of the probe of mla_attn: the format of its rows, and whether lists name them. */
uint32_t self_check_cases_kv_format(uint32_t form);
bool self_check_cases_lists(uint32_t form);
bool self_check_cases_one_chunk(uint32_t form);

#define KERNEL(stem) self_check_build_case self_check_cases_##stem;
#include "kernels_src/kernels.def"
#undef KERNEL

#endif
