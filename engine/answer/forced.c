/* answer/forced.c - see answer/forced.h. White space between marks is what the models' templates write. */
#include "answer/forced.h"
#include "answer/harmony.h"
#include "answer/judge.h"
#include "base/json_text.h"
#include <string.h>

static bool add(json_t *pattern, json_t *piece) { return json_array_append_new(pattern, piece) == 0; }
static bool add_bytes(json_t *pattern, const char *text, size_t bytes) { return add(pattern, json_pack("{s:s%}", "text", text, bytes)); }
static bool add_text(json_t *pattern, const char *text) { return !*text || add_bytes(pattern, text, strlen(text)); }

static bool add_json_text(json_t *pattern, const json_t *text) {
  strbuf out = {0};
  strbuf_json(&out, json_string_value(text), json_string_length(text), STRBUF_JSON_PYTHON);
  bool is_added = !out.failed && add_bytes(pattern, out.bytes, out.count);
  strbuf_close(&out);
  return is_added;
}

static bool add_until(json_t *pattern, const char *mark) { return add(pattern, json_pack("{s:s}", "until", mark)); }

/* Every argument's schema may refer to the definitions of all. */
static bool add_schema(json_t *pattern, const json_t *root, const json_t *schema) {
  json_t *whole = json_is_object(schema) ? json_copy((json_t *)(uintptr_t)schema) : json_pack("{s:s}", "type", "object");
  const json_t *definitions = json_object_get(root, "$defs");
  if (definitions && root != schema) (void)json_object_set(whole, "$defs", (json_t *)(uintptr_t)definitions);
  return add(pattern, json_pack("{s:o}", "json_schema", whole));
}

/* A pattern in which the text stands or nothing. */
static bool add_optional(json_t *pattern, json_t *optional) { return add(pattern, json_pack("{s:[[],o]}", "any", optional)); }

/* === Arguments as pairs ===================================================================================================== */

static bool is_text_schema(const json_t *schema) {
  const json_t *values = json_object_get(schema, "enum");
  bool is_text = json_text_is(json_object_get(schema, "type"), "string") || json_array_size(values) > 0;
  for (size_t i = 0; i < json_array_size(values); i++) is_text = is_text && json_is_string(json_array_get(values, i));
  return is_text;
}

/* A text as it stands, then the mark that closes the value. */
static bool add_text_value(json_t *pattern, const json_t *schema, const char *close) {
  const json_t *values = json_object_get(schema, "enum");
  json_t *any = json_array();
  if (json_array_size(values) == 0) {
    json_decref(any);
    return add_until(pattern, close);
  }
  for (size_t i = 0; i < json_array_size(values); i++)
    if (!add(any, json_pack("[{s:O}]", "text", json_array_get(values, i)))) {
      json_decref(any);
      return false;
    }
  return add(pattern, json_pack("{s:o}", "any", any)) && add_text(pattern, close);
}

static json_t *pair_of(const answer_grammar *g, const json_t *root, const char *key, const json_t *schema) {
  bool is_text = is_text_schema(schema);
  json_t *pair = json_array();
  bool is_made = add_text(pair, g->key_open) && add_text(pair, key) && add_text(pair, g->key_close) &&
                 add_text(pair, g->tells_text ? is_text ? "true\">" : "false\">" : "\n") &&
                 add_text(pair, g->tells_text ? "" : g->value_open) &&
                 (is_text ? add_text_value(pair, schema, g->value_close)
                          : add_schema(pair, root, schema) && add_text(pair, g->value_close)) && add_text(pair, "\n");
  if (is_made) return pair;
  json_decref(pair);
  return NULL;
}

static bool is_required(const json_t *root, const char *key) {
  const json_t *required = json_object_get(root, "required");
  for (size_t i = 0; i < json_array_size(required); i++)
    if (json_text_is(json_array_get(required, i), key)) return true;
  return false;
}

/* In the order of the properties. */
static bool add_pairs(json_t *pattern, const answer_grammar *g, const json_t *root) {
  const char *key;
  const json_t *schema;
  json_object_foreach(json_object_get(root, "properties"), key, schema) {
    json_t *pair = pair_of(g, root, key, schema);
    if (!pair || !(is_required(root, key) ? json_array_extend(pattern, pair) == 0 : add_optional(pattern, json_incref(pair)))) {
      json_decref(pair);
      return false;
    }
    json_decref(pair);
  }
  return true;
}

/* === Calls ================================================================================================================== */

/* Kimi's ids end in the number of the call, of which the conversation may have some already. */
static bool add_number(json_t *pattern) {
  return add(pattern, json_pack("{s:s}", "regex", "[0-9]{1,2}"));
}

static bool add_named(json_t *pattern, const answer_grammar *g, const json_t *name, const json_t *parameters) {
  if (g->has_ids && !add_text(pattern, "functions.")) return false;
  if (!add_bytes(pattern, json_string_value(name), json_string_length(name))) return false;
  if (g->has_ids && !(add_text(pattern, ":") && add_number(pattern))) return false;
  if (!add_text(pattern, g->name_close ? g->name_close : "")) return false;
  if (g->body == ANSWER_BODY_PAIRS) return add_text(pattern, "\n") && add_pairs(pattern, g, parameters);
  return add_schema(pattern, parameters, parameters) && add_text(pattern, *g->call_close == '`' ? "\n" : "");
}

static bool add_object(json_t *pattern, const answer_grammar *g, const json_t *name, const json_t *parameters) {
  const char *gap = g->starts_answer ? "" : "\n";
  return add_text(pattern, gap) && add_text(pattern, "{\"name\": ") && add_json_text(pattern, name) && add_text(pattern, ", \"") &&
         add_text(pattern, g->arguments_key) && add_text(pattern, "\": ") && add_schema(pattern, parameters, parameters) &&
         add_text(pattern, "}") && add_text(pattern, gap);
}

static json_t *call_of(const answer_grammar *g, const json_t *name, const json_t *parameters) {
  json_t *call = json_array();
  bool is_made = add_text(call, g->section_open ? g->section_open : "") && add_text(call, g->tells_text ? "\n" : "") &&
                 add_text(call, g->starts_answer ? "" : g->call_open) &&
                 (g->body == ANSWER_BODY_CALL ? add_object : add_named)(call, g, name, parameters) &&
                 add_text(call, g->call_close ? g->call_close : "") && add_text(call, g->tells_text ? "\n" : "") &&
                 add_text(call, g->section_close ? g->section_close : "");
  if (is_made) return call;
  json_decref(call);
  return NULL;
}

/* A message that a message before it, or the prompt, has begun. The stop token that ends a call is no part of the answer. */
static json_t *message_of(const json_t *name, const json_t *parameters) {
  json_t *call = json_array();
  bool is_made = add_text(call, ANSWER_HARMONY_CHANNEL "commentary to=functions.") &&
                 add_bytes(call, json_string_value(name), json_string_length(name)) &&
                 add_text(call, " " ANSWER_HARMONY_CONSTRAIN "json" ANSWER_HARMONY_MESSAGE) && add_schema(call, parameters, parameters);
  if (is_made) return call;
  json_decref(call);
  return NULL;
}

static bool add_thought(json_t *pattern, const answer_form *form) {
  bool is_harmony = answer_harmony_is(form);
  if (is_harmony && form->begins_after) return add_text(pattern, ANSWER_HARMONY_END ANSWER_HARMONY_START "assistant");
  if (!form->marks || form->begins_after) return true;
  json_t *thought = json_array();
  bool is_made = (form->begins_inside || add_text(thought, form->marks->open)) && add_until(thought, form->marks->close) &&
                 (is_harmony ? add_text(thought, ANSWER_HARMONY_START "assistant") : add(thought, json_pack("{s:s}", "regex", "\n{0,2}")));
  if (is_made) is_made = form->begins_inside ? json_array_extend(pattern, thought) == 0 : add_optional(pattern, json_incref(thought));
  json_decref(thought);
  return is_made;
}

json_t *answer_forced(const answer_form *form, const char *name) {
  json_t *pattern = json_array(), *calls = json_array();
  const json_t *tool;
  size_t i;
  bool is_made = add_thought(pattern, form);
  json_array_foreach(form->tools, i, tool) {
    const json_t *own = answer_judge_name(tool);
    if (!own || (name && !json_text_is(own, name))) continue;
    const json_t *parameters = answer_judge_parameters(form->tools, json_string_value(own));
    is_made = is_made && add(calls, answer_harmony_is(form) ? message_of(own, parameters) : call_of(form->grammar, own, parameters));
  }
  is_made = is_made && json_array_size(calls) > 0 && add(pattern, json_pack("{s:O}", "any", calls));
  json_decref(calls);
  if (is_made) return pattern;
  json_decref(pattern);
  return NULL;
}
