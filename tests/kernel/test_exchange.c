/* test_exchange.c - exchange: the CPU reference against the definition; against the reference the kernel's text with several ranks in the
 * emulator, and the kernel on one GPU with a stream for each rank.
 *
 * Sequences of exchanges of random sizes in all forms, while ranks run ahead and fall behind. In the emulator stores between ranks arrive
 * in random order (tests/emulator/links.h), and every kernel of flaws.toml that is broken must be found. Read next: exchange_runs.h. */
#include "tests/kernel/exchange_runs.h"
#include "tests/kernel/rank_streams.h"
#include "tests/unit/unit.h"
#include "engine/gpu/gpu.h"
#include "engine/gpu/jit.h"
#include "engine/ops/kernels.h"
#include <stdio.h>
#include <stdlib.h>

/* === The reference ========================================================================================================== */

/* y of every rank: rows of the columns of rank 0, of rank 1, ... as they are in x there. */
static void the_reference_gathers(void **state) {
  (void)state;
  for (u32 ranks = 1; ranks <= RUN_RANKS_MAX; ranks++) {
    exchange_run run;
    u32 compared = 0;
    const run_limits limits = {.ranks = ranks, .count = 16, .grid = 1, .zone_bytes = 16384, .part_units = 6, .rows = 5};
    exchange_runs_open(&run, &limits, ranks, 2);
    u8 *zones = malloc(ranks * run.zone_bytes), *after = malloc(run.zone_bytes);
    assert_true(zones && after);
    for (u32 e = 0; e < run.count; e++) {
      const exchange_args *a = &run.steps[e].args;
      const u32 rows = a->rows_kind == ROWS_LOGITS ? a->step->logit_count : a->step->token_count;
      for (u32 r = 0; r < ranks; r++) exchange_runs_fill(&run, e, r, zones + r * run.zone_bytes);
      for (u32 r = 0; r < ranks; r++) {
        memcpy(after, zones + r * run.zone_bytes, run.zone_bytes);
        for (u32 t = 0; t < EXCHANGE_TABLES && a->x[t]; t++)
          for (u32 i = 0; i < rows * a->rows_mul[t] * ranks * a->part_bytes[t]; i++) {
            const u32 part = a->part_bytes[t], from = i / part % ranks, row = i / (part * ranks);
            const size_t x = (size_t)((const u8 *)a->x[t] - run.base) - run.zone_at, y = (size_t)((u8 *)a->y[t] - run.base) - run.zone_at;
            if (a->form == EXCHANGE_OWNERS && row / a->rows_mul[t] % ranks != r) continue;
            if (a->form == EXCHANGE_ROWS && row % ranks != from) continue; /* the row of its owner */
            if (a->form == EXCHANGE_PARTS && (from != r || row >= rows)) continue;
            if (a->form == EXCHANGE_PARTS) after[y + row * part + i % part] = zones[row % ranks * run.zone_bytes + x + i];
            else if (a->form != EXCHANGE_ROWS) after[y + i] = zones[from * run.zone_bytes + x + row * part + i % part];
            else after[y + row * a->y_stride[t] + i % part] =
                     zones[from * run.zone_bytes + x + (run.steps[e].in_place[t] ? from * a->y_stride[t] : 0) +
                           row / ranks * a->x_stride[t] + i % part];
            compared++;
          }
        assert_int_equal(exchange_runs_wrong(&run, e, r, after), run.zone_bytes);
        after[0] ^= 1;
        assert_int_equal(exchange_runs_wrong(&run, e, r, after), 0);
      }
    }
    assert_true(compared > 1000);
    exchange_runs_close(&run);
    free(zones);
    free(after);
  }
}

/* === Ranks in the emulator ================================================================================================== */

#define THREADS 32u

typedef struct exchange_stream {
  exchange_run run;
  const emulator_kernel *tagged, *flagged;
} exchange_stream;

static void fill(const void *of, u32 step, u32 rank, u8 *zone) {
  exchange_runs_fill(&((const exchange_stream *)of)->run, step, rank, zone);
}

static size_t wrong(void *of, u32 step, u32 rank, const u8 *zone) {
  return exchange_runs_wrong(&((exchange_stream *)of)->run, step, rank, zone);
}

static void launch(const void *of, u32 step, u32 rank) {
  const exchange_stream *s = of;
  const exchange_args a = exchange_runs_args(&s->run, step, rank, (u64)(uintptr_t)s->run.base);
  emulator_launch(s->run.steps[step].has_tags ? s->tagged : s->flagged, s->run.steps[step].grid, &a);
}

static const char *emulate(exchange_stream *s, u32 absent, u32 blocks, u64 seed, u64 idle_ns) {
  rank_stream stream = {.ranks = s->run.ranks, .count = s->run.count, .absent = absent, .zones = s->run.base + s->run.zone_at,
                        .area_bytes = s->run.area_bytes, .zone_bytes = s->run.zone_bytes, .of = s, .fill = fill, .wrong = wrong,
                        .launch = launch};
  return rank_streams_run(&stream, THREADS, blocks, seed, idle_ns);
}

static const emulator_kernel *kernel_of(const char *tags, const char *flaw) {
  char spec[80];
  snprintf(spec, sizeof spec, "-DSPEC_THREADS=%uu -DSPEC_TAGGED=%su", THREADS, tags);
  for (const emulator_kernel *k = emulator_kernels(); k; k = k->next)
    if (strcmp(k->stem, "exchange") == 0 && strcmp(k->spec, spec) == 0 && strcmp(k->flaw, flaw) == 0) return k;
  return NULL;
}

/* Whether a rank has another digest than that of the exchanges that are sampled: every one, or one in 16. */
static const char *other_digest(exchange_run *run) {
  u64 sum = 0, balances[RUN_RANKS_MAX] = {0}, all = 0;
  u32 epoch = 0; /* without rows no rank exchanges */
  const u32 bits = ((const exchange_ranks *)(const void *)(run->base + RUN_STEPS_MAX * sizeof(step_in)))->sample_bits;
  for (u32 e = 0; e < run->count; e++) {
    const exchange_args *a = &run->steps[e].args;
    if ((a->rows_kind == ROWS_LOGITS ? a->step->logit_count : a->step->token_count) == 0) continue;
    if (!EXCHANGE_IS_CHECKED(++epoch, bits)) continue;
    sum += exchange_runs_digest(run, e);
    for (u32 r = 0; r < run->ranks; r++) balances[r] += exchange_runs_balance(run, e, r);
  }
  for (u32 r = 0; r < run->ranks; r++) {
    u64 digest, balance;
    const exchange_args a = exchange_runs_args(run, 0, r, (u64)(uintptr_t)run->base);
    memcpy(&digest, a.state + EXCHANGE_DIGEST, sizeof digest);
    if (digest != sum) return "a rank has another digest of what was exchanged";
    memcpy(&balance, a.state + EXCHANGE_BALANCE, sizeof balance);
    if (balance != balances[r]) return "a rank has another balance of what it sent to owners and has of them";
    all += balance;
  }
  return all ? "the balances of all ranks do not add up to 0" : NULL;
}

/* Small exchanges: many orders; there is at least one block, and at most 32 blocks of all ranks. */
static const char *emulate_one(const emulator_kernel *tagged, const emulator_kernel *flagged, u32 seed, u32 form) {
  cases c = {.state = seed * 77u + form};
  const u32 ranks = (const u32[]){2, 2, 3, 3, 4, 8}[cases_below(&c, 6)], blocks = 1 + cases_below(&c, ranks == 8 ? 2 : 3);
  const run_limits limits = {.ranks = ranks, .count = 6 + cases_below(&c, 10), .grid = blocks, .zone_bytes = 8192,
                             .part_units = 1 + cases_below(&c, 6), .rows = 1 + cases_below(&c, 4)};
  exchange_stream s = {.tagged = tagged, .flagged = flagged};
  exchange_runs_open(&s.run, &limits, seed, form);
  const char *found = emulate(&s, RANKS_MAX, blocks, seed + 1ull, 0);
  if (!found) found = other_digest(&s.run);
  exchange_runs_close(&s.run);
  return found;
}

static void ranks_in_the_emulator(void **state) {
  (void)state;
  const emulator_kernel *tagged = kernel_of("1", ""), *flagged = kernel_of("0", "");
  assert_true(tagged && flagged);
  for (u32 seed = 0; seed < 300; seed++) {
    const char *found = emulate_one(tagged, flagged, seed, seed % 3);
    if (found) fail_msg("seed %u: %s", seed, found);
  }
}

/* In sequences of its form, with exchanges of the other form in between. */
static const char *emulate_flaw(const emulator_kernel *k, u32 seed) {
  const bool has_tags = kernel_of("1", k->flaw) == k;
  return emulate_one(has_tags ? k : kernel_of("1", ""), has_tags ? kernel_of("0", "") : k, seed, seed % 4 ? has_tags : 2);
}

static void broken_kernels_are_found(void **state) {
  (void)state;
  rank_streams_find_flaws("exchange", emulate_flaw);
}

/* A rank that does not come is named by the others' records, and the kernel traps. */
static void a_late_rank_is_named(void **state) {
  (void)state;
  for (u32 form = 0; form < 2; form++) {
    exchange_record record = {0};
    const run_limits limits = {.ranks = 3, .count = 5, .grid = 2, .zone_bytes = 4096, .part_units = 3, .rows = 2};
    exchange_stream s = {.tagged = kernel_of("1", ""), .flagged = kernel_of("0", "")};
    exchange_runs_open(&s.run, &limits, 5 + form, form);
    ((step_in *)(uintptr_t)s.run.steps[4].args.step)->token_count = ((step_in *)(uintptr_t)s.run.steps[4].args.step)->logit_count = 1;
    for (u32 r = 0; r < 3; r++) {
      exchange_ranks *ranks = (exchange_ranks *)(s.run.base + r * s.run.area_bytes + RUN_STEPS_MAX * sizeof(step_in));
      memcpy(s.run.base + r * s.run.area_bytes, s.run.base, RUN_STEPS_MAX * sizeof(step_in));
      ranks->timeout_ns = 1000000;
      ranks->record = (u64)(uintptr_t)&record;
    }
    const char *found = emulate(&s, 1, 2, 9, 1000);
    assert_non_null(found);
    assert_true(record.is_written == 1 && record.waited_for == 1 && record.rank != 1 && record.op == 4);
    assert_true(record.epoch > 0 && record.epoch <= 5);
    exchange_runs_close(&s.run);
  }
}

/* === Ranks on one GPU ======================================================================================================= */

#define GPU_THREADS 512u
#define GPU_STEPS 16u
#define GPU_ZONES (4u << 20) /* bytes of all ranks */
#define GPU_DELAY_BYTES (64u << 20)

typedef struct gpu_ranks {
  gpu *device;
  gpu_stream *streams[RUN_RANKS_MAX];
  gpu_kernel tagged, flagged;
  u64 areas, delays;
  u8 *pinned; /* [2][GPU_STEPS][GPU_ZONES]: zones before and after each step */
} gpu_ranks;

static status load_form(gpu_ranks *g, jit *compiler, u32 tags, gpu_kernel *out) {
  const jit_spec specs[] = {{"SPEC_THREADS", GPU_THREADS}, {"SPEC_TAGGED", tags}};
  jit_cubin_view cubin;
  TRY(jit_compile(compiler, "exchange", specs, ARRAY_LEN(specs), &cubin));
  return gpu_kernel_load(g->device, &(gpu_kernel_config){.name = "exchange", .cubin = cubin.bytes, .cubin_bytes = cubin.size,
                                                         .args_bytes = sizeof(exchange_args), .threads = GPU_THREADS}, out);
}

static status open_ranks(gpu_ranks *g, jit *compiler) {
  const u64 area = 8192 + EXCHANGE_INBOX_BYTES(RUN_RANKS_MAX) + 4096;
  void *pinned;
  TRY(load_form(g, compiler, 1, &g->tagged));
  TRY(load_form(g, compiler, 0, &g->flagged));
  TRY(gpu_reserve(g->device, RUN_RANKS_MAX * area + GPU_ZONES + GPU_DELAY_BYTES, &g->delays));
  TRY(gpu_pin(g->device, 2ull * GPU_STEPS * GPU_ZONES, &pinned));
  for (u32 r = 0; r < RUN_RANKS_MAX; r++) TRY(gpu_stream_open(g->device, &g->streams[r]));
  g->areas = g->delays + GPU_DELAY_BYTES;
  g->pinned = pinned;
  return OK;
}

static u8 *pinned_zone(const gpu_ranks *g, const exchange_run *run, u32 after, u32 step, u32 rank) {
  return g->pinned + ((u64)after * GPU_STEPS + step) * GPU_ZONES + rank * run->zone_bytes;
}

/* All ranks get a part of their work before any gets the next one: streams may share a queue of the device. */
static void enqueue_step(const gpu_ranks *g, const exchange_run *run, u32 e, cases *c) {
  const run_step *step = &run->steps[e];
  const u64 zone = g->areas + run->zone_at;
  for (u32 r = 0; r < run->ranks; r++) {
    for (u32 i = cases_below(c, 3) ? 0 : cases_below(c, 20); i > 0; i--)
      gpu_fill32(g->device, g->streams[r], g->delays, i, GPU_DELAY_BYTES / 4);
    gpu_upload(g->device, g->streams[r], zone + r * run->area_bytes, pinned_zone(g, run, 0, e, r), run->zone_bytes);
  }
  for (u32 r = 0; r < run->ranks; r++) {
    const exchange_args a = exchange_runs_args(run, e, r, g->areas);
    gpu_launch(g->device, g->streams[r], &(gpu_work){.kernel = step->has_tags ? &g->tagged : &g->flagged, .op = "exchange",
                                                     .grid = {step->grid, 1, 1}, .args = &a});
  }
  for (u32 r = 0; r < run->ranks; r++)
    gpu_download(g->device, g->streams[r], pinned_zone(g, run, 1, e, r), zone + r * run->area_bytes, run->zone_bytes);
}

static void run_on_gpu(const gpu_ranks *g, u32 ranks, u32 seed, u32 form) {
  const run_limits limits = {.ranks = ranks, .count = GPU_STEPS, .grid = 64 / ranks, .zone_bytes = GPU_ZONES / ranks,
                             .part_units = 256, .rows = form == 0 ? 64 : 12};
  exchange_run run;
  cases c = {.state = seed};
  exchange_runs_open(&run, &limits, seed, form);
  for (u32 r = 0; r < ranks; r++) {
    u8 *area = run.base + r * run.area_bytes;
    ((exchange_ranks *)(area + RUN_STEPS_MAX * sizeof(step_in)))->timeout_ns = 10000000000u;
    gpu_upload(g->device, g->streams[0], g->areas + r * run.area_bytes, area, 4096);
    gpu_fill32(g->device, g->streams[0], g->areas + r * run.area_bytes + 4096, 0, EXCHANGE_INBOX_BYTES(ranks) / 4);
    for (u32 e = 0; e < run.count; e++) exchange_runs_fill(&run, e, r, pinned_zone(g, &run, 0, e, r));
  }
  gpu_sync(g->device, g->streams[0], "exchange");
  for (u32 e = 0; e < run.count; e++) enqueue_step(g, &run, e, &c);
  for (u32 r = 0; r < ranks; r++) gpu_sync(g->device, g->streams[r], "exchange");
  for (u32 e = 0; e < run.count; e++)
    for (u32 r = 0; r < ranks; r++) {
      const size_t wrong = exchange_runs_wrong(&run, e, r, pinned_zone(g, &run, 1, e, r));
      if (wrong != run.zone_bytes) fail_msg("GPU: %u ranks, seed %u, exchange %u, rank %u: byte %zu", ranks, seed, e, r, wrong);
    }
  exchange_runs_close(&run);
}

static void ranks_on_one_gpu(void **state) {
  (void)state;
  gpu_ranks g = {0};
  jit *compiler = NULL;
  u32 runs = 0;
  if (gpu_open(0, NULL, &g.device) != OK) {
    print_message("    SKIPPED: no GPU: ranks on one GPU\n");
    fail_clear();
    skip();
  }
  status s = jit_open(NULL, NULL, NULL, 0, &compiler);
  if (s == OK) s = open_ranks(&g, compiler);
  if (s != OK) fail_msg("%s", fail_text());
  for (u32 seed = 0; seed < 6; seed++)
    for (u32 i = 0; i < 4; i++, runs++) run_on_gpu(&g, (const u32[]){2, 3, 4, 8}[i], seed * 4 + i, seed % 3);
  print_message("    %u sequences of %u exchanges on the GPU\n", runs, GPU_STEPS);
  jit_close(compiler);
  gpu_close(g.device);
}

int main(void) {
  const struct CMUnitTest reference[] = {cmocka_unit_test(the_reference_gathers), cmocka_unit_test(ranks_on_one_gpu)};
  const struct CMUnitTest emulated[] = {cmocka_unit_test(ranks_in_the_emulator), cmocka_unit_test(broken_kernels_are_found),
                                        cmocka_unit_test(a_late_rank_is_named)};
  int failed = cmocka_run_group_tests_name("exchange", reference, NULL, NULL);
  if (emulator_kernels) failed += cmocka_run_group_tests_name("emulator", emulated, NULL, NULL);
  return failed;
}
