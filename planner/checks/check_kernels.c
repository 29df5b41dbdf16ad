/* check_kernels.c - see check_kernels.h. */
#include "checks/check_kernels.h"
#include <string.h>
#include "abi.h"
#include "attn/attn_cut.h"
#include "draft.h"

#define SHARED_BYTES_MAX 232448u /* dynamic shared memory of a block, compute capability 9.0 */

static const char *text(const kernels_plan *p, uint32_t string) { return string < p->header->strings.count ? p->strings + string : "?"; }

static uint32_t spec_of(const kernels_plan *p, const plan_kernel *kernel, const char *name) {
  for (uint32_t i = 0; i < kernel->spec_count; i++)
    if (strcmp(text(p, p->specs[kernel->first_spec + i].name), name) == 0) return p->specs[kernel->first_spec + i].value;
  return 0;
}

static bool is_scaled(const plan_kernel *k) { return k->kernel == OP_fp8_gemm || k->kernel == OP_fp8_moe_gemm; }
static bool is_dense(const plan_kernel *k) { return k->kernel == OP_gemm || k->kernel == OP_gemm_bias; }
static bool is_of_experts(const plan_kernel *k) { return k->kernel == OP_moe_gemm || k->kernel == OP_fp8_moe_gemm; }

/* Shared memory of a small-M product (kernels_src/gemm/small_m.cuh, small_m_scaled.cuh), or 0 if there is no such tile. */
static uint64_t few_bytes(const kernels_plan *p, const plan_kernel *k) {
  uint64_t n = spec_of(p, k, "SPEC_TILE_N"), rows = spec_of(p, k, "SPEC_TILE_ROWS"), stages = spec_of(p, k, "SPEC_STAGES");
  uint64_t blocks = spec_of(p, k, "SPEC_K_BLOCKS"), columns = rows < 8 ? 8 : rows, row_tiles = spec_of(p, k, "SPEC_ROW_TILES");
  if (n < 8 || n > 64 || n % 8 || (rows != 1 && rows != 8 && rows != 16 && rows != 32) || stages < 2 || stages > 63 ||
      blocks < 1 || blocks > 16 || k->threads != (k->kernel == OP_qkv_rope ? 256 : 192) || spec_of(p, k, "SPEC_MAPS") != 1 ||
      (row_tiles != 0 && (row_tiles != 2 || k->kernel != OP_fp8_gemm)))
    return 0;
  uint64_t behind = (64 - n) * 128, exchange = (n + 4) * columns * 4, of_experts = ((uint64_t)p->header->model.experts + 1) * 4;
  return 2048 + align_up(stages * blocks * rows * 128, 1024) + stages * blocks * n * 128 + (behind > exchange ? behind : exchange) +
         (is_scaled(k) ? stages * blocks * (columns + 4) * 4 : 0) + (is_of_experts(k) ? of_experts : 0);
}

/* The same for a large-M product of scaled numbers (kernels_src/gemm/large_m_scaled.cuh). */
static uint64_t many_scaled_bytes(const kernels_plan *p, const plan_kernel *k) {
  uint64_t n = spec_of(p, k, "SPEC_TILE_N"), rows = spec_of(p, k, "SPEC_TILE_ROWS"), stages = spec_of(p, k, "SPEC_STAGES");
  uint64_t cluster = spec_of(p, k, "SPEC_CLUSTER"), below = spec_of(p, k, "SPEC_CLUSTER_ROWS"), multiplying = n * rows > 4096 ? 2 : 1;
  if ((n != 64 && n != 128) || (rows != 64 && rows != 128 && rows != 256) || stages < 2 || stages > 16 || cluster < 1 || cluster > 2 ||
      below > cluster || (below != 0) != (k->kernel == OP_fp8_gemm) || spec_of(p, k, "SPEC_DEPTH") != 0 ||
      k->threads != 128 * (1 + multiplying) || spec_of(p, k, "SPEC_MAPS") != 1)
    return 0;
  uint64_t of_experts = ((uint64_t)p->header->model.experts + 1) * 8;
  return 1024 + stages * ((n + rows) * 128 + rows * 4 + 16) + multiplying * 8192 + 256 + (is_of_experts(k) ? of_experts : 0);
}

/* The same for a large-M product (kernels_src/gemm/large_m.cuh). */
static uint64_t many_bytes(const kernels_plan *p, const plan_kernel *k) {
  uint64_t n = spec_of(p, k, "SPEC_TILE_N"), rows = spec_of(p, k, "SPEC_TILE_ROWS"), stages = spec_of(p, k, "SPEC_STAGES");
  uint64_t cluster = spec_of(p, k, "SPEC_CLUSTER"), below = spec_of(p, k, "SPEC_CLUSTER_ROWS"), depth = spec_of(p, k, "SPEC_DEPTH");
  uint64_t multiplying = n / 64, beside = cluster / max_u32((uint32_t)below, 1);
  const uint64_t step = is_dense(k) ? 16 : 32;
  if ((n != 64 && n != 128) || rows < 32 || rows > 256 || rows % step || stages < 2 || stages > 16 || cluster < 1 || cluster > 2 ||
      below > cluster || (below != 0) != is_dense(k) || (depth != 0 && depth != 2) || rows / beside % 8 != 0 ||
      k->threads != 128 * (1 + multiplying) || spec_of(p, k, "SPEC_MAPS") != 1)
    return 0;
  uint64_t of_experts = ((uint64_t)p->header->model.experts + 1) * 8;
  return 1024 + stages * (depth ? depth : 1) * (n + rows) * 128 + multiplying * 8192 + 256 + (k->kernel == OP_moe_gemm ? of_experts : 0);
}

/* The same for grouped-query attention (kernels_src/attn/grouped/layout.cuh). */
static uint64_t grouped_bytes(const kernels_plan *p, const plan_kernel *k) {
  const plan_model *m = &p->header->model;
  const uint64_t head = (uint64_t)m->nope_dim + m->rope_dim, v = m->v_dim, rows = spec_of(p, k, "SPEC_ROWS");
  const uint64_t coded = spec_of(p, k, "SPEC_KV_FORMAT");
  const uint64_t stages = spec_of(p, k, "SPEC_STAGES"), pages = spec_of(p, k, "SPEC_PAGES"), held = spec_of(p, k, "SPEC_HELD");
  if (spec_of(p, k, "SPEC_HEAD_DIM") != head || spec_of(p, k, "SPEC_V_DIM") != v || (rows != 64 && rows != 128) || held > 1 ||
      k->threads != (rows == 128 ? 384 : coded ? 256 : 160) || (coded && (coded != KV_FP8 || rows != 64)) || stages < 2 ||
      stages > (rows == 128 ? 5 : 6) || pages < 1 || pages > (rows == 128 && v <= 128 ? 2 : 1) || spec_of(p, k, "SPEC_MAPS") != 1)
    return 0;
  return 1664 + 8192 * (rows / 64 * div_up(head, 64) + stages * pages * (div_up(head, 64) + div_up(v, 64))) + held * rows * 4 * (v + 2);
}

/* Checks the kernel's constants and the dynamic shared memory that follows from them. */
static status check_build(const kernels_plan *p, const plan_kernel *k, uint32_t index) {
  uint64_t n = spec_of(p, k, "SPEC_TILE_N"), rows = spec_of(p, k, "SPEC_TILE_ROWS"), stages = spec_of(p, k, "SPEC_STAGES"), shared = 0;
  bool is_few = spec_of(p, k, "SPEC_K_BLOCKS") != 0 && k->kernel != OP_mla_expand;
  bool may_multiply = k->kernel == OP_qkv_rope || k->kernel == OP_mla_fold;
  if (is_dense(k) || is_of_experts(k) || is_scaled(k) || k->kernel == OP_mla_expand || (may_multiply && is_few)) {
    shared = is_few ? few_bytes(p, k) : is_scaled(k) ? many_scaled_bytes(p, k) : many_bytes(p, k);
    if (shared == 0)
      return FAIL(ERR_FORMAT, "check: kernel %u has no tile of %llu x %llu in %llu stages by %u threads", index, (unsigned long long)n,
                  (unsigned long long)rows, (unsigned long long)stages, k->threads);
  }
  if (k->kernel == OP_mla_fold && is_few && stages * spec_of(p, k, "SPEC_K_BLOCKS") * 64 < p->header->model.kv_lora_rank)
    return FAIL(ERR_FORMAT, "check: kernel %u does not hold a row of %u columns", index, p->header->model.kv_lora_rank);
  if (k->kernel == OP_mla_attn) {
    uint32_t rank = p->header->model.kv_lora_rank, rope = p->header->model.rope_dim;
    if (spec_of(p, k, "SPEC_KV_LORA_RANK") != rank || spec_of(p, k, "SPEC_ROPE_DIM") != rope)
      return FAIL(ERR_FORMAT, "check: kernel %u is built for other KV rows than the model's", index);
    uint64_t of_pass = spec_of(p, k, "SPEC_ROWS"), heads = p->header->model.heads / p->header->limits.ranks;
    const uint64_t pair = spec_of(p, k, "SPEC_PAIR"), turns = spec_of(p, k, "SPEC_TURNS"), spread = spec_of(p, k, "SPEC_SPREAD");
    const bool listed = of_pass == 64 && rank == 512 && rope == 64 && spec_of(p, k, "SPEC_LISTS") == 1;
    const uint64_t shares = spec_of(p, k, "SPEC_SHARES"); /* of rows that TMA loads */
    const bool may_share = shares == ATTN_SHARES && !spec_of(p, k, "SPEC_KV_FORMAT") && !spec_of(p, k, "SPEC_LISTS");
    const bool narrow = (of_pass == 8 || of_pass == 16 || of_pass == 32) && of_pass >= heads && !pair && !turns && !spread &&
                        (!shares || may_share);
    const bool by_turns = listed && turns == 1 && !pair && !spread, paired = pair == 2 && of_pass == 64 && !turns && !spread;
    const uint64_t groups = spec_of(p, k, "SPEC_GROUPS");
    const bool is_spread = listed && (spread == 8 || spread == 16 || spread == ATTN_SPREAD_MOST) && !pair && !turns && groups <= 1;
    const uint32_t threads = by_turns ? ATTN_TURN_THREADS(spec_of(p, k, "SPEC_KV_FORMAT")) : 512;
    if (!spec_of(p, k, "SPEC_MAPS") || k->threads != threads || !(narrow || paired || by_turns || is_spread))
      return FAIL(ERR_FORMAT, "check: kernel %u takes %llu rows by %u threads", index, (unsigned long long)of_pass, k->threads);
    shared = ATTN_SHARED_BYTES((uint32_t)of_pass);
  }
  if (k->kernel == OP_kv_rope) {
    const plan_model *m = &p->header->model;
    const uint32_t held = spec_of(p, k, "SPEC_HELD"), columns = max_u32(m->nope_dim + m->rope_dim, m->v_dim);
    if (held < 1 || held > 2 || columns > 128 * held || k->threads != 256)
      return FAIL(ERR_FORMAT, "check: kernel %u holds no head of %u columns by %u threads", index, columns, k->threads);
  }
  if (k->kernel == OP_attn_fold) shared = ATTN_FOLD_BYTES(k->threads);
  if (k->kernel == OP_sample) shared = SAMPLE_PART_BYTES(p->header->model.vocab);
  if (k->kernel == OP_mla_prefill) {
    const plan_model *m = &p->header->model;
    uint64_t nope = m->nope_dim, rope = m->rope_dim, v = m->v_dim, boxes = nope / 64 + div_up(rope, 64);
    if (spec_of(p, k, "SPEC_NOPE_DIM") != nope || spec_of(p, k, "SPEC_ROPE_DIM") != rope || spec_of(p, k, "SPEC_V_DIM") != v ||
        stages < 2 || stages > 8 || k->threads != 384 || spec_of(p, k, "SPEC_MAPS") != 1)
      return FAIL(ERR_FORMAT, "check: kernel %u is built for other rows than the model's", index);
    shared = 2048 + 2 * boxes * 8192 + stages * (v <= 128 ? 2 : 1) * (boxes + v / 64) * 8192;
  }
  if (k->kernel == OP_kv_widen || k->kernel == OP_mla_expand) {
    const bool is_narrow = p->header->quant.kv_format != KV_BF16, has_pieces = p->header->limits.parity == PARITY_FAST_PREFILL && is_narrow;
    if (spec_of(p, k, "SPEC_PIECES") != has_pieces)
      return FAIL(ERR_FORMAT, "check: kernel %u is %sfor rows that are dequantized piece by piece", index, has_pieces ? "not " : "");
  }
  if (k->kernel == OP_attn) shared = grouped_bytes(p, k);
  if (k->kernel == OP_index_score) {
    uint64_t heads = spec_of(p, k, "SPEC_HEADS"), pages = spec_of(p, k, "SPEC_PAGES");
    bool is_ring = (pages == 1 || pages == 2) && (stages == 4 || stages == 8) && stages * pages <= 8;
    if ((heads != 16 && heads != 32 && heads != 64) || k->threads != 640 || !is_ring || spec_of(p, k, "SPEC_MAPS") != 1)
      return FAIL(ERR_FORMAT, "check: kernel %u takes %llu heads in %llu stages of %llu pages by %u threads", index,
                  (unsigned long long)heads, (unsigned long long)stages, (unsigned long long)pages, k->threads);
    shared = 1536 + 2 * (4 * 16384 + 2048) + stages * pages * 9216;
  }
  if (k->kernel == OP_index_topk) shared = 4 * (uint64_t)spec_of(p, k, "SPEC_HELD");
  if (k->shared_bytes != shared)
    return FAIL(ERR_FORMAT, "check: kernel %u asks for %u bytes of shared memory and uses %llu", index, k->shared_bytes,
                (unsigned long long)shared);
  return OK;
}

status check_kernels(const kernels_plan *p) {
  for (uint32_t i = 0; i < p->header->kernels.count; i++) {
    const plan_kernel *k = &p->kernels[i];
    if ((uint64_t)k->first_spec + k->spec_count > p->header->specs.count) return FAIL(ERR_FORMAT, "check: kernel %u has no constants", i);
    if (k->threads < 32 || k->threads > 1024 || k->threads % 32 != 0 || spec_of(p, k, "SPEC_THREADS") != k->threads)
      return FAIL(ERR_FORMAT, "check: kernel %u has blocks of %u threads, constant %u", i, k->threads, spec_of(p, k, "SPEC_THREADS"));
    if (k->shared_bytes > SHARED_BYTES_MAX)
      return FAIL(ERR_FORMAT, "check: kernel %u wants %u bytes of shared memory, at most %u", i, k->shared_bytes, SHARED_BYTES_MAX);
    TRY(check_build(p, k, i));
  }
  return OK;
}

uint32_t check_kernels_spec(const kernels_plan *p, const plan_kernel *kernel, const char *name) { return spec_of(p, kernel, name); }
