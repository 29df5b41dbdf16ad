/* jinja/value.h - values of a template as Python has them, and the bounded memory that holds them.
 *
 * A value is immutable once made (only a namespace's members change), so values share what they contain. Texts are counted UTF-8 without
 * a final NUL; positions in them are code points, as in Python. All memory of a rendering comes from one jinja_memory and ends with it.
 * Must not know syntax, filters or conversations. Read next: node.h, eval.h. */
#ifndef VERBATIM_JINJA_VALUE_H
#define VERBATIM_JINJA_VALUE_H
#include <jansson.h>
#include "base/strbuf.h"
#include "jinja/memory.h"

#define JINJA_TEXT_BYTES_MAX (4u << 20)     /* of one text, the whole output included */
#define JINJA_DEPTH_MAX 64u                 /* nesting of values, of calls of macros and of expressions */

typedef enum jinja_kind {
  JINJA_ABSENT, /* an argument that was not given; no value of a template */
  JINJA_UNDEFINED,
  JINJA_NONE,
  JINJA_BOOL,
  JINJA_INTEGER,
  JINJA_REAL,
  JINJA_TEXT,
  JINJA_LIST,
  JINJA_TUPLE,
  JINJA_RANGE,
  JINJA_VIEW,     /* of a dict: its keys, values or items */
  JINJA_ITERATOR, /* what map, select and others give: it can be visited once */
  JINJA_DICT,
  JINJA_NAMESPACE,
  JINJA_LOOP,
  JINJA_MACRO,
  JINJA_METHOD,   /* bound to a value */
  JINJA_FUNCTION,
} jinja_kind;

enum { /* marks of a value */
  JINJA_SAFE = 1,   /* a text from the filter safe: adding a text to it would escape that */
  JINJA_QUIET = 2,  /* a None that prints as an empty text */
  JINJA_CODED = 4,  /* a text that holds JSON: what uses it as an object sets jinja_memory.wants_objects and fails */
};

typedef struct jinja_value jinja_value;

typedef struct jinja_text { /* borrowed bytes */
  const char *bytes;
  size_t count;
} jinja_text;

typedef struct jinja_list { /* of LIST, TUPLE, RANGE, VIEW and ITERATOR */
  jinja_value *items;
  size_t count;
  size_t at; /* of an ITERATOR: items visited */
} jinja_list;

typedef struct jinja_entry jinja_entry;

typedef struct jinja_dict { /* of DICT and NAMESPACE, in order of insertion */
  jinja_entry *entries;
  size_t count, room;
} jinja_dict;

struct jinja_value {
  uint8_t kind, marks;
  union {
    bool truth;
    int64_t integer;
    double real;
    jinja_text text;
    jinja_list *list;
    jinja_dict *dict;
    struct jinja_loop *loop;
    const struct jinja_macro *macro;
    const struct jinja_bound *bound;       /* METHOD */
    const struct jinja_function *function; /* FUNCTION */
    const char *missing;                   /* UNDEFINED: what it was to be, for errors */
  };
};

struct jinja_entry {
  jinja_value key, value;
  bool was_read; /* looked up by its key, or written, visited or compared with the whole dict */
};

jinja_value jinja_value_bool(bool truth);
jinja_value jinja_value_integer(int64_t integer);
jinja_value jinja_value_text(const char *bytes, size_t count);
jinja_value jinja_value_words(const char *words); /* up to the NUL */
jinja_value jinja_value_undefined(const char *missing);

status jinja_value_copy_text(jinja_memory *memory, const char *bytes, size_t count, jinja_value *out);
status jinja_value_take(jinja_memory *memory, strbuf *buffer, jinja_value *out); /* the buffer's text, which is closed in any case */
status jinja_value_list(jinja_memory *memory, jinja_kind kind, size_t count, jinja_value *out); /* its items are to be set */
status jinja_value_dict(jinja_memory *memory, jinja_kind kind, size_t room, jinja_value *out);
status jinja_value_put(jinja_memory *memory, jinja_dict *dict, jinja_value key, jinja_value value); /* replaces an equal key's value */

/* A copy whose texts are those of json. ERR_LIMIT: nested too deeply, no memory. */
status jinja_value_of_json(jinja_memory *memory, const json_t *json, jinja_value *out);

/* NULL: no such key. Does not set was_read. */
jinja_entry *jinja_value_find(const jinja_dict *dict, jinja_text key);

bool jinja_value_is_true(jinja_value value);
bool jinja_value_is_number(jinja_value value);  /* INTEGER, REAL or BOOL */
bool jinja_value_is_listed(jinja_value value);  /* has a jinja_list */
bool jinja_value_is(jinja_text text, const char *words);
double jinja_value_real(jinja_value number);
const char *jinja_value_type(jinja_value value); /* as Python calls it */

/* ERR_LIMIT: too deep, too much work. Marks entries of compared dicts as read. */
status jinja_value_equal(jinja_memory *memory, jinja_value a, jinja_value b, bool *out);

/* *order: below, equal to or above 0. ERR_FORMAT: not comparable. */
status jinja_value_order(jinja_memory *memory, jinja_value a, jinja_value b, int *order);

#endif
