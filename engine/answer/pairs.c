/* answer/pairs.c - see answer/pairs.h. */
#include "answer/pairs.h"
#include "answer/scan.h"
#include "answer/schema.h"
#include "base/json_text.h"

static json_t *load(const char *text, size_t bytes) {
  json_error_t error;
  return json_text_load(text, bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
}

void answer_pairs_add(strbuf *out, const json_t *schema, const answer_pairs_value *value) {
  size_t from = answer_scan_blank(value->text, value->bytes, 0), to = value->bytes;
  while (to > from && answer_scan_is_blank(value->text[to - 1])) to--;
  json_t *json = value->is_told && value->is_text ? NULL : load(value->text + from, to - from);
  bool is_text = value->is_told ? value->is_text
                                : !json || json_is_string(json) || !answer_schema_allows(schema, value->key, value->key_bytes, json);
  strbuf_adds(out, out->count ? ", " : "{");
  strbuf_json(out, value->key, value->key_bytes, STRBUF_JSON_PYTHON);
  strbuf_adds(out, ": ");
  if (is_text) strbuf_json(out, value->text, value->bytes, STRBUF_JSON_PYTHON);
  else if (json) strbuf_add(out, value->text + from, to - from);
  json_decref(json);
}

void answer_pairs_end(strbuf *out) { strbuf_adds(out, out->count ? "}" : "{}"); }
