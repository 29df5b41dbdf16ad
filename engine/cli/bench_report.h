/* cli/bench_report.h - writes the figures of `verbatim bench`: tables for people, JSON, and a roofline picture.
 *
 * Measures nothing: bench/bench.h does. Read next: bench/roofline.h. */
#ifndef VERBATIM_CLI_BENCH_REPORT_H
#define VERBATIM_CLI_BENCH_REPORT_H
#include "base/base.h"
#include "bench/bench.h"
#include "plan/plan.h"

typedef struct cli_bench_report {
  const plan *plan;
  const bench_report *results;
} cli_bench_report;

/* Prints tables on stdout. */
void cli_bench_report_print(const cli_bench_report *self);

/* Writes one object. ERR_IO: the file cannot be written. */
status cli_bench_report_json(const cli_bench_report *self, const char *path);

/* Writes an SVG of the ops with floating-point work, one point for each row count and context. ERR_IO, ERR_LIMIT. */
status cli_bench_report_roofline(const cli_bench_report *self, const char *path);

#endif
