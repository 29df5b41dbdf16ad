/* test_first_hour.c - what a newcomer types: a model and nothing else. The plan that is made on the way, where it is kept, and that it is
 * never replaced; device-memory-bytes: auto. */
#define _DEFAULT_SOURCE /* mkdtemp */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "e2e.h"
#include "engine/base/base.h"

static e2e_model tiny;

/* The command ends with the code, and prints the word. C is the cache folder, P the one plan in it, O the options that all runs share. */
static void expect(int code, const char *word, const char *command) {
  static const char setup[] = "export XDG_CACHE_HOME=$PWD/cache && C=cache/verbatim/plans && "
                              "O='--device cpu --threads 1 --max-tokens 3 --quiet' && L='--device cpu --threads 1' && ";
  char text[16384];
  const int found = e2e_shell(&tiny, setup, command, text, sizeof text);
  if (found != code || !strstr(text, word)) fail_msg("%s: expected %d and \"%s\", found %d and \"%s\"", command, code, word, found, text);
}

/* A model folder is enough. The plan and the deployment that gives it are kept. */
static void a_model_is_enough(void **state) {
  (void)state;
  expect(0, ": made for three quarters of ", "rm -rf cache; $V run $TINY 'count 3:' $L --max-tokens 3");
  expect(0, "2\n", "ls $C | wc -l");
  expect(0, ": found, made for ", "$V run $TINY 'count 3:' $L --max-tokens 3");
  expect(0, "2\n", "ls $C | wc -l");
  expect(0, "to use it by name: verbatim COMMAND PLAN MODEL_DIR", "$V run $TINY 'count 3:' $L --max-tokens 3 > a");
  expect(0, "", "$V run $C/*.plan $TINY 'count 3:' $O > b && cmp a b");
  expect(0, "", "$V plan $TINY --config $C/*.yaml -o q --quiet && cmp q $C/*.plan && grep -q '^device-memory-bytes: [0-9]*$' $C/*.yaml");
  expect(0, "[1]", "printf '{\"ids\": [1, 2]}\\n' > j && $V score $TINY --jsonl j $L --output text --quiet > s; cat s; echo '[1]'");
  expect(0, "2\n", "ls $C | wc -l");
}

/* `eval` without --plan and --output. */
static void an_evaluation_of_a_model(void **state) {
  (void)state;
  expect(0, "results go to eval-", "rm -rf eval-* && $V eval $TINY/tasks/exact.yaml --model $TINY --limit 1 $L > out && "
                                   "test -f eval-*/manifest.json && $V replay eval-*/manifest.json --quiet --device cpu > r; tail -n 1 r; "
                                   "grep -q '^equal: ' r && rm -rf eval-* && $V eval $TINY/tasks/exact.yaml --model $TINY --limit 1 $L");
}

/* What the deployment says stands in the plan; what it does not say is chosen, and another deployment is another plan. */
static void a_deployment_without_a_plan(void **state) {
  (void)state;
  expect(0, "max-model-len 256, max-num-seqs 3, ",
         "rm -rf cache; printf 'max-model-len: 256\\nmax-num-seqs: 3\\ndevice: cpu\\n' > d && "
         "$V score $TINY --config d --jsonl j --threads 1 && test $(ls $C/*.plan | wc -l) = 1 && "
         "printf 'device-memory-bytes: auto\\nmax-num-seqs: 3\\n' > d && $V score $TINY --config d --jsonl j $L && "
         "test $(ls $C/*.plan | wc -l) = 2");
  expect(0, "made in the cache folder", "$V doctor $TINY --config d --device cpu");
  expect(6, "does not fit", "echo 'device-memory-bytes: 1MiB' > d && $V score $TINY --config d --jsonl j $L");
  expect(0, "device-memory-bytes: auto is ", "printf 'device: cpu\\n' > d && $V plan $TINY --config d --device-memory-bytes auto -o q");
  expect(4, "expected a whole number, found \"lots\"", "$V plan $TINY --device-memory-bytes lots -o q");
  expect(0, "d.plan: made from d", "printf 'plan: d.plan\\ndevice-memory-bytes: auto\\n' > d && $V score $TINY --config d --jsonl j $L");
  expect(0, "", "$V score $TINY --config d --jsonl j $L --quiet > s && test ! -e $C/d.plan");
}

/* A file in the plan's place is never replaced, and without a folder there is no plan. */
static void nothing_is_replaced(void **state) {
  (void)state;
  expect(0, "", "rm -rf cache; $V run $TINY x $O > a && cp $C/*.plan whole");
  expect(8, "expected the plan that its name stands for", "printf x | dd of=$(ls $C/*.plan) bs=1 seek=900 conv=notrunc 2> e; "
                                                          "$V run $TINY x $O");
  expect(0, "", "! cmp -s whole $C/*.plan && rm $C/*.plan && $V run $TINY x $O > b && cmp whole $C/*.plan && cmp a b");
  expect(4, "found an empty file", ": > $(ls $C/*.plan) && $V run $TINY x $O");
  expect(2, "--cache-dir DIR", "$V run $TINY x $O --cache-dir ''");
  expect(0, "", "$V run $TINY x $O --cache-dir other > b && cmp -s whole other/plans/*.plan");
  expect(3, "expected a folder that can be written", "echo > file && $V run $TINY x $O --cache-dir file/sub");
  expect(3, "the plan comes before the model folder", "$V run $TINY whole x $O");
  expect(2, "found also \"x\"", "$V score $TINY x $L");
  expect(4, "config.json", "mkdir -p broken && echo '{' > broken/config.json && $V run broken x $O");
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_model_is_enough), cmocka_unit_test(an_evaluation_of_a_model),
                                     cmocka_unit_test(a_deployment_without_a_plan), cmocka_unit_test(nothing_is_replaced)};
  e2e_begin(argc, argv);
  snprintf(tiny.folder, sizeof tiny.folder, "/tmp/verbatim-first-hour-XXXXXX");
  if (!mkdtemp(tiny.folder)) return 1;
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  char text[256];
  e2e_shell(&tiny, "", "rm -rf \"$PWD\"", text, sizeof text);
  return failed;
}
