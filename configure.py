#!/usr/bin/env python3
"""Writes build.ninja, the one description of how Verbatim is built.

Run without arguments it rewrites the committed build.ninja byte for byte (tests/unit/test_build.py checks that). With
arguments it writes <builddir>/build.ninja instead, so that another compiler never touches the committed file:

  ./configure.py --cc clang --builddir build/clang && ninja -f build/clang/build.ninja tests

Every source is listed by hand: a file that is in the tree but not here fails tools/tidy.py. Read next: STYLE.md.
"""
import argparse
import os
import re
import sys

# === Sources ================================================================================================================

ENGINE = """
added_tokens arena audit audit_inputs audit_machine audit_source bench bench_cost bench_fill bench_model bench_ops bench_step bpe chat
chat_deepseek chat_dsml chat_glm chat_kimi chat_message chat_text detokenizer diff_receipt diff_requests diff_trace diff_values digest
digest_avx2 dynlib eval_answer eval_ask eval_items eval_manifest eval_margin eval_metric eval_prompt eval_report eval_report_data
eval_report_figure eval_report_items eval_report_style eval_report_text eval_results eval_task eval_yaml exec exec_bench exec_library
exec_start fail gemm_lt gpu guarantee items jit json_line kernels nonfinite op_maps pages plan points pretokenize receipt receipt_compare
receipt_read receipt_resume request safetensors schedule schedule_pages score_items score_report score_tokens self_check self_check_cases
self_check_cases_fp8 self_check_cases_index special_file spelling split_automaton split_pattern split_program staging stop_ids stop_text
tokenizer tokenizer_json tokenizer_tiktoken trace_reader trace_writer transcript trig verbatim watch weights weights_e4m3 weights_tree
""".split()

CPU = """
act_quant adjust attn_cut cpu_isa cpu_pool embed fp8_gemm fp8_moe_gemm gemm h16 h16_avx2 h16_avx512 h16_portable h32 h32_avx2 h32_avx512
h32_portable index_qk index_score index_topk kv_widen mla_attn mla_expand mla_fold mla_prefill moe_gemm moe_sort qkv_rope rmsnorm router
row_digest sample scaled
""".split()

PLANNER = """
check check_access check_branches check_values config_field config_index config_quant config_rope deploy_config draft emit flat_yaml graph
graph_add graph_attention graph_feed graph_index graph_product guarantees model_config place planner print profile rope specialise
""".split()

# The program: everything above is libverbatim.a, these sit on top of it.
PROGRAM = """
cli_audit cli_bench cli_bench_report cli_bench_tax cli_calibrate cli_compare cli_config cli_config_keys cli_copy cli_diff cli_digest
cli_doctor cli_doctor_machine cli_doctor_model cli_doctor_report cli_engine cli_eval cli_eval_pass cli_eval_perturb cli_eval_run
cli_eval_tasks cli_files cli_lines cli_make cli_options cli_output cli_plan cli_probe cli_probe_gpu cli_replay cli_roofline cli_run
cli_sampling cli_score cli_serve cli_show cli_stats cli_terms cli_trace cli_verify main
""".split()

# Of the program, the server: with libmicrohttpd, which nothing else needs.
SERVER = """
serve_ask serve_door serve_epoll serve_fields serve_http serve_info serve_links serve_metrics serve_params serve_part serve_queue
serve_reply serve_text serve_tls serve_tokens serve_work
""".split()

# Texts compiled into the program by tools/embed.py and handed to NVRTC at run time.
KERNEL_TEXTS = """
abi.h abi_attn.h abi_fp8.h abi_index.h act_quant.cu adjust.cu attn_cut.cu attn_cut.h attn_pieces.cuh attn_scores.cuh contexts.h
decode_gather.cuh decode_layout.cuh decode_outputs.cuh decode_scores.cuh decode_state.cuh embed.cu few.cuh few_deal.cuh few_plain.cuh
few_scaled.cuh fold_lift.cuh fp8_gemm.cu fp8_gemm_few.cuh fp8_gemm_many.cuh fp8_moe_gemm.cu fp8_moe_gemm_few.cuh fp8_moe_gemm_many.cuh
gemm.cu gemm_few.cuh gemm_many.cuh gemm_tiles.cuh index_qk.cu index_score.cu index_tiles.cuh index_topk.cu kv_codes.cuh kv_widen.cu
list_rows.cuh many.cuh many_plain.cuh many_scaled.cuh many_store.cuh mla_attn.cu mla_decode.cuh mla_expand.cu mla_fold.cu mla_pair.cuh
mla_prefill.cu mla_spread.cuh mla_turn.cuh moe_gemm.cu moe_gemm_few.cuh moe_gemm_many.cuh moe_sort.cu moe_tiles.cuh num.h pair_copy.cuh
pair_gather.cuh pair_layout.cuh pair_outputs.cuh pair_rows.cuh pair_scores.cuh pair_state.cuh ptx.cuh ptx_boxes.cuh ptx_multiply.cuh
ptx_numbers.cuh qkv_absorb.cuh qkv_rope.cu reduce.cuh rmsnorm.cu rmsnorm_many.cuh router.cu row_digest.cu sample.cu spread_keys.cuh
spread_layout.cuh spread_outputs.cuh spread_scores.cuh spread_values.cuh step.h tensor_map.h turn_codes.cuh turn_copy.cuh turn_layout.cuh
turn_outputs.cuh turn_rows.cuh turn_scores.cuh
""".split()

# Profiles of GPUs, compiled in likewise.
PROFILES = ["nvidia-h200"]

# The schedule fuzzer: build/schedule_fuzz, and what tests/e2e/test_schedules.c has of it.
SCHEDULE_FUZZ = ["tests/schedule/%s.c" % name for name in "ask case draw fuzz models run shrink trial".split()]
SCHEDULE_FUZZ_MAIN = ["tests/schedule/schedule_fuzz.c", "engine/cli_options.c"]

# Shows how a program embeds the library: built from the public header and the shared library alone.
EXAMPLE = "tests/examples/embed.c"

# tools/<name>.c -> build/<name>
TOOLS = """
cpu_speed random_model tokenizer_ids
""".split()

# tests/<folder>/test_<name>.c -> build/tests/test_<name> and build/san/tests/test_<name>
TESTS = {
    "unit": """
arena audit_inputs bench_cost bpe chat check check_sparse cli_compare cli_config cli_doctor cli_roofline cli_stats cli_trace
config_quant config_rope cpu_pool cuda_api damage deploy_config detokenizer diff_receipt diff_trace diff_values digest dynlib
eval_answer eval_items eval_manifest eval_margin eval_metric eval_report eval_results eval_task fail flat_yaml gpu_driver
guarantee h16 h32 items jit model_config num pages place plan planner planner_attention points pretokenize profile receipt receipt_read
request residual safetensors schedule schedule_pages schedule_random score_items score_report score_tokens self_check serve_ask serve_door
serve_info serve_metrics serve_queue serve_reply serve_stream split_automaton stop_text tokenizer tokenizer_json
tokenizer_tiktoken trace_file transcript trig weights weights_scaled
""".split(),
    "kernel": """
act_quant adjust attn_cut embed fp8_gemm fp8_moe_gemm gemm index_qk index_score index_topk kv_widen mla_attn mla_expand
mla_fold mla_prefill moe_gemm moe_sort qkv_rope rmsnorm router row_digest sample
""".split(),
    "e2e": """
audit bench calibrate checkpoint cli control diff engines eval fault frozen golden hostile invariance invariance_sparse nonfinite oracle
prefill requests schedules score scoring serve serve_bodies sparse start_check trace verify weights_tree widen
""".split(),
}

# tests/gpu/test_<name>.c -> build/gpu_tests/test_<name>; they print SKIPPED where there is no GPU.
GPU_TESTS = """
gpu library
""".split()

# Sources that tests need beside their own: folder of tests/ or name of a test -> paths.
FORCE_ISA = "tests/kernel/force_isa.c"
RUN_COMMAND = ["engine/cli_%s.c" % name for name in "run engine files lines options output sampling stats terms trace".split()]
SERVE_BODIES = ["engine/serve_%s.c" % name for name in "ask fields info params part reply text tokens".split()]
SERVE_TEST = SERVE_BODIES + ["tests/unit/serve_fixture.c"]
TEST_SUPPORT = {"kernel": ["tests/kernel/kernel_test.c", FORCE_ISA], "e2e": ["tests/e2e/e2e.c"],
                "test_schedule": ["tests/unit/late_machine.c"], "test_schedule_pages": ["tests/unit/late_machine.c"],
                "test_schedule_random": ["tests/unit/late_machine.c"],
                "test_mla_attn": ["tests/kernel/attn_codes.c"],
                "test_h16": [FORCE_ISA], "test_h32": [FORCE_ISA], "test_self_check": [FORCE_ISA],
                "test_invariance": ["tests/e2e/cuts.c", FORCE_ISA], "test_invariance_sparse": ["tests/e2e/cuts.c"],
                "fuzz_plan": ["tests/fuzz/plan_walk.c"], "test_damage": ["tests/fuzz/plan_walk.c"], "test_library": ["tests/e2e/e2e.c"],
                "test_cli_compare": ["engine/cli_compare.c", "engine/cli_output.c"],
                "test_cli_config": ["engine/cli_%s.c" % name for name in ("config", "config_keys", "files", "make", "options")],
                "test_cli_doctor": ["engine/cli_%s.c" % name for name in
                                    ("doctor_machine", "doctor_model", "doctor_report", "files", "output")],
                "test_cli_roofline": ["engine/cli_roofline.c"], "test_cli_stats": ["engine/cli_stats.c"],
                "test_cli_trace": ["engine/cli_%s.c" % name for name in ("trace", "files", "options")],
                "test_hostile": ["tests/fuzz/plan_walk.c"], "test_schedules": SCHEDULE_FUZZ,
                "test_diff": RUN_COMMAND + ["engine/cli_%s.c" % name for name in ("compare", "config", "config_keys", "diff", "make",
                                                                                  "score")],
                "test_fault": RUN_COMMAND, "test_start_check": RUN_COMMAND,
                "test_serve": ["tests/e2e/serve_client.c"], "fuzz_serve_body": SERVE_TEST, "test_serve_ask": SERVE_TEST,
                "fuzz_serve_door": SERVE_BODIES + ["engine/serve_door.c"], "test_serve_door": ["engine/serve_door.c"],
                "test_serve_bodies": SERVE_BODIES, "test_serve_info": SERVE_TEST, "test_serve_reply": SERVE_TEST,
                "test_serve_metrics": ["engine/serve_metrics.c"], "test_serve_queue": ["engine/serve_metrics.c", "engine/serve_queue.c"],
                "test_serve_stream": SERVE_TEST}

# Kernels whose own text the tests in tests/kernel/ also run on the CPU (tests/emulator/README.md): stem -> the sets of SPEC
# constants that its test launches.
EMULATOR = "tests/emulator/emulator.cpp"
EMULATED_KERNEL = "tests/emulator/kernel.cpp"
EMULATED = {stem: [{"THREADS": threads}] for stem, threads in {
    "act_quant": 256, "adjust": 512, "attn_cut": 512, "embed": 128, "index_qk": 128, "kv_widen": 128, "mla_fold": 256,
    "moe_sort": 1024, "qkv_rope": 256, "row_digest": 1024, "sample": 512}.items()}
EMULATED["rmsnorm"] = [{"THREADS": threads, "HELD": held} for threads, held in ((512, 1), (512, 2), (512, 4), (256, 8), (256, 4))]
EMULATED["qkv_rope"] += [{"THREADS": 256, "MAPS": 1, "TILE_N": n, "TILE_ROWS": 1, "K_BLOCKS": blocks, "STAGES": stages}
                         for n, blocks, stages in ((64, 2, 2), (24, 1, 3))]
EMULATED["mla_fold"] += [{"THREADS": 192, "MAPS": 1, "TILE_N": n, "TILE_ROWS": 1, "K_BLOCKS": blocks, "STAGES": stages}
                         for n, blocks, stages in ((16, 8, 2), (24, 2, 4))]
EMULATED["index_topk"] = [{"THREADS": threads, "HELD": held, "CLUSTER": cluster}
                          for threads, cluster, sizes in ((512, 8, (22528, 8448)), (1024, 1, (56832, 17408))) for held in sizes]
EMULATED["router"] = [{"THREADS": threads} for threads in (128, 512)]
MANY = [{"THREADS": 256 if n == 64 else 384, "MAPS": 1, "TILE_N": n, "TILE_ROWS": rows, "STAGES": stages,
         "CLUSTER": cluster} for n, rows, stages, cluster in ((128, 256, 2, 1), (128, 128, 4, 2), (64, 64, 3, 1), (128, 192, 3, 2))]
MANY_OF_GEMM = [{"THREADS": 256 if n == 64 else 384, "MAPS": 1, "TILE_N": n, "TILE_ROWS": rows, "STAGES": stages, "CLUSTER": beside * below,
                 "CLUSTER_ROWS": below, "DEPTH": depth} for n, rows, stages, beside, below, depth in (
                     (128, 256, 2, 1, 1, 1), (128, 128, 4, 2, 1, 1), (64, 64, 2, 2, 2, 2), (64, 48, 3, 1, 1, 1), (64, 32, 2, 2, 4, 4))]
# Of fp8_gemm and fp8_moe_gemm: weight rows, token rows, stages, blocks of a cluster side by side and below each other (0: of experts).
for stem, tiles in {"fp8_gemm": [(128, 256, 2, 2, 1), (128, 128, 3, 2, 1), (64, 128, 2, 2, 2), (128, 64, 3, 1, 1), (64, 64, 4, 1, 2)],
                    "fp8_moe_gemm": [(128, 256, 2, 1, 0), (128, 128, 3, 2, 0), (128, 64, 4, 1, 0), (128, 256, 3, 2, 0)]}.items():
    EMULATED[stem] = [{"THREADS": 384 if n * rows > 4096 else 256, "MAPS": 1, "TILE_N": n, "TILE_ROWS": rows, "STAGES": stages,
                       "CLUSTER": beside * (below or 1), **({"CLUSTER_ROWS": below} if below else {})}
                      for n, rows, stages, beside, below in tiles]
FEW = {"gemm": [(8, 1, 3, 3), (48, 1, 4, 4), (16, 8, 2, 2), (64, 16, 1, 4), (40, 32, 2, 3)],
       "moe_gemm": [(16, 1, 2, 3), (64, 1, 3, 2), (24, 8, 2, 2), (64, 16, 1, 3), (48, 32, 2, 3)]}
FEW["fp8_gemm"] = FEW["fp8_moe_gemm"] = [(8, 1, 8, 3), (64, 1, 2, 4), (40, 8, 2, 2), (64, 16, 1, 4), (32, 32, 4, 2), (16, 32, 8, 2),
                                         (16, 8, 16, 2), (24, 16, 4, 3)]
for stem, tiles in FEW.items():
    EMULATED[stem] = MANY_OF_GEMM if stem == "gemm" else MANY if stem == "moe_gemm" else EMULATED[stem]
    EMULATED[stem] += [{"THREADS": 192, "MAPS": 1, "TILE_N": n, "TILE_ROWS": rows, "K_BLOCKS": blocks, "STAGES": stages}
                       for n, rows, blocks, stages in tiles]
EMULATED["mla_expand"] = [{"THREADS": 384, "MAPS": 1, "TILE_N": 128, "TILE_ROWS": 256, "STAGES": stages, "CLUSTER": 1} for stages in (2, 4)]
EMULATED["index_score"] = [{"THREADS": 640, "MAPS": 1, "HEADS": heads, "PAGES": pages, "STAGES": stages}
                           for heads in (16, 32, 64) for pages, stages in ((2, 4), (1, 8), (2, 2))]
EMULATED["mla_prefill"] = [{"THREADS": 384, "NOPE_DIM": nope, "ROPE_DIM": rope, "V_DIM": v, "STAGES": stages, "MAPS": 1}
                           for nope, rope, v, stages in ((64, 32, 64, 3), (64, 64, 64, 3), (64, 64, 128, 3), (128, 64, 128, 2),
                                                         (192, 64, 256, 2))]
EMULATED["mla_attn"] = [{"THREADS": 512, "MAPS": 1, "KV_LORA_RANK": rank, "ROPE_DIM": rope, "ROWS": 64, "PAIR": 2}
                        for rank in (256, 512) for rope in (32, 64)]
EMULATED["mla_attn"] += [{"THREADS": 512, "MAPS": 1, "KV_LORA_RANK": rank, "ROPE_DIM": rope, "ROWS": rows} for rank, rope, rows in (
    (256, 32, 8), (256, 64, 8), (512, 64, 8), (256, 64, 16), (512, 64, 16), (256, 64, 32), (512, 32, 32), (512, 64, 32))]
EMULATED["mla_attn"] += [{"THREADS": 512, "MAPS": 1, "KV_LORA_RANK": rank, "ROPE_DIM": rope, "ROWS": rows, "KV_FORMAT": form,
                          "LISTS": lists} for rank, rope, rows, form, lists in (
                              (512, 64, 16, 1, 0), (512, 64, 16, 1, 1), (512, 64, 16, 0, 1), (256, 64, 8, 2, 0), (512, 64, 32, 1, 1))]
EMULATED["mla_attn"] += [{**EMULATED["mla_attn"][number], "KV_FORMAT": form, "LISTS": lists}
                         for number, form, lists in (
                             (3, 1, 0), (3, 1, 1), (3, 0, 1), (1, 2, 0), (11, 1, 0), (4, 0, 1), (0, 0, 1), # from 4 on few heads
                             (0, 2, 1), (0, 2, 0), (9, 0, 1), (1, 0, 1), (2, 1, 1), (3, 2, 1), (10, 2, 1), (2, 2, 1), (11, 0, 1))]
EMULATED["mla_attn"] += [{"THREADS": 512, "MAPS": 1, "KV_LORA_RANK": rank, "ROPE_DIM": rope, "ROWS": rows, "KV_FORMAT": form,
                          "LISTS": lists} for rank, rope, rows, form, lists in (
                              (256, 32, 16, 2, 1), (256, 32, 32, 2, 0), (512, 32, 8, 1, 1), (512, 64, 16, 2, 1))]
EMULATED["mla_attn"] += [{**EMULATED["mla_attn"][11], "THREADS": 512 if f else 384, "ROWS": 64, "TURNS": 1, "KV_FORMAT": f, "LISTS": 1}
                         for f in range(3)]
EMULATED["mla_attn"] += [{**EMULATED["mla_attn"][11], "ROWS": 64, "SPREAD": sharers, "KV_FORMAT": f, "LISTS": 1}
                         for sharers in (8, 16, 32) for f in range(3)]

# Copies of kernels broken on purpose, which the same tests must find different:
# stem, number in its list above, text to break, edit for sed, what is wrong then.
FLAWS = [
    ("gemm", 0, "many_plain.cuh", "s/+ i % 4u \\* 2u/+ (i ^ 1u) % 4u * 2u/", "steps of k in another order"),
    ("gemm", 0, "many.cuh", "s/blocks \\* MANY_W_BYTES);/0u);/", "reads a stage before its weights have come"),
    ("gemm", 2, "many_plain.cuh", "s/MULTIPLY_WAIT(1)/MULTIPLY_WAIT(2)/", "gives back a stage that is still read"),
    ("gemm", 0, "many_store.cuh", "s/ptx_warps_sync(number, 128); .. the chunk is whole.*//",
     "no barrier between turned results and their use"),
    ("gemm", 1, "many.cuh", "s/4u \\* MANY_SHARERS/4u/", "a stage is filled anew before the other block has left it"),
    ("gemm", 4, "many.cuh", "s/ + (i - MANY_BESIDE >= many_row_rank())//", "a stage is given back to the wrong block"),
    ("gemm", 2, "many_store.cuh", "s/most > 87.0f/most > 1e30f/", "huge gates are taken for ordinary ones"),
    ("moe_gemm", 1, "many.cuh", "s/tile.matrix \\* 2u \\* groups/tile.matrix * groups/", "gate and up of another matrix"),
    ("moe_gemm", 0, "many_store.cuh", "s/column < to.n ? tile.rows/column < to.n ? tile.width/", "rows of the next expert are stored"),
    ("gemm", 3, "gemm_tiles.cuh", "s/count - tile.row < tile.width ? count - tile.row : tile.width/tile.width/",
     "rows beyond the count are stored"),
    ("gemm", 9, "few_plain.cuh", "s/MULTIPLY_WAIT(1)/MULTIPLY_WAIT(2)/", "gives back a stage that is still read"),
    ("gemm", 9, "few_plain.cuh", "s/count \\* bytes);/0u);/", "a stage is full before its rows have come"),
    ("gemm", 5, "few_plain.cuh", "s/w += FEW_W_BLOCK/w += 0u/", "the end of k with other weights"),
    ("gemm", 5, "few.cuh", "s/ptx_warps_sync(1, 128); .. this tile.*//", "no barrier between gate and up"),
    ("gemm", 5, "few.cuh", "s/|| column >= rows ||/||/", "rows beyond the count are stored"),
    ("moe_gemm", 6, "few.cuh", "s/i < rows \\* FEW_HALF/i < (rows + 1u) * FEW_HALF/", "rows of the next expert are stored"),
    ("moe_gemm", 6, "few_deal.cuh", "s/ptx_barrier_arrive_copies/ptx_barrier_arrive/", "token rows are not waited for"),
    ("moe_gemm", 6, "few_deal.cuh", "s#row_token ? row_token.e.row + row. :#row_token ? e.row :#", "token rows are not gathered"),
    ("fp8_gemm", 0, "many_scaled.cuh", "s/x + i \\* 2u, w + i \\* 2u/x + (i ^ 1u) * 2u, w + (i ^ 1u) * 2u/", "steps of k in another order"),
    ("fp8_gemm", 3, "many_scaled.cuh", "s/e4m3_anew(d, x, w)/e4m3(d, x, w)/", "a chain that goes on from the one before"),
    ("fp8_gemm", 4, "many_scaled.cuh",
     "s/sums.i. = num_fma(d.i., by.*/sums[i] = num_add(sums[i], num_mul(d[i], by[i \\/ 2u % 2u][i \\/ 4u % 2u]));/",
     "a product of its own rounding"),
    ("fp8_gemm", 0, "many_scaled.cuh", "s/by.i . 2u..i % 2u. = num_mul(of_x.i . 2u . 8u./by[i \\/ 2u][i % 2u] = num_mul(of_x[0]/",
     "the scale of another token"),
    ("fp8_gemm", 1, "many_scaled.cuh", "s/n0 . SCALE_COLUMNS) . blocks/n0 \\/ 256u) * blocks/", "the scale row of other columns"),
    ("fp8_gemm", 2, "many_scaled.cuh", "s/? columns . SCALE_COLUMNS : 0u/? 0u : 0u/", "up with the scales of its gate"),
    ("fp8_gemm", 0, "many_scaled.cuh", "s/ptx_barrier_wait(many_empty(r, r.stage), r.parity . 1u);//",
     "scales are overwritten before they have been read"),
    ("fp8_gemm", 1, "many_scaled.cuh", "s/PTX_MULTIPLY_WAIT(0);//", "sums are taken before they are there"),
    ("fp8_moe_gemm", 0, "many_scaled.cuh", "s/x + wave . (MANY_APART . 8u)/x + wave * (MANY_APART * 4u)/", "a wave has rows of another"),
    ("fp8_gemm", 3, "many_scaled.cuh", "s/__syncwarp(); .. the chunk is whole ..//", "no barrier between turned results and their use"),
    ("fp8_moe_gemm", 1, "many_scaled.cuh", "s/(u64)tile.matrix . ((work/(u64)(tile.matrix \\& 0u) * ((work/", "scales of another expert"),
    ("fp8_moe_gemm", 0, "many_scaled.cuh", "s/ptx_store_if(first_row + i . 2u % 2u . 8u < rows/ptx_store_if(first_row < rows/",
     "rows of the next expert are stored"),
    ("mla_attn", 37, "turn_scores.cuh", "s/ptx_warps_sync(1u + set, 128);//", "weights lie where a late warp still multiplies"),
    ("mla_attn", 38, "turn_outputs.cuh", "s/G . 2u);/2u - G * 2u);/", "boxes of the other warpgroup are given back"),
    ("mla_attn", 37, "turn_outputs.cuh", "s/wait_for(p, M_COME, k);//", "m of the other warpgroup is taken before it is there"),
    ("mla_attn", 39, "turn_codes.cuh", "s/(u8)(live >> 8)/(u8)live/", "void places of half a block are taken for those of the other"),
    ("mla_attn", 46, "spread_scores.cuh", "s/  meet(a, 0);/  ptx_warps_sync(1, 256);/", "tops are taken before all blocks gave theirs"),
    ("mla_attn", 47, "spread_scores.cuh", "s/  meet(a, 1u);/  ptx_warps_sync(1, 256);/", "weights are taken before all blocks made them"),
    ("mla_attn", 44, "spread_scores.cuh", "s/raise_maxima(p, m, first + i, group);//", "weights follow the maximum of the block before"),
    ("mla_attn", 43, "spread_values.cuh", "s/wait_for(S_DONE, n);//", "values lie where queries are still multiplied"),
    ("mla_attn", 41, "spread_values.cuh", "s/ + slice . 128u . 4u//", "columns take the scale of others"),
    ("mla_attn", 41, "spread_scores.cuh", "s/give(K_FREE + x . 2u - 1u)/give(K_FREE + x \/ 2u)/", "boxes are given back too early"),
    ("mla_attn", 47, "spread_values.cuh", "s/^  put_ones(p);//", "no ones lie beside a narrow slice"),
    ("mla_attn", 41, "spread_outputs.cuh", "s/wait_for(V_COME + use % STAGES, .*//", "a stage is read before it has come"),
    ("mla_attn", 45, "spread_outputs.cuh", "s/two = block + 1u < t.blocks;/two = true;/", "what lies behind the list is weighed"),
    ("mla_attn", 43, "spread_outputs.cuh", "s/rises >> block . 3u/rises \\& 0u/", "what was summed up does not follow m"),
    ("mla_attn", 46, "spread_outputs.cuh", "s/ | words.1. | words.2. | words.3.//", "m of the heads of one warp alone is followed"),
    ("mla_attn", 48, "mla_spread.cuh", "s/begin_token(n);//", "queries lie where the token before is still multiplied"),
    ("mla_attn", 46, "mla_spread.cuh", "s/wait_for_rows();//", "columns are taken of rows that are not known yet"),
    ("mla_attn", 0, "pair_outputs.cuh", "s/v + i \\* 128u/v + (i ^ 1u) * 128u/", "tokens of V in another order"),
    ("mla_attn", 0, "pair_state.cuh", "s/ptx_warps_sync(3, 256);//", "l is taken before it is there"),
    ("mla_attn", 0, "pair_scores.cuh", "s/wait_free(p, P_FREE, c.k);//", "P is overwritten before the other block has used it"),
    ("mla_attn", 0, "pair_scores.cuh", "s/(p.shared + AT_PASSED + slot/(p.shared + AT_PASSED + (slot + 1u) % 3u/", "m of another block"),
    ("mla_attn", 0, "pair_outputs.cuh", "s/wait_for(p, come + boxes + x, other/if (x > 9u) wait_for(p, come + boxes + x, other/",
     "V is multiplied before it has come"),
    ("mla_attn", 0, "pair_outputs.cuh", "s/!GATHERED \\&\\& block == last/false \\&\\& block == last/",
     "rows beyond the last position are not zero"),
    ("rmsnorm", 0, "rmsnorm.cu", "\\#partial.j. = p;#{n;d}", "no barrier before the tree"),
    ("mla_attn", 8, "decode_layout.cuh", "s/k == V_BOXES ? 0u : k + 1u/k/", "boxes of a block are taken for each other"),
    ("mla_attn", 8, "decode_scores.cuh", "s/ptx_barrier_wait(base + FULL(box.stage), box.phase);//",
     "KV rows are used before they have come"),
    ("mla_attn", 8, "decode_scores.cuh", "s/clear_rows(shared, at, shares, last/clear_rows(shared, at, shares, 1u + last/",
     "a row beyond the last position is not zero"),
    ("mla_attn", 8, "decode_scores.cuh", "s/if (nth > 0) ptx_barrier_wait(base + MAX/if (nth > 1u) ptx_barrier_wait(base + MAX/",
     "a maximum is taken before it is there"),
    ("mla_attn", 8, "decode_outputs.cuh", "s/u32 column = first_box \\* 64u/u32 column = group * OUT_BOXES * 64u/",
     "a share is stored as the first"),
    ("mla_attn", 7, "decode_outputs.cuh", "s/attn_unit_starts(in_group, prefix)/(in_group == 0)/", "a unit goes on from the one before"),
    ("mla_attn", 12, "decode_gather.cuh", "s/(lane . 16u + i . 2u) . 4u/i * 8u/", "columns take the scale of others"),
    ("mla_attn", 12, "decode_gather.cuh", "s/ptx_barrier_wait(base + RAW_FULL.*//", "codes are widened before they have come"),
    ("mla_attn", 12, "decode_gather.cuh", "s/ptx_barrier_wait(base + EMPTY(own/if (nth > 99u) ptx_barrier_wait(base + EMPTY(own/",
     "boxes are filled before they are free"),
    ("mla_attn", 14, "decode_gather.cuh", "s/token > p.tile.position/false/", "an entry behind the position is seen"),
    ("mla_attn", 14, "decode_gather.cuh", "s/row, lane + i . 32u/row, lane/", "the second half of a row is the first"),
    ("mla_attn", 14, "decode_gather.cuh", "s/ptx_barrier_arrive_copies/ptx_barrier_arrive/", "rows are not waited for"),
    ("mla_attn", 16, "decode_gather.cuh", "s/if (ends) rows = after;//", "the rows of the first blocks for those behind"),
    ("mla_attn", 16, "decode_gather.cuh", "s/if ((live >> i . 16u . ROW_BYTES .*== 0)/if (false)/", "rows of void places are not zeros"),
    ("mla_attn", 16, "decode_scores.cuh", "s/bits >> (e . 2u % 2u . 8u)/bits/", "void places are weighed"),
    ("mla_attn", 17, "pair_gather.cuh", "s/c.scale\\[h\\]\\[i . 2u % SCALES\\]/c.scale[h][0]/", "columns take the scale of others"),
    ("mla_attn", 17, "pair_gather.cuh", "s/from . SPEC_KV_LORA_RANK . half . 8u/from + SPEC_KV_LORA_RANK/",
     "half of V takes the scales of the other"),
    ("mla_attn", 17, "pair_gather.cuh", "s/if (i % WIDTH_BOXES == 0) wait_free[^;]*;//",
     "values are overwritten before they have been used"),
    ("mla_attn", 18, "pair_gather.cuh", "s/if (i . frees % HALF == 0) wait_free[^;]*;/(void)free, (void)frees, (void)phase;/; "
     "s/wait_free(p, VALUES_GIVEN, k);//", "columns are overwritten before S has used them"),
    ("mla_attn", 18, "pair_gather.cuh", "s/ptx_barrier_arrive_copies/ptx_barrier_arrive/", "rope columns are not waited for"),
    ("mla_attn", 18, "pair_gather.cuh", "s/give_live(p, set, row_of_lane(s.row))/if (k < 1u) give_live(p, set, row_of_lane(s.row))/",
     "places of another block are void"),
    ("mla_attn", 18, "pair_rows.cuh", "s/entry <= f.position/true/", "an entry behind the position is seen"),
    ("mla_attn", 18, "pair_gather.cuh", "s/wait_free(p, VALUES_GIVEN, k);//", "values are overwritten before the other block has them"),
    ("mla_attn", 19, "pair_copy.cuh", "s/if (p.rank) values.*//", "values of another block"),
    ("mla_attn", 19, "pair_copy.cuh", "s/ptx_barrier_arrive_copies/ptx_barrier_arrive/", "rows are not waited for"),
    ("mla_attn", 20, "pair_gather.cuh", "s/gather_part() . 16u < SPEC_ROPE_DIM/gather_part() < 2u/", "half of rope columns are missing"),
    ("attn_cut", 0, "attn_cut.cu", "s/if (written) early = i;//", "pages that the step writes are read early"),
    ("attn_cut", 0, "attn_cut.cu", "s/w < warp; w++/w + 1u < warp; w++/", "the tiles of a warp are left out of the numbers"),
    ("mla_fold", 0, "mla_fold.cu", "s/if (bits) __syncthreads(); .. the groups are there ..//", "groups are read before they are there"),
    ("mla_fold", 1, "fold_lift.cuh", "s/if (first + i < per_group) total/if (first + i < 2u * per_group) total/", "a group is lost"),
    ("mla_fold", 1, "fold_lift.cuh", "s/if (!part.units) return/if (false) return/", "a token that is not cut is folded"),
    ("mla_fold", 0, "mla_fold.cu", "s/if (per_group == 1u || per_group > most) per_group/per_group/",
     "units are folded without their groups"),
    ("mla_fold", 0, "mla_fold.cu", "s/first = a.partial_o + (u64)p.row/first = a.partial_o + (u64)(p.row + p.step)/",
     "units of another token are discarded"),
    ("adjust", 0, "adjust.cu", "s/at < p.prompt_count/at <= p.prompt_count/", "the first token made is taken for one of the prompt"),
    ("adjust", 0, "adjust.cu", "s/at < p.position; at +=/at + 1u < p.position; at +=/", "the newest token is not counted"),
    ("adjust", 0, "adjust.cu", "s/if (made) logit/if (mark) logit/", "presence penalty of tokens that were only seen"),
    ("adjust", 0, "adjust.cu", "\\#marks\\[i\\] = 0;#{n;d}", "no barrier between cleared marks and their use"),
    ("sample", 0, "sample.cu", "s/key_at(row, n) > key/(key_at(row, n) | 0x3fffffu) > key/",
     "a rank that takes all equal logits for larger"),
    ("sample", 0, "sample.cu", "s/a.logits + (u64)r . a.vocab, false/a.adjusted + (u64)r * a.vocab, true/",
     "the likeliest tokens by adjusted logits"),
    ("sample", 0, "sample.cu", "s/, top) >= bound/, top) > bound/", "min-p drops what it meets exactly"),
    ("sample", 0, "sample.cu", "s/rank < KERNEL_CLUSTER - 1u/rank < KERNEL_CLUSTER - 8u/", "the last blocks are never drawn from"),
    ("sample", 0, "sample.cu", "s/row.rank . WIDTH + t\\], 0/row.rank % 7u * WIDTH + t], 0/", "two blocks write the same partial sums"),
    ("row_digest", 0, "row_digest.cu", "\\#parts\\[rank\\], 0#{n;d}", "block 0 does not wait for the others"),
    ("sample", 0, "sample.cu", "s/if (writes) a.result.r. = {(i/if (writes) a.sampled[param.slot] = (i32)token, a.result[r] = {(i/",
     "a row that was only scored sets the next token"),
    ("act_quant", 0, "act_quant.cu", "s/num_fma(-num_fma(q, scale, -x), inverse, q)/num_fma(0.0f, scale, q)/",
     "a quotient by the inverse alone"),
    ("act_quant", 0, "act_quant.cu", "s/-num_fma(q, scale, -x)/num_fma(-q, scale, x)/", "the sign of a zero is lost"),
    ("act_quant", 0, "act_quant.cu", "s/(u64)(piece . of_row) . a.ldx/(u64)(piece \\/ of_row) * a.columns/", "gaps between rows are read"),
    ("act_quant", 0, "act_quant.cu", "s/least = num_bits(NUM_SCALE_LEAST)/least = 0u/", "a scale of zeros"),
    ("fp8_gemm", 5, "few_scaled.cuh", "s/PTX_MULTIPLY_WAIT(3)/PTX_MULTIPLY_WAIT(4)/", "a chain is added before it is there"),
    ("fp8_gemm", 9, "few_scaled.cuh", "s/if (left == 0) PTX_MULTIPLY_WAIT(0)/if (left == 0) PTX_MULTIPLY_WAIT(1)/",
     "the last chain of a stage likewise"),
    ("fp8_gemm", 7, "few_scaled.cuh", "s/num_least(g.first + slot % 2u, g.last)/g.first/", "the next 128 weight rows share the scales"),
    ("fp8_gemm", 7, "few_scaled.cuh", "s/ + 2u . is_up;/;/", "up rows have the scales of the gate"),
    ("fp8_gemm", 5, "few_scaled.cuh", "s/count - num_least(count, block))/FEW_SIDE)/", "what lies behind the last k is added"),
    ("fp8_gemm", 8, "few_scaled.cuh", "s/FEW_PIECE + row) . 4u/FEW_PIECE + (row ^ 1u)) * 4u/", "scales of the row beside"),
    ("fp8_gemm", 9, "few_scaled.cuh", "s/ptx_barrier_arrive_copies/ptx_barrier_arrive/", "scales are not waited for"),
    ("fp8_gemm", 5, "few_scaled.cuh", "s/scales + b . FEW_PIECE/scales/", "a stage has the factors of its first 128 k"),
    ("fp8_gemm", 9, "few_scaled.cuh", "s/given, 4)/given, 8)/", "results of two other lanes are taken"),
    ("fp8_gemm", 10, "few_scaled.cuh", "s/is_second ? own : taken/own/", "both blocks of a weight row are those of one lane"),
    ("fp8_gemm", 5, "few_scaled.cuh", "s/num_mul(x.x, w.h.)/x.x/", "half of the scales of the weights are left out"),
    ("fp8_moe_gemm", 6, "fp8_moe_gemm_few.cuh", "s/a.row_token ? a.row_token.at. : at;/at;/", "scales are not gathered"),
    ("fp8_moe_gemm", 7, "fp8_moe_gemm_few.cuh", "s/(u64)e.expert . scale_rows . blocks/(u64)scale_rows * 0u/",
     "scales of the first expert for all"),
    ("fp8_moe_gemm", 5, "fp8_moe_gemm_few.cuh", "s/a.row_token ? a.row_token.e.row. : e.row, 1/e.row, 1/", "a token is not gathered"),
    ("embed", 0, "embed.cu", "s/num_mul(num_float(pair << 16), scale)/num_float(pair << 16)/", "half of an embedding is not scaled"),
    ("rmsnorm", 1, "rmsnorm.cu", "s/shared.j + e . SPEC_THREADS. = v/shared[j] = v/", "vectors of a thread share a place"),
    ("rmsnorm", 1, "rmsnorm.cu", "s/if (i < columns) .(uint2/if (i < a.dim) *(uint2/", "the rehearsal is kept"),
    ("rmsnorm", 4, "rmsnorm_many.cuh", "s/if (piece == 0) held/held/", "the last piece is taken for the first"),
    ("rmsnorm", 4, "rmsnorm_many.cuh", "s/if (piece + i < a.dim) p =/if (piece + i > 0u) p =/", "the first square is left out"),
    ("rmsnorm", 4, "rmsnorm_many.cuh", "\\#shared\\[i\\], p#{n;d}", "a piece is overwritten before its squares are added"),
    ("moe_sort", 0, "moe_sort.cu", "s/x + (u64)token . pieces/x + (u64)first * pieces/", "rows of another token"),
    ("moe_sort", 0, "moe_sort.cu", "s/a.pair_row.pair. . pieces/a.pair_row[begin] * pieces/", "rows go to the place of another pair"),
    ("moe_sort", 0, "moe_sort.cu", "s/count_share(s.first, a.topk_id, share_end/count_share(s.first, a.topk_id, share_end + 1u/",
     "a pair behind the share is not counted"),
    ("moe_sort", 0, "moe_sort.cu", "s/first + s.before.t./first/", "shares before this one are left out"),
    ("rmsnorm", 1, "rmsnorm.cu", "s/(k0 + b) % 32u/b % 32u/", "experts behind the eighth are others"),
    ("rmsnorm", 2, "rmsnorm.cu", "s/a.delta ? add4(sum.e., delta.e.) : sum/sum/", "the shared expert is left out"),
    ("rmsnorm", 0, "rmsnorm.cu", "s/, a.y_scale)/, a.y_scale < 0.0f ? 2.0f : 1.0f)/", "a result is not scaled"),
    ("router", 1, "router.cu", "s/token > 32u . m ? (1u << (token - 32u . m)) - 1u/token > 32u * m ? (2u << (token - 32u * m)) - 1u/",
     "a pair stands before itself"),
    ("router", 1, "router.cu", "s/a.experts \\&\\& !rehearses/a.experts/", "the rehearsal is kept"),
    ("router", 1, "router.cu", "s/a.pair_row.place. = place/a.pair_row[place] = 0/", "the pairs of a token alone share a row"),
    ("router", 0, "router.cu", "\\#expert_first.a.experts. = tokens#{n;d}", "pairs are placed before all experts are counted"),
    ("qkv_rope", 0, "qkv_rope.cu", "s/a.half_split ? i + a.rope_dim . 2 : 2/a.half_split > 1u ? i : 2/",
     "pairs of halves are not told apart"),
    ("qkv_rope", 0, "qkv_rope.cu", "s/num_mul(src\\[i\\], scale)/src[i]/", "columns without rope are not scaled"),
    ("qkv_rope", 0, "qkv_rope.cu", "s/else if (j < 32)/else if (j < 8)/", "the KV row is rotated by some lanes"),
    ("qkv_rope", 0, "qkv_rope.cu", "s/num_bits(NUM_SCALE_LEAST)/num_bits((f32)a.step->token_count)/", "scales hang on the batch"),
    ("qkv_rope", 0, "qkv_rope.cu", "s/warp . 4u . 4u + w/w/", "columns take the scale of others"),
    ("qkv_rope", 0, "qkv_rope.cu", "\\#largest.e..warp. = most;#{n;n;s/__syncthreads();//}", "no barrier between maxima and their use"),
    ("qkv_rope", 1, "qkv_absorb.cuh", "s/ptx_barrier_arrive(few_full(r))/if (threadIdx.x % 32u) ptx_barrier_arrive(few_full(r))/",
     "a query that is never announced whole"),
    ("qkv_rope", 1, "qkv_absorb.cuh", "s/num_mul(v\\[1\\], scale)/v[1]/", "half of a query is not scaled"),
    ("qkv_rope", 2, "qkv_absorb.cuh", "s/ptx_barrier_wait(few_empty(r, r.stage), r.parity . 1u);//",
     "a query is overwritten before it has been multiplied"),
    ("qkv_rope", 2, "qkv_absorb.cuh", "s/block - apart, count - apart, shared/block - apart, count - apart + 1u, shared/",
     "tiles are left out"),
    ("index_qk", 0, "index_qk.cu", "s/if (column >= a.rope_dim)/if (column < INDEX_DIM - a.rope_dim)/", "the last columns are rotated"),
    ("index_qk", 0, "index_qk.cu", "s/if (a.half_split) rotate_halves/if (!a.half_split) rotate_halves/", "the other kind of pairs"),
    ("index_qk", 0, "index_qk.cu", "s/const f32 mean = .*/const f32 mean = 0.0f;/", "a norm without the mean"),
    ("index_qk", 0, "index_qk.cu", "s/d\\[m\\]\\[3\\], r), gain.w, bias.w)/d[m][3], r), gain.w, 0.0f)/", "a norm without its bias"),
    ("index_qk", 0, "index_qk.cu", "s/by > 0; by .= 2) add_lanes(sum, by)/by > 0; by \\/= 2) add_lanes(sum, LANES \\/ 2 \\/ by)/",
     "sums of a key in another order"),
    ("index_qk", 0, "index_qk.cu", "s/threadIdx.x \\& by ? -1.0f : 1.0f/threadIdx.x % LANES < by ? 1.0f : -1.0f/", "signs of a transform"),
    ("index_qk", 0, "index_qk.cu", "s/find_scale(v, a.scale_kind)/find_scale(v, SCALE_F32)/", "scales that are no powers of two"),
    ("index_qk", 0, "index_qk.cu", "s/num_mul(weight, a.head_scale)/num_from_bf16(num_to_bf16(num_mul(weight, a.head_scale)))/",
     "weights in bf16"),
    ("index_qk", 0, "index_qk.cu", "s/cached + slot . INDEX_DIM :/cached + slot * (INDEX_DIM + 4u) :/",
     "codes and scales of a page in turn"),
    ("index_score", 6, "index_score.cu", "s/for (u32 e = 0; e < 2; e++)/for (u32 e = 1; e < 2; e--)/", "heads in another order"),
    ("index_score", 6, "index_score.cu", "s/ptx_max(\\(.*\\), 0.0f), w/\\1, w/", "products below zero count"),
    ("index_score", 8, "index_score.cu", "s/stage_of(n) . 8u, n . SPEC_STAGES % 2u)/stage_of(n) * 8u, n \\/ SPEC_STAGES % 2u ^ 1u)/",
     "keys are used before they have come"),
    ("index_score", 8, "index_score.cu", "s/ptx_barrier_wait(base + STAGE_EMPTY + at . 8u, n . SPEC_STAGES % 2u . 1u);//",
     "a stage is filled before all have left it"),
    ("index_score", 7, "index_score.cu", "s/ptx_barrier_wait(base + TILE_EMPTY + at . 8u, tile . 2u % 2u . 1u);//",
     "queries are overwritten while they are in use"),
    ("index_score", 3, "index_score.cu", "s/MULTIPLY_WAIT(0)/MULTIPLY_WAIT(1)/", "products are added up before they are there"),
    ("index_score", 0, "index_score.cu", "s/position + token + 2u . x + 1u/position + token + 2u * x + 2u/",
     "a key behind the token is scored"),
    ("index_score", 3, "index_score.cu", "s/(key . 32u << 4)/0u/", "scales are not where the box puts them"),
    ("index_score", 6, "index_score.cu", "s/pass_stages(base, n, team)/pass_stages(base, n, 0u)/", "all teams take stages of the first"),
    ("index_score", 6, "index_tiles.cuh", "s/seq_before == seq;/seq_before + seq < 64u;/", "another sequence joins a tile"),
    ("index_score", 0, "index_tiles.cuh", "s/list.joins.warp + 1u./(u32)(list.joins[warp] * 0u)/", "a tile ends with the rows of a warp"),
    ("index_score", 6, "index_tiles.cuh", "s/upto - begin + each - 1u/upto - begin/", "a page that two shares meet in is left out"),
    ("index_topk", 1, "index_topk.cu", "s/equal++ < needed/equal++ <= needed/", "one tie too many"),
    ("index_topk", 1, "index_topk.cu", "s/i < row.rank; i++/i + 1u < row.rank; i++/", "the share of a block is left out"),
    ("index_topk", 1, "index_topk.cu", "s/i < from + row.blocks/i <= from/", "counts of the other blocks are left out"),
    ("index_topk", 1, "index_topk.cu", "s/at + 2u < row.n ? num_order(x.z) : 0/num_order(x.z)/", "a score behind the last counts"),
    ("index_topk", 1, "index_topk.cu", "s/at < held) (/at < held \\/ 2u) (/", "half of what is kept is never written"),
    ("index_topk", 1, "index_topk.cu", "s/from == 0 ? held : from, upto/from == 0 ? held + row.threads : from, upto/",
     "some scores are not read again"),
    ("index_topk", 1, "index_topk.cu", "s/each_read(row, held, fours/each_read(row, 0, fours/", "scores that are kept are counted twice"),
    ("index_topk", 1, "index_topk.cu", "s/i < n ? i : INDEX_NONE/i <= n ? i : INDEX_NONE/", "a position too many in a short row"),
    ("index_topk", 1, "index_topk.cu", "\\#= make_uint4(0, 0, 0, 0);#{n;s/wait_team(row);//}", "counts begin before the last are gone"),
    ("index_topk", 2, "index_topk.cu", "s/row.team . words/row.team * words * 0u/", "teams count in one place"),
    ("index_topk", 3, "index_topk.cu", "s/larger += larger_of(bits.y), e/e/", "behind what bits have room for the list begins again"),
    ("kv_widen", 0, "kv_widen.cu", "s/row < live/row <= live/", "a row behind the end of a context is taken"),
    ("kv_widen", 0, "kv_widen.cu", "s/c.tokens - (page - c.first) . PAGE_TOKENS/c.tokens/", "every page of a context is full"),
    ("kv_widen", 0, "kv_widen.cu", "s/a.block_table_stride + (page - c.first)\\]/a.block_table_stride]/", "every page is the first"),
    ("kv_widen", 0, "kv_widen.cu", "s/s.scales_at + column . SCALE_COLUMNS . 4u/s.scales_at/", "one scale for a row"),
    ("kv_widen", 0, "kv_widen.cu", "s/(column - s.coded) . 2u/0u/", "the first rope columns again"),
    ("kv_widen", 0, "kv_widen.cu", "s/has_scales ? a.kv_lora_rank : columns/a.kv_lora_rank/", "codes of rope columns are read as numbers"),
    ("kv_widen", 0, "kv_codes.cuh", "s/num_mul(y.3., scale)/num_from_e4m3((u8)(codes.y >> 24)) * num_from_bf16(num_to_bf16(scale))/",
     "a scale that is rounded"),
    ("mla_expand", 0, "mla_expand.cu", "s/a.piece . a.piece_pages + slot/slot/", "every piece is the first"),
    ("mla_expand", 0, "mla_expand.cu", "s/i >= j . PAGE_TOKENS/i > j * PAGE_TOKENS/",
     "the first rows of a page are taken of the one before"),
    ("mla_expand", 0, "mla_expand.cu", "s/threadIdx.x - 64u; i/threadIdx.x - 63u; i/", "the first piece of rope is left out"),
    ("mla_prefill", 3, "mla_prefill.cu", "s/factor\\[h\\] = .*;/factor[h] = 1.0f;/",
     "what was summed under another maximum is not rescaled"),
    ("mla_prefill", 3, "mla_prefill.cu", "s/from \\* 8u + threadIdx/from * 8u + 8u + threadIdx/", "the row behind the tile is not zero"),
    ("mla_prefill", 3, "mla_prefill.cu", "s/PTX_MULTIPLY_WAIT(1);/PTX_MULTIPLY_WAIT(2);/", "scores are read before they are there"),
    ("mla_prefill", 3, "mla_prefill.cu", "s/leave(base + V_EMPTY + t.stage . 8u);/leave(base + V_EMPTY + t.stage * 8u), &/",
     "a stage is filled before all have left it"),
    ("mla_prefill", 3, "mla_prefill.cu", "s/rescale(c, w.factor\\[SECOND\\]);//", "the factor of the second page of a stage is left out"),
    ("mla_prefill", 3, "mla_prefill.cu", "s/num_add(m, 8.0f)/num_add(m, 0x1p61f)/", "no page moves the exponent"),
]

LATE_MACHINE = ["exec_fill", "exec_block_row", "exec_list", "exec_drop_pages", "exec_submit", "exec_wait", "exec_row_was_read",
                "watch_step"]
# Functions that a test replaces by its own __wrap_<function>: folder of tests/ or name of a test -> functions.
TEST_WRAPS = {
    "kernel": ["cpu_isa_core"], "test_h16": ["cpu_isa_core"], "test_h32": ["cpu_isa_core"], "test_self_check": ["cpu_isa_core"],
    "test_invariance": ["cpu_isa_core"],
    "test_audit": ["cpu_" + stem for stem in "embed rmsnorm qkv_rope gemm mla_attn mla_fold router moe_gemm".split()],
    "test_control": ["cpu_mla_fold", "cpu_qkv_rope", "verbatim_open"],
    "test_cli_doctor": ["gpu_survey", "gpu_open", "gpu_close", "gpu_memory", "jit_open", "jit_close", "jit_version", "jit_path",
                        "gemm_lt_find"],
    "test_diff": ["cpu_" + stem for stem in sorted(EMULATED) if stem not in (
        "act_quant", "attn_cut", "fp8_gemm", "fp8_moe_gemm", "index_qk", "index_score", "index_topk", "kv_widen",
        "mla_expand", "mla_prefill")],
    "test_fault": ["verbatim_open", "verbatim_poll"], "test_library": ["gemm_lt_open", "gemm_lt_run"],
    "test_prefill": ["cpu_mla_prefill", "cpu_mla_expand", "verbatim_open"],
    "test_requests": ["cpu_adjust", "verbatim_open"],
    "test_serve_queue": ["verbatim_" + name for name in "submit cancel poll count error".split()],
    "test_start_check": ["gpu_launch", "trig_sin"] + ["cpu_" + stem for stem in sorted(EMULATED)],
    "test_schedules": ["cpu_qkv_rope", "cpu_sample", "pages_find", "pages_give", "verbatim_open"],
    "test_schedule": LATE_MACHINE, "test_schedule_pages": LATE_MACHINE, "test_schedule_random": LATE_MACHINE,
    "test_frozen": ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "mmap"],
    "test_widen": ["cpu_kv_widen", "verbatim_open"],
    "test_trace": ["cpu_gemm", "cpu_moe_gemm"],
    "test_tokenizer": ["malloc", "calloc", "realloc"],
    "test_weights": ["gpu_upload", "gpu_record", "gpu_event_sync", "gpu_event_done"],
    "test_weights_scaled": ["gpu_upload", "gpu_record", "gpu_event_sync", "gpu_event_done"],
}

# tests/fuzz/fuzz_<name>.c -> build/fuzz/fuzz_<name>, with clang's libFuzzer.
FUZZERS = """
chat config deploy eval_manifest eval_report eval_task jsonl plan profile receipt safetensors safetensors_index score_jsonl serve_body
serve_door split_pattern text tiktoken tokenizer_json trace
""".split()

# === Flags ==================================================================================================================

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wvla", "-Wstrict-prototypes",
            "-Wmissing-prototypes", "-Werror"]
# -ffp-contract=off: a fused multiply-add is always written, never inferred (NUMERICS.md). No -march: the instruction set
# of a file is part of its name and never leaks into another file. One set of objects serves the program and the shared library,
# which shows what verbatim.h marks and nothing else.
CFLAGS = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", "-g", "-ffp-contract=off", "-fPIC", "-fvisibility=hidden"] + WARNINGS
INCLUDES = ["-I.", "-Iengine", "-Iplanner", "-Ikernels_src"]
# Of the emulator only. The kernels' `#pragma unroll` is unknown to g++; thread_local arrays elsewhere have no constructors.
CXXFLAGS = ["-std=c++17", "-O2", "-g", "-ffp-contract=off", "-fno-extern-tls-init", "-Wall", "-Wextra", "-Wpedantic",
            "-Wconversion", "-Wshadow", "-Wvla", "-Werror", "-Wno-unknown-pragmas", "-Wno-psabi",
            "-I.", "-Itests/emulator", "-Ikernels_src"]
INSTRUCTION_SETS = {
    "_avx2": "-mavx2 -mfma -mf16c",
    "_avx512": "-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c",
}
# The macro is gcc's own; clang gets it by hand.
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-D__SANITIZE_ADDRESS__=1"]
# Static but for libc and libm, so that the program can be copied to the machine with the GPU. xxhash stands before fyaml,
# whose archive holds an old copy of the same symbols: the first one met is taken.
LIBRARIES = ["-l:libxxhash.a", "-l:libfyaml.a", "-l:libjansson.a", "-l:libpcre2-8.a", "-l:libzstd.a", "-lm"]
# A copy of libmicrohttpd's archive is made that does not need GnuTLS (engine/serve_tls.c) and waits with our epoll_wait (serve_epoll.c).
HTTP_LIBRARY = "libmicrohttpd.a"
HTTP_USERS = ["engine/serve_http.c"]
HTTP_NAMES = ["--wildcard", "--weaken-symbol='gnutls_*'", "--redefine-sym gnutls_global_init=serve_tls_begin",
              "--redefine-sym gnutls_global_deinit=serve_tls_end", "--redefine-sym gnutls_malloc=serve_tls_allocate",
              "--redefine-sym epoll_wait=serve_epoll_wait"]
# Of libverbatim.so: a shared library cannot hold the archives, which are compiled for programs.
SHARED_LIBRARIES = ["-lxxhash", "-ljansson", "-lpcre2-8", "-lm"]

PREFIX = "/usr/local"
PUBLIC_SOURCE, PUBLIC_HEADER = "engine/verbatim.c", "engine/verbatim.h"


def soname():
    """Carries major and minor version: before 1.0 every minor version may change the header."""
    with open(PUBLIC_HEADER, encoding="utf-8") as file:
        return "libverbatim.so." + re.search(r'#define VERBATIM_VERSION "(\d+\.\d+)\.', file.read()).group(1)


class NinjaWriter:
    """The part of ninja's syntax that is used here. Paths hold no spaces, colons or dollars."""

    def __init__(self):
        self.lines = []

    def comment(self, text):
        self.lines += ["", "# " + text]

    def variable(self, name, words, indent=""):
        text = words if isinstance(words, str) else " ".join(words)
        self.lines.append((indent + name + " = " + text).rstrip())

    def rule(self, name, **variables):
        self.lines.append("rule " + name)
        for key, value in variables.items():
            self.variable(key, value, "  ")

    def build(self, outputs, rule, inputs=(), implicit=(), order_only=(), **variables):
        words = ["build", *as_list(outputs)]
        words[-1] += ":"
        words += [rule, *as_list(inputs)]
        words += ["|", *implicit] if implicit else []
        words += ["||", *order_only] if order_only else []
        self.lines.append(" ".join(words))
        for key, value in variables.items():
            self.variable(key, value, "  ")

    def default(self, targets):
        self.lines.append("default " + " ".join(targets))

    def text(self):
        return "\n".join(self.lines) + "\n"


def as_list(value):
    return [value] if isinstance(value, str) else list(value)


def library_sources():
    return (["engine/%s.c" % name for name in ENGINE] + ["engine/cpu/%s.c" % name for name in CPU] +
            ["planner/%s.c" % name for name in PLANNER])


def program_sources():
    return ["engine/%s.c" % name for name in PROGRAM + SERVER]


def tool_sources():
    return ["tools/%s.c" % name for name in TOOLS]


def test_sources():
    return ["tests/%s/test_%s.c" % (folder, name) for folder, names in TESTS.items() for name in names]


def gpu_test_sources():
    return ["tests/gpu/test_%s.c" % name for name in GPU_TESTS]


def fuzz_sources():
    return ["tests/fuzz/fuzz_%s.c" % name for name in FUZZERS]


def all_sources():
    """Every .c and .cpp that the build compiles from the tree; tools/tidy.py compares it with the tree."""
    support = {path for paths in [*TEST_SUPPORT.values(), SCHEDULE_FUZZ_MAIN] for path in paths}
    return (library_sources() + program_sources() + tool_sources() + test_sources() + gpu_test_sources() +
            fuzz_sources() + sorted(support - set(program_sources())) + [EMULATOR, EMULATED_KERNEL, EXAMPLE])


class Variant:
    """One way of compiling everything: objects under <root>/obj, a compiler and extra flags."""

    def __init__(self, ninja, builddir, root, cc_rule, link_rule):
        self.ninja, self.builddir, self.root = ninja, builddir, root
        self.cc_rule, self.link_rule = cc_rule, link_rule
        self.objects = {}

    def object(self, source):
        if source not in self.objects:
            stem = source[:-2]
            generated = self.builddir + "/"
            inner = stem[len(generated):] if stem.startswith(generated) else stem
            output = "%s/obj/%s.o" % (self.root, inner)
            flags = ["-O2"] if inner.startswith("engine/cpu/") else []  # under the sanitizers, too: half of the time of their tests
            flags += [value for suffix, value in INSTRUCTION_SETS.items() if stem.endswith(suffix)]
            self.ninja.build(output, self.cc_rule, source, **({"isa": flags} if flags else {}))
            self.objects[source] = output
        return self.objects[source]

    def library(self, generated):
        output = self.root + "/libverbatim.a"
        self.ninja.build(output, "ar", [self.object(source) for source in library_sources() + generated])
        return output

    def shared(self, library):
        """libverbatim.so, and the example that is linked to it: the public source, and what it needs of the library."""
        output, link = "%s/%s" % (self.root, soname()), self.root + "/libverbatim.so"
        self.ninja.build(output, "link_shared", [self.object(PUBLIC_SOURCE), library], soname=soname())
        self.ninja.build(link, "symlink", output, target=soname())
        example = self.root + "/embed_example"
        self.ninja.build(example, "example", EXAMPLE, [link, self.builddir + "/include/verbatim.h"], folder=self.root)
        return [link, example]

    def binary(self, output, sources, library, libs="", objects=()):
        extra = {"extra_libs": libs} if libs else {}
        self.ninja.build(output, self.link_rule, [self.object(source) for source in sources] + [*objects, library], **extra)
        return output

    def program(self, library):
        return [self.binary(self.root + "/verbatim", program_sources(), library, objects=[self.http_library()])] if PROGRAM else []

    def http_library(self):
        return "%s/gen/%s" % (self.builddir, HTTP_LIBRARY)

    def tests(self, folder, sources, library, emulated=None):
        """emulated: name of a test -> C++ objects linked to it as well."""
        outputs = []
        for source in sources:
            name = os.path.basename(source)[:-2]
            folder_of_source = source.split("/")[1]
            support = TEST_SUPPORT.get(folder_of_source, []) + TEST_SUPPORT.get(name, [])
            wraps = TEST_WRAPS.get(folder_of_source, []) + TEST_WRAPS.get(name, [])
            emulator = (emulated or {}).get(name, [])
            objects = emulator + [self.http_library()] * any(path in HTTP_USERS for path in [source, *support])
            libs = " ".join(["-lcmocka"] + ["-Wl,--wrap=" + function for function in wraps] +
                            ["-l:libstdc++.a -static-libgcc"] * bool(emulator))
            outputs.append(self.binary("%s/%s/%s" % (self.root, folder, name), [source] + support, library, libs, objects))
        return outputs


def write_emulator(ninja, build):
    """Objects of the emulator and of every kernel in it; name of a kernel test -> what is linked to it."""
    machine = build + "/obj/emulator/emulator.o"
    forms = build + "/gen/ptx_forms.cuh"
    ninja.build(forms, "excerpt", "kernels_src/ptx.cuh", lines=r"\|^#define PTX_SWIZZLED|,\|^NUM u64 ptx_operand|p")
    ninja.build(machine, "cxx", EMULATOR, implicit=[forms])
    linked = {}

    def kernel(stem, spec, entry, folder, flaw="", implicit=()):
        output = "%s/obj/emulator/%s.o" % (build, entry)
        values = ["-DSPEC_%s=%du" % item for item in spec.items()]
        ninja.build(output, "cxx_kernel", EMULATED_KERNEL, implicit=[forms, *implicit], stem=stem, entry=entry,
                    text="%s/%s.cu" % (folder, stem), spec=values, flaw=flaw)
        linked.setdefault("test_" + stem, [machine]).append(output)

    for stem, specs in EMULATED.items():
        for i, spec in enumerate(specs):
            kernel(stem, spec, "emulated_%s_%d" % (stem, i), "kernels_src")
    for i, (stem, number, text, edit, flaw) in enumerate(FLAWS):
        folder = "%s/gen/flaw_%d" % (build, i)
        copies = sorted({"%s/%s.cu" % (folder, stem), "%s/%s" % (folder, text)})
        headers = ["kernels_src/" + name for name in KERNEL_TEXTS if name.endswith(".cuh")]
        ninja.build(copies, "break", "kernels_src/" + text, implicit=["kernels_src/%s.cu" % stem, *headers], stem=stem, folder=folder,
                    edit=edit)
        kernel(stem, EMULATED[stem][number], "broken_%d" % i, folder, flaw, copies)
    linked["test_self_check"] = [machine] + [path for paths in linked.values() for path in paths if path != machine]
    return linked


def write_rules(ninja, args):
    ninja.variable("ninja_required_version", "1.5")
    ninja.variable("builddir", args.builddir)
    ninja.variable("cc", args.cc)
    ninja.variable("cflags", CFLAGS + INCLUDES)
    ninja.variable("sanitize", SANITIZE)
    ninja.variable("libs", LIBRARIES)
    ninja.variable("cxxflags", CXXFLAGS)
    ninja.lines.append("")
    depfile = {"depfile": "$out.d", "deps": "gcc"}
    ninja.rule("cc", command="$cc -MMD -MF $out.d $cflags $isa -c $in -o $out", description="CC $out", **depfile)
    ninja.rule("cc_san", command="$cc -MMD -MF $out.d $cflags $sanitize -O1 $isa -c $in -o $out", description="CC $out", **depfile)
    ninja.rule("cc_fuzz", command="clang -MMD -MF $out.d $cflags $isa $sanitize -fsanitize=fuzzer-no-link -O1 -c $in -o $out",
               description="CC $out", **depfile)
    ninja.rule("ar", command="rm -f $out && ar rcsD $out $in", description="AR $out")
    ninja.rule("link", command="$cc -o $out $in $libs $extra_libs", description="LINK $out")
    ninja.rule("link_san", command="$cc $sanitize -o $out $in $libs $extra_libs", description="LINK $out")
    ninja.rule("link_shared", command="$cc -shared -Wl,-z,defs -Wl,-soname,$soname -o $out $in %s" % " ".join(SHARED_LIBRARIES),
               description="LINK $out")
    ninja.rule("symlink", command="ln -sf $target $out", description="LINK $out")
    ninja.rule("copy", command="cp $in $out", description="COPY $out")
    ninja.rule("example", command="$cc -std=c11 -Wall -Wextra -Wpedantic -Werror -I$builddir/include -o $out $in -L$folder -lverbatim "
               "-Wl,-rpath,'$$ORIGIN'", description="EXAMPLE $out")
    ninja.rule("link_fuzz", command="clang $sanitize -fsanitize=fuzzer -o $out $in $libs", description="LINK $out")
    cxx = "g++ -MMD -MF $out.d $cxxflags -I$builddir/gen "
    ninja.rule("cxx", command=cxx + "-c $in -o $out", description="CXX $out", **depfile)
    ninja.rule("cxx_kernel", command=cxx + "$spec -D$stem=$entry -DEMULATED_ENTRY=$entry '-DEMULATED_STEM=\"$stem\"' "
               "'-DEMULATED_TEXT=\"$text\"' '-DEMULATED_SPEC=\"$spec\"' '-DEMULATED_FLAW=\"$flaw\"' -c $in -o $out",
               description="CXX $out", **depfile)
    ninja.rule("http_library", command="objcopy %s $$($cc -print-file-name=%s) $out" % (" ".join(HTTP_NAMES), HTTP_LIBRARY),
               description="OBJCOPY $out")
    ninja.rule("excerpt", command="sed -n '$lines' $in > $out && test -s $out", description="EXCERPT $out")
    ninja.rule("break", command="cp kernels_src/$stem.cu kernels_src/*.cuh $folder/ && sed '$edit' $in > $folder/$$(basename $in) && "
               "! cmp -s $in $folder/$$(basename $in)", description="BREAK $out")
    ninja.rule("embed", command="python3 tools/embed.py -o $out --table $table --header $header $in", description="EMBED $out")
    ninja.rule("configure", command=("python3 configure.py " + configure_arguments(args)).strip(),
               description="CONFIGURE", generator="1")
    prefix = " --prefix " + args.prefix if args.prefix != PREFIX else ""
    ninja.rule("install", command="python3 tools/install.py --builddir $builddir%s $how" % prefix, description="INSTALL $how",
               pool="console")
    ninja.rule("run_tests", command="python3 tools/test.py --builddir $builddir", description="TEST", pool="console")


def configure_arguments(args):
    words = []
    if args.cc != "cc":
        words += ["--cc", args.cc]
    if args.builddir != "build":
        words += ["--builddir", args.builddir]
    if args.prefix != PREFIX:
        words += ["--prefix", args.prefix]
    return " ".join(words)


def output_path(args):
    return "build.ninja" if not configure_arguments(args) else args.builddir + "/build.ninja"


def generate(args):
    build = args.builddir
    ninja = NinjaWriter()
    ninja.lines.append("# Written by configure.py; edit that instead.")
    write_rules(ninja, args)
    ninja.comment("Generated sources and this file")
    generated = [build + "/gen/kernel_sources.c", build + "/gen/profile_shipped.c"]
    ninja.build(generated[0], "embed", ["kernels_src/" + name for name in KERNEL_TEXTS], implicit=["tools/embed.py"],
                table="kernel_sources", header="engine/kernel_sources.h")
    ninja.build(generated[1], "embed", ["planner/profiles/%s.json" % name for name in PROFILES], implicit=["tools/embed.py"],
                table="profile_shipped", header="planner/profile_shipped.h")
    ninja.build("%s/gen/%s" % (build, HTTP_LIBRARY), "http_library")
    ninja.build(output_path(args), "configure", implicit=["configure.py"])

    ninja.comment("The program, its library, tools and tests")
    plain = Variant(ninja, build, build, "cc", "link")
    library = plain.library(generated)
    ninja.build(build + "/include/verbatim.h", "copy", PUBLIC_HEADER)
    shared = plain.shared(library)
    program = plain.program(library)
    tools = [plain.binary("%s/%s" % (build, name), ["tools/%s.c" % name], library) for name in TOOLS]
    schedule_fuzz = plain.binary(build + "/schedule_fuzz", SCHEDULE_FUZZ_MAIN + SCHEDULE_FUZZ, library)
    emulated = write_emulator(ninja, build)
    tests = plain.tests("tests", test_sources(), library, emulated) + plain.tests("gpu_tests", gpu_test_sources(), library)

    ninja.comment("The same under AddressSanitizer and UndefinedBehaviorSanitizer")
    san = Variant(ninja, build, build + "/san", "cc_san", "link_san")
    san_library = san.library(generated)
    san_fuzz = san.binary(build + "/san/schedule_fuzz", SCHEDULE_FUZZ_MAIN + SCHEDULE_FUZZ, san_library)
    san_all = [san_library, san_fuzz] + san.program(san_library) + san.tests("tests", test_sources(), san_library)

    ninja.comment("Fuzzers (clang only, never built by default)")
    fuzz_all = []
    if FUZZERS:
        fuzz = Variant(ninja, build, build + "/fuzz", "cc_fuzz", "link_fuzz")
        fuzz_library = fuzz.library(generated)
        fuzz_all = [fuzz.binary("%s/fuzz/fuzz_%s" % (build, name), [source] + TEST_SUPPORT.get("fuzz_" + name, []), fuzz_library)
                    for name, source in zip(FUZZERS, fuzz_sources())]

    ninja.comment("Names to build by")
    default = [library] + shared + program + tools + [schedule_fuzz]
    ninja.build("all", "phony", default)
    ninja.build("tests", "phony", tests)
    ninja.build("san", "phony", san_all)
    ninja.build("fuzz", "phony", fuzz_all)
    ninja.build("install", "install", order_only=["all"])
    ninja.build("uninstall", "install", order_only=["all"], how="--uninstall")
    ninja.build("test", "run_tests", order_only=["all", "tests", "san"])
    ninja.default(["all"])
    return ninja.text()


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description="Writes build.ninja.")
    parser.add_argument("--cc", default="cc", help="C compiler (default: cc)")
    parser.add_argument("--builddir", default="build", help="folder of everything that is built (default: build)")
    parser.add_argument("--prefix", default=PREFIX, help="where `ninja install` puts things, below $DESTDIR (default: %s)" % PREFIX)
    return parser.parse_args(argv)


def main():
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    args = parse_arguments(sys.argv[1:])
    path = output_path(args)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="ascii", newline="\n") as file:
        file.write(generate(args))


if __name__ == "__main__":
    main()
