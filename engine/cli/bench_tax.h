/* cli/bench_tax.h - `verbatim bench PLAN --tax PROFILE`: the cost of the guarantees.
 *
 * Compares whole steps of the plan with its own products and with the fastest ones of a profile, whatever their bits. Must not write plans
 * or profiles. Read next: bench/bench.h, planner/profile.h. */
#ifndef VERBATIM_CLI_BENCH_TAX_H
#define VERBATIM_CLI_BENCH_TAX_H
#include "bench/bench.h"

/* Measures both with the same options, which name the plan, and prints the steps next to each other; with json_path also as JSON. */
status cli_bench_tax_run(const bench_options *options, const char *profile_path, const char *json_path);

#endif
