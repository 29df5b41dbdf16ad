/* norm_runs.c - see norm_runs.h. */
#include "tests/kernel/norm_runs.h"
#include "engine/base/base.h"
#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES 4096u
#define TOP_K_MAX 11u

static void *take(u8 **at, size_t bytes) {
  u8 *taken = *at;
  *at += align_up(bytes, 16) + 16;
  return taken;
}

/* Random sizes and a random choice of what is added. */
static u8 *draw_step(norm_run *run, u32 number, u32 rows_max, u32 columns, cases *c) {
  rank_norm_args *a = &run->steps[number];
  step_in *in = (step_in *)(run->base + number * sizeof *in);
  u8 *at = run->base + run->zone_at;
  const u32 rows = cases_below(c, rows_max + 1), part = 4 * (1 + cases_below(c, columns / run->ranks / 4)), kind = cases_below(c, 4);
  *in = (step_in){.token_count = rows};
  *a = (rank_norm_args){.step = in, .dim = part * run->ranks, .part = part, .y_stride = part * run->ranks + 4 * cases_below(c, 2),
                        .eps = 1e-6f, .delta_scale = cases_below(c, 3) ? 1 : 0.3f, .y_scale = 1, .count = run->ranks, .nth = number,
                        .top_k = kind ? 1 + cases_below(c, TOP_K_MAX) : 0};
  a->x = a->x_out = take(&at, (size_t)rows * a->dim * 4);
  if (kind != 1) a->delta = take(&at, (size_t)rows * part * 4);
  if (kind) a->experts = take(&at, (size_t)rows * a->top_k * part * 4);
  if (kind) a->pair_row = take(&at, (size_t)rows * a->top_k * 4);
  if (kind) a->topk_weight = take(&at, (size_t)rows * a->top_k * 4);
  a->weight = take(&at, a->dim * 2);
  a->y = take(&at, (size_t)rows * a->y_stride * 2);
  a->ranks = norm_runs_ranks(run, 0);
  a->state = (u32 *)(run->base + HEAD_BYTES - 64);
  a->inbox = run->base + HEAD_BYTES;
  run->grid[number] = rows + cases_below(c, 3);
  if (run->grid[number] == 0) run->grid[number] = 1;
  return at;
}

exchange_ranks *norm_runs_ranks(const norm_run *run, u32 rank) {
  return (exchange_ranks *)(run->base + rank * run->area_bytes + NORM_STEPS_MAX * sizeof(step_in));
}

void norm_runs_open(norm_run *run, u32 ranks, u32 count, u32 rows, u32 columns, u32 seed) {
  cases c = {.state = seed};
  *run = (norm_run){.ranks = ranks, .count = count, .seed = seed, .expected_step = UINT32_MAX};
  ASSERT(ranks <= NORM_RANKS_MAX && count <= NORM_STEPS_MAX);
  _Static_assert(NORM_STEPS_MAX * sizeof(step_in) + sizeof(exchange_ranks) <= HEAD_BYTES - 64, "the head of an area");
  run->zone_bytes = (size_t)align_up((size_t)rows * columns * 4 * (4 + TOP_K_MAX) + columns * 2 + 4096, 4096);
  run->zone_at = (size_t)align_up(HEAD_BYTES + EXCHANGE_INBOX_BYTES(ranks), 4096);
  run->area_bytes = run->zone_at + run->zone_bytes;
  run->base = calloc(ranks, run->area_bytes); /* of which pages that nobody touches cost nothing */
  run->expected = malloc(ranks * run->zone_bytes);
  ASSERT(run->base && run->expected && cpu_pool_open(&run->pool, 1) == OK);
  for (u32 i = 0; i < count; i++) {
    const u8 *end = draw_step(run, i, rows, columns, &c);
    ASSERT((size_t)(end - run->base) <= run->area_bytes);
  }
  for (u32 r = 0; r < ranks; r++) {
    memmove(run->base + r * run->area_bytes, run->base, NORM_STEPS_MAX * sizeof(step_in));
    exchange_ranks *table = norm_runs_ranks(run, r);
    *table = (exchange_ranks){.rank = r, .count = ranks};
    for (u32 p = 0; p < ranks; p++) table->peer[p] = ((u64)p - r) * run->area_bytes;
  }
}

void norm_runs_close(norm_run *run) {
  cpu_pool_close(run->pool);
  free(run->base);
  free(run->expected);
}

/* Pointers of `a`, moved by `zone_by` if they are into the zone, else by `head_by`. */
static rank_norm_args moved(const norm_run *run, const rank_norm_args *a, u64 head_by, u64 zone_by) {
  u64 words[sizeof *a / 8];
  rank_norm_args out;
  memcpy(words, a, sizeof *a);
  for (u32 i = 0; i < offsetof(rank_norm_args, dim) / 8; i++)
    if (words[i]) words[i] += words[i] - (u64)(uintptr_t)run->base >= run->zone_at ? zone_by : head_by;
  memcpy(&out, words, sizeof out);
  return out;
}

rank_norm_args norm_runs_args(const norm_run *run, u32 step, u32 rank, u64 base) {
  const u64 by = base + rank * run->area_bytes - (u64)(uintptr_t)run->base;
  return moved(run, &run->steps[step], by, by);
}

rank_norm_args norm_runs_args_in(const norm_run *run, u32 step, u8 *zone) {
  return moved(run, &run->steps[step], 0, (u64)(uintptr_t)zone - (u64)(uintptr_t)(run->base + run->zone_at));
}

static void fill_floats(cases *c, const f32 *at, u32 count) {
  f32 *out = (f32 *)(uintptr_t)at;
  for (u32 i = 0; i < count; i++) out[i] = ldexpf(cases_uniform(c, 1), (int)cases_below(c, 12) - 6);
}

/* x, the routing and the weights are the same on all ranks. */
void norm_runs_fill(const norm_run *run, u32 step, u32 rank, u8 *zone) {
  const rank_norm_args a = norm_runs_args_in(run, step, zone);
  const u32 rows = a.step->token_count, pairs = rows * a.top_k;
  cases all = {.state = (u64)run->seed << 32 ^ (u64)step << 16}, own = {.state = all.state ^ (rank + 1)};
  memset(zone, 0xff, run->zone_bytes);
  fill_floats(&all, a.x, rows * a.dim);
  for (u32 i = 0; i < a.dim; i++) {
    bf16 *weight = (bf16 *)(uintptr_t)a.weight + i;
    *weight = cases_pack(cases_below(&all, 2), (i32)cases_below(&all, 3) - 1, cases_bits(&all));
  }
  if (a.experts) fill_floats(&all, a.topk_weight, pairs);
  for (u32 i = 0; i < pairs; i++) ((u32 *)(uintptr_t)a.pair_row)[i] = (pairs - 1 - i + step) % pairs;
  if (a.delta) fill_floats(&own, a.delta, rows * a.part);
  if (a.experts) fill_floats(&own, a.experts, pairs * a.part);
}

/* In lockstep. */
static void expect(norm_run *run, u32 step) {
  for (u32 r = 0; r < run->ranks; r++) norm_runs_fill(run, step, r, run->expected + r * run->zone_bytes);
  for (u32 r = 0; r < run->ranks; r++) {
    rank_norm_args a = norm_runs_args_in(run, step, run->expected + r * run->zone_bytes);
    exchange_ranks ranks = {.rank = r, .count = run->ranks};
    for (u32 p = 0; p < run->ranks; p++) ranks.peer[p] = ((u64)p - r) * run->zone_bytes;
    a.ranks = &ranks;
    cpu_rank_norm(&a, run->pool);
  }
  run->expected_step = step;
}

size_t norm_runs_wrong(norm_run *run, u32 step, u32 rank, const u8 *zone) {
  if (run->expected_step != step) expect(run, step);
  const u8 *expected = run->expected + rank * run->zone_bytes;
  size_t i = 0;
  if (memcmp(zone, expected, run->zone_bytes) == 0) return run->zone_bytes;
  while (zone[i] == expected[i]) i++;
  return i;
}
