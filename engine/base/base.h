/* base.h - what every file of the host program may use: statuses, errors, assertions, small arithmetic.
 *
 * Errors come in three kinds:
 *   operating errors  (files, versions, devices, bad requests): a function returns a negative status and the first cause is
 *                     recorded by FAIL; callers pass it on with TRY. Outputs are untouched on error.
 *   programmer errors ASSERT, on in every build.
 *   device faults     after start-up: the run stops (see gpu.h).
 * Includes libc only. Read next: limits.h, plan/format.h. */
#ifndef VERBATIM_BASE_H
#define VERBATIM_BASE_H
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

typedef enum status {
  OK = 0,
  ERR_USAGE = -1,   /* the command line or an API call is wrong                */
  ERR_IO = -2,      /* a file cannot be opened, read or written                */
  ERR_FORMAT = -3,  /* a file's contents are not what its format allows        */
  ERR_UNSUPPORTED = -4, /* a valid input asks for something Verbatim lacks     */
  ERR_LIMIT = -5,   /* a stated limit would be exceeded                        */
  ERR_DEVICE = -6,  /* GPU, driver or a CUDA library is missing, wrong or fails */
  ERR_MISMATCH = -7 /* two things that must agree do not (digests, bits)       */
} status;

#define FAIL_TEXT_MAX 1024
#define FAIL_WHERE_MAX 128

/* Each thread has one record. FAIL stores in it the first cause since fail_clear and returns code. The text says what was expected, what
 * was found and, after the word "hint:", what to do. At most FAIL_TEXT_MAX bytes are kept. */
status fail_record(status code, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void fail_clear(void);
void fail_drop_hint(void);     /* for a caller that did already what the record's hint says */
const char *fail_text(void);   /* "" when nothing was recorded */
const char *fail_where(void);  /* "file:line" of the recorded cause */
int fail_exit_code(status s);  /* process exit code for a status: 0, or 2..8 */
_Noreturn void fail_assert(const char *expression, const char *file, int line);

/* A record passed to another thread: a worker takes its own before it ends, and the thread that waited for it records it as its own. If
 * several workers failed the caller chooses, where possible by a rule that does not depend on timing. */
typedef struct fail_cause {
  status code; /* OK: nothing was recorded */
  char text[FAIL_TEXT_MAX], where[FAIL_WHERE_MAX];
} fail_cause;
void fail_take(fail_cause *out);          /* moves this thread's record to *out and clears it            */
status fail_give(const fail_cause *cause); /* returns cause->code; keeps an earlier record of this thread */
void fail_prefix(const char *name);        /* prefixes the recorded text with a file name unless it already contains it */

#define FAIL(code, ...) fail_record((code), __FILE__, __LINE__, __VA_ARGS__)
#define TRY(call)                       \
  do {                                  \
    status try_status_ = (call);        \
    if (try_status_ != OK) return try_status_; \
  } while (0)
#define ASSERT(x) ((x) ? (void)0 : fail_assert(#x, __FILE__, __LINE__))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

static inline uint64_t align_up(uint64_t value, uint64_t alignment) { /* alignment: a power of two */
  return (value + alignment - 1) & ~(alignment - 1);
}
static inline uint64_t div_up(uint64_t value, uint64_t divisor) { return (value + divisor - 1) / divisor; }
static inline uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* splitmix64 (Steele, Lea and Flood, OOPSLA 2014): the next 64 random bits of *state, which may start at any value. */
static inline uint64_t random_next(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

#endif
