/* test_attn_cut.c - attn_cut: every choice of pieces, contexts of many lengths, tiles of several tokens, shared pages, more tiles than are
 * split; the list against the text: every block of every tile once, adjacent units, the order, which rows may be read early. */
#include "attn/attn_cut.h"
#include "engine/cpu/cpu.h"
#include "kernel_test.h"
#include "tests/emulator/emulator.h"
#include <stdlib.h>

enum { STRIDE = 48, CHUNK = 128, BLOCKS = CHUNK / 64, PADDING = 3 };

/* Tiles of 1 to `count` tokens with up to `pages` pages; piece: its chunks, which the estimates make the cheapest choice. */
typedef struct cut_shape {
  u32 tiles, count, pages, group_chunks, piece, kv_heads; /* kv_heads 0: latent attention */
} cut_shape;

/* The choice of attn_cut.h, as the head of that file defines it. */
static u32 chosen_piece(const attn_cut_args *a) {
  u32 best = ATTN_WHOLE;
  u64 least = UINT64_MAX;
  for (u32 choice = 0; choice < ATTN_CUTS && a->step->tile_count <= ATTN_CUT_TILES; choice++) {
    attn_sum sum = {0};
    u32 piece = attn_cut_piece(choice, a->group_chunks);
    for (u32 i = 0; i < a->step->tile_count && piece; i++) attn_sum_add(&sum, a, attn_extent_of(a, a->tiles[i]), piece);
    if (attn_cut_cost(a, sum, piece) > least) continue;
    least = attn_cut_cost(a, sum, piece);
    best = piece;
  }
  return best;
}

/* Estimates, or a lack of space, that make the wanted piece the cheapest. */
static void steer(attn_cut_args *a, u32 piece) {
  const u32 room = a->slots_max;
  a->block_ns = 1000;
  for (a->workers = 1000; a->workers > 1; a->workers -= a->workers / 8 + 1)
    if (chosen_piece(a) == piece) return;
  for (u32 i = 0; i < 6; i++) {
    a->workers = i % 3 == 0 ? 1000 : i % 3 == 1 ? 40 : 132;
    a->split_ns = i < 3 ? 0 : 100000;
    a->piece_ns = i % 3 == 2 ? 500 : 0;
    for (a->slots_max = room; a->slots_max > 0; a->slots_max -= a->slots_max / 16 + 1)
      for (a->slot_ns = 0; a->slot_ns < 100000; a->slot_ns += a->slot_ns / 6 + 1)
        if (chosen_piece(a) == piece) return;
  }
  fail_msg("no estimate gives pieces of %u chunks", piece);
}

/* Tokens of the tiles; every fourth sequence ends with the page that the previous one completes, or has it in the middle. */
static u32 fill(cases *c, const cut_shape *s, attn_tile *tiles, u32 *table) {
  u32 row = 0;
  for (u32 i = 0; i < s->tiles; i++) {
    u32 count = 1 + cases_below(c, s->count), position = cases_below(c, s->pages * 64 - count), page = position / 64;
    if (i % 3 == 0) position = page * 64 + 63; /* completes its page */
    tiles[i] = (attn_tile){row, count, i, position};
    row += count;
    for (u32 k = 0; k < STRIDE; k++) table[i * STRIDE + k] = i * STRIDE + k;
    if (i % 4 == 3) memcpy(&table[i * STRIDE], &table[(i - 3) * STRIDE], (i % 8 == 3 ? 1 + cases_below(c, STRIDE - 1) : 2) * 4);
  }
  return row;
}

static bool is_written(const attn_cut_args *a, u32 page) {
  for (u32 i = 0; i < a->step->tile_count; i++)
    for (u32 t = 0; t < a->tiles[i].count; t++) {
      u32 position = a->tiles[i].position + t;
      if (position % 64 == 63 && a->block_table[a->tiles[i].seq * STRIDE + position / 64] == page) return true;
    }
  return false;
}

static void check_early(const attn_cut_args *a, const attn_piece *p) {
  u32 early = 0;
  for (; early < ATTN_EARLY && p->first_block + early < p->end_block; early++) {
    u32 block = p->first_block + early;
    if (block >= p->tile.position / 64 || is_written(a, a->block_table[p->tile.seq * STRIDE + block])) break;
  }
  assert_int_equal(p->early, early);
}

static u32 blocks_of(const attn_piece *p) { return p->end_block - p->first_block; }

/* Every block of the tile is in one piece, and all its pieces have one slot; returns the number of its units' slots. */
static u32 check_tile(const attn_cut_args *a, const attn_tile *tile, u32 slot, u32 *part) {
  u32 end = (tile->position + tile->count - 1) / 64 + 1, piece = a->counts->piece_chunks, covered = 0, pieces = 0;
  u32 units = attn_cut_units((end + BLOCKS - 1) / BLOCKS, piece, a->group_chunks);
  for (u32 i = 0; i < a->counts->pieces; i++) {
    const attn_piece *p = &a->pieces[i];
    if (p->tile.row != tile->row) continue;
    assert_memory_equal(&p->tile, tile, sizeof *tile);
    assert_int_equal(p->slot, units ? slot : ATTN_WHOLE);
    assert_int_equal(p->first_block, units ? p->first_block / BLOCKS / piece * piece * BLOCKS : 0); /* where a piece may start */
    assert_true(p->end_block <= end && (p->end_block == end || blocks_of(p) == piece * BLOCKS));
    covered += blocks_of(p);
    pieces++;
  }
  assert_int_equal(covered, end);
  assert_true(units ? pieces > 1 : pieces == 1);
  for (u32 t = 0; t < tile->count && units; t++) {
    const attn_part want = {tile->row + t, slot + t, tile->count, units};
    assert_memory_equal(&a->parts[(*part)++], &want, sizeof want);
  }
  return units * tile->count;
}

/* How often the rows of a tile read a piece: each token of latent attention with 16 heads; 64 (token, head) rows of a KV head. */
static u32 passes_of(const attn_cut_args *a, const attn_piece *p) {
  return a->kv_heads ? (16 / a->kv_heads * p->tile.count + 63) / 64 : p->tile.count;
}

/* Pieces of full length, of which a tile's last one may lack blocks of its last chunk; then the others, longest first. */
static void check_order(const attn_cut_args *a) {
  u32 full = 0;
  const attn_piece *p = a->pieces;
  for (; full < a->counts->pieces && (blocks_of(&p[full]) + BLOCKS - 1) / BLOCKS == a->counts->piece_chunks; full++) {}
  for (u32 i = full + 1; i < a->counts->pieces; i++)
    assert_true(blocks_of(&p[i]) * passes_of(a, &p[i]) <= blocks_of(&p[i - 1]) * passes_of(a, &p[i - 1]));
}

/* The same pieces without early blocks, by the reference and by the kernel's text. */
static void check_all_late(const attn_cut_args *args, u32 pieces, u32 parts) {
  attn_cut_args late = *args;
  const u32 grid[] = {1, 1, 1};
  cpu_pool *pool = NULL;
  const emulator_kernel *kernel = emulator_kernels ? emulator_kernels() : NULL;
  late.all_late = 1;
  late.counts = malloc(sizeof *late.counts);
  late.pieces = malloc(pieces * sizeof *late.pieces);
  late.parts = malloc(parts * sizeof *late.parts);
  assert_true(late.counts && late.pieces && late.parts && cpu_pool_open(&pool, 1) == OK);
  while (kernel && (strcmp(kernel->stem, "attn_cut") != 0 || *kernel->flaw)) kernel = kernel->next;
  for (u32 side = 0; side < (kernel ? 2 : 1); side++) {
    memset(late.pieces, 0xff, pieces * sizeof *late.pieces);
    if (side == 0) cpu_attn_cut(&late, pool);
    else assert_null(emulator_run(kernel, grid, 0, &late, NULL));
    for (u32 i = 0; i < args->counts->pieces; i++) {
      attn_piece want = args->pieces[i];
      want.early = 0;
      assert_memory_equal(&late.pieces[i], &want, sizeof want);
    }
  }
  cpu_pool_close(pool);
  free(late.counts);
  free(late.pieces);
  free(late.parts);
}

static void cut_case(kernel_test *test, const cut_shape *s) {
  cases c = {.state = s->tiles * 1000003u + s->count * 31 + s->pages + s->piece};
  u32 room = s->tiles <= ATTN_CUT_TILES ? s->tiles * s->count * STRIDE / BLOCKS : 8, slots = 0, parts = 0;
  kernel_test_start(test);
  attn_tile *tiles = kernel_test_input(test, (s->tiles + 1) * sizeof *tiles);
  u32 *table = kernel_test_input(test, s->tiles * STRIDE * 4);
  u32 tokens = fill(&c, s, tiles, table), all = tokens + room;
  attn_cut_args args = {.step = kernel_test_step(test, tokens, 0, s->tiles), .tiles = tiles, .block_table = table, .heads = 16,
                        .block_table_stride = STRIDE, .chunk_tokens = CHUNK, .group_chunks = s->group_chunks,
                        .slots_max = room, .kv_heads = s->kv_heads};
  args.counts = kernel_test_output(test, sizeof *args.counts);
  args.pieces = kernel_test_output(test, (all + PADDING) * sizeof *args.pieces);
  args.parts = kernel_test_output(test, (tokens + PADDING) * sizeof *args.parts);
  kernel_test_keep(test, args.pieces + all, PADDING * sizeof *args.pieces);
  kernel_test_keep(test, args.parts + tokens, PADDING * sizeof *args.parts);
  steer(&args, s->piece);
  kernel_variant variants[] = {{.grid = {1, 1, 1}, .threads = 512}, {.grid = {3, 1, 1}, .threads = 512}};
  kernel_test_run(test, &args, variants, 2);
  assert_int_equal(args.counts->piece_chunks, s->piece);
  u32 most = 0;
  for (u32 i = 0; i < s->tiles; i++) {
    u32 own = check_tile(&args, &tiles[i], slots, &parts);
    most = own / tiles[i].count > most ? own / tiles[i].count : most;
    slots += own;
  }
  assert_true(slots <= args.slots_max);
  assert_int_equal(args.counts->parts, parts);
  assert_int_equal(args.counts->units_most, most);
  if (s->tiles > ATTN_CUT_TILES) return;
  check_order(&args);
  for (u32 i = 0; i < args.counts->pieces; i++) check_early(&args, &args.pieces[i]);
  check_all_late(&args, all, tokens);
}

static void cut_cases(kernel_test *test) {
  static const cut_shape shapes[] = {
      {1, 1, 48, 8, 1, 0},   {1, 4, 20, 8, 2, 0},  {5, 4, 48, 4, 1, 0},   {16, 1, 48, 8, 4, 0},          {33, 3, 48, 4, 2, 0},
      {64, 4, 30, 3, 3, 0},  {64, 1, 48, 8, 8, 0}, {200, 2, 40, 2, 4, 0}, {512, 1, 48, 8, 16, 0},        {64, 4, 40, 4, ATTN_WHOLE, 0},
      {90, 1, 48, 4, 12, 0},
      {7, 1, 1, 8, ATTN_WHOLE, 0}, {600, 1, 24, 8, ATTN_WHOLE, 0},
      /* grouped-query attention: a KV head for 4 heads, for one, for all; tiles of two passes */
      {1, 1, 48, 1, 1, 4}, {5, 3, 48, 1, 2, 16}, {64, 8, 30, 1, 5, 1}, {24, 32, 40, 1, 8, 4}, {9, 8, 20, 1, ATTN_WHOLE, 1},
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) cut_case(test, &shapes[i]);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "attn_cut", "ba45ac0f886ea4de0e4bfdff34356670", cut_cases);
}
