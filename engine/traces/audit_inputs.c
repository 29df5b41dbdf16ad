/* audit_inputs.c - see audit_inputs.h. Reads a plan as the engine does, by its arguments and fixups; the buffers' table is for people. */
#include "traces/audit_inputs.h"
#include "plan/kernels.h"
#include <string.h>

#define READS_MAX 4u

typedef struct read_run { /* what an op reads of row 0 by one pointer: segments from `start` on */
  uint32_t args_offset, segments;
  uint64_t start;         /* bytes behind the pointer */
  uint64_t row_stride, segment_stride, segment_bytes;
} read_run;

typedef struct search {
  const plan *plan;
  const points *points;
  uint32_t *best_op; /* [points->count]: of the alternatives that make it, AUDIT_NONE before it is met */
} search;

static const void *args_of(const plan *p, uint32_t op) { return p->args + p->ops[op].args_offset; }

static const plan_fixup *find_fixup(const plan *p, uint32_t op, uint32_t args_offset) {
  const plan_op *o = &p->ops[op];
  for (uint32_t i = 0; i < o->fixup_count; i++)
    if (p->fixups[o->first_fixup + i].args_offset == args_offset) return &p->fixups[o->first_fixup + i];
  return NULL;
}

/* The nearest op of this kernel before; experts are added up by the next layer's norm. */
static uint32_t op_before(const plan *p, uint32_t op, uint32_t kernel) {
  for (uint32_t i = op; i-- > 0;)
    if (p->ops[i].kernel == kernel) return i;
  return AUDIT_NONE;
}

/* === What an op reads ======================================================================================================= */

#define RUN(type, field, stride, bytes) \
  (read_run) { .args_offset = (uint32_t)offsetof(type, field), .segments = 1, .row_stride = (stride), .segment_bytes = (bytes) }

static uint32_t reads_of_norm(const rmsnorm_args *a, read_run *out) {
  out[0] = RUN(rmsnorm_args, x, 4ull * a->x_stride, 4ull * a->dim);
  out[1] = RUN(rmsnorm_args, delta, 4ull * a->x_stride, 4ull * a->dim);
  out[2] = RUN(rmsnorm_args, experts, 4ull * a->dim, 4ull * a->dim);
  out[3] = RUN(rmsnorm_args, topk_weight, 4ull * a->top_k, 4ull * a->top_k);
  return 4;
}

static uint32_t reads_of_gemm(const gemm_args *a, read_run *out) {
  *out = RUN(gemm_args, x, 2ull * a->ldx, 2ull * a->k);
  out->segments = a->batches;
  out->segment_stride = 2 * a->x_batch;
  return 1;
}

static uint32_t reads_of_attn(const mla_attn_args *a, read_run *out) {
  uint64_t row = 2ull * (a->kv_lora_rank + a->rope_dim), kv_row = KV_ROW_BYTES(a->kv_format, (uint64_t)a->kv_lora_rank, a->rope_dim);
  out[0] = RUN(mla_attn_args, q, row * a->heads, row * a->heads);
  out[1] = RUN(mla_attn_args, kv, kv_row, kv_row);
  out[2] = RUN(mla_attn_args, lists, 4ull * a->list_max, 4ull * a->list_max);
  return 3;
}

static uint32_t reads_of_index(const index_qk_args *a, read_run *out) {
  out[0] = RUN(index_qk_args, q, 4ull * a->q_stride, 4ull * a->heads * INDEX_DIM);
  out[1] = RUN(index_qk_args, k, 4ull * a->k_stride, 4ull * INDEX_DIM);
  out[2] = RUN(index_qk_args, w, 4ull * a->w_stride, 4ull * a->heads);
  return 3;
}

/* Of a page of keys its codes, and behind all of these the scales. */
static uint32_t reads_of_score(const index_score_args *a, read_run *out) {
  out[0] = RUN(index_score_args, q_codes, (uint64_t)a->heads * INDEX_DIM, (uint64_t)a->heads * INDEX_DIM);
  out[1] = RUN(index_score_args, w, 4ull * a->heads, 4ull * a->heads);
  out[2] = RUN(index_score_args, cache, INDEX_DIM, INDEX_DIM);
  out[3] = RUN(index_score_args, cache, 4, 4);
  out[3].start = PAGE_TOKENS * INDEX_DIM;
  return 4;
}

/* Rows of activations and of the KV table: what comes from weights, tables, the step's inputs or an op without points is not listed. */
static uint32_t reads_of(const plan *p, uint32_t op, read_run out[READS_MAX]) {
  const void *args = args_of(p, op);
  switch (p->ops[op].kernel) {
    case KERNEL_rmsnorm: return reads_of_norm(args, out);
    case KERNEL_gemm: return reads_of_gemm(args, out);
    case KERNEL_mla_attn: return reads_of_attn(args, out);
    case KERNEL_qkv_rope: {
      const qkv_rope_args *a = args;
      out[0] = RUN(qkv_rope_args, q, 4ull * a->q_stride, 4ull * a->heads * (a->nope_dim + a->rope_dim));
      out[1] = RUN(qkv_rope_args, kv_in, 4ull * a->kv_in_stride, 4ull * (a->kv_lora_rank + a->rope_dim));
      return 2;
    }
    case KERNEL_router: {
      const router_args *a = args;
      *out = RUN(router_args, logits, 4ull * a->experts, 4ull * a->experts);
      return 1;
    }
    case KERNEL_moe_sort: {
      const moe_sort_args *a = args;
      out[0] = RUN(moe_sort_args, topk_id, 4ull * a->top_k, 4ull * a->top_k);
      out[1] = RUN(moe_sort_args, x, 2ull * a->columns, 2ull * a->columns);
      return 2;
    }
    case KERNEL_moe_gemm: {
      const moe_gemm_args *a = args;
      *out = RUN(moe_gemm_args, x, 2ull * a->ldx, 2ull * a->k);
      return 1;
    }
    case KERNEL_act_quant: {
      const act_quant_args *a = args;
      *out = RUN(act_quant_args, x, 2ull * a->ldx, 2ull * a->columns);
      return 1;
    }
    case KERNEL_index_qk: return reads_of_index(args, out);
    case KERNEL_index_score: return reads_of_score(args, out);
    default: return 0; /* embed: ids; others: what an op without points before them leaves */
  }
}

/* === Who wrote it =========================================================================================================== */

/* Bytes of the point's row 0 from this one on that lie in one segment; 0: it is outside. */
static uint64_t bytes_from(const point_place *place, uint32_t region, uint64_t offset) {
  if (place->region != region || offset < place->offset) return 0;
  uint64_t at = offset - place->offset, segment = place->segment_stride ? at / place->segment_stride : 0;
  uint64_t inside = at - segment * place->segment_stride;
  return segment < place->segments && inside < place->segment_bytes ? place->segment_bytes - inside : 0;
}

static bool makes(const points *all, uint32_t op, uint32_t point) {
  for (uint32_t i = all->first_of_op[op]; i < all->first_of_op[op + 1]; i++)
    if (all->of_op[i] == point) return true;
  return false;
}

/* The point that an op before `op` wrote last at this byte, or AUDIT_NONE. What the op's own alternatives make comes after it. */
static uint32_t last_writer(const search *s, uint32_t op, uint32_t region, uint64_t offset) {
  uint32_t found = AUDIT_NONE;
  for (uint32_t i = 0; i < s->points->count; i++) {
    if (s->points->first_op[i] >= op || bytes_from(&s->points->places[i], region, offset) == 0 || makes(s->points, op, i)) continue;
    if (found == AUDIT_NONE || s->points->first_op[i] >= s->points->first_op[found]) found = i;
  }
  return found;
}

/* Whether what the op reads there are rows that the sort before it left: it makes no point, and none was made there since. */
static bool is_sorted(const search *s, uint32_t op, const plan_fixup *x) {
  const uint32_t sort = op_before(s->plan, op, KERNEL_moe_sort);
  const plan_fixup *left = sort == AUDIT_NONE ? NULL : find_fixup(s->plan, sort, offsetof(moe_sort_args, x_sorted));
  if (!left || x->region != left->region || x->offset != left->offset) return false;
  const uint32_t point = last_writer(s, op, x->region, x->offset);
  return point == AUDIT_NONE || s->points->first_op[point] < sort;
}

static status add_input(audit_list *list, uint32_t point) {
  for (uint32_t i = 0; i < list->count; i++)
    if (list->point[i] == point) return OK;
  if (list->count == AUDIT_INPUTS_MAX) return FAIL(ERR_FORMAT, "plan: an op reads more than %u points", AUDIT_INPUTS_MAX);
  list->point[list->count++] = point;
  return OK;
}

static status find_inputs(const search *s, uint32_t op, audit_list *list) {
  read_run runs[READS_MAX];
  const char *name = plan_string(s->plan, s->plan->ops[op].name);
  for (uint32_t r = 0, count = reads_of(s->plan, op, runs); r < count; r++) {
    const plan_fixup *fixup = find_fixup(s->plan, op, runs[r].args_offset);
    if (!fixup || is_sorted(s, op, fixup)) continue; /* no delta, no experts; or what has to be sorted anew */
    for (uint32_t segment = 0; segment < runs[r].segments; segment++) {
      uint64_t at = fixup->offset + runs[r].start + segment * runs[r].segment_stride, end = at + runs[r].segment_bytes;
      while (at < end) {
        uint32_t point = last_writer(s, op, fixup->region, at);
        if (point == AUDIT_NONE) return FAIL(ERR_FORMAT, "plan: op %s reads what no op before it wrote", name);
        const point_place *place = &s->points->places[point];
        if (place->row_stride != runs[r].row_stride)
          return FAIL(ERR_FORMAT, "plan: op %s reads rows %llu bytes apart, expected %llu as %s has them", name,
                      (unsigned long long)runs[r].row_stride, (unsigned long long)place->row_stride, s->points->list[point].name);
        TRY(add_input(list, point));
        at += bytes_from(place, fixup->region, at);
      }
    }
  }
  return OK;
}

/* === Ops ==================================================================================================================== */

static bool has_pairs(const search *s, const audit_list *list) {
  for (uint32_t i = 0; i < list->count; i++)
    if (s->points->places[list->point[i]].rows == POINT_PAIRS) return true;
  return false;
}

static bool has_kv(const search *s, const audit_list *list) {
  for (uint32_t i = 0; i < list->count; i++)
    if (s->points->places[list->point[i]].rows == POINT_KV) return true;
  return false;
}

/* The act_quant whose codes a product reads, or AUDIT_NONE: it reads others. */
static uint32_t quant_of(const plan *p, uint32_t op) {
  const bool of_experts = p->ops[op].kernel == KERNEL_fp8_moe_gemm;
  if (p->ops[op].kernel != KERNEL_fp8_gemm && !of_experts) return AUDIT_NONE;
  const plan_fixup *x = find_fixup(p, op, of_experts ? offsetof(fp8_moe_gemm_args, x) : offsetof(fp8_gemm_args, x));
  for (uint32_t i = op; i-- > 0;) {
    const plan_fixup *codes = p->ops[i].kernel == KERNEL_act_quant ? find_fixup(p, i, offsetof(act_quant_args, codes)) : NULL;
    if (codes && x && codes->region == x->region && codes->offset == x->offset) return i;
  }
  return AUDIT_NONE;
}

/* What leaves what the op reads beside rows of points, by kernel; KERNEL_COUNT: nothing has to. */
static uint32_t prior_kernel(const search *s, uint32_t op, const audit_op *out) {
  if (s->plan->ops[op].kernel == KERNEL_mla_fold) return KERNEL_mla_attn;
  if (s->plan->ops[op].kernel == KERNEL_index_topk) return KERNEL_index_score;
  return has_pairs(s, &out->made) || has_pairs(s, &out->inputs) ? KERNEL_moe_sort : KERNEL_COUNT;
}

static status describe_prior(const search *s, uint32_t op, uint32_t kernel, audit_op *out) {
  const plan *p = s->plan;
  out->prior = op_before(p, op, kernel);
  if (out->prior == AUDIT_NONE) return FAIL(ERR_FORMAT, "plan: nothing leaves what op %s reads", plan_string(p, p->ops[op].name));
  if (kernel == KERNEL_mla_attn) out->cut = op_before(p, op, KERNEL_attn_cut);
  TRY(find_inputs(s, out->prior, &out->prior_inputs));
  out->rows_max = min_u32(out->rows_max, p->ops[out->prior].rows_max);
  return OK;
}

static status describe(const search *s, uint32_t op, audit_op *out) {
  const plan *p = s->plan;
  const plan_limits *limits = &p->header->limits;
  uint32_t first, end;
  points_rows_of_op(p, op, &first, &end);
  *out = (audit_op){.op = op, .prior = AUDIT_NONE, .cut = AUDIT_NONE, .quant = quant_of(p, op),
                    .rows_max = min_u32(min_u32(p->ops[op].rows_max, limits->max_batch_tokens), end)};
  for (uint32_t i = s->points->first_of_op[op]; i < s->points->first_of_op[op + 1]; i++) TRY(add_input(&out->made, s->points->of_op[i]));
  TRY(find_inputs(s, op, &out->inputs));
  if (out->quant != AUDIT_NONE) {
    TRY(find_inputs(s, out->quant, &out->inputs));
    out->rows_max = min_u32(out->rows_max, p->ops[out->quant].rows_max);
  }
  const uint32_t prior = prior_kernel(s, op, out);
  if (prior != KERNEL_COUNT) TRY(describe_prior(s, op, prior, out));
  out->reads_kv = has_kv(s, &out->inputs) || has_kv(s, &out->prior_inputs);
  out->of_logits = p->ops[op].rows_kind == ROWS_LOGITS;
  if (out->of_logits) out->rows_max = min_u32(out->rows_max, limits->max_logit_rows);
  return OK;
}

static void choose_ops(search *s) {
  const plan_op *ops = s->plan->ops;
  memset(s->best_op, 0xff, s->points->count * sizeof *s->best_op);
  for (uint32_t op = 0; op < s->plan->op_count; op++) {
    for (uint32_t i = s->points->first_of_op[op]; i < s->points->first_of_op[op + 1]; i++) {
      uint32_t *best = &s->best_op[s->points->of_op[i]];
      if (*best == AUDIT_NONE || ops[op].rows_max > ops[*best].rows_max) *best = op;
    }
  }
}

status audit_inputs_open(audit_inputs *self, const plan *p, const points *all, arena *host) {
  search s = {.plan = p, .points = all};
  audit_op *ops;
  uint32_t *op_of, count = 0;
  TRY(arena_take(host, sizeof(uint32_t) * (all->count + 1ull), &s.best_op));
  TRY(arena_take(host, sizeof(uint32_t) * (all->count + 1ull), &op_of));
  TRY(arena_take(host, sizeof(audit_op) * (all->count + 1ull), &ops)); /* every one makes a point */
  memset(op_of, 0xff, all->count * sizeof *op_of);
  choose_ops(&s);
  for (uint32_t op = 0; op < p->op_count; op++) {
    if (all->first_of_op[op] == all->first_of_op[op + 1] || s.best_op[all->of_op[all->first_of_op[op]]] != op) continue;
    if (p->ops[op].kernel == KERNEL_adjust) continue; /* its inputs are the request's */
    TRY(describe(&s, op, &ops[count]));
    for (uint32_t i = 0; i < ops[count].made.count; i++) op_of[ops[count].made.point[i]] = count;
    count++;
  }
  *self = (audit_inputs){.count = count, .ops = ops, .point_count = all->count, .op_of = op_of};
  return OK;
}

static double attention_flops(const mla_attn_args *a, uint32_t position) {
  const double seen = a->list_max && position >= a->list_max ? a->list_max : position + 1.0;
  return 2.0 * a->heads * seen * (2.0 * a->kv_lora_rank + a->rope_dim);
}

double audit_inputs_flops(const plan *p, const audit_op *op, uint32_t position) {
  const uint32_t kernel = p->ops[op->op].kernel, at = kernel == KERNEL_mla_fold || kernel == KERNEL_index_topk ? op->prior : op->op;
  switch (p->ops[at].kernel) {
    case KERNEL_gemm: {
      const gemm_args *a = args_of(p, at);
      return 2.0 * a->n * a->k * a->batches;
    }
    case KERNEL_moe_gemm: {
      const moe_gemm_args *a = args_of(p, at);
      return 2.0 * a->n * a->k * a->top_k;
    }
    case KERNEL_fp8_gemm: {
      const fp8_gemm_args *a = args_of(p, at);
      return 2.0 * a->n * a->k;
    }
    case KERNEL_fp8_moe_gemm: {
      const fp8_moe_gemm_args *a = args_of(p, at);
      return 2.0 * a->n * a->k * a->top_k;
    }
    case KERNEL_index_score: {
      const index_score_args *a = args_of(p, at);
      return position < a->topk ? 0 : 2.0 * a->heads * INDEX_DIM * (position + 1.0);
    }
    case KERNEL_mla_attn: return attention_flops(args_of(p, at), position);
    default: return 0;
  }
}
