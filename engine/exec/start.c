/* exec/start.c - what happens once between the plan and the first step: kernels, checks, tables, graphs.
 *
 * Order: exec_open (exec.c: memory, arguments), kernels, the self-check, the caller loads the weights, tables and fills, the check of
 * library algorithms against our own kernel, warm-up and captures. Everything here may allocate; nothing after it does.
 * Declared in exec.h; read exec.c next, for a GPU backend_gpu_start.c. */
#include "exec/ranks.h"
#include "plan/spread.h"
#include "base/digest.h"
#include "kernels_src/num.h"
#include "self_check/self_check.h"
#include "base/trig.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW_CLASSES_MAX 64u

status exec_start_kernels(exec *self, arena *host) { return self->backend->calls->start_kernels(self->backend, host); }

/* === The self-check ========================================================================================================= */

/* what: the probe and its variant; by: what computed it; advice: what may help. */
static status refuse(const exec *self, const char *what, const char *by, const char *advice, digest expected, digest found) {
  char texts[3][DIGEST_TEXT_BYTES];
  return FAIL(ERR_MISMATCH, "self-check: %s: expected digest %s, found %s: %s does not compute numerics id %s; hint: %s", what,
              digest_text(expected.bytes, texts[0]), digest_text(found.bytes, texts[1]), by,
              digest_text(self->plan->header->numerics_id, texts[2]), advice);
}

static status refuse_probe(const exec *self, const backend *b, uint32_t variant, const self_check_launch *launch, digest expected,
                           digest found) {
  char text[384], name[256], by[160];
  b->calls->name_variant(b, variant, name, sizeof name);
  b->calls->name(b, by, sizeof by);
  snprintf(text, sizeof text, "probe \"%s\" of op %s (%s)", launch->probe, kernels_row(self->plan->kernels[variant].kernel)->name, name);
  return refuse(self, text, by, b->advice, expected, found);
}

static status check_variant(const exec *self, backend *b, uint32_t variant, uint8_t *image) {
  const plan_kernel *kernel = &self->plan->kernels[variant];
  uint32_t probes = 0;
  for (uint32_t i = 0; i < self_check_count(); i++) {
    self_check_launch launch;
    if (!self_check_is_for(i, kernel->kernel, &self->plan->header->model)) continue;
    if (!b->calls->can_run_probe(b, variant, i)) continue;
    probes++;
    const uint8_t *result = b->calls->run_probe(b, variant, i, image, &launch);
    digest expected = self_check_answer(i), found = self_check_digest(&launch, result);
    if (memcmp(expected.bytes, found.bytes, DIGEST_BYTES) != 0) return refuse_probe(self, b, variant, &launch, expected, found);
  }
  if (probes) return OK;
  return FAIL(ERR_UNSUPPORTED, "self-check: no probe of op %s for kv_lora_rank %u and rope_dim %u", kernels_row(kernel->kernel)->name,
              self->plan->header->model.kv_lora_rank, self->plan->header->model.rope_dim);
}

static bool checked_before(const exec *self, uint32_t variant) {
  for (uint32_t i = 0; i < variant && !self->backend->has_variants; i++)
    if (self->plan->kernels[i].kernel == self->plan->kernels[variant].kernel) return true;
  return false;
}

status exec_start_check(exec *self) {
  digest expected = self_check_tables_answer(), found = self_check_tables();
  if (memcmp(expected.bytes, found.bytes, DIGEST_BYTES) != 0)
    return refuse(self, "probe of the tables of op qkv_rope (the host's trigonometry)", BACKEND_CPU_NAME, BACKEND_CPU_ADVICE, expected,
                  found);
  uint8_t *own = self->backend->staging ? NULL : aligned_alloc(256, SELF_CHECK_BYTES), *image = own ? own : self->backend->staging;
  if (!image) return FAIL(ERR_LIMIT, "self-check: no memory for %u bytes", SELF_CHECK_BYTES);
  status result = OK;
  for (uint32_t r = 0; r < self->ranks && result == OK; r++) {
    backend *b = self->rank[r];
    backend_select(b);
    for (uint32_t i = 0; i < self->plan->kernel_count && result == OK; i++)
      if (!checked_before(self, i)) result = check_variant(self, b, i, image);
    if (!self->backend->has_variants) break; /* the same functions run every rank */
  }
  free(own);
  return result;
}

/* === Tables and fills ======================================================================================================= */

/* One row of the cos_sin table (NUMERICS.md, `qkv_rope`). */
static void rope_row(const plan_model *model, uint32_t position, float *row) {
  for (uint32_t i = 0; i < model->rope_dim / 2; i++) {
    float angle = (float)position * model->inv_freq[i];
    float cosine = (float)trig_cos((double)angle), sine = (float)trig_sin((double)angle);
    bool scaled = num_bits(model->rope_attention_factor) != num_bits(1.0f);
    row[2 * i] = scaled ? cosine * model->rope_attention_factor : cosine;
    row[2 * i + 1] = scaled ? sine * model->rope_attention_factor : sine;
  }
}

static void put_rope_table(exec *self) {
  const plan_header *header = self->plan->header;
  enum { ROWS = 256 };
  float rows[ROWS * HEAD_DIM_MAX];
  uint32_t columns = header->model.rope_dim;
  for (uint32_t first = 0; first < header->limits.max_len; first += ROWS) {
    uint32_t count = min_u32(ROWS, header->limits.max_len - first);
    for (uint32_t i = 0; i < count; i++) rope_row(&header->model, first + i, rows + (uint64_t)i * columns);
    exec_write(self, REGION_TABLES, header->io.cos_sin + 4ull * first * columns, rows, 4ull * count * columns);
  }
}

/* The query scale of a position (NUMERICS.md, `qkv_rope`). */
static float q_scale_at(const plan_model *model, uint32_t position) {
  double steps = floor((double)position / (double)model->q_scale_length);
  return (float)(1 + (double)model->q_scale_beta * trig_log(1 + steps));
}

static void put_q_scale_table(exec *self) {
  const plan_header *header = self->plan->header;
  enum { ROWS = 4096 };
  float rows[ROWS];
  if (header->model.q_scale_beta == 0) return;
  for (uint32_t first = 0; first < header->limits.max_len; first += ROWS) {
    uint32_t count = min_u32(ROWS, header->limits.max_len - first);
    for (uint32_t i = 0; i < count; i++) rows[i] = q_scale_at(&header->model, first + i);
    exec_write(self, REGION_TABLES, header->io.q_scale + 4ull * first, rows, 4ull * count);
  }
}

/* Poison or zeros in everything that a request must not depend on. */
static void fill_memory(exec *self) {
  static const uint32_t regions[] = {REGION_KV, REGION_STATE, REGION_STEP, REGION_STEP_ODD, REGION_RESULT, REGION_RESULT_ODD, REGION_WORK};
  const plan_header *header = self->plan->header;
  backend *b = self->backend;
  uint32_t word = self->options.poison ? UINT32_MAX : 0;
  if (word || !b->is_zeroed) {
    for (size_t i = 0; i < ARRAY_LEN(regions); i++)
      b->calls->fill(b, exec_address(self, regions[i], 0), word, self->plan->regions[regions[i]].bytes);
    const uint32_t heads = plan_rank_heads(&header->model, &header->grouped, &header->limits);
    if (plan_may_spread(&header->model, &header->quant, &header->limits, heads)) /* blocks count from zero */
      b->calls->fill(b, exec_address(self, REGION_STATE, header->io.meetings), 0, 4ull * ATTN_MEETINGS);
  }
  ranks_start_tables(self);
  if (!b->is_zeroed) memset(b->staging, 0, b->staging_bytes);
  memset(self->table.rows, (int)(word & 0xff), block_table_row_bytes(self->table.slots, self->table.row_pages));
  b->calls->sync(b, "start-up fills");
}

void exec_start_tables(exec *self) {
  put_rope_table(self);
  put_q_scale_table(self);
  fill_memory(self);
}

status exec_start_library(exec *self) { return self->backend->calls->check_library(self->backend); }

/* === Warm-up and graphs ===================================================================================================== */

/* A step of one token at the start of page 0, on both sides: the warm-up and the captures run on it. */
static void put_dummy_step(exec *self) {
  const plan_io *io = &self->plan->header->io;
  backend *b = self->backend;
  for (uint32_t side = 0; side < 2; side++) {
    exec_input in = exec_fill(self, side);
    uint32_t region = exec_region(REGION_STEP, side);
    for (uint32_t part = 0; part < STEP_PARTS; part++)
      in.head[part] = (step_in){.token_count = 1, .logit_count = 1, .tile_count = 1, .seq_count = 1};
    in.token[0] = 0;
    in.position[0] = in.seq[0] = in.logit_row[0] = 0;
    in.tiles[0] = (attn_tile){.row = 0, .count = 1, .seq = 0, .position = 0};
    if (self->plan->header->limits.expand_pages > 0) {
      in.prompt_tiles[0] = in.tiles[0];
      in.contexts[0] = (step_context){.first = 0, .tokens = 1, .seq = 0};
    }
    for (uint32_t r = 0; r < self->ranks && plan_has_requests(&self->plan->header->limits); r++)
      ((attn_tile *)(void *)(self->image[side] + io->own_tiles))[r * plan_own_tiles(&self->plan->header->limits)] = in.tiles[0];
    if (in.next) in.next[0] = -1;
    if (in.drafts) in.drafts[0] = (step_draft){.first = 0, .count = 1, .slot = 0};
    in.sample[0] = (sample_param){.top_p_fixed = 1ull << 32, .repetition = 1, .position = 1, .prompt_count = 1, .target = -1};
    exec_divide_rows(self, side);
    b->calls->upload(b, QUEUE_OPS, exec_address(self, region, 0), self->image[side], io->block_table);
    b->calls->fill(b, exec_address(self, region, io->block_table), 0, sizeof(uint32_t));
  }
}

static uint32_t add_class(uint32_t *classes, uint32_t count, uint32_t rows, uint32_t most) {
  for (uint32_t i = 0; i < count; i++)
    if (classes[i] == rows) return count;
  if (rows == 0 || rows > most || count == ROW_CLASSES_MAX) return count;
  classes[count] = rows;
  return count + 1;
}

/* Launch rows with which every op runs that has an alternative for so many tokens. */
static exec_rows rows_for_all(const exec *self, uint32_t tokens) {
  const plan_limits *limits = &self->plan->header->limits;
  exec_rows rows = exec_rows_most(limits, tokens, min_u32(tokens, limits->max_logit_rows));
  rows.kind[ROWS_PROMPT] = rows.kind[ROWS_BY_REQUESTS] = tokens;
  rows.pieces = 1;
  return rows;
}

/* Every kernel and library algorithm runs once before the first capture and before the freeze, since drivers and libraries load code at
 * first use. A class is the least row count of some alternative. */
static void warm_up(exec *self) {
  const plan *p = self->plan;
  uint32_t most = p->header->limits.max_batch_tokens, classes[ROW_CLASSES_MAX], count = 0;
  count = add_class(classes, count, 1, most);
  count = add_class(classes, count, most, most);
  for (uint32_t i = 0; i < self->op_count; i++) count = add_class(classes, count, p->ops[i].rows_min, most);
  for (uint32_t i = 0; i < self->options.unchecked_count; i++) /* the check has run the others */
    count = add_class(classes, count, self->options.unchecked[i].gemm.rows_min, most);
  for (uint32_t i = 0; i < count; i++) exec_run_ops(self, 0, rows_for_all(self, classes[i]));
  self->backend->calls->sync(self->backend, "warm-up");
}

static status capture(exec *self, uint32_t side, exec_rows rows, backend_graph **graph) {
  backend *b = self->backend;
  TRY(b->calls->capture_begin(b));
  exec_run_ops(self, side, rows);
  return b->calls->capture_end(b, graph);
}

static status capture_graphs(exec *self, uint32_t rung, uint32_t side) {
  const plan_limits *limits = &self->plan->header->limits;
  const uint32_t size = self->plan->ladder[rung];
  const exec_rows rows = exec_rows_most(limits, size, size);
  TRY(capture(self, side, rows, &self->graphs[rung][side][false]));
  if (!plan_has_requests(limits) || size < limits->requests_rows) return OK;
  return capture(self, side, exec_rows_by_requests(rows), &self->graphs[rung][side][true]);
}

status exec_start_graphs(exec *self) {
  backend *b = self->backend;
  TRY(ranks_start_check(self));
  if (!b->has_graphs) return OK;
  put_dummy_step(self);
  warm_up(self);
  for (uint32_t i = 0; i < 2 * self->rung_count; i++) TRY(capture_graphs(self, i / 2, i % 2));
  b->calls->sync(b, "the upload of graphs");
  fill_memory(self); /* the dummy step wrote to it */
  b->calls->end_start(b);
  return OK;
}
