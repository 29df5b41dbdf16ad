/* test_eval_report.c - a report is a page that two parsers accept, whatever texts it contains; it states what the manifest and the result
 * lines state; its bytes are the same each time and their number is bounded. tests/unit/page_check.py reads the page; its controls are
 * pages broken on purpose. */
#include "tests/unit/unit.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "engine/eval/report/report.h"
#include "engine/eval/report/data.h"
#include "engine/eval/report/text.h"

#define HOSTILE \
  "<script>alert('x')</script>\"><img src=x onerror=y>&amp;]]>--><!-- \x01\x1b[31m" \
  "\x7f\xe2\x80\xaegnp\xe2\x81\xa6\xf3\xa0\x81\x81\xef\xbf\xbf e"

static char path[] = "/tmp/verbatim-report-XXXXXX";

/* === Invented runs ========================================================================================================== */

static json_t *object(const char *text) {
  json_error_t error;
  json_t *made = json_loads(text, JSON_ALLOW_NUL, &error);
  if (!made) fail_msg("%s: %s", error.text, text);
  return made;
}

static json_t *metric(const char *name, double value) {
  return json_pack("{s:s, s:f, s:f, s:f, s:f}", "name", name, "value", value, "stderr", 0.01, "low", value * 0.9, "high", value);
}

static json_t *task(const char *name, const char *kind) {
  return json_pack("{s:s, s:s, s:n, s:{s:s, s:s, s:s}, s:{s:s, s:s, s:n}, s:n, s:{s:i}}", "name", name, "kind", kind, "group",
                   "file", "name", "t.yaml", "digest", "d1", "text", "name: t\nkind: x\n",
                   "items", "name", "i.jsonl", "digest", "d2", "text", "shots", "parameters", "max_tokens", 32);
}

static json_t *scores(const char *name, const char *kind, json_t *first, json_t *subsets) {
  return json_pack("{s:s, s:s, s:i, s:i, s:[o], s:o}", "name", name, "kind", kind, "items", 4, "failed", 0, "metrics", first, "subsets",
                   subsets);
}

/* Tasks of these names: one generates, one scores choices, one scores texts; one has another plan. */
static json_t *manifest_of(const char *generate, const char *choice, const char *texts) {
  json_t *subset = json_pack("[{s:s, s:i, s:[o]}]", "name", "easy", "items", 2, "metrics", metric("acc", 0.5));
  json_t *scored = json_pack("[o, o, o]", scores(generate, "generate", metric("acc", 0.75), subset),
                             scores(choice, "choice", metric("acc", 0.25), json_array()),
                             scores(texts, "perplexity", metric("token_perplexity", 12.5), json_array()));
  json_t *setup = json_pack("{s:s, s:s, s:[o, o, o], s:[{s:s}]}", "numerics_id", "0123456789abcdef0123456789abcdef",
                            "weights_digest", "w-digest", "tasks", task(generate, "generate"), task(choice, "choice"),
                            task(texts, "perplexity"), "perturbed", "numerics_id", "other-numerics");
  json_t *outcome = json_pack("{s:{s:o, s:[{s:s, s:[o]}]}, s:s, s:s}", "scores", "tasks", scored, "groups", "name", "both", "metrics",
                              metric("acc", 0.5), "receipt_digest", "r-digest", "results_digest", "l-digest");
  return json_pack("{s:i, s:o, s:o, s:s, s:{s:s, s:s, s:s, s:s}}", "verbatim_evaluation", 1, "setup", setup, "outcome", outcome,
                   "manifest_digest", "00ff00ff00ff00ff00ff00ff00ff00ff", "run", "device", "CPU, 2 threads", "plan", "my plan.plan",
                   "model", "models/it", "finished", "2026-01-31T23:59:59Z");
}

static json_t *lines(void) {
  return object(
    "[{\"task\":\"gen\",\"index\":0,\"id\":\"g0\",\"subset\":\"easy\",\"text\":\"it is 41\",\"extracted\":\"41\","
    "\"answer\":\"42\",\"correct\":false,"
    "\"margin\":{\"logprob\":0.25,\"probability\":0.1,\"ulps\":1.5,\"at\":3},\"perturbed\":[{\"correct\":true,\"flipped\":true}]},"
    "{\"task\":\"gen\",\"index\":1,\"id\":\"g1\",\"text\":\"7\",\"extracted\":\"7\",\"answer\":\"7\",\"correct\":true,"
    "\"margin\":{\"logprob\":0,\"probability\":0,\"ulps\":0,\"at\":2},\"perturbed\":[{\"correct\":false,\"flipped\":true}]},"
    "{\"task\":\"gen\",\"index\":2,\"id\":\"g2\",\"subset\":\"easy\",\"text\":\"8\",\"answer\":\"8\",\"correct\":true,"
    "\"margin\":{\"logprob\":9,\"probability\":0.9,\"ulps\":300,\"at\":0},\"perturbed\":[{\"correct\":true,\"flipped\":false}]},"
    "{\"task\":\"gen\",\"index\":3,\"id\":\"g3\",\"text\":\"\",\"extracted\":null,\"answer\":\"8\",\"correct\":false,"
    "\"failed\":\"nonfinite\"},"
    "{\"task\":\"pick\",\"index\":0,\"id\":7,\"choices\":[{\"text\":\"aye\"},{\"text\":\"no\"}],\"best\":1,\"answer\":0,"
    "\"acc\":false,"
    "\"margin\":{\"logprob\":2,\"probability\":0.1,\"ulps\":2,\"at\":0},\"perturbed\":[{\"acc\":false,\"flipped\":false}]},"
    "{\"task\":\"texts\",\"index\":0,\"id\":\"t0\",\"logprob\":-3,\"token_count\":2},"
    "{\"task\":\"of nobody\",\"id\":\"x\",\"correct\":true}]");
}

/* === Reading a page ========================================================================================================= */

/* What the check prints for the file at path; the caller frees it. */
static char *check(void) {
  char command[512], *text = NULL;
  size_t room = 0;
  snprintf(command, sizeof command, "python3 tests/unit/page_check.py %s 2>&1", path);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  assert_true(getdelim(&text, &room, 0, pipe) > 0);
  pclose(pipe);
  return text;
}

static char *page_text(const json_t *manifest, const json_t *results) {
  if (eval_report_write(path, manifest, results) != OK) fail_msg("%s", fail_text());
  char *text = check();
  if (strncmp(text, "bad", 3) == 0) fail_msg("%s", text);
  return text;
}

/* Prints where the page matches the longest prefix of the wanted text. */
static void assert_says(const char *text, const char *wanted) {
  if (strstr(text, wanted)) return;
  const char *nearest = text;
  char beginning[256];
  for (size_t count = 1; count < sizeof beginning && count < strlen(wanted); count++) {
    snprintf(beginning, count + 1, "%s", wanted);
    const char *found = strstr(text, beginning);
    if (!found) break;
    nearest = found;
  }
  fail_msg("expected \"%s\", nearest is \"%.200s\"", wanted, nearest);
}

static char *bytes_of(const json_t *manifest, const json_t *results, size_t *size) {
  char *bytes = NULL;
  FILE *file = open_memstream(&bytes, size);
  assert_non_null(file);
  assert_int_equal(eval_report_put(file, manifest, results), OK);
  fclose(file);
  return bytes;
}

/* === Tests ================================================================================================================== */

static void a_page_says_what_was_run(void **state) {
  (void)state;
  json_t *manifest = manifest_of("gen", "pick", "texts"), *results = lines();
  char *text = page_text(manifest, results);
  assert_says(text, "both · it · Verbatim evaluation");
  assert_says(text, "7 items in 3 tasks , computed on CPU, 2 threads , finished 2026-01-31T23:59:59Z");
  assert_says(text, "manifest 00ff00ff00ff00ff00ff00ff00ff00ff receipt r-digest results l-digest");
  assert_says(text, "items 7 2 right, 3 wrong, 1 failed, 1 not judged");
  assert_says(text, "numerics id 0123456789abcdef0123456789abcdef weights w-digest");
  assert_says(text, "verbatim replay manifest.json --plan 'my plan.plan' --model models/it");
  assert_says(text, "both acc 50.0 % 45.0 % – 50.0 %");
  assert_says(text, "gen 4 acc 75.0 % 67.5 % – 75.0 %");
  assert_says(text, "easy 2 acc 50.0 %");
  assert_says(text, "texts 4 token_perplexity 12.50 11.25 – 12.50");
  assert_says(text, "1 lines of results belong to no task shown here");
  assert_says(text, "t.yaml d1 name: t kind: x");
  assert_says(text, "\"max_tokens\": 32");
  free(text);
  json_decref(manifest);
  json_decref(results);
}

/* A browser is also told to fetch nothing and to run nothing. */
static void a_page_forbids_itself_the_network(void **state) {
  (void)state;
  json_t *manifest = json_object(), *results = json_array();
  size_t size;
  char *bytes = bytes_of(manifest, results, &size), *style = strstr(bytes, "<style>");
  const char *policy = strstr(bytes, "\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"");
  assert_true(policy && policy < style);
  assert_null(strstr(bytes, "@import"));
  assert_null(strstr(bytes, "url(h"));
  free(bytes);
  json_decref(manifest);
  json_decref(results);
}

/* gen: 2 of 4 right; of 3 margins two are fragile, one of a right and one of a wrong answer. pick: a margin of 2 is not fragile. */
static void a_page_says_what_hangs_on_what(void **state) {
  (void)state;
  json_t *manifest = manifest_of("gen", "pick", "texts"), *results = lines();
  char *text = page_text(manifest, results);
  assert_says(text, "fragile, below 2 ulps 50.0 % 2 of 4 margins");
  assert_says(text, "gen 3 2 (66.7 %) 25.0 % – 75.0 %");
  assert_says(text, "easy 2 1 (50.0 %) 50.0 % – 100 %");
  assert_says(text, "pick 1 0 (0.0 %) 0.0 % – 0.0 %");
  assert_says(text, "Below 2 ulps: 50.0 % of 2 right items, 50.0 % of 2 wrong ones");
  assert_says(text, "answers that flipped 2");
  assert_null(strstr(text, "No answer flipped"));
  assert_says(text, "numerics other-numerics");
  assert_says(text, "gen 66.7 % 66.7 % 0.0 2 of 3 1 1");
  assert_says(text, "easy 50.0 % 100 % +50.0 1 of 2 0 1");
  assert_says(text, "4 items, the most fragile first");
  assert_says(text, "g1 gen – 7 7 right 0, a tie 0.0000 token 2");
  assert_says(text, "1 items that failed");
  assert_says(text, "3 wrong answers, in order of the items");
  const char *first = strstr(strstr(text, "Smallest margins"), "g1 gen – 7 7 right 0, a tie");
  const char *second = strstr(first, "g0 gen / easy – 41 in: it is 41 42 wrong 1.50 0.2500 token 3");
  assert_non_null(second);
  assert_non_null(strstr(second, "7 pick – no choice 1 aye choice 0 wrong 2.00 2.00 choice 0"));
  free(text);
  json_decref(manifest);
  json_decref(results);
}

static const char *after(const char *text, const char *wanted) {
  const char *found = strstr(text, wanted);
  if (!found) fail_msg("expected \"%s\" in \"%.300s\"", wanted, text);
  return found + strlen(wanted);
}

/* Prompts by their ends; what was cut or left out; wrong answers first; tasks below their group; digests behind the scores. */
static void a_page_can_be_read(void **state) {
  (void)state;
  json_t *manifest = manifest_of("gen", "pick", "texts"), *results = lines();
  json_t *line = json_array_get(results, 0);
  json_t *scored = json_object_get(json_object_get(json_object_get(manifest, "outcome"), "scores"), "tasks");
  char prompt[602] = "";
  for (size_t i = 0; i < 600; i += 3) memcpy(prompt + i, "a\xc3\xa9", 3); /* 400 characters, 600 bytes */
  prompt[600] = 'z';
  json_object_set_new(line, "prompt", json_string(prompt));
  json_object_set_new(line, "prompt_bytes", json_integer(1601));
  json_object_set_new(line, "finish", json_string("length"));
  json_object_set_new(line, "dropped", json_integer(7));
  json_object_set_new(line, "unended", json_true());
  json_array_append_new(results, object("{\"task\":\"gen\",\"id\":\"g9\",\"prompt\":\"so?\",\"prompt_bytes\":3,\"skipped\":\"too_long\"}"));
  json_object_set_new(json_array_get(scored, 2), "group", json_string("both"));
  json_object_set_new(json_array_get(scored, 2), "cut", json_integer(3));
  json_object_set_new(json_array_get(scored, 2), "unended", json_integer(2));
  json_object_set_new(json_array_get(scored, 2), "skipped", json_integer(1));
  char *text = page_text(manifest, results);
  assert_says(text, "answers cut at max_tokens 3 2 thoughts did not end");
  const char *at = after(text, "both acc 50.0 %");
  at = after(at, "texts 1 too long, skipped 3 cut at max_tokens 2 thoughts did not end 4 token_perplexity");
  at = after(at, "gen 4 acc");
  at = after(at, "manifest 00ff");
  at = after(at, "Wrong answers");
  at = after(at, "g0 gen / easy (1001 bytes before) …\u00e9a");
  at = after(at, "a\u00e9z 41 in: it is 41 42 wrong cut at max_tokens thought did not end 7 tokens cut from the left 1.50");
  at = after(at, "Not computed to the end");
  at = after(at, "1 items that were skipped");
  at = after(at, "g9 gen so? –");
  after(at, "Smallest margins");
  free(text);
  json_object_set_new(json_object_get(manifest, "run"), "model", json_string("..")); /* no name to show */
  text = page_text(manifest, results);
  assert_says(text, "both · Verbatim evaluation");
  free(text);
  json_decref(manifest);
  json_decref(results);
}

/* Each text of both, wherever it appears, contains characters that would be markup. */
static void make_hostile(json_t *value) {
  const char *key;
  size_t i;
  json_t *inner;
  if (json_is_array(value)) json_array_foreach(value, i, inner) make_hostile(inner);
  if (json_is_object(value)) json_object_foreach(value, key, inner) make_hostile(inner);
  if (json_is_string(value)) assert_int_equal(json_string_set(value, HOSTILE), 0);
}

static void texts_stay_texts(void **state) {
  (void)state;
  json_t *manifest = manifest_of("gen", "pick", "texts"), *results = lines();
  make_hostile(manifest);
  make_hostile(results);
  char *text = page_text(manifest, results);
  assert_says(text, "<script>alert('x')</script>\"><img src=x onerror=y>&amp;]]>--><!-- <U+0001><U+001B>[31m<U+007F><U+202E>gnp"
                    "<U+2066><U+E0041><U+FFFF> e");
  assert_null(strstr(text, "--plan"));
  free(text);
  json_decref(manifest);
  json_decref(results);
}

static void text_of(const char *bytes, size_t count, size_t most, bool keeps_lines, const char *wanted) {
  char *found = NULL;
  size_t size = 0;
  FILE *file = open_memstream(&found, &size);
  eval_report_text_put(file, bytes, count, most, keeps_lines);
  fclose(file);
  if (strcmp(found, wanted) != 0) fail_msg("expected \"%s\", found \"%s\"", wanted, found);
  free(found);
}

static void every_byte_has_its_letters(void **state) {
  (void)state;
  text_of("a<b>&\"'", 7, 99, false, "a&lt;b&gt;&amp;&quot;&#39;");
  text_of("a\n\tb\r", 5, 99, false, "a&#8629;&lt;U+0009&gt;b&lt;U+000D&gt;");
  text_of("a\n\tb\r", 5, 99, true, "a\n\tb&lt;U+000D&gt;");
  text_of("a\0b", 3, 99, false, "a&lt;U+0000&gt;b");
  text_of("\xff\xe2\x82z\xe2\x82", 6, 99, false, "\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd");
  text_of("h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10, 99, false, "h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  text_of("h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10, 2, false, "h\xc3\xa9&#8230; (7 bytes more)");
  text_of("", 0, 0, false, "");
}

static bool word_of(const char *word, char *out, size_t room) {
  json_t *text = json_string(word);
  FILE *file = fmemopen(out, room, "w");
  bool good = eval_report_text_word(file, text);
  fclose(file);
  json_decref(text);
  return good;
}

static void a_command_is_what_a_shell_takes(void **state) {
  (void)state;
  char out[256];
  assert_true(word_of("a/b-c_1.plan", out, sizeof out));
  assert_string_equal(out, "a/b-c_1.plan");
  assert_true(word_of("a $(x)", out, sizeof out));
  assert_string_equal(out, "&#39;a $(x)&#39;");
  assert_true(word_of("-rf", out, sizeof out));
  assert_string_equal(out, "&#39;./-rf&#39;");
  assert_false(word_of("", out, sizeof out));
  assert_false(word_of("it's", out, sizeof out));
  assert_false(word_of("a\nb", out, sizeof out));
  assert_false(word_of("a\xe2\x80\xae" "b", out, sizeof out));
}

static void the_bytes_are_the_same_each_time(void **state) {
  (void)state;
  json_t *manifest = manifest_of("gen", "pick", "texts"), *results = lines();
  json_t *manifest_again = json_deep_copy(manifest), *results_again = json_deep_copy(results);
  size_t size, size_again;
  char *bytes = bytes_of(manifest, results, &size), *again = bytes_of(manifest_again, results_again, &size_again);
  assert_int_equal(size, size_again);
  assert_memory_equal(bytes, again, size);
  free(again);
  json_object_set_new(json_object_get(json_array_get(results_again, 0), "margin"), "ulps", json_real(1.75)); /* control */
  again = bytes_of(manifest_again, results_again, &size_again);
  assert_true(size != size_again || memcmp(bytes, again, size) != 0);
  free(bytes);
  free(again);
  json_decref(manifest), json_decref(manifest_again);
  json_decref(results), json_decref(results_again);
}

/* Members are replaced one at a time, at any depth: the page stays well-formed. */
static void damage(json_t *manifest, json_t *results, json_t *value, uint32_t *pages) {
  const char *const others[] = {"null", "[]", "{}", "-1", "1e308", "\"x\"", "[[[{}]]]", "true"};
  json_t *inner;
  for (size_t i = 0; i < json_array_size(value); i++) {
    json_t *kept = json_incref(json_array_get(value, i));
    for (size_t k = 0; k < ARRAY_LEN(others); k++) {
      json_array_set_new(value, i, json_loads(others[k], JSON_DECODE_ANY, NULL));
      size_t size;
      free(bytes_of(manifest, results, &size));
      ++*pages;
    }
    json_array_set_new(value, i, kept);
    damage(manifest, results, kept, pages);
  }
  void *at;
  for (at = json_object_iter(value); at; at = json_object_iter_next(value, at)) {
    json_t *kept = json_incref(json_object_iter_value(at));
    for (size_t k = 0; k < ARRAY_LEN(others); k++) {
      json_object_iter_set_new(value, at, json_loads(others[k], JSON_DECODE_ANY, NULL));
      size_t size;
      free(bytes_of(manifest, results, &size));
      ++*pages;
    }
    json_object_iter_set_new(value, at, kept);
    inner = json_object_iter_value(at);
    damage(manifest, results, inner, pages);
  }
}

static void whatever_is_missing_is_not_shown(void **state) {
  (void)state;
  json_t *manifest = manifest_of("gen", "pick", "texts"), *results = lines();
  uint32_t pages = 0;
  damage(manifest, results, manifest, &pages);
  damage(manifest, results, results, &pages);
  assert_true(pages > 500);
  json_t *scored = json_object_get(json_object_get(json_object_get(manifest, "outcome"), "scores"), "tasks");
  json_t *first = json_array_get(json_object_get(json_array_get(scored, 0), "metrics"), 0);
  json_object_set_new(first, "low", json_real(-3));
  json_object_set_new(first, "high", json_real(7));
  json_object_set_new(json_object_get(json_array_get(results, 0), "margin"), "ulps", json_real(1e308));
  json_object_set_new(json_object_get(json_array_get(results, 1), "margin"), "ulps", json_real(-5));
  char *text = page_text(manifest, results);
  assert_says(text, "0.0 % 0 of 3 margins"); /* of four, one less than 0 */
  free(text);
  json_decref(manifest);
  json_decref(results);
}

static void nothing_makes_a_page(void **state) {
  (void)state;
  json_t *empty = json_object(), *none = json_array(), *manifest = manifest_of("gen", "pick", "texts");
  char *text = page_text(empty, none);
  assert_says(text, "0 items in 0 tasks");
  assert_says(text, "The run has not ended");
  assert_says(text, "No item of this run has a margin");
  free(text);
  text = page_text(manifest, none);
  assert_says(text, "No item of this run has a margin");
  assert_null(strstr(text, "has not ended"));
  free(text);
  free(page_text(none, empty));
  json_decref(empty);
  json_decref(none);
  json_decref(manifest);
}

/* Margins from ties to beyond the scale, long texts, every tenth answer wrong. */
static json_t *many_lines(uint32_t count) {
  json_t *results = json_array();
  char *text = malloc(20001);
  memset(text, 'w', 20000);
  text[20000] = 0;
  json_t *shared = json_string(text);
  free(text);
  uint64_t state = 1;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t random = random_next(&state);
    double ulps = random % 50 == 0 ? 0 : (double)(random % 4096 + 1) / (double)(1u << (random >> 32) % 20) * 4;
    json_t *line = json_pack("{s:s, s:i, s:s, s:O, s:s, s:b, s:{s:f, s:f, s:f, s:i}, s:[{s:b, s:b}]}", "task", "gen", "index", (int)i, "id",
                             "i", "text", shared, "answer", "x", "correct", (int)(i % 10 != 0), "margin", "logprob", ulps / 8,
                             "probability", 0.5, "ulps", ulps, "at", 1, "perturbed", "correct", (int)(i % 10 != 0), "flipped", ulps < 1);
    json_array_append_new(results, line);
  }
  json_decref(shared);
  return results;
}

static void a_large_run_is_a_small_page(void **state) {
  (void)state;
  json_t *manifest = manifest_of("gen", "pick", "texts"), *results = many_lines(100000);
  size_t size;
  free(bytes_of(manifest, results, &size));
  assert_true(size < 400000);
  char *text = page_text(manifest, results);
  assert_says(text, "100000 items in 3 tasks");
  assert_says(text, "40 of 10000 wrong answers");
  assert_says(text, "bytes more)");
  free(text);
  json_decref(manifest);
  json_decref(results);
}

/* As many tasks and groups as a manifest may name. */
static void many_tasks_are_cut_short(void **state) {
  (void)state;
  json_t *manifest = manifest_of("gen", "pick", "texts"), *results = lines();
  json_t *tasks = json_object_get(json_object_get(manifest, "setup"), "tasks");
  json_t *scored = json_object_get(json_object_get(json_object_get(manifest, "outcome"), "scores"), "tasks");
  char name[32];
  json_t *subsets = json_object_get(json_array_get(scored, 0), "subsets");
  for (int i = 0; i < 1000; i++) {
    snprintf(name, sizeof name, "subset %d", i);
    json_array_append_new(subsets, json_pack("{s:s, s:[o]}", "name", name, "metrics", metric("acc", 0.5)));
  }
  for (int i = 0; i < 300; i++) {
    snprintf(name, sizeof name, "task %d", i);
    json_array_append_new(tasks, task(name, "generate"));
    json_array_append_new(scored, scores(name, "generate", metric("acc", 0.5), json_array()));
  }
  char *text = page_text(manifest, results);
  assert_says(text, "details=60");
  assert_says(text, "subset 95 "); /* of 400 rows 303 are tasks, one is "easy" */
  assert_null(strstr(text, "subset 96 "));
  assert_says(text, "task 299 "); /* tasks come before subsets */
  assert_says(text, "904 more tasks or subsets are not shown");
  assert_says(text, "243 more tasks are in the manifest");
  free(text);
  for (int i = 300; i < 20000; i++) {
    snprintf(name, sizeof name, "task %d", i);
    json_array_append_new(tasks, task(name, "generate"));
  }
  size_t size;
  free(bytes_of(manifest, results, &size));
  assert_true(size < 1000000);
  json_decref(manifest);
  json_decref(results);
}

static void steps_lie_in_their_bins(void **state) {
  (void)state;
  uint32_t last = 0;
  for (double ulps = 0x1p-6; ulps < 0x1p14; ulps *= 1.01) {
    uint32_t step = eval_report_data_step(ulps), bin = eval_margin_bin(ulps);
    assert_true(step >= last && step < EVAL_REPORT_DATA_FINE);
    if (bin >= 2 && bin < EVAL_MARGIN_BINS - 1) {
      assert_int_equal((step - 2) / EVAL_REPORT_DATA_STEPS, bin - 2);
      double position = eval_report_data_position(step), next = eval_report_data_position(step + 1);
      assert_true(next > position && next - position < 0.18 && position >= (double)bin - 2 + EVAL_MARGIN_LEAST);
    }
    last = step;
  }
  assert_int_equal(last, EVAL_REPORT_DATA_FINE - 1);
  assert_int_equal(eval_report_data_step(0), 0);
  assert_true(eval_report_data_position(eval_report_data_step(2)) == 1);
}

/* Text that is written into the page at this place makes the page invalid. */
static void plant(const char *after, const char *planted, const char *wanted) {
  json_t *manifest = manifest_of("gen", "pick", "texts"), *results = lines();
  size_t size;
  char *bytes = bytes_of(manifest, results, &size), *at = strstr(bytes, after);
  assert_non_null(at);
  at += strlen(after);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  fwrite(bytes, 1, (size_t)(at - bytes), file);
  if (planted) fprintf(file, "%s%s", planted, at);
  fclose(file);
  char *text = check();
  if (strncmp(text, "bad", 3) != 0 || !strstr(text, wanted)) fail_msg("expected bad and \"%s\", found \"%s\"", wanted, text);
  free(text);
  free(bytes);
  json_decref(manifest);
  json_decref(results);
}

static void the_check_finds_broken_pages(void **state) {
  (void)state;
  plant("<tbody>", NULL, "no element found");
  plant("<tbody>", "<script></script>", "element script");
  plant("<tbody>", "<b>", "mismatched");
  plant("<tbody>", "&nbsp;", "undefined entity");
  plant("<tbody>", "\xe2\x80\xae", "hidden character U+202E");
  plant("<tbody>", "\xff", "not well-formed");
  plant("--soft:#", "dddddd;--was:#", "contrast");
  plant("<h1", " onclick=\"x\"", "attribute onclick");
  plant("<svg class=\"strip\"", " x=\"130.00%\"", "lies outside");
  plant("<svg class=\"strip\"", " y=\"nan\"", "no number");
}

static void a_place_that_cannot_be_written_is_told(void **state) {
  (void)state;
  json_t *manifest = json_object(), *results = json_array();
  fail_clear();
  assert_int_equal(eval_report_write("/no/such/folder/x.html", manifest, results), ERR_IO);
  fail_clear();
  assert_int_equal(eval_report_write("/dev/full", manifest, results), ERR_IO);
  json_decref(manifest);
  json_decref(results);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_page_says_what_was_run), cmocka_unit_test(a_page_says_what_hangs_on_what), cmocka_unit_test(a_page_can_be_read),
    cmocka_unit_test(texts_stay_texts), cmocka_unit_test(a_page_forbids_itself_the_network),
    cmocka_unit_test(every_byte_has_its_letters), cmocka_unit_test(a_command_is_what_a_shell_takes),
    cmocka_unit_test(the_bytes_are_the_same_each_time), cmocka_unit_test(whatever_is_missing_is_not_shown),
    cmocka_unit_test(nothing_makes_a_page), cmocka_unit_test(a_large_run_is_a_small_page), cmocka_unit_test(many_tasks_are_cut_short),
    cmocka_unit_test(steps_lie_in_their_bins), cmocka_unit_test(the_check_finds_broken_pages),
    cmocka_unit_test(a_place_that_cannot_be_written_is_told),
  };
  int file = mkstemp(path);
  if (file < 0) return 1;
  close(file);
  int result = cmocka_run_group_tests(tests, NULL, NULL);
  unlink(path);
  return result;
}
