/* nccl.c - see nccl.h. The library is opened for its version only. */
#include "gpu/nccl.h"
#include "gpu/cuda_api.h"
#include <string.h>

status nccl_find(const dynlib_search *search, char path[DYNLIB_PATH_MAX], uint32_t *version) {
  static const char *const names[] = {"libnccl.so.2", NULL};
  dynlib library = {0};
  struct {
    NCCL_API(CUDA_API_MEMBER)
  } api, *API = &api;
  int number = 0;
  TRY(dynlib_open(search, names, "NCCL", "install it, or the Python wheel nvidia-nccl", &library));
  const dynlib_symbol symbols[] = {NCCL_API(CUDA_API_SYMBOL)};
  status result = dynlib_resolve(&library, symbols, ARRAY_LEN(symbols));
  const unsigned int code = result == OK ? api.ncclGetVersion(&number) : 0;
  if (code != 0 || number < 0) result = FAIL(ERR_DEVICE, "%s: ncclGetVersion: status %u", library.path, code);
  if (result == OK) {
    memcpy(path, library.path, sizeof library.path);
    *version = (uint32_t)number;
  }
  dynlib_close(&library);
  return result;
}
