/* common/plan_file.c - see common/plan_file.h. Reads the inputs, calls the planner. */
#include "common/plan_file.h"
#include "common/files.h"
#include "base/limits.h"
#include "plan/format.h"
#include "planner/planner.h"
#include "planner/profile_shipped.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES_MAX 4096

typedef struct file_text {
  char *text; /* NULL: not read */
  size_t bytes;
} file_text;

static status make(const cli_plan_file_source *source, file_text *config, file_text *profile, void **bytes, size_t *byte_count) {
  char config_path[PATH_BYTES_MAX];
  int length = snprintf(config_path, sizeof config_path, "%s/config.json", source->model_dir);
  if (length < 0 || (size_t)length >= sizeof config_path) return FAIL(ERR_USAGE, "%s: the path is too long", source->model_dir);
  TRY(input_file_check_model(source->model_dir));
  TRY(input_file_check(config_path, INPUT_CONFIG));
  TRY(cli_files_read_config(config_path, INPUT_CONFIG, &config->text, &config->bytes));
  const bool is_shipped = !source->profile, is_file = source->profile && strcmp(source->profile, "none") != 0;
  if (is_file) TRY(cli_files_read_config(source->profile, INPUT_PROFILE, &profile->text, &profile->bytes));
  planner_input input = {.config = {config->text, config->bytes}, .profile = {profile->text, profile->bytes}};
  if (source->deploy) input.deploy = (planner_text){source->deploy, strlen(source->deploy)};
  if (is_shipped) {
    input.shipped = profile_shipped[0].name;
    input.profile = (planner_text){profile_shipped[0].text, strlen(profile_shipped[0].text)};
  }
  status result = planner_make(&input, bytes, byte_count);
  if (is_file && strncmp(fail_text(), "profile", strlen("profile")) == 0) fail_prefix(source->profile);
  return result;
}

status cli_plan_file_make(const cli_plan_file_source *source, void **bytes, size_t *byte_count) {
  file_text config = {0}, profile = {0};
  status result = make(source, &config, &profile, bytes, byte_count);
  free(config.text);
  free(profile.text);
  return result;
}

status cli_plan_file_check(const char *path, const char *model_dir, bool force) {
  char magic[8] = {0};
  TRY(cli_files_check_output(path));
  TRY(cli_files_check_model(path, model_dir));
  FILE *file = fopen(path, "rb");
  if (!file) return errno == ENOENT ? OK : FAIL(ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
  size_t bytes = fread(magic, 1, sizeof magic, file);
  fclose(file);
  if (force || (bytes == sizeof magic && memcmp(magic, PLAN_MAGIC, sizeof magic) == 0)) return OK;
  return FAIL(ERR_USAGE, "%s exists and is not a plan; hint: --force replaces it", path);
}

