/* jinja/jinja.h - templates in the part of Jinja that chat templates use, rendered as jinja2 in transformers' environment renders them.
 *
 * An open template is read-only and usable from any number of threads; a rendering belongs to one. Templates and values are hostile:
 * every size and all work is bounded (memory.h, value.h, parse.h). Hand-written because no library does this in C (those in C++ and Rust
 * follow a part of Python each, and the bytes must not depend on a library's version). Must not know conversations. Read next: parse.h,
 * eval.h. */
#ifndef VERBATIM_JINJA_JINJA_H
#define VERBATIM_JINJA_JINJA_H
#include "jinja/value.h"

#define JINJA_TEMPLATE_BYTES_MAX (1u << 20)

typedef struct jinja_template jinja_template;

/* Copies the text. ERR_FORMAT: no template; ERR_UNSUPPORTED: what is not implemented; ERR_LIMIT. Errors name the line. */
status jinja_open(jinja_template **out, const char *text, size_t bytes);

/* The same as an environment of jinja2 with keep_trailing_newline and StrictUndefined reads it: white space around blocks stays, and what
 * is not defined may only be tested or given a default. Its filter tojson, which escapes for HTML, is not this one: see jinja_mentions. */
status jinja_open_plain(jinja_template **out, const char *text, size_t bytes);
void jinja_close(jinja_template *self); /* NULL is allowed */

/* Whether the template has the word as a name, a member, a keyword or a constant. What it does not mention cannot change its output, but
 * for members of what it writes as a whole. */
bool jinja_mentions(const jinja_template *self, const char *word);
bool jinja_reads(const jinja_template *self, const char *name); /* as a variable */

typedef struct jinja_variable {
  const char *name;
  jinja_value value;
} jinja_variable;

/* Renders with these variables, whose values were made in `memory`; what was read of dicts is marked in them. today: for strftime_now, see
 * eval.h; NULL: none. The caller frees *text; it is *bytes long, followed by a NUL, and at most JINJA_TEXT_BYTES_MAX.
 * ERR_FORMAT: the template refuses or an operation fails, as in Python; ERR_UNSUPPORTED; ERR_LIMIT. */
status jinja_render(const jinja_template *self, jinja_memory *memory, const jinja_variable *variables, size_t count, const char *today,
                    char **text, size_t *bytes);

#endif
