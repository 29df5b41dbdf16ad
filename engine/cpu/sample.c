/* sample.c - the CPU twin of sample: greedy choice or integer-weight sampling with top-k and top-p. NUMERICS.md "sample".
 *
 * What stays after a limit is a prefix of the order (logit descending, index ascending), written as a threshold: every
 * logit above it, and the first `equal` of those that equal it. Both limits are one search: the shortest prefix whose
 * weights (or ones, for top-k) reach a target, found digit by digit from sums per digit. */
#include "cpu.h"
#include "limits.h"
#include "rows.h"

#define PARTS 1024u
#define WEIGHT_ONE 0x1p40f

typedef struct prefix {
  u32 order; /* num_order of the threshold */
  u32 equal; /* how many of the logits that equal it stay, lowest indices first */
} prefix;

typedef struct sample_scratch {
  u64 weight[VOCAB_MAX];
  u32 order[VOCAB_MAX];
} sample_scratch;
_Static_assert(sizeof(sample_scratch) <= CPU_SCRATCH_BYTES, "sampling needs more scratch");

/* Whether i stays. Called for ascending i; *seen counts the logits at the threshold. */
static bool stays(const sample_scratch *s, const prefix *p, u32 i, u32 *seen) {
  return s->order[i] > p->order || (s->order[i] == p->order && (*seen)++ < p->equal);
}

/* The shortest prefix within `whole` whose sum of weights (counted: of ones) is at least target, 1 .. the sum of all. */
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
  prefix kept = {.order = 0, .equal = n};
  for (u32 i = 0; i < n; i++) {
    f32 weight = num_exp(num_div(num_sub(logit[i], largest), param->temperature)); /* R8.7 to R8.9 */
    s->weight[i] = (u64)num_mul(weight, WEIGHT_ONE);
    s->order[i] = num_order(logit[i]);
  }
  if (param->top_k > 0 && param->top_k < n) kept = shortest_prefix(s, n, kept, true, param->top_k);
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

static void sample_row(void *context, uint32_t row, void *scratch) {
  const sample_args *a = context;
  const f32 *logit = a->logits + (u64)row * a->vocab;
  const sample_param *param = &a->param[row];
  sample_result result = {.nonfinite = 1};
  if (all_finite(logit, a->vocab)) {
    f32 p[PARTS] = {0};
    u32 token = 0;
    for (u32 i = 1; i < a->vocab; i++) token = num_order(logit[i]) > num_order(logit[token]) ? i : token;
    f32 largest = logit[token];
    for (u32 i = 0; i < a->vocab; i++) p[i % PARTS] = num_add(p[i % PARTS], num_exp(num_sub(logit[i], largest))); /* R8.1 to R8.3 */
    f32 z = rows_tree(p, PARTS);
    if (param->temperature > 0.0f) token = draw(logit, a->vocab, largest, param, scratch);
    f32 logprob = num_sub(num_sub(logit[token], largest), num_log(z)); /* R8.4 to R8.6 */
    result = (sample_result){.token = (i32)token, .logprob = logprob};
  }
  a->sampled[param->slot] = result.token;
  a->result[row] = result;
}

void cpu_sample(const sample_args *args, cpu_pool *pool) {
  sample_args a = *args;
  ASSERT(a.vocab > 0 && a.vocab <= VOCAB_MAX);
  cpu_pool_run(pool, a.step->logit_count, sample_row, &a);
}
