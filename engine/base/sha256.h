/* sha256.h - SHA-256, for digests that people show to each other: weights, plans, manifests, receipts. Of a file it is the number that
 * sha256sum prints.
 *
 * libcrypto computes it, or macOS's CommonCrypto, with the processor's SHA instructions where it has them. Never of rows or requests:
 * digest.h, ten times as fast, is for those. Includes libc only. Read next: RECEIPTS.md, "SHA-256". */
#ifndef VERBATIM_SHA256_H
#define VERBATIM_SHA256_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "base/base.h"

#define SHA256_BYTES 32u
#define SHA256_TEXT_BYTES 65u /* 64 hexadecimal digits and a NUL */

typedef struct sha256 { uint8_t bytes[SHA256_BYTES]; } sha256;

/* A running SHA-256: the library's state in opaque storage, so that digesting never allocates. */
typedef struct sha256_state { _Alignas(8) uint8_t opaque[112]; } sha256_state;

sha256 sha256_of(const void *data, size_t bytes);
void sha256_start(sha256_state *state);
void sha256_add(sha256_state *state, const void *data, size_t bytes);
sha256 sha256_end(const sha256_state *state); /* may be called many times */

/* Of a file from where it stands to its end. path: for the message. ERR_IO. */
status sha256_read(FILE *file, const char *path, sha256 *out);

/* Whether it stands for "not computed", where a struct of the public header has no other sign: all zeros. */
bool sha256_is_none(const uint8_t bytes[SHA256_BYTES]);

/* Writes 64 lower-case digits and a NUL; returns text. */
char *sha256_text(const uint8_t bytes[SHA256_BYTES], char text[SHA256_TEXT_BYTES]);

/* The version of the library: "3.0.19". */
const char *sha256_library(void);

#endif
