/* points.h - the rows of numbers that the ops of a plan make of every token: what a trace digests and an audit recomputes.
 *
 * A point is one output of one op, such that its row of a token is a function of the request: ops that order rows by the batch
 * (moe_sort), partial results of a split attention, and results that a receipt holds anyway are none. Alternatives of one op (whole
 * attention, or split attention with its fold) share one point. Told from the plan alone; list is the same for every plan of a
 * model, whatever its limits. Read next: watch.h. */
#ifndef VERBATIM_POINTS_H
#define VERBATIM_POINTS_H
#include "base/arena.h"
#include "base/base.h"
#include "plan/plan.h"
#include "verbatim.h"

enum point_rows {
  POINT_TOKENS = 0, /* row = token row of the step                                                    */
  POINT_LOGITS = 1, /* row = logits row of the step                                                   */
  POINT_PAIRS = 2,  /* the top_k rows of a token, one behind the other in ascending expert: sorted row pair_row[token][k] */
  POINT_KV = 3      /* the token's row of a paged table: page block_table[seq][position / 64], row position % 64 */
};

typedef struct point_place { /* where its rows lie: segments x segment_bytes, from the row's start on, segment_stride apart */
  enum point_rows rows;
  uint32_t region;
  uint64_t offset;           /* of row 0, bytes in the region   */
  uint64_t row_stride;       /* bytes                           */
  uint64_t page_stride;      /* POINT_KV: bytes from a page's first row to the next one's */
  uint32_t segments;         /* POINT_PAIRS: 1                  */
  uint32_t pairs;            /* POINT_PAIRS: top_k, else 1      */
  uint64_t segment_stride, segment_bytes;
  uint64_t pair_row;         /* POINT_PAIRS: u32 [tokens][top_k], bytes in WORK */
} point_place;

typedef struct points {
  uint32_t count;
  const verbatim_point *list;      /* [count] in the order of computation                       */
  const point_place *places;       /* [count]                                                   */
  const uint32_t *first_op;        /* [count] of the point's alternatives; of an attention's, the first mla_attn */
  const uint32_t *first_of_op;     /* [op_count + 1]: made by op i are of_op[first_of_op[i] ..] */
  const uint32_t *of_op;           /* numbers of points                                         */
  uint64_t row_bytes_max;          /* of the longest row, packed                                */
} points;

/* Memory from the arena. ERR_FORMAT: an op's rows leave their region, or its alternatives differ in them. [start-up] */
status points_open(points *self, const plan *p, arena *host);

/* Bytes from the start of a row to the end of its last segment; of POINT_PAIRS, of one of the pairs' rows. */
static inline uint64_t points_span(const point_place *place) {
  return (place->segments - 1) * place->segment_stride + place->segment_bytes;
}

/* Where row `row` of the table begins, bytes in the region. POINT_KV: of page row / 64. */
static inline uint64_t points_row_offset(const point_place *place, uint64_t row) {
  if (place->rows != POINT_KV) return place->offset + row * place->row_stride;
  return place->offset + row / PAGE_TOKENS * place->page_stride + row % PAGE_TOKENS * place->row_stride;
}

/* Token rows first .. end - 1 of a step are those that the op makes its points of, as far as the step has them. */
void points_rows_of_op(const plan *p, uint32_t op, uint32_t *first, uint32_t *end);

/* Bytes of a packed row: count numbers of its type. */
uint64_t points_row_bytes(const verbatim_point *point);

/* NUMERICS.md `row_digest` of a packed row: word i is the bits of number i, those of a bf16 with zeros above. row: aligned as its type. */
uint64_t points_row_digest(const verbatim_point *point, const void *row);

#endif
