/* jinja/memory.h - the bounded memory and work of one rendering, or of one syntax tree.
 *
 * Blocks are freed as a whole. What exceeds a limit is refused by name. Must not know values. Read next: value.h. */
#ifndef VERBATIM_JINJA_MEMORY_H
#define VERBATIM_JINJA_MEMORY_H
#include "base/base.h"

#define JINJA_MEMORY_BYTES_MAX (256u << 20) /* of all values of a rendering */
#define JINJA_STEPS_MAX (64u << 20)         /* nodes evaluated, items visited and pieces of 64 bytes copied or compared */

typedef struct jinja_memory { /* zeroed: empty */
  struct jinja_block *blocks;
  size_t bytes;
  uint32_t steps;
  bool wants_objects; /* a text marked JINJA_CODED was used as an object: the rendering failed */
} jinja_memory;

void jinja_memory_close(jinja_memory *self);

/* *piece = zeroed memory. ERR_LIMIT. */
status jinja_memory_take(jinja_memory *self, size_t bytes, void *piece);
status jinja_memory_step(jinja_memory *self, size_t bytes); /* counts one step and those of the bytes. ERR_LIMIT: too much work */

#endif
