/* op_maps.c - see op_maps.h. One function per kernel that takes maps; box sizes stand in the kernels' head comments. */
#include "op_maps.h"
#include "kernels.h"
#include <string.h>

static uint32_t spec_value(const jit_spec *specs, uint32_t spec_count, const char *name) {
  for (uint32_t i = 0; i < spec_count; i++)
    if (strcmp(specs[i].name, name) == 0) return specs[i].value;
  return 0;
}

bool op_maps_taken(const jit_spec *specs, uint32_t spec_count) { return spec_value(specs, spec_count, "SPEC_MAPS") != 0; }

static tensor_shape boxes(const void *address, uint32_t columns, uint64_t row_stride, uint64_t rows, uint32_t box_rows) {
  return (tensor_shape){.address = (uint64_t)(uintptr_t)address, .extent = {columns, rows, 1}, .stride_bytes = {2, row_stride * 2, row_stride * 2},
                        .box = {64, box_rows, 1}, .dims = 3, .swizzled = 1};
}

/* Of a kernel in the form of kernels_src/many.cuh: weights in boxes of MANY_W_BOX rows, tokens in boxes of MANY_STEP rows. */
static void many_boxes(const jit_spec *specs, uint32_t spec_count, const void *w, uint32_t n, uint32_t k, const void *x, uint32_t ldx,
                       uint64_t rows, tensor_shape shapes[2]) {
  shapes[0] = boxes(w, k, k, n, spec_value(specs, spec_count, "SPEC_TILE_N") == 64 ? 32 : 64);
  shapes[1] = boxes(x, k, ldx, rows, spec_value(specs, spec_count, "SPEC_TILE_ROWS") / 8);
}

static void add_matrices(tensor_shape *shape, uint32_t count, uint64_t stride) {
  shape->extent[2] = count;
  if (count > 1) shape->stride_bytes[2] = stride * 2;
}

static void gemm_maps(const jit_spec *specs, uint32_t spec_count, const gemm_args *a, uint32_t rows, tensor_shape shapes[2]) {
  many_boxes(specs, spec_count, a->w, a->n, a->k, a->x, a->ldx, rows, shapes);
  add_matrices(&shapes[0], a->batches, a->w_batch);
  add_matrices(&shapes[1], a->batches, a->x_batch);
}

/* Gathered tokens are copied without a map. */
static void moe_gemm_maps(const jit_spec *specs, uint32_t spec_count, const moe_gemm_args *a, uint32_t rows, tensor_shape shapes[2]) {
  many_boxes(specs, spec_count, a->w, a->n, a->k, a->x, a->ldx, (uint64_t)rows * a->top_k, shapes);
  add_matrices(&shapes[0], a->experts, (uint64_t)a->n * a->k);
  if (a->row_token) shapes[1] = shapes[0];
}

void op_maps(uint32_t kernel, const jit_spec *specs, uint32_t spec_count, const void *args, uint32_t rows, tensor_shape shapes[2]) {
  memset(shapes, 0, 2 * sizeof shapes[0]);
  switch (kernel) {
    case KERNEL_gemm: gemm_maps(specs, spec_count, args, rows, shapes); break;
    case KERNEL_moe_gemm: moe_gemm_maps(specs, spec_count, args, rows, shapes); break;
    default: ASSERT(false && "a kernel that takes maps");
  }
}
