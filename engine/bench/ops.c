/* bench/ops.c - times every op of a plan alone: all its instances over the layers are in one graph, so that weights come from memory as in
 * a step.
 *
 * A step runs op by op, and the instances are timed right after their last one: their inputs are then those of a step, and experts have the
 * tokens that the last layer's router assigns. Instances that read other places of the work region are left out, since those hold another
 * op's data by then. */
#include "bench/state.h"
#include "ops/kernels.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLAYS_GPU 31u
#define REPLAYS_CPU 3u
#define LAUNCHES_LEAST 64u   /* launches of a replay, if they are short                */
#define LAUNCHES_FEWEST 4u   /* the least, if they are long: overhead is then small    */
#define REPLAY_US 4000.0     /* length of a replay at which no more launches are added */

typedef struct group { /* instances of an op that runs at the current row counts */
  uint32_t first, last;      /* ops of the plan                                  */
  uint32_t *ops, count;      /* [count] timed ops                                */
  uint32_t instances;
  bool is_wanted;
} group;

typedef struct sweep {
  bench *bench;
  group *groups;
  uint32_t group_count;
  uint32_t *group_of;        /* [op_count] or UINT32_MAX */
  uint32_t *members;         /* [op_count] */
  uint32_t token_rows, logit_rows, context;
  bool is_first;             /* at the first context of this row count all ops are timed, not only the attention */
  uint32_t timed;
  status result;
} sweep;

static bool is_attention(const plan_op *op) {
  return op->kernel == KERNEL_mla_attn || op->kernel == KERNEL_mla_fold || op->kernel == KERNEL_kv_widen || op->kernel == KERNEL_attn ||
         op->kernel == KERNEL_attn_fold;
}

/* The op's name without "layer 12 ". */
static const char *short_name(const plan *p, const plan_op *op) {
  const char *name = plan_string(p, op->name);
  if (op->layer == UINT32_MAX || strncmp(name, "layer ", 6) != 0) return name;
  const char *rest = strchr(name + 6, ' ');
  return rest ? rest + 1 : name;
}

/* The next name of the comma-separated list at *list, and its length; advances *list past it. Null: the list is at its end. */
static const char *next_name(const char **list, size_t *bytes) {
  const char *name = *list;
  if (!name) return NULL;
  *bytes = strcspn(name, ",");
  *list = name[*bytes] ? name + *bytes + 1 : NULL;
  return name;
}

/* Whether the op's name is this one, or begins with it as a word. */
static bool has_name(const char *op, const char *name, size_t bytes) {
  return bytes && strncmp(op, name, bytes) == 0 && (op[bytes] == 0 || op[bytes] == ' ');
}

static bool is_listed(const char *list, const char *op) {
  size_t bytes;
  for (const char *name; (name = next_name(&list, &bytes)) != NULL;)
    if (has_name(op, name, bytes)) return true;
  return false;
}

status bench_ops_check(const bench *self) {
  const plan *p = self->plan;
  const char *list = self->options.op, *name;
  for (size_t bytes; (name = next_name(&list, &bytes)) != NULL;) {
    uint32_t i = 0;
    while (i < p->main_op_count && !has_name(short_name(p, &p->ops[i]), name, bytes)) i++;
    if (i == p->main_op_count)
      return FAIL(ERR_USAGE, "bench: expected names of ops, found \"%.*s\"; hint: verbatim show PLAN --ops", (int)bytes, name);
  }
  return OK;
}

/* === Groups ================================================================================================================= */

/* Whether the arguments are the same but for the number that every exchange of a plan has of its own. */
static bool has_same_args(const plan *p, const plan_op *a, const plan_op *b) {
  const uint8_t *x = p->args + a->args_offset, *y = p->args + b->args_offset;
  uint32_t number = a->args_bytes, bytes = 0;
  if (a->kernel == KERNEL_exchange) number = offsetof(exchange_args, nth);
  if (a->kernel == KERNEL_rank_norm) number = offsetof(rank_norm_args, nth);
  if (number < a->args_bytes) bytes = sizeof(uint32_t);
  return memcmp(x, y, number) == 0 && memcmp(x + number + bytes, y + number + bytes, a->args_bytes - number - bytes) == 0;
}

static bool is_same_op(const plan *p, const plan_op *a, const plan_op *b) {
  return a->kernel == b->kernel && a->variant == b->variant && a->args_bytes == b->args_bytes && a->first_gemm == b->first_gemm &&
         has_same_args(p, a, b) && strcmp(short_name(p, a), short_name(p, b)) == 0;
}

/* Whether both read and write the same places of the work region. */
static bool has_same_places(const plan *p, const plan_op *a, const plan_op *b) {
  if (a->fixup_count != b->fixup_count) return false;
  for (uint32_t i = 0; i < a->fixup_count; i++) {
    const plan_fixup *f = &p->fixups[a->first_fixup + i], *g = &p->fixups[b->first_fixup + i];
    if (f->args_offset != g->args_offset || f->region != g->region) return false;
    if (f->region == REGION_WORK && f->offset != g->offset) return false;
  }
  return true;
}

static group *group_for(sweep *s, uint32_t index) {
  const plan *p = s->bench->plan;
  for (uint32_t i = 0; i < s->group_count; i++)
    if (is_same_op(p, &p->ops[s->groups[i].first], &p->ops[index])) return &s->groups[i];
  const char *only = s->bench->options.op;
  group *added = &s->groups[s->group_count++];
  *added = (group){.first = index, .is_wanted = !only || is_listed(only, short_name(p, &p->ops[index]))};
  if (!s->is_first && !is_attention(&p->ops[index])) added->is_wanted = false;
  if (s->logit_rows != s->token_rows && p->ops[index].rows_kind == ROWS_LOGITS) added->is_wanted = false; /* for another row count */
  return added;
}

static void make_groups(sweep *s) {
  const plan *p = s->bench->plan;
  uint32_t used = 0;
  s->group_count = 0;
  for (uint32_t i = 0; i < p->main_op_count; i++) { /* ops of the draft section are no part of a step's work */
    s->group_of[i] = UINT32_MAX;
    if (!bench_rows(p, &p->ops[i], s->token_rows, s->logit_rows)) continue;
    group *g = group_for(s, i);
    s->group_of[i] = (uint32_t)(g - s->groups);
    g->last = i;
    g->instances++;
  }
  for (uint32_t k = 0; k < s->group_count; k++) {
    group *g = &s->groups[k];
    g->ops = s->members + used;
    for (uint32_t i = g->first; i <= g->last; i++)
      if (s->group_of[i] == k && has_same_places(p, &p->ops[i], &p->ops[g->last])) g->ops[g->count++] = i;
    used += g->count;
  }
}

/* === Timing ================================================================================================================= */

static int compare_times(const void *left, const void *right) {
  const double *a = left, *b = right;
  return (*a > *b) - (*a < *b);
}

static void name_variant(const bench *self, const plan_op *op, uint32_t rows, char *text, size_t text_bytes) {
  const plan *p = self->plan;
  const plan_kernel *kernel = &p->kernels[op->variant];
  if (!self->devices.count) {
    snprintf(text, text_bytes, "%s", cpu_isa());
    return;
  }
  if (exec_bench_uses_library(&self->timer, (uint32_t)(op - p->ops), rows)) {
    snprintf(text, text_bytes, "cuBLASLt");
    return;
  }
  int used = 0;
  for (uint32_t i = 0; i < kernel->spec_count && used >= 0 && (size_t)used < text_bytes; i++) {
    const plan_spec *spec = &p->specs[kernel->first_spec + i];
    const char *name = plan_string(p, spec->name), *bare = strncmp(name, "SPEC_", 5) == 0 ? name + 5 : name;
    int more = snprintf(text + used, text_bytes - (size_t)used, "%s%s %u", used ? ", " : "", bare, spec->value);
    used = more < 0 ? more : used + more;
  }
}

/* Number of launches in a replay: every instance at least once, 64 if they are short, and only as many as the time allows if they are
 * long; as many as options.graph_us takes, if that is set. */
static uint32_t choose_launches(const bench *self, const group *g, double launch_us) {
  uint32_t whole = g->count * (uint32_t)div_up(self->devices.count ? LAUNCHES_LEAST : 1, g->count);
  const double wanted = self->options.graph_us / (launch_us > 0.1 ? launch_us : 0.1);
  if (self->options.graph_us) return max_u32(LAUNCHES_FEWEST, (uint32_t)wanted + 1);
  double room = REPLAY_US / (launch_us > 0.1 ? launch_us : 0.1);
  if (room >= whole) return whole;
  return room > LAUNCHES_FEWEST ? (uint32_t)room : LAUNCHES_FEWEST;
}

/* Whether most of the launch's input stays in the L2 cache from one replay to the next. */
static bool is_cached(const bench *self, uint32_t timed, const bench_cost *cost) {
  uint64_t read = cost->weight_bytes + cost->kv_bytes;
  return self->devices.count && read > cost->activation_bytes && timed * read <= gpu_describe(self->devices.list[0])->l2_bytes;
}

/* Makes room for one more item. */
static status grow_report(bench *self) {
  bench_report *r = &self->report;
  if (r->op_count < self->ops_max) return OK;
  uint32_t most = self->ops_max + 256;
  bench_op *ops = realloc(r->ops, most * sizeof *ops);
  if (!ops) return FAIL(ERR_LIMIT, "bench: no memory for the figures of %u ops", most);
  r->ops = ops;
  self->ops_max = most;
  return OK;
}

static status time_group(sweep *s, const group *g, const bench_cost *cost, uint32_t experts_used) {
  bench *self = s->bench;
  const bench_report *r = &self->report;
  const plan_op *op = &self->plan->ops[g->last];
  exec_bench_list list = {.ops = g->ops, .count = g->count, .launches = min_u32(g->count, LAUNCHES_FEWEST), .token_rows = s->token_rows,
                          .logit_rows = s->logit_rows};
  double us[EXEC_BENCH_REPLAYS_MAX];
  uint32_t replays = self->devices.count ? REPLAYS_GPU : REPLAYS_CPU;
  list.launches = choose_launches(self, g, exec_bench_once(&self->timer, &list) / list.launches);
  for (uint32_t tries = 0; tries == 0 || (us[0] < self->options.graph_us && tries < 4); tries++) {
    if (tries > 0) list.launches = choose_launches(self, g, us[0] / list.launches); /* the estimate had the host's time in it */
    TRY(exec_bench_time(&self->timer, &list, replays, us));
    qsort(us, replays, sizeof *us, compare_times);
  }
  TRY(grow_report(self));
  bench_op *out = &self->report.ops[self->report.op_count++];
  *out = (bench_op){.kernel = kernels_row(op->kernel)->name, .rows = bench_rows(s->bench->plan, op, s->token_rows, s->logit_rows),
                    .context = is_attention(op) ? s->context : 0, .instances = g->instances, .timed = min_u32(g->count, list.launches),
                    .launches = list.launches, .us = us[replays / 2] / list.launches, .us_least = us[0] / list.launches,
                    .cost = *cost, .experts_used = experts_used,
                    .floor_us = bench_cost_floor_us(bench_cost_bytes(cost), cost, &r->rates)};
  out->is_cached = is_cached(self, out->timed, cost);
  snprintf(out->name, sizeof out->name, "%s", short_name(self->plan, op));
  name_variant(self, op, out->rows, out->variant, sizeof out->variant);
  return OK;
}

/* === Ops that cannot run twice ============================================================================================== */

typedef struct rows_of { /* an output: contiguous rows */
  uint32_t region;
  uint64_t offset, bytes;
} rows_of;

/* Describes the output that the argument at args_offset points to, rows of row_bytes. Returns 1, or 0 if the pointer is null. */
static uint32_t find_rows(const sweep *s, const plan_op *op, size_t args_offset, uint64_t row_bytes, rows_of *found) {
  for (uint32_t i = 0; i < op->fixup_count; i++) {
    const plan_fixup *f = &s->bench->plan->fixups[op->first_fixup + i];
    if (f->args_offset != args_offset) continue;
    *found = (rows_of){f->region, f->offset, s->token_rows * row_bytes};
    return 1;
  }
  return 0;
}

/* A norm that adds to the residual stream adds again at every launch, and mla_fold discards the units that it reads, so that its next
 * launch combines whatever the memory holds. Their results in the step are therefore read before timing and restored afterwards: later ops,
 * and the experts, then do not depend on the number of launches. Returns the number of outputs found. */
static uint32_t find_outputs(const sweep *s, const plan_op *op, rows_of found[2]) {
  const void *args = s->bench->plan->args + op->args_offset;
  if (op->kernel == KERNEL_rmsnorm) {
    const rmsnorm_args *a = args;
    const uint32_t between = op->rows_kind == ROWS_OWN ? s->bench->plan->header->limits.ranks : 1; /* rows from one of a rank to the next */
    uint32_t sums = find_rows(s, op, offsetof(rmsnorm_args, x_out), 4ull * a->x_stride / between, &found[0]);
    const uint64_t y_bytes = (a->y_kind == Y_F32 ? 4ull : 2ull) * a->y_stride;
    return sums ? sums + find_rows(s, op, offsetof(rmsnorm_args, y), y_bytes, &found[1]) : 0;
  }
  if (op->kernel == KERNEL_rank_norm) {
    const rank_norm_args *a = args;
    uint32_t sums = find_rows(s, op, offsetof(rank_norm_args, x_out), 4ull * a->dim, &found[0]);
    return sums + find_rows(s, op, offsetof(rank_norm_args, y), 2ull * a->y_stride, &found[sums]);
  }
  if (op->kernel == KERNEL_mla_fold) {
    const mla_fold_args *a = args;
    return find_rows(s, op, offsetof(mla_fold_args, out), 2ull * a->heads * a->kv_lora_rank, &found[0]);
  }
  return 0;
}

static status time_and_restore(sweep *s, const group *g, const bench_cost *cost, uint32_t experts_used) {
  rows_of outputs[2];
  uint8_t *kept[2] = {0};
  uint32_t count = find_outputs(s, &s->bench->plan->ops[g->last], outputs);
  status result = OK;
  for (uint32_t i = 0; i < count && result == OK; i++) {
    kept[i] = malloc(outputs[i].bytes);
    if (!kept[i]) result = FAIL(ERR_LIMIT, "bench: no memory for %llu bytes", (unsigned long long)outputs[i].bytes);
    else exec_read(s->bench->machine, outputs[i].region, outputs[i].offset, kept[i], outputs[i].bytes);
  }
  if (result == OK) result = time_group(s, g, cost, experts_used);
  for (uint32_t i = 0; i < count; i++) {
    if (result == OK) exec_write(s->bench->machine, outputs[i].region, outputs[i].offset, kept[i], outputs[i].bytes);
    free(kept[i]);
  }
  return result;
}

static void see(bench *self, void *context, uint32_t op, const bench_cost *cost, uint32_t experts_used) {
  sweep *s = context;
  (void)self;
  if (s->group_of[op] == UINT32_MAX || s->result != OK) return;
  const group *g = &s->groups[s->group_of[op]];
  if (op != g->last || !g->is_wanted) return;
  s->result = time_and_restore(s, g, cost, experts_used);
  s->timed++;
}

/* === Sweeps ================================================================================================================= */

/* Up to max_seqs rows are decoding sequences; more rows are the last tokens of as many prompts as needed. */
static uint32_t sequences_for(const bench *self, uint32_t rows, uint32_t context) {
  return rows <= self->plan->header->limits.max_seqs ? rows : (uint32_t)div_up(rows, context);
}

static void fill_rows(bench *self, uint32_t rows, uint32_t context) {
  uint32_t seqs = sequences_for(self, rows, context), left = rows;
  bench_span spans[SEQS_MAX];
  bench_step_deal(self, seqs, context);
  for (uint32_t i = 0; i < seqs; i++) {
    uint32_t count = rows == seqs ? 1 : min_u32(left, context);
    spans[i] = (bench_span){.slot = i, .position = context - count, .count = count, .logits = 1};
    left -= count;
  }
  bench_step_fill(self, 0, spans, seqs, true);
}

static status sweep_rows(sweep *s, uint32_t rows, uint32_t context) {
  bench *self = s->bench;
  const plan_limits *limits = &self->plan->header->limits;
  uint32_t seqs = sequences_for(self, rows, context);
  char what[96];
  snprintf(what, sizeof what, "ops of %u rows, context %u", rows, context);
  bench_say(self, what);
  s->token_rows = rows;
  s->logit_rows = min_u32(seqs, limits->max_logit_rows);
  s->context = context;
  make_groups(s);
  fill_rows(self, rows, context);
  bench_step_watch(self, see, s);
  return s->result;
}

/* The contexts that fit the KV pages; if none does, the longest possible one. */
static status sweep_contexts(sweep *s, uint32_t rows) {
  bench *self = s->bench;
  const plan_limits *limits = &self->plan->header->limits;
  const bench_list *contexts = &self->op_contexts;
  s->is_first = true;
  for (uint32_t i = 0; i < contexts->count; i++) {
    uint32_t context = contexts->values[i];
    if (!bench_step_fits(self, sequences_for(self, rows, context), context)) continue;
    TRY(sweep_rows(s, rows, context));
    s->is_first = false;
  }
  if (!s->is_first) return OK;
  uint32_t context = min_u32(limits->kv_pages / min_u32(rows, limits->max_seqs) * PAGE_TOKENS, contexts->values[0]);
  bool fits = context && bench_step_fits(self, sequences_for(self, rows, context), context);
  return fits ? sweep_rows(s, rows, context) : OK;
}

static status sweep_all(sweep *s) {
  const bench_list *rows = &s->bench->rows;
  for (uint32_t i = 0; i < rows->count; i++) TRY(sweep_contexts(s, rows->values[i]));
  return s->timed ? OK : FAIL(ERR_USAGE, "bench: none of these ops runs at these row counts and contexts");
}

/* A gather by NCCL of as many bytes of each rank as the op sends to each, as often in a graph. It overwrites memory of the ops. */
static status time_nccl(bench *self, bench_op *op) {
  const uint32_t ranks = self->plan->header->limits.ranks;
  const uint64_t bytes = op->cost.sent_bytes / max_u32(1, ranks - 1);
  const exec_bench_list list = {.launches = op->launches, .gather_bytes = bytes};
  double us[EXEC_BENCH_REPLAYS_MAX];
  if (!exec_bench_can_gather(&self->timer, bytes)) return OK;
  exec_bench_once(&self->timer, &list); /* connects the ranks, which a graph cannot */
  TRY(exec_bench_time(&self->timer, &list, REPLAYS_GPU, us));
  qsort(us, REPLAYS_GPU, sizeof *us, compare_times);
  op->nccl_us = us[REPLAYS_GPU / 2] / list.launches;
  return OK;
}

status bench_ops_measure(bench *self) {
  uint64_t count = self->plan->op_count;
  sweep s = {.bench = self};
  TRY(arena_take(&self->host, count * sizeof *s.groups, &s.groups));
  TRY(arena_take(&self->host, count * sizeof *s.group_of, &s.group_of));
  TRY(arena_take(&self->host, count * sizeof *s.members, &s.members));
  TRY(sweep_all(&s));
  for (uint32_t i = 0; i < self->report.op_count; i++) TRY(time_nccl(self, &self->report.ops[i]));
  return OK;
}
