/* match.c - see match.h. Names first, then dtypes and shapes; one message lists all missing tensors. */
#include "weights/match.h"
#include "weights/e4m3.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPARE_BYTES (256u << 10) /* bytes of the head and the embedding that are compared at a time */

/* === Names ================================================================================================================== */

/* Ways in which files name the tensors of a language model, plain or nested in another: a plain name that begins with `plain` has `prefix`
 * instead of it. */
static const struct weights_naming { const char *prefix, *plain, *text; } NAMINGS[] = {
  {"", "", NULL},
  {"language_model.", "", "language_model.NAME"},
  {"language.", "", "language.NAME"},
  {"model.language_model.", "model.", "model.language_model.NAME"},
};
#define SIGN "model.embed_tokens.weight" /* every model has it */

static const char *file_name(const struct weights_naming *naming, const char *plain, char text[2 * NAME_BYTES_MAX]) {
  bool inside = strncmp(plain, naming->plain, strlen(naming->plain)) == 0;
  snprintf(text, 2 * NAME_BYTES_MAX, "%s%s", inside ? naming->prefix : "", inside ? plain + strlen(naming->plain) : plain);
  return text;
}

static status find_naming(const safetensors *set, const struct weights_naming **naming) {
  char text[2 * NAME_BYTES_MAX], other[2 * NAME_BYTES_MAX];
  const struct weights_naming *found = NULL;
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

/* The dtype of a use's source. */
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

/* Trainers that keep everything in bf16 also write the router's bias in bf16; converted to fp32 its numbers are the same. */
bool weights_match_is_widened(const plan_tensor *use, const safetensor *tensor) {
  return use->dtype == DTYPE_F32 && use->transform == TRANSFORM_COPY && strcmp(tensor->dtype, "BF16") == 0;
}

/* Some published checkpoints have norms in fp32 whose numbers are all bf16 numbers. */
bool weights_match_is_narrowed(const plan_tensor *use, const safetensor *tensor) {
  return use->dtype == DTYPE_BF16 && use->scale_name == PLAN_NO_SCALE && strcmp(tensor->dtype, "F32") == 0;
}

static bool has_shape(const safetensor *tensor, uint32_t rows, uint32_t cols) {
  if (tensor->rank == 2) return tensor->shape[0] == rows && tensor->shape[1] == cols;
  if (tensor->rank == 1 && cols == 1) return tensor->shape[0] == rows; /* a vector of which a plan takes slices */
  return rows == 1 && (tensor->rank == 1 ? tensor->shape[0] == cols : tensor->rank == 0 && cols == 1);
}

static status refuse(const safetensor *tensor, const char *dtype, uint32_t rows, uint32_t cols, bool has_dtype) {
  char found[SAFETENSORS_RANK_MAX * 24];
  const bool is_of_format = !has_dtype && (strcmp(dtype, E4M3) == 0 || strcmp(tensor->dtype, E4M3) == 0);
  shape_text(tensor, found, sizeof found);
  return FAIL(ERR_FORMAT, "tensor %s: expected %s [%u][%u], found %s %s; hint: %s", tensor->name, dtype, rows, cols, tensor->dtype, found,
              is_of_format ? "config.json's quantization_config says which weights are e4m3"
              : has_shape(tensor, rows, cols) ? "only bf16 and e4m3 checkpoints are supported"
                                              : "was the plan made from this model's config.json?");
}

static status match_one(const plan_tensor *use, const safetensor *tensor) {
  bool has_dtype = strcmp(tensor->dtype, dtype_name(use)) == 0 || weights_match_is_widened(use, tensor) ||
                   weights_match_is_narrowed(use, tensor);
  if (has_dtype && has_shape(tensor, use->rows, use->cols)) return OK;
  return refuse(tensor, dtype_name(use), use->rows, use->cols, has_dtype);
}

/* Adds the tensor as a source, or finds it among them. */
static weights_source *add_source(weights_match *self, const safetensor *tensor, uint32_t name) {
  uint32_t *known = &self->source_of[tensor - safetensors_at(self->set, 0)];
  if (*known == MATCH_NONE) {
    *known = self->source_count++;
    self->sources[*known] = (weights_source){.tensor = tensor, .name = plan_string(self->plan, name), .first_use = MATCH_NONE,
                                             .scales = MATCH_NONE};
  }
  return &self->sources[*known];
}

static status add_use(weights_match *self, uint32_t use, const safetensor *tensor) {
  bool is_new = self->source_of[tensor - safetensors_at(self->set, 0)] == MATCH_NONE;
  weights_source *s = add_source(self, tensor, self->plan->tensors[use].name);
  uint32_t *last = &s->first_use;
  if (!is_new && *last == MATCH_NONE) return FAIL(ERR_FORMAT, "tensor %s: the plan has it as scales and as a weight", tensor->name);
  if (!is_new && self->plan->tensors[*last].dtype != self->plan->tensors[use].dtype && strcmp(tensor->dtype, "F32") == 0)
    return FAIL(ERR_FORMAT, "tensor %s: the plan has it as bf16 and as fp32", tensor->name);
  while (*last != MATCH_NONE) last = &self->next_use[*last];
  *last = use;
  self->next_use[use] = MATCH_NONE;
  return OK;
}

/* The scales of the most recently added use. They are read once, together with the tensor that they scale, and belong to no other. */
static status add_scales(weights_match *self, const plan_tensor *use, weights_source *scaled, const safetensor *tensor) {
  uint32_t rows = weights_e4m3_blocks(use->rows), cols = weights_e4m3_blocks(use->cols), before = self->source_count;
  bool has_dtype = strcmp(tensor->dtype, "F32") == 0;
  if (!has_dtype || !has_shape(tensor, rows, cols)) return refuse(tensor, "F32", rows, cols, has_dtype);
  uint32_t index = (uint32_t)(add_source(self, tensor, use->scale_name) - self->sources);
  if (index < before && scaled->scales != index)
    return FAIL(ERR_FORMAT, "tensor %s: the plan has it as scales of two tensors, or as a weight too", tensor->name);
  if (scaled->scales != MATCH_NONE && scaled->scales != index)
    return FAIL(ERR_FORMAT, "tensor %s: the plan has two tensors of scales for it", scaled->tensor->name);
  scaled->scales = index;
  return OK;
}

/* The scale of a layer's KV rows has many names: the plan's (also used by compressed-tensors and `verbatim calibrate`), those of vLLM's old
 * and new modules, SGLang's and ModelOpt's. */
static const char *const KV_SCALES[] = {("." PLAN_KV_SCALE), ".self_attn.attn.k_scale", ".self_attn.mla_attn.mla_attn.k_scale",
                                        ".self_attn.attn_mqa.k_scale", ".self_attn.kv_a_proj_with_mqa.k_scale", ".self_attn.kv_scale"};

static bool ends_with(const char *text, const char *end) {
  size_t bytes = strlen(text), end_bytes = strlen(end);
  return bytes >= end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

typedef struct search { /* for the tensors of a plan */
  const struct weights_naming *naming;
  char missing[640]; /* as many names as fit */
  size_t missing_bytes;
  uint32_t missing_count, missing_kv_scales;
} search;

/* Finds a tensor by one of its names, named like the model's other tensors in the files, or by its plain name, as `verbatim calibrate`
 * writes it for any model. */
static const safetensor *find_as(const weights_match *self, const search *found, const char *plain, bool or_plainly) {
  char text[2 * NAME_BYTES_MAX];
  const safetensor *tensor = safetensors_find(self->set, file_name(found->naming, plain, text));
  return tensor || !or_plainly ? tensor : safetensors_find(self->set, plain);
}

/* *out null: it is missing, and the search has noted that. */
static status find(const weights_match *self, search *found, uint32_t name, const safetensor **out) {
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

static status match_use(weights_match *self, search *found, uint32_t index) {
  const plan_tensor *use = &self->plan->tensors[index];
  const safetensor *tensor = NULL, *scales = NULL;
  TRY(find(self, found, use->name, &tensor));
  if (use->scale_name != PLAN_NO_SCALE) TRY(find(self, found, use->scale_name, &scales));
  if (tensor) TRY(match_one(use, tensor));
  if (tensor) TRY(add_use(self, index, tensor));
  if (tensor && scales) TRY(add_scales(self, use, &self->sources[self->source_of[tensor - safetensors_at(self->set, 0)]], scales));
  return OK;
}

/* Finds the sources of all plan tensors; one message lists the missing names, as many as fit. */
static status match_all(weights_match *self) {
  search found = {.naming = self->naming};
  for (uint32_t i = 0; i < self->plan->tensor_count; i++) TRY(match_use(self, &found, i));
  if (found.missing_count == 0) return OK;
  if (found.missing_count == found.missing_kv_scales)
    return FAIL(ERR_FORMAT, "the plan keeps the KV cache in fp8, but the model's files lack the scales of %u layers:%s; hint: `verbatim "
                "calibrate` makes them, or plan with kv-cache-dtype: bf16", found.missing_count, found.missing);
  return FAIL(ERR_FORMAT, "the model's files lack %u tensors of the plan:%s", found.missing_count, found.missing);
}

/* Hugging Face ties the head to the embedding only if the files have no head, or an equal one. */
static status check_head(const weights_match *self) {
  char text[2 * NAME_BYTES_MAX];
  const safetensor *table = safetensors_find(self->set, file_name(self->naming, SIGN, text));
  const safetensor *head = safetensors_find(self->set, file_name(self->naming, "lm_head.weight", text));
  if (!table || !head || self->source_of[head - safetensors_at(self->set, 0)] != MATCH_NONE) return OK; /* there is none, or it is used */
  uint8_t *pieces = malloc(2 * COMPARE_BYTES);
  if (!pieces) return FAIL(ERR_LIMIT, "weights: no memory");
  status result = OK;
  bool same = head->bytes == table->bytes && strcmp(head->dtype, table->dtype) == 0;
  for (uint64_t at = 0; at < table->bytes && same && result == OK; at += COMPARE_BYTES) {
    size_t part = (size_t)(table->bytes - at < COMPARE_BYTES ? table->bytes - at : COMPARE_BYTES);
    result = safetensors_read(self->set, table, at, pieces, part);
    if (result == OK) result = safetensors_read(self->set, head, at, pieces + COMPARE_BYTES, part);
    same = result != OK || memcmp(pieces, pieces + COMPARE_BYTES, part) == 0;
  }
  free(pieces);
  if (result != OK || same) return result;
  return FAIL(ERR_FORMAT, "tensor %s is not the embedding, which the plan takes for it; hint: set tie_word_embeddings to false, and plan "
              "again", head->name);
}

/* === Unused tensors ========================================================================================================= */

/* A tensor of a layer after the model's last, by its plain name. */
static bool is_after_last(const plan *p, const char *name) {
  static const char start[] = "model.layers.";
  if (strncmp(name, start, sizeof start - 1) != 0 || name[sizeof start - 1] < '0' || name[sizeof start - 1] > '9') return false;
  return strtoul(name + sizeof start - 1, NULL, 10) >= p->header->model.layers;
}

bool weights_match_is_prediction(const weights_match *self, const weights_source *source) {
  return is_after_last(self->plan, source->name);
}

void weights_match_report(const weights_match *self, weights_report *report) {
  const struct weights_naming *naming = self->naming;
  report->naming = naming->text;
  for (uint32_t i = 0; i < safetensors_count(self->set); i++) {
    if (self->source_of[i] != MATCH_NONE) continue;
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
    else if (is_after_last(self->plan, plain)) report->unused_layers++;
    else is_other = report->unused_other++ == 0;
    if (first || is_other) snprintf(report->unused_first, sizeof report->unused_first, "%s", name);
  }
}

/* === All of it ============================================================================================================== */

status weights_match_open(weights_match *self, const plan *p, const safetensors *set) {
  size_t uses = p->tensor_count + 1ull, tensors = safetensors_count(set) + 1ull;
  *self = (weights_match){.plan = p, .set = set};
  self->sources = calloc(2 * uses, sizeof *self->sources); /* with scales of their own */
  self->next_use = calloc(uses, sizeof *self->next_use);
  self->source_of = malloc(tensors * sizeof *self->source_of);
  if (!self->sources || !self->next_use || !self->source_of) return FAIL(ERR_LIMIT, "weights: no memory");
  memset(self->source_of, 0xff, tensors * sizeof *self->source_of); /* MATCH_NONE */
  TRY(find_naming(set, &self->naming));
  TRY(match_all(self));
  return check_head(self);
}

void weights_match_close(weights_match *self) {
  free(self->sources);
  free(self->next_use);
  free(self->source_of);
}
