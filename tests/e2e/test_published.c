/* test_published.c - evaluations that are published, through the program with the shipped model: intervals against another program's.
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

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tells_intervals)};
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
