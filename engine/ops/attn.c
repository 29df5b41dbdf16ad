/* attn.c - the op `attn`: grouped-query attention over the paged KV cache. NUMERICS.md "attn"; see ops/op.h. */
#include "ops/op.h"
#include "base/limits.h"
#include "kernels_src/attn/attn_cut.h"
#include "ops/boxes.h"

#define WORDS(type) (sizeof(type) / 4)

/* Columns of a KV row. */
static uint64_t columns_of(const attn_args *a) { return op_times(a->kv_heads, (uint64_t)a->head_dim + a->v_dim); }

/* Bytes of a KV row: of a number, since there are no scales in it. */
static uint64_t row_bytes_of(const attn_args *a) { return op_times(columns_of(a), a->kv_format == KV_BF16 ? 2 : 1); }

/* Complete rows are a point; if the context is split, attn_fold completes them. The list of pieces has no cost. */
static void operands(op_operands *o) {
  const attn_args *a = o->args;
  const uint64_t value = op_times(a->heads, a->v_dim);
  READS(attn, tiles, .kind = OP_ENGINE, .columns = sizeof(attn_tile), .is_free = true);
  READS(attn, q, .kind = OP_POINT, .type = OP_BF16, .columns = op_times(a->heads, a->head_dim));
  READS(attn, kv, .kind = OP_CACHE, .rows = OP_CONTEXT, .is_free = true, .columns = row_bytes_of(a)); /* cost() */
  READS(attn, kv_scale, .kind = OP_WEIGHTS, .rows = OP_ONCE, .type = OP_F32, .columns = 1, .is_free = true);
  READS(attn, block_table, .kind = OP_ENGINE, .type = OP_U32, .columns = a->block_table_stride, .is_free = true);
  READS(attn, counts, .kind = OP_WORKSPACE, .rows = OP_ONCE, .type = OP_U32, .columns = WORDS(attn_counts), .is_free = true);
  READS(attn, pieces, .kind = OP_WORKSPACE, .type = OP_U32, .columns = WORDS(attn_piece), .is_free = true);
  WRITES(attn, out, .kind = a->slots_max > 0 ? OP_WORKSPACE : OP_POINT, .type = OP_BF16, .columns = value);
  WRITES(attn, partial_o, .kind = OP_WORKSPACE, .type = OP_F32, .columns = value, .is_free = true);
  WRITES(attn, partial_ml, .kind = OP_WORKSPACE, .type = OP_F32, .columns = 2ull * a->heads, .is_free = true);
  WRITES(attn, scratch, .kind = OP_WORKSPACE, .type = OP_F32, .columns = op_times(ATTN_GROUPED_TILE_ROWS, a->v_dim + 2ull),
         .is_free = true);
}

static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const attn_args *a = o->args;
  uint64_t seen = 0;
  for (uint64_t i = 0; i < step->rows; i++) seen += step->position[i] + 1ull;
  sum->kv_bytes += op_times(step->kv_rows, row_bytes_of(a));
  sum->flops += 2.0 * a->heads * (double)seen * (double)((uint64_t)a->head_dim + a->v_dim);
}

/* attn/grouped/load.cuh: keys, then values, of one KV head, by boxes of 64 columns and 64 tokens. Page numbers are not bounded here, but
 * the plan's pages are. Passes of 64 rows are for decoding. */
static void maps(const op_variant *v, const void *args, tensor_shape shapes[2]) {
  const attn_args *a = args;
  const uint64_t head_bytes = 2 * ((uint64_t)a->head_dim + a->v_dim), keys = (uint64_t)(uintptr_t)a->kv;
  shapes[0] = (tensor_shape){.address = keys, .extent = {a->head_dim, a->kv_heads, (uint64_t)KV_PAGES_MAX * PAGE_TOKENS}, .dims = 3,
                             .swizzled = 1, .stride_bytes = {2, head_bytes, a->kv_heads * head_bytes}, .box = {64, 1, PAGE_TOKENS}};
  shapes[1] = shapes[0];
  shapes[1].address = keys + 2ull * a->head_dim;
  shapes[1].extent[0] = a->v_dim;
  if (v->rows == ATTN_GROUPED_ROWS) boxes_read_once(shapes);
  if (a->kv_format == KV_BF16) return;
  for (u32 i = 0; i < 2; i++) { /* warps load codes: the maps are not used, but must be valid */
    shapes[i].address = keys;
    shapes[i].stride_bytes[0] = 1;
    shapes[i].stride_bytes[1] /= 2;
    shapes[i].stride_bytes[2] /= 2;
    shapes[i].box[0] = 128;
  }
}

const op_description ops_attn = {
    .pointers = offsetof(attn_args, heads) / 8,
    .optional = OP_POINTER(attn, kv_scale) | OP_POINTER(attn, partial_o) | OP_POINTER(attn, partial_ml) | OP_POINTER(attn, counts) |
                OP_POINTER(attn, pieces),
    .family = OP_OF_ATTENTION, .is_product = true, .is_completed = true, .operands = operands, .cost = cost, .maps = maps};
