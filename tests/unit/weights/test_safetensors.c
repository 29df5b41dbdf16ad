/* test_safetensors.c - headers with every kind of damage, shards and their index, exhaustive truncations and bit flips. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "engine/base/digest.h"
#include "engine/weights/safetensors.h"

#define FILE_MAX 4096

typedef struct file_bytes {
  uint8_t bytes[FILE_MAX];
  size_t count;
} file_bytes;

/* A file of a header text and data_bytes bytes 0, 1, 2, ... */
static file_bytes make(const char *header, size_t data_bytes) {
  file_bytes f = {.count = 8 + strlen(header) + data_bytes};
  assert_true(f.count <= FILE_MAX);
  for (int i = 0; i < 8; i++) f.bytes[i] = (uint8_t)(strlen(header) >> (8 * i));
  memcpy(f.bytes + 8, header, strlen(header));
  for (size_t i = 0; i < data_bytes; i++) f.bytes[8 + strlen(header) + i] = (uint8_t)i;
  return f;
}

static const char SOUND[] =
  "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"
  "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"e\":{\"dtype\":\"I8\",\"shape\":[0,5],\"data_offsets\":[20,20]}}";

/* The status for a copy of exactly count bytes. */
static status view(const uint8_t *bytes, size_t count) {
  safetensors *set = NULL;
  uint8_t *copy = malloc(count ? count : 1);
  assert_non_null(copy);
  memcpy(copy, bytes, count);
  fail_clear();
  status result = safetensors_view(&set, copy, count);
  if (result == OK) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < safetensors_count(set); i++)
      for (uint64_t b = 0; b < safetensors_at(set, i)->bytes; b++) sum += safetensors_at(set, i)->data[b];
    assert_true(sum < UINT64_MAX);
    safetensors_close(set);
  } else assert_null(set);
  free(copy);
  return result;
}

static void sound(void **state) {
  (void)state;
  file_bytes f = make(SOUND, 20);
  safetensors *set;
  assert_int_equal(safetensors_view(&set, f.bytes, f.count), OK);
  assert_int_equal(safetensors_count(set), 3);
  const safetensor *b = safetensors_find(set, "b");
  assert_non_null(b);
  assert_string_equal(b->dtype, "BF16");
  assert_int_equal(b->rank, 2);
  assert_int_equal(b->shape[1], 3);
  assert_int_equal(b->bytes, 12);
  assert_int_equal(b->data[0], 8);
  assert_string_equal(safetensors_at(set, 0)->name, "a");
  assert_null(safetensors_find(set, "c"));
  assert_null(safetensors_find(set, "__metadata__"));
  safetensors_close(set);
}

static void damaged_headers(void **state) {
  (void)state;
  static const struct { const char *header; size_t data; const char *word; } cases[] = {
    {"", 0, "JSON"}, {"[]", 0, "object"}, {"{\"a\":1}", 0, "exactly"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "truncated"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, "belong to no tensor"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, "make 12 bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "do not lie"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "0 or more"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8, "0 or more"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, "shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", 8, "shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, "two data_offsets"},
    {"{\"a\":{\"dtype\":\"Q4\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "unknown dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8, "exactly"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,8]}}", 8, "overflows"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,8]}}", 8, "JSON"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}", 6, "overlaps"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}", 12, "hole"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "JSON"},
    {"{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "JSON"},
  };
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    file_bytes f = make(cases[i].header, cases[i].data);
    status result = view(f.bytes, f.count);
    if (result == OK || !strstr(fail_text(), cases[i].word))
      fail_msg("case %zu: expected \"%s\" in \"%s\"", i, cases[i].word, fail_text());
  }
}

static void header_sizes(void **state) {
  (void)state;
  file_bytes f = make(SOUND, 20);
  for (int shift = 0; shift < 64; shift++) {
    file_bytes g = f;
    uint64_t size = (strlen(SOUND) & 0xff) ^ (1ull << shift);
    for (int i = 0; i < 8; i++) g.bytes[i] = (uint8_t)(size >> (8 * i));
    assert_int_not_equal(view(g.bytes, g.count), OK);
  }
}

static void every_cut(void **state) {
  (void)state;
  file_bytes f = make(SOUND, 20);
  assert_int_equal(view(f.bytes, f.count), OK);
  for (size_t cut = 0; cut < f.count; cut++) assert_int_not_equal(view(f.bytes, cut), OK);
}

/* Every bit of header and sizes: an error or another valid set, never a read outside the copy. */
static void every_flip(void **state) {
  (void)state;
  file_bytes f = make(SOUND, 20);
  uint32_t refused = 0;
  for (size_t bit = 0; bit < 8 * (f.count - 20); bit++) {
    f.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    refused += view(f.bytes, f.count) != OK;
    f.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
  }
  assert_true(refused > 4 * f.count);
}

static void deep_nesting(void **state) {
  (void)state;
  char header[3000];
  memset(header, '[', sizeof header - 1);
  header[sizeof header - 1] = 0;
  file_bytes f = make(header, 0);
  assert_int_not_equal(view(f.bytes, f.count), OK);
}

/* === Folders ================================================================================================================ */

static char folder[256];

static void put(const char *name, const void *bytes, size_t count) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  fclose(file);
}

static void drop(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  unlink(path);
}

static status open_folder(void) {
  safetensors *set = NULL;
  fail_clear();
  status result = safetensors_open(&set, folder);
  safetensors_close(set);
  return result;
}

static void expect_index(const char *index, const char *word) {
  put("model.safetensors.index.json", index, strlen(index));
  status result = open_folder();
  if (!word ? result != OK : result == OK || !strstr(fail_text(), word))
    fail_msg("%s: expected \"%s\" in \"%s\"", index, word, fail_text());
}

static void shards(void **state) {
  (void)state;
  file_bytes one = make("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
  file_bytes two = make("{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
  snprintf(folder, sizeof folder, "/tmp/verbatim-safetensors-%ld", (long)getpid());
  assert_int_equal(mkdir(folder, 0700), 0);
  assert_int_equal(open_folder(), ERR_IO);
  put("model.safetensors", one.bytes, one.count);
  assert_int_equal(open_folder(), OK);
  put("1.safetensors", one.bytes, one.count);
  put("2.safetensors", two.bytes, two.count);
  expect_index("{\"metadata\":{},\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}", NULL);
  expect_index("{\"weight_map\":{\"a\":\"2.safetensors\",\"b\":\"1.safetensors\"}}", "is not in");
  expect_index("{\"weight_map\":{\"a\":\"1.safetensors\",\"c\":\"2.safetensors\"}}", "is not in");
  expect_index("{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"3.safetensors\"}}", "3.safetensors");
  expect_index("{\"weight_map\":{\"a\":\"../1.safetensors\"}}", "plain name");
  expect_index("{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "plain name");
  expect_index("{\"weight_map\":{\"a\":1}}", "plain name");
  expect_index("{\"weight_map\":{}}", "weight_map");
  expect_index("{\"metadata\":{}}", "weight_map");
  expect_index("{\"weight_map\"", "not JSON");
  put("2.safetensors", one.bytes, one.count);
  expect_index("{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}", "two files, 1.safetensors and 2.safetensors");
  static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n";
  put("2.safetensors", pointer, sizeof pointer - 1);
  expect_index("{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}",
               "2.safetensors: expected weights, found a git-lfs pointer");
  put("2.safetensors", two.bytes, two.count - 1);
  expect_index("{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}", "2.safetensors");
  drop("model.safetensors.index.json");
  drop("model.safetensors");
  drop("1.safetensors");
  drop("2.safetensors");
  assert_int_equal(rmdir(folder), 0);
}

/* An index may begin with a byte order mark; a folder of shards alone says that its index is missing. */
static void shards_without_index_are_named(void **state) {
  (void)state;
  static const char index[] = "\xEF\xBB\xBF{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\"}}";
  file_bytes model = make("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
  snprintf(folder, sizeof folder, "/tmp/verbatim-safetensors-%ld", (long)getpid());
  assert_int_equal(mkdir(folder, 0700), 0);
  assert_int_equal(open_folder(), ERR_IO);
  assert_non_null(strstr(fail_text(), "model.safetensors")); /* the control: an empty folder */
  put("model-00002-of-00002.safetensors", model.bytes, model.count);
  put("model-00001-of-00002.safetensors", model.bytes, model.count);
  assert_int_equal(open_folder(), ERR_FORMAT);
  assert_non_null(strstr(fail_text(), "found 2 shards without it (model-00001-of-00002.safetensors)"));
  put("model.safetensors.index.json", index, sizeof index - 1);
  if (open_folder() != OK) fail_msg("%s", fail_text());
  drop("model.safetensors.index.json");
  drop("model-00001-of-00002.safetensors");
  drop("model-00002-of-00002.safetensors");
  assert_int_equal(rmdir(folder), 0);
}

/* Taken for an absent file, an index that is a link to nothing would let a stale model.safetensors be loaded. */
static void a_link_that_leads_nowhere_is_no_absent_file(void **state) {
  (void)state;
  static const char *const names[] = {"model.safetensors.index.json", SAFETENSORS_KV_SCALES};
  file_bytes model = make("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
  snprintf(folder, sizeof folder, "/tmp/verbatim-safetensors-%ld", (long)getpid());
  assert_int_equal(mkdir(folder, 0700), 0);
  put("model.safetensors", model.bytes, model.count);
  assert_int_equal(open_folder(), OK); /* the control: absent files are none */
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    assert_int_equal(symlink("/nowhere/at/all", path), 0);
    assert_int_equal(open_folder(), ERR_IO);
    assert_non_null(strstr(fail_text(), names[i]));
    drop(names[i]);
  }
  drop("model.safetensors");
  assert_int_equal(rmdir(folder), 0);
}

/* Scales of a KV cache in a file of their own are read once, with either form of a folder. */
static void scales_lie_beside_the_model(void **state) {
  (void)state;
  file_bytes model = make("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
  file_bytes scales = make("{\"__metadata__\":{\"b\":\"c\"},\"k_scale\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
  safetensors *set = NULL;
  snprintf(folder, sizeof folder, "/tmp/verbatim-safetensors-%ld", (long)getpid());
  assert_int_equal(mkdir(folder, 0700), 0);
  put("model.safetensors", model.bytes, model.count);
  put(SAFETENSORS_KV_SCALES, scales.bytes, scales.count);
  for (uint32_t form = 0; form < 3; form++) {
    static const char *const INDICES[] = {NULL, "{\"weight_map\":{\"a\":\"model.safetensors\"}}",
                                          "{\"weight_map\":{\"a\":\"model.safetensors\",\"k_scale\":\"kv_scales.safetensors\"}}"};
    if (INDICES[form]) put("model.safetensors.index.json", INDICES[form], strlen(INDICES[form]));
    if (safetensors_open(&set, folder) != OK) fail_msg("form %u: %s", form, fail_text());
    assert_int_equal(safetensors_count(set), 2);
    assert_non_null(safetensors_find(set, "k_scale"));
    safetensors_close(set);
  }
  drop("model.safetensors.index.json");
  put(SAFETENSORS_KV_SCALES, scales.bytes, scales.count - 1);
  assert_int_equal(open_folder(), ERR_FORMAT);
  assert_non_null(strstr(fail_text(), SAFETENSORS_KV_SCALES));
  put(SAFETENSORS_KV_SCALES, model.bytes, model.count);
  assert_int_equal(open_folder(), ERR_FORMAT);
  assert_non_null(strstr(fail_text(), "a is in two files"));
  drop(SAFETENSORS_KV_SCALES);
  drop("model.safetensors");
  assert_int_equal(rmdir(folder), 0);
}

/* Experts stored in one tensor are listed one by one, each with its own bytes. */
static void stacked_experts(void **state) {
  (void)state;
  static const char HEADER[] = "{\"m.mlp.experts.gate_up_proj\":{\"dtype\":\"BF16\",\"shape\":[2,4,3],\"data_offsets\":[0,48]},"
                               "\"m.mlp.experts.down_proj\":{\"dtype\":\"BF16\",\"shape\":[2,3,2],\"data_offsets\":[48,72]},"
                               "\"m.mlp.shared_experts.gate_up_proj\":{\"dtype\":\"I8\",\"shape\":[1,2,1],\"data_offsets\":[72,74]}}";
  static const struct {
    const char *name;
    uint64_t rows, cols, first;
  } PARTS[] = {{"m.mlp.experts.0.gate_proj.weight", 2, 3, 0}, {"m.mlp.experts.0.up_proj.weight", 2, 3, 12},
               {"m.mlp.experts.1.gate_proj.weight", 2, 3, 24}, {"m.mlp.experts.1.up_proj.weight", 2, 3, 36},
               {"m.mlp.experts.0.down_proj.weight", 3, 2, 48}, {"m.mlp.experts.1.down_proj.weight", 3, 2, 60}};
  file_bytes f = make(HEADER, 74);
  safetensors *set;
  assert_int_equal(safetensors_view(&set, f.bytes, f.count), OK);
  assert_int_equal(safetensors_count(set), 7);
  for (size_t i = 0; i < ARRAY_LEN(PARTS); i++) {
    const safetensor *part = safetensors_find(set, PARTS[i].name);
    uint8_t last = 0;
    if (!part) fail_msg("no tensor %s", PARTS[i].name);
    assert_int_equal(part->rank, 2);
    assert_int_equal(part->shape[0], PARTS[i].rows);
    assert_int_equal(part->shape[1], PARTS[i].cols);
    assert_int_equal(part->bytes, 12);
    assert_int_equal(part->data[0], PARTS[i].first);
    assert_int_equal(safetensors_read(set, part, 11, &last, 1), OK);
    assert_int_equal(last, PARTS[i].first + 11);
  }
  assert_non_null(safetensors_find(set, "m.mlp.shared_experts.gate_up_proj"));
  assert_null(safetensors_find(set, "m.mlp.experts.gate_up_proj"));
  for (uint32_t i = 1; i < safetensors_count(set); i++)
    assert_true(strcmp(safetensors_at(set, i - 1)->name, safetensors_at(set, i)->name) < 0);
  safetensors_close(set);
}

/* A tensor that is not a stack of experts stays as it is; a name that occurs twice because of this is an error. */
static void other_shapes_are_not_stacks(void **state) {
  (void)state;
  static const char *const SHAPES[] = {"[2,4]", "[2,3,0]", "[0,4,3]", "[513,4,0]", "[2,2,2,0]"};
  for (size_t i = 0; i < ARRAY_LEN(SHAPES); i++) {
    char header[256];
    uint32_t bytes = i == 0 ? 8 : 0;
    snprintf(header, sizeof header, "{\"x.experts.gate_up_proj\":{\"dtype\":\"I8\",\"shape\":%s,\"data_offsets\":[0,%u]}}", SHAPES[i],
             bytes);
    file_bytes f = make(header, bytes);
    safetensors *set;
    assert_int_equal(safetensors_view(&set, f.bytes, f.count), OK);
    assert_int_equal(safetensors_count(set), 1);
    assert_non_null(safetensors_find(set, "x.experts.gate_up_proj"));
    safetensors_close(set);
  }
  file_bytes twice = make("{\"x.experts.down_proj\":{\"dtype\":\"I8\",\"shape\":[1,2,2],\"data_offsets\":[0,4]},"
                          "\"x.experts.0.down_proj.weight\":{\"dtype\":\"I8\",\"shape\":[2,2],\"data_offsets\":[4,8]}}", 8);
  assert_int_equal(view(twice.bytes, twice.count), ERR_FORMAT);
  assert_non_null(strstr(fail_text(), "x.experts.0.down_proj.weight"));
}

/* Data whose digest the header states: every flipped bit and every cut is refused, or leaves the same numbers under the same names. */
static void stated_data_are_checked(void **state) {
  (void)state;
  char header[512], text[DIGEST_TEXT_BYTES];
  const uint8_t data[8] = {0, 1, 2, 3, 4, 5, 6, 7}; /* as `make` writes them */
  const digest stated = digest_of(data, sizeof data);
  snprintf(header, sizeof header, "{\"__metadata__\":{\"made_by\":\"x\",\"" SAFETENSORS_DATA_DIGEST "\":\"%s\"},"
           "\"layers.0.k_scale\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
           "\"layers.1.k_scale\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
           digest_text(stated.bytes, text));
  file_bytes f = make(header, sizeof data);
  assert_int_equal(view(f.bytes, f.count), OK);
  uint32_t accepted = 0;
  for (size_t bit = 0; bit < 8 * f.count; bit++) {
    safetensors *set = NULL;
    f.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    fail_clear();
    if (safetensors_view(&set, f.bytes, f.count) == OK) {
      const safetensor *first = safetensors_find(set, "layers.0.k_scale"), *second = safetensors_find(set, "layers.1.k_scale");
      accepted++;
      if (first) assert_memory_equal(first->data, data, 4); /* another name is a scale that is missing, which is refused by name */
      if (second) assert_memory_equal(second->data, data + 4, 4);
      safetensors_close(set);
    }
    f.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
  }
  assert_true(accepted > 0); /* the control: the other texts of the header */
  for (size_t count = 0; count < f.count; count++) assert_int_not_equal(view(f.bytes, count), OK);
  f.bytes[f.count - 1] ^= 1;
  assert_int_equal(view(f.bytes, f.count), ERR_MISMATCH);
  assert_non_null(strstr(fail_text(), "do not have the digest"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sound), cmocka_unit_test(damaged_headers), cmocka_unit_test(header_sizes),
                                     cmocka_unit_test(every_cut), cmocka_unit_test(every_flip), cmocka_unit_test(deep_nesting),
                                     cmocka_unit_test(shards), cmocka_unit_test(shards_without_index_are_named),
                                     cmocka_unit_test(a_link_that_leads_nowhere_is_no_absent_file),
                                     cmocka_unit_test(scales_lie_beside_the_model), cmocka_unit_test(stacked_experts),
                                     cmocka_unit_test(stated_data_are_checked),
                                     cmocka_unit_test(other_shapes_are_not_stacks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
