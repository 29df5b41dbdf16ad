/* text/nfc.c - see text/nfc.h. A text is processed as it comes: a starter, the marks after it, then the next starter, which decides. */
#include "text/nfc.h"
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"
#include "text/nfc_table.h"

/* Hangul syllables are composed by rule: UAX 15, "Hangul". */
#define L_BASE 0x1100u
#define V_BASE 0x1161u
#define T_BASE 0x11A7u
#define S_BASE 0xAC00u
#define L_COUNT 19u
#define V_COUNT 21u
#define T_COUNT 28u
#define S_COUNT (L_COUNT * V_COUNT * T_COUNT)
#define NONE UINT32_MAX
#define FEW_MARKS 16u /* sorted by insertion; more of them by counting, so that a long run of marks costs no more than its length */

struct nfc {
  size_t bytes_max;
  uint8_t *out;            /* [bytes_max] */
  uint32_t *marks, *spare; /* [bytes_max] each: code point | combining class << 24 */
};

typedef struct state {
  nfc *self;
  size_t out_bytes, mark_count;
  uint32_t starter; /* NONE: none yet */
} state;

status nfc_open(nfc **out, size_t bytes_max) {
  nfc *self = calloc(1, sizeof *self);
  if (self == NULL) return FAIL(ERR_LIMIT, "normalizer: out of memory");
  self->bytes_max = bytes_max;
  self->out = malloc(bytes_max);
  self->marks = malloc((bytes_max + 4) * sizeof *self->marks);
  self->spare = malloc((bytes_max + 4) * sizeof *self->spare);
  if (self->out == NULL || self->marks == NULL || self->spare == NULL) {
    nfc_close(self);
    return FAIL(ERR_LIMIT, "normalizer: out of memory for texts of %zu bytes", bytes_max);
  }
  *out = self;
  return OK;
}

void nfc_close(nfc *self) {
  if (self == NULL) return;
  free(self->out);
  free(self->marks);
  free(self->spare);
  free(self);
}

/* === Tables ================================================================================================== */

/* Code points that nothing composes with and that have neither a decomposition nor a class: those before the combining marks, and the
 * ideographs. */
static bool is_inert(uint32_t code) { return code < 0xC0 || (code >= 0x3105 && code < 0xA66F); }

static const nfc_table_row *find(const nfc_table_row *rows, uint32_t count, uint32_t a, uint32_t b, bool is_pair) {
  uint32_t low = 0, high = count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    const nfc_table_row *row = &rows[middle];
    if (row->a == a && (!is_pair || row->b == b)) return row;
    if (row->a < a || (row->a == a && row->b < b)) low = middle + 1;
    else high = middle;
  }
  return NULL;
}

static uint32_t class_of(uint32_t code) {
  uint32_t low = 0, high = nfc_table_classes_count;
  if (code < 0x300 || is_inert(code)) return 0;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    const nfc_table_row *row = &nfc_table_classes[middle];
    if (code < row->a) high = middle;
    else if (code > row->b) low = middle + 1;
    else return row->c;
  }
  return 0;
}

static uint32_t compose(uint32_t first, uint32_t second) {
  if (first - L_BASE < L_COUNT && second - V_BASE < V_COUNT) return S_BASE + ((first - L_BASE) * V_COUNT + second - V_BASE) * T_COUNT;
  bool is_open = first - S_BASE < S_COUNT && (first - S_BASE) % T_COUNT == 0;
  if (is_open && second > T_BASE && second - T_BASE < T_COUNT) return first + second - T_BASE;
  const nfc_table_row *row = find(nfc_table_compositions, nfc_table_compositions_count, first, second, true);
  return row == NULL ? NONE : row->c;
}

/* === Order and composition =================================================================================== */

static status put(state *s, uint32_t code) {
  size_t count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  uint8_t *to = s->self->out + s->out_bytes;
  if (count > s->self->bytes_max - s->out_bytes)
    return FAIL(ERR_LIMIT, "text: expected at most %zu bytes in normal form C, found more", s->self->bytes_max);
  for (size_t i = count; i-- > 1; code >>= 6) to[i] = (uint8_t)(0x80 | (code & 0x3F));
  to[0] = (uint8_t)(count == 1 ? code : count == 2 ? 0xC0 | code : count == 3 ? 0xE0 | code : 0xF0 | code);
  s->out_bytes += count;
  return OK;
}

/* Sorts the marks by class; those of one class keep their order. */
static void order_marks(state *s) {
  uint32_t *marks = s->self->marks, starts[257] = {0};
  for (size_t i = 1; i < s->mark_count && s->mark_count <= FEW_MARKS; i++)
    for (size_t k = i; k > 0 && marks[k - 1] >> 24 > marks[k] >> 24; k--) {
      uint32_t swapped = marks[k];
      marks[k] = marks[k - 1];
      marks[k - 1] = swapped;
    }
  if (s->mark_count <= FEW_MARKS) return;
  for (size_t i = 0; i < s->mark_count; i++) starts[(marks[i] >> 24) + 1]++;
  for (size_t c = 1; c < 257; c++) starts[c] += starts[c - 1];
  for (size_t i = 0; i < s->mark_count; i++) s->self->spare[starts[marks[i] >> 24]++] = marks[i];
  memcpy(marks, s->self->spare, s->mark_count * sizeof *marks);
}

/* Composes the starter with the marks that nothing of their class separates from it; the others stay. */
static void compose_marks(state *s) {
  uint32_t *marks = s->self->marks;
  size_t kept = 0;
  order_marks(s);
  for (size_t i = 0; i < s->mark_count; i++) {
    bool is_blocked = s->starter == NONE || (kept > 0 && marks[kept - 1] >> 24 == marks[i] >> 24);
    uint32_t composed = is_blocked ? NONE : compose(s->starter, marks[i] & 0xFFFFFF);
    if (composed == NONE) marks[kept++] = marks[i];
    else s->starter = composed;
  }
  s->mark_count = kept;
}

static status flush(state *s) {
  if (s->starter != NONE) TRY(put(s, s->starter));
  for (size_t i = 0; i < s->mark_count; i++) TRY(put(s, s->self->marks[i] & 0xFFFFFF));
  s->mark_count = 0;
  return OK;
}

/* Takes the next code point, which has no decomposition. */
static status push(state *s, uint32_t code) {
  uint32_t class = class_of(code);
  if (class != 0) {
    s->self->marks[s->mark_count++] = code | class << 24;
    return OK;
  }
  compose_marks(s);
  uint32_t composed = s->starter == NONE || s->mark_count > 0 || is_inert(code) ? NONE : compose(s->starter, code);
  if (composed != NONE) {
    s->starter = composed;
    return OK;
  }
  TRY(flush(s));
  s->starter = code;
  return OK;
}

/* Depth of recursion: a decomposition's first part has at most three more. */
static status decompose(state *s, uint32_t code) {
  const uint32_t syllable = code - S_BASE;
  if (is_inert(code)) return push(s, code);
  if (syllable < S_COUNT) {
    TRY(push(s, L_BASE + syllable / (V_COUNT * T_COUNT)));
    TRY(push(s, V_BASE + syllable % (V_COUNT * T_COUNT) / T_COUNT));
    return syllable % T_COUNT ? push(s, T_BASE + syllable % T_COUNT) : OK;
  }
  const nfc_table_row *row = find(nfc_table_decompositions, nfc_table_decompositions_count, code, 0, false);
  if (row == NULL) return push(s, code);
  TRY(decompose(s, row->b));
  return row->c ? decompose(s, row->c) : OK;
}

status nfc_run(nfc *self, const uint8_t *text, size_t bytes, const uint8_t **normal, size_t *normal_bytes) {
  state s = {.self = self, .starter = NONE};
  size_t at = 0;
  ASSERT(bytes <= self->bytes_max);
  while (at < bytes && text[at] < 0xCC) at++; /* no code point below U+0300 changes, or composes with another */
  *normal = text;
  *normal_bytes = bytes;
  if (at == bytes) return OK;
  for (at = 0; at < bytes;) {
    int length = utf8_scan(text + at, bytes - at);
    TRY(decompose(&s, utf8_code_point(text + at, length)));
    at += (size_t)length;
  }
  compose_marks(&s);
  TRY(flush(&s));
  *normal = self->out;
  *normal_bytes = s.out_bytes;
  return OK;
}
