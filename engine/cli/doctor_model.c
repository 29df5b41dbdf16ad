/* cli/doctor_model.c - see cli/doctor_model.h. The checks read what the engine would read, except the weights themselves: a file's header
 * and size show whether it is complete. */
#include "cli/doctor_model.h"
#include "cli/doctor_ranks.h"
#include "chat/chat.h"
#include "common/files.h"
#include "common/generation.h"
#include "common/stop_ids.h"
#include "base/digest.h"
#include "base/sha256.h"
#include "plan/plan.h"
#include "serve/reading.h"
#include "weights/safetensors.h"
#include "base/special_file.h"
#include "text/tokenizer.h"
#include "planner/checks/check.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096
#define GIB (1024.0 * 1024.0 * 1024.0)

static status path_of(const char *folder, const char *name, char path[PATH_BYTES_MAX]) {
  int length = snprintf(path, PATH_BYTES_MAX, "%s/%s", folder, name);
  return length > 0 && length < PATH_BYTES_MAX ? OK : FAIL(ERR_USAGE, "%s: the path is too long", folder);
}

static status read_whole(const char *folder, const char *name, char **text, size_t *bytes) {
  char path[PATH_BYTES_MAX];
  TRY(path_of(folder, name, path));
  TRY(input_file_check(path, INPUT_CONFIG));
  return cli_files_read_config(path, INPUT_CONFIG, text, bytes);
}

static bool is_there(const char *folder, const char *name) {
  char path[PATH_BYTES_MAX];
  bool found = path_of(folder, name, path) == OK && special_file_is_there(path);
  fail_clear();
  return found;
}

/* === The model ============================================================================================================== */

static void check_weights(cli_doctor_report *report, const char *model_dir) {
  safetensors *set = NULL;
  uint64_t bytes = 0;
  status result = safetensors_open(&set, model_dir);
  if (result != OK) {
    cli_doctor_report_fail(report, "weights", CLI_DOCTOR_PROBLEM, result);
    return;
  }
  for (uint32_t i = 0; i < safetensors_count(set); i++) bytes += safetensors_at(set, i)->bytes;
  cli_doctor_report_add(report, "weights", CLI_DOCTOR_OK, NULL, "%u tensors, %.2f GiB, no file missing or truncated",
                        safetensors_count(set), (double)bytes / GIB);
  safetensors_close(set);
}

static void check_tokenizer(cli_doctor_report *report, const char *model_dir) {
  tokenizer *t = NULL;
  if (!is_there(model_dir, "tokenizer.json") && !is_there(model_dir, "tiktoken.model")) {
    cli_doctor_report_add(report, "tokenizer", CLI_DOCTOR_WARNING, "without tokenizer.json or tiktoken.model prompts must be token ids",
                          "%s has none", model_dir);
    return;
  }
  status result = tokenizer_open(&t, model_dir);
  if (result != OK) cli_doctor_report_fail(report, "tokenizer", CLI_DOCTOR_PROBLEM, result);
  else cli_doctor_report_add(report, "tokenizer", CLI_DOCTOR_OK, tokenizer_remark(t), "%u tokens", tokenizer_vocab_size(t));
  tokenizer_close(t);
}

static void check_stop_ids(cli_doctor_report *report, const char *model_dir) {
  char note[CLI_STOP_IDS_BYTES];
  status result = cli_stop_ids_note(model_dir, note);
  if (result != OK) cli_doctor_report_fail(report, "stop ids", CLI_DOCTOR_PROBLEM, result);
  else if (*note) cli_doctor_report_add(report, "stop ids", CLI_DOCTOR_WARNING, NULL, "%s", note);
}

/* What the server would look for in answers. */
static void check_answers(cli_doctor_report *report, const chat *templates) {
  serve_reading reading;
  char text[SERVE_READING_TEXT_BYTES];
  if (serve_reading_choose(&reading, templates, "auto", "auto") != OK) return;
  cli_doctor_report_add(report, "answers", CLI_DOCTOR_OK, reading.marks ? "serve --reasoning-parser auto returns thoughts apart" : NULL,
                        "%s", serve_reading_text(&reading, text));
}

static void check_generation(cli_doctor_report *report, const char *model_dir) {
  char note[CLI_GENERATION_NOTE_BYTES];
  json_t *values = NULL;
  status result = cli_generation_read(model_dir, &values);
  cli_generation_note(values, false, note);
  json_decref(values);
  if (result != OK) cli_doctor_report_fail(report, "sampling", CLI_DOCTOR_PROBLEM, result);
  else if (*note) cli_doctor_report_add(report, "sampling", CLI_DOCTOR_UNUSED, NULL, "%s", note);
}

static void check_chat(cli_doctor_report *report, const char *model_dir) {
  chat *templates = NULL;
  status result = chat_open(&templates, model_dir, NULL);
  if (result != OK) cli_doctor_report_fail(report, "chat", CLI_DOCTOR_WARNING, result);
  else if (chat_name(templates)) cli_doctor_report_add(report, "chat", CLI_DOCTOR_OK, NULL, "template %s", chat_name(templates));
  else cli_doctor_report_add(report, "chat", chat_digest(templates) ? CLI_DOCTOR_WARNING : CLI_DOCTOR_UNUSED, NULL, "none: %s",
                             chat_refusal(templates));
  if (result == OK && chat_name(templates)) check_answers(report, templates);
  chat_close(templates);
}

void cli_doctor_model_check(cli_doctor_report *report, const char *model_dir) {
  char *text = NULL;
  size_t bytes = 0;
  status result = input_file_check_model(model_dir);
  if (result == OK && is_there(model_dir, "config.json")) result = read_whole(model_dir, "config.json", &text, &bytes);
  if (result != OK) {
    cli_doctor_report_fail(report, "model", CLI_DOCTOR_PROBLEM, result);
    return;
  }
  if (text) cli_doctor_report_add(report, "model", CLI_DOCTOR_OK, NULL, "%s", model_dir);
  else cli_doctor_report_add(report, "model", CLI_DOCTOR_WARNING, "an existing plan can be run, but none can be made",
                             "%s has no config.json", model_dir);
  free(text);
  check_weights(report, model_dir);
  check_tokenizer(report, model_dir);
  check_stop_ids(report, model_dir);
  check_generation(report, model_dir);
  check_chat(report, model_dir);
}

/* === The plan =============================================================================================================== */

static void check_config(cli_doctor_report *report, const plan_header *header, const char *model_dir) {
  char *text = NULL, found[DIGEST_TEXT_BYTES], expected[DIGEST_TEXT_BYTES];
  size_t bytes = 0;
  if (read_whole(model_dir, "config.json", &text, &bytes) != OK) { /* the model's line reports it */
    fail_clear();
    return;
  }
  digest id = digest_of(text, bytes);
  free(text);
  if (memcmp(id.bytes, header->config_digest, sizeof id.bytes) == 0) return;
  digest_text(id.bytes, found);
  digest_text(header->config_digest, expected);
  status result = FAIL(ERR_MISMATCH, "made from another config.json: expected digest %s, found %s; hint: make the plan again from "
                                     "%s", expected, found, model_dir);
  cli_doctor_report_fail(report, "plan's model", CLI_DOCTOR_PROBLEM, result);
}

static void check_memory(cli_doctor_report *report, const cli_doctor_machine *machine, const plan_header *header) {
  const uint32_t ranks = header->limits.ranks;
  const char *where = !machine->has_gpu ? "the CPU" : ranks > 1 ? "each GPU" : "the GPU";
  const uint64_t room = machine->has_gpu ? machine->gpu_free_bytes : machine->memory_bytes;
  const uint64_t bytes = machine->has_gpu ? header->device_bytes : header->device_bytes * ranks; /* the CPU holds all ranks */
  if (bytes <= room) {
    cli_doctor_report_add(report, "plan's memory", CLI_DOCTOR_OK, NULL, "%.2f GiB of %.1f GiB free of %s", (double)bytes / GIB,
                          (double)room / GIB, where);
    return;
  }
  bool is_large = machine->has_gpu && bytes > machine->gpu_bytes;
  status result = FAIL(ERR_LIMIT, "%.2f GiB, more than the %.1f GiB that are free of %s; hint: %splan with a smaller kv-pages, "
                                  "max-num-seqs "
                       "or max-num-batched-tokens", (double)bytes / GIB, (double)room / GIB, where,
                       is_large ? "" : "end other programs, or ");
  cli_doctor_report_fail(report, "plan's memory", CLI_DOCTOR_PROBLEM, result);
}

/* Algorithms that the plan requires although their library is missing. */
static void check_pins(cli_doctor_report *report, const cli_doctor_machine *machine, const plan *view) {
  const cli_doctor_line *library = cli_doctor_report_find(report, "cublaslt");
  uint32_t demanded = 0;
  for (uint32_t i = 0; i < view->gemm_count; i++) demanded += !view->gemms[i].is_optional;
  if (demanded == 0 || !machine->has_gpu || !library || library->result == CLI_DOCTOR_OK) return;
  status result = FAIL(ERR_DEVICE, "requires %u algorithms of cuBLASLt, which is not found; hint: make the plan without --profile",
                       demanded);
  cli_doctor_report_fail(report, "plan's pins", CLI_DOCTOR_PROBLEM, result);
}

void cli_doctor_model_check_plan(cli_doctor_report *report, const cli_doctor_machine *machine, const char *plan_path,
                                 const char *model_dir) {
  plan view = {0};
  char id[DIGEST_TEXT_BYTES], numerics[DIGEST_TEXT_BYTES], strong[SHA256_TEXT_BYTES];
  status result = plan_open(&view, plan_path);
  if (result == OK) result = check_plan(view.header, view.header->file_bytes);
  if (result != OK) {
    cli_doctor_report_fail(report, "plan", CLI_DOCTOR_PROBLEM, result);
    plan_close(&view);
    return;
  }
  const plan_limits *l = &view.header->limits;
  const sha256 whole = sha256_of(view.memory, (size_t)view.header->file_bytes);
  static const char *const formats[] = {[KV_BF16] = "bf16", [KV_FP8_DS_MLA] = "fp8_ds_mla", [KV_FP8] = "fp8"};
  cli_doctor_report_add(report, "plan", CLI_DOCTOR_OK, NULL,
                        "%s: digest %s, SHA-256 %s, numerics id %s, max-num-seqs %u, max-model-len %u, kv-cache-dtype %s", plan_path,
                        digest_text(view.header->digest, id), sha256_text(whole.bytes, strong),
                        digest_text(view.header->numerics_id, numerics), l->max_seqs, l->max_len, formats[view.header->quant.kv_format]);
  cli_doctor_machine here = *machine;
  if (model_dir) check_config(report, view.header, model_dir);
  if (l->ranks > 1) cli_doctor_ranks_check_plan(report, &here, l);
  check_memory(report, &here, view.header);
  check_pins(report, &here, &view);
  plan_close(&view);
}
