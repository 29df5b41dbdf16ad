/* test_kv_write.c - kv_write: rows land in their page and slot, nothing else of the KV memory changes; both forms of pairs; against
 * the text and binary64. */
#include "kernel_test.h"

static void write_case(kernel_test *test, u32 tokens, u32 rank, u32 rope, u32 half_split) {
  cases c = {.state = tokens * 1000003u + rank + rope};
  enum { PAGES = 12, SEQS = 3, STRIDE = 4, LENGTH = 256 };
  u32 width = rank + rope, stride = width + 4;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, tokens, 0, 0);
  f32 *src = kernel_test_input(test, (size_t)(tokens + 2) * stride * 4), *cos_sin = kernel_test_input(test, (size_t)LENGTH * rope * 4);
  bf16 *weight = kernel_test_input(test, rank * 2), *kv = kernel_test_output(test, (size_t)PAGES * PAGE_TOKENS * width * 2);
  u32 *position = kernel_test_input(test, (tokens + 2) * 4), *seq = kernel_test_input(test, (tokens + 2) * 4);
  u32 *table = kernel_test_input(test, SEQS * STRIDE * 4);
  u8 written[PAGES * PAGE_TOKENS] = {0};
  kernel_test_floats(&c, src, (size_t)tokens * stride, 3);
  kernel_test_floats(&c, cos_sin, (size_t)LENGTH * rope, 1);
  kernel_test_bf16s(&c, weight, rank, 2);
  for (u32 i = 0; i < SEQS * STRIDE; i++) table[i] = (i * 5 + 3) % PAGES;
  for (u32 t = 0; t < tokens; t++) { /* consecutive positions of sequences in turn, across page edges */
    seq[t] = t % SEQS;
    position[t] = 60 + t / SEQS + 17 * seq[t];
    written[table[seq[t] * STRIDE + position[t] / 64] * PAGE_TOKENS + position[t] % 64] = 1;
  }
  for (u32 i = 0; i < PAGES * PAGE_TOKENS; i++) {
    if (!written[i]) kernel_test_keep(test, kv + (size_t)i * width, width * 2);
  }
  kv_write_args args = {.step = step, .src = src, .weight = weight, .cos_sin = cos_sin, .position = position, .seq = seq};
  args.block_table = table;
  args.kv = kv;
  args.src_stride = stride;
  args.kv_lora_rank = rank;
  args.rope_dim = rope;
  args.block_table_stride = STRIDE;
  args.eps = 1e-6f;
  args.half_split = half_split;
  kernel_variant variants[] = {{.grid = {tokens, 1, 1}, .threads = 256}, {.grid = {tokens + 2, 1, 1}, .threads = 256}};
  kernel_test_run(test, &args, variants, 2);
  for (u32 t = 0; t < tokens; t++) {
    const f32 *in = src + (size_t)t * stride, *turn = cos_sin + (size_t)position[t] * rope;
    const bf16 *row = kv + (size_t)(table[seq[t] * STRIDE + position[t] / 64] * PAGE_TOKENS + position[t] % 64) * width;
    double sum = 0;
    for (u32 i = 0; i < rank; i++) sum += (double)in[i] * (double)in[i];
    double factor = 1 / sqrt(sum / rank + 1e-6);
    f32 exact = kernel_test_norm(in, rank, 1e-6f);
    for (u32 i = 0; i < rank; i++) {
      assert_int_equal(row[i], num_to_bf16(in[i] * exact * num_from_bf16(weight[i])));
      kernel_test_near((double)num_from_bf16(row[i]), (double)in[i] * factor * (double)num_from_bf16(weight[i]), 0x1.02p-8, 1e-30);
    }
    for (u32 i = 0; i < rope / 2; i++) {
      u32 even = rank + (half_split ? i : 2 * i), odd = rank + (half_split ? i + rope / 2 : 2 * i + 1);
      f32 a = in[even], b = in[odd], cosine = turn[2 * i], sine = turn[2 * i + 1];
      assert_int_equal(row[even], num_to_bf16(fmaf(a, cosine, -(b * sine))));
      assert_int_equal(row[odd], num_to_bf16(fmaf(a, sine, b * cosine)));
      double x = (double)a * (double)cosine - (double)b * (double)sine, y = (double)a * (double)sine + (double)b * (double)cosine;
      kernel_test_near((double)num_from_bf16(row[even]), x, 0x1.02p-8, 1e-6);
      kernel_test_near((double)num_from_bf16(row[odd]), y, 0x1.02p-8, 1e-6);
    }
  }
}

static void write_cases(kernel_test *test) {
  static const u32 tokens[] = {1, 2, 17, 64, 130};
  for (u32 i = 0; i < ARRAY_LEN(tokens); i++) {
    for (u32 half_split = 0; half_split < 2; half_split++) {
      write_case(test, tokens[i], 512, 64, half_split);
      write_case(test, tokens[i], 256, 32, half_split);
      write_case(test, tokens[i], 256, 64, half_split);
    }
  }
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "kv_write", write_cases); }
