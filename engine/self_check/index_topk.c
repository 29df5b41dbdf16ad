/* self_check/index_topk.c - the probes of the op `index_topk` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* Form 0: a cluster for each row, after other rows of the step; rows no longer than a list, and longer ones. 1: one cluster for three rows:
 * one longer than a block can hold, one shorter than a list, one so long that all blocks share it. 2: a row longer than all blocks can
 * hold. 3: one cluster for more rows than blocks. 4: a row with more scores than a block has bits for. 5: rows for parts of blocks. Scores
 * lie on a grid and tie at every limit, many of them zeros of both signs; some are NaN, in one row more than a list holds. */
static void build(self_check_image *image) {
  enum { TOPK = 64, ROWS = 18 };
  static const struct { u32 rows, length[ROWS]; } forms[] = {
    {5, {513, 65, 1000, 3, 1531}}, {3, {INDEX_TOPK_HELD + 601, 63, 2 * INDEX_TOPK_HELD + 1}}, {1, {8 * INDEX_TOPK_HELD + 901}},
    {9, {64, 301, 402, 63, 2, 64, 65, 500, 1203}}, {1, {150001}},
    {18, {300, 65, 511, 302, 513, 99, 70, 1025, 200, 128, 401, 66, 640, 333, 222, 111, 444, 555}}};
  const u32 form = image->form, rows = forms[form].rows, *length = forms[form].length, first = form ? 0 : 2;
  u32 longest = 0;
  for (u32 i = 0; i < rows; i++) longest = max_u32(longest, length[i]);
  index_topk_args a = {.step = take_step(image, first + rows, 0, 0), .topk = TOPK, .stride = (u32)align_up(longest, 64), .row_first = first,
                       .row_count = rows + !form};
  f32 *scores = take(image, (u64)rows * a.stride * 4);
  u32 *position = take(image, (first + rows + 1) * 4);
  for (u32 i = 0; i < first; i++) position[i] = longest - 1;
  for (u32 i = 0; i < rows; i++) {
    position[first + i] = length[i] - 1;
    for (u32 n = 0; n < length[i] && length[i] > TOPK; n++) {
      const u32 r = random_below(image, 1u << 24);
      f32 score = (f32)((i32)(r & 31) - 16) * 0.25f;
      if (r & 32) score = r & 64 ? -0.0f : 0.0f;
      if (form == 2 || form == 4) score = num_float(0x3f800000u | r >> 4) * ((r & 15) ? 1.0f : -1.0f); /* all bits are needed to order
                                                                                                          them */
      if (form == 0 && i == 2) score = r & 64 ? (f32)n : -1.0f;                           /* the best ones last */
      if (form == 4 && n % 2500 == 7) score = n % 5000 == 7 ? 3 : 2; /* ties among the scores after the first 65,536 */
      if (form != 4 && (r >> 8) % (form == 0 && i == 0 ? 5 : 997) == 0) score = num_float(r & 1 ? 0x7fc00000u : 0xffc00000u);
      scores[(u64)i * a.stride + n] = score;
    }
  }
  a.scores = scores;
  a.position = position;
  a.lists = take(image, (first + rows + 1) * TOPK * 4ull);
  LAUNCH(image, a, form % 2 ? 1 : rows + 1, ROW_BLOCKS, 1);
}

static const self_check_probe probes[] = {
    {19, 0, 0, 0, "a cluster a row", "9f33aaf57571caa790fbb2d33d4a0a50"},
    {19, 1, 0, 0, "a cluster for rows alone and shared", "bdd8d68184eac9f2a3c48edaa47bb43c"},
    {19, 2, 0, 0, "more scores than blocks keep", "4648ef4f2b9ec1c98ff40a8265b9c303"},
    {19, 3, 0, 0, "a cluster for more rows than blocks", "f7faf7de9abaafae51b827203abf2bde"},
    {19, 4, 0, 0, "more scores than a block has bits for", "79c1ec6574297fe1aef9bfee70ab7f87"},
    {19, 5, 0, 0, "rows for parts of blocks", "898e3525c81f857e63bd5fc52817a03c"},
};

const self_check_op self_check_index_topk = {build, ARRAY_LEN(probes), probes};
