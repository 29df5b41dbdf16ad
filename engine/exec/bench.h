/* exec/bench.h - what `verbatim bench` needs of the machine beside its steps: memory full of numbers, and the time of chosen ops.
 *
 * The ops are timed as steps run them, on the inputs that the last step left in memory: on the GPU in one captured graph that is replayed,
 * on the CPU machine one after the other. Before the freeze, while no step is under way. Read next: exec.h, bench/ops.c. */
#ifndef VERBATIM_EXEC_BENCH_H
#define VERBATIM_EXEC_BENCH_H
#include "exec/exec.h"

#define EXEC_BENCH_REPLAYS_MAX 33u

typedef struct exec_bench {
  exec *machine;
  uint32_t first_mark; /* of EXEC_BENCH_REPLAYS_MAX + 1 */
} exec_bench;

typedef struct exec_bench_list { /* launches of ops[0 .. count), in turn, for these rows; the last launch is of the last op */
  const uint32_t *ops;
  uint32_t count, launches;
  uint32_t token_rows, logit_rows;
} exec_bench_list;

/* The op of launch i. What the ops behind read is what the list's last one made, however many launches there are. */
static inline uint32_t exec_bench_op(const exec_bench_list *list, uint32_t i) {
  return list->ops[(i + list->count - list->launches % list->count) % list->count];
}

/* Behind exec_start_kernels. */
status exec_bench_open(exec_bench *self, exec *machine);

/* Writes bytes of a region over and over with the pattern, of at most EXEC_BENCH_PATTERN_BYTES. */
#define EXEC_BENCH_PATTERN_BYTES (4ull << 20)
void exec_bench_fill(exec_bench *self, uint32_t region, uint64_t offset, uint64_t bytes, const void *pattern, uint64_t pattern_bytes);

/* One run by direct launches, in microseconds: what the host takes to launch is in it. */
double exec_bench_once(exec_bench *self, const exec_bench_list *list);

/* us[i]: what replay i of the whole list took; replays: 1 .. EXEC_BENCH_REPLAYS_MAX. One replay more is run before them. */
status exec_bench_time(exec_bench *self, const exec_bench_list *list, uint32_t replays, double *us);

/* Whether a product of the library computes the op of that number for so many rows. */
bool exec_bench_uses_library(const exec_bench *self, uint32_t op, uint32_t rows);

#endif
