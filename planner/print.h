/* print.h - a plan in words: the output of `verbatim show` and `verbatim plan`. The text works well with diff(1): fixed order, no
 * addresses.
 *
 * Every function takes the bytes of a plan that has been checked (plan_view of engine/plan/plan.h, or planner_make). */
#ifndef VERBATIM_PRINT_H
#define VERBATIM_PRINT_H
#include <stdio.h>
#include "engine/plan/format.h"

void print_summary(FILE *out, const plan_header *plan);    /* model, limits, sizes, peak: a dozen lines         */
void print_regions(FILE *out, const plan_header *plan);    /* the memory map                                    */
void print_kernels(FILE *out, const plan_header *plan);    /* ladder and kernels with their constants           */
void print_exchanges(FILE *out, const plan_header *plan);  /* of a plan for several GPUs, else nothing           */
void print_guarantees(FILE *out, const plan_header *plan); /* guarantees and notes                              */
void print_notes(FILE *out, const plan_header *plan);      /* what was ignored, assumed or chosen                */
void print_memory(FILE *out, const plan_header *plan);     /* work buffers with lifetimes, and a chart of them  */
void print_ops(FILE *out, const plan_header *plan);        /* every op with its rows, grid and pointers         */
void print_json(FILE *out, const plan_header *plan);       /* all but the buffers and ops, as one JSON object   */

#endif
