/* attn/barriers.cuh - a CTA's view of its shared memory and of the mbarriers in it, for all forms of mla_attn.
 *
 * A buffer has two barriers: producers arrive at its FULL barrier when the data is there, consumers at its EMPTY barrier when they have
 * read it. Use n of a buffer waits for phase n: wait_full(n) for its data, wait_empty(n) for the consumers of use n - 1, which returns
 * at once for n = 0. The form's layout.cuh numbers its barriers and defines AT_BARRIERS, the offset of the first, before it includes
 * this file. The decode form takes addresses instead: numbers change its machine code. Knows nothing of what the buffers hold. Read next:
 * attn/prologue.cuh. */
#ifndef VERBATIM_ATTN_BARRIERS_CUH
#define VERBATIM_ATTN_BARRIERS_CUH
#include "ptx/ptx.cuh"

/* This CTA (thread block). */
typedef struct cta {
  u32 base, rank; /* shared-memory address of the layout's byte 0, a multiple of 1024; the CTA's number among those that cooperate */
  u8 *shared;     /* the same byte as a pointer */
} cta;

NUM u32 barrier_at(const cta &b, u32 barrier) { return b.base + AT_BARRIERS + barrier * 8u; }
NUM void wait_full(const cta &b, u32 barrier, u32 use) { ptx_barrier_wait(barrier_at(b, barrier), use & 1u); }
NUM void wait_empty(const cta &b, u32 barrier, u32 use) { ptx_barrier_wait(barrier_at(b, barrier), (use & 1u) ^ 1u); }

/* One arrival per warp: of lane 0 at once, or when all lanes have finished. */
NUM void arrive_lane(const cta &b, u32 barrier) {
  if (threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(b, barrier));
}
NUM void arrive_warp(const cta &b, u32 barrier) {
  __syncwarp();
  arrive_lane(b, barrier);
}

#endif
