/* nccl.h - which NCCL this machine has. The engine moves bytes between GPUs by its own kernels; `verbatim doctor` names the library. */
#ifndef VERBATIM_GPU_NCCL_H
#define VERBATIM_GPU_NCCL_H
#include "base/dynlib.h"

/* version: 10000 * major + 100 * minor + patch. ERR_DEVICE: it is not found, or cannot be loaded. */
status nccl_find(const dynlib_search *search, char path[DYNLIB_PATH_MAX], uint32_t *version);

#endif
