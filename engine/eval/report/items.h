/* eval/report/items.h - the tables of a report that show items and parameters: texts of models and files, row by row.
 *
 * Everything passes through eval/report/text.c. Knows lines of results; not scores or the page. Read next: eval/report/data.h. */
#ifndef VERBATIM_EVAL_REPORT_ITEMS_H
#define VERBATIM_EVAL_REPORT_ITEMS_H
#include <stdio.h>
#include "base/base.h"
#include "eval/report/data.h"

/* Rows of a list under a caption, "what" being "wrong answers"; without rows nothing. shows_other: also what other plans made of them. */
void eval_report_items_table(FILE *to, const eval_report_data *d, const eval_report_list *list, const char *what, bool shows_other);

/* A task's parameters and files, folded. */
void eval_report_items_task(FILE *to, const eval_report_unit *task);

#endif
