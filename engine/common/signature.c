/* common/signature.c - see common/signature.h. */
#include "common/signature.h"
#include "base/clock.h"
#include "base/input_file.h"
#include "base/pipe.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "ssh-keygen"
#define PATH_BYTES_MAX 4096u
#define PATIENCE_SECONDS 30.0
#define BYTES_PER_SECOND (32.0 * 1024 * 1024) /* a tenth of what it digests: a large file takes as long as it takes */
#define POLL_MS 100

extern char **environ;

typedef struct outcome {
  int code; /* of the program's exit; -1: a signal ended it */
  char text[CLI_SIGNATURE_TEXT_BYTES]; /* the beginning of what it printed on both outputs */
} outcome;

void cli_signature_options(cli_signature *self, cli_option *rows, size_t row_count) {
  const cli_option own[] = {{"--allowed-signers", cli_options_text, &self->signers}, {"--identity", cli_options_text, &self->identity},
                            {"--signature", cli_options_text, &self->path}};
  size_t at = 0;
  while (rows[at].name) at++;
  ASSERT(at + ARRAY_LEN(own) < row_count);
  memcpy(rows + at, own, sizeof own);
}

status cli_signature_ready(const cli_signature *self) {
  const bool any = self->signers || self->identity || self->path;
  if (!any || (self->signers && self->identity && *self->identity)) return OK;
  return FAIL(ERR_USAGE, "a signature: expected --allowed-signers FILE and --identity ID, found no %s; hint: verbatim verify --help",
              self->signers ? "--identity" : "--allowed-signers");
}

/* === The program ============================================================================================================ */

/* Its output, until it closes it or the time is over. What does not fit is read and dropped. */
static status listen(int from, double until, outcome *out) {
  size_t used = 0;
  for (;;) {
    char part[512];
    struct pollfd ready = {.fd = from, .events = POLLIN};
    const int found = poll(&ready, 1, POLL_MS);
    if (found < 0 && errno != EINTR) return FAIL(ERR_IO, PROGRAM ": cannot be listened to: %s", strerror(errno));
    if (found > 0) {
      const ssize_t bytes = read(from, part, sizeof part);
      if (bytes == 0) return OK;
      if (bytes < 0 && errno != EINTR) return FAIL(ERR_IO, PROGRAM ": cannot be listened to: %s", strerror(errno));
      for (ssize_t i = 0; i < bytes && used + 1 < sizeof out->text; i++) out->text[used++] = part[i];
    }
    if (clock_seconds() > until) return FAIL(ERR_IO, PROGRAM ": expected an end, found that it still runs: it was ended");
  }
}

static status wait_for(pid_t child, double until, outcome *out) {
  int how = 0;
  for (;;) {
    const pid_t found = waitpid(child, &how, WNOHANG);
    if (found == child) break;
    if (found < 0 && errno != EINTR) return FAIL(ERR_IO, PROGRAM ": cannot be waited for: %s", strerror(errno));
    if (clock_seconds() > until) return FAIL(ERR_IO, PROGRAM ": expected an end, found that it still runs: it was ended");
    (void)poll(NULL, 0, 5);
  }
  out->code = WIFEXITED(how) ? WEXITSTATUS(how) : -1;
  return OK;
}

static status spawn(const char *const *argv, int input, int output, pid_t *child) {
  posix_spawn_file_actions_t actions;
  if (posix_spawn_file_actions_init(&actions) != 0) return FAIL(ERR_LIMIT, PROGRAM ": no memory");
  int code = posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  if (code == 0) code = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  if (code == 0) code = posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  if (code == 0) code = posix_spawnp(child, PROGRAM, &actions, NULL, (char *const *)(uintptr_t)argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code == 0) return OK;
  if (code == ENOENT)
    return FAIL(ERR_IO, "the signature is not checked: expected the program " PROGRAM " on the PATH, found none; hint: install OpenSSH's "
                "client (Debian: apt-get install openssh-client)");
  return FAIL(ERR_IO, "the signature is not checked: " PROGRAM " cannot be started: %s", strerror(code));
}

/* Runs ssh-keygen with the file as its input. */
static status run(const char *const *argv, int input, double seconds, outcome *out) {
  int ends[2];
  pid_t child = 0;
  const double until = clock_seconds() + seconds;
  *out = (outcome){.code = -1};
  if (lseek(input, 0, SEEK_SET) != 0) return FAIL(ERR_IO, PROGRAM ": its input cannot be read: %s", strerror(errno));
  TRY(pipe_open(ends, 0));
  status result = spawn(argv, input, ends[1], &child);
  close(ends[1]);
  if (result == OK) {
    result = listen(ends[0], until, out);
    if (result == OK) result = wait_for(child, until, out);
    if (result != OK && kill(child, SIGKILL) == 0) (void)waitpid(child, NULL, 0);
  }
  close(ends[0]);
  for (char *c = out->text; *c; c++) {
    if (*c == '\r') *c = '\n';
    else if (*c != '\n' && ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)) *c = '?';
  }
  return result;
}

bool cli_signature_has(const char *program) {
  const char *path = getenv("PATH");
  char name[PATH_BYTES_MAX];
  for (const char *at = path; at && *at;) {
    const size_t bytes = strcspn(at, ":");
    const int length = snprintf(name, sizeof name, "%.*s/%s", (int)bytes, at, program);
    if (bytes && length > 0 && length < (int)sizeof name && access(name, X_OK) == 0) return true;
    at += bytes + (at[bytes] == ':');
  }
  return false;
}

/* === The verdict ============================================================================================================ */

/* The first line that has the word; NULL: none. It is cut off there. */
static const char *line_with(char *text, const char *word) {
  for (char *line = text; *line;) {
    char *end = line + strcspn(line, "\n");
    const bool is_last = *end == 0;
    *end = 0;
    if (strstr(line, word)) return line;
    if (is_last) return NULL;
    *end = '\n';
    line = end + 1;
  }
  return NULL;
}

/* ssh-keygen says of a key that is not allowed only that it "could not verify". With check-novalidate it judges all but that. */
static status refuse(const cli_signature *self, const char *path, const char *file, int input, double seconds, outcome *out) {
  const char *const argv[] = {PROGRAM, "-Y", "check-novalidate", "-n", CLI_SIGNATURE_NAMESPACE, "-s", path, NULL};
  if (line_with(out->text, "incorrect signature"))
    return FAIL(ERR_MISMATCH, "%s: its bytes are not those that were signed in %s: one of the two was altered", file, path);
  if (line_with(out->text, "namespace does not match"))
    return FAIL(ERR_MISMATCH, "%s: expected a signature for the namespace \"" CLI_SIGNATURE_NAMESPACE "\", found one for another; hint: "
                "ssh-keygen -Y sign -n " CLI_SIGNATURE_NAMESPACE " -f KEY FILE", path);
  outcome again;
  TRY(run(argv, input, seconds, &again));
  const char *good = again.code == 0 ? line_with(again.text, "Good \"" CLI_SIGNATURE_NAMESPACE "\" signature") : NULL;
  const char *key = good ? strstr(good, " with ") : NULL;
  if (key)
    return FAIL(ERR_MISMATCH, "%s: expected a key of \"%.200s\" in %s, found a good signature%s, which is not one there; "
                "hint: see the fields of that line, the identity, and namespaces, valid-after and valid-before", path, self->identity,
                self->signers, key);
  const char *said = line_with(out->text, ":");
  return FAIL(ERR_FORMAT, "%s: expected a signature that ssh-keygen can check, found that it says: %s", path, said ? said : out->text);
}

status cli_signature_check(const cli_signature *self, const char *file, char good[CLI_SIGNATURE_TEXT_BYTES]) {
  char beside[PATH_BYTES_MAX];
  const char *path = self->path ? self->path : beside;
  if (snprintf(beside, sizeof beside, "%s.sig", file) >= (int)sizeof beside) return FAIL(ERR_USAGE, "%s: the path is too long", file);
  TRY(input_file_check(file, INPUT_SIGNED));
  TRY(input_file_check(self->signers, INPUT_SIGNERS));
  TRY(input_file_check(path, INPUT_SIGNATURE));
  const char *const argv[] = {PROGRAM, "-Y", "verify", "-f", self->signers, "-I", self->identity, "-n", CLI_SIGNATURE_NAMESPACE, "-s",
                              path, NULL};
  struct stat info;
  outcome found;
  const int input = open(file, O_RDONLY | O_CLOEXEC);
  if (input < 0) return FAIL(ERR_IO, "%s: cannot be opened: %s", file, strerror(errno));
  const double patience = self->patience_seconds > 0 ? self->patience_seconds : PATIENCE_SECONDS;
  const double seconds = patience + (fstat(input, &info) == 0 ? (double)info.st_size / BYTES_PER_SECOND : 0);
  status result = run(argv, input, seconds, &found);
  const char *line = result == OK && found.code == 0 ? line_with(found.text, "Good \"" CLI_SIGNATURE_NAMESPACE "\" signature") : NULL;
  if (line) snprintf(good, CLI_SIGNATURE_TEXT_BYTES, "%s", line);
  else if (result == OK) result = refuse(self, path, file, input, seconds, &found);
  close(input);
  return result;
}
