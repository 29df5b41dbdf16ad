/* test_moe_sort.c - moe_sort: against a scan by expert, then token; with and without the tokens' rows. */
#include "kernel_test.h"

static void sort_case(kernel_test *test, u32 tokens, u32 top_k, u32 experts, u32 columns, u32 skew) {
  cases c = {.state = tokens * 1000003u + top_k * 31 + experts};
  u32 pairs = tokens * top_k, padded = pairs + 5;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, tokens, 0, 0);
  u32 *id = kernel_test_input(test, padded * 4), *first = kernel_test_output(test, (experts + 1) * 4);
  u32 *row_token = kernel_test_output(test, padded * 4), *pair_row = kernel_test_output(test, padded * 4);
  kernel_test_keep(test, row_token + pairs, 5 * 4);
  kernel_test_keep(test, pair_row + pairs, 5 * 4);
  for (u32 t = 0; t < tokens; t++) { /* ascending and distinct */
    u32 room = skew ? top_k + (experts - top_k) / 4 : experts, next = 0;
    for (u32 k = 0; k < top_k; k++) {
      id[t * top_k + k] = next + cases_below(&c, room - (top_k - k) - next + 1);
      next = id[t * top_k + k] + 1;
    }
  }
  moe_sort_args args = {.step = step, .topk_id = id, .expert_first = first, .row_token = row_token, .pair_row = pair_row};
  if (columns) {
    bf16 *x = kernel_test_input(test, (size_t)tokens * columns * 2);
    cases_fill(&c, CASES_SPECIAL, 0, x, tokens * columns);
    args.x = x;
    args.x_sorted = kernel_test_output(test, (size_t)padded * columns * 2);
    kernel_test_keep(test, args.x_sorted + (size_t)pairs * columns, 5 * columns * 2);
  }
  args.columns = columns;
  args.experts = experts;
  args.top_k = top_k;
  kernel_variant variants[3];
  for (u32 i = 0; i < 3; i++) variants[i] = (kernel_variant){.grid = {i == 0 ? 1 : i == 1 ? 3 : 40, 1, 1}, .threads = 1024};
  kernel_test_run(test, &args, variants, 3);
  u32 row = 0;
  for (u32 e = 0; e < experts; e++) {
    assert_int_equal(first[e], row);
    for (u32 p = 0; p < pairs; p++) {
      if (id[p] != e) continue;
      assert_int_equal(pair_row[p], row);
      assert_int_equal(row_token[row], p / top_k);
      if (columns) assert_memory_equal(args.x_sorted + (size_t)row * columns, args.x + (size_t)(p / top_k) * columns, columns * 2);
      row++;
    }
  }
  assert_int_equal(first[experts], pairs);
}

static void sort_cases(kernel_test *test) {
  static const u32 tokens[] = {1, 2, 31, 32, 33, 64, 129, 1000};
  for (u32 i = 0; i < ARRAY_LEN(tokens); i++) {
    sort_case(test, tokens[i], 1, 1, 8, 0);
    sort_case(test, tokens[i], 2, 8, 0, 0);
    sort_case(test, tokens[i], 6, 64, tokens[i] < 100 ? 1032 : 64, 1); /* several parts of a row */
    sort_case(test, tokens[i], 8, 256, 0, 0);
  }
  sort_case(test, 5, 16, 512, 2048, 0);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "moe_sort", "da05a24b729a8facccaea7153a6efbb2", sort_cases);
}
