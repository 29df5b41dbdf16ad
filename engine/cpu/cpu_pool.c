/* cpu_pool.c - the thread pool of cpu.h: a fixed set of threads that deal themselves the items of one job at a time.
 *
 * Which thread computes an item depends on timing; no item's result does. Everything is allocated in cpu_pool_open. */
#include "cpu.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct pool_thread {
  cpu_pool *pool;
  void *scratch;
  pthread_t id; /* thread 0 is the caller and has none */
} pool_thread;

struct cpu_pool {
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  uint64_t job;     /* number of the current job, under the lock      */
  uint32_t working; /* pool threads that have not yet left the job    */
  bool stop;
  cpu_task *fn;
  void *context;
  uint32_t count;
  atomic_uint next; /* first item nobody has taken                    */
  uint32_t threads;
  uint32_t started; /* threads that run, thread 0 included            */
  pool_thread thread[];
};

static void run_items(cpu_pool *pool, void *scratch) {
  for (;;) {
    uint32_t index = atomic_fetch_add(&pool->next, 1);
    if (index >= pool->count) return;
    pool->fn(pool->context, index, scratch);
  }
}

static void *run_thread(void *argument) {
  pool_thread *self = argument;
  cpu_pool *pool = self->pool;
  uint64_t seen = 0;
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    while (pool->job == seen && !pool->stop) pthread_cond_wait(&pool->work, &pool->lock);
    if (pool->stop) break;
    seen = pool->job;
    pthread_mutex_unlock(&pool->lock);
    run_items(pool, self->scratch);
    pthread_mutex_lock(&pool->lock);
    if (--pool->working == 0) pthread_cond_signal(&pool->done);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

static uint32_t online_cores(void) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (cores < 1) return 1;
  return cores > (long)CPU_THREADS_MAX ? CPU_THREADS_MAX : (uint32_t)cores;
}

status cpu_pool_open(cpu_pool **out, uint32_t threads) {
  if (threads > CPU_THREADS_MAX)
    return FAIL(ERR_LIMIT, "expected at most %u threads, found %u, hint: use a smaller --threads", CPU_THREADS_MAX, threads);
  if (threads == 0) threads = online_cores();
  cpu_pool *pool = calloc(1, sizeof *pool + threads * sizeof pool->thread[0]);
  if (!pool) return FAIL(ERR_LIMIT, "expected memory for a pool of %u threads, found none", threads);
  pool->threads = threads;
  pool->started = 1;
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->work, NULL);
  pthread_cond_init(&pool->done, NULL);
  for (uint32_t i = 0; i < threads; i++) {
    pool->thread[i].pool = pool;
    if (posix_memalign(&pool->thread[i].scratch, 64, CPU_SCRATCH_BYTES) != 0) {
      pool->thread[i].scratch = NULL;
      cpu_pool_close(pool);
      return FAIL(ERR_LIMIT, "expected %u bytes of scratch for thread %u, found none, hint: use fewer threads", CPU_SCRATCH_BYTES,
                  i);
    }
    memset(pool->thread[i].scratch, 0xff, CPU_SCRATCH_BYTES); /* touched now, and poison for whoever reads before writing */
  }
  for (uint32_t i = 1; i < threads; i++) {
    if (pthread_create(&pool->thread[i].id, NULL, run_thread, &pool->thread[i]) != 0) {
      cpu_pool_close(pool);
      return FAIL(ERR_LIMIT, "expected to start %u threads, found a limit at %u, hint: use fewer threads", threads, i);
    }
    pool->started++;
  }
  *out = pool;
  return OK;
}

void cpu_pool_close(cpu_pool *pool) {
  if (!pool) return;
  pthread_mutex_lock(&pool->lock);
  pool->stop = true;
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
  for (uint32_t i = 1; i < pool->started; i++) pthread_join(pool->thread[i].id, NULL);
  for (uint32_t i = 0; i < pool->threads; i++) free(pool->thread[i].scratch);
  pthread_cond_destroy(&pool->done);
  pthread_cond_destroy(&pool->work);
  pthread_mutex_destroy(&pool->lock);
  free(pool);
}

uint32_t cpu_pool_threads(const cpu_pool *pool) { return pool->threads; }

void cpu_pool_run(cpu_pool *pool, uint32_t count, cpu_task *fn, void *context) {
  if (count <= 1 || pool->threads == 1) { /* waking the others would cost more than it gives */
    for (uint32_t i = 0; i < count; i++) fn(context, i, pool->thread[0].scratch);
    return;
  }
  ASSERT(count <= UINT32_MAX - CPU_THREADS_MAX); /* every thread takes one index beyond the end */
  pthread_mutex_lock(&pool->lock);
  ASSERT(pool->working == 0);
  pool->fn = fn;
  pool->context = context;
  pool->count = count;
  atomic_store(&pool->next, 0);
  pool->working = pool->threads - 1;
  pool->job++;
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
  run_items(pool, pool->thread[0].scratch);
  pthread_mutex_lock(&pool->lock);
  while (pool->working != 0) pthread_cond_wait(&pool->done, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
}
