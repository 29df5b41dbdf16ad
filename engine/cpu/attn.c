/* attn.c - the CPU reference of attn: grouped-query attention over the paged KV cache, chunk by chunk. NUMERICS.md "attn".
 *
 * An item is (tile, KV head) or, where attn_cut split the contexts, (piece, KV head). Its rows are the (token, head of the group) pairs in
 * token-major order, so the rows that have reached a given position are always the last ones; a row skips chunks and blocks that lie wholly
 * beyond its own position. Codes are read as bf16 first. Read next: h16.h, kv_rows.h, attn_state.h, mla_attn.c. */
#include "kernels_src/attn/attn_cut.h"
#include "cpu/attn_state.h"
#include "cpu/cpu.h"
#include "mma/h16_core.h"
#include "cpu/kv_rows.h"

typedef struct attn_run {
  attn_args a;
  const h16_core *core;
} attn_run;

typedef struct attn_item {
  const attn_args *a;
  const h16_core *core;
  const u32 *pages;       /* block table row of the sequence    */
  u32 kv_head, group;     /* query heads that share the KV head */
  u32 rows;               /* tokens * group                     */
  u32 last;               /* position of the last row           */
  u32 q_row[H16_ROWS];    /* row of q: token * heads + head     */
  u32 position[H16_ROWS];
  u32 valid[H16_ROWS];    /* tokens of the current block up to position[row] */
  bf16 gathered[PAGE_TOKENS * 2 * HEAD_DIM_MAX];
  _Alignas(64) f32 s[H16_ROWS * PAGE_TOKENS];
  _Alignas(64) bf16 p[H16_ROWS * PAGE_TOKENS];
  _Alignas(64) attn_row chunk[H16_ROWS], total[H16_ROWS];
  _Alignas(64) char product[H16_SCRATCH_BYTES];
} attn_item;
_Static_assert(sizeof(attn_item) <= CPU_SCRATCH_BYTES, "an attention item needs more scratch");
_Static_assert(HEAD_DIM_MAX <= KV_LORA_RANK_MAX, "attn_row holds the values of a head");

/* The keys and values of a block, as bf16: row j is keys + j * stride and values + j * stride. */
typedef struct kv_block {
  const bf16 *keys, *values;
  u64 stride;
} kv_block;

/* The first row whose token has reached `position`. */
static u32 first_reaching(const attn_item *item, u64 position) {
  u32 row = 0;
  while (row < item->rows && item->position[row] < position) row += item->group;
  return row;
}

static kv_block read_block(attn_item *item, u32 block, u32 count) {
  const attn_args *a = item->a;
  const u32 width = a->head_dim + a->v_dim;
  const u64 stride = (u64)a->kv_heads * width, at = (u64)item->pages[block] * PAGE_TOKENS * stride + (u64)item->kv_head * width;
  const bf16 *row = (const bf16 *)a->kv + at;
  if (a->kv_format == KV_BF16) return (kv_block){row, row + a->head_dim, stride};
  for (u32 j = 0; j < count; j++)
    kv_rows_read((const u8 *)a->kv + at + j * stride, a->kv_format, a->kv_scale, width, 0, item->gathered + j * width);
  return (kv_block){item->gathered, item->gathered + a->head_dim, width};
}

static void run_block(attn_item *item, u32 block) {
  const attn_args *a = item->a;
  u32 first = first_reaching(item, (u64)block * PAGE_TOKENS), present = min_u32(PAGE_TOKENS, item->last - block * PAGE_TOKENS + 1);
  const kv_block kv = read_block(item, block, present);
  for (u32 i = first; i < item->rows; i++) item->valid[i] = min_u32(PAGE_TOKENS, item->position[i] - block * PAGE_TOKENS + 1);
  h16_job scores = {.x = a->q, .x_row = item->q_row + first, .ldx = a->head_dim, .w = kv.keys, .ldw = kv.stride, .k = a->head_dim,
                    .rows = item->rows - first, .n = present, .y = item->s + first * PAGE_TOKENS, .ldy = PAGE_TOKENS};
  h16_gemm(&scores, item->product);
  for (u32 i = first; i < item->rows; i++)
    attn_row_weigh(&item->chunk[i], item->core, item->s + i * PAGE_TOKENS, a->scale_log2, item->valid[i], item->p + i * PAGE_TOKENS,
                   a->v_dim);
  h16_job sum = {.x = item->p + first * PAGE_TOKENS, .ldx = PAGE_TOKENS, .k_valid = item->valid + first, .w = kv.values, .ldw = kv.stride,
                 .rows = item->rows - first, .n = a->v_dim, .k = PAGE_TOKENS, .k_major = 1, .k_rows = present, .continues = 1,
                 .y = item->chunk[first].o, .ldy = sizeof(attn_row) / sizeof(f32)};
  h16_gemm(&sum, item->product);
  attn_rows_add_probabilities(item->chunk + first, item->rows - first, item->p + first * PAGE_TOKENS, item->product);
}

/* Computes item->chunk of the rows that reach the chunk. */
static void run_chunk(attn_item *item, u32 chunk) {
  const attn_args *a = item->a;
  u64 start = (u64)chunk * a->chunk_tokens;
  u64 blocks = (u64)item->last / PAGE_TOKENS + 1, end = (start + a->chunk_tokens) / PAGE_TOKENS;
  for (u32 i = first_reaching(item, start); i < item->rows; i++) attn_row_start(&item->chunk[i], a->v_dim);
  for (u64 block = start / PAGE_TOKENS; block < blocks && block < end; block++) run_block(item, (u32)block);
}

/* Computes item->total of the rows that reach chunk `first`: chunks first .. end - 1, combined in order. */
static void run_chunks(attn_item *item, u64 first, u64 end) {
  const attn_args *a = item->a;
  for (u64 chunk = first; chunk < end && chunk * a->chunk_tokens <= item->last; chunk++) {
    run_chunk(item, (u32)chunk);
    for (u32 i = first_reaching(item, chunk * a->chunk_tokens); i < item->rows; i++) {
      if (chunk == first) attn_row_copy(&item->total[i], &item->chunk[i], a->v_dim);
      else attn_row_fold(&item->total[i], &item->chunk[i], a->v_dim);
    }
  }
}

static void run_whole(attn_item *item) {
  const attn_args *a = item->a;
  run_chunks(item, 0, UINT64_MAX);
  for (u32 i = 0; i < item->rows; i++) attn_row_output(a->out + (u64)item->q_row[i] * a->v_dim, &item->total[i], a->v_dim);
}

/* Stores the unit that starts with chunk `first`. Rows that do not reach it get the initial state of a chunk. */
static void store_unit(const attn_item *item, const attn_piece *piece, u32 first) {
  const attn_args *a = item->a;
  u32 number = attn_unit_at(first, a->counts->piece_chunks, 1), reaching = first_reaching(item, (u64)first * a->chunk_tokens);
  for (u32 i = 0; i < item->rows; i++) {
    u32 token = item->q_row[i] / a->heads - piece->tile.row, head = item->q_row[i] % a->heads;
    size_t at = (piece->slot + (size_t)number * piece->tile.count + token) * a->heads + head;
    f32 *o = a->partial_o + at * a->v_dim;
    if (i >= reaching) memcpy(o, item->total[i].o, a->v_dim * sizeof *o);
    else memset(o, 0, a->v_dim * sizeof *o);
    a->partial_ml[2 * at] = i >= reaching ? item->total[i].m : ATTN_M_START;
    a->partial_ml[2 * at + 1] = i >= reaching ? item->total[i].l : 0.0f;
  }
}

/* The first piece of a tile leaves one unit, every other piece one for each chunk. */
static void run_piece(attn_item *item, const attn_piece *piece) {
  u32 blocks = item->a->chunk_tokens / PAGE_TOKENS, end = (u32)div_up(piece->end_block, blocks), first = piece->first_block / blocks;
  for (u32 count; first < end; first += count) {
    count = first == 0 ? end : 1;
    run_chunks(item, first, first + count);
    store_unit(item, piece, first);
  }
}

static void run_item(void *context, uint32_t index, void *scratch) {
  const attn_run *run = context;
  const attn_args *a = &run->a;
  attn_item *item = scratch;
  u32 nth = index / a->kv_heads, group = a->heads / a->kv_heads, step = H16_ROWS / group;
  attn_piece piece = a->pieces ? a->pieces[nth] : attn_whole(a->tiles[nth], 0);
  const attn_tile *tile = &piece.tile;
  item->a = a;
  item->core = run->core;
  item->pages = a->block_table + (u64)tile->seq * a->block_table_stride;
  item->kv_head = index % a->kv_heads;
  item->group = group;
  for (u32 token = 0; token < tile->count; token += step) {
    item->rows = min_u32(step, tile->count - token) * group;
    for (u32 i = 0; i < item->rows; i++) {
      u32 row = token + i / group;
      item->q_row[i] = (tile->row + row) * a->heads + item->kv_head * group + i % group;
      item->position[i] = tile->position + row;
    }
    item->last = item->position[item->rows - 1];
    if (piece.slot == ATTN_WHOLE) run_whole(item);
    else run_piece(item, &piece);
  }
}

void cpu_attn(const attn_args *args, cpu_pool *pool) {
  attn_run run = {.a = *args, .core = cpu_isa_core()};
  u32 pieces = args->pieces ? args->counts->pieces : args->step->tile_count;
  ASSERT(args->head_dim <= HEAD_DIM_MAX && args->v_dim <= HEAD_DIM_MAX && args->heads / args->kv_heads <= GROUP_HEADS_MAX);
  ASSERT(args->chunk_tokens % PAGE_TOKENS == 0 && args->chunk_tokens > 0 && (args->slots_max == 0 || args->pieces));
  cpu_pool_run(pool, pieces * args->kv_heads, run_item, &run);
}
