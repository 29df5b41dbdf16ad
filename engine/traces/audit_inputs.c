/* audit_inputs.c - see audit_inputs.h. Reads a plan as the engine does, by arguments and fixups; the table of buffers is for people. */
#include "traces/audit_inputs.h"
#include "ops/kernels.h"
#include <string.h>

typedef struct search {
  const plan *plan;
  const points *points;
  uint32_t *best_op; /* [points->count]: the op among its alternatives, AUDIT_NONE before the first */
} search;

static const void *args_of(const plan *p, uint32_t op) { return p->args + p->ops[op].args_offset; }

static const plan_fixup *find_fixup(const plan *p, uint32_t op, uint32_t args_offset) {
  const plan_op *o = &p->ops[op];
  for (uint32_t i = 0; i < o->fixup_count; i++)
    if (p->fixups[o->first_fixup + i].args_offset == args_offset) return &p->fixups[o->first_fixup + i];
  return NULL;
}

/* The nearest earlier op of this kernel; the norm of the next layer adds up the experts. */
static uint32_t op_before(const plan *p, uint32_t op, uint32_t kernel) {
  for (uint32_t i = op; i-- > 0;)
    if (p->ops[i].kernel == kernel) return i;
  return AUDIT_NONE;
}

/* All operands of an op of the plan. */
static void describe_op(const plan *p, uint32_t op, op_operands *out) {
  op_describe(kernels_row(p->ops[op].kernel)->op, args_of(p, op), plan_present(p, &p->ops[op]), out);
}

/* === The writer of a byte =================================================================================================== */

/* Number of bytes of the point's row 0, from this byte on, that lie in one segment; 0: the byte is outside. */
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

/* The point that an op before `op` wrote last at this byte, or AUDIT_NONE. Points of the op's own alternatives are excluded. */
static uint32_t last_writer(const search *s, uint32_t op, uint32_t region, uint64_t offset) {
  uint32_t found = AUDIT_NONE;
  for (uint32_t i = 0; i < s->points->count; i++) {
    if (s->points->first_op[i] >= op || bytes_from(&s->points->places[i], region, offset) == 0 || makes(s->points, op, i)) continue;
    if (found == AUDIT_NONE || s->points->first_op[i] >= s->points->first_op[found]) found = i;
  }
  return found;
}

/* Whether the op reads rows there that the preceding sort wrote: the sort makes no point, and no point was written there since. */
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

/* The points that hold the op's input of row 0 through this pointer. */
static status find_read(const search *s, uint32_t op, const operand *read, const plan_fixup *fixup, audit_list *list) {
  const uint64_t size = op_type_bytes(read->type), row_stride = read->row_stride * size;
  const char *name = plan_string(s->plan, s->plan->ops[op].name);
  for (uint64_t segment = 0; segment < read->segments; segment++) {
    uint64_t at = fixup->offset + (read->first + segment * read->segment_stride) * size, end = at + read->columns * size;
    while (at < end) {
      uint32_t point = last_writer(s, op, fixup->region, at);
      if (point == AUDIT_NONE) return FAIL(ERR_FORMAT, "plan: op %s reads what no op before it wrote", name);
      const point_place *place = &s->points->places[point];
      if (place->row_stride != row_stride)
        return FAIL(ERR_FORMAT, "plan: op %s reads rows %llu bytes apart, expected %llu as %s has them", name,
                    (unsigned long long)row_stride, (unsigned long long)place->row_stride, s->points->list[point].name);
      TRY(add_input(list, point));
      at += bytes_from(place, fixup->region, at);
    }
  }
  return OK;
}

static status find_inputs(const search *s, uint32_t op, audit_list *list) {
  op_operands o;
  describe_op(s->plan, op, &o);
  for (uint32_t i = 0; i < o.count; i++) {
    const operand *read = &o.list[i];
    if (read->is_write || (read->kind != OP_POINT && read->kind != OP_CACHE)) continue;
    const plan_fixup *fixup = find_fixup(s->plan, op, read->field);
    if (!fixup || is_sorted(s, op, fixup)) continue; /* no delta, no experts; or rows that must be sorted again */
    TRY(find_read(s, op, read, fixup, list));
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

/* The act_quant whose codes a product reads, or AUDIT_NONE if it reads no such codes. */
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

/* The kernel that writes the op's inputs other than rows of points; KERNEL_COUNT: none. */
static uint32_t prior_kernel(const search *s, uint32_t op, const audit_op *out) {
  const op_description *what = kernels_row(s->plan->ops[op].kernel)->op;
  if (what->prior) return kernels_find_op(what->prior);
  return has_pairs(s, &out->made) || has_pairs(s, &out->inputs) ? KERNEL_moe_sort : KERNEL_COUNT;
}

static status describe_prior(const search *s, uint32_t op, uint32_t kernel, audit_op *out) {
  const plan *p = s->plan;
  out->prior = op_before(p, op, kernel);
  if (out->prior == AUDIT_NONE) return FAIL(ERR_FORMAT, "plan: nothing leaves what op %s reads", plan_string(p, p->ops[op].name));
  if (kernel == KERNEL_mla_attn || kernel == KERNEL_attn) out->cut = op_before(p, op, KERNEL_attn_cut);
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
  TRY(arena_take(host, sizeof(audit_op) * (all->count + 1ull), &ops)); /* every alternative makes a point */
  memset(op_of, 0xff, all->count * sizeof *op_of);
  choose_ops(&s);
  for (uint32_t op = 0; op < p->op_count; op++) {
    if (all->first_of_op[op] == all->first_of_op[op + 1] || s.best_op[all->of_op[all->first_of_op[op]]] != op) continue;
    if (p->ops[op].kernel == KERNEL_adjust) continue; /* its inputs come from the request */
    TRY(describe(&s, op, &ops[count]));
    for (uint32_t i = 0; i < ops[count].made.count; i++) op_of[ops[count].made.point[i]] = count;
    count++;
  }
  *self = (audit_inputs){.count = count, .ops = ops, .point_count = all->count, .op_of = op_of};
  return OK;
}

double audit_inputs_flops(const plan *p, const audit_op *op, uint32_t position) {
  const uint32_t at = kernels_row(p->ops[op->op].kernel)->op->prior ? op->prior : op->op;
  const op_description *what = kernels_row(p->ops[at].kernel)->op;
  const op_step row = {.rows = 1, .position = &position};
  op_operands o;
  op_cost sum = {0};
  if (!what->is_product) return 0;
  describe_op(p, at, &o);
  what->cost(&o, &row, &sum);
  return sum.flops;
}
