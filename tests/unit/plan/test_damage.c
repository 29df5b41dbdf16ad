/* test_damage.c - a small plan and the header of a small safetensors file, truncated at every byte and with every single bit flipped.
 *
 * The promise: the result is an error, or a behaviour that cannot be mistaken for that of the sound file. A flipped plan is refused by its
 * digest; one with a corrected digest is refused by its contents, or runs inside its regions (plan_walk.h). Flipped weights that load are
 * the same weights, or have another digest. Under the sanitizers, and after the headers, flips are sampled: see the strides below. */
#include "tests/unit/unit.h"
#include "engine/plan/plan.h"
#include "engine/weights/weights.h"
#include "planner/checks/check.h"
#include "tests/unit/planner/planner_fixture.h"
#include "tests/fuzz/plan_walk.h"

#ifdef __SANITIZE_ADDRESS__
#define SEALED_STRIDE 211u /* primes, so that all bits of a byte and all bytes of a struct are sampled */
#define RUN_STRIDE 2u     /* stride of the accepted ones */
#define HEADER_STRIDE 7u
#else
#define SEALED_STRIDE 11u
#define RUN_STRIDE 8u
#define HEADER_STRIDE 1u
#endif
#define DATA_STRIDE 4099u

#define CONFIG "tests/data/configs/smallest.json"
#define DEPLOY "{max-num-seqs: 4, max-num-batched-tokens: 4, max-model-len: 66, kv_pages: 3, chunk_tokens: 64}"

static fixture_bytes sound; /* the plan */

static void flip(void *bytes, size_t bit) { ((uint8_t *)bytes)[bit / 8] ^= (uint8_t)(1u << bit % 8); }

/* === The plan =========================================================================================================== */

static status view_of(const void *bytes, size_t count) {
  plan view;
  fail_clear();
  return plan_view(bytes, count, &view);
}

static void a_cut_plan_is_refused(void **state) {
  (void)state;
  for (size_t count = 0; count < sound.count; count++) {
    void *copy = malloc(count + 1); /* a block of its own, so that reads after its end are noticed */
    assert_non_null(copy);
    memcpy(copy, sound.bytes, count);
    assert_int_equal(view_of(copy, count), ERR_FORMAT);
    free(copy);
  }
  assert_int_equal(view_of(sound.bytes, sound.count), OK);
}

static void a_flipped_plan_is_refused(void **state) {
  (void)state;
  for (size_t bit = 0; bit < 8 * sound.count; bit++) {
    flip(sound.bytes, bit);
    status result = view_of(sound.bytes, sound.count);
    flip(sound.bytes, bit);
    if (result != ERR_FORMAT && result != ERR_UNSUPPORTED) fail_msg("bit %zu of byte %zu: code %d", bit % 8, bit / 8, result);
  }
}

/* The verdicts on a flipped plan with a corrected digest. */
enum { REFUSED_BY_ENGINE, REFUSED_BY_CHECKER, RUN, TOO_LARGE, VERDICTS };

static int judge(const uint8_t *bytes, size_t count) {
  if (view_of(bytes, count) != OK) return REFUSED_BY_ENGINE;
  if (check_plan(bytes, count) != OK) return REFUSED_BY_CHECKER;
  static uint32_t accepted;
  if (accepted++ % RUN_STRIDE) return RUN;
  return plan_walk_run(bytes, count) ? RUN : TOO_LARGE; /* a region may grow */
}

static void a_resealed_plan_is_refused_or_runs(void **state) {
  (void)state;
  uint32_t verdicts[VERDICTS] = {0};
  uint8_t *damaged = malloc(sound.count);
  assert_non_null(damaged);
  memcpy(damaged, sound.bytes, sound.count);
  assert_int_equal(judge(damaged, sound.count), RUN);
  for (size_t bit = 0; bit < 8 * sound.count; bit += SEALED_STRIDE) {
    flip(damaged, bit);
    plan_walk_seal(damaged, sound.count);
    verdicts[judge(damaged, sound.count)]++;
    memcpy(damaged, sound.bytes, sound.count);
  }
  free(damaged);
  print_message("%u refused by the engine, %u by the checker, %u run, %u too large\n", verdicts[0], verdicts[1], verdicts[2], verdicts[3]);
  for (int i = 0; i <= RUN; i++) assert_true(verdicts[i] > 8 * sound.count / SEALED_STRIDE / 100); /* every verdict occurred */
}

/* === The weights ======================================================================================================== */

typedef struct model { /* a safetensors file with every tensor of the plan, and one that the plan does not use */
  uint8_t *bytes;
  size_t header_bytes, count; /* header_bytes: with the size before it */
} model;

static bool is_repeated(const plan *p, uint32_t tensor) {
  for (uint32_t i = 0; i < tensor; i++)
    if (strcmp(plan_string(p, p->tensors[i].name), plan_string(p, p->tensors[tensor].name)) == 0) return true;
  return false;
}

static model make_model(const plan *p) {
  model m = {.bytes = malloc(4u << 20)};
  assert_non_null(m.bytes);
  char *header = (char *)m.bytes + 8;
  size_t used = (size_t)sprintf(header, "{\"__metadata__\":{\"format\":\"pt\"},\"unused\":{\"dtype\":\"I64\",\"shape\":[1],"
                                "\"data_offsets\":[0,8]}");
  size_t end = 8;
  for (uint32_t i = 0; i < p->tensor_count; i++) {
    const plan_tensor *t = &p->tensors[i];
    size_t bytes = (size_t)t->rows * t->cols * plan_dtype_bytes(t->dtype);
    if (is_repeated(p, i)) continue;
    used += (size_t)sprintf(header + used, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", plan_string(p, t->name),
                            t->dtype == DTYPE_F32 ? "F32" : "BF16");
    used += t->rows == 1 ? (size_t)sprintf(header + used, "%u", t->cols) : (size_t)sprintf(header + used, "%u,%u", t->rows, t->cols);
    used += (size_t)sprintf(header + used, "],\"data_offsets\":[%zu,%zu]}", end, end + bytes);
    end += bytes;
  }
  used += (size_t)sprintf(header + used, "}");
  for (int i = 0; i < 8; i++) m.bytes[i] = (uint8_t)((uint64_t)used >> (8 * i));
  m.header_bytes = 8 + used;
  m.count = m.header_bytes + end;
  assert_true(m.count <= 4u << 20);
  for (size_t i = 0; i < end; i++) m.bytes[m.header_bytes + i] = (uint8_t)(i * 7 + i / 251);
  return m;
}

typedef struct loaded { /* the weights as the engine gets them */
  uint8_t *memory;      /* [REGION_WEIGHTS] */
  digest digest;
} loaded;

static status load(const plan *p, const model *m, loaded *out) {
  safetensors *set = NULL;
  weights_report report;
  weights_target target = {.ranks = 1, .address = {(uint64_t)(uintptr_t)out->memory}};
  fail_clear();
  TRY(safetensors_view(&set, m->bytes, m->count));
  memset(out->memory, 0, p->regions[REGION_WEIGHTS].bytes);
  status result = weights_load(p, set, &target, NULL, NULL, &report);
  safetensors_close(set);
  if (result == OK) out->digest = report.digest;
  return result;
}

static loaded room_for(const plan *p) {
  loaded room = {.memory = malloc(p->regions[REGION_WEIGHTS].bytes)};
  assert_non_null(room.memory);
  return room;
}

/* Flips every stride-th bit of the bytes [from, to); returns how many flips loaded. */
static uint32_t flip_weights(const plan *p, model *m, size_t from, size_t to, size_t stride) {
  loaded before = room_for(p), after = room_for(p);
  uint32_t accepted = 0;
  assert_int_equal(load(p, m, &before), OK);
  for (size_t bit = 8 * from; bit < 8 * to; bit += stride) {
    flip(m->bytes, bit);
    status result = load(p, m, &after);
    flip(m->bytes, bit);
    if (result != OK) continue;
    bool is_same = memcmp(before.memory, after.memory, p->regions[REGION_WEIGHTS].bytes) == 0;
    bool has_same_digest = memcmp(&before.digest, &after.digest, sizeof before.digest) == 0;
    if (!is_same && has_same_digest) fail_msg("bit %zu of byte %zu changes the weights and not their digest", bit % 8, bit / 8);
    accepted++;
  }
  free(before.memory);
  free(after.memory);
  return accepted;
}

static void flipped_weights_are_refused_or_named(void **state) {
  (void)state;
  plan p;
  assert_int_equal(plan_view(sound.bytes, sound.count, &p), OK);
  model m = make_model(&p);
  uint32_t in_header = flip_weights(&p, &m, 0, m.header_bytes, HEADER_STRIDE);
  uint32_t in_data = flip_weights(&p, &m, m.header_bytes, m.count, DATA_STRIDE);
  print_message("header of %zu bytes: %u flips load; data: %u\n", m.header_bytes, in_header, in_data);
  assert_true(in_header > 0 && in_header < 8 * m.header_bytes / HEADER_STRIDE / 10); /* names of unused tensors, and little else */
  assert_true(in_data > 100);
  free(m.bytes);
}

static void cut_weights_are_refused(void **state) {
  (void)state;
  plan p;
  assert_int_equal(plan_view(sound.bytes, sound.count, &p), OK);
  model m = make_model(&p);
  size_t step = 1;
  for (size_t count = 0; count < m.count; count += step) {
    safetensors *set = NULL;
    uint8_t *copy = malloc(count + 1);
    assert_non_null(copy);
    memcpy(copy, m.bytes, count);
    fail_clear();
    if (safetensors_view(&set, copy, count) == OK) fail_msg("cut at byte %zu of %zu: accepted", count, m.count);
    free(copy);
    if (count >= m.header_bytes && count + DATA_STRIDE < m.count) step = DATA_STRIDE / 8; /* the last bytes one by one again */
    else step = 1;
  }
  free(m.bytes);
}

static int make_plan(void **state) {
  (void)state;
  sound = fixture_plan(CONFIG, DEPLOY, NULL);
  return 0;
}

static int free_plan(void **state) {
  (void)state;
  free(sound.bytes);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_cut_plan_is_refused), cmocka_unit_test(a_flipped_plan_is_refused),
                                     cmocka_unit_test(a_resealed_plan_is_refused_or_runs), cmocka_unit_test(cut_weights_are_refused),
                                     cmocka_unit_test(flipped_weights_are_refused_or_named)};
  return cmocka_run_group_tests(tests, make_plan, free_plan);
}
