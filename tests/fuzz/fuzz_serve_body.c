/* fuzz_serve_body.c - a body of /v1/completions, a chat or /tokenize, as the server reads it. The first byte says which, and
 * how the answers to a chat are read.
 *
 * The engine's own check accepts an accepted body; it needs no more memory than stated, and its whole reply equals the one in events. A
 * refusal is an error that makes a JSON object, and leaves nothing allocated. */
#include "engine/serve/info.h"
#include "engine/serve/reply.h"
#include "fuzz.h"
#include "tests/unit/serve/serve_fixture.h"

#define BYTES_MAX (1u << 20) /* of a request: small, so that many are run */

static serve_fixture fixture;

/* A JSON reader accepts the reply. */
static json_t *read_reply(const char *bytes, size_t count) {
  json_t *reply = json_loadb(bytes, count, JSON_ALLOW_NUL, NULL);
  ASSERT(json_is_object(reply));
  return reply;
}

static void check_fault(const serve_fault *fault) {
  serve_text out = {0};
  ASSERT(fault->http_status >= 400 && fault->http_status < 600 && fault->type[0] && fault->message[0]);
  serve_reply_fault(fault, &out);
  json_decref(read_reply(out.bytes, out.count));
  strbuf_close(&out);
}

static void check_stream(serve_request *request) {
  serve_text out = {0};
  bool ended = false;
  serve_reply_stream(&fixture.model, request, &out, &ended);
  for (uint32_t i = 0; i < request->choice_count; i++) {
    while (serve_fixture_step(&fixture, &request->choices[i])) serve_reply_stream(&fixture.model, request, &out, &ended);
    serve_request_finished(&request->choices[i]);
  }
  for (size_t before = SIZE_MAX; !ended && before != out.count; serve_reply_stream(&fixture.model, request, &out, &ended))
      before = out.count;
  ASSERT(ended && !out.failed && out.count > 14 && memcmp(out.bytes + out.count - 14, "data: [DONE]\n\n", 14) == 0);
  strbuf_close(&out);
}

static void check_whole(serve_request *request) {
  serve_text out = {0};
  serve_fault fault;
  serve_fixture_run(&fixture, request);
  ASSERT(serve_reply_whole(&fixture.model, request, &out, &fault));
  json_t *reply = read_reply(out.bytes, out.count);
  ASSERT(json_array_size(json_object_get(reply, "choices")) == request->choice_count);
  json_decref(reply);
  strbuf_close(&out);
}

static void check_ask(enum serve_kind kind, const char *body, size_t bytes) {
  serve_request *request = NULL;
  serve_fault fault = {0};
  if (!serve_request_parse(&fixture.model, kind, body, bytes, "1", &request, &fault)) {
    ASSERT(request == NULL);
    check_fault(&fault);
    return;
  }
  ASSERT(request->choice_count > 0 && request->choice_count <= fixture.model.choices_max && request->bytes <= BYTES_MAX);
  for (uint32_t i = 0; i < request->choice_count; i++) request->choices[i].engine_request.required_count = 0; /* the plan decides */
  serve_fixture_submit(&fixture, request);
  if (request->stream) check_stream(request);
  else check_whole(request);
  free(request->owner);
  serve_request_close(request);
}

/* Chats with tools, of which the answers are thoughts and calls. */
static void check_answers(unsigned which, const char *body, size_t bytes) {
  static const char *const scripts[] = {
    "<think>t</think>a\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>\n"
    "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
    "<tool_call>{\"name\": \"f\", \"argum", "<think>t", NULL};
  static chat *templates;
  if (!templates) ASSERT(chat_open(&templates, "tests/tiny", "tests/data/chat/turns_with_calls.jinja") == OK);
  const serve_model plain = fixture.model;
  fixture.model.chat = templates;
  ASSERT(serve_reading_choose(&fixture.model.reading, templates, which & 1 ? "auto" : "none", "auto") == OK);
  fixture.script = scripts[which / 2 % ARRAY_LEN(scripts)];
  check_ask(SERVE_CHAT, body, bytes);
  fixture.script = NULL;
  fixture.model = plain;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  if (!fixture.tokenizer) {
    serve_fixture_open(&fixture);
    fixture.model.bytes_max = BYTES_MAX;
    fixture.model.choices_max = 8;
    fixture.info.max_len = fixture.header.limits.max_len = 1024; /* tools make long prompts */
  }
  if (bytes == 0) return 0;
  const char *body = (const char *)data + 1;
  if (data[0] % 8 == 5) {
    check_answers(data[0] / 8, body, bytes - 1);
    return 0;
  }
  if (data[0] % 4 < 2) {
    check_ask(data[0] % 4 == 0 ? SERVE_COMPLETION : SERVE_CHAT, body, bytes - 1);
    return 0;
  }
  serve_text out = {0};
  serve_fault fault = {0};
  bool is_sound = (data[0] % 4 == 2 ? serve_info_tokenize : serve_info_detokenize)(&fixture.model, body, bytes - 1, &out, &fault);
  if (is_sound) json_decref(read_reply(out.bytes, out.count));
  else check_fault(&fault);
  ASSERT(is_sound || out.count == 0);
  strbuf_close(&out);
  return 0;
}
