/* index_qk.c - the op `index_qk`: queries, keys and weights of the indexer. NUMERICS.md "index_qk"; see ops/op.h. */
#include "ops/op.h"

#define SCALES (PAGE_TOKENS * INDEX_DIM) /* of a page, after its codes: bytes */

static void operands(op_operands *o) {
  const index_qk_args *a = o->args;
  const uint64_t q = (uint64_t)a->heads * INDEX_DIM;
  READS(index_qk, q, .kind = OP_POINT, .type = OP_F32, .row_stride = a->q_stride, .columns = q);
  READS(index_qk, k, .kind = OP_POINT, .type = OP_F32, .row_stride = a->k_stride, .columns = INDEX_DIM);
  READS(index_qk, w, .kind = OP_POINT, .type = OP_F32, .row_stride = a->w_stride, .columns = a->heads);
  READS(index_qk, gain, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_F32, .columns = INDEX_DIM);
  READS(index_qk, bias, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_F32, .columns = INDEX_DIM);
  READS(index_qk, cos_sin, .kind = OP_ENGINE, .type = OP_F32, .columns = a->rope_dim);
  READS(index_qk, position, .kind = OP_ENGINE, .type = OP_U32, .columns = 1);
  READS(index_qk, seq, .kind = OP_ENGINE, .type = OP_U32, .columns = 1, .is_free = true);
  READS(index_qk, block_table, .kind = OP_ENGINE, .type = OP_U32, .columns = a->block_table_stride, .is_free = true);
  WRITES(index_qk, q_codes, .kind = OP_POINT, .columns = q, .point = "q");
  WRITES(index_qk, w_out, .kind = OP_POINT, .type = OP_F32, .columns = a->heads, .point = "w");
  WRITES(index_qk, cache, .kind = OP_CACHE, .rows = OP_PAGED, .columns = INDEX_DIM, .page_stride = INDEX_PAGE_BYTES, .point = "k");
  WRITES(index_qk, cache, .kind = OP_CACHE, .rows = OP_PAGED, .type = OP_F32, .first = SCALES / 4, .columns = 1,
         .page_stride = INDEX_PAGE_BYTES / 4, .point = "k_scale");
}

static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const index_qk_args *a = o->args;
  const uint64_t rows = step->rows * (a->heads + 1ull);
  sum->flops += (double)rows * (3.0 * a->rope_dim + 9.0 * INDEX_DIM) + 6.0 * (double)step->rows * INDEX_DIM;
}

const op_description ops_index_qk = {.pointers = offsetof(index_qk_args, q_stride) / 8, .family = OP_OF_ROWS, .operands = operands,
                                     .cost = cost};
