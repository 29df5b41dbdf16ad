/* test_planner_attention.c - plans of real size: how their attention is split, and which ops and forms are used for which rows. Read next:
 * test_planner.c. */
#include "tests/unit/unit.h"
#include "engine/exec/backend.h"
#include "kernels_src/abi.h"
#include "kernels_src/attn/attn_cut.h"
#include "planner/draft.h"
#include "planner_fixture.h"

static const plan_header *header(fixture_bytes file) { return (const void *)file.bytes; }
static const void *table(fixture_bytes file, plan_span span) { return file.bytes + span.offset; }
static const char *text(fixture_bytes file, uint32_t string) { return file.bytes + header(file)->strings.offset + string; }

/* The value of the kernel's constant; 0: it has none. */
static uint32_t value_of(fixture_bytes file, const plan_kernel *kernel, const char *name) {
  const plan_spec *specs = table(file, header(file)->specs);
  for (uint32_t i = 0; i < kernel->spec_count; i++)
    if (strcmp(text(file, specs[kernel->first_spec + i].name), name) == 0) return specs[kernel->first_spec + i].value;
  return 0;
}

/* Split attention has room for every chunk while that is small, otherwise for all groups and some of the workers' chunks, within a
 * bound. With few heads clusters share the chunks of one token. */
static void long_contexts_have_room_for_groups(void **state) {
  (void)state;
  static const struct {
    const char *path, *deploy;
    uint32_t slots, rows, shared; /* shared: CTAs of a step of one token, in clusters */
  } CASES[] = {{"tests/data/configs/tiny.json", "max-model-len: 1024", 64 * 4, 8, 16},
               {"tests/data/configs/deepseek-v2-lite.json", "max-model-len: 4096", 64 * 16, 16, 64},
               {"tests/data/configs/deepseek-v2-lite.json", "max-model-len: 4352", 64 * 17, 16, 0},
               {"tests/data/configs/deepseek-v2-lite.json", "max-model-len: 16384", 64 * 8 + 132 * 8, 16, 0},
               {"tests/data/configs/deepseek-v3.json", "{max-model-len: 163840, kv_pages: 4096}", (256u << 20) / (128 * 514 * 4), 0, 0}};
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    fixture_bytes file = fixture_plan(CASES[i].path, CASES[i].deploy, NULL);
    const plan_op *ops = table(file, header(file)->ops);
    const plan_kernel *kernels = table(file, header(file)->kernels);
    uint32_t seen = 0;
    for (uint32_t o = 0; o < header(file)->ops.count; o++) {
      mla_attn_args a;
      if (ops[o].kernel != OP_mla_attn) continue;
      memcpy(&a, (const char *)table(file, header(file)->args) + ops[o].args_offset, sizeof a);
      bool is_split = ops[o].rows_max <= header(file)->limits.split_rows_max;
      assert_int_equal(a.slots_max, is_split ? CASES[i].slots : 0);
      const bool is_decode = is_split && CASES[i].rows, shares = CASES[i].shared && ops[o].rows_max == 1; /* few heads; one token */
      assert_int_equal(kernels[ops[o].variant].spec_count, is_decode && !shares ? 5 : 6);
      assert_int_equal(value_of(file, &kernels[ops[o].variant], "SPEC_SHARES"), shares ? ATTN_SHARES : 0);
      if (shares) assert_int_equal(ops[o].grid[0].constant, CASES[i].shared);
      seen++;
    }
    assert_int_equal(seen, (CASES[i].shared ? 3 : 2) * header(file)->model.layers);
    free(file.bytes);
  }
}

/* Where a top-k index list of 2,048 is one chunk, which is the default with more than 64 heads, small M uses the form that splits a token
 * over blocks, and with more than 64 heads steps with more rows than there are clusters use the form that combines nothing, for generated
 * tokens and for prompts, which are dequantized first. No form splits contexts, and a GPU must be able to run all blocks at once. */
static void lists_of_one_chunk_are_never_cut(void **state) {
  (void)state;
  static const struct {
    const char *path, *deploy;
    uint32_t chunk_tokens, forms; /* forms: of one chunk; 0: the cluster form alone, lists are several chunks */
  } CASES[] = {{"tests/data/configs/deepseek-v3.2.json", "", 2048, 5},
               {"tests/data/configs/deepseek-v3.2.json", "{chunk-tokens: 1024}", 1024, 0},
               {"tests/data/configs/glm-5.json", "{chunk-tokens: 2048}", 2048, 4},
               {"tests/data/configs/glm-5.json", "", 512, 0},
               {"tests/data/configs/deepseek-v3.json", "{kv_pages: 4096}", 512, 0}};
  static const struct {
    const char *spec;
    uint32_t value, rows_max;
  } FORMS[] = {{"SPEC_SPREAD", 32, 4}, {"SPEC_SPREAD", 16, 8}, {"SPEC_SPREAD", 8, 16}, {"SPEC_PAIR", 2, 33}, {"SPEC_TURNS", 1, UINT32_MAX}};
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    fixture_bytes file = fixture_plan(CASES[i].path, CASES[i].deploy, NULL);
    const plan_op *ops = table(file, header(file)->ops);
    const plan_kernel *kernels = table(file, header(file)->kernels);
    uint32_t seen[ARRAY_LEN(FORMS)] = {0}, cuts = 0;
    const bool is_one = CASES[i].forms > 0;
    assert_int_equal(header(file)->limits.chunk_tokens, CASES[i].chunk_tokens);
    for (uint32_t o = 0; o < header(file)->ops.count; o++) {
      uint32_t form = is_one ? 0 : 3;
      cuts += ops[o].kernel == OP_attn_cut || ops[o].kernel == OP_mla_fold;
      if (ops[o].kernel != OP_mla_attn) continue;
      while (form + 1 < CASES[i].forms && ops[o].rows_min > FORMS[form].rows_max) form++;
      assert_true(form + 1 >= CASES[i].forms || ops[o].rows_max <= FORMS[form].rows_max);
      assert_int_equal(value_of(file, &kernels[ops[o].variant], FORMS[form].spec), FORMS[form].value);
      assert_int_equal(value_of(file, &kernels[ops[o].variant], "SPEC_GROUPS"), form < 3 && CASES[i].forms == 4);
      seen[form]++;
    }
    plan view;
    assert_int_equal(plan_view(file.bytes, header(file)->file_bytes, &view), OK);
    assert_int_equal(backend_gpu_start_room(&view, 132), OK);
    assert_int_equal(backend_gpu_start_room(&view, 114), is_one ? ERR_UNSUPPORTED : OK);
    fail_clear();
    assert_int_equal(cuts == 0, is_one);
    for (uint32_t form = 0; form < ARRAY_LEN(FORMS); form++) assert_int_equal(seen[form] > 0, is_one ? form < CASES[i].forms : form == 3);
    free(file.bytes);
  }
}

/* With e4m3 weights and every cache. kv_b_proj is read three times as bf16, and rows of a coded cache are dequantized before they are
 * expanded. */
static void fast_prefill_takes_every_format(void **state) {
  (void)state;
  static const char *const CACHES[] = {"bf16", "fp8", "fp8_ds_mla"};
  for (size_t i = 0; i < ARRAY_LEN(CACHES); i++) {
    char deploy[128];
    snprintf(deploy, sizeof deploy, "{parity: fast-prefill, max-model-len: 512, max-num-seqs: 4, kv-cache-dtype: %s}", CACHES[i]);
    fixture_bytes file = fixture_plan("tests/oracle/small-v3-fp8.json", deploy, NULL);
    const plan_op *ops = table(file, header(file)->ops);
    const plan_tensor *tensors = table(file, header(file)->tensors);
    uint32_t widened = 0, expanded = 0, sources = 0;
    for (uint32_t n = 0; n < header(file)->ops.count; n++) {
      widened += ops[n].kernel == OP_kv_widen, expanded += ops[n].kernel == OP_mla_expand;
      if (ops[n].kernel == OP_kv_widen) assert_true(ops[n + 1].kernel == OP_mla_expand && ops[n + 1].rows_kind == ROWS_PROMPT);
    }
    for (uint32_t n = 0; n < header(file)->tensors.count; n++)
      if (strcmp(text(file, tensors[n].name), "model.layers.1.self_attn.kv_b_proj.weight") == 0) {
        assert_true(tensors[n].dtype == DTYPE_BF16 && tensors[n].scale_name != PLAN_NO_SCALE);
        sources++;
      }
    assert_true(expanded == 3 && sources == 3 && widened == (i ? 3 : 0));
    free(file.bytes);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(long_contexts_have_room_for_groups),
                                     cmocka_unit_test(lists_of_one_chunk_are_never_cut),
                                     cmocka_unit_test(fast_prefill_takes_every_format)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
