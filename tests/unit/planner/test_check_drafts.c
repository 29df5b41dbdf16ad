/* test_check_drafts.c - plans whose drafts come from a prediction layer: what they have of a plan without, what is refused by name, and
 * faults of the draft section that the verifier finds. Read next: test_check.c. */
#include "tests/unit/unit.h"
#include "kernels_src/abi.h"
#include "planner/checks/check.h"
#include "planner/draft.h"
#include "tests/unit/plan/plan_faults.h"

#define GLM "tests/data/configs/glm-4.7-flash.json" /* 47 layers */
#define LIMITS "max-num-seqs: 6\nmax-num-batched-tokens: 256\nmax-model-len: 512\n"
#define MTP(n) "speculative-config: {method: mtp, num-speculative-tokens: " #n "}\n"

/* === Plans ================================================================================================================ */

static bool is_draft(const editable *e, const plan_op *op) { return strncmp(text(e, op->name), "draft ", 6) == 0; }

/* Ops and weights of the model are those of a plan without drafts, in places of their own. */
static void the_model_stays_as_it_is(void **state) {
  (void)state;
  static const char *const CONFIGS[] = {GLM, "tests/data/configs/deepseek-v3.json", "tests/data/configs/deepseek-v3.2.json",
                                        "tests/data/configs/glm-5.json"};
  for (size_t i = 0; i < ARRAY_LEN(CONFIGS); i++) {
    editable off = edit_plan(CONFIGS[i], LIMITS);
    editable e = edit_plan(CONFIGS[i], LIMITS "max-logit-rows: 6\nladder: [1, 2, 4, 6]\n" MTP(2));
    assert_memory_equal(e.h->numerics_id, off.h->numerics_id, sizeof off.h->numerics_id);
    assert_true(e.h->limits.draft_tokens == 2 && e.h->limits.match_min == 0 && e.h->limits.match_max == 0);
    for (uint32_t op = 0; op < off.h->ops.count; op++) {
      assert_string_equal(text(&e, e.ops[op].name), text(&off, off.ops[op].name));
      assert_memory_equal(args_of(&e, &e.ops[op]), args_of(&off, &off.ops[op]), off.ops[op].args_bytes);
      assert_true(e.ops[op].rows_min == off.ops[op].rows_min && e.ops[op].rows_max == off.ops[op].rows_max);
      assert_int_equal(e.ops[op].point_order, off.ops[op].point_order);
    }
    assert_int_equal(e.ops[off.h->ops.count].kernel, OP_accept);
    for (uint32_t op = off.h->ops.count + 1; op < e.h->ops.count; op++) assert_true(is_draft(&e, &e.ops[op]));
    for (uint32_t t = 0; t < off.h->tensors.count; t++)
      assert_memory_equal(&e.tensors[t].dtype, &off.tensors[t].dtype, offsetof(plan_tensor, scale_name) - offsetof(plan_tensor, dtype));
    const uint64_t layer = find_buffer(&off, "kv")->bytes / off.h->model.layers;
    assert_int_equal(find_buffer(&e, "kv")->bytes, layer * (off.h->model.layers + 1));
    free(e.file.bytes);
    free(off.file.bytes);
  }
}

/* The layer's weights are loaded once, whatever the number of passes; every pass has the same ops. */
static void passes_share_the_weights(void **state) {
  (void)state;
  editable one = edit_plan(GLM, LIMITS MTP(1)), four = edit_plan(GLM, LIMITS MTP(4));
  assert_int_equal(one.h->tensors.count, four.h->tensors.count);
  assert_int_equal(one.regions[REGION_WEIGHTS].bytes, four.regions[REGION_WEIGHTS].bytes);
  uint32_t own = 0, of_pass[5] = {0};
  for (uint32_t i = 0; i < one.h->tensors.count; i++) own += strncmp(text(&one, one.tensors[i].name), "model.layers.47.", 16) == 0;
  assert_true(own > 200);
  for (uint32_t i = 0; i < four.h->ops.count; i++)
    if (is_draft(&four, &four.ops[i]) && four.ops[i].kernel == OP_sample) of_pass[text(&four, four.ops[i].name)[6] - '0']++;
  for (uint32_t pass = 1; pass <= 4; pass++) assert_int_equal(of_pass[pass], 1);
  free(one.file.bytes);
  free(four.file.bytes);
}

static void refusals_have_names(void **state) {
  static const struct { const char *config, *deploy, *words; status code; } CASES[] = {
    {"tests/data/configs/tiny.json", MTP(1), "num_nextn_predict_layers above 0; hint: method: ngram", ERR_UNSUPPORTED},
    {"tests/data/configs/youtu-2b.json", MTP(1), "not read of this model_type; hint: method: ngram", ERR_UNSUPPORTED},
    {GLM, MTP(1) "parity: fast-prefill\n", "method: mtp requires parity: strict", ERR_UNSUPPORTED},
    {GLM, "speculative-config: {method: mtp, prompt-lookup-min: 3}\n", "prompt-lookup-min belongs to method ngram", ERR_FORMAT},
    {GLM, "speculative-config: {method: deepseek_mtp, prompt-lookup-max: 3}\n", "prompt-lookup-max belongs to method ngram", ERR_FORMAT},
    {GLM, MTP(16), "expected 1 to 15", ERR_FORMAT},
    {GLM, "speculative-config: {method: eagle}\n", "off ngram mtp|deepseek_mtp", ERR_FORMAT}};
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    fixture_bytes none = {0};
    fixture_expect(fixture_try_plan(CASES[i].config, CASES[i].deploy, NULL, &none), CASES[i].code, CASES[i].words);
  }
  editable e = edit_plan(GLM, LIMITS "speculative-config: {method: deepseek_mtp}\n"); /* the same word, and the default */
  assert_true(e.h->limits.speculation == SPECULATION_MTP && e.h->limits.draft_tokens == 1);
  free(e.file.bytes);
}

/* === Faults =============================================================================================================== */

static plan_fixup *pointer(editable *e, const char *op, size_t field) { return find_fixup(e, find_op(e, op), field); }

static void a_draft_has_the_models_kv_rows(editable *e) { pointer(e, "draft 2 qkv_rope", offsetof(qkv_rope_args, kv))->offset = 0; }
static void a_draft_reads_the_models_kv_rows(editable *e) { pointer(e, "draft 1 mla_attn", offsetof(mla_attn_args, kv))->offset = 0; }
static void a_draft_is_of_a_layer_of_the_model(editable *e) { find_op(e, "draft 2 qkv_rope")->layer = 0; }
static void the_model_has_the_drafts_kv_rows(editable *e) {
  pointer(e, "layer 3 mla_attn", offsetof(mla_attn_args, kv))->offset = pointer(e, "draft 1 mla_attn", offsetof(mla_attn_args, kv))->offset;
}
static void the_model_has_the_drafts_layer(editable *e) { find_op(e, "layer 3 qkv_rope")->layer = e->h->model.layers; }
static void a_draft_is_the_sampled_token(editable *e) {
  plan_fixup *f = pointer(e, "draft 1 sample", offsetof(sample_args, sampled));
  f->region = REGION_STATE, f->offset = e->h->io.sampled;
}
static void a_draft_is_the_result(editable *e) { pointer(e, "draft 1 sample", offsetof(sample_args, result))->offset = e->h->io.result; }
static void a_draft_is_that_of_another_pass(editable *e) {
  pointer(e, "draft 2 sample", offsetof(sample_args, result))->offset = e->h->io.draft;
}
static void a_draft_enters_the_history(editable *e) {
  plan_fixup *f = pointer(e, "draft 2 embed", offsetof(embed_args, sampled));
  f->args_offset = offsetof(embed_args, history), f->region = REGION_KV, f->offset = e->h->io.history;
}
static void a_draft_overwrites_the_logits(editable *e) {
  pointer(e, "draft 1 lm_head", offsetof(gemm_args, y))->offset = pointer(e, "lm_head", offsetof(gemm_args, y))->offset;
}
static void the_logits_die_early(editable *e) { find_buffer(e, "logits")->last_op--; }
static void drafts_are_accepted_twice(editable *e) { *find_op(e, "draft 1 embed") = *find_op(e, "accept"); }
static void nothing_is_accepted(editable *e) { *find_op(e, "accept") = *find_op(e, "draft 1 embed"); }
static void nobody_asked_for_drafts(editable *e) { e->h->limits.speculation = SPECULATION_NGRAM; }
static void a_pass_makes_none(editable *e) { find_op(e, "draft 2 sample")->rows_min = 2; }
static void positions_of_another_pass(editable *e) {
  pointer(e, "draft 3 qkv_rope", offsetof(qkv_rope_args, position))->offset -= plan_draft_stride(&e->h->limits) * 4;
}
static void tiles_of_another_pass(editable *e) {
  pointer(e, "draft 3 attn_cut", offsetof(attn_cut_args, tiles))->offset -= plan_draft_stride(&e->h->limits) * sizeof(attn_tile);
}
static void params_of_another_pass(editable *e) {
  pointer(e, "draft 3 sample", offsetof(sample_args, param))->offset -= plan_draft_stride(&e->h->limits) * sizeof(sample_param);
}
static void sources_for_slots(editable *e) {
  pointer(e, "draft 2 hnorm", offsetof(rmsnorm_args, row_index))->offset = pointer(e, "accept", offsetof(accept_args, draft_seq))->offset;
}
static void the_model_chooses_drafts(editable *e) { find_op(e, "sample")->rows_kind = ROWS_DRAFTS; }
static void next_tokens_are_the_tokens(editable *e) { pointer(e, "accept", offsetof(accept_args, next))->offset = e->h->io.token; }
static void the_counts_are_the_steps(editable *e) { pointer(e, "draft 2 eh_proj", 0)->offset = e->h->io.step; }
static void passes_are_too_few(editable *e) { ((accept_args *)args_of(e, find_op(e, "accept")))->draft_tokens = 2; }
static void the_stride_is_another(editable *e) { ((accept_args *)args_of(e, find_op(e, "accept")))->stride = 6; }
static void the_stream_is_overwritten(editable *e) {
  plan_op *op = find_op(e, "draft 1 hnorm");
  *find_fixup(e, op, offsetof(rmsnorm_args, y)) = *find_fixup(e, op, offsetof(rmsnorm_args, x));
  find_fixup(e, op, offsetof(rmsnorm_args, x))[0].args_offset = offsetof(rmsnorm_args, y);
}
static void a_draft_branches(editable *e) { find_op(e, "draft 1 shared gate_up")->branch = BRANCH_SIDE; }

static const plan_fault FAULTS[] = {
    FAULT(a_draft_has_the_models_kv_rows, "another layer's KV rows"), FAULT(a_draft_reads_the_models_kv_rows, "another layer's KV rows"),
    FAULT(a_draft_is_of_a_layer_of_the_model, "expected the one after the last"),
    FAULT(the_model_has_the_drafts_kv_rows, "another layer's KV rows"), FAULT(the_model_has_the_drafts_layer, "the model has 47"),
    FAULT(a_draft_is_the_sampled_token, "wrong region"), FAULT(a_draft_is_the_result, "another table of the step"),
    FAULT(a_draft_is_that_of_another_pass, "another table of the step"), FAULT(a_draft_enters_the_history, "null"),
    FAULT(a_draft_overwrites_the_logits, "which is not theirs"), FAULT(the_logits_die_early, "do not last"),
    FAULT(drafts_are_accepted_twice, NULL), FAULT(nothing_is_accepted, NULL), FAULT(nobody_asked_for_drafts, "of 6"),
    FAULT(a_pass_makes_none, "makes 2 of each, expected 3"),
    FAULT(positions_of_another_pass, "another pass's part"), FAULT(tiles_of_another_pass, "another pass's part"),
    FAULT(params_of_another_pass, "another pass's part"), FAULT(sources_for_slots, "row stride or type"),
    FAULT(the_model_chooses_drafts, NULL), FAULT(next_tokens_are_the_tokens, "another table of the step"),
    FAULT(the_counts_are_the_steps, "the step's counts"), FAULT(passes_are_too_few, "draft_tokens"), FAULT(the_stride_is_another, "stride"),
    FAULT(the_stream_is_overwritten, NULL), FAULT(a_draft_branches, "no such op")};

static void every_fault_is_caught(void **state) {
  (void)state;
  check_faults(edit_plan(GLM, LIMITS MTP(3)), FAULTS, ARRAY_LEN(FAULTS));
}

static void drafts_that_are_asked_for_are_made(void **state) {
  (void)state;
  editable e = edit_plan(GLM, LIMITS);
  e.h->limits.speculation = SPECULATION_MTP, e.h->limits.draft_tokens = 1;
  fixture_expect(check_plan(e.file.bytes, e.file.count), ERR_FORMAT, "no op accept");
  free(e.file.bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_model_stays_as_it_is), cmocka_unit_test(passes_share_the_weights),
                                     cmocka_unit_test(refusals_have_names), cmocka_unit_test(every_fault_is_caught),
                                     cmocka_unit_test(drafts_that_are_asked_for_are_made)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
