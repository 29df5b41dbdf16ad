/* attn/cluster/load_fp8.cuh - the producer warpgroup of the cluster form for e4m3 rows: dequantizes the blocks scored here into the boxes.
 *
 * A thread has a share of two rows of every block. The half of V that the other CTA multiplies is copied from here to its boxes, so that
 * a row is read and dequantized once for both. Codes wait in registers until their boxes are free; the next ones are fetched after the
 * fence that ends a half, because a fence waits for loads. Entries and pages are fetched before codes and used after them, for the same
 * reason. It bounds the kernel: H200, 128 heads, lists of 2,048, 64 requests 138 us.
 * tools/bench/history/2026-11-23-sparse-gather-bounds.md. Read next: attn/cluster/scores.cuh, attn/cluster/values.cuh. */
#ifndef VERBATIM_ATTN_CLUSTER_LOAD_FP8_CUH
#define VERBATIM_ATTN_CLUSTER_LOAD_FP8_CUH
#include "attn/cluster/load_rows.cuh"

#define SCALES (SPEC_KV_FORMAT == KV_FP8_DS_MLA ? 2u : 1u) /* of half of V */
static_assert(SPEC_KV_FORMAT != KV_FP8_DS_MLA || SPEC_KV_LORA_RANK == 512, "two boxes a scale, and 16-byte pieces");

/* A thread has a quarter of its rows' columns in a box: 16 codes, which become two adjacent 16-byte pieces. */
NUM u32 row_part() { return load_lane() % 4u; }
NUM u32 part_at() {
  u32 at = lookup_row(0) * 128u + (2u * row_part() ^ lookup_row(0) % 8u) * 16u;
  ptx_forget(at);
  return at;
}
NUM u32 piece_at(u32 at, u32 h, u32 i) { return (at ^ i * 16u) + h * 1024u; } /* at: from part_at */

/* What a thread holds of a block until its boxes are free: codes of half of V, and the scales of its rows, per 128 columns or per layer. */
typedef struct row_codes {
  uint4 v[HALF][2];
  f32 scale[2][SCALES];
} row_codes;

/* Of row h. */
NUM void fetch_row(const mla_attn_args &a, u32 row, u32 half, u32 h, row_codes &c) {
  const u8 *from = row_address(a, row);
  const uint4 *codes = (const uint4 *)(from + half * HALF * 64u + row_part() * 16u);
  const f32 *scales = SPEC_KV_FORMAT == KV_FP8 ? a.kv_scale : (const f32 *)(from + SPEC_KV_LORA_RANK + half * 8u);
  const bool is = row != NO_ROW;
#pragma unroll
  for (u32 i = 0; i < HALF; i++) {
    c.v[i][h] = make_uint4(0, 0, 0, 0);
    if (is) c.v[i][h] = codes[i * 4u];
  }
#pragma unroll
  for (u32 j = 0; j < SCALES; j++) c.scale[h][j] = 0.0f;
  if (is && SCALES == 2u) {
    const float2 sum = *(const float2 *)scales;
    c.scale[h][0] = sum.x;
    c.scale[h][SCALES - 1u] = sum.y;
  } else if (is) {
    c.scale[h][0] = scales[0];
  }
}

NUM void fetch_codes(const mla_attn_args &a, const u32 (&row)[LOOKUPS], u32 half, row_codes &c) {
  fetch_row(a, row[0], half, 0, c);
  fetch_row(a, row[1], half, 1, c);
}

/* 16 codes as bf16 numbers to their two pieces. */
NUM void store_widened(const cta &b, u32 at, u32 h, const uint4 &codes, f32 scale) {
  *(uint4 *)(b.shared + piece_at(at, h, 0)) = kv_codes_widen(make_uint2(codes.x, codes.y), scale);
  *(uint4 *)(b.shared + piece_at(at, h, 1)) = kv_codes_widen(make_uint2(codes.z, codes.w), scale);
}

/* The warp's share of `count` boxes is written. */
NUM void publish_boxes(const cta &b, u32 full, u32 count) {
  ptx_fence_async();
  __syncwarp();
  if (load_lane() == 0)
    for (u32 i = 0; i < count; i++) ptx_barrier_arrive(barrier_at(b, full + i));
}

/* The rope columns of rows of codes, which are bf16 numbers: four lanes copy 64 bytes of a row together. */
NUM void copy_rope(const mla_attn_args &a, const cta &b, const u32 (&row)[LOOKUPS], u32 box_at, u32 full) {
  const u32 odd = lookup_row(0) % 2u, count = SPEC_ROPE_DIM / 8u;
  u32 at = lookup_row(0) * 128u + (row_part() ^ lookup_row(0) % 8u) * 16u;
  ptx_forget(at);
  at += b.base + box_at;
#pragma unroll
  for (u32 h = 0; h < LOOKUPS; h++) {
    const bool is = row[h] != NO_ROW;
    const u8 *start = row_address(a, is ? row[h] : 0u) + ROPE_AT + row_part() * 16u;
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
      const u32 j = i ^ odd; /* avoids bank conflicts of adjacent rows */
      if (4u * j < count) ptx_copy16((at ^ j * 64u) + h * 1024u, start + 64u * j, is ? 16u : 0u);
    }
  }
  ptx_barrier_arrive_copies(barrier_at(b, full));
}

/* Half of V of a block, two boxes at a time as `empties` barriers release them. */
NUM void store_half(const cta &b, u32 box_at, u32 full, u32 empty, u32 empties, u32 phase, const row_codes &c) {
  const u32 at = box_at + part_at();
#pragma unroll
  for (u32 i = 0; i < HALF; i++) {
    if (i * empties % HALF == 0) wait_empty(b, empty + i * empties / HALF, phase);
#pragma unroll
    for (u32 h = 0; h < 2; h++) store_widened(b, at + i * BOX_BYTES, h, c.v[i][h], c.scale[h][i / 2u % SCALES]);
    if (i % 2u == 1u) publish_boxes(b, full + i - 1u, 2u);
  }
}

/* The rows of the warp's 16 entries, in lanes 0 to 15, for store_valid. */
NUM u32 row_of_lane(const u32 (&row)[LOOKUPS]) {
  const u32 from = load_lane() % 8u * 4u, second = __shfl_sync(WARP_ALL, row[1], (int)from);
  const u32 first = __shfl_sync(WARP_ALL, row[0], (int)from);
  return load_lane() >= 8u ? second : first;
}

/* Block number k of those scored here: the boxes that are also multiplied here, */
NUM void store_both(const cta &b, const load_step &s, const row_codes &c, u32 k) {
  const u32 set = k % 2u, empty = BOTH_EMPTY + set * 2u;
  if (SPEC_LISTS) {
    wait_empty(b, empty, k / 2u);
    store_valid(b, set, row_of_lane(s.row), 0);
  }
  store_half(b, AT_BOTH + set * HALF * BOX_BYTES, BOTH_FULL + set * HALF, empty, 2u, k / 2u, c);
}

/* and those that only S reads, when the other CTA has copied its values from them. */
NUM void store_keys(const mla_attn_args &a, const cta &b, const load_step &s, const row_codes &c, u32 k) {
  const u32 last = KEYS_FULL + HALF, box_at = AT_KEYS + HALF * BOX_BYTES; /* of the rope columns */
  wait_empty(b, VALUES_SENT, k);
  store_half(b, AT_KEYS, KEYS_FULL, KEYS_EMPTY, HALF, k, c);
  wait_empty(b, KEYS_EMPTY + HALF, k);
  if (ROPE_COPIED) copy_rope(a, b, s.row, box_at, last);
#pragma unroll
  for (u32 h = 0; h < 2 && !ROPE_COPIED; h++) {
    const u32 row = s.row[h];
    const bool is = row != NO_ROW && row_part() * 16u < SPEC_ROPE_DIM;
    uint4 codes = make_uint4(0, 0, 0, 0);
    if (is) codes = *(const uint4 *)(row_address(a, row) + ROPE_AT + row_part() * 16u);
    store_widened(b, box_at + part_at(), h, codes, c.scale[h][0]);
  }
  if (!ROPE_COPIED) publish_boxes(b, last, 1u);
}

/* One warp: copies the half of V that the other CTA multiplies from the boxes here to the boxes there. */
NUM void send_values(const cta &b, u32 k) {
  const u32 peer = ptx_peer(b.base, b.rank ^ 1u);
  if (ptx_elect())
    for (u32 i = 0; i < HALF; i++) {
      wait_full(b, KEYS_FULL + i, k); /* all warps have written theirs */
      if (i % WIDTH_BOXES == 0) wait_empty(b, VALUES_EMPTY + i / WIDTH_BOXES, k);
      ptx_copy_peer(peer + AT_VALUES + i * BOX_BYTES, b.base + AT_KEYS + i * BOX_BYTES, BOX_BYTES,
                    peer + AT_BARRIERS + (VALUES_FULL + i) * 8u);
    }
  __syncwarp();
}

/* One warpgroup. */
NUM void run_loads(const mla_attn_args &a, const tensor_maps &maps, const cta &b) {
  load_front f = {0, 0, 0, 0, 0, NO_ROW, 0, 0};
  load_step now = next_step(a, b, f), next = now;
  u32 page[LOOKUPS], k = 0, queries = 0;
  fetch_pages(a, f, now, page);
  find_rows(now, page);
  row_codes c;
  fetch_codes(a, now.row, b.rank, c);
  while (!(now.kind & STEP_END)) {
    next = next_step(a, b, f);
    const bool own = now.kind & STEP_OWN;
    if (own) store_both(b, now, c, k);
    fetch_pages(a, f, next, page);
    fetch_codes(a, now.row, b.rank ^ 1u, c);
    if (now.kind & STEP_FIRST) load_queries(maps, b, now.kind >> STEP_QUERY, queries++);
    if (own) store_keys(a, b, now, c, k);
    find_rows(next, page);
    fetch_codes(a, next.row, b.rank, c);
    if (own && load_thread() < 32u) send_values(b, k);
    k += own;
    now = next;
  }
}

#endif
