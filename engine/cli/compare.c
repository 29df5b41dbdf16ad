/* cli/compare.c - `verbatim compare`: two evaluations of the same items, from their manifests and results.
 *
 * Owns the arguments and the text. Runs nothing. Read next: eval/compare.h, eval/run/saved.h. */
#include "cli/cli.h"
#include "common/options.h"
#include "common/output.h"
#include "eval/compare.h"
#include "eval/run/saved.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLIPS_SHOWN 20u
#define NAMES_SHOWN 10u
#define ANSWER_SHOWN 48 /* bytes of an answer */

static const char HELP[] =
  "usage: verbatim compare A B [--json] [--differ KEY]\n\n"
  "Compares two evaluations of the same items by their manifests, with results.jsonl beside each: for\n"
  "every task in both the difference of each score (B minus A) with its 95 % interval and the exact\n"
  "McNemar test, the items that flipped with both answers, and the items that only one of them has.\n"
  "Nothing is computed again. Tasks are paired by name, items by id.\n\n"
  "Examples:\n"
  "  verbatim compare base/manifest.json tuned/manifest.json\n"
  "  verbatim compare cold/manifest.json warm/manifest.json --differ generation\n\n"
  "  --differ KEY        a parameter of the tasks that is meant to differ, as prompt or generation; or\n"
  "                      items, shots (the files), answer; may be repeated\n"
  "  --json              one JSON object instead of text, with every flip\n\n"
  "Exit code: 0 when they were compared, 8 when they are not runs of the same questions.\n";

typedef struct compare_run {
  eval_saved saved[2];
  eval_compare_terms terms;
  const char *paths[2];
  bool json;
} compare_run;

/* === Text =================================================================================================================== */

static void print_number(const char *before, const json_t *value, const char *format, const char *after) {
  fputs(before, stdout);
  if (json_is_number(value)) printf(format, json_number_value(value));
  else putchar('-');
  fputs(after, stdout);
}

static void print_test(const json_t *test) {
  if (!json_is_object(test)) return;
  printf("  right in A alone %" JSON_INTEGER_FORMAT ", in B alone %" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(test,
                                                                                                                             "only_a")),
         json_integer_value(json_object_get(test, "only_b")));
  print_number("; McNemar's exact test: p = ", json_object_get(test, "p"), "%.4g", "\n");
}

static void print_metric(const json_t *metric, const json_t *clusters) {
  printf("  %-17s", json_string_value(json_object_get(metric, "name")));
  print_number(" ", json_object_get(metric, "a"), "%.4f", "");
  print_number(" -> ", json_object_get(metric, "b"), "%.4f", "");
  print_number("  difference ", json_object_get(metric, "difference"), "%+.4f", "");
  print_number("  +- ", json_object_get(metric, "stderr"), "%.4f", "");
  print_number("  [", json_object_get(metric, "low"), "%+.4f", "");
  print_number(", ", json_object_get(metric, "high"), "%+.4f", "]  ");
  fputs(json_string_value(json_object_get(metric, "interval")), stdout);
  if (json_is_integer(clusters)) printf(", %" JSON_INTEGER_FORMAT " clusters", json_integer_value(clusters));
  putchar('\n');
  print_test(json_object_get(metric, "mcnemar"));
}

static void print_answer(const json_t *value) {
  char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
  if (text) printf("%.*s%s", ANSWER_SHOWN, text, strlen(text) > ANSWER_SHOWN ? "..." : "");
  free(text);
}

static void print_flip(const json_t *flip) {
  const json_t *ulps = json_object_get(flip, "ulps");
  printf("    ");
  cli_output_plain(stdout, json_string_value(json_object_get(flip, "id")));
  printf(": right in %s alone: ", strcmp(json_string_value(json_object_get(flip, "right")), "a") == 0 ? "A" : "B");
  print_answer(json_object_get(flip, "a"));
  printf(" -> ");
  print_answer(json_object_get(flip, "b"));
  printf(", expected ");
  print_answer(json_object_get(flip, "expected"));
  if (json_is_true(json_object_get(flip, "close"))) {
    print_number("; a close call: ", json_array_get(ulps, 0), "%.3g", "");
    print_number(" and ", json_array_get(ulps, 1), "%.3g", " ulps");
  }
  putchar('\n');
}

static void print_flips(const json_t *row) {
  const json_t *flips = json_object_get(row, "flips");
  size_t count = json_array_size(flips);
  if (strcmp(json_string_value(json_object_get(row, "kind")), "perplexity") == 0) return;
  printf("  %zu items flipped, %" JSON_INTEGER_FORMAT " of them close calls; %" JSON_INTEGER_FORMAT " answers changed\n", count,
         json_integer_value(json_object_get(row, "close")), json_integer_value(json_object_get(row, "changed")));
  for (size_t i = 0; i < count && i < FLIPS_SHOWN; i++) print_flip(json_array_get(flips, i));
  if (count > FLIPS_SHOWN) printf("    ... and %zu more; --json names all\n", count - FLIPS_SHOWN);
}

static void print_alone(const char *indent, const char *side, const char *what, const json_t *names) {
  size_t count = json_array_size(names);
  if (count == 0) return;
  printf("%sonly in %s: %zu %s:", indent, side, count, what);
  for (size_t i = 0; i < count && i < NAMES_SHOWN; i++) {
    const char *name = json_string_value(json_array_get(names, i));
    putchar(' ');
    cli_output_quoted(name ? name : "");
  }
  printf("%s\n", count > NAMES_SHOWN ? " ..." : "");
}

static void print_row(const json_t *row) {
  const json_t *metrics = json_object_get(row, "metrics");
  json_int_t left_out = json_integer_value(json_object_get(row, "left_out"));
  putchar('\n');
  cli_output_plain(stdout, json_string_value(json_object_get(row, "name")));
  printf(", %" JSON_INTEGER_FORMAT " items in both\n", json_integer_value(json_object_get(row, "items")));
  for (size_t i = 0; i < json_array_size(metrics); i++) print_metric(json_array_get(metrics, i), json_object_get(row, "clusters"));
  if (left_out) printf("  left out: %" JSON_INTEGER_FORMAT " items that one of the two did not compute\n", left_out);
  print_flips(row);
  print_alone("  ", "A", "items", json_object_get(row, "only_a"));
  print_alone("  ", "B", "items", json_object_get(row, "only_b"));
}

static void print_all(const compare_run *self, const json_t *object) {
  const json_t *differ = json_object_get(object, "differ"), *tasks = json_object_get(object, "tasks");
  const char *key;
  json_t *value;
  for (size_t k = 0; k < 2; k++) {
    printf("%s ", k ? "B" : "A");
    cli_output_plain(stdout, self->paths[k]);
    printf(", manifest %s\n", json_string_value(json_object_get(object, k ? "b" : "a")));
  }
  if (json_object_size(differ) == 0) printf("model and numerics are the same\n");
  else printf("what differs of the model:");
  json_object_foreach((json_t *)(uintptr_t)differ, key, value) printf(" %s", key);
  if (json_object_size(differ)) putchar('\n');
  for (size_t i = 0; i < json_array_size(tasks); i++) print_row(json_array_get(tasks, i));
  print_alone("", "A", "tasks", json_object_get(object, "only_a"));
  print_alone("", "B", "tasks", json_object_get(object, "only_b"));
}

/* === The command ============================================================================================================ */

static status take_differ(const char *name, const char *value, void *target) {
  eval_compare_terms *terms = target;
  if (terms->count == EVAL_COMPARE_DIFFER_MAX) return FAIL(ERR_USAGE, "%s: at most %u times", name, EVAL_COMPARE_DIFFER_MAX);
  terms->differ[terms->count++] = value;
  return OK;
}

static status parse_arguments(compare_run *self, int argc, char **argv, const char **words) {
  const cli_option table[] = {{"--json", NULL, &self->json}, {"--differ", take_differ, &self->terms}, {NULL, NULL, NULL}};
  uint32_t count = 0;
  TRY(cli_options_parse(table, argc, argv, words, &count));
  if (count != 2)
    return FAIL(ERR_USAGE, "compare: expected two manifests, found %u word%s; hint: verbatim compare --help", count,
                CLI_OPTIONS_PLURAL(count));
  self->paths[0] = words[0];
  self->paths[1] = words[1];
  return OK;
}

static status compare_steps(compare_run *self) {
  eval_compare_side sides[2];
  json_t *object = NULL;
  for (size_t k = 0; k < 2; k++) {
    TRY(eval_saved_open(&self->saved[k], self->paths[k]));
    TRY(eval_saved_lines(&self->saved[k]));
    sides[k] = (eval_compare_side){self->saved[k].manifest, self->saved[k].results};
  }
  TRY(eval_compare_make(sides, &self->terms, &object));
  if (self->json) return cli_output_json(object, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
  print_all(self, object);
  json_decref(object);
  return cli_output_flush();
}

int cli_compare(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    return 0;
  }
  compare_run self = {.json = false};
  const char **words = calloc((size_t)argc, sizeof *words);
  status result = words ? parse_arguments(&self, argc, argv, words) : FAIL(ERR_LIMIT, "no memory");
  if (result == OK) result = compare_steps(&self);
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  for (size_t k = 0; k < 2; k++) eval_saved_close(&self.saved[k]);
  free(words);
  return fail_exit_code(result);
}
