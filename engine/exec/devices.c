/* devices.c - see devices.h. */
#include "exec/devices.h"
#include <string.h>

static status check_alike(const gpu_info *a, const gpu_info *b) {
  if (strcmp(a->name, b->name) == 0 && a->sm_count == b->sm_count) return OK;
  return FAIL(ERR_DEVICE, "GPU %u is %s with %u multiprocessors, GPU %u is %s with %u: expected GPUs of one kind for the ranks of a plan; "
              "hint: CUDA_VISIBLE_DEVICES chooses and orders the GPUs of a process", a->index, a->name, a->sm_count, b->index, b->name,
              b->sm_count);
}

static status connect(const devices *self) {
  for (uint32_t i = 0; i < self->count; i++) {
    gpu_select(self->list[i]);
    for (uint32_t j = 0; j < self->count; j++)
      if (i != j) TRY(gpu_peer(self->list[i], self->list[j]));
  }
  gpu_select(self->list[0]);
  return OK;
}

status devices_open_nccl(devices *self, const dynlib_search *search) {
  uint32_t numbers[RANKS_MAX];
  ASSERT(self->count > 1 && !self->nccl);
  for (uint32_t i = 0; i < self->count; i++) numbers[i] = gpu_describe(self->list[i])->index;
  const status result = nccl_open(search, numbers, self->count, &self->nccl);
  gpu_select(self->list[0]);
  return result;
}

static status check_count(uint32_t first, uint32_t count, const dynlib_search *search) {
  gpu_info info;
  uint32_t found = 0;
  TRY(gpu_survey(first, search, &found, &info));
  if (first < found && count <= found - first) return OK;
  return FAIL(ERR_DEVICE, "the plan is for %u GPUs, expected GPUs %u to %u, found %u; hint: plan with tensor-parallel-size: %u, or "
              "--device cpu", count, first, first + count - 1, found, found > first ? found - first : 1);
}

status devices_open(devices *self, uint32_t first, const plan_limits *limits, const dynlib_search *search) {
  const uint32_t count = limits->ranks;
  ASSERT(count >= 1 && count <= RANKS_MAX);
  if (count > 1) TRY(check_count(first, count, search)); /* gpu_open names an only GPU that is not there */
  status result = OK;
  for (uint32_t i = 0; i < count && result == OK; i++) {
    result = gpu_open(first + i, search, &self->list[i]);
    if (result != OK) break;
    self->count++;
    if (i > 0) gpu_unbind(self->list[i]);
    if (i > 0) result = check_alike(gpu_describe(self->list[0]), gpu_describe(self->list[i]));
  }
  if (result == OK && limits->transport == TRANSPORT_NCCL) result = devices_open_nccl(self, search);
  else if (result == OK && count > 1) result = connect(self);
  if (result != OK) devices_close(self);
  return result;
}

/* Its end waits for that of the graphs that hold its work. */
static void close_nccl(devices *self) {
  for (uint32_t i = 0; i < self->count; i++) {
    gpu_select(self->list[i]);
    gpu_drop_graphs(self->list[i]);
  }
  nccl_close(self->nccl);
  gpu_select(self->list[0]);
}

void devices_close(devices *self) {
  if (self->nccl) close_nccl(self);
  for (uint32_t i = self->count; i > 0; i--) {
    if (i > 1) gpu_bind(self->list[i - 1]);
    else if (self->count > 1) gpu_select(self->list[0]);
    gpu_close(self->list[i - 1]);
  }
  *self = (devices){0};
}

void devices_use(const devices *self, exec_options *options) {
  options->device = self->list[0];
  options->nccl = self->nccl;
  for (uint32_t i = 1; i < self->count; i++) options->others[i - 1] = self->list[i];
}

void devices_bind(const devices *self) {
  if (self->count) gpu_bind(self->list[0]);
}

void devices_unbind(const devices *self) {
  if (self->count > 1) gpu_select(self->list[0]);
  if (self->count) gpu_unbind(self->list[0]);
}

void devices_freeze(const devices *self) {
  for (uint32_t i = 0; i < self->count; i++) gpu_freeze(self->list[i]);
}

void devices_on_fault(const devices *self, gpu_fault_hook *hook, void *context) {
  for (uint32_t i = 0; i < self->count; i++) gpu_on_fault(self->list[i], hook, context);
}
