/* test_mla_attn.c - mla_attn: whole and split, every form and head grouping, positions at every edge of blocks, chunks and groups, pages
 * with poison after the position, every format of the cache, dense attention and top-k index lists; against NUMERICS.md one query at a
 * time, and against binary64. */
#include "attn/attn_cut.h"
#include <stdlib.h>
#include "attn_codes.h"

enum { SEQS = 2, PAGES = 24, SCALE_PAGES = 11, GRID_MAX = 32 }; /* 11 pages a sequence: positions up to 703 */

typedef struct attn_buffers {
  bf16 *q, *out;
  u8 *kv;      /* in the cache's format */
  bf16 *plain; /* its rows as bf16, [PAGES * 64][columns]: not part of the image */
  u32 *lists;
  f32 *partial_o, *partial_ml;
  attn_part parts[96]; /* by token; a token of a tile that is not split has no units */
  attn_counts *counts;
  attn_piece *pieces;
  u32 *table;
  attn_tile *tiles;
  u32 tokens, slots_max;
} attn_buffers;

static u32 token_position(const attn_shape *s, u32 token) {
  u32 tile = 0;
  for (; token >= s->tile[tile].count; tile++) token -= s->tile[tile].count;
  return s->tile[tile].position + token;
}

static u32 token_seq(const attn_shape *s, u32 token) {
  u32 tile = 0;
  for (; token >= s->tile[tile].count; tile++) token -= s->tile[tile].count;
  return s->tile[tile].seq;
}

#define LAYER_SCALE 0x1.9p-5f

/* Random codes other than NaN, and scales of all sizes of typical rows; their bf16 values go to `plain`. */
static void fill_codes(const attn_shape *s, cases *c, u8 *row, bf16 *plain, f32 size) {
  u32 coded = s->format == KV_FP8 ? s->rank + s->rope : s->rank;
  for (u32 i = 0; i < coded; i++) {
    f32 scale = LAYER_SCALE;
    if (s->format == KV_FP8_DS_MLA) {
      u8 *at = row + s->rank + i / 128 * 4;
      if (i % 128 == 0) {
        scale = cases_below(c, 2) ? size / 256 : ldexpf(1, (i32)cases_below(c, 4) - 10) * (size > 1 ? 4 : 1);
        scale *= cases_below(c, 3) ? 1 : 1 + (f32)cases_below(c, 1000) / 1000;
        memcpy(at, &scale, 4);
      }
      memcpy(&scale, at, 4);
    }
    u8 code = num_to_e4m3(((f32)cases_below(c, 20001) - 10000) * 0.0448f * (s->format == KV_FP8 ? size / 16 : 1));
    row[i] = code;
    plain[i] = num_to_bf16((f32)((double)num_from_e4m3(code) * (double)scale));
  }
  if (s->format == KV_FP8) return;
  kernel_test_bf16s(c, plain + s->rank, s->rope, size);
  memcpy(row + s->rank + s->rank / 128 * 4, plain + s->rank, s->rope * 2);
}

/* Fills the rows of the KV memory that some sequence has written; the others stay poison. A few rows have larger scores, increasing block
 * by block: the maximum rises both by more than the raise rule ignores, and by less. */
static void fill_kv(const attn_shape *s, cases *c, attn_buffers *b) {
  const u32 columns = s->rank + s->rope, row_bytes = KV_ROW_BYTES(s->format, s->rank, s->rope);
  for (u32 seq = 0; seq < SEQS; seq++) {
    u32 length = 0;
    for (u32 t = 0; t < b->tokens; t++) {
      if (token_seq(s, t) == seq && token_position(s, t) + 1 > length) length = token_position(s, t) + 1;
    }
    for (u32 i = 0; i < length; i++) {
      size_t at = (size_t)b->table[seq * SCALE_PAGES + i / 64] * 64 + i % 64;
      f32 size = i % 37 == 5 ? 3.0f * (f32)(1 + i / 64 % 4) : 0.7f;
      if (s->format == KV_BF16) {
        kernel_test_bf16s(c, b->plain + at * columns, columns, size);
        memcpy(b->kv + at * row_bytes, b->plain + at * columns, row_bytes);
      } else {
        fill_codes(s, c, b->kv + at * row_bytes, b->plain + at * columns, size);
      }
    }
  }
}

/* Index lists of random positions up to the token's, ascending; some tokens have fewer entries, or entries that name no visible token. */
static void fill_lists(const attn_shape *s, cases *c, attn_buffers *b) {
  for (u32 t = 0; t < b->tokens; t++) {
    u32 *list = b->lists + (size_t)t * s->list_max, position = token_position(s, t), count = 0;
    for (u32 p = 0; p <= position && count < s->list_max; p++) {
      u32 left = position + 1 - p, wanted = s->list_max - count;
      if (left <= wanted || cases_below(c, left) < wanted) list[count++] = p;
    }
    while (count < s->list_max) list[count++] = 0xffffffffu;
    if (t % 2 == 0 || position < s->list_max) continue;
    list[s->list_max - 1] = position + 1 + cases_below(c, 3);
    list[s->list_max / 2] = 0xffffffffu;
    if (t % 4 == 1) memset(list, 0xff, 70 * sizeof *list); /* a whole block */
  }
}

/* The pieces of every tile, the last tile first, since the order must not matter to a CTA; and the slots of its tokens' units. */
static void cut(const attn_shape *s, attn_buffers *b) {
  u32 slots = 0, blocks = s->chunk_tokens / 64;
  assert_true(b->tokens <= ARRAY_LEN(b->parts));
  *b->counts = (attn_counts){.piece_chunks = s->piece};
  for (u32 i = s->tiles; i-- > 0;) {
    const attn_tile *tile = &b->tiles[i];
    u32 last = tile->position + tile->count - 1;
    u32 end = (s->list_max && last >= s->list_max ? s->list_max - 1 : last) / 64 + 1, chunks = (end + blocks - 1) / blocks;
    u32 units = attn_cut_units(chunks, s->piece, s->group_chunks);
    for (u32 t = 0; t < tile->count; t++) b->parts[tile->row + t] = (attn_part){tile->row + t, slots + t, tile->count, units};
    for (u32 chunk = 0; chunk < chunks; chunk += s->piece) {
      u32 n = b->counts->pieces++, behind = (chunk + s->piece) * blocks;
      b->pieces[n] = (attn_piece){*tile, chunk * blocks, behind < end ? behind : end, units ? slots : ATTN_WHOLE, 0};
      b->pieces[n].early = s->list_max ? 0 : n % (ATTN_EARLY + 1);
    }
    slots += units * tile->count;
  }
}

static void make_outputs(kernel_test *test, const attn_shape *s, attn_buffers *b, u32 padding) {
  size_t items = (size_t)b->tokens * s->heads;
  b->out = kernel_test_output(test, (items + padding) * s->rank * 2);
  kernel_test_keep(test, b->out + items * s->rank, (size_t)padding * s->rank * 2);
  if (!s->piece) return;
  b->slots_max = b->tokens * SCALE_PAGES;
  b->partial_o = kernel_test_output(test, (size_t)b->slots_max * s->heads * s->rank * 4);
  b->partial_ml = kernel_test_output(test, (size_t)b->slots_max * s->heads * 8);
  b->counts = kernel_test_input(test, sizeof *b->counts);
  b->pieces = kernel_test_input(test, (b->slots_max + s->tiles) * sizeof *b->pieces);
  cut(s, b);
}

/* loud: the only head whose scores raise m once it has been set; 0: many do. */
static void build(kernel_test *test, const attn_shape *s, u32 loud, cases *c, attn_buffers *b, mla_attn_args *args) {
  u32 columns = s->rank + s->rope, padding = 2;
  memset(b, 0, sizeof *b);
  for (u32 i = 0; i < s->tiles; i++) b->tokens += s->tile[i].count;
  kernel_test_start(test);
  *args = (mla_attn_args){.step = kernel_test_step(test, b->tokens, 0, s->tiles)};
  b->tiles = kernel_test_input(test, (s->tiles + 1) * sizeof *b->tiles);
  b->q = kernel_test_input(test, (size_t)(b->tokens + padding) * s->heads * columns * 2);
  b->kv = kernel_test_input(test, (size_t)PAGES * 64 * KV_ROW_BYTES(s->format, s->rank, s->rope));
  b->plain = malloc((size_t)PAGES * 64 * columns * sizeof *b->plain);
  assert_non_null(b->plain);
  b->table = kernel_test_input(test, SEQS * SCALE_PAGES * 4);
  for (u32 i = 0; i < SEQS * SCALE_PAGES; i++) b->table[i] = (i * 7 + 1) % PAGES; /* 7 and 24 have no common factor */
  for (u32 i = 0, row = 0; i < s->tiles; row += s->tile[i++].count)
    b->tiles[i] = (attn_tile){row, s->tile[i].count, s->tile[i].seq, s->tile[i].position};
  kernel_test_bf16s(c, b->q, (size_t)b->tokens * s->heads * columns, 1.0f);
  for (size_t i = 0; i < (size_t)b->tokens * s->heads * columns && loud; i++)
    b->q[i] = num_to_bf16(num_from_bf16(b->q[i]) * (i / columns % s->heads == loud ? 4 : 1.0f / 64));
  fill_kv(s, c, b);
  if (s->list_max) b->lists = kernel_test_input(test, (size_t)b->tokens * s->list_max * sizeof *b->lists);
  if (s->list_max) fill_lists(s, c, b);
  f32 *kv_scale = kernel_test_input(test, sizeof *kv_scale);
  *kv_scale = LAYER_SCALE;
  make_outputs(test, s, b, padding * s->heads);
  args->scratch = kernel_test_scratch(test, (size_t)GRID_MAX * 2 * 64 * (s->rank + 2) * 4);
  args->meetings = kernel_test_scratch(test, ATTN_MEETINGS * 4);
  memset(args->meetings, 0, ATTN_MEETINGS * 4);
  args->tiles = b->tiles;
  args->q = b->q;
  args->kv = b->kv;
  args->kv_scale = s->format == KV_FP8 ? kv_scale : NULL;
  args->lists = b->lists;
  args->list_max = s->list_max;
  args->kv_format = s->format;
  args->block_table = b->table;
  args->out = b->out;
  args->partial_o = b->partial_o;
  args->partial_ml = b->partial_ml;
  args->counts = b->counts;
  args->pieces = b->pieces;
  args->heads = s->heads;
  args->kv_lora_rank = s->rank;
  args->rope_dim = s->rope;
  args->block_table_stride = SCALE_PAGES;
  args->chunk_tokens = s->chunk_tokens;
  args->group_chunks = s->group_chunks;
  args->slots_max = b->slots_max;
  args->scale_log2 = 0x1.2p-4f;
}

/* Outputs that are not written: slots without a unit, rows of `out` of split tiles. Zeros of the units may have either sign. */
static void declare_units(kernel_test *test, const attn_shape *s, const attn_buffers *b) {
  u32 slots = 0;
  for (u32 i = 0; i < s->tiles; i++) {
    u32 units = b->parts[b->tiles[i].row].units, row = s->heads * s->rank;
    if (units) kernel_test_keep(test, b->out + (size_t)b->tiles[i].row * row, (size_t)b->tiles[i].count * row * 2);
    slots += units * b->tiles[i].count;
  }
  assert_true(slots > 0 && slots <= b->slots_max);
  size_t at = (size_t)slots * s->heads, items = (size_t)b->slots_max * s->heads;
  kernel_test_keep(test, b->partial_o + at * s->rank, (items - at) * s->rank * 4);
  kernel_test_keep(test, b->partial_ml + at * 2, (items - at) * 8);
  kernel_test_loose(test, b->partial_o, items * s->rank * 4);
  kernel_test_loose(test, b->partial_ml, items * 8);
}

/* The rows that a token sees; with an index list they are gathered one after the other. The caller frees them. */
typedef struct gathered {
  attn_context context;
  bf16 *rows;
  u32 *pages;
  u8 *is_void;
} gathered;

static gathered context_of(const attn_shape *s, const attn_buffers *b, u32 token) {
  const u32 *table = b->table + token_seq(s, token) * SCALE_PAGES, position = token_position(s, token), columns = s->rank + s->rope;
  gathered g = {.context = {b->plain, table, NULL, position}};
  if (!s->list_max) return g;
  g.rows = calloc((size_t)s->list_max * columns, sizeof *g.rows);
  g.pages = calloc(s->list_max, sizeof *g.pages);
  g.is_void = calloc(s->list_max, 1);
  assert_true(g.rows && g.pages && g.is_void);
  for (u32 i = 0; i < s->list_max; i++) {
    u32 at = b->lists[(size_t)token * s->list_max + i];
    g.pages[i] = i;
    g.is_void[i] = at > position;
    if (!g.is_void[i]) memcpy(g.rows + (size_t)i * columns, b->plain + ((size_t)table[at / 64] * 64 + at % 64) * columns, columns * 2);
  }
  g.context = (attn_context){g.rows, g.pages, g.is_void, position < s->list_max ? position : s->list_max - 1};
  return g;
}

static void release(gathered *g) {
  free(g->rows);
  free(g->pages);
  free(g->is_void);
}

static attn_result groups_of(const attn_shape *s, const bf16 *q, const attn_context *c, u32 groups, f32 scale) {
  attn_result r = {0}, next = {0};
  for (u32 g = 0; g < groups && g * s->group_chunks * s->chunk_tokens <= c->last; g++) {
    attn_unit(g == 0 ? &r : &next, s, q, c, g * s->group_chunks, s->group_chunks, scale);
    if (g > 0) attn_fold(&r, &next, s->rank);
  }
  return r;
}

/* The units of a token. If pieces are whole groups: the groups of the first piece, then group by group. Otherwise: for every group its
 * first piece, then chunk by chunk. */
static void check_units(const attn_shape *s, const attn_buffers *b, const attn_context *c, u32 token, u32 head, f32 scale) {
  u32 columns = s->rank + s->rope, unit = 0, tile = 0;
  const attn_part *part = &b->parts[token];
  while (b->tiles[tile].row + b->tiles[tile].count <= token) tile++;
  u32 chunks = attn_last_place(b->tiles[tile], s->list_max) / s->chunk_tokens + 1;
  for (u32 chunk = 0, next; chunk < chunks; chunk = next, unit++) {
    attn_result r = {.m = -0x1p60f};
    size_t at = (part->first + (size_t)unit * part->step) * s->heads + head;
    const bf16 *q = b->q + ((size_t)token * s->heads + head) * columns;
    if (chunk == 0 && s->piece >= s->group_chunks) {
      next = s->piece;
      r = groups_of(s, q, c, s->piece / s->group_chunks, scale);
    } else {
      next = chunk % s->group_chunks ? chunk + 1 : chunk + (s->piece < s->group_chunks ? s->piece : s->group_chunks);
      attn_unit(&r, s, q, c, chunk, next - chunk, scale);
    }
    assert_true(b->partial_ml[2 * at] == r.m && b->partial_ml[2 * at + 1] == r.l);
    for (u32 i = 0; i < s->rank; i++) assert_true(b->partial_o[at * s->rank + i] == r.o[i]);
  }
  assert_int_equal(unit, part->units);
}

static void check_whole(const attn_shape *s, const attn_buffers *b, const attn_context *c, u32 token, u32 head, f32 scale) {
  u32 columns = s->rank + s->rope;
  const bf16 *q = b->q + ((size_t)token * s->heads + head) * columns, *out = b->out + ((size_t)token * s->heads + head) * s->rank;
  const attn_result r = groups_of(s, q, c, UINT32_MAX, scale);
  for (u32 i = 0; i < s->rank; i++) assert_int_equal(out[i], num_to_bf16(r.o[i] * (1 / r.l) + 0.0f));
  double weight = 0, sum[4] = {0}; /* four columns by a plain softmax */
  for (u32 j = 0; j <= c->last; j++) {
    if (c->is_void && c->is_void[j]) continue;
    const bf16 *row = c->kv + ((size_t)c->pages[j / 64] * 64 + j % 64) * columns;
    double t = 0;
    for (u32 i = 0; i < columns; i++) t += (double)num_from_bf16(row[i]) * (double)num_from_bf16(q[i]);
    t = exp2(t * (double)scale);
    weight += t;
    for (u32 i = 0; i < 4; i++) sum[i] += t * (double)num_from_bf16(row[i * (s->rank / 4)]);
  }
  for (u32 i = 0; i < 4; i++) kernel_test_near((double)num_from_bf16(out[i * (s->rank / 4)]), sum[i] / weight, 0.02, 0.02);
}

static void attn_case(kernel_test *test, const attn_shape *s, u32 loud) {
  cases c = {.state = s->heads * 1000003u + s->rank + s->tile[0].position + s->piece};
  attn_buffers b;
  mla_attn_args args;
  kernel_variant variants[ATTN_VARIANTS];
  build(test, s, loud, &c, &b, &args);
  if (s->piece) declare_units(test, s, &b);
  const u32 pieces = s->piece ? b.counts->pieces : s->tiles;
  kernel_test_run(test, &args, variants, attn_variants(s, b.tokens, pieces, GRID_MAX, variants));
  for (u32 i = 0; i < kernel_test_checks(test, 12); i++) {
    u32 token = i == 0 ? 0 : i == 1 ? b.tokens - 1 : cases_below(&c, b.tokens), head = i == 0 ? s->heads - 1 : cases_below(&c, s->heads);
    gathered g = context_of(s, &b, token);
    (s->piece && b.parts[token].units ? check_units : check_whole)(s, &b, &g.context, token, head, args.scale_log2);
    release(&g);
  }
  free(b.plain);
}

static void attn_cases(kernel_test *test) {
  static const attn_shape shapes[] = {
      {1, 256, 32, 64, 2, 0, 3, {{64, 0, 0}, {1, 1, 63}, {5, 0, 64}}, 0, 0},
      {4, 256, 32, 128, 2, 0, 4, {{16, 0, 60}, {1, 1, 127}, {16, 0, 500}, {3, 1, 128}}, 0, 0},
      {8, 512, 64, 64, 4, 0, 3, {{8, 0, 250}, {1, 1, 0}, {7, 0, 0}}, 0, 0},
      {16, 512, 64, 256, 1, 0, 3, {{4, 0, 510}, {4, 1, 254}, {1, 0, 699}}, 0, 0},
      {16, 256, 64, 128, 4, 1, 3, {{4, 0, 126}, {1, 1, 700}, {2, 0, 511}}, 0, 0},
      {20, 512, 32, 64, 3, 3, 2, {{3, 0, 190}, {1, 1, 640}}, 0, 0},
      {64, 256, 32, 64, 2, 2, 2, {{1, 0, 130}, {1, 1, 5}}, 0, 0},
      {96, 256, 32, 128, 2, 1, 1, {{1, 0, 300}}, 0, 0},
      {128, 512, 64, 256, 2, 0, 1, {{1, 0, 320}}, 0, 0},
      {3, 256, 32, 64, 1, 1, 2, {{21, 0, 50}, {20, 1, 120}}, 0, 0},
      {40, 256, 32, 128, 2, 0, 3, {{1, 0, 300}, {1, 1, 63}, {1, 0, 0}}, 0, 0}, /* MiniCPM3  */
      {32, 256, 64, 64, 4, 1, 2, {{2, 0, 190}, {1, 1, 500}}, 0, 0},           /* Mistral 4 */
      {16, 512, 64, 64, 4, 2, 3, {{1, 0, 700}, {1, 1, 127}, {1, 0, 64}}, 0, 0}, /* halves of a group; a tile of one piece */
      {16, 256, 64, 64, 2, 4, 3, {{1, 0, 703}, {1, 1, 255}, {1, 0, 256}}, 0, 0}, /* two groups a piece */
      {64, 256, 64, 64, 2, 6, 2, {{1, 0, 650}, {1, 1, 384}}, 0, 0},
      {32, 512, 64, 64, 2, 0, 2, {{1, 0, 290}, {2, 1, 126}}, 0, 0},
      {8, 256, 64, 64, 4, 2, 3, {{1, 0, 515}, {1, 1, 63}, {2, 1, 126}}, 0, 0},
      {16, 512, 64, 128, 2, 0, 3, {{4, 0, 60}, {1, 1, 127}, {3, 0, 410}}, KV_FP8_DS_MLA, 0},
      {16, 512, 64, 64, 4, 2, 4, {{1, 0, 650}, {1, 1, 127}, {1, 0, 64}, {1, 0, 255}}, KV_FP8_DS_MLA, 256},
      {16, 512, 64, 64, 2, 2, 4, {{1, 0, 650}, {1, 1, 327}, {1, 0, 250}, {1, 0, 191}}, KV_BF16, 192},
      {8, 256, 64, 64, 2, 1, 3, {{2, 0, 250}, {1, 1, 700}, {5, 1, 62}}, KV_FP8, 0},
      {32, 512, 64, 128, 2, 1, 4, {{1, 0, 700}, {1, 0, 701}, {1, 1, 64}, {1, 1, 256}}, KV_FP8_DS_MLA, 320},
      {64, 512, 64, 128, 2, 0, 3, {{1, 0, 300}, {1, 1, 63}, {1, 0, 700}}, KV_FP8_DS_MLA, 0},
      {64, 512, 64, 64, 2, 0, 4, {{1, 0, 500}, {1, 0, 501}, {1, 1, 64}, {1, 1, 255}}, KV_BF16, 256},
      {128, 512, 64, 128, 2, 1, 3, {{1, 0, 700}, {1, 1, 701}, {1, 1, 100}}, KV_FP8_DS_MLA, 384},
      {128, 512, 64, 64, 4, 0, 2, {{1, 0, 600}, {1, 1, 601}}, KV_FP8_DS_MLA, 256},
      {40, 256, 64, 128, 2, 0, 2, {{1, 0, 300}, {1, 1, 63}}, KV_FP8, 0},
      {20, 512, 64, 128, 2, 0, 3, {{1, 0, 400}, {1, 1, 600}, {1, 0, 63}}, KV_FP8_DS_MLA, 256}, /* four CTAs take turns */
      {8, 256, 32, 64, 2, 0, 4, {{1, 0, 500}, {1, 1, 90}, {1, 0, 501}, {1, 1, 191}}, KV_BF16, 192},
      {16, 256, 32, 128, 2, 1, 4, {{1, 0, 600}, {1, 1, 130}, {1, 0, 255}, {1, 1, 300}}, KV_FP8, 256},
      {32, 256, 32, 64, 2, 0, 3, {{2, 0, 250}, {1, 1, 130}, {2, 1, 63}}, KV_FP8, 0},
      {32, 256, 64, 64, 2, 1, 4, {{1, 0, 500}, {1, 1, 64}, {1, 0, 501}, {1, 1, 190}}, KV_BF16, 192},
      {8, 512, 32, 64, 2, 0, 4, {{1, 0, 700}, {1, 1, 130}, {1, 0, 320}, {1, 1, 63}}, KV_FP8_DS_MLA, 320},
      {12, 512, 64, 128, 2, 0, 4, {{1, 0, 650}, {1, 1, 130}, {1, 0, 651}, {1, 1, 255}}, KV_FP8, 256},
      {128, 512, 64, 256, 1, 0, 4, {{1, 0, 650}, {1, 1, 601}, {1, 0, 63}, {1, 1, 130}}, KV_BF16, 256}, /* index lists of one chunk */
      {96, 512, 64, 512, 1, 0, 3, {{1, 0, 320}, {1, 1, 701}, {1, 1, 0}}, KV_FP8_DS_MLA, 330},
      {80, 512, 64, 512, 4, 0, 3, {{1, 0, 700}, {1, 1, 303}, {1, 0, 64}}, KV_FP8, 448},
      {72, 512, 64, 2048, 1, 0, 2, {{1, 0, 703}, {1, 1, 640}}, KV_BF16, 2048},
      {128, 512, 64, 768, 1, 0, 2, {{1, 1, 700}, {1, 0, 690}}, KV_FP8_DS_MLA, 650},
      {64, 512, 64, 768, 1, 0, 3, {{1, 1, 700}, {1, 0, 690}, {1, 1, 64}}, KV_FP8_DS_MLA, 650}, /* the same, of up to 64 heads */
      {40, 512, 64, 256, 1, 0, 4, {{1, 0, 650}, {1, 1, 601}, {1, 0, 63}, {1, 1, 130}}, KV_BF16, 256},
      {33, 512, 64, 2048, 1, 0, 2, {{1, 0, 703}, {1, 1, 640}}, KV_FP8, 2048},
      {32, 512, 32, 64, 4, 2, 4, {{1, 0, 650}, {1, 1, 327}, {1, 0, 250}, {1, 0, 63}}, KV_FP8, 256},
      {24, 512, 64, 64, 2, 1, 4, {{1, 0, 650}, {1, 1, 327}, {1, 0, 250}, {1, 0, 191}}, KV_BF16, 192},
      {16, 512, 64, 256, 2, 1, 1, {{1, 0, 450}}, 0, 0}, /* chunks that a cluster shares */
      {20, 512, 64, 256, 2, 1, 2, {{1, 0, 319}, {1, 1, 130}}, 0, 0},
      {4, 256, 64, 256, 4, 1, 2, {{2, 0, 319}, {1, 1, 63}}, 0, 0},
  };
  static const attn_shape one_is_loud = {128, 512, 64, 512, 1, 0, 2, {{1, 0, 650}, {1, 1, 601}}, KV_BF16, 448};
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) attn_case(test, &shapes[i], 0);
  attn_case(test, &one_is_loud, 43);
  attn_codes_run(test);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "mla_attn", "0f34efaada6a2c01fa7dfb1f52f45207", attn_cases);
}
