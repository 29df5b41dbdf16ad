/* boxes.h - the tensor maps of products: which matrices the forms for small and large M load, and by which TMA boxes.
 *
 * "few" is the form for small M (kernels_src/gemm/small_m.cuh), "many" the one for large M (large_m.cuh); the head comments of the kernels
 * give their boxes. Maps are stated in bf16 numbers; boxes_of_bytes turns one into a map of e4m3 codes. Read next:
 * kernels_src/ptx/tensor_map.h. */
#ifndef VERBATIM_BOXES_H
#define VERBATIM_BOXES_H
#include "ops/op.h"

/* `count` matrices of [rows][columns] bf16 numbers, with rows `stride` numbers apart and matrices `matrix_stride` apart, loaded by boxes of
 * 64 columns, box_rows rows and box_matrices matrices. */
tensor_shape boxes_matrices(const void *address, uint64_t columns, uint64_t rows, uint64_t count, uint64_t stride, uint64_t matrix_stride,
                            uint32_t box_rows, uint32_t box_matrices);

/* Replaces bf16 numbers by twice as many e4m3 numbers. */
tensor_shape boxes_of_bytes(tensor_shape pairs);

/* Weights of the small-M form, in bf16; and in e4m3 codes. */
tensor_shape boxes_few_weights(const op_variant *v, const void *w, uint32_t n, uint32_t k, uint32_t count, uint64_t w_batch,
                               uint32_t y_kind);
tensor_shape boxes_few_codes(const op_variant *v, const void *w, uint32_t n, uint32_t k, uint32_t count, uint32_t y_kind);

/* Weights of the large-M form; rows of weights, and of tokens, that a CTA loads by one box. */
bool boxes_is_many(const op_variant *v);
uint32_t boxes_many_w(const op_variant *v);
uint32_t boxes_many_x(const op_variant *v, bool scaled);
tensor_shape boxes_many_weights(const void *w, uint32_t n, uint32_t k, uint32_t count, uint64_t w_batch, uint32_t y_kind, uint32_t box);

/* For matrices that a launch reads once, at memory bandwidth: L2 then fetches 128 bytes at a time. */
void boxes_read_once(tensor_shape shapes[2]);

#endif
