/* index_topk.c - the CPU reference of index_topk: the positions of a token's best scores, ascending. Items are rows.
 *
 * A score and its position form one integer, all distinct, so the best are all integers from some threshold on: the least in a heap that
 * holds the best. NUMERICS.md "index_topk". */
#include "cpu/cpu.h"
#include "kernels_src/num.h"

/* A better pair has a larger key: score descending, then position ascending. */
static u64 key_of(f32 score, u32 position) { return (u64)num_order(score) << 32 | (u32)~position; }

/* Replaces the root of a heap, its least key, by `key` and restores the heap. */
static void replace_least(u64 *heap, u32 count, u64 key) {
  u32 at = 0;
  for (u32 child = 1; child < count; child = 2 * at + 1) {
    if (child + 1 < count && heap[child + 1] < heap[child]) child++;
    if (heap[child] >= key) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = key;
}

/* The least of the keys chosen from n scores; n is above topk. */
static u64 find_threshold(u64 *heap, const f32 *scores, u32 n, u32 topk) {
  for (u32 i = 0; i < topk; i++) heap[i] = 0; /* below every key */
  for (u32 i = 0; i < n; i++) {
    u64 key = key_of(scores[i], i);
    if (key > heap[0]) replace_least(heap, topk, key);
  }
  return heap[0];
}

static void choose_row(void *context, uint32_t row, void *scratch) {
  const index_topk_args *a = context;
  u32 token = a->row_first + row, n = a->position[token] + 1, topk = a->topk, count = 0;
  u32 *list = a->lists + (u64)token * topk;
  const f32 *scores = a->scores + (u64)row * a->stride;
  if (n <= topk) {
    for (u32 i = 0; i < topk; i++) list[i] = i < n ? i : INDEX_NONE;
    return;
  }
  u64 threshold = find_threshold(scratch, scores, n, topk);
  for (u32 i = 0; i < n; i++)
    if (key_of(scores[i], i) >= threshold) list[count++] = i;
  ASSERT(count == topk);
}

void cpu_index_topk(const index_topk_args *args, cpu_pool *pool) {
  index_topk_args a = *args;
  u32 tokens = a.step->token_count;
  ASSERT(a.topk > 0 && a.topk <= INDEX_TOPK_MAX);
  if (tokens <= a.row_first) return;
  cpu_pool_run(pool, tokens - a.row_first < a.row_count ? tokens - a.row_first : a.row_count, choose_row, &a);
}
