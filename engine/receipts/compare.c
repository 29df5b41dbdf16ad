/* receipts/compare.c - see receipts/compare.h. Scalar fields of a request are compared by tables; each list has its own function. */
#include "receipts/compare.h"
#include "base/digest.h"
#include "receipts/receipt.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* === Fields ================================================================================================================= */

enum kind { KIND_U32, KIND_LAYER, KIND_U64, KIND_HEX, KIND_F32, KIND_F64, KIND_BOOL, KIND_FINISH, KIND_DIGEST };

typedef struct field {
  const char *name;
  enum kind kind;
  size_t offset;
} field;

#define FIELD(name_, kind_, member) {name_, kind_, offsetof(verbatim_request, member)}

static const field INPUTS[] = { /* without the lists */
  FIELD("prompt_count", KIND_U32, prompt_count), FIELD("max_tokens", KIND_U32, max_tokens), FIELD("score_from", KIND_U32, score_from),
  FIELD("top_logprobs", KIND_U32, top_logprobs), FIELD("temperature", KIND_F32, temperature), FIELD("top_k", KIND_U32, top_k),
  FIELD("top_p", KIND_F64, top_p), FIELD("min_p", KIND_F64, min_p), FIELD("repetition_penalty", KIND_F32, repetition_penalty),
  FIELD("presence_penalty", KIND_F32, presence_penalty), FIELD("frequency_penalty", KIND_F32, frequency_penalty),
  FIELD("seed", KIND_HEX, seed), FIELD("sample_index", KIND_U32, sample_index)};
static const field ENDS[] = {
  FIELD("finish", KIND_FINISH, finish), FIELD("stop_index", KIND_U32, stop_index), FIELD("text_bytes", KIND_U64, text_bytes)};
static const field FAULT[] = { /* without the op */
  FIELD("fault.layer", KIND_LAYER, fault_layer), FIELD("fault.position", KIND_U32, fault_position)};
static const field REQUEST_DIGEST = FIELD("request", KIND_DIGEST, request_digest), CHAIN = FIELD("chain", KIND_DIGEST, chain);

static size_t kind_bytes(enum kind kind) {
  switch (kind) {
    case KIND_BOOL: return sizeof(bool);
    case KIND_U64: case KIND_HEX: case KIND_F64: return 8;
    case KIND_DIGEST: return DIGEST_BYTES;
    case KIND_U32: case KIND_LAYER: case KIND_F32: case KIND_FINISH: break;
  }
  return 4;
}

static void show(enum kind kind, const void *value, char text[RECEIPT_COMPARE_TEXT_BYTES]) {
  uint64_t bits = 0;
  float narrow;
  double wide;
  memcpy(&bits, value, kind_bytes(kind) < 8 ? kind_bytes(kind) : 8);
  memcpy(&narrow, value, kind == KIND_F32 ? 4 : 0);
  memcpy(&wide, value, kind == KIND_F64 ? 8 : 0);
  if (kind == KIND_LAYER && bits == UINT32_MAX) {
    snprintf(text, RECEIPT_COMPARE_TEXT_BYTES, "none");
    return;
  }
  switch (kind) {
    case KIND_U32: case KIND_LAYER: case KIND_U64: snprintf(text, RECEIPT_COMPARE_TEXT_BYTES, "%" PRIu64, bits); break;
    case KIND_HEX: snprintf(text, RECEIPT_COMPARE_TEXT_BYTES, "%016" PRIx64, bits); break;
    case KIND_F32: snprintf(text, RECEIPT_COMPARE_TEXT_BYTES, "%.9g (%08" PRIx64 ")", (double)narrow, bits); break;
    case KIND_F64: snprintf(text, RECEIPT_COMPARE_TEXT_BYTES, "%.17g (%016" PRIx64 ")", wide, bits); break;
    case KIND_BOOL: snprintf(text, RECEIPT_COMPARE_TEXT_BYTES, "%s", bits ? "true" : "false"); break;
    case KIND_FINISH: snprintf(text, RECEIPT_COMPARE_TEXT_BYTES, "%s", receipt_finish_name((enum verbatim_finish)bits)); break;
    case KIND_DIGEST: digest_text(value, text); break;
  }
}

static void note(receipt_difference_field *out, const char *name, uint32_t index, enum kind kind, const void *a, const void *b) {
  out->name = name;
  out->index = index;
  if (a) show(kind, a, out->value[0]);
  else strcpy(out->value[0], "none");
  if (b) show(kind, b, out->value[1]);
  else strcpy(out->value[1], "none");
}

static bool compare_fields(const field *fields, size_t count, const verbatim_request *a, const verbatim_request *b,
                           receipt_difference_field *out) {
  for (size_t i = 0; i < count; i++) {
    const uint8_t *x = (const uint8_t *)a + fields[i].offset, *y = (const uint8_t *)b + fields[i].offset;
    if (memcmp(x, y, kind_bytes(fields[i].kind)) == 0) continue;
    note(out, fields[i].name, UINT32_MAX, fields[i].kind, x, y);
    return true;
  }
  return false;
}

/* === Lists of inputs ======================================================================================================== */

static bool compare_ids(const char *name, const int32_t *a, uint32_t a_count, const int32_t *b, uint32_t b_count,
                        receipt_difference_field *out) {
  for (uint32_t i = 0; i < a_count || i < b_count; i++) {
    if (i < a_count && i < b_count && a[i] == b[i]) continue;
    note(out, name, i, KIND_U32, i < a_count ? &a[i] : NULL, i < b_count ? &b[i] : NULL);
    return true;
  }
  return false;
}

static void show_bias(const verbatim_bias *bias, char text[RECEIPT_COMPARE_TEXT_BYTES]) {
  char value[RECEIPT_COMPARE_TEXT_BYTES];
  show(KIND_F32, &bias->bias, value);
  snprintf(text, RECEIPT_COMPARE_TEXT_BYTES, "token %" PRId32 ", %.64s", bias->token, value);
}

static bool compare_lists(const verbatim_request *a, const verbatim_request *b, receipt_difference_field *out) {
  bool only[2] = {a->allowed_count != 0, b->allowed_count != 0};
  for (uint32_t i = 0; i < a->bias_count || i < b->bias_count; i++) {
    const verbatim_bias *x = i < a->bias_count ? &a->biases[i] : NULL, *y = i < b->bias_count ? &b->biases[i] : NULL;
    if (x && y && x->token == y->token && memcmp(&x->bias, &y->bias, sizeof x->bias) == 0) continue;
    note(out, "list", i, KIND_U32, NULL, NULL);
    if (x) show_bias(x, out->value[0]);
    if (y) show_bias(y, out->value[1]);
    return true;
  }
  if (only[0] != only[1]) note(out, "list_only", UINT32_MAX, KIND_BOOL, &only[0], &only[1]);
  return only[0] != only[1];
}

static void show_text(const verbatim_text *text, char out[RECEIPT_COMPARE_TEXT_BYTES]) {
  snprintf(out, RECEIPT_COMPARE_TEXT_BYTES, "%zu bytes: %.*s", text->count, (int)text->count, text->bytes);
}

static bool compare_stop_texts(const verbatim_request *a, const verbatim_request *b, receipt_difference_field *out) {
  for (uint32_t i = 0; i < a->stop_text_count || i < b->stop_text_count; i++) {
    const verbatim_text *x = i < a->stop_text_count ? &a->stop_texts[i] : NULL, *y = i < b->stop_text_count ? &b->stop_texts[i] : NULL;
    if (x && y && x->count == y->count && memcmp(x->bytes, y->bytes, x->count) == 0) continue;
    note(out, "stop_texts", i, KIND_U32, NULL, NULL);
    if (x) show_text(x, out->value[0]);
    if (y) show_text(y, out->value[1]);
    return true;
  }
  return false;
}

/* Its kind and its text; "" without one. */
static verbatim_text constraint_of(const verbatim_request *r, const char **name) {
  enum verbatim_constraint_kind kind;
  *name = "";
  if (!r->constraint) return (verbatim_text){.bytes = ""};
  const verbatim_text text = verbatim_constraint_text(r->constraint, &kind);
  *name = receipt_constraint_name(kind);
  return text;
}

static bool compare_constraints(const verbatim_request *a, const verbatim_request *b, receipt_difference_field *out) {
  const char *names[2];
  const verbatim_text texts[2] = {constraint_of(a, &names[0]), constraint_of(b, &names[1])};
  if (strcmp(names[0], names[1]) == 0 && texts[0].count == texts[1].count && memcmp(texts[0].bytes, texts[1].bytes, texts[0].count) == 0)
    return false;
  note(out, "constraint", UINT32_MAX, KIND_U32, NULL, NULL);
  for (int i = 0; i < 2; i++)
    if (*names[i])
      snprintf(out->value[i], RECEIPT_COMPARE_TEXT_BYTES, "%s %.*s", names[i], (int)min_u64(texts[i].count, 256), texts[i].bytes);
  return true;
}

static bool compare_inputs(const verbatim_request *a, const verbatim_request *b, receipt_difference_field *out) {
  return compare_ids("prompt", a->prompt, a->prompt_count, b->prompt, b->prompt_count, out) ||
         compare_fields(INPUTS, ARRAY_LEN(INPUTS), a, b, out) || compare_lists(a, b, out) || compare_constraints(a, b, out) ||
         compare_ids("stop_ids", a->stop_ids, a->stop_count, b->stop_ids, b->stop_count, out) || compare_stop_texts(a, b, out);
}

/* === Tokens ================================================================================================================= */

/* the scored or the generated tokens of a request */
typedef struct token_list {
  const verbatim_token *tokens;
  const verbatim_alternative *alternatives;
  uint32_t count, each;
} token_list;

static token_list scored_of(const verbatim_request *r) { return (token_list){r->scores, r->alternatives, r->score_count, r->top_logprobs}; }

static token_list generated_of(const verbatim_request *r) {
  return (token_list){r->tokens, r->alternatives + (size_t)r->score_count * r->top_logprobs, r->token_count, r->top_logprobs};
}

static bool is_same_number(float a, float b) { return memcmp(&a, &b, sizeof a) == 0; }

static bool is_same_token(const verbatim_token *a, const verbatim_token *b) {
  return a->id == b->id && is_same_number(a->logprob, b->logprob) && a->rank == b->rank && a->digest == b->digest;
}

/* Index of the first differing alternative of a token, within the count that both have; UINT32_MAX: none differs. */
static uint32_t compare_alternatives(const token_list *a, const token_list *b, uint32_t index) {
  for (uint32_t i = 0; i < min_u32(a->each, b->each); i++) {
    const verbatim_alternative *x = &a->alternatives[(size_t)index * a->each + i], *y = &b->alternatives[(size_t)index * b->each + i];
    if (x->id != y->id || !is_same_number(x->logprob, y->logprob)) return i;
  }
  return UINT32_MAX;
}

static bool compare_tokens(const char *name, token_list a, token_list b, uint32_t first_position, receipt_difference *out) {
  for (uint32_t i = 0; i < a.count || i < b.count; i++, out->tokens_same++) {
    receipt_difference_token t = {.list = name, .index = i, .position = first_position + i, .has_token = {i < a.count, i < b.count},
                            .alternative = UINT32_MAX};
    if (t.has_token[0]) t.token[0] = a.tokens[i];
    if (t.has_token[1]) t.token[1] = b.tokens[i];
    bool both = t.has_token[0] && t.has_token[1];
    if (both) t.alternative = compare_alternatives(&a, &b, i);
    if (t.alternative != UINT32_MAX) {
      t.alternatives[0] = a.alternatives[(size_t)i * a.each + t.alternative];
      t.alternatives[1] = b.alternatives[(size_t)i * b.each + t.alternative];
    }
    if (both && is_same_token(&t.token[0], &t.token[1]) && t.alternative == UINT32_MAX) continue;
    out->token = t;
    return true;
  }
  return false;
}

/* === Requests =============================================================================================================== */

static bool compare_ends(const verbatim_request *a, const verbatim_request *b, receipt_difference_field *out) {
  if (compare_fields(ENDS, ARRAY_LEN(ENDS), a, b, out)) return true;
  if (a->finish != VERBATIM_NONFINITE) return false;
  const char *x = a->fault_op ? a->fault_op : "", *y = b->fault_op ? b->fault_op : "";
  if (strcmp(x, y) == 0) return compare_fields(FAULT, ARRAY_LEN(FAULT), a, b, out);
  note(out, "fault.op", UINT32_MAX, KIND_U32, NULL, NULL);
  if (*x) snprintf(out->value[0], RECEIPT_COMPARE_TEXT_BYTES, "%s", x);
  if (*y) snprintf(out->value[1], RECEIPT_COMPARE_TEXT_BYTES, "%s", y);
  return true;
}

bool receipt_compare(const verbatim_request *a, const verbatim_request *b, bool same_model, receipt_difference *out) {
  *out = (receipt_difference){.tokens_same = 0};
  bool input = compare_inputs(a, b, &out->input) || (same_model && compare_fields(&REQUEST_DIGEST, 1, a, b, &out->input));
  bool token = compare_tokens("scored", scored_of(a), scored_of(b), max_u32(a->score_from, b->score_from), out) ||
               compare_tokens("made", generated_of(a), generated_of(b), a->prompt_count, out);
  bool end = compare_ends(a, b, &out->end) || (same_model && !input && !token && compare_fields(&CHAIN, 1, a, b, &out->end));
  return input || token || end;
}
