/* mla_prefill.c - the CPU reference of mla_prefill: attention of prompt tokens in the expanded form, over one piece of the contexts.
 *
 * An item is (tile, head). Its tokens within one page form a half, whose rows all see the same blocks; the (m, l, O) of a half is kept in
 * `state` between pieces. NUMERICS.md "mla_prefill". Read next: mla_expand.c, h16.h, attn_state.h. */
#include "cpu/attn_state.h"
#include "cpu/cpu.h"
#include "mma/h16_core.h"

#define COLUMNS_MAX 576u /* of a query: nope_dim 512, rope_dim 64 */

typedef struct prefill_half {
  const mla_prefill_args *a;
  u32 head, rows;
  u32 row;                 /* of the first token, in the step           */
  u32 position;            /* of that token                             */
  u32 valid[H16_ROWS];     /* rows of the block that this row sees */
  _Alignas(64) bf16 q[H16_ROWS * COLUMNS_MAX];
  _Alignas(64) f32 t[H16_ROWS * PAGE_TOKENS];
  _Alignas(64) bf16 p[H16_ROWS * PAGE_TOKENS];
  _Alignas(64) attn_row state[H16_ROWS];
  _Alignas(64) char product[H16_SCRATCH_BYTES];
} prefill_half;
_Static_assert(sizeof(prefill_half) <= CPU_SCRATCH_BYTES, "an attention item needs more scratch");

static f32 *state_of(const prefill_half *half, u32 i) {
  return half->a->state + ((u64)(half->row + i) * half->a->heads + half->head) * (half->a->v_dim + 2);
}

static void begin(prefill_half *half, bool is_first) {
  const mla_prefill_args *a = half->a;
  u32 columns = a->nope_dim + a->rope_dim;
  for (u32 i = 0; i < half->rows; i++) {
    u64 query = (u64)(half->row + i) * a->heads + half->head;
    memcpy(half->q + i * columns, a->q_nope + query * a->nope_dim, a->nope_dim * sizeof *half->q);
    memcpy(half->q + i * columns + a->nope_dim, a->q_rope + query * a->q_rope_stride, a->rope_dim * sizeof *half->q);
    attn_row *state = &half->state[i];
    const f32 *saved = state_of(half, i);
    if (is_first) {
      attn_row_start(state, a->v_dim);
      continue;
    }
    state->m = saved[a->v_dim];
    state->l = saved[a->v_dim + 1];
    memcpy(state->o, saved, a->v_dim * sizeof state->o[0]);
  }
}

static void end(const prefill_half *half, bool is_last) {
  const mla_prefill_args *a = half->a;
  for (u32 i = 0; i < half->rows; i++) {
    f32 *saved = state_of(half, i);
    if (is_last) {
      attn_row_output(a->out + ((u64)(half->row + i) * a->heads + half->head) * a->v_dim, &half->state[i], a->v_dim);
      continue;
    }
    memcpy(saved, half->state[i].o, a->v_dim * sizeof *saved);
    saved[a->v_dim] = half->state[i].m;
    saved[a->v_dim + 1] = half->state[i].l;
  }
}

/* t = the scores s of the block's `present` rows: the chain over the columns of nope, then those of rope. */
static void score_block(prefill_half *half, const bf16 *rows, u32 present) {
  const mla_prefill_args *a = half->a;
  u32 columns = a->nope_dim + a->rope_dim, head_columns = a->nope_dim + a->v_dim;
  h16_job job = {.x = half->q, .ldx = columns, .w = rows + (u64)half->head * head_columns, .y = half->t, .ldy = PAGE_TOKENS};
  job.ldw = (u64)a->heads * head_columns + a->rope_dim;
  job.rows = half->rows;
  job.n = present;
  job.k = a->nope_dim;
  h16_gemm(&job, half->product);
  job.x = half->q + a->nope_dim;
  job.w = rows + (u64)a->heads * head_columns;
  job.k = a->rope_dim;
  job.continues = 1;
  h16_gemm(&job, half->product);
}

static void run_block(prefill_half *half, u32 block, const bf16 *rows) {
  const mla_prefill_args *a = half->a;
  u32 head_columns = a->nope_dim + a->v_dim, present = min_u32(PAGE_TOKENS, half->position + half->rows - block * PAGE_TOKENS);
  for (u32 i = 0; i < half->rows; i++) half->valid[i] = min_u32(PAGE_TOKENS, half->position + i - block * PAGE_TOKENS + 1);
  score_block(half, rows, present);
  for (u32 i = 0; i < half->rows; i++)
    attn_row_weigh(&half->state[i], cpu_isa_core(), half->t + i * PAGE_TOKENS, a->scale_log2, half->valid[i], half->p + i * PAGE_TOKENS,
                   a->v_dim);
  h16_job sum = {.x = half->p, .ldx = PAGE_TOKENS, .k_valid = half->valid, .w = rows + (u64)half->head * head_columns + a->nope_dim};
  sum.ldw = (u64)a->heads * head_columns + a->rope_dim;
  sum.rows = half->rows;
  sum.n = a->v_dim;
  sum.k = PAGE_TOKENS;
  sum.k_major = 1;
  sum.k_rows = present;
  sum.continues = 1;
  sum.y = half->state[0].o;
  sum.ldy = sizeof(attn_row) / sizeof(f32);
  h16_gemm(&sum, half->product);
  attn_rows_add_probabilities(half->state, half->rows, half->p, half->product);
}

/* Runs the blocks of the half that lie in the piece. */
static void run_half(prefill_half *half, u32 context_first) {
  const mla_prefill_args *a = half->a;
  u64 width = (u64)a->heads * (a->nope_dim + a->v_dim) + a->rope_dim;
  u64 start = (u64)a->piece * a->piece_pages, end_page = start + a->piece_pages, own = half->position / PAGE_TOKENS;
  u64 block = start > context_first ? start - context_first : 0, first = block;
  if (block > own || context_first + block >= end_page) return;
  begin(half, first == 0);
  for (; block <= own && context_first + block < end_page; block++)
    run_block(half, (u32)block, a->expanded + (context_first + block - start) * PAGE_TOKENS * width);
  end(half, block > own);
}

static void run_item(void *context, uint32_t index, void *scratch) {
  const mla_prefill_args *a = context;
  prefill_half *half = scratch;
  const attn_tile *tile = &a->tiles[index / a->heads];
  half->a = a;
  half->head = index % a->heads;
  for (u32 done = 0; done < tile->count; done += half->rows) {
    half->row = tile->row + done;
    half->position = tile->position + done;
    half->rows = min_u32(tile->count - done, PAGE_TOKENS - half->position % PAGE_TOKENS);
    run_half(half, a->contexts[tile->seq].first);
  }
}

void cpu_mla_prefill(const mla_prefill_args *args, cpu_pool *pool) {
  mla_prefill_args a = *args;
  ASSERT(a.nope_dim + a.rope_dim <= COLUMNS_MAX && a.v_dim <= KV_LORA_RANK_MAX);
  cpu_pool_run(pool, a.step->tile_count * a.heads, run_item, &a);
}
