/* self_check/kv_rope.c - the probes of the op `kv_rope` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

typedef struct rope_form {
  u32 heads, kv_heads, head_dim, v_dim, rope_dim; /* rope_dim: 0: nothing is rotated */
  bool halves, has_bias, has_norm, norms_row;
  u32 kv_format;
} rope_form;

/* More heads than warps; norms whose order shows; KV rows of three sequences in turn. The last two have heads of more than 128 columns. */
static const rope_form forms[] = {
    {.heads = 9, .kv_heads = 3, .head_dim = 128, .v_dim = 128, .rope_dim = 128, .halves = true, .has_bias = true},
    {.heads = 8, .kv_heads = 2, .head_dim = 128, .v_dim = 128, .rope_dim = 128, .halves = true, .has_norm = true},
    {.heads = 6, .kv_heads = 3, .head_dim = 96, .v_dim = 96, .rope_dim = 96, .halves = true, .has_norm = true, .norms_row = true},
    {.heads = 4, .kv_heads = 2, .head_dim = 80, .v_dim = 64, .rope_dim = 40, .has_bias = true, .kv_format = KV_FP8},
    {.heads = 4, .kv_heads = 1, .head_dim = 64, .v_dim = 64, .has_norm = true, .has_bias = true, .kv_format = KV_FP8},
    {.heads = 9, .kv_heads = 1, .head_dim = 256, .v_dim = 256, .rope_dim = 192, .halves = true, .has_norm = true},
    {.heads = 3, .kv_heads = 1, .head_dim = 192, .v_dim = 128, .rope_dim = 192, .has_bias = true, .has_norm = true, .norms_row = true},
};

static const bf16 *take_weights(self_check_image *image, u32 count) {
  bf16 *out = take(image, count * 2ull);
  fill_bf16(image, out, count, -2, 3);
  return out;
}

/* With a norm one number of each head is large, or of a row only those of the first KV head. */
static void fill_row(self_check_image *image, const rope_form *f, f32 *x) {
  const u32 normal = (f->heads / f->kv_heads + 1) * f->head_dim, width = normal + f->v_dim;
  for (u32 h = 0; h < f->kv_heads; h++) {
    if (f->has_norm) fill_spiky(image, x + h * width, normal, f->head_dim);
    else fill_f32(image, x + h * width, normal, -4, 8);
    for (u32 i = 0; i < normal && f->norms_row && h > 0; i += f->head_dim) x[h * width + i] = x[1];
    fill_f32(image, x + h * width + normal, f->v_dim, -4, 8);
  }
}

static void build(self_check_image *image) {
  enum { LENGTH = 131 };
  const rope_form *f = &forms[image->form];
  const u32 tokens = mixed_places.count, queries = f->heads * f->head_dim, keys = f->kv_heads * f->head_dim;
  const u32 values = f->kv_heads * f->v_dim, columns = queries + keys + values;
  kv_rope_args a = {.step = take_step(image, tokens, 0, 0), .x_stride = columns + 8, .heads = f->heads, .kv_heads = f->kv_heads,
                    .head_dim = f->head_dim, .v_dim = f->v_dim, .rope_dim = f->rope_dim, .block_table_stride = 3, .eps = 1e-6f,
                    .half_split = f->halves, .norms_row = f->norms_row, .kv_format = f->kv_format};
  take_places(image, &mixed_places, &a.position, &a.seq, &a.block_table);
  f32 *x = take(image, (tokens + 1) * a.x_stride * 4ull);
  for (u32 t = 0; t < tokens; t++) fill_row(image, f, x + t * a.x_stride);
  a.x = x;
  if (f->has_bias) a.bias = take_weights(image, columns);
  if (f->has_norm) {
    a.q_norm = take_weights(image, f->norms_row ? queries : f->head_dim);
    a.k_norm = take_weights(image, f->norms_row ? keys : f->head_dim);
  }
  if (f->rope_dim) {
    f32 *cos_sin = take(image, (u64)LENGTH * f->rope_dim * 4);
    fill_f32(image, cos_sin, LENGTH * f->rope_dim, -8, 8);
    a.cos_sin = cos_sin;
  }
  if (f->kv_format == KV_FP8) a.kv_scale = take_layer_scale(image);
  a.q_out = take(image, (tokens + 1) * queries * 2ull);
  a.kv = take(image, (u64)PLACED_PAGES * PAGE_TOKENS * (keys + values) * (f->kv_format == KV_FP8 ? 1 : 2));
  LAUNCH(image, a, tokens + 1, 2, 1);
}

/* rank: the columns of the widest head. */
static const self_check_probe probes[] = {
    {26, 0, 128, 0, "128, halves, bias", "4d4548e94d6a8fb251c259d2ed993de3"},
    {26, 1, 128, 0, "128, halves, norms of heads", "809225b0df122ceaa34a2a78c940a430"},
    {26, 2, 128, 0, "96, halves, norms of rows", "e71a0b69eed1f209a694207a9e4e88f9"},
    {26, 3, 128, 0, "80, neighbours in a part, bias, codes", "e31cbbf3ab9ad2a7565872d7bb0d0ead"},
    {26, 4, 128, 0, "64, not rotated, bias, norms of heads, codes", "6d82b8107869994fa9b40f7e9ba5c4a2"},
    {26, 5, 256, 0, "256, halves in a part, norms of heads", "8670105173eebc4dce6a99233e625f1a"},
    {26, 6, 256, 0, "192 and 128, neighbours, bias, norms of rows", "48cfcf772caf65cc34db74f84e22ca2a"},
};

const self_check_op self_check_kv_rope = {build, ARRAY_LEN(probes), probes};
