/* specialise.c - the tile tables and grids of specialise.h, one function per kernel whose choice depends on its shape.
 *
 * Numbers follow kernels_src/README.md; check.c tests that grids cover the work and that blocks fit the GPU. Must not know where
 * anything lies in memory. Read next: kernels_src/README.md. */
#include "specialise.h"
#include <string.h>
#include "abi.h"
#include "attn_cut.h"

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

/* Few heads of steps that may be cut, which is decoding: mla_decode.cuh. Else 64 rows at a time by pairs of blocks: mla_pair.cuh. */
static void choose_mla_attn(const mla_attn_args *a, specialise_choice *choice) {
  bool is_narrow = attn_is_narrow(a);
  plan_dim x = per_rows(2 * (uint32_t)div_up(a->heads, 64), 1);
  x.cap = SPECIALISE_ATTN_CTAS;
  if (a->slots_max > 0) x = constant(SPECIALISE_ATTN_CTAS);
  set_threads(choice, 512);
  add_spec(choice, "SPEC_MAPS", 1);
  add_spec(choice, "SPEC_KV_LORA_RANK", a->kv_lora_rank);
  add_spec(choice, "SPEC_ROPE_DIM", a->rope_dim);
  add_spec(choice, "SPEC_ROWS", is_narrow ? attn_pass_rows(a->heads) : 64);
  if (!is_narrow) add_spec(choice, "SPEC_PAIR", 2);
  choice->shared_bytes = 232448; /* all there is: rings of KV boxes take what is left */
  set_grid(choice, x, constant(1), constant(1));
}

/* A block for 128 columns of a token and head, as of a token of many groups. */
static plan_dim fold_blocks(const mla_fold_args *a) {
  plan_dim x = per_rows(a->heads * (a->kv_lora_rank / 128), 1);
  x.cap = SPECIALISE_FOLD_CTAS;
  return x;
}

static void choose_rows(specialise_choice *choice, uint32_t threads, plan_dim x, plan_dim y) {
  set_threads(choice, threads);
  set_grid(choice, x, y, constant(1));
}

static plan_dim slices(const adjust_args *a) { return constant((uint32_t)div_up(a->vocab, ADJUST_SLICE)); }

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
    case OP_mla_fold: choose_rows(choice, 256, fold_blocks(args), constant(1)); break;
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
