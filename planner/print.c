/* print.c - see print.h. One function per section of the text; JSON is written by jansson. */
#include "print.h"
#include <jansson.h>
#include <string.h>
#include "engine/base/base.h"
#include "engine/base/sha256.h"
#include "draft.h"
#include "engine/plan/format_widen.h"

static const char *const REGION_NAMES[REGION_COUNT] = {
  "weights", "tables", "kv", "state", "step", "result", "step_odd", "result_odd", "work"};
static const char *const STATUS_NAMES[] = {"PROVEN", "TESTED", "EXCLUDED"};
static const char *const OP_NAMES[] = {
#define KERNEL(stem) #stem,
#include "kernels_src/kernels.def"
#undef KERNEL
};

static const void *items(const plan_header *plan, plan_span span) { return (const char *)plan + span.offset; }
static const char *text(const plan_header *plan, uint32_t string) { return (const char *)items(plan, plan->strings) + string; }

/* "3.60 MiB" */
static const char *size_text(uint64_t bytes, char out[32]) {
  static const char *const UNITS[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = (double)bytes;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < ARRAY_LEN(UNITS); unit++) value /= 1024;
  snprintf(out, 32, unit ? "%.2f %s" : "%.0f %s", value, UNITS[unit]);
  return out;
}

static const char *hex_text(const uint8_t bytes[16], char out[33]) {
  for (size_t i = 0; i < 16; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
  return out;
}

static uint64_t parameter_count(const plan_header *plan) {
  const plan_tensor *tensors = items(plan, plan->tensors);
  uint64_t count = 0;
  for (uint32_t i = 0; i < plan->tensors.count; i++)
    count += (uint64_t)tensors[i].row_count * tensors[i].batches * tensors[i].cols * (tensors[i].rank_step ? plan->limits.ranks : 1);
  return count;
}

/* Scales that most models do not use. */
static void print_scales(FILE *out, const plan_model *m) {
  if (m->embed_scale != 1 || m->residual_scale != 1 || m->head_scale != 1)
    fprintf(out, "scales         embedding %g, residual %g, head %g\n", (double)m->embed_scale, (double)m->residual_scale,
            (double)m->head_scale);
  if (m->q_scale_beta != 0)
    fprintf(out, "query scale    1 + %g ln(1 + floor(position / %g))\n", (double)m->q_scale_beta, (double)m->q_scale_length);
  if (m->rope_half_split) fprintf(out, "rope           pairs of halves (i, i + %u)\n", m->rope_dim / 2);
}

/* Measured by tools/kv_cost.py: tools/bench/records/single.json. */
#define FP8_CACHE_COST "accuracy: mean KL to fp32 7 to 45 times bf16's, top-1 0 to 7 points lower (small random models); bf16 avoids it"

static const char *const WEIGHT_FORMATS[] = {"bf16", "e4m3"};
static const char *const KV_FORMATS[] = {"bf16", "fp8_ds_mla", "fp8"};
static const char *const SCALES[] = {"float32", "ue8m0"};

/* Ops of the draft section. */
static uint32_t draft_ops(const plan_header *plan) {
  const plan_op *ops = items(plan, plan->ops);
  uint32_t first = 0;
  while (first < plan->ops.count && ops[first].kernel != OP_accept) first++;
  return plan->ops.count - first;
}

static uint32_t indexer_count(const plan_header *plan) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < plan_kept_layers(&plan->model, &plan->limits); i++) count += plan_has_indexer(&plan->quant, i) != 0;
  return count;
}

static const char *const QK_NORMS[] = {"none", "head", "row"};
static const char *const NORM_PLACES[] = {"before", "after", "around"};

static uint32_t count_unrotated(const plan_grouped *g) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < 64 * ARRAY_LEN(g->unrotated); i++) count += (g->unrotated[i / 64] >> i % 64 & 1) != 0;
  return count;
}

static void print_grouped(FILE *out, const plan_header *plan) {
  const plan_grouped *g = &plan->grouped;
  const plan_model *m = &plan->model;
  const uint32_t head_dim = m->nope_dim + m->rope_dim;
  if (!plan_is_grouped(g)) return;
  fprintf(out, "heads          %u of %u columns, %u KV heads, values of %u", m->heads, head_dim, g->kv_heads, m->v_dim);
  if (m->nope_dim) fprintf(out, ", the first %u rotated", m->rope_dim);
  if (count_unrotated(g)) fprintf(out, ", %u layers rotate nothing", count_unrotated(g));
  fprintf(out, "%s%s%s\n", g->has_bias & BIAS_QKV ? ", biases" : "", g->qk_norm == QK_NORM_HEAD ? ", norm of each head" : "",
          g->qk_norm == QK_NORM_ROW ? ", norm of all heads" : "");
  if (g->has_bias & BIAS_OUTPUT) fprintf(out, "               the output projection has biases\n");
  if (g->has_bias & BIAS_FEED) fprintf(out, "               feed-forward parts have biases\n");
  if (g->norms != NORMS_BEFORE) fprintf(out, "norms          %s each block\n", g->norms == NORMS_AFTER ? "behind" : "before and behind");
  if (plan->limits.ranks > plan_attention_ranks(g, &plan->limits)) fprintf(out, "               every GPU computes all heads\n");
}

static void print_quant(FILE *out, const plan_header *plan) {
  const plan_quant *q = &plan->quant;
  if (q->index_heads)
    fprintf(out, "indexer        %u heads in %u layers, %u tokens stay, %s scales%s\n", q->index_heads, indexer_count(plan), q->index_topk,
            SCALES[q->index_scale], q->index_half_split ? ", rope pairs of halves" : ", rope pairs of neighbours");
  if (q->weight_format == WEIGHTS_E4M3)
    fprintf(out, "weight format  e4m3, blocks of 128 x 128; activations with %s scales\n", SCALES[q->act_scale]);
  if (q->kv_format == KV_FP8_DS_MLA) fprintf(out, "kv format      fp8_ds_mla, %s scales\n", SCALES[q->kv_scale]);
  if (q->kv_format == KV_FP8) fprintf(out, "kv format      fp8, one scale for each layer\n");
  if (q->kv_format != KV_BF16) fprintf(out, "               %s\n", FP8_CACHE_COST);
}

/* === Ranks ============================================================================================================== */

/* Bytes of the weights that all ranks hold alike. */
static uint64_t replicated_bytes(const plan_header *plan) {
  static const uint8_t BYTES[] = {[DTYPE_BF16] = 2, [DTYPE_F32] = 4, [DTYPE_E4M3] = 1};
  const plan_tensor *tensors = items(plan, plan->tensors);
  uint64_t sum = 0;
  for (uint32_t i = 0; i < plan->tensors.count; i++)
    if (tensors[i].rank_step == 0)
      sum += (uint64_t)tensors[i].row_count * tensors[i].batches * tensors[i].cols * BYTES[tensors[i].dtype % ARRAY_LEN(BYTES)];
  return sum;
}

static bool uses_nccl(const plan_header *plan) { return plan->limits.transport == TRANSPORT_NCCL; }

static uint64_t exchange_bytes(const plan_header *plan) {
  const uint64_t inbox = uses_nccl(plan) ? 0 : EXCHANGE_INBOX_BYTES((uint64_t)plan->limits.ranks); /* NCCL's own memory is not the plan's */
  return sizeof(exchange_ranks) + EXCHANGE_STATE_WORDS * UINT64_C(4) + inbox;
}

static uint32_t constant_of(const plan_header *plan, const plan_op *op, const char *name) {
  const plan_kernel *k = (const plan_kernel *)items(plan, plan->kernels) + op->variant;
  const plan_spec *specs = items(plan, plan->specs);
  for (uint32_t i = k->first_spec; i < k->first_spec + k->spec_count; i++)
    if (strcmp(text(plan, specs[i].name), name) == 0) return specs[i].value;
  return 0;
}

/* Of an exchange whose rows have owners, which therefore sends each row once, or receives it from one rank. */
static const char *const OWNER_FORMS[] = {[EXCHANGE_OWNERS] = "to owners", [EXCHANGE_ROWS] = "from owners",
                                          [EXCHANGE_PARTS] = "parts from owners"};

typedef struct sending { /* what an op sends to the other ranks */
  const char *name, *form; /* name: without "layer 12 "; form: see kernels_src/ranks/README.md */
  uint32_t rows_kind, nth;
  uint32_t share;          /* a rank sends one row in so many */
  uint64_t row_bytes;      /* to all others together for a launch row; 0: it sends nothing */
} sending;

static sending sending_of(const plan_header *plan, const plan_op *op) {
  const void *args = (const char *)items(plan, plan->args) + op->args_offset;
  const char *name = text(plan, op->name), *rest = strncmp(name, "layer ", 6) == 0 ? strchr(name + 6, ' ') : NULL;
  sending out = {.name = rest ? rest + 1 : name, .rows_kind = op->rows_kind, .share = 1};
  if (op->kernel == OP_exchange) {
    const exchange_args *a = args;
    for (uint32_t t = 0; t < EXCHANGE_TABLES; t++) out.row_bytes += (uint64_t)a->rows_mul[t] * a->part_bytes[t];
    out.nth = a->nth;
    if (a->form != EXCHANGE_COLUMNS) out.share = plan->limits.ranks;
    out.form = uses_nccl(plan) ? "NCCL" : constant_of(plan, op, "SPEC_TAGGED") ? "words with tags" : "flags";
    if (a->form != EXCHANGE_COLUMNS) out.form = OWNER_FORMS[a->form % ARRAY_LEN(OWNER_FORMS)];
  } else if (op->kernel == OP_rank_norm) {
    const rank_norm_args *a = args;
    out.row_bytes = a->part * UINT64_C(4);
    out.nth = a->nth;
    out.form = "in the norm";
  }
  out.row_bytes = out.row_bytes * (plan->limits.ranks - 1) / out.share;
  return out;
}

/* Whether op `index` is the first form of an exchange: the forms of one are next to each other. */
static bool is_first_form(const plan_header *plan, uint32_t index, const sending *s) {
  const plan_op *ops = items(plan, plan->ops);
  const sending before = index ? sending_of(plan, &ops[index - 1]) : (sending){0};
  return s->row_bytes != 0 && (before.row_bytes == 0 || before.nth != s->nth);
}

/* The next kind of exchange from op *at on, whose first op is then before *at, and how many there are of it in a step: they differ only in
 * the layer. */
static bool next_kind(const plan_header *plan, uint32_t *at, sending *kind, uint32_t *times) {
  const plan_op *ops = items(plan, plan->ops);
  for (; *at < plan->ops.count; ++*at) {
    *kind = sending_of(plan, &ops[*at]);
    bool is_new = is_first_form(plan, *at, kind);
    *times = 0;
    for (uint32_t i = 0; i < plan->ops.count && is_new; i++) {
      const sending other = sending_of(plan, &ops[i]);
      const bool is_alike = is_first_form(plan, i, &other) && strcmp(other.name, kind->name) == 0 &&
                            other.rows_kind == kind->rows_kind && other.row_bytes == kind->row_bytes &&
                            ops[i].rows_min == ops[*at].rows_min && ops[i].rows_max == ops[*at].rows_max;
      is_new = i >= *at || !is_alike;
      *times += is_alike;
    }
    if (!is_new) continue;
    ++*at;
    return true;
  }
  return false;
}

static void print_ranks(FILE *out, const plan_header *plan) {
  char own[32], all[32], kv[32], exchange[32], work[32];
  const plan_op *ops = items(plan, plan->ops);
  const plan_region *r = items(plan, plan->regions);
  const uint64_t replicated = replicated_bytes(plan);
  uint64_t bytes[2] = {0}, times = 0;
  if (plan->limits.ranks == 1) return;
  const uint32_t count = plan->ops.count - draft_ops(plan);
  for (uint32_t i = 0; i < count; i++) { /* of a step of one row: one of more rows sends as many bytes for each */
    const sending s = sending_of(plan, &ops[i]);
    if (s.row_bytes == 0 || ops[i].rows_min > 1) continue;
    bytes[s.rows_kind == ROWS_LOGITS] += s.row_bytes;
    times++;
  }
  fprintf(out, "gpu_count      %u; weights, kv, work and peak are those of each\n", plan->limits.ranks);
  fprintf(out, "each of %u GPUs weights %s of its own and %s that all hold, KV %s, exchange %s, work %s\n", plan->limits.ranks,
          size_text(r[REGION_WEIGHTS].bytes - replicated, own), size_text(replicated, all), size_text(r[REGION_KV].bytes, kv),
          size_text(exchange_bytes(plan), exchange), size_text(r[REGION_WORK].bytes, work));
  fprintf(out, "exchanges      %llu a step, %s; a GPU sends %s for each token row and %s for each logits row\n", (unsigned long long)times,
          uses_nccl(plan) ? "through NCCL" : "peer to peer", size_text(bytes[0], own), size_text(bytes[1], all));
  if (plan_has_requests(&plan->limits))
    fprintf(out, "requests       each GPU attends for its own in steps that generate %u to %u tokens, from %u tokens of context on "
            "average\n", plan->limits.requests_rows, plan->limits.split_rows_max, plan->limits.requests_context);
}

void print_exchanges(FILE *out, const plan_header *plan) {
  const plan_op *ops = items(plan, plan->ops);
  sending kind;
  if (plan->limits.ranks == 1) return;
  fprintf(out, "\nExchanges (times in a step; bytes that a GPU sends for a row; form, by rows)\n");
  for (uint32_t at = 0, times; next_kind(plan, &at, &kind, &times);) {
    fprintf(out, "  %-26s %4u  %-11s %8llu ", kind.name, times,
            kind.rows_kind == ROWS_LOGITS ? "logits rows" : kind.rows_kind == ROWS_DRAFTS ? "draft rows" : "rows",
            (unsigned long long)kind.row_bytes);
    for (uint32_t i = at - 1; i < plan->ops.count; i++) {
      const sending one = sending_of(plan, &ops[i]);
      if (one.row_bytes && one.nth == kind.nth)
        fprintf(out, "%s %s %u..%u", i == at - 1 ? "" : ",", one.form, ops[i].rows_min, ops[i].rows_max);
    }
    fprintf(out, "\n");
  }
}

/* === Sections =========================================================================================================== */

/* Of the steps of one parity. Those that may attend by requests have two. */
static uint32_t count_graphs(const plan_header *plan) {
  const uint32_t *ladder = items(plan, plan->ladder);
  uint32_t count = plan->ladder.count;
  for (uint32_t i = 0; i < plan->ladder.count; i++) count += plan_has_requests(&plan->limits) && ladder[i] >= plan->limits.requests_rows;
  return count;
}

void print_summary(FILE *out, const plan_header *plan) {
  char size[32], hex[33], strong[SHA256_TEXT_BYTES];
  const plan_model *m = &plan->model;
  const plan_limits *l = &plan->limits;
  const plan_region *r = items(plan, plan->regions);
  fprintf(out, "model          %u layers (%u dense), hidden %u, %u heads, vocabulary %u\n", m->layers, m->dense_layers, m->hidden, m->heads,
          m->vocab);
  if (m->experts)
    fprintf(out, "experts        %u, %u per token, %u shared; %s scores, %u of %u groups\n", m->experts, m->top_k, m->shared_experts,
            m->scoring ? "sigmoid" : "softmax", m->top_groups, m->groups);
  print_scales(out, m);
  print_grouped(out, plan);
  print_quant(out, plan);
  fprintf(out, "limits         %u sequences of %u tokens, %u tokens a step, %u logits rows\n", l->max_seqs, l->max_len, l->max_batch_tokens,
          l->max_logit_rows);
  fprintf(out, "attention      chunks of %u tokens, groups of %u chunks, split up to %u rows\n", l->chunk_tokens, l->group_chunks,
          l->split_rows_max);
  if (plan_has_widening(l))
    fprintf(out, "prompts        contexts whose rows a step reads %u times or more are widened to bf16, up to %u pages\n",
            plan_widen_reads(m, &plan->quant), l->expand_pages);
  if (l->speculation == SPECULATION_NGRAM)
    fprintf(out, "speculation    ngram: up to %u drafts where the newest %u tokens or more occurred before\n", l->draft_tokens,
            l->match_min);
  if (l->speculation == SPECULATION_MTP)
    fprintf(out, "speculation    mtp%s: up to %u drafts by the layer behind the last; %u of the ops make them\n",
            l->match_min ? ", and prompt lookup where it is likelier" : "", l->draft_tokens, draft_ops(plan));
  fprintf(out, "parameters     %llu\n", (unsigned long long)parameter_count(plan));
  print_ranks(out, plan);
  fprintf(out, "weights        %s\n", size_text(r[REGION_WEIGHTS].bytes, size));
  fprintf(out, "kv             %s", size_text(r[REGION_KV].bytes, size));
  fprintf(out, " (%u pages, %llu tokens)\n", l->kv_pages, (unsigned long long)l->kv_pages * 64);
  fprintf(out, "work           %s\n", size_text(r[REGION_WORK].bytes, size));
  fprintf(out, "peak           %s = %llu bytes, one reservation%s\n", size_text(plan->device_bytes, size),
          (unsigned long long)plan->device_bytes, plan->limits.ranks > 1 ? " on each GPU" : "");
  fprintf(out, "ops            %u, %u kernels, %u library pins, %u graphs\n", plan->ops.count, plan->kernels.count, plan->gemms.count,
          count_graphs(plan));
  fprintf(out, "numerics id    %s\n", hex_text(plan->numerics_id, hex));
  fprintf(out, "plan digest    %s\n", hex_text(plan->digest, hex));
  fprintf(out, "file's SHA-256 %s\n", sha256_text(sha256_of(plan, plan->file_bytes).bytes, strong));
}

void print_regions(FILE *out, const plan_header *plan) {
  char size[32];
  const plan_region *regions = items(plan, plan->regions);
  fprintf(out, "\nMemory map\n  region         offset          bytes\n");
  for (uint32_t i = 0; i < plan->regions.count; i++)
    fprintf(out, "  %-8s %12llu %14llu  %s\n", REGION_NAMES[regions[i].id], (unsigned long long)regions[i].offset,
            (unsigned long long)regions[i].bytes, size_text(regions[i].bytes, size));
}

void print_kernels(FILE *out, const plan_header *plan) {
  const uint32_t *ladder = items(plan, plan->ladder);
  const plan_kernel *kernels = items(plan, plan->kernels);
  const plan_spec *specs = items(plan, plan->specs);
  fprintf(out, "\nLadder (rows of captured decode graphs)\n ");
  for (uint32_t i = 0; i < plan->ladder.count; i++) fprintf(out, " %u", ladder[i]);
  fprintf(out, "\n\nKernels\n");
  for (uint32_t i = 0; i < plan->kernels.count; i++) {
    const plan_kernel *k = &kernels[i];
    fprintf(out, "  %2u %-12s threads %4u  shared %6u", i, OP_NAMES[k->kernel], k->threads, k->shared_bytes);
    for (uint32_t s = 0; s < k->spec_count; s++)
      if (strcmp(text(plan, specs[k->first_spec + s].name), "SPEC_THREADS") != 0)
        fprintf(out, " %s=%u", text(plan, specs[k->first_spec + s].name), specs[k->first_spec + s].value);
    fprintf(out, "\n");
  }
}

void print_guarantees(FILE *out, const plan_header *plan) {
  const plan_guarantee *rows = items(plan, plan->guarantees);
  fprintf(out, "\nGuarantees: the bits of a request do not depend on\n  %-17s  %-8s  why\n", "axis", "status");
  for (uint32_t i = 0; i < plan->guarantees.count; i++)
    fprintf(out, "  %-17s  %-8s  %s\n", text(plan, rows[i].axis), STATUS_NAMES[rows[i].status], text(plan, rows[i].reason));
  fprintf(out, "\n");
  print_notes(out, plan);
}

void print_notes(FILE *out, const plan_header *plan) {
  const uint32_t *notes = items(plan, plan->notes);
  fprintf(out, "Notes\n");
  for (uint32_t i = 0; i < plan->notes.count; i++) fprintf(out, "  %s\n", text(plan, notes[i]));
}

/* === Buffers ============================================================================================================ */

#define CHART_COLUMNS 100u
#define CHART_ROWS 24u

/* The letter of the buffer that holds byte `at` of the work region while op `op` runs, or '.'; '!' if there are two. */
static char chart_cell(const plan_header *plan, uint64_t at, uint32_t op) {
  const plan_buffer *buffers = items(plan, plan->buffers);
  char cell = '.';
  uint32_t letter = 0;
  for (uint32_t i = 0; i < plan->buffers.count; i++) {
    const plan_buffer *b = &buffers[i];
    if (b->region != REGION_WORK) continue;
    if (at >= b->offset && at - b->offset < b->bytes && b->first_op <= op && op <= b->last_op)
      cell = cell == '.' ? (char)('a' + letter % 26) : '!';
    letter++;
  }
  return cell;
}

void print_memory(FILE *out, const plan_header *plan) {
  const plan_buffer *buffers = items(plan, plan->buffers);
  const plan_region *work = (const plan_region *)items(plan, plan->regions) + REGION_WORK;
  uint32_t letter = 0;
  fprintf(out, "\nWork buffers (letter of the chart, offset, bytes, first and last op)\n");
  for (uint32_t i = 0; i < plan->buffers.count; i++) {
    const plan_buffer *b = &buffers[i];
    if (b->region != REGION_WORK) continue;
    fprintf(out, "  %c %12llu %12llu ", (char)('a' + letter++ % 26), (unsigned long long)b->offset, (unsigned long long)b->bytes);
    if (b->last_op == UINT32_MAX) fprintf(out, "      always");
    else fprintf(out, "%5u ..%5u", b->first_op, b->last_op);
    fprintf(out, "  %s\n", text(plan, b->name));
  }
  uint32_t columns = min_u32(CHART_COLUMNS, plan->ops.count);
  fprintf(out, "\nWork region over time: a column is an op or several, a row %llu bytes, the first byte at the top\n",
          (unsigned long long)div_up(work->bytes, CHART_ROWS));
  for (uint32_t row = 0; row < CHART_ROWS; row++) {
    fprintf(out, "  |");
    for (uint32_t column = 0; column < columns; column++)
      fputc(chart_cell(plan, work->bytes / CHART_ROWS * row + work->bytes / CHART_ROWS / 2,
                       (uint32_t)((uint64_t)column * plan->ops.count / columns)),
            out);
    fprintf(out, "|\n");
  }
}

/* === Ops ================================================================================================================ */

static void print_dim(FILE *out, const plan_dim *d) {
  const char *bracket = d->cap ? "min(" : "";
  fprintf(out, " %s", bracket);
  if (d->constant || !d->rows_div) fprintf(out, "%u%s", d->constant, d->rows_div ? "+" : "");
  if (d->rows_div && d->rows_div > 1) fprintf(out, "rows*%u/%u", d->rows_mul, d->rows_div);
  else if (d->rows_div) fprintf(out, "rows*%u", d->rows_mul);
  if (d->cap) fprintf(out, ",%u)", d->cap);
}

/* Name of the buffer that a pointer of op `op` points to, and the offset in it. */
static void print_pointer(FILE *out, const plan_header *plan, const plan_fixup *f, uint32_t op) {
  const plan_buffer *buffers = items(plan, plan->buffers);
  for (uint32_t i = 0; i < plan->buffers.count; i++) {
    const plan_buffer *b = &buffers[i];
    if (b->region != f->region || f->offset < b->offset || f->offset - b->offset >= b->bytes || op < b->first_op || op > b->last_op)
      continue;
    fprintf(out, " %s", text(plan, b->name));
    if (f->offset > b->offset) fprintf(out, "+%llu", (unsigned long long)(f->offset - b->offset));
    return;
  }
  fprintf(out, " %s+%llu", REGION_NAMES[f->region], (unsigned long long)f->offset);
}

void print_ops(FILE *out, const plan_header *plan) {
  const plan_op *ops = items(plan, plan->ops);
  const plan_fixup *fixups = items(plan, plan->fixups);
  static const char *const kinds[] = {"rows", "logits rows", "made rows", "prompts' rows", "drafts' rows", "own rows",
                                      "rows by heads", "rows by requests"};
  fprintf(out, "\nOps (index, name, kernel: rows, side branch; grid; library pins; pointers in the order of the arguments)\n");
  for (uint32_t i = 0; i < plan->ops.count; i++) {
    const plan_op *op = &ops[i];
    fprintf(out, "  %4u %s, %s %u: %s %u..%u", i, text(plan, op->name), OP_NAMES[op->kernel], op->variant,
            kinds[op->rows_kind % ARRAY_LEN(kinds)], op->rows_min, op->rows_max);
    static const char *const branches[] = {"", ", beside", ", joins"};
    fprintf(out, "%s; grid", branches[op->branch % ARRAY_LEN(branches)]);
    for (int d = 0; d < 3; d++) print_dim(out, &op->grid[d]);
    if (op->gemm_count) fprintf(out, "; %u pins", op->gemm_count);
    fprintf(out, ";");
    for (uint32_t f = 0; f < op->fixup_count; f++) {
      if (f > 0) fprintf(out, ",");
      print_pointer(out, plan, &fixups[op->first_fixup + f], i);
    }
    fprintf(out, "\n");
  }
}

/* === JSON =============================================================================================================== */

static void set(json_t *object, const char *name, uint64_t value) { json_object_set_new(object, name, json_integer((json_int_t)value)); }

static json_t *json_limits(const plan_limits *l) {
  json_t *o = json_object();
  set(o, "max_seqs", l->max_seqs);
  set(o, "max_batch_tokens", l->max_batch_tokens);
  set(o, "max_len", l->max_len);
  set(o, "max_logit_rows", l->max_logit_rows);
  set(o, "kv_pages", l->kv_pages);
  set(o, "chunk_tokens", l->chunk_tokens);
  set(o, "group_chunks", l->group_chunks);
  set(o, "split_rows_max", l->split_rows_max);
  if (l->expand_pages) set(o, "expand_pages", l->expand_pages);
  if (l->speculation != SPECULATION_OFF) set(o, "draft_tokens", l->draft_tokens);
  return o;
}

static json_t *json_kernels(const plan_header *plan) {
  json_t *list = json_array();
  const plan_kernel *kernels = items(plan, plan->kernels);
  const plan_spec *specs = items(plan, plan->specs);
  for (uint32_t i = 0; i < plan->kernels.count; i++) {
    json_t *o = json_object(), *constants = json_object();
    json_object_set_new(o, "kernel", json_string(OP_NAMES[kernels[i].kernel]));
    set(o, "threads", kernels[i].threads);
    set(o, "shared_bytes", kernels[i].shared_bytes);
    for (uint32_t s = 0; s < kernels[i].spec_count; s++)
      set(constants, text(plan, specs[kernels[i].first_spec + s].name), specs[kernels[i].first_spec + s].value);
    json_object_set_new(o, "constants", constants);
    json_array_append_new(list, o);
  }
  return list;
}

static json_t *json_tables(const plan_header *plan, json_t *root) {
  const plan_region *regions = items(plan, plan->regions);
  const plan_guarantee *guarantees = items(plan, plan->guarantees);
  const uint32_t *ladder = items(plan, plan->ladder), *notes = items(plan, plan->notes);
  json_t *sizes = json_object(), *promises = json_array(), *sizes_of_graphs = json_array(), *texts = json_array();
  for (uint32_t i = 0; i < plan->regions.count; i++) set(sizes, REGION_NAMES[regions[i].id], regions[i].bytes);
  for (uint32_t i = 0; i < plan->guarantees.count; i++) {
    json_t *o = json_object();
    json_object_set_new(o, "axis", json_string(text(plan, guarantees[i].axis)));
    json_object_set_new(o, "status", json_string(STATUS_NAMES[guarantees[i].status]));
    json_object_set_new(o, "reason", json_string(text(plan, guarantees[i].reason)));
    json_array_append_new(promises, o);
  }
  for (uint32_t i = 0; i < plan->ladder.count; i++) json_array_append_new(sizes_of_graphs, json_integer(ladder[i]));
  for (uint32_t i = 0; i < plan->notes.count; i++) json_array_append_new(texts, json_string(text(plan, notes[i])));
  json_object_set_new(root, "region_bytes", sizes);
  json_object_set_new(root, "ladder", sizes_of_graphs);
  json_object_set_new(root, "kernels", json_kernels(plan));
  json_object_set_new(root, "guarantees", promises);
  json_object_set_new(root, "notes", texts);
  return root;
}

/* null: latent attention. */
static json_t *json_heads(const plan_header *plan) {
  const plan_grouped *g = &plan->grouped;
  const plan_model *m = &plan->model;
  if (!plan_is_grouped(g)) return json_null();
  json_t *o = json_object();
  set(o, "heads", m->heads);
  set(o, "kv_heads", g->kv_heads);
  set(o, "head_dim", m->nope_dim + m->rope_dim);
  set(o, "rotated_dim", m->rope_dim);
  set(o, "v_dim", m->v_dim);
  set(o, "unrotated_layers", count_unrotated(g));
  json_object_set_new(o, "has_bias", json_boolean(g->has_bias & BIAS_QKV));
  json_object_set_new(o, "has_output_bias", json_boolean(g->has_bias & BIAS_OUTPUT));
  json_object_set_new(o, "has_feed_bias", json_boolean(g->has_bias & BIAS_FEED));
  json_object_set_new(o, "qk_norm", json_string(QK_NORMS[g->qk_norm]));
  json_object_set_new(o, "norms", json_string(NORM_PLACES[g->norms]));
  set(o, "gpus_that_divide_heads", plan_attention_ranks(g, &plan->limits));
  return o;
}

static json_t *json_formats(const plan_header *plan) {
  const plan_quant *q = &plan->quant;
  json_t *o = json_object();
  json_object_set_new(o, "weights", json_string(WEIGHT_FORMATS[q->weight_format]));
  if (q->weight_format == WEIGHTS_E4M3) json_object_set_new(o, "activation_scales", json_string(SCALES[q->act_scale]));
  json_object_set_new(o, "kv_cache", json_string(KV_FORMATS[q->kv_format]));
  if (q->kv_format == KV_FP8_DS_MLA) json_object_set_new(o, "kv_cache_scales", json_string(SCALES[q->kv_scale]));
  if (q->index_heads == 0) return o;
  set(o, "index_heads", q->index_heads);
  set(o, "index_layers", indexer_count(plan));
  set(o, "index_topk", q->index_topk);
  json_object_set_new(o, "index_scales", json_string(SCALES[q->index_scale]));
  return o;
}

static json_t *json_exchanges(const plan_header *plan) {
  json_t *list = json_array();
  const plan_op *ops = items(plan, plan->ops);
  sending kind;
  for (uint32_t at = 0, times; next_kind(plan, &at, &kind, &times);) {
    json_t *o = json_object(), *forms = json_array();
    json_object_set_new(o, "name", json_string(kind.name));
    set(o, "times", times);
    json_object_set_new(o, "rows", json_string(kind.rows_kind == ROWS_LOGITS   ? "logits"
                                               : kind.rows_kind == ROWS_DRAFTS ? "drafts"
                                                                               : "tokens"));
    set(o, "sent_bytes_per_row", kind.row_bytes);
    for (uint32_t i = at - 1; i < plan->ops.count; i++) {
      const sending one = sending_of(plan, &ops[i]);
      if (one.row_bytes == 0 || one.nth != kind.nth) continue;
      json_t *form = json_object();
      json_object_set_new(form, "form", json_string(one.form));
      set(form, "rows_min", ops[i].rows_min);
      set(form, "rows_max", ops[i].rows_max);
      json_array_append_new(forms, form);
    }
    json_object_set_new(o, "forms", forms);
    json_array_append_new(list, o);
  }
  return list;
}

/* Of a plan for several GPUs: what each of them holds. */
static void json_ranks(json_t *root, const plan_header *plan) {
  const plan_region *r = items(plan, plan->regions);
  json_t *o = json_object();
  set(root, "gpu_count", plan->limits.ranks);
  if (plan->limits.ranks > 1) {
    set(o, "own_weights_bytes", r[REGION_WEIGHTS].bytes - replicated_bytes(plan));
    set(o, "replicated_weights_bytes", replicated_bytes(plan));
    set(o, "kv_bytes", r[REGION_KV].bytes);
    set(o, "exchange_bytes", exchange_bytes(plan));
    set(o, "work_bytes", r[REGION_WORK].bytes);
    json_object_set_new(root, "each_gpu", json_incref(o));
    json_object_set_new(root, "exchange_transport", json_string(uses_nccl(plan) ? "nccl" : "peer"));
    json_object_set_new(root, "exchanges", json_exchanges(plan));
    if (plan_has_requests(&plan->limits)) set(root, "attention_by_requests_from", plan->limits.requests_context);
  }
  json_decref(o);
}

void print_json(FILE *out, const plan_header *plan) {
  char hex[33], strong[SHA256_TEXT_BYTES];
  json_t *root = json_object();
  set(root, "format_version", plan->format_version);
  json_object_set_new(root, "numerics_id", json_string(hex_text(plan->numerics_id, hex)));
  json_object_set_new(root, "plan_digest", json_string(hex_text(plan->digest, hex)));
  json_object_set_new(root, "sha256", json_string(sha256_text(sha256_of(plan, plan->file_bytes).bytes, strong)));
  json_object_set_new(root, "config_digest", json_string(hex_text(plan->config_digest, hex)));
  set(root, "parameters", parameter_count(plan));
  set(root, "device_bytes", plan->device_bytes);
  json_ranks(root, plan);
  set(root, "ops", plan->ops.count);
  if (draft_ops(plan)) set(root, "draft_ops", draft_ops(plan));
  set(root, "library_pins", plan->gemms.count);
  json_object_set_new(root, "limits", json_limits(&plan->limits));
  json_object_set_new(root, "formats", json_formats(plan));
  json_object_set_new(root, "grouped_query_attention", json_heads(plan));
  json_dumpf(json_tables(plan, root), out, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
  fputc('\n', out);
  json_decref(root);
}
