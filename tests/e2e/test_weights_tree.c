/* test_weights_tree.c - the weights digest tensor by tensor: its root is that of the engine and of a receipt; a flipped bit changes the
 * leaf of its tensor and the root, and nothing else. The control is the folder itself: read again, in another form, no line differs. */
#include "tests/unit/unit.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "e2e.h"
#include "engine/plan/plan.h"
#include "engine/weights/tree.h"

#define TEXT_BYTES (1u << 16)

static e2e_model model;
static char program[E2E_PATH_MAX];
static plan view;

static char *arg(const char *text) { return (char *)(uintptr_t)text; }

/* The output of `verbatim digest`, and its exit code. */
static int run(const char *model_dir, const char *option, char *text) {
  char *argv[] = {program, arg("digest"), model.plan_path, arg(model_dir), arg(option), NULL};
  return e2e_command(argv, text, TEXT_BYTES);
}

static weights_tree read_tree(uint32_t threads) {
  weights_tree tree;
  if (weights_tree_open(&tree, &view, model.model_dir, threads, true, NULL, NULL) != OK) fail_msg("%s", fail_text());
  return tree;
}

static void the_root_is_the_engines(void **state) {
  (void)state;
  verbatim *engine = NULL;
  const verbatim_config config = {.plan_path = model.plan_path, .model_dir = model.model_dir, .device = e2e_device(), .threads = 1};
  weights_tree tree = read_tree(0);
  if (verbatim_open(&engine, &config) != 0) fail_msg("%s", verbatim_error());
  verbatim_info info = verbatim_describe(engine);
  assert_memory_equal(tree.root.bytes, info.weights_digest, sizeof info.weights_digest);
  verbatim_close(engine);
  for (uint32_t threads = 1; threads <= 3; threads++) {
    weights_tree again = read_tree(threads);
    assert_int_equal(again.count, tree.count);
    assert_memory_equal(again.root.bytes, tree.root.bytes, DIGEST_BYTES);
    for (uint32_t i = 0; i < tree.count; i++) assert_memory_equal(again.leaves[i].data.bytes, tree.leaves[i].data.bytes, DIGEST_BYTES);
    weights_tree_close(&again);
  }
  weights_tree_close(&tree);
}

/* RECEIPTS.md, "Weights digest", computed independently: for each tensor its name, dtype, rank, shape and the digest of its bytes in the
 * file. */
static void leaves_and_root_are_as_defined(void **state) {
  (void)state;
  weights_tree tree = read_tree(2);
  digest_state root;
  digest_start(&root);
  uint32_t next = 0; /* the plan's tensors, each name once, in their order */
  for (uint32_t i = 0; i < tree.count; i++, next++) {
    const weights_tree_leaf *leaf = &tree.leaves[i];
    while (i > 0 && strcmp(plan_string(&view, view.tensors[next].name), leaf->name) != 0) {
      bool is_known = false;
      for (uint32_t k = 0; k < i; k++) is_known |= strcmp(plan_string(&view, view.tensors[next].name), tree.leaves[k].name) == 0;
      assert_true(is_known);
      assert_true(++next < view.tensor_count);
    }
    digest data = digest_of(leaf->tensor->data, leaf->tensor->bytes);
    assert_memory_equal(leaf->data.bytes, data.bytes, DIGEST_BYTES);
    digest_add(&root, leaf->name, strlen(leaf->name) + 1);
    digest_add(&root, leaf->tensor->dtype, strlen(leaf->tensor->dtype) + 1);
    digest_add(&root, &leaf->tensor->rank, sizeof leaf->tensor->rank);
    digest_add(&root, leaf->tensor->shape, leaf->tensor->rank * sizeof leaf->tensor->shape[0]);
    digest_add(&root, data.bytes, DIGEST_BYTES);
  }
  digest expected = digest_end(&root);
  assert_memory_equal(tree.root.bytes, expected.bytes, DIGEST_BYTES);
  assert_true(tree.count > 20 && tree.count < view.tensor_count); /* some sources become several tensors */
  weights_tree_close(&tree);
}

static void put(const char *path, const void *bytes, size_t count) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  assert_int_equal(fclose(file), 0);
}

/* RECEIPTS.md, "SHA-256", as a reviewer computes it: sha256sum over the lines, sorted as bytes, is the last line; a leaf is sha256sum of
 * the tensor's bytes. Neither is computed by this program. */
static void sha256sum_gives_the_same(void **state) {
  (void)state;
  static char text[TEXT_BYTES], out[TEXT_BYTES];
  char lines[E2E_PATH_MAX + 16], data[E2E_PATH_MAX + 16], command[3 * E2E_PATH_MAX];
  char *shell[] = {arg("/bin/sh"), arg("-c"), command, NULL};
  assert_int_equal(run(model.model_dir, "--sha256", text), 0);
  char *root = strstr(text, "  weights\n") - 64;
  snprintf(lines, sizeof lines, "%s/lines", model.folder);
  snprintf(data, sizeof data, "%s/data", model.folder);
  put(lines, text, (size_t)(root - text));
  snprintf(command, sizeof command, "LC_ALL=C sort -c -k 4 %s && sha256sum < %s", lines, lines); /* no tensor here is a single number */
  assert_int_equal(e2e_command(shell, out, sizeof out), 0);
  assert_memory_equal(out, root, 64);
  weights_tree tree = read_tree(0);
  char strong[SHA256_TEXT_BYTES], engines[SHA256_TEXT_BYTES], expected[512];
  for (uint32_t i = 0; i < tree.count; i += tree.count / 3) {
    const weights_tree_leaf *leaf = &tree.leaves[i];
    put(data, leaf->tensor->data, leaf->tensor->bytes);
    snprintf(command, sizeof command, "sha256sum < %s", data);
    assert_int_equal(e2e_command(shell, out, sizeof out), 0);
    assert_memory_equal(out, sha256_text(leaf->strong.bytes, strong), 64);
    snprintf(expected, sizeof expected, "%s  %s [", strong, leaf->tensor->dtype);
    assert_non_null(strstr(text, expected));
  }
  verbatim *engine = NULL;
  verbatim_config config = {.plan_path = model.plan_path, .model_dir = model.model_dir, .device = e2e_device(), .threads = 1};
  for (int asked = 0; asked < 2; asked++) {
    config.sha256 = asked;
    if (verbatim_open(&engine, &config) != 0) fail_msg("%s", verbatim_error());
    verbatim_info info = verbatim_describe(engine);
    if (asked) assert_memory_equal(sha256_text(info.weights_sha256, engines), root, 64);
    else assert_true(sha256_is_none(info.weights_sha256));
    assert_memory_equal(info.weights_digest, tree.root.bytes, DIGEST_BYTES);
    verbatim_close(engine);
  }
  weights_tree_close(&tree);
}

/* The same leaves if tensors are larger than the read buffer. */
static void large_tensors_are_read_to_their_ends(void **state) {
  (void)state;
  static char text[TEXT_BYTES];
  char path[E2E_PATH_MAX + 16];
  snprintf(path, sizeof path, "%s/shipped.plan", model.folder);
  char *argv[] = {program, arg("plan"), arg("tests/tiny"), arg("--config"), arg("tests/tiny/deploy.yaml"), arg("-o"), path, NULL};
  assert_int_equal(e2e_command(argv, text, sizeof text), 0);
  plan shipped;
  weights_tree tree;
  uint64_t most = 0;
  assert_int_equal(plan_open(&shipped, path), OK);
  assert_int_equal(weights_tree_open(&tree, &shipped, "tests/tiny", 2, false, NULL, NULL), OK);
  for (uint32_t i = 0; i < tree.count; i++) {
    const safetensor *t = tree.leaves[i].tensor;
    digest data = digest_of(t->data, t->bytes);
    assert_memory_equal(tree.leaves[i].data.bytes, data.bytes, DIGEST_BYTES);
    if (t->bytes > most) most = t->bytes;
  }
  assert_true(most > 256u << 10);
  weights_tree_close(&tree);
  plan_close(&shipped);
}

/* Both forms of the output have the tree; the text ends with the root. */
static void text_and_json_agree(void **state) {
  (void)state;
  static char text[TEXT_BYTES], raw[TEXT_BYTES];
  weights_tree tree = read_tree(0);
  assert_int_equal(run(model.model_dir, "--quiet", text), 0);
  assert_int_equal(run(model.model_dir, "--json", raw), 0);
  json_t *object = json_loads(raw, JSON_REJECT_DUPLICATES, NULL);
  const json_t *tensors = json_object_get(object, "tensors");
  char digits[DIGEST_TEXT_BYTES], *line = text;
  assert_int_equal(json_array_size(tensors), tree.count);
  for (uint32_t i = 0; i < tree.count; i++) {
    const weights_tree_leaf *leaf = &tree.leaves[i];
    const json_t *entry = json_array_get(tensors, i), *shape = json_object_get(entry, "shape");
    digest_text(leaf->data.bytes, digits);
    assert_string_equal(json_string_value(json_object_get(entry, "name")), leaf->name);
    assert_string_equal(json_string_value(json_object_get(entry, "digest")), digits);
    assert_string_equal(json_string_value(json_object_get(entry, "dtype")), leaf->tensor->dtype);
    assert_int_equal(json_array_size(shape), leaf->tensor->rank);
    for (uint32_t k = 0; k < leaf->tensor->rank; k++)
      assert_int_equal(json_integer_value(json_array_get(shape, k)), leaf->tensor->shape[k]);
    char *end = strchr(line, '\n');
    assert_non_null(end);
    *end = 0;
    assert_memory_equal(line, digits, 32);
    assert_string_equal(strrchr(line, ' ') + 1, leaf->name);
    line = end + 1;
  }
  digest_text(tree.root.bytes, digits);
  assert_memory_equal(line, digits, 32);
  assert_string_equal(line + 32, "  weights\n");
  assert_string_equal(json_string_value(json_object_get(object, "weights")), digits);
  json_decref(object);
  weights_tree_close(&tree);
}

static void flip(uint64_t at, uint8_t bit) {
  char path[E2E_PATH_MAX + 32];
  snprintf(path, sizeof path, "%s/model.safetensors", model.model_dir);
  FILE *file = fopen(path, "r+b");
  assert_non_null(file);
  assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
  int byte = fgetc(file);
  assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
  assert_int_equal(fputc(byte ^ bit, file), byte ^ bit);
  assert_int_equal(fclose(file), 0);
}

/* The number of lines in which two outputs differ, and the name in the first of them. */
static uint32_t count_differences(const char *a, const char *b, char name[256]) {
  uint32_t count = 0;
  for (; *a && *b; a = strchr(a, '\n') + 1, b = strchr(b, '\n') + 1) {
    size_t a_bytes = strcspn(a, "\n"), b_bytes = strcspn(b, "\n");
    if (a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0) continue;
    if (count++ > 0) continue;
    size_t from = a_bytes;
    while (a[from - 1] != ' ') from--;
    snprintf(name, 256, "%.*s", (int)(a_bytes - from), a + from);
  }
  return *a || *b ? UINT32_MAX : count;
}

static void a_flipped_bit_changes_one_leaf_and_the_root(void **state) {
  (void)state;
  static char before[TEXT_BYTES], after[TEXT_BYTES];
  char name[256] = "";
  assert_int_equal(run(model.model_dir, "--quiet", before), 0);
  assert_int_equal(run(model.model_dir, "--quiet", after), 0);
  assert_int_equal(count_differences(before, after, name), 0);
  weights_tree tree = read_tree(0);
  uint64_t header = 0;
  char path[E2E_PATH_MAX + 32];
  snprintf(path, sizeof path, "%s/model.safetensors", model.model_dir);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  assert_int_equal(fread(&header, sizeof header, 1, file), 1);
  fclose(file);
  const uint8_t *start = tree.leaves[0].tensor->data; /* of the data: every tensor of the file is used */
  for (uint32_t i = 0; i < tree.count; i++)
    if (tree.leaves[i].tensor->data < start) start = tree.leaves[i].tensor->data;
  for (uint32_t i = 0; i < tree.count; i += 1 + tree.count / 6) {
    const safetensor *t = tree.leaves[i].tensor;
    uint64_t at = sizeof header + header + (uint64_t)(t->data - start) + (i % 2 ? t->bytes - 1 : t->bytes / 2);
    char expected[256];
    snprintf(expected, sizeof expected, "%s", tree.leaves[i].name);
    flip(at, (uint8_t)(1u << i % 8));
    assert_int_equal(run(model.model_dir, "--quiet", after), 0);
    flip(at, (uint8_t)(1u << i % 8));
    assert_int_equal(count_differences(before, after, name), 2);
    assert_string_equal(name, expected);
    assert_memory_not_equal(strstr(before, "  weights\n") - 32, strstr(after, "  weights\n") - 32, 32);
  }
  weights_tree_close(&tree);
}

static void expect_error(const char *model_dir, const char *option, int code, const char *word) {
  static char text[TEXT_BYTES];
  int found = run(model_dir, option, text);
  if (found != code || strncmp(text, "verbatim: ", 10) != 0 || !strstr(text, word))
    fail_msg("expected %d and \"%s\", found %d and \"%s\"", code, word, found, text);
}

static void refused(void **state) {
  (void)state;
  expect_error(model.model_dir, "--frobnicate", 2, "unknown option");
  expect_error(model.model_dir, "third", 2, "found 3 words");
  expect_error("tests/unit", "--quiet", 3, "model.safetensors");
  expect_error("tests/tiny", "--quiet", 4, "expected BF16"); /* another model's */
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_root_is_the_engines), cmocka_unit_test(leaves_and_root_are_as_defined),
    cmocka_unit_test(sha256sum_gives_the_same),
    cmocka_unit_test(large_tensors_are_read_to_their_ends), cmocka_unit_test(text_and_json_agree),
    cmocka_unit_test(a_flipped_bit_changes_one_leaf_and_the_root), cmocka_unit_test(refused)};
  e2e_begin(argc, argv);
  e2e_binary("verbatim", program);
  e2e_make_model(&model, "tests/oracle/small-v3.json",
                 "max-num-seqs: 2\nmax-num-batched-tokens: 64\nmax-model-len: 64\nkv_pages: 2\nchunk_tokens: 64\n"
                 "group_chunks: 2\nladder: [1, 2]\n");
  if (plan_open(&view, model.plan_path) != OK) return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  plan_close(&view);
  e2e_remove(&model);
  return failed;
}
