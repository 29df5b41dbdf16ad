/* self_check/sample.c - the probes of the op `sample` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"
#include <float.h>
#include "base/limits.h"

/* Ten ways to choose or score a token, one per row. */
#define SAMPLE_ROWS 10u

static void choose_params(sample_param *param, u32 vocab) {
  for (u32 i = 0; i < SAMPLE_ROWS; i++) {
    param[i] = PLAIN;
    param[i].seed = 0x0123456789abcdefu * (i + 1);
    param[i].position = 1001 + i;
    param[i].sample_index = i % 3;
    param[i].slot = (i + 4) % SAMPLE_ROWS;
    param[i].temperature = i ? 1.0f : 0;
    param[i].top_count = i % 3 == 0 ? TOP_LOGPROBS_MAX : i % 3;
  }
  param[2].temperature = 0.7f;
  param[2].top_k = 40;
  param[2].top_p_fixed = 0xe6666666u;
  param[3].min_p_bound = -1; /* a limit that many tokens meet exactly */
  param[4].temperature = 0;
  param[1].adjusted = param[4].adjusted = param[5].adjusted = 1;
  param[5].top_p_fixed = 0x80000000u;
  param[5].temperature = 3;
  param[6].target = (i32)vocab - 2;
  param[8].top_p_fixed = 0x60000000u;
  param[9].target = 1;
}

/* Form 0: more logits than threads: ties, adjusted rows with bans, a scored row, a flat row, a sampled row with NaN and a scored row with
 * Inf. 1: fewer logits than alternatives. */
static void build(self_check_image *image) {
  const u32 vocab = image->form ? 8 : 1100, numbers = SAMPLE_ROWS * vocab;
  sample_args a = {.step = take_step(image, 1, SAMPLE_ROWS, 0), .vocab = vocab};
  f32 *logits = take(image, (SAMPLE_ROWS + 1) * vocab * 4ull), *adjusted = take(image, (SAMPLE_ROWS + 1) * vocab * 4ull);
  sample_param *param = take(image, (SAMPLE_ROWS + 1) * sizeof *param);
  for (u32 i = 0; i < numbers; i++) { /* -8 .. 8; rows 0 and 3 on a coarse grid, row 8 flat */
    i32 n = (i32)random_below(image, 1u << 24) - (1 << 23);
    logits[i] = i < vocab || i / vocab == 3 ? (f32)(n >> 21) : i / vocab == 8 ? 2.5f : (f32)n * 0x1p-20f;
    adjusted[i] = random_below(image, 3) ? logits[i] + (f32)(n & 7) * 0.25f : -INFINITY;
  }
  adjusted[4 * vocab + 1] = adjusted[4 * vocab + 5] = FLT_MAX;
  logits[7 * vocab + vocab / 2] = num_float(0x7fc00000u);
  logits[9 * vocab] = -INFINITY;
  choose_params(param, vocab);
  a.logits = logits;
  a.adjusted = adjusted;
  a.param = param;
  a.sampled = take(image, SAMPLE_ROWS * 4);
  a.result = take(image, (SAMPLE_ROWS + 1) * sizeof *a.result);
  a.top = take(image, (SAMPLE_ROWS + 1) * TOP_LOGPROBS_MAX * sizeof *a.top);
  LAUNCH(image, a, SAMPLE_ROWS + 1, ROW_BLOCKS, 1);
}

static const self_check_probe probes[] = {
    {12, 0, 0, 0, "more logits than threads", "15d3492f0bb87a8c8393f9a10dd15fe5"},
    {12, 1, 0, 0, "few logits", "c27a058d7419e35f20f2c62ebe3ec7cb"},
};

const self_check_op self_check_sample = {build, ARRAY_LEN(probes), probes};
