/* receipts/read.c - see receipts/read.h. Order: values by key, one request, the whole file. */
#include "receipts/read.h"
#include "base/json_text.h"
#include "kernels_src/abi.h"
#include "receipts/receipt.h"
#include "base/input_file.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STOPS_MAX (EOS_MAX + VERBATIM_STOP_IDS_MAX)
#define PLACES_MAX (1u << 24)
#define TOP_P_ONE (UINT64_C(1) << 32)

/* === Values ================================================================================================================= */

typedef struct object { /* of a line; prefix: the enclosing key and a dot, for messages */
  const json_t *json;
  uint32_t line;
  const char *prefix;
} object;

static status wrong(const object *o, const char *key, const char *expected) {
  return FAIL(ERR_FORMAT, "receipt, line %u: \"%s%.64s\": expected %s", o->line, o->prefix, key, expected);
}

static status no_memory(void) { return FAIL(ERR_LIMIT, "receipt: no memory"); }

/* Zeroed memory for count items, or for one if count is 0. NULL: no memory. */
static void *room_for(size_t count, size_t bytes) { return calloc(count ? count : 1, bytes); }

/* Allows these keys and no others. The parser has already refused duplicates. */
static status check_keys(const object *o, const char *const *keys, size_t count) {
  const char *key;
  json_t *value;
  for (size_t i = 0; i < count; i++)
    if (!json_object_get(o->json, keys[i])) return wrong(o, keys[i], "to be there");
  json_object_foreach((json_t *)(uintptr_t)o->json, key, value) {
    size_t at = 0;
    while (at < count && strcmp(keys[at], key) != 0) at++;
    if (at == count) return wrong(o, key, "no such key");
  }
  return OK;
}

static status take_object(const object *outer, const char *key, const char *prefix, object *out) {
  const json_t *value = json_object_get(outer->json, key);
  if (!json_is_object(value)) return wrong(outer, key, "an object");
  *out = (object){.json = value, .line = outer->line, .prefix = prefix};
  return OK;
}

static bool is_integer(const json_t *value, uint64_t least, uint64_t most) {
  return json_is_integer(value) && json_integer_value(value) >= 0 && (uint64_t)json_integer_value(value) >= least &&
         (uint64_t)json_integer_value(value) <= most;
}

static status take_integer(const object *o, const char *key, uint64_t least, uint64_t most, uint64_t *out) {
  const json_t *value = json_object_get(o->json, key);
  char expected[96];
  snprintf(expected, sizeof expected, "an integer of %llu to %llu", (unsigned long long)least, (unsigned long long)most);
  if (!is_integer(value, least, most)) return wrong(o, key, expected);
  *out = (uint64_t)json_integer_value(value);
  return OK;
}

static status take_u32(const object *o, const char *key, uint32_t least, uint32_t most, uint32_t *out) {
  uint64_t value;
  TRY(take_integer(o, key, least, most, &value));
  *out = (uint32_t)value;
  return OK;
}

/* Exactly `digits` lower-case hexadecimal digits, at most 16. */
static bool is_hex(const char *text, size_t bytes, size_t digits, uint64_t *out) {
  uint64_t value = 0;
  if (bytes != digits) return false;
  for (size_t i = 0; i < digits; i++) {
    char c = text[i];
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
    value = value << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  *out = value;
  return true;
}

static bool is_hex_value(const json_t *value, size_t digits, uint64_t *out) {
  return json_is_string(value) && is_hex(json_string_value(value), json_string_length(value), digits, out);
}

static status take_hex(const object *o, const char *key, size_t digits, uint64_t *out) {
  char expected[48];
  snprintf(expected, sizeof expected, "%zu lower-case hexadecimal digits", digits);
  return is_hex_value(json_object_get(o->json, key), digits, out) ? OK : wrong(o, key, expected);
}

static bool is_digest(const json_t *value, uint8_t *out) {
  uint64_t half[2];
  if (!json_is_string(value) || json_string_length(value) != 2 * DIGEST_BYTES) return false;
  const char *text = json_string_value(value);
  if (!is_hex(text, 16, 16, &half[0]) || !is_hex(text + 16, 16, 16, &half[1])) return false;
  for (uint32_t i = 0; i < DIGEST_BYTES; i++) out[i] = (uint8_t)(half[i / 8] >> (56 - 8 * (i % 8)));
  return true;
}

static status take_digest(const object *o, const char *key, uint8_t *out) {
  return is_digest(json_object_get(o->json, key), out) ? OK : wrong(o, key, "a digest of 32 lower-case hexadecimal digits");
}

/* Null: zeros. */
static status take_sha256(const object *o, const char *key, uint8_t *out) {
  const json_t *value = json_object_get(o->json, key);
  const char *text = json_string_value(value);
  uint64_t part = 0;
  if (json_is_null(value)) return OK;
  bool is_good = text && json_string_length(value) == 2 * SHA256_BYTES;
  for (uint32_t i = 0; is_good && i < SHA256_BYTES; i++) {
    if (i % 8 == 0) is_good = is_hex(text + 2 * i, 16, 16, &part);
    out[i] = (uint8_t)(part >> (56 - 8 * (i % 8)));
  }
  return is_good ? OK : wrong(o, key, "64 lower-case hexadecimal digits, or null");
}

static float float_of(uint64_t bits) {
  uint32_t narrow = (uint32_t)bits;
  float value;
  memcpy(&value, &narrow, sizeof value);
  return value;
}

/* A valid input value: finite, and not -0. */
static bool is_input(uint64_t bits) { return isfinite(float_of(bits)) && bits != 0x80000000u; }

static status take_float(const object *o, const char *key, float *out) {
  uint64_t bits;
  TRY(take_hex(o, key, 8, &bits));
  if (!is_input(bits)) return wrong(o, key, "the bits of a finite number, not of -0");
  *out = float_of(bits);
  return OK;
}

static status take_text(const object *o, const char *key, const json_t *value, char **out) {
  if (!json_is_string(value) || json_string_length(value) > RECEIPT_READ_TEXT_BYTES_MAX ||
      strlen(json_string_value(value)) != json_string_length(value))
    return wrong(o, key, "a text of at most 4096 bytes without NUL");
  if (!(*out = room_for(json_string_length(value) + 1, 1))) return no_memory();
  memcpy(*out, json_string_value(value), json_string_length(value));
  return OK;
}

static status take_array(const object *o, const char *key, size_t least, size_t most, const json_t **out) {
  const json_t *value = json_object_get(o->json, key);
  char expected[64];
  snprintf(expected, sizeof expected, least == most ? "a list of %zu items" : "a list of %zu to %zu items", least, most);
  if (!json_is_array(value) || json_array_size(value) < least || json_array_size(value) > most) return wrong(o, key, expected);
  *out = value;
  return OK;
}

static bool is_pair(const json_t *value) { return json_is_array(value) && json_array_size(value) == 2; }

/* === Inputs ================================================================================================================= */

static status take_ids(const object *o, const char *key, size_t least, size_t most, bool ascending, int32_t **out, uint32_t *count) {
  const json_t *list;
  int32_t *ids;
  TRY(take_array(o, key, least, most, &list));
  if (!(ids = room_for(json_array_size(list), sizeof *ids))) return no_memory();
  *out = ids; /* owned by the record from here on */
  *count = (uint32_t)json_array_size(list);
  for (uint32_t i = 0; i < *count; i++) {
    const json_t *value = json_array_get(list, i);
    if (!is_integer(value, 0, INT32_MAX)) return wrong(o, key, "token ids, integers of 0 to 2147483647");
    ids[i] = (int32_t)json_integer_value(value);
    if (ascending && i && ids[i - 1] >= ids[i]) return wrong(o, key, "ascending ids without repeats");
  }
  return OK;
}

static status take_choice(const object *o, verbatim_request *r) {
  uint64_t bits;
  TRY(take_float(o, "temperature", &r->temperature));
  TRY(take_u32(o, "top_k", 0, UINT32_MAX, &r->top_k));
  TRY(take_hex(o, "top_p", 9, &bits));
  if (bits == 0 || bits > TOP_P_ONE) return wrong(o, "top_p", "000000001 to 100000000");
  r->top_p = (double)bits / (double)TOP_P_ONE; /* exact */
  TRY(take_hex(o, "min_p", 16, &bits));
  memcpy(&r->min_p, &bits, sizeof bits);
  if (!isfinite(r->min_p) || bits == UINT64_C(1) << 63) return wrong(o, "min_p", "the bits of a finite number, not of -0");
  TRY(take_float(o, "repetition_penalty", &r->repetition_penalty));
  TRY(take_float(o, "presence_penalty", &r->presence_penalty));
  TRY(take_float(o, "frequency_penalty", &r->frequency_penalty));
  TRY(take_hex(o, "seed", 16, &r->seed));
  return take_u32(o, "sample_index", 0, UINT32_MAX, &r->sample_index);
}

/* In the list, an allowed id without a bias has bias 0, which means the same. */
static status take_list(const object *o, verbatim_request *r) {
  const json_t *list, *only = json_object_get(o->json, "list_only");
  verbatim_bias *biases;
  int32_t *allowed;
  if (!json_is_boolean(only)) return wrong(o, "list_only", "true or false");
  TRY(take_array(o, "list", json_is_true(only), TOKEN_LIST_MAX, &list));
  uint32_t count = (uint32_t)json_array_size(list);
  if (!(biases = room_for(count, sizeof *biases))) return no_memory();
  r->biases = biases;
  r->bias_count = count;
  for (uint32_t i = 0; i < count; i++) {
    const json_t *pair = json_array_get(list, i), *id = json_array_get(pair, 0);
    uint64_t bits;
    if (!is_pair(pair) || !is_integer(id, 0, INT32_MAX) || !is_hex_value(json_array_get(pair, 1), 8, &bits) || !is_input(bits))
      return wrong(o, "list", "pairs of a token id and the bits of a finite number, not of -0");
    biases[i] = (verbatim_bias){.token = (int32_t)json_integer_value(id), .bias = float_of(bits)};
    if (i && biases[i - 1].token >= biases[i].token) return wrong(o, "list", "ascending ids without repeats");
  }
  if (!json_is_true(only)) return OK;
  if (!(allowed = room_for(count, sizeof *allowed))) return no_memory();
  for (uint32_t i = 0; i < count; i++) allowed[i] = biases[i].token;
  r->allowed_ids = allowed;
  r->allowed_count = count;
  return OK;
}

static status take_stop_texts(const object *o, verbatim_request *r) {
  const json_t *list;
  verbatim_text *texts;
  TRY(take_array(o, "stop_texts", 0, VERBATIM_STOP_TEXTS_MAX, &list));
  if (!(texts = room_for(json_array_size(list), sizeof *texts))) return no_memory();
  r->stop_texts = texts;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *value = json_array_get(list, i);
    size_t bytes = json_string_length(value);
    char *copy;
    if (!json_is_string(value) || bytes == 0 || bytes > VERBATIM_STOP_TEXT_BYTES_MAX)
      return wrong(o, "stop_texts", "texts of 1 to 256 bytes");
    if (!(copy = room_for(bytes, 1))) return no_memory();
    memcpy(copy, json_string_value(value), bytes);
    texts[i] = (verbatim_text){.bytes = copy, .count = bytes};
    r->stop_text_count++;
  }
  return OK;
}

/* A pair of its kind and its text, in the lines of requests that have one. */
static status take_constraint(const object *o, verbatim_request *r) {
  const json_t *pair = json_object_get(o->json, "constraint"), *name = json_array_get(pair, 0), *text = json_array_get(pair, 1);
  enum verbatim_constraint_kind kind = VERBATIM_CHOICE;
  verbatim_constraint *made = NULL;
  if (!pair) return OK;
  if (!is_pair(pair) || !json_is_string(name) || !json_is_string(text)) return wrong(o, "constraint", "a pair of texts");
  while (kind <= VERBATIM_PARTS && !json_text_is(name, receipt_constraint_name(kind))) kind++;
  if (kind > VERBATIM_PARTS) return wrong(o, "constraint", "choice, regex, json_object, json_schema or parts, and its text");
  TRY(verbatim_constraint_open(&made, kind, json_string_value(text), json_string_length(text)));
  r->constraint = made;
  return OK;
}

static status take_inputs(const object *o, receipt_record *record) {
  verbatim_request *r = &record->request;
  uint32_t count = 0;
  int32_t *prompt = NULL, *stops = NULL;
  TRY(take_text(o, "id", json_object_get(o->json, "id"), &record->id));
  TRY(take_u32(o, "prompt_count", 1, LENGTH_MAX, &r->prompt_count));
  status result = take_ids(o, "prompt", r->prompt_count, r->prompt_count, false, &prompt, &count);
  r->prompt = prompt;
  TRY(result);
  TRY(take_u32(o, "max_tokens", 0, UINT32_MAX, &r->max_tokens));
  TRY(take_u32(o, "score_from", 0, r->prompt_count - 1, &r->score_from));
  r->score = r->score_from != 0;
  if (r->max_tokens == 0 && !r->score) return wrong(o, "max_tokens", "1 or more where nothing is scored");
  TRY(take_u32(o, "top_logprobs", 0, VERBATIM_TOP_LOGPROBS_MAX, &r->top_logprobs));
  TRY(take_choice(o, r));
  TRY(take_list(o, r));
  TRY(take_constraint(o, r));
  result = take_ids(o, "stop_ids", 0, STOPS_MAX, true, &stops, &r->stop_count);
  r->stop_ids = stops;
  TRY(result);
  r->ignore_eos = true;
  TRY(take_stop_texts(o, r));
  return take_digest(o, "request", r->request_digest);
}

/* === Outputs ================================================================================================================ */

static const char *const TOKEN_KEYS[] = {"tokens", "logprobs", "ranks", "logits", "alternatives"};

/* The lists of `scored` or `made`, without the alternatives. */
static status take_tokens(const object *o, uint32_t most, verbatim_token **out, uint32_t *count) {
  const json_t *ids, *lists[3];
  verbatim_token *tokens;
  uint64_t bits;
  TRY(check_keys(o, TOKEN_KEYS, ARRAY_LEN(TOKEN_KEYS)));
  TRY(take_array(o, "tokens", 0, most, &ids));
  size_t size = json_array_size(ids);
  for (size_t k = 0; k < 3; k++) TRY(take_array(o, TOKEN_KEYS[1 + k], size, size, &lists[k]));
  if (!(tokens = room_for(size, sizeof *tokens))) return no_memory();
  *out = tokens;
  *count = (uint32_t)size;
  for (size_t i = 0; i < size; i++) {
    const json_t *id = json_array_get(ids, i), *rank = json_array_get(lists[1], i);
    if (!is_integer(id, 0, INT32_MAX)) return wrong(o, "tokens", "token ids, integers of 0 to 2147483647");
    if (!is_hex_value(json_array_get(lists[0], i), 8, &bits)) return wrong(o, "logprobs", "8 lower-case hexadecimal digits each");
    if (!is_integer(rank, 0, UINT32_MAX)) return wrong(o, "ranks", "integers of 0 to 4294967295");
    tokens[i] = (verbatim_token){.id = (int32_t)json_integer_value(id), .rank = (uint32_t)json_integer_value(rank)};
    tokens[i].logprob = float_of(bits);
    if (!is_hex_value(json_array_get(lists[2], i), 16, &tokens[i].digest))
      return wrong(o, "logits", "16 lower-case hexadecimal digits each");
  }
  return OK;
}

static status take_alternatives(const object *o, uint32_t count, uint32_t each, verbatim_alternative *out) {
  const json_t *list;
  uint64_t bits;
  TRY(take_array(o, "alternatives", each ? count : 0, each ? count : 0, &list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *row = json_array_get(list, i);
    if (!json_is_array(row) || json_array_size(row) != each) return wrong(o, "alternatives", "as many of each token as top_logprobs");
    for (uint32_t k = 0; k < each; k++, out++) {
      const json_t *pair = json_array_get(row, k), *id = json_array_get(pair, 0);
      if (!is_pair(pair) || !is_integer(id, 0, INT32_MAX) || !is_hex_value(json_array_get(pair, 1), 8, &bits))
        return wrong(o, "alternatives", "pairs of a token id and 8 lower-case hexadecimal digits");
      *out = (verbatim_alternative){.id = (int32_t)json_integer_value(id), .logprob = float_of(bits)};
    }
  }
  return OK;
}

static status take_finish(const object *o, verbatim_request *r) {
  const json_t *value = json_object_get(o->json, "finish");
  for (enum verbatim_finish i = VERBATIM_STOP; i <= VERBATIM_DEADLINE && json_is_string(value); i++)
    if (strcmp(json_string_value(value), receipt_finish_name(i)) == 0) r->finish = i;
  if (r->finish == VERBATIM_RUNNING) return wrong(o, "finish", "stop, length, nonfinite, stop_text, cancelled or deadline");
  bool by_text = r->finish == VERBATIM_STOP_TEXT;
  if (by_text && r->stop_text_count == 0) return wrong(o, "finish", "another one where there are no stop texts");
  TRY(take_u32(o, "stop_index", 0, by_text ? r->stop_text_count - 1 : 0, &r->stop_index));
  return take_integer(o, "text_bytes", 0, by_text ? INT64_MAX : 0, &r->text_bytes);
}

static status take_fault(const object *o, verbatim_request *r) {
  static const char *const keys[] = {"op", "layer", "position"};
  object fault;
  char *op = NULL;
  r->fault_layer = UINT32_MAX;
  if (r->finish != VERBATIM_NONFINITE)
    return json_is_null(json_object_get(o->json, "fault")) ? OK : wrong(o, "fault", "null unless finish is nonfinite");
  TRY(take_object(o, "fault", "fault.", &fault));
  TRY(check_keys(&fault, keys, ARRAY_LEN(keys)));
  status result = take_text(&fault, "op", json_object_get(fault.json, "op"), &op);
  r->fault_op = op;
  TRY(result);
  if (!json_is_null(json_object_get(fault.json, "layer"))) TRY(take_u32(&fault, "layer", 0, LAYERS_MAX - 1, &r->fault_layer));
  return take_u32(&fault, "position", 0, UINT32_MAX, &r->fault_position);
}

static bool stops_at(const verbatim_request *r, int32_t id) {
  for (uint32_t i = 0; i < r->stop_count; i++)
    if (r->stop_ids[i] == id) return true;
  return false;
}

/* Checks that a request can end with these outputs. */
static status check_outcome(const object *o, const verbatim_request *r) {
  bool scored = r->score_count == (r->score ? r->prompt_count - r->score_from : 0);
  for (uint32_t i = 0; i < r->score_count; i++)
    if (r->scores[i].id != r->prompt[r->score_from + i]) return wrong(o, "scored", "the tokens of the prompt from score_from on");
  if (r->token_count && !scored) return wrong(o, "made", "no tokens before all of the prompt is scored");
  switch (r->finish) {
    case VERBATIM_LENGTH:
      if (!scored || r->token_count != r->max_tokens) return wrong(o, "finish", "another one: this is not all that was asked for");
      return OK;
    case VERBATIM_STOP:
      if (r->token_count == 0 || !stops_at(r, r->tokens[r->token_count - 1].id))
        return wrong(o, "finish", "another one: the last token is no stop id");
      return OK;
    case VERBATIM_STOP_TEXT: return r->token_count ? OK : wrong(o, "finish", "another one: no token was made");
    default: return OK;
  }
}

static status take_outputs(const object *o, verbatim_request *r) {
  object scored, generated;
  verbatim_alternative *alternatives;
  TRY(take_finish(o, r));
  TRY(take_fault(o, r));
  TRY(take_object(o, "scored", "scored.", &scored));
  TRY(take_object(o, "made", "made.", &generated));
  TRY(take_tokens(&scored, r->score ? r->prompt_count - r->score_from : 0, &r->scores, &r->score_count));
  TRY(take_tokens(&generated, r->max_tokens, &r->tokens, &r->token_count));
  if (!(alternatives = room_for(((size_t)r->score_count + r->token_count) * r->top_logprobs, sizeof *alternatives))) return no_memory();
  r->alternatives = alternatives;
  TRY(take_alternatives(&scored, r->score_count, r->top_logprobs, alternatives));
  TRY(take_alternatives(&generated, r->token_count, r->top_logprobs, alternatives + (size_t)r->score_count * r->top_logprobs));
  TRY(take_digest(o, "chain", r->chain));
  return check_outcome(o, r);
}

/* === A line ================================================================================================================= */

static status parse(const char *line, size_t bytes, uint32_t number, json_t **out) {
  json_error_t error;
  json_t *root = json_text_load(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  if (!root)
    return FAIL(json_text_fault(&error, ERR_FORMAT), "receipt, line %u: not JSON: %s (column %d)", number, error.text, error.column);
  if (json_is_object(root)) {
    *out = root;
    return OK;
  }
  json_decref(root);
  return FAIL(ERR_FORMAT, "receipt, line %u: expected a JSON object", number);
}

static status take_request(const object *o, receipt_record *record) {
  static const char *const keys[] = {
    "id", "prompt_count", "prompt", "max_tokens", "score_from", "top_logprobs", "temperature", "top_k", "top_p", "min_p",
    "repetition_penalty", "presence_penalty", "frequency_penalty", "list", "list_only", "seed", "sample_index", "stop_ids", "stop_texts",
    "request", "finish", "stop_index", "text_bytes", "fault", "scored", "made", "chain", "constraint"};
  TRY(check_keys(o, keys, ARRAY_LEN(keys) - !json_object_get(o->json, "constraint")));
  TRY(take_inputs(o, record));
  return take_outputs(o, &record->request);
}

static status make_record(const json_t *root, const char *line, size_t bytes, uint32_t number, receipt_record *out) {
  const object o = {.json = root, .line = number, .prefix = ""};
  receipt_record record = {.line_bytes = bytes};
  status result = (record.line = room_for(bytes + 1, 1)) ? OK : no_memory();
  if (result == OK) memcpy(record.line, line, bytes);
  if (result == OK) result = take_request(&o, &record);
  if (result == OK) *out = record;
  else receipt_read_drop(&record);
  return result;
}

status receipt_read_line(const char *line, size_t bytes, uint32_t number, receipt_record *record) {
  json_t *root;
  if (bytes > RECEIPT_READ_LINE_BYTES_MAX)
    return FAIL(ERR_LIMIT, "receipt, line %u: more than %u bytes", number, RECEIPT_READ_LINE_BYTES_MAX);
  TRY(parse(line, bytes, number, &root));
  status result = make_record(root, line, bytes, number, record);
  json_decref(root);
  return result;
}

/* Inputs are const to users of a request; the record owns their memory. */
static void release(const void *memory) { free((void *)(uintptr_t)memory); }

void receipt_read_drop(receipt_record *record) {
  verbatim_request *r = &record->request;
  for (uint32_t i = 0; i < r->stop_text_count; i++) release(r->stop_texts[i].bytes);
  release(r->prompt);
  release(r->biases);
  verbatim_constraint_close((verbatim_constraint *)(uintptr_t)r->constraint);
  release(r->allowed_ids);
  release(r->stop_ids);
  release(r->stop_texts);
  release(r->fault_op);
  free(r->scores);
  free(r->tokens);
  free(r->alternatives);
  free(record->line);
  free(record->id);
  *record = (receipt_record){0};
}

void receipt_read_stops(receipt_record *record, const uint32_t *eos, uint32_t eos_count) {
  verbatim_request *r = &record->request;
  int32_t *ids = (int32_t *)(uintptr_t)r->stop_ids; /* owned by the record */
  for (uint32_t i = 0; i < eos_count; i++)
    if (!stops_at(r, (int32_t)eos[i])) return;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < r->stop_count; i++) {
    bool own = false;
    for (uint32_t k = 0; k < eos_count; k++) own |= ids[i] == (int32_t)eos[k];
    if (!own) ids[kept++] = ids[i];
  }
  r->stop_count = kept;
  r->ignore_eos = false;
}

/* === The file =============================================================================================================== */

static status take_head(receipt_read *self, const char *line, size_t bytes) {
  static const char *const keys[] = {"verbatim_receipt", "numerics_id", "config", "weights", "tokenizer"};
  json_t *root;
  uint64_t version;
  TRY(parse(line, bytes, 1, &root));
  const object o = {.json = root, .line = 1, .prefix = ""};
  receipt_head *head = &self->head;
  head->has_tokenizer = !json_is_null(json_object_get(root, "tokenizer"));
  status result = take_integer(&o, keys[0], 0, UINT32_MAX, &version);
  if (result == OK && version != RECEIPT_VERSION)
    result = FAIL(ERR_UNSUPPORTED, "receipt of version %u, expected %u", (uint32_t)version, RECEIPT_VERSION);
  if (result == OK) result = check_keys(&o, keys, ARRAY_LEN(keys));
  if (result == OK) result = take_digest(&o, "numerics_id", head->numerics_id);
  if (result == OK) result = take_digest(&o, "config", head->config_digest);
  if (result == OK) result = take_digest(&o, "weights", head->weights_digest);
  if (result == OK && head->has_tokenizer) result = take_digest(&o, "tokenizer", head->tokenizer_digest);
  json_decref(root);
  return result;
}

static status take_kernels(const object *o, receipt_machine *machine) {
  const json_t *list;
  TRY(take_array(o, "kernels", 0, RECEIPT_READ_KERNELS_MAX, &list));
  if (!(machine->kernels = room_for(json_array_size(list), sizeof *machine->kernels))) return no_memory();
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *pair = json_array_get(list, i);
    verbatim_kernel *kernel = &machine->kernels[i];
    char *name = NULL;
    if (!is_pair(pair) || !is_digest(json_array_get(pair, 1), kernel->digest)) return wrong(o, "kernels", "pairs of a name and a digest");
    TRY(take_text(o, "kernels", json_array_get(pair, 0), &name));
    kernel->name = name;
    machine->kernel_count++;
  }
  return OK;
}

static status take_all_sha256(const object *o, receipt_machine *machine) {
  static const char *const keys[] = {"plan", "config", "weights"};
  object all;
  TRY(take_object(o, "sha256", "machine.sha256.", &all));
  TRY(check_keys(&all, keys, ARRAY_LEN(keys)));
  TRY(take_sha256(&all, "plan", machine->plan_sha256));
  TRY(take_sha256(&all, "config", machine->config_sha256));
  return take_sha256(&all, "weights", machine->weights_sha256);
}

static status take_machine_values(const object *o, receipt_machine *machine) {
  const bool has_ranks = json_object_get(o->json, "ranks") != NULL, has_sha256 = json_object_get(o->json, "sha256") != NULL;
  const char *keys[9] = {"plan", "version", "device", "driver", "nvrtc", "cublaslt", "kernels"};
  size_t count = 7;
  if (has_ranks) keys[count++] = "ranks";
  if (has_sha256) keys[count++] = "sha256";
  TRY(check_keys(o, keys, count));
  if (has_sha256) TRY(take_all_sha256(o, machine));
  machine->ranks = 1;
  if (has_ranks) TRY(take_u32(o, "ranks", 1, UINT32_MAX, &machine->ranks));
  TRY(take_digest(o, "plan", machine->plan_digest));
  TRY(take_text(o, "version", json_object_get(o->json, "version"), &machine->version));
  TRY(take_text(o, "device", json_object_get(o->json, "device"), &machine->device));
  TRY(take_u32(o, "driver", 0, UINT32_MAX, &machine->driver_version));
  TRY(take_u32(o, "nvrtc", 0, UINT32_MAX, &machine->nvrtc_version));
  TRY(take_integer(o, "cublaslt", 0, INT64_MAX, &machine->cublaslt_version));
  return take_kernels(o, machine);
}

static status take_machine(receipt_read *self, const char *line, size_t bytes) {
  static const char *const keys[] = {"machine"};
  json_t *root;
  object machine;
  TRY(parse(line, bytes, 2, &root));
  const object o = {.json = root, .line = 2, .prefix = ""};
  status result = check_keys(&o, keys, ARRAY_LEN(keys));
  if (result == OK) result = take_object(&o, "machine", "machine.", &machine);
  if (result == OK) result = take_machine_values(&machine, &self->machine);
  json_decref(root);
  return result;
}

typedef struct scan { /* of the file, by lines */
  char *line;
  size_t room, bytes; /* of the line, including its line feed; 0: end of file */
  uint64_t offset;    /* of the line */
  uint32_t number;
  digest_state head;
  receipt_sum sum;
} scan;

/* Reads one line. Not getline, which would allocate without a limit. */
static status next_line(FILE *file, scan *s) {
  int c = 0;
  s->offset += s->bytes;
  s->number++;
  for (s->bytes = 0; c != '\n' && (c = getc_unlocked(file)) != EOF; s->line[s->bytes++] = (char)c) {
    if (s->bytes >= RECEIPT_READ_LINE_BYTES_MAX)
      return FAIL(ERR_LIMIT, "receipt, line %u: more than %u bytes", s->number, RECEIPT_READ_LINE_BYTES_MAX);
    if (s->bytes + 1 < s->room) continue;
    char *grown = realloc(s->line, 2 * s->room + 4096);
    if (!grown) return no_memory();
    s->line = grown;
    s->room = 2 * s->room + 4096;
  }
  return ferror(file) ? FAIL(ERR_IO, "receipt: cannot be read: %s", strerror(errno)) : OK;
}

static status keep_place(receipt_read *self, const scan *s) {
  if (self->count == PLACES_MAX) return FAIL(ERR_LIMIT, "receipt: more than %u requests", PLACES_MAX);
  if (self->count == self->room) {
    uint32_t room = self->room ? 2 * self->room : 256;
    receipt_place *grown = realloc(self->places, room * sizeof *grown);
    if (!grown) return no_memory();
    self->places = grown;
    self->room = room;
  }
  self->places[self->count++] = (receipt_place){.offset = s->offset, .bytes = s->bytes};
  return OK;
}

static status add_request(receipt_read *self, scan *s, const json_t *root) {
  receipt_record record;
  const object o = {.json = root, .line = s->number, .prefix = ""};
  TRY(make_record(root, s->line, s->bytes, s->number, &record));
  bool has_stop_texts = record.request.stop_text_count != 0, has_constraint = record.request.constraint != NULL;
  receipt_read_drop(&record);
  if (has_stop_texts && !self->head.has_tokenizer) return wrong(&o, "stop_texts", "none where the first line has no tokenizer");
  if (has_constraint && !self->head.has_tokenizer) return wrong(&o, "constraint", "none where the first line has no tokenizer");
  digest line = digest_of(s->line, s->bytes);
  receipt_sum_add(&s->sum, &line);
  return keep_place(self, s);
}

/* A line that is not a request: the digest or the fault, which ends the run. */
static status take_end(receipt_read *self, const scan *s, const json_t *root) {
  static const char *const digest_keys[] = {"digest"};
  const object o = {.json = root, .line = s->number, .prefix = ""};
  uint8_t written[DIGEST_BYTES];
  char texts[2][DIGEST_TEXT_BYTES];
  if (json_object_get(root, "fault") && json_object_size(root) == 1)
    return take_text(&o, "fault", json_object_get(root, "fault"), &self->fault);
  if (!json_object_get(root, "digest")) return wrong(&o, "id", "to be there, or \"digest\", or \"fault\" alone");
  TRY(check_keys(&o, digest_keys, 1));
  TRY(take_digest(&o, "digest", written));
  digest found = receipt_sum_end(&s->sum, &s->head);
  if (memcmp(found.bytes, written, DIGEST_BYTES) != 0)
    return FAIL(ERR_MISMATCH, "receipt: its digest is %s, that of its lines is %s: it was altered", digest_text(written, texts[0]),
                digest_text(found.bytes, texts[1]));
  self->complete = true;
  return OK;
}

/* Reads the requests, then the end. A last line without a line feed was truncated while being written and is ignored. */
static status read_rest(receipt_read *self, scan *s) {
  for (;;) {
    json_t *root;
    TRY(next_line(self->file, s));
    if (s->bytes == 0 || s->line[s->bytes - 1] != '\n') return OK;
    if (self->complete || self->fault) return FAIL(ERR_FORMAT, "receipt, line %u: expected no line behind the end of the run", s->number);
    TRY(parse(s->line, s->bytes, s->number, &root));
    status result = json_object_get(root, "id") ? add_request(self, s, root) : take_end(self, s, root);
    json_decref(root);
    TRY(result);
  }
}

/* Whether the first line may be JSON at all: else another file was named, of which nothing more need be said. */
static bool may_be_receipt(const char *line, size_t bytes) { return bytes > 0 && (line[0] == '{' || line[0] == '['); }

static status read_all(receipt_read *self, scan *s) {
  TRY(next_line(self->file, s));
  if (!may_be_receipt(s->line, s->bytes)) return input_file_other(NULL, INPUT_RECEIPT);
  if (s->line[s->bytes - 1] != '\n') return FAIL(ERR_FORMAT, "receipt: expected a first line with an end");
  TRY(take_head(self, s->line, s->bytes));
  digest_start(&s->head);
  digest_add(&s->head, s->line, s->bytes);
  TRY(next_line(self->file, s));
  if (s->bytes == 0 || s->line[s->bytes - 1] != '\n') return FAIL(ERR_FORMAT, "receipt: expected a second line with an end");
  TRY(take_machine(self, s->line, s->bytes));
  TRY(read_rest(self, s));
  self->digest = receipt_sum_end(&s->sum, &s->head);
  return OK;
}

status receipt_read_start(receipt_read *self, FILE *file) {
  *self = (receipt_read){.file = file};
  scan s = {0};
  status result = read_all(self, &s);
  free(s.line);
  return result;
}

status receipt_read_open(receipt_read *self, const char *path) {
  *self = (receipt_read){0};
  FILE *file;
  TRY(input_file_open(path, INPUT_RECEIPT, &file));
  status result = receipt_read_start(self, file);
  if (result != OK) fail_prefix(path);
  return result;
}

void receipt_read_close(receipt_read *self) {
  for (uint32_t i = 0; i < self->machine.kernel_count; i++) release(self->machine.kernels[i].name);
  free(self->machine.kernels);
  free(self->machine.version);
  free(self->machine.device);
  free(self->places);
  free(self->fault);
  if (self->file) fclose(self->file);
  *self = (receipt_read){0};
}

status receipt_read_get(receipt_read *self, uint32_t index, receipt_record *record) {
  ASSERT(index < self->count);
  const receipt_place *place = &self->places[index];
  char *line;
  if (!(line = room_for(place->bytes, 1))) return no_memory();
  bool good = fseeko(self->file, (off_t)place->offset, SEEK_SET) == 0 && fread(line, 1, place->bytes, self->file) == place->bytes;
  status result = good ? receipt_read_line(line, place->bytes, index + 3, record) : FAIL(ERR_IO, "receipt: cannot be read again");
  free(line);
  return result;
}
