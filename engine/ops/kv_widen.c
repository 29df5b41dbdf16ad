/* kv_widen.c - the op `kv_widen`: KV rows of prompts dequantized to bf16. NUMERICS.md "kv_widen"; see ops/op.h. */
#include "ops/op.h"

static void operands(op_operands *o) {
  const kv_widen_args *a = o->args;
  READS(kv_widen, contexts, .kind = OP_ENGINE, .columns = sizeof(step_context), .is_free = true);
  READS(kv_widen, kv, .kind = OP_CACHE, .rows = OP_CONTEXT,
        .columns = KV_ROW_BYTES(a->kv_format, (uint64_t)a->kv_lora_rank, (uint64_t)a->rope_dim));
  READS(kv_widen, kv_scale, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_F32, .columns = 1, .is_free = true);
  READS(kv_widen, block_table, .kind = OP_ENGINE, .type = OP_U32, .columns = a->block_table_stride, .is_free = true);
  WRITES(kv_widen, y, .kind = OP_WORKSPACE, .rows = OP_CONTEXT, .type = OP_BF16, .columns = (uint64_t)a->kv_lora_rank + a->rope_dim);
  WRITES(kv_widen, table, .kind = OP_WORKSPACE, .rows = OP_ONCE, .type = OP_U32, .columns = a->pages_max, .is_free = true);
}

const op_description ops_kv_widen = {.pointers = offsetof(kv_widen_args, kv_lora_rank) / 8,
                                     .optional = OP_POINTER(kv_widen, kv_scale) | OP_POINTER(kv_widen, table),
                                     .family = OP_OF_ATTENTION, .operands = operands};
