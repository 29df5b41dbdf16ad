/* cli/bench_tax.h - `verbatim bench PLAN --tax PROFILE`: what the guarantees cost, as whole steps of the plan with its own products and
 * with the fastest ones that a profile has, whatever bits those give. */
#ifndef VERBATIM_CLI_BENCH_TAX_H
#define VERBATIM_CLI_BENCH_TAX_H
#include "bench/bench.h"

/* Measures both with the same options, which name the plan, and prints the steps side by side; with json_path also there. */
status cli_bench_tax_run(const bench_options *options, const char *profile_path, const char *json_path);

#endif
