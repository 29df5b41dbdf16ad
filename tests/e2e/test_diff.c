/* test_diff.c - `verbatim diff` names the request, the token, the layer, the op and the number of a planted change of one last bit.
 *
 * Includes cli/run.c and cli/diff.c themselves, with all CPU references wrapped: after a chosen call the last bit of one number of one
 * token's row is flipped, in every op of a dense layer, of a layer with experts and outside of layers; the test reads the arguments in its
 * own way. Faults in results without rows (the order of experts, the choice of a token) are planted too, and found where they show. Every
 * planted run is compared with a sound one that is made with --device, so that on a GPU this also compares the two backends. */
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "e2e.h"
#include "engine/base/base.h"
#include "engine/cli/cli.h"
#include "engine/cpu/cpu.h"
#include "engine/ops/kernels.h"
#include "engine/plan/plan.h"
#include "engine/traces/file.h"
#include "kernels_src/num.h"

#define TEXT_MAX (1u << 16)
#define PATH_ROOM (2 * E2E_PATH_MAX)

static const char DEPLOY[] =
  "max-num-seqs: 8\nmax-num-batched-tokens: 64\nmax-model-len: 128\nkv_pages: 16\nchunk_tokens: 64\ngroup_chunks: 2\n"
  "ladder: [1, 2, 4, 8]\n";
/* Requests of 5 tokens each; the second one is damaged. */
#define PROMPTS "21 22 23 24 25", "31 32 33 34 35", "41 42 43 44 45"
#define REQUEST "1"
#define POSITION 4u /* its last prompt token, which has a logits row */
#define TOKEN 35

static e2e_model model;
static plan known; /* the plan's ops */

/* Sizes of the step with the damaged row, chosen so that each alternative of an op runs in one of them. */
enum size { ALONE, THREE, FIVE, SIZES };
static const struct { uint32_t tokens, logits; const char *sound; } SIZE[SIZES] = {
    {5, 1, "alone.trace"}, {15, 3, "sound.trace"}, {25, 5, "five.trace"}};

/* === The plant ============================================================================================================== */

enum { OUT_FIRST, OUT_SECOND, OUT_THIRD }; /* for ops with several results */

static struct {
  bool is_on;
  uint32_t kernel, call, out, element; /* which call of the kernel in a step, from 0 */
  uint32_t calls[KERNEL_COUNT];        /* in the current step */
  uint32_t skip;                       /* how many times the row occurs before it is damaged */
  uint32_t row, logit;                 /* the token's row in the current step; UINT32_MAX: it has none */
  const uint32_t *pair_row;            /* in the current layer */
  uint32_t top_k;
  uint32_t times;                      /* how often something was planted */
  uint64_t before;                     /* the number's bits */
  uint32_t count;                      /* numbers in the row */
  size_t digits;                       /* of a number's bits, in hexadecimal */
} plant;

#define KERNEL(stem) \
  void __real_cpu_##stem(const stem##_args *args, cpu_pool *pool); \
  void __wrap_cpu_##stem(const stem##_args *args, cpu_pool *pool);
#include "kernels_src/kernels.def"
#undef KERNEL

static bool is_due(uint32_t kernel) {
  uint32_t call = plant.calls[kernel]++;
  bool is_met = plant.is_on && kernel == plant.kernel && call == plant.call && plant.row != UINT32_MAX;
  if (is_met && plant.skip) return plant.skip--, false;
  return is_met;
}

static void flip_word(void *at) {
  uint32_t *word = at;
  plant.digits = 8;
  plant.before = *word;
  *word ^= 1u;
  plant.times++;
}

static void flip_half(void *at) {
  uint16_t *half = at;
  plant.digits = 4;
  plant.before = *half;
  *half ^= 1u;
  plant.times++;
}

/* The chosen element of a row of so many numbers. */
static uint64_t element_of(uint64_t count) {
  plant.count = (uint32_t)count;
  plant.element %= (uint32_t)count;
  return plant.element;
}

/* In rows of pairs, one after the other. */
static uint64_t pair_element(uint64_t columns) {
  uint64_t e = element_of(columns * plant.top_k);
  return plant.pair_row[plant.row * plant.top_k + e / columns] * columns + e % columns;
}

void __wrap_cpu_embed(const embed_args *a, cpu_pool *pool) {
  __real_cpu_embed(a, pool);
  memset(plant.calls, 0, sizeof plant.calls);
  plant.row = plant.logit = UINT32_MAX;
  for (uint32_t t = 0; t < a->step->token_count; t++)
    if (a->token[t] == TOKEN && a->position[t] == POSITION) plant.row = t;
  if (is_due(KERNEL_embed)) flip_word(a->x + (uint64_t)plant.row * a->hidden + element_of(a->hidden));
}

void __wrap_cpu_rmsnorm(const rmsnorm_args *a, cpu_pool *pool) {
  __real_cpu_rmsnorm(a, pool);
  for (uint32_t r = 0; a->rows_kind == ROWS_LOGITS && r < a->step->logit_count; r++)
    if (a->row_index[r] == plant.row) plant.logit = r;
  if (!is_due(KERNEL_rmsnorm)) return;
  uint32_t row = a->rows_kind == ROWS_LOGITS ? plant.logit : plant.row;
  if (plant.out == OUT_FIRST) flip_word(a->x_out + (uint64_t)plant.row * a->x_stride + element_of(a->dim));
  else flip_half((bf16 *)a->y + (uint64_t)row * a->y_stride + element_of(a->dim));
}

void __wrap_cpu_qkv_rope(const qkv_rope_args *a, cpu_pool *pool) {
  __real_cpu_qkv_rope(a, pool);
  if (!is_due(KERNEL_qkv_rope)) return;
  if (plant.out == OUT_FIRST) {
    uint64_t count = (uint64_t)a->heads * a->nope_dim;
    flip_half(a->q_nope + plant.row * count + element_of(count));
    return;
  }
  if (plant.out == OUT_THIRD) {
    uint64_t width = (uint64_t)a->kv_lora_rank + a->rope_dim, position = a->position[plant.row];
    uint64_t page = a->block_table[a->seq[plant.row] * a->block_table_stride + position / 64];
    flip_half((bf16 *)a->kv + (page * 64 + position % 64) * width + element_of(width));
    return;
  }
  uint64_t e = element_of((uint64_t)a->heads * a->rope_dim), columns = (uint64_t)a->kv_lora_rank + a->rope_dim;
  flip_half(a->q_latent + (plant.row * a->heads + e / a->rope_dim) * columns + a->kv_lora_rank + e % a->rope_dim);
}

void __wrap_cpu_gemm(const gemm_args *a, cpu_pool *pool) {
  __real_cpu_gemm(a, pool);
  if (!is_due(KERNEL_gemm)) return;
  uint64_t row = a->rows_kind == ROWS_LOGITS ? plant.logit : plant.row, n = a->y_kind == Y_SILU ? a->n / 2 : a->n;
  uint64_t e = element_of(n * a->batches), at = e / n * a->y_batch + row * a->ldy + e % n;
  if (a->y_kind == Y_F32) flip_word((float *)a->y + at);
  else flip_half((bf16 *)a->y + at);
}

void __wrap_cpu_mla_attn(const mla_attn_args *a, cpu_pool *pool) {
  __real_cpu_mla_attn(a, pool);
  uint64_t count = (uint64_t)a->heads * a->kv_lora_rank;
  if (is_due(KERNEL_mla_attn)) flip_half(a->out + plant.row * count + element_of(count));
}

void __wrap_cpu_mla_fold(const mla_fold_args *a, cpu_pool *pool) {
  mla_fold_args fold = *a, values = *a; /* of the flipped rows */
  attn_counts none = *a->counts;
  fold.lifts = none.parts = 0;
  values.counts = &none;
  __real_cpu_mla_fold(&fold, pool);
  uint64_t count = (uint64_t)a->heads * a->kv_lora_rank;
  if (is_due(KERNEL_mla_fold)) flip_half(a->out + plant.row * count + element_of(count));
  if (a->lifts) __real_cpu_mla_fold(&values, pool);
}

static void remember_order(const u32 *pair_row, u32 top_k) {
  plant.pair_row = pair_row;
  plant.top_k = top_k;
}

/* No row of its own: one of the token's pairs reads another token's row for its product. */
static void mix_up(u32 *row_token) {
  row_token[plant.pair_row[plant.row * plant.top_k]] ^= 1u;
  plant.times++;
}

void __wrap_cpu_router(const router_args *a, cpu_pool *pool) {
  __real_cpu_router(a, pool);
  if (a->sorts) remember_order(a->pair_row, a->top_k);
  if (!is_due(KERNEL_router)) return;
  if (plant.out == OUT_THIRD) {
    mix_up(a->row_token);
    return;
  }
  uint64_t at = (uint64_t)plant.row * a->top_k + element_of(a->top_k);
  if (plant.out == OUT_FIRST) flip_word(a->topk_id + at);
  else flip_word(a->topk_weight + at);
}

void __wrap_cpu_moe_sort(const moe_sort_args *a, cpu_pool *pool) {
  __real_cpu_moe_sort(a, pool);
  remember_order(a->pair_row, a->top_k);
  if (is_due(KERNEL_moe_sort)) mix_up(a->row_token);
}

void __wrap_cpu_moe_gemm(const moe_gemm_args *a, cpu_pool *pool) {
  __real_cpu_moe_gemm(a, pool);
  if (!is_due(KERNEL_moe_gemm)) return;
  if (a->y_kind == Y_F32) flip_word((float *)a->y + pair_element(a->n));
  else flip_half((bf16 *)a->y + pair_element(a->n / 2));
}

void __wrap_cpu_adjust(const adjust_args *a, cpu_pool *pool) {
  __real_cpu_adjust(a, pool);
  if (is_due(KERNEL_adjust)) flip_word(a->adjusted + (uint64_t)plant.logit * a->vocab + element_of(a->vocab));
}

/* Only the receipt has it. */
void __wrap_cpu_sample(const sample_args *a, cpu_pool *pool) {
  __real_cpu_sample(a, pool);
  if (is_due(KERNEL_sample)) flip_word(&a->result[plant.logit].logprob);
}

void __wrap_cpu_row_digest(const row_digest_args *a, cpu_pool *pool) {
  __real_cpu_row_digest(a, pool);
  if (!is_due(KERNEL_row_digest)) return;
  plant.before = a->digest[plant.logit];
  a->digest[plant.logit] ^= 1u;
  plant.times++;
}

/* === Commands =============================================================================================================== */

static const char *path_of(const char *name, char path[PATH_ROOM]) {
  snprintf(path, PATH_ROOM, "%s/%s", model.folder, name);
  return path;
}

static void read_text(const char *path, char text[TEXT_MAX]) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  text[fread(text, 1, TEXT_MAX - 1, file)] = 0;
  fclose(file);
}

/* Runs a subcommand in this process, with stdout and stderr in files; returns both texts, one after the other. argv ends with null. */
static int command(int (*subcommand)(int argc, char **argv), const char *const *argv, char text[TEXT_MAX]) {
  static const char *const names[] = {"stdout", "stderr"};
  char path[PATH_ROOM];
  int saved[2], argc = 0;
  while (argv[argc]) argc++;
  fflush(NULL);
  for (int i = 0; i < 2; i++) {
    int file = open(path_of(names[i], path), O_CREAT | O_TRUNC | O_RDWR, 0666);
    saved[i] = dup(i + 1);
    assert_true(file >= 0 && saved[i] >= 0 && dup2(file, i + 1) >= 0);
    close(file);
  }
  fail_clear();
  int code = subcommand(argc, (char **)(uintptr_t)argv);
  fflush(NULL);
  for (int i = 0; i < 2; i++) {
    assert_true(dup2(saved[i], i + 1) >= 0);
    close(saved[i]);
  }
  read_text(path_of(names[0], path), text);
  size_t used = strlen(text);
  static char errors[TEXT_MAX];
  read_text(path_of(names[1], path), errors);
  snprintf(text + used, TEXT_MAX - used, "%s", errors);
  return code;
}

/* The prompts, as <name>.trace and <name>.receipt. values: a selector or null. */
static void run(const char *name, const char *device, const char *values, enum size size) {
  static char text[TEXT_MAX];
  char trace[PATH_ROOM], receipt[PATH_ROOM];
  const char *argv[40] = {"run", model.plan_path, model.model_dir, "--ids", "--device", device, "--threads", "1", "--quiet",
                          "--ignore-eos", "--max-tokens", "3", "--repetition-penalty", "1.25", "--logprobs", "2", PROMPTS};
  int count = 0;
  while (argv[count]) count++;
  snprintf(trace, sizeof trace, "%s/%s.trace", model.folder, name);
  snprintf(receipt, sizeof receipt, "%s/%s.receipt", model.folder, name);
  const char *const more[] = {"--trace", trace, "--receipt", receipt};
  for (size_t i = 0; i < ARRAY_LEN(more); i++) argv[count++] = more[i];
  if (values) argv[count++] = "--trace-values", argv[count++] = values;
  if (size == ALONE) argv[count++] = "--batch", argv[count++] = "1";
  if (size == FIVE) argv[count++] = "51 52 53 54 55", argv[count++] = "61 62 63 64 65";
  int code = command(cli_run, argv, text);
  if (code) fail_msg("run %s: %d: %s", name, code, text);
}

static const char *sound_device(void) { return e2e_device() == 0 ? "gpu" : "cpu"; }

/* diff --json of two files of the scratch folder; the list of names ends with null. Returns the exit code, the object in *out. */
static int diff(const char *a, const char *b, const char *a_trace, const char *b_trace, json_t **out) {
  static char text[TEXT_MAX];
  char paths[4][PATH_ROOM];
  const char *argv[8] = {"diff", "--json", path_of(a, paths[0]), path_of(b, paths[1])};
  if (a_trace) argv[4] = "--trace", argv[5] = path_of(a_trace, paths[2]), argv[6] = path_of(b_trace, paths[3]);
  int code = command(cli_diff, argv, text);
  *out = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
  if (!*out) fail_msg("diff %s %s: %d: %s", a, b, code, text);
  return code;
}

/* The text output of `verbatim diff`. */
static int diff_text(const char *a, const char *b, char text[TEXT_MAX]) {
  char paths[2][PATH_ROOM];
  return command(cli_diff, (const char *const[]){"diff", path_of(a, paths[0]), path_of(b, paths[1]), NULL}, text);
}

static const json_t *at(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!value) fail_msg("no \"%s\" in the result of diff", key);
  return value;
}

static const char *text_at(const json_t *object, const char *key) {
  const char *text = json_string_value(at(object, key));
  return text ? text : "";
}

static uint64_t bits_at(const json_t *pair, size_t index) { return strtoull(json_string_value(json_array_get(pair, index)), NULL, 16); }

/* === One changed bit ======================================================================================================== */

static bool runs(const plan_op *op, uint32_t tokens, uint32_t logits) {
  uint32_t rows = op->rows_kind == ROWS_LOGITS ? logits : tokens;
  return rows >= op->rows_min && rows <= op->rows_max;
}

static bool runs_in(uint32_t op, enum size size) { return runs(&known.ops[op], SIZE[size].tokens, SIZE[size].logits); }

/* Prepares the fault for an op of the plan, in a step of this size. */
static void aim(uint32_t op, uint32_t out, enum size size) {
  memset(&plant, 0, sizeof plant);
  plant.is_on = true;
  plant.kernel = known.ops[op].kernel;
  plant.out = out;
  plant.element = (uint32_t)(num_digest_word(op, out) % 100003);
  for (uint32_t i = 0; i < op; i++) plant.call += known.ops[i].kernel == plant.kernel && runs_in(i, size);
}

/* The name of the result in a trace, without its layer. */
static const char *result_name(uint32_t op, uint32_t out, char name[128]) {
  const plan_op *o = &known.ops[op];
  uint32_t named = op;
  while (known.ops[named].kernel == KERNEL_mla_fold) named--; /* the attention before it */
  const char *text = plan_string(&known, known.ops[named].name), *what = "";
  if (o->layer != UINT32_MAX) text = strchr(strchr(text, ' ') + 1, ' ') + 1;
  if (o->kernel == KERNEL_rmsnorm && out == OUT_FIRST) what = " x";
  if (o->kernel == KERNEL_qkv_rope) what = out == OUT_FIRST ? " q_nope" : out == OUT_THIRD ? " kv" : " q_latent";
  if (o->kernel == KERNEL_router) what = out == OUT_FIRST ? " topk_id" : " topk_weight";
  snprintf(name, 128, "%s%s", text, what);
  return name;
}

static void expect_point(const json_t *first, uint32_t op, const char *name) {
  const plan_op *o = &known.ops[op];
  const json_t *layer = at(first, "layer");
  assert_string_equal(text_at(first, "request"), REQUEST);
  assert_string_equal(text_at(first, "kind"), "op");
  assert_int_equal(json_integer_value(at(first, "position")), POSITION);
  assert_int_equal(json_integer_value(at(first, "rows_same")), POSITION);
  assert_int_equal(json_integer_value(json_array_get(at(first, "tokens"), 0)), TOKEN);
  if (strcmp(text_at(first, "op"), name) != 0) fail_msg("op %s: diff names %s", name, text_at(first, "op"));
  if (o->layer == UINT32_MAX) assert_true(json_is_null(layer));
  else assert_int_equal(json_integer_value(layer), o->layer);
}

/* Plants the fault, and checks that diff finds exactly it. */
static void expect_found(uint32_t op, uint32_t out, enum size size) {
  char name[128], values[64];
  json_t *result;
  aim(op, out, size);
  result_name(op, out, name);
  snprintf(values, sizeof values, "position=%u", POSITION);
  run("planted", "cpu", values, size);
  plant.is_on = false;
  if (plant.times != 1) fail_msg("op %s: planted %u times", plan_string(&known, known.ops[op].name), plant.times);
  assert_int_equal(diff(SIZE[size].sound, "planted.trace", NULL, NULL, &result), 8);
  const json_t *first = at(at(result, "traces"), "first"), *numbers = at(first, "numbers"), *bits = at(numbers, "bits");
  expect_point(first, op, name);
  if (json_integer_value(at(numbers, "index")) != plant.element) fail_msg("op %s: another number of the row", name);
  assert_int_equal(json_integer_value(at(numbers, "count")), plant.count);
  assert_int_equal(json_integer_value(at(numbers, "differ")), 1);
  assert_int_equal(bits_at(bits, 0), plant.before);
  assert_int_equal(bits_at(bits, 1), plant.before ^ 1u);
  assert_int_equal(json_string_length(json_array_get(bits, 0)), plant.digits);
  if (known.ops[op].kernel == KERNEL_router && out == OUT_FIRST) assert_true(json_is_null(at(numbers, "ulps")));
  else assert_int_equal(json_integer_value(at(numbers, "ulps")), 1);
  json_decref(result);
}

static uint32_t results_of(uint32_t op) {
  switch ((enum kernel_id)known.ops[op].kernel) {
    case KERNEL_qkv_rope: return 3;
    case KERNEL_router: return 2;
    case KERNEL_rmsnorm: return 2;
    case KERNEL_moe_sort: case KERNEL_sample: case KERNEL_row_digest: case KERNEL_attn_cut: return 0;
    case KERNEL_index_qk: case KERNEL_index_topk: return 0;
    default: return 1;
  }
}

static bool has_result(uint32_t op, uint32_t out) {
  const plan_op *o = &known.ops[op];
  size_t field = o->kernel == KERNEL_mla_attn ? offsetof(mla_attn_args, out) : offsetof(rmsnorm_args, x_out);
  if (o->kernel != KERNEL_mla_attn && (o->kernel != KERNEL_rmsnorm || out != OUT_FIRST)) return true;
  for (uint32_t i = 0; i < o->fixup_count; i++)
    if (known.fixups[o->first_fixup + i].args_offset == field) return true;
  return false;
}

/* Whether another alternative of the op runs in one of the steps. */
static bool is_alternative(uint32_t op) {
  const char *name = plan_string(&known, known.ops[op].name);
  bool found = false;
  for (uint32_t i = 0; i < known.op_count; i++)
    for (enum size size = ALONE; size < SIZES; size++)
      found = found || (strcmp(plan_string(&known, known.ops[i].name), name) == 0 && runs_in(i, size));
  return found;
}

/* Every op of layers 0 (dense) and 2 (experts, the last) and of no layer, each alternative that one of the steps uses. */
static void every_op_is_named(void **state) {
  (void)state;
  uint32_t seen[KERNEL_COUNT] = {0}, found = 0, kinds = 0;
  char values[64];
  snprintf(values, sizeof values, "position=%u", POSITION);
  run("sound", sound_device(), values, THREE);
  run("alone", sound_device(), values, ALONE);
  run("five", sound_device(), values, FIVE);
  for (uint32_t op = 0; op < known.op_count; op++) {
    const plan_op *o = &known.ops[op];
    if (o->layer != UINT32_MAX && o->layer != 0 && o->layer != 2) continue;
    enum size size = ALONE;
    while (size < SIZES && !runs_in(op, size)) size++;
    if (size == SIZES && !is_alternative(op)) fail_msg("%s runs in no step", plan_string(&known, o->name));
    if (size == SIZES) continue;
    for (uint32_t out = 0; out < results_of(op); out++) {
      if (!has_result(op, out)) continue;
      expect_found(op, out, size);
      seen[o->kernel]++;
      found++;
    }
  }
  for (uint32_t k = 0; k < KERNEL_COUNT; k++) { /* traces do not include what only steps or audits use */
    const bool is_unseen = k == KERNEL_moe_sort || k == KERNEL_sample || k == KERNEL_row_digest || k == KERNEL_attn_cut;
    bool is_here = false;
    for (uint32_t op = 0; op < known.op_count; op++) is_here = is_here || known.ops[op].kernel == k;
    if (!seen[k] && is_here && !is_unseen) fail_msg("no plant in %s", kernels_row(k)->name);
    kinds += seen[k] > 0;
  }
  assert_true(kinds >= 9); /* the ops of a strict bf16 model with experts */
  print_message("%u results, each found\n", found);
}

static uint32_t op_of(uint32_t kernel, uint32_t layer) {
  for (uint32_t i = 0; i < known.op_count; i++)
    if (known.ops[i].kernel == kernel && known.ops[i].layer == layer) return i;
  fail_msg("no op of kernel %u in layer %u", kernel, layer);
  return 0;
}

/* An op without rows of its own shows in the values computed from its result. */
static void wrong_order_of_experts(void **state) {
  (void)state;
  json_t *result;
  uint32_t op = op_of(KERNEL_router, 1); /* which sorts the pairs of few tokens */
  run("sound", sound_device(), NULL, THREE);
  aim(op, OUT_THIRD, THREE);
  run("planted", "cpu", NULL, THREE);
  plant.is_on = false;
  assert_int_equal(plant.times, 1);
  assert_int_equal(diff("sound.trace", "planted.trace", NULL, NULL, &result), 8);
  const json_t *first = at(at(result, "traces"), "first");
  char name[128], selector[160], text[TEXT_MAX];
  expect_point(first, op, result_name(op_of(KERNEL_moe_gemm, 1), 0, name));
  assert_true(json_is_null(at(first, "numbers"))); /* none were recorded: diff says how to record them */
  snprintf(selector, sizeof selector, "layer=1,op=%s,position=%u", name, POSITION);
  assert_string_equal(text_at(first, "trace_values"), selector);
  json_decref(result);
  assert_int_equal(diff_text("sound.trace", "planted.trace", text), 8);
  assert_non_null(strstr(text, selector));
  assert_non_null(strstr(text, "first divergence: request \"1\", position 4 (token 35), layer 1, op "));
  run("sound", sound_device(), selector, THREE); /* as diff said */
  aim(op, OUT_THIRD, THREE);
  run("planted", "cpu", selector, THREE);
  plant.is_on = false;
  assert_int_equal(plant.times, 1);
  assert_int_equal(diff("sound.trace", "planted.trace", NULL, NULL, &result), 8);
  assert_true(json_integer_value(at(at(at(at(result, "traces"), "first"), "numbers"), "differ")) > 1);
  json_decref(result);
}

/* A difference in a value that only a receipt has is found there, and the traces are the same. */
static void receipts_hold_the_rest(void **state) {
  (void)state;
  json_t *result;
  run("sound", sound_device(), NULL, THREE);
  for (int which = 0; which < 2; which++) {
    aim(op_of(which ? KERNEL_row_digest : KERNEL_sample, UINT32_MAX), 0, THREE);
    run("planted", "cpu", NULL, THREE);
    plant.is_on = false;
    assert_int_equal(plant.times, 1);
    assert_int_equal(diff("sound.receipt", "planted.receipt", "sound.trace", "planted.trace", &result), 8);
    const json_t *receipts = at(result, "receipts"), *first = at(receipts, "first"), *token = at(first, "token");
    assert_true(json_is_true(at(at(result, "traces"), "equal")));
    assert_true(json_is_false(at(receipts, "equal")) && json_is_false(at(result, "equal")));
    assert_string_equal(text_at(first, "request"), REQUEST);
    assert_true(json_is_null(at(first, "asked")));
    assert_string_equal(text_at(token, "list"), "made");
    assert_int_equal(json_integer_value(at(token, "index")), 0);
    assert_int_equal(json_integer_value(at(token, "position")), POSITION + 1);
    const json_t *logits = at(token, "logits"), *logprob = at(token, "logprob");
    if (which == 0) {
      assert_int_equal(bits_at(logits, 0), bits_at(logits, 1));
      assert_int_equal(bits_at(at(logprob, "bits"), 0), plant.before);
      assert_int_equal(bits_at(at(logprob, "bits"), 1), plant.before ^ 1u);
      assert_int_equal(json_integer_value(at(logprob, "ulps")), 1);
    } else {
      assert_int_equal(bits_at(logits, 0), plant.before);
      assert_int_equal(bits_at(logits, 1), plant.before ^ 1u);
      assert_int_equal(json_integer_value(at(logprob, "ulps")), 0);
    }
    json_decref(result);
  }
}

/* === Requests, heads and files ============================================================================================== */

/* A run with other prompts and a name for each, given as JSON lines; returns the exit code. */
static int run_lines(const char *name, const char *plan_path, const char *lines, const char *const *more, char text[TEXT_MAX]) {
  char jsonl[PATH_ROOM], trace[PATH_ROOM], receipt[PATH_ROOM];
  const char *argv[32] = {"run", plan_path, model.model_dir, "--ids", "--device", sound_device(), "--quiet", "--ignore-eos", "--jsonl",
                          path_of("lines", jsonl), "--trace", trace, "--receipt", receipt};
  int count = 14;
  snprintf(trace, sizeof trace, "%s/%s.trace", model.folder, name);
  snprintf(receipt, sizeof receipt, "%s/%s.receipt", model.folder, name);
  FILE *file = fopen(jsonl, "wb");
  assert_non_null(file);
  assert_true(fputs(lines, file) >= 0 && fclose(file) == 0);
  while (more && *more) argv[count++] = *more++;
  return command(cli_run, argv, text);
}

#define LINE(id, ids, more) "{\"id\":\"" id "\",\"prompt_ids\":[" ids "]" more ",\"max_tokens\":2}\n"

static void expect_names(const json_t *list, const char *expected) {
  char found[256] = "";
  for (size_t i = 0; i < json_array_size(list); i++)
    snprintf(found + strlen(found), sizeof found - strlen(found), "%s ", json_string_value(json_array_get(list, i)));
  assert_string_equal(found, expected);
}

/* The same requests in another order, among others, and twice under one name; then one with other options. */
static void requests_are_matched_by_name(void **state) {
  (void)state;
  static char text[TEXT_MAX];
  json_t *result;
  assert_int_equal(run_lines("a", model.plan_path, LINE("x", "9,8", "") LINE("t", "5", "") LINE("y", "7,7,7", "") LINE("t", "6", ""), NULL,
                             text), 0);
  assert_int_equal(run_lines("b", model.plan_path, LINE("t", "5", "") LINE("z", "4", "") LINE("t", "6", "") LINE("x", "9,8", ""), NULL,
                             text), 0);
  assert_int_equal(diff("a.receipt", "b.receipt", "a.trace", "b.trace", &result), 8);
  for (int i = 0; i < 2; i++) {
    const json_t *part = at(result, i ? "traces" : "receipts");
    assert_int_equal(json_integer_value(at(part, "compared")), 3);
    expect_names(at(part, "differ"), "");
    expect_names(at(part, "only_a"), "y ");
    expect_names(at(part, "only_b"), "z ");
    assert_true(json_is_null(at(part, "first")));
  }
  json_decref(result);
  assert_int_equal(run_lines("b", model.plan_path, LINE("y", "7,7,7", "") LINE("t", "5", "") LINE("t", "3,6", "")
                             LINE("x", "9,8", ",\"temperature\":2,\"seed\":5"), NULL, text), 0);
  assert_int_equal(diff("a.receipt", "b.receipt", "a.trace", "b.trace", &result), 8);
  const json_t *receipts = at(result, "receipts"), *traces = at(result, "traces"), *asked = at(at(receipts, "first"), "asked");
  expect_names(at(receipts, "differ"), "x t ");
  assert_string_equal(text_at(at(receipts, "first"), "request"), "x");
  assert_string_equal(text_at(asked, "field"), "temperature");
  assert_string_equal(json_string_value(json_array_get(at(asked, "values"), 1)), "2 (40000000)");
  const json_t *first = at(traces, "first"); /* the prompts' rows are the same, and then another token is computed */
  assert_string_equal(text_at(first, "request"), "x");
  assert_string_equal(text_at(first, "kind"), "token");
  assert_int_equal(json_integer_value(at(first, "position")), 2);
  assert_true(json_is_false(at(first, "same_request_digest")));
  json_decref(result);
}

static void one_run_is_longer(void **state) {
  (void)state;
  static char text[TEXT_MAX];
  json_t *result;
  assert_int_equal(run_lines("a", model.plan_path, "{\"prompt_ids\":[9,8,7],\"max_tokens\":2}\n", NULL, text), 0);
  assert_int_equal(run_lines("b", model.plan_path, "{\"prompt_ids\":[9,8,7],\"max_tokens\":4}\n", NULL, text), 0);
  assert_int_equal(diff("a.receipt", "b.receipt", "a.trace", "b.trace", &result), 8);
  const json_t *receipt = at(at(result, "receipts"), "first"), *token = at(receipt, "token"), *row = at(at(result, "traces"), "first");
  assert_string_equal(text_at(at(receipt, "asked"), "field"), "max_tokens");
  assert_int_equal(json_integer_value(at(receipt, "tokens_same")), 2);
  assert_int_equal(json_integer_value(at(token, "position")), 5);
  assert_true(json_is_null(json_array_get(at(token, "tokens"), 0)) && json_is_integer(json_array_get(at(token, "tokens"), 1)));
  assert_string_equal(text_at(row, "kind"), "ends");
  assert_int_equal(json_integer_value(at(row, "position")), 4);
  assert_int_equal(json_integer_value(at(row, "rows_same")), 4);
  json_decref(result);
  assert_int_equal(diff_text("a.trace", "b.trace", text), 8);
  assert_non_null(strstr(text, "only B has a row"));
}

/* Another plan of the model, of other numerics: the heads are named as different, and the rows are still compared. */
static void heads_are_named(void **state) {
  (void)state;
  static char text[TEXT_MAX];
  json_t *result;
  char other[E2E_PATH_MAX];
  e2e_make_plan(&model, "other.plan", "max-num-seqs: 2\nmax-num-batched-tokens: 8\nmax-model-len: 64\nkv_pages: 4\n"
                                      "chunk_tokens: 128\nladder: [1]\n",
                other);
  assert_int_equal(run_lines("a", model.plan_path, LINE("x", "9,8", ""), NULL, text), 0);
  assert_int_equal(run_lines("b", other, LINE("x", "9,8", ""), NULL, text), 0);
  assert_int_equal(diff("a.receipt", "b.receipt", "a.trace", "b.trace", &result), 8);
  for (int i = 0; i < 2; i++) {
    const json_t *part = at(result, i ? "traces" : "receipts");
    assert_int_equal(json_array_size(at(part, "numerics_id")), 2);
    assert_null(json_object_get(part, "weights"));
    expect_names(at(part, "differ"), ""); /* a short request has one chunk either way: the same bits */
  }
  json_decref(result);
}

/* === What is recorded ======================================================================================================= */

/* Where the values of a point must be for a selector; rows of this model's traces. */
static bool is_layer(const verbatim_point *p, uint32_t layer) { return p->layer == layer; }
static bool wants_all(const verbatim_point *p, uint32_t position) { return (void)p, (void)position, true; }
static bool wants_range(const verbatim_point *p, uint32_t position) {
  return position >= 1 && position <= 2 && (is_layer(p, 1) || is_layer(p, 2));
}
static bool wants_beginning(const verbatim_point *p, uint32_t position) {
  static const char *const names[] = {"layer 2 router_logits", "layer 2 router topk_id", "layer 2 router topk_weight"};
  bool found = false;
  for (size_t i = 0; i < ARRAY_LEN(names); i++) found |= strcmp(p->name, names[i]) == 0;
  return found && position == 3;
}
static bool wants_audit(const verbatim_point *p, uint32_t position) {
  bool is_kv = is_layer(p, 1) && strstr(p->name, "qkv_rope kv");
  return ((is_layer(p, 1) || is_layer(p, 0)) && position == 3) || (is_kv && position < 3);
}
static bool wants_audit_first(const verbatim_point *p, uint32_t position) {
  return position == 0 && (is_layer(p, 0) || strcmp(p->name, "embed") == 0);
}
static bool wants_two(const verbatim_point *p, uint32_t position) { return wants_range(p, position) || strcmp(p->name, "lm_head") == 0; }

static void selectors_choose(void **state) {
  (void)state;
  static char text[TEXT_MAX];
  char path[PATH_ROOM];
  const struct { const char *first, *second; bool (*wants)(const verbatim_point *p, uint32_t position); } CASES[] = {
      {"all", NULL, wants_all}, {"layer=1-2,position=1-2", NULL, wants_range}, {"op=router,layer=2,position=3", NULL, wants_beginning},
      {"audit:layer=1,position=3", NULL, wants_audit}, {"audit:layer=0,position=0", NULL, wants_audit_first},
      {"position=1-2,layer=1-2", "op=lm_", wants_two}};
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    const char *const more[] = {"--trace-values", CASES[i].first, CASES[i].second ? "--trace-values" : NULL, CASES[i].second, NULL};
    trace_reader *reader;
    trace_record r = {0};
    assert_int_equal(run_lines("a", model.plan_path, LINE("x", "9,8,7,6", ""), more, text), 0);
    assert_int_equal(trace_reader_open(&reader, path_of("a.trace", path)), OK);
    const trace_head *head = trace_reader_head(reader);
    bool *has = calloc(head->point_count, sizeof *has);
    assert_non_null(has);
    for (uint32_t rows = 0; r.kind != TRACE_END;) {
      assert_int_equal(trace_reader_next(reader, &r), OK);
      if (r.kind == TRACE_VALUES) has[r.point] = true;
      if (r.kind == TRACE_END) assert_int_equal(rows, 5);
      if (r.kind != TRACE_ROW) continue;
      for (uint32_t k = 0; k < head->point_count; k++)
        if (has[k] != (CASES[i].wants(&head->points[k], r.position) && r.digests[k] != 0))
          fail_msg("%s: %s at position %u: %d", CASES[i].first, head->points[k].name, r.position, has[k]);
      memset(has, 0, head->point_count * sizeof *has);
      rows++;
    }
    free(has);
    trace_reader_close(reader);
  }
}

/* Requests that lose their pages and are computed again: the trace is that of a plan with enough pages; different bits in a row's second
 * computation end the run. */
static void rows_that_come_again(void **state) {
  (void)state;
  static char text[TEXT_MAX];
  char lines[2048] = "";
  for (int i = 0; i < 2; i++) { /* each within one page, and each about to need another; there are three */
    sprintf(lines + strlen(lines), "{\"max_tokens\":8,\"prompt_ids\":[");
    for (int k = 0; k < 60; k++) sprintf(lines + strlen(lines), "%s%d", k ? "," : "", i ? TOKEN - (int)POSITION + k : 100 + k);
    sprintf(lines + strlen(lines), "]}\n");
  }
  const char *const one_thread[] = {"--threads", "1", "--device", "cpu", NULL};
  char narrow[E2E_PATH_MAX];
  json_t *result;
  e2e_make_plan(&model, "narrow.plan", "max-num-seqs: 2\nmax-num-batched-tokens: 64\nmax-model-len: 128\nkv_pages: 3\nchunk_tokens: 64\n"
                "group_chunks: 2\nladder: [1, 2]\n", narrow);
  assert_int_equal(run_lines("a", model.plan_path, lines, NULL, text), 0);
  memset(&plant, 0, sizeof plant);
  plant.is_on = true, plant.kernel = KERNEL_embed, plant.skip = 1000;
  assert_int_equal(run_lines("b", narrow, lines, one_thread, text), 0);
  plant.is_on = false;
  assert_int_equal(1000 - plant.skip, 2); /* the row was computed twice */
  assert_int_equal(diff("a.receipt", "b.receipt", "a.trace", "b.trace", &result), 0);
  json_decref(result);
  plant.is_on = true, plant.skip = 1;
  assert_int_equal(run_lines("b", narrow, lines, one_thread, text), 8);
  plant.is_on = false;
  assert_int_equal(plant.times, 1);
  assert_non_null(strstr(text, "a recomputed row has other bits: position 4, \"embed\""));
}

/* `score` writes traces, too. */
static void scores_are_traced(void **state) {
  (void)state;
  static const char lines[] = "{\"id\":\"w\",\"ids\":[31,32,33,34,35,36]}\n"
                              "{\"id\":\"c\",\"context_ids\":[31,32],\"continuations_ids\":[[33,34],[36]]}\n";
  static char text[TEXT_MAX];
  char jsonl[PATH_ROOM], traces[2][PATH_ROOM];
  json_t *result;
  FILE *file = fopen(path_of("lines", jsonl), "wb");
  assert_non_null(file);
  assert_true(fputs(lines, file) >= 0 && fclose(file) == 0);
  for (int i = 0; i < 2; i++) {
    const char *argv[] = {"score", model.plan_path, model.model_dir, "--jsonl", jsonl, "--device", i ? "cpu" : sound_device(), "--quiet",
                          "--trace", path_of(i ? "b.trace" : "a.trace", traces[i]), "--chunk", i ? "2" : "64", NULL};
    assert_int_equal(command(cli_score, argv, text), 0);
  }
  assert_int_equal(diff("a.trace", "b.trace", NULL, NULL, &result), 0);
  assert_int_equal(json_integer_value(at(at(result, "traces"), "compared")), 3);
  assert_int_equal(json_integer_value(at(at(result, "traces"), "rows")), 5 + 3 + 2); /* all but each one's last */
  json_decref(result);
}

static void wrong_uses(void **state) {
  (void)state;
  static char text[TEXT_MAX];
  char a[PATH_ROOM], t[PATH_ROOM];
  assert_int_equal(run_lines("a", model.plan_path, LINE("x", "9,8", ""), NULL, text), 0);
  path_of("a.receipt", a), path_of("a.trace", t);
  const struct { const char *argv[6]; int code; const char *text; } CASES[] = {
      {{"diff", a}, 2, "found 1 files"}, {{"diff", a, t}, 2, "a receipt and a trace"}, {{"diff", a, a, t, t}, 2, "found 4 files"},
      {{"diff", a, a, "--trace", t}, 2, "A_TRACE"}, {{"diff", a, a, "--trace", a}, 2, "A_TRACE"},
      {{"diff", a, "/nonexistent"}, 3, "/nonexistent"}, {{"diff", a, "/dev/null"}, 3, "regular"}, {{"diff", "--help"}, 0, "usage"},
      {{"diff", a, "README.md"}, 4, "README.md"}};
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    int code = command(cli_diff, CASES[i].argv, text);
    if (code != CASES[i].code || !strstr(text, CASES[i].text)) fail_msg("case %zu: %d: %s", i, code, text);
  }
  const struct { const char *more[4]; int code; const char *text; } RUNS[] = {
      {{"--trace-values", "layer=9"}, 2, "nothing in the plan matches"}, {{"--trace-values", "op=o_proj,where=3"}, 2, "found \"where=3\""},
      {{"--trace-values", "op=nothing"}, 2, "its ops are embed, input_norm"}, {{"--trace-values", "position=5-4"}, 2, "ascending"},
      {{"--trace-values", "position="}, 2, "integer"}, {{"--trace-values", ""}, 2, "expected all"},
      {{"--trace-values", "audit:op=o_proj"}, 2, "not with audit:"}, {{"--trace-memory", "0"}, 6, "--trace-memory"},
      {{"--trace", model.plan_path}, 2, "is the plan"}, {{"--trace", "/nonexistent/trace"}, 3, "/nonexistent/trace"},
      {{"--trace", "/dev/null"}, 2, "regular"}};
  for (size_t i = 0; i < ARRAY_LEN(RUNS); i++) {
    int code = run_lines("c", model.plan_path, LINE("x", "9,8", ""), RUNS[i].more, text);
    if (code != RUNS[i].code || !strstr(text, RUNS[i].text)) fail_msg("run %zu: %d: %s", i, code, text);
  }
  const char *const bare[] = {"run", model.plan_path, model.model_dir, "--ids", "1", "--trace-values", "all", NULL};
  assert_int_equal(command(cli_run, bare, text), 2);
  assert_non_null(strstr(text, "needs --trace"));
}

/* The control of all tests above: nothing planted, nothing found; and however the work is split the files have the same bytes. */
static void equal_runs_are_equal(void **state) {
  (void)state;
  json_t *result;
  static char texts[2][TEXT_MAX];
  char paths[2][PATH_ROOM];
  run("sound", sound_device(), "all", THREE);
  run("planted", "cpu", "all", ALONE);
  assert_int_equal(diff("sound.receipt", "planted.receipt", "sound.trace", "planted.trace", &result), 0);
  assert_true(json_is_true(at(result, "equal")));
  assert_int_equal(json_integer_value(at(at(result, "traces"), "rows")), 3 * (5 + 2));
  json_decref(result);
  run("sound", sound_device(), NULL, THREE);
  run("planted", "cpu", NULL, ALONE);
  read_text(path_of("sound.trace", paths[0]), texts[0]);
  read_text(path_of("planted.trace", paths[1]), texts[1]);
  assert_memory_equal(texts[0], texts[1], TEXT_MAX / 2);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equal_runs_are_equal), cmocka_unit_test(every_op_is_named),
                                     cmocka_unit_test(wrong_order_of_experts), cmocka_unit_test(receipts_hold_the_rest),
                                     cmocka_unit_test(requests_are_matched_by_name), cmocka_unit_test(one_run_is_longer),
                                     cmocka_unit_test(heads_are_named), cmocka_unit_test(selectors_choose),
                                     cmocka_unit_test(rows_that_come_again), cmocka_unit_test(scores_are_traced),
                                     cmocka_unit_test(wrong_uses)};
  e2e_begin(argc, argv);
  e2e_make_model(&model, "tests/oracle/small-v3.json", DEPLOY);
  int failed = plan_open(&known, model.plan_path) == OK ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
  plan_close(&known);
  e2e_remove(&model);
  return failed;
}
