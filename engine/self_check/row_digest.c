/* self_check/row_digest.c - the probes of the op `row_digest` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

static void build(self_check_image *image) {
  enum { ROWS = 2, WORDS = 1100, STRIDE = 1104 };
  row_digest_args a = {.step = take_step(image, 1, ROWS, 0), .rows_kind = ROWS_LOGITS, .words = WORDS, .stride = STRIDE};
  u32 *x = take(image, (ROWS + 1) * STRIDE * 4);
  for (u32 i = 0; i < ROWS * STRIDE; i++) x[i] = (u32)random_bits(image);
  a.x = x;
  a.digest = take(image, (ROWS + 1) * 8);
  LAUNCH(image, a, ROWS + 1, ROW_BLOCKS, 1);
}

static const self_check_probe probes[] = {
    {13, 0, 0, 0, "more words than threads", "d5bb6d42031b277b929322f43109572d"},
};

const self_check_op self_check_row_digest = {build, ARRAY_LEN(probes), probes};
