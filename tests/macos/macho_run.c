/* macho_run.c - runs a program for macOS on arm64 under Linux on aarch64 (qemu-aarch64): `macho_run PROGRAM ARGUMENTS`.
 *
 * For check/macos, which has no Mac. The program's code is executed as it is: what its compiler made of an op, with Apple's calling
 * convention, thread-local variables and structs. What it calls in libSystem is answered here: by glibc's function where both have one
 * binary form, by a translation where they differ, and otherwise not at all: such a call names itself and ends the run. So nothing is shown
 * of Apple's C library and kernel. Files are loaded as zig links them: at their preferred address, bound by dyld's opcodes, without
 * initialisers. Apple passes all variable arguments on the stack, 8 bytes each; a va_list of Linux without register areas reads just that.
 * Read next: tests/unit/test_macos.py. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ARGUMENT_OF(n) "mov x" #n ", sp\n"
#define ON_STACK(name, n) __asm__(".text\n.globl on_stack_" #name "\non_stack_" #name ":\n" ARGUMENT_OF(n) "b our_" #name "\n")

static void fail(const char *what, const char *name) {
  fprintf(stderr, "macho_run: %s %s\n", what, name);
  _exit(125);
}

/* === Variable arguments ===================================================================================================== */

static void arguments(va_list *out, void *stack) {
  const struct { void *stack, *general, *vector; int general_offset, vector_offset; } all = {.stack = stack};
  _Static_assert(sizeof all == sizeof *out, "AAPCS64");
  memcpy((void *)out, &all, sizeof all);
}

/* === Streams ================================================================================================================ */

/* Begins as Apple's FILE does: getc_unlocked reads r and p in line, and with r at 0 calls __srget. */
typedef struct stream {
  unsigned char *p;
  int r, w;
  uint8_t rest[136];
  FILE *real;
} stream;

static stream standard[3];
static stream *standard_pointers[3] = {&standard[0], &standard[1], &standard[2]};

static stream *our_stream(FILE *real) {
  stream *s = real ? calloc(1, sizeof *s) : NULL;
  if (s) s->real = real;
  return s;
}

static stream *our_fopen(const char *path, const char *mode) { return our_stream(fopen(path, mode)); }
static stream *our_fdopen(int descriptor, const char *mode) { return our_stream(fdopen(descriptor, mode)); }
static int our_fclose(stream *s) {
  int code = fclose(s->real);
  if (s < standard || s >= standard + 3) free(s);
  return code;
}
static stream *our_open_memstream(char **text, size_t *bytes) { return our_stream(open_memstream(text, bytes)); }
static int our_srget(stream *s) {
  s->r = 0;
  return fgetc(s->real);
}
static int our_feof(stream *s) { return feof(s->real); }
static int our_ferror(stream *s) { return ferror(s->real); }
static int our_fflush(stream *s) { return fflush(s ? s->real : NULL); }
static int our_fgetc(stream *s) { return fgetc(s->real); }
static char *our_fgets(char *text, int bytes, stream *s) { return fgets(text, bytes, s->real); }
static int our_fileno(stream *s) { return fileno(s->real); }
static int our_fputc(int c, stream *s) { return fputc(c, s->real); }
static int our_fputs(const char *text, stream *s) { return fputs(text, s->real); }
static size_t our_fread(void *to, size_t size, size_t count, stream *s) { return fread(to, size, count, s->real); }
static size_t our_fwrite(const void *from, size_t size, size_t count, stream *s) { return fwrite(from, size, count, s->real); }
static int our_fseeko(stream *s, off_t to, int whence) { return fseeko(s->real, to, whence); }
static off_t our_ftell(stream *s) { return ftello(s->real); }
static void our_rewind(stream *s) { rewind(s->real); }

#define FORMATTED(name, result, before, call, n)               \
  result our_##name before;                                    \
  result our_##name before {                                   \
    va_list list;                                              \
    arguments(&list, stack);                                   \
    return call;                                               \
  }
FORMATTED(printf, int, (const char *f, void *stack), vprintf(f, list), 1)
FORMATTED(fprintf, int, (stream *s, const char *f, void *stack), vfprintf(s->real, f, list), 2)
FORMATTED(snprintf, int, (char *to, size_t bytes, const char *f, void *stack), vsnprintf(to, bytes, f, list), 3)
FORMATTED(asprintf, int, (char **to, const char *f, void *stack), vasprintf(to, f, list), 2)
FORMATTED(sscanf, int, (const char *text, const char *f, void *stack), vsscanf(text, f, list), 2)
FORMATTED(fscanf, int, (stream *s, const char *f, void *stack), vfscanf(s->real, f, list), 2)
ON_STACK(printf, 1);
ON_STACK(fprintf, 2);
ON_STACK(snprintf, 3);
ON_STACK(asprintf, 2);
ON_STACK(sscanf, 2);
ON_STACK(fscanf, 2);
void on_stack_printf(void), on_stack_fprintf(void), on_stack_snprintf(void), on_stack_asprintf(void), on_stack_sscanf(void),
  on_stack_fscanf(void);

/* === Files ================================================================================================================== */

int our_open(const char *path, int flags, const int *mode);
int our_open(const char *path, int flags, const int *mode) {
  static const int pairs[][2] = {{0x4, O_NONBLOCK}, {0x8, O_APPEND}, {0x200, O_CREAT}, {0x400, O_TRUNC}, {0x800, O_EXCL},
                                 {0x100000, O_DIRECTORY}, {0x1000000, O_CLOEXEC}};
  int ours = flags & 3, left = flags & ~3;
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    if (flags & pairs[i][0]) ours |= pairs[i][1];
    left &= ~pairs[i][0];
  }
  if (left) fail("unknown flags of open", path);
  return open(path, ours, flags & 0x200 ? *mode : 0);
}
ON_STACK(open, 2);

int our_fcntl(int descriptor, int command, const long *value);
int our_fcntl(int descriptor, int command, const long *value) {
  if (command != F_GETFD && command != F_SETFD && command != F_SETFL) fail("unknown command of", "fcntl");
  return fcntl(descriptor, command, command == F_SETFL ? (*value & 0x4 ? O_NONBLOCK : 0) : (int)*value);
}
ON_STACK(fcntl, 2);
void on_stack_open(void), on_stack_fcntl(void);

typedef struct mac_stat {
  int32_t device;
  uint16_t mode, links;
  uint64_t inode;
  uint32_t user, group;
  int32_t kind;
  struct timespec accessed, modified, changed, born;
  int64_t bytes, blocks;
  int32_t block_bytes;
  uint32_t flags, generation;
  int32_t spare;
  int64_t spares[2];
} mac_stat;
_Static_assert(sizeof(mac_stat) == 144, "struct stat of arm64");

static int translated(int code, const struct stat *from, mac_stat *to) {
  if (code == 0)
    *to = (mac_stat){.device = (int32_t)from->st_dev, .mode = (uint16_t)from->st_mode, .links = (uint16_t)from->st_nlink,
                     .inode = from->st_ino, .user = from->st_uid, .group = from->st_gid, .kind = (int32_t)from->st_rdev,
                     .accessed = from->st_atim, .modified = from->st_mtim, .changed = from->st_ctim, .born = from->st_ctim,
                     .bytes = from->st_size, .blocks = from->st_blocks, .block_bytes = (int32_t)from->st_blksize};
  return code;
}
static int our_stat(const char *path, mac_stat *to) {
  struct stat from;
  return translated(stat(path, &from), &from, to);
}
static int our_lstat(const char *path, mac_stat *to) {
  struct stat from;
  return translated(lstat(path, &from), &from, to);
}
static int our_fstat(int descriptor, mac_stat *to) {
  struct stat from;
  return translated(fstat(descriptor, &from), &from, to);
}

static int our_fstatat(int folder, const char *path, mac_stat *to, int flags) {
  struct stat from;
  if (flags & ~0x20) fail("unknown flags of", "fstatat");
  return translated(fstatat(folder, path, &from, flags ? AT_SYMLINK_NOFOLLOW : 0), &from, to);
}
static int our_unlinkat(int folder, const char *path, int flags) {
  if (flags) fail("unknown flags of", "unlinkat");
  return unlinkat(folder, path, 0);
}

typedef struct mac_dirent {
  uint64_t inode, offset;
  uint16_t record_bytes, name_bytes;
  uint8_t type;
  char name[1024];
} mac_dirent;

static mac_dirent *our_readdir(DIR *folder) {
  static __thread mac_dirent entry;
  const struct dirent *from = readdir(folder);
  if (!from) return NULL;
  entry = (mac_dirent){.inode = from->d_ino, .record_bytes = sizeof entry, .name_bytes = (uint16_t)strlen(from->d_name),
                       .type = from->d_type};
  strcpy(entry.name, from->d_name);
  return &entry;
}

static void *our_mmap(void *at, size_t bytes, int access, int flags, int descriptor, off_t offset) {
  if (flags & ~0x1042) fail("unknown flags of", "mmap");
  return mmap(at, bytes, access, MAP_PRIVATE | (flags & 0x1000 ? MAP_ANONYMOUS : 0), descriptor, offset);
}

/* === The system ============================================================================================================= */

static int our_clock_gettime(int clock, struct timespec *out) { return clock_gettime(clock == 6 ? CLOCK_MONOTONIC : CLOCK_REALTIME, out); }

static long our_sysconf(int name) {
  return name == 58 ? sysconf(_SC_NPROCESSORS_ONLN) : name == 200 ? sysconf(_SC_PHYS_PAGES) : name == 29 ? sysconf(_SC_PAGESIZE) : -1;
}

static int our_sysctlbyname(const char *name, char *out, size_t *bytes) {
  (void)name;
  *bytes = (size_t)snprintf(out, *bytes, "0.0");
  return 0;
}

static int *our_error(void) { return &errno; } /* up to 34, ERANGE, the numbers are the same */
static int our_nothing(void) { return 0; }      /* signals, rounding: as they are */
static int our_refusal(void) { return -1; }
static void *our_null(void) { return NULL; }
static char *our_dlerror(void) { return "none here"; }
static int our_fegetenv(uint64_t *state) {
  state[0] = state[1] = 0;
  return 0;
}

static int our_sigpending(uint32_t *set) {
  *set = 0;
  return 0;
}

static void our_memset_pattern16(uint8_t *to, const uint8_t pattern[16], size_t bytes) {
  for (size_t i = 0; i < bytes; i++) to[i] = pattern[i % 16];
}

/* Turns the order around first: glibc's sort is stable, Apple's is not, and nothing may depend on it. */
static void our_qsort(uint8_t *list, size_t count, size_t size, int (*compare)(const void *, const void *)) {
  for (size_t i = 0; i < count / 2; i++)
    for (size_t at = 0; at < size; at++) {
      uint8_t *a = list + i * size + at, *b = list + (count - 1 - i) * size + at, kept = *a;
      *a = *b;
      *b = kept;
    }
  qsort(list, count, size, compare);
}

static size_t our_strlcpy(char *to, const char *from, size_t bytes) { return (size_t)snprintf(to, bytes, "%s", from); }

int SHA256_Init(void *), SHA256_Update(void *, const void *, size_t), SHA256_Final(uint8_t *, void *); /* of libcrypto */
static int our_sha256_update(void *state, const void *bytes, uint32_t count) { return SHA256_Update(state, bytes, count); }

/* Apple's table of characters, which isalpha and its like read in line. */
static struct {
  uint8_t before[60];
  uint32_t kinds[256], lower[256], upper[256];
} runes;

static void fill_runes(void) {
  for (int c = 0; c < 128; c++) {
    runes.kinds[c] = (isalpha(c) ? 0x100u : 0) | (iscntrl(c) ? 0x200u : 0) | (isdigit(c) ? 0x400u : 0) | (isgraph(c) ? 0x800u : 0) |
                     (islower(c) ? 0x1000u : 0) | (ispunct(c) ? 0x2000u : 0) | (isspace(c) ? 0x4000u : 0) | (isupper(c) ? 0x8000u : 0) |
                     (isxdigit(c) ? 0x10000u : 0) | (isblank(c) ? 0x20000u : 0) | (isprint(c) ? 0x40000u : 0);
    runes.lower[c] = (uint32_t)tolower(c);
    runes.upper[c] = (uint32_t)toupper(c);
  }
}

static int our_maskrune(int c, unsigned long kind) { return c >= 0 && c < 128 ? (int)(runes.kinds[c] & kind) : 0; }

/* === Thread-local variables ================================================================================================= */

static const uint8_t *template_start;
static size_t template_bytes, template_filled;
static __thread uint8_t *variables;

void *our_variables(const uint64_t descriptor[3]);
void *our_variables(const uint64_t descriptor[3]) {
  if (!variables) {
    variables = calloc(1, template_bytes + 16);
    if (!variables) fail("no memory for", "thread-local variables");
    memcpy(variables, template_start, template_filled);
  }
  return variables + descriptor[2];
}

/* Gets a descriptor in x0 and gives an address there; the caller relies on every other register but x16 and x17. */
void our_variable(void);
#define SAVE(op, a, b, at) op " " a ", " b ", [sp, #" #at "]\n"
#define EACH_PAIR(op)                                                                                                                  \
  SAVE(op, "x1", "x2", 16) SAVE(op, "x3", "x4", 32) SAVE(op, "x5", "x6", 48) SAVE(op, "x7", "x8", 64) SAVE(op, "x9", "x10", 80)        \
  SAVE(op, "x11", "x12", 96) SAVE(op, "x13", "x14", 112) SAVE(op, "x15", "x18", 128) SAVE(op, "q0", "q1", 144) SAVE(op, "q2", "q3", 176) \
  SAVE(op, "q4", "q5", 208) SAVE(op, "q6", "q7", 240) SAVE(op, "q16", "q17", 272) SAVE(op, "q18", "q19", 304)                           \
  SAVE(op, "q20", "q21", 336) SAVE(op, "q22", "q23", 368) SAVE(op, "q24", "q25", 400) SAVE(op, "q26", "q27", 432)                       \
  SAVE(op, "q28", "q29", 464) SAVE(op, "q30", "q31", 496) SAVE(op, "q8", "q9", 528) SAVE(op, "q10", "q11", 560)                         \
  SAVE(op, "q12", "q13", 592) SAVE(op, "q14", "q15", 624)
__asm__(".text\n.globl our_variable\nour_variable:\nsub sp, sp, #672\nstp x29, x30, [sp]\n" EACH_PAIR("stp")
        "bl our_variables\n" EACH_PAIR("ldp") "ldp x29, x30, [sp]\nadd sp, sp, #672\nret\n");

/* === What libSystem has ===================================================================================================== */

static uint64_t stack_guard = 0x0a0d00ff12345678u;
static uint64_t default_environment[2];

typedef struct symbol {
  const char *name;
  void *address;
} symbol;

#define F(name, function) {name, (void *)(uintptr_t)(function)}
static const symbol own[] = {
  F("_printf", on_stack_printf), F("_fprintf", on_stack_fprintf), F("_snprintf", on_stack_snprintf), F("_asprintf", on_stack_asprintf),
  F("_sscanf", on_stack_sscanf), F("_fscanf", on_stack_fscanf), F("_open", on_stack_open), F("_fcntl", on_stack_fcntl),
  F("_fopen", our_fopen), F("_fopen$DARWIN_EXTSN", our_fopen), F("_fdopen", our_fdopen), F("_fdopen$DARWIN_EXTSN", our_fdopen),
  F("_open_memstream", our_open_memstream), F("_fclose", our_fclose), F("___srget", our_srget), F("_feof", our_feof),
  F("_ferror", our_ferror), F("_fflush", our_fflush),
  F("_fgetc", our_fgetc), F("_fgets", our_fgets), F("_fileno", our_fileno), F("_fputc", our_fputc), F("_putc", our_fputc),
  F("_fputs", our_fputs), F("_fread", our_fread), F("_fwrite", our_fwrite), F("_fseek", our_fseeko), F("_fseeko", our_fseeko),
  F("_ftell", our_ftell), F("_rewind", our_rewind), F("_puts", puts), F("_putchar", putchar), F("_stat", our_stat),
  F("_lstat", our_lstat), F("_fstat", our_fstat), F("_fstatat", our_fstatat), F("_unlinkat", our_unlinkat),
  F("_readdir", our_readdir), F("_mmap", our_mmap), F("_clock_gettime", our_clock_gettime),
  F("_sysconf", our_sysconf), F("_sysctlbyname", our_sysctlbyname), F("___error", our_error), F("_sigprocmask", our_nothing),
  F("_pthread_sigmask", our_nothing), F("_sigaction", our_nothing), F("_signal", our_null), F("_sigpending", our_sigpending),
  F("_getrlimit", our_refusal), F("_fesetenv", our_nothing), F("_fegetenv", our_fegetenv), F("_dlopen", our_null),
  F("_dlsym", our_null), F("_dlclose", our_nothing), F("_dlerror", our_dlerror), F("_glob", our_refusal), F("_globfree", our_nothing),
  F("_memset_pattern16", our_memset_pattern16), F("_strlcpy", our_strlcpy), F("_CC_SHA256_Init", SHA256_Init),
  F("_CC_SHA256_Update", our_sha256_update), F("_CC_SHA256_Final", SHA256_Final), F("___maskrune", our_maskrune),
  F("___tolower", tolower), F("__tlv_bootstrap", our_variable), F("_realpath$DARWIN_EXTSN", realpath),
  F("___stdinp", &standard_pointers[0]), F("___stdoutp", &standard_pointers[1]), F("___stderrp", &standard_pointers[2]),
  F("__DefaultRuneLocale", &runes), F("___stack_chk_guard", &stack_guard), F("__FE_DFL_ENV", default_environment),
  F("_environ", &environ), F("_qsort", our_qsort)};

static const symbol with_list[] = {F("_vsnprintf", our_snprintf), F("_vfprintf", our_fprintf), F("_vasprintf", our_asprintf),
                                   F("_vsscanf", our_sscanf)};

/* Functions of one binary form in both. */
static const char same[] =
  " "
  "abort access aligned_alloc atoi bsearch bzero calloc close closedir cos dirfd _Exit _exit exit exp fchmod flock fmod free frexp "
  "fsync ftruncate getentropy getenv getpid gmtime_r hypot isatty ldexp ldexpf log log10 lseek malloc memchr memcmp memcpy "
  "__memcpy_chk memmem memmove memset __memset_chk mkdir munmap nanosleep nextafterf opendir pipe poll posix_memalign pread "
  "pthread_attr_destroy pthread_attr_init pthread_attr_setstacksize pthread_cond_broadcast pthread_cond_destroy pthread_cond_init "
  "pthread_cond_signal pthread_cond_wait pthread_create pthread_join pthread_mutex_destroy pthread_mutex_init pthread_mutex_lock "
  "pthread_mutex_unlock pwrite read realloc rename rmdir sched_yield sin __stack_chk_fail strcasecmp strchr strcmp strcpy strcspn "
  "strdup strerror strftime strlen strncasecmp strncmp strncpy __strncpy_chk strndup strnlen strpbrk strrchr strspn strstr strtod "
  "strtof strtok_r strtol strtoll strtoul strtoull time truncate unlink write ";

static uint32_t *stubs;

/* A function that names itself and ends the run. */
static void *refusing(const char *name) {
  char *kept = strdup(name);
  uint64_t words[3] = {(uint64_t)(uintptr_t) "no translation of", (uint64_t)(uintptr_t)kept, (uint64_t)(uintptr_t)fail};
  static const uint32_t code[4] = {0x58000080u /* ldr x0, +16 */, 0x580000a1u /* ldr x1, +20 */, 0x580000d0u /* ldr x16, +24 */,
                                   0xd61f0200u /* br x16 */};
  void *at = stubs;
  memcpy(stubs, code, sizeof code);
  memcpy(stubs + 4, words, sizeof words);
  stubs += 10;
  return at;
}

static void *find(const char *name) {
  char word[128];
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (strcmp(own[i].name, name) == 0) return own[i].address;
  for (size_t i = 0; i < sizeof with_list / sizeof *with_list; i++)
    if (strcmp(with_list[i].name, name) == 0) return with_list[i].address;
  snprintf(word, sizeof word, " %s ", name + 1);
  void *found = strstr(same, word) ? dlsym(RTLD_DEFAULT, name + 1) : NULL;
  return found ? found : refusing(name);
}

/* === Loading ================================================================================================================ */

typedef struct command { uint32_t kind, bytes; } command;
typedef struct segment {
  command head;
  char name[16];
  uint64_t address, bytes, offset, file_bytes;
  int32_t most, access;
  uint32_t sections, flags;
} segment;
typedef struct section {
  char name[16], segment[16];
  uint64_t address, bytes;
  uint32_t offset, align, relocations, relocation_count, flags, rest[3];
} section;

static uint64_t segments[16];
static uint32_t segment_count;

static void load_segment(const uint8_t *file, const segment *s) {
  const section *sections = (const section *)(const void *)(s + 1);
  if (segment_count == 16) fail("too many segments", "");
  segments[segment_count++] = s->address;
  if (s->most == 0) return; /* __PAGEZERO */
  void *at = mmap((void *)(uintptr_t)s->address, s->bytes, PROT_READ | PROT_WRITE | PROT_EXEC,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (at != (void *)(uintptr_t)s->address) fail("cannot map", s->name);
  memcpy(at, file + s->offset, s->file_bytes);
  for (uint32_t i = 0; i < s->sections; i++) {
    const uint32_t kind = sections[i].flags & 0xff;
    uint8_t *start = (uint8_t *)(uintptr_t)sections[i].address;
    if (kind == 0x9 || kind == 0x16) fail("initialisers are not run:", sections[i].name);
    if (kind != 0x11 && kind != 0x12) continue; /* the values that thread-local variables begin with, and zeros */
    if (!template_start) template_start = start;
    if (kind == 0x11) template_filled = (size_t)(start - template_start) + sections[i].bytes;
    template_bytes = (size_t)(start - template_start) + sections[i].bytes;
  }
}

static uint64_t number(const uint8_t **at) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = *(*at)++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return value;
  }
}

/* dyld's opcodes. Every symbol is bound at once, those that the file would bind at their first call, too. */
static void bind(const uint8_t *at, uint32_t bytes) {
  const uint8_t *end = at + bytes;
  const char *name = "";
  uint64_t address = 0;
  int64_t addend = 0;
  while (at < end) {
    const uint8_t op = *at & 0xf0, low = *at & 0x0f;
    at++;
    uint64_t count = 1, skip = 0;
    switch (op) {
      case 0x00: case 0x10: case 0x50: continue; /* done (of one lazy symbol), ordinal, type: a pointer */
      case 0x20: number(&at); continue;
      case 0x30: continue;
      case 0x40:
        name = (const char *)at;
        at += strlen(name) + 1;
        continue;
      case 0x60: addend = (int64_t)number(&at); continue;
      case 0x70: address = segments[low] + number(&at); continue;
      case 0x80: address += number(&at); continue;
      case 0x90: break;
      case 0xa0: skip = number(&at); break;
      case 0xb0: skip = 8u * low; break;
      case 0xc0:
        count = number(&at);
        skip = number(&at);
        break;
      default: fail("unknown opcode before", name);
    }
    for (; count > 0; count--, address += 8 + skip) *(uint64_t *)(uintptr_t)address = (uint64_t)(uintptr_t)find(name) + (uint64_t)addend;
  }
}

typedef int entry(int argc, char **argv, char **environment, char **apple);

static entry *load(const uint8_t *file) {
  const uint32_t *header = (const uint32_t *)(const void *)file;
  const uint8_t *at = file + 32;
  uint64_t start = 0, first = 0;
  if (header[0] != 0xfeedfacfu || header[1] != 0x100000cu || header[3] != 2) fail("not a program for", "arm64");
  for (uint32_t i = 0; i < header[4]; i++, at += ((const command *)(const void *)at)->bytes) {
    const uint32_t *words = (const uint32_t *)(const void *)at;
    if (words[0] == 0x19) load_segment(file, (const segment *)(const void *)at);
    if (words[0] == 0x19 && strcmp(((const segment *)(const void *)at)->name, "__TEXT") == 0) first = segments[segment_count - 1];
    if (words[0] == 0x80000034u) fail("chained fixups are not read", "");
    if (words[0] == 0x80000022u) {
      bind(file + words[4], words[5]);
      bind(file + words[8], words[9]);
    }
    if (words[0] == 0x80000028u) memcpy(&start, words + 2, sizeof start);
  }
  return (entry *)(uintptr_t)(first + start);
}

int main(int argc, char **argv) {
  struct stat info;
  if (argc < 2) fail("usage: macho_run PROGRAM ARGUMENTS;", "no program");
  const int descriptor = open(argv[1], O_RDONLY | O_CLOEXEC);
  if (descriptor < 0 || fstat(descriptor, &info) != 0) fail("cannot read", argv[1]);
  const uint8_t *file = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  stubs = mmap(NULL, 1u << 16, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (file == MAP_FAILED || stubs == MAP_FAILED) fail("cannot map", argv[1]);
  close(descriptor);
  standard[0].real = stdin;
  standard[1].real = stdout;
  standard[2].real = stderr;
  fill_runes();
  entry *program = load(file);
  __builtin___clear_cache((char *)segments[0], (char *)segments[0]);
  exit(program(argc - 1, argv + 1, environ, (char *[]){NULL}));
}
