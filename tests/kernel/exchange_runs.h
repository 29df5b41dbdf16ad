/* exchange_runs.h - sequences of exchanges between ranks, for test_exchange.c: their memory, sizes, contents and expected results.
 *
 * Every rank has an area of the same layout. Before an exchange a rank overwrites its whole zone, as the ops between two exchanges could:
 * poison everywhere, and its columns in x. Afterwards the zone must hold what the CPU reference leaves there. Sizes, forms, grids and
 * places in the zone change from exchange to exchange; everything follows from the seed. Knows neither the emulator nor the GPU. */
#ifndef VERBATIM_TEST_EXCHANGE_RUNS_H
#define VERBATIM_TEST_EXCHANGE_RUNS_H
#include "engine/cpu/cpu.h"
#include "tests/kernel/cases.h"

#define RUN_RANKS_MAX 8u
#define RUN_STEPS_MAX 64u

typedef struct run_step {
  exchange_args args; /* of rank 0 in memory at `base` */
  bool has_tags;
  bool in_place[EXCHANGE_TABLES]; /* the rows that a rank owns are among those of y */
  u32 grid;
} run_step;

typedef struct exchange_run {
  u32 ranks, count, seed;
  size_t zone_bytes, zone_at, area_bytes; /* zone_at: in an area; before it lie the inputs of the steps, the ranks, state and inbox */
  u8 *base;                               /* the areas, or null: only addresses are computed */
  run_step steps[RUN_STEPS_MAX];
  u8 *expected;                           /* zones of all ranks after `expected_step` */
  u32 expected_step;
  u64 balance[RUN_RANKS_MAX];             /* that the reference has then added to EXCHANGE_BALANCE */
  cpu_pool *pool;
} exchange_run;

typedef struct run_limits {
  u32 ranks, count, grid;      /* grid: most blocks      */
  size_t zone_bytes;           /* bytes of x and y together */
  u32 part_units, rows;        /* most words of a row's part; most rows */
} run_limits;

/* Allocates the areas and fills everything but the zones. form: 0 flags, 1 tags, 2 either by turns at random. */
void exchange_runs_open(exchange_run *run, const run_limits *limits, u32 seed, u32 form);
void exchange_runs_close(exchange_run *run);

/* The arguments of a rank in step `step`, for areas at `base`. */
exchange_args exchange_runs_args(const exchange_run *run, u32 step, u32 rank, u64 base);

/* What the rank has in its zone before the step. */
void exchange_runs_fill(const exchange_run *run, u32 step, u32 rank, u8 *zone);

/* What the exchange of the step adds to EXCHANGE_DIGEST of every rank, and to EXCHANGE_BALANCE of one, if it is sampled. */
u64 exchange_runs_digest(exchange_run *run, u32 step);
u64 exchange_runs_balance(exchange_run *run, u32 step, u32 rank);

/* The first byte of the rank's zone that is not as it must be after the step, or zone_bytes. */
size_t exchange_runs_wrong(exchange_run *run, u32 step, u32 rank, const u8 *zone);

#endif
