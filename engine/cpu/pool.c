/* pool.c - the thread pool of cpu.h: a fixed set of threads that take the items of one job at a time.
 *
 * Which thread computes an item depends on timing; the item's value does not. Everything is allocated in cpu_pool_open. A step has hundreds
 * of jobs of some ten microseconds each, and putting a thread to sleep and waking it costs as much, so a waiting thread polls for
 * SPIN_SECONDS first and yields its core between polls. Not OpenMP, whose runtime keeps state for the whole process and takes its waiting
 * policy from the environment. */
#include "cpu/cpu.h"
#include "base/clock.h"
#include "base/processor.h"
#include "base/thread.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct pool_thread {
  cpu_pool *pool;
  void *scratch;
  pthread_t id; /* thread 0 is the caller and has none */
} pool_thread;

#define SPIN_SECONDS 100e-6
#define SPIN_PAUSES 64 /* between two reads of the clock */

struct cpu_pool {
  _Alignas(64) atomic_uint next;    /* first item not taken yet; written by all threads, hence on its own cache line */
  _Alignas(64) atomic_uint working; /* pool threads still in the job; also on its own cache line                            */
  _Alignas(64) atomic_uint job;     /* number of the current job; the next four fields are written before it is incremented */
  cpu_task *fn;
  void *context;
  uint32_t count;
  bool stop;
  atomic_uint sleepers;             /* pool threads that have stopped polling                                               */
  atomic_bool caller_sleeps;
  pthread_mutex_t lock;             /* taken only to sleep and to wake sleepers                                             */
  pthread_cond_t work, done;
  uint32_t threads;
  uint32_t started; /* running threads, including thread 0 */
  bool spins;       /* every thread has a core             */
  pool_thread thread[];
};

static void run_items(cpu_pool *pool, void *scratch) {
  for (;;) {
    uint32_t index = atomic_fetch_add(&pool->next, 1);
    if (index >= pool->count) return;
    pool->fn(pool->context, index, scratch);
  }
}

/* Polls *value until it differs from `old` (equal false: until it equals `old`), or the time is up. Returns the last value read. */
static uint32_t look(const cpu_pool *pool, atomic_uint *value, uint32_t old, bool equal) {
  uint32_t now = atomic_load(value);
  if (!pool->spins) return now;
  for (double begun = clock_seconds(); (now == old) == equal && clock_seconds() - begun < SPIN_SECONDS; sched_yield())
    for (int i = 0; i < SPIN_PAUSES && (now == old) == equal; i++) {
      processor_pause();
      now = atomic_load(value);
    }
  return now;
}

static void *run_thread(void *argument) {
  pool_thread *self = argument;
  cpu_pool *pool = self->pool;
  for (uint32_t seen = 0;;) {
    uint32_t job = look(pool, &pool->job, seen, true);
    if (job == seen) {
      pthread_mutex_lock(&pool->lock);
      atomic_fetch_add(&pool->sleepers, 1);
      while ((job = atomic_load(&pool->job)) == seen) pthread_cond_wait(&pool->work, &pool->lock);
      atomic_fetch_sub(&pool->sleepers, 1);
      pthread_mutex_unlock(&pool->lock);
    }
    seen = job;
    if (pool->stop) return NULL;
    run_items(pool, self->scratch);
    if (atomic_fetch_sub(&pool->working, 1) != 1 || !atomic_load(&pool->caller_sleeps)) continue;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_signal(&pool->done);
    pthread_mutex_unlock(&pool->lock);
  }
}

/* A thread that goes to sleep first counts itself as a sleeper, then checks the job number again: either it sees the new job, or begin_job
 * sees the sleeper. */
static void begin_job(cpu_pool *pool) {
  atomic_store(&pool->next, 0);
  atomic_store(&pool->working, pool->started - 1);
  atomic_fetch_add(&pool->job, 1);
  if (!atomic_load(&pool->sleepers)) return;
  pthread_mutex_lock(&pool->lock);
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
}

static void await_job(cpu_pool *pool) {
  if (look(pool, &pool->working, 0, false) == 0) return;
  pthread_mutex_lock(&pool->lock);
  atomic_store(&pool->caller_sleeps, true);
  while (atomic_load(&pool->working) != 0) pthread_cond_wait(&pool->done, &pool->lock);
  atomic_store(&pool->caller_sleeps, false);
  pthread_mutex_unlock(&pool->lock);
}

static uint32_t online_cores(void) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (cores < 1) return 1;
  return cores > (long)CPU_THREADS_MAX ? CPU_THREADS_MAX : (uint32_t)cores;
}

status cpu_pool_open(cpu_pool **out, uint32_t threads) {
  if (threads > CPU_THREADS_MAX)
    return FAIL(ERR_LIMIT, "expected at most %u threads, found %u; hint: use a smaller --threads", CPU_THREADS_MAX, threads);
  if (threads == 0) threads = online_cores();
  size_t bytes = (sizeof(cpu_pool) + threads * sizeof(pool_thread) + 63) / 64 * 64;
  cpu_pool *pool = aligned_alloc(64, bytes);
  if (!pool) return FAIL(ERR_LIMIT, "expected memory for a pool of %u threads, found none", threads);
  memset(pool, 0, bytes);
  pool->threads = threads;
  pool->spins = threads <= online_cores();
  pool->started = 1;
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->work, NULL);
  pthread_cond_init(&pool->done, NULL);
  for (uint32_t i = 0; i < threads; i++) {
    pool->thread[i].pool = pool;
    if (posix_memalign(&pool->thread[i].scratch, 64, CPU_SCRATCH_BYTES) != 0) {
      pool->thread[i].scratch = NULL;
      cpu_pool_close(pool);
      return FAIL(ERR_LIMIT, "expected %u bytes of scratch for thread %u, found none; hint: use fewer threads", CPU_SCRATCH_BYTES,
                  i);
    }
    memset(pool->thread[i].scratch, 0xff, CPU_SCRATCH_BYTES); /* touched now, and poisoned so that a read before a write shows */
  }
  for (uint32_t i = 1; i < threads; i++) {
    if (thread_begin(&pool->thread[i].id, run_thread, &pool->thread[i]) != 0) {
      cpu_pool_close(pool);
      return FAIL(ERR_LIMIT, "expected to start %u threads, found a limit at %u; hint: use fewer threads", threads, i);
    }
    pool->started++;
  }
  *out = pool;
  return OK;
}

void cpu_pool_close(cpu_pool *pool) {
  if (!pool) return;
  pool->stop = true;
  begin_job(pool);
  for (uint32_t i = 1; i < pool->started; i++) pthread_join(pool->thread[i].id, NULL);
  for (uint32_t i = 0; i < pool->threads; i++) free(pool->thread[i].scratch);
  pthread_cond_destroy(&pool->done);
  pthread_cond_destroy(&pool->work);
  pthread_mutex_destroy(&pool->lock);
  free(pool);
}

uint32_t cpu_pool_threads(const cpu_pool *pool) { return pool->threads; }

void cpu_pool_run(cpu_pool *pool, uint32_t count, cpu_task *fn, void *context) {
  if (count <= 1 || pool->threads == 1) { /* waking the others would cost more than it gains */
    for (uint32_t i = 0; i < count; i++) fn(context, i, pool->thread[0].scratch);
    return;
  }
  ASSERT(count <= UINT32_MAX - CPU_THREADS_MAX); /* every thread takes one index past the end */
  ASSERT(atomic_load(&pool->working) == 0);
  pool->fn = fn;
  pool->context = context;
  pool->count = count;
  begin_job(pool);
  run_items(pool, pool->thread[0].scratch);
  await_job(pool);
}
