/* self_check/gemm.c - the probes of the op `gemm` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* Form 0: fp32, nine blocks of k for a ring of eight, gaps between rows. 1: bf16 by logits rows, two batches. 2: fp32, subnormal sums.
 * 3: few rows and a k that a library would split. 4: more rows than the largest tile. 5: silu. Columns cross a multiple of 64 if
 * possible. */
static void build(self_check_image *image) {
  static const struct { u32 rows, n, k, gap; } shapes[] = {
    {17, 72, 576, 8}, {17, 72, 64, 0}, {17, 72, 64, 0}, {5, 40, 1024, 8}, {133, 24, 64, 8}, {17, 208, 128, 8}};
  const bool batched = image->form == 1, least = image->form == 2, quick = image->form == 3 || image->form == 4;
  const u32 rows = shapes[image->form].rows, n = shapes[image->form].n, k = shapes[image->form].k, gap = shapes[image->form].gap;
  const u32 batches = batched ? 2 : 1, padded = rows + 1;
  gemm_args a = {.step = take_step(image, batched ? 1 : rows, batched ? rows : 0, 0), .ldx = k + gap, .ldy = n + gap, .n = n, .k = k,
                 .batches = batches, .rows_kind = batched ? ROWS_LOGITS : ROWS_TOKENS,
                 .y_kind = batched ? Y_BF16 : image->form == 5 ? Y_SILU : Y_F32};
  a.x_batch = (u64)padded * a.ldx;
  a.w_batch = (u64)n * k;
  a.y_batch = (u64)padded * a.ldy;
  bf16 *x = take(image, batches * a.x_batch * 2), *w = take(image, batches * a.w_batch * 2);
  for (u32 b = 0; b < batches; b++) {
    for (u32 i = 0; i < rows; i++) fill_product(image, x + b * a.x_batch + (u64)i * a.ldx, k, kind_of(i, quick), 0);
    for (u32 i = 0; i < n; i++) fill_product(image, w + b * a.w_batch + (u64)i * k, k, kind_of(i, quick), 1);
  }
  for (u32 i = 0; i < rows && least; i++) fill_least(image, x + (u64)i * a.ldx, k, 0);
  for (u32 i = 0; i < n && least; i++) fill_least(image, w + (u64)i * k, k, 1);
  a.x = x;
  a.w = w;
  a.y = take(image, batches * a.y_batch * (a.y_kind == Y_F32 ? 4 : 2));
  LAUNCH(image, a, n, rows + 128, batches); /* for every tile size, some block has no row */
}

static const self_check_probe probes[] = {
    {4, 0, 0, 0, "fp32, long k", "9936d78499397c9b470170e8ad533484"},
    {4, 1, 0, 0, "bf16, batches", "eacb57f6109718906b87e172b404d28c"},
    {4, 2, 0, 0, "fp32, subnormal sums", "a213f9a2acab868148ca95e42532cebc"},
    {4, 3, 0, 0, "few rows, longer k", "e1a9ca8e73fb033da0e624e7942faa97"},
    {4, 4, 0, 0, "more rows than a tile", "cdb83701d9b7815f199968bb86464645"},
    {4, 5, 0, 0, "silu", "7717b4d9cf0c2716451f10ed754e5567"},
};

const self_check_op self_check_gemm = {build, ARRAY_LEN(probes), probes};
