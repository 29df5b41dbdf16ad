/* common/compare.h - how the subcommands that compare show what differs, as text and as JSON: two values side by side, the first of what
 * stands first in the command.
 *
 * Knows nothing of where the values are from. Read next: receipts/compare.h, diff_values.h, common/output.h. */
#ifndef VERBATIM_CLI_COMPARE_H
#define VERBATIM_CLI_COMPARE_H
#include "receipts/compare.h"
#include <jansson.h>

#define CLI_COMPARE_NUMBER_BYTES 48u

/* === Numbers, by their type (enum verbatim_point_type) and bits === */

/* "1.0078125 (3f81)"; an integer has no bits behind it. Returns text. */
char *cli_compare_number(uint32_t type, uint32_t bits, char text[CLI_COMPARE_NUMBER_BYTES]);

/* A line: what, both numbers, their distance. */
void cli_compare_print_numbers(const char *what, uint32_t type, uint32_t a, uint32_t b);

/* "bits", "values" (null: NaN, Inf) and "ulps" (null: they have no distance). */
void cli_compare_set_numbers(json_t *object, uint32_t type, uint32_t a, uint32_t b);

json_t *cli_compare_bits(uint32_t type, uint32_t bits);
json_t *cli_compare_hex(uint64_t value); /* 16 digits */
json_t *cli_compare_text(const char *text); /* null where it is not UTF-8 */
json_t *cli_compare_pair(json_t *a, json_t *b); /* takes both over */

/* === Requests === */

/* Lines that begin with two blanks. */
void cli_compare_print(const receipt_difference *d);

/* {"asked", "tokens_same", "token", "ended"}: null where nothing differs. */
json_t *cli_compare_json(const receipt_difference *d);

#endif
