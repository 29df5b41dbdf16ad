/* exec.c - memory and arguments at start-up, then the step path: inputs up, ops in order, results down.
 *
 * The step path allocates nothing and takes no decision that could change a bit. Must not know requests. Ops and copies
 * are the backend's. Read next: backend.h, state.h; start.c for the rest of the start-up. */
#include "kernels_src/attn/contexts.h"
#include "exec/ranks.h"
#include "plan/format_masks.h"
#include "plan/format_widen.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COPY_GAP_BYTES 4096u

/* === Memory ================================================================================================================= */

/* Lays out the host's images, block table and lists in one block; returns its size. block null: the size only. */
static uint64_t lay_out(exec *self, uint8_t *block, uint32_t **rows, token_bias **lists) {
  const plan_header *header = self->plan->header;
  const plan_limits *limits = &header->limits;
  uint64_t at = 0;
  for (int side = 0; side < 2; side++) {
    if (block) self->image[side] = block + at;
    at = align_up(at + header->io.block_table, 256);
    if (block) self->result[side] = block + at;
    at = align_up(at + self->plan->regions[REGION_RESULT].bytes, 256);
    if (block && self->options.logits) self->logits[side] = (float *)(void *)(block + at);
    if (self->options.logits) at = align_up(at + 4ull * limits->max_logit_rows * header->model.vocab, 256);
  }
  if (block && plan_has_masks(self->plan)) self->masks = (uint32_t *)(void *)(block + at);
  if (plan_has_masks(self->plan))
    at = align_up(at + 4ull * plan_mask_room(limits, header->model.vocab) * plan_mask_words(header->model.vocab), 256);
  if (block) *rows = (uint32_t *)(void *)(block + at);
  at = align_up(at + block_table_row_bytes(limits->max_seqs, limits->pages_per_seq), 256);
  if (block) *lists = (token_bias *)(void *)(block + at);
  at = align_up(at + block_table_list_bytes(limits->max_seqs), 256);
  if (block && self->ranks > 1) self->rank_host[0] = block + at;
  return self->ranks > 1 ? at + ranks_host_bytes(self->plan) : at;
}

/* The one place that chooses a backend. image_bytes: host memory of rank 0, which the others copy from. */
static status open_ranks(exec *self, uint64_t image_bytes, arena *host) {
  exec_options options = self->options;
  for (uint32_t i = 0; i < self->ranks; i++) {
    const uint64_t host_bytes = i == 0 ? image_bytes : ranks_host_bytes(self->plan);
    if (i > 0) options.device = self->options.others[i - 1];
    if (options.device && self->ranks > 1) gpu_select(options.device);
    TRY(options.device ? backend_gpu_open(self->plan, &options, host_bytes, host, &self->rank[i])
                       : backend_cpu_open(self->plan, &options, host_bytes, host, &self->rank[i]));
    if (i > 0) self->rank_host[i] = self->rank[i]->host;
    if (options.device && self->ranks > 1) gpu_on_explain(options.device, ranks_explain, self);
  }
  self->backend = self->rank[0];
  if (self->ranks == 1) return OK;
  gather_open(&self->gather, &self->options, self->ranks, self->plan->header->limits.transport == TRANSPORT_NCCL, ranks_timeout_s(self));
  return backend_ranks_open(self->rank, self->ranks, &self->gather, host, &self->backend);
}

static status make_mask_lists(exec *self, arena *host) {
  const plan_limits *limits = &self->plan->header->limits;
  void *there, *list;
  for (uint32_t side = 0; side < 2 && self->masks; side++) {
    TRY(arena_take(host, sizeof **self->masks_there * plan_mask_room(limits, self->plan->header->model.vocab), &there));
    TRY(arena_take(host, sizeof **self->step_masks * plan_mask_rows(limits), &list));
    self->masks_there[side] = there;
    self->step_masks[side] = list;
  }
  return OK;
}

static status make_memory(exec *self, arena *host) {
  const plan_limits *limits = &self->plan->header->limits;
  uint32_t *rows = NULL;
  token_bias *lists = NULL;
  TRY(open_ranks(self, lay_out(self, NULL, NULL, NULL), host));
  lay_out(self, self->backend->host, &rows, &lists);
  ranks_mark(self);
  TRY(make_mask_lists(self, host));
  TRY(block_table_open(&self->table, limits->max_seqs, limits->pages_per_seq, rows, lists, host));
  self->is_timed = self->options.timed && self->backend->has_graphs;
  return self->is_timed ? self->backend->calls->make_marks(self->backend, 2 * EXEC_TIMED_STEPS, &self->first_mark) : OK;
}

/* === Arguments ================================================================================================================= */

static status make_args(const exec *self, const backend *rank, uint32_t side, arena *host, exec_op *out) {
  const plan_op *op = out->plan;
  const uint32_t piece_at = kernels_piece_at(op->kernel);
  void *args;
  TRY(arena_take(host, op->args_bytes, &args));
  memcpy(args, self->plan->args + op->args_offset, op->args_bytes);
  for (uint32_t i = 0; i < op->fixup_count; i++) {
    const plan_fixup *fixup = &self->plan->fixups[op->first_fixup + i];
    const uint64_t step = (uint64_t)out->rank * fixup->rank_step * RANK_STEP_BYTES;
    uint64_t address = backend_address(rank, exec_region(fixup->region, side), fixup->offset + step);
    memcpy((uint8_t *)args + fixup->args_offset, &address, sizeof address);
  }
  out->args[side] = args;
  if (piece_at) out->piece[side] = (u32 *)(void *)((uint8_t *)args + piece_at);
  return OK;
}

static status resolve_ops(exec *self, uint32_t number, arena *host) {
  backend *rank = self->rank[number];
  const plan *p = self->plan;
  void *memory;
  TRY(arena_take(host, sizeof(exec_op) * (p->op_count + 1ull), &memory));
  exec_op *ops = memory;
  rank->ops = ops;
  for (uint32_t i = 0; i < p->op_count; i++) {
    const plan_op *op = &p->ops[i];
    ops[i] = (exec_op){.plan = op, .rank = number, .name = plan_string(p, op->name), .row = kernels_row(op->kernel)};
    ASSERT(ops[i].row->args_bytes == op->args_bytes);
    for (uint32_t side = 0; side < 2; side++) TRY(make_args(self, rank, side, host, &ops[i]));
  }
  return OK;
}

status exec_open(exec **out, const plan *p, const exec_options *options, arena *host) {
  void *memory;
  TRY(arena_take(host, sizeof(exec), &memory));
  exec *self = memory;
  self->plan = p;
  self->options = *options;
  self->ranks = p->header->limits.ranks;
  self->op_count = p->op_count;
  self->rung_count = options->direct ? 0 : p->ladder_count;
  status result = make_memory(self, host);
  for (uint32_t i = 0; i < self->ranks && result == OK; i++) result = resolve_ops(self, i, host);
  if (result != OK) {
    exec_close(self);
    return result;
  }
  self->ops = self->backend->ops = self->rank[0]->ops;
  *out = self;
  return OK;
}

void exec_close(exec *self) {
  if (self && self->backend) self->backend->calls->close(self->backend);
}

void exec_fault(exec *self, const char *what) {
  if (self->options.device) gpu_fault(self->options.device, "a step", what);
  if (self->options.on_fault) self->options.on_fault(self->options.fault_context, what);
  fprintf(stderr, "verbatim: %s\n", what);
  fflush(NULL);
  _Exit(fail_exit_code(ERR_DEVICE)); /* as a device's fault does */
}

weights_target exec_weights_target(exec *self) { return self->backend->calls->weights(self->backend); }

exec_counts exec_count(const exec *self) {
  exec_counts counts = {.gaps = self->gaps};
  self->backend->calls->count(self->backend, &counts);
  return counts;
}

const verbatim_kernel *exec_kernels(const exec *self, uint32_t *count) {
  *count = self->backend->loaded ? self->plan->kernel_count : 0;
  return self->backend->loaded;
}

/* === Ops ==================================================================================================================== */

/* Launch rows of an op, 0 when it does not run for these. */
static uint32_t rows_of(const exec_op *op, const exec_rows *all) {
  uint32_t rows = all->kind[op->plan->rows_kind];
  return rows >= op->plan->rows_min && rows <= op->plan->rows_max ? rows : 0;
}

/* Index of the op after i. The last prompt op of a piece of the contexts loops back to the first for the next piece. */
static uint32_t next_op(const exec *self, uint32_t i, const exec_rows *rows, uint32_t *piece) {
  const exec_op *ops = self->ops;
  bool is_last = ops[i].plan->rows_kind == ROWS_PROMPT && (i + 1 == self->op_count || ops[i + 1].plan->rows_kind != ROWS_PROMPT);
  if (!is_last) return i + 1;
  if (++*piece < rows->pieces)
    while (i > 0 && ops[i - 1].plan->rows_kind == ROWS_PROMPT) i--;
  else *piece = 0, i++;
  return i;
}

/* The launch rows of the step that an image describes. */
static exec_rows rows_of_step(const exec *self, uint32_t side) {
  const plan_header *header = self->plan->header;
  const step_in *head = (const step_in *)(const void *)(self->image[side] + header->io.step);
  exec_rows rows = exec_rows_made(&header->limits, head->token_count, head->logit_count, head[STEP_DRAFTS].token_count);
  rows.kind[ROWS_MADE] = head[STEP_MADE].token_count;
  rows.kind[ROWS_PROMPT] = head[STEP_PROMPT].token_count;
  if (rows.kind[ROWS_PROMPT] == 0) return rows;
  /* An op for one row makes the value rows itself, which is right in steps of one token; here another op makes all of them. */
  if (plan_has_widening(&header->limits) && rows.kind[ROWS_MADE] == 1) rows.kind[ROWS_MADE] = 2;
  rows.kind[ROWS_BY_HEADS] = rows.kind[plan_heads_kind(&header->limits)];
  const step_context *contexts = (const step_context *)(const void *)(self->image[side] + header->io.contexts);
  rows.pieces = (uint32_t)div_up(contexts_pages(contexts, head[STEP_PROMPT].seq_count), header->limits.expand_pages);
  return rows;
}

static void launch(exec *self, const backend_launch *l) { self->backend->calls->launch(self->backend, l); }

/* Whether the next op may start before this one is complete. What a pass of drafts reads early, as others read the step's inputs, was
 * written by `accept` or by the pass before, which ends with `sample`. */
static bool may_overlap(const exec_op *op) { return op->plan->kernel != KERNEL_accept && op->plan->kernel != KERNEL_sample; }

void exec_run_ops(exec *self, uint32_t side, exec_rows all) {
  uint32_t tokens = all.kind[ROWS_TOKENS];
  bool branches = tokens >= BRANCH_ROWS_MIN && tokens <= self->plan->header->limits.split_rows_max, follows = false;
  for (uint32_t i = 0, piece = 0; i < self->op_count; i = next_op(self, i, &all, &piece)) {
    uint32_t rows = rows_of(&self->ops[i], &all), branch = branches ? self->ops[i].plan->branch : BRANCH_MAIN;
    if (!rows) continue;
    launch(self, &(backend_launch){.op = i, .side = side, .rows = rows, .branch = branch, .piece = piece, .follows = follows});
    follows = may_overlap(&self->ops[i]);
  }
}

/* === Copies ================================================================================================================= */

/* To the device, with the inputs of a step. */
static void copy_in(exec *self, uint64_t target, const void *source, size_t bytes) {
  self->backend->calls->upload(self->backend, QUEUE_INPUTS, target, source, bytes);
}

static void copy_out(exec *self, enum backend_queue queue, void *target, uint64_t source, size_t bytes) {
  self->backend->calls->download(self->backend, queue, target, source, bytes);
}

typedef struct table { uint64_t at, bytes; } table; /* part of a region that is used */

/* How many of these tables, which are in memory order, are near enough to be one copy together with the gaps between them, and its bytes.
 * Starting a copy costs as much as copying COPY_GAP_BYTES. */
static size_t near_tables(const table *tables, size_t count, uint64_t *bytes) {
  size_t last = 0;
  while (last + 1 < count && tables[last + 1].at - tables[last].at - tables[last].bytes <= COPY_GAP_BYTES) last++;
  *bytes = tables[last].at + tables[last].bytes - tables[0].at;
  return last + 1;
}

static void upload_image(exec *self, uint32_t side) {
  const plan_io *io = &self->plan->header->io;
  const uint8_t *image = self->image[side];
  const step_in *head = (const step_in *)(const void *)(image + io->step);
  uint64_t rows = head->token_count, step = exec_address(self, exec_region(REGION_STEP, side), 0), bytes;
  const plan_limits *limits = &self->plan->header->limits;
  const uint64_t own_tiles = self->by_requests[side] ? sizeof(attn_tile) * (uint64_t)self->ranks * plan_own_tiles(limits) : 0;
  const bool has_prompts = head[STEP_PROMPT].token_count > 0, has_mtp = plan_has_mtp(&self->plan->header->limits);
  const table all[] = {{io->step, plan_step_entries(&self->plan->header->limits) * sizeof *head}, {io->logit_row, 4ull * head->logit_count},
                       {io->sample, sizeof(sample_param) * head->logit_count},
                       {io->drafts, has_mtp * sizeof(step_draft) * head[STEP_DRAFTS].token_count}, {io->token, 4 * rows},
                       {io->position, 4 * rows}, {io->seq, 4 * rows}, {io->next, has_mtp * 4 * rows},
                       {io->tiles, sizeof(attn_tile) * head[STEP_MADE].tile_count},
                       {io->prompt_tiles, has_prompts * sizeof(attn_tile) * head[STEP_PROMPT].tile_count},
                       {io->contexts, has_prompts * sizeof(step_context) * head[STEP_PROMPT].seq_count},
                       {io->own_tiles, own_tiles}};
  table tables[ARRAY_LEN(all)];
  size_t count = 0;
  for (size_t i = 0; i < ARRAY_LEN(all); i++)
    if (all[i].bytes) tables[count++] = all[i];
  if (self->options.poison) copy_in(self, step, image, io->block_table);
  for (size_t i = 0; i < count && !self->options.poison;) {
    const table *first = &tables[i];
    i += near_tables(first, count - i, &bytes);
    copy_in(self, step + first->at, image + first->at, bytes);
  }
}

static void upload_row(exec *self, uint32_t side, const block_change *change) {
  const plan_io *io = &self->plan->header->io;
  uint64_t row_bytes = block_table_row_bytes(1, self->table.row_pages), list_bytes = change->list_count * sizeof(token_bias);
  uint64_t slot = change->slot, step = exec_address(self, exec_region(REGION_STEP, side), 0);
  copy_in(self, step + io->block_table + slot * row_bytes, block_table_row(&self->table, change->slot), row_bytes);
  if (list_bytes == 0) return;
  copy_in(self, step + io->lists + slot * block_table_list_bytes(1), block_table_list(&self->table, change->slot), list_bytes);
}

/* Those that this side lacks. Their host memory is not written again while a step that uses them is in flight: plan_mask_room. */
static void upload_masks(exec *self, uint32_t side) {
  const plan_header *header = self->plan->header;
  const uint32_t words = plan_mask_words(header->model.vocab);
  const uint64_t at = header->io.lists + plan_masks_after_lists(&header->limits);
  for (uint32_t i = 0; i < self->mask_count[side]; i++) {
    const exec_mask mask = self->step_masks[side][i];
    if (self->masks_there[side][mask.row] == mask.made) continue;
    self->masks_there[side][mask.row] = mask.made;
    copy_in(self, exec_address(self, exec_region(REGION_STEP, side), at + 4ull * words * mask.row),
            self->masks + (uint64_t)words * mask.row, 4ull * words);
  }
}

/* Uploads the part of the image that the step uses, and the rows of the block table that this side lacks. The last step of this side was
 * waited for, and the other side has its own image, so this may go on during a step of the other. The device reads host memory later:
 * an image is not filled again before its step has been waited for, and for rows see block_table.h. */
static void upload_inputs(exec *self, uint32_t side) {
  uint32_t count;
  const block_change *changes = block_table_send(&self->table, side, &count);
  upload_image(self, side);
  upload_masks(self, side);
  for (uint32_t i = 0; i < count; i++) upload_row(self, side, &changes[i]);
  self->backend->calls->record(self->backend, QUEUE_INPUTS, side);
}

static void poison_range(exec *self, uint64_t address, uint64_t bytes) {
  self->backend->calls->fill(self->backend, address, UINT32_MAX, bytes);
}

static bool wants_top(const exec *self, uint32_t side, uint32_t rows) {
  const sample_param *param = (const sample_param *)(const void *)(self->image[side] + self->plan->header->io.sample);
  for (uint32_t i = 0; i < rows; i++)
    if (param[i].top_count) return true;
  return false;
}

/* Downloads the results of the step's rows during the ops of the next step. Those overwrite the logits, which are read before them. */
static void download_results(exec *self, uint32_t side, const step_in *head) {
  const uint32_t rows = head->logit_count;
  const plan_io *io = &self->plan->header->io;
  const table tables[] = {{io->result, sizeof(sample_result) * rows}, {io->digest, sizeof(uint64_t) * rows},
                          {io->top, sizeof(top_logprob) * TOP_LOGPROBS_MAX * rows}};
  uint64_t source = exec_address(self, exec_region(REGION_RESULT, side), 0), bytes;
  size_t count = ARRAY_LEN(tables) - !wants_top(self, side, rows);
  if (self->options.logits && rows)
    copy_out(self, QUEUE_OPS, self->logits[side], exec_address(self, REGION_WORK, io->logits),
             4ull * rows * self->plan->header->model.vocab);
  const uint32_t drafts = head[STEP_DRAFTS].token_count ? self->plan->header->limits.draft_tokens : 0;
  ranks_fetch_links(self, side);
  self->backend->calls->record(self->backend, QUEUE_OPS, side);
  for (size_t i = 0; i < count && rows;) {
    const table *first = &tables[i];
    i += near_tables(first, count - i, &bytes);
    copy_out(self, QUEUE_RESULTS, self->result[side] + first->at, source + first->at, bytes);
  }
  if (drafts)
    copy_out(self, QUEUE_RESULTS, self->result[side] + io->draft, source + io->draft,
             sizeof(sample_result) * drafts * plan_draft_stride(&self->plan->header->limits));
  ranks_fetch(self, side, head);
  self->backend->calls->record(self->backend, QUEUE_RESULTS, side);
}

/* === The step =============================================================================================================== */

exec_input exec_fill(exec *self, uint32_t side) {
  ASSERT(side < 2);
  const plan_io *io = &self->plan->header->io;
  uint8_t *image = self->image[side];
  const bool has_mtp = plan_has_mtp(&self->plan->header->limits);
  if (self->options.poison) memset(image, 0xff, io->block_table);
  self->mask_count[side] = 0;
  return (exec_input){.head = (step_in *)(void *)(image + io->step), .token = (int32_t *)(void *)(image + io->token),
                      .position = (uint32_t *)(void *)(image + io->position), .seq = (uint32_t *)(void *)(image + io->seq),
                      .tiles = (attn_tile *)(void *)(image + io->tiles), .logit_row = (uint32_t *)(void *)(image + io->logit_row),
                      .sample = (sample_param *)(void *)(image + io->sample),
                      .prompt_tiles = (attn_tile *)(void *)(image + io->prompt_tiles),
                      .contexts = (step_context *)(void *)(image + io->contexts),
                      .next = has_mtp ? (int32_t *)(void *)(image + io->next) : NULL,
                      .drafts = has_mtp ? (step_draft *)(void *)(image + io->drafts) : NULL, .masks = self->step_masks[side]};
}

void exec_set_masks(exec *self, uint32_t side, uint32_t count) {
  ASSERT(count == 0 || (self->masks && count <= plan_mask_rows(&self->plan->header->limits)));
  self->mask_count[side] = count;
}

uint32_t *exec_masks(const exec *self) { return self->masks; }

uint32_t exec_cut_tiles(attn_tile *tiles, attn_tile all, uint32_t most, uint32_t edge) {
  uint32_t count = 0;
  for (uint32_t done = 0; done < all.count; done += tiles[count++].count) {
    uint32_t position = all.position + done, now = min_u32(min_u32(most, all.count - done), edge - position % edge);
    tiles[count] = (attn_tile){.row = all.row + done, .count = now, .seq = all.seq, .position = position};
  }
  return count;
}

void exec_add_context(const exec_input *in, uint32_t nth, uint32_t slot, uint32_t tokens) {
  uint32_t first = nth ? contexts_pages(in->contexts, nth) : 0;
  in->contexts[nth] = (step_context){.first = first, .tokens = tokens, .seq = slot};
}

void exec_set_counts(const exec_input *in, uint32_t logits, step_in ordinary, step_in prompt) {
  in->head[STEP_ALL] = (step_in){.token_count = ordinary.token_count + prompt.token_count, .logit_count = logits,
                                 .tile_count = ordinary.tile_count + prompt.tile_count,
                                 .seq_count = ordinary.seq_count + prompt.seq_count};
  in->head[STEP_MADE] = ordinary;
  in->head[STEP_PROMPT] = prompt;
  in->head[STEP_DRAFTS] = (step_in){0};
}

void exec_set_drafts(const exec_input *in, uint32_t count) {
  ASSERT(in->drafts && count <= in->head[STEP_ALL].logit_count);
  in->head[STEP_DRAFTS] = (step_in){.token_count = count, .logit_count = count, .tile_count = count, .seq_count = count};
}

block_table *exec_block_table(exec *self) { return &self->table; }

/* Poisons what these pages have in each of several consecutive tables of the KV region. */
static void poison_pages(exec *self, uint64_t offset, uint32_t tables, uint64_t page_bytes, const uint32_t *pages, uint32_t count) {
  const uint64_t kv_pages = self->plan->header->limits.kv_pages;
  for (uint32_t nth = 0; nth < tables; nth++)
    for (uint32_t i = 0; i < count; i++)
      poison_range(self, exec_address(self, REGION_KV, offset + (nth * kv_pages + pages[i]) * page_bytes), page_bytes);
}

void exec_drop_pages(exec *self, const uint32_t *pages, uint32_t count) {
  const plan_header *header = self->plan->header;
  const uint32_t layers = plan_kept_layers(&header->model, &header->limits);
  const uint64_t row_bytes = plan_kv_row_bytes(&header->model, &header->quant, &header->grouped, &header->limits);
  if (!self->options.poison) return;
  poison_pages(self, 0, layers, PAGE_TOKENS * row_bytes, pages, count);
  poison_pages(self, header->io.history, 1, 4ull * PAGE_TOKENS, pages, count);
  poison_pages(self, header->io.index, plan_indexers(&header->quant, layers), INDEX_PAGE_BYTES, pages, count);
}

/* The smallest ladder index that holds `tokens` rows, or rung_count. */
static uint32_t rung_for(const exec *self, uint32_t tokens) {
  uint32_t rung = 0;
  while (rung < self->rung_count && self->plan->ladder[rung] < tokens) rung++;
  return rung;
}

void exec_divide_rows(exec *self, uint32_t side) {
  const plan_header *header = self->plan->header;
  const uint32_t ranks = header->limits.ranks;
  step_in *head = (step_in *)(void *)(self->image[side] + header->io.step);
  for (uint32_t r = 0; r < ranks && ranks > 1; r++) {
    const uint32_t rows = max_u32(1, STEP_OWN_ROWS(head->token_count, r, ranks));
    head[STEP_PARTS + r] = (step_in){.token_count = rows, .tile_count = rows, .seq_count = rows};
  }
}

/* Writes the tiles of each rank: the rows that it owns. */
static void deal_tiles(exec *self, uint32_t side) {
  const plan_header *header = self->plan->header;
  uint8_t *image = self->image[side];
  const step_in *head = (const step_in *)(const void *)(image + header->io.step);
  const uint32_t *seq = (const uint32_t *)(const void *)(image + header->io.seq);
  const uint32_t *position = (const uint32_t *)(const void *)(image + header->io.position);
  attn_tile *tiles = (attn_tile *)(void *)(image + header->io.own_tiles);
  for (uint32_t row = 0; row < head->token_count; row++)
    tiles[row % self->ranks * plan_own_tiles(&header->limits) + row / self->ranks] =
        (attn_tile){.row = row, .count = 1, .seq = seq[row], .position = position[row]};
}

/* All that comes before the ops of a step. Returns its head. */
static const step_in *begin_step(exec *self, uint32_t side) {
  ASSERT(side < 2);
  const plan_limits *limits = &self->plan->header->limits;
  const step_in *head = (const step_in *)(const void *)(self->image[side] + self->plan->header->io.step);
  ASSERT(head->token_count >= 1 && head->token_count <= limits->max_batch_tokens);
  ASSERT(head->logit_count <= limits->max_logit_rows);
  ASSERT(head->tile_count >= 1 && head->tile_count <= head->token_count);
  ASSERT(head[STEP_DRAFTS].token_count <= (plan_has_mtp(limits) ? min_u32(head->logit_count, limits->max_seqs) : 0));
  ranks_renew(self);
  exec_divide_rows(self, side);
  if (self->by_requests[side]) deal_tiles(self, side);
  upload_inputs(self, side);
  if (self->options.poison) poison_range(self, exec_address(self, REGION_WORK, 0), self->plan->regions[REGION_WORK].bytes);
  return head;
}

static void end_step(exec *self, uint32_t side, const step_in *head) {
  download_results(self, side, head);
  self->submitted++;
}

/* The mark before the ops of a step; that after them is the next one. */
static uint32_t mark_of(const exec *self, uint64_t step) { return self->first_mark + 2 * (uint32_t)(step % EXEC_TIMED_STEPS); }

/* In the queue of ops: after the inputs of the step and before its results. */
static void mark(exec *self, uint32_t number) {
  if (self->is_timed) self->backend->calls->mark(self->backend, number);
}

/* Whether a step of generated tokens attends by requests. */
static bool attends_by_requests(const exec *self, uint32_t side) {
  const plan_header *header = self->plan->header;
  const plan_limits *limits = &header->limits;
  const step_in *head = (const step_in *)(const void *)(self->image[side] + header->io.step);
  const uint32_t *position = (const uint32_t *)(const void *)(self->image[side] + header->io.position), rows = head->token_count;
  uint64_t tokens = 0;
  if (!plan_has_requests(limits) || rows < limits->requests_rows || rows > limits->split_rows_max) return false;
  for (uint32_t i = 0; i < rows; i++) tokens += position[i] + 1ull;
  return tokens >= (uint64_t)limits->requests_context * rows;
}

/* Runs the ops of a step: those of a ladder size, or with rung_count those of its rows. */
static void run_step(exec *self, uint32_t side, uint32_t rung) {
  const bool by_requests = self->by_requests[side], is_captured = rung < self->rung_count;
  backend_graph *graph = is_captured ? self->graphs[rung][side][by_requests] : NULL;
  if (graph) {
    self->backend->calls->replay(self->backend, graph, "decode graph");
    return;
  }
  const uint32_t size = is_captured ? self->plan->ladder[rung] : 0;
  const exec_rows rows = is_captured ? exec_rows_most(&self->plan->header->limits, size, size) : rows_of_step(self, side);
  exec_run_ops(self, side, by_requests ? exec_rows_by_requests(rows) : rows);
}

void exec_submit(exec *self, uint32_t side, bool decode) {
  uint64_t step = self->submitted;
  self->is_marked[step % EXEC_TIMED_STEPS] = true;
  self->is_chained[step % EXEC_TIMED_STEPS] = step > self->waited && self->is_marked[(step - 1) % EXEC_TIMED_STEPS];
  self->by_requests[side] = decode && attends_by_requests(self, side);
  const step_in *head = begin_step(self, side);
  ASSERT(!decode || head->logit_count == head->token_count);
  const bool is_captured = decode && (!plan_has_mtp(&self->plan->header->limits) || head[STEP_DRAFTS].token_count > 0);
  uint32_t rung = is_captured ? rung_for(self, head->token_count) : self->rung_count;
  mark(self, mark_of(self, step));
  run_step(self, side, rung);
  mark(self, mark_of(self, step) + 1);
  end_step(self, side, head);
}

/* Measures the gap before the step that is being waited for. */
static void measure_gap(exec *self) {
  uint64_t step = self->waited;
  if (!self->is_timed || !self->is_chained[step % EXEC_TIMED_STEPS]) return;
  double us = self->backend->calls->elapsed_us(self->backend, mark_of(self, step - 1) + 1, mark_of(self, step));
  self->gaps.count++;
  self->gaps.sum_us += us;
  self->gaps.bins[us < VERBATIM_GAP_BINS - 1 ? (uint32_t)us : VERBATIM_GAP_BINS - 1]++;
}

exec_results exec_wait(exec *self, uint32_t side) {
  ASSERT(side < 2);
  self->backend->calls->wait(self->backend, side);
  ranks_compare(self, side);
  measure_gap(self);
  self->waited++;
  block_table_done(&self->table);
  const plan_io *io = &self->plan->header->io;
  const plan_limits *limits = &self->plan->header->limits;
  const uint8_t *image = self->result[side];
  return (exec_results){.result = (const sample_result *)(const void *)(image + io->result),
                        .top = (const top_logprob *)(const void *)(image + io->top),
                        .digest = (const uint64_t *)(const void *)(image + io->digest), .logits = self->logits[side],
                        .draft = plan_has_mtp(limits) ? (const sample_result *)(const void *)(image + io->draft) : NULL,
                        .draft_stride = plan_draft_stride(limits), .by_requests = self->by_requests[side]};
}

/* === Looking in ============================================================================================================= */

static void wait_for(exec *self, const char *what) { self->backend->calls->sync(self->backend, what); }

/* By heads: a trace has the places of that form, and the bits are the same. */
void exec_submit_watched(exec *self, uint32_t side, exec_see *see, void *context) {
  self->by_requests[side] = false;
  const step_in *head = begin_step(self, side);
  self->is_marked[self->submitted % EXEC_TIMED_STEPS] = self->is_chained[self->submitted % EXEC_TIMED_STEPS] = false;
  exec_rows all = rows_of_step(self, side);
  for (uint32_t i = 0, piece = 0, next; i < self->op_count; i = next) {
    uint32_t rows = rows_of(&self->ops[i], &all);
    bool is_whole = self->ops[i].plan->rows_kind != ROWS_PROMPT || piece + 1 == all.pieces;
    if (rows) launch(self, &(backend_launch){.op = i, .side = side, .rows = rows, .branch = BRANCH_MAIN, .piece = piece});
    next = next_op(self, i, &all, &piece);
    if (!rows || !is_whole || i >= self->plan->main_op_count) continue;
    wait_for(self, self->ops[i].name);
    see(context, i);
  }
  end_step(self, side, head);
}

void exec_run_op(exec *self, uint32_t op, uint32_t token_rows, uint32_t logit_rows, bool follows) {
  ASSERT(op < self->op_count);
  exec_rows all = exec_rows_made(&self->plan->header->limits, token_rows, logit_rows, token_rows);
  all.kind[ROWS_PROMPT] = all.kind[ROWS_BY_REQUESTS] = token_rows;
  uint32_t rows = rows_of(&self->ops[op], &all);
  ASSERT(rows > 0);
  launch(self, &(backend_launch){.op = op, .rows = rows, .branch = BRANCH_MAIN, .follows = follows});
}

void exec_run_alone(exec *self, uint32_t op, uint32_t token_rows, uint32_t logit_rows) {
  exec_run_op(self, op, token_rows, logit_rows, false);
  wait_for(self, self->ops[op].name);
}

static uint64_t address_inside(const exec *self, uint32_t region, uint64_t offset, uint64_t bytes) {
  ASSERT(region < REGION_COUNT && offset <= self->plan->regions[region].bytes && bytes <= self->plan->regions[region].bytes - offset);
  return exec_address(self, region, offset);
}

void exec_read_rows(exec *self, uint32_t rank, uint32_t region, const uint64_t *offsets, uint32_t count, uint64_t row_bytes, void *to) {
  ASSERT(rank < self->ranks);
  backend *b = self->rank[rank];
  for (uint32_t i = 0; i < count; i++) address_inside(self, region, offsets[i], row_bytes);
  backend_select(b);
  b->calls->read(b, backend_address(b, region, 0), offsets, count, row_bytes, to);
}

void exec_read(exec *self, uint32_t region, uint64_t offset, void *to, uint64_t bytes) {
  exec_read_rows(self, 0, region, &offset, 1, bytes, to);
}

void exec_write(exec *self, uint32_t region, uint64_t offset, const void *from, uint64_t bytes) {
  self->backend->calls->write(self->backend, address_inside(self, region, offset, bytes), from, bytes);
}
