/* force_isa.c - see force_isa.h. Tests that use it are linked with --wrap=cpu_isa_core, because the library has no such switch. */
#include "force_isa.h"
#include "engine/mma/h16_core.h"

static const h16_core *forced; /* null: the best one */

const h16_core *__real_cpu_isa_core(void);
const h16_core *__wrap_cpu_isa_core(void);

const h16_core *__wrap_cpu_isa_core(void) { return forced ? forced : __real_cpu_isa_core(); }

status force_isa(const char *name) {
  if (name) return cpu_isa_find(name, &forced);
  forced = NULL;
  return OK;
}
