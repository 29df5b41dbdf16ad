/* gpu.h - the GPU as Verbatim uses it: one device, one reservation, one pinned block, streams, kernels, graphs.
 *
 * gpu.c is the only file that calls the CUDA driver (libcuda.so.1, opened at run time: the program links against no CUDA library).
 * Rules for all calls:
 *   - Start-up calls return a status. gpu_freeze() ends start-up; a call marked [start-up] made later is a programmer error.
 *   - Calls that put work on a stream, and waits, return nothing: when the device refuses or faults, the fault hook is called once (it
 *     saves what can be saved), the message goes to stderr, and the process ends with the exit code of ERR_DEVICE.
 *   - Device memory is named by address (uint64_t), as in the argument structs of abi.h.
 *   - A gpu is used by one thread at a time, and only while it is bound to that thread: gpu_open binds it, gpu_unbind restores the thread's
 *     previous context, and gpu_bind binds it again, to any thread. A program's own use of CUDA is thus not disturbed.
 * Must not know plans, ops or what kernels mean. Read next: jit.h. */
#ifndef VERBATIM_GPU_H
#define VERBATIM_GPU_H
#include "base/base.h"
#include "base/dynlib.h"
#include "kernels_src/ptx/tensor_map.h"

#define GPU_GRANULARITY (2ull << 20) /* the driver rounds a reservation up to a multiple of this */

typedef struct gpu gpu;
typedef struct gpu_stream gpu_stream; /* the driver's own stream handle, so that gemm_lt.c may pass it on */
typedef struct gpu_event gpu_event;
typedef struct gpu_graph gpu_graph;   /* an instantiated graph */

typedef struct gpu_info {
  char name[96];           /* "NVIDIA H200"                      */
  uint32_t index;          /* device number as the driver counts */
  uint32_t capability;     /* 10 * major + minor; always 90 for an opened device */
  uint32_t driver_version; /* CUDA version of the driver, 1000 * major + 10 * minor */
  uint32_t sm_count;
  uint32_t shared_bytes_max; /* dynamic shared memory a block may ask for       */
  uint32_t l2_bytes;
  uint64_t memory_bytes;   /* total                                             */
} gpu_info;

typedef struct gpu_counters { /* since gpu_open; start-up objects never grow after gpu_freeze */
  uint64_t reservations, pins, streams, events, kernels, graphs; /* objects ever created */
  uint64_t launches, graph_launches, copies, fills;              /* work put on streams  */
} gpu_counters;

typedef struct gpu_kernel_config {
  const char *name;      /* entry point, for the check and for messages; must outlive the kernel */
  const void *cubin;     /* machine code for sm_90a; read during the call only                   */
  size_t cubin_bytes;
  uint32_t args_bytes;   /* size of the argument struct, passed by value   */
  bool takes_maps;       /* its second parameter is a tensor_maps          */
  uint32_t threads;      /* block size, 1 .. 1024                          */
  uint32_t shared_bytes; /* dynamic shared memory, .. info.shared_bytes_max */
} gpu_kernel_config;

typedef struct gpu_kernel {
  void *function;        /* the driver's handle                */
  const char *name;
  uint32_t args_bytes, threads, shared_bytes;
  uint32_t registers;    /* per thread; information only       */
  bool takes_maps;
} gpu_kernel;

typedef struct gpu_work { /* one launch of a kernel */
  const gpu_kernel *kernel;
  const char *op;          /* its name in a fault message                               */
  uint32_t grid[3];        /* blocks in x, y, z; with a zero extent nothing is launched */
  const void *args;        /* args_bytes, read during the call                          */
  const tensor_maps *maps; /* of a kernel that takes them, read during the call         */
  bool overlaps;           /* may start while the previous kernel on the stream still runs, and waits by itself (ptx_grid_wait) */
} gpu_work;

/* Called once, before the process ends because of a device fault. what: one line. */
typedef void gpu_fault_hook(void *context, const char *what);

/* Opens device `index` (0 ..) and binds it: its primary context is current on this thread. search: further places where the driver may be,
 * or null. ERR_DEVICE: no driver, no such device, compute capability other than 9.0, driver too old. */
status gpu_open(uint32_t index, const dynlib_search *search, gpu **out);
void gpu_close(gpu *self); /* bound; releases everything and unbinds it; null is allowed */
/* Describes device `index` without opening it or using its memory, whatever its capability. *count: number of devices; with no device of
 * that index only the driver's version is filled in. ERR_DEVICE: no driver, or one that is too old. */
status gpu_survey(uint32_t index, const dynlib_search *search, uint32_t *count, gpu_info *info);
typedef struct gpu_link { /* the way from one device to the memory of another */
  bool can_access;  /* its kernels can use that memory; else the rest is 0    */
  bool has_atomics; /* over NVLink they can, over PCIe not                    */
  uint32_t rank;    /* of its speed, by the driver: 0 is the fastest          */
} gpu_link;

/* Describes the way between two devices without opening them. ERR_DEVICE: no driver, or no such devices. */
status gpu_survey_link(uint32_t from, uint32_t to, const dynlib_search *search, gpu_link *link);
const gpu_info *gpu_describe(const gpu *self);
gpu_counters gpu_count(const gpu *self);
status gpu_memory(gpu *self, uint64_t *free_bytes, uint64_t *total_bytes); /* of the device, at this moment */
void gpu_bind(gpu *self); /* not bound yet */
void gpu_unbind(gpu *self);
/* On a thread that a gpu is bound to: the thread works with this one from here on. Before gpu_unbind the bound one is selected again. */
void gpu_select(gpu *self);
void gpu_on_fault(gpu *self, gpu_fault_hook *hook, void *context);
/* Called before a fault ends the process: may replace the text, of text_bytes with its NUL, by what it knows of the cause. */
typedef void gpu_explain_hook(void *context, char *text, size_t text_bytes);
void gpu_on_explain(gpu *self, gpu_explain_hook *hook, void *context);
/* Ends the process as a device fault does, for a library that works on the device and failed at op. */
_Noreturn void gpu_fault(gpu *self, const char *op, const char *cause);
/* Called during a wait of the host that lasts, again and again: true ends the process as a device fault does, and text is the cause. */
typedef bool gpu_late_hook(void *context, double waited_s, char *text, size_t text_bytes);
/* From here on the waits of the host ask this hook, for work that may never end and that nothing on the device bounds. */
void gpu_limit_waits(gpu *self, gpu_late_hook *hook, void *context);
/* serial: the host waits after every launch, so that a fault names its op. Not inside a capture. */
void gpu_set_serial(gpu *self, bool serial);
void gpu_freeze(gpu *self);
bool gpu_frozen(const gpu *self);

/* [start-up] Makes the one device reservation and the one pinned host block. Call each once; gpu_close frees them. The reservation is
 * aligned to 256 bytes, the pinned block to a page. Contents are undefined. ERR_DEVICE: not enough memory (the message states the free
 * memory). */
status gpu_reserve(gpu *self, uint64_t bytes, uint64_t *address);
uint64_t gpu_reserved_bytes(const gpu *self); /* measured: decrease of the driver's free memory by the reservation */
status gpu_pin(gpu *self, size_t bytes, void **host); /* for every device of the process */

/* [start-up] Lets kernels of `self`, which is selected, use the memory of the other. ERR_DEVICE: there is no way between the two. */
status gpu_peer(gpu *self, const gpu *other);

/* [start-up] Streams do not wait for each other or for the default stream. timed: the event can be used by gpu_elapsed_us. */
status gpu_stream_open(gpu *self, gpu_stream **out);
status gpu_event_open(gpu *self, bool timed, gpu_event **out);

/* [start-up] Loads a cubin that holds exactly one kernel, named as configured, which takes its arguments (and maps) and uses no
 * local memory; anything else is ERR_DEVICE. */
status gpu_kernel_load(gpu *self, const gpu_kernel_config *config, gpu_kernel *out);

/* [start-up] Between begin and end, work put on the stream is recorded and not run. end instantiates and uploads the graph. One thread may
 * record on several devices at once.
 * Run the same work once before: libraries load their code at first use, which a capture forbids. */
status gpu_capture_begin(gpu *self, gpu_stream *stream);
status gpu_capture_end(gpu *self, gpu_stream *stream, gpu_graph **out);
void gpu_graph_drop(gpu *self, gpu_graph *graph); /* [start-up] the most recently created graph, while it is not running */
void gpu_drop_graphs(gpu *self); /* all of them, before gpu_close: for a library that waits for the end of what it has put in graphs */

/* Makes the driver's description of a matrix. op: its purpose, for the message if the driver refuses it (a fault). */
void gpu_tensor(gpu *self, const tensor_shape *shape, const char *op, tensor_map *out);

typedef struct gpu_rows { /* of row_bytes, pitches apart */
  uint64_t target, target_pitch, source, source_pitch, row_bytes, rows;
} gpu_rows;

/* Work. Host memory of copies is the pinned block (other memory works but makes the copy wait). */
void gpu_launch(gpu *self, gpu_stream *stream, const gpu_work *work);
void gpu_graph_launch(gpu *self, gpu_stream *stream, gpu_graph *graph, const char *op);
void gpu_upload(gpu *self, gpu_stream *stream, uint64_t target, const void *source, size_t bytes);
void gpu_download(gpu *self, gpu_stream *stream, void *target, uint64_t source, size_t bytes);
void gpu_copy(gpu *self, gpu_stream *stream, uint64_t target, uint64_t source, size_t bytes); /* device to device */
void gpu_copy_rows(gpu *self, gpu_stream *stream, const gpu_rows *copy); /* device to device; rows do not overlap */
void gpu_fill32(gpu *self, gpu_stream *stream, uint64_t target, uint32_t word, uint64_t words); /* target: multiple of 4 */
void gpu_record(gpu *self, gpu_stream *stream, gpu_event *event);
void gpu_wait(gpu *self, gpu_stream *stream, gpu_event *event); /* the stream waits; the host does not */

/* The host waits. op: the reason, for a fault message. */
void gpu_sync(gpu *self, gpu_stream *stream, const char *op);
void gpu_event_sync(gpu *self, gpu_event *event, const char *op);
bool gpu_event_done(gpu *self, gpu_event *event, const char *op);
double gpu_elapsed_us(gpu *self, gpu_event *first, gpu_event *last); /* both events are timed and have been reached */

#endif
