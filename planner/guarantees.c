/* guarantees.c - the table of guarantees.h.
 *
 * PROVEN: follows from the op definitions of NUMERICS.md, where the axis occurs in no formula; also tested. That a backend computes what
 * NUMERICS.md says is not proven: for the tensor cores it is measured. TESTED: holds by construction of both backends and is compared byte
 * for byte by the tests, on the hardware they ran on. EXCLUDED: not offered; no option asks for it. */
#include "guarantees.h"
#include "engine/plan/format_widen.h"

/* In the order of the rows. Each test fails if its axis changes a bit. */
#define INVARIANCE "tests/e2e/test_invariance.c"
#define SCHEDULES "tests/e2e/test_schedules.c"
static const guarantees_proof PROOFS[] = {
    {"batch", INVARIANCE, "v3"},
    {"slot", INVARIANCE, "v3"},
    {"padding", INVARIANCE, "v3"},
    {"chunk_cut", INVARIANCE, "v3"},
    {"prefix_hit", SCHEDULES, "every_receipt_is_the_one_alone"},
    {"page_placement", INVARIANCE, "v3"},
    {"preemption", SCHEDULES, "every_receipt_is_the_one_alone"},
    {"kernel_tiles", INVARIANCE, "v3"},
    {"graph_or_direct", INVARIANCE, "v3"},
    {"scoring", "tests/e2e/test_scoring.c", "made_and_given_tokens_are_alike"},
    {"restart", "tests/e2e/test_golden.c", "tiny"},
    {"cpu_is_gpu", "tests/e2e/test_golden.c", "v3"},
    {"cpu_threads", INVARIANCE, "instruction_sets"},
    {"library_algorithm", "tests/gpu/test_library.c", "pinned_products_give_the_same_receipt"},
    {"driver", "tests/e2e/test_start_check.c", "one_wrong_bit_of_any_op_is_refused"},
    {"gpu_count", "tests/e2e/test_ranks.c", "experts"},
    {"fast_prefill", NULL, NULL},
    {"speculation", "tests/e2e/test_drafts.c", "every_drafter_leaves_the_receipt"},
};

const guarantees_proof *guarantees_proofs(uint32_t *count) {
  *count = ARRAY_LEN(PROOFS);
  return PROOFS;
}

/* Adds the next row. */
static void add(draft *plan, const char *axis, enum plan_guarantee_status kind, uint32_t reason) {
  plan_guarantee row = {.axis = draft_text(plan, axis), .status = kind, .reason = reason};
  *(plan_guarantee *)draft_append(&plan->guarantees, 1) = row;
}

static void proven(draft *plan, const char *axis, const char *reason) { add(plan, axis, GUARANTEE_PROVEN, draft_text(plan, reason)); }
static void tested(draft *plan, const char *axis, const char *reason) { add(plan, axis, GUARANTEE_TESTED, draft_text(plan, reason)); }
static void excluded(draft *plan, const char *axis, const char *reason) { add(plan, axis, GUARANTEE_EXCLUDED, draft_text(plan, reason)); }

static void write_work(draft *plan) {
  const plan_limits *l = &plan->limits;
  proven(plan, "batch", "no formula of a row reads another request's row; every sum has one order, whatever the number of rows");
  proven(plan, "slot", "rows and slots choose addresses, never operands or orders");
  add(plan, "padding", GUARANTEE_PROVEN,
      draft_string(plan, "row counts are read from the step; rows that fill it up to one of the %u ladder sizes are never read into a "
                   "result, and may hold any bits", plan->ladder.count));
  const char *forms = plan_is_grouped(&plan->grouped) ? "prompts and generated tokens have one form"
                      : l->parity == PARITY_STRICT    ? "every query takes the absorbed form"
                                                 : "a query's form follows from its position alone, prompt or made";
  const bool is_sparse = plan->quant.index_heads != 0;
  const char *places = is_sparse ? "places of a token's list, which follows from the tokens up to its own" : "absolute positions";
  add(plan, "chunk_cut", GUARANTEE_PROVEN,
      draft_string(plan, "attention chunks of %u tokens and groups of %u chunks lie at %s; %s", l->chunk_tokens, l->group_chunks, places,
                   forms));
  add(plan, "prefix_hit", GUARANTEE_PROVEN,
      draft_string(plan, "a KV row%s is a function of the tokens up to its own; a page of 64 rows is reused where the chained XXH3-128 of "
                   "all ids up to its end, under a seed drawn at every start, is equal: but for a collision of such digests",
                   is_sparse ? ", and a key of the indexer," : ""));
  proven(plan, "page_placement", "the block table chooses addresses; order follows positions");
  proven(plan, "preemption", "rows that were given up are computed anew from the tokens, prompt and made, of which they are functions");
}

static void write_machine(draft *plan) {
  const char *rows = plan_has_widening(&plan->limits) ? "; codes of a KV row are the same bf16 numbers to all who widen them" : "";
  add(plan, "kernel_tiles", GUARANTEE_PROVEN,
      draft_string(plan, "the tensor-core chain has one order over k, whatever tile or operand side computes it%s", rows));
  add(plan, "graph_or_direct", GUARANTEE_TESTED,
      draft_string(plan, "%u captured graphs replay the kernels that are launched otherwise, with the same arguments", plan->ladder.count));
  if (plan->limits.parity == PARITY_STRICT)
    proven(plan, "scoring", "a logits row is a function of the tokens before it, made or given, and gives both log-probabilities");
  else
    excluded(plan, "scoring", "tokens of a prompt attend in the expanded form and tokens that were made in the absorbed one: scores of a "
             "token differ; hint: parity: strict");
  tested(plan, "restart", "plan, weights and tables are functions of files; nothing is tuned at start-up");
  tested(plan, "cpu_is_gpu", "the tensor-core rule is measured, the CPU recomputes it exactly; every op is compared byte for byte");
  tested(plan, "cpu_threads", "threads split independent results; every instruction set gives the reference's bits");
  if (plan->gemms.count)
    add(plan, "library_algorithm", GUARANTEE_TESTED,
        draft_string(plan, "each of %u pinned algorithms is compared bit for bit with our kernel on a probe at every start",
                     plan->gemms.count));
  else tested(plan, "library_algorithm", "none is pinned: the library is not used");
  tested(plan, "driver", "known answers are computed at every start: a driver or compiler that gives other bits is refused");
}

void guarantees_write(draft *plan) {
  write_work(plan);
  write_machine(plan);
  if (plan->limits.ranks > 1)
    add(plan, "gpu_count", GUARANTEE_PROVEN,
        draft_string(plan, "%u devices divide columns, heads and rows, never a sum; between them bytes move and nothing else",
                     plan->limits.ranks));
  else proven(plan, "gpu_count", "no sum is ever divided: plans of this numerics id for several devices give the same bits");
  if (plan->limits.parity == PARITY_STRICT)
    excluded(plan, "fast_prefill", "the unabsorbed form would give prefill and decode different bits; parity is strict");
  else
    excluded(plan, "fast_prefill", "parity is fast-prefill: another numerics id, whose bits are not those of strict");
  proven(plan, "speculation", "a draft is kept only where the row before it chose the same token; that row is a function of the tokens "
         "before it, wherever they come from");
}
