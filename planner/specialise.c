/* specialise.c - the tile tables and grids of specialise.h, one function per kernel whose choice depends on its shape.
 *
 * Numbers follow kernels_src/README.md; check.c tests that grids cover the work and that blocks fit the GPU. Must not know where
 * anything lies in memory. Read next: kernels_src/README.md. */
#include "specialise.h"
#include <string.h>
#include "abi.h"

typedef struct tile_shape { /* of gemm and moe_gemm: the product's part that one block computes */
  uint32_t n, rows, stages;
} tile_shape;

/* Few rows leave the weights as the only traffic: narrow tiles and many stages keep more of them in flight. */
static const tile_shape TILES[] = {{64, 16, 8}, {64, 64, 6}, {128, 128, 4}};

static plan_dim constant(uint32_t count) { return (plan_dim){.constant = count}; }
static plan_dim per_rows(uint32_t mul, uint32_t div) { return (plan_dim){.rows_mul = mul, .rows_div = div}; }

static void set_grid(specialise_choice *choice, plan_dim x, plan_dim y, plan_dim z) {
  choice->grid[0] = x;
  choice->grid[1] = y;
  choice->grid[2] = z;
}

static void add_spec(specialise_choice *choice, const char *name, uint32_t value) {
  ASSERT(choice->spec_count < SPECIALISE_SPECS_MAX);
  choice->specs[choice->spec_count++] = (specialise_spec){name, value};
}

static void set_threads(specialise_choice *choice, uint32_t threads) {
  choice->threads = threads;
  add_spec(choice, "SPEC_THREADS", threads);
}

static void set_tile(specialise_choice *choice, const tile_shape *tile) {
  set_threads(choice, 2 * tile->n);
  add_spec(choice, "SPEC_TILE_N", tile->n);
  add_spec(choice, "SPEC_TILE_ROWS", tile->rows);
  add_spec(choice, "SPEC_STAGES", tile->stages);
  choice->shared_bytes = 1024 + tile->stages * (tile->n + tile->rows) * 128;
}

/* One choice per tile, for the launch rows up to limits[tile]; the last tile has no limit. */
static uint32_t tile_choices(const uint64_t limits[ARRAY_LEN(TILES)], uint32_t rows_min, uint32_t rows_max, specialise_choice *choices,
                             const tile_shape *tiles[]) {
  uint32_t count = 0, next = rows_min;
  for (size_t i = 0; i < ARRAY_LEN(TILES); i++) {
    uint32_t last = i + 1 == ARRAY_LEN(TILES) || limits[i] > rows_max ? rows_max : (uint32_t)limits[i];
    if (next > last) continue;
    choices[count] = (specialise_choice){.rows_min = next, .rows_max = last};
    set_tile(&choices[count], &TILES[i]);
    tiles[count++] = &TILES[i];
    next = last + 1;
    if (last == rows_max) break;
  }
  return count;
}

static uint32_t choose_gemm(const gemm_args *a, uint32_t rows_min, uint32_t rows_max, specialise_choice *choices) {
  const uint64_t limits[] = {16, 64, UINT32_MAX};
  const tile_shape *tiles[ARRAY_LEN(TILES)];
  uint32_t count = tile_choices(limits, rows_min, rows_max, choices, tiles);
  for (uint32_t i = 0; i < count; i++)
    set_grid(&choices[i], constant((uint32_t)div_up(a->n, tiles[i]->n)), per_rows(1, tiles[i]->rows), constant(a->batches));
  return count;
}

/* The tile follows the rows that an expert gets when tokens spread evenly. */
static uint32_t choose_moe_gemm(const moe_gemm_args *a, uint32_t rows_min, uint32_t rows_max, specialise_choice *choices) {
  const uint64_t limits[] = {UINT64_C(16) * a->experts / a->top_k, UINT64_C(64) * a->experts / a->top_k, UINT32_MAX};
  const tile_shape *tiles[ARRAY_LEN(TILES)];
  uint32_t count = tile_choices(limits, rows_min, rows_max, choices, tiles);
  for (uint32_t i = 0; i < count; i++) {
    plan_dim y = {.constant = a->experts, .rows_mul = a->top_k, .rows_div = tiles[i]->rows};
    set_grid(&choices[i], constant((uint32_t)div_up(a->n, tiles[i]->n)), y, constant(1));
  }
  return count;
}

static void choose_mla_attn(const mla_attn_args *a, specialise_choice *choice) {
  uint32_t units = a->unit_chunks ? a->units_max : 1;
  plan_dim x = per_rows((uint32_t)div_up(a->heads, 64) * units, 1);
  x.cap = SPECIALISE_ATTN_CTAS;
  set_threads(choice, 256);
  add_spec(choice, "SPEC_KV_LORA_RANK", a->kv_lora_rank);
  add_spec(choice, "SPEC_ROPE_DIM", a->rope_dim);
  /* Q and two KV blocks in boxes of 64 x 64, P of 64 x 64, row statistics: see the head of mla_attn.cu. */
  choice->shared_bytes = 1024 + 3 * 8192 * (uint32_t)div_up(a->kv_lora_rank + a->rope_dim, 64) + 8192 + 1024;
  set_grid(choice, x, constant(1), constant(1));
}

/* Blocks stride over the rows of a piece, whose number the launch does not know. */
static void choose_mla_expand(const mla_expand_args *a, specialise_choice *choice) {
  static const tile_shape tile = {128, 128, 4};
  uint32_t columns = (uint32_t)div_up(a->n, tile.n), rows = (uint32_t)div_up((uint64_t)a->piece_pages * PAGE_TOKENS, tile.rows);
  set_tile(choice, &tile);
  set_grid(choice, constant(columns), constant(min_u32(rows, max_u32(1, SPECIALISE_EXPAND_BLOCKS / columns))), constant(1));
}

static void choose_mla_prefill(const mla_prefill_args *a, specialise_choice *choice) {
  uint32_t stages = 0;
  choice->shared_bytes = specialise_prefill_shared(a->nope_dim, a->rope_dim, a->v_dim, &stages);
  set_threads(choice, 384);
  add_spec(choice, "SPEC_NOPE_DIM", a->nope_dim);
  add_spec(choice, "SPEC_ROPE_DIM", a->rope_dim);
  add_spec(choice, "SPEC_V_DIM", a->v_dim);
  add_spec(choice, "SPEC_STAGES", stages);
  add_spec(choice, "SPEC_MAPS", 1);
  plan_dim x = per_rows(a->heads, 1);
  x.cap = SPECIALISE_ATTN_CTAS;
  set_grid(choice, x, constant(1), constant(1));
}

static void choose_rows(specialise_choice *choice, uint32_t threads, plan_dim x, plan_dim y) {
  set_threads(choice, threads);
  set_grid(choice, x, y, constant(1));
}

static plan_dim slices(const adjust_args *a) { return constant((uint32_t)div_up(a->vocab, ADJUST_SLICE)); }

/* Queries of two warpgroups where registers have no room for them, as many stages of k and v blocks as there is room for, barriers, ones:
 * see mla_prefill.cu. */
uint32_t specialise_prefill_shared(uint32_t nope_dim, uint32_t rope_dim, uint32_t v_dim, uint32_t *stages) {
  uint32_t k_boxes = nope_dim / 64 + (uint32_t)div_up(rope_dim, 64), fixed = 2048 + (v_dim <= 128 ? 0 : 2 * k_boxes * 8192);
  uint32_t stage = (k_boxes + v_dim / 64) * 8192;
  *stages = min_u32(5, (232448 - fixed) / stage);
  return fixed + *stages * stage;
}

uint32_t specialise_op(uint32_t kernel, const void *args, uint32_t rows_min, uint32_t rows_max,
                       specialise_choice choices[SPECIALISE_CHOICES_MAX]) {
  ASSERT(kernel < OP_COUNT);
  ASSERT(rows_min >= 1 && rows_min <= rows_max);
  specialise_choice *choice = &choices[0];
  if (kernel == OP_gemm) return choose_gemm(args, rows_min, rows_max, choices);
  if (kernel == OP_moe_gemm) return choose_moe_gemm(args, rows_min, rows_max, choices);
  *choice = (specialise_choice){.rows_min = rows_min, .rows_max = rows_max};
  switch (kernel) {
    case OP_embed: choose_rows(choice, 128, per_rows(1, 1), constant(1)); break;
    case OP_mla_attn: choose_mla_attn(args, choice); break;
    case OP_mla_expand: choose_mla_expand(args, choice); break;
    case OP_mla_prefill: choose_mla_prefill(args, choice); break;
    case OP_mla_fold: choose_rows(choice, 128, per_rows(1, 1), constant(((const mla_fold_args *)args)->heads)); break;
    case OP_silu_mul: choose_rows(choice, 256, per_rows(((const silu_mul_args *)args)->rows_mul, 1), constant(1)); break;
    case OP_router: choose_rows(choice, 128, per_rows(1, 4), constant(1)); break;
    case OP_moe_sort: choose_rows(choice, 1024, constant(1), constant(1)); break;
    case OP_adjust: choose_rows(choice, 512, per_rows(1, 1), slices(args)); break;
    case OP_sample:
    case OP_row_digest: choose_rows(choice, 1024, per_rows(1, 1), constant(1)); break;
    default: choose_rows(choice, 256, per_rows(1, 1), constant(1)); break; /* rmsnorm, kv_write, q_rope, moe_combine */
  }
  return 1;
}

static bool is_same(const draft *plan, const plan_kernel *row, uint32_t kernel, const specialise_choice *choice) {
  if (row->kernel != kernel || row->threads != choice->threads || row->shared_bytes != choice->shared_bytes) return false;
  if (row->spec_count != choice->spec_count) return false;
  const plan_spec *specs = (const plan_spec *)plan->specs.items + row->first_spec;
  for (uint32_t i = 0; i < choice->spec_count; i++)
    if (specs[i].value != choice->specs[i].value || strcmp(draft_string_at(plan, specs[i].name), choice->specs[i].name) != 0) return false;
  return true;
}

uint32_t specialise_kernel(draft *plan, uint32_t kernel, const specialise_choice *choice) {
  const plan_kernel *rows = plan->kernels.items;
  for (uint32_t i = 0; i < plan->kernels.count; i++)
    if (is_same(plan, &rows[i], kernel, choice)) return i;
  uint32_t index = plan->kernels.count;
  plan_kernel row = {.kernel = kernel, .first_spec = plan->specs.count, .spec_count = choice->spec_count, .threads = choice->threads,
                     .shared_bytes = choice->shared_bytes};
  for (uint32_t i = 0; i < choice->spec_count; i++) {
    uint32_t name = draft_string(plan, "%s", choice->specs[i].name);
    *(plan_spec *)draft_append(&plan->specs, 1) = (plan_spec){name, choice->specs[i].value};
  }
  *(plan_kernel *)draft_append(&plan->kernels, 1) = row;
  return index;
}
