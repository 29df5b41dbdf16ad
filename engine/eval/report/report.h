/* eval/report/report.h - one HTML file that shows an evaluation: what was run, how to repeat it, its scores, and what hangs on close
 * decisions.
 *
 * EVALUATION.md, "Report", says what is in it. The file needs nothing but a browser: no script, no font, no network, which it also forbids
 * itself. Its bytes follow from the manifest and the results alone, and their size is bounded whatever these hold. Knows no engine.
 * Read next: eval/report/data.h, eval/report/items.h, eval/report/figure.h. */
#ifndef VERBATIM_EVAL_REPORT_H
#define VERBATIM_EVAL_REPORT_H
#include <jansson.h>
#include <stdio.h>
#include "base/base.h"

/* manifest: an object. results: an array of the objects of results.jsonl, in order. Both may lack anything, and are hostile.
 * ERR_IO: the file cannot be written. ERR_LIMIT: no memory. */
status eval_report_write(const char *path, const json_t *manifest, const json_t *results);

/* The same page to an open file, whose errors are the caller's to find. ERR_LIMIT. */
status eval_report_put(FILE *to, const json_t *manifest, const json_t *results);

#endif
