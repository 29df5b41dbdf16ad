/* profile.h - measurements of `verbatim probe` on a device: library algorithms that give the numerics' bits and are faster.
 *
 * {"device": text, "driver": text or number, "library_version": integer, "entries": [{"n", "k", "out": "f32" or "bf16", "rows_min",
 * "rows_max", "algo": [8 strings of hex digits], "workspace_bytes", "us", "own_us", "certified": true or false, "use": true or false}]}.
 * us: of the algorithm, own_us: of our kernel, geometric means over both ends of the range. certified: it gave our bits there. use: it is
 * faster than our kernel by more than noise and, if not certified, also faster than any certified one. Only entries with both become pins.
 * A profile can only change speed: at start-up the engine compares the bits of every pinned algorithm with its own kernel's. */
#ifndef VERBATIM_PROFILE_H
#define VERBATIM_PROFILE_H
#include "draft.h"

#define PROFILE_ENTRIES_MAX 4096u
#define PROFILE_WORKSPACE_BYTES_MAX (UINT64_C(1) << 30)

typedef struct profile { /* zeroed: empty */
  plan_product *entries; /* [count] those with "use" and "certified" true                       */
  plan_product *others;  /* [other_count] "use" true, "certified" false: for measuring, never pinned */
  uint32_t count, other_count;
} profile;

/* text: not NUL-terminated, at most FILE_CONFIG_BYTES_MAX. ERR_FORMAT names the entry and the field. */
status profile_parse(const char *text, size_t bytes, profile *out);
void profile_free(profile *self);

/* Lets a plan with these pins start without them if the library is another version (plan_gemm.is_optional). */
void profile_make_optional(profile *self);

/* Adds to the plan the pins for a product whose launch rows lie in [rows_min, rows_max]; equal lists are shared. Sets first and count, and
 * raises workspace_bytes to what they need. */
void profile_pin(const profile *self, draft *plan, uint32_t n, uint32_t k, uint32_t y_f32, uint32_t rows_min, uint32_t rows_max,
                 uint32_t *first, uint32_t *count, uint64_t *workspace_bytes);

#endif
