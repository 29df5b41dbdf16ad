/* eval/report/figure.h - the figures of a report: inline SVG that scales with the page while its letters keep their size.
 *
 * Horizontal positions are percentages; curves are in an inner picture that is stretched. Colours are classes of eval/report/style.c. The
 * title of each figure says what it shows. Written by hand because a report needs six small figures with reproducible bytes, and no C
 * library draws SVG so. Knows numbers; not tasks, texts or the page. Read next: eval/report/data.h. */
#ifndef VERBATIM_EVAL_REPORT_FIGURE_H
#define VERBATIM_EVAL_REPORT_FIGURE_H
#include <stdio.h>
#include "base/base.h"
#include "eval/report/data.h"

/* Fill patterns that the strips use; written once per page, before them. */
void eval_report_figure_patterns(FILE *to);

/* A share with its interval, on a scale from 0 to 1. low and high not finite: no interval. */
void eval_report_figure_interval(FILE *to, double value, double low, double high);

/* A share as a bar, the part of it that depends on fragile items, and how high it could get. */
void eval_report_figure_range(FILE *to, const eval_margin_risk *risk);

/* Margins by powers of two, right items above wrong ones. */
void eval_report_figure_bins(FILE *to, const eval_margin_risk *risk);

/* The share of right and of wrong items whose margin is below each number of ulps. */
void eval_report_figure_curves(FILE *to, const eval_report_steps *margins);

/* Which margins flipped: the share per power of two, and a dot for every item, or a larger dot for many. */
void eval_report_figure_moved(FILE *to, const eval_report_steps *moved);

/* A pattern drawn from a digest of 32 hexadecimal digits; nothing for any other text. */
void eval_report_figure_seal(FILE *to, const char *digest);

#endif
