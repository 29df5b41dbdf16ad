/* ptx.cuh - one instruction per function: what CUDA C cannot say.
 *
 * The order of kernels on a stream, clusters of blocks, copies (cp.async, bulk), barriers in shared memory, fences between the ordinary
 * and the asynchronous proxy, stmatrix, and what the tensor-core multiply of a warpgroup needs around it. Its parts: copies of boxes
 * (ptx/boxes.cuh), that multiply (ptx/multiply.cuh), conversions (ptx/numbers.cuh). Knows nothing of the ops.
 * Read next: ptx/multiply.cuh, many.cuh, mla_attn.cu. */
#ifndef VERBATIM_PTX_CUH
#define VERBATIM_PTX_CUH
#include "num.h"
#include "ptx/tensor_map.h"

#define WARP_ALL 0xffffffffu

NUM u32 ptx_shared(const void *p) { return (u32)__cvta_generic_to_shared(p); }

/* The same value in every lane, and known to be so by the compiler: wgmma needs uniform control flow. */
NUM u32 ptx_uniform(u32 x) { return __shfl_sync(WARP_ALL, x, 0); }
/* x, but nothing that compiles knows what of, the assembler either, which sees through ptx_forget: it is kept and not made again. */
NUM u32 ptx_kept(u32 x) { return __shfl_sync(WARP_ALL, x, threadIdx.x % 32u); }
/* From shared memory, by an address that is a number: fewer instructions where it is added to. */
NUM f32 ptx_load_shared(u32 shared) {
  f32 x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(shared) : "memory");
  return x;
}

/* One lane of a whole warp, and known to be one by the compiler: what it starts needs no loop over lanes. */
NUM bool ptx_elect() {
  u32 is;
  asm volatile("{\n.reg .pred is;\nelect.sync _|is, 0xffffffff;\nselp.u32 %0, 1, 0, is;\n}" : "=r"(is));
  return is;
}

/* A kernel may start while the one before it on the stream still runs. ptx_grid_wait: until all kernels before this one have ended
 * and what they wrote can be seen; every thread that reads or writes what another kernel of the step touches passes it first (weights,
 * tables, the step's inputs and what attn_cut made of them may be read before it), and no block ends without it: the kernel behind
 * waits for this one alone.
 * ptx_grid_next: from this block's side the kernel behind may start. */
NUM void ptx_grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
NUM void ptx_grid_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/* What this thread has written lies where all blocks see it. */
NUM void ptx_fence_all() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
/* One thread of each of some blocks, which all run at this time: waits until all have come. The word was a multiple of `all` before, and
 * is again when each has added its `step`. What a block's threads wrote before a barrier in front of this, the others' read behind one. */
NUM void ptx_meet(u32 *word, u32 step, u32 all) {
  u32 found;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(found) : "l"(word), "r"(step) : "memory");
  const u32 wanted = (found / all + 1u) * all;
  for (found += step; (i32)(found - wanted) < 0;) /* the last one knows without looking again */
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(word) : "memory");
}

/* Blocks of a cluster: `shared` in the block of that rank, to be read or written; and a barrier of all their threads, which every block
 * passes before it touches another's memory, so that it is there, and before it ends while others may touch its own. */
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
/* The same of four bytes. */
NUM void ptx_copy4(u32 shared, const f32 *global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}
NUM void ptx_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Waits until at most n of this thread's newest copy groups are under way. */
#define PTX_COPY_WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

/* After a thread's writes to shared memory (cp.async that has been waited for included) and before the barrier that hands
 * them to wgmma. */
NUM void ptx_fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Between a thread's writes to any memory, or others' that it knows of, and bulk copies of them. */
NUM void ptx_fence_copies() { asm volatile("fence.proxy.async;" ::: "memory"); }

/* Barriers in shared memory (8 bytes, aligned). A phase ends when `arrivals` threads have arrived and all bytes that were announced
 * have come; phases have parity 0, 1, 0, ... ptx_barrier_wait returns when the phase of that parity has ended: at once for parity 1 on
 * a fresh barrier. After ptx_barrier_init: ptx_barrier_ready by the same thread, then a block barrier. */
NUM void ptx_barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
NUM void ptx_barrier_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
NUM void ptx_barrier_arrive(u32 barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }
/* Arrives and announces bytes of copies that will come on this barrier. */
NUM void ptx_barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
NUM void ptx_barrier_wait(u32 barrier, u32 parity) {
  asm volatile("{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra END;\nbra AGAIN;\nEND:\n}"
               ::"r"(barrier), "r"(parity) : "memory");
}
/* This thread's cp.async copies so far count as one arrival of the phase when they have come (which the barrier's count includes). */
NUM void ptx_barrier_arrive_copies(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* Barriers of some of the block's warps: number 1 .. 15, threads a multiple of 32. arrive does not wait. */
NUM void ptx_warps_sync(u32 number, u32 threads) { asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory"); }
NUM void ptx_warps_arrive(u32 number, u32 threads) { asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory"); }

/* Barriers in another block of the cluster. ptx_peer: a shared address of this block as it stands in the block of that rank.
 * ptx_store_peer writes 8 or 16 bytes there, to a multiple of as many, and the barrier there counts them. ptx_barrier_arrive_peer does
 * not wait for what the thread's warp still reads or writes: use what was read first. */
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

/* Registers of each thread of the calling warpgroup from here on: n a multiple of 8, 24 .. 240. More are waited for. */
#define PTX_REGISTERS_LESS(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n))
#define PTX_REGISTERS_MORE(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n))

/* How long L2 should keep what a copy reads: for data used once, and for data that many blocks read. */
#define PTX_POLICY(name, evict)                                                                                                \
  NUM u64 name() {                                                                                                             \
    u64 policy;                                                                                                                \
    asm volatile("createpolicy.fractional.L2::" evict ".b64 %0, 1.0;" : "=l"(policy));                                         \
    return policy;                                                                                                             \
  }
PTX_POLICY(ptx_once, "evict_first")
PTX_POLICY(ptx_often, "evict_last")

/* One thread copies `bytes` (a multiple of 16, like both addresses) and the barrier's phase counts them. */
NUM void ptx_copy_bulk(u32 shared, const void *global, u32 bytes, u32 barrier, u64 policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
               ::"r"(shared), "l"(global), "r"(bytes), "r"(barrier), "l"(policy) : "memory");
}
/* The same from shared memory to that of another block of the cluster, where the barrier is, too: ptx_peer made both addresses. */
NUM void ptx_copy_peer(u32 to, u32 from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(to), "r"(from), "r"(bytes), "r"(barrier) : "memory");
}
NUM void ptx_pause(u32 cycles) { for (const u32 from = (u32)clock(); (u32)clock() - from < cycles;) {} } /* about so long */
/* Reads past L1, which knows nothing of what was written since this kernel started. */
template <class T> NUM T ptx_load_fresh(const T *p) { return __ldcg(p); }
/* The 128 bytes from here on, a multiple of them, are worth nothing any more: L2 need not write them to memory. */
NUM void ptx_discard(const f32 *p) { asm volatile("discard.global.L2 [%0], 128;" ::"l"(p) : "memory"); }
/* Writes two numbers, which L2 keeps as the policy says. */
NUM void ptx_store_kept(f32 *to, f32 x, f32 y, u64 policy) {
  asm volatile("st.global.L2::cache_hint.v2.f32 [%0], {%1, %2}, %3;" ::"l"(to), "f"(x), "f"(y), "l"(policy) : "memory");
}

/* Writes a number, two, or 16 bytes, or nothing, without a branch. */
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
/* The larger one; NaN if one is. */
NUM f32 ptx_max(f32 x, f32 y) {
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(y));
  return x;
}

/* Stores four 8x8 matrices of 16-bit numbers transposed: lane i gives the address of 16 bytes, column i % 8 of matrix i / 8. */
NUM void ptx_store_transposed(u32 shared, u32 m0, u32 m1, u32 m2, u32 m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(m0), "r"(m1), "r"(m2),
               "r"(m3) : "memory");
}

/* Operand descriptors: where a tile lies in shared memory. Rows of 128 bytes, 16-byte pieces exchanged by the row's number
 * modulo 8 (128-byte swizzle), 1024 bytes between groups of 8 rows. The tile's base is a multiple of 1024; steps inside a row
 * are added to the address. SWIZZLED: rows are the M or N index, a row holds 64 k of bf16, 128 of e4m3. ACROSS(stride): rows are k, a row
 * holds 64 columns of N, the next 64 columns lie stride bytes further. PLAIN: no swizzle, 128-byte core matrices. ONE_ROW: of eight
 * rows only the first exists, k contiguous; the others are what lies 16, 32, ... bytes behind it. */
#define PTX_SWIZZLED ((1ull << 62) | (64ull << 32) | (1ull << 16))
#define PTX_ACROSS(stride) ((1ull << 62) | (64ull << 32) | ((u64)((stride) >> 4) << 16))
#define PTX_PLAIN ((8ull << 32) | (8ull << 16))
#define PTX_ONE_ROW ((8ull << 32) | (1ull << 16))
NUM u64 ptx_operand(u64 form, u32 shared) { return form | (u64)((shared & 0x3ffffu) >> 4); }

/* Keeps x in its register from here on: what was assigned before is not put off behind the next fence. */
NUM void ptx_hold(f32 &x) { asm volatile("" : "+f"(x)::"memory"); }

/* Unknown to the compiler from here on: what is made of x is computed where it is needed, not kept in registers through a loop. */
NUM void ptx_forget(u32 &x) { asm volatile("" : "+r"(x)); }
NUM void ptx_forget(f32 *&x) { asm volatile("" : "+l"(x)); }

/* What x is made of is computed here: the compiler would put it off until behind the next wait, where it is needed. */
NUM void ptx_settle(u32 x) {
  if (__any_sync(WARP_ALL, x == 0xffffffffu)) asm volatile("nanosleep.u32 1;" ::: "memory");
}

/* wgmma: fence before the first after the accumulators were touched, commit ends a group, wait as for copies. */
NUM void ptx_multiply_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
NUM void ptx_multiply_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
#define PTX_MULTIPLY_WAIT(n) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")

#include "ptx/boxes.cuh"
#include "ptx/multiply.cuh"
#include "ptx/numbers.cuh"

#endif
