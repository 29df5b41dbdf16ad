/* mla_fold.c - the op `mla_fold`: combines the partial results of split attention. NUMERICS.md "mla_fold"; see ops/op.h. */
#include "ops/op.h"
#include "ops/boxes.h"

static uint64_t lifted(const mla_fold_args *a) { return a->lifts ? op_times(a->heads, a->v_dim) : 0; }

static void operands(op_operands *o) {
  const mla_fold_args *a = o->args;
  const uint64_t latent = (uint64_t)a->heads * a->kv_lora_rank;
  READS(mla_fold, counts, .kind = OP_WORKSPACE, .rows = OP_ONCE, .type = OP_U32, .columns = sizeof(attn_counts) / 4, .is_free = true);
  READS(mla_fold, parts, .kind = OP_WORKSPACE, .type = OP_U32, .columns = sizeof(attn_part) / 4, .is_free = true);
  READS(mla_fold, partial_o, .kind = OP_WORKSPACE, .type = OP_F32, .columns = latent, .is_free = true);
  READS(mla_fold, partial_ml, .kind = OP_WORKSPACE, .type = OP_F32, .columns = 2ull * a->heads, .is_free = true);
  READS(mla_fold, w_uv, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_BF16, .columns = op_times(lifted(a), a->kv_lora_rank));
  WRITES(mla_fold, out, .kind = OP_POINT, .type = OP_BF16, .columns = latent);
  if (a->lifts)
    WRITES(mla_fold, value, .kind = OP_POINT, .type = OP_BF16, .row_stride = lifted(a), .columns = a->v_dim, .segments = a->heads,
           .segment_stride = a->v_dim, .gemm = "v_up");
}

static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const mla_fold_args *a = o->args;
  sum->flops += 2.0 * (double)step->rows * (double)op_times(lifted(a), a->kv_lora_rank);
}

static void maps(const op_variant *v, const void *args, tensor_shape shapes[2]) {
  const mla_fold_args *a = args;
  shapes[0] = boxes_few_weights(v, a->w_uv, a->v_dim, a->kv_lora_rank, a->heads, (uint64_t)a->v_dim * a->kv_lora_rank, Y_BF16);
  shapes[1] = shapes[0];
}

const op_description ops_mla_fold = {
    .pointers = offsetof(mla_fold_args, heads) / 8,
    .optional = OP_POINTER(mla_fold, w_uv) | OP_POINTER(mla_fold, value),
    .family = OP_OF_ATTENTION, .completes_prior = true, .prior = &ops_mla_attn, .operands = operands, .cost = cost, .maps = maps};
