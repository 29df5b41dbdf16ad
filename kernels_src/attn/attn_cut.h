/* attn_cut.h - how a step's attention is cut into pieces, for as many workers as the GPU has multiprocessors.
 *
 * A tile's context is one piece, or pieces of the same number of chunks: a divisor of a group or a multiple of it, the same for all tiles
 * of a step. `attn_cut` takes the number that costs least by the plan's estimates. No choice made here can change a bit of the
 * attention's result; it is written down because both machines leave the same partial results. NUMERICS.md, `attn_cut`.
 * A cut tile leaves units: of pieces of whole groups, the fold of all groups of the first piece, then each other group; of shorter ones, of
 * every group the fold of its first piece, then its other chunks one by one. Shared by the host (C11) and the kernels. Read next:
 * attn_cut.cu, engine/cpu/attn_cut.c. */
#ifndef VERBATIM_ATTN_CUT_H
#define VERBATIM_ATTN_CUT_H
#include "num.h"

#define ATTN_CUTS 32u         /* choices */
#define ATTN_CUT_TILES 512u   /* with more tiles than this none is cut */
#define ATTN_WHOLE 0x40000000u
#define ATTN_EARLY 1u         /* most blocks of a piece that may be asked for early */

/* x / d and x % d. What divides is mostly a power of two, and pricing divides dozens of times before the step's attention may begin. */
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
  u32 passes; /* how often its KV rows are read in turn */
} attn_extent;

/* Rows (token, head) that a pass takes at once. */
NUM u32 attn_pass_rows(u32 heads) { return heads <= 8 ? 8 : heads <= 16 ? 16 : heads <= 32 ? 32 : 64; }
NUM u32 attn_pass_tokens(u32 heads) { return heads > 32 ? 64 : attn_pass_rows(heads) / heads; }

/* Dynamic shared memory of a block of the form for so many rows: all there is, but beside up to 16 there is room for one of mla_fold. */
#define ATTN_SHARED_BYTES(rows) ((rows) < 32u ? 224256u : 232448u)

/* Threads of attn/turn/form.cuh: two warpgroups multiply, one copies bf16 rows, or two widen codes. */
#define ATTN_TURN_THREADS(kv_format) ((kv_format) ? 512u : 384u)

/* KV rows of other formats than bf16, or that lists name, are gathered. */
NUM u32 attn_is_gathered(const mla_attn_args *a) { return a->kv_format != KV_BF16 || a->list_max > 0; }

/* Rows of the form that takes it, of which 64 are for pairs of blocks, and what a block keeps in `scratch`: two states of a pass. */
NUM u32 attn_form_rows(const mla_attn_args *a) {
  return (a->slots_max > 0 || attn_is_gathered(a)) && a->heads <= 32 ? attn_pass_rows(a->heads) : 64;
}
NUM u32 attn_scratch_floats(u32 rows, u32 kv_lora_rank) { return rows == 64 ? 32 * kv_lora_rank : 2 * rows * (kv_lora_rank + 128); }

/* Lists of many heads that are one chunk each, and so are never cut: attn/turn/form.cuh takes them. */
NUM u32 attn_takes_turns(const mla_attn_args *a) {
  return a->list_max > 0 && a->list_max <= a->chunk_tokens && a->heads > 64 && a->kv_lora_rank == 512 && a->rope_dim == 64;
}

/* Of these, lists of up to 2,048 places, and steps of few tokens, may be spread over 8, 16 or 32 blocks each: attn/spread/form.cuh. Such a
 * group of blocks keeps of every 64 places the scores' maxima and the weights of 128 heads in `scratch`, and meets at two of its words of
 * `meetings`, each in a line of its own. */
#define ATTN_SPREAD_PLACES 2048u
#define ATTN_SPREAD_MOST 32u
#define ATTN_SPREAD_BLOCKS 128u /* of a grid at most: they must all run at once, and an H200 has 132 multiprocessors */
#define ATTN_MEETINGS (ATTN_SPREAD_BLOCKS / 8u * 2u * 32u)
NUM u32 attn_may_spread(const mla_attn_args *a) { return attn_takes_turns(a) && a->list_max <= ATTN_SPREAD_PLACES; }
NUM u32 attn_spread_floats(const mla_attn_args *a) { return (a->list_max + PAGE_TOKENS - 1) / PAGE_TOKENS * (128 + 64 * 64); }

/* What a block has in `scratch`, whatever form it runs. */
NUM u32 attn_block_floats(const mla_attn_args *a) {
  const u32 folds = attn_scratch_floats(attn_form_rows(a), a->kv_lora_rank), spread = attn_may_spread(a) ? attn_spread_floats(a) / 8 : 0;
  return folds < spread ? spread : folds;
}

/* The last place of a tile's context: its last token's position, or where lists say which tokens are seen, of their most. */
NUM u32 attn_last_place(attn_tile tile, u32 list_max) {
  const u32 last = tile.position + tile.count - 1;
  return list_max > 0 && last >= list_max ? list_max - 1 : last;
}

NUM attn_extent attn_extent_of(const attn_cut_args *a, attn_tile tile) {
  const u32 last = attn_last_place(tile, a->list_max), tokens = attn_pass_tokens(a->heads);
  const attn_extent e = {last / a->chunk_tokens + 1, last / PAGE_TOKENS + 1, tile.count, (tile.count + tokens - 1) / tokens};
  return e;
}

/* A tile that is not cut, where there is no list. */
NUM attn_piece attn_whole(attn_tile tile, u32 list_max) {
  const attn_piece piece = {tile, 0, attn_last_place(tile, list_max) / PAGE_TOKENS + 1, ATTN_WHOLE, 0};
  return piece;
}

/* Chunks of a piece by choice number, of four to a doubling those that there may be; 0: there is none of this number. Ascending. */
NUM u32 attn_cut_piece(u32 choice, u32 group_chunks) {
  const u32 piece = choice < 3 ? choice + 1 : (4 + (choice + 1) % 4) << ((choice + 1) / 4 - 1);
  if (choice == ATTN_CUTS - 1) return ATTN_WHOLE;
  return (piece < group_chunks ? attn_mod(group_chunks, piece) : attn_mod(piece, group_chunks)) == 0 ? piece : 0;
}

/* Chunks of a group's first unit, and units of a group. */
NUM u32 attn_prefix(u32 piece, u32 group_chunks) { return piece < group_chunks ? piece : group_chunks; }
NUM u32 attn_group_units(u32 piece, u32 group_chunks) { return 1 + group_chunks - attn_prefix(piece, group_chunks); }

/* The tile's unit that this chunk belongs to. */
NUM u32 attn_unit_at(u32 chunk, u32 piece, u32 group_chunks) {
  const u32 group = attn_div(chunk, group_chunks), in_group = attn_mod(chunk, group_chunks);
  if (piece >= group_chunks) return chunk < piece ? 0 : 1 + group - attn_div(piece, group_chunks);
  return group * attn_group_units(piece, group_chunks) + (in_group < piece ? 0 : 1 + in_group - piece);
}

/* Units of a tile of so many chunks; 0: it is not cut. */
NUM u32 attn_cut_units(u32 chunks, u32 piece, u32 group_chunks) {
  return chunks <= piece ? 0 : 1 + attn_unit_at(chunks - 1, piece, group_chunks);
}

/* Whether the chunk of a group starts a unit, where the first one has so many chunks. */
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

/* Nanoseconds, by the plan's estimates: all blocks through the memory, what the busiest worker has beyond the mean and from piece to piece,
 * the partial results written and read, the fold. Pieces are dealt longest first, forwards and backwards by turns: of so many shorter ones,
 * taken to grow evenly, that some workers come to a second one, who has the longest of these has it beside the shortest first one. */
NUM u64 attn_cut_cost(const attn_cut_args *a, attn_sum sum, u32 piece) {
  const u32 groups = (a->heads + 63) / 64, workers = a->workers, full = sum.full * groups, rests = sum.rests * groups;
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
