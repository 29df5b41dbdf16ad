/* attn/grouped/load_codes.cuh - attn: the four producer warps for a cache of e4m3 codes with one scale. They fetch codes into registers and
 * store them as bf16 into the boxes that TMA fills for a cache of bf16 rows.
 *
 * A page of keys or values is fetched in batches of 64 bytes a thread, one batch ahead of the one that is stored. Codes after the end of a
 * context are dequantized too: the math warpgroups mask their scores and clear their values. Read next: attn/grouped/multiply.cuh. */
#ifndef VERBATIM_ATTN_GROUPED_LOAD_CODES_CUH
#define VERBATIM_ATTN_GROUPED_LOAD_CODES_CUH
#include "attn/grouped/layout.cuh"
#include "attn/kv_codes.cuh"

#define BATCH 4u /* pieces of 16 codes */
#define BATCHES(columns) (((columns) / 16u * 64u + 128u * BATCH - 1u) / (128u * BATCH)) /* of a page */

typedef struct code_batch {
  uint4 v[BATCH];
} code_batch;

/* The thread's first piece of a batch, number row * pieces of a row + piece of the row; the next one is 128 further. Offsets are computed
 * where they are used: registers are scarce. */
NUM u32 piece_of(u32 batch) {
  u32 own = threadIdx.x % 128u;
  ptx_forget(own);
  return batch * BATCH * 128u + own;
}

/* page: the first row's first code; rows are `stride` bytes apart. */
template <u32 COLUMNS> NUM void fetch_batch(code_batch &c, const u8 *page, u32 stride, u32 batch) {
  const u32 of_row = COLUMNS / 16u, first = piece_of(batch);
#pragma unroll
  for (u32 i = 0; i < BATCH; i++) {
    const u32 piece = first + i * 128u;
    if (piece < 64u * of_row) c.v[i] = *(const uint4 *)(page + (piece / of_row * stride + piece % of_row * 16u));
  }
}

/* Box x of the page is `across` boxes after box x - 1. */
template <u32 COLUMNS> NUM void store_batch(const code_batch &c, u8 *boxes, u32 across, u32 batch, f32 scale) {
  const u32 of_row = COLUMNS / 16u, first = piece_of(batch);
#pragma unroll
  for (u32 i = 0; i < BATCH; i++) {
    const u32 piece = first + i * 128u, row = piece / of_row, x = piece % of_row;
    if (piece >= 64u * of_row) continue;
    u8 *const to = boxes + x / 4u * across * BOX_BYTES + row * 128u;
    const u32 at = (2u * (x % 4u) ^ row % 8u) * 16u;
    *(uint4 *)(to + at) = kv_codes_widen(make_uint2(c.v[i].x, c.v[i].y), scale);
    *(uint4 *)(to + (at ^ 16u)) = kv_codes_widen(make_uint2(c.v[i].z, c.v[i].w), scale);
  }
}

/* The warp's stores are visible to the products. */
NUM void arrive_stored(u32 barrier) {
  ptx_fence_async();
  __syncwarp();
  if (threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier);
}

NUM void run_code_loads(const attn_args &a, u8 *shared, u32 base) {
  const u32 lane = threadIdx.x % 32u, stride = a.kv_heads * (SPEC_HEAD_DIM + SPEC_V_DIM);
  const bool publishes = threadIdx.x % 128u < 32u;
  const f32 scale = a.kv_scale[0];
  course at = {0, 0};
  ring_turn t = {0, 0};
  if (publishes) publish(next_item(a, at), base, 0);
  for (u32 number = 0; ptx_uniform(item_at(base, number).rows); number++) {
    const item &it = items[number % ITEMS];
    const u32 count = ptx_uniform(it.count), *table = a.block_table + (u64)it.tile.seq * a.block_table_stride + it.first;
    const u8 *head = (const u8 *)a.kv + it.head * (SPEC_HEAD_DIM + SPEC_V_DIM), *page = head;
    code_batch k[BATCHES(SPEC_HEAD_DIM)], v[BATCHES(SPEC_V_DIM)];
    u32 pages = 0; /* lane i: number of page i of 32 */
    if (count == 0 && publishes) publish(next_item(a, at), base, number + 1u);
#pragma unroll 1
    for (u32 i = 0; i < count; i++) {
      const u32 stage = t.stage * 8u, in_stage = i % PAGES;
      const bool is_last = i + 1u == count, ends = in_stage + 1u == PAGES || is_last;
      u8 *const keys = shared + AT_K + t.stage * K_BYTES + in_stage * BOX_BYTES;
      u8 *const values = shared + AT_V + t.stage * V_BYTES + in_stage * V_BOXES * BOX_BYTES;
      if (i == 0) {
        pages = lane < count ? table[lane] : 0u;
        page = head + (u64)__shfl_sync(WARP_ALL, pages, 0) * PAGE_TOKENS * stride;
        fetch_batch<SPEC_HEAD_DIM>(k[0], page, stride, 0);
      }
      if (in_stage == 0) ptx_barrier_wait(base + K_EMPTY + stage, t.phase ^ 1u);
#pragma unroll
      for (u32 b = 0; b < BATCHES(SPEC_HEAD_DIM); b++) {
        if (b + 1u < BATCHES(SPEC_HEAD_DIM)) fetch_batch<SPEC_HEAD_DIM>(k[(b + 1u) % BATCHES(SPEC_HEAD_DIM)], page, stride, b + 1u);
        else fetch_batch<SPEC_V_DIM>(v[0], page + SPEC_HEAD_DIM, stride, 0);
        store_batch<SPEC_HEAD_DIM>(k[b], keys, PAGES, b, scale);
      }
      if (ends) arrive_stored(base + K_FULL + stage);
      if (in_stage == 0) ptx_barrier_wait(base + V_EMPTY + stage, t.phase ^ 1u);
      if ((i + 1u) % 32u == 0) pages = i + 1u + lane < count ? table[i + 1u + lane] : 0u;
      const u8 *next = head + (u64)__shfl_sync(WARP_ALL, pages, (int)((i + 1u) % 32u)) * PAGE_TOKENS * stride;
#pragma unroll
      for (u32 b = 0; b < BATCHES(SPEC_V_DIM); b++) {
        if (b + 1u < BATCHES(SPEC_V_DIM)) fetch_batch<SPEC_V_DIM>(v[(b + 1u) % BATCHES(SPEC_V_DIM)], page + SPEC_HEAD_DIM, stride, b + 1u);
        else if (!is_last) fetch_batch<SPEC_HEAD_DIM>(k[0], next, stride, 0);
        store_batch<SPEC_V_DIM>(v[b], values, 1u, b, scale);
      }
      if (ends) {
        arrive_stored(base + V_FULL + stage);
        pass(t);
      }
      if (is_last && publishes) publish(next_item(a, at), base, number + 1u); /* no codes are in registers now */
      page = next;
    }
  }
}

#endif
