/* config_rope.c - see config_rope.h. Older configs have rope_theta and rope_scaling {type}, newer ones rope_parameters {rope_type,
 * rope_theta}. Each type has its own fields; a field of another type is refused, because HF would ignore it. */
#include "config_rope.h"
#include <math.h>
#include <string.h>

#define ORIGINAL "original_max_position_embeddings"
#define LENGTH_LIMIT (1u << 30)

static const char *const COMMON_FIELDS[] = {"type", "rope_type", "rope_theta", "partial_rotary_factor"};
static const char *const YARN_FIELDS[] = {"factor", ORIGINAL, "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor",
                                          "truncate"};
static const char *const LONG_FIELDS[] = {"factor", ORIGINAL, "attention_factor", "short_factor", "long_factor"};
static const char *const Q_SCALE_FIELDS[] = {"llama_4_scaling_beta", "max_position_embeddings"}; /* HF reads only the first */

typedef struct rope_reader {
  config_reader fields;
  const config_rope_rules *rules;
  uint32_t max_position;
  plan_model *model;
  rope_config *rope;
} rope_reader;

static bool is_known(const rope_reader *r, const char *name) {
  if (config_field_is_among(name, COMMON_FIELDS, ARRAY_LEN(COMMON_FIELDS))) return true;
  if (r->rope->kind == ROPE_LONG) return config_field_is_among(name, LONG_FIELDS, ARRAY_LEN(LONG_FIELDS));
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
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%spartial_rotary_factor\" is %g of %u columns; only \"qk_rope_head_dim\" = %u columns are "
                "supported", r->prefix, share, columns, m->rope_dim);
  return OK;
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

static status read_yarn(const rope_reader *r) {
  rope_config *rope = r->rope;
  bool truncate = true;
  uint32_t length = 0;
  TRY(config_field_count(&r->fields, ORIGINAL, 1, LENGTH_LIMIT, 1, -1, &length));
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
  rope->original_length = length;
  return r->rules->has_q_scale ? read_q_scale(r) : OK;
}

/* HF 5.17 needs a "factor" to load such a model at all; MiniCPM3's own file has none, and means the ratio of the two lengths. */
static status read_long(const rope_reader *r) {
  rope_config *rope = r->rope;
  uint32_t length = 0, pairs = r->model->rope_dim / 2;
  TRY(config_field_count(&r->fields, ORIGINAL, 2, LENGTH_LIMIT, 1, -1, &length));
  TRY(config_field_real(&r->fields, "factor", 1, 1e6, (double)r->max_position / length, &rope->factor));
  TRY(config_field_real(&r->fields, "attention_factor", 1e-3, 100, 0, &rope->attention_factor));
  TRY(config_field_reals(&r->fields, "short_factor", 1e-3, 1e6, pairs, rope->short_factor));
  TRY(config_field_reals(&r->fields, "long_factor", 1e-3, 1e6, pairs, rope->long_factor));
  rope->original_length = length;
  return OK;
}

static status read_kind(const rope_reader *r, const char **type) {
  const char *other = NULL, *prefix = r->fields.prefix;
  TRY(config_field_text(&r->fields, "rope_type", "", type));
  TRY(config_field_text(&r->fields, "type", *type, &other));
  if ((*type)[0] == 0) *type = other;
  if (strcmp(*type, other) != 0) return FAIL(ERR_FORMAT, "config.json: \"%stype\" and \"%srope_type\" differ", prefix, prefix);
  if ((*type)[0] == 0) *type = "default";
  if (strcmp(*type, "default") == 0) r->rope->kind = ROPE_PLAIN;
  else if (strcmp(*type, "yarn") == 0) r->rope->kind = ROPE_YARN;
  else if (strcmp(*type, "longrope") == 0 || strcmp(*type, "su") == 0) r->rope->kind = ROPE_LONG;
  else
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%stype\" is \"%.64s\"; default, yarn and longrope are supported", prefix, *type);
  return OK;
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
  if (r->rope->kind == ROPE_YARN) return read_yarn(&inner);
  return r->rope->kind == ROPE_LONG ? read_long(&inner) : OK;
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
  rope_reader r = {*fields, rules, max_position, model, &rope};
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
    rope.theta = 10000;
    config_field_note(fields->notes->assumed, "rope_theta = 10000");
  }
  model->rope_attention_factor = rope_attention_factor(&rope);
  model->softmax_scale_log2 = rope_scale_log2(&rope, model->nope_dim + model->rope_dim);
  *out = rope;
  return OK;
}
