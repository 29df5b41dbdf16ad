/* test_first_hour.c - what a newcomer types: a model and nothing else. The plan that is made on the way, where it is kept, and that it is
 * never replaced; device-memory-bytes: auto; models by their name on the Hub. */
#define _DEFAULT_SOURCE /* mkdtemp */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "shell.h"

/* C is the cache folder, P the one plan in it, O the options that all runs share. */
static const char SETUP[] =
  "export XDG_CACHE_HOME=$PWD/cache && C=cache/verbatim/plans && "
  "O='--device cpu --threads 1 --max-tokens 3 --quiet' && L='--device cpu --threads 1' && ";

static e2e_model tiny;

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

/* === The cache of the Hub =================================================================================================== */

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

/* As `hf download` lays it out: blobs, links to them, and a commit for each branch. */
static void make_hub(void) {
  expect(0, "", "rm -rf hub && mkdir -p hub/models--org--tiny-1.5/blobs hub/models--org--tiny-1.5/refs/refs/pr && "
                "cd hub/models--org--tiny-1.5 && mkdir -p snapshots/" COMMIT " && printf " COMMIT " > refs/main && "
                "printf '" COMMIT "\\n' > refs/refs/pr/1 && for f in $TINY/*.json $TINY/*.safetensors; do "
                "n=$(basename $f); cp $f blobs/x$n && ln -s ../../blobs/x$n snapshots/" COMMIT "/$n; done");
}

static void models_by_name(void **state) {
  (void)state;
  static const char *const found[] = {
      "HF_HUB_CACHE=hub $V run org/tiny-1.5 x $O > b", "HF_HOME=$PWD $V run org/tiny-1.5 x $O > b",
      "mkdir -p home/.cache/huggingface && ln -sfn $PWD/hub home/.cache/huggingface/hub && (unset XDG_CACHE_HOME; HOME=$PWD/home $V run "
      "org/tiny-1.5 x $O > b)",
      "mkdir -p cache/huggingface && ln -sfn $PWD/hub cache/huggingface/hub && $V run org/tiny-1.5 x $O > b && rm cache/huggingface/hub",
      "HF_HUB_CACHE=hub $V run org/tiny-1.5@" COMMIT " x $O > b", "HF_HUB_CACHE=hub $V run org/tiny-1.5@refs/pr/1 x $O > b",
      "HF_HUB_CACHE=none HF_HOME=$PWD $V run org/tiny-1.5 x $O > b", "HF_HUB_CACHE=hub $V plan org/tiny-1.5 -o new.plan --quiet && "
      "HF_HUB_CACHE=hub $V run new.plan org/tiny-1.5 x $O > b && rm new.plan",
      "export HF_HUB_CACHE=hub; printf 'model: org/tiny-1.5\nplan: missing/new.plan\n' > d; mkdir -p missing && $V score --config d "
      "--jsonl j $L --quiet > s 2> t && rm missing/new.plan && "
      "$V score missing/new.plan org/tiny-1.5 --config d --jsonl j $L --quiet 2> t | cmp - s && cp a b",
      "export HF_HUB_CACHE=hub; $V digest missing/new.plan org/tiny-1.5 --quiet > b && "
      "$V digest missing/new.plan $TINY --quiet | cmp - b && cp a b"};
  make_hub();
  expect(0, "", "rm -rf cache; echo '{\"ids\":[1,2]}' > j; $V run $TINY x $O > a");
  for (size_t i = 0; i < ARRAY_LEN(found); i++) {
    char command[1024];
    snprintf(command, sizeof command, "rm -f b; %s && cmp a b", found[i]);
    expect(0, "", command);
  }
  expect(3, "config.json", "mkdir -p org/tiny-1.5 && HF_HUB_CACHE=hub $V run org/tiny-1.5 x $O"); /* a folder here wins; it is empty */
  expect(0, "ok", "rm -r org && HF_HUB_CACHE=hub $V doctor org/tiny-1.5 --device cpu");
}

/* What is not there is looked for and said; what a damaged cache says is not followed. */
static void names_that_lead_nowhere(void **state) {
  (void)state;
  make_hub();
  expect(3, "here or in none, ", "HF_HUB_CACHE=none $V run org/absent x $O");
  expect(3, "hint: hf download org/tiny-1.5 --revision v2", "HF_HUB_CACHE=hub $V run org/tiny-1.5@v2 x $O");
  expect(3, "hint: hf download org/tiny-1.5\n", "rm -r hub/*/snapshots && HF_HUB_CACHE=hub $V run org/tiny-1.5 x $O");
  make_hub();
  static const char *const refs[] = {"../..", "../../" COMMIT, COMMIT "/..", COMMIT "\\n\\n", "0123", "",
                                     "0123456789ABCDEF0123456789abcdef01234567"};
  for (size_t i = 0; i < ARRAY_LEN(refs); i++) {
    char command[512];
    snprintf(command, sizeof command, "printf '%s' > hub/models--org--tiny-1.5/refs/main; HF_HUB_CACHE=hub $V run org/tiny-1.5 x $O",
             refs[i]);
    expect(4, "expected a commit of 40 hexadecimal digits", command);
  }
  expect(4, "expected a commit", "rm hub/*/refs/main && mkfifo hub/models--org--tiny-1.5/refs/main && "
                                 "HF_HUB_CACHE=hub timeout 20 $V run org/tiny-1.5 x $O");
  static const char *const words[] = {"org/..", "../org", "org/.x", "org/tiny-1.5@../main", "org/tiny-1.5@refs//pr/1", "org/tiny-1.5@",
                                      "org/a b"};
  for (size_t i = 0; i < ARRAY_LEN(words); i++) { /* no names, so nothing is looked for */
    char command[512];
    snprintf(command, sizeof command, "export HF_HUB_CACHE=hub; $V score plan '%s' --jsonl j $L 2> e; ! grep -q 'cache of the' e && cat e",
             words[i]);
    expect(0, "expected a", command);
  }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_model_is_enough), cmocka_unit_test(an_evaluation_of_a_model),
                                     cmocka_unit_test(a_deployment_without_a_plan), cmocka_unit_test(nothing_is_replaced),
                                     cmocka_unit_test(models_by_name), cmocka_unit_test(names_that_lead_nowhere)};
  e2e_begin(argc, argv);
  shell_begin(&tiny, SETUP);
  snprintf(tiny.folder, sizeof tiny.folder, "/tmp/verbatim-first-hour-XXXXXX");
  if (!mkdtemp(tiny.folder)) return 1;
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  char text[256];
  e2e_shell(&tiny, "", "rm -rf \"$PWD\"", text, sizeof text);
  return failed;
}
