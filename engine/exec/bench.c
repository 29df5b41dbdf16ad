/* exec/bench.c - see exec/bench.h. All replays are queued at once with a mark between each two, so the device never waits for the host, and
 * the cost of starting a graph is shared by all its launches. Must not know what the ops are. */
#include "exec/bench.h"
#include "exec/state.h"

_Static_assert(EXEC_BENCH_PATTERN_BYTES == EXEC_SCRATCH_BYTES, "a pattern lies in the scratch");

status exec_bench_open(exec_bench *self, exec *machine) {
  *self = (exec_bench){.machine = machine};
  return machine->backend->calls->make_marks(machine->backend, EXEC_BENCH_REPLAYS_MAX + 1, &self->first_mark);
}

void exec_bench_fill(exec_bench *self, uint32_t region, uint64_t offset, uint64_t bytes, const void *pattern, uint64_t pattern_bytes) {
  exec *machine = self->machine;
  ASSERT(pattern_bytes > 0 && pattern_bytes <= EXEC_BENCH_PATTERN_BYTES);
  ASSERT(region < REGION_COUNT && offset <= machine->plan->regions[region].bytes);
  ASSERT(bytes <= machine->plan->regions[region].bytes - offset);
  machine->backend->calls->repeat(machine->backend, exec_address(machine, region, offset), bytes, pattern, pattern_bytes);
}

bool exec_bench_can_gather(const exec_bench *self, uint64_t bytes) {
  const exec *machine = self->machine;
  const uint64_t room = machine->plan->regions[REGION_WORK].bytes;
  return machine->gather.nccl && bytes > 0 && bytes < room && align_up(bytes, 256) + bytes * machine->ranks <= room;
}

static void run_list(exec *machine, const exec_bench_list *list) {
  backend *b = machine->backend;
  const uint64_t from = exec_address(machine, REGION_WORK, 0), to = from + align_up(list->gather_bytes, 256);
  if (list->gather_bytes) {
    for (uint32_t i = 0; i < list->launches; i++) b->calls->gather(b, from, to, list->gather_bytes);
    return;
  }
  for (uint32_t i = 0; i < list->launches; i++) exec_run_op(machine, exec_bench_op(list, i), list->token_rows, list->logit_rows, i > 0);
}

double exec_bench_once(exec_bench *self, const exec_bench_list *list) {
  backend *b = self->machine->backend;
  b->calls->mark(b, self->first_mark);
  run_list(self->machine, list);
  b->calls->mark(b, self->first_mark + 1);
  b->calls->sync(b, "a first run of ops");
  return b->calls->elapsed_us(b, self->first_mark, self->first_mark + 1);
}

static status capture_list(exec *machine, const exec_bench_list *list, backend_graph **graph) {
  backend *b = machine->backend;
  TRY(b->calls->capture_begin(b));
  run_list(machine, list);
  return b->calls->capture_end(b, graph);
}

status exec_bench_time(exec_bench *self, const exec_bench_list *list, uint32_t replays, double *us) {
  backend *b = self->machine->backend;
  backend_graph *graph = NULL;
  ASSERT((list->count > 0 || exec_bench_can_gather(self, list->gather_bytes)) && replays >= 1 && replays <= EXEC_BENCH_REPLAYS_MAX);
  if (b->has_graphs) TRY(capture_list(self->machine, list, &graph));
  for (uint32_t i = 0; i <= replays; i++) {
    if (graph) b->calls->replay(b, graph, "a graph of ops");
    else run_list(self->machine, list);
    b->calls->mark(b, self->first_mark + i);
  }
  b->calls->sync(b, "a graph of ops");
  for (uint32_t i = 0; i < replays; i++) us[i] = b->calls->elapsed_us(b, self->first_mark + i, self->first_mark + i + 1);
  if (graph) b->calls->drop_graph(b, graph);
  return OK;
}

bool exec_bench_uses_library(const exec_bench *self, uint32_t op, uint32_t rows) {
  return self->machine->backend->calls->uses_library(self->machine->backend, op, rows);
}
