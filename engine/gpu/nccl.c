/* nccl.c - see nccl.h. Start-up allocates; groups do not, as far as it is ours: NCCL itself may. */
#define _DEFAULT_SOURCE /* setenv */
#include "gpu/nccl.h"
#include "gpu/nccl_api.h"
#include "kernels_src/abi_ranks.h"
#include <stdlib.h>
#include <string.h>

struct nccl {
  struct {
    NCCL_API(CUDA_API_MEMBER)
  } api;
  nccl_error *error;
  nccl_last_error *last_error;
  dynlib library;
  uint32_t version, count;
  nccl_comm comms[RANKS_MAX];
};

static status refused(const nccl *self, const char *call, unsigned int code) {
  const char *name = self->error(code), *more = self->last_error(NULL);
  return FAIL(ERR_DEVICE, "NCCL: %s: %s%s%.160s; hint: NCCL_DEBUG=WARN in the environment shows more", call, name ? name : "unknown error",
              more && *more ? ": " : "", more ? more : "");
}

static status check(const nccl *self, const char *call, unsigned int code) { return code == NCCL_OK ? OK : refused(self, call, code); }

static status open_library(nccl *self, const dynlib_search *search) {
  static const char *const names[] = {"libnccl.so.2", NULL};
  int number = 0;
  TRY(dynlib_open(search, names, "NCCL", "install it, or the Python wheel nvidia-nccl", &self->library));
  __typeof__(self->api) *API = &self->api;
  const dynlib_symbol symbols[] = {NCCL_API(CUDA_API_SYMBOL){NCCL_ERROR_SYMBOL, &self->error}, {NCCL_LAST_ERROR_SYMBOL, &self->last_error}};
  TRY(dynlib_resolve(&self->library, symbols, ARRAY_LEN(symbols)));
  const unsigned int code = self->api.ncclGetVersion(&number);
  if (code != NCCL_OK || number < 0) return FAIL(ERR_DEVICE, "%s: ncclGetVersion: status %u", self->library.path, code);
  self->version = (uint32_t)number;
  return OK;
}

status nccl_find(const dynlib_search *search, char path[DYNLIB_PATH_MAX], uint32_t *version) {
  nccl found = {0};
  const status result = open_library(&found, search);
  if (result == OK) {
    memcpy(path, found.library.path, sizeof found.library.path);
    *version = found.version;
  }
  dynlib_close(&found.library);
  return result;
}

static status open_comms(nccl *self, const uint32_t *devices, uint32_t count) {
  int numbers[RANKS_MAX];
  for (uint32_t i = 0; i < count; i++) numbers[i] = (int)devices[i];
  /* Read by NCCL at its first communicator. Multicast needs a fabric that is not everywhere, and a gather gains little by it. */
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  TRY(check(self, "ncclCommInitAll", self->api.ncclCommInitAll(self->comms, (int)count, numbers)));
  self->count = count;
  return OK;
}

status nccl_open(const dynlib_search *search, const uint32_t *devices, uint32_t count, nccl **out) {
  ASSERT(count >= 2 && count <= RANKS_MAX);
  nccl *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "no memory for %zu bytes", sizeof *self);
  status result = open_library(self, search);
  if (result == OK) result = open_comms(self, devices, count);
  if (result == OK) *out = self;
  else nccl_close(self);
  return result;
}

/* Return codes are ignored, as in gpu_close. */
void nccl_close(nccl *self) {
  if (!self) return;
  for (uint32_t i = 0; i < self->count; i++) self->api.ncclCommDestroy(self->comms[i]);
  dynlib_close(&self->library);
  free(self);
}

uint32_t nccl_version(const nccl *self) { return self->version; }

status nccl_begin(nccl *self) { return check(self, "ncclGroupStart", self->api.ncclGroupStart()); }

status nccl_gather(nccl *self, uint32_t rank, gpu_stream *stream, uint64_t from, uint64_t to, uint64_t bytes) {
  ASSERT(rank < self->count);
  return check(self, "ncclAllGather",
               self->api.ncclAllGather((const void *)(uintptr_t)from, (void *)(uintptr_t)to, bytes, NCCL_BYTES, self->comms[rank],
                                       (cuda_stream)stream));
}

status nccl_end(nccl *self) { return check(self, "ncclGroupEnd", self->api.ncclGroupEnd()); }

status nccl_check(nccl *self) {
  for (uint32_t i = 0; i < self->count; i++) {
    unsigned int found = NCCL_OK;
    TRY(check(self, "ncclCommGetAsyncError", self->api.ncclCommGetAsyncError(self->comms[i], &found)));
    if (found != NCCL_IN_PROGRESS) TRY(check(self, "a communicator", found));
  }
  return OK;
}
