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

/* Both maps: the workspace of a piece, in boxes of 64 rows. */
static void map_prefill(const mla_prefill_args *a, tensor_shape shapes[2]) {
  uint64_t columns = (uint64_t)a->heads * (a->nope_dim + a->v_dim) + a->rope_dim;
  shapes[0] = (tensor_shape){.address = (uint64_t)(uintptr_t)a->expanded, .dims = 2, .swizzled = 1,
                             .extent = {columns, (uint64_t)a->piece_pages * PAGE_TOKENS, 1},
                             .stride_bytes = {2, columns * 2, 0}, .box = {64, PAGE_TOKENS, 1}};
  shapes[1] = shapes[0];
}

void op_maps(uint32_t kernel, const jit_spec *specs, uint32_t spec_count, const void *args, uint32_t rows, tensor_shape shapes[2]) {
  (void)specs, (void)spec_count, (void)rows;
  memset(shapes, 0, 2 * sizeof shapes[0]);
  ASSERT(kernel == KERNEL_mla_prefill);
  map_prefill(args, shapes);
}
