/* attn_cases.h - inputs shared by the tests of mla_attn and mla_fold, and the attention of one query as NUMERICS.md defines it. */
#ifndef VERBATIM_TEST_ATTN_CASES_H
#define VERBATIM_TEST_ATTN_CASES_H
#include "attn/attn_cut.h"
#include "kernel_test.h"

#define ATTN_COLUMNS_MAX 576u

typedef struct attn_shape {
  u32 heads, rank, rope;
  u32 chunk_tokens, group_chunks, piece; /* piece: its chunks if the step is split, 0: it is not split */
  u32 tiles;
  struct { u32 count, seq, position; } tile[5];
  u32 format, list_max; /* of the cache's rows; most entries of a token's index list, 0: dense attention */
} attn_shape;

typedef struct attn_result { f32 m, l, o[512]; } attn_result;

static inline void attn_fold(attn_result *a, const attn_result *b, u32 rank) {
  f32 m = a->m > b->m ? a->m : b->m, fa = num_exp2_int(a->m - m), fb = num_exp2_int(b->m - m);
  for (u32 i = 0; i < rank; i++) a->o[i] = fmaf(b->o[i], fb, a->o[i] * fa);
  a->l = fmaf(b->l, fb, a->l * fa);
  a->m = m;
}

/* The rows that a query sees: by page, up to the query's index, without those that are void (null: none is). */
typedef struct attn_context {
  const bf16 *kv;
  const u32 *pages;
  const u8 *is_void; /* by index */
  u32 last;          /* index    */
} attn_context;

/* One block of one query, row by row as in NUMERICS.md. kv: the block's rows; valid: those up to the query's index. */
static inline void attn_block(attn_result *r, const bf16 *q, const bf16 *kv, const u8 *is_void, u32 valid, u32 rank, u32 columns,
                              f32 scale) {
  bf16 p[64] = {0}, one[64], value[64];
  f32 t[64], top = -INFINITY;
  for (u32 j = 0; j < valid; j++) {
    if (is_void && is_void[j]) continue;
    t[j] = kernel_test_chain(kv + (size_t)j * columns, q, 1, columns, 0) * scale;
    top = fmaxf(top, t[j]);
  }
  f32 m = top > r->m + 8 ? ceilf(top) : r->m, factor = num_exp2_int(r->m - m);
  if (m != r->m) {
    for (u32 i = 0; i < rank; i++) r->o[i] *= factor;
    r->l *= factor;
    r->m = m;
  }
  for (u32 j = 0; j < valid; j++)
    if (!is_void || !is_void[j]) p[j] = num_to_bf16(num_exp2_bf16(t[j] - m));
  for (u32 j = 0; j < 64; j++) one[j] = 0x3f80;
  for (u32 i = 0; i < rank; i++) {
    for (u32 j = 0; j < 64; j++) value[j] = j < valid && (!is_void || !is_void[j]) ? kv[(size_t)j * columns + i] : 0;
    r->o[i] = kernel_test_chain(p, value, 1, 64, r->o[i]);
  }
  r->l = kernel_test_chain(p, one, 1, 64, r->l);
}

/* Chunks first .. first+count-1 of a query, combined in order. */
static inline void attn_unit(attn_result *r, const attn_shape *s, const bf16 *q, const attn_context *c, u32 first, u32 count, f32 scale) {
  u32 columns = s->rank + s->rope;
  for (u32 chunk = first; chunk < first + count && chunk * s->chunk_tokens <= c->last; chunk++) {
    attn_result part = {.m = -0x1p60f};
    for (u32 at = chunk * s->chunk_tokens; at <= c->last && at < (chunk + 1) * s->chunk_tokens; at += 64) {
      u32 valid = c->last - at + 1 < 64 ? c->last - at + 1 : 64;
      const u8 *is_void = c->is_void ? c->is_void + at : NULL;
      attn_block(&part, q, c->kv + (size_t)c->pages[at / 64] * 64 * columns, is_void, valid, s->rank, columns, scale);
    }
    if (chunk == first)
      *r = part;
    else
      attn_fold(r, &part, s->rank);
  }
}

/* The variant with that many CTAs; form: null for the form for few heads. */
static inline kernel_variant attn_variant(const attn_shape *s, u32 tokens, const char *form, u32 value, u32 blocks) {
  const u32 rows = form ? 64 : attn_pass_rows(s->heads);
  kernel_variant v = {.spec = {{"SPEC_MAPS", 1}, {"SPEC_KV_LORA_RANK", s->rank}, {"SPEC_ROPE_DIM", s->rope}, {"SPEC_ROWS", rows}},
                      .spec_count = 4, .grid = {blocks, 1, 1}, .threads = 512, .shared_bytes = ATTN_SHARED_BYTES(rows), .rows = tokens};
  if (form) v.spec[v.spec_count++] = (jit_spec){form, value};
  if (s->format == KV_BF16 && s->list_max == 0) return v;
  v.spec[v.spec_count++] = (jit_spec){"SPEC_KV_FORMAT", s->format};
  v.spec[v.spec_count++] = (jit_spec){"SPEC_LISTS", s->list_max > 0};
  return v;
}

/* The cluster form, on two grids. The form for few heads where it applies: with few CTAs, and with the number that its work items share, if
 * that is at most grid_max. With more than 32 heads and index lists of one chunk: tokens split over 8, 16 and 32 CTAs; with more
 * than 64, also the ping-pong form on two grids. */
#define ATTN_VARIANTS 8u
static inline u32 attn_variants(const attn_shape *s, u32 tokens, u32 pieces, u32 grid_max, kernel_variant variants[ATTN_VARIANTS]) {
  const mla_attn_args args = {.heads = s->heads, .kv_lora_rank = s->rank, .rope_dim = s->rope, .chunk_tokens = s->chunk_tokens,
                              .list_max = s->list_max};
  u32 count = 0;
  for (u32 blocks = 2; blocks <= 4; blocks += 2) variants[count++] = attn_variant(s, tokens, "SPEC_PAIR", 2, blocks);
  if (s->heads <= 32) {
    variants[count++] = attn_variant(s, tokens, NULL, 0, 1);
    variants[count++] = attn_variant(s, tokens, NULL, 0, 3);
    if (4 * pieces <= grid_max) variants[count++] = attn_variant(s, tokens, NULL, 0, 4 * pieces);
    if (s->piece && s->format == KV_BF16 && s->list_max == 0) { /* a cluster of four CTAs shares a chunk, or none does */
      variants[count] = attn_variant(s, tokens, NULL, 0, 4 * pieces <= grid_max ? 4 * pieces : 4);
      variants[count].spec[variants[count].spec_count++] = (jit_spec){"SPEC_SHARES", ATTN_SHARES};
      count++;
    }
  }
  for (u32 blocks = 2; blocks <= 4 && attn_takes_turns(&args); blocks += 2, count++) {
    variants[count] = attn_variant(s, tokens, "SPEC_TURNS", 1, blocks);
    variants[count].threads = ATTN_TURN_THREADS(s->format);
  }
  for (u32 sharers = 8; sharers <= 32 && attn_may_spread(&args); sharers *= 2, count++) {
    variants[count] = attn_variant(s, tokens, "SPEC_SPREAD", sharers, sharers < 16 ? 8 : 32); /* with 8, one token after the other */
    if (s->heads <= 64) variants[count].spec[variants[count].spec_count++] = (jit_spec){"SPEC_GROUPS", 1};
  }
  return count;
}

#endif
