/* random_model.c - writes a Hugging Face model folder of random bf16 weights for a config.json of a supported model_type.
 *
 *   random_model CONFIG.json OUT_DIR [--seed N] [--shards K] [--vocab-tokenizer] [--stacked-experts] [--prefix P] [--extras]
 *
 * Owns: tensor names and shapes of such checkpoints, the safetensors bytes. Must not know: the engine or the plan; tests and
 * tools/oracle.py feed its output to both. A value depends only on (seed, plain tensor name, index): the bytes do not depend on the
 * computer, on --shards (written in parallel) or on the other tensors. Scales keep activations near 1 and logits varied. A config with a
 * quantization_config (fp8, blocks of 128 x 128) gives e4m3 weights with scales, and bf16 for excluded modules. --vocab-tokenizer adds a
 * byte-level BPE tokenizer.json with as many tokens as the config's vocabulary. --stacked-experts writes the experts of a layer as two
 * tensors, as HF stores them for mistral4. --prefix writes the names of a model nested in another: "language_model." before every name, or
 * "model.language_model." instead of "model.". Prediction layers are those of num_nextn_predict_layers. --extras adds tensors that
 * inference does not use: a prediction layer if the config has none, old rotary frequencies, a vision part.
 * Read next: tests/oracle/README.md. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>
#include "engine/base/base.h"
#include "engine/base/limits.h"
#include "num.h"

#define TENSORS_MAX ((LAYERS_MAX + 16u) * (EXPERTS_MAX * 6u + 32u) + 64u)
#define PATH_BYTES_MAX 4096u
#define CHUNK_VALUES 32768u
#define FIRST_BYTE_TOKEN 3u /* first id after begin, end and padding */

enum norm { NORM_INPUT = 1, NORM_POST = 2, NORM_BEHIND_ATTENTION = 4, NORM_BEHIND_MLP = 8, NORM_BEHIND_FEED = 16 };
static const char *const NORMS[] = {"input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm",
                                    "post_feedforward_layernorm"};
#define BEFORE (NORM_INPUT | NORM_POST)
enum qk_norm { WITHOUT = 0, OF_HEADS = 1, OF_ROWS = 2, AS_CONFIG_SAYS = 3 };
enum bias { NEVER = 0, ALWAYS = 1, IF_CONFIG_SAYS = 2, OUTPUT_TOO = 3 }; /* by attention_bias; 3: of the output projection as well */

typedef struct grouped_family { /* with grouped-query attention; norms: enum norm, of a layer; experts: field with their number */
  const char *model_type, *experts;
  uint32_t norms;
  enum bias bias; /* of queries, keys and values */
  enum qk_norm qk_norm;
  bool is_fused_qkv, is_fused_up, has_router_bias, has_gated_expert;
} grouped_family;

static const grouped_family GROUPED[] = {
    {"llama", NULL, BEFORE, OUTPUT_TOO, WITHOUT, false, false, false, false},
    {"mistral", NULL, BEFORE, NEVER, WITHOUT, false, false, false, false},
    {"smollm3", NULL, BEFORE, OUTPUT_TOO, WITHOUT, false, false, false, false},
    {"phi3", NULL, BEFORE, NEVER, WITHOUT, true, true, false, false},
    {"qwen2", NULL, BEFORE, ALWAYS, WITHOUT, false, false, false, false},
    {"qwen2_moe", "num_experts", BEFORE, ALWAYS, WITHOUT, false, false, false, true},
    {"qwen3", NULL, BEFORE, OUTPUT_TOO, OF_HEADS, false, false, false, false},
    {"qwen3_moe", "num_experts", BEFORE, OUTPUT_TOO, OF_HEADS, false, false, false, false},
    {"glm4", NULL, BEFORE | NORM_BEHIND_ATTENTION | NORM_BEHIND_MLP, IF_CONFIG_SAYS, WITHOUT, false, true, false, false},
    {"glm4_moe", "n_routed_experts", BEFORE, IF_CONFIG_SAYS, AS_CONFIG_SAYS, false, false, true, false},
    {"olmo2", NULL, NORM_POST | NORM_BEHIND_FEED, OUTPUT_TOO, OF_ROWS, false, false, false, false},
};

typedef struct model_shape {
  const grouped_family *grouped; /* null: latent attention */
  uint32_t kv_heads, head_dim, shared_inter; /* grouped; shared_inter: of a gated shared expert, or 0 */
  bool has_bias, has_output_bias, has_feed_bias;
  enum qk_norm qk_norm;
  uint32_t layers, dense_layers, hidden, vocab, heads, q_lora, kv_lora, nope, rope, value;
  uint32_t inter, moe_inter, experts, shared_experts;
  uint32_t prediction_layers;
  bool router_bias, tied;
  double routed_gain; /* factor of the routed experts' last matrix: undoes routed_scaling_factor, as training would */
  double embed_scale; /* the model's factor of the embedding                    */
  uint32_t index_heads;              /* heads of the indexer; 0: none           */
  bool is_shared[LAYERS_MAX];        /* layers that use another layer's indexer */
  bool is_fp8;
  uint32_t scale_kind;               /* scales of the weights' blocks: enum scale_kind */
  const json_t *not_converted;       /* modules that stay bf16, or null                */
} model_shape;

enum stack { ALONE = 0, STACK_GATE_UP = 1, STACK_DOWN = 2 };
enum form { FORM_BF16 = 0, FORM_F32 = 1, FORM_E4M3 = 2, FORM_SCALES = 3 }; /* scales: of the e4m3 tensor before this one */
static const struct { const char *dtype; uint32_t bytes; } FORMS[] = {{"BF16", 2}, {"F32", 4}, {"F8_E4M3", 1}, {"F32", 4}};

/* One tensor: nearly normal around mean with the given deviation. rows 0: a vector of cols values. */
typedef struct tensor {
  char name[NAME_BYTES_MAX]; /* plain name, which determines the values */
  uint64_t rows, cols;
  double mean, deviation;
  enum form form;
  uint32_t scale_kind; /* of e4m3 */
  enum stack stack; /* adjacent tensors of one kind form one tensor of the file */
} tensor;

typedef struct entry { /* a tensor of the files: tensors [first, last) */
  char name[NAME_BYTES_MAX];
  uint32_t first, last, rank;
  uint64_t shape[3];
} entry;

typedef struct model {
  tensor *tensors; /* [count], in file order */
  entry *entries;  /* [entry_count] */
  uint32_t count, count_max, entry_count;
} model;

typedef struct options {
  const char *config_path, *out_dir;
  uint64_t seed;
  const char *prefix; /* "": plain names */
  uint32_t shards;
  bool vocab_tokenizer, stacked_experts, extras;
} options;

/* ---- config.json ---- */

/* Reads an integer field in [low, high]; an absent or null field gives `absent` if that is in range, else an error. */
static status read_count(const json_t *config, const char *key, uint32_t low, uint32_t high, int64_t absent, uint32_t *out) {
  const json_t *field = json_object_get(config, key);
  json_int_t number = (json_int_t)absent;
  if (field != NULL && !json_is_null(field)) {
    if (!json_is_integer(field)) return FAIL(ERR_FORMAT, "config.json: expected an integer for \"%s\"", key);
    number = json_integer_value(field);
  }
  if (number < (json_int_t)low || number > (json_int_t)high)
    return FAIL(ERR_FORMAT, "config.json: expected \"%s\" between %" PRIu32 " and %" PRIu32 ", found %" JSON_INTEGER_FORMAT, key, low,
                high, number);
  *out = (uint32_t)number;
  return OK;
}

static bool text_is(const json_t *config, const char *key, const char *wanted) {
  const char *text = json_string_value(json_object_get(config, key));
  return text != NULL && strcmp(text, wanted) == 0;
}

static status read_quantisation(const json_t *config, model_shape *shape) {
  const json_t *q = json_object_get(config, "quantization_config");
  shape->is_fp8 = q != NULL;
  if (q == NULL) return OK;
  if (!text_is(q, "quant_method", "fp8")) return FAIL(ERR_UNSUPPORTED, "config.json: expected quant_method fp8");
  shape->scale_kind = text_is(q, "scale_fmt", "ue8m0") ? SCALE_POW2 : SCALE_F32;
  shape->not_converted = json_object_get(q, "modules_to_not_convert");
  return OK;
}

static status read_indexers(const json_t *config, model_shape *shape) {
  const json_t *types = json_object_get(config, "indexer_types");
  TRY(read_count(config, "index_n_heads", 1, HEADS_MAX, -1, &shape->index_heads));
  for (uint32_t i = 0; i < shape->layers; i++) {
    const char *type = json_string_value(json_array_get(types, i));
    shape->is_shared[i] = type != NULL && strcmp(type, "shared") == 0;
  }
  return OK;
}

static status read_grouped(const json_t *config, model_shape *shape) {
  const grouped_family *family = shape->grouped;
  TRY(read_count(config, "num_hidden_layers", 1, LAYERS_MAX, -1, &shape->layers));
  TRY(read_count(config, "hidden_size", 1, HIDDEN_MAX, -1, &shape->hidden));
  TRY(read_count(config, "vocab_size", 1, VOCAB_MAX, -1, &shape->vocab));
  TRY(read_count(config, "num_attention_heads", 1, HEADS_MAX, -1, &shape->heads));
  TRY(read_count(config, "num_key_value_heads", 1, HEADS_MAX, shape->heads, &shape->kv_heads));
  TRY(read_count(config, "head_dim", 1, HEAD_DIM_MAX, shape->hidden / shape->heads, &shape->head_dim));
  TRY(read_count(config, "intermediate_size", 1, 65536, -1, &shape->inter));
  TRY(read_count(config, "first_k_dense_replace", 0, LAYERS_MAX, 0, &shape->dense_layers));
  TRY(read_count(config, "n_shared_experts", 0, 16, 0, &shape->shared_experts));
  if (family->experts) TRY(read_count(config, family->experts, 1, EXPERTS_MAX, -1, &shape->experts));
  if (family->experts) TRY(read_count(config, "moe_intermediate_size", 1, 65536, -1, &shape->moe_inter));
  if (family->has_gated_expert) TRY(read_count(config, "shared_expert_intermediate_size", 1, 65536, -1, &shape->shared_inter));
  shape->rope = shape->head_dim, shape->router_bias = family->has_router_bias;
  shape->routed_gain = shape->embed_scale = 1.0;
  shape->has_bias = family->bias == ALWAYS || (family->bias != NEVER && json_is_true(json_object_get(config, "attention_bias")));
  shape->has_output_bias = shape->has_bias && family->bias == OUTPUT_TOO;
  shape->has_feed_bias = json_is_true(json_object_get(config, "mlp_bias"));
  const bool has_qk_norm = json_is_true(json_object_get(config, "use_qk_norm"));
  shape->qk_norm = family->qk_norm != AS_CONFIG_SAYS ? family->qk_norm : has_qk_norm ? OF_HEADS : WITHOUT;
  shape->tied = json_is_true(json_object_get(config, "tie_word_embeddings"));
  return OK;
}

static status read_shape(const json_t *config, model_shape *shape) {
  for (size_t i = 0; i < ARRAY_LEN(GROUPED); i++)
    if (text_is(config, "model_type", GROUPED[i].model_type)) shape->grouped = &GROUPED[i];
  TRY(read_quantisation(config, shape));
  if (shape->grouped) return read_grouped(config, shape);
  bool v2 = text_is(config, "model_type", "deepseek_v2"), glm = text_is(config, "model_type", "glm4_moe_lite");
  bool youtu = text_is(config, "model_type", "youtu"), minicpm = text_is(config, "model_type", "minicpm3");
  bool mistral = text_is(config, "model_type", "mistral4"), glm_sparse = text_is(config, "model_type", "glm_moe_dsa");
  bool sparse = text_is(config, "model_type", "deepseek_v32") || glm_sparse;
  bool v3 = text_is(config, "model_type", "deepseek_v3") || text_is(config, "model_type", "kimi_k2");
  if (!v2 && !v3 && !glm && !youtu && !minicpm && !mistral && !sparse)
    return FAIL(ERR_UNSUPPORTED, "config.json: expected the model_type of a model that verbatim supports");
  if (json_is_true(json_object_get(config, "attention_bias")))
    return FAIL(ERR_UNSUPPORTED, "config.json: expected attention_bias false, found true");
  uint32_t moe_every;
  TRY(read_count(config, "moe_layer_freq", 1, 1, 1, &moe_every));
  TRY(read_count(config, "num_hidden_layers", 1, LAYERS_MAX, -1, &shape->layers));
  TRY(read_count(config, "first_k_dense_replace", 0, LAYERS_MAX, glm ? 1 : 0, &shape->dense_layers));
  TRY(read_count(config, "hidden_size", 1, HIDDEN_MAX, -1, &shape->hidden));
  TRY(read_count(config, "vocab_size", 1, VOCAB_MAX, -1, &shape->vocab));
  TRY(read_count(config, "num_attention_heads", 1, HEADS_MAX, -1, &shape->heads));
  TRY(read_count(config, "q_lora_rank", 0, HIDDEN_MAX, 0, &shape->q_lora));
  TRY(read_count(config, "kv_lora_rank", 1, KV_LORA_RANK_MAX, -1, &shape->kv_lora));
  TRY(read_count(config, "qk_nope_head_dim", 1, 1024, -1, &shape->nope));
  TRY(read_count(config, "qk_rope_head_dim", 1, ROPE_DIM_MAX, -1, &shape->rope));
  TRY(read_count(config, "v_head_dim", 1, 1024, minicpm ? (int64_t)(shape->hidden / shape->heads) : -1, &shape->value));
  TRY(read_count(config, "intermediate_size", 1, 65536, -1, &shape->inter));
  TRY(read_count(config, "n_routed_experts", 0, EXPERTS_MAX, 0, &shape->experts));
  TRY(read_count(config, "n_shared_experts", 0, 16, 0, &shape->shared_experts));
  TRY(read_count(config, "num_nextn_predict_layers", 0, 16, 0, &shape->prediction_layers));
  TRY(read_count(config, "moe_intermediate_size", shape->experts > 0 ? 1 : 0, 65536, 0, &shape->moe_inter));
  const json_t *factor = json_object_get(config, "routed_scaling_factor");
  if (factor != NULL && !(json_number_value(factor) > 0.0))
    return FAIL(ERR_FORMAT, "config.json: expected a positive routed_scaling_factor");
  shape->routed_gain = factor != NULL && json_number_value(factor) > 1.0 ? 1.0 / json_number_value(factor) : 1.0;
  const json_t *scale = json_object_get(config, "scale_emb");
  if (scale != NULL && !(json_number_value(scale) > 0.0)) return FAIL(ERR_FORMAT, "config.json: expected a positive scale_emb");
  shape->embed_scale = scale != NULL ? json_number_value(scale) : 1.0;
  shape->router_bias = !v2 && !mistral;
  const json_t *tied = json_object_get(config, "tie_word_embeddings");
  shape->tied = tied != NULL ? json_is_true(tied) : youtu || minicpm;
  return sparse ? read_indexers(config, shape) : OK;
}

/* ---- the list of tensors ---- */

__attribute__((format(printf, 2, 3))) static tensor *next_tensor(model *m, const char *format, ...) {
  ASSERT(m->count < m->count_max);
  tensor *t = &m->tensors[m->count++];
  va_list args;
  va_start(args, format);
  int length = vsnprintf(t->name, sizeof t->name, format, args);
  va_end(args);
  ASSERT(length > 0 && (size_t)length < sizeof t->name);
  return t;
}

static void add_matrix(model *m, const char *prefix, const char *name, uint64_t rows, uint64_t cols, double gain) {
  tensor *t = next_tensor(m, "%s%s.weight", prefix, name);
  t->rows = rows;
  t->cols = cols;
  t->deviation = gain / sqrt((double)cols);
}

/* Whether the list of bf16 modules names this module or one that contains it. */
static bool is_kept(const model_shape *s, const char *module, size_t length) {
  size_t i;
  json_t *listed;
  json_array_foreach((json_t *)s->not_converted, i, listed) {
    const char *name = json_string_value(listed);
    const size_t n = name ? strlen(name) : 0;
    if (n && n <= length && strncmp(module, name, n) == 0 && (n == length || module[n] == '.')) return true;
  }
  return false;
}

/* The weight of a linear module: e4m3 with its scales if the checkpoint has e4m3 weights. */
static void add_linear(model *m, const model_shape *s, const char *prefix, const char *name, uint64_t rows, uint64_t cols, double gain) {
  add_matrix(m, prefix, name, rows, cols, gain);
  tensor *t = &m->tensors[m->count - 1];
  if (!s->is_fp8 || is_kept(s, t->name, strlen(t->name) - strlen(".weight"))) return;
  t->form = FORM_E4M3;
  t->scale_kind = s->scale_kind;
  tensor *scales = next_tensor(m, "%s%s.weight_scale_inv", prefix, name);
  scales->form = FORM_SCALES;
  scales->rows = div_up(rows, SCALE_COLUMNS);
  scales->cols = div_up(cols, SCALE_COLUMNS);
}

static void add_norm(model *m, const char *prefix, const char *name, uint64_t cols) {
  tensor *t = next_tensor(m, "%s%s.weight", prefix, name);
  t->cols = cols;
  t->mean = 1.0;
  t->deviation = 0.1;
}

static void add_bias(model *m, const char *prefix, const char *name, uint64_t cols) {
  tensor *t = next_tensor(m, "%s%s.bias", prefix, name);
  t->cols = cols;
  t->deviation = 0.2;
}

static void add_mlp(model *m, const model_shape *s, const char *prefix, uint64_t inter, double gain) {
  const bool is_fused = s->grouped && s->grouped->is_fused_up;
  add_linear(m, s, prefix, is_fused ? "gate_up_proj" : "gate_proj", is_fused ? 2 * inter : inter, s->hidden, 1.0);
  if (!is_fused) add_linear(m, s, prefix, "up_proj", inter, s->hidden, 1.0);
  add_linear(m, s, prefix, "down_proj", s->hidden, inter, gain);
  if (!s->has_feed_bias) return;
  add_bias(m, prefix, "gate_proj", inter);
  add_bias(m, prefix, "up_proj", inter);
  add_bias(m, prefix, "down_proj", s->hidden);
}

static void add_vector(model *m, const char *prefix, const char *name, uint64_t values) {
  tensor *t = next_tensor(m, "%s%s", prefix, name);
  t->cols = values;
  t->deviation = 1.0;
  t->form = FORM_F32;
}

static void add_indexer(model *m, const model_shape *s, const char *attention) {
  char prefix[128];
  snprintf(prefix, sizeof prefix, "%sindexer.", attention);
  add_linear(m, s, prefix, "wq_b", (uint64_t)s->index_heads * INDEX_DIM, s->q_lora, 1.0);
  add_linear(m, s, prefix, "wk", INDEX_DIM, s->hidden, 1.0);
  add_vector(m, prefix, "k_norm.weight", INDEX_DIM);
  m->tensors[m->count - 1].mean = 1.0;
  m->tensors[m->count - 1].deviation = 0.1;
  add_vector(m, prefix, "k_norm.bias", INDEX_DIM);
  m->tensors[m->count - 1].deviation = 0.3;
  add_matrix(m, prefix, "weights_proj", s->index_heads, s->hidden, 1.0);
}

static void add_attention(model *m, const model_shape *s, const char *prefix) {
  uint64_t q_rows = (uint64_t)s->heads * (s->nope + s->rope);
  if (s->q_lora > 0) {
    add_linear(m, s, prefix, "q_a_proj", s->q_lora, s->hidden, 1.0);
    add_norm(m, prefix, "q_a_layernorm", s->q_lora);
    add_linear(m, s, prefix, "q_b_proj", q_rows, s->q_lora, 1.0);
  } else {
    add_linear(m, s, prefix, "q_proj", q_rows, s->hidden, 1.0);
  }
  add_linear(m, s, prefix, "kv_a_proj_with_mqa", (uint64_t)s->kv_lora + s->rope, s->hidden, 1.0);
  add_norm(m, prefix, "kv_a_layernorm", s->kv_lora);
  add_linear(m, s, prefix, "kv_b_proj", (uint64_t)s->heads * (s->nope + s->value), s->kv_lora, 1.0);
  add_linear(m, s, prefix, "o_proj", s->hidden, (uint64_t)s->heads * s->value, 1.0);
}

static void add_projection(model *m, const model_shape *s, const char *prefix, const char *name, uint64_t rows) {
  add_linear(m, s, prefix, name, rows, s->hidden, 1.0);
  if (s->has_bias) add_bias(m, prefix, name, rows);
}

static void add_grouped_attention(model *m, const model_shape *s, const char *prefix) {
  const uint64_t q_rows = (uint64_t)s->heads * s->head_dim, kv_rows = (uint64_t)s->kv_heads * s->head_dim;
  const bool is_fused = s->grouped->is_fused_qkv;
  add_projection(m, s, prefix, is_fused ? "qkv_proj" : "q_proj", is_fused ? q_rows + 2 * kv_rows : q_rows);
  if (!is_fused) add_projection(m, s, prefix, "k_proj", kv_rows);
  if (!is_fused) add_projection(m, s, prefix, "v_proj", kv_rows);
  if (s->qk_norm) add_norm(m, prefix, "q_norm", s->qk_norm == OF_ROWS ? q_rows : s->head_dim);
  if (s->qk_norm) add_norm(m, prefix, "k_norm", s->qk_norm == OF_ROWS ? kv_rows : s->head_dim);
  add_linear(m, s, prefix, "o_proj", s->hidden, q_rows, 1.0);
  if (s->has_output_bias) add_bias(m, prefix, "o_proj", s->hidden);
}

static void add_stacked(model *m, const char *prefix, const char *name, uint64_t rows, uint64_t cols, double gain, enum stack stack) {
  add_matrix(m, prefix, name, rows, cols, gain);
  m->tensors[m->count - 1].stack = stack;
}

/* gate and up of every expert, then down of every expert. */
static void add_stacked_experts(model *m, const model_shape *s, const char *prefix) {
  char expert_prefix[128];
  for (uint32_t i = 0; i < 2 * s->experts; ++i) {
    bool is_down = i >= s->experts;
    snprintf(expert_prefix, sizeof expert_prefix, "%sexperts.%" PRIu32 ".", prefix, i % s->experts);
    if (is_down) add_stacked(m, expert_prefix, "down_proj", s->hidden, s->moe_inter, s->routed_gain, STACK_DOWN);
    else add_stacked(m, expert_prefix, "gate_proj", s->moe_inter, s->hidden, 1.0, STACK_GATE_UP);
    if (!is_down) add_stacked(m, expert_prefix, "up_proj", s->moe_inter, s->hidden, 1.0, STACK_GATE_UP);
  }
}

static void add_moe(model *m, const model_shape *s, const char *prefix, bool is_stacked) {
  char expert_prefix[128];
  add_matrix(m, prefix, "gate", s->experts, s->hidden, 1.0);
  if (s->router_bias) {
    tensor *bias = next_tensor(m, "%sgate.e_score_correction_bias", prefix);
    bias->cols = s->experts;
    bias->deviation = 0.05;
    bias->form = FORM_F32;
  }
  if (is_stacked) add_stacked_experts(m, s, prefix);
  for (uint32_t e = 0; e < s->experts && !is_stacked; ++e) {
    snprintf(expert_prefix, sizeof expert_prefix, "%sexperts.%" PRIu32 ".", prefix, e);
    add_mlp(m, s, expert_prefix, s->moe_inter, s->routed_gain);
  }
  const uint64_t shared = s->shared_inter ? s->shared_inter : (uint64_t)s->moe_inter * s->shared_experts;
  if (s->shared_inter > 0) add_matrix(m, prefix, "shared_expert_gate", 1, s->hidden, 1.0);
  snprintf(expert_prefix, sizeof expert_prefix, "%sshared_expert%s.", prefix, s->shared_inter ? "" : "s");
  if (shared > 0) add_mlp(m, s, expert_prefix, shared, 1.0);
}

/* A layer's own tensors. */
static void add_layer(model *m, const model_shape *s, uint32_t layer, bool is_dense, bool is_stacked) {
  char prefix[64];
  snprintf(prefix, sizeof prefix, "model.layers.%" PRIu32 ".", layer);
  const uint32_t norms = s->grouped ? s->grouped->norms : NORM_INPUT | NORM_POST;
  for (uint32_t i = 0; i < ARRAY_LEN(NORMS); i++)
    if (norms >> i & 1) add_norm(m, prefix, NORMS[i], s->hidden);
  snprintf(prefix, sizeof prefix, "model.layers.%" PRIu32 ".self_attn.", layer);
  if (s->grouped) add_grouped_attention(m, s, prefix);
  else add_attention(m, s, prefix);
  if (s->index_heads > 0 && !s->is_shared[layer]) add_indexer(m, s, prefix);
  snprintf(prefix, sizeof prefix, "model.layers.%" PRIu32 ".mlp.", layer);
  if (is_dense) add_mlp(m, s, prefix, s->inter, 1.0);
  else add_moe(m, s, prefix, is_stacked);
}

/* A layer behind the last, which predicts the token after the next one. */
static void add_prediction(model *m, const model_shape *s, uint32_t layer, bool is_dense, bool is_stacked) {
  char prefix[64];
  snprintf(prefix, sizeof prefix, "model.layers.%" PRIu32 ".", layer);
  add_norm(m, prefix, "enorm", s->hidden);
  add_norm(m, prefix, "hnorm", s->hidden);
  add_matrix(m, prefix, "eh_proj", s->hidden, 2 * (uint64_t)s->hidden, 1.0);
  add_norm(m, prefix, "shared_head.norm", s->hidden);
  add_layer(m, s, layer, is_dense, is_stacked);
}

/* Tensors that a checkpoint may hold besides the model's. */
static void add_extras(model *m, const model_shape *s) {
  char prefix[64];
  for (uint32_t layer = 0; layer < s->layers; ++layer) {
    snprintf(prefix, sizeof prefix, "model.layers.%" PRIu32 ".self_attn.rotary_emb.", layer);
    add_vector(m, prefix, "inv_freq", s->rope / 2);
  }
  if (s->prediction_layers == 0) add_prediction(m, s, s->layers, true, false);
  add_matrix(m, "vision_tower.", "patch_embed.proj", 64, 48, 1.0);
}

static void list_tensors(model *m, const model_shape *s, bool is_stacked) {
  add_matrix(m, "model.", "embed_tokens", s->vocab, s->hidden, 1.0);
  if (s->tied) m->tensors[0].deviation = 2.0 / sqrt((double)s->hidden); /* like those of the head */
  else m->tensors[0].deviation = 4.0 / s->embed_scale; /* larger than a layer's contribution, as in a trained model: router ties are then
                                                          rare */
  for (uint32_t layer = 0; layer < s->layers; ++layer) add_layer(m, s, layer, layer < s->dense_layers || s->experts == 0, is_stacked);
  add_norm(m, "model.", "norm", s->hidden);
  if (!s->tied) add_matrix(m, "", "lm_head", s->vocab, s->hidden, 2.0);
  for (uint32_t i = 0; i < s->prediction_layers; ++i) add_prediction(m, s, s->layers + i, s->experts == 0, is_stacked);
}

/* ---- tensors of the files ---- */

/* The name of a tensor in the files. */
static void file_name(const options *o, const char *plain, char out[NAME_BYTES_MAX]) {
  bool replaces = strcmp(o->prefix, "model.language_model.") == 0, is_model = strncmp(plain, "model.", 6) == 0;
  bool is_plain = strncmp(plain, "vision_tower.", 13) == 0 || (replaces && !is_model);
  int length = snprintf(out, NAME_BYTES_MAX, "%s%s", is_plain ? "" : o->prefix, replaces && is_model ? plain + 6 : plain);
  ASSERT(length > 0 && length < (int)NAME_BYTES_MAX);
}

static void list_entries(model *m, const model_shape *s, const options *o) {
  for (uint32_t i = 0; i < m->count; i = m->entries[m->entry_count++].last) {
    const tensor *t = &m->tensors[i];
    entry *e = &m->entries[m->entry_count];
    char plain[NAME_BYTES_MAX];
    *e = (entry){.first = i, .last = i + 1, .rank = t->rows > 0 ? 2 : 1, .shape = {t->rows > 0 ? t->rows : t->cols, t->cols}};
    memcpy(plain, t->name, sizeof plain);
    while (t->stack != ALONE && e->last < m->count && m->tensors[e->last].stack == t->stack) e->last++;
    if (t->stack != ALONE) {
      e->rank = 3;
      e->shape[0] = s->experts;
      e->shape[1] = t->rows * (e->last - e->first) / s->experts;
      e->shape[2] = t->cols;
      char *end = strstr(plain, "experts.");
      ASSERT(end != NULL);
      strcpy(end, t->stack == STACK_DOWN ? "experts.down_proj" : "experts.gate_up_proj"); /* shorter than the text that it replaces */
    }
    file_name(o, plain, e->name);
  }
}

/* ---- values ---- */

static uint64_t splitmix(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

/* The sum of four 16-bit uniforms, centred: between -131070 and 131070, standard deviation 65536 / sqrt(3). */
static int32_t bell(uint64_t key, uint64_t index) {
  uint64_t bits = splitmix(key + (index + 1) * UINT64_C(0x9e3779b97f4a7c15));
  uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
  return (int32_t)sum - 2 * 65535;
}

static uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static uint16_t to_bf16(float value) { /* finite values only; nearest even */
  uint32_t bits = float_bits(value);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint64_t value_count(const tensor *t) { return (t->rows > 0 ? t->rows : 1) * t->cols; }

static uint64_t entry_bytes(const model *m, const entry *e) {
  uint64_t bytes = 0;
  for (uint32_t i = e->first; i < e->last; ++i) bytes += value_count(&m->tensors[i]) * FORMS[m->tensors[i].form].bytes;
  return bytes;
}

/* The scale of block (row, column) of an e4m3 tensor: the least for its largest value, or up to twice that. */
static float block_scale(const tensor *t, uint64_t key, uint64_t row, uint64_t column) {
  uint64_t blocks = div_up(t->cols, SCALE_COLUMNS);
  double spread = (double)(splitmix(key ^ (row * blocks + column + 1) * UINT64_C(0x9e3779b97f4a7c15)) >> 40) / (1 << 24);
  float scale = (float)(t->deviation * 2 * sqrt(3.0) / 448 * (1 + spread));
  return t->scale_kind == SCALE_POW2 ? num_scale(scale * 448, SCALE_POW2) : scale;
}

/* Number i of the tensor as stored in the file. of: the e4m3 tensor that scales belong to, and its key. */
static uint32_t value_bits(const tensor *t, uint64_t key, uint64_t i, const tensor *of, uint64_t of_key) {
  if (t->form == FORM_SCALES) return float_bits(block_scale(of, of_key, i / t->cols, i % t->cols));
  float value = (float)(t->mean + (double)bell(key, i) * (t->deviation * sqrt(3.0) / 65536.0));
  if (t->form == FORM_F32) return float_bits(value);
  if (t->form == FORM_BF16) return to_bf16(value);
  return num_to_e4m3(value / block_scale(t, key, i / t->cols / SCALE_COLUMNS, i % t->cols / SCALE_COLUMNS));
}

static uint64_t key_of(const tensor *t, uint64_t seed) { return XXH3_64bits_withSeed(t->name, strlen(t->name), seed); }

static status write_values(FILE *file, const char *path, const tensor *t, uint64_t seed) {
  static unsigned char bytes[CHUNK_VALUES * 4];
  const tensor *of = t->form == FORM_SCALES ? t - 1 : t;
  uint64_t key = key_of(t, seed), of_key = key_of(of, seed), count = value_count(t);
  for (uint64_t start = 0; start < count; start += CHUNK_VALUES) {
    uint64_t chunk = count - start < CHUNK_VALUES ? count - start : CHUNK_VALUES;
    size_t fill = 0;
    for (uint64_t i = 0; i < chunk; ++i) {
      uint32_t bits = value_bits(t, key, start + i, of, of_key);
      for (uint32_t byte = 0; byte < FORMS[t->form].bytes; ++byte) bytes[fill++] = (unsigned char)(bits >> (8 * byte));
    }
    if (fwrite(bytes, 1, fill, file) != fill) return FAIL(ERR_IO, "%s: cannot write: %s", path, strerror(errno));
  }
  return OK;
}

/* ---- files ---- */

static status join(char path[PATH_BYTES_MAX], const char *dir, const char *name) {
  int length = snprintf(path, PATH_BYTES_MAX, "%s/%s", dir, name);
  if (length < 0 || (size_t)length >= PATH_BYTES_MAX) return FAIL(ERR_LIMIT, "path too long: %s/%s", dir, name);
  return OK;
}

static status write_json(const char *dir, const char *name, const json_t *json) {
  char path[PATH_BYTES_MAX];
  TRY(join(path, dir, name));
  if (json == NULL || json_dump_file(json, path, JSON_INDENT(2)) != 0) return FAIL(ERR_IO, "%s: cannot write", path);
  return OK;
}

/* The safetensors header of entries [first, last), padded with spaces to a multiple of 8; the caller frees it. */
static char *make_header(const model *m, uint32_t first, uint32_t last, uint64_t *bytes) {
  json_t *header = json_object();
  json_object_set_new(header, "__metadata__", json_pack("{s:s}", "format", "pt"));
  uint64_t offset = 0;
  for (uint32_t i = first; i < last; ++i) {
    const entry *e = &m->entries[i];
    uint64_t end = offset + entry_bytes(m, e);
    json_t *shape = json_array();
    for (uint32_t d = 0; d < e->rank; ++d) json_array_append_new(shape, json_integer((json_int_t)e->shape[d]));
    json_object_set_new(header, e->name, json_pack("{s:s,s:o,s:[I,I]}", "dtype", FORMS[m->tensors[e->first].form].dtype, "shape",
                                                   shape, "data_offsets", (json_int_t)offset, (json_int_t)end));
    offset = end;
  }
  char *dumped = json_dumps(header, JSON_COMPACT);
  json_decref(header);
  ASSERT(dumped != NULL);
  size_t length = strlen(dumped);
  *bytes = align_up(length, 8);
  char *padded = malloc((size_t)*bytes);
  ASSERT(padded != NULL);
  memset(padded, ' ', (size_t)*bytes);
  memcpy(padded, dumped, length);
  free(dumped);
  return padded;
}

static status write_shard(const model *m, uint32_t first, uint32_t last, uint64_t seed, const char *path) {
  FILE *file = fopen(path, "wb");
  if (file == NULL) return FAIL(ERR_IO, "%s: cannot create: %s", path, strerror(errno));
  uint64_t header_bytes;
  char *header = make_header(m, first, last, &header_bytes);
  unsigned char length[8];
  for (int i = 0; i < 8; ++i) length[i] = (unsigned char)(header_bytes >> (8 * i));
  bool written = fwrite(length, 1, 8, file) == 8 && fwrite(header, 1, (size_t)header_bytes, file) == header_bytes;
  free(header);
  status s = written ? OK : FAIL(ERR_IO, "%s: cannot write: %s", path, strerror(errno));
  uint32_t end = m->entries[last - 1].last;
  for (uint32_t i = m->entries[first].first; i < end && s == OK; ++i) s = write_values(file, path, &m->tensors[i], seed);
  if (fclose(file) != 0 && s == OK) s = FAIL(ERR_IO, "%s: cannot write: %s", path, strerror(errno));
  return s;
}

typedef struct shard {
  uint32_t first, last; /* entries */
  char path[PATH_BYTES_MAX];
} shard;

/* Writes shards one, one + step, ...; never returns, as it ends its process. */
static _Noreturn void write_share(const model *m, const shard *shards, uint32_t count, uint32_t one, uint32_t step, uint64_t seed) {
  status s = OK;
  for (uint32_t i = one; i < count && s == OK; i += step) s = write_shard(m, shards[i].first, shards[i].last, seed, shards[i].path);
  if (s != OK) fprintf(stderr, "random_model: %s\n", fail_text());
  _exit(fail_exit_code(s));
}

/* One process per core, each writing some of the shards. */
static status write_shards(const model *m, const shard *shards, uint32_t count, uint64_t seed) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  uint32_t workers = min_u32(count, cores > 0 ? (uint32_t)cores : 1), started = 0;
  int failed = 0;
  for (; started < workers; started++) {
    pid_t child = fork();
    if (child == 0) write_share(m, shards, count, started, workers, seed);
    if (child < 0) break;
  }
  for (uint32_t i = 0; i < started; i++) {
    int result = 0;
    failed |= wait(&result) < 0 || result != 0;
  }
  if (started < workers || failed) return FAIL(ERR_IO, "the weights could not be written completely");
  return OK;
}

static status write_weights(const model *m, const options *o) {
  if (o->shards > m->entry_count) return FAIL(ERR_USAGE, "expected at most %" PRIu32 " shards, one tensor each", m->entry_count);
  shard *shards = calloc(o->shards, sizeof *shards);
  ASSERT(shards != NULL);
  json_t *map = json_object();
  uint64_t total = 0;
  status s = OK;
  for (uint32_t i = 0; i < o->shards && s == OK; ++i) {
    char name[64] = "model.safetensors";
    shards[i].first = (uint32_t)((uint64_t)m->entry_count * i / o->shards);
    shards[i].last = (uint32_t)((uint64_t)m->entry_count * (i + 1) / o->shards);
    if (o->shards > 1) snprintf(name, sizeof name, "model-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", i + 1, o->shards);
    s = join(shards[i].path, o->out_dir, name);
    for (uint32_t t = shards[i].first; t < shards[i].last; ++t) {
      json_object_set_new(map, m->entries[t].name, json_string(name));
      total += entry_bytes(m, &m->entries[t]);
    }
  }
  if (s == OK) s = write_shards(m, shards, o->shards, o->seed);
  json_t *index = json_pack("{s:{s:I},s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
  if (s == OK && o->shards > 1) s = write_json(o->out_dir, "model.safetensors.index.json", index);
  json_decref(index);
  free(shards);
  return s;
}

/* ---- tokenizer.json ---- */

/* The printable substitute of a byte in byte-level BPE, as UTF-8: printable Latin-1 stays, the other bytes become U+0100 upward in
 * order. */
static void byte_symbol(uint32_t byte, char symbol[3]) {
  uint32_t code = 256;
  for (uint32_t b = 0; b <= byte; ++b) {
    bool printable = (b >= 33 && b <= 126) || (b >= 161 && b != 173);
    if (b == byte && printable) code = b;
    if (b < byte && !printable) ++code;
  }
  size_t length = 0;
  if (code < 128) {
    symbol[length++] = (char)code;
  } else {
    symbol[length++] = (char)(0xc0 | code >> 6);
    symbol[length++] = (char)(0x80 | (code & 0x3f));
  }
  symbol[length] = 0;
}

/* Ids: begin, end, padding; the 256 bytes; then pairs of bytes in a fixed shuffled order, each with its merge. */
static status make_vocab(uint32_t vocab, json_t *ids, json_t *merges) {
  if (vocab < FIRST_BYTE_TOKEN + 256 || vocab > FIRST_BYTE_TOKEN + 256 + 65536)
    return FAIL(ERR_UNSUPPORTED, "--vocab-tokenizer: expected a vocabulary of 259 to 65795 tokens, found %" PRIu32, vocab);
  char left[3], right[3], pair[8];
  for (uint32_t byte = 0; byte < 256; ++byte) {
    byte_symbol(byte, left);
    json_object_set_new(ids, left, json_integer((json_int_t)(FIRST_BYTE_TOKEN + byte)));
  }
  for (uint32_t id = FIRST_BYTE_TOKEN + 256; id < vocab; ++id) {
    uint32_t place = (id - FIRST_BYTE_TOKEN - 256) * 40503u & 0xffff; /* the factor is odd, so every pair occurs once */
    byte_symbol(place >> 8, left);
    byte_symbol(place & 0xff, right);
    snprintf(pair, sizeof pair, "%s%s", left, right);
    json_object_set_new(ids, pair, json_integer((json_int_t)id));
    snprintf(pair, sizeof pair, "%s %s", left, right);
    json_array_append_new(merges, json_string(pair));
  }
  return OK;
}

static status write_tokenizer(uint32_t vocab, const char *dir) {
  static const char *const specials[FIRST_BYTE_TOKEN] = {"<begin>", "<end>", "<pad>"};
  json_t *ids = json_object(), *merges = json_array(), *added = json_array();
  for (uint32_t id = 0; id < FIRST_BYTE_TOKEN; ++id) {
    json_object_set_new(ids, specials[id], json_integer((json_int_t)id));
    json_array_append_new(added, json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", (int)id, "content", specials[id], "single_word", 0,
                                           "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
  }
  status s = make_vocab(vocab, ids, merges);
  json_t *level = json_pack("{s:s,s:b,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1);
  json_t *bpe = json_pack("{s:s,s:n,s:n,s:n,s:n,s:b,s:b,s:b,s:o,s:o}", "type", "BPE", "dropout", "unk_token",
                          "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", 0,
                          "vocab", ids, "merges", merges);
  json_t *tokenizer = json_pack("{s:s,s:n,s:n,s:o,s:n,s:O,s:O,s:o,s:o}", "version", "1.0", "truncation", "padding", "added_tokens",
                                added, "normalizer", "pre_tokenizer", level, "post_processor", level, "decoder", level, "model", bpe);
  if (s == OK) s = write_json(dir, "tokenizer.json", tokenizer);
  json_decref(tokenizer);
  json_t *settings = json_pack("{s:b,s:s,s:s,s:s}", "add_bos_token", 1, "bos_token", specials[0], "eos_token", specials[1],
                               "tokenizer_class", "PreTrainedTokenizerFast");
  if (s == OK) s = write_json(dir, "tokenizer_config.json", settings);
  json_decref(settings);
  return s;
}

/* ---- command line ---- */

static status parse_number(const char *flag, const char *text, uint64_t low, uint64_t high, uint64_t *out) {
  char *end = NULL;
  errno = 0;
  unsigned long long number = text != NULL ? strtoull(text, &end, 10) : 0;
  if (text == NULL || text[0] < '0' || text[0] > '9' || *end != 0 || errno != 0 || number < low || number > high)
    return FAIL(ERR_USAGE, "%s: expected a number between %" PRIu64 " and %" PRIu64 ", found %s", flag, low, high,
                text != NULL ? text : "nothing");
  *out = number;
  return OK;
}

static status parse_options(int argc, char **argv, options *o) {
  uint64_t shards = 1;
  *o = (options){.seed = 1, .prefix = ""};
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--seed") == 0) TRY(parse_number("--seed", argv[++i], 0, UINT64_MAX, &o->seed));
    else if (strcmp(argv[i], "--shards") == 0) TRY(parse_number("--shards", argv[++i], 1, 99999, &shards));
    else if (strcmp(argv[i], "--vocab-tokenizer") == 0) o->vocab_tokenizer = true;
    else if (strcmp(argv[i], "--stacked-experts") == 0) o->stacked_experts = true;
    else if (strcmp(argv[i], "--extras") == 0) o->extras = true;
    else if (strcmp(argv[i], "--prefix") == 0 && argv[i + 1] != NULL) o->prefix = argv[++i];
    else if (argv[i][0] == '-' || o->out_dir != NULL) return FAIL(ERR_USAGE, "unexpected argument %s", argv[i]);
    else if (o->config_path == NULL) o->config_path = argv[i];
    else o->out_dir = argv[i];
  }
  o->shards = (uint32_t)shards;
  if (o->out_dir == NULL) return FAIL(ERR_USAGE, "usage: random_model CONFIG.json OUT_DIR [--seed N] [--shards K] [--vocab-tokenizer] "
                                             "[--stacked-experts] [--prefix P] [--extras]");
  return OK;
}

static status copy_config(const char *text, size_t bytes, const char *dir) {
  char path[PATH_BYTES_MAX];
  TRY(join(path, dir, "config.json"));
  FILE *file = fopen(path, "wb");
  if (file == NULL) return FAIL(ERR_IO, "%s: cannot create: %s", path, strerror(errno));
  bool written = fwrite(text, 1, bytes, file) == bytes;
  if (fclose(file) != 0 || !written) return FAIL(ERR_IO, "%s: cannot write", path);
  return OK;
}

static status make_folder(const json_t *config, const options *o, const char *text, size_t bytes) {
  model_shape shape = {0};
  const json_t *inner = json_object_get(config, "text_config");
  TRY(read_shape(inner != NULL ? inner : config, &shape));
  if (mkdir(o->out_dir, 0777) != 0 && errno != EEXIST) return FAIL(ERR_IO, "%s: cannot create: %s", o->out_dir, strerror(errno));
  TRY(copy_config(text, bytes, o->out_dir));
  uint32_t tensors_max = (shape.layers + shape.prediction_layers) * (shape.experts * 6 + 32) + 64;
  model m = {.tensors = calloc(tensors_max, sizeof(tensor)), .entries = calloc(tensors_max, sizeof(entry)), .count_max = tensors_max};
  ASSERT(m.tensors != NULL && m.entries != NULL && tensors_max <= TENSORS_MAX);
  list_tensors(&m, &shape, o->stacked_experts);
  if (o->extras) add_extras(&m, &shape);
  list_entries(&m, &shape, o);
  status s = write_weights(&m, o);
  free(m.tensors);
  free(m.entries);
  if (s == OK && o->vocab_tokenizer) s = write_tokenizer(shape.vocab, o->out_dir);
  return s;
}

static status run(int argc, char **argv) {
  static char text[FILE_CONFIG_BYTES_MAX];
  options o;
  TRY(parse_options(argc, argv, &o));
  FILE *file = fopen(o.config_path, "rb");
  if (file == NULL) return FAIL(ERR_IO, "%s: cannot open: %s", o.config_path, strerror(errno));
  size_t bytes = fread(text, 1, sizeof text, file);
  fclose(file);
  if (bytes == sizeof text) return FAIL(ERR_LIMIT, "%s: expected less than %u bytes", o.config_path, FILE_CONFIG_BYTES_MAX);
  json_error_t error;
  json_t *config = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
  if (config == NULL) return FAIL(ERR_FORMAT, "%s: line %d: %s", o.config_path, error.line, error.text);
  status s = make_folder(config, &o, text, bytes);
  json_decref(config);
  return s;
}

int main(int argc, char **argv) {
  status s = run(argc, argv);
  if (s != OK) fprintf(stderr, "random_model: %s\n", fail_text());
  return fail_exit_code(s);
}
