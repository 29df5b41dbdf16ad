/* mla_attn.c - the op `mla_attn`: attention in the absorbed form. NUMERICS.md "mla_attn"; see ops/op.h. */
#include "ops/op.h"
#include "base/limits.h"
#include "kernels_src/attn/attn_cut.h"
#include "ops/boxes.h"

#define WORDS(type) (sizeof(type) / 4)

/* Complete rows are a point; if the context is split, mla_fold completes them. The list of pieces has no cost. */
static void operands(op_operands *o) {
  const mla_attn_args *a = o->args;
  const uint64_t q = op_times(a->heads, (uint64_t)a->kv_lora_rank + a->rope_dim), latent = (uint64_t)a->heads * a->kv_lora_rank;
  READS(mla_attn, tiles, .kind = OP_ENGINE, .columns = sizeof(attn_tile), .is_free = true);
  READS(mla_attn, q, .kind = OP_POINT, .type = OP_BF16, .columns = q);
  READS(mla_attn, kv, .kind = OP_CACHE, .rows = OP_CONTEXT, .is_free = true, /* cost() */
        .columns = KV_ROW_BYTES(a->kv_format, (uint64_t)a->kv_lora_rank, (uint64_t)a->rope_dim));
  READS(mla_attn, kv_scale, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_F32, .columns = 1, .is_free = true);
  READS(mla_attn, lists, .kind = OP_POINT, .type = OP_U32, .columns = a->list_max, .is_free = true);
  READS(mla_attn, block_table, .kind = OP_ENGINE, .type = OP_U32, .columns = a->block_table_stride, .is_free = true);
  READS(mla_attn, counts, .kind = OP_WORKSPACE, .rows = OP_ONCE, .type = OP_U32, .columns = WORDS(attn_counts), .is_free = true);
  READS(mla_attn, pieces, .kind = OP_WORKSPACE, .type = OP_U32, .columns = WORDS(attn_piece), .is_free = true);
  WRITES(mla_attn, out, .kind = a->slots_max > 0 ? OP_WORKSPACE : OP_POINT, .type = OP_BF16, .columns = latent);
  WRITES(mla_attn, partial_o, .kind = OP_WORKSPACE, .type = OP_F32, .columns = latent, .is_free = true);
  WRITES(mla_attn, partial_ml, .kind = OP_WORKSPACE, .type = OP_F32, .columns = 2ull * a->heads, .is_free = true);
  WRITES(mla_attn, scratch, .kind = OP_WORKSPACE, .type = OP_F32, .columns = attn_block_floats(a), .is_free = true);
  WRITES(mla_attn, meetings, .kind = OP_ENGINE, .rows = OP_ONCE, .type = OP_U32, .columns = ATTN_MEETINGS, .is_free = true);
}

/* Each token's list may name a KV row again: a row counts as often as it is named, but the sum is at most the number of rows. */
static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const mla_attn_args *a = o->args;
  uint64_t seen = 0, rows = step->kv_rows;
  for (uint64_t i = 0; i < step->rows; i++) {
    const uint64_t own = step->position[i] + 1ull;
    seen += a->list_max && own > a->list_max ? a->list_max : own;
  }
  if (a->list_max && seen < rows) rows = seen;
  sum->kv_bytes += rows * KV_ROW_BYTES(a->kv_format, (uint64_t)a->kv_lora_rank, (uint64_t)a->rope_dim);
  sum->flops += 2.0 * a->heads * (double)seen * (double)(2ull * a->kv_lora_rank + a->rope_dim);
}

/* attn/decode/form.cuh, attn/cluster/form.cuh: boxes of 64 tokens, or of the variant's rows, by 64 columns. Page numbers are not bounded
 * here, but the plan's pages are. */
static void maps(const op_variant *v, const void *args, tensor_shape shapes[2]) {
  const mla_attn_args *a = args;
  const uint64_t columns = (uint64_t)a->kv_lora_rank + a->rope_dim;
  shapes[1] = (tensor_shape){.address = (uint64_t)(uintptr_t)a->q, .extent = {columns, (uint64_t)v->launch_rows * a->heads, 1}, .dims = 2,
                             .swizzled = 1, .stride_bytes = {2, 2 * columns, 0}, .box = {64, v->rows, 1}};
  shapes[0] = shapes[1];
  if (v->rows < 64) boxes_read_once(shapes);
  if (a->kv_format != KV_BF16 || a->list_max > 0) return; /* rows are gathered */
  shapes[0].address = (uint64_t)(uintptr_t)a->kv;
  shapes[0].extent[1] = (uint64_t)KV_PAGES_MAX * PAGE_TOKENS;
  shapes[0].box[1] = PAGE_TOKENS;
}

const op_description ops_mla_attn = {
    .pointers = offsetof(mla_attn_args, heads) / 8,
    .optional = OP_POINTER(mla_attn, partial_o) | OP_POINTER(mla_attn, partial_ml) | OP_POINTER(mla_attn, counts) |
                OP_POINTER(mla_attn, pieces) | OP_POINTER(mla_attn, kv_scale) | OP_POINTER(mla_attn, lists) |
                OP_POINTER(mla_attn, meetings),
    .family = OP_OF_ATTENTION, .is_product = true, .is_completed = true, .operands = operands, .cost = cost, .maps = maps};
