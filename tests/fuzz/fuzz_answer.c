/* fuzz_answer.c - answers of models: the first two bytes choose grammar, form and pieces, the rest is the text.
 *
 * However the text is cut, the same comes out: a call only if it is one of the tools with arguments that its schema allows, and as thought
 * and content only what stands in the text, in its order. */
#include <jansson.h>
#include "engine/answer/judge.h"
#include "fuzz.h"
#include "tests/unit/answer/answer_fixture.h"

static const char TOOLS[] =
  "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},"
  "\"n\":{\"type\":[\"integer\",\"null\"]},\"o\":{\"anyOf\":[{\"type\":\"object\"},{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}]}}}}},"
  "{\"name\":\"g\"}]";
static const char *const GRAMMARS[] = {NULL, "deepseek_v3", "deepseek_v31", "deepseek_v32", "glm45", "hermes", "kimi_k2", "llama3_json",
                                       "harmony"};

/* Arguments may hold line feeds, so that a single line is looked at. */
static void check_calls(const json_t *tools, const answer_read *read) {
  if (read->call_count != 1) return;
  char why[ANSWER_ERROR_BYTES];
  const char *name = memchr(read->calls.bytes, ' ', read->calls.count), *end = read->calls.bytes + read->calls.count - 1;
  ASSERT(name && (name[1] == 'f' || name[1] == 'g') && name[2] == ' ');
  const char text[2] = {name[1], 0};
  ASSERT(answer_judge_call(tools, text, name + 3, (size_t)(end - name) - 3, why));
}

/* Messages of harmony have no order of kinds, and a line feed between two of a kind. */
static void check_messages(const strbuf *shown, const char *text, size_t bytes) {
  for (size_t at = 0, k = 0; k < shown->count; k++) {
    size_t from = at;
    while (at < bytes && text[at] != shown->bytes[k]) at++;
    ASSERT(at < bytes || shown->bytes[k] == '\n');
    at = at < bytes && shown->bytes[k] != '\n' ? at + 1 : from;
  }
}

static void check_shown(const answer_read *read, const char *text, size_t bytes) {
  size_t at = 0;
  ASSERT(read->thought.count + read->content.count <= bytes);
  const strbuf *const shown[] = {&read->thought, &read->content};
  for (size_t i = 0; i < ARRAY_LEN(shown); i++)
    for (size_t k = 0; k < shown[i]->count; k++, at++) {
      while (at < bytes && text[at] != shown[i]->bytes[k]) at++;
      ASSERT(at < bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static json_t *tools;
  if (!tools) tools = json_loads(TOOLS, 0, NULL);
  ASSERT(tools);
  if (bytes < 2) return 0;
  const char *grammar = GRAMMARS[data[0] % ARRAY_LEN(GRAMMARS)], *text = (const char *)data + 2;
  bool is_harmony = data[0] % ARRAY_LEN(GRAMMARS) == ARRAY_LEN(GRAMMARS) - 1;
  const answer_form form = {.marks = data[1] & 1 ? answer_grammar_find_marks(is_harmony ? "harmony" : "think") : NULL, .tools = tools,
                            .grammar = grammar ? answer_grammar_find(grammar) : NULL, .calls_max = data[1] & 2 ? 1 : UINT32_MAX,
                            .begins_inside = (data[1] & 5) == 5, .begins_after = (data[1] & 8) && !(data[1] & 4), .is_apart = data[1] & 16};
  answer_read whole = answer_fixture_read(&form, text, bytes - 2, 0, 0);
  ASSERT(!whole.failed && (whole.call_count <= form.calls_max));
  ASSERT(form.is_apart || whole.thought.count == 0);
  check_calls(tools, &whole);
  if (is_harmony) {
    check_messages(&whole.thought, text, bytes - 2);
    check_messages(&whole.content, text, bytes - 2);
  } else check_shown(&whole, text, bytes - 2);
  for (uint64_t cut = 0; cut < 3; cut++) {
    answer_read pieces = answer_fixture_read(&form, text, bytes - 2, cut ? 9 : 1, data[1] * 3 + cut);
    ASSERT(answer_fixture_is_same(&whole, &pieces));
    answer_fixture_close(&pieces);
  }
  answer_fixture_close(&whole);
  return 0;
}
