/* cli/doctor.c - `verbatim doctor`: what this machine has and lacks for a model, a plan or a deployment, and how to fix it.
 *
 * Owns the subcommand's arguments and the order of the checks. Opens no engine and writes nothing. Read next: cli/doctor_machine.h,
 * cli/doctor_model.h, cli/doctor_report.h. */
#include "cli/cli.h"
#include "common/config.h"
#include "cli/doctor_model.h"
#include "cli/doctor_ranks.h"
#include "common/engine.h"
#include "common/files.h"
#include "common/options.h"
#include "common/output.h"
#include "common/signature.h"
#include "plan/format.h"
#include "verbatim.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define CONNECTIONS_DEFAULT "1024" /* the default of `verbatim serve` */

static const char HELP[] =
  "usage: verbatim doctor [PLAN] [MODEL_DIR] [options]\n\n"
  "Checks the machine and, if given, the plan, the model folder and the deployment. Each check prints a\n"
  "line: ok, unused (absent, and not needed here), a warning (it works, but not as well) or a problem;\n"
  "what was found, and what to do. With a plan of several GPUs it copies between every two of them, and\n"
  "checks what arrives. Nothing is changed. The exit code is 0 when there is no problem, else that of\n"
  "the first problem.\n\n"
  "Examples:\n"
  "  verbatim doctor\n"
  "  verbatim doctor MODEL_DIR\n"
  "  verbatim doctor my.plan MODEL_DIR --device gpu\n"
  "  verbatim doctor --config deploy.yaml --json\n\n"
  CLI_CONFIG_HELP
  "  --device D          auto, cpu, gpu or gpu:N (auto): the device to check\n"
  "  --cache-dir DIR     folder of compiled kernels (default: the user's cache folder); \"\" for none\n"
  "  --json              one JSON object instead\n";

typedef struct doctor_run {
  cli_config config;
  const char *plan_path, *model_dir, *cache_dir;
  const char **words; /* from argv */
  char model_path[CLI_HUB_PATH_BYTES_MAX]; /* model_dir, if it was a name on the Hub */
  bool json;
  cli_doctor_machine machine;
  cli_doctor_report report;
} doctor_run;

static status parse_arguments(doctor_run *self, int argc, char **argv) {
  uint32_t count = 0;
  cli_option table[16] = {{"--device", cli_engine_device, &self->machine.device}, {"--cache-dir", cli_options_text, &self->cache_dir},
                          {"--json", NULL, &self->json}};
  cli_config_options(&self->config, CLI_CONFIG_DOCTOR, table, ARRAY_LEN(table));
  TRY(cli_options_parse(table, argc, argv, self->words, &count));
  uint32_t first = 0;
  TRY(cli_files_engine(self->words, &self->plan_path, &self->model_dir, &first));
  if (count > first) return FAIL(ERR_USAGE, "doctor: expected [PLAN] [MODEL_DIR], found also \"%s\"; hint: verbatim doctor --help",
                                 self->words[first]);
  status result = cli_config_apply(&self->config, table, argc, argv);
  if (result != OK && self->config.dump) return result;
  if (result != OK) cli_doctor_report_fail(&self->report, "configuration", CLI_DOCTOR_PROBLEM, result);
  cli_config_place(&self->config, "plan", &self->plan_path);
  cli_config_place(&self->config, "model", &self->model_dir);
  result = self->config.dump ? OK : cli_hub_resolve(&self->model_dir, self->model_path);
  if (result != OK) {
    cli_doctor_report_fail(&self->report, "model", CLI_DOCTOR_PROBLEM, result);
    self->model_dir = NULL;
  }
  return OK;
}

/* Checks that the configured plan exists and matches the configuration, or that it can be generated. */
static void check_deployment(doctor_run *self) {
  bool is_there = false;
  char text[DIGEST_TEXT_BYTES];
  if (cli_doctor_report_find(&self->report, "configuration")) return;
  digest id = cli_config_digest(&self->config);
  if (!self->model_dir) {
    cli_doctor_report_add(&self->report, "configuration", CLI_DOCTOR_WARNING, "the key model names it", "%s names no model",
                          self->config.path);
    return;
  }
  if (!self->plan_path) {
    cli_doctor_report_add(&self->report, "configuration", CLI_DOCTOR_OK, NULL, "%s: digest %s; names no plan: one is made in the cache "
                          "folder", self->config.path, digest_text(id.bytes, text));
    return;
  }
  status result = cli_config_find_plan(&self->config, self->plan_path, self->model_dir, &is_there);
  if (result != OK) cli_doctor_report_fail(&self->report, "configuration", CLI_DOCTOR_PROBLEM, result);
  else cli_doctor_report_add(&self->report, "configuration", CLI_DOCTOR_OK, NULL, "%s: digest %s; its plan %s", self->config.path,
                             digest_text(id.bytes, text), is_there ? "is there" : "will be made");
  if (!is_there) self->plan_path = NULL;
}

static void check_server(doctor_run *self) {
  const char *host = cli_config_value(&self->config, "host"), *port = cli_config_value(&self->config, "port");
  const char *connections = cli_config_value(&self->config, "max-connections");
  struct rlimit files = {0};
  uint64_t count = 0;
  if (!host && !port && !connections) return;
  if (cli_options_integer("max-connections", connections ? connections : CONNECTIONS_DEFAULT, UINT32_MAX, &count) != OK) {
    cli_doctor_report_fail(&self->report, "open files", CLI_DOCTOR_PROBLEM, ERR_USAGE);
  } else if (getrlimit(RLIMIT_NOFILE, &files) == 0) cli_doctor_machine_check_files(&self->report, count, (uint64_t)files.rlim_max);
  cli_doctor_machine_check_port(&self->report, host ? host : "127.0.0.1", port ? port : "8000");
}

static void check_all(doctor_run *self) {
  char room[CLI_ENGINE_PATH_BYTES_MAX];
  const dynlib_search search = {.folders = getenv("VERBATIM_LIBRARY_PATH"), .program_path = getenv("PATH")};
  cli_doctor_report *report = &self->report;
  self->machine.search = &search;
  cli_doctor_report_add(report, "verbatim", CLI_DOCTOR_OK, NULL, "%s, %s, plan format %u", VERBATIM_VERSION, NUMERICS_VERSION,
                        PLAN_FORMAT_VERSION);
  cli_doctor_machine_check_cpu(report, &self->machine);
  cli_doctor_machine_check_gpu(report, &self->machine);
  cli_doctor_ranks_check_links(report, &self->machine);
  cli_doctor_machine_check_libraries(report, &self->machine);
  cli_doctor_machine_check_cache(report, &self->machine, cli_files_cache(self->cache_dir, room, sizeof room));
  if (cli_signature_has("ssh-keygen")) cli_doctor_report_add(report, "signatures", CLI_DOCTOR_OK, NULL, "ssh-keygen checks them");
  else cli_doctor_report_add(report, "signatures", CLI_DOCTOR_UNUSED, "verify --allowed-signers needs OpenSSH's client", "no ssh-keygen");
  if (self->config.path) check_deployment(self);
  check_server(self);
  if (self->model_dir) cli_doctor_model_check(report, self->model_dir);
  if (self->plan_path) cli_doctor_model_check_plan(report, &self->machine, self->plan_path, self->model_dir);
  self->machine.search = NULL;
}

static status print(const doctor_run *self) {
  if (self->json) TRY(cli_output_json(cli_doctor_report_json(&self->report), JSON_INDENT(2)));
  else cli_doctor_report_print(&self->report, stdout);
  return cli_output_flush();
}

static status examine(doctor_run *self, int argc, char **argv) {
  TRY(parse_arguments(self, argc, argv));
  if (self->config.dump) return cli_config_dump(&self->config, stdout);
  check_all(self);
  return print(self);
}

int cli_doctor(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    return 0;
  }
  doctor_run *self = calloc(1, sizeof *self); /* on the heap because the report is too large for a stack */
  ASSERT(self != NULL);
  self->machine.device = VERBATIM_DEVICE_AUTO;
  self->words = calloc((size_t)argc + 1, sizeof *self->words);
  status result = self->words ? examine(self, argc, argv) : FAIL(ERR_LIMIT, "no memory");
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  else result = cli_doctor_report_code(&self->report);
  cli_config_close(&self->config);
  free(self->words);
  free(self);
  return fail_exit_code(result);
}
