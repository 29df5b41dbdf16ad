/* cli/doctor_model.h - the checks of `verbatim doctor` on a model folder and on a plan.
 *
 * They only read, and never the weights themselves. Read next: cli/doctor.c. */
#ifndef VERBATIM_CLI_DOCTOR_MODEL_H
#define VERBATIM_CLI_DOCTOR_MODEL_H
#include "cli/doctor_machine.h"

/* Checks that config.json can be read, no weight file is missing or truncated, the tokenizer opens, and whether there is a chat
 * template. */
void cli_doctor_model_check(cli_doctor_report *report, const char *model_dir);

/* model_dir may be NULL. Checks that the plan is sound, was generated from the model's config.json, and fits into the memory found by the
 * machine's checks. */
void cli_doctor_model_check_plan(cli_doctor_report *report, const cli_doctor_machine *machine, const char *plan_path,
                                 const char *model_dir);

#endif
