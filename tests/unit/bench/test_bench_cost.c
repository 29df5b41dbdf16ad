/* test_bench_cost.c - bytes and FLOPs of every op of the shipped model, against numbers computed by hand.
 *
 * The model: hidden 192, 4 heads, latent 512 + 64, nope and value 64, q_lora 128, vocabulary 768, 8 experts of 64, 2 per token, 1 shared;
 * chunks of 256. The step: 3 tokens at positions 0, 255 and 600, which attend to 1 + 256 + 601 = 858 rows in 1 + 1 + 3 chunks; 5 experts
 * have a token. */
#include "tests/unit/unit.h"
#include "engine/bench/cost.h"
#include "engine/exec/bench.h"
#include "engine/plan/plan.h"
#include "tests/unit/planner/planner_fixture.h"

static fixture_bytes file;
static plan shipped;

static int open_plan(void **state) {
  (void)state;
  fixture_bytes deploy = fixture_read("tests/tiny/deploy.yaml");
  char *text = calloc(deploy.count + 1, 1);
  assert_non_null(text);
  memcpy(text, deploy.bytes, deploy.count);
  file = fixture_plan("tests/tiny/config.json", text, NULL);
  free(deploy.bytes);
  free(text);
  return plan_view(file.bytes, file.count, &shipped) == OK ? 0 : -1;
}

static int close_plan(void **state) {
  (void)state;
  free(file.bytes);
  return 0;
}

static const plan_op *find_op(const char *name, uint32_t rows) {
  for (uint32_t i = 0; i < shipped.op_count; i++) {
    const plan_op *op = &shipped.ops[i];
    if (strcmp(plan_string(&shipped, op->name), name) == 0 && rows >= op->rows_min && rows <= op->rows_max) return op;
  }
  fail_msg("no op %s for %u rows", name, rows);
  return NULL;
}

static void expect(const char *name, const bench_cost_step *step, bench_cost wanted) {
  bench_cost found = bench_cost_of(&shipped, find_op(name, step->token_count), step);
  if (found.weight_bytes != wanted.weight_bytes || found.kv_bytes != wanted.kv_bytes || found.activation_bytes != wanted.activation_bytes ||
      found.flops < wanted.flops || found.flops > wanted.flops || found.e4m3_flops > wanted.e4m3_flops ||
      found.sent_bytes != wanted.sent_bytes)
    fail_msg("%s: expected %llu %llu %llu bytes, %.0f FLOPs, found %llu %llu %llu, %.0f, %llu sent", name,
             (unsigned long long)wanted.weight_bytes, (unsigned long long)wanted.kv_bytes,
             (unsigned long long)wanted.activation_bytes, wanted.flops,
             (unsigned long long)found.weight_bytes, (unsigned long long)found.kv_bytes, (unsigned long long)found.activation_bytes,
             found.flops, (unsigned long long)found.sent_bytes);
}

static const uint32_t POSITIONS[] = {0, 255, 600};
static const bench_cost_step STEP = {.token_count = 3, .logit_count = 3, .position = POSITIONS, .kv_rows = 858, .experts_used = 5};

static void ops_of_three_tokens(void **state) {
  (void)state;
  /* {weights, KV rows, activations, FLOPs, FLOPs of e4m3 products, sent} */
  expect("embed", &STEP, (bench_cost){3 * 192 * 2, 0, 3 * (192 * 4 + 16), 3 * 192, 0, 0});
  expect("layer 0 input_norm", &STEP, (bench_cost){384, 0, 576 * (4 + 2), 576 * 4, 0, 0});
  expect("layer 1 input_norm", &STEP, (bench_cost){384, 0, 576 * (4 + 4 + 4 + 2), 576 * 6, 0, 0}); /* adds the delta of layer 0 */
  expect("layer 2 qkv_a", &STEP, (bench_cost){704 * 192 * 2, 0, 3 * (192 * 2 + 704 * 4), 811008, 0, 0});
  expect("layer 0 qkv_rope", &STEP, (bench_cost){1024, 0, 3 * ((576 + 512) * 6 + 64 * 4 + 8), 3 * (4 * 512 + 3 * 64 * 5), 0, 0});
  expect("layer 0 absorb", &STEP, (bench_cost){4 * 512 * 64 * 2, 0, 3 * 4 * (64 * 2 + 512 * 2), 786432, 0, 0});
  expect("layer 3 mla_attn", &STEP, (bench_cost){0, 858 * 576 * 2, 3 * 4 * (576 + 512) * 2, 7468032, 0, 0});
  expect("layer 3 mla_fold", &STEP, (bench_cost){0, 0, 3 * 4 * 512 * 2, 0, 0, 0});
  expect("layer 0 gate_up", &STEP, (bench_cost){768 * 192 * 2, 0, 3 * (192 * 2 + 384 * 2), 884736, 0, 0});
  expect("layer 1 router", &STEP, (bench_cost){32, 0, 3 * (8 * 4 + 2 * 8) + 3 * 2 * 8 + 9 * 4, 3 * 8 * 3, 0, 0}); /* it also sorts */
  expect("layer 1 experts gate_up", &STEP, (bench_cost){5 * 128 * 192 * 2, 0, 3 * 192 * 2 + 6 * 64 * 2, 294912, 0, 0});
  expect("layer 1 experts down", &STEP, (bench_cost){5 * 192 * 64 * 2, 0, 6 * 64 * 2 + 6 * 192 * 4, 147456, 0, 0});
  expect("layer 2 input_norm", &STEP, (bench_cost){384, 0, 576 * (4 + 4 + 2 * 4 + 4 + 2) + 48, 576 * 11, 0, 0}); /* two experts and one */
  expect("final_norm", &STEP, (bench_cost){384, 0, 576 * (4 + 4 + 2 * 4 + 2) + 3 * 2 * 8, 576 * (6 + 4 + 1), 0, 0});
  expect("lm_head", &STEP, (bench_cost){768 * 192 * 2, 0, 3 * (192 * 2 + 768 * 4), 884736, 0, 0});
  expect("row_digest", &STEP, (bench_cost){0, 0, 3 * (768 * 4 + 8), 0, 0, 0});
  expect("adjust", &STEP, (bench_cost){0, 0, 3 * 80, 0, 0, 0});
  expect("sample", &STEP, (bench_cost){0, 0, 3 * (768 * 4 + 80 + 20), 3 * 768 * 3, 0, 0});
}

/* A row of a prompt's KV is read once for all tokens of the prompt. */
static void attention_of_a_prompt(void **state) {
  (void)state;
  uint32_t positions[100];
  for (uint32_t i = 0; i < 100; i++) positions[i] = i;
  const bench_cost_step step = {.token_count = 100, .logit_count = 1, .position = positions, .kv_rows = 100};
  expect("layer 0 mla_attn", &step, (bench_cost){0, 100 * 576 * 2, 100 * 4 * (576 + 512) * 2, 2.0 * 4 * 5050 * 1088, 0, 0});
  bench_cost head = bench_cost_of(&shipped, find_op("lm_head", 1), &step); /* depends on the logits rows */
  assert_int_equal(head.activation_bytes, 192 * 2 + 768 * 4);
}

/* Attention of a sparse model, or of a cache in another format; both are derived from the shipped model's plan. */
static void attention_over_lists_and_formats(void **state) {
  (void)state;
  const plan_op *op = find_op("layer 0 mla_attn", 3);
  mla_attn_args *args = (mla_attn_args *)(uintptr_t)(shipped.args + op->args_offset), kept = *args;
  const uint64_t activations = 3 * 4 * (576 + 512) * 2;
  args->list_max = 64; /* 1, 64 and 64 rows */
  expect("layer 0 mla_attn", &STEP, (bench_cost){0, 129 * 576 * 2, activations, 2.0 * 4 * 129 * 1088, 0, 0});
  args->kv_format = KV_FP8_DS_MLA;
  expect("layer 0 mla_attn", &STEP, (bench_cost){0, 129 * 656, activations, 2.0 * 4 * 129 * 1088, 0, 0});
  args->list_max = 512; /* 1, 256 and 512 of 858 rows */
  expect("layer 0 mla_attn", &STEP, (bench_cost){0, 769 * 656, activations, 2.0 * 4 * 769 * 1088, 0, 0});
  args->list_max = 0;
  args->kv_format = KV_FP8;
  expect("layer 0 mla_attn", &STEP, (bench_cost){0, 858 * 576, activations, 7468032, 0, 0});
  *args = kept;
}

/* Every op of the plan has a cost; a forgotten op would have none. */
static void every_op_counts(void **state) {
  (void)state;
  for (uint32_t i = 0; i < shipped.op_count; i++) {
    bench_cost cost = bench_cost_of(&shipped, &shipped.ops[i], &STEP);
    if (bench_cost_bytes(&cost) == 0) fail_msg("%s moves nothing", plan_string(&shipped, shipped.ops[i].name));
  }
}

/* Measured in turn: the memory after them holds the output of the last one. */
static void the_last_launch_is_of_the_last_op(void **state) {
  (void)state;
  static const uint32_t ops[] = {3, 8, 20, 21, 40, 41, 60};
  for (uint32_t count = 1; count <= 7; count++) {
    for (uint32_t launches = 1; launches <= 70; launches++) {
      const exec_bench_list list = {.ops = ops, .count = count, .launches = launches};
      for (uint32_t i = 0; i < launches; i++)
        assert_int_equal(exec_bench_op(&list, launches - 1 - i), ops[(count - 1 + 70 * count - i) % count]);
    }
  }
}

static void the_slowest_is_the_floor(void **state) {
  (void)state;
  const bench_cost none = {0}, some = {.flops = 1580e6}, codes = {.flops = 1580e6, .e4m3_flops = 1580e6};
  const bench_cost both = {.flops = 3160e6, .e4m3_flops = 1580e6};
  const bench_rates all = {4.3e12, 790e12, 450e9}, flops = {0, 790e12, 0}, unknown = {0};
  const bench_cost sends = {.sent_bytes = 900000}, few = {.sent_bytes = 900};
  assert_float_equal(bench_cost_floor_us(4300000, &none, &all), 1, 1e-9);
  assert_float_equal(bench_cost_floor_us(4300000, &some, &all), 2, 1e-9);
  assert_float_equal(bench_cost_floor_us(12900000, &some, &all), 3, 1e-9);
  assert_float_equal(bench_cost_floor_us(12900000, &some, &flops), 2, 1e-9); /* an unknown rate */
  assert_float_equal(bench_cost_floor_us(12900000, &some, &unknown), 0, 1e-9);
  assert_float_equal(bench_cost_floor_us(0, &codes, &all), 1, 1e-9); /* e4m3 products: twice the rate */
  assert_float_equal(bench_cost_floor_us(0, &both, &all), 3, 1e-9);
  assert_float_equal(bench_cost_floor_us(4300000, &sends, &all), 2, 1e-9); /* over the link */
  assert_float_equal(bench_cost_floor_us(4300000, &few, &all), 1, 1e-9);
  assert_float_equal(bench_cost_floor_us(4300000, &sends, &flops), 0, 1e-9);
}

/* A rank of two: 2 of 4 heads of 64 values, half of the activations and of the vocabulary, half of the experts' weights. */
static void a_rank_counts_its_own(void **state) {
  (void)state;
  const plan whole = shipped;
  fixture_bytes two = fixture_plan("tests/tiny/config.json", "max-num-batched-tokens: 512\nmax-model-len: 1024\ntensor-parallel-size: 2\n",
                                   NULL);
  assert_int_equal(plan_view(two.bytes, two.count, &shipped), OK);
  expect("layer 0 attn_value exchange", &STEP, (bench_cost){.sent_bytes = 3 * 2 * 64 * 2});
  expect("layer 0 gate_up exchange", &STEP, (bench_cost){.sent_bytes = 3 * 192 * 2});
  expect("layer 1 experts gate_up exchange", &STEP, (bench_cost){.sent_bytes = 3 * (2 * 32 + 32) * 2});
  expect("logits exchange", &STEP, (bench_cost){.sent_bytes = 3 * 384 * 4});
  expect("layer 0 post_norm", &STEP, (bench_cost){384, 0, 576 * (4 + 4 + 2) + 3 * 96 * 4, 576 * 6, 0, 3 * 96 * 4}); /* rank_norm */
  expect("lm_head", &STEP, (bench_cost){384 * 192 * 2, 0, 3 * (192 * 2 + 384 * 4), 442368, 0, 0});
  expect("layer 1 experts gate_up", &STEP, (bench_cost){5 * 64 * 192 * 2, 0, 3 * 192 * 2 + 6 * 32 * 2, 147456, 0, 0});
  expect("layer 3 mla_attn", &STEP, (bench_cost){0, 858 * 576 * 2, 3 * 2 * (576 + 512) * 2, 3734016, 0, 0});
  shipped = whole;
  free(two.bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ops_of_three_tokens), cmocka_unit_test(attention_of_a_prompt),
                                     cmocka_unit_test(attention_over_lists_and_formats),
                                     cmocka_unit_test(every_op_counts), cmocka_unit_test(the_last_launch_is_of_the_last_op),
                                     cmocka_unit_test(the_slowest_is_the_floor), cmocka_unit_test(a_rank_counts_its_own)};
  return cmocka_run_group_tests(tests, open_plan, close_plan);
}
