/* draft.c - the growable tables of draft.h.
 *
 * One list type serves all of them; items are plain structs, zeroed when added, so that padding in the file is zero. Knows nothing of the
 * tables' meaning. Read next: graph.c. */
#include "draft.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void list_init(draft_list *list, size_t item_bytes) {
  memset(list, 0, sizeof *list);
  list->item_bytes = (uint32_t)item_bytes;
}

void draft_init(draft *self) {
  memset(self, 0, sizeof *self);
  list_init(&self->tensors, sizeof(plan_tensor));
  list_init(&self->buffers, sizeof(plan_buffer));
  list_init(&self->specs, sizeof(plan_spec));
  list_init(&self->kernels, sizeof(plan_kernel));
  list_init(&self->ops, sizeof(plan_op));
  list_init(&self->gemms, sizeof(plan_gemm));
  list_init(&self->guarantees, sizeof(plan_guarantee));
  list_init(&self->ladder, sizeof(uint32_t));
  list_init(&self->notes, sizeof(uint32_t));
  list_init(&self->args, 1);
  list_init(&self->strings, 1);
  list_init(&self->refs, sizeof(draft_ref));
  self->gemm_workspace = DRAFT_NONE;
}

void draft_deinit(draft *self) {
  draft_list *lists[] = {&self->tensors, &self->buffers, &self->specs,  &self->kernels, &self->ops,     &self->gemms,
                         &self->guarantees, &self->ladder, &self->notes, &self->args,   &self->strings, &self->refs};
  for (size_t i = 0; i < ARRAY_LEN(lists); i++) free(lists[i]->items);
  memset(self, 0, sizeof *self);
}

void *draft_append(draft_list *list, uint32_t count) {
  ASSERT(list->item_bytes > 0);
  ASSERT(count <= UINT32_MAX / 4 - list->count);
  if (list->count + count > list->capacity) {
    uint32_t capacity = max_u32(list->capacity * 2, max_u32(list->count + count, 64));
    void *items = realloc(list->items, (size_t)capacity * list->item_bytes);
    ASSERT(items != NULL);
    list->items = items;
    list->capacity = capacity;
  }
  char *added = (char *)list->items + (size_t)list->count * list->item_bytes;
  memset(added, 0, (size_t)count * list->item_bytes);
  list->count += count;
  return added;
}

uint32_t draft_text(draft *self, const char *text) {
  uint32_t string = self->strings.count;
  uint32_t bytes = (uint32_t)strlen(text) + 1;
  memcpy(draft_append(&self->strings, bytes), text, bytes);
  return string;
}

uint32_t draft_string(draft *self, const char *format, ...) {
  char text[NAME_BYTES_MAX];
  va_list args;
  va_start(args, format);
  int length = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  ASSERT(length >= 0);
  ASSERT((size_t)length < sizeof text);
  return draft_text(self, text);
}

const char *draft_string_at(const draft *self, uint32_t string) {
  ASSERT(string < self->strings.count);
  return (const char *)self->strings.items + string;
}

void draft_note(draft *self, const char *text) {
  uint32_t string = draft_text(self, text);
  *(uint32_t *)draft_append(&self->notes, 1) = string;
}

uint32_t draft_buffer(draft *self, uint32_t region, uint64_t bytes, uint32_t name) {
  ASSERT(region < REGION_COUNT);
  uint32_t buffer = self->buffers.count;
  plan_buffer *added = draft_append(&self->buffers, 1);
  *added = (plan_buffer){.name = name, .region = region, .bytes = bytes, .first_op = 0, .last_op = UINT32_MAX};
  return buffer;
}

plan_buffer *draft_buffer_at(draft *self, uint32_t buffer) {
  ASSERT(buffer < self->buffers.count);
  return (plan_buffer *)self->buffers.items + buffer;
}
