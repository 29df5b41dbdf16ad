/* self_check/act_quant.c - the probes of the op `act_quant` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* Form 0: fp32 scales, gaps between rows. 1: power-of-two scales, two rows per token, numbers over the whole range and an Inf. */
static void build(self_check_image *image) {
  enum { TOKENS = 3, COLUMNS = 384 };
  const u32 mul = 1 + image->form, rows = TOKENS * mul, ldx = COLUMNS + (image->form ? 0 : 8);
  act_quant_args a = {.step = take_step(image, TOKENS, 0, 0), .ldx = ldx, .columns = COLUMNS, .rows_mul = mul, .scale_kind = image->form};
  bf16 *x = take(image, (rows + 1) * ldx * 2ull);
  for (u32 i = 0; i < rows; i++) {
    for (u32 j = 0; j < COLUMNS; j += 128) {
      const i32 low = image->form ? -120 + (i32)(i * 128 + j) / 5 : -9;
      fill_bf16(image, x + i * ldx + j, 128, low, 11 + 4 * i);
    }
  }
  for (u32 i = 0; i < COLUMNS; i += 37) x[i] &= 0x8000u; /* zeros of both signs */
  if (image->form) x[ldx * 2] = 0x7f80;
  a.x = x;
  a.codes = take(image, (rows + 1) * COLUMNS);
  a.scales = take(image, (rows + 1) * (COLUMNS / SCALE_COLUMNS) * 4ull);
  LAUNCH(image, a, rows + 1, 1, 1);
}

static const self_check_probe probes[] = {
    {18, 0, 0, 0, "fp32 scales", "a1f03ba0d66a81ac5ff52d9c7dd12c08"},
    {18, 1, 0, 0, "powers of two", "6538a170c75f8e01d7f5ac4058b11dd5"},
};

const self_check_op self_check_act_quant = {build, ARRAY_LEN(probes), probes};
