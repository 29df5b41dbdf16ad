/* profile.c - reads a profile with jansson and turns its entries into the plan's pins; see profile.h for the format.
 *
 * Entries that may not be used are checked too, so that a damaged file is refused as a whole. Must not interpret a library algorithm: its
 * words are copied. Read next: graph_add.c, which asks for pins. */
#include "profile.h"
#include "engine/base/json_text.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "engine/base/json_text.h"

static status read_number(const json_t *entry, size_t index, const char *name, uint64_t low, uint64_t high, uint64_t *out) {
  const json_t *value = json_object_get(entry, name);
  json_int_t number = json_integer_value(value);
  if (!json_is_integer(value) || number < 0 || (uint64_t)number < low || (uint64_t)number > high)
    return FAIL(ERR_FORMAT, "profile: entry %zu: \"%s\": expected an integer of %llu to %llu", index, name, (unsigned long long)low,
                (unsigned long long)high);
  *out = (uint64_t)number;
  return OK;
}

static status read_algo(const json_t *entry, size_t index, uint64_t words[8]) {
  const json_t *algo = json_object_get(entry, "algo");
  if (!json_is_array(algo) || json_array_size(algo) != 8)
    return FAIL(ERR_FORMAT, "profile: entry %zu: \"algo\": expected a list of 8 strings of hex digits", index);
  for (size_t i = 0; i < 8; i++) {
    const char *text = json_string_value(json_array_get(algo, i));
    const char *digits = text && strncmp(text, "0x", 2) == 0 ? text + 2 : text;
    size_t length = digits ? strlen(digits) : 0;
    if (length < 1 || length > 16 || strspn(digits, "0123456789abcdefABCDEF") != length)
      return FAIL(ERR_FORMAT, "profile: entry %zu: \"algo\" word %zu: expected 1 to 16 hex digits", index, i);
    words[i] = strtoull(digits, NULL, 16);
  }
  return OK;
}

static status read_flag(const json_t *entry, size_t index, const char *name, bool *out) {
  const json_t *value = json_object_get(entry, name);
  if (!json_is_boolean(value)) return FAIL(ERR_FORMAT, "profile: entry %zu: \"%s\": expected true or false", index, name);
  *out = json_is_true(value);
  return OK;
}

static status read_entry(const json_t *entry, size_t index, uint64_t library_version, plan_product *out, bool *use, bool *certified) {
  uint64_t n = 0, k = 0, rows_min = 0, rows_max = 0;
  plan_product read = {0};
  const char *type = json_string_value(json_object_get(entry, "out"));
  if (!json_is_object(entry)) return FAIL(ERR_FORMAT, "profile: entry %zu is not an object", index);
  TRY(read_flag(entry, index, "use", use));
  TRY(read_flag(entry, index, "certified", certified));
  if (!type || (strcmp(type, "f32") != 0 && strcmp(type, "bf16") != 0))
    return FAIL(ERR_FORMAT, "profile: entry %zu: \"out\": expected \"f32\" or \"bf16\"", index);
  TRY(read_number(entry, index, "n", 1, UINT32_MAX, &n));
  TRY(read_number(entry, index, "k", 1, UINT32_MAX, &k));
  TRY(read_number(entry, index, "rows_min", 1, BATCH_TOKENS_MAX, &rows_min));
  TRY(read_number(entry, index, "rows_max", rows_min, BATCH_TOKENS_MAX, &rows_max));
  TRY(read_number(entry, index, "workspace_bytes", 0, PROFILE_WORKSPACE_BYTES_MAX, &read.gemm.workspace_bytes));
  TRY(read_algo(entry, index, read.gemm.algo));
  read.n = (uint32_t)n;
  read.k = (uint32_t)k;
  read.y_f32 = strcmp(type, "f32") == 0;
  read.gemm.rows_min = (uint32_t)rows_min;
  read.gemm.rows_max = (uint32_t)rows_max;
  read.gemm.library_version = library_version;
  *out = read;
  return OK;
}

/* Ranges of one shape must not overlap: the algorithm would depend on the order of the file. */
static status check_overlap(const plan_product *entries, uint32_t count, const plan_product *entry, size_t index) {
  for (uint32_t i = 0; i < count; i++) {
    const plan_product *other = &entries[i];
    if (other->n == entry->n && other->k == entry->k && other->y_f32 == entry->y_f32 && other->gemm.rows_min <= entry->gemm.rows_max &&
        entry->gemm.rows_min <= other->gemm.rows_max)
      return FAIL(ERR_FORMAT, "profile: entry %zu: its rows overlap those of another entry for n %u, k %u", index, entry->n, entry->k);
  }
  return OK;
}

static status read_entries(const json_t *root, profile *self) {
  uint64_t version = 0;
  size_t index;
  json_t *item;
  const json_t *entries = json_object_get(root, "entries"), *library = json_object_get(root, "library_version");
  if (!json_is_array(entries) || json_array_size(entries) > PROFILE_ENTRIES_MAX)
    return FAIL(ERR_FORMAT, "profile: \"entries\": expected a list of at most %u objects", PROFILE_ENTRIES_MAX);
  if (!json_is_integer(library) || json_integer_value(library) < 0)
    return FAIL(ERR_FORMAT, "profile: \"library_version\": expected an integer");
  version = (uint64_t)json_integer_value(library);
  self->entries = calloc(json_array_size(entries) + 1, sizeof *self->entries);
  self->others = calloc(json_array_size(entries) + 1, sizeof *self->others);
  ASSERT(self->entries && self->others);
  json_array_foreach((json_t *)entries, index, item) {
    plan_product entry;
    bool use = false, certified = false;
    TRY(read_entry(item, index, version, &entry, &use, &certified));
    if (!use) continue;
    plan_product *kind = certified ? self->entries : self->others;
    uint32_t *count = certified ? &self->count : &self->other_count;
    TRY(check_overlap(kind, *count, &entry, index));
    kind[(*count)++] = entry;
  }
  return OK;
}

status profile_parse(const char *text, size_t bytes, profile *out) {
  json_error_t error;
  if (bytes > FILE_CONFIG_BYTES_MAX) return FAIL(ERR_LIMIT, "profile: %zu bytes, at most %u", bytes, FILE_CONFIG_BYTES_MAX);
  json_t *root = json_text_load_file(text, bytes, JSON_REJECT_DUPLICATES, &error);
  if (!root)
    return FAIL(json_text_fault(&error, ERR_FORMAT), "profile: line %d, column %d: %s", error.line, error.column, error.text);
  profile self = {0};
  status result = read_entries(root, &self);
  json_decref(root);
  if (result == OK) *out = self;
  else profile_free(&self);
  return result;
}

void profile_free(profile *self) {
  free(self->entries);
  free(self->others);
  *self = (profile){0};
}

void profile_make_optional(profile *self) {
  for (uint32_t i = 0; i < self->count; i++) self->entries[i].gemm.is_optional = 1;
  for (uint32_t i = 0; i < self->other_count; i++) self->others[i].gemm.is_optional = 1;
}

static uint32_t find_run(const draft *plan, const plan_gemm *run, uint32_t count) {
  const plan_gemm *gemms = plan->gemms.items;
  for (uint32_t first = 0; first + count <= plan->gemms.count; first++)
    if (memcmp(gemms + first, run, count * sizeof *run) == 0) return first;
  return DRAFT_NONE;
}

void profile_pin(const profile *self, draft *plan, uint32_t n, uint32_t k, uint32_t y_f32, uint32_t rows_min, uint32_t rows_max,
                 uint32_t *first, uint32_t *count, uint64_t *workspace_bytes) {
  uint32_t start = plan->gemms.count;
  for (uint32_t i = 0; i < self->count; i++) {
    const plan_product *entry = &self->entries[i];
    if (entry->n != n || entry->k != k || entry->y_f32 != y_f32) continue;
    plan_gemm pin = entry->gemm;
    pin.rows_min = max_u32(pin.rows_min, rows_min);
    pin.rows_max = min_u32(pin.rows_max, rows_max);
    if (pin.rows_min > pin.rows_max) continue;
    *(plan_gemm *)draft_append(&plan->gemms, 1) = pin;
    if (pin.workspace_bytes > *workspace_bytes) *workspace_bytes = pin.workspace_bytes;
  }
  *count = plan->gemms.count - start;
  *first = 0;
  if (*count == 0) return;
  const plan_gemm *run = (const plan_gemm *)plan->gemms.items + start;
  *first = find_run(plan, run, *count); /* finds at the latest the run itself */
  ASSERT(*first != DRAFT_NONE);
  if (*first + *count <= start) plan->gemms.count = start;
  else *first = start;
}
