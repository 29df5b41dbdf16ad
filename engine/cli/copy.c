/* cli/copy.c - `verbatim probe --copy`: the best rate at which a model's files can reach the GPU, for comparison with `verbatim run
 * --stats`.
 *
 * Three passes over all *.safetensors files: threads read parts into pinned slots while one thread uploads them to scratch memory, without
 * digests; then reading alone; then uploading alone. Needs no plan. Must not know tensors. Read next: staging.h, weights.c. */
#include "cli/cli.h"
#include "common/hub.h"
#include "base/clock.h"
#include "base/input_file.h"
#include "base/thread.h"
#include "gpu/gpu.h"
#include "gpu/staging.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096
#define PASSES 3u
#define THREADS_MAX STAGING_SLOTS_MAX
#define BLOCK_BYTES (STAGING_SLOTS_MAX * STAGING_SLOT_BYTES)
#define UPLOAD_ALONE_BYTES (16ull << 30)

typedef struct file {
  int fd;
  uint64_t bytes, first_part; /* first_part: the number of its first part */
} file;

typedef struct copy {
  const char *model_dir;
  char model_path[CLI_HUB_PATH_BYTES_MAX]; /* model_dir, if it was a name on the Hub */
  uint32_t threads, device_index;
  bool is_json;
  file *files;
  uint32_t file_count;
  uint64_t bytes, parts;
  gpu *device;
  staging_room room;
  uint64_t scratch;   /* device memory, as large as the slots together */
  staging ring;
  atomic_ullong next; /* the first part not taken yet */
  atomic_bool failed;
  fail_cause cause;   /* from the thread that set failed */
} copy;

/* === Files ================================================================================================================== */

static status add_file(copy *self, const char *path) {
  struct stat info;
  file *grown = realloc(self->files, (self->file_count + 1ull) * sizeof *grown);
  if (!grown) return FAIL(ERR_LIMIT, "no memory for a list of files");
  self->files = grown;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FAIL(ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
  self->files[self->file_count++] = (file){.fd = fd, .first_part = self->parts};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return FAIL(ERR_IO, "%s: not a regular file", path);
  self->files[self->file_count - 1].bytes = (uint64_t)info.st_size;
  self->bytes += (uint64_t)info.st_size;
  self->parts += div_up((uint64_t)info.st_size, STAGING_SLOT_BYTES);
  return OK;
}

static status open_files(copy *self) {
  static const char end[] = ".safetensors";
  TRY(input_file_check_model(self->model_dir));
  DIR *folder = opendir(self->model_dir);
  if (!folder) return FAIL(ERR_IO, "%s: cannot be opened: %s", self->model_dir, strerror(errno));
  status result = OK;
  for (const struct dirent *entry; result == OK && (entry = readdir(folder)) != NULL;) {
    char path[PATH_BYTES_MAX];
    size_t length = strlen(entry->d_name);
    if (length < sizeof end || strcmp(entry->d_name + length - (sizeof end - 1), end) != 0) continue;
    int path_bytes = snprintf(path, sizeof path, "%s/%s", self->model_dir, entry->d_name);
    bool fits = path_bytes > 0 && (size_t)path_bytes < sizeof path;
    result = fits ? add_file(self, path) : FAIL(ERR_LIMIT, "path too long: %s", self->model_dir);
  }
  closedir(folder);
  TRY(result);
  return self->bytes ? OK : FAIL(ERR_IO, "%s: expected *.safetensors files, found none", self->model_dir);
}

/* Reads a part into a slot; *bytes is its size. */
static status read_part(const copy *self, uint64_t part, uint8_t *slot, uint64_t *bytes) {
  uint32_t i = self->file_count - 1;
  while (self->files[i].first_part > part || self->files[i].bytes == 0) i--;
  const file *f = &self->files[i];
  uint64_t at = (part - f->first_part) * STAGING_SLOT_BYTES, left = f->bytes - at;
  uint64_t wanted = left < STAGING_SLOT_BYTES ? left : STAGING_SLOT_BYTES;
  for (uint64_t done = 0; done < wanted;) {
    ssize_t got = pread(f->fd, slot + done, (size_t)(wanted - done), (off_t)(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return FAIL(ERR_IO, "%s: a file cannot be read: %s", self->model_dir, got < 0 ? strerror(errno) : "it is truncated");
    done += (uint64_t)got;
  }
  *bytes = wanted;
  return OK;
}

/* === Passes ================================================================================================================= */

static bool next_part(copy *self, uint64_t *part) {
  *part = atomic_fetch_add(&self->next, 1);
  return *part < self->parts && !atomic_load(&self->failed);
}

static void note_failure(copy *self, status result) {
  bool expected = false;
  if (result != OK && atomic_compare_exchange_strong(&self->failed, &expected, true)) fail_take(&self->cause);
}

static void *fill_slots(void *argument) {
  copy *self = argument;
  for (uint64_t part; next_part(self, &part);) {
    uint64_t bytes = 0;
    uint8_t *slot = staging_take(&self->ring);
    note_failure(self, read_part(self, part, slot, &bytes));
    staging_put(&self->ring, slot, 0, self->scratch + (uint64_t)(slot - self->room.memory), bytes);
  }
  staging_leave(&self->ring);
  return NULL;
}

static void *read_only(void *argument) {
  copy *self = argument;
  uint8_t *slot = staging_take(&self->ring);
  uint64_t bytes;
  for (uint64_t part; next_part(self, &part);) note_failure(self, read_part(self, part, slot, &bytes));
  staging_put(&self->ring, slot, 0, self->scratch, 0);
  staging_leave(&self->ring);
  return NULL;
}

static status run_pass(copy *self, void *(*work)(void *), double *seconds) {
  pthread_t started[THREADS_MAX];
  uint32_t count = 0;
  double before = clock_seconds();
  atomic_store(&self->next, 0);
  staging_open(&self->ring, &self->room);
  for (; count < self->threads; count++) {
    staging_enter(&self->ring);
    if (thread_begin(&started[count], work, self) == 0) continue;
    staging_leave(&self->ring);
    break;
  }
  staging_upload(&self->ring, NULL, NULL);
  for (uint32_t i = 0; i < count; i++) pthread_join(started[i], NULL);
  staging_close(&self->ring);
  *seconds = clock_seconds() - before;
  if (atomic_load(&self->failed)) return fail_give(&self->cause);
  return count == self->threads ? OK : FAIL(ERR_LIMIT, "%u threads cannot be started", self->threads);
}

/* Measures the bus: uploads the whole pinned block again and again. */
static double upload_only(copy *self, uint64_t *bytes) {
  double before = clock_seconds();
  for (*bytes = 0; *bytes < self->bytes && *bytes < UPLOAD_ALONE_BYTES; *bytes += BLOCK_BYTES)
    gpu_upload(self->device, self->room.device[0].stream, self->scratch, self->room.memory, BLOCK_BYTES);
  gpu_sync(self->device, self->room.device[0].stream, "uploads");
  return clock_seconds() - before;
}

/* === Command ================================================================================================================ */

static status open_device(copy *self) {
  void *memory = NULL;
  const dynlib_search libraries = {.folders = getenv("VERBATIM_LIBRARY_PATH"), .program_path = getenv("PATH")};
  status result = gpu_open(self->device_index, &libraries, &self->device);
  if (result != OK) {
    fail_drop_hint(); /* it says to use the CPU, to which nothing is copied */
    fail_prefix("probe --copy measures a GPU, and none is available");
    return result;
  }
  staging_device *to = &self->room.device[0];
  to->device = self->device;
  self->room.slot_bytes = STAGING_SLOT_BYTES;
  self->room.slot_count = STAGING_SLOTS_MAX;
  TRY(gpu_stream_open(self->device, &to->stream));
  for (uint32_t i = 0; i < STAGING_SLOTS_MAX; i++) TRY(gpu_event_open(self->device, false, &to->events[i]));
  TRY(gpu_reserve(self->device, BLOCK_BYTES, &self->scratch));
  TRY(gpu_pin(self->device, BLOCK_BYTES, &memory));
  memset(memory, 1, BLOCK_BYTES);
  self->room.memory = memory;
  return OK;
}

static void tell(const copy *self, json_t *root, const char *what, uint64_t bytes, double seconds) {
  double gb_per_s = 1e-9 * (double)bytes / seconds;
  if (!self->is_json) printf("%-12s %8.3f GB in %7.3f s  %7.2f GB/s\n", what, 1e-9 * (double)bytes, seconds, gb_per_s);
  json_t *list = json_object_get(root, what);
  if (!list) json_object_set_new(root, what, list = json_array());
  json_array_append_new(list, json_pack("{s:I, s:f, s:f}", "bytes", (json_int_t)bytes, "seconds", seconds, "gb_per_s", gb_per_s));
}

static status measure(copy *self) {
  double seconds = 0;
  uint64_t bytes = 0;
  TRY(open_files(self));
  TRY(open_device(self));
  json_t *root = json_pack("{s:s, s:i, s:i, s:I}", "device", gpu_describe(self->device)->name, "threads", (int)self->threads, "files",
                           (int)self->file_count, "bytes", (json_int_t)self->bytes);
  if (!self->is_json) printf("%s, %u files, %u threads\n", gpu_describe(self->device)->name, self->file_count, self->threads);
  status result = OK;
  for (uint32_t i = 0; i < PASSES && result == OK; i++) {
    result = run_pass(self, fill_slots, &seconds);
    if (result == OK) tell(self, root, "copy", self->bytes, seconds);
  }
  if (result == OK) result = run_pass(self, read_only, &seconds);
  if (result == OK) {
    tell(self, root, "read_alone", self->bytes, seconds);
    seconds = upload_only(self, &bytes);
    tell(self, root, "upload_alone", bytes, seconds);
    if (self->is_json) json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6)), putchar('\n');
  }
  json_decref(root);
  return result;
}

/* Parses the value of the option argv[*i] and advances *i past it. */
static status read_number(char **argv, int *i, unsigned long least, unsigned long most, uint32_t *out) {
  const char *option = argv[*i], *text = argv[*i + 1] ? argv[*i + 1] : "";
  const char *digits = strncmp(text, "gpu:", 4) == 0 && strcmp(option, "--device") == 0 ? text + 4 : text;
  char *end = NULL;
  unsigned long value = *digits >= '0' && *digits <= '9' ? strtoul(digits, &end, 10) : 0;
  if (!end || *end || value < least || value > most)
    return FAIL(ERR_USAGE, "probe --copy: %s: expected a number of %lu to %lu, found \"%.40s\"", option, least, most, text);
  *out = (uint32_t)value;
  *i += 1;
  return OK;
}

static status read_arguments(copy *self, int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i];
    if (strcmp(word, "--copy") == 0) continue;
    if (strcmp(word, "--json") == 0) self->is_json = true;
    else if (strcmp(word, "--threads") == 0) TRY(read_number(argv, &i, 1, THREADS_MAX, &self->threads));
    else if (strcmp(word, "--device") == 0) TRY(read_number(argv, &i, 0, 1023, &self->device_index));
    else if (word[0] == '-' || self->model_dir)
      return FAIL(ERR_USAGE, "probe --copy: unexpected argument \"%.80s\"; hint: verbatim probe --help", word);
    else self->model_dir = word;
  }
  if (!self->model_dir) return FAIL(ERR_USAGE, "probe --copy: expected a model folder; hint: verbatim probe --help");
  return cli_hub_resolve(&self->model_dir, self->model_path);
}

int cli_copy(int argc, char **argv) {
  copy self = {.threads = staging_fillers()};
  status result = read_arguments(&self, argc, argv);
  if (result == OK) result = measure(&self);
  gpu_close(self.device);
  for (uint32_t i = 0; i < self.file_count; i++) close(self.files[i].fd);
  free(self.files);
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  return fail_exit_code(result);
}
