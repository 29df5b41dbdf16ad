/* op_maps.c - see op_maps.h. One function per kernel that takes maps; box sizes stand in the kernels' head comments. */
#include "op_maps.h"
#include "kernels.h"
#include "kernels_src/abi.h"
#include "limits.h"
#include <string.h>

static uint32_t spec_value(const jit_spec *specs, uint32_t spec_count, const char *name) {
  for (uint32_t i = 0; i < spec_count; i++)
    if (strcmp(specs[i].name, name) == 0) return specs[i].value;
  return 0;
}

bool op_maps_taken(const jit_spec *specs, uint32_t spec_count) { return spec_value(specs, spec_count, "SPEC_MAPS") != 0; }

/* mla_decode.cuh, mla_pair.cuh: boxes of 64 tokens, or of the variant's rows, by 64 columns. Page numbers have no bound here: the plan's
 * pages do. */
static void maps_of_attn(const mla_attn_args *a, uint32_t box_rows, uint32_t rows, tensor_shape shapes[2]) {
  uint64_t columns = (uint64_t)a->kv_lora_rank + a->rope_dim;
  tensor_shape common = {.extent = {columns, 0, 1}, .stride_bytes = {2, 2 * columns, 0}, .box = {64, 0, 1}, .dims = 2, .swizzled = 1};
  shapes[0] = shapes[1] = common;
  shapes[0].address = (uint64_t)(uintptr_t)a->kv;
  shapes[0].extent[1] = (uint64_t)KV_PAGES_MAX * PAGE_TOKENS;
  shapes[0].box[1] = PAGE_TOKENS;
  shapes[1].address = (uint64_t)(uintptr_t)a->q;
  shapes[1].extent[1] = (uint64_t)rows * a->heads;
  shapes[1].box[1] = box_rows;
}

void op_maps(uint32_t kernel, const jit_spec *specs, uint32_t spec_count, const void *args, uint32_t rows, tensor_shape shapes[2]) {
  memset(shapes, 0, 2 * sizeof shapes[0]);
  ASSERT(kernel < KERNEL_COUNT);
  if (kernel == KERNEL_mla_attn) maps_of_attn(args, spec_value(specs, spec_count, "SPEC_ROWS"), rows, shapes);
}
