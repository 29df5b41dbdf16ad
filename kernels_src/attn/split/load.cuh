/* attn/split/load.cuh - the producers of the split form's first half: queries of all heads, the rows of all list entries, and all
 * columns of the KV rows scored here. Two warpgroups; a warp has eight of a block's 64 rows. Read next: attn/split/load_values.cuh. */
#ifndef VERBATIM_ATTN_SPLIT_LOAD_CUH
#define VERBATIM_ATTN_SPLIT_LOAD_CUH
#include "attn/split/layout.cuh"
#include "attn/copy_rows.cuh"

NUM u32 load_lane() { return forgotten(threadIdx.x % 32u); }
NUM u32 load_warp() { return forgotten(threadIdx.x % 256u / 32u); }
NUM u32 row_of_place(const cta &b, u32 place_number) { return ((const u32 *)(b.shared + AT_ROWS))[place_number]; }

#define LOOKUPS (ATTN_SPREAD_PLACES / 256u)
NUM u32 own_lookup(const cta &b) { return b.rank * OWN / 4u; } /* contains the entries scored here */

/* One warp. */
NUM void load_queries(const mla_attn_args &a, const tensor_maps &maps, const cta &b, const token &t) {
  if (ptx_elect()) {
    ptx_barrier_expect(barrier_at(b, Q_FULL), GROUPS * BOXES * BOX_BYTES);
    for (u32 x = 0; x < GROUPS * BOXES; x++)
      ptx_take_box(BASE + AT_Q + x * BOX_BYTES, &maps.x, x % BOXES * 64u, t.row * a.heads + x / BOXES * 64u, barrier_at(b, Q_FULL));
  }
  __syncwarp();
}

/* 256 threads: the rows, NO_ROW if invalid, of COUNT groups of 256 list entries from `group` on, cyclically. */
template <u32 COUNT> NUM void look_up_rows(const mla_attn_args &a, const cta &b, const token &t, u32 group) {
  const u32 thread = threadIdx.x % 256u;
  u32 entry[COUNT], page[COUNT];
#pragma unroll
  for (u32 i = 0; i < COUNT; i++) {
    const u32 at = (group + i) % LOOKUPS * 256u + thread;
    entry[i] = at <= t.position && at < a.list_max ? a.lists[(u64)t.row * a.list_max + at] : NO_ROW;
  }
#pragma unroll
  for (u32 i = 0; i < COUNT; i++)
    page[i] = entry[i] <= t.position ? a.block_table[(u64)t.seq * a.block_table_stride + entry[i] / PAGE_TOKENS] : NO_ROW;
#pragma unroll
  for (u32 i = 0; i < COUNT; i++) {
    const u32 at = (group + i) % LOOKUPS * 256u + thread;
    const u32 row = page[i] == NO_ROW ? NO_ROW : page[i] * PAGE_TOKENS + entry[i] % PAGE_TOKENS;
    const u32 valid = __ballot_sync(WARP_ALL, row != NO_ROW);
    ((u32 *)(b.shared + AT_ROWS))[at] = row;
    if (thread % 32u == 0) ((u32 *)(b.shared + AT_VALID))[at / 32u] = valid;
  }
}

/* The loading warps look up the rows scored here, which everyone waits for. The computing warps, still idle, load the queries, whose 18
 * copies delay the thread that issues them, and look up all other rows. */
NUM void look_up_own_rows(const mla_attn_args &a, const cta &b, const token &t) {
  look_up_rows<1>(a, b, t, own_lookup(b));
  ptx_warps_sync(2, 256);
}
NUM void look_up_other_rows(const mla_attn_args &a, const tensor_maps &maps, const cta &b, const token &t) {
  if (threadIdx.x < 32u) load_queries(a, maps, b, t);
  look_up_rows<LOOKUPS - 1u>(a, b, t, own_lookup(b) + 1u);
  ptx_warps_arrive(5, SPEC_THREADS);
}
NUM void wait_for_rows() { ptx_warps_sync(5, SPEC_THREADS); }

/* A lane's part of its row: 16 codes in each box, which become two adjacent 16-byte pieces, and its rope columns. */
typedef struct row_codes {
  uint4 v[8], rope[2];
  float4 scale; /* per 128 columns; of one scale per layer, four times the same */
} row_codes;

NUM void fetch_codes(const mla_attn_args &a, u32 of, row_codes &c) {
  const u32 part = load_lane() % 4u * 16u;
  const u8 *from = row_at(a, of) + part;
  const bool is = of != NO_ROW;
#pragma unroll
  for (u32 i = 0; i < 8; i++) {
    c.v[i] = make_uint4(0, 0, 0, 0);
    if (is) c.v[i] = *(const uint4 *)(from + i * 64u);
  }
#pragma unroll
  for (u32 i = 0; i < 2; i++) {
    c.rope[i] = make_uint4(0, 0, 0, 0);
    if (is && (i == 0 || !ROPE_CODES)) c.rope[i] = *(const uint4 *)(from + ROPE_AT + i * 64u);
  }
  c.scale = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (ROPE_CODES) c.scale.x = c.scale.y = c.scale.z = c.scale.w = a.kv_scale[0];
  else if (is) c.scale = *(const float4 *)(from - part + SPEC_KV_LORA_RANK);
}

/* Piece i (0 or 1) of the lane's rope columns. */
NUM uint4 rope_piece(const row_codes &c, u32 i) {
  if (!ROPE_CODES) return c.rope[i];
  return kv_codes_widen(i ? make_uint2(c.rope[0].z, c.rope[0].w) : make_uint2(c.rope[0].x, c.rope[0].y), c.scale.x);
}

NUM u32 key_arrivals() { return CODES ? 8u : 256u; } /* warps, or threads */

/* Codes, dequantized. All of a block were fetched before the first is needed. slot: the block's place; k counts its uses. */
NUM void store_keys(const cta &b, const row_codes &c, u32 slot, u32 k) {
  u8 *const rows = b.shared + AT_K + slot * BOXES * BOX_BYTES + load_warp() * 1024u;
#pragma unroll
  for (u32 g = 0; g < BOX_GROUPS; g++) {
    wait_empty(b, K_EMPTY + slot * BOX_GROUPS + g, k);
    if (g + 1u < BOX_GROUPS) {
      const f32 scale = g == 0 ? c.scale.x : g == 1u ? c.scale.y : g == 2u ? c.scale.z : c.scale.w;
      store_widened(rows + 2u * g * BOX_BYTES, c.v[2u * g], scale);
      store_widened(rows + (2u * g + 1u) * BOX_BYTES, c.v[2u * g + 1u], scale);
    } else {
#pragma unroll
      for (u32 i = 0; i < 2; i++) *(uint4 *)(rows + ROPE_BOX * BOX_BYTES + rope_piece_at(i)) = rope_piece(c, i);
    }
    __syncwarp();
    if (load_lane() == 0) ptx_barrier_arrive(barrier_at(b, K_FULL + slot * BOX_GROUPS + g));
  }
}

/* bf16 rows, copied: eight lanes to 128 bytes of a row. */
NUM void copy_keys(const mla_attn_args &a, const cta &b, u32 first, u32 slot, u32 k) {
  const u32 row = load_lane() / 8u, part = load_lane() % 8u;
  const u8 *from[2];
  u32 bytes[2];
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const u32 of = row_of_place(b, first + load_warp() * 8u + h * 4u + row);
    bytes[h] = of != NO_ROW ? 16u : 0u;
    from[h] = row_at(a, of) + part * 16u;
  }
#pragma unroll
  for (u32 g = 0; g < BOX_GROUPS; g++) {
    wait_empty(b, K_EMPTY + slot * BOX_GROUPS + g, k);
#pragma unroll
    for (u32 x = 2u * g; x < 2u * g + 2u && x < BOXES; x++) {
      const u32 at = BASE + AT_K + (slot * BOXES + x) * BOX_BYTES + load_warp() * 1024u + row * 128u + (part ^ row) * 16u;
      ptx_copy16(at, from[0] + x * 128u, bytes[0]);
      ptx_copy16((at ^ 64u) + 512u, from[1] + x * 128u, bytes[1]);
    }
    ptx_barrier_arrive_copies(barrier_at(b, K_FULL + slot * BOX_GROUPS + g));
  }
}

/* The KV rows of token number n. k: as in block_count. */
NUM void load_keys(const mla_attn_args &a, const cta &b, const token &t, u32 n, u32 &k) {
  const u32 first = b.rank * OWN * 64u, own = first + load_warp() * 8u + load_lane() / 4u;
  row_codes c;
  if (!has_scores(b, t)) return;
  if (CODES) fetch_codes(a, row_of_place(b, own), c);
#pragma unroll 1
  for (u32 i = 0; i < OWN; i++) {
    if (!CODES) copy_keys(a, b, first + i * 64u, i % KEYS, block_count(n, k, i) / KEYS);
    if (CODES) store_keys(b, c, i % KEYS, block_count(n, k, i) / KEYS);
    if (CODES && i + 1u < OWN) fetch_codes(a, row_of_place(b, own + (i + 1u) * 64u), c);
  }
  k += OWN;
}

#endif
