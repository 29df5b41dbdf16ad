/* serve/fields.h - the fields of a request's body: their names, values and defaults.
 *
 * SERVING.md is normative. An unknown field is refused, with the nearest known name, because ignoring it would silently change the request.
 * Fields without any effect are accepted and listed. Knows only the body: neither model nor engine. Read next: serve/request.h. */
#ifndef VERBATIM_SERVE_FIELDS_H
#define VERBATIM_SERVE_FIELDS_H
#include <jansson.h>
#include "base/base.h"
#include "verbatim.h"

#define SERVE_FIELDS_SAMPLES_MAX 128u
#define SERVE_FIELDS_VALUES_MAX (1u << 21) /* JSON values in a body: each takes memory while it is parsed, more than its own bytes */
#define SERVE_FIELDS_LISTS_MAX (1u << 17)  /* lists and objects, which take more */
#define SERVE_FIELDS_PATH_BYTES 128u /* of a field: messages[2].content[0].type */
#define SERVE_FIELDS_NAME_BYTES 64u /* limit of a request_id and of an axis name */
#define SERVE_FIELDS_POOL_BYTES (VERBATIM_STOP_TEXTS_MAX * (VERBATIM_STOP_TEXT_BYTES_MAX + 1u) + \
                                 (VERBATIM_REQUIRED_MAX + 1u) * (SERVE_FIELDS_NAME_BYTES + 1u))

enum serve_kind { SERVE_COMPLETION, SERVE_CHAT };

typedef struct serve_fault { /* OpenAI's error object; code and param "" become null */
  unsigned http_status;
  char type[48], code[48], param[SERVE_FIELDS_PATH_BYTES], message[512];
} serve_fault;

typedef struct serve_fields { /* every parameter, the client's or the default; must not move, because it points into itself */
  uint32_t samples, best_of, max_tokens, max_completion_tokens, top_k, top_logprobs, prompt_top;
  bool has_max_tokens;      /* false: the default, which depends on the prompt */
  bool has_max_completion_tokens, has_best_of;
  bool logprobs, prompt_logprobs, echo, stream, include_usage, ignore_eos, include_stop, add_special, return_ids, names_as_ids;
  bool return_params, return_receipt, include_running_usage;
  float temperature, repetition_penalty, presence_penalty, frequency_penalty;
  double top_p, min_p, deadline_seconds;
  uint64_t seed;
  uint32_t stop_count, stop_text_count, bias_count, allowed_count, required_count;
  int32_t stop_ids[VERBATIM_STOP_IDS_MAX];
  verbatim_text stop_texts[VERBATIM_STOP_TEXTS_MAX];
  verbatim_bias biases[VERBATIM_BIASES_MAX];
  int32_t allowed_ids[VERBATIM_BIASES_MAX];
  const char *required[VERBATIM_REQUIRED_MAX];
  verbatim_constraint *constraint;               /* of the answer; NULL: none. The owner closes it */
  const char *constraint_field;                  /* the field that asked for it */
  json_t *ignored;                               /* paths of fields that were given and have no effect; NULL: none. The owner releases it */
  const char *request_id;                        /* NULL: not given */
  uint32_t vocab;                                /* limit for token ids */
  uint32_t pool_used;
  char pool[SERVE_FIELDS_POOL_BYTES];            /* memory for the texts */
} serve_fields;

/* Records an error with status 400 and type invalid_request_error. Returns false. */
bool serve_fields_wrong(serve_fault *fault, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Parses a body into an object, which the caller releases with json_decref; null members are removed. */
bool serve_fields_parse(const char *body, size_t bytes, json_t **object, serve_fault *fault);

/* Reads all fields except "model", the prompt, and those of chat_render, which are the caller's. */
bool serve_fields_read(enum serve_kind kind, const json_t *body, uint32_t vocab, serve_fields *out, serve_fault *fault);

/* Adds the path to the list of fields without effect. False: no memory. */
bool serve_fields_ignore(serve_fields *self, const char *path, serve_fault *fault);

/* Refuses every member that is not in names, a NULL-terminated list. path: of the object, as "stream_options."; "": the body. */
bool serve_fields_only(const json_t *body, const char *path, const char *const *names, serve_fault *fault);

/* Reads a list of token ids below vocab into ids[0 .. json_array_size(list)). param: the list's path. */
bool serve_fields_ids(const char *param, const json_t *list, uint32_t vocab, int32_t *ids, serve_fault *fault);

/* Reads a boolean member, if present. path: as above. */
bool serve_fields_bool(const json_t *body, const char *path, const char *name, bool *out, serve_fault *fault);

#endif
