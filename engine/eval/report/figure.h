/* eval/report/figure.h - the pictures of a report: inline SVG that grows with the page while its letters keep their size.
 *
 * Horizontal places are percentages, curves lie in an inner picture that is stretched. Colours are classes of eval/report/style.c. Each
 * picture tells what it shows in its title. Knows numbers; not tasks, texts or the page. Read next: eval/report/data.h. */
#ifndef VERBATIM_EVAL_REPORT_FIGURE_H
#define VERBATIM_EVAL_REPORT_FIGURE_H
#include <stdio.h>
#include "base/base.h"
#include "eval/report/data.h"

/* The patterns that strips use, once on a page, before them. */
void eval_report_figure_patterns(FILE *to);

/* A share with its interval on a scale from 0 to 1. low and high not finite: none. */
void eval_report_figure_interval(FILE *to, double value, double low, double high);

/* A share as a bar; what of it hangs on fragile items; up to where it may come. */
void eval_report_figure_range(FILE *to, const eval_margin_risk *risk);

/* Margins in powers of two, right above wrong. */
void eval_report_figure_bins(FILE *to, const eval_margin_risk *risk);

/* Share of right and of wrong items whose margin is below each number of ulps. */
void eval_report_figure_curves(FILE *to, const eval_report_steps *margins);

/* Which margins flipped: their share in each power of two, and every item as a dot, or many as a larger one. */
void eval_report_figure_moved(FILE *to, const eval_report_steps *moved);

/* A pattern that a digest of 32 hexadecimal digits makes; anything else: nothing. */
void eval_report_figure_seal(FILE *to, const char *digest);

#endif
