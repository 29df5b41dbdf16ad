/* mla_expand.c - the op `mla_expand`: keys and values of a piece of the contexts. NUMERICS.md "mla_expand"; see ops/op.h. */
#include "ops/op.h"
#include "base/limits.h"
#include "ops/boxes.h"

static void operands(op_operands *o) {
  const mla_expand_args *a = o->args;
  const uint64_t kv = (uint64_t)a->kv_lora_rank + a->rope_dim;
  READS(mla_expand, contexts, .kind = OP_ENGINE, .columns = sizeof(step_context), .is_free = true);
  const bool is_paged = op_has(o, offsetof(mla_expand_args, block_table)); /* else kv_widen made the rows */
  READS(mla_expand, kv, .kind = is_paged ? OP_CACHE : OP_WORKSPACE, .rows = OP_CONTEXT, .type = OP_BF16, .columns = kv);
  READS(mla_expand, block_table, .kind = OP_ENGINE, .type = OP_U32, .columns = a->block_table_stride, .is_free = true);
  READS(mla_expand, w, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_BF16, .columns = op_times(a->n, a->kv_lora_rank));
  WRITES(mla_expand, y, .kind = OP_WORKSPACE, .rows = OP_CONTEXT, .type = OP_BF16, .columns = (uint64_t)a->n + a->rope_dim);
}

static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const mla_expand_args *a = o->args;
  sum->flops += 2.0 * (double)step->kv_rows * (double)((uint64_t)a->n * a->kv_lora_rank);
}

/* KV pages, loaded by boxes inside a page. Page numbers are not bounded here, but the plan's pages are. */
static void maps(const op_variant *v, const void *args, tensor_shape shapes[2]) {
  const mla_expand_args *a = args;
  const uint64_t columns = (uint64_t)a->kv_lora_rank + a->rope_dim;
  shapes[0] = boxes_many_weights(a->w, a->n, a->kv_lora_rank, 1, 0, Y_BF16, v->tile_n);
  shapes[1] = boxes_matrices(a->kv, a->kv_lora_rank, PAGE_TOKENS, KV_PAGES_MAX, columns, PAGE_TOKENS * columns, boxes_many_x(v, false), 1);
}

const op_description ops_mla_expand = {.pointers = offsetof(mla_expand_args, n) / 8, .optional = OP_POINTER(mla_expand, block_table),
                                       .family = OP_OF_ATTENTION, .operands = operands, .cost = cost, .maps = maps};
