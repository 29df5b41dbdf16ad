/* weights/e4m3.h - matrices of e4m3 codes with a scale for every block of 128 x 128, as bf16 numbers.
 *
 * Used for kv_b_proj, the only weight that is not multiplied in its stored form, e4m3. Knows no files and no plans. NUMERICS.md, "Scaled
 * e4m3", defines the codes. Read next: weights.c. */
#ifndef VERBATIM_WEIGHTS_E4M3_H
#define VERBATIM_WEIGHTS_E4M3_H
#include "base/base.h"

/* Scales of a matrix: [ceil(rows / 128)][ceil(cols / 128)]. */
uint32_t weights_e4m3_blocks(uint32_t count);

/* out[row][col] = bf16(fp32(codes[row][col]) * scale[row / 128][col / 128]), the product rounded to fp32 first. scales: fp32 of any
 * alignment. */
void weights_e4m3_widen(const uint8_t *codes, const uint8_t *scales, uint32_t rows, uint32_t cols, uint16_t *out);

#endif
