/* fuzz_safetensors.c - safetensors files. An accepted set equals the result of a second, independent reading of the header: sorted,
 * covering the data exactly, readable to the end; and it survives being written out and read again. Half of the mutations correct the size
 * of the header. */
#include "engine/weights/safetensors.h"
#include "fuzz.h"
#include <jansson.h>

#define SIZE_BYTES 8u

static uint64_t read_size(const uint8_t *data) {
  uint64_t size = 0;
  for (int i = 7; i >= 0; i--) size = size << 8 | data[i];
  return size;
}

static void write_size(uint8_t *data, uint64_t size) {
  for (int i = 0; i < 8; i++) data[i] = (uint8_t)(size >> (8 * i));
}

/* Mutates only the header and moves the data after it. */
static size_t mutate_header(uint8_t *data, size_t bytes, size_t room) {
  size_t header_bytes = (size_t)read_size(data), data_bytes = bytes - SIZE_BYTES - header_bytes;
  uint8_t *header = malloc(room), *tail = malloc(data_bytes + 1);
  ASSERT(header != NULL && tail != NULL);
  memcpy(header, data + SIZE_BYTES, header_bytes);
  memcpy(tail, data + SIZE_BYTES + header_bytes, data_bytes);
  header_bytes = LLVMFuzzerMutate(header, header_bytes, room - SIZE_BYTES - data_bytes);
  memcpy(data + SIZE_BYTES, header, header_bytes);
  memcpy(data + SIZE_BYTES + header_bytes, tail, data_bytes);
  write_size(data, header_bytes);
  free(header);
  free(tail);
  return SIZE_BYTES + header_bytes + data_bytes;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t room, unsigned seed) {
  bool has_header = bytes >= SIZE_BYTES && read_size(data) <= bytes - SIZE_BYTES && bytes < room;
  return has_header && seed % 2 ? mutate_header(data, bytes, room) : LLVMFuzzerMutate(data, bytes, room);
}

static uint64_t item_bytes(const char *dtype) {
  static const char *const NAMES[] = {"BF16", "F16", "F32", "F64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "I8",
                                      "U8",   "I16", "U16", "I32", "U32",     "I64",     "U64",     "BOOL"};
  static const uint8_t BYTES[] = {2, 2, 4, 8, 1, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 1};
  for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
    if (strcmp(NAMES[i], dtype) == 0) return BYTES[i];
  return 0;
}

/* Every byte of the data area belongs to one tensor. */
static void check_set(const safetensors *set, const uint8_t *area, size_t area_bytes) {
  uint8_t *owned = calloc(area_bytes + 1, 1);
  ASSERT(owned != NULL);
  uint64_t total = 0;
  for (uint32_t i = 0; i < safetensors_count(set); i++) {
    const safetensor *t = safetensors_at(set, i);
    uint64_t bytes = item_bytes(t->dtype);
    ASSERT(safetensors_find(set, t->name) == t && bytes > 0 && t->rank <= SAFETENSORS_RANK_MAX);
    ASSERT(i == 0 || strcmp(safetensors_at(set, i - 1)->name, t->name) < 0);
    for (uint32_t r = 0; r < t->rank; r++) bytes *= t->shape[r];
    ASSERT(bytes == t->bytes && t->data >= area && t->data + t->bytes <= area + area_bytes);
    for (uint64_t b = 0; b < t->bytes; b++) ASSERT(owned[t->data - area + (int64_t)b]++ == 0);
    total += t->bytes;
  }
  ASSERT(total == area_bytes);
  free(owned);
}

/* Compares with the header, name by name. */
static void check_header(const safetensors *set, const uint8_t *data) {
  json_t *header = json_loadb((const char *)data + SIZE_BYTES, (size_t)read_size(data), JSON_REJECT_DUPLICATES, NULL), *entry;
  const char *name;
  uint32_t count = 0;
  ASSERT(json_is_object(header));
  json_object_foreach(header, name, entry) {
    if (strcmp(name, "__metadata__") == 0) continue;
    const safetensor *t = safetensors_find(set, name);
    ASSERT(t != NULL);
    const json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
    const uint8_t *area = data + SIZE_BYTES + read_size(data);
    ASSERT(strcmp(t->dtype, json_string_value(json_object_get(entry, "dtype"))) == 0);
    ASSERT(json_array_size(shape) == t->rank && json_array_size(offsets) == 2);
    for (uint32_t r = 0; r < t->rank; r++) ASSERT((uint64_t)json_integer_value(json_array_get(shape, r)) == t->shape[r]);
    ASSERT(json_integer_value(json_array_get(offsets, 0)) == t->data - area);
    ASSERT(json_integer_value(json_array_get(offsets, 1)) == t->data - area + (int64_t)t->bytes);
    count++;
  }
  ASSERT(count == safetensors_count(set));
  json_decref(header);
}

/* A name as JSON: bytes above ASCII stay. */
static size_t write_name(char *text, const char *name) {
  size_t used = 0;
  for (; *name; name++) used += (size_t)sprintf(text + used, *name == '"' || *name == '\\' ? "\\%c" : "%c", *name);
  return used;
}

/* The set as a file of its own, in the order of names, which the caller frees. */
static uint8_t *write_set(const safetensors *set, size_t area_bytes, size_t *bytes) {
  uint32_t count = safetensors_count(set);
  uint8_t *file = malloc(64 + area_bytes + (size_t)count * 1024);
  ASSERT(file != NULL);
  char *header = (char *)file + SIZE_BYTES;
  size_t used = (size_t)sprintf(header, "{"), at = 0;
  for (uint32_t i = 0; i < count; i++) {
    const safetensor *t = safetensors_at(set, i);
    used += (size_t)sprintf(header + used, "%s\"", i ? "," : "");
    used += write_name(header + used, t->name);
    used += (size_t)sprintf(header + used, "\":{\"dtype\":\"%s\",\"shape\":[", t->dtype);
    for (uint32_t r = 0; r < t->rank; r++) used += (size_t)sprintf(header + used, "%s%llu", r ? "," : "", (unsigned long long)t->shape[r]);
    used += (size_t)sprintf(header + used, "],\"data_offsets\":[%zu,%zu]}", at, at + (size_t)t->bytes);
    at += (size_t)t->bytes;
  }
  used += (size_t)sprintf(header + used, "}");
  write_size(file, used);
  for (uint32_t i = 0; i < count; i++) {
    const safetensor *t = safetensors_at(set, i);
    ASSERT(safetensors_read(set, t, 0, header + used, (size_t)t->bytes) == OK);
    used += (size_t)t->bytes;
  }
  *bytes = SIZE_BYTES + used;
  return file;
}

static void check_same(const safetensors *a, const safetensors *b) {
  ASSERT(safetensors_count(a) == safetensors_count(b));
  for (uint32_t i = 0; i < safetensors_count(a); i++) {
    const safetensor *x = safetensors_at(a, i), *y = safetensors_at(b, i);
    ASSERT(strcmp(x->name, y->name) == 0 && strcmp(x->dtype, y->dtype) == 0 && x->rank == y->rank && x->bytes == y->bytes);
    ASSERT(memcmp(x->shape, y->shape, x->rank * sizeof x->shape[0]) == 0 && memcmp(x->data, y->data, (size_t)x->bytes) == 0);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  safetensors *set = NULL, *again = NULL;
  size_t written_bytes;
  fail_clear();
  if (!fuzz_is_ok(safetensors_view(&set, data, bytes))) {
    ASSERT(set == NULL);
    return 0;
  }
  size_t area = SIZE_BYTES + (size_t)read_size(data);
  check_set(set, data + area, bytes - area);
  check_header(set, data);
  uint8_t *written = write_set(set, bytes - area, &written_bytes);
  ASSERT(safetensors_view(&again, written, written_bytes) == OK);
  check_same(set, again);
  safetensors_close(again);
  safetensors_close(set);
  free(written);
  return 0;
}
