/* test_frozen.c - once the engine is ready it allocates nothing.
 *
 * Linked with --wrap for malloc, calloc, realloc, posix_memalign, aligned_alloc and mmap: while the trap is set, a call from any object of
 * the program (static libraries included) is counted. The last test is the control: the trap does count. */
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <sys/types.h>
#include "e2e.h"

static const char DEPLOY[] =
  "max-num-seqs: 6\nmax-num-batched-tokens: 96\nmax-model-len: 192\nkv_pages: 16\nchunk_tokens: 64\ngroup_chunks: 2\n"
  "ladder: [1, 2, 4, 6]\n";

static volatile int trap, trapped;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
int __real_posix_memalign(void **out, size_t alignment, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__real_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t bytes) { return trapped += trap, __real_malloc(bytes); }
void *__wrap_calloc(size_t count, size_t bytes) { return trapped += trap, __real_calloc(count, bytes); }
void *__wrap_realloc(void *old, size_t bytes) { return trapped += trap, __real_realloc(old, bytes); }
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes) {
  return trapped += trap, __real_posix_memalign(out, alignment, bytes);
}
void *__wrap_aligned_alloc(size_t alignment, size_t bytes) { return trapped += trap, __real_aligned_alloc(alignment, bytes); }
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return trapped += trap, __real_mmap(address, bytes, protection, flags, fd, offset);
}

static e2e_model model;

static void on_text(verbatim_request *r, const char *text, size_t bytes) { (void)r, (void)text, (void)bytes; }

static void no_allocation_after_ready(void **state) {
  (void)state;
  static const verbatim_text stop = {"e", 1};
  e2e_requests requests;
  verbatim_config config = {.plan_path = model.plan_path, .model_dir = model.model_dir, .device = e2e_device(), .threads = 2, .text = true};
  verbatim *engine;
  bool busy = true;
  e2e_requests_make(&requests, 12, 384, 100, 9);
  for (uint32_t i = 0; i < requests.count; i++)
    requests.list[i].stop_texts = &stop, requests.list[i].stop_text_count = 1, requests.list[i].on_text = on_text;
  trapped = trap = 0;
  assert_int_equal(verbatim_open(&engine, &config), 0);
  trap = 1;
  for (uint32_t i = 0; i < requests.count; i++) assert_int_equal(verbatim_submit(engine, &requests.list[i]), 0);
  assert_int_equal(verbatim_poll(engine, &busy), 0);
  assert_int_equal(verbatim_cancel(engine, &requests.list[2]), 0);
  while (busy) assert_int_equal(verbatim_poll(engine, &busy), 0);
  trap = 0;
  assert_int_equal(trapped, 0);
  for (uint32_t i = 0; i < requests.count; i++) assert_int_not_equal(requests.list[i].finish, VERBATIM_RUNNING);
  verbatim_close(engine);
  e2e_requests_free(&requests);
}

static void the_trap_works(void **state) {
  (void)state;
  verbatim_config config = {.plan_path = model.plan_path, .model_dir = model.model_dir, .device = e2e_device(), .threads = 2};
  verbatim *engine;
  trapped = 0;
  trap = 1;
  assert_int_equal(verbatim_open(&engine, &config), 0);
  trap = 0;
  assert_true(trapped > 10); /* start-up allocates, and the trap counts it */
  verbatim_close(engine);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_allocation_after_ready), cmocka_unit_test(the_trap_works)};
  e2e_begin(argc, argv);
  e2e_make_text_model(&model, "tests/oracle/small-v3.json", DEPLOY);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_remove(&model);
  return failed;
}
