/* config_index.c - see config_index.h. GLM-5 states in three ways which layers share: HF prefers indexer_types to index_topk_pattern to
 * index_topk_freq with index_skip_topk_offset, while vLLM and SGLang do not read the first. Those that are present must agree. */
#include "config_index.h"
#include <string.h>

#define OFFSET_DEFAULT 2

static const char *const FIELDS[] = {"index_n_heads", "index_head_dim", "index_topk", "indexer_rope_interleave", "layer_types"};
static const char *const FIELDS_OF_SHARING[] = {"indexer_types", "index_topk_pattern", "index_topk_freq", "index_skip_topk_offset"};

bool config_index_knows(const config_index_rules *rules, const char *field) {
  if (rules->heads == 0) return false;
  if (config_field_is_among(field, FIELDS, ARRAY_LEN(FIELDS))) return true;
  return rules->may_share && config_field_is_among(field, FIELDS_OF_SHARING, ARRAY_LEN(FIELDS_OF_SHARING));
}

/* === Sharing ============================================================================================================ */

typedef struct sharing { /* which layers share, according to one field */
  uint64_t bits[2];
  bool is_given;
} sharing;

static void set_shared(sharing *s, uint32_t layer) { s->bits[layer / 64] |= UINT64_C(1) << layer % 64; }

/* One layer's word of a list, or letter of a string. */
static status read_layer(const char *name, const char *word, size_t bytes, uint32_t layer, sharing *out) {
  bool is_full = (bytes == 4 && memcmp(word, "full", 4) == 0) || (bytes == 1 && *word == 'F');
  bool is_shared = (bytes == 6 && memcmp(word, "shared", 6) == 0) || (bytes == 1 && *word == 'S');
  if (is_shared) set_shared(out, layer);
  if (is_full || is_shared) return OK;
  return FAIL(ERR_UNSUPPORTED, "config.json: \"%s\" is \"%.*s\" at layer %u; full and shared are supported", name,
              (int)(bytes < 32 ? bytes : 32), word, layer);
}

/* A list of words, or a string of letters; entries after the last layer belong to the multi-token prediction layers. */
static status read_list(const config_reader *r, const char *name, const plan_model *m, sharing *out) {
  const json_t *list = config_field_find(r, name);
  const char *letters = json_string_value(list);
  if (!list) return OK;
  size_t count = letters ? strlen(letters) : json_array_size(list);
  if ((!letters && !json_is_array(list)) || count < m->layers)
    return FAIL(ERR_FORMAT, "config.json: \"%s\": expected a list of \"num_hidden_layers\" = %u kinds", name, m->layers);
  for (uint32_t i = 0; i < m->layers; i++) {
    const char *word = letters ? letters + i : json_string_value(json_array_get(list, i));
    if (!word) return FAIL(ERR_FORMAT, "config.json: \"%s\": expected words, found %s", name, config_field_kind(json_array_get(list, i)));
    TRY(read_layer(name, word, letters ? 1 : strlen(word), i, out));
  }
  out->is_given = true;
  return OK;
}

static status read_schedule(const config_reader *r, const plan_model *m, sharing *out) {
  uint32_t every = 1, offset = OFFSET_DEFAULT;
  if (!config_field_find(r, "index_topk_freq")) return OK;
  TRY(config_field_count(r, "index_topk_freq", 1, LAYERS_MAX, 1, -1, &every));
  if (config_field_find(r, "index_skip_topk_offset"))
    TRY(config_field_count(r, "index_skip_topk_offset", 0, LAYERS_MAX, 1, -1, &offset));
  else if (every > 1) config_field_note(r->notes->assumed, "index_skip_topk_offset = %d", OFFSET_DEFAULT);
  for (uint32_t i = 0; i < m->layers; i++)
    if (i + 1 > offset && (i + 1 - offset) % every != 0) set_shared(out, i);
  out->is_given = true;
  return OK;
}

static status read_sharing(const config_reader *r, const plan_model *m, plan_quant *quant) {
  static const char *const NAMES[] = {"indexer_types", "index_topk_pattern", "index_topk_freq"};
  sharing found[3] = {0};
  uint32_t first = 3;
  TRY(read_list(r, NAMES[0], m, &found[0]));
  TRY(read_list(r, NAMES[1], m, &found[1]));
  TRY(read_schedule(r, m, &found[2]));
  for (uint32_t i = 0; i < 3; i++) {
    if (!found[i].is_given) continue;
    if (first == 3) first = i;
    if (memcmp(found[i].bits, found[first].bits, sizeof found[i].bits) != 0)
      return FAIL(ERR_UNSUPPORTED, "config.json: \"%s\" and \"%s\" name different layers that share", NAMES[first], NAMES[i]);
  }
  if (first == 3) return OK; /* every layer has an indexer */
  memcpy(quant->index_shared, found[first].bits, sizeof quant->index_shared);
  if (quant->index_shared[0] & 1)
    return FAIL(ERR_FORMAT, "config.json: \"%s\": the first layer has nothing to share", NAMES[first]);
  return OK;
}

/* === Other fields ======================================================================================================= */

/* HF lists one kind of attention for all layers. */
static status check_layer_types(const config_reader *r) {
  static const char *const SPARSE[] = {"indexed_attention", "deepseek_sparse_attention"};
  const json_t *types = config_field_find(r, "layer_types");
  if (types && !json_is_array(types)) return FAIL(ERR_FORMAT, "config.json: \"layer_types\": expected a list");
  for (size_t i = 0; i < json_array_size(types); i++) {
    const char *type = json_string_value(json_array_get(types, i));
    if (!type || !config_field_is_among(type, SPARSE, ARRAY_LEN(SPARSE)))
      return FAIL(ERR_UNSUPPORTED, "config.json: \"layer_types\": \"%.64s\" at layer %zu; only %s is supported", type ? type : "?", i,
                  SPARSE[0]);
  }
  return OK;
}

status config_index_read(const config_reader *r, const config_index_rules *rules, const plan_model *m, plan_quant *quant) {
  uint32_t columns = 0;
  bool are_neighbours = !rules->are_halves;
  if (rules->heads == 0) return OK;
  if (m->q_lora_rank == 0)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"q_lora_rank\" is null, but the indexer's queries need it");
  TRY(config_field_count(r, "index_n_heads", 1, HEADS_MAX, 1, rules->heads, &quant->index_heads));
  if (quant->index_heads != 16 && quant->index_heads != 32 && quant->index_heads != 64)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"index_n_heads\" is %u; 16, 32 and 64 are supported", quant->index_heads);
  TRY(config_field_count(r, "index_head_dim", INDEX_DIM, INDEX_DIM, 1, INDEX_DIM, &columns));
  TRY(config_field_count(r, "index_topk", PAGE_TOKENS, INDEX_TOPK_MAX, PAGE_TOKENS, INDEX_TOPK_MAX, &quant->index_topk));
  TRY(config_field_flag(r, "indexer_rope_interleave", are_neighbours, &are_neighbours));
  if (are_neighbours == rules->are_halves)
    config_field_note(r->notes->chosen, "indexer_rope_interleave %s rotates pairs of %s in the indexer; HF's class of this model_type "
                      "always rotates pairs of %s", are_neighbours ? "true" : "false", are_neighbours ? "neighbours" : "halves",
                      rules->are_halves ? "halves" : "neighbours");
  TRY(check_layer_types(r));
  quant->index_half_split = !are_neighbours;
  quant->index_scale = SCALE_POW2; /* vLLM, SGLang and DeepSeek's own program accept no other, whatever the weights' scales are */
  return rules->may_share ? read_sharing(r, m, quant) : OK;
}
