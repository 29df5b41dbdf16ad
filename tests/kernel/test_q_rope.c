/* test_q_rope.c - q_rope: nope columns rounded, rope columns rotated behind the latent ones, which stay; against the text and
 * binary64. */
#include "kernel_test.h"

static void rope_case(kernel_test *test, u32 tokens, u32 heads, u32 nope, u32 rope, u32 rank) {
  cases c = {.state = tokens * 1000003u + heads * 131 + nope + rank};
  enum { LENGTH = 100 };
  u32 width = rank + rope, stride = heads * (nope + rope) + 4;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, tokens, 0, 0);
  f32 *src = kernel_test_input(test, (size_t)(tokens + 2) * stride * 4), *cos_sin = kernel_test_input(test, (size_t)LENGTH * rope * 4);
  u32 *position = kernel_test_input(test, (tokens + 2) * 4);
  bf16 *q_nope = kernel_test_output(test, (size_t)(tokens + 2) * heads * nope * 2);
  bf16 *q_latent = kernel_test_output(test, (size_t)(tokens + 2) * heads * width * 2);
  kernel_test_keep(test, q_nope + (size_t)tokens * heads * nope, (size_t)2 * heads * nope * 2);
  kernel_test_keep(test, q_latent + (size_t)tokens * heads * width, (size_t)2 * heads * width * 2);
  for (u32 i = 0; i < tokens * heads; i++) kernel_test_keep(test, q_latent + (size_t)i * width, rank * 2);
  kernel_test_floats(&c, src, (size_t)tokens * stride, 8);
  kernel_test_floats(&c, cos_sin, (size_t)LENGTH * rope, 1);
  for (u32 t = 0; t < tokens; t++) position[t] = cases_below(&c, LENGTH);
  position[0] = LENGTH - 1;
  q_rope_args args = {.step = step, .src = src, .cos_sin = cos_sin, .position = position, .q_nope = q_nope, .q_latent = q_latent};
  args.src_stride = stride;
  args.heads = heads;
  args.nope_dim = nope;
  args.rope_dim = rope;
  args.kv_lora_rank = rank;
  kernel_variant variants[] = {{.grid = {tokens, 1, 1}, .threads = 256}, {.grid = {tokens + 1, 1, 1}, .threads = 256}};
  kernel_test_run(test, &args, variants, 2);
  for (u32 i = 0; i < tokens * heads; i++) {
    const f32 *in = src + (size_t)(i / heads) * stride + (size_t)(i % heads) * (nope + rope);
    const f32 *turn = cos_sin + (size_t)position[i / heads] * rope;
    const bf16 *out = q_latent + (size_t)i * width + rank;
    for (u32 j = 0; j < nope; j++) assert_int_equal(q_nope[(size_t)i * nope + j], num_to_bf16(in[j]));
    for (u32 j = 0; j < rope; j += 2) {
      const f32 *pair = in + nope + j;
      assert_int_equal(out[j], num_to_bf16(fmaf(pair[0], turn[j], -(pair[1] * turn[j + 1]))));
      assert_int_equal(out[j + 1], num_to_bf16(fmaf(pair[0], turn[j + 1], pair[1] * turn[j])));
      double a = (double)in[nope + j], b = (double)in[nope + j + 1], cosine = (double)turn[j], sine = (double)turn[j + 1];
      kernel_test_near((double)num_from_bf16(out[j]), a * cosine - b * sine, 0x1.02p-8, 2e-6);
      kernel_test_near((double)num_from_bf16(out[j + 1]), a * sine + b * cosine, 0x1.02p-8, 2e-6);
    }
  }
}

static void rope_cases(kernel_test *test) {
  static const u32 tokens[] = {1, 3, 33};
  for (u32 i = 0; i < ARRAY_LEN(tokens); i++) {
    rope_case(test, tokens[i], 1, 32, 32, 256);
    rope_case(test, tokens[i], 9, 128, 64, 512);
    rope_case(test, tokens[i], 16, 64, 32, 256);
  }
  rope_case(test, 2, 128, 128, 64, 512);
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "q_rope", rope_cases); }
