/* self_check/mla_prefill.c - the probes of the op `mla_prefill` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* Three tiles of one context that cross the edge of a page and of a pair of pages, each one block after the previous. Forms 0 and 4: all
 * pages in one piece. 1 and 5: the last piece, after another. 2 and 6: a piece before the last, whose state is judged. From 4 on with 32
 * rope columns. */
static void build(self_check_image *image) {
  enum { HEADS = 1, TOKENS = 11, PAGES = 3 };
  static const attn_tile tile[] = {{.row = 0, .count = 6, .seq = 1, .position = 61}, {.row = 6, .count = 3, .seq = 1, .position = 128},
                                   {.row = 9, .count = 2, .seq = 1, .position = 126}};
  const u32 nope = image->kv_lora_rank, v = image->rope_dim, rope = image->form >= 4 ? 32 : 64, part = image->form % 4;
  const u32 pages = part ? 2 : PAGES, columns = HEADS * (nope + v) + rope;
  mla_prefill_args a = {.heads = HEADS, .nope_dim = nope, .rope_dim = rope, .v_dim = v, .q_rope_stride = rope, .piece_pages = pages,
                        .piece = part == 1, .scale_log2 = 0x1.2p-4f};
  step_in *step = take(image, sizeof *step);
  attn_tile *tiles = take(image, sizeof tile);
  step_context *contexts = take(image, 2 * sizeof *contexts);
  *step = (step_in){.token_count = TOKENS, .tile_count = ARRAY_LEN(tile), .seq_count = 2};
  memcpy(tiles, tile, sizeof tile);
  contexts[0] = (step_context){.first = 0, .tokens = 1, .seq = 1};
  contexts[1] = (step_context){.first = part ? 1 : 0, .tokens = 131, .seq = 0};
  bf16 *q_nope = take(image, (TOKENS + 1) * HEADS * nope * 2), *q_rope = take(image, (TOKENS + 1) * HEADS * rope * 2);
  bf16 *expanded = take(image, (u64)pages * PAGE_TOKENS * columns * 2);
  const u32 first = contexts[1].first > 0 && part == 2 ? PAGE_TOKENS : 0, last = part == 1 ? 131 - PAGE_TOKENS : part == 2 ? 128 : 131;
  fill_bf16(image, q_nope, TOKENS * HEADS * nope, -5, 6);
  fill_bf16(image, q_rope, TOKENS * HEADS * rope, -5, 6);
  for (u32 i = first; i < last; i++) /* the exponent of the probabilities moves from page to page */
    fill_bf16(image, expanded + (u64)i * columns, columns, i % 37 == 5 ? -3 + 4 * (i32)(i / PAGE_TOKENS) : -6, 6);
  f32 *state = take(image, TOKENS * HEADS * (v + 2) * 4);
  for (u32 i = 0; i < TOKENS * HEADS && part == 1; i++) {
    fill_f32(image, state + (u64)i * (v + 2), v, -6, 12);
    state[(u64)i * (v + 2) + v] = (f32)random_below(image, 3) - 2.0f;
    state[(u64)i * (v + 2) + v + 1] = 1.0f + (f32)random_below(image, 1u << 20) * 0x1p-15f;
  }
  a.step = step, a.tiles = tiles, a.contexts = contexts, a.q_nope = q_nope, a.q_rope = q_rope, a.expanded = expanded, a.state = state;
  a.out = take(image, (TOKENS + 1) * HEADS * v * 2);
  image->launch->rows = TOKENS;
  LAUNCH(image, a, 1, 1, 1);
}

static const self_check_probe probes[] = {
    {16, 4, 64, 64, "whole, 64 + 32, 64", "1211b28e392bfa23b8b1df6b47a7ca19"},
    {16, 5, 64, 64, "after another piece, 64 + 32, 64", "b3c68e85d7e98c62e1366eeb1956946c"},
    {16, 6, 64, 64, "before another piece, 64 + 32, 64", "1e432f24b6ff705ae496ed7963d81749"},
    {16, 0, 64, 64, "whole, 64 + 64, 64", "de31d1fb26a7402b7210da01b7ec9f41"},
    {16, 1, 64, 64, "after another piece, 64 + 64, 64", "5a6230b7a965b95d3d5bb447e7078ff8"},
    {16, 2, 64, 64, "before another piece, 64 + 64, 64", "12bdf6c8d2c0e8f90bd9dfa3bd1f8845"},
    {16, 0, 64, 128, "whole, 64 + 64, 128", "632652bd5532bd98e2f755ba43ff04c3"},
    {16, 1, 64, 128, "after another piece, 64 + 64, 128", "65514f1f0083f9d7981197f40acc1c59"},
    {16, 2, 64, 128, "before another piece, 64 + 64, 128", "f2f8ef302f782ddc1286da8a787e8463"},
    {16, 0, 128, 128, "whole, 128 + 64, 128", "29d82fd44a9d88b5aed1431121a22973"},
    {16, 1, 128, 128, "after another piece, 128 + 64, 128", "049712d0c6f68ad8f651b2c95013fec4"},
    {16, 2, 128, 128, "before another piece, 128 + 64, 128", "2975b1db3999c8b562321fdf14e7fbb2"},
    {16, 0, 192, 256, "whole, 192 + 64, 256", "d9b2ae0c8c4c3cd6d098ab2d6cf7fb3e"},
    {16, 1, 192, 256, "after another piece, 192 + 64, 256", "323ea1f4529d94a5c59a969e7eb504d4"},
    {16, 2, 192, 256, "before another piece, 192 + 64, 256", "7b615f66b8efdb20e1f79f7e705ad435"},
};

const self_check_op self_check_mla_prefill = {build, ARRAY_LEN(probes), probes};
