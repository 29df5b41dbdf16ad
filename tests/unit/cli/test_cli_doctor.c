/* test_cli_doctor.c - each check of `verbatim doctor` with a fault planted for it and, as the control, without one. The test stands in for
 * gpu.c, jit.c and gemm_lt.c, and so decides which GPUs and libraries there are. */
#define _DEFAULT_SOURCE /* mkdtemp */
#include "tests/unit/unit.h"
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "engine/cli/doctor_model.h"
#include "engine/cli/doctor_ranks.h"
#include "engine/gpu/gpu.h"
#include "engine/gpu/jit.h"
#include "engine/gpu/links.h"
#include "engine/gpu/nccl.h"
#include "engine/verbatim.h"
#include "tests/unit/planner/planner_fixture.h"

/* === The simulated system =================================================================================================== */

static struct {
  status survey, open, nvrtc, cublaslt;
  uint32_t count, capability;
  const char *name;
  uint64_t free_bytes, bytes;
  const char *second;         /* name of GPU 1, or null: that of all */
  status nccl, links;
  uint32_t reach;             /* bit 3 * from + to: one GPU reaches another */
  uint32_t measured[2];       /* first GPU and count of the last measurement */
} world;

status __wrap_gpu_survey(uint32_t index, const dynlib_search *search, uint32_t *count, gpu_info *info);
status __wrap_gpu_open(uint32_t index, const dynlib_search *search, gpu **out);
void __wrap_gpu_close(gpu *self);
status __wrap_gpu_memory(gpu *self, uint64_t *free_bytes, uint64_t *total_bytes);
status __wrap_jit_open(const dynlib_search *search, const char *cache_dir, const kernel_source *sources, size_t source_count, jit **out);
void __wrap_jit_close(jit *self);
void __wrap_jit_version(const jit *self, int *major, int *minor);
const char *__wrap_jit_path(const jit *self);
status __wrap_gemm_lt_find(const dynlib_search *search, char path[DYNLIB_PATH_MAX], uint64_t *version);

status __wrap_gpu_survey(uint32_t index, const dynlib_search *search, uint32_t *count, gpu_info *info) {
  (void)search;
  if (world.survey != OK) return FAIL(world.survey, "no NVIDIA driver; hint: install one");
  *count = world.count;
  *info = (gpu_info){.index = index, .capability = world.capability, .driver_version = 13000, .sm_count = 132};
  if (index < world.count) snprintf(info->name, sizeof info->name, "%s", index == 1 && world.second ? world.second : world.name);
  return OK;
}

status __wrap_gpu_open(uint32_t index, const dynlib_search *search, gpu **out) {
  (void)index, (void)search, (void)out;
  return world.open == OK ? OK : FAIL(world.open, "GPU 0 is in exclusive use; hint: wait");
}

void __wrap_gpu_close(gpu *self) { (void)self; }

status __wrap_gpu_memory(gpu *self, uint64_t *free_bytes, uint64_t *total_bytes) {
  (void)self;
  *free_bytes = world.free_bytes;
  *total_bytes = world.bytes;
  return OK;
}

status __wrap_jit_open(const dynlib_search *search, const char *cache_dir, const kernel_source *sources, size_t source_count, jit **out) {
  (void)search, (void)cache_dir, (void)sources, (void)source_count, (void)out;
  return world.nvrtc == OK ? OK : FAIL(world.nvrtc, "no NVRTC: libnvrtc.so.13 not found; hint: install CUDA 13");
}

void __wrap_jit_close(jit *self) { (void)self; }
void __wrap_jit_version(const jit *self, int *major, int *minor) { (void)self, *major = 13, *minor = 0; }
const char *__wrap_jit_path(const jit *self) { return (void)self, "/lib/libnvrtc.so.13"; }

status __wrap_gemm_lt_find(const dynlib_search *search, char path[DYNLIB_PATH_MAX], uint64_t *version) {
  (void)search;
  if (world.cublaslt != OK) return FAIL(world.cublaslt, "no cuBLASLt: libcublasLt.so.13 not found; hint: install CUDA 13");
  strcpy(path, "/lib/libcublasLt.so.13");
  *version = 130100;
  return OK;
}

status __wrap_nccl_find(const dynlib_search *search, char path[DYNLIB_PATH_MAX], uint32_t *version);
status __wrap_nccl_find(const dynlib_search *search, char path[DYNLIB_PATH_MAX], uint32_t *version) {
  (void)search;
  if (world.nccl != OK) return FAIL(world.nccl, "no NCCL");
  strcpy(path, "/lib/libnccl.so.2");
  *version = 22809;
  return OK;
}

status __wrap_gpu_survey_link(uint32_t from, uint32_t to, const dynlib_search *search, gpu_link *link);
status __wrap_gpu_survey_link(uint32_t from, uint32_t to, const dynlib_search *search, gpu_link *link) {
  (void)search;
  *link = (gpu_link){.can_access = world.reach >> (3 * from + to) & 1, .has_atomics = to != 2, .rank = to == 2};
  return OK;
}

status __wrap_links_measure(uint32_t first, uint32_t count, const dynlib_search *search, links_report *out);
status __wrap_links_measure(uint32_t first, uint32_t count, const dynlib_search *search, links_report *out) {
  (void)search;
  world.measured[0] = first;
  world.measured[1] = count;
  if (world.links != OK) return FAIL(world.links, "a copy from GPU 0 to GPU 1: byte 7: expected 01, found 00; hint: broken");
  *out = (links_report){.free_bytes = world.free_bytes - 5, .total_bytes = world.bytes};
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t j = 0; j < count; j++) out->speed[i][j] = (links_speed){.gb_per_s = 300 + 10 * i + j, .latency_us = 1.5 + i};
  return OK;
}

static cli_doctor_report report;
static cli_doctor_machine machine;
static char folder[256];

static int reset(void **state) {
  (void)state;
  memset(&report, 0, sizeof report);
  memset(&world, 0, sizeof world);
  world.count = 1;
  world.capability = 90;
  world.name = "NVIDIA H200";
  world.free_bytes = UINT64_C(139) << 30;
  world.bytes = UINT64_C(140) << 30;
  machine = (cli_doctor_machine){.device = VERBATIM_DEVICE_AUTO};
  fail_clear();
  return 0;
}

/* A shell command in the scratch folder. */
static void shell(const char *format, const char *word) {
  char command[1024], text[512];
  snprintf(text, sizeof text, format, word);
  snprintf(command, sizeof command, "cd %s && { %s; }", folder, text);
  if (system(command) != 0) fail_msg("%s", command);
}

static const char *at(const char *name) {
  static char paths[4][512];
  static uint32_t next;
  char *path = paths[next++ % ARRAY_LEN(paths)];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static void expect(const char *check, cli_doctor_result result, const char *found) {
  const cli_doctor_line *line = cli_doctor_report_find(&report, check);
  if (!line) fail_msg("no line \"%s\"", check);
  else if (line->result != result || !strstr(line->found, found))
    fail_msg("%s: expected %d and \"%s\", found %d and \"%s\"", check, result, found, line->result, line->found);
}

static int make_files(void **state) {
  (void)state;
  char command[1024];
  strcpy(folder, "/tmp/verbatim-doctor-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  snprintf(command, sizeof command, "cp -r tests/tiny %s/sound", folder);
  if (system(command) != 0) return -1;
  fixture_bytes plan = fixture_plan("tests/tiny/config.json", "{max-num-seqs: 2, max-model-len: 128, kv-pages: 4}", NULL);
  FILE *file = fopen(at("plan"), "wb");
  size_t written = file ? fwrite(plan.bytes, 1, plan.count, file) : 0;
  free(plan.bytes);
  return file && fclose(file) == 0 && written == plan.count ? 0 : -1;
}

static int remove_files(void **state) {
  (void)state;
  char command[512];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

/* === The report ============================================================================================================= */

static void the_first_problem_decides_the_exit_code(void **state) {
  (void)state;
  assert_int_equal(cli_doctor_report_code(&report), OK);
  cli_doctor_report_add(&report, "a", CLI_DOCTOR_WARNING, NULL, "%d", 1);
  assert_int_equal(cli_doctor_report_code(&report), OK);
  cli_doctor_report_fail(&report, "b", CLI_DOCTOR_PROBLEM, FAIL(ERR_LIMIT, "too large; hint: smaller"));
  cli_doctor_report_add(&report, "c", CLI_DOCTOR_PROBLEM, "do", "other");
  assert_int_equal(cli_doctor_report_code(&report), ERR_LIMIT);
  assert_int_equal(cli_doctor_report_count(&report, CLI_DOCTOR_PROBLEM), 2);
  assert_string_equal(report.lines[1].found, "too large");
  assert_string_equal(report.lines[1].hint, "smaller");
  assert_string_equal(fail_text(), "");
  assert_string_equal(report.lines[2].hint, "do");
}

static void as_json_and_as_text(void **state) {
  (void)state;
  char *text = NULL;
  size_t bytes = 0;
  cli_doctor_report_add(&report, "a", CLI_DOCTOR_OK, NULL, "line\nof \xff");
  cli_doctor_report_add(&report, "b", CLI_DOCTOR_PROBLEM, "do", "x");
  json_t *object = cli_doctor_report_json(&report);
  assert_true(json_is_false(json_object_get(object, "ok")));
  const json_t *line = json_array_get(json_object_get(object, "checks"), 1);
  assert_string_equal(json_string_value(json_object_get(line, "result")), "problem");
  assert_string_equal(json_string_value(json_object_get(line, "hint")), "do");
  json_decref(object);
  FILE *to = open_memstream(&text, &bytes);
  assert_non_null(to);
  cli_doctor_report_print(&report, to);
  fclose(to);
  assert_non_null(strstr(text, "hint: do\n"));
  assert_non_null(strstr(text, "line?of"));
  assert_non_null(strstr(text, "1 problem, 0 warnings\n"));
  free(text);
}

/* === The system ============================================================================================================= */

static void a_whole_machine_is_ok(void **state) {
  (void)state;
  cli_doctor_machine_check_cpu(&report, &machine);
  cli_doctor_machine_check_gpu(&report, &machine);
  cli_doctor_machine_check_libraries(&report, &machine);
  expect("memory", CLI_DOCTOR_OK, "GiB");
  expect("gpu", CLI_DOCTOR_OK, "NVIDIA H200, compute capability 9.0, 132 SMs, 140.0 GiB, 139.0 GiB free");
  expect("driver", CLI_DOCTOR_OK, "CUDA 13.0");
  expect("nvrtc", CLI_DOCTOR_OK, "13.0, /lib/libnvrtc.so.13");
  expect("cublaslt", CLI_DOCTOR_OK, "130100");
  expect("nccl", CLI_DOCTOR_OK, "2.28.9, /lib/libnccl.so.2");
  expect("profile", CLI_DOCTOR_OK, "NVIDIA H200");
  assert_true(machine.has_gpu && machine.memory_bytes > 0);
}

static void without_a_gpu_the_cpu_is_used(void **state) {
  (void)state;
  world.survey = world.nvrtc = world.cublaslt = world.nccl = ERR_DEVICE;
  cli_doctor_machine_check_gpu(&report, &machine);
  cli_doctor_ranks_check_links(&report, &machine);
  cli_doctor_machine_check_libraries(&report, &machine);
  cli_doctor_machine_check_cache(&report, &machine, NULL);
  expect("gpu", CLI_DOCTOR_UNUSED, "no NVIDIA driver: the CPU will be used");
  expect("nvrtc", CLI_DOCTOR_UNUSED, "not needed");
  expect("cublaslt", CLI_DOCTOR_UNUSED, "not needed");
  expect("nccl", CLI_DOCTOR_UNUSED, "not needed");
  expect("cache", CLI_DOCTOR_UNUSED, "none");
  assert_null(cli_doctor_report_find(&report, "profile"));
  assert_int_equal(cli_doctor_report_count(&report, CLI_DOCTOR_UNUSED), report.count); /* "ok" is of what is there */
  assert_int_equal(cli_doctor_report_code(&report), OK);
}

static void a_gpu_that_was_asked_for_must_be_there(void **state) {
  (void)state;
  static const struct {
    status survey, open;
    uint32_t count, capability;
    const char *found;
    cli_doctor_result result; /* with --device auto */
  } CASES[] = {{ERR_DEVICE, OK, 0, 90, "no NVIDIA driver", CLI_DOCTOR_UNUSED},
               {OK, OK, 0, 90, "GPU 0 is not there", CLI_DOCTOR_UNUSED},
               {OK, OK, 1, 80, "compute capability 8.0, expected 9.0", CLI_DOCTOR_UNUSED},
               {OK, ERR_DEVICE, 1, 90, "exclusive", CLI_DOCTOR_PROBLEM}};
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
    for (int device = VERBATIM_DEVICE_AUTO; device <= 0; device++) {
      reset(NULL);
      machine.device = device;
      world.survey = CASES[i].survey;
      world.open = CASES[i].open;
      world.count = CASES[i].count;
      world.capability = CASES[i].capability;
      cli_doctor_machine_check_gpu(&report, &machine);
      expect("gpu", device == 0 ? CLI_DOCTOR_PROBLEM : CASES[i].result, CASES[i].found);
      assert_false(machine.has_gpu);
    }
  reset(NULL);
  machine.device = VERBATIM_DEVICE_CPU;
  world.survey = ERR_DEVICE;
  cli_doctor_machine_check_gpu(&report, &machine);
  expect("gpu", CLI_DOCTOR_UNUSED, "not asked for");
}

static void what_a_gpu_lacks_is_said(void **state) {
  (void)state;
  world.name = "NVIDIA H100 MIG 1g.10gb";
  world.free_bytes = UINT64_C(10) << 30;
  world.nvrtc = world.cublaslt = ERR_DEVICE;
  cli_doctor_machine_check_gpu(&report, &machine);
  cli_doctor_machine_check_libraries(&report, &machine);
  expect("gpu", CLI_DOCTOR_WARNING, "a part of a GPU");
  expect("nvrtc", CLI_DOCTOR_PROBLEM, "libnvrtc.so.13 not found");
  expect("cublaslt", CLI_DOCTOR_WARNING, "not found");
  expect("profile", CLI_DOCTOR_WARNING, "NVIDIA H100");
  assert_int_equal(cli_doctor_report_code(&report), ERR_DEVICE);
}

static void caches_that_cannot_be_written(void **state) {
  (void)state;
  shell("%s", "mkdir -p cache && printf 12345 > cache/a-1.vjit && printf 1 > cache/other");
  machine.has_gpu = true;
  cli_doctor_machine_check_cache(&report, &machine, at("cache"));
  expect("cache", CLI_DOCTOR_OK, "cache: 1 kernels, 0.0 MiB");
  reset(NULL);
  machine.has_gpu = true;
  cli_doctor_machine_check_cache(&report, &machine, at("new/folder"));
  expect("cache", CLI_DOCTOR_OK, "0 kernels");
  assert_int_equal(access(at("new"), F_OK), -1); /* it does not exist */
  static const char *const bad[] = {"plan", "plan/below"};
  for (size_t i = 0; i < ARRAY_LEN(bad); i++)
    for (int has = 0; has < 2; has++) {
      reset(NULL);
      machine.has_gpu = has;
      cli_doctor_machine_check_cache(&report, &machine, at(bad[i]));
      expect("cache", has ? CLI_DOCTOR_WARNING : CLI_DOCTOR_UNUSED, "cannot be created or written");
    }
}

static void files_and_ports(void **state) {
  (void)state;
  cli_doctor_machine_check_files(&report, 1024, 1024);
  expect("open files", CLI_DOCTOR_WARNING, "at most 1024");
  reset(NULL);
  cli_doctor_machine_check_files(&report, 1024, 1088);
  expect("open files", CLI_DOCTOR_OK, "");
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t bytes = sizeof address;
  char port[16];
  int taken = socket(AF_INET, SOCK_STREAM, 0);
  assert_true(taken >= 0 && bind(taken, (struct sockaddr *)&address, bytes) == 0 && listen(taken, 1) == 0);
  assert_int_equal(getsockname(taken, (struct sockaddr *)&address, &bytes), 0);
  snprintf(port, sizeof port, "%u", ntohs(address.sin_port));
  cli_doctor_machine_check_port(&report, "127.0.0.1", port);
  expect("port", CLI_DOCTOR_PROBLEM, "in use");
  close(taken);
  reset(NULL);
  cli_doctor_machine_check_port(&report, "127.0.0.1", port);
  expect("port", CLI_DOCTOR_OK, "is free");
  reset(NULL);
  cli_doctor_machine_check_port(&report, "127.0.0.1", "http");
  expect("port", CLI_DOCTOR_PROBLEM, "127.0.0.1:http");
}

/* === Models and plans ======================================================================================================= */

static void a_sound_model_and_its_plan_are_ok(void **state) {
  (void)state;
  machine.memory_bytes = UINT64_C(1) << 40;
  cli_doctor_model_check(&report, at("sound"));
  cli_doctor_model_check_plan(&report, &machine, at("plan"), at("sound"));
  expect("weights", CLI_DOCTOR_OK, "129 tensors");
  expect("tokenizer", CLI_DOCTOR_OK, "768 tokens");
  expect("plan", CLI_DOCTOR_OK, "max-num-seqs 2, max-model-len 128");
  expect("plan's memory", CLI_DOCTOR_OK, "of the CPU");
  assert_int_equal(cli_doctor_report_count(&report, CLI_DOCTOR_OK), report.count);
}

static void faults_of_a_model_are_found(void **state) {
  (void)state;
  static const struct {
    const char *fault, *check, *found;
    cli_doctor_result result;
  } CASES[] = {{"truncate -s -1 m/model.safetensors", "weights", "model.safetensors", CLI_DOCTOR_PROBLEM},
               {"truncate -s 100 m/model.safetensors", "weights", "", CLI_DOCTOR_PROBLEM},
               {"rm m/model.safetensors", "weights", "", CLI_DOCTOR_PROBLEM},
               {"mv m/model.safetensors m/a.safetensors && echo '{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}' > "
                "m/model.safetensors.index.json", "weights", "b.safetensors", CLI_DOCTOR_PROBLEM},
               {"rm m/tokenizer.json", "tokenizer", "has none", CLI_DOCTOR_WARNING},
               {"truncate -s 1000 m/tokenizer.json", "tokenizer", "", CLI_DOCTOR_PROBLEM},
               {"mv m/model.safetensors m/model-00001-of-00001.safetensors", "weights", "1 shards without it", CLI_DOCTOR_PROBLEM},
               {"echo '{\"eos_token_id\":[1,2]}' > m/generation_config.json", "stop ids",
                "eos_token_id [1,2], which is not used: an answer ends at config.json's, [1]", CLI_DOCTOR_WARNING},
               {"echo '{\"eos_token_id\":2}' > m/generation_config.json", "stop ids", "eos_token_id 2", CLI_DOCTOR_WARNING},
               {"echo '{\"eos_token_id\":[1]}' > m/generation_config.json", "model", "", CLI_DOCTOR_OK},
               {"echo { > m/generation_config.json", "stop ids", "generation_config.json: expected JSON", CLI_DOCTOR_PROBLEM},
               {"ln -s nowhere m/generation_config.json", "stop ids", "regular file", CLI_DOCTOR_PROBLEM},
               {"rm m/config.json", "model", "no config.json", CLI_DOCTOR_WARNING},
               {"rm m/config.json && mkfifo m/config.json", "model", "regular file", CLI_DOCTOR_PROBLEM},
               {"rm -r m", "model", "expected a model folder, found nothing", CLI_DOCTOR_PROBLEM},
               {"echo '{% include %}' > m/chat_template.jinja", "chat", "none: ", CLI_DOCTOR_WARNING}};
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    reset(NULL);
    shell("rm -rf m && cp -r sound m && %s", CASES[i].fault);
    cli_doctor_model_check(&report, at("m"));
    expect(CASES[i].check, CASES[i].result, CASES[i].found);
    assert_int_equal(cli_doctor_report_code(&report) != OK, CASES[i].result == CLI_DOCTOR_PROBLEM);
    assert_true(CASES[i].result != CLI_DOCTOR_OK || cli_doctor_report_find(&report, "stop ids") == NULL);
  }
}

static void faults_of_a_plan_are_found(void **state) {
  (void)state;
  machine.memory_bytes = UINT64_C(1) << 40;
  shell("%s", "cp plan p && printf x | dd of=p bs=1 seek=3000 conv=notrunc 2> /dev/null");
  cli_doctor_model_check_plan(&report, &machine, at("p"), at("sound"));
  expect("plan", CLI_DOCTOR_PROBLEM, "digest");
  assert_int_equal(cli_doctor_report_code(&report), ERR_FORMAT);
  reset(NULL);
  cli_doctor_model_check_plan(&report, &machine, at("absent"), NULL);
  expect("plan", CLI_DOCTOR_PROBLEM, "absent");
  reset(NULL);
  machine.memory_bytes = UINT64_C(1) << 40;
  shell("%s", "rm -rf m && cp -r sound m && echo >> m/config.json");
  cli_doctor_model_check_plan(&report, &machine, at("plan"), at("m"));
  expect("plan's model", CLI_DOCTOR_PROBLEM, "another config.json");
  assert_int_equal(cli_doctor_report_code(&report), ERR_MISMATCH);
  reset(NULL);
  machine.memory_bytes = 1u << 20;
  cli_doctor_model_check_plan(&report, &machine, at("plan"), at("sound"));
  expect("plan's memory", CLI_DOCTOR_PROBLEM, "free of the CPU");
  assert_int_equal(cli_doctor_report_code(&report), ERR_LIMIT);
  for (int large = 0; large < 2; large++) { /* other programs hold memory, or there is too little of it */
    reset(NULL);
    machine.has_gpu = true;
    machine.gpu_free_bytes = 1u << 20;
    machine.gpu_bytes = large ? 1u << 20 : UINT64_C(1) << 40;
    cli_doctor_model_check_plan(&report, &machine, at("plan"), NULL);
    expect("plan's memory", CLI_DOCTOR_PROBLEM, "free of the GPU");
    assert_int_equal(strstr(cli_doctor_report_find(&report, "plan's memory")->hint, "other programs") == NULL, large);
  }
}

/* === Several GPUs =========================================================================================================== */

#define REACH(from, to) (1u << (3 * (from) + (to)))
#define REACH_ALL (REACH(0, 1) | REACH(0, 2) | REACH(1, 0) | REACH(1, 2) | REACH(2, 0) | REACH(2, 1))

/* The nth line of a check that has several. */
static void expect_line(const char *check, uint32_t nth, cli_doctor_result result, const char *found) {
  for (uint32_t i = 0; i < report.count; i++) {
    const cli_doctor_line *line = &report.lines[i];
    if (strcmp(line->check, check) != 0 || nth-- > 0) continue;
    if (line->result != result || strcmp(line->found, found) != 0) fail_msg("%s: found %d and \"%s\"", check, line->result, line->found);
    return;
  }
  fail_msg("no such line of %s", check);
}

static void every_gpu_says_whom_it_reaches(void **state) {
  (void)state;
  static const struct { status survey; uint32_t count; const char *found; } FEW[] = {
    {ERR_DEVICE, 0, "no GPU: there are no links"}, {OK, 0, "no GPU: there are no links"}, {OK, 1, "one GPU: there are no links"}};
  for (size_t i = 0; i < ARRAY_LEN(FEW); i++) {
    reset(NULL);
    world.survey = FEW[i].survey;
    world.count = FEW[i].count;
    cli_doctor_machine_check_gpu(&report, &machine);
    cli_doctor_ranks_check_links(&report, &machine);
    expect("links", CLI_DOCTOR_UNUSED, FEW[i].found);
  }
  reset(NULL);
  world.count = 3;
  world.reach = REACH_ALL & ~REACH(1, 2) & ~REACH(2, 0) & ~REACH(2, 1);
  cli_doctor_machine_check_gpu(&report, &machine);
  cli_doctor_ranks_check_links(&report, &machine);
  expect_line("links", 0, CLI_DOCTOR_OK, "GPU 0 (NVIDIA H200) uses the memory of 1 (rank 0), 2 (PCIe, rank 1)");
  expect_line("links", 1, CLI_DOCTOR_WARNING, "GPU 1 (NVIDIA H200) uses the memory of 0 (rank 0) and does not reach 2");
  expect_line("links", 2, CLI_DOCTOR_WARNING, "GPU 2 (NVIDIA H200) does not reach 0, 1");
  reset(NULL);
  machine.device = VERBATIM_DEVICE_CPU;
  world.nccl = ERR_DEVICE;
  cli_doctor_ranks_check_links(&report, &machine);
  assert_int_equal(report.count, 0);
}

/* Writes a plan of two GPUs to the file. more: further keys of the deployment. Returns the memory of each GPU. */
static uint64_t write_plan_of_two(const char *name, const char *more) {
  char deploy[256];
  snprintf(deploy, sizeof deploy, "{max-num-seqs: 2, max-model-len: 128, kv-pages: 4, tensor-parallel-size: 2%s}", more);
  fixture_bytes plan = fixture_plan("tests/tiny/config.json", deploy, NULL);
  FILE *file = fopen(at(name), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(plan.bytes, 1, plan.count, file), plan.count);
  assert_int_equal(fclose(file), 0);
  const uint64_t bytes = ((const plan_header *)(const void *)plan.bytes)->device_bytes;
  free(plan.bytes);
  return bytes;
}

/* A plan of two GPUs, with --device auto, gpu or gpu:1. The control is the machine that has them. */
static void a_plan_needs_its_gpus(void **state) {
  (void)state;
  const uint64_t bytes = write_plan_of_two("two", "");
  const struct {
    uint32_t count;
    int device;
    const char *second;
    status links;
    const char *found;
    cli_doctor_result result, with_auto;
  } CASES[] = {
    {2, 0, NULL, OK, "GPUs 0 to 1 of 2", CLI_DOCTOR_OK, CLI_DOCTOR_OK},
    {3, 1, NULL, OK, "GPUs 1 to 2 of 3", CLI_DOCTOR_OK, CLI_DOCTOR_OK},
    {1, 0, NULL, OK, "the plan is for 2 GPUs, expected GPUs 0 to 1, found 1", CLI_DOCTOR_PROBLEM, CLI_DOCTOR_WARNING},
    {2, 1, NULL, OK, "the plan is for 2 GPUs, expected GPUs 1 to 2, found 1", CLI_DOCTOR_PROBLEM, CLI_DOCTOR_WARNING},
    {2, 0, "NVIDIA H100", OK, "GPU 0 is NVIDIA H200 with 132 multiprocessors, GPU 1 is NVIDIA H100", CLI_DOCTOR_PROBLEM,
     CLI_DOCTOR_WARNING},
    {2, 0, NULL, ERR_MISMATCH, "a copy from GPU 0 to GPU 1: byte 7", CLI_DOCTOR_PROBLEM, CLI_DOCTOR_PROBLEM},
    {2, 0, NULL, ERR_DEVICE, "a copy from GPU 0", CLI_DOCTOR_PROBLEM, CLI_DOCTOR_WARNING}};
  for (size_t i = 0; i < 2 * ARRAY_LEN(CASES); i++) {
    const bool is_auto = i % 2 == 0;
    if (is_auto && CASES[i / 2].device != 0) continue;
    reset(NULL);
    world.count = CASES[i / 2].count;
    world.second = CASES[i / 2].second;
    world.links = CASES[i / 2].links;
    machine.device = is_auto ? VERBATIM_DEVICE_AUTO : CASES[i / 2].device;
    cli_doctor_machine_check_gpu(&report, &machine);
    machine.memory_bytes = 2 * bytes - 1;
    cli_doctor_model_check_plan(&report, &machine, at("two"), NULL);
    expect("plan's gpus", is_auto ? CASES[i / 2].with_auto : CASES[i / 2].result, CASES[i / 2].found);
    const cli_doctor_line *memory = cli_doctor_report_find(&report, "plan's memory");
    const bool on_cpu = strstr(CASES[i / 2].found, "the plan is for 2 GPUs") != NULL;
    assert_non_null(strstr(memory->found, on_cpu ? "of the CPU" : "of each GPU"));
    assert_int_equal(memory->result, on_cpu ? CLI_DOCTOR_PROBLEM : CLI_DOCTOR_OK); /* the CPU holds both ranks */
  }
  reset(NULL);
  world.count = 3;
  machine.device = 1;
  cli_doctor_machine_check_gpu(&report, &machine);
  cli_doctor_model_check_plan(&report, &machine, at("two"), NULL);
  assert_true(world.measured[0] == 1 && world.measured[1] == 2);
  expect_line("plan's links", 0, CLI_DOCTOR_OK, "from GPU 1 to 2 301 GB/s, 1.5 us");
  expect_line("plan's links", 1, CLI_DOCTOR_OK, "from GPU 2 to 1 310 GB/s, 2.5 us");
  reset(NULL);
  world.survey = ERR_DEVICE;
  cli_doctor_machine_check_gpu(&report, &machine);
  machine.memory_bytes = 2 * bytes;
  cli_doctor_model_check_plan(&report, &machine, at("two"), NULL);
  expect("plan's gpus", CLI_DOCTOR_OK, "the CPU runs all ranks");
  expect("plan's memory", CLI_DOCTOR_OK, "of the CPU");
}

/* Exchanges through NCCL: then the GPUs need not reach each other, and nothing is copied between them here. */
static void a_plan_of_nccl_needs_it(void **state) {
  (void)state;
  write_plan_of_two("nccl", ", exchange-transport: nccl");
  for (int missing = 0; missing < 2; missing++) {
    reset(NULL);
    world.count = 2;
    world.links = ERR_DEVICE;
    world.nccl = missing ? ERR_DEVICE : OK;
    machine.device = 0;
    cli_doctor_machine_check_gpu(&report, &machine);
    cli_doctor_model_check_plan(&report, &machine, at("nccl"), NULL);
    expect("plan's gpus", missing ? CLI_DOCTOR_PROBLEM : CLI_DOCTOR_OK,
           missing ? "no NCCL" : "GPUs 0 to 1 of 2; exchanges through NCCL 2.28.9");
    assert_null(cli_doctor_report_find(&report, "plan's links"));
  }
}

static void pins_need_their_library(void **state) {
  (void)state;
  static const char pinned[] =
    "{\"library_version\":130100,\"entries\":[{\"n\":768,\"k\":192,\"out\":\"f32\",\"rows_min\":2,\"rows_max\":4,"
    "\"algo\":[\"1\",\"0\",\"2a\",\"0\",\"0\",\"0\",\"0\",\"f\"],\"workspace_bytes\":1000,\"certified\":true,\"use\":true}]}";
  fixture_bytes plan = fixture_plan("tests/data/configs/tiny.json", "max-num-seqs: 64\n", pinned);
  FILE *file = fopen(at("pinned"), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(plan.bytes, 1, plan.count, file), plan.count);
  assert_int_equal(fclose(file), 0);
  free(plan.bytes);
  for (int missing = 0; missing < 2; missing++) {
    reset(NULL);
    world.cublaslt = missing ? ERR_DEVICE : OK;
    cli_doctor_machine_check_gpu(&report, &machine);
    cli_doctor_machine_check_libraries(&report, &machine);
    cli_doctor_model_check_plan(&report, &machine, at("pinned"), NULL);
    assert_int_equal(cli_doctor_report_find(&report, "plan's pins") != NULL, missing);
    assert_int_equal(cli_doctor_report_code(&report), missing ? ERR_DEVICE : OK);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(the_first_problem_decides_the_exit_code, reset),
      cmocka_unit_test_setup(as_json_and_as_text, reset),
      cmocka_unit_test_setup(a_whole_machine_is_ok, reset),
      cmocka_unit_test_setup(without_a_gpu_the_cpu_is_used, reset),
      cmocka_unit_test_setup(a_gpu_that_was_asked_for_must_be_there, reset),
      cmocka_unit_test_setup(what_a_gpu_lacks_is_said, reset),
      cmocka_unit_test_setup(caches_that_cannot_be_written, reset),
      cmocka_unit_test_setup(files_and_ports, reset),
      cmocka_unit_test_setup(a_sound_model_and_its_plan_are_ok, reset),
      cmocka_unit_test_setup(faults_of_a_model_are_found, reset),
      cmocka_unit_test_setup(faults_of_a_plan_are_found, reset),
      cmocka_unit_test_setup(every_gpu_says_whom_it_reaches, reset),
      cmocka_unit_test_setup(a_plan_needs_its_gpus, reset),
      cmocka_unit_test_setup(a_plan_of_nccl_needs_it, reset),
      cmocka_unit_test_setup(pins_need_their_library, reset),
  };
  return cmocka_run_group_tests(tests, make_files, remove_files);
}
