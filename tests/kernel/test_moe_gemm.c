/* test_moe_gemm.c - moe_gemm: experts with none, one and many rows, gathered and plain rows; against the definition. */
#include "kernel_test.h"

typedef struct moe_shape { u32 tokens, top_k, experts, n, k, gathered, skew, is_silu; } moe_shape;

static const u32 FEW[][4] = {{16, 1, 2, 3}, {64, 1, 3, 2}, {24, 8, 2, 2}, {64, 16, 1, 3}, {48, 32, 2, 3}};

static u32 few_bytes(const u32 tile[4], u32 experts) {
  const u32 columns = max_u32(tile[1], 8), behind = (64 - tile[0]) * 128, exchange = (tile[0] + 4) * columns * 4;
  return 2048 + (u32)align_up(tile[3] * tile[2] * tile[1] * 128, 1024) + tile[3] * tile[2] * tile[0] * 128 +
         max_u32(behind, exchange) + (experts + 1) * 4;
}

static u32 make_few(kernel_variant *variants, const moe_shape *s) {
  for (u32 i = 0; i < ARRAY_LEN(FEW); i++) {
    variants[i] = (kernel_variant){{{"SPEC_MAPS", 1}, {"SPEC_TILE_N", FEW[i][0]}, {"SPEC_TILE_ROWS", FEW[i][1]},
                                    {"SPEC_K_BLOCKS", FEW[i][2]}, {"SPEC_STAGES", FEW[i][3]}},
                                   .spec_count = 5, .grid = {1 + i % 4, 1 + i % 2, 1}, .threads = 192, .rows = s->tokens,
                                   .shared_bytes = few_bytes(FEW[i], s->experts)};
  }
  return ARRAY_LEN(FEW);
}

/* Of large_m.cuh: tile of weight rows, of token rows, stages, blocks of a cluster. */
static const u32 MANY[][4] = {{128, 256, 2, 1}, {128, 128, 4, 2}, {64, 64, 3, 1}, {128, 192, 3, 2}};

/* The number of blocks is free: one, some, more than there are tiles. */
static u32 make_many(kernel_variant *variants, const moe_shape *s) {
  for (u32 i = 0; i < ARRAY_LEN(MANY); i++) {
    const u32 *tile = MANY[i], warpgroups = tile[0] == 64 ? 1 : 2;
    variants[i] = (kernel_variant){{{"SPEC_MAPS", 1}, {"SPEC_TILE_N", tile[0]}, {"SPEC_TILE_ROWS", tile[1]},
                                        {"SPEC_STAGES", tile[2]}, {"SPEC_CLUSTER", tile[3]}},
                                       .spec_count = 5, .grid = {1 + i, tile[3] * (1 + i % 2), 1 + i / 3}, .rows = s->tokens};
    variants[i].threads = 128 * (1 + warpgroups);
    variants[i].shared_bytes = 1024 + tile[2] * (tile[0] + tile[1]) * 128 + warpgroups * 8192 + 256 + 4104;
  }
  return ARRAY_LEN(MANY);
}

static u32 make_variants(kernel_variant *variants, const moe_shape *s) {
  const u32 few = make_few(variants, s);
  return s->gathered ? few : few + make_many(variants + few, s);
}

/* Deals the sorted rows to experts; with skew most go to one. */
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
  for (u32 check = 0; check < 300; check++) {
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
      {1, 1, 1, 8, 64, 1, 0, 0},    {1, 8, 64, 64, 128, 1, 0, 0},   {5, 2, 4, 72, 64, 0, 0, 0},   {17, 4, 8, 128, 192, 1, 1, 0},
      {64, 2, 3, 136, 64, 1, 1, 0}, {100, 6, 64, 96, 128, 0, 1, 0}, {33, 8, 256, 16, 64, 1, 0, 0}, {200, 1, 2, 200, 64, 1, 0, 0},
      {1, 6, 64, 352, 256, 1, 0, 1}, {1, 6, 64, 176, 384, 0, 0, 1}, {19, 3, 7, 272, 128, 1, 1, 1}, {150, 2, 40, 80, 64, 1, 0, 1},
      {64, 2, 3, 136, 64, 0, 1, 0}, {200, 1, 2, 200, 64, 0, 0, 0},  {150, 4, 3, 272, 192, 0, 1, 1},
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) moe_case(test, &shapes[i]);
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "moe_gemm", moe_cases); }
