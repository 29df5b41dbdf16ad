/* points.c - see points.h. The descriptions of the ops (ops/op.h) state the outputs; this file finds their location in a plan. */
#include "plan/points.h"
#include <stdio.h>
#include <string.h>
#include "ops/kernels.h"
#include "kernels_src/num.h"

#define OF_ONE_OP_MAX 4u /* points */

typedef struct maker {
  const plan *plan;
  arena *host;
  uint32_t op;          /* at hand                                                                                     */
  uint32_t count, made; /* points; entries of of_op                                                                    */
  const op_description *what; /* its description                                                                       */
  uint32_t attention;   /* the most recent op whose rows a later op completes (the first such mla_attn), or UINT32_MAX */
  uint32_t top_k;       /* of the most recent moe_sort, 0: none                                                        */
  uint64_t pair_row;    /* where it writes its pairs                                                                   */
  verbatim_point *list; /* room for OF_ONE_OP_MAX per op; the other arrays likewise                                    */
  point_place *places;
  uint32_t *first_op, *first_of_op, *of_op;
  point_place *place_of_op;
} maker;

static uint64_t number_bytes(uint32_t type) { return type == VERBATIM_POINT_BF16 ? 2 : 4; }

uint64_t points_row_bytes(const verbatim_point *point) { return point->count * number_bytes(point->type); }

uint64_t points_row_digest(const verbatim_point *point, const void *row) {
  uint64_t sum = 0;
  if (point->type == VERBATIM_POINT_BF16) {
    const uint16_t *word = row;
    for (uint32_t i = 0; i < point->count; i++) sum += num_digest_word(i, word[i]);
  } else {
    const uint32_t *word = row;
    for (uint32_t i = 0; i < point->count; i++) sum += num_digest_word(i, word[i]);
  }
  return sum;
}

/* === Places ================================================================================================================= */

static const plan_op *op_of(const maker *m) { return &m->plan->ops[m->op]; }
static const char *name_of(const maker *m) { return plan_string(m->plan, op_of(m)->name); }

static const plan_fixup *find_pointer(const maker *m, size_t field) {
  const plan_op *op = op_of(m);
  for (uint32_t i = 0; i < op->fixup_count; i++)
    if (m->plan->fixups[op->first_fixup + i].args_offset == field) return &m->plan->fixups[op->first_fixup + i];
  return NULL;
}

static uint64_t row_count(const maker *m, enum point_rows rows, uint32_t pairs) {
  const plan_limits *l = &m->plan->header->limits;
  if (rows == POINT_LOGITS) return l->max_logit_rows;
  if (rows == POINT_TOKENS && op_of(m)->rows_kind == ROWS_OWN) return plan_own_rows(l, l->max_batch_tokens);
  return rows == POINT_KV ? (uint64_t)l->kv_pages * PAGE_TOKENS : (uint64_t)l->max_batch_tokens * pairs;
}

static status check_inside(const maker *m, uint32_t region, uint64_t offset, uint64_t bytes) {
  if (offset > m->plan->regions[region].bytes || bytes > m->plan->regions[region].bytes - offset)
    return FAIL(ERR_FORMAT, "plan op %s: expected rows inside region %u, found %llu bytes at %llu", name_of(m), region,
                (unsigned long long)bytes, (unsigned long long)offset);
  return OK;
}

static enum point_rows point_rows_of(enum op_rows rows) {
  return rows == OP_LOGITS ? POINT_LOGITS : rows == OP_PAIRS ? POINT_PAIRS : rows == OP_PAGED ? POINT_KV : POINT_TOKENS;
}

static uint32_t point_type_of(enum op_type type) {
  return type == OP_BF16 ? VERBATIM_POINT_BF16 : type == OP_F32 ? VERBATIM_POINT_F32 : VERBATIM_POINT_U32;
}

static status find_place(const maker *m, const operand *o, const plan_fixup *f, point_place *place) {
  const enum point_rows kind = point_rows_of(o->rows);
  uint64_t size = op_type_bytes(o->type), segment_stride = op_times(o->segment_stride, size), segment_bytes = op_times(o->columns, size);
  uint64_t bytes = op_times(op_times(segment_bytes, o->segments), o->pairs), numbers = bytes / number_bytes(point_type_of(o->type));
  uint64_t stride = op_times(o->row_stride, size), span = op_plus(op_times(o->segments - 1, segment_stride), segment_bytes);
  uint64_t page_stride = op_times(o->page_stride ? o->page_stride : op_times(o->row_stride, PAGE_TOKENS), size);
  uint64_t rows = row_count(m, kind, o->pairs);
  uint32_t region = kind == POINT_KV ? REGION_KV : REGION_WORK;
  if (kind == POINT_KV && segment_bytes % 4 != 0)
    return FAIL(ERR_FORMAT, "plan op %s: expected KV rows of whole words, found %llu bytes", name_of(m), (unsigned long long)segment_bytes);
  if (f->region != region || numbers == 0 || numbers > UINT32_MAX || o->segments > UINT32_MAX || rows == 0)
    return FAIL(ERR_FORMAT, "plan op %s: expected rows of numbers in region %u, found %llu numbers in region %u", name_of(m), region,
                (unsigned long long)numbers, f->region);
  *place = (point_place){.rows = kind, .region = region, .offset = op_plus(f->offset, op_times(o->first, size)), .row_stride = stride,
                         .page_stride = kind == POINT_KV ? page_stride : 0, .segments = (uint32_t)o->segments, .pairs = o->pairs,
                         .segment_stride = o->segments > 1 ? segment_stride : 0, .segment_bytes = segment_bytes,
                         .pair_row = kind == POINT_PAIRS ? m->pair_row : 0};
  place->ranks = place->owners = 1;
  if (op_of(m)->rows_kind == ROWS_OWN) {
    if (kind != POINT_TOKENS) return FAIL(ERR_FORMAT, "plan op %s: expected rows of tokens, of which ranks can own some", name_of(m));
    place->owners = m->plan->header->limits.ranks;
    place->owner_step = (uint64_t)f->rank_step * RANK_STEP_BYTES;
  }
  if (op_of(m)->rank_columns && !o->is_replicated) {
    place->ranks = m->plan->header->limits.ranks;
    place->own_bytes = op_times(o->segments, segment_bytes);
    if (o->segments == 1 && op_of(m)->rank_columns < o->columns) place->own_bytes = op_of(m)->rank_columns * size;
  }
  uint64_t last = op_times(rows - 1, stride);
  if (kind == POINT_KV) last = op_plus(op_times(m->plan->header->limits.kv_pages - 1ull, page_stride), op_times(PAGE_TOKENS - 1, stride));
  return check_inside(m, region, place->offset, op_plus(op_plus(last, span), (place->owners - 1) * place->owner_step));
}

/* === Points ================================================================================================================= */

static status make_name(maker *m, const operand *o, const char **name) {
  const plan_op *op = m->attention == UINT32_MAX || !m->what->completes_prior ? op_of(m) : &m->plan->ops[m->attention];
  const char *text = plan_string(m->plan, op->name);
  *name = text;
  if (!o->point && !o->gemm) return OK;
  const char *end = o->gemm ? strrchr(text, ' ') : NULL, *added = o->gemm ? o->gemm : o->point;
  size_t kept = end ? (size_t)(end - text) : o->gemm ? 0 : strlen(text), bytes = kept + strlen(added) + 2;
  void *memory;
  TRY(arena_take(m->host, bytes, &memory));
  snprintf(memory, bytes, "%.*s%s%s", (int)kept, text, kept ? " " : "", added);
  *name = memory;
  return OK;
}

static bool is_same_place(const point_place *a, const point_place *b) {
  return a->ranks == b->ranks && a->own_bytes == b->own_bytes && a->rows == b->rows && a->region == b->region &&
         a->offset == b->offset && a->row_stride == b->row_stride &&
         a->page_stride == b->page_stride && a->segments == b->segments && a->pairs == b->pairs && a->segment_stride == b->segment_stride &&
         a->segment_bytes == b->segment_bytes && a->pair_row == b->pair_row;
}

/* Of a packed row with the parts of all ranks. */
static uint64_t whole_bytes(const point_place *place) {
  return (place->segment_bytes * place->segments + (place->ranks - 1) * place->own_bytes) * place->pairs;
}

/* Alternatives are adjacent ops, so their points are among the last ones. */
static uint32_t find_point(const maker *m, const char *name) {
  for (uint32_t i = m->count; i > 0 && i + OF_ONE_OP_MAX > m->count; i--)
    if (strcmp(m->list[i - 1].name, name) == 0) return i - 1;
  return m->count;
}

static status add(maker *m, const operand *o) {
  const plan_fixup *f = find_pointer(m, o->field);
  point_place place;
  const char *name;
  if (!f) return OK;
  TRY(find_place(m, o, f, &place));
  TRY(make_name(m, o, &name));
  uint32_t number = find_point(m, name), kernel = op_of(m)->kernel;
  const bool is_attention = !o->gemm && (m->what->is_completed || m->what->completes_prior);
  if (o->gemm) kernel = KERNEL_gemm;
  else if (m->what->alternative_of) kernel = kernels_find_op(m->what->alternative_of);
  else if (m->what->completes_prior) kernel = kernels_find_op(m->what->prior);
  verbatim_point point = {.name = name, .layer = op_of(m)->layer, .kernel = kernel, .type = point_type_of(o->type),
                          .of_logits = place.rows == POINT_LOGITS,
                          .count = (uint32_t)(whole_bytes(&place) / number_bytes(point_type_of(o->type)))};
  if (number == m->count) {
    m->list[number] = point;
    m->places[number] = place;
    m->first_op[number] = is_attention && m->attention != UINT32_MAX ? m->attention : m->op;
    m->count++;
  } else if ((place.owners == 1 && !is_same_place(&m->places[number], &place)) || m->list[number].count != point.count ||
             m->list[number].type != point.type || m->list[number].layer != point.layer) {
    return FAIL(ERR_FORMAT, "plan op %s: its alternatives do not write the same rows", name_of(m));
  }
  m->place_of_op[m->made] = place;
  m->of_op[m->made++] = number;
  return OK;
}

static status check_pairs(const maker *m, uint32_t top_k) {
  if (m->top_k == 0 || top_k != m->top_k)
    return FAIL(ERR_FORMAT, "plan op %s: expected %u rows of a token, as moe_sort orders, found %u", name_of(m), m->top_k, top_k);
  return OK;
}

/* === Ops ==================================================================================================================== */

static status note_moe_sort(maker *m, const moe_sort_args *a) {
  const plan_fixup *f = find_pointer(m, offsetof(moe_sort_args, pair_row));
  if (!f || f->region != REGION_WORK || a->top_k == 0 || a->top_k > TOP_K_EXPERTS_MAX)
    return FAIL(ERR_FORMAT, "plan op %s: expected 1 to %u rows of a token, listed in region %u, found %u", name_of(m), TOP_K_EXPERTS_MAX,
                REGION_WORK, a->top_k);
  m->top_k = a->top_k;
  m->pair_row = f->offset;
  return check_inside(m, REGION_WORK, f->offset, 4 * row_count(m, POINT_PAIRS, a->top_k));
}

void points_rows_of_op(const plan *p, uint32_t op, uint32_t *first, uint32_t *end) {
  const op_description *what = kernels_row(p->ops[op].kernel)->op;
  uint32_t count;
  *first = 0;
  *end = UINT32_MAX;
  if (!what->window) return;
  what->window(p->args + p->ops[op].args_offset, first, &count);
  *end = count < UINT32_MAX - *first ? *first + count : UINT32_MAX;
}

static bool is_point(const operand *o) { return o->is_write && (o->kind == OP_POINT || o->kind == OP_CACHE); }

/* A trace has the rows of ROWS_BY_HEADS. */
static status add_op(maker *m) {
  op_operands o;
  if (op_of(m)->rows_kind == ROWS_BY_REQUESTS) return OK;
  m->what = kernels_row(op_of(m)->kernel)->op;
  op_describe(m->what, m->plan->args + op_of(m)->args_offset, plan_present(m->plan, op_of(m)), &o);
  if (op_of(m)->kernel == KERNEL_moe_sort) TRY(note_moe_sort(m, o.args));
  const bool is_next = m->op > 0 && op_of(m)[-1].kernel == op_of(m)->kernel && op_of(m)[-1].layer == op_of(m)->layer;
  if (m->what->is_completed && !is_next) m->attention = m->op;
  for (uint32_t i = 0; i < o.count; i++)
    if (o.list[i].kind == OP_POINT && o.list[i].rows == OP_PAIRS) TRY(check_pairs(m, o.list[i].pairs));
  for (uint32_t i = 0; i < o.count; i++)
    if (is_point(&o.list[i])) TRY(add(m, &o.list[i]));
  return OK;
}

/* Puts the points into the order that ops state, which is that of their numbers unless an op was moved. */
static status sort_points(maker *m) {
  void *memory;
  TRY(arena_take(m->host, (m->count + 1ull) * sizeof(uint32_t), &memory));
  uint32_t *place_of = memory;
  const plan_op *ops = m->plan->ops;
  for (uint32_t i = 0; i < m->count; i++) place_of[i] = i;
  for (uint32_t i = 1; i < m->count; i++) {
    const uint32_t order = ops[m->first_op[i]].point_order;
    uint32_t to = i;
    while (to > 0 && ops[m->first_op[to - 1]].point_order > order) to--;
    if (to == i) continue;
    const verbatim_point point = m->list[i];
    const point_place place = m->places[i];
    const uint32_t op = m->first_op[i];
    memmove(m->list + to + 1, m->list + to, (i - to) * sizeof *m->list);
    memmove(m->places + to + 1, m->places + to, (i - to) * sizeof *m->places);
    memmove(m->first_op + to + 1, m->first_op + to, (i - to) * sizeof *m->first_op);
    m->list[to] = point, m->places[to] = place, m->first_op[to] = op;
    for (uint32_t j = 0; j < i; j++) place_of[j] += place_of[j] >= to;
    place_of[i] = to;
  }
  for (uint32_t i = 0; i < m->made; i++) m->of_op[i] = place_of[m->of_op[i]];
  return OK;
}

status points_open(points *self, const plan *p, arena *host) {
  maker m = {.plan = p, .host = host, .attention = UINT32_MAX};
  uint64_t most = (uint64_t)OF_ONE_OP_MAX * p->op_count;
  void *list, *places, *first_op, *first_of_op, *of_op, *place_of_op;
  TRY(arena_take(host, most * sizeof *m.list, &list));
  TRY(arena_take(host, most * sizeof *m.places, &places));
  TRY(arena_take(host, most * sizeof *m.first_op, &first_op));
  TRY(arena_take(host, (p->op_count + 1ull) * sizeof *m.first_of_op, &first_of_op));
  TRY(arena_take(host, most * sizeof *m.of_op, &of_op));
  TRY(arena_take(host, most * sizeof *m.place_of_op, &place_of_op));
  m.place_of_op = place_of_op;
  m.list = list, m.places = places, m.first_op = first_op, m.first_of_op = first_of_op, m.of_op = of_op;
  for (m.op = 0; m.op < p->op_count; m.op++) {
    m.first_of_op[m.op] = m.made;
    if (m.op < p->main_op_count) TRY(add_op(&m)); /* what drafts are made from is no part of a request's trace */
  }
  m.first_of_op[p->op_count] = m.made;
  TRY(sort_points(&m));
  *self = (points){.count = m.count, .list = m.list, .places = m.places, .first_op = m.first_op, .first_of_op = m.first_of_op,
                   .of_op = m.of_op, .place_of_op = m.place_of_op};
  for (uint32_t i = 0; i < m.count; i++) {
    uint64_t bytes = points_row_bytes(&m.list[i]);
    if (bytes > self->row_bytes_max) self->row_bytes_max = bytes;
  }
  return OK;
}
