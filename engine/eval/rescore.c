/* eval/rescore.c - see eval/rescore.h. Keys keep their order: an evaluation would write the same bytes. */
#include "eval/rescore.h"
#include "base/digest.h"
#include "eval/manifest.h"
#include "receipts/receipt.h"
#include <string.h>

static status no_memory(void) { return FAIL(ERR_LIMIT, "rescore: no memory"); }

static status put(json_t *line, const char *key, json_t *value) {
  return value && json_object_set_new(line, key, value) == 0 ? OK : no_memory();
}

static status wrong(const char *key) { return FAIL(ERR_FORMAT, "results: \"%s\": a value of another kind than expected", key); }

/* === What may have changed ================================================================================================== */

status eval_rescore_check(const json_t *parameters, const eval_task *task) {
  static const char *const fixed[] = {"kind", "generation", "chat", "too_long", "text", "window", "choices", "norm"};
  char text[EVAL_MANIFEST_DIFFERENCE_BYTES];
  for (size_t i = 0; i < ARRAY_LEN(fixed); i++) {
    json_t *a = json_pack("{s:O?}", fixed[i], json_object_get(parameters, fixed[i]));
    json_t *b = json_pack("{s:O?}", fixed[i], json_object_get(task->effective, fixed[i]));
    bool differs = a && b && eval_manifest_difference(a, b, text);
    json_decref(a);
    json_decref(b);
    if (differs) return FAIL(ERR_MISMATCH, "it asks for other answers: %s; hint: `verbatim eval` asks them", text);
  }
  return OK;
}

static status check_item(const json_t *line, const eval_task *task, const eval_item *item) {
  const char *id = json_string_value(json_object_get(line, "id")), *name = json_string_value(json_object_get(line, "task"));
  const char *prompt = json_string_value(json_object_get(line, "prompt_digest"));
  char found[DIGEST_TEXT_BYTES];
  digest_text(digest_of(item->prompt.bytes, item->prompt.count).bytes, found);
  if (!id || !name || strcmp(id, item->id) != 0 || strcmp(name, task->name) != 0)
    return FAIL(ERR_MISMATCH,
                "expected the item \"%.64s\" of \"%.64s\", found \"%.64s\"; hint: items must be those that were asked, in their "
                "order", item->id, task->name, id ? id : "");
  if (prompt && strcmp(prompt, found) == 0) return OK;
  return FAIL(ERR_MISMATCH, "item \"%.64s\": the prompt is another one than was asked; hint: `verbatim eval` asks it", id);
}

/* === Judging ================================================================================================================ */

/* The line or one of its samples, judged anew. */
static status judge_text(const json_t *from, const eval_item *item, const eval_answer *judge, json_t *to, bool *correct) {
  const json_t *text = json_object_get(from, "text");
  const char *finish = json_string_value(json_object_get(from, "finish"));
  eval_answer_verdict verdict;
  const char *key;
  json_t *value;
  if (!json_is_string(text)) return FAIL(ERR_USAGE, "the results have no texts to judge; hint: --no-text leaves none");
  TRY(eval_answer_judge(judge, json_string_value(text), json_string_length(text), item->answer, &verdict));
  *correct = verdict.is_correct && !(finish && strcmp(finish, receipt_finish_name(VERBATIM_NONFINITE)) == 0);
  status result = OK;
  json_object_foreach((json_t *)(uintptr_t)from, key, value) {
    bool is_verdict = strcmp(key, "correct") == 0;
    json_t *now = strcmp(key, "extracted") == 0 ? verdict.extracted : strcmp(key, "answer") == 0 ? item->answer : value;
    if (strcmp(key, "unended") == 0 || result != OK) continue;
    result = put(to, key, is_verdict ? json_boolean(*correct) : json_incref(now));
    if (result == OK && is_verdict && verdict.is_unended) result = put(to, "unended", json_true());
  }
  json_decref(verdict.extracted);
  return result;
}

static status judge_samples(const json_t *line, const eval_item *item, const eval_answer *judge, json_t *to) {
  const json_t *samples = json_object_get(line, "samples");
  bool correct = false;
  size_t right = 0, count = json_array_size(samples);
  if (!samples) return OK;
  if (count == 0) return wrong("samples");
  json_t *list = json_array();
  TRY(put(to, "samples", list));
  for (size_t i = 0; i < count; i++) {
    json_t *built = json_object();
    if (json_array_append_new(list, built) != 0) return no_memory();
    TRY(judge_text(json_array_get(samples, i), item, judge, built, &correct));
    right += correct;
  }
  return put(to, "share", json_real((double)right / (double)count));
}

static status judge_choice(const eval_item *item, json_t *to) {
  static const char *const keys[][2] = {{"best", "acc"}, {"best_norm", "acc_norm"}};
  const json_t *choices = json_object_get(to, "choices");
  for (size_t i = 0; i < json_array_size(choices); i++) {
    const json_t *text = json_object_get(json_array_get(choices, i), "text");
    if (text && !json_equal(text, json_array_get(item->choices, i)))
      return FAIL(ERR_MISMATCH, "item \"%.64s\": other choices than were asked; hint: `verbatim eval` asks them", item->id);
  }
  TRY(put(to, "answer", json_integer(item->answer_index)));
  for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
    const json_t *best = json_object_get(to, keys[i][0]);
    if (!json_is_integer(best) && !json_is_null(best)) return wrong(keys[i][0]);
    TRY(put(to, keys[i][1], json_boolean(json_is_integer(best) && json_integer_value(best) == item->answer_index)));
  }
  return OK;
}

/* The line with the item's present subset and cluster. */
static status copy_line(const json_t *line, const eval_item *item, json_t *to) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)line, key, value) {
    if (strcmp(key, "subset") == 0 || strcmp(key, "cluster") == 0 || strcmp(key, "perturbed") == 0) continue;
    TRY(put(to, key, json_incref(value)));
    if (strcmp(key, "kind") != 0) continue;
    if (item->subset) TRY(put(to, "subset", json_string(item->subset)));
    if (item->cluster) TRY(put(to, "cluster", json_string(item->cluster)));
  }
  return OK;
}

static status fill(const json_t *line, const eval_task *task, const eval_item *item, const eval_answer *judge, json_t *to) {
  bool correct = false;
  TRY(check_item(line, task, item));
  json_t *copy = json_object();
  status result = copy ? copy_line(line, item, copy) : no_memory();
  if (result == OK && task->kind == EVAL_GENERATE && !json_object_get(line, "skipped")) {
    result = judge_text(copy, item, judge, to, &correct);
    if (result == OK) result = judge_samples(copy, item, judge, to);
  } else if (result == OK) {
    if (json_object_update(to, copy) != 0) result = no_memory();
    if (result == OK && task->kind == EVAL_CHOICE && !json_object_get(line, "skipped")) result = judge_choice(item, to);
  }
  json_decref(copy);
  return result;
}

status eval_rescore_line(const json_t *line, const eval_task *task, const eval_item *item, const eval_answer *judge, json_t **out) {
  json_t *built = json_object();
  status result = built ? fill(line, task, item, judge, built) : no_memory();
  if (result == OK) *out = built;
  else json_decref(built);
  return result;
}
