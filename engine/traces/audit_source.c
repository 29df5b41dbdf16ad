/* audit_source.c - see audit_source.h. Reads the trace from front to back, and holds the record that begins the next request until it is
 * asked for. */
#include "traces/audit_source.h"
#include "ops/kernels.h"
#include <stdlib.h>
#include <string.h>

struct audit_source {
  const char *path;
  const audit_want *want;
  trace_reader *reader;
  const trace_head *head;
  audit_totals totals;
  arena memory;           /* of the current request */
  audit_request request;
  audit_row *rows;
  uint32_t room;          /* of rows                         */
  bool is_wanted;         /* the current request             */
  char *next_id;          /* id of the next request, or null */
  bool is_end;            /* of the trace                    */
  const uint8_t **values; /* [points] of the next row        */
};

/* === Opening ================================================================================================================ */

static status start(audit_source *self) {
  TRY(trace_reader_open(&self->reader, self->path));
  self->head = trace_reader_head(self->reader);
  size_t count = self->head->point_count + 1u;
  self->values = calloc(count, sizeof *self->values);
  return self->values ? OK : FAIL(ERR_LIMIT, "audit: no memory");
}

status audit_source_open(audit_source **out, const char *path, const audit_want *want) {
  audit_source *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "audit: no memory");
  self->path = path;
  self->want = want;
  status result = start(self);
  if (result != OK) audit_source_close(self);
  else *out = self;
  return result;
}

void audit_source_close(audit_source *self) {
  if (!self) return;
  trace_reader_close(self->reader);
  arena_close(&self->memory);
  free(self->values);
  free(self->rows);
  free(self->next_id);
  free(self);
}

const trace_head *audit_source_head(const audit_source *self) { return self->head; }
audit_totals audit_source_total(const audit_source *self) { return self->totals; }

/* === Records ================================================================================================================ */

static status take(audit_source *self, uint64_t bytes, void *piece) {
  if (self->memory.taken_bytes + bytes > AUDIT_SOURCE_BYTES_MAX)
    return FAIL(ERR_LIMIT, "request %s: its recorded values take more than %llu GiB; hint: choose fewer with --layer, --position or --op",
                self->request.id, (unsigned long long)(AUDIT_SOURCE_BYTES_MAX >> 30));
  return arena_take(&self->memory, bytes, piece);
}

static bool is_kept(const audit_source *self, uint32_t point, uint32_t position) {
  uint8_t wanted = self->is_wanted && self->want->point ? self->want->point[point] : 0;
  if (position > self->want->position_max) return false;
  return wanted & AUDIT_WANTED_EARLIER || (wanted & AUDIT_WANTED_ROWS && position >= self->want->position_min);
}

/* The sort of pairs indexes by the router's choices, so a choice that is not an expert is refused. */
static status check_choices(const audit_source *self, const trace_record *r, const verbatim_point *point) {
  const uint32_t *choice = r->values;
  for (uint32_t i = 0; point->kernel == KERNEL_router && point->type == VERBATIM_POINT_U32 && i < point->count; i++)
    if (choice[i] >= self->want->experts)
      return FAIL(ERR_FORMAT, "%s: request %s, position %u, %s: expected numbers below %u, found %u", self->path, self->request.id,
                  r->position, point->name, self->want->experts, choice[i]);
  return OK;
}

static status add_values(audit_source *self, const trace_record *r) {
  static const uint8_t there = 0;
  TRY(check_choices(self, r, &self->head->points[r->point]));
  self->totals.values++;
  if (!is_kept(self, r->point, r->position)) return OK;
  self->values[r->point] = &there;
  if (self->want->presence) return OK;
  uint8_t *copy;
  TRY(take(self, r->value_bytes, &copy));
  memcpy(copy, r->values, r->value_bytes);
  self->values[r->point] = copy;
  return OK;
}

static status keep_row(audit_source *self, const trace_record *r) {
  uint32_t count = self->head->point_count;
  if (self->request.count == self->room) {
    uint32_t room = self->room ? 2 * self->room : 256;
    audit_row *more = realloc(self->rows, room * sizeof *more);
    if (!more) return FAIL(ERR_LIMIT, "audit: no memory for %u rows", room);
    self->rows = more;
    self->room = room;
  }
  uint64_t *digests;
  const uint8_t **values;
  TRY(take(self, count * sizeof *digests, &digests));
  TRY(take(self, count * sizeof *values, &values));
  memcpy(digests, r->digests, count * sizeof *digests);
  memcpy(values, self->values, count * sizeof *values);
  self->rows[self->request.count++] = (audit_row){.position = r->position, .token = r->token, .digests = digests, .values = values};
  self->request.rows = self->rows;
  return OK;
}

static status add_row(audit_source *self, const trace_record *r) {
  if ((uint32_t)r->token >= self->want->vocab)
    return FAIL(ERR_FORMAT, "%s: request %s, position %u: expected a token below %u, found %d", self->path, self->request.id, r->position,
                self->want->vocab, r->token);
  if (r->position >= self->want->length)
    return FAIL(ERR_LIMIT, "%s: request %s: expected positions below %u as the plan allows, found %u; hint: plan with a larger "
                           "max-model-len",
                self->path, self->request.id, self->want->length, r->position);
  self->totals.tokens++;
  for (uint32_t i = 0; i < self->head->point_count; i++) self->totals.rows += r->digests[i] != 0;
  if (self->is_wanted && r->position <= self->want->position_max) TRY(keep_row(self, r));
  memset(self->values, 0, self->head->point_count * sizeof *self->values);
  return OK;
}

/* === Requests =============================================================================================================== */

static status keep_id(audit_source *self, const char *id) {
  free(self->next_id);
  self->next_id = malloc(strlen(id) + 1);
  if (!self->next_id) return FAIL(ERR_LIMIT, "audit: no memory");
  memcpy(self->next_id, id, strlen(id) + 1);
  return OK;
}

/* Begins the request whose first record has been read. */
static status begin(audit_source *self) {
  char *id;
  arena_close(&self->memory);
  TRY(arena_take(&self->memory, strlen(self->next_id) + 1, &id));
  memcpy(id, self->next_id, strlen(self->next_id) + 1);
  self->request = (audit_request){.id = id, .index = (uint32_t)self->totals.requests++};
  self->is_wanted = !self->want->id || strcmp(self->want->id, id) == 0;
  free(self->next_id);
  self->next_id = NULL;
  return OK;
}

/* Reads records up to the first of the next request, or to the end. */
static status read_request(audit_source *self) {
  trace_record r;
  for (;;) {
    TRY(trace_reader_next(self->reader, &r));
    switch (r.kind) {
      case TRACE_REQUEST: return keep_id(self, r.id);
      case TRACE_VALUES: TRY(add_values(self, &r)); break;
      case TRACE_ROW: TRY(add_row(self, &r)); break;
      case TRACE_END: self->is_end = true; return OK;
    }
  }
}

status audit_source_next(audit_source *self, const audit_request **out) {
  *out = NULL;
  if (self->totals.requests == 0 && !self->is_end) TRY(read_request(self));
  while (self->next_id) {
    TRY(begin(self));
    TRY(read_request(self));
    if (!self->is_wanted) continue;
    *out = &self->request;
    return OK;
  }
  return OK;
}
