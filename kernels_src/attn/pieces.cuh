/* attn/pieces.cuh - the work items of a CTA of mla_attn: pieces of attn_cut's list or, without a list, whole tiles.
 *
 * A piece is listed once and taken once per group of 64 heads. Workers take numbers forwards and backwards in alternate rounds, so that
 * the one with the longest piece of a round has the shortest of the next. Any number of workers will do. Read next: mla_attn.cu. */
#ifndef VERBATIM_ATTN_PIECES_CUH
#define VERBATIM_ATTN_PIECES_CUH
#include "attn/attn_cut.h"
#include "ptx/ptx.cuh"

/* Rows of other formats than bf16, or named by lists, are gathered by warps, not loaded by TMA: attn/decode/load_rows.cuh,
 * attn/cluster/load_rows.cuh. */
#ifndef SPEC_KV_FORMAT
#define SPEC_KV_FORMAT 0u
#endif
#ifndef SPEC_LISTS
#define SPEC_LISTS 0u
#endif
#define GATHERED (SPEC_LISTS || SPEC_KV_FORMAT)
#define CODES (SPEC_KV_FORMAT != KV_BF16) /* dequantized to bf16 on the way; else rows are copied as they are */

/* A work item: a piece, and a group of at most 64 heads. */
typedef struct attn_work {
  attn_piece piece;
  u32 head, heads;
} attn_work;

NUM u32 work_count(const mla_attn_args &a) { return (a.pieces ? a.counts->pieces : a.step->tile_count) * ((a.heads + 63u) / 64u); }

/* Whole tiles in reverse order: the last ones are the longest. */
NUM attn_work work_of(const mla_attn_args &a, u32 number) {
  const u32 groups = (a.heads + 63u) / 64u, nth = number / groups, head = number % groups * 64u;
  const attn_piece piece = a.pieces ? a.pieces[nth] : attn_whole(a.tiles[a.step->tile_count - 1u - nth], a.list_max);
  return {piece, head, a.heads - head < 64u ? a.heads - head : 64u};
}

/* The number that this worker takes in a round; numbers from work_count on do not exist. */
NUM u32 work_nth(u32 round, u32 worker, u32 workers) { return round * workers + (round % 2u ? workers - 1u - worker : worker); }

#endif
