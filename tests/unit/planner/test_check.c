/* test_check.c - the verifier of plans: real plans pass, and each planted fault is reported as what it is. */
#include "tests/unit/unit.h"
#include "kernels_src/abi.h"
#include "planner/checks/check.h"
#include "planner/draft.h"
#include "planner/emit.h"
#include "tests/unit/plan/plan_faults.h"

#define TINY "tests/data/configs/tiny.json"

static editable open_editable(void) { return edit_plan(TINY, "max-num-batched-tokens: 512\nmax-model-len: 1024"); }

/* === Faults ============================================================================================================= */

static void two_live_buffers_overlap(editable *e) { find_buffer(e, "layer 1 attn_delta")->offset = find_buffer(e, "x")->offset; }
static void a_buffer_leaves_its_region(editable *e) { find_buffer(e, "x")->bytes += UINT64_C(1) << 40; }
static void a_buffer_is_too_short(editable *e) { find_buffer(e, "layer 0 qkv_a")->bytes -= 256; }
static void a_buffer_dies_early(editable *e) { find_buffer(e, "layer 0 q_latent")->last_op--; }
static void a_buffer_is_born_late(editable *e) { find_buffer(e, "layer 0 q")->first_op++; }
static void regions_overlap(editable *e) { e->regions[REGION_KV].offset -= 1u << 20; }

static void ops_are_swapped(editable *e) {
  plan_op *a = find_op(e, "layer 0 input_norm"), *b = find_op(e, "embed"), c = *a;
  *a = *b;
  *b = c;
}
static void a_producer_is_missing(editable *e) { /* the router's logits are never computed for small M */
  plan_op *op = find_op(e, "layer 1 router_logits") + 1;
  op->rows_min = op->rows_max;
}
static void half_of_a_row_is_missing(editable *e) { /* columns between the latent queries of the heads */
  ((gemm_args *)args_of(e, find_op(e, "layer 0 absorb")))->y_batch -= 8;
}
static void a_form_that_gathers_none_has_to(editable *e) {
  plan_op *few = find_op(e, "layer 1 experts gate_up") + 3, *many = few + 1;
  few->variant = many->variant;
  memcpy(few->grid, many->grid, sizeof few->grid);
}
static void alternatives_overlap(editable *e) { find_op(e, "layer 2 o_proj")->rows_max++; }
static void alternatives_leave_a_gap(editable *e) { find_op(e, "layer 2 o_proj")[1].rows_max--; }
static void split_and_whole_are_mixed_up(editable *e) {
  plan_op *whole = find_op(e, "layer 0 mla_attn");
  ((mla_attn_args *)args_of(e, whole))->slots_max = 1;
}
static void a_row_stride_is_wrong(editable *e) { ((qkv_rope_args *)args_of(e, find_op(e, "layer 3 qkv_rope")))->kv_in_stride += 8; }
static void a_dtype_is_wrong(editable *e) { ((gemm_args *)args_of(e, find_op(e, "layer 0 q_b")))->y_kind = Y_BF16; }
static void rows_are_too_many(editable *e) {
  plan_op *op = find_op(e, "layer 1 experts gate_up"); /* without row_token it reads a row of x for every pair */
  plan_fixup *last = &e->fixups[op->first_fixup + --op->fixup_count];
  *find_fixup(e, op, offsetof(moe_gemm_args, row_token)) = *last;
}
static void weights_are_shifted(editable *e) { find_fixup(e, find_op(e, "layer 1 o_proj"), offsetof(gemm_args, w))->offset += 256; }
static void a_tensor_is_too_short(editable *e) { e->tensors[3].row_count--; }
static void a_tensor_leaves_its_source(editable *e) { e->tensors[3].row0 = e->tensors[3].rows; }
static void tensors_overlap(editable *e) { e->tensors[1].offset = e->tensors[0].offset + 256; }
static void a_weight_is_not_read(editable *e) {
  plan_op *op = find_op(e, "layer 2 input_norm"); /* and its alternative for large M */
  for (int i = 0; i < 2; i++)
    find_fixup(e, op + i, offsetof(rmsnorm_args, weight))->offset = find_buffer(e, "layer 1 input_norm weight")->offset;
}
static void kv_of_another_layer(editable *e) { find_fixup(e, find_op(e, "layer 1 qkv_rope"), offsetof(qkv_rope_args, kv))->offset = 0; }
static void positions_for_sequences(editable *e) {
  find_fixup(e, find_op(e, "layer 0 qkv_rope"), offsetof(qkv_rope_args, seq))->offset = e->h->io.position;
}
static void the_step_is_elsewhere(editable *e) { find_fixup(e, find_op(e, "layer 0 qkv_rope"), 0)->offset += 256; }
static void a_result_goes_to_the_inputs(editable *e) {
  find_fixup(e, find_op(e, "sample"), offsetof(sample_args, result))->region = REGION_STEP;
}
static void an_op_writes_what_it_reads(editable *e) {
  plan_op *op = find_op(e, "layer 0 post_norm");
  *find_fixup(e, op, offsetof(rmsnorm_args, x_out)) = *find_fixup(e, op, offsetof(rmsnorm_args, delta));
  find_fixup(e, op, offsetof(rmsnorm_args, delta))->args_offset = offsetof(rmsnorm_args, x_out);
}
static void a_pointer_is_missing(editable *e) { find_op(e, "sample")->fixup_count--; }
static void a_grid_is_too_small(editable *e) { find_op(e, "row_digest")->grid[1].constant--; }
static void rows_lack_blocks(editable *e) { find_op(e, "layer 0 qkv_rope")[1].grid[0].cap = 511; }
static void a_batch_lacks_blocks(editable *e) { find_op(e, "layer 0 v_up")->grid[2].constant--; }
static void a_block_has_no_partner(editable *e) { find_op(e, "layer 0 mla_attn")->grid[0].cap = 131; }
static plan_op *find_sharing(editable *e) { /* chunks by clusters */
  plan_op *op = find_op(e, "layer 0 mla_attn");
  while (op->rows_max > 1) op++;
  return op;
}
static void a_cluster_is_short(editable *e) { find_sharing(e)->grid[0].constant--; }
static void a_cluster_has_other_shares(editable *e) { find_spec(e, find_sharing(e), "SPEC_SHARES")->value = 2; }
static void a_grid_is_too_large(editable *e) { find_op(e, "layer 0 mla_fold")->grid[1].constant = 65536; }
static void scratch_is_too_small(editable *e) { find_op(e, "layer 0 mla_attn")->grid[0].cap = 200; }
static void too_much_shared_memory(editable *e) { e->kernels[find_op(e, "layer 0 mla_attn")->variant].shared_bytes = 232449; }
static void threads_differ(editable *e) { e->kernels[0].threads = 64; }
static void the_numerics_id_is_wrong(editable *e) { e->h->limits.chunk_tokens = 128; }
static void a_layer_writes_no_kv(editable *e) {
  plan_op *op = find_op(e, "layer 2 qkv_rope");
  op[1].rows_max = 100;
}
static void a_product_is_left_out(editable *e) { ((qkv_rope_args *)args_of(e, find_op(e, "layer 2 qkv_rope")))->absorbs = 0; }
static void no_token_is_chosen(editable *e) { find_op(e, "sample")->rows_min = 2; }
static void a_variant_is_of_another_kernel(editable *e) { find_op(e, "embed")->variant = find_op(e, "sample")->variant; }
static void the_kv_pages_are_too_few(editable *e) { find_buffer(e, "kv")->bytes /= 2; }
static void a_heads_count_is_absurd(editable *e) { ((gemm_args *)args_of(e, find_op(e, "layer 0 absorb")))->batches = UINT32_MAX; }
static void a_size_overflows(editable *e) {
  moe_gemm_args *a = args_of(e, find_op(e, "layer 1 experts gate_up"));
  a->experts = a->n = a->k = 0xffffffc0u;
}
static void a_stage_has_no_memory(editable *e) { find_spec(e, find_op(e, "layer 0 q_b"), "SPEC_STAGES")->value++; }
static void a_cluster_is_cut(editable *e) {
  plan_op *op = find_op(e, "layer 1 experts gate_up");
  while (op->rows_max != e->h->limits.max_batch_tokens) op++;
  find_spec(e, op, "SPEC_CLUSTER")->value = 2;
  op->grid[1].constant = 3;
}
static void a_tile_is_unknown(editable *e) { find_spec(e, find_op(e, "layer 0 q_b"), "SPEC_TILE_ROWS")->value = 24; }
static void a_row_is_too_long(editable *e) { find_spec(e, find_op(e, "layer 0 input_norm"), "SPEC_HELD")->value = 0; }
static void kv_rows_of_lists(editable *e) { ((mla_attn_args *)args_of(e, find_op(e, "layer 0 mla_attn")))->list_max = 64; }
static void kv_rows_are_others(editable *e) { find_spec(e, find_op(e, "layer 0 mla_attn"), "SPEC_ROPE_DIM")->value = 32; }
static void pages_are_looked_for_elsewhere(editable *e) {
  ((qkv_rope_args *)args_of(e, find_op(e, "layer 0 qkv_rope")))->block_table_stride--;
}
static void pages_of_another_row_are_read(editable *e) {
  ((mla_attn_args *)args_of(e, find_op(e, "layer 0 mla_attn")))->block_table_stride--;
}
static void a_chunk_has_no_tokens(editable *e) { ((mla_attn_args *)args_of(e, find_op(e, "layer 0 mla_attn")))->chunk_tokens = 0; }
static void slots_are_none(editable *e) { ((mla_fold_args *)args_of(e, find_op(e, "layer 0 mla_fold")))->slots_max = 0; }
static void another_eps(editable *e) { ((rmsnorm_args *)args_of(e, find_op(e, "layer 0 input_norm")))->eps *= 2; }
static void another_scale(editable *e) { ((mla_attn_args *)args_of(e, find_op(e, "layer 0 mla_attn")))->scale_log2 *= 2; }
static void another_choice_of_experts(editable *e) { ((router_args *)args_of(e, find_op(e, "layer 1 router")))->top_groups++; }
static void a_bias_is_left_out(editable *e) {
  find_fixup(e, find_op(e, "layer 1 router"), offsetof(router_args, bias))->args_offset = 0;
}
static void groups_do_not_divide(editable *e) { ((router_args *)args_of(e, find_op(e, "layer 1 router")))->groups++; }
static void more_sequences_than_logits_rows(editable *e) { e->h->limits.max_seqs = e->h->limits.max_logit_rows + 1; }
static void nothing_waits_for_the_side(editable *e) {
  for (uint32_t i = 0; i < e->h->ops.count; i++)
    if (e->ops[i].branch == BRANCH_JOIN) e->ops[i].branch = BRANCH_MAIN;
}
static void branches_share_a_buffer(editable *e) { find_op(e, "layer 1 moe_sort")->branch = BRANCH_SIDE; }
static void a_buffer_is_free_beside_the_side(editable *e) {
  plan_buffer *b = find_buffer(e, "layer 1 shared gate_up");
  while (b->last_op > 0 && e->ops[b->last_op].branch != BRANCH_SIDE) b->last_op--;
}
static void the_side_writes_pages(editable *e) { find_op(e, "layer 1 qkv_rope")->branch = BRANCH_SIDE; }
static void a_branch_is_unknown(editable *e) { find_op(e, "layer 1 router")->branch = 3; }
static void an_op_has_branches_and_an_order(editable *e) {
  plan_op *op = find_op(e, "layer 1 router_logits");
  op[0].rows_max++;
  op[1].rows_min++;
}
static void an_op_comes_too_early(editable *e) { ((gemm_args *)args_of(e, find_op(e, "layer 1 shared down")))->order = ORDER_CHAIN; }
static void an_op_starts_beside_its_own_branch(editable *e) { find_op(e, "layer 1 shared down")->branch = BRANCH_MAIN; }
static void an_order_is_unknown(editable *e) { ((gemm_args *)args_of(e, find_op(e, "layer 0 o_proj")))->order = 3; }
static void the_routing_may_be_incomplete(editable *e) { find_op(e, "layer 1 experts down")->branch = BRANCH_SIDE; }
static void tiles_are_too_large(editable *e) { e->h->limits.attn_tile_tokens *= 2; }

static void partial_results_are_fewer(editable *e) { ((mla_fold_args *)args_of(e, find_op(e, "layer 1 mla_fold")))->slots_max = 1; }
static void places_are_taken_for_experts(editable *e) { /* tables of equal rows */
  find_fixup(e, find_op(e, "layer 1 experts gate_up"), offsetof(moe_gemm_args, row_token))->offset =
      find_fixup(e, find_op(e, "layer 2 input_norm"), offsetof(rmsnorm_args, pair_row))->offset;
}
static void logits_for_tokens(editable *e) { ((gemm_args *)args_of(e, find_op(e, "lm_head")))->rows_kind = ROWS_TOKENS; }
static void rows_are_stored_unaligned(editable *e) { ((gemm_args *)args_of(e, find_op(e, "layer 0 q_b")))->ldy += 1; }
static void blocks_fold_twice(editable *e) { find_op(e, "layer 0 mla_fold")->grid[1].constant = 2; }
static void a_layer_writes_anothers_kv(editable *e) {
  for (plan_op *op = find_op(e, "layer 2 qkv_rope"); strcmp(text(e, op->name), "layer 2 qkv_rope") == 0; op++) {
    op->layer = 1;
    find_fixup(e, op, offsetof(qkv_rope_args, kv))->offset =
        find_fixup(e, find_op(e, "layer 1 qkv_rope"), offsetof(qkv_rope_args, kv))->offset;
  }
}
static void the_side_is_waited_for_at_times(editable *e) { /* the last alternative no longer joins the others */
  plan_op *op = find_op(e, "layer 2 input_norm");
  assert_int_equal(op->branch, BRANCH_JOIN);
  op[1].branch = BRANCH_MAIN;
}

static void set_quant(editable *e, plan_quant quant) { /* so that the id is not the reason */
  e->h->quant = quant;
  emit_numerics_id(&e->h->model, &e->h->quant, &e->h->grouped, &e->h->limits, e->h->numerics_id);
}
static void a_choice_has_no_indexer(editable *e) { set_quant(e, (plan_quant){.index_topk = 64}); }
static void more_tokens_stay_than_may(editable *e) { set_quant(e, (plan_quant){.index_heads = 16, .index_topk = 4096}); }
static void an_indexer_has_48_heads(editable *e) { set_quant(e, (plan_quant){.index_heads = 48, .index_topk = 64}); }
static void the_first_layer_shares(editable *e) {
  set_quant(e, (plan_quant){.index_heads = 16, .index_topk = 64, .index_shared = {1}});
}
static void a_layer_behind_the_last_shares(editable *e) {
  set_quant(e, (plan_quant){.index_heads = 16, .index_topk = 64, .index_shared = {0, 1}});
}
static void weights_have_no_format(editable *e) { set_quant(e, (plan_quant){.weight_format = 2}); }
static void bf16_has_scales(editable *e) { set_quant(e, (plan_quant){.act_scale = SCALE_POW2}); }
static void pages_have_no_format(editable *e) { set_quant(e, (plan_quant){.kv_format = 3}); }
static void bf16_pages_have_scales(editable *e) { set_quant(e, (plan_quant){.kv_scale = SCALE_POW2}); }
static void the_id_forgets_the_format(editable *e) { e->h->quant.kv_format = KV_FP8; }
/* The header as of a model of 4 heads of 128 columns that share 2 pairs of keys and values. */
static void set_grouped(editable *e, plan_grouped grouped, uint32_t columns) {
  plan_model *m = &e->h->model;
  if (grouped.kv_heads) m->kv_lora_rank = m->q_lora_rank = 0, m->rope_dim = 64, m->nope_dim = columns - 64, m->v_dim = columns;
  e->h->grouped = grouped;
  set_quant(e, e->h->quant);
}
static void a_latent_model_has_biases(editable *e) { set_grouped(e, (plan_grouped){.has_bias = 1}, 0); }
static void a_latent_model_rotates_less(editable *e) { set_grouped(e, (plan_grouped){.unrotated = {0, 1}}, 0); }
static void kv_heads_do_not_divide(editable *e) { set_grouped(e, (plan_grouped){.kv_heads = 3}, 128); }
static void kv_heads_are_more(editable *e) { set_grouped(e, (plan_grouped){.kv_heads = 8}, 128); }
static void heads_are_wide(editable *e) { set_grouped(e, (plan_grouped){.kv_heads = 2}, 272); }
static void heads_are_uneven(editable *e) { set_grouped(e, (plan_grouped){.kv_heads = 2}, 120); }
static void a_norm_is_unknown(editable *e) { set_grouped(e, (plan_grouped){.kv_heads = 2, .qk_norm = 3}, 128); }
static void norms_are_unknown(editable *e) { set_grouped(e, (plan_grouped){.kv_heads = 2, .norms = 3}, 128); }
static void a_bias_is_unknown(editable *e) { set_grouped(e, (plan_grouped){.kv_heads = 2, .has_bias = 8}, 128); }
static void a_layer_behind_the_last_rotates_nothing(editable *e) {
  set_grouped(e, (plan_grouped){.kv_heads = 2, .unrotated = {UINT64_C(1) << e->h->model.layers}}, 128);
}
static void values_are_narrower(editable *e) {
  set_grouped(e, (plan_grouped){.kv_heads = 2}, 128);
  e->h->model.v_dim = 64;
  set_quant(e, e->h->quant);
}
static void a_gate_has_no_expert(editable *e) {
  e->h->model.shared_experts = 0;
  set_grouped(e, (plan_grouped){.kv_heads = 2, .shared_gate = 1}, 128);
}
static void grouped_heads_have_an_indexer(editable *e) {
  set_grouped(e, (plan_grouped){.kv_heads = 2}, 128);
  set_quant(e, (plan_quant){.index_heads = 16, .index_topk = 64});
}
static void grouped_heads_have_a_latent(editable *e) {
  set_grouped(e, (plan_grouped){.kv_heads = 2}, 128);
  e->h->model.kv_lora_rank = 512;
  set_quant(e, e->h->quant);
}
static void a_scaled_tensor_is_no_bf16(editable *e) {
  plan_tensor *t = (plan_tensor *)(void *)((char *)e->h + e->h->tensors.offset);
  t->scale_name = t->name, t->dtype = DTYPE_E4M3;
}
static void a_tensor_has_an_unknown_type(editable *e) {
  ((plan_tensor *)(void *)((char *)e->h + e->h->tensors.offset))->dtype = 3;
}
static void a_step_has_no_tokens(editable *e) { e->h->limits.max_batch_tokens = 0; }

static const plan_fault FAULTS[] = {
    FAULT(a_form_that_gathers_none_has_to, "gathers none"),
    FAULT(two_live_buffers_overlap, "overlap while both are alive"),
    FAULT(a_buffer_leaves_its_region, "inside its region"),
    FAULT(a_buffer_is_too_short, "beyond the end"),
    FAULT(a_buffer_dies_early, "no buffer that is alive"),
    FAULT(a_buffer_is_born_late, "no buffer that is alive"),
    FAULT(regions_overlap, "region"),
    FAULT(ops_are_swapped, "no buffer that is alive"),
    FAULT(a_producer_is_missing, "before anything is written"),
    FAULT(half_of_a_row_is_missing, "before they are written"),
    FAULT(alternatives_overlap, "alternatives of op"),
    FAULT(alternatives_leave_a_gap, "before anything is written"),
    FAULT(split_and_whole_are_mixed_up, "null"),
    FAULT(a_row_stride_is_wrong, "row stride"),
    FAULT(a_dtype_is_wrong, "type"),
    FAULT(rows_are_too_many, "more rows"),
    FAULT(weights_are_shifted, "beyond the end"),
    FAULT(a_tensor_is_too_short, "no tensor fills"),
    FAULT(a_tensor_leaves_its_source, "slice of its source"),
    FAULT(tensors_overlap, "overlaps another"),
    FAULT(a_weight_is_not_read, "no op reads"),
    FAULT(kv_of_another_layer, "another layer's KV"),
    FAULT(positions_for_sequences, "another table"),
    FAULT(the_step_is_elsewhere, "does not read the step"),
    FAULT(a_result_goes_to_the_inputs, "wrong region"),
    FAULT(an_op_writes_what_it_reads, NULL),
    FAULT(a_pointer_is_missing, "null"),
    FAULT(a_grid_is_too_small, "does not cover"),
    FAULT(rows_lack_blocks, "does not cover"),
    FAULT(a_batch_lacks_blocks, "does not cover"),
    FAULT(a_cluster_is_cut, "whole clusters"),
    FAULT(a_block_has_no_partner, "without a partner"),
    FAULT(a_cluster_is_short, "without a partner"),
    FAULT(a_cluster_has_other_shares, "rows by 512 threads"),
    FAULT(a_grid_is_too_large, "larger than a GPU"),
    FAULT(scratch_is_too_small, "writes over what it uses"),
    FAULT(too_much_shared_memory, "shared memory"),
    FAULT(threads_differ, "threads"),
    FAULT(the_numerics_id_is_wrong, "numerics id"),
    FAULT(the_id_forgets_the_format, "numerics id"),
    FAULT(a_choice_has_no_indexer, "index_topk"),
    FAULT(more_tokens_stay_than_may, "index_topk"),
    FAULT(an_indexer_has_48_heads, "no power of two"),
    FAULT(the_first_layer_shares, "index_shared"),
    FAULT(a_layer_behind_the_last_shares, "index_shared"),
    FAULT(weights_have_no_format, "weight_format"),
    FAULT(bf16_has_scales, "act_scale"),
    FAULT(pages_have_no_format, "kv_format"),
    FAULT(bf16_pages_have_scales, "kv_scale"),
    FAULT(a_latent_model_has_biases, "fields of grouped heads"),
    FAULT(a_latent_model_rotates_less, "fields of grouped heads"),
    FAULT(kv_heads_do_not_divide, "heads % kv_heads"),
    FAULT(kv_heads_are_more, "kv_heads is 8"),
    FAULT(heads_are_wide, "nope_dim + rope_dim is 272"),
    FAULT(heads_are_uneven, "% 16"),
    FAULT(values_are_narrower, "v_dim is 64"),
    FAULT(a_norm_is_unknown, "qk_norm"),
    FAULT(norms_are_unknown, "norms is 3"),
    FAULT(a_bias_is_unknown, "has_bias"),
    FAULT(a_gate_has_no_expert, "shared_gate"),
    FAULT(a_layer_behind_the_last_rotates_nothing, "unrotated"),
    FAULT(grouped_heads_have_an_indexer, "index_heads"),
    FAULT(grouped_heads_have_a_latent, "kv_lora_rank + q_lora_rank"),
    FAULT(a_scaled_tensor_is_no_bf16, "has scales"),
    FAULT(a_tensor_has_an_unknown_type, "slice of its source"),
    FAULT(a_layer_writes_no_kv, "before anything is written to it"),
    FAULT(no_token_is_chosen, "leaves something out"),
    FAULT(a_variant_is_of_another_kernel, "names no kernel"),
    FAULT(the_kv_pages_are_too_few, "alive"),
    FAULT(a_heads_count_is_absurd, NULL),
    FAULT(a_size_overflows, NULL),
    FAULT(a_stage_has_no_memory, "of shared memory and uses"),
    FAULT(a_tile_is_unknown, "no tile"),
    FAULT(a_row_is_too_long, "does not keep a row"),
    FAULT(a_product_is_left_out, "another number of products"),
    FAULT(kv_rows_are_others, "other KV rows"), FAULT(kv_rows_of_lists, "or of other tokens"),
    FAULT(pages_are_looked_for_elsewhere, "block_table_stride"),
    FAULT(pages_of_another_row_are_read, "block_table_stride"),
    FAULT(a_chunk_has_no_tokens, "chunk_tokens"),
    FAULT(slots_are_none, "null"),
    FAULT(another_eps, "eps"),
    FAULT(another_scale, "scale_log2"),
    FAULT(another_choice_of_experts, "top_groups"),
    FAULT(groups_do_not_divide, "groups"),
    FAULT(a_bias_is_left_out, "presence of a bias"),
    FAULT(more_sequences_than_logits_rows, "max_logit_rows"),
    FAULT(tiles_are_too_large, "attn_tile_tokens"),
    FAULT(nothing_waits_for_the_side, "another branch runs beside it"),
    FAULT(branches_share_a_buffer, "may run beside each other"),
    FAULT(a_buffer_is_free_beside_the_side, "is not alive while"),
    FAULT(the_side_writes_pages, "more than weights and activations"),
    FAULT(a_branch_is_unknown, "no branch"),
    FAULT(an_op_has_branches_and_an_order, "has branches"),
    FAULT(an_op_comes_too_early, "starts beside the one before it"),
    FAULT(an_op_starts_beside_its_own_branch, "starts beside the one before it"),
    FAULT(an_order_is_unknown, "has order 3"),
    FAULT(the_routing_may_be_incomplete, "reads the routing early"),
    FAULT(partial_results_are_fewer, "slots_max"),
    FAULT(places_are_taken_for_experts, "row stride or type"),
    FAULT(logits_for_tokens, "rows_kind"),
    FAULT(rows_are_stored_unaligned, "ldy"),
    FAULT(blocks_fold_twice, "below x"),
    FAULT(a_layer_writes_anothers_kv, "written twice"),
    FAULT(the_side_is_waited_for_at_times, "joins the side branch"),
    FAULT(a_step_has_no_tokens, "max_batch_tokens is 0"),
};

static void every_planted_fault_is_caught(void **state) {
  (void)state;
  check_faults(open_editable(), FAULTS, ARRAY_LEN(FAULTS));
}

/* Under fast-prefill. */
static mla_expand_args *expand_of(const editable *e) { return args_of(e, find_op(e, "layer 1 mla_expand")); }
static mla_prefill_args *prefill_of(const editable *e) { return args_of(e, find_op(e, "layer 1 mla_prefill")); }
static void the_piece_is_too_large(editable *e) { expand_of(e)->piece_pages++; }
static void a_piece_is_not_the_first(editable *e) { prefill_of(e)->piece = 1; }
static void columns_of_k_are_fewer(editable *e) { prefill_of(e)->nope_dim -= 8; }
static void queries_lie_elsewhere(editable *e) { prefill_of(e)->q_rope_stride += 8; }
static void prompts_take_the_counts_of_all(editable *e) { find_fixup(e, find_op(e, "layer 1 mla_prefill"), 0)->offset = e->h->io.step; }
static void prompts_take_the_others_tiles(editable *e) {
  find_fixup(e, find_op(e, "layer 1 mla_prefill"), offsetof(mla_prefill_args, tiles))->offset = e->h->io.tiles;
}
static void made_tokens_have_no_values(editable *e) {
  for (uint32_t i = 0; i < e->h->ops.count; i++)
    if (strcmp(text(e, e->ops[i].name), "layer 1 v_up") == 0) e->ops[i].rows_kind = ROWS_PROMPT;
}
static void prompts_have_no_values(editable *e) { find_op(e, "layer 1 mla_prefill")->rows_min = 2; }
static void the_cut_is_of_the_whole_step(editable *e) { /* so that a step with prompts may have none */
  plan_op *op = find_op(e, "attn_cut");
  op->rows_kind = ROWS_TOKENS;
  find_fixup(e, op, 0)->offset = e->h->io.step;
}
static void the_form_is_built_for_other_heads(editable *e) {
  find_spec(e, find_op(e, "layer 1 mla_prefill"), "SPEC_V_DIM")->value = 128;
}
static void the_parity_is_unknown(editable *e) { e->h->limits.parity = 2; }

static const plan_fault FAST_FAULTS[] = {
    FAULT(the_piece_is_too_large, NULL),
    FAULT(a_piece_is_not_the_first, "piece"),
    FAULT(columns_of_k_are_fewer, NULL),
    FAULT(queries_lie_elsewhere, NULL),
    FAULT(prompts_take_the_counts_of_all, "does not read the step"),
    FAULT(prompts_take_the_others_tiles, "another table"),
    FAULT(made_tokens_have_no_values, NULL),
    FAULT(prompts_have_no_values, "before anything is written"),
    FAULT(the_cut_is_of_the_whole_step, "before anything is written"),
    FAULT(the_form_is_built_for_other_heads, "other rows"),
    FAULT(the_parity_is_unknown, NULL),
};

static void every_fault_of_fast_prefill_is_caught(void **state) {
  (void)state;
  check_faults(edit_plan(TINY, "max-num-batched-tokens: 512\nmax-model-len: 1024\nparity: fast-prefill\n"), FAST_FAULTS,
               ARRAY_LEN(FAST_FAULTS));
}

/* The same over KV rows that are dequantized piece by piece. */
static plan_op *widen_op(const editable *e) { return find_op(e, "layer 1 kv_widen"); }
static kv_widen_args *widen_of(const editable *e) { return args_of(e, widen_op(e)); }
static void coded_rows_are_expanded(editable *e) {
  const plan_fixup *rows = find_fixup(e, widen_op(e), offsetof(kv_widen_args, kv));
  plan_fixup *read = find_fixup(e, find_op(e, "layer 1 mla_expand"), offsetof(mla_expand_args, kv));
  read->region = rows->region, read->offset = rows->offset;
}
static void no_rows_are_dequantized(editable *e) { widen_op(e)->rows_min = 2; }
static void rows_of_another_layer(editable *e) { find_fixup(e, widen_op(e), offsetof(kv_widen_args, kv))->offset = e->h->io.history; }
static void more_pages_are_dequantized(editable *e) { widen_of(e)->pages_max++; }
static void another_piece_is_dequantized(editable *e) { widen_of(e)->piece = 1; }
static void all_contexts_are_dequantized(editable *e) { find_spec(e, widen_op(e), "SPEC_PIECES")->value = 0; }
static void rows_are_looked_up(editable *e) { find_spec(e, find_op(e, "layer 1 mla_expand"), "SPEC_PIECES")->value = 0; }
static void a_table_of_pages_is_written(editable *e) {
  find_fixup(e, widen_op(e), offsetof(kv_widen_args, y))->args_offset = offsetof(kv_widen_args, table);
}
static void the_state_is_written_over(editable *e) { /* by the next piece's rows: after those of this piece it is alive as they were */
  const plan_buffer *rows = find_buffer(e, "layer 1 widened");
  plan_buffer *state = find_buffer(e, "layer 1 prefill_state");
  state->offset = rows->offset, state->first_op = rows->last_op + 1;
  find_fixup(e, find_op(e, "layer 1 mla_prefill"), offsetof(mla_prefill_args, state))->offset = rows->offset;
}
static void the_cache_is_bf16(editable *e) {
  e->h->quant.kv_format = KV_BF16, e->h->quant.kv_scale = SCALE_F32;
  emit_numerics_id(&e->h->model, &e->h->quant, &e->h->grouped, &e->h->limits, e->h->numerics_id);
}

static const plan_fault CODED_FAULTS[] = {
    FAULT(coded_rows_are_expanded, "wrong region"),
    FAULT(no_rows_are_dequantized, "before anything is written"),
    FAULT(rows_of_another_layer, NULL),
    FAULT(more_pages_are_dequantized, NULL),
    FAULT(another_piece_is_dequantized, "piece is 1"),
    FAULT(all_contexts_are_dequantized, "piece by piece"),
    FAULT(rows_are_looked_up, "piece by piece"),
    FAULT(a_table_of_pages_is_written, "null"),
    FAULT(the_state_is_written_over, "every piece of the contexts"),
    FAULT(the_cache_is_bf16, NULL),
};

static void every_fault_of_coded_prompts_is_caught(void **state) {
  (void)state;
  check_faults(edit_plan("tests/oracle/small-v3-fp8.json", "max-num-batched-tokens: 256\nmax-model-len: 512\nparity: fast-prefill\n"
                         "kv-cache-dtype: fp8_ds_mla\n"), CODED_FAULTS, ARRAY_LEN(CODED_FAULTS));
}

static void real_plans_pass(void **state) {
  (void)state;
  static const char *const PATHS[] = {TINY, "tests/data/configs/deepseek-v2-lite.json", "tests/data/configs/moonlight.json"};
  for (size_t i = 0; i < ARRAY_LEN(PATHS); i++) {
    fixture_bytes file = fixture_plan(PATHS[i], NULL, NULL);
    assert_int_equal(check_plan(file.bytes, file.count), OK);
    free(file.bytes);
  }
}

/* The only allowed overlap is the residual addition in place; the control is an_op_writes_what_it_reads. */
static void truncated_plans_are_refused(void **state) {
  (void)state;
  editable e = open_editable();
  const size_t end = e.h->strings.offset + e.h->strings.count; /* notes follow, which the check ignores */
  for (size_t bytes = 0; bytes < end; bytes += 509) {
    fail_clear();
    assert_int_equal(check_plan(e.file.bytes, bytes), ERR_FORMAT);
  }
  free(e.file.bytes);
}

/* Work that grows with the square of a table is refused before it is done. */
static void a_plan_of_any_size_gets_its_verdict(void **state) {
  (void)state;
  enum { MORE = 27u << 17 };
  fixture_bytes file = fixture_plan(TINY, NULL, NULL);
  char *larger = calloc(1, file.count + MORE);
  assert_non_null(larger);
  memcpy(larger, file.bytes, file.count);
  plan_header *h = (void *)larger;
  assert_int_equal(check_plan(larger, file.count + MORE), OK);
  const plan_span sound = h->buffers;
  h->buffers = (plan_span){.offset = align_up(file.count, 8), .count = 20000, .item_bytes = sizeof(plan_buffer)};
  fail_clear();
  assert_int_equal(check_plan(larger, file.count + MORE - 8), ERR_LIMIT);
  h->buffers = sound;
  h->ops = (plan_span){.offset = align_up(file.count, 8), .count = 30000, .item_bytes = sizeof(plan_op)};
  plan_op *ops = (void *)(larger + h->ops.offset);
  const plan_op *first = (const void *)(file.bytes + ((plan_header *)(void *)file.bytes)->ops.offset);
  for (uint32_t i = 0; i < h->ops.count; i++) { /* the embedding repeated, under many row ranges */
    ops[i] = *first;
    ops[i].rows_min = ops[i].rows_max = 1 + i % 56;
    ops[i].rows_kind = i % 2;
    ops[i].fixup_count = 0;
    ops[i].name = i % 3;
  }
  fail_clear();
  status result = check_plan(larger, file.count + MORE);
  if (result != ERR_LIMIT) fail_msg("code %d, \"%s\"", result, fail_text());
  free(larger);
  free(file.bytes);
}

/* Random damage to any byte ends in a verdict, never in a crash (the sanitizers notice one). */
static void random_damage_never_crashes(void **state) {
  (void)state;
  editable e = open_editable();
  uint32_t seed = 1, refused = 0;
  for (uint32_t round = 0; round < 400; round++) {
    seed = seed * 1664525u + 1013904223u;
    size_t at = seed % e.file.count;
    char kept = e.file.bytes[at];
    e.file.bytes[at] = (char)(kept ^ (1 << (seed >> 29)));
    fail_clear();
    refused += check_plan(e.file.bytes, e.file.count) != OK;
    e.file.bytes[at] = kept;
  }
  assert_true(refused > 100);
  free(e.file.bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(real_plans_pass),
      cmocka_unit_test(every_planted_fault_is_caught),
      cmocka_unit_test(every_fault_of_fast_prefill_is_caught),
      cmocka_unit_test(every_fault_of_coded_prompts_is_caught),
      cmocka_unit_test(truncated_plans_are_refused),
      cmocka_unit_test(random_damage_never_crashes),
      cmocka_unit_test(a_plan_of_any_size_gets_its_verdict),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
