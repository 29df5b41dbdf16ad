/* kv_rope.c - the op `kv_rope`: queries, and the KV row of each token, of grouped-query attention. NUMERICS.md "kv_rope"; see ops/op.h. */
#include "ops/op.h"

static void operands(op_operands *o) {
  const kv_rope_args *a = o->args;
  const uint64_t q = op_times(a->heads, a->head_dim), k = op_times(a->kv_heads, a->head_dim), v = op_times(a->kv_heads, a->v_dim);
  const bool is_bf16 = a->kv_format == KV_BF16;
  READS(kv_rope, x, .kind = OP_POINT, .type = OP_F32, .row_stride = a->x_stride, .columns = op_plus(q, op_plus(k, v)));
  READS(kv_rope, bias, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_BF16, .columns = op_plus(q, op_plus(k, v)));
  READS(kv_rope, q_norm, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_BF16, .columns = a->norms_row ? q : a->head_dim);
  READS(kv_rope, k_norm, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_BF16, .columns = a->norms_row ? k : a->head_dim);
  READS(kv_rope, cos_sin, .kind = OP_ENGINE, .type = OP_F32, .columns = a->rope_dim);
  READS(kv_rope, position, .kind = OP_ENGINE, .type = OP_U32, .columns = 1);
  READS(kv_rope, seq, .kind = OP_ENGINE, .type = OP_U32, .columns = 1);
  READS(kv_rope, block_table, .kind = OP_ENGINE, .type = OP_U32, .columns = a->block_table_stride, .is_free = true);
  READS(kv_rope, kv_scale, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_F32, .columns = 1, .is_free = true);
  WRITES(kv_rope, q_out, .kind = OP_POINT, .type = OP_BF16, .columns = q, .point = "q");
  WRITES(kv_rope, kv, .kind = OP_CACHE, .rows = OP_PAGED, .type = is_bf16 ? OP_BF16 : OP_BYTES, .columns = op_plus(k, v), .point = "kv");
}

/* A sum with a bias, a norm's four operations, and three of a rotation. */
static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const kv_rope_args *a = o->args;
  const double heads = (double)a->heads + a->kv_heads, normal = heads * a->head_dim, values = (double)a->kv_heads * a->v_dim;
  sum->flops += (double)step->rows * ((op_has(o, offsetof(kv_rope_args, bias)) ? normal + values : 0) +
                                      (op_has(o, offsetof(kv_rope_args, q_norm)) ? 4 * normal : 0) +
                                      (op_has(o, offsetof(kv_rope_args, cos_sin)) ? 3 * heads * a->rope_dim : 0));
}

const op_description ops_kv_rope = {
    .pointers = offsetof(kv_rope_args, x_stride) / 8,
    .optional = OP_POINTER(kv_rope, bias) | OP_POINTER(kv_rope, q_norm) | OP_POINTER(kv_rope, k_norm) | OP_POINTER(kv_rope, cos_sin) |
                OP_POINTER(kv_rope, kv_scale),
    .family = OP_OF_ROWS, .operands = operands, .cost = cost};
