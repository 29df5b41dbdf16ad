/* attn_codes.c - every e4m3 code of KV rows under many scales, read through mla_attn. NUMERICS.md, "KV row", R4.11, R4.12.
 *
 * A query gives one row of its context the probability 1 and all others 0, so that the output is that row's latent columns bit for bit,
 * except for the sign of zeros. Rope columns of codes show in the probabilities; codes and products that are not finite show in the outputs
 * that they turn into NaN. The scales: all powers of two, ones for which rounding twice gives another result than rounding once, and ones
 * of every size; those that cache rows are written with lie between 2^-23 and 2^121. Expected values come from the definition of e4m3 and
 * binary64. */
#include "attn_codes.h"
#include <math.h>

enum { LIST = 64, POWERS = 277, TWICE = 16, SCALES = 640, CODE_ONE = 0x38, CODE_256 = 0x78, GRID = 32 };

/* Contexts of `rows` rows, and tokens that each see one of them. With index lists the rows of all contexts belong to one request. */
typedef struct code_case {
  kernel_test *test;
  attn_shape s;
  u32 contexts, rows, tokens_each;
  mla_attn_args args;
  u8 *kv;
  u32 *table;
  bf16 *q, *out;
} code_case;

static f32 code_number(u8 code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  if ((code & 0x7f) == 0x7f) return NAN;
  const double magnitude = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
  return (f32)(code & 0x80 ? -magnitude : magnitude);
}

static bf16 widened(u8 code, f32 scale) { return num_to_bf16((f32)((double)code_number(code) * (double)scale)); }

static bool is_number(bf16 x) { return (x & 0x7f80u) != 0x7f80u; }

/* === Cases ============================================================================================================== */

static u32 case_tokens(const code_case *c) { return c->contexts * c->tokens_each; }

static u8 *row_of(const code_case *c, u32 context, u32 row) {
  const u32 position = c->s.list_max ? row * c->contexts + context : row, first = c->s.list_max ? 0 : context;
  const u64 at = (u64)c->table[first + position / 64] * 64 + position % 64;
  return c->kv + at * KV_ROW_BYTES(c->s.format, c->s.rank, c->s.rope);
}

static bf16 *q_of(const code_case *c, u32 token, u32 head) {
  return c->q + ((size_t)token * c->s.heads + head) * (c->s.rank + c->s.rope);
}

static const bf16 *out_of(const code_case *c, u32 token, u32 head) { return c->out + ((size_t)token * c->s.heads + head) * c->s.rank; }

static void make_lists(code_case *c) {
  u32 *lists = kernel_test_input(c->test, (size_t)case_tokens(c) * LIST * 4);
  for (u32 i = 0; i < case_tokens(c) * LIST; i++)
    lists[i] = i % LIST < c->rows ? i % LIST * c->contexts + i / LIST / c->tokens_each : 0xffffffffu;
  c->args.lists = lists;
  c->args.list_max = LIST;
}

/* Queries and rows are zeros; rows that no token sees stay poison. */
static void start(code_case *c) {
  const attn_shape *s = &c->s;
  c->s.chunk_tokens = 64;
  c->s.group_chunks = 2;
  const u32 tokens = case_tokens(c), width = s->rank + s->rope, pages = s->list_max ? (c->contexts * c->rows + 63) / 64 : c->contexts;
  assert_true(pages % 7 != 0);
  kernel_test_start(c->test);
  c->args = (mla_attn_args){.step = kernel_test_step(c->test, tokens, 0, tokens)};
  attn_tile *tiles = kernel_test_input(c->test, tokens * sizeof *tiles);
  for (u32 t = 0; t < tokens; t++) {
    const u32 context = t / c->tokens_each;
    tiles[t] = s->list_max ? (attn_tile){t, 1, 0, c->contexts * c->rows - 1} : (attn_tile){t, 1, context, c->rows - 1};
  }
  c->q = kernel_test_input(c->test, (size_t)(tokens + 2) * s->heads * width * 2);
  memset(c->q, 0, (size_t)tokens * s->heads * width * 2);
  c->kv = kernel_test_input(c->test, (size_t)pages * 64 * KV_ROW_BYTES(s->format, s->rank, s->rope));
  c->table = kernel_test_input(c->test, (size_t)pages * 4);
  for (u32 i = 0; i < pages; i++) c->table[i] = (i * 7 + 1) % pages;
  for (u32 i = 0; i < c->contexts * c->rows; i++)
    memset(row_of(c, i / c->rows, i % c->rows), 0, KV_ROW_BYTES(s->format, s->rank, s->rope));
  f32 *kv_scale = kernel_test_input(c->test, sizeof *kv_scale);
  if (s->list_max) make_lists(c);
  c->out = kernel_test_output(c->test, (size_t)tokens * s->heads * s->rank * 2);
  c->args.scratch = kernel_test_scratch(c->test, (size_t)GRID * 2 * 64 * (s->rank + 2) * 4);
  c->args.meetings = kernel_test_scratch(c->test, ATTN_MEETINGS * 4);
  memset(c->args.meetings, 0, ATTN_MEETINGS * 4);
  c->args.tiles = tiles;
  c->args.q = c->q;
  c->args.kv = c->kv;
  c->args.kv_scale = s->format == KV_FP8 ? kv_scale : NULL;
  c->args.kv_format = s->format;
  c->args.block_table = c->table;
  c->args.out = c->out;
  c->args.heads = s->heads;
  c->args.kv_lora_rank = s->rank;
  c->args.rope_dim = s->rope;
  c->args.block_table_stride = s->list_max ? pages : 1;
  c->args.chunk_tokens = s->chunk_tokens;
  c->args.group_chunks = s->group_chunks;
  c->args.scale_log2 = 0x1p30f; /* a score of 1 is far above one of 0, and its probability is 1 */
}

static void run(code_case *c) {
  kernel_variant variants[ATTN_VARIANTS];
  const u32 count = attn_variants(&c->s, case_tokens(c), case_tokens(c), GRID, variants);
  kernel_test_run(c->test, &c->args, variants, count);
}

/* === Numbers ============================================================================================================ */

/* Whether bf16(code * scale) changes if the product is first rounded to fp32. */
static bool rounds_twice(u8 code, f32 scale) {
  int exponent;
  const double fraction = frexp((double)code_number(code) * (double)scale, &exponent);
  return num_from_bf16(widened(code, scale)) != (f32)ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

static void make_scales(cases *r, f32 scales[SCALES]) {
  u32 n = 0, found = 0;
  for (; n < POWERS; n++) scales[n] = ldexpf(1, (int)n - 149);
  for (u32 i = 0; i < 4000000 && found < TWICE; i++) {
    const f32 scale = ldexpf((f32)(0x800000u | cases_bits(r) >> 9), -30 - (int)cases_below(r, 8));
    bool is = false;
    for (u8 code = CODE_ONE; code < CODE_ONE + 8; code++) is = is || rounds_twice(code, scale);
    if (is) scales[n + found++] = scale;
  }
  assert_int_equal(found, TWICE);
  for (n += found; n < SCALES; n++) {
    const u32 bits = cases_bits(r), any = bits % 0x7f800000u, power = (any & 0x7f800000u) | 0x800000u;
    if (n % 4 == 0) scales[n] = num_float(any ? any : 1);                                               /* of any size          */
    else if (n % 4 == 1) scales[n] = num_float(power + (bits & 1 ? 1 : 0xffffffffu));                   /* next to powers of two */
    else if (n % 4 == 2) scales[n] = num_float(0x3f800000u - (bits >> 28 << 23) - (bits & 0x7fffffu));  /* like those of typical rows */
    else scales[n] = num_float(any & 0xffff0000u ? any & 0xffff0000u : 0x10000u);                       /* bf16 numbers         */
  }
}

/* Number i of a row's latent columns: all codes except those that are not finite under the scale, at different places in different rows. */
static u8 code_at(const code_case *c, u32 row, u32 i, f32 scale) {
  const u32 half = c->s.format == KV_FP8 ? (i + row * 5) / 128 : row * 4 + i / 128;
  const u8 code = (u8)(half % 2 * 128 + (i + row * 5) % 128);
  return is_number(widened(code, scale)) ? code : 0;
}

/* Each (token, head) gives its row a rope column of its own; q and `code` make a score of about 1. */
static void select_rows(code_case *c, u8 code, f32 scale) {
  const attn_shape *s = &c->s;
  int exponent = 0;
  if (s->format == KV_FP8) frexp((double)num_from_bf16(widened(code, scale)), &exponent);
  for (u32 t = 0; t < case_tokens(c); t++) {
    for (u32 h = 0; h < s->heads; h++) {
      const u32 row = t % c->tokens_each * s->heads + h;
      const int up = 1 - exponent < -126 ? -126 : 1 - exponent > 127 ? 127 : 1 - exponent;
      u8 *at = row_of(c, t / c->tokens_each, row) + s->rank;
      if (s->format == KV_FP8) at[row] = code;
      else memcpy(at + s->rank / 128 * 4 + row * 2, &(bf16){0x3f80}, 2);
      q_of(c, t, h)[s->rank + row] = num_to_bf16(ldexpf(1, up));
    }
  }
}

static void check_numbers(const code_case *c, const f32 *scales) {
  const attn_shape *s = &c->s;
  for (u32 t = 0; t < case_tokens(c); t++) {
    for (u32 h = 0; h < s->heads; h++) {
      const u32 row = t / c->tokens_each * 64 + t % c->tokens_each * s->heads + h;
      for (u32 i = 0; i < s->rank; i++) {
        const f32 scale = s->format == KV_FP8 ? scales[0] : scales[(row * 4 + i / 128) / 2];
        const bf16 want = widened(code_at(c, row, i, scale), scale), got = out_of(c, t, h)[i];
        if (got != (want & 0x7fffu ? want : 0)) print_error("code %#x by %a: %#x\n", code_at(c, row, i, scale), (double)scale, got);
        assert_int_equal(got, want & 0x7fffu ? want : 0);
      }
    }
  }
}

/* KV_FP8_DS_MLA: five blocks of 64 rows, each scale twice, for half of the codes each time. */
static void scaled_numbers(kernel_test *test, u32 heads, u32 list_max, const f32 *scales) {
  code_case c = {.test = test, .s = {.heads = heads, .rank = 512, .rope = 64, .format = KV_FP8_DS_MLA, .list_max = list_max}};
  c.contexts = SCALES * 2 / 4 / 64;
  c.rows = 64;
  c.tokens_each = 64 / heads;
  start(&c);
  for (u32 row = 0; row < c.contexts * 64; row++) {
    u8 *at = row_of(&c, row / 64, row % 64);
    for (u32 i = 0; i < 512; i++) {
      const f32 scale = scales[(row * 4 + i / 128) / 2];
      at[i] = code_at(&c, row, i, scale);
      if (i % 128 == 0) memcpy(at + 512 + i / 128 * 4, &scale, 4);
    }
  }
  select_rows(&c, CODE_ONE, 1.0f);
  run(&c);
  check_numbers(&c, scales);
}

/* KV_FP8: a block of 64 rows under the layer's one scale. */
static void plain_numbers(kernel_test *test, f32 scale) {
  code_case c = {.test = test, .s = {.heads = 8, .rank = 256, .rope = 64, .format = KV_FP8}, .contexts = 1, .rows = 64, .tokens_each = 8};
  start(&c);
  *(f32 *)(uintptr_t)c.args.kv_scale = scale;
  for (u32 row = 0; row < 64; row++)
    for (u32 i = 0; i < 256; i++) row_of(&c, 0, row)[i] = code_at(&c, row, i, scale);
  select_rows(&c, scale < 0x1p-100f ? CODE_256 : CODE_ONE, scale);
  run(&c);
  check_numbers(&c, &scale);
}

/* === Rope columns of codes ============================================================================================== */

/* Two rows, the first all zeros: the probability of the second one is about 2^-4 to 2^-8, and each query shows one of its rope columns. */
static void rope_numbers(kernel_test *test, f32 scale) {
  code_case c = {.test = test, .s = {.heads = 8, .rank = 256, .rope = 64, .format = KV_FP8}, .contexts = 4, .rows = 2, .tokens_each = 8};
  start(&c);
  *(f32 *)(uintptr_t)c.args.kv_scale = scale;
  c.args.scale_log2 = 1.0f;
  bf16 kv[2 * 320] = {0};
  for (u32 context = 0; context < 4; context++)
    for (u32 i = 0; i < 320; i++) row_of(&c, context, 1)[i] = i < 256 ? CODE_ONE : (u8)(context * 64 + (i - 256) * 29 % 64);
  for (u32 i = 0; i < 256; i++) {
    const u32 column = 256 + i % 64;
    u8 *code = &row_of(&c, i / 64, 1)[column];
    if (!is_number(widened(*code, scale))) *code = 0;
    int exponent;
    const f32 x = num_from_bf16(widened(*code, scale));
    frexp((double)x, &exponent);
    q_of(&c, i / 8, i % 8)[column] = num_to_bf16((x > 0 ? -1.0f : 1.0f) * ldexpf(1, 3 - exponent));
  }
  run(&c);
  for (u32 i = 0; i < 256; i++) {
    const bf16 *q = q_of(&c, i / 8, i % 8);
    for (u32 k = 0; k < 320; k++) kv[320 + k] = widened(row_of(&c, i / 64, 1)[k], scale);
    const attn_context context = {kv, &(u32){0}, NULL, 1};
    attn_result r;
    attn_unit(&r, &c.s, q, &context, 0, 1, 1.0f);
    assert_int_equal(out_of(&c, i / 8, i % 8)[i], num_to_bf16(r.o[i] * (1 / r.l) + 0.0f));
  }
}

/* === Codes and products that are not finite ============================================================================= */

/* The code in the only nonzero column of the second row. */
static u8 strange_code(u32 n, f32 *scale) {
  const f32 high = 0x1p120f, edge = 0x1.ff8p127f / 1.875f;
  const u8 codes[] = {0x7f, 0xff, 0x7e, 0xfe, 0x78, 0xf8, 0x3f, 0xbf, 0x00, 0x00};
  const f32 scales[] = {0x1p-3f, 0x1.8p5f, high, high, high, high, nextafterf(edge, INFINITY), nextafterf(edge, INFINITY), NAN, INFINITY};
  *scale = scales[n % ARRAY_LEN(scales)];
  return codes[n % ARRAY_LEN(codes)];
}

/* A query whose score of the second row is -Inf gives NaN in a column that holds Inf, and zero in all others; if the column holds NaN, or
 * the score is 0 * Inf, all outputs are NaN. */
static void strange_numbers(kernel_test *test, u32 heads, u32 list_max) {
  code_case c = {.test = test, .s = {.heads = heads, .rank = 512, .rope = 64, .format = KV_FP8_DS_MLA, .list_max = list_max}};
  c.contexts = 40;
  c.rows = 2;
  c.tokens_each = 1;
  start(&c);
  for (u32 n = 0; n < c.contexts; n++) {
    const u32 column = n * 131 % 512;
    u8 *row = row_of(&c, n, 1);
    f32 scale;
    row[column] = strange_code(n, &scale);
    const bf16 x = widened(row[column], scale);
    memcpy(row + 512 + column / 128 * 4, &scale, 4);
    for (u32 h = 0; h < heads; h += 2) q_of(&c, n, h)[column] = x >> 15 ? 0x3f80 : 0xbf80;
  }
  run(&c);
  for (u32 n = 0; n < c.contexts; n++) {
    f32 scale;
    const u8 code = strange_code(n, &scale);
    const bf16 x = widened(code, scale);
    assert_false(is_number(x));
    for (u32 i = 0; i < heads * 512; i++) {
      const bool is_nan = i / 512 % 2 || (x & 0x7fffu) > 0x7f80u || i % 512 == n * 131 % 512;
      assert_int_equal(out_of(&c, n, i / 512)[i % 512], is_nan ? 0x7fff : 0);
    }
  }
}

void attn_codes_run(kernel_test *test) {
  static const f32 layer[] = {0x1p-140f, 0x1p-127f, 0x1.fp-126f, 0x1p-20f, 0x1.000002p-9f, 0x1.921fb6p-5f, 0x1.fffffep-3f, 1,
                              0x1.8p0f, 0x1p60f, 0x1.234568p118f, 0x1p121f, 0x1.5p126f};
  cases r = {.state = 0xe4a3};
  f32 scales[SCALES];
  make_scales(&r, scales);
  for (u32 i = 0; i < 4; i++) {
    scaled_numbers(test, i / 2 ? 32 : 16, i % 2 ? LIST : 0, scales);
  }
  scaled_numbers(test, 64, 0, scales);
  scaled_numbers(test, 64, LIST, scales);
  strange_numbers(test, 16, 0);
  strange_numbers(test, 16, LIST);
  strange_numbers(test, 64, LIST);
  for (u32 i = 0; i < ARRAY_LEN(layer); i++) plain_numbers(test, layer[i]);
  for (u32 i = 3; i < 8; i++) rope_numbers(test, layer[i]);
}
