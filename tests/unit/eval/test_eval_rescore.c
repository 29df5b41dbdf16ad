/* test_eval_rescore.c - lines of results judged again: what changes, in which order, and which lines are refused. That a whole file is that
 * of an evaluation with the new rule, byte for byte, is tested in tests/e2e/test_published.c. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/base/base.h"
#include "engine/base/digest.h"
#include "engine/eval/rescore.h"

#define ITEMS "{\"id\":\"a\",\"prompt\":\"p\",\"answer\":\"7\",\"choices\":[\"x\",\"y\"],\"best\":1}\n"

/* The line, whose %s is the digest of "p", judged by the task; the caller frees the text. */
static status rescore(const char *task_lines, const char *line, char **out) {
  char yaml[512], text[1024], hex[DIGEST_TEXT_BYTES];
  eval_task task;
  eval_items items = {0};
  eval_answer *judge = NULL;
  json_t *built = NULL;
  digest_text(digest_of("p", 1).bytes, hex);
  snprintf(yaml, sizeof yaml, "name: t\nitems: i\n%s", task_lines);
  if (eval_task_parse(yaml, strlen(yaml), &task) != OK || eval_answer_open(&judge, &task) != OK) fail_msg("%s", fail_text());
  if (eval_items_make(&task, (eval_source){ITEMS, sizeof ITEMS - 1}, (eval_source){0}, &items) != OK) fail_msg("%s", fail_text());
  snprintf(text, sizeof text, line, hex);
  json_t *old = json_loads(text, JSON_ALLOW_NUL, NULL);
  assert_non_null(old);
  fail_clear();
  status result = eval_rescore_line(old, &task, &items.list[0], judge, &built);
  if (out) *out = built ? json_dumps(built, JSON_COMPACT) : NULL;
  json_decref(built);
  json_decref(old);
  eval_answer_close(judge);
  eval_items_close(&items);
  eval_task_close(&task);
  return result;
}

#define HEAD "{\"task\":\"t\",\"id\":\"a\",\"kind\":\"generate\",\"subset\":\"old\",\"prompt_digest\":\"%s\","

static void judged(void **state) {
  (void)state;
  static const struct { const char *task, *line, *expected; } cases[] = {
    {"kind: generate\nmatch: number\n",
     HEAD "\"text\":\"it is 7\",\"extracted\":\"it is 7\",\"answer\":\"8\",\"correct\":false,\"unended\":true,\"tokens\":3,"
     "\"perturbed\":[]}",
     "\"text\":\"it is 7\",\"extracted\":\"7\",\"answer\":\"7\",\"correct\":true,\"tokens\":3}"},
    {"kind: generate\nthink_end: e\n", HEAD "\"text\":\"7\",\"extracted\":\"7\",\"answer\":\"7\",\"correct\":true,\"tokens\":3}",
     "\"text\":\"7\",\"extracted\":null,\"answer\":\"7\",\"correct\":false,\"unended\":true,\"tokens\":3}"},
    {"kind: generate\ncluster: id\n",
     HEAD "\"failed\":\"nonfinite\",\"text\":\"7\",\"extracted\":\"7\",\"correct\":false,\"finish\":\"nonfinite\"}",
     "\"failed\":\"nonfinite\",\"text\":\"7\",\"extracted\":\"7\",\"correct\":false,\"finish\":\"nonfinite\"}"},
    {"kind: generate\n",
     HEAD "\"text\":\"7\",\"extracted\":\"\",\"correct\":false,\"samples\":[{\"text\":\"7\",\"extracted\":\"\",\"correct\":false},"
     "{\"text\":\"8\",\"extracted\":\"\",\"correct\":true}],\"share\":0.0}",
     "\"correct\":true,\"samples\":[{\"text\":\"7\",\"extracted\":\"7\",\"correct\":true},{\"text\":\"8\",\"extracted\":\"8\","
     "\"correct\":false}],\"share\":0.5}"},
    {"kind: generate\n", HEAD "\"skipped\":\"too_long\",\"requests\":[]}", "\"skipped\":\"too_long\",\"requests\":[]}"},
    {"kind: choice\nanswer: '{{best}}'\nchoices: ['0', '1']\n",
     HEAD "\"choices\":[{\"text\":\"0\"},{\"text\":\"1\"}],\"best\":1,\"best_norm\":0,\"answer\":0,\"acc\":false,\"acc_norm\":true}",
     "\"best\":1,\"best_norm\":0,\"answer\":1,\"acc\":true,\"acc_norm\":false}"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char *text = NULL;
    if (rescore(cases[i].task, cases[i].line, &text) != OK) fail_msg("case %zu: %s", i, fail_text());
    size_t bytes = strlen(text), tail = strlen(cases[i].expected);
    if (bytes < tail || strcmp(text + bytes - tail, cases[i].expected) != 0) fail_msg("case %zu: %s", i, text);
    assert_true(!strstr(text, "subset") && !strstr(text, "cluster") == !strstr(cases[i].task, "cluster"));
    free(text);
  }
}

static void refused(void **state) {
  (void)state;
  static const char choice[] = "kind: choice\nanswer: '{{best}}'\nchoices: ['0', '1']\n";
  static const struct { const char *task, *line, *words; status code; } cases[] = {
    {"kind: generate\n", "{\"task\":\"t\",\"id\":\"b\",\"prompt_digest\":\"%s\"}", "expected the item \"a\"", ERR_MISMATCH},
    {"kind: generate\n", "{\"task\":\"u\",\"id\":\"a\",\"prompt_digest\":\"%s\"}", "expected the item \"a\"", ERR_MISMATCH},
    {"kind: generate\nprompt: 'q'\n", HEAD "\"text\":\"\"}", "the prompt is another one", ERR_MISMATCH},
    {"kind: generate\n", HEAD "\"text\":7}", "no texts", ERR_USAGE},
    {"kind: generate\n", HEAD "\"text\":\"\",\"samples\":{}}", "\"samples\"", ERR_FORMAT},
    {"kind: generate\n", HEAD "\"text\":\"\",\"samples\":[3]}", "no texts", ERR_USAGE},
    {choice, HEAD "\"choices\":[{\"text\":\"0\"},{\"text\":\"2\"}],\"best\":1,\"best_norm\":0}", "other choices", ERR_MISMATCH},
    {choice, HEAD "\"choices\":[],\"best\":\"1\",\"best_norm\":0}", "\"best\"", ERR_FORMAT},
    {choice, HEAD "\"choices\":[],\"best\":null,\"best_norm\":true}", "\"best_norm\"", ERR_FORMAT}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++)
    if (rescore(cases[i].task, cases[i].line, NULL) != cases[i].code || !strstr(fail_text(), cases[i].words))
      fail_msg("case %zu: \"%s\"", i, fail_text());
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(judged), cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
