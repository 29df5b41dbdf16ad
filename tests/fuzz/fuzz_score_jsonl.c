/* fuzz_score_jsonl.c - a line of items to score, as `verbatim score` reads it. An accepted line has its parts either all as text or all as
 * ids, and gives the same item with its keys in another order; an error adds nothing. */
#include "engine/jsonl/score_items.h"
#include "engine/base/utf8.h"
#include "fuzz.h"
#include <jansson.h>

static void check_part(const score_part *p) {
  ASSERT(!p->text || !p->ids);
  ASSERT(!p->text || (p->text[p->bytes] == 0 && utf8_valid_bytes((const uint8_t *)p->text, p->bytes) == p->bytes));
  for (uint32_t i = 0; i < p->id_count; i++) ASSERT(p->ids[i] >= 0);
}

static void check_item(const score_item *i) {
  ASSERT(i->id && i->line == 1 && i->parts && i->part_count >= 1 && i->part_count <= SCORE_ITEMS_PARTS_MAX);
  ASSERT(i->answer >= -1 && i->answer < (int32_t)i->part_count);
  check_part(&i->context);
  bool is_text = i->parts[0].text != NULL, has_context = i->context.text || i->context.ids;
  ASSERT(!has_context || is_text == (i->context.text != NULL));
  for (uint32_t n = 0; n < i->part_count; n++) {
    check_part(&i->parts[n]);
    ASSERT(is_text ? i->parts[n].text != NULL : i->parts[n].ids != NULL);
  }
}

static void check_same(const score_part *a, const score_part *b) {
  ASSERT(!a->text == !b->text && !a->ids == !b->ids && a->bytes == b->bytes && a->id_count == b->id_count);
  ASSERT(!a->text || memcmp(a->text, b->text, a->bytes) == 0);
  ASSERT(!a->ids || memcmp(a->ids, b->ids, a->id_count * sizeof *a->ids) == 0);
}

static void check_order(const char *line, size_t bytes, const score_item *first) {
  score_items again = {0};
  json_t *root = json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
  char *sorted = json_dumps(root, JSON_SORT_KEYS);
  ASSERT(sorted != NULL);
  ASSERT(score_items_add(&again, sorted, strlen(sorted), 1, &(score_conditions){0}) == OK);
  const score_item *second = &again.list[0];
  ASSERT(strcmp(first->id, second->id) == 0 && first->part_count == second->part_count && first->answer == second->answer);
  ASSERT(first->is_list == second->is_list && !first->echo == !second->echo);
  ASSERT(first->conditions.deadline_seconds >= 0 && first->conditions.required_count == second->conditions.required_count);
  for (uint32_t n = 0; n < first->conditions.required_count; n++)
    ASSERT(strcmp(first->conditions.required[n], second->conditions.required[n]) == 0);
  check_same(&first->context, &second->context);
  for (uint32_t n = 0; n < first->part_count; n++) check_same(&first->parts[n], &second->parts[n]);
  score_items_close(&again);
  free(sorted);
  json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  score_items list = {0};
  fail_clear();
  if (!fuzz_is_ok(score_items_add(&list, (const char *)data, bytes, 1, &(score_conditions){0}))) {
    ASSERT(list.count == 0);
    score_items_close(&list);
    return 0;
  }
  ASSERT(list.count == 1);
  check_item(&list.list[0]);
  check_order((const char *)data, bytes, &list.list[0]);
  score_items_close(&list);
  return 0;
}
