/* common/hub.c - see common/hub.h. */
#include "common/hub.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FOLDERS_MAX 5u
#define LOOKED_BYTES 600u

typedef struct place { /* a name, and where its folder may be */
  cli_hub_name name;
  char folders[FOLDERS_MAX][CLI_HUB_PATH_BYTES_MAX];
  uint32_t count;
} place;

/* === Names and commits ====================================================================================================== */

/* Copies a part: letters, digits and "-_.", not beginning with a point, "/" only where it is allowed and neither twice nor at an end. */
static bool take_part(const char *text, size_t bytes, bool may_be_path, char out[CLI_HUB_PART_BYTES]) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  char before = '/';
  if (bytes == 0 || bytes >= CLI_HUB_PART_BYTES) return false;
  for (size_t i = 0; i < bytes; i++) {
    const bool is_slash = may_be_path && text[i] == '/', is_first = before == '/';
    if (!is_slash && !strchr(letters, text[i])) return false;
    if (is_first && (is_slash || text[i] == '.')) return false;
    before = text[i];
  }
  if (before == '/') return false;
  memcpy(out, text, bytes);
  out[bytes] = 0;
  return true;
}

bool cli_hub_parse(const char *word, cli_hub_name *out) {
  cli_hub_name found = {.revision = "main"};
  const char *slash = strchr(word, '/'), *at = strchr(word, '@');
  if (!slash || (at && at < slash)) return false;
  const size_t name_bytes = at ? (size_t)(at - slash - 1) : strlen(slash + 1);
  if (!take_part(word, (size_t)(slash - word), false, found.organisation)) return false;
  if (!take_part(slash + 1, name_bytes, false, found.name)) return false;
  if (at && !take_part(at + 1, strlen(at + 1), true, found.revision)) return false;
  *out = found;
  return true;
}

bool cli_hub_commit(const char *text, size_t bytes, char commit[CLI_HUB_COMMIT_BYTES]) {
  const size_t digits = CLI_HUB_COMMIT_BYTES - 1;
  if (bytes == digits + 1 && text[digits] == '\n') bytes--;
  if (bytes != digits) return false;
  for (size_t i = 0; i < digits; i++)
    if (!(text[i] >= '0' && text[i] <= '9') && !(text[i] >= 'a' && text[i] <= 'f')) return false;
  memcpy(commit, text, digits);
  commit[digits] = 0;
  return true;
}

/* === The cache ============================================================================================================== */

static void add_folder(place *self, const char *base, const char *rest) {
  if (!base || !*base || self->count == FOLDERS_MAX) return;
  char *folder = self->folders[self->count];
  const int length = snprintf(folder, CLI_HUB_PATH_BYTES_MAX, "%s%s", base, rest);
  bool is_new = length > 0 && length < (int)CLI_HUB_PATH_BYTES_MAX;
  for (uint32_t i = 0; i < self->count; i++) is_new = is_new && strcmp(self->folders[i], folder) != 0;
  self->count += is_new;
}

/* The folders that huggingface_hub would use, the ones with a variable of their own first. */
static void list_folders(place *self) {
  add_folder(self, getenv("HF_HUB_CACHE"), "");
  add_folder(self, getenv("HUGGINGFACE_HUB_CACHE"), "");
  add_folder(self, getenv("HF_HOME"), "/hub");
  add_folder(self, getenv("XDG_CACHE_HOME"), "/huggingface/hub");
  add_folder(self, getenv("HOME"), "/.cache/huggingface/hub");
}

static bool is_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* *commit: of the revision; "" if this folder of the cache does not know it. path has room for what stands there. */
static status find_commit(const char *model, const char *revision, char *path, char commit[CLI_HUB_COMMIT_BYTES]) {
  char text[CLI_HUB_COMMIT_BYTES + 8];
  struct stat info;
  *commit = 0;
  if (cli_hub_commit(revision, strlen(revision), commit)) return OK;
  if (snprintf(path, CLI_HUB_PATH_BYTES_MAX, "%s/refs/%s", model, revision) >= (int)CLI_HUB_PATH_BYTES_MAX) return OK;
  if (stat(path, &info) != 0) return OK;
  FILE *file = S_ISREG(info.st_mode) ? fopen(path, "rb") : NULL;
  const size_t bytes = file ? fread(text, 1, sizeof text, file) : 0;
  if (file) fclose(file);
  if (cli_hub_commit(text, bytes, commit)) return OK;
  return FAIL(ERR_FORMAT, "%s: expected a commit of 40 hexadecimal digits, found something else; hint: `hf download` writes it again",
              path);
}

/* *is_found: the model lies in this folder of the cache, at the path. */
static status look_in(const char *folder, const cli_hub_name *name, char path[CLI_HUB_PATH_BYTES_MAX], bool *is_found) {
  char model[CLI_HUB_PATH_BYTES_MAX], commit[CLI_HUB_COMMIT_BYTES];
  const int length = snprintf(model, sizeof model, "%s/models--%s--%s", folder, name->organisation, name->name);
  *is_found = false;
  if (length < 0 || length >= (int)sizeof model || !is_folder(model)) return OK;
  TRY(find_commit(model, name->revision, path, commit));
  if (!*commit || snprintf(path, CLI_HUB_PATH_BYTES_MAX, "%s/snapshots/%s", model, commit) >= (int)CLI_HUB_PATH_BYTES_MAX) return OK;
  *is_found = is_folder(path);
  return OK;
}

static status refuse(const place *self, const char *word) {
  char looked[LOOKED_BYTES] = "";
  size_t used = 0;
  const bool has_revision = strchr(word, '@') != NULL;
  for (uint32_t i = 0; i < self->count && used < sizeof looked; i++)
    used += (size_t)snprintf(looked + used, sizeof looked - used, "%s%s", i ? ", " : "", self->folders[i]);
  return FAIL(ERR_IO, "%s: expected a model folder, or a model in the cache of the Hugging Face Hub, found nothing of that name here or in "
              "%s; hint: hf download %s/%s%s%s", word, *looked ? looked : "a cache, as HOME is not set", self->name.organisation,
              self->name.name, has_revision ? " --revision " : "", has_revision ? self->name.revision : "");
}

/* *is_found: the word is a name of the Hub, and of no file here, and lies at the path. */
static status find(place *self, const char *word, char path[CLI_HUB_PATH_BYTES_MAX], bool *is_name, bool *is_found) {
  struct stat info;
  *is_found = false;
  *is_name = lstat(word, &info) != 0 && cli_hub_parse(word, &self->name);
  if (*is_name) list_folders(self);
  for (uint32_t i = 0; i < self->count && !*is_found; i++) TRY(look_in(self->folders[i], &self->name, path, is_found));
  return OK;
}

status cli_hub_resolve(const char **model_dir, char room[CLI_HUB_PATH_BYTES_MAX]) {
  place self = {.count = 0};
  bool is_name = false, is_found = false;
  if (!*model_dir) return OK;
  TRY(find(&self, *model_dir, room, &is_name, &is_found));
  if (is_name && !is_found) return refuse(&self, *model_dir);
  if (is_found) *model_dir = room;
  return OK;
}

bool cli_hub_has(const char *word) {
  place self = {.count = 0};
  char path[CLI_HUB_PATH_BYTES_MAX];
  bool is_name = false, is_found = false;
  if (find(&self, word, path, &is_name, &is_found) == OK) return is_found;
  fail_clear();
  return true; /* it is there, though damaged */
}
