/* attn_cut.c - the CPU reference of attn_cut: estimates the cost of every split in attn_cut.h and lists the pieces of the cheapest one.
 * NUMERICS.md "attn_cut". Read next: mla_attn.c, mla_fold.c. */
#include "kernels_src/attn/attn_cut.h"
#include "cpu/cpu.h"

static u32 choose_piece(const attn_cut_args *a) {
  u32 best = ATTN_WHOLE;
  u64 least = UINT64_MAX;
  for (u32 choice = 0; choice < ATTN_CUTS && a->step->tile_count <= ATTN_CUT_TILES; choice++) {
    u32 piece = attn_cut_piece(choice, a->group_chunks);
    attn_sum sum = {0};
    for (u32 i = 0; i < a->step->tile_count && piece; i++) attn_sum_add(&sum, a, attn_extent_of(a, a->tiles[i]), piece);
    u64 cost = attn_cut_cost(a, sum, piece);
    if (cost > least) continue;
    least = cost;
    best = piece;
  }
  return best;
}

/* Whether one of the step's tiles completes the page: a prompt's page, which other sequences may share. */
static bool is_written(const attn_cut_args *a, u32 page) {
  for (u32 i = 0; i < a->step->tile_count; i++) {
    const attn_tile *t = &a->tiles[i];
    u32 own = t->position / PAGE_TOKENS;
    if (own != (t->position + t->count) / PAGE_TOKENS && a->block_table[(u64)t->seq * a->block_table_stride + own] == page) return true;
  }
  return false;
}

static u32 early_blocks(const attn_cut_args *a, const attn_piece *p) {
  const bool has_early = !a->list_max && !a->all_late; /* top-k lists always belong to this step */
  u32 early = 0, end = has_early ? min_u32(p->end_block, p->tile.position / PAGE_TOKENS) : 0;
  const u32 *pages = a->block_table + (u64)p->tile.seq * a->block_table_stride;
  while (early < ATTN_EARLY && p->first_block + early < end && !is_written(a, pages[p->first_block + early])) early++;
  return early;
}

/* Adds the piece that starts at `chunk` of a tile; `slot` is that of its first unit. Returns the chunk after the piece. */
static u32 add_piece(const attn_cut_args *a, const attn_tile *tile, u32 chunk, u32 slot) {
  attn_extent e = attn_extent_of(a, *tile);
  u32 blocks = a->chunk_tokens / PAGE_TOKENS, end = min_u32(e.chunks - chunk, a->counts->piece_chunks) + chunk;
  attn_piece *p = &a->pieces[a->counts->pieces++];
  *p = (attn_piece){*tile, chunk * blocks, min_u32(e.blocks, end * blocks), slot, 0};
  p->early = early_blocks(a, p);
  return end;
}

/* Blocks in the tile's one short piece; 0: all its pieces have the full length. */
static u32 rest_of(const attn_cut_args *a, const attn_tile *tile) {
  attn_sum sum = {0};
  attn_sum_add(&sum, a, attn_extent_of(a, *tile), a->counts->piece_chunks);
  return sum.rest_largest;
}

/* The tile whose short piece follows that of `last` in descending length; tile_count: none is left. */
static u32 next_rest(const attn_cut_args *a, u32 last) {
  u32 tiles = a->step->tile_count, limit = last < tiles ? rest_of(a, &a->tiles[last]) : UINT32_MAX, best = tiles, most = 0;
  for (u32 i = 0; i < tiles; i++) {
    u32 rest = rest_of(a, &a->tiles[i]);
    if (rest > limit || (rest == limit && i <= last) || rest <= most) continue;
    most = rest;
    best = i;
  }
  return best;
}

static void list_pieces(const attn_cut_args *a, const u32 *slot) {
  u32 tiles = a->step->tile_count, piece = a->counts->piece_chunks;
  for (u32 i = 0; i < tiles; i++)
    for (u32 chunk = 0, chunks = attn_extent_of(a, a->tiles[i]).chunks; chunks - chunk >= piece;)
      chunk = add_piece(a, &a->tiles[i], chunk, slot[i]);
  for (u32 i = next_rest(a, tiles); i < tiles; i = next_rest(a, i))
    add_piece(a, &a->tiles[i], attn_extent_of(a, a->tiles[i]).chunks / piece * piece, slot[i]);
}

void cpu_attn_cut(const attn_cut_args *a, cpu_pool *pool) {
  u32 slot[ATTN_CUT_TILES], used = 0;
  (void)pool;
  ASSERT(a->group_chunks > 0 && a->workers > 0 && a->chunk_tokens % PAGE_TOKENS == 0 && a->chunk_tokens > 0);
  *a->counts = (attn_counts){.piece_chunks = choose_piece(a)};
  if (a->step->tile_count > ATTN_CUT_TILES) {
    for (u32 i = 0; i < a->step->tile_count; i++) a->pieces[a->counts->pieces++] = attn_whole(a->tiles[i], a->list_max);
    return;
  }
  for (u32 i = 0; i < a->step->tile_count; i++) {
    const attn_tile *tile = &a->tiles[i];
    u32 units = attn_cut_units(attn_extent_of(a, *tile).chunks, a->counts->piece_chunks, a->group_chunks);
    slot[i] = units ? used : ATTN_WHOLE;
    for (u32 t = 0; t < tile->count && units; t++)
      a->parts[a->counts->parts++] = (attn_part){tile->row + t, used + t, tile->count, units};
    a->counts->units_most = max_u32(a->counts->units_most, units);
    used += units * tile->count;
  }
  list_pieces(a, slot);
}
