/* common/stats.h - what `verbatim run` reports about its start, memory and speed.
 *
 * On stderr for people, and with --stats as JSON. None of it is in a receipt, and none of it changes a bit. */
#ifndef VERBATIM_CLI_STATS_H
#define VERBATIM_CLI_STATS_H
#include "base/base.h"
#include "verbatim.h"

typedef struct cli_stats_run { /* from the first submitted request to the last token */
  uint32_t requests;
  uint64_t prompt_tokens; /* computed before the first token of a request: prefill */
  uint64_t generated_tokens;   /* decode */
  double seconds;
  verbatim_counters counters; /* at the end of the run */
} cli_stats_run;

/* Prints one line, or with verbose every stage and the memory. */
void cli_stats_print(const verbatim_info *ready, bool verbose);

/* Warns on stderr if the GPU memory in use differs from the plan. ended: verbatim_describe after the run. */
void cli_stats_check(const verbatim_info *ended);

/* ERR_IO: the file cannot be written. */
status cli_stats_write(const char *path, const verbatim_info *ended, const cli_stats_run *run);

#endif
