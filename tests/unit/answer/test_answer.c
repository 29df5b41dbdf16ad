/* test_answer.c - thoughts and calls in answers as models write them, in every grammar, and in answers that are nearly such.
 *
 * Every text is read whole, byte by byte and in random pieces, and must give the same. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "answer_fixture.h"
#include "engine/answer/schema.h"

#define CUTS 12u

static json_t *tools;

typedef struct answer_case {
  const char *grammar; /* NULL: none */
  const char *text, *thought, *content, *calls;
  const char *error; /* what it contains; NULL: there is none */
} answer_case;

static const char TOOLS[] =
  "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":{"
  "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\",\"minimum\":1},\"unit\":{\"enum\":[\"C\",\"F\"]},"
  "\"places\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/place\"}}},\"required\":[\"city\"],\"additionalProperties\":false,"
  "\"$defs\":{\"place\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"number\"}},\"required\":[\"x\"]}}}}},"
  "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";


/* The ids without the models' own are compared apart: their digits follow from the seed. */
static void strip_ids(strbuf *calls) {
  size_t kept = 0;
  for (size_t at = 0; at < calls->count;) {
    const char *line = calls->bytes + at, *end = memchr(line, '\n', calls->count - at);
    size_t bytes = (size_t)(end + 1 - line), skip = bytes > 30 && memcmp(line, "call_", 5) == 0 ? 30 : 0;
    memmove(calls->bytes + kept, line + skip, bytes - skip);
    kept += bytes - skip;
    at += bytes;
  }
  calls->count = kept;
}

static void expect(const char *what, const strbuf *found, const char *expected, const char *text) {
  if (!answer_fixture_is(found, expected))
    fail_msg("%s\n%s: expected \"%s\", found \"%.*s\"", text, what, expected, (int)found->count, found->bytes);
}

static answer_form form_of(const char *grammar) {
  bool is_harmony = grammar && strcmp(grammar, "harmony") == 0;
  answer_form form = {.marks = answer_grammar_find_marks(is_harmony ? "harmony" : "think"), .tools = tools,
                      .calls_max = UINT32_MAX, .is_apart = true};
  if (grammar) assert_non_null(form.grammar = answer_grammar_find(grammar));
  return form;
}

static void check_cuts(const answer_form *form, const char *text) {
  size_t bytes = strlen(text);
  answer_read whole = answer_fixture_read(form, text, bytes, 0, 0);
  for (uint64_t cut = 0; cut < CUTS; cut++) {
    answer_read pieces = answer_fixture_read(form, text, bytes, cut ? 7 : 1, cut);
    if (!answer_fixture_is_same(&whole, &pieces)) fail_msg("%s: read otherwise in pieces (%u)", text, (unsigned)cut);
    answer_fixture_close(&pieces);
  }
  answer_fixture_close(&whole);
}

static void check_case(const answer_form *form, const answer_case *c) {
  answer_read read = answer_fixture_read(form, c->text, strlen(c->text), 0, 0);
  assert_false(read.failed);
  strip_ids(&read.calls);
  expect("calls", &read.calls, c->calls, c->text);
  expect("content", &read.content, c->content, c->text);
  expect("thought", &read.thought, c->thought, c->text);
  if (c->error ? !strstr(read.error, c->error) : *read.error != 0) fail_msg("%s\nerror: %s", c->text, read.error);
  answer_fixture_close(&read);
  check_cuts(form, c->text);
}

static void check_all(const answer_case *cases, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const answer_form form = form_of(cases[i].grammar);
    check_case(&form, &cases[i]);
  }
}

#define PARIS "{\"city\": \"Paris\"}"
#define V3_CALL(args) "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n" args "\n```<｜tool▁call▁end｜>"
#define V31_CALL(name, args) "<｜tool▁call▁begin｜>" name "<｜tool▁sep｜>" args "<｜tool▁call▁end｜>"
#define BLOCK(calls) "<｜tool▁calls▁begin｜>" calls "<｜tool▁calls▁end｜>"
#define KIMI_CALL(id, args) "<|tool_call_begin|>" id "<|tool_call_argument_begin|>" args "<|tool_call_end|>"
#define KIMI(calls) "<|tool_calls_section_begin|>" calls "<|tool_calls_section_end|>"
#define DSML_TEXT(key, value) "<｜DSML｜parameter name=\"" key "\" string=\"true\">" value "</｜DSML｜parameter>\n"
#define DSML_JSON(key, value) "<｜DSML｜parameter name=\"" key "\" string=\"false\">" value "</｜DSML｜parameter>\n"
#define DSML_CALL(name, pairs) "<｜DSML｜invoke name=\"" name "\">\n" pairs "</｜DSML｜invoke>\n"
#define DSML(calls) "<｜DSML｜function_calls>\n" calls "</｜DSML｜function_calls>"

static void thoughts_are_apart(void **state) {
  (void)state;
  static const answer_case cases[] = {
    {NULL, "<think>\nHm.\n</think>\n\nYes.", "\nHm.\n", "\n\nYes.", "", NULL},
    {NULL, " \n<think>a</think>b<think>c</think>", "a", "b<think>c</think>", "", NULL},
    {NULL, "Yes.</think> <think>no</think>", "", "Yes.</think> <think>no</think>", "", NULL},
    {NULL, "<think></think>b", "", "b", "", NULL},
    {NULL, "<think>never ends </thin", "never ends </thin", "", "", NULL},
    {NULL, "<thi", "", "<thi", "", NULL},
    {NULL, "  \n ", "", "  \n ", "", NULL},
    {NULL, "<think>a < b </ think></think>", "a < b </ think>", "", "", NULL},
    {"hermes", "<think>say <tool_call>{}</tool_call></think>ok", "say <tool_call>{}</tool_call>", "ok", "", NULL},
    {"kimi_k2", "<think>a" KIMI(KIMI_CALL("functions.now:0", "{}")), "a", "", "functions.now:0 now {}\n", NULL},
    {"deepseek_v31", "<think>a" BLOCK(V31_CALL("now", "{}")), "a" BLOCK(V31_CALL("now", "{}")), "", "", NULL},
  };
  check_all(cases, ARRAY_LEN(cases));
}

static void prompt_may_open_or_close_the_thought(void **state) {
  (void)state;
  answer_form form = form_of(NULL);
  form.begins_inside = true;
  static const answer_case inside = {NULL, "\nHm.</think>Yes.", "\nHm.", "Yes.", "", NULL},
    marked = {NULL, "<think>a</think>b", "<think>a", "b", "", NULL};
  check_case(&form, &inside);
  check_case(&form, &marked);
  answer_read nothing = answer_fixture_read(&form, "", 0, 0, 0);
  assert_true(nothing.is_inside);
  answer_fixture_close(&nothing);
  form.begins_inside = false;
  form.begins_after = true;
  static const answer_case after = {NULL, "<think>a</think>b", "", "<think>a</think>b", "", NULL};
  check_case(&form, &after);
}

static void thoughts_that_stay_content_hide_calls(void **state) {
  (void)state;
  answer_form form = form_of("hermes");
  form.is_apart = false;
  static const answer_case c = {
    "hermes", "\n<think>a <tool_call></think> b\n<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>", "",
    "\n<think>a <tool_call></think> b", "now {}\n", NULL};
  check_case(&form, &c);
}

static void calls_of_every_grammar_are_read(void **state) {
  (void)state;
  static const answer_case cases[] = {
    {"hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " PARIS "}\n</tool_call>", "", "", "get_weather " PARIS "\n", NULL},
    {"hermes", "I look.\n\n<tool_call>{\"arguments\":{ \"city\" : \"</tool_call> \\\" } ]\" } ,\"name\":\"get_weather\"}</tool_call>\n"
               "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n", "", "I look.",
     "get_weather { \"city\" : \"</tool_call> \\\" } ]\" }\nnow {}\n", NULL},
    {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>\n\nThat is all. ", "", "\n\nThat is all. ", "now {}\n", NULL},
    {"deepseek_v3", "One moment." BLOCK(V3_CALL(PARIS) "\n" V3_CALL("{\"city\": \"Rom\", \"days\": 2}")), "", "One moment.",
     "get_weather " PARIS "\nget_weather {\"city\": \"Rom\", \"days\": 2}\n", NULL},
    {"deepseek_v3", BLOCK(V3_CALL("{\"city\": \"```\"}")), "", "", "get_weather {\"city\": \"```\"}\n", NULL},
    {"deepseek_v31", "<think>x</think>" BLOCK(V31_CALL("get_weather", PARIS) V31_CALL("now", "{}")), "x", "",
     "get_weather " PARIS "\nnow {}\n", NULL},
    {"deepseek_v31", "<｜tool▁calls▁begin｜>" V31_CALL("now", "{}"), "", "", "now {}\n", NULL},
    {"deepseek_v32", "Let me see.\n\n" DSML(DSML_CALL("get_weather", DSML_TEXT("city", "\"Łódź\" ") DSML_JSON("days", "3"))
     DSML_CALL("now", "")), "", "Let me see.", "get_weather {\"city\": \"\\\"Łódź\\\" \", \"days\": 3}\nnow {}\n", NULL},
    {"deepseek_v32", DSML(DSML_CALL("get_weather", DSML_TEXT("city", "a") DSML_JSON("places", "[{\"x\": 1.50}]"))), "", "",
     "get_weather {\"city\": \"a\", \"places\": [{\"x\": 1.50}]}\n", NULL},
    {"glm45", "<think></think>\nI look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>123</arg_value>\n"
              "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>", "", "\nI look.",
     "get_weather {\"city\": \"123\", \"days\": 3}\n", NULL},
    {"glm45", "<tool_call>get_weather<arg_key>city</arg_key><arg_value> a\n</arg_value><arg_key>places</arg_key>"
              "<arg_value>[{\"x\": 1}]</arg_value></tool_call><tool_call>now</tool_call>", "", "",
     "get_weather {\"city\": \" a\\n\", \"places\": [{\"x\": 1}]}\nnow {}\n", NULL},
    {"kimi_k2", "Ok" KIMI(KIMI_CALL("functions.get_weather:0", PARIS) KIMI_CALL("functions.now:1", "{}")), "", "Ok",
     "functions.get_weather:0 get_weather " PARIS "\nfunctions.now:1 now {}\n", NULL},
    {"llama3_json", "{\"name\": \"get_weather\", \"parameters\": " PARIS "}", "", "", "get_weather " PARIS "\n", NULL},
    {"llama3_json", "<|python_tag|>{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}; "
     "{\"name\": \"now\", \"parameters\": { }}\n", "", "", "now {}\nnow { }\n", NULL},
    {"llama3_json", "{\"name\": \"now\", \"parameters\": {}} done", "", " done", "now {}\n", NULL},
    {"llama3_json", "It is {\"name\": \"now\", \"parameters\": {}}", "", "It is {\"name\": \"now\", \"parameters\": {}}", "", NULL},
  };
  check_all(cases, ARRAY_LEN(cases));
}

#define STAYS(grammar, text, error) {grammar, text, "", text, "", error}
#define HERMES(name, args) "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " args "}\n</tool_call>"

static void what_is_no_call_stays_text(void **state) {
  (void)state;
  static const answer_case cases[] = {
    STAYS("hermes", " \n" HERMES("get_wether", PARIS) " ", "call 1: get_wether is not one of the request's tools"),
    STAYS("hermes", HERMES("get_weather", "{\"days\": 3}"), "arguments.city: expected a value"),
    STAYS("hermes", HERMES("get_weather", "{\"city\": 3}"), "arguments.city: expected type string"),
    STAYS("hermes", HERMES("get_weather", "{\"city\": \"a\", \"days\": 0}"), "arguments.days: expected minimum"),
    STAYS("hermes", HERMES("get_weather", "{\"city\": \"a\", \"unit\": \"K\"}"), "arguments.unit: expected a value of enum"),
    STAYS("hermes", HERMES("get_weather", "{\"city\": \"a\", \"more\": 1}"), "arguments.more: expected no such property"),
    STAYS("hermes", HERMES("get_weather", "{\"city\": \"a\", \"places\": [{\"x\": 1}, {}]}"), "arguments.places[1].x"),
    STAYS("hermes", HERMES("get_weather", "{\"city\": \"a\", \"city\": \"b\"}"), "call 1: expected JSON"),
    STAYS("hermes", HERMES("get_weather", "\"{}\""), "are not a JSON object"),
    STAYS("hermes", "<tool_call>\n{\"name\": \"now\"}\n</tool_call>", "expected an object with name and arguments"),
    STAYS("hermes", "<tool_call>\n{\"name\": \"now\", \"arguments\": {]}\n</tool_call>", "expected"),
    STAYS("hermes", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}, \"and\": 1}\n</tool_call>", "expected an object"),
    STAYS("hermes", "<tool_call>\nnow()\n</tool_call>", "expected a JSON object"),
    STAYS("hermes", "a <tool_call>\n{\"name\": \"now\", \"argu", "call 1: the answer ends within it"),
    STAYS("hermes", "a <tool_cal b < c <tool_call", NULL),
    STAYS("hermes", "\n  <tool_call>", "the answer ends within it"),
    STAYS("deepseek_v3", BLOCK(V31_CALL("now", "{}")), "expected a call"),
    STAYS("deepseek_v3", BLOCK(""), "a section without a call"),
    STAYS("deepseek_v31", BLOCK(V31_CALL("now", "{\"a\": nul}")), "the arguments of now are not a JSON object"),
    STAYS("deepseek_v31", BLOCK(V31_CALL("now", "[1]")), "expected a JSON object"),
    STAYS("deepseek_v31", BLOCK(V31_CALL("no\nwhere", "{}")) "\n", "is not one of"),
    STAYS("deepseek_v32", DSML(DSML_CALL("get_weather", DSML_JSON("city", "a"))), "are not a JSON object"),
    STAYS("deepseek_v32", DSML(DSML_CALL("get_weather", DSML_JSON("days", "1, \"city\": \"a\""))), "are not a JSON object"),
    STAYS("deepseek_v32", DSML(DSML_CALL("now", "x")), "expected an argument or the end"),
    STAYS("deepseek_v32", DSML(DSML_CALL("now", "<｜DSML｜parameter name=\"a\" string=\"maybe\">b</｜DSML｜parameter>")), "expected a value"),
    STAYS("glm45", "<tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value>x</arg_value>\n</tool_call>", "arguments.city"),
    STAYS("glm45", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>", "expected a name"),
    STAYS("kimi_k2", KIMI(KIMI_CALL("now:0", "{}")), "expected an id"),
    STAYS("kimi_k2", KIMI(KIMI_CALL("functions.now", "{}")), "expected an id"),
    STAYS("llama3_json", "<|python_tag|>brave_search.call(query=\"a\")", "expected a JSON object"),
    STAYS("llama3_json", "{\"answer\": 42}", "expected an object with name and parameters"),
    {"hermes", HERMES("now", "{}") "\n" HERMES("nowhere", "{}") "\n" HERMES("now", "{}"), "", "\n" HERMES("nowhere", "{}"),
     "now {}\nnow {}\n", "call 2: nowhere"},
    {"deepseek_v31", BLOCK(V31_CALL("now", "{}") V31_CALL("nowhere", "{}")), "", V31_CALL("nowhere", "{}") "<｜tool▁calls▁end｜>", "now {}\n",
     "call 2: nowhere"},
    {"deepseek_v31", BLOCK(V31_CALL("now", "{}") "and" V31_CALL("now", "{}")), "", "and" V31_CALL("now", "{}") "<｜tool▁calls▁end｜>",
     "now {}\n", "call 2: expected a call"},
    {NULL, HERMES("now", "{}"), "", HERMES("now", "{}"), "", NULL},
  };
  check_all(cases, ARRAY_LEN(cases));
}

#define CHANNEL(name) "<|channel|>" name "<|message|>"
#define NEXT "<|start|>assistant"
#define TO(name) "<|channel|>commentary to=functions." name " <|constrain|>json<|message|>"

static void messages_of_harmony_are_read(void **state) {
  (void)state;
  static const answer_case cases[] = {
    {"harmony", CHANNEL("analysis") "Hm.<|end|>" NEXT CHANNEL("final") "Yes.<|return|>", "Hm.", "Yes.", "", NULL},
    {"harmony", CHANNEL("analysis") "Hm.<|end|>" NEXT TO("get_weather") PARIS "<|call|>", "Hm.", "", "get_weather " PARIS "\n", NULL},
    /* The stop token that ends a message is no part of the answer. */
    {"harmony", TO("get_weather") " " PARIS "\n", "", "", "get_weather " PARIS "\n", NULL},
    {"harmony", CHANNEL("final") "Yes. <|no", "", "Yes. <|no", "", NULL},
    /* The recipient in the place of the role, no mark before the type, no type, a type after the mark and a blank. */
    {"harmony", " to=functions.now<|channel|>commentary json<|message|>{}<|call|>", "", "", "now {}\n", NULL},
    {"harmony", NEXT " to=functions.now<|channel|>commentary<|constrain|>json<|message|>{}<|call|>", "", "", "now {}\n", NULL},
    {"harmony", "<|channel|>commentary to=functions.now<|message|>{}<|end|>" NEXT "<|channel|>analysis to=functions.now code<|message|>{ }",
     "", "", "now {}\nnow { }\n", NULL},
    {"harmony", "<|channel|>commentary to=functions.now <|constrain|> json<|message|>{}", "", "", "now {}\n", NULL},
    {"harmony", TO("get_weather") "{\"city\": \"<|call|> \\\" }<|start|>\"}<|call|>", "", "",
     "get_weather {\"city\": \"<|call|> \\\" }<|start|>\"}\n", NULL},
    /* Several of a kind; commentary without a recipient, and a message without a channel, are content. */
    {"harmony", CHANNEL("analysis") "a<|end|>" NEXT CHANNEL("commentary") "b<|end|>\n" NEXT CHANNEL("analysis") "c<|end|>" NEXT
     CHANNEL("analysis") "<|end|>" NEXT CHANNEL("final") "d", "a\nc", "b\nd", "", NULL},
    {"harmony", "<|message|>a<|end|>", "", "a", "", NULL},
    /* An end that is left out. */
    {"harmony", CHANNEL("analysis") "a" NEXT CHANNEL("final") "b", "a", "b", "", NULL},
    /* Unfinished. */
    {"harmony", CHANNEL("analysis") "Hm. <|en", "Hm. <|en", "", "", NULL},
    {"harmony", CHANNEL("analysis") "Hm.<|end|>", "Hm.", "", "", NULL},
    {"harmony", CHANNEL("analysis") "Hm.<|end|> \n<|sta", "Hm.", " \n<|sta", "", NULL},
    {"harmony", CHANNEL("analysis") "Hm.<|end|>" NEXT "<|chan", "Hm.", NEXT "<|chan", "", "message 2: the answer ends within its header"},
    {"harmony", TO("get_weather") "{\"city\": \"Par", "", TO("get_weather") "{\"city\": \"Par", "", "are not a JSON object"},
    /* No messages. */
    {"harmony", "It is <|end| so", "", "It is <|end| so", "", NULL},
    {"harmony", "to be", "", "to be", "", NULL},
    {"harmony", " \n", "", " \n", "", NULL},
  };
  check_all(cases, ARRAY_LEN(cases));
}

static void what_harmony_does_not_have_stays_text(void **state) {
  (void)state;
  static const answer_case cases[] = {
    STAYS("harmony", CHANNEL("thought") "a<|end|>", "message 1: expected the channel analysis, commentary or final, found thought"),
    STAYS("harmony", "<|channel|>final final<|channel|>final<|message|>a", "message 1: expected a header"),
    STAYS("harmony", "<|channel|><|message|>a", "message 1: expected a header"),
    STAYS("harmony", "<|channel|>final<|end|>", "message 1: expected a header and <|message|>"),
    STAYS("harmony", "<|start|>user<|message|>a<|end|>", "expected the role assistant, found user"),
    STAYS("harmony", "<|channel|>commentary to=python code<|message|>1+1<|call|>", "expected the recipient functions.NAME, found python"),
    STAYS("harmony", TO("nowhere") "{}<|call|>", "message 1: nowhere is not one of the request's tools"),
    STAYS("harmony", TO("get_weather") "{}<|call|>", "arguments.city: expected a value"),
    STAYS("harmony", TO("now") "{} {}<|call|>", "are not a JSON object"),
    STAYS("harmony", TO("now") "<|call|>", "are not a JSON object"),
    STAYS("harmony", TO("now") "{\"a\": [<|call|>" NEXT CHANNEL("final") "a", "are not a JSON object"),
    {"harmony", CHANNEL("final") "a<|end|>b<|end|>" NEXT CHANNEL("final") "c", "", "ab<|end|>\nc", "", "message 2: expected <|start|>"},
    {"harmony", TO("nowhere") "{}<|call|>" NEXT TO("now") "{}", "", TO("nowhere") "{}<|call|>", "now {}\n", "message 1: nowhere"},
    {"harmony", NEXT NEXT CHANNEL("final") "a", "", NEXT "a", "", "message 1: expected a header"},
  };
  check_all(cases, ARRAY_LEN(cases));
  char text[2048] = "<|channel|>final ";
  memset(text + strlen(text), 'x', 1000);
  const answer_form form = form_of("harmony");
  answer_read read = answer_fixture_read(&form, text, strlen(text), 0, 0); /* the header is not held for ever */
  assert_int_equal(read.content.count, strlen(text));
  assert_non_null(strstr(read.error, "message 1: expected a header"));
  answer_fixture_close(&read);
  check_cuts(&form, text);
}

static void harmony_is_read_as_the_form_says(void **state) {
  (void)state;
  static const char both[] = CHANNEL("analysis") "a<|end|>" NEXT TO("now") "{}<|call|>";
  answer_form form = form_of("harmony");
  form.grammar = NULL; /* thoughts alone: calls stay content */
  static const answer_case thoughts = {"", both, "a", NEXT TO("now") "{}<|call|>", "", NULL};
  check_case(&form, &thoughts);
  form = form_of("harmony");
  form.is_apart = false; /* calls alone: thoughts stay content */
  static const answer_case calls = {"", both, "", CHANNEL("analysis") "a<|end|>", "now {}\n", NULL};
  check_case(&form, &calls);
  form = form_of("harmony");
  form.begins_inside = true;
  static const answer_case inside = {"", "a<|end|>" NEXT CHANNEL("final") "b", "a", "b", "", NULL};
  check_case(&form, &inside);
  form = form_of("harmony");
  form.begins_after = true;
  form.calls_max = 1;
  static const answer_case after = {"", "b <|channel|>final<|end|>" NEXT TO("now") "{}<|call|>" NEXT TO("now") "{}", "",
                                    "b <|channel|>final" NEXT TO("now") "{}", "now {}\n", "message 3: the request allows 1"};
  check_case(&form, &after);
}

/* A schema that refers to itself, and one that asks for more work than any has. */
static void schemas_are_bounded(void **state) {
  (void)state;
  static const struct { const char *schema, *value, *why; } cases[] = {
    {"{\"$ref\":\"#\"}", "{}", "less depth"},
    {"{\"$ref\":\"#/nowhere\"}", "{}", "a place in the schema"},
    {"{\"anyOf\":[{\"type\":\"array\"},{\"type\":[\"object\",\"null\"]}]}", "{}", NULL},
    {"{\"oneOf\":[{},{\"type\":\"object\"}]}", "{}", "exactly one"},
    {"{\"additionalProperties\":{\"maxLength\":2}}", "{\"a\":\"\u0141\u00f3\"}", NULL},
    {"{\"additionalProperties\":{\"maxLength\":2}}", "{\"a\":\"abc\"}", "maxLength"},
    {"{\"properties\":{\"a\":{\"exclusiveMinimum\":1,\"type\":\"integer\"}}}", "{\"a\":2.0}", NULL},
    {"{\"properties\":{\"a\":{\"exclusiveMinimum\":1}}}", "{\"a\":1}", "exclusiveMinimum"},
    {"{\"properties\":{\"a\":{\"const\":1}}}", "{\"a\":1.0}", NULL}, {"false", "{}", "false"}, {"[7]", "{}", NULL},
    {"{\"required\":[\"a\",7],\"properties\":7,\"enum\":7,\"type\":7}", "{\"a\":1}", NULL},
    {"{\"allOf\":[{\"allOf\":[{\"allOf\":[{\"anyOf\":[{\"type\":\"array\"},{\"required\":[\"b\"]}]}]}]}]}", "{}", "anyOf"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char why[ANSWER_ERROR_BYTES] = "";
    json_t *schema = json_loads(cases[i].schema, JSON_DECODE_ANY, NULL), *value = json_loads(cases[i].value, JSON_DECODE_ANY, NULL);
    assert_true(schema && value);
    bool is_good = answer_schema_check(schema, value, "arguments", why, sizeof why);
    if (is_good != !cases[i].why || (!is_good && !strstr(why, cases[i].why))) fail_msg("%s: %s", cases[i].schema, why);
    json_decref(schema);
    json_decref(value);
  }
  /* 2^25 ways to fail come before the one that fits. */
  json_t *schema = json_pack("{s:s}", "type", "null"), *value = json_object();
  for (int level = 0; level < 25; level++) schema = json_pack("{s:[O,o]}", "anyOf", schema, schema);
  schema = json_pack("{s:[o,{}]}", "anyOf", schema);
  char why[ANSWER_ERROR_BYTES] = "";
  assert_false(answer_schema_check(schema, value, "arguments", why, sizeof why));
  json_decref(schema);
  json_decref(value);
}

static void further_calls_stay_text_where_one_is_allowed(void **state) {
  (void)state;
  answer_form form = form_of("hermes");
  form.calls_max = 1;
  static const answer_case c = {"hermes", HERMES("now", "{}") HERMES("now", "{}"), "", HERMES("now", "{}"), "now {}\n",
                                "parallel_tool_calls"};
  check_case(&form, &c);
}

static void ids_follow_from_the_seed_and_the_number(void **state) {
  (void)state;
  static const char text[] = HERMES("now", "{}") HERMES("now", "{}");
  answer_form form = form_of("hermes");
  answer_read first = answer_fixture_read(&form, text, strlen(text), 0, 0), again = answer_fixture_read(&form, text, strlen(text), 3, 1);
  form.seed.bytes[3] = 1;
  answer_read other = answer_fixture_read(&form, text, strlen(text), 0, 0);
  assert_true(answer_fixture_is_same(&first, &again));
  assert_false(answer_fixture_is_same(&first, &other));
  assert_int_equal(first.call_count, 2);
  assert_memory_not_equal(first.calls.bytes, first.calls.bytes + first.calls.count / 2, 29);
  assert_memory_equal(first.calls.bytes, "call_", 5);
  answer_fixture_close(&first);
  answer_fixture_close(&again);
  answer_fixture_close(&other);
}

static void templates_tell_their_grammar(void **state) {
  (void)state;
  static const struct { const char *text, *grammar; } cases[] = {
    {"<|channel|>commentary json<|message|>..<|call|>", "harmony"},
    {"{{ '<|tool_calls_section_begin|>' }}", "kimi_k2"}, {"<｜tool▁calls▁begin｜>..<｜tool▁sep｜>..```json", "deepseek_v3"},
    {"<｜tool▁calls▁begin｜>..<｜tool▁sep｜>", "deepseek_v31"}, {"<｜DSML｜function_calls>", "deepseek_v32"},
    {"<tool_call>{{ name }}<arg_key>", "glm45"}, {"<tool_call>\n{\"name\": .., \"arguments\": ..}", "hermes"},
    {"<tool_call>\n<function=name> arguments", NULL}, {"<|start_header_id|>..\"parameters\": ", "llama3_json"},
    {"{{ messages[0].content }}", NULL}, {"[TOOL_CALLS]", NULL}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    const answer_grammar *found = answer_grammar_of(cases[i].text);
    if (found ? !cases[i].grammar || strcmp(found->name, cases[i].grammar) != 0 : cases[i].grammar != NULL) fail_msg("%s", cases[i].text);
    if (found) assert_non_null(strstr(answer_grammar_names(), found->name));
  }
  assert_non_null(answer_grammar_marks_of("x.split('</think>')"));
  assert_string_equal(answer_grammar_marks_of("</think>")->name, "think");
  assert_string_equal(answer_grammar_marks_of("<|channel|>analysis<|message|>")->name, "harmony");
  assert_null(answer_grammar_marks_of("think"));
  const answer_grammar *llama = answer_grammar_find("llama3_json"), *v3 = answer_grammar_find("deepseek_v3");
  assert_true(answer_grammar_has(llama, NULL, "<|python_tag|>", 14));
  assert_true(answer_grammar_has(v3, NULL, "<｜tool▁sep｜>", strlen("<｜tool▁sep｜>")));
  assert_true(answer_grammar_has(NULL, answer_grammar_find_marks("think"), "<think>", 7));
  assert_false(answer_grammar_has(llama, NULL, "<|eot_id|>", 10));
  assert_true(answer_grammar_has(answer_grammar_find("harmony"), NULL, "<|constrain|>", 13));
  assert_true(answer_grammar_has(NULL, answer_grammar_find_marks("harmony"), "<|start|>", 9));
  assert_false(answer_grammar_has(answer_grammar_find("hermes"), answer_grammar_find_marks("think"), "<|start|>", 9));
}

static int open_tools(void **state) {
  (void)state;
  tools = json_loads(TOOLS, 0, NULL);
  return tools ? 0 : -1;
}

static int close_tools(void **state) {
  (void)state;
  json_decref(tools);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(thoughts_are_apart), cmocka_unit_test(prompt_may_open_or_close_the_thought),
    cmocka_unit_test(thoughts_that_stay_content_hide_calls), cmocka_unit_test(calls_of_every_grammar_are_read),
    cmocka_unit_test(what_is_no_call_stays_text), cmocka_unit_test(messages_of_harmony_are_read),
    cmocka_unit_test(what_harmony_does_not_have_stays_text), cmocka_unit_test(harmony_is_read_as_the_form_says),
    cmocka_unit_test(schemas_are_bounded),
    cmocka_unit_test(further_calls_stay_text_where_one_is_allowed),
    cmocka_unit_test(ids_follow_from_the_seed_and_the_number), cmocka_unit_test(templates_tell_their_grammar)};
  return cmocka_run_group_tests(tests, open_tools, close_tools);
}
