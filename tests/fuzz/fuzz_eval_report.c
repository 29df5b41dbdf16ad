/* fuzz_eval_report.c - a report of any {"manifest": ..., "results": [...]}, and its comparison with "other", which has the same two keys,
 * and with itself. The page is well-formed, has only the elements of a report, and is the same the second time. A run does not differ from
 * itself. */
#include "engine/eval/compare.h"
#include "engine/eval/report/report.h"
#include "engine/base/utf8.h"
#include "fuzz.h"

#define DEPTH_MAX 64u
#define NAME_MAX 24u
#define PAGE_BYTES_MAX (4u << 20)

typedef struct page {
  const char *at, *end;
  char open[DEPTH_MAX][NAME_MAX];
  uint32_t depth;
} page;

static bool is_known(const char *name) {
  static const char known[] = " html head meta title style body div header p h1 h2 h3 b bdi small span br code pre main section dl dt dd "
                              "table caption thead tbody tr th td ul li details summary footer svg defs pattern rect line circle text "
                              "path ";
  char word[NAME_MAX + 2];
  snprintf(word, sizeof word, " %s ", name);
  return strstr(known, word) != NULL;
}

static void take_name(page *p, char name[NAME_MAX]) {
  size_t count = strspn(p->at, "abcdefghijklmnopqrstuvwxyz0123456789");
  ASSERT(count > 0 && count < NAME_MAX);
  snprintf(name, NAME_MAX, "%.*s", (int)count, p->at);
  p->at += count;
}

/* An entity: one of four names or a number. */
static void check_entity(const char *at) {
  static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
  if (at[1] == '#') {
    size_t digits = strspn(at + 2, "0123456789");
    ASSERT(digits > 0 && at[2 + digits] == ';');
    return;
  }
  bool is_known_name = false;
  for (size_t i = 0; i < ARRAY_LEN(names); i++) is_known_name = is_known_name || strncmp(at, names[i], strlen(names[i])) == 0;
  ASSERT(is_known_name);
}

/* Reads up to one of `ends`, which is never the end of the page. */
static void take_letters(page *p, const char *ends) {
  for (; !strchr(ends, *p->at); p->at++) {
    uint8_t c = (uint8_t)*p->at;
    ASSERT(p->at < p->end && c != '<' && c != '>' && c != 0x7f && (c >= 0x20 || c == '\n' || c == '\t'));
    if (c == '&') check_entity(p->at);
  }
}

static void take_element(page *p) {
  char name[NAME_MAX];
  p->at++;
  if (*p->at == '/') {
    p->at++;
    take_name(p, name);
    ASSERT(*p->at++ == '>' && p->depth > 0 && strcmp(p->open[--p->depth], name) == 0);
    return;
  }
  take_name(p, name);
  ASSERT(is_known(name) && p->depth < DEPTH_MAX);
  while (*p->at == ' ') {
    p->at++;
    p->at += strspn(p->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789");
    ASSERT(*p->at++ == '=' && *p->at++ == '"');
    take_letters(p, "\"");
    p->at++;
  }
  bool is_empty = *p->at == '/';
  p->at += is_empty;
  ASSERT(*p->at++ == '>');
  if (!is_empty) snprintf(p->open[p->depth++], NAME_MAX, "%s", name);
}

static void check_page(const char *text, size_t bytes) {
  static const char first[] = "<!DOCTYPE html>\n";
  page p = {.at = text, .end = text + bytes};
  ASSERT(bytes < PAGE_BYTES_MAX && strlen(text) == bytes && utf8_valid_bytes((const uint8_t *)text, bytes) == bytes);
  ASSERT(strncmp(text, first, strlen(first)) == 0);
  p.at += strlen(first);
  while (p.at < p.end) {
    if (*p.at == '<') take_element(&p);
    else take_letters(&p, "<");
    if (p.depth == 0) break;
  }
  ASSERT(p.depth == 0 && p.end - p.at == 1 && *p.at == '\n');
}

static char *page_of(const json_t *manifest, const json_t *results, size_t *bytes) {
  char *text = NULL;
  FILE *file = open_memstream(&text, bytes);
  ASSERT(file != NULL);
  ASSERT(fuzz_is_ok(eval_report_put(file, manifest, results)));
  ASSERT(fclose(file) == 0);
  return text;
}

static eval_compare_side side_of(const json_t *object) {
  return (eval_compare_side){json_object_get(object, "manifest"), json_object_get(object, "results")};
}

/* The comparison, or NULL where it is refused. */
static json_t *compared(const json_t *a, const json_t *b) {
  const eval_compare_side sides[2] = {side_of(a), side_of(b)};
  const eval_compare_terms terms = {.differ = {"prompt", "generation"}, .count = 2};
  json_t *made = NULL;
  fail_clear();
  if (!fuzz_is_ok(eval_compare_make(sides, &terms, &made))) ASSERT(made == NULL);
  return made;
}

static void check_itself(const json_t *made) {
  const json_t *tasks = json_object_get(made, "tasks");
  ASSERT(json_object_size(json_object_get(made, "differ")) == 0 && json_array_size(json_object_get(made, "only_a")) == 0);
  for (size_t i = 0; i < json_array_size(tasks); i++) {
    const json_t *row = json_array_get(tasks, i), *metrics = json_object_get(row, "metrics");
    ASSERT(json_integer_value(json_object_get(row, "items")) > 0);
    for (size_t m = 0; m < json_array_size(metrics); m++) {
      const json_t *difference = json_object_get(json_array_get(metrics, m), "difference");
      ASSERT(json_is_null(difference) || json_number_value(difference) == 0);
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  json_t *root = json_loadb((const char *)data, bytes, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
  const json_t *manifest = json_object_get(root, "manifest"), *results = json_object_get(root, "results");
  size_t size = 0, size_again = 0;
  char *text = page_of(manifest, results, &size), *again = page_of(manifest, results, &size_again);
  check_page(text, size);
  ASSERT(size == size_again && memcmp(text, again, size) == 0);
  free(text);
  free(again);
  json_t *same = compared(root, root), *other = compared(root, json_object_get(root, "other"));
  if (same) check_itself(same);
  json_decref(same);
  json_decref(other);
  json_decref(root);
  return 0;
}
