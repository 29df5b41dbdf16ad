/* moe_sort.c - the CPU reference of moe_sort: a counting sort of (token, k) pairs by expert, then token. NUMERICS.md "moe_sort". */
#include "cpu/cpu.h"
#include <string.h>

static void sort_pairs(void *context, uint32_t index, void *scratch) {
  const moe_sort_args *a = context;
  (void)index;
  u32 *next = scratch, pairs = a->step->token_count * a->top_k;
  for (u32 e = 0; e <= a->experts; e++) a->expert_first[e] = 0;
  for (u32 p = 0; p < pairs; p++) {
    ASSERT(a->topk_id[p] < a->experts);
    a->expert_first[a->topk_id[p] + 1]++;
  }
  for (u32 e = 0; e < a->experts; e++) {
    next[e] = a->expert_first[e];
    a->expert_first[e + 1] += a->expert_first[e];
  }
  for (u32 p = 0; p < pairs; p++) {
    u32 row = next[a->topk_id[p]]++;
    a->row_token[row] = p / a->top_k;
    a->pair_row[p] = row;
    if (a->columns) memcpy(a->x_sorted + (u64)row * a->columns, a->x + (u64)(p / a->top_k) * a->columns, a->columns * sizeof(bf16));
  }
}

void cpu_moe_sort_pairs(const moe_sort_args *args, cpu_pool *pool) {
  moe_sort_args a = *args;
  ASSERT(a.experts <= CPU_SCRATCH_BYTES / sizeof(u32));
  cpu_pool_run(pool, 1, sort_pairs, &a);
}

void cpu_moe_sort(const moe_sort_args *args, cpu_pool *pool) { cpu_moe_sort_pairs(args, pool); }
