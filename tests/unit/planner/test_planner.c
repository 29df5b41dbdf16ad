/* test_planner.c - whole plans: the golden dump, byte identity, real sizes, random models, limits and the refusal for lack of memory.
 *
 * tests/plan/tiny.show.txt is the dump of the shipped model's shape under tests/tiny/deploy.yaml; `test_planner --record`, run in the root
 * of the repository, writes it again after an intended change, and the example of PLAN_FORMAT.md too. */
#include "tests/unit/unit.h"
#include <time.h>
#include "kernels_src/abi.h"
#include "planner/checks/check.h"
#include "planner/draft.h"
#include "planner/emit.h"
#include "planner/guarantees.h"
#include "planner/print.h"
#include "planner_fixture.h"

#define TINY "tests/data/configs/tiny.json"
#define GOLDEN "tests/plan/tiny.show.txt"

static const plan_header *header(fixture_bytes file) { return (const void *)file.bytes; }
static const void *table(fixture_bytes file, plan_span span) { return file.bytes + span.offset; }
static const char *text(fixture_bytes file, uint32_t string) { return file.bytes + header(file)->strings.offset + string; }

static char *deploy_text(void) {
  fixture_bytes deploy = fixture_read("tests/tiny/deploy.yaml");
  char *ended = realloc(deploy.bytes, deploy.count + 1);
  assert_non_null(ended);
  ended[deploy.count] = 0;
  return ended;
}

static char *dump_tiny(void) {
  char *deploy = deploy_text(), *out = NULL;
  size_t bytes = 0;
  fixture_bytes file = fixture_plan(TINY, deploy, NULL);
  FILE *stream = open_memstream(&out, &bytes);
  assert_non_null(stream);
  print_summary(stream, header(file));
  print_regions(stream, header(file));
  print_memory(stream, header(file));
  print_kernels(stream, header(file));
  print_ops(stream, header(file));
  print_guarantees(stream, header(file));
  fclose(stream);
  free(file.bytes);
  free(deploy);
  return out;
}

static void the_dump_is_golden(void **state) {
  (void)state;
  fixture_bytes golden = fixture_read(GOLDEN);
  char *dump = dump_tiny();
  size_t at = 0, line = 1;
  for (; at < golden.count && dump[at] == golden.bytes[at]; at++) line += dump[at] == '\n';
  if (at != golden.count || dump[at] != 0) fail_msg("%s differs from line %zu: found \"%.120s\"", GOLDEN, line, dump + at);
  free(dump);
  free(golden.bytes);
}

static void same_inputs_same_bytes(void **state) {
  (void)state;
  static const char *const PATHS[] = {TINY, "tests/data/configs/deepseek-v2-lite.json"};
  for (size_t i = 0; i < ARRAY_LEN(PATHS); i++) {
    fixture_bytes a = fixture_plan(PATHS[i], NULL, NULL), b = fixture_plan(PATHS[i], "# nothing\n", NULL);
    assert_int_equal(a.count, b.count);
    assert_memory_equal(a.bytes, b.bytes, a.count);
    free(a.bytes);
    free(b.bytes);
  }
}

static void the_digest_is_of_the_file(void **state) {
  (void)state;
  uint8_t written[16], found[16];
  fixture_bytes file = fixture_plan(TINY, NULL, NULL), config = fixture_read(TINY);
  memcpy(written, header(file)->digest, 16);
  memset(file.bytes + offsetof(plan_header, digest), 0, 16);
  emit_digest(file.bytes, file.count, found);
  assert_memory_equal(written, found, 16);
  emit_digest(config.bytes, config.count, found);
  assert_memory_equal(header(file)->config_digest, found, 16);
  free(file.bytes);
  free(config.bytes);
}

/* The checker's bounds are large enough for models with long steps. */
static void long_steps_have_plans(void **state) {
  (void)state;
  static const char *const CONFIGS[] = {"tests/data/configs/glm-4.7-flash.json", "tests/data/configs/deepseek-v3.json"};
  for (size_t i = 0; i < ARRAY_LEN(CONFIGS); i++) {
    static const char deploy[] = "max-num-seqs: 256\nmax-num-batched-tokens: 8192\nmax-model-len: 8192\nkv_pages: 32768\n"
                                 "parity: fast-prefill\n";
    fixture_bytes file = fixture_plan(CONFIGS[i], deploy, NULL);
    assert_int_equal(header(file)->limits.max_batch_tokens, 8192);
    free(file.bytes);
  }
}

/* Sizes and speed settings do not change the numerics id; the four numeric keys and the model do. */
static void the_numerics_id_covers_what_changes_bits(void **state) {
  (void)state;
  static const char *const SAME[] = {"max-num-seqs: 3", "max-model-len: 64",          "kv_pages: 100",
                                     "ladder: [5]", "max-num-batched-tokens: 64", "latent_norm_eps: hf"};
  static const char *const OTHER[] = {"chunk_tokens: 512", "group_chunks: 4", "parity: fast-prefill"};
  fixture_bytes base = fixture_plan(TINY, NULL, NULL), moonlight = fixture_plan("tests/data/configs/moonlight.json", NULL, NULL),
                moonlight_eps = fixture_plan("tests/data/configs/moonlight.json", "latent_norm_eps: config", NULL);
  for (size_t i = 0; i < ARRAY_LEN(SAME); i++) {
    fixture_bytes file = fixture_plan(TINY, SAME[i], NULL);
    assert_memory_equal(header(file)->numerics_id, header(base)->numerics_id, 16);
    free(file.bytes);
  }
  for (size_t i = 0; i < ARRAY_LEN(OTHER); i++) {
    fixture_bytes file = fixture_plan(TINY, OTHER[i], NULL);
    assert_memory_not_equal(header(file)->numerics_id, header(base)->numerics_id, 16);
    free(file.bytes);
  }
  assert_memory_not_equal(header(moonlight)->numerics_id, header(base)->numerics_id, 16);
  assert_memory_not_equal(header(moonlight)->numerics_id, header(moonlight_eps)->numerics_id, 16);
  assert_true(header(moonlight)->model.latent_eps == 1e-6f);
  assert_true(header(moonlight_eps)->model.latent_eps == 1e-5f);
  free(base.bytes);
  free(moonlight.bytes);
  free(moonlight_eps.bytes);
}

/* A model of bf16 numbers and dense attention has the id recorded in tests/golden/tiny.receipt; every byte of the descriptions of other
 * formats changes it. */
static void formats_are_in_the_numerics_id_where_there_are_any(void **state) {
  (void)state;
  static const uint8_t TINY_ID[16] = {0xaa, 0x50, 0x9c, 0x02, 0x0c, 0xeb, 0xe8, 0x53, 0x77, 0xda, 0x33, 0x75, 0x97, 0x94, 0x0f, 0xb3};
  char *deploy = deploy_text();
  fixture_bytes file = fixture_plan("tests/tiny/config.json", deploy, NULL);
  const plan_header *h = header(file);
  assert_memory_equal(h->numerics_id, TINY_ID, sizeof TINY_ID);
  for (size_t i = 0; i < sizeof(plan_quant); i++) {
    uint8_t bytes[sizeof(plan_quant)] = {0}, id[16];
    plan_quant quant;
    bytes[i] = 1;
    memcpy(&quant, bytes, sizeof quant);
    emit_numerics_id(&h->model, &quant, &h->grouped, &h->limits, id);
    assert_memory_not_equal(id, TINY_ID, sizeof id);
  }
  free(file.bytes);
  free(deploy);
}

/* Every byte of plan_grouped is in the id of a model that has it; of the frequencies all, with latent attention the first 32. */
static void grouped_heads_are_in_the_numerics_id(void **state) {
  (void)state;
  fixture_bytes file = fixture_plan(TINY, NULL, NULL);
  const plan_header *h = header(file);
  plan_model last = h->model, next = h->model;
  plan_grouped grouped = {.kv_heads = 1};
  uint8_t latent[16], base[16], id[16];
  last.inv_freq[ROPE_DIM_MAX / 2 - 1] += 1;
  next.inv_freq[ROPE_DIM_MAX / 2] += 1;
  emit_numerics_id(&h->model, &h->quant, &(plan_grouped){0}, &h->limits, latent);
  emit_numerics_id(&next, &h->quant, &(plan_grouped){0}, &h->limits, id);
  assert_memory_equal(id, latent, sizeof id);
  emit_numerics_id(&last, &h->quant, &(plan_grouped){0}, &h->limits, id);
  assert_memory_not_equal(id, latent, sizeof id);
  emit_numerics_id(&h->model, &h->quant, &grouped, &h->limits, base);
  assert_memory_not_equal(base, latent, sizeof base);
  emit_numerics_id(&next, &h->quant, &grouped, &h->limits, id);
  assert_memory_not_equal(id, base, sizeof id);
  for (size_t i = 0; i < sizeof grouped; i++) {
    uint8_t bytes[sizeof grouped];
    plan_grouped changed;
    memcpy(bytes, &grouped, sizeof bytes);
    bytes[i] ^= 2;
    memcpy(&changed, bytes, sizeof changed);
    emit_numerics_id(&h->model, &h->quant, &changed, &h->limits, id);
    assert_memory_not_equal(id, base, sizeof id);
  }
  free(file.bytes);
}

/* Published parameter counts; a tensor too many or too few shows here. */
static void real_sizes_plan_fast(void **state) {
  (void)state;
  static const struct {
    const char *path;
    uint64_t parameters;
  } MODELS[] = {{"tests/data/configs/deepseek-v3.json", UINT64_C(671026419200)},
                {"tests/data/configs/deepseek-v2.json", UINT64_C(235741434880)},
                {"tests/data/configs/deepseek-v2-lite.json", UINT64_C(15706484224)},
                {"tests/data/configs/moonlight.json", UINT64_C(15960110208)},
                {"tests/data/configs/kimi-k2.json", UINT64_C(1026408232448)},
                {"tests/data/configs/glm-4.7-flash.json", UINT64_C(29943393920)},
                {"tests/data/configs/youtu-2b.json", UINT64_C(1961560064)},
                {"tests/data/configs/minicpm3-4b.json", UINT64_C(4073875968)},
                {"tests/data/configs/mistral-small-4.json", UINT64_C(118972826624)},
                {"tests/data/configs/kimi-k2.5.json", UINT64_C(1026408232448)}};
  for (size_t i = 0; i < ARRAY_LEN(MODELS); i++) {
    clock_t start = clock();
    fixture_bytes file = fixture_plan(MODELS[i].path, NULL, NULL);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    const plan_tensor *tensors = table(file, header(file)->tensors);
    uint64_t parameters = 0;
    for (uint32_t t = 0; t < header(file)->tensors.count; t++)
      parameters += (uint64_t)tensors[t].row_count * tensors[t].batches * tensors[t].cols;
    if (parameters != MODELS[i].parameters) fail_msg("%s: %llu parameters", MODELS[i].path, (unsigned long long)parameters);
    if (seconds > 5) fail_msg("%s took %.1f s", MODELS[i].path, seconds);
    free(file.bytes);
  }
}

static const plan_tensor *find_tensor(fixture_bytes file, const char *name, uint32_t nth) {
  const plan_tensor *tensors = table(file, header(file)->tensors);
  for (uint32_t i = 0; i < header(file)->tensors.count; i++)
    if (strcmp(text(file, tensors[i].name), name) == 0 && nth-- == 0) return &tensors[i];
  fail_msg("no tensor %s", name);
  return NULL;
}

static void weights_are_cut_as_the_products_read_them(void **state) {
  (void)state;
  fixture_bytes file = fixture_plan(TINY, NULL, NULL);
  const plan_tensor *q = find_tensor(file, "model.layers.2.self_attn.q_a_proj.weight", 0);
  const plan_tensor *kv = find_tensor(file, "model.layers.2.self_attn.kv_a_proj_with_mqa.weight", 0);
  assert_true(kv->offset == q->offset + 128 * 192 * 2); /* one product reads both */
  const plan_tensor *uk = find_tensor(file, "model.layers.0.self_attn.kv_b_proj.weight", 0);
  const plan_tensor *uv = find_tensor(file, "model.layers.0.self_attn.kv_b_proj.weight", 1);
  assert_int_equal(uk->transform, TRANSFORM_TRANSPOSE);
  assert_int_equal(uk->rows, 4 * (64 + 64));
  assert_int_equal(uk->row0, 0);
  assert_int_equal(uk->row_count, 64);
  assert_int_equal(uk->row_step, 128);
  assert_int_equal(uk->batches, 4);
  assert_int_equal(uv->transform, TRANSFORM_COPY);
  assert_int_equal(uv->row0, 64);
  const plan_tensor *gate = find_tensor(file, "model.layers.3.mlp.experts.5.gate_proj.weight", 0);
  const plan_tensor *up = find_tensor(file, "model.layers.3.mlp.experts.5.up_proj.weight", 0);
  const plan_tensor *next = find_tensor(file, "model.layers.3.mlp.experts.6.gate_proj.weight", 0);
  assert_true(up->offset == gate->offset + 64 * 192 * 2);
  assert_true(next->offset == up->offset + 64 * 192 * 2);
  assert_int_equal(find_tensor(file, "model.layers.1.mlp.gate.e_score_correction_bias", 0)->dtype, DTYPE_F32);
  assert_int_equal(find_tensor(file, "lm_head.weight", 0)->rows, 768);
  free(file.bytes);
}

static bool has_tensor(fixture_bytes file, const char *name) {
  const plan_tensor *tensors = table(file, header(file)->tensors);
  for (uint32_t i = 0; i < header(file)->tensors.count; i++)
    if (strcmp(text(file, tensors[i].name), name) == 0) return true;
  return false;
}

/* Where the op called `name` finds, in REGION_WEIGHTS, the pointer at `args_offset`. */
static uint64_t weight_offset(fixture_bytes file, const char *name, size_t args_offset) {
  const plan_op *ops = table(file, header(file)->ops);
  const plan_fixup *fixups = table(file, header(file)->fixups);
  for (uint32_t o = 0; o < header(file)->ops.count; o++)
    for (uint32_t i = 0; i < ops[o].fixup_count && strcmp(text(file, ops[o].name), name) == 0; i++) {
      const plan_fixup *f = &fixups[ops[o].first_fixup + i];
      if (f->args_offset == args_offset && f->region == REGION_WEIGHTS) return f->offset;
    }
  fail_msg("no weight of op %s", name);
  return 0;
}

static bool has_note(fixture_bytes file, const char *words) {
  const uint32_t *notes = table(file, header(file)->notes);
  for (uint32_t i = 0; i < header(file)->notes.count; i++)
    if (strstr(text(file, notes[i]), words)) return true;
  return false;
}

/* A plan of the config at `path`, with one text in it replaced by another of the same length. */
static fixture_bytes edited_plan(const char *path, const char *from, const char *to, const char *deploy) {
  fixture_bytes config = fixture_read(path), made = {0};
  config.bytes[config.count - 1] = 0;
  char *place = strstr(config.bytes, from);
  assert_non_null(place);
  assert_int_equal(strlen(from), strlen(to));
  memcpy(place, to, strlen(to));
  const planner_input input = {.config = {config.bytes, config.count - 1}, .deploy = {deploy, strlen(deploy)}};
  void *bytes = NULL;
  fail_clear();
  if (planner_make(&input, &bytes, &made.count) != OK) fail_msg("%s", fail_text());
  made.bytes = bytes;
  free(config.bytes);
  return made;
}

static void a_tied_head_reads_the_embedding(void **state) {
  (void)state;
  static const char *const PATH = "tests/data/configs/youtu-2b.json", *const TIED = "\"tie_word_embeddings\": true";
  fixture_bytes tied = edited_plan(PATH, TIED, TIED, "max-model-len: 64");
  fixture_bytes own = edited_plan(PATH, TIED, "\"tie_word_embeddings\":false", "max-model-len: 64");
  assert_false(has_tensor(tied, "lm_head.weight"));
  assert_true(has_tensor(own, "lm_head.weight"));
  uint64_t table_at = weight_offset(tied, "embed", offsetof(embed_args, table));
  assert_true(find_tensor(tied, "model.embed_tokens.weight", 0)->offset == table_at);
  assert_true(weight_offset(tied, "lm_head", offsetof(gemm_args, w)) == table_at);
  assert_true(weight_offset(own, "lm_head", offsetof(gemm_args, w)) == find_tensor(own, "lm_head.weight", 0)->offset);
  assert_true(weight_offset(own, "lm_head", offsetof(gemm_args, w)) != table_at);
  assert_memory_equal(header(tied)->numerics_id, header(own)->numerics_id, 16); /* the address of a weight does not affect arithmetic */
  assert_int_equal(check_plan(tied.bytes, tied.count), OK);
  assert_true(has_note(tied, "tie_word_embeddings"));
  assert_false(has_note(own, "the head reads"));
  free(tied.bytes);
  free(own.bytes);
}

/* The frequencies of LongRoPE depend on max_len, which is otherwise not part of the numerics id. */
static void longrope_is_a_choice_of_the_plan(void **state) {
  (void)state;
  static const char *const DEPLOY[] = {"max-model-len: 64", "max-model-len: 4096", "max-model-len: 4097", "max-model-len: 8192"};
  fixture_bytes plans[ARRAY_LEN(DEPLOY)];
  for (size_t i = 0; i < ARRAY_LEN(DEPLOY); i++)
    plans[i] = edited_plan("tests/data/configs/minicpm3-4b.json", "\"original_max_position_embeddings\": 32768",
                           "\"original_max_position_embeddings\": 4096 ", DEPLOY[i]);
  assert_memory_equal(header(plans[0])->numerics_id, header(plans[1])->numerics_id, 16);
  assert_memory_equal(header(plans[2])->numerics_id, header(plans[3])->numerics_id, 16);
  assert_memory_not_equal(header(plans[1])->numerics_id, header(plans[2])->numerics_id, 16);
  assert_true(has_note(plans[1], "the short factors for every request, as max_len is 4096"));
  assert_true(has_note(plans[2], "the long factors for every request, as max_len is 4097"));
  for (size_t i = 0; i < ARRAY_LEN(DEPLOY); i++) free(plans[i].bytes);
}

static void a_query_scale_has_a_table(void **state) {
  (void)state;
  fixture_bytes scaled = fixture_plan("tests/data/configs/mistral-small-4.json", "max-model-len: 128", NULL);
  fixture_bytes plain = fixture_plan(TINY, NULL, NULL);
  const plan_op *ops = table(scaled, header(scaled)->ops);
  const plan_fixup *fixups = table(scaled, header(scaled)->fixups);
  uint32_t readers = 0;
  assert_true(header(scaled)->io.q_scale != 0);
  assert_int_equal(header(plain)->io.q_scale, 0);
  for (uint32_t o = 0; o < header(scaled)->ops.count; o++)
    for (uint32_t i = 0; i < ops[o].fixup_count && ops[o].kernel == OP_qkv_rope && ops[o].rows_min == 1; i++) {
      const plan_fixup *f = &fixups[ops[o].first_fixup + i];
      readers += f->args_offset == offsetof(qkv_rope_args, q_scale) && f->region == REGION_TABLES &&
                 f->offset == header(scaled)->io.q_scale;
    }
  assert_int_equal(readers, header(scaled)->model.layers);
  assert_true(has_note(scaled, "\"text_config\""));
  free(scaled.bytes);
  free(plain.bytes);
}

static void prediction_layers_are_left_out_and_noted(void **state) {
  (void)state;
  fixture_bytes file = fixture_plan("tests/data/configs/glm-4.7-flash.json", NULL, NULL);
  assert_true(has_tensor(file, "model.layers.46.mlp.gate.e_score_correction_bias"));
  assert_false(has_tensor(file, "model.layers.47.input_layernorm.weight"));
  assert_true(has_note(file, "prediction layers behind the last layer"));
  free(file.bytes);
}

static const plan_guarantee *guarantee_of(fixture_bytes file, const char *axis) {
  const plan_guarantee *rows = table(file, header(file)->guarantees);
  for (uint32_t i = 0; i < header(file)->guarantees.count; i++)
    if (strcmp(text(file, rows[i].axis), axis) == 0) return &rows[i];
  fail_msg("no axis %s", axis);
  return NULL;
}

/* The sizes of the workspace, the promise that is withdrawn, and the note that states the gain; all plans have one numerics id. */
static void fast_prefill_is_another_parity(void **state) {
  (void)state;
  static const struct {
    const char *path, *deploy;
    uint32_t pages;
  } CASES[] = {{TINY, "{parity: fast-prefill, max-model-len: 1024, max-num-seqs: 64}", 256},
               {TINY, "{parity: fast-prefill, max-model-len: 1024, max-num-seqs: 2}", 128},
               {TINY, "{parity: fast-prefill, expand_tokens: 64}", 1},
               {"tests/data/configs/deepseek-v2-lite.json", "{parity: fast-prefill, max-model-len: 16384}", 1024}};
  uint8_t id[16];
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    fixture_bytes file = fixture_plan(CASES[i].path, CASES[i].deploy, NULL);
    const uint32_t *notes = table(file, header(file)->notes);
    uint32_t found = 0;
    for (uint32_t n = 0; n < header(file)->notes.count; n++) found += strncmp(text(file, notes[n]), "fast-prefill: ", 14) == 0;
    assert_int_equal(found, 1);
    assert_int_equal(header(file)->limits.parity, PARITY_FAST_PREFILL);
    assert_int_equal(header(file)->limits.expand_pages, CASES[i].pages);
    assert_int_equal(guarantee_of(file, "scoring")->status, GUARANTEE_EXCLUDED);
    if (i > 0 && i < 3) assert_memory_equal(id, header(file)->numerics_id, sizeof id);
    memcpy(id, header(file)->numerics_id, sizeof id);
    free(file.bytes);
  }
}

#define CONFIGS "tests/data/configs/"
#define SMALL "max-num-seqs: 1, max-num-batched-tokens: 16, max-model-len: 64"

/* The formats of a plan, and the pages that fit into 1 GiB: rows of 1152, 656 or 576 bytes a layer, 132 of an indexer. */
static void formats_follow_from_model_and_deployment(void **state) {
  (void)state;
  static const struct {
    const char *path, *deploy;
    uint32_t kv_format, kv_scale;
    uint64_t token_bytes;
  } CASES[] = {
    {CONFIGS "deepseek-v3.json", "", KV_BF16, SCALE_F32, 61 * 1152},
    {CONFIGS "deepseek-v3.json", ", kv-cache-dtype: fp8", KV_FP8, SCALE_F32, 61 * 576},
    {CONFIGS "deepseek-v3.json", ", kv-cache-dtype: fp8_ds_mla", KV_FP8_DS_MLA, SCALE_POW2, 61 * 656},
    {CONFIGS "deepseek-v3.2.json", "", KV_FP8_DS_MLA, SCALE_POW2, 61 * (656 + 132)},
    {CONFIGS "deepseek-v3.2.json", ", kv-cache-scales: float32", KV_FP8_DS_MLA, SCALE_F32, 61 * (656 + 132)},
    {CONFIGS "deepseek-v3.2.json", ", kv-cache-dtype: bf16", KV_BF16, SCALE_F32, 61 * (1152 + 132)},
    {CONFIGS "glm-5.json", "", KV_BF16, SCALE_F32, 78 * (1152 + 132)},
    {CONFIGS "glm-5.2-fp8.json", "", KV_FP8_DS_MLA, SCALE_POW2, 78 * 656 + 21 * 132},
    {"tests/oracle/small-v3-fp8.json", "", KV_BF16, SCALE_F32, 3 * 1152},
    {"tests/oracle/small-glm5.json", "", KV_BF16, SCALE_F32, 3 * (1152 + 132)}, /* two heads: with other head counts tiles have 32 tokens */
  };
  uint8_t ids[ARRAY_LEN(CASES)][16];
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    char deploy[256];
    snprintf(deploy, sizeof deploy, "{" SMALL ", kv-memory-bytes: 1GiB%s}", CASES[i].deploy);
    fixture_bytes file = fixture_plan(CASES[i].path, deploy, NULL);
    assert_int_equal(header(file)->quant.kv_format, CASES[i].kv_format);
    assert_int_equal(header(file)->quant.kv_scale, CASES[i].kv_scale);
    assert_int_equal(header(file)->limits.kv_pages, (1u << 30) / (64 * CASES[i].token_bytes));
    uint32_t tile = header(file)->quant.index_heads ? 1 : max_u32(1, 64 / header(file)->model.heads);
    assert_int_equal(header(file)->limits.attn_tile_tokens, tile);
    memcpy(ids[i], header(file)->numerics_id, 16);
    for (size_t j = 0; j < i; j++) assert_memory_not_equal(ids[i], ids[j], 16);
    free(file.bytes);
  }
}

static void formats_that_do_not_fit_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *path, *deploy, *words;
    status code;
  } CASES[] = {
    {CONFIGS "minicpm3-4b.json", "{kv-cache-dtype: fp8_ds_mla}", "needs kv_lora_rank 512, the model has 256", ERR_UNSUPPORTED},
    {TINY, "{kv-cache-scales: float32}", "requires kv-cache-dtype fp8_ds_mla", ERR_FORMAT},
    {TINY, "{kv-cache-dtype: fp8, kv-cache-scales: float32}", "requires kv-cache-dtype fp8_ds_mla", ERR_FORMAT},
    {CONFIGS "glm-5.json", "{parity: fast-prefill}", "dense attention, but the model's is sparse", ERR_UNSUPPORTED},
    {CONFIGS "glm-5.2-fp8.json", "{parity: fast-prefill, kv-cache-dtype: bf16}", "dense attention", ERR_UNSUPPORTED},
  };
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    fixture_bytes file = {0};
    fixture_expect(fixture_try_plan(CASES[i].path, CASES[i].deploy, NULL, &file), CASES[i].code, CASES[i].words);
    assert_null(file.bytes);
  }
}

static void limits_are_checked_by_name(void **state) {
  (void)state;
  static const struct {
    const char *deploy, *words;
  } CASES[] = {{"max-model-len: 4096", "max_position_embeddings"},
               {"{max-num-seqs: 64, max-num-batched-tokens: 63}", "max-num-batched-tokens"},
               {"{max-num-seqs: 8, max_logit_rows: 7}", "max-logit-rows"},
               {"{max-num-seqs: 8, max-num-batched-tokens: 16, max_logit_rows: 17}", "max-logit-rows"},
               {"{max-num-seqs: 8, ladder: [1, 9]}", "ladder"},
               {"{max-model-len: 640, kv_pages: 9}", "kv-pages: 10"},
               {"{max-model-len: 640, kv_memory_bytes: 1MiB}", "max-model-len: 192"}};
  fixture_bytes file = {0};
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    fixture_expect(fixture_try_plan(TINY, CASES[i].deploy, NULL, &file), ERR_LIMIT, CASES[i].words);
    assert_null(file.bytes);
  }
  fixture_expect(fixture_try_plan(TINY, "expand_tokens: 128", NULL, &file), ERR_FORMAT, "parity: fast-prefill");
  assert_null(file.bytes);
}

static void what_does_not_fit_is_refused_with_a_setting_that_does(void **state) {
  (void)state;
  char text_of_fail[FAIL_TEXT_MAX], deploy[256];
  fixture_bytes file = {0};
  fixture_expect(fixture_try_plan(TINY, "{device_memory_bytes: 256MiB, kv_pages: 2048}", NULL, &file), ERR_LIMIT, "KV pages");
  snprintf(text_of_fail, sizeof text_of_fail, "%s", fail_text());
  const char *hint = strstr(text_of_fail, "kv-pages: ");
  assert_non_null(hint);
  unsigned pages = 0;
  assert_int_equal(sscanf(hint, "kv-pages: %u fits", &pages), 1);
  snprintf(deploy, sizeof deploy, "{device_memory_bytes: 256MiB, kv_pages: %u}", pages);
  file = fixture_plan(TINY, deploy, NULL);
  assert_true(header(file)->device_bytes <= (UINT64_C(256) << 20) / 10 * 9);
  free(file.bytes);
  snprintf(deploy, sizeof deploy, "{device_memory_bytes: 256MiB, kv_pages: %u}", pages + 8); /* 2 MiB more than the regions' alignment */
  fixture_expect(fixture_try_plan(TINY, deploy, NULL, &file), ERR_LIMIT, "does not fit");
  fixture_expect(fixture_try_plan(TINY, "device_memory_bytes: 48MiB", NULL, &file), ERR_LIMIT, "max-num-batched-tokens: ");
  fixture_expect(fixture_try_plan(TINY, "device_memory_bytes: 4MiB", NULL, &file), ERR_LIMIT, "no setting fits");
}

static void free_memory_becomes_pages(void **state) {
  (void)state;
  fixture_bytes file = fixture_plan(TINY, "device_memory_bytes: 256MiB", NULL);
  uint64_t budget = (UINT64_C(256) << 20) / 10 * 9;
  assert_true(header(file)->device_bytes <= budget);
  assert_true(header(file)->device_bytes + (4u << 20) > budget); /* within the alignment of two regions */
  free(file.bytes);
  file = fixture_plan(TINY, "{device_memory_bytes: 256GiB, max-num-seqs: 2, max-model-len: 128}", NULL);
  assert_int_equal(header(file)->limits.kv_pages, 4); /* more pages would never be used */
  free(file.bytes);
  file = fixture_plan(TINY, "kv_memory_bytes: 100MiB", NULL);
  assert_int_equal(header(file)->limits.kv_pages, (100u << 20) / (4 * 64 * 576 * 2));
  free(file.bytes);
}

static uint32_t random_state = 12345;
static uint32_t pick(uint32_t count) {
  random_state = random_state * 1664525u + 1013904223u;
  return (random_state >> 8) % count;
}

static void random_config(char *out, size_t bytes) {
  bool v3 = pick(2);
  uint32_t experts = 8 * (1 + pick(12)), top_k = 1 + pick(6), groups = (pick(2) && experts % 16 == 0) ? 4 : 1, heads = 1 + pick(130);
  uint32_t q_lora = 64 * (1 + pick(8)), v = 64 * (1 + pick(4));
  const char *v3_name = pick(2) ? "deepseek_v3" : "kimi_k2", *tied = pick(2) ? "true" : "false";
  char q[32] = "null";
  if (pick(3)) snprintf(q, sizeof q, "%u", q_lora);
  snprintf(
      out, bytes,
      "{\"model_type\": \"%s\", \"tie_word_embeddings\": %s, "
      "\"vocab_size\": %u, \"hidden_size\": %u, \"num_hidden_layers\": %u, \"num_attention_heads\": %u, "
      "\"q_lora_rank\": %s, \"kv_lora_rank\": %u, \"qk_nope_head_dim\": %u, \"qk_rope_head_dim\": %u, \"v_head_dim\": %u, "
      "\"intermediate_size\": %u, \"n_routed_experts\": %u, \"num_experts_per_tok\": %u, \"n_shared_experts\": %u, "
      "\"moe_intermediate_size\": %u, \"first_k_dense_replace\": %u, \"n_group\": %u, \"topk_group\": %u, \"topk_method\": \"%s\", "
      "\"max_position_embeddings\": 100000, \"bos_token_id\": 0, \"eos_token_id\": 1}",
      v3 ? v3_name : "deepseek_v2", tied,
      8 * (1 + pick(500)), 64 * (1 + pick(20)), 1 + pick(5), heads, q, 256 * (1 + pick(2)), 64 * (1 + pick(3)),
      32 * (1 + pick(2)), v, 64 * (1 + pick(20)), experts, top_k, pick(3), 64 * (1 + pick(8)), pick(4), groups, groups > 1 ? 3 : 1,
      v3           ? "noaux_tc"
      : groups > 1 ? "group_limited_greedy"
                   : "greedy");
}

/* A model with sparse attention, e4m3 weights or both; some products of these are bf16. */
static void random_sparse_config(char *out, size_t bytes) {
  static const char *const KEPT[] = {"", "\"o_proj\"", "\"model.layers.0\"", "\"kv_b_proj\", \"mlp.experts\"",
                                     "\"self_attn.q_b_proj\", \"shared_experts\", \"indexer.wk\""};
  static const char *const SHARED[] = {"", ", \"index_topk_freq\": 2", ", \"index_topk_pattern\": \"FFSSSS\""};
  const uint32_t kind = pick(3), block = pick(2) ? 128 : 64, experts = 8 * (1 + pick(4)), heads = 2 * (1 + pick(40));
  char e4m3[256] = "", index[128] = "";
  if (block == 128)
    snprintf(e4m3, sizeof e4m3, ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128], "
             "\"scale_fmt\": \"%s\", \"modules_to_not_convert\": [%s]}", pick(2) ? "ue8m0" : "float", KEPT[pick(ARRAY_LEN(KEPT))]);
  if (kind < 2)
    snprintf(index, sizeof index, ", \"index_n_heads\": %u, \"index_topk\": %u%s", 16u << pick(3), 64 * (1 + pick(32)),
             SHARED[kind == 1 ? pick(3) : 0]);
  snprintf(out, bytes,
           "{\"model_type\": \"%s\", \"vocab_size\": %u, \"hidden_size\": %u, \"num_hidden_layers\": %u, \"num_attention_heads\": %u, "
           "\"q_lora_rank\": %u, \"kv_lora_rank\": %u, \"qk_nope_head_dim\": %u, \"qk_rope_head_dim\": %u, \"v_head_dim\": %u, "
           "\"intermediate_size\": %u, \"n_routed_experts\": %u, \"num_experts_per_tok\": %u, \"n_shared_experts\": %u, "
           "\"moe_intermediate_size\": %u, \"first_k_dense_replace\": %u, \"n_group\": 1, \"topk_group\": 1, "
           "\"max_position_embeddings\": 100000, \"bos_token_id\": 0, \"eos_token_id\": 1%s%s}",
           kind == 0 ? "deepseek_v32" : kind == 1 ? "glm_moe_dsa" : "deepseek_v3", 8 * (1 + pick(500)), block * (1 + pick(8)), 1 + pick(5),
           heads, block * (1 + pick(6)), 256 * (1 + pick(2)), 64 * (1 + pick(3)), 32 * (1 + pick(2)), 64 * (1 + pick(4)),
           block * (1 + pick(12)), experts, 1 + pick(6), pick(3), block * (1 + pick(4)), pick(3), index, e4m3);
}

/* Plans the same with a prediction layer that makes `tokens` drafts; the numerics id stays. */
static uint32_t add_drafts(const char *config, const char *deploy, const plan_header *without, uint32_t tokens) {
  char changed[2200], keys[512];
  void *bytes = NULL;
  size_t count = 0;
  snprintf(changed, sizeof changed, "{\"num_nextn_predict_layers\": 1, %s", config + 1);
  snprintf(keys, sizeof keys, "{speculative-config: {method: mtp, num-speculative-tokens: %u}, %s", tokens, deploy + 1);
  const planner_input input = {.config = {changed, strlen(changed)}, .deploy = {keys, strlen(keys)}};
  if (planner_make(&input, &bytes, &count) != OK) fail_msg("%s\n%s\n%s", fail_text(), changed, keys);
  assert_memory_equal(((const plan_header *)bytes)->numerics_id, without->numerics_id, sizeof without->numerics_id);
  free(bytes);
  return 1;
}

/* planner_make runs the checker, which shares no code with graph and placement: OK means that they agree. */
static void random_models_agree_with_the_checker(void **state) {
  (void)state;
  static const char *const DTYPES[] = {"auto", "bf16", "fp8", "fp8_ds_mla"};
  uint32_t divided = 0, drafting = 0;
  for (uint32_t round = 0; round < 120; round++) {
    char config[2048], deploy[320];
    void *bytes = NULL;
    size_t count = 0;
    if (round % 2) random_sparse_config(config, sizeof config);
    else random_config(config, sizeof config);
    uint32_t dtype = pick(strstr(config, "\"kv_lora_rank\": 512") ? 4 : 3);
    uint32_t seqs = 1 + pick(100), batch = seqs + pick(3000), logits = seqs + pick(batch - seqs + 1);
    int used = snprintf(deploy, sizeof deploy, "{max-num-seqs: %u, max-num-batched-tokens: %u, max_logit_rows: %u, max-model-len: %u, "
                        "chunk_tokens: %u, group_chunks: %u, kv-cache-dtype: %s", seqs, batch, logits, 2 + pick(20000), 64u << pick(6),
                        1u << pick(7), DTYPES[dtype]);
    snprintf(deploy + used, sizeof deploy - (size_t)used, ", tensor-parallel-size: %u}", 1 + pick(4));
    const planner_input input = {.config = {config, strlen(config)}, .deploy = {deploy, strlen(deploy)}};
    fail_clear();
    const status result = planner_make(&input, &bytes, &count);
    const bool is_uneven = result == ERR_UNSUPPORTED && strstr(fail_text(), "evenly");
    if (result != OK && !is_uneven) fail_msg("round %u: %s\n%s\n%s", round, fail_text(), config, deploy);
    if (result == OK) divided += ((const plan_header *)bytes)->limits.ranks > 1;
    if (result == OK && !strstr(config, "deepseek_v2")) drafting += add_drafts(config, deploy, bytes, 1 + round % DRAFT_TOKENS_MAX);
    free(bytes);
  }
  assert_true(divided >= 20 && drafting >= 40);
}

static void every_axis_has_one_guarantee(void **state) {
  (void)state;
  static const char *const AXES[] = {"batch", "slot", "padding", "chunk_cut", "prefix_hit", "page_placement", "preemption", "kernel_tiles",
                                     "graph_or_direct", "scoring", "restart", "cpu_is_gpu", "cpu_threads", "library_algorithm", "driver",
                                     "gpu_count", "fast_prefill", "speculation"};
  fixture_bytes file = fixture_plan(TINY, NULL, NULL), document = fixture_read("PLAN_FORMAT.md");
  const plan_guarantee *rows = table(file, header(file)->guarantees);
  document.bytes[document.count - 1] = 0;
  assert_int_equal(header(file)->guarantees.count, ARRAY_LEN(AXES));
  for (uint32_t i = 0; i < ARRAY_LEN(AXES); i++) {
    char row[64];
    assert_string_equal(text(file, rows[i].axis), AXES[i]);
    assert_true(strlen(text(file, rows[i].reason)) > 0);
    assert_int_equal(rows[i].status == GUARANTEE_EXCLUDED, i == 16);
    snprintf(row, sizeof row, "\n| `%s` | %s |", AXES[i], (const char *[]){"PROVEN", "TESTED", "EXCLUDED"}[rows[i].status]);
    if (!strstr(document.bytes, row)) fail_msg("PLAN_FORMAT.md lacks the row \"%s\"", row + 1);
  }
  free(document.bytes);
  free(file.bytes);
}

/* Two plans that differ in the figures of their reasons. */
static void reasons_are_of_the_plan(void **state) {
  (void)state;
  static const char pinned[] =
    "{\"library_version\":130100,\"entries\":[{\"n\":768,\"k\":192,\"out\":\"f32\",\"rows_min\":2,\"rows_max\":4,"
    "\"algo\":[\"1\",\"0\",\"2a\",\"0\",\"0\",\"0\",\"0\",\"f\"],\"workspace_bytes\":1000,\"certified\":true,\"use\":true}]}";
  fixture_bytes a = fixture_plan(TINY, "max-num-seqs: 4\nladder: [1, 3]\nchunk_tokens: 64\ngroup_chunks: 2\n", NULL);
  fixture_bytes b = fixture_plan(TINY, "max-num-seqs: 64\n", pinned);
  fixture_bytes sparse = fixture_plan("tests/oracle/small-v32.json", NULL, NULL);
  const struct { fixture_bytes file; const char *axis, *words; } cases[] = {
    {sparse, "chunk_cut", "lie at places of a token's list"}, {sparse, "prefix_hit", "a KV row, and a key of the indexer, is"},
    {a, "chunk_cut", "lie at absolute positions"}, {a, "prefix_hit", "a KV row is a function"},
    {a, "graph_or_direct", "2 captured graphs"}, {b, "graph_or_direct", "7 captured graphs"}, {a, "padding", "one of the 2 ladder sizes"},
    {a, "chunk_cut", "chunks of 64 tokens and groups of 2 chunks"}, {b, "chunk_cut", "chunks of 256 tokens and groups of 8 chunks"},
    {a, "library_algorithm", "none is pinned"}, {b, "library_algorithm", "each of 1 pinned algorithms"}};
  assert_int_equal(header(b)->gemms.count, 1);
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    const char *reason = text(cases[i].file, guarantee_of(cases[i].file, cases[i].axis)->reason);
    if (!strstr(reason, cases[i].words)) fail_msg("%s: expected \"%s\" in \"%s\"", cases[i].axis, cases[i].words, reason);
  }
  free(sparse.bytes);
  free(a.bytes);
  free(b.bytes);
}

/* Does the file call a test of this name? */
static bool has_test(const char *path, const char *name) {
  char word[128];
  FILE *file = fopen(path, "rb");
  if (!file) return false;
  fclose(file);
  fixture_bytes source = fixture_read(path);
  source.bytes[source.count - 1] = 0;
  snprintf(word, sizeof word, "cmocka_unit_test(%s)", name);
  bool found = strstr(source.bytes, word) != NULL;
  free(source.bytes);
  return found;
}

static void every_promise_has_a_test(void **state) {
  (void)state;
  uint32_t count = 0;
  fixture_bytes file = fixture_plan(TINY, NULL, NULL);
  const plan_guarantee *rows = table(file, header(file)->guarantees);
  const guarantees_proof *proofs = guarantees_proofs(&count);
  assert_int_equal(count, header(file)->guarantees.count);
  for (uint32_t i = 0; i < count; i++) {
    const guarantees_proof *proof = &proofs[i];
    assert_string_equal(proof->axis, text(file, rows[i].axis));
    assert_int_equal(proof->file == NULL, rows[i].status == GUARANTEE_EXCLUDED);
    if (proof->file && !has_test(proof->file, proof->test)) fail_msg("%s: %s has no test %s", proof->axis, proof->file, proof->test);
  }
  assert_false(has_test(proofs[0].file, "absent")); /* the control: a missing row would be noticed */
  assert_false(has_test("tests/unit/absent.c", proofs[0].test));
  free(file.bytes);
}

/* PLAN_FORMAT.md states the version, and has one heading per struct with its size. */
static void the_document_states_version_and_sizes(void **state) {
  (void)state;
#define SIZE(type) \
  { #type, sizeof(type) }
  static const struct {
    const char *name;
    size_t bytes;
  } STRUCTS[] = {SIZE(plan_header), SIZE(plan_span),   SIZE(plan_region), SIZE(plan_model), SIZE(plan_limits),
                 SIZE(plan_quant),  SIZE(plan_grouped), SIZE(plan_io),   SIZE(plan_tensor), SIZE(plan_buffer), SIZE(plan_spec),
                 SIZE(plan_kernel), SIZE(plan_op),     SIZE(plan_dim),  SIZE(plan_fixup), SIZE(plan_gemm),  SIZE(plan_guarantee)};
  fixture_bytes document = fixture_read("PLAN_FORMAT.md");
  document.bytes[document.count - 1] = 0;
  char title[64], row[64];
  snprintf(title, sizeof title, "# Plan format, version %u\n", PLAN_FORMAT_VERSION);
  snprintf(row, sizeof row, "| format_version | %u |\n", PLAN_FORMAT_VERSION);
  if (strncmp(document.bytes, title, strlen(title)) != 0 || !strstr(document.bytes, row)) fail_msg("PLAN_FORMAT.md is of another version");
  for (size_t i = 0; i < ARRAY_LEN(STRUCTS); i++) {
    char heading[64];
    snprintf(heading, sizeof heading, "### %s (%zu bytes)\n", STRUCTS[i].name, STRUCTS[i].bytes);
    if (!strstr(document.bytes, heading)) fail_msg("PLAN_FORMAT.md lacks \"%s\"", heading);
  }
  free(document.bytes);
}

/* Its example is the first part of the shipped model's plan. */
static void the_document_shows_a_plans_bytes(void **state) {
  (void)state;
  char *deploy = deploy_text();
  fixture_bytes document = fixture_read("PLAN_FORMAT.md"), file = fixture_plan("tests/tiny/config.json", deploy, NULL);
  document.bytes[document.count - 1] = 0;
  for (uint32_t at = 0; at < 272; at += 16) {
    char line[64];
    int used = snprintf(line, sizeof line, "\n%08x:", at);
    for (uint32_t i = 0; i < 16; i++)
      used += snprintf(line + used, sizeof line - (size_t)used, "%s%02x", i % 2 ? "" : " ", (unsigned)(unsigned char)file.bytes[at + i]);
    if (!strstr(document.bytes, line)) fail_msg("PLAN_FORMAT.md lacks the line%s", line);
  }
  free(document.bytes);
  free(file.bytes);
  free(deploy);
}

/* Writes the same bytes into the document in place of its own. */
static int record_bytes(void) {
  char *deploy = deploy_text();
  fixture_bytes document = fixture_read("PLAN_FORMAT.md"), file = fixture_plan("tests/tiny/config.json", deploy, NULL);
  const size_t count = document.count;
  document.bytes[count - 1] = 0;
  for (uint32_t at = 0; at < 272; at += 16) {
    char start[16], line[72];
    snprintf(start, sizeof start, "\n%08x: ", at);
    char *place = strstr(document.bytes, start);
    if (!place) return 1;
    int used = 0;
    for (uint32_t i = 0; i < 16; i++)
      used += snprintf(line + used, sizeof line - (size_t)used, "%02x%s", (unsigned)(unsigned char)file.bytes[at + i], i % 2 ? " " : "");
    used += snprintf(line + used, sizeof line - (size_t)used, " ");
    for (uint32_t i = 0; i < 16; i++) line[used++] = file.bytes[at + i] >= ' ' && file.bytes[at + i] < 0x7f ? file.bytes[at + i] : '.';
    memcpy(place + strlen(start), line, (size_t)used);
  }
  document.bytes[count - 1] = '\n';
  FILE *out = fopen("PLAN_FORMAT.md", "wb");
  bool good = out && fwrite(document.bytes, 1, count, out) == count;
  if (out) good = fclose(out) == 0 && good;
  free(document.bytes);
  free(file.bytes);
  free(deploy);
  return good ? 0 : 1;
}

static int record(void) {
  char *dump = dump_tiny();
  FILE *file = fopen(GOLDEN, "wb");
  if (!file || fputs(dump, file) < 0 || fclose(file) != 0) return 1;
  free(dump);
  return record_bytes();
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_dump_is_golden),
      cmocka_unit_test(same_inputs_same_bytes),
      cmocka_unit_test(the_digest_is_of_the_file),
      cmocka_unit_test(long_steps_have_plans), cmocka_unit_test(the_numerics_id_covers_what_changes_bits),
      cmocka_unit_test(formats_are_in_the_numerics_id_where_there_are_any),
      cmocka_unit_test(grouped_heads_are_in_the_numerics_id),
      cmocka_unit_test(real_sizes_plan_fast),
      cmocka_unit_test(weights_are_cut_as_the_products_read_them),
      cmocka_unit_test(a_tied_head_reads_the_embedding),
      cmocka_unit_test(longrope_is_a_choice_of_the_plan),
      cmocka_unit_test(a_query_scale_has_a_table),
      cmocka_unit_test(prediction_layers_are_left_out_and_noted),
      cmocka_unit_test(fast_prefill_is_another_parity),
      cmocka_unit_test(formats_follow_from_model_and_deployment),
      cmocka_unit_test(formats_that_do_not_fit_are_refused),
      cmocka_unit_test(limits_are_checked_by_name),
      cmocka_unit_test(what_does_not_fit_is_refused_with_a_setting_that_does),
      cmocka_unit_test(free_memory_becomes_pages),
      cmocka_unit_test(random_models_agree_with_the_checker),
      cmocka_unit_test(every_axis_has_one_guarantee),
      cmocka_unit_test(reasons_are_of_the_plan),
      cmocka_unit_test(every_promise_has_a_test),
      cmocka_unit_test(the_document_states_version_and_sizes),
      cmocka_unit_test(the_document_shows_a_plans_bytes),
  };
  if (argc == 2 && strcmp(argv[1], "--record") == 0) return record();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
