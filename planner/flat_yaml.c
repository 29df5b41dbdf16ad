/* flat_yaml.c - see flat_yaml.h. engine/base/yaml.h parses the text; this file checks the shape and the spelling of what it returns. */
#include "flat_yaml.h"
#include "engine/base/limits.h"
#include "engine/base/yaml.h"
#include <stdio.h>
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

/* === Values ================================================================================================================= */

/* C0, DEL, and C1 as UTF-8: a terminal might take them for commands. */
static bool is_control(const char *text, size_t bytes) {
  unsigned char first = (unsigned char)text[0], second = bytes > 1 ? (unsigned char)text[1] : 0;
  return first < 0x20 || first == 0x7f || (first == 0xc2 && second >= 0x80 && second <= 0x9f);
}

/* A printable text of fewer than `room` bytes. what: the key's name, or "a key". */
static status check_text(const char *name, const char *what, const char *text, size_t bytes, size_t room) {
  if (!text || bytes >= room)
    return FAIL(ERR_FORMAT, "%s: %s: expected a value of 1 to %zu bytes, found %zu", name, what, room - 1, bytes);
  for (size_t i = 0; i < bytes; i++)
    if (is_control(text + i, bytes - i))
      return FAIL(ERR_FORMAT, "%s: %s: unprintable byte 0x%02x", name, what, (unsigned char)text[i]);
  return OK;
}

static status read_key(const char *name, const char *text, size_t bytes, char key[FLAT_YAML_KEY_BYTES]) {
  TRY(check_text(name, "a key", text, bytes, FLAT_YAML_KEY_BYTES));
  for (size_t i = 0; i < bytes; i++) {
    if ((unsigned char)text[i] > 0x7e) return FAIL(ERR_FORMAT, "%s: a key: unprintable byte 0x%02x", name, (unsigned char)text[i]);
    key[i] = text[i] == '_' ? '-' : text[i];
  }
  key[bytes] = 0;
  return OK;
}

/* Null is a value that was not written: it has no text. The count grows only with a copied value, so that flat_yaml_close frees what
 * was allocated. */
static status add_value(const char *name, flat_yaml_row *row, const json_t *value) {
  size_t bytes = json_string_length(value);
  if (!json_is_string(value) && !json_is_null(value))
    return FAIL(ERR_FORMAT, "%s: %s: expected one plain value, found a mapping or a list", name, row->key);
  TRY(check_text(name, row->key, json_string_value(value), bytes, FLAT_YAML_VALUE_BYTES));
  char *copy = malloc(bytes + 1);
  ASSERT(copy != NULL);
  memcpy(copy, json_string_value(value), bytes + 1);
  row->values[row->count++] = copy;
  return OK;
}

static status read_value(const char *name, flat_yaml_row *row, const json_t *value) {
  row->is_list = json_is_array(value);
  size_t count = row->is_list ? json_array_size(value) : 1;
  if (count > FLAT_YAML_LIST_MAX) return FAIL(ERR_LIMIT, "%s: %s: more than %u values", name, row->key, FLAT_YAML_LIST_MAX);
  row->values = calloc(count + 1, sizeof *row->values);
  ASSERT(row->values != NULL);
  if (!row->is_list) return add_value(name, row, value);
  for (size_t i = 0; i < count; i++) TRY(add_value(name, row, json_array_get(value, i)));
  return OK;
}

/* === The document =========================================================================================================== */

static status add_row(const char *name, flat_yaml *out, const char *key, const json_t *value) {
  if (flat_yaml_find(out, key)) return FAIL(ERR_FORMAT, "%s: key \"%s\" is given twice", name, key);
  if (out->count == FLAT_YAML_KEYS_MAX) return FAIL(ERR_LIMIT, "%s: more than %u keys", name, FLAT_YAML_KEYS_MAX);
  flat_yaml_row *row = &out->rows[out->count++];
  memcpy(row->key, key, strlen(key) + 1);
  return read_value(name, row, value);
}

/* Adds the members of a mapping that is the value of the key `above`, or of the document where that is empty. */
static status add_members(const char *name, json_t *mapping, const char *above, flat_yaml *out) {
  for (void *at = json_object_iter(mapping); at; at = json_object_iter_next(mapping, at)) {
    char own[FLAT_YAML_KEY_BYTES], key[FLAT_YAML_KEY_BYTES];
    TRY(read_key(name, json_object_iter_key(at), json_object_iter_key_len(at), own));
    const int length = snprintf(key, sizeof key, "%s%s%s", above, *above ? "." : "", own);
    if (length < 0 || (size_t)length >= sizeof key)
      return FAIL(ERR_FORMAT, "%s: %s: the key \"%s\" in it is too long", name, above, own);
    json_t *value = json_object_iter_value(at);
    if (json_is_object(value) && !*above) TRY(add_members(name, value, key, out));
    else TRY(add_row(name, out, key, value));
  }
  return OK;
}

static status read_mapping(const char *name, json_t *root, flat_yaml *out) {
  if (!root || json_is_null(root) || (json_is_string(root) && json_string_length(root) == 0)) return OK; /* an empty document */
  if (!json_is_object(root))
    return FAIL(ERR_FORMAT, "%s: expected \"key: value\" lines, found other YAML; hint: a line is like \"port: 8000\"", name);
  out->rows = calloc(FLAT_YAML_KEYS_MAX, sizeof *out->rows);
  ASSERT(out->rows != NULL);
  return add_members(name, root, "", out);
}

status flat_yaml_read(const char *name, const char *text, size_t bytes, flat_yaml *out) {
  const yaml_options options = {.name = name, .bytes_max = FILE_CONFIG_BYTES_MAX, .is_text = true};
  json_t *root = NULL;
  flat_yaml read = {0};
  TRY(yaml_parse(&options, text, bytes, &root));
  status result = read_mapping(name, root, &read);
  json_decref(root);
  if (result == OK) *out = read;
  else flat_yaml_close(&read);
  return result;
}
