/* exec/bench.c - see exec/bench.h. The replays stand one behind the other on the stream, a mark between each two: so the device never
 * waits for the host, and what a graph's start costs is shared by all its launches.
 * Must not know what the ops are. */
#include "exec/bench.h"
#include "base/clock.h"
#include "exec/state.h"
#include <string.h>

_Static_assert(EXEC_BENCH_PATTERN_BYTES == EXEC_SCRATCH_BYTES, "a pattern lies in the scratch");

status exec_bench_open(exec_bench *self, exec *machine) {
  *self = (exec_bench){.machine = machine};
  for (uint32_t i = 0; i <= EXEC_BENCH_REPLAYS_MAX && machine->options.device; i++)
    TRY(gpu_event_open(machine->options.device, true, &self->marks[i]));
  return OK;
}

void exec_bench_fill(exec_bench *self, uint32_t region, uint64_t offset, uint64_t bytes, const void *pattern, uint64_t pattern_bytes) {
  exec *machine = self->machine;
  gpu *device = machine->options.device;
  ASSERT(pattern_bytes > 0 && pattern_bytes <= EXEC_BENCH_PATTERN_BYTES);
  ASSERT(region < REGION_COUNT && offset <= machine->plan->regions[region].bytes);
  ASSERT(bytes <= machine->plan->regions[region].bytes - offset);
  if (device) memcpy(machine->scratch, pattern, pattern_bytes < bytes ? pattern_bytes : bytes);
  for (uint64_t at = 0, piece; at < bytes; at += piece) {
    uint64_t target = exec_address(machine, region, offset + at);
    piece = bytes - at < pattern_bytes ? bytes - at : pattern_bytes;
    if (device) gpu_upload(device, machine->stream, target, machine->scratch, piece);
    else memcpy((void *)(uintptr_t)target, pattern, piece);
  }
  if (device) gpu_sync(device, machine->stream, "filling memory");
}

static void run_list(exec *machine, const exec_bench_list *list) {
  for (uint32_t i = 0; i < list->launches; i++) exec_run_op(machine, exec_bench_op(list, i), list->token_rows, list->logit_rows, i > 0);
}

static double time_on_host(exec *machine, const exec_bench_list *list) {
  double from = clock_seconds();
  run_list(machine, list);
  return 1e6 * (clock_seconds() - from);
}

double exec_bench_once(exec_bench *self, const exec_bench_list *list) {
  exec *machine = self->machine;
  gpu *device = machine->options.device;
  if (!device) return time_on_host(machine, list);
  gpu_record(device, machine->stream, self->marks[0]);
  run_list(machine, list);
  gpu_record(device, machine->stream, self->marks[1]);
  gpu_sync(device, machine->stream, "a first run of ops");
  return gpu_elapsed_us(device, self->marks[0], self->marks[1]);
}

status exec_bench_time(exec_bench *self, const exec_bench_list *list, uint32_t replays, double *us) {
  exec *machine = self->machine;
  gpu *device = machine->options.device;
  gpu_graph *graph;
  ASSERT(list->count > 0 && replays >= 1 && replays <= EXEC_BENCH_REPLAYS_MAX);
  if (!device) {
    run_list(machine, list);
    for (uint32_t i = 0; i < replays; i++) us[i] = time_on_host(machine, list);
    return OK;
  }
  TRY(gpu_capture_begin(device, machine->stream));
  run_list(machine, list);
  TRY(gpu_capture_end(device, machine->stream, &graph));
  for (uint32_t i = 0; i <= replays; i++) {
    gpu_graph_launch(device, machine->stream, graph, "a graph of ops");
    gpu_record(device, machine->stream, self->marks[i]);
  }
  gpu_sync(device, machine->stream, "a graph of ops");
  for (uint32_t i = 0; i < replays; i++) us[i] = gpu_elapsed_us(device, self->marks[i], self->marks[i + 1]);
  gpu_graph_drop(device, graph);
  return OK;
}

bool exec_bench_uses_library(const exec_bench *self, uint32_t op, uint32_t rows) {
  return exec_library_choice(&self->machine->ops[op], rows) != NULL;
}
