/* serve/fields.c - see serve/fields.h. FIELDS has one row for each field that is read; further tables list the fields accepted only at
 * their neutral value, and those without effect. */
#include "serve/fields.h"
#include "base/json_text.h"
#include "base/spelling.h"
#include "constrain/json_form.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPLETION 1u
#define CHAT 2u
#define BOTH 3u

typedef struct field {
  const char *name;
  bool (*read)(const struct field *at, const json_t *value, serve_fields *out, serve_fault *fault);
  unsigned kinds;
  size_t offset;       /* in serve_fields, of the member that a reader of numbers or flags sets */
  double least, most;  /* 0 is always allowed as "off" if zero says so */
  const char *expected;
  bool zero;
} field;

bool serve_fields_wrong(serve_fault *fault, const char *param, const char *code, const char *format, ...) {
  va_list args;
  *fault = (serve_fault){.http_status = 400, .type = "invalid_request_error"};
  snprintf(fault->param, sizeof fault->param, "%s", param);
  snprintf(fault->code, sizeof fault->code, "%s", code);
  va_start(args, format);
  vsnprintf(fault->message, sizeof fault->message, format, args);
  va_end(args);
  return false;
}

static bool wrong_at(serve_fault *fault, const char *path, const char *expected) {
  return serve_fields_wrong(fault, path, "invalid_value", "%s: expected %s", path, expected);
}

static bool wrong(serve_fault *fault, const field *at, const char *expected) { return wrong_at(fault, at->name, expected); }

/* An entry of the field's list. */
static bool wrong_entry(serve_fault *fault, const field *at, size_t index, const char *expected) {
  char path[SERVE_FIELDS_PATH_BYTES];
  snprintf(path, sizeof path, "%s[%zu]", at->name, index);
  return wrong_at(fault, path, expected);
}

/* === Numbers and flags ====================================================================================================== */

/* Also takes a number like 2.0: some clients write every number with a fraction. From 2^53 on, such a number may be another than meant. */
static bool integer_of(const json_t *value, json_int_t *out) {
  double number = json_real_value(value);
  bool is_whole = json_is_real(value) && fabs(number) < 0x1p53 && number == trunc(number);
  *out = is_whole ? (json_int_t)number : json_integer_value(value);
  return is_whole || json_is_integer(value);
}

static bool read_count(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  uint32_t *target = (uint32_t *)((char *)out + at->offset);
  json_int_t found;
  if (!integer_of(value, &found) || (double)found < at->least || (double)found > at->most) return wrong(fault, at, at->expected);
  *target = (uint32_t)found;
  return true;
}

static bool read_max_tokens(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  out->has_max_tokens = true;
  return read_count(at, value, out, fault);
}

static bool read_max_completion_tokens(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  out->has_max_completion_tokens = true;
  return read_count(at, value, out, fault);
}

static bool read_best_of(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  out->has_best_of = true;
  return read_count(at, value, out, fault);
}

static bool read_top_k(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  json_int_t found;
  if (integer_of(value, &found) && found == -1) return true; /* off, like 0 */
  return read_count(at, value, out, fault);
}

static bool read_logprobs(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  out->logprobs = true;
  return read_count(at, value, out, fault);
}

static bool read_prompt_logprobs(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  out->prompt_logprobs = true;
  return read_count(at, value, out, fault);
}

/* -0 becomes +0. */
static bool read_double(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  double found = json_number_value(value), *target = (double *)((char *)out + at->offset);
  bool is_off = at->zero && found == 0;
  if (!json_is_number(value) || !(is_off || (found >= at->least && found <= at->most))) return wrong(fault, at, at->expected);
  *target = found == 0 ? 0 : found;
  return true;
}

static bool read_float(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  double found = json_number_value(value);
  float *target = (float *)((char *)out + at->offset);
  bool is_off = at->zero && found == 0;
  if (!json_is_number(value) || !(is_off || (found >= at->least && found <= at->most))) return wrong(fault, at, at->expected);
  *target = found == 0 ? 0.0f : (float)found;
  return true;
}

static bool read_flag(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  bool *target = (bool *)((char *)out + at->offset);
  if (!json_is_boolean(value)) return wrong(fault, at, "true or false");
  *target = json_is_true(value);
  return true;
}

/* Seeds have 64 bits but JSON integers only 63, so larger seeds are written as text. */
static bool read_seed(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  const char *text = json_string_value(value);
  char *end = NULL;
  errno = 0;
  uint64_t seed = text && isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
  bool is_text = end && !*end && !errno && strlen(text) == json_string_length(value);
  json_int_t number;
  bool is_number = integer_of(value, &number) && number >= 0;
  if (!is_text && !is_number) return wrong(fault, at, "an integer of 0 to 18446744073709551615 (text above 9223372036854775807)");
  out->seed = is_number ? (uint64_t)number : seed;
  return true;
}

/* === Texts and lists ======================================================================================================== */

/* Every kept text is bounded, and the pool has room for all of them. */
static const char *keep(serve_fields *out, const json_t *text) {
  size_t bytes = json_string_length(text);
  char *kept = out->pool + out->pool_used;
  ASSERT(bytes + 1 <= sizeof out->pool - out->pool_used);
  memcpy(kept, json_string_value(text), bytes + 1);
  out->pool_used += (uint32_t)bytes + 1;
  return kept;
}

static bool read_stop(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  size_t count = json_is_array(value) ? json_array_size(value) : 1;
  if (count > VERBATIM_STOP_TEXTS_MAX) return wrong(fault, at, "a text, or a list of at most 16");
  for (size_t i = 0; i < count; i++) {
    const json_t *text = json_is_array(value) ? json_array_get(value, i) : value;
    size_t bytes = json_string_length(text);
    if (!json_is_string(text) || bytes == 0 || bytes > VERBATIM_STOP_TEXT_BYTES_MAX)
      return json_is_array(value) ? wrong_entry(fault, at, i, "a text of 1 to 256 bytes")
                                  : wrong(fault, at, "a text of 1 to 256 bytes, or a list of these");
    out->stop_texts[i] = (verbatim_text){.bytes = keep(out, text), .count = bytes};
  }
  out->stop_text_count = (uint32_t)count;
  return true;
}

bool serve_fields_ids(const char *param, const json_t *list, uint32_t vocab, int32_t *ids, serve_fault *fault) {
  const json_t *id;
  size_t i;
  json_array_foreach(list, i, id) {
    json_int_t number;
    char path[SERVE_FIELDS_PATH_BYTES];
    if (!integer_of(id, &number) || number < 0 || number >= vocab) {
      snprintf(path, sizeof path, "%s[%zu]", param, i);
      return serve_fields_wrong(fault, path, "invalid_value", "%s: expected one of the token ids, integers of 0 to %u", path, vocab - 1);
    }
    ids[i] = (int32_t)number;
  }
  return true;
}

static bool read_stop_ids(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  if (!json_is_array(value) || json_array_size(value) > VERBATIM_STOP_IDS_MAX) return wrong(fault, at, "a list of at most 64 token ids");
  out->stop_count = (uint32_t)json_array_size(value);
  return serve_fields_ids(at->name, value, out->vocab, out->stop_ids, fault);
}

static bool read_allowed(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  size_t count = json_array_size(value);
  if (!json_is_array(value) || count == 0 || count > VERBATIM_BIASES_MAX) return wrong(fault, at, "a list of 1 to 1024 token ids");
  if (!serve_fields_ids(at->name, value, out->vocab, out->allowed_ids, fault)) return false;
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < i; j++)
      if (out->allowed_ids[i] == out->allowed_ids[j]) return wrong_entry(fault, at, i, "no token id twice");
  out->allowed_count = (uint32_t)count;
  return true;
}

/* Compiled here, on the thread that reads bodies. */
static bool read_constraint(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  verbatim_constraint *made = NULL;
  fail_clear(); /* the first cause would be kept, of an earlier body */
  const status result = json_form_read(at->name, value, &made);
  if (result != OK) {
    const char *code = result == ERR_UNSUPPORTED ? "unsupported_value" : "invalid_value";
    return serve_fields_wrong(fault, at->name, code, "%.500s", fail_text());
  }
  if (made && out->constraint) {
    verbatim_constraint_close(made);
    return wrong(fault, at, "one of response_format, structured_outputs and guided_*, not several");
  }
  if (made) out->constraint = made, out->constraint_field = at->name;
  return true;
}

/* Keys are decimal ids in canonical form, so that no id occurs twice. */
static bool read_biases(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  const char *key;
  const json_t *bias;
  uint32_t count = 0;
  if (!json_is_object(value) || json_object_size(value) > VERBATIM_BIASES_MAX)
    return wrong(fault, at, "an object of token ids and biases, at most 1024");
  json_object_foreach((json_t *)(uintptr_t)value, key, bias) {
    char *end = NULL;
    errno = 0;
    long id = isdigit((unsigned char)*key) && (key[0] != '0' || !key[1]) ? strtol(key, &end, 10) : -1;
    double number = json_number_value(bias);
    char path[SERVE_FIELDS_PATH_BYTES];
    snprintf(path, sizeof path, "%s.%.64s", at->name, key);
    if (!end || *end || errno || id >= (long)out->vocab) return wrong_at(fault, path, "token ids of the vocabulary as keys, like \"17\"");
    if (!json_is_number(bias) || !(number >= -1000 && number <= 1000)) return wrong_at(fault, path, "a bias of -1000 to 1000");
    out->biases[count++] = (verbatim_bias){.token = (int32_t)id, .bias = number == 0 ? 0.0f : (float)number};
  }
  out->bias_count = count;
  return true;
}

static bool is_name(const json_t *value) {
  size_t bytes = json_string_length(value);
  return json_is_string(value) && bytes > 0 && bytes <= SERVE_FIELDS_NAME_BYTES && strlen(json_string_value(value)) == bytes;
}

static bool read_required(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  const json_t *name;
  size_t i;
  if (!json_is_array(value) || json_array_size(value) > VERBATIM_REQUIRED_MAX) return wrong(fault, at, "a list of at most 32 axes");
  json_array_foreach(value, i, name) {
    if (!is_name(name)) return wrong_entry(fault, at, i, "the name of an axis, like \"prefix_hit\"");
    out->required[i] = keep(out, name);
  }
  out->required_count = (uint32_t)json_array_size(value);
  return true;
}

static bool read_request_id(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  static const char expected[] = "a text of 1 to 64 letters, digits, \"-\", \"_\", \".\" and \":\"";
  if (!is_name(value)) return wrong(fault, at, expected);
  for (const char *c = json_string_value(value); *c; c++)
    if (!isalnum((unsigned char)*c) && !strchr("-_.:", *c)) return wrong(fault, at, expected);
  out->request_id = keep(out, value);
  return true;
}

/* As in vLLM, continuous_usage_stats adds to what include_usage asks for, and alone has no effect. */
static bool read_stream_options(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  static const char *const names[] = {"include_usage", "continuous_usage_stats", "include_obfuscation", NULL};
  static const char path[] = "stream_options.";
  bool obfuscates = false, continues = false;
  if (!json_is_object(value)) return wrong(fault, at, "an object");
  if (!serve_fields_only(value, path, names, fault) || !serve_fields_bool(value, path, names[0], &out->include_usage, fault) ||
      !serve_fields_bool(value, path, names[1], &continues, fault) || !serve_fields_bool(value, path, names[2], &obfuscates, fault))
    return false;
  if (obfuscates)
    return serve_fields_wrong(fault, "stream_options.include_obfuscation", "unsupported_parameter",
                              "stream_options.include_obfuscation is not supported but as false; hint: leave it out");
  out->include_running_usage = continues && out->include_usage;
  return !continues || out->include_usage || serve_fields_ignore(out, "stream_options.continuous_usage_stats", fault);
}

bool serve_fields_ignore(serve_fields *self, const char *path, serve_fault *fault) {
  if (!self->ignored) self->ignored = json_array();
  if (json_array_append_new(self->ignored, json_string(path)) == 0) return true;
  *fault = (serve_fault){.http_status = 500, .type = "server_error", .code = "out_of_memory", .message = "no memory for the request"};
  return false;
}

static bool read_ignored(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  (void)value;
  return serve_fields_ignore(out, at->name, fault);
}

static bool read_elsewhere(const field *at, const json_t *value, serve_fields *out, serve_fault *fault) {
  (void)at;
  (void)value;
  (void)out;
  (void)fault;
  return true;
}

/* === The table ============================================================================================================== */

#define AT(member) offsetof(serve_fields, member)
#define COUNT(name, kinds, member, least, most, expected) {name, read_count, kinds, AT(member), least, most, expected, false}
#define FLAG(name, kinds, member) {name, read_flag, kinds, AT(member), 0, 0, NULL, false}
#define OTHER(name, read, kinds) {name, read, kinds, 0, 0, 0, NULL, false}
#define TOKENS_EXPECTED "an integer of 0 to 4294967295"
#define ALTERNATIVES_EXPECTED "an integer of 0 to 20"

static const field FIELDS[] = {
  OTHER("model", read_elsewhere, BOTH),
  OTHER("prompt", read_elsewhere, COMPLETION),
  OTHER("messages", read_elsewhere, CHAT),
  OTHER("tools", read_elsewhere, CHAT),
  OTHER("tool_choice", read_elsewhere, CHAT),
  OTHER("add_generation_prompt", read_elsewhere, CHAT),
  OTHER("continue_final_message", read_elsewhere, CHAT),
  OTHER("chat_template_kwargs", read_elsewhere, CHAT),
  {"max_tokens", read_max_tokens, BOTH, AT(max_tokens), 0, UINT32_MAX, TOKENS_EXPECTED, false},
  {"max_completion_tokens", read_max_completion_tokens, CHAT, AT(max_completion_tokens), 0, UINT32_MAX, TOKENS_EXPECTED, false},
  COUNT("n", BOTH, samples, 1, SERVE_FIELDS_SAMPLES_MAX, "an integer of 1 to 128"),
  {"best_of", read_best_of, COMPLETION, AT(best_of), 1, SERVE_FIELDS_SAMPLES_MAX, "an integer of 1 to 128", false},
  {"temperature", read_float, BOTH, AT(temperature), 1e-3, 100, "0, or a number of 0.001 to 100", true},
  {"top_p", read_double, BOTH, AT(top_p), 0x1p-1022, 1, "a number above 0 and at most 1", false},
  {"top_k", read_top_k, BOTH, AT(top_k), 0, UINT32_MAX, "an integer of -1 to 4294967295 (-1 and 0: off)", false},
  {"min_p", read_double, BOTH, AT(min_p), 1e-30, 1, "0, or a number of 1e-30 to 1", true},
  {"repetition_penalty", read_float, BOTH, AT(repetition_penalty), 0.0625, 16, "a number of 0.0625 to 16", false},
  {"presence_penalty", read_float, BOTH, AT(presence_penalty), -16, 16, "a number of -16 to 16", false},
  {"frequency_penalty", read_float, BOTH, AT(frequency_penalty), -16, 16, "a number of -16 to 16", false},
  OTHER("seed", read_seed, BOTH),
  OTHER("stop", read_stop, BOTH),
  OTHER("stop_token_ids", read_stop_ids, BOTH),
  FLAG("ignore_eos", BOTH, ignore_eos),
  FLAG("include_stop_str_in_output", BOTH, include_stop),
  OTHER("logit_bias", read_biases, BOTH),
  OTHER("allowed_token_ids", read_allowed, BOTH),
  OTHER("response_format", read_constraint, BOTH),
  OTHER("structured_outputs", read_constraint, BOTH),
  OTHER("guided_choice", read_constraint, BOTH),
  OTHER("guided_regex", read_constraint, BOTH),
  OTHER("guided_json", read_constraint, BOTH),
  {"logprobs", read_logprobs, COMPLETION, AT(top_logprobs), 0, VERBATIM_TOP_LOGPROBS_MAX, ALTERNATIVES_EXPECTED, false},
  FLAG("logprobs", CHAT, logprobs),
  COUNT("top_logprobs", CHAT, top_logprobs, 0, VERBATIM_TOP_LOGPROBS_MAX, ALTERNATIVES_EXPECTED),
  {"prompt_logprobs", read_prompt_logprobs, BOTH, AT(prompt_top), 0, VERBATIM_TOP_LOGPROBS_MAX, ALTERNATIVES_EXPECTED, false},
  FLAG("echo", COMPLETION, echo),
  FLAG("add_special_tokens", BOTH, add_special),
  FLAG("return_token_ids", BOTH, return_ids),
  FLAG("return_tokens_as_token_ids", BOTH, names_as_ids),
  FLAG("stream", BOTH, stream),
  OTHER("stream_options", read_stream_options, BOTH),
  OTHER("request_id", read_request_id, BOTH),
  FLAG("return_params", BOTH, return_params),
  FLAG("return_receipt", BOTH, return_receipt),
  OTHER("verbatim_require", read_required, BOTH),
  {"deadline_seconds", read_double, BOTH, AT(deadline_seconds), 0, 1e9, "a number of seconds, 0 (none) to 1000000000", true},
  OTHER("user", read_ignored, BOTH),
  OTHER("metadata", read_ignored, BOTH),
  OTHER("safety_identifier", read_ignored, BOTH),
  OTHER("prompt_cache_key", read_ignored, BOTH),
  OTHER("parallel_tool_calls", read_elsewhere, CHAT),
};

/* Fields of other servers that this program lacks: accepted only at their neutral value, if they have one. */
static const struct { const char *name, *neutral; } LACKED[] = {
  {"suffix", "\"\""}, {"min_tokens", "0"}, {"length_penalty", "1.0"}, {"use_beam_search", "false"}, {"truncate_prompt_tokens", NULL},
  {"skip_special_tokens", "true"}, {"spaces_between_special_tokens", "true"}, {"detokenize", "true"}, {"bad_words", "[]"},
  {"guided_grammar", NULL}, {"guided_decoding_backend", NULL}, {"guided_whitespace_pattern", NULL},
  {"grammar", NULL}, {"logits_processors", "[]"}, {"cache_salt", NULL}, {"priority", "0"}, {"store", "false"},
  {"service_tier", "\"auto\""}, {"prompt_embeds", NULL}, {"kv_transfer_params", NULL}, {"vllm_xargs", NULL}, {"functions", "[]"},
  {"function_call", "\"none\""}, {"modalities", "[\"text\"]"}, {"audio", NULL}, {"prediction", NULL}, {"web_search_options", NULL},
  {"reasoning_effort", NULL}, {"verbosity", NULL}, {"chat_template", NULL}, {"documents", "[]"}, {"mm_processor_kwargs", NULL},
  {"typical_p", "1.0"}, {"top_a", "0.0"}, {"mirostat", "0"}, {"no_repeat_ngram_size", "0"}, {"do_sample", NULL},
  {"include_reasoning", NULL}, {"echo", "false"}, {"best_of", NULL}, {"top_logprobs", "0"}, {"timeout", NULL},
};

/* Other servers' names for fields of this one. */
static const struct { const char *name, *ours; } MEANT[] = {
  {"max_new_tokens", "max_tokens"}, {"max_length", "max_tokens"}, {"max_gen_toks", "max_tokens"}, {"max_output_tokens", "max_tokens"},
  {"n_predict", "max_tokens"}, {"num_predict", "max_tokens"}, {"num_return_sequences", "n"}, {"stop_sequences", "stop"},
  {"stop_strings", "stop"}, {"until", "stop"}, {"stop_ids", "stop_token_ids"}, {"allowed_ids", "allowed_token_ids"},
  {"eos_token_id", "stop_token_ids"}, {"require", "verbatim_require"}, {"repeat_penalty", "repetition_penalty"},
  {"prompt_ids", "prompt"}, {"input", "prompt"}, {"prompt_token_ids", "prompt"}, {"deadline", "deadline_seconds"}, {"temp", "temperature"},
};

/* === The whole body ========================================================================================================= */

static const char *meant(const char *name, unsigned kind) {
  spelling_search search = spelling_begin(name, strlen(name) > 4 ? 2 : 1); /* with more differences it is another word */
  for (size_t i = 0; i < ARRAY_LEN(MEANT); i++)
    if (strcmp(MEANT[i].name, name) == 0) return MEANT[i].ours;
  for (size_t i = 0; i < ARRAY_LEN(FIELDS); i++)
    if (FIELDS[i].kinds & kind) spelling_try(&search, FIELDS[i].name);
  return search.nearest;
}

/* Compares without members that are null. */
static bool is_equal(const json_t *neutral, const json_t *value) {
  json_t *given = json_text_given(value);
  bool equal = json_equal(neutral, given);
  json_decref(given);
  return equal;
}

static bool read_unknown(const char *name, const json_t *value, unsigned kind, serve_fault *fault) {
  for (size_t i = 0; i < ARRAY_LEN(LACKED); i++) {
    if (strcmp(LACKED[i].name, name) != 0) continue;
    json_t *neutral = LACKED[i].neutral ? json_loads(LACKED[i].neutral, JSON_DECODE_ANY, NULL) : NULL;
    bool is_number = json_is_number(neutral) && json_is_number(value);
    bool is_neutral = is_number ? json_number_value(neutral) == json_number_value(value) : neutral && is_equal(neutral, value);
    json_decref(neutral);
    if (is_neutral) return true;
    return serve_fields_wrong(fault, name, "unsupported_parameter",
                              "%s is not supported%s%s; hint: leave it out; ignoring it would change the request", name,
                              LACKED[i].neutral ? " but as " : "", LACKED[i].neutral ? LACKED[i].neutral : "");
  }
  const char *nearest = meant(name, kind);
  for (size_t i = 0; i < ARRAY_LEN(FIELDS); i++)
    if (strcmp(FIELDS[i].name, name) == 0)
      return serve_fields_wrong(fault, name, "unknown_parameter", "%s is a field of %s only", name,
                                kind == CHAT ? "completions" : "chat completions");
  return serve_fields_wrong(fault, name, "unknown_parameter", "%.64s is not a field of this request%s%s%s", name,
                            nearest ? "; hint: is \"" : "; SERVING.md lists them", nearest ? nearest : "", nearest ? "\" meant?" : "");
}

/* Counts values and lists before any is allocated. For text that is not JSON the counts are meaningless but harmless. */
static bool check_size(const char *body, size_t bytes, serve_fault *fault) {
  size_t values = 1, lists = 0;
  bool is_text = false;
  for (size_t i = 0; i < bytes; i++) {
    if (body[i] == '"') is_text = !is_text;
    else if (is_text && body[i] == '\\') i++;
    else if (!is_text && body[i] == ',') values++;
    else if (!is_text && (body[i] == '[' || body[i] == '{')) lists++;
  }
  if (values <= SERVE_FIELDS_VALUES_MAX && lists <= SERVE_FIELDS_LISTS_MAX) return true;
  return serve_fields_wrong(fault, "", "request_too_large", "the body has %zu values and %zu lists and objects, at most %u and %u are "
                            "allowed; hint: send it as several requests", values, lists, SERVE_FIELDS_VALUES_MAX, SERVE_FIELDS_LISTS_MAX);
}

/* JSON has no byte order mark (RFC 8259), and a proxy that drops it would change the body. */
static bool check_encoding(const char *body, size_t bytes, serve_fault *fault) {
  bool is_utf16 = bytes >= 2 && (memcmp(body, "\xff\xfe", 2) == 0 || memcmp(body, "\xfe\xff", 2) == 0);
  if (is_utf16)
    return serve_fields_wrong(fault, "", "invalid_json", "the body begins with a byte order mark of UTF-16; hint: send UTF-8 without one");
  if (json_text_mark(body, bytes))
    return serve_fields_wrong(fault, "", "invalid_json", "the body begins with a byte order mark (EF BB BF); hint: leave it out, as with "
                              "Python's encoding \"utf-8\" instead of \"utf-8-sig\"");
  return true;
}

bool serve_fields_parse(const char *body, size_t bytes, json_t **out, serve_fault *fault) {
  json_error_t error;
  const char *key;
  json_t *value;
  void *next;
  if (!check_size(body, bytes, fault) || !check_encoding(body, bytes, fault)) return false;
  json_t *object = json_text_load(body, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  if (!object && json_error_code(&error) == json_error_out_of_memory) {
    *fault = (serve_fault){.http_status = 500, .type = "server_error", .code = "out_of_memory", .message = "no memory to read the body"};
    return false;
  }
  if (!object) return serve_fields_wrong(fault, "", "invalid_json", "the body is not JSON: %.200s (line %d)", error.text, error.line);
  if (!json_is_object(object)) {
    json_decref(object);
    return serve_fields_wrong(fault, "", "invalid_json", "the body is not a JSON object");
  }
  json_object_foreach_safe(object, next, key, value) {
    if (json_is_null(value)) json_object_del(object, key);
  }
  *out = object;
  return true;
}

bool serve_fields_only(const json_t *body, const char *path, const char *const *names, serve_fault *fault) {
  const char *key;
  const json_t *value;
  char whole[SERVE_FIELDS_PATH_BYTES];
  json_object_foreach((json_t *)(uintptr_t)body, key, value) {
    const char *const *name = names;
    while (*name && strcmp(*name, key) != 0) name++;
    snprintf(whole, sizeof whole, "%s%.64s", path, key);
    if (!*name && !json_is_null(value))
      return serve_fields_wrong(fault, whole, "unknown_parameter", "%s is not a field here; SERVING.md lists them", whole);
  }
  return true;
}

bool serve_fields_bool(const json_t *body, const char *path, const char *name, bool *out, serve_fault *fault) {
  const json_t *value = json_object_get(body, name);
  char whole[SERVE_FIELDS_PATH_BYTES];
  if (!value || json_is_null(value)) return true;
  snprintf(whole, sizeof whole, "%s%s", path, name);
  if (!json_is_boolean(value)) return wrong_at(fault, whole, "true or false");
  *out = json_is_true(value);
  return true;
}

/* Checks that involve several fields. */
static bool check(enum serve_kind kind, const serve_fields *f, const json_t *body, serve_fault *fault) {
  if (f->has_best_of && f->best_of != f->samples)
    return serve_fields_wrong(fault, "best_of", "unsupported_parameter", "best_of is not supported unless equal to n, which is %u",
                              f->samples);
  if (f->has_max_tokens && f->has_max_completion_tokens && f->max_tokens != f->max_completion_tokens)
    return serve_fields_wrong(fault, "max_completion_tokens", "invalid_value", "max_tokens and max_completion_tokens differ");
  if (f->constraint && f->allowed_count)
    return serve_fields_wrong(fault, "allowed_token_ids", "invalid_value", "allowed_token_ids and a constraint on the answer exclude each "
                              "other");
  if (kind == SERVE_CHAT && f->top_logprobs && !f->logprobs)
    return serve_fields_wrong(fault, "top_logprobs", "invalid_value", "top_logprobs: requires logprobs true");
  if (f->stream && f->prompt_logprobs)
    return serve_fields_wrong(fault, "prompt_logprobs", "unsupported_parameter", "prompt_logprobs is not supported with stream");
  if (json_object_get(body, "stream_options") && !f->stream)
    return serve_fields_wrong(fault, "stream_options", "invalid_value", "stream_options: requires stream true");
  return true;
}

bool serve_fields_read(enum serve_kind kind, const json_t *body, uint32_t vocab, serve_fields *out, serve_fault *fault) {
  unsigned mask = kind == SERVE_CHAT ? CHAT : COMPLETION;
  const char *key;
  const json_t *value;
  *out = (serve_fields){.samples = 1, .temperature = 1, .top_p = 1, .repetition_penalty = 1, .add_special = kind == SERVE_COMPLETION,
                        .vocab = vocab};
  json_object_foreach((json_t *)(uintptr_t)body, key, value) {
    const field *at = FIELDS, *end = FIELDS + ARRAY_LEN(FIELDS);
    while (at < end && (strcmp(at->name, key) != 0 || !(at->kinds & mask))) at++;
    if (!(at < end ? at->read(at, value, out, fault) : read_unknown(key, value, mask, fault))) return false;
  }
  if (!check(kind, out, body, fault)) return false;
  if (out->has_max_completion_tokens) out->max_tokens = out->max_completion_tokens, out->has_max_tokens = true;
  return true;
}
