/* test_published.c - evaluations that are published, through the program with the shipped model: intervals and comparisons against
 * another program's.
 *
 * The controls are in the tests. `--device gpu` uses the GPU. */
#include "tests/unit/unit.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "e2e.h"
#include "engine/base/base.h"

static e2e_model model; /* its scratch folder is shared: tasks/, items.jsonl, tiny.plan */

/* === Commands and files ===================================================================================================== */

/* E evaluates the tasks that follow its folder. */
static int shell(char *text, size_t text_bytes, const char *command) {
  char setup[512];
  snprintf(setup, sizeof setup, "D='--device %s --quiet' && E=\"$V eval --plan tiny.plan --model $TINY $D --output\" && ",
           e2e_device() == 0 ? "gpu" : "cpu");
  return e2e_shell(&model, setup, command, text, text_bytes);
}

static void must(const char *command) {
  char text[16384];
  int code = shell(text, sizeof text, command);
  if (code != 0) fail_msg("%s: ended with %d: %s", command, code, text);
}

/* The command ends with the code, and its output contains the words. */
static void expect(int code, const char *words, const char *command) {
  char text[16384];
  int found = shell(text, sizeof text, command);
  if (found != code || !strstr(text, words)) fail_msg("%s: expected %d and \"%s\", found %d and \"%s\"", command, code, words, found, text);
}

static void write_text(const char *name, const char *text) {
  FILE *file = e2e_open(&model, name, "wb");
  assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

/* === Intervals ============================================================================================================== */

/* Other ways than the program's: Wilson's bounds by bisection of the inequality that they solve, clustered errors by pairs of items. */
static const char COUNT_INTERVALS[] =
  "import json, math\n"
  "lines = [json.loads(l) for l in open('x/results.jsonl')]\n"
  "rows = {t['name']: t for t in json.load(open('x/manifest.json'))['outcome']['scores']['tasks']}\n"
  "Z = 1.9599639845400543\n"
  "def bound(q, m, low, high):\n"
  "  for _ in range(200):\n"
  "    p = (low + high) / 2\n"
  "    inside = (q - p) ** 2 <= Z * Z * p * (1 - p) / m\n"
  "    low, high = (p, high) if inside == (low == q or low > q) else (low, p)\n"
  "  return low\n"
  "def near(a, b): assert abs(a - b) < 1e-9, (a, b)\n"
  "for name, row in rows.items():\n"
  "  own = [l for l in lines if l['task'] == name]\n"
  "  v = [l.get('share', float(l['correct'])) for l in own]\n"
  "  c = [l['cluster'] if row['clusters'] else i for i, l in enumerate(own)]\n"
  "  n, q = len(v), sum(v) / len(v)\n"
  "  assert row['clusters'] in (None, len(set(c))), row\n"
  "  V = sum((x - q) ** 2 for x in v) / (n - 1) / n\n"
  "  V += sum((v[i] - q) * (v[j] - q) for i in range(n) for j in range(n) if i != j and c[i] == c[j]) / n / n\n"
  "  answers = sum(len(l.get('samples', [0])) for l in own)\n"
  "  m = n if answers == n and not row['clusters'] else min(answers, n * q * (1 - q) / (n - 1) / V)\n"
  "  found = row['metrics'][0]\n"
  "  assert found['interval'] == 'wilson' and 0 < q < 1, (name, q)\n"
  "  near(found['stderr'], math.sqrt(V)); near(found['low'], bound(q, m, 0, q)); near(found['high'], bound(q, m, q, 1))\n"
  "plain, clustered = rows['plain']['metrics'][0], rows['clustered']['metrics'][0]\n"
  "assert plain['value'] == clustered['value'] and plain['stderr'] < clustered['stderr'] and plain['low'] > clustered['low']\n"
  "assert ', %d clusters' % rows['clustered']['clusters'] in open('table').read()\n";

/* The model knows none of these prompts' form: some answers are right, and those of one kind of item go together. */
static void tells_intervals(void **state) {
  (void)state;
  static const char body[] = "kind: generate\nitems: ../items.jsonl\nprompt: ' {{prompt}}'\n";
  char text[512];
  write_text("intervals.py", COUNT_INTERVALS);
  snprintf(text, sizeof text, "name: plain\n%sgeneration: {max_tokens: 12}\n", body);
  write_text("tasks/plain.yaml", text);
  snprintf(text, sizeof text, "name: clustered\n%sgeneration: {max_tokens: 12}\ncluster: task\n", body);
  write_text("tasks/clustered.yaml", text);
  snprintf(text, sizeof text, "name: samples\n%sgeneration: {max_tokens: 12, n: 3, temperature: 2, seed: 1}\n", body);
  write_text("tasks/samples.yaml", text);
  must("$E x tasks/plain.yaml tasks/clustered.yaml tasks/samples.yaml > table 2> err && python3 intervals.py 2>&1");
}

/* === Comparisons ============================================================================================================ */

static const char COUNT_DIFFERENCES[] =
  "import json, math\n"
  "runs = [{l['id']: l for l in map(json.loads, open(name + '/results.jsonl')) if l['task'] == 'plain'} for name in ('x', 'y')]\n"
  "found = json.load(open('compared'))['tasks'][0]\n"
  "ids = [i for i in runs[0] if i in runs[1]]\n"
  "a, b = [[float(r[i]['correct']) for i in ids] for r in runs]\n"
  "d, n = [y - x for x, y in zip(a, b)], len(ids)\n"
  "lost, gained, mean = d.count(-1), d.count(1), sum(d) / n\n"
  "assert n > 30 and lost and gained and (found['items'], len(found['flips'])) == (n, lost + gained), found\n"
  "assert [f['id'] for f in found['flips']] == [i for i, x in zip(ids, d) if x]\n"
  "assert found['only_a'] == [] and found['only_b'] == [i for i in runs[1] if i not in runs[0]] != []\n"
  "for f in found['flips']:\n"
  "  assert [f['a'], f['b']] == [r[f['id']]['extracted'] for r in runs] and runs['ab'.index(f['right'])][f['id']]['correct']\n"
  "  assert f['close'] == any(u is not None and u < 2 for u in f['ulps'])\n"
  "m = found['metrics'][0]\n"
  "p, q = (lost + 1) / (n + 2), (gained + 1) / (n + 2)\n"
  "half = 1.9599639845400543 * math.sqrt((p + q - (q - p) ** 2) / (n + 2))\n"
  "test = min(1, 2 * sum(math.comb(lost + gained, k) for k in range(min(lost, gained) + 1)) / 2 ** (lost + gained))\n"
  "expected = mean, math.sqrt(sum((x - mean) ** 2 for x in d) / (n - 1) / n), q - p - half, q - p + half, test\n"
  "for x, y in zip((m['difference'], m['stderr'], m['low'], m['high'], m['mcnemar']['p']), expected): assert abs(x - y) < 1e-12, (x, y)\n";

/* The same items with two prompts, one run without the last items. */
static void compares(void **state) {
  (void)state;
  static const char body[] = "kind: generate\nitems: ../items.jsonl\ngeneration: {max_tokens: 12}\n";
  char text[512];
  write_text("differences.py", COUNT_DIFFERENCES);
  snprintf(text, sizeof text, "name: plain\n%sprompt: 'add: {{prompt}}'\nlimit: 36\n", body);
  write_text("tasks/plain.yaml", text);
  snprintf(text, sizeof text, "name: plain\n%sprompt: 'count: {{prompt}}'\n", body);
  write_text("tasks/other.yaml", text);
  must("rm -rf x y && $E x tasks/plain.yaml > table 2>&1 && $E y tasks/other.yaml > table 2>&1");
  must("$V compare x/manifest.json y/manifest.json --differ prompt --differ limit --json > compared && python3 differences.py 2>&1");
  must("$V compare x/manifest.json y/manifest.json --differ prompt --differ limit > told && grep -q \"McNemar's exact test: p = \" told "
       "&& grep -q 'right in B alone: ' told && grep -q 'only in B: 4 items' told");
  must("$V compare x/manifest.json x/manifest.json | grep -q '^  0 items flipped'");
  expect(8, "task \"plain\": not the same questions: limit: 36, 0; hint: --differ limit",
         "$V compare x/manifest.json y/manifest.json --differ prompt");
  expect(8, "prompt: \"add: {{prompt}}\", \"count: {{prompt}}\"", "$V compare x/manifest.json y/manifest.json --differ limit");
  expect(8, "y/results.jsonl: its digest is", "cp -r y z && sed -i '3s/true/false/' z/results.jsonl && mv z/results.jsonl y && "
         "$V compare x/manifest.json y/manifest.json");
  expect(3, "results.jsonl", "rm y/results.jsonl && $V compare x/manifest.json y/manifest.json");
  expect(2, "found 1 words", "$V compare x/manifest.json");
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tells_intervals), cmocka_unit_test(compares)};
  char path[E2E_PATH_MAX];
  e2e_begin(argc, argv);
  e2e_make_model(&model, "tests/oracle/small-v3.json", "max-num-seqs: 8\nmax-num-batched-tokens: 64\nmax-model-len: 512\nkv-pages: 48\n"
                 "ladder: [1, 2, 4, 8]\n");
  e2e_model tiny = model;
  snprintf(tiny.model_dir, sizeof tiny.model_dir, "tests/tiny");
  e2e_make_plan(&tiny, "tiny.plan", "max-num-seqs: 16\nmax-num-batched-tokens: 256\nmax-model-len: 256\nkv-pages: 64\nladder: [1, 8]\n",
      path);
  must("mkdir -p tasks && awk 'NR % 11 == 5' $TINY/items.jsonl > items.jsonl");
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_remove(&model);
  return failed;
}
