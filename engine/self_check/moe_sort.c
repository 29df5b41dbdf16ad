/* self_check/moe_sort.c - the probes of the op `moe_sort` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* Form 0: one block sorts. 1: three share the pairs. 2: and copy the tokens' rows. */
static void build(self_check_image *image) {
  enum { TOKENS = 200, TOP_K = 6, PAIRS = TOKENS * TOP_K, EXPERTS = 64 }; /* more pairs than threads */
  moe_sort_args a = {.step = take_step(image, TOKENS, 0, 0), .experts = EXPERTS, .top_k = TOP_K};
  u32 *id = take(image, (PAIRS + TOP_K) * 4);
  for (u32 t = 0; t < TOKENS; t++) /* ascending and distinct; the first experts have the most tokens, some experts have none */
    for (u32 k = 0; k < TOP_K; k++)
      id[t * TOP_K + k] = k == 0 ? random_below(image, 3) : id[t * TOP_K + k - 1] + 1 + random_below(image, t % 2 ? 2 : 11);
  a.topk_id = id;
  a.expert_first = take(image, (EXPERTS + 1) * 4);
  a.row_token = take(image, (PAIRS + TOP_K) * 4);
  a.pair_row = take(image, (PAIRS + TOP_K) * 4);
  if (image->form == 2) {
    a.columns = 24;
    bf16 *x = take(image, (TOKENS + 1) * a.columns * 2);
    fill_bf16(image, x, TOKENS * a.columns, -3, 6);
    a.x = x;
    a.x_sorted = take(image, (PAIRS + TOP_K) * a.columns * 2);
  }
  LAUNCH(image, a, image->form ? 3 : 1, 1, 1);
}

static const self_check_probe probes[] = {
    {9, 0, 0, 0, "more pairs than threads", "b408f51fde3abdc53aaa8f6737624412"},
    {17, 1, 0, 0, "pairs of three blocks", "dfbd9a0fc93d5f6e1d8b0072cfb2dce0"},
    {17, 2, 0, 0, "rows of pairs", "cfa844173c9dd9b215a05bd6513ed594"},
};

const self_check_op self_check_moe_sort = {build, ARRAY_LEN(probes), probes};
