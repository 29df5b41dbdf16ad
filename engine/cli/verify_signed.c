/* cli/verify_signed.c - `verbatim verify FILE --allowed-signers`: who signed a manifest or a receipt, and whether it holds together.
 *
 * Runs no model. Owns the output; common/signature.h checks the signature. Read next: cli/verify.c, eval/run/strong.h. */
#include "cli/verify_signed.h"
#include "base/digest.h"
#include "base/input_file.h"
#include "base/sha256.h"
#include "common/output.h"
#include "eval/run/saved.h"
#include "eval/run/strong.h"
#include "receipts/read.h"
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define HEAD_BYTES 4096u

typedef struct contents {
  const char *kind; /* "receipt" or "manifest" */
  char digest[DIGEST_TEXT_BYTES], sha256[SHA256_TEXT_BYTES];
  bool complete, states_files; /* states_files: a manifest with "sha256" */
  uint32_t count;              /* requests of a receipt; files beside a manifest that have the recorded SHA-256 */
} contents;

static status read_receipt(const char *path, contents *out) {
  receipt_read receipt = {0};
  status result = receipt_read_open(&receipt, path);
  out->kind = "receipt";
  out->complete = receipt.complete;
  out->count = receipt.count;
  digest_text(receipt.digest.bytes, out->digest);
  receipt_read_close(&receipt);
  return result;
}

static status read_manifest(const char *path, contents *out) {
  eval_saved saved = {0};
  status result = eval_saved_open(&saved, path);
  out->kind = "manifest";
  out->complete = true;
  if (result == OK) {
    const char *digits = json_string_value(json_object_get(saved.manifest, "manifest_digest"));
    snprintf(out->digest, sizeof out->digest, "%s", digits ? digits : "");
    out->states_files = json_object_get(saved.manifest, "sha256") != NULL;
    result = eval_strong_check(saved.manifest, saved.folder, true, &out->count);
  }
  eval_saved_close(&saved);
  return result;
}

static status read_contents(const char *path, contents *out) {
  char head[HEAD_BYTES + 1];
  sha256 whole;
  FILE *file;
  TRY(input_file_open(path, INPUT_SIGNED, &file));
  const size_t bytes = fread(head, 1, HEAD_BYTES, file);
  head[bytes] = 0;
  rewind(file);
  status result = sha256_read(file, path, &whole);
  fclose(file);
  TRY(result);
  sha256_text(whole.bytes, out->sha256);
  head[strcspn(head, "\n")] = 0; /* a receipt says so in its first line */
  return strstr(head, "\"verbatim_receipt\"") ? read_receipt(path, out) : read_manifest(path, out);
}

static status print_json(const cli_signature *signature, const char *path, const char *good, const contents *c) {
  return cli_output_json(json_pack("{s:b, s:s, s:s, s:s, s:s, s:s, s:b, s:i}", "signed", 1, "identity", signature->identity,
                                   "signature", good, "file", path, "sha256", c->sha256, c->kind, c->digest, "complete", c->complete,
                                   *c->kind == 'r' ? "requests" : "files", (int)c->count), JSON_COMPACT);
}

status cli_verify_signed(const cli_signature *signature, const char *path, bool json) {
  char good[CLI_SIGNATURE_TEXT_BYTES];
  contents found = {.kind = ""};
  TRY(cli_signature_check(signature, path, good));
  TRY(read_contents(path, &found));
  if (json) return print_json(signature, path, good, &found);
  printf("%s\nsha256 %s  %s\n", good, found.sha256, path);
  printf("%s %s", found.kind, found.digest);
  if (*found.kind == 'r') printf(", %u requests%s\n", found.count, found.complete ? "" : "; its run did not end");
  else if (found.states_files) printf("; files beside it that have the recorded SHA-256: %u\n", found.count);
  else printf("; it states the SHA-256 of no other file\n");
  return cli_output_flush();
}
