/* receipt.h - the receipt: a text that records the requests of a run, their outputs, and on one undigested line the machine that ran them.
 *
 * RECEIPTS.md "Receipts" is normative. Lines of JSON with fixed keys in a fixed order and no spaces. Apart from the machine line no time,
 * host, device or path appears. Requests are written as they finish, in input order; the last line holds the run's digest. Without a file
 * only the digest is computed. Read next: receipts/read.h. */
#ifndef VERBATIM_RECEIPT_H
#define VERBATIM_RECEIPT_H
#include <stdio.h>
#include "base/base.h"
#include "base/digest.h"
#include "verbatim.h"

#define RECEIPT_VERSION 3u

typedef struct receipt_sum { /* sum of the digests of request lines, in any order */
  uint64_t lines;
  uint8_t total[DIGEST_BYTES]; /* modulo 2^128, in the byte order of a digest */
} receipt_sum;

void receipt_sum_add(receipt_sum *self, const digest *line);

/* The run's digest. head: the digest state after the first line. */
digest receipt_sum_end(const receipt_sum *self, const digest_state *head);

typedef struct receipt {
  FILE *file; /* NULL: digest only. Written past its buffer, with whole_file_append */
  const char *path;
  digest_state head;    /* after the first line */
  digest_state written; /* of every byte of the file, the second line included */
  uint64_t bytes;       /* of the file */
  receipt_sum sum;
} receipt;

typedef struct receipt_source { /* the content of the first two lines */
  const verbatim_info *info;       /* read only by receipt_begin */
  const uint8_t *tokenizer_digest; /* NULL: prompts were ids     */
} receipt_source;

/* Creates the file (path NULL: none) and writes the first two lines. ERR_IO, ERR_LIMIT: no memory. */
status receipt_begin(receipt *self, const char *path, const receipt_source *source);

/* Adds one finished request. Its line is in the file on return, so a killed run loses no finished request. A line that cannot be written
 * whole is not in the file and does not count, and the next one may follow. id: any text; stop_ids: as request_stop_ids returns them.
 * ERR_IO, ERR_LIMIT: no memory. */
status receipt_add(receipt *self, const char *id, const verbatim_request *request, const int32_t *stop_ids, uint32_t stop_count);

/* One request line, with its line feed, as a new NUL-terminated text that the caller frees. ERR_LIMIT: no memory. */
status receipt_line(const char *id, const verbatim_request *request, const int32_t *stop_ids, uint32_t stop_count, char **line,
                    size_t *bytes);

/* "stop", "length" and so on, as receipts spell them. */
const char *receipt_finish_name(enum verbatim_finish finish);

/* The name of a kind of constraint in a receipt; "": no such kind. */
const char *receipt_constraint_name(enum verbatim_constraint_kind kind);

/* Writes a line that says the run ended here; the receipt then has no digest line. receipt_fault leaves the file open, for a process that
 * is about to end; receipt_abandon closes it. */
void receipt_fault(receipt *self, const char *what);
void receipt_abandon(receipt *self, const char *what);

/* Writes the digest line, closes the file and returns the digest. ERR_IO: a write failed. */
status receipt_end(receipt *self, digest *result);

#endif
