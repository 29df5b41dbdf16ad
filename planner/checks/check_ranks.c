/* check_ranks.c - see check_ranks.h. A walk over the ops; in plans that divide rows, one for every number of rows of a step from which on
 * other ops run. Otherwise, of alternatives each is judged by itself. */
#include "checks/check_ranks.h"
#include <stdlib.h>
#include "checks/reading.h"

/* Ops that may compute a part of columns or heads: every output is a function of one column or head of the divided operands. Of the others,
 * each reads a row whole. */
static bool may_divide(uint32_t kernel) {
  switch (kernel) {
    case OP_gemm:
    case OP_gemm_bias:
    case OP_fp8_gemm:
    case OP_moe_gemm:
    case OP_fp8_moe_gemm:
    case OP_act_quant:
    case OP_qkv_rope:
    case OP_attn:
    case OP_mla_attn:
    case OP_mla_fold:
    case OP_mla_expand:
    case OP_mla_prefill:
    case OP_kv_rope:
    case OP_attn_fold:
    case OP_moe_fold: return true;
    default: return false;
  }
}

/* An operand of which a product sums over the columns, or that all heads share: it must be whole. */
static bool must_be_whole(uint32_t kernel, size_t field) {
  switch (kernel) {
    case OP_qkv_rope: return field == FIELD(qkv_rope, kv_in);
    case OP_gemm_bias: return field == FIELD(gemm_bias, x);
    case OP_fp8_gemm: return field == FIELD(fp8_gemm, x) || field == FIELD(fp8_gemm, x_scale);
    case OP_moe_gemm: return field == FIELD(moe_gemm, x);
    case OP_fp8_moe_gemm: return field == FIELD(fp8_moe_gemm, x) || field == FIELD(fp8_moe_gemm, x_scale);
    default: return false;
  }
}

/* Takes the columns of all ranks: what it exchanges must be divided, and what it leaves is whole. */
static bool exchanges(const plan_op *op, const void *args, size_t field) {
  if (op->kernel == OP_rank_norm) return field == FIELD(rank_norm, delta) || field == FIELD(rank_norm, experts);
  return op->kernel == OP_exchange && field != FIELD(exchange, ranks) && !EXCHANGE_HAS_OWN_ROWS(((const exchange_args *)args)->form);
}

/* Takes the rows of all ranks. */
static bool exchanges_rows(const plan_op *op, const void *args, size_t field) {
  return op->kernel == OP_exchange && field != FIELD(exchange, ranks) && EXCHANGE_HAS_OWN_ROWS(((const exchange_args *)args)->form);
}

/* A product by heads multiplies each head's own columns, any other all columns of a row. */
static bool sums_over(const plan_header *h, const plan_op *op, const void *args, size_t field) {
  const uint32_t heads = h->model.heads / h->limits.ranks;
  return op->kernel == OP_gemm && ((const gemm_args *)args)->batches != heads && field == FIELD(gemm, x);
}

enum rows_state { /* of a buffer: its rows are */
  ROWS_ALL,       /* of all tokens, on all ranks                               */
  ROWS_COMPACT,   /* those that the rank owns, one after the other             */
  ROWS_IN_PLACE   /* of all tokens; only those that the rank owns are computed */
};

typedef struct walk {
  const ranks_plan *p;
  uint32_t tokens;     /* rows of a step; 0: of any */
  bool by_requests;    /* the step attends by requests */
  uint64_t *own_bytes; /* [buffers] leading bytes of each row that only this rank has */
  uint8_t *rows;       /* [buffers] enum rows_state */
} walk;

static const char *name_of(const walk *w, const plan_op *op) {
  return op->name < w->p->header->strings.count ? w->p->strings + op->name : "?";
}

static const plan_fixup *find_pointer(const walk *w, const plan_op *op, uint32_t args_offset) {
  for (uint32_t i = 0; i < op->fixup_count; i++)
    if (w->p->fixups[op->first_fixup + i].args_offset == args_offset) return &w->p->fixups[op->first_fixup + i];
  return NULL;
}

/* Tensors lie in the order of the table. */
static bool is_own_weight(const walk *w, uint64_t offset) {
  uint32_t low = 0, high = w->p->header->tensors.count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (w->p->tensors[middle].offset == offset) return w->p->tensors[middle].rank_step != 0;
    if (w->p->tensors[middle].offset < offset) low = middle + 1;
    else high = middle;
  }
  return false;
}

/* Bytes from the buffer's start, which is that of its first row. */
static uint64_t base_of(const walk *w, const plan_fixup *f) {
  return f->offset - w->p->buffers[w->p->homes[f - w->p->fixups]].offset;
}

static bool is_own(const walk *w, const plan_fixup *f) {
  if (f->region == REGION_WEIGHTS) return is_own_weight(w, f->offset);
  return f->region == REGION_WORK && base_of(w, f) < w->own_bytes[w->p->homes[f - w->p->fixups]];
}

/* An op of attention by requests: its rows are those of the step, of which it computes the owned ones. */
static bool leaves_in_place(const plan_op *op) { return op->rows_kind == ROWS_BY_REQUESTS && op->kernel != OP_exchange; }

/* An op over the rows that a rank owns finds these one after the other, or in their places; any other needs all rows. */
static status check_rows_read(const walk *w, const plan_op *op, const void *args, const plan_fixup *f) {
  const uint32_t state = f->region == REGION_WORK ? w->rows[w->p->homes[f - w->p->fixups]] : ROWS_ALL;
  const bool is_owned = op->rows_kind == ROWS_OWN, is_in_place = leaves_in_place(op);
  if (f->region != REGION_WORK) return OK;
  if (exchanges_rows(op, args, f->args_offset)) {
    const bool are_parts = ((const exchange_args *)args)->form == EXCHANGE_PARTS;
    if (state == (f->rank_step || are_parts ? ROWS_IN_PLACE : ROWS_COMPACT)) return OK;
    return FAIL(ERR_FORMAT, "check: op %s exchanges rows that all ranks have, or takes them from the wrong places", name_of(w, op));
  }
  if (is_in_place && state == ROWS_IN_PLACE) return OK;
  if (is_in_place)
    return FAIL(ERR_FORMAT, "check: op %s attends by requests, and reads rows that ranks do not own, at argument byte %u", name_of(w, op),
                f->args_offset);
  if (!is_owned && state != ROWS_ALL)
    return FAIL(ERR_FORMAT, "check: op %s reads rows that only their owners have, at argument byte %u: expected an exchange before it",
                name_of(w, op), f->args_offset);
  if (is_owned && (f->rank_step == 0) != (state == ROWS_COMPACT))
    return FAIL(ERR_FORMAT, "check: op %s reads other rows than those that the rank owns, at argument byte %u", name_of(w, op),
                f->args_offset);
  return OK;
}

static status check_reads(const walk *w, const plan_op *op, const void *args, const check_access *list, uint32_t count, bool *divides) {
  const char *name = name_of(w, op);
  *divides = false;
  for (uint32_t i = 0; i < count; i++) {
    const plan_fixup *f = list[i].is_write ? NULL : find_pointer(w, op, list[i].args_offset);
    if (!f) continue;
    const bool own = is_own(w, f), is_part = own && f->region == REGION_WORK;
    TRY(check_rows_read(w, op, args, f));
    if (exchanges(op, args, list[i].args_offset)) {
      if (!is_part) return FAIL(ERR_FORMAT, "check: op %s exchanges rows that all ranks have", name);
      continue;
    }
    if (is_part &&
        (!may_divide(op->kernel) || must_be_whole(op->kernel, list[i].args_offset) ||
         sums_over(w->p->header, op, args, list[i].args_offset)))
      return FAIL(ERR_FORMAT, "check: op %s reads columns that only one rank has, at argument byte %u: expected an exchange before it",
                  name, list[i].args_offset);
    *divides |= own;
  }
  if (op->kernel == OP_exchange && ((const exchange_args *)args)->form == EXCHANGE_PARTS) *divides = true;
  if (*divides && op->rows_kind == ROWS_OWN) return FAIL(ERR_FORMAT, "check: op %s divides both rows and columns among ranks", name);
  if (*divides == (op->rank_columns != 0)) return OK;
  return FAIL(ERR_FORMAT, "check: op %s: rank_columns is %u, and its columns are %s among ranks", name, op->rank_columns,
              *divides ? "divided" : "not divided");
}

static enum rows_state rows_after(const plan_op *op, const void *args, const plan_fixup *f) {
  if (op->rows_kind == ROWS_OWN) return f->rank_step ? ROWS_IN_PLACE : ROWS_COMPACT;
  if (leaves_in_place(op)) return ROWS_IN_PLACE;
  return op->kernel == OP_exchange && ((const exchange_args *)args)->form == EXCHANGE_OWNERS ? ROWS_IN_PLACE : ROWS_ALL;
}

static void note_writes(walk *w, const plan_op *op, const void *args, const check_access *list, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    const plan_fixup *f = list[i].is_write ? find_pointer(w, op, list[i].args_offset) : NULL;
    if (!f || f->region != REGION_WORK) continue;
    w->rows[w->p->homes[f - w->p->fixups]] = (uint8_t)rows_after(op, args, f);
    uint64_t *own = &w->own_bytes[w->p->homes[f - w->p->fixups]], base = base_of(w, f);
    if (op->rank_columns) *own = plus(base, times(op->rank_columns, size_of(list[i].type)));
    else if (base == 0) *own = 0;
  }
}

static status check_op(walk *w, const plan_op *op) {
  const plan_limits *l = &w->p->header->limits;
  uint64_t args[32] = {0};
  check_access list[CHECK_ACCESS_MAX];
  if (op->args_bytes > sizeof args) return FAIL(ERR_FORMAT, "check: op %s has arguments of the wrong size", name_of(w, op));
  memcpy(args, w->p->args + op->args_offset, op->args_bytes);
  for (uint32_t i = 0; i < op->fixup_count; i++) args[w->p->fixups[op->first_fixup + i].args_offset / 8] = 1; /* not NULL */
  const check_rows rows = {.tokens = min_u32(op->rows_max, l->max_batch_tokens), .logits = min_u32(op->rows_max, l->max_logit_rows),
                           .blocks = 1, .is_prompt = op->rows_kind == ROWS_PROMPT, .of_drafts = op->rows_kind == ROWS_DRAFTS,
                           .own = op->rows_max, .by_requests = op->rows_kind == ROWS_BY_REQUESTS};
  const uint32_t count = check_access_describe(op->kernel, args, op->args_bytes, l, &rows, list);
  bool divides;
  TRY(check_reads(w, op, args, list, count, &divides));
  note_writes(w, op, args, list, count);
  return OK;
}

/* No row of a divided tensor goes to two ranks. */
static status check_tensor(const ranks_plan *p, uint32_t index) {
  const plan_tensor *t = &p->tensors[index];
  if (index > 0 && t[-1].offset >= t->offset)
    return FAIL(ERR_FORMAT, "check: tensor %s is not in the order of places", p->strings + t->name);
  const uint32_t ranks = p->header->limits.ranks;
  const uint64_t own = (uint64_t)t->batches * t->row_step;
  const uint64_t end = (uint64_t)t->row0 + (t->batches - UINT64_C(1)) * t->row_step + t->row_count;
  const bool is_inside = end <= t->rows && own * (ranks - 1) <= t->rows - end;
  if (t->rank_step == 0 || (ranks > 1 && t->rank_step == own && is_inside)) return OK;
  return FAIL(ERR_FORMAT, "check: tensor %s: %u ranks with %llu of %u rows each, %u apart", p->strings + t->name, ranks,
              (unsigned long long)own, t->rows, t->rank_step);
}

/* Whether the op runs in a step of so many token rows. */
static bool runs(const walk *w, const plan_op *op) {
  const plan_limits *l = &w->p->header->limits;
  const bool is_of_tokens = op->rows_kind == ROWS_TOKENS || op->rows_kind == ROWS_OWN || op->rows_kind >= ROWS_BY_HEADS;
  if (op->rows_kind == (w->by_requests ? ROWS_BY_HEADS : ROWS_BY_REQUESTS)) return false;
  return w->tokens == 0 || !is_of_tokens || (check_tokens_from(l, op) <= w->tokens && w->tokens <= check_tokens_to(l, op));
}

static status check_ops(walk *w, uint32_t tokens) {
  const uint32_t buffers = w->p->header->buffers.count;
  memset(w->own_bytes, 0, buffers * sizeof *w->own_bytes);
  memset(w->rows, ROWS_ALL, buffers);
  w->tokens = tokens;
  for (uint32_t i = 0; i < w->p->header->ops.count; i++)
    if (runs(w, &w->p->ops[i])) TRY(check_op(w, &w->p->ops[i]));
  return OK;
}

/* Where the rows of some ops are divided: the steps of fewest rows that some op over rows of tokens is for. */
static status check_all_rows(walk *w) {
  const plan_header *h = w->p->header;
  bool has_owned = h->limits.requests_rows > 0;
  for (uint32_t i = 0; i < h->ops.count; i++) has_owned |= w->p->ops[i].rows_kind == ROWS_OWN;
  if (!has_owned) return check_ops(w, 0);
  for (uint32_t i = 0; i < h->ops.count; i++) {
    const uint32_t tokens = check_tokens_from(&h->limits, &w->p->ops[i]);
    const uint32_t kind = w->p->ops[i].rows_kind;
    bool is_new = kind == ROWS_TOKENS || kind == ROWS_OWN || kind >= ROWS_BY_HEADS;
    for (uint32_t j = 0; j < i && is_new; j++) is_new = check_tokens_from(&h->limits, &w->p->ops[j]) != tokens;
    for (uint32_t form = 0; form < 2 && is_new; form++) {
      w->by_requests = form;
      if (form == 0 || (h->limits.requests_rows && tokens >= h->limits.requests_rows && tokens <= h->limits.split_rows_max))
        TRY(check_ops(w, tokens));
    }
  }
  return OK;
}

status check_ranks(const ranks_plan *p) {
  const size_t buffers = (size_t)p->header->buffers.count + 1;
  walk w = {.p = p, .own_bytes = calloc(buffers, sizeof *w.own_bytes), .rows = calloc(buffers, 1)};
  ASSERT(w.own_bytes && w.rows);
  status result = OK;
  for (uint32_t i = 0; i < p->header->tensors.count && result == OK; i++) result = check_tensor(p, i);
  if (result == OK) result = check_all_rows(&w);
  free(w.own_bytes);
  free(w.rows);
  return result;
}
