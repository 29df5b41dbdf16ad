/* test_mla_fold.c - mla_fold: units of one chunk and of one group, positions at every edge; against the fold by the text.
 * test_mla_attn checks what the units hold. */
#include "attn_cases.h"

typedef struct fold_shape { u32 tokens, heads, rank, chunk_tokens, group_chunks, unit_chunks, units_max; } fold_shape;

static void load(const mla_fold_args *a, u32 token, u32 head, u32 unit, attn_result *r) {
  size_t at = ((size_t)token * a->units_max + unit) * a->heads + head;
  r->m = a->partial_ml[2 * at];
  r->l = a->partial_ml[2 * at + 1];
  memcpy(r->o, a->partial_o + at * a->kv_lora_rank, a->kv_lora_rank * sizeof(f32));
}

static void check_query(const mla_fold_args *a, u32 token, u32 head) {
  u32 units = a->position[token] / (a->unit_chunks * a->chunk_tokens) + 1;
  u32 per_group = a->unit_chunks == 1 ? a->group_chunks : 1;
  attn_result total = {0}, group = {0}, unit;
  for (u32 u = 0; u < units; u++) {
    load(a, token, head, u, &unit);
    if (u % per_group == 0)
      group = unit;
    else
      attn_fold(&group, &unit, a->kv_lora_rank);
    if (u % per_group != per_group - 1 && u != units - 1) continue;
    if (u < per_group)
      total = group;
    else
      attn_fold(&total, &group, a->kv_lora_rank);
  }
  for (u32 i = 0; i < a->kv_lora_rank; i++) {
    bf16 got = a->out[((size_t)token * a->heads + head) * a->kv_lora_rank + i];
    assert_int_equal(got, num_to_bf16(total.o[i] * (1 / total.l) + 0.0f));
  }
}

static void fold_case(kernel_test *test, const fold_shape *s) {
  cases c = {.state = s->tokens * 1000003u + s->heads * 31 + s->rank + s->unit_chunks};
  u32 unit_tokens = s->unit_chunks * s->chunk_tokens;
  size_t slots = (size_t)s->tokens * s->units_max * s->heads, outputs = (size_t)s->tokens * s->heads * s->rank;
  kernel_test_start(test);
  mla_fold_args args = {.step = kernel_test_step(test, s->tokens, 0, 1)};
  u32 *position = kernel_test_input(test, (s->tokens + 1) * 4);
  f32 *o = kernel_test_input(test, slots * s->rank * 4), *ml = kernel_test_input(test, slots * 8);
  bf16 *out = kernel_test_output(test, (outputs + s->heads * s->rank) * 2);
  kernel_test_keep(test, out + outputs, (size_t)s->heads * s->rank * 2);
  for (u32 t = 0; t < s->tokens; t++) {
    position[t] = t == 0 ? s->units_max * unit_tokens - 1 : t == 1 ? 0 : t == 2 ? unit_tokens : cases_below(&c, s->units_max * unit_tokens);
    for (u32 u = 0; u <= position[t] / unit_tokens; u++) { /* the other units stay poison */
      for (u32 h = 0; h < s->heads; h++) {
        size_t at = ((size_t)t * s->units_max + u) * s->heads + h;
        ml[2 * at] = (f32)((i32)cases_below(&c, h % 2 ? 4 : 160) - 20); /* close, or so far apart that a factor is 0 at times */
        ml[2 * at + 1] = cases_uniform(&c, 30) + 31;
        kernel_test_floats(&c, o + at * s->rank, s->rank, 50);
      }
    }
  }
  args.position = position;
  args.partial_o = o;
  args.partial_ml = ml;
  args.out = out;
  args.heads = s->heads;
  args.kv_lora_rank = s->rank;
  args.chunk_tokens = s->chunk_tokens;
  args.group_chunks = s->group_chunks;
  args.unit_chunks = s->unit_chunks;
  args.units_max = s->units_max;
  kernel_variant variants[] = {{.grid = {s->tokens, s->heads, 1}, .threads = 128}, {.grid = {s->tokens + 1, s->heads, 1}, .threads = 128}};
  kernel_test_run(test, &args, variants, 2);
  for (u32 i = 0; i < s->tokens * s->heads; i++) check_query(&args, i / s->heads, i % s->heads);
}

static void fold_cases(kernel_test *test) {
  static const fold_shape shapes[] = {
      {1, 1, 256, 64, 1, 1, 1},   {4, 2, 256, 64, 4, 1, 9},   {5, 16, 512, 128, 2, 2, 5}, {3, 128, 512, 256, 8, 1, 4},
      {17, 4, 256, 512, 3, 3, 8}, {2, 1, 512, 64, 16, 1, 33}, {6, 8, 256, 64, 1, 1, 7},
      {12, 32, 512, 64, 2, 1, 8}, /* enough outputs for the grouping of the fold to show in bf16 */
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) fold_case(test, &shapes[i]);
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "mla_fold", fold_cases); }
