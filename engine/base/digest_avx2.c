/* digest_avx2.c - see digest_avx2.h. XXH3's state is the same for every instruction set, so a state started by digest.c can be continued
 * here. */
#define XXH_INLINE_ALL
#include <xxhash.h>
#include "base/digest_avx2.h"

#ifndef __AVX2__
#error "this file is compiled with -mavx2"
#endif

void digest_avx2_add(void *state, const void *data, size_t bytes) { XXH3_128bits_update((XXH3_state_t *)state, data, bytes); }
