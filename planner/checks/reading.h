/* reading.h - how the planner's checker reads the arguments of an op: checks/<stem>.c says for each the memory that it touches
 * (check_access.h) and the values that it must have (check_values.h).
 *
 * An independent reading of abi.h. It shares no code with the graph that wrote the arguments, nor with engine/ops/, which describes the
 * same ops for traces and costs: common facts are stated twice on purpose. Read next: checks/embed.c. */
#ifndef VERBATIM_READING_H
#define VERBATIM_READING_H
#include <string.h>
#include "abi.h"
#include "checks/check_access.h"
#include "draft.h"

#define HUGE_BYTES (UINT64_MAX / 2)
#define SLOTS_MAX (1u << 24) /* times HEADS_MAX: rows numbered by 32 bits */

typedef struct writer { /* collects accesses */
  const plan_limits *l;
  check_rows rows;
  uint32_t count;
  check_access *out;
} writer;

typedef struct reader { /* the op being checked */
  const plan_model *m;
  const plan_quant *q;
  const plan_limits *l;
  const plan_grouped *g;
  const char *name;
  uint32_t layer;    /* UINT32_MAX: none                 */
  uint32_t rows_max; /* most rows that it runs for */
  uint32_t rows_kind; /* that its arguments must state */
  bool is_prompt; /* it handles prompt rows        */
  bool by_requests; /* it is of ROWS_BY_REQUESTS */
} reader;

/* Ranks among which the heads of attention are divided: all, or one where KV heads are too few or a norm is over all heads, and where
 * ranks attend by requests. */
static inline uint32_t ranks_of_heads(const reader *r) {
  const bool is_whole = r->by_requests || (r->g->kv_heads > 0 && (r->g->kv_heads % r->l->ranks != 0 || r->g->qk_norm == QK_NORM_ROW));
  return is_whole ? 1 : r->l->ranks;
}

typedef struct reading { /* args: the op's bytes; pointers that a fixup sets are not null */
  void (*describe)(writer *w, const void *args);
  status (*values)(const reader *r, const void *args);
} reading;

#define KERNEL(stem) extern const reading checks_##stem;
#include "kernels_src/kernels.def"
#undef KERNEL

/* Null: unknown kernel. */
const reading *reading_of(uint32_t kernel);

#define FIELD(type, name) offsetof(type##_args, name)
#define IO(name) offsetof(plan_io, name)
#define COUNTS (sizeof(attn_counts) / 4)
#define SAME(field, expected) TRY(same(r, #field, a->field, (expected)))
#define SAME_REAL(field, expected) TRY(same_real(r, #field, a->field, (expected)))

static inline uint64_t times(uint64_t a, uint64_t b) { return b != 0 && a > HUGE_BYTES / b ? HUGE_BYTES : a * b; }

static inline uint64_t plus(uint64_t a, uint64_t b) { return a > HUGE_BYTES - b ? HUGE_BYTES : a + b; }

static inline uint64_t size_of(uint32_t type) { return type == TYPE_E4M3 ? 1 : type == TYPE_BF16 ? 2 : 4; }

static inline check_access *add(writer *w, size_t field, bool is_write, uint32_t type, uint32_t region) {
  ASSERT(w->count < CHECK_ACCESS_MAX);
  check_access *a = &w->out[w->count++];
  *a = (check_access){.args_offset = (uint32_t)field, .is_write = is_write, .type = type, .region = region, .io = CHECK_ACCESS_ANY_IO};
  return a;
}

/* A table of the work region: rows of `columns` elements, `stride` elements apart. */
static inline check_access *table(writer *w, size_t field, bool is_write, uint32_t type, uint64_t rows, uint64_t stride, uint64_t columns) {
  check_access *a = add(w, field, is_write, type, REGION_WORK);
  a->rows = rows;
  a->row_stride = times(stride, size_of(type));
  a->batches = 1;
  a->run_bytes = times(columns, size_of(type));
  return a;
}

static inline check_access *weight(writer *w, size_t field, uint32_t type, uint64_t elements) {
  check_access *a = table(w, field, false, type, 1, elements, elements);
  a->region = REGION_WEIGHTS;
  return a;
}

/* One contiguous range of another region at the place that plan_io names. */
static inline check_access *fixed(writer *w, size_t field, bool is_write, uint32_t region, size_t io, uint64_t bytes) {
  check_access *a = add(w, field, is_write, TYPE_STRUCT, region);
  a->io = (uint32_t)io;
  a->rows = a->batches = 1;
  a->row_stride = a->run_bytes = bytes;
  return a;
}

/* The type says what is read there, whatever format is stored. */
static inline check_access *kv_pages(writer *w, size_t field, bool is_write, uint32_t kv_format, uint64_t rank, uint64_t rope) {
  uint64_t bytes = times(times(w->l->kv_pages, PAGE_TOKENS), KV_ROW_BYTES(kv_format, rank, rope));
  check_access *a = fixed(w, field, is_write, REGION_KV, 0, bytes);
  a->io = CHECK_ACCESS_ANY_IO;
  a->type = TYPE_BF16;
  return a;
}

static inline check_access *describe_block_table(writer *w, size_t field, uint32_t stride) {
  return fixed(w, field, false, REGION_STEP, IO(block_table), times(w->l->max_seqs, stride * UINT64_C(4)));
}

static inline void describe_history(writer *w, size_t field, bool is_write) {
  fixed(w, field, is_write, REGION_KV, IO(history), times(w->l->kv_pages, PAGE_TOKENS * UINT64_C(4)));
}

static inline uint64_t rows_of(const writer *w, uint32_t kind) { return kind == ROWS_LOGITS ? w->rows.logits : w->rows.tokens; }

static inline void describe_cos_sin(writer *w, size_t field, uint32_t rope_dim) {
  fixed(w, field, false, REGION_TABLES, IO(cos_sin), times(w->l->max_len, rope_dim * UINT64_C(4)));
}

/* Columns of a product's result. */
static inline uint64_t columns_of(uint32_t n, uint32_t y_kind) { return y_kind == Y_SILU ? n / 2 : n; }

/* The units of split tiles, in all available slots. */
static inline void describe_units(writer *w, size_t o, size_t ml, bool is_write, uint32_t slots, uint32_t heads, uint32_t rank) {
  uint64_t latent = times(heads, rank), states = times(heads, 2);
  table(w, o, is_write, TYPE_F32, slots, latent, latent)->must_be_null = slots == 0;
  table(w, ml, is_write, TYPE_F32, slots, states, states)->must_be_null = slots == 0;
}

/* A table by pass that `accept` writes whole, or what one pass reads of it, `nth` passes after the first that has a part of it. */
static inline check_access *pass_table(writer *w, size_t field, bool is_write, uint32_t type, uint64_t passes, uint64_t nth,
                                       uint64_t bytes) {
  const uint64_t stride = times(plan_draft_stride(w->l), bytes);
  check_access *a = add(w, field, is_write, type, REGION_WORK);
  a->rows = 1;
  a->row_stride = times(passes, stride);
  a->batches = is_write ? passes : 1;
  a->batch_stride = stride;
  a->run_bytes = times(w->rows.drafts, bytes);
  a->is_pass = true;
  a->pass_at = times(nth, stride);
  return a;
}

/* One item for each sequence that gets drafts. */
static inline check_access *draft_list_of(writer *w, size_t field, bool is_write, uint32_t type) {
  return table(w, field, is_write, type, w->rows.drafts, 1, 1);
}

/* The step's inputs for the op's rows, or those that `accept` made for drafts. */
static inline void describe_positions(writer *w, size_t field) {
  if (w->rows.of_drafts) pass_table(w, field, false, TYPE_POSITIONS, w->l->draft_tokens - UINT64_C(1), w->rows.pass - UINT64_C(2), 4);
  else fixed(w, field, false, REGION_STEP, IO(position), w->rows.tokens * UINT64_C(4));
}

static inline void describe_seqs(writer *w, size_t field) {
  if (w->rows.of_drafts) draft_list_of(w, field, false, TYPE_SEQS);
  else fixed(w, field, false, REGION_STEP, IO(seq), w->rows.tokens * UINT64_C(4));
}

static inline void describe_tiles(writer *w, size_t field, size_t io) {
  const uint64_t bytes = sizeof(attn_tile);
  if (w->rows.of_drafts) pass_table(w, field, false, TYPE_TILES, w->l->draft_tokens - UINT64_C(1), w->rows.pass - UINT64_C(2), bytes);
  else if (w->rows.by_requests) fixed(w, field, false, REGION_STEP, IO(own_tiles), plan_own_rows(w->l, w->rows.tokens) * bytes);
  else fixed(w, field, false, REGION_STEP, io, w->rows.tokens * bytes);
}

static inline void describe_contexts(writer *w, size_t field) {
  fixed(w, field, false, REGION_STEP, IO(contexts), times(w->l->max_seqs, sizeof(step_context)));
}

/* Codes, and one scale per 128 of them. */
static inline void describe_codes(writer *w, size_t codes, size_t scales, bool is_write, uint64_t rows, uint64_t columns) {
  table(w, codes, is_write, TYPE_E4M3, rows, columns, columns);
  table(w, scales, is_write, TYPE_F32, rows, columns / SCALE_COLUMNS, columns / SCALE_COLUMNS);
}

/* The same for `count` matrices. */
static inline void describe_scaled_weight(writer *w, size_t codes, size_t scales, uint64_t count, uint64_t n, uint64_t k) {
  weight(w, codes, TYPE_E4M3, times(count, times(n, k)));
  weight(w, scales, TYPE_F32, times(count, times(div_up(n, SCALE_COLUMNS), k / SCALE_COLUMNS)));
}

static inline void index_pages(writer *w, size_t field, bool is_write) {
  check_access *a = fixed(w, field, is_write, REGION_KV, 0, times(w->l->kv_pages, INDEX_PAGE_BYTES));
  a->io = CHECK_ACCESS_ANY_IO;
  a->type = TYPE_INDEX_PAGES;
}

/* The rows of the op's range that the step has. */
static inline uint64_t rows_from(const writer *w, uint32_t row_first, uint32_t row_count) {
  return w->rows.tokens > row_first ? min_u64(row_count, w->rows.tokens - row_first) : 0;
}

static inline status in_range(const char *field, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return OK;
  return FAIL(ERR_FORMAT, "check: %s is %llu, expected %llu to %llu", field, (unsigned long long)value, (unsigned long long)low,
              (unsigned long long)high);
}

static inline status same(const reader *r, const char *field, uint64_t found, uint64_t expected) {
  if (found == expected) return OK;
  return FAIL(ERR_FORMAT, "check: op %s: %s is %llu, expected %llu", r->name, field, (unsigned long long)found,
              (unsigned long long)expected);
}

static inline status same_real(const reader *r, const char *field, float found, float expected) {
  if (memcmp(&found, &expected, sizeof found) == 0) return OK;
  return FAIL(ERR_FORMAT, "check: op %s: %s is %g, expected %g", r->name, field, (double)found, (double)expected);
}

static inline status check_y_kind(const reader *r, uint32_t y_kind, uint32_t n) {
  if (y_kind == Y_SILU) return same(r, "n % 16", n % 16, 0); /* gate and up have whole groups of 8 */
  return same(r, "a y_kind that does not exist", y_kind > Y_SILU, 0);
}

/* A column of scales covers 128 k, and a row of scales covers 128 weight rows, of gate or of up. */
static inline status check_scaled(const reader *r, uint32_t n, uint32_t k, uint32_t y_kind) {
  TRY(check_y_kind(r, y_kind, n));
  TRY(same(r, "k % 128", k % SCALE_COLUMNS, 0));
  return y_kind == Y_SILU ? same(r, "n % 256", n % (2 * SCALE_COLUMNS), 0) : same(r, "n % 8", n % 8, 0);
}

static inline status check_score_rows(const reader *r, uint32_t topk, uint32_t stride, uint32_t row_count) {
  TRY(same(r, "topk", topk, r->q->index_topk));
  TRY(same(r, "stride of scores % 64", stride % 64, 0));
  TRY(in_range("row_count of scores", row_count, 1, r->l->max_batch_tokens));
  return in_range("stride of scores", stride, r->l->max_len, UINT32_MAX);
}

#endif
