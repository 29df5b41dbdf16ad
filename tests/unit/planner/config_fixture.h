/* config_fixture.h - configurations of real models, as they are or with one field changed. */
#ifndef VERBATIM_CONFIG_FIXTURE_H
#define VERBATIM_CONFIG_FIXTURE_H
#include <jansson.h>
#include "planner/model_config.h"
#include "planner_fixture.h"

#define V3 "tests/data/configs/deepseek-v3.json"
#define V3_NEW "tests/data/configs/deepseek-v3-hf5.json"
#define V32 "tests/data/configs/deepseek-v3.2.json"
#define GLM5 "tests/data/configs/glm-5.json"
#define GLM52 "tests/data/configs/glm-5.2-fp8.json"
#define V2 "tests/data/configs/deepseek-v2.json"
#define V2_LITE "tests/data/configs/deepseek-v2-lite.json"
#define MOONLIGHT "tests/data/configs/moonlight.json"
#define KIMI "tests/data/configs/kimi-k2.json"
#define GLM "tests/data/configs/glm-4.7-flash.json"
#define YOUTU "tests/data/configs/youtu-2b.json"
#define MINICPM "tests/data/configs/minicpm3-4b.json"
#define MISTRAL "tests/data/configs/mistral-small-4.json"
#define KIMI_NESTED "tests/data/configs/kimi-k2.5.json"
#define TINY "tests/data/configs/tiny.json"

static inline status parse_text(const char *text, size_t bytes, model_config *out) {
  fail_clear();
  return model_config_parse(text, bytes, out);
}

static inline model_config parse_file(const char *path) {
  model_config config = {0};
  fixture_bytes text = fixture_read(path);
  status result = parse_text(text.bytes, text.count, &config);
  free(text.bytes);
  if (result != OK) fail_msg("%s: %s", path, fail_text());
  return config;
}

/* The model, with the frequencies for sequences as long as its training length. */
static inline plan_model plan_of(const model_config *c) { return model_config_plan(c, c->max_position); }

static inline plan_model plan_of_file(const char *path) {
  model_config c = parse_file(path);
  return plan_of(&c);
}

static inline void change_field(json_t *object, const char *name, const char *value) {
  char outer[64];
  for (const char *dot; (dot = strchr(name, '.')); name = dot + 1) {
    snprintf(outer, sizeof outer, "%.*s", (int)(dot - name), name);
    object = json_object_get(object, outer);
    assert_non_null(object);
  }
  if (value) assert_int_equal(json_object_set_new(object, name, json_loads(value, JSON_DECODE_ANY, NULL)), 0);
  else json_object_del(object, name);
}

/* The config at `path` with the fields at `name` and `other` ("a", "a.b", ...) set to the JSON values, or removed if those are null. */
static inline status parse_two_changed(const char *path, const char *name, const char *value, const char *other, const char *other_value,
                                       model_config *out) {
  fixture_bytes text = fixture_read(path);
  json_t *root = json_loadb(text.bytes, text.count, 0, NULL);
  change_field(root, name, value);
  change_field(root, other, other_value);
  char *changed = json_dumps(root, 0);
  status result = parse_text(changed, strlen(changed), out);
  free(changed);
  free(text.bytes);
  json_decref(root);
  return result;
}

static inline status parse_changed(const char *path, const char *name, const char *value, model_config *out) {
  return parse_two_changed(path, name, value, name, value, out);
}

/* A field with a value that the parser must refuse: with the code, and with a text that contains the words. */
typedef struct bad_field {
  const char *path, *name, *value, *words; /* as in parse_changed */
  status code;
} bad_field;

/* Each field is refused as it says, and the caller's config keeps what it held. */
static inline void expect_refusals(const bad_field *fields, size_t count) {
  for (size_t i = 0; i < count; i++) {
    model_config c = {.max_position = 12345};
    fixture_expect(parse_changed(fields[i].path, fields[i].name, fields[i].value, &c), fields[i].code, fields[i].words);
    assert_int_equal(c.max_position, 12345);
  }
}

#endif
