/* index_score.c - the op `index_score`: scores of all keys for each query of the indexer. NUMERICS.md "index_score"; see ops/op.h. */
#include "ops/op.h"
#include "base/limits.h"

/* Operands are free here, as only tokens beyond the topk-th are scored: cost() counts them. A row of scores is as long as the context and
 * no point; the lists made from it are one. */
static void operands(op_operands *o) {
  const index_score_args *a = o->args;
  READS(index_score, q_codes, .kind = OP_POINT, .columns = (uint64_t)a->heads * INDEX_DIM, .is_free = true);
  READS(index_score, w, .kind = OP_POINT, .type = OP_F32, .columns = a->heads, .is_free = true);
  READS(index_score, cache, .kind = OP_CACHE, .rows = OP_CONTEXT, .columns = INDEX_DIM, .page_stride = INDEX_PAGE_BYTES, .is_free = true);
  READS(index_score, cache, .kind = OP_CACHE, .rows = OP_CONTEXT, .type = OP_F32, .first = PAGE_TOKENS * INDEX_DIM / 4, .columns = 1,
        .page_stride = INDEX_PAGE_BYTES / 4, .is_free = true);
  READS(index_score, position, .kind = OP_ENGINE, .type = OP_U32, .columns = 1, .is_free = true);
  READS(index_score, seq, .kind = OP_ENGINE, .type = OP_U32, .columns = 1, .is_free = true);
  READS(index_score, block_table, .kind = OP_ENGINE, .type = OP_U32, .columns = a->block_table_stride, .is_free = true);
  WRITES(index_score, scores, .kind = OP_WORKSPACE, .type = OP_F32, .columns = a->stride, .is_free = true);
}

/* Counts every key of the contexts once, and the scores of the op's rows: the ops of a step that score other rows share these keys. */
static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const index_score_args *a = o->args;
  uint64_t pairs = 0, rows = 0;
  for (uint64_t i = 0; i < step->rows; i++) {
    const bool is_scored = step->position[i] >= a->topk;
    pairs += is_scored ? step->position[i] + 1ull : 0;
    rows += is_scored;
  }
  sum->kv_bytes += rows ? step->kv_rows * (INDEX_DIM + 4) : 0;
  sum->activation_bytes += rows * a->heads * (INDEX_DIM + 4ull) + pairs * 4;
  sum->flops += 2.0 * a->heads * INDEX_DIM * (double)pairs;
}

static void window(const void *args, uint32_t *first, uint32_t *count) {
  const index_score_args *a = args;
  *first = a->row_first;
  *count = a->row_count;
}

/* Pages of the indexer's cache, one box each: 64 keys and two rows of scales; and queries by 128 heads. Page numbers are not bounded
 * here. */
static void maps(const op_variant *v, const void *args, tensor_shape shapes[2]) {
  const index_score_args *a = args;
  shapes[0] = (tensor_shape){.address = (uint64_t)(uintptr_t)a->cache, .dims = 3, .swizzled = 1,
                             .extent = {INDEX_DIM, INDEX_PAGE_BYTES / INDEX_DIM, KV_PAGES_MAX},
                             .stride_bytes = {1, INDEX_DIM, INDEX_PAGE_BYTES}, .box = {INDEX_DIM, INDEX_PAGE_BYTES / INDEX_DIM, 1}};
  shapes[1] = (tensor_shape){.address = (uint64_t)(uintptr_t)a->q_codes, .dims = 2, .swizzled = 1,
                             .extent = {INDEX_DIM, (uint64_t)v->launch_rows * a->heads, 1}, .stride_bytes = {1, INDEX_DIM, 0},
                             .box = {INDEX_DIM, 128, 1}};
}

const op_description ops_index_score = {.pointers = offsetof(index_score_args, heads) / 8, .family = OP_OF_ATTENTION, .is_product = true,
                                        .is_e4m3 = true, .operands = operands, .cost = cost, .window = window, .maps = maps};
