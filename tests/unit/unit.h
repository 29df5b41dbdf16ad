/* unit.h - cmocka and the standard headers that it needs. Every unit test includes this file instead of them. */
#ifndef VERBATIM_TEST_UNIT_H
#define VERBATIM_TEST_UNIT_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#endif
