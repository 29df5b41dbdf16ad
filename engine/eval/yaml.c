/* eval/yaml.c - see eval/yaml.h. libfyaml reads the document; what it need not see is kept from it. */
#include "eval/yaml.h"
#include "base/utf8.h"
#include <libfyaml.h>
#include <string.h>

static status convert(struct fy_node *node, uint32_t depth, json_t **out);

/* === Scalars ================================================================================================================ */

static const char *digits(const char *at) {
  while (*at >= '0' && *at <= '9') at++;
  return at;
}

/* A number as JSON spells it. */
static bool is_number(const char *text) {
  const char *at = text + (*text == '-'), *end = digits(at);
  if (end == at || (*at == '0' && end > at + 1)) return false;
  if (*end == '.') {
    at = ++end;
    end = digits(at);
    if (end == at) return false;
  }
  if (*end == 'e' || *end == 'E') {
    at = end + 1;
    if (*at == '+' || *at == '-') at++;
    end = digits(at);
    if (end == at) return false;
  }
  return *end == 0;
}

static status convert_scalar(struct fy_node *node, json_t **out) {
  size_t length = 0;
  const char *text = fy_node_get_scalar(node, &length);
  bool is_plain = fy_node_get_style(node) == FYNS_PLAIN;
  char word[64] = "";
  if (!text) length = 0;
  if (is_plain && length < sizeof word && length > 0) memcpy(word, text, length);
  if (is_plain && (length == 0 || strcmp(word, "null") == 0 || strcmp(word, "~") == 0)) *out = json_null();
  else if (is_plain && strcmp(word, "true") == 0) *out = json_true();
  else if (is_plain && strcmp(word, "false") == 0) *out = json_false();
  else if (is_number(word)) {
    json_error_t error;
    if (!(*out = json_loads(word, JSON_DECODE_ANY, &error))) return FAIL(ERR_FORMAT, "%s: %s", word, error.text);
  } else if (!(*out = json_stringn(text ? text : "", length))) return FAIL(ERR_FORMAT, "a value is not UTF-8");
  return OK;
}

/* === Nodes ================================================================================================================== */

static status convert_key(struct fy_node *node, const json_t *object, const char **key, size_t *bytes) {
  size_t length = 0;
  if (!node || !fy_node_is_scalar(node) || fy_node_is_alias(node) || fy_node_get_anchor(node) || fy_node_get_tag(node, &length))
    return FAIL(ERR_FORMAT, "expected plain keys, without anchor, alias or tag");
  *key = fy_node_get_scalar(node, bytes);
  if (!*key || *bytes == 0 || *bytes > 256) return FAIL(ERR_FORMAT, "expected keys of 1 to 256 bytes");
  for (size_t i = 0; i < *bytes; i++)
    if ((unsigned char)(*key)[i] < 0x20 || (*key)[i] == 0x7f) return FAIL(ERR_FORMAT, "expected keys without control characters");
  if (json_object_getn(object, *key, *bytes)) return FAIL(ERR_FORMAT, "key \"%.*s\" is given twice", (int)*bytes, *key);
  return OK;
}

static status convert_mapping(struct fy_node *node, uint32_t depth, json_t *object) {
  void *position = NULL;
  struct fy_node_pair *pair;
  while ((pair = fy_node_mapping_iterate(node, &position)) != NULL) {
    const char *key = NULL;
    size_t bytes = 0;
    json_t *value = NULL;
    TRY(convert_key(fy_node_pair_key(pair), object, &key, &bytes));
    TRY(convert(fy_node_pair_value(pair), depth + 1, &value));
    if (json_object_setn_new(object, key, bytes, value) != 0) return FAIL(ERR_FORMAT, "a key is not UTF-8");
  }
  return OK;
}

static status convert_sequence(struct fy_node *node, uint32_t depth, json_t *array) {
  void *position = NULL;
  struct fy_node *item;
  while ((item = fy_node_sequence_iterate(node, &position)) != NULL) {
    json_t *value = NULL;
    TRY(convert(item, depth + 1, &value));
    if (json_array_append_new(array, value) != 0) return FAIL(ERR_LIMIT, "no memory");
  }
  return OK;
}

static status convert(struct fy_node *node, uint32_t depth, json_t **out) {
  size_t length = 0;
  if (depth > EVAL_YAML_DEPTH_MAX) return FAIL(ERR_LIMIT, "more than %u levels", EVAL_YAML_DEPTH_MAX);
  if (!node) {
    *out = json_null();
    return OK;
  }
  if (fy_node_is_alias(node) || fy_node_get_anchor(node) || fy_node_get_tag(node, &length))
    return FAIL(ERR_FORMAT, "anchors, aliases and tags are not allowed");
  if (fy_node_is_scalar(node)) return convert_scalar(node, out);
  json_t *made = fy_node_is_mapping(node) ? json_object() : json_array();
  if (!made) return FAIL(ERR_LIMIT, "no memory");
  status result = fy_node_is_mapping(node) ? convert_mapping(node, depth, made) : convert_sequence(node, depth, made);
  if (result == OK) *out = made;
  else json_decref(made);
  return result;
}

/* === The document =========================================================================================================== */

static status syntax_error(struct fy_diag *diag) {
  void *position = NULL;
  struct fy_diag_error *error = fy_diag_errors_iterate(diag, &position);
  char text[201] = "not YAML";
  if (!error) return FAIL(ERR_FORMAT, "not YAML");
  if (error->msg) strncpy(text, error->msg, sizeof text - 1);
  for (char *c = text; *c; c++) *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
  return FAIL(ERR_FORMAT, "line %d, column %d: %s", error->line, error->column, text);
}

/* libfyaml 0.7.12 leaks memory on text that is not UTF-8, loops on some directives, and writes to where nothing is behind some keys that
 * begin with "?"; its own depth is bounded by brackets and indents, and so here by lines alone. */
static status check_bytes(const char *text, size_t bytes) {
  bool is_line_start = true;
  if (bytes > EVAL_YAML_BYTES_MAX) return FAIL(ERR_LIMIT, "%zu bytes, at most %u", bytes, EVAL_YAML_BYTES_MAX);
  size_t valid = utf8_valid_bytes((const uint8_t *)text, bytes);
  if (valid != bytes) return FAIL(ERR_FORMAT, "byte %zu is not UTF-8", valid);
  for (size_t i = 0; i < bytes; i++) {
    unsigned char byte = (unsigned char)text[i];
    if ((byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7f)
      return FAIL(ERR_FORMAT, "byte %zu is 0x%02x, expected text without control bytes", i, byte);
    if (is_line_start && byte == '%') return FAIL(ERR_FORMAT, "byte %zu begins a YAML directive, which is not allowed", i);
    const unsigned char next = i + 1 < bytes ? (unsigned char)text[i + 1] : '\n';
    if (is_line_start && byte == '?' && (next == ' ' || next == '\t' || next == '\n' || next == '\r'))
      return FAIL(ERR_FORMAT, "byte %zu begins a line with \"? \", which is not allowed; hint: write text with such lines in \"\"", i);
    is_line_start = byte == '\n' || byte == '\r' || (is_line_start && (byte == ' ' || byte == '\t'));
  }
  return OK;
}

static status read_documents(struct fy_parser *parser, struct fy_diag *diag, json_t **out) {
  struct fy_document *document = fy_parse_load_document(parser);
  if (!document) return fy_parser_get_stream_error(parser) ? syntax_error(diag) : FAIL(ERR_FORMAT, "the file is empty");
  struct fy_document *second = fy_parse_load_document(parser);
  status result = OK;
  if (second) result = FAIL(ERR_FORMAT, "expected one document, found \"---\" and another");
  else if (fy_parser_get_stream_error(parser)) result = syntax_error(diag);
  else result = convert(fy_document_root(document), 0, out);
  fy_parse_document_destroy(parser, second);
  fy_parse_document_destroy(parser, document);
  return result;
}

status eval_yaml_parse(const char *text, size_t bytes, json_t **out) {
  TRY(check_bytes(text, bytes));
  if (bytes == 0) return FAIL(ERR_FORMAT, "the file is empty");
  struct fy_diag_cfg diag_config;
  fy_diag_cfg_default(&diag_config);
  struct fy_diag *diag = fy_diag_create(&diag_config);
  ASSERT(diag != NULL);
  fy_diag_set_collect_errors(diag, true);
  /* convert_key sees keys that come twice; libfyaml compares every key with every other. */
  const struct fy_parse_cfg parse = {.flags = FYPCF_QUIET | FYPCF_ALLOW_DUPLICATE_KEYS, .diag = diag};
  struct fy_parser *parser = fy_parser_create(&parse);
  ASSERT(parser != NULL);
  status result = fy_parser_set_string(parser, text, bytes) == 0 ? read_documents(parser, diag, out) : FAIL(ERR_FORMAT, "not YAML");
  fy_parser_destroy(parser);
  fy_diag_destroy(diag);
  return result;
}
