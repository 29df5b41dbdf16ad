/* self_check/mla_expand.c - the probes of the op `mla_expand` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* Forms 0 and 2: the first piece, of four pages. 1 and 3: the second piece, of one page. Forms 2 and 3 have shorter rows. */
static void build(self_check_image *image) {
  enum { N = 136, PIECE_PAGES = 4 };
  const u32 rank = image->form < 2 ? 512 : 256, rope = image->form < 2 ? 64 : 32, columns = rank + rope;
  mla_expand_args a = {.n = N, .kv_lora_rank = rank, .rope_dim = rope, .block_table_stride = CONTEXT_STRIDE,
                       .piece_pages = PIECE_PAGES, .piece = image->form % 2};
  a.step = take_contexts(image, &a.contexts, &a.block_table);
  bf16 *kv = take(image, (u64)CONTEXT_PAGES * PAGE_TOKENS * columns * 2), *w = take(image, (u64)N * rank * 2);
  memset(kv, 0, (u64)CONTEXT_PAGES * PAGE_TOKENS * columns * 2); /* whole pages are expanded, and the reference writes zeros after a
                                                                    context */
  for (u32 c = 0; c < CONTEXTS; c++)
    for (u32 i = 0; i < a.contexts[c].tokens; i++) {
      u32 page = a.block_table[a.contexts[c].seq * CONTEXT_STRIDE + i / PAGE_TOKENS];
      fill_bf16(image, kv + ((u64)page * PAGE_TOKENS + i % PAGE_TOKENS) * columns, columns, -6, 6);
    }
  fill_bf16(image, w, N * rank, -8, 8);
  a.kv = kv;
  a.w = w;
  a.y = take(image, (u64)PIECE_PAGES * PAGE_TOKENS * (N + rope) * 2);
  LAUNCH(image, a, N, 1, 1); /* fewer blocks than tiles */
}

static const self_check_probe probes[] = {
    {15, 0, 0, 0, "512 + 64, first piece", "12dda9148f4f8ec81df18e80b903319f"},
    {15, 1, 0, 0, "512 + 64, last piece", "57c40f7f20a97bbc0af55515bafd9f07"},
    {15, 2, 0, 0, "256 + 32, first piece", "1f4f865a79e584f033dcdb5dded96447"},
    {15, 3, 0, 0, "256 + 32, last piece", "bbe56002771e1a3caac7c61806ae4bae"},
};

const self_check_op self_check_mla_expand = {build, ARRAY_LEN(probes), probes};
