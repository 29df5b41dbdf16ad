/* kernel.cpp - one kernel's text as the emulator runs it. Compiled once per kernel and set of constants, by configure.py:
 * EMULATED_TEXT is the path of the text, EMULATED_ENTRY the name its entry point gets instead of its stem, EMULATED_STEM,
 * EMULATED_SPEC and EMULATED_FLAW what emulator.h says; a text of clusters defines KERNEL_CLUSTER. Must not know any op.
 * Read next: emulator.h. */
#include "emulator.h"
#include "ptx.cuh" /* before the text: its own include of this name is empty then */
#include EMULATED_TEXT
#ifndef KERNEL_CLUSTER
#define KERNEL_CLUSTER 1u
#endif

template <class A> static void call(void (*kernel)(A), const void *args, const tensor_maps *) { kernel(*static_cast<const A *>(args)); }
template <class A> static void call(void (*kernel)(A, const tensor_maps), const void *args, const tensor_maps *maps) {
  kernel(*static_cast<const A *>(args), *maps);
}
static void entry(const void *args, const tensor_maps *maps) { call(EMULATED_ENTRY, args, maps); }

static emulator_kernel self = {EMULATED_STEM, EMULATED_SPEC, EMULATED_FLAW, SPEC_THREADS, KERNEL_CLUSTER, entry, nullptr};
[[maybe_unused]] static const bool added = (emulator_add(&self), true);
