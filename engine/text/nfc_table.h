/* text/nfc_table.h - Unicode's data for nfc.c, sorted for binary search. Written by tools/nfc_table.py. */
#ifndef VERBATIM_NFC_TABLE_H
#define VERBATIM_NFC_TABLE_H
#include <stdint.h>

typedef struct nfc_table_row {
  uint32_t a, b, c;
} nfc_table_row;

extern const nfc_table_row nfc_table_decompositions[]; /* a becomes b c, or b alone if c is 0 */
extern const nfc_table_row nfc_table_compositions[];   /* a b become c */
extern const nfc_table_row nfc_table_classes[];        /* a..b have the combining class c; all others 0 */
extern const uint32_t nfc_table_decompositions_count, nfc_table_compositions_count, nfc_table_classes_count;

#endif
