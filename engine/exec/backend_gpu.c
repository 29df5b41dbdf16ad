/* backend_gpu.c - the GPU backend (backend.h): memory, streams, launches, copies and graphs of one device.
 *
 * Work is put on streams and done later. A step's inputs go up, its ops run and its results come down on three streams, so that the copies
 * of one step run during the ops of another; events keep the order within a step. Ops of a branch have a fourth stream.
 * The rest of its start-up is in backend_gpu_start.c and library.c. Read next: gpu/gpu.h. */
#include "exec/backend_gpu.h"
#include "gpu/op_maps.h"
#include "plan/format_widen.h"
#include <string.h>

#define REPEAT_SYNC_BYTES (UINT64_C(1) << 30)

/* === Launches =============================================================================================================== */

bool backend_gpu_maps(backend_gpu *self, uint32_t kernel, const jit_spec *specs, uint32_t spec_count, const void *args, uint32_t rows,
                      tensor_maps *maps) {
  tensor_shape shapes[2];
  if (!op_maps_taken(specs, spec_count)) return false;
  op_maps(kernel, specs, spec_count, args, rows, shapes);
  gpu_tensor(self->device, &shapes[0], kernels_row(kernel)->name, &maps->w);
  gpu_tensor(self->device, &shapes[1], kernels_row(kernel)->name, &maps->x);
  return true;
}

void backend_gpu_launch_own(backend_gpu *self, uint32_t index, uint32_t side, uint32_t rows, gpu_lane lane) {
  const exec_op *op = &self->common.ops[index];
  const gpu_op *own = &self->ops[index];
  gpu_work work = {.kernel = own->kernel, .op = op->name, .args = op->args[side], .overlaps = lane.overlaps};
  for (int i = 0; i < 3; i++) work.grid[i] = (uint32_t)plan_extent(&op->plan->grid[i], rows);
  tensor_maps maps;
  /* Where KV rows are dequantized, the rows of one part of a step are anywhere among the step's rows. */
  const plan_limits *limits = &self->common.plan->header->limits;
  const uint32_t kind = op->plan->rows_kind == ROWS_BY_HEADS ? plan_heads_kind(limits) : op->plan->rows_kind;
  const bool is_part = (kind == ROWS_MADE || kind == ROWS_PROMPT) && plan_has_widening(limits);
  const uint32_t seen = is_part ? limits->max_batch_tokens : rows;
  if (backend_gpu_maps(self, op->plan->kernel, own->specs, own->spec_count, op->args[side], seen, &maps)) work.maps = &maps;
  gpu_launch(self->device, lane.stream, &work);
}

/* The library algorithm of a product for this row count, or null. */
static gemm_lt_op *library_choice(const backend_gpu *self, uint32_t index, uint32_t rows) {
  const gpu_op *op = &self->ops[index];
  for (uint32_t i = 0; i < op->choice_count; i++)
    if (rows >= op->choices[i].pin->rows_min && rows <= op->choices[i].pin->rows_max) return &op->choices[i].lt;
  return NULL;
}

static bool uses_library(const backend *self, uint32_t op, uint32_t rows) {
  return library_choice(backend_gpu_of_const(self), op, rows) != NULL;
}

static void run_library(backend_gpu *self, const exec_op *op, gemm_lt_op *lt, uint32_t rows, gpu_stream *stream) {
  const gemm_args *args = op->args[0]; /* a product reads nothing of the step but its rows */
  status result = gemm_lt_run(self->library, lt, stream, rows, (uint64_t)(uintptr_t)args->x, (uint64_t)(uintptr_t)args->w,
                              (uint64_t)(uintptr_t)args->y, self->library_workspace);
  if (result != OK) gpu_fault(self->device, op->name, fail_text()); /* it was accepted at start-up */
}

/* The lane of a launch. An op overlaps with the one before it on its stream, if that is an op of the same list and the two streams do not
 * meet between them. */
static gpu_lane choose_lane(backend_gpu *self, const backend_launch *l) {
  gpu_stream *ops = self->streams[QUEUE_OPS];
  gpu_lane *main_lane = &self->main_lane, *side_lane = &self->side_lane;
  if (!l->follows) *main_lane = (gpu_lane){.stream = ops}, *side_lane = (gpu_lane){0};
  if (l->branch == BRANCH_SIDE && !side_lane->stream) {
    gpu_record(self->device, ops, self->forked);
    gpu_wait(self->device, self->branch, self->forked);
    *side_lane = (gpu_lane){.stream = self->branch};
  }
  if (l->branch == BRANCH_JOIN && side_lane->stream) {
    gpu_record(self->device, side_lane->stream, self->joined);
    gpu_wait(self->device, ops, self->joined);
    *side_lane = (gpu_lane){0};
    main_lane->overlaps = false;
  }
  gpu_lane *lane = l->branch == BRANCH_SIDE ? side_lane : main_lane, chosen = *lane;
  lane->overlaps = true;
  return chosen;
}

static void launch(backend *base, const backend_launch *l) {
  backend_gpu *self = backend_gpu_of(base);
  backend_launched(base, l);
  gpu_lane lane = choose_lane(self, l);
  gemm_lt_op *lt = library_choice(self, l->op, l->rows);
  /* There is one workspace, for the stream of QUEUE_OPS. */
  if (lt && (lane.stream == self->streams[QUEUE_OPS] || lt->algo.workspace_bytes == 0))
    run_library(self, &base->ops[l->op], lt, l->rows, lane.stream);
  else
    backend_gpu_launch_own(self, l->op, l->side, l->rows, lane);
}

static gpu_stream *lane(backend *base, const backend_launch *l) {
  backend_gpu *self = backend_gpu_of(base);
  gpu_stream *stream = choose_lane(self, l).stream;
  /* The next op would wait by itself for a kernel of ours, and not for what comes instead. */
  (l->branch == BRANCH_SIDE ? &self->side_lane : &self->main_lane)->overlaps = false;
  return stream;
}

/* === Graphs ================================================================================================================= */

static status capture_begin(backend *base) {
  backend_gpu *self = backend_gpu_of(base);
  return gpu_capture_begin(self->device, self->streams[QUEUE_OPS]);
}

static status capture_end(backend *base, backend_graph **graph) {
  backend_gpu *self = backend_gpu_of(base);
  gpu_graph *made;
  TRY(gpu_capture_end(self->device, self->streams[QUEUE_OPS], &made));
  self->graph_count++;
  *graph = (backend_graph *)(void *)made;
  return OK;
}

static void drop_graph(backend *base, backend_graph *graph) {
  backend_gpu *self = backend_gpu_of(base);
  gpu_graph_drop(self->device, (gpu_graph *)(void *)graph);
  self->graph_count--;
}

static void replay(backend *base, backend_graph *graph, const char *what) {
  backend_gpu *self = backend_gpu_of(base);
  gpu_graph_launch(self->device, self->streams[QUEUE_OPS], (gpu_graph *)(void *)graph, what);
}

static void end_start(backend *base) {
  backend_gpu *self = backend_gpu_of(base);
  jit_close(self->compiler);
  self->compiler = NULL;
}

/* === Copies ================================================================================================================= */

static void upload(backend *base, enum backend_queue queue, uint64_t target, const void *source, uint64_t bytes) {
  backend_gpu *self = backend_gpu_of(base);
  gpu_upload(self->device, self->streams[queue], target, source, bytes);
}

static void download(backend *base, enum backend_queue queue, void *target, uint64_t source, uint64_t bytes) {
  backend_gpu *self = backend_gpu_of(base);
  gpu_download(self->device, self->streams[queue], target, source, bytes);
}

static void fill(backend *base, uint64_t target, uint32_t word, uint64_t bytes) {
  backend_gpu *self = backend_gpu_of(base);
  gpu_fill32(self->device, self->streams[QUEUE_OPS], target, word, bytes / 4);
}

static void sync(backend *base, const char *what) {
  backend_gpu *self = backend_gpu_of(base);
  gpu_sync(self->device, self->streams[QUEUE_OPS], what);
}

static uint64_t scratch_part(uint64_t bytes) { return bytes < EXEC_SCRATCH_BYTES ? bytes : EXEC_SCRATCH_BYTES; }

static void write(backend *base, uint64_t target, const void *from, uint64_t bytes) {
  backend_gpu *self = backend_gpu_of(base);
  for (uint64_t at = 0, part; at < bytes; at += part) {
    part = scratch_part(bytes - at);
    memcpy(self->scratch, (const uint8_t *)from + at, part);
    upload(base, QUEUE_OPS, target + at, self->scratch, part);
    sync(base, "writing memory");
  }
}

static void read_bytes(backend *base, uint64_t source, void *to, uint64_t bytes) {
  backend_gpu *self = backend_gpu_of(base);
  for (uint64_t at = 0, part; at < bytes; at += part) {
    part = scratch_part(bytes - at);
    download(base, QUEUE_OPS, self->scratch, source + at, part);
    sync(base, "reading memory");
    memcpy((uint8_t *)to + at, self->scratch, part);
  }
}

/* Rows that are adjacent in memory are one copy, and the host waits once for all that the scratch holds. */
static void read_rows(backend *base, uint64_t source, const uint64_t *offsets, uint32_t count, uint64_t row_bytes, void *to) {
  backend_gpu *self = backend_gpu_of(base);
  uint64_t room = row_bytes ? EXEC_SCRATCH_BYTES / row_bytes : 0;
  for (uint32_t first = 0, many; first < count; first += many) {
    uint8_t *target = (uint8_t *)to + first * row_bytes;
    many = room > 1 ? (uint32_t)(room < count - first ? room : count - first) : 1;
    if (room <= 1) {
      read_bytes(base, source + offsets[first], target, row_bytes);
      continue;
    }
    for (uint32_t i = 0, run; i < many; i += run) {
      const uint64_t *offset = offsets + first + i;
      for (run = 1; i + run < many && offset[run] == offset[run - 1] + row_bytes;) run++;
      download(base, QUEUE_OPS, self->scratch + i * row_bytes, source + *offset, run * row_bytes);
    }
    sync(base, "reading rows");
    memcpy(target, self->scratch, many * row_bytes);
  }
}

static void repeat(backend *base, uint64_t target, uint64_t bytes, const void *pattern, uint64_t pattern_bytes) {
  backend_gpu *self = backend_gpu_of(base);
  ASSERT(pattern_bytes <= EXEC_SCRATCH_BYTES);
  memcpy(self->scratch, pattern, pattern_bytes < bytes ? pattern_bytes : bytes);
  for (uint64_t at = 0, part; at < bytes; at += part) {
    part = bytes - at < pattern_bytes ? bytes - at : pattern_bytes;
    upload(base, QUEUE_OPS, target + at, self->scratch, part);
    /* So that no wait takes as long as a limit of them. */
    if (at / REPEAT_SYNC_BYTES != (at + part) / REPEAT_SYNC_BYTES) sync(base, "filling memory");
  }
  sync(base, "filling memory");
}

/* === Order and times ======================================================================================================== */

static void record(backend *base, enum backend_queue queue, uint32_t side) {
  backend_gpu *self = backend_gpu_of(base);
  gpu_record(self->device, self->streams[queue], self->ended[queue][side]);
  if (queue + 1 < QUEUE_COUNT) gpu_wait(self->device, self->streams[queue + 1], self->ended[queue][side]);
}

static void wait(backend *base, uint32_t side) {
  backend_gpu *self = backend_gpu_of(base);
  gpu_event_sync(self->device, self->ended[QUEUE_RESULTS][side], "step");
}

static status make_marks(backend *base, uint32_t count, uint32_t *first) {
  backend_gpu *self = backend_gpu_of(base);
  ASSERT(count <= BACKEND_MARKS_MAX - self->mark_count);
  for (uint32_t i = 0; i < count; i++) TRY(gpu_event_open(self->device, true, &self->marks[self->mark_count + i]));
  *first = self->mark_count;
  self->mark_count += count;
  return OK;
}

static void mark(backend *base, uint32_t number) {
  backend_gpu *self = backend_gpu_of(base);
  gpu_record(self->device, self->streams[QUEUE_OPS], self->marks[number]);
}

static double elapsed_us(backend *base, uint32_t first, uint32_t last) {
  backend_gpu *self = backend_gpu_of(base);
  return gpu_elapsed_us(self->device, self->marks[first], self->marks[last]);
}

/* === Opening and closing ==================================================================================================== */

static void select_device(backend *base) { gpu_select(backend_gpu_of(base)->device); }

static status check_library(backend *base) { return exec_library_check(backend_gpu_of(base)); }

static weights_target weights(backend *base) {
  backend_gpu *self = backend_gpu_of(base);
  weights_target target = {.ranks = 1, .address = {backend_address(base, REGION_WEIGHTS, 0)},
                           .room = {.memory = base->staging, .slot_bytes = STAGING_SLOT_BYTES, .slot_count = STAGING_SLOTS_MAX}};
  staging_device *device = &target.room.device[0];
  *device = (staging_device){.device = self->device, .stream = self->streams[QUEUE_OPS]};
  memcpy(device->events, self->slot_read, sizeof self->slot_read);
  return target;
}

static void count(const backend *base, exec_counts *counts) {
  const backend_gpu *self = backend_gpu_of_const(base);
  counts->graphs = self->graph_count;
  counts->kernels_cached = self->kernels_cached;
  counts->kernels_compiled = self->kernels_compiled;
  counts->nvrtc_version = self->nvrtc_version;
  counts->pinned_bytes = base->staging_bytes;
  if (self->library) counts->cublaslt_version = gemm_lt_version(self->library);
  if (*self->left_out) counts->left_out = self->left_out;
  if (self->compiler) counts->cache_note = jit_note(self->compiler);
}

static void close(backend *base) {
  backend_gpu *self = backend_gpu_of(base);
  for (size_t i = 0; i < QUEUE_COUNT; i++) gpu_sync(self->device, self->streams[i], "end of the run");
  gemm_lt_close(self->library);
  jit_close(self->compiler);
  self->library = NULL;
  self->compiler = NULL;
}

/* The plan has room for its own pins alone. */
static uint64_t unchecked_workspace(const exec_options *options) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < options->unchecked_count; i++)
    if (options->unchecked[i].gemm.workspace_bytes > most) most = options->unchecked[i].gemm.workspace_bytes;
  return most;
}

static status make_memory(backend_gpu *self, uint64_t host_bytes) {
  backend *base = &self->common;
  const plan_header *header = base->plan->header;
  const exec_options *options = &self->options;
  void *pinned;
  uint64_t workspace = align_up(header->device_bytes, 256);
  const uint64_t bytes = options->unchecked_count ? workspace + unchecked_workspace(options) : header->device_bytes;
  TRY(gpu_reserve(self->device, bytes, &base->base));
  if (!options->unchecked_count) workspace = base->plan->regions[REGION_WORK].offset + header->gemm_workspace;
  self->library_workspace = base->base + workspace;
  base->staging_bytes = host_bytes + EXEC_SCRATCH_BYTES > EXEC_STAGING_BYTES ? host_bytes + EXEC_SCRATCH_BYTES : EXEC_STAGING_BYTES;
  TRY(gpu_pin(self->device, base->staging_bytes, &pinned));
  base->host = base->staging = pinned;
  self->scratch = base->host + host_bytes;
  return OK;
}

static status make_streams(backend_gpu *self) {
  gpu *device = self->device;
  TRY(gpu_stream_open(device, &self->streams[QUEUE_OPS]));
  TRY(gpu_stream_open(device, &self->branch));
  TRY(gpu_stream_open(device, &self->streams[QUEUE_INPUTS]));
  TRY(gpu_stream_open(device, &self->streams[QUEUE_RESULTS]));
  for (uint32_t i = 0; i < 2 * QUEUE_COUNT; i++) TRY(gpu_event_open(device, false, &self->ended[i / 2][i % 2]));
  TRY(gpu_event_open(device, false, &self->forked));
  TRY(gpu_event_open(device, false, &self->joined));
  for (uint32_t i = 0; i < STAGING_SLOTS_MAX; i++) TRY(gpu_event_open(device, false, &self->slot_read[i]));
  return OK;
}

static const backend_calls CALLS = {
  .select = select_device, .start_kernels = backend_gpu_start_kernels, .check_library = check_library, .weights = weights,
  .can_run_probe = backend_gpu_start_can_run_probe, .run_probe = backend_gpu_start_run_probe,
  .name_variant = backend_gpu_start_name_variant, .name = backend_gpu_start_name,
  .capture_begin = capture_begin, .capture_end = capture_end, .drop_graph = drop_graph, .end_start = end_start,
  .launch = launch, .lane = lane, .replay = replay, .upload = upload, .download = download, .fill = fill,
  .record = record, .wait = wait, .sync = sync,
  .read = read_rows, .write = write, .repeat = repeat,
  .make_marks = make_marks, .mark = mark, .elapsed_us = elapsed_us,
  .uses_library = uses_library, .count = count, .close = close,
};

status backend_gpu_open(const plan *p, const exec_options *options, uint64_t host_bytes, arena *host, backend **out) {
  void *memory, *ops;
  TRY(arena_take(host, sizeof(backend_gpu), &memory));
  TRY(arena_take(host, sizeof(gpu_op) * (p->op_count + 1ull), &ops));
  backend_gpu *self = memory;
  self->common = (backend){.calls = &CALLS, .plan = p, .has_graphs = true, .has_variants = true,
                           .advice = "the driver or NVRTC may have changed, or the GPU is broken; --device cpu starts without it"};
  self->options = *options;
  self->device = options->device;
  self->ops = ops;
  TRY(make_memory(self, host_bytes));
  TRY(make_streams(self));
  *out = &self->common;
  return OK;
}
