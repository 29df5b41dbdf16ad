/* deploy_config.c - see deploy_config.h. libfyaml reads the document; keys and values are judged here.
 *
 * Anchors, aliases and tags are refused, so that the text says what it means. */
#include "deploy_config.h"
#include <libfyaml.h>
#include <stdio.h>
#include <string.h>
#include "abi.h"
#include "plan_format.h"

enum value_kind { KIND_COUNT, KIND_BYTES, KIND_FRACTION, KIND_LADDER, KIND_CHOICE };

typedef struct key_row {
  const char *name;
  enum value_kind kind;
  size_t offset; /* of the field in deploy_config */
  uint64_t low, high;
  const char *choices; /* KIND_CHOICE: "first second", field = position */
} key_row;

#define FIELD(name) offsetof(deploy_config, name)
static const key_row KEYS[] = {
    {"max_seqs", KIND_COUNT, FIELD(max_seqs), 1, SEQS_MAX, NULL},
    {"max_batch_tokens", KIND_COUNT, FIELD(max_batch_tokens), 1, BATCH_TOKENS_MAX, NULL},
    {"max_len", KIND_COUNT, FIELD(max_len), 2, LENGTH_MAX, NULL},
    {"max_logit_rows", KIND_COUNT, FIELD(max_logit_rows), 1, BATCH_TOKENS_MAX, NULL},
    {"kv_pages", KIND_COUNT, FIELD(kv_pages), 1, KV_PAGES_MAX, NULL},
    {"kv_memory_bytes", KIND_BYTES, FIELD(kv_memory_bytes), 1, UINT64_C(1) << 48, NULL},
    {"memory_fraction", KIND_FRACTION, FIELD(memory_ppm), 1, 1000000, NULL},
    {"device_memory_bytes", KIND_BYTES, FIELD(device_memory_bytes), 1u << 20, UINT64_C(1) << 48, NULL},
    {"ladder", KIND_LADDER, FIELD(ladder), 1, BATCH_TOKENS_MAX, NULL},
    {"parity", KIND_CHOICE, FIELD(parity), 0, 0, "strict fast-prefill"},
    {"expand_tokens", KIND_COUNT, FIELD(expand_tokens), 64, LENGTH_MAX, NULL},
    {"latent_norm_eps", KIND_CHOICE, FIELD(latent_eps_of_config), 0, 0, "hf config"},
    {"chunk_tokens", KIND_COUNT, FIELD(chunk_tokens), 64, 2048, NULL},
    {"group_chunks", KIND_COUNT, FIELD(group_chunks), 1, 64, NULL},
};

/* === Words ============================================================================================================== */

#define WORD_BYTES 64u /* longer keys and values are refused */

/* Edit distance (insertions, deletions, replacements). */
static uint32_t distance(const char *a, const char *b) {
  uint32_t row[WORD_BYTES + 1];
  uint32_t b_length = (uint32_t)strlen(b);
  ASSERT(b_length <= WORD_BYTES);
  for (uint32_t j = 0; j <= b_length; j++) row[j] = j;
  for (uint32_t i = 0; a[i]; i++) {
    uint32_t diagonal = row[0];
    row[0] = i + 1;
    for (uint32_t j = 0; j < b_length; j++) {
      uint32_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = min_u32(replaced, min_u32(row[j], row[j + 1]) + 1);
    }
  }
  return row[b_length];
}

static status find_key(const char *word, const key_row **out) {
  const key_row *nearest = &KEYS[0];
  for (size_t i = 0; i < ARRAY_LEN(KEYS); i++) {
    if (strcmp(KEYS[i].name, word) == 0) {
      *out = &KEYS[i];
      return OK;
    }
    if (distance(word, KEYS[i].name) < distance(word, nearest->name)) nearest = &KEYS[i];
  }
  return FAIL(ERR_FORMAT, "deployment: key \"%s\" is not known; hint: the nearest known key is \"%s\"", word, nearest->name);
}

/* A plain or quoted scalar of 1 to WORD_BYTES - 1 printable ASCII bytes. what: a key's name, or "a key". */
static status read_word(struct fy_node *node, const char *what, char *out) {
  size_t length = 0;
  if (!node || !fy_node_is_scalar(node) || fy_node_is_alias(node) || fy_node_get_anchor(node) || fy_node_get_tag(node, &length))
    return FAIL(ERR_FORMAT, "deployment: %s: expected one plain value, without anchor, alias or tag", what);
  const char *text = fy_node_get_scalar(node, &length);
  if (!text || length == 0 || length >= WORD_BYTES)
    return FAIL(ERR_FORMAT, "deployment: %s: expected a value of 1 to %u bytes, found %zu", what, WORD_BYTES - 1, text ? length : 0);
  for (size_t i = 0; i < length; i++)
    if (text[i] < 0x20 || text[i] > 0x7e) return FAIL(ERR_FORMAT, "deployment: %s: unprintable byte 0x%02x", what, (unsigned char)text[i]);
  memcpy(out, text, length);
  out[length] = 0;
  return OK;
}

/* === Values ============================================================================================================= */

/* Decimal digits at *text; moves *text behind them. ERR_FORMAT without digits or beyond 2^63. */
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
  return FAIL(ERR_FORMAT, "deployment: %s: \"%s\" is no unit; hint: write 20GiB, 500 MB or bytes", key->name, rest);
}

/* "0.9" in millionths, without floating point. */
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
  for (const char *choice = key->choices; *choice; index++) {
    size_t bytes = strcspn(choice, " ");
    if (bytes == length && memcmp(choice, text, bytes) == 0) {
      *out = index;
      return OK;
    }
    choice += bytes + (choice[bytes] == ' ');
  }
  return FAIL(ERR_FORMAT, "deployment: %s: expected one of: %s; found \"%s\"", key->name, key->choices, text);
}

static status read_ladder(const key_row *key, struct fy_node *node, deploy_config *config) {
  void *position = NULL;
  struct fy_node *item;
  if (!fy_node_is_sequence(node)) return FAIL(ERR_FORMAT, "deployment: %s: expected a list such as [1, 2, 4, 8]", key->name);
  while ((item = fy_node_sequence_iterate(node, &position)) != NULL) {
    char text[WORD_BYTES];
    uint64_t value = 0;
    if (config->ladder_count == LADDER_MAX) return FAIL(ERR_LIMIT, "deployment: %s: more than %u sizes", key->name, LADDER_MAX);
    TRY(read_word(item, key->name, text));
    TRY(read_count(key, text, &value));
    if (config->ladder_count > 0 && value <= config->ladder[config->ladder_count - 1])
      return FAIL(ERR_FORMAT, "deployment: %s: sizes must ascend; %llu follows %u", key->name, (unsigned long long)value,
                  config->ladder[config->ladder_count - 1]);
    config->ladder[config->ladder_count++] = (uint32_t)value;
  }
  if (config->ladder_count == 0) return FAIL(ERR_FORMAT, "deployment: %s: expected at least one size", key->name);
  return OK;
}

static status read_value(const key_row *key, struct fy_node *node, deploy_config *config) {
  char text[WORD_BYTES];
  uint64_t value = 0;
  if (key->kind == KIND_LADDER) return read_ladder(key, node, config);
  TRY(read_word(node, key->name, text));
  switch (key->kind) {
    case KIND_COUNT: TRY(read_count(key, text, &value)); break;
    case KIND_BYTES: TRY(read_bytes(key, text, &value)); break;
    case KIND_FRACTION: TRY(read_fraction(key, text, &value)); break;
    case KIND_CHOICE: TRY(read_choice(key, text, &value)); break;
    case KIND_LADDER: break;
  }
  char *field = (char *)config + key->offset;
  uint32_t narrow = (uint32_t)value;
  if (key->kind == KIND_BYTES) memcpy(field, &value, sizeof value);
  else memcpy(field, &narrow, sizeof narrow);
  return OK;
}

/* === The document ======================================================================================================= */

static status check_together(const deploy_config *c) {
  if (c->kv_pages && c->kv_memory_bytes)
    return FAIL(ERR_FORMAT, "deployment: kv_pages and kv_memory_bytes are both given; hint: keep one");
  if (c->memory_ppm && !c->device_memory_bytes)
    return FAIL(ERR_FORMAT, "deployment: memory_fraction needs device_memory_bytes; hint: give the memory of the GPU, such as 140GiB");
  if (c->expand_tokens && c->parity == PARITY_STRICT)
    return FAIL(ERR_FORMAT, "deployment: expand_tokens is of parity fast-prefill alone; hint: parity: fast-prefill");
  if (c->expand_tokens % PAGE_TOKENS)
    return FAIL(ERR_FORMAT, "deployment: expand_tokens: expected a multiple of %u, found %u", PAGE_TOKENS, c->expand_tokens);
  if (c->chunk_tokens & (c->chunk_tokens - 1))
    return FAIL(ERR_FORMAT, "deployment: chunk_tokens: expected 64, 128, 256, 512, 1024 or 2048, found %u", c->chunk_tokens);
  if (c->group_chunks & (c->group_chunks - 1))
    return FAIL(ERR_FORMAT, "deployment: group_chunks: expected 1, 2, 4, 8, 16, 32 or 64, found %u", c->group_chunks);
  return OK;
}

static status read_mapping(struct fy_node *root, deploy_config *config) {
  void *position = NULL;
  struct fy_node_pair *pair;
  bool seen[ARRAY_LEN(KEYS)] = {false};
  if (fy_node_is_scalar(root) && !fy_node_get_anchor(root)) {
    size_t length = 0;
    if (fy_node_get_scalar(root, &length) == NULL || length == 0) return OK; /* an empty document */
  }
  if (!fy_node_is_mapping(root)) return FAIL(ERR_FORMAT, "deployment: expected \"key: value\" lines");
  while ((pair = fy_node_mapping_iterate(root, &position)) != NULL) {
    char word[WORD_BYTES];
    const key_row *key = NULL;
    TRY(read_word(fy_node_pair_key(pair), "a key", word));
    TRY(find_key(word, &key));
    if (seen[key - KEYS]) return FAIL(ERR_FORMAT, "deployment: key \"%s\" is given twice", word);
    seen[key - KEYS] = true;
    TRY(read_value(key, fy_node_pair_value(pair), config));
  }
  return check_together(config);
}

static status syntax_error(struct fy_diag *diag) {
  void *position = NULL;
  struct fy_diag_error *error = fy_diag_errors_iterate(diag, &position);
  if (!error) return FAIL(ERR_FORMAT, "deployment: not YAML");
  return FAIL(ERR_FORMAT, "deployment: line %d, column %d: %.200s", error->line, error->column, error->msg ? error->msg : "not YAML");
}

/* Keeps from libfyaml what it need not read: 0.7.12 leaks memory on text that is not UTF-8 and loops on some directives. */
static status check_bytes(const char *text, size_t bytes) {
  bool is_line_start = true;
  for (size_t i = 0; i < bytes; i++) {
    unsigned char byte = (unsigned char)text[i];
    if (byte != '\n' && byte != '\r' && byte != '\t' && (byte < 0x20 || byte > 0x7e))
      return FAIL(ERR_FORMAT, "deployment: byte %zu is 0x%02x, expected ASCII text without NUL or other control bytes", i, byte);
    if (is_line_start && byte == '%') return FAIL(ERR_FORMAT, "deployment: byte %zu begins a YAML directive, which is not allowed", i);
    is_line_start = byte == '\n' || byte == '\r' || (is_line_start && (byte == ' ' || byte == '\t'));
  }
  return OK;
}

/* At most one document. */
static status read_documents(struct fy_parser *parser, struct fy_diag *diag, deploy_config *config) {
  struct fy_document *document = fy_parse_load_document(parser);
  if (!document) return fy_parser_get_stream_error(parser) ? syntax_error(diag) : OK;
  struct fy_document *second = fy_parse_load_document(parser);
  struct fy_node *root = fy_document_root(document);
  status result = OK;
  if (second) result = FAIL(ERR_FORMAT, "deployment: expected one document, found \"---\" and another");
  else if (fy_parser_get_stream_error(parser)) result = syntax_error(diag);
  else if (root) result = read_mapping(root, config);
  fy_parse_document_destroy(parser, second);
  fy_parse_document_destroy(parser, document);
  return result;
}

status deploy_config_parse(const char *text, size_t bytes, deploy_config *out) {
  if (bytes > FILE_CONFIG_BYTES_MAX)
    return FAIL(ERR_LIMIT, "deployment: %zu bytes, at most %u", bytes, FILE_CONFIG_BYTES_MAX);
  TRY(check_bytes(text, bytes));
  deploy_config config = {0};
  struct fy_diag_cfg diag_config;
  fy_diag_cfg_default(&diag_config);
  struct fy_diag *diag = fy_diag_create(&diag_config);
  ASSERT(diag != NULL);
  fy_diag_set_collect_errors(diag, true);
  /* read_mapping sees keys that come twice; libfyaml compares every key with every other: a minute for 1 MB of them. */
  const struct fy_parse_cfg parse = {.flags = FYPCF_QUIET | FYPCF_ALLOW_DUPLICATE_KEYS, .diag = diag};
  struct fy_parser *parser = fy_parser_create(&parse);
  ASSERT(parser != NULL);
  status result = OK;
  if (bytes > 0 && fy_parser_set_string(parser, text, bytes) != 0) result = FAIL(ERR_FORMAT, "deployment: not YAML");
  else if (bytes > 0) result = read_documents(parser, diag, &config);
  fy_parser_destroy(parser);
  fy_diag_destroy(diag);
  if (result == OK) *out = config;
  return result;
}
