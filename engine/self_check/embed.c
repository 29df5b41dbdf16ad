/* self_check/embed.c - the probes of the op `embed` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* Forms 0 and 1: without a scale, with one. */
static void build(self_check_image *image) {
  enum { HIDDEN = 1032, VOCAB = 5, SLOTS = 2, PADDED = PLACED + 1 }; /* 129 vectors of 16 bytes for 128 threads */
  embed_args a = {.step = take_step(image, PLACED, 0, 0), .hidden = HIDDEN, .vocab = VOCAB, .block_table_stride = 3};
  i32 *token = take(image, PADDED * 4), *sampled = take(image, SLOTS * 4);
  bf16 *table = take(image, VOCAB * HIDDEN * 2);
  take_places(image, &few_places, &a.position, &a.seq, &a.block_table);
  token[0] = VOCAB - 1;
  token[1] = -2; /* the token sampled for slot 1 */
  token[2] = 0;
  sampled[0] = 1;
  sampled[1] = 3;
  fill_bf16(image, table, VOCAB * HIDDEN, -127, 254);
  a.token = token;
  a.sampled = sampled;
  a.table = table;
  a.x = take(image, PADDED * HIDDEN * 4);
  a.history = take(image, PLACED_PAGES * PAGE_TOKENS * 4);
  a.scale = image->form ? 0.3f : 1.0f;
  LAUNCH(image, a, PADDED, 1, 1);
}

static const self_check_probe probes[] = {
    {0, 0, 0, 0, "unscaled", "2e29f200ed1ae0f06308f15c0d658b8d"},
    {0, 1, 0, 0, "scaled", "d61a84edb2cf96b6405d4318c02ebd7b"},
};

const self_check_op self_check_embed = {build, ARRAY_LEN(probes), probes};
