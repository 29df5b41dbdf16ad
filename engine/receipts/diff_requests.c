/* diff_requests.c - see diff_requests.h. Both lists are sorted by id and walked together. */
#include "receipts/diff_requests.h"
#include <stdlib.h>
#include <string.h>

status diff_requests_add(diff_requests *self, const char *id, digest contents) {
  if (self->count == DIFF_REQUESTS_MAX) return FAIL(ERR_LIMIT, "diff: more than %u requests in a file", DIFF_REQUESTS_MAX);
  if (self->count == self->room) {
    uint32_t room = self->room ? 2 * self->room : 64;
    diff_request *grown = realloc(self->list, room * sizeof *grown);
    if (!grown) return FAIL(ERR_LIMIT, "diff: no memory");
    self->list = grown;
    self->room = room;
  }
  char *copy = malloc(strlen(id) + 1);
  if (!copy) return FAIL(ERR_LIMIT, "diff: no memory");
  strcpy(copy, id);
  self->list[self->count++] = (diff_request){.id = copy, .match = DIFF_REQUESTS_NONE, .contents = contents};
  return OK;
}

/* By id; equal ids keep the order of the list. */
static int compare(const void *x, const void *y) {
  const diff_request *a = *(diff_request *const *)x, *b = *(diff_request *const *)y;
  int order = strcmp(a->id, b->id);
  return order ? order : a < b ? -1 : a > b;
}

static diff_request **sort(const diff_requests *self) {
  diff_request **sorted = malloc((self->count + 1ull) * sizeof *sorted);
  for (uint32_t i = 0; sorted && i < self->count; i++) sorted[i] = &self->list[i];
  if (sorted) qsort(sorted, self->count, sizeof *sorted, compare);
  return sorted;
}

static void pair(diff_requests *a, diff_request *x, diff_requests *b, diff_request *y) {
  x->match = (uint32_t)(y - b->list);
  y->match = (uint32_t)(x - a->list);
  x->differs = y->differs = memcmp(x->contents.bytes, y->contents.bytes, DIGEST_BYTES) != 0;
}

status diff_requests_match(diff_requests *a, diff_requests *b) {
  diff_request **x = sort(a), **y = sort(b);
  for (uint32_t i = 0, j = 0; x && y && i < a->count && j < b->count;) {
    int order = strcmp(x[i]->id, y[j]->id);
    if (order == 0) pair(a, x[i], b, y[j]);
    i += order <= 0;
    j += order >= 0;
  }
  bool good = x && y;
  free(x);
  free(y);
  return good ? OK : FAIL(ERR_LIMIT, "diff: no memory");
}

uint32_t diff_requests_differ(const diff_requests *self) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < self->count; i++) count += self->list[i].differs;
  return count;
}

uint32_t diff_requests_alone(const diff_requests *self) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < self->count; i++) count += self->list[i].match == DIFF_REQUESTS_NONE;
  return count;
}

uint32_t diff_requests_first(const diff_requests *self) {
  for (uint32_t i = 0; i < self->count; i++)
    if (self->list[i].differs) return i;
  return DIFF_REQUESTS_NONE;
}

void diff_requests_close(diff_requests *self) {
  for (uint32_t i = 0; i < self->count; i++) free(self->list[i].id);
  free(self->list);
  *self = (diff_requests){0};
}
