/* test_serve_info.c - models, version, tokenize, detokenize and tokenizer_info: the replies that clients rely on. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "engine/serve/info.h"
#include "serve_fixture.h"

#define BOS_TEXT "<\xef\xbd\x9c" "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"
#define EOS_TEXT "<\xef\xbd\x9c" "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"

static serve_fixture fixture;

typedef bool endpoint(const serve_model *m, const char *body, size_t bytes, serve_text *out, serve_fault *fault);

static char *text_of(serve_text *out) {
  strbuf_add(out, "", 1);
  assert_false(out->failed);
  return out->bytes;
}

static void expect(endpoint *call, const char *body, const char *expected) {
  serve_text out = {0};
  serve_fault fault = {0};
  if (!call(&fixture.model, body, strlen(body), &out, &fault)) fail_msg("%s: %s", body, fault.message);
  assert_string_equal(text_of(&out), expected);
  strbuf_close(&out);
}

static void expect_refused(endpoint *call, const char *body, const char *param, const char *code) {
  serve_text out = {0};
  serve_fault fault = {0};
  strbuf_addf(&out, "before");
  assert_false(call(&fixture.model, body, strlen(body), &out, &fault));
  if (strcmp(fault.param, param) != 0 || strcmp(fault.code, code) != 0) fail_msg("%s: found %s %s", body, fault.param, fault.code);
  assert_string_equal(text_of(&out), "before");
  strbuf_close(&out);
}

static void models(void **state) {
  (void)state;
  serve_text out = {0};
  serve_fault fault = {0};
  serve_info_models(&fixture.model, &out);
  assert_string_equal(text_of(&out), "{\"object\":\"list\",\"data\":[{\"id\":\"tiny\",\"object\":\"model\",\"created\":1700000000,"
                                     "\"owned_by\":"
                      "\"verbatim\",\"root\":\"tiny\",\"parent\":null,\"max_model_len\":256}]}");
  out.count = 0;
  assert_true(serve_info_model(&fixture.model, "tiny", &out, &fault));
  assert_false(serve_info_model(&fixture.model, "large", &out, &fault));
  assert_int_equal(fault.http_status, 404);
  assert_string_equal(fault.code, "model_not_found");
  out.count = 0;
  serve_info_root(&fixture.model, &out);
  json_t *root = json_loads(text_of(&out), 0, NULL);
  assert_string_equal(json_string_value(serve_fixture_at(root, "name")), "verbatim");
  assert_string_equal(json_string_value(serve_fixture_at(root, "version")), VERBATIM_VERSION);
  assert_string_equal(json_string_value(serve_fixture_at(root, "model")), fixture.model.name);
  assert_string_equal(json_string_value(serve_fixture_at(root, "numerics_id")), "01000000000000000000000000000000");
  const json_t *endpoints = serve_fixture_at(root, "endpoints");
  assert_true(json_array_size(endpoints) > 10);
  assert_string_equal(json_string_value(json_array_get(endpoints, 0)), "POST /v1/completions");
  json_decref(root);
  serve_info_version(&fixture.model, &out);
  json_t *version = json_loads(text_of(&out), 0, NULL);
  assert_string_equal(json_string_value(serve_fixture_at(version, "version")), VERBATIM_VERSION);
  assert_string_equal(json_string_value(serve_fixture_at(version, "numerics_id")), "01000000000000000000000000000000");
  json_decref(version);
  strbuf_close(&out);
}

static void tokenize(void **state) {
  (void)state;
  expect(serve_info_tokenize, "{\"prompt\":\"add\"}", "{\"count\":2,\"max_model_len\":256,\"tokens\":[0,283],\"token_strs\":null}");
  expect(serve_info_tokenize, "{\"prompt\":\"add\",\"add_special_tokens\":false,\"model\":\"tiny\",\"return_token_strs\":true}",
         "{\"count\":1,\"max_model_len\":256,\"tokens\":[283],\"token_strs\":[\"add\"]}");
  expect(serve_info_tokenize, "{\"prompt\":\"" EOS_TEXT "\",\"add_special_tokens\":false}",
         "{\"count\":1,\"max_model_len\":256,\"tokens\":[1],\"token_strs\":null}");
  expect(serve_info_tokenize, "{\"prompt\":\"" BOS_TEXT "add\"}",
         "{\"count\":2,\"max_model_len\":256,\"tokens\":[0,283],\"token_strs\":null}");
  expect(serve_info_tokenize, "{\"prompt\":\"\",\"add_special_tokens\":false}",
         "{\"count\":0,\"max_model_len\":256,\"tokens\":[],\"token_strs\":null}");
  expect(serve_info_tokenize, "{\"messages\":[{\"role\":\"user\",\"content\":\"add\"}],\"add_generation_prompt\":false}",
         "{\"count\":2,\"max_model_len\":256,\"tokens\":[0,283],\"token_strs\":null,\"ignored\":[]}");
  expect(serve_info_tokenize, "{\"messages\":[{\"role\":\"tool\",\"content\":\"add\",\"tool_call_id\":\"a\"}],\"return_token_strs\":true}",
         "{\"count\":2,\"max_model_len\":256,\"tokens\":[0,283],\"token_strs\":[\"" BOS_TEXT "\",\"add\"],"
         "\"ignored\":[\"messages[0].tool_call_id\"]}");
  expect_refused(serve_info_tokenize, "{}", "prompt", "missing_required_parameter");
  expect_refused(serve_info_tokenize, "{\"prompt\":[1]}", "prompt", "invalid_value");
  expect_refused(serve_info_tokenize, "{\"prompt\":\"a\",\"messages\":[]}", "prompt", "unknown_parameter");
  expect_refused(serve_info_tokenize, "{\"prompt\":\"a\",\"truncate\":1}", "truncate", "unknown_parameter");
  expect_refused(serve_info_tokenize, "{\"prompt\":\"a\",\"add_special_tokens\":1}", "add_special_tokens", "invalid_value");
  expect_refused(serve_info_tokenize, "{\"prompt\":\"a\",\"model\":\"large\"}", "model", "model_not_found");
  expect_refused(serve_info_tokenize, "{\"messages\":7}", "messages", "invalid_value");
  expect_refused(serve_info_tokenize, "[]", "", "invalid_json");
}

static void detokenize(void **state) {
  (void)state;
  expect(serve_info_detokenize, "{\"tokens\":[0,283,1]}", "{\"prompt\":\"" BOS_TEXT "add" EOS_TEXT "\"}");
  expect(serve_info_detokenize, "{\"tokens\":[0.0,283.0]}", "{\"prompt\":\"" BOS_TEXT "add\"}");
  expect(serve_info_detokenize, "{\"tokens\":[]}", "{\"prompt\":\"\"}");
  expect_refused(serve_info_detokenize, "{\"tokens\":[768]}", "tokens[0]", "invalid_value");
  expect_refused(serve_info_detokenize, "{\"tokens\":\"a\"}", "tokens", "invalid_value");
  expect_refused(serve_info_detokenize, "{}", "tokens", "missing_required_parameter");
  expect_refused(serve_info_detokenize, "{\"tokens\":[],\"x\":1}", "x", "unknown_parameter");
}

/* A text, its tokens, the text again; a truncated character becomes one replacement character, as in the text of replies. */
static void there_and_back(void **state) {
  (void)state;
  serve_text tokens = {0}, text = {0};
  serve_fault fault;
  static const char body[] = "{\"prompt\":\"d\xc3\xa9 \xe4\xb8\x96\xf0\x9f\x99\x82 words\\n\",\"add_special_tokens\":false}";
  assert_true(serve_info_tokenize(&fixture.model, body, sizeof body - 1, &tokens, &fault));
  json_t *reply = json_loads(text_of(&tokens), 0, NULL);
  json_t *back = json_pack("{sO}", "tokens", serve_fixture_at(reply, "tokens"));
  char *again = json_dumps(back, 0);
  assert_true(serve_info_detokenize(&fixture.model, again, strlen(again), &text, &fault));
  assert_string_equal(text_of(&text), "{\"prompt\":\"d\xc3\xa9 \xe4\xb8\x96\xf0\x9f\x99\x82 words\\n\"}");
  json_t *list = json_object_get(back, "tokens");
  while (json_array_size(list) > 4) json_array_remove(list, json_array_size(list) - 1);
  free(again);
  again = json_dumps(back, 0); /* "dé ", and the first byte of the next character */
  text.count = 0;
  assert_true(serve_info_detokenize(&fixture.model, again, strlen(again), &text, &fault));
  char *cut = text_of(&text);
  assert_non_null(strstr(cut, "d\xc3\xa9"));
  free(again);
  json_decref(back);
  json_decref(reply);
  strbuf_close(&tokens);
  strbuf_close(&text);
}

/* The fields that lm-evaluation-harness's remote tokenizer reads: texts, or null. */
static void tokenizer_info_has_texts(void **state) {
  (void)state;
  serve_text out = {0};
  fail_clear();
  if (serve_info_tokenizer(&fixture.model, "tests/tiny", &out) != OK) fail_msg("%s", fail_text());
  json_t *info = json_loads(text_of(&out), 0, NULL);
  assert_string_equal(json_string_value(serve_fixture_at(info, "bos_token")), BOS_TEXT);
  assert_string_equal(json_string_value(serve_fixture_at(info, "eos_token")), EOS_TEXT);
  assert_non_null(json_string_value(serve_fixture_at(info, "pad_token")));
  assert_string_equal(json_string_value(serve_fixture_at(info, "tokenizer_class")), "PreTrainedTokenizerFast");
  assert_non_null(serve_fixture_at(info, "chat_template"));
  assert_int_equal(json_integer_value(serve_fixture_at(info, "max_model_len")), 256);
  json_decref(info);
  strbuf_close(&out);
}

static void write_file(const char *folder, const char *name, const char *text) {
  char path[300];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  if (!text) {
    unlink(path);
    return;
  }
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
  fclose(file);
}

static void tokenizer_info_of_other_folders(void **state) {
  (void)state;
  char folder[] = "/tmp/verbatim_serve_info_XXXXXX";
  serve_text out = {0};
  assert_non_null(mkdtemp(folder));
  assert_int_equal(serve_info_tokenizer(&fixture.model, folder, &out), OK); /* no file: the values of the tokenizer and the plan */
  json_t *info = json_loads(text_of(&out), 0, NULL);
  assert_string_equal(json_string_value(serve_fixture_at(info, "eos_token")), EOS_TEXT);
  assert_true(json_is_null(serve_fixture_at(info, "pad_token")) && json_is_null(serve_fixture_at(info, "chat_template")));
  json_decref(info);
  out.count = 0;
  write_file(folder, "tokenizer_config.json", "{\"eos_token\":\"E\",\"chat_template\":\"old\",\"unk_token\":null}");
  write_file(folder, "chat_template.jinja", "{{ new }}");
  assert_int_equal(serve_info_tokenizer(&fixture.model, folder, &out), OK);
  info = json_loads(text_of(&out), 0, NULL);
  assert_string_equal(json_string_value(serve_fixture_at(info, "eos_token")), "E");
  assert_string_equal(json_string_value(serve_fixture_at(info, "chat_template")), "{{ new }}");
  json_decref(info);
  write_file(folder, "tokenizer_config.json", "[1]");
  assert_int_equal(serve_info_tokenizer(&fixture.model, folder, &out), ERR_FORMAT);
  write_file(folder, "tokenizer_config.json", "{\"a\":");
  assert_int_equal(serve_info_tokenizer(&fixture.model, folder, &out), ERR_FORMAT);
  write_file(folder, "tokenizer_config.json", "{}");
  write_file(folder, "chat_template.jinja", "\xff");
  assert_int_equal(serve_info_tokenizer(&fixture.model, folder, &out), ERR_FORMAT);
  write_file(folder, "tokenizer_config.json", NULL);
  write_file(folder, "chat_template.jinja", NULL);
  rmdir(folder);
  strbuf_close(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(models), cmocka_unit_test(tokenize), cmocka_unit_test(detokenize), cmocka_unit_test(there_and_back),
    cmocka_unit_test(tokenizer_info_has_texts), cmocka_unit_test(tokenizer_info_of_other_folders)};
  serve_fixture_open(&fixture);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  serve_fixture_close(&fixture);
  return failed;
}
