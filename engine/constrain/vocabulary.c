/* vocabulary.c - see vocabulary.h. */
#define _GNU_SOURCE /* for memmem */
#include "constrain/vocabulary.h"
#include <stdlib.h>
#include <string.h>

typedef struct entry { /* a token, while they are sorted */
  const uint8_t *bytes;
  uint32_t count;
  int32_t id;
} entry;

static int compare_entries(const void *left, const void *right) {
  const entry *a = left, *b = right;
  const int order = memcmp(a->bytes, b->bytes, min_u32(a->count, b->count));
  if (order) return order;
  if (a->count != b->count) return a->count < b->count ? -1 : 1;
  return a->id < b->id ? -1 : a->id > b->id;
}

static uint32_t list_tokens(const vocabulary *self, entry *list) {
  uint32_t count = 0;
  for (uint32_t id = 0; id < self->vocab; id++) {
    size_t bytes = 0;
    const uint8_t *token = id < tokenizer_vocab_size(self->tokenizer) ? tokenizer_token_bytes(self->tokenizer, (int32_t)id, &bytes) : NULL;
    if (!token || bytes == 0 || bytes > VOCABULARY_TOKEN_BYTES_MAX || tokenizer_is_special(self->tokenizer, (int32_t)id)) continue;
    list[count++] = (entry){.bytes = token, .count = (uint32_t)bytes, .id = (int32_t)id};
  }
  qsort(list, count, sizeof *list, compare_entries);
  return count;
}

static uint32_t list_specials(const vocabulary *self, int32_t *list) {
  uint32_t count = 0;
  for (uint32_t id = 0; id < min_u32(self->vocab, (uint32_t)tokenizer_vocab_size(self->tokenizer)); id++) {
    size_t bytes = 0;
    if (!tokenizer_is_special(self->tokenizer, (int32_t)id)) continue;
    if (!tokenizer_token_bytes(self->tokenizer, (int32_t)id, &bytes) || bytes == 0) continue;
    if (list) list[count] = (int32_t)id;
    count++;
  }
  return count;
}

static uint32_t common_bytes(const entry *a, const entry *b) {
  uint32_t count = 0;
  while (count < a->count && count < b->count && a->bytes[count] == b->bytes[count]) count++;
  return count;
}

static uint64_t count_nodes(const entry *list, uint32_t count) {
  uint64_t nodes = 0;
  for (uint32_t i = 0; i < count; i++) nodes += list[i].count - (i ? common_bytes(&list[i - 1], &list[i]) : 0);
  return nodes;
}

static void close_nodes(vocabulary *self, const uint32_t *path, uint32_t from, uint32_t end) {
  for (uint32_t depth = from; depth < end; depth++) self->nodes[path[depth]].after = self->node_count;
}

static void add_nodes(vocabulary *self, const entry *list, uint32_t count) {
  uint32_t path[VOCABULARY_TOKEN_BYTES_MAX] = {0}, depth = 0;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t kept = i ? common_bytes(&list[i - 1], &list[i]) : 0;
    self->same[list[i].id] = -1;
    if (i && kept == list[i].count && kept == list[i - 1].count) {
      self->same[list[i - 1].id] = list[i].id;
      continue;
    }
    close_nodes(self, path, kept, depth);
    for (depth = kept; depth < list[i].count; depth++) {
      path[depth] = self->node_count;
      self->nodes[self->node_count++] = (vocabulary_node){.token = -1, .byte = list[i].bytes[depth], .depth = (uint8_t)(depth + 1)};
    }
    self->nodes[self->node_count - 1].token = list[i].id;
    if (list[i].count == 1) self->has_byte[list[i].bytes[0]] = true;
  }
  close_nodes(self, path, 0, depth);
}

status vocabulary_open(vocabulary *self, const tokenizer *t, uint32_t vocab, arena *host) {
  void *nodes, *same, *specials;
  *self = (vocabulary){.tokenizer = t, .vocab = vocab};
  entry *list = calloc(vocab, sizeof *list);
  if (!list) return FAIL(ERR_LIMIT, "vocabulary: no memory to sort it");
  const uint32_t count = list_tokens(self, list);
  status result = arena_take(host, sizeof *self->nodes * (count_nodes(list, count) + 1), &nodes);
  if (result == OK) result = arena_take(host, sizeof *self->same * (uint64_t)vocab, &same);
  if (result == OK) result = arena_take(host, sizeof *self->specials * (list_specials(self, NULL) + 1ull), &specials);
  if (result == OK) {
    self->specials = specials;
    self->special_count = list_specials(self, specials);
    self->nodes = nodes;
    self->same = same;
    add_nodes(self, list, count);
    self->has_all = true;
    for (uint32_t byte = 0; byte < 0xf5; byte++) self->has_all &= self->has_byte[byte] || byte == 0xc0 || byte == 0xc1;
  }
  free(list);
  return result;
}

/* The bytes of a special token that the automaton may take; NULL: not this one. */
static const uint8_t *mark_bytes(const vocabulary *self, const automaton *a, int32_t token, size_t *bytes) {
  const uint8_t *text = tokenizer_token_bytes(self->tokenizer, token, bytes);
  return text && *bytes && a->marks && memmem(a->marks, a->marks_bytes, text, *bytes) ? text : NULL;
}

void vocabulary_mask(const vocabulary *self, const automaton *a, uint32_t state, uint32_t *bits, uint32_t words) {
  uint32_t states[VOCABULARY_TOKEN_BYTES_MAX + 1];
  const vocabulary_node *nodes = self->nodes;
  states[0] = state;
  memset(bits, 0, words * sizeof *bits);
  for (uint32_t i = 0; i < self->node_count;) {
    const vocabulary_node *node = &nodes[i];
    const uint32_t next = automaton_next(a, states[node->depth - 1], node->byte);
    if (next == AUTOMATON_DEAD) {
      i = node->after;
      continue;
    }
    states[node->depth] = next;
    for (int32_t token = node->token; token >= 0; token = self->same[token]) bits[token / 32] |= 1u << token % 32;
    i++;
  }
  for (uint32_t i = 0; i < self->special_count && a->marks; i++) {
    const int32_t token = self->specials[i];
    size_t bytes = 0;
    const uint8_t *text = mark_bytes(self, a, token, &bytes);
    if (text && automaton_run(a, state, text, bytes) != AUTOMATON_DEAD) bits[token / 32] |= 1u << token % 32;
  }
}

uint32_t vocabulary_advance(const vocabulary *self, const automaton *a, uint32_t state, int32_t token) {
  size_t bytes = 0;
  const uint8_t *text = tokenizer_is_special(self->tokenizer, token) ? mark_bytes(self, a, token, &bytes)
                                                                     : tokenizer_token_bytes(self->tokenizer, token, &bytes);
  if (!text || bytes == 0) return AUTOMATON_DEAD;
  return automaton_run(a, state, text, bytes);
}

static bool leads_on(const vocabulary *self, const automaton *a, uint32_t state) {
  for (uint32_t byte = 0; byte < 256; byte++)
    if (self->has_byte[byte] && automaton_next(a, state, (uint8_t)byte) != AUTOMATON_DEAD) return true;
  return false;
}

status vocabulary_check(const vocabulary *self, const automaton *a) {
  if (self->has_all) return OK;
  for (uint32_t state = AUTOMATON_START; state < a->state_count; state++)
    if (!a->is_accepting[state] && !leads_on(self, a, state))
      return FAIL(ERR_UNSUPPORTED, "request: the constraint needs bytes that no token of the model's vocabulary has by itself");
  return OK;
}
