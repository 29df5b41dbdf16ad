/* kv_rows.h - reads a KV row of any format as bf16 numbers, which all consumers use. NUMERICS.md "KV rows".
 *
 * Internal to engine/cpu: mla_attn.c gathers blocks of rows; qkv_rope.c writes them. */
#ifndef VERBATIM_CPU_KV_ROWS_H
#define VERBATIM_CPU_KV_ROWS_H
#include <string.h>
#include "cpu/rows.h"

static inline bf16 kv_rows_value(u8 code, f32 scale) { return num_to_bf16(num_mul(num_from_e4m3(code), scale)); } /* R4.11, R4.12 */

/* row: the bytes of one row; out: rank + rope numbers. kv_scale: for KV_FP8. */
static inline void kv_rows_read(const u8 *row, u32 kv_format, const f32 *kv_scale, u32 rank, u32 rope, bf16 *out) {
  if (kv_format == KV_BF16) {
    memcpy(out, row, (rank + rope) * sizeof *out);
  } else if (kv_format == KV_FP8) {
    for (u32 i = 0; i < rank + rope; i++) out[i] = kv_rows_value(row[i], *kv_scale);
  } else {
    const u8 *scales = row + rank;
    for (u32 i = 0; i < rank; i++) {
      f32 scale;
      memcpy(&scale, scales + i / SCALE_COLUMNS * sizeof scale, sizeof scale);
      out[i] = kv_rows_value(row[i], scale);
    }
    memcpy(out + rank, scales + rank / SCALE_COLUMNS * sizeof(f32), rope * sizeof *out);
  }
}

static inline void kv_rows_write(const bf16 *row, u32 kv_format, const f32 *kv_scale, u32 scale_kind, u32 rank, u32 rope, u8 *to) {
  if (kv_format == KV_BF16) {
    memcpy(to, row, (rank + rope) * sizeof *row);
  } else if (kv_format == KV_FP8) {
    for (u32 i = 0; i < rank + rope; i++) to[i] = num_to_e4m3(num_div(num_from_bf16(row[i]), *kv_scale));
  } else {
    for (u32 i = 0; i < rank; i += SCALE_COLUMNS) {
      f32 latent[SCALE_COLUMNS];
      for (u32 j = 0; j < SCALE_COLUMNS; j++) latent[j] = num_from_bf16(row[i + j]);
      f32 scale = rows_quantise(to + i, latent, SCALE_COLUMNS, scale_kind);
      memcpy(to + rank + i / SCALE_COLUMNS * sizeof scale, &scale, sizeof scale);
    }
    memcpy(to + rank + rank / SCALE_COLUMNS * sizeof(f32), row + rank, rope * sizeof *row);
  }
}

#endif
