/* test_calibrate.c - `verbatim calibrate`: a layer's scale is the largest magnitude of its KV rows / 448, however the work is split; the
 * file appears once, and changes no other run. The control is the rows themselves, as the engine reports them. */
#include "tests/unit/unit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "shell.h"
#include "engine/base/base.h"
#include "engine/weights/safetensors.h"

#define LAYERS 2u
#define SETUP "M=model && C=\"$V calibrate bf16.plan model --jsonl prompts --quiet $D\" && "

static e2e_model model;

/* Three prompts by ids; the second also generates tokens. The largest numbers of the layers are in different halves of a row. */
static const int32_t IDS[3][5] = {{2, 2, 2, 2, 2}, {0, 2, 6, 2, 2}, {2, 2, 2, 2, 4}};
static const char PROMPTS[] = "{\"prompt_ids\": [2,2,2,2,2]}\n{\"prompt_ids\": [0,2,6,2,2], \"max_tokens\": 4, \"ignore_eos\": true}\n"
                              "{\"prompt_ids\": [2,2,2,2,4]}\n";

/* === The content of the rows ============================================================================================ */

typedef struct control {
  verbatim_info info;
  float largest[LAYERS];
  size_t column[LAYERS]; /* its position */
} control;

static bool wants(const verbatim_request *request, uint32_t position, uint32_t point) {
  const control *c = request->context;
  (void)position;
  return strstr(c->info.points[point].name, "qkv_rope kv") != NULL;
}

static void take(verbatim_request *request, uint32_t position, uint32_t point, const void *row, size_t bytes) {
  control *c = request->context;
  const uint32_t layer = c->info.points[point].layer;
  (void)position;
  assert_int_equal(bytes, 2 * c->info.points[point].count);
  for (size_t i = 0; i < bytes; i += 2) {
    uint32_t bits = (uint32_t)((const uint8_t *)row)[i] << 16 | (uint32_t)((const uint8_t *)row)[i + 1] << 24;
    float number;
    memcpy(&number, &bits, sizeof number);
    if (!(fabsf(number) > c->largest[layer])) continue;
    c->largest[layer] = fabsf(number);
    c->column[layer] = i / 2;
  }
}

static void read_rows(control *c) {
  char path[E2E_PATH_MAX + 16];
  verbatim *engine = NULL;
  snprintf(path, sizeof path, "%s/bf16.plan", model.folder);
  const verbatim_config config = {.plan_path = path, .model_dir = model.model_dir, .device = e2e_device(), .threads = 1, .trace = true};
  *c = (control){0};
  if (verbatim_open(&engine, &config) != 0) fail_msg("%s", verbatim_error());
  c->info = verbatim_describe(engine);
  for (uint32_t i = 0; i < 3; i++) {
    verbatim_token tokens[4];
    verbatim_request request = VERBATIM_REQUEST_DEFAULTS;
    bool busy = true;
    request.prompt = IDS[i], request.prompt_count = 5, request.max_tokens = i == 1 ? 4 : 1, request.ignore_eos = i == 1;
    request.tokens = tokens, request.context = c, request.wants_values = wants, request.on_values = take;
    if (verbatim_submit(engine, &request) != 0) fail_msg("%s", verbatim_error());
    while (busy)
      if (verbatim_poll(engine, &busy) != 0) fail_msg("%s", verbatim_error());
  }
  verbatim_close(engine);
}

static void scales_are_of_the_largest_magnitudes(void **state) {
  (void)state;
  static control c;
  safetensors *set = NULL;
  read_rows(&c);
  must("rm -f $M/kv_scales.safetensors && $C && test -s $M/kv_scales.safetensors");
  assert_non_null(strstr(shell.output, "scales of 2 layers, from 3 prompts"));
  assert_int_equal(safetensors_open(&set, model.model_dir), OK);
  for (uint32_t i = 0; i < LAYERS; i++) {
    char name[64];
    float scale;
    snprintf(name, sizeof name, "model.layers.%u.self_attn.k_scale", i);
    const safetensor *tensor = safetensors_find(set, name);
    assert_true(tensor && tensor->rank == 1 && tensor->shape[0] == 1 && strcmp(tensor->dtype, "F32") == 0);
    memcpy(&scale, tensor->data, sizeof scale);
    assert_true(c.largest[i] > 0.01f);
    if (scale != c.largest[i] / 448) fail_msg("layer %u: expected %g, found %g", i, (double)c.largest[i] / 448, (double)scale);
  }
  assert_true(c.largest[0] != c.largest[1]);
  assert_true(c.column[0] < 144 && c.column[1] >= 144); /* both halves of rows of 288 count */
  safetensors_close(set);
}

/* === The file =========================================================================================================== */

static void the_same_prompts_give_the_same_file(void **state) {
  (void)state;
  must("rm -f $M/kv_scales.safetensors && $C && cp $M/kv_scales.safetensors first");
  must("$C --force --batch 1 --chunk 2 --shuffle-pages 7 --poison --direct && cmp first $M/kv_scales.safetensors");
  must("tac prompts > turned && $C --force --jsonl turned && cmp first $M/kv_scales.safetensors");
  must("head -1 prompts > one && $C --force --jsonl one && ! cmp -s first $M/kv_scales.safetensors");
}

static void scales_are_made_once(void **state) {
  (void)state;
  must("rm -f $M/kv_scales.safetensors && $C");
  expect(2, "the model is calibrated already; hint: --force", "cp $M/kv_scales.safetensors first; $C");
  must("cmp first $M/kv_scales.safetensors && test $(ls $M | grep -c kv_scales) = 1");
  must("rm -rf own && cp -r $M own && mv own/kv_scales.safetensors own/extra.safetensors && cd own && "
       "python3 - <<'E'\nimport json, struct\nnames = {}\nfor file in ('model', 'extra'):\n"
       "    data = open(file + '.safetensors', 'rb').read()\n"
       "    head = json.loads(data[8:8 + struct.unpack('<Q', data[:8])[0]])\n"
       "    names.update({name: file + '.safetensors' for name in head if name != '__metadata__'})\n"
       "json.dump({'weight_map': names}, open('model.safetensors.index.json', 'w'))\nE\n");
  expect(2, "the model's files hold the scales, such as model.layers.0.self_attn.k_scale",
         "$V calibrate bf16.plan own --jsonl prompts --quiet $D");
  must("test ! -e own/kv_scales.safetensors");
}

/* A run that does not use scales gives the same bits as without them. */
static void other_runs_stay_as_they_are(void **state) {
  (void)state;
  must("rm -f $M/kv_scales.safetensors && $V run bf16.plan $M --jsonl prompts --max-tokens 4 --quiet $D --receipt before > tokens");
  must("$C && $V run bf16.plan $M --jsonl prompts --max-tokens 4 --quiet $D --receipt after > tokens && cmp before after");
  expect(0, "2 scales of a KV cache", "$V run bf16.plan $M --jsonl prompts --max-tokens 4 $D");
}

/* It runs only with scales, and its results depend on them: they are weights. */
static void an_fp8_cache_needs_scales(void **state) {
  (void)state;
  must("rm -f $M/kv_scales.safetensors");
  expect(4, "lack the scales of 2 layers: model.layers.0.self_attn.k_scale model.layers.1.self_attn.k_scale; hint: `verbatim calibrate`",
         "$V run fp8.plan $M --jsonl prompts --max-tokens 4 $D");
  must("R='run fp8.plan model --jsonl prompts --max-tokens 4 --quiet --device '${D#* }; $C && $V $R --receipt one && $V $R --receipt two "
       "--batch 1 --chunk 2 && sed 2d one > first && sed 2d two | cmp first - && head -1 prompts > less && "
       "$C --force --jsonl less && $V $R --receipt three && ! cmp -s one three");
}

static void wrong_use_is_named(void **state) {
  (void)state;
  must("rm -f $M/kv_scales.safetensors");
  expect(2, "expected --jsonl FILE", "$V calibrate bf16.plan $M");
  expect(2, "expected PLAN MODEL_DIR, found 1 word;", "$V calibrate bf16.plan --jsonl prompts");
  expect(2, "expected a prompt", "$V calibrate bf16.plan $M --jsonl /dev/null $D");
  expect(0, "accuracy: mean KL to fp32 7 to 45 times bf16's", "$V show fp8.plan");
  expect(0, "accuracy: mean KL to fp32 7 to 45 times bf16's", "$V plan $M -o again.plan --kv-cache-dtype fp8");
  must("! $V show bf16.plan | grep accuracy");
  expect(2, "calibrate with a plan of kv-cache-dtype: bf16", "$V calibrate fp8.plan $M --jsonl prompts $D");
  expect(6, "item 1: request: 1 prompt tokens",
         "echo '{\"id\": \"1\", \"prompt_ids\": [1], \"max_tokens\": 100000}' | $V calibrate bf16.plan $M --jsonl - $D");
  expect(3, "found nothing", "$V calibrate none.plan $M --jsonl prompts $D");
  must("test ! -e $M/kv_scales.safetensors");
  must("$V calibrate --help | grep -q kv_scales.safetensors");
}

static int begin(void **state) {
  (void)state;
  static const char deploy[] = "{max-num-seqs: 4, max-num-batched-tokens: 16, max-model-len: 64}";
  char plan[E2E_PATH_MAX], path[E2E_PATH_MAX + 16];
  e2e_make_model(&model, "tests/data/configs/smallest.json", deploy);
  e2e_make_plan(&model, "bf16.plan", "{max-num-seqs: 4, max-num-batched-tokens: 16, max-model-len: 64, kv-cache-dtype: bf16}", plan);
  e2e_make_plan(&model, "fp8.plan", "{max-num-seqs: 4, max-num-batched-tokens: 16, max-model-len: 64, kv-cache-dtype: fp8}", plan);
  snprintf(path, sizeof path, "%s/prompts", model.folder);
  e2e_write_file(path, PROMPTS);
  return 0;
}

static int end(void **state) {
  (void)state;
  e2e_remove(&model);
  return 0;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(scales_are_of_the_largest_magnitudes), cmocka_unit_test(the_same_prompts_give_the_same_file),
    cmocka_unit_test(scales_are_made_once), cmocka_unit_test(other_runs_stay_as_they_are), cmocka_unit_test(an_fp8_cache_needs_scales),
    cmocka_unit_test(wrong_use_is_named),
  };
  e2e_begin(argc, argv);
  shell_begin(&model, SETUP);
  return cmocka_run_group_tests(tests, begin, end);
}
