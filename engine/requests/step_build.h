/* step_build.h - the layout of a step: token rows, the attention tiles over them, logits rows, contexts, and the head that counts them.
 *
 * The scheduler decides which tokens of which sequences a step takes; here they get their rows and tiles, in the image that exec uploads.
 * A prompt's rows have tiles and a context of their own where they attend by ops of their own: under parity fast-prefill all rows of a
 * prompt, and where KV rows are dequantized to bf16 for prompts, those of a chunk for which that is cheaper. The other rows are the step's
 * ordinary ones. No layout changes a bit of a request. Must not know queues, pages or preemption. Read next: kernels_src/step.h. */
#ifndef VERBATIM_STEP_BUILD_H
#define VERBATIM_STEP_BUILD_H
#include "exec/exec.h"
#include "exec/watch.h"
#include "requests/request.h"
#include "requests/sequence.h"

typedef struct step_row { /* one logits row of a step */
  uint32_t slot, generation;
  uint32_t position; /* of the token row it belongs to */
  int32_t draft;     /* the token of that row if it was guessed, else -1 */
} step_row;

typedef struct step_drafted { /* a sequence for which the step makes drafts: an entry of exec_input.drafts */
  uint32_t slot, generation;
} step_drafted;

typedef struct step_build {
  const plan_header *header;
  const request_model *model;
  exec_input in;
  step_row *rows;                  /* [max_logit_rows]                                        */
  step_drafted *drafted;           /* [max_seqs]                                              */
  watch_row *watched;              /* [max_batch_tokens]                                      */
  uint32_t tokens, logits, seqs;   /* so far                                                  */
  uint32_t ordinary_rows, tiles;   /* token rows that are not of ROWS_PROMPT, and their tiles */
  uint32_t prompt_tiles, contexts; /* of the others                                           */
  uint32_t widened_pages;          /* pages of contexts that the step dequantizes             */
  uint32_t drafts;                 /* entries of in.drafts                                    */
  uint32_t masks;                  /* token masks                                             */
  bool is_prompt;                  /* the rows that are added now are of ROWS_PROMPT          */
} step_build;

/* An empty step. in: from exec_fill; rows, drafted and watched are written as rows are added. */
step_build step_build_begin(const request_model *model, exec_input in, step_row *rows, step_drafted *drafted, watch_row *watched);

/* Whether the token at `position` attends as one of a prompt, under fast-prefill. Ordinary rows come before such rows. */
bool step_build_is_prompt(const step_build *self, const verbatim_request *request, uint32_t position);

/* How many of these `count` rows fit, by token rows and by logits rows. */
uint32_t step_build_room(const step_build *self, const verbatim_request *request, uint32_t position, uint32_t count);

/* The row of a sequence's newest token, which is in its slot on the device or known, and the rows of the drafts that were taken. */
void step_build_decode(step_build *self, const sequence *s);

/* Rows of known tokens, for which there is room; under fast-prefill all of the prompt or none of it. Those from row_next on have logits
 * rows. alone: each in a tile of its own. */
void step_build_known(step_build *self, const sequence *s, uint32_t position, uint32_t count, bool alone);

/* Writes the head. */
void step_build_end(const step_build *self);

#endif
