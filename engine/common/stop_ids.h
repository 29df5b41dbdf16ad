/* common/stop_ids.h - whether generation_config.json ends answers elsewhere than config.json, which alone counts here.
 *
 * transformers and vLLM stop at the ids of generation_config.json too: whoever compares answers with theirs must know. Read next:
 * planner/model_config.h. */
#ifndef VERBATIM_CLI_STOP_IDS_H
#define VERBATIM_CLI_STOP_IDS_H
#include "base/base.h"

#define CLI_STOP_IDS_BYTES 512u

/* note: a sentence that names both lists, or "" if generation_config.json is absent, names no ids, or the same ones; also if config.json
 * is absent or of a model that is not supported. ERR_IO, ERR_FORMAT: generation_config.json is there and cannot be read. */
status cli_stop_ids_note(const char *model_dir, char note[CLI_STOP_IDS_BYTES]);

#endif
