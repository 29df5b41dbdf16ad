/* plan/format_masks.h - a part of plan/format.h: the token masks of a step, in plans with the op `token_mask`.
 *
 * A mask has a bit for every token of the vocabulary. The masks stand behind the token lists, at the end of REGION_STEP, and are uploaded
 * by themselves: as many as the step has. Read next: kernels_src/step.h, sample_param.mask. */
#ifndef VERBATIM_PLAN_FORMAT_MASKS_H
#define VERBATIM_PLAN_FORMAT_MASKS_H
#include "plan/format.h"

/* 32-bit words of a mask: a multiple of 16 bytes. */
static inline uint32_t plan_mask_words(uint32_t vocab) { return (vocab + 127) / 128 * 4; }

/* Masks of a step, at most: of the newest token and of the drafts of each sequence. */
static inline uint32_t plan_mask_rows(const plan_limits *l) {
  const uint64_t most = (uint64_t)l->max_seqs * (1 + l->draft_tokens);
  return most < l->max_logit_rows ? (uint32_t)most : l->max_logit_rows;
}

/* Bytes from the token lists to the masks. */
static inline uint64_t plan_masks_after_lists(const plan_limits *l) {
  return (uint64_t)l->max_seqs * TOKEN_LIST_MAX * sizeof(token_bias);
}

#endif
