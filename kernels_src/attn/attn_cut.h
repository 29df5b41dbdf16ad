/* attn_cut.h - how a step's attention is split into pieces, for as many workers as the GPU has multiprocessors. NUMERICS.md, `attn_cut`.
 *
 * A tile's context is one piece, or pieces of the same number of chunks: a divisor or a multiple of a group, the same for all tiles of a
 * step. `attn_cut` takes the number that costs least by the plan's estimates. No choice can change a bit of the attention's result; it
 * is specified because both backends leave the same partial results. A split tile leaves units: with pieces of whole groups, the fold of
 * all groups of the first piece, then each other group; with shorter pieces, of every group the fold of its first piece, then its other
 * chunks one by one. Shared by the host (C11) and the kernels. Read next: attn_cut.cu, engine/cpu/attn_cut.c. */
#ifndef VERBATIM_ATTN_CUT_H
#define VERBATIM_ATTN_CUT_H
#include "num.h"

#define ATTN_CUTS 32u         /* choices */
#define ATTN_CUT_TILES 512u   /* with more tiles than this none is split */
#define ATTN_WHOLE 0x40000000u
#define ATTN_EARLY 1u         /* most blocks of a piece that are loaded before the wait for the previous kernel */

/* x / d and x % d. Divisors are mostly powers of two, and pricing divides dozens of times before the step's attention may begin. */
#ifdef __CUDACC_RTC__
NUM u32 attn_ones(u32 x) { return (u32)__popc(x); }
#else
NUM u32 attn_ones(u32 x) { return (u32)__builtin_popcount(x); }
#endif
NUM u32 attn_div(u32 x, u32 d) { return d & (d - 1) ? x / d : x >> attn_ones(d - 1); }
NUM u32 attn_mod(u32 x, u32 d) { return d & (d - 1) ? x % d : x & (d - 1); }

/* Sums over a step's tiles for one choice. */
typedef struct attn_sum {
  u32 blocks;              /* of 64 tokens                            */
  u32 full, rests;         /* pieces of full length, shorter ones     */
  u32 rest_blocks;         /* of the shorter ones, and of the longest */
  u32 rest_largest;
  u32 slots;               /* partial results of one token            */
} attn_sum;

typedef struct attn_extent { /* of a tile */
  u32 chunks, blocks, count;
  u32 passes; /* how often its KV rows are read */
} attn_extent;

/* (token, head) rows of a pass. */
NUM u32 attn_pass_rows(u32 heads) { return heads <= 8 ? 8 : heads <= 16 ? 16 : heads <= 32 ? 32 : 64; }
NUM u32 attn_pass_tokens(u32 heads) { return heads > 32 ? 64 : attn_pass_rows(heads) / heads; }

/* Dynamic shared memory of a CTA of the form for this many rows: all of it, but up to 16 rows leave room for a CTA of mla_fold. */
#define ATTN_SHARED_BYTES(rows) ((rows) < 32u ? 224256u : 232448u)

/* Threads of attn/pingpong/form.cuh: two math warpgroups, one that copies bf16 rows, or two that dequantize codes. */
#define ATTN_TURN_THREADS(kv_format) ((kv_format) ? 512u : 384u)

/* KV rows of other formats than bf16, or named by lists, are gathered by warps. */
NUM u32 attn_is_gathered(const mla_attn_args *a) { return a->kv_format != KV_BF16 || a->list_max > 0; }

/* Rows of the form that runs it, 64 of which are for 2-CTA clusters; and what a CTA has in `scratch`: two states of a pass. */
NUM u32 attn_form_rows(const mla_attn_args *a) {
  return (a->slots_max > 0 || attn_is_gathered(a)) && a->heads <= 32 ? attn_pass_rows(a->heads) : 64;
}
NUM u32 attn_scratch_floats(u32 rows, u32 kv_lora_rank) { return rows == 64 ? 32 * kv_lora_rank : 2 * rows * (kv_lora_rank + 128); }

/* Lists that are one chunk each, and so never split, over rows of 512 + 64 columns. With more than 64 heads attn/pingpong/form.cuh runs
 * them. */
NUM u32 attn_is_one_chunk(const mla_attn_args *a) {
  return a->list_max > 0 && a->list_max <= a->chunk_tokens && a->kv_lora_rank == 512 && a->rope_dim == 64;
}
NUM u32 attn_takes_turns(const mla_attn_args *a) { return attn_is_one_chunk(a) && a->heads > 64; }

/* If such lists have up to 2,048 entries, there are more than 32 heads and the step has few tokens, each token may be split over 8, 16 or
 * 32 CTAs: attn/split/form.cuh. Its CTAs keep the row maxima and probabilities of 128 heads per 64 entries in `scratch`, and meet at two of
 * its words of `meetings`, each in a cache line of its own. */
#define ATTN_SPREAD_PLACES 2048u
#define ATTN_SPREAD_MOST 32u
#define ATTN_SPREAD_BLOCKS 128u /* of a grid at most: all must run at once, and an H200 has 132 multiprocessors */
#define ATTN_MEETINGS (ATTN_SPREAD_BLOCKS / 8u * 2u * 32u)
NUM u32 attn_may_spread(const mla_attn_args *a) { return attn_is_one_chunk(a) && a->list_max <= ATTN_SPREAD_PLACES && a->heads > 32; }
NUM u32 attn_spread_floats(const mla_attn_args *a) { return (a->list_max + PAGE_TOKENS - 1) / PAGE_TOKENS * (128 + 64 * 64); }

/* Few heads, rows that TMA loads, chunks of up to ATTN_SHARES blocks, contexts of up to ATTN_SHARED_CHUNKS chunks: in steps of one token a
 * cluster of ATTN_SHARES CTAs shares a chunk, attn/decode/shared_chunk.cuh. For more chunks the clusters would not all run at once: with
 * 32, at 8,192 tokens, a step of DeepSeek-V2-Lite takes 2,133 us, without clusters 2,007. */
#define ATTN_SHARES 4u
#define ATTN_SHARED_CHUNKS 16u
NUM u32 attn_shares_chunks(const mla_attn_args *a) {
  const u32 chunks = (a->block_table_stride * PAGE_TOKENS + a->chunk_tokens - 1) / a->chunk_tokens;
  const u32 is_short = a->chunk_tokens <= ATTN_SHARES * PAGE_TOKENS && chunks <= ATTN_SHARED_CHUNKS;
  return a->slots_max > 0 && !attn_is_gathered(a) && a->heads <= 32 && is_short;
}

/* What a CTA has in `scratch`, whatever form it runs. */
NUM u32 attn_block_floats(const mla_attn_args *a) {
  const u32 folds = attn_scratch_floats(attn_form_rows(a), a->kv_lora_rank), spread = attn_may_spread(a) ? attn_spread_floats(a) / 8 : 0;
  return folds < spread ? spread : folds;
}

/* The last entry of a tile's context: its last token's position or, with lists, no more than their length. */
NUM u32 attn_last_place(attn_tile tile, u32 list_max) {
  const u32 last = tile.position + tile.count - 1;
  return list_max > 0 && last >= list_max ? list_max - 1 : last;
}

/* Grouped-query attention: rows of a pass, (token, head) pairs of the heads that share a KV head, in token-major order; of all rows of a
 * tile, which are at most two passes; and what a CTA has in `scratch`: the running result of a tile. */
#define ATTN_GROUPED_ROWS 64u
#define ATTN_GROUPED_TILE_ROWS (2u * ATTN_GROUPED_ROWS)
NUM u32 attn_grouped_passes(u32 group, u32 tokens) { return (group * tokens + ATTN_GROUPED_ROWS - 1) / ATTN_GROUPED_ROWS; }
NUM u32 attn_grouped_floats(u32 v_dim) { return ATTN_GROUPED_TILE_ROWS * (v_dim + 2); }

/* Dynamic shared memory of attn_fold: for each warp three stages of 32 units, 32 columns and (m, l). */
#define ATTN_FOLD_BYTES(threads) ((threads) / 32u * (3u * 32u * (32u + 2u) * 4u))

NUM attn_extent attn_extent_of(const attn_cut_args *a, attn_tile tile) {
  const u32 last = attn_last_place(tile, a->list_max), tokens = attn_pass_tokens(a->heads);
  const u32 passes = a->kv_heads ? attn_grouped_passes(a->heads / a->kv_heads, tile.count) : (tile.count + tokens - 1) / tokens;
  const attn_extent e = {last / a->chunk_tokens + 1, last / PAGE_TOKENS + 1, tile.count, passes};
  return e;
}

/* A tile that is not split, if there is no list of pieces. */
NUM attn_piece attn_whole(attn_tile tile, u32 list_max) {
  const attn_piece piece = {tile, 0, attn_last_place(tile, list_max) / PAGE_TOKENS + 1, ATTN_WHOLE, 0};
  return piece;
}

/* Chunks of a piece by choice number, four per power of two; 0: no such choice. Ascending. */
NUM u32 attn_cut_piece(u32 choice, u32 group_chunks) {
  const u32 piece = choice < 3 ? choice + 1 : (4 + (choice + 1) % 4) << ((choice + 1) / 4 - 1);
  if (choice == ATTN_CUTS - 1) return ATTN_WHOLE;
  return (piece < group_chunks ? attn_mod(group_chunks, piece) : attn_mod(piece, group_chunks)) == 0 ? piece : 0;
}

/* Chunks of a group's first unit, and units of a group. */
NUM u32 attn_prefix(u32 piece, u32 group_chunks) { return piece < group_chunks ? piece : group_chunks; }
NUM u32 attn_group_units(u32 piece, u32 group_chunks) { return 1 + group_chunks - attn_prefix(piece, group_chunks); }

/* The tile's unit to which a chunk belongs. */
NUM u32 attn_unit_at(u32 chunk, u32 piece, u32 group_chunks) {
  const u32 group = attn_div(chunk, group_chunks), in_group = attn_mod(chunk, group_chunks);
  if (piece >= group_chunks) return chunk < piece ? 0 : 1 + group - attn_div(piece, group_chunks);
  return group * attn_group_units(piece, group_chunks) + (in_group < piece ? 0 : 1 + in_group - piece);
}

/* Units of a tile with this many chunks; 0: it is not split. */
NUM u32 attn_cut_units(u32 chunks, u32 piece, u32 group_chunks) {
  return chunks <= piece ? 0 : 1 + attn_unit_at(chunks - 1, piece, group_chunks);
}

/* Whether this chunk of a group starts a unit; prefix: chunks of the group's first unit. */
NUM u32 attn_unit_starts(u32 in_group, u32 prefix) { return in_group == 0 || in_group >= prefix; }

NUM void attn_sum_add(attn_sum *sum, const attn_cut_args *a, attn_extent e, u32 piece) {
  const u32 full = attn_div(e.chunks, piece), rest = e.blocks * e.passes - full * e.passes * piece * (a->chunk_tokens / PAGE_TOKENS);
  const u32 has_rest = attn_mod(e.chunks, piece) > 0;
  sum->blocks += e.blocks * e.passes;
  sum->full += full;
  sum->rests += has_rest;
  sum->rest_blocks += has_rest ? rest : 0;
  if (has_rest && rest > sum->rest_largest) sum->rest_largest = rest;
  sum->slots += attn_cut_units(e.chunks, piece, a->group_chunks) * e.count;
}

/* Nanoseconds by the plan's estimates: reading all blocks from memory, the change from piece to piece, the busiest worker's excess over the
 * mean, writing and reading partial results, and the fold. Pieces are dealt longest first, in alternating directions: if some workers get
 * two of the shorter ones, which are assumed to grow evenly, the one with the longest second piece has the shortest first piece. */
NUM u64 attn_cut_cost(const attn_cut_args *a, attn_sum sum, u32 piece) {
  const u32 groups = a->kv_heads ? a->kv_heads : (a->heads + 63) / 64, workers = a->workers, full = sum.full * groups;
  const u32 rests = sum.rests * groups;
  const u32 left = full % workers, free = workers - left, length = left ? piece * (a->chunk_tokens / PAGE_TOKENS) : 0;
  const u32 blocks = sum.blocks * groups, even = (left * length + sum.rest_blocks * groups + workers - 1) / workers;
  u32 most = left ? length : sum.rest_largest;
  if (rests > 2 * free) most += sum.rest_largest * (rests - 2 * free) / rests;
  if (most < even) most = even;
  if (full >= workers) most += full / workers * (piece * (a->chunk_tokens / PAGE_TOKENS));
  const u64 own = (u64)most * a->block_ns, mean = (u64)(blocks / workers) * a->block_ns + blocks % workers * a->block_ns / workers;
  const u64 stream = (u64)blocks * a->stream_ns + (u64)((full + rests - 1) / workers) * a->piece_ns;
  if (piece == 0 || sum.slots > a->slots_max) return ~(u64)0;
  return stream + (own > mean ? own - mean : 0) + (u64)sum.slots * a->slot_ns + (sum.slots ? a->split_ns : 0);
}

#endif
