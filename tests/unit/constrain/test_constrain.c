/* test_constrain.c - what a regular expression or a JSON schema accepts, and the masks made of it.
 *
 * The judges: PCRE2 for expressions, jansson and a small validator for JSON, and for masks every token tried by itself. Control: a mask of
 * the state before differs from the right one. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tests/unit/unit.h"
#include <jansson.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"
#include "engine/constrain/constraint.h"
#include "engine/constrain/json_form.h"
#include "engine/constrain/masks.h"

static uint64_t random_state = 7;

static uint32_t below(uint32_t limit) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((random_state >> 33) % limit);
}

static verbatim_constraint *compile(enum verbatim_constraint_kind kind, const char *text) {
  verbatim_constraint *c = NULL;
  if (constraint_open(&c, kind, text, strlen(text)) != OK) fail_msg("%s: %s", text, fail_text());
  return c;
}

static bool accepts(const verbatim_constraint *c, const char *text, size_t bytes) {
  const uint32_t state = automaton_run(&c->automaton, AUTOMATON_START, (const uint8_t *)text, bytes);
  return state != AUTOMATON_DEAD && c->automaton.is_accepting[state];
}

/* A string of the language that takes random ways, ending where the automaton accepts and a coin says so. 0: none within `room` bytes. */
static size_t draw(const automaton *a, char *text, size_t room) {
  uint32_t state = AUTOMATON_START;
  for (size_t count = 0; count < room; count++) {
    uint8_t ways[256];
    uint32_t found = 0;
    for (uint32_t byte = 0; byte < 256; byte++)
      if (automaton_next(a, state, (uint8_t)byte) != AUTOMATON_DEAD) ways[found++] = (uint8_t)byte;
    if (a->is_accepting[state] && (found == 0 || below(6) == 0)) return count;
    assert_true(found > 0); /* no state is a dead end */
    const uint8_t byte = ways[below(found)];
    text[count] = (char)byte;
    state = automaton_next(a, state, byte);
  }
  return 0;
}

/* === Regular expressions ==================================================================================================== */

static const char *const EXPRESSIONS[] = {
    "abc", "", "a*", "(ab|cd)+e?", "[a-c]{2,4}", "(a|b)*abb", "[^a]b", ".{3}", "^a.c$", "\\d{3}-\\d{4}", "\\w+@\\w+\\.(com|org)",
    "[\\w.-]+", "x{0}y", "(?:a{2}){2}", "a{2,}", "(a?){3}b", "[]a]+", "[^]a]", "[a\\]b]", "\\x41\\x{42}", "(|a)b", "é+", "[à-ü]{2}",
    "[^\\d\\s]",
    "a+?b*?", "\\$\\^\\.", "(((a)))", "\\S\\s\\S", "[\\D]", "日本?語", "[\\x{1F600}-\\x{1F64F}]", "a|b|", "[a-c-]", "}{0}]", "\\n\\t\\/",
};

static void draw_text(char *text, size_t *bytes) {
  static const char *const PIECES[] = {"a", "b", "c", "d", "e", "A", "B", "0", "7", "-", ".", "@", "_", " ", "\n", "é", "ü", "日", "本",
                                       "語", "😀", "x", "y", "]", "com", "org", "\t", "/", "$", "^", "}"};
  *bytes = 0;
  for (uint32_t count = below(7); count > 0; count--) {
    const char *piece = PIECES[below(ARRAY_LEN(PIECES))];
    memcpy(text + *bytes, piece, strlen(piece));
    *bytes += strlen(piece);
  }
}

static pcre2_code *judge_of(const char *pattern) {
  char whole[256];
  int error;
  PCRE2_SIZE at;
  snprintf(whole, sizeof whole, "\\A(?:%s)\\z", pattern);
  pcre2_code *judge = pcre2_compile((PCRE2_SPTR)whole, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &at, NULL);
  assert_non_null(judge);
  return judge;
}

static bool judge_accepts(const pcre2_code *judge, const char *text, size_t bytes) {
  pcre2_match_data *match = pcre2_match_data_create_from_pattern(judge, NULL);
  const int result = pcre2_match(judge, (PCRE2_SPTR)text, bytes, 0, 0, match, NULL);
  pcre2_match_data_free(match);
  assert_true(result >= 0 || result == PCRE2_ERROR_NOMATCH);
  return result >= 0;
}

static void expressions_are_those_of_pcre2(void **state) {
  char text[64];
  size_t bytes;
  uint32_t accepted = 0;
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(EXPRESSIONS); i++) {
    verbatim_constraint *c = compile(VERBATIM_REGEX, EXPRESSIONS[i]);
    pcre2_code *judge = judge_of(EXPRESSIONS[i]);
    for (uint32_t k = 0; k < 600; k++) {
      const bool is_drawn = k % 3 == 0 && (bytes = draw(&c->automaton, text, sizeof text)) > 0;
      if (!is_drawn) draw_text(text, &bytes);
      if (accepts(c, text, bytes) != judge_accepts(judge, text, bytes)) fail_msg("%s: \"%.*s\"", EXPRESSIONS[i], (int)bytes, text);
      accepted += accepts(c, text, bytes);
    }
    pcre2_code_free(judge);
    constraint_close(c);
  }
  assert_true(accepted > 2000);
}

typedef struct refusal {
  enum verbatim_constraint_kind kind;
  const char *text, *reason;
  status code;
} refusal;

static void check_refusals(const refusal *list, size_t count) {
  for (size_t i = 0; i < count; i++) {
    verbatim_constraint *c = NULL;
    const status result = constraint_open(&c, list[i].kind, list[i].text, strlen(list[i].text));
    if (result != list[i].code || !strstr(fail_text(), list[i].reason)) fail_msg("%s: %d %s", list[i].text, result, fail_text());
    assert_null(c);
    fail_clear();
  }
}

/* Brute force: every text of up to 7 of these letters. */
static void a_mark_ends_the_text_where_it_first_stands(void **state) {
  static const char *const MARKS[] = {"a", "ab", "aab", "abab", "</b>", "aabaa"};
  static const char LETTERS[] = "ab</>";
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(MARKS); i++) {
    char parts[64], text[9] = "";
    uint32_t taken = 0, found = 0;
    snprintf(parts, sizeof parts, "[{\"text\":\"-\"},{\"until\":\"%s\"}]", MARKS[i]);
    verbatim_constraint *c = compile(VERBATIM_PARTS, parts);
    for (uint32_t number = 0; number < 78125; number++) { /* 5^7; the last letters may be left out */
      size_t length = 1;
      text[0] = '-';
      for (uint32_t rest = number; length < 8; rest /= 5) text[length++] = LETTERS[rest % 5];
      for (; length > 0; length--) {
        text[length] = 0;
        const char *first = strstr(text, MARKS[i]);
        const bool expected = first && first + strlen(MARKS[i]) == text + length;
        if (accepts(c, text, length) != expected) fail_msg("%s: %s", parts, text);
        taken += expected;
        found += first != NULL;
        if (number % 5) break;
      }
    }
    assert_true(taken > 0 && (found > taken || i == 0));
    constraint_close(c);
  }
}

static void parts_are_lists_of_lists(void **state) {
  static const struct { const char *text; bool is_taken; } TEXTS[] = {
      {"ab", true}, {"axb", true}, {"a12b", true}, {"a\"é\"b", true}, {"a", false}, {"axxb", false}, {"a1b", false}, {"a\"bb", false}};
  (void)state;
  verbatim_constraint *c = compile(VERBATIM_PARTS, "[{\"text\":\"a\"},{\"any\":[[],[{\"text\":\"x\"}],[{\"any\":[[{\"regex\":"
                                   "\"[0-9]{2}\"}],[{\"json_schema\":{\"type\":\"string\"}}]]}]]},{\"text\":\"b\"}]");
  for (size_t i = 0; i < ARRAY_LEN(TEXTS); i++) assert_true(accepts(c, TEXTS[i].text, strlen(TEXTS[i].text)) == TEXTS[i].is_taken);
  constraint_close(c);
}

static void what_is_not_offered_is_named(void **state) {
  static const refusal LIST[] = {
      {VERBATIM_REGEX, "(a", ") after a group", ERR_USAGE}, {VERBATIM_REGEX, "a)", "( before )", ERR_USAGE},
      {VERBATIM_REGEX, "*a", "an item before", ERR_USAGE}, {VERBATIM_REGEX, "a{3,2}", "n at most m", ERR_USAGE},
      {VERBATIM_REGEX, "[b-a]", "ascends", ERR_USAGE}, {VERBATIM_REGEX, "[a", "] after a set", ERR_USAGE},
      {VERBATIM_REGEX, "a\\", "a character after", ERR_USAGE}, {VERBATIM_REGEX, "\\1", "references", ERR_UNSUPPORTED},
      {VERBATIM_REGEX, "(?=a)", "what follows", ERR_UNSUPPORTED}, {VERBATIM_REGEX, "(?<n>a)", "named groups", ERR_UNSUPPORTED},
      {VERBATIM_REGEX, "(?i)a", "groups with (?", ERR_UNSUPPORTED}, {VERBATIM_REGEX, "a\\b", "assertions", ERR_UNSUPPORTED},
      {VERBATIM_REGEX, "\\pL", "Unicode", ERR_UNSUPPORTED}, {VERBATIM_REGEX, "a++", "possessive", ERR_UNSUPPORTED},
      {VERBATIM_REGEX, "a^b", "^ but at the start", ERR_UNSUPPORTED}, {VERBATIM_REGEX, "[[:alpha:]]", "[:alpha:]", ERR_UNSUPPORTED},
      {VERBATIM_REGEX, "a{20000}", "repetitions", ERR_LIMIT}, {VERBATIM_REGEX, "(a{1000}){1000}", "instructions", ERR_LIMIT},
      {VERBATIM_REGEX, "(a|b)*a(a|b){20}", "states", ERR_LIMIT}, {VERBATIM_REGEX, "[^\\x{0}-\\x{10ffff}]", "a set that holds", ERR_USAGE},
      {VERBATIM_REGEX, "\xff", "UTF-8", ERR_USAGE}, {VERBATIM_CHOICE, "[]", "one or more", ERR_USAGE},
      {VERBATIM_CHOICE, "[\"\"]", "not empty", ERR_USAGE}, {VERBATIM_CHOICE, "{", "JSON", ERR_USAGE},
      {VERBATIM_PARTS, "[{\"grammar\":\"x\"}]", "entry 0", ERR_USAGE},
      {VERBATIM_PARTS, "[{\"until\":\"\"}]", "not empty", ERR_USAGE}, {VERBATIM_PARTS, "[{\"any\":[]}]", "entry 0", ERR_USAGE},
      {VERBATIM_PARTS, "[{\"any\":[[{\"any\":[[{\"any\":[[{\"any\":[[{\"any\":[[{\"any\":[[{\"any\":[[{\"any\":[[{\"any"
       "\":[[]]}]]}]]}]]}]]}]]}]]}]]}]]}]", "lists within lists", ERR_LIMIT}, {VERBATIM_PARTS, "[]", "one or more", ERR_USAGE},
      {VERBATIM_JSON_OBJECT, "{}", "no text", ERR_USAGE},
      {VERBATIM_JSON_SCHEMA, "[]", "a schema", ERR_USAGE},
      {VERBATIM_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"multipleOf\":3}}}",
       "#/properties/a/multipleOf", ERR_UNSUPPORTED},
      {VERBATIM_JSON_SCHEMA, "{\"type\":\"integer\",\"multipleOf\":0}", "above 0", ERR_USAGE},
      {VERBATIM_JSON_SCHEMA, "{\"$ref\":\"#\"}", "contains itself", ERR_UNSUPPORTED},
      {VERBATIM_JSON_SCHEMA, "{\"$ref\":\"#/$defs/x\"}", "that is there", ERR_UNSUPPORTED},
      {VERBATIM_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "contains itself",
       ERR_UNSUPPORTED},
      {VERBATIM_JSON_SCHEMA, "{\"oneOf\":[]}", "#/oneOf", ERR_USAGE},
      {VERBATIM_JSON_SCHEMA, "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "#/oneOf is not offered", ERR_UNSUPPORTED},
      {VERBATIM_JSON_SCHEMA, "{\"oneOf\":[{\"const\":1},{\"enum\":[2,1.0]}]}", "#/oneOf is not offered", ERR_UNSUPPORTED},
      {VERBATIM_JSON_SCHEMA, "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":1}}},{\"type\":\"object\",\"properties\":"
       "{\"k\":{\"const\":2}},\"required\":[\"k\"]}]}", "#/oneOf is not offered", ERR_UNSUPPORTED},
      {VERBATIM_JSON_SCHEMA, "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"a\"]},{\"type\":\"object\","
       "\"properties\":{\"b\":{}},\"required\":[\"b\"]}]}", "#/oneOf is not offered", ERR_UNSUPPORTED},
      {VERBATIM_JSON_SCHEMA, "{\"type\":\"number\",\"minimum\":1e9}", "9 digits", ERR_UNSUPPORTED},
      {VERBATIM_JSON_SCHEMA, "{\"type\":\"number\",\"maximum\":0.0000001}", "6 after", ERR_UNSUPPORTED},
      {VERBATIM_JSON_SCHEMA, "{\"type\":\"number\",\"exclusiveMinimum\":1,\"exclusiveMaximum\":1.000001}", "a number between", ERR_USAGE},
      {VERBATIM_JSON_SCHEMA, "{\"type\":\"number\",\"multipleOf\":1,\"minimum\":0.1,\"maximum\":0.9}", "a number between", ERR_USAGE},
      {VERBATIM_JSON_SCHEMA, "{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "bounds", ERR_USAGE},
      {VERBATIM_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{},\"required\":[\"x\"]}", "#/required", ERR_UNSUPPORTED},
      {VERBATIM_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{\"x\":{}},\"additionalProperties\":true}", "additionalProperties",
       ERR_UNSUPPORTED},
      {VERBATIM_JSON_SCHEMA, "{\"type\":\"text\"}", "#/type", ERR_USAGE},
      {VERBATIM_JSON_SCHEMA, "{\"enum\":[\"a\",1],\"type\":\"string\"}", "values of the type", ERR_USAGE},
      {VERBATIM_JSON_SCHEMA, "{\"type\":\"string\",\"format\":\"email\"}", "#/format", ERR_UNSUPPORTED}};
  (void)state;
  check_refusals(LIST, ARRAY_LEN(LIST));
}

/* === JSON =================================================================================================================== */

typedef struct schema_case {
  const char *schema, *good[6], *bad[8];
} schema_case;

static const schema_case SCHEMAS[] = {
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},\"c\":{\"type\":\"null\"}},"
     "\"required\":[\"b\"]}",
     {"{\"a\":1,\"b\":true}", "{\"b\":false, \"c\":null}", "{\"b\": true}", "{\"a\": -7, \"b\": true, \"c\": null}"},
     {"{}", "{\"a\":1}", "{\"b\":true,\"a\":1}", "{\"b\":true,}", "{ \"b\":true}", "{\"b\":true,\"d\":1}", "{\"b\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"additionalProperties\":false}",
     {"{}", "{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"}, {"{,\"b\":2}", "{\"b\":2,\"a\":1}", "{\"a\":2}"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":-3,\"maximum\":117},\"minItems\":2,\"maxItems\":3}",
     {"[0,1]", "[-3, 117]", "[9,99,100]"}, {"[]", "[1]", "[1,2,3,4]", "[-4,1]", "[118,1]", "[01,1]", "[-0,1]"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":9,\"exclusiveMaximum\":1000}",
     {"10", "99", "100", "999"}, {"9", "1000", "-10", "010", "1e2"}},
    {"{\"type\":\"integer\",\"maximum\":-12}", {"-12", "-13", "-20", "-100"}, {"-11", "-2", "0", "12"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"日本語\"", "\"\\n\\\"\"", "\"\\ud83d\\ude00x\"", "\"\\u00e9\\/\""},
     {"\"a\"", "\"abcd\"", "\"\\ud83dab\"", "\"a\nb\"", "\"\\xab\"", "\"\\ude00a\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-c\\\"]+$\"}", {"\"abc\"", "\"a\\\"b\""}, {"\"\"", "\"d\"", "\"a\"b\""}},
    {"{\"type\":\"string\",\"pattern\":\"b\"}", {"\"b\"", "\"abc\"", "\"\\u0001b\\n\""}, {"\"\"", "\"ac\"", "\"\\u00e9b\""}},
    {"{\"type\":\"string\",\"format\":\"date\"}", {"\"2026-11-28\""}, {"\"2026-13-28\"", "\"26-1-1\""}},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/x\"}],\"$defs\":{\"x\":{\"enum\":[\"a\\nb\",1.5,{\"k\":[true]}]}}}",
     {"null", "\"a\\nb\"", "1.5", "{\"k\": [true]}"}, {"1.50", "\"ab\"", "{\"k\":[]}"}},
    {"{\"type\":[\"string\",\"null\"],\"maxLength\":1,\"description\":\"d\"}", {"null", "\"x\"", "\"\""}, {"\"xy\"", "nul"}},
    {"{\"type\":\"number\"}", {"0", "-1.5", "2e10", "3.25E-7"}, {"1.", ".5", "00", "+1", "1e", "NaN"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"}}}",
     {"[]", "[[]]", "[[true],[false,true]]"}, {"[[],]", "[true]"}},
    {"{}", {"[1,{\"a\":null}]", "\"x\"", "{}", "{\"a\":{\"b\":[\"c\"]}}"}, {"", "[1 ,2]", "{a:1}", "[[[[[[]]]]]]"}},
    {"{\"type\":\"object\"}", {"{}", "{\"x\": [1, 2]}"}, {"[]", "1"}},
    {"{\"type\":\"object\",\"additionalProperties\":false}", {"{}"}, {"{\"a\":1}"}},
    {"{\"type\":\"integer\",\"multipleOf\":1.0,\"minimum\":5}", {"5", "10"}, {"4", "5.0"}},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}", {"0", "1", "0.5", "1.000000", "0.000001"}, {"-0", "1.000001", "-0.1", "1e0",
     "0."}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":-2.5,\"exclusiveMaximum\":12}",
     {"-2.499999", "-1", "0", "11.999999", "-0.1", "7.25"}, {"-2.5", "-2.50", "12", "12.0", "-3", "00", "1.0000000"}},
    {"{\"type\":\"number\",\"multipleOf\":1,\"minimum\":0.5}", {"1", "999999999"}, {"0", "1.0", "1000000000"}},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":[\"integer\",\"null\"]},{\"const\":true}]}", {"\"x\"", "7", "null", "true"}, {"false",
     "[]"}},
    {"{\"oneOf\":[{\"$ref\":\"#/$defs/cat\"},{\"$ref\":\"#/$defs/dog\"}],\"discriminator\":{\"propertyName\":\"kind\"},\"$defs\":{\"cat\":"
     "{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"cat\"},\"age\":{\"type\":\"integer\"}},\"required\":[\"kind\","
     "\"age\"]},\"dog\":"
     "{\"type\":\"object\",\"properties\":{\"kind\":{\"enum\":[\"dog\",\"pup\"]}},\"required\":[\"kind\"]}}}",
     {"{\"kind\":\"cat\",\"age\":3}", "{\"kind\":\"pup\"}"}, {"{\"kind\":\"cat\"}", "{\"kind\":\"dog\",\"age\":3}"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"a\"]},{\"type\":\"object\","
     "\"properties\":"
     "{\"b\":{\"type\":\"null\"}},\"additionalProperties\":false}]}", {"{\"a\":null}", "{}", "{\"b\":null}"}, {"{\"a\":null,\"b\":null}"}},
    /* Within itself: a list, a tree, an expression; 16 levels, or fewer if these do not fit. */
    {"{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"const\":1},\"next\":{\"$ref\":\"#/$defs/n\"}}}},\"$ref\":"
     "\"#/$defs/n\"}",
     {"{}", "{\"v\":1}", "{\"next\":{\"next\":{\"v\":1}}}"}, {"{\"next\":null}"}},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", {"[]", "[[],[[]]]", "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]"},
     {"[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]", "[1]"}},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"object\",\"properties\":{\"l\":{\"$ref\":\"#\"},\"r\":{\"$ref\":\"#\"}},"
     "\"required\":[\"l\","
     "\"r\"]}]}", {"1", "{\"l\":1,\"r\":{\"l\":2,\"r\":3}}"}, {"{\"l\":1}", "{\"l\":1,\"r\":null}"}},
};

static void schemas_accept_what_is_valid(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(SCHEMAS); i++) {
    const schema_case *s = &SCHEMAS[i];
    verbatim_constraint *c = compile(VERBATIM_JSON_SCHEMA, s->schema);
    for (size_t k = 0; k < ARRAY_LEN(s->good) && s->good[k]; k++)
      if (!accepts(c, s->good[k], strlen(s->good[k]))) fail_msg("%s refuses %s", s->schema, s->good[k]);
    for (size_t k = 0; k < ARRAY_LEN(s->bad) && s->bad[k]; k++)
      if (accepts(c, s->bad[k], strlen(s->bad[k]))) fail_msg("%s accepts %s", s->schema, s->bad[k]);
    constraint_close(c);
  }
}

/* Numbers within random bounds: what is in the form is accepted exactly if it is within them, in the eyes of strtod. */
static void bounds_of_numbers_are_exact(void **state) {
  static const int64_t SIZES[] = {3, 100, 2000000, 30000000, 999999999999999};
  static const char *const KEYS[][2] = {{"minimum", "maximum"}, {"exclusiveMinimum", "exclusiveMaximum"}, {"minimum", "exclusiveMaximum"}};
  uint64_t random = 11;
  uint32_t seen[2] = {0, 0};
  (void)state;
  for (uint32_t trial = 0; trial < 40; trial++) {
    const int64_t size = SIZES[trial % ARRAY_LEN(SIZES)], unit = trial % 3 ? 1 : 10000;
    const int64_t first = (int64_t)(random_next(&random) % (uint64_t)size) - size / 2,
     second = (int64_t)(random_next(&random) % (uint64_t)size);
    const double low = (double)(first / unit * unit) / 1e6, high = (double)((first + second) / unit * unit + 2 * unit) / 1e6;
    const char *const *keys = KEYS[trial % ARRAY_LEN(KEYS)];
    char schema[256];
    if (high > 999999999) continue;
    snprintf(schema, sizeof schema, "{\"type\":\"number\",\"%s\":%.15g,\"%s\":%.15g}", keys[0], low, keys[1], high);
    verbatim_constraint *c = compile(VERBATIM_JSON_SCHEMA, schema);
    for (uint32_t k = 0; k < 300; k++) {
      const int decimals = (int)(random_next(&random) % 7);
      const int64_t near = (int64_t)(random_next(&random) % 9) - 4, any = (int64_t)(random_next(&random) % (uint64_t)(2 * size)) - size;
      char text[64];
      snprintf(text, sizeof text, "%.*f", decimals, (k % 3 == 0 ? (double)any : (k % 3 == 1 ? low : high) * 1e6 + (double)near) / 1e6);
      const double found = strtod(text, NULL);
      const bool above = keys[0][0] == 'e' ? found > low : found >= low, below = keys[1][0] == 'e' ? found < high : found <= high;
      const bool is_good = above && below && !(*text == '-' && !(found < 0)); /* no -0 */
      if (accepts(c, text, strlen(text)) != is_good) fail_msg("%s: %s", schema, text);
      seen[is_good]++;
    }
    constraint_close(c);
  }
  assert_true(seen[0] > 1000 && seen[1] > 1000);
}

/* A schema that leads back to itself gets as many levels as fit. */
static void recursion_is_as_deep_as_fits(void **state) {
  static const char schema[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"},\"b\":{\"$ref\":\"#\"},\"c\":{\"$ref\":"
   "\"#\"}}}";
  (void)state;
  verbatim_constraint *c = compile(VERBATIM_JSON_SCHEMA, schema);
  static const char five[] = "{\"c\":{\"b\":{\"a\":{\"a\":{}}}}}", six[] = "{\"c\":{\"b\":{\"a\":{\"a\":{\"a\":{}}}}}}";
  assert_true(accepts(c, five, strlen(five)));
  assert_false(accepts(c, six, strlen(six)));
  constraint_close(c);
  /* Even two levels do not fit. */
  strbuf wide = {0};
  strbuf_adds(&wide, "{\"type\":\"object\",\"properties\":{");
  for (int i = 0; i < 600; i++) strbuf_addf(&wide, "%s\"p%d\":{\"$ref\":\"#\"}", i ? "," : "", i);
  strbuf_addf(&wide, "}}");
  fail_clear();
  assert_int_equal(constraint_open(&c, VERBATIM_JSON_SCHEMA, wide.bytes, wide.count), ERR_LIMIT);
  strbuf_close(&wide);
}

/* Whatever way is taken, the text is JSON for another parser. */
static void what_a_schema_gives_is_json(void **state) {
  static char text[4096];
  uint32_t count = 0;
  (void)state;
  for (size_t i = 0; i <= ARRAY_LEN(SCHEMAS); i++) {
    verbatim_constraint *c = i < ARRAY_LEN(SCHEMAS) ? compile(VERBATIM_JSON_SCHEMA, SCHEMAS[i].schema) : compile(VERBATIM_JSON_OBJECT, "");
    for (uint32_t k = 0; k < 40; k++) {
      json_error_t error;
      const size_t bytes = draw(&c->automaton, text, sizeof text);
      if (bytes == 0) continue;
      json_t *value = json_loadb(text, bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
      if (!value) fail_msg("%.*s: %s", (int)bytes, text, error.text);
      json_decref(value);
      count++;
    }
    constraint_close(c);
  }
  assert_true(count > 300);
}

/* Every integer near the bounds of random ranges. */
static void integers_are_bounded_exactly(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 60; i++) {
    char text[128], number[24];
    const int64_t low = (int64_t)below(2500) - 1200, high = low + below(i % 3 ? 1500 : 12);
    snprintf(text, sizeof text, "{\"type\":\"integer\",\"minimum\":%lld,\"maximum\":%lld}", (long long)low, (long long)high);
    verbatim_constraint *c = compile(VERBATIM_JSON_SCHEMA, text);
    for (int64_t n = -1300; n < 3000; n++) {
      const int bytes = snprintf(number, sizeof number, "%lld", (long long)n);
      if (accepts(c, number, (size_t)bytes) != (n >= low && n <= high)) fail_msg("%s: %lld", text, (long long)n);
    }
    constraint_close(c);
  }
}

static void forms_of_json_are_read(void **state) {
  static const struct {
    const char *name, *value;
    enum verbatim_constraint_kind kind; /* 0: none asked for, -1: refused */
    const char *text;
  } FORMS[] = {
      {"response_format", "{\"type\":\"text\"}", 0, ""}, {"response_format", "{\"type\":\"text\",\"json_schema\":null}", 0, ""},
      {"response_format", "{\"type\":\"json_object\"}", VERBATIM_JSON_OBJECT, ""},
      {"response_format",
       "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":true,\"description\":null,\"schema\":{\"type\":\"null\"}}}",
       VERBATIM_JSON_SCHEMA, "{\"type\":\"null\"}"},
      {"structured_outputs", "{\"choice\":[\"a\",\"b\"]}", VERBATIM_CHOICE, "[\"a\",\"b\"]"},
      {"structured_outputs", "{\"regex\":\"a+\",\"json\":null}", VERBATIM_REGEX, "a+"},
      {"structured_outputs", "{\"json\":\"{\\\"type\\\": \\\"null\\\"}\"}", VERBATIM_JSON_SCHEMA, "{\"type\": \"null\"}"},
      {"structured_outputs", "{\"json_object\":true}", VERBATIM_JSON_OBJECT, ""}, {"guided_choice", "[\"x\"]", VERBATIM_CHOICE, "[\"x\"]"},
      {"guided_regex", "\"x\"", VERBATIM_REGEX, "x"}, {"guided_json", "{\"type\":\"null\"}", VERBATIM_JSON_SCHEMA, "{\"type\":\"null\"}"},
      {"structured_outputs", "{}", (enum verbatim_constraint_kind)-1, "one of choice"},
      {"structured_outputs", "{\"choice\":[\"a\"],\"regex\":\"a\"}", (enum verbatim_constraint_kind)-1, "one of choice"},
      {"structured_outputs", "{\"grammar\":\"x\"}", (enum verbatim_constraint_kind)-1, "grammar"},
      {"response_format", "{\"type\":\"xml\"}", (enum verbatim_constraint_kind)-1, "type is"},
      {"response_format", "{\"type\":\"json_schema\"}", (enum verbatim_constraint_kind)-1, "response_format"},
      {"response_format", "{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{}}}", (enum verbatim_constraint_kind)-1, "name"},
      {"guided_regex", "[]", (enum verbatim_constraint_kind)-1, "guided_regex"}};
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(FORMS); i++) {
    verbatim_constraint *c = NULL;
    json_t *value = json_loads(FORMS[i].value, JSON_DECODE_ANY, NULL);
    assert_true(json_form_has(FORMS[i].name));
    const status result = json_form_read(FORMS[i].name, value, &c);
    json_decref(value);
    if ((result != OK) != (FORMS[i].kind == (enum verbatim_constraint_kind)-1)) fail_msg("%s: %s", FORMS[i].value, fail_text());
    if (result != OK && !strstr(fail_text(), FORMS[i].text)) fail_msg("%s: %s", FORMS[i].value, fail_text());
    assert_true((c != NULL) == (result == OK && FORMS[i].kind > 0));
    if (c) assert_int_equal(c->kind, FORMS[i].kind);
    if (c) assert_memory_equal(c->text, FORMS[i].text, strlen(FORMS[i].text) + 0u * c->bytes);
    if (c) assert_int_equal(c->bytes, strlen(FORMS[i].text));
    constraint_close(c);
    fail_clear();
  }
}

/* === Masks ================================================================================================================== */

enum { VOCAB = 520, WORDS = 20, STOP = 1, ROOM = 300 }; /* of tests/tiny, and ids behind its tokens */
#define BOS "<｜begin▁of▁sentence｜>" /* a special token */

static bool is_allowed(const verbatim_constraint *c, const tokenizer *t, uint32_t state, int32_t id) {
  size_t bytes = 0;
  if (id == STOP) return c->automaton.is_accepting[state];
  if ((uint32_t)id >= tokenizer_vocab_size(t)) return false;
  const uint8_t *text = tokenizer_token_bytes(t, id, &bytes);
  const bool is_mark = c->kind == VERBATIM_PARTS && text && bytes == strlen(BOS) && memcmp(text, BOS, bytes) == 0;
  if (tokenizer_is_special(t, id) && !is_mark) return false;
  return text && bytes && automaton_run(&c->automaton, state, text, bytes) != AUTOMATON_DEAD;
}

static const int32_t STOPS[] = {STOP};
static uint32_t bits[ROOM * WORDS];

static status open_masks(masks *all, tokenizer *t, arena *host) {
  const status result = masks_open(all, t, VOCAB, WORDS, ROOM, host);
  all->bits = bits;
  return result;
}

static void copy_mask(masks *all, const verbatim_constraint *c, uint32_t state, uint32_t mask[WORDS]) {
  const masks_row row = masks_find(all, c, state, STOPS, 1);
  assert_true(row.row < all->count && row.made > 0);
  memcpy(mask, bits + (size_t)row.row * WORDS, sizeof *mask * WORDS);
}

static void masks_are_those_of_every_token_by_itself(void **state) {
  static const struct { enum verbatim_constraint_kind kind; const char *text; } PATTERNS[] = {
      {VERBATIM_REGEX, "[a-z ]{1,40}"}, {VERBATIM_REGEX, "(the|a) [^e]*"}, {VERBATIM_REGEX, "日?.*"},
      {VERBATIM_REGEX, "\\d+(, \\d+)*"}, {VERBATIM_PARTS, "[{\"regex\":\"[a-z]{0,2}\"},{\"text\":\"" BOS "\"},{\"until\":\"th\"}]"}};
  tokenizer *t = NULL;
  arena host = {0};
  masks all;
  uint32_t mask[WORDS], stale[WORDS], differences = 0;
  (void)state;
  assert_int_equal(tokenizer_open(&t, "tests/tiny"), OK);
  assert_int_equal(open_masks(&all, t, &host), OK);
  assert_true(all.vocabulary.has_all);
  for (size_t i = 0; i < ARRAY_LEN(PATTERNS); i++) {
    verbatim_constraint *c = compile(PATTERNS[i].kind, PATTERNS[i].text);
    for (uint32_t s = AUTOMATON_START; s < c->automaton.state_count; s++) {
      for (uint32_t pass = 0; pass < 2; pass++) { /* computed, then kept */
        copy_mask(&all, c, s, mask);
        for (int32_t id = 0; id < VOCAB; id++)
          if (masks_allows(mask, id) != is_allowed(c, t, s, id)) fail_msg("%s: state %u, token %d", PATTERNS[i].text, s, id);
      }
      if (s > AUTOMATON_START) differences += memcmp(mask, stale, sizeof mask) != 0; /* control: of the state before */
      memcpy(stale, mask, sizeof mask);
    }
    constraint_close(c);
  }
  assert_true(differences > 10 && all.hits > 0 && all.misses > 0);
  arena_close(&host);
  tokenizer_close(t);
}

static void masks_of_other_stop_ids_are_others(void **state) {
  static const int32_t OTHERS[] = {STOP, 300};
  tokenizer *t = NULL;
  arena host = {0};
  masks all;
  (void)state;
  assert_int_equal(tokenizer_open(&t, "tests/tiny"), OK);
  assert_int_equal(open_masks(&all, t, &host), OK);
  verbatim_constraint *c = compile(VERBATIM_REGEX, "a*");
  const uint32_t one = masks_find(&all, c, AUTOMATON_START, STOPS, 1).row, two = masks_find(&all, c, AUTOMATON_START, OTHERS, 2).row;
  assert_int_not_equal(one, two);
  assert_false(masks_allows(bits + one * WORDS, 300));
  assert_true(masks_allows(bits + two * WORDS, 300));
  assert_int_equal(masks_find(&all, c, AUTOMATON_START, STOPS, 1).row, one);
  constraint_close(c);
  arena_close(&host);
  tokenizer_close(t);
}

static double microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

/* Prints what the host does for a step of 64 sequences; there is no bound that a loaded computer would keep. */
static void masks_of_64_sequences_are_timed(void **state) {
  tokenizer *t = NULL;
  arena host = {0};
  masks all;
  double us[2];
  (void)state;
  assert_int_equal(tokenizer_open(&t, "tests/tiny"), OK);
  assert_int_equal(open_masks(&all, t, &host), OK);
  verbatim_constraint *c = compile(VERBATIM_JSON_OBJECT, "");
  for (uint32_t pass = 0; pass < 2; pass++) {
    const double from = microseconds();
    for (uint32_t i = 0; i < 64; i++) masks_find(&all, c, AUTOMATON_START + i, STOPS, 1);
    us[pass] = microseconds() - from;
  }
  print_message("    64 masks: %.1f us computed, %.1f us kept\n", us[0], us[1]);
  assert_int_equal(all.misses, 64);
  assert_int_equal(all.hits, 64);
  constraint_close(c);
  arena_close(&host);
  tokenizer_close(t);
}

/* When the oldest masks have made room for others, they are computed again. */
static void masks_that_were_dropped_come_back(void **state) {
  tokenizer *t = NULL;
  arena host = {0};
  masks all;
  uint32_t mask[WORDS];
  (void)state;
  assert_int_equal(tokenizer_open(&t, "tests/tiny"), OK);
  assert_int_equal(open_masks(&all, t, &host), OK);
  verbatim_constraint *c = compile(VERBATIM_REGEX, "[ab]{900}");
  assert_true(c->automaton.state_count > all.room + 100);
  for (uint32_t pass = 0; pass < 2; pass++)
    for (uint32_t s = AUTOMATON_START; s < c->automaton.state_count; s += 2) {
      copy_mask(&all, c, s, mask);
      if (s % 64 == 1)
        for (int32_t id = 0; id < VOCAB; id++) assert_true(masks_allows(mask, id) == is_allowed(c, t, s, id));
    }
  assert_int_equal(all.count, all.room);
  constraint_close(c);
  arena_close(&host);
  tokenizer_close(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(expressions_are_those_of_pcre2), cmocka_unit_test(a_mark_ends_the_text_where_it_first_stands),
      cmocka_unit_test(parts_are_lists_of_lists), cmocka_unit_test(what_is_not_offered_is_named),
      cmocka_unit_test(schemas_accept_what_is_valid), cmocka_unit_test(what_a_schema_gives_is_json),
      cmocka_unit_test(bounds_of_numbers_are_exact), cmocka_unit_test(recursion_is_as_deep_as_fits),
      cmocka_unit_test(integers_are_bounded_exactly), cmocka_unit_test(forms_of_json_are_read),
      cmocka_unit_test(masks_are_those_of_every_token_by_itself), cmocka_unit_test(masks_of_64_sequences_are_timed),
      cmocka_unit_test(masks_of_other_stop_ids_are_others),
                                     cmocka_unit_test(masks_that_were_dropped_come_back)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
