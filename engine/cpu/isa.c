/* isa.c - selects the instruction set of the tensor-core product: the best one this processor has.
 *
 * All give the same bits. The choice is not cached: asking the processor takes a few loads and masks. Read next: h16_core.h. */
#include "cpu/cpu.h"
#include "mma/h16_core.h"
#include <string.h>

static const h16_core *const cores[] = {&h16_avx512, &h16_avx2, &h16_portable}; /* best first */

static bool core_runs(const h16_core *core) {
  if (core == &h16_avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
  if (core == &h16_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return true;
}

const h16_core *cpu_isa_core(void) {
  u32 best = 0;
  while (!core_runs(cores[best])) best++; /* terminates: the portable core always runs */
  return cores[best];
}

const char *cpu_isa(void) { return cpu_isa_core()->isa; }

status cpu_isa_find(const char *name, const h16_core **core) {
  for (u32 i = 0; i < ARRAY_LEN(cores); i++) {
    if (strcmp(cores[i]->isa, name) != 0) continue;
    if (!core_runs(cores[i])) return FAIL(ERR_UNSUPPORTED, "expected a processor with %s, found one without", name);
    *core = cores[i];
    return OK;
  }
  return FAIL(ERR_USAGE, "expected avx512, avx2 or portable, found '%s'", name);
}
