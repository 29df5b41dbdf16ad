/* test_moe_combine.c - moe_combine: against the chain of fused multiply-adds, with and without a shared expert. */
#include "kernel_test.h"

static void combine_case(kernel_test *test, u32 tokens, u32 top_k, u32 hidden, u32 shared) {
  cases c = {.state = tokens * 1000003u + top_k * 31 + hidden};
  u32 pairs = tokens * top_k;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, tokens, 0, 0);
  f32 *y = kernel_test_input(test, (size_t)pairs * hidden * 4), *weight = kernel_test_input(test, (pairs + 3) * 4);
  u32 *pair_row = kernel_test_input(test, (pairs + 3) * 4);
  f32 *plus = shared ? kernel_test_input(test, (size_t)(tokens + 2) * hidden * 4) : NULL;
  f32 *out = kernel_test_output(test, (size_t)(tokens + 2) * hidden * 4);
  kernel_test_keep(test, out + (size_t)tokens * hidden, (size_t)2 * hidden * 4);
  kernel_test_floats(&c, y, (size_t)pairs * hidden, 5);
  kernel_test_floats(&c, weight, pairs, 1);
  if (plus) kernel_test_floats(&c, plus, (size_t)tokens * hidden, 5);
  for (u32 p = 0; p < pairs; p++) pair_row[p] = (p * 7 + 3) % pairs;
  moe_combine_args args = {.step = step, .y = y, .pair_row = pair_row, .topk_weight = weight, .shared = plus, .out = out};
  args.hidden = hidden;
  args.top_k = top_k;
  kernel_variant variants[] = {{.grid = {tokens, 1, 1}, .threads = 256}, {.grid = {tokens + 2, 1, 1}, .threads = 256}};
  kernel_test_run(test, &args, variants, 2);
  for (u32 t = 0; t < tokens; t++) {
    for (u32 i = 0; i < hidden; i++) {
      f32 sum = 0;
      for (u32 k = 0; k < top_k; k++) sum = fmaf(weight[t * top_k + k], y[(size_t)pair_row[t * top_k + k] * hidden + i], sum);
      if (plus) sum += plus[(size_t)t * hidden + i];
      assert_true(num_bits(out[(size_t)t * hidden + i]) == num_bits(sum));
    }
  }
}

static void combine_cases(kernel_test *test) {
  combine_case(test, 1, 1, 4, 0);
  combine_case(test, 1, 8, 7168, 1);
  combine_case(test, 5, 6, 1020, 1);
  combine_case(test, 64, 2, 128, 0);
  combine_case(test, 65, 8, 512, 1);
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "moe_combine", combine_cases); }
