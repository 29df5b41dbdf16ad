/* yaml.c - see yaml.h. The bytes are checked before libfyaml sees them, because 0.7.12 fails on some of them (check_bytes); then every
 * node of its document is checked and converted. */
#include "base/yaml.h"
#include <libfyaml.h>
#include <string.h>
#include "base/json_text.h"
#include "base/utf8.h"

_Static_assert(YAML_DEPTH_MAX == 8 && YAML_KEY_BYTES_MAX == 256, "messages below spell these limits");

typedef struct reader {
  const yaml_options *options;
  const char *key; /* of the top-level mapping, counted by key_bytes; shown in messages when the file has a name */
  size_t key_bytes;
} reader;

static status convert(reader *self, struct fy_node *node, uint32_t depth, json_t **out);

/* "<name>: <key>: <message>", or the message alone when the file has no name. */
static status refuse(const reader *self, status code, const char *message) {
  const char *name = self->options->name;
  if (!name) return FAIL(code, "%s", message);
  if (!self->key) return FAIL(code, "%s: %s", name, message);
  return FAIL(code, "%s: %.*s: %s", name, (int)self->key_bytes, self->key, message);
}

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

static bool is_any(const char *word, const char *const *words, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(word, words[i]) == 0) return true;
  return false;
}

/* Spellings of YAML 1.1. *word becomes that of JSON; those on which the two versions of YAML differ are refused. */
static status read_python(const reader *self, char word[64]) {
  static const char *const yes[] = {"True", "TRUE"}, *const no[] = {"False", "FALSE"}, *const nothing[] = {"Null", "NULL"};
  static const char *const other[] = {"yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF"};
  if (is_any(word, yes, ARRAY_LEN(yes))) strcpy(word, "true");
  else if (is_any(word, no, ARRAY_LEN(no))) strcpy(word, "false");
  else if (is_any(word, nothing, ARRAY_LEN(nothing))) strcpy(word, "null");
  bool is_strange = is_any(word, other, ARRAY_LEN(other)), has_digit = word[strcspn(word, "0123456789")] != 0;
  bool looks = has_digit && strspn(word, "0123456789abcdefABCDEFxo_.:+-TZ") == strlen(word) && strchr("0123456789.+-", word[0]);
  if (is_strange || (looks && (!is_number(word) || (strpbrk(word, "eE") && !strchr(word, '.'))))) {
    char message[160];
    snprintf(message, sizeof message, "%s: not a text to every reader of YAML; hint: quote it, or write true, false or a plain number",
             word);
    return refuse(self, ERR_FORMAT, message);
  }
  return OK;
}

static status convert_scalar(const reader *self, struct fy_node *node, json_t **out) {
  size_t length = 0;
  const char *text = fy_node_get_scalar(node, &length);
  bool is_plain = fy_node_get_style(node) == FYNS_PLAIN, is_typed = is_plain && !self->options->is_text;
  char word[64] = "";
  if (!text) length = 0;
  if (is_typed && length < sizeof word && length > 0) memcpy(word, text, length);
  if (is_typed && self->options->is_python) TRY(read_python(self, word));
  if (is_plain && length == 0) *out = json_null();
  else if (is_typed && (strcmp(word, "null") == 0 || strcmp(word, "~") == 0)) *out = json_null();
  else if (is_typed && strcmp(word, "true") == 0) *out = json_true();
  else if (is_typed && strcmp(word, "false") == 0) *out = json_false();
  else if (is_number(word)) {
    json_error_t error;
    *out = json_text_load(word, strlen(word), JSON_DECODE_ANY, &error);
    if (!*out) return FAIL(json_text_fault(&error, ERR_FORMAT), "%s: %s", word, error.text);
  } else {
    errno = 0;
    *out = json_stringn(text ? text : "", length);
    if (!*out && errno == ENOMEM) return refuse(self, ERR_LIMIT, "out of memory");
    if (!*out) return refuse(self, ERR_FORMAT, "a value is not UTF-8");
  }
  return OK;
}

/* === Nodes ================================================================================================================== */

static status convert_key(const reader *self, struct fy_node *node, const json_t *object, const char **key, size_t *bytes) {
  size_t length = 0;
  if (!node || !fy_node_is_scalar(node) || fy_node_is_alias(node) || fy_node_get_anchor(node) || fy_node_get_tag(node, &length))
    return refuse(self, ERR_FORMAT, "expected plain keys, without anchor, alias or tag");
  *key = fy_node_get_scalar(node, bytes);
  if (!*key || *bytes == 0 || *bytes > YAML_KEY_BYTES_MAX) return refuse(self, ERR_FORMAT, "expected keys of 1 to 256 bytes");
  for (size_t i = 0; i < *bytes; i++)
    if ((unsigned char)(*key)[i] < 0x20 || (*key)[i] == 0x7f) return refuse(self, ERR_FORMAT, "expected keys without control characters");
  if (json_object_getn(object, *key, *bytes)) {
    char message[YAML_KEY_BYTES_MAX + 32];
    snprintf(message, sizeof message, "key \"%.*s\" is given twice", (int)*bytes, *key);
    return refuse(self, ERR_FORMAT, message);
  }
  return OK;
}

static status convert_mapping(reader *self, struct fy_node *node, uint32_t depth, json_t *object) {
  void *position = NULL;
  struct fy_node_pair *pair;
  while ((pair = fy_node_mapping_iterate(node, &position)) != NULL) {
    const char *key = NULL;
    size_t bytes = 0;
    json_t *value = NULL;
    if (depth == 0) self->key = NULL;
    TRY(convert_key(self, fy_node_pair_key(pair), object, &key, &bytes));
    if (depth == 0) {
      self->key = key;
      self->key_bytes = bytes;
    }
    TRY(convert(self, fy_node_pair_value(pair), depth + 1, &value));
    if (json_object_setn_new(object, key, bytes, value) != 0) return refuse(self, ERR_FORMAT, "a key is not UTF-8");
  }
  return OK;
}

static status convert_sequence(reader *self, struct fy_node *node, uint32_t depth, json_t *array) {
  void *position = NULL;
  struct fy_node *item;
  while ((item = fy_node_sequence_iterate(node, &position)) != NULL) {
    json_t *value = NULL;
    TRY(convert(self, item, depth + 1, &value));
    if (json_array_append_new(array, value) != 0) return refuse(self, ERR_LIMIT, "no memory");
  }
  return OK;
}

/* A scalar with the tag !function, where such are allowed. */
static bool is_function(const reader *self, struct fy_node *node) {
  size_t length = 0;
  const char *tag = fy_node_get_tag(node, &length);
  bool is_tag = tag && length == strlen(YAML_FUNCTION) && memcmp(tag, YAML_FUNCTION, length) == 0;
  return self->options->is_python && is_tag && fy_node_is_scalar(node) && !fy_node_is_alias(node) && !fy_node_get_anchor(node);
}

static status convert_function(const reader *self, struct fy_node *node, json_t **out) {
  size_t length = 0;
  const char *text = fy_node_get_scalar(node, &length);
  *out = json_pack("{s:o}", YAML_FUNCTION, json_stringn(text ? text : "", text ? length : 0));
  return *out ? OK : refuse(self, ERR_FORMAT, "a value is not UTF-8");
}

static status convert(reader *self, struct fy_node *node, uint32_t depth, json_t **out) {
  size_t length = 0;
  if (depth > YAML_DEPTH_MAX) return refuse(self, ERR_LIMIT, "more than 8 levels");
  if (!node) {
    *out = json_null();
    return OK;
  }
  if (is_function(self, node)) return convert_function(self, node, out);
  if (fy_node_is_alias(node) || fy_node_get_anchor(node) || fy_node_get_tag(node, &length))
    return refuse(self, ERR_FORMAT, "anchors, aliases and tags are not allowed");
  if (fy_node_is_scalar(node)) return convert_scalar(self, node, out);
  json_t *converted = fy_node_is_mapping(node) ? json_object() : json_array();
  if (!converted) return refuse(self, ERR_LIMIT, "no memory");
  status result = fy_node_is_mapping(node) ? convert_mapping(self, node, depth, converted) : convert_sequence(self, node, depth, converted);
  if (result == OK) *out = converted;
  else json_decref(converted);
  return result;
}

/* === The document =========================================================================================================== */

static status syntax_error(const reader *self, struct fy_diag *diag) {
  void *position = NULL;
  struct fy_diag_error *error = fy_diag_errors_iterate(diag, &position);
  char message[256];
  if (!error) return refuse(self, ERR_FORMAT, "not YAML");
  snprintf(message, sizeof message, "line %d, column %d: %.200s", error->line, error->column, error->msg ? error->msg : "not YAML");
  for (char *c = message; *c; c++) *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
  return refuse(self, ERR_FORMAT, message);
}

static status refuse_byte(const reader *self, size_t at, unsigned char byte) {
  char message[160];
  snprintf(message, sizeof message, "byte %zu is 0x%02x, expected text without NUL or other control bytes", at, byte);
  return refuse(self, ERR_FORMAT, message);
}

static status refuse_at(const reader *self, size_t at, const char *what) {
  char message[160];
  snprintf(message, sizeof message, "byte %zu %s", at, what);
  return refuse(self, ERR_FORMAT, message);
}

/* Keeps input from libfyaml 0.7.12 that it mishandles: it leaks memory on text that is not UTF-8, loops on some directives, and writes out
 * of bounds on some keys that begin with "?". */
static status check_bytes(const reader *self, const char *text, size_t bytes) {
  bool is_line_start = true;
  size_t valid = utf8_valid_bytes((const uint8_t *)text, bytes);
  if (valid != bytes) return refuse_at(self, valid, "is not UTF-8");
  for (size_t i = 0; i < bytes; i++) {
    unsigned char byte = (unsigned char)text[i];
    bool is_control = (byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7f;
    if (is_control) return refuse_byte(self, i, byte);
    if (is_line_start && byte == '%') return refuse_at(self, i, "begins a YAML directive, which is not allowed");
    const unsigned char next = i + 1 < bytes ? (unsigned char)text[i + 1] : '\n';
    if (is_line_start && byte == '?' && (next == ' ' || next == '\t' || next == '\n' || next == '\r'))
      return refuse_at(self, i, "begins a line with \"? \", which is not allowed; hint: write \"key: value\", and text with such lines in "
                                "\"\"");
    is_line_start = byte == '\n' || byte == '\r' || (is_line_start && (byte == ' ' || byte == '\t'));
  }
  return OK;
}

static status read_documents(reader *self, struct fy_parser *parser, struct fy_diag *diag, json_t **out) {
  struct fy_document *document = fy_parse_load_document(parser);
  if (!document) return fy_parser_get_stream_error(parser) ? syntax_error(self, diag) : OK;
  struct fy_document *second = fy_parse_load_document(parser);
  status result = OK;
  if (second) result = refuse(self, ERR_FORMAT, "expected one document, found \"---\" and another");
  else if (fy_parser_get_stream_error(parser)) result = syntax_error(self, diag);
  else result = convert(self, fy_document_root(document), 0, out);
  fy_parse_document_destroy(parser, second);
  fy_parse_document_destroy(parser, document);
  return result;
}

status yaml_parse(const yaml_options *options, const char *text, size_t bytes, json_t **out) {
  reader self = {.options = options};
  if (bytes > options->bytes_max) {
    char message[80];
    snprintf(message, sizeof message, "%zu bytes, at most %zu", bytes, options->bytes_max);
    return refuse(&self, ERR_LIMIT, message);
  }
  const size_t mark = json_text_mark(text, bytes);
  text += mark;
  bytes -= mark;
  TRY(check_bytes(&self, text, bytes));
  json_t *value = NULL;
  struct fy_diag_cfg diag_config;
  fy_diag_cfg_default(&diag_config);
  struct fy_diag *diag = fy_diag_create(&diag_config);
  ASSERT(diag != NULL);
  fy_diag_set_collect_errors(diag, true);
  /* convert_key finds duplicate keys. libfyaml would compare every key with every other: a minute for 1 MB of keys. */
  const struct fy_parse_cfg parse = {.flags = FYPCF_QUIET | FYPCF_ALLOW_DUPLICATE_KEYS, .diag = diag};
  struct fy_parser *parser = fy_parser_create(&parse);
  ASSERT(parser != NULL);
  status result = OK;
  if (bytes > 0 && fy_parser_set_string(parser, text, bytes) != 0) result = refuse(&self, ERR_FORMAT, "not YAML");
  else if (bytes > 0) result = read_documents(&self, parser, diag, &value);
  fy_parser_destroy(parser);
  fy_diag_destroy(diag);
  if (result == OK) *out = value;
  return result;
}
