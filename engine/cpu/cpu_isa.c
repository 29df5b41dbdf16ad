/* cpu_isa.c - which instruction set the tensor-core product uses: the best one this processor has, or the one a test forces.
 *
 * All give the same bits. Read next: h16_core.h. */
#include "cpu.h"
#include "h16_core.h"
#include <stdatomic.h>
#include <string.h>

static _Atomic(const h16_core *) chosen;

static bool core_runs(const h16_core *core) {
  if (core == &h16_avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
  if (core == &h16_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return true;
}

static const h16_core *const cores[] = {&h16_avx512, &h16_avx2, &h16_portable}; /* best first */

const h16_core *cpu_isa_core(void) {
  const h16_core *core = atomic_load_explicit(&chosen, memory_order_relaxed);
  for (u32 i = 0; !core; i++) {
    if (core_runs(cores[i])) atomic_store_explicit(&chosen, core = cores[i], memory_order_relaxed);
  }
  return core;
}

const char *cpu_isa(void) { return cpu_isa_core()->isa; }

status cpu_isa_force(const char *name) {
  if (!name) {
    atomic_store_explicit(&chosen, NULL, memory_order_relaxed);
    return OK;
  }
  for (u32 i = 0; i < ARRAY_LEN(cores); i++) {
    if (strcmp(cores[i]->isa, name) != 0) continue;
    if (!core_runs(cores[i])) return FAIL(ERR_UNSUPPORTED, "expected a processor with %s, found one without", name);
    atomic_store_explicit(&chosen, cores[i], memory_order_relaxed);
    return OK;
  }
  return FAIL(ERR_USAGE, "expected avx512, avx2 or portable, found '%s'", name);
}
