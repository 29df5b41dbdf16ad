/* jinja/lex.h - the tokens of a template, with white space treated as transformers sets it (trim_blocks and lstrip_blocks), or kept.
 *
 * Works on the text in place: line ends must be "\n" (jinja_lex_newlines). A token's text points into the template. Must not know grammar.
 * Read next: parse.h. */
#ifndef VERBATIM_JINJA_LEX_H
#define VERBATIM_JINJA_LEX_H
#include "jinja/value.h"

typedef enum jinja_token_kind {
  JINJA_END,         /* of the template */
  JINJA_DATA,        /* text outside tags */
  JINJA_PRINT_BEGIN, /* {{ */
  JINJA_PRINT_END,
  JINJA_BLOCK_BEGIN, /* {% */
  JINJA_BLOCK_END,
  JINJA_NAME,
  JINJA_STRING,      /* with its quotes and escapes */
  JINJA_WHOLE,       /* integer literal */
  JINJA_FRACTION,    /* float literal */
  JINJA_OPERATOR,
} jinja_token_kind;

typedef struct jinja_token {
  jinja_token_kind kind;
  uint32_t line;
  jinja_text text;
} jinja_token;

typedef struct jinja_lex {
  const char *text;
  size_t bytes, at;
  uint32_t line, nesting; /* open brackets in a tag: its end does not count within them */
  enum { JINJA_OUTSIDE, JINJA_IN_PRINT, JINJA_IN_BLOCK } place;
  bool has_tag;           /* the data before it was delivered: the tag itself comes next */
  bool is_at_line_start;
  bool keeps_blanks;      /* neither trim_blocks nor lstrip_blocks */
} jinja_lex;

size_t jinja_lex_newlines(char *text, size_t bytes, bool keeps_last); /* makes every line end "\n", drops the last one; the new size */
void jinja_lex_open(jinja_lex *self, const char *text, size_t bytes, bool keeps_blanks);

/* ERR_FORMAT: a tag that does not end, a character that begins no token. */
status jinja_lex_next(jinja_lex *self, jinja_token *out);

#endif
