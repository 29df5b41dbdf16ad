/* gather.h - exchanges between ranks through NCCL, instead of our kernels (plan_limits.transport). Private to exec.
 *
 * NCCL gathers whole blocks of memory: those of rank 0, of rank 1, ... In the tables of an exchange the columns of all ranks stand side by
 * side, so that rows which are more than one are gathered in the op's inbox and then copied into place. Bytes move and nothing else: the
 * result is that of the op's kernel. Nothing on the devices ends a wait for another rank, so the waits of the host have the limit that the
 * waits of our kernels have; what each device has reached tells which one the others wait for. Read next: backend_ranks.c, gpu/nccl.h. */
#ifndef VERBATIM_EXEC_GATHER_H
#define VERBATIM_EXEC_GATHER_H
#include "exec/exec.h"
#include "gpu/nccl.h"

/* 1 + the number of the exchange in the plan, and the side of its step: steps take turns. */
#define GATHER_SIDE 0x80000000u
#define GATHER_REACHED(nth, side) (1u + (nth) + ((side) ? GATHER_SIDE : 0u))

typedef struct gather { /* zeroed: there is no NCCL */
  nccl *nccl;
  uint32_t ranks;
  gpu *device[RANKS_MAX];
  uint64_t reached[RANKS_MAX]; /* word in host memory that each device sets to the GATHER_REACHED of an exchange that it reaches, or 0 */
  double timeout_s;   /* longest wait of the host for what the ranks do together */
  bool is_transport;  /* the plan's exchanges go through it; else it is only compared with them */
} gather;

typedef struct gather_rank { /* a rank's part in an exchange */
  gpu_stream *stream;
  const exchange_args *args; /* with the rank's addresses */
} gather_rank;

typedef struct gather_block { /* a rank's part in a gather of plain bytes */
  gpu_stream *stream;
  uint64_t from, to; /* to: [ranks][bytes] */
} gather_block;

/* [start-up] Takes NCCL and the devices from the options, if they have it. As the plan's transport it limits the waits of the devices from
 * here on: self must stay where it is. */
void gather_open(gather *self, const exec_options *options, uint32_t ranks, bool is_transport, double timeout_s);

/* Puts the exchange of so many launch rows on the ranks' streams, also while they are captured. A refusal of NCCL is a fault, at op. */
void gather_run(const gather *self, const char *op, const gather_rank *ranks, uint32_t rows, uint32_t side);

/* The same for one block of bytes of each rank, which is not copied afterwards. */
void gather_run_blocks(const gather *self, const gather_block *blocks, uint64_t bytes);

#endif
