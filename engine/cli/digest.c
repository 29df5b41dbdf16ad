/* cli/digest.c - `verbatim digest`: the weights digest of a model folder, tensor by tensor.
 *
 * Owns the subcommand's arguments and the output, a text that diff(1) can compare for two folders. Read next: weights/tree.h. */
#include "cli/cli.h"
#include "base/base.h"
#include "common/hub.h"
#include "common/options.h"
#include "common/output.h"
#include "plan/plan.h"
#include "weights/tree.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHAPE_BYTES (SAFETENSORS_RANK_MAX * 24u)

static const char HELP[] =
  "usage: verbatim digest PLAN MODEL_DIR [options]\n\n"
  "Reads the weights that the plan uses and prints a line for each tensor, in the plan's order: the\n"
  "digest of its bytes, dtype, shape and name; then the weights digest over all of them, which is the\n"
  "one in receipts.\n\n"
  "Examples:\n"
  "  verbatim digest my.plan MODEL_DIR\n"
  "  verbatim digest my.plan MODEL_DIR --json > weights.json\n"
  "  verbatim digest my.plan MODEL_DIR --sha256 | head -n -1 | sha256sum\n"
  "  diff <(verbatim digest my.plan MODEL_DIR) <(verbatim digest my.plan OTHER_DIR)\n\n"
  "  --sha256            SHA-256 instead of XXH3-128, tensors by name, in the form of RECEIPTS.md: the\n"
  "                      last line is that of the lines before it\n"
  "  --json              one JSON object instead: \"weights\", and \"tensors\" with \"name\", \"dtype\",\n"
  "                      \"shape\", \"digest\"; with --sha256 also \"sha256\" in both\n"
  "  --threads N         threads that read (all cores)\n"
  "  --quiet             no progress messages\n";

typedef struct digest_run {
  const char **words; /* from argv: plan and model folder */
  char model_path[CLI_HUB_PATH_BYTES_MAX]; /* the model folder, if it was a name on the Hub */
  bool json, quiet, sha256;
  uint32_t threads;
  cli_output_progress progress;
  plan plan;
  weights_tree tree;
} digest_run;

static status parse_arguments(digest_run *self, int argc, char **argv) {
  uint32_t count = 0;
  const cli_option table[] = {{"--json", NULL, &self->json}, {"--quiet", NULL, &self->quiet},
                              {"--sha256", NULL, &self->sha256},
                              {"--threads", cli_options_u32, &self->threads}, {0}};
  TRY(cli_options_parse(table, argc, argv, self->words, &count));
  if (count != 2) return FAIL(ERR_USAGE, "digest: expected PLAN MODEL_DIR, found %u word%s; hint: verbatim digest --help",
                              count, CLI_OPTIONS_PLURAL(count));
  return cli_hub_resolve(&self->words[1], self->model_path);
}

static void show_progress(void *context, uint64_t done, uint64_t total) {
  digest_run *self = context;
  if (!self->quiet) cli_output_progress_bytes(&self->progress, "reading weights", done, total);
}

static void print_text(const weights_tree *tree) {
  char digits[DIGEST_TEXT_BYTES];
  for (uint32_t i = 0; i < tree->count; i++) {
    const weights_tree_leaf *leaf = &tree->leaves[i];
    char shape[SHAPE_BYTES] = "";
    int at = 0;
    for (uint32_t k = 0; k < leaf->tensor->rank; k++)
      at += snprintf(shape + at, sizeof shape - (size_t)at, "[%" PRIu64 "]", leaf->tensor->shape[k]);
    printf("%s  %-4s %-16s %s\n", digest_text(leaf->data.bytes, digits), leaf->tensor->dtype, shape, leaf->name);
  }
  printf("%s  weights\n", digest_text(tree->root.bytes, digits));
}

static int compare_leaves(const void *a, const void *b) {
  const weights_tree_leaf *x = a, *y = b;
  return strcmp(x->name, y->name);
}

static void print_sha256(weights_tree *tree) {
  char line[WEIGHTS_TREE_LINE_BYTES], digits[SHA256_TEXT_BYTES];
  qsort(tree->leaves, tree->count, sizeof *tree->leaves, compare_leaves);
  for (uint32_t i = 0; i < tree->count; i++) {
    const weights_tree_leaf *leaf = &tree->leaves[i];
    printf("%s%s\n", weights_tree_line(leaf, line), leaf->name);
  }
  printf("%s  weights\n", sha256_text(tree->strong_root.bytes, digits));
}

static json_t *leaf_json(const weights_tree_leaf *leaf) {
  char digits[DIGEST_TEXT_BYTES], strong[SHA256_TEXT_BYTES];
  json_t *shape = json_array();
  for (uint32_t k = 0; k < leaf->tensor->rank; k++) json_array_append_new(shape, json_integer((json_int_t)leaf->tensor->shape[k]));
  const char *also = sha256_is_none(leaf->strong.bytes) ? NULL : sha256_text(leaf->strong.bytes, strong);
  return json_pack("{s:s, s:s, s:o, s:s, s:s*}", "name", leaf->name, "dtype", leaf->tensor->dtype, "shape", shape, "digest",
                   digest_text(leaf->data.bytes, digits), "sha256", also);
}

static status print_json(const weights_tree *tree) {
  char digits[DIGEST_TEXT_BYTES], strong[SHA256_TEXT_BYTES];
  const char *also = sha256_is_none(tree->strong_root.bytes) ? NULL : sha256_text(tree->strong_root.bytes, strong);
  json_t *tensors = json_array();
  int failed = 0;
  for (uint32_t i = 0; i < tree->count; i++) failed |= json_array_append_new(tensors, leaf_json(&tree->leaves[i]));
  json_t *root = json_pack("{s:s, s:s*, s:o}", "weights", digest_text(tree->root.bytes, digits), "sha256", also, "tensors", tensors);
  if (!failed) return cli_output_json(root, JSON_INDENT(1));
  json_decref(root);
  return FAIL(ERR_LIMIT, "digest: no memory");
}

static status run(digest_run *self) {
  TRY(plan_open(&self->plan, self->words[0]));
  TRY(weights_tree_open(&self->tree, &self->plan, self->words[1], self->threads, self->sha256, show_progress, self));
  if (self->json) TRY(print_json(&self->tree));
  else if (self->sha256) print_sha256(&self->tree);
  else print_text(&self->tree);
  return cli_output_flush();
}

int cli_digest(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    return 0;
  }
  digest_run self = {.words = calloc((size_t)argc, sizeof *self.words)};
  status result = self.words ? parse_arguments(&self, argc, argv) : FAIL(ERR_LIMIT, "no memory");
  if (result == OK) result = run(&self);
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  weights_tree_close(&self.tree);
  plan_close(&self.plan);
  free(self.words);
  return fail_exit_code(result);
}
