/* kernel.cpp - the text of one kernel for the emulator. Compiled once per kernel and set of constants, by configure.py.
 *
 * EMULATED_TEXT is the path of the text, EMULATED_ENTRY the name that replaces its stem as entry point, EMULATED_STEM, EMULATED_SPEC and
 * EMULATED_FLAW are fields of emulator.h. A text with clusters defines KERNEL_CLUSTER, and KERNEL_CLUSTER_X if they lie along x; one whose
 * blocks wait for each other without being a cluster defines KERNEL_TOGETHER, their number. Must not know any op. Read next: emulator.h. */
#include "emulator.h"
#include "ptx.cuh" /* before the text, whose own include of this name is then empty */
#include EMULATED_TEXT
#ifdef KERNEL_TOGETHER /* they run concurrently, like those of a cluster */
#define KERNEL_CLUSTER KERNEL_TOGETHER
#define KERNEL_CLUSTER_X KERNEL_TOGETHER
#endif
#ifndef KERNEL_CLUSTER
#define KERNEL_CLUSTER 1u
#endif
#ifndef KERNEL_CLUSTER_X
#define KERNEL_CLUSTER_X 1u
#endif

template <class A> static void call(void (*kernel)(A), const void *args, const tensor_maps *) { kernel(*static_cast<const A *>(args)); }
template <class A> static void call(void (*kernel)(A, const tensor_maps), const void *args, const tensor_maps *maps) {
  kernel(*static_cast<const A *>(args), *maps);
}
static void entry(const void *args, const tensor_maps *maps) { call(EMULATED_ENTRY, args, maps); }

static emulator_kernel self = {EMULATED_STEM, EMULATED_SPEC, EMULATED_FLAW, SPEC_THREADS, KERNEL_CLUSTER, KERNEL_CLUSTER_X, entry, nullptr,
                               0, 0};
[[maybe_unused]] static const bool added = (emulator_add(&self), true);
