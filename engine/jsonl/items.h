/* items.h - what a user asks for: a prompt with its sampling parameters, from the command line or a line of JSONL.
 *
 * A line is one JSON object with exactly one of "prompt" (text) and "prompt_ids" (token ids), optionally "id" (text or integer), "task",
 * "answer" (text), and values that replace the defaults: "max_tokens", "n" (samples), "temperature", "top_k", "top_p", "min_p",
 * "repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "logprobs" (number of alternatives), "ignore_eos", "stop_ids",
 * "stop" (a text or a list of texts), "allowed_ids", "logit_bias" (an object: decimal ids and their biases), "deadline_seconds", "require"
 * (a list of axes of the plan's guarantees), and one of the fields of constrain/json_form.h. Other keys are echoed into the output, but
 * names of sampling parameters of other programs are refused, because ignoring them would silently change the request. Knows nothing of the
 * engine. */
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
  const verbatim_text *stop_texts; /* this and the next three: the item's own, or the defaults' */
  const verbatim_bias *biases;
  const int32_t *allowed_ids;
  const char *const *required;
  const verbatim_constraint *constraint; /* null: none */
  int32_t stop_ids[VERBATIM_STOP_IDS_MAX];
} item_params;

#define ITEMS_DEFAULTS ((item_params){.max_tokens = 128, .samples = 1, .repetition_penalty = 1, .top_p = 1})

typedef struct item {
  char *id;            /* never NULL */
  char *prompt;        /* text; NULL with ids         */
  size_t prompt_bytes;
  int32_t *ids;        /* [id_count]; NULL with text */
  uint32_t id_count;
  char *task, *answer; /* NULL: none */
  char *echo;          /* compact JSON object of the other keys, or NULL */
  item_params params;
  verbatim_constraint *constraint; /* the item's own */
  void *lists[4];      /* memory of the item's own stop texts, biases, allowed ids and required axes */
} item;

typedef struct items { /* a growing list; zeroed: empty */
  item *list;
  uint32_t count, room;
} items;

/* Adds an item with a text prompt. Its id is its number in the list. */
status items_add_text(items *self, const char *text, size_t bytes, const item_params *params);

/* Adds an item from a text like "1, 2 3": token ids separated by commas or spaces. */
status items_add_ids(items *self, const char *text, const item_params *params);

/* Adds an item from one line. Errors name the line. */
status items_add_json(items *self, const char *line, size_t bytes, uint32_t line_number, const item_params *defaults);
void items_close(items *self);

/* Fills in a request, still without a prompt, from the parameters, as the sample of that number. Lists are not copied. */
void items_request(const item_params *params, uint32_t sample, verbatim_request *request);

#endif
