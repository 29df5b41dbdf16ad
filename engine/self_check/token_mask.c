/* self_check/token_mask.c - the probe of the op `token_mask` and its known answer. See self_check/cases.h. */
#include "self_check/images.h"

/* Rows: with the second mask; without one; with the first. The vocabulary ends inside a word. */
#define MASK_ROWS 3u

static void build(self_check_image *image) {
  enum { VOCAB = 9000, WORDS = 284 }; /* more words than the threads of a block take in one round */
  token_mask_args a = {.step = take_step(image, 1, MASK_ROWS, 0), .vocab = VOCAB, .words = WORDS};
  sample_param *param = take(image, (MASK_ROWS + 1) * sizeof *param);
  u32 *masks = take(image, 2 * WORDS * 4);
  f32 *adjusted = take(image, (MASK_ROWS + 1) * VOCAB * 4);
  for (u32 i = 0; i < MASK_ROWS; i++) {
    param[i] = PLAIN;
    param[i].adjusted = 1;
    param[i].mask = i == 1 ? 0 : 2 - i / 2;
  }
  for (u32 i = 0; i < 2 * WORDS; i++) masks[i] = (u32)random_bits(image);
  fill_f32(image, adjusted, MASK_ROWS * VOCAB, -4, 9);
  a.param = param;
  a.masks = masks;
  a.adjusted = adjusted;
  LAUNCH(image, a, MASK_ROWS + 1, 1, 1);
}

static const self_check_probe probes[] = {
    {29, 0, 0, 0, "two masks and a row without", "683633b2f155eb51f0a3a28df879a93f"},
};

const self_check_op self_check_token_mask = {build, ARRAY_LEN(probes), probes};
