/* test_audit.c - an audit of recorded runs: sound ones pass with every op of every layer covered; each planted fault is named.
 *
 * Faults are planted in two places: in a record, whose digests are then corrected, so that only a recomputation can find the fault; and in
 * the ops of the run that is recorded (linked with --wrap: one bit of one number of the first row, in every call of one op), where all
 * later values are computed from the wrong number and recorded like that. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "e2e.h"
#include "engine/base/arena.h"
#include "engine/traces/audit.h"
#include "engine/cpu/cpu.h"
#include "engine/ops/kernels.h"
#include "engine/plan/points.h"
#include "engine/traces/file.h"

#ifdef __SANITIZE_ADDRESS__
#define STRIDE 4u /* instrumented code is slow: some of the faults */
#else
#define STRIDE 1u
#endif
#define REQUESTS 3u
#define PROMPT_MAX 70u
#define TOKENS_MAX 3u
#define VOCAB 384u

static const char DEPLOY[] =
  "max-num-seqs: 4\nmax-num-batched-tokens: 128\nmax-model-len: 256\nkv_pages: 16\nchunk_tokens: 64\nladder: [1, 4]\n";
/* The plan of an audit may differ from that of the recording: other batches, other pages, only split attention. */
static const char OTHER_DEPLOY[] =
  "max-num-seqs: 3\nmax-num-batched-tokens: 3\nmax-model-len: 128\nkv_pages: 2\nchunk_tokens: 64\nladder: [1, 3]\n";
#define GROUPS "group_chunks: 2\n" /* of latent attention */

/* === Broken ops ============================================================================================================= */

static uint32_t broken = KERNEL_COUNT; /* the op with a wrong result */
static uint32_t silent = KERNEL_COUNT; /* the op that does nothing */

static void flip(void *word) { *(uint8_t *)word ^= 1; }

#define WRAP(stem, target)                                           \
  void __real_cpu_##stem(const stem##_args *a, cpu_pool *pool);      \
  void __wrap_cpu_##stem(const stem##_args *a, cpu_pool *pool);      \
  void __wrap_cpu_##stem(const stem##_args *a, cpu_pool *pool) {     \
    if (silent != KERNEL_##stem) __real_cpu_##stem(a, pool);         \
    if (broken == KERNEL_##stem && (target) != NULL) flip((target)); \
  }
WRAP(embed, a->x)
WRAP(rmsnorm, a->y)
WRAP(qkv_rope, (bf16 *)a->kv + ((uint64_t)a->block_table[a->seq[0] * a->block_table_stride + a->position[0] / PAGE_TOKENS] * PAGE_TOKENS +
                        a->position[0] % PAGE_TOKENS) * (a->kv_lora_rank + a->rope_dim))
WRAP(gemm, a->y)
WRAP(mla_attn, a->out)
WRAP(router, a->topk_weight)
WRAP(moe_gemm, a->y)

void __real_cpu_mla_fold(const mla_fold_args *a, cpu_pool *pool);
void __wrap_cpu_mla_fold(const mla_fold_args *a, cpu_pool *pool);

/* The values belong to the broken rows. */
void __wrap_cpu_mla_fold(const mla_fold_args *a, cpu_pool *pool) {
  mla_fold_args fold = *a, values = *a;
  attn_counts none = *a->counts;
  fold.lifts = none.parts = 0;
  values.counts = &none;
  if (silent != KERNEL_mla_fold) __real_cpu_mla_fold(&fold, pool);
  if (broken == KERNEL_mla_fold) flip(a->out);
  if (a->lifts && silent != KERNEL_mla_fold) __real_cpu_mla_fold(&values, pool);
}

/* === Recording ============================================================================================================== */

#define POSITIONS (PROMPT_MAX + TOKENS_MAX)
#define POINTS_MAX 512u

typedef struct tape_row { /* of one token */
  int32_t token;
  uint64_t digests[POINTS_MAX]; /* [0]: 0 if nothing was recorded, since embed has a row of every token */
  uint8_t *values[POINTS_MAX];
} tape_row;

typedef struct recording { /* of REQUESTS requests */
  trace_head head;
  verbatim_point points[POINTS_MAX];
  char names[POINTS_MAX][64];
  tape_row rows[REQUESTS][POSITIONS];
} recording;

static e2e_model model;
static recording tape;
static char trace_path[E2E_PATH_MAX], other_plan[E2E_PATH_MAX], cache_dir[E2E_PATH_MAX];

static tape_row *row_of(const verbatim_request *q, uint32_t position) { return &tape.rows[(uintptr_t)q->context][position]; }

static bool wants_values(const verbatim_request *q, uint32_t position, uint32_t point) {
  (void)q, (void)position, (void)point;
  return true;
}

static void on_values(verbatim_request *q, uint32_t position, uint32_t point, const void *row, size_t bytes) {
  uint8_t *copy = malloc(bytes);
  assert_non_null(copy);
  memcpy(copy, row, bytes);
  row_of(q, position)->values[point] = copy;
}

static void on_trace(verbatim_request *q, uint32_t position, const uint64_t *digests) {
  tape_row *row = row_of(q, position);
  row->token = position < q->prompt_count ? q->prompt[position] : q->tokens[position - q->prompt_count].id;
  memcpy(row->digests, digests, tape.head.point_count * sizeof *digests);
}

static void drop_tape(void) {
  for (uint32_t i = 0; i < REQUESTS; i++)
    for (uint32_t k = 0; k < POSITIONS; k++)
      for (uint32_t p = 0; p < POINTS_MAX; p++) free(tape.rows[i][k].values[p]);
  memset(&tape, 0, sizeof tape);
}

static void describe(const verbatim *engine) {
  verbatim_info info = verbatim_describe(engine);
  assert_true(info.point_count > 0 && info.point_count <= POINTS_MAX);
  memcpy(tape.head.numerics_id, info.numerics_id, 16);
  memcpy(tape.head.config_digest, info.config_digest, 16);
  memcpy(tape.head.weights_digest, info.weights_digest, 16);
  for (uint32_t i = 0; i < info.point_count; i++) {
    tape.points[i] = info.points[i];
    snprintf(tape.names[i], sizeof tape.names[i], "%s", info.points[i].name);
    tape.points[i].name = tape.names[i];
  }
  tape.head.point_count = info.point_count;
  tape.head.points = tape.points;
}

/* Runs requests of 70, 9 and 20 tokens together, which share a beginning, and stores all their results. The engine is sound at start-up,
 * and the op is broken from then on. */
static void make_tape(int device, uint32_t broken_op) {
  verbatim *engine;
  verbatim_request requests[REQUESTS];
  int32_t ids[REQUESTS][PROMPT_MAX];
  verbatim_token made[REQUESTS][TOKENS_MAX];
  const uint32_t lengths[REQUESTS] = {PROMPT_MAX, 9, 20};
  verbatim_config config = {.plan_path = model.plan_path, .model_dir = model.model_dir, .device = device, .threads = 2, .trace = true,
                            .chunk_tokens = 30, .cache_dir = cache_dir};
  bool busy = true;
  drop_tape();
  if (verbatim_open(&engine, &config) != 0) fail_msg("%s", verbatim_error());
  describe(engine);
  broken = broken_op;
  for (uint32_t i = 0; i < REQUESTS; i++) {
    for (uint32_t k = 0; k < lengths[i]; k++) ids[i][k] = (int32_t)((k * 29 + 7) % VOCAB);
    requests[i] = VERBATIM_REQUEST_DEFAULTS;
    requests[i].prompt = ids[i];
    requests[i].prompt_count = lengths[i];
    requests[i].max_tokens = TOKENS_MAX;
    requests[i].tokens = made[i];
    requests[i].ignore_eos = true;
    requests[i].presence_penalty = i == 1 ? 0.5f : 0; /* adjust has rows */
    requests[i].context = (void *)(uintptr_t)i;
    requests[i].wants_values = wants_values;
    requests[i].on_values = on_values;
    requests[i].on_trace = on_trace;
    if (verbatim_submit(engine, &requests[i]) != 0) fail_msg("%s", verbatim_error());
  }
  while (busy) assert_int_equal(verbatim_poll(engine, &busy), 0);
  broken = KERNEL_COUNT;
  verbatim_close(engine);
}

/* Writes a token of the tape. without: as in write_tape. */
static void write_row(trace_writer *writer, const tape_row *row, uint32_t position, uint32_t without, uint32_t without_position) {
  for (uint32_t p = 0; p < tape.head.point_count; p++) {
    bool is_left_out = p == without && (without_position == UINT32_MAX || position == without_position);
    if (!row->values[p] || is_left_out) continue;
    trace_writer_add(writer, &(trace_record){.kind = TRACE_VALUES, .position = position, .point = p, .values = row->values[p],
                                             .value_bytes = (size_t)trace_row_bytes(&tape.points[p])});
  }
  trace_writer_add(writer, &(trace_record){.kind = TRACE_ROW, .position = position, .token = row->token, .digests = row->digests});
}

/* Writes the tape as a trace. without: a point whose values are left out, at without_position or (UINT32_MAX) everywhere. */
static void write_tape(uint32_t without, uint32_t without_position) {
  trace_writer *writer;
  if (trace_writer_open(&writer, trace_path, &tape.head) != OK) fail_msg("%s", fail_text());
  for (uint32_t i = 0; i < REQUESTS; i++) {
    char id[16];
    snprintf(id, sizeof id, "r%u", i);
    trace_writer_add(writer, &(trace_record){.kind = TRACE_REQUEST, .id = id, .prompt_count = 1});
    for (uint32_t k = 0; k < POSITIONS && tape.rows[i][k].digests[0]; k++)
      write_row(writer, &tape.rows[i][k], k, without, without_position);
  }
  if (trace_writer_close(writer) != OK) fail_msg("%s", fail_text());
}

static uint32_t find_point(const char *name) {
  for (uint32_t i = 0; i < tape.head.point_count; i++)
    if (strcmp(tape.names[i], name) == 0) return i;
  fail_msg("no point %s", name);
  return 0;
}

static void seal(tape_row *row, uint32_t point) { row->digests[point] = points_row_digest(&tape.points[point], row->values[point]); }

/* Flips the lowest bit of a number of the record; sealed: the row's digest is corrected. */
static void flip_number(uint32_t request, uint32_t position, uint32_t point, uint32_t number, bool sealed) {
  tape_row *row = &tape.rows[request][position];
  assert_non_null(row->values[point]);
  assert_true(number < tape.points[point].count);
  flip(row->values[point] + number * (tape.points[point].type == VERBATIM_POINT_BF16 ? 2u : 4u));
  if (sealed) seal(row, point);
}

/* === Auditing =============================================================================================================== */

static plan view;
static audit *auditor;

static status try_audit(const char *plan_path, const char *model_dir, audit_options o) {
  fail_clear();
  if (plan_open(&view, plan_path) != OK) fail_msg("%s", fail_text());
  o.plan = &view;
  o.trace_path = trace_path;
  o.model_dir = model_dir;
  o.threads = 2;
  if (o.position_max == 0) o.position_max = UINT32_MAX;
  status result = audit_open(&auditor, &o);
  if (result == OK) result = audit_run(auditor);
  return result;
}

static void end_audit(void) {
  audit_close(auditor);
  auditor = NULL;
  plan_close(&view);
}

static const audit_report *run_audit(const char *plan_path, audit_options o) {
  if (try_audit(plan_path, model.model_dir, o) != OK) fail_msg("%s", fail_text());
  return audit_results(auditor);
}

static void expect_refusal(status code, const char *words, const char *plan_path, const char *model_dir, audit_options o) {
  status found = try_audit(plan_path, model_dir, o);
  if (found != code || !strstr(fail_text(), words))
    fail_msg("expected %d and \"%s\", found %d and \"%s\"", code, words, found, fail_text());
  end_audit();
}

/* Counts the rows of the trace that belong to `adjust`. */
static uint64_t adjusted_rows(void) {
  uint64_t rows = 0;
  for (uint32_t i = 0; i < REQUESTS; i++)
    for (uint32_t k = 0; k < POSITIONS; k++)
      for (uint32_t p = 0; p < tape.head.point_count; p++) rows += tape.points[p].kernel == KERNEL_adjust && tape.rows[i][k].digests[p];
  return rows;
}

static void expect_sound_and_whole(const char *plan_path) {
  const audit_report *r = run_audit(plan_path, (audit_options){0});
  if (r->first.is_found) fail_msg("%s differs", r->points[r->first.point].name);
  assert_int_equal(r->different, 0);
  assert_int_equal(r->uncovered, 0);
  assert_int_equal(r->requests, REQUESTS);
  assert_int_equal(r->tokens, PROMPT_MAX + 9 + 20 + REQUESTS * (TOKENS_MAX - 1)); /* the last generated token is not computed */
  assert_true(adjusted_rows() > 0);
  assert_int_equal(r->checked, r->trace_rows - adjusted_rows());
  assert_int_equal(r->chosen, r->checked);
  for (uint32_t i = 0; i < r->point_count; i++) {
    uint64_t rows = r->points[i].kernel == KERNEL_adjust ? 0 : r->points[i].of_logits ? REQUESTS * TOKENS_MAX : r->tokens;
    if (r->counts[i].checked != rows) fail_msg("%s: %u rows checked", r->points[i].name, (unsigned)r->counts[i].checked);
  }
  end_audit();
}

static void make_files(const char *config) {
  char deploy[256];
  const char *groups = strstr(config, "llama") ? "" : GROUPS;
  snprintf(deploy, sizeof deploy, "%s%s", DEPLOY, groups);
  e2e_make_model(&model, config, deploy);
  snprintf(deploy, sizeof deploy, "%s%s", OTHER_DEPLOY, groups);
  e2e_make_plan(&model, "other", deploy, other_plan);
  snprintf(trace_path, sizeof trace_path, "%.900s/trace", model.folder);
  snprintf(cache_dir, sizeof cache_dir, "%.900s/cache", model.folder);
}

static void record_whole(void) {
  make_tape(e2e_device(), KERNEL_COUNT);
  write_tape(UINT32_MAX, 0);
}

/* The model of all tests except the first; each test records its own run. */
static int record_small_v3(void **state) {
  (void)state;
  if (!*model.folder) make_files("tests/oracle/small-v3.json");
  record_whole();
  return 0;
}

static int drop_record(void **state) {
  (void)state;
  end_audit();
  drop_tape();
  return 0;
}

static int remove_files(void **state) {
  (void)state;
  if (*model.folder) e2e_remove(&model);
  model = (e2e_model){0};
  return 0;
}

/* === Tests ================================================================================================================== */

static void sound_runs_are_covered_and_equal(void **state) {
  static const char *const configs[] = {"tests/oracle/small-v2lite.json", "tests/oracle/small-minicpm3.json",
                                        "tests/oracle/small-mistral4.json", "tests/oracle/small-v3.json",
                                        "tests/oracle/small-llama.json"};
  for (size_t i = 0; i < ARRAY_LEN(configs); i += STRIDE) {
    make_files(configs[i]);
    record_whole();
    expect_sound_and_whole(model.plan_path);
    expect_sound_and_whole(other_plan);
    drop_record(state);
    remove_files(state);
  }
}

/* One bit of the record, in a point of every op and in two layers: the first difference is that number. Values computed from it differ too,
 * but not earlier. */
static void a_flipped_bit_is_named(void **state) {
  static const struct { const char *point; uint32_t request, position, number; } faults[] = {
    {"embed", 0, 3, 5}, {"layer 1 input_norm x", 1, 0, 127}, {"layer 2 post_norm", 0, 69, 0}, {"layer 1 qkv_rope kv", 0, 65, 300},
    {"layer 2 qkv_rope kv", 2, 0, 0}, {"layer 0 qkv_rope q_nope", 1, 8, 2}, {"layer 2 qkv_rope q_latent", 2, 7, 1},
    {"layer 1 qkv_a", 0, 40, 9},
    {"layer 2 absorb", 0, 64, 511}, {"layer 1 mla_attn", 0, 70, 77}, {"layer 2 mla_attn", 2, 21, 1}, {"layer 0 gate_up", 1, 2, 3},
    {"layer 2 experts gate_up", 0, 12, 60}, {"layer 1 router topk_weight", 0, 5, 1}, {"layer 1 router topk_id", 0, 6, 0},
    {"layer 1 experts gate_up", 1, 10, 70}, {"layer 1 experts down", 2, 3, 128}, {"layer 2 post_norm", 0, 1, 0}, {"final_norm", 0, 71, 4},
    {"lm_head", 1, 9, 383}};
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(faults); i += STRIDE) {
    uint32_t point = find_point(faults[i].point), request = faults[i].request, position = faults[i].position;
    flip_number(request, position, point, faults[i].number, true);
    write_tape(UINT32_MAX, 0);
    const audit_report *r = run_audit(i % 2 ? other_plan : model.plan_path, (audit_options){0});
    const audit_difference *d = &r->first;
    char id[16];
    snprintf(id, sizeof id, "r%u", request);
    if (!d->is_found || d->point != point || d->position != position || d->number != faults[i].number || strcmp(d->id, id) != 0)
      fail_msg("%s: found %s, position %u, number %u", faults[i].point, d->is_found ? r->points[d->point].name : "nothing", d->position,
               d->number);
    assert_int_equal(d->request, request);
    assert_int_equal(d->recorded ^ d->computed, 1);
    assert_true(d->ulps == 1 && d->count == 1 && !d->is_digest);
    assert_true(r->counts[point].different >= 1 && r->uncovered == 0);
    if (strstr(r->points[point].name, "qkv_rope kv")) /* attention reads the recorded rows, not those of the audit */
      assert_true(r->kinds[KERNEL_mla_attn].different > 0);
    end_audit();
    flip_number(request, position, point, faults[i].number, true); /* back */
  }
}

/* The output of one op, recorded only as digests, without its values. */
static void a_digest_is_enough_for_an_output(void **state) {
  (void)state;
  uint32_t point = find_point("lm_head");
  write_tape(point, UINT32_MAX);
  const audit_report *r = run_audit(model.plan_path, (audit_options){.op = "lm_head"});
  assert_true(r->checked == REQUESTS * TOKENS_MAX && r->different == 0);
  end_audit();
  flip_number(1, 9, point, 6, true);
  write_tape(point, UINT32_MAX);
  r = run_audit(model.plan_path, (audit_options){.op = "lm_head"});
  assert_true(r->checked == REQUESTS * TOKENS_MAX && r->different == 1);
  assert_true(r->first.is_digest && r->first.point == point && r->first.position == 9 && strcmp(r->first.id, "r1") == 0);
  end_audit();
  flip_number(1, 9, point, 6, true);
}

static void a_damaged_record_is_named(void **state) {
  (void)state;
  uint32_t point = find_point("layer 2 o_proj");
  flip_number(2, 4, point, 1, false);
  write_tape(UINT32_MAX, 0);
  expect_refusal(ERR_MISMATCH, "layer 2 o_proj", model.plan_path, model.model_dir, (audit_options){0});
  expect_refusal(ERR_MISMATCH, "position 4", model.plan_path, model.model_dir, (audit_options){.op = "embed", .id = "r0"});
  flip_number(2, 4, point, 1, false);
}

/* A missing value is not covered, and is never counted as correct. */
static void missing_inputs_are_not_covered(void **state) {
  (void)state;
  uint32_t needs = find_point("layer 1 mla_attn"), v_up = find_point("layer 1 v_up"), kv = find_point("layer 2 qkv_rope kv");
  write_tape(needs, 5);
  const audit_report *r = run_audit(model.plan_path, (audit_options){0});
  assert_int_equal(r->uncovered, REQUESTS); /* v_up of token 5 of each request; the output of mla_attn is checked by its digest */
  assert_int_equal(r->counts[v_up].uncovered, REQUESTS);
  assert_true(r->counts[v_up].needs == needs && r->counts[v_up].needs_position == 5);
  assert_int_equal(r->counts[v_up].checked, r->tokens - REQUESTS);
  assert_int_equal(r->counts[needs].checked, r->tokens);
  assert_int_equal(r->checked + r->uncovered, r->chosen);
  end_audit();
  write_tape(kv, 2); /* attention reads it from token 2 on */
  r = run_audit(other_plan, (audit_options){0});
  uint32_t attn = find_point("layer 2 mla_attn");
  assert_int_equal(r->counts[attn].checked, 2 * REQUESTS);
  assert_true(r->counts[attn].needs == kv && r->counts[attn].needs_position == 2);
  assert_int_equal(r->uncovered, r->counts[attn].uncovered);
  assert_int_equal(r->different, 0);
  end_audit();
  write_tape(needs, UINT32_MAX);
  expect_refusal(ERR_USAGE, "layer 1 v_up needs the values of layer 1 mla_attn", model.plan_path, model.model_dir,
                 (audit_options){.op = "v_up", .is_layered = true, .layer_min = 1, .layer_max = 1});
}

/* An op that was broken while the run was recorded: it differs, and no other op does. */
static void a_broken_op_is_named(void **state) {
  static const uint32_t ops[] = {KERNEL_embed,    KERNEL_rmsnorm, KERNEL_qkv_rope, KERNEL_gemm,
                                 KERNEL_mla_attn, KERNEL_mla_fold, KERNEL_router,  KERNEL_moe_gemm};
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(ops); i += STRIDE) {
    uint32_t kind = ops[i] == KERNEL_mla_fold ? (uint32_t)KERNEL_mla_attn : ops[i]; /* one point */
    make_tape(VERBATIM_DEVICE_CPU, ops[i]);
    write_tape(UINT32_MAX, 0);
    const audit_report *r = run_audit(i % 2 ? other_plan : model.plan_path, (audit_options){0});
    assert_int_equal(r->uncovered, 0);
    for (uint32_t p = 0; p < r->point_count; p++)
      if (r->points[p].kernel != kind && r->counts[p].different) fail_msg("%s is not broken", r->points[p].name);
    for (uint32_t k = 0; k < r->kind_count; k++)
      if ((r->kinds[k].different > 0) != (k == kind)) fail_msg("broken %s: %s", kernels_row(ops[i])->name, r->kinds[k].name);
    assert_true(r->first.is_found && r->points[r->first.point].kernel == kind && r->first.ulps == 1 && r->first.count == 1);
    end_audit();
  }
  make_tape(e2e_device(), KERNEL_COUNT);
}

/* An op of the auditor that writes nothing is found, although the memory still has the right rows of an earlier request with the same
 * beginning. */
static void what_an_op_left_does_not_count(void **state) {
  (void)state;
  fail_clear();
  if (plan_open(&view, model.plan_path) != OK) fail_msg("%s", fail_text());
  const audit_options o = {.plan = &view, .trace_path = trace_path, .model_dir = model.model_dir, .threads = 2, .position_max = UINT32_MAX};
  if (audit_open(&auditor, &o) != OK) fail_msg("%s", fail_text()); /* it is sound at start-up */
  silent = KERNEL_qkv_rope;
  status result = audit_run(auditor);
  silent = KERNEL_COUNT;
  assert_int_equal(result, OK);
  const audit_report *r = audit_results(auditor);
  uint32_t point = find_point("layer 1 qkv_rope kv");
  assert_int_equal(r->counts[point].checked, r->tokens);
  assert_int_equal(r->counts[point].different, r->tokens);
  for (uint32_t p = 0; p < r->point_count; p++)
    if (r->points[p].kernel != KERNEL_qkv_rope) assert_int_equal(r->counts[p].different, 0);
  end_audit();
}

static void rows_can_be_chosen(void **state) {
  (void)state;
  write_tape(UINT32_MAX, 0);
  const audit_report *r = run_audit(
      model.plan_path, (audit_options){.id = "r2", .position_min = 3, .position_max = 6, .is_layered = true, .layer_min = 1, .layer_max = 2,
                                       .op = "qkv_rope"});
  assert_int_equal(r->chosen, 4 * 2 * 3);
  assert_int_equal(r->checked, r->chosen);
  end_audit();
  uint64_t counts[POINTS_MAX], same = 0;
  for (uint32_t round = 0; round < 3; round++) {
    r = run_audit(round ? other_plan : model.plan_path, (audit_options){.sample = 40, .seed = round == 2 ? 8 : 7});
    assert_true(r->checked == 40 && r->different == 0 && r->chosen > 40);
    for (uint32_t p = 0; p < r->point_count; p++) {
      if (round == 0) counts[p] = r->counts[p].checked;
      if (round == 1) assert_int_equal(r->counts[p].checked, counts[p]);
      if (round == 2) same += r->counts[p].checked == counts[p];
    }
    if (round == 2) assert_true(same < r->point_count);
    end_audit();
  }
  r = run_audit(model.plan_path, (audit_options){.sample = 1u << 30, .op = "embed"});
  assert_int_equal(r->checked, r->chosen);
  end_audit();
  expect_refusal(ERR_USAGE, "found none", model.plan_path, model.model_dir, (audit_options){.op = "no_such_op"});
  expect_refusal(ERR_USAGE, "found none", model.plan_path, model.model_dir, (audit_options){.id = "r7"});
  expect_refusal(ERR_USAGE, "found none", model.plan_path, model.model_dir, (audit_options){.position_min = 100, .position_max = 110});
}

static void what_does_not_belong_together_is_refused(void **state) {
  (void)state;
  char tool[E2E_PATH_MAX], output[2048], folder[E2E_PATH_MAX], seed[] = "--seed", nine[] = "9", config[] = "tests/oracle/small-v3.json";
  snprintf(folder, sizeof folder, "%.900s/wrong", model.folder);
  e2e_binary("random_model", tool);
  char *argv[] = {tool, config, folder, seed, nine, NULL};
  assert_int_equal(e2e_command(argv, output, sizeof output), 0);
  write_tape(UINT32_MAX, 0);
  expect_refusal(ERR_MISMATCH, "digest of the model's weights", model.plan_path, folder, (audit_options){0});
  e2e_model other;
  e2e_make_model(&other, "tests/oracle/small-v2lite.json", DEPLOY);
  expect_refusal(ERR_MISMATCH, "numerics id of the plan", other.plan_path, model.model_dir, (audit_options){0});
  e2e_remove(&other);
  tape.head.config_digest[3] ^= 1;
  write_tape(UINT32_MAX, 0);
  expect_refusal(ERR_MISMATCH, "config.json", model.plan_path, model.model_dir, (audit_options){0});
  tape.head.config_digest[3] ^= 1;
  tape.head.point_count--;
  write_tape(tape.head.point_count, UINT32_MAX);
  expect_refusal(ERR_MISMATCH, "points", model.plan_path, model.model_dir, (audit_options){0});
  tape.head.point_count++;
  tape.points[7].name = "another";
  write_tape(UINT32_MAX, 0);
  expect_refusal(ERR_MISMATCH, "point 7 of the trace is another", model.plan_path, model.model_dir, (audit_options){0});
  tape.points[7].name = tape.names[7];
}

/* Numbers that would make an op access memory outside its own, with correct digests. */
static void hostile_numbers_are_refused(void **state) {
  (void)state;
  uint32_t point = find_point("layer 1 router topk_id");
  uint32_t *choice = (uint32_t *)(void *)tape.rows[0][2].values[point], sound = choice[1];
  choice[1] = 1u << 30;
  seal(&tape.rows[0][2], point);
  write_tape(UINT32_MAX, 0);
  expect_refusal(ERR_FORMAT, "topk_id: expected numbers below", model.plan_path, model.model_dir, (audit_options){0});
  choice[1] = sound;
  seal(&tape.rows[0][2], point);
  int32_t token = tape.rows[1][3].token;
  tape.rows[1][3].token = VOCAB;
  write_tape(UINT32_MAX, 0);
  expect_refusal(ERR_FORMAT, "expected a token below 384, found 384", model.plan_path, model.model_dir, (audit_options){0});
  tape.rows[1][3].token = token;
  char short_plan[E2E_PATH_MAX];
  e2e_make_plan(&model, "short", "max-num-seqs: 1\nmax-num-batched-tokens: 8\nmax-model-len: 64\nkv_pages: 1\n"
                                 "chunk_tokens: 64\ngroup_chunks: 2\nladder: [1]\n", short_plan);
  write_tape(UINT32_MAX, 0);
  expect_refusal(ERR_LIMIT, "expected positions below 64", short_plan, model.model_dir, (audit_options){0});
}

/* === The command ============================================================================================================ */

static void expect_command(int code, const char *word, const char *command) {
  char text[16384];
  bool is_cpu = e2e_device() == VERBATIM_DEVICE_CPU;
  int found = e2e_shell(&model, is_cpu ? "D='--cache-dir cache --device cpu --threads 2' && " : "D='--cache-dir cache --device gpu' && ",
                        command, text, sizeof text);
  if (found != code || !strstr(text, word)) fail_msg("%s: expected %d and \"%s\", found %d and \"%s\"", command, code, word, found, text);
}

static void the_command_tells(void **state) {
  (void)state;
  int mismatch = fail_exit_code(ERR_MISMATCH);
  expect_command(0, "usage: verbatim audit", "$V audit --help");
  expect_command(fail_exit_code(ERR_USAGE), "expected TRACE PLAN MODEL_DIR", "$V audit trace plan");
  expect_command(fail_exit_code(ERR_USAGE), "--position: expected", "$V audit trace plan model --position 4-2");
  expect_command(fail_exit_code(ERR_USAGE), "--sample: expected 1 or more, found 0", "$V audit trace plan model --sample 0");
  expect_command(fail_exit_code(ERR_IO), "no_such_file", "$V audit no_such_file plan model");
  expect_command(fail_exit_code(ERR_FORMAT), "plan: expected a trace", "$V audit plan plan model");
  write_tape(UINT32_MAX, 0);
  expect_command(0, "0 differ.\nCoverage: 100.00 % of ", "$V audit trace plan model --layer 0-2");
  expect_command(0, "\"different\": 0,", "$V audit trace plan model --json > j && python3 -m json.tool j");
  expect_command(0, "same", "$V show plan | grep -q $(grep -o '[0-9a-f]\\{32\\}' j) && grep -q numerics_id j && echo same");
  uint32_t point = find_point("layer 2 experts down");
  flip_number(0, 44, point, 2, true);
  write_tape(UINT32_MAX, 0);
  expect_command(mismatch, "First difference: request r0, position 44, layer 2 experts down, number 2: recorded ",
                 "$V audit trace plan model");
  expect_command(mismatch, "differs: layer 2 experts down: 1 of ", "$V audit trace plan model 2>/dev/null");
  expect_command(mismatch, "rows differ, first request r0, position 44, layer 2 experts down", "$V audit trace plan model 2>&1 >/dev/null");
  expect_command(mismatch, "\"ulps\": 1,", "$V audit trace plan model --json 2>/dev/null");
  expect_command(0, "0 differ", "$V audit trace plan model --op \"experts down\" --position 43");
  flip_number(0, 44, point, 2, true);
  write_tape(find_point("layer 1 mla_attn"), 7);
  expect_command(0, "not covered: layer 1 v_up: 3 rows, needs layer 1 mla_attn at position 7", "$V audit trace plan model");
}

/* The records of `verbatim run` for an audit are sufficient for one. */
static void a_recorded_run_can_be_audited(void **state) {
  (void)state;
  expect_command(0, "100.00 % of ", "$V run plan model $D --quiet --ids '1 2 3 4 5 6 7 8 9 10 11 12' '5 6 7' --max-tokens 3 --trace t "
                 "--trace-values all && $V audit t plan model --threads 2 | grep 'rows in\\|rows of' ");
  expect_command(0, "Coverage: 100.00 % of ", "$V run plan model $D --quiet --ids '1 2 3 4 5 6 7 8 9 10 11 12' --max-tokens 2 --trace t "
                 "--trace-values audit:layer=2,position=9 && $V audit t plan model --layer 2 --position 9");
}

int main(int argc, char **argv) {
  e2e_begin(argc, argv);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(sound_runs_are_covered_and_equal),
    cmocka_unit_test_setup_teardown(a_flipped_bit_is_named, record_small_v3, drop_record),
    cmocka_unit_test_setup_teardown(a_digest_is_enough_for_an_output, record_small_v3, drop_record),
    cmocka_unit_test_setup_teardown(a_damaged_record_is_named, record_small_v3, drop_record),
    cmocka_unit_test_setup_teardown(missing_inputs_are_not_covered, record_small_v3, drop_record),
    cmocka_unit_test_setup_teardown(a_broken_op_is_named, record_small_v3, drop_record),
    cmocka_unit_test_setup_teardown(what_an_op_left_does_not_count, record_small_v3, drop_record),
    cmocka_unit_test_setup_teardown(rows_can_be_chosen, record_small_v3, drop_record),
    cmocka_unit_test_setup_teardown(what_does_not_belong_together_is_refused, record_small_v3, drop_record),
    cmocka_unit_test_setup_teardown(hostile_numbers_are_refused, record_small_v3, drop_record),
    cmocka_unit_test_setup_teardown(the_command_tells, record_small_v3, drop_record),
    cmocka_unit_test_setup_teardown(a_recorded_run_can_be_audited, record_small_v3, drop_record)};
  return cmocka_run_group_tests(tests, NULL, remove_files);
}
