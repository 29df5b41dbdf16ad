/* emulator.h - runs the text of a GPU kernel on the CPU: the interface for the harness of the kernel tests.
 *
 * kernel.cpp, compiled once per kernel and set of SPEC constants, adds a row to the list below; emulator.cpp emulates the GPU. C and C++.
 * Memory belongs to the caller: the argument struct holds host addresses, as for the CPU reference. One launch at a time. README.md says
 * what a passing run means. Read next: cuda_c.h, emulator.cpp. */
#ifndef VERBATIM_EMULATOR_H
#define VERBATIM_EMULATOR_H
#include "abi.h"
#include "ptx/tensor_map.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct emulator_kernel emulator_kernel;
struct emulator_kernel {
  const char *stem;
  const char *spec; /* "-DSPEC_THREADS=128u -DSPEC_TILE_N=64u ...", in the order of the test's variant                    */
  const char *flaw; /* "", or the fault planted in this copy of the text: some case must find it different        */
  u32 threads;
  u32 cluster, cluster_x; /* blocks that share memory: of `cluster` in all, cluster_x along x and the others along y; 1: none */
  void (*entry)(const void *args, const tensor_maps *maps);
  emulator_kernel *next;
  u64 seed;    /* 0: blocks in order; else of a random order of blocks, and of what is on its way between ranks (links.h) */
  u64 idle_ns; /* pass when all threads poll in vain; 0: that is a fault */
};

/* Weak: null in a program without kernels. */
emulator_kernel *emulator_kernels(void) __attribute__((weak));
void emulator_add(emulator_kernel *kernel); /* before main; kept, not copied */

/* Consecutive launches that run threads in each of three orders with each of two orders of copies: a fault may show in one of them alone.
 * */
#define EMULATOR_ORDERS 6

/* Runs every block of the grid, one cluster after the other. Returns null, or the rule of a GPU that the kernel broke. maps: for a kernel
 * that takes them; each holds a tensor_shape. */
const char *emulator_run(const emulator_kernel *kernel, const u32 grid[3], u32 shared_bytes, const void *args,
                         const tensor_maps *maps) __attribute__((weak));

/* Ranks that exchange: the entry of a kernel that a test makes, whose grid is [blocks][ranks] and whose cluster is all of it, stands for a
 * stream of launches on each rank. Every thread calls these. emulator_launch: one launch of `grid` blocks. emulator_end: once all threads
 * of the rank are here, one of them calls between. */
void emulator_place(u32 *block, u32 *rank) __attribute__((weak));
void emulator_launch(const emulator_kernel *kernel, u32 grid, const void *args) __attribute__((weak));
void emulator_end(void (*between)(void *context, u32 rank), void *context) __attribute__((weak));

#ifdef __cplusplus
}
#endif
#endif
