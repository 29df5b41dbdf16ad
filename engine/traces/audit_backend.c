/* audit_backend.c - see audit_backend.h. Does by hand, for a batch of one op, what the scheduler and a step do in a run. */
#include "traces/audit_backend.h"
#include "base/clock.h"
#include "exec/exec.h"
#include "ops/kernels.h"
#include "weights/safetensors.h"
#include <stdio.h>
#include <string.h>

struct audit_backend {
  const plan *plan;
  const points *points;
  cpu_pool *pool;
  exec *machine;
  weights_report weights;
  char name[64];
  uint8_t *packed, *poison; /* [longest row]: a computed row; NaN patterns */
  /* Arrays of the batch: [max_batch_tokens]. */
  uint32_t count;
  const audit_row **rows;
  int32_t *token;
  uint32_t *position, *seq, *logit_row;
  uint32_t *pair_row;       /* [max_batch_tokens][top_k] */
  attn_tile *tiles;
};

/* === Start ================================================================================================================== */

static status load(audit_backend *self, const char *model_dir, weights_progress *progress, void *context) {
  safetensors *set = NULL;
  weights_target target = exec_weights_target(self->machine);
  TRY(safetensors_open(&set, model_dir));
  status result = weights_load(self->plan, set, &target, progress, context, &self->weights);
  safetensors_close(set);
  return result;
}

static status take_buffers(audit_backend *self, arena *host) {
  const plan_header *header = self->plan->header;
  uint64_t tokens = header->limits.max_batch_tokens, pairs = tokens * max_u32(1, header->model.top_k);
  TRY(arena_take(host, self->points->row_bytes_max, &self->packed));
  TRY(arena_take(host, self->points->row_bytes_max, &self->poison));
  memset(self->poison, 0xff, self->points->row_bytes_max);
  TRY(arena_take(host, tokens * sizeof *self->rows, &self->rows));
  TRY(arena_take(host, tokens * sizeof *self->token, &self->token));
  TRY(arena_take(host, tokens * sizeof *self->position, &self->position));
  TRY(arena_take(host, tokens * sizeof *self->seq, &self->seq));
  TRY(arena_take(host, tokens * sizeof *self->logit_row, &self->logit_row));
  TRY(arena_take(host, tokens * sizeof *self->tiles, &self->tiles));
  return arena_take(host, pairs * sizeof *self->pair_row, &self->pair_row);
}

/* Sequence 0 has the first pages, in order. */
static void write_block_table(audit_backend *self) {
  const plan_header *header = self->plan->header;
  for (uint32_t i = 0; i < min_u32(header->limits.pages_per_seq, header->limits.kv_pages); i++)
    exec_write(self->machine, REGION_STEP, header->io.block_table + 4ull * i, &i, sizeof i);
}

static status start(audit_backend *self, const char *model_dir, uint32_t threads, weights_progress *progress, void *context, arena *host) {
  TRY(cpu_pool_open(&self->pool, threads));
  snprintf(self->name, sizeof self->name, "CPU, %u threads, %s", cpu_pool_threads(self->pool), cpu_isa());
  const exec_options options = {.pool = self->pool, .direct = true};
  TRY(exec_open(&self->machine, self->plan, &options, host));
  TRY(exec_start_kernels(self->machine, host));
  TRY(exec_start_check(self->machine)); /* an auditor with other numerics would report differences everywhere */
  TRY(load(self, model_dir, progress, context));
  exec_start_tables(self->machine);
  TRY(take_buffers(self, host));
  write_block_table(self);
  return OK;
}

status audit_backend_open(audit_backend **out, const plan *p, const points *all, const char *model_dir, uint32_t threads,
                          weights_progress *progress, void *context, arena *host) {
  audit_backend *self;
  TRY(arena_take(host, sizeof *self, &self));
  self->plan = p;
  self->points = all;
  status result = start(self, model_dir, threads, progress, context, host);
  if (result != OK) audit_backend_close(self);
  else *out = self;
  return result;
}

void audit_backend_close(audit_backend *self) {
  if (!self) return;
  exec_close(self->machine);
  cpu_pool_close(self->pool);
}

const uint8_t *audit_backend_weights(const audit_backend *self) { return self->weights.digest.bytes; }
const char *audit_backend_name(const audit_backend *self) { return self->name; }

/* === Rows in and out ======================================================================================================== */

/* The row of the point's table that holds pair `pair` of the batch's row `row`. */
static uint64_t row_at(const audit_backend *self, const point_place *place, uint32_t row, uint32_t pair) {
  if (place->rows == POINT_PAIRS) return self->pair_row[row * place->pairs + pair];
  return place->rows == POINT_KV ? self->rows[row]->position : row; /* pages in order */
}

/* If `from` is null, the place is read into `to`. */
static void copy_row(audit_backend *self, uint32_t point, uint32_t row, const uint8_t *from, uint8_t *to) {
  const point_place *place = &self->points->places[point];
  uint64_t at = 0;
  for (uint32_t pair = 0; pair < place->pairs; pair++) {
    uint64_t start = points_row_offset(place, row_at(self, place, row, pair));
    for (uint32_t i = 0; i < place->segments; i++, at += place->segment_bytes) {
      uint64_t offset = start + i * place->segment_stride;
      if (from) exec_write(self->machine, place->region, offset, from + at, place->segment_bytes);
      else exec_read(self->machine, place->region, offset, to + at, place->segment_bytes);
    }
  }
}

static void put_inputs(audit_backend *self, const audit_list *list) {
  for (uint32_t i = 0; i < list->count; i++)
    for (uint32_t r = 0; r < self->count && self->points->places[list->point[i]].rows != POINT_KV; r++)
      copy_row(self, list->point[i], r, self->rows[r]->values[list->point[i]], NULL);
}

static void put_kv(audit_backend *self, const audit_list *list, const audit_request *request, uint32_t count) {
  for (uint32_t i = 0; i < list->count; i++) {
    const point_place *place = &self->points->places[list->point[i]];
    for (uint32_t r = 0; r < count && place->rows == POINT_KV; r++)
      exec_write(self->machine, place->region, points_row_offset(place, r), request->rows[r].values[list->point[i]],
                 place->segment_bytes);
  }
}

void audit_backend_put_kv(audit_backend *self, const audit_op *op, const audit_request *request, uint32_t count) {
  put_kv(self, &op->inputs, request, count);
  put_kv(self, &op->prior_inputs, request, count);
}

/* === A batch ================================================================================================================= */

static uint32_t make_tiles(audit_backend *self) {
  uint32_t most = self->plan->header->limits.attn_tile_tokens, tiles = 0;
  for (uint32_t i = 0; i < self->count; i++) {
    attn_tile *last = tiles ? &self->tiles[tiles - 1] : NULL;
    if (last && last->count < most && self->position[i] == last->position + last->count) last->count++;
    else self->tiles[tiles++] = (attn_tile){.row = i, .count = 1, .seq = 0, .position = self->position[i]};
  }
  return tiles;
}

static void write_step(audit_backend *self, bool of_logits) {
  const plan_io *io = &self->plan->header->io;
  for (uint32_t i = 0; i < self->count; i++) {
    self->token[i] = self->rows[i]->token;
    self->position[i] = self->rows[i]->position;
    self->seq[i] = 0;
    self->logit_row[i] = i;
  }
  const step_in head = {.token_count = self->count, .logit_count = of_logits ? self->count : 0, .tile_count = make_tiles(self),
                        .seq_count = 1};
  const step_in parts[] = {[STEP_ALL] = head, [STEP_MADE] = head};
  uint64_t bytes = 4ull * self->count;
  exec_write(self->machine, REGION_STEP, io->step, parts, sizeof parts);
  exec_write(self->machine, REGION_STEP, io->token, self->token, bytes);
  exec_write(self->machine, REGION_STEP, io->position, self->position, bytes);
  exec_write(self->machine, REGION_STEP, io->seq, self->seq, bytes);
  exec_write(self->machine, REGION_STEP, io->tiles, self->tiles, head.tile_count * sizeof *self->tiles);
  if (of_logits) exec_write(self->machine, REGION_STEP, io->logit_row, self->logit_row, bytes);
}

/* An alternative is launched with a row count within its range; the step's head says how many rows the op computes. */
static double run_op(audit_backend *self, uint32_t op, bool of_logits) {
  uint32_t rows = max_u32(self->count, self->plan->ops[op].rows_min);
  double from = clock_seconds();
  exec_run_alone(self->machine, op, rows, of_logits ? rows : 0);
  return clock_seconds() - from;
}

static void read_pairs(audit_backend *self, const audit_list *list) {
  for (uint32_t i = 0; i < list->count; i++) {
    const point_place *place = &self->points->places[list->point[i]];
    if (place->rows == POINT_PAIRS)
      exec_read(self->machine, REGION_WORK, place->pair_row, self->pair_row, 4ull * self->count * place->pairs);
  }
}

static void poison_made(audit_backend *self, const audit_op *op) {
  for (uint32_t i = 0; i < op->made.count; i++)
    for (uint32_t r = 0; r < self->count; r++) copy_row(self, op->made.point[i], r, self->poison, NULL);
}

double audit_backend_run(audit_backend *self, const audit_op *op, const audit_request *request, const uint32_t *rows, uint32_t count,
                         audit_backend_see *see, void *context) {
  double seconds = 0;
  ASSERT(count > 0 && count <= op->rows_max);
  self->count = count;
  for (uint32_t i = 0; i < count; i++) self->rows[i] = &request->rows[rows[i]];
  write_step(self, op->of_logits);
  const uint32_t kernel = self->plan->ops[op->op].kernel;
  bool has_fold = kernel == KERNEL_mla_fold || kernel == KERNEL_attn_fold; /* attention also writes the rows, if it splits nothing */
  if (has_fold) poison_made(self, op);
  if (op->cut != AUDIT_NONE) seconds += run_op(self, op->cut, false);
  if (op->prior != AUDIT_NONE) {
    put_inputs(self, &op->prior_inputs);
    seconds += run_op(self, op->prior, false);
    read_pairs(self, &op->inputs);
    read_pairs(self, &op->made);
  }
  if (op->quant != AUDIT_NONE) { /* the rows' old contents may lie where the op writes */
    put_inputs(self, &op->inputs);
    seconds += run_op(self, op->quant, false);
  }
  if (!has_fold) poison_made(self, op);
  if (op->quant == AUDIT_NONE) put_inputs(self, &op->inputs); /* after the poison: the op adds to the residual stream in place */
  seconds += run_op(self, op->op, op->of_logits);
  for (uint32_t r = 0; r < count; r++)
    for (uint32_t i = 0; i < op->made.count; i++) {
      copy_row(self, op->made.point[i], r, NULL, self->packed);
      see(context, rows[r], op->made.point[i], self->packed);
    }
  return seconds;
}
