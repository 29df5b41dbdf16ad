/* attn/spread/values.cuh - what the same warpgroups bring for the second half of attn/spread/form.cuh: this block's columns of all rows of
 * the list, by loads and stores, and P of all places, by bulk copies of one thread; two blocks of 64 places to a stage.
 *
 * The first rows are asked for before the scores are made, and then always some stages early. Read next: attn/spread/form.cuh. */
#ifndef VERBATIM_SPREAD_VALUES_CUH
#define VERBATIM_SPREAD_VALUES_CUH
#include "attn/spread/keys.cuh"

#define PARTS (SLICE * (CODES ? 1u : 2u) / 16u) /* of 16 bytes, of a row's columns here: a lane has one */
#define LOADS (128u * PARTS / 256u)             /* of a thread, of a stage */
#define AHEAD (LOADS > 2u ? 2u : LOADS > 1u ? 3u : 4u) /* stages */

typedef struct values {
  uint4 v[AHEAD][LOADS];
  f32 scale[AHEAD][LOADS];
} values;

NUM u32 part_of() { return bring_lane() % PARTS; }
/* The row that load x is of, among the 128 of a stage. */
NUM u32 stage_row(u32 x) { return x * (256u / PARTS) + bring_warp() * (32u / PARTS) + bring_lane() / PARTS; }

NUM void take_values(const mla_attn_args &a, const place &p, values &c, u32 i, u32 stage) {
  const u32 slice = p.rank % SLICES * SLICE;
#pragma unroll
  for (u32 x = 0; x < LOADS; x++) {
    const u32 of = stage < ATTN_SPREAD_PLACES / 128u ? listed_row(p, stage * 128u + stage_row(x)) : NO_ROW;
    const u8 *from = row_at(a, of);
    c.v[i][x] = make_uint4(0, 0, 0, 0);
    c.scale[i][x] = SPEC_KV_FORMAT == KV_FP8 ? a.kv_scale[0] : 0.0f;
    if (of == NO_ROW) continue;
    c.v[i][x] = *(const uint4 *)(from + slice * (CODES ? 1u : 2u) + part_of() * 16u);
    if (SPEC_KV_FORMAT == KV_FP8_DS_MLA) c.scale[i][x] = *(const f32 *)(from + SPEC_KV_LORA_RANK + slice / 128u * 4u);
  }
}

NUM void put_values(const place &p, const values &c, u32 i, u32 slot) {
#pragma unroll
  for (u32 x = 0; x < LOADS; x++) {
    const u32 row = stage_row(x), number = CODES ? 2u * part_of() : part_of();
    const u32 at = AT_STAGES + slot * STAGE_BYTES + row / 64u * BOX_BYTES + row % 64u * 128u + (number ^ row % 8u) * 16u;
    const uint4 v = c.v[i][x];
    if (CODES) {
      *(uint4 *)(p.shared + at) = kv_codes_widen(make_uint2(v.x, v.y), c.scale[i][x]);
      *(uint4 *)(p.shared + (at ^ 16u)) = kv_codes_widen(make_uint2(v.z, v.w), c.scale[i][x]);
    } else {
      *(uint4 *)(p.shared + at) = v;
    }
  }
}

/* One thread: P of a stage; of an odd list's last block of places also what no one reads. */
NUM void copy_weights(const mla_attn_args &a, const place &p, const token &t, u32 stage, u32 slot, u32 n) {
  const u32 come = barrier_at(V_COME + slot), to = BASE + AT_STAGES + slot * STAGE_BYTES + 2u * BOX_BYTES;
  const u32 blocks = t.blocks - 2u * stage < 2u ? 1u : 2u;
  if (stage == 0) {
    wait_for(P_COME, n);
    ptx_fence_copies();
  }
  ptx_barrier_expect(come, blocks * STAGE_P);
  for (u32 x = 0; x < blocks; x++)
    ptx_copy_bulk(to + x * STAGE_P, weights_of(a, 2u * stage + x) + (APART ? p.rank / SLICES * P_BYTES : 0u), STAGE_P, come, ptx_often());
}

/* Eight columns of ones beside a slice of 32, when scores are done: one product adds to O and to l. */
NUM void put_ones(const place &p) {
#pragma unroll
  for (u32 i = threadIdx.x % 256u; i < STAGES * 128u && SLICE == 32u; i += 256u)
    *(uint4 *)(p.shared + AT_STAGES + i / 128u * STAGE_BYTES + i % 128u * 128u + (4u ^ i % 8u) * 16u) =
        make_uint4(0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u);
}

/* Of token number n; use counts stages. */
NUM void bring_values(const mla_attn_args &a, const place &p, const token &t, u32 n, u32 &use) {
  const u32 stages = (t.blocks + 1u) / 2u;
  values c;
#pragma unroll
  for (u32 i = 0; i < AHEAD; i++) take_values(a, p, c, i, i);
  wait_for(S_DONE, n);
  put_ones(p);
#pragma unroll 1
  for (u32 from = 0; from < stages; from += AHEAD) {
#pragma unroll
    for (u32 i = 0; i < AHEAD; i++) {
      if (from + i >= stages) break;
      const u32 slot = use % STAGES;
      wait_free(V_FREE + slot, use++ / STAGES);
      put_values(p, c, i, slot);
      __syncwarp();
      if (bring_lane() == 0) ptx_barrier_arrive(barrier_at(V_COME + slot));
      take_values(a, p, c, i, from + i + AHEAD);
      if (bring_warp() == 7u && ptx_elect()) copy_weights(a, p, t, from + i, slot, n);
      __syncwarp();
    }
  }
}

#endif
