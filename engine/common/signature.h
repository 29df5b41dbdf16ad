/* common/signature.h - checks the signature of a file by an SSH key: what `ssh-keygen -Y sign -n verbatim -f KEY FILE` wrote to FILE.sig.
 *
 * ssh-keygen does all of it, started without a shell, with a time limit and a bound on what it prints. Without ssh-keygen nothing is
 * checked, and the error says so. Read next: RECEIPTS.md, "Signatures". */
#ifndef VERBATIM_CLI_SIGNATURE_H
#define VERBATIM_CLI_SIGNATURE_H
#include "base/base.h"
#include "common/options.h"

#define CLI_SIGNATURE_NAMESPACE "verbatim"
#define CLI_SIGNATURE_TEXT_BYTES 1024u

#define CLI_SIGNATURE_HELP \
  "  --allowed-signers FILE  check the signature first: lines of an identity and its public key, as\n" \
  "                      ssh-keygen's ALLOWED SIGNERS has them\n" \
  "  --identity ID       who must have signed; one of that file\n" \
  "  --signature FILE    the signature (default: the file's name and .sig)\n"

typedef struct cli_signature { /* from argv; signers NULL: none is to be checked */
  const char *signers, *identity, *path;
  double patience_seconds; /* that ssh-keygen may take besides reading the file; 0: 30 */
} cli_signature;

/* Adds its rows to a subcommand's table, which has room for row_count rows and ends with zeros. */
void cli_signature_options(cli_signature *self, cli_option *rows, size_t row_count);

/* Whether the options agree. ERR_USAGE. */
status cli_signature_ready(const cli_signature *self);

/* Checks the file's signature. good: what ssh-keygen says of it, a line without control characters and without a line feed. ERR_MISMATCH:
 * the file was altered, the signature is for another namespace, or its key is not one of the identity; ERR_FORMAT: it is no signature;
 * ERR_IO: a file is missing, or ssh-keygen is. */
status cli_signature_check(const cli_signature *self, const char *file, char good[CLI_SIGNATURE_TEXT_BYTES]);

/* Whether a program of that name is on the PATH. */
bool cli_signature_has(const char *program);

#endif
