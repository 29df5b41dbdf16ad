/* json_line.h - parses one line of JSONL from a user, and reads its values with range checks.
 *
 * The line is hostile input: bounded, no duplicate keys, no byte order mark. Every error names the line and the key. Knows nothing of what
 * the keys mean. Allocates: it runs before the engine. Read next: items.h, score_items.h. */
#ifndef VERBATIM_JSON_LINE_H
#define VERBATIM_JSON_LINE_H
#include <jansson.h>
#include "base/base.h"

#define JSON_LINE_BYTES_MAX (32u << 20)
#define JSON_LINE_ID_BYTES_MAX 256u

typedef struct json_line_key { /* names the line and the key of a value in messages */
  uint32_t line;
  const char *name;
} json_line_key;

/* Parses the line into an object, which the caller releases with json_decref. ERR_USAGE, ERR_LIMIT. */
status json_line_parse(const char *line, size_t bytes, uint32_t number, json_t **object);

/* Fails with "line 3: "key": expected ...", ERR_USAGE; json_line_unsupported: for a key that may not be ignored, ERR_UNSUPPORTED. */
status json_line_wrong(const json_line_key *at, const char *expected);
status json_line_unsupported(const json_line_key *at);
status json_line_no_memory(void);

status json_line_u32(const json_line_key *at, const json_t *value, uint32_t *out);
status json_line_number(const json_line_key *at, const json_t *value, double *out); /* finite */
status json_line_seconds(const json_line_key *at, const json_t *value, double *out); /* finite, 0 or more */
status json_line_bool(const json_line_key *at, const json_t *value, bool *out);

/* A list of at most `room` token ids, 0 to INT32_MAX. */
status json_line_ids(const json_line_key *at, const json_t *value, int32_t *ids, uint32_t room, uint32_t *count);

/* The same into new memory, which the caller frees, even for an empty list. */
status json_line_new_ids(const json_line_key *at, const json_t *value, int32_t **ids, uint32_t *count);

/* A list of at most `room` texts without NUL, in one new block: the pointers, then the bytes. The caller frees it, even for an empty
 * list. */
status json_line_new_names(const json_line_key *at, const json_t *value, uint32_t room, const char ***out, uint32_t *count);

/* A text in new memory with a NUL after it, which the caller frees. bytes NULL: the text may not contain a NUL. */
status json_line_text(const json_line_key *at, const json_t *value, char **out, size_t *bytes);

/* An item's id: an integer, or text of at most JSON_LINE_ID_BYTES_MAX bytes. */
status json_line_id(const json_line_key *at, const json_t *value, char **out);

/* A NUL-terminated copy, or NULL: no memory. */
char *json_line_copy(const char *text, size_t bytes);

#endif
