/* mla_attn.c - the CPU reference of mla_attn: attention over the latent KV rows, chunk by chunk. NUMERICS.md "mla_attn".
 *
 * An item is (tile, group of heads) or, where attn_cut split the contexts, (piece, group of heads). Its rows are the (token, head) pairs in
 * token-major order, so the rows that have reached a given place are always the last ones; a row skips chunks and blocks that lie wholly
 * beyond its last place. A place is a position, or an entry of the token's top-k list. Blocks that are not stored as bf16 are gathered
 * first. Read next: h16.h, kv_rows.h, attn_state.h, mla_fold.c. */
#include "kernels_src/attn/attn_cut.h"
#include "cpu/attn_state.h"
#include "cpu/cpu.h"
#include "mma/h16_core.h"
#include "cpu/kv_rows.h"

#define ITEM_HEADS_MAX 16u /* more would share packed KV panels further but leave threads idle */
#define PACK_ROWS 2u       /* packing a panel takes as long as this many of its rows */

typedef struct attn_run {
  mla_attn_args a;
  const h16_core *core;
  u32 item_heads, head_groups;
} attn_run;

typedef struct attn_item {
  const mla_attn_args *a;
  const h16_core *core;
  const u32 *pages;       /* block table row of the sequence     */
  const u32 *list;        /* of the tile's one token, or NULL    */
  u32 rows, heads;        /* rows = tokens * heads of this group */
  u32 last_place;         /* of the last row                     */
  u32 position;           /* of the tile's first token           */
  u32 q_row[H16_ROWS];    /* row of q: token * heads + head      */
  u32 place[H16_ROWS];    /* the last place that a row sees      */
  u32 valid[H16_ROWS];    /* places of the current block up to place[row] */
  bool is_void[PAGE_TOKENS]; /* places of the current block where the list names no token */
  bf16 gathered[PAGE_TOKENS * (KV_LORA_RANK_MAX + ROPE_DIM_MAX)];
  _Alignas(64) f32 t[H16_ROWS * PAGE_TOKENS];
  _Alignas(64) bf16 p[H16_ROWS * PAGE_TOKENS];
  _Alignas(64) attn_row chunk[H16_ROWS], unit[H16_ROWS], total[H16_ROWS];
  _Alignas(64) char product[H16_SCRATCH_BYTES];
} attn_item;
_Static_assert(sizeof(attn_item) <= CPU_SCRATCH_BYTES, "an attention item needs more scratch");
_Static_assert(sizeof(attn_row) % sizeof(f32) == 0, "rows of O are a fixed number of floats apart");

/* The first row whose query has reached `place`. */
static u32 first_reaching(const attn_item *item, u64 place) {
  u32 row = 0;
  while (row < item->rows && item->place[row] < place) row += item->heads;
  return row;
}

/* The first `count` rows of a block as bf16. Sets is_void; void rows are zeros. */
static const bf16 *read_block(attn_item *item, u32 block, u32 count) {
  const mla_attn_args *a = item->a;
  const u32 row_bytes = KV_ROW_BYTES(a->kv_format, a->kv_lora_rank, a->rope_dim), width = a->kv_lora_rank + a->rope_dim;
  memset(item->is_void, 0, sizeof item->is_void);
  if (!item->list && a->kv_format == KV_BF16) return (const bf16 *)a->kv + (u64)item->pages[block] * PAGE_TOKENS * width;
  for (u32 j = 0; j < count; j++) {
    const u32 place = block * PAGE_TOKENS + j, token = item->list ? item->list[place] : place;
    item->is_void[j] = item->list && token > item->position;
    bf16 *to = item->gathered + j * width;
    if (item->is_void[j]) {
      memset(to, 0, width * sizeof *to);
      continue;
    }
    const u64 row = (u64)item->pages[token / PAGE_TOKENS] * PAGE_TOKENS + token % PAGE_TOKENS;
    kv_rows_read((const u8 *)a->kv + row * row_bytes, a->kv_format, a->kv_scale, a->kv_lora_rank, a->rope_dim, to);
  }
  return item->gathered;
}

/* Steps 1 to 3 of a block for one row: turns the scores s in t[] into probabilities p[], and rescales O and l. */
static void softmax_block(attn_item *item, u32 row) {
  f32 *t = item->t + row * PAGE_TOKENS, scale = item->a->scale_log2;
  bf16 *p = item->p + row * PAGE_TOKENS;
  attn_row *state = &item->chunk[row];
  u32 valid = item->valid[row];
  for (u32 j = 0; j < valid; j++) t[j] = item->is_void[j] ? -INFINITY : num_mul(t[j], scale); /* R4.1 */
  f32 largest = t[0];
  for (u32 j = 1; j < valid; j++) largest = t[j] > largest ? t[j] : largest;
  f32 m = num_raise(state->m, largest);
  attn_row_raise(state, m, item->a->kv_lora_rank);
  item->core->softmax(t, m, p); /* t beyond the valid places means nothing */
  for (u32 j = valid; j < PAGE_TOKENS; j++) p[j] = 0;
}

static void run_block(attn_item *item, u32 block) {
  const mla_attn_args *a = item->a;
  u32 width = a->kv_lora_rank + a->rope_dim, first = first_reaching(item, (u64)block * PAGE_TOKENS);
  u32 rows = item->rows - first, present = min_u32(PAGE_TOKENS, item->last_place - block * PAGE_TOKENS + 1);
  const bf16 *kv = read_block(item, block, present);
  for (u32 i = first; i < item->rows; i++) item->valid[i] = min_u32(PAGE_TOKENS, item->place[i] - block * PAGE_TOKENS + 1);
  h16_job scores = {.x = a->q, .x_row = item->q_row + first, .ldx = width, .w = kv, .ldw = width, .k = width, .rows = rows};
  scores.n = present;
  scores.y = item->t + first * PAGE_TOKENS;
  scores.ldy = PAGE_TOKENS;
  h16_gemm(&scores, item->product);
  for (u32 i = first; i < item->rows; i++) softmax_block(item, i);
  h16_job sum = {.x = item->p + first * PAGE_TOKENS, .ldx = PAGE_TOKENS, .k_valid = item->valid + first, .w = kv, .ldw = width};
  sum.rows = rows;
  sum.n = a->kv_lora_rank;
  sum.k = PAGE_TOKENS;
  sum.k_major = 1;
  sum.k_rows = present;
  sum.continues = 1;
  sum.y = item->chunk[first].o;
  sum.ldy = sizeof(attn_row) / sizeof(f32);
  h16_gemm(&sum, item->product);
  attn_rows_add_probabilities(item->chunk + first, item->rows - first, item->p + first * PAGE_TOKENS, item->product);
}

/* Computes item->chunk of the rows that reach the chunk. */
static void run_chunk(attn_item *item, u32 chunk) {
  const mla_attn_args *a = item->a;
  u64 start = (u64)chunk * a->chunk_tokens;
  u64 blocks = (u64)item->last_place / PAGE_TOKENS + 1, end = (start + a->chunk_tokens) / PAGE_TOKENS;
  for (u32 i = first_reaching(item, start); i < item->rows; i++) attn_row_start(&item->chunk[i], a->kv_lora_rank);
  for (u64 block = start / PAGE_TOKENS; block < blocks && block < end; block++) run_block(item, (u32)block);
}

/* Computes item->unit of the rows that reach chunk `first`: chunks first .. first+count-1, folded in order. */
static void run_unit(attn_item *item, u64 first, u32 count) {
  const mla_attn_args *a = item->a;
  for (u64 chunk = first; chunk < first + count; chunk++) {
    u64 start = chunk * a->chunk_tokens;
    if (start > item->last_place) return;
    run_chunk(item, (u32)chunk);
    for (u32 i = first_reaching(item, start); i < item->rows; i++) {
      if (chunk == first)
        attn_row_copy(&item->unit[i], &item->chunk[i], a->kv_lora_rank);
      else
        attn_row_fold(&item->unit[i], &item->chunk[i], a->kv_lora_rank);
    }
  }
}

/* Computes item->total: the groups up to `end`, folded in order. */
static void run_groups(attn_item *item, u32 end) {
  const mla_attn_args *a = item->a;
  u64 group_tokens = (u64)a->chunk_tokens * a->group_chunks;
  for (u32 group = 0; group < end && group * group_tokens <= item->last_place; group++) {
    run_unit(item, (u64)group * a->group_chunks, a->group_chunks);
    for (u32 i = first_reaching(item, group * group_tokens); i < item->rows; i++) {
      if (group == 0)
        attn_row_copy(&item->total[i], &item->unit[i], a->kv_lora_rank);
      else
        attn_row_fold(&item->total[i], &item->unit[i], a->kv_lora_rank);
    }
  }
}

static void run_whole(attn_item *item) {
  const mla_attn_args *a = item->a;
  run_groups(item, UINT32_MAX);
  for (u32 i = 0; i < item->rows; i++) attn_row_output(a->out + (u64)item->q_row[i] * a->kv_lora_rank, &item->total[i], a->kv_lora_rank);
}

/* Stores the unit that starts with chunk `first`. Rows that do not reach it get the initial state of a chunk. */
static void store_unit(const attn_item *item, const attn_piece *piece, u32 first, const attn_row *unit) {
  const mla_attn_args *a = item->a;
  u32 number = attn_unit_at(first, a->counts->piece_chunks, a->group_chunks);
  u32 reaching = first_reaching(item, (u64)first * a->chunk_tokens);
  for (u32 i = 0; i < item->rows; i++) {
    u32 token = item->q_row[i] / a->heads - piece->tile.row, head = item->q_row[i] % a->heads;
    size_t at = (piece->slot + (size_t)number * piece->tile.count + token) * a->heads + head;
    f32 *o = a->partial_o + at * a->kv_lora_rank;
    if (i >= reaching) memcpy(o, unit[i].o, a->kv_lora_rank * sizeof(f32));
    else memset(o, 0, a->kv_lora_rank * sizeof(f32));
    a->partial_ml[2 * at] = i >= reaching ? unit[i].m : ATTN_M_START;
    a->partial_ml[2 * at + 1] = i >= reaching ? unit[i].l : 0.0f;
  }
}

static void run_piece(attn_item *item, const attn_piece *piece) {
  const mla_attn_args *a = item->a;
  u32 blocks = a->chunk_tokens / PAGE_TOKENS, end = (u32)div_up(piece->end_block, blocks), first = piece->first_block / blocks;
  u32 prefix = attn_prefix(a->counts->piece_chunks, a->group_chunks);
  if (first == 0 && prefix == a->group_chunks) {
    run_groups(item, end / a->group_chunks);
    store_unit(item, piece, 0, item->total);
    return;
  }
  for (u32 count; first < end; first += count) {
    count = first % a->group_chunks == 0 ? min_u32(prefix, end - first) : 1;
    run_unit(item, first, count);
    store_unit(item, piece, first, item->unit);
  }
}

static void run_item(void *context, uint32_t index, void *scratch) {
  const attn_run *run = context;
  const mla_attn_args *a = &run->a;
  attn_item *item = scratch;
  u32 nth = index / run->head_groups, head = index % run->head_groups * run->item_heads;
  attn_piece piece = a->pieces ? a->pieces[nth] : attn_whole(a->tiles[nth], a->list_max);
  const attn_tile *tile = &piece.tile;
  item->a = a;
  item->core = run->core;
  item->pages = a->block_table + (u64)tile->seq * a->block_table_stride;
  item->list = a->list_max ? a->lists + (u64)tile->row * a->list_max : NULL;
  item->position = tile->position;
  item->heads = min_u32(run->item_heads, a->heads - head);
  u32 step = H16_ROWS / item->heads;
  for (u32 token = 0; token < tile->count; token += step) {
    u32 tokens = min_u32(step, tile->count - token);
    item->rows = tokens * item->heads;
    for (u32 i = 0; i < item->rows; i++) {
      u32 row = token + i / item->heads;
      item->q_row[i] = (tile->row + row) * a->heads + head + i % item->heads;
      item->place[i] = a->list_max ? attn_last_place(*tile, a->list_max) : tile->position + row;
    }
    item->last_place = item->place[item->rows - 1];
    if (piece.slot == ATTN_WHOLE) run_whole(item);
    else run_piece(item, &piece);
  }
}

/* Estimated time of a step with this many heads per item, in rows of a panel: the items of one thread, plus half an item of waiting for the
 * last thread. */
static double cost_of(u32 pieces, u32 heads, u32 item_heads, u32 threads) {
  double items = (double)(pieces * div_up(heads, item_heads)) / threads;
  return ((items > 1 ? items : 1) + 0.5) * (item_heads + PACK_ROWS);
}

static u32 heads_of_items(u32 pieces, u32 heads, u32 threads) {
  u32 best = ITEM_HEADS_MAX;
  for (u32 some = best / 2; some > 0; some /= 2)
    if (cost_of(pieces, heads, some, threads) < cost_of(pieces, heads, best, threads)) best = some;
  return best;
}

void cpu_mla_attn(const mla_attn_args *args, cpu_pool *pool) {
  attn_run run = {.a = *args, .core = cpu_isa_core()};
  u32 pieces = args->pieces ? args->counts->pieces : args->step->tile_count;
  ASSERT(args->kv_lora_rank <= KV_LORA_RANK_MAX && args->chunk_tokens % PAGE_TOKENS == 0 && args->chunk_tokens > 0);
  ASSERT(args->group_chunks > 0 && (args->slots_max == 0 || args->pieces) && (args->list_max == 0 || args->lists));
  run.item_heads = heads_of_items(pieces, args->heads, cpu_pool_threads(pool));
  run.head_groups = (u32)div_up(args->heads, run.item_heads);
  cpu_pool_run(pool, pieces * run.head_groups, run_item, &run);
}
