/* score_report.h - scored requests as results: sums, the best continuation, output lines for programs and people, and a summary.
 *
 * NUMERICS.md, "Sums of log-probabilities", is normative for the sums. Means and perplexities are for people, computed from the sums in
 * binary64. Knows items and requests; not the engine, files or terminals. Allocates: it runs in the command line, next to the engine. Read
 * next: score_items.h, verbatim.h. */
#ifndef VERBATIM_SCORE_REPORT_H
#define VERBATIM_SCORE_REPORT_H
#include <jansson.h>
#include <stdio.h>
#include "base/base.h"
#include "jsonl/score_items.h"
#include "verbatim.h"

typedef struct score_result { /* of one part of an item */
  double logprob;       /* sum over all scored tokens */
  uint32_t token_count;
  bool is_greedy;       /* every scored token has the largest logit of its row */
  const verbatim_request *failed; /* the first request that was not scored completely, or NULL; then the other fields mean nothing */
} score_result;

/* Sums the finished requests that scored one part, in order. */
score_result score_report_result(const verbatim_request *requests, uint32_t request_count);

/* Index of the part with the largest log-probability, or the largest per byte; the first among equals. -1: one of them failed, or the parts
 * are ids and have no bytes. */
int32_t score_report_best(const score_item *item, const score_result *results);
int32_t score_report_best_norm(const score_item *item, const score_result *results);

/* Writes the item as one line of JSON: its echoed keys, then id, numerics_id, task and the results; or as a few lines for people.
 * numerics_id: the 16 bytes of verbatim_info. requests: one for each part of a list, else all those of the one part. ERR_IO. */
status score_report_json(FILE *to, const uint8_t *numerics_id, const score_item *item, const score_result *results,
                         const verbatim_request *requests, uint32_t request_count);
status score_report_text(FILE *to, const score_item *item, const score_result *results);

typedef struct score_mean { /* running mean; zeroed: no values yet */
  uint64_t count;
  double mean, squares; /* squares: sum of (value - mean)^2 */
} score_mean;

typedef struct score_task {
  char *name;
  uint32_t items, failed;        /* failed: not scored completely, and in no other figure */
  score_mean acc, acc_norm;      /* of lists with an answer: whether the best part is the answer */
  score_mean pair_logprob, pair_greedy; /* of every continuation in an item without an answer */
  double pair_sum, whole_sum;    /* log-probabilities */
  uint64_t pair_tokens;
  uint64_t whole_items, whole_tokens, whole_words, whole_bytes; /* words and bytes: 0 when some texts are ids */
  bool has_whole_ids;
} score_task;

typedef struct score_summary { /* zeroed: empty */
  score_task *list; /* [count], in order of appearance; items without a task count under the task "all" */
  uint32_t count, room, last;
} score_summary;

status score_report_add(score_summary *self, const score_item *item, const score_result *results);
void score_report_print(const score_summary *self, FILE *to);

/* The same figures as an object, owned by the caller; NULL: no memory. */
json_t *score_report_object(const score_summary *self);
void score_report_close(score_summary *self);

#endif
