/* common/memory.c - see common/memory.h. */
#include "common/memory.h"
#include "gpu/gpu.h"
#include "verbatim.h"
#include <stdlib.h>
#include <unistd.h>

#define DEVICE_SM 90u /* compute capability the kernels are compiled for */
#define GIB (1024.0 * 1024.0 * 1024.0)
#define GROUP_LIMIT "/sys/fs/cgroup/memory.max"

uint64_t cli_memory_available(uint64_t total) {
  unsigned long long kilobytes = 0;
  char line[256];
  FILE *file = fopen("/proc/meminfo", "r");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1) break;
  if (file) fclose(file);
  return kilobytes ? (uint64_t)kilobytes * 1024 : total;
}

/* All of the RAM, or less in a container that is given less. */
static uint64_t usable_ram(void) {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  const uint64_t total = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
  unsigned long long limit = 0;
  FILE *file = fopen(GROUP_LIMIT, "r");
  const bool is_limited = file && fscanf(file, "%llu", &limit) == 1; /* "max" is no number */
  if (file) fclose(file);
  return is_limited && limit < total ? limit : total;
}

static status round_down(uint64_t bytes, cli_memory *out) {
  out->bytes = bytes / CLI_MEMORY_GRAIN_BYTES * CLI_MEMORY_GRAIN_BYTES;
  if (out->bytes) return OK;
  return FAIL(ERR_LIMIT, "device-memory-bytes: auto: expected at least %llu MiB, found %s; hint: end other programs, or state a number",
              CLI_MEMORY_GRAIN_BYTES >> 20, out->from);
}

static status find_ram(cli_memory *out) {
  const uint64_t ram = usable_ram();
  cli_memory found = {.is_gpu = false};
  snprintf(found.from, sizeof found.from, "three quarters of %.1f GiB of RAM", (double)ram / GIB);
  TRY(round_down(ram / 4 * 3, &found));
  *out = found;
  return OK;
}

static status measure(uint32_t index, const dynlib_search *search, uint64_t *free_bytes) {
  gpu *device = NULL;
  uint64_t total = 0;
  TRY(gpu_open(index, search, &device));
  status result = gpu_memory(device, free_bytes, &total);
  gpu_close(device);
  return result;
}

static status find_gpus(uint32_t first, uint32_t count, const gpu_info *info, const dynlib_search *search, cli_memory *out) {
  uint64_t least = UINT64_MAX;
  cli_memory found = {.is_gpu = true};
  for (uint32_t i = 0; i < count; i++) {
    uint64_t free_bytes = 0;
    TRY(measure(first + i, search, &free_bytes));
    if (free_bytes < least) least = free_bytes;
  }
  if (count > 1) snprintf(found.from, sizeof found.from, "%.1f GiB free on each of GPUs %u to %u (%s)", (double)least / GIB, first,
                          first + count - 1, info->name);
  else snprintf(found.from, sizeof found.from, "%.1f GiB free on GPU %u (%s)", (double)least / GIB, first, info->name);
  TRY(round_down(least > CLI_MEMORY_RESERVE_BYTES ? least - CLI_MEMORY_RESERVE_BYTES : 0, &found));
  *out = found;
  return OK;
}

status cli_memory_find(int device, uint32_t gpu_count, cli_memory *out) {
  const dynlib_search search = {.folders = getenv("VERBATIM_LIBRARY_PATH"), .program_path = getenv("PATH")};
  const uint32_t first = device > 0 ? (uint32_t)device : 0;
  gpu_info info = {.index = 0};
  uint32_t found = 0;
  if (device == VERBATIM_DEVICE_CPU) return find_ram(out);
  const status result = gpu_survey(first, &search, &found, &info);
  const bool is_usable = result == OK && first < found && info.capability == DEVICE_SM;
  if (device == VERBATIM_DEVICE_AUTO && !is_usable) {
    fail_clear();
    return find_ram(out);
  }
  TRY(result);
  return find_gpus(first, gpu_count ? gpu_count : 1, &info, &search, out);
}

void cli_memory_print(const cli_memory *self, FILE *to) {
  fprintf(to, "device-memory-bytes: auto is %llu: %s%s\n", (unsigned long long)self->bytes, self->from,
          self->is_gpu ? ", less 1 GiB" : "");
}
