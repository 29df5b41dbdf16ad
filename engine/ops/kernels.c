/* kernels.c - the kernel table (see kernels.h), written by kernels.def. */
#include "ops/kernels.h"
#include <stddef.h>
#include <string.h>

/* One caller per kernel, since a function may only be called through a pointer of its own type. */
#define KERNEL(stem) \
  static void run_##stem(const void *args, cpu_pool *pool) { cpu_##stem(args, pool); }
#include "kernels_src/kernels.def"
#undef KERNEL

static const kernel_row rows[KERNEL_COUNT] = {
#define KERNEL(stem) {.name = #stem, .args_bytes = sizeof(stem##_args), .run_cpu = run_##stem, .op = &ops_##stem},
#include "kernels_src/kernels.def"
#undef KERNEL
};

#define KERNEL(stem) _Static_assert(sizeof(stem##_args) % 8 == 0 && sizeof(stem##_args) <= 4096, "kernel parameters");
#include "kernels_src/kernels.def"
#undef KERNEL

const kernel_row *kernels_row(uint32_t id) {
  ASSERT(id < KERNEL_COUNT);
  return &rows[id];
}

/* Arguments begin with pointers, so this field is never at offset 0. */
uint32_t kernels_piece_at(uint32_t id) {
  static const uint32_t piece_at[KERNEL_COUNT] = {[KERNEL_mla_expand] = offsetof(mla_expand_args, piece),
                                                  [KERNEL_mla_prefill] = offsetof(mla_prefill_args, piece),
                                                  [KERNEL_kv_widen] = offsetof(kv_widen_args, piece)};
  ASSERT(id < KERNEL_COUNT);
  return piece_at[id];
}

uint32_t kernels_find(const char *name) {
  uint32_t id = 0;
  while (id < KERNEL_COUNT && strcmp(rows[id].name, name) != 0) id++;
  return id;
}

uint32_t kernels_find_op(const op_description *op) {
  uint32_t id = 0;
  while (id < KERNEL_COUNT && rows[id].op != op) id++;
  return id;
}
