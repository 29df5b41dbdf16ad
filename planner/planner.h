/* planner.h - from the texts of config.json, deployment and profile to the bytes of a plan.
 *
 * A pure function: no clock, no GPU, no file. The command line reads and writes the files. Read next: graph.h, place.h, check.h. */
#ifndef VERBATIM_PLANNER_H
#define VERBATIM_PLANNER_H
#include "engine/base/base.h"

typedef struct planner_text { /* bytes of a file, not NUL-terminated; NULL: no such file */
  const char *text;
  size_t bytes;
} planner_text;

typedef struct planner_input {
  planner_text config;  /* config.json of the model, required */
  planner_text deploy;  /* deployment; NULL: defaults         */
  planner_text profile; /* of a device; NULL: no library pins */
  const char *shipped;  /* name of a profile that ships with the program, whose pins are optional; NULL: the profile is a file's */
} planner_input;

/* Generates and checks a plan; *bytes is 8-byte aligned and freed by the caller. Errors name the field. ERR_LIMIT if the plan exceeds
 * device_memory_bytes, with a table of sizes and the nearest setting that fits. */
status planner_make(const planner_input *input, void **bytes, size_t *byte_count);

#endif
