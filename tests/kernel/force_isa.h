/* force_isa.h - for tests that try every instruction set: the one that the CPU machine's tensor-core product uses from now on. */
#ifndef VERBATIM_FORCE_ISA_H
#define VERBATIM_FORCE_ISA_H
#include "engine/base/base.h"

/* name: "avx512", "avx2" or "portable"; null: the best one again, as before the first call. ERR_UNSUPPORTED if this processor lacks it,
 * ERR_USAGE for other names; nothing changes then. Not while ops run. */
status force_isa(const char *name);

#endif
