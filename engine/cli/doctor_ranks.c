/* cli/doctor_ranks.c - see cli/doctor_ranks.h. */
#include "cli/doctor_ranks.h"
#include "gpu/gpu.h"
#include "gpu/links.h"
#include "gpu/nccl.h"
#include "verbatim.h"
#include <stdio.h>
#include <string.h>

/* === The matrix ============================================================================================================= */

/* "GPU 0 (NVIDIA H200) uses the memory of 1 (rank 0), 2 (rank 0), and not that of 3". Fails like gpu_survey_link. */
static status describe_links(const cli_doctor_machine *machine, uint32_t from, char *text, size_t text_bytes, bool *reaches_all) {
  char with[FAIL_TEXT_MAX / 2] = "", without[FAIL_TEXT_MAX / 4] = "";
  gpu_info info;
  uint32_t count = 0;
  TRY(gpu_survey(from, machine->search, &count, &info));
  for (uint32_t to = 0; to < machine->gpu_count; to++) {
    gpu_link link;
    if (to == from) continue;
    TRY(gpu_survey_link(from, to, machine->search, &link));
    const size_t used = strlen(with), lost = strlen(without);
    if (link.can_access)
      snprintf(with + used, sizeof with - used, "%s%u (%srank %u)", used ? ", " : " uses the memory of ", to, link.has_atomics ? "" :
               "PCIe, ", link.rank);
    else snprintf(without + lost, sizeof without - lost, "%s%u", lost ? ", " : " does not reach ", to);
    *reaches_all &= link.can_access;
  }
  snprintf(text, text_bytes, "GPU %u (%s)%s%s%s", from, info.name, with, *with && *without ? " and" : "", without);
  return OK;
}

void cli_doctor_ranks_check_links(cli_doctor_report *report, const cli_doctor_machine *machine) {
  if (machine->device == VERBATIM_DEVICE_CPU) return;
  if (machine->gpu_count < 2) {
    cli_doctor_report_add(report, "links", CLI_DOCTOR_UNUSED, NULL, "%s: there are no links between GPUs",
                          machine->gpu_count ? "one GPU" : "no GPU");
    return;
  }
  for (uint32_t from = 0; from < machine->gpu_count && from < RANKS_MAX; from++) {
    char text[FAIL_TEXT_MAX];
    bool reaches_all = true;
    const status result = describe_links(machine, from, text, sizeof text, &reaches_all);
    if (result != OK) cli_doctor_report_fail(report, "links", CLI_DOCTOR_WARNING, result);
    else if (reaches_all) cli_doctor_report_add(report, "links", CLI_DOCTOR_OK, NULL, "%s", text);
    else
      cli_doctor_report_add(report, "links", CLI_DOCTOR_WARNING, "the GPUs of a plan must reach each other, unless exchange-transport is "
                            "nccl; CUDA_VISIBLE_DEVICES chooses and orders them", "%s", text);
  }
}

/* === A plan ================================================================================================================= */

static void report_speeds(cli_doctor_report *report, const links_report *links, uint32_t first, uint32_t ranks) {
  for (uint32_t i = 0; i < ranks; i++) {
    char text[FAIL_TEXT_MAX];
    size_t used = (size_t)snprintf(text, sizeof text, "from GPU %u", first + i);
    for (uint32_t j = 0; j < ranks; j++)
      if (j != i && used < sizeof text)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s to %u %.0f GB/s, %.1f us", used > 16 ? ";" : "", first + j,
                                 links->speed[i][j].gb_per_s, links->speed[i][j].latency_us);
    cli_doctor_report_add(report, "plan's links", CLI_DOCTOR_OK, NULL, "%s", text);
  }
}

/* The GPUs that the engine would open: of one kind, as devices_open wants them. */
static status check_kind(const cli_doctor_machine *machine, uint32_t first, uint32_t ranks) {
  gpu_info info[2];
  uint32_t count = 0;
  TRY(gpu_survey(first, machine->search, &count, &info[0]));
  for (uint32_t i = 1; i < ranks; i++) {
    TRY(gpu_survey(first + i, machine->search, &count, &info[1]));
    if (strcmp(info[0].name, info[1].name) != 0 || info[0].sm_count != info[1].sm_count)
      return FAIL(ERR_DEVICE, "GPU %u is %s with %u multiprocessors, GPU %u is %s with %u: expected GPUs of one kind; hint: "
                  "CUDA_VISIBLE_DEVICES chooses and orders them", first, info[0].name, info[0].sm_count, first + i, info[1].name,
                  info[1].sm_count);
  }
  return OK;
}

/* Through NCCL the GPUs need not reach each other, and nothing is copied between them here. */
static status check_nccl(const cli_doctor_machine *machine, char *text, size_t text_bytes) {
  char path[DYNLIB_PATH_MAX];
  uint32_t version = 0;
  TRY(nccl_find(machine->search, path, &version));
  snprintf(text, text_bytes, "; exchanges through NCCL %u.%u.%u", NCCL_VERSION_PARTS(version));
  return OK;
}

void cli_doctor_ranks_check_plan(cli_doctor_report *report, cli_doctor_machine *machine, const plan_limits *limits) {
  const uint32_t ranks = limits->ranks, first = machine->device > 0 ? (uint32_t)machine->device : 0;
  const cli_doctor_result lack = machine->device >= 0 ? CLI_DOCTOR_PROBLEM : CLI_DOCTOR_WARNING;
  const bool uses_nccl = limits->transport == TRANSPORT_NCCL;
  links_report links;
  char how[64] = "";
  if (!machine->has_gpu) {
    cli_doctor_report_add(report, "plan's gpus", CLI_DOCTOR_OK, NULL, "a plan of %u GPUs: the CPU runs all ranks in turn", ranks);
    return;
  }
  if (ranks > machine->gpu_count - first) {
    const uint32_t there = machine->gpu_count - first;
    const status few = FAIL(ERR_DEVICE, "the plan is for %u GPUs, expected GPUs %u to %u, found %u; hint: plan with tensor-parallel-size: "
                            "%u, or --device cpu", ranks, first, first + ranks - 1, there, there);
    cli_doctor_report_fail(report, "plan's gpus", lack, few);
    machine->has_gpu = false;
    return;
  }
  status result = check_kind(machine, first, ranks);
  if (result == OK && uses_nccl) result = check_nccl(machine, how, sizeof how);
  else if (result == OK) result = links_measure(first, ranks, machine->search, &links);
  if (result != OK) {
    cli_doctor_report_fail(report, "plan's gpus", result == ERR_MISMATCH ? CLI_DOCTOR_PROBLEM : lack, result);
    return;
  }
  cli_doctor_report_add(report, "plan's gpus", CLI_DOCTOR_OK, NULL, "GPUs %u to %u of %u%s", first, first + ranks - 1, machine->gpu_count,
                        how);
  if (uses_nccl) return; /* the memory is that of the first GPU */
  report_speeds(report, &links, first, ranks);
  machine->gpu_free_bytes = links.free_bytes;
  machine->gpu_bytes = links.total_bytes;
}
