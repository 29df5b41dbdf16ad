/* attn/expanded.cuh - attention in the expanded form, in mla_prefill and attn: the ring of stages of keys and values, and the products of a
 * stage. NUMERICS.md, `mla_prefill` and `attn`.
 *
 * A stage holds PAGES pages of keys and of values, in TMA tiles of 64 columns by 64 tokens (BOX_BYTES). A math warpgroup has 64 operand
 * rows. The includer defines PAGES, the sizes of a head (K_BOXES, V_BOXES, K_BYTES, V_BYTES, K_STEPS, OUTPUTS), and the places in shared
 * memory: AT_ONES, AT_K, AT_V, and the barriers K_FULL, K_EMPTY, V_FULL and V_EMPTY of each stage. Read next: attn/weights.cuh. */
#ifndef VERBATIM_ATTN_EXPANDED_CUH
#define VERBATIM_ATTN_EXPANDED_CUH
#include "attn/weights.cuh"

#define SECOND (PAGES - 1u) /* the second page of a stage, or its only one */

/* A stage of the ring and its phase. */
typedef struct ring_turn {
  u32 stage, phase;
} ring_turn;
NUM void pass(ring_turn &t) {
  if (++t.stage < SPEC_STAGES) return;
  t.stage = 0;
  t.phase ^= 1u;
}

NUM u32 stages_of(u32 pages) { return (pages + PAGES - 1u) / PAGES; }

/* Address of a warpgroup's queries, in boxes of its own. */
NUM u32 queries_at(u32 base, u32 group) { return base + group * K_BOXES * BOX_BYTES; }

/* Waits for the copies of a warpgroup's queries. */
NUM void wait_queries(u32 group) {
  PTX_COPY_WAIT(0);
  ptx_fence_async();
  ptx_warps_sync(1u + group, 128u);
}

/* Starts s = Q K^T for the pages of a stage. */
NUM void multiply_scores(f32 (&s)[32u * PAGES], u32 queries, u32 k) {
  const u64 left = ptx_operand(PTX_SWIZZLED, queries), right = ptx_operand(PTX_SWIZZLED, k);
#pragma unroll
  for (u32 i = 0; i < 32u * PAGES; i++) {
    s[i] = 0.0f;
    ptx_hold(s[i]);
  }
  ptx_multiply_fence();
#pragma unroll
  for (u32 i = 0; i < K_STEPS; i++)
    ptx_multiply(s, further(left, i / 4u * (BOX_BYTES / 16u) + i % 4u * 2u),
                 further(right, i / 4u * (PAGES * BOX_BYTES / 16u) + i % 4u * 2u));
  ptx_multiply_commit();
}

/* Starts O += P V, l += P 1 for one page: tokens in four steps of 16. */
NUM void multiply_values(chain &c, const u32 (&p)[4][4], u32 v, u32 base) {
  const u64 ones = ptx_operand(PTX_PLAIN, base + AT_ONES), values = ptx_operand(PTX_ACROSS(BOX_BYTES), v);
  ptx_multiply_fence();
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    ptx_multiply_across(c.o, p[i], further(values, i * 128u));
    ptx_multiply(c.l, p[i], ones);
  }
  ptx_multiply_commit();
}

/* Rows of v from `from` on become zeros: their tokens come after the tile, and a probability of 0 does not cancel NaN. */
NUM void clear_values(u8 *values, u32 from, u32 group) {
  for (u32 i = from * 8u + threadIdx.x % 128u; i < 512u; i += 128u)
#pragma unroll
    for (u32 x = 0; x < V_BOXES; x++) *(uint4 *)(values + x * BOX_BYTES + i * 16u) = make_uint4(0, 0, 0, 0);
  ptx_fence_async();
  ptx_warps_sync(1u + group, 128u);
}

/* This warp has read what the barrier guards. */
NUM void release(u32 barrier) {
  if (threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier);
}

/* Offset of v of a page. */
NUM u32 values_at(const ring_turn &t, u32 page) { return AT_V + t.stage * V_BYTES + page * V_BOXES * BOX_BYTES; }

/* While both warpgroups have stages, their products alternate, so that one computes probabilities during the products of the other.
 * Named barrier 3 + group: its turn. */
#define AT_TURN 3u

/* Waits for v of the stage, then starts O += P V, l += P 1 for its page number `page`. */
NUM void add_values(chain &c, const u32 (&p)[4][4], const ring_turn &t, u32 page, u32 base) {
  ptx_barrier_wait(base + V_FULL + t.stage * 8u, t.phase);
  multiply_values(c, p, base + values_at(t, page), base);
}

/* A stage that this warpgroup does not need. It waits for the data all the same: an arrival one lap ahead would count for the next one. */
NUM void skip(u32 base, const ring_turn &t) {
  ptx_barrier_wait(base + K_FULL + t.stage * 8u, t.phase);
  release(base + K_EMPTY + t.stage * 8u);
  ptx_barrier_wait(base + V_FULL + t.stage * 8u, t.phase);
  release(base + V_EMPTY + t.stage * 8u);
}

/* Probabilities of a stage's pages as operands, and the factors of O and l before each. */
typedef struct probs {
  u32 p[PAGES][4][4];
  f32 factor[PAGES][2];
} probs;

/* Starts the products of stage t's values and of the next stage's scores s, `ahead`, and waits for the scores. `stage` is the number of the
 * next one among those of the item; below `paired` both warpgroups have stages. */
NUM void multiply_stage(chain &c, f32 (&s)[32u * PAGES], const probs &w, const ring_turn &t, const ring_turn &ahead, u32 stage, u32 paired,
                        u32 base, u32 group) {
  ptx_barrier_wait(base + K_FULL + ahead.stage * 8u, ahead.phase);
  if (stage < paired) ptx_warps_sync(AT_TURN + group, 256u);
  if (PAGES == 2u) add_values(c, w.p[0], t, 0, base);
  multiply_scores(s, queries_at(base, group), base + AT_K + ahead.stage * K_BYTES);
  if (PAGES == 2u) {
    PTX_MULTIPLY_WAIT(1); /* the first page's products are done */
    rescale(c, w.factor[SECOND]);
  }
  add_values(c, w.p[SECOND], t, SECOND, base);
  if (stage < paired && (group == 0u || stage + 1u < paired)) ptx_warps_arrive(AT_TURN + (group ^ 1u), 256u);
  PTX_MULTIPLY_WAIT(1); /* the scores are done */
  release(base + K_EMPTY + ahead.stage * 8u);
}

/* Adds the values of the item's last stage, whose last page is number `last`. */
NUM void multiply_last(chain &c, const probs &w, const ring_turn &t, u32 last, u32 base) {
  add_values(c, w.p[0], t, 0, base);
  PTX_MULTIPLY_WAIT(0);
  if (PAGES == 2u && last) {
    rescale(c, w.factor[SECOND]);
    add_values(c, w.p[SECOND], t, SECOND, base);
    PTX_MULTIPLY_WAIT(0);
  }
  release(base + V_EMPTY + t.stage * 8u);
}

#endif
