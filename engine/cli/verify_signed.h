/* cli/verify_signed.h - the part of `verbatim verify` that checks a signed file without a model. Read next: cli/verify.c. */
#ifndef VERBATIM_CLI_VERIFY_SIGNED_H
#define VERBATIM_CLI_VERIFY_SIGNED_H
#include "base/base.h"
#include "common/signature.h"

/* Checks the signature of a manifest or a receipt, the file's own digests, and for a manifest the files beside it that it names, and prints
 * them. Errors are those of cli_signature_check, receipt_read_open, eval_saved_open and eval_strong_check. */
status cli_verify_signed(const cli_signature *signature, const char *path, bool json);

#endif
