/* self_check/fp8_gemm.c - the probes of the op `fp8_gemm` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"
#include "self_check/codes.h"

/* Form 0: fp32, nine blocks of k, rows of weights ending inside a block of scales. 1: bf16 by logits rows, gaps. 2: silu, columns over
 * several tiles. 3: more rows than the largest tile. */
static void build(self_check_image *image) {
  static const struct { u32 rows, n, k, gap; } shapes[] = {{17, 200, 1152, 8}, {5, 72, 256, 8}, {19, 512, 256, 0}, {133, 136, 128, 8}};
  const u32 rows = shapes[image->form].rows, n = shapes[image->form].n, k = shapes[image->form].k, blocks = k / SCALE_COLUMNS;
  const bool by_logits = image->form == 1;
  fp8_gemm_args a = {.step = take_step(image, by_logits ? 1 : rows, by_logits ? rows : 0, 0), .ldy = n + shapes[image->form].gap, .n = n,
                     .k = k, .rows_kind = by_logits ? ROWS_LOGITS : ROWS_TOKENS,
                     .y_kind = by_logits ? Y_BF16 : image->form == 2 ? Y_SILU : Y_F32};
  a.x = take_codes(image, rows, rows + 1, k, 0);
  a.x_scale = take_scales(image, rows, rows + 1, blocks);
  a.w = take_codes(image, n, n, k, 1);
  a.w_scale = take_scales(image, (u32)div_up(n, SCALE_COLUMNS), (u32)div_up(n, SCALE_COLUMNS), blocks);
  a.y = take(image, (u64)(rows + 1) * a.ldy * (a.y_kind == Y_F32 ? 4 : 2));
  LAUNCH(image, a, n, rows + 128, 1); /* for every tile size, some block has no row */
}

static const self_check_probe probes[] = {
    {19, 0, 0, 0, "fp32, long k", "948cc20c53f1ceaa205e1210d0b30503"},
    {19, 1, 0, 0, "bf16", "648ebdcaf46bc7d3911d7cfb6cf60cc4"},
    {19, 2, 0, 0, "silu", "bf7a7703d82166ccbca2f810ad43d797"},
    {19, 3, 0, 0, "more rows than a tile", "6169328ea7116323d1028e3f9e801ea8"},
};

const self_check_op self_check_fp8_gemm = {build, ARRAY_LEN(probes), probes};
