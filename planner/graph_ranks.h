/* graph_ranks.h - what ranks share and what each has of its own: slices of weights, and the exchange of divided results.
 *
 * With one rank nothing here adds an op. Only for graph*.c. Read next: NUMERICS.md, "Ranks"; engine/plan/format.h, plan_op. */
#ifndef VERBATIM_GRAPH_RANKS_H
#define VERBATIM_GRAPH_RANKS_H
#include "graph_product.h"

/* Rows of a rank if n rows are divided in multiples of `unit`; n if they cannot be divided evenly: then all ranks have them all. */
uint32_t graph_ranks_share(const graph *g, uint32_t n, uint32_t unit);

/* The rows of a rank: `own` of them, or all. */
plan_tensor graph_ranks_rows(const graph *g, plan_tensor whole, uint32_t own);

/* `rows`, by which the first rows of a rank lie behind those of the one before; 0 with one rank. */
static inline uint32_t graph_ranks_step(const graph *g, uint32_t rows) { return g->ranks > 1 ? rows : 0; }

/* rank_columns of an op whose results are divided by heads. */
static inline uint32_t graph_ranks_all(const graph *g) { return g->ranks > 1 ? UINT32_MAX : 0; }

/* Buffers of the exchange. */
void graph_ranks_begin(graph *g);

/* With several ranks: digests of the residual stream and of the rows that the head multiplies, by which the engine finds a rank that
 * computes other bits. */
void graph_ranks_compare(graph *g, matrix rows);

/* The whole rows of a matrix of which every rank has its own columns; the matrix itself if it is not divided. what: names op and result.
 * kind: ROWS_TOKENS or ROWS_LOGITS. */
matrix graph_ranks_gather(graph *g, const char *what, matrix own, uint32_t columns, uint32_t element_bytes, uint32_t kind);

/* The same for fp32 rows of tokens that are divided, for launch rows from rows_min on. to_owners: in steps that divide rows (graph_rows.h),
 * only the owner of a row gets it. */
matrix graph_ranks_gather_from(graph *g, const char *what, matrix own, uint32_t rows_min, bool to_owners);

/* In steps that attend by requests: bf16 rows of which every rank has its own columns, whole to the owner of each row; and the reverse,
 * into rows of a rank's columns. `rows`: of the tables. */
matrix graph_ranks_to_requests(graph *g, const char *what, matrix own, uint64_t rows);
void graph_ranks_from_requests(graph *g, const char *what, matrix whole, matrix own);

typedef struct exchange_table { /* of EXCHANGE_ROWS: the rows that a rank owns, x, and those of all, y */
  uint32_t x, y, x_offset, y_offset, part_bytes, x_stride, y_stride;
  uint32_t x_rank_step; /* bytes, see draft_ref */
} exchange_table;

/* Rows that their owners have, to all ranks, for launch rows from rows_min on. Without tables there is nothing to do. */
void graph_ranks_gather_owned(graph *g, const char *what, const exchange_table *list, uint32_t count, uint32_t rows_min);

/* The next norm adds delta, whole or divided; for few rows it exchanges what it adds. what: an exchange for more rows. is_last: the norm is
 * not before a block, and does not exchange. */
void graph_ranks_add(graph *g, const char *what, matrix delta, bool is_last);

/* The output of a block of a grouped model: the next norm adds it, or its norm (name: of the weight) where the model has norms behind
 * blocks. what: of the output, by which its exchange and its norm are named. */
void graph_ranks_end_block(graph *g, const char *what, const char *name, matrix delta, bool is_last);

/* Notes what the next norm exchanges itself, `part` columns of each rank, and returns for how many launch rows, or 0. */
uint32_t graph_ranks_own(graph *g, addend own, uint32_t part, uint32_t side);

/* The norm before a block, for the launch rows for which it exchanges. */
void graph_ranks_norm(graph *g, const char *what, uint32_t weight, matrix y);

typedef struct divided_rows { /* rows of a product that follows */
  product_rows *rows;
  bool is_scaled; /* by scaled e4m3 weights */
  uint32_t point_order; /* of their codes, see graph */
} divided_rows;

/* The same for rows of products, in place, and for all of them by one op. If a rank has enough whole blocks of columns, rows of scaled
 * products are quantized first, since codes are half the bytes. */
void graph_ranks_gather_rows(graph *g, const char *what, const divided_rows *list, uint32_t count);

#endif
