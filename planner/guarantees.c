/* guarantees.c - the table of guarantees.h.
 *
 * PROVEN: follows from the op definitions of NUMERICS.md, where the axis does not occur in any formula; tested as well. That a machine
 * computes what NUMERICS.md says is not proven: for the tensor cores it is measured.
 * TESTED: holds by construction of both machines and is compared byte for byte by the tests, on the hardware they ran on.
 * EXCLUDED: not offered: there is nothing to ask for it with. */
#include "guarantees.h"

static const struct {
  const char *axis;
  uint32_t status;
  const char *reason;
} TABLE[] = {
    {"batch composition", GUARANTEE_PROVEN,
     "no formula of a row reads another request's row; every sum has one order that is independent of the row count"},
    {"slot and row position", GUARANTEE_PROVEN, "rows and slots choose addresses, never operands or orders"},
    {"padding and ladder size", GUARANTEE_PROVEN,
     "row counts are read from the step; padding rows are never read into a result and may hold any bits"},
    {"prompt chunk cuts", GUARANTEE_PROVEN,
     "attention blocks, chunks and groups lie at absolute positions; every query takes the absorbed form"},
    {"page placement", GUARANTEE_PROVEN, "the block table chooses addresses; order follows positions"},
    {"kernel tiles and alternatives", GUARANTEE_PROVEN,
     "the tensor-core chain has one order over k whatever tile or operand side computes it"},
    {"graph replay or direct launch", GUARANTEE_TESTED, "the same kernels with the same arguments"},
    {"restart", GUARANTEE_TESTED, "plan, weights and tables are functions of files; nothing is tuned at start-up"},
    {"library products", GUARANTEE_TESTED, "pinned algorithms are compared bit for bit with our kernel on a probe at every start-up"},
    {"CPU equals GPU", GUARANTEE_TESTED,
     "the tensor-core rule is measured, the CPU recomputes it exactly; every op is compared byte for byte"},
    {"CPU threads and instruction set", GUARANTEE_TESTED,
     "threads split independent results; every instruction set gives the reference's bits"},
    {"prefix cache hits", GUARANTEE_EXCLUDED, "there is no prefix cache: every request computes its own rows"},
    {"preemption", GUARANTEE_EXCLUDED, "there is none: a request is admitted when all its pages are free"},
    {"several GPUs", GUARANTEE_EXCLUDED, "a plan is for one device"},
    {"fast prefill", GUARANTEE_EXCLUDED, "the unabsorbed form would give prefill and decode different bits; parity is strict"},
};

void guarantees_write(draft *plan) {
  for (size_t i = 0; i < ARRAY_LEN(TABLE); i++) {
    plan_guarantee row = {.axis = draft_text(plan, TABLE[i].axis), .status = TABLE[i].status, .reason = draft_text(plan, TABLE[i].reason)};
    *(plan_guarantee *)draft_append(&plan->guarantees, 1) = row;
  }
}
