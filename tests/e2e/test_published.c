/* test_published.c - evaluations that are published, through the program with the shipped model: intervals and comparisons against
 * another program's.
 *
 * The controls are in the tests. `--device gpu` uses the GPU. */
#include "tests/unit/unit.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "shell.h"
#include "engine/base/base.h"

#define SETUP "D=\"$D --quiet\" && E=\"$V eval --plan tiny.plan --model $TINY $D --output\" && "

static e2e_model model; /* its scratch folder is shared: tasks/, items.jsonl, tiny.plan */

/* === Commands and files ===================================================================================================== */

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
  expect(2, "found 1 word;", "$V compare x/manifest.json");
}

/* === Items that are too long ================================================================================================ */

static const char COUNT_LENGTHS[] =
  "import json\n"
  "def lines(folder): return {l['task'] + '/' + l['id']: l for l in map(json.loads, open(folder + '/results.jsonl'))}\n"
  "def asked(folder): return {r['id']: r['prompt'] for r in map(json.loads, open(folder + '/receipt')) if 'prompt' in r}\n"
  "skipped, cut, base, wide = lines('skipped'), lines('cut'), lines('base'), asked('wide')\n"
  "row = json.load(open('skipped/manifest.json'))['outcome']['scores']['tasks'][0]\n"
  "assert (row['items'], row['skipped'], row['shortened'], len(skipped)) == (42, 2, 0, 42), row\n"
  "for name, line in skipped.items():\n"
  "  if 'long' in name: assert line['skipped'] == 'too_long' and line['requests'] == [] and 'text' not in line, line\n"
  "  else: assert {**line, 'index': 0} == {**base[name], 'index': 0}, name\n"
  "right = sum(l.get('correct', False) for l in skipped.values())\n"
  "assert abs(row['metrics'][0]['value'] - right / 40) < 1e-12\n"
  "new = asked('cut')\n"
  "for name, line in cut.items():\n"
  "  if 'long' not in name: continue\n"
  "  parts = [name] if line['kind'] == 'generate' else [name + '#%d' % i for i in range(len(line['choices']))]\n"
  "  room = 256 - (12 if line['kind'] == 'generate' else 0)\n"
  "  longest = max(len(wide[p]) for p in parts)\n"
  "  assert line['dropped'] == longest - room > 0, line\n"
  "  for p in parts: assert new[p] == wide[p][:1] + wide[p][1 + line['dropped']:], p\n"
  "assert json.load(open('cut/manifest.json'))['setup']['tasks'][0]['max_len'] == 256\n";

/* Two items do not fit: both are named before the weights are read, or left out, or cut behind the first token. What a sequence of twice
 * the length is asked shows what was cut. */
static void too_long(void **state) {
  (void)state;
  static const char body[] = "items: ../long.jsonl\nprompt: 'add: {{prompt}}'\n";
  char text[512];
  write_text("lengths.py", COUNT_LENGTHS);
  must("python3 -c \"import json\n"
       "for i in 0, 1: print(json.dumps(dict(id='long-%d' % i, task='add', prompt='%d+1= ' * (60 + 10 * i) % (*range(60 + 10 * i),),"
       "answer='7')))\" > more && (head -n 7 items.jsonl; head -n 1 more; tail -n +8 items.jsonl; tail -n 1 more) > long.jsonl");
  snprintf(text, sizeof text, "name: g\nkind: generate\n%sgeneration: {max_tokens: 12}\n", body);
  write_text("tasks/base.yaml", text);
  snprintf(text, sizeof text, "name: c\nkind: choice\n%schoices: ['7', '12345']\nanswer: '7'\n", body);
  write_text("tasks/choose.yaml", text);
  must("for p in skip truncate-left; do for t in base choose; do\n"
       "(cat tasks/$t.yaml; echo \"too_long: $p\") > tasks/$t-$p.yaml; done; done");
  must("mkdir -p bare && cp $TINY/*.json bare && rm -f bare/items.jsonl && rm -rf x");
  expect(6, "g/long-0: too long for sequences of 256 tokens: ", "$V eval --plan tiny.plan --model bare $D --output x tasks/base.yaml");
  expect(6, "g/long-1: too long for sequences of 256 tokens: ", "$V eval --plan tiny.plan --model bare $D --output x tasks/base.yaml");
  expect(6, "2 items are too long; hint: ", "$V eval --plan tiny.plan --model bare $D --output x tasks/base.yaml");
  expect(3, "bare", "$V eval --plan tiny.plan --model bare $D --output x tasks/base-skip.yaml"); /* the control: no weights there */
  must("rm -rf skipped cut base wide && $E skipped tasks/base-skip.yaml > told 2>&1 && grep -q '2 items too long, skipped' told && "
       "$E cut tasks/base-truncate-left.yaml tasks/choose-truncate-left.yaml > told 2>&1 && grep -q '2 prompts too long, cut' told && "
       "sed 's/long.jsonl/items.jsonl/' tasks/base.yaml > tasks/short.yaml && $E base tasks/short.yaml > told 2>&1 && "
       "$V eval --plan wide.plan --model $TINY $D --output wide tasks/base.yaml tasks/choose.yaml > told 2>&1 && "
       "python3 lengths.py 2>&1");
  must("$V replay skipped/manifest.json $D | grep -q ^equal: && $V replay cut/manifest.json $D | grep -q ^equal:");
  expect(8, "max_len: 256, 512", "$V replay cut/manifest.json --plan wide.plan $D");
}

/* === Texts ================================================================================================================== */

static const char COUNT_ENDS[] =
  "import json\n"
  "lines = [json.loads(l) for l in open('x/results.jsonl')]\n"
  "row = json.load(open('x/manifest.json'))['outcome']['scores']['tasks'][0]\n"
  "items = {i['id']: i for i in map(json.loads, open('items.jsonl'))}\n"
  "cut, unended = sum(l['finish'] == 'length' for l in lines), sum(l.get('unended', False) for l in lines)\n"
  "assert 0 < cut < 40 and 0 < unended < 40 and (row['cut'], row['unended']) == (cut, unended), row\n"
  "for l in lines:\n"
  "  thought, end, rest = l['text'].rpartition('1')\n"
  "  assert l.get('unended', False) == (end == '') and l['extracted'] == (rest if end else None), l\n"
  "  assert l['correct'] == (end != '' and rest.strip() == items[l['id']]['answer'].rpartition('1')[2]), l\n"
  "  assert l['prompt'] == items[l['id']]['prompt'] and l['prompt_bytes'] == len(l['prompt']), l\n"
  "table = open('table').read()\n"
  "assert '%d answers cut at max_tokens' % cut in table\n"
  "assert '%d answers whose thought did not end' % unended in table\n"
  "page = open('x/report.html').read()\n"
  "shown = [l['prompt'].replace('<', '&lt;').replace('>', '&gt;') in page for l in lines if not l['correct']]\n"
  "assert '&#183; tiny' in page and all(shown) and shown\n";

/* The part behind the last 1 is the answer; without a 1 there is none. */
static void thoughts(void **state) {
  (void)state;
  write_text("ends.py", COUNT_ENDS);
  write_text("tasks/thought.yaml", "name: thought\nkind: generate\nitems: ../items.jsonl\nthink_end: '1'\nanswer: '{{rest}}'\n"
             "generation: {max_tokens: 5}\n");
  must("python3 -c \"import json\n"
       "for l in open('items.jsonl'):\n"
       "  i = json.loads(l); print(json.dumps({**i, 'rest': i['answer'].rpartition('1')[2]}))\" > rests && mv items.jsonl kept && "
       "mv rests items.jsonl && rm -rf x && $E x tasks/thought.yaml > table 2>&1 && python3 ends.py 2>&1 && mv kept items.jsonl");
}

/* No prompt, answer or choice in any file that is passed on; figures and digests are those of the same run with texts. */
static void no_text(void **state) {
  (void)state;
  write_text("tasks/secret.yaml", "name: secret\nkind: generate\nitems: ../secret.jsonl\nfew_shot: {count: 1, separator: ' '}\n"
             "generation: {max_tokens: 9}\n");
  write_text("tasks/choose2.yaml", "name: choose2\nkind: choice\nitems: ../secret.jsonl\nchoices: ['{{answer}}', 'QUERTZ']\n");
  must("sed 's/\"answer\": \"/&VWXY/; s/\"prompt\": \"/&ZYXW/' items.jsonl > secret.jsonl && rm -rf x y && "
       "$E x tasks/secret.yaml tasks/choose2.yaml --perturb parity=fast-prefill > told 2>&1 && "
       "$E y tasks/secret.yaml tasks/choose2.yaml --perturb parity=fast-prefill --no-text > told 2>&1");
  must("for w in VWXY ZYXW; do grep -q $w x/results.jsonl && grep -q $w x/manifest.json && grep -q $w x/report.html && "
       "! grep -l $w y/results.jsonl y/manifest.json y/report.html y/perturbed-1.jsonl || exit 1; done; ! grep -q QUERTZ y/results.jsonl");
  must("python3 -c \"import json\n"
       "a, b = [json.load(open(f + '/manifest.json'))['outcome'] for f in 'xy']\n"
       "assert a['scores'] == b['scores'] and a['receipt_digest'] == b['receipt_digest']\"");
  must("$V replay y/manifest.json $D | grep -q ^equal:");
  expect(2, "secret.jsonl is not in the manifest", "rm -rf z && cp -r y z && python3 -c \"import json\n"
         "m = json.load(open('z/manifest.json')); m['run']['task_files'] = [None, None]; json.dump(m, open('z/manifest.json', 'w'))\" && "
         "$V replay z/manifest.json $D");
  expect(8, "with_text: false, true", "$E y tasks/secret.yaml tasks/choose2.yaml --perturb parity=fast-prefill --resume");
}

/* === Scored again =========================================================================================================== */

/* With the same rule nothing changes; with another one the lines are those of an evaluation that had it from the start, byte for byte, and
 * a replay of the new manifest confirms them. */
static void rescores(void **state) {
  (void)state;
  static const char body[] = "kind: generate\nitems: ../firsts.jsonl\nsubsets: task\n";
  char text[768];
  must("python3 -c \"import json\n"
       "for l in open('items.jsonl'):\n"
       "  i = json.loads(l); print(json.dumps({**i, 'first': i['answer'][0].lower()}))\" > firsts.jsonl && mkdir -p new");
  snprintf(text, sizeof text, "name: g\n%sgeneration: {max_tokens: 9}\n", body);
  write_text("tasks/g.yaml", text);
  snprintf(text, sizeof text, "name: s\n%sgeneration: {max_tokens: 9, n: 3, temperature: 2, seed: 4}\n", body);
  write_text("tasks/s.yaml", text);
  write_text("tasks/k.yaml", "name: k\nkind: choice\nitems: ../firsts.jsonl\nwhere: {task: compare}\nchoices: ['<', '>']\nanswer: '<'\n");
  write_text("new/k.yaml", "name: k\nkind: choice\nitems: ../firsts.jsonl\nwhere: {task: compare}\nchoices: ['<', '>']\nanswer: '>'\n");
  write_text("rule", "normalize: [strip, lower]\nextract: '^(.)'\ncluster: task\nanswer: '{{first}}'\nthink_end: '1'\n");
  must("for t in g s; do cat tasks/$t.yaml rule > new/$t.yaml; done");
  must("rm -rf x y z && $E x tasks/g.yaml tasks/s.yaml tasks/k.yaml > told 2>&1 && $E y new/g.yaml new/s.yaml new/k.yaml > told 2>&1");
  must("$V rescore x/manifest.json > told && grep -q '^0 of ' told && grep -q ': holds$' told");
  must("$V rescore x/results.jsonl --task new/g.yaml --task new/s.yaml --task new/k.yaml --output z > told && cmp y/results.jsonl "
       "z/results.jsonl && ! cmp -s x/results.jsonl z/results.jsonl && grep -q ': new$' told && grep -q 'thought did not end' told && "
       "test -s z/report.html");
  must("python3 -c \"import json\n"
       "x, y, z = [json.load(open(f + '/manifest.json')) for f in 'xyz']\n"
       "assert z['setup']['rescored_from'] == {'manifest_digest': x['manifest_digest'], 'results_digest': x['outcome']['results_digest']}\n"
       "assert z['outcome'] == y['outcome'] and z['setup'] == {**y['setup'], 'rescored_from': z['setup']['rescored_from']}\n"
       "assert z['manifest_digest'] != y['manifest_digest']\"");
  must("$V replay z/manifest.json $D | grep -q ^equal:");
  expect(2, "it is there already", "$V rescore x/manifest.json --output z");
  expect(2, "has no task \"other\"",
         "sed 's/name: g/name: other/' new/g.yaml > new/o.yaml && $V rescore x/manifest.json --task new/o.yaml");
  expect(8, "it asks for other answers: generation.max_tokens: 9, 8",
         "sed 's/max_tokens: 9/max_tokens: 8/' tasks/g.yaml > new/o.yaml && $V rescore x/manifest.json --task new/o.yaml");
  expect(8, "the prompt is another one", "echo \"prompt: '{{prompt}} '\" | cat tasks/g.yaml - > new/o.yaml && "
         "$V rescore x/manifest.json --task new/o.yaml");
  expect(8, "choices[1]: \">\", \"=\"",
         "sed \"s/'<', '>'/'<', '='/\" tasks/k.yaml > new/o.yaml && $V rescore x/manifest.json --task new/o.yaml");
  expect(8, "its digest is", "rm -rf y && cp -r x y && sed -i '3s/correct/corrEct/' y/results.jsonl && $V rescore y/manifest.json");
  must("rm -rf y && $E y tasks/g.yaml --no-text > told 2>&1");
  expect(2, "no texts to judge", "$V rescore y/manifest.json --tasks tasks");
}

/* === Complete tasks ========================================================================================================= */

static const char COUNT_COMPLETE[] =
  "import json\n"
  "scores = json.load(open('x/manifest.json'))['outcome']['scores']\n"
  "prose, reading, sums = scores['tasks']\n"
  "lines = [json.loads(l) for l in open('x/results.jsonl')]\n"
  "assert [(t['name'], t['items'], t['clusters'], t['skipped'], t['failed']) for t in scores['tasks']] == [\n"
  "  ('prose', 6, 3, 0, 0), ('reading', 8, 4, 0, 0), ('sums', 4, None, 0, 0)], scores\n"
  "assert [s['name'] for s in reading['subsets']] == ['travel', 'home'] and sums['unended'] == 4\n"
  "assert [m['interval'] for m in prose['metrics']] == ['bootstrap'] * 4 and reading['metrics'][0]['interval'] == 'wilson'\n"
  "first = next(l for l in lines if l['task'] == 'reading')\n"
  "assert first['prompt'].startswith('Text: A kettle') and ' Four minutes\\n\\nText: The ferry' in first['prompt'], first\n"
  "assert first['prompt'].endswith('winter?\\nAnswer:') and [c['text'] for c in first['choices']][2] == ' At ten'\n";

/* The shipped model knows nothing of their questions: what is tested is that they are read, asked and counted as they say. */
static void complete_tasks(void **state) {
  (void)state;
  write_text("complete.py", COUNT_COMPLETE);
  must("rm -rf x && $E x $TINY/../examples/complete/*.yaml > told 2>&1 && python3 complete.py 2>&1 && "
       "$V replay x/manifest.json $D | grep -q ^equal:");
  for (size_t i = 0; i < 3; i++) { /* each alone */
    static const char *const names[] = {"prose", "reading", "sums"};
    char command[256];
    snprintf(command, sizeof command, "rm -rf x && $E x $TINY/../examples/complete/%s.yaml > told 2>&1 && grep -q ^%s told", names[i],
             names[i]);
    must(command);
  }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tells_intervals), cmocka_unit_test(compares), cmocka_unit_test(too_long),
                                     cmocka_unit_test(thoughts), cmocka_unit_test(no_text), cmocka_unit_test(rescores),
                                     cmocka_unit_test(complete_tasks)};
  char path[E2E_PATH_MAX];
  e2e_begin(argc, argv);
  shell_begin(&model, SETUP);
  e2e_make_model(&model, "tests/oracle/small-v3.json", "max-num-seqs: 8\nmax-num-batched-tokens: 64\nmax-model-len: 512\nkv-pages: 48\n"
                 "ladder: [1, 2, 4, 8]\n");
  e2e_model tiny = model;
  snprintf(tiny.model_dir, sizeof tiny.model_dir, "tests/tiny");
  e2e_make_plan(&tiny, "tiny.plan", "max-num-seqs: 16\nmax-num-batched-tokens: 256\nmax-model-len: 256\nkv-pages: 64\nladder: [1, 8]\n",
      path);
  e2e_make_plan(&tiny, "wide.plan", "max-num-seqs: 4\nmax-num-batched-tokens: 256\nmax-model-len: 512\nkv-pages: 64\nladder: [1, 4]\n",
      path);
  must("mkdir -p tasks && awk 'NR % 11 == 5' $TINY/items.jsonl > items.jsonl");
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_remove(&model);
  return failed;
}
