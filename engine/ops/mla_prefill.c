/* mla_prefill.c - the op `mla_prefill`: attention of prompts in the expanded form. NUMERICS.md "mla_prefill"; see ops/op.h. */
#include "ops/op.h"

static void operands(op_operands *o) {
  const mla_prefill_args *a = o->args;
  const uint64_t expanded = op_plus(op_times(a->heads, (uint64_t)a->nope_dim + a->v_dim), a->rope_dim);
  const uint64_t value = (uint64_t)a->heads * a->v_dim;
  READS(mla_prefill, tiles, .kind = OP_ENGINE, .columns = sizeof(attn_tile), .is_free = true);
  READS(mla_prefill, contexts, .kind = OP_ENGINE, .columns = sizeof(step_context), .is_free = true);
  READS(mla_prefill, q_nope, .kind = OP_POINT, .type = OP_BF16, .columns = (uint64_t)a->heads * a->nope_dim);
  READS(mla_prefill, q_rope, .kind = OP_POINT, .type = OP_BF16, .row_stride = op_times(a->heads, a->q_rope_stride),
        .columns = a->rope_dim, .segments = a->heads, .segment_stride = a->q_rope_stride);
  READS(mla_prefill, expanded, .kind = OP_WORKSPACE, .rows = OP_CONTEXT, .type = OP_BF16, .columns = expanded);
  WRITES(mla_prefill, out, .kind = OP_POINT, .type = OP_BF16, .columns = value);
  WRITES(mla_prefill, state, .kind = OP_WORKSPACE, .type = OP_F32, .columns = op_times(a->heads, a->v_dim + 2ull), .is_free = true);
}

static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const mla_prefill_args *a = o->args;
  uint64_t seen = 0;
  for (uint64_t i = 0; i < step->rows; i++) seen += step->position[i] + 1ull;
  sum->flops += 2.0 * a->heads * (double)seen * (double)((uint64_t)a->nope_dim + a->rope_dim + a->v_dim);
}

/* Both maps are of the workspace of a piece, in boxes of 64 rows. */
static void maps(const op_variant *v, const void *args, tensor_shape shapes[2]) {
  const mla_prefill_args *a = args;
  const uint64_t columns = (uint64_t)a->heads * (a->nope_dim + a->v_dim) + a->rope_dim;
  (void)v;
  shapes[0] = (tensor_shape){.address = (uint64_t)(uintptr_t)a->expanded, .dims = 2, .swizzled = 1,
                             .extent = {columns, (uint64_t)a->piece_pages * PAGE_TOKENS, 1},
                             .stride_bytes = {2, columns * 2, 0}, .box = {64, PAGE_TOKENS, 1}};
  shapes[1] = shapes[0];
}

const op_description ops_mla_prefill = {.pointers = offsetof(mla_prefill_args, heads) / 8, .family = OP_OF_ATTENTION, .is_product = true,
                                        .operands = operands, .cost = cost, .maps = maps};
