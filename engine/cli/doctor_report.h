/* cli/doctor_report.h - the findings of `verbatim doctor`, line by line: for people, as JSON, as an exit code.
 *
 * Knows no check. Read next: cli/doctor_machine.h. */
#ifndef VERBATIM_CLI_DOCTOR_REPORT_H
#define VERBATIM_CLI_DOCTOR_REPORT_H
#include "base/base.h"
#include <jansson.h>
#include <stdio.h>

#define CLI_DOCTOR_LINES_MAX 64u

/* UNUSED: it is not there or was not looked for, and what was asked for does without it. */
typedef enum cli_doctor_result { CLI_DOCTOR_OK = 0, CLI_DOCTOR_UNUSED, CLI_DOCTOR_WARNING, CLI_DOCTOR_PROBLEM } cli_doctor_result;

typedef struct cli_doctor_line {
  const char *check;  /* the check's name, one word */
  cli_doctor_result result;
  status code;        /* for a problem */
  char found[FAIL_TEXT_MAX], hint[FAIL_TEXT_MAX]; /* hint: what to do, or "" */
} cli_doctor_line;

typedef struct cli_doctor_report {
  cli_doctor_line lines[CLI_DOCTOR_LINES_MAX];
  uint32_t count;
} cli_doctor_report;

/* Adds a line; a hint that is NULL is the part of the text after "hint:", if any. A problem's code is ERR_DEVICE; cli_doctor_report_fail
 * sets another. */
void cli_doctor_report_add(cli_doctor_report *self, const char *check, cli_doctor_result result, const char *hint, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Adds the error recorded last and clears it; the part after "hint:" becomes the hint. A problem gets its code. */
void cli_doctor_report_fail(cli_doctor_report *self, const char *check, cli_doctor_result result, status code);

status cli_doctor_report_code(const cli_doctor_report *self); /* of the first problem, or OK */
uint32_t cli_doctor_report_count(const cli_doctor_report *self, cli_doctor_result result);
const cli_doctor_line *cli_doctor_report_find(const cli_doctor_report *self, const char *check); /* NULL: no such line */

void cli_doctor_report_print(const cli_doctor_report *self, FILE *to);
json_t *cli_doctor_report_json(const cli_doctor_report *self); /* NULL: no memory */

#endif
