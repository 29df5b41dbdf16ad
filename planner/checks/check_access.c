/* check_access.c - see check_access.h. What each op touches is in checks/<stem>.c. */
#include "checks/check_access.h"
#include "checks/reading.h"

uint64_t check_access_extent(const check_access *a) {
  if (a->rows == 0 || a->batches == 0) return 0;
  uint64_t last = plus(times(plus(a->first_row, a->rows - 1), a->row_stride), times(a->batches - 1, a->batch_stride));
  return plus(plus(a->start, last), a->run_bytes);
}

static uint32_t args_bytes_of(uint32_t kernel) {
  static const uint32_t BYTES[] = {
#define KERNEL(stem) sizeof(stem##_args),
#include "kernels_src/kernels.def"
#undef KERNEL
  };
  return kernel < ARRAY_LEN(BYTES) ? BYTES[kernel] : 0;
}

uint32_t check_access_describe(uint32_t kernel, const void *args, uint32_t args_bytes, const plan_limits *limits, const check_rows *rows,
                               check_access out[CHECK_ACCESS_MAX]) {
  writer w = {limits, *rows, 0, out};
  if (args_bytes == 0 || args_bytes != args_bytes_of(kernel)) return 0;
  reading_of(kernel)->describe(&w, args);
  return w.count;
}
