/* ranks.c - see ranks.h. */
#include "exec/ranks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_DEFAULT_MS 10000u
#define LINKS_STEPS 16u /* a copy of 8 bytes between two steps takes 2 us */
#define PATTERN(rank, i) ((uint8_t)(((rank) * 0x61u + (i) * 0x9du + (i) / 251u) | 1u)) /* never the zeros that memory may hold */

typedef struct rank_host { /* of a rank, in host memory */
  exchange_record record;
  uint32_t reached, pad; /* through NCCL: GATHER_REACHED of the last exchange */
  uint64_t links[2][2]; /* EXCHANGE_DIGEST and EXCHANGE_BALANCE after the step of a side */
  uint64_t digests[]; /* [2][max_batch_tokens + max_logit_rows]: of x, then of the head's input */
} rank_host;

uint64_t ranks_host_bytes(const plan *p) {
  const plan_limits *l = &p->header->limits;
  return align_up(sizeof(rank_host) + 16ull * (l->max_batch_tokens + l->max_logit_rows), 256);
}

static rank_host *host_of(const exec *self, uint32_t rank) { return (rank_host *)(void *)self->rank_host[rank]; }

static uint64_t *digests_of(const exec *self, uint32_t rank, uint32_t side) {
  const plan_limits *l = &self->plan->header->limits;
  return host_of(self, rank)->digests + (uint64_t)side * (l->max_batch_tokens + l->max_logit_rows);
}

static backend *select_rank(exec *self, uint32_t rank) {
  backend_select(self->rank[rank]);
  return self->rank[rank];
}

static uint32_t timeout_ms(const exec *self) {
  return self->options.exchange_timeout_ms ? self->options.exchange_timeout_ms : TIMEOUT_DEFAULT_MS;
}

double ranks_timeout_s(const exec *self) { return timeout_ms(self) / 1000.0; }

/* === Start-up =============================================================================================================== */

static void zero_exchange(exec *self) {
  const plan_io *io = &self->plan->header->io;
  self->backend->calls->fill(self->backend, exec_address(self, REGION_STATE, io->exchange), 0, 4ull * EXCHANGE_STATE_WORDS);
  if (self->plan->header->limits.transport == TRANSPORT_NCCL) return; /* what is in the inbox is not waited for */
  self->backend->calls->fill(self->backend, exec_address(self, REGION_STATE, io->inbox), 0, EXCHANGE_INBOX_BYTES((uint64_t)self->ranks));
}

void ranks_start_tables(exec *self) {
  if (self->ranks == 1) return;
  if (self->options.poison || !self->backend->is_zeroed) zero_exchange(self);
  for (uint32_t r = 0; r < self->ranks; r++) {
    backend *b = select_rank(self, r);
    exchange_ranks table = {.rank = r, .count = self->ranks, .record = (uint64_t)(uintptr_t)&host_of(self, r)->record,
                            .timeout_ns = timeout_ms(self) * UINT64_C(1000000),
                            .sample_bits = self->options.check_exchanges ? 0 : EXCHANGE_SAMPLE_BITS};
    for (uint32_t i = 0; i < self->ranks; i++) table.peer[i] = self->rank[i]->base - b->base;
    b->calls->write(b, backend_address(b, REGION_STATE, self->plan->header->io.ranks), &table, sizeof table);
  }
}

static const plan_fixup *pointer_of(const exec *self, const plan_op *op, size_t field) {
  for (uint32_t i = 0; i < op->fixup_count; i++)
    if (self->plan->fixups[op->first_fixup + i].args_offset == field) return &self->plan->fixups[op->first_fixup + i];
  return NULL;
}

/* As many rows as the kernel is for at least, or one more: they are all the rows that are sent. */
typedef struct trial {
  uint32_t op, rows, mul, part_bytes, form;
  uint64_t x_stride, y_stride, y_bytes; /* of rows; y_bytes: of a row */
  const plan_fixup *x, *y;
  uint8_t *bytes; /* of a row of y */
} trial;

/* Fails at the first byte of the rank's row of y that is not the pattern's. */
static status judge(const exec *self, const trial *t, uint32_t rank, uint64_t row) {
  const bool are_rows = EXCHANGE_HAS_OWN_ROWS(t->form), are_parts = t->form == EXCHANGE_PARTS;
  for (uint64_t i = 0; i < t->y_bytes; i++) {
    const uint32_t from = (uint32_t)(are_rows ? row % self->ranks : i / t->part_bytes);
    const uint64_t part = are_parts ? (uint64_t)t->part_bytes * self->ranks : t->part_bytes;
    const uint64_t in_part = (are_rows ? row / self->ranks : row) * part + (are_parts ? rank * t->part_bytes : 0) + i % t->part_bytes;
    if (t->bytes[i] != PATTERN(from, in_part))
      return FAIL(ERR_MISMATCH, "start: %s: rank %u received from rank %u at byte %llu: expected %02x, found %02x; hint: the link between "
                  "the two GPUs, or one of them, is broken; `verbatim doctor` tests every link", self->ops[t->op].name, rank, from,
                  (unsigned long long)in_part, PATTERN(from, in_part), t->bytes[i]);
  }
  return OK;
}

static status try_exchange(exec *self, const trial *t) {
  const uint64_t rows = (uint64_t)t->rows * t->mul, zero = 0;
  step_in head = {.token_count = t->rows, .logit_count = t->rows, .tile_count = 1, .seq_count = 1};
  for (uint32_t part = 0; part < STEP_PARTS; part++)
    exec_write(self, REGION_STEP, self->plan->header->io.step + part * sizeof head, &head, sizeof head);
  for (uint32_t r = 0; r < self->ranks; r++) {
    backend *b = select_rank(self, r);
    const uint64_t x_bytes = (uint64_t)t->part_bytes * (t->form == EXCHANGE_PARTS ? self->ranks : 1);
    const uint64_t x_first = t->form == EXCHANGE_PARTS ? r * x_bytes : (uint64_t)r * t->x->rank_step * RANK_STEP_BYTES;
    const uint64_t x = t->x->offset + x_first, x_rows = EXCHANGE_HAS_OWN_ROWS(t->form) ? STEP_OWN_ROWS(t->rows, r, self->ranks) : rows;
    b->calls->fill(b, backend_address(b, t->y->region, t->y->offset), 0, ((rows - 1) * t->y_stride + t->y_bytes) / 4 * 4);
    for (uint64_t row = 0; row < x_rows; row++) {
      for (uint64_t i = 0; i < x_bytes; i++) t->bytes[i] = PATTERN(r, row * x_bytes + i);
      b->calls->write(b, backend_address(b, t->x->region, x + row * t->x_stride), t->bytes, x_bytes);
    }
    b->calls->sync(b, "the start of an exchange");
  }
  exec_run_alone(self, t->op, t->rows, t->rows);
  for (uint32_t r = 0; r < self->ranks; r++) {
    backend *b = select_rank(self, r);
    for (uint64_t row = 0; row < rows; row++) {
      if (t->form == EXCHANGE_OWNERS && row / t->mul % self->ranks != r) continue;
      b->calls->read(b, backend_address(b, t->y->region, t->y->offset + row * t->y_stride), &zero, 1, t->y_bytes, t->bytes);
      TRY(judge(self, t, r, row));
    }
  }
  return OK;
}

static exchange_args args_of(const exec *self, uint32_t op) {
  exchange_args args;
  memcpy(&args, self->plan->args + self->plan->ops[op].args_offset, sizeof args);
  return args;
}

/* The first exchange of every kernel variant and form, with the fewest rows that it is for. */
static bool is_first_of_kind(const exec *self, uint32_t op) {
  const plan_op *ops = self->plan->ops;
  if (ops[op].kernel != KERNEL_exchange) return false;
  for (uint32_t i = 0; i < op; i++)
    if (ops[i].kernel == KERNEL_exchange && ops[i].variant == ops[op].variant && args_of(self, i).form == args_of(self, op).form)
      return false;
  return true;
}

static status try_rows(exec *self, uint32_t index, uint32_t rows) {
  const plan_op *op = &self->plan->ops[index];
  const exchange_args args = args_of(self, index);
  const bool are_rows = args.form == EXCHANGE_ROWS, are_parts = args.form == EXCHANGE_PARTS;
  const uint64_t part_bytes = args.part_bytes[0], all_bytes = part_bytes * self->ranks;
  const uint64_t y_bytes = are_rows || are_parts ? part_bytes : all_bytes;
  trial t = {.op = index, .rows = rows, .mul = args.rows_mul[0], .part_bytes = args.part_bytes[0], .form = args.form,
             .x_stride = are_rows ? args.x_stride[0] : are_parts ? all_bytes * self->ranks : part_bytes,
             .y_stride = are_rows ? args.y_stride[0] : y_bytes, .y_bytes = y_bytes,
             .x = pointer_of(self, op, offsetof(exchange_args, x)), .y = pointer_of(self, op, offsetof(exchange_args, y))};
  if (!t.x || !t.y) return FAIL(ERR_FORMAT, "plan op %s exchanges nothing", self->ops[index].name);
  t.bytes = malloc(all_bytes);
  if (!t.bytes) return FAIL(ERR_LIMIT, "start: no memory for the pattern of an exchange");
  const status result = try_exchange(self, &t);
  free(t.bytes);
  return result;
}

status ranks_start_check(exec *self) {
  const plan *p = self->plan;
  if (self->ranks == 1) return OK;
  for (uint32_t i = 0; i < p->op_count; i++) {
    const uint32_t rows = p->ops[i].rows_min;
    if (!is_first_of_kind(self, i)) continue;
    TRY(try_rows(self, i, rows));
    const bool has_two_ways = p->header->limits.transport == TRANSPORT_NCCL && rows == 1; /* see gather.h */
    if (has_two_ways && p->ops[i].rows_max > 1) TRY(try_rows(self, i, 2));
  }
  return OK;
}

/* === Steps ================================================================================================================== */

void ranks_fetch(exec *self, uint32_t side, const step_in *head) {
  const plan_header *header = self->plan->header;
  const uint32_t region = exec_region(REGION_RESULT, side);
  self->compared[side] = *head;
  for (uint32_t r = 0; r < self->ranks && self->ranks > 1; r++) {
    backend *b = select_rank(self, r);
    uint64_t *x = digests_of(self, r, side), *of_head = x + header->limits.max_batch_tokens;
    b->calls->download(b, QUEUE_RESULTS, x, backend_address(b, region, header->io.rank_x), 8ull * head->token_count);
    b->calls->download(b, QUEUE_RESULTS, of_head, backend_address(b, region, header->io.rank_head), 8ull * head->logit_count);
  }
}

static uint32_t links_steps(const exec *self) { return self->options.check_exchanges ? 1 : LINKS_STEPS; }

void ranks_fetch_links(exec *self, uint32_t side) {
  self->has_links[side] = self->ranks > 1 && self->submitted % links_steps(self) == 0;
  for (uint32_t r = 0; r < self->ranks && self->has_links[side]; r++) {
    backend *b = select_rank(self, r);
    const uint64_t at = self->plan->header->io.exchange + 4ull * EXCHANGE_DIGEST;
    b->calls->download(b, QUEUE_OPS, host_of(self, r)->links[side], backend_address(b, REGION_STATE, at), 2 * sizeof(uint64_t));
  }
}

static void name_steps(const exec *self, char *when, size_t when_bytes) {
  snprintf(when, when_bytes, self->options.check_exchanges ? "step" : "one of the %u steps up to", LINKS_STEPS);
}

/* What ranks sent to the owners of rows is what these have. */
static void compare_balances(exec *self, uint32_t side) {
  char text[FAIL_TEXT_MAX], when[64];
  uint64_t sum = 0;
  for (uint32_t r = 0; r < self->ranks; r++) sum += host_of(self, r)->links[side][1];
  if (!self->has_links[side] || sum == 0) return;
  name_steps(self, when, sizeof when);
  snprintf(text, sizeof text, "ranks differ in %s %llu: a rank has received other bytes than were sent to it alone: a link "
           "between GPUs is broken", when, (unsigned long long)self->waited);
  exec_fault(self, text);
}

static void compare_links(exec *self, uint32_t rank, uint32_t side) {
  const unsigned long long first = host_of(self, 0)->links[side][0], other = host_of(self, rank)->links[side][0];
  char text[FAIL_TEXT_MAX], when[64];
  if (!self->has_links[side] || first == other) return;
  name_steps(self, when, sizeof when);
  snprintf(text, sizeof text, "ranks differ in %s %llu: the digest of the sampled exchanges is %016llx on rank 0, and %016llx on rank %u: "
           "a link between GPUs is broken", when, (unsigned long long)self->waited, first, other, rank);
  exec_fault(self, text);
}

static void compare_rows(exec *self, uint32_t rank, const char *what, const uint64_t *first, const uint64_t *other, uint32_t rows) {
  char text[FAIL_TEXT_MAX];
  for (uint32_t i = 0; i < rows; i++) {
    if (first[i] == other[i]) continue;
    snprintf(text, sizeof text, "ranks differ in step %llu, %s row %u: rank 0 has digest %016llx, rank %u has %016llx: a GPU, its memory "
             "or a link between GPUs is broken", (unsigned long long)self->waited, what, i, (unsigned long long)first[i], rank,
             (unsigned long long)other[i]);
    exec_fault(self, text);
  }
}

void ranks_compare(exec *self, uint32_t side) {
  const uint32_t tokens = self->plan->header->limits.max_batch_tokens;
  if (self->ranks > 1) compare_balances(self, side);
  for (uint32_t r = 1; r < self->ranks; r++) {
    compare_links(self, r, side);
    const uint64_t *first = digests_of(self, 0, side), *other = digests_of(self, r, side);
    compare_rows(self, r, "token", first, other, self->compared[side].token_count);
    compare_rows(self, r, "logits", first + tokens, other + tokens, self->compared[side].logit_count);
  }
}

void ranks_renew(exec *self) {
  if (self->ranks == 1 || self->submitted == 0 || self->submitted % EXCHANGE_STEPS_MAX != 0) return;
  self->backend->calls->sync(self->backend, "the last step of an interval");
  zero_exchange(self);
  self->backend->calls->sync(self->backend, "the first step of an interval");
}

/* === Faults ================================================================================================================= */

/* Whether the op has the exchange of this number in it. */
static bool has_exchange(const exec *self, const plan_op *op, uint32_t nth) {
  const uint8_t *bytes = self->plan->args + op->args_offset;
  exchange_args exchange;
  rank_norm_args norm;
  if (op->kernel == KERNEL_exchange) return memcpy(&exchange, bytes, sizeof exchange), exchange.nth == nth;
  if (op->kernel == KERNEL_rank_norm) return memcpy(&norm, bytes, sizeof norm), norm.nth == nth;
  return false;
}

static const char *exchange_name(const exec *self, uint32_t nth) {
  for (uint32_t i = 0; i < self->op_count; i++)
    if (has_exchange(self, &self->plan->ops[i], nth)) return self->ops[i].name;
  return "an exchange";
}

/* Whether an exchange comes after another, from which it is less than a step away. */
static bool is_later(uint32_t a, uint32_t b) { return (a ^ b) & GATHER_SIDE ? (a & ~GATHER_SIDE) < (b & ~GATHER_SIDE) : a > b; }

/* Through NCCL: the ranks that wait have reached an exchange that another has not. */
static void explain_reached(const exec *self, char *text, size_t text_bytes) {
  uint32_t first = 0, last = 0;
  for (uint32_t r = 0; r < self->ranks; r++) {
    if (!self->rank_host[r]) return;
    const uint32_t at = *(const volatile uint32_t *)&host_of(self, r)->reached;
    if (is_later(host_of(self, first)->reached, at)) first = r;
    if (is_later(at, host_of(self, last)->reached)) last = r;
  }
  if (host_of(self, first)->reached == host_of(self, last)->reached) return;
  snprintf(text, text_bytes, "rank %u waited %g s for rank %u at op \"%s\" of step %llu, through NCCL: a GPU hangs, or a link is broken; "
           "hint: exchange-timeout states the longest wait", last, ranks_timeout_s(self), first,
           exchange_name(self, (host_of(self, last)->reached & ~GATHER_SIDE) - 1), (unsigned long long)self->waited);
}

void ranks_mark(exec *self) {
  if (self->plan->header->limits.transport != TRANSPORT_NCCL || !self->gather.nccl) return;
  for (uint32_t r = 0; r < self->ranks; r++) {
    host_of(self, r)->reached = 0;
    self->gather.reached[r] = (uint64_t)(uintptr_t)&host_of(self, r)->reached;
  }
}

void ranks_explain(void *context, char *text, size_t text_bytes) {
  const exec *self = context;
  for (uint32_t r = 0; r < self->ranks; r++) {
    if (!self->rank_host[r]) continue;
    const volatile exchange_record *record = &host_of(self, r)->record;
    if (!record->is_written) continue;
    snprintf(text, text_bytes, "rank %u waited %g s for rank %u at op \"%s\" of step %llu: a GPU hangs, or a link is broken; hint: "
             "exchange-timeout states the longest wait", record->rank, ranks_timeout_s(self), record->waited_for,
             exchange_name(self, record->op), (unsigned long long)self->waited);
    return;
  }
  if (self->gather.reached[0]) explain_reached(self, text, text_bytes);
}
