/* attn/pieces.cuh - which pieces of attn_cut's list a block of mla_attn takes, or where there is no list which tiles.
 *
 * A piece is listed once and taken as often as there are groups of 64 heads. Blocks take numbers forwards and backwards by turns, so that
 * whoever has the longest of one round has the shortest of the next. Any number of blocks will do. Read next: mla_attn.cu. */
#ifndef VERBATIM_ATTN_PIECES_CUH
#define VERBATIM_ATTN_PIECES_CUH
#include "attn/attn_cut.h"
#include "ptx/ptx.cuh"

/* Rows of other formats than bf16, or that lists name, are gathered by warps: attn/decode/gather.cuh, attn/pair/gather.cuh. */
#ifndef SPEC_KV_FORMAT
#define SPEC_KV_FORMAT 0u
#endif
#ifndef SPEC_LISTS
#define SPEC_LISTS 0u
#endif
#define GATHERED (SPEC_LISTS || SPEC_KV_FORMAT)
#define CODES (SPEC_KV_FORMAT != KV_BF16) /* become bf16 numbers on their way; else rows go to their boxes as they are */

/* What a block works on at a time: a piece, and of the heads a group of at most 64. */
typedef struct attn_work {
  attn_piece piece;
  u32 head, heads;
} attn_work;

NUM u32 work_count(const mla_attn_args &a) { return (a.pieces ? a.counts->pieces : a.step->tile_count) * ((a.heads + 63u) / 64u); }

/* Where none is cut the last tiles come first: they are the longest. */
NUM attn_work work_of(const mla_attn_args &a, u32 number) {
  const u32 groups = (a.heads + 63u) / 64u, nth = number / groups, head = number % groups * 64u;
  const attn_piece piece = a.pieces ? a.pieces[nth] : attn_whole(a.tiles[a.step->tile_count - 1u - nth], a.list_max);
  return {piece, head, a.heads - head < 64u ? a.heads - head : 64u};
}

/* The number of a round: of `workers` this one's, numbers beyond the count are nobody's. */
NUM u32 work_nth(u32 round, u32 worker, u32 workers) { return round * workers + (round % 2u ? workers - 1u - worker : worker); }

#endif
