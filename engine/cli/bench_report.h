/* cli/bench_report.h - how the figures of `verbatim bench` are written: tables for people, JSON, and a picture. */
#ifndef VERBATIM_CLI_BENCH_REPORT_H
#define VERBATIM_CLI_BENCH_REPORT_H
#include "base/base.h"
#include "bench/bench.h"
#include "plan/plan.h"

typedef struct cli_bench_report {
  const plan *plan;
  const bench_report *results;
} cli_bench_report;

/* Tables on stdout. */
void cli_bench_report_print(const cli_bench_report *self);

/* One object. ERR_IO: the file cannot be written. */
status cli_bench_report_json(const cli_bench_report *self, const char *path);

/* The ops with floating-point work, one point for each row count and context (SVG). ERR_IO, ERR_LIMIT. */
status cli_bench_report_roofline(const cli_bench_report *self, const char *path);

#endif
