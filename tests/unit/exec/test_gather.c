/* test_gather.c - exchanges through a stand-in for NCCL, on GPUs whose memory is the host's: what the CPU's reference gives, for one row
 * and for more, of one table and of four; and the waits of the host. Stands in for gpu.c. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/cpu/cpu.h"
#include "engine/exec/gather.h"
#include "tests/unit/gpu/fake_nccl.h"
#include "tests/unit/unit.h"

#define ROWS_MAX 7u
#define RANKS 3u
#define TABLES 4u
static const u32 part_bytes[TABLES] = {24, 8, 40, 16}, rows_mul[TABLES] = {1, 2, 3, 1};
#define TABLE_BYTES (ROWS_MAX * 3u * 40u * RANKS)

struct gpu { uint32_t rank; };

static dynlib_search search;
static fake_nccl *fake;
static struct {
  gpu gpus[RANKS];
  uint32_t selected, copies, copies_unselected;
  gpu_late_hook *hook;
  void *context;
  char fault[512];
} world;
static jmp_buf out_of_the_fault;

void __wrap_gpu_select(gpu *self);
void __wrap_gpu_select(gpu *self) { world.selected = self->rank; }

void __wrap_gpu_copy_rows(gpu *self, gpu_stream *stream, const gpu_rows *copy);
void __wrap_gpu_copy_rows(gpu *self, gpu_stream *stream, const gpu_rows *copy) {
  world.copies++;
  world.copies_unselected += world.selected != self->rank || (void *)stream != (void *)self;
  for (uint64_t i = 0; i < copy->rows; i++)
    memcpy((char *)(uintptr_t)(copy->target + i * copy->target_pitch), (const char *)(uintptr_t)(copy->source + i * copy->source_pitch),
           copy->row_bytes);
}

void __wrap_gpu_fill32(gpu *self, gpu_stream *stream, uint64_t target, uint32_t word, uint64_t words);
void __wrap_gpu_fill32(gpu *self, gpu_stream *stream, uint64_t target, uint32_t word, uint64_t words) {
  assert_true(world.selected == self->rank && (void *)stream == (void *)self && words == 1);
  *(uint32_t *)(uintptr_t)target = word;
}

void __wrap_gpu_limit_waits(gpu *self, gpu_late_hook *hook, void *context);
void __wrap_gpu_limit_waits(gpu *self, gpu_late_hook *hook, void *context) {
  assert_int_equal(self->rank, world.selected++);
  world.hook = hook;
  world.context = context;
}

void __wrap_gpu_fault(gpu *self, const char *op, const char *cause);
void __wrap_gpu_fault(gpu *self, const char *op, const char *cause) {
  (void)self;
  snprintf(world.fault, sizeof world.fault, "%s: %s", op, cause);
  longjmp(out_of_the_fault, 1);
}

/* === Ranks ================================================================================================================= */

typedef struct memory { /* of a rank; as every rank's memory, at the same distance from the next */
  u8 x[TABLES][TABLE_BYTES], y[TABLES][TABLE_BYTES], expected[TABLES][TABLE_BYTES], inbox[TABLES * TABLE_BYTES];
  step_in step;
  exchange_ranks ranks;
  u32 state[EXCHANGE_STATE_WORDS];
  u8 behind[64];
} memory;

static memory memories[RANKS];
static exchange_args args[RANKS];

static void make_ranks(u32 rows, u32 tables) {
  for (u32 r = 0; r < RANKS; r++) {
    memory *m = &memories[r];
    for (size_t i = 0; i < sizeof *m; i++) ((u8 *)m)[i] = (u8)(i * 37 + r * 101 + i / 253);
    memset(m->y, 0xee, sizeof m->y);
    memset(m->expected, 0xee, sizeof m->expected);
    memset(m->behind, 0x55, sizeof m->behind);
    m->step = (step_in){.token_count = rows};
    m->ranks = (exchange_ranks){.rank = r, .count = RANKS};
    for (u32 i = 0; i < RANKS; i++) m->ranks.peer[i] = (u64)(uintptr_t)&memories[i] - (u64)(uintptr_t)m;
    args[r] = (exchange_args){.step = &m->step, .ranks = &m->ranks, .inbox = m->inbox, .state = m->state, .rows_kind = ROWS_TOKENS,
                              .count = RANKS};
    for (u32 t = 0; t < tables; t++) {
      args[r].x[t] = m->x[t], args[r].y[t] = m->y[t];
      args[r].part_bytes[t] = part_bytes[t], args[r].rows_mul[t] = rows_mul[t];
    }
  }
}

static void run_reference(void) {
  cpu_pool *pool = NULL;
  assert_int_equal(cpu_pool_open(&pool, 1), OK);
  for (u32 r = 0; r < RANKS; r++) {
    exchange_args a = args[r];
    for (u32 t = 0; t < TABLES && a.y[t]; t++) a.y[t] = memories[r].expected[t];
    cpu_exchange(&a, pool);
  }
  cpu_pool_close(pool);
}

static gather open_gather(nccl **made, bool is_transport) {
  static const uint32_t devices[RANKS] = {0, 1, 2};
  exec_options options = {.device = &world.gpus[0], .others = {&world.gpus[1], &world.gpus[2]}};
  assert_int_equal(nccl_open(&search, devices, RANKS, made), OK);
  options.nccl = *made;
  gather out;
  world.selected = 0;
  gather_open(&out, &options, RANKS, is_transport, 2.5);
  return out;
}

static void run_gather(const gather *g, u32 rows) {
  gather_rank ranks[RANKS];
  for (u32 r = 0; r < RANKS; r++) ranks[r] = (gather_rank){.stream = (gpu_stream *)(void *)&world.gpus[r], .args = &args[r]};
  gather_run(g, "an exchange", ranks, rows, 1);
}

/* === Tests ================================================================================================================= */

static void the_result_is_the_references(void **state) {
  (void)state;
  nccl *made = NULL;
  const gather g = open_gather(&made, true);
  for (u32 rows = 1; rows <= ROWS_MAX; rows++)
    for (u32 tables = 1; tables <= TABLES; tables++) {
      make_ranks(rows, tables);
      run_reference();
      world.copies = 0;
      fake->groups = 0;
      run_gather(&g, rows);
      assert_int_equal(fake->groups, 1);
      if (rows == 1 && tables == 1) assert_int_equal(world.copies, 0); /* one row is gathered where it belongs */
      else assert_true(world.copies > 0);
      for (u32 r = 0; r < RANKS; r++) {
        assert_memory_equal(memories[r].y, memories[r].expected, sizeof memories[r].y);
        for (size_t i = 0; i < sizeof memories[r].behind; i++) assert_int_equal(memories[r].behind[i], 0x55);
      }
    }
  assert_int_equal(world.copies_unselected, 0);
  nccl_close(made);
}

static void every_rank_leaves_how_far_it_is(void **state) {
  (void)state;
  nccl *made = NULL;
  uint32_t reached[RANKS] = {0};
  gather g = open_gather(&made, true);
  make_ranks(2, 1);
  run_gather(&g, 2); /* without places nothing is left */
  for (u32 r = 0; r < RANKS; r++) g.reached[r] = (uint64_t)(uintptr_t)&reached[r], args[r].nth = 6;
  run_gather(&g, 2);
  for (u32 r = 0; r < RANKS; r++) assert_int_equal(reached[r], GATHER_REACHED(6, 1));
  nccl_close(made);
}

/* The control: the reference of other columns. */
static void one_wrong_byte_is_seen(void **state) {
  (void)state;
  nccl *made = NULL;
  const gather g = open_gather(&made, true);
  make_ranks(3, 2);
  run_reference();
  memories[1].x[1][2 * 3 * 8 - 1] ^= 1;
  run_gather(&g, 3);
  assert_memory_not_equal(memories[2].y, memories[2].expected, sizeof memories[2].y);
  nccl_close(made);
}

static void a_refusal_is_a_fault_of_the_op(void **state) {
  (void)state;
  nccl *made = NULL;
  const gather g = open_gather(&made, true);
  make_ranks(2, 1);
  fake->calls = 0;
  fake->fail_call = 5; /* the end of the group */
  if (setjmp(out_of_the_fault) == 0) {
    run_gather(&g, 2);
    fail_msg("no fault");
  }
  assert_non_null(strstr(world.fault, "an exchange: NCCL: ncclGroupEnd: fake system error"));
  fake->fail_call = 0;
  fail_clear();
  nccl_close(made);
}

static void waits_are_limited_for_the_transport_alone(void **state) {
  (void)state;
  nccl *made = NULL;
  char text[512] = "";
  world.hook = NULL;
  open_gather(&made, false); /* only compared */
  assert_null(world.hook);
  nccl_close(made);
  const gather g = open_gather(&made, true);
  assert_non_null(world.hook);
  world.context = (void *)(uintptr_t)&g; /* it has moved here */
  assert_false(world.hook(world.context, 2.4, text, sizeof text));
  assert_true(world.hook(world.context, 2.6, text, sizeof text));
  assert_non_null(strstr(text, "3 ranks, which exchange through NCCL 2.28.9, has not ended after 2.5 s"));
  fake->async = 2;
  assert_true(world.hook(world.context, 0.1, text, sizeof text));
  assert_non_null(strstr(text, "NCCL: a communicator: fake system error"));
  fail_clear();
  nccl_close(made);
}

static int build(void **state) {
  (void)state;
  fake = fake_nccl_build(22809, &search);
  for (uint32_t r = 0; r < RANKS; r++) world.gpus[r].rank = r;
  return 0;
}

static int clean(void **state) {
  (void)state;
  fake_nccl_remove(&search);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_result_is_the_references), cmocka_unit_test(every_rank_leaves_how_far_it_is),
    cmocka_unit_test(one_wrong_byte_is_seen),
    cmocka_unit_test(a_refusal_is_a_fault_of_the_op), cmocka_unit_test(waits_are_limited_for_the_transport_alone),
  };
  return cmocka_run_group_tests(tests, build, clean);
}
