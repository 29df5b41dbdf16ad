/* nccl.h - NCCL: gathers the bytes of several GPUs of this process on all of them.
 *
 * The ranks of a plan exchange through it where they cannot use each other's memory (exchange-transport: nccl), and `verbatim bench`
 * compares our own exchange with it. It has memory of its own on every GPU, and threads. Must not know plans or ops. Read next:
 * exec/gather.h. */
#ifndef VERBATIM_GPU_NCCL_H
#define VERBATIM_GPU_NCCL_H
#include "base/dynlib.h"
#include "gpu/gpu.h"

typedef struct nccl nccl; /* a communicator for each rank */

/* The arguments of "%u.%u.%u" for a version. */
#define NCCL_VERSION_PARTS(version) (version) / 10000, (version) / 100 % 100, (version) % 100

/* version: 10000 * major + 100 * minor + patch. ERR_DEVICE: it is not found, or cannot be loaded. */
status nccl_find(const dynlib_search *search, char path[DYNLIB_PATH_MAX], uint32_t *version);

/* [start-up] devices: [count] numbers of the GPUs, as in gpu_info, by rank. Multicast (NVLS) is off, unless NCCL_NVLS_ENABLE is set in the
 * environment. Works in the devices' primary contexts, and leaves one of them current. ERR_DEVICE: not found, or NCCL refuses. */
status nccl_open(const dynlib_search *search, const uint32_t *devices, uint32_t count, nccl **out);
/* All work has ended, and no graph that holds any exists any more; null is allowed. */
void nccl_close(nccl *self);
uint32_t nccl_version(const nccl *self);

/* A group of gathers, which may be captured: between begin and end, for each table one nccl_gather of every rank, in the same order on all.
 * bytes of `from` on rank r go to to + r * bytes on every rank, in the order of the rank's stream. Leaves any of the contexts current. The
 * first group of a process makes connections, which may take a second; a capture must come after one. ERR_DEVICE: NCCL refuses. */
status nccl_begin(nccl *self);
status nccl_gather(nccl *self, uint32_t rank, gpu_stream *stream, uint64_t from, uint64_t to, uint64_t bytes);
status nccl_end(nccl *self);

/* ERR_DEVICE: NCCL has found by itself that work it was given cannot end. */
status nccl_check(nccl *self);

#endif
