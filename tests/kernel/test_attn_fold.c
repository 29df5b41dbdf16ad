/* test_attn_fold.c - attn_fold: few units and many, interleaved units of a tile's tokens, tokens without units, heads of every size;
 * against the combination that NUMERICS.md defines, and binary64. test_attn checks the content of the units. */
#include "attn/attn_cut.h"
#include "kernel_test.h"

/* units: most of a token. per_tile: number of tokens whose units are interleaved. */
typedef struct fold_shape { u32 tokens, heads, v, units, per_tile; } fold_shape;

/* One column of a token's units from the first on, combined as NUMERICS.md states and by their definition in binary64. */
static bf16 combined(const attn_fold_args *a, const attn_part *part, u32 head, u32 column, double *exact) {
  f32 m = 0, l = 0, o = 0;
  double top = -INFINITY, weights = 0, sum = 0;
  for (u32 pass = 0; pass < 2; pass++) /* the largest m, then the sums relative to it */
    for (u32 u = 0; u < part->units; u++) {
      const size_t at = (part->first + (size_t)u * part->step) * a->heads + head;
      const f32 m_b = a->partial_ml[2 * at], l_b = a->partial_ml[2 * at + 1], o_b = a->partial_o[at * a->v_dim + column];
      if (pass == 0) {
        top = fmax(top, (double)m_b);
        continue;
      }
      weights += (double)l_b * exp2((double)m_b - top);
      sum += (double)o_b * exp2((double)m_b - top);
      const f32 most = u == 0 || m_b > m ? m_b : m, fa = num_exp2_int(m - most), fb = num_exp2_int(m_b - most);
      o = u == 0 ? o_b : fmaf(o_b, fb, o * fa);
      l = u == 0 ? l_b : fmaf(l_b, fb, l * fa);
      m = most;
    }
  *exact = sum / weights;
  return num_to_bf16(o * (1 / l) + 0.0f);
}

static void check_query(const attn_fold_args *a, const attn_part *part, u32 head) {
  for (u32 i = 0; i < a->v_dim; i++) {
    double exact;
    const bf16 got = a->out[((size_t)part->token * a->heads + head) * a->v_dim + i];
    assert_int_equal(got, combined(a, part, head, i, &exact));
    kernel_test_near((double)num_from_bf16(got), exact, 0x1.02p-8, 2e-4);
  }
}

static void fill_unit(cases *c, const fold_shape *s, f32 *o, f32 *ml, size_t row) {
  for (u32 h = 0; h < s->heads; h++) {
    const size_t at = row * s->heads + h;
    ml[2 * at] = (f32)((i32)cases_below(c, h % 2 ? 4 : 160) - 20); /* close, or so far apart that a factor is sometimes 0 */
    ml[2 * at + 1] = cases_uniform(c, 30) + 31;
    kernel_test_floats(c, o + at * s->v, s->v, 50);
  }
}

/* The first tile has most units; every third one is not split. Slots without a unit stay poison. Returns the number of parts: tokens of the
 * last tiles come first. */
static u32 fill_parts(cases *c, const fold_shape *s, attn_part *parts, f32 *o, f32 *ml) {
  u32 slot = 1, count = 0, tiles = (s->tokens + s->per_tile - 1) / s->per_tile;
  for (u32 tile = tiles; tile-- > 0;) {
    const u32 units = tile == 0 ? s->units : tile % 3 == 1 ? 0 : 2 + cases_below(c, s->units - 1);
    for (u32 i = 0; i < s->per_tile && units && tile * s->per_tile + i < s->tokens; i++) {
      parts[count++] = (attn_part){.token = tile * s->per_tile + i, .first = slot + i, .step = s->per_tile, .units = units};
      for (u32 u = 0; u < units; u++) fill_unit(c, s, o, ml, slot + i + (size_t)u * s->per_tile);
    }
    slot += units * s->per_tile;
  }
  return count;
}

static void fold_case(kernel_test *test, const fold_shape *s) {
  cases c = {.state = s->tokens * 1000003u + s->heads * 31 + s->v + s->units};
  const size_t slots = (size_t)s->tokens * s->units + s->per_tile * s->units + 1, row = (size_t)s->heads * s->v, outputs = s->tokens * row;
  kernel_test_start(test);
  attn_fold_args args = {.step = kernel_test_step(test, s->tokens, 0, 1), .heads = s->heads, .v_dim = s->v, .slots_max = (u32)slots};
  attn_part *parts = kernel_test_input(test, (s->tokens + 1) * sizeof *parts);
  f32 *o = kernel_test_input(test, slots * row * 4), *ml = kernel_test_input(test, slots * s->heads * 8);
  bf16 *out = kernel_test_output(test, (outputs + row) * 2);
  attn_counts *counts = kernel_test_input(test, sizeof *counts);
  bool is_cut[64] = {false};
  *counts = (attn_counts){.parts = fill_parts(&c, s, parts, o, ml), .piece_chunks = 1, .units_most = s->units};
  kernel_test_keep(test, out + outputs, row * 2);
  for (u32 i = 0; i < counts->parts; i++) is_cut[parts[i].token] = true;
  for (u32 t = 0; t < s->tokens; t++)
    if (!is_cut[t]) kernel_test_keep(test, out + t * row, row * 2);
  args.counts = counts;
  args.parts = parts;
  args.partial_o = o;
  args.partial_ml = ml;
  args.out = out;
  const kernel_variant variants[] = {{.grid = {1, 1, 1}, .threads = 64, .shared_bytes = ATTN_FOLD_BYTES(64)},
                                     {.grid = {7, 1, 1}, .threads = 64, .shared_bytes = ATTN_FOLD_BYTES(64)}};
  kernel_test_run(test, &args, variants, ARRAY_LEN(variants));
  for (u32 i = 0; i < counts->parts * s->heads; i++) check_query(&args, &parts[i / s->heads], i % s->heads);
}

static void fold_cases(kernel_test *test) {
  static const fold_shape shapes[] = {
      {1, 1, 64, 2, 1},   {4, 2, 128, 9, 1},  {6, 16, 80, 10, 2}, {3, 40, 128, 12, 1}, {1, 4, 96, 300, 1}, {2, 3, 256, 33, 1},
      {6, 8, 192, 32, 3}, {5, 3, 16, 31, 1},  {40, 2, 64, 90, 4}, {1, 2, 48, 65, 1},
      {36, 32, 128, 8, 1}, /* enough outputs for the order of the combination to show in bf16 */
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) fold_case(test, &shapes[i]);
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "attn_fold", "c1f8b84a74066e12ef7e38b31010f3e8", fold_cases); }
