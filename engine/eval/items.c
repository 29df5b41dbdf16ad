/* eval/items.c - see eval/items.h. Lines become records; records that pass `where` become items. */
#include "eval/items.h"
#include "jsonl/json_line.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct record {
  json_t *object;
  uint32_t line;
} record;

typedef struct records {
  record *list;
  uint32_t count, room;
} records;

typedef struct maker {
  const eval_task *task;
  records own, shots;    /* shots: only if they come from another file */
  const records *pool;   /* source of examples; NULL: no examples */
  uint32_t *order;       /* [shown]: indices into the pool */
  eval_text *examples;   /* [shown], rendered, each followed by a separator */
  uint32_t shown;        /* one more than the task's count if the pool allows it, because the item itself is skipped */
  json_t *seen;          /* ids so far, as keys */
} maker;

/* === Records ================================================================================================================ */

static bool is_wanted(const eval_task *task, const json_t *object) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)task->where, key, value)
    if (!json_equal(json_object_get(object, key), value)) return false;
  return true;
}

static status add_record(records *self, json_t *object, uint32_t line) {
  if (self->count == EVAL_ITEMS_MAX) return FAIL(ERR_LIMIT, "more than %u items", EVAL_ITEMS_MAX);
  if (self->count == self->room) {
    uint32_t room = self->room ? 2 * self->room : 64;
    record *grown = realloc(self->list, room * sizeof *grown);
    if (!grown) return json_line_no_memory();
    self->list = grown;
    self->room = room;
  }
  self->list[self->count++] = (record){.object = object, .line = line};
  return OK;
}

/* task NULL: every line is kept. */
static status read_records(records *self, const eval_task *task, eval_source from) {
  uint32_t number = 0;
  for (size_t at = 0; at < from.bytes;) {
    const char *line = from.text + at, *end = memchr(line, '\n', from.bytes - at);
    size_t bytes = end ? (size_t)(end - line) : from.bytes - at;
    at += bytes + 1;
    number++;
    if (bytes && line[bytes - 1] == '\r') bytes--;
    if (bytes == 0) continue;
    json_t *object = NULL;
    TRY(json_line_parse(line, bytes, number, &object));
    status result = OK;
    if (!task || is_wanted(task, object)) result = add_record(self, json_incref(object), number);
    if (result != OK) json_decref(object);
    json_decref(object);
    TRY(result);
  }
  return OK;
}

static void close_records(records *self) {
  for (uint32_t i = 0; i < self->count; i++) json_decref(self->list[i].object);
  free(self->list);
}

/* === Answers ================================================================================================================ */

static bool is_one(const json_t *value) { return json_is_string(value) || json_is_number(value); }

static status check_answer(const eval_task *task, const json_t *value) {
  size_t count = json_array_size(value);
  bool good = json_is_array(value) ? count > 0 && count <= 1024 : is_one(value);
  for (size_t i = 0; good && i < count; i++) good = is_one(json_array_get(value, i));
  if (!value) return FAIL(ERR_FORMAT, "answer: the item has no field \"%.64s\"", task->answer_field);
  if (!good) return FAIL(ERR_FORMAT, "answer: expected a text, a number, or a list of these");
  if (task->match == EVAL_MATCH_EXACT)
    for (size_t i = 0; i < max_u32((uint32_t)count, 1); i++)
      if (json_is_real(json_is_array(value) ? json_array_get(value, i) : value))
        return FAIL(ERR_FORMAT, "answer: expected a text or a whole number; hint: match: number compares others");
  return OK;
}

/* The field's value unchanged, or a rendered text. *out is the caller's. */
static status make_answer(const eval_task *task, const json_t *object, json_t **out) {
  if (task->answer_field) {
    const json_t *value = json_object_get(object, task->answer_field);
    TRY(check_answer(task, value));
    *out = json_deep_copy(value);
    return *out ? OK : json_line_no_memory();
  }
  eval_text text = {0};
  status result = eval_prompt_render(&text, task->answer, object);
  if (result == OK && !(*out = json_stringn(text.bytes, text.count))) result = json_line_no_memory();
  free(text.bytes);
  return result;
}

static status append_choice(json_t *list, const char *bytes, size_t count) {
  if (count == 0) return FAIL(ERR_FORMAT, "choices: expected texts that are not empty");
  return json_array_append_new(list, json_stringn(bytes, count)) == 0 ? OK : json_line_no_memory();
}

static status fill_choices(const eval_task *task, const json_t *object, json_t *list) {
  if (json_is_string(task->choices)) {
    const json_t *value = json_object_get(object, json_string_value(task->choices));
    if (!json_is_array(value) || json_array_size(value) < 2 || json_array_size(value) > 1024)
      return FAIL(ERR_FORMAT, "choices: expected a list of 2 to 1024 texts in the field \"%.64s\"", json_string_value(task->choices));
    for (size_t i = 0; i < json_array_size(value); i++) {
      const json_t *one = json_array_get(value, i);
      if (!json_is_string(one)) return FAIL(ERR_FORMAT, "choices: expected texts");
      TRY(append_choice(list, json_string_value(one), json_string_length(one)));
    }
    return OK;
  }
  for (size_t i = 0; i < json_array_size(task->choices); i++) {
    eval_text text = {0};
    status result = eval_prompt_render(&text, json_string_value(json_array_get(task->choices, i)), object);
    if (result == OK) result = append_choice(list, text.bytes, text.count);
    free(text.bytes);
    TRY(result);
  }
  return OK;
}

/* An integer is an index; a text selects the first choice equal to it. */
static status find_choice(const json_t *answer, const json_t *choices, uint32_t *out) {
  size_t count = json_array_size(choices);
  if (json_is_integer(answer)) {
    json_int_t index = json_integer_value(answer);
    if (index < 0 || (size_t)index >= count)
      return FAIL(ERR_FORMAT, "answer: expected an index of 0 to %zu, found %" JSON_INTEGER_FORMAT, count - 1, index);
    *out = (uint32_t)index;
    return OK;
  }
  for (size_t i = 0; json_is_string(answer) && i < count; i++) {
    if (!json_equal(json_array_get(choices, i), answer)) continue;
    *out = (uint32_t)i;
    return OK;
  }
  return FAIL(ERR_FORMAT, "answer: expected the index of a choice, or exactly its text");
}

static status make_choices(const eval_task *task, const json_t *object, eval_item *out) {
  json_t *answer = NULL;
  if (!(out->choices = json_array())) return json_line_no_memory();
  TRY(fill_choices(task, object, out->choices));
  TRY(make_answer(task, object, &answer));
  status result = find_choice(answer, out->choices, &out->answer_index);
  json_decref(answer);
  return result;
}

/* === Examples =============================================================================================================== */

/* The text that an example shows as its answer, as a JSON string. */
static status shown_answer(const eval_task *task, const json_t *object, json_t **out) {
  eval_item item = {0};
  if (task->kind == EVAL_CHOICE) {
    status result = make_choices(task, object, &item);
    if (result == OK) *out = json_incref(json_array_get(item.choices, item.answer_index));
    json_decref(item.choices);
    return result;
  }
  TRY(make_answer(task, object, out));
  if (!json_is_array(*out)) return OK;
  json_t *first = json_incref(json_array_get(*out, 0));
  json_decref(*out);
  *out = first;
  return OK;
}

/* The example's template sees the record's fields, except that "prompt" and "answer" are the task's renderings. */
static status render_example(const eval_task *task, const json_t *object, eval_text *out) {
  eval_text prompt = {0};
  json_t *fields = json_copy((json_t *)(uintptr_t)object), *answer = NULL;
  status result = fields ? eval_prompt_render(&prompt, task->prompt, object) : json_line_no_memory();
  if (result == OK) result = shown_answer(task, object, &answer);
  if (result == OK && json_is_real(answer)) result = FAIL(ERR_FORMAT, "answer: expected a text or a whole number to show");
  if (result == OK && json_object_set_new(fields, "prompt", json_stringn(prompt.bytes, prompt.count)) != 0) result = json_line_no_memory();
  if (result == OK && json_object_set(fields, "answer", answer) != 0) result = json_line_no_memory();
  if (result == OK) result = eval_prompt_render(out, task->shot, fields);
  if (result == OK) result = eval_prompt_append(out, task->separator, strlen(task->separator));
  free(prompt.bytes);
  json_decref(answer);
  json_decref(fields);
  return result;
}

static status name_line(status result, const char *what, uint32_t line) {
  char prefix[64];
  snprintf(prefix, sizeof prefix, "%sline %u", what, line);
  if (result != OK) fail_prefix(prefix);
  return result;
}

/* The order of the pool: as in the file, or drawn at random. Only its first entries are kept. */
static status draw_order(maker *self) {
  uint32_t count = self->pool->count;
  uint64_t state = self->task->shot_seed;
  if (!(self->order = calloc((uint64_t)count + 1, sizeof *self->order))) return json_line_no_memory();
  for (uint32_t i = 0; i < count; i++) self->order[i] = i;
  for (uint32_t i = count; self->task->has_shot_seed && i > 1; i--) {
    uint32_t j = (uint32_t)(((random_next(&state) >> 32) * i) >> 32), kept = self->order[j];
    self->order[j] = self->order[i - 1];
    self->order[i - 1] = kept;
  }
  return OK;
}

static status make_examples(maker *self) {
  uint32_t wanted = self->task->shot_count;
  bool own = self->pool == &self->own;
  if (self->pool->count < wanted + own)
    return FAIL(ERR_FORMAT, "few_shot: expected %u examples%s, found %u", wanted, own ? " beside the item" : "",
                self->pool->count ? self->pool->count - own : 0);
  TRY(draw_order(self));
  if (!(self->examples = calloc(wanted + 1u, sizeof *self->examples))) return json_line_no_memory();
  for (self->shown = 0; self->shown < wanted + own; self->shown++) {
    const record *r = &self->pool->list[self->order[self->shown]];
    TRY(name_line(render_example(self->task, r->object, &self->examples[self->shown]), own ? "" : "examples: ", r->line));
  }
  return OK;
}

/* own: the item's index in the pool, or UINT32_MAX. */
static status append_examples(const maker *self, uint32_t own, eval_text *out) {
  for (uint32_t i = 0, used = 0; used < self->task->shot_count && i < self->shown; i++) {
    if (self->order[i] == own) continue;
    TRY(eval_prompt_append(out, self->examples[i].bytes, self->examples[i].count));
    used++;
  }
  return OK;
}

/* === Items ================================================================================================================== */

static status read_id(maker *self, const json_t *object, uint32_t line, uint32_t index, eval_item *out) {
  const json_t *value = json_object_get(object, "id");
  const json_line_key at = {.line = line, .name = "id"};
  char number[16];
  snprintf(number, sizeof number, "%u", index);
  if (value) TRY(json_line_id(&at, value, &out->id));
  else if (!(out->id = json_line_copy(number, strlen(number)))) return json_line_no_memory();
  if (json_object_get(self->seen, out->id)) return FAIL(ERR_FORMAT, "the id \"%.64s\" occurs twice", out->id);
  return json_object_set_new(self->seen, out->id, json_true()) == 0 ? OK : json_line_no_memory();
}

/* The value of the field that the key of the task names, as a text; *out stays NULL if the task has no such key. */
static status read_name(const char *key, const char *field, const json_t *object, char **out) {
  eval_text text = {0};
  char template[EVAL_TASK_NAME_BYTES_MAX + 8];
  if (!field) return OK;
  snprintf(template, sizeof template, "{{%s}}", field);
  status result = eval_prompt_render(&text, template, object);
  if (result == OK && (text.count == 0 || text.count > EVAL_TASK_NAME_BYTES_MAX || strlen(text.bytes) != text.count))
    result = FAIL(ERR_FORMAT, "%s: expected a name of 1 to %u bytes in \"%s\"", key, EVAL_TASK_NAME_BYTES_MAX, field);
  if (result == OK) *out = text.bytes;
  else free(text.bytes);
  return result;
}

static status fill_item(maker *self, uint32_t index, eval_item *out) {
  const eval_task *task = self->task;
  const record *r = &self->own.list[index];
  TRY(read_id(self, r->object, r->line, index, out));
  TRY(read_name("subsets", task->subsets, r->object, &out->subset));
  TRY(read_name("cluster", task->cluster, r->object, &out->cluster));
  if (task->kind == EVAL_PERPLEXITY) return eval_prompt_render(&out->prompt, task->text, r->object);
  if (self->pool) TRY(append_examples(self, self->pool == &self->own ? index : UINT32_MAX, &out->prompt));
  TRY(eval_prompt_render(&out->prompt, task->prompt, r->object));
  if (task->kind == EVAL_CHOICE) return make_choices(task, r->object, out);
  return make_answer(task, r->object, &out->answer);
}

static status make_items(maker *self, eval_items *out) {
  uint32_t count = self->own.count;
  if (self->task->limit) count = min_u32(count, self->task->limit);
  if (count == 0) return FAIL(ERR_FORMAT, "there is no item%s", self->task->where ? " that \"where\" leaves" : "");
  if (!(out->list = calloc(count, sizeof *out->list))) return json_line_no_memory();
  out->room = count;
  for (uint32_t i = 0; i < count; i++) {
    out->count++;
    TRY(name_line(fill_item(self, i, &out->list[i]), "", self->own.list[i].line));
  }
  return OK;
}

static status make_all(maker *self, eval_source lines, eval_source shots, eval_items *out) {
  TRY(read_records(&self->own, self->task, lines));
  if (shots.text) {
    status result = read_records(&self->shots, NULL, shots);
    if (result != OK) fail_prefix("examples");
    TRY(result);
  }
  if (self->task->shot_count) {
    self->pool = self->task->shots ? &self->shots : &self->own;
    TRY(make_examples(self));
  }
  return make_items(self, out);
}

status eval_items_make(const eval_task *task, eval_source lines, eval_source shots, eval_items *out) {
  maker self = {.task = task, .seen = json_object()};
  eval_items built = {0};
  status result = self.seen ? make_all(&self, lines, shots, &built) : json_line_no_memory();
  for (uint32_t i = 0; self.examples && i <= task->shot_count; i++) free(self.examples[i].bytes);
  free(self.examples);
  free(self.order);
  close_records(&self.own);
  close_records(&self.shots);
  json_decref(self.seen);
  if (result == OK) *out = built;
  else eval_items_close(&built);
  return result;
}

void eval_items_close(eval_items *self) {
  for (uint32_t i = 0; i < self->count; i++) {
    eval_item *item = &self->list[i];
    free(item->id);
    free(item->subset);
    free(item->cluster);
    free(item->prompt.bytes);
    json_decref(item->answer);
    json_decref(item->choices);
  }
  free(self->list);
  *self = (eval_items){0};
}
