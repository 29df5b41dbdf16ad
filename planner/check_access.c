/* check_access.c - see check_access.h. One function per argument struct, in the order of kernels.def. */
#include "check_access.h"
#include <string.h>
#include "abi.h"
#include "attn/attn_cut.h"
#include "draft.h"

#define HUGE_BYTES (UINT64_MAX / 2)

typedef struct writer { /* collects accesses */
  const plan_limits *l;
  check_rows rows;
  uint32_t count;
  check_access *out;
} writer;

static uint64_t times(uint64_t a, uint64_t b) { return b != 0 && a > HUGE_BYTES / b ? HUGE_BYTES : a * b; }
static uint64_t plus(uint64_t a, uint64_t b) { return a > HUGE_BYTES - b ? HUGE_BYTES : a + b; }
static uint64_t size_of(uint32_t type) { return type == TYPE_E4M3 ? 1 : type == TYPE_BF16 ? 2 : 4; }

static check_access *add(writer *w, size_t field, bool is_write, uint32_t type, uint32_t region) {
  ASSERT(w->count < CHECK_ACCESS_MAX);
  check_access *a = &w->out[w->count++];
  *a = (check_access){.args_offset = (uint32_t)field, .is_write = is_write, .type = type, .region = region, .io = CHECK_ACCESS_ANY_IO};
  return a;
}

/* A table in the work region: rows of `columns` elements, `stride` elements apart. */
static check_access *table(writer *w, size_t field, bool is_write, uint32_t type, uint64_t rows, uint64_t stride, uint64_t columns) {
  check_access *a = add(w, field, is_write, type, REGION_WORK);
  a->rows = rows;
  a->row_stride = times(stride, size_of(type));
  a->batches = 1;
  a->run_bytes = times(columns, size_of(type));
  return a;
}

static check_access *weight(writer *w, size_t field, uint32_t type, uint64_t elements) {
  check_access *a = table(w, field, false, type, 1, elements, elements);
  a->region = REGION_WEIGHTS;
  return a;
}

/* One contiguous range of another region, at the place that plan_io names. */
static check_access *fixed(writer *w, size_t field, bool is_write, uint32_t region, size_t io, uint64_t bytes) {
  check_access *a = add(w, field, is_write, TYPE_STRUCT, region);
  a->io = (uint32_t)io;
  a->rows = a->batches = 1;
  a->row_stride = a->run_bytes = bytes;
  return a;
}

/* The type is what the op reads, whatever the cache format stores. */
static check_access *kv_pages(writer *w, size_t field, bool is_write, uint32_t kv_format, uint64_t rank, uint64_t rope) {
  uint64_t bytes = times(times(w->l->kv_pages, PAGE_TOKENS), KV_ROW_BYTES(kv_format, rank, rope));
  check_access *a = fixed(w, field, is_write, REGION_KV, 0, bytes);
  a->io = CHECK_ACCESS_ANY_IO;
  a->type = TYPE_BF16;
  return a;
}

#define FIELD(type, name) offsetof(type##_args, name)
#define IO(name) offsetof(plan_io, name)

static void describe_block_table(writer *w, size_t field, uint32_t stride) {
  fixed(w, field, false, REGION_STEP, IO(block_table), times(w->l->max_seqs, stride * UINT64_C(4)));
}

static void describe_history(writer *w, size_t field, bool is_write) {
  fixed(w, field, is_write, REGION_KV, IO(history), times(w->l->kv_pages, PAGE_TOKENS * UINT64_C(4)));
}

static void describe_embed(writer *w, const embed_args *a) {
  uint64_t t = w->rows.tokens;
  fixed(w, FIELD(embed, token), false, REGION_STEP, IO(token), t * 4);
  fixed(w, FIELD(embed, sampled), false, REGION_STATE, IO(sampled), w->l->max_seqs * UINT64_C(4));
  weight(w, FIELD(embed, table), TYPE_BF16, times(a->vocab, a->hidden));
  fixed(w, FIELD(embed, position), false, REGION_STEP, IO(position), t * 4);
  fixed(w, FIELD(embed, seq), false, REGION_STEP, IO(seq), t * 4);
  describe_block_table(w, FIELD(embed, block_table), a->block_table_stride);
  table(w, FIELD(embed, x), true, TYPE_F32, t, a->hidden, a->hidden);
  describe_history(w, FIELD(embed, history), true);
}

static uint64_t rows_of(const writer *w, uint32_t kind) { return kind == ROWS_LOGITS ? w->rows.logits : w->rows.tokens; }

static void describe_rmsnorm(writer *w, const rmsnorm_args *a) {
  uint64_t rows = rows_of(w, a->rows_kind);
  uint64_t source_rows = a->rows_kind == ROWS_LOGITS ? w->rows.tokens : rows; /* row_index picks rows */
  check_access *index = fixed(w, FIELD(rmsnorm, row_index), false, REGION_STEP, IO(logit_row), rows * 4);
  index->must_be_null = a->rows_kind != ROWS_LOGITS;
  table(w, FIELD(rmsnorm, x), false, TYPE_F32, source_rows, a->x_stride, a->dim);
  table(w, FIELD(rmsnorm, delta), false, TYPE_F32, source_rows, a->x_stride, a->dim)->is_optional = 1;
  table(w, FIELD(rmsnorm, experts), false, TYPE_F32, times(source_rows, a->top_k), a->dim, a->dim)->must_be_null = a->top_k == 0;
  table(w, FIELD(rmsnorm, pair_row), false, TYPE_PAIR_ROW, source_rows, a->top_k, a->top_k)->must_be_null = a->top_k == 0;
  table(w, FIELD(rmsnorm, topk_weight), false, TYPE_F32, source_rows, a->top_k, a->top_k)->must_be_null = a->top_k == 0;
  check_access *x_out = table(w, FIELD(rmsnorm, x_out), true, TYPE_F32, source_rows, a->x_stride, a->dim);
  x_out->is_optional = 1;
  x_out->must_be_null = a->rows_kind == ROWS_LOGITS; /* row_index might pick a row twice */
  weight(w, FIELD(rmsnorm, weight), TYPE_BF16, a->dim);
  table(w, FIELD(rmsnorm, y), true, TYPE_BF16, rows, a->y_stride, a->dim);
}

static void describe_cos_sin(writer *w, size_t field, uint32_t rope_dim) {
  fixed(w, field, false, REGION_TABLES, IO(cos_sin), times(w->l->max_len, rope_dim * UINT64_C(4)));
}

static void describe_qkv_rope(writer *w, const qkv_rope_args *a) {
  uint64_t t = w->rows.tokens, row = (uint64_t)a->kv_lora_rank + a->rope_dim, nope = times(a->heads, a->nope_dim);
  table(w, FIELD(qkv_rope, q), false, TYPE_F32, t, a->q_stride, times(a->heads, (uint64_t)a->nope_dim + a->rope_dim));
  table(w, FIELD(qkv_rope, kv_in), false, TYPE_F32, t, a->kv_in_stride, row);
  weight(w, FIELD(qkv_rope, weight), TYPE_BF16, a->kv_lora_rank);
  describe_cos_sin(w, FIELD(qkv_rope, cos_sin), a->rope_dim);
  fixed(w, FIELD(qkv_rope, position), false, REGION_STEP, IO(position), t * 4);
  fixed(w, FIELD(qkv_rope, seq), false, REGION_STEP, IO(seq), t * 4);
  describe_block_table(w, FIELD(qkv_rope, block_table), a->block_table_stride);
  fixed(w, FIELD(qkv_rope, q_scale), false, REGION_TABLES, IO(q_scale), w->l->max_len * UINT64_C(4))->is_optional = 1;
  table(w, FIELD(qkv_rope, q_nope), true, TYPE_BF16, t, nope, nope);
  weight(w, FIELD(qkv_rope, w_uk), TYPE_BF16, times(nope, a->kv_lora_rank))->must_be_null = !a->absorbs;
  check_access *latent = table(w, FIELD(qkv_rope, q_latent), true, TYPE_BF16, t, times(a->heads, row), a->rope_dim);
  latent->start = a->kv_lora_rank * UINT64_C(2);
  latent->batches = a->heads;
  latent->batch_stride = row * 2;
  if (a->absorbs) {
    latent = table(w, FIELD(qkv_rope, q_latent), true, TYPE_BF16, t, times(a->heads, row), a->kv_lora_rank);
    latent->batches = a->heads;
    latent->batch_stride = row * 2;
  }
  kv_pages(w, FIELD(qkv_rope, kv), true, a->kv_format, a->kv_lora_rank, a->rope_dim);
  weight(w, FIELD(qkv_rope, kv_scale), TYPE_F32, 1)->must_be_null = a->kv_format != KV_FP8;
}

/* Columns of a product's result. */
static uint64_t columns_of(uint32_t n, uint32_t y_kind) { return y_kind == Y_SILU ? n / 2 : n; }

static void describe_gemm(writer *w, const gemm_args *a) {
  uint64_t rows = rows_of(w, a->rows_kind);
  uint32_t type = a->y_kind == Y_F32 ? TYPE_F32 : TYPE_BF16;
  check_access *x = table(w, FIELD(gemm, x), false, TYPE_BF16, rows, a->ldx, a->k);
  x->batches = a->batches;
  x->batch_stride = times(a->x_batch, 2);
  uint64_t matrix = times(a->n, a->k), last = a->batches ? times(a->batches - 1, a->w_batch) : 0;
  weight(w, FIELD(gemm, w), TYPE_BF16, plus(last, matrix));
  check_access *y = table(w, FIELD(gemm, y), true, type, rows, a->ldy, columns_of(a->n, a->y_kind));
  y->batches = a->batches;
  y->batch_stride = times(a->y_batch, size_of(type));
}

/* The units of split tiles, in as many slots as there are. */
static void describe_units(writer *w, size_t o, size_t ml, bool is_write, uint32_t slots, uint32_t heads, uint32_t rank) {
  uint64_t latent = times(heads, rank), states = times(heads, 2);
  table(w, o, is_write, TYPE_F32, slots, latent, latent)->must_be_null = slots == 0;
  table(w, ml, is_write, TYPE_F32, slots, states, states)->must_be_null = slots == 0;
}

#define COUNTS (sizeof(attn_counts) / 4)

static void describe_attn_cut(writer *w, const attn_cut_args *a) {
  uint64_t t = w->rows.tokens, piece = sizeof(attn_piece) / 4, part = sizeof(attn_part) / 4;
  fixed(w, FIELD(attn_cut, tiles), false, REGION_STEP, IO(tiles), t * sizeof(attn_tile));
  describe_block_table(w, FIELD(attn_cut, block_table), a->block_table_stride);
  table(w, FIELD(attn_cut, counts), true, TYPE_COUNTS, 1, COUNTS, COUNTS);
  table(w, FIELD(attn_cut, pieces), true, TYPE_PIECES, plus(t, a->slots_max), piece, piece);
  table(w, FIELD(attn_cut, parts), true, TYPE_PARTS, t, part, part);
}

static void describe_mla_attn(writer *w, const mla_attn_args *a) {
  uint64_t t = w->rows.tokens, row = (uint64_t)a->kv_lora_rank + a->rope_dim, latent = times(a->heads, a->kv_lora_rank);
  uint64_t own = attn_block_floats(a), piece = sizeof(attn_piece) / 4;
  const bool is_widened = w->rows.is_prompt;
  fixed(w, FIELD(mla_attn, tiles), false, REGION_STEP, is_widened ? IO(prompt_tiles) : IO(tiles), t * sizeof(attn_tile));
  table(w, FIELD(mla_attn, q), false, TYPE_BF16, t, times(a->heads, row), times(a->heads, row));
  if (is_widened) table(w, FIELD(mla_attn, kv), false, TYPE_BF16, times(w->l->expand_pages, PAGE_TOKENS), row, row);
  else kv_pages(w, FIELD(mla_attn, kv), false, a->kv_format, a->kv_lora_rank, a->rope_dim);
  weight(w, FIELD(mla_attn, kv_scale), TYPE_F32, 1)->must_be_null = a->kv_format != KV_FP8;
  table(w, FIELD(mla_attn, lists), false, TYPE_LISTS, t, a->list_max, a->list_max)->must_be_null = a->list_max == 0;
  if (is_widened) table(w, FIELD(mla_attn, block_table), false, TYPE_PAGE_TABLE, w->l->expand_pages, 1, 1);
  else describe_block_table(w, FIELD(mla_attn, block_table), a->block_table_stride);
  table(w, FIELD(mla_attn, out), true, TYPE_BF16, t, latent, latent);
  describe_units(w, FIELD(mla_attn, partial_o), FIELD(mla_attn, partial_ml), true, a->slots_max, a->heads, a->kv_lora_rank);
  table(w, FIELD(mla_attn, counts), false, TYPE_COUNTS, 1, COUNTS, COUNTS)->must_be_null = a->slots_max == 0;
  table(w, FIELD(mla_attn, pieces), false, TYPE_PIECES, plus(t, a->slots_max), piece, piece)->must_be_null = a->slots_max == 0;
  table(w, FIELD(mla_attn, scratch), true, TYPE_F32, w->rows.blocks, own, own);
  fixed(w, FIELD(mla_attn, meetings), true, REGION_STATE, IO(meetings), ATTN_MEETINGS * UINT64_C(4))->must_be_null = !attn_may_spread(a);
}

static void describe_mla_fold(writer *w, const mla_fold_args *a) {
  uint64_t t = w->rows.tokens, latent = times(a->heads, a->kv_lora_rank), part = sizeof(attn_part) / 4;
  table(w, FIELD(mla_fold, counts), false, TYPE_COUNTS, 1, COUNTS, COUNTS);
  table(w, FIELD(mla_fold, parts), false, TYPE_PARTS, t, part, part);
  describe_units(w, FIELD(mla_fold, partial_o), FIELD(mla_fold, partial_ml), false, a->slots_max, a->heads, a->kv_lora_rank);
  table(w, FIELD(mla_fold, out), true, TYPE_BF16, t, latent, latent);
  if (a->lifts) table(w, FIELD(mla_fold, out), false, TYPE_BF16, t, latent, latent); /* of tiles that are not split */
  weight(w, FIELD(mla_fold, w_uv), TYPE_BF16, times(latent, a->v_dim))->must_be_null = !a->lifts;
  check_access *value = table(w, FIELD(mla_fold, value), true, TYPE_BF16, t, times(a->heads, a->v_dim), a->v_dim);
  value->batches = a->heads;
  value->batch_stride = a->v_dim * UINT64_C(2);
  value->must_be_null = !a->lifts;
}

static void describe_contexts(writer *w, size_t field) {
  fixed(w, field, false, REGION_STEP, IO(contexts), times(w->l->max_seqs, sizeof(step_context)));
}

static void describe_mla_expand(writer *w, const mla_expand_args *a) {
  uint64_t rows = times(a->piece_pages, PAGE_TOKENS), columns = (uint64_t)a->n + a->rope_dim;
  describe_contexts(w, FIELD(mla_expand, contexts));
  kv_pages(w, FIELD(mla_expand, kv), false, KV_BF16, a->kv_lora_rank, a->rope_dim);
  describe_block_table(w, FIELD(mla_expand, block_table), a->block_table_stride);
  weight(w, FIELD(mla_expand, w), TYPE_BF16, times(a->n, a->kv_lora_rank));
  table(w, FIELD(mla_expand, y), true, TYPE_BF16, rows, columns, columns);
}

static void describe_mla_prefill(writer *w, const mla_prefill_args *a) {
  uint64_t t = w->rows.tokens, nope = times(a->heads, a->nope_dim), state = times(a->heads, (uint64_t)a->v_dim + 2);
  uint64_t columns = times(a->heads, (uint64_t)a->nope_dim + a->v_dim) + a->rope_dim, value = times(a->heads, a->v_dim);
  fixed(w, FIELD(mla_prefill, tiles), false, REGION_STEP, IO(prompt_tiles), t * sizeof(attn_tile));
  describe_contexts(w, FIELD(mla_prefill, contexts));
  table(w, FIELD(mla_prefill, q_nope), false, TYPE_BF16, t, nope, nope);
  check_access *rope = table(w, FIELD(mla_prefill, q_rope), false, TYPE_BF16, t, times(a->heads, a->q_rope_stride), a->rope_dim);
  rope->batches = a->heads;
  rope->batch_stride = a->q_rope_stride * UINT64_C(2);
  table(w, FIELD(mla_prefill, expanded), false, TYPE_BF16, times(a->piece_pages, PAGE_TOKENS), columns, columns);
  table(w, FIELD(mla_prefill, out), true, TYPE_BF16, t, value, value);
  table(w, FIELD(mla_prefill, state), true, TYPE_F32, t, state, state);
}

static void describe_router(writer *w, const router_args *a) {
  uint64_t t = w->rows.tokens;
  table(w, FIELD(router, logits), false, TYPE_F32, t, a->experts, a->experts);
  weight(w, FIELD(router, bias), TYPE_F32, a->experts);
  w->out[w->count - 1].is_optional = 1;
  table(w, FIELD(router, topk_id), true, TYPE_TOPK_ID, t, a->top_k, a->top_k);
  table(w, FIELD(router, topk_weight), true, TYPE_F32, t, a->top_k, a->top_k);
  uint64_t experts = (uint64_t)a->experts + 1;
  table(w, FIELD(router, expert_first), true, TYPE_EXPERT_FIRST, 1, experts, experts)->must_be_null = !a->sorts;
  table(w, FIELD(router, row_token), true, TYPE_ROW_TOKEN, times(t, a->top_k), 1, 1)->must_be_null = !a->sorts;
  table(w, FIELD(router, pair_row), true, TYPE_PAIR_ROW, t, a->top_k, a->top_k)->must_be_null = !a->sorts;
}

static void describe_moe_sort(writer *w, const moe_sort_args *a) {
  uint64_t t = w->rows.tokens, experts = (uint64_t)a->experts + 1;
  table(w, FIELD(moe_sort, topk_id), false, TYPE_TOPK_ID, t, a->top_k, a->top_k);
  table(w, FIELD(moe_sort, expert_first), true, TYPE_EXPERT_FIRST, 1, experts, experts);
  table(w, FIELD(moe_sort, row_token), true, TYPE_ROW_TOKEN, times(t, a->top_k), 1, 1);
  table(w, FIELD(moe_sort, pair_row), true, TYPE_PAIR_ROW, t, a->top_k, a->top_k);
  table(w, FIELD(moe_sort, x), false, TYPE_BF16, t, a->columns, a->columns)->must_be_null = a->columns == 0;
  table(w, FIELD(moe_sort, x_sorted), true, TYPE_BF16, times(t, a->top_k), a->columns, a->columns)->must_be_null = a->columns == 0;
}

static void describe_moe_gemm(writer *w, const moe_gemm_args *a, bool is_gathered) {
  uint64_t pairs = times(w->rows.tokens, a->top_k), experts = (uint64_t)a->experts + 1;
  table(w, FIELD(moe_gemm, expert_first), false, TYPE_EXPERT_FIRST, 1, experts, experts);
  table(w, FIELD(moe_gemm, row_token), false, TYPE_ROW_TOKEN, pairs, 1, 1)->is_optional = 1;
  table(w, FIELD(moe_gemm, x), false, TYPE_BF16, is_gathered ? w->rows.tokens : pairs, a->ldx, a->k);
  weight(w, FIELD(moe_gemm, w), TYPE_BF16, times(a->experts, times(a->n, a->k)));
  uint64_t columns = columns_of(a->n, a->y_kind);
  table(w, FIELD(moe_gemm, y), true, a->y_kind == Y_F32 ? TYPE_F32 : TYPE_BF16, pairs, columns, columns);
}

static void describe_adjust(writer *w, const adjust_args *a) {
  uint64_t r = w->rows.logits;
  table(w, FIELD(adjust, logits), false, TYPE_F32, r, a->vocab, a->vocab);
  fixed(w, FIELD(adjust, param), false, REGION_STEP, IO(sample), r * sizeof(sample_param));
  fixed(w, FIELD(adjust, lists), false, REGION_STEP, IO(lists), w->l->max_seqs * (TOKEN_LIST_MAX * sizeof(token_bias)));
  describe_history(w, FIELD(adjust, history), false);
  describe_block_table(w, FIELD(adjust, block_table), a->block_table_stride);
  table(w, FIELD(adjust, adjusted), true, TYPE_F32, r, a->vocab, a->vocab);
}

static void describe_sample(writer *w, const sample_args *a) {
  uint64_t r = w->rows.logits;
  table(w, FIELD(sample, logits), false, TYPE_F32, r, a->vocab, a->vocab);
  table(w, FIELD(sample, adjusted), false, TYPE_F32, r, a->vocab, a->vocab);
  fixed(w, FIELD(sample, param), false, REGION_STEP, IO(sample), r * sizeof(sample_param));
  fixed(w, FIELD(sample, sampled), true, REGION_STATE, IO(sampled), w->l->max_seqs * UINT64_C(4));
  fixed(w, FIELD(sample, result), true, REGION_RESULT, IO(result), r * sizeof(sample_result));
  fixed(w, FIELD(sample, top), true, REGION_RESULT, IO(top), r * (TOP_LOGPROBS_MAX * sizeof(top_logprob)));
}

static void describe_row_digest(writer *w, const row_digest_args *a) {
  uint64_t rows = rows_of(w, a->rows_kind);
  table(w, FIELD(row_digest, x), false, TYPE_F32, rows, a->stride, a->words);
  fixed(w, FIELD(row_digest, digest), true, REGION_RESULT, IO(digest), rows * 8);
}

/* e4m3 codes, and a scale for every 128 of them. */
static void describe_codes(writer *w, size_t codes, size_t scales, bool is_write, uint64_t rows, uint64_t columns) {
  table(w, codes, is_write, TYPE_E4M3, rows, columns, columns);
  table(w, scales, is_write, TYPE_F32, rows, columns / SCALE_COLUMNS, columns / SCALE_COLUMNS);
}

/* The weights of `count` matrices. */
static void describe_scaled_weight(writer *w, size_t codes, size_t scales, uint64_t count, uint64_t n, uint64_t k) {
  weight(w, codes, TYPE_E4M3, times(count, times(n, k)));
  weight(w, scales, TYPE_F32, times(count, times(div_up(n, SCALE_COLUMNS), k / SCALE_COLUMNS)));
}

static void describe_act_quant(writer *w, const act_quant_args *a) {
  uint64_t rows = times(rows_of(w, a->rows_kind), a->rows_mul);
  table(w, FIELD(act_quant, x), false, TYPE_BF16, rows, a->ldx, a->columns);
  describe_codes(w, FIELD(act_quant, codes), FIELD(act_quant, scales), true, rows, a->columns);
}

static void describe_fp8_gemm(writer *w, const fp8_gemm_args *a) {
  uint64_t rows = rows_of(w, a->rows_kind);
  describe_codes(w, FIELD(fp8_gemm, x), FIELD(fp8_gemm, x_scale), false, rows, a->k);
  describe_scaled_weight(w, FIELD(fp8_gemm, w), FIELD(fp8_gemm, w_scale), 1, a->n, a->k);
  table(w, FIELD(fp8_gemm, y), true, a->y_kind == Y_F32 ? TYPE_F32 : TYPE_BF16, rows, a->ldy, columns_of(a->n, a->y_kind));
}

static void describe_fp8_moe_gemm(writer *w, const fp8_moe_gemm_args *a) {
  uint64_t pairs = times(w->rows.tokens, a->top_k), experts = (uint64_t)a->experts + 1, columns = columns_of(a->n, a->y_kind);
  table(w, FIELD(fp8_moe_gemm, expert_first), false, TYPE_EXPERT_FIRST, 1, experts, experts);
  table(w, FIELD(fp8_moe_gemm, row_token), false, TYPE_ROW_TOKEN, pairs, 1, 1)->is_optional = 1;
  describe_codes(w, FIELD(fp8_moe_gemm, x), FIELD(fp8_moe_gemm, x_scale), false, a->row_token ? w->rows.tokens : pairs, a->k);
  describe_scaled_weight(w, FIELD(fp8_moe_gemm, w), FIELD(fp8_moe_gemm, w_scale), a->experts, a->n, a->k);
  table(w, FIELD(fp8_moe_gemm, y), true, a->y_kind == Y_F32 ? TYPE_F32 : TYPE_BF16, pairs, columns, columns);
}

static void index_pages(writer *w, size_t field, bool is_write) {
  check_access *a = fixed(w, field, is_write, REGION_KV, 0, times(w->l->kv_pages, INDEX_PAGE_BYTES));
  a->io = CHECK_ACCESS_ANY_IO;
  a->type = TYPE_INDEX_PAGES;
}

static void describe_index_qk(writer *w, const index_qk_args *a) {
  uint64_t t = w->rows.tokens, query = times(a->heads, INDEX_DIM);
  table(w, FIELD(index_qk, q), false, TYPE_F32, t, a->q_stride, query);
  table(w, FIELD(index_qk, k), false, TYPE_F32, t, a->k_stride, INDEX_DIM);
  table(w, FIELD(index_qk, w), false, TYPE_F32, t, a->w_stride, a->heads);
  weight(w, FIELD(index_qk, gain), TYPE_F32, INDEX_DIM);
  weight(w, FIELD(index_qk, bias), TYPE_F32, INDEX_DIM);
  describe_cos_sin(w, FIELD(index_qk, cos_sin), a->rope_dim);
  fixed(w, FIELD(index_qk, position), false, REGION_STEP, IO(position), t * 4);
  fixed(w, FIELD(index_qk, seq), false, REGION_STEP, IO(seq), t * 4);
  describe_block_table(w, FIELD(index_qk, block_table), a->block_table_stride);
  table(w, FIELD(index_qk, q_codes), true, TYPE_E4M3, t, query, query);
  table(w, FIELD(index_qk, w_out), true, TYPE_F32, t, a->heads, a->heads);
  index_pages(w, FIELD(index_qk, cache), true);
}

/* Of the rows that an op handles, those that the step has. */
static uint64_t rows_from(const writer *w, uint32_t row_first, uint32_t row_count) {
  return w->rows.tokens > row_first ? min_u64(row_count, w->rows.tokens - row_first) : 0;
}

static void describe_index_score(writer *w, const index_score_args *a) {
  uint64_t t = w->rows.tokens, query = times(a->heads, INDEX_DIM);
  table(w, FIELD(index_score, q_codes), false, TYPE_E4M3, t, query, query);
  table(w, FIELD(index_score, w), false, TYPE_F32, t, a->heads, a->heads);
  index_pages(w, FIELD(index_score, cache), false);
  fixed(w, FIELD(index_score, position), false, REGION_STEP, IO(position), t * 4);
  fixed(w, FIELD(index_score, seq), false, REGION_STEP, IO(seq), t * 4);
  describe_block_table(w, FIELD(index_score, block_table), a->block_table_stride);
  table(w, FIELD(index_score, scores), true, TYPE_F32, rows_from(w, a->row_first, a->row_count), a->stride, a->stride);
}

/* Scores after a row's own are neither written nor read; this description ignores that. */
static void describe_index_topk(writer *w, const index_topk_args *a) {
  uint64_t rows = rows_from(w, a->row_first, a->row_count);
  table(w, FIELD(index_topk, scores), false, TYPE_F32, rows, a->stride, a->stride);
  fixed(w, FIELD(index_topk, position), false, REGION_STEP, IO(position), w->rows.tokens * UINT64_C(4));
  table(w, FIELD(index_topk, lists), true, TYPE_LISTS, rows, a->topk, a->topk)->first_row = a->row_first;
}

static void describe_kv_widen(writer *w, const kv_widen_args *a) {
  uint64_t columns = (uint64_t)a->kv_lora_rank + a->rope_dim;
  describe_contexts(w, FIELD(kv_widen, contexts));
  kv_pages(w, FIELD(kv_widen, kv), false, a->kv_format, a->kv_lora_rank, a->rope_dim);
  weight(w, FIELD(kv_widen, kv_scale), TYPE_F32, 1)->must_be_null = a->kv_format != KV_FP8;
  describe_block_table(w, FIELD(kv_widen, block_table), a->block_table_stride);
  table(w, FIELD(kv_widen, y), true, TYPE_BF16, times(a->pages_max, PAGE_TOKENS), columns, columns);
  table(w, FIELD(kv_widen, table), true, TYPE_PAGE_TABLE, a->pages_max, 1, 1);
}

uint64_t check_access_extent(const check_access *a) {
  if (a->rows == 0 || a->batches == 0) return 0;
  uint64_t last = plus(times(plus(a->first_row, a->rows - 1), a->row_stride), times(a->batches - 1, a->batch_stride));
  return plus(plus(a->start, last), a->run_bytes);
}

static uint32_t args_bytes_of(uint32_t kernel) {
  static const uint32_t BYTES[] = {
#define KERNEL(stem) sizeof(stem##_args),
#include "kernels_src/kernels.def"
#undef KERNEL
  };
  return kernel < ARRAY_LEN(BYTES) ? BYTES[kernel] : 0;
}

uint32_t check_access_describe(uint32_t kernel, const void *args, uint32_t args_bytes, const plan_limits *limits, const check_rows *rows,
                               check_access out[CHECK_ACCESS_MAX]) {
  writer w = {limits, *rows, 0, out};
  if (args_bytes == 0 || args_bytes != args_bytes_of(kernel)) return 0;
  switch (kernel) {
    case OP_embed: describe_embed(&w, args); break;
    case OP_rmsnorm: describe_rmsnorm(&w, args); break;
    case OP_qkv_rope: describe_qkv_rope(&w, args); break;
    case OP_gemm: describe_gemm(&w, args); break;
    case OP_attn_cut: describe_attn_cut(&w, args); break;
    case OP_mla_attn: describe_mla_attn(&w, args); break;
    case OP_mla_fold: describe_mla_fold(&w, args); break;
    case OP_mla_expand: describe_mla_expand(&w, args); break;
    case OP_mla_prefill: describe_mla_prefill(&w, args); break;
    case OP_act_quant: describe_act_quant(&w, args); break;
    case OP_fp8_gemm: describe_fp8_gemm(&w, args); break;
    case OP_fp8_moe_gemm: describe_fp8_moe_gemm(&w, args); break;
    case OP_index_qk: describe_index_qk(&w, args); break;
    case OP_index_topk: describe_index_topk(&w, args); break;
    case OP_kv_widen: describe_kv_widen(&w, args); break;
    case OP_router: describe_router(&w, args); break;
    case OP_moe_sort: describe_moe_sort(&w, args); break;
    case OP_moe_gemm: describe_moe_gemm(&w, args, ((const moe_gemm_args *)args)->row_token != NULL); break;
    case OP_sample: describe_sample(&w, args); break;
    case OP_adjust: describe_adjust(&w, args); break;
    case OP_row_digest: describe_row_digest(&w, args); break;
    case OP_index_score: describe_index_score(&w, args); break;
    default: return 0;
  }
  return w.count;
}
