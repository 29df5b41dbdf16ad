/* check_branches.c - see check_branches.h. Shares no code with the graph that chose the branches. */
#include "checks/check_branches.h"
#include <string.h>
#include "abi.h"
#include "checks/check_access.h"
#include "draft.h"

typedef struct window { /* ops first .. join - 1, and the op that joins, in steps of low to high rows */
  uint32_t first, join, low, high;
} window;

/* Of a step. */
static uint32_t first_rows(const branches_plan *p, const plan_op *op) { return check_tokens_from(&p->header->limits, op); }
static uint32_t last_rows(const branches_plan *p, const plan_op *op) { return check_tokens_to(&p->header->limits, op); }

static bool is_in(const branches_plan *p, window w, const plan_op *op) { return first_rows(p, op) <= w.high && last_rows(p, op) >= w.low; }

/* Whether the op writes through the pointer at args_offset, at its largest row count. */
static bool is_written(const branches_plan *p, const plan_op *op, uint32_t args_offset) {
  uint64_t args[4096 / 8] = {0};
  check_access accesses[CHECK_ACCESS_MAX];
  ASSERT(op->args_bytes <= sizeof args);
  memcpy(args, p->args + op->args_offset, op->args_bytes);
  for (uint32_t i = 0; i < op->fixup_count; i++) args[p->fixups[op->first_fixup + i].args_offset / 8] = 1; /* not NULL */
  check_rows rows = {.tokens = op->rows_max, .logits = op->rows_max, .blocks = 1, .is_prompt = op->rows_kind == ROWS_PROMPT,
                     .of_drafts = op->rows_kind == ROWS_DRAFTS, .own = op->rows_max};
  uint32_t count = check_access_describe(op->kernel, args, op->args_bytes, &p->header->limits, &rows, accesses);
  for (uint32_t i = 0; i < count; i++)
    if (accesses[i].args_offset == args_offset && accesses[i].is_write) return true;
  return false;
}

static const char *name_of(const branches_plan *p, const plan_op *op) { return p->strings + op->name; }

/* Whether an op of the other branch uses the buffer of `op` at this pointer while one of the two writes it. */
static status check_pointer(const branches_plan *p, window w, const plan_op *op, const plan_fixup *f) {
  uint32_t home = p->homes[f - p->fixups];
  const plan_buffer *b = &p->buffers[home];
  if (f->region != REGION_WORK) return OK;
  if (b->first_op > w.first || b->last_op < w.join)
    return FAIL(ERR_FORMAT, "check: %s is not alive while op %s may run", p->strings + b->name, name_of(p, op));
  for (uint32_t i = w.first; i < w.join; i++) {
    const plan_op *other = &p->ops[i];
    if ((other->branch == BRANCH_SIDE) == (op->branch == BRANCH_SIDE) || !is_in(p, w, other)) continue;
    for (uint32_t j = 0; j < other->fixup_count; j++) {
      const plan_fixup *g = &p->fixups[other->first_fixup + j];
      if (p->homes[other->first_fixup + j] != home) continue;
      if (is_written(p, op, f->args_offset) || is_written(p, other, g->args_offset))
        return FAIL(ERR_FORMAT, "check: ops %s and %s may run beside each other, and both use %s", name_of(p, op), name_of(p, other),
                    p->strings + b->name);
    }
  }
  return OK;
}

static status check_regions(const branches_plan *p, const plan_op *op) {
  for (uint32_t i = 0; i < op->fixup_count; i++) {
    uint32_t region = p->fixups[op->first_fixup + i].region;
    if (region != REGION_WORK && region != REGION_WEIGHTS && region != REGION_STEP)
      return FAIL(ERR_FORMAT, "check: op %s of the side branch uses more than weights and activations", name_of(p, op));
  }
  return OK;
}

static status check_window(const branches_plan *p, window w) {
  for (uint32_t i = w.first; i < w.join; i++) {
    const plan_op *op = &p->ops[i];
    for (uint32_t j = 0; j < op->fixup_count && is_in(p, w, op); j++) TRY(check_pointer(p, w, op, &p->fixups[op->first_fixup + j]));
  }
  return OK;
}

static uint32_t order_of(const branches_plan *p, const plan_op *op) {
  const void *args = p->args + op->args_offset;
  if (op->kernel == OP_gemm) return ((const gemm_args *)args)->order;
  if (op->kernel == OP_gemm_bias) return ((const gemm_bias_args *)args)->order;
  if (op->kernel == OP_fp8_gemm) return ((const fp8_gemm_args *)args)->order;
  return op->kernel == OP_router ? ((const router_args *)args)->order : ORDER_CHAIN;
}

/* before: the op before this one in steps of one token, if it is in the same window. */
static status check_order(const branches_plan *p, const plan_op *before, const plan_op *op) {
  uint32_t order = order_of(p, op);
  if (order > ORDER_BESIDE) return FAIL(ERR_FORMAT, "check: op %s has order %u, at most %u expected", name_of(p, op), order, ORDER_BESIDE);
  if (order != ORDER_BESIDE) return OK;
  if (op->rows_max >= BRANCH_ROWS_MIN) return FAIL(ERR_FORMAT, "check: op %s has branches and starts beside another", name_of(p, op));
  if (!before || order_of(p, before) != ORDER_FIRST || (before->branch == BRANCH_SIDE) == (op->branch == BRANCH_SIDE))
    return FAIL(ERR_FORMAT, "check: op %s starts beside the one before it, which is none of the other branch that lets it", name_of(p, op));
  return OK;
}

static bool has_pointer(const branches_plan *p, const plan_op *op, uint32_t args_offset) {
  for (uint32_t i = 0; i < op->fixup_count; i++)
    if (p->fixups[op->first_fixup + i].args_offset == args_offset) return true;
  return false;
}

/* The op outside the side branch that is launched before this one in steps of this many rows; NULL: none. */
static const plan_op *op_before(const branches_plan *p, const plan_op *op, uint32_t rows) {
  for (const plan_op *other = op; other-- > p->ops;)
    if (other->branch != BRANCH_SIDE && first_rows(p, other) <= rows && rows <= last_rows(p, other)) return other;
  return NULL;
}

static bool multiplies_experts(const plan_op *op) { return op && (op->kernel == OP_moe_gemm || op->kernel == OP_fp8_moe_gemm); }

static bool is_between(uint32_t kernel) {
  return kernel == OP_act_quant || kernel == OP_exchange || kernel == OP_gemm || kernel == OP_fp8_gemm;
}

/* The last product of experts before this op in steps of this many rows. Between the two may be other products, and what moves or rounds
 * rows: these start after it and before this op. */
static const plan_op *experts_before(const branches_plan *p, const plan_op *op, uint32_t rows) {
  const plan_op *other = op_before(p, op, rows);
  while (other && is_between(other->kernel)) other = op_before(p, other, rows);
  return multiplies_experts(other) ? other : NULL;
}

static bool adds_experts(const branches_plan *p, const plan_op *op) {
  if (op->kernel == OP_rank_norm) return has_pointer(p, op, offsetof(rank_norm_args, experts));
  return op->kernel == OP_moe_fold || (op->kernel == OP_rmsnorm && has_pointer(p, op, offsetof(rmsnorm_args, experts)));
}

/* Whether the routing is that of an earlier pass of drafts, or of the model's last layer: an op after `sample` and `accept` starts when
 * everything before it is complete. */
static bool is_complete(const branches_plan *p, const plan_op *op) {
  for (const plan_op *other = op; other-- > p->ops && other->kernel != OP_router;)
    if (other->kernel == OP_sample || other->kernel == OP_accept) return true;
  return false;
}

/* An op that adds up the experts' results reads the routing before it waits. The routing is complete by then: the op after the experts'
 * first product may start once that product has waited for the routing, their second product not before that op, and this one after
 * both. */
static status check_routing(const branches_plan *p, const plan_op *op) {
  if (!adds_experts(p, op) || is_complete(p, op)) return OK;
  for (const plan_op *from = p->ops; from <= op; from++) { /* of the ops before, some may be replaced by others from these rows on */
    const uint32_t rows = first_rows(p, from);
    if (rows < op->rows_min || rows > op->rows_max) continue;
    const plan_op *second = experts_before(p, op, rows);
    if (!second || !experts_before(p, second, rows))
      return FAIL(ERR_FORMAT, "check: op %s reads the routing early, which only both products of the experts before it allow",
                  name_of(p, op));
  }
  return OK;
}

/* Op i joins: for the row counts of `open` that it is for, the window ends, and `open` becomes the others. Alternatives that follow each
 * other all wait where the first of them does. */
static status close_window(const branches_plan *p, uint32_t i, window *open) {
  const plan_op *op = &p->ops[i];
  window w = *open;
  if (!is_in(p, w, op)) return OK;
  w.low = max_u32(w.low, first_rows(p, op));
  w.high = min_u32(w.high, last_rows(p, op));
  for (w.join = i; w.join > w.first && p->ops[w.join - 1].branch == BRANCH_JOIN && !is_in(p, w, &p->ops[w.join - 1]);) w.join--;
  TRY(check_window(p, w));
  if (w.low == open->low) open->low = w.high + 1;
  else if (w.high == open->high) open->high = w.low - 1;
  else return FAIL(ERR_FORMAT, "check: op %s joins the side branch for some rows, and nothing did for more or for fewer", name_of(p, op));
  return OK;
}

status check_branches(const branches_plan *p) {
  uint32_t count = p->header->ops.count, first = UINT32_MAX;
  window open = {0};
  const plan_op *before = NULL;
  for (uint32_t i = 0; i < count; i++) TRY(check_routing(p, &p->ops[i]));
  for (uint32_t i = 0; i < count; i++) {
    const plan_op *op = &p->ops[i];
    if (op->branch == BRANCH_SIDE) TRY(check_regions(p, op));
    if (op->branch == BRANCH_SIDE && first == UINT32_MAX) {
      first = i;
      before = NULL;
    }
    if (op->branch == BRANCH_SIDE) open = (window){.first = first, .low = 1, .high = p->header->limits.max_batch_tokens};
    TRY(check_order(p, first == UINT32_MAX ? NULL : before, op));
    if (op->rows_min < BRANCH_ROWS_MIN) before = op;
    if (first != UINT32_MAX && op->rows_kind != ROWS_TOKENS && (op->rows_kind != ROWS_OWN || op->branch == BRANCH_SIDE))
      return FAIL(ERR_FORMAT, "check: op %s is no op of every step, and another branch runs beside it", name_of(p, op));
    if (op->branch != BRANCH_JOIN || first == UINT32_MAX) continue;
    TRY(close_window(p, i, &open));
    if (open.low > open.high) first = UINT32_MAX;
  }
  if (first != UINT32_MAX) return FAIL(ERR_FORMAT, "check: op %s of the side branch is never waited for", name_of(p, &p->ops[first]));
  return OK;
}
