/* common/hub.h - models by their name on the Hugging Face Hub, "org/name" or "org/name@revision", found in the cache that `hf download` and
 * transformers fill. Nothing is downloaded.
 *
 * A revision (main) is a branch or a tag, whose commit stands in refs/, or a commit. A folder of the name, seen from the current one, comes
 * first. What stands in a name or a file of the cache never leads out of the model's folder there. Read next: base/input_file.h. */
#ifndef VERBATIM_CLI_HUB_H
#define VERBATIM_CLI_HUB_H
#include "base/base.h"

#define CLI_HUB_PATH_BYTES_MAX 4096u
#define CLI_HUB_PART_BYTES 129u /* of each part of a name, with its NUL */
#define CLI_HUB_COMMIT_BYTES 41u

typedef struct cli_hub_name {
  char organisation[CLI_HUB_PART_BYTES], name[CLI_HUB_PART_BYTES], revision[CLI_HUB_PART_BYTES];
} cli_hub_name;

/* False: the word is not written like a name on the Hub. */
bool cli_hub_parse(const char *word, cli_hub_name *out);

/* The commit in a file of refs/: 40 hexadecimal digits, and perhaps a line feed. False: something else. */
bool cli_hub_commit(const char *text, size_t bytes, char commit[CLI_HUB_COMMIT_BYTES]);

/* Replaces a name of the Hub by the path of the model in the cache, which is written to room. Leaves NULL, an existing path and any other
 * word alone. ERR_IO: it is not there: the message says where it was looked for, and the command that fetches it. ERR_FORMAT: the cache's
 * entry of that revision is not a commit. */
status cli_hub_resolve(const char **model_dir, char room[CLI_HUB_PATH_BYTES_MAX]);

/* Whether cli_hub_resolve would replace the word. */
bool cli_hub_has(const char *word);

#endif
