/* safetensors.c - see safetensors.h. A file is: u64 header size, JSON header {name: {dtype, shape, data_offsets}}, data. */
#include "weights/safetensors.h"
#include "base/json_text.h"
#include "base/input_file.h"
#include "base/digest.h"
#include "base/special_file.h"
#include "base/limits.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096
#define TENSORS_MAX (1u << 20)
#define INDEX_NAME "model.safetensors.index.json"

typedef struct mapped_file {
  char *name; /* file name, for messages */
  const uint8_t *bytes;
  uint64_t byte_count;
  void *mapping; /* null when the bytes are the caller's */
  int fd;        /* -1 in that case */
  json_t *header; /* owns the tensors' strings */
} mapped_file;

struct safetensors {
  mapped_file *files;
  uint32_t file_count;
  safetensor *tensors;
  uint32_t tensor_count, tensor_room;
  char **names; /* of tensors that are parts of others, one block per whole tensor */
  uint32_t name_count;
};

static const struct { const char *name; uint32_t bits; } DTYPES[] = {
  {"BF16", 16}, {"F16", 16}, {"F32", 32}, {"F64", 64}, {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"I8", 8},
  {"U8", 8}, {"I16", 16}, {"U16", 16}, {"I32", 32}, {"U32", 32}, {"I64", 64}, {"U64", 64}, {"BOOL", 8},
};

static uint32_t dtype_bits(const char *name) {
  for (size_t i = 0; i < ARRAY_LEN(DTYPES); i++)
    if (strcmp(DTYPES[i].name, name) == 0) return DTYPES[i].bits;
  return 0;
}

/* A non-negative integer of a JSON value. */
static status read_count(const mapped_file *file, const char *name, const json_t *value, uint64_t *count) {
  if (!json_is_integer(value) || json_integer_value(value) < 0)
    return FAIL(ERR_FORMAT, "%s: tensor %s: expected integers of 0 or more in shape and data_offsets", file->name, name);
  *count = (uint64_t)json_integer_value(value);
  return OK;
}

static status read_shape(const mapped_file *file, const json_t *shape, safetensor *tensor) {
  size_t rank = json_array_size(shape);
  if (!json_is_array(shape) || rank > SAFETENSORS_RANK_MAX)
    return FAIL(ERR_FORMAT, "%s: tensor %s: expected a shape of at most %u numbers", file->name, tensor->name, SAFETENSORS_RANK_MAX);
  uint64_t bytes = dtype_bits(tensor->dtype) / 8;
  for (size_t i = 0; i < rank; i++) {
    TRY(read_count(file, tensor->name, json_array_get(shape, i), &tensor->shape[i]));
    if (tensor->shape[i] && bytes > (UINT64_MAX >> 1) / tensor->shape[i])
      return FAIL(ERR_FORMAT, "%s: tensor %s: its shape overflows", file->name, tensor->name);
    bytes *= tensor->shape[i];
  }
  tensor->rank = (uint32_t)rank;
  tensor->bytes = bytes;
  return OK;
}

static status read_tensor(const mapped_file *file, const char *name, const json_t *entry, const uint8_t *data, uint64_t data_bytes,
                          safetensor *tensor) {
  *tensor = (safetensor){.name = name, .dtype = json_string_value(json_object_get(entry, "dtype"))};
  if (strlen(name) >= NAME_BYTES_MAX)
    return FAIL(ERR_LIMIT, "%s: a tensor's name has %zu bytes, at most %u are allowed", file->name, strlen(name), NAME_BYTES_MAX - 1);
  for (const char *c = name; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f) return FAIL(ERR_FORMAT, "%s: tensor %s: control byte in its name", file->name, name);
  if (!json_is_object(entry) || json_object_size(entry) != 3 || !tensor->dtype)
    return FAIL(ERR_FORMAT, "%s: tensor %s: expected exactly dtype, shape and data_offsets", file->name, name);
  if (!dtype_bits(tensor->dtype)) return FAIL(ERR_UNSUPPORTED, "%s: tensor %s: unknown dtype %.16s", file->name, name, tensor->dtype);
  TRY(read_shape(file, json_object_get(entry, "shape"), tensor));
  const json_t *offsets = json_object_get(entry, "data_offsets");
  uint64_t begin = 0, end = 0;
  if (!json_is_array(offsets) || json_array_size(offsets) != 2)
    return FAIL(ERR_FORMAT, "%s: tensor %s: expected two data_offsets", file->name, name);
  TRY(read_count(file, name, json_array_get(offsets, 0), &begin));
  TRY(read_count(file, name, json_array_get(offsets, 1), &end));
  if (begin > end || end > data_bytes)
    return FAIL(ERR_FORMAT, "%s: tensor %s: data_offsets %llu to %llu do not lie inside the %llu data bytes; hint: a truncated download?",
                file->name, name, (unsigned long long)begin, (unsigned long long)end, (unsigned long long)data_bytes);
  if (end - begin != tensor->bytes)
    return FAIL(ERR_FORMAT, "%s: tensor %s: dtype and shape make %llu bytes, data_offsets %llu", file->name, name,
                (unsigned long long)tensor->bytes, (unsigned long long)(end - begin));
  tensor->data = data + begin;
  return OK;
}

static int compare_place(const void *a, const void *b) {
  const safetensor *x = a, *y = b;
  if (x->data != y->data) return x->data < y->data ? -1 : 1;
  return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int compare_name(const void *a, const void *b) {
  return strcmp(((const safetensor *)a)->name, ((const safetensor *)b)->name);
}

/* The data area must be covered exactly: a hole or an overlap means that header and data do not belong together. */
static status check_cover(const mapped_file *file, safetensor *tensors, uint32_t count, const uint8_t *data, uint64_t data_bytes) {
  qsort(tensors, count, sizeof *tensors, compare_place);
  const uint8_t *end = data;
  for (uint32_t i = 0; i < count; i++) {
    if (tensors[i].data != end)
      return FAIL(ERR_FORMAT, "%s: tensor %s %s the tensor before it", file->name, tensors[i].name,
                  tensors[i].data < end ? "overlaps" : "leaves a hole after");
    end += tensors[i].bytes;
  }
  if (end != data + data_bytes)
    return FAIL(ERR_FORMAT, "%s: %llu bytes at the end belong to no tensor", file->name, (unsigned long long)(data + data_bytes - end));
  return OK;
}

/* Files that this program writes say what their data are: a flipped bit of a scale would give other outputs. */
static status check_data(const mapped_file *file, const uint8_t *data, uint64_t data_bytes) {
  const json_t *stated = json_object_get(json_object_get(file->header, "__metadata__"), SAFETENSORS_DATA_DIGEST);
  char text[DIGEST_TEXT_BYTES];
  if (!stated) return OK;
  const digest found = digest_of(data, (size_t)data_bytes);
  if (json_is_string(stated) && strcmp(json_string_value(stated), digest_text(found.bytes, text)) == 0) return OK;
  return FAIL(ERR_MISMATCH, "%s: its data do not have the digest that its header states: the file is damaged; hint: write it again",
              file->name);
}

static status room_for(safetensors *set, size_t more) {
  if (more > TENSORS_MAX || set->tensor_count + more > TENSORS_MAX)
    return FAIL(ERR_LIMIT, "safetensors: more than %u tensors", TENSORS_MAX);
  if (set->tensor_count + more < set->tensor_room) return OK;
  uint32_t room = set->tensor_count + (uint32_t)more + 1; /* a list of no tensors is not null */
  safetensor *grown = realloc(set->tensors, room * sizeof *grown);
  if (!grown) return FAIL(ERR_LIMIT, "safetensors: no memory for %u tensors", room);
  set->tensors = grown;
  set->tensor_room = room;
  return OK;
}

/* A clone without git-lfs holds a small text in place of each large file. */
static bool is_lfs_pointer(const mapped_file *file) {
  static const char first_line[] = "version https://git-lfs.github.com/spec/";
  return file->byte_count >= sizeof first_line - 1 && memcmp(file->bytes, first_line, sizeof first_line - 1) == 0;
}

static status read_header(safetensors *set, mapped_file *file) {
  uint64_t header_bytes = 0;
  if (is_lfs_pointer(file))
    return FAIL(ERR_FORMAT, "%s: expected weights, found a git-lfs pointer; hint: git lfs pull in the model's folder", file->name);
  if (file->byte_count < 8)
    return FAIL(ERR_FORMAT, "%s: expected at least 8 bytes, found %llu", file->name, (unsigned long long)file->byte_count);
  for (int i = 7; i >= 0; i--) header_bytes = header_bytes << 8 | file->bytes[i];
  if (header_bytes > SAFETENSORS_HEADER_BYTES_MAX || header_bytes > file->byte_count - 8)
    return FAIL(ERR_FORMAT, "%s: a header of %llu bytes does not fit the file of %llu (limit %u)", file->name,
                (unsigned long long)header_bytes, (unsigned long long)file->byte_count, SAFETENSORS_HEADER_BYTES_MAX);
  json_error_t error;
  file->header = json_text_load((const char *)file->bytes + 8, (size_t)header_bytes, JSON_REJECT_DUPLICATES, &error);
  if (!json_is_object(file->header))
    return FAIL(file->header ? ERR_FORMAT : json_text_fault(&error, ERR_FORMAT), "%s: header: expected a JSON object: %s", file->name,
                file->header ? "found another value" : error.text);
  const uint8_t *data = file->bytes + 8 + header_bytes;
  uint64_t data_bytes = file->byte_count - 8 - header_bytes;
  TRY(room_for(set, json_object_size(file->header)));
  uint32_t first = set->tensor_count, count = 0;
  const char *name;
  json_t *entry;
  json_object_foreach(file->header, name, entry) {
    if (strcmp(name, "__metadata__") == 0) continue;
    TRY(read_tensor(file, name, entry, data, data_bytes, &set->tensors[first + count]));
    set->tensors[first + count].file = (uint32_t)(file - set->files);
    count++;
  }
  TRY(check_cover(file, set->tensors + first, count, data, data_bytes));
  TRY(check_data(file, data, data_bytes));
  set->tensor_count += count;
  return OK;
}

static status map_file(const char *dir, mapped_file *file) {
  char path[PATH_BYTES_MAX];
  int length = snprintf(path, sizeof path, "%s/%s", dir, file->name);
  if (length < 0 || (size_t)length >= sizeof path) return FAIL(ERR_LIMIT, "path too long: %s/%s", dir, file->name);
  TRY(input_file_check(path, INPUT_WEIGHTS));
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* never waits, even for a pipe that has just taken the file's place */
  if (fd < 0) return FAIL(ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
  struct stat info;
  status result = OK;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) result = FAIL(ERR_IO, "%s: not a regular file", path);
  else if (info.st_size < 8) result = FAIL(ERR_FORMAT, "%s: expected at least 8 bytes, found %lld", path, (long long)info.st_size);
  else {
    void *mapping = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapping == MAP_FAILED) result = FAIL(ERR_IO, "%s: cannot be mapped: %s", path, strerror(errno));
    else file->mapping = mapping, file->bytes = mapping, file->byte_count = (uint64_t)info.st_size;
  }
  if (result == OK) file->fd = fd;
  else close(fd);
  return result;
}

static void unmap_file(mapped_file *file) {
  if (file->mapping) munmap(file->mapping, (size_t)file->byte_count);
  if (file->fd >= 0) close(file->fd);
}

static char *copy_text(const char *text) {
  size_t bytes = strlen(text) + 1;
  char *copy = malloc(bytes);
  if (copy) memcpy(copy, text, bytes);
  return copy;
}

static status add_file(safetensors *set, const char *name) {
  if (set->file_count == SAFETENSORS_FILES_MAX) return FAIL(ERR_LIMIT, "safetensors: more than %u files", SAFETENSORS_FILES_MAX);
  mapped_file *files = realloc(set->files, (set->file_count + 1) * sizeof *files);
  if (!files) return FAIL(ERR_LIMIT, "safetensors: no memory");
  set->files = files;
  files[set->file_count] = (mapped_file){.name = copy_text(name), .fd = -1};
  if (!files[set->file_count].name) return FAIL(ERR_LIMIT, "safetensors: no memory");
  set->file_count++;
  return OK;
}

static const mapped_file *find_file(const safetensors *set, const char *name) {
  for (uint32_t i = 0; i < set->file_count; i++)
    if (strcmp(set->files[i].name, name) == 0) return &set->files[i];
  return NULL;
}

static status read_weight_map(safetensors *set, const json_t *map) {
  if (!json_is_object(map) || json_object_size(map) == 0) return FAIL(ERR_FORMAT, INDEX_NAME ": expected an object weight_map");
  const char *tensor;
  json_t *value;
  json_object_foreach((json_t *)map, tensor, value) {
    const char *name = json_string_value(value);
    if (!name || !*name || strchr(name, '/') || name[0] == '.' || strlen(name) >= NAME_BYTES_MAX)
      return FAIL(ERR_FORMAT, INDEX_NAME ": tensor %.200s: expected the plain name of a file beside it", tensor);
    if (!find_file(set, name)) TRY(add_file(set, name));
  }
  return OK;
}

/* Every tensor of the index must be in the file the index names. */
static status check_weight_map(const safetensors *set, const json_t *map) {
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)map, name, value) {
    const mapped_file *file = find_file(set, json_string_value(value));
    const safetensor *tensor = safetensors_find(set, name);
    if (!tensor || tensor->data < file->bytes || tensor->data > file->bytes + file->byte_count)
      return FAIL(ERR_FORMAT, INDEX_NAME ": tensor %.200s is not in %s", name, file->name);
  }
  return OK;
}

static status sort_tensors(safetensors *set) {
  qsort(set->tensors, set->tensor_count, sizeof *set->tensors, compare_name);
  for (uint32_t i = 1; i < set->tensor_count; i++) {
    const safetensor *a = &set->tensors[i - 1], *b = &set->tensors[i];
    if (strcmp(a->name, b->name) == 0)
      return FAIL(ERR_FORMAT, "safetensors: tensor %s is in two files, %s and %s", a->name, set->files[min_u32(a->file, b->file)].name,
                  set->files[max_u32(a->file, b->file)].name);
  }
  return OK;
}

static status load_index(const char *dir, json_t **index) {
  mapped_file file = {.name = (char *)(uintptr_t)INDEX_NAME, .fd = -1};
  TRY(map_file(dir, &file));
  json_error_t error;
  status result = OK;
  if (file.byte_count > SAFETENSORS_HEADER_BYTES_MAX)
    result = FAIL(ERR_LIMIT, INDEX_NAME ": more than %u bytes", SAFETENSORS_HEADER_BYTES_MAX);
  else if (!(*index = json_text_load_file((const char *)file.bytes, (size_t)file.byte_count, JSON_REJECT_DUPLICATES, &error)))
    result = FAIL(json_text_fault(&error, ERR_FORMAT), INDEX_NAME ": not JSON: %s (line %d)", error.text, error.line);
  unmap_file(&file);
  return result;
}

/* Any set may have this file: `verbatim calibrate` writes it next to the model's own files, which do not mention it. */
static status add_scales(safetensors *set, const char *dir) {
  char path[PATH_BYTES_MAX];
  int length = snprintf(path, sizeof path, "%s/" SAFETENSORS_KV_SCALES, dir);
  bool is_there = length > 0 && (size_t)length < sizeof path && special_file_is_there(path);
  return is_there && !find_file(set, SAFETENSORS_KV_SCALES) ? add_file(set, SAFETENSORS_KV_SCALES) : OK;
}

static status read_files(safetensors *set, const char *dir) {
  TRY(add_scales(set, dir));
  for (uint32_t i = 0; i < set->file_count; i++) {
    TRY(map_file(dir, &set->files[i]));
    TRY(read_header(set, &set->files[i]));
  }
  return sort_tensors(set);
}

static bool ends_with(const char *text, const char *end) {
  size_t bytes = strlen(text), end_bytes = strlen(end);
  return bytes >= end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

/* A folder with neither an index nor model.safetensors may hold shards, which only an index tells from files of another model. */
static status check_lone_shards(const char *dir) {
  char found[NAME_BYTES_MAX] = "";
  uint32_t count = 0;
  DIR *folder = opendir(dir);
  for (const struct dirent *entry = NULL; folder && (entry = readdir(folder));) {
    if (!strstr(entry->d_name, "-of-") || !ends_with(entry->d_name, ".safetensors")) continue;
    if (count++ == 0 || strcmp(entry->d_name, found) < 0) snprintf(found, sizeof found, "%.*s", (int)sizeof found - 1, entry->d_name);
  }
  if (folder) closedir(folder);
  if (count == 0) return OK;
  return FAIL(ERR_FORMAT, "%s: expected " INDEX_NAME ", found %u shards without it (%s); hint: download the index too", dir, count, found);
}

static status open_set(safetensors *set, const char *dir) {
  char path[PATH_BYTES_MAX];
  TRY(input_file_check_model(dir));
  int length = snprintf(path, sizeof path, "%s/" INDEX_NAME, dir);
  if (length < 0 || (size_t)length >= sizeof path) return FAIL(ERR_LIMIT, "path too long: %s", dir);
  if (!special_file_is_there(path)) {
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (!special_file_is_there(path)) TRY(check_lone_shards(dir));
    TRY(add_file(set, "model.safetensors"));
    return read_files(set, dir);
  }
  json_t *index = NULL;
  status result = load_index(dir, &index);
  const json_t *map = json_object_get(index, "weight_map");
  if (result == OK) result = read_weight_map(set, map);
  if (result == OK) result = read_files(set, dir);
  if (result == OK) result = check_weight_map(set, map);
  json_decref(index);
  return result;
}

/* === Experts stored together ============================================================================================ */

/* Some checkpoints (HF's of mistral4) keep the experts of a layer in two tensors: P.experts.gate_up_proj [experts][2 * inner][hidden],
 * with the gate first for each expert, and P.experts.down_proj [experts][hidden][inner]. They are listed under the names of other
 * checkpoints: P.experts.N.gate_proj.weight and so on. */
static const struct stack { const char *end; uint32_t parts; const char *names[2]; } STACKS[] = {
  {".experts.gate_up_proj", 2, {"gate_proj", "up_proj"}}, {".experts.down_proj", 1, {"down_proj", NULL}},
};

static const struct stack *stack_of(const safetensor *tensor) {
  size_t length = strlen(tensor->name);
  for (size_t i = 0; i < ARRAY_LEN(STACKS); i++) {
    size_t end = strlen(STACKS[i].end);
    if (length < end || strcmp(tensor->name + length - end, STACKS[i].end) != 0) continue;
    bool fits = tensor->rank == 3 && tensor->shape[0] > 0 && tensor->shape[0] <= EXPERTS_MAX && tensor->shape[1] % STACKS[i].parts == 0;
    return fits ? &STACKS[i] : NULL;
  }
  return NULL;
}

static status add_names(safetensors *set, uint32_t count, char **block) {
  char **grown = realloc(set->names, (set->name_count + 1ull) * sizeof *grown);
  if (!grown) return FAIL(ERR_LIMIT, "safetensors: no memory");
  set->names = grown;
  grown[set->name_count] = malloc((size_t)count * NAME_BYTES_MAX);
  if (!grown[set->name_count]) return FAIL(ERR_LIMIT, "safetensors: no memory");
  *block = grown[set->name_count++];
  return OK;
}

/* The first part replaces the whole tensor, and the others follow at the end. */
static status split_stack(safetensors *set, uint32_t index, const struct stack *stack) {
  const safetensor whole = set->tensors[index];
  uint32_t count = (uint32_t)whole.shape[0] * stack->parts;
  int stem = (int)(strrchr(whole.name, '.') - whole.name);
  char *name = NULL;
  TRY(room_for(set, count - 1));
  TRY(add_names(set, count, &name));
  for (uint32_t i = 0; i < count; i++, name += NAME_BYTES_MAX) {
    safetensor *part = i == 0 ? &set->tensors[index] : &set->tensors[set->tensor_count++];
    const char *end = stack->names[i % stack->parts];
    int length = snprintf(name, NAME_BYTES_MAX, "%.*s.%u.%s.weight", stem, whole.name, i / stack->parts, end);
    if (length < 0 || length >= (int)NAME_BYTES_MAX) return FAIL(ERR_LIMIT, "safetensors: the name of tensor %s is too long", whole.name);
    *part = whole;
    part->name = name;
    part->rank = 2;
    part->shape[0] = whole.shape[1] / stack->parts;
    part->shape[1] = whole.shape[2];
    part->shape[2] = 0;
    part->bytes = whole.bytes / count;
    part->data = whole.data + i * part->bytes;
  }
  return OK;
}

static status split_stacks(safetensors *set) {
  uint32_t count = set->tensor_count;
  for (uint32_t i = 0; i < count; i++) {
    const struct stack *stack = stack_of(&set->tensors[i]);
    if (stack) TRY(split_stack(set, i, stack));
  }
  return set->name_count > 0 ? sort_tensors(set) : OK;
}

/* === Opening ============================================================================================================ */

static status finish_open(safetensors *made, status result, safetensors **set) {
  if (result == OK) result = split_stacks(made);
  if (result != OK) safetensors_close(made);
  else *set = made;
  return result;
}

status safetensors_open(safetensors **set, const char *model_dir) {
  safetensors *made = calloc(1, sizeof *made);
  if (!made) return FAIL(ERR_LIMIT, "safetensors: no memory");
  return finish_open(made, open_set(made, model_dir), set);
}

status safetensors_view(safetensors **set, const void *bytes, size_t byte_count) {
  safetensors *made = calloc(1, sizeof *made);
  if (!made) return FAIL(ERR_LIMIT, "safetensors: no memory");
  status result = add_file(made, "(memory)");
  if (result == OK) {
    made->files[0].bytes = bytes;
    made->files[0].byte_count = byte_count;
    result = read_header(made, &made->files[0]);
  }
  if (result == OK) result = sort_tensors(made);
  return finish_open(made, result, set);
}

void safetensors_close(safetensors *set) {
  if (!set) return;
  for (uint32_t i = 0; i < set->file_count; i++) {
    json_decref(set->files[i].header);
    unmap_file(&set->files[i]);
    free(set->files[i].name);
  }
  for (uint32_t i = 0; i < set->name_count; i++) free(set->names[i]);
  free(set->names);
  free(set->files);
  free(set->tensors);
  free(set);
}

uint32_t safetensors_count(const safetensors *set) { return set->tensor_count; }

const safetensor *safetensors_at(const safetensors *set, uint32_t index) {
  ASSERT(index < set->tensor_count);
  return &set->tensors[index];
}

const safetensor *safetensors_find(const safetensors *set, const char *name) {
  safetensor key = {.name = name};
  return set->tensor_count ? bsearch(&key, set->tensors, set->tensor_count, sizeof key, compare_name) : NULL;
}

status safetensors_read(const safetensors *set, const safetensor *tensor, uint64_t offset, void *out, size_t bytes) {
  ASSERT(offset <= tensor->bytes && bytes <= tensor->bytes - offset);
  const mapped_file *file = &set->files[tensor->file];
  if (file->fd < 0) {
    if (bytes) memcpy(out, tensor->data + offset, bytes);
    return OK;
  }
  off_t at = (off_t)(tensor->data - file->bytes) + (off_t)offset;
  for (size_t done = 0; done < bytes;) {
    ssize_t part = pread(file->fd, (uint8_t *)out + done, bytes - done, at + (off_t)done);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return FAIL(ERR_IO, "%s: tensor %s cannot be read: %s", file->name, tensor->name, strerror(errno));
    if (part == 0) return FAIL(ERR_IO, "%s: tensor %s: the file was cut while it was read", file->name, tensor->name);
    done += (size_t)part;
  }
  return OK;
}
