/* op_maps.c - see op_maps.h. One function per kernel that takes maps; box sizes stand in the kernels' head comments. */
#include "gpu/op_maps.h"
#include "plan/kernels.h"
#include "kernels_src/abi.h"
#include "base/limits.h"
#include <string.h>

typedef struct build { /* a kernel variant and its constants */
  const jit_spec *specs;
  uint32_t spec_count, rows; /* rows: of the launch */
} build;

static uint32_t value_of(const build *b, const char *name) {
  for (uint32_t i = 0; i < b->spec_count; i++)
    if (strcmp(b->specs[i].name, name) == 0) return b->specs[i].value;
  return 0;
}

bool op_maps_taken(const jit_spec *specs, uint32_t spec_count) {
  const build b = {.specs = specs, .spec_count = spec_count};
  return value_of(&b, "SPEC_MAPS") != 0;
}

/* Matrices of [rows][columns] bf16 numbers, rows `stride` numbers apart and matrices `matrix_stride`, by boxes of 64 columns and box_rows
 * rows of `box_matrices` matrices. */
static tensor_shape matrices(const void *address, uint64_t columns, uint64_t rows, uint64_t count, uint64_t stride, uint64_t matrix_stride,
                             uint32_t box_rows, uint32_t box_matrices) {
  return (tensor_shape){.address = (uint64_t)(uintptr_t)address, .extent = {columns, rows, count}, .dims = 3, .swizzled = 1,
                        .stride_bytes = {2, 2 * stride, 2 * (count > 1 ? matrix_stride : rows * stride)},
                        .box = {64, box_rows, box_matrices}};
}

/* Small M: gate and up rows are matrices of their own; a box takes rows of both. */
static tensor_shape few_weights(const build *b, const void *w, uint32_t n, uint32_t k, uint32_t count, uint64_t w_batch, uint32_t y_kind) {
  const uint32_t tile_n = value_of(b, "SPEC_TILE_N");
  if (y_kind != Y_SILU) return matrices(w, k, n, count, k, w_batch, tile_n, 1);
  return matrices(w, k, n / 2, 2ull * count, k, (uint64_t)(n / 2) * k, tile_n / 2, 2);
}

/* Large M: the box of a tile's weight rows that one block loads; of tokens, LARGE_M_BOX rows. Gate and up alternate by eight rows: a box
 * has groups of eight rows of both. The groups of all matrices are in one order; those of up follow n / 16 groups after the gate's. */
static bool is_many(const build *b) { return value_of(b, "SPEC_K_BLOCKS") == 0; }
static uint32_t many_below(const build *b) { return max_u32(value_of(b, "SPEC_CLUSTER_ROWS"), 1); }
static uint32_t many_x_box(const build *b, bool scaled) {
  const uint32_t rows = value_of(b, "SPEC_TILE_ROWS"), below = value_of(b, "SPEC_CLUSTER_ROWS"), cluster = value_of(b, "SPEC_CLUSTER");
  if (scaled && below == 0) return 64 / cluster;
  if (below != 0 && (scaled || rows < 256)) return min_u32(rows, scaled ? 128 : rows) * below / cluster;
  return rows > 128 ? 32 : 16;
}
static uint32_t many_w_box(const build *b) { return value_of(b, "SPEC_TILE_N") / many_below(b); }
static tensor_shape many_weights(const void *w, uint32_t n, uint32_t k, uint32_t count, uint64_t w_batch, uint32_t y_kind, uint32_t box) {
  const uint64_t row_bytes = 2ull * k;
  if (y_kind != Y_SILU) return matrices(w, k, n, count, k, w_batch, box, 1);
  return (tensor_shape){.address = (uint64_t)(uintptr_t)w, .extent = {k, 8, 2, (uint64_t)count * (n / 8) - n / 16}, .dims = 4,
                        .swizzled = 1, .stride_bytes = {2, row_bytes, n / 2 * row_bytes, 8 * row_bytes}, .box = {64, 8, 2, box / 16}};
}

static void map_gemm_many(const build *b, const gemm_args *a, tensor_shape shapes[2]) {
  shapes[0] = many_weights(a->w, a->n, a->k, a->batches, a->w_batch, a->y_kind, many_w_box(b));
  shapes[1] = matrices(a->x, a->k, b->rows, a->batches, a->ldx, a->x_batch, many_x_box(b, false), 1);
}

static void map_moe_gemm_many(const build *b, const moe_gemm_args *a, tensor_shape shapes[2]) {
  shapes[0] = many_weights(a->w, a->n, a->k, a->experts, (uint64_t)a->n * a->k, a->y_kind, value_of(b, "SPEC_TILE_N"));
  shapes[1] = matrices(a->x, a->k, (uint64_t)b->rows * a->top_k, 1, a->ldx, 0, many_x_box(b, false), 1);
}

/* Of e4m3 numbers: what describes half as many of twice the size. */
static tensor_shape of_bytes(tensor_shape pairs) {
  pairs.extent[0] *= 2;
  pairs.box[0] *= 2;
  pairs.stride_bytes[0] = 1;
  return pairs;
}

static void map_fp8_gemm_many(const build *b, const fp8_gemm_args *a, tensor_shape shapes[2]) {
  shapes[0] = of_bytes(many_weights(a->w, a->n, a->k / 2, 1, 0, a->y_kind, many_w_box(b)));
  shapes[1] = of_bytes(matrices(a->x, a->k / 2, b->rows, 1, a->k / 2, 0, many_x_box(b, true), 1));
}

static void map_fp8_moe_gemm_many(const build *b, const fp8_moe_gemm_args *a, tensor_shape shapes[2]) {
  const uint64_t of_expert = (uint64_t)a->n * (a->k / 2);
  shapes[0] = of_bytes(many_weights(a->w, a->n, a->k / 2, a->experts, of_expert, a->y_kind, value_of(b, "SPEC_TILE_N")));
  shapes[1] = of_bytes(matrices(a->x, a->k / 2, (uint64_t)b->rows * a->top_k, 1, a->k / 2, 0, many_x_box(b, true), 1));
}

/* Weights of the form for few rows: blocks of 128 k that stand side by side come for each row behind each other. */
static tensor_shape few_codes(const build *b, const void *w, uint32_t n, uint32_t k, uint32_t count, uint32_t y_kind) {
  const uint32_t side = FP8_MMA_BLOCKS(value_of(b, "SPEC_TILE_N"), value_of(b, "SPEC_K_BLOCKS"));
  const tensor_shape s = of_bytes(few_weights(b, w, n, k / 2, count, (uint64_t)n * (k / 2), y_kind));
  if (side == 1) return s;
  return (tensor_shape){.address = s.address, .extent = {128, k / 128, s.extent[1], s.extent[2]}, .dims = 4, .swizzled = 1,
                        .stride_bytes = {1, 128, s.stride_bytes[1], s.stride_bytes[2]}, .box = {128, side, s.box[1], s.box[2]}};
}

static void map_gemm(const build *b, const gemm_args *a, tensor_shape shapes[2]) {
  const uint32_t tile_rows = value_of(b, "SPEC_TILE_ROWS");
  shapes[0] = few_weights(b, a->w, a->n, a->k, a->batches, a->w_batch, a->y_kind);
  shapes[1] = tile_rows == 1 ? shapes[0] : matrices(a->x, a->k, b->rows, a->batches, a->ldx, a->x_batch, tile_rows, 1);
}

static void map_moe_gemm(const build *b, const moe_gemm_args *a, tensor_shape shapes[2]) {
  const uint64_t rows = a->row_token ? b->rows : (uint64_t)b->rows * a->top_k;
  shapes[0] = few_weights(b, a->w, a->n, a->k, a->experts, (uint64_t)a->n * a->k, a->y_kind);
  shapes[1] = value_of(b, "SPEC_TILE_ROWS") == 1 ? shapes[0] : matrices(a->x, a->k, rows, 1, a->ldx, 0, 1, 1);
  shapes[1].dims = value_of(b, "SPEC_TILE_ROWS") == 1 ? 3 : 2;
}

static void map_fp8_gemm(const build *b, const fp8_gemm_args *a, tensor_shape shapes[2]) {
  const uint32_t tile_rows = value_of(b, "SPEC_TILE_ROWS"), k = a->k / 2;
  shapes[0] = few_codes(b, a->w, a->n, a->k, 1, a->y_kind);
  shapes[1] = tile_rows == 1 ? shapes[0] : of_bytes(matrices(a->x, k, b->rows, 1, k, 0, tile_rows, 1));
}

/* Tokens are gathered without a map. */
static void map_fp8_moe_gemm(const build *b, const fp8_moe_gemm_args *a, tensor_shape shapes[2]) {
  shapes[0] = few_codes(b, a->w, a->n, a->k, a->experts, a->y_kind);
  shapes[1] = shapes[0];
}

static void map_qkv_rope(const build *b, const qkv_rope_args *a, tensor_shape shapes[2]) {
  shapes[0] = few_weights(b, a->w_uk, a->kv_lora_rank, a->nope_dim, a->heads, (uint64_t)a->kv_lora_rank * a->nope_dim, Y_BF16);
  shapes[1] = shapes[0];
}

static void map_fold(const build *b, const mla_fold_args *a, tensor_shape shapes[2]) {
  shapes[0] = few_weights(b, a->w_uv, a->v_dim, a->kv_lora_rank, a->heads, (uint64_t)a->v_dim * a->kv_lora_rank, Y_BF16);
  shapes[1] = shapes[0];
}

/* attn/decode/form.cuh, attn/cluster/form.cuh: boxes of 64 tokens, or of the variant's rows, by 64 columns. Page numbers have no bound
 * here: the plan's pages do. */
static void maps_of_attn(const mla_attn_args *a, uint32_t box_rows, uint32_t rows, tensor_shape shapes[2]) {
  uint64_t columns = (uint64_t)a->kv_lora_rank + a->rope_dim;
  shapes[1] = (tensor_shape){.address = (uint64_t)(uintptr_t)a->q, .extent = {columns, (uint64_t)rows * a->heads, 1}, .dims = 2,
                             .swizzled = 1, .stride_bytes = {2, 2 * columns, 0}, .box = {64, box_rows, 1}};
  shapes[0] = shapes[1];
  if (a->kv_format != KV_BF16 || a->list_max > 0) return; /* rows are gathered */
  shapes[0].address = (uint64_t)(uintptr_t)a->kv;
  shapes[0].extent[1] = (uint64_t)KV_PAGES_MAX * PAGE_TOKENS;
  shapes[0].box[1] = PAGE_TOKENS;
}

/* KV pages by boxes inside a page. Page numbers have no bound here: the plan's pages do. */
static void map_expand(const build *b, const mla_expand_args *a, tensor_shape shapes[2]) {
  uint64_t columns = (uint64_t)a->kv_lora_rank + a->rope_dim;
  shapes[0] = many_weights(a->w, a->n, a->kv_lora_rank, 1, 0, Y_BF16, value_of(b, "SPEC_TILE_N"));
  shapes[1] = matrices(a->kv, a->kv_lora_rank, PAGE_TOKENS, KV_PAGES_MAX, columns, PAGE_TOKENS * columns, many_x_box(b, false), 1);
}

/* Both maps: the workspace of a piece, in boxes of 64 rows. */
static void map_prefill(const mla_prefill_args *a, tensor_shape shapes[2]) {
  uint64_t columns = (uint64_t)a->heads * (a->nope_dim + a->v_dim) + a->rope_dim;
  shapes[0] = (tensor_shape){.address = (uint64_t)(uintptr_t)a->expanded, .dims = 2, .swizzled = 1,
                             .extent = {columns, (uint64_t)a->piece_pages * PAGE_TOKENS, 1},
                             .stride_bytes = {2, columns * 2, 0}, .box = {64, PAGE_TOKENS, 1}};
  shapes[1] = shapes[0];
}

/* Pages of the indexer's cache, a box each: 64 keys and two rows of scales; and queries by 128 heads. Page numbers have no bound here. */
static void map_score(const index_score_args *a, uint32_t rows, tensor_shape shapes[2]) {
  shapes[0] = (tensor_shape){.address = (uint64_t)(uintptr_t)a->cache, .dims = 3, .swizzled = 1,
                             .extent = {INDEX_DIM, INDEX_PAGE_BYTES / INDEX_DIM, KV_PAGES_MAX},
                             .stride_bytes = {1, INDEX_DIM, INDEX_PAGE_BYTES}, .box = {INDEX_DIM, INDEX_PAGE_BYTES / INDEX_DIM, 1}};
  shapes[1] = (tensor_shape){.address = (uint64_t)(uintptr_t)a->q_codes, .dims = 2, .swizzled = 1,
                             .extent = {INDEX_DIM, (uint64_t)rows * a->heads, 1}, .stride_bytes = {1, INDEX_DIM, 0},
                             .box = {INDEX_DIM, 128, 1}};
}

/* Forms for few rows read their weights and KV rows once, as fast as the memory gives them, which is slower by 256 bytes at a time (on an
 * H200 a decode step of 1, 4 and 64 sequences by 2.4, 3.7 and 0.5 %). Prompts are faster by 256 (1 to 3 %). */
static uint32_t l2_bytes(const build *b, uint32_t kernel) {
  const bool is_product = kernel == KERNEL_gemm || kernel == KERNEL_moe_gemm || kernel == KERNEL_fp8_gemm || kernel == KERNEL_fp8_moe_gemm;
  return (is_product && !is_many(b)) || (kernel == KERNEL_mla_attn && value_of(b, "SPEC_ROWS") < 64) ? 128 : 256;
}

void op_maps(uint32_t kernel, const jit_spec *specs, uint32_t spec_count, const void *args, uint32_t rows, tensor_shape shapes[2]) {
  const build b = {specs, spec_count, rows};
  memset(shapes, 0, 2 * sizeof shapes[0]);
  switch (kernel) {
    case KERNEL_gemm: (is_many(&b) ? map_gemm_many : map_gemm)(&b, args, shapes); break;
    case KERNEL_moe_gemm: (is_many(&b) ? map_moe_gemm_many : map_moe_gemm)(&b, args, shapes); break;
    case KERNEL_fp8_gemm: (is_many(&b) ? map_fp8_gemm_many : map_fp8_gemm)(&b, args, shapes); break;
    case KERNEL_fp8_moe_gemm: (is_many(&b) ? map_fp8_moe_gemm_many : map_fp8_moe_gemm)(&b, args, shapes); break;
    case KERNEL_qkv_rope: map_qkv_rope(&b, args, shapes); break;
    case KERNEL_mla_attn: maps_of_attn(args, value_of(&b, "SPEC_ROWS"), rows, shapes); break;
    case KERNEL_mla_fold: map_fold(&b, args, shapes); break;
    case KERNEL_mla_expand: map_expand(&b, args, shapes); break;
    case KERNEL_mla_prefill: map_prefill(args, shapes); break;
    case KERNEL_index_score: map_score(args, rows, shapes); break;
    default: ASSERT(kernel < KERNEL_COUNT && false);
  }
  shapes[0].l2_bytes = shapes[1].l2_bytes = l2_bytes(&b, kernel);
}
