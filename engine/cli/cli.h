/* cli.h - the subcommands of `verbatim`. Each receives its own arguments, with argv[0] the subcommand's name, and returns the exit code: 0,
 * or fail_exit_code of the failure after one "verbatim: ..." line on stderr. Only this folder, common/ and main.c know arguments, the
 * environment and terminals. Read next: cli/run.c. */
#ifndef VERBATIM_CLI_H
#define VERBATIM_CLI_H

int cli_plan(int argc, char **argv);
int cli_show(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_digest(int argc, char **argv);
int cli_calibrate(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_chat(int argc, char **argv);
int cli_score(int argc, char **argv);
int cli_eval(int argc, char **argv);
int cli_import(int argc, char **argv);
int cli_replay(int argc, char **argv);
int cli_replay_log(int argc, char **argv);
int cli_compare(int argc, char **argv);
int cli_rescore(int argc, char **argv);
int cli_serve(int argc, char **argv);
int cli_diff(int argc, char **argv);
int cli_verify(int argc, char **argv);
int cli_audit(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_probe(int argc, char **argv);
int cli_version(int argc, char **argv);
int cli_copy(int argc, char **argv); /* `verbatim probe --copy` */

#endif
