/* cli/doctor_ranks.h - the checks of `verbatim doctor` on several GPUs: how they reach each other, and what a plan of several ranks needs.
 *
 * Read next: cli/doctor_machine.h, gpu/links.h. */
#ifndef VERBATIM_CLI_DOCTOR_RANKS_H
#define VERBATIM_CLI_DOCTOR_RANKS_H
#include "cli/doctor_machine.h"
#include "plan/format.h"

/* After the check of the GPU: a line for each GPU with the others whose memory it can use. */
void cli_doctor_ranks_check_links(cli_doctor_report *report, const cli_doctor_machine *machine);

/* For a plan of several ranks: whether there is a GPU for each, and what copies between every two take. The machine becomes what the plan
 * will run on: the GPU with the least free memory, or the CPU if there are too few. */
void cli_doctor_ranks_check_plan(cli_doctor_report *report, cli_doctor_machine *machine, const plan_limits *limits);

#endif
