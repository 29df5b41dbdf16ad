/* test_profile.c - device profiles: usable entries become pins of the matching products, restricted to each alternative's rows. */
#include "tests/unit/unit.h"
#include "planner/profile.h"
#include "planner/profile_shipped.h"
#include "planner_fixture.h"

#define ALGO "\"algo\": [\"1\", \"0\", \"0x2a\", \"0\", \"0\", \"0\", \"0\", \"ffffffffffffffff\"], "
#define ENTRY(n, k, out, rows, use)                                    \
  "{\"n\": " n ", \"k\": " k ", \"out\": \"" out "\", " rows ", " ALGO \
  "\"workspace_bytes\": 1000, \"us\": 1.5, \"own_us\": 2, \"certified\": true, \"use\": " use "}"
#define OTHER(n, k, out, rows, use)                                    \
  "{\"n\": " n ", \"k\": " k ", \"out\": \"" out "\", " rows ", " ALGO \
  "\"workspace_bytes\": 2000, \"us\": 1.2, \"own_us\": 2, \"certified\": false, \"use\": " use "}"
#define PROFILE(entries) \
  "{\"device\": \"d\", \"driver\": \"x\", \"library_version\": 130100, \"entries\": [" entries "]}"
#define ROWS(low, high) "\"rows_min\": " low ", \"rows_max\": " high

static status parse(const char *text, profile *out) {
  fail_clear();
  return profile_parse(text, strlen(text), out);
}

static void only_used_entries_are_kept(void **state) {
  (void)state;
  profile p = {0};
  const char *text =
      PROFILE(ENTRY("64", "128", "f32", ROWS("17", "64"), "true") ", " ENTRY("64", "128", "bf16", ROWS("17", "64"), "false"));
  assert_int_equal(parse(text, &p), OK);
  assert_int_equal(p.count, 1);
  assert_int_equal(p.entries[0].y_f32, 1);
  assert_true(p.entries[0].gemm.algo[2] == 42);
  assert_true(p.entries[0].gemm.algo[7] == UINT64_MAX);
  assert_true(p.entries[0].gemm.library_version == 130100);
  profile_free(&p);
}

/* They may coexist with certified ones of the same rows, and never become pins. */
static void uncertified_entries_are_kept_apart(void **state) {
  (void)state;
  profile p = {0};
  const char *text = PROFILE(ENTRY("704", "192", "f32", ROWS("1", "64"), "true") ","
                             OTHER("704", "192", "f32", ROWS("1", "64"), "true") ","
                             OTHER("704", "192", "f32", ROWS("65", "80"), "true") ","
                             OTHER("704", "192", "f32", ROWS("1", "80"), "false"));
  assert_int_equal(parse(text, &p), OK);
  assert_int_equal(p.count, 1);
  assert_int_equal(p.other_count, 2);
  assert_true(p.others[1].gemm.rows_min == 65 && p.others[1].gemm.workspace_bytes == 2000);
  profile_free(&p);
  fixture_bytes file = fixture_plan("tests/data/configs/tiny.json", NULL, text);
  const plan_header *h = (const void *)file.bytes;
  const plan_gemm *gemms = (const void *)(file.bytes + h->gemms.offset);
  assert_true(h->gemms.count > 0);
  for (uint32_t i = 0; i < h->gemms.count; i++) {
    assert_true(gemms[i].rows_max <= 64 && gemms[i].workspace_bytes == 1000);
    assert_int_equal(gemms[i].is_optional, 0);
  }
  free(file.bytes);
  text = PROFILE(OTHER("64", "128", "f32", ROWS("1", "20"), "true") "," OTHER("64", "128", "f32", ROWS("20", "30"), "true"));
  fixture_expect(parse(text, &p), ERR_FORMAT, "overlap");
}

/* Their pins may be dropped at start-up, and the plan states where they come from; a plan that uses none of them states nothing. */
static void shipped_pins_are_optional(void **state) {
  (void)state;
  const char *text = PROFILE(ENTRY("704", "192", "f32", ROWS("1", "512"), "true"));
  fixture_bytes config = fixture_read("tests/data/configs/tiny.json");
  for (int matches = 0; matches < 2; matches++) {
    const char *known = matches ? text : PROFILE(ENTRY("8", "64", "f32", ROWS("1", "512"), "true"));
    const planner_input input = {.config = {config.bytes, config.count}, .profile = {known, strlen(known)}, .shipped = "some-gpu.json"};
    void *bytes = NULL;
    size_t count = 0;
    assert_int_equal(planner_make(&input, &bytes, &count), OK);
    const plan_header *h = bytes;
    const plan_gemm *gemms = (const void *)((char *)bytes + h->gemms.offset);
    const char *strings = (char *)bytes + h->strings.offset;
    const uint32_t *notes = (const void *)((char *)bytes + h->notes.offset);
    bool is_noted = false;
    for (uint32_t i = 0; i < h->notes.count; i++) is_noted |= strstr(strings + notes[i], "some-gpu.json") != NULL;
    assert_int_equal(is_noted, matches);
    assert_int_equal(h->gemms.count > 0, matches);
    for (uint32_t i = 0; i < h->gemms.count; i++) assert_int_equal(gemms[i].is_optional, 1);
    free(bytes);
  }
  free(config.bytes);
}

static void shipped_profiles_are_sound(void **state) {
  (void)state;
  assert_true(profile_shipped_count > 0);
  for (size_t i = 0; i < profile_shipped_count; i++) {
    profile p = {0};
    if (parse(profile_shipped[i].text, &p) != OK) fail_msg("%s: %s", profile_shipped[i].name, fail_text());
    if (!p.count) fail_msg("%s holds no entry that is used", profile_shipped[i].name);
    profile_free(&p);
  }
}

static void wrong_entries_are_named(void **state) {
  (void)state;
  static const char *const CASES[][2] = {
      {"[]", "entries"},
      {"{}", "entries"},
      {"{\"entries\": []}", "library_version"},
      {"nonsense", "line 1"},
      {PROFILE("3"), "entry 0"},
      {PROFILE(ENTRY("0", "128", "f32", ROWS("1", "2"), "true")), "\"n\""},
      {PROFILE(ENTRY("64", "1.5", "f32", ROWS("1", "2"), "true")), "\"k\""},
      {PROFILE(ENTRY("64", "128", "f16", ROWS("1", "2"), "true")), "\"out\""},
      {PROFILE(ENTRY("64", "128", "f32", ROWS("3", "2"), "true")), "\"rows_max\""},
      {PROFILE(ENTRY("64", "128", "f32", ROWS("0", "2"), "true")), "\"rows_min\""},
      {PROFILE(ENTRY("64", "128", "f32", ROWS("1", "2"), "1")), "\"use\""},
      {PROFILE("{\"n\": 64, \"k\": 64, \"out\": \"f32\", \"use\": true}"), "\"certified\""},
      {PROFILE(ENTRY("64", "128", "f32", ROWS("1", "20"), "true") "," ENTRY("64", "128", "f32", ROWS("20", "30"), "true")), "overlap"},
      {PROFILE("{\"n\": 64, \"k\": 64, \"out\": \"f32\", \"rows_min\": 1, \"rows_max\": 1, \"algo\": [\"1\"], \"workspace_bytes\": 0, "
               "\"certified\": true, \"use\": true}"),
       "algo"},
      {PROFILE("{\"n\": 64, \"k\": 64, \"out\": \"f32\", \"rows_min\": 1, \"rows_max\": 1, \"algo\": "
               "[\"g\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\","
               "\"1\"], \"workspace_bytes\": 0, \"certified\": true, \"use\": true}"),
       "algo"},
  };
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    profile p = {0};
    fixture_expect(parse(CASES[i][0], &p), ERR_FORMAT, CASES[i][1]);
    assert_null(p.entries);
  }
}

/* The shipped model's qkv_a is [704][192] with an fp32 result, in four layers and three alternatives that see these rows; w_uk is batched
 * and never pinned. */
static void pins_follow_shape_and_rows(void **state) {
  (void)state;
  const char *text =
      PROFILE(ENTRY("704", "192", "f32", ROWS("10", "100"), "true") "," ENTRY("512", "64", "bf16", ROWS("1", "512"), "true"));
  fixture_bytes file = fixture_plan("tests/data/configs/tiny.json", "max-num-batched-tokens: 512", text);
  const plan_header *h = (const void *)file.bytes;
  const plan_op *ops = (const void *)(file.bytes + h->ops.offset);
  const plan_gemm *gemms = (const void *)(file.bytes + h->gemms.offset);
  uint32_t pinned = 0, covered = 0;
  for (uint32_t i = 0; i < h->ops.count; i++) {
    if (ops[i].gemm_count == 0) continue;
    const plan_gemm *pin = &gemms[ops[i].first_gemm];
    pinned++;
    covered += pin->rows_max - pin->rows_min + 1;
    assert_int_equal(ops[i].gemm_count, 1);
    assert_true(pin->rows_min >= ops[i].rows_min && pin->rows_max <= ops[i].rows_max);
  }
  assert_int_equal(pinned, 4 * 3);
  assert_int_equal(covered, 4 * 91); /* rows 10 to 100 */
  assert_int_equal(h->gemms.count, 3); /* shared by the layers */
  assert_true(h->gemm_workspace_bytes == 1000);
  free(file.bytes);
}

static void pins_change_no_numerics(void **state) {
  (void)state;
  const char *text = PROFILE(ENTRY("704", "192", "f32", ROWS("1", "512"), "true"));
  fixture_bytes with = fixture_plan("tests/data/configs/tiny.json", NULL, text),
                without = fixture_plan("tests/data/configs/tiny.json", NULL, NULL);
  const plan_header *a = (const void *)with.bytes, *b = (const void *)without.bytes;
  assert_memory_equal(a->numerics_id, b->numerics_id, 16);
  assert_memory_not_equal(a->digest, b->digest, 16);
  free(with.bytes);
  free(without.bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(only_used_entries_are_kept),
      cmocka_unit_test(uncertified_entries_are_kept_apart),
      cmocka_unit_test(shipped_pins_are_optional),
      cmocka_unit_test(shipped_profiles_are_sound),
      cmocka_unit_test(wrong_entries_are_named),
      cmocka_unit_test(pins_follow_shape_and_rows),
      cmocka_unit_test(pins_change_no_numerics),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
