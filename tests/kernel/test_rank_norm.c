/* test_rank_norm.c - rank_norm: the CPU reference against the ops that it stands for, moe_fold, exchange and rmsnorm; the kernel's text
 * with several ranks in the emulator, and on one GPU with a stream for each rank, against the reference.
 *
 * As test_exchange.c: sequences of norms of random sizes, with and without experts, while ranks run ahead and fall behind, and every kernel
 * of flaws.toml that is broken must be found. Read next: norm_runs.h. */
#include "tests/kernel/norm_runs.h"
#include "tests/kernel/rank_streams.h"
#include "tests/unit/unit.h"
#include "engine/gpu/gpu.h"
#include "engine/gpu/jit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 512u

/* === The reference ========================================================================================================== */

/* The columns of rank `rank` of what is added, [rows][part], by moe_fold. */
static f32 *own_columns(norm_run *run, u32 step, u8 *zone) {
  const rank_norm_args a = norm_runs_args_in(run, step, zone);
  f32 *own = malloc((size_t)a.step->token_count * a.part * 4 + 1);
  assert_non_null(own);
  if (!a.experts) memcpy(own, a.delta, (size_t)a.step->token_count * a.part * 4);
  else
    cpu_moe_fold(&(moe_fold_args){.step = a.step, .experts = a.experts, .pair_row = a.pair_row, .topk_weight = a.topk_weight,
                                  .delta = a.delta, .y = own, .columns = a.part, .top_k = a.top_k, .delta_stride = a.part,
                                  .y_stride = a.part}, run->pool);
  return own;
}

static void check_reference(norm_run *run, u32 step) {
  u8 *zones = malloc(run->ranks * run->zone_bytes);
  f32 *own[NORM_RANKS_MAX];
  assert_non_null(zones);
  for (u32 r = 0; r < run->ranks; r++) {
    norm_runs_fill(run, step, r, zones + r * run->zone_bytes);
    own[r] = own_columns(run, step, zones + r * run->zone_bytes);
  }
  for (u32 r = 0; r < run->ranks; r++) {
    const rank_norm_args a = norm_runs_args_in(run, step, zones + r * run->zone_bytes);
    const u32 rows = a.step->token_count;
    f32 *whole = malloc((size_t)rows * a.dim * 4 + 1);
    exchange_ranks ranks = {.rank = r, .count = run->ranks};
    u64 state[EXCHANGE_STATE_WORDS / 2] = {0};
    assert_non_null(whole);
    for (u32 p = 0; p < run->ranks; p++) ranks.peer[p] = (u64)(uintptr_t)own[p] - (u64)(uintptr_t)own[r];
    cpu_exchange(&(exchange_args){.step = a.step, .ranks = &ranks, .x = {own[r]}, .y = {whole}, .part_bytes = {a.part * 4},
                                  .rows_mul = {1}, .count = run->ranks, .state = (u32 *)state}, run->pool);
    cpu_rmsnorm(&(rmsnorm_args){.step = a.step, .x = a.x, .delta = whole, .x_out = a.x_out, .weight = a.weight, .y = a.y, .dim = a.dim,
                                .x_stride = a.dim, .y_stride = a.y_stride, .eps = a.eps, .delta_scale = a.delta_scale,
                                .y_scale = a.y_scale}, run->pool);
    assert_int_equal(norm_runs_wrong(run, step, r, zones + r * run->zone_bytes), run->zone_bytes);
    free(whole);
  }
  for (u32 r = 0; r < run->ranks; r++) free(own[r]);
  free(zones);
}

static void the_reference_is_that_of_three_ops(void **state) {
  (void)state;
  for (u32 seed = 0; seed < 24; seed++) {
    norm_run run;
    norm_runs_open(&run, 2 + seed % 7, 12, 5, 1024, seed);
    for (u32 e = 0; e < run.count; e++) check_reference(&run, e);
    norm_runs_close(&run);
  }
}

/* === Ranks in the emulator ================================================================================================== */

typedef struct norm_stream {
  norm_run run;
  const emulator_kernel *kernel;
} norm_stream;

static void fill(const void *of, u32 step, u32 rank, u8 *zone) { norm_runs_fill(&((const norm_stream *)of)->run, step, rank, zone); }

static size_t wrong(void *of, u32 step, u32 rank, const u8 *zone) {
  return norm_runs_wrong(&((norm_stream *)of)->run, step, rank, zone);
}

static void launch(const void *of, u32 step, u32 rank) {
  const norm_stream *s = of;
  const rank_norm_args a = norm_runs_args(&s->run, step, rank, (u64)(uintptr_t)s->run.base);
  emulator_launch(s->kernel, s->run.grid[step], &a);
}

static const char *emulate(norm_stream *s, u32 absent, u32 blocks, u64 seed, u64 idle_ns) {
  rank_stream stream = {.ranks = s->run.ranks, .count = s->run.count, .absent = absent, .zones = s->run.base + s->run.zone_at,
                        .area_bytes = s->run.area_bytes, .zone_bytes = s->run.zone_bytes, .of = s, .fill = fill, .wrong = wrong,
                        .launch = launch};
  return rank_streams_run(&stream, THREADS, blocks, seed, idle_ns);
}

static u32 held_of(const emulator_kernel *k) { return (u32)strtoul(strstr(k->spec, "HELD=") + strlen("HELD="), NULL, 10); }

/* Small norms, in many orders. */
static const char *emulate_one(const emulator_kernel *kernel, u32 seed) {
  cases c = {.state = seed * 77u};
  const u32 ranks = 2 + cases_below(&c, 3), rows = 1 + cases_below(&c, 3);
  const u32 columns = cases_below(&c, 4) ? 256 : held_of(kernel) * 4 * THREADS;
  norm_stream s = {.kernel = kernel};
  norm_runs_open(&s.run, ranks, 4, rows, columns, seed);
  const char *found = emulate(&s, RANKS_MAX, rows + 2, seed + 1ull, 0);
  norm_runs_close(&s.run);
  return found;
}

static bool is_form(const emulator_kernel *k) { return strcmp(k->stem, "rank_norm") == 0 && !k->flaw[0]; }

static void ranks_in_the_emulator(void **state) {
  (void)state;
  u32 forms = 0;
  for (const emulator_kernel *k = emulator_kernels(); k; k = k->next) {
    if (!is_form(k)) continue;
    forms++;
    for (u32 seed = 0; seed < 40; seed++) {
      const char *found = emulate_one(k, seed);
      if (found) fail_msg("%s, seed %u: %s", k->spec, seed, found);
    }
  }
  assert_int_equal(forms, 3);
}

static void broken_kernels_are_found(void **state) {
  (void)state;
  rank_streams_find_flaws("rank_norm", emulate_one);
}

/* A rank that does not come is named by the others' records, and the kernel traps. */
static void a_late_rank_is_named(void **state) {
  (void)state;
  exchange_record record = {0};
  const emulator_kernel *k = emulator_kernels();
  while (!is_form(k)) k = k->next;
  norm_stream s = {.kernel = k};
  norm_runs_open(&s.run, 3, 4, 2, 256, 5);
  for (u32 r = 0; r < 3; r++) {
    ((step_in *)(s.run.base + r * s.run.area_bytes))[3].token_count = 1;
    norm_runs_ranks(&s.run, r)->timeout_ns = 1000000;
    norm_runs_ranks(&s.run, r)->record = (u64)(uintptr_t)&record;
  }
  assert_non_null(emulate(&s, 1, 4, 9, 1000));
  assert_true(record.is_written == 1 && record.waited_for == 1 && record.rank != 1 && record.op == 3);
  assert_true(record.epoch > 0 && record.epoch <= 4);
  norm_runs_close(&s.run);
}

/* === Ranks on one GPU ======================================================================================================= */

#define GPU_STEPS 12u
#define GPU_RANKS 4u
#define GPU_ROWS 16u
#define GPU_COLUMNS 4096u

typedef struct gpu_ranks {
  gpu *device;
  gpu_stream *streams[GPU_RANKS];
  gpu_kernel kernel; /* holds GPU_COLUMNS columns */
  u64 areas;
  u8 *pinned;        /* [2][GPU_STEPS][GPU_RANKS] zones, before and after each step */
} gpu_ranks;

static status open_ranks(gpu_ranks *g, jit *compiler, const norm_run *largest) {
  const jit_spec specs[] = {{"SPEC_THREADS", THREADS}, {"SPEC_HELD", 2}};
  jit_cubin_view cubin;
  void *pinned;
  TRY(jit_compile(compiler, "rank_norm", specs, ARRAY_LEN(specs), &cubin));
  TRY(gpu_kernel_load(g->device, &(gpu_kernel_config){.name = "rank_norm", .cubin = cubin.bytes, .cubin_bytes = cubin.size,
                                                      .args_bytes = sizeof(rank_norm_args), .threads = THREADS}, &g->kernel));
  TRY(gpu_reserve(g->device, GPU_RANKS * largest->area_bytes, &g->areas));
  TRY(gpu_pin(g->device, 2ull * GPU_STEPS * GPU_RANKS * largest->zone_bytes, &pinned));
  for (u32 r = 0; r < GPU_RANKS; r++) TRY(gpu_stream_open(g->device, &g->streams[r]));
  g->pinned = pinned;
  return OK;
}

static u8 *pinned_zone(const gpu_ranks *g, const norm_run *run, u32 after, u32 step, u32 rank) {
  return g->pinned + (((u64)after * GPU_STEPS + step) * GPU_RANKS + rank) * run->zone_bytes;
}

static void run_on_gpu(const gpu_ranks *g, u32 ranks, u32 seed) {
  norm_run run;
  norm_runs_open(&run, ranks, GPU_STEPS, GPU_ROWS, GPU_COLUMNS, seed);
  for (u32 r = 0; r < ranks; r++) {
    norm_runs_ranks(&run, r)->timeout_ns = 10000000000u;
    gpu_upload(g->device, g->streams[0], g->areas + r * run.area_bytes, run.base + r * run.area_bytes, 4096);
    gpu_fill32(g->device, g->streams[0], g->areas + r * run.area_bytes + 4096, 0, EXCHANGE_INBOX_BYTES(ranks) / 4);
    for (u32 e = 0; e < run.count; e++) norm_runs_fill(&run, e, r, pinned_zone(g, &run, 0, e, r));
  }
  gpu_sync(g->device, g->streams[0], "rank_norm");
  for (u32 e = 0; e < run.count; e++) { /* part by part: streams may share a queue of the device */
    const u64 zone = g->areas + run.zone_at;
    for (u32 r = 0; r < ranks; r++)
      gpu_upload(g->device, g->streams[r], zone + r * run.area_bytes, pinned_zone(g, &run, 0, e, r), run.zone_bytes);
    for (u32 r = 0; r < ranks; r++) {
      const rank_norm_args a = norm_runs_args(&run, e, r, g->areas);
      gpu_launch(g->device, g->streams[r], &(gpu_work){.kernel = &g->kernel, .op = "rank_norm", .grid = {run.grid[e], 1, 1}, .args = &a});
    }
    for (u32 r = 0; r < ranks; r++)
      gpu_download(g->device, g->streams[r], pinned_zone(g, &run, 1, e, r), zone + r * run.area_bytes, run.zone_bytes);
  }
  for (u32 r = 0; r < ranks; r++) gpu_sync(g->device, g->streams[r], "rank_norm");
  for (u32 e = 0; e < run.count; e++)
    for (u32 r = 0; r < ranks; r++) {
      const size_t wrong = norm_runs_wrong(&run, e, r, pinned_zone(g, &run, 1, e, r));
      if (wrong != run.zone_bytes) fail_msg("GPU: %u ranks, seed %u, norm %u, rank %u: byte %zu", ranks, seed, e, r, wrong);
    }
  norm_runs_close(&run);
}

static void ranks_on_one_gpu(void **state) {
  (void)state;
  gpu_ranks g = {0};
  jit *compiler = NULL;
  norm_run largest;
  if (gpu_open(0, NULL, &g.device) != OK) {
    print_message("    SKIPPED: no GPU: ranks on one GPU\n");
    fail_clear();
    skip();
  }
  norm_runs_open(&largest, GPU_RANKS, GPU_STEPS, GPU_ROWS, GPU_COLUMNS, 0);
  status s = jit_open(NULL, NULL, NULL, 0, &compiler);
  if (s == OK) s = open_ranks(&g, compiler, &largest);
  norm_runs_close(&largest);
  if (s != OK) fail_msg("%s", fail_text());
  for (u32 seed = 0; seed < 12; seed++) run_on_gpu(&g, 2 + seed % 3, seed);
  jit_close(compiler);
  gpu_close(g.device);
}

int main(void) {
  const struct CMUnitTest reference[] = {cmocka_unit_test(the_reference_is_that_of_three_ops), cmocka_unit_test(ranks_on_one_gpu)};
  const struct CMUnitTest emulated[] = {cmocka_unit_test(ranks_in_the_emulator), cmocka_unit_test(broken_kernels_are_found),
                                        cmocka_unit_test(a_late_rank_is_named)};
  int failed = cmocka_run_group_tests_name("rank_norm", reference, NULL, NULL);
  if (emulator_kernels) failed += cmocka_run_group_tests_name("emulator", emulated, NULL, NULL);
  return failed;
}
