/* reading.c - the table of reading.h, in the order of kernels.def. */
#include "checks/reading.h"

static const reading *const readings[] = {
#define KERNEL(stem) &checks_##stem,
#include "kernels_src/kernels.def"
#undef KERNEL
};

const reading *reading_of(uint32_t kernel) { return kernel < ARRAY_LEN(readings) ? readings[kernel] : NULL; }
