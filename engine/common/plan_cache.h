/* common/plan_cache.h - the plan of a command that was given a model and no plan: made for the memory of the device, and kept in the
 * user's cache folder.
 *
 * <cache>/plans/<digest>.plan is the plan; <digest>.yaml next to it is the deployment that it was made from, with comments that name the
 * program's version, the config.json and the profile. The digest is that file's. So another model, deployment, program or memory is another
 * plan, and nothing is ever replaced. Read next: common/config.h, common/memory.h, planner/planner.h. */
#ifndef VERBATIM_CLI_PLAN_CACHE_H
#define VERBATIM_CLI_PLAN_CACHE_H
#include "base/base.h"
#include "common/config.h"
#include "common/engine.h"

#define CLI_PLAN_CACHE_HELP \
  "Without PLAN one is made for the free memory of the device, or found where an earlier command made\n" \
  "it, and its path is printed (a file in the user's cache folder, or in --cache-dir).\n\n"

/* Ensures that the engine's plan exists: one that is named by cli_config_plan; else finds or makes one, sets engine->plan_path and prints a
 * line on stderr. config: NULL, or a subcommand's, whose deployment has the values that the plan must have. What it does not say is
 * chosen: the longest max-model-len, up to the model's, with the most max-num-seqs that fit. ERR_LIMIT: the model does not fit. ERR_USAGE:
 * there is no cache folder. ERR_MISMATCH: the file of that name is not the plan that the deployment gives. */
status cli_plan_cache_ensure(cli_engine *engine, cli_config *config);

#endif
