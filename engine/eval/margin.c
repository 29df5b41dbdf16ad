/* eval/margin.c - see eval/margin.h. EVALUATION.md, "Flip risk", is normative: where they differ, this file is wrong.
 *
 * exp is the fp32 one of num.h: libc's differs between machines in the last place, and a margin in probability needs no more than 24 bits.
 * Everything else is additions, subtractions, multiplications and divisions in binary64, each rounded once. */
#include "eval/margin.h"
#include <math.h>
#include "kernels_src/num.h"

#define BF16_LEAST_EXPONENT (-126) /* smallest exponent of a normal number */
#define BF16_FRACTION_BITS 7

double eval_margin_ulp(float x) {
  int exponent = BF16_LEAST_EXPONENT;
  if (x != 0) {
    (void)frexp((double)x, &exponent); /* |x| in [2^(exponent - 1), 2^exponent) */
    exponent--;
  }
  return ldexp(1, (exponent > BF16_LEAST_EXPONENT ? exponent : BF16_LEAST_EXPONENT) - BF16_FRACTION_BITS);
}

/* x: at most 0. */
static double exp_of(double x) { return (double)num_exp(x < -200 ? -200 : (float)x); }

/* e^high - e^low for low <= high; clamped at 0, because exp may be wrong in its last place. */
static double exp_gap(double high, double low) {
  double gap = exp_of(high) - exp_of(low);
  return gap > 0 ? gap : 0;
}

/* === Requests =============================================================================================================== */

/* Every generated token has the largest logit of its row, and these rows are the ones the alternatives come from. */
static bool is_greedy(const verbatim_request *r) {
  return r->temperature == 0 && r->repetition_penalty == 1 && r->presence_penalty == 0 && r->frequency_penalty == 0 && r->bias_count == 0 &&
         r->allowed_count == 0 && !r->constraint;
}

static bool is_whole(const verbatim_request *r) {
  return r->finish == VERBATIM_STOP || r->finish == VERBATIM_LENGTH || r->finish == VERBATIM_STOP_TEXT;
}

eval_margin eval_margin_request(const verbatim_request *request) {
  eval_margin least = {0};
  if (!is_greedy(request) || !is_whole(request) || request->top_logprobs < 2) return least;
  for (uint32_t i = 0; i < request->token_count; i++) {
    const verbatim_alternative *top = request->alternatives + ((size_t)request->score_count + i) * request->top_logprobs;
    double first = (double)top[0].logprob, second = (double)top[1].logprob, gap = first - second;
    if (!isfinite(gap) || top[0].id == top[1].id) continue; /* with a vocabulary of one the second place is empty */
    double ulps = gap / eval_margin_ulp(request->tokens[i].logit);
    if (!least.known || ulps < least.ulps) least = (eval_margin){true, i, gap, exp_gap(first, second), ulps};
  }
  return least;
}

/* === Choices ================================================================================================================ */

eval_margin_part eval_margin_part_of(const verbatim_request *request, uint64_t bytes) {
  eval_margin_part part = {.bytes = bytes, .failed = !is_whole(request)};
  for (uint32_t i = 0; i < request->score_count; i++) {
    float size = fabsf(request->scores[i].logit);
    part.logprob += (double)request->scores[i].logprob;
    if (size > part.logit_most) part.logit_most = size;
  }
  return part;
}

static double value_of(const eval_margin_part *part) { return part->logprob / (double)part->bytes; }

static bool is_usable(const eval_margin_part *parts, uint32_t part_count) {
  for (uint32_t i = 0; i < part_count; i++)
    if (parts[i].failed || parts[i].bytes == 0) return false;
  return part_count >= 2;
}

eval_margin eval_margin_choice(const eval_margin_part *parts, uint32_t part_count) {
  if (!is_usable(parts, part_count)) return (eval_margin){0};
  uint32_t best = 0, second;
  for (uint32_t i = 1; i < part_count; i++)
    if (value_of(&parts[i]) > value_of(&parts[best])) best = i;
  second = best == 0 ? 1 : 0;
  for (uint32_t i = second + 1; i < part_count; i++)
    if (i != best && value_of(&parts[i]) > value_of(&parts[second])) second = i;
  const eval_margin_part *a = &parts[best], *b = &parts[second];
  double gap = value_of(a) - value_of(b), sum = 0;
  if (!isfinite(gap)) return (eval_margin){0};
  for (uint32_t i = 0; i < part_count; i++) sum += exp_of(value_of(&parts[i]) - value_of(a));
  double needed = gap * (double)(a->bytes < b->bytes ? a->bytes : b->bytes); /* of one sum, to make both equal */
  double ulp = eval_margin_ulp(a->logit_most > b->logit_most ? a->logit_most : b->logit_most);
  return (eval_margin){true, second, gap, exp_gap(0, -gap) / sum, needed / ulp};
}

json_t *eval_margin_json(const eval_margin *self) {
  if (!self->known) return NULL;
  return json_pack("{s:f, s:f, s:f, s:I}", "logprob", self->logprob, "probability", self->probability, "ulps", self->ulps, "at",
                   (json_int_t)self->at);
}

static double number_in(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

eval_margin eval_margin_read(const json_t *object) {
  const json_t *at = json_object_get(object, "at");
  json_int_t place = json_integer_value(at);
  eval_margin m = {.logprob = number_in(object, "logprob"), .probability = number_in(object, "probability"),
                   .ulps = number_in(object, "ulps")};
  m.at = place >= 0 && place < UINT32_MAX ? (uint32_t)place : 0;
  m.known = m.ulps >= 0 && isfinite(m.ulps) && m.logprob >= 0 && isfinite(m.logprob) && m.probability >= 0 && m.probability <= 1 &&
            json_is_integer(at) && place >= 0 && place < UINT32_MAX;
  return m;
}

/* === Flip risk ============================================================================================================== */

uint32_t eval_margin_bin(double ulps) {
  int exponent;
  if (!(ulps > 0)) return 0;
  if (ulps >= ldexp(1, EVAL_MARGIN_MOST)) return EVAL_MARGIN_BINS - 1;
  (void)frexp(ulps, &exponent);
  return --exponent < EVAL_MARGIN_LEAST ? 1 : (uint32_t)(exponent - EVAL_MARGIN_LEAST + 2);
}
_Static_assert(EVAL_MARGIN_BINS == EVAL_MARGIN_MOST - EVAL_MARGIN_LEAST + 3, "two below, one above");

double eval_margin_bin_from(uint32_t bin) { return bin < 2 ? 0 : ldexp(1, (int)bin - 2 + EVAL_MARGIN_LEAST); }

void eval_margin_add(eval_margin_risk *self, const eval_margin *margin, bool right) {
  self->items++;
  self->right += right;
  if (!margin->known) return;
  self->known++;
  self->fragile[right] += margin->ulps < EVAL_MARGIN_FRAGILE;
  self->bins[right][eval_margin_bin(margin->ulps)]++;
}

static double share(uint64_t part, uint64_t all) { return all ? (double)part / (double)all : 0; }

double eval_margin_share(const eval_margin_risk *self) { return share(self->fragile[0] + self->fragile[1], self->known); }
double eval_margin_lowest(const eval_margin_risk *self) { return share(self->right - self->fragile[1], self->items); }
double eval_margin_highest(const eval_margin_risk *self) { return share(self->right + self->fragile[0], self->items); }

json_t *eval_margin_risk_json(const eval_margin_risk *self) {
  json_t *bins = json_array();
  int failed = !bins;
  for (uint32_t i = 1; i < EVAL_MARGIN_BINS; i++) {
    json_int_t wrong = (json_int_t)self->bins[0][i], right = (json_int_t)self->bins[1][i];
    if (wrong + right == 0) continue;
    json_t *bin = json_pack("{s:f, s:I, s:I}", "from", eval_margin_bin_from(i), "right", right, "wrong", wrong);
    failed |= json_array_append_new(bins, bin);
  }
  json_t *ties = json_pack("{s:I, s:I}", "right", (json_int_t)self->bins[1][0], "wrong", (json_int_t)self->bins[0][0]);
  json_t *object = json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:o}", "items", (json_int_t)self->items, "known",
                             (json_int_t)self->known, "fragile_right", (json_int_t)self->fragile[1], "fragile_wrong",
                             (json_int_t)self->fragile[0], "below_ulps", EVAL_MARGIN_FRAGILE, "fragile_share", eval_margin_share(self),
                             "score_lowest", eval_margin_lowest(self), "score_highest", eval_margin_highest(self), "ties", ties,
                             "bins", bins); /* takes ownership of both, also when it fails */
  if (!failed && object) return object;
  json_decref(object);
  return NULL;
}
