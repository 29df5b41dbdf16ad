/* fuzz_eval_manifest.c - manifests of evaluations. An accepted manifest is accepted again when it is written out in another form, its
 * embedded files match the digests next to them, and it has no difference from itself. */
#include "engine/eval/manifest.h"
#include "fuzz.h"

static void check_file(const json_t *manifest, uint32_t task, const char *which) {
  eval_manifest_file file = eval_manifest_file_of(manifest, task, which);
  if (!file.name || !file.text) return;
  digest found = digest_of(file.text, file.bytes);
  ASSERT(memcmp(&found, &file.digest, sizeof found) == 0);
}

static void check_again(const json_t *manifest) {
  char difference[EVAL_MANIFEST_DIFFERENCE_BYTES], *text = json_dumps(manifest, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
  json_t *again = NULL;
  ASSERT(text != NULL);
  ASSERT(eval_manifest_parse(text, strlen(text), &again) == OK);
  ASSERT(!eval_manifest_difference(manifest, again, difference));
  json_decref(again);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  json_t *manifest = NULL;
  fail_clear();
  if (!fuzz_is_ok(eval_manifest_parse((const char *)data, bytes, &manifest))) {
    ASSERT(manifest == NULL);
    return 0;
  }
  for (uint32_t i = 0; i < eval_manifest_task_count(manifest); i++) {
    check_file(manifest, i, "file");
    check_file(manifest, i, "items");
    check_file(manifest, i, "shots");
  }
  check_again(manifest);
  json_decref(manifest);
  return 0;
}
