/* test_mla_fold.c - mla_fold: units of every size of piece, interleaved units of a tile's tokens, tokens without units; against the
 * combination that NUMERICS.md defines. test_mla_attn checks the content of the units. */
#include "attn/attn_cut.h"
#include "attn_cases.h"
#include <stdlib.h>

/* chunks: of the longest token. per_tile: number of tokens whose units are interleaved. v_dim: 0 without the products. */
typedef struct fold_shape { u32 tokens, heads, rank, group_chunks, piece, chunks, per_tile, v_dim; } fold_shape;

static void load(const mla_fold_args *a, const attn_part *part, u32 head, u32 unit, attn_result *r) {
  size_t at = (part->first + (size_t)unit * part->step) * a->heads + head;
  r->m = a->partial_ml[2 * at];
  r->l = a->partial_ml[2 * at + 1];
  memcpy(r->o, a->partial_o + at * a->kv_lora_rank, a->kv_lora_rank * sizeof(f32));
}

static void check_query(const mla_fold_args *a, const attn_part *part, u32 head) {
  u32 piece = a->counts->piece_chunks;
  u32 per_group = piece < a->group_chunks ? 1 + a->group_chunks - piece : 1;
  attn_result total = {0}, group = {0}, unit;
  for (u32 u = 0; u < part->units; u++) {
    load(a, part, head, u, &unit);
    if (u % per_group == 0)
      group = unit;
    else
      attn_fold(&group, &unit, a->kv_lora_rank);
    if (u % per_group != per_group - 1 && u != part->units - 1) continue;
    if (u < per_group)
      total = group;
    else
      attn_fold(&total, &group, a->kv_lora_rank);
  }
  for (u32 i = 0; i < a->kv_lora_rank; i++) {
    bf16 got = a->out[((size_t)part->token * a->heads + head) * a->kv_lora_rank + i];
    assert_int_equal(got, num_to_bf16(total.o[i] * (1 / total.l) + 0.0f));
  }
}

/* Units are discarded, so that a second read of them is noticed; only those of a token that is lifted stay. Not checked on a GPU, where
 * discarded lines may hold anything, including their old content. */
static void check_units(const mla_fold_args *a, const attn_part *part, u32 head) {
  for (u32 u = 0; u < part->units; u++) {
    u32 bits;
    memcpy(&bits, a->partial_o + ((size_t)(part->first + u * part->step) * a->heads + head) * a->kv_lora_rank, sizeof bits);
    assert_int_equal(bits == UINT32_MAX, !a->lifts);
  }
}

static void fill_unit(cases *c, const fold_shape *s, f32 *o, f32 *ml, size_t row) {
  for (u32 h = 0; h < s->heads; h++) {
    size_t at = row * s->heads + h;
    ml[2 * at] = (f32)((i32)cases_below(c, h % 2 ? 4 : 160) - 20); /* close, or so far apart that a factor is sometimes 0 */
    ml[2 * at + 1] = cases_uniform(c, 30) + 31;
    kernel_test_floats(c, o + at * s->rank, s->rank, 50);
  }
}

/* The first tile has the longest context; every third one is not split. Slots without a unit stay poison. Returns the number of parts:
 * tokens of the last tiles come first. */
static u32 fill_parts(cases *c, const fold_shape *s, attn_part *parts, f32 *o, f32 *ml) {
  u32 slot = 1, count = 0, tiles = (s->tokens + s->per_tile - 1) / s->per_tile;
  for (u32 tile = tiles; tile-- > 0;) {
    u32 chunks = tile == 0 ? s->chunks : tile % 3 == 1 ? s->piece : s->piece + 1 + cases_below(c, s->chunks - s->piece);
    u32 units = attn_cut_units(chunks, s->piece, s->group_chunks);
    for (u32 i = 0; i < s->per_tile && units && tile * s->per_tile + i < s->tokens; i++) {
      parts[count++] = (attn_part){.token = tile * s->per_tile + i, .first = slot + i, .step = s->per_tile, .units = units};
      for (u32 u = 0; u < units; u++) fill_unit(c, s, o, ml, slot + i + (size_t)u * s->per_tile);
    }
    slot += units * s->per_tile;
  }
  return count;
}

static void check_lifted(const mla_fold_args *a, u32 item) {
  const bf16 *w = a->w_uv + (size_t)(item % a->heads) * a->v_dim * a->kv_lora_rank, *latent = a->out + (size_t)item * a->kv_lora_rank;
  for (u32 i = 0; i < a->v_dim; i++)
    assert_int_equal(a->value[(size_t)item * a->v_dim + i],
                     num_to_bf16(kernel_test_chain(latent, w + (size_t)i * a->kv_lora_rank, 1, a->kv_lora_rank, 0)));
}

/* fold_lift.cuh. The rows of tokens that are not split exist before the op. */
static void take_products(kernel_test *test, const fold_shape *s, cases *c, mla_fold_args *a) {
  const size_t row = (size_t)s->heads * s->v_dim, weights = row * s->rank, values = s->tokens * row;
  bf16 *w_uv = kernel_test_input(test, weights * 2);
  kernel_test_bf16s(c, w_uv, weights, 2);
  a->lifts = 1;
  a->v_dim = s->v_dim;
  a->w_uv = w_uv;
  a->value = kernel_test_output(test, (values + row) * 2);
  kernel_test_keep(test, a->value + values, row * 2);
}

static void run_lifting(kernel_test *test, const mla_fold_args *a, u32 tokens) {
  static const u32 tiles[][3] = {{16, 8, 2}, {24, 2, 4}}; /* weight rows, blocks of k, stages */
  kernel_variant variants[3];
  for (u32 i = 0; i < ARRAY_LEN(variants); i++) {
    const u32 *tile = tiles[i % 2], ring = tile[1] * tile[2] * 128, behind = max_u32((64 - tile[0]) * 128, (tile[0] + 4) * 32);
    variants[i] = (kernel_variant){{{"SPEC_MAPS", 1}, {"SPEC_TILE_N", tile[0]}, {"SPEC_TILE_ROWS", 1}, {"SPEC_K_BLOCKS", tile[1]},
                                    {"SPEC_STAGES", tile[2]}},
                                   .spec_count = 5, .grid = {i == 2 ? 1 : 5 + 2 * i, 1, 1}, .threads = 192, .rows = tokens,
                                   .shared_bytes = 2048 + (u32)align_up(ring, 1024) + ring * tile[0] + behind};
  }
  kernel_test_run(test, a, variants, ARRAY_LEN(variants));
  for (u32 i = 0; i < tokens * a->heads; i++) check_lifted(a, i);
}

static void fold_case(kernel_test *test, const fold_shape *s) {
  cases c = {.state = s->tokens * 1000003u + s->heads * 31 + s->rank + s->piece};
  size_t slots = (size_t)s->tokens * s->chunks + 1, outputs = (size_t)s->tokens * s->heads * s->rank, row = (size_t)s->heads * s->rank;
  kernel_test_start(test);
  mla_fold_args args = {.step = kernel_test_step(test, s->tokens, 0, 1)};
  attn_part *parts = kernel_test_input(test, (s->tokens + 1) * sizeof *parts);
  f32 *o = kernel_test_scratch(test, slots * s->heads * s->rank * 4), *ml = kernel_test_input(test, slots * s->heads * 8);
  bf16 *out = kernel_test_output(test, (outputs + row) * 2);
  attn_counts *counts = kernel_test_input(test, sizeof *counts);
  bool is_cut[64] = {false};
  *counts = (attn_counts){.parts = fill_parts(&c, s, parts, o, ml), .piece_chunks = s->piece};
  kernel_test_keep(test, out + outputs, row * 2);
  for (u32 i = 0; i < counts->parts; i++) {
    is_cut[parts[i].token] = true;
    counts->units_most = parts[i].units > counts->units_most ? parts[i].units : counts->units_most;
  }
  for (u32 t = 0; t < s->tokens; t++)
    if (!is_cut[t]) kernel_test_keep(test, out + t * row, row * 2);
  if (s->v_dim) {
    for (u32 t = 0; t < s->tokens; t++)
      if (!is_cut[t]) kernel_test_bf16s(&c, out + t * row, row, 3);
    take_products(test, s, &c, &args);
  }
  args.counts = counts;
  args.parts = parts;
  args.partial_o = o;
  args.partial_ml = ml;
  args.out = out;
  args.heads = s->heads;
  args.kv_lora_rank = s->rank;
  args.group_chunks = s->group_chunks;
  kernel_variant variants[] = {{.grid = {1, 1, 1}, .threads = 256}, {.grid = {7, 1, 1}, .threads = 256}};
  const size_t unit_bytes = slots * s->heads * s->rank * sizeof(f32);
  mla_fold_args judged = args;
  judged.partial_o = malloc(unit_bytes);
  assert_non_null(judged.partial_o);
  memcpy(judged.partial_o, o, unit_bytes);
  if (s->v_dim) run_lifting(test, &args, s->tokens);
  else kernel_test_run(test, &args, variants, 2);
  for (u32 i = 0; i < counts->parts * s->heads; i++) check_query(&judged, &parts[i / s->heads], i % s->heads);
  for (u32 i = 0; i < counts->parts * s->heads && !kernel_test_on_gpu(test); i++) check_units(&args, &parts[i / s->heads], i % s->heads);
  free(judged.partial_o);
}

static void fold_cases(kernel_test *test) {
  static const fold_shape shapes[] = {
      {1, 1, 256, 1, 1, 2, 1, 0},    {4, 2, 256, 4, 1, 9, 1, 0},   {6, 16, 512, 2, 2, 10, 2, 0}, {3, 128, 512, 8, 1, 12, 1, 0},
      {17, 4, 256, 3, 3, 24, 1, 0},  {2, 1, 512, 16, 1, 33, 1, 0}, {6, 8, 256, 1, 1, 7, 3, 0},   {5, 3, 256, 8, 4, 30, 1, 0},
      {40, 2, 256, 8, 16, 90, 4, 0},
      {1, 1, 256, 8, 1, 72, 1, 0}, /* several groups in one round */
      {1, 16, 512, 8, 1, 4, 1, 128}, {4, 3, 256, 3, 2, 20, 1, 64}, {2, 5, 512, 8, 1, 33, 1, 256},
      {36, 32, 512, 2, 1, 8, 1, 0}, /* enough outputs for the order of the combination to show in bf16 */
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) fold_case(test, &shapes[i]);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "mla_fold", "c602783ea4767e191fdf31487c38b04f", fold_cases);
}
