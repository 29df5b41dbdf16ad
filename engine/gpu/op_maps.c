/* op_maps.c - see op_maps.h. The shapes come from the description of the op (ops/op.h). */
#include "gpu/op_maps.h"
#include "ops/kernels.h"
#include <string.h>

static uint32_t value_of(const jit_spec *specs, uint32_t spec_count, const char *name) {
  for (uint32_t i = 0; i < spec_count; i++)
    if (strcmp(specs[i].name, name) == 0) return specs[i].value;
  return 0;
}

bool op_maps_taken(const jit_spec *specs, uint32_t spec_count) { return value_of(specs, spec_count, "SPEC_MAPS") != 0; }

void op_maps(uint32_t kernel, const jit_spec *specs, uint32_t spec_count, const void *args, uint32_t rows, tensor_shape shapes[2]) {
  const op_variant v = {.tile_n = value_of(specs, spec_count, "SPEC_TILE_N"), .tile_rows = value_of(specs, spec_count, "SPEC_TILE_ROWS"),
                        .k_blocks = value_of(specs, spec_count, "SPEC_K_BLOCKS"), .cluster = value_of(specs, spec_count, "SPEC_CLUSTER"),
                        .cluster_rows = value_of(specs, spec_count, "SPEC_CLUSTER_ROWS"), .rows = value_of(specs, spec_count, "SPEC_ROWS"),
                        .launch_rows = rows};
  const op_description *op = kernels_row(kernel)->op;
  ASSERT(op->maps);
  memset(shapes, 0, 2 * sizeof shapes[0]);
  op->maps(&v, args, shapes);
  for (int i = 0; i < 2; i++)
    if (shapes[i].l2_bytes == 0) shapes[i].l2_bytes = 256;
}
