/* check.c - see check.h. Tables first, then one simulated step per combination of row counts. Read next: check_access.h, check_values.h. */
#include "checks/check.h"
#include <stdlib.h>
#include <string.h>
#include "abi.h"
#include "attn/attn_cut.h"
#include "checks/check_access.h"
#include "checks/check_branches.h"
#include "checks/check_drafts.h"
#include "checks/check_forms.h"
#include "checks/check_kernels.h"
#include "checks/check_pieces.h"
#include "checks/check_ranks.h"
#include "checks/check_values.h"
#include "draft.h"
#include "emit.h"
#include "engine/plan/format_widen.h"

#define NO_BUFFER UINT32_MAX
#define ROW_COUNTS_MAX 256u
#define ARGS_BYTES_MAX 256u

/* Several times the need of the largest model, so that arbitrary bytes are judged within seconds. */
#define BUFFERS_MAX 16384u
#define PAIRS_MAX (UINT64_C(1) << 30)   /* pairs of a buffer and a pointer */
#define OP_RUNS_MAX (UINT64_C(1) << 26) /* ops of all simulated steps together */

typedef struct run { /* written bytes [start, end) of a buffer's row */
  uint64_t start, end;
} run;

typedef struct buffer_state { /* what a simulated step has written to a work buffer */
  run *runs;                  /* disjoint, not touching, ascending */
  uint32_t count, capacity;
  uint32_t type;
  uint32_t layer;             /* of the op that started it */
  uint64_t row_stride, rows;
} buffer_state;

typedef struct placed_tensor {
  uint64_t offset;
  uint32_t index, pad;
} placed_tensor;

typedef struct row_piece {
  uint32_t layer, first, count;
} row_piece;

typedef struct checker {
  const uint8_t *bytes;
  size_t byte_count;
  const plan_header *h;
  const plan_region *regions;
  const plan_tensor *tensors;
  const plan_buffer *buffers;
  const plan_spec *specs;
  const plan_kernel *kernels;
  const plan_op *ops;
  const plan_fixup *fixups;
  const char *strings;
  placed_tensor *placed; /* [tensors] by destination */
  uint32_t *homes;       /* [fixups] the buffer that the pointer lies in */
  uint32_t *is_read;     /* [buffers] some op reads it */
  buffer_state *states;  /* [buffers] */
  uint32_t token_rows;   /* of the simulated step */
  uint32_t prompt_rows;  /* of the simulated step; prompt ops write next to what the ops of decode rows write */
  uint32_t slots_max[2]; /* of the attention ops, once one has been seen: by heads, by requests */
  row_piece scored;      /* rows whose scores the simulated step computed last */
  uint8_t kv_written[LAYERS_MAX], keys_written[LAYERS_MAX]; /* 1 + the pass of the simulated step that last did; 0: no op has */
  bool is_drafting;      /* the simulated step is in its draft section, */
  uint32_t pass;         /* in this pass of it */
} checker;

/* === Tables ============================================================================================================= */

static status check_span(const checker *c, const char *name, plan_span span, size_t item_bytes) {
  uint64_t bytes = (uint64_t)span.count * item_bytes;
  if (span.item_bytes != item_bytes || span.offset % 8 != 0 || span.offset < sizeof(plan_header) || span.offset > c->byte_count ||
      bytes > c->byte_count - span.offset)
    return FAIL(ERR_FORMAT, "check: table of %s does not lie inside the file", name);
  return OK;
}

static status open_tables(checker *c) {
  const plan_header *h = c->h;
  if (c->byte_count < sizeof *h || memcmp(h->magic, PLAN_MAGIC, sizeof h->magic) != 0 || h->format_version != PLAN_FORMAT_VERSION)
    return FAIL(ERR_FORMAT, "check: not a plan of version %u", PLAN_FORMAT_VERSION);
  TRY(check_span(c, "regions", h->regions, sizeof(plan_region)));
  TRY(check_span(c, "tensors", h->tensors, sizeof(plan_tensor)));
  TRY(check_span(c, "buffers", h->buffers, sizeof(plan_buffer)));
  TRY(check_span(c, "constants", h->specs, sizeof(plan_spec)));
  TRY(check_span(c, "kernels", h->kernels, sizeof(plan_kernel)));
  TRY(check_span(c, "ops", h->ops, sizeof(plan_op)));
  TRY(check_span(c, "fixups", h->fixups, sizeof(plan_fixup)));
  TRY(check_span(c, "gemms", h->gemms, sizeof(plan_gemm)));
  TRY(check_span(c, "arguments", h->args, 1));
  TRY(check_span(c, "strings", h->strings, 1));
  if (h->regions.count != REGION_COUNT) return FAIL(ERR_FORMAT, "check: %u regions, expected %u", h->regions.count, REGION_COUNT);
  c->regions = (const void *)(c->bytes + h->regions.offset);
  c->tensors = (const void *)(c->bytes + h->tensors.offset);
  c->buffers = (const void *)(c->bytes + h->buffers.offset);
  c->specs = (const void *)(c->bytes + h->specs.offset);
  c->kernels = (const void *)(c->bytes + h->kernels.offset);
  c->ops = (const void *)(c->bytes + h->ops.offset);
  c->fixups = (const void *)(c->bytes + h->fixups.offset);
  c->strings = (const char *)c->bytes + h->strings.offset;
  if (h->strings.count == 0 || c->strings[h->strings.count - 1] != 0) return FAIL(ERR_FORMAT, "check: strings do not end");
  return OK;
}

static const char *text(const checker *c, uint32_t string) { return string < c->h->strings.count ? c->strings + string : "?"; }

static status check_header(const checker *c) {
  uint8_t id[16];
  emit_numerics_id(&c->h->model, &c->h->quant, &c->h->grouped, &c->h->limits, id);
  if (memcmp(id, c->h->numerics_id, sizeof id) != 0) return FAIL(ERR_FORMAT, "check: the numerics id is not that of the constants");
  TRY(check_values_header(c->h));
  uint64_t end = 0;
  for (uint32_t i = 0; i < REGION_COUNT; i++) {
    const plan_region *r = &c->regions[i];
    if (r->id != i || r->offset < end || r->offset % 256 != 0 || r->offset > c->h->device_bytes ||
        r->bytes > c->h->device_bytes - r->offset)
      return FAIL(ERR_FORMAT, "check: region %u does not lie in order inside the reservation", i);
    end = r->offset + r->bytes;
  }
  const plan_region *all = c->regions;
  if (all[REGION_STEP_ODD].bytes != all[REGION_STEP].bytes || all[REGION_RESULT_ODD].bytes != all[REGION_RESULT].bytes)
    return FAIL(ERR_FORMAT, "check: the regions of odd steps are not of the size of those of even ones");
  return OK;
}

/* Exhaustive on purpose: every pair of buffers. */
static status check_buffers(const checker *c) {
  for (uint32_t i = 0; i < c->h->buffers.count; i++) {
    const plan_buffer *b = &c->buffers[i];
    if (b->region >= REGION_COUNT || b->offset > c->regions[b->region].bytes || b->bytes > c->regions[b->region].bytes - b->offset)
      return FAIL(ERR_FORMAT, "check: buffer %s does not lie inside its region", text(c, b->name));
    if (b->bytes == 0 || b->offset % 256 != 0 || b->first_op > b->last_op)
      return FAIL(ERR_FORMAT, "check: buffer %s is empty, unaligned or never alive", text(c, b->name));
    for (uint32_t j = 0; j < i; j++) {
      const plan_buffer *o = &c->buffers[j];
      bool is_apart = b->region != o->region || b->last_op < o->first_op || o->last_op < b->first_op ||
                      b->offset >= o->offset + o->bytes || o->offset >= b->offset + b->bytes;
      if (!is_apart) return FAIL(ERR_FORMAT, "check: buffers %s and %s overlap while both are alive", text(c, b->name), text(c, o->name));
    }
  }
  return OK;
}

static uint64_t tensor_bytes(const plan_tensor *t) {
  return (uint64_t)t->row_count * t->batches * t->cols * (t->dtype == DTYPE_F32 ? 4 : t->dtype == DTYPE_E4M3 ? 1 : 2);
}

static int compare_placed(const void *left, const void *right) {
  const placed_tensor *a = left, *b = right;
  if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
  return a->index < b->index ? -1 : 1;
}

static status check_tensors(checker *c) {
  uint64_t end = 0;
  for (uint32_t i = 0; i < c->h->tensors.count; i++) {
    const plan_tensor *t = &c->tensors[i];
    bool is_bounded =
        t->rows && t->cols && t->row_count && t->batches && t->rows <= 1u << 24 && t->cols <= 1u << 24 && t->batches <= 1u << 16;
    if (t->scale_name != PLAN_NO_SCALE && (t->dtype != DTYPE_BF16 || t->scale_name >= c->h->strings.count))
      return FAIL(ERR_FORMAT, "check: tensor %s has scales and is not bf16, or they have no name", text(c, t->name));
    if (!is_bounded || t->dtype > DTYPE_E4M3 || t->transform > TRANSFORM_TRANSPOSE ||
        t->row0 + (t->batches - UINT64_C(1)) * t->row_step + t->row_count > t->rows)
      return FAIL(ERR_FORMAT, "check: tensor %s is not a slice of its source", text(c, t->name));
    c->placed[i] = (placed_tensor){.offset = t->offset, .index = i};
  }
  qsort(c->placed, c->h->tensors.count, sizeof *c->placed, compare_placed);
  for (uint32_t i = 0; i < c->h->tensors.count; i++) {
    const plan_tensor *t = &c->tensors[c->placed[i].index];
    if (t->offset < end || t->offset > c->regions[REGION_WEIGHTS].bytes || tensor_bytes(t) > c->regions[REGION_WEIGHTS].bytes - t->offset)
      return FAIL(ERR_FORMAT, "check: tensor %s overlaps another or leaves its region", text(c, t->name));
    end = t->offset + tensor_bytes(t);
  }
  return OK;
}

/* Checks that [start, start + bytes) of the weights starts with a tensor and is covered without gaps by tensors of one dtype. */
static status check_weight(const checker *c, uint64_t start, uint64_t bytes, uint32_t type, const char *op) {
  uint32_t low = 0, high = c->h->tensors.count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (c->placed[middle].offset < start) low = middle + 1;
    else high = middle;
  }
  uint64_t at = start;
  for (; at < start + bytes && low < c->h->tensors.count; low++) {
    const plan_tensor *t = &c->tensors[c->placed[low].index];
    if (t->offset != at) break;
    if (type != (t->dtype == DTYPE_F32 ? TYPE_F32 : t->dtype == DTYPE_E4M3 ? TYPE_E4M3 : TYPE_BF16))
      return FAIL(ERR_FORMAT, "check: op %s reads tensor %s with the wrong dtype", op, text(c, t->name));
    at += tensor_bytes(t);
  }
  if (at != start + bytes) return FAIL(ERR_FORMAT, "check: op %s reads weights that no tensor fills", op);
  return OK;
}

/* === Ops, without regard to rows ======================================================================================== */

static uint32_t find_home(const checker *c, const plan_fixup *f, uint32_t op) {
  uint32_t home = NO_BUFFER;
  for (uint32_t i = 0; i < c->h->buffers.count; i++) {
    const plan_buffer *b = &c->buffers[i];
    if (b->region == f->region && f->offset >= b->offset && f->offset - b->offset < b->bytes && b->first_op <= op && op <= b->last_op)
      home = i;
  }
  return home; /* buffers alive together do not overlap, so there is at most one */
}

static bool are_alternatives(uint32_t kernel, uint32_t next) { return kernel == next || (kernel == OP_rank_norm && next == OP_rmsnorm); }

static status check_op_tables(checker *c, uint32_t index) {
  const plan_op *op = &c->ops[index];
  const char *name = text(c, op->name);
  if (op->kernel >= OP_COUNT || op->variant >= c->h->kernels.count || c->kernels[op->variant].kernel != op->kernel)
    return FAIL(ERR_FORMAT, "check: op %s names no kernel", name);
  if ((uint64_t)op->first_fixup + op->fixup_count > c->h->fixups.count || (uint64_t)op->args_offset + op->args_bytes > c->h->args.count ||
      op->args_bytes > ARGS_BYTES_MAX || (uint64_t)op->first_gemm + op->gemm_count > c->h->gemms.count)
    return FAIL(ERR_FORMAT, "check: op %s points outside the tables", name);
  uint32_t most = plan_rows_limit(&c->h->limits, op->rows_kind);
  if (op->branch > BRANCH_JOIN) return FAIL(ERR_FORMAT, "check: op %s is of no branch", name);
  const bool is_part = op->rows_kind == ROWS_MADE || op->rows_kind == ROWS_PROMPT;
  const bool is_draft = op->rows_kind == ROWS_DRAFTS;
  const bool is_offered = (!is_part || c->h->limits.expand_pages > 0) && (!is_draft || c->h->limits.speculation == SPECULATION_MTP) &&
                          (op->rows_kind != ROWS_OWN || c->h->limits.ranks > 1) &&
                          (op->rows_kind < ROWS_BY_HEADS || c->h->limits.requests_rows > 0);
  if (op->rows_kind >= ROWS_KINDS || !is_offered || op->rows_min < 1 || op->rows_min > op->rows_max || op->rows_max > most)
    return FAIL(ERR_FORMAT, "check: op %s is for rows %u to %u of %u", name, op->rows_min, op->rows_max, most);
  if (index > 0 && strcmp(name, text(c, c->ops[index - 1].name)) == 0) {
    const plan_op *last = &c->ops[index - 1];
    if ((last->branch == BRANCH_JOIN) != (op->branch == BRANCH_JOIN)) /* else some steps would wait for the side branch and others not */
      return FAIL(ERR_FORMAT, "check: one alternative of op %s joins the side branch, another does not", name);
    const plan_limits *l = &c->h->limits;
    const bool is_owned = last->rows_kind == ROWS_TOKENS && op->rows_kind == ROWS_OWN;
    if (!are_alternatives(last->kernel, op->kernel) || (last->rows_kind != op->rows_kind && !is_owned) ||
        (check_tokens_from(l, last) <= check_tokens_to(l, op) && check_tokens_from(l, op) <= check_tokens_to(l, last)))
      return FAIL(ERR_FORMAT, "check: the alternatives of op %s overlap", name);
  }
  for (uint32_t i = 0; i < op->fixup_count; i++) {
    const plan_fixup *f = &c->fixups[op->first_fixup + i];
    if (f->region >= REGION_COUNT || f->args_offset % 8 != 0 || f->args_offset + UINT64_C(8) > op->args_bytes)
      return FAIL(ERR_FORMAT, "check: op %s has a pointer outside its arguments", name);
    if (f->rank_step && op->rows_kind != ROWS_OWN && op->rows_kind != ROWS_BY_REQUESTS && op->kernel != OP_exchange)
      return FAIL(ERR_FORMAT, "check: op %s is over rows of all ranks, and points elsewhere on other ranks (argument byte %u)", name,
                  f->args_offset);
    c->homes[op->first_fixup + i] = find_home(c, f, index);
    if (c->homes[op->first_fixup + i] == NO_BUFFER)
      return FAIL(ERR_FORMAT, "check: op %s points to no buffer that is alive (argument byte %u)", name, f->args_offset);
  }
  return OK;
}

/* === Launches =========================================================================================================== */

static kernels_plan kernels_of(const checker *c) {
  return (kernels_plan){.header = c->h, .kernels = c->kernels, .specs = c->specs, .strings = c->strings};
}

static uint32_t spec_of(const checker *c, const plan_kernel *kernel, const char *name) {
  const kernels_plan p = kernels_of(c);
  return check_kernels_spec(&p, kernel, name);
}

typedef struct wanted_grid { /* blocks needed for the work; extra ones along x find nothing to do */
  uint64_t x, y, z;
  bool strides; /* all blocks share the work; if not, extra ones along y or z would repeat it */
} wanted_grid;

static wanted_grid want_grid(const plan_op *op, const void *args, uint64_t rows) {
  const gemm_args *gemm = args;
  const gemm_bias_args *biased = args;
  const moe_gemm_args *moe = args;
  const fp8_gemm_args *scaled = args;
  const fp8_moe_gemm_args *scaled_moe = args;
  switch (op->kernel) {
    case OP_gemm:
      if (gemm->n % (gemm->y_kind == Y_F32 ? 2 : 8) || gemm->k % 64) return (wanted_grid){UINT64_MAX, 0, 0, true};
      return (wanted_grid){1, 1, 1, true};
    case OP_gemm_bias:
      if (biased->n % 8 || biased->k % 64) return (wanted_grid){UINT64_MAX, 0, 0, true};
      return (wanted_grid){1, 1, 1, true};
    case OP_moe_gemm:
      if (moe->n % 8 || moe->k % 64) return (wanted_grid){UINT64_MAX, 0, 0, true};
      return (wanted_grid){1, 1, 1, true};
    case OP_fp8_gemm:
      if (scaled->n % 8 || scaled->k % 128) return (wanted_grid){UINT64_MAX, 0, 0, true};
      return (wanted_grid){1, 1, 1, true};
    case OP_fp8_moe_gemm:
      if (scaled_moe->n % 8 || scaled_moe->k % 128) return (wanted_grid){UINT64_MAX, 0, 0, true};
      return (wanted_grid){1, 1, 1, true};
    case OP_act_quant: /* any number of blocks shares the work */
    case OP_kv_widen:
    case OP_mla_expand: return (wanted_grid){1, 1, 1, true};
    case OP_attn_cut: /* blocks along x share the work of these */
    case OP_index_score:
    case OP_mla_prefill:
    case OP_attn:
    case OP_mla_attn:
    case OP_mla_fold:
    case OP_attn_fold:
    case OP_router:
    case OP_moe_sort: return (wanted_grid){1, 1, 1, false};
    case OP_qkv_rope: /* a token's heads are distributed over its blocks, or all work over any blocks */
      return (wanted_grid){((const qkv_rope_args *)args)->absorbs ? 1 : rows, 1, 1, true};
    case OP_kv_rope: return (wanted_grid){rows, 1, 1, true}; /* a token's heads are distributed over its blocks */
    case OP_index_qk: return (wanted_grid){div_up(rows * (((const index_qk_args *)args)->heads + 1ull), INDEX_QK_ROWS), 1, 1, false};
    case OP_index_topk: return (wanted_grid){1, ROW_BLOCKS, 1, false}; /* clusters share the rows */
    case OP_moe_fold: return (wanted_grid){rows, div_up(((const moe_fold_args *)args)->columns, MOE_FOLD_COLUMNS), 1, false};
    case OP_exchange: return (wanted_grid){1, 1, 1, false};
    case OP_adjust: return (wanted_grid){rows, div_up(((const adjust_args *)args)->vocab, ADJUST_SLICE), 1, false};
    case OP_sample:
    case OP_row_digest: return (wanted_grid){rows, ROW_BLOCKS, 1, false};
    default: return (wanted_grid){rows, 1, 1, false};
  }
}

static status check_grid(const checker *c, const plan_op *op, const void *args, uint32_t rows) {
  uint64_t cluster = max_u32(spec_of(c, &c->kernels[op->variant], "SPEC_CLUSTER"), 1);
  uint64_t x = check_forms_extent(op->grid[0], rows), y = check_forms_extent(op->grid[1], rows), z = check_forms_extent(op->grid[2], rows);
  wanted_grid want = want_grid(op, args, rows);
  if (x > 0x7fffffff || y > 65535 || z > 65535)
    return FAIL(ERR_FORMAT, "check: op %s: its grid is larger than a GPU allows at %u rows", text(c, op->name), rows);
  if (x < want.x || y < want.y || z < want.z)
    return FAIL(ERR_FORMAT, "check: op %s: its grid does not cover %u rows", text(c, op->name), rows);
  if (!want.strides && (y != want.y || z != want.z))
    return FAIL(ERR_FORMAT, "check: op %s: its grid is %llu x %llu below x, expected %llu x %llu", text(c, op->name), (unsigned long long)y,
                (unsigned long long)z, (unsigned long long)want.y, (unsigned long long)want.z);
  if (y % cluster != 0) return FAIL(ERR_FORMAT, "check: op %s: its grid has no whole clusters at %u rows", text(c, op->name), rows);
  const plan_kernel *kernel = &c->kernels[op->variant];
  const uint32_t pair = max_u32(spec_of(c, kernel, "SPEC_PAIR"), spec_of(c, kernel, "SPEC_ROW_TILES"));
  const uint32_t partners = max_u32(max_u32(pair, spec_of(c, kernel, "SPEC_SHARES")), 2 * spec_of(c, kernel, "SPEC_TURNS"));
  if (x % max_u32(1, partners))
    return FAIL(ERR_FORMAT, "check: op %s: its grid has a block without a partner at %u rows", text(c, op->name), rows);
  uint64_t spread = spec_of(c, kernel, "SPEC_SPREAD");
  if (spread && (x % spread || x > ATTN_SPREAD_BLOCKS))
    return FAIL(ERR_FORMAT, "check: op %s: its grid is %llu blocks, expected whole groups of %llu that wait for each other, at most %u",
                text(c, op->name), (unsigned long long)x, (unsigned long long)spread, ATTN_SPREAD_BLOCKS);
  return OK;
}

/* attn_cut numbers the partial results; the ops after it have the same number. */
static status check_slots(checker *c, const plan_op *op, const void *args) {
  uint32_t slots = op->kernel == OP_attn_cut   ? ((const attn_cut_args *)args)->slots_max
                   : op->kernel == OP_mla_attn ? ((const mla_attn_args *)args)->slots_max
                   : op->kernel == OP_attn     ? ((const attn_args *)args)->slots_max
                   : op->kernel == OP_mla_fold ? ((const mla_fold_args *)args)->slots_max
                   : op->kernel == OP_attn_fold ? ((const attn_fold_args *)args)->slots_max
                                               : 0;
  uint32_t *expected = &c->slots_max[op->rows_kind == ROWS_BY_REQUESTS];
  if (slots == 0) return OK;
  if (op->kernel == OP_attn_cut) *expected = slots;
  if (slots == *expected) return OK;
  return FAIL(ERR_FORMAT, "check: op %s: slots_max is %u, expected %u as of attn_cut", text(c, op->name), slots, *expected);
}

/* Lists are computed from the scores of their own rows. */
static status check_scores(checker *c, const plan_op *op, const void *args) {
  const index_score_args *score = args;
  const index_topk_args *topk = args;
  if (op->kernel == OP_index_score) c->scored = (row_piece){op->layer, score->row_first, score->row_count};
  if (op->kernel != OP_index_topk) return OK;
  if (c->scored.layer == op->layer && c->scored.first == topk->row_first && c->scored.count == topk->row_count) return OK;
  return FAIL(ERR_FORMAT, "check: op %s: rows from %u on, but scores are of layer %u from row %u on", text(c, op->name), topk->row_first,
              c->scored.layer, c->scored.first);
}

/* === One simulated step ================================================================================================= */

static void add_run(buffer_state *s, uint64_t start, uint64_t end) {
  uint32_t first = 0;
  while (first < s->count && s->runs[first].end < start) first++;
  uint32_t last = first;
  for (; last < s->count && s->runs[last].start <= end; last++) {
    start = s->runs[last].start < start ? s->runs[last].start : start;
    end = s->runs[last].end > end ? s->runs[last].end : end;
  }
  if (first == last && s->count == s->capacity) {
    s->capacity = max_u32(8, 2 * s->capacity);
    s->runs = realloc(s->runs, s->capacity * sizeof *s->runs);
    ASSERT(s->runs != NULL);
  }
  memmove(s->runs + first + 1, s->runs + last, (s->count - last) * sizeof *s->runs);
  s->count = s->count - (last - first) + 1;
  s->runs[first] = (run){start, end};
}

static bool has_run(const buffer_state *s, uint64_t start, uint64_t end) {
  for (uint32_t i = 0; i < s->count; i++)
    if (s->runs[i].start <= start && end <= s->runs[i].end) return true;
  return false;
}

/* A write of rows that follow those already written, in the same columns. */
static status add_rows(buffer_state *s, const check_access *a, uint64_t base, const char *name, const char *buffer) {
  bool is_alike = s->count == 1 && s->runs[0].start == base + a->start && s->runs[0].end == base + a->start + a->run_bytes;
  if (!a->is_write || a->batches != 1 || !is_alike || a->first_row != s->rows)
    return FAIL(ERR_FORMAT, "check: op %s uses rows of %s that do not follow those written before", name, buffer);
  s->rows += a->rows;
  return OK;
}

/* The layer whose indexer chooses the lists of this one. */
static uint32_t lists_layer(const checker *c, uint32_t layer) {
  const uint64_t *shared = c->h->quant.index_shared;
  while (layer > 0 && layer < LAYERS_MAX && (shared[layer / 64] >> layer % 64 & 1) != 0) layer--;
  return layer;
}

/* Of the rows of an op; by heads, that of the rows that attend in a step which does not attend by requests. */
static uint32_t kind_of(const checker *c, const plan_op *op) {
  return op->rows_kind == ROWS_BY_HEADS ? plan_heads_kind(&c->h->limits) : op->rows_kind;
}

static status touch_work(checker *c, const plan_op *op, uint32_t home, const check_access *a, uint64_t base) {
  const char *name = text(c, op->name), *buffer = text(c, c->buffers[home].name);
  buffer_state *s = &c->states[home];
  uint64_t row = base + a->start + (a->batches ? (a->batches - 1) * a->batch_stride : 0) + a->run_bytes;
  if (a->batches == 0 || a->batches > HEADS_MAX || (a->batches > 1 && a->batch_stride > row) || row > a->row_stride)
    return FAIL(ERR_FORMAT, "check: op %s: a row of %s does not fit its stride", name, buffer);
  bool is_new = s->count == 0;
  uint64_t rows = a->rows + (a->is_write && kind_of(c, op) == ROWS_MADE ? c->prompt_rows : 0);
  if (a->is_write && is_new) {
    s->row_stride = a->row_stride;
    s->rows = a->first_row ? 0 : rows;
    s->type = a->type;
    s->layer = op->layer;
  }
  if (!a->is_write && is_new) return FAIL(ERR_FORMAT, "check: op %s reads %s before anything is written to it", name, buffer);
  if (s->row_stride != a->row_stride || s->type != a->type)
    return FAIL(ERR_FORMAT, "check: op %s and the writer of %s differ in its row stride or type", name, buffer);
  if (!a->is_write && rows > s->rows) return FAIL(ERR_FORMAT, "check: op %s reads more rows of %s than are written", name, buffer);
  if (a->type == TYPE_LISTS && s->layer != lists_layer(c, op->layer))
    return FAIL(ERR_FORMAT, "check: op %s uses lists of layer %u, expected of layer %u", name, s->layer, lists_layer(c, op->layer));
  if (a->first_row) return add_rows(s, a, base, name, buffer);
  if (a->is_write && rows < s->rows) s->rows = rows;
  for (uint64_t b = 0; b < a->batches; b++) {
    uint64_t start = base + a->start + b * a->batch_stride;
    if (a->is_write) add_run(s, start, start + a->run_bytes);
    else if (!has_run(s, start, start + a->run_bytes))
      return FAIL(ERR_FORMAT, "check: op %s reads columns of %s before they are written", name, buffer);
  }
  return OK;
}

static const plan_fixup *find_fixup(const checker *c, const plan_op *op, uint32_t args_offset) {
  for (uint32_t i = 0; i < op->fixup_count; i++)
    if (c->fixups[op->first_fixup + i].args_offset == args_offset) return &c->fixups[op->first_fixup + i];
  return NULL;
}

/* Number of layers below this one that have an indexer. */
static uint32_t count_indexers(const checker *c, uint32_t layer) {
  const uint64_t *shared = c->h->quant.index_shared;
  uint32_t count = 0;
  for (uint32_t i = 0; i < layer && c->h->quant.index_heads; i++) count += (shared[i / 64] >> i % 64 & 1) == 0;
  return count;
}

/* Rows or keys of the op's own layer, which are written once per step, or pass of drafts, and not read before. The draft section has those
 * of the layer after the last, and no others. offset: in the region. */
static status touch_kv(checker *c, const plan_op *op, const check_access *a, uint64_t offset, uint64_t base) {
  const char *name = text(c, op->name);
  const bool are_keys = a->type == TYPE_INDEX_PAGES;
  uint8_t *written = are_keys ? c->keys_written : c->kv_written;
  const uint32_t first = c->is_drafting ? c->h->model.layers : 0, end = c->is_drafting ? first + 1 : c->h->model.layers;
  if (op->layer < first || op->layer >= end || (are_keys && lists_layer(c, op->layer) != op->layer) ||
      (are_keys ? offset != c->h->io.index + count_indexers(c, op->layer) * a->run_bytes : base != op->layer * a->run_bytes))
    return FAIL(ERR_FORMAT, "check: op %s uses another layer's %s", name, are_keys ? "keys" : "KV rows");
  if (a->is_write == (written[op->layer] == 1 + c->pass))
    return FAIL(ERR_FORMAT, "check: op %s: %s of layer %u are %s", name, are_keys ? "keys" : "KV rows", op->layer,
                a->is_write ? "written twice" : "not written yet");
  written[op->layer] = (uint8_t)(1 + c->pass);
  return OK;
}

/* The tiles of one rank lie behind those of another. */
static status join_tiles(const checker *c, const plan_op *op, uint64_t step, check_access *a) {
  const uint64_t own = plan_own_tiles(&c->h->limits) * sizeof(attn_tile);
  if (step != own || a->run_bytes > step) return FAIL(ERR_FORMAT, "check: op %s takes the tiles of another rank", text(c, op->name));
  a->row_stride = step;
  a->rows = c->h->limits.ranks;
  return OK;
}

/* The rows that a rank owns, where they stand among those of all: together the ranks use all rows. */
static status join_ranks(const checker *c, const plan_op *op, const plan_fixup *f, check_access *a) {
  const uint64_t step = (uint64_t)f->rank_step * RANK_STEP_BYTES;
  if (a->io == offsetof(plan_io, own_tiles)) return join_tiles(c, op, step, a);
  if (step == 0) return OK;
  if (a->row_stride != step * c->h->limits.ranks || a->batches != 1 || a->first_row != 0 || a->run_bytes > step ||
      a->rows != plan_own_rows(&c->h->limits, c->token_rows) || a->region != REGION_WORK)
    return FAIL(ERR_FORMAT, "check: op %s: the rows of the ranks do not lie between each other (argument byte %u)", text(c, op->name),
                f->args_offset);
  a->rows = c->token_rows;
  a->row_stride = step;
  return OK;
}

static status touch(checker *c, const plan_op *op, check_access *a) {
  const char *name = text(c, op->name);
  const plan_fixup *like = a->type == TYPE_AS_WRITTEN ? find_fixup(c, op, a->type_of) : NULL; /* an op that only moves bytes */
  if (like) a->type = c->states[c->homes[like - c->fixups]].type;
  const plan_fixup *f = find_fixup(c, op, a->args_offset);
  if (!f && (a->is_optional || a->must_be_null)) return OK;
  if (!f || a->must_be_null)
    return FAIL(ERR_FORMAT, "check: op %s: the pointer at argument byte %u must %sbe null", name, a->args_offset, f ? "" : "not ");
  uint32_t home = c->homes[f - c->fixups];
  const plan_buffer *b = &c->buffers[home];
  uint64_t base = f->offset - b->offset;
  if (f->region != a->region) return FAIL(ERR_FORMAT, "check: op %s uses %s, which is in the wrong region", name, text(c, b->name));
  if (f->offset % 16 != 0) return FAIL(ERR_FORMAT, "check: op %s: an unaligned pointer into %s", name, text(c, b->name));
  TRY(join_ranks(c, op, f, a));
  if (check_access_extent(a) > b->bytes - base)
    return FAIL(ERR_FORMAT, "check: op %s reaches beyond the end of %s at the largest row count", name, text(c, b->name));
  if (a->io != CHECK_ACCESS_ANY_IO) {
    uint64_t place = 0;
    memcpy(&place, (const char *)&c->h->io + a->io, sizeof place);
    if (f->offset != place + a->io_at)
      return FAIL(ERR_FORMAT, "check: op %s takes %s for another table of the step", name, text(c, b->name));
  }
  if (a->is_pass && base != a->pass_at) return FAIL(ERR_FORMAT, "check: op %s takes another pass's part of %s", name, text(c, b->name));
  if (!a->is_write) c->is_read[home] = 1;
  if (a->region == REGION_KV && a->io == CHECK_ACCESS_ANY_IO) TRY(touch_kv(c, op, a, f->offset, base));
  if (a->region == REGION_WEIGHTS) return check_weight(c, f->offset, a->run_bytes, a->type, name);
  return a->region == REGION_WORK ? touch_work(c, op, home, a, base) : OK;
}

/* Norms may add in place. */
static bool is_in_place(const plan_op *op, const check_access *out, const check_access *in) {
  if (op->kernel == OP_exchange) /* the rows that a rank owns are where they must be */
    return out->args_offset - in->args_offset == offsetof(exchange_args, y) - offsetof(exchange_args, x) &&
           in->row_stride > out->row_stride;
  if (op->kernel == OP_rank_norm)
    return out->args_offset == offsetof(rank_norm_args, x_out) && in->args_offset == offsetof(rank_norm_args, x);
  return op->kernel == OP_rmsnorm && out->args_offset == offsetof(rmsnorm_args, x_out) && in->args_offset == offsetof(rmsnorm_args, x);
}

/* Checks that the op does not write what it reads or writes elsewhere. */
static status check_apart(const checker *c, const plan_op *op, const check_access *accesses, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    const check_access *a = &accesses[i];
    const plan_fixup *f = find_fixup(c, op, a->args_offset);
    for (uint32_t j = 0; j < count && a->is_write && f; j++) {
      const plan_fixup *g = find_fixup(c, op, accesses[j].args_offset);
      if (i == j || !g || f == g || f->region != g->region) continue;
      const bool may_overlap = is_in_place(op, a, &accesses[j]) && f->offset == g->offset;
      bool is_apart = f->offset + check_access_extent(a) <= g->offset || g->offset + check_access_extent(&accesses[j]) <= f->offset;
      if (!is_apart && !may_overlap) return FAIL(ERR_FORMAT, "check: op %s writes over what it uses", text(c, op->name));
    }
  }
  return OK;
}

typedef struct outcome { /* what a simulated step has produced */
  uint32_t tokens, digests, of_x, of_heads, drafts;
} outcome;

static void count_digest(const plan_op *op, const checker *c, outcome *done) {
  row_digest_args a;
  memcpy(&a, c->bytes + c->h->args.offset + op->args_offset, sizeof a);
  uint32_t *const counts[] = {&done->digests, &done->of_x, &done->of_heads};
  if (a.of_ranks < ARRAY_LEN(counts)) ++*counts[a.of_ranks];
}

static status run_op(checker *c, const plan_op *op, uint32_t rows, check_rows step, outcome *done) {
  uint64_t args[ARGS_BYTES_MAX / 8] = {0};
  check_access accesses[CHECK_ACCESS_MAX];
  memcpy(args, c->bytes + c->h->args.offset + op->args_offset, op->args_bytes);
  for (uint32_t i = 0; i < op->fixup_count; i++) args[c->fixups[op->first_fixup + i].args_offset / 8] = 1; /* not NULL */
  TRY(check_grid(c, op, args, rows));
  const kernels_plan kernels = kernels_of(c);
  TRY(check_forms(&kernels, op, args, rows));
  step.blocks = (uint32_t)check_forms_extent(op->grid[0], rows);
  step.is_prompt = op->rows_kind == ROWS_PROMPT;
  step.of_drafts = op->rows_kind == ROWS_DRAFTS;
  step.by_requests = op->rows_kind == ROWS_BY_REQUESTS;
  if (c->is_drafting && op->kernel == OP_embed) c->pass++;
  step.pass = c->pass;
  uint32_t count = check_access_describe(op->kernel, args, op->args_bytes, &c->h->limits, &step, accesses);
  const plan_fixup *in = find_fixup(c, op, 0);
  if (count == 0) return FAIL(ERR_FORMAT, "check: op %s has arguments of the wrong size", text(c, op->name));
  static const uint64_t PARTS[ROWS_KINDS] = {[ROWS_MADE] = STEP_MADE, [ROWS_PROMPT] = STEP_PROMPT, [ROWS_DRAFTS] = STEP_DRAFTS};
  const bool is_of_rank = op->rows_kind == ROWS_OWN || (step.by_requests && op->kernel != OP_exchange);
  const uint64_t part = is_of_rank ? STEP_PARTS : PARTS[kind_of(c, op)], step_of_rank = is_of_rank ? sizeof(step_in) : 0;
  if (!in || in->region != REGION_STEP || in->offset != c->h->io.step + part * sizeof(step_in) ||
      in->rank_step * RANK_STEP_BYTES != step_of_rank)
    return FAIL(ERR_FORMAT, "check: op %s does not read the step's counts", text(c, op->name));
  if (op->fixup_count > count + 1) return FAIL(ERR_FORMAT, "check: op %s has a pointer too many", text(c, op->name));
  TRY(check_apart(c, op, accesses, count));
  for (uint32_t i = 0; i < count; i++)
    if (!accesses[i].is_write) TRY(touch(c, op, &accesses[i]));
  for (uint32_t i = 0; i < count; i++)
    if (accesses[i].is_write) TRY(touch(c, op, &accesses[i]));
  TRY(check_values_op(c->h, op, args, text(c, op->name)));
  TRY(check_slots(c, op, args));
  TRY(check_scores(c, op, args));
  done->tokens += op->kernel == OP_sample && !c->is_drafting;
  done->drafts += op->kernel == OP_sample && c->is_drafting;
  if (op->kernel == OP_row_digest) count_digest(op, c, done);
  return OK;
}

typedef struct step_shape {
  uint32_t tokens, decode; /* token rows, and those of them that are of decoding */
  uint32_t logits, drafts; /* logits rows; sequences that get drafts             */
  uint32_t part;           /* whose ops run                                      */
  bool by_requests;        /* it attends by requests                             */
} step_shape;

/* A step whose token rows are all of one part has no ops of the other part. A step with both, with `decode` rows of decoding and more rows
 * in all, checks the ops of decode rows together with those of all rows. */
static status run_step(checker *c, step_shape s) {
  const uint32_t tokens = s.tokens, logits = s.logits, own = plan_own_rows(&c->h->limits, tokens);
  outcome done = {0};
  c->token_rows = tokens;
  c->prompt_rows = tokens - s.decode;
  c->is_drafting = false;
  c->pass = 0;
  memset(c->kv_written, 0, sizeof c->kv_written);
  memset(c->keys_written, 0, sizeof c->keys_written);
  for (uint32_t i = 0; i < c->h->buffers.count; i++) c->states[i].count = 0;
  for (uint32_t i = 0; i < c->h->ops.count; i++) {
    const plan_op *op = &c->ops[i];
    const bool of_other = s.by_requests ? op->rows_kind == ROWS_BY_HEADS : op->rows_kind == ROWS_BY_REQUESTS;
    const uint32_t kind = kind_of(c, op);
    const bool of_drafts = kind == ROWS_DRAFTS, is_part = kind == ROWS_MADE || kind == ROWS_PROMPT;
    const uint32_t of_tokens = of_drafts ? s.drafts : kind == ROWS_MADE ? s.decode : kind == ROWS_OWN ? own : tokens;
    const uint32_t rows = kind == ROWS_LOGITS ? logits : of_tokens;
    c->is_drafting |= op->kernel == OP_accept;
    if (rows < op->rows_min || rows > op->rows_max || (is_part && kind != s.part) || of_other) continue;
    TRY(run_op(c, op, rows, (check_rows){.tokens = of_tokens, .logits = of_drafts ? s.drafts : logits, .drafts = s.drafts, .all = tokens,
                                         .own = own}, &done));
  }
  for (uint32_t i = 0; i < plan_kept_layers(&c->h->model, &c->h->limits); i++)
    if (!c->kv_written[i] || (c->keys_written[i] != 0) != (c->h->quant.index_heads != 0 && lists_layer(c, i) == i))
      return FAIL(ERR_FORMAT, "check: no op writes KV rows or keys of layer %u in a step of %u tokens", i, tokens);
  uint32_t heads = logits > 0;
  const bool has_ranks = c->h->limits.ranks > 1;
  if (done.tokens != heads || done.digests != heads || done.of_x != has_ranks || done.of_heads != (has_ranks ? heads : 0))
    return FAIL(ERR_FORMAT, "check: a step of %u tokens and %u logits rows leaves something out", tokens, logits);
  if (c->h->limits.speculation == SPECULATION_MTP && done.drafts != (s.drafts ? c->h->limits.draft_tokens : 0))
    return FAIL(ERR_FORMAT, "check: a step with %u sequences that get drafts makes %u of each, expected %u", s.drafts, done.drafts,
                c->h->limits.draft_tokens);
  return OK;
}

/* === All steps ========================================================================================================== */

typedef struct row_counts {
  uint32_t count;
  uint32_t values[ROW_COUNTS_MAX];
} row_counts;

static void add_count(row_counts *counts, uint32_t value) {
  for (uint32_t i = 0; i < counts->count; i++)
    if (counts->values[i] == value) return;
  if (counts->count < ROW_COUNTS_MAX) counts->values[counts->count++] = value;
}

/* Both ends of every row range: between them only the extents change, and they grow with the rows. */
static row_counts collect_counts(const checker *c, uint32_t kind) {
  row_counts counts = {0};
  for (uint32_t i = 0; i < c->h->ops.count; i++) {
    const uint32_t of = c->ops[i].rows_kind;
    if ((of == ROWS_LOGITS || of == ROWS_DRAFTS ? of : ROWS_TOKENS) != kind) continue;
    const uint32_t first = check_tokens_from(&c->h->limits, &c->ops[i]), last = check_tokens_to(&c->h->limits, &c->ops[i]);
    add_count(&counts, first);
    add_count(&counts, last);
    if (first > 1) add_count(&counts, first - 1);
  }
  return counts;
}

/* A step with rows of both parts, or with prompts whose KV rows are dequantized, has more than one row per part: see exec.c. */
static bool has_part(const checker *c, uint32_t rows) { return rows > 1 || !plan_has_widening(&c->h->limits); }

/* The most sequences that can get drafts in a step with so many logits rows. */
static uint32_t most_drafts(const checker *c, uint32_t logits) {
  return c->h->limits.speculation == SPECULATION_MTP ? min_u32(logits, c->h->limits.max_seqs) : 0;
}

static status check_part(checker *c, const row_counts *tokens, const row_counts *logits, uint32_t part) {
  for (uint32_t i = 0; i < tokens->count; i++) {
    const uint32_t rows = tokens->values[i];
    if (part == ROWS_PROMPT && !has_part(c, rows)) continue;
    TRY(run_step(c, (step_shape){rows, rows, 0, 0, part, false}));
    for (uint32_t j = 0; j < logits->count; j++) {
      const uint32_t of_logits = logits->values[j];
      if (of_logits <= rows) TRY(run_step(c, (step_shape){rows, rows, of_logits, most_drafts(c, of_logits), part, false}));
    }
  }
  return OK;
}

/* Steps that attend by requests: of generated tokens alone. */
static status check_requests(checker *c, const row_counts *tokens) {
  const plan_limits *l = &c->h->limits;
  for (uint32_t i = 0; i < tokens->count && l->requests_rows > 0; i++) {
    const uint32_t rows = tokens->values[i];
    if (rows < l->requests_rows || rows > l->split_rows_max) continue;
    TRY(run_step(c, (step_shape){rows, rows, min_u32(rows, l->max_logit_rows), most_drafts(c, rows), ROWS_MADE, true}));
  }
  return OK;
}

/* Steps of most rows with fewer sequences. */
static status check_draft_counts(checker *c, const row_counts *drafts) {
  const uint32_t rows = c->h->limits.max_batch_tokens, logits = c->h->limits.max_logit_rows;
  for (uint32_t i = 0; i < drafts->count; i++)
    if (drafts->values[i] <= most_drafts(c, logits))
      TRY(run_step(c, (step_shape){rows, rows, logits, drafts->values[i], ROWS_MADE, false}));
  return OK;
}

static status check_steps(checker *c) {
  row_counts tokens = collect_counts(c, ROWS_TOKENS), logits = collect_counts(c, ROWS_LOGITS), drafts = collect_counts(c, ROWS_DRAFTS);
  add_count(&tokens, 1);
  add_count(&tokens, c->h->limits.max_batch_tokens);
  add_count(&logits, c->h->limits.max_logit_rows);
  if (max_u32(max_u32(tokens.count, logits.count), drafts.count) == ROW_COUNTS_MAX) return FAIL(ERR_FORMAT, "check: too many row ranges");
  const bool has_prompts = c->h->limits.expand_pages > 0;
  const uint64_t steps = (uint64_t)tokens.count * (has_prompts ? 2 * (logits.count + 1) + 1 : logits.count + 1) + drafts.count;
  if (steps * c->h->ops.count > OP_RUNS_MAX)
    return FAIL(ERR_LIMIT, "check: %u ops with %u row ranges are more than a plan can need", c->h->ops.count, tokens.count * logits.count);
  TRY(check_part(c, &tokens, &logits, ROWS_MADE));
  TRY(check_draft_counts(c, &drafts));
  TRY(check_requests(c, &tokens));
  if (has_prompts) {
    TRY(check_part(c, &tokens, &logits, ROWS_PROMPT));
    for (uint32_t i = 0; i < tokens.count; i++)
      if (has_part(c, tokens.values[i]))
        TRY(run_step(c, (step_shape){c->h->limits.max_batch_tokens, tokens.values[i], 0, 0, ROWS_MADE, false}));
  }
  for (uint32_t i = 0; i < c->h->buffers.count; i++)
    if (c->buffers[i].region == REGION_WEIGHTS && !c->is_read[i])
      return FAIL(ERR_FORMAT, "check: no op reads %s", text(c, c->buffers[i].name));
  return OK;
}

static status check_all(checker *c) {
  TRY(check_header(c));
  if (c->h->buffers.count > BUFFERS_MAX || (uint64_t)c->h->buffers.count * c->h->fixups.count > PAIRS_MAX)
    return FAIL(ERR_LIMIT, "check: %u buffers and %u pointers are more than a plan can need", c->h->buffers.count, c->h->fixups.count);
  TRY(check_buffers(c));
  TRY(check_tensors(c));
  const kernels_plan kernels = kernels_of(c);
  TRY(check_kernels(&kernels));
  for (uint32_t i = 0; i < c->h->ops.count; i++) TRY(check_op_tables(c, i));
  TRY(check_drafts(&(drafts_plan){.header = c->h, .ops = c->ops, .fixups = c->fixups, .buffers = c->buffers, .homes = c->homes,
                                  .args = c->bytes + c->h->args.offset, .strings = c->strings}));
  TRY(check_steps(c));
  TRY(check_ranks(&(ranks_plan){.header = c->h, .tensors = c->tensors, .ops = c->ops, .fixups = c->fixups, .buffers = c->buffers,
                                .homes = c->homes, .args = c->bytes + c->h->args.offset, .strings = c->strings}));
  const branches_plan tables = {.header = c->h, .ops = c->ops, .fixups = c->fixups, .buffers = c->buffers, .homes = c->homes,
                                .args = c->bytes + c->h->args.offset, .strings = c->strings};
  TRY(check_pieces(&tables));
  return check_branches(&tables);
}

static void *table_of(uint32_t count, size_t item_bytes) {
  void *items = calloc((size_t)count + 1, item_bytes);
  ASSERT(items != NULL);
  return items;
}

status check_plan(const void *bytes, size_t byte_count) {
  checker c = {.bytes = bytes, .byte_count = byte_count, .h = bytes};
  ASSERT((uintptr_t)bytes % 8 == 0);
  TRY(open_tables(&c));
  c.placed = table_of(c.h->tensors.count, sizeof *c.placed);
  c.homes = table_of(c.h->fixups.count, sizeof *c.homes);
  c.is_read = table_of(c.h->buffers.count, sizeof *c.is_read);
  c.states = table_of(c.h->buffers.count, sizeof *c.states);
  status result = check_all(&c);
  for (uint32_t i = 0; i < c.h->buffers.count; i++) free(c.states[i].runs);
  free(c.states);
  free(c.is_read);
  free(c.homes);
  free(c.placed);
  return result;
}
