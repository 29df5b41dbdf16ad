/* check_forms.c - see check_forms.h. One function per kind of kernel. */
#include "checks/check_forms.h"
#include "abi.h"
#include "attn/attn_cut.h"
#include "draft.h"

static const char *name_of(const kernels_plan *p, const plan_op *op) {
  return op->name < p->header->strings.count ? p->strings + op->name : "?";
}

uint64_t check_forms_extent(plan_dim d, uint64_t rows) {
  uint64_t blocks = d.constant + (d.rows_div ? (rows * d.rows_mul + d.rows_div - 1) / d.rows_div : 0);
  return d.cap && blocks > d.cap ? d.cap : blocks;
}

/* The fused-product forms of qkv_rope and mla_fold, and no other, are for ops that have the product. */
static status check_product(const kernels_plan *p, const plan_op *op, const void *args) {
  const qkv_rope_args *rope = args;
  const mla_fold_args *fold = args;
  if (op->kernel != OP_qkv_rope && op->kernel != OP_mla_fold) return OK;
  bool multiplies = op->kernel == OP_qkv_rope ? rope->absorbs != 0 : fold->lifts != 0;
  bool is_whole = op->kernel == OP_mla_fold || !multiplies || rope->nope_dim % 64 == 0; /* steps of 64 columns */
  if ((check_kernels_spec(p, &p->kernels[op->variant], "SPEC_K_BLOCKS") != 0) == multiplies && is_whole) return OK;
  return FAIL(ERR_FORMAT, "check: op %s: its kernel is for another number of products", name_of(p, op));
}

/* Words with tags must fit into the inbox. Blocks of an exchange have one flag each, those of a norm wait for others that must run. */
static status check_exchange(const kernels_plan *p, const plan_op *op, const void *args, uint64_t rows) {
  const exchange_args *a = args;
  const rank_norm_args *norm = args;
  uint64_t bytes = 0;
  if (op->kernel == OP_rank_norm && (check_forms_extent(op->grid[0], rows) > RANK_NORM_ROWS_MAX ||
                                     rows * norm->part > EXCHANGE_TAGGED_BYTES / 4))
    return FAIL(ERR_FORMAT, "check: op %s: more bytes or blocks than its kernel exchanges", name_of(p, op));
  for (uint32_t t = 0; op->kernel == OP_exchange && t < EXCHANGE_TABLES; t++) bytes += rows * a->rows_mul[t] * a->part_bytes[t];
  const bool has_tags = op->kernel == OP_exchange && check_kernels_spec(p, &p->kernels[op->variant], "SPEC_TAGGED");
  if (has_tags && a->form != EXCHANGE_COLUMNS)
    return FAIL(ERR_FORMAT, "check: op %s: its kernel sends columns to all ranks, and no rows of owners", name_of(p, op));
  const bool fits = bytes <= EXCHANGE_TAGGED_BYTES || !has_tags;
  if (op->kernel != OP_exchange || (fits && check_forms_extent(op->grid[0], rows) <= EXCHANGE_BLOCKS_MAX)) return OK;
  return FAIL(ERR_FORMAT, "check: op %s: more bytes or blocks than its kernel exchanges", name_of(p, op));
}

static status check_gather(const kernels_plan *p, const plan_op *op, const void *args) {
  const moe_gemm_args *plain = args;
  const fp8_moe_gemm_args *scaled = args;
  const void *row_token = op->kernel == OP_moe_gemm ? plain->row_token : op->kernel == OP_fp8_moe_gemm ? scaled->row_token : NULL;
  if (!row_token || check_kernels_spec(p, &p->kernels[op->variant], "SPEC_K_BLOCKS")) return OK;
  return FAIL(ERR_FORMAT, "check: op %s: its kernel takes rows in sorted order, and gathers none", name_of(p, op));
}

/* An attn kernel reads rows of one format, and a chunk is a whole number of its stages. */
static status check_grouped(const kernels_plan *p, const plan_op *op, const void *args) {
  const attn_args *a = args;
  const uint32_t pages = check_kernels_spec(p, &p->kernels[op->variant], "SPEC_PAGES");
  if (check_kernels_spec(p, &p->kernels[op->variant], "SPEC_KV_FORMAT") != a->kv_format)
    return FAIL(ERR_FORMAT, "check: op %s: its kernel reads KV rows of another format", name_of(p, op));
  if (pages && a->chunk_tokens % (pages * PAGE_TOKENS) == 0) return OK;
  return FAIL(ERR_FORMAT, "check: op %s: a chunk of %u tokens is no whole number of stages of %u pages", name_of(p, op), a->chunk_tokens,
              pages);
}

/* An mla_attn kernel reads rows of one format, by top-k lists or of all tokens; two forms only read lists of one chunk. */
static status check_cache(const kernels_plan *p, const plan_op *op, const void *args) {
  const mla_attn_args *a = args;
  const plan_kernel *k = &p->kernels[op->variant];
  if (op->kernel == OP_attn) return check_grouped(p, op, args);
  if (op->kernel != OP_mla_attn) return OK;
  if (check_kernels_spec(p, k, "SPEC_TURNS") && !attn_takes_turns(a))
    return FAIL(ERR_FORMAT, "check: op %s: its kernel folds no chunks, and takes lists of 65 to 128 heads", name_of(p, op));
  const bool is_one_group = check_kernels_spec(p, k, "SPEC_GROUPS") == 1;
  if (check_kernels_spec(p, k, "SPEC_SPREAD") && !(attn_may_spread(a) && is_one_group == (a->heads <= 64)))
    return FAIL(ERR_FORMAT, "check: op %s: its kernel takes lists of %s heads that are one chunk, of at most %u tokens", name_of(p, op),
                is_one_group ? "33 to 64" : "65 to 128", ATTN_SPREAD_PLACES);
  if (check_kernels_spec(p, k, "SPEC_KV_FORMAT") == a->kv_format &&
      (check_kernels_spec(p, k, "SPEC_LISTS") != 0) == (a->list_max > 0))
    return OK;
  return FAIL(ERR_FORMAT, "check: op %s: its kernel reads KV rows of another format, or of other tokens", name_of(p, op));
}

/* rank_norm and the form of rmsnorm for few rows keep a whole row in registers, in full vectors. */
static status check_row(const kernels_plan *p, const plan_op *op, const void *args) {
  const rmsnorm_args *a = args;
  const rank_norm_args *of_ranks = args;
  const plan_kernel *k = &p->kernels[op->variant];
  const bool is_of_ranks = op->kernel == OP_rank_norm;
  if (!is_of_ranks && (op->kernel != OP_rmsnorm || k->threads == 256)) return OK;
  const uint32_t dim = is_of_ranks ? of_ranks->dim : a->dim, strides = is_of_ranks ? of_ranks->y_stride : a->x_stride | a->y_stride;
  const uint64_t held = check_kernels_spec(p, k, "SPEC_HELD");
  if (is_of_ranks && (k->threads != 512 || (held != 1 && held != 2 && held != 4)))
    return FAIL(ERR_FORMAT, "check: op %s: its kernel has %u threads with %u vectors", name_of(p, op), k->threads, (uint32_t)held);
  if ((dim | strides) % 4 == 0 && dim <= 4 * k->threads * held) return OK;
  return FAIL(ERR_FORMAT, "check: op %s: its kernel does not keep a row of %u columns", name_of(p, op), dim);
}

status check_forms(const kernels_plan *p, const plan_op *op, const void *args, uint64_t rows) {
  TRY(check_row(p, op, args));
  TRY(check_gather(p, op, args));
  TRY(check_cache(p, op, args));
  TRY(check_product(p, op, args));
  return check_exchange(p, op, args, rows);
}
