/* items.h - what a user asks for: one prompt with its sampling parameters, from an argument or a line of JSONL.
 *
 * A line is one JSON object with exactly one of "prompt" (text) and "prompt_ids" (token ids), optionally "id" (text or integer), "task",
 * "answer" (text), and what replaces the defaults: "max_tokens", "n" (samples), "temperature", "top_k", "top_p", "min_p",
 * "repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "logprobs" (how many alternatives), "ignore_eos", "stop_ids",
 * "stop" (a text or a list of them), "allowed_ids", "logit_bias" (an object: ids in decimal, and their biases), "deadline_seconds",
 * "require" (a list of axes of the plan's guarantees).
 * Other keys are echoed into the output, except names that are sampling parameters elsewhere: those are refused, since ignoring
 * them would silently change what was asked. Knows nothing of the engine. */
#ifndef VERBATIM_ITEMS_H
#define VERBATIM_ITEMS_H
#include "base/base.h"
#include "verbatim.h"

#define ITEMS_MAX (1u << 22)
#define ITEMS_SAMPLES_MAX 128u

typedef struct item_params { /* as in verbatim_request */
  uint32_t max_tokens, samples, top_k, top_logprobs;
  float temperature, repetition_penalty, presence_penalty, frequency_penalty;
  double top_p, min_p, deadline_seconds;
  uint64_t seed;
  bool ignore_eos;
  uint32_t stop_count, stop_text_count, bias_count, allowed_count, required_count;
  const verbatim_text *stop_texts; /* these four: the item's, or the defaults' */
  const verbatim_bias *biases;
  const int32_t *allowed_ids;
  const char *const *required;
  int32_t stop_ids[VERBATIM_STOP_IDS_MAX];
} item_params;

#define ITEMS_DEFAULTS ((item_params){.max_tokens = 128, .samples = 1, .repetition_penalty = 1, .top_p = 1})

typedef struct item {
  char *id;            /* never null */
  char *prompt;        /* text, or null with ids      */
  size_t prompt_bytes;
  int32_t *ids;        /* [id_count], or null with text */
  uint32_t id_count;
  char *task, *answer; /* null: none */
  char *echo;          /* compact JSON object of the other keys, or null */
  item_params params;
  void *lists[4];      /* memory of its own stop texts, biases, allowed ids and required axes */
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

/* Sets what the parameters say of a request, which stays without a prompt, and makes it the sample of that number. Lists stay where they
 * are. */
void items_request(const item_params *params, uint32_t sample, verbatim_request *request);

#endif
