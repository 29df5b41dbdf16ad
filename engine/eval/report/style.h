/* eval/report/style.h - how a report looks: one style sheet for light and dark, for wide pages, phones and paper.
 *
 * Holds no `<` and no `&`, so that it stands in HTML as in XML. Knows the classes that eval_report_*.c write. */
#ifndef VERBATIM_EVAL_REPORT_STYLE_H
#define VERBATIM_EVAL_REPORT_STYLE_H
#include <stdio.h>
#include "base/base.h"

void eval_report_style_put(FILE *to);

#endif
