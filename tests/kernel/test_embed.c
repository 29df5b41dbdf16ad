/* test_embed.c - embed: table rows by id and by slot, widened exactly. */
#include "kernel_test.h"

static void embed_case(kernel_test *test, u32 tokens, u32 hidden, u32 vocab) {
  cases c = {.state = tokens * 1000003u + hidden};
  u32 padded = tokens + 5, slots = 9;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, tokens, 0, 0);
  i32 *token = kernel_test_input(test, padded * sizeof *token), *sampled = kernel_test_input(test, slots * sizeof *sampled);
  bf16 *table = kernel_test_input(test, (size_t)vocab * hidden * sizeof *table);
  f32 *x = kernel_test_output(test, (size_t)padded * hidden * sizeof *x);
  kernel_test_keep(test, x + (size_t)tokens * hidden, (size_t)5 * hidden * sizeof *x);
  for (u32 i = 0; i < slots; i++) sampled[i] = (i32)cases_below(&c, vocab);
  for (u32 i = 0; i < tokens; i++) token[i] = i % 3 == 1 ? -1 - (i32)cases_below(&c, slots) : (i32)cases_below(&c, vocab);
  token[0] = (i32)vocab - 1;
  for (u32 i = 0; i < vocab * hidden; i++) table[i] = (bf16)(cases_bits(&c) % 0x7f80u | (cases_bits(&c) & 0x8000u));
  embed_args args = {.step = step, .token = token, .sampled = sampled, .table = table, .x = x, .hidden = hidden, .vocab = vocab};
  kernel_variant variants[] = {{.grid = {tokens, 1, 1}, .threads = 128}, {.grid = {tokens + 4, 1, 1}, .threads = 128}};
  kernel_test_run(test, &args, variants, 2);
  for (u32 t = 0; t < tokens; t++) {
    i32 id = token[t] < 0 ? sampled[-1 - token[t]] : token[t];
    for (u32 i = 0; i < hidden; i++) assert_true(num_bits(x[t * hidden + i]) == (u32)table[(u32)id * hidden + i] << 16);
  }
}

static void embed_cases(kernel_test *test) {
  static const u32 tokens[] = {1, 2, 7, 64, 65};
  for (u32 i = 0; i < ARRAY_LEN(tokens); i++) {
    embed_case(test, tokens[i], 8, 3);
    embed_case(test, tokens[i], 1032, 50);
  }
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "embed", embed_cases); }
