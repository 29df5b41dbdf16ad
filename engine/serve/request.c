/* serve/request.c - see serve/request.h. Prompts first, then their outputs' sizes, then memory for everything in one block. */
#include "serve/request.h"
#include "base/json_text.h"
#include "requests/stop_ids.h"
#include "serve/tokens.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MAX_TOKENS 16u /* OpenAI's default for completions */
/* Bytes of a reply: for a choice its parameters and its receipt; for a token its text and id; for a row of log-probabilities its own entry
 * and each alternative's, in the longest form a reply has; the same for a receipt's row; for an entry of a list of biases or ids. */
#define CHOICE_BYTES 1024u
#define PARAMS_BYTES (2048u + VERBATIM_STOP_TEXTS_MAX * VERBATIM_STOP_TEXT_BYTES_MAX)
#define TEXT_BYTES 24u
#define READ_TEXT_BYTES 96u /* of a token of an answer that is read: a thought stands in two fields, a call is held */
#define ID_BYTES 8u
#define ROW_BYTES 144u
#define ALTERNATIVE_BYTES 128u
#define RECEIPT_ROW_BYTES 64u
#define RECEIPT_ALTERNATIVE_BYTES 24u
#define LIST_BYTES 32u

static bool no_memory(serve_fault *fault) {
  *fault = (serve_fault){.http_status = 500, .type = "server_error", .code = "out_of_memory", .message = "no memory for the request"};
  return false;
}

bool serve_request_check_model(const serve_model *m, const json_t *body, serve_fault *fault) {
  const json_t *model = json_object_get(body, "model");
  if (!model || json_text_is(model, m->name)) return true;
  if (!json_is_string(model)) return serve_fields_wrong(fault, "model", "invalid_value", "model: expected a text");
  (void)serve_fields_wrong(fault, "model", "model_not_found", "unknown model \"%.100s\"; this server has \"%.100s\"",
                           json_string_value(model), m->name);
  fault->http_status = 404;
  return false;
}

/* === Prompts ================================================================================================================ */

/* If a text itself spells the ids that precede every text, as one decoded from ids does, they are not added again. */
static void drop_second_lead(const tokenizer *t, int32_t *ids, size_t *count) {
  const int32_t *lead;
  size_t size = tokenizer_lead(t, &lead);
  if (size == 0 || *count < 2 * size || memcmp(ids, ids + size, size * sizeof *ids) != 0) return;
  *count -= size;
  memmove(ids, ids + size, *count * sizeof *ids);
}

bool serve_request_encode(const serve_model *m, const char *text, size_t bytes, bool add_special, const char *param, serve_prompt *out,
                      serve_fault *fault) {
  size_t count = 0;
  if (bytes > TOKENIZER_TEXT_BYTES_MAX)
    return serve_fields_wrong(fault, param, "context_length_exceeded", "%s: %zu bytes of text, at most %u are allowed", param, bytes,
                              TOKENIZER_TEXT_BYTES_MAX);
  int32_t *ids = malloc((bytes + 8) * sizeof *ids);
  if (!ids) return no_memory(fault);
  fail_clear();
  if (tokenizer_encode(m->tokenizer, text, bytes, add_special, true, ids, bytes + 8, &count) != OK) {
    free(ids);
    return serve_fields_wrong(fault, param, "invalid_value", "%s: %.400s", param, fail_text());
  }
  if (add_special) drop_second_lead(m->tokenizer, ids, &count);
  int32_t *smaller = realloc(ids, (count ? count : 1) * sizeof *ids);
  *out = (serve_prompt){.ids = smaller ? smaller : ids, .count = (uint32_t)count};
  return true;
}

static bool wrong_prompt(const char *path, serve_fault *fault) {
  return serve_fields_wrong(fault, path, "invalid_value", "%s: expected texts, or lists of token ids, all of one kind", path);
}

/* A text, or a list of token ids. */
static bool read_prompt(const serve_model *m, const serve_fields *f, const char *path, const json_t *value, serve_prompt *out,
                        serve_fault *fault) {
  if (json_is_string(value))
    return serve_request_encode(m, json_string_value(value), json_string_length(value), f->add_special, path, out, fault);
  if (!json_is_array(value) || json_array_size(value) > UINT32_MAX)
    return wrong_prompt(path, fault);
  if (!(out->ids = malloc((json_array_size(value) + 1) * sizeof *out->ids))) return no_memory(fault);
  out->count = (uint32_t)json_array_size(value);
  return serve_fields_ids(path, value, m->info->vocab, out->ids, fault);
}

static bool new_prompts(const serve_model *m, serve_request *request, size_t count, const char *param, serve_fault *fault) {
  if (count == 0) return serve_fields_wrong(fault, param, "invalid_value", "%s: expected at least one", param);
  if (count > m->choices_max / request->fields.samples)
    return serve_fields_wrong(fault, param, "too_many_choices", "%s: %zu prompts of %u samples each, at most %u choices are allowed; "
                              "hint: send them as several requests", param, count, request->fields.samples, m->choices_max);
  if (!(request->prompts = calloc(count, sizeof *request->prompts))) return no_memory(fault);
  request->prompt_count = (uint32_t)count;
  return true;
}

/* One prompt, or a list of prompts. A list of numbers is one prompt. */
static bool read_prompts(const serve_model *m, serve_request *request, const json_t *body, serve_fault *fault) {
  const json_t *prompt = json_object_get(body, "prompt"), *first = json_array_get(prompt, 0);
  bool is_list = json_is_array(prompt) && !json_is_number(first);
  if (!prompt) return serve_fields_wrong(fault, "prompt", "missing_required_parameter", "prompt: expected a text or token ids");
  if (!new_prompts(m, request, is_list ? json_array_size(prompt) : 1, "prompt", fault)) return false;
  for (uint32_t i = 0; i < request->prompt_count; i++) {
    const json_t *one = is_list ? json_array_get(prompt, i) : prompt;
    char path[SERVE_FIELDS_PATH_BYTES];
    snprintf(path, sizeof path, is_list ? "prompt[%u]" : "prompt", i);
    if (is_list && json_is_string(one) != json_is_string(first)) return wrong_prompt(path, fault);
    if (!read_prompt(m, &request->fields, path, one, &request->prompts[i], fault)) return false;
  }
  return true;
}

/* The path of the field that an error of chat_render begins with, or "messages". */
static void path_of(const json_t *body, const char *error, char path[SERVE_FIELDS_PATH_BYTES]) {
  const char *end = strstr(error, ": ");
  size_t bytes = end ? (size_t)(end - error) : 0, first = strcspn(error, ".[:");
  bool is_path = first <= bytes && bytes < SERVE_FIELDS_PATH_BYTES && json_object_getn(body, error, first);
  snprintf(path, SERVE_FIELDS_PATH_BYTES, "%.*s", is_path ? (int)bytes : 8, is_path ? error : "messages");
}

static bool refuse_chat(const json_t *body, status why, serve_fault *fault) {
  char path[SERVE_FIELDS_PATH_BYTES];
  const char *code = why == ERR_USAGE ? "unknown_parameter" : why == ERR_UNSUPPORTED ? "unsupported_value" : "invalid_value";
  path_of(body, fail_text(), path);
  return serve_fields_wrong(fault, path, code, "%.500s", fail_text());
}

bool serve_request_encode_chat(const serve_model *m, const json_t *body, bool add_special, json_t *ignored, serve_prompt *out,
                               serve_fault *fault) {
  char *text = NULL;
  size_t bytes = 0;
  if (!m->chat || !chat_name(m->chat))
    return serve_fields_wrong(fault, "messages", "unsupported_parameter", "%.480s",
                              m->chat ? chat_refusal(m->chat) : "this server has no chat template; hint: send the text to /v1/completions");
  if (!json_object_get(body, "messages"))
    return serve_fields_wrong(fault, "messages", "missing_required_parameter", "messages: expected a list of messages");
  fail_clear();
  status result = chat_render(m->chat, body, ignored, &text, &bytes);
  if (result != OK) return refuse_chat(body, result, fault);
  bool is_read = serve_request_encode(m, text, bytes, add_special, "messages", out, fault);
  free(text);
  return is_read;
}

/* Whether the prompt ends in a thought. */
static bool look_at_end(const serve_model *m, const json_t *body, const serve_prompt *prompt, answer_form *form, serve_fault *fault) {
  uint32_t from = prompt->count > SERVE_READING_END_TOKENS ? prompt->count - SERVE_READING_END_TOKENS : 0;
  detokenizer decoder = {0};
  serve_text end = {0};
  for (uint32_t i = from; i < prompt->count; i++) serve_tokens_text(m->tokenizer, &decoder, prompt->ids[i], true, &end);
  bool failed = end.failed;
  if (!failed) serve_reading_of_prompt(body, end.bytes ? end.bytes : "", end.count, form);
  strbuf_close(&end);
  return !failed || no_memory(fault);
}

static bool read_messages(const serve_model *m, serve_request *request, const json_t *body, serve_fault *fault) {
  serve_fields *f = &request->fields;
  if (!f->ignored && !(f->ignored = json_array())) return no_memory(fault);
  if (!serve_reading_of_body(&m->reading, body, f, &request->form, fault) || !new_prompts(m, request, 1, "messages", fault) ||
      !serve_request_encode_chat(m, body, f->add_special, f->ignored, &request->prompts[0], fault))
    return false;
  request->is_read = serve_reading_is_needed(&request->form);
  request->tools = json_incref((json_t *)(uintptr_t)request->form.tools);
  return (!request->is_read || look_at_end(m, body, &request->prompts[0], &request->form, fault)) &&
         serve_reading_force(body, &request->form, f, fault);
}

/* === Stop texts ============================================================================================================= */

/* Lists the stop texts that spell a special token: it has no text in a reply, so they match only if a model spells it letter by letter. */
static bool note_stops(const serve_model *m, const json_t *body, serve_fields *f, serve_fault *fault) {
  int32_t ids[VERBATIM_STOP_TEXT_BYTES_MAX + 8];
  for (uint32_t i = 0; i < f->stop_text_count; i++) {
    const verbatim_text *text = &f->stop_texts[i];
    char path[SERVE_FIELDS_PATH_BYTES];
    size_t count = 0, special = 0;
    fail_clear();
    if (tokenizer_encode(m->tokenizer, text->bytes, text->count, false, true, ids, ARRAY_LEN(ids), &count) != OK)
      return serve_fields_wrong(fault, "stop", "invalid_value", "stop: %.400s", fail_text());
    for (size_t k = 0; k < count; k++) special += tokenizer_is_special(m->tokenizer, ids[k]);
    snprintf(path, sizeof path, json_is_array(json_object_get(body, "stop")) ? "stop[%u]" : "stop", i);
    if (special && !serve_fields_ignore(f, path, fault)) return false;
  }
  return true;
}

/* === Sizes of outputs ======================================================================================================= */

/* Whether the prompt's own log-probabilities are requested and exist. */
static bool scores(const serve_fields *f, const serve_prompt *prompt) {
  return (f->prompt_logprobs || (f->echo && f->logprobs) || f->max_tokens == 0) && prompt->count > 1;
}

/* At least one if any log-probability is shown, because a token that ties with the most likely one must be recognised. */
static uint32_t alternatives(const serve_fields *f) {
  return f->logprobs || f->prompt_logprobs ? max_u32(1, max_u32(f->top_logprobs, f->prompt_top)) : 0;
}

static bool judge_prompt(const serve_model *m, const serve_request *request, uint32_t index, serve_fault *fault) {
  const serve_fields *f = &request->fields;
  serve_prompt *prompt = &request->prompts[index];
  char param[SERVE_FIELDS_PATH_BYTES] = "messages";
  uint32_t most = m->info->max_len;
  if (request->kind == SERVE_COMPLETION) snprintf(param, sizeof param, request->prompt_count > 1 ? "prompt[%u]" : "prompt", index);
  if (prompt->count == 0) return serve_fields_wrong(fault, param, "invalid_value", "%s: expected at least one token", param);
  uint32_t left = prompt->count < most ? most - prompt->count : 0;
  prompt->max_tokens = f->max_tokens;
  const json_t *own = json_object_get(m->defaults, "max_tokens");
  const uint32_t usual = own ? (uint32_t)json_integer_value(own) : request->kind == SERVE_CHAT ? left : DEFAULT_MAX_TOKENS;
  if (!f->has_max_tokens) prompt->max_tokens = max_u32(1, min_u32(usual, left));
  if ((uint64_t)prompt->count + prompt->max_tokens > most)
    return serve_fields_wrong(fault, param, "context_length_exceeded",
                              "this model's maximum context length is %u tokens, %" PRIu64 " were requested: %u in %s%s and %u to "
                              "generate; hint: shorten it, or request fewer", most, (uint64_t)prompt->count + prompt->max_tokens,
                              prompt->count, request->kind == SERVE_CHAT ? "the " : "", param, prompt->max_tokens);
  if (prompt->max_tokens == 0 && prompt->count < 2)
    return serve_fields_wrong(fault, param, "invalid_value", "%s: one token with max_tokens 0, so there is nothing to score", param);
  return true;
}

static bool judge(const serve_model *m, serve_request *request, serve_fault *fault) {
  serve_fields *f = &request->fields;
  if (f->has_max_tokens && f->max_tokens == 0 && !f->echo && !f->prompt_logprobs)
    return serve_fields_wrong(fault, "max_tokens", "invalid_value", "max_tokens: expected 1 or more; 0 %s",
                              request->kind == SERVE_CHAT ? "with prompt_logprobs" : "with echo or prompt_logprobs");
  if (!f->has_max_tokens) f->max_tokens = 1; /* not 0, because one token is generated at least */
  if (alternatives(f) > m->info->vocab)
    return serve_fields_wrong(fault, "logprobs", "invalid_value", "more alternatives than the vocabulary's %u tokens", m->info->vocab);
  if (f->constraint && !m->info->constraints)
    return serve_fields_wrong(fault, f->constraint_field, "unsupported_parameter", "%s is not supported by this server's plan; hint: plan "
                              "with structured-outputs: on", f->constraint_field);
  for (uint32_t i = 0; i < request->prompt_count; i++)
    if (!judge_prompt(m, request, i, fault)) return false;
  return true;
}

typedef struct outputs { /* sizes of the outputs of a choice */
  uint64_t scores, tokens, alternatives;
} outputs;

static outputs outputs_of(const serve_request *request, uint32_t choice) {
  const serve_prompt *prompt = &request->prompts[choice / request->fields.samples];
  uint64_t score_count = scores(&request->fields, prompt) ? prompt->count - 1 : 0;
  return (outputs){.scores = score_count, .tokens = prompt->max_tokens,
                   .alternatives = (score_count + prompt->max_tokens) * alternatives(&request->fields)};
}

static uint64_t rows_bytes(uint32_t shown) { return ROW_BYTES + (uint64_t)shown * ALTERNATIVE_BYTES; }

/* An upper estimate for ordinary texts. */
static uint64_t reply_bytes(const serve_request *request, uint32_t choice) {
  const serve_fields *f = &request->fields;
  outputs of = outputs_of(request, choice);
  uint64_t prompt = request->prompts[choice / f->samples].count,
    lists = (uint64_t)(f->bias_count + f->allowed_count + f->stop_count) * LIST_BYTES;
  uint64_t total = CHOICE_BYTES + (of.tokens + (f->echo ? prompt : 0)) * (request->is_read ? READ_TEXT_BYTES : TEXT_BYTES);
  if (f->return_ids) total += (of.tokens + prompt) * ID_BYTES;
  if (f->logprobs) total += (of.tokens + (f->echo ? prompt : 0)) * rows_bytes(f->top_logprobs);
  if (f->prompt_logprobs) total += prompt * rows_bytes(f->prompt_top + 1);
  if (f->return_params) total += PARAMS_BYTES + lists;
  if (f->return_receipt)
    total += PARAMS_BYTES + lists + prompt * ID_BYTES + (of.scores + of.tokens) * RECEIPT_ROW_BYTES +
             of.alternatives * RECEIPT_ALTERNATIVE_BYTES;
  return total;
}

static bool measure(const serve_model *m, serve_request *request, uint64_t *output_bytes, serve_fault *fault) {
  uint64_t most = m->bytes_max ? m->bytes_max : SERVE_REQUEST_BYTES_MAX, total = 0;
  request->choice_count = request->prompt_count * request->fields.samples;
  request->bytes = sizeof *request + request->choice_count * sizeof *request->choices + request->prompt_count * sizeof *request->prompts;
  for (uint32_t i = 0; i < request->prompt_count; i++) request->bytes += request->prompts[i].count * sizeof *request->prompts[i].ids;
  for (uint32_t i = 0; i < request->choice_count; i++) {
    outputs of = outputs_of(request, i);
    total += (of.scores + of.tokens) * sizeof(verbatim_token) + of.alternatives * sizeof(verbatim_alternative);
    request->reply_bytes += reply_bytes(request, i);
  }
  request->reply_bytes += json_dumpb(request->fields.ignored, NULL, 0, JSON_COMPACT);
  if (request->tools) request->bytes += serve_reading_bytes(request->tools);
  request->bytes += total + request->reply_bytes;
  *output_bytes = total;
  if (request->bytes <= most) return true;
  return serve_fields_wrong(fault, "", "request_too_large", "the request needs %" PRIu64 " bytes of memory, at most %" PRIu64
                            " are allowed; hint: fewer prompts or samples at once, a smaller max_tokens or fewer logprobs", request->bytes,
                              most);
}

/* === Progress =============================================================================================================== */

static void advance(serve_choice *choice, bool is_finished) {
  serve_request *request = choice->request;
  pthread_mutex_lock(&request->mutex);
  bool is_new = !choice->finished, is_last;
  if (is_new) {
    choice->tokens_ready = choice->engine_request.token_count;
    choice->scores_ready = choice->engine_request.score_count;
    choice->finished = is_finished;
    request->finished_count += is_finished;
  }
  is_last = request->finished_count == request->choice_count;
  pthread_mutex_unlock(&request->mutex);
  if (is_new && request->on_progress && (request->stream || is_last)) request->on_progress(request);
}

/* The last token is published by serve_request_finished: its client must not see it before it is recorded. */
static void on_token(verbatim_request *engine_request, uint32_t index) {
  (void)index;
  if (engine_request->finish == VERBATIM_RUNNING) advance(engine_request->context, false);
}

/* The token that made the text final follows in a call of its own. */
static void on_text(verbatim_request *engine_request, const char *text, size_t bytes) {
  serve_choice *choice = engine_request->context;
  (void)text;
  pthread_mutex_lock(&choice->request->mutex);
  choice->text_ready += bytes;
  pthread_mutex_unlock(&choice->request->mutex);
}

void serve_request_finished(serve_choice *choice) { advance(choice, true); }

void serve_request_fail(serve_request *request, const serve_fault *fault) {
  pthread_mutex_lock(&request->mutex);
  if (!request->failed) request->fault = *fault;
  request->failed = true;
  pthread_mutex_unlock(&request->mutex);
}

/* === Requests =============================================================================================================== */

static verbatim_request request_of(const serve_request *request, uint32_t index) {
  const serve_fields *f = &request->fields;
  const serve_prompt *prompt = &request->prompts[index / f->samples];
  bool is_scored = scores(f, prompt);
  return (verbatim_request){
    .prompt = prompt->ids, .prompt_count = prompt->count, .max_tokens = prompt->max_tokens, .score = is_scored, .score_from = is_scored,
    .top_logprobs = alternatives(f), .temperature = f->temperature, .top_k = f->top_k, .top_p = f->top_p, .min_p = f->min_p,
    .repetition_penalty = f->repetition_penalty, .presence_penalty = f->presence_penalty, .frequency_penalty = f->frequency_penalty,
    .biases = f->bias_count ? f->biases : NULL, .bias_count = f->bias_count, .allowed_ids = f->allowed_count ? f->allowed_ids : NULL,
    .allowed_count = f->allowed_count, .constraint = f->constraint, .seed = f->seed, .sample_index = index % f->samples,
    .stop_ids = f->stop_count ? f->stop_ids : NULL, .stop_count = f->stop_count,
    .stop_texts = f->stop_text_count ? f->stop_texts : NULL, .stop_text_count = f->stop_text_count, .ignore_eos = f->ignore_eos,
    .deadline_seconds = f->deadline_seconds, .required = f->required_count ? f->required : NULL, .required_count = f->required_count,
    .on_token = on_token, .on_text = f->stream ? on_text : NULL, .fault_op = ""};
}

/* The ids of calls follow from the prompt and the sample's number. */
static answer_form form_of(const serve_request *request, uint32_t index) {
  const serve_prompt *prompt = &request->prompts[index / request->fields.samples];
  answer_form form = request->form;
  digest_state state;
  digest_start(&state);
  digest_add(&state, prompt->ids, prompt->count * sizeof *prompt->ids);
  digest_add(&state, &index, sizeof index);
  form.seed = digest_end(&state);
  return form;
}

/* Alternatives come after all tokens: both have whole multiples of 8 bytes. */
static bool make_choices(serve_request *request, uint64_t output_bytes, serve_fault *fault) {
  uint64_t rows = 0;
  for (uint32_t i = 0; i < request->choice_count; i++) rows += outputs_of(request, i).scores + outputs_of(request, i).tokens;
  request->choices = calloc(request->choice_count, sizeof *request->choices);
  request->outputs = malloc(output_bytes);
  if (!request->choices || !request->outputs) return no_memory(fault);
  verbatim_token *tokens = request->outputs;
  verbatim_alternative *others = (verbatim_alternative *)(tokens + rows);
  for (uint32_t i = 0; i < request->choice_count; i++) {
    serve_choice *choice = &request->choices[i];
    outputs of = outputs_of(request, i);
    choice->request = request;
    choice->prompt = &request->prompts[i / request->fields.samples];
    choice->engine_request = request_of(request, i);
    choice->engine_request.context = choice;
    if (request->is_read) choice->form = form_of(request, i);
    choice->engine_request.scores = tokens;
    choice->engine_request.tokens = tokens + of.scores;
    choice->engine_request.alternatives = of.alternatives ? others : NULL;
    tokens += of.scores + of.tokens;
    others += of.alternatives;
  }
  return true;
}

/* What is read of the body points into its values, which the copy shares. */
static bool read_fields(const serve_model *m, serve_request *request, const json_t *body, serve_fault *fault) {
  json_t *whole = json_copy((json_t *)(uintptr_t)body), *value;
  const char *key;
  bool is_whole = whole != NULL;
  json_object_foreach((json_t *)(uintptr_t)m->defaults, key, value) {
    const json_t *given = json_object_get(body, key);
    const bool is_given = given && !json_is_null(given), are_ids = strcmp(key, "stop_token_ids") == 0;
    if (strcmp(key, "max_tokens") == 0) continue; /* judge_prompt */
    if (are_ids && (json_is_true(json_object_get(body, "ignore_eos")) || (is_given && !json_is_array(given)))) continue;
    if (are_ids) is_whole = is_whole && json_object_set_new(whole, key, json_text_union(is_given ? given : NULL, value)) == 0;
    else if (!is_given) is_whole = is_whole && json_object_set(whole, key, value) == 0;
  }
  const bool is_read = is_whole ? serve_fields_read(request->kind, whole, m->info->vocab, &request->fields, fault) : no_memory(fault);
  json_decref(whole);
  return is_read;
}

static bool fill(const serve_model *m, serve_request *request, const json_t *body, const char *request_id, serve_fault *fault) {
  uint64_t output_bytes = 0;
  if (!serve_request_check_model(m, body, fault)) return false;
  if (!read_fields(m, request, body, fault)) return false;
  if (!note_stops(m, body, &request->fields, fault)) return false;
  if (!(request->kind == SERVE_CHAT ? read_messages : read_prompts)(m, request, body, fault)) return false;
  if (!judge(m, request, fault) || !measure(m, request, &output_bytes, fault) || !make_choices(request, output_bytes, fault)) return false;
  request->stream = request->fields.stream;
  snprintf(request->id, sizeof request->id, "%s-%.64s", request->kind == SERVE_CHAT ? "chatcmpl" : "cmpl",
           request->fields.request_id ? request->fields.request_id : request_id);
  return true;
}

bool serve_request_parse(const serve_model *m, enum serve_kind kind, const char *body, size_t bytes, const char *request_id,
                     serve_request **out, serve_fault *fault) {
  json_t *object = NULL;
  serve_request *request = calloc(1, sizeof *request);
  if (!request) return no_memory(fault);
  request->kind = kind;
  pthread_mutex_init(&request->mutex, NULL);
  bool is_sound = serve_fields_parse(body, bytes, &object, fault) && fill(m, request, object, request_id, fault);
  json_decref(object);
  if (is_sound) *out = request;
  else serve_request_close(request);
  return is_sound;
}

void serve_request_close(serve_request *request) {
  if (!request) return;
  for (uint32_t i = 0; i < request->prompt_count; i++) free(request->prompts[i].ids);
  json_decref(request->fields.ignored);
  json_decref(request->tools);
  for (uint32_t i = 0; i < request->choice_count && request->choices; i++) answer_close(&request->choices[i].sent.answer);
  verbatim_constraint_close(request->fields.constraint);
  free(request->prompts);
  free(request->choices);
  free(request->outputs);
  pthread_mutex_destroy(&request->mutex);
  free(request);
}

uint32_t serve_request_stop_ids(const serve_model *m, const verbatim_request *r, int32_t *ids) {
  uint32_t own = r->ignore_eos ? 0 : min_u32(m->info->eos_count, SERVE_REQUEST_STOPS_MAX - VERBATIM_STOP_IDS_MAX);
  return stop_ids_join(m->info->eos, own, r->stop_ids, r->stop_count, ids);
}

const char *serve_request_name(const serve_choice *choice, char name[SERVE_REQUEST_NAME_BYTES]) {
  const serve_request *request = choice->request;
  if (request->choice_count == 1) snprintf(name, SERVE_REQUEST_NAME_BYTES, "%s", request->id);
  else snprintf(name, SERVE_REQUEST_NAME_BYTES, "%s#%td", request->id, choice - request->choices);
  return name;
}
