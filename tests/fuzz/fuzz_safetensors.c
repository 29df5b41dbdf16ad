/* fuzz_safetensors.c - safetensors_view on any bytes; the tensors of an accepted file are read whole. */
#include "engine/safetensors.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  safetensors *set = NULL;
  uint8_t *copy = malloc(bytes ? bytes : 1);
  if (!copy) return 0;
  memcpy(copy, data, bytes);
  fail_clear();
  if (safetensors_view(&set, copy, bytes) == OK) {
    volatile uint64_t sum = 0;
    for (uint32_t i = 0; i < safetensors_count(set); i++) {
      const safetensor *t = safetensors_at(set, i);
      if (safetensors_find(set, t->name) != t) abort();
      for (uint64_t b = 0; b < t->bytes; b++) sum = sum + t->data[b];
      if (sum == UINT64_MAX) abort();
    }
    safetensors_close(set);
  }
  free(copy);
  return 0;
}
