/* force_isa.h - for tests that try every instruction set: selects the one that the CPU's products use from now on. */
#ifndef VERBATIM_FORCE_ISA_H
#define VERBATIM_FORCE_ISA_H
#include "engine/base/base.h"

/* All there are, of which a processor has at least the first; the best ones last. */
#define FORCE_ISA_NAMES {"portable", "neon", "avx2", "avx512"}

/* name: one of these; null: the best one again, as before the first call. On error, ERR_UNSUPPORTED where this processor
 * lacks it or ERR_USAGE for other names, nothing changes. Not while ops run. */
status force_isa(const char *name);

#endif
