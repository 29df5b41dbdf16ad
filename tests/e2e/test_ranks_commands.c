/* test_ranks_commands.c - every command with a plan of two ranks, which the CPU runs in lockstep: the results are byte for byte those of a
 * plan of one rank, a receipt of either verifies with the other, and what several ranks cannot do is refused by name.
 *
 * test_ranks.c compares receipts and traces of every structure; test_bench.c has `bench`, tests/unit/test_libverbatim.py the library. The
 * controls change a prompt or a digit, which is found. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>
#include "shell.h"
#include "engine/base/base.h"

/* `each f` calls f with the plan of one rank as $1 and N=1, then with that of two and N=2. */
#define SETUP "D='--device cpu --threads 1 --quiet' && each() { N=1 && \"$@\" one && N=2 && \"$@\" two; } && "

static e2e_model model; /* its scratch folder has the plans `one` and `two` of the shipped model */

/* === Results are equal ====================================================================================================== */

static void run_and_diff(void **state) {
  (void)state;
  expect(0, "", "r() { $V run $1 $TINY $D 'add: 12+34=' 'sort: 3 1 2' --temperature 1 --n 2 --logprobs 3 --receipt r$N "
                "--logits l$N --trace t$N --output jsonl > o$N 2> e$N; } && each r && cmp o1 o2 && cmp e1 e2 && cmp l1 l2 && cmp t1 t2");
  expect(0, "", "sed 2d r1 > a && sed 2d r2 > b && cmp a b && sed -n 2p r1 | grep -q '\"ranks\":1,' && "
                "sed -n 2p r2 | grep -q '\"ranks\":2,'");
  expect(0, "", "$V diff r1 r2 && $V diff r1 r2 --trace t1 t2");
  expect(0, "", "s() { printf 'add: 1+2=\\nadd: 2+3=\\n' | $V run $1 $TINY $D --batch 1 --chunk 3 --slot-offset 2 --shuffle-pages 7 "
                "--poison --no-prefix-cache --exchange-timeout 5 --check-exchanges "
                "--receipt s$N > p$N 2> e$N; } && each s && cmp p1 p2 && cmp e1 e2");
  expect(8, "differ", "$V run two $TINY $D 'add: 12+35=' 'sort: 3 1 2' --temperature 1 --n 2 --receipt r3 > o3 2> e3; $V diff r1 r3");
}

static void verify_on_the_other(void **state) {
  (void)state;
  expect(0, "4 requests verified, 0 differ", "$V verify r1 two $TINY $D 2>&1");
  expect(0, "4 requests verified, 0 differ", "$V verify r2 one $TINY $D 2>&1");
  expect(0, "", "head -3 r2 > part && ! grep -q '\"digest\"' part && $V verify part one $TINY $D > o 2>&1 && cat o");
  expect(0, "", "sed 's/\"ranks\":2,//' r2 > old && $V verify old one $TINY $D > o 2>&1");
  expect(8, "digest", "sed '3s/\"seed\":\"0/\"seed\":\"1/' r2 > wrong && $V verify wrong one $TINY $D");
}

static void score_and_calibrate(void **state) {
  (void)state;
  expect(0, "", "printf '{\"context\":\"add: 1+2=\",\"continuations\":[\"3\",\"4\"],\"answer\":0}\\n{\"text\":\"add: 7+8=15\"}\\n' > j && "
                "s() { $V score $1 $TINY $D --jsonl j --logprobs 2 --receipt r$N > o$N 2> e$N; } && each s && cmp o1 o2 && "
                "sed 2d r1 > a && sed 2d r2 > b && cmp a b && test -s o1");
  expect(0, "", "head -30 $TINY/items.jsonl > few && c() { cp -r $TINY m$N && $V calibrate $1 m$N $D --jsonl few > o$N 2> e$N; } && "
                "each c && cmp m1/kv_scales.safetensors m2/kv_scales.safetensors");
}

static void eval_and_replay(void **state) {
  (void)state;
  expect(0, "", "mkdir tasks && awk 'NR % 40 == 5' $TINY/items.jsonl > items.jsonl && printf 'name: t\\nkind: generate\\n"
                "items: ../items.jsonl\\ngeneration: {max_tokens: 12}\\n' > tasks/t.yaml && e() { $V eval tasks/t.yaml --plan $1 --model "
                "$TINY $D --output ev$N > o$N 2> e$N; } && each e && cmp ev1/results.jsonl ev2/results.jsonl && cmp o1 o2");
  expect(0, "", "$V replay ev1/manifest.json --plan two $D > o 2>&1 && $V replay ev2/manifest.json --plan one $D > o 2>&1");
  expect(0, "", "sed -i '2s/\"correct\":true/\"correct\":false/' ev2/results.jsonl && "
                "! $V replay ev2/manifest.json --plan one $D > o 2>&1");
}

/* The server's replies differ in names and times only. */
static void serve_a_plan(void **state) {
  (void)state;
  expect(0, "", "q() { python3 -c \"import sys, urllib.request as u; print(u.urlopen(u.Request(open('ready').read().strip() + sys.argv[1], "
                "sys.argv[2].encode() or None, {'Content-Type': 'application/json'})).read().decode())\" \"$@\"; } && "
                "s() { $V serve $1 $TINY $D --port 0 --served-model-name m --ready-file ready > log$N 2>&1 & p=$! && "
                "for i in $(seq 600); do test -s ready && break; sleep 0.1; done; q /v1/completions '{\"model\":\"m\",\"prompt\":"
                "\"sort: 3 1 2\",\"temperature\":1,\"seed\":5,\"logprobs\":2}' > a$N; q /metrics '' > x$N; kill $p; wait $p; "
                "rm ready; } && each s && python3 -c \"import json; a, b = [json.load(open(n)) for n in ('a1', 'a2')]; assert "
                "a['choices'] == b['choices'] and a['usage'] == b['usage'] and a['choices'][0]['text'], (a, b)\" && "
                "grep -qx 'verbatim_ranks 1' x1 && grep -qx 'verbatim_ranks 2' x2");
}

/* === Audit ================================================================================================================== */

/* Traces are equal, so that a plan of one rank audits them all. */
static void audit_needs_one_rank(void **state) {
  (void)state;
  expect(0, "", "$V run two $TINY $D 'add: 12+34=' --max-tokens 2 --trace t --trace-values audit:layer=1 > o 2> e");
  expect(5, "audit: two is a plan of 2 GPUs, expected one of a single GPU; hint: their traces are equal",
         "$V audit t two $TINY --threads 1 --quiet");
  expect(0, " 0 differ.", "$V audit t one $TINY --threads 1 --quiet --layer 1");
}

/* === What needs GPUs ======================================================================================================== */

static void no_gpus(void **state) {
  (void)state;
  expect(7, "--device cpu", "CUDA_VISIBLE_DEVICES= $V run two $TINY --device gpu --quiet x");
  expect(7, "--device cpu", "CUDA_VISIBLE_DEVICES= $V bench two --quiet");
  expect(5, "hint: tensor-parallel-size: 4", "$V plan $TINY -o three --tensor-parallel-size 3");
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(run_and_diff), cmocka_unit_test(verify_on_the_other), cmocka_unit_test(score_and_calibrate),
    cmocka_unit_test(eval_and_replay), cmocka_unit_test(serve_a_plan), cmocka_unit_test(audit_needs_one_rank),
    cmocka_unit_test(no_gpus)};
  e2e_begin(argc, argv);
  shell_begin(&model, SETUP);
  e2e_make_model(&model, "tests/data/configs/smallest.json", "max-num-seqs: 1\nmax-num-batched-tokens: 1\nmax-model-len: 64\n"
                                                             "kv_pages: 1\nladder: [1]\n");
  const int made = shell_run("printf 'max-num-seqs: 8\\nmax-num-batched-tokens: 100\\nmax-model-len: 512\\nkv_pages: 64\\n' > y && "
                         "p() { $V plan $TINY --config y --tensor-parallel-size $N -o $1 --quiet; } && each p");
  if (made != 0) fprintf(stderr, "%s", shell.output);
  const int result = made ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
  e2e_remove(&model);
  return result;
}
