/* cli/bench_tax.c - see cli/bench_tax.h. The only code that runs uncertified algorithms; no request ever uses them. */
#include "cli/bench_tax.h"
#include "common/files.h"
#include "common/output.h"
#include "planner/profile.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DECODES_MAX (BENCH_LIST_MAX * BENCH_LIST_MAX)

typedef struct steps {
  bench_decode decodes[DECODES_MAX];
  bench_prefill prefills[BENCH_PREFILLS_MAX];
  uint32_t decode_count, prefill_count;
} steps;

typedef struct answer { /* what a measuring process reports */
  status result;
  char text[512];
  steps steps;
} answer;

/* Reads a profile's products, preferring those with other bits: such a one is there only if it is faster than the one with our bits. */
static status read_products(const char *path, plan_product **products, uint32_t *count) {
  char *text = NULL;
  size_t bytes = 0;
  profile known = {0};
  TRY(cli_files_read_config(path, INPUT_PROFILE, &text, &bytes));
  status result = profile_parse(text, bytes, &known);
  free(text);
  if (result != OK) fail_prefix(path);
  TRY(result);
  profile_make_optional(&known); /* products that do not run with this plan's strides are skipped */
  *count = known.other_count + known.count;
  plan_product *joined = calloc(*count + 1u, sizeof *joined);
  if (joined) {
    memcpy(joined, known.others, known.other_count * sizeof *joined);
    memcpy(joined + known.other_count, known.entries, known.count * sizeof *joined);
  }
  profile_free(&known);
  if (!joined) return FAIL(ERR_LIMIT, "bench: no memory for a profile");
  *products = joined;
  return *count ? OK : FAIL(ERR_USAGE, "%s: expected a profile with entries that are used, found none", path);
}

static status measure_here(const bench_options *options, steps *out) {
  bench *opened = NULL;
  TRY(bench_open(&opened, options));
  const bench_report *r = bench_results(opened);
  out->decode_count = min_u32(r->decode_count, DECODES_MAX);
  out->prefill_count = r->prefill_count;
  memcpy(out->decodes, r->decodes, out->decode_count * sizeof *out->decodes);
  memcpy(out->prefills, r->prefills, sizeof out->prefills);
  bench_close(opened);
  return OK;
}

static bool move_all(int descriptor, void *bytes, size_t count, bool writes) {
  for (char *at = bytes; count > 0;) {
    const ssize_t part = writes ? write(descriptor, at, count) : read(descriptor, at, count);
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) return false;
    at += part;
    count -= (size_t)part;
  }
  return true;
}

static _Noreturn void measure_in_child(const bench_options *options, int descriptor) {
  answer a = {0};
  a.result = measure_here(options, &a.steps);
  if (a.result != OK) snprintf(a.text, sizeof a.text, "%s", fail_text());
  move_all(descriptor, &a, sizeof a, true);
  _exit(0);
}

/* Measures in a child process, because a second engine in this one would find the first one's context and libraries. */
static status measure(const bench_options *options, const plan_product *products, uint32_t count, steps *out) {
  bench_options o = *options;
  int ends[2];
  o.no_ops = true;
  o.unchecked = products;
  o.unchecked_count = count;
  fflush(stdout);
  if (pipe(ends) != 0) return FAIL(ERR_IO, "bench: no pipe: %s", strerror(errno));
  const pid_t child = fork();
  if (child == 0) measure_in_child(&o, ends[1]);
  close(ends[1]);
  static const char lost[] = "bench: the measuring process ended early";
  answer a = {.result = ERR_DEVICE};
  if (child < 0 || !move_all(ends[0], &a, sizeof a, false)) {
    a.result = ERR_DEVICE;
    memcpy(a.text, lost, sizeof lost);
  }
  close(ends[0]);
  if (child > 0) waitpid(child, NULL, 0);
  if (a.result != OK) return FAIL(a.result, "%s", a.text);
  *out = a.steps;
  return OK;
}

static void print_row(const char *what, uint32_t count, uint32_t tokens, double ours, double theirs, json_t *list) {
  printf("%-8s %6u %8u %12.1f %12.1f %+9.1f %%\n", what, count, tokens, ours, theirs, 100 * (ours / theirs - 1));
  json_array_append_new(list, json_pack("{s:s, s:i, s:i, s:f, s:f}", "what", what, "count", (int)count, "tokens", (int)tokens, "us", ours,
                                        "unchecked_us", theirs));
}

static status print_both(const steps *ours, const steps *theirs, const char *json_path) {
  json_t *list = json_array();
  printf("what      count   tokens  guaranteed    unchecked        tax\n"
         "              each           us           us\n");
  for (uint32_t i = 0; i < ours->decode_count && i < theirs->decode_count; i++) {
    const bench_decode *a = &ours->decodes[i], *b = &theirs->decodes[i];
    print_row("decode", a->batch, a->context, a->step_us, b->step_us, list);
  }
  for (uint32_t i = 0; i < ours->prefill_count && i < theirs->prefill_count; i++) {
    const bench_prefill *a = &ours->prefills[i], *b = &theirs->prefills[i];
    print_row("prefill", a->prompts, a->tokens, a->us, b->us, list);
  }
  if (json_path) return cli_output_file(json_path, list, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
  json_decref(list);
  return OK;
}

status cli_bench_tax_run(const bench_options *options, const char *profile_path, const char *json_path) {
  plan_product *products = NULL;
  uint32_t count = 0;
  steps ours = {0}, theirs = {0};
  if (options->device == VERBATIM_DEVICE_CPU) return FAIL(ERR_USAGE, "bench: --tax: expected a GPU, found --device cpu");
  status result = read_products(profile_path, &products, &count);
  if (result == OK) result = measure(options, NULL, 0, &ours);
  if (result == OK) result = measure(options, products, count, &theirs);
  if (result == OK) result = print_both(&ours, &theirs, json_path);
  free(products);
  return result;
}
