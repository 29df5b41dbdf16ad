/* digest.h - XXH3-128, the digest of rows, requests and files, with a canonical byte order and hexadecimal text.
 *
 * A digest's bytes are XXH's canonical (big-endian) form, so its text is the same on every machine. Not cryptographic: it detects
 * accidents, not forgery; sha256.h stands beside it where files are shown to others. Includes libc only. */
#ifndef VERBATIM_DIGEST_H
#define VERBATIM_DIGEST_H
#include <stddef.h>
#include <stdint.h>

#define DIGEST_BYTES 16u
#define DIGEST_TEXT_BYTES 33u /* 32 hexadecimal digits and a NUL */

typedef struct digest { uint8_t bytes[DIGEST_BYTES]; } digest;

/* A running digest: XXH3's state in opaque storage, passed by value so that digesting never allocates. */
typedef struct digest_state { _Alignas(64) uint8_t opaque[576]; } digest_state;

digest digest_of(const void *data, size_t bytes);
digest digest_of_seeded(const void *data, size_t bytes, uint64_t seed); /* for tables in memory: never stored or compared elsewhere */
void digest_start(digest_state *state);
void digest_add(digest_state *state, const void *data, size_t bytes);
digest digest_end(const digest_state *state); /* may be called many times */

/* Writes 32 lower-case digits and a NUL; returns text. */
char *digest_text(const uint8_t bytes[DIGEST_BYTES], char text[DIGEST_TEXT_BYTES]);

#endif
