/* op_maps.h - the tensor maps of an op's launch: the matrices that a kernel variant loads by TMA, and the sizes of the TMA boxes.
 *
 * A variant takes maps when its SPEC_MAPS is not 0. The shapes follow from the op's arguments, the variant's constants and the launch's
 * rows; gpu_tensor makes maps from them, and the emulator of the tests uses them directly. Read next: kernels_src/ptx/tensor_map.h. */
#ifndef VERBATIM_OP_MAPS_H
#define VERBATIM_OP_MAPS_H
#include "base/base.h"
#include "gpu/jit.h"
#include "kernels_src/ptx/tensor_map.h"

/* Whether a kernel with these constants takes maps. */
bool op_maps_taken(const jit_spec *specs, uint32_t spec_count);

/* The shapes of tensor_maps.w and .x; one that the variant does not use is a copy of the other. args: the op's argument struct, with
 * addresses of the backend that runs it. rows: launch rows, at least 1. */
void op_maps(uint32_t kernel, const jit_spec *specs, uint32_t spec_count, const void *args, uint32_t rows, tensor_shape shapes[2]);

#endif
