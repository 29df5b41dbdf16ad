/* common/config.c - see common/config.h. Each key of the subcommand has an entry: its value as YAML, and its origin. */
#include "common/config.h"
#include "common/files.h"
#include "common/memory.h"
#include "common/plan_file.h"
#include "plan/format.h"
#include "base/special_file.h"
#include "base/spelling.h"
#include "planner/deploy_config.h"
#include "base/utf8.h"
#include "base/whole_file.h"
#include "verbatim.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES_MAX_OF_ERRORS 4300u /* a path and a key */

static const char *const ORIGINS[] = {"not set", "default", "file", "command line"};

static uint32_t find_key(const char *name) {
  uint32_t i = 0;
  while (i < cli_config_keys_count && strcmp(cli_config_keys[i].name, name) != 0) i++;
  return i;
}

/* Key of an option's name. False: the key does not belong to this subcommand. */
static bool is_own(const cli_config *self, uint32_t key) {
  return key < cli_config_keys_count && (cli_config_keys[key].users & self->user);
}

static uint32_t key_of(const cli_config *self, const cli_option *row) {
  uint32_t key = strncmp(row->name, "--", 2) == 0 ? find_key(row->name + 2) : cli_config_keys_count;
  return is_own(self, key) ? key : cli_config_keys_count;
}

void cli_config_options(cli_config *self, uint32_t user, cli_option *rows, size_t row_count) {
  size_t at = 0;
  self->user = user;
  self->device = VERBATIM_DEVICE_AUTO;
  while (rows[at].name) at++;
  ASSERT(at + 2 < row_count);
  rows[at++] = (cli_option){"--config", cli_options_text, &self->path};
  rows[at++] = (cli_option){"--dump-config", NULL, &self->dump};
  if (user != CLI_CONFIG_PLAN) return;
  static const char *const names[] = {
    "--max-num-seqs", "--max-num-batched-tokens", "--max-model-len", "--max-logit-rows", "--kv-pages", "--kv-memory-bytes",
    "--gpu-memory-utilization", "--device-memory-bytes", "--ladder", "--parity", "--expand-tokens", "--latent-norm-eps", "--kv-cache-dtype",
    "--kv-cache-scales", "--chunk-tokens", "--group-chunks", "--tensor-parallel-size", "--exchange-transport", "--divide-rows-from",
    "--attention-by-requests-from",
    "--structured-outputs", "--speculative-config.method", "--speculative-config.num-speculative-tokens",
    "--speculative-config.prompt-lookup-min",
    "--speculative-config.prompt-lookup-max"};
  ASSERT(at + 1 + ARRAY_LEN(names) < row_count);
  rows[at++] = (cli_option){"--speculative-config", cli_options_text, &self->speculation};
  for (size_t i = 0; i < ARRAY_LEN(names); i++) rows[at++] = (cli_option){names[i], cli_options_text,
                                                                          &self->planner[find_key(names[i] + 2)]};
}

/* === Values as YAML ========================================================================================================= */

static bool is_plain(const char *text) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+-";
  return *text && *text != '-' && text[strspn(text, letters)] == 0;
}

static void put_text(FILE *to, const char *text) {
  size_t bytes = strlen(text);
  if (is_plain(text)) {
    fputs(text, to);
    return;
  }
  putc('"', to);
  for (size_t i = 0; i < bytes;) {
    int length = utf8_scan((const uint8_t *)text + i, bytes - i);
    if (length == 1 && (text[i] == '"' || text[i] == '\\')) fprintf(to, "\\%c", text[i]);
    else if (length == 1 && text[i] >= 0x20 && text[i] <= 0x7e) putc(text[i], to);
    else fprintf(to, "\\U%08" PRIX32, length > 0 ? utf8_code_point((const uint8_t *)text + i, length) : UINT32_C(0xfffd));
    i += length > 0 ? (size_t)length : 1;
  }
  putc('"', to);
}

/* The only way to set an entry. */
static void set_entry(cli_config *self, uint32_t key, cli_config_origin origin, const char *const *texts, uint32_t count) {
  const uint32_t traits = cli_config_keys[key].traits;
  char *text = NULL;
  size_t bytes = 0;
  FILE *to = open_memstream(&text, &bytes);
  ASSERT(to != NULL);
  if (traits & CLI_CONFIG_IS_LIST) putc('[', to);
  for (uint32_t i = 0; i < count; i++) {
    if (i > 0) fputs(", ", to);
    put_text(to, texts[i]);
  }
  if (traits & CLI_CONFIG_IS_LIST) putc(']', to);
  for (uint32_t i = 0; i < count; i++) self->has_bytes |= utf8_valid_bytes((const uint8_t *)texts[i], strlen(texts[i])) != strlen(texts[i]);
  ASSERT(fclose(to) == 0);
  free(self->entries[key].value);
  self->entries[key] = (cli_config_entry){.value = text, .origin = origin};
}

static void unset_entry(cli_config *self, uint32_t key) {
  free(self->entries[key].value);
  self->entries[key] = (cli_config_entry){0};
}

/* "1,2,4" or "[1, 2, 4]", as on the command line. */
static status set_words(cli_config *self, uint32_t key, const char *text) {
  const char *words[FLAT_YAML_LIST_MAX];
  uint32_t count = 0;
  char *copy = strdup(text), *rest = NULL;
  ASSERT(copy != NULL);
  for (char *word = strtok_r(copy, "[], ", &rest); word && count < ARRAY_LEN(words); word = strtok_r(NULL, "[], ", &rest))
    words[count++] = word;
  bool fits = rest == NULL || *rest == 0 || count < ARRAY_LEN(words);
  if (fits) set_entry(self, key, CLI_CONFIG_COMMAND, words, count);
  free(copy);
  return fits ? OK : FAIL(ERR_LIMIT, "--%s: more than %u values", cli_config_keys[key].name, FLAT_YAML_LIST_MAX);
}

/* === The file =============================================================================================================== */

static status check_key(const char *from, const flat_yaml_row *row) {
  const uint32_t key = find_key(row->key);
  const char *renamed = deploy_config_renamed(row->key);
  if (renamed) return FAIL(ERR_FORMAT, "%s: key \"%s\" is renamed to \"%s\"", from, row->key, renamed);
  if (key == cli_config_keys_count) {
    spelling_search search = spelling_begin(row->key, UINT32_MAX);
    for (uint32_t i = 0; i < cli_config_keys_count; i++) spelling_try(&search, cli_config_keys[i].name);
    return FAIL(ERR_FORMAT, "%s: key \"%s\" is not known; hint: the nearest known key is \"%s\"", from, row->key, search.nearest);
  }
  if (row->is_list && !(cli_config_keys[key].traits & CLI_CONFIG_IS_LIST))
    return FAIL(ERR_FORMAT, "%s: %s: expected one value, found a list", from, row->key);
  return OK;
}

static status read_file(cli_config *self) {
  char *text = NULL;
  size_t bytes = 0;
  TRY(cli_files_read_config(self->path, INPUT_DEPLOYMENT, &text, &bytes));
  status result = flat_yaml_read(self->path, text, bytes, &self->file);
  free(text);
  for (uint32_t i = 0; result == OK && i < self->file.count; i++) {
    result = check_key(self->path, &self->file.rows[i]);
    uint32_t key = find_key(self->file.rows[i].key);
    if (result != OK || !is_own(self, key)) continue;
    set_entry(self, key, CLI_CONFIG_FILE, (const char *const *)self->file.rows[i].values, self->file.rows[i].count);
  }
  return result;
}

/* --speculative-config '{"method": "ngram"}', in place of what the file says of it. */
static status read_speculation(cli_config *self) {
  static const char above[] = "speculative-config";
  flat_yaml given = {0};
  if (!self->speculation) return OK;
  const size_t room = sizeof above + strlen(self->speculation) + 2;
  char *text = malloc(room);
  ASSERT(text != NULL);
  snprintf(text, room, "%s: %s", above, self->speculation);
  status result = flat_yaml_read("--speculative-config", text, strlen(text), &given);
  free(text);
  for (uint32_t i = 0; result == OK && i < cli_config_keys_count; i++)
    if (strncmp(cli_config_keys[i].name, above, sizeof above - 1) == 0) unset_entry(self, i);
  for (uint32_t i = 0; result == OK && i < given.count; i++) {
    const uint32_t key = find_key(given.rows[i].key);
    if (strcmp(given.rows[i].key, above) == 0)
      result = FAIL(ERR_FORMAT, "--speculative-config: expected a mapping such as {\"method\": \"ngram\", \"num_speculative_tokens\": 4}, "
                    "found %.40s", self->speculation);
    else result = check_key("--speculative-config", &given.rows[i]);
    if (result == OK) set_entry(self, key, CLI_CONFIG_COMMAND, (const char *const *)given.rows[i].values, given.rows[i].count);
  }
  flat_yaml_close(&given);
  return result;
}

/* Passes the file's values to the option, as if they were on the command line. */
static status feed(const cli_config *self, const cli_option *row, const flat_yaml_row *from) {
  char name[NAME_BYTES_MAX_OF_ERRORS];
  snprintf(name, sizeof name, "%s: %s", self->path, from->key);
  for (uint32_t i = 0; i < from->count; i++) {
    const char *value = from->values[i];
    if (row->take) {
      TRY(row->take(name, value, row->target));
      continue;
    }
    if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
      return FAIL(ERR_FORMAT, "%s: expected true or false, found \"%s\"", name, value);
    *(bool *)row->target = strcmp(value, "true") == 0;
  }
  return OK;
}

const char *cli_config_value(const cli_config *self, const char *key) {
  const flat_yaml_row *row = flat_yaml_find(&self->file, key);
  return row && !row->is_list ? row->values[0] : NULL;
}

/* === The command line ======================================================================================================= */

/* Records the option's value before the file's values are applied. */
static void set_default(cli_config *self, uint32_t key, const cli_option *row) {
  char room[64] = "";
  const char *text = room;
  if (!row->take) text = *(bool *)row->target ? "true" : "false";
  else if (row->take == cli_options_u32) snprintf(room, sizeof room, "%" PRIu32, *(uint32_t *)row->target);
  else if (row->take == cli_options_u64) snprintf(room, sizeof room, "%" PRIu64, *(uint64_t *)row->target);
  else if (row->take == cli_options_real) snprintf(room, sizeof room, "%.17g", *(double *)row->target);
  else if (row->take == cli_options_text) text = *(const char **)row->target;
  else text = cli_config_keys[key].fallback;
  if (text) set_entry(self, key, CLI_CONFIG_DEFAULT, &text, 1);
}

/* Rows with the same taker and target are one option under several names. */
static bool is_one(const cli_option *a, const cli_option *b) { return a->take == b->take && a->target == b->target; }

/* Records all of argv's values of an option. */
static status set_given(cli_config *self, uint32_t key, const cli_option *asked, const cli_option *options, int argc, char **argv) {
  const char *values[FLAT_YAML_LIST_MAX];
  const bool is_list = cli_config_keys[key].traits & CLI_CONFIG_IS_LIST;
  uint32_t count = 0;
  const cli_option *row = NULL;
  const char *value = NULL;
  for (int at = 0; cli_options_next(options, argc, argv, &at, &row, &value);) {
    if (!is_one(row, asked)) continue;
    if (count == ARRAY_LEN(values)) return FAIL(ERR_LIMIT, "%s: given more than %u times", row->name, FLAT_YAML_LIST_MAX);
    if (!is_list) count = 0; /* the last value wins */
    values[count++] = value ? value : "true";
  }
  if (cli_config_keys[key].traits & CLI_CONFIG_HAS_COMMAS) return set_words(self, key, values[count - 1]);
  set_entry(self, key, CLI_CONFIG_COMMAND, values, count);
  return OK;
}

static bool is_given(const cli_option *options, const cli_option *asked, int argc, char **argv) {
  const cli_option *row = NULL;
  const char *value = NULL;
  for (int at = 0; cli_options_next(options, argc, argv, &at, &row, &value);)
    if (is_one(row, asked)) return true;
  return false;
}

status cli_config_apply(cli_config *self, const cli_option *options, int argc, char **argv) {
  self->command = argv[0];
  for (const cli_option *row = options; row->name; row++) {
    uint32_t key = key_of(self, row);
    if (key < cli_config_keys_count && !is_given(options, row, argc, argv)) set_default(self, key, row);
  }
  if (self->path) TRY(read_file(self));
  TRY(read_speculation(self));
  for (const cli_option *row = options; row->name; row++) {
    uint32_t key = key_of(self, row);
    if (key == cli_config_keys_count) continue;
    const flat_yaml_row *from = flat_yaml_find(&self->file, cli_config_keys[key].name);
    if (is_given(options, row, argc, argv)) TRY(set_given(self, key, row, options, argc, argv));
    else if (from && !(cli_config_keys[key].traits & CLI_CONFIG_OF_PLANNER)) TRY(feed(self, row, from));
  }
  return OK;
}

void cli_config_place(cli_config *self, const char *key, const char **value) {
  uint32_t at = find_key(key);
  ASSERT(is_own(self, at));
  if (*value) set_entry(self, at, CLI_CONFIG_COMMAND, value, 1);
  else *value = cli_config_value(self, key);
}

status cli_config_place_engine(cli_config *self, const char *const *words, const char **plan_path, const char **model_dir) {
  uint32_t count = 0;
  TRY(cli_files_engine(words, plan_path, model_dir, &count));
  if (words[count])
    return FAIL(ERR_USAGE, "%s: expected [PLAN] MODEL_DIR, found also \"%s\"; hint: verbatim %s --help", self->command, words[count],
                self->command);
  cli_config_place(self, "plan", plan_path);
  cli_config_place(self, "model", model_dir);
  return OK;
}

const char *const *cli_config_words(cli_config *self, const char *key, const char *const *words, uint32_t *count) {
  const flat_yaml_row *row = flat_yaml_find(&self->file, key);
  uint32_t at = find_key(key);
  ASSERT(is_own(self, at));
  if (*count > 0) set_entry(self, at, CLI_CONFIG_COMMAND, words, *count);
  if (*count > 0 || !row) return words;
  *count = row->count;
  return (const char *const *)row->values;
}

/* === The effective configuration ============================================================================================ */

static const char *value_of(const cli_config *self, const char *key) { return self->entries[find_key(key)].value; }

bool cli_config_is_auto(const cli_config *self) {
  const char *value = value_of(self, "device-memory-bytes");
  return value && strcmp(value, "auto") == 0;
}

uint32_t cli_config_gpus(const cli_config *self) {
  const char *value = value_of(self, "tensor-parallel-size");
  const unsigned long count = value ? strtoul(value, NULL, 10) : 1; /* the planner checks it */
  return count > 0 && count <= RANKS_MAX ? (uint32_t)count : 1;
}

/* The planner's keys; device_bytes in place of the word auto, or 0: without the keys that bound the memory. */
static char *deploy_with(const cli_config *self, uint64_t device_bytes) {
  const bool is_auto = cli_config_is_auto(self);
  char *text = NULL;
  size_t bytes = 0;
  FILE *to = open_memstream(&text, &bytes);
  ASSERT(to != NULL);
  for (uint32_t i = 0; i < cli_config_keys_count; i++) {
    const char *name = cli_config_keys[i].name, *value = self->entries[i].value;
    if (!(cli_config_keys[i].traits & CLI_CONFIG_OF_PLANNER) || !value) continue;
    const bool is_size = strcmp(name, "device-memory-bytes") == 0, is_share = strcmp(name, "gpu-memory-utilization") == 0;
    if (is_auto && device_bytes == 0 && (is_size || is_share)) continue;
    if (is_auto && is_size) fprintf(to, "%s: %" PRIu64 "\n", name, device_bytes);
    else fprintf(to, "%s: %s\n", name, value);
  }
  ASSERT(fclose(to) == 0);
  return text;
}

status cli_config_deploy(const cli_config *self, cli_memory *memory, char **text) {
  cli_memory found = {.bytes = 0};
  if (cli_config_is_auto(self)) TRY(cli_memory_find(self->device, cli_config_gpus(self), &found));
  *memory = found;
  *text = deploy_with(self, found.bytes);
  return OK;
}

digest cli_config_digest(const cli_config *self) {
  digest_state state;
  digest_start(&state);
  for (uint32_t i = 0; i < cli_config_keys_count; i++) {
    const char *name = cli_config_keys[i].name, *value = self->entries[i].value;
    if (!value || (cli_config_keys[i].traits & CLI_CONFIG_IS_SECRET)) continue;
    digest_add(&state, name, strlen(name));
    digest_add(&state, ": ", 2);
    digest_add(&state, value, strlen(value));
    digest_add(&state, "\n", 1);
  }
  return digest_end(&state);
}

status cli_config_dump(const cli_config *self, FILE *to) {
  char text[DIGEST_TEXT_BYTES];
  digest all = cli_config_digest(self);
  if (self->has_bytes) return FAIL(ERR_FORMAT, "--dump-config: a value is not UTF-8 and cannot be written to a file");
  fprintf(to, "# verbatim %s\n# digest %s\n", self->command, digest_text(all.bytes, text));
  for (uint32_t i = 0; i < cli_config_keys_count; i++) {
    const cli_config_key *key = &cli_config_keys[i];
    const cli_config_entry *entry = &self->entries[i];
    if (!is_own(self, i)) continue;
    if (!entry->value) fprintf(to, "# %s: not set\n", key->name);
    else if (key->traits & CLI_CONFIG_IS_SECRET) fprintf(to, "# %s: set, not shown (%s)\n", key->name, ORIGINS[entry->origin]);
    else fprintf(to, "%s: %s # %s\n", key->name, entry->value, ORIGINS[entry->origin]);
  }
  return ferror(to) ? FAIL(ERR_IO, "the configuration could not be written: %s", strerror(errno)) : OK;
}

void cli_config_close(cli_config *self) {
  for (uint32_t i = 0; i < CLI_CONFIG_KEYS_MAX; i++) free(self->entries[i].value);
  flat_yaml_close(&self->file);
  *self = (cli_config){0};
}

/* === The plan =============================================================================================================== */

/* Whether a file has exactly these bytes. found: the digest in its header, or what kind of file it is. */
static status compare_plan(const char *path, const void *expected, size_t byte_count, bool *is_equal, char found[DIGEST_TEXT_BYTES]) {
  FILE *file;
  TRY(input_file_open(path, INPUT_PLAN, &file));
  char *bytes = malloc(byte_count + 1);
  ASSERT(bytes != NULL);
  size_t count = fread(bytes, 1, byte_count + 1, file);
  plan_header header = {.format_version = 0};
  memcpy(&header, bytes, count < sizeof header ? count : sizeof header);
  *is_equal = count == byte_count && memcmp(bytes, expected, byte_count) == 0;
  if (memcmp(header.magic, PLAN_MAGIC, sizeof header.magic) == 0) digest_text(header.digest, found);
  else snprintf(found, DIGEST_TEXT_BYTES, "none: it is not a plan");
  fclose(file);
  free(bytes);
  return OK;
}

static status check_plan(const cli_config *self, const char *plan_path, const void *bytes, size_t byte_count) {
  char found[DIGEST_TEXT_BYTES], expected[DIGEST_TEXT_BYTES];
  bool is_equal = false;
  TRY(compare_plan(plan_path, bytes, byte_count, &is_equal, found));
  if (is_equal) return OK;
  digest_text(((const plan_header *)bytes)->digest, expected);
  return FAIL(ERR_MISMATCH, "%s is not the plan of %s: expected digest %s, found %s; hint: replace it with `verbatim plan --config %s`, "
                            "or give the plan another name", plan_path, self->path, expected, found, self->path);
}

static status make_plan(const cli_config *self, const char *model_dir, const char *deploy, void **bytes, size_t *byte_count) {
  const cli_plan_file_source source = {.model_dir = model_dir, .deploy = deploy, .profile = cli_config_value(self, "profile")};
  return cli_plan_file_make(&source, bytes, byte_count);
}

/* What was generated for the memory that was free then holds for the pages that it has: the same plan, whatever is free now. */
static char *deploy_of_auto(const cli_config *self, const char *plan_path) {
  char *text = deploy_with(self, 0), *whole = NULL;
  plan_header header = {.format_version = 0};
  FILE *file = value_of(self, "kv-pages") || value_of(self, "kv-memory-bytes") ? NULL : fopen(plan_path, "rb");
  const bool is_read = file && fread(&header, sizeof header, 1, file) == 1;
  if (file) fclose(file);
  if (!is_read) return text;
  const size_t room = strlen(text) + 32;
  ASSERT((whole = malloc(room)) != NULL);
  snprintf(whole, room, "%skv-pages: %" PRIu32 "\n", text, header.limits.kv_pages);
  free(text);
  return whole;
}

status cli_config_find_plan(const cli_config *self, const char *plan_path, const char *model_dir, bool *is_there) {
  void *bytes = NULL;
  size_t byte_count = 0;
  const bool found = special_file_is_there(plan_path);
  if (found) TRY(input_file_check(plan_path, INPUT_PLAN));
  *is_there = found;
  if (!found) return OK;
  char *deploy = cli_config_is_auto(self) ? deploy_of_auto(self, plan_path) : deploy_with(self, 0);
  status result = *deploy ? make_plan(self, model_dir, deploy, &bytes, &byte_count) : OK;
  if (result == OK && *deploy) result = check_plan(self, plan_path, bytes, byte_count);
  free(deploy);
  free(bytes);
  return result;
}

status cli_config_plan(const cli_config *self, const char *plan_path, const char *model_dir, bool quiet) {
  bool is_there = false;
  void *bytes = NULL;
  size_t byte_count = 0;
  cli_memory memory;
  char *deploy = NULL;
  if (!self->path) return OK;
  TRY(cli_config_find_plan(self, plan_path, model_dir, &is_there));
  if (is_there) return OK;
  TRY(cli_plan_file_check(plan_path, model_dir, false));
  TRY(cli_config_deploy(self, &memory, &deploy));
  status result = make_plan(self, model_dir, deploy, &bytes, &byte_count);
  if (result == OK) result = whole_file_write(plan_path, bytes, byte_count);
  if (result == OK && !quiet) fprintf(stderr, "%s: made from %s (%zu bytes)\n", plan_path, self->path, byte_count);
  if (result == OK && !quiet && memory.bytes) cli_memory_print(&memory, stderr);
  free(deploy);
  free(bytes);
  return result;
}
