/* self_check/mla_expand.c - the probes of the op `mla_expand` and their known answers. See self_check/cases.h. */
#include "kernels_src/attn/contexts.h"
#include "self_check/images.h"

bool self_check_mla_expand_has_pieces(uint32_t form) { return form >= 4; }

/* Page i of kv is page i of the second piece. The rows after the end of a context are zeros, as kv_widen makes them. */
static const bf16 *take_piece(self_check_image *image, const mla_expand_args *a) {
  const u32 columns = a->kv_lora_rank + a->rope_dim;
  bf16 *kv = take(image, (u64)a->piece_pages * PAGE_TOKENS * columns * 2);
  for (u32 slot = 0; slot < a->piece_pages; slot++) {
    const u32 page = a->piece * a->piece_pages + slot;
    const step_context c = contexts_find(a->contexts, CONTEXTS, page);
    const u32 left = c.tokens - (page - c.first) * PAGE_TOKENS, live = left < PAGE_TOKENS ? left : PAGE_TOKENS;
    bf16 *rows = kv + (u64)slot * PAGE_TOKENS * columns;
    fill_bf16(image, rows, live * columns, -6, 6);
    memset(rows + live * columns, 0, (u64)(PAGE_TOKENS - live) * columns * 2);
  }
  return kv;
}

/* Pages of all contexts, in the order of the block table. */
static const bf16 *take_pages(self_check_image *image, const mla_expand_args *a) {
  const u32 columns = a->kv_lora_rank + a->rope_dim;
  bf16 *kv = take(image, (u64)CONTEXT_PAGES * PAGE_TOKENS * columns * 2);
  memset(kv, 0, (u64)CONTEXT_PAGES * PAGE_TOKENS * columns * 2); /* whole pages are expanded, and the reference writes zeros after a
                                                                    context */
  for (u32 c = 0; c < CONTEXTS; c++)
    for (u32 i = 0; i < a->contexts[c].tokens; i++) {
      u32 page = a->block_table[a->contexts[c].seq * CONTEXT_STRIDE + i / PAGE_TOKENS];
      fill_bf16(image, kv + ((u64)page * PAGE_TOKENS + i % PAGE_TOKENS) * columns, columns, -6, 6);
    }
  return kv;
}

/* Forms 0 and 2: the first piece, of four pages. 1 and 3: the second piece, of one page. Forms 2 and 3 have shorter rows. 4: the second
 * piece of two pages, without a block table. */
static void build(self_check_image *image) {
  enum { N = 136 };
  const bool has_pieces = self_check_mla_expand_has_pieces(image->form), is_long = image->form < 2 || has_pieces;
  const u32 rank = is_long ? 512 : 256, rope = is_long ? 64 : 32;
  mla_expand_args a = {.n = N, .kv_lora_rank = rank, .rope_dim = rope, .block_table_stride = CONTEXT_STRIDE,
                       .piece_pages = has_pieces ? 2 : 4, .piece = has_pieces || image->form % 2};
  a.step = take_contexts(image, &a.contexts, &a.block_table);
  a.kv = has_pieces ? take_piece(image, &a) : take_pages(image, &a);
  bf16 *w = take(image, (u64)N * rank * 2);
  if (has_pieces) a.block_table = NULL;
  fill_bf16(image, w, N * rank, -8, 8);
  a.w = w;
  a.y = take(image, (u64)a.piece_pages * PAGE_TOKENS * (N + rope) * 2);
  LAUNCH(image, a, N, 1, 1); /* fewer blocks than tiles */
}

static const self_check_probe probes[] = {
    {15, 0, 0, 0, "512 + 64, first piece", "12dda9148f4f8ec81df18e80b903319f"},
    {15, 1, 0, 0, "512 + 64, last piece", "57c40f7f20a97bbc0af55515bafd9f07"},
    {15, 2, 0, 0, "256 + 32, first piece", "1f4f865a79e584f033dcdb5dded96447"},
    {15, 3, 0, 0, "256 + 32, last piece", "bbe56002771e1a3caac7c61806ae4bae"},
    {15, 4, 0, 0, "512 + 64, rows of kv_widen", "bd0cc3c2a1e7057952895657132c2d00"},
};

const self_check_op self_check_mla_expand = {build, ARRAY_LEN(probes), probes};
