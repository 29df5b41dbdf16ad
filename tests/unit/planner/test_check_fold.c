/* test_check_fold.c - the verifier of plans on the op moe_fold: a plan of two ranks passes, and each planted fault is reported. */
#include "tests/unit/unit.h"
#include "kernels_src/abi.h"
#include "planner/checks/check.h"
#include "planner/checks/check_values.h"
#include "tests/unit/plan/plan_faults.h"

#define FOLD "layer 1 experts sum"

static moe_fold_args *fold_of(const editable *e) { return args_of(e, find_op(e, FOLD)); }
static plan_fixup *pointer_of(const editable *e, size_t field) { return find_fixup(e, find_op(e, FOLD), field); }

static void an_expert_is_left_out(editable *e) { fold_of(e)->top_k--; }
static void columns_are_fewer(editable *e) { fold_of(e)->columns /= 2; }
static void columns_are_no_share(editable *e) { fold_of(e)->columns -= 4; }
static void columns_are_no_vectors(editable *e) { fold_of(e)->columns = 6; } /* divides the hidden columns */
static void columns_are_none(editable *e) { fold_of(e)->columns = 0; }
static void sums_are_further_apart(editable *e) { fold_of(e)->y_stride += 4; }
static void rows_of_the_shared_expert_are_further_apart(editable *e) { fold_of(e)->delta_stride += 4; }
static void places_are_weights(editable *e) {
  pointer_of(e, offsetof(moe_fold_args, pair_row))->offset = pointer_of(e, offsetof(moe_fold_args, topk_weight))->offset;
}
static void weights_are_places(editable *e) {
  pointer_of(e, offsetof(moe_fold_args, topk_weight))->offset = pointer_of(e, offsetof(moe_fold_args, pair_row))->offset;
}
static void the_shared_expert_is_left_out(editable *e) {
  plan_op *op = find_op(e, FOLD);
  *find_fixup(e, op, offsetof(moe_fold_args, delta)) = e->fixups[op->first_fixup + --op->fixup_count];
}
static void a_sum_is_written_over_an_addend(editable *e) {
  pointer_of(e, offsetof(moe_fold_args, y))->offset = pointer_of(e, offsetof(moe_fold_args, delta))->offset;
}
static void columns_lack_blocks(editable *e) { find_op(e, FOLD)->grid[1].constant--; }
static void columns_are_summed_twice(editable *e) { find_op(e, FOLD)->grid[1].constant++; }
static void rows_lack_blocks(editable *e) { find_op(e, FOLD)->grid[0].cap = 511; }
static void nothing_is_summed(editable *e) { find_op(e, FOLD)->rows_min = 2; }
static void the_routing_may_be_incomplete(editable *e) {
  for (plan_op *op = find_op(e, "layer 1 experts gate_up"); strcmp(text(e, op->name), "layer 1 experts gate_up") == 0; op++)
    op->branch = BRANCH_SIDE;
}

static const plan_fault FAULTS[] = {
    FAULT(an_expert_is_left_out, "row stride or type"),
    FAULT(columns_are_fewer, "row stride or type"),
    FAULT(columns_are_no_share, "row stride or type"),
    FAULT(columns_are_no_vectors, "row stride or type"),
    FAULT(columns_are_none, "below x"),
    FAULT(sums_are_further_apart, "reaches beyond the end"),
    FAULT(rows_of_the_shared_expert_are_further_apart, "writes over what it uses"),
    FAULT(places_are_weights, "row stride or type"),
    FAULT(weights_are_places, "row stride or type"),
    FAULT(the_shared_expert_is_left_out, "the presence of a shared expert"),
    FAULT(a_sum_is_written_over_an_addend, "writes over what it uses"),
    FAULT(columns_lack_blocks, "does not cover"),
    FAULT(columns_are_summed_twice, "below x"),
    FAULT(rows_lack_blocks, "does not cover"),
    FAULT(nothing_is_summed, "reads the routing early"),
    FAULT(the_routing_may_be_incomplete, "reads the routing early"),
};

static editable open_editable(void) {
  return edit_plan("tests/data/configs/tiny.json", "max-num-batched-tokens: 512\nmax-model-len: 1024\ntensor-parallel-size: 2\n");
}

static void every_planted_fault_is_caught(void **state) {
  (void)state;
  check_faults(open_editable(), FAULTS, ARRAY_LEN(FAULTS));
}

/* Values that no plan of the test has, because its tables would not fit. */
static void values_are_the_models(void **state) {
  (void)state;
  editable e = open_editable();
  const plan_op *op = find_op(&e, FOLD);
  moe_fold_args sound = *fold_of(&e);
  sound.delta = (const f32 *)(const void *)e.h; /* any: not null */
  assert_int_equal(check_values_op(e.h, op, &sound, "sum"), OK);
  static const struct { size_t field; u32 value; const char *words; } wrong[] = {
      {offsetof(moe_fold_args, top_k), 3, "top_k is 3, expected 2"},
      {offsetof(moe_fold_args, columns), 0, "columns is 0, expected 4 to 192"},
      {offsetof(moe_fold_args, columns), 196, "columns is 196, expected 4 to 192"},
      {offsetof(moe_fold_args, columns), 80, "hidden % columns is 32, expected 0"},
      {offsetof(moe_fold_args, columns), 6, "columns % 4 is 2, expected 0"},
      {offsetof(moe_fold_args, delta_stride), 97, "delta_stride % 4 is 1, expected 0"},
      {offsetof(moe_fold_args, y_stride), 194, "y_stride % 4 is 2, expected 0"}};
  assert_int_equal(e.h->model.hidden, 192);
  for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
    moe_fold_args a = sound;
    memcpy((char *)&a + wrong[i].field, &wrong[i].value, 4);
    fail_clear();
    fixture_expect(check_values_op(e.h, op, &a, "sum"), ERR_FORMAT, wrong[i].words);
  }
  sound.delta = NULL;
  fail_clear();
  fixture_expect(check_values_op(e.h, op, &sound, "sum"), ERR_FORMAT, "the presence of a shared expert is 0, expected 1");
  free(e.file.bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_planted_fault_is_caught), cmocka_unit_test(values_are_the_models)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
