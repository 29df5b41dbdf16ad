/* self_check/gemm_bias.c - the probes of the op `gemm_bias` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* Form 0: fp32, gaps between rows. 1: silu. 2: bf16 by logits rows. 3: more rows than the largest tile. Columns cross a multiple of 64 if
 * possible. The bias is as large as the sums, and some of it larger. */
static void build(self_check_image *image) {
  static const struct { u32 rows, n, k, gap, y_kind; } shapes[] = {
    {17, 72, 576, 8, Y_F32}, {17, 208, 128, 8, Y_SILU}, {17, 72, 64, 0, Y_BF16}, {133, 24, 64, 8, Y_F32}};
  const u32 rows = shapes[image->form].rows, n = shapes[image->form].n, k = shapes[image->form].k, gap = shapes[image->form].gap;
  const bool by_logits = image->form == 2;
  gemm_bias_args a = {.step = take_step(image, by_logits ? 1 : rows, by_logits ? rows : 0, 0), .ldx = k + gap, .ldy = n + gap, .n = n,
                      .k = k, .rows_kind = by_logits ? ROWS_LOGITS : ROWS_TOKENS, .y_kind = shapes[image->form].y_kind};
  bf16 *x = take(image, (u64)(rows + 1) * a.ldx * 2), *w = take(image, (u64)n * k * 2), *bias = take(image, n * 2);
  for (u32 i = 0; i < rows; i++) fill_product(image, x + (u64)i * a.ldx, k, kind_of(i, true), 0);
  for (u32 i = 0; i < n; i++) fill_product(image, w + (u64)i * k, k, kind_of(i, true), 1);
  fill_bf16(image, bias, n, -6, 12);
  a.x = x;
  a.w = w;
  a.bias = bias;
  a.y = take(image, (u64)(rows + 1) * a.ldy * (a.y_kind == Y_F32 ? 4 : 2));
  LAUNCH(image, a, n, rows + 128, 1); /* for every tile size, some block has no row */
}

static const self_check_probe probes[] = {
    {31, 0, 0, 0, "fp32", "81e584ebcfd4310fd77816fb75b74c2a"},
    {31, 1, 0, 0, "silu", "36f2c82793690f56795bae4e4446dcda"},
    {31, 2, 0, 0, "bf16", "dacb935f9356bbeac5b43fcf7ad299f0"},
    {31, 3, 0, 0, "more rows than a tile", "ea891dd6bd1f8f638bd359905adf4d8c"},
};

const self_check_op self_check_gemm_bias = {build, ARRAY_LEN(probes), probes};
