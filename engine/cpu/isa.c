/* isa.c - selects the instruction set of the tensor-core product: the best one this processor has.
 *
 * All give the same bits. The choice is not cached: asking the processor takes a few loads and masks. Read next: h16_core.h. */
#include "cpu/cpu.h"
#include "base/processor.h"
#include "mma/h16_core.h"
#include <string.h>

typedef struct choice {
  const char *name;
  bool (*runs)(void);   /* NULL: on every processor      */
  const h16_core *core; /* NULL: of the other processors */
} choice;

/* Best first. The portable core always runs. */
#if defined(__x86_64__)
static const choice choices[] = {{"avx512", processor_has_avx512, &h16_avx512}, {"avx2", processor_has_avx2, &h16_avx2},
                                 {"neon", NULL, NULL}, {"portable", NULL, &h16_portable}};
#else
static const choice choices[] = {{"neon", NULL, &h16_neon}, {"avx512", NULL, NULL}, {"avx2", NULL, NULL},
                                 {"portable", NULL, &h16_portable}};
#endif

static bool can_run(const choice *c) { return c->core && (!c->runs || c->runs()); }

const h16_core *cpu_isa_core(void) {
  u32 best = 0;
  while (!can_run(&choices[best])) best++;
  return choices[best].core;
}

const char *cpu_isa(void) { return cpu_isa_core()->isa; }

status cpu_isa_find(const char *name, const h16_core **core) {
  for (u32 i = 0; i < ARRAY_LEN(choices); i++) {
    if (strcmp(choices[i].name, name) != 0) continue;
    if (!can_run(&choices[i])) return FAIL(ERR_UNSUPPORTED, "expected a processor with %s, found one without", name);
    *core = choices[i].core;
    return OK;
  }
  return FAIL(ERR_USAGE, "expected avx512, avx2, neon or portable, found '%s'", name);
}
