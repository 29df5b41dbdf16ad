/* digest.c - see digest.h. XXH3 is inlined into this file, because another archive of the link has an old copy of the same symbols. */
#define XXH_INLINE_ALL
#include <xxhash.h>
#include "base/digest.h"
#include "base/digest_avx2.h"
#include "base/processor.h"
#include <string.h>

_Static_assert(sizeof(XXH3_state_t) <= sizeof(digest_state) && _Alignof(digest_state) == 64, "room for the state");

static digest canonical(XXH128_hash_t hash) {
  XXH128_canonical_t text;
  XXH128_canonicalFromHash(&text, hash);
  digest result;
  memcpy(result.bytes, text.digest, DIGEST_BYTES);
  return result;
}

digest digest_of(const void *data, size_t bytes) { return canonical(XXH3_128bits(data, bytes)); }

digest digest_of_seeded(const void *data, size_t bytes, uint64_t seed) { return canonical(XXH3_128bits_withSeed(data, bytes, seed)); }

void digest_start(digest_state *state) { XXH3_128bits_reset((XXH3_state_t *)(void *)state->opaque); }

void digest_add(digest_state *state, const void *data, size_t bytes) {
  if (bytes == 0) return;
#if defined(__x86_64__)
  if (processor_has_avx2()) {
    digest_avx2_add(state->opaque, data, bytes);
    return;
  }
#endif
  XXH3_128bits_update((XXH3_state_t *)(void *)state->opaque, data, bytes);
}

digest digest_end(const digest_state *state) {
  return canonical(XXH3_128bits_digest((const XXH3_state_t *)(const void *)state->opaque));
}

char *digest_text(const uint8_t bytes[DIGEST_BYTES], char text[DIGEST_TEXT_BYTES]) {
  static const char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < DIGEST_BYTES; i++) {
    text[2 * i] = digits[bytes[i] >> 4];
    text[2 * i + 1] = digits[bytes[i] & 15];
  }
  text[2 * DIGEST_BYTES] = 0;
  return text;
}
