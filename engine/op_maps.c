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

static tensor_shape boxes_of(const void *matrix, uint64_t columns, uint64_t rows) {
  return (tensor_shape){.address = (uint64_t)(uintptr_t)matrix, .extent = {columns, rows, 1}, .stride_bytes = {2, columns * 2, 0},
                        .box = {64, 64, 1}, .dims = 2, .swizzled = 1};
}

/* KV rows of all pages, whose number the op does not know: page numbers are the scheduler's. Queries of all heads. */
static void maps_of_attention(const mla_attn_args *a, uint32_t rows, tensor_shape shapes[2]) {
  const uint64_t columns = a->kv_lora_rank + a->rope_dim;
  shapes[0] = boxes_of(a->kv, columns, UINT64_C(1) << 31);
  shapes[1] = boxes_of(a->q, columns, (uint64_t)rows * a->heads);
}

void op_maps(uint32_t kernel, const jit_spec *specs, uint32_t spec_count, const void *args, uint32_t rows, tensor_shape shapes[2]) {
  (void)specs, (void)spec_count;
  memset(shapes, 0, 2 * sizeof shapes[0]);
  ASSERT(kernel == KERNEL_mla_attn);
  maps_of_attention(args, rows, shapes);
}
