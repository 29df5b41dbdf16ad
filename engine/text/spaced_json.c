/* text/spaced_json.c - see text/spaced_json.h. */
#include "text/spaced_json.h"
#include <string.h>
#include "text/json_fields.h"

#define NORMALIZER "tokenizer.json: normalizer"
#define PRE_TOKENIZER "tokenizer.json: pre_tokenizer"
#define DECODER "tokenizer.json: decoder"

bool spaced_json_is(const json_t *root) { return json_is_true(json_object_get(json_object_get(root, "model"), "byte_fallback")); }

static status want_text(const json_t *node, const char *where, const char *key, const char *want) {
  const char *found = NULL;
  TRY(json_fields_string(node, where, key, &found));
  return strcmp(found, want) == 0 ? OK : FAIL(ERR_UNSUPPORTED, "%s.%s: expected \"%s\", found \"%.80s\"", where, key, want, found);
}

/* A Replace of one text by another. */
static status read_replace(json_t *node, const char *where, const char *from, const char *to) {
  static const char *const keys[] = {"type", "pattern", "content", NULL}, *const pattern_keys[] = {"String", NULL};
  TRY(json_fields_check(node, where, keys));
  TRY(json_fields_type(node, where, "Replace"));
  TRY(want_text(node, where, "content", to));
  json_t *pattern = json_object_get(node, "pattern");
  if (pattern == NULL) return json_fields_wrong(where, "pattern", "an object", NULL);
  TRY(json_fields_check(pattern, where, pattern_keys));
  return want_text(pattern, where, "String", from);
}

static status read_normalizer(const json_t *root, tokenizer_prefix *out) {
  static const char *const keys[] = {"type", "normalizers", NULL}, *const prepend_keys[] = {"type", "prepend", NULL};
  json_t *node = json_object_get(root, "normalizer"), *members = NULL;
  if (!json_fields_is(node, "Sequence")) return read_replace(node, NORMALIZER, " ", SPACED_JSON_SPACE);
  TRY(json_fields_check(node, NORMALIZER, keys));
  TRY(json_fields_array(node, NORMALIZER, "normalizers", &members));
  json_t *prepend = json_array_get(members, 0);
  if (json_array_size(members) == 1) return read_replace(prepend, NORMALIZER, " ", SPACED_JSON_SPACE);
  if (json_array_size(members) != 2)
    return FAIL(ERR_UNSUPPORTED, NORMALIZER ": expected Prepend and Replace, found %zu members", json_array_size(members));
  TRY(json_fields_check(prepend, NORMALIZER, prepend_keys));
  TRY(json_fields_type(prepend, NORMALIZER, "Prepend"));
  TRY(want_text(prepend, NORMALIZER, "prepend", SPACED_JSON_SPACE));
  *out = TOKENIZER_PREFIX_ALWAYS;
  return read_replace(json_array_get(members, 1), NORMALIZER, " ", SPACED_JSON_SPACE);
}

/* An older form has add_prefix_space in place of prepend_scheme. */
static status read_metaspace(json_t *node, tokenizer_prefix *out) {
  static const char *const keys[] = {"type", "replacement", "prepend_scheme", "split", NULL};
  const char *scheme = NULL;
  bool splits = true;
  TRY(json_fields_check(node, PRE_TOKENIZER, keys));
  TRY(json_fields_type(node, PRE_TOKENIZER, "Metaspace"));
  TRY(want_text(node, PRE_TOKENIZER, "replacement", SPACED_JSON_SPACE));
  TRY(json_fields_string(node, PRE_TOKENIZER, "prepend_scheme", &scheme));
  TRY(json_fields_bool(node, PRE_TOKENIZER, "split", &splits));
  if (splits) return FAIL(ERR_UNSUPPORTED, PRE_TOKENIZER " Metaspace.split: expected false, found true");
  if (strcmp(scheme, "always") == 0) *out = TOKENIZER_PREFIX_MISSING;
  else if (strcmp(scheme, "first") == 0) *out = TOKENIZER_PREFIX_FIRST;
  else if (strcmp(scheme, "never") != 0)
    return FAIL(ERR_FORMAT, PRE_TOKENIZER " Metaspace.prepend_scheme: expected always, first or never, found \"%.80s\"", scheme);
  return OK;
}

static status read_decoder(const json_t *root) {
  static const char *const keys[] = {"type", "decoders", NULL}, *const strip_keys[] = {"type", "content", "start", "stop", NULL};
  json_t *node = json_object_get(root, "decoder"), *members = NULL;
  if (!json_is_object(node)) return json_fields_wrong("tokenizer.json", "decoder", "an object", node);
  TRY(json_fields_check(node, DECODER, keys));
  TRY(json_fields_type(node, DECODER, "Sequence"));
  TRY(json_fields_array(node, DECODER, "decoders", &members));
  size_t count = json_array_size(members);
  if (count != 3 && count != 4)
    return FAIL(ERR_UNSUPPORTED, DECODER ": expected Replace, ByteFallback, Fuse and perhaps Strip, found %zu members", count);
  TRY(read_replace(json_array_get(members, 0), DECODER, SPACED_JSON_SPACE, " "));
  TRY(json_fields_type(json_array_get(members, 1), DECODER, "ByteFallback"));
  TRY(json_fields_type(json_array_get(members, 2), DECODER, "Fuse"));
  if (count == 3) return OK;
  json_t *strip = json_array_get(members, 3);
  TRY(json_fields_check(strip, DECODER, strip_keys));
  TRY(json_fields_type(strip, DECODER, "Strip"));
  TRY(want_text(strip, DECODER, "content", " "));
  if (json_integer_value(json_object_get(strip, "start")) > 1 || json_integer_value(json_object_get(strip, "stop")) != 0)
    return FAIL(ERR_UNSUPPORTED, DECODER " Strip: expected one space at the start");
  return OK;
}

status spaced_json_read(const json_t *root, tokenizer_prefix *out) {
  const json_t *normalizer = json_object_get(root, "normalizer");
  json_t *before = json_object_get(root, "pre_tokenizer");
  tokenizer_prefix found = TOKENIZER_PREFIX_NEVER;
  if (normalizer == NULL || json_is_null(normalizer)) {
    if (before == NULL || json_is_null(before))
      return FAIL(ERR_UNSUPPORTED, PRE_TOKENIZER ": expected Metaspace, as there is no normalizer, found null");
    TRY(read_metaspace(before, &found));
  } else {
    TRY(json_fields_null(root, "tokenizer.json", "pre_tokenizer"));
    TRY(read_normalizer(root, &found));
  }
  TRY(read_decoder(root));
  *out = found;
  return OK;
}

static int hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; }

size_t spaced_json_token(const char *name, uint8_t *out, uint8_t *is_word, int *byte) {
  size_t size = strlen(name), count = 0;
  *byte = -1;
  *is_word = strchr(name, ' ') == NULL; /* no text keeps a space of its own */
  if (size == 6 && memcmp(name, "<0x", 3) == 0 && name[5] == '>' && hex_digit(name[3]) >= 0 && hex_digit(name[4]) >= 0) {
    *byte = hex_digit(name[3]) * 16 + hex_digit(name[4]);
    *is_word = 0;
    out[0] = (uint8_t)*byte;
    return 1;
  }
  for (size_t at = 0; at < size;) {
    bool is_space = strncmp(name + at, SPACED_JSON_SPACE, 3) == 0;
    out[count++] = is_space ? ' ' : (uint8_t)name[at];
    at += is_space ? 3 : 1;
  }
  return count;
}
