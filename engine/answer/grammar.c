/* answer/grammar.c - see answer/grammar.h. The tables. */
#include "answer/grammar.h"
#include "answer/harmony.h"
#include <string.h>

#define DSML "｜DSML｜"
#define CALLS_BEGIN "<｜tool▁calls▁begin｜>"
#define CALLS_END "<｜tool▁calls▁end｜>"
#define CALL_BEGIN "<｜tool▁call▁begin｜>"
#define CALL_END "<｜tool▁call▁end｜>"
#define SEPARATOR "<｜tool▁sep｜>"
#define ANALYSIS ANSWER_HARMONY_CHANNEL "analysis" ANSWER_HARMONY_MESSAGE
#define COMMENTARY ANSWER_HARMONY_CHANNEL "commentary"

static const answer_marks MARKS[] = {
  {.name = "harmony", .open = ANALYSIS, .close = ANSWER_HARMONY_END, .are_messages = true},
  {.name = "think", .open = "<think>", .close = "</think>"}};

static const answer_grammar GRAMMARS[] = {
  {.name = "deepseek_v3", .section_open = CALLS_BEGIN, .section_close = CALLS_END, .call_open = CALL_BEGIN "function" SEPARATOR,
   .name_close = "\n```json\n", .call_close = "```" CALL_END, .body = ANSWER_BODY_ARGUMENTS},
  {.name = "deepseek_v31", .section_open = CALLS_BEGIN, .section_close = CALLS_END, .call_open = CALL_BEGIN, .name_close = SEPARATOR,
   .call_close = CALL_END, .body = ANSWER_BODY_ARGUMENTS},
  {.name = "deepseek_v32", .section_open = "<" DSML "function_calls>", .section_close = "</" DSML "function_calls>",
   .call_open = "<" DSML "invoke name=\"", .name_close = "\">", .call_close = "</" DSML "invoke>", .body = ANSWER_BODY_PAIRS,
   .key_open = "<" DSML "parameter name=\"", .key_close = "\" string=\"", .value_close = "</" DSML "parameter>", .tells_text = true},
  {.name = "glm45", .call_open = "<tool_call>", .call_close = "</tool_call>", .body = ANSWER_BODY_PAIRS, .key_open = "<arg_key>",
   .key_close = "</arg_key>", .value_open = "<arg_value>", .value_close = "</arg_value>"},
  {.name = "harmony", .call_open = COMMENTARY, .call_close = ANSWER_HARMONY_CALL, .body = ANSWER_BODY_MESSAGES},
  {.name = "hermes", .call_open = "<tool_call>", .call_close = "</tool_call>", .body = ANSWER_BODY_CALL, .arguments_key = "arguments"},
  {.name = "kimi_k2", .section_open = "<|tool_calls_section_begin|>", .section_close = "<|tool_calls_section_end|>",
   .call_open = "<|tool_call_begin|>", .name_close = "<|tool_call_argument_begin|>", .call_close = "<|tool_call_end|>",
   .body = ANSWER_BODY_ARGUMENTS, .has_ids = true, .ends_thought = true},
  {.name = "llama3_json", .call_open = "<|python_tag|>", .body = ANSWER_BODY_CALL, .arguments_key = "parameters", .starts_answer = true},
};

/* What a template that writes calls in this manner contains, and does not; the first row that fits decides. */
static const struct { const char *name, *has, *also, *lacks; } TEMPLATES[] = {
  {"harmony", COMMENTARY, ANSWER_HARMONY_CALL, NULL},
  {"kimi_k2", "<|tool_calls_section_begin|>", "", NULL},
  {"deepseek_v32", DSML "function_calls", "", NULL},
  {"deepseek_v3", CALLS_BEGIN, "```json", NULL},
  {"deepseek_v31", CALLS_BEGIN, SEPARATOR, NULL},
  {"glm45", "<tool_call>", "<arg_key>", NULL},
  {"hermes", "<tool_call>", "arguments", "<function="},
  {"llama3_json", "<|start_header_id|>", "\"parameters\"", NULL},
};

const answer_grammar *answer_grammar_find(const char *name) {
  for (size_t i = 0; i < ARRAY_LEN(GRAMMARS); i++)
    if (strcmp(GRAMMARS[i].name, name) == 0) return &GRAMMARS[i];
  return NULL;
}

const answer_marks *answer_grammar_find_marks(const char *name) {
  for (size_t i = 0; i < ARRAY_LEN(MARKS); i++)
    if (strcmp(MARKS[i].name, name) == 0) return &MARKS[i];
  return NULL;
}

const answer_grammar *answer_grammar_of(const char *template) {
  for (size_t i = 0; i < ARRAY_LEN(TEMPLATES); i++)
    if (strstr(template, TEMPLATES[i].has) && strstr(template, TEMPLATES[i].also) &&
        !(TEMPLATES[i].lacks && strstr(template, TEMPLATES[i].lacks)))
      return answer_grammar_find(TEMPLATES[i].name);
  return NULL;
}

const answer_marks *answer_grammar_marks_of(const char *template) {
  if (strstr(template, ANALYSIS)) return answer_grammar_find_marks("harmony");
  return strstr(template, "</think>") ? answer_grammar_find_marks("think") : NULL;
}

const char *answer_grammar_names(void) { return "deepseek_v3, deepseek_v31, deepseek_v32, glm45, harmony, hermes, kimi_k2, llama3_json"; }
const char *answer_grammar_marks_names(void) { return "harmony, think"; }

bool answer_grammar_has(const answer_grammar *grammar, const answer_marks *marks, const char *text, size_t bytes) {
  const answer_grammar none = {0}, g = grammar ? *grammar : none;
  bool is_harmony = g.body == ANSWER_BODY_MESSAGES || (marks && marks->are_messages);
  const char *const all[] = {
    is_harmony ? ANSWER_HARMONY_START ANSWER_HARMONY_CHANNEL ANSWER_HARMONY_CONSTRAIN ANSWER_HARMONY_MESSAGE ANSWER_HARMONY_END
      ANSWER_HARMONY_CALL ANSWER_HARMONY_RETURN : NULL,
    marks ? marks->open : NULL, marks ? marks->close : NULL, g.section_open, g.section_close, g.call_open, g.call_close, g.name_close,
    g.key_open, g.key_close, g.value_open, g.value_close};
  for (size_t i = 0; i < ARRAY_LEN(all); i++)
    for (size_t at = 0; all[i] && bytes > 0 && at + bytes <= strlen(all[i]); at++)
      if (memcmp(all[i] + at, text, bytes) == 0) return true;
  return false;
}
