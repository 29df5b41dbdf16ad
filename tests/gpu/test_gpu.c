/* test_gpu.c - the GPU layer on a GPU: opening, loading, launching, copies, capture, freezing, faults, cuBLASLt.
 *
 * The test compiles small kernels of its own. Faults happen in child processes, which are forked before the parent uses the driver. Without
 * a GPU only the error message is tested, and the other tests report that they were skipped. */
#include "tests/unit/unit.h"
#include "engine/gpu/gemm_lt.h"
#include "engine/gpu/gpu.h"
#include "engine/gpu/jit.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct add_args {
  uint64_t x, y; /* u32 [count] */
  uint32_t count, value;
} add_args;

#define ADD_ARGS "struct add_args { unsigned *x, *y; unsigned count, value; };\n"
#define KERNEL_HEAD "extern \"C\" __global__ void "
static const kernel_source sources[] = {
    {"add.cu", ADD_ARGS KERNEL_HEAD "add(const __grid_constant__ add_args a) {\n"
               "  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < a.count) a.y[i] = a.x[i] + a.value;\n}\n"},
    {"large.cu", ADD_ARGS KERNEL_HEAD "large(const __grid_constant__ add_args a) {\n  extern __shared__ unsigned s[];\n"
                 "  for (unsigned i = threadIdx.x; i < 50000; i += blockDim.x) s[i] = i + a.value;\n  __syncthreads();\n"
                 "  if (threadIdx.x == 0) a.y[0] = s[49999];\n}\n"},
    {"fault.cu", ADD_ARGS KERNEL_HEAD "fault(const __grid_constant__ add_args a) { *(volatile unsigned *)8 = a.value; }\n"},
    {"pair.cu", KERNEL_HEAD "pair(int *x) { *x = 1; }\n" KERNEL_HEAD "other(int *x) { *x = 2; }\n"},
    {"two_args.cu", KERNEL_HEAD "two_args(int *x, int y) { *x = y; }\n"},
    {"local.cu", ADD_ARGS KERNEL_HEAD "local(const __grid_constant__ add_args a) {\n  unsigned v[256] = {};\n"
                 "  for (unsigned i = 0; i < a.count; i++) v[a.x[i] % 256] += i;\n  a.y[0] = v[a.value % 256];\n}\n"},
};

#define POOL_BYTES (64u << 20)
static gpu *device; /* null: no GPU */
static jit *compiler;
static gpu_stream *stream;
static uint64_t pool;
static uint8_t *pinned;

static status load(gpu *on, jit *with, const char *name, uint32_t args_bytes, uint32_t threads, uint32_t shared_bytes, gpu_kernel *out) {
  jit_cubin_view cubin;
  TRY(jit_compile(with, name, NULL, 0, &cubin));
  gpu_kernel_config config = {.name = name, .cubin = cubin.bytes, .cubin_bytes = cubin.size, .args_bytes = args_bytes, .threads = threads,
                              .shared_bytes = shared_bytes};
  return gpu_kernel_load(on, &config, out);
}

static status open_device(void) {
  void *host = NULL;
  TRY(gpu_open(0, NULL, &device));
  TRY(jit_open(NULL, NULL, sources, ARRAY_LEN(sources), &compiler));
  TRY(gpu_reserve(device, POOL_BYTES, &pool));
  TRY(gpu_pin(device, 1 << 20, &host));
  pinned = host;
  return gpu_stream_open(device, &stream);
}

static void need_gpu(void) {
  if (!device) skip();
  fail_clear();
}

/* === In child processes, before the parent uses the driver ================================================================= */

static void save_receipt(void *context, const char *what) {
  FILE *file = fopen(context, "w");
  if (!file) return;
  fprintf(file, "%s", what);
  fclose(file);
}

/* Exit code of a child that runs a faulting kernel: 99 when there is no GPU. */
static int fault_child(const char *path, bool serial) {
  pid_t child = fork();
  if (child == 0) {
    gpu_kernel kernel;
    if (!freopen("/dev/null", "w", stderr)) _exit(96);
    if (open_device() != OK || load(device, compiler, "fault", sizeof(add_args), 32, 0, &kernel) != OK) _exit(99);
    char *context = strdup(path);
    gpu_on_fault(device, save_receipt, context);
    gpu_set_serial(device, serial);
    add_args args = {.x = pool, .y = pool, .count = 1};
    gpu_launch(device, stream, &(gpu_work){.kernel = &kernel, .op = "layer 7 fault", .grid = {1, 1, 1}, .args = &args});
    if (serial) _exit(98); /* never reached */
    gpu_sync(device, stream, "step 3");
    _exit(97);
  }
  int code = -1;
  waitpid(child, &code, 0);
  return WIFEXITED(code) ? WEXITSTATUS(code) : 100;
}

static int codes[2];
static char texts[2][512];

static int run_children_then_open(void **state) {
  (void)state;
  char path[] = "/tmp/verbatim-gpu-XXXXXX";
  int file = mkstemp(path);
  if (file < 0) return -1;
  close(file);
  for (int serial = 0; serial < 2; serial++) {
    codes[serial] = fault_child(path, serial);
    FILE *receipt = fopen(path, "r");
    if (!receipt) return -1;
    size_t got = fread(texts[serial], 1, sizeof texts[serial] - 1, receipt);
    texts[serial][got] = 0;
    fclose(receipt);
  }
  remove(path);
  if (open_device() != OK) {
    print_message("SKIPPED: no GPU: %s\n", fail_text());
    jit_close(compiler);
    gpu_close(device);
    compiler = NULL;
    device = NULL;
  }
  return 0;
}

static int close_device(void **state) {
  (void)state;
  jit_close(compiler);
  gpu_close(device);
  return 0;
}

static void a_fault_calls_the_hook_and_ends_the_process(void **state) {
  (void)state;
  need_gpu();
  assert_int_equal(codes[0], fail_exit_code(ERR_DEVICE));
  assert_non_null(strstr(texts[0], "step 3"));
  assert_non_null(strstr(texts[0], "an earlier op may be the cause"));
  assert_int_equal(codes[1], fail_exit_code(ERR_DEVICE));
  assert_non_null(strstr(texts[1], "layer 7 fault"));
  assert_null(strstr(texts[1], "an earlier op"));
}

/* === Opening =============================================================================================================== */

static void absence_is_told_with_a_hint(void **state) {
  (void)state;
  fail_clear();
  gpu *none = NULL;
  assert_int_equal(gpu_open(1000, NULL, &none), ERR_DEVICE);
  assert_null(none);
  assert_non_null(strstr(fail_text(), "hint"));
  assert_non_null(strstr(fail_text(), "--device cpu"));
  if (device) assert_non_null(strstr(fail_text(), "GPU 1000"));
}

static void device_is_described(void **state) {
  (void)state;
  need_gpu();
  const gpu_info *info = gpu_describe(device);
  assert_int_equal(info->capability, 90);
  assert_true(info->sm_count >= 64 && info->shared_bytes_max >= 227 * 1024);
  assert_true(info->memory_bytes > (1ull << 34) && info->driver_version >= 12040);
  assert_true(pool % 256 == 0);
  uint64_t free_bytes = 0, total = 0;
  assert_int_equal(gpu_memory(device, &free_bytes, &total), OK);
  assert_true(free_bytes < total && total <= info->memory_bytes);
}

static void too_large_a_reservation_is_refused_with_figures(void **state) {
  (void)state;
  need_gpu();
  gpu *second = NULL;
  uint64_t address = 1;
  assert_int_equal(gpu_open(0, NULL, &second), OK); /* two openings of one device share its context */
  assert_int_equal(gpu_reserve(second, 1ull << 50, &address), ERR_DEVICE);
  assert_int_equal(address, 1);
  assert_non_null(strstr(fail_text(), "1125899906842624 bytes"));
  gpu_close(second);
}

/* Writes a word on the device and reads it back, on a thread other than that of gpu_open. */
static void *fill_elsewhere(void *argument) {
  gpu_bind(device);
  gpu_fill32(device, stream, pool, 0x12345678, 1);
  gpu_download(device, stream, pinned, pool, 4);
  gpu_sync(device, stream, "a fill");
  gpu_unbind(device);
  return argument;
}

static void any_thread_uses_a_gpu_that_it_binds(void **state) {
  (void)state;
  need_gpu();
  pthread_t user;
  uint32_t word = 0;
  gpu_unbind(device);
  assert_int_equal(pthread_create(&user, NULL, fill_elsewhere, NULL), 0);
  assert_int_equal(pthread_join(user, NULL), 0);
  gpu_bind(device);
  memcpy(&word, pinned, 4);
  assert_int_equal(word, 0x12345678);
}

/* === Kernels =============================================================================================================== */

static void check_add(const gpu_kernel *kernel, uint32_t count, uint32_t value) {
  uint32_t *host = (uint32_t *)(void *)pinned;
  for (uint32_t i = 0; i < count; i++) host[i] = i * 7;
  gpu_fill32(device, stream, pool + 65536, UINT32_MAX, count + 1);
  gpu_upload(device, stream, pool, host, 4 * count);
  add_args args = {.x = pool, .y = pool + 65536, .count = count, .value = value};
  gpu_launch(device, stream, &(gpu_work){.kernel = kernel, .op = "add", .grid = {(uint32_t)div_up(count, 64), 1, 1}, .args = &args});
  memset(&args, 0, sizeof args); /* the arguments were read during the call */
  gpu_download(device, stream, host, pool + 65536, 4 * count + 4);
  gpu_sync(device, stream, "add");
  for (uint32_t i = 0; i < count; i++) assert_int_equal(host[i], i * 7 + value);
  assert_int_equal(host[count], UINT32_MAX);
}

static void kernels_load_and_run(void **state) {
  (void)state;
  need_gpu();
  gpu_kernel kernel;
  assert_int_equal(load(device, compiler, "add", sizeof(add_args), 64, 0, &kernel), OK);
  assert_true(kernel.registers > 0);
  check_add(&kernel, 1000, 5);
  check_add(&kernel, 1, 6);
  uint64_t before = gpu_count(device).launches;
  gpu_launch(device, stream, &(gpu_work){.kernel = &kernel, .op = "nothing", .grid = {0, 1, 1}, .args = &kernel});
  assert_int_equal(gpu_count(device).launches, before);
}

static void shared_memory_beyond_the_default_works(void **state) {
  (void)state;
  need_gpu();
  gpu_kernel kernel;
  assert_int_equal(load(device, compiler, "large", sizeof(add_args), 128, 200000, &kernel), OK);
  add_args args = {.x = pool, .y = pool, .value = 11};
  gpu_launch(device, stream, &(gpu_work){.kernel = &kernel, .op = "large", .grid = {1, 1, 1}, .args = &args});
  gpu_download(device, stream, pinned, pool, 4);
  gpu_sync(device, stream, "large");
  assert_int_equal(*(uint32_t *)(void *)pinned, 49999 + 11);
  assert_int_equal(load(device, compiler, "large", sizeof(add_args), 128, 300000, &kernel), ERR_DEVICE);
}

typedef struct refusal {
  const char *kernel, *name, *text;
  uint32_t args_bytes, threads;
} refusal;

static void wrong_cubins_are_refused_by_name(void **state) {
  (void)state;
  need_gpu();
  static const refusal refusals[] = {
      {"add", "add", "argument struct of 32 bytes, found 24", 32, 64}, {"add", "sub", "expected kernel sub, found add", 24, 64},
      {"pair", "pair", "expected exactly 1 kernel, found 2", 8, 64},   {"two_args", "two_args", "expected 1 parameter", 8, 64},
      {"local", "local", "no local memory", 24, 64},
  };
  for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
    const refusal *r = &refusals[i];
    jit_cubin_view cubin;
    fail_clear();
    assert_int_equal(jit_compile(compiler, r->kernel, NULL, 0, &cubin), OK);
    gpu_kernel_config config = {.name = r->name, .cubin = cubin.bytes, .cubin_bytes = cubin.size, .args_bytes = r->args_bytes,
                                .threads = r->threads};
    gpu_kernel kernel = {.threads = 77};
    const status refused = gpu_kernel_load(device, &config, &kernel);
    if (refused != ERR_DEVICE) fail_msg("%s: expected a refusal, found status %d", r->name, refused);
    if (!strstr(fail_text(), r->text)) fail_msg("%s: %s", r->name, fail_text());
    assert_int_equal(kernel.threads, 77);
  }
  static const uint64_t garbage[64] = {0x1234};
  gpu_kernel_config config = {.name = "add", .cubin = garbage, .cubin_bytes = sizeof garbage, .args_bytes = 24, .threads = 64};
  gpu_kernel kernel;
  fail_clear();
  assert_int_equal(gpu_kernel_load(device, &config, &kernel), ERR_DEVICE);
  if (!strstr(fail_text(), "refuses the cubin") && !strstr(fail_text(), "exactly 1 kernel, found 0")) fail_msg("%s", fail_text());
}

static void captured_work_replays(void **state) {
  (void)state;
  need_gpu();
  gpu_kernel kernel;
  gpu_graph *graph = NULL;
  assert_int_equal(load(device, compiler, "add", sizeof(add_args), 64, 0, &kernel), OK);
  add_args args = {.x = pool, .y = pool, .count = 64, .value = 3};
  gpu_fill32(device, stream, pool, 0, 64);
  assert_int_equal(gpu_capture_begin(device, stream), OK);
  for (int i = 0; i < 5; i++) gpu_launch(device, stream, &(gpu_work){.kernel = &kernel, .op = "add", .grid = {1, 1, 1}, .args = &args});
  assert_int_equal(gpu_capture_end(device, stream, &graph), OK);
  uint32_t *host = (uint32_t *)(void *)pinned;
  gpu_download(device, stream, host, pool, 256);
  gpu_sync(device, stream, "capture");
  assert_int_equal(host[63], 0); /* recorded, not executed */
  for (int i = 0; i < 4; i++) gpu_graph_launch(device, stream, graph, "graph");
  gpu_download(device, stream, host, pool, 256);
  gpu_sync(device, stream, "graph");
  for (int i = 0; i < 64; i++) assert_int_equal(host[i], 4 * 5 * 3);
}

static void events_order_and_time(void **state) {
  (void)state;
  need_gpu();
  gpu_stream *other = NULL;
  gpu_event *first = NULL, *last = NULL, *ready = NULL;
  assert_int_equal(gpu_stream_open(device, &other), OK);
  assert_int_equal(gpu_event_open(device, true, &first), OK);
  assert_int_equal(gpu_event_open(device, true, &last), OK);
  assert_int_equal(gpu_event_open(device, false, &ready), OK);
  gpu_record(device, stream, first);
  for (uint32_t i = 0; i < 20; i++) gpu_fill32(device, stream, pool, i, POOL_BYTES / 4);
  gpu_record(device, stream, last);
  gpu_record(device, stream, ready);
  gpu_wait(device, other, ready);
  gpu_download(device, other, pinned, pool + POOL_BYTES - 4, 4);
  gpu_sync(device, other, "download");
  assert_int_equal(*(uint32_t *)(void *)pinned, 19);
  gpu_event_sync(device, last, "fills");
  assert_true(gpu_event_done(device, last, "fills"));
  double us = gpu_elapsed_us(device, first, last);
  assert_true(us > 20.0 && us < 1e6); /* 1.3 GB at .. 5 TB/s */
}

/* === cuBLASLt ============================================================================================================== */

enum { N = 192, K = 256, LDX = 264, LDY = 200, ROWS = 40 };

static uint16_t small_bf16(int value) { /* |value| <= 8: exact */
  float f = (float)value;
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return (uint16_t)(bits >> 16);
}
static int x_at(int row, int k) { return (row * 5 + k * 3) % 9 - 4; }
static int w_at(int n, int k) { return (n * 7 + k * k) % 11 - 5; }

static void check_product(uint64_t y, int rows) {
  float *host = (float *)(void *)pinned;
  gpu_download(device, stream, host, y, sizeof(float) * LDY * ROWS);
  gpu_sync(device, stream, "product");
  for (int row = 0; row < ROWS; row++) {
    for (int n = 0; n < N; n++) {
      int sum = 0;
      for (int k = 0; k < K; k++) sum += x_at(row, k) * w_at(n, k);
      uint32_t bits;
      memcpy(&bits, &host[row * LDY + n], sizeof bits);
      if (row < rows) assert_true(host[row * LDY + n] == (float)sum);
      else assert_int_equal(bits, UINT32_MAX); /* no row after the count is written */
    }
  }
}

static void library_products_are_right_for_any_row_count(void **state) {
  (void)state;
  need_gpu();
  gemm_lt *lt = NULL;
  if (gemm_lt_open(device, NULL, &lt) != OK) {
    print_message("SKIPPED: %s\n", fail_text());
    skip();
  }
  const gemm_lt_shape shape = {.n = N, .k = K, .ldx = LDX, .ldy = LDY, .y_f32 = 1};
  const uint64_t x = pool, w = pool + (1 << 20), y = pool + (2 << 20), workspace = pool + (32 << 20);
  uint16_t *host = (uint16_t *)(void *)pinned;
  for (int row = 0; row < ROWS; row++)
    for (int k = 0; k < LDX; k++) host[row * LDX + k] = k < K ? small_bf16(x_at(row, k)) : 0x7fff;
  gpu_upload(device, stream, x, host, 2 * LDX * ROWS);
  gpu_sync(device, stream, "x");
  for (int n = 0; n < N; n++)
    for (int k = 0; k < K; k++) host[n * K + k] = small_bf16(w_at(n, k));
  gpu_upload(device, stream, w, host, 2 * N * K);
  gpu_sync(device, stream, "w");
  gemm_lt_algo algos[8];
  uint32_t count = 0;
  assert_int_equal(gemm_lt_offered(lt, &shape, ROWS, 16 << 20, algos, 8, &count), OK);
  assert_true(count > 0 && gemm_lt_version(lt) >= 120000);
  static const uint32_t rows_tried[] = {ROWS, 1, 17, 33};
  for (uint32_t i = 0; i < count; i++) {
    gemm_lt_op op;
    assert_int_equal(gemm_lt_prepare(lt, &shape, &algos[i], &op), OK);
    for (size_t r = 0; r < ARRAY_LEN(rows_tried); r++) {
      uint64_t bytes = 0;
      if (gemm_lt_check(lt, &op, rows_tried[r], &bytes) != OK || bytes > (16 << 20)) continue;
      op.algo.workspace_bytes = bytes;
      gpu_fill32(device, stream, y, UINT32_MAX, LDY * ROWS);
      assert_int_equal(gemm_lt_run(lt, &op, stream, rows_tried[r], x, w, y, workspace), OK);
      check_product(y, (int)rows_tried[r]);
      gpu_graph *graph = NULL;
      assert_int_equal(gpu_capture_begin(device, stream), OK);
      assert_int_equal(gemm_lt_run(lt, &op, stream, rows_tried[r], x, w, y, workspace), OK);
      assert_int_equal(gpu_capture_end(device, stream, &graph), OK);
      gpu_fill32(device, stream, y, UINT32_MAX, LDY * ROWS);
      gpu_graph_launch(device, stream, graph, "captured product");
      check_product(y, (int)rows_tried[r]);
    }
  }
  gemm_lt_algo nonsense = {.words = {UINT64_MAX, 3, 5, 7}};
  gemm_lt_op op;
  uint64_t bytes = 0;
  assert_int_equal(gemm_lt_prepare(lt, &shape, &nonsense, &op), OK);
  assert_int_equal(gemm_lt_check(lt, &op, ROWS, &bytes), ERR_DEVICE);
  gemm_lt_close(lt);
}

/* === Freezing: last, since it cannot be undone ============================================================================= */

static void try_pin(void) {
  void *host;
  gpu_pin(device, 4096, &host);
}
static void try_stream(void) {
  gpu_stream *other;
  gpu_stream_open(device, &other);
}
static void try_event(void) {
  gpu_event *other;
  gpu_event_open(device, false, &other);
}
static void try_capture(void) { gpu_capture_begin(device, stream); }
static void try_kernel(void) {
  gpu_kernel kernel;
  load(device, compiler, "add", sizeof(add_args), 64, 0, &kernel);
}

/* The assertion precedes any driver call; a forked child could not make one. */
static bool aborts(void (*attempt)(void)) {
  pid_t child = fork();
  if (child == 0) {
    if (!freopen("/dev/null", "w", stderr)) _exit(96);
    signal(SIGABRT, SIG_DFL);
    attempt();
    _exit(0);
  }
  int code = 0;
  waitpid(child, &code, 0);
  return WIFSIGNALED(code) && WTERMSIG(code) == SIGABRT;
}

static void nothing_is_made_after_freezing(void **state) {
  (void)state;
  need_gpu();
  gpu_kernel kernel;
  assert_int_equal(load(device, compiler, "add", sizeof(add_args), 64, 0, &kernel), OK);
  check_add(&kernel, 500, 1);
  assert_false(gpu_frozen(device));
  gpu_freeze(device);
  assert_true(gpu_frozen(device));
  uint64_t before = 0, after = 0, total = 0;
  const gpu_counters counted = gpu_count(device);
  assert_int_equal(gpu_memory(device, &before, &total), OK);
  for (uint32_t i = 0; i < 50; i++) check_add(&kernel, 500, i);
  assert_int_equal(gpu_memory(device, &after, &total), OK);
  assert_int_equal(before, after);
  const gpu_counters now = gpu_count(device);
  assert_int_equal(now.kernels, counted.kernels);
  assert_int_equal(now.launches, counted.launches + 50);
  static void (*const attempts[])(void) = {try_pin, try_stream, try_event, try_capture, try_kernel};
  for (size_t i = 0; i < ARRAY_LEN(attempts); i++) assert_true(aborts(attempts[i]));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(absence_is_told_with_a_hint),
      cmocka_unit_test(a_fault_calls_the_hook_and_ends_the_process),
      cmocka_unit_test(device_is_described),
      cmocka_unit_test(too_large_a_reservation_is_refused_with_figures),
      cmocka_unit_test(any_thread_uses_a_gpu_that_it_binds),
      cmocka_unit_test(kernels_load_and_run),
      cmocka_unit_test(shared_memory_beyond_the_default_works),
      cmocka_unit_test(wrong_cubins_are_refused_by_name),
      cmocka_unit_test(captured_work_replays),
      cmocka_unit_test(events_order_and_time),
      cmocka_unit_test(library_products_are_right_for_any_row_count),
      cmocka_unit_test(nothing_is_made_after_freezing),
  };
  return cmocka_run_group_tests(tests, run_children_then_open, close_device);
}
