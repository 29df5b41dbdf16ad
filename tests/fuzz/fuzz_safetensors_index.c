/* fuzz_safetensors_index.c - model.safetensors.index.json next to a fixed set of shards: sound, damaged, empty, a folder, a pipe, a link,
 * and a sound one outside. A second, independent reading of the index says whether it must be accepted and which tensors the set has. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "engine/weights/safetensors.h"
#include "fuzz.h"
#include <fcntl.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARD_TENSORS_MAX 3u

typedef struct shard { /* a file that may be named; its tensors have one byte each, equal to the name */
  const char *name;
  const char *tensors;
} shard;

static const shard SHARDS[] = {
    {"1.safetensors", "ab"}, {"2.safetensors", "c"}, {"again.safetensors", "cd"}, {"none.safetensors", ""}, {"link.safetensors", "o"}};
#define HEADER_ENTRY "%s\"%c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}"

static char scratch[64], folder[80], index_path[128];

static void join(char *path, size_t room, const char *dir, const char *name) {
  int length = snprintf(path, room, "%s/%s", dir, name);
  ASSERT(length > 0 && (size_t)length < room);
}

static void put_file(const char *dir, const char *name, const void *bytes, size_t count) {
  char path[160];
  join(path, sizeof path, dir, name);
  FILE *file = fopen(path, "wb");
  ASSERT(file != NULL && fwrite(bytes, 1, count, file) == count && fclose(file) == 0);
}

/* cut: bytes omitted at the end. */
static void put_shard(const char *dir, const char *name, const char *tensors, size_t cut) {
  char file[512] = "";
  size_t used = 8 + (size_t)sprintf(file + 8, "{"), count = strlen(tensors);
  for (size_t i = 0; i < count; i++) used += (size_t)sprintf(file + used, HEADER_ENTRY, i ? "," : "", tensors[i], i, i + 1);
  used += (size_t)sprintf(file + used, "}");
  file[0] = (char)(used - 8), file[1] = (char)((used - 8) >> 8);
  memcpy(file + used, tensors, count);
  put_file(dir, name, file, used + count - cut);
}

static void clean_up(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", scratch);
  if (system(command) != 0) fprintf(stderr, "%s is left behind\n", scratch);
}

static void make_folder(void) {
  char path[160];
  snprintf(scratch, sizeof scratch, "/tmp/verbatim-fuzz-XXXXXX");
  ASSERT(mkdtemp(scratch) != NULL);
  atexit(clean_up);
  join(folder, sizeof folder, scratch, "model");
  ASSERT(mkdir(folder, 0700) == 0);
  join(index_path, sizeof index_path, folder, "model.safetensors.index.json");
  for (size_t i = 0; i + 1 < ARRAY_LEN(SHARDS); i++) put_shard(folder, SHARDS[i].name, SHARDS[i].tensors, 0);
  put_shard(scratch, "outside.safetensors", "o", 0);
  put_shard(folder, "cut.safetensors", "x", 1);
  put_file(folder, "empty.safetensors", "", 0);
  join(path, sizeof path, folder, "link.safetensors"); /* as in the cache of Hugging Face */
  ASSERT(symlink("../outside.safetensors", path) == 0);
  join(path, sizeof path, folder, "folder.safetensors");
  ASSERT(mkdir(path, 0700) == 0);
  join(path, sizeof path, folder, "pipe.safetensors");
  ASSERT(mkfifo(path, 0600) == 0);
}

static const shard *find_shard(const char *name) {
  for (size_t i = 0; i < ARRAY_LEN(SHARDS); i++)
    if (strcmp(SHARDS[i].name, name) == 0) return &SHARDS[i];
  return NULL;
}

/* The tensors of all shards that the index names, or false if it must be refused: a tensor is not in its shard, or in two. */
static bool expect(const char *text, size_t bytes, char *tensors) {
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
  json_t *map = json_object_get(root, "weight_map"), *value;
  const char *name;
  bool is_named[ARRAY_LEN(SHARDS)] = {false}, is_good = json_object_size(map) > 0;
  size_t count = 0;
  json_object_foreach(map, name, value) {
    const shard *s = json_is_string(value) ? find_shard(json_string_value(value)) : NULL;
    if (s) is_named[s - SHARDS] = true;
    if (!s || strlen(name) != 1 || !strchr(s->tensors, name[0])) is_good = false;
  }
  json_decref(root);
  for (size_t i = 0; i < ARRAY_LEN(SHARDS); i++)
    for (const char *t = SHARDS[i].tensors; is_named[i] && *t; t++) {
      if (memchr(tensors, *t, count)) is_good = false;
      tensors[count++] = *t;
    }
  tensors[count] = 0;
  return is_good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  char tensors[ARRAY_LEN(SHARDS) * SHARD_TENSORS_MAX + 1];
  safetensors *set = NULL;
  if (!scratch[0]) make_folder();
  int file = open(index_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ASSERT(file >= 0 && write(file, data, bytes) == (ssize_t)bytes && close(file) == 0);
  fail_clear();
  bool is_accepted = fuzz_is_ok(safetensors_open(&set, folder));
  ASSERT(is_accepted == expect((const char *)data, bytes, tensors));
  if (!is_accepted) {
    ASSERT(set == NULL);
    return 0;
  }
  ASSERT(safetensors_count(set) == strlen(tensors));
  for (const char *t = tensors; *t; t++) {
    const safetensor *found = safetensors_find(set, (const char[]){*t, 0});
    uint8_t byte = 0;
    ASSERT(found != NULL && found->bytes == 1 && found->data[0] == (uint8_t)*t);
    ASSERT(safetensors_read(set, found, 0, &byte, 1) == OK && byte == (uint8_t)*t);
  }
  safetensors_close(set);
  return 0;
}
