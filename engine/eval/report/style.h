/* eval/report/style.h - the style sheet of a report, for light and dark themes, wide pages, phones and paper.
 *
 * Contains no `<` and no `&`, so it is valid in HTML and in XML. Knows the classes that the other files of eval/report use. */
#ifndef VERBATIM_EVAL_REPORT_STYLE_H
#define VERBATIM_EVAL_REPORT_STYLE_H
#include <stdio.h>
#include "base/base.h"

void eval_report_style_put(FILE *to);

#endif
