/* gpu.c - the only file that calls the CUDA driver (see gpu.h).
 *
 * Every created object is recorded in a fixed table and released by gpu_close, the newest kind first. A zeroed gpu is valid, so that a
 * half-open one can be closed. Read next: cuda_api.h. */
#include "gpu/gpu.h"
#include "gpu/cuda_api.h"
#include "base/clock.h"
#include "base/dynlib.h"
#include "base/limits.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS_MAX 16u
#define EVENTS_MAX 256u
#define KERNELS_MAX 1024u
#define TURNS_TO_ASK 256u /* of a limited wait, from one question to the next */
#define CAPABILITY 90u
#define DRIVER_VERSION_MIN 12040 /* cuLibraryGetKernelCount, cuKernelGetParamInfo */
#define NO_DEVICE_HINT "use --device cpu where there is no GPU"

typedef struct cuda_driver {
  CUDA_DRIVER_API(CUDA_API_MEMBER)
} cuda_driver;

struct gpu {
  cuda_driver api;
  dynlib driver;
  int device;
  cuda_context context;
  gpu_info info;
  gpu_counters counters;
  bool frozen, serial;
  cuda_stream capturing; /* the stream being captured, or null */
  uint64_t reservation, reserved_bytes;
  void *pinned;
  gpu_fault_hook *hook;
  gpu_explain_hook *explain;
  gpu_late_hook *late;
  void *hook_context, *explain_context, *late_context;
  cuda_stream streams[STREAMS_MAX];
  cuda_event events[EVENTS_MAX];
  cuda_library libraries[KERNELS_MAX];
  cuda_graph_exec graphs[GRAPHS_MAX];
};

/* === Errors ================================================================================================================ */

static const char *error_name(const gpu *self, unsigned int code) {
  const char *text = NULL;
  if (self->api.cuGetErrorName(code, &text) != CUDA_OK || !text) return "unknown error";
  return text;
}

static const char *error_text(const gpu *self, unsigned int code) {
  const char *text = NULL;
  if (self->api.cuGetErrorString(code, &text) != CUDA_OK || !text) return "no description";
  return text;
}

/* Start-up: an operating error. */
static status check(const gpu *self, unsigned int code, const char *call) {
  if (code == CUDA_OK) return OK;
  return FAIL(ERR_DEVICE, "%s failed on GPU %u: %s (%s)", call, self->info.index, error_name(self, code), error_text(self, code));
}

_Noreturn static void end_process(gpu *self, char what[FAIL_TEXT_MAX]) {
  gpu_fault_hook *hook = self->hook;
  if (self->explain) self->explain(self->explain_context, what, FAIL_TEXT_MAX);
  self->hook = NULL;
  if (hook) hook(self->hook_context, what);
  fprintf(stderr, "verbatim: %s\n", what);
  fflush(NULL);
  _Exit(fail_exit_code(ERR_DEVICE)); /* exit handlers would call into the faulted context */
}

/* Work: a device fault ends the process. */
static void require(gpu *self, unsigned int code, const char *op) {
  if (code == CUDA_OK) return;
  char what[FAIL_TEXT_MAX];
  snprintf(what, sizeof what, "GPU fault found at %s: %s (%s)%s", op, error_name(self, code), error_text(self, code),
           self->serial ? "" : "; an earlier op may be the cause");
  end_process(self, what);
}

void gpu_fault(gpu *self, const char *op, const char *cause) {
  char what[FAIL_TEXT_MAX];
  snprintf(what, sizeof what, "GPU fault found at %s: %s", op, cause);
  end_process(self, what);
}

/* The driver waits; or, with a limit, we ask it in turns, as it does itself unless there are fewer processors than devices. */
static void wait_for(gpu *self, cuda_stream stream, cuda_event event, const char *op) {
  const cuda_driver *api = &self->api;
  const double since = self->late ? clock_seconds() : 0;
  char cause[FAIL_TEXT_MAX];
  unsigned int code = CUDA_NOT_READY;
  if (!self->late) code = event ? api->cuEventSynchronize(event) : api->cuStreamSynchronize(stream);
  for (uint32_t turn = 1; code == CUDA_NOT_READY; turn++) {
    code = event ? api->cuEventQuery(event) : api->cuStreamQuery(stream);
    if (code != CUDA_NOT_READY) break;
    if (turn % TURNS_TO_ASK == 0 && self->late(self->late_context, clock_seconds() - since, cause, sizeof cause))
      gpu_fault(self, op, cause);
    sched_yield();
  }
  require(self, code, op);
}

/* === Opening and closing =================================================================================================== */

static status open_driver(gpu *self, const dynlib_search *search) {
  static const char *const names[] = {"libcuda.so.1", NULL};
  TRY(dynlib_open(search, names, "NVIDIA driver", NO_DEVICE_HINT, &self->driver));
  cuda_driver *API = &self->api;
  const dynlib_symbol symbols[] = {CUDA_DRIVER_API(CUDA_API_SYMBOL)};
  TRY(dynlib_resolve(&self->driver, symbols, ARRAY_LEN(symbols)));
  unsigned int code = self->api.cuInit(0);
  if (code != CUDA_OK)
    return FAIL(ERR_DEVICE, "the NVIDIA driver does not start: %s (%s); hint: " NO_DEVICE_HINT, error_name(self, code),
                error_text(self, code));
  int version = 0;
  TRY(check(self, self->api.cuDriverGetVersion(&version), "cuDriverGetVersion"));
  if (version < DRIVER_VERSION_MIN)
    return FAIL(ERR_DEVICE, "the NVIDIA driver serves CUDA %d.%d, expected %d.%d or newer; hint: update the driver", version / 1000,
                version % 1000 / 10, DRIVER_VERSION_MIN / 1000, DRIVER_VERSION_MIN % 1000 / 10);
  self->info.driver_version = (uint32_t)version;
  return OK;
}

static status read_attribute(const gpu *self, unsigned int attribute, uint32_t *out) {
  int value = 0;
  TRY(check(self, self->api.cuDeviceGetAttribute(&value, attribute, self->device), "cuDeviceGetAttribute"));
  ASSERT(value >= 0);
  *out = (uint32_t)value;
  return OK;
}

static status describe_device(gpu *self, uint32_t index) {
  gpu_info *info = &self->info;
  info->index = index;
  TRY(check(self, self->api.cuDeviceGet(&self->device, (int)index), "cuDeviceGet"));
  TRY(check(self, self->api.cuDeviceGetName(info->name, (int)sizeof info->name, self->device), "cuDeviceGetName"));
  uint32_t major = 0, minor = 0;
  TRY(read_attribute(self, CUDA_CAPABILITY_MAJOR, &major));
  TRY(read_attribute(self, CUDA_CAPABILITY_MINOR, &minor));
  info->capability = 10 * major + minor;
  size_t bytes = 0;
  TRY(check(self, self->api.cuDeviceTotalMem_v2(&bytes, self->device), "cuDeviceTotalMem"));
  info->memory_bytes = bytes;
  TRY(read_attribute(self, CUDA_SM_COUNT, &info->sm_count));
  TRY(read_attribute(self, CUDA_L2_BYTES, &info->l2_bytes));
  return read_attribute(self, CUDA_SHARED_BYTES_OPTIN, &info->shared_bytes_max);
}

static status count_devices(const gpu *self, uint32_t *out) {
  int count = 0;
  TRY(check(self, self->api.cuDeviceGetCount(&count), "cuDeviceGetCount"));
  *out = count > 0 ? (uint32_t)count : 0;
  return OK;
}

static status open_all(gpu *self, uint32_t index, const dynlib_search *search) {
  uint32_t count = 0;
  TRY(open_driver(self, search));
  TRY(count_devices(self, &count));
  if (index >= count)
    return FAIL(ERR_DEVICE, "GPU %u was asked for, %u found; hint: devices are numbered from 0, %s", index, count, NO_DEVICE_HINT);
  TRY(describe_device(self, index));
  const gpu_info *info = &self->info;
  if (info->capability != CAPABILITY)
    return FAIL(ERR_DEVICE, "GPU %u is %s with compute capability %u.%u, expected %u.%u (H100, H200, GH200); hint: %s", index, info->name,
                info->capability / 10, info->capability % 10, CAPABILITY / 10, CAPABILITY % 10, NO_DEVICE_HINT);
  cuda_context context = NULL;
  TRY(check(self, self->api.cuDevicePrimaryCtxRetain(&context, self->device), "cuDevicePrimaryCtxRetain"));
  status s = check(self, self->api.cuCtxPushCurrent_v2(context), "cuCtxPushCurrent");
  if (s == OK) self->context = context;
  else self->api.cuDevicePrimaryCtxRelease_v2(self->device);
  return s;
}

status gpu_open(uint32_t index, const dynlib_search *search, gpu **out) {
  ASSERT(out);
  gpu *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "no memory for %zu bytes", sizeof *self);
  status s = open_all(self, index, search);
  if (s != OK) {
    gpu_close(self);
    return s;
  }
  *out = self;
  return OK;
}

status gpu_survey(uint32_t index, const dynlib_search *search, uint32_t *count, gpu_info *info) {
  gpu *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "no memory for %zu bytes", sizeof *self);
  uint32_t found = 0;
  status s = open_driver(self, search);
  if (s == OK) s = count_devices(self, &found);
  if (s == OK && index < found) s = describe_device(self, index);
  if (s == OK) {
    *count = found;
    *info = self->info;
  }
  gpu_close(self);
  return s;
}

static status read_link(const gpu *self, int from, int to, gpu_link *link) {
  int can = 0, rank = 0, atomics = 0;
  TRY(check(self, self->api.cuDeviceCanAccessPeer(&can, from, to), "cuDeviceCanAccessPeer"));
  if (can) TRY(check(self, self->api.cuDeviceGetP2PAttribute(&rank, CUDA_PEER_RANK, from, to), "cuDeviceGetP2PAttribute"));
  if (can) TRY(check(self, self->api.cuDeviceGetP2PAttribute(&atomics, CUDA_PEER_ATOMICS, from, to), "cuDeviceGetP2PAttribute"));
  *link = (gpu_link){.can_access = can != 0, .has_atomics = atomics != 0, .rank = rank > 0 ? (uint32_t)rank : 0};
  return OK;
}

status gpu_survey_link(uint32_t from, uint32_t to, const dynlib_search *search, gpu_link *link) {
  gpu *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "no memory for %zu bytes", sizeof *self);
  int devices[2] = {0};
  status s = open_driver(self, search);
  if (s == OK) s = check(self, self->api.cuDeviceGet(&devices[0], (int)from), "cuDeviceGet");
  if (s == OK) s = check(self, self->api.cuDeviceGet(&devices[1], (int)to), "cuDeviceGet");
  if (s == OK) s = read_link(self, devices[0], devices[1], link);
  gpu_close(self);
  return s;
}

void gpu_drop_graphs(gpu *self) {
  while (self->counters.graphs > 0) self->api.cuGraphExecDestroy(self->graphs[--self->counters.graphs]);
}

/* Return codes are ignored: an object that cannot be released ends with the process. */
void gpu_close(gpu *self) {
  if (!self) return;
  if (self->context) {
    const cuda_driver *api = &self->api;
    for (uint64_t i = 0; i < self->counters.streams; i++) api->cuStreamSynchronize(self->streams[i]);
    gpu_drop_graphs(self);
    for (uint64_t i = 0; i < self->counters.kernels; i++) api->cuLibraryUnload(self->libraries[i]);
    for (uint64_t i = 0; i < self->counters.events; i++) api->cuEventDestroy_v2(self->events[i]);
    for (uint64_t i = 0; i < self->counters.streams; i++) api->cuStreamDestroy_v2(self->streams[i]);
    if (self->pinned) api->cuMemFreeHost(self->pinned);
    if (self->reservation) api->cuMemFree_v2(self->reservation);
    cuda_context popped = NULL;
    api->cuCtxPopCurrent_v2(&popped);
    api->cuDevicePrimaryCtxRelease_v2(self->device);
  }
  dynlib_close(&self->driver);
  free(self);
}

const gpu_info *gpu_describe(const gpu *self) { return &self->info; }
gpu_counters gpu_count(const gpu *self) { return self->counters; }
bool gpu_frozen(const gpu *self) { return self->frozen; }
void gpu_freeze(gpu *self) { self->frozen = true; }
void gpu_set_serial(gpu *self, bool serial) { self->serial = serial; }
void gpu_bind(gpu *self) { require(self, self->api.cuCtxPushCurrent_v2(self->context), "binding a thread"); }

void gpu_unbind(gpu *self) {
  cuda_context popped = NULL;
  require(self, self->api.cuCtxPopCurrent_v2(&popped), "unbinding a thread");
  ASSERT(popped == self->context);
}

void gpu_select(gpu *self) { require(self, self->api.cuCtxSetCurrent(self->context), "selecting a device"); }

void gpu_on_fault(gpu *self, gpu_fault_hook *hook, void *context) {
  self->hook = hook;
  self->hook_context = context;
}

void gpu_on_explain(gpu *self, gpu_explain_hook *hook, void *context) {
  self->explain = hook;
  self->explain_context = context;
}

void gpu_limit_waits(gpu *self, gpu_late_hook *hook, void *context) {
  self->late = hook;
  self->late_context = context;
}

status gpu_memory(gpu *self, uint64_t *free_bytes, uint64_t *total_bytes) {
  size_t free_now = 0, total = 0;
  TRY(check(self, self->api.cuMemGetInfo_v2(&free_now, &total), "cuMemGetInfo"));
  *free_bytes = free_now;
  *total_bytes = total;
  return OK;
}

uint64_t gpu_reserved_bytes(const gpu *self) { return self->reserved_bytes; }

/* === Start-up objects ====================================================================================================== */

status gpu_reserve(gpu *self, uint64_t bytes, uint64_t *address) {
  ASSERT(!self->frozen);
  ASSERT(!self->reservation);
  ASSERT(bytes > 0);
  cuda_address where = 0;
  uint64_t free_bytes = 0, free_after = 0, total = 0;
  TRY(gpu_memory(self, &free_bytes, &total));
  unsigned int code = self->api.cuMemAlloc_v2(&where, bytes);
  if (code != CUDA_OK)
    return FAIL(ERR_DEVICE, "GPU %u cannot reserve %llu bytes: %llu of %llu are free (%s); hint: end other programs on the GPU or plan "
                "with a smaller device-memory-bytes", self->info.index, (unsigned long long)bytes, (unsigned long long)free_bytes,
                (unsigned long long)total, error_name(self, code));
  ASSERT(where % 256 == 0);
  self->reservation = where;
  self->counters.reservations++;
  TRY(gpu_memory(self, &free_after, &total));
  self->reserved_bytes = free_bytes > free_after ? free_bytes - free_after : 0;
  *address = where;
  return OK;
}

status gpu_pin(gpu *self, size_t bytes, void **host) {
  ASSERT(!self->frozen);
  ASSERT(!self->pinned);
  ASSERT(bytes > 0);
  void *block = NULL;
  TRY(check(self, self->api.cuMemHostAlloc(&block, bytes, CUDA_HOST_PORTABLE), "cuMemHostAlloc"));
  self->pinned = block;
  self->counters.pins++;
  *host = block;
  return OK;
}

status gpu_peer(gpu *self, const gpu *other) {
  int can = 0;
  ASSERT(!self->frozen);
  TRY(check(self, self->api.cuDeviceCanAccessPeer(&can, self->device, other->device), "cuDeviceCanAccessPeer"));
  if (!can)
    return FAIL(ERR_DEVICE, "GPU %u cannot use the memory of GPU %u: expected peer access (NVLink or PCIe) between all GPUs of a plan; "
                "hint: `verbatim doctor` shows which GPUs have one; plan with exchange-transport: nccl, which needs none", self->info.index,
                other->info.index);
  const unsigned int code = self->api.cuCtxEnablePeerAccess(other->context, 0);
  return code == CUDA_PEER_ENABLED ? OK : check(self, code, "cuCtxEnablePeerAccess");
}

status gpu_stream_open(gpu *self, gpu_stream **out) {
  ASSERT(!self->frozen);
  if (self->counters.streams == STREAMS_MAX) return FAIL(ERR_LIMIT, "more than %u GPU streams", STREAMS_MAX);
  cuda_stream stream = NULL;
  TRY(check(self, self->api.cuStreamCreate(&stream, CUDA_STREAM_APART), "cuStreamCreate"));
  self->streams[self->counters.streams++] = stream;
  *out = (gpu_stream *)stream;
  return OK;
}

status gpu_event_open(gpu *self, bool timed, gpu_event **out) {
  ASSERT(!self->frozen);
  if (self->counters.events == EVENTS_MAX) return FAIL(ERR_LIMIT, "more than %u GPU events", EVENTS_MAX);
  cuda_event event = NULL;
  TRY(check(self, self->api.cuEventCreate(&event, timed ? CUDA_EVENT_TIMED : CUDA_EVENT_UNTIMED), "cuEventCreate"));
  self->events[self->counters.events++] = event;
  *out = (gpu_event *)event;
  return OK;
}

/* The kernel's parameters must have the sizes of the host's structs, so the two cannot drift apart. */
static status check_interface(const gpu *self, const gpu_kernel_config *config, cuda_library library, cuda_kernel *out) {
  unsigned int count = 0;
  TRY(check(self, self->api.cuLibraryGetKernelCount(&count, library), "cuLibraryGetKernelCount"));
  if (count != 1) return FAIL(ERR_DEVICE, "cubin of %s: expected exactly 1 kernel, found %u", config->name, count);
  cuda_kernel kernel = NULL;
  TRY(check(self, self->api.cuLibraryEnumerateKernels(&kernel, 1, library), "cuLibraryEnumerateKernels"));
  const char *name = NULL;
  TRY(check(self, self->api.cuKernelGetName(&name, kernel), "cuKernelGetName"));
  if (strcmp(name, config->name) != 0) return FAIL(ERR_DEVICE, "cubin: expected kernel %s, found %s", config->name, name);
  size_t offset = 0, bytes = 0;
  TRY(check(self, self->api.cuKernelGetParamInfo(kernel, 0, &offset, &bytes), "cuKernelGetParamInfo"));
  if (bytes != config->args_bytes)
    return FAIL(ERR_DEVICE, "kernel %s: expected an argument struct of %u bytes, found %zu", config->name, config->args_bytes, bytes);
  unsigned int parameters = 1;
  if (config->takes_maps) {
    TRY(check(self, self->api.cuKernelGetParamInfo(kernel, 1, &offset, &bytes), "cuKernelGetParamInfo"));
    if (bytes != sizeof(tensor_maps))
      return FAIL(ERR_DEVICE, "kernel %s: expected tensor maps of %zu bytes, found %zu", config->name, sizeof(tensor_maps), bytes);
    parameters = 2;
  }
  if (self->api.cuKernelGetParamInfo(kernel, parameters, &offset, &bytes) != CUDA_INVALID_VALUE)
    return FAIL(ERR_DEVICE, "kernel %s: expected %u parameters, found more", config->name, parameters);
  *out = kernel;
  return OK;
}

static status check_resources(const gpu *self, const gpu_kernel_config *config, cuda_kernel kernel, uint32_t *registers) {
  int local = 0, threads = 0, used = 0;
  TRY(check(self, self->api.cuKernelGetAttribute(&local, CUDA_FUNCTION_LOCAL_BYTES, kernel, self->device), "cuKernelGetAttribute"));
  if (local != 0) return FAIL(ERR_DEVICE, "kernel %s: expected no local memory (spills), found %d bytes a thread", config->name, local);
  TRY(check(self, self->api.cuKernelGetAttribute(&threads, CUDA_FUNCTION_THREADS_MAX, kernel, self->device), "cuKernelGetAttribute"));
  if (threads < 0 || config->threads > (uint32_t)threads)
    return FAIL(ERR_DEVICE, "kernel %s: blocks of %u threads planned, at most %d possible", config->name, config->threads, threads);
  TRY(check(self, self->api.cuKernelGetAttribute(&used, CUDA_FUNCTION_REGISTERS, kernel, self->device), "cuKernelGetAttribute"));
  *registers = (uint32_t)used;
  /* All kernels use one split of a multiprocessor's memory, so that it need not change between overlapping kernels. */
  TRY(check(self, self->api.cuKernelSetAttribute(CUDA_FUNCTION_SHARED_SHARE, 100, kernel, self->device), "cuKernelSetAttribute(division)"));
  if (config->shared_bytes == 0) return OK;
  if (config->shared_bytes > self->info.shared_bytes_max)
    return FAIL(ERR_DEVICE, "kernel %s: %u bytes of shared memory planned, GPU %u has %u a block", config->name, config->shared_bytes,
                self->info.index, self->info.shared_bytes_max);
  return check(self, self->api.cuKernelSetAttribute(CUDA_FUNCTION_SHARED_DYNAMIC, (int)config->shared_bytes, kernel, self->device),
               "cuKernelSetAttribute(shared memory)");
}

status gpu_kernel_load(gpu *self, const gpu_kernel_config *config, gpu_kernel *out) {
  ASSERT(!self->frozen);
  ASSERT(config->cubin && config->cubin_bytes > 0);
  ASSERT(config->threads >= 1 && config->threads <= 1024);
  if (self->counters.kernels == KERNELS_MAX) return FAIL(ERR_LIMIT, "more than %u GPU kernels", KERNELS_MAX);
  cuda_library library = NULL;
  unsigned int code = self->api.cuLibraryLoadData(&library, config->cubin, NULL, NULL, 0, NULL, NULL, 0);
  if (code != CUDA_OK)
    return FAIL(ERR_DEVICE, "kernel %s: the driver refuses the cubin: %s (%s); hint: NVRTC must not be newer than the driver's CUDA %u.%u",
                config->name, error_name(self, code), error_text(self, code), self->info.driver_version / 1000,
                self->info.driver_version % 1000 / 10);
  self->libraries[self->counters.kernels++] = library;
  cuda_kernel kernel = NULL;
  TRY(check_interface(self, config, library, &kernel));
  gpu_kernel made = {.name = config->name, .args_bytes = config->args_bytes, .threads = config->threads,
                     .shared_bytes = config->shared_bytes, .takes_maps = config->takes_maps};
  TRY(check_resources(self, config, kernel, &made.registers));
  cuda_function function = NULL; /* also loads the code now rather than at the first launch */
  TRY(check(self, self->api.cuKernelGetFunction(&function, kernel), "cuKernelGetFunction"));
  made.function = function;
  *out = made;
  return OK;
}

status gpu_capture_begin(gpu *self, gpu_stream *stream) {
  ASSERT(!self->frozen);
  ASSERT(!self->capturing);
  TRY(check(self, self->api.cuStreamBeginCapture_v2((cuda_stream)stream, CUDA_CAPTURE_RELAXED), "cuStreamBeginCapture"));
  self->capturing = (cuda_stream)stream;
  return OK;
}

status gpu_capture_end(gpu *self, gpu_stream *stream, gpu_graph **out) {
  ASSERT(!self->frozen);
  ASSERT(self->capturing && self->capturing == (cuda_stream)stream);
  cuda_graph graph = NULL;
  cuda_graph_exec exec = NULL;
  self->capturing = NULL;
  TRY(check(self, self->api.cuStreamEndCapture((cuda_stream)stream, &graph), "cuStreamEndCapture"));
  if (self->counters.graphs == GRAPHS_MAX) {
    self->api.cuGraphDestroy(graph);
    return FAIL(ERR_LIMIT, "more than %u GPU graphs", GRAPHS_MAX);
  }
  unsigned int code = self->api.cuGraphInstantiateWithFlags(&exec, graph, 0);
  self->api.cuGraphDestroy(graph); /* the executable graph does not need it */
  TRY(check(self, code, "cuGraphInstantiateWithFlags"));
  self->graphs[self->counters.graphs++] = exec;
  TRY(check(self, self->api.cuGraphUpload(exec, (cuda_stream)stream), "cuGraphUpload"));
  *out = (gpu_graph *)exec;
  return OK;
}

void gpu_graph_drop(gpu *self, gpu_graph *graph) {
  ASSERT(!self->frozen);
  ASSERT(self->counters.graphs > 0 && self->graphs[self->counters.graphs - 1] == (cuda_graph_exec)graph);
  self->counters.graphs--;
  require(self, self->api.cuGraphExecDestroy((cuda_graph_exec)graph), "the release of a graph");
}

/* === Work ================================================================================================================== */

static void finish(gpu *self, gpu_stream *stream, const char *op) {
  if (self->serial && !self->capturing) wait_for(self, (cuda_stream)stream, NULL, op);
}

void gpu_tensor(gpu *self, const tensor_shape *shape, const char *op, tensor_map *out) {
  static const unsigned int element_strides[5] = {1, 1, 1, 1, 1};
  const unsigned int type = shape->stride_bytes[0] == 1 ? CUDA_TENSOR_U8 : CUDA_TENSOR_BF16;
  const unsigned int promotion = shape->l2_bytes == 128 ? CUDA_TENSOR_L2_128 : CUDA_TENSOR_L2_256;
  void *address;
  memcpy(&address, &shape->address, sizeof address);
  require(self, self->api.cuTensorMapEncodeTiled((cuda_tensor_map *)out->words, type, shape->dims, address,
                                                 (const uint64_t *)shape->extent, (const uint64_t *)shape->stride_bytes + 1, shape->box,
                                                 element_strides, 0, shape->swizzled ? CUDA_TENSOR_SWIZZLE_128 : 0, promotion, 0),
          op);
}

void gpu_launch(gpu *self, gpu_stream *stream, const gpu_work *work) {
  const gpu_kernel *kernel = work->kernel;
  ASSERT(kernel->function && work->args);
  ASSERT(kernel->takes_maps == (work->maps != NULL));
  if (work->grid[0] == 0 || work->grid[1] == 0 || work->grid[2] == 0) return;
  void *parameters[2]; /* the driver only reads them, although its type is not const */
  memcpy(&parameters[0], &work->args, sizeof work->args);
  memcpy(&parameters[1], &work->maps, sizeof work->maps);
  cuda_attribute overlaps = {.id = CUDA_LAUNCH_OVERLAPS, .value = {1}};
  cuda_launch config = {.block = {kernel->threads, 1, 1}, .shared_bytes = kernel->shared_bytes, .stream = (cuda_stream)stream,
                        .attributes = &overlaps, .attribute_count = work->overlaps};
  memcpy(config.grid, work->grid, sizeof config.grid);
  require(self, self->api.cuLaunchKernelEx(&config, (cuda_function)kernel->function, parameters, NULL), work->op);
  self->counters.launches++;
  finish(self, stream, work->op);
}

void gpu_graph_launch(gpu *self, gpu_stream *stream, gpu_graph *graph, const char *op) {
  require(self, self->api.cuGraphLaunch((cuda_graph_exec)graph, (cuda_stream)stream), op);
  self->counters.graph_launches++;
  finish(self, stream, op);
}

void gpu_upload(gpu *self, gpu_stream *stream, uint64_t target, const void *source, size_t bytes) {
  if (bytes == 0) return;
  require(self, self->api.cuMemcpyHtoDAsync_v2(target, source, bytes, (cuda_stream)stream), "an upload");
  self->counters.copies++;
  finish(self, stream, "an upload");
}

void gpu_download(gpu *self, gpu_stream *stream, void *target, uint64_t source, size_t bytes) {
  if (bytes == 0) return;
  require(self, self->api.cuMemcpyDtoHAsync_v2(target, source, bytes, (cuda_stream)stream), "a download");
  self->counters.copies++;
  finish(self, stream, "a download");
}

void gpu_copy(gpu *self, gpu_stream *stream, uint64_t target, uint64_t source, size_t bytes) {
  if (bytes == 0) return;
  require(self, self->api.cuMemcpyDtoDAsync_v2(target, source, bytes, (cuda_stream)stream), "a copy");
  self->counters.copies++;
  finish(self, stream, "a copy");
}

void gpu_copy_rows(gpu *self, gpu_stream *stream, const gpu_rows *copy) {
  const cuda_rows_config config = {.source_type = CUDA_MEMORY_DEVICE, .source = copy->source, .source_pitch = copy->source_pitch,
                                   .target_type = CUDA_MEMORY_DEVICE, .target = copy->target, .target_pitch = copy->target_pitch,
                                   .row_bytes = copy->row_bytes, .rows = copy->rows};
  if (copy->row_bytes == 0 || copy->rows == 0) return;
  require(self, self->api.cuMemcpy2DAsync_v2(&config, (cuda_stream)stream), "a copy of rows");
  self->counters.copies++;
  finish(self, stream, "a copy of rows");
}

void gpu_fill32(gpu *self, gpu_stream *stream, uint64_t target, uint32_t word, uint64_t words) {
  ASSERT(target % 4 == 0);
  if (words == 0) return;
  require(self, self->api.cuMemsetD32Async(target, word, words, (cuda_stream)stream), "a fill");
  self->counters.fills++;
  finish(self, stream, "a fill");
}

void gpu_record(gpu *self, gpu_stream *stream, gpu_event *event) {
  require(self, self->api.cuEventRecord((cuda_event)event, (cuda_stream)stream), "recording an event");
}

void gpu_wait(gpu *self, gpu_stream *stream, gpu_event *event) {
  require(self, self->api.cuStreamWaitEvent((cuda_stream)stream, (cuda_event)event, 0), "a stream's wait");
}

void gpu_sync(gpu *self, gpu_stream *stream, const char *op) { wait_for(self, (cuda_stream)stream, NULL, op); }

void gpu_event_sync(gpu *self, gpu_event *event, const char *op) { wait_for(self, NULL, (cuda_event)event, op); }

bool gpu_event_done(gpu *self, gpu_event *event, const char *op) {
  unsigned int code = self->api.cuEventQuery((cuda_event)event);
  if (code == CUDA_NOT_READY) return false;
  require(self, code, op);
  return true;
}

double gpu_elapsed_us(gpu *self, gpu_event *first, gpu_event *last) {
  float ms = 0;
  require(self, self->api.cuEventElapsedTime(&ms, (cuda_event)first, (cuda_event)last), "timing");
  return (double)ms * 1000.0;
}
