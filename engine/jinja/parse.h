/* jinja/parse.h - the text of a template to its syntax tree.
 *
 * The grammar is jinja2's with the extensions that transformers adds (generation, break and continue), without what no chat template can
 * use: extends, block, include, import, do, autoescape, recursive loops, unpacked arguments. Read next: node.h. */
#ifndef VERBATIM_JINJA_PARSE_H
#define VERBATIM_JINJA_PARSE_H
#include "jinja/node.h"

#define JINJA_NODES_MAX (1u << 17)
#define JINJA_NAMES_MAX 4096u  /* different names */

/* The text must be UTF-8 with "\n" line ends; the tree borrows it. The caller closes self->memory in any case. ERR_FORMAT: not a template;
 * ERR_UNSUPPORTED: a statement that is not implemented; ERR_LIMIT. */
status jinja_parse(jinja_tree *self, const char *text, size_t bytes);

#endif
