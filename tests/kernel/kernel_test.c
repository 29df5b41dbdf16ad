/* kernel_test.c - the harness of kernel_test.h. */
#include "kernel_test.h"
#include "engine/mma/h16.h"
#include "engine/base/digest.h"
#include "engine/gpu/gpu.h"
#include "tests/emulator/emulator.h"
#include "tests/kernel/force_isa.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define IMAGE_BYTES (48u << 20)
#define GUARD_BYTES 256u
#define KERNELS_MAX 128u
#define FLAWS_MAX 64u

#ifdef __SANITIZE_ADDRESS__ /* slow, and one thread covers the memory that three do */
#define ONE_THREAD_TOO false
#else
#define ONE_THREAD_TOO true
#endif

enum byte_class { FIXED = 0, WRITTEN = 1, MEANINGLESS = 2 };
enum executor { REFERENCES, GPU, EMULATOR }; /* runs the cases; next to GPU and EMULATOR the reference runs once, for comparison */

typedef struct loose_range { size_t at, bytes; } loose_range;
typedef struct loaded_kernel { jit_spec spec[KERNEL_SPECS_MAX]; u32 spec_count, threads, shared_bytes; gpu_kernel kernel; } loaded_kernel;

struct kernel_test {
  const char *stem, *golden, *record, *record_steps;
  void (*run_all)(kernel_test *);
  u32 id, case_count;
  u8 *image, *initial, *first, *class; /* IMAGE_BYTES each: working, before the op, the first result, enum byte_class */
  size_t used;
  loose_range loose[8];
  u32 loose_count;
  cpu_pool *one, *three;
  digest_state digest;
  enum executor executor;
  gpu *device;
  gpu_stream *stream;
  jit *compiler;
  u64 device_image;
  loaded_kernel kernel[KERNELS_MAX];
  u32 kernel_count;
  const emulator_kernel *found[FLAWS_MAX]; /* broken copies of the kernel that some case has found */
  u32 found_count, launches;
  int orders; /* launches of a broken copy in each case; more than 1: the sound ones have run, and are skipped */
};

static kernel_test self; /* one test per program */

/* === Buffers ============================================================================================================ */

void kernel_test_start(kernel_test *test) {
  memset(test->image, 0xff, IMAGE_BYTES < test->used + GUARD_BYTES ? IMAGE_BYTES : test->used + GUARD_BYTES);
  memset(test->class, FIXED, IMAGE_BYTES < test->used + GUARD_BYTES ? IMAGE_BYTES : test->used + GUARD_BYTES);
  test->used = GUARD_BYTES;
  test->loose_count = 0;
}

static void *take(kernel_test *test, size_t bytes, u8 class) {
  size_t at = test->used;
  test->used = (size_t)align_up(at + bytes + GUARD_BYTES, GUARD_BYTES);
  ASSERT(test->used <= IMAGE_BYTES);
  memset(test->image + at, 0xff, test->used - at);
  memset(test->class + at, FIXED, test->used - at);
  memset(test->class + at, class, bytes);
  return test->image + at;
}

void *kernel_test_input(kernel_test *test, size_t bytes) { return take(test, bytes, FIXED); }
void *kernel_test_output(kernel_test *test, size_t bytes) { return take(test, bytes, WRITTEN); }
void *kernel_test_scratch(kernel_test *test, size_t bytes) { return take(test, bytes, MEANINGLESS); }

step_in *kernel_test_step(kernel_test *test, u32 tokens, u32 logits, u32 tiles) {
  step_in *step = kernel_test_input(test, sizeof *step);
  *step = (step_in){.token_count = tokens, .logit_count = logits, .tile_count = tiles, .seq_count = 1};
  return step;
}

kernel_places kernel_test_places(kernel_test *test, u32 tokens, u32 seqs, u32 stride, u32 pages) {
  kernel_places p = {.position = kernel_test_input(test, (tokens + 2) * 4), .seq = kernel_test_input(test, (tokens + 2) * 4)};
  p.block_table = kernel_test_input(test, seqs * stride * 4);
  for (u32 i = 0; i < seqs * stride; i++) p.block_table[i] = (i * 5 + 3) % pages;
  for (u32 t = 0; t < tokens; t++) {
    p.seq[t] = t % seqs;
    p.position[t] = 60 + t / seqs + 17 * p.seq[t];
  }
  return p;
}

void kernel_test_keep(kernel_test *test, const void *part, size_t bytes) {
  memset(test->class + ((const u8 *)part - test->image), FIXED, bytes);
}

void kernel_test_loose(kernel_test *test, const void *part, size_t bytes) {
  ASSERT(test->loose_count < ARRAY_LEN(test->loose));
  test->loose[test->loose_count++] = (loose_range){(size_t)((const u8 *)part - test->image), bytes};
}

/* === Running ============================================================================================================ */

static void settle_loose(const kernel_test *test, u8 *image) {
  for (u32 i = 0; i < test->loose_count; i++) {
    for (size_t at = test->loose[i].at; at < test->loose[i].at + test->loose[i].bytes; at += 4) {
      u32 word;
      memcpy(&word, image + at, 4);
      if (word == 0x80000000u) word = 0;
      if ((word & 0x7fffffffu) > 0x7f800000u) word = 0x7fffffffu;
      memcpy(image + at, &word, 4);
    }
  }
}

/* The first byte that differs and counts, or test->used. */
static size_t difference(const kernel_test *test, const u8 *got, const u8 *want, bool outputs_too) {
  enum { BLOCK = 256 }; /* most are equal, and memcmp is faster than the loop */
  for (size_t at = 0, end; at < test->used; at = end) {
    end = at + BLOCK < test->used ? at + BLOCK : test->used;
    if (memcmp(got + at, want + at, end - at) == 0) continue;
    for (size_t i = at; i < end; i++)
      if (got[i] != want[i] && test->class[i] != MEANINGLESS && (outputs_too || test->class[i] != WRITTEN)) return i;
  }
  return test->used;
}

static void compare(const kernel_test *test, const u8 *got, const u8 *want, const char *who, bool outputs_too) {
  size_t i = difference(test, got, want, outputs_too), word = i & ~(size_t)3;
  if (i == test->used) return;
  u32 found, expected;
  memcpy(&found, got + word, 4);
  memcpy(&expected, want + word, 4);
  print_error("%s: %s, case %u: %s at byte %zu of the image: %08x, expected %08x\n", test->stem, who, test->case_count,
              test->class[i] == FIXED ? "wrote what it must not" : "another result", i, found, expected);
  fail();
}

static void run_reference(kernel_test *test, const void *args, cpu_pool *pool, const char *who, bool first) {
  memcpy(test->image, test->initial, test->used);
  kernels_row(test->id)->run_cpu(args, pool);
  compare(test, test->image, test->initial, who, false);
  settle_loose(test, test->image);
  if (first)
    memcpy(test->first, test->image, test->used);
  else
    compare(test, test->image, test->first, who, true);
}

static void run_cpu(kernel_test *test, const void *args) {
  static const char *const isas[] = FORCE_ISA_NAMES;
  bool first = true;
  for (u32 i = 0; i < ARRAY_LEN(isas); i++) {
    if (test->executor != REFERENCES && i + 1 < ARRAY_LEN(isas)) continue;
    if (force_isa(isas[i]) != OK) assert_int_equal(force_isa(NULL), OK);
    fail_clear();
    run_reference(test, args, test->three, isas[i], first);
    first = false;
    if (test->executor == REFERENCES && ONE_THREAD_TOO) run_reference(test, args, test->one, isas[i], false);
  }
  assert_int_equal(force_isa(NULL), OK);
}

static gpu_kernel *load(kernel_test *test, const kernel_variant *v) {
  for (u32 i = 0; i < test->kernel_count; i++) {
    loaded_kernel *k = &test->kernel[i];
    bool same = k->spec_count == v->spec_count && k->threads == v->threads && k->shared_bytes == v->shared_bytes;
    for (u32 s = 0; s < v->spec_count && same; s++)
      same = k->spec[s].value == v->spec[s].value && strcmp(k->spec[s].name, v->spec[s].name) == 0;
    if (same) return &k->kernel;
  }
  ASSERT(test->kernel_count < KERNELS_MAX);
  loaded_kernel *k = &test->kernel[test->kernel_count++];
  jit_spec spec[KERNEL_SPECS_MAX + 1] = {{"SPEC_THREADS", v->threads}};
  *k = (loaded_kernel){.spec_count = v->spec_count, .threads = v->threads, .shared_bytes = v->shared_bytes};
  for (u32 s = 0; s < v->spec_count; s++) spec[s + 1] = k->spec[s] = v->spec[s];
  jit_cubin_view cubin;
  gpu_kernel_config config = {.name = test->stem, .args_bytes = kernels_row(test->id)->args_bytes};
  status s = jit_compile(test->compiler, test->stem, spec, v->spec_count + 1, &cubin);
  if (s == OK) {
    config.cubin = cubin.bytes;
    config.cubin_bytes = cubin.size;
    config.threads = v->threads;
    config.shared_bytes = v->shared_bytes;
    config.takes_maps = op_maps_taken(v->spec, v->spec_count);
    s = gpu_kernel_load(test->device, &config, &k->kernel);
  }
  if (s != OK) print_error("%s: %s\n", test->stem, fail_text());
  assert_int_equal(s, OK);
  return &k->kernel;
}

/* The argument struct with the image's addresses replaced by those of the device's copy. */
static void relocate(const kernel_test *test, const void *args, u64 *out, u32 bytes) {
  u64 base = (u64)(uintptr_t)test->image;
  memcpy(out, args, bytes);
  for (u32 i = 0; i < bytes / 8; i++) {
    if (out[i] >= base && out[i] < base + test->used) out[i] = out[i] - base + test->device_image;
  }
}

static void run_gpu(kernel_test *test, const void *args, const kernel_variant *v) {
  u64 words[64];
  ASSERT(kernels_row(test->id)->args_bytes <= sizeof words);
  relocate(test, args, words, kernels_row(test->id)->args_bytes);
  gpu_work work = {.kernel = load(test, v), .op = test->stem, .grid = {v->grid[0], v->grid[1], v->grid[2]}, .args = words};
  tensor_maps maps;
  if (work.kernel->takes_maps) {
    tensor_shape shapes[2];
    op_maps(test->id, v->spec, v->spec_count, words, v->rows, shapes);
    gpu_tensor(test->device, &shapes[0], test->stem, &maps.w);
    gpu_tensor(test->device, &shapes[1], test->stem, &maps.x);
    work.maps = &maps;
  }
  for (u32 run = 0; run < 2; run++) {
    gpu_upload(test->device, test->stream, test->device_image, test->initial, test->used);
    gpu_launch(test->device, test->stream, &work);
    gpu_download(test->device, test->stream, test->image, test->device_image, test->used);
    gpu_sync(test->device, test->stream, test->stem);
    settle_loose(test, test->image);
    compare(test, test->image, test->first, "GPU", true);
  }
}

static bool is_found(const kernel_test *test, const emulator_kernel *kernel) {
  bool found = false;
  for (u32 i = 0; i < test->found_count; i++) found = found || test->found[i] == kernel;
  return found;
}

static void emulate_maps(const kernel_test *test, const void *args, const kernel_variant *v, tensor_maps *maps) {
  tensor_shape shapes[2];
  op_maps(test->id, v->spec, v->spec_count, args, v->rows, shapes);
  memcpy(&maps->w, &shapes[0], sizeof shapes[0]);
  memcpy(&maps->x, &shapes[1], sizeof shapes[1]);
}

static void run_emulated(kernel_test *test, const void *args, const kernel_variant *v, const emulator_kernel *kernel) {
  memcpy(test->image, test->initial, test->used);
  tensor_maps maps = {0};
  if (op_maps_taken(v->spec, v->spec_count)) emulate_maps(test, args, v, &maps);
  const char *fault = emulator_run(kernel, v->grid, v->shared_bytes, args, &maps);
  settle_loose(test, test->image);
  if (kernel->flaw[0]) {
    if (!fault && difference(test, test->image, test->first, true) == test->used) return;
    ASSERT(test->found_count < FLAWS_MAX);
    test->found[test->found_count++] = kernel;
    print_message("    %s: case %u finds the broken kernel: %s%s%s\n", test->stem, test->case_count, kernel->flaw, fault ? ": " : "",
                  fault ? fault : "");
    return;
  }
  if (fault) print_error("%s: emulated, case %u: %s\n", test->stem, test->case_count, fault);
  assert_null(fault);
  compare(test, test->image, test->first, "emulated", true);
  test->launches++;
}

/* Runs the kernel's text in the emulator, as it is and in the broken copies that no case has found yet. */
static void run_emulator(kernel_test *test, const void *args, const kernel_variant *v) {
  char spec[256];
  int length = snprintf(spec, sizeof spec, "-DSPEC_THREADS=%uu", v->threads);
  for (u32 i = 0; i < v->spec_count; i++)
    length += snprintf(spec + length, sizeof spec - (size_t)length, " -D%s=%uu", v->spec[i].name, v->spec[i].value);
  bool exists = false;
  for (const emulator_kernel *k = emulator_kernels(); k; k = k->next) {
    if (strcmp(k->stem, test->stem) != 0 || strcmp(k->spec, spec) != 0 || is_found(test, k)) continue;
    exists = exists || !k->flaw[0];
    for (int i = 0; i < test->orders && !is_found(test, k) && (k->flaw[0] || test->orders == 1); i++) run_emulated(test, args, v, k);
  }
  if (!exists) print_error("%s: no emulated kernel for %s; hint: tests/emulator/forms.toml\n", test->stem, spec);
  assert_true(exists);
  memcpy(test->image, test->first, test->used);
}

static void add_to_digest(kernel_test *test) {
  for (size_t i = 0; i < test->used;) {
    size_t end = i;
    while (end < test->used && test->class[end] == WRITTEN) end++;
    if (end > i) digest_add(&test->digest, test->image + i, end - i);
    i = end > i ? end : i + 1;
  }
}

void kernel_test_run(kernel_test *test, const void *args, const kernel_variant *variants, u32 variant_count) {
  memcpy(test->initial, test->image, test->used);
  run_cpu(test, args);
  for (u32 i = 0; i < variant_count && test->executor == GPU; i++) run_gpu(test, args, &variants[i]);
  for (u32 i = 0; i < variant_count && test->executor == EMULATOR; i++) run_emulator(test, args, &variants[i]);
  add_to_digest(test);
  test->case_count++;
}

/* === The program ======================================================================================================== */

static void run_cases(kernel_test *test, char text[DIGEST_TEXT_BYTES]) {
  digest_start(&test->digest);
  test->case_count = 0;
  test->used = IMAGE_BYTES;
  kernel_test_start(test);
  test->run_all(test);
  assert_true(test->case_count > 0);
  digest end = digest_end(&test->digest);
  digest_text(end.bytes, text);
}

static char cpu_digest[DIGEST_TEXT_BYTES];

static void cpu_cases(void **state) {
  (void)state;
  run_cases(&self, cpu_digest);
  print_message("    %s: %u cases, digest %s\n", self.stem, self.case_count, cpu_digest);
}

static void golden_digest(void **state) {
  (void)state;
  assert_string_equal(self.golden, cpu_digest);
}

static void gpu_cases(void **state) {
  (void)state;
  char text[DIGEST_TEXT_BYTES];
  if (gpu_open(0, NULL, &self.device) != OK) {
    print_message("    SKIPPED: no GPU: %s GPU comparison\n", self.stem);
    fail_clear();
    skip();
  }
  status s = jit_open(NULL, NULL, NULL, 0, &self.compiler);
  if (s == OK) s = gpu_reserve(self.device, IMAGE_BYTES, &self.device_image);
  if (s == OK) s = gpu_stream_open(self.device, &self.stream);
  if (s != OK) print_error("%s: %s\n", self.stem, fail_text());
  assert_int_equal(s, OK);
  self.executor = GPU;
  run_cases(&self, text);
  self.executor = REFERENCES;
  print_message("    %s: %u cases on the GPU, digest %s\n", self.stem, self.case_count, text);
  if (self.record) {
    FILE *file = fopen(self.record, "a");
    assert_non_null(file);
    fprintf(file, "%s %s\n", self.stem, text);
    assert_int_equal(fclose(file), 0);
  }
  jit_close(self.compiler);
  gpu_close(self.device);
}

static u32 unfound_flaws(void) {
  u32 count = 0;
  for (const emulator_kernel *k = emulator_kernels(); k; k = k->next) count += k->flaw[0] && !is_found(&self, k);
  return count;
}

/* Most flaws show in any order of threads and copies: they get one launch a case. For the others all cases run again, in every order. */
static void emulated_cases(void **state) {
  (void)state;
  char text[DIGEST_TEXT_BYTES];
  self.executor = EMULATOR;
  self.orders = 1;
  run_cases(&self, text);
  print_message("    %s: %u cases in the emulator, %u launches\n", self.stem, self.case_count, self.launches);
  assert_string_equal(text, cpu_digest);
  self.orders = EMULATOR_ORDERS;
  if (unfound_flaws()) run_cases(&self, text);
  self.executor = REFERENCES;
  for (const emulator_kernel *k = emulator_kernels(); k; k = k->next)
    if (k->flaw[0] && !is_found(&self, k)) print_error("%s: no case finds the broken kernel: %s\n", self.stem, k->flaw);
  assert_int_equal(unfound_flaws(), 0);
}

int kernel_test_main(int argc, char **argv, const char *stem, const char *golden, void (*run_all)(kernel_test *)) {
  self.stem = stem;
  self.golden = golden;
  self.run_all = run_all;
  self.id = kernels_find(stem);
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--record") == 0) self.record = argv[i + 1];
    if (strcmp(argv[i], "--record-steps") == 0) self.record_steps = argv[i + 1];
  }
  self.image = aligned_alloc(GUARD_BYTES, IMAGE_BYTES);
  self.initial = malloc(IMAGE_BYTES);
  self.first = malloc(IMAGE_BYTES);
  self.class = calloc(IMAGE_BYTES, 1);
  bool ready = self.image && self.initial && self.first && self.class && self.id < KERNEL_COUNT;
  if (!ready || cpu_pool_open(&self.one, 1) != OK || cpu_pool_open(&self.three, 3) != OK) {
    fprintf(stderr, "%s: cannot start: %s\n", stem, fail_text());
    return 1;
  }
  const struct CMUnitTest recording[] = {cmocka_unit_test(cpu_cases), cmocka_unit_test(gpu_cases)};
  const struct CMUnitTest tests[] = {cmocka_unit_test(cpu_cases), cmocka_unit_test(golden_digest), cmocka_unit_test(gpu_cases)};
  const struct CMUnitTest emulated[] = {cmocka_unit_test(emulated_cases)};
  int failed = self.record ? cmocka_run_group_tests_name(stem, recording, NULL, NULL)
                           : cmocka_run_group_tests_name(stem, tests, NULL, NULL);
  if (emulator_kernels && !self.record) failed += cmocka_run_group_tests_name("emulator", emulated, NULL, NULL);
  cpu_pool_close(self.one);
  cpu_pool_close(self.three);
  free(self.image);
  free(self.initial);
  free(self.first);
  free(self.class);
  return failed;
}

/* === Helpers of the cases =============================================================================================== */

void kernel_test_near(double got, double want, double relative, double absolute) {
  if (isnan(got) && isnan(want)) return;
  if (got == want || fabs(got - want) <= relative * fabs(want) + absolute) return;
  print_error("%s, case %u: got %.9g, want %.9g\n", self.stem, self.case_count, got, want);
  fail();
}

void kernel_test_floats(cases *c, f32 *out, size_t count, f32 scale) {
  for (size_t i = 0; i < count; i++) {
    f32 small = cases_below(c, 16) ? 1.0f : 0x1p-9f;
    out[i] = cases_uniform(c, scale) * small;
  }
}

void kernel_test_bf16s(cases *c, bf16 *out, size_t count, f32 scale) {
  for (size_t i = 0; i < count; i++) {
    f32 v;
    kernel_test_floats(c, &v, 1, scale);
    out[i] = num_to_bf16(v);
  }
}

f32 kernel_test_chain(const bf16 *a, const bf16 *b, u64 b_stride, u32 k, f32 c) {
  for (u32 i = 0; i < k; i += H16_STEP) {
    bf16 column[H16_STEP];
    for (u32 j = 0; j < H16_STEP; j++) column[j] = b[(i + j) * b_stride];
    c = h16_step_reference(a + i, column, c);
  }
  return c;
}

f32 kernel_test_tree(const f32 *p, u32 n, u32 first, u32 step) {
  if (step == n) return p[first];
  return kernel_test_tree(p, n, first, 2 * step) + kernel_test_tree(p, n, first + step, 2 * step);
}

f32 kernel_test_norm(const f32 *v, u32 n, f32 eps) {
  f32 part[256];
  for (u32 j = 0; j < 256; j++) {
    part[j] = 0;
    for (u32 i = j; i < n; i += 256) part[j] = fmaf(v[i], v[i], part[j]);
  }
  return 1.0f / sqrtf(kernel_test_tree(part, 256, 0, 1) / (f32)n + eps);
}

const char *kernel_test_steps_file(const kernel_test *test) { return test->record_steps; }
u32 kernel_test_checks(const kernel_test *test, u32 count) {
#ifdef __SANITIZE_ADDRESS__
  count = (count + 5) / 6; /* instrumented code is slow, and the plain build makes them all */
#endif
  return test->executor == REFERENCES ? count : 0;
}

bool kernel_test_on_gpu(const kernel_test *test) { return test->executor == GPU; }
