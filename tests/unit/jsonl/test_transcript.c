/* test_transcript.c - a finished request as text and as a JSON line: its fields, its reader, the digits of its numbers. */
#include "tests/unit/unit.h"
#include "engine/jsonl/nonfinite.h"
#include "engine/jsonl/transcript.h"
#include "tests/unit/text/tokenizer_fixture.h"

static tokenizer *small; /* ids 0..255 are bytes, 257 "abc", 259 is special */

static verbatim_token made[] = {{.id = 'x', .logprob = -0.1f}, {.id = 259, .logprob = -1, .rank = 5}, {.id = 257}, {.id = 0xc3}};
static verbatim_alternative alternatives[] = {{'x', -0.1f}, {259, -3}, {257, -1}, {0xc3, -2}, {7, -1}, {8, -1}, {1, -1}, {2, -1}};

static verbatim_request finished(enum verbatim_finish finish, uint32_t count) {
  return (verbatim_request){.prompt_count = 3, .tokens = made, .token_count = count, .finish = finish, .alternatives = alternatives};
}

static void texts(void **state) {
  (void)state;
  static const struct { enum verbatim_finish finish; uint32_t count; uint64_t cut; const char *text; } cases[] = {
    {VERBATIM_LENGTH, 4, 0, "xabc\xef\xbf\xbd"}, {VERBATIM_STOP, 4, 0, "xabc"}, {VERBATIM_STOP_TEXT, 3, 2, "xa"},
    {VERBATIM_STOP_TEXT, 1, 0, ""}, {VERBATIM_CANCELLED, 2, 0, "x"}, {VERBATIM_NONFINITE, 0, 0, ""}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    verbatim_request r = finished(cases[i].finish, cases[i].count);
    char *text = NULL;
    size_t bytes = 0;
    r.text_bytes = cases[i].cut;
    assert_int_equal(transcript_text(small, &r, &text, &bytes), OK);
    assert_string_equal(text, cases[i].text);
    assert_int_equal(bytes, strlen(cases[i].text));
    free(text);
  }
}

static const uint8_t NUMERICS_ID[16] = {0xc0, [15] = 0x0f};
#define ID "\"id\":\"name\",\"numerics_id\":\"c000000000000000000000000000000f\","

static char line[4096];

static json_t *json_of(const item *source, const verbatim_request *r, const char *text) {
  FILE *file = tmpfile();
  assert_non_null(file);
  assert_int_equal(transcript_json(file, NUMERICS_ID, source, r, small, text, text ? strlen(text) : 0), OK);
  rewind(file);
  line[fread(line, 1, sizeof line - 1, file)] = 0;
  fclose(file);
  json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
  if (!object) fail_msg("no JSON: %s", line);
  return object;
}

static void lines(void **state) {
  (void)state;
  static const verbatim_text stops[] = {{"zz", 2}, {"bc\"", 3}};
  char id[] = "name", echo[] = "{\"ranks\":7,\"real\":0.12345678901234566}";
  item source = {.id = id, .echo = echo, .params = {.samples = 1}};
  verbatim_request r = finished(VERBATIM_STOP, 2);
  json_t *object = json_of(&source, &r, "x");
  assert_string_equal(line, "{\"real\":0.12345678901234566," ID "\"prompt_tokens\":3,\"text\":\"x\",\"tokens\":[120,259],"
                            "\"finish\":\"stop\",\"stop_reason\":259,\"logprobs\":[-0.100000001,-1.0],\"ranks\":[0,5]}\n");
  json_decref(object);
  r = finished(VERBATIM_STOP_TEXT, 3);
  r.stop_texts = stops, r.stop_text_count = 2, r.stop_index = 1, r.sample_index = 4, r.top_logprobs = 2;
  source = (item){.id = id, .params = {.samples = 5}};
  object = json_of(&source, &r, "xa");
  assert_string_equal(line, "{" ID "\"index\":4,\"prompt_tokens\":3,\"text\":\"xa\",\"tokens\":[120,259,257],"
                            "\"finish\":\"stop_text\","
                            "\"stop_reason\":\"bc\\\"\",\"logprobs\":[-0.100000001,-1.0,0.0],\"ranks\":[0,5,0],\"alternatives\":["
                            "[{\"id\":120,\"logprob\":-0.100000001,\"text\":\"x\"},{\"id\":259,\"logprob\":-3.0}],"
                            "[{\"id\":257,\"logprob\":-1.0,\"text\":\"abc\"},{\"id\":195,\"logprob\":-2.0}],"
                            "[{\"id\":7,\"logprob\":-1.0,\"text\":\"\\u0007\"},{\"id\":8,\"logprob\":-1.0,\"text\":\"\\b\"}]]}\n");
  json_decref(object);
  char stale[] = "{\"text\":\"q\",\"index\":3,\"exact\":true,\"stop_reason\":1,\"fault\":{\"op\":\"x\"},\"finish\":\"stop\",\"kept\":1}";
  r = finished(VERBATIM_LENGTH, 1);
  source = (item){.id = id, .echo = stale, .params = {.samples = 1}};
  object = json_of(&source, &r, NULL); /* the caller may not add a field that other lines have and this one lacks */
  assert_string_equal(line, "{\"finish\":\"length\",\"kept\":1," ID "\"prompt_tokens\":3,\"tokens\":[120],"
                            "\"logprobs\":[-0.100000001],\"ranks\":[0]}\n");
  json_decref(object);
  r = finished(VERBATIM_STOP_TEXT, 3);
  r.stop_texts = stops, r.stop_text_count = 2, r.top_logprobs = 2;
  source = (item){.id = id, .params = {.samples = 5}};
  object = json_of(&source, &r, NULL); /* without text, the alternatives have none either */
  assert_null(json_object_get(object, "text"));
  assert_null(strstr(line, "abc"));
  json_decref(object);
}

/* The position where NaN or Inf began is reported as far as it is known, and for no other ending. */
static void faults(void **state) {
  (void)state;
  static const struct { enum verbatim_finish finish; const char *op; uint32_t layer; const char *json, *text; } cases[] = {
    {VERBATIM_NONFINITE, "layer 3 o_proj", 3, ",\"fault\":{\"op\":\"layer 3 o_proj\",\"layer\":3,\"position\":17},",
     ", made first by layer 3 o_proj at position 17"},
    {VERBATIM_NONFINITE, "lm_head", UINT32_MAX, ",\"fault\":{\"op\":\"lm_head\",\"layer\":null,\"position\":17},",
     ", made first by lm_head at position 17"},
    {VERBATIM_NONFINITE, "", UINT32_MAX, NULL, ""},
    {VERBATIM_NONFINITE, NULL, 0, NULL, ""},
    {VERBATIM_LENGTH, "lm_head", 0, NULL, ""}};
  char id[] = "name", echo[] = "{\"numerics_id\":\"another\",\"fault\":1}", words[NONFINITE_TEXT_BYTES];
  item source = {.id = id, .echo = echo, .params = {.samples = 1}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    verbatim_request r = finished(cases[i].finish, 1);
    r.fault_op = cases[i].op, r.fault_layer = cases[i].layer, r.fault_position = 17;
    json_decref(json_of(&source, &r, NULL));
    assert_non_null(strstr(line, "\"numerics_id\":\"c000000000000000000000000000000f\""));
    if (cases[i].json ? !strstr(line, cases[i].json) : strstr(line, "fault") != NULL) fail_msg("case %zu: %s", i, line);
    assert_string_equal(nonfinite_text(&r, words), cases[i].text);
  }
}

static int open_small(void **state) {
  (void)state;
  return fixture_open(fixture_small(), &small);
}

static int close_small(void **state) {
  (void)state;
  return fixture_close(small);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(lines), cmocka_unit_test(faults)};
  return cmocka_run_group_tests(tests, open_small, close_small);
}
