/* common/sampling.h - the options for sampling, stopping and request conditions, as defaults of items.
 *
 * Ranges are those of the engine's requests. Read next: jsonl/items.h. */
#ifndef VERBATIM_CLI_SAMPLING_H
#define VERBATIM_CLI_SAMPLING_H
#include "base/base.h"
#include "common/options.h"
#include "common/conditions.h"
#include "jsonl/items.h"
#include <jansson.h>

#define CLI_SAMPLING_HELP \
  "  --max-tokens N      most tokens to generate (128)\n" \
  "  --n N               samples of every prompt, 1 to 128 (1)\n" \
  CLI_SAMPLING_REST_HELP
#define CLI_SAMPLING_REST_HELP \
  "  --temperature X     0 is greedy (0)\n" \
  "  --top-k N           0 is off (0)\n" \
  "  --top-p X           1 is off (1)\n" \
  "  --min-p X           0 is off (0)\n" \
  "  --repetition-penalty X   for tokens of the prompt or the answer: 1 is off (1)\n" \
  "  --presence-penalty X     for generated tokens: 0 is off (0)\n" \
  "  --frequency-penalty X    for generated tokens: 0 is off (0)\n" \
  "  --logit-bias ID=X   added to the token's logit; may be repeated\n" \
  "  --allow-ids LIST    generate no other tokens\n" \
  "  --choice TEXT       the answer is one of these; may be repeated\n" \
  "  --regex PATTERN     the whole answer matches this\n" \
  "  --json-schema S     the answer is JSON of this schema: JSON that begins with {, or a file; these\n" \
  "                      three need a plan with structured-outputs\n" \
  "  --seed N            seed of the random choices (0)\n" \
  "  --stop TEXT         end before this text; may be repeated\n" \
  "  --stop-id ID        end with this token; may be repeated\n" \
  "  --ignore-eos        the model's own stop tokens do not stop\n" \
  "  --logprobs K        also print the K most likely tokens at every position, 0 to 20 (0)\n" \
  CLI_CONDITIONS_HELP

typedef struct cli_sampling {
  item_params params; /* points into the lists below */
  verbatim_text stop_texts[VERBATIM_STOP_TEXTS_MAX];
  verbatim_bias biases[VERBATIM_BIASES_MAX];
  int32_t allowed_ids[VERBATIM_BIASES_MAX];
  json_t *choices;                 /* so far, or NULL */
  verbatim_constraint *constraint; /* NULL: none      */
  cli_conditions conditions;
} cli_sampling;

/* Adds its rows to a subcommand's table, which has room for row_count rows and ends with zeros. self must not move afterwards. */
void cli_sampling_options(cli_sampling *self, cli_option *rows, size_t row_count);

/* Releases the constraint, after the last request that uses it. */
void cli_sampling_close(cli_sampling *self);

#endif
