/* backend_ranks.c - several backends as one (backend.h): every rank of a plan does the same work on memory of the same layout.
 *
 * An address names a byte of rank 0, and means the same byte of each rank. What is copied to the device, filled, launched or recorded is so
 * on every rank, op by op: a rank is never more than one op ahead in being launched, so that a wait of one for another ends. Results and
 * times are those of rank 0; a wait is for all ranks. One thread drives all of them. Exchanges may go through NCCL, which takes those of
 * all ranks at once. Read next: exec.c, gather.h, kernels_src/abi_ranks.h. */
#include "exec/backend.h"

struct backend_graph { /* one of each rank */
  backend_graph *of[RANKS_MAX];
};

typedef struct backend_ranks {
  backend common;
  uint32_t count, graph_count;
  const gather *gather;
  backend *rank[RANKS_MAX];
  backend_graph graphs[GRAPHS_MAX];
} backend_ranks;

static backend_ranks *own(backend *self) { return (backend_ranks *)(void *)self; }
static const backend_ranks *own_const(const backend *self) { return (const backend_ranks *)(const void *)self; }

/* The next rank from r on, made the one that this thread works with; null after the last. */
static backend *choose(backend *self, uint32_t r) {
  if (r == own(self)->count) return NULL;
  backend *rank = own(self)->rank[r];
  backend_select(rank);
  return rank;
}

#define EACH_RANK(self, b) \
  uint32_t r_ = 0;         \
  for (backend *b; (b = choose(self, r_)) != NULL; r_++)

static uint64_t there(const backend *self, const backend *rank, uint64_t address) { return address - self->base + rank->base; }

static void select_first(backend *self) { choose(self, 0); }

/* === Start-up =============================================================================================================== */

static status start_kernels(backend *self, arena *host) {
  EACH_RANK(self, b) TRY(b->calls->start_kernels(b, host));
  self->loaded = own(self)->rank[0]->loaded;
  return OK;
}

static status check_library(backend *self) {
  EACH_RANK(self, b) TRY(b->calls->check_library(b));
  return OK;
}

static weights_target weights(backend *self) {
  weights_target all = {0};
  EACH_RANK(self, b) {
    const weights_target one = b->calls->weights(b);
    if (all.ranks == 0) all = one;
    all.address[r_] = one.address[0];
    all.room.device[r_] = one.room.device[0];
    all.ranks = r_ + 1;
  }
  return all;
}

static bool can_run_probe(const backend *self, uint32_t variant, uint32_t probe) {
  const backend *b = own_const(self)->rank[0];
  return b->calls->can_run_probe(b, variant, probe);
}

static const uint8_t *run_probe(backend *self, uint32_t variant, uint32_t probe, uint8_t *image, self_check_launch *launch) {
  backend *b = choose(self, 0);
  return b->calls->run_probe(b, variant, probe, image, launch);
}

static void name_variant(const backend *self, uint32_t variant, char *text, size_t text_bytes) {
  const backend *b = own_const(self)->rank[0];
  b->calls->name_variant(b, variant, text, text_bytes);
}

static void name(const backend *self, char *text, size_t text_bytes) {
  const backend *b = own_const(self)->rank[0];
  b->calls->name(b, text, text_bytes);
}

/* === Graphs ================================================================================================================= */

static status capture_begin(backend *self) {
  EACH_RANK(self, b) TRY(b->calls->capture_begin(b));
  return OK;
}

static status capture_end(backend *self, backend_graph **graph) {
  ASSERT(own(self)->graph_count < GRAPHS_MAX);
  backend_graph *made = &own(self)->graphs[own(self)->graph_count];
  EACH_RANK(self, b) TRY(b->calls->capture_end(b, &made->of[r_]));
  own(self)->graph_count++;
  *graph = made;
  return OK;
}

static void drop_graph(backend *self, backend_graph *graph) {
  EACH_RANK(self, b) b->calls->drop_graph(b, graph->of[r_]);
  own(self)->graph_count--;
}

static void end_start(backend *self) {
  EACH_RANK(self, b) b->calls->end_start(b);
}

static void replay(backend *self, backend_graph *graph, const char *what) {
  EACH_RANK(self, b) b->calls->replay(b, graph->of[r_], what);
}

/* === Ops and copies ========================================================================================================= */

static void run_exchange(backend *self, const backend_launch *l) {
  gather_rank ranks[RANKS_MAX];
  EACH_RANK(self, b) ranks[r_] = (gather_rank){.stream = b->calls->lane(b, l), .args = b->ops[l->op].args[l->side]};
  gather_run(own(self)->gather, self->ops[l->op].name, ranks, l->rows, l->side);
}

static void launch(backend *self, const backend_launch *l) {
  if (own(self)->gather->is_transport && own(self)->gather->nccl && self->ops[l->op].plan->kernel == KERNEL_exchange) {
    run_exchange(self, l);
    return;
  }
  EACH_RANK(self, b) b->calls->launch(b, l);
}

static void gather_bytes(backend *self, uint64_t from, uint64_t to, uint64_t bytes) {
  const backend_launch alone = {.branch = BRANCH_MAIN};
  gather_block blocks[RANKS_MAX];
  EACH_RANK(self, b)
    blocks[r_] = (gather_block){.stream = b->calls->lane(b, &alone), .from = there(self, b, from), .to = there(self, b, to)};
  gather_run_blocks(own(self)->gather, blocks, bytes);
}

static void upload(backend *self, enum backend_queue queue, uint64_t target, const void *source, uint64_t bytes) {
  EACH_RANK(self, b) b->calls->upload(b, queue, there(self, b, target), source, bytes);
}

static void download(backend *self, enum backend_queue queue, void *target, uint64_t source, uint64_t bytes) {
  backend *b = choose(self, 0);
  b->calls->download(b, queue, target, source, bytes);
}

static void fill(backend *self, uint64_t target, uint32_t word, uint64_t bytes) {
  EACH_RANK(self, b) b->calls->fill(b, there(self, b, target), word, bytes);
}

static void record(backend *self, enum backend_queue queue, uint32_t side) {
  EACH_RANK(self, b) b->calls->record(b, queue, side);
}

static void wait(backend *self, uint32_t side) {
  EACH_RANK(self, b) b->calls->wait(b, side);
}

static void sync(backend *self, const char *what) {
  EACH_RANK(self, b) b->calls->sync(b, what);
}

static void read_rows(backend *self, uint64_t base, const uint64_t *offsets, uint32_t rows, uint64_t row_bytes, void *to) {
  backend *b = choose(self, 0);
  b->calls->read(b, base, offsets, rows, row_bytes, to);
}

static void write(backend *self, uint64_t target, const void *from, uint64_t bytes) {
  EACH_RANK(self, b) b->calls->write(b, there(self, b, target), from, bytes);
}

static void repeat(backend *self, uint64_t target, uint64_t bytes, const void *pattern, uint64_t pattern_bytes) {
  EACH_RANK(self, b) b->calls->repeat(b, there(self, b, target), bytes, pattern, pattern_bytes);
}

/* === Times ================================================================================================================== */

static status make_marks(backend *self, uint32_t marks, uint32_t *first) {
  backend *b = choose(self, 0);
  return b->calls->make_marks(b, marks, first);
}

static void mark(backend *self, uint32_t number) {
  backend *b = choose(self, 0);
  b->calls->mark(b, number);
}

static double elapsed_us(backend *self, uint32_t first, uint32_t last) {
  backend *b = choose(self, 0);
  return b->calls->elapsed_us(b, first, last);
}

/* === Opening and closing ==================================================================================================== */

static bool uses_library(const backend *self, uint32_t op, uint32_t rows) {
  const backend *b = own_const(self)->rank[0];
  return b->calls->uses_library(b, op, rows);
}

static void count(const backend *self, exec_counts *counts) {
  const backend *b = own_const(self)->rank[0];
  b->calls->count(b, counts);
}

static void close(backend *self) {
  EACH_RANK(self, b) b->calls->close(b);
}

static const backend_calls CALLS = {
  .select = select_first, .start_kernels = start_kernels, .check_library = check_library, .weights = weights,
  .can_run_probe = can_run_probe, .run_probe = run_probe, .name_variant = name_variant, .name = name,
  .capture_begin = capture_begin, .capture_end = capture_end, .drop_graph = drop_graph, .end_start = end_start,
  .launch = launch, .gather = gather_bytes, .replay = replay, .upload = upload, .download = download, .fill = fill,
  .record = record, .wait = wait, .sync = sync,
  .read = read_rows, .write = write, .repeat = repeat,
  .make_marks = make_marks, .mark = mark, .elapsed_us = elapsed_us,
  .uses_library = uses_library, .count = count, .close = close,
};

status backend_ranks_open(backend *const *ranks, uint32_t rank_count, const gather *through, arena *host, backend **out) {
  ASSERT(rank_count >= 1 && rank_count <= RANKS_MAX);
  void *memory;
  TRY(arena_take(host, sizeof(backend_ranks), &memory));
  backend_ranks *self = memory;
  self->common = *ranks[0];
  self->common.calls = &CALLS;
  self->count = rank_count;
  self->gather = through;
  for (uint32_t i = 0; i < rank_count; i++) self->rank[i] = ranks[i];
  *out = &self->common;
  return OK;
}
