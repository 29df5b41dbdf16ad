/* receipt.h - the text that says what was run, what came out and, in one line that is no part of its digest, what made it.
 *
 * RECEIPTS.md, "Receipts", is normative. Lines of JSON with fixed keys in a fixed order and no spaces; but for the line of the machine
 * no time, host, device or path is in it. Written as requests finish, in the order of input; the last line holds the run's digest.
 * May be kept in memory only (no file) when just the digest is wanted. Read next: receipts/read.h. */
#ifndef VERBATIM_RECEIPT_H
#define VERBATIM_RECEIPT_H
#include <stdio.h>
#include "base/base.h"
#include "base/digest.h"
#include "verbatim.h"

#define RECEIPT_VERSION 3u

typedef struct receipt_sum { /* of the digests of request lines, in any order */
  uint64_t lines;
  uint8_t total[DIGEST_BYTES]; /* modulo 2^128, as an integer in the byte order of a digest */
} receipt_sum;

void receipt_sum_add(receipt_sum *self, const digest *line);

/* The run's digest. head: of the first line's bytes. */
digest receipt_sum_end(const receipt_sum *self, const digest_state *head);

typedef struct receipt {
  FILE *file; /* null: digest only */
  const char *path;
  digest_state head; /* of the first line */
  receipt_sum sum;
  bool failed; /* a write failed; receipt_end says so */
} receipt;

typedef struct receipt_source { /* what the first two lines name */
  const verbatim_info *info;       /* read by receipt_begin only */
  const uint8_t *tokenizer_digest; /* null: prompts were ids     */
} receipt_source;

/* Creates the file (path null: none) and writes the first two lines. */
status receipt_begin(receipt *self, const char *path, const receipt_source *source);

/* One finished request, whose line is in the file when this returns: a run that is killed loses no finished one.
 * id: any text; stop_ids: as request_stop_ids gives them. */
void receipt_add(receipt *self, const char *id, const verbatim_request *request, const int32_t *stop_ids, uint32_t stop_count);

/* The line alone, with its end, into new memory with a NUL behind it, the caller's. ERR_LIMIT: no memory. */
status receipt_line(const char *id, const verbatim_request *request, const int32_t *stop_ids, uint32_t stop_count, char **line,
                    size_t *bytes);

/* "stop", "length" and so on, as receipts have it. */
const char *receipt_finish_name(enum verbatim_finish finish);

/* A line that says the run ended here; the receipt then has no digest line. receipt_fault leaves the file open, for a process that is
 * about to end; receipt_abandon closes it. */
void receipt_fault(receipt *self, const char *what);
void receipt_abandon(receipt *self, const char *what);

/* Writes the digest line, closes the file and returns the digest. ERR_IO: something could not be written. */
status receipt_end(receipt *self, digest *result);

#endif
