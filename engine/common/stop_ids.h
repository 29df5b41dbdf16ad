/* common/stop_ids.h - the ids that end answers by generation_config.json and not by config.json, which alone counts unless asked otherwise.
 *
 * transformers and vLLM stop at the ids of generation_config.json too: whoever compares answers with theirs must know. Read next:
 * common/generation.h, planner/model_config.h. */
#ifndef VERBATIM_CLI_STOP_IDS_H
#define VERBATIM_CLI_STOP_IDS_H
#include "base/base.h"
#include <jansson.h>

#define CLI_STOP_IDS_BYTES 512u

/* note: a sentence that names both lists, or "" if generation_config.json is absent, names no ids, or the same ones; also if config.json
 * is absent or of a model that is not supported. ERR_IO, ERR_FORMAT: generation_config.json is there and cannot be read. */
status cli_stop_ids_note(const char *model_dir, char note[CLI_STOP_IDS_BYTES]);

/* found: eos_token_id of generation_config.json, an id or a list, or NULL. *more: a list of those that config.json does not have; NULL if
 * there is none. The caller releases it. ERR_FORMAT: no ids of this model, or more than a request may have. */
status cli_stop_ids_beyond(const char *model_dir, const json_t *found, json_t **more);

#endif
