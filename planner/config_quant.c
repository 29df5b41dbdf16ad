/* config_quant.c - see config_quant.h. One table has everything that depends on a layer's products: names and shapes. */
#include "config_quant.h"
#include <stdio.h>
#include <string.h>

#define NAMES_MAX 65536u      /* GLM-5 lists 900 */
#define BLOCK SCALE_COLUMNS   /* rows and columns that share a scale */
#define OBJECT "quantization_config"

typedef struct product_row {
  const char *names[3]; /* its modules in a layer; each is computed after the one before */
  uint32_t k;           /* columns; 0: not multiplied in this form */
  uint32_t rows[2];     /* of the modules that another one follows */
} product_row;

typedef struct quant_reader {
  config_reader fields; /* of the object */
  const plan_model *model;
  const plan_grouped *grouped;
  plan_quant *quant;
  const json_t *kept; /* list of names, or NULL */
  config_quant *out;
} quant_reader;

static const char *const FIELDS[] = {"quant_method", "fmt", "activation_scheme", "weight_block_size", "scale_fmt",
                                     "modules_to_not_convert", "ignored_layers", "modules_to_convert", "expert_dtype"};

/* === Names ============================================================================================================== */

/* HF reads names as regular expressions; in those of published models the dot is the only special character. */
static status check_name(const char *list, const json_t *value) {
  const char *name = json_string_value(value);
  if (!name || !*name)
    return FAIL(ERR_FORMAT, "config.json: \"" OBJECT ".%s\": expected names of modules, found %s", list, config_field_kind(value));
  if (name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")])
    return FAIL(ERR_UNSUPPORTED, "config.json: \"" OBJECT ".%s\": \"%.128s\" is a pattern; only plain names are supported; hint: list "
                                                          "the modules that it matches", list, name);
  return OK;
}

static status read_names(quant_reader *r) {
  const json_t *first = config_field_find(&r->fields, "modules_to_not_convert"), *other = config_field_find(&r->fields, "ignored_layers");
  const char *list = first ? "modules_to_not_convert" : "ignored_layers";
  if (first && other && !json_equal(first, other))
    return FAIL(ERR_FORMAT, "config.json: \"" OBJECT ".modules_to_not_convert\" and \"" OBJECT ".ignored_layers\" differ");
  r->kept = first ? first : other;
  if (!r->kept) return OK;
  if (!json_is_array(r->kept) || json_array_size(r->kept) > NAMES_MAX)
    return FAIL(ERR_FORMAT, "config.json: \"" OBJECT ".%s\": expected a list of at most %u names", list, NAMES_MAX);
  for (size_t i = 0; i < json_array_size(r->kept); i++) TRY(check_name(list, json_array_get(r->kept, i)));
  return OK;
}

/* A name excludes itself, what is inside it, and longer names that end with it. */
static bool stands_for(const char *name, const char *module) {
  size_t bytes = strlen(name), module_bytes = strlen(module);
  if (bytes > module_bytes) return false;
  if (strcmp(module + module_bytes - bytes, name) == 0) return true;
  return memcmp(module, name, bytes) == 0 && (module[bytes] == '.' || name[bytes - 1] == '.');
}

static bool is_kept(const quant_reader *r, uint32_t layer, const char *name) {
  char module[NAME_BYTES_MAX];
  snprintf(module, sizeof module, "model.layers.%u.%s", layer, name);
  for (size_t i = 0; i < json_array_size(r->kept); i++)
    if (stands_for(json_string_value(json_array_get(r->kept, i)), module)) return true;
  return false;
}

/* === Products =========================================================================================================== */

static product_row row_of(const quant_reader *r, enum config_product product) {
  const plan_model *m = r->model;
  const uint32_t of_heads = m->heads * (m->nope_dim + m->rope_dim), shared = m->shared_experts * m->moe_inter;
  switch (product) {
    case PRODUCT_QKV_A:
      return (product_row){{m->q_lora_rank ? "self_attn.q_a_proj" : "self_attn.q_proj", "self_attn.kv_a_proj_with_mqa"}, m->hidden,
                           {m->q_lora_rank ? m->q_lora_rank : of_heads}};
    case PRODUCT_Q_B: return (product_row){{"self_attn.q_b_proj"}, m->q_lora_rank, {0}};
    case PRODUCT_KV_B: return (product_row){{"self_attn.kv_b_proj"}, 0, {0}};
    case PRODUCT_O: return (product_row){{"self_attn.o_proj"}, m->heads * m->v_dim, {0}};
    case PRODUCT_INDEX_Q: return (product_row){{"self_attn.indexer.wq_b"}, m->q_lora_rank, {0}};
    case PRODUCT_INDEX_K: return (product_row){{"self_attn.indexer.wk"}, m->hidden, {0}};
    case PRODUCT_GATE_UP: return (product_row){{"mlp.gate_proj", "mlp.up_proj"}, m->hidden, {m->inter}};
    case PRODUCT_DOWN: return (product_row){{"mlp.down_proj"}, m->inter, {0}};
    case PRODUCT_SHARED_GATE_UP:
      return (product_row){{"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj"}, m->hidden, {shared}};
    case PRODUCT_SHARED_DOWN: return (product_row){{"mlp.shared_experts.down_proj"}, shared, {0}};
    case PRODUCT_QKV:
      return (product_row){{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, m->hidden,
                           {of_heads, r->grouped->kv_heads * m->v_dim}};
    case PRODUCT_EXPERTS:
    case PRODUCT_COUNT: break;
  }
  return (product_row){{"mlp.experts"}, m->hidden, {m->moe_inter}}; /* and moe_inter columns of the second product */
}

static bool has_product(const quant_reader *r, uint32_t layer, enum config_product product) {
  const bool is_dense = r->model->experts == 0 || layer < r->model->dense_layers, is_grouped = plan_is_grouped(r->grouped);
  switch (product) {
    case PRODUCT_QKV: return is_grouped;
    case PRODUCT_QKV_A:
    case PRODUCT_KV_B: return !is_grouped;
    case PRODUCT_Q_B: return r->model->q_lora_rank != 0;
    case PRODUCT_INDEX_Q:
    case PRODUCT_INDEX_K: return plan_has_indexer(r->quant, layer);
    case PRODUCT_GATE_UP:
    case PRODUCT_DOWN: return is_dense;
    case PRODUCT_SHARED_GATE_UP:
    case PRODUCT_SHARED_DOWN: return !is_dense && r->model->shared_experts != 0;
    case PRODUCT_EXPERTS: return !is_dense;
    default: return true;
  }
}

static status check_shape(const product_row *row) {
  if (row->k % BLOCK != 0)
    return FAIL(ERR_UNSUPPORTED, "config.json: %s has %u columns, not a multiple of %u, which e4m3 products need", row->names[0], row->k,
                BLOCK);
  for (size_t i = 0; i < ARRAY_LEN(row->rows); i++)
    if (row->rows[i] % BLOCK != 0)
      return FAIL(ERR_UNSUPPORTED, "config.json: %s has %u rows, not a multiple of %u: the blocks of %s would begin inside of its own",
                  row->names[i], row->rows[i], BLOCK, row->names[i + 1] ? row->names[i + 1] : "the next matrix");
  return OK;
}

static status read_product(quant_reader *r, uint32_t layer, enum config_product product) {
  const product_row row = row_of(r, product);
  if (!has_product(r, layer, product)) return OK;
  bool is_bf16 = is_kept(r, layer, row.names[0]);
  for (size_t i = 1; i < ARRAY_LEN(row.names) && row.names[i]; i++)
    if (is_bf16 != is_kept(r, layer, row.names[i]))
      return FAIL(ERR_UNSUPPORTED, "config.json: \"" OBJECT "\": in layer %u %s is converted and %s is not; they are computed together "
                                                            "and must agree", layer, row.names[is_bf16 ? i : 0],
                  row.names[is_bf16 ? 0 : i]);
  if (!is_bf16) return check_shape(&row);
  r->out->kept[layer] |= 1u << product;
  return OK;
}

/* === The object ========================================================================================================= */

static status check_fields(const quant_reader *r) {
  const char *name;
  json_t *value;
  TRY(config_field_require_text(&r->fields, "quant_method", "fp8")); /* checked first, because another method has other fields */
  if (!config_field_find(&r->fields, "quant_method")) return config_field_missing(&r->fields, "quant_method");
  json_object_foreach((json_t *)r->fields.object, name, value)
    if (!config_field_is_among(name, FIELDS, ARRAY_LEN(FIELDS)))
      return FAIL(ERR_UNSUPPORTED, "config.json: field \"" OBJECT ".%.64s\" is not known and could change the arithmetic", name);
  TRY(config_field_require_text(&r->fields, "fmt", "e4m3"));
  TRY(config_field_require_text(&r->fields, "activation_scheme", "dynamic"));
  TRY(config_field_require_text(&r->fields, "expert_dtype", "fp8"));
  const json_t *more = config_field_find(&r->fields, "modules_to_convert");
  if (more && json_array_size(more) > 0) return config_field_require_absent(&r->fields, "modules_to_convert");
  return OK;
}

static status read_scales(const quant_reader *r) {
  const char *kind = NULL;
  double block[2] = {0};
  TRY(config_field_reals(&r->fields, "weight_block_size", 1, 65536, 2, block));
  if (block[0] != BLOCK || block[1] != BLOCK)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"" OBJECT ".weight_block_size\" is [%g, %g]; only [%u, %u] is supported", block[0],
                block[1], BLOCK, BLOCK);
  TRY(config_field_text(&r->fields, "scale_fmt", "float", &kind));
  if (strcmp(kind, "float") != 0 && strcmp(kind, "ue8m0") != 0)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"" OBJECT ".scale_fmt\" is \"%.64s\"; float and ue8m0 are supported", kind);
  r->quant->act_scale = kind[0] == 'u' ? SCALE_POW2 : SCALE_F32;
  return OK;
}

status config_quant_read(const config_reader *around, const plan_model *model, const plan_grouped *grouped, plan_quant *quant,
                         config_quant *out) {
  const json_t *object = config_field_find(around, OBJECT);
  ASSERT(object != NULL);
  if (!json_is_object(object))
    return FAIL(ERR_FORMAT, "config.json: \"%s" OBJECT "\": expected an object, found %s", around->prefix, config_field_kind(object));
  quant_reader r = {{object, OBJECT ".", around->notes}, model, grouped, quant, NULL, out};
  TRY(check_fields(&r));
  TRY(read_names(&r));
  TRY(read_scales(&r));
  const uint32_t layers = min_u32(model->layers + 1, LAYERS_MAX); /* with a prediction layer, if there is one */
  for (uint32_t layer = 0; layer < layers; layer++)
    for (enum config_product product = 0; product < PRODUCT_COUNT; product++) TRY(read_product(&r, layer, product));
  quant->weight_format = WEIGHTS_E4M3;
  return OK;
}
