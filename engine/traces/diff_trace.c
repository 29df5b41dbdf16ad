/* diff_trace.c - see diff_trace.h. The first reading computes a digest of each request's rows. The second goes to the first request whose
 * digests differ and compares its rows. The third goes to the first row that differs and compares the numbers, if the files have them. */
#include "traces/diff_trace.h"
#include <stdlib.h>
#include <string.h>

#define PROGRESS_RECORDS 4096u

typedef struct side {
  const char *path;
  trace_reader *reader;
  uint32_t *order;     /* [points_compared]: points of this file that have a counterpart, in the order of the first file */
  uint64_t *gathered;  /* [points_compared] digests of a row in that order                                               */
  uint32_t request;    /* requests begun                                                                                 */
  uint8_t question[16]; /* request digest of the last one                                                                */
} side;

typedef struct teller {
  diff_trace_progress *tell;
  void *context;
} teller;

static status reopen(side *s) {
  trace_reader_close(s->reader);
  s->reader = NULL;
  s->request = 0;
  return trace_reader_open(&s->reader, s->path);
}

static const uint64_t *gather(const side *s, const uint64_t *digests, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) s->gathered[i] = digests[s->order[i]];
  return s->gathered;
}

/* === Points ================================================================================================================= */

static int compare_points(const void *x, const void *y) {
  const verbatim_point *a = *(const verbatim_point *const *)x, *b = *(const verbatim_point *const *)y;
  int order = strcmp(a->name, b->name);
  if (order) return order;
  if (a->type != b->type) return a->type < b->type ? -1 : 1;
  return a->count < b->count ? -1 : a->count > b->count;
}

static bool is_same_table(const trace_head *a, const trace_head *b) {
  bool same = a->point_count == b->point_count;
  for (uint32_t i = 0; same && i < a->point_count; i++) {
    const verbatim_point *p = &a->points[i], *q = &b->points[i];
    same = compare_points(&p, &q) == 0;
  }
  return same;
}

/* The point of b that equals a's point in name, type and size; any of several equal ones. sorted: the points of b. */
static uint32_t find_point(const verbatim_point *point, const verbatim_point **sorted, const trace_head *b) {
  const verbatim_point **found = bsearch(&point, sorted, b->point_count, sizeof *sorted, compare_points);
  return found ? (uint32_t)(*found - b->points) : UINT32_MAX;
}

static status note_alone(diff_trace *self, int which, const char *name) {
  if (self->points_alone[which]++) return OK;
  if (!(self->alone_name[which] = malloc(strlen(name) + 1))) return FAIL(ERR_LIMIT, "diff: no memory");
  strcpy(self->alone_name[which], name);
  return OK;
}

/* Tables of one model are equal; for different models, the common points are matched. met: [points of b], initially zero. */
static status pair_points(diff_trace *self, side sides[2], const verbatim_point **sorted, bool *met) {
  const trace_head *a = trace_reader_head(sides[0].reader), *b = trace_reader_head(sides[1].reader);
  bool same = is_same_table(a, b);
  for (uint32_t i = 0; i < b->point_count; i++) sorted[i] = &b->points[i];
  qsort(sorted, b->point_count, sizeof *sorted, compare_points);
  for (uint32_t i = 0; i < a->point_count; i++) {
    uint32_t other = same ? i : find_point(&a->points[i], sorted, b);
    if (other == UINT32_MAX || met[other]) {
      TRY(note_alone(self, 0, a->points[i].name));
      continue;
    }
    met[other] = true;
    sides[0].order[self->points_compared] = i;
    sides[1].order[self->points_compared++] = other;
  }
  for (uint32_t i = 0; i < b->point_count; i++)
    if (!met[i]) TRY(note_alone(self, 1, b->points[i].name));
  return OK;
}

static status match_points(diff_trace *self, side sides[2]) {
  uint32_t least = min_u32(trace_reader_head(sides[0].reader)->point_count, trace_reader_head(sides[1].reader)->point_count);
  uint32_t count = trace_reader_head(sides[1].reader)->point_count;
  const verbatim_point **sorted = malloc(count * sizeof *sorted);
  bool *met = calloc(count, sizeof *met);
  bool good = sorted && met;
  for (int i = 0; i < 2; i++) {
    sides[i].order = malloc(least * sizeof *sides[i].order);
    sides[i].gathered = malloc(least * sizeof *sides[i].gathered);
    good = good && sides[i].order && sides[i].gathered;
  }
  status result = good ? pair_points(self, sides, sorted, met) : FAIL(ERR_LIMIT, "diff: no memory");
  free(sorted);
  free(met);
  return result;
}

static void compare_heads(diff_trace *self, side sides[2]) {
  for (int i = 0; i < 2; i++) {
    const trace_head *head = trace_reader_head(sides[i].reader);
    memcpy(self->numerics_id[i], head->numerics_id, 16);
    memcpy(self->config_digest[i], head->config_digest, 16);
    memcpy(self->weights_digest[i], head->weights_digest, 16);
  }
  self->same_numerics = memcmp(self->numerics_id[0], self->numerics_id[1], 16) == 0;
  self->same_config = memcmp(self->config_digest[0], self->config_digest[1], 16) == 0;
  self->same_weights = memcmp(self->weights_digest[0], self->weights_digest[1], 16) == 0;
}

/* === First reading ========================================================================================================== */

static void report(const side sides[2], int at, const teller *progress) {
  uint64_t done[2], total[2];
  if (!progress->tell) return;
  for (int i = 0; i < 2; i++) trace_reader_progress(sides[i].reader, &done[i], &total[i]);
  progress->tell(progress->context, at ? total[0] + done[1] : done[0], total[0] + total[1]);
}

static void end_request(diff_requests *requests, const digest_state *rows) {
  if (requests->count) requests->list[requests->count - 1].contents = digest_end(rows);
}

static status digest_requests(diff_trace *self, side sides[2], int at, const teller *progress) {
  diff_requests *requests = &self->requests[at];
  side *s = &sides[at];
  digest_state rows;
  trace_record record = {0};
  digest_start(&rows);
  for (uint32_t i = 0; record.kind != TRACE_END; i++) {
    TRY(trace_reader_next(s->reader, &record));
    if (i % PROGRESS_RECORDS == 0) report(sides, at, progress);
    if (record.kind == TRACE_ROW) {
      digest_add(&rows, &record.position, sizeof record.position);
      digest_add(&rows, &record.token, sizeof record.token);
      digest_add(&rows, gather(s, record.digests, self->points_compared), self->points_compared * sizeof *record.digests);
      self->rows += at == 0;
    }
    if (record.kind != TRACE_REQUEST) continue;
    end_request(requests, &rows);
    digest_start(&rows);
    TRY(diff_requests_add(requests, record.id, (digest){{0}}));
  }
  end_request(requests, &rows);
  report(sides, at, progress);
  return OK;
}

/* === Second reading ========================================================================================================= */

/* Reads up to the beginning of a request. */
static status seek(side *s, uint32_t request) {
  trace_record record = {0};
  TRY(reopen(s));
  while (s->request <= request) {
    TRY(trace_reader_next(s->reader, &record));
    if (record.kind == TRACE_END) return FAIL(ERR_MISMATCH, "trace %s: it was changed while it was read", s->path);
    if (record.kind == TRACE_REQUEST) s->request++, memcpy(s->question, record.request_digest, 16);
  }
  return OK;
}

/* The request's next row; kind 0 after the last. */
static status next_row(side *s, trace_record *row) {
  do TRY(trace_reader_next(s->reader, row));
  while (row->kind == TRACE_VALUES);
  if (row->kind != TRACE_ROW) *row = (trace_record){.position = UINT32_MAX};
  return OK;
}

/* The difference of two rows, either of which may be missing; false: none. */
static bool compare_rows(const diff_trace *self, const side sides[2], const trace_record row[2], diff_trace_first *first) {
  first->position = min_u32(row[0].position, row[1].position);
  for (int i = 0; i < 2; i++) {
    first->has_row[i] = row[i].kind == TRACE_ROW && row[i].position == first->position;
    first->token[i] = row[i].token;
  }
  first->kind = DIFF_TRACE_ENDS;
  if (!first->has_row[0] || !first->has_row[1]) return true;
  first->kind = DIFF_TRACE_TOKEN;
  if (row[0].token != row[1].token) return true;
  first->kind = DIFF_TRACE_POINT;
  for (uint32_t i = 0; i < self->points_compared; i++) {
    first->points_same = i;
    for (int k = 0; k < 2; k++) first->digest[k] = row[k].digests[sides[k].order[i]];
    if (first->digest[0] != first->digest[1]) return true;
  }
  return false;
}

static status find_row(const diff_trace *self, side sides[2], diff_trace_first *first) {
  TRY(seek(&sides[0], first->request));
  TRY(seek(&sides[1], self->requests[0].list[first->request].match));
  first->same_question = memcmp(sides[0].question, sides[1].question, 16) == 0;
  for (;; first->rows_same++) {
    trace_record row[2];
    for (int i = 0; i < 2; i++) TRY(next_row(&sides[i], &row[i]));
    if (row[0].kind != TRACE_ROW && row[1].kind != TRACE_ROW)
      return FAIL(ERR_MISMATCH, "trace %s or %s: it was changed while it was read", sides[0].path, sides[1].path);
    if (compare_rows(self, sides, row, first)) return OK;
  }
}

/* === Third reading ========================================================================================================== */

/* The numbers of a request's row, in the caller's memory; null: the file does not have them. */
static status find_values(side *s, uint32_t request, uint32_t position, uint32_t point, void **out) {
  trace_record record = {0};
  TRY(seek(s, request));
  do {
    TRY(trace_reader_next(s->reader, &record));
    if (record.kind != TRACE_VALUES || record.position != position || record.point != point) continue;
    if (!(*out = malloc(record.value_bytes))) return FAIL(ERR_LIMIT, "diff: no memory");
    memcpy(*out, record.values, record.value_bytes);
    return OK;
  } while (record.kind == TRACE_VALUES || (record.kind == TRACE_ROW && record.position < position));
  return OK;
}

static status keep_point(const verbatim_point *point, verbatim_point *out) {
  char *name = malloc(strlen(point->name) + 1);
  if (!name) return FAIL(ERR_LIMIT, "diff: no memory");
  strcpy(name, point->name);
  *out = *point;
  out->name = name;
  return OK;
}

static status compare_values(diff_trace *self, side sides[2]) {
  diff_trace_first *first = &self->first;
  uint32_t request[2] = {first->request, self->requests[0].list[first->request].match};
  void *row[2] = {NULL, NULL};
  status result = keep_point(&trace_reader_head(sides[0].reader)->points[sides[0].order[first->points_same]], &first->point);
  for (int i = 0; i < 2 && result == OK; i++) {
    result = find_values(&sides[i], request[i], first->position, sides[i].order[first->points_same], &row[i]);
    first->has_values[i] = row[i] != NULL;
  }
  if (row[0] && row[1]) first->values = diff_values_of(first->point.type, first->point.count, row[0], row[1]);
  free(row[0]);
  free(row[1]);
  return result;
}

/* === Both =================================================================================================================== */

static status compare(diff_trace *self, side sides[2], const teller *progress) {
  diff_trace_first first = {.request = DIFF_REQUESTS_NONE};
  for (int i = 0; i < 2; i++) TRY(reopen(&sides[i]));
  compare_heads(self, sides);
  TRY(match_points(self, sides));
  for (int i = 0; i < 2; i++) TRY(digest_requests(self, sides, i, progress));
  TRY(diff_requests_match(&self->requests[0], &self->requests[1]));
  self->differs = !self->same_numerics || !self->same_config || !self->same_weights || self->points_alone[0] || self->points_alone[1];
  for (int i = 0; i < 2; i++) self->differs |= diff_requests_differ(&self->requests[i]) || diff_requests_alone(&self->requests[i]);
  first.request = diff_requests_first(&self->requests[0]);
  if (first.request == DIFF_REQUESTS_NONE) return OK;
  TRY(find_row(self, sides, &first));
  self->first = first;
  return first.kind == DIFF_TRACE_POINT ? compare_values(self, sides) : OK;
}

status diff_trace_compare(diff_trace *self, const char *path_a, const char *path_b, diff_trace_progress *progress, void *context) {
  side sides[2] = {{.path = path_a}, {.path = path_b}};
  const teller words = {progress, context};
  *self = (diff_trace){0};
  status result = compare(self, sides, &words);
  for (int i = 0; i < 2; i++) {
    trace_reader_close(sides[i].reader);
    free(sides[i].order);
    free(sides[i].gathered);
  }
  return result;
}

void diff_trace_close(diff_trace *self) {
  for (int i = 0; i < 2; i++) {
    diff_requests_close(&self->requests[i]);
    free(self->alone_name[i]);
  }
  free((void *)(uintptr_t)self->first.point.name);
  *self = (diff_trace){0};
}
