/* answer/scan.h - looking at text of which the rest is still to come: marks, white space, the end of a JSON object.
 *
 * Nothing is allocated. Knows neither grammars nor tools. Read next: answer/calls.c. */
#ifndef VERBATIM_ANSWER_SCAN_H
#define VERBATIM_ANSWER_SCAN_H
#include "base/base.h"

typedef enum answer_scan_match {
  ANSWER_SCAN_NO,   /* the text does not begin with the mark */
  ANSWER_SCAN_MORE, /* so far it does, but the mark is not whole: also for no text */
  ANSWER_SCAN_YES
} answer_scan_match;

answer_scan_match answer_scan_literal(const char *text, size_t bytes, const char *mark);

/* The first offset from `from` on that is not white space of JSON. */
size_t answer_scan_blank(const char *text, size_t bytes, size_t from);
bool answer_scan_is_blank(char c);

/* The offset of the first mark; of several that begin there, the first. which: its index; count if there is none: the offset is then that
 * of the end in which one may begin. */
size_t answer_scan_find(const char *text, size_t bytes, const char *const *marks, size_t count, size_t *which);

typedef struct answer_scan_json { /* zeroed: before an object */
  uint32_t depth;
  bool in_text, is_escaped;
} answer_scan_json;

/* Goes on from *at, which is in or before the object: whether its last brace was found; *at is after it, or at the end. Brackets of the two
 * kinds count alike: a JSON reader must read the object then. */
bool answer_scan_object(answer_scan_json *self, const char *text, size_t bytes, size_t *at);

/* Finds a member's value in the text of an object that is JSON: false if there is none, or its key is written with escapes. */
bool answer_scan_member(const char *object, size_t bytes, const char *key, size_t *at, size_t *value_bytes);

#endif
