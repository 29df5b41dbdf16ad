/* nccl_api.h - our own declarations of the entry points of NCCL (libnccl.so.2), as in cuda_api.h. Read next: nccl.c. */
#ifndef VERBATIM_NCCL_API_H
#define VERBATIM_NCCL_API_H
#include "gpu/cuda_api.h"

typedef struct ncclComm *nccl_comm;

#define NCCL_API(X)                                                                                             \
  X(ncclGetVersion, (int *version))                                                                             \
  X(ncclCommInitAll, (nccl_comm *comms, int count, const int *devices))                                         \
  X(ncclCommDestroy, (nccl_comm comm))                                                                          \
  X(ncclCommGetAsyncError, (nccl_comm comm, unsigned int *code))                                                \
  X(ncclGroupStart, (void))                                                                                     \
  X(ncclGroupEnd, (void))                                                                                       \
  X(ncclAllGather, (const void *source, void *target, size_t count, unsigned int type, nccl_comm comm, cuda_stream stream))

/* Separate, since they return text. */
#define NCCL_ERROR_SYMBOL "ncclGetErrorString"
#define NCCL_LAST_ERROR_SYMBOL "ncclGetLastError"
typedef const char *nccl_error(unsigned int code);
typedef const char *nccl_last_error(nccl_comm comm);

enum nccl_constant {
  NCCL_OK = 0,          /* ncclSuccess    */
  NCCL_IN_PROGRESS = 7, /* ncclInProgress */
  NCCL_BYTES = 1        /* ncclUint8      */
};

#endif
