/* cli/doctor_machine.c - see cli/doctor_machine.h. Checks on the machine only; cli/doctor_model.c checks the model and its plan. */
#define _DEFAULT_SOURCE /* for AI_NUMERICSERV */
#include "cli/doctor_machine.h"
#include "base/processor.h"
#include "common/memory.h"
#include "gpu/gemm_lt.h"
#include "gpu/gpu.h"
#include "gpu/jit.h"
#include "gpu/nccl.h"
#include "verbatim.h"
#include "planner/profile_shipped.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096
#define GIB (1024.0 * 1024.0 * 1024.0)
#define DEVICE_SM 90u           /* compute capability the kernels are compiled for */
#define FREE_PART_MIN 0.9       /* of a GPU's memory: the share that plans take by default */
#define FILES_BESIDE 64u        /* descriptors other than connections: libraries, weights, logs */

/* === Processor and memory =================================================================================================== */

void cli_doctor_machine_check_cpu(cli_doctor_report *report, cli_doctor_machine *machine) {
  const char *isa = processor_isa();
  long cores = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  uint64_t total = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
  bool is_slow = *isa == 'p'; /* portable */
  machine->memory_bytes = cli_memory_available(total);
  cli_doctor_report_add(report, "cpu", is_slow ? CLI_DOCTOR_WARNING : CLI_DOCTOR_OK,
                        is_slow ? "work on the CPU is slow without AVX2 and FMA; no bit depends on it" : NULL, "%ld cores, %s", cores, isa);
  cli_doctor_report_add(report, "memory", CLI_DOCTOR_OK, NULL, "%.1f GiB, %.1f GiB free for programs", (double)total / GIB,
                        (double)machine->memory_bytes / GIB);
}

/* === GPU and libraries ====================================================================================================== */

static status take_memory(cli_doctor_machine *machine, uint32_t index) {
  gpu *device = NULL;
  TRY(gpu_open(index, machine->search, &device));
  status result = gpu_memory(device, &machine->gpu_free_bytes, &machine->gpu_bytes);
  gpu_close(device);
  return result;
}

static void describe(cli_doctor_report *report, cli_doctor_machine *machine, const gpu_info *info) {
  bool is_busy = (double)machine->gpu_free_bytes < FREE_PART_MIN * (double)machine->gpu_bytes;
  cli_doctor_report_add(report, "gpu", is_busy ? CLI_DOCTOR_WARNING : CLI_DOCTOR_OK,
                        is_busy ? "other programs hold memory of the GPU; nvidia-smi lists them" : NULL,
                        "%s%s, compute capability %u.%u, %u SMs, %.1f GiB, %.1f GiB free", info->name,
                        strstr(info->name, "MIG") ? " (a part of a GPU)" : "", info->capability / 10, info->capability % 10, info->sm_count,
                        (double)machine->gpu_bytes / GIB, (double)machine->gpu_free_bytes / GIB);
  cli_doctor_report_add(report, "driver", CLI_DOCTOR_OK, NULL, "serves CUDA %u.%u", info->driver_version / 1000,
                        info->driver_version % 1000 / 10);
  machine->has_gpu = true;
  snprintf(machine->gpu_name, sizeof machine->gpu_name, "%s", info->name);
}

/* Adds a line that is no problem: unless a GPU was requested, the CPU backend is used. */
static void without_gpu(cli_doctor_report *report, const cli_doctor_machine *machine, const char *why) {
  if (machine->device >= 0) cli_doctor_report_add(report, "gpu", CLI_DOCTOR_PROBLEM, "give --device auto or cpu", "%s", why);
  else cli_doctor_report_add(report, "gpu", CLI_DOCTOR_UNUSED, NULL, "%s: the CPU will be used", why);
}

void cli_doctor_machine_check_gpu(cli_doctor_report *report, cli_doctor_machine *machine) {
  gpu_info info = {.index = 0};
  uint32_t count = 0;
  const uint32_t index = machine->device > 0 ? (uint32_t)machine->device : 0;
  if (machine->device == VERBATIM_DEVICE_CPU) {
    cli_doctor_report_add(report, "gpu", CLI_DOCTOR_UNUSED, NULL, "not asked for: the CPU will be used");
    return;
  }
  status result = gpu_survey(index, machine->search, &count, &info);
  machine->gpu_count = result == OK ? count : 0;
  if (result != OK && machine->device >= 0) {
    cli_doctor_report_fail(report, "gpu", CLI_DOCTOR_PROBLEM, result);
  } else if (result != OK) {
    fail_cause cause;
    fail_drop_hint();
    fail_take(&cause);
    without_gpu(report, machine, cause.text);
  } else if (index >= count) {
    char why[64];
    snprintf(why, sizeof why, "GPU %u is not there, %u found", index, count);
    without_gpu(report, machine, why);
  } else if (info.capability != DEVICE_SM) {
    char why[256];
    snprintf(why, sizeof why, "%s has compute capability %u.%u, expected %u.%u", info.name, info.capability / 10, info.capability % 10,
             DEVICE_SM / 10, DEVICE_SM % 10);
    without_gpu(report, machine, why);
  } else if ((result = take_memory(machine, index)) != OK) {
    cli_doctor_report_fail(report, "gpu", CLI_DOCTOR_PROBLEM, result);
  } else describe(report, machine, &info);
}

static void check_nvrtc(cli_doctor_report *report, const cli_doctor_machine *machine) {
  jit *compiler = NULL;
  int major = 0, minor = 0;
  status result = jit_open(machine->search, NULL, NULL, 0, &compiler);
  if (result != OK && machine->has_gpu) {
    cli_doctor_report_fail(report, "nvrtc", CLI_DOCTOR_PROBLEM, result);
  } else if (result != OK) {
    fail_clear();
    cli_doctor_report_add(report, "nvrtc", CLI_DOCTOR_UNUSED, NULL, "not found, and not needed on the CPU");
  } else {
    jit_version(compiler, &major, &minor);
    cli_doctor_report_add(report, "nvrtc", CLI_DOCTOR_OK, NULL, "%d.%d, %s", major, minor, jit_path(compiler));
  }
  jit_close(compiler);
}

/* The shipped profile pins algorithms only if the library is found; a profile given by name requires it (see the plan's line). */
static void check_cublaslt(cli_doctor_report *report, const cli_doctor_machine *machine) {
  char path[DYNLIB_PATH_MAX];
  uint64_t version = 0;
  status result = gemm_lt_find(machine->search, path, &version);
  if (result == OK) {
    cli_doctor_report_add(report, "cublaslt", CLI_DOCTOR_OK, NULL, "%" PRIu64 ", %s", version, path);
  } else if (machine->has_gpu) {
    cli_doctor_report_fail(report, "cublaslt", CLI_DOCTOR_WARNING, result);
  } else {
    fail_clear();
    cli_doctor_report_add(report, "cublaslt", CLI_DOCTOR_UNUSED, NULL, "not found, and not needed on the CPU");
  }
}

/* GPUs reach each other's memory by our own kernels, unless a plan's transport is NCCL: cli_doctor_ranks_check_plan. */
static void check_nccl(cli_doctor_report *report, const cli_doctor_machine *machine) {
  char path[DYNLIB_PATH_MAX];
  uint32_t version = 0;
  if (machine->device == VERBATIM_DEVICE_CPU) return;
  if (nccl_find(machine->search, path, &version) == OK) {
    cli_doctor_report_add(report, "nccl", CLI_DOCTOR_OK, NULL, "%u.%u.%u, %s; for exchange-transport: nccl",
                          NCCL_VERSION_PARTS(version), path);
    return;
  }
  fail_clear();
  cli_doctor_report_add(report, "nccl", CLI_DOCTOR_UNUSED, NULL, "not found, and not needed but for exchange-transport: nccl");
}

static void check_profile(cli_doctor_report *report, const cli_doctor_machine *machine) {
  json_t *profile = json_loads(profile_shipped[0].text, 0, NULL);
  const char *device = json_string_value(json_object_get(profile, "device"));
  bool is_same = device && strcmp(device, machine->gpu_name) == 0;
  cli_doctor_report_add(report, "profile", is_same ? CLI_DOCTOR_OK : CLI_DOCTOR_WARNING,
                        is_same ? NULL : "`verbatim probe` measures this GPU; no bit depends on it", "the shipped one is of %s, this is %s",
                        device ? device : "another GPU", machine->gpu_name);
  json_decref(profile);
}

void cli_doctor_machine_check_libraries(cli_doctor_report *report, const cli_doctor_machine *machine) {
  check_nvrtc(report, machine);
  check_cublaslt(report, machine);
  check_nccl(report, machine);
  if (machine->has_gpu) check_profile(report, machine);
}

/* === Folders, files, ports ================================================================================================== */

/* Whether the nearest existing ancestor folder allows the path to be created. Creates nothing. */
static bool can_be_created(const char *folder) {
  char path[PATH_BYTES_MAX];
  struct stat info;
  if ((size_t)snprintf(path, sizeof path, "%s", folder) >= sizeof path) return false;
  while (stat(path, &info) != 0) {
    if (errno != ENOENT) return false;
    char *slash = strrchr(path, '/');
    if (!slash) strcpy(path, ".");
    else if (slash == path) path[1] = 0;
    else *slash = 0;
  }
  return S_ISDIR(info.st_mode) && access(path, R_OK | W_OK | X_OK) == 0;
}

static void measure(const char *folder, uint32_t *entries, uint64_t *bytes) {
  DIR *list = opendir(folder);
  for (const struct dirent *entry; list && (entry = readdir(list)) != NULL;) {
    struct stat info;
    const char *end = strrchr(entry->d_name, '.');
    if (!end || strcmp(end, ".vjit") != 0 || fstatat(dirfd(list), entry->d_name, &info, 0) != 0) continue;
    ++*entries;
    *bytes += (uint64_t)info.st_size;
  }
  if (list) closedir(list);
}

void cli_doctor_machine_check_cache(cli_doctor_report *report, const cli_doctor_machine *machine, const char *folder) {
  uint32_t entries = 0;
  uint64_t bytes = 0;
  const cli_doctor_result bad = machine->has_gpu ? CLI_DOCTOR_WARNING : CLI_DOCTOR_UNUSED;
  if (!folder) {
    cli_doctor_report_add(report, "cache", bad, "without a folder for compiled kernels each start takes longer; --cache-dir DIR", "none");
    return;
  }
  measure(folder, &entries, &bytes);
  if (can_be_created(folder))
    cli_doctor_report_add(report, "cache", CLI_DOCTOR_OK, NULL, "%s: %u kernels, %.1f MiB", folder, entries, (double)bytes / (1 << 20));
  else
    cli_doctor_report_add(report, "cache", bad, "kernels are compiled at every start; --cache-dir DIR names a writable folder",
                          "%s: cannot be created or written", folder);
}

void cli_doctor_machine_check_files(cli_doctor_report *report, uint64_t connections, uint64_t files_max) {
  bool is_enough = files_max >= connections + FILES_BESIDE;
  cli_doctor_report_add(report, "open files", is_enough ? CLI_DOCTOR_OK : CLI_DOCTOR_WARNING,
                        is_enough ? NULL : "a larger hard limit (ulimit -Hn), or a smaller max-connections",
                        "at most %" PRIu64 ", for %" PRIu64 " connections and %u others", files_max, connections, FILES_BESIDE);
}

void cli_doctor_machine_check_port(cli_doctor_report *report, const char *host, const char *port) {
  const struct addrinfo asked = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
  struct addrinfo *list = NULL;
  int code = getaddrinfo(host, port, &asked, &list);
  if (code != 0) {
    cli_doctor_report_add(report, "port", CLI_DOCTOR_PROBLEM, "host is a name or an address of this machine", "%s:%s: %s", host, port,
                          gai_strerror(code));
    return;
  }
  int reuse = 1, descriptor = socket(list->ai_family, list->ai_socktype, list->ai_protocol);
  bool is_free = descriptor >= 0 && setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) == 0 &&
                 bind(descriptor, list->ai_addr, list->ai_addrlen) == 0;
  const char *why = strerror(errno);
  if (is_free) cli_doctor_report_add(report, "port", CLI_DOCTOR_OK, NULL, "%s:%s is free", host, port);
  else cli_doctor_report_add(report, "port", CLI_DOCTOR_PROBLEM, "use another port, or end the program that has it",
                             "%s:%s: %s", host, port, why);
  if (descriptor >= 0) close(descriptor);
  freeaddrinfo(list);
}
