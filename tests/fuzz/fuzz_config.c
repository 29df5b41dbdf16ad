/* fuzz_config.c - config.json. An accepted file gives the same result in any order and layout of its fields, and a plan that the engine
 * accepts; on an error the outputs are untouched. */
#include "engine/base/json_text.h"
#include "engine/plan/plan.h"
#include "fuzz.h"
#include "planner/model_config.h"
#include "planner/planner.h"
#include <jansson.h>

#define DEPLOY "{max-num-seqs: 2, max-num-batched-tokens: 16, max-model-len: 64}"

/* The same fields, sorted, in another layout. */
static void check_order(const char *text, size_t bytes, const model_config *config) {
  json_error_t error;
  json_t *root = json_text_load_file(text, bytes, JSON_REJECT_DUPLICATES, &error);
  char *sorted = json_dumps(root, JSON_SORT_KEYS | JSON_INDENT(1));
  static model_config again;
  ASSERT(sorted != NULL);
  ASSERT(model_config_parse(sorted, strlen(sorted), &again) == OK);
  ASSERT(memcmp(&again.plan, &config->plan, sizeof again.plan) == 0);
  ASSERT(memcmp(&again.grouped, &config->grouped, sizeof again.grouped) == 0);
  ASSERT(memcmp(&again.quant, &config->quant, sizeof again.quant) == 0);
  ASSERT(memcmp(&again.products, &config->products, sizeof again.products) == 0);
  ASSERT(again.max_position == config->max_position && again.is_tied == config->is_tied && again.window == config->window);
  ASSERT(memcmp(&again.rope, &config->rope, sizeof again.rope) == 0);
  ASSERT(strlen(again.notes.ignored) == strlen(config->notes.ignored));
  free(sorted);
  json_decref(root);
}

static void plan_with(const char *text, size_t bytes) {
  const planner_input input = {.config = {text, bytes}, .deploy = {DEPLOY, sizeof DEPLOY - 1}};
  void *made = NULL;
  size_t made_bytes = 0;
  plan view;
  ASSERT(planner_make(&input, &made, &made_bytes) == OK);
  ASSERT(plan_view(made, made_bytes, &view) == OK);
  free(made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static model_config config, untouched;
  const char *text = (const char *)data;
  memset(&config, 0x5a, sizeof config);
  untouched = config;
  fail_clear();
  if (!fuzz_is_ok(model_config_parse(text, bytes, &config))) {
    ASSERT(memcmp(&config, &untouched, sizeof config) == 0);
    return 0;
  }
  check_order(text, bytes, &config);
  const bool is_long = config.max_position >= 64 && (config.window == 0 || config.window >= 64);
  if (config.plan.layers <= 4 && config.plan.experts <= 64 && is_long) plan_with(text, bytes); /* keeps runs short */
  return 0;
}
