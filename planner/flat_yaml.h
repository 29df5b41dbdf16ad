/* flat_yaml.h - reads a flat mapping from YAML (or JSON, which is YAML): each key has a value or a list of values.
 *
 * A value may also be a mapping of such keys, nothing deeper: its key `b` in the value of `a` reads as `a.b`, which may be written so too.
 * The text is hostile input: bounded, ASCII, one document, no anchors, aliases, tags or directives (engine/base/yaml.h). Values are UTF-8
 * without control characters; escapes can spell what ASCII cannot. In keys '_' reads as '-', and each key comes once. It knows no keys: the
 * caller decides which exist and what their values mean. Read next: deploy_config.h, engine/common/config.h. */
#ifndef VERBATIM_FLAT_YAML_H
#define VERBATIM_FLAT_YAML_H
#include "engine/base/base.h"

#define FLAT_YAML_KEY_BYTES 64u     /* with the NUL; longer ones are refused */
#define FLAT_YAML_VALUE_BYTES 4096u /* with the NUL; longer ones are refused */
#define FLAT_YAML_KEYS_MAX 256u
#define FLAT_YAML_LIST_MAX 1024u

typedef struct flat_yaml_row {
  char key[FLAT_YAML_KEY_BYTES];
  bool is_list;
  uint32_t count; /* 1 unless is_list */
  char **values;
} flat_yaml_row;

typedef struct flat_yaml {
  flat_yaml_row *rows; /* in the order of the text */
  uint32_t count;
} flat_yaml;

/* name: of the file, for error messages. text: not NUL-terminated, at most FILE_CONFIG_BYTES_MAX; empty text is a mapping without keys.
 * ERR_FORMAT, ERR_LIMIT. *out is freed by flat_yaml_close. */
status flat_yaml_read(const char *name, const char *text, size_t bytes, flat_yaml *out);
void flat_yaml_close(flat_yaml *self);

const flat_yaml_row *flat_yaml_find(const flat_yaml *self, const char *key); /* NULL: absent */

#endif
