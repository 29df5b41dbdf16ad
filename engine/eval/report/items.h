/* eval/report/items.h - the tables of items and parameters in a report: texts of models and files, row by row.
 *
 * All text passes through eval/report/text.c. Knows lines of results; not scores or the page. Read next: eval/report/data.h. */
#ifndef VERBATIM_EVAL_REPORT_ITEMS_H
#define VERBATIM_EVAL_REPORT_ITEMS_H
#include <stdio.h>
#include "base/base.h"
#include "eval/report/data.h"

/* The rows of a list with a caption; `what` is for example "wrong answers". No rows: no table. shows_other: adds the results under other
 * plans. */
void eval_report_items_table(FILE *to, const eval_report_data *d, const eval_report_list *list, const char *what, bool shows_other);

/* A task's parameters and files, collapsed until opened. */
void eval_report_items_task(FILE *to, const eval_report_unit *task);

#endif
