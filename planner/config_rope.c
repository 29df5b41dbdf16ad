/* config_rope.c - see config_rope.h. Older configs have rope_theta and rope_scaling {type}, newer ones rope_parameters {rope_type,
 * rope_theta}. Each type has its own fields; a field of another type is refused, because HF would ignore it. */
#include "config_rope.h"
#include <math.h>
#include <string.h>

#define ORIGINAL "original_max_position_embeddings"
#define LENGTH_LIMIT (1u << 30)
#define KINDS_OF_MOST (1u << ROPE_PLAIN | 1u << ROPE_YARN | 1u << ROPE_LONG)

static const char *const COMMON_FIELDS[] = {"type", "rope_type", "rope_theta", "partial_rotary_factor"};
static const char *const YARN_FIELDS[] = {"factor", ORIGINAL, "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor",
                                          "truncate"};
static const char *const LONG_FIELDS[] = {"factor", ORIGINAL, "attention_factor", "short_factor", "long_factor"};
static const char *const LLAMA3_FIELDS[] = {"factor", ORIGINAL, "low_freq_factor", "high_freq_factor"};
static const char *const Q_SCALE_FIELDS[] = {"llama_4_scaling_beta", "max_position_embeddings"}; /* HF reads only the first */

typedef struct rope_reader {
  config_reader fields;
  const config_reader *outer; /* the same, or what contains the object */
  const config_rope_rules *rules;
  uint32_t max_position;
  plan_model *model;
  rope_config *rope;
} rope_reader;

static bool is_known(const rope_reader *r, const char *name) {
  if (config_field_is_among(name, COMMON_FIELDS, ARRAY_LEN(COMMON_FIELDS))) return true;
  if (r->rope->kind == ROPE_LONG) return config_field_is_among(name, LONG_FIELDS, ARRAY_LEN(LONG_FIELDS));
  if (r->rope->kind == ROPE_LLAMA3) return config_field_is_among(name, LLAMA3_FIELDS, ARRAY_LEN(LLAMA3_FIELDS));
  if (r->rope->kind == ROPE_LINEAR) return strcmp(name, "factor") == 0;
  if (r->rope->kind != ROPE_YARN) return false;
  return config_field_is_among(name, YARN_FIELDS, ARRAY_LEN(YARN_FIELDS)) ||
         (r->rules->has_q_scale && config_field_is_among(name, Q_SCALE_FIELDS, ARRAY_LEN(Q_SCALE_FIELDS)));
}

static status check_names(const rope_reader *r, const char *type) {
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)r->fields.object, name, value)
    if (!is_known(r, name))
      return FAIL(ERR_UNSUPPORTED, "config.json: field \"%s%.64s\" is not known with type \"%s\" and could change the arithmetic",
                  r->fields.prefix, name, type);
  return OK;
}

/* HF rotates the first columns, as many as the share of all columns; the others are not rotated. */
static status check_share(const config_reader *r, const config_rope_rules *rules, const plan_model *m) {
  double share = 1;
  uint32_t columns = rules->is_share_of_head ? m->nope_dim + m->rope_dim : m->rope_dim;
  if (!config_field_find(r, "partial_rotary_factor")) return OK;
  TRY(config_field_real(r, "partial_rotary_factor", 0, 1, 1, &share));
  if ((uint32_t)(columns * share) != m->rope_dim)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%spartial_rotary_factor\" is %g of %u columns; only %u columns are supported", r->prefix,
                share, columns, m->rope_dim);
  return OK;
}

status config_rope_read_share(const config_reader *fields, double fallback, double *share) {
  static const char *const OBJECTS[] = {"rope_parameters", "rope_scaling"};
  for (size_t i = 0; i < ARRAY_LEN(OBJECTS); i++) {
    const config_reader inner = {config_field_find(fields, OBJECTS[i]), "", fields->notes};
    if (json_is_object(inner.object) && config_field_find(&inner, "partial_rotary_factor"))
      return config_field_real(&inner, "partial_rotary_factor", 0, 1, fallback, share);
  }
  return config_field_real(fields, "partial_rotary_factor", 0, 1, fallback, share);
}

static status read_q_scale(const rope_reader *r) {
  double beta = 0;
  TRY(config_field_real(&r->fields, "llama_4_scaling_beta", 0, 100, (double)NAN, &beta));
  if (config_field_exists(&r->fields, "max_position_embeddings"))
    config_field_note(r->fields.notes->ignored, "%smax_position_embeddings", r->fields.prefix);
  if (r->rope->original_length > LENGTH_MAX)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%s" ORIGINAL "\" is %g; for the scale of the query at most %u is supported",
                r->fields.prefix, r->rope->original_length, LENGTH_MAX);
  r->model->q_scale_beta = (float)beta;
  r->model->q_scale_length = beta > 0 ? (float)r->rope->original_length : 0;
  return OK;
}

/* The outer field goes before the one of the object in HF; here they must agree. */
static status read_length(const rope_reader *r, uint32_t low) {
  uint32_t outer = 0, length = 0;
  if (r->rules->outer_length > 0)
    TRY(config_field_count(r->outer, ORIGINAL, low, LENGTH_LIMIT, 1, r->rules->outer_length, &outer));
  if (outer == 0 || config_field_find(&r->fields, ORIGINAL))
    TRY(config_field_count(&r->fields, ORIGINAL, low, LENGTH_LIMIT, 1, -1, &length));
  if (outer != 0 && length != 0 && outer != length)
    return FAIL(ERR_FORMAT, "config.json: \"%s" ORIGINAL "\" is %u, but \"%s" ORIGINAL "\" is %u", r->fields.prefix, length,
                r->outer->prefix, outer);
  r->rope->original_length = outer ? outer : length;
  return OK;
}

static status read_yarn(const rope_reader *r) {
  rope_config *rope = r->rope;
  bool truncate = true;
  TRY(read_length(r, 1));
  TRY(config_field_real(&r->fields, "factor", 1, 1e6, (double)NAN, &rope->factor));
  TRY(config_field_real(&r->fields, "beta_fast", 1e-3, 1e6, 32, &rope->beta_fast));
  TRY(config_field_real(&r->fields, "beta_slow", 1e-3, 1e6, 1, &rope->beta_slow));
  if (rope->beta_fast < rope->beta_slow)
    return FAIL(ERR_FORMAT, "config.json: \"%sbeta_fast\" is less than \"beta_slow\"", r->fields.prefix);
  TRY(config_field_real(&r->fields, "mscale", 0, 100, 0, &rope->mscale));
  TRY(config_field_real(&r->fields, "mscale_all_dim", 0, 100, 0, &rope->mscale_all_dim));
  TRY(config_field_real(&r->fields, "attention_factor", 1e-3, 100, 0, &rope->attention_factor));
  TRY(config_field_flag(&r->fields, "truncate", true, &truncate));
  rope->truncate = truncate;
  return r->rules->has_q_scale ? read_q_scale(r) : OK;
}

/* HF 5.17 needs a "factor" to load such a model at all; MiniCPM3's own file has none, and means the ratio of the two lengths. */
static status read_long(const rope_reader *r) {
  rope_config *rope = r->rope;
  uint32_t pairs = r->model->rope_dim / 2;
  TRY(read_length(r, 2));
  TRY(config_field_real(&r->fields, "factor", 1, 1e6, (double)r->max_position / rope->original_length, &rope->factor));
  TRY(config_field_real(&r->fields, "attention_factor", 1e-3, 100, 0, &rope->attention_factor));
  TRY(config_field_reals(&r->fields, "short_factor", 1e-3, 1e6, pairs, rope->short_factor));
  return config_field_reals(&r->fields, "long_factor", 1e-3, 1e6, pairs, rope->long_factor);
}

static status read_llama3(const rope_reader *r) {
  rope_config *rope = r->rope;
  TRY(read_length(r, 1));
  TRY(config_field_real(&r->fields, "factor", 1, 1e6, (double)NAN, &rope->factor));
  TRY(config_field_real(&r->fields, "low_freq_factor", 1e-3, 1e6, (double)NAN, &rope->low_freq_factor));
  TRY(config_field_real(&r->fields, "high_freq_factor", 1e-3, 1e6, (double)NAN, &rope->high_freq_factor));
  if (rope->high_freq_factor > rope->low_freq_factor) return OK;
  return FAIL(ERR_FORMAT, "config.json: \"%shigh_freq_factor\" is not more than \"low_freq_factor\"", r->fields.prefix);
}

/* The name of a kind, and of LongRoPE its older one. */
static status find_kind(const rope_reader *r, const char *type) {
  static const char *const NAMES[ROPE_KINDS] = {"default", "yarn", "longrope", "llama3", "linear"};
  const uint32_t kinds = r->rules->kinds ? r->rules->kinds : KINDS_OF_MOST;
  char known[64] = "";
  if (strcmp(type, "su") == 0) type = NAMES[ROPE_LONG];
  for (uint32_t i = 0; i < ROPE_KINDS; i++) {
    if ((kinds >> i & 1) == 0) continue;
    snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", known[0] ? ", " : "", NAMES[i]);
    if (strcmp(type, NAMES[i]) != 0) continue;
    r->rope->kind = i;
    return OK;
  }
  return FAIL(ERR_UNSUPPORTED, "config.json: \"%stype\" is \"%.64s\"; supported: %s", r->fields.prefix, type, known);
}

static status read_kind(const rope_reader *r, const char **type) {
  const char *other = NULL, *prefix = r->fields.prefix;
  TRY(config_field_text(&r->fields, "rope_type", "", type));
  TRY(config_field_text(&r->fields, "type", *type, &other));
  if ((*type)[0] == 0) *type = other;
  if (strcmp(*type, other) != 0) return FAIL(ERR_FORMAT, "config.json: \"%stype\" and \"%srope_type\" differ", prefix, prefix);
  if ((*type)[0] == 0) *type = "default";
  return find_kind(r, *type);
}

static status read_object(rope_reader *r, const char *name) {
  const char *type = NULL;
  const json_t *object = config_field_find(&r->fields, name);
  char prefix[64];
  if (!object) return OK;
  if (!json_is_object(object))
    return FAIL(ERR_FORMAT, "config.json: \"%s%s\": expected an object, found %s", r->fields.prefix, name, config_field_kind(object));
  snprintf(prefix, sizeof prefix, "%s%s.", r->fields.prefix, name);
  rope_reader inner = *r;
  inner.fields = (config_reader){object, prefix, r->fields.notes};
  TRY(read_kind(&inner, &type));
  TRY(check_names(&inner, type));
  TRY(check_share(&inner.fields, r->rules, r->model));
  if (config_field_find(&inner.fields, "rope_theta")) {
    double theta = 0;
    TRY(config_field_real(&inner.fields, "rope_theta", 1.5, 1e12, 0, &theta));
    if (r->rope->theta != 0 && r->rope->theta != theta)
      return FAIL(ERR_FORMAT, "config.json: \"%srope_theta\" is %g, but \"%srope_theta\" is %g", r->fields.prefix, r->rope->theta, prefix,
                  theta);
    r->rope->theta = theta;
  }
  switch (r->rope->kind) {
    case ROPE_YARN: return read_yarn(&inner);
    case ROPE_LONG: return read_long(&inner);
    case ROPE_LLAMA3: return read_llama3(&inner);
    case ROPE_LINEAR: return config_field_real(&inner.fields, "factor", 1, 1e6, (double)NAN, &r->rope->factor);
    default: return OK;
  }
}

static status read_pairs(const rope_reader *r) {
  bool are_neighbours = r->rules->pairs != CONFIG_ROPE_HALVES;
  if (r->rules->pairs == CONFIG_ROPE_BY_FIELD) TRY(config_field_flag(&r->fields, "rope_interleave", true, &are_neighbours));
  else TRY(config_field_require_flag(&r->fields, "rope_interleave", are_neighbours));
  r->model->rope_half_split = !are_neighbours;
  return OK;
}

status config_rope_read(const config_reader *fields, const config_rope_rules *rules, uint32_t max_position, plan_model *model,
                        rope_config *out) {
  rope_config rope = {0};
  rope_reader r = {*fields, fields, rules, max_position, model, &rope};
  bool has_scaling = config_field_find(fields, "rope_scaling"), has_parameters = config_field_find(fields, "rope_parameters");
  if (has_scaling && has_parameters)
    return FAIL(ERR_FORMAT, "config.json: both \"rope_scaling\" and \"rope_parameters\" are set; hint: keep one");
  if (rules->has_q_scale && !has_scaling && !has_parameters) return config_field_missing(fields, "rope_parameters");
  TRY(read_pairs(&r));
  TRY(check_share(fields, rules, model));
  if (config_field_find(fields, "rope_theta")) TRY(config_field_real(fields, "rope_theta", 1.5, 1e12, 0, &rope.theta));
  TRY(read_object(&r, "rope_scaling"));
  TRY(read_object(&r, "rope_parameters"));
  if (rope.theta == 0) {
    rope.theta = rules->theta > 0 ? rules->theta : 10000;
    config_field_note(fields->notes->assumed, "rope_theta = %.0f", rope.theta);
  }
  model->rope_attention_factor = rope_attention_factor(&rope);
  model->softmax_scale_log2 = rope_scale_log2(rules->is_scale_plain ? NULL : &rope, model->nope_dim + model->rope_dim);
  *out = rope;
  return OK;
}
