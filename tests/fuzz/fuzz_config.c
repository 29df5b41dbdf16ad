/* fuzz_config.c - config.json, deployment and profile under libFuzzer: the first byte chooses the parser, the rest is the text.
 *
 * A config that is accepted is planned under a small deployment, so that graph, placement and checker meet odd models too. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include "engine/base.h"
#include "planner/deploy_config.h"
#include "planner/model_config.h"
#include "planner/planner.h"
#include "planner/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__lsan_default_suppressions(void);

/* libfyaml 0.7.12 drops a buffer on some malformed quoted scalars; leaks of our own are still found. */
const char *__lsan_default_suppressions(void) { return "leak:fy_"; }

static void plan_config(const char *text, size_t bytes) {
  static const char DEPLOY[] = "{max_seqs: 2, max_batch_tokens: 16, max_len: 64}";
  model_config config;
  void *plan = NULL;
  size_t plan_bytes = 0;
  if (model_config_parse(text, bytes, &config) != OK) return;
  if (config.plan.layers > 4 || config.plan.experts > 64 || config.max_position < 64) return; /* keep runs short */
  const planner_input input = {.config = {text, bytes}, .deploy = {DEPLOY, sizeof DEPLOY - 1}};
  ASSERT(planner_make(&input, &plan, &plan_bytes) == OK);
  free(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  const char *text = (const char *)data + 1;
  deploy_config deploy;
  profile known = {0};
  fail_clear();
  switch (data[0] % 3) {
    case 0: plan_config(text, size - 1); break;
    case 1: (void)deploy_config_parse(text, size - 1, &deploy); break;
    default:
      if (profile_parse(text, size - 1, &known) == OK) profile_free(&known);
  }
  return 0;
}
