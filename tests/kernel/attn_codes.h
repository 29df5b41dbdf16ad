/* attn_codes.h - cases of mla_attn that show each number that it reads from KV rows of codes: every code under every power of two as a
 * scale, under scales of all other kinds, and the codes and products that are no numbers. */
#ifndef VERBATIM_TEST_ATTN_CODES_H
#define VERBATIM_TEST_ATTN_CODES_H
#include "attn_cases.h"

void attn_codes_run(kernel_test *test);

#endif
