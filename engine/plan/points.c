/* points.c - see points.h. One function per op that makes points, in the order of kernels.def. */
#include "plan/points.h"
#include <stdio.h>
#include <string.h>
#include "plan/kernels.h"
#include "kernels_src/num.h"

#define OF_ONE_OP_MAX 4u /* points */

typedef struct maker {
  const plan *plan;
  arena *host;
  uint32_t op;          /* at hand */
  uint32_t count, made; /* points; entries of of_op */
  uint32_t attention;   /* the first of the mla_attn ops met last, or UINT32_MAX */
  uint32_t top_k;       /* of the moe_sort met last, 0: none */
  uint64_t pair_row;    /* where it leaves its pairs */
  verbatim_point *list; /* room for OF_ONE_OP_MAX an op, and so the others */
  point_place *places;
  uint32_t *first_op, *first_of_op, *of_op;
} maker;

typedef struct output { /* one of an op, in numbers of its type; what is 0 is 1, but for the first two */
  size_t field;         /* its pointer in the arguments     */
  uint64_t first;       /* column of row 0                  */
  enum point_rows rows;
  uint32_t type;
  uint64_t row_stride, columns;
  uint64_t page_stride; /* POINT_KV; 0: rows of all pages are as far apart */
  uint64_t segments, segment_stride;
  uint32_t pairs;
  const char *what;     /* behind the op's name, or null    */
  const char *instead;  /* the name of a gemm that the op does as well, or null */
} output;

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

/* A plan comes from a file: products of its numbers may not fit. */
static uint64_t times(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}
static uint64_t plus(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

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
  return rows == POINT_KV ? (uint64_t)l->kv_pages * PAGE_TOKENS : (uint64_t)l->max_batch_tokens * pairs;
}

static status check_inside(const maker *m, uint32_t region, uint64_t offset, uint64_t bytes) {
  if (offset > m->plan->regions[region].bytes || bytes > m->plan->regions[region].bytes - offset)
    return FAIL(ERR_FORMAT, "plan op %s: expected rows inside region %u, found %llu bytes at %llu", name_of(m), region,
                (unsigned long long)bytes, (unsigned long long)offset);
  return OK;
}

static status find_place(const maker *m, const output *o, const plan_fixup *f, point_place *place) {
  uint64_t size = number_bytes(o->type), segment_stride = times(o->segment_stride, size), segment_bytes = times(o->columns, size);
  uint64_t numbers = times(times(o->columns, o->segments), o->pairs), stride = times(o->row_stride, size);
  uint64_t span = plus(times(o->segments - 1, segment_stride), segment_bytes), rows = row_count(m, o->rows, o->pairs);
  uint64_t page_stride = times(o->page_stride ? o->page_stride : times(o->row_stride, PAGE_TOKENS), size);
  uint32_t region = o->rows == POINT_KV ? REGION_KV : REGION_WORK;
  if (f->region != region || numbers == 0 || numbers > UINT32_MAX || o->segments > UINT32_MAX || rows == 0)
    return FAIL(ERR_FORMAT, "plan op %s: expected rows of numbers in region %u, found %llu numbers in region %u", name_of(m), region,
                (unsigned long long)numbers, f->region);
  *place = (point_place){.rows = o->rows, .region = region, .offset = plus(f->offset, times(o->first, size)), .row_stride = stride,
                         .page_stride = o->rows == POINT_KV ? page_stride : 0, .segments = (uint32_t)o->segments, .pairs = o->pairs,
                         .segment_stride = o->segments > 1 ? segment_stride : 0, .segment_bytes = segment_bytes,
                         .pair_row = o->rows == POINT_PAIRS ? m->pair_row : 0};
  uint64_t last = times(rows - 1, stride);
  if (o->rows == POINT_KV) last = plus(times(m->plan->header->limits.kv_pages - 1ull, page_stride), times(PAGE_TOKENS - 1, stride));
  return check_inside(m, region, place->offset, plus(last, span));
}

/* === Points ================================================================================================================= */

static status make_name(maker *m, const char *what, const char *instead, const char **name) {
  const plan_op *op = m->attention == UINT32_MAX || op_of(m)->kernel != KERNEL_mla_fold ? op_of(m) : &m->plan->ops[m->attention];
  const char *text = plan_string(m->plan, op->name);
  *name = text;
  if (!what && !instead) return OK;
  const char *end = instead ? strrchr(text, ' ') : NULL;
  size_t kept = end ? (size_t)(end - text) : instead ? 0 : strlen(text), bytes = kept + strlen(instead ? instead : what) + 2;
  void *memory;
  TRY(arena_take(m->host, bytes, &memory));
  snprintf(memory, bytes, "%.*s%s%s", (int)kept, text, kept ? " " : "", instead ? instead : what);
  *name = memory;
  return OK;
}

static bool is_same_place(const point_place *a, const point_place *b) {
  return a->rows == b->rows && a->region == b->region && a->offset == b->offset && a->row_stride == b->row_stride &&
         a->page_stride == b->page_stride && a->segments == b->segments && a->pairs == b->pairs && a->segment_stride == b->segment_stride &&
         a->segment_bytes == b->segment_bytes && a->pair_row == b->pair_row;
}

/* Alternatives stand side by side: theirs are among the last points. */
static uint32_t find_point(const maker *m, const char *name) {
  for (uint32_t i = m->count; i > 0 && i + OF_ONE_OP_MAX > m->count; i--)
    if (strcmp(m->list[i - 1].name, name) == 0) return i - 1;
  return m->count;
}

static status add(maker *m, output o) {
  const plan_fixup *f = find_pointer(m, o.field);
  point_place place;
  const char *name;
  if (!f) return OK;
  if (o.segments == 0) o.segments = 1;
  if (o.pairs == 0) o.pairs = 1;
  TRY(find_place(m, &o, f, &place));
  TRY(make_name(m, o.what, o.instead, &name));
  uint32_t number = find_point(m, name);
  bool is_attention = !o.instead && (op_of(m)->kernel == KERNEL_mla_attn || op_of(m)->kernel == KERNEL_mla_fold);
  uint32_t kernel = is_attention ? (uint32_t)KERNEL_mla_attn : o.instead ? (uint32_t)KERNEL_gemm : op_of(m)->kernel;
  verbatim_point point = {.name = name, .layer = op_of(m)->layer, .kernel = kernel,
                          .type = o.type, .count = (uint32_t)(o.columns * o.segments * o.pairs), .of_logits = o.rows == POINT_LOGITS};
  if (number == m->count) {
    m->list[number] = point;
    m->places[number] = place;
    m->first_op[number] = is_attention && m->attention != UINT32_MAX ? m->attention : m->op;
    m->count++;
  } else if (!is_same_place(&m->places[number], &place) || m->list[number].type != point.type || m->list[number].layer != point.layer) {
    return FAIL(ERR_FORMAT, "plan op %s: its alternatives do not write the same rows", name_of(m));
  }
  m->of_op[m->made++] = number;
  return OK;
}

static status check_pairs(const maker *m, uint32_t top_k) {
  if (m->top_k == 0 || top_k != m->top_k)
    return FAIL(ERR_FORMAT, "plan op %s: expected %u rows of a token, as moe_sort orders, found %u", name_of(m), m->top_k, top_k);
  return OK;
}

/* === Ops ==================================================================================================================== */

#define FIELD(type, name) .field = offsetof(type##_args, name)

static status add_embed(maker *m, const embed_args *a) {
  return add(m, (output){FIELD(embed, x), .type = VERBATIM_POINT_F32, .row_stride = a->hidden, .columns = a->hidden});
}

static status add_rmsnorm(maker *m, const rmsnorm_args *a) {
  if (a->top_k) TRY(check_pairs(m, a->top_k));
  TRY(add(m, (output){FIELD(rmsnorm, x_out), .type = VERBATIM_POINT_F32, .row_stride = a->x_stride, .columns = a->dim, .what = "x"}));
  return add(m, (output){FIELD(rmsnorm, y), .rows = a->rows_kind == ROWS_LOGITS ? POINT_LOGITS : POINT_TOKENS, .type = VERBATIM_POINT_BF16,
                         .row_stride = a->y_stride, .columns = a->dim});
}

static status add_qkv_rope(maker *m, const qkv_rope_args *a) {
  uint64_t nope = (uint64_t)a->heads * a->nope_dim, row = (uint64_t)a->kv_lora_rank + a->rope_dim;
  TRY(add(m, (output){FIELD(qkv_rope, q_nope), .type = VERBATIM_POINT_BF16, .row_stride = nope, .columns = nope, .what = "q_nope"}));
  TRY(add(m, (output){FIELD(qkv_rope, q_latent), .first = a->kv_lora_rank, .type = VERBATIM_POINT_BF16, .row_stride = times(a->heads, row),
                      .columns = a->rope_dim, .segments = a->heads, .segment_stride = row, .what = "q_latent"}));
  const bool is_bf16 = a->kv_format == KV_BF16; /* rows of other formats as words */
  const uint64_t kv_bytes = KV_ROW_BYTES(a->kv_format, (uint64_t)a->kv_lora_rank, (uint64_t)a->rope_dim);
  const uint64_t kv_numbers = is_bf16 ? row : kv_bytes / 4;
  if (kv_bytes % 4 != 0)
    return FAIL(ERR_FORMAT, "plan op %s: expected KV rows of whole words, found %llu bytes", name_of(m), (unsigned long long)kv_bytes);
  TRY(add(m, (output){FIELD(qkv_rope, kv), .rows = POINT_KV, .type = is_bf16 ? VERBATIM_POINT_BF16 : VERBATIM_POINT_U32,
                      .row_stride = kv_numbers, .columns = kv_numbers, .what = "kv"}));
  if (!a->absorbs) return OK;
  return add(m, (output){FIELD(qkv_rope, q_latent), .type = VERBATIM_POINT_BF16, .row_stride = times(a->heads, row),
                         .columns = a->kv_lora_rank, .segments = a->heads, .segment_stride = row, .instead = "absorb"});
}

static uint32_t type_of(uint32_t y_kind) { return y_kind == Y_F32 ? VERBATIM_POINT_F32 : VERBATIM_POINT_BF16; }
static uint32_t columns_of(uint32_t n, uint32_t y_kind) { return y_kind == Y_SILU ? n / 2 : n; }

static status add_gemm(maker *m, const gemm_args *a) {
  return add(m, (output){FIELD(gemm, y), .rows = a->rows_kind == ROWS_LOGITS ? POINT_LOGITS : POINT_TOKENS,
                         .type = type_of(a->y_kind), .row_stride = a->ldy, .columns = columns_of(a->n, a->y_kind),
                         .segments = a->batches, .segment_stride = a->y_batch});
}

static status add_attention(maker *m, size_t field, uint32_t heads, uint32_t kv_lora_rank) {
  uint64_t columns = (uint64_t)heads * kv_lora_rank;
  return add(m, (output){.field = field, .type = VERBATIM_POINT_BF16, .row_stride = columns, .columns = columns});
}

static status add_mla_attn(maker *m, const mla_attn_args *a) {
  bool is_next = m->op > 0 && op_of(m)[-1].kernel == KERNEL_mla_attn && op_of(m)[-1].layer == op_of(m)->layer;
  if (!is_next) m->attention = m->op;
  if (a->slots_max > 0) return OK; /* the rows are whole behind mla_fold */
  return add_attention(m, offsetof(mla_attn_args, out), a->heads, a->kv_lora_rank);
}

static status add_mla_prefill(maker *m, const mla_prefill_args *a) {
  return add_attention(m, offsetof(mla_prefill_args, out), a->heads, a->v_dim);
}

static status add_router(maker *m, const router_args *a) {
  output o = {FIELD(router, topk_id), .type = VERBATIM_POINT_U32, .row_stride = a->top_k, .columns = a->top_k, .what = "topk_id"};
  TRY(add(m, o));
  o.field = offsetof(router_args, topk_weight);
  o.type = VERBATIM_POINT_F32;
  o.what = "topk_weight";
  return add(m, o);
}

static status note_moe_sort(maker *m, const moe_sort_args *a) {
  const plan_fixup *f = find_pointer(m, offsetof(moe_sort_args, pair_row));
  if (!f || f->region != REGION_WORK || a->top_k == 0 || a->top_k > TOP_K_EXPERTS_MAX)
    return FAIL(ERR_FORMAT, "plan op %s: expected 1 to %u rows of a token, listed in region %u, found %u", name_of(m), TOP_K_EXPERTS_MAX,
                REGION_WORK, a->top_k);
  m->top_k = a->top_k;
  m->pair_row = f->offset;
  return check_inside(m, REGION_WORK, f->offset, 4 * row_count(m, POINT_PAIRS, a->top_k));
}

static status add_moe_gemm(maker *m, const moe_gemm_args *a) {
  TRY(check_pairs(m, a->top_k));
  uint32_t columns = columns_of(a->n, a->y_kind);
  return add(m, (output){FIELD(moe_gemm, y), .rows = POINT_PAIRS, .type = type_of(a->y_kind), .row_stride = columns, .columns = columns,
                         .pairs = a->top_k});
}

static status add_fp8_gemm(maker *m, const fp8_gemm_args *a) {
  return add(m, (output){FIELD(fp8_gemm, y), .rows = a->rows_kind == ROWS_LOGITS ? POINT_LOGITS : POINT_TOKENS,
                         .type = type_of(a->y_kind), .row_stride = a->ldy, .columns = columns_of(a->n, a->y_kind)});
}

static status add_fp8_moe_gemm(maker *m, const fp8_moe_gemm_args *a) {
  TRY(check_pairs(m, a->top_k));
  uint32_t columns = columns_of(a->n, a->y_kind);
  return add(m, (output){FIELD(fp8_moe_gemm, y), .rows = POINT_PAIRS, .type = type_of(a->y_kind), .row_stride = columns,
                         .columns = columns, .pairs = a->top_k});
}

#define CODE_WORDS (INDEX_DIM / 4) /* codes are seen as words of four */

static status add_index_qk(maker *m, const index_qk_args *a) {
  const uint64_t words = (uint64_t)a->heads * CODE_WORDS;
  const output q = {FIELD(index_qk, q_codes), .type = VERBATIM_POINT_U32, .row_stride = words, .columns = words, .what = "q"};
  const output w = {FIELD(index_qk, w_out), .type = VERBATIM_POINT_F32, .row_stride = a->heads, .columns = a->heads, .what = "w"};
  output k = {FIELD(index_qk, cache), .rows = POINT_KV, .type = VERBATIM_POINT_U32, .row_stride = CODE_WORDS, .columns = CODE_WORDS,
              .page_stride = INDEX_PAGE_BYTES / 4, .what = "k"};
  TRY(add(m, q));
  TRY(add(m, w));
  TRY(add(m, k));
  k.type = VERBATIM_POINT_F32;
  k.first = PAGE_TOKENS * CODE_WORDS; /* behind the codes of a page */
  k.row_stride = k.columns = 1;
  k.what = "k_scale";
  return add(m, k);
}

static status add_index_topk(maker *m, const index_topk_args *a) {
  return add(m, (output){FIELD(index_topk, lists), .type = VERBATIM_POINT_U32, .row_stride = a->topk, .columns = a->topk});
}

void points_rows_of_op(const plan *p, uint32_t op, uint32_t *first, uint32_t *end) {
  *first = 0;
  *end = UINT32_MAX;
  if (p->ops[op].kernel != KERNEL_index_topk) return;
  const index_topk_args *a = (const void *)(p->args + p->ops[op].args_offset);
  *first = a->row_first;
  *end = a->row_count < UINT32_MAX - a->row_first ? a->row_first + a->row_count : UINT32_MAX;
}

static status add_adjust(maker *m, const adjust_args *a) {
  return add(m, (output){FIELD(adjust, adjusted), .rows = POINT_LOGITS, .type = VERBATIM_POINT_F32, .row_stride = a->vocab,
                         .columns = a->vocab});
}

static status add_op(maker *m) {
  const void *args = m->plan->args + op_of(m)->args_offset;
  switch ((enum kernel_id)op_of(m)->kernel) {
    case KERNEL_embed: return add_embed(m, args);
    case KERNEL_rmsnorm: return add_rmsnorm(m, args);
    case KERNEL_qkv_rope: return add_qkv_rope(m, args);
    case KERNEL_gemm: return add_gemm(m, args);
    case KERNEL_mla_attn: return add_mla_attn(m, args);
    case KERNEL_mla_fold: {
      const mla_fold_args *a = args;
      TRY(add_attention(m, offsetof(mla_fold_args, out), a->heads, a->kv_lora_rank));
      if (!a->lifts) return OK;
      return add(m, (output){FIELD(mla_fold, value), .type = VERBATIM_POINT_BF16, .row_stride = times(a->heads, a->v_dim),
                             .columns = a->v_dim, .segments = a->heads, .segment_stride = a->v_dim, .instead = "v_up"});
    }
    case KERNEL_router: return add_router(m, args);
    case KERNEL_moe_sort: return note_moe_sort(m, args);
    case KERNEL_moe_gemm: return add_moe_gemm(m, args);
    case KERNEL_adjust: return add_adjust(m, args);
    case KERNEL_mla_prefill: return add_mla_prefill(m, args);
    case KERNEL_mla_expand: case KERNEL_kv_widen: break; /* rows of contexts, not of the step's tokens */
    case KERNEL_fp8_gemm: return add_fp8_gemm(m, args);
    case KERNEL_fp8_moe_gemm: return add_fp8_moe_gemm(m, args);
    case KERNEL_act_quant: break; /* what follows from the rows before it alone */
    case KERNEL_attn_cut: break; /* who does what: no numbers */
    case KERNEL_index_score: break; /* rows as long as a context: the lists made of them are a point */
    case KERNEL_index_qk: return add_index_qk(m, args);
    case KERNEL_index_topk: return add_index_topk(m, args);
    case KERNEL_sample: case KERNEL_row_digest: case KERNEL_COUNT: break; /* a receipt holds their results */
  }
  return OK;
}

status points_open(points *self, const plan *p, arena *host) {
  maker m = {.plan = p, .host = host, .attention = UINT32_MAX};
  uint64_t most = (uint64_t)OF_ONE_OP_MAX * p->op_count;
  void *list, *places, *first_op, *first_of_op, *of_op;
  TRY(arena_take(host, most * sizeof *m.list, &list));
  TRY(arena_take(host, most * sizeof *m.places, &places));
  TRY(arena_take(host, most * sizeof *m.first_op, &first_op));
  TRY(arena_take(host, (p->op_count + 1ull) * sizeof *m.first_of_op, &first_of_op));
  TRY(arena_take(host, most * sizeof *m.of_op, &of_op));
  m.list = list, m.places = places, m.first_op = first_op, m.first_of_op = first_of_op, m.of_op = of_op;
  for (m.op = 0; m.op < p->op_count; m.op++) {
    m.first_of_op[m.op] = m.made;
    TRY(add_op(&m));
  }
  m.first_of_op[p->op_count] = m.made;
  *self = (points){.count = m.count, .list = m.list, .places = m.places, .first_op = m.first_op, .first_of_op = m.first_of_op,
                   .of_op = m.of_op};
  for (uint32_t i = 0; i < m.count; i++) {
    uint64_t bytes = points_row_bytes(&m.list[i]);
    if (bytes > self->row_bytes_max) self->row_bytes_max = bytes;
  }
  return OK;
}
