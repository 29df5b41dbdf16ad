/* ptx.cuh - one instruction per function, for what CUDA C cannot express.
 *
 * Dependent launches, clusters of blocks, copies (cp.async, bulk), barriers in shared memory, fences between the generic and the
 * asynchronous proxy, stmatrix, and the fences and waits around wgmma. Its parts: TMA boxes (ptx/boxes.cuh), wgmma (ptx/multiply.cuh),
 * conversions (ptx/numbers.cuh). Must not know any op. Read next: ptx/multiply.cuh, gemm/large_m.cuh. */
#ifndef VERBATIM_PTX_CUH
#define VERBATIM_PTX_CUH
#include "num.h"
#include "ptx/tensor_map.h"

#define WARP_ALL 0xffffffffu

NUM u32 ptx_shared(const void *p) { return (u32)__cvta_generic_to_shared(p); }

/* The same value in every lane, as the compiler can see: wgmma needs uniform control flow. */
NUM u32 ptx_uniform(u32 x) { return __shfl_sync(WARP_ALL, x, 0); }
/* x, opaque to the compiler and, unlike after ptx_forget, to the assembler: it is kept in a register and not recomputed. */
NUM u32 ptx_kept(u32 x) { return __shfl_sync(WARP_ALL, x, threadIdx.x % 32u); }
/* Loads from a shared address that is a number: fewer instructions where offsets are added to it. */
NUM f32 ptx_load_shared(u32 shared) {
  f32 x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(shared) : "memory");
  return x;
}

/* True in one lane of a whole warp, as the compiler can see: instructions it issues need no loop over lanes. */
NUM bool ptx_elect() {
  u32 is;
  asm volatile("{\n.reg .pred is;\nelect.sync _|is, 0xffffffff;\nselp.u32 %0, 1, 0, is;\n}" : "=r"(is));
  return is;
}

/* Programmatic dependent launch: a kernel may start while the previous one on the stream still runs. ptx_grid_wait waits until all earlier
 * kernels have ended and their writes are visible; every thread that reads or writes memory which another kernel of the step touches calls
 * it first (weights, tables, the step's inputs and what attn_cut made of them may be read before it), and no block ends without it: the
 * next kernel waits for this one alone. ptx_grid_next: as far as this block is concerned, the next kernel may start. */
NUM void ptx_grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
NUM void ptx_grid_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/* Makes this thread's writes visible to all blocks. */
NUM void ptx_fence_all() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
/* Grid barrier, by one thread of each of some blocks that all run at once: waits until all have arrived. The word was a multiple of `all`
 * before, and is again when each has added its `step`. With block barriers before and after, the blocks see each other's earlier writes. */
NUM void ptx_meet(u32 *word, u32 step, u32 all) {
  u32 found;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(found) : "l"(word), "r"(step) : "memory");
  const u32 wanted = (found / all + 1u) * all;
  for (found += step; (i32)(found - wanted) < 0;) /* the last arrival need not read again */
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(word) : "memory");
}

/* Blocks of a cluster: `shared` in the block of that rank, for reads and writes; and a barrier of all their threads, which every block
 * passes before it touches another's memory, which exists from then on, and before it ends, while others may touch its own. */
template <class T> NUM T *ptx_cluster_map(T *shared, u32 rank) {
  u64 there;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(shared), "r"(rank));
  return (T *)there;
}
NUM void ptx_cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Copies 16 bytes from global to shared memory without waiting; bytes = 0 reads nothing and writes zeros. */
NUM void ptx_copy16(u32 shared, const void *global, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}
/* The same for four bytes. */
NUM void ptx_copy4(u32 shared, const f32 *global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}
NUM void ptx_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Waits until at most n of this thread's newest copy groups are in flight. */
#define PTX_COPY_WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

/* After a thread's writes to shared memory (completed cp.async included) and before the barrier that hands them to wgmma. */
NUM void ptx_fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Between writes to any memory, by this thread or observed by it, and bulk copies of them. */
NUM void ptx_fence_copies() { asm volatile("fence.proxy.async;" ::: "memory"); }

/* Barriers in shared memory (mbarrier: 8 bytes, aligned). A phase ends when `arrivals` threads have arrived and all expected bytes have
 * landed; phases have parity 0, 1, 0, ... ptx_barrier_wait returns when the phase of that parity has ended: at once for parity 1 on a fresh
 * barrier. After ptx_barrier_init: ptx_barrier_ready by the same thread, then a block barrier. */
NUM void ptx_barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
NUM void ptx_barrier_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
NUM void ptx_barrier_arrive(u32 barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }
/* Arrives, and expects bytes of copies that will complete on this barrier. */
NUM void ptx_barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
NUM void ptx_barrier_wait(u32 barrier, u32 parity) {
  asm volatile("{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra END;\nbra AGAIN;\nEND:\n}"
               ::"r"(barrier), "r"(parity) : "memory");
}
/* One arrival of the phase, counted by the barrier as any other, once this thread's cp.async copies so far have completed. */
NUM void ptx_barrier_arrive_copies(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* Barriers of some of the block's warps: number 1 .. 15, threads a multiple of 32. arrive does not wait. */
NUM void ptx_warps_sync(u32 number, u32 threads) { asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory"); }
NUM void ptx_warps_arrive(u32 number, u32 threads) { asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory"); }

/* Barriers in another block of the cluster. ptx_peer maps a shared address of this block to the block of that rank. ptx_store_peer writes 8
 * or 16 bytes there, aligned to as many, and the barrier there counts them. ptx_barrier_arrive_peer does not wait for pending reads and
 * writes of the thread's warp: use the values read first. */
NUM u32 ptx_peer(u32 shared, u32 rank) {
  u32 peer;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(shared), "r"(rank));
  return peer;
}
NUM void ptx_barrier_arrive_peer(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
NUM void ptx_store_peer(u32 shared, f32 x, f32 y, u32 barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];"
               ::"r"(shared), "r"(num_bits(x)), "r"(num_bits(y)), "r"(barrier) : "memory");
}
NUM void ptx_store_peer(u32 shared, u32 x, u32 y, u32 z, u32 w, u32 barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
               ::"r"(shared), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier) : "memory");
}

/* Registers per thread of the calling warpgroup from here on: n a multiple of 8, 24 .. 240. An increase waits for free registers. */
#define PTX_REGISTERS_LESS(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n))
#define PTX_REGISTERS_MORE(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n))

/* L2 policies of copies: for data used once, and for data that many blocks read. */
#define PTX_POLICY(name, evict)                                                                                                \
  NUM u64 name() {                                                                                                             \
    u64 policy;                                                                                                                \
    asm volatile("createpolicy.fractional.L2::" evict ".b64 %0, 1.0;" : "=l"(policy));                                         \
    return policy;                                                                                                             \
  }
PTX_POLICY(ptx_once, "evict_first")
PTX_POLICY(ptx_often, "evict_last")

/* One thread starts a copy of `bytes` (a multiple of 16, like both addresses), which the barrier's phase counts. */
NUM void ptx_copy_bulk(u32 shared, const void *global, u32 bytes, u32 barrier, u64 policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
               ::"r"(shared), "l"(global), "r"(bytes), "r"(barrier), "l"(policy) : "memory");
}
/* The same to the shared memory of another block of the cluster, where the barrier is too: both addresses are from ptx_peer. */
NUM void ptx_copy_peer(u32 to, u32 from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(to), "r"(from), "r"(bytes), "r"(barrier) : "memory");
}
NUM void ptx_pause(u32 cycles) { for (const u32 from = (u32)clock(); (u32)clock() - from < cycles;) {} } /* about that long */
/* Loads from L2: L1 may hold values from before other blocks wrote them. */
template <class T> NUM T ptx_load_fresh(const T *p) { return __ldcg(p); }
/* Discards the 128 bytes from p on, aligned to 128: L2 need not write them to memory. */
NUM void ptx_discard(const f32 *p) { asm volatile("discard.global.L2 [%0], 128;" ::"l"(p) : "memory"); }
/* Stores two numbers with an L2 policy. */
NUM void ptx_store_kept(f32 *to, f32 x, f32 y, u64 policy) {
  asm volatile("st.global.L2::cache_hint.v2.f32 [%0], {%1, %2}, %3;" ::"l"(to), "f"(x), "f"(y), "l"(policy) : "memory");
}

/* Stores one number, two, or 16 bytes if `is`, without a branch. */
NUM void ptx_store_if(bool is, f32 *to, f32 x) {
  asm volatile("{\n.reg .pred is;\nsetp.ne.u32 is, %0, 0;\n@is st.global.f32 [%1], %2;\n}" ::"r"((u32)is), "l"(to), "f"(x) : "memory");
}
NUM void ptx_store_if(bool is, f32 *to, f32 x, f32 y) {
  asm volatile("{\n.reg .pred is;\nsetp.ne.u32 is, %0, 0;\n@is st.global.v2.f32 [%1], {%2, %3};\n}"
               ::"r"((u32)is), "l"(to), "f"(x), "f"(y) : "memory");
}

NUM void ptx_store_if(bool is, bf16 *to, uint4 v) {
  asm volatile("{\n.reg .pred is;\nsetp.ne.u32 is, %0, 0;\n@is st.global.v4.b32 [%1], {%2, %3, %4, %5};\n}"
               ::"r"((u32)is), "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

/* About 1 / x, for x from 1 to 2^126. */
NUM f32 ptx_inverse(f32 x) {
  f32 d;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(x));
  return d;
}
/* The larger number; NaN if either is. */
NUM f32 ptx_max(f32 x, f32 y) {
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(y));
  return x;
}

/* Stores four 8x8 matrices of 16-bit numbers transposed: lane i gives the address of 16 bytes, column i % 8 of matrix i / 8. */
NUM void ptx_store_transposed(u32 shared, u32 m0, u32 m1, u32 m2, u32 m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(m0), "r"(m1), "r"(m2),
               "r"(m3) : "memory");
}

/* Operand descriptors of tiles in shared memory. Rows of 128 bytes, 16-byte pieces permuted by the row number modulo 8 (128-byte swizzle),
 * 1024 bytes between groups of 8 rows. The tile's base is a multiple of 1024; steps inside a row are added to the address. SWIZZLED: rows
 * are the M or N index, a row holds 64 k of bf16, 128 of e4m3. ACROSS(stride): rows are k, a row holds 64 columns of N, the next 64 columns
 * are stride bytes further. PLAIN: no swizzle, 128-byte core matrices. ONE_ROW: only the first of eight rows exists, k contiguous; the
 * others read what is 16, 32, ... bytes after it. */
#define PTX_SWIZZLED ((1ull << 62) | (64ull << 32) | (1ull << 16))
#define PTX_ACROSS(stride) ((1ull << 62) | (64ull << 32) | ((u64)((stride) >> 4) << 16))
#define PTX_PLAIN ((8ull << 32) | (8ull << 16))
#define PTX_ONE_ROW ((8ull << 32) | (1ull << 16))
NUM u64 ptx_operand(u64 form, u32 shared) { return form | (u64)((shared & 0x3ffffu) >> 4); }

/* x is computed by here: its assignments are not moved past the next fence, nor later reads before it. */
NUM void ptx_hold(f32 &x) { asm volatile("" : "+f"(x)::"memory"); }

/* Makes x opaque to the compiler: values derived from it are computed where needed, not kept in registers through a loop. */
NUM void ptx_forget(u32 &x) { asm volatile("" : "+r"(x)); }
NUM void ptx_forget(f32 *&x) { asm volatile("" : "+l"(x)); }

/* Forces x to be computed here, which the compiler would defer past the next wait, to its first use. */
NUM void ptx_settle(u32 x) {
  if (__any_sync(WARP_ALL, x == 0xffffffffu)) asm volatile("nanosleep.u32 1;" ::: "memory");
}

/* wgmma: fence before the first one after accumulators were accessed, commit ends a group, wait as for copies. */
NUM void ptx_multiply_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
NUM void ptx_multiply_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
#define PTX_MULTIPLY_WAIT(n) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")

#include "ptx/boxes.cuh"
#include "ptx/multiply.cuh"
#include "ptx/numbers.cuh"
#include "ptx/system.cuh"

#endif
