/* attn/split/load_values.cuh - the producers of the split form's second half: this CTA's columns of all listed rows, by loads and stores of
 * two warpgroups, and P of all entries, by bulk copies of one thread. A stage is two blocks of 64 entries.
 *
 * The first rows are fetched before the scores are done, later ones STAGES_AHEAD stages early. Read next: attn/split/values.cuh. */
#ifndef VERBATIM_ATTN_SPLIT_LOAD_VALUES_CUH
#define VERBATIM_ATTN_SPLIT_LOAD_VALUES_CUH
#include "attn/split/load.cuh"

#define PARTS (SLICE * (CODES ? 1u : 2u) / 16u)               /* 16-byte parts of a row's columns here; a lane has one */
#define CREWS (PARTS == 1u ? 2u : 1u)                         /* sets of warps that take stages in turn: a stage has a part for each lane */
#define CREW (256u / CREWS)                                   /* threads of one */
#define LOADS (128u * PARTS / CREW)                           /* of a thread per stage */
#define STAGES_AHEAD (LOADS > 2u ? 2u : LOADS > 1u ? 3u : 4u) /* stages */

typedef struct values {
  uint4 v[STAGES_AHEAD][LOADS];
  f32 scale[STAGES_AHEAD][LOADS];
} values;

NUM u32 crew_warp() { return CREWS > 1u ? load_warp() % (CREW / 32u) : load_warp(); } /* the warp's number in its crew */
NUM u32 part_of() { return load_lane() % PARTS; }
/* The row that load x of this thread belongs to, among the 128 of a stage. */
NUM u32 stage_row(u32 x) { return x * (CREW / PARTS) + crew_warp() * (32u / PARTS) + load_lane() / PARTS; }

/* Where eight columns lie among the 16-byte pieces of a row: ones may come between those of two warpgroups. */
NUM u32 piece_at(u32 number) { return SHARERS > 1u && ONES_NEXT ? number + number / (COLUMNS / 8u) : number; }

NUM void fetch_values(const mla_attn_args &a, const cta &b, values &c, u32 i, u32 stage) {
  const u32 slice = b.rank % SLICES * SLICE;
#pragma unroll
  for (u32 x = 0; x < LOADS; x++) {
    const u32 of = stage < ATTN_SPREAD_PLACES / 128u ? row_of_place(b, stage * 128u + stage_row(x)) : NO_ROW;
    const u8 *from = row_at(a, of);
    c.v[i][x] = make_uint4(0, 0, 0, 0);
    c.scale[i][x] = SPEC_KV_FORMAT == KV_FP8 ? a.kv_scale[0] : 0.0f;
    if (of == NO_ROW) continue;
    c.v[i][x] = *(const uint4 *)(from + slice * (CODES ? 1u : 2u) + part_of() * 16u);
    if (SPEC_KV_FORMAT == KV_FP8_DS_MLA) c.scale[i][x] = *(const f32 *)(from + SPEC_KV_LORA_RANK + slice / 128u * 4u);
  }
}

NUM void store_values(const cta &b, const values &c, u32 i, u32 slot) {
#pragma unroll
  for (u32 x = 0; x < LOADS; x++) {
    const u32 row = stage_row(x), part = part_of(), number = piece_at(CODES ? 2u * part : part);
    const u32 at = AT_STAGES + slot * STAGE_BYTES + row / 64u * BOX_BYTES + row % 64u * 128u + (number ^ row % 8u) * 16u;
    const uint4 v = c.v[i][x];
    if (CODES) {
      const u32 next = SHARERS > 1u ? number ^ piece_at(2u * part + 1u) : 1u;
      *(uint4 *)(b.shared + at) = kv_codes_widen(make_uint2(v.x, v.y), c.scale[i][x]);
      *(uint4 *)(b.shared + (at ^ next * 16u)) = kv_codes_widen(make_uint2(v.z, v.w), c.scale[i][x]);
    } else {
      *(uint4 *)(b.shared + at) = v;
    }
  }
}

/* One thread: P of a stage. The second block of the last stage of an odd list is not copied, and its place is not used. */
NUM void copy_probs(const mla_attn_args &a, const cta &b, const token &t, u32 stage, u32 slot, u32 n) {
  const u32 full = barrier_at(b, V_FULL + slot), to = BASE + AT_STAGES + slot * STAGE_BYTES + 2u * BOX_BYTES;
  const u32 blocks = t.blocks - 2u * stage < 2u ? 1u : 2u;
  if (stage < CREWS) {
    wait_full(b, P_FULL, n);
    ptx_fence_copies();
  }
  ptx_barrier_expect(full, blocks * STAGE_P);
  for (u32 x = 0; x < blocks; x++)
    ptx_copy_bulk(to + x * STAGE_P, probs_of(a, 2u * stage + x) + (HEADS_APART ? b.rank / SLICES * P_BYTES : 0u), STAGE_P, full,
                  ptx_often());
}

/* Eight columns of ones next to a warpgroup's columns, when scores are done: one product adds to O and to l. at: number of the crew's first
 * stage; a crew has every other stage, also in shared memory. */
NUM void store_slice_ones(const cta &b, u32 at) {
  static_assert(CREWS == 1u || STAGES % CREWS == 0, "");
#pragma unroll
  for (u32 i = CREWS > 1u ? at % CREWS * CREW + threadIdx.x % CREW : threadIdx.x % 256u; i < STAGES * 128u && ONES_NEXT; i += 256u) {
    u8 *const row = b.shared + AT_STAGES + i / 128u * STAGE_BYTES + i % 128u * 128u;
    const uint4 ones = make_uint4(0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u);
    *(uint4 *)(row + ((COLUMNS / 8u) ^ i % 8u) * 16u) = ones;
    if (SHARERS > 1u) *(uint4 *)(row + ((COLUMNS_APART / 8u + COLUMNS / 8u) ^ i % 8u) * 16u) = ones;
  }
}

/* The values of token number n; use counts stages. */
NUM void load_values(const mla_attn_args &a, const cta &b, const token &t, u32 n, u32 &use) {
  const u32 stages = (t.blocks + 1u) / 2u, crew = CREWS > 1u ? load_warp() / (CREW / 32u) : 0u;
  u32 at = use + crew;
  values c;
#pragma unroll
  for (u32 i = 0; i < STAGES_AHEAD; i++) fetch_values(a, b, c, i, crew + i * CREWS);
  wait_full(b, S_DONE, n);
  store_slice_ones(b, at);
#pragma unroll 1
  for (u32 from = crew; from < stages; from += STAGES_AHEAD * CREWS) {
#pragma unroll
    for (u32 i = 0; i < STAGES_AHEAD; i++) {
      const u32 stage = from + i * CREWS;
      if (stage >= stages) break;
      const u32 slot = at % STAGES;
      wait_empty(b, V_EMPTY + slot, at / STAGES);
      at += CREWS;
      store_values(b, c, i, slot);
      __syncwarp();
      if (load_lane() == 0) ptx_barrier_arrive(barrier_at(b, V_FULL + slot));
      fetch_values(a, b, c, i, stage + STAGES_AHEAD * CREWS);
      if (crew_warp() == CREW / 32u - 1u && ptx_elect()) copy_probs(a, b, t, stage, slot, n);
      __syncwarp();
    }
  }
  use = CREWS > 1u ? use + stages : at;
}

#endif
