/* attn/spread/keys.cuh - what attn/spread/form.cuh needs for its first half: the queries of 128 heads, where the list's rows lie, and this
 * block's own KV rows with all columns, which two warpgroups bring. A warp has eight of a block's 64 rows. Read next:
 * attn/spread/values.cuh. */
#ifndef VERBATIM_SPREAD_KEYS_CUH
#define VERBATIM_SPREAD_KEYS_CUH
#include "attn/list_rows.cuh"
#include "attn/spread/layout.cuh"

NUM u32 bring_warp() {
  u32 warp = threadIdx.x % 256u / 32u;
  ptx_forget(warp);
  return warp;
}
NUM u32 listed_row(const place &p, u32 place_number) { return ((const u32 *)(p.shared + AT_ROWS))[place_number]; }

#define ROW_GROUPS (ATTN_SPREAD_PLACES / 256u)
NUM u32 own_group(const place &p) { return p.rank * OWN / 4u; } /* those weighed here are in it */

/* One warp. */
NUM void bring_queries(const mla_attn_args &a, const tensor_maps &maps, const token &t) {
  if (ptx_elect()) {
    ptx_barrier_expect(barrier_at(Q_COME), 2u * BOXES * BOX_BYTES);
    for (u32 x = 0; x < 2u * BOXES; x++)
      ptx_take_box(BASE + AT_Q + x * BOX_BYTES, &maps.x, x % BOXES * 64u, t.row * a.heads + x / BOXES * 64u, barrier_at(Q_COME));
  }
  __syncwarp();
}

/* By 256 threads: the rows, NO_ROW of void ones, of COUNT groups of 256 places of the list, from `group` on; behind the last one comes the
 * first. */
template <u32 COUNT> NUM void find_rows(const mla_attn_args &a, const place &p, const token &t, u32 group) {
  const u32 thread = threadIdx.x % 256u;
  u32 entry[COUNT], page[COUNT];
#pragma unroll
  for (u32 i = 0; i < COUNT; i++) {
    const u32 at = (group + i) % ROW_GROUPS * 256u + thread;
    entry[i] = at <= t.position && at < a.list_max ? a.lists[(u64)t.row * a.list_max + at] : NO_ROW;
  }
#pragma unroll
  for (u32 i = 0; i < COUNT; i++)
    page[i] = entry[i] <= t.position ? a.block_table[(u64)t.seq * a.block_table_stride + entry[i] / PAGE_TOKENS] : NO_ROW;
#pragma unroll
  for (u32 i = 0; i < COUNT; i++) {
    const u32 at = (group + i) % ROW_GROUPS * 256u + thread;
    const u32 row = page[i] == NO_ROW ? NO_ROW : page[i] * PAGE_TOKENS + entry[i] % PAGE_TOKENS;
    const u32 live = __ballot_sync(WARP_ALL, row != NO_ROW);
    ((u32 *)(p.shared + AT_ROWS))[at] = row;
    if (thread % 32u == 0) ((u32 *)(p.shared + AT_LIVE))[at / 32u] = live;
  }
}

/* The warps that bring: rows of the places weighed here, which all wait for. The others, which have nothing to do yet: the queries, whose
 * 18 copies hold up who asks for them, and all other rows. */
NUM void find_own_rows(const mla_attn_args &a, const place &p, const token &t) {
  find_rows<1>(a, p, t, own_group(p));
  ptx_warps_sync(2, 256);
}
NUM void find_other_rows(const mla_attn_args &a, const tensor_maps &maps, const place &p, const token &t) {
  if (threadIdx.x < 32u) bring_queries(a, maps, t);
  find_rows<ROW_GROUPS - 1u>(a, p, t, own_group(p) + 1u);
  ptx_warps_arrive(5, SPEC_THREADS);
}
NUM void wait_for_rows() { ptx_warps_sync(5, SPEC_THREADS); }

/* Of its row a lane holds 16 codes of each box, which make two pieces of 16 bytes side by side, and what lies behind V. */
typedef struct codes {
  uint4 v[8], rope[2];
  float4 scale; /* of 128 columns each; of one scale a layer all the same */
} codes;

NUM void take_codes(const mla_attn_args &a, u32 of, codes &c) {
  const u32 part = bring_lane() % 4u * 16u;
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

/* Piece i of two of the columns behind V. */
NUM uint4 rope_piece(const codes &c, u32 i) {
  if (!ROPE_CODES) return c.rope[i];
  return kv_codes_widen(i ? make_uint2(c.rope[0].z, c.rope[0].w) : make_uint2(c.rope[0].x, c.rope[0].y), c.scale.x);
}

NUM u32 key_arrivals() { return CODES ? 8u : 256u; } /* warps, or threads */

/* Codes: bf16 numbers of them, all of a block asked for before the first is needed. */
NUM void put_keys(const place &p, const codes &c, u32 k) {
  u8 *const rows = p.shared + AT_K + bring_warp() * 1024u;
#pragma unroll
  for (u32 g = 0; g < GROUPS; g++) {
    wait_free(K_FREE + g, k);
    if (g + 1u < GROUPS) {
      const f32 scale = g == 0 ? c.scale.x : g == 1u ? c.scale.y : g == 2u ? c.scale.z : c.scale.w;
      put_codes(rows + 2u * g * BOX_BYTES, c.v[2u * g], scale);
      put_codes(rows + (2u * g + 1u) * BOX_BYTES, c.v[2u * g + 1u], scale);
    } else {
#pragma unroll
      for (u32 i = 0; i < 2; i++) *(uint4 *)(rows + ROPE_BOX * BOX_BYTES + rope_piece_at(i)) = rope_piece(c, i);
    }
    __syncwarp();
    if (bring_lane() == 0) ptx_barrier_arrive(barrier_at(K_COME + g));
  }
}

/* bf16 rows: by copies, eight lanes to 128 bytes of a row. */
NUM void copy_keys(const mla_attn_args &a, const place &p, u32 first, u32 k) {
  const u32 row = bring_lane() / 8u, part = bring_lane() % 8u;
  const u8 *from[2];
  u32 bytes[2];
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const u32 of = listed_row(p, first + bring_warp() * 8u + h * 4u + row);
    bytes[h] = of != NO_ROW ? 16u : 0u;
    from[h] = row_at(a, of) + part * 16u;
  }
#pragma unroll
  for (u32 g = 0; g < GROUPS; g++) {
    wait_free(K_FREE + g, k);
#pragma unroll
    for (u32 x = 2u * g; x < 2u * g + 2u && x < BOXES; x++) {
      const u32 at = BASE + AT_K + x * BOX_BYTES + bring_warp() * 1024u + row * 128u + (part ^ row) * 16u;
      ptx_copy16(at, from[0] + x * 128u, bytes[0]);
      ptx_copy16((at ^ 64u) + 512u, from[1] + x * 128u, bytes[1]);
    }
    ptx_barrier_arrive_copies(barrier_at(K_COME + g));
  }
}

/* Of token number n; k: as in own_nth. */
NUM void bring_keys(const mla_attn_args &a, const place &p, const token &t, u32 n, u32 &k) {
  const u32 first = p.rank * OWN * 64u, own = first + bring_warp() * 8u + bring_lane() / 4u;
  codes c;
  if (!weighs(p, t)) return;
  if (CODES) take_codes(a, listed_row(p, own), c);
#pragma unroll 1
  for (u32 i = 0; i < OWN; i++) {
    if (!CODES) copy_keys(a, p, first + i * 64u, own_nth(n, k, i));
    if (CODES) put_keys(p, c, own_nth(n, k, i));
    if (CODES && i + 1u < OWN) take_codes(a, listed_row(p, own + (i + 1u) * 64u), c);
  }
  k += OWN;
}

#endif
