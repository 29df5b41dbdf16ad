/* test_audit_inputs.c - which trace points an op reads, against an independent method: the bytes that planner/checks/check_access.c says an
 * op reads are looked up in a map of their last writers. */
#include "tests/unit/unit.h"
#include "engine/traces/audit_inputs.h"
#include "engine/ops/kernels.h"
#include "planner/checks/check_access.h"
#include "tests/unit/planner/planner_fixture.h"

static const char *const SMALL[] = {"small-glm4-moe-lite", "small-minicpm3", "small-mistral4", "small-v2lite", "small-v3", "small-youtu"};
static const char *const LARGE[] = {"glm4-moe-lite", "kimi-k2", "minicpm3", "mistral4", "moonlight", "v2", "v2lite", "v3", "youtu"};
/* Attention in both forms, and only the split one; with so many tokens that their rows are sorted for the experts. */
static const char BOTH[] = "max-num-seqs: 4\nmax-num-batched-tokens: 16\nmax-model-len: 128\nkv_pages: 4\nchunk_tokens: 64\n"
                           "ladder: [1, 4]\n";
static const char SORTED[] = "max-num-seqs: 4\nmax-num-batched-tokens: 128\nmax-model-len: 128\nkv_pages: 4\nchunk_tokens: 64\n"
                             "ladder: [1, 4]\n";
static const char SPLIT[] = "max-num-seqs: 1\nmax-num-batched-tokens: 1\nmax-model-len: 128\nkv_pages: 4\nchunk_tokens: 64\nladder: [1]\n";

typedef struct subject {
  fixture_bytes file;
  plan plan;
  arena host;
  points points;
  audit_inputs inputs;
} subject;

static subject open_points(const char *config, const char *deploy) {
  char path[128];
  snprintf(path, sizeof path, "tests/oracle/%s.json", config);
  subject s = {.file = fixture_plan(path, deploy, NULL)};
  if (plan_view(s.file.bytes, s.file.count, &s.plan) != OK || points_open(&s.points, &s.plan, &s.host) != OK) fail_msg("%s", fail_text());
  return s;
}

static subject open_subject(const char *config, const char *deploy) {
  subject s = open_points(config, deploy);
  if (audit_inputs_open(&s.inputs, &s.plan, &s.points, &s.host) != OK) fail_msg("%s: %s", config, fail_text());
  return s;
}

static void close_subject(subject *s) {
  arena_close(&s->host);
  free(s->file.bytes);
}

static uint32_t find_point(const subject *s, const char *name) {
  for (uint32_t i = 0; i < s->points.count; i++)
    if (strcmp(s->points.list[i].name, name) == 0) return i;
  fail_msg("no point %s", name);
  return 0;
}

static const audit_op *op_of(const subject *s, const char *point) {
  uint32_t op = s->inputs.op_of[find_point(s, point)];
  assert_int_not_equal(op, AUDIT_NONE);
  return &s->inputs.ops[op];
}

static bool holds(const audit_list *list, uint32_t point) {
  for (uint32_t i = 0; i < list->count; i++)
    if (list->point[i] == point) return true;
  return false;
}

/* === The independent method ================================================================================================= */

typedef struct shadow { /* by region: the last writer of each pair of bytes, a point + 1; 0: none, or an op without points */
  uint32_t *writer[REGION_COUNT];
} shadow;

static void write_point(const subject *s, shadow *w, uint32_t point) {
  const point_place *p = &s->points.places[point];
  for (uint32_t i = 0; i < p->segments; i++)
    for (uint64_t at = 0; at < p->segment_bytes; at += 2) w->writer[p->region][(p->offset + i * p->segment_stride + at) / 2] = point + 1;
}

static const plan_fixup *find_fixup(const subject *s, const plan_op *op, uint32_t args_offset) {
  for (uint32_t i = 0; i < op->fixup_count; i++)
    if (s->plan.fixups[op->first_fixup + i].args_offset == args_offset) return &s->plan.fixups[op->first_fixup + i];
  return NULL;
}

/* The points that the op reads of row 0. Bytes that it writes belong to no point afterwards. */
static audit_list read_points(const subject *s, shadow *w, uint32_t index) {
  const plan_op *op = &s->plan.ops[index];
  check_access accesses[CHECK_ACCESS_MAX];
  const check_rows rows = {.tokens = 1, .logits = 1, .blocks = 1};
  uint64_t args[64] = {0};
  audit_list found = {0};
  memcpy(args, s->plan.args + op->args_offset, op->args_bytes);
  for (uint32_t i = 0; i < op->fixup_count; i++) args[s->plan.fixups[op->first_fixup + i].args_offset / 8] = 1; /* not null */
  uint32_t count = check_access_describe(op->kernel, args, op->args_bytes, &s->plan.header->limits, &rows, accesses);
  for (uint32_t pass = 0; pass < 2; pass++)
    for (uint32_t i = 0; i < count; i++) {
      const check_access *a = &accesses[i];
      const plan_fixup *f = find_fixup(s, op, a->args_offset);
      if (a->is_write != pass || !f || !w->writer[f->region]) continue;
      uint64_t bytes = f->region == REGION_KV ? 2 : a->run_bytes; /* in the KV table: its first row is the request's, like any other */
      for (uint64_t at = 0; at < a->batches * bytes; at += 2) {
        uint32_t *writer = &w->writer[f->region][(f->offset + a->start + at / bytes * a->batch_stride + at % bytes) / 2];
        if (!a->is_write && *writer && !holds(&found, *writer - 1)) found.point[found.count++] = *writer - 1;
        if (a->is_write) *writer = 0;
        assert_true(found.count < AUDIT_INPUTS_MAX);
      }
    }
  return found;
}

static uint32_t list_mismatches(const audit_list *a, const audit_list *b) {
  uint32_t missed = 0;
  for (uint32_t i = 0; i < a->count; i++) missed += !holds(b, a->point[i]);
  for (uint32_t i = 0; i < b->count; i++) missed += !holds(a, b->point[i]);
  return missed;
}

/* Counts ops whose inputs differ between the two methods. */
static uint32_t mismatches(const subject *s) {
  shadow w = {0};
  uint32_t missed = 0, seen = 0;
  const uint32_t regions[] = {REGION_WORK, REGION_KV};
  for (uint32_t i = 0; i < 2; i++) w.writer[regions[i]] = calloc(s->plan.regions[regions[i]].bytes / 2 + 1, sizeof(uint32_t));
  for (uint32_t op = 0; op < s->plan.op_count; op++) {
    audit_list found = read_points(s, &w, op);
    uint32_t first = s->points.first_of_op[op], end = s->points.first_of_op[op + 1];
    for (uint32_t i = 0; i < s->inputs.count; i++) {
      if (s->inputs.ops[i].op == op) missed += list_mismatches(&found, &s->inputs.ops[i].inputs), seen++;
      if (s->inputs.ops[i].prior == op) missed += list_mismatches(&found, &s->inputs.ops[i].prior_inputs);
    }
    bool is_last = op + 1 == s->plan.op_count || first == end || s->points.first_of_op[op + 2] == end ||
                   s->points.of_op[end] != s->points.of_op[first];
    for (uint32_t i = first; i < end && is_last; i++) write_point(s, &w, s->points.of_op[i]); /* after the last alternative */
  }
  assert_int_equal(seen, s->inputs.count);
  for (uint32_t i = 0; i < 2; i++) free(w.writer[regions[i]]);
  return missed;
}

static void inputs_are_what_was_written_last(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(SMALL); i++)
    for (int form = 0; form < 3; form++) {
      subject s = open_subject(SMALL[i], form == 0 ? BOTH : form == 1 ? SORTED : SPLIT);
      assert_int_equal(mismatches(&s), 0);
      close_subject(&s);
    }
}

/* The control of the comparison: one input of any op removed or replaced. */
static void a_wrong_input_is_found(void **state) {
  (void)state;
  subject s = open_subject("small-v3", BOTH);
  for (uint32_t i = 0; i < s.inputs.count; i++) {
    audit_op *op = (audit_op *)(uintptr_t)&s.inputs.ops[i];
    audit_op sound = *op;
    if (op->inputs.count == 0) continue;
    op->inputs.count--;
    assert_true(mismatches(&s) > 0);
    *op = sound;
    op->inputs.point[0] = 0;
    if (sound.inputs.point[0] != 0) assert_true(mismatches(&s) > 0);
    *op = sound;
  }
  assert_int_equal(mismatches(&s), 0);
  close_subject(&s);
}

/* === Names ================================================================================================================== */

static void every_point_has_an_op(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(SMALL) + ARRAY_LEN(LARGE); i++) {
    subject s = open_subject(i < ARRAY_LEN(SMALL) ? SMALL[i] : LARGE[i - ARRAY_LEN(SMALL)], NULL);
    for (uint32_t p = 0; p < s.points.count; p++)
      assert_int_equal(s.inputs.op_of[p] == AUDIT_NONE, s.points.list[p].kernel == KERNEL_adjust);
    close_subject(&s);
  }
}

static void expect_inputs(const subject *s, const audit_list *list, const char *const *names, uint32_t count) {
  assert_int_equal(list->count, count);
  for (uint32_t i = 0; i < count; i++)
    if (!holds(list, find_point(s, names[i]))) fail_msg("expected %s among the inputs", names[i]);
}

#define EXPECT(list_, ...)                                                    \
  do {                                                                        \
    static const char *const names_[] = {__VA_ARGS__};                        \
    expect_inputs(&s, &(list_), names_, (uint32_t)(sizeof names_ / sizeof *names_)); \
  } while (0)

static void inputs_have_their_names(void **state) {
  (void)state;
  subject s = open_subject("small-v3", BOTH);
  EXPECT(op_of(&s, "layer 1 input_norm")->inputs, "layer 0 post_norm x", "layer 0 down");
  EXPECT(op_of(&s, "layer 1 o_proj")->inputs, "layer 1 v_up");
  EXPECT(op_of(&s, "layer 1 qkv_rope kv")->inputs, "layer 1 qkv_a", "layer 1 q_b");
  EXPECT(op_of(&s, "layer 1 mla_attn")->inputs, "layer 1 absorb", "layer 1 qkv_rope q_latent", "layer 1 qkv_rope kv");
  EXPECT(op_of(&s, "layer 1 experts gate_up")->inputs, "layer 1 post_norm");
  EXPECT(op_of(&s, "layer 1 experts gate_up")->prior_inputs, "layer 1 router topk_id");
  EXPECT(op_of(&s, "layer 2 input_norm")->inputs, "layer 1 post_norm x", "layer 1 shared down", "layer 1 experts down",
         "layer 1 router topk_weight");
  assert_int_equal(op_of(&s, "embed")->inputs.count, 0);
  assert_true(op_of(&s, "layer 1 mla_attn")->reads_kv && !op_of(&s, "layer 1 qkv_rope kv")->reads_kv);
  assert_int_equal(op_of(&s, "layer 1 mla_attn")->prior, AUDIT_NONE);
  assert_int_equal(op_of(&s, "layer 1 mla_attn")->rows_max, 16);
  close_subject(&s);
  s = open_subject("small-v3", SPLIT);
  EXPECT(op_of(&s, "layer 1 mla_attn")->prior_inputs, "layer 1 absorb", "layer 1 qkv_rope q_latent", "layer 1 qkv_rope kv");
  assert_int_equal(op_of(&s, "layer 1 mla_attn")->inputs.count, 0);
  assert_true(op_of(&s, "layer 1 mla_attn")->reads_kv);
  close_subject(&s);
}

static void flops_are_those_of_the_formulas(void **state) {
  (void)state;
  subject s = open_subject("small-v3", BOTH);
  const plan_model *m = &s.plan.header->model;
  double kv = m->kv_lora_rank, rope = m->rope_dim, heads = m->heads;
  assert_true(audit_inputs_flops(&s.plan, op_of(&s, "layer 1 o_proj"), 7) == 2.0 * m->hidden * heads * m->v_dim);
  assert_true(audit_inputs_flops(&s.plan, op_of(&s, "layer 1 v_up"), 7) == 2.0 * heads * m->v_dim * kv);
  assert_true(audit_inputs_flops(&s.plan, op_of(&s, "layer 1 experts down"), 7) == 2.0 * m->hidden * m->moe_inter * m->top_k);
  assert_true(audit_inputs_flops(&s.plan, op_of(&s, "layer 1 mla_attn"), 7) == 2 * heads * 8 * (kv + rope) + 2 * heads * 8 * kv);
  assert_true(audit_inputs_flops(&s.plan, op_of(&s, "layer 1 router topk_id"), 7) == 0);
  close_subject(&s);
  s = open_subject("small-v3", SPLIT);
  assert_true(audit_inputs_flops(&s.plan, op_of(&s, "layer 1 mla_attn"), 0) == 2 * heads * (kv + rope) + 2 * heads * kv);
  close_subject(&s);
}

/* A plan with an op that reads where no op wrote. */
static void a_plan_that_reads_nothing_is_refused(void **state) {
  (void)state;
  subject s = open_points("small-v3", BOTH);
  uint32_t op = s.points.first_op[find_point(&s, "layer 0 input_norm")];
  for (uint32_t i = 0; i < s.plan.ops[op].fixup_count; i++) {
    plan_fixup *f = (plan_fixup *)(uintptr_t)&s.plan.fixups[s.plan.ops[op].first_fixup + i];
    if (f->args_offset == offsetof(rmsnorm_args, x)) f->offset += 4ull * s.plan.header->model.hidden * 3; /* row 3 */
  }
  fail_clear();
  fixture_expect(audit_inputs_open(&s.inputs, &s.plan, &s.points, &s.host), ERR_FORMAT, "layer 0 input_norm reads what no op");
  close_subject(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(inputs_are_what_was_written_last), cmocka_unit_test(a_wrong_input_is_found), cmocka_unit_test(every_point_has_an_op),
    cmocka_unit_test(inputs_have_their_names),          cmocka_unit_test(flops_are_those_of_the_formulas),
    cmocka_unit_test(a_plan_that_reads_nothing_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
