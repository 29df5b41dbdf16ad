/* read.c - see read.h.
 *
 * Files are read, not mapped. Measured on one core of an EPYC with files in memory: pread 12 GB/s, pread and XXH3 of pieces in the cache
 * 10 GB/s, a mapping with its page faults at most 5 GB/s. From a disk of 2 GB/s one thread gets 1 GB/s, two get all of it. Where SHA-256
 * is asked for it is taken of the same pieces, at 1.7 GB/s: it decides then, unless many threads read. */
#include "weights/read.h"
#include "weights/e4m3.h"
#include <stdlib.h>
#include <string.h>

#define READ_BYTES (256u << 10) /* size of a piece: with its copy it fits a core's L2 cache */
#define TRANSPOSE_TILE 32u

/* === Filling ================================================================================================================ */

/* Destination rows of one batch, and the bytes of each row. */
static uint64_t rows_of_batch(const plan_tensor *t) { return t->transform == TRANSFORM_COPY ? t->row_count : t->cols; }
static uint64_t bytes_of_row(const plan_tensor *t) {
  return (uint64_t)(t->transform == TRANSFORM_COPY ? t->cols : t->row_count) * plan_dtype_bytes(t->dtype);
}

/* dest[col][row] = source[row][col] for destination rows col0 .. col0 + count of one batch. */
static void transpose(const plan_tensor *t, const uint8_t *data, uint64_t col0, uint64_t count, uint8_t *dest) {
  uint64_t item = plan_dtype_bytes(t->dtype);
  for (uint64_t c = 0; c < count; c += TRANSPOSE_TILE)
    for (uint64_t r = 0; r < t->row_count; r += TRANSPOSE_TILE)
      for (uint64_t i = c; i < count && i < c + TRANSPOSE_TILE; i++)
        for (uint64_t j = r; j < t->row_count && j < r + TRANSPOSE_TILE; j++)
          memcpy(dest + (i * t->row_count + j) * item, data + (j * t->cols + col0 + i) * item, item);
}

/* Converts bf16 to fp32. */
static void widen(const uint8_t *data, uint64_t count, uint8_t *dest) {
  for (uint64_t i = 0; i < count; i++) {
    uint16_t half;
    memcpy(&half, data + 2 * i, sizeof half);
    uint32_t bits = (uint32_t)half << 16;
    memcpy(dest + 4 * i, &bits, sizeof bits);
  }
}

/* Converts fp32 to bf16 in place; every number must be one of bf16. */
static status narrow(const safetensor *tensor, uint8_t *data) {
  const uint64_t count = tensor->bytes / 4;
  for (uint64_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, data + 4 * i, sizeof bits);
    if (bits & 0xffff) {
      float value;
      memcpy(&value, &bits, sizeof value);
      return FAIL(ERR_UNSUPPORTED, "tensor %s: F32 is read only where every number is a bf16 number; element %llu is %.9g; hint: use a "
                  "bf16 copy of the checkpoint", tensor->name, (unsigned long long)i, (double)value);
    }
    const uint16_t half = (uint16_t)(bits >> 16);
    memcpy(data + 2 * i, &half, sizeof half);
  }
  return OK;
}

/* Writes `count` destination rows of a rank from row `first` on, counted through all batches. */
static void fill_rows(const plan_tensor *t, uint32_t rank, bool widens, const uint8_t *data, uint64_t first, uint64_t count,
                      uint8_t *dest) {
  uint64_t rows = rows_of_batch(t), source_row_bytes = (uint64_t)t->cols * (widens ? 2 : plan_dtype_bytes(t->dtype));
  while (count > 0) {
    uint64_t batch = first / rows, row = first % rows, part = rows - row < count ? rows - row : count;
    const uint8_t *batch_data = data + (t->row0 + (uint64_t)rank * t->rank_step + batch * t->row_step) * source_row_bytes;
    if (widens) widen(batch_data + row * source_row_bytes, part * t->cols, dest);
    else if (t->transform == TRANSFORM_COPY) memcpy(dest, batch_data + row * source_row_bytes, part * source_row_bytes);
    else transpose(t, batch_data, row, part, dest);
    dest += part * bytes_of_row(t);
    first += part;
    count -= part;
  }
}

typedef struct digests { /* running, of one source */
  digest_state plain;
  sha256_state strong; /* used with the reader's sha256 */
} digests;

static void start_digests(digests *state) {
  digest_start(&state->plain);
  sha256_start(&state->strong);
}

static void end_digests(const weights_reader *self, const digests *state, weights_source *s) {
  s->digest = digest_end(&state->plain);
  if (self->sha256) s->sha256 = sha256_end(&state->strong);
}

/* Reads the next bytes of a source and digests them while they are in the cache. */
static status read_digested(const weights_reader *self, const weights_source *s, uint64_t at, uint8_t *out, uint64_t bytes,
                            digests *state) {
  for (uint64_t done = 0; done < bytes; done += READ_BYTES) {
    size_t part = (size_t)(bytes - done < READ_BYTES ? bytes - done : READ_BYTES);
    TRY(safetensors_read(self->match->set, s->tensor, at + done, out + done, part));
    digest_add(&state->plain, out + done, part);
    if (self->sha256) sha256_add(&state->strong, out + done, part);
  }
  return OK;
}

/* A source that becomes one plan tensor unchanged needs no intermediate memory. */
static bool is_copied_whole(const weights_reader *self, const weights_source *s) {
  const plan_tensor *t = &self->match->plan->tensors[s->first_use];
  bool is_alone = self->match->next_use[s->first_use] == MATCH_NONE;
  if (weights_match_is_widened(t, s->tensor) || weights_match_is_narrowed(t, s->tensor)) return false;
  return is_alone && self->target->ranks == 1 && t->transform == TRANSFORM_COPY && t->batches == 1 && t->row_count == t->rows;
}

static status load_whole(const weights_reader *self, const weights_source *s, digests *state) {
  uint64_t address = self->target->address[0] + self->match->plan->tensors[s->first_use].offset, bytes = s->tensor->bytes;
  if (!self->target->room.device[0].device) return read_digested(self, s, 0, (uint8_t *)(uintptr_t)address, bytes, state);
  uint64_t slot_bytes = self->target->room.slot_bytes;
  for (uint64_t at = 0; at < bytes; at += slot_bytes) {
    uint64_t part = bytes - at < slot_bytes ? bytes - at : slot_bytes;
    uint8_t *slot = staging_take(self->ring);
    status result = read_digested(self, s, at, slot, part, state);
    staging_put(self->ring, slot, 0, address + at, result == OK ? part : 0);
    TRY(result);
  }
  return OK;
}

static status load_rank(const weights_reader *self, const plan_tensor *t, const weights_source *s, const uint8_t *data, uint32_t rank) {
  uint64_t rows = rows_of_batch(t) * t->batches, row_bytes = bytes_of_row(t), address = self->target->address[rank] + t->offset;
  bool widens = weights_match_is_widened(t, s->tensor);
  if (!self->target->room.device[0].device) {
    fill_rows(t, rank, widens, data, 0, rows, (uint8_t *)(uintptr_t)address);
    return OK;
  }
  uint64_t slot_rows = self->target->room.slot_bytes / row_bytes;
  if (slot_rows == 0)
    return FAIL(ERR_LIMIT, "tensor %s: a row of %llu bytes exceeds a staging slot", s->name, (unsigned long long)row_bytes);
  for (uint64_t first = 0; first < rows; first += slot_rows) {
    uint64_t count = rows - first < slot_rows ? rows - first : slot_rows;
    uint8_t *slot = staging_take(self->ring);
    fill_rows(t, rank, widens, data, first, count, slot);
    staging_put(self->ring, slot, rank, address + first * row_bytes, count * row_bytes);
  }
  return OK;
}

static status load_use(const weights_reader *self, const plan_tensor *t, const weights_source *s, const uint8_t *data) {
  for (uint32_t rank = 0; rank < self->target->ranks; rank++) TRY(load_rank(self, t, s, data, rank));
  return OK;
}

static status take_room(weights_scratch *memory, const weights_source *s, uint64_t bytes) {
  if (memory->room >= bytes) return OK;
  free(memory->bytes);
  *memory = (weights_scratch){.bytes = malloc(bytes)};
  if (!memory->bytes) return FAIL(ERR_LIMIT, "tensor %s: no memory for %llu bytes", s->name, (unsigned long long)bytes);
  memory->room = bytes;
  return OK;
}

static status read_only(const weights_reader *self, const weights_source *s, weights_scratch *memory, digests *state) {
  TRY(take_room(memory, s, READ_BYTES));
  for (uint64_t at = 0; at < s->tensor->bytes; at += READ_BYTES) {
    uint64_t part = s->tensor->bytes - at < READ_BYTES ? s->tensor->bytes - at : READ_BYTES;
    TRY(read_digested(self, s, at, memory->bytes, part, state));
  }
  return OK;
}

/* Slices, transposes and conversions: the whole source is read before its parts are written. */
static status load_parts(const weights_reader *self, const weights_source *s, weights_scratch *memory, digests *state) {
  TRY(take_room(memory, s, s->tensor->bytes));
  TRY(read_digested(self, s, 0, memory->bytes, s->tensor->bytes, state));
  if (weights_match_is_narrowed(&self->match->plan->tensors[s->first_use], s->tensor)) TRY(narrow(s->tensor, memory->bytes));
  for (uint32_t use = s->first_use; use != MATCH_NONE; use = self->match->next_use[use])
    TRY(load_use(self, &self->match->plan->tensors[use], s, memory->bytes));
  return OK;
}

/* Memory layout: the bf16 numbers, then the codes and the scales that they are computed from. */
static status load_scaled(const weights_reader *self, const weights_source *s, weights_source *scales, weights_scratch *memory,
                          digests *state) {
  const plan_tensor *t = &self->match->plan->tensors[s->first_use];
  uint64_t code_bytes = s->tensor->bytes, value_bytes = 2 * code_bytes;
  digests of_scales;
  TRY(take_room(memory, s, value_bytes + code_bytes + scales->tensor->bytes));
  uint8_t *codes = memory->bytes + value_bytes;
  start_digests(&of_scales);
  TRY(read_digested(self, s, 0, codes, code_bytes, state));
  TRY(read_digested(self, scales, 0, codes + code_bytes, scales->tensor->bytes, &of_scales));
  end_digests(self, &of_scales, scales);
  weights_e4m3_widen(codes, codes + code_bytes, t->rows, t->cols, (uint16_t *)(void *)memory->bytes);
  for (uint32_t use = s->first_use; use != MATCH_NONE; use = self->match->next_use[use]) {
    const plan_tensor *to = &self->match->plan->tensors[use];
    TRY(load_use(self, to, s, to->scale_name == PLAN_NO_SCALE ? codes : memory->bytes));
  }
  return OK;
}

status weights_read(const weights_reader *self, uint32_t index, weights_scratch *memory) {
  weights_source *s = &self->match->sources[index], *scales = s->scales == MATCH_NONE ? NULL : &self->match->sources[s->scales];
  digests state;
  start_digests(&state);
  if (!self->target) TRY(read_only(self, s, memory, &state));
  else if (scales) TRY(load_scaled(self, s, scales, memory, &state));
  else if (is_copied_whole(self, s)) TRY(load_whole(self, s, &state));
  else TRY(load_parts(self, s, memory, &state));
  end_digests(self, &state, s);
  if (self->target || !scales) return OK;
  start_digests(&state);
  TRY(read_only(self, scales, memory, &state));
  end_digests(self, &state, scales);
  return OK;
}

void weights_read_end(weights_scratch *memory) {
  free(memory->bytes);
  *memory = (weights_scratch){0};
}
