/* attn_codes.h - cases of mla_attn that show every number that it reads from KV rows of codes: every code with every power of two as its
 * scale, with scales of all other kinds, and the codes and products that are not finite. */
#ifndef VERBATIM_TEST_ATTN_CODES_H
#define VERBATIM_TEST_ATTN_CODES_H
#include "attn_cases.h"

void attn_codes_run(kernel_test *test);

#endif
