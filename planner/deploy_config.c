/* deploy_config.c - see deploy_config.h. flat_yaml.c parses the document; this file checks keys and values. */
#include "deploy_config.h"
#include "abi.h"
#include "flat_yaml.h"
#include "engine/base/spelling.h"
#include "engine/plan/format.h"
#include <stdio.h>
#include <string.h>

enum value_kind { KIND_COUNT, KIND_BYTES, KIND_FRACTION, KIND_LADDER, KIND_CHOICE, KIND_NOT_OFFERED, KIND_RENAMED };

typedef struct key_row {
  const char *name;
  enum value_kind kind;
  size_t offset; /* of the field in deploy_config */
  uint64_t low, high;
  const char *choices; /* KIND_CHOICE: "first second|its_alias", field = position; KIND_RENAMED: the present name; KIND_NOT_OFFERED: a
                          hint */
} key_row;

#define FIELD(name) offsetof(deploy_config, name)
static const key_row KEYS[] = {
    {"max-num-seqs", KIND_COUNT, FIELD(max_seqs), 1, SEQS_MAX, NULL},
    {"max-num-batched-tokens", KIND_COUNT, FIELD(max_batch_tokens), 1, BATCH_TOKENS_MAX, NULL},
    {"max-model-len", KIND_COUNT, FIELD(max_len), 2, LENGTH_MAX, NULL},
    {"max-logit-rows", KIND_COUNT, FIELD(max_logit_rows), 1, BATCH_TOKENS_MAX, NULL},
    {"kv-pages", KIND_COUNT, FIELD(kv_pages), 1, KV_PAGES_MAX, NULL},
    {"kv-memory-bytes", KIND_BYTES, FIELD(kv_memory_bytes), 1, UINT64_C(1) << 48, NULL},
    {"gpu-memory-utilization", KIND_FRACTION, FIELD(memory_ppm), 1, 1000000, NULL},
    {"device-memory-bytes", KIND_BYTES, FIELD(device_memory_bytes), 1u << 20, UINT64_C(1) << 48, NULL},
    {"ladder", KIND_LADDER, FIELD(ladder), 1, BATCH_TOKENS_MAX, NULL},
    {"parity", KIND_CHOICE, FIELD(parity), 0, 0, "strict fast-prefill"},
    {"expand-tokens", KIND_COUNT, FIELD(expand_tokens), 64, LENGTH_MAX, NULL},
    {"latent-norm-eps", KIND_CHOICE, FIELD(latent_eps_of_config), 0, 0, "hf config"},
    {"kv-cache-dtype", KIND_CHOICE, FIELD(kv_dtype), 0, 0, "auto bf16|bfloat16 fp8|fp8_e4m3 fp8_ds_mla"},
    {"kv-cache-scales", KIND_CHOICE, FIELD(kv_scales_f32), 0, 0, "ue8m0 float32"},
    {"chunk-tokens", KIND_COUNT, FIELD(chunk_tokens), 64, 2048, NULL},
    {"group-chunks", KIND_COUNT, FIELD(group_chunks), 1, 64, NULL},
    {"tensor-parallel-size", KIND_COUNT, FIELD(tensor_parallel), 1, 1024, NULL},
    {"speculative-config.method", KIND_CHOICE, FIELD(speculation), 0, 0, "off ngram mtp|deepseek_mtp auto"},
    {"speculative-config.num-speculative-tokens", KIND_COUNT, FIELD(draft_tokens), 1, DRAFT_TOKENS_MAX, NULL},
    {"speculative-config.prompt-lookup-min", KIND_COUNT, FIELD(match_min), MATCH_TOKENS_MIN, MATCH_TOKENS_MAX, NULL},
    {"speculative-config.prompt-lookup-max", KIND_COUNT, FIELD(match_max), MATCH_TOKENS_MIN, MATCH_TOKENS_MAX, NULL},
    {"divide-rows-from", KIND_COUNT, FIELD(divided_rows), 2, LENGTH_MAX, NULL},
    {"attention-by-requests-from", KIND_COUNT, FIELD(requests_context), 1, LENGTH_MAX, NULL},
    {"exchange-transport", KIND_CHOICE, FIELD(transport), 0, 0, "peer nccl"},
    {"structured-outputs", KIND_CHOICE, FIELD(structured), 0, 0, "off|false on|true"},
    {"pipeline-parallel-size", KIND_NOT_OFFERED, 0, 0, 0, "tensor-parallel-size divides a model over the GPUs of one machine"},
    {"data-parallel-size", KIND_NOT_OFFERED, 0, 0, 0, "start one server for each replica"},
    {"decode-context-parallel-size", KIND_NOT_OFFERED, 0, 0, 0, "every GPU holds the KV rows of all requests"},
    {"enable-expert-parallel", KIND_NOT_OFFERED, 0, 0, 0, "tensor-parallel-size divides the columns of every expert, so that all GPUs "
     "share the work evenly"},
    {"enable-dp-attention", KIND_NOT_OFFERED, 0, 0, 0, "tensor-parallel-size divides the heads; with "
     "attention-by-requests-from also the requests of long contexts, whose KV rows every GPU holds"},
    {"nnodes", KIND_NOT_OFFERED, 0, 0, 0, "the GPUs of a plan are in one machine"},
    {"max-seqs", KIND_RENAMED, 0, 0, 0, "max-num-seqs"},
    {"max-batch-tokens", KIND_RENAMED, 0, 0, 0, "max-num-batched-tokens"},
    {"max-len", KIND_RENAMED, 0, 0, 0, "max-model-len"},
    {"memory-fraction", KIND_RENAMED, 0, 0, 0, "gpu-memory-utilization"},
};

const char *deploy_config_key(uint32_t index) {
  return index < ARRAY_LEN(KEYS) && KEYS[index].kind < KIND_NOT_OFFERED ? KEYS[index].name : NULL;
}

const char *deploy_config_renamed(const char *key) {
  for (size_t i = 0; i < ARRAY_LEN(KEYS); i++)
    if (KEYS[i].kind == KIND_RENAMED && strcmp(KEYS[i].name, key) == 0) return KEYS[i].choices;
  return NULL;
}

static status find_key(const char *word, const key_row **out) {
  spelling_search search = spelling_begin(word, UINT32_MAX);
  const char *renamed = deploy_config_renamed(word);
  if (renamed) return FAIL(ERR_FORMAT, "deployment: key \"%s\" is renamed to \"%s\"", word, renamed);
  for (size_t i = 0; i < ARRAY_LEN(KEYS); i++) {
    if (strcmp(KEYS[i].name, word) == 0) {
      *out = &KEYS[i];
      return OK;
    }
    if (deploy_config_key((uint32_t)i)) spelling_try(&search, KEYS[i].name);
  }
  return FAIL(ERR_FORMAT, "deployment: key \"%s\" is not known; hint: the nearest known key is \"%s\"", word, search.nearest);
}

/* === Values ============================================================================================================= */

/* Decimal digits at *text; advances *text past them. ERR_FORMAT without digits or beyond 2^63. */
static status read_digits(const char *name, const char **text, uint64_t *out) {
  uint64_t value = 0;
  const char *start = *text;
  for (; **text >= '0' && **text <= '9'; ++*text) {
    if (value > (UINT64_C(1) << 63) / 10 - 1) return FAIL(ERR_FORMAT, "deployment: %s: the number is too large", name);
    value = value * 10 + (uint64_t)(**text - '0');
  }
  if (*text == start) return FAIL(ERR_FORMAT, "deployment: %s: expected a whole number, found \"%s\"", name, start);
  *out = value;
  return OK;
}

static status in_range(const key_row *key, uint64_t value) {
  if (value >= key->low && value <= key->high) return OK;
  return FAIL(ERR_FORMAT, "deployment: %s: expected %llu to %llu, found %llu", key->name, (unsigned long long)key->low,
              (unsigned long long)key->high, (unsigned long long)value);
}

static status read_count(const key_row *key, const char *text, uint64_t *out) {
  const char *rest = text;
  TRY(read_digits(key->name, &rest, out));
  if (*rest) return FAIL(ERR_FORMAT, "deployment: %s: expected a whole number, found \"%s\"", key->name, text);
  return in_range(key, *out);
}

static status read_bytes(const key_row *key, const char *text, uint64_t *out) {
  static const struct {
    const char *name;
    uint64_t bytes;
  } UNITS[] = {{"", 1},      {"B", 1},          {"KiB", 1u << 10}, {"MiB", 1u << 20},     {"GiB", 1u << 30}, {"TiB", UINT64_C(1) << 40},
               {"KB", 1000}, {"MB", 1000000u}, {"GB", 1000000000u}, {"TB", UINT64_C(1000000000000)}};
  const char *rest = text;
  uint64_t value = 0;
  TRY(read_digits(key->name, &rest, &value));
  while (*rest == ' ') rest++;
  for (size_t i = 0; i < ARRAY_LEN(UNITS); i++) {
    if (strcmp(rest, UNITS[i].name) != 0) continue;
    if (value > UINT64_MAX / UNITS[i].bytes) return FAIL(ERR_FORMAT, "deployment: %s: the number is too large", key->name);
    *out = value * UNITS[i].bytes;
    return in_range(key, *out);
  }
  return FAIL(ERR_FORMAT, "deployment: %s: \"%s\" is not a unit; hint: write 20GiB, 500 MB or bytes", key->name, rest);
}

/* "0.9" as millionths, without floating point. */
static status read_fraction(const key_row *key, const char *text, uint64_t *out) {
  const char *rest = text;
  uint64_t whole = 0, value = 0;
  TRY(read_digits(key->name, &rest, &whole));
  value = whole > 1 ? 2000000 : whole * 1000000;
  if (*rest == '.') {
    rest++;
    for (uint64_t unit = 100000; *rest >= '0' && *rest <= '9' && unit > 0; unit /= 10) value += unit * (uint64_t)(*rest++ - '0');
  }
  if (*rest) return FAIL(ERR_FORMAT, "deployment: %s: expected a fraction of up to 6 digits such as 0.9, found \"%s\"", key->name, text);
  if (value < 1 || value > 1000000)
    return FAIL(ERR_FORMAT, "deployment: %s: expected more than 0 and at most 1, found %s", key->name, text);
  *out = value;
  return OK;
}

static status read_choice(const key_row *key, const char *text, uint64_t *out) {
  uint64_t index = 0;
  size_t length = strlen(text);
  for (const char *choice = key->choices; *choice;) {
    size_t bytes = strcspn(choice, " |");
    if (bytes == length && memcmp(choice, text, bytes) == 0) {
      *out = index;
      return OK;
    }
    index += choice[bytes] == ' ';
    choice += bytes + (choice[bytes] != 0);
  }
  return FAIL(ERR_FORMAT, "deployment: %s: expected one of: %s; found \"%s\"", key->name, key->choices, text);
}

static status read_ladder(const key_row *key, const flat_yaml_row *row, deploy_config *config) {
  if (!row->is_list) return FAIL(ERR_FORMAT, "deployment: %s: expected a list such as [1, 2, 4, 8]", key->name);
  if (row->count == 0) return FAIL(ERR_FORMAT, "deployment: %s: expected at least one size", key->name);
  if (row->count > LADDER_MAX) return FAIL(ERR_LIMIT, "deployment: %s: more than %u sizes", key->name, LADDER_MAX);
  for (uint32_t i = 0; i < row->count; i++) {
    uint64_t value = 0;
    TRY(read_count(key, row->values[i], &value));
    if (i > 0 && value <= config->ladder[i - 1])
      return FAIL(ERR_FORMAT, "deployment: %s: sizes must ascend; %llu follows %u", key->name, (unsigned long long)value,
                  config->ladder[i - 1]);
    config->ladder[config->ladder_count++] = (uint32_t)value;
  }
  return OK;
}

/* What most deployments state without asking for anything is taken. */
static status read_not_offered(const key_row *key, const char *text) {
  static const char *const none[] = {"1", "0", "false", "off", "no"};
  for (size_t i = 0; i < ARRAY_LEN(none); i++)
    if (strcmp(text, none[i]) == 0) return OK;
  return FAIL(ERR_UNSUPPORTED, "deployment: %s: \"%s\" is not offered; hint: %s", key->name, text, key->choices);
}

static status read_value(const key_row *key, const flat_yaml_row *row, deploy_config *config) {
  uint64_t value = 0;
  if (key->kind == KIND_LADDER) return read_ladder(key, row, config);
  if (row->is_list) return FAIL(ERR_FORMAT, "deployment: %s: expected one plain value, found a list", key->name);
  switch (key->kind) {
    case KIND_COUNT: TRY(read_count(key, row->values[0], &value)); break;
    case KIND_BYTES: TRY(read_bytes(key, row->values[0], &value)); break;
    case KIND_FRACTION: TRY(read_fraction(key, row->values[0], &value)); break;
    case KIND_CHOICE: TRY(read_choice(key, row->values[0], &value)); break;
    case KIND_NOT_OFFERED: return read_not_offered(key, row->values[0]);
    case KIND_LADDER:
    case KIND_RENAMED: break;
  }
  char *field = (char *)config + key->offset;
  uint32_t narrow = (uint32_t)value;
  if (key->kind == KIND_BYTES) memcpy(field, &value, sizeof value);
  else memcpy(field, &narrow, sizeof narrow);
  return OK;
}

/* === The file =========================================================================================================== */

static status check_together(const deploy_config *c) {
  if (c->kv_pages && c->kv_memory_bytes)
    return FAIL(ERR_FORMAT, "deployment: kv-pages and kv-memory-bytes are both given; hint: keep one");
  if (c->memory_ppm && !c->device_memory_bytes)
    return FAIL(ERR_FORMAT, "deployment: gpu-memory-utilization needs device-memory-bytes; hint: give the memory of the GPU, such as "
                            "140GiB");
  if (c->expand_tokens % PAGE_TOKENS)
    return FAIL(ERR_FORMAT, "deployment: expand-tokens: expected a multiple of %u, found %u", PAGE_TOKENS, c->expand_tokens);
  if (c->speculation == SPECULATION_OFF && (c->draft_tokens || c->match_min || c->match_max))
    return FAIL(ERR_FORMAT, "deployment: speculative-config: a number of tokens without a method; hint: method: ngram");
  if (c->speculation == SPECULATION_MTP && (c->match_min || c->match_max))
    return FAIL(ERR_FORMAT, "deployment: speculative-config: prompt-lookup-%s belongs to method ngram, found mtp; hint: method: ngram",
                c->match_min ? "min" : "max");
  if (c->match_max && c->match_max < c->match_min)
    return FAIL(ERR_FORMAT, "deployment: speculative-config: prompt-lookup-max %u is less than prompt-lookup-min %u", c->match_max,
                c->match_min);
  if (c->chunk_tokens & (c->chunk_tokens - 1))
    return FAIL(ERR_FORMAT, "deployment: chunk-tokens: expected 64, 128, 256, 512, 1024 or 2048, found %u", c->chunk_tokens);
  if (c->group_chunks & (c->group_chunks - 1))
    return FAIL(ERR_FORMAT, "deployment: group-chunks: expected 1, 2, 4, 8, 16, 32 or 64, found %u", c->group_chunks);
  return OK;
}

status deploy_config_parse(const char *text, size_t bytes, deploy_config *out) {
  flat_yaml file = {0};
  deploy_config config = {0};
  TRY(flat_yaml_read("deployment", text, bytes, &file));
  status result = OK;
  for (uint32_t i = 0; result == OK && i < file.count; i++) {
    const key_row *key = NULL;
    result = find_key(file.rows[i].key, &key);
    if (result == OK) result = read_value(key, &file.rows[i], &config);
  }
  flat_yaml_close(&file);
  if (result == OK) result = check_together(&config);
  if (result == OK) *out = config;
  return result;
}
