/* attn/pair/gather.cuh - the last warpgroup of attn/pair/form.cuh where KV rows lie in another format than bf16: it makes bf16 numbers of
 * the codes of the blocks that are weighed here and puts them into the boxes, each thread its share of two rows of every block.
 *
 * The half of V that the other block multiplies is copied into its boxes from those that only S needs here, so that a row is read and
 * widened once for two blocks. Codes wait in registers for their boxes; the next ones are asked for behind the fence that ends a half,
 * which would wait for them. Entries and pages are asked for before codes and looked at behind them: a thread waits for everything that it
 * has asked for. Nothing here waits for a block that has not been put into its boxes.
 * It bounds the kernel: H200, 128 heads, lists of 2,048, 64 requests, 138 us (bf16 rows, that are only copied, 108; whole pages by TMA 94).
 * Lost, us: half of V widened by both blocks 165 to 170; given by stores of threads 158 to 170; codes copied to where their numbers will
 * lie and widened there 184; and while both widened, loads before the fence 191 instead of 174, eight rows side by side in a warp instead
 * of four lanes to a row 174 instead of 165; two warpgroups that gather, with 40 registers a thread, 189; codes asked for as registers
 * become free 191; a block for all columns of 64 heads, of two that share widened rows, 134 (one request 34 for 23: half as many pieces).
 * Of fp8 with one scale a layer, 143: fences by who multiplies 146, with that and codes of a row's other half in the place of those that
 * were put 159, without conversion (wrong results) 126. Integer arithmetic for scales that are powers of two 6 to 10 less.
 * Two pairs in a cluster, of 64 heads each, which widen half of a block's rows each and give them to each other: a cluster takes 117 us
 * for two requests, but the H200 held only 30 of them, so that some have three of 64 (one request 21 for 23); what a block gives, 64 KiB
 * a step, takes 4,050 cycles of its 6,200. A row looked up by one lane each, as copies do: 1 % slower, prompts 2 %.
 * Read next: attn/pair/scores.cuh, attn/pair/outputs.cuh. */
#ifndef VERBATIM_PAIR_GATHER_CUH
#define VERBATIM_PAIR_GATHER_CUH
#include "attn/kv_codes.cuh"
#include "attn/pair/rows.cuh"

#define ROPE_AT (SPEC_KV_LORA_RANK + (SPEC_KV_FORMAT == KV_FP8_DS_MLA ? SPEC_KV_LORA_RANK / SCALE_COLUMNS * 4u : 0u)) /* byte of a row */
#define SCALES (SPEC_KV_FORMAT == KV_FP8_DS_MLA ? 2u : 1u) /* of half of V */
static_assert(SPEC_KV_FORMAT != KV_FP8_DS_MLA || SPEC_KV_LORA_RANK == 512, "two boxes a scale, and 16-byte pieces");

/* Of each of its rows' boxes a thread has a quarter: 16 codes, which make two pieces of 16 bytes side by side. */
NUM u32 gather_part() { return gather_lane() % 4u; }
NUM u32 gather_at() {
  u32 at = gather_row(0) * 128u + (2u * gather_part() ^ gather_row(0) % 8u) * 16u;
  ptx_forget(at);
  return at;
}
NUM u32 piece_at(u32 at, u32 h, u32 i) { return (at ^ i * 16u) + h * 1024u; } /* at: as gather_at gives it */

/* What a thread holds of a block until its boxes are free: codes of half of V, and its rows' scales, of 128 columns each or one. */
typedef struct gather_codes {
  uint4 v[HALF][2];
  f32 scale[2][SCALES];
} gather_codes;

/* Of row h. */
NUM void take_row(const mla_attn_args &a, u32 row, u32 half, u32 h, gather_codes &c) {
  const u8 *from = row_at(a, row);
  const uint4 *codes = (const uint4 *)(from + half * HALF * 64u + gather_part() * 16u);
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
    const float2 both = *(const float2 *)scales;
    c.scale[h][0] = both.x;
    c.scale[h][SCALES - 1u] = both.y;
  } else if (is) {
    c.scale[h][0] = scales[0];
  }
}

NUM void take_codes(const mla_attn_args &a, const u32 (&row)[LOOKED], u32 half, gather_codes &c) {
  take_row(a, row[0], half, 0, c);
  take_row(a, row[1], half, 1, c);
}

/* 16 codes as bf16 numbers to their two places. */
NUM void put_codes(const place &p, u32 at, u32 h, const uint4 &codes, f32 scale) {
  *(uint4 *)(p.shared + piece_at(at, h, 0)) = kv_codes_widen(make_uint2(codes.x, codes.y), scale);
  *(uint4 *)(p.shared + piece_at(at, h, 1)) = kv_codes_widen(make_uint2(codes.z, codes.w), scale);
}

/* The warp's share of so many boxes is there. */
NUM void give_boxes(const place &p, u32 come, u32 count) {
  ptx_fence_async();
  __syncwarp();
  if (gather_lane() == 0)
    for (u32 i = 0; i < count; i++) ptx_barrier_arrive(barrier_at(p, come + i));
}

/* The columns behind V where they are bf16 numbers: four lanes copy 64 bytes of a row together. */
NUM void copy_rope(const mla_attn_args &a, const place &p, const u32 (&row)[LOOKED], u32 box_at, u32 come) {
  const u32 odd = gather_row(0) % 2u, count = SPEC_ROPE_DIM / 8u;
  u32 at = gather_row(0) * 128u + (gather_part() ^ gather_row(0) % 8u) * 16u;
  ptx_forget(at);
  at += p.base + box_at;
#pragma unroll
  for (u32 h = 0; h < LOOKED; h++) {
    const bool is = row[h] != NO_ROW;
    const u8 *start = row_at(a, is ? row[h] : 0u) + ROPE_AT + gather_part() * 16u;
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
      const u32 j = i ^ odd; /* or neighbours would meet in a bank */
      if (4u * j < count) ptx_copy16((at ^ j * 64u) + h * 1024u, start + 64u * j, is ? 16u : 0u);
    }
  }
  ptx_barrier_arrive_copies(barrier_at(p, come));
}

/* Half of V of a block, two boxes at a time as they are free, of which `frees` barriers tell. */
NUM void put_half(const place &p, u32 box_at, u32 come, u32 free, u32 frees, u32 phase, const gather_codes &c) {
  const u32 at = box_at + gather_at();
#pragma unroll
  for (u32 i = 0; i < HALF; i++) {
    if (i * frees % HALF == 0) wait_free(p, free + i * frees / HALF, phase);
#pragma unroll
    for (u32 h = 0; h < 2; h++) put_codes(p, at + i * BOX_BYTES, h, c.v[i][h], c.scale[h][i / 2u % SCALES]);
    if (i % 2u == 1u) give_boxes(p, come + i - 1u, 2u);
  }
}

/* Of the warp's 16, as lanes 0 to 15 tell scores of them. */
NUM u32 row_of_lane(const u32 (&row)[LOOKED]) {
  const u32 from = gather_lane() % 8u * 4u, second = __shfl_sync(WARP_ALL, row[1], (int)from);
  const u32 first = __shfl_sync(WARP_ALL, row[0], (int)from);
  return gather_lane() >= 8u ? second : first;
}

/* Block number k of those that are weighed here: what is also multiplied here, */
NUM void put_both(const place &p, const gather_step &s, const gather_codes &c, u32 k) {
  const u32 set = k % 2u, free = BOTH_FREE + set * 2u;
  if (SPEC_LISTS) {
    wait_free(p, free, k / 2u);
    give_live(p, set, row_of_lane(s.row));
  }
  put_half(p, AT_BOTH + set * HALF * BOX_BYTES, BOTH_COME + set * HALF, free, 2u, k / 2u, c);
}

/* and what only S needs here, when the other block has its share of what was there. */
NUM void put_others(const mla_attn_args &a, const place &p, const gather_step &s, const gather_codes &c, u32 k) {
  const u32 last = OTHERS_COME + HALF, box_at = AT_OTHERS + HALF * BOX_BYTES; /* of the columns behind V */
  wait_free(p, VALUES_GIVEN, k);
  put_half(p, AT_OTHERS, OTHERS_COME, OTHERS_FREE, HALF, k, c);
  wait_free(p, OTHERS_FREE + HALF, k);
  if (ROPE_COPIED) copy_rope(a, p, s.row, box_at, last);
#pragma unroll
  for (u32 h = 0; h < 2 && !ROPE_COPIED; h++) {
    const u32 row = s.row[h];
    const bool is = row != NO_ROW && gather_part() * 16u < SPEC_ROPE_DIM;
    uint4 codes = make_uint4(0, 0, 0, 0);
    if (is) codes = *(const uint4 *)(row_at(a, row) + ROPE_AT + gather_part() * 16u);
    put_codes(p, box_at + gather_at(), h, codes, c.scale[h][0]);
  }
  if (!ROPE_COPIED) give_boxes(p, last, 1u);
}

/* Half of V that the other block multiplies goes from the boxes here to its boxes; one warp. */
NUM void give_values(const place &p, u32 k) {
  const u32 there = ptx_peer(p.base, p.rank ^ 1u);
  if (ptx_elect())
    for (u32 i = 0; i < HALF; i++) {
      wait_for(p, OTHERS_COME + i, k); /* all warps have put theirs */
      if (i % WIDTH_BOXES == 0) wait_free(p, VALUES_FREE + i / WIDTH_BOXES, k);
      ptx_copy_peer(there + AT_VALUES + i * BOX_BYTES, p.base + AT_OTHERS + i * BOX_BYTES, BOX_BYTES,
                    there + AT_BARRIERS + (VALUES_COME + i) * 8u);
    }
  __syncwarp();
}

/* One warpgroup. */
NUM void gather(const mla_attn_args &a, const tensor_maps &maps, const place &p) {
  gather_front f = {0, 0, 0, 0, 0, NO_ROW, 0, 0};
  gather_step now = next_step(a, p, f), next = now;
  u32 page[LOOKED], k = 0, queries = 0;
  find_pages(a, f, now, page);
  find_rows(now, page);
  gather_codes c;
  take_codes(a, now.row, p.rank, c);
  while (!(now.kind & GATHER_END)) {
    next = next_step(a, p, f);
    const bool own = now.kind & GATHER_OWN;
    if (own) put_both(p, now, c, k);
    find_pages(a, f, next, page);
    take_codes(a, now.row, p.rank ^ 1u, c);
    if (now.kind & GATHER_FIRST) bring_queries(maps, p, now.kind >> GATHER_QUERY, queries++);
    if (own) put_others(a, p, now, c, k);
    find_rows(next, page);
    take_codes(a, next.row, p.rank, c);
    if (own && gather_thread() < 32u) give_values(p, k);
    k += own;
    now = next;
  }
}

#endif
