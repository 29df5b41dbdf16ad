/* self_check/kv_widen.c - the probes of the op `kv_widen` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"
#include "base/limits.h"

bool self_check_kv_widen_has_pieces(uint32_t form) { return form >= 3; }

/* Form 0: rows of 512 + 64 with scales of their own, of any kind. 1: powers of two. 2: rows of 256 + 32, the layer's scale. 3: as 0, the
 * second piece of two pages. No code is NaN. */
static void build(self_check_image *image) {
  const bool has_pieces = self_check_kv_widen_has_pieces(image->form), is_long = image->form != 2;
  const u32 rank = is_long ? 512 : 256, rope = is_long ? 64 : 32, format = is_long ? KV_FP8_DS_MLA : KV_FP8;
  const u32 row_bytes = KV_ROW_BYTES(format, rank, rope), coded = is_long ? rank : rank + rope, pages_max = has_pieces ? 2 : 6;
  kv_widen_args a = {.kv_lora_rank = rank, .rope_dim = rope, .block_table_stride = CONTEXT_STRIDE, .kv_format = format,
                     .pages_max = pages_max, .piece = has_pieces};
  f32 *kv_scale = take(image, 4);
  a.step = take_contexts(image, &a.contexts, &a.block_table);
  u8 *kv = take(image, (u64)CONTEXT_PAGES * PAGE_TOKENS * row_bytes);
  for (u32 i = 0; i < CONTEXT_PAGES * PAGE_TOKENS; i++) {
    u8 *row = kv + (u64)i * row_bytes;
    for (u32 j = 0; j < coded; j++) {
      const u8 code = (u8)random_below(image, 256);
      row[j] = (code & 0x7f) == 0x7f ? 0x7e : code;
    }
    if (format == KV_FP8) continue;
    f32 scale[4];
    fill_f32(image, scale, 4, -20, 30);
    for (u32 j = 0; j < 4; j++) scale[j] = num_float(num_bits(scale[j]) & (image->form == 1 ? 0x7f800000u : 0x7fffffffu));
    memcpy(row + rank, scale, sizeof scale);
    fill_bf16(image, (bf16 *)(void *)(row + rank + sizeof scale), rope, -6, 6);
  }
  *kv_scale = 0x1.9p-5f;
  a.kv = kv;
  a.kv_scale = format == KV_FP8 ? kv_scale : NULL;
  a.y = take(image, (u64)pages_max * PAGE_TOKENS * (rank + rope) * 2);
  if (!has_pieces) a.table = take(image, pages_max * 4);
  LAUNCH(image, a, 7, 1, 1);
}

static const self_check_probe probes[] = {
    {21, 0, 0, 0, "512 + 64, scales of fp32", "d1c92551782046b9760b08aa6c2deb60"},
    {21, 1, 0, 0, "512 + 64, scales that are powers of two", "b834b18b431f747b9dffd73e81155993"},
    {21, 2, 0, 0, "256 + 32, a scale of the layer", "72dbb1a81febc3269267439202d50647"},
    {21, 3, 0, 0, "512 + 64, the second piece", "be6d1de8011a083a411d7d7f706928ac"},
};

const self_check_op self_check_kv_widen = {build, ARRAY_LEN(probes), probes};
