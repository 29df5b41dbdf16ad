/* receipt.h - the text that says what was run and what came out, byte for byte the same on every machine.
 *
 * PLAN_FORMAT.md, "Receipts", is normative. Lines of JSON with fixed keys in a fixed order and no spaces; no time, host, device or path
 * is in it. Written as requests finish, in the order of input; the last line holds the digest of all lines before.
 * May be kept in memory only (no file) when just the digest is wanted. */
#ifndef VERBATIM_RECEIPT_H
#define VERBATIM_RECEIPT_H
#include <stdio.h>
#include "base.h"
#include "digest.h"
#include "verbatim.h"

typedef struct receipt {
  FILE *file; /* null: digest only */
  const char *path;
  digest_state state;
  bool failed; /* a write failed; receipt_end says so */
} receipt;

typedef struct receipt_source { /* what the first line names */
  const uint8_t *numerics_id, *config_digest, *weights_digest;
  const uint8_t *tokenizer_digest; /* null: prompts were ids */
} receipt_source;

/* Creates the file (path null: none) and writes the first line. */
status receipt_begin(receipt *self, const char *path, const receipt_source *source);

/* One finished request, whose line is in the file when this returns: a run that is killed loses no finished one.
 * id: any text; stop_ids: as request_stop_ids gives them. */
void receipt_add(receipt *self, const char *id, const verbatim_request *request, const int32_t *stop_ids, uint32_t stop_count);

/* "stop", "length" and so on, as receipts have it. */
const char *receipt_finish_name(enum verbatim_finish finish);

/* A line that says the run ended here; the receipt then has no digest line. receipt_fault leaves the file open, for a process that is
 * about to end; receipt_abandon closes it. */
void receipt_fault(receipt *self, const char *what);
void receipt_abandon(receipt *self, const char *what);

/* Writes the digest line, closes the file and returns the digest. ERR_IO: something could not be written. */
status receipt_end(receipt *self, digest *result);

#endif
