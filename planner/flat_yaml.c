/* flat_yaml.c - see flat_yaml.h. libfyaml reads the document; what it hands out is checked node by node. */
#include "flat_yaml.h"
#include "engine/base/limits.h"
#include "engine/base/utf8.h"
#include <libfyaml.h>
#include <stdlib.h>
#include <string.h>

const flat_yaml_row *flat_yaml_find(const flat_yaml *self, const char *key) {
  for (uint32_t i = 0; i < self->count; i++)
    if (strcmp(self->rows[i].key, key) == 0) return &self->rows[i];
  return NULL;
}

void flat_yaml_close(flat_yaml *self) {
  for (uint32_t i = 0; i < self->count; i++) {
    for (uint32_t j = 0; j < self->rows[i].count; j++) free(self->rows[i].values[j]);
    free(self->rows[i].values);
  }
  free(self->rows);
  *self = (flat_yaml){0};
}

/* === Nodes ================================================================================================================== */

/* C0, DEL, and C1 as UTF-8: what a terminal might take for a command. */
static bool is_control(const char *text, size_t bytes) {
  unsigned char first = (unsigned char)text[0], second = bytes > 1 ? (unsigned char)text[1] : 0;
  return first < 0x20 || first == 0x7f || (first == 0xc2 && second >= 0x80 && second <= 0x9f);
}

static status check_node(const char *name, const char *what, struct fy_node *node) {
  size_t length = 0;
  if (!node || fy_node_is_alias(node) || fy_node_get_anchor(node) || fy_node_get_tag(node, &length))
    return FAIL(ERR_FORMAT, "%s: %s: expected one plain value, without anchor, alias or tag", name, what);
  return OK;
}

/* A plain or quoted scalar of at most most - 1 bytes; what is empty must be quoted. what: a key's name, or "a key". */
static status read_word(const char *name, const char *what, struct fy_node *node, size_t most, const char **out, size_t *bytes) {
  TRY(check_node(name, what, node));
  if (!fy_node_is_scalar(node)) return FAIL(ERR_FORMAT, "%s: %s: expected one plain value, found a mapping or a list", name, what);
  const char *text = fy_node_get_scalar(node, bytes);
  bool is_absent = !text || (*bytes == 0 && fy_node_get_style(node) == FYNS_PLAIN);
  if (is_absent || *bytes >= most)
    return FAIL(ERR_FORMAT, "%s: %s: expected a value of 1 to %zu bytes, found %zu", name, what, most - 1, is_absent ? 0 : *bytes);
  for (size_t i = 0; i < *bytes; i++)
    if (is_control(text + i, *bytes - i))
      return FAIL(ERR_FORMAT, "%s: %s: unprintable byte 0x%02x", name, what, (unsigned char)text[i]);
  if (utf8_valid_bytes((const uint8_t *)text, *bytes) != *bytes) return FAIL(ERR_FORMAT, "%s: %s: expected UTF-8", name, what);
  *out = text;
  return OK;
}

static status read_key(const char *name, struct fy_node *node, char key[FLAT_YAML_KEY_BYTES]) {
  const char *text = NULL;
  size_t bytes = 0;
  TRY(read_word(name, "a key", node, FLAT_YAML_KEY_BYTES, &text, &bytes));
  for (size_t i = 0; i < bytes; i++) {
    if ((unsigned char)text[i] > 0x7e) return FAIL(ERR_FORMAT, "%s: a key: unprintable byte 0x%02x", name, (unsigned char)text[i]);
    key[i] = text[i] == '_' ? '-' : text[i];
  }
  key[bytes] = 0;
  return OK;
}

/* Counts a value only when it is there, so that flat_yaml_close frees what was made. */
static status add_value(const char *name, flat_yaml_row *row, struct fy_node *node) {
  const char *text = NULL;
  size_t bytes = 0;
  TRY(read_word(name, row->key, node, FLAT_YAML_VALUE_BYTES, &text, &bytes));
  char *copy = malloc(bytes + 1);
  ASSERT(copy != NULL);
  memcpy(copy, text, bytes);
  copy[bytes] = 0;
  row->values[row->count++] = copy;
  return OK;
}

static status read_value(const char *name, flat_yaml_row *row, struct fy_node *node) {
  void *position = NULL;
  struct fy_node *item;
  row->is_list = node && fy_node_is_sequence(node);
  size_t room = row->is_list ? (size_t)fy_node_sequence_item_count(node) : 1;
  if (room > FLAT_YAML_LIST_MAX) return FAIL(ERR_LIMIT, "%s: %s: more than %u values", name, row->key, FLAT_YAML_LIST_MAX);
  row->values = calloc(room + 1, sizeof *row->values);
  ASSERT(row->values != NULL);
  if (!row->is_list) return add_value(name, row, node);
  TRY(check_node(name, row->key, node));
  while ((item = fy_node_sequence_iterate(node, &position)) != NULL) TRY(add_value(name, row, item));
  return OK;
}

/* === The document =========================================================================================================== */

static status read_mapping(const char *name, struct fy_node *root, flat_yaml *out) {
  void *position = NULL;
  struct fy_node_pair *pair;
  if (fy_node_is_scalar(root) && !fy_node_get_anchor(root)) {
    size_t length = 0;
    if (fy_node_get_scalar(root, &length) == NULL || length == 0) return OK; /* an empty document */
  }
  if (!fy_node_is_mapping(root)) return FAIL(ERR_FORMAT, "%s: expected \"key: value\" lines", name);
  out->rows = calloc(FLAT_YAML_KEYS_MAX, sizeof *out->rows);
  ASSERT(out->rows != NULL);
  while ((pair = fy_node_mapping_iterate(root, &position)) != NULL) {
    char key[FLAT_YAML_KEY_BYTES];
    TRY(read_key(name, fy_node_pair_key(pair), key));
    if (flat_yaml_find(out, key)) return FAIL(ERR_FORMAT, "%s: key \"%s\" is given twice", name, key);
    if (out->count == FLAT_YAML_KEYS_MAX) return FAIL(ERR_LIMIT, "%s: more than %u keys", name, FLAT_YAML_KEYS_MAX);
    flat_yaml_row *row = &out->rows[out->count++];
    memcpy(row->key, key, sizeof key);
    TRY(read_value(name, row, fy_node_pair_value(pair)));
  }
  return OK;
}

static status syntax_error(const char *name, struct fy_diag *diag) {
  void *position = NULL;
  struct fy_diag_error *error = fy_diag_errors_iterate(diag, &position);
  if (!error) return FAIL(ERR_FORMAT, "%s: not YAML", name);
  return FAIL(ERR_FORMAT, "%s: line %d, column %d: %.200s", name, error->line, error->column, error->msg ? error->msg : "not YAML");
}

/* Keeps from libfyaml what it need not read: 0.7.12 leaks memory on text that is not UTF-8, loops on some directives, and writes to where
 * nothing is behind some keys that begin with "?". */
static status check_bytes(const char *name, const char *text, size_t bytes) {
  bool is_line_start = true;
  for (size_t i = 0; i < bytes; i++) {
    unsigned char byte = (unsigned char)text[i];
    if (byte != '\n' && byte != '\r' && byte != '\t' && (byte < 0x20 || byte > 0x7e))
      return FAIL(ERR_FORMAT, "%s: byte %zu is 0x%02x, expected ASCII text without NUL or other control bytes; hint: in \"\" \\u00e9 is "
                              "a letter",
                  name, i, byte);
    if (is_line_start && byte == '%') return FAIL(ERR_FORMAT, "%s: byte %zu begins a YAML directive, which is not allowed", name, i);
    const unsigned char next = i + 1 < bytes ? (unsigned char)text[i + 1] : '\n';
    if (is_line_start && byte == '?' && (next == ' ' || next == '\t' || next == '\n' || next == '\r'))
      return FAIL(ERR_FORMAT, "%s: byte %zu begins a key with \"?\", which is not allowed; hint: write \"key: value\"", name, i);
    is_line_start = byte == '\n' || byte == '\r' || (is_line_start && (byte == ' ' || byte == '\t'));
  }
  return OK;
}

/* At most one document. */
static status read_documents(const char *name, struct fy_parser *parser, struct fy_diag *diag, flat_yaml *out) {
  struct fy_document *document = fy_parse_load_document(parser);
  if (!document) return fy_parser_get_stream_error(parser) ? syntax_error(name, diag) : OK;
  struct fy_document *second = fy_parse_load_document(parser);
  struct fy_node *root = fy_document_root(document);
  status result = OK;
  if (second) result = FAIL(ERR_FORMAT, "%s: expected one document, found \"---\" and another", name);
  else if (fy_parser_get_stream_error(parser)) result = syntax_error(name, diag);
  else if (root) result = read_mapping(name, root, out);
  fy_parse_document_destroy(parser, second);
  fy_parse_document_destroy(parser, document);
  return result;
}

status flat_yaml_read(const char *name, const char *text, size_t bytes, flat_yaml *out) {
  if (bytes > FILE_CONFIG_BYTES_MAX) return FAIL(ERR_LIMIT, "%s: %zu bytes, at most %u", name, bytes, FILE_CONFIG_BYTES_MAX);
  TRY(check_bytes(name, text, bytes));
  flat_yaml read = {0};
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
  if (bytes > 0 && fy_parser_set_string(parser, text, bytes) != 0) result = FAIL(ERR_FORMAT, "%s: not YAML", name);
  else if (bytes > 0) result = read_documents(name, parser, diag, &read);
  fy_parser_destroy(parser);
  fy_diag_destroy(diag);
  if (result == OK) *out = read;
  else flat_yaml_close(&read);
  return result;
}
