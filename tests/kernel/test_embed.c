/* test_embed.c - embed: table rows by id and by slot, converted and scaled; each id is written to its position in the history and nowhere
 * else. */
#include "kernel_test.h"

#define SEQS 5u
#define SEQ_PAGES 4u

/* The position of row t in the history: three interleaved sequences, each of which crosses the end of a page. */
static u32 history_place(const embed_args *a, u32 t) {
  return a->block_table[a->seq[t] * SEQ_PAGES + a->position[t] / 64] * 64 + a->position[t] % 64;
}

/* The history, and the inputs that position it: entries without a row must not change. */
static void add_history(kernel_test *test, embed_args *a, u32 tokens, u32 padded) {
  u32 *position = kernel_test_input(test, padded * sizeof *position), *seq = kernel_test_input(test, padded * sizeof *seq);
  u32 *block_table = kernel_test_input(test, SEQS * SEQ_PAGES * sizeof *block_table);
  i32 *history = kernel_test_output(test, SEQS * SEQ_PAGES * 64 * sizeof *history);
  u8 is_written[SEQS * SEQ_PAGES * 64] = {0};
  for (u32 i = 0; i < SEQS * SEQ_PAGES; i++) block_table[i] = (i * 7 + 3) % (SEQS * SEQ_PAGES);
  for (u32 t = 0; t < tokens; t++) {
    seq[t] = t * 2 % 3 + t % 3 / 2 * 2; /* 0, 2, 3 */
    position[t] = t % 3 * 64 + 50 + t / 3;
  }
  a->position = position;
  a->seq = seq;
  a->block_table = block_table;
  a->block_table_stride = SEQ_PAGES;
  a->history = history;
  for (u32 t = 0; t < tokens; t++) is_written[history_place(a, t)]++;
  for (u32 i = 0; i < sizeof is_written; i++) {
    assert_true(is_written[i] < 2); /* rows of a step differ in sequence or position */
    if (!is_written[i]) kernel_test_keep(test, history + i, sizeof *history);
  }
}

/* are_drafts: ids alone, and no history. */
static void embed_case(kernel_test *test, u32 tokens, u32 hidden, u32 vocab, f32 scale, bool are_drafts) {
  cases c = {.state = tokens * 1000003u + hidden};
  u32 padded = tokens + 5, slots = 9;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, tokens, 0, 0);
  i32 *token = kernel_test_input(test, padded * sizeof *token), *sampled = kernel_test_input(test, slots * sizeof *sampled);
  bf16 *table = kernel_test_input(test, (size_t)vocab * hidden * sizeof *table);
  f32 *x = kernel_test_output(test, (size_t)padded * hidden * sizeof *x);
  kernel_test_keep(test, x + (size_t)tokens * hidden, (size_t)5 * hidden * sizeof *x);
  for (u32 i = 0; i < slots; i++) sampled[i] = (i32)cases_below(&c, vocab);
  for (u32 i = 0; i < tokens; i++) token[i] = i % 3 == 1 && !are_drafts ? -1 - (i32)cases_below(&c, slots) : (i32)cases_below(&c, vocab);
  token[0] = (i32)vocab - 1;
  for (u32 i = 0; i < vocab * hidden; i++) table[i] = (bf16)(cases_bits(&c) % 0x7f80u | (cases_bits(&c) & 0x8000u));
  embed_args args = {.step = step, .token = token, .sampled = sampled, .table = table, .x = x, .hidden = hidden, .vocab = vocab,
                     .scale = scale};
  if (are_drafts) args.sampled = NULL;
  else add_history(test, &args, tokens, padded);
  kernel_variant variants[] = {{.grid = {tokens, 1, 1}, .threads = 128}, {.grid = {tokens + 4, 1, 1}, .threads = 128}};
  kernel_test_run(test, &args, variants, 2);
  for (u32 t = 0; t < tokens; t++) {
    i32 id = token[t] < 0 ? sampled[-1 - token[t]] : token[t];
    if (!are_drafts) assert_int_equal(args.history[history_place(&args, t)], id);
    for (u32 i = 0; i < hidden; i++) {
      bf16 number = table[(u32)id * hidden + i];
      u32 found = num_bits(x[t * hidden + i]);
      assert_int_equal(found, num_bits(num_from_bf16(number) * scale));
      assert_true(scale != 1 || found == (u32)number << 16); /* exact */
    }
  }
}

static void embed_cases(kernel_test *test) {
  static const u32 tokens[] = {1, 2, 7, 64, 65};
  for (u32 i = 0; i < ARRAY_LEN(tokens); i++) {
    embed_case(test, tokens[i], 8, 3, 1, false);
    embed_case(test, tokens[i], 1032, 50, 1, false);
    embed_case(test, tokens[i], 1032, 50, 12, false);
    embed_case(test, tokens[i], 200, 9, 0.3f, false);
  }
  embed_case(test, 66, 200, 9, 1, true);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "embed", "160d3fa1828b6f19ba3319c709f5f37f", embed_cases);
}
