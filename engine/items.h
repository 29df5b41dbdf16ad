/* items.h - what a user asks for: one prompt with its sampling parameters, from an argument or a line of JSONL.
 *
 * A line is one JSON object with exactly one of "prompt" (text) and "prompt_ids" (token ids), optionally "id" (text or integer), "task",
 * "answer" (text), and "max_tokens", "temperature", "top_k", "top_p", "seed", "stop_ids", "ignore_eos", which replace the defaults.
 * Other keys are echoed into the output, except names that are sampling parameters elsewhere: those are refused, since ignoring
 * them would silently change what was asked. Knows nothing of the engine. */
#ifndef VERBATIM_ITEMS_H
#define VERBATIM_ITEMS_H
#include "base.h"
#include "verbatim.h"

#define ITEMS_MAX (1u << 22)
#define ITEMS_LINE_BYTES_MAX (32u << 20)
#define ITEMS_ID_BYTES_MAX 256u

typedef struct item_params {
  uint32_t max_tokens, top_k;
  float temperature;
  uint32_t stop_count;
  double top_p;
  uint64_t seed;
  bool ignore_eos;
  int32_t stop_ids[VERBATIM_STOP_IDS_MAX];
} item_params;

typedef struct item {
  char *id;            /* never null */
  char *prompt;        /* text, or null with ids      */
  size_t prompt_bytes;
  int32_t *ids;        /* [id_count], or null with text */
  uint32_t id_count;
  char *task, *answer; /* null: none */
  char *echo;          /* compact JSON object of the other keys, or null */
  item_params params;
} item;

typedef struct items { /* a growing list; zeroed: empty */
  item *list;
  uint32_t count, room;
} items;

/* Adds an item with a text prompt; its id is its number. */
status items_add_text(items *self, const char *text, size_t bytes, const item_params *params);

/* Adds an item from text like "1, 2 3": token ids separated by commas or spaces. */
status items_add_ids(items *self, const char *text, const item_params *params);

/* Adds an item from one line. Errors name the line. */
status items_add_json(items *self, const char *line, size_t bytes, uint32_t line_number, const item_params *defaults);
void items_close(items *self);

#endif
