/* test_silu_mul.c - silu_mul: against binary64, over gates from saturation to saturation. */
#include "kernel_test.h"

static void silu_case(kernel_test *test, u32 tokens, u32 rows_mul, u32 inter, f32 scale) {
  cases c = {.state = tokens * 1000003u + inter};
  u32 rows = tokens * rows_mul;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, tokens, 0, 0);
  f32 *gate_up = kernel_test_input(test, (size_t)(rows + 3) * 2 * inter * 4);
  bf16 *y = kernel_test_output(test, (size_t)(rows + 3) * inter * 2);
  kernel_test_keep(test, y + (size_t)rows * inter, (size_t)3 * inter * 2);
  kernel_test_floats(&c, gate_up, (size_t)rows * 2 * inter, scale);
  gate_up[0] = -300.0f;
  gate_up[1] = 0.0f;
  silu_mul_args args = {.step = step, .gate_up = gate_up, .y = y, .rows_mul = rows_mul, .inter = inter};
  kernel_variant variants[] = {{.grid = {rows, 1, 1}, .threads = 256}, {.grid = {rows + 2, 1, 1}, .threads = 256}};
  kernel_test_run(test, &args, variants, 2);
  for (u32 r = 0; r < rows; r++) {
    for (u32 i = 0; i < inter; i++) {
      double gate = (double)gate_up[(size_t)r * 2 * inter + i], up = (double)gate_up[((size_t)r * 2 + 1) * inter + i];
      kernel_test_near((double)num_from_bf16(y[(size_t)r * inter + i]), gate / (1 + exp(-gate)) * up, 0x1.02p-8, 1e-35);
    }
  }
}

static void silu_cases(kernel_test *test) {
  silu_case(test, 1, 1, 4, 1);
  silu_case(test, 3, 1, 1020, 4);
  silu_case(test, 64, 1, 64, 10);
  silu_case(test, 9, 6, 256, 80);
  silu_case(test, 2, 8, 1408, 20);
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "silu_mul", silu_cases); }
