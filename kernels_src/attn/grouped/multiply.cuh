/* attn/grouped/multiply.cuh - attn: the math warpgroups. S = Q K^T, probabilities, O += P V, l += P 1, stage by stage.
 *
 * S of a stage and P V of the stage before are in flight together; with two warpgroups their products alternate (ping-pong). Blocks that
 * all rows of a warpgroup see are not masked. A warpgroup ends with the block of its last row; it releases the stages after that. Only the
 * tile's last block can hold tokens after the tile, whose values are zeroed. Read next: attn/grouped/results.cuh. */
#ifndef VERBATIM_ATTN_GROUPED_MULTIPLY_CUH
#define VERBATIM_ATTN_GROUPED_MULTIPLY_CUH
#include "attn/grouped/load.cuh"
#include "attn/grouped/results.cuh"

/* What a warpgroup has to do in an item: blocks that it sees, and those from `masked` on that some of its rows see in part. */
typedef struct view {
  u32 count, masked;
} view;

NUM view view_of(const attn_args &a, const item &it, u32 group) {
  const u32 row = it.row + group * 64u, end = it.row + it.rows;
  if (ptx_uniform(row) >= ptx_uniform(end)) return {0, 0};
  const u32 seen = blocks_to(a, it, (row + 64u < end ? row + 64u : end) - 1u);
  const u32 whole = (it.tile.position + row / sharers(a) + 1u) / PAGE_TOKENS; /* blocks that the first row sees all of */
  return {ptx_uniform(seen < it.count ? seen : it.count), ptx_uniform(whole > it.first ? whole - it.first : 0u)};
}

/* For each of the thread's rows the tokens of a block that it sees, less the thread's first column; the last position of a tile for rows
 * after its own. */
typedef struct limits {
  i32 seen[2];
} limits;

NUM limits limits_of(const attn_args &a, const item &it, u32 block, u32 group) {
  limits l;
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const u32 row = group * 64u + own_row() + 8u * h, of_tile = it.row + (row < it.rows ? row : it.rows - 1u);
    const u32 position = it.tile.position + of_tile / sharers(a);
    l.seen[h] = (i32)(position + 1u) - (i32)((it.first + block) * PAGE_TOKENS) - (i32)(threadIdx.x % 4u * 2u);
  }
  return l;
}

NUM void mask_later(f32 (&s)[32u * PAGES], u32 at, const limits &l, f32 as) {
#pragma unroll
  for (u32 i = 0; i < 32; i++)
    if ((i32)(i / 4u * 8u + i % 2u) >= l.seen[i / 2u % 2u]) s[at + i] = as;
}

/* Turns the scores s[at ..] of a block into probabilities, and updates m; factor: what O and l must be multiplied by. */
NUM void make_probs(const attn_args &a, const item &it, f32 (&s)[32u * PAGES], u32 at, chain &c, f32 (&factor)[2], u32 block,
                    bool is_masked, u32 group) {
#pragma unroll
  for (u32 i = 0; i < 32; i++) ptx_hold(s[at + i]); /* else some are read before they are there */
  if (is_masked) mask_later(s, at, limits_of(a, it, block, group), -INFINITE);
  const range r = range_of(s, at);
  f32 base[2] = {num_sub(NUM_ROUND, c.m[0]), num_sub(NUM_ROUND, c.m[1])}; /* num_weight_base, if all is plain */
  factor[0] = factor[1] = 1.0f;
  const bool is = is_plain(a.scale_log2, c.m[0], r.top[0], r.least[0]) & is_plain(a.scale_log2, c.m[1], r.top[1], r.least[1]);
  if (__any_sync(WARP_ALL, !is)) raise(a.scale_log2, s, at, c, r, factor, base);
#pragma unroll
  for (u32 i = 0; i < 32; i++) s[at + i] = num_weight(s[at + i], a.scale_log2, base[i / 2u % 2u]);
  if (is_masked) mask_later(s, at, limits_of(a, it, block, group), 0.0f);
}

/* Probabilities of a stage's second page, if it has one that the warpgroup needs. page: number of the first one in the item. */
NUM void make_second_probs(const attn_args &a, const item &it, f32 (&s)[32u * PAGES], chain &c, probs &w, u32 page, const view &v,
                           u32 group) {
  if (PAGES == 1u || page + 1u >= v.count) return;
  make_probs(a, it, s, SECOND * 32u, c, w.factor[SECOND], page + 1u, page + 1u >= v.masked, group);
  pack(w.p[SECOND], s, SECOND * 32u);
}

/* Rescales O and l, or starts them anew: by a mask, since the compiler serialises the products if it sees zeros assigned. */
NUM void renew(chain &c, const f32 (&factor)[2], bool anew) {
  u32 kept = anew ? 0u : 0xffffffffu;
  if (!anew && factor[0] == 1.0f && factor[1] == 1.0f) return;
  ptx_forget(kept);
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    c.l[i] = num_float(num_bits(num_mul(c.l[i], factor[i / 2u % 2u])) & kept);
    ptx_hold(c.l[i]);
  }
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) {
    c.o[i] = num_float(num_bits(num_mul(c.o[i], factor[i / 2u % 2u])) & kept);
    ptx_hold(c.o[i]);
  }
}

/* All stages after the first: products of the one before, and probabilities. paired: stages that both warpgroups have. */
NUM void run_stages(const attn_args &a, const item &it, chain &c, f32 (&s)[32u * PAGES], probs &w, ring_turn &t, const view &v, u32 paired,
                    u8 *shared, u32 base, u32 group) {
  const u32 chunk_stages = a.chunk_tokens / (PAGES * PAGE_TOKENS);
  u32 left = chunk_stages; /* of the chunk, from the stage before on */
  if (group == 1u && paired > 1u) ptx_warps_arrive(AT_TURN, 256u);
  for (u32 stage = 1; stage < stages_of(v.count); stage++) {
    ring_turn ahead = t;
    pass(ahead);
    multiply_stage(c, s, w, t, ahead, stage, paired, base, group);
    const bool is_next = --left == 0; /* the stage starts a chunk */
    const f32 last[2] = {c.m[0], c.m[1]};
    if (is_next) c.m[0] = c.m[1] = NO_MAX;
    make_probs(a, it, s, 0, c, w.factor[0], stage * PAGES, stage * PAGES >= v.masked, group);
    PTX_MULTIPLY_WAIT(0);
    release(base + V_EMPTY + t.stage * 8u);
    pack(w.p[0], s, 0);
    if (is_next) end_chunk(a, it, c, last, stage / chunk_stages - 1u, shared, group);
    if (is_next) left = chunk_stages;
    renew(c, w.factor[0], is_next);
    make_second_probs(a, it, s, c, w, stage * PAGES, v, group);
    t = ahead;
  }
}

/* The last stage's products. */
NUM void add_last(const item &it, chain &c, const probs &w, const ring_turn &t, const view &v, u8 *shared, u32 base, u32 group) {
  const u32 last = (v.count - 1u) % PAGES, end = it.tile.position + it.tile.count - 1u, end_row = end % PAGE_TOKENS + 1u;
  if (ptx_uniform(it.first + v.count - 1u == end / PAGE_TOKENS && end_row < PAGE_TOKENS)) {
    ptx_barrier_wait(base + V_FULL + t.stage * 8u, t.phase);
    clear_values(shared + values_at(t, last), end_row, group);
  }
  multiply_last(c, w, t, last, base);
}

/* Blocks of the item up to that of this warpgroup's last row. t: the ring position of the item's first ones; after its last ones on
 * return. */
NUM void run_item(const attn_args &a, const item &it, u32 number, ring_turn &t, u8 *shared, u32 base, u32 group) {
  const view v = view_of(a, it, group);
  const u32 mine = stages_of(v.count), stages = stages_of(ptx_uniform(it.count)), blocks = a.chunk_tokens / PAGE_TOKENS;
  if (v.count) {
    const u32 other = GROUPS == 2u ? stages_of(view_of(a, it, group ^ 1u).count) : 0u;
    chain c;
    f32 s[32u * PAGES];
    probs w;
    wait_queries(group);
    start_chunk(c);
    ptx_barrier_wait(base + K_FULL + t.stage * 8u, t.phase);
    multiply_scores(s, queries_at(base, group), base + AT_K + t.stage * K_BYTES);
    PTX_MULTIPLY_WAIT(0);
    release(base + K_EMPTY + t.stage * 8u);
    make_probs(a, it, s, 0, c, w.factor[0], 0, v.masked == 0, group);
    pack(w.p[0], s, 0);
    make_second_probs(a, it, s, c, w, 0, v, group);
    run_stages(a, it, c, s, w, t, v, num_least(mine, other), shared, base, group);
    load_queries(a, number + 1u, base, group);
    add_last(it, c, w, t, v, shared, base, group);
    pass(t);
    end_item(a, it, c, (v.count - 1u) / blocks, shared, group);
  }
  for (u32 stage = mine; stage < stages; stage++, pass(t)) skip(base, t);
  if (v.count == 0) load_queries(a, number + 1u, base, group);
  store_unreached(a, it, (v.count + blocks - 1u) / blocks, group);
}

#endif
