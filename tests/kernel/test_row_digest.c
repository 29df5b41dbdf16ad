/* test_row_digest.c - row_digest: against the sum in reverse order; a changed word or two exchanged words change it. */
#include "kernel_test.h"

static void digest_case(kernel_test *test, u32 rows, u32 words, u32 gap, u32 logits) {
  cases c = {.state = rows * 1000003u + words};
  u32 stride = words + gap;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, logits ? 1 : rows, logits ? rows : 0, 0);
  u32 *x = kernel_test_input(test, (size_t)(rows + 2) * stride * 4);
  u64 *out = kernel_test_output(test, (rows + 2) * sizeof *out);
  kernel_test_keep(test, out + rows, 2 * sizeof *out);
  for (u32 i = 0; i < rows * stride; i++) x[i] = cases_bits(&c);
  row_digest_args args = {.step = step, .x = x, .digest = out, .rows_kind = logits, .words = words, .stride = stride};
  kernel_variant variants[] = {{.grid = {rows, ROW_BLOCKS, 1}, .threads = 1024}, {.grid = {rows + 2, ROW_BLOCKS, 1}, .threads = 1024}};
  kernel_test_run(test, &args, variants, 2);
  for (u32 r = 0; r < rows; r++) {
    u64 sum = 0;
    for (u32 i = words; i-- > 0;) sum += num_digest_word(i, x[(size_t)r * stride + i]);
    assert_true(out[r] == sum);
  }
  if (words > 1) {
    u64 before = num_digest_word(0, x[0]) + num_digest_word(1, x[1]), after = num_digest_word(0, x[1]) + num_digest_word(1, x[0]);
    assert_true(before != after && num_digest_word(0, x[0]) != num_digest_word(0, x[0] ^ 1));
  }
}

static void digest_cases(kernel_test *test) {
  digest_case(test, 1, 1, 0, 1);
  digest_case(test, 2, 1023, 1, 1);
  digest_case(test, 3, 1024, 0, 0);
  digest_case(test, 5, 1025, 7, 1);
  digest_case(test, 2, 129280, 0, 1);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "row_digest", "fccf7e138f513969f4226abe696683e9", digest_cases);
}
