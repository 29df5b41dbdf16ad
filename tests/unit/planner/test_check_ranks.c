/* test_check_ranks.c - plans of several ranks: what they have of one rank's, and faults of the division that the verifier names. */
#include "tests/unit/unit.h"
#include "kernels_src/abi.h"
#include "planner/checks/check.h"
#include "planner/draft.h"
#include "tests/unit/plan/plan_faults.h"

#define TINY "tests/data/configs/tiny.json"
#define LIMITS "max-num-batched-tokens: 512\nmax-model-len: 1024\n"

static editable open_ranks(const char *ranks) {
  char deploy[128];
  snprintf(deploy, sizeof deploy, LIMITS "tensor-parallel-size: %s\n", ranks);
  return edit_plan(TINY, deploy);
}

static const plan_tensor *find_tensor(const editable *e, const char *name) {
  for (uint32_t i = 0; i < e->h->tensors.count; i++)
    if (strcmp(text(e, e->tensors[i].name), name) == 0) return &e->tensors[i];
  fail_msg("no tensor %s", name);
  return NULL;
}

/* === What is divided ==================================================================================================== */

static void ranks_have_one_numerics_id(void **state) {
  (void)state;
  editable one = open_ranks("1");
  const char *const counts[] = {"2", "4"};
  for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
    editable several = open_ranks(counts[i]);
    assert_memory_equal(several.h->numerics_id, one.h->numerics_id, sizeof one.h->numerics_id);
    assert_int_equal(several.h->limits.ranks, 2u << i);
    assert_true(several.regions[REGION_WEIGHTS].bytes < one.regions[REGION_WEIGHTS].bytes);
    assert_int_equal(several.regions[REGION_KV].bytes, one.regions[REGION_KV].bytes);
    free(several.file.bytes);
  }
  for (uint32_t i = 0; i < one.h->ops.count; i++) {
    assert_int_equal(one.ops[i].rank_columns, 0);
    assert_int_equal(one.ops[i].point_order, 2 * i + 1);
  }
  for (uint32_t i = 0; i < one.h->tensors.count; i++) assert_int_equal(one.tensors[i].rank_step, 0);
  free(one.file.bytes);
}

static void each_rank_has_its_rows(void **state) {
  (void)state;
  editable e = open_ranks("2");
  const struct { const char *name; uint32_t rows, own; } cases[] = {
    {"model.layers.1.mlp.experts.3.gate_proj.weight", 64, 32}, {"model.layers.1.mlp.experts.3.down_proj.weight", 192, 96},
    {"model.layers.0.self_attn.o_proj.weight", 192, 96},       {"model.layers.0.mlp.gate_proj.weight", 384, 192},
    {"model.layers.2.self_attn.q_b_proj.weight", 512, 256},    {"lm_head.weight", 768, 384},
    {"model.layers.1.mlp.gate.weight", 8, 0},                  {"model.layers.0.self_attn.q_a_proj.weight", 128, 0},
    {"model.embed_tokens.weight", 768, 0}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    const plan_tensor *t = find_tensor(&e, cases[i].name);
    assert_int_equal(t->rows, cases[i].rows);
    assert_int_equal(t->rank_step, cases[i].own);
    assert_int_equal(t->row_count, cases[i].own ? cases[i].own : cases[i].rows);
  }
  free(e.file.bytes);
}

static void expect_rows(editable *e, const char *name, uint32_t kernel, uint32_t rows_min, uint32_t rows_max) {
  uint32_t next = rows_min;
  for (uint32_t i = 0; i < e->h->ops.count; i++) {
    if (e->ops[i].kernel != kernel || strcmp(text(e, e->ops[i].name), name) != 0) continue;
    if (e->ops[i].rows_min != next) fail_msg("%s: rows %u to %u after %u", name, e->ops[i].rows_min, e->ops[i].rows_max, next - 1);
    next = e->ops[i].rows_max + 1;
  }
  if (next != rows_max + 1) fail_msg("%s: rows to %u, expected %u", name, next - 1, rows_max);
}

/* Few rows by the norms, more by ops before them; behind the last layer all by ops before. */
static void norms_exchange_few_rows(void **state) {
  (void)state;
  editable e = open_ranks("2");
  const uint32_t few = RANK_NORM_ROWS_MAX, most = e.h->limits.max_batch_tokens;
  char last[64];
  expect_rows(&e, "layer 0 input_norm", OP_rmsnorm, 1, most);
  expect_rows(&e, "layer 0 post_norm", OP_rank_norm, 1, few);
  expect_rows(&e, "layer 0 attn_delta exchange", OP_exchange, few + 1, most);
  expect_rows(&e, "layer 0 post_norm", OP_rmsnorm, few + 1, most);
  expect_rows(&e, "layer 0 down exchange", OP_exchange, few + 1, most);
  expect_rows(&e, "layer 1 experts sum", OP_moe_fold, few + 1, most);
  expect_rows(&e, "layer 1 experts sum exchange", OP_exchange, few + 1, most);
  expect_rows(&e, "layer 2 input_norm", OP_rank_norm, 1, few);
  snprintf(last, sizeof last, "layer %u experts sum", e.h->model.layers - 1);
  expect_rows(&e, last, OP_moe_fold, 1, most);
  free(e.file.bytes);
}

static void what_cannot_be_divided_is_refused_by_name(void **state) {
  (void)state;
  fixture_bytes none = {0};
  fixture_expect(fixture_try_plan(TINY, "tensor-parallel-size: 3\n", NULL, &none), ERR_UNSUPPORTED,
                 "tensor-parallel-size: 3 devices cannot divide 4 heads of 128 columns evenly, at most 16 can share a model; hint: "
                 "tensor-parallel-size: 4");
  fixture_expect(fixture_try_plan(TINY, "tensor-parallel-size: 64\n", NULL, &none), ERR_UNSUPPORTED, "hint: tensor-parallel-size: 4");
  fixture_expect(fixture_try_plan("tests/oracle/small-v3-fp8.json", "tensor-parallel-size: 4\n", NULL, &none), ERR_UNSUPPORTED,
                 "in blocks of 128 evenly");
}

/* With NCCL every row count has ops of `exchange`, whose inbox is next to their results; the numbers are those of one rank's plan. */
static void with_nccl_no_norm_exchanges(void **state) {
  (void)state;
  editable peer = open_ranks("2"), e = open_ranks("2\nexchange-transport: nccl"), one = open_ranks("1\nexchange-transport: nccl");
  const uint32_t most = e.h->limits.max_batch_tokens;
  assert_int_equal(e.h->limits.transport, TRANSPORT_NCCL);
  assert_int_equal(peer.h->limits.transport, TRANSPORT_PEER);
  assert_int_equal(one.h->limits.transport, TRANSPORT_PEER); /* it has no exchange */
  assert_memory_equal(e.h->numerics_id, peer.h->numerics_id, sizeof e.h->numerics_id);
  for (uint32_t i = 0; i < e.h->ops.count; i++) {
    assert_int_not_equal(e.ops[i].kernel, OP_rank_norm);
    if (e.ops[i].kernel == OP_exchange)
      assert_int_equal(find_fixup(&e, &e.ops[i], offsetof(exchange_args, inbox))->region, REGION_WORK);
  }
  expect_rows(&e, "layer 0 attn_delta exchange", OP_exchange, 1, most);
  expect_rows(&e, "layer 0 post_norm", OP_rmsnorm, 1, most);
  expect_rows(&e, "layer 1 experts sum", OP_moe_fold, 1, most);
  expect_rows(&e, "layer 1 experts sum exchange", OP_exchange, 1, most);
  expect_rows(&e, "layer 2 input_norm", OP_rmsnorm, 1, most);
  assert_true(e.regions[REGION_STATE].bytes + EXCHANGE_INBOX_BYTES(2) <= peer.regions[REGION_STATE].bytes + 256);
  free(peer.file.bytes);
  free(e.file.bytes);
  free(one.file.bytes);
}

/* === Faults ============================================================================================================= */

static void columns_are_not_stated(editable *e) { find_op(e, "layer 0 q_b")->rank_columns = 0; }
static void columns_are_stated_that_all_have(editable *e) { find_op(e, "layer 0 qkv_a")->rank_columns = 64; }
static void a_norm_states_columns(editable *e) { find_op(e, "layer 0 input_norm")->rank_columns = 96; }
static void a_tensor_is_divided_unevenly(editable *e) {
  ((plan_tensor *)(uintptr_t)find_tensor(e, "model.layers.0.self_attn.o_proj.weight"))->rank_step -= 8;
}
static void ranks_share_rows(editable *e) {
  ((plan_tensor *)(uintptr_t)find_tensor(e, "model.layers.0.self_attn.o_proj.weight"))->rank_step = 0;
}
static void a_head_is_missing(editable *e) {
  ((plan_tensor *)(uintptr_t)find_tensor(e, "model.layers.1.self_attn.kv_b_proj.weight"))->rank_step -= 128;
}
static void an_exchange_is_late(editable *e) {
  plan_op *exchange = find_op(e, "layer 0 attn_value exchange"), saved = *exchange;
  exchange[0] = exchange[1];
  exchange[1] = saved;
}
static void an_exchange_is_missing(editable *e) { find_op(e, "layer 1 experts gate_up exchange")->rows_min = 2; }
static void an_exchange_is_of_more_ranks(editable *e) { ((exchange_args *)args_of(e, find_op(e, "logits exchange")))->count = 4; }
static void an_exchange_takes_what_all_have(editable *e) {
  plan_op *op = find_op(e, "layer 0 attn_delta exchange");
  find_fixup(e, op, offsetof(exchange_args, x))->offset = find_buffer(e, "x")->offset;
}
static void a_norm_is_of_more_ranks(editable *e) { ((rank_norm_args *)args_of(e, find_op(e, "layer 0 post_norm")))->count = 4; }
static void a_norm_exchanges_what_all_have(editable *e) {
  plan_op *op = find_op(e, "layer 0 post_norm");
  find_fixup(e, op, offsetof(rank_norm_args, delta))->offset = find_buffer(e, "x")->offset;
}
static void a_norm_has_too_many_blocks(editable *e) {
  plan_op *op = find_op(e, "layer 0 post_norm");
  op[0].rows_max++, op[1].rows_min++;
}
static void a_norm_holds_too_much(editable *e) { find_spec(e, find_op(e, "layer 0 post_norm"), "SPEC_HELD")->value = 8; }
static void a_norm_adds_a_part(editable *e) { /* with many rows, of which it exchanges none */
  plan_op *few = find_op(e, "layer 0 post_norm"), *many = few;
  while (many->kernel != OP_rmsnorm) many++;
  find_fixup(e, many, offsetof(rmsnorm_args, delta))->offset = find_fixup(e, few, offsetof(rank_norm_args, delta))->offset;
}
static void a_norm_of_few_rows_does_not_wait(editable *e) { /* an op before it does, but with many rows only */
  for (plan_op *op = find_op(e, "layer 2 input_norm"); strcmp(text(e, op->name), "layer 2 input_norm") == 0; op++) {
    assert_int_equal(op->branch, BRANCH_JOIN);
    op->branch = BRANCH_MAIN;
  }
}
static void there_are_three_ranks(editable *e) { e->h->limits.ranks = 3; }
static void there_are_no_ranks(editable *e) { e->h->limits.ranks = 0; }
static void there_is_a_third_transport(editable *e) { e->h->limits.transport = 2; }
static void a_norm_exchanges_through_nccl(editable *e) { e->h->limits.transport = TRANSPORT_NCCL; }
static void heads_are_of_one_rank(editable *e) { ((qkv_rope_args *)args_of(e, find_op(e, "layer 0 qkv_rope")))->heads = 4; }

static const plan_fault FAULTS[] = {
    FAULT(columns_are_not_stated, "rank_columns is 0, and its columns are divided"),
    FAULT(columns_are_stated_that_all_have, "rank_columns is 64, and its columns are not divided"),
    FAULT(a_norm_states_columns, "rank_columns is 96"),
    FAULT(a_tensor_is_divided_unevenly, "2 ranks with 96 of 192 rows each, 88 apart"),
    FAULT(ranks_share_rows, "not divided"),
    FAULT(a_head_is_missing, "2 ranks with"),
    FAULT(an_exchange_is_late, NULL),
    FAULT(an_exchange_is_missing, "before anything is written"),
    FAULT(an_exchange_is_of_more_ranks, NULL),
    FAULT(an_exchange_takes_what_all_have, NULL),
    FAULT(a_norm_is_of_more_ranks, "count"),
    FAULT(a_norm_exchanges_what_all_have, NULL),
    FAULT(a_norm_has_too_many_blocks, "more bytes or blocks"),
    FAULT(a_norm_holds_too_much, "vectors"),
    FAULT(a_norm_adds_a_part, NULL),
    FAULT(a_norm_of_few_rows_does_not_wait, "is not alive while op layer 1 shared down may run"),
    FAULT(there_are_three_ranks, "heads % ranks"),
    FAULT(there_are_no_ranks, "ranks"),
    FAULT(heads_are_of_one_rank, NULL),
    FAULT(there_is_a_third_transport, "transport is 2, expected 0 to 1"),
    FAULT(a_norm_exchanges_through_nccl, NULL),
};

/* Of a plan in which steps of more than 256 rows divide them. */
#define DIVIDED "2\ndivide-rows-from: 257"

static plan_op *own_op(editable *e, const char *name) {
  plan_op *op = find_op(e, name);
  while (op->rows_kind != ROWS_OWN) op++;
  assert_string_equal(text(e, op->name), name);
  return op;
}
static void the_stream_stays_with_its_owners(editable *e) { find_op(e, "x exchange")->rows_min = 512; }
static void all_norms_take_what_owners_have(editable *e) {
  plan_op *op = find_op(e, "layer 0 attn_delta exchange");
  op->variant = find_op(e, "x exchange")->variant; /* with flags */
  ((exchange_args *)args_of(e, op))->form = EXCHANGE_OWNERS;
}
static void no_rank_gets_the_others_rows(editable *e) { find_op(e, "layer 0 post_norm exchange")->rows_min = 512; }
static void rows_are_exchanged_that_all_have(editable *e) {
  plan_op *op = find_op(e, "layer 1 router exchange");
  find_fixup(e, op, offsetof(exchange_args, x))->offset = find_fixup(e, op, offsetof(exchange_args, y) + 8)->offset;
}
static void owned_rows_are_taken_in_place(editable *e) {
  plan_fixup *x = find_fixup(e, find_op(e, "layer 0 post_norm exchange"), offsetof(exchange_args, x));
  x->rank_step = 1;
}
static void a_rank_takes_the_rows_of_others(editable *e) {
  find_fixup(e, own_op(e, "layer 0 post_norm"), offsetof(rmsnorm_args, x))->rank_step += 1;
}
static void a_rank_takes_the_first_rows(editable *e) {
  find_fixup(e, own_op(e, "layer 0 post_norm"), offsetof(rmsnorm_args, x))->rank_step = 0;
}
static void a_rank_takes_the_counts_of_another(editable *e) { find_fixup(e, own_op(e, "layer 0 post_norm"), 0)->rank_step = 0; }
static void an_op_of_all_rows_has_places_by_rank(editable *e) {
  find_fixup(e, find_op(e, "layer 0 o_proj"), offsetof(gemm_args, x))->rank_step = 1;
}
static void rows_are_sent_as_words(editable *e) {
  find_op(e, "layer 0 post_norm exchange")->variant = find_op(e, "layer 0 attn_value exchange")->variant;
}
static void a_form_of_exchange_does_not_exist(editable *e) { ((exchange_args *)args_of(e, find_op(e, "x exchange")))->form = 4; }
static void own_rows_are_of_steps_that_have_others(editable *e) { own_op(e, "layer 0 post_norm")->rows_min -= 1; }

static const plan_fault FAULTS_OF_DIVIDED[] = {
    FAULT(the_stream_stays_with_its_owners, "op final_norm reads rows that only their owners have"),
    FAULT(all_norms_take_what_owners_have, "op layer 0 post_norm reads rows that only their owners have"),
    FAULT(no_rank_gets_the_others_rows, "before anything is written"),
    FAULT(rows_are_exchanged_that_all_have, NULL),
    FAULT(owned_rows_are_taken_in_place, "the rows of the ranks do not lie between each other"),
    FAULT(a_rank_takes_the_rows_of_others, "the rows of the ranks do not lie between each other"),
    FAULT(a_rank_takes_the_first_rows, NULL),
    FAULT(a_rank_takes_the_counts_of_another, "does not read the step's counts"),
    FAULT(an_op_of_all_rows_has_places_by_rank, "points elsewhere on other ranks"),
    FAULT(rows_are_sent_as_words, "sends columns to all ranks"),
    FAULT(a_form_of_exchange_does_not_exist, NULL),
    FAULT(own_rows_are_of_steps_that_have_others, "the alternatives of op layer 0 post_norm overlap"),
};

static void every_fault_of_divided_rows_is_named(void **state) {
  (void)state;
  check_faults(open_ranks(DIVIDED), FAULTS_OF_DIVIDED, ARRAY_LEN(FAULTS_OF_DIVIDED));
}

/* Of a plan whose steps of long contexts attend by requests. */
#define BY_REQUESTS "2\nattention-by-requests-from: 64"

static void queries_stay_with_the_ranks_of_heads(editable *e) { find_op(e, "layer 0 q_latent exchange")->rows_min = 3; }
static void results_stay_with_their_owners(editable *e) { find_op(e, "layer 0 attn_latent exchange")->rows_min = 3; }
static void all_ranks_get_all_queries(editable *e) {
  ((exchange_args *)args_of(e, find_op(e, "layer 0 q_latent exchange")))->form = EXCHANGE_COLUMNS;
}
static void a_rank_attends_for_others(editable *e) { find_fixup(e, find_op(e, "layer 0 mla_attn by requests"), 0)->rank_step = 0; }
static void a_rank_cuts_the_tiles_of_others(editable *e) {
  find_fixup(e, find_op(e, "attn_cut by requests"), offsetof(attn_cut_args, tiles))->rank_step += 1;
}
static void all_tiles_are_cut(editable *e) {
  plan_fixup *tiles = find_fixup(e, find_op(e, "attn_cut by requests"), offsetof(attn_cut_args, tiles));
  tiles->offset = e->h->io.tiles;
  tiles->rank_step = 0;
}
static void pages_of_other_ranks_rows_are_read_early(editable *e) {
  ((attn_cut_args *)args_of(e, find_op(e, "attn_cut by requests")))->all_late = 0;
}
static void it_attends_with_heads_of_a_rank(editable *e) {
  ((mla_attn_args *)args_of(e, find_op(e, "layer 0 mla_attn by requests")))->heads /= 2;
}
static void it_attends_with_queries_of_a_rank(editable *e) {
  plan_fixup *q = find_fixup(e, find_op(e, "layer 0 mla_attn by requests"), offsetof(mla_attn_args, q));
  q->offset = find_fixup(e, find_op(e, "layer 0 q_latent exchange"), offsetof(exchange_args, x))->offset;
}
static void it_folds_the_units_of_the_other_form(editable *e) {
  plan_fixup *units = find_fixup(e, find_op(e, "layer 0 mla_fold by requests"), offsetof(mla_fold_args, partial_o));
  units->offset = find_fixup(e, find_op(e, "layer 0 mla_fold"), offsetof(mla_fold_args, partial_o))->offset;
}
static void exchanges_have_the_counts_of_a_rank(editable *e) {
  plan_fixup *step = find_fixup(e, find_op(e, "layer 0 q_latent exchange"), 0);
  step->offset += STEP_PARTS * sizeof(step_in);
}
static void requests_are_of_too_few_rows(editable *e) { e->h->limits.requests_rows = 1; }
static void requests_are_of_no_step(editable *e) { e->h->limits.requests_rows = e->h->limits.requests_context = 0; }

static const plan_fault FAULTS_OF_REQUESTS[] = {
    FAULT(queries_stay_with_the_ranks_of_heads, NULL),
    FAULT(results_stay_with_their_owners, "reads layer 0 attn_latent before anything is written"),
    FAULT(all_ranks_get_all_queries, "reads rows that ranks do not own"),
    FAULT(a_rank_attends_for_others, "does not read the step's counts"),
    FAULT(a_rank_cuts_the_tiles_of_others, "takes the tiles of another rank"),
    FAULT(all_tiles_are_cut, NULL),
    FAULT(pages_of_other_ranks_rows_are_read_early, "all_late"),
    FAULT(it_attends_with_heads_of_a_rank, "differ in its row stride"),
    FAULT(it_attends_with_queries_of_a_rank, NULL),
    FAULT(it_folds_the_units_of_the_other_form, NULL),
    FAULT(exchanges_have_the_counts_of_a_rank, "does not read the step's counts"),
    FAULT(requests_are_of_too_few_rows, NULL),
    FAULT(requests_are_of_no_step, NULL),
};

static void every_fault_of_requests_is_named(void **state) {
  (void)state;
  check_faults(open_ranks(BY_REQUESTS), FAULTS_OF_REQUESTS, ARRAY_LEN(FAULTS_OF_REQUESTS));
}

/* Only latent attention over whole contexts has the form; the numerics id is that of one rank. */
static void requests_are_no_numerics(void **state) {
  (void)state;
  editable one = open_ranks("1\nattention-by-requests-from: 64"), two = open_ranks(BY_REQUESTS),
           nccl = open_ranks(BY_REQUESTS "\nexchange-transport: nccl");
  assert_memory_equal(one.h->numerics_id, two.h->numerics_id, sizeof one.h->numerics_id);
  assert_true(two.h->limits.requests_rows == 2 && two.h->limits.requests_context == 64);
  assert_true(one.h->limits.requests_rows == 0 && nccl.h->limits.requests_rows == 0);
  free(one.file.bytes);
  free(two.file.bytes);
  free(nccl.file.bytes);
}

/* With one rank the key means nothing, and a plan of more has the numerics id of one. */
static void divided_rows_are_no_numerics(void **state) {
  (void)state;
  editable one = open_ranks("1"), keyed = open_ranks("1\ndivide-rows-from: 2"), two = open_ranks(DIVIDED),
           never = open_ranks("2\ndivide-rows-from: 513");
  assert_true(one.file.count == keyed.file.count && memcmp(one.file.bytes, keyed.file.bytes, one.file.count) == 0);
  assert_memory_equal(one.h->numerics_id, two.h->numerics_id, sizeof one.h->numerics_id);
  assert_non_null(own_op(&two, "layer 1 router"));
  for (uint32_t i = 0; i < never.h->ops.count; i++) assert_int_not_equal(never.ops[i].rows_kind, ROWS_OWN);
  free(one.file.bytes);
  free(keyed.file.bytes);
  free(two.file.bytes);
  free(never.file.bytes);
}

/* Of a plan whose transport is NCCL. */
static void an_inbox_is_too_small(editable *e) {
  plan_op *op = find_op(e, "layer 0 gate_up exchange");
  const plan_fixup *inbox = find_fixup(e, op, offsetof(exchange_args, inbox));
  for (uint32_t i = 0; i < e->h->buffers.count; i++)
    if (e->buffers[i].region == REGION_WORK && e->buffers[i].offset == inbox->offset && strstr(text(e, e->buffers[i].name), "inbox"))
      e->buffers[i].bytes -= 256;
}
static void an_inbox_is_a_result(editable *e) {
  plan_op *op = find_op(e, "layer 0 gate_up exchange");
  find_fixup(e, op, offsetof(exchange_args, inbox))->offset = find_fixup(e, op, offsetof(exchange_args, y))->offset;
}
static void an_inbox_is_elsewhere(editable *e) {
  plan_fixup *inbox = find_fixup(e, find_op(e, "layer 0 gate_up exchange"), offsetof(exchange_args, inbox));
  inbox->region = REGION_KV;
  inbox->offset = e->h->io.history;
}
static const plan_fault FAULTS_OF_NCCL[] = {
    FAULT(an_inbox_is_too_small, "beyond the end of layer 0 exchange_inbox"),
    FAULT(an_inbox_is_a_result, "op layer 0 gate_up exchange"),
    FAULT(an_inbox_is_elsewhere, "in the wrong region"),
};

static void every_fault_of_nccl_is_named(void **state) {
  (void)state;
  check_faults(open_ranks("2\nexchange-transport: nccl"), FAULTS_OF_NCCL, ARRAY_LEN(FAULTS_OF_NCCL));
}

static void every_fault_is_named(void **state) {
  (void)state;
  check_faults(open_ranks("2"), FAULTS, ARRAY_LEN(FAULTS));
}

/* Their plans have the most ops and row ranges of all, which the verifier must still be willing to judge. */
static void the_largest_models_are_planned(void **state) {
  (void)state;
#ifdef __SANITIZE_ADDRESS__ /* slow */
  static const char *const CONFIGS[] = {"kimi-k2"};
#else
  static const char *const CONFIGS[] = {"deepseek-v3.2", "kimi-k2"};
#endif
  for (size_t i = 0; i < ARRAY_LEN(CONFIGS); i++) {
    char path[64];
    snprintf(path, sizeof path, "tests/data/configs/%s.json", CONFIGS[i]);
    editable e = edit_plan(path, "max-num-seqs: 256\nmax-num-batched-tokens: 8192\nmax-model-len: 8448\nkv-pages: 8512\n"
                                 "ladder: [1, 4, 16, 64, 256]\nkv-cache-dtype: fp8_ds_mla\ntensor-parallel-size: 8\n");
    assert_int_equal(check_plan(e.file.bytes, e.file.count), OK);
    free(e.file.bytes);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_largest_models_are_planned),
    cmocka_unit_test(ranks_have_one_numerics_id),
    cmocka_unit_test(each_rank_has_its_rows),
    cmocka_unit_test(norms_exchange_few_rows),
    cmocka_unit_test(with_nccl_no_norm_exchanges),
    cmocka_unit_test(what_cannot_be_divided_is_refused_by_name),
    cmocka_unit_test(every_fault_is_named),
    cmocka_unit_test(every_fault_of_divided_rows_is_named),
    cmocka_unit_test(divided_rows_are_no_numerics), cmocka_unit_test(every_fault_of_requests_is_named),
    cmocka_unit_test(requests_are_no_numerics),
    cmocka_unit_test(every_fault_of_nccl_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
