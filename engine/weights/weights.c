/* weights.c - see weights.h. Several threads take source tensors, the largest first; each reads its tensor once, in pieces that stay in
 * the cache, digests them there and puts them where they belong.
 *
 * Measured on one core of an EPYC, files in memory: pread 12 GB/s, pread and XXH3 of pieces in the cache 10 GB/s; through a mapping,
 * with its page faults and its end, 5 GB/s and less, of which MADV_POPULATE_READ gets nothing back. From a disk of 2 GB/s one thread
 * gets 1 GB/s, two get all of it. */
#include "weights/weights.h"
#include "weights/e4m3.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES (256u << 10) /* of a piece: with its copy it fits a core's second cache */
#define TRANSPOSE_TILE 32u
#define NONE UINT32_MAX

typedef struct source { /* a tensor of the files that the plan uses */
  const safetensor *tensor;
  const char *name;   /* the plan's */
  uint32_t first_use; /* plan tensor; the others follow by next_use; NONE: it is another source's scales */
  uint32_t scales;    /* source that is read with it, or NONE */
  digest digest;
} source;

typedef struct loader {
  const plan *plan;
  const safetensors *set;
  const weights_target *target;
  source *sources;          /* [source_count], in plan order, scales behind what they scale */
  uint32_t source_count;
  uint32_t *source_of;      /* [tensors of the set]: index in sources, or NONE      */
  uint32_t *next_use;       /* [plan tensors]: the next one of the same source      */
  uint32_t *order;          /* [order_count]: sources but for scales, the largest first */
  uint32_t order_count;
  atomic_uint next;         /* in order: the first that no thread has taken         */
  atomic_bool failed;       /* no thread takes another                              */
  atomic_ullong done_bytes; /* CPU machine: by all threads                          */
  uint64_t sent_bytes, total_bytes;
  staging ring;             /* GPU machine                                          */
  weights_progress *progress;
  weights_visit *visit;     /* null: the sources are loaded; else they are only read */
  void *context;
} loader;

typedef struct worker { /* a thread that reads */
  loader *loader;
  uint32_t failed_at; /* in order, or NONE */
  fail_cause cause;
} worker;

typedef struct scratch { /* a thread's own memory for a source that is not copied whole */
  uint8_t *bytes;
  uint64_t room;
} scratch;

/* === Names ================================================================================================================== */

/* How files may name the tensors of a language model, plain or nested in another: a plain name that begins with `plain` has
 * `prefix` in its place. */
static const struct naming { const char *prefix, *plain, *text; } NAMINGS[] = {
  {"", "", NULL},
  {"language_model.", "", "language_model.NAME"},
  {"model.language_model.", "model.", "model.language_model.NAME"},
};
#define SIGN "model.embed_tokens.weight" /* every model has it */

static const char *file_name(const struct naming *naming, const char *plain, char text[2 * NAME_BYTES_MAX]) {
  bool inside = strncmp(plain, naming->plain, strlen(naming->plain)) == 0;
  snprintf(text, 2 * NAME_BYTES_MAX, "%s%s", inside ? naming->prefix : "", inside ? plain + strlen(naming->plain) : plain);
  return text;
}

static status find_naming(const safetensors *set, const struct naming **naming) {
  char text[2 * NAME_BYTES_MAX], other[2 * NAME_BYTES_MAX];
  const struct naming *found = NULL;
  for (size_t i = 0; i < ARRAY_LEN(NAMINGS); i++) {
    if (!safetensors_find(set, file_name(&NAMINGS[i], SIGN, text))) continue;
    if (found)
      return FAIL(ERR_FORMAT, "the model's files name tensors in two ways, expected one: found %s and %s; hint: are files of two models in "
                  "the folder?", file_name(found, SIGN, other), text);
    found = &NAMINGS[i];
  }
  *naming = found ? found : &NAMINGS[0];
  return OK;
}

/* === Matching =============================================================================================================== */

#define E4M3 "F8_E4M3"

/* Of a use's source. */
static const char *dtype_name(const plan_tensor *use) {
  if (use->scale_name != PLAN_NO_SCALE || use->dtype == DTYPE_E4M3) return E4M3;
  return use->dtype == DTYPE_F32 ? "F32" : "BF16";
}

static void shape_text(const safetensor *tensor, char *text, size_t text_bytes) {
  size_t at = 0;
  text[0] = 0;
  for (uint32_t i = 0; i < tensor->rank && at < text_bytes; i++)
    at += (size_t)snprintf(text + at, text_bytes - at, "[%llu]", (unsigned long long)tensor->shape[i]);
}

/* Trainers that keep everything in bf16 write the router's bias so; as fp32 it is the same numbers. */
static bool is_widened(const plan_tensor *use, const safetensor *tensor) {
  return use->dtype == DTYPE_F32 && use->transform == TRANSFORM_COPY && strcmp(tensor->dtype, "BF16") == 0;
}

static bool has_shape(const safetensor *tensor, uint32_t rows, uint32_t cols) {
  if (tensor->rank == 2) return tensor->shape[0] == rows && tensor->shape[1] == cols;
  return rows == 1 && (tensor->rank == 1 ? tensor->shape[0] == cols : tensor->rank == 0 && cols == 1);
}

static status refuse(const safetensor *tensor, const char *dtype, uint32_t rows, uint32_t cols, bool has_dtype) {
  char found[SAFETENSORS_RANK_MAX * 24];
  const bool is_of_format = !has_dtype && (strcmp(dtype, E4M3) == 0 || strcmp(tensor->dtype, E4M3) == 0);
  shape_text(tensor, found, sizeof found);
  return FAIL(ERR_FORMAT, "tensor %s: expected %s [%u][%u], found %s %s, hint: %s", tensor->name, dtype, rows, cols, tensor->dtype, found,
              is_of_format ? "config.json's quantization_config says which weights are e4m3"
              : has_shape(tensor, rows, cols) ? "only bf16 and e4m3 checkpoints are supported"
                                              : "was the plan made from this model's config.json?");
}

static status match(const plan_tensor *use, const safetensor *tensor) {
  bool has_dtype = strcmp(tensor->dtype, dtype_name(use)) == 0 || is_widened(use, tensor);
  if (has_dtype && has_shape(tensor, use->rows, use->cols)) return OK;
  return refuse(tensor, dtype_name(use), use->rows, use->cols, has_dtype);
}

/* Adds the tensor as a source, or finds it among them. */
static source *add_source(loader *self, const safetensor *tensor, uint32_t name) {
  uint32_t *known = &self->source_of[tensor - safetensors_at(self->set, 0)];
  if (*known == NONE) {
    *known = self->source_count++;
    self->sources[*known] = (source){.tensor = tensor, .name = plan_string(self->plan, name), .first_use = NONE, .scales = NONE};
  }
  return &self->sources[*known];
}

static status add_use(loader *self, uint32_t use, const safetensor *tensor) {
  bool is_new = self->source_of[tensor - safetensors_at(self->set, 0)] == NONE;
  source *s = add_source(self, tensor, self->plan->tensors[use].name);
  uint32_t *last = &s->first_use;
  if (!is_new && *last == NONE) return FAIL(ERR_FORMAT, "tensor %s: the plan has it as scales and as a weight", tensor->name);
  while (*last != NONE) last = &self->next_use[*last];
  *last = use;
  self->next_use[use] = NONE;
  return OK;
}

/* The scales of a use that was added last. They are read with what they scale, once: of nothing else. */
static status add_scales(loader *self, const plan_tensor *use, source *scaled, const safetensor *tensor) {
  uint32_t rows = weights_e4m3_blocks(use->rows), cols = weights_e4m3_blocks(use->cols), before = self->source_count;
  bool has_dtype = strcmp(tensor->dtype, "F32") == 0;
  if (!has_dtype || !has_shape(tensor, rows, cols)) return refuse(tensor, "F32", rows, cols, has_dtype);
  uint32_t index = (uint32_t)(add_source(self, tensor, use->scale_name) - self->sources);
  if (index < before && scaled->scales != index)
    return FAIL(ERR_FORMAT, "tensor %s: the plan has it as scales of two tensors, or as a weight too", tensor->name);
  if (scaled->scales != NONE && scaled->scales != index)
    return FAIL(ERR_FORMAT, "tensor %s: the plan has two tensors of scales for it", scaled->tensor->name);
  scaled->scales = index;
  return OK;
}

/* The scale of a layer's KV rows has many names: the plan's, which is compressed-tensors' and that of `verbatim calibrate`, those of vLLM's
 * modules old and new, SGLang's, ModelOpt's. */
static const char *const KV_SCALES[] = {("." PLAN_KV_SCALE), ".self_attn.attn.k_scale", ".self_attn.mla_attn.mla_attn.k_scale",
                                        ".self_attn.attn_mqa.k_scale", ".self_attn.kv_a_proj_with_mqa.k_scale", ".self_attn.kv_scale"};

static bool ends_with(const char *text, const char *end) {
  size_t bytes = strlen(text), end_bytes = strlen(end);
  return bytes >= end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

typedef struct search { /* for the tensors of a plan */
  const struct naming *naming;
  char missing[640]; /* names, as far as they fit */
  size_t missing_bytes;
  uint32_t missing_count, missing_kv_scales;
} search;

/* A tensor by one of its names, in the way the files name the model's; or, as `verbatim calibrate` writes it for any model, plainly. */
static const safetensor *find_as(const loader *self, const search *found, const char *plain, bool or_plainly) {
  char text[2 * NAME_BYTES_MAX];
  const safetensor *tensor = safetensors_find(self->set, file_name(found->naming, plain, text));
  return tensor || !or_plainly ? tensor : safetensors_find(self->set, plain);
}

/* *out null: it is missing, which the search has noted. */
static status find(const loader *self, search *found, uint32_t name, const safetensor **out) {
  char text[2 * NAME_BYTES_MAX], plain[NAME_BYTES_MAX];
  const char *wanted = plan_string(self->plan, name);
  bool is_kv_scale = ends_with(wanted, KV_SCALES[0]);
  *out = is_kv_scale ? NULL : find_as(self, found, wanted, false);
  for (size_t i = 0; is_kv_scale && i < ARRAY_LEN(KV_SCALES); i++) {
    snprintf(plain, sizeof plain, "%.*s%s", (int)(strlen(wanted) - strlen(KV_SCALES[0])), wanted, KV_SCALES[i]);
    const safetensor *tensor = find_as(self, found, plain, true);
    if (tensor && *out)
      return FAIL(ERR_FORMAT, "the model's files have two scales of one layer's KV rows: %s and %s", (*out)->name, tensor->name);
    if (tensor) *out = tensor;
  }
  if (*out) return OK;
  found->missing_count++;
  found->missing_kv_scales += is_kv_scale;
  file_name(found->naming, wanted, text);
  size_t room = sizeof found->missing - found->missing_bytes;
  if (strlen(text) + 3 < room) found->missing_bytes += (size_t)snprintf(found->missing + found->missing_bytes, room, " %s", text);
  return OK;
}

static status match_use(loader *self, search *found, uint32_t index) {
  const plan_tensor *use = &self->plan->tensors[index];
  const safetensor *tensor = NULL, *scales = NULL;
  TRY(find(self, found, use->name, &tensor));
  if (use->scale_name != PLAN_NO_SCALE) TRY(find(self, found, use->scale_name, &scales));
  if (tensor) TRY(match(use, tensor));
  if (tensor) TRY(add_use(self, index, tensor));
  if (tensor && scales) TRY(add_scales(self, use, &self->sources[self->source_of[tensor - safetensors_at(self->set, 0)]], scales));
  return OK;
}

/* The sources of all plan tensors; every missing name goes into one message as far as it fits. */
static status match_all(loader *self, const struct naming *naming) {
  search found = {.naming = naming};
  for (uint32_t i = 0; i < self->plan->tensor_count; i++) {
    self->total_bytes += plan_tensor_bytes(&self->plan->tensors[i]);
    TRY(match_use(self, &found, i));
  }
  if (found.missing_count == 0) return OK;
  if (found.missing_count == found.missing_kv_scales)
    return FAIL(ERR_FORMAT, "the plan keeps the KV cache in fp8, but the model's files lack the scales of %u layers:%s; hint: `verbatim "
                "calibrate` makes them, or plan with kv-cache-dtype: bf16", found.missing_count, found.missing);
  return FAIL(ERR_FORMAT, "the model's files lack %u tensors of the plan:%s", found.missing_count, found.missing);
}

/* HF ties the head to the embedding only if the files have no head, or an equal one. */
static status check_head(const loader *self, const struct naming *naming) {
  char text[2 * NAME_BYTES_MAX];
  const safetensor *table = safetensors_find(self->set, file_name(naming, SIGN, text));
  const safetensor *head = safetensors_find(self->set, file_name(naming, "lm_head.weight", text));
  if (!table || !head || self->source_of[head - safetensors_at(self->set, 0)] != NONE) return OK; /* none, or it is used */
  uint8_t *pieces = malloc(2 * READ_BYTES);
  if (!pieces) return FAIL(ERR_LIMIT, "weights: no memory");
  status result = OK;
  bool same = head->bytes == table->bytes && strcmp(head->dtype, table->dtype) == 0;
  for (uint64_t at = 0; at < table->bytes && same && result == OK; at += READ_BYTES) {
    size_t part = (size_t)(table->bytes - at < READ_BYTES ? table->bytes - at : READ_BYTES);
    result = safetensors_read(self->set, table, at, pieces, part);
    if (result == OK) result = safetensors_read(self->set, head, at, pieces + READ_BYTES, part);
    same = result != OK || memcmp(pieces, pieces + READ_BYTES, part) == 0;
  }
  free(pieces);
  if (result != OK || same) return result;
  return FAIL(ERR_FORMAT, "tensor %s is not the embedding, which the plan takes for it; hint: set tie_word_embeddings to false, and plan "
              "again", head->name);
}

typedef struct sized { uint64_t bytes; uint32_t index; } sized;

static int compare_sized(const void *a, const void *b) {
  const sized *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

/* The largest first, so that no thread is left alone with one at the end; equal ones in plan order, which is mostly the files'. */
static status sort_sources(loader *self) {
  sized *list = calloc(self->source_count + 1ull, sizeof *list);
  if (!list) return FAIL(ERR_LIMIT, "weights: no memory");
  for (uint32_t i = 0; i < self->source_count; i++)
    if (self->sources[i].first_use != NONE) list[self->order_count++] = (sized){self->sources[i].tensor->bytes, i};
  qsort(list, self->order_count, sizeof *list, compare_sized);
  for (uint32_t i = 0; i < self->order_count; i++) self->order[i] = list[i].index;
  free(list);
  return OK;
}

/* === Filling ================================================================================================================ */

/* Destination rows of one batch, and the bytes of each. */
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

/* fp32 from bf16. */
static void widen(const uint8_t *data, uint64_t count, uint8_t *dest) {
  for (uint64_t i = 0; i < count; i++) {
    uint16_t half;
    memcpy(&half, data + 2 * i, sizeof half);
    uint32_t bits = (uint32_t)half << 16;
    memcpy(dest + 4 * i, &bits, sizeof bits);
  }
}

/* Writes `count` destination rows from row `first` on, counted through all batches. */
static void fill_rows(const plan_tensor *t, bool widens, const uint8_t *data, uint64_t first, uint64_t count, uint8_t *dest) {
  uint64_t rows = rows_of_batch(t), source_row_bytes = (uint64_t)t->cols * (widens ? 2 : plan_dtype_bytes(t->dtype));
  while (count > 0) {
    uint64_t batch = first / rows, row = first % rows, part = rows - row < count ? rows - row : count;
    const uint8_t *batch_data = data + (t->row0 + batch * t->row_step) * source_row_bytes;
    if (widens) widen(batch_data + row * source_row_bytes, part * t->cols, dest);
    else if (t->transform == TRANSFORM_COPY) memcpy(dest, batch_data + row * source_row_bytes, part * source_row_bytes);
    else transpose(t, batch_data, row, part, dest);
    dest += part * bytes_of_row(t);
    first += part;
    count -= part;
  }
}

/* Reads the next bytes of a source and digests them while they are in the cache. */
static status read_digested(const loader *self, const source *s, uint64_t at, uint8_t *out, uint64_t bytes, digest_state *state) {
  for (uint64_t done = 0; done < bytes; done += READ_BYTES) {
    size_t part = (size_t)(bytes - done < READ_BYTES ? bytes - done : READ_BYTES);
    TRY(safetensors_read(self->set, s->tensor, at + done, out + done, part));
    digest_add(state, out + done, part);
  }
  return OK;
}

/* A source that becomes one tensor of the plan, unchanged, needs no memory on its way. */
static bool is_copied_whole(const loader *self, const source *s) {
  const plan_tensor *t = &self->plan->tensors[s->first_use];
  bool is_alone = self->next_use[s->first_use] == NONE && !is_widened(t, s->tensor);
  return is_alone && t->transform == TRANSFORM_COPY && t->batches == 1 && t->row_count == t->rows;
}

static status load_whole(loader *self, const source *s, digest_state *state) {
  uint64_t address = self->target->address + self->plan->tensors[s->first_use].offset, bytes = s->tensor->bytes;
  if (!self->target->room.device) return read_digested(self, s, 0, (uint8_t *)(uintptr_t)address, bytes, state);
  uint64_t slot_bytes = self->target->room.slot_bytes;
  for (uint64_t at = 0; at < bytes; at += slot_bytes) {
    uint64_t part = bytes - at < slot_bytes ? bytes - at : slot_bytes;
    uint8_t *slot = staging_take(&self->ring);
    status result = read_digested(self, s, at, slot, part, state);
    staging_put(&self->ring, slot, address + at, result == OK ? part : 0);
    TRY(result);
  }
  return OK;
}

static status load_use(loader *self, const plan_tensor *t, const source *s, const uint8_t *data) {
  uint64_t rows = rows_of_batch(t) * t->batches, row_bytes = bytes_of_row(t), address = self->target->address + t->offset;
  bool widens = is_widened(t, s->tensor);
  if (!self->target->room.device) {
    fill_rows(t, widens, data, 0, rows, (uint8_t *)(uintptr_t)address);
    return OK;
  }
  uint64_t slot_rows = self->target->room.slot_bytes / row_bytes;
  if (slot_rows == 0)
    return FAIL(ERR_LIMIT, "tensor %s: a row of %llu bytes exceeds a staging slot", s->name, (unsigned long long)row_bytes);
  for (uint64_t first = 0; first < rows; first += slot_rows) {
    uint64_t count = rows - first < slot_rows ? rows - first : slot_rows;
    uint8_t *slot = staging_take(&self->ring);
    fill_rows(t, widens, data, first, count, slot);
    staging_put(&self->ring, slot, address + first * row_bytes, count * row_bytes);
  }
  return OK;
}

static status take_room(scratch *memory, const source *s, uint64_t bytes) {
  if (memory->room >= bytes) return OK;
  free(memory->bytes);
  *memory = (scratch){.bytes = malloc(bytes)};
  if (!memory->bytes) return FAIL(ERR_LIMIT, "tensor %s: no memory for %llu bytes", s->name, (unsigned long long)bytes);
  memory->room = bytes;
  return OK;
}

static status read_only(loader *self, const source *s, scratch *memory, digest_state *state) {
  TRY(take_room(memory, s, READ_BYTES));
  for (uint64_t at = 0; at < s->tensor->bytes; at += READ_BYTES) {
    uint64_t part = s->tensor->bytes - at < READ_BYTES ? s->tensor->bytes - at : READ_BYTES;
    TRY(read_digested(self, s, at, memory->bytes, part, state));
  }
  return OK;
}

/* Slices and transposes: the whole source is read before its parts are written. */
static status load_parts(loader *self, const source *s, scratch *memory, digest_state *state) {
  TRY(take_room(memory, s, s->tensor->bytes));
  TRY(read_digested(self, s, 0, memory->bytes, s->tensor->bytes, state));
  for (uint32_t use = s->first_use; use != NONE; use = self->next_use[use])
    TRY(load_use(self, &self->plan->tensors[use], s, memory->bytes));
  return OK;
}

/* The bf16 numbers of codes and scales stand in memory before both. */
static status load_scaled(loader *self, const source *s, source *scales, scratch *memory, digest_state *state) {
  const plan_tensor *t = &self->plan->tensors[s->first_use];
  uint64_t code_bytes = s->tensor->bytes, value_bytes = 2 * code_bytes;
  digest_state of_scales;
  TRY(take_room(memory, s, value_bytes + code_bytes + scales->tensor->bytes));
  uint8_t *codes = memory->bytes + value_bytes;
  digest_start(&of_scales);
  TRY(read_digested(self, s, 0, codes, code_bytes, state));
  TRY(read_digested(self, scales, 0, codes + code_bytes, scales->tensor->bytes, &of_scales));
  scales->digest = digest_end(&of_scales);
  weights_e4m3_widen(codes, codes + code_bytes, t->rows, t->cols, (uint16_t *)(void *)memory->bytes);
  for (uint32_t use = s->first_use; use != NONE; use = self->next_use[use]) {
    const plan_tensor *to = &self->plan->tensors[use];
    TRY(load_use(self, to, s, to->scale_name == PLAN_NO_SCALE ? codes : memory->bytes));
  }
  return OK;
}

static status load_source(loader *self, source *s, scratch *memory) {
  source *scales = s->scales == NONE ? NULL : &self->sources[s->scales];
  digest_state state;
  digest_start(&state);
  if (self->visit) TRY(read_only(self, s, memory, &state));
  else if (scales) TRY(load_scaled(self, s, scales, memory, &state));
  else if (is_copied_whole(self, s)) TRY(load_whole(self, s, &state));
  else TRY(load_parts(self, s, memory, &state));
  s->digest = digest_end(&state);
  if (!self->visit || !scales) return OK;
  digest_start(&state);
  TRY(read_only(self, scales, memory, &state));
  scales->digest = digest_end(&state);
  return OK;
}

static void report_progress(const loader *self, uint64_t done_bytes) {
  if (self->progress && done_bytes < self->total_bytes) self->progress(self->context, done_bytes, self->total_bytes);
}

/* Takes sources until there are none, or one has failed. What was taken is finished: so the first in order that fails is always found. */
static void load_sources(worker *me, bool reports) {
  loader *self = me->loader;
  scratch memory = {0};
  while (!atomic_load(&self->failed)) {
    uint32_t i = atomic_fetch_add(&self->next, 1);
    if (i >= self->order_count) break;
    source *s = &self->sources[self->order[i]];
    if (load_source(self, s, &memory) != OK) {
      fail_take(&me->cause);
      me->failed_at = i;
      atomic_store(&self->failed, true);
      break;
    }
    uint64_t bytes = s->tensor->bytes + (s->scales == NONE ? 0 : self->sources[s->scales].tensor->bytes);
    uint64_t done = atomic_fetch_add(&self->done_bytes, bytes) + bytes;
    if (reports) report_progress(self, done);
  }
  free(memory.bytes);
}

/* === Threads ================================================================================================================ */

static void *run_thread(void *argument) {
  worker *me = argument;
  load_sources(me, false);
  if (me->loader->target->room.device) staging_leave(&me->loader->ring);
  return NULL;
}

static void on_sent(void *context, uint64_t bytes) {
  loader *self = context;
  self->sent_bytes += bytes;
  report_progress(self, self->sent_bytes);
}

static status first_failure(const worker *workers, uint32_t count) {
  const worker *first = &workers[0];
  for (uint32_t i = 1; i < count; i++)
    if (workers[i].failed_at < first->failed_at) first = &workers[i];
  return first->failed_at == NONE ? OK : fail_give(&first->cause);
}

/* On the CPU machine the calling thread reads with the others, as the first worker; on the GPU machine it uploads what they read. */
static status load_all(loader *self, uint32_t *threads) {
  worker workers[WEIGHTS_THREADS_MAX];
  pthread_t ids[WEIGHTS_THREADS_MAX];
  bool is_gpu = self->target->room.device != NULL;
  uint32_t wanted = self->target->threads ? min_u32(self->target->threads, WEIGHTS_THREADS_MAX) : staging_fillers();
  uint32_t first = is_gpu ? 0 : 1, count = first;
  for (uint32_t i = 0; i < wanted; i++) workers[i] = (worker){.loader = self, .failed_at = NONE};
  if (is_gpu) staging_open(&self->ring, &self->target->room);
  for (; count < wanted; count++) {
    if (is_gpu) staging_enter(&self->ring);
    if (pthread_create(&ids[count], NULL, run_thread, &workers[count]) == 0) continue;
    if (is_gpu) staging_leave(&self->ring);
    break;
  }
  if (is_gpu) staging_upload(&self->ring, on_sent, self);
  else load_sources(&workers[0], true);
  for (uint32_t i = first; i < count; i++) pthread_join(ids[i], NULL);
  if (is_gpu) staging_close(&self->ring);
  if (count == 0) return FAIL(ERR_LIMIT, "weights: no thread can be started");
  TRY(first_failure(workers, count));
  if (self->progress) self->progress(self->context, self->total_bytes, self->total_bytes);
  *threads = count;
  return OK;
}

/* === All of it ============================================================================================================== */

static digest combine(const loader *self) {
  digest_state state;
  digest_start(&state);
  for (uint32_t i = 0; i < self->source_count; i++) {
    const source *s = &self->sources[i];
    digest_add(&state, s->name, strlen(s->name) + 1);
    digest_add(&state, s->tensor->dtype, strlen(s->tensor->dtype) + 1);
    digest_add(&state, &s->tensor->rank, sizeof s->tensor->rank);
    digest_add(&state, s->tensor->shape, s->tensor->rank * sizeof s->tensor->shape[0]);
    digest_add(&state, s->digest.bytes, DIGEST_BYTES);
  }
  return digest_end(&state);
}

/* A tensor of a layer behind the model's last, by its plain name. */
static bool is_behind(const plan *p, const char *name) {
  static const char start[] = "model.layers.";
  if (strncmp(name, start, sizeof start - 1) != 0 || name[sizeof start - 1] < '0' || name[sizeof start - 1] > '9') return false;
  return strtoul(name + sizeof start - 1, NULL, 10) >= p->header->model.layers;
}

static void count_unused(const loader *self, const struct naming *naming, weights_report *report) {
  for (uint32_t i = 0; i < safetensors_count(self->set); i++) {
    if (self->source_of[i] != NONE) continue;
    const char *name = safetensors_at(self->set, i)->name, *plain = name;
    char text[2 * NAME_BYTES_MAX];
    size_t prefix_bytes = strlen(naming->prefix);
    if (strncmp(name, naming->prefix, prefix_bytes) == 0) {
      snprintf(text, sizeof text, "%s%s", naming->plain, name + prefix_bytes);
      plain = text;
    }
    bool first = report->unused_count++ == 0, is_other = false;
    if (ends_with(plain, ".rotary_emb.inv_freq")) report->unused_rotary++;
    else if (ends_with(plain, ".k_scale") || ends_with(plain, ".v_scale") || ends_with(plain, ".kv_scale")) report->unused_scales++;
    else if (is_behind(self->plan, plain)) report->unused_layers++;
    else is_other = report->unused_other++ == 0;
    if (first || is_other) snprintf(report->unused_first, sizeof report->unused_first, "%s", name);
  }
}

static status load(loader *self, weights_report *report) {
  const struct naming *naming = NULL;
  weights_report made = {0};
  TRY(find_naming(self->set, &naming));
  TRY(match_all(self, naming));
  TRY(check_head(self, naming));
  TRY(sort_sources(self));
  for (uint32_t i = 0; i < self->source_count; i++) made.source_bytes += self->sources[i].tensor->bytes;
  if (self->visit) self->total_bytes = made.source_bytes;
  TRY(load_all(self, &made.threads));
  made.digest = combine(self);
  made.naming = naming->text;
  made.source_count = self->source_count;
  count_unused(self, naming, &made);
  for (uint32_t i = 0; self->visit && i < self->source_count; i++)
    self->visit(self->context, self->sources[i].name, self->sources[i].tensor, &self->sources[i].digest);
  *report = made;
  return OK;
}

static status run(loader *self, weights_report *report) {
  size_t uses = self->plan->tensor_count + 1ull, tensors = safetensors_count(self->set) + 1ull;
  self->sources = calloc(2 * uses, sizeof *self->sources); /* with scales of their own */
  self->next_use = calloc(uses, sizeof *self->next_use);
  self->order = calloc(uses, sizeof *self->order); /* not of scales */
  self->source_of = malloc(tensors * sizeof *self->source_of);
  bool has_memory = self->sources && self->next_use && self->order && self->source_of;
  if (has_memory) memset(self->source_of, 0xff, tensors * sizeof *self->source_of); /* NONE */
  status result = has_memory ? load(self, report) : FAIL(ERR_LIMIT, "weights: no memory");
  free(self->sources);
  free(self->next_use);
  free(self->order);
  free(self->source_of);
  return result;
}

status weights_load(const plan *p, const safetensors *set, const weights_target *target, weights_progress *progress, void *context,
                    weights_report *report) {
  loader self = {.plan = p, .set = set, .target = target, .progress = progress, .context = context};
  return run(&self, report);
}

status weights_digest(const plan *p, const safetensors *set, uint32_t threads, weights_progress *progress, weights_visit *visit,
                      void *context, weights_report *report) {
  const weights_target nowhere = {.threads = threads};
  loader self = {.plan = p, .set = set, .target = &nowhere, .progress = progress, .visit = visit, .context = context};
  return run(&self, report);
}

void weights_note(const weights_report *report, char *text, size_t text_bytes) {
  const struct { uint32_t count; const char *what; } kinds[] = {
    {report->unused_rotary, "rotary inv_freq"},
    {report->unused_scales, "scales of a KV cache"},
    {report->unused_layers, "of layers behind the last (prediction)"},
    {report->unused_other, report->naming ? "of other parts (vision)" : "others"},
  };
  size_t at = 0;
  text[0] = 0;
#define ADD(...) (at += at < text_bytes ? (size_t)snprintf(text + at, text_bytes - at, __VA_ARGS__) : 0)
  if (report->naming) ADD("tensors are named %s%s", report->naming, report->unused_count ? "; " : "");
  if (report->unused_count) ADD("%u tensors of the model are not used: ", report->unused_count);
  const char *separator = "";
  for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
    if (kinds[i].count == 0) continue;
    ADD("%s%u %s", separator, kinds[i].count, kinds[i].what);
    separator = ", ";
  }
  if (report->unused_count) ADD(", e.g. %s", report->unused_first);
#undef ADD
}
