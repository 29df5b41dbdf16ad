/* gemm_lt.h - cuBLASLt as a source of GEMM kernels whose algorithm is plan data, never a choice made at run time.
 *
 * gemm_lt.c is the only file that calls cuBLASLt (libcublasLt, opened at run time). It computes
 *   y[row][n] = sum over k of x[row][k] * w[n][k]     bf16 in, fp32 accumulation, y fp32 or bf16
 * with an algorithm given in full (64 bytes valid for one library version). This file does not know whether an algorithm gives the bits of
 * NUMERICS.md: `verbatim probe` tests that, and the engine checks again at start-up. Read next: cli/probe.c, exec.c. */
#ifndef VERBATIM_GEMM_LT_H
#define VERBATIM_GEMM_LT_H
#include "base/base.h"
#include "base/dynlib.h"
#include "gpu/gpu.h"

typedef struct gemm_lt gemm_lt;

typedef struct gemm_lt_shape {
  uint32_t n, k;     /* w: [n][k] bf16, contiguous       */
  uint32_t ldx, ldy; /* elements between rows of x and y */
  uint32_t y_f32;    /* 1: y is f32, 0: bf16             */
  uint32_t pad;
} gemm_lt_shape;

typedef struct gemm_lt_algo {
  uint64_t words[8];        /* as in plan_gemm.algo */
  uint64_t workspace_bytes; /* bytes that it needs  */
} gemm_lt_algo;

/* A shape with its algorithm, ready to run: the library's descriptors, made in place. Plain memory; nothing to release. */
typedef struct gemm_lt_op {
  gemm_lt_shape shape;
  gemm_lt_algo algo;
  uint64_t desc[32], w[8], x[8], y[8];
} gemm_lt_op;

/* Opens the library and creates its handle on the current context. ERR_DEVICE: not found, or it has another interface. [start-up] */
status gemm_lt_open(gpu *device, const dynlib_search *search, gemm_lt **out);
void gemm_lt_close(gemm_lt *self); /* before gpu_close; null is allowed */

/* The library's path and version, without creating a handle: works without a GPU. ERR_DEVICE as for gemm_lt_open. */
status gemm_lt_find(const dynlib_search *search, char path[DYNLIB_PATH_MAX], uint64_t *version);
uint64_t gemm_lt_version(const gemm_lt *self);

/* Fills op. ERR_DEVICE: the library refuses the shape. No memory is allocated. [start-up] */
status gemm_lt_prepare(gemm_lt *self, const gemm_lt_shape *shape, const gemm_lt_algo *algo, gemm_lt_op *op);

/* Asks the library whether op's algorithm can run `rows` rows, and how much workspace it needs. ERR_DEVICE: it cannot. [start-up] */
status gemm_lt_check(gemm_lt *self, gemm_lt_op *op, uint32_t rows, uint64_t *workspace_bytes);

/* Puts the product of `rows` rows on the stream; may be captured once the same op has run outside a capture. Addresses are device
 * addresses, multiples of 16; workspace a multiple of 256 with at least algo.workspace_bytes. ERR_DEVICE: the library refuses. op's layouts
 * are changed (their row count), so an op belongs to one thread. No device memory is allocated. */
status gemm_lt_run(gemm_lt *self, gemm_lt_op *op, gpu_stream *stream, uint32_t rows, uint64_t x, uint64_t w, uint64_t y,
                   uint64_t workspace);

/* An algorithm's configuration, in the library's numbers. split_k > 1 or a reduction: it adds partial sums in another order. */
typedef struct gemm_lt_config {
  uint32_t id, tile, stages, split_k, reduction, swizzle, custom, cluster;
} gemm_lt_config;
gemm_lt_config gemm_lt_config_of(const gemm_lt *self, const gemm_lt_algo *algo);

/* Lists algorithms for `rows` rows and at most workspace_max bytes, without duplicates, at most algos_max of them. [start-up] offered: the
 * answers of the library's heuristic under several preferences, split-K included.
 * tiles: for the algorithm's id every tile and number of stages, each with the first custom option that the library accepts and a few
 * clusters. near: every custom option and cluster with the algorithm's tile and stages.
 * splits: the algorithm with every split-K that it supports. */
typedef enum gemm_lt_list_kind { GEMM_LT_TILES, GEMM_LT_NEAR, GEMM_LT_SPLITS } gemm_lt_list_kind;
status gemm_lt_offered(gemm_lt *self, const gemm_lt_shape *shape, uint32_t rows, uint64_t workspace_max, gemm_lt_algo *algos,
                       uint32_t algos_max, uint32_t *count);
status gemm_lt_list(gemm_lt *self, const gemm_lt_shape *shape, uint32_t rows, uint64_t workspace_max, gemm_lt_list_kind kind,
                    const gemm_lt_algo *like, gemm_lt_algo *algos, uint32_t algos_max, uint32_t *count);

#endif
