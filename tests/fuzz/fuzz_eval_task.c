/* fuzz_eval_task.c - task files, and lines of items for those that are accepted. A task has its fields in their ranges, reads the same
 * twice, and turns lines into items with an answer each, or refuses them by name; the same holds for its sampling parameters and its
 * judge. A line of results that is judged again has the same bytes when it is judged once more. */
#include "engine/eval/answer.h"
#include "engine/eval/request.h"
#include "engine/eval/items.h"
#include "engine/eval/rescore.h"
#include "engine/eval/task.h"
#include "fuzz.h"

/* libfyaml 0.7.12 leaks a buffer on some malformed quoted scalars; leaks of our own are still found. */
const char *__lsan_default_suppressions(void) { return "leak:fy_"; }

static const char LINES[] = "{\"id\":\"a\",\"prompt\":\"p\",\"answer\":\"b\",\"choices\":[\"a\",\"b\"],\"text\":\"t\",\"task\":\"x\"}\n"
                            "{\"prompt\":\"q\",\"answer\":[\"7\",8],\"choices\":[\"a\",\"b\"],\"text\":\"\\u0000\",\"task\":\"y\"}\r\n"
                            "{\"prompt\":3,\"answer\":1,\"choices\":[\"1\",\"c\"],\"text\":\"u v\",\"task\":1}\n";

static void check_task(const eval_task *t) {
  ASSERT(t->name && *t->name && strlen(t->name) <= EVAL_TASK_NAME_BYTES_MAX && t->items && *t->items);
  ASSERT(t->too_long <= EVAL_TOO_LONG_TRUNCATE_LEFT && !(t->chat && t->too_long == EVAL_TOO_LONG_TRUNCATE_LEFT));
  ASSERT(!t->think_end || (*t->think_end && t->kind == EVAL_GENERATE));
  ASSERT(t->kind <= EVAL_PERPLEXITY && t->match <= EVAL_MATCH_NUMBER && t->tolerance >= 0 && t->limit <= INT32_MAX);
  ASSERT((t->kind == EVAL_PERPLEXITY) == (t->text != NULL) && (t->text != NULL) == (t->prompt == NULL));
  ASSERT(t->kind == EVAL_PERPLEXITY || (t->answer && t->shot && t->separator));
  ASSERT((t->kind == EVAL_CHOICE) == (t->choices != NULL) && (t->kind == EVAL_GENERATE) == (t->generation != NULL));
  ASSERT(t->shot_count <= EVAL_TASK_SHOTS_MAX && (t->kind != EVAL_PERPLEXITY || t->window >= 2));
}

/* A line as an older rule would have left it. */
static void check_rescore(const eval_task *t, const eval_item *of) {
  char hex[DIGEST_TEXT_BYTES];
  eval_answer *judge = NULL;
  json_t *once = NULL, *twice = NULL;
  digest_text(digest_of(of->prompt.bytes, of->prompt.count).bytes, hex);
  json_t *line = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:n, s:b, s:b, s:i, s:i, s:[{s:s}]}", "task", t->name, "id", of->id, "kind", "k",
                           "prompt_digest", hex, "subset", "old", "text", "a b 7", "extracted", "correct", 1, "unended", 1, "best", 0,
                             "best_norm", 1,
                           "samples", "text", "8");
  ASSERT(line != NULL && eval_answer_open(&judge, t) == OK);
  ASSERT(eval_rescore_line(line, t, of, judge, &once) == OK);
  ASSERT(eval_rescore_line(once, t, of, judge, &twice) == OK);
  ASSERT(json_equal(once, twice));
  json_decref(line);
  json_decref(once);
  json_decref(twice);
  eval_answer_close(judge);
}

static void check_items(const eval_task *t) {
  eval_items items = {0};
  eval_source lines = {LINES, sizeof LINES - 1}, shots = {t->shots ? LINES : NULL, t->shots ? sizeof LINES - 1 : 0};
  if (!fuzz_is_ok(eval_items_make(t, lines, shots, &items))) {
    ASSERT(!items.list && items.count == 0);
    return;
  }
  ASSERT(items.count >= 1 && items.count <= 3 && (!t->limit || items.count <= t->limit));
  for (uint32_t i = 0; i < items.count; i++) {
    const eval_item *one = &items.list[i];
    ASSERT(one->id && one->prompt.bytes && one->prompt.bytes[one->prompt.count] == 0 && !t->subsets == !one->subset);
    ASSERT(!t->cluster == !one->cluster);
    ASSERT((t->kind == EVAL_GENERATE) == (one->answer != NULL));
    ASSERT(t->kind != EVAL_CHOICE || one->answer_index < json_array_size(one->choices));
    check_rescore(t, one);
  }
  eval_items_close(&items);
}

static void check_judge(const eval_task *t) {
  items params = {0};
  eval_answer *judge = NULL;
  json_t *answer = json_string("7");
  eval_answer_verdict verdict;
  if (fuzz_is_ok(eval_request_params(t, &params))) ASSERT(params.list[0].params.top_logprobs >= EVAL_REQUEST_TOP &&
      params.list[0].params.max_tokens);
  items_close(&params);
  fail_clear();
  ASSERT(eval_answer_open(&judge, t) == OK);
  ASSERT(eval_answer_judge(judge, "a 7\0b", 5, answer, &verdict) == OK);
  ASSERT(json_is_string(verdict.extracted) || (json_is_null(verdict.extracted) && !verdict.is_correct));
  ASSERT(!verdict.is_unended || (t->think_end && json_is_null(verdict.extracted)));
  json_decref(answer);
  json_decref(verdict.extracted);
  eval_answer_close(judge);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  eval_task task, again, untouched;
  memset(&task, 0x5a, sizeof task);
  untouched = task;
  fail_clear();
  if (!fuzz_is_ok(eval_task_parse((const char *)data, bytes, &task))) {
    ASSERT(memcmp(&task, &untouched, sizeof task) == 0);
    return 0;
  }
  check_task(&task);
  ASSERT(eval_task_parse((const char *)data, bytes, &again) == OK);
  ASSERT(json_equal(task.effective, again.effective));
  eval_task_close(&again);
  check_items(&task);
  fail_clear();
  if (task.kind == EVAL_GENERATE) check_judge(&task);
  eval_task_close(&task);
  return 0;
}
