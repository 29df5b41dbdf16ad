/* test_q_rope.c - q_rope: nope columns rounded, rope columns rotated behind the latent ones, which stay; both forms of pairs, with and
 * without a scale of the query; against the text and binary64. */
#include "kernel_test.h"

static void rope_case(kernel_test *test, u32 tokens, u32 heads, u32 nope, u32 rope, u32 rank, u32 half_split, bool scaled) {
  cases c = {.state = tokens * 1000003u + heads * 131 + nope + rank};
  enum { LENGTH = 100 };
  u32 width = rank + rope, stride = heads * (nope + rope) + 4;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, tokens, 0, 0);
  f32 *src = kernel_test_input(test, (size_t)(tokens + 2) * stride * 4), *cos_sin = kernel_test_input(test, (size_t)LENGTH * rope * 4);
  f32 *q_scale = scaled ? kernel_test_input(test, LENGTH * 4) : NULL;
  u32 *position = kernel_test_input(test, (tokens + 2) * 4);
  bf16 *q_nope = kernel_test_output(test, (size_t)(tokens + 2) * heads * nope * 2);
  bf16 *q_latent = kernel_test_output(test, (size_t)(tokens + 2) * heads * width * 2);
  kernel_test_keep(test, q_nope + (size_t)tokens * heads * nope, (size_t)2 * heads * nope * 2);
  kernel_test_keep(test, q_latent + (size_t)tokens * heads * width, (size_t)2 * heads * width * 2);
  for (u32 i = 0; i < tokens * heads; i++) kernel_test_keep(test, q_latent + (size_t)i * width, rank * 2);
  kernel_test_floats(&c, src, (size_t)tokens * stride, 8);
  kernel_test_floats(&c, cos_sin, (size_t)LENGTH * rope, 1);
  for (u32 i = 0; i < LENGTH && scaled; i++) q_scale[i] = 1 + 0.1f * (f32)i;
  for (u32 t = 0; t < tokens; t++) position[t] = cases_below(&c, LENGTH);
  position[0] = LENGTH - 1;
  q_rope_args args = {.step = step, .src = src, .cos_sin = cos_sin, .position = position, .q_nope = q_nope, .q_latent = q_latent};
  args.src_stride = stride;
  args.heads = heads;
  args.nope_dim = nope;
  args.rope_dim = rope;
  args.kv_lora_rank = rank;
  args.half_split = half_split;
  args.q_scale = q_scale;
  kernel_variant variants[] = {{.grid = {tokens, 1, 1}, .threads = 256}, {.grid = {tokens + 1, 1, 1}, .threads = 256}};
  kernel_test_run(test, &args, variants, 2);
  for (u32 i = 0; i < tokens * heads; i++) {
    const f32 *in = src + (size_t)(i / heads) * stride + (size_t)(i % heads) * (nope + rope);
    const f32 *turn = cos_sin + (size_t)position[i / heads] * rope;
    const bf16 *out = q_latent + (size_t)i * width + rank;
    const f32 scale = scaled ? q_scale[position[i / heads]] : 1;
    for (u32 j = 0; j < nope; j++) assert_int_equal(q_nope[(size_t)i * nope + j], num_to_bf16(in[j] * scale));
    for (u32 j = 0; j < rope / 2; j++) {
      u32 even = half_split ? j : 2 * j, odd = half_split ? j + rope / 2 : 2 * j + 1;
      f32 a = in[nope + even], b = in[nope + odd], cosine = turn[2 * j], sine = turn[2 * j + 1];
      assert_int_equal(out[even], num_to_bf16(fmaf(a, cosine, -(b * sine)) * scale));
      assert_int_equal(out[odd], num_to_bf16(fmaf(a, sine, b * cosine) * scale));
      double x = (double)a * (double)cosine - (double)b * (double)sine, y = (double)a * (double)sine + (double)b * (double)cosine;
      kernel_test_near((double)num_from_bf16(out[even]), x * (double)scale, 0x1.02p-8, 2e-5);
      kernel_test_near((double)num_from_bf16(out[odd]), y * (double)scale, 0x1.02p-8, 2e-5);
    }
  }
}

static void rope_cases(kernel_test *test) {
  static const u32 tokens[] = {1, 3, 33};
  for (u32 i = 0; i < ARRAY_LEN(tokens); i++) {
    for (u32 form = 0; form < 4; form++) {
      rope_case(test, tokens[i], 1, 32, 32, 256, form % 2, form / 2);
      rope_case(test, tokens[i], 9, 128, 64, 512, form % 2, form / 2);
      rope_case(test, tokens[i], 16, 64, 32, 256, form % 2, form / 2);
    }
  }
  rope_case(test, 2, 128, 128, 64, 512, 0, false);
  rope_case(test, 3, 40, 64, 32, 256, 1, false); /* MiniCPM3 */
  rope_case(test, 3, 32, 64, 64, 256, 0, true);  /* Mistral 4 */
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "q_rope", rope_cases); }
