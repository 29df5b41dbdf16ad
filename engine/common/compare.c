/* common/compare.c - see common/compare.h. Every difference has a text and a JSON form with the same content. */
#include "common/compare.h"
#include "common/output.h"
#include "traces/diff_values.h"
#include "kernels_src/num.h"
#include <inttypes.h>
#include <stdio.h>

/* === Numbers ================================================================================================================ */

static int digits_of(uint32_t type) { return type == VERBATIM_POINT_BF16 ? 4 : 8; }

char *cli_compare_number(uint32_t type, uint32_t bits, char text[CLI_COMPARE_NUMBER_BYTES]) {
  if (type == VERBATIM_POINT_U32) snprintf(text, CLI_COMPARE_NUMBER_BYTES, "%" PRIu32, bits);
  else snprintf(text, CLI_COMPARE_NUMBER_BYTES, "%.9g (%0*" PRIx32 ")", diff_values_number(type, bits), digits_of(type), bits);
  return text;
}

void cli_compare_print_numbers(const char *what, uint32_t type, uint32_t a, uint32_t b) {
  char x[CLI_COMPARE_NUMBER_BYTES], y[CLI_COMPARE_NUMBER_BYTES];
  uint64_t ulps;
  printf("  %-15s %s | %s", what, cli_compare_number(type, a, x), cli_compare_number(type, b, y));
  if (diff_values_ulps(type, a, b, &ulps)) printf(", %" PRIu64 " ulp%s apart", ulps, ulps == 1 ? "" : "s");
  putchar('\n');
}

json_t *cli_compare_text(const char *text) {
  json_t *value = json_string(text);
  return value ? value : json_null();
}

json_t *cli_compare_bits(uint32_t type, uint32_t bits) { return json_sprintf("%0*" PRIx32, digits_of(type), bits); }
json_t *cli_compare_hex(uint64_t value) { return json_sprintf("%016" PRIx64, value); }
json_t *cli_compare_pair(json_t *a, json_t *b) { return json_pack("[o, o]", a, b); }

static json_t *number_json(uint32_t type, uint32_t bits) {
  double number = diff_values_number(type, bits);
  json_t *value = type == VERBATIM_POINT_U32 ? json_integer(bits) : json_real(number); /* null for NaN and Inf, which JSON lacks */
  return value ? value : json_null();
}

void cli_compare_set_numbers(json_t *object, uint32_t type, uint32_t a, uint32_t b) {
  uint64_t ulps;
  json_object_set_new(object, "bits", cli_compare_pair(cli_compare_bits(type, a), cli_compare_bits(type, b)));
  json_object_set_new(object, "values", cli_compare_pair(number_json(type, a), number_json(type, b)));
  json_object_set_new(object, "ulps", diff_values_ulps(type, a, b, &ulps) ? json_integer((json_int_t)ulps) : json_null());
}

/* === Requests as text ======================================================================================================= */

static void print_field(const char *what, const receipt_difference_field *f) {
  if (!f->name) return;
  printf("  %s: %s", what, f->name);
  if (f->index != UINT32_MAX) printf("[%" PRIu32 "]", f->index);
  putchar(' ');
  cli_output_quoted(f->value[0]);
  printf(" | ");
  cli_output_quoted(f->value[1]);
  putchar('\n');
}

static void print_alternative(const verbatim_alternative pair[2], uint32_t index) {
  printf("  %-15s %" PRIu32 ": token %" PRId32 " | %" PRId32 "\n", "alternative", index, pair[0].id, pair[1].id);
  cli_compare_print_numbers("  its", VERBATIM_POINT_F32, num_bits(pair[0].logprob), num_bits(pair[1].logprob));
}

static void print_token(const receipt_difference_token *t) {
  const verbatim_token *a = &t->token[0], *b = &t->token[1];
  if (!t->has_token[0] || !t->has_token[1]) {
    printf("  %-15s ", "token");
    if (t->has_token[0]) printf("%" PRId32 " | none\n", a->id);
    else printf("none | %" PRId32 "\n", b->id);
    return;
  }
  if (a->digest != b->digest) printf("  %-15s %016" PRIx64 " | %016" PRIx64 "\n", "logits digest", a->digest, b->digest);
  else printf("  %-15s the same: %016" PRIx64 "\n", "logits digest", a->digest);
  if (a->id != b->id) printf("  %-15s %" PRId32 " | %" PRId32 "\n", "token", a->id, b->id);
  if (num_bits(a->logprob) != num_bits(b->logprob))
    cli_compare_print_numbers("log-probability", VERBATIM_POINT_F32, num_bits(a->logprob), num_bits(b->logprob));
  if (a->rank != b->rank) printf("  %-15s %" PRIu32 " | %" PRIu32 "\n", "rank", a->rank, b->rank);
  if (t->alternative != UINT32_MAX) print_alternative(t->alternatives, t->alternative);
}

void cli_compare_print(const receipt_difference *d) {
  const receipt_difference_token *t = &d->token;
  print_field("asked", &d->input);
  if (!t->list) printf("  all %" PRIu32 " tokens are the same\n", d->tokens_same);
  else {
    printf("  %" PRIu32 " tokens before it are the same; %s token %" PRIu32 ", position %" PRIu32 ":\n", d->tokens_same, t->list, t->index,
           t->position);
    print_token(t);
  }
  print_field("ended", &d->end);
}

/* === Requests as JSON ======================================================================================================= */

static json_t *field_json(const receipt_difference_field *f) {
  if (!f->name) return json_null();
  json_t *values = cli_compare_pair(cli_compare_text(f->value[0]), cli_compare_text(f->value[1]));
  json_t *object = json_pack("{s:s, s:o}", "field", f->name, "values", values);
  if (f->index != UINT32_MAX) json_object_set_new(object, "index", json_integer(f->index));
  return object;
}

static json_t *alternative_json(const receipt_difference_token *t) {
  const verbatim_alternative *a = &t->alternatives[0], *b = &t->alternatives[1];
  if (t->alternative == UINT32_MAX) return json_null();
  json_t *object = json_pack("{s:I, s:[i, i]}", "index", (json_int_t)t->alternative, "tokens", a->id, b->id);
  cli_compare_set_numbers(object, VERBATIM_POINT_F32, num_bits(a->logprob), num_bits(b->logprob));
  return object;
}

static json_t *token_json(const receipt_difference_token *t) {
  if (!t->list) return json_null();
  const verbatim_token *a = &t->token[0], *b = &t->token[1];
  json_t *object = json_pack("{s:s, s:I, s:I}", "list", t->list, "index", (json_int_t)t->index, "position", (json_int_t)t->position);
  json_object_set_new(object, "tokens", cli_compare_pair(t->has_token[0] ? json_integer(a->id) : json_null(),
                                                         t->has_token[1] ? json_integer(b->id) : json_null()));
  if (!t->has_token[0] || !t->has_token[1]) return object;
  json_t *logprob = json_object();
  cli_compare_set_numbers(logprob, VERBATIM_POINT_F32, num_bits(a->logprob), num_bits(b->logprob));
  json_object_set_new(object, "logits", cli_compare_pair(cli_compare_hex(a->digest), cli_compare_hex(b->digest)));
  json_object_set_new(object, "logprob", logprob);
  json_object_set_new(object, "ranks", cli_compare_pair(json_integer(a->rank), json_integer(b->rank)));
  json_object_set_new(object, "alternative", alternative_json(t));
  return object;
}

json_t *cli_compare_json(const receipt_difference *d) {
  return json_pack("{s:o, s:I, s:o, s:o}", "asked", field_json(&d->input), "tokens_same", (json_int_t)d->tokens_same, "token",
                   token_json(&d->token), "ended", field_json(&d->end));
}
