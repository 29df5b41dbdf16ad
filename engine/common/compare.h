/* common/compare.h - shows a difference as text and as JSON for the subcommands that compare: two values next to each other, in the order
 * of the command's arguments.
 *
 * Does not know where the values come from. Read next: receipts/compare.h, diff_values.h, common/output.h. */
#ifndef VERBATIM_CLI_COMPARE_H
#define VERBATIM_CLI_COMPARE_H
#include "receipts/compare.h"
#include <jansson.h>

#define CLI_COMPARE_NUMBER_BYTES 48u

/* === Numbers, by their type (enum verbatim_point_type) and bits === */

/* Formats as "1.0078125 (3f81)"; an integer is shown without bits. Returns text. */
char *cli_compare_number(uint32_t type, uint32_t bits, char text[CLI_COMPARE_NUMBER_BYTES]);

/* Prints a line: what, both numbers, their distance. */
void cli_compare_print_numbers(const char *what, uint32_t type, uint32_t a, uint32_t b);

/* Sets "bits", "values" (null: NaN, Inf) and "ulps" (null: they have no distance). */
void cli_compare_set_numbers(json_t *object, uint32_t type, uint32_t a, uint32_t b);

json_t *cli_compare_bits(uint32_t type, uint32_t bits);
json_t *cli_compare_hex(uint64_t value); /* 16 digits */
json_t *cli_compare_text(const char *text); /* null if it is not UTF-8 */
json_t *cli_compare_pair(json_t *a, json_t *b); /* takes ownership of both */

/* === Requests === */

/* Prints lines that begin with two blanks. */
void cli_compare_print(const receipt_difference *d);

/* {"asked", "tokens_same", "token", "ended"}; a part is null if it does not differ. */
json_t *cli_compare_json(const receipt_difference *d);

#endif
