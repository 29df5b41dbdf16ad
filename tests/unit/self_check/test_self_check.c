/* test_self_check.c - the known answers of the start-up self-check: computed by the CPU's ops in every instruction set, and by the kernels'
 * own texts in the emulator, which was written independently of the CPU references. Copies of the kernels that are broken on purpose must
 * give other answers. `--record` prints the answers of the CPU reference, for the tables of engine/self_check/<stem>.c. */
#include "tests/unit/unit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/ops/kernels.h"
#include "engine/gpu/op_maps.h"
#include "engine/self_check/self_check.h"
#include "kernels_src/attn/attn_cut.h"
#include "kernels_src/num.h"
#include "tests/emulator/emulator.h"
#include "tests/kernel/force_isa.h"

static uint8_t *image;
static cpu_pool *pools[2]; /* of one thread and of three */
static const char *const isas[] = FORCE_ISA_NAMES;

static digest run_twin(uint32_t index, cpu_pool *pool, self_check_launch *launch) {
  self_check_build(index, image, (uint64_t)(uintptr_t)image, launch);
  kernels_row(launch->kernel)->run_cpu(launch->args, pool);
  return self_check_digest(launch, image);
}

static bool agrees(uint32_t index, digest found, const char *who) {
  char texts[2][DIGEST_TEXT_BYTES];
  digest expected = self_check_answer(index);
  if (memcmp(found.bytes, expected.bytes, DIGEST_BYTES) == 0) return true;
  if (who) print_error("probe %u by %s: %s, expected %s\n", index, who, digest_text(found.bytes, texts[0]),
                       digest_text(expected.bytes, texts[1]));
  return false;
}

static void the_twins_give_the_answers(void **state) {
  (void)state;
  self_check_launch launch;
  for (uint32_t i = 0; i < ARRAY_LEN(isas); i++) {
    if (force_isa(isas[i]) != OK) print_message("    SKIPPED: %s: this processor has no %s\n", __func__, isas[i]);
    else
      for (uint32_t p = 0; p < self_check_count(); p++)
        for (uint32_t t = 0; t < ARRAY_LEN(pools); t++) assert_true(agrees(p, run_twin(p, pools[t], &launch), isas[i]));
    fail_clear();
  }
  assert_int_equal(force_isa(NULL), OK);
}

static void tables_give_the_answer(void **state) {
  (void)state;
  digest expected = self_check_tables_answer(), found = self_check_tables();
  assert_memory_equal(found.bytes, expected.bytes, DIGEST_BYTES);
}

/* Every op, for every model that can be planned, with few enough probes that start-up stays fast; no two probes have the same answer. */
static void every_op_has_probes(void **state) {
  (void)state;
  for (uint32_t kernel = 0; kernel < KERNEL_COUNT; kernel++)
    for (uint32_t rank = 256; rank <= KV_LORA_RANK_MAX; rank += 256)
      for (uint32_t rope = 32; rope <= ROPE_DIM_MAX; rope += 32) {
        plan_model model = {.kv_lora_rank = rank, .rope_dim = rope, .nope_dim = rank / 4, .v_dim = rank / 4};
        uint32_t probes = 0;
        if (kernel == KERNEL_mla_prefill && rank == 512 && rope == 32) continue; /* no model has such heads */
        if (kernel == KERNEL_attn) continue; /* below */
        for (uint32_t i = 0; i < self_check_count(); i++) probes += self_check_is_for(i, kernel, &model);
        assert_in_range(probes, 1, 16);
      }
  static const uint32_t heads[][2] = {{64, 64}, {80, 80}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
  for (size_t h = 0; h < ARRAY_LEN(heads); h++) {
    const plan_model model = {.nope_dim = heads[h][0] / 2, .rope_dim = heads[h][0] / 2, .v_dim = heads[h][1]};
    uint32_t probes = 0;
    for (uint32_t i = 0; i < self_check_count(); i++) probes += self_check_is_for(i, KERNEL_attn, &model);
    assert_in_range(probes, 1, 16);
  }
  for (uint32_t i = 0; i < self_check_count(); i++)
    for (uint32_t j = 0; j < i; j++) {
      digest a = self_check_answer(i), b = self_check_answer(j);
      assert_memory_not_equal(a.bytes, b.bytes, DIGEST_BYTES);
    }
}

/* The content of a probe's memory does not depend on its address; only the pointers follow it. */
static void images_do_not_depend_on_the_address(void **state) {
  (void)state;
  const uint64_t far = 0x7f0000000000u;
  uint8_t *before = malloc(SELF_CHECK_BYTES);
  assert_non_null(before);
  for (uint32_t i = 0; i < self_check_count(); i++) {
    self_check_launch here, there;
    self_check_build(i, image, (uint64_t)(uintptr_t)image, &here);
    memcpy(before, image, here.judged_bytes);
    self_check_build(i, image, far, &there);
    assert_true(here.judged_bytes > 0 && here.judged_bytes == there.judged_bytes);
    assert_memory_equal(before, image, here.judged_bytes);
    for (uint32_t w = 0; w < SELF_CHECK_ARGS_WORDS; w++) {
      bool pointer = w < plan_pointer_count(here.kernel) && here.args[w];
      assert_true(there.args[w] == here.args[w] + (pointer ? far - (uint64_t)(uintptr_t)image : 0));
      assert_false(pointer && there.args[w] - far >= SELF_CHECK_BYTES);
    }
  }
  free(before);
}

/* The sign of a zero inside a partial result may differ between backends (NUMERICS.md, `mla_attn`): the probes have no zeros there. */
static void partial_results_hold_no_zero(void **state) {
  (void)state;
  uint32_t split = 0;
  for (uint32_t i = 0; i < self_check_count(); i++) {
    self_check_launch launch;
    run_twin(i, pools[0], &launch);
    const mla_attn_args *a = (const mla_attn_args *)(const void *)launch.args;
    if (launch.kernel != KERNEL_mla_attn || !a->partial_o) continue;
    split++;
    assert_true(a->counts->parts == 2 && a->pieces[0].slot == 0 && a->pieces[1].slot == 0 && a->pieces[2].slot == ATTN_WHOLE);
    for (uint32_t n = 0; n < a->slots_max * a->heads * a->kv_lora_rank; n++) assert_true(a->partial_o[n] != 0); /* or poison */
  }
  assert_int_equal(split, 8);
}

/* === Kernels ================================================================================================================ */

static uint32_t spec_of(const emulator_kernel *kernel, const char *name) {
  const char *found = strstr(kernel->spec, name);
  return found ? (uint32_t)strtoul(found + strlen(name), NULL, 10) : 0;
}

/* Dynamic shared memory as specialise.c of the planner computes it. */
static uint32_t grouped_bytes_of(const emulator_kernel *kernel) {
  const uint32_t k_boxes = (spec_of(kernel, "HEAD_DIM=") + 63) / 64, v_dim = spec_of(kernel, "V_DIM=");
  const uint32_t rows = spec_of(kernel, "SPEC_ROWS=");
  return 1664 + 8192 * (rows / 64 * k_boxes + spec_of(kernel, "STAGES=") * spec_of(kernel, "PAGES=") * (k_boxes + (v_dim + 63) / 64)) +
         spec_of(kernel, "HELD=") * rows * 4 * (v_dim + 2);
}

static uint32_t shared_bytes_of(const emulator_kernel *kernel) {
  uint32_t nope = spec_of(kernel, "NOPE_DIM="), v = spec_of(kernel, "V_DIM=");
  if (nope) return 2048 + 8192 * (2 * (nope / 64 + 1) + spec_of(kernel, "STAGES=") * (v > 128 ? 1 : 2) * (nope / 64 + 1 + v / 64));
  if (strcmp(kernel->stem, "attn") == 0) return grouped_bytes_of(kernel);
  if (spec_of(kernel, "RANK=")) return ATTN_SHARED_BYTES(spec_of(kernel, "SPEC_ROWS=")); /* mla_attn */
  uint32_t stages = spec_of(kernel, "STAGES="), blocks = stages * spec_of(kernel, "K_BLOCKS="), n = spec_of(kernel, "TILE_N=");
  if (strcmp(kernel->stem, "index_topk") == 0) return 4 * spec_of(kernel, "HELD=");
  if (strcmp(kernel->stem, "attn_fold") == 0) return ATTN_FOLD_BYTES(kernel->threads);
  if (strcmp(kernel->stem, "sample") == 0) return SAMPLE_PART_BYTES(1);
  if (blocks) { /* small_m.cuh, and no probe has more than 64 experts */
    uint32_t rows = spec_of(kernel, "TILE_ROWS="), exchange = (n + 4) * max_u32(rows, 8) * 4;
    uint32_t scales = strncmp(kernel->stem, "fp8", 3) == 0 ? blocks * (max_u32(rows, 8) + 4) * 4 : 0;
    return 2048 + (uint32_t)align_up(blocks * rows * 128, 1024) + blocks * n * 128 + max_u32((64 - n) * 128, exchange) + scales + 65 * 4;
  }
  if (!stages) return 0;
  if (spec_of(kernel, "HEADS=")) return 1536 + 2 * (4 * 16384 + 2048) + stages * spec_of(kernel, "PAGES=") * 9216; /* index_score */
  const uint32_t depth = max_u32(spec_of(kernel, "DEPTH="), 1), rows = spec_of(kernel, "TILE_ROWS="); /* large_m.cuh */
  const uint32_t scale_bytes = strncmp(kernel->stem, "fp8", 3) == 0 ? rows * 4 + 16 : 0;
  return 1024 + stages * (depth * (n + rows) * 128 + scale_bytes) + (kernel->threads / 128 - 1) * 8192 + 256 + 65 * 8;
}

/* The tensor maps of a kernel that needs them: its constants are in its text, "-DSPEC_TILE_N=64u ...". */
static void make_maps(const emulator_kernel *kernel, const self_check_launch *launch, tensor_maps *maps) {
  static const char *const names[] = {"SPEC_MAPS", "SPEC_TILE_N", "SPEC_TILE_ROWS", "SPEC_K_BLOCKS",
                                      "SPEC_STAGES", "SPEC_CLUSTER", "SPEC_CLUSTER_ROWS", "SPEC_DEPTH", "SPEC_ROWS"};
  jit_spec specs[ARRAY_LEN(names)];
  tensor_shape shapes[2] = {0};
  for (uint32_t i = 0; i < ARRAY_LEN(names); i++) {
    char key[64];
    snprintf(key, sizeof key, "%s=", names[i]);
    specs[i] = (jit_spec){names[i], spec_of(kernel, key)};
  }
  memset(maps, 0, sizeof *maps);
  if (!op_maps_taken(specs, ARRAY_LEN(specs))) return;
  op_maps(launch->kernel, specs, ARRAY_LEN(specs), launch->args, launch->rows, shapes);
  memcpy(&maps->w, &shapes[0], sizeof shapes[0]);
  memcpy(&maps->x, &shapes[1], sizeof shapes[1]);
}

/* Whether the kernel gives the answer of probe i. */
static bool answers(const emulator_kernel *kernel, uint32_t i) {
  uint32_t tile_n = spec_of(kernel, "TILE_N="), tile_rows = spec_of(kernel, "TILE_ROWS="), grid[3];
  const uint32_t cluster[2] = {kernel->cluster_x, kernel->cluster / kernel->cluster_x};
  self_check_launch launch;
  tensor_maps maps;
  self_check_build(i, image, (uint64_t)(uintptr_t)image, &launch);
  self_check_grid(&launch, tile_n ? tile_n : 1, tile_rows ? tile_rows : 1, cluster, grid);
  make_maps(kernel, &launch, &maps);
  const char *fault = emulator_run(kernel, grid, shared_bytes_of(kernel), launch.args, &maps);
  if (fault && !kernel->flaw[0]) print_error("%s %s, probe %s: %s\n", kernel->stem, kernel->spec, launch.probe, fault);
  return !fault && agrees(i, self_check_digest(&launch, image), kernel->flaw[0] ? NULL : kernel->spec);
}

static bool is_for(uint32_t i, const emulator_kernel *kernel) {
  const bool by_heads = strcmp(kernel->stem, "kv_rope") == 0;
  plan_model model = {.kv_lora_rank = spec_of(kernel, "RANK="), .rope_dim = spec_of(kernel, "ROPE_DIM="),
                      .nope_dim = spec_of(kernel, "NOPE_DIM=") + spec_of(kernel, "HEAD_DIM="),
                      .v_dim = by_heads ? 128 * spec_of(kernel, "HELD=") : spec_of(kernel, "V_DIM=")};
  return self_check_is_for(i, kernels_find(kernel->stem), &model) && self_check_is_for_form(i, spec_of(kernel, "K_BLOCKS=") > 0) &&
         self_check_is_for_rows(i, spec_of(kernel, "KV_FORMAT="), spec_of(kernel, "LISTS=") > 0,
                                spec_of(kernel, "TURNS=") + spec_of(kernel, "SPREAD=") > 0) &&
         self_check_is_for_pieces(i, spec_of(kernel, "PIECES=") > 0) &&
         self_check_is_for_heads(i, spec_of(kernel, "HEADS=")) && self_check_is_for_tags(i, spec_of(kernel, "TAGGED=") > 0);
}

static void a_sound_kernel_gives_every_answer(const emulator_kernel *kernel) {
  uint32_t asked = 0;
  for (uint32_t i = 0; i < self_check_count(); i++) {
    if (!is_for(i, kernel)) continue;
    asked++;
    assert_true(answers(kernel, i));
  }
  assert_true(asked > 0);
}

/* Whether some probe finds the flaw in one of the orders of threads and copies, which change from launch to launch. */
static void a_broken_kernel_is_found(const emulator_kernel *kernel) {
  for (uint32_t order = 0; order < EMULATOR_ORDERS; order += 2)
    for (uint32_t i = 0; i < self_check_count(); i++)
      if (is_for(i, kernel) && !(answers(kernel, i) && answers(kernel, i))) {
        print_message("    %s, %s: probe %u finds it\n", kernel->stem, kernel->flaw, i);
        return;
      }
  print_error("%s: no probe finds the broken kernel: %s\n", kernel->stem, kernel->flaw);
  fail();
}

/* Attention of one token by 16 or 32 CTAs takes the emulator seconds a probe. With 8 all formats of the cache are asked, with 32 bf16
 * rows, of up to 64 heads one format with 8; tests/kernel runs every form. */
static bool is_repeated(const emulator_kernel *kernel) {
  const uint32_t sharers = spec_of(kernel, "SPREAD=");
  if (spec_of(kernel, "GROUPS=") == 1) return sharers > 8 || spec_of(kernel, "KV_FORMAT=") != KV_FP8_DS_MLA;
  return sharers == 16 || (sharers > 16 && spec_of(kernel, "KV_FORMAT=") > 0);
}

static void the_kernels_give_the_answers(void **state) {
  (void)state;
  uint32_t sound = 0, broken = 0;
  bool seen[KERNEL_COUNT] = {false};
  for (const emulator_kernel *k = emulator_kernels(); k; k = k->next) {
    const uint32_t op = kernels_find(k->stem);
    if (k->flaw[0] && (op == KERNEL_exchange || op == KERNEL_rank_norm)) continue; /* shows between ranks: tests/kernel */
    if (k->flaw[0]) {
      a_broken_kernel_is_found(k);
      broken++;
      continue;
    }
    if (!is_repeated(k)) a_sound_kernel_gives_every_answer(k);
    seen[kernels_find(k->stem)] = true;
    sound++;
  }
  for (uint32_t i = 0; i < KERNEL_COUNT; i++) assert_true(seen[i]);
  print_message("    %u kernels in the emulator, %u broken ones\n", sound, broken);
  assert_true(broken > 0);
}

/* === Rules of tensor-core products ========================================================================================== */

typedef struct rule { /* of tensor cores, in the words of NUMERICS.md, "H16" */
  const char *what;
  uint32_t pairs;  /* of a step, 16                                               */
  int bits, least; /* terms are truncated to 2^(E - bits), 25; E >= least, -133 */
  bool nearest;    /* the sum is rounded to nearest, not truncated                */
  bool normalised; /* a product's exponent is that of its value                   */
} rule;

static int exponent_of(double v) { return v == 0 ? -10000 : ilogb(v) > -126 ? ilogb(v) : -126; }

/* One step in binary64, which holds every term and every sum of them exactly. */
static float step_by(const rule *r, const bf16 *a, const bf16 *b, float c) {
  double terms[17] = {(double)c}, sum = 0;
  int largest = exponent_of((double)c) > r->least ? exponent_of((double)c) : r->least;
  for (uint32_t i = 0; i < r->pairs; i++) {
    double x = (double)num_from_bf16(a[i]), y = (double)num_from_bf16(b[i]);
    terms[i + 1] = x * y;
    int e = x * y == 0 ? -10000 : r->normalised ? ilogb(x * y) : exponent_of(x) + exponent_of(y);
    largest = e > largest ? e : largest;
  }
  for (uint32_t i = 0; i <= r->pairs; i++) sum += trunc(ldexp(terms[i], r->bits - largest));
  double exact = ldexp(sum, largest - r->bits);
  float result = (float)exact;
  return r->nearest || fabs((double)result) <= fabs(exact) ? result : nextafterf(result, 0);
}

/* The result of a probe of gemm on a GPU with this rule. */
static digest multiply_by(const rule *r, uint32_t index) {
  self_check_launch launch;
  self_check_build(index, image, (uint64_t)(uintptr_t)image, &launch);
  const gemm_args *g = (const gemm_args *)(const void *)launch.args;
  uint32_t rows = g->rows_kind == ROWS_TOKENS ? g->step->token_count : g->step->logit_count;
  uint32_t n = g->y_kind == Y_SILU ? g->n / 2 : g->n;
  for (uint32_t i = 0; i < g->batches * rows * n; i++) {
    uint32_t batch = i / (rows * n), row = i / n % rows, column = i % n;
    const bf16 *x = g->x + batch * g->x_batch + (uint64_t)row * g->ldx, *w = g->w + batch * g->w_batch + (uint64_t)column * g->k;
    uint64_t at = batch * g->y_batch + (uint64_t)row * g->ldy + column;
    float c = 0, up = 0;
    for (uint32_t k = 0; k < g->k; k += r->pairs) c = step_by(r, x + k, w + k, c);
    for (uint32_t k = 0; k < g->k && g->y_kind == Y_SILU; k += r->pairs) up = step_by(r, x + k, w + (uint64_t)n * g->k + k, up);
    if (g->y_kind == Y_SILU) c = num_silu(c) * up;
    if (g->y_kind == Y_F32) ((float *)g->y)[at] = c;
    else ((bf16 *)g->y)[at] = num_to_bf16(c);
  }
  return self_check_digest(&launch, image);
}

/* The rule as it stands gives the answers; for every neighbouring rule some probe gives another answer. */
static void other_products_give_other_answers(void **state) {
  (void)state;
  static const rule rules[] = {
    {"as measured", 16, 25, -133, false, false},        {"one bit less", 16, 24, -133, false, false},
    {"one bit more", 16, 26, -133, false, false},       {"rounded to nearest", 16, 25, -133, true, false},
    {"products normalised", 16, 25, -133, false, true}, {"steps of 8", 8, 25, -133, false, false},
    {"steps of 4", 4, 25, -133, false, false},          {"exact, rounded once a step", 16, 52, -133, true, false},
    {"E at least -126", 16, 25, -126, false, false},    {"E at least -132", 16, 25, -132, false, false},
    {"E at least -134", 16, 25, -134, false, false},    {"E without a least", 16, 25, -300, false, false}};
  for (uint32_t i = 0; i < ARRAY_LEN(rules); i++) {
    uint32_t probes = 0, right = 0;
    for (uint32_t p = 0; p < self_check_count(); p++) {
      plan_model model = {0};
      if (!self_check_is_for(p, KERNEL_gemm, &model)) continue;
      probes++;
      right += agrees(p, multiply_by(&rules[i], p), i ? NULL : rules[i].what);
    }
    if (i) print_message("    products, %s: %u of %u probes find it\n", rules[i].what, probes - right, probes);
    assert_int_equal(probes, 6);
    assert_true(i ? right < probes : right == probes);
  }
}

/* === The program ============================================================================================================ */

static int record(void) {
  char text[DIGEST_TEXT_BYTES];
  self_check_launch launch;
  for (uint32_t i = 0; i < self_check_count(); i++) {
    digest found = run_twin(i, pools[0], &launch);
    printf("%s: \"%s\", \"%s\"\n", kernels_row(launch.kernel)->name, launch.probe, digest_text(found.bytes, text));
  }
  digest tables = self_check_tables();
  printf("tables: \"%s\"\n", digest_text(tables.bytes, text));
  return 0;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_op_has_probes), cmocka_unit_test(the_twins_give_the_answers), cmocka_unit_test(tables_give_the_answer),
    cmocka_unit_test(images_do_not_depend_on_the_address), cmocka_unit_test(partial_results_hold_no_zero),
    cmocka_unit_test(other_products_give_other_answers)};
  const struct CMUnitTest emulated[] = {cmocka_unit_test(the_kernels_give_the_answers)};
  bool recording = argc > 1 && strcmp(argv[1], "--record") == 0;
  image = aligned_alloc(256, SELF_CHECK_BYTES);
  if (!image || cpu_pool_open(&pools[0], 1) != OK || cpu_pool_open(&pools[1], 3) != OK) return 1;
  int failed = recording ? record() : cmocka_run_group_tests(tests, NULL, NULL);
  if (emulator_kernels && !recording) failed += cmocka_run_group_tests_name("emulator", emulated, NULL, NULL); /* not with sanitizers */
  cpu_pool_close(pools[0]);
  cpu_pool_close(pools[1]);
  free(image);
  return failed;
}
