/* watch.c - see watch.h. After each op: chooses the rows that are asked for, reads them, and makes what is asked of them.
 *
 * Allocates at open only. Must not know schedules or slots beyond what a watch_row says. */
#include "exec/watch.h"
#include <string.h>
#include "ops/kernels.h"

/* Rows that are read at a time, enough to make waiting for the device cheap. */
#define ROWS_AT_ONCE 256u
#define SLICE_BYTES (4ull << 20) /* or one row, if that is longer */

typedef struct chosen { /* a token row that is asked for at the current point */
  uint32_t row;         /* of the step */
  bool digest, values;
} chosen;

struct watch {
  const plan *plan;
  exec *machine;
  points points;
  uint64_t *digests;     /* [max_batch_tokens][points], null without trace */
  uint8_t *slice;        /* [ranks][slice_bytes] rows as they are in memory */
  uint64_t slice_bytes;
  uint8_t *packed;       /* one row without gaps */
  uint64_t *offsets;     /* [ROWS_AT_ONCE][TOP_K_EXPERTS_MAX] */
  uint32_t *pair_row;    /* [max_batch_tokens][top_k] */
  chosen chosen[ROWS_AT_ONCE];
  /* The current step. */
  uint32_t side;
  const watch_row *rows;
  uint32_t row_count;
  watch_fault *fault;
};

status watch_open(watch **out, const plan *p, exec *machine, bool trace, arena *host) {
  void *memory, *slice, *packed, *offsets, *pair_row, *digests = NULL;
  uint64_t rows = p->header->limits.max_batch_tokens, pairs = 0;
  TRY(arena_take(host, sizeof(watch), &memory));
  watch *self = memory;
  *self = (watch){.plan = p, .machine = machine, .slice_bytes = SLICE_BYTES};
  TRY(points_open(&self->points, p, host));
  for (uint32_t i = 0; i < self->points.count; i++) {
    const point_place *place = &self->points.places[i];
    if (points_span(place) * place->pairs > self->slice_bytes) self->slice_bytes = points_span(place) * place->pairs;
    if (place->rows == POINT_PAIRS) pairs = rows * place->pairs;
  }
  self->slice_bytes = align_up(self->slice_bytes, 16);
  TRY(arena_map(host, self->slice_bytes * p->header->limits.ranks, &slice));
  TRY(arena_take(host, self->points.row_bytes_max, &packed));
  TRY(arena_take(host, sizeof(uint64_t) * ROWS_AT_ONCE * TOP_K_EXPERTS_MAX, &offsets));
  TRY(arena_take(host, sizeof(uint32_t) * pairs, &pair_row));
  if (trace) TRY(arena_map(host, sizeof(uint64_t) * (rows * self->points.count + 1), &digests));
  self->slice = slice, self->packed = packed, self->offsets = offsets, self->pair_row = pair_row, self->digests = digests;
  *out = self;
  return OK;
}

const points *watch_points(const watch *self) { return &self->points; }

/* === One row ================================================================================================================ */

static bool is_finite(const verbatim_point *point, const void *row) {
  uint32_t found = 0;
  if (point->type == VERBATIM_POINT_BF16) {
    const uint16_t *word = row;
    for (uint32_t i = 0; i < point->count; i++) found |= (word[i] & 0x7f80u) == 0x7f80u;
  } else {
    const uint32_t *word = row;
    for (uint32_t i = 0; i < point->count; i++) found |= (word[i] & 0x7f800000u) == 0x7f800000u;
  }
  return !found;
}

/* Packs the first `bytes` of a row, without the gaps between its segments. */
static uint8_t *pack_part(uint8_t *to, const point_place *place, const uint8_t *row, uint64_t bytes) {
  for (uint32_t i = 0; bytes > 0; i++) {
    const uint64_t part = bytes < place->segment_bytes ? bytes : place->segment_bytes;
    memcpy(to, row + i * place->segment_stride, part);
    to += part;
    bytes -= part;
  }
  return to;
}

/* The whole row: what each rank has of its own, and then what all have. A row in one piece is taken where it is. */
static const void *pack(const watch *self, const point_place *place, const uint8_t *row) {
  const uint64_t local_bytes = place->segments * place->segment_bytes;
  uint8_t *to = self->packed;
  if (place->segments == 1 && place->ranks == 1) return row;
  for (uint32_t pair = 0; pair < place->pairs; pair++, row += points_span(place)) {
    if (place->ranks == 1) {
      to = pack_part(to, place, row, local_bytes);
      continue;
    }
    for (uint32_t rank = 0; rank < place->ranks; rank++)
      to = pack_part(to, place, row + rank * self->slice_bytes, place->own_bytes);
    memcpy(to, row + place->own_bytes, local_bytes - place->own_bytes);
    to += local_bytes - place->own_bytes;
  }
  return self->packed;
}

/* NaN and Inf at this point are a fault: it has no ids, and no logits that forbid tokens. */
static bool must_be_finite(const verbatim_point *point) {
  return point->type != VERBATIM_POINT_U32 && point->kernel != KERNEL_adjust;
}

static void note_fault(const watch *self, uint32_t number, uint32_t position) {
  watch_fault *fault = self->fault;
  uint32_t op = self->points.first_op[number];
  if (op < fault->op || (op == fault->op && position < fault->position)) *fault = (watch_fault){.op = op, .position = position};
}

static void see_row(const watch *self, uint32_t number, const point_place *place, const chosen *c, const uint8_t *bytes) {
  const verbatim_point *point = &self->points.list[number];
  const watch_row *row = &self->rows[c->row];
  const void *numbers = pack(self, place, bytes);
  if (self->fault && must_be_finite(point) && !is_finite(point, numbers)) note_fault(self, number, row->position);
  if (c->digest) self->digests[(uint64_t)c->row * self->points.count + number] = points_row_digest(point, numbers);
  if (c->values) row->request->on_values(row->request, row->position, number, numbers, points_row_bytes(point));
}

/* === The rows of a point ==================================================================================================== */

static uint64_t row_number(const watch *self, const point_place *place, uint32_t row, uint32_t pair) {
  const watch_row *r = &self->rows[row];
  switch (place->rows) {
    case POINT_LOGITS: return r->logit;
    case POINT_PAIRS: return self->pair_row[(uint64_t)row * place->pairs + pair];
    case POINT_KV: {
      uint64_t page = block_table_row(exec_block_table(self->machine), r->slot)[r->position / PAGE_TOKENS];
      return page * PAGE_TOKENS + r->position % PAGE_TOKENS;
    }
    case POINT_TOKENS: break;
  }
  return row;
}

/* Rows that ranks own, from each of them. */
static void see_owned(watch *self, uint32_t number, const point_place *place, uint32_t count) {
  const uint64_t span = points_span(place);
  for (uint32_t rank = 0; rank < place->owners; rank++) {
    uint32_t runs = 0;
    for (uint32_t i = 0; i < count; i++)
      if (self->chosen[i].row % place->owners == rank)
        self->offsets[runs++] = points_row_offset(place, self->chosen[i].row / place->owners) + rank * place->owner_step;
    if (runs == 0) continue;
    exec_read_rows(self->machine, rank, place->region, self->offsets, runs, span, self->slice);
    for (uint32_t i = 0, seen = 0; i < count; i++)
      if (self->chosen[i].row % place->owners == rank) see_row(self, number, place, &self->chosen[i], self->slice + seen++ * span);
  }
}

static void see_chosen(watch *self, uint32_t number, const point_place *place, uint32_t count) {
  uint64_t span = points_span(place);
  uint32_t runs = 0;
  if (place->owners > 1) {
    see_owned(self, number, place, count);
    return;
  }
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t pair = 0; pair < place->pairs; pair++)
      self->offsets[runs++] = points_row_offset(place, row_number(self, place, self->chosen[i].row, pair));
  for (uint32_t rank = 0; rank < place->ranks; rank++)
    exec_read_rows(self->machine, rank, place->region, self->offsets, runs, span, self->slice + rank * self->slice_bytes);
  for (uint32_t i = 0; i < count; i++) see_row(self, number, place, &self->chosen[i], self->slice + i * place->pairs * span);
}

static bool is_adjusted(const watch *self, uint32_t logit) {
  sample_param param;
  uint64_t at = self->plan->header->io.sample + logit * sizeof param;
  exec_read(self->machine, exec_region(REGION_STEP, self->side), at, &param, sizeof param);
  return param.adjusted != 0;
}

/* Whether an op of this kind of rows makes this point of the row, and it is asked for. */
static bool choose(const watch *self, uint32_t number, uint32_t kind, uint32_t row, chosen *out) {
  const verbatim_point *point = &self->points.list[number];
  const watch_row *r = &self->rows[row];
  verbatim_request *request = r->request;
  if (point->of_logits && r->logit == UINT32_MAX) return false;
  if (kind == ROWS_BY_HEADS) kind = plan_heads_kind(&self->plan->header->limits);
  if ((kind == ROWS_MADE || kind == ROWS_PROMPT) && (kind == ROWS_PROMPT) != r->is_prompt) return false;
  if (request && point->kernel == KERNEL_adjust && !is_adjusted(self, r->logit)) return false;
  *out = (chosen){.row = row};
  if (request && self->digests) {
    out->digest = request->on_trace != NULL;
    out->values = request->on_values && request->wants_values && request->wants_values(request, r->position, number);
  }
  return out->digest || out->values || (self->fault && must_be_finite(point));
}

/* Sees the point in the rows from `first` to `end`. */
static void see_point(watch *self, uint32_t number, const point_place *place, uint32_t kind, uint32_t first, uint32_t end) {
  uint64_t most = self->slice_bytes / (points_span(place) * place->pairs);
  uint32_t count = 0;
  if (place->rows == POINT_PAIRS)
    exec_read(self->machine, REGION_WORK, place->pair_row, self->pair_row, sizeof(uint32_t) * self->row_count * place->pairs);
  for (uint32_t row = first; row < min_u32(end, self->row_count); row++) {
    if (!choose(self, number, kind, row, &self->chosen[count])) continue;
    if (++count < ROWS_AT_ONCE && count < most) continue;
    see_chosen(self, number, place, count);
    count = 0;
  }
  if (count) see_chosen(self, number, place, count);
}

static void see_op(void *context, uint32_t op) {
  watch *self = context;
  uint32_t first, end;
  points_rows_of_op(self->plan, op, &first, &end);
  for (uint32_t i = self->points.first_of_op[op]; i < self->points.first_of_op[op + 1]; i++)
    see_point(self, self->points.of_op[i], &self->points.place_of_op[i], self->plan->ops[op].rows_kind, first, end);
}

/* === The step =============================================================================================================== */

void watch_step(watch *self, uint32_t side, const watch_row *rows, uint32_t row_count, watch_fault *fault) {
  ASSERT(row_count >= 1 && row_count <= self->plan->header->limits.max_batch_tokens);
  self->side = side;
  self->rows = rows;
  self->row_count = row_count;
  self->fault = fault;
  if (self->digests) memset(self->digests, 0, sizeof(uint64_t) * row_count * self->points.count);
  exec_submit_watched(self->machine, side, see_op, self);
  for (uint32_t i = 0; i < row_count && self->digests; i++) {
    verbatim_request *request = rows[i].request;
    if (request && request->on_trace) request->on_trace(request, rows[i].position, self->digests + (uint64_t)i * self->points.count);
  }
}
