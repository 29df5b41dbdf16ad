/* test_points.c - the trace points of plans: every op that computes for a request has its own, and they are where the op writes.
 *
 * planner/checks/check_access.c, an independent reading of the op's arguments, says which bytes an op writes. The control of each
 * comparison is a damaged point or plan, which is noticed. */
#include "tests/unit/unit.h"
#include "engine/ops/kernels.h"
#include "engine/plan/points.h"
#include "kernels_src/num.h"
#include "planner/checks/check_access.h"
#include "tests/unit/planner/planner_fixture.h"

static const char *const CONFIGS[] = {"glm4-moe-lite", "kimi-k2", "minicpm3-long", "minicpm3", "mistral4", "moonlight",
                                      "small-glm4-moe-lite", "small-glm5", "small-glm52-fp8", "small-minicpm3", "small-mistral4",
                                      "small-v2lite", "small-v3", "small-v3-fp8", "small-v32", "small-v32-fp8", "small-youtu", "v2",
                                      "v2lite", "v3-noyarn", "v3", "youtu"};
/* Attention in both forms, and only the split one. */
static const char BOTH[] = "max-num-seqs: 8\nmax-num-batched-tokens: 256\nmax-model-len: 512\nchunk_tokens: 64\nladder: [1, 8]\n";
static const char SPLIT[] = "max-num-seqs: 1\nmax-num-batched-tokens: 1\nmax-model-len: 128\nkv_pages: 4\nchunk_tokens: 64\nladder: [1]\n";

typedef struct subject { /* a plan and its points */
  fixture_bytes file;
  plan plan;
  arena host;
  points points;
} subject;

static subject open_bytes(fixture_bytes file) {
  subject s = {.file = file};
  if (plan_view(file.bytes, file.count, &s.plan) != OK || points_open(&s.points, &s.plan, &s.host) != OK) fail_msg("%s", fail_text());
  return s;
}

static subject open_subject(const char *config, const char *deploy) {
  char path[128];
  snprintf(path, sizeof path, "tests/oracle/%s.json", config);
  return open_bytes(fixture_plan(path, deploy, NULL));
}

static void close_subject(subject *s) {
  arena_close(&s->host);
  free(s->file.bytes);
}

static const char *op_name(const subject *s, uint32_t op) { return plan_string(&s->plan, s->plan.ops[op].name); }
static uint32_t made_by(const subject *s, uint32_t op) { return s->points.first_of_op[op + 1] - s->points.first_of_op[op]; }
static uint32_t nth_point(const subject *s, uint32_t op, uint32_t n) { return s->points.of_op[s->points.first_of_op[op] + n]; }

static uint32_t find_op(const subject *s, const char *name) {
  for (uint32_t i = 0; i < s->plan.op_count; i++)
    if (strcmp(op_name(s, i), name) == 0) return i;
  fail_msg("no op %s", name);
  return 0;
}

static uint32_t find_point(const subject *s, const char *name) {
  for (uint32_t i = 0; i < s->points.count; i++)
    if (strcmp(s->points.list[i].name, name) == 0) return i;
  fail_msg("no point %s", name);
  return 0;
}

static const plan_fixup *find_fixup(const subject *s, const plan_op *op, size_t field) {
  for (uint32_t i = 0; i < op->fixup_count; i++)
    if (s->plan.fixups[op->first_fixup + i].args_offset == field) return &s->plan.fixups[op->first_fixup + i];
  return NULL;
}

static void *args_of(const subject *s, uint32_t op) { return (uint8_t *)(uintptr_t)s->plan.args + s->plan.ops[op].args_offset; }

/* === Against the checker's reading ====================================================================================== */

/* Written bytes that have no point: the history of ids, sorted pairs, the work items of an attention, its combined state, and everything
 * that it leaves to mla_fold. */
static bool is_exempt(const plan_op *op, const uint64_t *args, const check_access *a) {
  if (op->kernel == KERNEL_embed) return a->args_offset == offsetof(embed_args, history);
  if (op->kernel == KERNEL_router) return a->args_offset >= offsetof(router_args, expert_first);
  if (op->kernel != KERNEL_mla_attn) return op->kernel == KERNEL_attn_cut;
  return a->args_offset != offsetof(mla_attn_args, out) || ((const mla_attn_args *)(const void *)args)->slots_max != 0;
}

static bool has_points(uint32_t kernel) {
  return kernel != KERNEL_moe_sort && kernel != KERNEL_sample && kernel != KERNEL_row_digest && kernel != KERNEL_attn_cut &&
         kernel != KERNEL_act_quant && kernel != KERNEL_index_score && kernel != KERNEL_kv_widen;
}

/* Codes, and KV rows of formats other than bf16, are shown as words. */
static bool is_type(const subject *s, uint32_t point, const check_access *a) {
  const bool is_row = a->region == REGION_KV && a->type == TYPE_BF16 && s->plan.header->quant.kv_format != KV_BF16;
  switch (point) {
    case VERBATIM_POINT_BF16: return a->type == TYPE_BF16 && !is_row;
    case VERBATIM_POINT_F32: return a->type == TYPE_F32;
    default: return a->type == TYPE_TOPK_ID || a->type == TYPE_LISTS || a->type == TYPE_E4M3 || is_row;
  }
}

/* A page of keys has two points: the codes of its rows and, after them, all their scales. */
static bool covers_keys(const verbatim_point *point, const point_place *place, const plan_fixup *f) {
  const bool is_scale = point->type == VERBATIM_POINT_F32;
  if (!is_scale && point->type != VERBATIM_POINT_U32) return false;
  return place->offset == f->offset + is_scale * PAGE_TOKENS * INDEX_DIM && place->page_stride == INDEX_PAGE_BYTES &&
         place->row_stride == (is_scale ? 4 : INDEX_DIM) && place->segment_bytes == place->row_stride && place->segments == 1 &&
         place->pairs == 1 && place->rows == POINT_KV && point->count * 4 == place->segment_bytes && !point->of_logits &&
         place->region == REGION_KV;
}

/* Whether these are the bytes of the access, at the largest row counts. */
static bool covers(const subject *s, const verbatim_point *point, const point_place *place, const plan_fixup *f, const check_access *a) {
  const plan_limits *l = &s->plan.header->limits;
  uint64_t size = point->type == VERBATIM_POINT_BF16 ? 2 : 4;
  if (a->type == TYPE_INDEX_PAGES) return covers_keys(point, place, f);
  if (place->region != f->region || place->offset != f->offset + a->start || !is_type(s, point->type, a)) return false;
  if (point->count * size != place->pairs * place->segments * place->segment_bytes) return false;
  if (point->of_logits != (place->rows == POINT_LOGITS)) return false;
  if (place->rows == POINT_KV)
    return a->region == REGION_KV && place->segments == 1 && place->segment_bytes == place->row_stride &&
           place->page_stride == PAGE_TOKENS * place->row_stride && place->page_stride * l->kv_pages == a->run_bytes;
  uint64_t rows = place->rows == POINT_LOGITS ? l->max_logit_rows : (uint64_t)l->max_batch_tokens * place->pairs;
  return a->rows == rows && a->row_stride == place->row_stride && a->batches == place->segments && a->run_bytes == place->segment_bytes &&
         (a->batches == 1 || a->batch_stride == place->segment_stride);
}

/* Counts writes of the op that no point covers, and points that are no write. */
static uint32_t op_mismatches(const subject *s, uint32_t index) {
  const plan_op *op = &s->plan.ops[index];
  const plan_limits *l = &s->plan.header->limits;
  check_access accesses[CHECK_ACCESS_MAX];
  check_rows rows = {.tokens = l->max_batch_tokens, .logits = l->max_logit_rows, .blocks = 1};
  uint64_t args[64] = {0};
  uint32_t matched = 0, missed = 0;
  memcpy(args, s->plan.args + op->args_offset, op->args_bytes);
  for (uint32_t i = 0; i < op->fixup_count; i++) args[s->plan.fixups[op->first_fixup + i].args_offset / 8] = 1; /* not null */
  uint32_t count = check_access_describe(op->kernel, args, op->args_bytes, l, &rows, accesses);
  assert_true(count > 0);
  for (uint32_t i = 0; i < count && has_points(op->kernel); i++) {
    const plan_fixup *f = find_fixup(s, op, accesses[i].args_offset);
    if (!accesses[i].is_write || !f || is_exempt(op, args, &accesses[i])) continue;
    uint32_t found = 0;
    for (uint32_t n = 0; n < made_by(s, index); n++) {
      uint32_t point = nth_point(s, index, n);
      found += covers(s, &s->points.list[point], &s->points.places[point], f, &accesses[i]);
    }
    const uint32_t wanted = accesses[i].type == TYPE_INDEX_PAGES ? 2 : 1;
    matched += found == wanted ? wanted : 0;
    missed += found != wanted;
  }
  return missed + (made_by(s, index) - matched);
}

static uint32_t all_mismatches(const subject *s) {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < s->plan.op_count; i++) sum += op_mismatches(s, i);
  return sum;
}

static void for_all(void (*check)(const subject *s)) {
  for (size_t i = 0; i < ARRAY_LEN(CONFIGS); i++) {
    subject both = open_subject(CONFIGS[i], BOTH), split = open_subject(CONFIGS[i], SPLIT);
    check(&both);
    check(&split);
    close_subject(&both);
    close_subject(&split);
  }
}

static void check_bytes(const subject *s) { assert_int_equal(all_mismatches(s), 0); }
static void points_are_what_the_ops_write(void **state) { (void)state, for_all(check_bytes); }

/* Every field of a point that says where bytes are is compared. */
static void find_wrong_places(const char *config) {
  subject s = open_subject(config, BOTH);
  for (uint32_t i = 0; i < s.points.count; i++) {
    point_place *place = (point_place *)(uintptr_t)&s.points.places[i], sound = *place;
    verbatim_point *point = (verbatim_point *)(uintptr_t)&s.points.list[i], sound_point = *point;
    for (int damage = 0; damage < 9; damage++) {
      if (damage == 0) place->offset += 2;
      if (damage == 1) place->row_stride += 4;
      if (damage == 2) place->segment_bytes -= 4, point->count -= point->count / 2;
      if (damage == 3) place->segments++;
      if (damage == 4) place->region = REGION_STATE;
      if (damage == 5) point->count--;
      if (damage == 6) point->type = (point->type + 1) % 3;
      if (damage == 7) place->segment_stride += place->segments > 1 ? 2 : 0, place->pairs += place->segments == 1;
      if (damage == 8 && place->rows == POINT_KV) place->page_stride += 4;
      if (damage == 8 && place->rows != POINT_KV) continue;
      if (all_mismatches(&s) == 0) fail_msg("%s: damage %d is not seen", point->name, damage);
      *place = sound;
      *point = sound_point;
    }
  }
  assert_int_equal(all_mismatches(&s), 0);
  close_subject(&s);
}

static void wrong_places_are_found(void **state) {
  (void)state;
  find_wrong_places("small-v3");
  find_wrong_places("small-v32-fp8");
}

/* === Ops and points ===================================================================================================== */

static void check_ops(const subject *s) {
  const uint32_t none = UINT32_MAX;
  for (uint32_t i = 0; i < s->plan.op_count; i++) {
    const plan_op *op = &s->plan.ops[i];
    bool is_split = op->kernel == KERNEL_mla_attn && ((const mla_attn_args *)args_of(s, i))->slots_max != 0;
    assert_int_equal(made_by(s, i) > 0, has_points(op->kernel) && !is_split);
    bool absorbs = op->kernel == KERNEL_qkv_rope && ((const qkv_rope_args *)args_of(s, i))->absorbs;
    assert_true(!absorbs || made_by(s, i) == 4); /* the last one belongs to the product, which has ops of its own for more rows */
    bool lifts = op->kernel == KERNEL_mla_fold && ((const mla_fold_args *)args_of(s, i))->lifts;
    assert_true(!lifts || made_by(s, i) == 2); /* likewise */
    if (i > 0 && !is_split && strcmp(op_name(s, i), op_name(s, i - 1)) == 0) { /* alternatives */
      assert_true(made_by(s, i) == made_by(s, i - 1) || (op->kernel == KERNEL_qkv_rope && made_by(s, i) == 3) ||
                  (op->kernel == KERNEL_mla_fold && made_by(s, i) == 1));
      for (uint32_t n = 0; n < made_by(s, i); n++) assert_int_equal(nth_point(s, i, n), nth_point(s, i - 1, n));
    }
    for (uint32_t n = 0; n < made_by(s, i); n++) {
      uint32_t point = nth_point(s, i, n), first = s->points.first_op[point];
      assert_true(first <= i && (n == 0 || lifts || first == s->points.first_op[point - 1]));
      assert_true(first == 0 || strcmp(op_name(s, first), op_name(s, first - 1)) != 0); /* the first of its name */
      bool is_product = (s->plan.ops[first].kernel == KERNEL_qkv_rope && strstr(s->points.list[point].name, " absorb")) ||
                        (s->plan.ops[first].kernel == KERNEL_mla_fold && strstr(s->points.list[point].name, " v_up"));
      if (!is_product) assert_memory_equal(op_name(s, first), s->points.list[point].name, strlen(op_name(s, first)));
      assert_int_equal(s->points.list[point].layer, op->layer);
    }
  }
  uint32_t last = none;
  for (uint32_t i = 0; i < s->points.count; i++) {
    assert_true(last == none || s->points.first_op[i] >= last); /* in the order of computation */
    last = s->points.first_op[i];
    assert_true(points_row_bytes(&s->points.list[i]) <= s->points.row_bytes_max);
    for (uint32_t j = 0; j < i; j++) assert_string_not_equal(s->points.list[i].name, s->points.list[j].name);
  }
}
static void every_op_has_its_points_and_alternatives_share_them(void **state) { (void)state, for_all(check_ops); }

static void the_list_knows_no_limits(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(CONFIGS); i++) {
    subject a = open_subject(CONFIGS[i], BOTH), b = open_subject(CONFIGS[i], SPLIT);
    assert_int_equal(a.points.count, b.points.count);
    for (uint32_t n = 0; n < a.points.count; n++) {
      const verbatim_point *p = &a.points.list[n], *q = &b.points.list[n];
      assert_string_equal(p->name, q->name);
      assert_true(p->layer == q->layer && p->kernel == q->kernel && p->type == q->type && p->count == q->count &&
                  p->of_logits == q->of_logits);
    }
    close_subject(&a);
    close_subject(&b);
  }
}

static void names_say_what_they_are(void **state) {
  (void)state;
  static const char *const LAYER[] = {
      "input_norm x", "input_norm", "qkv_a", "q_a_norm", "q_b", "qkv_rope q_nope", "qkv_rope q_latent", "qkv_rope kv", "absorb", "mla_attn",
      "v_up", "o_proj", "post_norm x", "post_norm", "shared gate_up", "router_logits", "shared down", "router topk_id",
      "router topk_weight", "experts gate_up", "experts down"};
  subject s = open_subject("small-v3", BOTH);
  uint32_t first = find_point(&s, "layer 1 input_norm x");
  for (uint32_t i = 0; i < ARRAY_LEN(LAYER); i++) {
    char name[64];
    snprintf(name, sizeof name, "layer 1 %s", LAYER[i]);
    assert_string_equal(s.points.list[first + i].name, name);
  }
  assert_string_equal(s.points.list[0].name, "embed");
  static const char *const TAIL[] = {"final_norm", "lm_head", "adjust"};
  for (uint32_t i = 0; i < 3; i++) assert_string_equal(s.points.list[s.points.count - 3 + i].name, TAIL[i]);
  const verbatim_point *experts = &s.points.list[find_point(&s, "layer 1 experts down")];
  assert_true(experts->count == 2 * 128 && experts->type == VERBATIM_POINT_F32 && experts->kernel == KERNEL_moe_gemm);
  assert_int_equal(s.points.list[find_point(&s, "layer 0 mla_attn")].kernel, KERNEL_mla_attn);
  close_subject(&s);
}

/* === Experts ============================================================================================================ */

static void check_pairs_of(const subject *s, uint32_t top_k) {
  const char *const names[] = {"layer 1 experts gate_up", "layer 1 experts down"};
  uint64_t pair_row = find_fixup(s, &s->plan.ops[find_op(s, "layer 1 moe_sort")], offsetof(moe_sort_args, pair_row))->offset;
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    const point_place *place = &s->points.places[find_point(s, names[i])];
    assert_true(place->rows == POINT_PAIRS && place->pairs == top_k && place->pair_row == pair_row);
  }
  assert_int_equal(s->points.places[find_point(s, "layer 1 shared gate_up")].rows, POINT_TOKENS);
  assert_int_equal(s->points.places[find_point(s, "layer 0 gate_up")].rows, POINT_TOKENS);
}

/* With one expert per token the experts' products have as many rows as there are tokens, but their rows are in sorted order. */
static void sorted_rows_are_known_from_their_source(void **state) {
  (void)state;
  static const char FIELD[] = "\"num_experts_per_tok\": 2";
  subject two = open_subject("small-v3", BOTH);
  check_pairs_of(&two, 2);
  close_subject(&two);
  fixture_bytes config = fixture_read("tests/oracle/small-v3.json"), file = {0};
  config.bytes[config.count] = 0;
  char *field = strstr(config.bytes, FIELD);
  void *made;
  assert_non_null(field);
  field[sizeof FIELD - 2] = '1';
  planner_input input = {.config = {config.bytes, config.count}, .deploy = {BOTH, sizeof BOTH - 1}};
  if (planner_make(&input, &made, &file.count) != OK) fail_msg("%s", fail_text());
  file.bytes = made;
  subject one = open_bytes(file);
  check_pairs_of(&one, 1);
  assert_int_equal(all_mismatches(&one), 0);
  close_subject(&one);
  free(config.bytes);
}

/* === Invalid plans ====================================================================================================== */

static void alternatives_differ(subject *s) {
  uint32_t op = find_op(s, "layer 1 o_proj");
  assert_string_equal(op_name(s, op), op_name(s, op + 1));
  ((plan_fixup *)(uintptr_t)find_fixup(s, &s->plan.ops[op + 1], offsetof(gemm_args, y)))->offset += 256;
}
static void a_fold_writes_elsewhere(subject *s) {
  plan_op *op = (plan_op *)(uintptr_t)&s->plan.ops[find_op(s, "layer 2 mla_fold")];
  ((plan_fixup *)(uintptr_t)find_fixup(s, op, offsetof(mla_fold_args, out)))->offset += 256;
}
static void rows_leave_the_region(subject *s) { ((gemm_args *)args_of(s, find_op(s, "lm_head")))->ldy = UINT32_MAX; }
static void products_overflow(subject *s) {
  gemm_args *a = args_of(s, find_op(s, "layer 0 absorb"));
  a->y_batch = UINT64_MAX / 2 + 2;
}
static void rows_are_empty(subject *s) { ((rmsnorm_args *)args_of(s, find_op(s, "final_norm")))->dim = 0; }
static void pairs_differ(subject *s) { ((moe_gemm_args *)args_of(s, find_op(s, "layer 1 experts down")))->top_k = 3; }
static void pairs_are_too_many(subject *s) { ((moe_sort_args *)args_of(s, find_op(s, "layer 1 moe_sort")))->top_k = TOP_K_EXPERTS_MAX + 1; }
static void the_sort_is_missing(subject *s) {
  for (uint32_t i = find_op(s, "layer 1 moe_sort"); s->plan.ops[i].kernel == KERNEL_moe_sort; i++)
    ((plan_op *)(uintptr_t)&s->plan.ops[i])->kernel = KERNEL_sample;
}
static void rows_are_in_another_region(subject *s) {
  ((plan_fixup *)(uintptr_t)find_fixup(s, &s->plan.ops[0], offsetof(embed_args, x)))->region = REGION_STEP;
}

static void wrong_plans_are_refused(void **state) {
  (void)state;
  const struct { void (*damage)(subject *s); const char *words; } cases[] = {
      {alternatives_differ, "layer 1 o_proj: its alternatives"}, {a_fold_writes_elsewhere, "layer 2 mla_fold: its alternatives"},
      {rows_leave_the_region, "op lm_head: expected rows inside"}, {products_overflow, "layer 0 absorb: expected rows inside"},
      {rows_are_empty, "op final_norm: expected rows of numbers"}, {pairs_differ, "layer 1 experts down: expected 2 rows"},
      {pairs_are_too_many, "layer 1 moe_sort: expected 1 to 16"}, {the_sort_is_missing, "layer 1 experts gate_up: expected 0 rows"},
      {rows_are_in_another_region, "op embed: expected rows of numbers in region"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    subject s = open_subject("small-v3", BOTH);
    points again;
    arena host = {0};
    cases[i].damage(&s);
    fail_clear();
    fixture_expect(points_open(&again, &s.plan, &host), ERR_FORMAT, cases[i].words);
    arena_close(&host);
    close_subject(&s);
  }
}

/* === Digests ============================================================================================================ */

static void digests_take_numbers_by_their_bits(void **state) {
  (void)state;
  const uint16_t halves[] = {0x8000, 0x3f80, 0xffff};
  const uint32_t words[] = {0x8000, 0x3f80, 0xffff};
  uint64_t expected = 0;
  for (uint32_t i = 0; i < 3; i++) expected += num_digest_word(i, words[i]);
  verbatim_point point = {.type = VERBATIM_POINT_BF16, .count = 3};
  assert_true(points_row_digest(&point, halves) == expected && points_row_bytes(&point) == 6);
  point.type = VERBATIM_POINT_F32;
  assert_true(points_row_digest(&point, words) == expected && points_row_bytes(&point) == 12);
  const uint32_t swapped[] = {0x3f80, 0x8000, 0xffff};
  assert_true(points_row_digest(&point, swapped) != expected);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(points_are_what_the_ops_write), cmocka_unit_test(wrong_places_are_found),
      cmocka_unit_test(every_op_has_its_points_and_alternatives_share_them), cmocka_unit_test(the_list_knows_no_limits),
      cmocka_unit_test(names_say_what_they_are), cmocka_unit_test(sorted_rows_are_known_from_their_source),
      cmocka_unit_test(wrong_plans_are_refused), cmocka_unit_test(digests_take_numbers_by_their_bits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
