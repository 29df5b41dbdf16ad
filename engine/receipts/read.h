/* receipts/read.h - a receipt as a file from anywhere: every line's form, the digest, and each request in full, to be run again.
 *
 * The text is hostile: bounded lines, known keys once each, every value in its form and range, lists that agree with each other. What
 * needs a plan to be known (a token beyond the vocabulary, a length) is left to the engine, which refuses it by name. Keys may stand in
 * any order. A receipt that was cut, or whose run ended early, can be read as far as it goes. Allocates: it runs before the engine or
 * beside it. Read next: receipt.h, RECEIPTS.md, "Receipts". */
#ifndef VERBATIM_RECEIPT_READ_H
#define VERBATIM_RECEIPT_READ_H
#include <stdio.h>
#include "base/base.h"
#include "base/digest.h"
#include "base/limits.h"
#include "verbatim.h"

#define RECEIPT_READ_LINE_BYTES_MAX (128u << 20) /* 262,144 tokens, 20 alternatives each, take less */
#define RECEIPT_READ_TEXT_BYTES_MAX 4096u        /* of ids, names and faults */
#define RECEIPT_READ_KERNELS_MAX 4096u

typedef struct receipt_head {
  uint8_t numerics_id[DIGEST_BYTES], config_digest[DIGEST_BYTES], weights_digest[DIGEST_BYTES], tokenizer_digest[DIGEST_BYTES];
  bool has_tokenizer;
} receipt_head;

typedef struct receipt_machine { /* as written: no digest covers it */
  uint8_t plan_digest[DIGEST_BYTES];
  char *version, *device;
  uint32_t driver_version, nvrtc_version;
  uint64_t cublaslt_version;
  verbatim_kernel *kernels; /* [kernel_count] */
  uint32_t kernel_count;
} receipt_machine;

typedef struct receipt_record { /* zeroed: empty */
  char *line;               /* [line_bytes], as it stands in the receipt, with its end and a NUL behind it */
  size_t line_bytes;
  char *id;
  verbatim_request request; /* inputs and outputs, in this record's memory. ignore_eos is set, and stop_ids holds all that stops it, the
                               model's own too, more than a request may have: see receipt_read_stops. No callbacks, no context */
} receipt_record;

typedef struct receipt_place {
  uint64_t offset; /* bytes in the file */
  size_t bytes;    /* of the line       */
} receipt_place;

typedef struct receipt_read { /* zeroed: closed */
  FILE *file;
  receipt_head head;
  receipt_machine machine;
  receipt_place *places; /* [count] */
  uint32_t count, room;
  bool complete;         /* ends with a digest, which is right */
  digest digest;         /* of the requests that are there; the receipt's own when complete */
  char *fault;           /* what ended the run early, or null */
} receipt_read;

/* Reads and checks the whole file, and keeps where its requests stand. ERR_IO, ERR_FORMAT, ERR_LIMIT; ERR_UNSUPPORTED: another version;
 * ERR_MISMATCH: the digest is another. self is to be closed in every case. */
status receipt_read_open(receipt_read *self, const char *path);

/* The same for a file that is open, and can be sought in; it is the reader's then. */
status receipt_read_start(receipt_read *self, FILE *file);
void receipt_read_close(receipt_read *self);

/* Request `index`, to be dropped by the caller. */
status receipt_read_get(receipt_read *self, uint32_t index, receipt_record *record);

/* One line of a request; number: for messages. */
status receipt_read_line(const char *line, size_t bytes, uint32_t number, receipt_record *record);
void receipt_read_drop(receipt_record *record);

/* Splits the stops as a request of a model gives them: where all of the model's own are among them, these stop it by themselves, and the
 * request names the others; else it ignores the model's own. Either way request_stop_ids gives the same ids again. */
void receipt_read_stops(receipt_record *record, const uint32_t *eos, uint32_t eos_count);

#endif
