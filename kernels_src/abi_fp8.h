/* abi_fp8.h - a part of abi.h: the formats of e4m3 numbers, and the ops that make and multiply them.
 *
 * NUMERICS.md, "Scaled e4m3". Read next: gemm/act_quant.cu, gemm/fp8_gemm.cu. */
#ifndef VERBATIM_ABI_FP8_H
#define VERBATIM_ABI_FP8_H
#include "step.h"

/* Numbers that share a scale, and the kind of scale: their largest magnitude / 448, or the power of two at or above that. */
#define SCALE_COLUMNS 128u
enum scale_kind { SCALE_F32 = 0, SCALE_POW2 = 1 };

/* Blocks of 128 k in one MMA of a small-M product, by the weight rows of its tile and the blocks of a stage; and in one TMA box of weights.
 * Gate rows of a tile for Y_SILU, and as many up rows: whole groups of eight where a box has two blocks. */
#define FP8_MMA_BLOCKS(tile_n, k_blocks) ((tile_n) <= 32u && (k_blocks) % 2u == 0 ? 2u : 1u)
#define FP8_BOX_BLOCKS(tile_n, k_blocks) ((tile_n) > 8u ? FP8_MMA_BLOCKS(tile_n, k_blocks) : 1u)
#define FP8_HALF(tile_n, k_blocks) (FP8_BOX_BLOCKS(tile_n, k_blocks) == 1u ? (tile_n) / 2u : (tile_n) / 16u * 8u)

/* A KV row: bf16; or e4m3 latent columns, an fp32 scale for every 128 of them, bf16 rope columns; or e4m3 with one scale for the layer. */
enum kv_format { KV_BF16 = 0, KV_FP8_DS_MLA = 1, KV_FP8 = 2 };
#define KV_ROW_BYTES(kv_format, rank, rope)                                                        \
  ((kv_format) == KV_BF16 ? ((rank) + (rope)) * 2u : (kv_format) == KV_FP8 ? (rank) + (rope)      \
                                                   : (rank) + (rank) / SCALE_COLUMNS * 4u + (rope) * 2u)

/* Rows of bf16 numbers as scaled e4m3. */
typedef struct act_quant_args {
  const step_in *step;
  const bf16 *x;   /* [rows][ldx]                            */
  u8 *codes;       /* [rows][columns]                        */
  f32 *scales;     /* [rows][columns / 128]                  */
  u32 rows_kind, ldx, columns; /* columns a multiple of 128  */
  u32 rows_mul;    /* rows are the step's times this: 1, or top_k for experts */
  u32 scale_kind, pad;
} act_quant_args;

/* y[row][n] = the sum over 128 k each of H32(x[row][:], w[n][:]) times both scales, as y_kind says. */
typedef struct fp8_gemm_args {
  const step_in *step;
  const u8 *x;            /* [rows][k]                    */
  const f32 *x_scale;     /* [rows][k / 128]              */
  const u8 *w;            /* [n][k]                       */
  const f32 *w_scale;     /* [ceil(n / 128)][k / 128]     */
  void *y;                /* [rows][ldy]                  */
  u32 ldy;                /* elements between rows        */
  u32 n, k;               /* k a multiple of 128, n of 8; for Y_SILU n / 2 of 128 */
  u32 rows_kind;
  u32 y_kind;
  u32 order;              /* small M only, see gemm_args  */
} fp8_gemm_args;

/* The same for sorted rows, each with its expert's weights. */
typedef struct fp8_moe_gemm_args {
  const step_in *step;
  const u32 *expert_first; /* [experts + 1]                            */
  const u32 *row_token;    /* [T * top_k] or null: the row itself      */
  const u8 *x;             /* [.][k]                                   */
  const f32 *x_scale;      /* [.][k / 128]                             */
  const u8 *w;             /* [experts][n][k]                          */
  const f32 *w_scale;      /* [experts][ceil(n / 128)][k / 128]        */
  void *y;                 /* [T * top_k][n], n / 2 for Y_SILU         */
  u32 n, k, experts, top_k;
  u32 y_kind;              /* Y_F32 or Y_SILU                          */
  u32 pad;
} fp8_moe_gemm_args;

#endif
