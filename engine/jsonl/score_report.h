/* score_report.h - scored requests as results: sums, the best of several, lines for programs and people, a summary.
 *
 * NUMERICS.md, "Sums of log-probabilities", is normative for the sums; means and perplexities are figures for people, computed from the
 * sums in binary64. Knows items and requests; not the engine, files or terminals. Allocates: it runs beside the engine, in the command
 * line. Read next: score_items.h, verbatim.h. */
#ifndef VERBATIM_SCORE_REPORT_H
#define VERBATIM_SCORE_REPORT_H
#include <jansson.h>
#include <stdio.h>
#include "base/base.h"
#include "jsonl/score_items.h"
#include "verbatim.h"

typedef struct score_result { /* of one part of an item */
  double logprob;       /* of all its scored tokens */
  uint32_t token_count;
  bool is_greedy;       /* every token is the one of the largest logit */
  const verbatim_request *failed; /* null, or the first request that was not scored to its end: the other fields mean nothing */
} score_result;

/* Of the finished requests that scored one part, in order. */
score_result score_report_result(const verbatim_request *requests, uint32_t request_count);

/* The part with the largest log-probability, or with the largest one per byte; the first such one. -1: one of them has failed, or the
 * parts are ids, which have no bytes. */
int32_t score_report_best(const score_item *item, const score_result *results);
int32_t score_report_best_norm(const score_item *item, const score_result *results);

/* Writes one line, of JSON: the item's echoed keys, then id, numerics_id, task, and what came out; or some lines for people. numerics_id:
 * the 16 bytes of verbatim_info. requests: of a list one for each part, else all those of the one part. ERR_IO. */
status score_report_json(FILE *to, const uint8_t *numerics_id, const score_item *item, const score_result *results,
                         const verbatim_request *requests, uint32_t request_count);
status score_report_text(FILE *to, const score_item *item, const score_result *results);

typedef struct score_mean { /* running; zeroed: of nothing */
  uint64_t count;
  double mean, squares; /* squares: sum of (value - mean)^2 */
} score_mean;

typedef struct score_task {
  char *name;
  uint32_t items, failed;        /* failed: not scored to the end, in no other figure */
  score_mean acc, acc_norm;      /* of lists with an answer: the best is it */
  score_mean pair_logprob, pair_greedy; /* of every continuation without an answer beside it */
  double pair_sum, whole_sum;    /* log-probabilities */
  uint64_t pair_tokens;
  uint64_t whole_items, whole_tokens, whole_words, whole_bytes; /* words and bytes: 0 when some are ids */
  bool has_whole_ids;
} score_task;

typedef struct score_summary { /* zeroed: empty */
  score_task *list; /* [count] in order of appearance; items without a task are of the task "all" */
  uint32_t count, room, last;
} score_summary;

status score_report_add(score_summary *self, const score_item *item, const score_result *results);
void score_report_print(const score_summary *self, FILE *to);

/* The same figures as an object, the caller's; null: no memory. */
json_t *score_report_object(const score_summary *self);
void score_report_close(score_summary *self);

#endif
