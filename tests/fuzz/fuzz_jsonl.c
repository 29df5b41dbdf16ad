/* fuzz_jsonl.c - items_add_json on any line. */
#include "engine/items.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static const item_params defaults = {.max_tokens = 1, .top_p = 1.0};
  items list = {0};
  char *copy = malloc(bytes ? bytes : 1);
  if (!copy) return 0;
  memcpy(copy, data, bytes);
  fail_clear();
  if (items_add_json(&list, copy, bytes, 1, &defaults) == OK && (list.count != 1 || !list.list[0].id)) abort();
  items_close(&list);
  free(copy);
  return 0;
}
