/* norm_runs.h - sequences of norms that exchange, for test_rank_norm.c: their memory, sizes, contents and expected results.
 *
 * As exchange_runs.h: every rank has an area of the same layout; before a norm a rank fills its whole zone, poison where the op must read
 * nothing; afterwards the zone must hold what the CPU reference leaves there. Knows neither the emulator nor the GPU. */
#ifndef VERBATIM_TEST_NORM_RUNS_H
#define VERBATIM_TEST_NORM_RUNS_H
#include "engine/cpu/cpu.h"
#include "tests/kernel/cases.h"

#define NORM_RANKS_MAX 8u
#define NORM_STEPS_MAX 16u

typedef struct norm_run {
  u32 ranks, count, seed;
  size_t zone_bytes, zone_at, area_bytes; /* zone_at: in an area; before it lie the inputs of the steps, the ranks, state and inbox */
  u8 *base;                               /* the areas */
  rank_norm_args steps[NORM_STEPS_MAX];   /* of rank 0 in memory at `base` */
  u32 grid[NORM_STEPS_MAX];
  u8 *expected;                           /* zones of all ranks after `expected_step` */
  u32 expected_step;
  cpu_pool *pool;
} norm_run;

/* Allocates the areas and fills everything but the zones. Steps of up to `rows` rows of at most `columns` columns, in up to rows + 2
 * blocks. */
void norm_runs_open(norm_run *run, u32 ranks, u32 count, u32 rows, u32 columns, u32 seed);
void norm_runs_close(norm_run *run);

/* The arguments of a rank in step `step`, for areas at `base`. */
rank_norm_args norm_runs_args(const norm_run *run, u32 step, u32 rank, u64 base);

/* What the rank has in its zone before the step. */
void norm_runs_fill(const norm_run *run, u32 step, u32 rank, u8 *zone);

/* The first byte of the rank's zone that is not as it must be after the step, or zone_bytes. */
size_t norm_runs_wrong(norm_run *run, u32 step, u32 rank, const u8 *zone);

/* The arguments of rank 0 for zones elsewhere, as rank 0's zone in memory at `zone`. */
rank_norm_args norm_runs_args_in(const norm_run *run, u32 step, u8 *zone);

exchange_ranks *norm_runs_ranks(const norm_run *run, u32 rank);

#endif
