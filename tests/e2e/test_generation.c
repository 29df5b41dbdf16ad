/* test_generation.c - generation_config.json: named wherever a model is looked at, in effect only when asked for, and part of an
 * evaluation's manifest. */
#define _DEFAULT_SOURCE /* mkdtemp */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "shell.h"

/* M is a model with recommendations, O are the options of every engine. */
static const char SETUP[] =
  "M=model && O='--device cpu --threads 1 --quiet' && R=\"$V run plan model $O --max-tokens 8 --seed 3\" && ";

static e2e_model tiny;

static int make_model(void **state) {
  (void)state;
  expect(0, "", "cp -r $TINY model && echo '{\"do_sample\": true, \"temperature\": 50, \"top_k\": 300, \"top_p\": 0.97, \"min_p\": null, "
                "\"eos_token_id\": 1}' > model/generation_config.json && cp model/generation_config.json good && "
                "$V plan model -o plan --quiet --max-model-len 128 --max-num-seqs 4 --max-num-batched-tokens 64");
  return 0;
}

static void it_is_named(void **state) {
  (void)state;
  static const char note[] = "generation_config.json has temperature 50, top_k 300, top_p 0.97, which ";
  char word[256];
  snprintf(word, sizeof word, "%sis not used; hint: --generation-config auto", note);
  expect(0, word, "$V plan $M -o q");
  snprintf(word, sizeof word, "unused   sampling       %sis not used", note);
  expect(0, word, "$V doctor plan $M --device cpu");
  snprintf(word, sizeof word, "%sis not used", note);
  expect(0, word, "{ timeout 20 $V serve plan $M --port 0 --device cpu --threads 1 --ready-file ready 2> e & }; "
                  "for i in $(seq 100); do test -s ready && break; sleep 0.1; done; kill $!; wait $!; cat e");
  snprintf(word, sizeof word, "%sare the defaults of requests", note);
  expect(0, word, "rm ready; echo 'generation-config: auto' > d; "
                  "{ timeout 20 $V serve plan $M --config d --port 0 --device cpu --threads 1 --ready-file ready --receipt r 2> e & }; "
                  "for i in $(seq 100); do test -s ready && break; sleep 0.1; done; curl -sm 10 $(cat ready)/v1/completions --json "
                  "'{\"model\": \"model\", \"prompt\": \"add: 1+1=\", \"top_k\": 5}' > got; kill $!; wait $!; "
                  "grep -q '\"temperature\":\"42480000\",\"top_k\":5,' r && cat e"); /* 50 as an fp32 */
}

static void it_has_effect_when_asked_for(void **state) {
  (void)state;
  expect(0, "", "$R 'add: 820+9918=' | grep -qx 10738 && $R 'add: 820+9918=' --generation-config none | grep -qx 10738");
  expect(0, "", "$R 'add: 820+9918=' --temperature 50 --top-k 300 --top-p 0.97 > a && ! grep -qx 10738 a && "
                "$R 'add: 820+9918=' --generation-config auto | cmp - a");
  expect(0, "", "$R 'add: 820+9918=' --generation-config auto --temperature 0 | grep -qx 10738"); /* given is given */
  expect(0, "", "echo 'add: 820+9918=' | $V chat plan $M $O --max-tokens 8 --seed 3 --generation-config auto | cmp - a");
  expect(0, "", "sed -i 's/\"do_sample\": true/\"do_sample\": false/' model/generation_config.json && "
                "$R 'add: 820+9918=' --generation-config auto | grep -qx 10738; e=$?; cp good model/generation_config.json; exit $e");
  expect(2, "expected auto or none, found \"on\"", "$R x --generation-config on");
  expect(0, "", "rm model/generation_config.json; $R 'add: 820+9918=' --generation-config auto | grep -qx 10738; e=$?; "
                "cp good model/generation_config.json; exit $e");
}

/* 25 is the token of the digit 7, 1 the model's own stop id: 10738 ends after 10. */
static void lengths_and_stop_ids_are_taken(void **state) {
  (void)state;
  static const char note[] = "generation_config.json has max_new_tokens 3, which are the defaults of requests; and stop ids [25], "
   "which end";
  expect(0, "", "echo '{\"max_new_tokens\": 3, \"eos_token_id\": [1, 25], \"max_length\": 20}' > model/generation_config.json; "
                "R=\"$V run plan model $O\"; $R 'add: 820+9918=' --max-tokens 8 --generation-config none | grep -qx 10738 && "
                "$R 'add: 820+9918=' --generation-config auto | grep -qx 10 && $R 'add: 820+9918=' --generation-config auto --ignore-eos "
                "--max-tokens 4 | grep -qx 1073 && $R 'add: 820+9918=' --generation-config auto --ignore-eos | grep -qx 107 && "
                "$R 'add: 820+9918=' --generation-config auto --stop-id 18 | grep -qx 1 && "
                "echo 'add: 820+9918=' | $V chat plan $M $O --generation-config auto | grep -qx 10");
  expect(0, note, "rm -f ready; { timeout 20 $V serve plan $M --generation-config auto --port 0 --device cpu --threads 1 --ready-file "
                  "ready 2> e & }; for i in $(seq 100); do test -s ready && break; sleep 0.1; done; curl -sm 10 $(cat "
                  "ready)/v1/completions "
                  "--json '{\"model\": \"model\", \"prompt\": \"add: 820+9918=\", \"temperature\": 0}' > got; kill $!; wait $!; "
                  "grep -q '\"text\":\"10\"' got && ! grep -q 'not used' e && cat e");
  expect(0, "[25, 1] True 3 8",
                "printf 'name: a\\nkind: generate\\nitems: items.jsonl\\nwhere: {task: add}\\nprompt: \"{{prompt}}\"\\n"
                "answer: \"{{answer}}\"\\nlimit: 2\\ngeneration: {stop_ids: [25]}\\n' > model/a.yaml && sed 's/^name: a/name: b/; "
                "s/stop_ids: .25./ignore_eos: true, max_tokens: 8/' model/a.yaml > model/b.yaml && "
                "sed -i 's/1, 25/25, 1, 1/' model/generation_config.json && "
                "$V eval model/a.yaml model/b.yaml --plan plan --model $M --output ids $O --generation-config auto > s && "
                "python3 -c \"import json; t = json.load(open('ids/manifest.json'))['setup']['tasks']; "
                "a, b = [x['parameters']['generation'] for x in t]; print(a['stop_ids'] + [1], 'stop_ids' not in b, a['max_tokens'], "
                "b['max_tokens'])\" && $V replay ids/manifest.json $O > s");
  expect(4, "eos_token_id: expected token ids", "echo '{\"eos_token_id\": [-1]}' > model/generation_config.json; $V plan $M -o q --quiet");
  expect(4, "max_new_tokens: expected 1", "echo '{\"max_new_tokens\": 0}' > model/generation_config.json; $V plan $M -o q --quiet");
  expect(0, "", "cp good model/generation_config.json");
}

static void wrong_files(void **state) {
  (void)state;
  static const struct { const char *text, *word; } cases[] = {
      {"{\"temperature\": -1}", "temperature: expected 0, or a number of 0.001 to 100"}, {"{\"top_p\": \"x\"}", "top_p: expected 1"},
      {"{\"top_k\": 1.5}", "an integer of 0"}, {"{\"repetition_penalty\": 17}", "repetition_penalty"}, {"[]", "expected a JSON object"},
      {"{", "generation_config.json"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char command[256];
    snprintf(command, sizeof command, "echo '%s' > model/generation_config.json; $V plan $M -o q --quiet", cases[i].text);
    expect(4, cases[i].word, command);
  }
  expect(0, "", "cp good model/generation_config.json");
}

/* A task that states a parameter keeps it. The manifest has the rest, and repeats the run without the file. */
static void an_evaluation_records_it(void **state) {
  (void)state;
  expect(0, "", "printf 'name: add\\nkind: generate\\nitems: items.jsonl\\nwhere: {task: add}\\nprompt: \"{{prompt}}\"\\n"
                "answer: \"{{answer}}\"\\nlimit: 2\\ngeneration: {max_tokens: 8, top_k: 400}\\n' > model/t.yaml && "
                "$V eval model/t.yaml --plan plan --model $M --output out $O --generation-config auto > s && "
                "$V eval model/t.yaml --plan plan --model $M --output plain $O > s");
  expect(0, "400 50", "python3 -c \"import json; s = json.load(open('out/manifest.json'))['setup']; "
                      "g = s['tasks'][0]['parameters']['generation']; print(g['top_k'], g['temperature']); "
                      "assert s['generation_config']['top_k'] == 300; "
                      "p = json.load(open('plain/manifest.json'))['setup']; assert 'generation_config' not in p\"");
  expect(0, "\nequal: 2 items", "mv model/generation_config.json kept; $V replay out/manifest.json $O; e=$?; "
                                "mv kept model/generation_config.json; exit $e");
  expect(0, ": holds", "$V rescore out/manifest.json --task model/t.yaml");
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(it_is_named), cmocka_unit_test(it_has_effect_when_asked_for),
                                     cmocka_unit_test(lengths_and_stop_ids_are_taken),
                                     cmocka_unit_test(wrong_files), cmocka_unit_test(an_evaluation_records_it)};
  e2e_begin(argc, argv);
  shell_begin(&tiny, SETUP);
  snprintf(tiny.folder, sizeof tiny.folder, "/tmp/verbatim-generation-XXXXXX");
  if (!mkdtemp(tiny.folder)) return 1;
  const int failed = cmocka_run_group_tests(tests, make_model, NULL);
  char text[256];
  e2e_shell(&tiny, "", "rm -rf \"$PWD\"", text, sizeof text);
  return failed;
}
