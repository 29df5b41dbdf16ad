/* fuzz_eval_import.c - tasks of lm-evaluation-harness and its logs of samples. An input that begins with "{" is a log, with "{ " one of
 * inspect-ai; another is a task's YAML, "\n====\n" and its records. An accepted one has an item a record, the same bytes when it is
 * imported again, and task files that an evaluation reads or refuses by name. */
#include "engine/base/yaml.h"
#include "engine/eval/import/inspect.h"
#include "engine/eval/import/prompts.h"
#include "engine/eval/import/samples.h"
#include "engine/eval/items.h"
#include "fuzz.h"

static const char END[] = "\n====\n",
  RECORDS[] = "{\"q\":\"a\",\"a\":\"b\",\"n\":1,\"c\":[\"x\",\"y\"]}\n{\"q\":\"c\",\"a\":\"[1]\",\"n\":0}\n";

const char *__lsan_default_suppressions(void) { return "leak:fy_"; }

typedef struct input {
  const char *text, *data;
  size_t bytes, data_bytes;
} input;

/* "main" is the task, "include" the records' end of it, everything else records. */
static status read_part(void *context, const char *path, bool is_data, char **text, size_t *bytes) {
  const input *in = context;
  const char *from = is_data ? in->data : in->text;
  size_t count = is_data ? in->data_bytes : in->bytes;
  if (!is_data && strcmp(path, "main") != 0) from = "doc_to_target: a\n", count = 17;
  if (strlen(path) > 64) return FAIL(ERR_IO, "no such file");
  if (!(*text = malloc(count + 1))) return FAIL(ERR_LIMIT, "no memory");
  memcpy(*text, from, count);
  *bytes = count;
  return OK;
}

static status make(input *in, bool is_log, eval_import_accept *accept, eval_import *out) {
  const eval_import_files files = {read_part, in};
  const eval_import_options options = {.shot_count = -1, .seed = 1};
  fail_clear();
  if (is_log && in->bytes > 1 && in->text[1] == ' ') return eval_import_inspect(&files, accept, "log.json", out);
  if (is_log) return eval_import_samples(&files, accept, "samples_t.jsonl", NULL, out);
  return eval_import_prompts(&files, accept, "main", &options, out);
}

static void check(const eval_import *made) {
  ASSERT(made->name && *made->name && made->items.count > 0 && made->items.bytes[made->items.count - 1] == '\n');
  uint32_t lines = 0;
  for (size_t i = 0; i < made->items.count; i++) lines += made->items.bytes[i] == '\n';
  ASSERT(lines == made->item_count && lines <= EVAL_ITEMS_MAX && json_is_array(made->tasks));
  fail_clear();
  (void)fuzz_is_ok(eval_import_check(made));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  const bool is_log = bytes > 0 && data[0] == '{';
  const char *text = (const char *)data;
  input in = {.text = text, .bytes = bytes, .data = is_log ? text : RECORDS, .data_bytes = is_log ? bytes : sizeof RECORDS - 1};
  for (size_t at = 0; !is_log && at + sizeof END - 1 <= bytes; at++)
    if (memcmp(text + at, END, sizeof END - 1) == 0) {
      in = (input){text, text + at + sizeof END - 1, at, bytes - at - (sizeof END - 1)};
      break;
    }
  eval_import once = {0}, twice = {0};
  eval_import_accept accept = {.names = {"process_docs", "new_key"}, .count = 2}, again = accept;
  if (fuzz_is_ok(make(&in, is_log, &accept, &once))) {
    check(&once);
    ASSERT(make(&in, is_log, &again, &twice) == OK);
    ASSERT(once.items.count == twice.items.count && memcmp(once.items.bytes, twice.items.bytes, once.items.count) == 0);
    ASSERT(json_equal(once.tasks, twice.tasks));
  }
  eval_import_close(&once);
  eval_import_close(&twice);
  return 0;
}
