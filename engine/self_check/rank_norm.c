/* self_check/rank_norm.c - the probes of the op `rank_norm` and their known answers. See self_check/cases.h.
 *
 * The image is the memory of rank 0 and, after it, what the reference reads of rank 1's. Rank 1 has sent already: its columns are in rank
 * 0's inbox. Judged is what rank 0 computes; what it sends is not, since the reference sends nothing. */
#include "self_check/images.h"

enum { TOKENS = 3, RANKS = 2, PART = 516, DIM = RANKS * PART, TOP_K = 9, PAIRS = TOKENS * TOP_K };
enum { EPOCH = 2, WORDS = TOKENS * PART / 2 }; /* an even epoch: its words are the inbox's first */

typedef struct memory { /* of a rank */
  f32 *delta, *experts;
} memory;

static bool has_experts(const self_check_image *image) { return image->form > 0; }
static bool has_delta(const self_check_image *image) { return image->form < 2; }

static memory take_own(self_check_image *image) {
  memory own = {take(image, (TOKENS + 1) * PART * 4), take(image, PAIRS * PART * 4)};
  if (has_delta(image)) fill_f32(image, own.delta, TOKENS * PART, -6, 10);
  if (has_experts(image)) fill_f32(image, own.experts, PAIRS * PART, -6, 10);
  return own;
}

static f32 delta_of(const rank_norm_args *a, const memory *own, u32 row, u32 i) {
  f32 sum = 0.0f;
  if (!a->experts) return own->delta[row * PART + i];
  for (u32 k = row * TOP_K; k < (row + 1) * TOP_K; k++) sum = num_fma(a->topk_weight[k], own->experts[a->pair_row[k] * PART + i], sum);
  return a->delta ? num_add(sum, own->delta[row * PART + i]) : sum;
}

static void take_inbox(self_check_image *image, rank_norm_args *a, const memory *other) {
  u8 *inbox = take(image, EXCHANGE_FLAGS_BYTES(RANKS) + RANKS * WORDS * 16);
  u64 *words = (u64 *)(inbox + EXCHANGE_FLAGS_BYTES(RANKS)) + WORDS * 2;
  memset(inbox, 0, EXCHANGE_FLAGS_BYTES(RANKS) + RANKS * WORDS * 16);
  for (u32 i = 0; i < TOKENS * PART; i++) words[i] = (u64)EPOCH << 32 | num_bits(delta_of(a, other, i / PART, i % PART));
  a->state = take(image, EXCHANGE_STATE_WORDS * 4);
  memset(a->state, 0, EXCHANGE_STATE_WORDS * 4);
  a->state[EXCHANGE_EPOCH] = EPOCH - 1;
  a->inbox = inbox;
}

/* Form 0: columns as they are. 1: experts and a shared one. 2: experts alone, scaled. More than eight experts. */
static void build(self_check_image *image) {
  rank_norm_args a = {.step = take_step(image, TOKENS, 0, 0), .dim = DIM, .part = PART, .y_stride = DIM + 4, .eps = 1e-6f,
                      .top_k = has_experts(image) ? TOP_K : 0, .delta_scale = image->form == 2 ? 0.7f : 1, .y_scale = 1, .count = RANKS};
  exchange_ranks *ranks = take(image, sizeof *ranks);
  f32 *x = take(image, (TOKENS + 1) * DIM * 4), *weight = take(image, (PAIRS + TOP_K) * 4);
  u32 *pair_row = take(image, (PAIRS + TOP_K) * 4);
  bf16 *norm = take(image, DIM * 2);
  fill_f32(image, x, TOKENS * DIM, -6, 10);
  fill_f32(image, weight, PAIRS, -3, 4);
  fill_bf16(image, norm, DIM, -2, 3);
  for (u32 i = 0; i < PAIRS; i++) pair_row[i] = (i * 7 + 3) % PAIRS;
  const memory own = take_own(image);
  a.ranks = ranks;
  a.x = a.x_out = x;
  a.delta = has_delta(image) ? own.delta : NULL;
  if (has_experts(image)) a.experts = own.experts, a.pair_row = pair_row, a.topk_weight = weight;
  a.weight = norm;
  a.y = take(image, (TOKENS + 1) * (DIM + 4) * 2);
  end_judged(image);
  const memory other = take_own(image);
  take_inbox(image, &a, &other);
  const u64 peer = (u64)((u8 *)other.delta - (u8 *)own.delta);
  take(image, peer); /* what rank 0 sends arrives as far behind its inbox */
  *ranks = (exchange_ranks){.count = RANKS, .peer = {0, peer}, .timeout_ns = 1000000000, .sample_bits = EXCHANGE_SAMPLE_BITS};
  LAUNCH(image, a, TOKENS + 1, 1, 1);
}

static const self_check_probe probes[] = {
    {63, 0, 0, 0, "columns of another rank", "47e6218783fbb8d9e43c4da868733c08"},
    {63, 1, 0, 0, "experts and a shared one", "8e47ed2c73337523280d0b614287bda4"},
    {63, 2, 0, 0, "experts alone", "36efa6f606cb93ad685cb5ecbe14cd79"},
};

const self_check_op self_check_rank_norm = {build, ARRAY_LEN(probes), probes};
