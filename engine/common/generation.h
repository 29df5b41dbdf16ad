/* common/generation.h - generation_config.json: sampling parameters, length and stop ids that a model's makers recommend. Without effect
 * unless asked for (--generation-config auto, or the key generation-config of a deployment); then defaults of the requests that do not set
 * them, but for the stop ids, which requests have in addition to their own unless they ignore the model's. Read next: common/stop_ids.h,
 * jsonl/items.h. */
#ifndef VERBATIM_CLI_GENERATION_H
#define VERBATIM_CLI_GENERATION_H
#include "base/base.h"
#include "common/options.h"
#include "common/sampling.h"
#include <jansson.h>

#define CLI_GENERATION_NOTE_BYTES 512u
#define CLI_GENERATION_HELP \
  "  --generation-config auto|none  take temperature, top-k, top-p, min-p, repetition penalty and most\n" \
  "                      tokens, if not given, and stop ids from generation_config.json (none)\n"

/* Option taker: "auto" or "none" into a bool. */
status cli_generation_take(const char *name, const char *value, void *target);

/* *values: an object with those of "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_tokens" and "stop_ids" that the
 * file sets, as in items.h; NULL if there is no such file or it sets none. do_sample: false is temperature 0; max_tokens is max_new_tokens,
 * and stop_ids what eos_token_id has beyond config.json's. The caller releases it. ERR_IO; ERR_FORMAT: not JSON, or a value out of a
 * request's range. */
status cli_generation_read(const char *model_dir, json_t **values);

/* The values as defaults of a server's bodies, where stop_ids is named stop_token_ids: takes those of cli_generation_read, releases them if
 * it fails. */
status cli_generation_for_bodies(json_t **values);

/* A sentence about the values and whether they are used; "" if there are none. */
void cli_generation_note(const json_t *values, bool is_used, char note[CLI_GENERATION_NOTE_BYTES]);

/* Sets the parameters whose options argv does not contain to what the model's file says, and adds its stop ids. *max_tokens: what it says
 * of the length, if argv says nothing; else untouched. The errors of cli_generation_read. */
status cli_generation_set(const char *model_dir, const cli_option *options, int argc, char **argv, item_params *params,
                          uint32_t *max_tokens);

#endif
