/* test_jit.c - kernels compiled by NVRTC and cached in a folder: hits, damage, races, keys, refusals. Needs no GPU.
 *
 * The embedded kernels are compiled once with constants as plans use them; the cache is tested with a small kernel of this test. */
#include "tests/unit/unit.h"
#include "engine/gpu/jit.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__ /* the last test: half a minute of NVRTC, after which LeakSanitizer fails at random */
enum { LEFT_OUT = 1 };
#else
enum { LEFT_OUT = 0 };
#endif

static const kernel_source probe_sources[] = {
    {"probe.cu", "#include \"spec.cuh\"\n#include \"probe.h\"\n"
                 "extern \"C\" __global__ void probe(unsigned *x) { x[threadIdx.x] = SPEC_VALUE + PROBE; }\n"},
    {"probe.h", "#define PROBE 5u\n"},
    {"other.cu", "extern \"C\" __global__ void other() {}\n"},
    {"wrong.cu", "extern \"C\" __global__ void wrong() { undeclared_thing(); }\n"},
};
#define PROBE_SOURCES probe_sources, ARRAY_LEN(probe_sources)
static const jit_spec probe_spec[] = {{"SPEC_VALUE", 37}};

static bool have_nvrtc;
static char folder[] = "/tmp/verbatim-jit-XXXXXX";
static char cache[64];

static int find_nvrtc(void **state) {
  (void)state;
  jit *j = NULL;
  have_nvrtc = jit_open(NULL, NULL, NULL, 0, &j) == OK;
  if (!have_nvrtc) print_message("SKIPPED: no NVRTC: kernels are not compiled (%s)\n", fail_text());
  jit_close(j);
  if (!mkdtemp(folder)) return -1;
  snprintf(cache, sizeof cache, "%s/a/b", folder);
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

/* Every test starts with no error recorded and an empty cache. */
static int reset(void **state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s/a", folder);
  fail_clear();
  return system(command);
}

static jit *open_probe(const char *cache_dir) {
  if (!have_nvrtc) skip();
  jit *j = NULL;
  assert_int_equal(jit_open(NULL, cache_dir, PROBE_SOURCES, &j), OK);
  return j;
}

/* Compiles the probe with a new jit; path receives the path of its cache entry. */
static bool probe_from_cache(char *path, size_t path_bytes) {
  jit *j = open_probe(cache);
  jit_cubin_view view;
  assert_int_equal(jit_compile(j, "probe", probe_spec, 1, &view), OK);
  assert_string_equal(jit_note(j), "");
  assert_true(view.size > 100);
  assert_memory_equal(view.bytes, "\177ELF", 4);
  if (path) snprintf(path, path_bytes, "%s/probe-%s.vjit", cache, view.key);
  bool hit = view.from_cache;
  jit_close(j);
  return hit;
}

static size_t read_file(const char *path, uint8_t *bytes, size_t bytes_max) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  size_t got = fread(bytes, 1, bytes_max, file);
  fclose(file);
  return got;
}

static void write_file(const char *path, const uint8_t *bytes, size_t count) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  assert_int_equal(fclose(file), 0);
}

/* Files in the cache; every name must be a published entry. */
static int count_entries(void) {
  DIR *dir = opendir(cache);
  assert_non_null(dir);
  int count = 0;
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    assert_non_null(strstr(entry->d_name, ".vjit"));
    count++;
  }
  closedir(dir);
  return count;
}

/* === The embedded kernels ================================================================================================== */

typedef struct variant {
  const char *kernel;
  uint32_t count;
  jit_spec specs[9];
} variant;

#define THREADS(n) {"SPEC_THREADS", n}
#define TILES(n, rows, stages)                                                                                       \
  6, {THREADS(384), {"SPEC_MAPS", 1}, {"SPEC_TILE_N", n}, {"SPEC_TILE_ROWS", rows}, {"SPEC_STAGES", stages}, {"SPEC_CLUSTER", 2}}

/* One for each kernel that has no default; tools/kernelc.py compiles all that plans use, with the same options. */
static const variant variants[] = {
    {"embed", 1, {THREADS(128)}},
    {"rmsnorm", 2, {THREADS(512), {"SPEC_HELD", 2}}},
    {"qkv_rope", 1, {THREADS(256)}},
    {"kv_rope", 2, {THREADS(256), {"SPEC_HELD", 1}}},
    {"gemm", TILES(128, 128, 6)},
    {"gemm_bias", TILES(128, 128, 6)},
    {"mla_attn", 7, {THREADS(512), {"SPEC_MAPS", 1}, {"SPEC_KV_LORA_RANK", 512}, {"SPEC_ROPE_DIM", 64}, {"SPEC_ROWS", 16},
                     {"SPEC_KV_FORMAT", 1}, {"SPEC_LISTS", 1}}},
    {"attn", 9, {THREADS(256), {"SPEC_MAPS", 1}, {"SPEC_HEAD_DIM", 128}, {"SPEC_V_DIM", 128}, {"SPEC_ROWS", 64}, {"SPEC_STAGES", 2},
                 {"SPEC_PAGES", 1}, {"SPEC_HELD", 0}, {"SPEC_KV_FORMAT", 2}}},
    {"mla_expand", TILES(128, 256, 4)},
    {"mla_fold", 1, {THREADS(256)}},
    {"attn_fold", 1, {THREADS(64)}},
    {"mla_prefill", 6, {THREADS(384), {"SPEC_NOPE_DIM", 128}, {"SPEC_ROPE_DIM", 64}, {"SPEC_V_DIM", 128}, {"SPEC_STAGES", 2},
                        {"SPEC_MAPS", 1}}},
    {"router", 1, {THREADS(128)}},
    {"moe_sort", 1, {THREADS(1024)}},
    {"moe_gemm", TILES(128, 128, 6)},
    {"sample", 1, {THREADS(512)}},
    {"row_digest", 1, {THREADS(1024)}},
    {"adjust", 1, {THREADS(512)}},
    {"attn_cut", 1, {THREADS(512)}},
    {"index_qk", 1, {THREADS(128)}},
    {"index_topk", 3, {THREADS(512), {"SPEC_CLUSTER", 8}, {"SPEC_HELD", 22528}}},
    {"kv_widen", 1, {THREADS(128)}},
    {"act_quant", 1, {THREADS(256)}},
    {"moe_fold", 1, {THREADS(128)}},
    {"exchange", 2, {THREADS(512), {"SPEC_TAGGED", 1}}},
    {"rank_norm", 2, {THREADS(512), {"SPEC_HELD", 2}}},
    {"fp8_gemm", TILES(128, 128, 6)},
    {"fp8_moe_gemm", TILES(128, 128, 6)},
    {"index_score", 5, {THREADS(640), {"SPEC_MAPS", 1}, {"SPEC_HEADS", 64}, {"SPEC_PAGES", 2}, {"SPEC_STAGES", 4}}},
};

static void every_kernel_compiles_and_is_covered(void **state) {
  (void)state;
  if (!have_nvrtc) skip();
  static const char *const stems[] = {
#define KERNEL(stem) #stem,
#include "kernels_src/kernels.def"
#undef KERNEL
  };
  jit *j = NULL;
  assert_int_equal(jit_open(NULL, NULL, NULL, 0, &j), OK);
  for (size_t s = 0; s < ARRAY_LEN(stems); s++) {
    size_t tried = 0;
    for (size_t i = 0; i < ARRAY_LEN(variants); i++) {
      if (strcmp(variants[i].kernel, stems[s]) != 0) continue;
      jit_cubin_view view;
      if (jit_compile(j, stems[s], variants[i].specs, variants[i].count, &view) != OK) fail_msg("%s", fail_text());
      tried++;
    }
    if (tried > 0) continue;
    const jit_spec block = THREADS(256); /* the planner's default, for a kernel without other constants */
    jit_cubin_view view;
    if (jit_compile(j, stems[s], &block, 1, &view) != OK) fail_msg("%s", fail_text());
  }
  jit_close(j);
}

/* === The cache ============================================================================================================= */

static void second_use_is_a_hit_with_the_same_bytes(void **state) {
  (void)state;
  jit *first = open_probe(cache), *second = open_probe(cache), *apart = open_probe(NULL);
  jit_cubin_view a, b, c;
  assert_int_equal(jit_compile(first, "probe", probe_spec, 1, &a), OK);
  assert_int_equal(jit_compile(second, "probe", probe_spec, 1, &b), OK);
  assert_int_equal(jit_compile(apart, "probe", probe_spec, 1, &c), OK);
  assert_false(a.from_cache);
  assert_true(b.from_cache);
  assert_false(c.from_cache);
  assert_int_equal(a.size, b.size);
  assert_int_equal(a.size, c.size);
  assert_memory_equal(a.bytes, b.bytes, a.size);
  assert_memory_equal(a.bytes, c.bytes, a.size); /* the compiler is deterministic */
  assert_string_equal(a.key, b.key);
  assert_int_equal(count_entries(), 1);
  jit_close(first);
  jit_close(second);
  jit_close(apart);
}

/* The entry contains the source as readable text. */
static void entry_holds_spec_and_source(void **state) {
  (void)state;
  char path[256];
  assert_false(probe_from_cache(path, sizeof path));
  static uint8_t bytes[1 << 20];
  size_t count = read_file(path, bytes, sizeof bytes - 1);
  bytes[count] = 0;
  const char *source = probe_sources[0].text;
  assert_string_equal((char *)bytes + count - strlen(source), source);
}

/* Damages the entry as fn does; the next use must compile again, and leave an entry that is a hit. */
static void expect_rebuilt(const char *path, const uint8_t *bytes, size_t count, const char *what) {
  write_file(path, bytes, count);
  if (probe_from_cache(NULL, 0)) fail_msg("%s was trusted", what);
  assert_true(probe_from_cache(NULL, 0));
}

static void truncated_entries_are_rebuilt(void **state) {
  (void)state;
  char path[256];
  static uint8_t bytes[1 << 20];
  assert_false(probe_from_cache(path, sizeof path));
  size_t count = read_file(path, bytes, sizeof bytes);
  const size_t lengths[] = {0, 1, 8, 63, 64, 65, count / 2, count - 1, count + 1, count + 64};
  for (size_t i = 0; i < ARRAY_LEN(lengths); i++) expect_rebuilt(path, bytes, lengths[i], "an entry of another length");
  write_file(path, bytes, count); /* control: the undamaged bytes are accepted */
  assert_true(probe_from_cache(NULL, 0));
}

static void flipped_bits_are_noticed_everywhere(void **state) {
  (void)state;
  char path[256];
  static uint8_t bytes[1 << 20];
  assert_false(probe_from_cache(path, sizeof path));
  size_t count = read_file(path, bytes, sizeof bytes);
  for (size_t at = 0; at < count; at += at < 64 ? 3 : 397) {
    uint8_t bit = (uint8_t)(1u << (at % 8));
    bytes[at] ^= bit;
    expect_rebuilt(path, bytes, count, "a flipped bit");
    bytes[at] ^= bit;
  }
  bytes[count - 1] ^= 0x80;
  expect_rebuilt(path, bytes, count, "a flipped last bit");
}

static void foreign_entries_are_replaced(void **state) {
  (void)state;
  char path[256], command[600];
  jit *j = open_probe(cache);
  jit_cubin_view other;
  assert_int_equal(jit_compile(j, "other", NULL, 0, &other), OK);
  assert_false(probe_from_cache(path, sizeof path));
  snprintf(command, sizeof command, "cp %s/other-%s.vjit %s", cache, other.key, path); /* complete and valid, but of another key */
  assert_int_equal(system(command), 0);
  assert_false(probe_from_cache(NULL, 0));
  assert_true(probe_from_cache(NULL, 0));
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkfifo(path, 0600), 0); /* must not hang */
  assert_false(probe_from_cache(NULL, 0));
  assert_true(probe_from_cache(NULL, 0));
  jit_close(j);
}

static void cache_that_cannot_be_used_is_noted(void **state) {
  (void)state;
  char path[256], under_file[300];
  assert_false(probe_from_cache(path, sizeof path));
  snprintf(under_file, sizeof under_file, "%s/x", path);
  char *overlong = malloc(9000);
  assert_non_null(overlong);
  memset(overlong, 'a', 8999);
  overlong[8999] = 0;
  const char *const bad[] = {under_file, "", overlong};
  for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
    jit *j = open_probe(bad[i]);
    jit_cubin_view view;
    assert_non_null(strstr(jit_note(j), "kernel cache: not in use"));
    assert_int_equal(jit_compile(j, "probe", probe_spec, 1, &view), OK);
    assert_false(view.from_cache);
    jit_close(j);
  }
  free(overlong);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkdir(path, 0700), 0); /* a folder has the entry's name: the entry cannot be published */
  jit *j = open_probe(cache);
  jit_cubin_view view;
  assert_int_equal(jit_compile(j, "probe", probe_spec, 1, &view), OK);
  assert_non_null(strstr(jit_note(j), "cannot be written"));
  jit_close(j);
  assert_int_equal(rmdir(path), 0);
  assert_int_equal(count_entries(), 0); /* no temporary file is left */
}

/* Several processes fill one empty cache at once: each gets the right bytes, and one complete entry remains. */
static void processes_publish_without_disturbing_each_other(void **state) {
  (void)state;
  jit *j = open_probe(NULL);
  jit_cubin_view expected;
  assert_int_equal(jit_compile(j, "probe", probe_spec, 1, &expected), OK);
  for (int round = 0; round < 5; round++) {
    pid_t children[4];
    reset(NULL);
    for (size_t i = 0; i < ARRAY_LEN(children); i++) {
      children[i] = fork();
      assert_true(children[i] >= 0);
      if (children[i] > 0) continue;
      jit *mine = NULL;
      jit_cubin_view view;
      bool good = jit_open(NULL, cache, PROBE_SOURCES, &mine) == OK && jit_compile(mine, "probe", probe_spec, 1, &view) == OK &&
                  view.size == expected.size && memcmp(view.bytes, expected.bytes, view.size) == 0 && !jit_note(mine)[0];
      _exit(good ? 0 : 1);
    }
    for (size_t i = 0; i < ARRAY_LEN(children); i++) {
      int code = -1;
      assert_int_equal(waitpid(children[i], &code, 0), children[i]);
      assert_int_equal(code, 0);
    }
    assert_int_equal(count_entries(), 1);
    assert_true(probe_from_cache(NULL, 0));
  }
  jit_close(j);
}

/* A writer that stops midway leaves no entry; one whose disk is full continues without the cache. Both use a limit on file sizes. */
static void half_written_entries_are_never_published(void **state) {
  (void)state;
  for (int killed = 0; killed < 2; killed++) {
    reset(NULL);
    jit_close(open_probe(cache));
    pid_t child = fork();
    if (child == 0) {
      jit *j = NULL;
      jit_cubin_view view;
      const struct rlimit limit = {.rlim_cur = 1000, .rlim_max = 1000};
      signal(SIGXFSZ, killed ? SIG_DFL : SIG_IGN);
      if (jit_open(NULL, cache, PROBE_SOURCES, &j) != OK || setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
      bool good = jit_compile(j, "probe", probe_spec, 1, &view) == OK && strstr(jit_note(j), "cannot be written");
      _exit(good ? 0 : 1);
    }
    int code = -1;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(WIFSIGNALED(code), killed);
    if (!killed) assert_int_equal(code, 0);
    char command[200];
    snprintf(command, sizeof command, "ls %s | grep -q vjit", cache);
    assert_int_not_equal(system(command), 0);
    snprintf(command, sizeof command, "test $(ls -A %s | wc -l) = %d", cache, killed);
    assert_int_equal(system(command), 0);
    assert_false(probe_from_cache(NULL, 0));
    assert_true(probe_from_cache(NULL, 0));
  }
}

/* === Keys ================================================================================================================== */

static void key_of(const kernel_source *sources, size_t count, const char *kernel, const jit_spec *specs, uint32_t spec_count,
                   char key[33]) {
  if (!have_nvrtc) skip();
  jit *j = NULL;
  jit_cubin_view view;
  assert_int_equal(jit_open(NULL, NULL, sources, count, &j), OK);
  if (jit_compile(j, kernel, specs, spec_count, &view) != OK) fail_msg("%s", fail_text());
  memcpy(key, view.key, 33);
  jit_close(j);
}

static void key_depends_on_every_input(void **state) {
  (void)state;
  enum { CASES = 10 };
  char keys[CASES][33], same[33];
  const char *source = probe_sources[0].text;
  char longer[512];
  snprintf(longer, sizeof longer, "%s ", source);
  const jit_spec value[] = {{"SPEC_VALUE", 38}};
  const jit_spec more[] = {{"SPEC_VALUE", 37}, {"SPEC_MORE", 0}};
  const jit_spec order[] = {{"SPEC_MORE", 0}, {"SPEC_VALUE", 37}};
  const kernel_source text[] = {{"probe.cu", longer}, {"probe.h", "#define PROBE 5u\n"}};
  const kernel_source header[] = {{"probe.cu", source}, {"probe.h", "#define PROBE 6u\n"}};
  const kernel_source added[] = {{"probe.cu", source}, {"probe.h", "#define PROBE 5u\n"}, {"more.h", ""}};
  const kernel_source shifted[] = {{"probe.cu", source}, {"probe.h", "#define PROBE 5u\n"}, {"more.", "h"}};
  const kernel_source renamed[] = {{"prove.cu", source}, {"probe.h", "#define PROBE 5u\n"}};
  key_of(PROBE_SOURCES, "probe", probe_spec, 1, keys[0]);
  key_of(PROBE_SOURCES, "probe", value, 1, keys[1]);
  key_of(PROBE_SOURCES, "probe", more, 2, keys[2]);
  key_of(PROBE_SOURCES, "probe", order, 2, keys[3]);
  key_of(text, ARRAY_LEN(text), "probe", probe_spec, 1, keys[4]);
  key_of(header, ARRAY_LEN(header), "probe", probe_spec, 1, keys[5]);
  key_of(added, ARRAY_LEN(added), "probe", probe_spec, 1, keys[6]);
  key_of(shifted, ARRAY_LEN(shifted), "probe", probe_spec, 1, keys[7]);
  key_of(renamed, ARRAY_LEN(renamed), "prove", probe_spec, 1, keys[8]);
  key_of(PROBE_SOURCES, "other", probe_spec, 1, keys[9]);
  for (size_t i = 0; i < CASES; i++)
    for (size_t k = i + 1; k < CASES; k++)
      if (!strcmp(keys[i], keys[k])) fail_msg("cases %zu and %zu have one key", i, k);
  key_of(PROBE_SOURCES, "probe", probe_spec, 1, same);
  assert_string_equal(same, keys[0]);
  const kernel_source fewer[] = {probe_sources[0], probe_sources[1]}; /* the sources of other kernels are no input */
  key_of(fewer, ARRAY_LEN(fewer), "probe", probe_spec, 1, same);
  assert_string_equal(same, keys[0]);
}

/* === Refusals ============================================================================================================== */

static void bad_requests_are_refused_by_name(void **state) {
  (void)state;
  const jit_spec bad[] = {{"VALUE", 1}, {"SPEC_value", 1}, {"SPEC_A 1\n#define SPEC_B", 1}, {"", 1},
                          {"SPEC_ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGH", 1}};
  jit *j = open_probe(NULL);
  jit_cubin_view view = {.size = 99};
  for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
    fail_clear();
    assert_int_equal(jit_compile(j, "probe", &bad[i], 1, &view), ERR_FORMAT);
    assert_non_null(strstr(fail_text(), "probe"));
  }
  jit_spec many[JIT_SPECS_MAX + 1];
  for (size_t i = 0; i < ARRAY_LEN(many); i++) many[i] = probe_spec[0];
  fail_clear();
  assert_int_equal(jit_compile(j, "probe", many, ARRAY_LEN(many), &view), ERR_FORMAT);
  fail_clear();
  assert_int_equal(jit_compile(j, "nothing", NULL, 0, &view), ERR_FORMAT);
  assert_non_null(strstr(fail_text(), "nothing.cu"));
  fail_clear();
  assert_int_equal(jit_compile(j, "probe.h", NULL, 0, &view), ERR_FORMAT);
  assert_int_equal(view.size, 99); /* outputs are untouched */
  jit_close(j);
}

static void compile_errors_carry_the_log(void **state) {
  (void)state;
  jit *j = open_probe(cache);
  jit_cubin_view view = {.size = 99};
  assert_int_equal(jit_compile(j, "wrong", NULL, 0, &view), ERR_DEVICE);
  assert_non_null(strstr(fail_text(), "undeclared_thing"));
  assert_non_null(strstr(fail_text(), "wrong.cu(1)"));
  assert_int_equal(view.size, 99);
  fail_clear();
  assert_int_equal(jit_compile(j, "probe", NULL, 0, &view), ERR_DEVICE); /* a missing constant is an error */
  assert_non_null(strstr(fail_text(), "SPEC_VALUE"));
  assert_int_equal(count_entries(), 0);
  jit_close(j);
}

/* === Many at once ========================================================================================================== */

#define MANY 12u

static void many_come_in_their_order(void **state) {
  (void)state;
  jit_spec specs[MANY];
  jit_request requests[MANY];
  jit_cubin_view all[MANY], one;
  for (uint32_t i = 0; i < MANY; i++) {
    specs[i] = (jit_spec){"SPEC_VALUE", 1000 + i};
    requests[i] = (jit_request){i % 4 == 3 ? "other" : "probe", &specs[i], 1};
  }
  jit *alone = open_probe(NULL), *j = open_probe(cache);
  for (int hit = 0; hit < 2; hit++) { /* compiled, then from the folder */
    assert_int_equal(jit_compile_all(j, requests, MANY, all), OK);
    for (uint32_t i = 0; i < MANY; i++) {
      assert_int_equal(all[i].from_cache, hit);
      assert_int_equal(jit_compile(alone, requests[i].kernel, requests[i].specs, 1, &one), OK);
      assert_int_equal(all[i].size, one.size);
      assert_memory_equal(all[i].bytes, one.bytes, one.size);
      assert_string_equal(all[i].key, one.key);
    }
    assert_int_equal(count_entries(), MANY);
    assert_string_equal(jit_note(j), "");
  }
  assert_int_equal(jit_compile_all(j, NULL, 0, all), OK);
  jit_close(j);
  jit_close(alone);
}

/* The error of whichever thread fails first. */
static void the_first_requests_error_is_reported(void **state) {
  (void)state;
  jit *j = open_probe(NULL);
  jit_cubin_view all[MANY] = {{.size = 99}};
  jit_spec none = {"SPEC_OTHER", 1};
  for (uint32_t wrong = 0; wrong + 1 < MANY; wrong++) {
    jit_request requests[MANY];
    for (uint32_t i = 0; i < MANY; i++) requests[i] = (jit_request){i > wrong ? "wrong" : "probe", probe_spec, 1};
    requests[wrong].specs = &none; /* its text takes longer to be refused than those of the others */
    fail_clear();
    assert_int_equal(jit_compile_all(j, requests, MANY, all), ERR_DEVICE);
    assert_non_null(strstr(fail_text(), "kernel probe"));
    assert_null(strstr(fail_text(), "undeclared_thing"));
    assert_int_equal(all[0].size, 99);
  }
  fail_clear();
  jit_close(j);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(second_use_is_a_hit_with_the_same_bytes, reset),
      cmocka_unit_test_setup(entry_holds_spec_and_source, reset),
      cmocka_unit_test_setup(truncated_entries_are_rebuilt, reset),
      cmocka_unit_test_setup(flipped_bits_are_noticed_everywhere, reset),
      cmocka_unit_test_setup(foreign_entries_are_replaced, reset),
      cmocka_unit_test_setup(cache_that_cannot_be_used_is_noted, reset),
      cmocka_unit_test_setup(processes_publish_without_disturbing_each_other, reset),
      cmocka_unit_test_setup(half_written_entries_are_never_published, reset),
      cmocka_unit_test_setup(key_depends_on_every_input, reset),
      cmocka_unit_test_setup(bad_requests_are_refused_by_name, reset),
      cmocka_unit_test_setup(compile_errors_carry_the_log, reset),
      cmocka_unit_test_setup(many_come_in_their_order, reset),
      cmocka_unit_test_setup(the_first_requests_error_is_reported, reset),
      cmocka_unit_test_setup(every_kernel_compiles_and_is_covered, reset),
  };
  return _cmocka_run_group_tests("tests", tests, ARRAY_LEN(tests) - LEFT_OUT, find_nvrtc, remove_folder);
}
