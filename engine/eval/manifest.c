/* eval/manifest.c - see eval/manifest.h. A table of keys and forms describes what may be read. */
#include "eval/manifest.h"
#include "base/json_text.h"
#include "base/sha256.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES_MAX 300u
#define VALUE_BYTES_MAX 80u

static status no_memory(void) { return FAIL(ERR_LIMIT, "manifest: no memory"); }

static json_t *hex(const uint8_t *bytes) {
  char text[DIGEST_TEXT_BYTES];
  return json_string(digest_text(bytes, text));
}

static json_t *maybe(const char *text) { return text ? json_string(text) : json_null(); }

/* === Building =============================================================================================================== */

static status file_json(const eval_manifest_file *file, bool with_text, json_t **out) {
  if (!file->name) {
    *out = json_null();
    return OK;
  }
  json_t *text = with_text && file->text && file->bytes <= EVAL_MANIFEST_EMBED_BYTES_MAX ? json_stringn(file->text,
                                                                                                        file->bytes) : json_null();
  if (!text) return FAIL(ERR_FORMAT, "%s: not UTF-8", file->name);
  *out = json_pack("{s:s, s:o, s:I, s:o}", "name", file->name, "digest", hex(file->digest.bytes), "bytes", (json_int_t)file->bytes, "text",
                   text);
  return *out ? OK : no_memory();
}

static status task_json(const eval_manifest_task *from, uint32_t max_len, bool without_text, json_t *list) {
  const eval_task *t = from->task;
  const struct { const char *key; const eval_manifest_file *file; } files[] = {
    {"file", &from->file}, {"items", &from->items}, {"shots", &from->shots}};
  json_t *built = json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "name", t->name, "kind", eval_task_kind_name(t->kind), "description",
                           maybe(t->description), "group", maybe(t->group), "subsets", maybe(t->subsets), "cluster", maybe(t->cluster));
  if (json_array_append_new(list, built) != 0) return no_memory();
  for (size_t i = 0; i < ARRAY_LEN(files); i++) {
    json_t *file = NULL;
    TRY(file_json(files[i].file, i == 0 || !without_text, &file));
    if (json_object_set_new(built, files[i].key, file) != 0) return no_memory();
  }
  json_t *most = t->too_long == EVAL_TOO_LONG_REFUSE ? json_null() : json_integer(max_len);
  if (json_object_set_new(built, "max_len", most) != 0) return no_memory();
  if (json_object_set_new(built, "count", json_integer(from->count)) != 0) return no_memory();
  return json_object_set(built, "parameters", t->effective) == 0 ? OK : no_memory();
}

static json_t *chat_json(const eval_manifest_model *model) {
  return model->chat_name ? json_pack("{s:s, s:s}", "name", model->chat_name, "digest", model->chat_digest) : json_null();
}

status eval_manifest_setup(const eval_manifest_model *model, const eval_manifest_task *tasks, uint32_t count, json_t *perturbed,
                           json_t **out) {
  json_t *list = json_array();
  json_t *built = json_pack("{s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:O}", "numerics_id", hex(model->numerics_id), "config_digest",
                           hex(model->config_digest), "weights_digest", hex(model->weights_digest), "tokenizer_digest",
                           hex(model->tokenizer_digest), "chat_template", chat_json(model), "with_text", !model->without_text, "tasks",
                           list, "perturbed", perturbed);
  status result = built ? OK : no_memory();
  for (uint32_t i = 0; result == OK && i < count; i++) result = task_json(&tasks[i], model->max_len, model->without_text, list);
  if (result == OK) *out = built;
  else json_decref(built);
  return result;
}

status eval_manifest_rescored(const json_t *manifest, const eval_manifest_task *tasks, uint32_t count, json_t **out) {
  const json_t *old = json_object_get(manifest, "setup"), *outcome = json_object_get(manifest, "outcome");
  json_t *list = json_array(), *built = json_copy((json_t *)(uintptr_t)old);
  json_t *changed = json_pack("{s:o, s:[], s:{s:O, s:O}}", "tasks", list, "perturbed", "rescored_from", "manifest_digest",
                             json_object_get(manifest, "manifest_digest"), "results_digest", json_object_get(outcome, "results_digest"));
  bool without_text = json_is_false(json_object_get(old, "with_text"));
  status result = built && changed ? OK : no_memory();
  for (uint32_t i = 0; result == OK && i < count; i++) {
    const json_t *max_len = json_object_get(json_array_get(json_object_get(old, "tasks"), i), "max_len");
    result = task_json(&tasks[i], (uint32_t)json_integer_value(max_len), without_text, list);
  }
  if (result == OK && json_object_update(built, changed) != 0) result = no_memory();
  json_decref(changed);
  if (result == OK) *out = built;
  else json_decref(built);
  return result;
}

static status digest_json(const json_t *setup, const json_t *outcome, digest *out) {
  json_t *whole = json_pack("[i, O, O]", EVAL_MANIFEST_VERSION, setup, outcome);
  char *text = whole ? json_dumps(whole, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
  json_decref(whole);
  if (!text) return no_memory();
  *out = digest_of(text, strlen(text));
  free(text);
  return OK;
}

status eval_manifest_make(json_t *setup, json_t *outcome, json_t *run, json_t **out) {
  digest whole = {{0}};
  if (outcome) TRY(digest_json(setup, outcome, &whole));
  json_t *built = json_pack("{s:i, s:o, s:O, s:o, s:O}", "verbatim_evaluation", EVAL_MANIFEST_VERSION, "manifest_digest",
                           outcome ? hex(whole.bytes) : json_null(), "run", run, "outcome", outcome ? json_incref(outcome) : json_null(),
                           "setup", setup);
  if (!built) return no_memory();
  *out = built;
  return OK;
}

/* === Reading ================================================================================================================ */

static bool is_hex(const json_t *value) {
  const char *text = json_string_value(value);
  return text && json_string_length(value) == DIGEST_TEXT_BYTES - 1 && strspn(text, "0123456789abcdef") == DIGEST_TEXT_BYTES - 1;
}

static digest digest_from(const json_t *value) {
  digest built = {{0}};
  const char *text = json_string_value(value);
  for (uint32_t i = 0; i < 2 * DIGEST_BYTES; i++)
    built.bytes[i / 2] = (uint8_t)(built.bytes[i / 2] << 4 | (text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10));
  return built;
}

static status check_digests(const json_t *object, const char *const *keys, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!is_hex(json_object_get(object, keys[i]))) return FAIL(ERR_FORMAT, "manifest: %s: expected 32 hexadecimal digits", keys[i]);
  return OK;
}

/* Checks that a text has the digest and size recorded next to it. */
static status check_file(const json_t *task, const char *which, bool is_needed, bool with_text) {
  const json_t *file = json_object_get(task, which), *text = json_object_get(file, "text"), *name = json_object_get(file, "name");
  const json_t *bytes = json_object_get(file, "bytes"), *expected = json_object_get(file, "digest");
  if (!is_needed && json_is_null(file)) return OK;
  if (!json_is_string(name) || strlen(json_string_value(name)) != json_string_length(name) || !is_hex(expected) ||
      !json_is_integer(bytes) || json_integer_value(bytes) < 0 || !(json_is_string(text) || (json_is_null(text) && !with_text)))
    return FAIL(ERR_FORMAT, "manifest: %s: expected name, digest, bytes and text of a file", which);
  if (json_is_null(text)) return OK;
  digest found = digest_of(json_string_value(text), json_string_length(text)), stated = digest_from(expected);
  if ((uint64_t)json_integer_value(bytes) == json_string_length(text) && memcmp(&found, &stated, sizeof found) == 0) return OK;
  return FAIL(ERR_MISMATCH, "manifest: %s: the text does not have the stated digest; was it edited?", which);
}

static status check_setup(const json_t *setup) {
  static const char *const keys[] = {"numerics_id", "config_digest", "weights_digest", "tokenizer_digest"};
  const json_t *tasks = json_object_get(setup, "tasks"), *perturbed = json_object_get(setup, "perturbed");
  const json_t *template = json_object_get(setup, "chat_template");
  TRY(check_digests(setup, keys, ARRAY_LEN(keys)));
  if (!json_is_null(template) && !(json_is_string(json_object_get(template, "name")) && is_hex(json_object_get(template, "digest"))))
    return FAIL(ERR_FORMAT, "manifest: chat_template: expected name and digest, or null");
  static const char *const rescored[] = {"manifest_digest", "results_digest"};
  if (json_object_get(setup, "rescored_from")) TRY(check_digests(json_object_get(setup, "rescored_from"), rescored, ARRAY_LEN(rescored)));
  const json_t *generation = json_object_get(setup, "generation_config");
  if (generation && !json_is_object(generation)) return FAIL(ERR_FORMAT, "manifest: generation_config: expected an object");
  if (!json_is_boolean(json_object_get(setup, "with_text"))) return FAIL(ERR_FORMAT, "manifest: with_text: expected true or false");
  if (!json_is_array(tasks) || json_array_size(tasks) == 0 || json_array_size(tasks) > EVAL_MANIFEST_TASKS_MAX)
    return FAIL(ERR_FORMAT, "manifest: tasks: expected a list of 1 to %u", EVAL_MANIFEST_TASKS_MAX);
  for (size_t i = 0; i < json_array_size(tasks); i++) {
    const json_t *task = json_array_get(tasks, i);
    TRY(check_file(task, "file", true, true));
    TRY(check_file(task, "items", true, false));
    TRY(check_file(task, "shots", false, false));
  }
  if (!json_is_array(perturbed)) return FAIL(ERR_FORMAT, "manifest: perturbed: expected a list");
  for (size_t i = 0; i < json_array_size(perturbed); i++) TRY(check_digests(json_array_get(perturbed, i), keys, 2));
  return OK;
}

static status check_outcome(const json_t *manifest) {
  static const char *const keys[] = {"results_digest", "receipt_digest"};
  const json_t *outcome = json_object_get(manifest, "outcome"), *stated = json_object_get(manifest, "manifest_digest");
  digest whole;
  if (json_is_null(outcome) && json_is_null(stated)) return OK;
  if (!json_is_object(outcome) || !is_hex(stated))
    return FAIL(ERR_FORMAT, "manifest: expected outcome and manifest_digest, or null for both");
  TRY(check_digests(outcome, keys, ARRAY_LEN(keys)));
  if (!json_is_object(json_object_get(outcome, "scores"))) return FAIL(ERR_FORMAT, "manifest: scores: expected an object");
  TRY(digest_json(json_object_get(manifest, "setup"), outcome, &whole));
  digest expected = digest_from(stated);
  if (memcmp(&whole, &expected, sizeof whole) == 0) return OK;
  return FAIL(ERR_MISMATCH, "manifest: it does not have the stated digest; was it edited?");
}

static bool is_sha256(const json_t *value) {
  const char *text = json_string_value(value);
  if (json_is_null(value)) return true;
  return text && json_string_length(value) == SHA256_TEXT_BYTES - 1 && strspn(text, "0123456789abcdef") == SHA256_TEXT_BYTES - 1;
}

static status check_all_sha256(const json_t *object, const char *const *keys, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!is_sha256(json_object_get(object, keys[i])))
      return FAIL(ERR_FORMAT, "manifest: sha256: %s: expected 64 hexadecimal digits, or null", keys[i]);
  return OK;
}

/* Manifests of earlier programs have none. */
static status check_strong(const json_t *manifest) {
  static const char *const keys[] = {"plan", "config", "weights", "results", "receipt"}, *const of_task[] = {"file", "items", "shots"};
  const json_t *all = json_object_get(manifest, "sha256"), *tasks = json_object_get(all, "tasks"), *others = json_object_get(all,
                                                                                                                            "perturbed");
  if (!all) return OK;
  TRY(check_all_sha256(all, keys, ARRAY_LEN(keys)));
  if (!json_is_array(tasks) || !json_is_array(others)) return FAIL(ERR_FORMAT, "manifest: sha256: expected lists: tasks and perturbed");
  for (size_t i = 0; i < json_array_size(tasks); i++) TRY(check_all_sha256(json_array_get(tasks, i), of_task, ARRAY_LEN(of_task)));
  for (size_t i = 0; i < json_array_size(others); i++)
    if (!is_sha256(json_array_get(others, i))) return FAIL(ERR_FORMAT, "manifest: sha256: perturbed: expected 64 hexadecimal digits");
  return OK;
}

static status check(const json_t *manifest) {
  const json_t *version = json_object_get(manifest, "verbatim_evaluation");
  if (!json_is_integer(version)) return FAIL(ERR_FORMAT, "manifest: expected a JSON object with \"verbatim_evaluation\"");
  if (json_integer_value(version) != EVAL_MANIFEST_VERSION)
    return FAIL(ERR_UNSUPPORTED, "manifest: version %" JSON_INTEGER_FORMAT ", this program reads %d", json_integer_value(version),
                EVAL_MANIFEST_VERSION);
  if (!json_is_object(json_object_get(manifest, "run"))) return FAIL(ERR_FORMAT, "manifest: run: expected an object");
  TRY(check_strong(manifest));
  TRY(check_setup(json_object_get(manifest, "setup")));
  return check_outcome(manifest);
}

status eval_manifest_parse(const char *text, size_t bytes, json_t **out) {
  json_error_t error;
  if (bytes > EVAL_MANIFEST_BYTES_MAX) return FAIL(ERR_LIMIT, "manifest: more than %u bytes", EVAL_MANIFEST_BYTES_MAX);
  json_t *built = json_text_load(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  if (!built)
    return FAIL(json_text_fault(&error, ERR_FORMAT), "manifest: expected JSON, found text that is not JSON: %s (line %d); hint: "
                "`verbatim eval` writes it", error.text, error.line);
  status result = check(built);
  if (result == OK) *out = built;
  else json_decref(built);
  return result;
}

static const json_t *tasks_of(const json_t *manifest) { return json_object_get(json_object_get(manifest, "setup"), "tasks"); }

uint32_t eval_manifest_task_count(const json_t *manifest) { return (uint32_t)json_array_size(tasks_of(manifest)); }

eval_manifest_file eval_manifest_file_of(const json_t *manifest, uint32_t task, const char *which) {
  const json_t *file = json_object_get(json_array_get(tasks_of(manifest), task), which), *text = json_object_get(file, "text");
  if (!json_is_object(file)) return (eval_manifest_file){0};
  return (eval_manifest_file){.name = json_string_value(json_object_get(file, "name")), .text = json_string_value(text),
                              .bytes = (size_t)json_integer_value(json_object_get(file, "bytes")),
                              .digest = digest_from(json_object_get(file, "digest"))};
}

/* === Comparing ============================================================================================================== */

/* The value on one line, shortened if long; JSON escapes control characters. */
static void show(const json_t *value, char text[VALUE_BYTES_MAX]) {
  char *dumped = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
  size_t bytes = dumped ? strlen(dumped) : 0;
  snprintf(text, VALUE_BYTES_MAX, "%.*s%s", (int)(VALUE_BYTES_MAX - 4), dumped ? dumped : "nothing",
           bytes > VALUE_BYTES_MAX - 4 ? "..." : "");
  free(dumped);
}

static bool tell(const json_t *a, const json_t *b, const char *path, char *text) {
  char values[2][VALUE_BYTES_MAX];
  show(a, values[0]);
  show(b, values[1]);
  snprintf(text, EVAL_MANIFEST_DIFFERENCE_BYTES, "%s: %s, %s", path, values[0], values[1]);
  return true;
}

static bool differ(const json_t *a, const json_t *b, const char *path, char *text);

/* The path of a key in an object. The key may be hostile and end up on a terminal. */
static void step(const char *path, const char *key, char inner[PATH_BYTES_MAX]) {
  snprintf(inner, PATH_BYTES_MAX, "%s%s%.64s", path, *path ? "." : "", key);
  for (char *c = inner; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
}

static bool differ_in_keys(const json_t *a, const json_t *b, const char *path, char *text) {
  const char *key;
  json_t *value;
  char inner[PATH_BYTES_MAX];
  json_object_foreach((json_t *)(uintptr_t)a, key, value) {
    step(path, key, inner);
    if (differ(value, json_object_get(b, key), inner, text)) return true;
  }
  json_object_foreach((json_t *)(uintptr_t)b, key, value) {
    step(path, key, inner);
    if (!json_object_get(a, key)) return tell(NULL, value, inner, text);
  }
  return false;
}

static bool differ(const json_t *a, const json_t *b, const char *path, char *text) {
  char inner[PATH_BYTES_MAX];
  if (json_equal(a, b)) return false;
  if (json_is_object(a) && json_is_object(b)) return differ_in_keys(a, b, path, text);
  if (!json_is_array(a) || !json_is_array(b)) return tell(a, b, path, text);
  for (size_t i = 0; i < json_array_size(a) || i < json_array_size(b); i++) {
    snprintf(inner, sizeof inner, "%.250s[%zu]", path, i);
    if (differ(json_array_get(a, i), json_array_get(b, i), inner, text)) return true;
  }
  return false;
}

bool eval_manifest_difference(const json_t *a, const json_t *b, char text[EVAL_MANIFEST_DIFFERENCE_BYTES]) {
  return differ(a, b, "", text);
}
