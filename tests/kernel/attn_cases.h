/* attn_cases.h - inputs shared by the tests of mla_attn and mla_fold, and the attention of one query by the text of NUMERICS.md. */
#ifndef VERBATIM_TEST_ATTN_CASES_H
#define VERBATIM_TEST_ATTN_CASES_H
#include "attn_cut.h"
#include "kernel_test.h"

#define ATTN_COLUMNS_MAX 576u

typedef struct attn_shape {
  u32 heads, rank, rope;
  u32 chunk_tokens, group_chunks, piece; /* piece: chunks of one when the step is cut, 0: it is not */
  u32 tiles;
  struct { u32 count, seq, position; } tile[5];
  u32 format, list_max; /* of the cache's rows; most entries of a token's list, 0: without lists */
} attn_shape;

typedef struct attn_result { f32 m, l, o[512]; } attn_result;

static inline void attn_fold(attn_result *a, const attn_result *b, u32 rank) {
  f32 m = a->m > b->m ? a->m : b->m, fa = num_exp2_int(a->m - m), fb = num_exp2_int(b->m - m);
  for (u32 i = 0; i < rank; i++) a->o[i] = fmaf(b->o[i], fb, a->o[i] * fa);
  a->l = fmaf(b->l, fb, a->l * fa);
  a->m = m;
}

/* What a query sees: rows by page, up to a place, but those that are void (null: none is). */
typedef struct attn_context {
  const bf16 *kv;
  const u32 *pages;
  const u8 *is_void; /* by place */
  u32 last;          /* place    */
} attn_context;

/* One block of one query, row by row of the text. kv: the block's rows; valid: those up to the query's place. */
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

/* Chunks first .. first+count-1 of a query, folded in order. */
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

/* Pairs of blocks, on two grids, and the form for few heads where it takes them: with few blocks, and with so many, if no more than
 * grid_max, that they share. Lists that are one chunk also by turns, on two grids. */
#define ATTN_VARIANTS 5u
static inline u32 attn_variants(const attn_shape *s, u32 tokens, u32 pieces, u32 grid_max, kernel_variant variants[ATTN_VARIANTS]) {
  const bool turns = s->list_max > 0 && s->list_max <= s->chunk_tokens && s->heads > 64;
  kernel_variant one = {.spec = {{"SPEC_MAPS", 1}, {"SPEC_KV_LORA_RANK", s->rank}, {"SPEC_ROPE_DIM", s->rope}}, .spec_count = 4,
                        .grid = {1, 1, 1}, .threads = 512, .shared_bytes = ATTN_SHARED_BYTES(64), .rows = tokens};
  kernel_variant pair = one, turn;
  one.spec[3] = (jit_spec){"SPEC_ROWS", attn_pass_rows(s->heads)};
  one.shared_bytes = ATTN_SHARED_BYTES(attn_pass_rows(s->heads));
  pair.spec[3] = (jit_spec){"SPEC_ROWS", 64};
  turn = pair;
  turn.threads = 384;
  turn.spec[turn.spec_count++] = (jit_spec){"SPEC_TURNS", 1};
  pair.spec[pair.spec_count++] = (jit_spec){"SPEC_PAIR", 2};
  for (u32 i = 0; i < ATTN_VARIANTS; i++) {
    kernel_variant *v = &variants[i];
    *v = i < 2 ? pair : turns ? turn : one;
    if (s->format == KV_BF16 && s->list_max == 0) continue;
    v->spec[v->spec_count++] = (jit_spec){"SPEC_KV_FORMAT", s->format};
    v->spec[v->spec_count++] = (jit_spec){"SPEC_LISTS", s->list_max > 0};
  }
  variants[0].grid[0] = 2;
  variants[1].grid[0] = 4;
  variants[2].grid[0] = turns ? 2 : 1;
  variants[3].grid[0] = turns ? 4 : 3;
  variants[4].grid[0] = 4 * pieces;
  return turns ? 4 : s->heads > 32 ? 2 : 4 * pieces > grid_max ? 4 : 5;
}

#endif
