/* test_token_mask.c - token_mask: rows with masks of their own, with one mask, and without; vocabularies that end inside a word. */
#include "kernel_test.h"
#include <stdlib.h>
#include <string.h>

static void mask_case(kernel_test *test, u32 rows, u32 vocab, u32 mask_count) {
  cases c = {.state = rows * 1000003u + vocab * 31u + mask_count};
  const u32 words = (vocab + 127) / 128 * 4;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, rows + 3, rows, 0);
  sample_param *param = kernel_test_input(test, (rows + 2) * sizeof *param);
  u32 *masks = kernel_test_input(test, (size_t)mask_count * words * 4);
  f32 *adjusted = kernel_test_output(test, (size_t)(rows + 2) * vocab * 4), *before = malloc((size_t)rows * vocab * 4);
  assert_non_null(before);
  kernel_test_keep(test, adjusted + (size_t)rows * vocab, (size_t)2 * vocab * 4);
  for (u32 i = 0; i < mask_count * words; i++)
    masks[i] = cases_below(&c, 5) ? (u32)cases_below(&c, 65536) << 16 | cases_below(&c, 65536) : 0;
  for (u32 i = 0; i < rows * vocab; i++) adjusted[i] = cases_below(&c, 9) ? cases_uniform(&c, 30) : -0.0f;
  for (u32 r = 0; r < rows; r++) {
    param[r].adjusted = 1;
    param[r].mask = r % 3 == 2 ? 0 : 1 + cases_below(&c, mask_count);
    if (param[r].mask == 0) kernel_test_keep(test, adjusted + (size_t)r * vocab, (size_t)vocab * 4);
  }
  memcpy(before, adjusted, (size_t)rows * vocab * 4);
  token_mask_args args = {.step = step, .param = param, .masks = masks, .adjusted = adjusted, .vocab = vocab, .words = words};
  kernel_variant variants[] = {{.grid = {rows, 1, 1}, .threads = 256}, {.grid = {rows + 2, 1, 1}, .threads = 256}};
  kernel_test_run(test, &args, variants, 2);
  for (u32 i = 0; i < rows * vocab; i++) {
    const u32 mask = param[i / vocab].mask, token = i % vocab;
    const bool is_kept = mask == 0 || (masks[(mask - 1) * words + token / 32] >> token % 32 & 1) != 0;
    assert_int_equal(num_bits(adjusted[i]), is_kept ? num_bits(before[i]) : 0xff800000u);
  }
  free(before);
}

static void mask_cases(kernel_test *test) {
  mask_case(test, 1, 8, 1);
  mask_case(test, 5, 1000, 2);
  mask_case(test, 70, 257, 9);
  mask_case(test, 3, 129280, 3);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "token_mask", "ff63078a6bc63d9a975529cf26df8e5c", mask_cases);
}
