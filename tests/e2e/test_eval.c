/* test_eval.c - `verbatim eval` and `verbatim replay` through the program, with the shipped model: scores against `run` and `score`, the
 * same bytes however the work is split and wherever it was interrupted, and the report of a replay on planted faults.
 *
 * The controls are in the tests: a changed item, answer, weight or manifest is found. `--device gpu` uses the GPU. */
#include "tests/unit/unit.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "shell.h"
#include "engine/base/base.h"

#ifdef __SANITIZE_ADDRESS__ /* runs are slow: fewer of each kind */
enum { CUTS = 2, KILLS = 1, LOSSES = 1, LEFT_OUT = 2 }; /* the last tests: as slow as all others, which run the same code */
#else
enum { CUTS = 3, KILLS = 2, LOSSES = 2, LEFT_OUT = 0 };
#endif

/* E evaluates the tasks into the folder that follows; R replays. */
static const char SETUP[] =
  "D=\"$D --quiet\" && E=\"$V eval tasks/all.yaml tasks/compare.yaml tasks/whole.yaml tasks/drawn.yaml --plan tiny.plan --model $TINY $D "
  "--output\" && R=\"$V replay $D\" && ";

enum { ITEMS = 31 }; /* of a task: all kinds of the shipped model's items; commands and messages below say it, too */
static e2e_model model; /* its scratch folder is shared: tasks/, items.jsonl, tiny.plan */

/* === Commands and files ===================================================================================================== */

static char *read_text(const char *name, size_t *bytes) {
  char path[2 * E2E_PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", model.folder, name);
  return e2e_read_file(path, bytes);
}

static json_t *read_json(const char *name) {
  char *text = read_text(name, NULL);
  json_t *made = json_loads(text, JSON_ALLOW_NUL, NULL);
  free(text);
  assert_non_null(made);
  return made;
}

/* Lines by "task/id". */
static json_t *read_lines(const char *name) {
  char *text = read_text(name, NULL);
  json_t *all = json_object();
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    json_t *made = json_loads(line, JSON_ALLOW_NUL, NULL);
    char key[512];
    assert_non_null(made);
    const char *task = json_string_value(json_object_get(made, "task")), *id = json_string_value(json_object_get(made, "id"));
    snprintf(key, sizeof key, "%s/%s", task ? task : "", id);
    assert_int_equal(json_object_set_new(all, key, made), 0);
  }
  free(text);
  return all;
}

static double value_of(const json_t *manifest, size_t task, size_t metric) {
  const json_t *tasks = json_object_get(json_object_get(json_object_get(manifest, "outcome"), "scores"), "tasks");
  return json_number_value(json_object_get(json_array_get(json_object_get(json_array_get(tasks, task), "metrics"), metric), "value"));
}

/* === Tasks ================================================================================================================== */

static void write_tasks(void) {
  must("mkdir -p tasks && awk 'NR % 22 == 5 || (NR > 400 && NR <= 412)' $TINY/items.jsonl > items.jsonl");
  write_text("tasks/all.yaml", "name: all\nkind: generate\nitems: ../items.jsonl\nsubsets: task\ngeneration: {max_tokens: 80}\n");
  write_text("tasks/compare.yaml", "name: compare\nkind: choice\nitems: ../items.jsonl\nwhere: {task: compare}\nchoices: ['<', '>', '=']\n"
             "few_shot: {count: 1, separator: ' ', seed: 3}\n");
  write_text("tasks/whole.yaml", "name: whole\nkind: perplexity\nitems: ../items.jsonl\ntext: '{{prompt}}{{answer}}'\nwindow: 16\n");
  write_text("tasks/drawn.yaml", "name: drawn\nkind: generate\nitems: ../items.jsonl\nwhere: {task: date}\nextract: '(\\d\\d\\d\\d)'\n"
             "answer: '2020'\ngeneration: {max_tokens: 12, n: 3, temperature: 3, seed: 5}\n");
}

/* === Against run and score ================================================================================================== */

static void equals_run_and_score(void **state) {
  (void)state;
  must("rm -rf ev && $E ev > out 2> err && $V run tiny.plan $TINY $D --jsonl items.jsonl --max-tokens 80 --output jsonl > run 2> err2");
  must("$V score tiny.plan $TINY $D --summary summary > score 2> err3 << 'EOF'\n"
       "{\"id\":\"a\",\"context\":\"compare: 31964 ? 9935 =\",\"continuations\":[\"<\",\">\",\"=\"],\"answer\":1}\nEOF\n");
  write_text("tasks/plain.yaml", "name: plain\nkind: choice\nitems: ../plain.jsonl\nfields: 1\n");
  expect(4, "nearest known key is \"kind\"", "$V eval tasks/plain.yaml --plan tiny.plan --model $TINY $D --output x");
  write_text("tasks/plain.yaml", "name: plain\nkind: choice\nitems: ../plain.jsonl\n");
  write_text("plain.jsonl", "{\"id\":\"a\",\"prompt\":\"compare: 31964 ? 9935 =\",\"choices\":[\"<\",\">\",\"=\"],\"answer\":\">\"}\n");
  must("rm -rf x && $V eval tasks/plain.yaml --plan tiny.plan --model $TINY $D --output x > out2 2>&1");
  json_t *lines = read_lines("ev/results.jsonl"), *made = read_lines("run"), *manifest = read_json("ev/manifest.json");
  const char *key;
  json_t *line;
  uint32_t exact = 0, count = 0;
  json_object_foreach(made, key, line) {
    char name[600];
    snprintf(name, sizeof name, "all/%s", strchr(key, '/') + 1);
    const json_t *same = json_object_get(lines, name);
    assert_true(json_equal(json_object_get(line, "text"), json_object_get(same, "text")));
    assert_true(json_equal(json_object_get(line, "exact"), json_object_get(same, "correct")));
    assert_non_null(json_object_get(same, "margin"));
    exact += json_is_true(json_object_get(line, "exact"));
    count++;
  }
  assert_true(count == ITEMS && exact > ITEMS * 4 / 5);
  assert_true(value_of(manifest, 0, 0) == (double)exact / count);
  json_t *scored = read_lines("score"), *plain = read_lines("x/results.jsonl");
  const json_t *a = json_object_get(json_object_get(scored, "/a"), "choices");
  const json_t *b = json_object_get(json_object_get(plain, "plain/a"), "choices");
  assert_int_equal(json_array_size(b), 3);
  for (size_t i = 0; i < 3; i++)
    assert_true(json_equal(json_object_get(json_array_get(a, i), "logprob"), json_object_get(json_array_get(b, i), "logprob")));
  must("grep -q '^all  *31  acc' out && $V verify ev/receipt tiny.plan $TINY $D");
  json_decref(lines);
  json_decref(made);
  json_decref(manifest);
  json_decref(scored);
  json_decref(plain);
}

/* === Flip risk ============================================================================================================== */

static const char COUNT_RISK[] =
  "import json, re\n"
  "lines = [json.loads(l) for l in open('x/results.jsonl')]\n"
  "manifest, page, table = json.load(open('x/manifest.json')), open('x/report.html').read(), open('table').read()\n"
  "rows = re.findall('<bdi>([^<]*)</bdi></th><td class=\"num\" data-name=\"margins\">([0-9]+)</td><td class=\"num\" '\n"
  "                  'data-name=\"fragile\">([0-9]+) ', page)\n"
  "units = [(t['name'], s) for t in manifest['outcome']['scores']['tasks'] for s in [t] + t['subsets']]\n"
  "known_units = [(t, u) for t, u in units if u['flip_risk']]\n"
  "assert 10 < len(known_units) == len(rows) < len(units)\n"
  "for task, unit in units:\n"
  "  name, is_task = unit['name'], 'kind' in unit\n"
  "  own = [l for l in lines if l['task'] == task and (is_task or l.get('subset') == name)]\n"
  "  known = [l for l in own if 'margin' in l]\n"
  "  close = [l for l in known if l['margin']['ulps'] < 2]\n"
  "  right = lambda l: l['correct'] if 'correct' in l else l['acc']\n"
  "  assert (unit['flip_risk'] is None) == (not known), (name, unit)\n"
  "  if not known: continue\n"
  "  r, lost, won = unit['flip_risk'], sum(map(right, close)), sum(not right(l) for l in close)\n"
  "  ends = (sum(map(right, own)) - lost) / len(own), (sum(map(right, own)) + won) / len(own)\n"
  "  assert (r['items'], r['known'], r['fragile_right'], r['fragile_wrong']) == (len(own), len(known), lost, won), (name, r)\n"
  "  assert (r['score_lowest'], r['score_highest']) == ends, (name, r)\n"
  "  assert rows.pop(0) == (name, str(len(known)), str(len(close))), name\n"
  "  line = 'fragile %d of %d *' % (len(close), len(known)) + re.escape('[%.4f, %.4f]' % ends)\n"
  "  assert not is_task or re.search(line, table), line\n"
  "assert any(u['flip_risk']['fragile_share'] for _, u in known_units)\n";

/* The figures of the manifest, the table and the report follow from the result lines, which are counted here independently. */
static void tells_flip_risk(void **state) {
  (void)state;
  write_text("risk.py", COUNT_RISK);
  write_text("tasks/garbled.yaml", "name: garbled\nkind: generate\nitems: ../items.jsonl\nsubsets: task\nprompt: '{{answer}} {{prompt}}'\n"
             "generation: {max_tokens: 30}\n"); /* nothing that the model knows: it is uncertain */
  must("rm -rf x && $E x tasks/garbled.yaml > table 2> err && python3 risk.py 2>&1");
}

/* === However the work is split ============================================================================================== */

#define SAME_AS_EV "cmp ev/results.jsonl ev2/results.jsonl && grep manifest_digest ev/manifest.json > a && " \
                   "grep manifest_digest ev2/manifest.json > b && cmp a b && sed 2d ev/receipt > a && sed 2d ev2/receipt > b && cmp a b"

/* The shipped model's template writes BOS and the message: the same tokens, and therefore the same lines except for the task's name. */
static void chats(void **state) {
  (void)state;
  must("mkdir -p chat/tasks && cp items.jsonl chat && (sed 's/^name: all/name: cht/' tasks/all.yaml; echo 'chat: true') > "
      "chat/tasks/cht.yaml && "
       "rm -rf x && $V eval chat/tasks/cht.yaml --plan tiny.plan --model $TINY $D --output x > out 2>&1 && "
       "sed 's/\"task\":\"cht\"/\"task\":\"all\"/' x/results.jsonl > a && head -31 ev/results.jsonl > b && cmp a b");
  json_t *manifest = read_json("x/manifest.json"), *plain = read_json("ev/manifest.json");
  const json_t *template = json_object_get(json_object_get(manifest, "setup"), "chat_template");
  assert_string_equal(json_string_value(json_object_get(template, "name")), "jinja");
  assert_string_equal(json_string_value(json_object_get(template, "digest")), "00bea8f9fbcfebfe7083520b80e73265");
  assert_true(json_is_null(json_object_get(json_object_get(plain, "setup"), "chat_template")));
  json_decref(manifest);
  json_decref(plain);
  expect(5, "template",
         "rm -rf x bare && cp -r $TINY bare && sed -i 's/bos_token }}/bos_token }}{% include %}/' bare/tokenizer_config.json && "
         "$V eval chat/tasks/cht.yaml --plan tiny.plan --model bare $D --output x");
}

static void same_bytes(void **state) {
  (void)state;
  static const char *const cuts[] = {"--batch 8 --threads 1", "--batch 1 --shuffle-pages 3 --poison", "--chunk 5 --no-prefix-cache"};
  for (size_t i = 0; i < CUTS; i++) {
    char command[1024];
    snprintf(command, sizeof command, "rm -rf ev2 && $E ev2 %s > out 2>&1 && " SAME_AS_EV, cuts[i]);
    must(command);
  }
  must("rm -rf ev2 && ${E%%--plan*} --plan other.plan --model $TINY $D --output ev2 > out 2>&1 && " SAME_AS_EV);
  /* shuffled items: the same lines except for their numbers; the task with other examples is left out */
  must("mkdir -p turned/tasks && cp tasks/all.yaml tasks/whole.yaml turned/tasks && tac items.jsonl > turned/items.jsonl && rm -rf ev3 && "
       "$V eval turned/tasks/*.yaml --plan tiny.plan --model $TINY $D --output ev3 > out 2>&1");
  json_t *lines = read_lines("ev/results.jsonl"), *turned = read_lines("ev3/results.jsonl");
  const char *key;
  json_t *line;
  assert_int_equal(json_object_size(turned), 2 * ITEMS);
  json_object_foreach(turned, key, line) {
    json_t *same = json_object_get(lines, key);
    assert_non_null(same);
    json_object_del(line, "index");
    json_object_del(same, "index");
    if (!json_equal(line, same)) fail_msg("%s is another line where the items stand in another order", key);
  }
  json_decref(lines);
  json_decref(turned);
  /* the control: another prompt of one item changes its line, and nothing else */
  must("mkdir -p changed/tasks && cp tasks/all.yaml changed/tasks && sed '3s/\"prompt\": \"[a-z]*: ./&1/' items.jsonl > "
      "changed/items.jsonl && "
       "rm -rf ev3 && $V eval changed/tasks/all.yaml --plan tiny.plan --model $TINY $D --output ev3 > out 2>&1 && "
       "head -31 ev/results.jsonl > a && test $(diff a ev3/results.jsonl | grep -c '^<') = 1");
}

/* Python: flips a bit, drawn from a seed, of a file. */
#define FLIP "python3 -c \"import random\n" \
             "def flip(path, seed):\n" \
             "  draw, data = random.Random(seed), bytearray(open(path, 'rb').read())\n" \
             "  data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)\n" \
             "  open(path, 'wb').write(data)\n"

/* === Resuming =============================================================================================================== */

static void goes_on(void **state) {
  (void)state;
  char command[1024];
  for (uint32_t i = 0; i < KILLS; i++) { /* killed at some point, then resumed */
    snprintf(command, sizeof command, "rm -rf ev2; $E ev2 --batch 4 > out 2>&1 & p=$!; sleep 0.%u; kill -9 $p; wait $p; "
             "ls ev2/manifest.json 2> /dev/null; $E ev2 --resume --batch 3 > out 2> err && " SAME_AS_EV, 1 + 2 * i);
    must(command);
  }
  /* ev5: every item is complete, and there was no room for the end of the receipt */
  size_t receipt_bytes = 0;
  free(read_text("ev/receipt", &receipt_bytes));
  snprintf(command, sizeof command, "rm -rf ev5; prlimit --fsize=%zu $E ev5", receipt_bytes - 1);
  expect(3, "ev5/receipt: cannot be written", command);
  must("test -s ev5/results.progress && test $(wc -l < ev5/results.progress) = $(wc -l < ev/results.jsonl)");
  uint64_t seed = 20261122;
  for (uint32_t i = 0; i < LOSSES; i++) { /* each file ends anywhere, independently, as after a loss of power */
    snprintf(command, sizeof command, "rm -rf ev2; cp -r ev5 ev2; set -- %u %u %u; for f in results.jsonl receipt results.progress; do "
             "truncate -s $(($(stat -c %%s ev2/$f) * $1 / 1000)) ev2/$f; shift; done; $E ev2 --resume > out 2> err && " SAME_AS_EV,
             (unsigned)(random_next(&seed) % 1001), (unsigned)(random_next(&seed) % 1001), (unsigned)(random_next(&seed) % 1001));
    must(command);
  }
  for (uint32_t i = 0; i < LOSSES + 1; i++) { /* a bit anywhere: of the second line of the receipt, too */
    static const char *const names[] = {"results.jsonl", "receipt", "results.progress"};
    snprintf(command, sizeof command, "rm -rf ev2; cp -r ev5 ev2; " FLIP "flip('ev2/%s', %llu)\" && $E ev2 --resume > out 2> err && "
             SAME_AS_EV " && cmp -n 900 ev5/receipt ev2/receipt", names[i % 3], (unsigned long long)random_next(&seed));
    must(command);
  }
  /* interrupted between its start and its end, wherever these are on this computer */
  expect(130, "hint: run the same command with --resume",
         "for tenths in 1 2 3 4 5 6 8 10 12 15 19 24 30 40 50 65 80; do rm -rf ev2; "
         "timeout -s INT --preserve-status $((tenths / 10)).$((tenths % 10)) $E ev2 --batch 1 --threads 1 > told 2>&1; code=$?; "
         "grep -q 'hint: run the same' told && cat told && exit $code; done");
  expect(2, "use --resume to continue it", "$E ev2");
  expect(8, "tasks[0].count: 31, 3", "$E ev2 --resume --limit 3");
  must("$E ev2 --resume > out 2>&1 && " SAME_AS_EV);
  expect(2, "is not empty", "mkdir -p full && touch full/x && $E full");
}

/* A finished run is never rewritten: what was altered since is refused, and what was not keeps its bytes. */
static void a_finished_run_stays(void **state) {
  (void)state;
  static const char *const names[] = {"results.jsonl", "receipt", "manifest.json"};
  char command[1024];
  uint64_t seed = 77;
  must("rm -rf ev2; cp -pr ev ev2 && $E ev2 --resume > out 2> err && diff -r ev ev2 && test ! ev2/manifest.json -nt ev/manifest.json && "
       "$E ev2 --resume --output-format json > out && grep -q '\"results_digest\"' out");
  for (uint32_t i = 0; i < LOSSES + 1; i++) {
    const char *name = names[i % 3];
    snprintf(command, sizeof command, "rm -rf ev2; cp -r ev ev2; " FLIP "flip('ev2/%s', %llu)\" && cp -r ev2 ev6 && "
             "{ $E ev2 --resume > out 2> err; code=$?; diff -r ev2 ev6 && rm -rf ev6 && case $code in 4|8) ;; 0) test %s != results.jsonl "
             "&& grep -q $(grep -o 'manifest [0-9a-f]*' told) out;; *) false; esac; }", name, (unsigned long long)random_next(&seed), name);
    must("rm -rf ev6; $E ev --resume > told 2> err");
    must(command);
  }
  expect(8, "results.jsonl: its digest is",
         "rm -rf ev2; cp -r ev ev2; sed -i '20s/\"chain\":\"..../\"chain\":\"0000/' ev2/results.jsonl; $E ev2 --resume");
  expect(4, "its end is missing", "rm -rf ev2; cp -r ev ev2; sed -i '$d' ev2/receipt; $E ev2 --resume");
  must("rm -rf ev2; cp -r ev ev2 && rm ev2/report.html && $E ev2 --resume > out 2>&1 && cmp ev/report.html ev2/report.html");
}

/* === Replay ================================================================================================================= */

/* Flips a bit in a weight of a copy of the model. */
static void damage_model(void) {
  must("rm -rf damaged && cp -r $TINY damaged");
  FILE *file = e2e_open(&model, "damaged/model.safetensors", "r+b");
  assert_int_equal(fseek(file, -40001, SEEK_END), 0);
  int byte = getc(file);
  assert_int_equal(fseek(file, -40001, SEEK_END), 0);
  assert_true(putc(byte ^ 0x41, file) != EOF && fclose(file) == 0);
}

static void replays(void **state) {
  (void)state;
  must("rm -rf moved && mkdir moved && cp ev/manifest.json ev/results.jsonl ev/receipt moved");
  expect(0, "equal: ", "$R ev/manifest.json --batch 5");
  expect(0, "equal: ", "mv tasks hidden && mv items.jsonl hidden && $R moved/manifest.json --plan tiny.plan --model $TINY; c=$?; "
         "mv hidden/items.jsonl . && mv hidden tasks; exit $c"); /* the manifest alone is sufficient */
  expect(0, "no results.jsonl next to the manifest", "mkdir -p alone && cp ev/manifest.json alone && $R alone/manifest.json");
  expect(8, "\"correct\": recorded false, again true", "sed -i '7s/\"correct\":true/\"correct\":false/' moved/results.jsonl; "
         "$R moved/manifest.json > told 2>&1; c=$?; cat told; grep -q 'its tokens are the same' told && exit $c");
  expect(8, "the text does not have the stated digest",
         "sed 's/max_tokens: 80/max_tokens: 81/' ev/manifest.json > alone/manifest.json && $R alone/manifest.json");
  expect(8, "was it edited", "sed 's/\"items\": 31/\"items\": 32/' ev/manifest.json > alone/manifest.json && $R alone/manifest.json");
  damage_model();
  expect(8, "weights_digest: ", "$R ev/manifest.json --model damaged");
  expect(8, "first difference: ", "$R ev/manifest.json --model damaged --force > told 2>&1; c=$?; cat told; "
         "grep -q 'tokens before it are the same' told && exit $c");
  must("rm -rf kept && $R ev/manifest.json --output kept > out 2>&1 && cmp kept/results.jsonl ev/results.jsonl");
  expect(2, "has not ended", "sed 's/\"manifest_digest\": \"[0-9a-f]*\"/\"manifest_digest\": null/' ev/manifest.json > b && "
         "python3 -c \"import json; m = json.load(open('b')); m['outcome'] = None; json.dump(m, open('alone/manifest.json', 'w'))\" && $R "
             "alone/manifest.json");
}

/* The command that the report prints works in the folder that it names, wherever the evaluation was run and whatever it was told. */
static void repeats_from_its_folder(void **state) {
  (void)state;
  static const char *const PATHS[][2] = {{"tiny.plan", "deep/er/out"}, {"./deep/../tiny.plan", "out7"}, {"\"$PWD\"/tiny.plan", "out7"}};
  for (size_t i = 0; i < ARRAY_LEN(PATHS); i++) {
    char command[1024];
    snprintf(command, sizeof command, "rm -rf deep out7 && mkdir -p deep/er && ln -sfn $TINY linked && $V eval tasks/whole.yaml --plan %s "
             "--model linked $D --limit 3 --output %s --perturb chunked.plan > out && cd %s && grep -q 'No answer flipped' report.html && "
             "c=$(grep -o 'verbatim replay manifest.json[^<]*' report.html) && eval \"$V ${c#verbatim} $D\" > told && "
             "grep -q '^equal: 3' told && cd / && $R \"$OLDPWD/manifest.json\" > /dev/null", PATHS[i][0], PATHS[i][1], PATHS[i][1]);
    must(command);
  }
}

/* === Other numerics ========================================================================================================= */

static void perturbs(void **state) {
  (void)state;
  must("rm -rf ev4 && $E ev4 --limit 12 --perturb parity=fast-prefill --perturb chunked.plan > out 2> err && grep -q 'items flip' out");
  json_t *lines = read_lines("ev4/results.jsonl"), *base = read_lines("ev/results.jsonl"), *manifest = read_json("ev4/manifest.json");
  const json_t *others = json_object_get(json_object_get(manifest, "outcome"), "perturbed");
  assert_int_equal(json_array_size(others), 2);
  uint64_t flipped[2] = {0};
  const char *key;
  json_t *line;
  json_object_foreach(lines, key, line) {
    const json_t *list = json_object_get(line, "perturbed");
    assert_int_equal(json_array_size(list), strncmp(key, "whole/", 6) == 0 ? 0 : 2);
    for (size_t i = 0; i < json_array_size(list); i++) flipped[i] += json_is_true(json_object_get(json_array_get(list, i), "flipped"));
    json_object_del(line, "perturbed"); /* the first plan's lines are the same as without other plans */
    assert_true(json_equal(line, json_object_get(base, key)));
  }
  for (size_t i = 0; i < 2; i++)
    assert_int_equal(json_integer_value(json_object_get(json_array_get(others, i), "flipped")), (json_int_t)flipped[i]);
  const json_t *outcome = json_object_get(manifest, "outcome"), *receipts[2] = {json_object_get(outcome, "receipt_digest"),
                                                                             json_object_get(json_array_get(others, 0), "receipt_digest")};
  assert_false(json_equal(receipts[0], receipts[1]));
  json_decref(lines);
  json_decref(base);
  json_decref(manifest);
  expect(0, "equal: ", "$R ev4/manifest.json");
  expect(8, "flipped", "sed -i '0,/\"flipped\":false/s//\"flipped\":true/' ev4/results.jsonl && $R ev4/manifest.json");
  must("rm -rf ev4k && $E ev4k --limit 1 --perturb kv-cache-dtype=fp8_ds_mla > out 2> err && grep -q 'items flip' out && rm -rf ev4k");
  expect(2, "the same numerics", "$E x2 --perturb kv_cache_dtype=bf16");
  expect(4, "requires kv-cache-dtype fp8_ds_mla", "rm -rf x2; $E x2 --perturb kv-cache-scales=float32");
  expect(2, "the same numerics", "rm -rf x2; $E x2 --perturb other.plan");
  expect(8, "the plan is for another config.json", "$E x3 --perturb plan");
}

/* === Folders of someone else ================================================================================================ */

/* An incomplete file is truncated there: not the target of a link, and a pipe is not waited for. Two processes do not write into one
 * folder. */
static void guards_its_folder(void **state) {
  (void)state;
  static const char *const names[] = {"results.jsonl", "receipt", "report.html", "manifest.json.tmp"};
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    char command[512];
    snprintf(command, sizeof command, "rm -rf ev2 && cp -r ev ev2 && echo kept > mine && ln -sf ../mine ev2/%s && $E ev2 --resume",
             names[i]);
    expect(2, "found a link or a special file", command);
    must("test \"$(cat mine)\" = kept");
    snprintf(command, sizeof command, "rm -f ev2/%s && mkfifo ev2/%s && timeout -k 1 20 $E ev2 --resume", names[i], names[i]);
    expect(2, "found a link or a special file", command);
  }
  expect(2, "found a link or a special file", "rm -rf x && mkdir x && ln -s ../mine x/manifest.json.tmp && $E x");
  must("test \"$(cat mine)\" = kept");
  expect(2, "another evaluation is writing into it", "rm -rf x && mkdir x && flock x $E x");
  must("rm -rf x && mkdir x && $E x > out 2>&1"); /* the control: an existing folder without an owner */
}

/* Keys in someone else's file cannot send control characters to the terminal. */
static void shows_keys_plainly(void **state) {
  (void)state;
  expect(8, "\"fin?[31mish\": recorded \"stop\"", "rm -rf x && cp -r ev x && "
         "sed -i '1s/\"finish\"/\"fin\\\\u001b[31mish\"/' x/results.jsonl && $R x/manifest.json");
}

/* A manifest from someone else, the files next to it, and the paths that it names. */
static void waits_for_no_pipe(void **state) {
  (void)state;
  expect(3, "found a pipe", "rm -rf x && cp -r ev x && rm x/results.jsonl && mkfifo x/results.jsonl && "
         "timeout -k 1 60 $R x/manifest.json");
  expect(3, "found a pipe", "rm -rf bare x && cp -r $TINY bare && rm bare/config.json && mkfifo bare/config.json && "
         "timeout -k 1 20 $V eval tasks/all.yaml --plan tiny.plan --model bare $D --output x --perturb parity=fast-prefill");
  expect(3, "found a pipe", "rm -f pipe && mkfifo pipe && echo 'max-num-seqs: 4' > x.yaml && "
         "timeout -k 1 20 $V eval tasks/all.yaml --config x.yaml --plan pipe --model $TINY $D --output x");
}

/* === Refusals =============================================================================================================== */

static void refused(void **state) {
  (void)state;
  static const struct { int code; const char *words, *task; } cases[] = {
    {4, "bad.yaml: key \"fewshot\" is not known; hint: the nearest known key is \"few_shot\"", "fewshot: {count: 1}\n"},
    {4, "bad.yaml: items.jsonl: line 1: template: the item has no field \"question\"", "prompt: '{{question}}'\n"},
    {4, "few_shot: expected 99 examples beside the item, found 30", "few_shot: {count: 99}\n"},
    {4, "does not apply to this kind of task", "choices: [a, b]\n"},
    {4, "key \"limit\" is given twice", "limit: 1\nlimit: 2\n"},
    {4, "anchors, aliases and tags", "where: &a {task: add}\n"},
    {4, "extract: at byte", "extract: '('\n"},
    {4, "unknown keys", "generation: {max_token: 3}\n"},
    {4, "\"deadline_seconds\" does not apply", "generation: {deadline_seconds: 3}\n"},
    {6, "max-model-len is 256", "generation: {max_tokens: 256}\n"},
    {4, "that \"where\" leaves", "where: {task: none}\n"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char text[1024];
    snprintf(text, sizeof text, "name: bad\nkind: generate\nitems: items.jsonl\n%s", cases[i].task);
    write_text("bad.yaml", text);
    expect(cases[i].code, cases[i].words, "rm -rf x; $V eval bad.yaml --plan tiny.plan --model $TINY $D --output x");
    must("test ! -e x/manifest.json");
  }
  expect(2, "expected a plan's file, or KEY=VALUE", "$E x --perturb parities=strict");
  expect(2, "expected KEY=VALUE on one line", "rm -rf x; $E x --perturb 'parity=fast-prefill\nkv-pages: 1'");
  expect(2, "hint: ev/manifest.json", "$R ev");
  expect(2, "would be overwritten, but it is the manifest", "$R ev/manifest.json --output ev");
  expect(2, "expected --model", "$V eval bad.yaml");
  expect(2, "two tasks have the name", "$V eval tasks/all.yaml tasks/all.yaml --plan tiny.plan --model $TINY $D --output x");
  expect(3, "found nothing of that name", "$V eval none.yaml --plan tiny.plan --model $TINY $D --output x");
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equals_run_and_score), cmocka_unit_test(chats), cmocka_unit_test(tells_flip_risk), cmocka_unit_test(same_bytes),
      cmocka_unit_test(goes_on), cmocka_unit_test(a_finished_run_stays),
      cmocka_unit_test(repeats_from_its_folder), cmocka_unit_test(guards_its_folder),
      cmocka_unit_test(waits_for_no_pipe), cmocka_unit_test(shows_keys_plainly), cmocka_unit_test(refused),
      cmocka_unit_test(replays), cmocka_unit_test(perturbs)};
  char path[E2E_PATH_MAX];
  e2e_begin(argc, argv);
  shell_begin(&model, SETUP);
  e2e_make_model(&model, "tests/oracle/small-v3.json", "max-num-seqs: 8\nmax-num-batched-tokens: 64\nmax-model-len: 512\nkv-pages: "
      "48\nladder: [1, 2, 4, "
      "8]\n");
  e2e_model tiny = model;
  snprintf(tiny.model_dir, sizeof tiny.model_dir, "tests/tiny");
  e2e_make_plan(&tiny, "tiny.plan", "max-num-seqs: 16\nmax-num-batched-tokens: 256\nmax-model-len: 256\nkv-pages: 64\nladder: [1, 8]\n",
      path);
  e2e_make_plan(&tiny, "other.plan", "max-num-seqs: 3\nmax-num-batched-tokens: 40\nmax-model-len: 192\nkv-pages: 10\nladder: [1, 2]\n",
      path);
  e2e_make_plan(&tiny, "chunked.plan", "max-num-seqs: 8\nmax-num-batched-tokens: 256\nmax-model-len: 256\nkv-pages: 64\nchunk-tokens: "
      "64\n", path);
  write_tasks();
  int failed = _cmocka_run_group_tests("tests", tests, ARRAY_LEN(tests) - LEFT_OUT, NULL, NULL);
  e2e_remove(&model);
  return failed;
}
