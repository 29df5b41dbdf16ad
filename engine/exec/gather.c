/* gather.c - see gather.h. */
#include "exec/gather.h"
#include <stdio.h>

/* A gpu_late_hook. */
static bool is_over(void *context, double waited_s, char *text, size_t text_bytes) {
  const gather *self = context;
  const uint32_t version = nccl_version(self->nccl);
  if (nccl_check(self->nccl) != OK) {
    snprintf(text, text_bytes, "%s", fail_text());
    return true;
  }
  if (waited_s < self->timeout_s) return false;
  snprintf(text, text_bytes, "the work of %u ranks, which exchange through NCCL %u.%u.%u, has not ended after %g s: a GPU hangs, or a link "
           "is broken; hint: exchange-timeout states the longest wait", self->ranks, NCCL_VERSION_PARTS(version),
           self->timeout_s);
  return true;
}

void gather_open(gather *self, const exec_options *options, uint32_t ranks, bool is_transport, double timeout_s) {
  *self = (gather){.nccl = options->nccl, .ranks = ranks, .timeout_s = timeout_s, .is_transport = is_transport};
  if (!self->nccl) return;
  for (uint32_t r = 0; r < ranks; r++) {
    self->device[r] = r == 0 ? options->device : options->others[r - 1];
    if (is_transport) gpu_limit_waits(self->device[r], is_over, self);
  }
}

static void require(const gather *self, const char *op, status result) {
  if (result != OK) gpu_fault(self->device[0], op, fail_text());
}

typedef struct place { /* of a table of an exchange in the inbox */
  uint64_t rows, bytes; /* of one rank; rows 1: it is gathered in y itself */
  uint64_t at;
} place;

static uint64_t address(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

/* Returns how many tables there are. */
static uint32_t find_places(const exchange_args *a, uint32_t rows, place out[EXCHANGE_TABLES]) {
  uint64_t at = 0;
  uint32_t t = 0;
  for (; t < EXCHANGE_TABLES && a->part_bytes[t]; t++) {
    out[t] = (place){.rows = (uint64_t)rows * a->rows_mul[t], .at = at};
    out[t].bytes = out[t].rows * a->part_bytes[t];
    at += out[t].bytes * a->count;
  }
  return t;
}

/* Puts what has arrived on a rank into the rows of y. */
static void put_rows(gpu *device, const gather_rank *rank, uint32_t t, const place *p) {
  const exchange_args *a = rank->args;
  for (uint32_t from = 0; from < a->count; from++)
    gpu_copy_rows(device, rank->stream, &(gpu_rows){.target = address(a->y[t]) + (uint64_t)from * a->part_bytes[t],
                                                    .target_pitch = (uint64_t)a->count * a->part_bytes[t],
                                                    .source = address(a->inbox) + p->at + from * p->bytes,
                                                    .source_pitch = a->part_bytes[t], .row_bytes = a->part_bytes[t], .rows = p->rows});
}

void gather_run(const gather *self, const char *op, const gather_rank *ranks, uint32_t rows, uint32_t side) {
  place places[EXCHANGE_TABLES];
  const uint32_t tables = find_places(ranks[0].args, rows, places);
  for (uint32_t r = 0; r < self->ranks && self->reached[0]; r++) {
    gpu_select(self->device[r]);
    gpu_fill32(self->device[r], ranks[r].stream, self->reached[r], GATHER_REACHED(ranks[r].args->nth, side), 1);
  }
  require(self, op, nccl_begin(self->nccl));
  for (uint32_t r = 0; r < self->ranks; r++)
    for (uint32_t t = 0; t < tables; t++) {
      const exchange_args *a = ranks[r].args;
      const uint64_t to = places[t].rows == 1 ? address(a->y[t]) : address(a->inbox) + places[t].at;
      require(self, op, nccl_gather(self->nccl, r, ranks[r].stream, address(a->x[t]), to, places[t].bytes));
    }
  require(self, op, nccl_end(self->nccl));
  for (uint32_t r = 0; r < self->ranks; r++) {
    gpu_select(self->device[r]);
    for (uint32_t t = 0; t < tables; t++)
      if (places[t].rows > 1) put_rows(self->device[r], &ranks[r], t, &places[t]);
  }
}

void gather_run_blocks(const gather *self, const gather_block *blocks, uint64_t bytes) {
  static const char what[] = "a gather of NCCL";
  require(self, what, nccl_begin(self->nccl));
  for (uint32_t r = 0; r < self->ranks; r++)
    require(self, what, nccl_gather(self->nccl, r, blocks[r].stream, blocks[r].from, blocks[r].to, bytes));
  require(self, what, nccl_end(self->nccl));
}
