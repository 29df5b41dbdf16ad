/* cli/doctor_model.h - what `verbatim doctor` looks at of a model folder and of a plan. Read next: cli/doctor.c. */
#ifndef VERBATIM_CLI_DOCTOR_MODEL_H
#define VERBATIM_CLI_DOCTOR_MODEL_H
#include "cli/doctor_machine.h"

/* config.json can be read, no file of the weights is missing or cut, the tokenizer can be opened, is there a chat template. */
void cli_doctor_model_check(cli_doctor_report *report, const char *model_dir);

/* model_dir may be null. The plan is sound, is of the model's config.json, and fits into the memory that the machine's checks found. */
void cli_doctor_model_check_plan(cli_doctor_report *report, const cli_doctor_machine *machine, const char *plan_path,
                                 const char *model_dir);

#endif
