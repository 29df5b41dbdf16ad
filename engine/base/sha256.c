/* sha256.c - see sha256.h. The low-level functions of libcrypto: OpenSSL 3 calls them deprecated, because programs should not choose an
 * algorithm's code; here they keep 4 MB of providers out of the program and the state out of the heap. macOS has the same functions in
 * CommonCrypto. */
#include "base/system.h"
#include SYSTEM_SHA256_HEADER
#include "base/sha256.h"
#include <errno.h>
#include <string.h>

#define PART_BYTES 16384u
#define ADDED_BYTES_MAX ((size_t)1 << 30) /* CommonCrypto counts in 32 bits */

_Static_assert(sizeof(SHA256_CTX) <= sizeof(sha256_state) && _Alignof(SHA256_CTX) <= 8, "room for the state");

sha256 sha256_of(const void *data, size_t bytes) {
  sha256_state state;
  sha256_start(&state);
  sha256_add(&state, data, bytes);
  return sha256_end(&state);
}

void sha256_start(sha256_state *state) { ASSERT(SHA256_Init((SHA256_CTX *)(void *)state->opaque) == 1); }

void sha256_add(sha256_state *state, const void *data, size_t bytes) {
  for (const uint8_t *at = data; bytes > 0;) {
    const uint32_t part = (uint32_t)(bytes < ADDED_BYTES_MAX ? bytes : ADDED_BYTES_MAX);
    ASSERT(SHA256_Update((SHA256_CTX *)(void *)state->opaque, at, part) == 1);
    at += part;
    bytes -= part;
  }
}

sha256 sha256_end(const sha256_state *state) {
  sha256_state copy = *state;
  sha256 result;
  ASSERT(SHA256_Final(result.bytes, (SHA256_CTX *)(void *)copy.opaque) == 1);
  return result;
}

status sha256_read(FILE *file, const char *path, sha256 *out) {
  uint8_t part[PART_BYTES];
  sha256_state state;
  sha256_start(&state);
  for (size_t bytes; (bytes = fread(part, 1, sizeof part, file)) > 0;) sha256_add(&state, part, bytes);
  if (ferror(file)) return FAIL(ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
  *out = sha256_end(&state);
  return OK;
}

bool sha256_is_none(const uint8_t bytes[SHA256_BYTES]) {
  static const uint8_t none[SHA256_BYTES];
  return memcmp(bytes, none, SHA256_BYTES) == 0;
}

char *sha256_text(const uint8_t bytes[SHA256_BYTES], char text[SHA256_TEXT_BYTES]) {
  static const char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < SHA256_BYTES; i++) {
    text[2 * i] = digits[bytes[i] >> 4];
    text[2 * i + 1] = digits[bytes[i] & 15];
  }
  text[2 * SHA256_BYTES] = 0;
  return text;
}

const char *sha256_library(void) { return SYSTEM_SHA256_VERSION; }
