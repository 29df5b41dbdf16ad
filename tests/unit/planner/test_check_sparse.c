/* test_check_sparse.c - the verifier of plans on models with an indexer and e4m3 weights: the planner's plans pass, and each planted fault
 * is reported as what it is. Also the windows that long scores are split into. Read next: test_check.c. */
#include "tests/unit/unit.h"
#include "engine/plan/format_widen.h"
#include "kernels_src/abi.h"
#include "planner/checks/check.h"
#include "planner/draft.h"
#include "planner/emit.h"
#include "tests/unit/plan/plan_faults.h"

#define SMALL "tests/oracle/small-glm52-fp8.json" /* layers 0 and 2 have an indexer */
#define DEPLOY "max-num-seqs: 4\nmax-num-batched-tokens: 256\nmax-model-len: 512\n"

/* === Faults ============================================================================================================= */

#define ARGS(type, name) ((type##_args *)args_of(e, find_op(e, name)))

static void keys_of_another_layer(editable *e) {
  find_fixup(e, find_op(e, "layer 2 index_score"), offsetof(index_score_args, cache))->offset = e->h->io.index;
}
static void keys_are_kept_elsewhere(editable *e) {
  find_fixup(e, find_op(e, "layer 0 index_qk"), offsetof(index_qk_args, cache))->offset += INDEX_PAGE_BYTES;
}
static void lists_of_another_layer(editable *e) {
  e->h->quant.index_shared[0] &= ~(UINT64_C(1) << 3);
  emit_numerics_id(&e->h->model, &e->h->quant, &e->h->grouped, &e->h->limits, e->h->numerics_id);
}
static void lists_are_left_out(editable *e) { ARGS(mla_attn, "layer 0 mla_attn")->list_max = 0; }
static void the_cut_knows_no_lists(editable *e) { ARGS(attn_cut, "attn_cut")->list_max = 0; }
static void fewer_tokens_are_chosen(editable *e) { ARGS(index_topk, "layer 0 index_topk")->topk -= 64; }
static void rows_have_no_lists(editable *e) { ARGS(index_topk, "layer 0 index_topk")->row_count -= 64; }
static void scores_of_other_rows(editable *e) { ARGS(index_score, "layer 0 index_score")->row_first = 1; }
static void scores_of_fewer_heads(editable *e) { ARGS(index_score, "layer 0 index_score")->heads = 16; }
static void stages_of_three_pages(editable *e) { find_spec(e, find_op(e, "layer 0 index_score"), "SPEC_PAGES")->value = 3; }
static void no_keys_are_written(editable *e) { find_op(e, "layer 2 index_qk")->rows_min = 2; }
static void pairs_of_the_other_kind(editable *e) { ARGS(index_qk, "layer 0 index_qk")->half_split ^= 1; }
static void scales_of_the_other_kind(editable *e) { ARGS(index_qk, "layer 0 index_qk")->scale_kind ^= 1; }
static void another_eps_of_keys(editable *e) { ARGS(index_qk, "layer 0 index_qk")->eps = 1e-5f; }
static void tiles_share_a_list(editable *e) {
  e->h->limits.attn_tile_tokens = 2;
  emit_numerics_id(&e->h->model, &e->h->quant, &e->h->grouped, &e->h->limits, e->h->numerics_id);
}
static void codes_are_read_as_bf16(editable *e) {
  plan_op *op = find_op(e, "layer 0 index_w");
  find_fixup(e, op, offsetof(gemm_args, x))->offset = find_buffer(e, "layer 0 input_norm codes")->offset;
}
static void codes_without_their_making(editable *e) { find_op(e, "layer 1 post_norm codes")->rows_min = 2; }
static void codes_of_other_scales(editable *e) { ARGS(act_quant, "layer 0 q_a codes")->scale_kind ^= 1; }
static void rows_of_experts_are_too_few(editable *e) { ARGS(act_quant, "layer 1 experts gate_up codes")->rows_mul = 1; }
static void scales_of_another_weight(editable *e) {
  const plan_buffer *other = find_buffer(e, "layer 1 o_proj scales");
  find_fixup(e, find_op(e, "layer 0 o_proj"), offsetof(fp8_gemm_args, w_scale))->offset = other->offset + 16;
}
static void codes_for_scales(editable *e) {
  const plan_buffer *codes = find_buffer(e, "layer 0 o_proj weight");
  find_fixup(e, find_op(e, "layer 0 o_proj"), offsetof(fp8_gemm_args, w_scale))->offset = codes->offset;
}
static void a_row_of_scales_is_missing(editable *e) { ARGS(fp8_gemm, "layer 0 qkv_a")->n += 128; }
static void rows_of_another_format(editable *e) { ARGS(qkv_rope, "layer 0 qkv_rope")->kv_format = KV_BF16; }
static void rows_are_read_in_another_format(editable *e) { ARGS(mla_attn, "layer 0 mla_attn")->kv_format = KV_FP8; }
static void a_side_product_starts_early(editable *e) { ARGS(fp8_gemm, "layer 2 shared gate_up")->order = ORDER_CHAIN; }
static void the_indexers_pages_are_too_few(editable *e) { find_buffer(e, "index")->bytes -= 256; }

/* Plans whose prompts read rows dequantized to bf16. */
static mla_attn_args *widened_attention(editable *e) { return args_of(e, &find_op(e, "layer 1 kv_widen")[1]); }
static void widened_rows_are_read_as_codes(editable *e) { widened_attention(e)->kv_format = KV_FP8_DS_MLA; }
static void a_wide_table_of_the_workspace(editable *e) { widened_attention(e)->block_table_stride = e->h->limits.pages_per_seq; }
static void the_workspace_is_too_small(editable *e) { ARGS(kv_widen, "layer 1 kv_widen")->pages_max++; }
static void rows_are_widened_from_another_format(editable *e) { ARGS(kv_widen, "layer 1 kv_widen")->kv_format = KV_FP8; }
static void rows_of_another_layer_are_widened(editable *e) {
  find_fixup(e, find_op(e, "layer 1 kv_widen"), offsetof(kv_widen_args, kv))->offset =
      find_fixup(e, find_op(e, "layer 2 kv_widen"), offsetof(kv_widen_args, kv))->offset;
}
static void nothing_is_widened(editable *e) { find_op(e, "layer 1 kv_widen")->rows_min = 256; }
static void prompts_do_not_attend(editable *e) { find_op(e, "layer 1 kv_widen")[1].rows_min = 256; }
static void prompts_have_the_others_tiles(editable *e) {
  find_fixup(e, &find_op(e, "layer 1 kv_widen")[1], offsetof(mla_attn_args, tiles))->offset = e->h->io.tiles;
}
static void the_others_have_the_prompts_counts(editable *e) {
  find_fixup(e, find_op(e, "layer 1 mla_attn"), offsetof(mla_attn_args, step))->offset += sizeof(step_in);
}
static void the_table_is_the_steps(editable *e) {
  plan_fixup *table = find_fixup(e, &find_op(e, "layer 1 kv_widen")[1], offsetof(mla_attn_args, block_table));
  table->region = REGION_STEP;
  table->offset = e->h->io.block_table;
}
static void values_of_one_row_alone(editable *e) { find_op(e, "layer 1 v_up")->rows_min = 3; }
static void widened_rows_of_a_bf16_cache(editable *e) {
  e->h->quant.kv_format = e->h->quant.kv_scale = 0;
  emit_numerics_id(&e->h->model, &e->h->quant, &e->h->grouped, &e->h->limits, e->h->numerics_id);
}

/* A plan whose top-k index lists are one chunk. In the order of their rows: ops that split tokens over 32, 16 and 8 blocks, the cluster
 * form, the ping-pong form. */
static void lists_of_two_chunks_are_spread(editable *e) {
  for (uint32_t i = 0; i < e->h->ops.count; i++)
    if (e->ops[i].kernel == OP_mla_attn) ((mla_attn_args *)args_of(e, &e->ops[i]))->chunk_tokens = 1024;
  e->h->limits.chunk_tokens = 1024;
  emit_numerics_id(&e->h->model, &e->h->quant, &e->h->grouped, &e->h->limits, e->h->numerics_id);
}
static void lists_of_two_chunks_take_turns(editable *e) {
  find_op(e, "layer 0 mla_attn")->variant = find_nth(e, "layer 0 mla_attn", 4)->variant;
  lists_of_two_chunks_are_spread(e);
}
static void half_a_group_of_blocks(editable *e) { find_op(e, "layer 0 mla_attn")->grid[0].constant = 112; }
static void more_blocks_than_run_at_once(editable *e) { find_nth(e, "layer 0 mla_attn", 2)->grid[0].constant = 136; }
static void four_blocks_share_a_token(editable *e) { find_spec(e, find_op(e, "layer 0 mla_attn"), "SPEC_SPREAD")->value = 4; }
static void blocks_hold_other_heads(editable *e) { find_spec(e, find_op(e, "layer 0 mla_attn"), "SPEC_GROUPS")->value = 2; }
static void blocks_of_one_group_are_missing(editable *e) {
  find_spec(e, find_op(e, "layer 0 mla_attn"), "SPEC_GROUPS")->name = find_spec(e, find_op(e, "layer 0 mla_attn"), "SPEC_ROWS")->name;
}
static void blocks_meet_in_the_work_region(editable *e) {
  find_fixup(e, find_op(e, "layer 0 mla_attn"), offsetof(mla_attn_args, meetings))->region = REGION_WORK;
}
static void blocks_meet_at_the_sampled_tokens(editable *e) {
  find_fixup(e, find_op(e, "layer 0 mla_attn"), offsetof(mla_attn_args, meetings))->offset = e->h->io.sampled;
}
static void meetings_lie_elsewhere(editable *e) { e->h->io.meetings = e->h->io.sampled; }

static const plan_fault FAULTS[] = {
    FAULT(keys_of_another_layer, "keys"), FAULT(keys_are_kept_elsewhere, NULL),
    FAULT(lists_of_another_layer, "lists of layer 2, expected of layer 3"),
    FAULT(lists_are_left_out, NULL), FAULT(the_cut_knows_no_lists, "list_max"), FAULT(fewer_tokens_are_chosen, NULL),
    FAULT(rows_have_no_lists, NULL), FAULT(scores_of_other_rows, NULL), FAULT(scores_of_fewer_heads, NULL),
    FAULT(stages_of_three_pages, "stages of 3 pages"),
    FAULT(no_keys_are_written, NULL), FAULT(pairs_of_the_other_kind, "half_split"), FAULT(scales_of_the_other_kind, "scale_kind"),
    FAULT(another_eps_of_keys, "eps"), FAULT(tiles_share_a_list, "attn_tile_tokens"), FAULT(codes_are_read_as_bf16, NULL),
    FAULT(codes_without_their_making, "before anything is written"), FAULT(codes_of_other_scales, "scale_kind"),
    FAULT(rows_of_experts_are_too_few, NULL), FAULT(scales_of_another_weight, NULL), FAULT(codes_for_scales, NULL),
    FAULT(a_row_of_scales_is_missing, NULL), FAULT(rows_of_another_format, "kv_format"),
    FAULT(rows_are_read_in_another_format, NULL), FAULT(a_side_product_starts_early, "starts beside"),
    FAULT(the_indexers_pages_are_too_few, NULL)};

static const plan_fault WIDENED_FAULTS[] = {
    FAULT(widened_rows_are_read_as_codes, "another format"), FAULT(a_wide_table_of_the_workspace, "block_table_stride"),
    FAULT(the_workspace_is_too_small, NULL), FAULT(rows_are_widened_from_another_format, NULL),
    FAULT(rows_of_another_layer_are_widened, "another layer's KV rows"), FAULT(nothing_is_widened, "before anything is written"),
    FAULT(prompts_do_not_attend, "before anything is written"), FAULT(prompts_have_the_others_tiles, "another table of the step"),
    FAULT(the_others_have_the_prompts_counts, "the step's counts"), FAULT(the_table_is_the_steps, "wrong region"),
    FAULT(values_of_one_row_alone, "before anything is written"), FAULT(widened_rows_of_a_bf16_cache, NULL)};

static const plan_fault ONE_CHUNK_FAULTS[] = {
    FAULT(lists_of_two_chunks_take_turns, "folds no chunks"), FAULT(lists_of_two_chunks_are_spread, "that are one chunk"),
    FAULT(half_a_group_of_blocks, "whole groups of 32"), FAULT(more_blocks_than_run_at_once, "at most 128"),
    FAULT(four_blocks_share_a_token, "takes 64 rows by 512 threads"), FAULT(blocks_meet_in_the_work_region, NULL),
    FAULT(blocks_meet_at_the_sampled_tokens, NULL), FAULT(meetings_lie_elsewhere, NULL)};

static const plan_fault ONE_GROUP_FAULTS[] = {FAULT(blocks_hold_other_heads, "takes 64 rows by 512 threads"),
                                              FAULT(blocks_of_one_group_are_missing, NULL),
                                              FAULT(lists_of_two_chunks_are_spread, "lists of 33 to 64 heads that are one chunk")};

static void every_fault_is_caught(void **state) {
  (void)state;
  check_faults(edit_plan(SMALL, DEPLOY), FAULTS, ARRAY_LEN(FAULTS));
}

static void every_fault_of_widening_is_caught(void **state) {
  (void)state;
  check_faults(edit_plan(SMALL, DEPLOY "expand_tokens: 640\n"), WIDENED_FAULTS, ARRAY_LEN(WIDENED_FAULTS));
}

static void every_fault_of_lists_that_are_one_chunk_is_caught(void **state) {
  (void)state;
  check_faults(edit_plan("tests/data/configs/deepseek-v3.2.json", ""), ONE_CHUNK_FAULTS, ARRAY_LEN(ONE_CHUNK_FAULTS));
  check_faults(edit_plan("tests/data/configs/glm-5.json", "chunk-tokens: 2048\n"), ONE_GROUP_FAULTS, ARRAY_LEN(ONE_GROUP_FAULTS));
}

/* Plans with many heads have the workspace by default, with few heads on request; it has room for at least one full-length context. */
static void many_heads_read_widened_rows(void **state) {
  static const struct {
    const char *config, *deploy;
    uint32_t pages;
  } CASES[] = {{SMALL, DEPLOY, 0},
               {SMALL, DEPLOY "expand_tokens: 64\n", 1},
               {"tests/data/configs/deepseek-v3.2.json", "max-model-len: 163840\nkv-pages: 4000\n", 2560},
               {"tests/data/configs/deepseek-v3.2.json", "max-model-len: 8192\nmax-num-seqs: 64\nkv-pages: 4000\n", 1024},
               {"tests/data/configs/deepseek-v3.2.json", "max-model-len: 8192\nmax-num-seqs: 2\nkv-pages: 4000\n", 256},
               {"tests/data/configs/deepseek-v3.2.json", "max-model-len: 8192\nkv-pages: 4000\nkv-cache-dtype: bf16\n", 0}};
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    editable e = edit_plan(CASES[i].config, CASES[i].deploy);
    uint32_t found = 0;
    for (uint32_t op = 0; op < e.h->ops.count; op++) found += e.ops[op].kernel == OP_kv_widen;
    assert_int_equal(e.h->limits.expand_pages, CASES[i].pages);
    assert_int_equal(found, CASES[i].pages ? e.h->model.layers : 0);
    if (found) assert_int_equal(find_buffer(&e, "layer 0 widened")->bytes,
                                CASES[i].pages * UINT64_C(128) * (e.h->model.kv_lora_rank + e.h->model.rope_dim));
    free(e.file.bytes);
  }
}

/* By the estimates: tiles times the rows each one sees, against the whole context. A single token is never worth dequantizing its own
 * context. */
static void the_cheaper_way_is_taken(void **state) {
  static const struct {
    uint32_t heads, topk, tiles, tokens;
    bool widens;
  } CASES[] = {{128, 2048, 4096, 8192, true}, {128, 2048, 4096, 65536, true}, {128, 2048, 160, 65536, true}, {128, 2048, 159, 65536, false},
               {128, 2048, 5, 2048, true},    {128, 2048, 1, 1, false},       {128, 2048, 4, 2048, false},   {64, 2048, 287, 65536, false},
               {64, 2048, 288, 65536, true},  {128, 0, 2, 100000, true},      {128, 0, 1, 100000, false},    {512, 0, 1, 64, false},
               {16, 64, 2, 64, false},        {128, 2048, UINT32_MAX, UINT32_MAX, true}};
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    const plan_model model = {.heads = CASES[i].heads};
    const plan_quant quant = {.index_topk = CASES[i].topk};
    assert_int_equal(plan_widens(&model, &quant, CASES[i].tiles, CASES[i].tokens) != 0, CASES[i].widens);
  }
}

/* === Windows of rows ==================================================================================================== */

/* Every row of a step gets its index list exactly once, and the scores fit the space they may use. */
static void long_scores_are_cut(void **state) {
  (void)state;
  editable e = edit_plan("tests/data/configs/deepseek-v3.2.json",
                         "max-num-seqs: 8\nmax-num-batched-tokens: 8192\nmax-model-len: 163840\nkv-pages: 4000\n");
  uint32_t next = 0, pieces = 0;
  assert_true(find_buffer(&e, "layer 5 index_scores")->bytes <= UINT64_C(256) << 20);
  for (uint32_t i = 0; i < e.h->ops.count; i++) {
    const index_topk_args *a = args_of(&e, &e.ops[i]);
    if (e.ops[i].kernel != OP_index_topk || e.ops[i].layer != 5 || a->row_first != next) continue;
    assert_int_equal(e.ops[i].rows_min, next + 1);
    next += a->row_count;
    pieces++;
  }
  assert_true(next >= 8192 && pieces == 21);
  free(e.file.bytes);
}

static void layers_that_share_have_no_ops(void **state) {
  static const uint32_t INDEXERS[] = {1, 0, 1, 0, 0};
  (void)state;
  editable e = edit_plan(SMALL, DEPLOY);
  uint32_t found[5] = {0};
  for (uint32_t i = 0; i < e.h->ops.count; i++)
    if (e.ops[i].kernel == OP_index_qk) found[e.ops[i].layer]++;
  assert_memory_equal(found, INDEXERS, sizeof found);
  assert_int_equal(find_buffer(&e, "index")->bytes, 2 * (uint64_t)e.h->limits.kv_pages * INDEX_PAGE_BYTES);
  assert_int_equal(find_buffer(&e, "index")->offset, e.h->io.index);
  free(e.file.bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_fault_is_caught), cmocka_unit_test(every_fault_of_widening_is_caught),
                                     cmocka_unit_test(every_fault_of_lists_that_are_one_chunk_is_caught),
                                     cmocka_unit_test(many_heads_read_widened_rows), cmocka_unit_test(the_cheaper_way_is_taken),
                                     cmocka_unit_test(long_scores_are_cut),
                                     cmocka_unit_test(layers_that_share_have_no_ops)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
