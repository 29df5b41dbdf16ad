/* check_access.h - which bytes an op reads and writes, derived from its arguments and row counts alone.
 *
 * An independent reading of abi.h for check.c: shares no code with the graph that wrote the arguments. */
#ifndef VERBATIM_CHECK_ACCESS_H
#define VERBATIM_CHECK_ACCESS_H
#include "engine/base/base.h"
#include "engine/plan/format.h"

#define CHECK_ACCESS_MAX 15u
#define CHECK_ACCESS_ANY_IO UINT32_MAX

/* The content of a buffer. Each kind of index table has its own type, because reading one as another would go past its end. */
enum check_type {
  TYPE_BF16, TYPE_F32, TYPE_E4M3, TYPE_STRUCT,
  TYPE_TOPK_ID, TYPE_EXPERT_FIRST, TYPE_ROW_TOKEN, TYPE_PAIR_ROW, TYPE_COUNTS, TYPE_PIECES, TYPE_PARTS, TYPE_LISTS, TYPE_INDEX_PAGES,
  TYPE_PAGE_TABLE, TYPE_TOKENS, TYPE_SOURCES, TYPE_SLOT_TOKENS, TYPE_SAMPLED, TYPE_SEQS, TYPE_POSITIONS, TYPE_TILES, TYPE_PARAMS,
  TYPE_AS_WRITTEN /* whatever the buffer of the pointer `type_of` holds */
};

/* rows x batches runs of run_bytes: run (r, b) starts at pointer + start + (first_row + r) * row_stride + b * batch_stride. */
typedef struct check_access {
  uint32_t args_offset; /* offset of the pointer in the argument struct */
  uint32_t is_write;
  uint32_t type;        /* enum check_type */
  uint32_t region;      /* region that it must lie in */
  uint32_t io;          /* offset in plan_io of the place it must point to, or CHECK_ACCESS_ANY_IO */
  uint32_t is_optional; /* the pointer may be NULL */
  uint32_t must_be_null;
  uint32_t type_of;     /* TYPE_AS_WRITTEN: offset of a pointer in the argument struct */
  uint64_t io_at;       /* bytes from the place in plan_io to the one it must point to */
  bool is_pass;         /* it must point to byte pass_at of its buffer: a table by pass */
  uint64_t pass_at;
  uint64_t start, first_row, rows, row_stride, batches, batch_stride, run_bytes;
} check_access;

typedef struct check_rows { /* a step as the launch sees it */
  uint32_t tokens, logits;
  uint32_t blocks; /* grid extent of the op in x */
  bool is_prompt;  /* the op handles prompt rows */
  bool of_drafts;  /* tokens and logits are the number of drafts */
  uint32_t pass;   /* of the draft section; 0: before its first pass */
  uint32_t drafts, all; /* of the step: sequences that get drafts; token rows */
  uint32_t own;    /* of the step: the most rows that a rank owns; `tokens` of an op over these */
  bool by_requests; /* the op is of ROWS_BY_REQUESTS */
} check_rows;

/* The token rows of a step for which an op over rows that ranks own has `rows_min` and `rows_max` launch rows. */
static inline uint32_t check_tokens_from(const plan_limits *limits, const plan_op *op) {
  return op->rows_kind == ROWS_OWN ? (op->rows_min - 1) * limits->ranks + 1 : op->rows_min;
}
static inline uint32_t check_tokens_to(const plan_limits *limits, const plan_op *op) {
  const uint64_t most = (uint64_t)op->rows_max * limits->ranks;
  return op->rows_kind != ROWS_OWN ? op->rows_max : most < limits->max_batch_tokens ? (uint32_t)most : limits->max_batch_tokens;
}

/* Describes every pointer of the op except `step`. args: the op's bytes, args_bytes long. Returns the number of accesses; 0: unknown
 * kernel, or wrong args_bytes. Values that would overflow are reported as UINT64_MAX / 2, which fits in no region. */
uint32_t check_access_describe(uint32_t kernel, const void *args, uint32_t args_bytes, const plan_limits *limits, const check_rows *rows,
                               check_access out[CHECK_ACCESS_MAX]);

/* Bytes from the pointer to the end of the last run. */
uint64_t check_access_extent(const check_access *access);

#endif
