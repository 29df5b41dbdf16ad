/* check_drafts.c - see check_drafts.h. */
#include "checks/check_drafts.h"
#include <stdlib.h>
#include <string.h>
#include "abi.h"
#include "checks/check_access.h"
#include "draft.h"

static const char *name_of(const drafts_plan *p, const plan_op *op) {
  return op->name < p->header->strings.count ? p->strings + op->name : "?";
}

/* Index of the first `accept`, or the number of ops. */
static uint32_t find_section(const drafts_plan *p) {
  uint32_t first = 0;
  while (first < p->header->ops.count && p->ops[first].kernel != OP_accept) first++;
  return first;
}

/* The work buffers that the op writes at its largest row count: marks them, or refuses those that are marked. */
static status see_writes(const drafts_plan *p, const plan_op *op, uint8_t *is_marked, bool refuses) {
  uint64_t args[4096 / 8] = {0};
  check_access accesses[CHECK_ACCESS_MAX];
  const check_rows rows = {.tokens = op->rows_max, .logits = op->rows_max, .blocks = 1, .is_prompt = op->rows_kind == ROWS_PROMPT,
                           .of_drafts = op->rows_kind == ROWS_DRAFTS, .pass = refuses, .drafts = op->rows_max, .all = op->rows_max};
  if (op->args_bytes > sizeof args) return FAIL(ERR_FORMAT, "check: op %s has arguments of the wrong size", name_of(p, op));
  memcpy(args, p->args + op->args_offset, op->args_bytes);
  for (uint32_t i = 0; i < op->fixup_count; i++) args[p->fixups[op->first_fixup + i].args_offset / 8] = 1; /* not NULL */
  const uint32_t count = check_access_describe(op->kernel, args, op->args_bytes, &p->header->limits, &rows, accesses);
  for (uint32_t i = 0; i < op->fixup_count; i++) {
    const plan_fixup *f = &p->fixups[op->first_fixup + i];
    bool is_written = false;
    for (uint32_t j = 0; j < count; j++) is_written |= accesses[j].args_offset == f->args_offset && accesses[j].is_write;
    if (!is_written || f->region != REGION_WORK) continue;
    uint8_t *marked = &is_marked[p->homes[op->first_fixup + i]];
    if (refuses && *marked)
      return FAIL(ERR_FORMAT, "check: op %s makes drafts, and writes %s, which is not theirs", name_of(p, op),
                  p->strings + p->buffers[p->homes[op->first_fixup + i]].name);
    *marked |= !refuses;
  }
  return OK;
}

/* Results of the step, a layer of the model, or the side branch are not for drafts. */
static status check_draft(const drafts_plan *p, const plan_op *op) {
  const bool is_accept = op->kernel == OP_accept;
  if (is_accept && op->rows_kind != ROWS_TOKENS) return FAIL(ERR_FORMAT, "check: op %s is no op of every step", name_of(p, op));
  if (op->kernel == OP_row_digest || op->kernel == OP_adjust || op->rows_kind == ROWS_LOGITS || op->branch != BRANCH_MAIN)
    return FAIL(ERR_FORMAT, "check: op %s is among those that make drafts, and no such op", name_of(p, op));
  if (op->layer == (is_accept ? UINT32_MAX : p->header->model.layers)) return OK;
  return FAIL(ERR_FORMAT, "check: op %s is of layer %u, expected the one after the last, which makes drafts", name_of(p, op), op->layer);
}

static status check_main(const drafts_plan *p, const plan_op *op) {
  if (op->rows_kind == ROWS_DRAFTS)
    return FAIL(ERR_FORMAT, "check: op %s makes drafts before it is known which were right", name_of(p, op));
  if (op->layer < p->header->model.layers || op->layer == UINT32_MAX) return OK;
  return FAIL(ERR_FORMAT, "check: op %s is of layer %u, the model has %u", name_of(p, op), op->layer, p->header->model.layers);
}

/* The logits are downloaded after the last op. */
static status check_logits(const drafts_plan *p) {
  for (uint32_t i = 0; i < p->header->buffers.count; i++) {
    const plan_buffer *b = &p->buffers[i];
    const bool may_be = b->region == REGION_WORK && b->offset == p->header->io.logits && b->last_op + UINT64_C(1) >= p->header->ops.count;
    if (may_be && b->bytes >= (uint64_t)p->header->limits.max_logit_rows * p->header->model.vocab * 4) return OK;
  }
  return FAIL(ERR_FORMAT, "check: the logits do not last until the drafts are made");
}

static status check_section(const drafts_plan *p, uint32_t first, uint8_t *is_marked) {
  for (uint32_t i = 0; i < first; i++) {
    TRY(check_main(p, &p->ops[i]));
    TRY(see_writes(p, &p->ops[i], is_marked, false));
  }
  for (uint32_t i = first; i < p->header->ops.count; i++) {
    if (p->ops[i].kernel == OP_accept && i > first) return FAIL(ERR_FORMAT, "check: op %s comes twice", name_of(p, &p->ops[i]));
    TRY(check_draft(p, &p->ops[i]));
    TRY(see_writes(p, &p->ops[i], is_marked, true));
  }
  return OK;
}

status check_drafts(const drafts_plan *p) {
  const uint32_t first = find_section(p);
  const bool has_mtp = p->header->limits.speculation == SPECULATION_MTP;
  if ((first < p->header->ops.count) != has_mtp)
    return FAIL(ERR_FORMAT, "check: the plan has %s op accept, and speculation is %u", has_mtp ? "no" : "an",
                p->header->limits.speculation);
  uint8_t *is_marked = calloc((size_t)p->header->buffers.count + 1, 1);
  ASSERT(is_marked != NULL);
  status result = check_section(p, first, is_marked);
  free(is_marked);
  return result == OK && has_mtp ? check_logits(p) : result;
}
