/* test_cli.c - the program with difficult files, descriptors and signals: outputs that would destroy inputs, closed and full descriptors,
 * pipes where files belong, lines that do not end, a run that is interrupted. Checks what is lost, what is kept and what is reported.
 * test_hostile.c has damaged contents. The first test is the control of the others: the same run succeeds. */
#define _DEFAULT_SOURCE /* mkdtemp, usleep */
#include "tests/unit/unit.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "shell.h"
#include "engine/base/base.h"

/* P is the plan, M the model folder, R a quiet run of both. */
#define SETUP "P=plan && M=model && R=\"$V run plan model --device cpu --threads 1 --quiet --max-tokens 2\" && "

static e2e_model tiny;
static char program[E2E_PATH_MAX];

static void sound_run(void **state) {
  (void)state;
  expect(0, "receipt ", "$R --receipt r --ids '1 2' '3, 4' && test $(wc -l < r) = 5 && tail -1 r | grep -q digest");
  expect(0, "prompt_tokens\":2", "printf '1 2\\r\\n3,4\\n' | $R --ids --output jsonl");
  expect(0, "digest", "V2=plan-2; $V plan $M -o $V2 --quiet && $V show $V2 --json | python3 -m json.tool");
  expect(0, "", "$V plan $M --profile none -o plan-3 --quiet && ! $V show plan-3 | grep -q 'shipped profile'");
  expect_error(3, "absent", "$V plan $M --profile absent -o plan-3 --quiet");
  expect(0, "usage: verbatim run", "$V run -h");
  expect(0, "\"made_tokens\": 2,", "$R --receipt r --ids '1 2' && $R --receipt r2 --ids '1 2' --stats s && cmp r r2 && "
                                   "python3 -m json.tool s");
  expect(0, "weights", "$V run plan model --device cpu --verbose --max-tokens 2 --ids 1");
}

/* `plan` prints its notes: what the config leaves open, and other stop ids. A kernel's limit has the status of what is not supported. */
static void plans_say_what_they_chose(void **state) {
  (void)state;
  const char *copy = "rm -rf m4 && mkdir m4 && cp $M/config.json m4 && ";
  static const struct {
    const char *change, *word;
    int code;
  } rows[] = {
    {"echo '{\"eos_token_id\":[1,7]}' > m4/generation_config.json", "eos_token_id [1,7], which is not used", 0},
    {"printf '\\357\\273\\277max-num-seqs: 2\\n' > y && set -- --config y", "eps of the latent norms", 0},
    {"sed -i 's/\"n_routed_experts\": [0-9]*/\"n_routed_experts\": 4/' m4/config.json", "is 4; 8 to 512 are supported", 5},
  };
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    char command[512];
    snprintf(command, sizeof command, "%s%s && $V plan m4 -o q --force \"$@\"", copy, rows[i].change);
    if (rows[i].code == 0) expect(0, rows[i].word, command);
    else expect_error(rows[i].code, rows[i].word, command);
  }
  expect(0, "", "$V plan $M -o q --force --quiet");
}

/* Every output names the numerics with which it was computed. The control is a plan of other numerics: its id is not found. */
static void every_output_names_the_numerics(void **state) {
  (void)state;
  static const char start[] = "N=$($V show $P | sed -n 's/^numerics id *//p') && S=\"$V score plan model --device cpu --quiet\" && "
                              "echo '{\"ids\":[1,2]}' > j";
  static const char *const commands[] = {
    "test ${#N} = 32 && $V show $P --json | grep -q \"\\\"numerics_id\\\": \\\"$N\\\"\"",
    "$R --ids '1 2' 2>&1 > out | grep -qx \"numerics id $N\"",
    "$R --ids '1 2' --output jsonl | grep -q \"\\\"numerics_id\\\":\\\"$N\\\"\"",
    "$R --ids '1 2' --stats s && grep -q \"\\\"numerics_id\\\": \\\"$N\\\"\" s",
    "$S --jsonl j --summary s 2> err | grep -q \"\\\"numerics_id\\\":\\\"$N\\\"\" && grep -q $N s && grep -qx \"numerics id $N\" err",
    "$S --jsonl j --output text 2>&1 | grep -qx \"numerics id $N\"",
    "echo 'group_chunks: 4' > y && $V plan $M --config y -o q --force --quiet && ! $V show q | grep -q $N",
    "$V run q model --device cpu --quiet --ids 1 --output jsonl > out 2>&1 && grep -q numerics_id out && ! grep -q $N out"};
  for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
    char command[2048];
    snprintf(command, sizeof command, "%s && %s", start, commands[i]);
    expect(0, "", command);
  }
}

/* What a request requires and its deadline change whether it is accepted, and no bit. */
static void terms(void **state) {
  (void)state;
  expect(0, "", "$R --ids '1 2' --receipt r && $R --ids '1 2' --receipt r2 --require batch --require prefix_hit --deadline 1e6 && "
                "cmp r r2");
  expect(0, "", "echo '{\"prompt_ids\":[1,2],\"id\":\"0\",\"require\":[\"slot\"],\"deadline_seconds\":1e6}' > j4 && "
                "$R --jsonl j4 --receipt r2 && cmp r r2");
  expect_error(5, "excludes: the unabsorbed form", "$R --ids 1 --require fast_prefill");
  expect_error(5, "item 0: request: it requires", "echo '{\"ids\":[1,2],\"require\":[\"fast_prefill\"]}' > j4 && "
                                                  "$V score plan model --device cpu --quiet --jsonl j4");
  expect_error(2, "expected one of the plan's: batch, slot,", "echo '{\"ids\":[1,2]}' > j4 && "
                                                              "$V score plan model --device cpu --quiet --jsonl j4 --require batches");
  expect(0, "\"finish\":\"deadline\"", "$R --ids 1 --ignore-eos --max-tokens 100 --deadline 0.000001 --output jsonl");
  expect(0, "item 0: deadline exceeded after ", "$R --ids 1 --ignore-eos --max-tokens 100 --deadline 0.000001");
  expect(6, "item 0: deadline exceeded", "$V score plan model --device cpu --quiet --jsonl j4 --deadline 0.000001 --summary s > out");
  expect(0, "", "grep -q '\"finish\":\"deadline\"' out && grep -q '\"failed\": 1' s");
}

/* The shipped model's output, requested in several ways. S: a quiet run of it; a stream gives the text that comes at the end. */
static void samples_and_stops(void **state) {
  (void)state;
  static const char tiny_run[] = "T=\"$OLDPWD/tests/tiny\" && S=\"$V run tiny $T --device cpu --threads 1 --quiet\"";
  static const struct { const char *word, *command; } cases[] = {
    {"", "$V plan $T --config $T/deploy.yaml -o tiny --force --quiet"},
    {"\"stop_reason\":\"1\"", "$S 'sort: 3 1 2' --stop zz --stop 1 --output jsonl"},
    {"same", "for stop in '' '--stop 1' '--stop x' '--stop =' '--stop 2=1' '--temperature 1 --stop 1'; do "
             "$S 'sort: 3 1 2' $stop 2> e1 > a && $S 'sort: 3 1 2' $stop --stream 2> e2 > b && "
             "cmp a b && cmp e1 e2 || exit 1; done; echo same"},
    {"[0#1] ", "$S 'add: 1+2=' --n 2"},
    {"\"index\":1", "$S 'add: 1+2=' --n 2 --output jsonl"},
    {"\"id\":\"0#1\"", "$S 'add: 1+2=' --n 2 --temperature 1 --receipt r && cat r"},
    {"three", "$S 'sort: 3 1 2' --n 3 --temperature 5 --ignore-eos --max-tokens 9 --output jsonl > a && "
              "test $(sed 's/.*\"tokens\"//' a | sort -u | wc -l) = 3 && echo three"},
    {"\"alternatives\":[[{\"id\":21,\"logprob\":", "$S 'add: 1+2=' --logprobs 3 --output jsonl"},
    {"[5,\"c0000000\"],[21,\"41200000\"]", "$S 'add: 1+2=' --logit-bias 21=10 --logit-bias 5=-2 --receipt r && cat r"},
    {"\"tokens\":[30,30]", "$S 'add: 1+2=' --allow-ids 30 --max-tokens 2 --output jsonl"},
    {"\"finish\":\"stop_text\"", "echo '{\"prompt\":\"add: 1+2=\",\"stop\":[\"3\"],\"n\":2}' | $S --jsonl - --output jsonl"},
    {"tokenizer\":\"", "$S --ids '5 6' --stop x --receipt r && cat r"},
  };
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char command[2048];
    snprintf(command, sizeof command, "%s && %s", tiny_run, cases[i].command);
    expect(0, cases[i].word, command);
  }
}

static void outputs_are_not_inputs(void **state) {
  (void)state;
  const char *before = "cp plan plan-c && cp model/model.safetensors w && ln -sf plan link && "
                       "echo '{\"prompt_ids\":[1]}' > j && ln -f j j2";
  static const char *const commands[] = {
    "$R --ids 1 --receipt plan", "$R --ids 1 --logits link", "$R --ids 1 --logits model/model.safetensors",
    "$R --ids 1 --receipt model/../model/config.json", "$R --jsonl j --receipt j", "$R --jsonl j --logits j2",
    "$R --jsonl - --receipt j < j",
    "touch a && ln -f a b && $R --ids 1 --receipt a --logits b", "$R --ids 1 --stats plan",
    "touch a && ln -f a b && $R --ids 1 --stats a --receipt b",
    "$V plan $M -o model/config.json --force", "echo {} > y && ln -f y y2 && $V plan $M --config y -o y2 --force", "$V probe plan -o link"};
  for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
    char command[1024];
    snprintf(command, sizeof command, "%s && %s", before, commands[i]);
    expect_error(2, "would be overwritten", command);
    expect(0, "", "cmp plan plan-c && cmp model/model.safetensors w && test -s model/config.json && test -s j");
  }
  expect_error(2, "two files", "rm -f same && $R --ids 1 --receipt same --logits same");
}

/* Not tried with a device file: a failing program would replace it. */
static void outputs_are_files(void **state) {
  (void)state;
  const char *const outputs[] = {"folder", "pipe"};
  must("mkdir -p folder && rm -f pipe && mkfifo pipe");
  for (size_t i = 0; i < ARRAY_LEN(outputs); i++) {
    char command[256];
    snprintf(command, sizeof command, "timeout 20 $V plan $M --force -o %s", outputs[i]);
    expect_error(2, "regular file", command);
    snprintf(command, sizeof command, "timeout 20 $V probe $P -o %s", outputs[i]);
    expect_error(2, "regular file", command);
    snprintf(command, sizeof command, "timeout 20 $R --ids 1 --stats %s", outputs[i]);
    expect_error(2, "regular file", command);
  }
  expect_error(2, "name of a file", "$V plan $M -o ''");
  expect_error(2, "expected two files", "rm -f new && $R --ids 1 --stats new --receipt new");
  expect_error(2, "expected two files", "rm -f new && $R --ids 1 --trace new --receipt folder/../new"); /* the same, not there yet */
  expect_error(2, "expected two files", "rm -f new && ln -sfn . link && $R --ids 1 --logits new --receipt link/new");
  expect(0, "", "rm -f new folder/new && $R --ids 1 --logits new --receipt folder/new && test -s new && test -s folder/new");
}

/* An output that cannot be written is reported before the model is read, and no other output is touched. */
static void outputs_have_a_place(void **state) {
  (void)state;
  static const char *const options[] = {"--receipt", "--logits", "--stats", "--trace"};
  for (size_t i = 0; i < ARRAY_LEN(options); i++) {
    char command[256];
    snprintf(command, sizeof command, "$V run $P nothing --ids 1 %s nowhere/new", options[i]);
    expect_error(3, "nowhere/new: cannot be written: No such file", command);
    snprintf(command, sizeof command, "mkdir -p folder && $V run $P nothing --ids 1 %s folder", options[i]);
    expect_error(2, "folder is a folder, not a regular file", command);
    snprintf(command, sizeof command, "$V run $P nothing --ids 1 %s absent/", options[i]);
    expect_error(2, "found that of a folder", command);
  }
  expect_error(3, "nothing: expected a model folder", "$V run $P nothing --ids 1 --receipt new"); /* after the outputs */
  expect(0, "", "echo kept > r && ! $R --ids 1 --trace r --receipt nowhere/r && grep -q kept r");
}

/* The program never waits for input that cannot come. */
static void pipes_for_files(void **state) {
  (void)state;
  expect(0, "", "rm -rf pipe m2 && mkfifo pipe && mkdir m2");
  expect_error(3, "regular file", "timeout 20 $V show pipe");
  expect_error(3, "regular file", "timeout 20 $V run pipe $M --ids 1");
  expect_error(3, "regular file", "timeout 20 $V run $M $P --ids 1");
  static const char *const names[] = {"model.safetensors", "config.json", "model.safetensors.index.json"};
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    char command[512];
    snprintf(command, sizeof command, "rm -rf m2 && cp -r $M m2 && rm -f m2/%s && mkfifo m2/%s && "
                                      "timeout 20 $V run $P m2 --device cpu --ids 1", names[i], names[i]);
    expect_error(3, "regular file", command);
  }
  expect_error(3, "regular file", "rm -rf m2 && mkdir m2 && mkfifo m2/config.json && timeout 20 $V plan m2 -o q");
  expect_error(3, "regular file", "rm -rf m2 && cp -r $M m2 && mkfifo m2/tokenizer.json && timeout 20 $V run $P m2 --device cpu text");
}

static void closed_descriptors(void **state) {
  (void)state;
  expect_error(3, "stdout", "$R --ids 1 2 --receipt r >&-");
  expect(0, "", "! grep -v '^{' r"); /* no output of the run in the receipt */
  expect(0, "", "$R --ids 1 2 --receipt r 2>&- > out && test $(wc -l < r) = 5 && ! grep -v '^{' r");
  expect_error(3, "cannot be read", "$R --ids <&-");
}

/* A failed output is never a success, and the receipt never looks complete. */
static void full_disk(void **state) {
  (void)state;
  if (access("/dev/full", W_OK) != 0) {
    print_message("SKIPPED: no /dev/full\n");
    skip();
  }
  expect_error(3, "stdout", "$R --ids 1 2 3 --receipt r > /dev/full");
  expect(0, "", "head -1 r | grep -q verbatim_receipt && tail -1 r | grep -q '^{\"fault\":\"stdout' && ! grep -q '^{\"digest' r");
  expect_error(3, "stdout", "$R --ids 1 --output jsonl > /dev/full");
  expect(3, "/dev/full: cannot be written: No space left", "$R --ids 1 --receipt /dev/full");
  expect(3, "No space left", "$R --ids 1 --receipt r --logits /dev/full");
  expect(0, "", "tail -1 r | grep -q '^{\"digest'");
  static const char *const commands[] = {"version", "help", "show $P", "show $P --json", "plan $M -o q", "run --help"};
  for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
    char command[256];
    snprintf(command, sizeof command, "$V %s > /dev/full", commands[i]);
    expect_error(3, "cannot be written", command);
  }
}

/* Requests that take long enough to be interrupted, the first of them short. */
static pid_t start_long_run(const char *receipt_path) {
  char items[2 * E2E_PATH_MAX];
  snprintf(items, sizeof items, "%s/long", tiny.folder);
  FILE *file = fopen(items, "wb");
  assert_non_null(file);
  for (int i = 0; i < 3; i++) fprintf(file, "{\"prompt_ids\":[%d],\"max_tokens\":4,\"ignore_eos\":true}\n", i);
  for (int i = 0; i < 400; i++) fprintf(file, "{\"prompt_ids\":[%d],\"max_tokens\":120,\"ignore_eos\":true}\n", i % 300);
  assert_int_equal(fclose(file), 0);
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child > 0) return child;
  signal(SIGINT, SIG_DFL); /* a shell makes its background processes ignore it */
  if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(126);
  execl(program, program, "run", tiny.plan_path, tiny.model_dir, "--device", "cpu", "--threads", "1", "--batch", "1", "--jsonl", items,
        "--receipt", receipt_path, (char *)NULL);
  _exit(127);
}

static uint32_t count_lines(const char *path, char *text, size_t text_bytes) {
  FILE *file = fopen(path, "rb");
  size_t bytes = file ? fread(text, 1, text_bytes - 1, file) : 0;
  uint32_t lines = 0;
  if (file) fclose(file);
  text[bytes] = 0;
  for (size_t i = 0; i < bytes; i++) lines += text[i] == '\n';
  return lines;
}

/* A run that is killed leaves its finished requests in its receipt, which does not look complete. */
static void interrupted(void **state) {
  (void)state;
  static const int signals[] = {SIGINT, SIGKILL};
  static char text[1 << 20];
  for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
    char path[2 * E2E_PATH_MAX];
    int ended = 0;
    snprintf(path, sizeof path, "%s/killed-%zu", tiny.folder, i);
    pid_t child = start_long_run(path);
    uint32_t lines = 0;
    for (int wait = 0; wait < 2000 && (lines = count_lines(path, text, sizeof text)) < 5; wait++) usleep(10000);
    assert_int_equal(kill(child, signals[i]), 0);
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended));
    assert_true(lines >= 5); /* two lines of head and three requests, while the others were still to come */
    assert_true(count_lines(path, text, sizeof text) >= lines);
    assert_null(strstr(text, "{\"digest\":\""));
    char *third = strchr(strchr(text, '\n') + 1, '\n') + 1;
    assert_int_equal(strncmp(third, "{\"id\":\"0\"", 9), 0);
    assert_non_null(strstr(third, "\"chain\":"));
  }
}

static void closed_pipe(void **state) {
  (void)state;
  expect(0, "[0]", "for i in 1 2 3 4 5 6 7 8; do echo $i; done > n; $R --ids --receipt r < n 2> err | head -1");
  expect(0, "", "! test -s err || grep -q '^receipt\\|^verbatim: ' err");
}

static void lines_without_end(void **state) {
  (void)state;
  expect_error(6, "33554432", "timeout 60 $R --jsonl /dev/zero");
  expect_error(6, "33554432", "timeout 60 $R --ids < /dev/zero");
  expect_error(2, "NUL", "printf '1 2\\0003\\n' | $R --ids");
  expect_error(2, "token ids", "printf '1 2 x\\n' | $R --ids");
  expect_error(3, "found a folder", "$R --jsonl folder");
}

static void refused_items(void **state) {
  (void)state;
  static const struct { const char *line, *word; } cases[] = {
    {"{\"prompt_ids\":[1],\"id\":\"a\\\\u0000b\"}", "NUL"}, {"{\"prompt_ids\":[1],\"answer\":\"a\\\\u0000b\"}", "NUL"},
    {"\\357\\273\\277{\"prompt_ids\":[1]}", "byte order mark"}, {"{\"prompt_ids\":[1],\"temperature\":1e-50}", "0.001"},
    {"{\"prompt_ids\":[1],\"id\":1.5}", "integer"}, {"{\"id\":\"x\"}", "expected one of"}, {"{", "not JSON"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char command[512];
    snprintf(command, sizeof command, "printf '%s\\n' > j3 && $R --jsonl j3", cases[i].line);
    expect_error(4, cases[i].word, command);
  }
  expect_error(2, "token id of 0 to", "$R --ids 999999");
  expect_error(2, "item a: request: prompt token 0", "echo '{\"prompt_ids\":[999999],\"id\":\"a\"}' > j3 && $R --jsonl j3");
  expect_error(2, "0.001", "$R --ids 1 --temperature 1e-50");
  expect_error(2, "--output text", "$R --ids 1 --stream --output jsonl");
  /* numbers that are only passed on keep their digits, and unusual text stays valid JSON */
  expect(0, "0.12345678901234566", "echo '{\"prompt_ids\":[1],\"score\":0.12345678901234566}' > j3 && $R --jsonl j3 --output jsonl");
  expect(0, "\\u001b", "printf '{\"prompt_ids\":[1],\"id\":\"\\\\\\\\u001b[2J\\\\\\\\n\",\"x\":\"\\\\\\\\u0000\"}\\n' > j3 && "
                       "$R --jsonl j3 --output jsonl 2> err | python3 -m json.tool --no-ensure-ascii");
}

/* Constants of config.json are in the plan; a folder with another config.json is another model. */
static void another_config(void **state) {
  (void)state;
  expect_error(8, "config.json", "rm -rf m2 && cp -r $M m2 && sed -i 's/}$/ }/' m2/config.json && "
                                 "$V run $P m2 --device cpu --quiet --max-tokens 2 --ids 1");
  expect(0, "receipt", "rm m2/config.json && $V run $P m2 --device cpu --quiet --max-tokens 2 --ids 1"); /* only the weights */
  expect_error(3, "a model folder, found a file", "$V run $P plan --device cpu --quiet --ids 1");
  expect_error(2, "token id of 0 to", "rm -rf m2 && cp -r $M m2 && cp \"$OLDPWD\"/tests/tiny/tokenizer*.json m2 && "
                                      "$V run $P m2 --device cpu --quiet --max-tokens 2 'a ship can win but'");
}

static void tiny_budget(void **state) {
  (void)state;
  expect_error(4, "device-memory-bytes", "echo 'device_memory_bytes: 1' > y && $V plan $M --config y -o q");
  expect(6, "does not fit", "printf 'device_memory_bytes: 1MiB\\ngpu-memory-utilization: 0.000001\\n' > y && $V plan $M --config y -o q");
}

/* One file for several subcommands; the command line takes precedence, and a plan is never replaced silently. */
static void one_deployment_file(void **state) {
  (void)state;
  static const char start[] = "printf 'model: model\\nplan: d.plan\\nmax-num-seqs: 2\\nmax-model-len: 128\\nkv-pages: 4\\ndevice: cpu\\n"
                              "threads: 1\\nport: 0\\napi-key: hunter2\\n' > d && echo '{\"ids\":[1,2]}' > j && rm -f d.plan && ";
  static const struct {
    int code;
    const char *word, *command;
  } cases[] = {
    {0, "", "$V plan --config d --quiet && cmp d.plan plan"},
    {0, "d.plan: made from d", "$V score --config d --jsonl j && cmp d.plan plan && $V score --config d --jsonl j --quiet"},
    {0, "", "$V score --config d --jsonl j --quiet > a && $V score plan model --device cpu --quiet --jsonl j > b 2> c && cmp a b"},
    {8, "is not the plan of e", "$V plan --config d --quiet && sed 's/kv-pages: 4/kv-pages: 5/' d > e && $V score --config e --jsonl j"},
    {0, "", "$V plan --config d --kv-pages 5 -o e.plan --quiet && ! cmp -s e.plan plan && test ! -e d.plan"},
    {0, "kv-pages: 5 # command line", "$V plan --config d --kv-pages 5 --dump-config"},
    {0, "device: cpu # file", "$V score --config d --dump-config > e && $V score --config e --dump-config > f && cat f && "
                              "$V score --config f --dump-config | cmp - f && test \"$(sed -n 2p e)\" = \"$(sed -n 2p f)\""},
    {0, "exchange-timeout: 5 # file", "echo 'exchange-timeout: 5' >> d && $V score --config d --dump-config && "
                                      "$V score --config d --jsonl j --quiet > b && cmp a b && sed -i '$d' d"},
    {2, "exchange-timeout: expected an integer", "echo 'exchange-timeout: x' >> d && $V score --config d --jsonl j"},
    {0, "", "$V plan --config d --quiet -o p2 --tensor-parallel-size 2 --exchange-timeout 5 2> e; test $? = 2 && grep -q unknown e"},
    {4, "nearest known key is \"port\"", "echo 'prot: 1' >> d && $V plan --config d"},
    {4, "renamed to \"max-model-len\"", "echo 'max_len: 1' >> d && $V score --config d --jsonl j"},
    {5, "3 devices cannot divide 2 heads", "$V plan --config d --tensor-parallel-size 3"},
    {2, "expected a model folder", "echo 'plan: x' > d && $V plan --config d"},
    {2, "expected [PLAN] MODEL_DIR", "echo 'plan: x' > d && $V score --config d --jsonl j"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char command[2048];
    snprintf(command, sizeof command, "%s%s", start, cases[i].command);
    expect(cases[i].code, cases[i].word, command);
  }
}

static void doctor(void **state) {
  (void)state;
  expect(0, "\n0 problems", "$V doctor plan model --device cpu");
  expect(0, "\"ok\": true", "$V doctor plan model --device cpu --json | python3 -m json.tool");
  expect(0, "the CPU will be used", "CUDA_VISIBLE_DEVICES= $V doctor");
  expect(7, "problem  gpu", "$V doctor --device gpu:1000");
  expect(8, "problem  plan's model", "rm -rf m2 && cp -r $M m2 && echo >> m2/config.json && $V doctor plan m2 --device cpu");
  expect(4, "problem  weights", "rm -rf m2 && cp -r $M m2 && truncate -s -1 m2/model.safetensors && $V doctor plan m2 --device cpu");
  expect(4, "problem  plan ", "cp plan q && printf xxx | dd of=q bs=1 seek=3000 conv=notrunc 2> err && $V doctor q --device cpu");
  expect(0, "will be made", "printf 'model: model\\nplan: none.plan\\nport: 0\\ndevice: cpu\\n' > d && $V doctor --config d");
  expect(4, "problem  configuration", "echo 'prot: 1' > d && $V doctor --config d");
  expect(8, "problem  configuration", "printf 'model: model\\nplan: plan\\nmax-model-len: 128\\nkv-pages: 5\\ndevice: cpu\\n' > d && $V "
                                      "doctor --config d");
  expect_error(2, "--help", "$V doctor a b c");
}

/* What may go wrong on a command line, over all commands: one line that says what was expected and what was found, and ends with a hint. */
static void wrong_words_are_explained(void **state) {
  (void)state;
  static const char setup[] = "mkdir -p none.d && : > zero && echo hello > word && H=org/Name-2.5 && ";
  static const char hub[] = "hint: hf download org/Name-2.5", gone[] = "found nothing of that name";
  static const struct { int code; const char *word, *command; } cases[] = {
      {3, hub, "plan $H -o q"}, {3, hub, "run plan $H --ids 1"}, {3, hub, "serve plan $H"}, {3, hub, "score plan $H --jsonl j"},
      {3, hub, "eval $E --plan plan --model $H --output x"}, {3, hub, "verify r plan $H"}, {3, hub, "digest plan $H"},
      {3, hub, "probe --copy $H"},
      {3, hub, "audit r plan $H"}, {3, hub, "chat plan $H"}, {3, hub, "run $H text"}, {3, hub, "calibrate plan $H --jsonl j"},
      {3, gone, "plan no/such/model -o q"}, {3, gone, "run none $M --ids 1"}, {3, gone, "show none"}, {3, gone, "bench none"},
      {3, gone, "probe none -o q"}, {3, gone, "digest none $M"}, {3, gone, "verify none plan $M"}, {3, gone, "diff r none"},
      {3, gone, "audit none plan $M"}, {3, gone, "replay none"}, {3, gone, "eval none --plan plan --model $M --output x"},
      {3, gone, "run plan $M --jsonl none"}, {3, gone, "serve --config none"}, {3, gone, "plan $M -o q --profile none.json"},
      {3, gone, "plan none.d -o q"}, {3, gone, "run plan none.d --ids 1"}, {3, gone, "run plan none.d text"},
      {3, "found a file", "plan word -o q"}, {3, "found a file", "serve plan word"}, {3, "found a file", "probe --copy word"},
      {3, "found a folder", "show $M"}, {3, "found a folder", "verify none.d plan $M"},
      {3, "found a folder", "diff r none.d"}, {3, "found a folder", "audit none.d plan $M"}, {2, "found a folder", "replay none.d"},
      {3, "found a folder", "run plan $M --jsonl none.d"}, {3, "found a folder", "plan $M -o q --config none.d"},
      {4, "found an empty file", "show zero"}, {4, "found an empty file", "verify zero plan $M"},
      {4, "found text that is not JSON", "replay zero"}, {4, "found an empty file", "plan $M -o q --profile zero"},
      {4, "zero: expected \"key: value\" lines, found none", "eval zero --plan plan --model $M --output x"},
      {4, "found an empty file", "audit zero plan $M"},
      {4, "plan, found another file", "show word"}, {4, "plan, found another file", "run r $M --ids 1"},
      {4, "receipt, found another file", "verify plan plan $M"}, {4, "receipt, found another file", "diff r word"},
      {4, "trace, found another file", "audit r plan $M"},
      {4, "lines, found other YAML", "eval word --plan plan --model $M --output x"}, {4, "found other YAML", "plan $M -o q --config word"},
      {2, "gpu:N with N of 0 to 1023, found \"gpu:x\"", "run plan $M --ids 1 --device gpu:x"},
      {2, "found no --model", "eval $E --plan plan --output x"}, {2, "found no --output", "eval $E --plan plan --model $M --resume"},
      {2, "found 1 word;", "run plan"}, {2, "found 0 words", "serve"},
      {2, "expected a prompt", "run plan $M < zero"}, {2, "expected an item", "score plan $M --jsonl zero"},
      {2, "found also \"model\"", "plan $M $M -o q"}, {2, "found also \"plan\"", "show plan plan"}};
  must("$R --receipt r --ids '1 2' && echo '{}' > j");
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char command[1024];
    const char *text = shell.output;
    snprintf(command, sizeof command, "%sE=$OLDPWD/tests/examples/count.yaml && timeout 60 $V %s%s", setup, cases[i].command,
             strchr(cases[i].command, '<') ? "" : " < zero");
    expect_error(cases[i].code, cases[i].word, command);
    if (!strstr(text, "expected ") || !strstr(text, "found ") || !strstr(text, "hint: ")) fail_msg("%s: \"%s\"", command, text);
  }
  expect_error(2, "unknown option --max-num-seq; hint: the nearest is --max-num-seqs", "$V plan $M -o q --max-num-seq 4");
  expect_error(2, "unknown option --temp; hint: the nearest is --temperature", "$V run plan $M --temp 1");
  expect_error(2, "unknown option --helo; hint: the nearest is --help", "$V serve --helo");
  expect_error(2, "unknown option --memry; hint: the nearest is --memory", "$V show plan --memry");
  expect_error(2, "unknown option --no-such; hint: verbatim run --help", "$V run plan $M --no-such");
  expect_error(2, "--max-tokens needs a value; hint: verbatim run --help", "$V run plan $M --max-tokens");
  expect_error(2, "unknown command \"sevre\"; hint: the nearest is serve", "$V sevre");
  expect_error(2, "--port: expected an integer of 0 to 65535, found \"x\"", "$V serve plan $M --port x");
  expect_error(2, "found no file of that name", "$V eval $OLDPWD/tests/examples/count.yaml --plan plan --model $M --output x "
                                                   "--perturb word2");
}

/* Where the CPU is used already, nobody is told to use it, and where only a GPU will do neither. */
static void no_hint_to_do_what_was_done(void **state) {
  (void)state;
  static const char *const commands[] = {"$V run plan model --threads 1 --max-tokens 2 --ids 1", "$V probe plan -o q",
                                         "$V probe --copy model", "$V doctor"};
  expect(7, "use --device cpu", "CUDA_VISIBLE_DEVICES= $V run plan model --ids 1 --device gpu"); /* the control */
  for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
    char command[256];
    const char *text = shell.output;
    snprintf(command, sizeof command, "CUDA_VISIBLE_DEVICES= %s", commands[i]);
    int found = shell_run(command);
    if (found != (i == 1 || i == 2 ? 7 : 0) || strstr(text, "--device cpu")) fail_msg("%s: %d and \"%s\"", command, found, text);
  }
  expect(0, "note: on the CPU, because: ", "CUDA_VISIBLE_DEVICES= $V run plan model --threads 1 --max-tokens 2 --ids 1");
}

/* Its measurements need a GPU; its refusals do not. */
static void copy_baseline(void **state) {
  (void)state;
  expect_error(2, "expected a plan and -o", "$V probe $P");
  expect_error(2, "unexpected argument", "$V probe $P -o q --fast");
  expect_error(2, "two files for two outputs", "$V probe $P -o q --json q");
  expect_error(2, "expected a model folder", "$V probe --copy");
  expect_error(2, "expected a number of 1 to 32, found \"33\"", "$V probe --copy $M --threads 33");
  expect_error(2, "unexpected argument", "$V probe --copy $M more");
  expect_error(3, "expected *.safetensors files, found none", "mkdir -p empty && $V probe --copy empty");
  expect_error(3, "not a regular file", "rm -rf odd && mkdir odd && mkfifo odd/a.safetensors && timeout 20 $V probe --copy odd");
  expect_error(7, "measures a GPU, and none is available", "$V probe --copy $M --device 1000");
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(sound_run), cmocka_unit_test(plans_say_what_they_chose),
    cmocka_unit_test(every_output_names_the_numerics), cmocka_unit_test(terms),
    cmocka_unit_test(samples_and_stops), cmocka_unit_test(outputs_are_not_inputs),
    cmocka_unit_test(outputs_are_files), cmocka_unit_test(outputs_have_a_place),
    cmocka_unit_test(pipes_for_files), cmocka_unit_test(closed_descriptors), cmocka_unit_test(full_disk), cmocka_unit_test(interrupted),
    cmocka_unit_test(closed_pipe), cmocka_unit_test(lines_without_end), cmocka_unit_test(refused_items), cmocka_unit_test(another_config),
    cmocka_unit_test(tiny_budget), cmocka_unit_test(one_deployment_file), cmocka_unit_test(doctor),
    cmocka_unit_test(wrong_words_are_explained), cmocka_unit_test(no_hint_to_do_what_was_done), cmocka_unit_test(copy_baseline)};
  e2e_begin(argc, argv);
  shell_begin(&tiny, SETUP);
  e2e_binary("verbatim", program);
  e2e_make_model(&tiny, "tests/oracle/small-v3.json", "max-num-seqs: 2\nmax-model-len: 128\nkv_pages: 4\n");
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_remove(&tiny);
  return failed;
}
