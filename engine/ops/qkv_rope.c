/* qkv_rope.c - the op `qkv_rope`: rotated queries, and the KV row of each token. NUMERICS.md "qkv_rope"; see ops/op.h. */
#include "ops/op.h"
#include "ops/boxes.h"

static uint64_t absorbed(const qkv_rope_args *a) {
  return op_times(op_times(a->absorbs ? a->heads : 0, a->kv_lora_rank), a->nope_dim);
}

static void operands(op_operands *o) {
  const qkv_rope_args *a = o->args;
  const uint64_t nope = (uint64_t)a->heads * a->nope_dim, kv = (uint64_t)a->kv_lora_rank + a->rope_dim, q = op_times(a->heads, kv);
  const bool is_bf16 = a->kv_format == KV_BF16;
  READS(qkv_rope, q, .kind = OP_POINT, .type = OP_F32, .row_stride = a->q_stride,
        .columns = op_times(a->heads, (uint64_t)a->nope_dim + a->rope_dim));
  READS(qkv_rope, kv_in, .kind = OP_POINT, .type = OP_F32, .row_stride = a->kv_in_stride, .columns = kv);
  READS(qkv_rope, weight, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_BF16, .columns = a->kv_lora_rank);
  READS(qkv_rope, cos_sin, .kind = OP_ENGINE, .type = OP_F32, .columns = a->rope_dim);
  READS(qkv_rope, position, .kind = OP_ENGINE, .type = OP_U32, .columns = 1);
  READS(qkv_rope, seq, .kind = OP_ENGINE, .type = OP_U32, .columns = 1);
  READS(qkv_rope, block_table, .kind = OP_ENGINE, .type = OP_U32, .columns = a->block_table_stride, .is_free = true);
  READS(qkv_rope, q_scale, .kind = OP_ENGINE, .type = OP_F32, .columns = 1, .is_free = true);
  READS(qkv_rope, w_uk, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_BF16, .columns = absorbed(a));
  READS(qkv_rope, kv_scale, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_F32, .columns = 1, .is_free = true);
  WRITES(qkv_rope, q_nope, .kind = OP_POINT, .type = OP_BF16, .columns = nope, .point = "q_nope");
  WRITES(qkv_rope, q_latent, .kind = OP_POINT, .type = OP_BF16, .first = a->kv_lora_rank, .row_stride = q, .columns = a->rope_dim,
         .segments = a->heads, .segment_stride = kv, .point = "q_latent");
  /* A cost counts bf16 numbers, whatever the format. */
  WRITES(qkv_rope, kv, .kind = OP_CACHE, .rows = OP_PAGED, .type = is_bf16 ? OP_BF16 : OP_BYTES, .cost_bytes = 2 * kv,
         .columns = is_bf16 ? kv : KV_ROW_BYTES(a->kv_format, (uint64_t)a->kv_lora_rank, (uint64_t)a->rope_dim),
         .point = "kv", .is_replicated = true);
  if (a->absorbs)
    WRITES(qkv_rope, q_latent, .kind = OP_POINT, .type = OP_BF16, .row_stride = q, .columns = a->kv_lora_rank, .segments = a->heads,
           .segment_stride = kv, .gemm = "absorb");
}

static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const qkv_rope_args *a = o->args;
  sum->flops += (double)step->rows * (4.0 * a->kv_lora_rank + 3.0 * a->rope_dim * (1 + a->heads) + 2.0 * (double)absorbed(a));
}

static void maps(const op_variant *v, const void *args, tensor_shape shapes[2]) {
  const qkv_rope_args *a = args;
  shapes[0] = boxes_few_weights(v, a->w_uk, a->kv_lora_rank, a->nope_dim, a->heads, (uint64_t)a->kv_lora_rank * a->nope_dim, Y_BF16);
  shapes[1] = shapes[0];
}

const op_description ops_qkv_rope = {
    .pointers = offsetof(qkv_rope_args, q_stride) / 8,
    .optional = OP_POINTER(qkv_rope, q_scale) | OP_POINTER(qkv_rope, w_uk) | OP_POINTER(qkv_rope, kv_scale),
    .family = OP_OF_ROWS, .operands = operands, .cost = cost, .maps = maps};
