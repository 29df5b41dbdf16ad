/* serve/fields.h - the fields of a request's body: which there are, what they may be, and what they are when left out.
 *
 * SERVING.md is normative. A field that is not known is refused, with the known one it may be meant for: ignoring it would silently change
 * what is asked for. Those that change nothing are taken and listed. Knows the body alone: neither model nor engine. Read next:
 * serve/ask.h. */
#ifndef VERBATIM_SERVE_FIELDS_H
#define VERBATIM_SERVE_FIELDS_H
#include <jansson.h>
#include "base/base.h"
#include "verbatim.h"

#define SERVE_FIELDS_SAMPLES_MAX 128u
#define SERVE_FIELDS_IGNORED_MAX 8u
#define SERVE_FIELDS_VALUES_MAX (1u << 21) /* of a body: each takes memory while it is read, and more than its own bytes */
#define SERVE_FIELDS_LISTS_MAX (1u << 17)  /* lists and objects, which take more */
#define SERVE_FIELDS_NAME_BYTES 64u /* most of a request_id, and of an axis */
#define SERVE_FIELDS_POOL_BYTES (VERBATIM_STOP_TEXTS_MAX * (VERBATIM_STOP_TEXT_BYTES_MAX + 1u) + \
                                 (VERBATIM_REQUIRED_MAX + 1u) * (SERVE_FIELDS_NAME_BYTES + 1u))

enum serve_kind { SERVE_COMPLETION, SERVE_CHAT };

typedef struct serve_fault { /* OpenAI's error object; code and param "" are null */
  unsigned http_status;
  char type[48], code[48], param[64], message[512];
} serve_fault;

typedef struct serve_fields { /* every parameter, the client's or the default; stays where it was read, as it points into itself */
  uint32_t samples, best_of, max_tokens, max_completion_tokens, top_k, top_logprobs, prompt_top;
  bool has_max_tokens;      /* else the default, which depends on the prompt */
  bool has_max_completion_tokens, has_best_of;
  bool logprobs, prompt_logprobs, echo, stream, include_usage, ignore_eos, include_stop, add_special, return_ids, names_as_ids;
  bool return_params, return_receipt;
  float temperature, repetition_penalty, presence_penalty, frequency_penalty;
  double top_p, min_p, deadline_seconds;
  uint64_t seed;
  uint32_t stop_count, stop_text_count, bias_count, allowed_count, required_count, ignored_count;
  int32_t stop_ids[VERBATIM_STOP_IDS_MAX];
  verbatim_text stop_texts[VERBATIM_STOP_TEXTS_MAX];
  verbatim_bias biases[VERBATIM_BIASES_MAX];
  int32_t allowed_ids[VERBATIM_BIASES_MAX];
  const char *required[VERBATIM_REQUIRED_MAX];
  const char *ignored[SERVE_FIELDS_IGNORED_MAX]; /* fields that were given and change nothing; static */
  const char *request_id;                        /* null: not given */
  uint32_t vocab;                                /* what token ids are judged by */
  uint32_t pool_used;
  char pool[SERVE_FIELDS_POOL_BYTES];            /* the texts */
} serve_fields;

/* Says what is wrong, with status 400 and type invalid_request_error. Returns false. */
bool serve_fields_wrong(serve_fault *fault, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Parses a body to its object, to be released with json_decref; members that are null are taken out. */
bool serve_fields_parse(const char *body, size_t bytes, json_t **object, serve_fault *fault);

/* Reads all fields but "model", the prompt, and what chat_render takes: those are the caller's. */
bool serve_fields_read(enum serve_kind kind, const json_t *body, uint32_t vocab, serve_fields *out, serve_fault *fault);

/* Refuses every member that is not in names, a list that ends with null. */
bool serve_fields_only(const json_t *body, const char *const *names, serve_fault *fault);

/* A list of token ids below vocab into ids[0 .. json_array_size(list)). */
bool serve_fields_ids(const char *param, const json_t *list, uint32_t vocab, int32_t *ids, serve_fault *fault);

/* A member that is true or false, if it is there. */
bool serve_fields_bool(const json_t *body, const char *name, bool *out, serve_fault *fault);

#endif
