/* kv_widen.c - the CPU reference of kv_widen: dequantizes to bf16 the KV rows of the contexts that a step's prompt tokens see. Items are
 * pages. NUMERICS.md "kv_widen", "KV row". Read next: contexts.h, kv_rows.h. */
#include "kernels_src/attn/contexts.h"
#include "cpu/cpu.h"
#include "cpu/kv_rows.h"

static void widen_page(void *context, uint32_t slot, void *scratch) {
  const kv_widen_args *a = context;
  const u32 page = a->piece * a->pages_max + slot;
  const step_context c = contexts_find(a->contexts, a->step->seq_count, page);
  const u32 number = a->block_table[(u64)c.seq * a->block_table_stride + (page - c.first)], columns = a->kv_lora_rank + a->rope_dim;
  const u32 live = c.tokens - (page - c.first) * PAGE_TOKENS, row_bytes = KV_ROW_BYTES(a->kv_format, a->kv_lora_rank, a->rope_dim);
  const u8 *from = a->kv + (u64)number * PAGE_TOKENS * row_bytes;
  bf16 *to = a->y + (u64)slot * PAGE_TOKENS * columns;
  (void)scratch;
  if (a->table) a->table[slot] = slot;
  for (u32 i = 0; i < PAGE_TOKENS; i++, from += row_bytes, to += columns) {
    if (i < live) kv_rows_read(from, a->kv_format, a->kv_scale, a->kv_lora_rank, a->rope_dim, to);
    else memset(to, 0, columns * sizeof *to);
  }
}

void cpu_kv_widen(const kv_widen_args *args, cpu_pool *pool) {
  kv_widen_args a = *args;
  ASSERT(a.piece == 0 || !a.table);
  ASSERT(a.kv_format != KV_BF16 && a.kv_lora_rank % 8 == 0 && a.rope_dim % 8 == 0);
  cpu_pool_run(pool, contexts_pages_in(a.contexts, a.step->seq_count, a.piece, a.pages_max), widen_page, &a);
}
