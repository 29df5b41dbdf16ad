/* fuzz_plan.c - plan files. A plan that plan_view accepts is read everywhere the engine and `verbatim show` read it; one that the checker
 * also accepts is run. Mutations start from plans that are made here, so that no seed becomes outdated with the format; most of them
 * correct the digest of the mutated plan, and half of those the numerics id. */
#include "engine/plan/plan.h"
#include "fuzz.h"
#include "planner/checks/check.h"
#include "planner/emit.h"
#include "planner/planner.h"
#include "planner/print.h"
#include "tests/fuzz/plan_walk.h"

#define FRESH_EVERY 64u /* one mutation in this many starts from a new plan */

static const char *const CONFIGS[] = {"tests/data/configs/smallest.json", "tests/fuzz/seeds/config/dense.json"};
static const char *const DEPLOYS[] = {"{max-num-seqs: 2, max-num-batched-tokens: 4, max-model-len: 128, kv_pages: 3, chunk_tokens: 64}",
                                      "{max-num-seqs: 3, max-num-batched-tokens: 8, max-model-len: 64, ladder: [1, 3]}"};

/* Writes a sound plan to data; returns its bytes, or 0 if there is no room. */
static size_t make(uint8_t *data, size_t room, unsigned seed) {
  const char *deploy = DEPLOYS[seed / 2 % ARRAY_LEN(DEPLOYS)];
  fuzz_text config = fuzz_read(CONFIGS[seed % ARRAY_LEN(CONFIGS)]);
  const planner_input input = {.config = {config.text, config.bytes}, .deploy = {deploy, strlen(deploy)}};
  void *made = NULL;
  size_t bytes = 0;
  ASSERT(planner_make(&input, &made, &bytes) == OK);
  if (bytes <= room) memcpy(data, made, bytes);
  free(made);
  free(config.text);
  return bytes <= room ? bytes : 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t room, unsigned seed) {
  size_t made = seed % FRESH_EVERY == 0 || bytes < sizeof(plan_header) ? make(data, room, seed / FRESH_EVERY) : 0;
  bytes = LLVMFuzzerMutate(data, made ? made : bytes, room);
  if (bytes < sizeof(plan_header) || seed % 4 == 0) return bytes;
  plan_header *h = (plan_header *)(void *)data;
  if (seed % 2) emit_numerics_id(&h->model, &h->quant, &h->grouped, &h->limits, h->numerics_id);
  plan_walk_seal(data, bytes);
  return bytes;
}

/* Reads everything that plan_view promises to be valid. */
static uint64_t follow(const plan *p) {
  uint64_t sum = 0, weight_bytes = p->regions[REGION_WEIGHTS].bytes;
  for (uint32_t i = 0; i < p->tensor_count; i++) {
    const plan_tensor *t = &p->tensors[i];
    ASSERT(t->offset <= weight_bytes && plan_tensor_bytes(t) <= weight_bytes - t->offset);
    sum += strlen(plan_string(p, t->name));
  }
  for (uint32_t i = 0; i < p->buffer_count; i++) sum += strlen(plan_string(p, p->buffers[i].name));
  for (uint32_t i = 0; i < p->op_count; i++) {
    const plan_op *op = &p->ops[i];
    const plan_kernel *k = &p->kernels[op->variant];
    ASSERT(k->kernel == op->kernel && op->args_bytes == plan_args_bytes(op->kernel));
    sum += strlen(plan_string(p, op->name)) + plan_extent(&op->grid[0], 7);
    for (uint32_t b = 0; b < op->args_bytes; b++) sum += p->args[op->args_offset + b];
    for (uint32_t f = 0; f < op->fixup_count; f++) {
      const plan_fixup *fixup = &p->fixups[op->first_fixup + f];
      ASSERT(fixup->args_offset / 8 < plan_pointer_count(op->kernel) && fixup->offset < p->regions[fixup->region].bytes);
    }
    for (uint32_t g = 0; g < op->gemm_count; g++) sum += p->gemms[op->first_gemm + g].algo[7];
    for (uint32_t s = 0; s < k->spec_count; s++) sum += strlen(plan_string(p, p->specs[k->first_spec + s].name));
  }
  for (uint32_t i = 0; i < p->ladder_count; i++) ASSERT(p->ladder[i] > (i ? p->ladder[i - 1] : 0));
  ASSERT(p->ladder_count == 0 || p->ladder[p->ladder_count - 1] <= p->header->limits.max_batch_tokens);
  for (uint32_t i = 0; i < p->guarantee_count; i++) sum += strlen(plan_string(p, p->guarantees[i].reason));
  for (uint32_t i = 0; i < p->note_count; i++) sum += strlen(plan_string(p, p->notes[i]));
  return sum;
}

static void show(const plan_header *header) {
  static FILE *nowhere;
  if (!nowhere) nowhere = fopen("/dev/null", "w");
  ASSERT(nowhere != NULL);
  print_summary(nowhere, header);
  print_regions(nowhere, header);
  print_memory(nowhere, header);
  print_kernels(nowhere, header);
  print_ops(nowhere, header);
  print_guarantees(nowhere, header);
  print_json(nowhere, header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  plan view;
  fail_clear();
  bool is_checked = fuzz_is_ok(check_plan(data, bytes)); /* any bytes are allowed */
  fail_clear();
  if (!fuzz_is_ok(plan_view(data, bytes, &view))) return 0;
  volatile uint64_t sum = follow(&view);
  (void)sum;
  show(view.header);
  if (is_checked) (void)plan_walk_run(data, bytes);
  return 0;
}
