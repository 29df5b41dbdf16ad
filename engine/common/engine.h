/* common/engine.h - what the subcommands that run an engine share: its options, start with progress lines, receipt, and end.
 *
 * Does not know the requests' meaning. Read next: common/options.h, verbatim.h, receipt.h. */
#ifndef VERBATIM_CLI_ENGINE_H
#define VERBATIM_CLI_ENGINE_H
#include "base/base.h"
#include "common/files.h"
#include "common/hub.h"
#include "common/options.h"
#include "common/output.h"
#include "common/stats.h"
#include "receipts/receipt.h"
#include "text/tokenizer.h"
#include "verbatim.h"

#define CLI_ENGINE_PATH_BYTES_MAX 4096u

#define CLI_ENGINE_HELP \
  "  --receipt FILE      write the receipt\n" \
  "  --device D          auto, cpu, gpu or gpu:N (auto)\n" \
  "  --threads N         CPU threads (all cores)\n" \
  "  --cache-dir DIR     folder of compiled kernels (default: the user's cache folder); \"\" for none\n" \
  "  --sha256            also take the SHA-256 of the weights while they are read and record it beside\n" \
  "                      the other digests; loading takes longer (RECEIPTS.md)\n" \
  "  --stats FILE        write start-up times by stage, memory, token and step counts, and the gaps\n" \
  "                      between steps as JSON\n" \
  "  --verbose           report the stages of the start and the memory\n" \
  "  --quiet             no progress messages\n\n" \
  "How the work is split; no value of these changes a bit of the output:\n" \
  "  --batch N           most sequences at once\n" \
  "  --chunk N           most prompt tokens of a request per step\n" \
  "  --slot-offset N     first slot\n" \
  "  --shuffle-pages S   allocate KV pages in an order drawn from seed S\n" \
  "  --direct            launch kernels directly instead of replaying graphs\n" \
  "  --poison            fill with NaN all memory that must not matter\n" \
  "  --check-exchanges   several GPUs: compare all that they send each other, not one exchange in 16; a\n" \
  "                      step takes 1 % to 2 % longer\n" \
  "  --exchange-timeout S  seconds that a GPU waits for another of its plan before the run ends (10)\n" \
  "  --no-prefix-cache   compute every prompt token\n" \
  "  --no-drafts         make every token by a step of its own, whatever the plan's speculation\n"

/* Rows of a table for cli_files_check: what every subcommand with these options reads and writes. */
#define CLI_ENGINE_FILES(engine) \
  {CLI_FILES_READ, (engine)->plan_path, "the plan"}, {CLI_FILES_MODEL, (engine)->model_dir, "the model"}, \
  {CLI_FILES_WRITTEN, (engine)->receipt_path, "the receipt"}, {CLI_FILES_WRITTEN, (engine)->stats_path, "the statistics"}

typedef struct cli_engine {
  const char *plan_path, *model_dir, *receipt_path, *stats_path, *cache_dir; /* the first two are set by the subcommand */
  bool quiet, verbose;
  verbatim_config config; /* logits are set by the subcommand, the rest by options */
  verbatim *engine;
  verbatim_info info;
  receipt receipt;
  bool receipt_open;
  digest receipt_digest;  /* valid after cli_engine_end */
  double started, progress_at; /* seconds */
  cli_output_progress loading;
  cli_stats_run done;     /* totals of the requests given to cli_engine_add */
  char cache_path[CLI_ENGINE_PATH_BYTES_MAX];
  char model_path[CLI_HUB_PATH_BYTES_MAX]; /* model_dir, if it was a name on the Hub */
  char made_plan[CLI_ENGINE_PATH_BYTES_MAX]; /* of common/plan_cache.h: plan_path, if the command names none */
} cli_engine;

/* Option taker for --device: sets an int of verbatim_config. */
status cli_engine_device(const char *name, const char *value, void *target);

/* Adds its rows to a subcommand's table, which has room for row_count rows and ends with zeros. */
void cli_engine_options(cli_engine *self, cli_option *rows, size_t row_count);

status cli_engine_check(const cli_engine *self); /* plan and model folder are there; before prompts are waited for. ERR_IO */
status cli_engine_open(cli_engine *self);

/* Opens the engine and starts the receipt and the clock. t NULL: the run has no text. */
status cli_engine_begin(cli_engine *self, const tokenizer *t);

/* The same with the tokenizer's digest, or NULL: none. */
status cli_engine_begin_as(cli_engine *self, const uint8_t *vocabulary);

/* Like cli_engine_begin, but continues a receipt that already has its first `count` requests, from an interrupted run. */
status cli_engine_continue(cli_engine *self, const tokenizer *t, uint32_t count);

/* Prints a progress line with these numbers on stderr when one is due: rarely, but always at the end (`last`). */
void cli_engine_progress(cli_engine *self, uint32_t done, uint32_t count, uint64_t tokens, bool last);

/* Adds a finished request to the receipt under this name. Fails as receipt_add does. */
status cli_engine_add(cli_engine *self, const char *name, const verbatim_request *request);

/* Prints a line on stderr with a written file's SHA-256, as sha256sum does. A path to no regular file: nothing. ERR_IO. */
status cli_engine_print_sha256(const char *path);

/* Ends the receipt, prints its digest on stderr, and unless quiet the SHA-256 of its file, and writes --stats. */
status cli_engine_end(cli_engine *self);

/* If cli_engine_end was not called, the receipt records what went wrong and has no digest. */
void cli_engine_close(cli_engine *self);

#endif
