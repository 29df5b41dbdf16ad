/* fuzz_plan.c - plan_view on any bytes. Half of the inputs get a correct size and digest first, so that the checks behind these two are
 * reached; an accepted view is read the way the engine reads it. */
#include "engine/digest.h"
#include "engine/plan.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void sign(uint8_t *copy, size_t bytes) {
  plan_header *h = (plan_header *)(void *)copy;
  h->file_bytes = bytes;
  memset(h->digest, 0, sizeof h->digest);
  digest d = digest_of(copy, bytes);
  memcpy(h->digest, d.bytes, sizeof h->digest);
}

static uint64_t walk(const plan *p) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < p->tensor_count; i++) sum += strlen(plan_string(p, p->tensors[i].name)) + plan_tensor_bytes(&p->tensors[i]);
  for (uint32_t i = 0; i < p->op_count; i++) {
    const plan_op *op = &p->ops[i];
    sum += strlen(plan_string(p, op->name)) + plan_extent(&op->grid[0], 7);
    for (uint32_t b = 0; b < op->args_bytes; b++) sum += p->args[op->args_offset + b];
    for (uint32_t f = 0; f < op->fixup_count; f++) sum += p->fixups[op->first_fixup + f].offset;
    for (uint32_t g = 0; g < op->gemm_count; g++) sum += p->gemms[op->first_gemm + g].algo[7];
  }
  return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  plan view;
  uint8_t *copy = malloc(bytes ? bytes : 1);
  if (!copy) return 0;
  memcpy(copy, data, bytes);
  if (bytes >= sizeof(plan_header) && bytes % 2 == 0) sign(copy, bytes);
  fail_clear();
  volatile uint64_t sum = 0;
  if (plan_view(copy, bytes, &view) == OK) sum = walk(&view);
  (void)sum;
  free(copy);
  return 0;
}
