/* system.cuh - a part of ptx.cuh: memory that several GPUs and the host read and write. All accesses have system scope. */
#ifndef VERBATIM_SYSTEM_CUH
#define VERBATIM_SYSTEM_CUH

/* Two words of 64 bits at 16 aligned bytes. Each word is read and written whole; nothing is said about the order of the two, or of other
 * accesses. */
NUM void ptx_put_words(void *to, u64 x, u64 y) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(x), "l"(y) : "memory");
}
NUM void ptx_get_words(const void *from, u64 &x, u64 &y) {
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(x), "=l"(y) : "l"(from) : "memory");
}
/* A flag: whoever reads the value that was written sees what the writer saw before, its block's writes before a barrier included. */
NUM void ptx_put_flag(u32 *flag, u32 x) { asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(x) : "memory"); }
NUM u32 ptx_get_flag(const u32 *flag) {
  u32 x;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(flag) : "memory");
  return x;
}
/* Stores to another GPU. */
NUM void ptx_push(u64 *to, u64 x) { *to = x; }
NUM void ptx_push(uint4 *to, uint4 x) { *to = x; }
/* Makes this thread's writes visible to the host and all GPUs. */
NUM void ptx_fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
NUM u64 ptx_nanoseconds() {
  u64 x;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(x)::"memory");
  return x;
}

#endif
