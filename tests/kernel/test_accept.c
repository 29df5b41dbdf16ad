/* test_accept.c - accept: against a walk over the rows of each sequence; guesses that are right from none to all, ids of every origin. */
#include "kernel_test.h"

typedef struct shape { /* of a case */
  u32 plain;    /* token rows without logits, before the others */
  u32 drafts, most, passes, stride; /* most: rows of a sequence */
} shape;

typedef struct inputs {
  step_in *step;
  i32 *token, *next;
  u32 *position, *logit_row;
  sample_param *param;
  sample_result *result;
  step_draft *drafts;
  u32 tokens, rows;
} inputs;

/* Rows of the sequences, in order; guess i of a sequence is right with a chance of three in four. */
static void fill(cases *c, const shape *s, inputs *in) {
  u32 t = s->plain, r = 0;
  for (u32 d = 0; d < s->drafts; d++) {
    const u32 count = 1 + (s->most > 1 ? cases_below(c, s->most) : 0);
    in->drafts[d] = (step_draft){.first = r, .count = count, .slot = (d * 7 + 3) % 64};
    for (u32 i = 0; i < count; i++, t++, r++) {
      in->logit_row[r] = t;
      in->position[t] = 62 + d + i;
      in->token[t] = i == 0 && d % 2 ? -1 - (i32)d : (i32)cases_below(c, 5000);
      in->next[t] = -1;
      in->result[r] = (sample_result){.token = (i32)cases_below(c, 5000), .logprob = -1, .rank = i};
      if (i > 0 && cases_below(c, 4)) in->token[t] = in->result[r - 1].token;
      in->param[r] = (sample_param){.seed = r * 77ull, .top_p_fixed = 1ull << 32, .temperature = (f32)d, .repetition = 1, .top_k = r,
                                    .position = in->position[t] + 1, .slot = in->drafts[d].slot, .target = -1, .top_count = r % 4,
                                    .adjusted = r % 2, .list_count = r % 3};
    }
  }
  in->tokens = t, in->rows = r;
}

/* A row with logits that is scored, one whose next token is known though it chooses, one without either. */
static void add_others(cases *c, inputs *in) {
  for (u32 i = 0; i < 3; i++, in->tokens++) {
    in->token[in->tokens] = (i32)cases_below(c, 5000);
    in->position[in->tokens] = 500 + i;
    in->next[in->tokens] = i == 1 ? 4321 : -1;
    if (i == 2) continue;
    in->logit_row[in->rows] = in->tokens;
    in->param[in->rows] = (sample_param){.position = 501 + i, .target = i == 0 ? 9 : -1};
    in->result[in->rows++] = (sample_result){.token = i == 0 ? 9 : 10};
  }
}

static void judge(const inputs *in, const accept_args *a) {
  for (u32 t = 0; t < in->tokens; t++) {
    i32 want = in->next[t] >= 0 ? in->next[t] : 0;
    for (u32 r = 0; r < in->rows; r++)
      if (in->next[t] < 0 && in->logit_row[r] == t) want = in->result[r].token;
    assert_int_equal(a->next_token[t], want);
  }
  for (u32 d = 0; d < in->step[STEP_DRAFTS].token_count; d++) {
    const u32 end = in->drafts[d].first + in->drafts[d].count;
    u32 r = in->drafts[d].first, t = in->logit_row[r];
    for (; r + 1 < end && in->token[t + 1] == in->result[r].token; r++) t++; /* a sequence's rows follow each other */
    assert_int_equal(a->source[d], t);
    for (u32 pass = 1; pass <= a->draft_tokens; pass++) {
      sample_param want = in->param[r];
      want.position = in->position[t] + 1 + pass, want.slot = d, want.top_count = want.adjusted = 0;
      assert_memory_equal(&a->draft_param[(pass - 1) * a->stride + d], &want, sizeof want);
      if (pass == 1) continue;
      const attn_tile *tile = &a->draft_tiles[(pass - 2) * a->stride + d];
      assert_int_equal(a->draft_position[(pass - 2) * a->stride + d], in->position[t] + pass - 1);
      assert_true(tile->row == d && tile->count == 1 && tile->seq == in->drafts[d].slot && tile->position == in->position[t] + pass - 1);
    }
    if (a->draft_tokens > 1) assert_true(a->draft_token[d] == -1 - (i32)d && a->draft_seq[d] == in->drafts[d].slot);
  }
}

static inputs make_inputs(kernel_test *test, cases *c, const shape *s, bool has_others) {
  const u32 most = s->plain + s->drafts * s->most + 8;
  inputs in = {.step = kernel_test_input(test, STEP_PARTS * sizeof(step_in)), .token = kernel_test_input(test, most * 4),
               .next = kernel_test_input(test, most * 4), .position = kernel_test_input(test, most * 4),
               .logit_row = kernel_test_input(test, most * 4), .param = kernel_test_input(test, most * sizeof(sample_param)),
               .result = kernel_test_input(test, most * sizeof(sample_result)),
               .drafts = kernel_test_input(test, (s->drafts + 1) * sizeof(step_draft))};
  for (u32 t = 0; t < s->plain; t++) {
    in.token[t] = (i32)cases_below(c, 5000);
    in.next[t] = t + 1 == s->plain ? -1 : 7000 + (i32)t;
    in.position[t] = t;
  }
  fill(c, s, &in);
  if (has_others) add_others(c, &in);
  memset(in.step, 0, STEP_PARTS * sizeof *in.step);
  in.step[STEP_ALL] = (step_in){.token_count = in.tokens, .logit_count = in.rows, .tile_count = in.tokens, .seq_count = s->drafts};
  in.step[STEP_DRAFTS] = (step_in){s->drafts, s->drafts, s->drafts, s->drafts};
  return in;
}

static void accept_case(kernel_test *test, shape s, bool has_others) {
  cases c = {.state = s.plain * 1000003u + s.drafts * 131 + s.most * 17 + s.passes};
  kernel_test_start(test);
  inputs in = make_inputs(test, &c, &s, has_others);
  const u32 more = s.passes - 1, unused = s.stride - s.drafts;
  accept_args a = {.step = in.step, .token = in.token, .position = in.position, .logit_row = in.logit_row, .param = in.param,
                   .result = in.result, .next = in.next, .drafts = in.drafts, .draft_tokens = s.passes, .stride = s.stride};
  a.next_token = kernel_test_output(test, (in.tokens + 3) * 4);
  a.source = kernel_test_output(test, s.stride * 4);
  a.draft_param = kernel_test_output(test, s.passes * s.stride * sizeof(sample_param));
  kernel_test_keep(test, a.next_token + in.tokens, 3 * 4);
  kernel_test_keep(test, a.source + s.drafts, unused * 4);
  for (u32 pass = 0; pass < s.passes; pass++)
    kernel_test_keep(test, a.draft_param + pass * s.stride + s.drafts, unused * sizeof(sample_param));
  if (more) {
    a.draft_token = kernel_test_output(test, s.stride * 4);
    a.draft_seq = kernel_test_output(test, s.stride * 4);
    a.draft_position = kernel_test_output(test, more * s.stride * 4);
    a.draft_tiles = kernel_test_output(test, more * s.stride * sizeof(attn_tile));
    kernel_test_keep(test, a.draft_seq + s.drafts, unused * 4);
    kernel_test_keep(test, a.draft_position + (more - 1) * s.stride + s.drafts, unused * 4);
  }
  const kernel_variant variants[] = {{.grid = {in.tokens, 1, 1}, .threads = 256}, {.grid = {in.tokens + 3, 1, 1}, .threads = 256}};
  kernel_test_run(test, &a, variants, ARRAY_LEN(variants));
  judge(&in, &a);
}

static void accept_cases(kernel_test *test) {
  static const u32 passes[] = {1, 2, 5, 15};
  for (u32 i = 0; i < ARRAY_LEN(passes); i++) {
    accept_case(test, (shape){.plain = 0, .drafts = 1, .most = 1, .passes = passes[i], .stride = 4}, false);
    accept_case(test, (shape){.plain = 3, .drafts = 7, .most = 3, .passes = passes[i], .stride = 8}, true);
    accept_case(test, (shape){.plain = 0, .drafts = 33, .most = 16, .passes = passes[i], .stride = 36}, false); /* more rows than threads */
  }
  accept_case(test, (shape){.plain = 70, .drafts = 0, .most = 1, .passes = 3, .stride = 4}, true);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "accept", "3f880b8ee4ac6af8547604a847b4437e", accept_cases);
}
