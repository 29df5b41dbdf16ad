/* receipts/read.h - reads a receipt from an untrusted file: checks every line and the digest, and returns each request so that it can run
 * again.
 *
 * The text is hostile input: lines are bounded, keys are known and come once, values have their form and range, lists agree with each
 * other. Checks that need a plan (a token outside the vocabulary, a length) are left to the engine, which refuses such a request with a
 * reason. Keys may come in any order. A truncated receipt, or one whose run ended early, can be read up to its last complete line. It
 * allocates, before the engine runs or next to it. Read next: receipt.h, RECEIPTS.md "Receipts". */
#ifndef VERBATIM_RECEIPT_READ_H
#define VERBATIM_RECEIPT_READ_H
#include <stdio.h>
#include "base/base.h"
#include "base/digest.h"
#include "base/sha256.h"
#include "base/limits.h"
#include "verbatim.h"

#define RECEIPT_READ_LINE_BYTES_MAX (128u << 20) /* 262,144 tokens with 20 alternatives each fit */
#define RECEIPT_READ_TEXT_BYTES_MAX 4096u        /* of ids, names and faults */
#define RECEIPT_READ_KERNELS_MAX 4096u

typedef struct receipt_head {
  uint8_t numerics_id[DIGEST_BYTES], config_digest[DIGEST_BYTES], weights_digest[DIGEST_BYTES], tokenizer_digest[DIGEST_BYTES];
  bool has_tokenizer;
} receipt_head;

typedef struct receipt_machine { /* as written; not covered by the digest */
  uint8_t plan_digest[DIGEST_BYTES];
  char *version, *device;
  uint32_t ranks;           /* 1 in a receipt that does not state them */
  uint32_t driver_version, nvrtc_version;
  uint64_t cublaslt_version;
  verbatim_kernel *kernels; /* [kernel_count] */
  uint32_t kernel_count;
  uint8_t plan_sha256[SHA256_BYTES], config_sha256[SHA256_BYTES], weights_sha256[SHA256_BYTES]; /* zeros: not stated */
} receipt_machine;

typedef struct receipt_record { /* zeroed: empty */
  char *line;               /* [line_bytes], as it stands in the receipt, with its line feed; a NUL follows */
  size_t line_bytes;
  char *id;
  verbatim_request request; /* inputs and outputs, in this record's memory. ignore_eos is set, and stop_ids holds every id that stops the
                             * request, including the model's own and so possibly more than a request may name: see receipt_read_stops. No
                             * callbacks, no context */
} receipt_record;

typedef struct receipt_place {
  uint64_t offset; /* in the file, in bytes */
  size_t bytes;    /* of the line       */
} receipt_place;

typedef struct receipt_read { /* zeroed: closed */
  FILE *file;
  receipt_head head;
  receipt_machine machine;
  receipt_place *places; /* [count] */
  uint32_t count, room;
  bool complete;         /* ends with a correct digest */
  digest digest;         /* of the requests read; the receipt's own when complete */
  char *fault;           /* what ended the run early, or NULL */
} receipt_read;

/* Reads and checks the whole file and remembers the offset of each request. ERR_IO, ERR_FORMAT, ERR_LIMIT; ERR_UNSUPPORTED: another
 * version; ERR_MISMATCH: the digest is wrong. receipt_read_close must be called in every case. */
status receipt_read_open(receipt_read *self, const char *path);

/* The same for an open, seekable file, which the reader then owns. */
status receipt_read_start(receipt_read *self, FILE *file);
void receipt_read_close(receipt_read *self);

/* Reads request `index`; the caller releases it with receipt_read_drop. */
status receipt_read_get(receipt_read *self, uint32_t index, receipt_record *record);

/* Parses one request line. number: the line's, for messages. */
status receipt_read_line(const char *line, size_t bytes, uint32_t number, receipt_record *record);
void receipt_read_drop(receipt_record *record);

/* Splits stop_ids the way a request for this model states them. If all of the model's own stop ids are present, the request relies on them
 * and names only the others; otherwise it ignores the model's own and names all. Either way request_stop_ids returns the same ids as
 * before. */
void receipt_read_stops(receipt_record *record, const uint32_t *eos, uint32_t eos_count);

#endif
