/* cli_plan.c - `verbatim plan`: reads a model folder's config.json and a deployment, writes the plan.
 *
 * Owns the arguments and the files of the subcommand; everything that decides something is planner/. Nothing is written before the plan
 * has been made and checked, and the file appears whole or not at all. Read next: planner/planner.h. */
#include "cli.h"
#include "cli_files.h"
#include "base.h"
#include "limits.h"
#include "plan_format.h"
#include "special_file.h"
#include "planner/planner.h"
#include "planner/profile_shipped.h"
#include "planner/print.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096

static const char HELP[] =
  "usage: verbatim plan MODEL_DIR -o FILE [--config FILE] [--profile FILE|none] [--force] [--quiet]\n\n"
  "  -o FILE          the plan to write; an earlier plan is replaced\n"
  "  --config FILE    deployment (YAML or JSON); without it the defaults below\n"
  "  --profile FILE   what `verbatim probe` measured: library algorithms to pin, which the engine then demands; none: no library\n"
  "                   without it: the shipped profile of the H200, whose algorithms the engine leaves out where it cannot use them\n"
  "  --force          replace FILE even if it is not a plan\n"
  "  --quiet          no summary\n\n"
  "Keys of the deployment:\n"
  "  max_seqs (64), max_batch_tokens (2048), max_len (4096 or the model's), max_logit_rows (max_seqs)\n"
  "  kv_pages of 64 tokens, or kv_memory_bytes (enough for all sequences, or what fits)\n"
  "  device_memory_bytes (not checked), memory_fraction of it (0.9); sizes may be written 140GiB\n"
  "  ladder: rows of captured decode graphs (1, 2, 4, ... max_seqs)\n"
  "  chunk_tokens (256), group_chunks (8), latent_norm_eps: hf or config (hf),\n"
  "  parity: strict, or fast-prefill: prompts attend in another form, with other bits (strict)\n"
  "     these four are part of the numerics: another value is another numerics id\n"
  "  expand_tokens: fast-prefill: tokens of contexts expanded at a time (8 * max_len, or 256 * max_seqs if that is more; at most 65536)\n";

typedef struct plan_options {
  const char *model_dir, *config, *profile, *output;
  bool force, quiet, help;
} plan_options;

static status take_value(int argc, char **argv, int *at, const char **out) {
  if (*at + 1 >= argc) return FAIL(ERR_USAGE, "%s: expected a value after it; hint: verbatim plan --help", argv[*at]);
  *out = argv[++*at];
  return OK;
}

static status read_options(int argc, char **argv, plan_options *o) {
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) o->help = true;
    else if (strcmp(word, "--config") == 0) TRY(take_value(argc, argv, &i, &o->config));
    else if (strcmp(word, "--profile") == 0) TRY(take_value(argc, argv, &i, &o->profile));
    else if (strcmp(word, "-o") == 0 || strcmp(word, "--output") == 0) TRY(take_value(argc, argv, &i, &o->output));
    else if (strcmp(word, "--force") == 0) o->force = true;
    else if (strcmp(word, "--quiet") == 0) o->quiet = true;
    else if (word[0] == '-') return FAIL(ERR_USAGE, "%s: no such option; hint: verbatim plan --help", word);
    else if (o->model_dir) return FAIL(ERR_USAGE, "%s: one model folder expected; hint: verbatim plan --help", word);
    else o->model_dir = word;
  }
  if (o->help) return OK;
  if (!o->model_dir) return FAIL(ERR_USAGE, "expected a model folder; hint: verbatim plan --help");
  if (!o->output) return FAIL(ERR_USAGE, "expected -o FILE; hint: verbatim plan --help");
  return OK;
}

/* Whatever stands at the output's path, only a plan is replaced without being told to. */
static status check_output(const plan_options *o) {
  char magic[8] = {0};
  TRY(cli_files_check_output(o->output));
  TRY(cli_files_check_apart(o->output, o->config, "the deployment"));
  if (o->profile && strcmp(o->profile, "none") != 0) TRY(cli_files_check_apart(o->output, o->profile, "the profile"));
  TRY(cli_files_check_model(o->output, o->model_dir));
  FILE *file = fopen(o->output, "rb");
  if (!file) return errno == ENOENT ? OK : FAIL(ERR_IO, "%s: cannot be opened: %s", o->output, strerror(errno));
  size_t bytes = fread(magic, 1, sizeof magic, file);
  fclose(file);
  if (o->force || (bytes == sizeof magic && memcmp(magic, PLAN_MAGIC, sizeof magic) == 0)) return OK;
  return FAIL(ERR_USAGE, "%s exists and is not a plan; hint: --force replaces it", o->output);
}

static status write_bytes(int descriptor, const char *path, const char *bytes, size_t count) {
  while (count > 0) {
    ssize_t written = write(descriptor, bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return FAIL(ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    bytes += written;
    count -= (size_t)written;
  }
  if (fsync(descriptor) != 0) return FAIL(ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
  return OK;
}

/* Under another name first, so that a reader never sees half a plan. */
static status write_plan(const char *path, const void *bytes, size_t count) {
  char temporary[PATH_BYTES_MAX];
  int length = snprintf(temporary, sizeof temporary, "%s.tmp.%ld", path, (long)getpid());
  if (length < 0 || (size_t)length >= sizeof temporary) return FAIL(ERR_USAGE, "%s: the path is too long", path);
  int descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (descriptor < 0) return FAIL(ERR_IO, "%s: cannot be created: %s", temporary, strerror(errno));
  status result = write_bytes(descriptor, temporary, bytes, count);
  if (close(descriptor) != 0 && result == OK) result = FAIL(ERR_IO, "%s: cannot be written: %s", temporary, strerror(errno));
  if (result == OK && rename(temporary, path) != 0) result = FAIL(ERR_IO, "%s: cannot be replaced: %s", path, strerror(errno));
  if (result != OK) unlink(temporary);
  return result;
}

typedef struct file_text {
  char *text; /* null: not read */
  size_t bytes;
} file_text;

static status make(const plan_options *o, file_text files[3]) {
  char config_path[PATH_BYTES_MAX];
  void *plan = NULL;
  size_t bytes = 0;
  int length = snprintf(config_path, sizeof config_path, "%s/config.json", o->model_dir);
  if (length < 0 || (size_t)length >= sizeof config_path) return FAIL(ERR_USAGE, "%s: the path is too long", o->model_dir);
  if (special_file_at(config_path)) return FAIL(ERR_IO, "%s: expected a regular file", config_path);
  TRY(cli_files_read_config(config_path, &files[0].text, &files[0].bytes));
  if (o->config) TRY(cli_files_read_config(o->config, &files[1].text, &files[1].bytes));
  const bool is_shipped = !o->profile, is_file = o->profile && strcmp(o->profile, "none") != 0;
  if (is_file) TRY(cli_files_read_config(o->profile, &files[2].text, &files[2].bytes));
  TRY(check_output(o));
  planner_input input = {.config = {files[0].text, files[0].bytes}, .deploy = {files[1].text, files[1].bytes},
                         .profile = {files[2].text, files[2].bytes}};
  if (is_shipped) {
    input.shipped = profile_shipped[0].name;
    input.profile = (planner_text){profile_shipped[0].text, strlen(profile_shipped[0].text)};
  }
  TRY(planner_make(&input, &plan, &bytes));
  status result = write_plan(o->output, plan, bytes);
  if (result == OK && !o->quiet) {
    print_summary(stdout, plan);
    printf("written        %s (%zu bytes)\n", o->output, bytes);
  }
  free(plan);
  return result;
}

int cli_plan(int argc, char **argv) {
  plan_options options = {0};
  file_text files[3] = {{0}};
  status result = read_options(argc, argv, &options);
  if (result == OK && options.help) {
    fputs(HELP, stdout);
    return 0;
  }
  if (result == OK) result = make(&options, files);
  for (size_t i = 0; i < ARRAY_LEN(files); i++) free(files[i].text);
  if (result != OK) fprintf(stderr, "verbatim: plan: %s\n", fail_text());
  return fail_exit_code(result);
}
