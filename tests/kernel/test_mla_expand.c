/* test_mla_expand.c - mla_expand: contexts that end inside pages, pieces that split contexts, scattered pages, columns that do not fill a
 * tile, more pages than a tile has; against the chain by its definition. */
#include "kernel_test.h"

typedef struct expand_shape {
  u32 n, rank, rope, piece_pages, piece;
  u32 contexts, tokens[3];
  bool is_ordered; /* kv holds the piece's pages in order, and there is no block table */
} expand_shape;

enum { PAGES = 16, STRIDE = 5, CONTEXTS = 3 };

static u32 pages_of(u32 tokens) { return (tokens + 63) / 64; }

/* The page of kv with token t of a context. */
static u32 page_of(const expand_shape *s, const step_context *c, const u32 *table, u32 t) {
  return s->is_ordered ? c->first + t / 64 - s->piece * s->piece_pages : table[c->seq * STRIDE + t / 64];
}

static void check_row(const mla_expand_args *a, cases *c, u32 row, const bf16 *kv) {
  const bf16 *y = a->y + (size_t)row * (a->n + a->rope_dim);
  for (u32 i = 0; i < 8; i++) {
    u32 column = i == 0 ? a->n - 1 : cases_below(c, a->n);
    f32 sum = kernel_test_chain(kv, a->w + (size_t)column * a->kv_lora_rank, 1, a->kv_lora_rank, 0);
    assert_int_equal(y[column], num_to_bf16(sum));
  }
  for (u32 i = 0; i < a->rope_dim; i++) assert_int_equal(y[a->n + i], kv[a->kv_lora_rank + i]);
}

static void expand_case(kernel_test *test, const expand_shape *s) {
  cases c = {.state = s->n * 7u + s->rank + s->piece};
  u32 columns = s->rank + s->rope, total = 0;
  kernel_test_start(test);
  mla_expand_args a = {.n = s->n, .kv_lora_rank = s->rank, .rope_dim = s->rope, .block_table_stride = STRIDE,
                       .piece_pages = s->piece_pages, .piece = s->piece};
  step_in *step = kernel_test_step(test, 1, 0, 1);
  step->seq_count = s->contexts;
  step_context *contexts = kernel_test_input(test, CONTEXTS * sizeof *contexts);
  u32 *table = kernel_test_input(test, CONTEXTS * STRIDE * 4);
  u32 first = s->piece * s->piece_pages;
  bf16 *kv = kernel_test_input(test, (size_t)PAGES * 64 * columns * 2), *w = kernel_test_input(test, (size_t)s->n * s->rank * 2);
  for (u32 i = 0; i < CONTEXTS * STRIDE; i++) table[i] = (i * 7 + 3) % PAGES;
  for (u32 i = 0; i < s->contexts; i++) {
    contexts[i] = (step_context){.first = total, .tokens = s->tokens[i], .seq = (i * 2 + 1) % CONTEXTS};
    total += pages_of(s->tokens[i]);
    for (u32 t = 0; t < pages_of(s->tokens[i]) * 64; t++) {
      const u32 page = contexts[i].first + t / 64;
      if (s->is_ordered && (page < first || page >= first + s->piece_pages)) continue;
      bf16 *row = kv + ((size_t)page_of(s, &contexts[i], table, t) * 64 + t % 64) * columns;
      if (t < s->tokens[i]) kernel_test_bf16s(&c, row, columns, 1.0f);
      else memset(row, 0, columns * 2ull); /* whole pages are expanded, and the reference writes zeros here */
    }
  }
  kernel_test_bf16s(&c, w, (size_t)s->n * s->rank, 0.1f);
  a.step = step, a.contexts = contexts, a.block_table = s->is_ordered ? NULL : table, a.kv = kv, a.w = w;
  a.y = kernel_test_output(test, (size_t)s->piece_pages * 64 * (s->n + s->rope) * 2);
  u32 pages = total > first ? min_u32(s->piece_pages, total - first) : 0;
  kernel_test_keep(test, a.y + (size_t)pages * 64 * (s->n + s->rope), (size_t)(s->piece_pages - pages) * 64 * (s->n + s->rope) * 2);
  kernel_variant v[2] = {{.spec = {{"SPEC_MAPS", 1}, {"SPEC_TILE_N", 128}, {"SPEC_TILE_ROWS", 256}, {"SPEC_STAGES", 2},
                                   {"SPEC_CLUSTER", 1}}, .spec_count = 5, .threads = 384, .shared_bytes = 1280 + 2 * 384 * 128 + 16384,
                          .grid = {1, 1, 1}, .rows = 1}};
  v[1] = v[0];
  v[1].spec[3].value = 4, v[1].shared_bytes = 1280 + 4 * 384 * 128 + 16384;
  v[1].grid[0] = 4, v[1].grid[1] = 2;
  if (s->is_ordered) v[1].spec[v[1].spec_count++] = (jit_spec){"SPEC_PIECES", 1};
  kernel_test_run(test, &a, s->is_ordered ? v + 1 : v, s->is_ordered ? 1 : 2);
  for (u32 i = 0; i < s->contexts; i++) {
    for (u32 t = 0; t < pages_of(s->tokens[i]) * 64; t += t % 64 == 0 ? 17 : 23) {
      u32 page = contexts[i].first + t / 64;
      if (page < first || page >= first + pages) continue;
      size_t place = (size_t)page_of(s, &contexts[i], table, t) * 64 + t % 64;
      check_row(&a, &c, (page - first) * 64 + t % 64, kv + place * columns);
    }
  }
}

static void expand_cases(kernel_test *test) {
  static const expand_shape shapes[] = {
      {.n = 136, .rank = 512, .rope = 64, .piece_pages = 8, .piece = 0, .contexts = 3, .tokens = {1, 200, 64}},
      {.n = 256, .rank = 512, .rope = 64, .piece_pages = 2, .piece = 1, .contexts = 3, .tokens = {65, 130, 63}},
      {.n = 128, .rank = 256, .rope = 32, .piece_pages = 3, .piece = 2, .contexts = 2, .tokens = {320, 160}},
      {.n = 64, .rank = 256, .rope = 64, .piece_pages = 1, .piece = 0, .contexts = 1, .tokens = {5}},
      {.n = 264, .rank = 512, .rope = 32, .piece_pages = 5, .piece = 0, .contexts = 1, .tokens = {257}},
      {.n = 136, .rank = 512, .rope = 64, .piece_pages = 3, .piece = 1, .contexts = 3, .tokens = {200, 65, 40}, .is_ordered = true},
      {.n = 64, .rank = 256, .rope = 32, .piece_pages = 6, .piece = 0, .contexts = 2, .tokens = {1, 290}, .is_ordered = true},
  };
  for (size_t i = 0; i < ARRAY_LEN(shapes); i++) expand_case(test, &shapes[i]);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "mla_expand", "246f6ca0199601ea32433b5880fcd0a2", expand_cases);
}
