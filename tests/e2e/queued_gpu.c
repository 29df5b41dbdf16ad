/* queued_gpu.c - see queued_gpu.h. A queue per stream; an event is a position in one. */
#include "tests/e2e/queued_gpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/gpu/gpu.h"
#include "engine/gpu/jit.h"
#include "engine/ops/kernels.h"

#define ARGS_BYTES_MAX 512u
#define OBJECTS_MAX 256u

queued_gpu queued;

enum kind { COPY, FILL, LAUNCH, GRAPH, WAIT };

typedef struct launch {
  const kernel_row *row;
  uint64_t args[ARGS_BYTES_MAX / 8];
} launch;

struct gpu_graph {
  launch *list;
  uint32_t count;
};

typedef struct work {
  enum kind kind;
  void *target;
  const void *source;
  uint64_t bytes;
  uint32_t word;
  launch launch;
  const gpu_graph *graph;
  gpu_stream *other; /* to wait for, until this much of it is done */
  uint64_t place;
} work;

struct gpu_stream {
  work *queue; /* [queued - first]: the work queued since everything was done */
  uint64_t first, done, queued, room;
  uint32_t number;
};

struct gpu_event {
  gpu_stream *stream;
  uint64_t place;
};

static struct {
  cpu_pool *pool;
  gpu_info info;
  gpu_counters counters;
  gpu_stream streams[QUEUED_STREAMS];
  gpu_event events[OBJECTS_MAX];
  gpu_graph graphs[OBJECTS_MAX];
  void *blocks[2];
  gpu_graph *captured; /* null: none is being captured */
  bool is_frozen, is_bound;
} it;

/* === Work =================================================================================================================== */

static void run_launch(const launch *l) { l->row->run_cpu(l->args, it.pool); }

static void run_until(gpu_stream *stream, uint64_t place) {
  while (stream->done < place) {
    work *w = &stream->queue[stream->done++ - stream->first];
    switch (w->kind) {
      case COPY: memmove(w->target, w->source, w->bytes); break;
      case FILL:
        for (uint64_t i = 0; i < w->bytes / 4; i++) memcpy((uint8_t *)w->target + 4 * i, &w->word, 4);
        break;
      case LAUNCH: run_launch(&w->launch); break;
      case GRAPH:
        for (uint32_t i = 0; i < w->graph->count; i++) run_launch(&w->graph->list[i]);
        break;
      case WAIT:
        if (!queued.ignores_waits[stream->number]) run_until(w->other, w->place);
        break;
    }
  }
}

static void put(gpu_stream *stream, const work *w) {
  ASSERT(it.is_bound);
  if (stream->done == stream->queued) stream->first = stream->queued;
  if (stream->queued - stream->first == stream->room) {
    stream->room = 2 * stream->room + 64;
    stream->queue = realloc(stream->queue, stream->room * sizeof *stream->queue);
    ASSERT(stream->queue);
  }
  stream->queue[stream->queued++ - stream->first] = *w;
  if (queued.eager) run_until(stream, stream->queued);
}

static void *at(uint64_t address) { return (void *)(uintptr_t)address; }

static void put_copy(gpu_stream *stream, void *target, const void *source, size_t bytes) {
  ASSERT(!it.captured);
  it.counters.copies++;
  put(stream, &(work){.kind = COPY, .target = target, .source = source, .bytes = bytes});
}

void __wrap_gpu_upload(gpu *self, gpu_stream *stream, uint64_t target, const void *source, size_t bytes);
void __wrap_gpu_download(gpu *self, gpu_stream *stream, void *target, uint64_t source, size_t bytes);
void __wrap_gpu_copy(gpu *self, gpu_stream *stream, uint64_t target, uint64_t source, size_t bytes);
void __wrap_gpu_fill32(gpu *self, gpu_stream *stream, uint64_t target, uint32_t word, uint64_t words);
void __wrap_gpu_launch(gpu *self, gpu_stream *stream, const gpu_work *w);
void __wrap_gpu_graph_launch(gpu *self, gpu_stream *stream, gpu_graph *graph, const char *op);
void __wrap_gpu_record(gpu *self, gpu_stream *stream, gpu_event *event);
void __wrap_gpu_wait(gpu *self, gpu_stream *stream, gpu_event *event);
void __wrap_gpu_sync(gpu *self, gpu_stream *stream, const char *op);
void __wrap_gpu_event_sync(gpu *self, gpu_event *event, const char *op);
bool __wrap_gpu_event_done(gpu *self, gpu_event *event, const char *op);
double __wrap_gpu_elapsed_us(gpu *self, gpu_event *first, gpu_event *last);
void __wrap_gpu_tensor(gpu *self, const tensor_shape *shape, const char *op, tensor_map *out);

void __wrap_gpu_upload(gpu *self, gpu_stream *stream, uint64_t target, const void *source, size_t bytes) {
  (void)self;
  put_copy(stream, at(target), source, bytes);
}

void __wrap_gpu_download(gpu *self, gpu_stream *stream, void *target, uint64_t source, size_t bytes) {
  (void)self;
  put_copy(stream, target, at(source), bytes);
}

void __wrap_gpu_copy(gpu *self, gpu_stream *stream, uint64_t target, uint64_t source, size_t bytes) {
  (void)self;
  put_copy(stream, at(target), at(source), bytes);
}

void __wrap_gpu_fill32(gpu *self, gpu_stream *stream, uint64_t target, uint32_t word, uint64_t words) {
  (void)self;
  ASSERT(!it.captured && target % 4 == 0);
  put(stream, &(work){.kind = FILL, .target = at(target), .word = word, .bytes = 4 * words});
}

void __wrap_gpu_launch(gpu *self, gpu_stream *stream, const gpu_work *w) {
  (void)self;
  work made = {.kind = LAUNCH, .launch = {.row = kernels_row(kernels_find(w->kernel->name))}};
  ASSERT(it.is_bound && w->kernel->args_bytes <= ARGS_BYTES_MAX && (w->maps != NULL) == w->kernel->takes_maps);
  memcpy(made.launch.args, w->args, w->kernel->args_bytes);
  if (w->grid[0] == 0 || w->grid[1] == 0 || w->grid[2] == 0) return;
  queued.launches++;
  queued.branch_launches += stream->number == QUEUED_BRANCH;
  gpu_graph *graph = it.captured;
  if (!graph) {
    put(stream, &made);
    return;
  }
  graph->list = realloc(graph->list, (graph->count + 1ull) * sizeof *graph->list);
  ASSERT(graph->list);
  graph->list[graph->count++] = made.launch; /* the order of a capture is one that its branches allow */
}

void __wrap_gpu_graph_launch(gpu *self, gpu_stream *stream, gpu_graph *graph, const char *op) {
  (void)self, (void)op;
  ASSERT(!it.captured);
  queued.graph_launches++;
  put(stream, &(work){.kind = GRAPH, .graph = graph});
}

void __wrap_gpu_record(gpu *self, gpu_stream *stream, gpu_event *event) {
  (void)self;
  *event = (gpu_event){.stream = stream, .place = stream->queued};
}

void __wrap_gpu_wait(gpu *self, gpu_stream *stream, gpu_event *event) {
  (void)self;
  ASSERT(event->stream);
  if (!it.captured) put(stream, &(work){.kind = WAIT, .other = event->stream, .place = event->place});
}

void __wrap_gpu_sync(gpu *self, gpu_stream *stream, const char *op) {
  (void)self, (void)op;
  ASSERT(!it.captured);
  run_until(stream, stream->queued);
}

void __wrap_gpu_event_sync(gpu *self, gpu_event *event, const char *op) {
  (void)self, (void)op;
  if (event->stream) run_until(event->stream, event->place);
}

bool __wrap_gpu_event_done(gpu *self, gpu_event *event, const char *op) {
  (void)self, (void)op;
  return !event->stream || event->stream->done >= event->place;
}

double __wrap_gpu_elapsed_us(gpu *self, gpu_event *first, gpu_event *last) {
  (void)self;
  ASSERT(first->stream->done >= first->place && last->stream->done >= last->place);
  return 1;
}

void __wrap_gpu_tensor(gpu *self, const tensor_shape *shape, const char *op, tensor_map *out) {
  (void)self, (void)shape, (void)op;
  memset(out, 0, sizeof *out);
}

/* === Start-up =============================================================================================================== */

status __wrap_gpu_open(uint32_t index, const dynlib_search *search, gpu **out);
void __wrap_gpu_close(gpu *self);
const gpu_info *__wrap_gpu_describe(const gpu *self);
gpu_counters __wrap_gpu_count(const gpu *self);
status __wrap_gpu_memory(gpu *self, uint64_t *free_bytes, uint64_t *total_bytes);
void __wrap_gpu_bind(gpu *self);
void __wrap_gpu_unbind(gpu *self);
void __wrap_gpu_select(gpu *self);
void __wrap_gpu_on_fault(gpu *self, gpu_fault_hook *hook, void *context);
void __wrap_gpu_freeze(gpu *self);
uint64_t __wrap_gpu_reserved_bytes(const gpu *self);
status __wrap_gpu_reserve(gpu *self, uint64_t bytes, uint64_t *address);
status __wrap_gpu_pin(gpu *self, size_t bytes, void **host);
status __wrap_gpu_stream_open(gpu *self, gpu_stream **out);
status __wrap_gpu_event_open(gpu *self, bool timed, gpu_event **out);
status __wrap_gpu_kernel_load(gpu *self, const gpu_kernel_config *config, gpu_kernel *out);
status __wrap_gpu_capture_begin(gpu *self, gpu_stream *stream);
status __wrap_gpu_capture_end(gpu *self, gpu_stream *stream, gpu_graph **out);

status __wrap_gpu_open(uint32_t index, const dynlib_search *search, gpu **out) {
  (void)index, (void)search;
  const bool eager = queued.eager;
  ASSERT(!it.pool);
  memset(&it, 0, sizeof it);
  queued.launches = queued.graph_launches = queued.captures = queued.branch_launches = 0;
  queued.eager = eager;
  TRY(cpu_pool_open(&it.pool, 2));
  it.info = (gpu_info){.name = "queued GPU", .capability = 90, .driver_version = 13000, .sm_count = 132, .shared_bytes_max = 232448,
                       .l2_bytes = 50u << 20, .memory_bytes = 64ull << 30};
  it.is_bound = true;
  *out = (gpu *)(void *)&it;
  return OK;
}

void __wrap_gpu_close(gpu *self) {
  if (!self) return;
  ASSERT(it.is_bound);
  for (uint32_t i = 0; i < QUEUED_STREAMS; i++) free(it.streams[i].queue);
  for (uint32_t i = 0; i < OBJECTS_MAX; i++) free(it.graphs[i].list);
  for (uint32_t i = 0; i < 2; i++) free(it.blocks[i]);
  cpu_pool_close(it.pool);
  memset(&it, 0, sizeof it);
}

const gpu_info *__wrap_gpu_describe(const gpu *self) {
  (void)self;
  return &it.info;
}

gpu_counters __wrap_gpu_count(const gpu *self) {
  (void)self;
  return it.counters;
}

status __wrap_gpu_memory(gpu *self, uint64_t *free_bytes, uint64_t *total_bytes) {
  (void)self;
  *free_bytes = *total_bytes = it.info.memory_bytes;
  return OK;
}

void __wrap_gpu_bind(gpu *self) {
  (void)self;
  ASSERT(!it.is_bound);
  it.is_bound = true;
}

void __wrap_gpu_unbind(gpu *self) {
  (void)self;
  ASSERT(it.is_bound);
  it.is_bound = false;
}

void __wrap_gpu_select(gpu *self) {
  (void)self;
  ASSERT(it.is_bound);
}

void __wrap_gpu_on_fault(gpu *self, gpu_fault_hook *hook, void *context) { (void)self, (void)hook, (void)context; }

void __wrap_gpu_freeze(gpu *self) {
  (void)self;
  it.is_frozen = true;
}

uint64_t __wrap_gpu_reserved_bytes(const gpu *self) {
  (void)self;
  return 0;
}

/* Undefined contents: bytes that look like numbers and do not come from the program. */
static status make_block(uint32_t which, uint64_t bytes) {
  ASSERT(!it.is_frozen && !it.blocks[which]);
  it.blocks[which] = aligned_alloc(4096, align_up(bytes, 4096));
  if (!it.blocks[which]) return FAIL(ERR_DEVICE, "queued GPU: no memory");
  memset(it.blocks[which], 0x3e, bytes);
  return OK;
}

status __wrap_gpu_reserve(gpu *self, uint64_t bytes, uint64_t *address) {
  (void)self;
  TRY(make_block(0, bytes));
  *address = (uint64_t)(uintptr_t)it.blocks[0];
  return OK;
}

status __wrap_gpu_pin(gpu *self, size_t bytes, void **host) {
  (void)self;
  TRY(make_block(1, bytes));
  *host = it.blocks[1];
  return OK;
}

status __wrap_gpu_stream_open(gpu *self, gpu_stream **out) {
  (void)self;
  ASSERT(!it.is_frozen && it.counters.streams < QUEUED_STREAMS);
  *out = &it.streams[it.counters.streams];
  (*out)->number = (uint32_t)it.counters.streams++;
  return OK;
}

status __wrap_gpu_event_open(gpu *self, bool timed, gpu_event **out) {
  (void)self, (void)timed;
  ASSERT(!it.is_frozen && it.counters.events < OBJECTS_MAX);
  *out = &it.events[it.counters.events++];
  return OK;
}

status __wrap_gpu_kernel_load(gpu *self, const gpu_kernel_config *config, gpu_kernel *out) {
  (void)self;
  ASSERT(!it.is_frozen);
  *out = (gpu_kernel){.name = config->name, .args_bytes = config->args_bytes, .threads = config->threads, .takes_maps = config->takes_maps};
  return OK;
}

status __wrap_gpu_capture_begin(gpu *self, gpu_stream *stream) {
  (void)self, (void)stream;
  ASSERT(!it.is_frozen && !it.captured && it.counters.graphs < OBJECTS_MAX);
  it.captured = &it.graphs[it.counters.graphs++];
  queued.captures++;
  return OK;
}

status __wrap_gpu_capture_end(gpu *self, gpu_stream *stream, gpu_graph **out) {
  (void)self, (void)stream;
  *out = it.captured;
  it.captured = NULL;
  return OK;
}

/* === Kernels ================================================================================================================ */

status __wrap_jit_open(const dynlib_search *search, const char *cache_dir, const kernel_source *sources, size_t source_count, jit **out);
void __wrap_jit_close(jit *self);
void __wrap_jit_version(const jit *self, int *major, int *minor);
const char *__wrap_jit_note(const jit *self);
status __wrap_jit_compile_all(jit *self, const jit_request *requests, uint32_t count, jit_cubin_view *out);

status __wrap_jit_open(const dynlib_search *search, const char *cache_dir, const kernel_source *sources, size_t source_count, jit **out) {
  (void)search, (void)cache_dir, (void)sources, (void)source_count;
  *out = (jit *)(void *)&it;
  return OK;
}

void __wrap_jit_close(jit *self) { (void)self; }

void __wrap_jit_version(const jit *self, int *major, int *minor) {
  (void)self;
  *major = 13, *minor = 0;
}

const char *__wrap_jit_note(const jit *self) {
  (void)self;
  return "";
}

status __wrap_jit_compile_all(jit *self, const jit_request *requests, uint32_t count, jit_cubin_view *out) {
  (void)self;
  for (uint32_t i = 0; i < count; i++) out[i] = (jit_cubin_view){.bytes = requests[i].kernel, .size = strlen(requests[i].kernel)};
  return OK;
}
