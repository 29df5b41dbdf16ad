/* plan/format_masks.h - a part of plan/format.h: the token masks of a step, in plans with the op `token_mask`.
 *
 * A mask has a bit for every token of the vocabulary. The masks stand behind the token lists, at the end of REGION_STEP. They stay there
 * from step to step: only those that are new are uploaded. Read next: kernels_src/step.h, sample_param.mask. */
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

#define PLAN_MASKS_BYTES (32u << 20) /* of the masks that are kept, */
#define PLAN_MASKS_LEAST 64u         /* unless these are more */
#define PLAN_MASKS_MOST 4096u

/* Masks that are kept: those of three steps at least, so that none of a step in flight makes room for another one. */
static inline uint32_t plan_mask_room(const plan_limits *l, uint32_t vocab) {
  const uint32_t fitting = PLAN_MASKS_BYTES / (4 * plan_mask_words(vocab)), least = 3 * plan_mask_rows(l);
  const uint32_t room = fitting < PLAN_MASKS_LEAST ? PLAN_MASKS_LEAST : fitting > PLAN_MASKS_MOST ? PLAN_MASKS_MOST : fitting;
  return room < least ? least : room;
}

/* Bytes from the token lists to the masks. */
static inline uint64_t plan_masks_after_lists(const plan_limits *l) {
  return (uint64_t)l->max_seqs * TOKEN_LIST_MAX * sizeof(token_bias);
}

#endif
