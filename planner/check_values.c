/* check_values.c - see check_values.h. The header first, then one function per argument struct, in the order of kernels.def. */
#include "check_values.h"
#include <math.h>
#include <string.h>
#include "abi.h"
#include "draft.h"

/* === The header ========================================================================================================= */

static status in_range(const char *field, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return OK;
  return FAIL(ERR_FORMAT, "check: %s is %llu, expected %llu to %llu", field, (unsigned long long)value, (unsigned long long)low,
              (unsigned long long)high);
}

static status check_experts(const plan_model *m) {
  if (m->experts == 0) return OK;
  TRY(in_range("experts", m->experts, 1, EXPERTS_MAX));
  TRY(in_range("groups", m->groups, 1, m->experts < EXPERT_GROUPS_MAX ? m->experts : EXPERT_GROUPS_MAX));
  TRY(in_range("experts % groups", m->experts % m->groups, 0, 0));
  TRY(in_range("top_groups", m->top_groups, 1, m->groups));
  TRY(in_range("top_k", m->top_k, 1, m->experts / m->groups * m->top_groups));
  TRY(in_range("top_k", m->top_k, 1, TOP_K_EXPERTS_MAX));
  TRY(in_range("scoring", m->scoring, 0, ROUTER_SIGMOID));
  TRY(in_range("group_mode", m->group_mode, 0, ROUTER_GROUP_TOP2));
  if (m->group_mode == ROUTER_GROUP_TOP2) TRY(in_range("experts of a group", m->experts / m->groups, 2, EXPERTS_MAX));
  return OK;
}

static status check_quant(const plan_header *h) {
  const plan_quant *q = &h->quant;
  const bool is_sparse = q->index_heads != 0, is_e4m3 = q->weight_format != WEIGHTS_BF16, is_mixed = q->kv_format == KV_FP8_DS_MLA;
  const uint64_t high = q->index_shared[1], low = q->index_shared[0];
  TRY(in_range("index_heads", q->index_heads, is_sparse * 16, is_sparse * 64));
  TRY(in_range("index_heads, no power of two,", q->index_heads & (q->index_heads - is_sparse), 0, 0));
  TRY(in_range("index_topk", q->index_topk, is_sparse * 64, is_sparse * INDEX_TOPK_MAX));
  TRY(in_range("index_topk % 64", q->index_topk % 64, 0, 0));
  TRY(in_range("index_half_split", q->index_half_split, 0, is_sparse));
  TRY(in_range("index_scale", q->index_scale, 0, is_sparse * SCALE_POW2));
  for (uint32_t i = 0; i < 128; i++) /* the first layer has no earlier layer's lists to use */
    TRY(in_range("index_shared", (i < 64 ? low : high) >> i % 64 & 1, 0, is_sparse && i > 0 && i < h->model.layers));
  TRY(in_range("weight_format", q->weight_format, 0, WEIGHTS_E4M3));
  TRY(in_range("act_scale", q->act_scale, 0, is_e4m3 * SCALE_POW2));
  TRY(in_range("kv_format", q->kv_format, 0, KV_FP8));
  TRY(in_range("kv_scale", q->kv_scale, 0, is_mixed * SCALE_POW2));
  if (is_mixed) TRY(in_range("kv_lora_rank", h->model.kv_lora_rank, 512, 512));
  return in_range("parity", h->limits.parity, 0, !is_sparse && !is_e4m3 && q->kv_format == KV_BF16);
}

status check_values_header(const plan_header *h) {
  const plan_model *m = &h->model;
  const plan_limits *l = &h->limits;
  TRY(in_range("layers", m->layers, 1, LAYERS_MAX));
  TRY(in_range("max_batch_tokens", l->max_batch_tokens, 1, BATCH_TOKENS_MAX));
  TRY(in_range("kv_pages", l->kv_pages, 0, KV_PAGES_MAX));
  TRY(in_range("vocab", m->vocab, 1, VOCAB_MAX));
  TRY(in_range("heads", m->heads, 1, HEADS_MAX));
  TRY(in_range("kv_lora_rank", m->kv_lora_rank, 1, KV_LORA_RANK_MAX));
  TRY(in_range("rope_dim", m->rope_dim, 2, ROPE_DIM_MAX));
  TRY(in_range("rope_half_split", m->rope_half_split, 0, 1));
  TRY(in_range("dense_layers", m->dense_layers, 0, m->layers));
  TRY(check_experts(m));
  TRY(check_quant(h));
  TRY(in_range("max_seqs", l->max_seqs, 1, SEQS_MAX));
  TRY(in_range("max_len", l->max_len, 2, LENGTH_MAX));
  TRY(in_range("max_logit_rows", l->max_logit_rows, l->max_seqs, l->max_batch_tokens));
  TRY(in_range("pages_per_seq", l->pages_per_seq, div_up(l->max_len, PAGE_TOKENS), div_up(l->max_len, PAGE_TOKENS)));
  TRY(in_range("chunk_tokens", l->chunk_tokens, PAGE_TOKENS, LENGTH_MAX));
  TRY(in_range("chunk_tokens % 64", l->chunk_tokens % PAGE_TOKENS, 0, 0));
  TRY(in_range("group_chunks", l->group_chunks, 1, LENGTH_MAX));
  TRY(in_range("parity", l->parity, PARITY_STRICT, PARITY_FAST_PREFILL));
  const bool has_narrow_rows = h->quant.kv_format != KV_BF16;
  TRY(in_range("expand_pages", l->expand_pages, l->parity, (l->parity || has_narrow_rows) * (LENGTH_MAX / PAGE_TOKENS)));
  if (l->parity == PARITY_FAST_PREFILL) TRY(in_range("nope_dim + rope_dim", (uint64_t)m->nope_dim + m->rope_dim, 64 + 2, 512 + 64));
  uint32_t tokens = h->quant.index_heads ? 1 : max_u32(1, 64 / m->heads); /* a list belongs to one token; otherwise 64 rows: tokens times
                                                                           * heads */
  return in_range("attn_tile_tokens", l->attn_tile_tokens, 1, tokens);
}

/* === Ops ================================================================================================================ */

typedef struct reader { /* the op being checked */
  const plan_model *m;
  const plan_quant *q;
  const plan_limits *l;
  const char *name;
  uint32_t rows_max; /* the most rows it runs for */
  uint32_t rows_kind; /* the value its arguments must have */
  bool is_prompt; /* the op handles prompt rows */
} reader;

static status same(const reader *r, const char *field, uint64_t found, uint64_t expected) {
  if (found == expected) return OK;
  return FAIL(ERR_FORMAT, "check: op %s: %s is %llu, expected %llu", r->name, field, (unsigned long long)found,
              (unsigned long long)expected);
}

static status same_real(const reader *r, const char *field, float found, float expected) {
  if (memcmp(&found, &expected, sizeof found) == 0) return OK;
  return FAIL(ERR_FORMAT, "check: op %s: %s is %g, expected %g", r->name, field, (double)found, (double)expected);
}

#define SAME(field, expected) TRY(same(r, #field, a->field, (expected)))
#define SAME_REAL(field, expected) TRY(same_real(r, #field, a->field, (expected)))

static status check_embed(const reader *r, const embed_args *a) {
  SAME(hidden, r->m->hidden);
  SAME(vocab, r->m->vocab);
  SAME(block_table_stride, r->l->pages_per_seq);
  SAME_REAL(scale, r->m->embed_scale);
  return OK;
}

static status check_rmsnorm(const reader *r, const rmsnorm_args *a) {
  SAME(rows_kind, r->rows_kind);
  bool is_latent = memcmp(&a->eps, &r->m->latent_eps, sizeof a->eps) == 0;
  if (!is_latent) SAME_REAL(eps, r->m->norm_eps);
  SAME_REAL(delta_scale, r->m->residual_scale);
  if (a->top_k) {
    SAME(top_k, r->m->top_k);
    TRY(same(r, "the presence of a shared expert", a->delta != NULL, r->m->shared_experts != 0));
  }
  SAME_REAL(y_scale, a->rows_kind == ROWS_LOGITS ? r->m->head_scale : 1);
  return OK;
}

static status check_qkv_rope(const reader *r, const qkv_rope_args *a) {
  SAME(heads, r->m->heads);
  SAME(nope_dim, r->m->nope_dim);
  SAME(rope_dim, r->m->rope_dim);
  SAME(kv_lora_rank, r->m->kv_lora_rank);
  SAME(half_split, r->m->rope_half_split);
  SAME(block_table_stride, r->l->pages_per_seq);
  SAME_REAL(eps, r->m->latent_eps);
  SAME(kv_format, r->q->kv_format);
  SAME(scale_kind, r->q->kv_scale);
  return same(r, "the presence of q_scale", a->q_scale != NULL, r->m->q_scale_beta != 0);
}

static status check_y_kind(const reader *r, uint32_t y_kind, uint32_t n) {
  if (y_kind == Y_SILU) return same(r, "n % 16", n % 16, 0); /* gate and up have whole groups of 8 */
  return same(r, "a y_kind that does not exist", y_kind > Y_SILU, 0);
}

static status check_gemm(const reader *r, const gemm_args *a) {
  SAME(rows_kind, r->rows_kind);
  TRY(check_y_kind(r, a->y_kind, a->n));
  if (a->y_kind == Y_SILU) SAME(batches, 1);
  uint64_t strides = a->ldx | a->x_batch | a->w_batch | a->ldy | a->y_batch; /* copied and stored 16 bytes at a time */
  return same(r, "ldx, x_batch, w_batch, ldy or y_batch % 8", strides % 8, 0);
}

#define SLOTS_MAX (1u << 24) /* times HEADS_MAX rows: numbered by 32 bits */
#define ESTIMATE_MAX 1000000u /* nanoseconds: sums over a step's tiles stay far below 2^64 */

static status check_mla_attn(const reader *r, const mla_attn_args *a) {
  SAME(heads, r->m->heads);
  SAME(kv_lora_rank, r->m->kv_lora_rank);
  SAME(rope_dim, r->m->rope_dim);
  SAME(block_table_stride, r->is_prompt ? 1 : r->l->pages_per_seq);
  SAME(chunk_tokens, r->l->chunk_tokens);
  SAME(group_chunks, r->l->group_chunks);
  SAME_REAL(scale_log2, r->m->softmax_scale_log2);
  SAME(kv_format, r->is_prompt ? KV_BF16 : r->q->kv_format);
  SAME(list_max, r->q->index_topk);
  if (r->is_prompt) SAME(slots_max, 0); /* pieces are of the decode part only */
  return in_range("slots_max", a->slots_max, 0, SLOTS_MAX);
}

static status check_attn_cut(const reader *r, const attn_cut_args *a) {
  SAME(heads, r->m->heads);
  SAME(block_table_stride, r->l->pages_per_seq);
  SAME(chunk_tokens, r->l->chunk_tokens);
  SAME(group_chunks, r->l->group_chunks);
  SAME(list_max, r->q->index_topk);
  TRY(in_range("workers of the attention", a->workers, 1, 65536));
  TRY(in_range("slots_max of attn_cut", a->slots_max, 1, SLOTS_MAX));
  uint32_t most = max_u32(max_u32(a->block_ns, a->stream_ns), max_u32(a->piece_ns, max_u32(a->slot_ns, a->split_ns)));
  return in_range("an estimate of the attention", most, 0, ESTIMATE_MAX);
}

static status check_mla_fold(const reader *r, const mla_fold_args *a) {
  SAME(heads, r->m->heads);
  SAME(kv_lora_rank, r->m->kv_lora_rank);
  SAME(group_chunks, r->l->group_chunks);
  SAME(v_dim, r->m->v_dim);
  TRY(in_range("lifts of mla_fold", a->lifts, 0, 1));
  return in_range("slots_max of mla_fold", a->slots_max, 1, SLOTS_MAX);
}

static status check_mla_expand(const reader *r, const mla_expand_args *a) {
  SAME(n, (uint64_t)r->m->heads * (r->m->nope_dim + r->m->v_dim));
  SAME(kv_lora_rank, r->m->kv_lora_rank);
  SAME(rope_dim, r->m->rope_dim);
  SAME(block_table_stride, r->l->pages_per_seq);
  SAME(piece_pages, r->l->expand_pages);
  SAME(piece, 0);
  return OK;
}

static status check_mla_prefill(const reader *r, const mla_prefill_args *a) {
  SAME(heads, r->m->heads);
  SAME(nope_dim, r->m->nope_dim);
  SAME(rope_dim, r->m->rope_dim);
  SAME(v_dim, r->m->v_dim);
  SAME(q_rope_stride, r->m->kv_lora_rank + r->m->rope_dim);
  SAME(piece_pages, r->l->expand_pages);
  SAME(piece, 0);
  SAME_REAL(scale_log2, r->m->softmax_scale_log2);
  return OK;
}

static status check_router(const reader *r, const router_args *a) {
  if (a->sorts) {
    SAME(sorts, 1);
    TRY(in_range("rows of a router that sorts", r->rows_max, 1, ROUTER_SORTS_MAX));
  }
  SAME(experts, r->m->experts);
  SAME(top_k, r->m->top_k);
  SAME(groups, r->m->groups);
  SAME(top_groups, r->m->top_groups);
  SAME(scoring, r->m->scoring);
  SAME(group_mode, r->m->group_mode);
  SAME(normalise, r->m->normalise);
  SAME_REAL(scale, r->m->routed_scale);
  return same(r, "the presence of a bias", a->bias != NULL, r->m->scoring == ROUTER_SIGMOID);
}

static status check_moe_sort(const reader *r, const moe_sort_args *a) {
  SAME(experts, r->m->experts);
  SAME(top_k, r->m->top_k);
  if (a->columns) SAME(columns, r->m->hidden);
  return same(r, "columns % 8", a->columns % 8, 0);
}

static status check_moe_gemm(const reader *r, const moe_gemm_args *a) {
  SAME(experts, r->m->experts);
  SAME(top_k, r->m->top_k);
  TRY(same(r, "a result of experts rounded once", a->y_kind == Y_BF16, 0));
  TRY(check_y_kind(r, a->y_kind, a->n));
  return same(r, "ldx % 8", a->ldx % 8, 0);
}

static status check_act_quant(const reader *r, const act_quant_args *a) {
  SAME(rows_kind, ROWS_TOKENS);
  SAME(scale_kind, r->q->act_scale);
  if (a->rows_mul != 1) SAME(rows_mul, r->m->top_k);
  TRY(same(r, "columns % 128", a->columns % SCALE_COLUMNS, 0));
  return same(r, "ldx % 8", a->ldx % 8, 0);
}

/* A column of scales covers 128 k, a row of scales 128 weight rows, of the gate or of up. */
static status check_scaled(const reader *r, uint32_t n, uint32_t k, uint32_t y_kind) {
  TRY(check_y_kind(r, y_kind, n));
  TRY(same(r, "k % 128", k % SCALE_COLUMNS, 0));
  return y_kind == Y_SILU ? same(r, "n % 256", n % (2 * SCALE_COLUMNS), 0) : same(r, "n % 8", n % 8, 0);
}

static status check_fp8_gemm(const reader *r, const fp8_gemm_args *a) {
  SAME(rows_kind, r->rows_kind);
  TRY(check_scaled(r, a->n, a->k, a->y_kind));
  return same(r, "ldy % 8", a->ldy % 8, 0);
}

static status check_fp8_moe_gemm(const reader *r, const fp8_moe_gemm_args *a) {
  SAME(experts, r->m->experts);
  SAME(top_k, r->m->top_k);
  TRY(same(r, "a result of experts rounded once", a->y_kind == Y_BF16, 0));
  return check_scaled(r, a->n, a->k, a->y_kind);
}

#define KEY_EPS 1e-6f

static status check_index_qk(const reader *r, const index_qk_args *a) {
  SAME(heads, r->q->index_heads);
  SAME(rope_dim, r->m->rope_dim);
  SAME(block_table_stride, r->l->pages_per_seq);
  SAME(half_split, r->q->index_half_split);
  SAME(scale_kind, r->q->index_scale);
  SAME_REAL(eps, KEY_EPS);
  SAME_REAL(head_scale, (float)(1 / sqrt(r->q->index_heads)));
  TRY(same(r, "rope_dim % 32", a->rope_dim % 32, 0)); /* pairs of halves: see index_qk.cu */
  return same(r, "q_stride or k_stride % 4", (a->q_stride | a->k_stride) % 4, 0); /* read 16 bytes at a time */
}

static status check_score_rows(const reader *r, uint32_t topk, uint32_t stride, uint32_t row_count) {
  TRY(same(r, "topk", topk, r->q->index_topk));
  TRY(same(r, "stride of scores % 64", stride % 64, 0));
  TRY(in_range("row_count of scores", row_count, 1, r->l->max_batch_tokens));
  return in_range("stride of scores", stride, r->l->max_len, UINT32_MAX);
}

static status check_index_score(const reader *r, const index_score_args *a) {
  SAME(heads, r->q->index_heads);
  SAME(block_table_stride, r->l->pages_per_seq);
  return check_score_rows(r, a->topk, a->stride, a->row_count);
}

static status check_index_topk(const reader *r, const index_topk_args *a) { return check_score_rows(r, a->topk, a->stride, a->row_count); }

static status check_kv_widen(const reader *r, const kv_widen_args *a) {
  SAME(kv_lora_rank, r->m->kv_lora_rank);
  SAME(rope_dim, r->m->rope_dim);
  TRY(same(r, "kv_lora_rank or rope_dim % 8", (a->kv_lora_rank | a->rope_dim) % 8, 0)); /* taken eight columns at a time */
  SAME(block_table_stride, r->l->pages_per_seq);
  SAME(kv_format, r->q->kv_format);
  SAME(pages_max, r->l->expand_pages);
  return OK;
}

static status check_adjust(const reader *r, const adjust_args *a) {
  SAME(vocab, r->m->vocab);
  SAME(block_table_stride, r->l->pages_per_seq);
  return OK;
}

static status check_sample(const reader *r, const sample_args *a) {
  SAME(vocab, r->m->vocab);
  return OK;
}

static status check_row_digest(const reader *r, const row_digest_args *a) {
  SAME(rows_kind, ROWS_LOGITS);
  SAME(words, r->m->vocab);
  return OK;
}

status check_values_op(const plan_header *h, const plan_op *op, const void *args, const char *name) {
  const reader r = {&h->model, &h->quant, &h->limits, name, op->rows_max, op->rows_kind == ROWS_LOGITS ? ROWS_LOGITS : ROWS_TOKENS,
                    op->rows_kind == ROWS_PROMPT};
  switch (op->kernel) {
    case OP_embed: return check_embed(&r, args);
    case OP_rmsnorm: return check_rmsnorm(&r, args);
    case OP_qkv_rope: return check_qkv_rope(&r, args);
    case OP_gemm: return check_gemm(&r, args);
    case OP_attn_cut: return check_attn_cut(&r, args);
    case OP_mla_attn: return check_mla_attn(&r, args);
    case OP_mla_fold: return check_mla_fold(&r, args);
    case OP_mla_expand: return check_mla_expand(&r, args);
    case OP_mla_prefill: return check_mla_prefill(&r, args);
    case OP_router: return check_router(&r, args);
    case OP_moe_sort: return check_moe_sort(&r, args);
    case OP_moe_gemm: return check_moe_gemm(&r, args);
    case OP_act_quant: return check_act_quant(&r, args);
    case OP_fp8_gemm: return check_fp8_gemm(&r, args);
    case OP_fp8_moe_gemm: return check_fp8_moe_gemm(&r, args);
    case OP_index_qk: return check_index_qk(&r, args);
    case OP_index_score: return check_index_score(&r, args);
    case OP_index_topk: return check_index_topk(&r, args);
    case OP_kv_widen: return check_kv_widen(&r, args);
    case OP_adjust: return check_adjust(&r, args);
    case OP_sample: return check_sample(&r, args);
    case OP_row_digest: return check_row_digest(&r, args);
    default: return OK;
  }
}
