/* test_cli_config.c - the deployment file as defaults of options: precedence, refusals that name the key, a dump that reads back as itself,
 * a plan that is made once and never replaced, and a key for every option that has a value. */
#define _DEFAULT_SOURCE /* mkdtemp */
#include "tests/unit/unit.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "engine/common/config.h"
#include "engine/verbatim.h"
#include "planner/deploy_config.h"

static uint32_t user; /* which subcommand's options are tested, as bits */
static char folder[256], file_path[320], plan_path[320];

static void write_file(const char *path, const char *text) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

static int open_folder(void **state) {
  (void)state;
  strcpy(folder, "/tmp/verbatim-config-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  snprintf(file_path, sizeof file_path, "%s/deploy.yaml", folder);
  snprintf(plan_path, sizeof plan_path, "%s/a.plan", folder);
  return 0;
}

static int reset(void **state) {
  (void)state;
  user = CLI_CONFIG_SERVE;
  return 0;
}

static int close_folder(void **state) {
  (void)state;
  unlink(file_path);
  unlink(plan_path);
  return rmdir(folder);
}

/* A subcommand like `serve`. */
typedef struct server {
  cli_config config;
  const char *plan, *model, *host, *cache_dir;
  uint32_t port, name_count;
  uint64_t body_bytes;
  double timeout;
  bool direct;
  const char *names[4], *api_key;
} server;

static status take_name(const char *name, const char *value, void *target) {
  server *self = target;
  if (self->name_count == ARRAY_LEN(self->names)) return FAIL(ERR_LIMIT, "%s: too many", name);
  self->names[self->name_count++] = value;
  return OK;
}

static server server_of(void) { return (server){.host = "127.0.0.1", .port = 8000, .timeout = 0.1, .body_bytes = UINT64_C(1) << 40}; }

/* line: the command line after the subcommand, words separated by blanks; it must outlive the server. */
static status start(server *self, char *line) {
  char *argv[32] = {"serve"}, *rest = NULL;
  const char *words[32];
  uint32_t count = 0;
  int argc = 1;
  for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) argv[argc++] = word;
  cli_option table[32] = {{"--host", cli_options_text, &self->host},      {"-H", cli_options_text, &self->host},
                          {"--port", cli_options_u32, &self->port},       {"--perturb", take_name, self},
                          {"--api-key", cli_options_text, &self->api_key}, {"--cache-dir", cli_options_text, &self->cache_dir},
                          {"--max-body-bytes", cli_options_u64, &self->body_bytes},
                          {"--client-timeout", cli_options_real, &self->timeout}, {"--direct", NULL, &self->direct}};
  cli_config_options(&self->config, user, table, ARRAY_LEN(table));
  fail_clear();
  TRY(cli_options_parse(table, argc, argv, words, &count));
  TRY(cli_config_apply(&self->config, table, argc, argv));
  self->plan = count > 0 ? words[0] : NULL;
  self->model = count > 1 ? words[1] : NULL;
  cli_config_place(&self->config, "plan", &self->plan);
  cli_config_place(&self->config, "model", &self->model);
  return OK;
}

/* The same with a file that holds this text. */
static status start_with(server *self, const char *text, const char *options) {
  static char lines[8][1024];
  static uint32_t next;
  char *line = lines[next++ % ARRAY_LEN(lines)];
  write_file(file_path, text);
  snprintf(line, sizeof lines[0], "--config %s %s", file_path, options);
  *self = server_of();
  return start(self, line);
}

static void sound(status result) {
  if (result != OK) fail_msg("%s", fail_text());
}

static char *dump(const cli_config *config, digest *id) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *to = open_memstream(&text, &bytes);
  assert_non_null(to);
  sound(cli_config_dump(config, to));
  assert_int_equal(fclose(to), 0);
  *id = cli_config_digest(config);
  return text;
}

static void command_line_before_file_before_default(void **state) {
  (void)state;
  server s;
  sound(start_with(&s, "host: 0.0.0.0\nport: 9000\nmax_body_bytes: 77\nplan: a\nmodel: b\ndirect: true\ncache-dir: \"\"\n", "--port 1 c"));
  assert_string_equal(s.host, "0.0.0.0");
  assert_int_equal(s.port, 1);
  assert_int_equal(s.body_bytes, 77);
  assert_true(s.timeout == 0.1);
  assert_true(s.direct);
  assert_string_equal(s.cache_dir, "");
  assert_string_equal(s.plan, "c");
  assert_string_equal(s.model, "b");
  cli_config_close(&s.config);
  sound(start_with(&s, "host: 0.0.0.0\n", "-H ::1")); /* another name of the option */
  assert_string_equal(s.host, "::1");
  assert_null(s.plan);
  cli_config_close(&s.config);
}

static void lists_are_given_one_by_one_or_not_at_all(void **state) {
  (void)state;
  user = CLI_CONFIG_SERVE | CLI_CONFIG_EVAL;
  server s;
  sound(start_with(&s, "perturb: [a, b]\n", ""));
  assert_int_equal(s.name_count, 2);
  assert_string_equal(s.names[1], "b");
  cli_config_close(&s.config);
  sound(start_with(&s, "perturb: a\n", ""));
  assert_int_equal(s.name_count, 1);
  cli_config_close(&s.config);
  sound(start_with(&s, "perturb: [a, b]\n", "--perturb c"));
  assert_int_equal(s.name_count, 1);
  assert_string_equal(s.names[0], "c");
  cli_config_close(&s.config);
}

static void words_of_the_command_line_or_of_the_file(void **state) {
  (void)state;
  static const char *const given[] = {"x", "y z"};
  server s;
  user = CLI_CONFIG_SERVE | CLI_CONFIG_EVAL;
  sound(start_with(&s, "tasks: [a, b, c]\n", ""));
  uint32_t count = 0;
  const char *const *words = cli_config_words(&s.config, "tasks", given, &count);
  assert_int_equal(count, 3);
  assert_string_equal(words[2], "c");
  count = 2;
  assert_true(cli_config_words(&s.config, "tasks", given, &count) == given && count == 2);
  digest id;
  char *text = dump(&s.config, &id);
  assert_non_null(strstr(text, "\ntasks: [x, \"y z\"] # command line\n"));
  free(text);
  cli_config_close(&s.config);
}

static void keys_of_others_are_left_alone(void **state) {
  (void)state;
  server s;
  sound(start_with(&s, "output: results\nlimit: 10\nmax-num-seqs: 4\n", ""));
  char *deploy = NULL;
  cli_memory memory;
  sound(cli_config_deploy(&s.config, &memory, &deploy));
  assert_string_equal(deploy, "max-num-seqs: 4\n");
  assert_int_equal(memory.bytes, 0);
  free(deploy);
  cli_config_close(&s.config);
}

static void wrong_keys_and_values_are_named(void **state) {
  (void)state;
  user = CLI_CONFIG_SERVE | CLI_CONFIG_EVAL;
  static const struct {
    const char *text, *words;
    status code;
  } CASES[] = {{"prot: 1", "\"port\"", ERR_FORMAT},          {"max_seqs: 4", "renamed to \"max-num-seqs\"", ERR_FORMAT},
               {"port: http", "port", ERR_USAGE},            {"port: [1, 2]", "port: expected one value", ERR_FORMAT},
               {"direct: yes", "direct: expected true or false", ERR_FORMAT}, {"direct: maybe", "deploy.yaml: direct", ERR_FORMAT},
               {"port: 1\nport: 2", "twice", ERR_FORMAT},    {"config: x", "not known", ERR_FORMAT},
               {"perturb: [a, b, c, d, e]", "too many", ERR_LIMIT}, {"port: -1", "deploy.yaml: port", ERR_USAGE}};
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    server s;
    status result = start_with(&s, CASES[i].text, "");
    if (result != CASES[i].code || !strstr(fail_text(), CASES[i].words)) fail_msg("%s: code %d, \"%s\"", CASES[i].text, result,
                                                                                  fail_text());
    cli_config_close(&s.config);
  }
}

static void a_dump_reads_back_to_itself(void **state) {
  (void)state;
  user = CLI_CONFIG_SERVE | CLI_CONFIG_EVAL;
  static const char TEXT[] = "host: 0.0.0.0\nperturb: ['a b', \"\\u00e9\\\\\\\"\", \"- x\", '']\nladder: [1, "
                             "4]\nkv_memory_bytes: 20 GiB\n"
                             "api-key: hunter2\nmodel: \"a#b: c\"\ncache-dir: ''\n";
  server s;
  digest first, second, third;
  sound(start_with(&s, TEXT, "--port 1 --direct --api-key hunter3"));
  char *a = dump(&s.config, &first);
  cli_config_close(&s.config);
  assert_null(strstr(a, "hunter"));
  assert_non_null(strstr(a, "# api-key: set, not shown (command line)\n"));
  assert_non_null(strstr(a, "\nport: 1 # command line\n"));
  assert_non_null(strstr(a, "\nhost: 0.0.0.0 # file\n"));
  assert_non_null(strstr(a, "\nclient-timeout: 0.10000000000000001 # default\n"));
  assert_non_null(strstr(a, "\n# plan: not set\n"));
  assert_non_null(strstr(a, "\nladder: [1, 4] # file\n"));
  sound(start_with(&s, a, ""));
  assert_int_equal(s.port, 1);
  assert_int_equal(s.name_count, 4);
  assert_string_equal(s.names[1], "\xc3\xa9\\\"");
  assert_string_equal(s.names[3], "");
  assert_string_equal(s.model, "a#b: c");
  assert_true(s.direct && s.timeout == 0.1);
  char *b = dump(&s.config, &second);
  cli_config_close(&s.config);
  sound(start_with(&s, b, ""));
  char *c = dump(&s.config, &third);
  cli_config_close(&s.config);
  assert_memory_equal(&first, &second, sizeof first);
  assert_memory_equal(&first, &third, sizeof first);
  assert_string_equal(b, c);
  free(a);
  free(b);
  free(c);
}

static digest digest_with(const char *text, const char *options) {
  server s;
  sound(start_with(&s, text, options));
  digest id = cli_config_digest(&s.config);
  cli_config_close(&s.config);
  return id;
}

static bool is_same(digest a, digest b) { return memcmp(&a, &b, sizeof a) == 0; }

static void the_digest_is_of_values_and_of_no_secret(void **state) {
  (void)state;
  digest plain = digest_with("", "");
  assert_true(is_same(plain, digest_with("port: 8000\n", "")));
  assert_true(is_same(plain, digest_with("", "--port 8000")));
  assert_true(is_same(plain, digest_with("api-key: a\n", "")));
  assert_true(is_same(plain, digest_with("limit: 3\n", ""))); /* an option of another subcommand */
  assert_false(is_same(plain, digest_with("port: 8001\n", "")));
  assert_false(is_same(plain, digest_with("max-num-seqs: 8\n", "")));
  assert_true(is_same(digest_with("max-num-seqs: 8\nport: 1\n", ""), digest_with("port: '1'\nmax_num_seqs: 8\n", "")));
}

static void what_a_file_could_not_say_is_not_dumped(void **state) {
  (void)state;
  server s;
  sound(start_with(&s, "", "--host \xff"));
  FILE *to = fopen("/dev/null", "w");
  assert_non_null(to);
  assert_int_equal(cli_config_dump(&s.config, to), ERR_FORMAT);
  fclose(to);
  cli_config_close(&s.config);
}

/* === Plans ================================================================================================================== */

#define TINY "model: tests/tiny\nmax-num-seqs: 4\nmax-num-batched-tokens: 64\nmax-model-len: 128\nkv-pages: 8\n"

static status plan_with(const char *text) {
  server s;
  sound(start_with(&s, text, ""));
  status result = cli_config_plan(&s.config, plan_path, "tests/tiny", true);
  cli_config_close(&s.config);
  return result;
}

static void a_plan_is_made_once_and_never_replaced(void **state) {
  (void)state;
  unlink(plan_path);
  sound(plan_with(TINY));
  sound(plan_with(TINY));
  sound(plan_with(TINY "port: 7\n")); /* not a key of the planner */
  sound(plan_with("port: 7\n"));       /* does not concern the plan */
  assert_int_equal(plan_with(TINY "ladder: [1]\n"), ERR_MISMATCH);
  assert_non_null(strstr(fail_text(), "verbatim plan --config"));
  sound(plan_with(TINY));
  write_file(plan_path, "mine");
  assert_int_equal(plan_with(TINY), ERR_MISMATCH);
  assert_non_null(strstr(fail_text(), "it is not a plan"));
  unlink(plan_path);
  assert_int_equal(plan_with(TINY "chunk-tokens: 3\n"), ERR_FORMAT);
  assert_int_equal(access(plan_path, F_OK), -1);
}

/* The word auto is a number in the plan's deployment. */
static void memory_is_measured(void **state) {
  (void)state;
  server s;
  char *deploy = NULL, expected[64];
  cli_memory memory;
  sound(start_with(&s, "device_memory_bytes: auto\n", ""));
  s.config.device = VERBATIM_DEVICE_CPU;
  sound(cli_config_deploy(&s.config, &memory, &deploy));
  snprintf(expected, sizeof expected, "device-memory-bytes: %llu\n", (unsigned long long)memory.bytes);
  assert_string_equal(deploy, expected);
  assert_true(memory.bytes > 0 && memory.bytes % CLI_MEMORY_GRAIN_BYTES == 0 && !memory.is_gpu);
  assert_true(memory.bytes <= (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4 * 3);
  digest id;
  char *text = dump(&s.config, &id);
  assert_non_null(strstr(text, "\ndevice-memory-bytes: auto # file\n"));
  free(text);
  free(deploy);
  cli_config_close(&s.config);
}

static status auto_plan(const char *text) {
  server s;
  sound(start_with(&s, text, ""));
  s.config.device = VERBATIM_DEVICE_CPU;
  status result = cli_config_plan(&s.config, plan_path, "tests/tiny", true);
  cli_config_close(&s.config);
  return result;
}

/* A plan that was made when more or less memory was free is still the file's plan; one with other sizes is not. */
static void another_free_memory_keeps_the_plan(void **state) {
  (void)state;
  static const char SIZES[] = "max-num-seqs: 4\nmax-num-batched-tokens: 64\nmax-model-len: 128\n";
  char text[256];
  unlink(plan_path);
  snprintf(text, sizeof text, "%sdevice-memory-bytes: 24MiB\n", SIZES); /* room for fewer pages than are of use */
  sound(auto_plan(text));
  snprintf(text, sizeof text, "%sdevice-memory-bytes: auto\n", SIZES);
  sound(auto_plan(text));
  snprintf(text, sizeof text, "%sdevice-memory-bytes: 1GiB\n", SIZES);
  assert_int_equal(auto_plan(text), ERR_MISMATCH); /* so that memory was what limited it */
  snprintf(text, sizeof text, "%skv-pages: 8\ndevice-memory-bytes: auto\n", SIZES);
  assert_int_equal(auto_plan(text), ERR_MISMATCH);
  unlink(plan_path);
}

/* === The table ============================================================================================================== */

static const cli_config_key *find_key(const char *name) {
  for (uint32_t i = 0; i < cli_config_keys_count; i++)
    if (strcmp(cli_config_keys[i].name, name) == 0) return &cli_config_keys[i];
  return NULL;
}

static void every_key_of_the_planner_is_a_key_and_an_option(void **state) {
  (void)state;
  cli_config config = {0};
  cli_option table[32] = {{0}};
  uint32_t count = 0, options = 0;
  cli_config_options(&config, CLI_CONFIG_PLAN, table, ARRAY_LEN(table));
  for (; deploy_config_key(count); count++) {
    const cli_config_key *key = find_key(deploy_config_key(count));
    if (!key || !(key->traits & CLI_CONFIG_OF_PLANNER)) fail_msg("%s: not in common/config_keys.c", deploy_config_key(count));
  }
  for (const cli_option *row = table; row->name; row++) options += find_key(row->name + 2) != NULL;
  assert_int_equal(options, count);
  for (uint32_t i = 0; i < cli_config_keys_count; i++) count -= (cli_config_keys[i].traits & CLI_CONFIG_OF_PLANNER) != 0;
  assert_int_equal(count, 0);
}

static void keys_are_words_and_stand_once(void **state) {
  (void)state;
  for (uint32_t i = 0; i < cli_config_keys_count; i++) {
    const char *name = cli_config_keys[i].name;
    assert_true(strlen(name) < FLAT_YAML_KEY_BYTES && name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.")] == 0);
    assert_true(find_key(name) == &cli_config_keys[i]);
    assert_true(cli_config_keys[i].users != 0);
  }
}

/* Finds the rows {"--name", taker, ...} of a source. Returns their number, or -1 if there is no such file. */
static int check_options(const char *path, uint32_t users) {
  static char text[1 << 18];
  FILE *file = fopen(path, "rb");
  if (!file) return -1;
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  int count = 0;
  for (const char *at = text; (at = strstr(at, "{\"--")) != NULL; at += 4) {
    char name[FLAT_YAML_KEY_BYTES] = "";
    size_t bytes = strcspn(at + 4, "\"");
    assert_true(bytes < sizeof name);
    memcpy(name, at + 4, bytes);
    if (strcmp(name, "config") == 0 || strncmp(at + 5 + bytes, ", NULL,", 7) == 0) continue;
    if (strcmp(name, "output") == 0 && users == CLI_CONFIG_PLAN) continue; /* the key is "plan" */
    const cli_config_key *key = find_key(name);
    count++;
    if (!key || (key->users & users) != users) fail_msg("%s: --%s has no key in engine/common/config_keys.c", path, name);
  }
  return count;
}

static void every_option_with_a_value_has_a_key(void **state) {
  (void)state;
  assert_int_equal(check_options("engine/cli/plan.c", CLI_CONFIG_PLAN), 1);
  assert_true(check_options("engine/common/engine.c", CLI_CONFIG_SERVE) > 6);
  if (check_options("engine/cli/serve.c", CLI_CONFIG_SERVE) < 0) print_message("SKIPPED: there is no engine/cli/serve.c\n");
  if (check_options("engine/cli/eval.c", CLI_CONFIG_EVAL) < 0) print_message("SKIPPED: there is no engine/cli/eval.c\n");
}

/* Appends the text of a source file if it exists. */
static bool add_source(char *text, size_t room, const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return false;
  size_t used = strlen(text);
  text[used + fread(text + used, 1, room - used - 1, file)] = 0;
  fclose(file);
  return true;
}

/* A key that no subcommand reads would be a setting without effect. */
static void every_key_is_taken(void **state) {
  (void)state;
  static const struct {
    uint32_t user;
    const char *path;
  } SOURCES[] = {{CLI_CONFIG_SERVE, "engine/cli/serve.c"}, {CLI_CONFIG_EVAL, "engine/cli/eval.c"}, {CLI_CONFIG_SCORE,
                                                                                                    "engine/cli/score.c"}};
  static char text[1 << 19];
  for (size_t i = 0; i < ARRAY_LEN(SOURCES); i++) {
    *text = 0;
    if (!add_source(text, sizeof text, SOURCES[i].path) || !add_source(text, sizeof text, "engine/common/engine.c") ||
        !add_source(text, sizeof text, "engine/common/config.c")) {
      print_message("SKIPPED: there is no %s\n", SOURCES[i].path);
      continue;
    }
    for (uint32_t k = 0; k < cli_config_keys_count; k++) {
      char option[FLAT_YAML_KEY_BYTES + 8], word[FLAT_YAML_KEY_BYTES + 8];
      const cli_config_key *key = &cli_config_keys[k];
      snprintf(option, sizeof option, "\"--%s\"", key->name);
      snprintf(word, sizeof word, "\"%s\"", key->name);
      if ((key->users & SOURCES[i].user) && !strstr(text, option) && !strstr(text, word))
        fail_msg("%s: nothing takes the key %s", SOURCES[i].path, key->name);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(command_line_before_file_before_default, reset),
      cmocka_unit_test_setup(lists_are_given_one_by_one_or_not_at_all, reset),
      cmocka_unit_test_setup(words_of_the_command_line_or_of_the_file, reset),
      cmocka_unit_test_setup(keys_of_others_are_left_alone, reset),
      cmocka_unit_test_setup(wrong_keys_and_values_are_named, reset),
      cmocka_unit_test_setup(a_dump_reads_back_to_itself, reset),
      cmocka_unit_test_setup(the_digest_is_of_values_and_of_no_secret, reset),
      cmocka_unit_test_setup(what_a_file_could_not_say_is_not_dumped, reset),
      cmocka_unit_test_setup(a_plan_is_made_once_and_never_replaced, reset),
      cmocka_unit_test_setup(memory_is_measured, reset),
      cmocka_unit_test_setup(another_free_memory_keeps_the_plan, reset),
      cmocka_unit_test_setup(every_key_of_the_planner_is_a_key_and_an_option, reset),
      cmocka_unit_test_setup(keys_are_words_and_stand_once, reset),
      cmocka_unit_test_setup(every_option_with_a_value_has_a_key, reset),
      cmocka_unit_test_setup(every_key_is_taken, reset),
  };
  return cmocka_run_group_tests(tests, open_folder, close_folder);
}
