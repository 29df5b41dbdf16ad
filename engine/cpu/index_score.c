/* index_score.c - the CPU reference of index_score: scores every token of the op against every key of its context.
 *
 * Items are (token, some pages). NUMERICS.md "index_score". Read next: h32.h, index_topk.c. */
#include "cpu/cpu.h"
#include "mma/h32.h"
#include "kernels_src/num.h"

#define ITEM_PAGES 16u

typedef struct score_run {
  index_score_args a;
  u32 items; /* per token */
} score_run;

/* d: the products of all heads with one key. */
static f32 sum_heads(const f32 *d, const f32 *w, u32 heads) {
  f32 p[4] = {0};
  for (u32 h = 0; h < heads; h++) p[h / 2 % 4] = num_fma(d[h] <= 0 ? 0.0f : d[h], w[h], p[h / 2 % 4]); /* R15.1; NaN stays */
  return num_add(num_add(p[0], p[1]), num_add(p[2], p[3]));                                         /* R15.2, R15.3 */
}

static void run_page(const index_score_args *a, u32 token, u32 page, f32 *d) {
  u32 position = a->position[token], keys = min_u32(PAGE_TOKENS, position - page * PAGE_TOKENS + 1);
  const u8 *rows = a->cache + (u64)a->block_table[(u64)a->seq[token] * a->block_table_stride + page] * INDEX_PAGE_BYTES;
  const f32 *scales = (const f32 *)(const void *)(rows + PAGE_TOKENS * INDEX_DIM);
  f32 *scores = a->scores + (u64)(token - a->row_first) * a->stride + page * PAGE_TOKENS;
  h32_job job = {.x = rows, .ldx = INDEX_DIM, .w = a->q_codes + (u64)token * a->heads * INDEX_DIM, .ldw = INDEX_DIM};
  job.y = d;
  job.ldy = a->heads;
  job.rows = keys;
  job.n = a->heads;
  job.k = INDEX_DIM;
  h32_gemm(&job);
  for (u32 i = 0; i < keys; i++)
    scores[i] = num_mul(sum_heads(d + i * a->heads, a->w + (u64)token * a->heads, a->heads), scales[i]); /* R15.4 */
}

static void run_item(void *context, uint32_t index, void *scratch) {
  const score_run *run = context;
  u32 token = run->a.row_first + index / run->items, position = run->a.position[token], first = index % run->items * ITEM_PAGES;
  if (position < run->a.topk) return;
  for (u32 page = first; page < first + ITEM_PAGES && page <= position / PAGE_TOKENS; page++) run_page(&run->a, token, page, scratch);
}

void cpu_index_score(const index_score_args *args, cpu_pool *pool) {
  score_run run = {.a = *args, .items = (u32)div_up(args->stride, ITEM_PAGES * PAGE_TOKENS)};
  u32 tokens = args->step->token_count, rows = tokens > args->row_first ? min_u32(args->row_count, tokens - args->row_first) : 0;
  ASSERT((u64)args->heads * PAGE_TOKENS * sizeof(f32) <= CPU_SCRATCH_BYTES);
  cpu_pool_run(pool, rows * run.items, run_item, &run);
}
