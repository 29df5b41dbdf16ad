/* boxes.c - see boxes.h. */
#include "ops/boxes.h"

tensor_shape boxes_matrices(const void *address, uint64_t columns, uint64_t rows, uint64_t count, uint64_t stride, uint64_t matrix_stride,
                            uint32_t box_rows, uint32_t box_matrices) {
  return (tensor_shape){.address = (uint64_t)(uintptr_t)address, .extent = {columns, rows, count}, .dims = 3, .swizzled = 1,
                        .stride_bytes = {2, 2 * stride, 2 * (count > 1 ? matrix_stride : rows * stride)},
                        .box = {64, box_rows, box_matrices}};
}

tensor_shape boxes_of_bytes(tensor_shape pairs) {
  pairs.extent[0] *= 2;
  pairs.box[0] *= 2;
  pairs.stride_bytes[0] = 1;
  return pairs;
}

/* Gate and up rows are matrices of their own, and one box loads both. */
tensor_shape boxes_few_weights(const op_variant *v, const void *w, uint32_t n, uint32_t k, uint32_t count, uint64_t w_batch,
                               uint32_t y_kind) {
  if (y_kind != Y_SILU) return boxes_matrices(w, k, n, count, k, w_batch, v->tile_n, 1);
  return boxes_matrices(w, k, n / 2, 2ull * count, k, (uint64_t)(n / 2) * k, v->tile_n / 2, 2);
}

/* A TMA box of two blocks of 128 k holds both of every eight rows, one after the other; for Y_SILU of gate and up rows. */
tensor_shape boxes_few_codes(const op_variant *v, const void *w, uint32_t n, uint32_t k, uint32_t count, uint32_t y_kind) {
  const uint32_t side = FP8_BOX_BLOCKS(v->tile_n, v->k_blocks);
  const tensor_shape all = {.address = (uint64_t)(uintptr_t)w, .extent = {128, 8, k / 128, (uint64_t)count * (n / 8)}, .dims = 4,
                            .swizzled = 1, .stride_bytes = {1, k, 128, 8ull * k}, .box = {128, 8, side, v->tile_n / 8}};
  if (side == 1) return boxes_of_bytes(boxes_few_weights(v, w, n, k / 2, count, (uint64_t)n * (k / 2), y_kind));
  if (y_kind != Y_SILU) return all;
  tensor_shape halves = all;
  halves.dims = 5;
  halves.extent[3] = n / 16;
  halves.extent[4] = 2ull * count;
  halves.stride_bytes[4] = (uint64_t)(n / 2) * k;
  halves.box[3] = FP8_HALF(v->tile_n, v->k_blocks) / 8;
  halves.box[4] = 2;
  return halves;
}

bool boxes_is_many(const op_variant *v) { return v->k_blocks == 0; }

/* One TMA box holds a CTA's share of the tile's weight rows. */
uint32_t boxes_many_w(const op_variant *v) { return v->tile_n / max_u32(v->cluster_rows, 1); }

/* LARGE_M_BOX of the kernels. */
uint32_t boxes_many_x(const op_variant *v, bool scaled) {
  const uint32_t rows = v->tile_rows, below = v->cluster_rows;
  if (scaled && below == 0) return 64 / v->cluster;
  if (below != 0 && (scaled || rows < 256)) return min_u32(rows, scaled ? 128 : rows) * below / v->cluster;
  return rows > 128 ? 32 : 16;
}

/* Gate and up rows alternate in groups of eight: a box holds groups of both. The groups of all matrices form one row; the up groups are
 * n / 16 groups after the gate's. */
tensor_shape boxes_many_weights(const void *w, uint32_t n, uint32_t k, uint32_t count, uint64_t w_batch, uint32_t y_kind, uint32_t box) {
  const uint64_t row_bytes = 2ull * k;
  if (y_kind != Y_SILU) return boxes_matrices(w, k, n, count, k, w_batch, box, 1);
  return (tensor_shape){.address = (uint64_t)(uintptr_t)w, .extent = {k, 8, 2, (uint64_t)count * (n / 8) - n / 16}, .dims = 4,
                        .swizzled = 1, .stride_bytes = {2, row_bytes, n / 2 * row_bytes, 8 * row_bytes}, .box = {64, 8, 2, box / 16}};
}

/* With 256 bytes, decode steps of 1, 4 and 64 sequences on an H200 take 2.4, 3.7 and 0.5 % longer. Prompts are 1 to 3 % faster with 256,
 * the default of op_maps.c. */
void boxes_read_once(tensor_shape shapes[2]) { shapes[0].l2_bytes = shapes[1].l2_bytes = 128; }
