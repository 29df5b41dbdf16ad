/* sample.c - the CPU reference of sample: greedy choice, integer-weight sampling with min-p, top-k and top-p, or the score of a given
 * token; then the rank and the most likely tokens. NUMERICS.md "sample".
 *
 * The tokens that remain after a limit are a prefix of the order (logit descending, index ascending), stored as a threshold: every logit
 * above it, and the first `equal` of those equal to it. Top-k and top-p are the same search: the shortest prefix whose weights (for top-k,
 * ones) reach a target, found digit by digit from sums per digit. */
#include "cpu/cpu.h"
#include "mma/h16_core.h"
#include "base/limits.h"
#include "cpu/rows.h"

#define WEIGHT_ONE 0x1p40f

typedef struct prefix {
  u32 order; /* num_order of the threshold */
  u32 equal; /* how many logits equal to the threshold remain, lowest indices first */
} prefix;

typedef struct sample_scratch {
  u64 weight[VOCAB_MAX];
  u32 order[VOCAB_MAX];
} sample_scratch;
_Static_assert(sizeof(sample_scratch) <= CPU_SCRATCH_BYTES, "sampling needs more scratch");

/* Whether i remains. Called for ascending i; *seen counts the logits at the threshold. */
static bool stays(const sample_scratch *s, const prefix *p, u32 i, u32 *seen) {
  return s->order[i] > p->order || (s->order[i] == p->order && (*seen)++ < p->equal);
}

/* The shortest prefix within `whole` whose sum of weights (counted: of ones) is at least target, which is 1 .. the sum of all. */
static prefix shortest_prefix(const sample_scratch *s, u32 n, prefix whole, bool counted, u64 target) {
  u32 digits = 0;
  u64 each = 1; /* weight of the logits at the threshold */
  for (u32 shift = 32; shift > 0; shift -= 8) {
    u64 sum[256] = {0};
    u32 seen = 0, digit = 255;
    for (u32 i = 0; i < n; i++) {
      if (!stays(s, &whole, i, &seen) || (u64)s->order[i] >> shift != (u64)digits >> shift) continue;
      sum[s->order[i] >> (shift - 8) & 255u] += counted ? 1 : s->weight[i];
    }
    for (; sum[digit] < target; digit--) {
      ASSERT(digit > 0);
      target -= sum[digit];
    }
    digits |= digit << (shift - 8);
  }
  for (u32 i = 0; i < n && !counted; i++) {
    if (s->order[i] == digits) each = s->weight[i];
  }
  return (prefix){.order = digits, .equal = (u32)div_up(target, each)};
}

static u64 sum_weights(const sample_scratch *s, u32 n, const prefix *kept) {
  u64 sum = 0;
  u32 seen = 0;
  for (u32 i = 0; i < n; i++) sum += stays(s, kept, i, &seen) ? s->weight[i] : 0;
  return sum;
}

static u32 draw(const f32 *logit, u32 n, f32 largest, const sample_param *param, sample_scratch *s) {
  __extension__ typedef unsigned __int128 wide;
  prefix kept = {.order = num_order(largest), .equal = n};
  u32 likely = 0;
  for (u32 i = 0; i < n; i++) {
    f32 below = num_sub(logit[i], largest); /* R8.7 */
    s->weight[i] = (u64)num_mul(num_exp(num_div(below, param->temperature)), WEIGHT_ONE); /* R8.8, R8.9 */
    s->order[i] = num_order(logit[i]);
    if (!(below >= param->min_p_bound)) continue;
    kept.order = min_u32(kept.order, s->order[i]);
    likely++;
  }
  if (param->top_k > 0 && param->top_k < likely) kept = shortest_prefix(s, n, kept, true, param->top_k);
  u64 limit = (u64)((wide)param->top_p_fixed * sum_weights(s, n, &kept) >> 32);
  kept = shortest_prefix(s, n, kept, false, limit > 1 ? limit : 1);
  u64 r = num_mulhi64(num_philox(param->seed, param->position, param->sample_index), sum_weights(s, n, &kept));
  u64 sum = 0;
  u32 seen = 0, token = 0;
  for (; token < n; token++) {
    if (stays(s, &kept, token, &seen)) sum += s->weight[token];
    if (sum > r) break;
  }
  ASSERT(token < n);
  return token;
}

static bool all_finite(const f32 *logit, u32 n) {
  u32 bad = 0;
  for (u32 i = 0; i < n; i++) bad |= (num_bits(logit[i]) & 0x7f800000u) == 0x7f800000u;
  return !bad;
}

static u32 first_of(const f32 *logit, u32 n) {
  u32 first = 0, largest = num_order(logit[0]);
  for (u32 i = 1; i < n; i++) {
    u32 order = num_order(logit[i]);
    if (order <= largest) continue; /* nearly always taken: a branch is cheaper here than a select */
    first = i;
    largest = order;
  }
  return first;
}

static u32 choose(const sample_args *a, uint32_t row, sample_scratch *scratch) {
  const sample_param *param = &a->param[row];
  const f32 *from = (param->adjusted ? a->adjusted : a->logits) + (u64)row * a->vocab;
  u32 first = first_of(from, a->vocab);
  return param->temperature > 0.0f ? draw(from, a->vocab, from[first], param, scratch) : first;
}

static u32 rank_of(const f32 *logit, u32 n, u32 token) {
  u32 rank = 0, order = num_order(logit[token]);
  for (u32 i = 0; i < token; i++) rank += num_order(logit[i]) >= order;
  for (u32 i = token + 1; i < n; i++) rank += num_order(logit[i]) > order;
  return rank;
}

/* R8.4 to R8.6 */
static f32 logprob_of(f32 logit, f32 largest, f32 log_z) { return num_sub(num_sub(logit, largest), log_z); }

static void write_top(const f32 *logit, u32 n, f32 largest, f32 log_z, u32 wanted, top_logprob *top) {
  u32 index[TOP_LOGPROBS_MAX], count = 0;
  ASSERT(wanted <= TOP_LOGPROBS_MAX);
  for (u32 i = 0; i < n; i++) {
    u32 place = count;
    while (place > 0 && num_order(logit[i]) > num_order(logit[index[place - 1]])) place--;
    if (place == wanted) continue;
    count = count < wanted ? count + 1 : wanted;
    for (u32 k = count - 1; k > place; k--) index[k] = index[k - 1];
    index[place] = i;
  }
  for (u32 k = 0; k < wanted; k++) {
    top[k] = (top_logprob){0};
    if (k < count) top[k] = (top_logprob){.token = (i32)index[k], .logprob = logprob_of(logit[index[k]], largest, log_z)};
  }
}

static void sample_row(void *context, uint32_t row, void *scratch) {
  const sample_args *a = context;
  const f32 *logit = a->logits + (u64)row * a->vocab;
  const sample_param *param = &a->param[row];
  top_logprob *top = a->top ? a->top + (u64)row * TOP_LOGPROBS_MAX : NULL;
  sample_result result = {.nonfinite = 1};
  if (all_finite(logit, a->vocab)) {
    f32 p[CORE_PARTS] = {0}, largest = logit[first_of(logit, a->vocab)];
    cpu_isa_core()->exp_parts(logit, largest, a->vocab, p);
    f32 log_z = num_log(rows_tree(p, CORE_PARTS));
    u32 token = param->target >= 0 ? (u32)param->target : choose(a, row, scratch);
    ASSERT(token < a->vocab);
    result = (sample_result){.token = (i32)token, .logprob = logprob_of(logit[token], largest, log_z), .logit = logit[token]};
    result.rank = rank_of(logit, a->vocab, token);
    write_top(logit, a->vocab, largest, log_z, param->top_count, top);
  } else {
    for (u32 k = 0; k < param->top_count; k++) top[k] = (top_logprob){0};
  }
  if (param->target < 0) a->sampled[param->slot] = result.token;
  a->result[row] = result;
}

void cpu_sample(const sample_args *args, cpu_pool *pool) {
  sample_args a = *args;
  ASSERT(a.vocab > 0 && a.vocab <= VOCAB_MAX);
  cpu_pool_run(pool, a.step->logit_count, sample_row, &a);
}
