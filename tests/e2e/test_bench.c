/* test_bench.c - `verbatim bench` on the shipped model's plan, on the CPU or, with --device gpu, on the GPU: its output is complete and
 * consistent, a selection of ops is obeyed, and it reports what it cannot do. Times are only checked to be present. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "shell.h"
#include "engine/base/base.h"


/* P is a small plan of the shipped model, B the bench of it, G whether it is on a GPU, j a check in Python of a JSON file d with its ops o,
 * c a check of a picture with f, the colour of each label. */
static const char SETUP[] =
  "P=small && G=True && case \"$D\" in *cpu) G=False;; esac && D=\"$D --threads 1 --quiet\" && B=\"$V bench $P $D\" && "
  "j() { python3 -c \"import json; d = json.load(open('$1')); o = d['ops']; $2\"; } && "
  "c() { python3 -c \"import xml.dom.minidom as m; f = {x.firstChild.firstChild.data.split(':')[0]: x.getAttribute('fill') "
  "for x in m.parse('$1').getElementsByTagName('circle') if x.firstChild}; $2\"; } && ";

static e2e_model tiny;

/* 2 rows decode, 70 belong to a prompt, whose attention uses the other form. */
static void everything_is_measured(void **state) {
  (void)state;
  expect(0, "prompts    tokens", "$B --rows 2,70 --context 100 --json all --roofline all.svg > table && cat table");
  expect(0, "lm_head                 2              1", "cat table");
  expect(0, "", "python3 -c \"import xml.dom.minidom as m; d = m.parse('all.svg'); "
                "assert 30 < len(d.getElementsByTagName('circle')) < 80\"");
  expect(0, "", "j all \"assert {x['rows'] for x in o} == {2, 70} and all(x['us'] >= x['us_least'] > 0 for x in o)\"");
  expect(0, "", "j all \"assert {x['kernel'] for x in o} == set('embed rmsnorm qkv_rope gemm attn_cut mla_attn mla_fold "
                "router moe_sort moe_gemm sample row_digest adjust'.split())\"");
  expect(0, "", "j all \"assert all((x['context'] == 100) == (x['op'] in ('mla_attn', 'mla_fold')) for x in o)\"");
  expect(0, "", "j all \"assert [x['cost']['weight_bytes'] for x in o if x['op'] == 'lm_head'] == [768 * 192 * 2]\"");
  expect(0, "", "j all \"assert [x['cost']['kv_bytes'] for x in o if x['op'] == 'mla_attn'] == [2 * 100 * 1152, 100 * 1152]\"");
  expect(0, "", "j all \"assert [x['instances'] for x in o if x['op'] in ('qkv_a', 'router', 'gate_up')] == [1, 4, 3] * 2\"");
  expect(0, "", "j all \"e = [x for x in o if x['kernel'] == 'moe_gemm']; assert len(e) == 4 and "
                "all(2 <= x['experts_used'] <= min(8, 2 * x['rows']) and "
                "x['cost']['weight_bytes'] == x['experts_used'] * 2 * 64 * 192 * (2 if 'gate' in x['op'] else 1) for x in e)\"");
  expect(0, "", "j all \"assert {(x['batch'], x['context']) for x in d['decode']} == {(1, 100), (4, 100), (8, 100)}\"");
  expect(0, "", "j all \"assert all(abs(x['tokens_per_s'] * x['step_us'] / x['batch'] / 1e6 - 1) < 1e-3 for x in d['decode'])\"");
  expect(0, "", "j all \"assert [(x['prompts'], x['tokens'], x['steps']) for x in d['prefill']] == [(1, 512, 6)]\"");
  expect(0, "", "j all \"assert d['device']['is_gpu'] is $G and d['start']['kernels_s'] > 0 and (d['floor_bytes_per_s'] > 0) is $G\"");
  expect(0, "", "N=$($V show $P | sed -n 's/^numerics id *//p') && grep -q \"\\\"numerics_id\\\": \\\"$N\\\"\" all && grep -q $N table");
}

/* A row uses two experts in each layer, so that a step of one row has the bytes of its ops. */
static void experts_of_e4m3_count(void **state) {
  (void)state;
  expect(0, "", "mkdir scaled && cp $TINY/../oracle/small-v3-fp8.json scaled/config.json && printf 'max-num-seqs: 8\n"
                "max-num-batched-tokens: 100\nmax-model-len: 512\nkv_pages: 64\n' > e && $V plan scaled --config e -o fp8 --quiet && "
                "$V bench fp8 $D --rows 1,70 --context 100 --gb-per-s 10 --tflop-per-s 1e6 --json fp8.json --roofline fp8.svg > table");
  expect(0, "", "j fp8.json \"e = [x for x in o if x['kernel'] == 'fp8_moe_gemm']; assert [(x['op'], x['rows']) for x in e] == "
                "[('experts ' + w, r) for r in (1, 70) for w in ('gate_up', 'down')] and [x['experts_used'] for x in e[:2]] == [2, 2] "
                "and all(2 < x['experts_used'] <= 8 for x in e[2:]) and all(x['experts_used'] is None for x in o if x not in e)\"");
  /* Codes and a scale of 4 bytes for each block of 128 x 128; 704 rows have 5.5 blocks, and 6 scales. */
  expect(0, "", "j fp8.json \"s = {'experts gate_up': (256, 256), 'experts down': (256, 128), 'qkv_a': (704, 256)}; "
                "b = {w: n * k + 4 * -(-n // 128) * (k // 128) for w, (n, k) in s.items()}; t = [x for x in o if x['op'] in s]; "
                "assert len(t) == 6 and "
                "all(x['cost']['weight_bytes'] == (x['experts_used'] or 1) * b[x['op']] for x in t)\"");
  expect(0, "", "j fp8.json \"assert all(abs(x['floor_us'] / sum(v for k, v in x['cost'].items() if 'bytes' in k) * 1e4 - 1) < 1e-3 "
                "for x in o if x['rows'] == 1)\"");
  expect(0, "", "j fp8.json \"s = [x for x in d['decode'] if x['batch'] == 1][0]; c = s['cost']; assert all(c[k] == "
                "sum(x['cost'][k] * x['instances'] for x in o if x['rows'] == 1) for k in ('weight_bytes', 'kv_bytes')) and "
                "abs(s['floor_us'] / (c['weight_bytes'] + c['kv_bytes']) * 1e4 - 1) < 1e-3\"");
  /* FLOPs of e4m3 numbers take half as long; here bytes cost nothing. */
  expect(0, "", "j fp8.json \"assert all(x['cost']['e4m3_flops'] == (x['cost']['flops'] if x['kernel'][:4] == 'fp8_' else 0) "
                "for x in o)\" && "
                "grep -q '>e4m3 2e+06 TFLOP/s<' fp8.svg && $V bench fp8 $D --rows 1 --context 100 --op experts,lm_head --gb-per-s 1e9 "
                "--tflop-per-s 1e-6 --json slow > table");
  expect(0, "", "j slow \"assert len(o) == 4 and all(abs(x['floor_us'] / x['cost']['flops'] - (.5 if x['kernel'][:4] == 'fp8_' else 1)) "
                "< 1e-3 for x in o)\"");
  expect(0, "", "c fp8.svg \"assert f['qkv_a 1'] == f['lm_head 1'] and len({f[x] for x in ('qkv_a 1', 'experts gate_up 1', 'embed 1')}) "
                "== 3 and f['experts gate_up 1'] == f['experts down 1']\"");
}

/* Every op of a rank counts once: what it reads of its own weights, and what it sends. Bytes in memory and FLOPs cost nothing here. */
static void a_rank_is_measured(void **state) {
  (void)state;
  expect(0, "", "printf 'max-num-seqs: 8\nmax-num-batched-tokens: 100\nmax-model-len: 512\nkv_pages: 64\n' > r && "
                "$V plan $TINY --config r --tensor-parallel-size 2 -o two --quiet && "
                "$V bench two --device cpu --quiet --rows 1,70 --context 100 --gb-per-s 1e9 --tflop-per-s 1e6 --link-gb-per-s 10 "
                "--json two.json > table");
  expect(0, "gpu_count    2", "cat table");
  expect(0, "GB/s to other GPUs", "cat table");
  expect(0, "exchanges us  of it", "cat table");
  expect(0, "", "j two.json \"s = {(x['op'], x['rows'], x['instances']): x['cost']['sent_bytes'] / x['rows'] for x in o "
                "if x['kernel'] in ('exchange', 'rank_norm')}; assert s['attn_value exchange', 1, 4] == 256 and "
                "s['gate_up exchange', 70, 1] == 384 and s['logits exchange', 1, 1] == 1536 and s['post_norm', 1, 4] == 384 and "
                "s['experts gate_up exchange', 70, 3] == 192\"");
  expect(0, "", "j two.json \"t = [x for x in o if x['cost']['sent_bytes']]; assert len(t) >= 12 and all(abs(x['floor_us'] * 1e4 / "
                "x['cost']['sent_bytes'] - 1) < 1e-3 for x in t) and {x['kernel'] for x in t} == {'exchange', 'rank_norm'}\"");
  expect(0, "", "! grep -qi nccl table && j two.json \"assert all(x['nccl_us'] is None for x in o) and d['device']['nccl_version'] == 0\"");
  expect(0, "", "j two.json \"assert [x['cost']['weight_bytes'] for x in o if x['op'] == 'lm_head'] == [384 * 192 * 2]\"");
  expect(0, "", "j two.json \"s = [x for x in d['decode'] if x['batch'] == 1][0]; e = [x for x in o if x['rows'] == 1]; "
                "t = sum(x['us'] * x['instances'] for x in e if x['cost']['sent_bytes']); assert abs(s['exchanges_us'] / t - 1) < 1e-3 "
                "and 0 < t < s['ops_us'] and s['cost']['sent_bytes'] == sum(x['cost']['sent_bytes'] * x['instances'] for x in e) and "
                "abs(s['floor_us'] * 1e4 / s['cost']['sent_bytes'] - 1) < 1e-3 and d['gpu_count'] == 2\"");
  expect(0, "", "$B --rows 1 --context 10 --json one.json > table && ! grep -q exchange table && j one.json \"assert "
                "d['gpu_count'] == 1 and all(x['cost']['sent_bytes'] == 0 for x in o)\"");
}

static void a_choice_is_kept(void **state) {
  (void)state;
  expect(0, "", "$B --rows 1 --op experts,o_proj --json some --gb-per-s 10 --tflop-per-s 1e6 > table && ! grep -q 'decode' table");
  expect(0, "", "j some \"assert [x['op'] for x in o] == ['o_proj', 'experts gate_up', 'experts down']\"");
  expect(0, "", "j some \"assert [x['experts_used'] for x in o] == [None, 2, 2]\""); /* of one token, as many as it takes */
  expect(0, "", "j some \"assert d['decode'] == [] and all(abs(x['floor_us'] / sum(v for k, v in x['cost'].items() if 'bytes' in k) "
                "* 1e4 - 1) < 1e-3 for x in o)\"");
  expect(0, "", "$B --rows 1 --op embed,o_proj --graph-us 3000 --json long > table && j long \"assert len(o) == 2 and "
                "all(x['launches'] * x['us'] >= 2000 for x in o) and all(x['launches'] < 100 for x in json.load(open('some'))['ops'])\"");
  expect(0, "", "$B --no-ops --context 10 --json steps > table && j steps \"assert o == [] and len(d['decode']) == 3\"");
  expect(0, "", "$B --no-ops --context 10 --prompt 7,300 --json prompts > table && "
                "j prompts \"assert [(x['prompts'], x['tokens']) for x in d['prefill']] == [(1, 7), (1, 300)]\"");
}

/* Whatever else is timed, on whichever backend and how often: the tokens go to the same experts. */
static void the_routing_is_that_of_the_step(void **state) {
  (void)state;
  expect(0, "", "$B --rows 5 --json one > table && $V bench $P --device cpu --threads 2 --quiet --rows 5 --op experts --json two > table");
  expect(0, "", "j one \"e = json.load(open('two'))['ops']; f = [[(x['op'], x['experts_used'], x['cost']) for x in ops "
                "if x['op'].startswith('experts')] for ops in (o, e)]; assert len(e) == 2 and f[0] == f[1], f\"");
}

static void what_it_cannot_do_is_told(void **state) {
  (void)state;
  static const struct { int code; const char *word, *command; } cases[] = {
    {2, "expected PLAN, found 0 words", "$V bench"},
    {2, "expected PLAN, found 2 words", "$B more"},
    {2, "unknown option --row", "$B --row 1"},
    {2, "--rows: expected 1 to 100, as the plan allows, found 101", "$B --rows 1,101"},
    {2, "--context: expected 1 to 512, as the plan allows, found 513", "$B --context 513"},
    {2, "--prompt: expected 1 to 512, as the plan allows, found 513", "$B --prompt 513"},
    {2, "--op measures no prompts for --prompt", "$B --op embed --prompt 5"},
    {2, "--rows: expected numbers of 1 or more", "$B --rows 0"},
    {2, "--rows: expected numbers of 1 or more", "$B --rows 1-2"},
    {2, "--rows: expected an integer", "$B --rows 1,,2"},
    {2, "--rows: expected at most 16 numbers", "$B --rows 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"},
    {2, "expected names of ops, found \"exp\"", "$B --op o_proj,exp"},
    {2, "expected names of ops, found \"\"", "$B --op ''"},
    {2, "none of these ops runs at these row counts", "$B --op lm_head --rows 70"},
    {2, "none of these ops runs at these row counts", "$B --rows 100 --context 1"},
    {2, "--no-ops leaves nothing", "$B --no-ops --op embed"},
    {2, "--no-ops leaves nothing for --graph-us", "$B --no-ops --graph-us 4000"},
    {2, "--graph-us: expected at most 100000", "$B --graph-us 100001"},
    {2, "--gb-per-s: expected a number above 0", "$B --gb-per-s -1"},
    {2, "--link-gb-per-s: expected a number above 0", "$B --link-gb-per-s 0"},
    {2, "--tax: expected a GPU", "$V bench $P --device cpu --tax profile"},
    {2, "--tax measures no ops", "$B --tax profile --op embed"},
    {2, "--device: expected auto, cpu", "$B --device tpu"},
    {2, "two files for two outputs", "$B --json a --roofline a"},
    {3, "no/where", "$B --json no/where/x"},
    {4, "expected a plan, found another file", "$V bench $TINY/config.json --device cpu"},
    {7, "--device cpu", "CUDA_VISIBLE_DEVICES= $V bench $P"},
    {0, "usage: verbatim bench", "$V bench --help"},
    {0, "  bench ", "$V help"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) expect(cases[i].code, cases[i].word, cases[i].command);
}

static void a_plan_too_small_for_the_defaults(void **state) {
  (void)state;
  expect(0, "decode", "printf 'max-num-seqs: 2\\nmax-num-batched-tokens: 4\\nmax-model-len: 64\\nkv_pages: 1\\nladder: [2]\\n' > y && "
                      "$V plan $TINY --config y -o least --quiet && $V bench least --device cpu --quiet --json least.json");
  expect(0, "", "j least.json \"assert {x['rows'] for x in o} == {1, 4} and "
                "[(x['batch'], x['context']) for x in d['decode']] == [(1, 64)]\"");
}

/* Under fast-prefill: ops of prompts are reported for prompts' tokens and in no decode step, those of generated tokens in no prompt's
 * step. */
static void prompts_have_ops_of_their_own(void **state) {
  (void)state;
  expect(0, "", "printf 'max-num-seqs: 8\\nmax-num-batched-tokens: 100\\nmax-model-len: 512\\nkv_pages: 64\\nparity: fast-prefill\\n"
                "' > y && $V plan $TINY --config y -o fast --quiet && "
                "$V bench fast --device cpu --quiet --rows 2,70 --context 100 --json fast.json --roofline fast.svg > table");
  expect(0, "", "j fast.json \"assert {x['rows'] for x in o if x['kernel'] in ('mla_expand', 'mla_prefill')} == {70}\"");
  expect(0, "", "j fast.json \"assert {x['rows'] for x in o if x['kernel'] in ('mla_attn', 'mla_fold')} == {2}\"");
  expect(0, "", "c fast.svg \"assert f['mla_prefill 70'] == f['mla_expand 70'] == f['mla_attn 2@100'] != f['embed 2']\"");
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(everything_is_measured), cmocka_unit_test(prompts_have_ops_of_their_own),
                                     cmocka_unit_test(a_choice_is_kept), cmocka_unit_test(a_rank_is_measured),
                                     cmocka_unit_test(experts_of_e4m3_count),
                                     cmocka_unit_test(the_routing_is_that_of_the_step), cmocka_unit_test(what_it_cannot_do_is_told),
                                     cmocka_unit_test(a_plan_too_small_for_the_defaults)};
  e2e_begin(argc, argv);
  shell_begin(&tiny, SETUP);
  e2e_make_model(&tiny, "tests/data/configs/smallest.json", "max-num-seqs: 1\nmax-num-batched-tokens: 1\nmax-model-len: 64\n"
                                                            "kv_pages: 1\nladder: [1]\n");
  int made = shell_run("printf 'max-num-seqs: 8\\nmax-num-batched-tokens: 100\\nmax-model-len: 512\\nkv_pages: 64\\n' > y && "
                   "$V plan $TINY --config y -o $P --quiet");
  if (made != 0) fprintf(stderr, "%s", shell.output);
  int result = made ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
  e2e_remove(&tiny);
  return result;
}
