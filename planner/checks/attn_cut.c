/* attn_cut.c - the checker's reading of the op `attn_cut`: memory and argument values. See reading.h. */
#include "checks/reading.h"

#define ESTIMATE_MAX 1000000u /* nanoseconds: sums over a step's tiles stay far below 2^64 */

static void describe(writer *w, const void *args) {
  const attn_cut_args *a = args;
  uint64_t t = w->rows.tokens, piece = sizeof(attn_piece) / 4, part = sizeof(attn_part) / 4;
  describe_tiles(w, FIELD(attn_cut, tiles), IO(tiles));
  describe_block_table(w, FIELD(attn_cut, block_table), a->block_table_stride);
  table(w, FIELD(attn_cut, counts), true, TYPE_COUNTS, 1, COUNTS, COUNTS);
  table(w, FIELD(attn_cut, pieces), true, TYPE_PIECES, plus(t, a->slots_max), piece, piece);
  table(w, FIELD(attn_cut, parts), true, TYPE_PARTS, t, part, part);
}

static status values(const reader *r, const void *args) {
  const attn_cut_args *a = args;
  SAME(heads, r->m->heads / ranks_of_heads(r));
  SAME(block_table_stride, r->l->pages_per_seq);
  SAME(chunk_tokens, r->l->chunk_tokens);
  SAME(group_chunks, r->l->group_chunks);
  SAME(list_max, r->q->index_topk);
  SAME(all_late, r->by_requests);
  SAME(kv_heads, r->g->kv_heads / ranks_of_heads(r));
  TRY(in_range("workers of the attention", a->workers, 1, 65536));
  TRY(in_range("slots_max of attn_cut", a->slots_max, 1, SLOTS_MAX));
  uint32_t most = max_u32(max_u32(a->block_ns, a->stream_ns), max_u32(a->piece_ns, max_u32(a->slot_ns, a->split_ns)));
  return in_range("an estimate of the attention", most, 0, ESTIMATE_MAX);
}

const reading checks_attn_cut = {describe, values};
