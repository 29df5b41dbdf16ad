/* test_ops.c - the descriptions of the ops agree with the planner's checker, which reads kernels_src/abi.h independently.
 *
 * For every op of plans of several models and deployments both list the same pointers, read or written, and the same rows. The control of
 * each comparison is a description with one changed field, which is noticed. Read next: engine/ops/op.h, planner/checks/check_access.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <glob.h>
#include "engine/ops/kernels.h"
#include "engine/plan/plan.h"
#include "planner/checks/check_access.h"
#include "tests/unit/planner/planner_fixture.h"

#define LIMITS "max-num-seqs: 8\nmax-num-batched-tokens: 256\nmax-model-len: 512\nladder: [1, 8]\n"
/* One of each small configuration of tests/oracle/; a model that does not support it is planned without it. */
static const char *const DEPLOYS[] = {LIMITS "chunk_tokens: 64\nstructured-outputs: on\n", LIMITS "parity: fast-prefill\n",
                                      LIMITS "kv-cache-dtype: fp8\n", LIMITS "kv-cache-dtype: fp8\nparity: fast-prefill\n",
                                      LIMITS "kv-cache-dtype: fp8_ds_mla\nexpand_tokens: 256\n", LIMITS "tensor-parallel-size: 2\n"};

/* Of a model with a prediction layer. */
static const char *const DRAFTS[] = {LIMITS "speculative-config: {method: mtp, num-speculative-tokens: 1}\n",
                                     LIMITS "speculative-config: {method: mtp, num-speculative-tokens: 3}\ntensor-parallel-size: 2\n"};

typedef struct reading { /* descriptions and accesses of one op */
  op_operands operands;
  uint32_t access_count;
  check_access accesses[CHECK_ACCESS_MAX];
} reading;

static reading read_op(const plan *p, const plan_op *op) {
  const plan_limits *l = &p->header->limits;
  const char *name = plan_string(p, op->name);
  const bool is_draft = strncmp(name, "draft ", 6) == 0, of_drafts = op->rows_kind == ROWS_DRAFTS;
  const check_rows rows = {.tokens = of_drafts ? l->max_seqs : l->max_batch_tokens, .logits = of_drafts ? l->max_seqs : l->max_logit_rows,
                           .blocks = 1, .is_prompt = op->rows_kind == ROWS_PROMPT, .of_drafts = of_drafts,
                           .pass = is_draft ? (uint32_t)(name[6] - '0') : 0, .drafts = l->max_seqs, .all = l->max_batch_tokens};
  const uint64_t present = plan_present(p, op);
  uint64_t args[64] = {0};
  reading r;
  assert_true(op->args_bytes <= sizeof args);
  memcpy(args, p->args + op->args_offset, op->args_bytes);
  for (uint32_t i = 0; i < plan_pointer_count(op->kernel); i++) args[i] = present >> i & 1;
  op_describe(kernels_row(op->kernel)->op, p->args + op->args_offset, present, &r.operands);
  r.access_count = check_access_describe(op->kernel, args, op->args_bytes, l, &rows, r.accesses);
  assert_true(r.access_count > 0);
  return r;
}

/* For caches, weights of several matrices and the engine's own tables the checker gives the whole region; test_points.c checks the
 * caches. */
static bool has_rows(const operand *o) {
  return o->kind == OP_POINT || o->kind == OP_WORKSPACE || (o->kind == OP_WEIGHTS && o->rows == OP_ONCE && o->segments == 1);
}

static bool are_same(const operand *o, const check_access *a) {
  const uint64_t size = op_type_bytes(o->type);
  if (o->field != a->args_offset || o->is_write != (a->is_write != 0)) return false;
  if (!has_rows(o)) return true;
  if (o->first * size != a->start || o->segments != a->batches) return false;
  if (o->segments > 1 && o->segment_stride * size != a->batch_stride) return false;
  if (o->rows == OP_ONCE) return o->columns * size == a->rows * a->run_bytes;
  return o->columns * size == a->run_bytes && o->row_stride * size == a->row_stride;
}

/* Counts operands without an access and accesses without an operand. mla_fold reads some rows of `out`, which it also writes. */
static uint32_t mismatches(const reading *r) {
  uint32_t lonely = 0;
  for (uint32_t i = 0; i < r->operands.count; i++) {
    bool found = !op_has(&r->operands, r->operands.list[i].field);
    for (uint32_t k = 0; k < r->access_count; k++) found = found || are_same(&r->operands.list[i], &r->accesses[k]);
    lonely += !found;
  }
  for (uint32_t k = 0; k < r->access_count; k++) {
    const bool is_out = !r->accesses[k].is_write && r->operands.args && r->accesses[k].type == TYPE_BF16;
    bool found = !op_has(&r->operands, r->accesses[k].args_offset);
    for (uint32_t i = 0; i < r->operands.count; i++) {
      const operand *o = &r->operands.list[i];
      found = found || are_same(o, &r->accesses[k]) ||
              (is_out && o->is_write && o->field == r->accesses[k].args_offset && strcmp(o->name, "out") == 0);
    }
    lonely += !found;
  }
  return lonely;
}

typedef void see_op(const plan *p, const plan_op *op);

static void see_plan(const char *config, const char *deploy, see_op *see, uint32_t *plans) {
  fixture_bytes file = {0};
  plan p;
  if (fixture_try_plan(config, deploy, NULL, &file) != OK) return;
  if (plan_view(file.bytes, file.count, &p) != OK) fail_msg("%s: %s", config, fail_text());
  for (uint32_t op = 0; op < p.op_count; op++) see(&p, &p.ops[op]);
  free(file.bytes);
  ++*plans;
}

static void for_all(see_op *see) {
  glob_t found;
  uint32_t plans = 0;
  assert_int_equal(glob("tests/oracle/small-*.json", 0, NULL, &found), 0);
  for (size_t i = 0; i < found.gl_pathc; i++)
    for (size_t d = 0; d < ARRAY_LEN(DEPLOYS); d++) see_plan(found.gl_pathv[i], DEPLOYS[d], see, &plans);
  assert_true(plans > found.gl_pathc);
  plans = 0;
  for (size_t d = 0; d < ARRAY_LEN(DRAFTS); d++) see_plan("tests/data/configs/glm-4.7-flash.json", DRAFTS[d], see, &plans);
  assert_int_equal(plans, ARRAY_LEN(DRAFTS));
  globfree(&found);
}

static uint32_t seen[KERNEL_COUNT], null_at_times[KERNEL_COUNT], broken;

static void expect_same(const plan *p, const plan_op *op) {
  const reading r = read_op(p, op);
  if (mismatches(&r)) fail_msg("%s (%s): %u", plan_string(p, op->name), kernels_row(op->kernel)->name, mismatches(&r));
  for (uint32_t i = 0; i < r.access_count; i++)
    if (r.accesses[i].is_optional || r.accesses[i].must_be_null) null_at_times[op->kernel] |= 1u << (r.accesses[i].args_offset / 8);
  seen[op->kernel]++;
}

/* Every op of the engine occurs in one of the plans. */
static void operands_are_what_the_checker_reads(void **state) {
  (void)state;
  for_all(expect_same);
  for (uint32_t k = 0; k < KERNEL_COUNT; k++) {
    if (seen[k] == 0) fail_msg("no plan has %s", kernels_row(k)->name);
    if (null_at_times[k] != kernels_row(k)->op->optional)
      fail_msg("%s: pointers 0x%x may be null, expected 0x%x", kernels_row(k)->name, kernels_row(k)->op->optional, null_at_times[k]);
  }
}

static void expect_found(const reading *sound, uint32_t i, operand changed) {
  reading r = *sound;
  r.operands.list[i] = changed;
  if (mismatches(&r) == 0) fail_msg("%s: a change is not seen", changed.name);
  broken++;
}

static void break_operands(const plan *p, const plan_op *op) {
  const reading sound = read_op(p, op);
  for (uint32_t i = 0; i < sound.operands.count; i++) {
    const operand o = sound.operands.list[i];
    operand changed = o;
    if (!op_has(&sound.operands, o.field)) continue;
    changed.is_write = !o.is_write;
    expect_found(&sound, i, changed);
    if (!has_rows(&o)) continue;
    changed = o, changed.field += 8;
    expect_found(&sound, i, changed);
    changed = o, changed.columns++;
    expect_found(&sound, i, changed);
    changed = o, changed.first++;
    expect_found(&sound, i, changed);
    changed = o, changed.row_stride++;
    if (o.rows != OP_ONCE) expect_found(&sound, i, changed);
  }
}

static void a_changed_operand_is_found(void **state) {
  (void)state;
  for_all(break_operands);
  assert_true(broken > 1000);
}

/* No plan of one rank has an exchange: arguments of every number of tables and ranks, three forms, and a change of each operand. */
static void exchanges_are_what_the_checker_reads(void **state) {
  (void)state;
  const plan_limits limits = {.max_batch_tokens = 64, .max_logit_rows = 8};
  const check_rows rows = {.tokens = 64, .logits = 8, .blocks = 1};
  for (uint32_t n = 0; n < EXCHANGE_TABLES * RANKS_MAX; n++) {
    const uint32_t tables = 1 + n % EXCHANGE_TABLES;
    static const u32 forms[] = {EXCHANGE_COLUMNS, EXCHANGE_OWNERS, EXCHANGE_PARTS};
    exchange_args a = {.count = 1 + n / EXCHANGE_TABLES, .rows_kind = n % 2, .form = forms[n % ARRAY_LEN(forms)]};
    uint64_t pointers[sizeof a / 8], present = 0;
    for (uint32_t t = 0; t < tables; t++) a.rows_mul[t] = a.form == EXCHANGE_PARTS ? 1 : 1 + t, a.part_bytes[t] = 8 * (n + t + 1);
    memcpy(pointers, &a, sizeof a);
    for (uint32_t i = 0; i < plan_pointer_count(KERNEL_exchange); i++) {
      const bool is_table = i >= offsetof(exchange_args, x) / 8 && i < offsetof(exchange_args, inbox) / 8;
      pointers[i] = !is_table || (i - offsetof(exchange_args, x) / 8) % EXCHANGE_TABLES < tables;
      present |= pointers[i] << i;
    }
    reading r;
    op_describe(&ops_exchange, &a, present, &r.operands);
    r.access_count = check_access_describe(KERNEL_exchange, pointers, sizeof a, &limits, &rows, r.accesses);
    assert_int_equal(r.access_count, 3 + 2 * EXCHANGE_TABLES);
    assert_int_equal(mismatches(&r), 0);
    for (uint32_t i = 0; i < r.operands.count; i++) {
      operand changed = r.operands.list[i];
      if (changed.kind != OP_WORKSPACE || !op_has(&r.operands, changed.field)) continue;
      changed.columns += 8;
      expect_found(&r, i, changed);
    }
    for (uint32_t i = 0; i < r.access_count; i++)
      assert_int_equal(r.accesses[i].must_be_null, !op_has(&r.operands, r.accesses[i].args_offset));
  }
}

/* The same for norms that exchange: with and without experts and a shared one. */
static void norms_of_ranks_are_what_the_checker_reads(void **state) {
  (void)state;
  const plan_limits limits = {.max_batch_tokens = 64, .max_logit_rows = 8};
  const check_rows rows = {.tokens = 64, .logits = 8, .blocks = 64};
  for (uint32_t n = 0; n < 3 * RANKS_MAX; n++) {
    const uint32_t count = 1 + n / 3, adds = n % 3; /* 0: delta, 1: experts, 2: both */
    const rank_norm_args a = {.count = count, .part = 8 + 4 * n, .dim = count * (8 + 4 * n), .y_stride = count * (8 + 4 * n) + 8,
                              .top_k = adds ? 3 : 0};
    uint64_t pointers[sizeof a / 8], present = 0;
    memcpy(pointers, &a, sizeof a);
    for (uint32_t i = 0; i < plan_pointer_count(KERNEL_rank_norm); i++) {
      const bool is_delta = i == offsetof(rank_norm_args, delta) / 8;
      const bool is_expert = i >= offsetof(rank_norm_args, experts) / 8 && i <= offsetof(rank_norm_args, topk_weight) / 8;
      pointers[i] = is_delta ? adds != 1 : !is_expert || adds;
      present |= pointers[i] << i;
    }
    reading r;
    op_describe(&ops_rank_norm, &a, present, &r.operands);
    r.access_count = check_access_describe(KERNEL_rank_norm, pointers, sizeof a, &limits, &rows, r.accesses);
    assert_int_equal(mismatches(&r), 0);
    for (uint32_t i = 0; i < r.operands.count; i++) {
      operand changed = r.operands.list[i];
      if (changed.kind == OP_ENGINE || !op_has(&r.operands, changed.field)) continue;
      changed.columns += 8;
      expect_found(&r, i, changed);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(operands_are_what_the_checker_reads), cmocka_unit_test(a_changed_operand_is_found),
                                     cmocka_unit_test(exchanges_are_what_the_checker_reads),
                                     cmocka_unit_test(norms_of_ranks_are_what_the_checker_reads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
