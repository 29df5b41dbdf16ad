/* eval/report/report.h - writes one HTML file that shows an evaluation: what was run, how to repeat it, its scores, and what depends on
 * close decisions.
 *
 * EVALUATION.md, "Report", describes its content. The file needs only a browser: no script, no font, no network, which its own policy also
 * forbids. Its bytes depend only on the manifest and the results, and their size is bounded whatever these contain. Written by hand because
 * escaping and byte-for-byte stability matter more than a template language. Knows no engine. Read next: eval/report/data.h,
 * eval/report/items.h, eval/report/figure.h. */
#ifndef VERBATIM_EVAL_REPORT_H
#define VERBATIM_EVAL_REPORT_H
#include <jansson.h>
#include <stdio.h>
#include "base/base.h"

/* manifest: an object. results: an array of the objects of results.jsonl, in order. Both are hostile input and may lack any member. ERR_IO:
 * the file cannot be written. ERR_LIMIT: no memory. */
status eval_report_write(const char *path, const json_t *manifest, const json_t *results);

/* Writes the same page to an open file; the caller checks the file for errors. ERR_LIMIT. */
status eval_report_put(FILE *to, const json_t *manifest, const json_t *results);

#endif
