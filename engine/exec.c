/* exec.c - memory and arguments at start-up, then the step path: inputs up, ops in order, results down.
 *
 * The step path allocates nothing and takes no decision that could change a bit. Must not know requests. The rest of the start-up
 * is in exec_start.c, the shared state in exec_state.h. */
#include "exec_state.h"
#include <string.h>

/* === Memory ================================================================================================================= */

/* Lays the host's images out in one block; counts only while block is null. */
static uint64_t lay_out(exec *self, uint8_t *block) {
  const plan_header *header = self->plan->header;
  uint64_t at = 0;
  for (int parity = 0; parity < 2; parity++) {
    if (block) self->image[parity] = block + at;
    at = align_up(at + header->io.block_table, 256);
    if (block) self->result[parity] = block + at;
    at = align_up(at + self->plan->regions[REGION_RESULT].bytes, 256);
    if (block && self->options.logits) self->logits[parity] = (float *)(void *)(block + at);
    if (self->options.logits) at = align_up(at + 4ull * header->limits.max_logit_rows * header->model.vocab, 256);
  }
  if (block) self->block_table = (uint32_t *)(void *)(block + at);
  at = align_up(at + 4ull * header->limits.max_seqs * header->limits.pages_per_seq, 256);
  if (block) self->lists = (token_bias *)(void *)(block + at);
  return at + sizeof(token_bias) * TOKEN_LIST_MAX * (uint64_t)header->limits.max_seqs;
}

static status make_memory(exec *self, arena *host) {
  uint64_t image_bytes = lay_out(self, NULL);
  if (!self->options.device) {
    void *device_memory, *images;
    TRY(arena_map(host, self->plan->header->device_bytes + 256, &device_memory));
    TRY(arena_map(host, image_bytes, &images));
    self->base = (uint64_t)(uintptr_t)device_memory;
    lay_out(self, images);
    return OK;
  }
  gpu *device = self->options.device;
  void *pinned;
  self->pinned_bytes = image_bytes > EXEC_STAGING_BYTES ? image_bytes : EXEC_STAGING_BYTES;
  TRY(gpu_reserve(device, self->plan->header->device_bytes, &self->base));
  TRY(gpu_pin(device, self->pinned_bytes, &pinned));
  TRY(gpu_stream_open(device, &self->stream));
  for (int i = 0; i < 2; i++) TRY(gpu_event_open(device, false, &self->done[i]));
  for (uint32_t i = 0; i < STAGING_SLOTS_MAX; i++) TRY(gpu_event_open(device, false, &self->slot_read[i]));
  self->pinned = pinned;
  lay_out(self, pinned);
  return OK;
}

/* === Arguments ================================================================================================================= */

static status resolve_ops(exec *self, arena *host) {
  const plan *p = self->plan;
  void *ops, *args;
  TRY(arena_take(host, sizeof(exec_op) * (p->op_count + 1ull), &ops));
  self->ops = ops;
  self->op_count = p->op_count;
  for (uint32_t i = 0; i < p->op_count; i++) {
    const plan_op *op = &p->ops[i];
    TRY(arena_take(host, op->args_bytes, &args));
    memcpy(args, p->args + op->args_offset, op->args_bytes);
    for (uint32_t f = 0; f < op->fixup_count; f++) {
      const plan_fixup *fixup = &p->fixups[op->first_fixup + f];
      uint64_t address = exec_address(self, fixup->region, fixup->offset);
      memcpy((uint8_t *)args + fixup->args_offset, &address, sizeof address);
    }
    self->ops[i] = (exec_op){.op = op, .name = plan_string(p, op->name), .row = kernels_row(op->kernel), .args = args};
    ASSERT(self->ops[i].row->args_bytes == op->args_bytes);
  }
  return OK;
}

status exec_open(exec **out, const plan *p, const exec_options *options, arena *host) {
  void *memory;
  TRY(arena_take(host, sizeof(exec), &memory));
  exec *self = memory;
  self->plan = p;
  self->options = *options;
  self->rung_count = options->direct ? 0 : p->ladder_count;
  status result = make_memory(self, host);
  if (result == OK) result = resolve_ops(self, host);
  if (result != OK) {
    exec_close(self);
    return result;
  }
  *out = self;
  return OK;
}

void exec_close(exec *self) {
  if (!self) return;
  if (self->stream) gpu_sync(self->options.device, self->stream, "end of the run");
  gemm_lt_close(self->library);
  jit_close(self->compiler);
  self->library = NULL;
  self->compiler = NULL;
}

weights_target exec_weights_target(exec *self) {
  weights_target target = {.address = exec_address(self, REGION_WEIGHTS, 0)};
  if (!self->options.device) {
    target.threads = cpu_pool_threads(self->options.pool);
    return target;
  }
  target.room = (staging_room){.device = self->options.device, .stream = self->stream, .memory = self->pinned,
                               .slot_bytes = STAGING_SLOT_BYTES, .slot_count = STAGING_SLOTS_MAX};
  memcpy(target.room.events, self->slot_read, sizeof self->slot_read);
  return target;
}

exec_counts exec_count(const exec *self) {
  return (exec_counts){.graphs = self->graph_count, .kernels_cached = self->kernels_cached,
                       .kernels_compiled = self->kernels_compiled, .pinned_bytes = self->pinned_bytes};
}

/* === Ops ==================================================================================================================== */

void exec_launch_own(exec *self, const exec_op *op, uint32_t rows) {
  uint32_t grid[3];
  for (int i = 0; i < 3; i++) grid[i] = (uint32_t)plan_extent(&op->op->grid[i], rows);
  gpu_launch(self->options.device, self->stream, op->kernel, op->name, grid, op->args);
}

/* The pinned library algorithm for this row count, or null. */
static gemm_lt_op *library_choice(const exec *self, const exec_op *op, uint32_t rows) {
  for (uint32_t i = 0; i < op->op->gemm_count; i++) {
    const plan_gemm *pin = &self->plan->gemms[op->op->first_gemm + i];
    if (rows >= pin->rows_min && rows <= pin->rows_max) return &op->lt[i];
  }
  return NULL;
}

static void run_library(exec *self, const exec_op *op, gemm_lt_op *lt, uint32_t rows) {
  const gemm_args *args = op->args;
  uint64_t workspace = exec_address(self, REGION_WORK, self->plan->header->gemm_workspace);
  status result = gemm_lt_run(self->library, lt, self->stream, rows, (uint64_t)(uintptr_t)args->x, (uint64_t)(uintptr_t)args->w,
                              (uint64_t)(uintptr_t)args->y, workspace);
  if (result != OK) gpu_fault(self->options.device, op->name, fail_text()); /* it was accepted at start-up */
}

static void run_op(exec *self, const exec_op *op, uint32_t rows) {
  if (!self->options.device) {
    op->row->run_cpu(op->args, self->options.pool);
    return;
  }
  gemm_lt_op *lt = library_choice(self, op, rows);
  if (lt) run_library(self, op, lt, rows);
  else exec_launch_own(self, op, rows);
}

void exec_run_ops(exec *self, uint32_t token_rows, uint32_t logit_rows) {
  for (uint32_t i = 0; i < self->op_count; i++) {
    const exec_op *op = &self->ops[i];
    uint32_t rows = op->op->rows_kind == ROWS_TOKENS ? token_rows : logit_rows;
    if (rows && rows >= op->op->rows_min && rows <= op->op->rows_max) run_op(self, op, rows);
  }
}

/* === Copies ================================================================================================================= */

static void copy_in(exec *self, uint64_t target, const void *source, size_t bytes) {
  if (self->options.device) gpu_upload(self->options.device, self->stream, target, source, bytes);
  else memcpy((void *)(uintptr_t)target, source, bytes);
}

static void copy_out(exec *self, void *target, uint64_t source, size_t bytes) {
  if (self->options.device) gpu_download(self->options.device, self->stream, target, source, bytes);
  else memcpy(target, (const void *)(uintptr_t)source, bytes);
}

/* The image, and of block table and token lists what has changed. The device reads host memory later than this. What it reads stays until
 * then: an image is filled again when its parity's step has been waited for, and a slot changes hands when a step that was submitted
 * with its row and list, or later, has been waited for. */
static void upload_inputs(exec *self, uint32_t parity, const exec_slot *changed, uint32_t changed_count) {
  const plan_io *io = &self->plan->header->io;
  uint64_t step = exec_address(self, REGION_STEP, 0), row_bytes = 4ull * self->plan->header->limits.pages_per_seq;
  copy_in(self, step, self->image[parity], io->block_table);
  for (uint32_t i = 0; i < changed_count; i++) {
    uint64_t slot = changed[i].slot, list_bytes = changed[i].list_count * sizeof(token_bias);
    copy_in(self, step + io->block_table + slot * row_bytes, exec_block_row(self, changed[i].slot), row_bytes);
    if (list_bytes)
      copy_in(self, step + io->lists + slot * TOKEN_LIST_MAX * sizeof(token_bias), exec_list(self, changed[i].slot), list_bytes);
  }
}

static void poison_range(exec *self, uint64_t address, uint64_t bytes) {
  if (self->options.device) gpu_fill32(self->options.device, self->stream, address, UINT32_MAX, bytes / 4);
  else memset((void *)(uintptr_t)address, 0xff, bytes);
}

static bool wants_top(const exec *self, uint32_t parity, uint32_t rows) {
  const sample_param *param = (const sample_param *)(const void *)(self->image[parity] + self->plan->header->io.sample);
  for (uint32_t i = 0; i < rows; i++)
    if (param[i].top_count) return true;
  return false;
}

/* Results of the step's rows. The device has one set for both parities: the next step writes it behind this download. */
static void download_results(exec *self, uint32_t parity, uint32_t rows) {
  const plan_io *io = &self->plan->header->io;
  const struct { uint64_t at, row_bytes; bool wanted; } tables[] = {
    {io->result, sizeof(sample_result), true},
    {io->digest, sizeof(uint64_t), true},
    {io->top, sizeof(top_logprob) * TOP_LOGPROBS_MAX, wants_top(self, parity, rows)},
  };
  if (rows == 0) return;
  for (size_t i = 0; i < ARRAY_LEN(tables); i++)
    if (tables[i].wanted)
      copy_out(self, self->result[parity] + tables[i].at, exec_address(self, REGION_RESULT, tables[i].at), tables[i].row_bytes * rows);
  if (self->options.logits)
    copy_out(self, self->logits[parity], exec_address(self, REGION_WORK, io->logits), 4ull * rows * self->plan->header->model.vocab);
}

/* === The step =============================================================================================================== */

exec_input exec_fill(exec *self, uint32_t parity) {
  ASSERT(parity < 2);
  const plan_io *io = &self->plan->header->io;
  uint8_t *image = self->image[parity];
  if (self->options.poison) memset(image, 0xff, io->block_table);
  return (exec_input){.head = (step_in *)(void *)(image + io->step), .token = (int32_t *)(void *)(image + io->token),
                      .position = (uint32_t *)(void *)(image + io->position), .seq = (uint32_t *)(void *)(image + io->seq),
                      .tiles = (attn_tile *)(void *)(image + io->tiles), .logit_row = (uint32_t *)(void *)(image + io->logit_row),
                      .sample = (sample_param *)(void *)(image + io->sample)};
}

uint32_t *exec_block_row(exec *self, uint32_t slot) {
  ASSERT(slot < self->plan->header->limits.max_seqs);
  return self->block_table + (uint64_t)slot * self->plan->header->limits.pages_per_seq;
}

token_bias *exec_list(exec *self, uint32_t slot) {
  ASSERT(slot < self->plan->header->limits.max_seqs);
  return self->lists + (uint64_t)slot * TOKEN_LIST_MAX;
}

void exec_drop_pages(exec *self, const uint32_t *pages, uint32_t count) {
  if (!self->options.poison) return;
  const plan_model *model = &self->plan->header->model;
  uint64_t page_bytes = 2ull * PAGE_TOKENS * (model->kv_lora_rank + model->rope_dim);
  uint64_t layer_bytes = page_bytes * self->plan->header->limits.kv_pages, ids_bytes = 4ull * PAGE_TOKENS;
  for (uint32_t layer = 0; layer < model->layers; layer++)
    for (uint32_t i = 0; i < count; i++)
      poison_range(self, exec_address(self, REGION_KV, layer * layer_bytes + pages[i] * page_bytes), page_bytes);
  for (uint32_t i = 0; i < count; i++)
    poison_range(self, exec_address(self, REGION_KV, self->plan->header->io.history + pages[i] * ids_bytes), ids_bytes);
}

/* The smallest ladder index that holds `tokens` rows, or rung_count. */
static uint32_t rung_for(const exec *self, uint32_t tokens) {
  uint32_t rung = 0;
  while (rung < self->rung_count && self->plan->ladder[rung] < tokens) rung++;
  return rung;
}

void exec_submit(exec *self, uint32_t parity, bool decode, const exec_slot *changed, uint32_t changed_count) {
  ASSERT(parity < 2);
  const plan_limits *limits = &self->plan->header->limits;
  const step_in *head = (const step_in *)(const void *)(self->image[parity] + self->plan->header->io.step);
  ASSERT(head->token_count >= 1 && head->token_count <= limits->max_batch_tokens);
  ASSERT(head->logit_count <= limits->max_logit_rows);
  ASSERT(head->tile_count >= 1 && head->tile_count <= head->token_count);
  ASSERT(!decode || head->logit_count == head->token_count);
  upload_inputs(self, parity, changed, changed_count);
  if (self->options.poison) poison_range(self, exec_address(self, REGION_WORK, 0), self->plan->regions[REGION_WORK].bytes);
  uint32_t rung = decode ? rung_for(self, head->token_count) : self->rung_count;
  if (rung == self->rung_count) exec_run_ops(self, head->token_count, head->logit_count);
  else if (self->options.device) gpu_graph_launch(self->options.device, self->stream, self->graphs[rung], "decode graph");
  else exec_run_ops(self, self->plan->ladder[rung], self->plan->ladder[rung]);
  download_results(self, parity, head->logit_count);
  if (self->options.device) gpu_record(self->options.device, self->stream, self->done[parity]);
}

exec_results exec_wait(exec *self, uint32_t parity) {
  ASSERT(parity < 2);
  if (self->options.device) gpu_event_sync(self->options.device, self->done[parity], "step");
  const plan_io *io = &self->plan->header->io;
  const uint8_t *image = self->result[parity];
  return (exec_results){.result = (const sample_result *)(const void *)(image + io->result),
                        .top = (const top_logprob *)(const void *)(image + io->top),
                        .digest = (const uint64_t *)(const void *)(image + io->digest), .logits = self->logits[parity]};
}
