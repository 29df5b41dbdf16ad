/* gemm_tiles.h - tiles of matrix products and the variants that launch them: shared by the tests of gemm, moe_gemm and their fp8 forms.
 *
 * Computes the shared memory from the layouts of small_m.cuh and large_m.cuh, without the planner's numbers. Read next: test_gemm.c. */
#ifndef VERBATIM_TEST_GEMM_TILES_H
#define VERBATIM_TEST_GEMM_TILES_H
#include "kernel_test.h"

typedef struct small_m_tile { /* weight rows, token rows, blocks of k in a stage; row_tiles: blocks with the same weights, or 0 */
  u32 n, rows, k_blocks, stages, row_tiles;
} small_m_tile;

typedef struct large_m_tile { /* weight rows, token rows; tiles of a cluster with the same tokens, with the same weights */
  u32 n, rows, stages, cluster_columns, cluster_rows, depth;
} large_m_tile;

/* more_bytes: additional shared memory, after the rings and the exchange of gate and up rows. */
static inline kernel_variant small_m_variant(const small_m_tile *t, u32 rows, u32 more_bytes) {
  const u32 blocks = t->stages * t->k_blocks, columns = max_u32(t->rows, 8);
  const u32 overread = (64 - t->n) * 128, exchange = (t->n + 4) * columns * 4;
  return (kernel_variant){{{"SPEC_MAPS", 1}, {"SPEC_TILE_N", t->n}, {"SPEC_TILE_ROWS", t->rows}, {"SPEC_K_BLOCKS", t->k_blocks},
                           {"SPEC_STAGES", t->stages}, {"SPEC_ROW_TILES", t->row_tiles}},
                          .spec_count = t->row_tiles ? 6 : 5, .threads = 192, .rows = rows,
                          .shared_bytes = 2048 + (u32)align_up(blocks * t->rows * 128, 1024) + blocks * t->n * 128 +
                                          max_u32(overread, exchange) + more_bytes};
}

/* spec_count: 5 without SPEC_CLUSTER_ROWS, 6 without SPEC_DEPTH, or 7. consumers: consumer warpgroups. */
static inline kernel_variant large_m_variant(const large_m_tile *t, u32 spec_count, u32 consumers, u32 stage_bytes, u32 rows,
                                             u32 more_bytes) {
  return (kernel_variant){{{"SPEC_MAPS", 1}, {"SPEC_TILE_N", t->n}, {"SPEC_TILE_ROWS", t->rows}, {"SPEC_STAGES", t->stages},
                           {"SPEC_CLUSTER", t->cluster_columns * max_u32(t->cluster_rows, 1)}, {"SPEC_CLUSTER_ROWS", t->cluster_rows},
                           {"SPEC_DEPTH", t->depth}},
                          .spec_count = spec_count, .threads = 128 * (1 + consumers), .rows = rows,
                          .shared_bytes = 1024 + t->stages * stage_bytes + consumers * 8192 + 256 + more_bytes};
}

static inline void variant_grid(kernel_variant *v, u32 x, u32 y, u32 z) {
  v->grid[0] = x;
  v->grid[1] = y;
  v->grid[2] = z;
}

#endif
