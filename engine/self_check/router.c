/* self_check/router.c - the probes of the op `router` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"
#include "base/limits.h"

/* Form 0: sigmoid, groups by their two best, bias, normalised; logits that tie. 1: softmax, no groups. 2: softmax, groups by their
 * best, unnormalised. 3: as 0, with so few different numbers that the last chosen expert, and the last group, tie with others. */
static void build(self_check_image *image) {
  enum { TOKENS = 5 }; /* four tokens a block */
  static const router_args forms[] = {
    {.experts = 64, .top_k = 8, .groups = 8, .top_groups = 4, .scoring = ROUTER_SIGMOID, .group_mode = ROUTER_GROUP_TOP2, .normalise = 1,
     .scale = 2.5f},
    {.experts = 33, .top_k = 6, .groups = 1, .top_groups = 1, .scoring = ROUTER_SOFTMAX, .group_mode = ROUTER_GROUP_NONE, .normalise = 1,
     .scale = 1},
    {.experts = 160, .top_k = 6, .groups = 8, .top_groups = 3, .scoring = ROUTER_SOFTMAX, .group_mode = ROUTER_GROUP_MAX,
     .scale = 16},
  };
  const bool tied = image->form == 3, sorts = image->form >= 4; /* 4: softmax, tokens in one block, and their pairs sorted; 5: one token */
  router_args a = forms[tied ? 0 : sorts ? 1 : image->form];
  const u32 tokens = image->form == 5 ? 1 : sorts ? 15 : TOKENS;
  a.step = take_step(image, tokens, 0, 0);
  f32 *logits = take(image, (tokens + 1) * a.experts * 4ull), *bias = take(image, a.experts * 4ull);
  fill_f32(image, logits, tokens * a.experts, -3, 6);
  for (u32 i = 0; i < tokens * a.experts && image->form == 0; i++)
    if (random_below(image, 2)) logits[i] = (f32)random_below(image, 4) * 0.5f;
  for (u32 i = 0; i < tokens * a.experts && tied; i++) logits[i] = (f32)random_below(image, i / a.experts + 1) * 0.5f;
  for (u32 i = 0; i < a.experts; i++) bias[i] = tied ? 0.25f : (f32)random_below(image, 3) * 0.25f;
  a.logits = logits;
  a.bias = image->form == 0 || tied ? bias : NULL;
  a.topk_id = take(image, (tokens + 1) * a.top_k * 4ull);
  a.topk_weight = take(image, (tokens + 1) * a.top_k * 4ull);
  a.sorts = sorts;
  if (sorts) {
    a.expert_first = take(image, (a.experts + 1) * 4ull);
    a.row_token = take(image, (tokens + 1) * a.top_k * 4ull);
    a.pair_row = take(image, (tokens + 1) * a.top_k * 4ull);
  }
  LAUNCH(image, a, (u32)div_up(tokens, 4) + 1, 1, 1);
}

static const self_check_probe probes[] = {
    {8, 0, 0, 0, "sigmoid, groups by two", "ab5bc9cfa30bcf46bab3d2c178315156"},
    {8, 1, 0, 0, "softmax", "da4577f26d82badfeaa17e3fadd31232"},
    {8, 2, 0, 0, "softmax, groups by one", "fb3335f8aa55902b3a9cdfe2cef504c3"},
    {8, 3, 0, 0, "sigmoid, ties at the limits", "584812a943a6d3ca711903333bcc738f"},
    {8, 4, 0, 0, "pairs sorted", "03422b9a989db7f0c50bbf0b32d4d1e9"},
    {8, 5, 0, 0, "pairs of one token", "1ed6269aabea670ae5d5fd93c76f027d"},
};

const self_check_op self_check_router = {build, ARRAY_LEN(probes), probes};
