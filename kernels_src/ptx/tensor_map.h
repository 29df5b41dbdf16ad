/* tensor_map.h - the driver's description of a matrix in memory, by which TMA loads whole boxes of it.
 *
 * A kernel variant with SPEC_MAPS > 0 takes tensor_maps as its second parameter; engine/gpu/op_maps.c says what each map describes. Shared
 * by the host (C11) and the kernels (CUDA C under NVRTC). */
#ifndef VERBATIM_TENSOR_MAP_H
#define VERBATIM_TENSOR_MAP_H
#include "step.h"

/* Filled by cuTensorMapEncodeTiled alone. */
typedef struct tensor_map {
#ifdef __cplusplus
  alignas(128) u64 words[16];
#else
  _Alignas(128) u64 words[16];
#endif
} tensor_map;

/* The host's description of a matrix, or of several consecutive ones: bf16 numbers or bytes, dims 2 to 5, columns first. The emulator of
 * the tests uses it as the map itself. */
typedef struct tensor_shape {
  u64 address;         /* a multiple of 16                                              */
  u64 extent[5];       /* columns, rows, matrices, ...: boxes.c says which dimensions   */
  u64 stride_bytes[5]; /* [0] of a number, 2 or 1; of the others: multiples of 16       */
  u32 box[5];          /* of one load, at most 256 each; columns: 128 bytes if swizzled */
  u32 dims;
  u32 swizzled;        /* 1: 16-byte pieces of the 128-byte rows are permuted by the row number modulo 8 */
  u32 l2_bytes;        /* fetched by L2 from memory at a time: 128 or 256 */
} tensor_shape;

typedef struct tensor_maps {
  tensor_map w; /* the operand that a step only reads: weights, KV rows */
  tensor_map x; /* the operand that an op of this step made             */
} tensor_maps;

#endif
