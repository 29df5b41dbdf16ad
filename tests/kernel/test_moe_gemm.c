/* test_moe_gemm.c - moe_gemm: experts with none, one and many rows, gathered and plain rows; against the definition. */
#include "gemm_tiles.h"

typedef struct moe_shape { u32 tokens, top_k, experts, n, k, gathered, skew, is_silu; } moe_shape;

static const small_m_tile SMALL[] = {
    {.n = 16, .rows = 1, .k_blocks = 2, .stages = 3}, {.n = 64, .rows = 1, .k_blocks = 3, .stages = 2},
    {.n = 24, .rows = 8, .k_blocks = 2, .stages = 2}, {.n = 64, .rows = 16, .k_blocks = 1, .stages = 3},
    {.n = 48, .rows = 32, .k_blocks = 2, .stages = 3}};

static const large_m_tile LARGE[] = {{.n = 128, .rows = 256, .stages = 2, .cluster_columns = 1},
                                     {.n = 128, .rows = 128, .stages = 4, .cluster_columns = 2},
                                     {.n = 64, .rows = 64, .stages = 3, .cluster_columns = 1},
                                     {.n = 128, .rows = 192, .stages = 3, .cluster_columns = 2}};

/* Every number of CTAs must work: one, some, more than there are tiles. */
static u32 make_small(kernel_variant *variants, const moe_shape *s) {
  for (u32 i = 0; i < ARRAY_LEN(SMALL); i++) {
    variants[i] = small_m_variant(&SMALL[i], s->tokens, (s->experts + 1) * 4);
    variant_grid(&variants[i], 1 + i % 4, 1 + i % 2, 1);
  }
  return ARRAY_LEN(SMALL);
}

static u32 make_large(kernel_variant *variants, const moe_shape *s) {
  for (u32 i = 0; i < ARRAY_LEN(LARGE); i++) {
    const large_m_tile *t = &LARGE[i];
    variants[i] = large_m_variant(t, 5, t->n / 64, (t->n + t->rows) * 128, s->tokens, 4104);
    variant_grid(&variants[i], 1 + i, t->cluster_columns * (1 + i % 2), 1 + i / 3);
  }
  return ARRAY_LEN(LARGE);
}

static u32 make_variants(kernel_variant *variants, const moe_shape *s) {
  const u32 small = make_small(variants, s);
  return s->gathered ? small : small + make_large(variants + small, s);
}

/* Distributes the sorted rows over the experts; with skew most go to one. */
static void deal(cases *c, const moe_shape *s, u32 *first) {
  u32 pairs = s->tokens * s->top_k;
  memset(first, 0, (s->experts + 1) * sizeof *first);
  for (u32 p = 0; p < pairs; p++) first[1 + (s->skew && cases_below(c, 4) ? s->experts / 2 : cases_below(c, s->experts))]++;
  for (u32 e = 0; e < s->experts; e++) first[e + 1] += first[e];
}

static void moe_case(kernel_test *test, const moe_shape *s) {
  cases c = {.state = s->tokens * 1000003u + s->n * 1009 + s->k + s->experts};
  u32 pairs = s->tokens * s->top_k, rows = s->gathered ? s->tokens : pairs, ldx = s->k + 8, columns = s->is_silu ? s->n / 2 : s->n;
  size_t item = s->is_silu ? 2 : 4;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, s->tokens, 0, 0);
  u32 *first = kernel_test_input(test, (s->experts + 1) * 4), *row_token = kernel_test_input(test, (pairs + 4) * 4);
  bf16 *x = kernel_test_input(test, (size_t)(rows + 4) * ldx * 2), *w = kernel_test_input(test, (size_t)s->experts * s->n * s->k * 2);
  u8 *y = kernel_test_output(test, (size_t)(pairs + 4) * columns * item);
  kernel_test_keep(test, y + (size_t)pairs * columns * item, (size_t)4 * columns * item);
  deal(&c, s, first);
  for (u32 p = 0; p < pairs; p++) row_token[p] = cases_below(&c, s->tokens);
  for (u32 i = 0; i < rows; i++) cases_fill(&c, CASES_NORMAL, 0, x + (size_t)i * ldx, s->k);
  for (u32 i = 0; i < s->experts * s->n; i++) cases_fill(&c, CASES_NORMAL, 1, w + (size_t)i * s->k, s->k);
  moe_gemm_args args = {.step = step, .expert_first = first, .row_token = s->gathered ? row_token : NULL, .x = x, .w = w, .y = y};
  args.ldx = ldx;
  args.n = s->n;
  args.k = s->k;
  args.experts = s->experts;
  args.top_k = s->top_k;
  args.y_kind = s->is_silu ? Y_SILU : Y_F32;
  kernel_variant variants[16];
  kernel_test_run(test, &args, variants, make_variants(variants, s));
  for (u32 check = 0; check < kernel_test_checks(test, 300); check++) {
    u32 row = cases_below(&c, pairs), j = cases_below(&c, columns), expert = 0;
    while (row >= first[expert + 1]) expert++;
    const bf16 *a = x + (size_t)(s->gathered ? row_token[row] : row) * ldx;
    size_t at = (size_t)row * columns + j;
    f32 want = kernel_test_chain(a, w + ((size_t)expert * s->n + j) * s->k, 1, s->k, 0);
    if (!s->is_silu) {
      assert_true(num_bits(((f32 *)(void *)y)[at]) == num_bits(want));
      continue;
    }
    want = num_mul(num_silu(want), kernel_test_chain(a, w + ((size_t)expert * s->n + columns + j) * s->k, 1, s->k, 0));
    assert_int_equal(((bf16 *)(void *)y)[at], num_to_bf16(want));
  }
}

static void moe_cases(kernel_test *test) {
  static const moe_shape shapes[] = {
      {.tokens = 1, .top_k = 1, .experts = 1, .n = 8, .k = 64, .gathered = 1},
      {.tokens = 1, .top_k = 8, .experts = 64, .n = 64, .k = 128, .gathered = 1},
      {.tokens = 5, .top_k = 2, .experts = 4, .n = 72, .k = 64},
      {.tokens = 17, .top_k = 4, .experts = 8, .n = 128, .k = 192, .gathered = 1, .skew = 1},
      {.tokens = 64, .top_k = 2, .experts = 3, .n = 136, .k = 64, .gathered = 1, .skew = 1},
      {.tokens = 100, .top_k = 6, .experts = 64, .n = 96, .k = 128, .skew = 1},
      {.tokens = 33, .top_k = 8, .experts = 256, .n = 16, .k = 64, .gathered = 1},
      {.tokens = 200, .top_k = 1, .experts = 2, .n = 200, .k = 64, .gathered = 1},
      {.tokens = 1, .top_k = 6, .experts = 64, .n = 352, .k = 256, .gathered = 1, .is_silu = 1},
      {.tokens = 1, .top_k = 6, .experts = 64, .n = 176, .k = 384, .is_silu = 1},
      {.tokens = 19, .top_k = 3, .experts = 7, .n = 272, .k = 128, .gathered = 1, .skew = 1, .is_silu = 1},
      {.tokens = 150, .top_k = 2, .experts = 40, .n = 80, .k = 64, .gathered = 1, .is_silu = 1},
      {.tokens = 64, .top_k = 2, .experts = 3, .n = 136, .k = 64, .skew = 1},
      {.tokens = 200, .top_k = 1, .experts = 2, .n = 200, .k = 64},
      {.tokens = 150, .top_k = 4, .experts = 3, .n = 272, .k = 192, .skew = 1, .is_silu = 1},
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) moe_case(test, &shapes[i]);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "moe_gemm", "5d16d60968b3ae5d3fc6b4d134a0cd23", moe_cases);
}
