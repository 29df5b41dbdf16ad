/* devices.h - the GPUs of a plan, one for each rank, as one thing: opened, bound, frozen and closed together.
 *
 * Rank r has the GPU of number first + r. All are of one kind, and each can use the memory of every other, unless the plan's exchanges go
 * through NCCL. Must not know requests. Read next: gpu/gpu.h, backend_ranks.c. */
#ifndef VERBATIM_EXEC_DEVICES_H
#define VERBATIM_EXEC_DEVICES_H
#include "exec/exec.h"

typedef struct devices { /* zeroed: none is open */
  uint32_t count;
  gpu *list[RANKS_MAX];
  nccl *nccl; /* null: it is not open */
} devices;

/* Opens the GPUs from number `first` on, as many as the plan has ranks, and binds this thread to them. ERR_DEVICE: there are not as many,
 * they are unlike each other, or they have no way to each other's memory, or no NCCL, as the plan's transport needs it. */
status devices_open(devices *self, uint32_t first, const plan_limits *limits, const dynlib_search *search);
/* NCCL over these GPUs, of which there are several; also opened by devices_open, for a plan whose transport it is. */
status devices_open_nccl(devices *self, const dynlib_search *search);
void devices_close(devices *self); /* bound; releases and unbinds */

/* For exec_open. */
void devices_use(const devices *self, exec_options *options);

/* Without a GPU these do nothing. */
void devices_bind(const devices *self);
void devices_unbind(const devices *self);
void devices_freeze(const devices *self);
void devices_on_fault(const devices *self, gpu_fault_hook *hook, void *context);

#endif
