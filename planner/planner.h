/* planner.h - from the texts of config.json, deployment and profile to the bytes of a plan. A pure function: no clock, no
 * GPU, no file. The command line reads and writes the files. Read next: graph.h, place.h, check.h. */
#ifndef VERBATIM_PLANNER_H
#define VERBATIM_PLANNER_H
#include "engine/base/base.h"

typedef struct planner_text { /* bytes of a file, not NUL-terminated; null: no such file */
  const char *text;
  size_t bytes;
} planner_text;

typedef struct planner_input {
  planner_text config;  /* config.json of the model, required */
  planner_text deploy;  /* deployment; null: defaults         */
  planner_text profile; /* of a device; null: no library pins */
  const char *shipped;  /* the profile is one that comes with the program: its name; its pins are optional. Null: a file's */
} planner_input;

/* Makes and checks a plan; *bytes is 8-byte aligned and freed by the caller. Errors name the field; ERR_LIMIT when the plan does not
 * fit device_memory_bytes, with a table of what takes how much and the nearest setting that fits. */
status planner_make(const planner_input *input, void **bytes, size_t *byte_count);

#endif
