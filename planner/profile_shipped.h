/* profile_shipped.h - the profiles that ship with the program: the files of planner/profiles/ as of the build.
 *
 * Defined by build/gen/profile_shipped.c, which tools/embed.py writes. Measured by tools/probe_all.sh. Read next: profile.h. */
#ifndef VERBATIM_PROFILE_SHIPPED_H
#define VERBATIM_PROFILE_SHIPPED_H
#include "engine/base/kernel_sources.h"

extern const kernel_source profile_shipped[]; /* name: "nvidia-h200.json"; `verbatim plan` uses the first by default */
extern const size_t profile_shipped_count;

#endif
