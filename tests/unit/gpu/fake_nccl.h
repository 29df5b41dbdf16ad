/* fake_nccl.h - a stand-in for libnccl.so.2 whose GPUs have the host's memory: what is gathered within a group is copied at its end. */
#ifndef VERBATIM_FAKE_NCCL_H
#define VERBATIM_FAKE_NCCL_H
#include "engine/base/dynlib.h"

typedef struct fake_nccl { /* in the library */
  int fail_call;    /* the call with this number is refused, 0: none */
  int calls, groups, alive; /* alive: communicators */
  int async;        /* what a communicator has found by itself */
  int devices[16];
  char multicast[8]; /* NCCL_NVLS_ENABLE at the start of the communicators */
} fake_nccl;

/* Compiles the library in a temporary folder, which search names, and opens it. version: as ncclGetVersion. */
fake_nccl *fake_nccl_build(int version, dynlib_search *search);
/* The same without one of the symbols: it cannot be used. */
void fake_nccl_build_without(const char *symbol, dynlib_search *search);
void fake_nccl_remove(const dynlib_search *search);

#endif
