/* exchange_runs.c - see exchange_runs.h. */
#include "tests/kernel/exchange_runs.h"
#include "engine/base/base.h"
#include <stdlib.h>
#include <string.h>

static u64 word_of(const exchange_run *run, u32 step, u32 rank, u32 table, u32 i) {
  cases c = {.state = (u64)run->seed << 48 ^ (u64)step << 40 ^ (u64)rank << 36 ^ (u64)table << 34 ^ i};
  const u64 high = cases_bits(&c);
  return high << 32 | cases_bits(&c);
}

static u32 rows_of(const run_step *s) {
  return s->args.rows_kind == ROWS_LOGITS ? s->args.step->logit_count : s->args.step->token_count;
}

static u32 words_of(const run_step *s, u32 table) { return rows_of(s) * s->args.rows_mul[table] * (s->args.part_bytes[table] / 8); }

/* Of a rank's x and of its y, in tables at random places. */
typedef struct table_bytes {
  size_t x, y;
} table_bytes;

static table_bytes draw_table(const exchange_run *run, const run_limits *limits, run_step *s, u32 t, cases *c) {
  exchange_args *a = &s->args;
  const u32 part = 8 * (1 + cases_below(c, limits->part_units)), rows = rows_of(s);
  a->part_bytes[t] = part;
  a->rows_mul[t] = 1 + cases_below(c, 3);
  const u64 bytes = (u64)rows * a->rows_mul[t] * part;
  if (!EXCHANGE_HAS_OWN_ROWS(a->form)) return (table_bytes){(size_t)align_up(bytes, 16), (size_t)align_up(bytes * run->ranks, 16)};
  a->rows_mul[t] = 1;
  if (a->form == EXCHANGE_PARTS)
    return (table_bytes){(size_t)align_up((u64)rows * part * run->ranks, 16), (size_t)align_up((u64)rows * part, 16)};
  s->in_place[t] = cases_below(c, 2);
  a->y_stride[t] = (u32)align_up(part, 16) + 16 * cases_below(c, 2);
  a->x_stride[t] = s->in_place[t] ? run->ranks * a->y_stride[t] : part + 8 * cases_below(c, 3);
  const size_t own = s->in_place[t] ? 0 : (size_t)align_up((u64)STEP_OWN_ROWS(rows, 0u, run->ranks) * a->x_stride[t], 16);
  return (table_bytes){own, (size_t)align_up((u64)rows * a->y_stride[t], 16)};
}

/* By which x of a rank lies behind that of rank 0 in its area. */
static size_t x_step(const run_step *s, u32 table, u32 rank) {
  return s->in_place[table] ? (size_t)rank * s->args.y_stride[table] : 0;
}

/* Random sizes whose x and y fit into the zone, at random places in it: x and y of all tables in a random order of the two. */
static void draw_step(exchange_run *run, const run_limits *limits, u32 number, u32 form, cases *c) {
  run_step *s = &run->steps[number];
  exchange_args *a = &s->args;
  step_in *in = (step_in *)(run->base + number * sizeof *in);
  const u32 tables = 1 + cases_below(c, EXCHANGE_TABLES);
  size_t used = 0;
  *in = (step_in){.token_count = cases_below(c, limits->rows + 1), .logit_count = cases_below(c, limits->rows + 1)};
  *a = (exchange_args){.step = in, .rows_kind = cases_below(c, 2), .nth = number, .count = run->ranks};
  const bool wants_tags = form == 2 ? cases_below(c, 2) : form != 0;
  if (!wants_tags && a->rows_kind == ROWS_TOKENS) a->form = cases_below(c, 4);
  u8 *at = run->base + run->zone_at;
  for (u32 t = 0; t < tables; t++) {
    const u32 gap = 16 * cases_below(c, 4);
    const table_bytes bytes = draw_table(run, limits, s, t, c);
    if (used + gap + bytes.x + bytes.y + 16 > limits->zone_bytes || (bytes.x + bytes.y == 0 && t > 0)) {
      a->part_bytes[t] = a->rows_mul[t] = a->x_stride[t] = a->y_stride[t] = 0;
      s->in_place[t] = false;
      break;
    }
    const bool y_first = cases_below(c, 2);
    a->x[t] = at + used + gap + (y_first && !s->in_place[t] ? bytes.y : 0);
    a->y[t] = at + used + gap + (y_first ? 0 : bytes.x);
    used += gap + bytes.x + bytes.y;
  }
  a->ranks = (const exchange_ranks *)(run->base + RUN_STEPS_MAX * sizeof *in);
  a->state = (u32 *)(run->base + 4096 - 64);
  a->inbox = run->base + 4096;
  size_t words = 0;
  for (u32 t = 0; t < EXCHANGE_TABLES; t++) words += words_of(s, t);
  s->has_tags = wants_tags && words * 8 <= EXCHANGE_TAGGED_BYTES;
  s->grid = 1 + cases_below(c, limits->grid);
}

void exchange_runs_open(exchange_run *run, const run_limits *limits, u32 seed, u32 form) {
  cases c = {.state = seed};
  *run = (exchange_run){.ranks = limits->ranks, .count = limits->count, .seed = seed, .zone_bytes = limits->zone_bytes,
                        .expected_step = UINT32_MAX};
  ASSERT(run->ranks <= RUN_RANKS_MAX && run->count <= RUN_STEPS_MAX);
  _Static_assert(RUN_STEPS_MAX * sizeof(step_in) + sizeof(exchange_ranks) <= 4096 - 64, "the head of an area");
  run->zone_at = (size_t)align_up(4096 + EXCHANGE_INBOX_BYTES(run->ranks), 4096);
  run->area_bytes = (size_t)align_up(run->zone_at + run->zone_bytes, 4096);
  run->base = calloc(run->ranks, run->area_bytes); /* of which pages that nobody touches cost nothing */
  run->expected = malloc(run->ranks * run->zone_bytes);
  ASSERT(run->base && run->expected && cpu_pool_open(&run->pool, 1) == OK);
  for (u32 i = 0; i < run->count; i++) draw_step(run, limits, i, form, &c);
  for (u32 r = 0; r < run->ranks; r++) {
    u8 *area = run->base + r * run->area_bytes;
    exchange_ranks *ranks = (exchange_ranks *)(area + RUN_STEPS_MAX * sizeof(step_in));
    memcpy(area, run->base, RUN_STEPS_MAX * sizeof(step_in));
    *ranks = (exchange_ranks){.rank = r, .count = run->ranks, .sample_bits = seed % 2 ? EXCHANGE_SAMPLE_BITS : 0};
    for (u32 p = 0; p < run->ranks; p++) ranks->peer[p] = ((u64)p - r) * run->area_bytes;
  }
}

void exchange_runs_close(exchange_run *run) {
  cpu_pool_close(run->pool);
  free(run->base);
  free(run->expected);
}

exchange_args exchange_runs_args(const exchange_run *run, u32 step, u32 rank, u64 base) {
  exchange_args a = run->steps[step].args;
  u64 words[sizeof a / 8];
  memcpy(words, &a, sizeof a);
  for (u32 i = 0; i < offsetof(exchange_args, part_bytes) / 8; i++)
    if (words[i]) words[i] += base + rank * run->area_bytes - (u64)(uintptr_t)run->base;
  memcpy(&a, words, sizeof a);
  for (u32 t = 0; t < EXCHANGE_TABLES; t++) a.x[t] = (const u8 *)a.x[t] + x_step(&run->steps[step], t, rank);
  return a;
}

void exchange_runs_fill(const exchange_run *run, u32 step, u32 rank, u8 *zone) {
  const run_step *s = &run->steps[step];
  memset(zone, 0xc0 | (int)(step % 4 << 4 | rank), run->zone_bytes);
  for (u32 t = 0; t < EXCHANGE_TABLES && s->args.x[t]; t++) {
    u8 *x = zone + ((const u8 *)s->args.x[t] - (run->base + run->zone_at)) + x_step(s, t, rank);
    const u32 form = s->args.form, of_row = s->args.part_bytes[t] / 8 * (form == EXCHANGE_PARTS ? run->ranks : 1);
    const u32 rows = EXCHANGE_HAS_OWN_ROWS(form) ? STEP_OWN_ROWS(rows_of(s), rank, run->ranks) : rows_of(s) * s->args.rows_mul[t];
    for (u32 i = 0; i < rows * of_row; i++) {
      const u64 word = word_of(run, step, rank, t, i);
      const size_t row = i / of_row, in_row = i % of_row * 8;
      if (form == EXCHANGE_PARTS) memcpy(x + (row * run->ranks + rank) * of_row * 8 + in_row, &word, 8);
      else memcpy(x + row * (form == EXCHANGE_ROWS ? s->args.x_stride[t] : of_row * 8) + in_row, &word, 8);
    }
  }
}

/* In lockstep, in areas without inboxes. */
static void expect(exchange_run *run, u32 step) {
  const size_t head = 4096, bytes = head + run->zone_bytes;
  u8 *areas = calloc(run->ranks, bytes);
  ASSERT(areas);
  for (u32 r = 0; r < run->ranks; r++) exchange_runs_fill(run, step, r, areas + r * bytes + head);
  for (u32 r = 0; r < run->ranks; r++) {
    exchange_args a = run->steps[step].args;
    exchange_ranks ranks = {.rank = r, .count = run->ranks};
    _Alignas(8) u32 state_words[EXCHANGE_STATE_WORDS] = {0}; /* not that of a rank under test */
    for (u32 p = 0; p < run->ranks; p++) ranks.peer[p] = ((u64)p - r) * bytes;
    a.ranks = &ranks;
    a.state = state_words;
    for (u32 t = 0; t < EXCHANGE_TABLES && a.x[t]; t++) {
      a.x[t] = areas + r * bytes + head + ((const u8 *)a.x[t] - (run->base + run->zone_at)) + x_step(&run->steps[step], t, r);
      a.y[t] = areas + r * bytes + head + ((const u8 *)a.y[t] - (run->base + run->zone_at));
    }
    cpu_exchange(&a, run->pool);
    memcpy(&run->balance[r], state_words + EXCHANGE_BALANCE, sizeof run->balance[r]);
  }
  for (u32 r = 0; r < run->ranks; r++) memcpy(run->expected + r * run->zone_bytes, areas + r * bytes + head, run->zone_bytes);
  run->expected_step = step;
  free(areas);
}

u64 exchange_runs_digest(exchange_run *run, u32 step) {
  const exchange_args *a = &run->steps[step].args;
  u64 sum = 0;
  if (run->expected_step != step) expect(run, step);
  for (u32 t = 0; t < EXCHANGE_TABLES && a->x[t] && !EXCHANGE_IS_TO_ONE(a->form); t++) { /* those leave other bytes on every rank */
    const u8 *y = run->expected + ((const u8 *)a->y[t] - (run->base + run->zone_at));
    const bool are_rows = a->form == EXCHANGE_ROWS;
    const u32 of_row = a->part_bytes[t] / 4, words = words_of(&run->steps[step], t) * 2 * (are_rows ? 1 : run->ranks);
    for (u32 i = 0; i < words; i++) {
      u32 word;
      memcpy(&word, are_rows ? y + (size_t)(i / of_row) * a->y_stride[t] + i % of_row * 4 : y + 4 * (size_t)i, 4);
      sum += num_digest_word(i + (t << 29), word);
    }
  }
  return sum;
}

u64 exchange_runs_balance(exchange_run *run, u32 step, u32 rank) {
  if (run->expected_step != step) expect(run, step);
  return run->balance[rank];
}

size_t exchange_runs_wrong(exchange_run *run, u32 step, u32 rank, const u8 *zone) {
  if (run->expected_step != step) expect(run, step);
  const u8 *expected = run->expected + rank * run->zone_bytes;
  size_t i = 0;
  if (memcmp(zone, expected, run->zone_bytes) == 0) return run->zone_bytes;
  while (zone[i] == expected[i]) i++;
  return i;
}
