/* self_check/accept.c - the probes of the op `accept` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

enum { TOKENS = 9, ROWS = 7, DRAFTS = 3, STRIDE = 4, PADDED = TOKENS + 1 };

static const step_in *take_parts(self_check_image *image) {
  step_in *step = take(image, STEP_PARTS * sizeof *step);
  memset(step, 0, STEP_PARTS * sizeof *step);
  step[STEP_ALL] = (step_in){.token_count = TOKENS, .logit_count = ROWS, .tile_count = TOKENS, .seq_count = DRAFTS};
  step[STEP_DRAFTS] = (step_in){DRAFTS, DRAFTS, DRAFTS, DRAFTS};
  image->launch->rows = TOKENS;
  return step;
}

/* Two prompt rows, one with a next token; then sequences whose guesses are all right, right once, and one without any. */
static void take_inputs(self_check_image *image, accept_args *a) {
  i32 *token = take(image, PADDED * 4), *next = take(image, PADDED * 4);
  u32 *position = take(image, PADDED * 4), *logit_row = take(image, PADDED * 4);
  sample_param *param = take(image, PADDED * sizeof *param);
  sample_result *result = take(image, PADDED * sizeof *result);
  step_draft *drafts = take(image, (DRAFTS + 1) * sizeof *drafts);
  for (u32 t = 0; t < TOKENS; t++) {
    token[t] = (i32)random_below(image, 1000);
    next[t] = t == 0 ? 500 : -1; /* row 1 has none: it gets 0 */
    position[t] = 60 + 5 * t;
  }
  memset(param, 0, ROWS * sizeof *param);
  for (u32 r = 0; r < ROWS; r++) {
    logit_row[r] = r + 2;
    result[r] = (sample_result){.token = r == 0 || r == 1 || r == 3 ? token[r + 3] : 2000 + (i32)r};
    param[r] = (sample_param){.seed = r, .top_p_fixed = 1ull << 32, .temperature = 0.5f, .position = position[r + 2] + 1, .slot = 7,
                              .target = -1, .top_count = r, .adjusted = 1};
  }
  drafts[0] = (step_draft){.first = 0, .count = 3, .slot = 2};
  drafts[1] = (step_draft){.first = 3, .count = 3, .slot = 5};
  drafts[2] = (step_draft){.first = 6, .count = 1, .slot = 0};
  a->token = token, a->next = next, a->position = position, a->logit_row = logit_row, a->param = param, a->result = result;
  a->drafts = drafts;
}

/* Form 0: three passes; 1: one. */
static void build(self_check_image *image) {
  const u32 passes = image->form ? 1 : 3, more = passes - 1;
  accept_args a = {.step = take_parts(image), .draft_tokens = passes, .stride = STRIDE};
  take_inputs(image, &a);
  a.next_token = take(image, PADDED * 4);
  a.source = take(image, STRIDE * 4);
  a.draft_param = take(image, passes * STRIDE * sizeof(sample_param));
  if (more) {
    a.draft_token = take(image, STRIDE * 4);
    a.draft_seq = take(image, STRIDE * 4);
    a.draft_position = take(image, more * STRIDE * 4);
    a.draft_tiles = take(image, more * STRIDE * sizeof(attn_tile));
  }
  LAUNCH(image, a, PADDED, 1, 1);
}

static const self_check_probe probes[] = {
    {41, 0, 0, 0, "three drafts of three sequences", "1aafbecb3117594f4366c11a18f1f898"},
    {42, 1, 0, 0, "one draft", "4051c0831d826f64a943653535229522"},
};

const self_check_op self_check_accept = {build, ARRAY_LEN(probes), probes};
