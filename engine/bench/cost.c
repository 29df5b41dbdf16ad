/* bench/cost.c - see bench/cost.h. One function for each op, in the order of kernels.def. */
#include "bench/cost.h"
#include "plan/kernels.h"
#include "kernels_src/abi.h"

typedef struct scope {
  const plan *plan;
  const plan_op *op;
  const bench_cost_step *step;
  uint64_t rows; /* of the op's kind */
} scope;

static bool has_pointer(const scope *s, size_t field) {
  for (uint32_t i = 0; i < s->op->fixup_count; i++)
    if (s->plan->fixups[s->op->first_fixup + i].args_offset == field) return true;
  return false;
}

static bench_cost embed_cost(const scope *s, const embed_args *a) {
  return (bench_cost){.weight_bytes = s->rows * a->hidden * 2, .activation_bytes = s->rows * (a->hidden * 4ull + 16),
                      .flops = (double)(s->rows * a->hidden)};
}

/* What the experts of a token left counts as read row by row; of top_k 0 there is none. */
static bench_cost rmsnorm_cost(const scope *s, const rmsnorm_args *a) {
  bool adds = has_pointer(s, offsetof(rmsnorm_args, delta)), keeps = has_pointer(s, offsetof(rmsnorm_args, x_out));
  uint64_t elements = s->rows * a->dim;
  return (bench_cost){.weight_bytes = 2ull * a->dim,
                      .activation_bytes = elements * (4 + 4u * adds + 4u * keeps + 4u * a->top_k + 2) + s->rows * a->top_k * 8ull,
                      .flops = (double)elements * (4 + 2 * (adds || a->top_k) + 2.0 * a->top_k + (adds && a->top_k))};
}

static bench_cost qkv_rope_cost(const scope *s, const qkv_rope_args *a) {
  uint64_t kv = (uint64_t)a->kv_lora_rank + a->rope_dim, q = (uint64_t)a->heads * (a->nope_dim + a->rope_dim);
  uint64_t latent = a->absorbs ? (uint64_t)a->heads * a->kv_lora_rank : 0, product = latent * a->nope_dim;
  return (bench_cost){.weight_bytes = 2ull * (a->kv_lora_rank + product),
                      .activation_bytes = s->rows * ((kv + q) * 6 + latent * 2 + a->rope_dim * 4ull + 8),
                      .flops = (double)s->rows * (4.0 * a->kv_lora_rank + 3.0 * a->rope_dim * (1 + a->heads) + 2.0 * (double)product)};
}

/* Of a row of a product's result with n weight rows. */
static uint64_t result_bytes(uint32_t n, uint32_t y_kind) { return y_kind == Y_F32 ? n * 4ull : y_kind == Y_BF16 ? n * 2ull : n; }

static bench_cost gemm_cost(const scope *s, const gemm_args *a) {
  uint64_t product = (uint64_t)a->n * a->k * a->batches, row = a->k * 2ull + result_bytes(a->n, a->y_kind);
  return (bench_cost){.weight_bytes = product * 2, .activation_bytes = s->rows * a->batches * row,
                      .flops = 2.0 * (double)s->rows * (double)product};
}

/* Partial results count for nothing: how a context is cut is the kernel's affair. Lists may name a row for each token anew: it counts as
 * often as it is named, but all of them together for no more than there are. */
static bench_cost mla_attn_cost(const scope *s, const mla_attn_args *a) {
  const plan_model row = {.kv_lora_rank = a->kv_lora_rank, .rope_dim = a->rope_dim};
  const plan_quant format = {.kv_format = a->kv_format};
  uint64_t columns = (uint64_t)a->kv_lora_rank + a->rope_dim, seen = 0, rows = s->step->kv_rows;
  for (uint32_t i = 0; i < s->step->token_count; i++) {
    uint64_t own = s->step->position[i] + 1ull;
    seen += a->list_max && own > a->list_max ? a->list_max : own;
  }
  if (a->list_max && seen < rows) rows = seen;
  return (bench_cost){.kv_bytes = rows * plan_kv_row_bytes(&row, &format),
                      .activation_bytes = s->rows * a->heads * (columns + a->kv_lora_rank) * 2,
                      .flops = 2.0 * a->heads * (double)seen * (double)(columns + a->kv_lora_rank)};
}

static bench_cost mla_fold_cost(const scope *s, const mla_fold_args *a) {
  uint64_t value = a->lifts ? (uint64_t)a->heads * a->v_dim : 0, product = value * a->kv_lora_rank;
  return (bench_cost){.weight_bytes = 2 * product, .activation_bytes = s->rows * (a->heads * a->kv_lora_rank + value) * 2,
                      .flops = 2.0 * (double)s->rows * (double)product};
}

/* Every row of the contexts once; the workspace is written for all heads. */
static bench_cost mla_expand_cost(const scope *s, const mla_expand_args *a) {
  uint64_t product = (uint64_t)a->n * a->kv_lora_rank, rows = s->step->kv_rows;
  return (bench_cost){.weight_bytes = product * 2, .kv_bytes = rows * (a->kv_lora_rank + (uint64_t)a->rope_dim) * 2,
                      .activation_bytes = rows * ((uint64_t)a->n + a->rope_dim) * 2, .flops = 2.0 * (double)rows * (double)product};
}

static bench_cost mla_prefill_cost(const scope *s, const mla_prefill_args *a) {
  uint64_t seen = 0, columns = (uint64_t)a->nope_dim + a->rope_dim;
  for (uint32_t i = 0; i < s->step->token_count; i++) seen += s->step->position[i] + 1ull;
  return (bench_cost){.activation_bytes = s->rows * a->heads * (columns + a->v_dim) * 2 +
                                          s->step->kv_rows * ((uint64_t)a->heads * (a->nope_dim + a->v_dim) + a->rope_dim) * 2,
                      .flops = 2.0 * a->heads * (double)seen * (double)(columns + a->v_dim)};
}

/* Every key of the contexts once, and the scores of the op's rows: a step's pieces share its keys. */
static bench_cost index_score_cost(const scope *s, const index_score_args *a) {
  uint64_t pairs = 0, rows = 0;
  for (uint32_t i = a->row_first; i < s->step->token_count && i - a->row_first < a->row_count; i++) {
    const bool is_scored = s->step->position[i] >= a->topk;
    pairs += is_scored ? s->step->position[i] + 1ull : 0;
    rows += is_scored;
  }
  return (bench_cost){.kv_bytes = rows ? s->step->kv_rows * (INDEX_DIM + 4) : 0,
                      .activation_bytes = rows * a->heads * (INDEX_DIM + 4ull) + pairs * 4,
                      .flops = 2.0 * a->heads * INDEX_DIM * (double)pairs, .e4m3_flops = 2.0 * a->heads * INDEX_DIM * (double)pairs};
}

static bench_cost router_cost(const scope *s, const router_args *a) {
  uint64_t bias = has_pointer(s, offsetof(router_args, bias)) ? 4ull * a->experts : 0;
  uint64_t sorted = a->sorts ? s->rows * a->top_k * 8 + (a->experts + 1ull) * 4 : 0;
  return (bench_cost){.weight_bytes = bias, .activation_bytes = s->rows * (a->experts * 4ull + a->top_k * 8ull) + sorted,
                      .flops = 3.0 * (double)s->rows * a->experts};
}

static bench_cost moe_sort_cost(const scope *s, const moe_sort_args *a) {
  return (bench_cost){.activation_bytes = s->rows * (a->top_k * 12 + (a->top_k + 1ull) * a->columns * 2) + (a->experts + 1ull) * 4};
}

/* Where rows are gathered, a token's row is needed once for all its experts. */
static bench_cost moe_gemm_cost(const scope *s, const moe_gemm_args *a) {
  uint64_t pairs = s->rows * a->top_k, read = has_pointer(s, offsetof(moe_gemm_args, row_token)) ? s->rows : pairs;
  return (bench_cost){.weight_bytes = (uint64_t)s->step->experts_used * a->n * a->k * 2,
                      .activation_bytes = read * a->k * 2 + pairs * result_bytes(a->n, a->y_kind),
                      .flops = 2.0 * (double)pairs * a->n * a->k};
}

/* Greedy rows: the largest logit, and the sum of exponentials for its probability. */
static bench_cost sample_cost(const scope *s, const sample_args *a) {
  return (bench_cost){.activation_bytes = s->rows * (a->vocab * 4ull + sizeof(sample_param) + sizeof(sample_result)),
                      .flops = 3.0 * (double)s->rows * a->vocab};
}

static bench_cost row_digest_cost(const scope *s, const row_digest_args *a) {
  return (bench_cost){.activation_bytes = s->rows * (a->words * 4ull + 8)};
}

static bench_cost index_qk_cost(const scope *s, const index_qk_args *a) {
  uint64_t rows = s->rows * (a->heads + 1ull);
  return (bench_cost){.weight_bytes = 8ull * INDEX_DIM, .activation_bytes = rows * (INDEX_DIM * 5ull + 8) + s->rows * a->rope_dim * 4ull,
                      .flops = (double)rows * (3.0 * a->rope_dim + 9.0 * INDEX_DIM) + 6.0 * (double)s->rows * INDEX_DIM};
}

/* Rows of at most topk scores are not read. */
static bench_cost index_topk_cost(const scope *s, const index_topk_args *a) {
  bench_cost cost = {0};
  for (uint32_t i = a->row_first; i < s->step->token_count && i - a->row_first < a->row_count; i++)
    cost.activation_bytes += (s->step->position[i] < a->topk ? 0 : 4 * (s->step->position[i] + 1ull)) + 4ull * a->topk;
  return cost;
}

static bench_cost kv_widen_cost(const scope *s, const kv_widen_args *a) {
  uint64_t rows = s->step->kv_rows, columns = (uint64_t)a->kv_lora_rank + a->rope_dim;
  return (bench_cost){.kv_bytes = rows * KV_ROW_BYTES(a->kv_format, (uint64_t)a->kv_lora_rank, (uint64_t)a->rope_dim),
                      .activation_bytes = rows * columns * 2};
}

/* No row asks for it. */
static bench_cost adjust_cost(const scope *s) { return (bench_cost){.activation_bytes = s->rows * sizeof(sample_param)}; }

/* Of a row of n numbers: codes and scales. */
static uint64_t code_bytes(uint64_t n) { return n + n / SCALE_COLUMNS * 4; }

static bench_cost act_quant_cost(const scope *s, const act_quant_args *a) {
  uint64_t rows = s->rows * a->rows_mul, elements = rows * a->columns;
  return (bench_cost){.activation_bytes = elements * 2 + rows * code_bytes(a->columns), .flops = 2.0 * (double)elements};
}

static bench_cost fp8_gemm_cost(const scope *s, const fp8_gemm_args *a) {
  return (bench_cost){.weight_bytes = (uint64_t)a->n * a->k + div_up(a->n, SCALE_COLUMNS) * (a->k / SCALE_COLUMNS) * 4,
                      .activation_bytes = s->rows * (code_bytes(a->k) + result_bytes(a->n, a->y_kind)),
                      .flops = 2.0 * (double)s->rows * a->n * a->k, .e4m3_flops = 2.0 * (double)s->rows * a->n * a->k};
}

static bench_cost fp8_moe_gemm_cost(const scope *s, const fp8_moe_gemm_args *a) {
  uint64_t pairs = s->rows * a->top_k, read = has_pointer(s, offsetof(fp8_moe_gemm_args, row_token)) ? s->rows : pairs;
  uint64_t matrix = (uint64_t)a->n * a->k + div_up(a->n, SCALE_COLUMNS) * (a->k / SCALE_COLUMNS) * 4;
  return (bench_cost){.weight_bytes = s->step->experts_used * matrix,
                      .activation_bytes = read * code_bytes(a->k) + pairs * result_bytes(a->n, a->y_kind),
                      .flops = 2.0 * (double)pairs * a->n * a->k, .e4m3_flops = 2.0 * (double)pairs * a->n * a->k};
}

bench_cost bench_cost_of(const plan *p, const plan_op *op, const bench_cost_step *step) {
  const void *args = p->args + op->args_offset;
  scope s = {.plan = p, .op = op, .step = step, .rows = op->rows_kind == ROWS_LOGITS ? step->logit_count : step->token_count};
  switch ((enum kernel_id)op->kernel) {
    case KERNEL_embed: return embed_cost(&s, args);
    case KERNEL_rmsnorm: return rmsnorm_cost(&s, args);
    case KERNEL_qkv_rope: return qkv_rope_cost(&s, args);
    case KERNEL_gemm: return gemm_cost(&s, args);
    case KERNEL_mla_attn: return mla_attn_cost(&s, args);
    case KERNEL_mla_fold: return mla_fold_cost(&s, args);
    case KERNEL_router: return router_cost(&s, args);
    case KERNEL_moe_sort: return moe_sort_cost(&s, args);
    case KERNEL_moe_gemm: return moe_gemm_cost(&s, args);
    case KERNEL_sample: return sample_cost(&s, args);
    case KERNEL_row_digest: return row_digest_cost(&s, args);
    case KERNEL_adjust: return adjust_cost(&s);
    case KERNEL_mla_expand: return mla_expand_cost(&s, args);
    case KERNEL_mla_prefill: return mla_prefill_cost(&s, args);
    case KERNEL_attn_cut: return (bench_cost){.activation_bytes = s.rows * sizeof(attn_tile)};
    case KERNEL_act_quant: return act_quant_cost(&s, args);
    case KERNEL_fp8_gemm: return fp8_gemm_cost(&s, args);
    case KERNEL_fp8_moe_gemm: return fp8_moe_gemm_cost(&s, args);
    case KERNEL_index_qk: return index_qk_cost(&s, args);
    case KERNEL_index_score: return index_score_cost(&s, args);
    case KERNEL_index_topk: return index_topk_cost(&s, args);
    case KERNEL_kv_widen: return kv_widen_cost(&s, args);
    case KERNEL_COUNT: break;
  }
  return (bench_cost){0};
}

void bench_cost_add(bench_cost *sum, const bench_cost *cost) {
  sum->weight_bytes += cost->weight_bytes;
  sum->kv_bytes += cost->kv_bytes;
  sum->activation_bytes += cost->activation_bytes;
  sum->flops += cost->flops;
  sum->e4m3_flops += cost->e4m3_flops;
}

double bench_cost_floor_us(uint64_t bytes, const bench_cost *cost, double bytes_per_s, double flops_per_s) {
  const double flops = cost->flops - cost->e4m3_flops * (1 - 1 / BENCH_COST_E4M3);
  double moving = bytes_per_s > 0 ? 1e6 * (double)bytes / bytes_per_s : 0, computing = flops_per_s > 0 ? 1e6 * flops / flops_per_s : 0;
  return moving > computing ? moving : computing;
}
