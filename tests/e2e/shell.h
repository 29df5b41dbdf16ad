/* shell.h - shell commands in the scratch folder of a test's model: what they must end with and print.
 *
 * In a command V is the program, TINY the folder of the shipped model and D "--device" with the test's device; a test's own setup may
 * define more. The functions have short names because tests consist of them. Read next: e2e.h. */
#ifndef VERBATIM_E2E_SHELL_H
#define VERBATIM_E2E_SHELL_H
#include <string.h>
#include "e2e.h"
#include "engine/base/base.h"

static struct {
  const e2e_model *model;
  const char *setup;
  char output[1u << 20]; /* stdout and stderr of the last command, NUL-terminated */
} shell;

/* The model and the text, which must outlive the test, apply to all commands that follow. setup: "X=1 && ", or empty. */
static inline void shell_begin(const e2e_model *model, const char *setup) {
  shell.model = model;
  shell.setup = setup;
}

/* The command's exit code. */
static inline int shell_run(const char *command) {
  char setup[2048];
  const char *device = e2e_device() == VERBATIM_DEVICE_CPU ? "cpu" : "gpu";
  const int bytes = snprintf(setup, sizeof setup, "D='--device %s' && %s", device, shell.setup);
  assert_in_range(bytes, 0, sizeof setup - 1);
  return e2e_shell(shell.model, setup, command, shell.output, sizeof shell.output);
}

static inline void must(const char *command) {
  const int code = shell_run(command);
  if (code != 0) fail_msg("%s: ended with %d: %.4000s", command, code, shell.output);
}

/* The command ends with the code, and prints the words. */
static inline void expect(int code, const char *words, const char *command) {
  const int found = shell_run(command);
  if (found != code || !strstr(shell.output, words))
    fail_msg("%s: expected %d and \"%s\", found %d and \"%.4000s\"", command, code, words, found, shell.output);
}

/* Like expect, and the only printed line is an error. */
static inline void expect_error(int code, const char *words, const char *command) {
  expect(code, words, command);
  const char *newline = strchr(shell.output, '\n');
  if (strncmp(shell.output, "verbatim: ", 10) != 0 || !newline || newline[1])
    fail_msg("%s: expected one line with an error, found \"%.4000s\"", command, shell.output);
}

static inline void write_text(const char *name, const char *text) {
  FILE *file = e2e_open(shell.model, name, "wb");
  assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

#endif
