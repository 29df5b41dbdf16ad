/* rank_streams.h - a stream of launches on each of several ranks in the emulator, for the tests of kernels that exchange.
 *
 * Ranks run ahead and fall behind. Before a launch a rank fills its zone; once all its threads have ended the launch, the zone is compared
 * with what the launch must leave there. Read next: exchange_runs.h, norm_runs.h. */
#ifndef VERBATIM_TEST_RANK_STREAMS_H
#define VERBATIM_TEST_RANK_STREAMS_H
#include <stdbool.h>
#include <stddef.h>
#include "abi_ranks.h"
#include "tests/emulator/emulator.h"

typedef struct rank_stream {
  /* Set by the test. */
  u32 ranks, count; /* count: launches of each rank */
  u32 absent;       /* a rank that stays away from the last launch, or RANKS_MAX */
  u8 *zones;        /* of rank 0; the next rank's is area_bytes further */
  size_t area_bytes, zone_bytes;
  void *of; /* the first argument of the calls */
  void (*fill)(const void *of, u32 step, u32 rank, u8 *zone);
  size_t (*wrong)(void *of, u32 step, u32 rank, const u8 *zone); /* the first wrong byte, or zone_bytes */
  void (*launch)(const void *of, u32 step, u32 rank);            /* by emulator_launch; called by every thread */

  u32 at[RANKS_MAX]; /* launches that the rank has begun */
  u32 wrong_step, wrong_rank;
  bool is_wrong;
} rank_stream;

/* Runs `blocks` blocks of `threads` threads of each rank. Null, or what went wrong. seed, idle_ns: see emulator_kernel. */
const char *rank_streams_run(rank_stream *self, u32 threads, u32 blocks, u64 seed, u64 idle_ns);

/* Fails the test unless `emulate`, with one of 200 seeds, finds every kernel of the stem that flaws.toml breaks. */
void rank_streams_find_flaws(const char *stem, const char *(*emulate)(const emulator_kernel *kernel, u32 seed));

#endif
