/* points.h - trace points: the rows of numbers that a plan's ops compute for every token. A trace digests them, an audit recomputes them.
 *
 * A point is an output of an op whose row for a token is a function of the request. Rows ordered by the batch (moe_sort), partial results
 * of a split attention, and results that a receipt holds anyway are not points. Alternatives of one op (whole attention, or split attention
 * with mla_fold) share one point. Points are derived from the plan alone, and the list is the same for every plan of a model, whatever its
 * limits. Read next: watch.h. */
#ifndef VERBATIM_POINTS_H
#define VERBATIM_POINTS_H
#include "base/arena.h"
#include "base/base.h"
#include "plan/plan.h"
#include "verbatim.h"

enum point_rows {
  POINT_TOKENS = 0, /* row = token row of the step  */
  POINT_LOGITS = 1, /* row = logits row of the step */
  POINT_PAIRS = 2,  /* the top_k rows of a token, one after the other by ascending expert: sorted row pair_row[token][k] */
  POINT_KV = 3      /* the token's row of a paged table: page block_table[seq][position / 64], row position % 64 */
};

typedef struct point_place { /* location of its rows: `segments` runs of segment_bytes, from the start of the row, segment_stride apart */
  enum point_rows rows;
  uint32_t region;
  uint64_t offset;           /* of row 0; bytes in the region */
  uint64_t row_stride;       /* bytes                         */
  uint64_t page_stride;      /* POINT_KV: bytes from a page's first row to the next one's */
  uint32_t segments;         /* POINT_PAIRS: 1                */
  uint32_t pairs;            /* POINT_PAIRS: top_k, else 1    */
  uint64_t segment_stride, segment_bytes;
  uint64_t pair_row;         /* POINT_PAIRS: u32 [tokens][top_k], bytes in WORK */
  uint32_t ranks;            /* that have parts of the row, 1: rank 0 has it all */
  uint64_t own_bytes;        /* of a packed row, or of a pair's, that each of several ranks has of its own; behind them all have the same */
  uint32_t owners;           /* ranks of which each has the rows that it owns (step.h), as rows 0, 1, ...; 1: all rows are in one place */
  uint64_t owner_step;       /* bytes by which row 0 of a rank lies behind that of the rank before it                                */
} point_place;

typedef struct points {
  uint32_t count;
  const verbatim_point *list;      /* [count] in the order of computation on one rank */
  const point_place *places;       /* [count] of its first alternative    */
  const uint32_t *first_op;        /* [count] one of the point's alternatives; of an attention the first mla_attn */
  const uint32_t *first_of_op;     /* [op_count + 1]: points of op i are of_op[first_of_op[i] ..] */
  const uint32_t *of_op;           /* numbers of points                   */
  const point_place *place_of_op;  /* for each of of_op: where this op leaves the rows */
  uint64_t row_bytes_max;          /* size of the longest row, packed     */
} points;

/* Memory is from the arena. ERR_FORMAT: an op's rows leave their region, or its alternatives write different rows. [start-up] */
status points_open(points *self, const plan *p, arena *host);

/* Bytes from the start of a row to the end of its last segment; for POINT_PAIRS, of one pair's row. */
static inline uint64_t points_span(const point_place *place) {
  return (place->segments - 1) * place->segment_stride + place->segment_bytes;
}

/* Start of row `row` of the table, bytes in the region. POINT_KV: row row % 64 of page row / 64. */
static inline uint64_t points_row_offset(const point_place *place, uint64_t row) {
  if (place->rows != POINT_KV) return place->offset + row * place->row_stride;
  return place->offset + row / PAGE_TOKENS * place->page_stride + row % PAGE_TOKENS * place->row_stride;
}

/* The op computes its points for token rows first .. end - 1 of a step, as far as the step has them. */
void points_rows_of_op(const plan *p, uint32_t op, uint32_t *first, uint32_t *end);

/* Bytes of a packed row: count numbers of its type. */
uint64_t points_row_bytes(const verbatim_point *point);

/* NUMERICS.md `row_digest` of a packed row: word i holds the bits of number i, zero-extended for bf16. row: aligned as its type. */
uint64_t points_row_digest(const verbatim_point *point, const void *row);

#endif
