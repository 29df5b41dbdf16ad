/* digest_avx2.h - XXH3's running digest compiled with AVX2: the same bits, twice as fast on cached data.
 *
 * digest.c selects it on CPUs with AVX2. A separate file, because the instruction set of a file is part of its name. */
#ifndef VERBATIM_DIGEST_AVX2_H
#define VERBATIM_DIGEST_AVX2_H
#include <stddef.h>

/* state: XXH3's, as digest_start initialised it. */
void digest_avx2_add(void *state, const void *data, size_t bytes);

#endif
