/* force_isa.h - for tests that try every instruction set: selects the one that the CPU's products use from now on. */
#ifndef VERBATIM_FORCE_ISA_H
#define VERBATIM_FORCE_ISA_H
#include "engine/base/base.h"

/* name: "avx512", "avx2" or "portable"; null: the best one again, as before the first call. On error, ERR_UNSUPPORTED where this processor
 * lacks it or ERR_USAGE for other names, nothing changes. Not while ops run. */
status force_isa(const char *name);

#endif
