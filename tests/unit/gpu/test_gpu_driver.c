/* test_gpu_driver.c - gpu.c against a stand-in driver that this test compiles: refusals, a failure of every call in turn, threads.
 *
 * The stand-in has every entry point of cuda_api.h, counts live objects, keeps a stack of contexts for each thread, and fails the call that
 * the test selects. So this test needs no GPU to show what a start-up error leaves allocated and how the engine affects the CUDA state of
 * the caller's threads. The stand-in computes nothing; tests/gpu/test_gpu.c runs kernels. */
#include "tests/unit/unit.h"
#include "engine/gpu/cuda_api.h"
#include "engine/base/dynlib.h"
#include "engine/gpu/gpu.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the test sets in the stand-in, and what the stand-in counts. */
typedef struct fake_state {
  int version, devices, major, minor, kernels, args_bytes, arg_count, local_bytes, threads_max;
  int calls, fail_at; /* the call with this number fails, 0: none */
  int alive;          /* objects created and not released */
  int uploads;
  int unbound;        /* calls that need our context, on a thread where it is not current */
  size_t used;        /* bytes of device memory */
  int pending;        /* queries that find work unfinished; waits of the driver do not end then */
  int links[9];       /* from a device to another: 0 none, else 1 + its rank; those of rank 0 have atomics */
  const char *kernel_name;
} fake_state;

#define STATE_TEXT                                                                                                  \
  "struct fake_state { int version, devices, major, minor, kernels, args_bytes, arg_count, local_bytes, threads_max;\n" \
  "  int calls, fail_at, alive, uploads, unbound; size_t used; int pending; int links[9]; const char *kernel_name; };\n"
#define DEFAULT_TEXT(symbol, parameters) "__attribute__((weak)) unsigned int " #symbol #parameters " { WORK; return 0; }\n",
#define MAKE(symbol, parameters, out) "unsigned int " symbol parameters " { WORK; fake.alive++; *" out " = (void *)64; return 0; }\n"
#define FREE(symbol, parameters) "unsigned int " symbol parameters " { BOUND; fake.alive--; return 0; }\n"
#define OUR_CONTEXT ((void *)64)

static const char prelude[] =
    "#include <stddef.h>\n#include <stdlib.h>\n#include <string.h>\n" STATE_TEXT "extern struct fake_state fake;\n"
    "typedef void *cuda_context, *cuda_stream, *cuda_event, *cuda_library, *cuda_kernel, *cuda_function, *cuda_graph, *cuda_graph_exec;\n"
    "#include <stdint.h>\ntypedef unsigned long long cuda_address;\ntypedef uint64_t cuda_tensor_map;\n"
    "typedef void cuda_launch, cuda_rows;\n"
    "extern __thread void *contexts[8]; extern __thread int depth;\n"
    "#define CALL do { if (++fake.calls == fake.fail_at) return 719; } while (0)\n"
    "#define BOUND (fake.unbound += contexts[depth] != (void *)64)\n"
    "#define WORK do { BOUND; CALL; } while (0)\n";
static const char *const defaults[] = {prelude, CUDA_DRIVER_API(DEFAULT_TEXT) NULL};
static const char *const behaviour[] = {
    prelude,
    "struct fake_state fake; __thread void *contexts[8]; __thread int depth;\n"
    "unsigned int cuCtxPushCurrent_v2(cuda_context c) { CALL; contexts[++depth] = c; return 0; }\n"
    "unsigned int cuCtxPopCurrent_v2(cuda_context *c) { *c = contexts[depth--]; return 0; }\n"
    "void *fake_current(void) { return contexts[depth]; }\n"
    "unsigned int cuInit(unsigned int f) { CALL; return 0; }\n"
    "unsigned int cuDevicePrimaryCtxRetain(cuda_context *c, int d) { CALL; fake.alive++; *c = (void *)64; return 0; }\n"
    "unsigned int cuDevicePrimaryCtxRelease_v2(int d) { fake.alive--; return 0; }\n"
    "unsigned int cuGetErrorName(unsigned int c, const char **t) { *t = c == 719 ? \"FAKE_FAILURE\" : 0; return *t ? 0 : 1; }\n"
    "unsigned int cuGetErrorString(unsigned int c, const char **t) { *t = c == 719 ? \"a failure\" : 0; return *t ? 0 : 1; }\n"
    "unsigned int cuDriverGetVersion(int *v) { CALL; *v = fake.version; return 0; }\n"
    "unsigned int cuDeviceGetCount(int *c) { CALL; *c = fake.devices; return 0; }\n"
    "unsigned int cuDeviceGet(int *d, int i) { CALL; *d = i; return 0; }\n"
    "unsigned int cuDeviceGetName(char *n, int b, int d) { CALL; strncpy(n, \"Fake GPU\", (size_t)b); return 0; }\n"
    "unsigned int cuDeviceTotalMem_v2(size_t *b, int d) { CALL; *b = 1u << 30; return 0; }\n"
    "unsigned int cuMemGetInfo_v2(size_t *f, size_t *t) { WORK; *f = 12345678 - fake.used; *t = 1u << 30; return 0; }\n"
    "unsigned int cuDeviceGetAttribute(int *v, unsigned int a, int d) {\n"
    "  CALL; *v = a == 75 ? fake.major : a == 76 ? fake.minor : a == 97 ? 232448 : 100; return 0; }\n"
    "unsigned int cuDeviceCanAccessPeer(int *c, int d, int p) { CALL; *c = fake.links[d * 3 + p] != 0; return 0; }\n"
    "unsigned int cuDeviceGetP2PAttribute(int *v, unsigned int a, int d, int p) {\n"
    "  CALL; *v = a == 1 ? fake.links[d * 3 + p] - 1 : a == 3 && fake.links[d * 3 + p] == 1; return 0; }\n"
    "unsigned int cuMemAlloc_v2(cuda_address *a, size_t b) { WORK; fake.alive++; fake.used += b; *a = 4096; return 0; }\n"
    "unsigned int cuMemHostAlloc(void **p, size_t b, unsigned int f) { WORK; *p = malloc(b); fake.alive++; return 0; }\n"
    "unsigned int cuMemFreeHost(void *p) { BOUND; free(p); fake.alive--; return 0; }\n"
    "unsigned int cuMemcpyHtoDAsync_v2(cuda_address t, const void *s, size_t b, cuda_stream q) { WORK; fake.uploads++; return 0; }\n",
    /* a string literal of C has at most 4095 bytes */
    "unsigned int cuLibraryGetKernelCount(unsigned int *c, cuda_library l) { CALL; *c = (unsigned int)fake.kernels; return 0; }\n"
    "unsigned int cuLibraryEnumerateKernels(cuda_kernel *k, unsigned int n, cuda_library l) { CALL; *k = (void *)64; return 0; }\n"
    "unsigned int cuKernelGetName(const char **n, cuda_kernel k) { CALL; *n = fake.kernel_name; return 0; }\n"
    "unsigned int cuKernelGetParamInfo(cuda_kernel k, size_t i, size_t *o, size_t *b) {\n"
    "  if (i >= (size_t)fake.arg_count) return 1;\n  CALL; *o = 0; *b = (size_t)fake.args_bytes; return 0; }\n"
    "unsigned int cuKernelGetAttribute(int *v, unsigned int a, cuda_kernel k, int d) {\n"
    "  CALL; *v = a == 3 ? fake.local_bytes : a == 0 ? fake.threads_max : 32; return 0; }\n"
    "unsigned int cuKernelGetFunction(cuda_function *f, cuda_kernel k) { CALL; *f = (void *)64; return 0; }\n"
    MAKE("cuStreamCreate", "(cuda_stream *s, unsigned int f)", "s") FREE("cuStreamDestroy_v2", "(cuda_stream s)")
    MAKE("cuEventCreate", "(cuda_event *e, unsigned int f)", "e") FREE("cuEventDestroy_v2", "(cuda_event e)")
    MAKE("cuLibraryLoadData", "(cuda_library *l, const void *c, unsigned *a, void **b, unsigned d, unsigned *e, void **f, unsigned g)", "l")
    FREE("cuLibraryUnload", "(cuda_library l)") MAKE("cuStreamEndCapture", "(cuda_stream s, cuda_graph *g)", "g")
    FREE("cuGraphDestroy", "(cuda_graph g)")
    "unsigned int cuStreamQuery(cuda_stream s) { WORK; return fake.pending && fake.pending-- ? 600 : 0; }\n"
    "unsigned int cuEventQuery(cuda_event e) { WORK; return fake.pending && fake.pending-- ? 600 : 0; }\n"
    "unsigned int cuStreamSynchronize(cuda_stream s) { WORK; return fake.pending ? 719 : 0; }\n"
    "unsigned int cuEventSynchronize(cuda_event e) { WORK; return fake.pending ? 719 : 0; }\n" FREE("cuMemFree_v2", "(cuda_address a)")
    MAKE("cuGraphInstantiateWithFlags", "(cuda_graph_exec *e, cuda_graph g, unsigned long long f)", "e")
    FREE("cuGraphExecDestroy", "(cuda_graph_exec e)"), NULL};

static char folder[] = "/tmp/verbatim-driver-XXXXXX";
static const dynlib_search search = {.folders = folder};
static fake_state *fake;
static void *(*fake_current)(void);
static unsigned int (*fake_push)(void *context), (*fake_pop)(void **context);

static int write_texts(const char *name, const char *const *texts) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  if (!file) return -1;
  for (size_t i = 0; texts[i]; i++) fputs(texts[i], file);
  return fclose(file);
}

static int build_driver(void **state) {
  (void)state;
  char command[512];
  if (!mkdtemp(folder) || write_texts("a.c", defaults) != 0 || write_texts("b.c", behaviour) != 0) return -1;
  snprintf(command, sizeof command, "cd %s && cc -w -shared -fPIC -o libcuda.so.1 a.c b.c", folder);
  if (system(command) != 0) return -1;
  static const char *const names[] = {"libcuda.so.1", NULL};
  dynlib library = {0};
  const dynlib_symbol symbols[] = {{"fake", &fake}, {"fake_current", &fake_current}, {"cuCtxPushCurrent_v2", &fake_push},
                                   {"cuCtxPopCurrent_v2", &fake_pop}};
  if (dynlib_open(&search, names, "driver", "none", &library) != OK) return -1;
  return dynlib_resolve(&library, symbols, ARRAY_LEN(symbols)) == OK ? 0 : -1;
}

static int remove_driver(void **state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

static int reset(void **state) {
  (void)state;
  *fake = (fake_state){.version = 13000, .devices = 2, .major = 9, .kernels = 1, .args_bytes = 24, .arg_count = 1, .threads_max = 1024,
                       .kernel_name = "op"};
  fail_clear();
  return 0;
}

/* Everything that a start-up does, once. */
static status start(gpu **out) {
  TRY(gpu_open(1, &search, out));
  uint64_t address = 0;
  void *host = NULL;
  gpu_stream *stream = NULL;
  gpu_event *event = NULL;
  gpu_graph *graph = NULL;
  gpu_kernel kernel;
  const gpu_kernel_config config = {.name = "op", .cubin = "x", .cubin_bytes = 1, .args_bytes = 24, .threads = 256, .shared_bytes = 99999};
  TRY(gpu_reserve(*out, 1 << 20, &address));
  TRY(gpu_pin(*out, 1 << 10, &host));
  TRY(gpu_stream_open(*out, &stream));
  TRY(gpu_event_open(*out, true, &event));
  TRY(gpu_kernel_load(*out, &config, &kernel));
  TRY(gpu_capture_begin(*out, stream));
  return gpu_capture_end(*out, stream, &graph);
}

static void everything_made_is_released(void **state) {
  (void)state;
  gpu *device = NULL;
  if (start(&device) != OK) fail_msg("%s", fail_text());
  assert_int_equal(fake->alive, 7); /* context, reservation, pinned block, stream, event, kernel, graph */
  const gpu_counters made = gpu_count(device);
  assert_int_equal(made.reservations + made.pins + made.streams + made.events + made.kernels + made.graphs, 6);
  assert_string_equal(gpu_describe(device)->name, "Fake GPU");
  assert_int_equal(gpu_describe(device)->index, 1);
  assert_int_equal(gpu_reserved_bytes(device), 1 << 20); /* as the driver reports its free memory */
  gpu_close(device);
  assert_int_equal(fake->alive, 0);
  assert_int_equal(fake->unbound, 0);
  gpu_close(NULL);
}

/* Any capability is accepted, nothing is created, no context is bound. */
static void a_survey_takes_nothing(void **state) {
  (void)state;
  gpu_info info = {.capability = 1};
  uint32_t count = 0;
  fake->major = 8;
  fake->minor = 6;
  assert_int_equal(gpu_survey(1, &search, &count, &info), OK);
  assert_int_equal(count, 2);
  assert_int_equal(info.capability, 86);
  assert_int_equal(info.driver_version, 13000);
  assert_int_equal(info.memory_bytes, 1u << 30);
  assert_string_equal(info.name, "Fake GPU");
  assert_int_equal(fake->alive, 0);
  assert_int_equal(fake->unbound, 0);
  assert_int_equal(gpu_survey(2, &search, &count, &info), OK); /* there is no device of that number */
  assert_string_equal(info.name, "");
  fake->version = 12000;
  assert_int_equal(gpu_survey(0, &search, &count, &info), ERR_DEVICE);
}

/* Of three devices 0 and 1 have a fast link, 2 reaches 0 by a slow one, and nothing reaches 2. */
static void links_are_surveyed_in_both_directions(void **state) {
  (void)state;
  static const int LINKS[9] = {0, 1, 0, 1, 0, 0, 3, 0, 0};
  gpu_link link = {0};
  fake->devices = 3;
  memcpy(fake->links, LINKS, sizeof LINKS);
  for (uint32_t i = 0; i < 9; i++) {
    if (i / 3 == i % 3) continue;
    assert_int_equal(gpu_survey_link(i / 3, i % 3, &search, &link), OK);
    assert_int_equal(link.can_access, LINKS[i] != 0);
    assert_int_equal(link.has_atomics, LINKS[i] == 1);
    assert_int_equal(link.rank, LINKS[i] ? LINKS[i] - 1 : 0);
  }
  assert_int_equal(fake->alive, 0);
  assert_int_equal(fake->unbound, 0);
  const int calls = (fake->calls = 0, (void)gpu_survey_link(0, 1, &search, &link), fake->calls);
  for (int call = 1; call <= calls; call++) { /* any failure is an error that names the call */
    fail_clear();
    fake->calls = 0;
    fake->fail_at = call;
    assert_int_equal(gpu_survey_link(0, 1, &search, &link), ERR_DEVICE);
    assert_non_null(strstr(fail_text(), "FAKE_FAILURE"));
  }
}

static void a_graph_dropped_is_released_once(void **state) {
  (void)state;
  gpu *device = NULL;
  gpu_stream *stream = NULL;
  gpu_graph *graphs[2] = {NULL};
  if (gpu_open(1, &search, &device) != OK || gpu_stream_open(device, &stream) != OK) fail_msg("%s", fail_text());
  int before = fake->alive;
  for (int i = 0; i < 2; i++)
    if (gpu_capture_begin(device, stream) != OK || gpu_capture_end(device, stream, &graphs[i]) != OK) fail_msg("%s", fail_text());
  assert_int_equal(fake->alive, before + 2);
  gpu_graph_drop(device, graphs[1]);
  assert_int_equal(fake->alive, before + 1);
  assert_int_equal(gpu_count(device).graphs, 1);
  gpu_close(device);
  assert_int_equal(fake->alive, 0);
}

/* Each driver call fails once: the error names the call, and nothing stays allocated. */
static void every_failing_call_is_an_error_and_leaks_nothing(void **state) {
  (void)state;
  int refused = 0;
  for (int call = 1;; call++) {
    gpu *device = NULL;
    reset(NULL);
    fake->fail_at = call;
    status s = start(&device);
    bool reached = fake->calls >= call;
    gpu_close(device);
    assert_int_equal(fake->alive, 0);
    assert_null(fake_current());
    if (!reached) {
      assert_int_equal(s, OK);
      break;
    }
    if (s != ERR_DEVICE) fail_msg("call %d failed and start-up gave %d", call, (int)s);
    assert_non_null(strstr(fail_text(), "FAKE_FAILURE"));
    refused++;
  }
  assert_true(refused >= 25);
}

static void unsuitable_devices_are_refused(void **state) {
  (void)state;
  static const struct {
    int version, devices, major, minor;
    const char *expected;
  } cases[] = {
      {12030, 2, 9, 0, "serves CUDA 12.3, expected 12.4 or newer"}, {13000, 1, 9, 0, "GPU 1 was asked for, 1 found"},
      {13000, 0, 9, 0, "GPU 1 was asked for, 0 found"},             {13000, 2, 8, 0, "compute capability 8.0, expected 9.0"},
      {13000, 2, 10, 0, "compute capability 10.0, expected 9.0"},   {13000, 2, 9, 1, "compute capability 9.1, expected 9.0"},
  };
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    gpu *device = NULL;
    reset(NULL);
    fake->version = cases[i].version;
    fake->devices = cases[i].devices;
    fake->major = cases[i].major;
    fake->minor = cases[i].minor;
    assert_int_equal(gpu_open(1, &search, &device), ERR_DEVICE);
    assert_null(device);
    if (!strstr(fail_text(), cases[i].expected)) fail_msg("%s", fail_text());
    assert_non_null(strstr(fail_text(), "hint:"));
    assert_int_equal(fake->alive, 0);
  }
}

static void unsuitable_kernels_are_refused(void **state) {
  (void)state;
  static const fake_state cases[] = {
      {.kernels = 2, .args_bytes = 24, .arg_count = 1, .threads_max = 1024, .kernel_name = "op"},
      {.kernels = 0, .args_bytes = 24, .arg_count = 1, .threads_max = 1024, .kernel_name = "op"},
      {.kernels = 1, .args_bytes = 32, .arg_count = 1, .threads_max = 1024, .kernel_name = "op"},
      {.kernels = 1, .args_bytes = 24, .arg_count = 2, .threads_max = 1024, .kernel_name = "op"},
      {.kernels = 1, .args_bytes = 24, .arg_count = 1, .threads_max = 128, .kernel_name = "op"},
      {.kernels = 1, .args_bytes = 24, .arg_count = 1, .threads_max = 1024, .kernel_name = "other"},
      {.kernels = 1, .args_bytes = 24, .arg_count = 1, .threads_max = 1024, .local_bytes = 8, .kernel_name = "op"},
  };
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    gpu *device = NULL;
    reset(NULL);
    fake_state wanted = cases[i];
    wanted.version = fake->version;
    wanted.devices = fake->devices;
    wanted.major = fake->major;
    *fake = wanted;
    assert_int_equal(start(&device), ERR_DEVICE);
    assert_non_null(strstr(fail_text(), "op"));
    gpu_close(device);
    assert_int_equal(fake->alive, 0);
  }
}

static void limits_are_errors(void **state) {
  (void)state;
  gpu *device = NULL;
  gpu_stream *stream = NULL;
  status s = gpu_open(0, &search, &device);
  for (int i = 0; s == OK && i < 1000; i++) s = gpu_stream_open(device, &stream);
  assert_int_equal(s, ERR_LIMIT);
  gpu_close(device);
  assert_int_equal(fake->alive, 0);
}

/* === Threads and other users of CUDA ======================================================================================= */

static void *use_and_close(void *argument) {
  gpu *device = argument;
  uint64_t free_bytes = 0, total = 0;
  gpu_bind(device);
  status s = gpu_memory(device, &free_bytes, &total);
  gpu_close(device);
  return s == OK && !fake_current() ? device : NULL;
}

static void any_thread_uses_a_gpu_that_it_binds(void **state) {
  (void)state;
  gpu *device = NULL;
  pthread_t user;
  void *good = NULL;
  if (start(&device) != OK) fail_msg("%s", fail_text());
  gpu_unbind(device);
  assert_null(fake_current());
  assert_int_equal(pthread_create(&user, NULL, use_and_close, device), 0);
  assert_int_equal(pthread_join(user, &good), 0);
  assert_non_null(good);
  assert_int_equal(fake->unbound, 0);
  assert_int_equal(fake->alive, 0);
}

static void work_on_an_unbound_thread_is_seen(void **state) { /* the control of the test above */
  (void)state;
  gpu *device = NULL;
  uint64_t free_bytes = 0, total = 0;
  assert_int_equal(gpu_open(0, &search, &device), OK);
  gpu_unbind(device);
  assert_int_equal(gpu_memory(device, &free_bytes, &total), OK);
  assert_int_equal(fake->unbound, 1);
  gpu_bind(device);
  gpu_close(device);
}

static void the_callers_context_is_left_alone(void **state) {
  (void)state;
  int other_program;
  void *theirs = &other_program, *popped = NULL;
  gpu *device = NULL;
  assert_int_equal(fake_push(theirs), 0);
  if (start(&device) != OK) fail_msg("%s", fail_text());
  assert_ptr_equal(fake_current(), OUR_CONTEXT);
  gpu_unbind(device);
  assert_ptr_equal(fake_current(), theirs);
  gpu_bind(device);
  gpu_close(device);
  assert_ptr_equal(fake_current(), theirs);
  fake->devices = 0;
  assert_int_equal(gpu_open(0, &search, &device), ERR_DEVICE);
  assert_ptr_equal(fake_current(), theirs);
  assert_int_equal(fake_pop(&popped), 0);
}

/* === Run-time faults end the process ======================================================================================= */

static void hook_writes(void *context, const char *what) {
  int pipe_end = *(int *)context;
  if (write(pipe_end, what, strlen(what)) < 0) _exit(95);
}

/* In a child process: a failure of the driver, or of a library if `library`; text: what the hook received. Returns the exit code. */
static int fault_in_child(bool library, char *text, size_t text_bytes) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    gpu *device = NULL;
    gpu_stream *stream = NULL;
    if (!freopen("/dev/null", "w", stderr) || gpu_open(0, &search, &device) != OK || gpu_stream_open(device, &stream) != OK) _exit(96);
    gpu_on_fault(device, hook_writes, &ends[1]);
    gpu_freeze(device);
    uint32_t word = 0;
    gpu_upload(device, stream, 4096, &word, 4);
    if (fake->uploads != 1 || gpu_count(device).copies != 1) _exit(97);
    fake->fail_at = fake->calls + 1;
    if (library) gpu_fault(device, "layer 3 o_proj", "cuBLASLt refuses n 64, k 64, 3 rows: status 13");
    gpu_sync(device, stream, "layer 3 o_proj");
    _exit(98);
  }
  int code = -1;
  close(ends[1]);
  ssize_t got = read(ends[0], text, text_bytes - 1);
  assert_true(got > 0);
  text[got] = 0;
  assert_int_equal(waitpid(child, &code, 0), child);
  close(ends[0]);
  return WEXITSTATUS(code);
}

static void a_fault_calls_the_hook_once_and_exits(void **state) {
  (void)state;
  char text[512];
  assert_int_equal(fault_in_child(false, text, sizeof text), fail_exit_code(ERR_DEVICE));
  assert_non_null(strstr(text, "GPU fault found at layer 3 o_proj: FAKE_FAILURE (a failure)"));
}

typedef struct patience {
  int asked, most; /* questions, and the last one that is answered with false */
} patience;

static bool is_late(void *context, double waited_s, char *text, size_t text_bytes) {
  patience *p = context;
  if (waited_s < 0 || ++p->asked <= p->most) return false;
  snprintf(text, text_bytes, "it does not end");
  return true;
}

static void end_of_patience(void *context, const char *what) {
  (void)context;
  _exit(strstr(what, "GPU fault found at step: it does not end") ? 93 : 92);
}

/* In a child: waits for what is unfinished at so many queries. Returns the exit code, 0 if the wait ended. */
static int wait_in_child(int pending, int most, bool of_event) {
  int code = -1;
  const pid_t child = fork();
  if (child == 0) {
    gpu *device = NULL;
    gpu_stream *stream = NULL;
    gpu_event *event = NULL;
    patience p = {0, most};
    if (!freopen("/dev/null", "w", stderr) || gpu_open(0, &search, &device) != OK || gpu_stream_open(device, &stream) != OK ||
        gpu_event_open(device, false, &event) != OK)
      _exit(96);
    if (most >= 0) gpu_on_fault(device, end_of_patience, NULL), gpu_limit_waits(device, is_late, &p);
    fake->pending = pending;
    if (of_event) gpu_event_sync(device, event, "step");
    else gpu_sync(device, stream, "step");
    _exit(p.asked > 0 ? 0 : 94);
  }
  assert_int_equal(waitpid(child, &code, 0), child);
  return WEXITSTATUS(code);
}

static void a_limited_wait_ends(void **state) {
  (void)state;
  for (int of_event = 0; of_event < 2; of_event++) {
    assert_int_equal(wait_in_child(2000, 1000, of_event), 0);  /* with the work */
    assert_int_equal(wait_in_child(1 << 30, 5, of_event), 93); /* or by the hook */
    assert_int_equal(wait_in_child(0, 1000, of_event), 94);    /* no question where nothing is waited for */
    assert_int_equal(wait_in_child(1, -1, of_event), fail_exit_code(ERR_DEVICE)); /* without a limit the driver waits */
  }
}

static jmp_buf out_of_the_fault;
static uint32_t hook_calls;

static void hook_leaves(void *context, const char *what) {
  (void)context, (void)what;
  hook_calls++;
  longjmp(out_of_the_fault, 1);
}

/* The engine's promise of on_fault: a program that jumps out of the hook continues without the engine, and may open another one. */
static void a_hook_may_jump_out(void **state) {
  (void)state;
  gpu *device = NULL, *other = NULL;
  gpu_stream *stream = NULL;
  assert_int_equal(gpu_open(0, &search, &device), OK);
  assert_int_equal(gpu_stream_open(device, &stream), OK);
  gpu_on_fault(device, hook_leaves, NULL);
  gpu_freeze(device);
  hook_calls = 0;
  if (setjmp(out_of_the_fault) == 0) {
    fake->fail_at = fake->calls + 1;
    gpu_sync(device, stream, "layer 3 o_proj");
    fail_msg("the fault was not seen");
  }
  assert_int_equal(hook_calls, 1);
  assert_int_equal(gpu_open(0, &search, &other), OK);
  gpu_close(other);
  gpu_close(device); /* not possible after a real fault; here it frees what this test allocated */
}

static void a_failing_library_is_a_fault_too(void **state) {
  (void)state;
  char text[512];
  assert_int_equal(fault_in_child(true, text, sizeof text), fail_exit_code(ERR_DEVICE));
  assert_string_equal(text, "GPU fault found at layer 3 o_proj: cuBLASLt refuses n 64, k 64, 3 rows: status 13");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(everything_made_is_released, reset),
      cmocka_unit_test_setup(a_survey_takes_nothing, reset),
      cmocka_unit_test_setup(links_are_surveyed_in_both_directions, reset),
      cmocka_unit_test_setup(a_graph_dropped_is_released_once, reset),
      cmocka_unit_test_setup(every_failing_call_is_an_error_and_leaks_nothing, reset),
      cmocka_unit_test_setup(unsuitable_devices_are_refused, reset),
      cmocka_unit_test_setup(unsuitable_kernels_are_refused, reset),
      cmocka_unit_test_setup(limits_are_errors, reset),
      cmocka_unit_test_setup(any_thread_uses_a_gpu_that_it_binds, reset),
      cmocka_unit_test_setup(work_on_an_unbound_thread_is_seen, reset),
      cmocka_unit_test_setup(the_callers_context_is_left_alone, reset),
      cmocka_unit_test_setup(a_hook_may_jump_out, reset),
      cmocka_unit_test_setup(a_fault_calls_the_hook_once_and_exits, reset),
      cmocka_unit_test_setup(a_failing_library_is_a_fault_too, reset),
      cmocka_unit_test_setup(a_limited_wait_ends, reset),
  };
  return cmocka_run_group_tests(tests, build_driver, remove_driver);
}
