/* cli/doctor_report.c - see cli/doctor_report.h. Lines are kept in the order of the checks. */
#include "cli/doctor_report.h"
#include "common/options.h"
#include "common/output.h"
#include <stdarg.h>
#include <string.h>

static const char *const RESULTS[] = {"ok", "unused", "warning", "problem"};

static cli_doctor_line *add_line(cli_doctor_report *self, const char *check, cli_doctor_result result, status code) {
  ASSERT(self->count < CLI_DOCTOR_LINES_MAX);
  cli_doctor_line *line = &self->lines[self->count++];
  line->check = check;
  line->result = result;
  line->code = result == CLI_DOCTOR_PROBLEM ? code : OK;
  return line;
}

/* Makes the part after "hint:" of what was found the line's hint. */
static void split(cli_doctor_line *line) {
  static const char mark[] = "hint: ";
  char *hint = strstr(line->found, mark);
  if (!hint) return;
  snprintf(line->hint, sizeof line->hint, "%s", hint + sizeof mark - 1);
  while (hint > line->found && strchr(" ;,", hint[-1])) hint--;
  *hint = 0;
}

void cli_doctor_report_add(cli_doctor_report *self, const char *check, cli_doctor_result result, const char *hint, const char *format,
                           ...) {
  cli_doctor_line *line = add_line(self, check, result, ERR_DEVICE);
  va_list args;
  va_start(args, format);
  vsnprintf(line->found, sizeof line->found, format, args);
  va_end(args);
  if (hint) snprintf(line->hint, sizeof line->hint, "%s", hint);
  else split(line);
}

void cli_doctor_report_fail(cli_doctor_report *self, const char *check, cli_doctor_result result, status code) {
  cli_doctor_line *line = add_line(self, check, result, code);
  snprintf(line->found, sizeof line->found, "%s", fail_text());
  split(line);
  fail_clear();
}

status cli_doctor_report_code(const cli_doctor_report *self) {
  for (uint32_t i = 0; i < self->count; i++)
    if (self->lines[i].result == CLI_DOCTOR_PROBLEM) return self->lines[i].code;
  return OK;
}

uint32_t cli_doctor_report_count(const cli_doctor_report *self, cli_doctor_result result) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < self->count; i++) count += self->lines[i].result == result;
  return count;
}

const cli_doctor_line *cli_doctor_report_find(const cli_doctor_report *self, const char *check) {
  for (uint32_t i = 0; i < self->count; i++)
    if (strcmp(self->lines[i].check, check) == 0) return &self->lines[i];
  return NULL;
}

void cli_doctor_report_print(const cli_doctor_report *self, FILE *to) {
  for (uint32_t i = 0; i < self->count; i++) {
    const cli_doctor_line *line = &self->lines[i];
    fprintf(to, "%-8s %-14s ", RESULTS[line->result], line->check);
    cli_output_plain(to, line->found);
    if (*line->hint) {
      fprintf(to, "\n%-8s %-14s hint: ", "", "");
      cli_output_plain(to, line->hint);
    }
    putc('\n', to);
  }
  const uint32_t problems = cli_doctor_report_count(self, CLI_DOCTOR_PROBLEM);
  const uint32_t warnings = cli_doctor_report_count(self, CLI_DOCTOR_WARNING);
  fprintf(to, "%u problem%s, %u warning%s\n", problems, CLI_OPTIONS_PLURAL(problems), warnings, CLI_OPTIONS_PLURAL(warnings));
}

/* A text from a file or a driver may not be UTF-8; it is then replaced by a note. */
static json_t *text_of(const char *text) {
  json_t *value = json_string(text);
  return value ? value : json_string("(not UTF-8)");
}

json_t *cli_doctor_report_json(const cli_doctor_report *self) {
  json_t *checks = json_array();
  for (uint32_t i = 0; i < self->count; i++) {
    const cli_doctor_line *line = &self->lines[i];
    json_t *object = json_pack("{s:s, s:s, s:o, s:o}", "check", line->check, "result", RESULTS[line->result], "found", text_of(line->found),
                               "hint", text_of(line->hint));
    if (!object || json_array_append_new(checks, object) != 0) {
      json_decref(checks);
      return NULL;
    }
  }
  return json_pack("{s:b, s:i, s:i, s:o}", "ok", cli_doctor_report_code(self) == OK, "problems",
                   (int)cli_doctor_report_count(self, CLI_DOCTOR_PROBLEM), "warnings",
                   (int)cli_doctor_report_count(self, CLI_DOCTOR_WARNING), "checks", checks);
}
