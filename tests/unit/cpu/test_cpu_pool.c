/* test_cpu_pool.c - the thread pool: every item runs once, scratch is private, jobs follow each other, limits are refused. */
#include "tests/unit/unit.h"
#include "engine/cpu/cpu.h"
#include <stdatomic.h>
#include <string.h>

#define ITEMS 5000u

typedef struct count_job {
  atomic_uint runs[ITEMS];
  atomic_uint clashes;
} count_job;

static void count_item(void *context, uint32_t index, void *scratch) {
  count_job *job = context;
  uint32_t *own = scratch;
  if ((uintptr_t)scratch % 64 != 0) atomic_fetch_add(&job->clashes, 1);
  for (uint32_t i = 0; i < 64; i++) own[i] = index;
  own[CPU_SCRATCH_BYTES / sizeof *own - 1] = index;
  for (uint32_t i = 0; i < 64; i++) {
    if (own[i] != index) atomic_fetch_add(&job->clashes, 1);
  }
  if (own[CPU_SCRATCH_BYTES / sizeof *own - 1] != index) atomic_fetch_add(&job->clashes, 1);
  atomic_fetch_add(&job->runs[index], 1);
}

static void every_item_once(void **state) {
  (void)state;
  static count_job job;
  static const uint32_t threads[] = {1, 2, 5}, counts[] = {0, 1, 2, 3, 4, 5, 6, 100, ITEMS};
  for (uint32_t t = 0; t < ARRAY_LEN(threads); t++) {
    cpu_pool *pool = NULL;
    assert_int_equal(cpu_pool_open(&pool, threads[t]), OK);
    assert_int_equal(cpu_pool_threads(pool), threads[t]);
    for (uint32_t c = 0; c < ARRAY_LEN(counts); c++) {
      memset(&job, 0, sizeof job);
      cpu_pool_run(pool, counts[c], count_item, &job);
      assert_int_equal(job.clashes, 0);
      for (uint32_t i = 0; i < ITEMS; i++) assert_int_equal(job.runs[i], i < counts[c] ? 1 : 0);
    }
    cpu_pool_close(pool);
  }
}

static void add_index(void *context, uint32_t index, void *scratch) {
  (void)scratch;
  atomic_fetch_add((atomic_uint *)context, index);
}

static void many_short_jobs(void **state) {
  (void)state;
  cpu_pool *pool = NULL;
  assert_int_equal(cpu_pool_open(&pool, 4), OK);
  for (uint32_t job = 0; job < 3000; job++) {
    atomic_uint sum = 0; /* the stack of a finished job must not be touched by late threads */
    uint32_t count = job % 7;
    cpu_pool_run(pool, count, add_index, &sum);
    assert_int_equal(sum, count == 0 ? 0 : count * (count - 1) / 2);
  }
  cpu_pool_close(pool);
}

static void limits(void **state) {
  (void)state;
  static char marker;
  cpu_pool *pool = (cpu_pool *)(void *)&marker;
  assert_int_equal(cpu_pool_open(&pool, CPU_THREADS_MAX + 1), ERR_LIMIT);
  assert_ptr_equal(pool, &marker);
  assert_non_null(strstr(fail_text(), "257"));
  fail_clear();
  assert_int_equal(cpu_pool_open(&pool, 0), OK);
  assert_in_range(cpu_pool_threads(pool), 1, CPU_THREADS_MAX);
  cpu_pool_close(pool);
  cpu_pool_close(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_item_once),
      cmocka_unit_test(many_short_jobs),
      cmocka_unit_test(limits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
