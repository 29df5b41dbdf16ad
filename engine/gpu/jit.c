/* jit.c - the only file that calls NVRTC, and the folder of cubins (see jit.h).
 *
 * Compiling takes most of a first start (4 s for V2-Lite's 19 kernels on one core, 1 s of it for mla_attn), and NVRTC can compile several
 * programs at once, so threads share the kernels that the folder lacks.
 * A cache entry is one file <kernel>-<key>.vjit: entry_header, the cubin, then the spec text and source for reading. It is written under a
 * temporary name, synced and renamed, so that a reader sees a whole entry or none, whatever other processes do. An entry is used only if
 * its size, its key and the digest of all its bytes are right. Read next: cuda_api.h. */
#include "gpu/jit.h"
#include "gpu/cuda_api.h"
#include "base/dynlib.h"
#include "base/folder.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define ENTRY_TAG "verbatim-cubin 1"
#define ENTRY_MAGIC "VJIT\r\n\x1a" /* 8 bytes */
#define ENTRY_BYTES_MAX (64u << 20)
#define PATH_BYTES_MAX 4096u
#define LOG_SHOWN_MAX 700
#define THREADS_MAX 64u
#define STACK_BYTES (64u << 20) /* address space only: a compiler recurses as deep as its input */

/* One list for every kernel; part of the key. Contraction, flushing and approximate division are off: arithmetic is as written. */
static const char *const options[] = {
    "--gpu-architecture=sm_90a", "--std=c++17",     "--no-source-include", "--fmad=false",
    "--ftz=false",               "--prec-div=true", "--prec-sqrt=true",
};

typedef struct nvrtc {
  NVRTC_API(CUDA_API_MEMBER)
} nvrtc;

typedef struct entry_header {
  char magic[8];
  uint32_t header_bytes, pad;
  uint8_t key[16];
  uint64_t cubin_bytes, text_bytes;
  uint8_t digest[16]; /* XXH3-128 of the file with these bytes zero */
} entry_header;
_Static_assert(sizeof(entry_header) == 64, "layout");

typedef struct block { /* memory given to callers, freed by jit_close */
  struct block *next;
} block;

struct jit {
  nvrtc api;
  dynlib library;
  int major, minor;
  uint64_t library_bytes;
  const kernel_source *sources;
  size_t source_count;
  pthread_mutex_t lock; /* protects blocks and note while units are compiled */
  block *blocks;
  char cache_dir[PATH_BYTES_MAX]; /* "": no cache */
  char note[FAIL_TEXT_MAX];
};

typedef struct unit { /* one thing to compile */
  const char *kernel;
  const char *source;
  char *spec; /* text of spec.cuh */
  uint8_t key[16];
  char key_hex[33];
  jit_cubin_view made; /* bytes null: to be compiled    */
  fail_cause cause;    /* reason why it is not compiled */
} unit;

/* === Opening and closing =================================================================================================== */

static status open_library(jit *self, const dynlib_search *search) {
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", NULL};
  TRY(dynlib_open(search, names, "NVRTC", "install CUDA 13 or the Python wheel nvidia-cuda-nvrtc, or use --device cpu", &self->library));
  nvrtc *API = &self->api;
  const dynlib_symbol symbols[] = {NVRTC_API(CUDA_API_SYMBOL)};
  TRY(dynlib_resolve(&self->library, symbols, ARRAY_LEN(symbols)));
  if (self->api.nvrtcVersion(&self->major, &self->minor) != 0)
    return FAIL(ERR_DEVICE, "%s does not tell its version", self->library.path);
  struct stat file; /* the size distinguishes two updates with one version number */
  if (stat(self->library.path, &file) == 0) self->library_bytes = (uint64_t)file.st_size;
  return OK;
}

static void write_note(jit *self, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void write_note(jit *self, const char *format, ...) {
  va_list args;
  va_start(args, format);
  pthread_mutex_lock(&self->lock);
  vsnprintf(self->note, sizeof self->note, format, args);
  pthread_mutex_unlock(&self->lock);
  va_end(args);
}

static void open_cache(jit *self, const char *cache_dir) {
  size_t bytes = strlen(cache_dir);
  if (bytes == 0 || bytes >= sizeof self->cache_dir) {
    write_note(self, "kernel cache: not in use: a path of %zu bytes", bytes);
    return;
  }
  if (folder_make(cache_dir) != OK) {
    fail_clear();
    write_note(self, "kernel cache: not in use: %s cannot be made or written", cache_dir);
    return;
  }
  memcpy(self->cache_dir, cache_dir, bytes + 1);
}

status jit_open(const dynlib_search *search, const char *cache_dir, const kernel_source *sources, size_t source_count, jit **out) {
  ASSERT(out);
  jit *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "no memory for %zu bytes", sizeof *self);
  pthread_mutex_init(&self->lock, NULL);
  self->sources = sources ? sources : kernel_sources;
  self->source_count = sources ? source_count : kernel_sources_count;
  status s = open_library(self, search);
  if (s != OK) {
    jit_close(self);
    return s;
  }
  if (cache_dir) open_cache(self, cache_dir);
  *out = self;
  return OK;
}

void jit_close(jit *self) {
  if (!self) return;
  while (self->blocks) {
    block *next = self->blocks->next;
    free(self->blocks);
    self->blocks = next;
  }
  dynlib_close(&self->library);
  pthread_mutex_destroy(&self->lock);
  free(self);
}

void jit_version(const jit *self, int *major, int *minor) {
  *major = self->major;
  *minor = self->minor;
}

const char *jit_path(const jit *self) { return self->library.path; }
const char *jit_note(const jit *self) { return self->note; }

static status take_memory(jit *self, size_t bytes, void **out) {
  block *made = malloc(sizeof *made + 16 + bytes);
  if (!made) return FAIL(ERR_LIMIT, "no memory for %zu bytes", bytes);
  pthread_mutex_lock(&self->lock);
  made->next = self->blocks;
  self->blocks = made;
  pthread_mutex_unlock(&self->lock);
  *out = (char *)made + 16; /* has malloc's alignment */
  return OK;
}

/* === Sources and keys ====================================================================================================== */

static bool is_header(const kernel_source *source) {
  size_t bytes = strlen(source->name);
  return !(bytes > 3 && strcmp(source->name + bytes - 3, ".cu") == 0);
}

static const char *find_source(const jit *self, const char *kernel) {
  size_t bytes = strlen(kernel);
  for (size_t i = 0; i < self->source_count; i++) {
    const char *folder = strrchr(self->sources[i].name, '/'), *name = folder ? folder + 1 : self->sources[i].name;
    if (strncmp(name, kernel, bytes) == 0 && strcmp(name + bytes, ".cu") == 0) return self->sources[i].text;
  }
  return NULL;
}

static status check_spec(const char *kernel, const jit_spec *spec) {
  size_t bytes = strspn(spec->name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
  if (strncmp(spec->name, "SPEC_", 5) != 0 || spec->name[bytes] != 0 || bytes > JIT_SPEC_NAME_MAX)
    return FAIL(ERR_FORMAT, "kernel %s: expected a constant named SPEC_[A-Z0-9_]*, found \"%.80s\"", kernel, spec->name);
  return OK;
}

static status write_spec(jit *self, const char *kernel, const jit_spec *specs, uint32_t count, char **out) {
  if (count > JIT_SPECS_MAX) return FAIL(ERR_FORMAT, "kernel %s: %u constants, at most %u expected", kernel, count, JIT_SPECS_MAX);
  const size_t line_max = JIT_SPEC_NAME_MAX + sizeof "#define  4294967295u\n";
  const size_t bytes_max = 128 + count * line_max;
  void *memory = NULL;
  TRY(take_memory(self, bytes_max, &memory));
  char *text = memory;
  size_t used = (size_t)snprintf(text, bytes_max, "/* spec.cuh - the constants of this kernel, from the plan. */\n");
  for (uint32_t i = 0; i < count; i++) {
    TRY(check_spec(kernel, &specs[i]));
    used += (size_t)snprintf(text + used, bytes_max - used, "#define %s %uu\n", specs[i].name, specs[i].value);
    ASSERT(used < bytes_max);
  }
  *out = text;
  return OK;
}

/* Each text is preceded by its length, so that no two inputs give the same bytes. */
static void put_bytes(XXH3_state_t *state, const void *bytes, uint64_t count) {
  XXH3_128bits_update(state, &count, sizeof count);
  XXH3_128bits_update(state, bytes, count);
}

static void put_text(XXH3_state_t *state, const char *text) { put_bytes(state, text, strlen(text)); }

static status make_key(const jit *self, unit *u) {
  XXH3_state_t *state = XXH3_createState();
  if (!state) return FAIL(ERR_LIMIT, "no memory for a hash");
  XXH3_128bits_reset(state);
  put_text(state, ENTRY_TAG);
  const int64_t version[2] = {self->major, self->minor};
  put_bytes(state, version, sizeof version);
  put_bytes(state, &self->library_bytes, sizeof self->library_bytes);
  for (size_t i = 0; i < ARRAY_LEN(options); i++) put_text(state, options[i]);
  put_text(state, u->kernel);
  put_text(state, u->spec);
  put_text(state, u->source);
  for (size_t i = 0; i < self->source_count; i++) {
    if (!is_header(&self->sources[i])) continue;
    put_text(state, self->sources[i].name);
    put_text(state, self->sources[i].text);
  }
  XXH128_canonical_t key;
  XXH128_canonicalFromHash(&key, XXH3_128bits_digest(state));
  XXH3_freeState(state);
  memcpy(u->key, key.digest, sizeof u->key);
  for (size_t i = 0; i < sizeof u->key; i++) snprintf(u->key_hex + 2 * i, 3, "%02x", u->key[i]);
  return OK;
}

/* === Compiling ============================================================================================================= */

static status fail_compile(const jit *self, const unit *u, nvrtc_program program) {
  size_t bytes = 0;
  char *log = NULL;
  if (self->api.nvrtcGetProgramLogSize(program, &bytes) == 0 && bytes > 0 && bytes < (16u << 20)) log = calloc(1, bytes + 1);
  if (log && self->api.nvrtcGetProgramLog(program, log) != 0) log[0] = 0;
  status s = FAIL(ERR_DEVICE, "kernel %s: NVRTC %d.%d cannot compile it: %.*s", u->kernel, self->major, self->minor, LOG_SHOWN_MAX,
                  log ? log : "no log");
  free(log);
  return s;
}

static status fetch_cubin(jit *self, const unit *u, nvrtc_program program, int option_count, jit_cubin_view *out) {
  if (self->api.nvrtcCompileProgram(program, option_count, options) != 0) return fail_compile(self, u, program);
  size_t bytes = 0;
  if (self->api.nvrtcGetCUBINSize(program, &bytes) != 0 || bytes == 0 || bytes > ENTRY_BYTES_MAX)
    return FAIL(ERR_DEVICE, "kernel %s: NVRTC gives no cubin", u->kernel);
  void *cubin = NULL;
  TRY(take_memory(self, bytes, &cubin));
  if (self->api.nvrtcGetCUBIN(program, cubin) != 0) return FAIL(ERR_DEVICE, "kernel %s: NVRTC gives no cubin", u->kernel);
  out->bytes = cubin;
  out->size = bytes;
  return OK;
}

static status compile_unit(jit *self, const unit *u, jit_cubin_view *out) {
  const char **texts = calloc(2 * (self->source_count + 1), sizeof *texts);
  if (!texts) return FAIL(ERR_LIMIT, "no memory for a list of headers");
  const char **names = texts + self->source_count + 1;
  int count = 0;
  names[count] = "spec.cuh";
  texts[count++] = u->spec;
  for (size_t i = 0; i < self->source_count; i++) {
    if (!is_header(&self->sources[i])) continue;
    names[count] = self->sources[i].name;
    texts[count++] = self->sources[i].text;
  }
  char file[128];
  snprintf(file, sizeof file, "%.100s.cu", u->kernel);
  nvrtc_program program = NULL;
  status s;
  if (self->api.nvrtcCreateProgram(&program, u->source, file, count, texts, names) != 0)
    s = FAIL(ERR_DEVICE, "kernel %s: NVRTC takes no program", u->kernel);
  else
    s = fetch_cubin(self, u, program, (int)ARRAY_LEN(options), out);
  if (program) self->api.nvrtcDestroyProgram(&program);
  free(texts);
  return s;
}

/* === The cache ============================================================================================================= */

static bool entry_path(const jit *self, const unit *u, char *path) {
  int length = snprintf(path, PATH_BYTES_MAX, "%s/%.100s-%s.vjit", self->cache_dir, u->kernel, u->key_hex);
  return length > 0 && (size_t)length < PATH_BYTES_MAX;
}

static void digest_entry(uint8_t *entry, size_t bytes, uint8_t digest[16]) {
  entry_header header;
  memcpy(&header, entry, sizeof header);
  memset(entry + offsetof(entry_header, digest), 0, sizeof header.digest);
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(entry, bytes));
  memcpy(entry, &header, sizeof header);
  memcpy(digest, canonical.digest, 16);
}

static bool read_all(int file, uint8_t *target, size_t bytes) {
  while (bytes > 0) {
    ssize_t got = read(file, target, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    target += got;
    bytes -= (size_t)got;
  }
  return true;
}

static bool write_all(int file, const uint8_t *source, size_t bytes) {
  while (bytes > 0) {
    ssize_t put = write(file, source, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    source += put;
    bytes -= (size_t)put;
  }
  return true;
}

static bool entry_valid(uint8_t *entry, size_t bytes, const unit *u, entry_header *header) {
  memcpy(header, entry, sizeof *header);
  if (memcmp(header->magic, ENTRY_MAGIC, sizeof header->magic) != 0) return false;
  if (header->header_bytes != sizeof *header || header->pad != 0) return false;
  if (memcmp(header->key, u->key, sizeof header->key) != 0) return false;
  if (header->cubin_bytes == 0 || header->cubin_bytes > bytes || header->text_bytes > bytes) return false;
  if (sizeof *header + header->cubin_bytes + header->text_bytes != bytes) return false;
  uint8_t digest[16];
  digest_entry(entry, bytes, digest);
  return memcmp(digest, header->digest, sizeof digest) == 0;
}

/* True when a complete and correct entry was found. Anything else means compile. */
static bool load_entry(jit *self, const unit *u, jit_cubin_view *out) {
  char path[PATH_BYTES_MAX];
  if (!entry_path(self, u, path)) return false;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return false;
  struct stat info;
  void *memory = NULL;
  bool good = fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size >= (off_t)sizeof(entry_header) &&
              info.st_size <= (off_t)ENTRY_BYTES_MAX;
  const size_t bytes = good ? (size_t)info.st_size : 0;
  good = good && take_memory(self, bytes, &memory) == OK && read_all(file, memory, bytes);
  close(file);
  entry_header header;
  if (!good || !entry_valid(memory, bytes, u, &header)) return false;
  out->bytes = (uint8_t *)memory + sizeof header;
  out->size = header.cubin_bytes;
  return true;
}

static bool publish(const jit *self, const char *path, const uint8_t *entry, size_t bytes) {
  char temporary[PATH_BYTES_MAX];
  int length = snprintf(temporary, sizeof temporary, "%s/.tmp-XXXXXX", self->cache_dir);
  if (length < 0 || (size_t)length >= sizeof temporary) return false;
  int file = mkstemp(temporary);
  if (file < 0) return false;
  bool good = write_all(file, entry, bytes) && fchmod(file, 0644) == 0 && fsync(file) == 0;
  good = close(file) == 0 && good;
  good = good && rename(temporary, path) == 0;
  if (!good) unlink(temporary);
  int folder = good ? open(self->cache_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (folder >= 0) {
    fsync(folder); /* some file systems refuse this for folders; the entry is whole in any case */
    close(folder);
  }
  return good;
}

static void store_entry(jit *self, const unit *u, const jit_cubin_view *cubin) {
  char path[PATH_BYTES_MAX];
  const size_t spec_bytes = strlen(u->spec), source_bytes = strlen(u->source);
  const size_t bytes = sizeof(entry_header) + cubin->size + spec_bytes + source_bytes;
  uint8_t *entry = entry_path(self, u, path) && bytes <= ENTRY_BYTES_MAX ? malloc(bytes) : NULL;
  bool good = entry != NULL;
  if (good) {
    entry_header header = {.header_bytes = sizeof header, .cubin_bytes = cubin->size, .text_bytes = spec_bytes + source_bytes};
    memcpy(header.magic, ENTRY_MAGIC, sizeof header.magic);
    memcpy(header.key, u->key, sizeof header.key);
    uint8_t *at = entry;
    memcpy(at, &header, sizeof header);
    memcpy(at += sizeof header, cubin->bytes, cubin->size);
    memcpy(at += cubin->size, u->spec, spec_bytes);
    memcpy(at + spec_bytes, u->source, source_bytes);
    digest_entry(entry, bytes, header.digest);
    memcpy(entry, &header, sizeof header);
    good = publish(self, path, entry, bytes);
  }
  free(entry);
  if (!good) write_note(self, "kernel cache: %s cannot be written; kernels are compiled at every start", self->cache_dir);
}

/* === All of them =========================================================================================================== */

/* The next unit without a cubin, for a thread to take. */
typedef struct work {
  jit *self;
  unit *units;
  uint32_t count;
  atomic_uint next;
} work;

static void *compile_units(void *argument) {
  work *all = argument;
  for (uint32_t i; (i = atomic_fetch_add(&all->next, 1)) < all->count;) {
    unit *u = &all->units[i];
    if (u->made.bytes) continue;
    if (compile_unit(all->self, u, &u->made) != OK) fail_take(&u->cause);
    else if (all->self->cache_dir[0]) store_entry(all->self, u, &u->made);
  }
  return NULL;
}

/* The calling thread is one of them; if no other can be started, it does everything. */
static void compile_missing(jit *self, unit *units, uint32_t count, uint32_t missing) {
  work all = {.self = self, .units = units, .count = count};
  pthread_t threads[THREADS_MAX];
  pthread_attr_t attributes;
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  uint32_t wanted = min_u32(min_u32(missing, THREADS_MAX), cores > 1 ? (uint32_t)cores : 1), started = 0;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  while (started + 1 < wanted && pthread_create(&threads[started], &attributes, compile_units, &all) == 0) started++;
  pthread_attr_destroy(&attributes);
  compile_units(&all);
  for (uint32_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
}

static status find_unit(jit *self, const jit_request *request, unit *u) {
  *u = (unit){.kernel = request->kernel, .source = find_source(self, request->kernel)};
  if (!u->source) return FAIL(ERR_FORMAT, "no kernel source named %.80s.cu", request->kernel);
  TRY(write_spec(self, request->kernel, request->specs, request->spec_count, &u->spec));
  TRY(make_key(self, u));
  u->made.from_cache = self->cache_dir[0] && load_entry(self, u, &u->made);
  memcpy(u->made.key, u->key_hex, sizeof u->made.key);
  return OK;
}

static status make_units(jit *self, const jit_request *requests, uint32_t count, unit *units) {
  uint32_t missing = 0;
  for (uint32_t i = 0; i < count; i++) {
    TRY(find_unit(self, &requests[i], &units[i]));
    missing += !units[i].made.from_cache;
  }
  if (missing) compile_missing(self, units, count, missing);
  for (uint32_t i = 0; i < count; i++)
    if (units[i].cause.code != OK) return fail_give(&units[i].cause);
  return OK;
}

status jit_compile_all(jit *self, const jit_request *requests, uint32_t count, jit_cubin_view *out) {
  ASSERT(self && (requests || count == 0) && out);
  unit *units = calloc(count + 1ull, sizeof *units);
  if (!units) return FAIL(ERR_LIMIT, "no memory for a list of %u kernels", count);
  status s = make_units(self, requests, count, units);
  for (uint32_t i = 0; i < count && s == OK; i++) out[i] = units[i].made;
  free(units);
  return s;
}

status jit_compile(jit *self, const char *kernel, const jit_spec *specs, uint32_t spec_count, jit_cubin_view *out) {
  ASSERT(kernel && (specs || spec_count == 0));
  const jit_request request = {.kernel = kernel, .specs = specs, .spec_count = spec_count};
  return jit_compile_all(self, &request, 1, out);
}
