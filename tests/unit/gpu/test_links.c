/* test_links.c - the measurement of the links between GPUs, with simulated GPUs whose memory is the host's: what is sent arrives, each
 * direction has its own figures, a byte that changes on the way is found, and everything opened is closed. Stands in for gpu.c. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/gpu/links.h"

#define GPUS 3u
#define BYTES ((size_t)2 << 20) /* of the simulated memory: as much as is looked at, of each half */
#define HALF (UINT64_C(64) << 20)
#define BASE(i) ((UINT64_C(1) + (i)) << 40)

/* A stream is its gpu; an event holds the time at which it was reached. */
struct gpu { gpu_info info; };
struct gpu_event { double us; };

static struct {
  gpu gpus[GPUS];
  uint8_t *memory[GPUS][2]; /* what each sends and what it receives */
  gpu_event events[2 * GPUS];
  uint32_t opened, closed, events_used, bound, selected, peers;
  double us;              /* the time so far */
  uint32_t fail_open;     /* the GPU of this number cannot be opened */
  uint32_t broken_from, broken_to;
  bool is_broken, has_no_way;
} world;

static uint8_t pinned[2u << 20];

static uint8_t *place(uint64_t address) {
  const uint64_t gpu_number = (address >> 40) - 1, offset = address - BASE(gpu_number);
  assert_true(gpu_number < GPUS);
  return world.memory[gpu_number][offset >= HALF];
}
static uint32_t number_of(uint64_t address) { return (uint32_t)(address >> 40) - 1; }

status __wrap_gpu_open(uint32_t index, const dynlib_search *search, gpu **out);
status __wrap_gpu_open(uint32_t index, const dynlib_search *search, gpu **out) {
  (void)search;
  if (index == world.fail_open) return FAIL(ERR_DEVICE, "GPU %u is in exclusive use", index);
  *out = &world.gpus[index];
  (*out)->info.index = index;
  world.opened++;
  world.selected = index;
  world.bound++;
  return OK;
}
void __wrap_gpu_close(gpu *self);
void __wrap_gpu_close(gpu *self) { (void)self, world.closed++, world.bound--; }
void __wrap_gpu_bind(gpu *self);
void __wrap_gpu_bind(gpu *self) { world.selected = self->info.index, world.bound++; }
void __wrap_gpu_unbind(gpu *self);
void __wrap_gpu_unbind(gpu *self) { (void)self, world.bound--; }
void __wrap_gpu_select(gpu *self);
void __wrap_gpu_select(gpu *self) { world.selected = self->info.index; }
const gpu_info *__wrap_gpu_describe(const gpu *self);
const gpu_info *__wrap_gpu_describe(const gpu *self) { return &self->info; }
status __wrap_gpu_memory(gpu *self, uint64_t *free_bytes, uint64_t *total_bytes);
status __wrap_gpu_memory(gpu *self, uint64_t *free_bytes, uint64_t *total_bytes) {
  *free_bytes = self->info.index == 1 ? 70 : 90; /* the second has the least */
  *total_bytes = 100 + self->info.index;
  return OK;
}
status __wrap_gpu_reserve(gpu *self, uint64_t bytes, uint64_t *address);
status __wrap_gpu_reserve(gpu *self, uint64_t bytes, uint64_t *address) {
  assert_int_equal(world.selected, self->info.index);
  assert_int_equal(bytes, 2 * HALF);
  *address = BASE(self->info.index);
  return OK;
}
status __wrap_gpu_pin(gpu *self, size_t bytes, void **host);
status __wrap_gpu_pin(gpu *self, size_t bytes, void **host) {
  (void)self;
  assert_true(bytes <= sizeof pinned);
  *host = pinned;
  return OK;
}
status __wrap_gpu_peer(gpu *self, const gpu *other);
status __wrap_gpu_peer(gpu *self, const gpu *other) {
  assert_int_equal(world.selected, self->info.index);
  assert_true(self != other);
  world.peers++;
  return world.has_no_way ? FAIL(ERR_DEVICE, "GPU %u cannot use the memory of GPU %u", self->info.index, other->info.index) : OK;
}
status __wrap_gpu_stream_open(gpu *self, gpu_stream **out);
status __wrap_gpu_stream_open(gpu *self, gpu_stream **out) { return *out = (void *)self, OK; }
status __wrap_gpu_event_open(gpu *self, bool timed, gpu_event **out);
status __wrap_gpu_event_open(gpu *self, bool timed, gpu_event **out) {
  (void)self;
  assert_true(timed && world.events_used < ARRAY_LEN(world.events));
  *out = &world.events[world.events_used++];
  return OK;
}
void __wrap_gpu_fill32(gpu *self, gpu_stream *stream, uint64_t target, uint32_t word, uint64_t words);
void __wrap_gpu_fill32(gpu *self, gpu_stream *stream, uint64_t target, uint32_t word, uint64_t words) {
  (void)stream, (void)word;
  assert_int_equal(world.selected, self->info.index);
  memset(place(target), 0, 4 * words);
}
void __wrap_gpu_upload(gpu *self, gpu_stream *stream, uint64_t target, const void *source, size_t bytes);
void __wrap_gpu_upload(gpu *self, gpu_stream *stream, uint64_t target, const void *source, size_t bytes) {
  (void)stream;
  assert_int_equal(world.selected, self->info.index);
  memcpy(place(target), source, bytes);
}
void __wrap_gpu_download(gpu *self, gpu_stream *stream, void *target, uint64_t source, size_t bytes);
void __wrap_gpu_download(gpu *self, gpu_stream *stream, void *target, uint64_t source, size_t bytes) {
  (void)stream;
  assert_int_equal(world.selected, self->info.index);
  memcpy(target, place(source), bytes);
}
/* From a to b: 1 + a us for each, and 100 + 10 a + b GB/s. */
void __wrap_gpu_copy(gpu *self, gpu_stream *stream, uint64_t target, uint64_t source, size_t bytes);
void __wrap_gpu_copy(gpu *self, gpu_stream *stream, uint64_t target, uint64_t source, size_t bytes) {
  const uint32_t from = number_of(source), to = number_of(target);
  (void)stream;
  assert_int_equal(world.selected, self->info.index);
  assert_true(from == self->info.index && to != from && bytes <= HALF);
  memcpy(place(target), place(source), bytes < BYTES ? bytes : BYTES);
  if (world.is_broken && from == world.broken_from && to == world.broken_to && bytes > 1000) place(target)[999] ^= 4;
  world.us += bytes < 1000 ? 1 + from : 1e-3 * (double)bytes / (100 + 10 * from + to);
}
void __wrap_gpu_record(gpu *self, gpu_stream *stream, gpu_event *event);
void __wrap_gpu_record(gpu *self, gpu_stream *stream, gpu_event *event) { (void)self, (void)stream, event->us = world.us; }
void __wrap_gpu_sync(gpu *self, gpu_stream *stream, const char *op);
void __wrap_gpu_sync(gpu *self, gpu_stream *stream, const char *op) { (void)self, (void)stream, (void)op; }
double __wrap_gpu_elapsed_us(gpu *self, gpu_event *first, gpu_event *last);
double __wrap_gpu_elapsed_us(gpu *self, gpu_event *first, gpu_event *last) { return (void)self, last->us - first->us; }

static int reset(void **state) {
  (void)state;
  uint8_t *memory[GPUS][2];
  memcpy(memory, world.memory, sizeof memory);
  memset(&world, 0, sizeof world);
  world.fail_open = UINT32_MAX;
  for (uint32_t i = 0; i < 2 * GPUS; i++) {
    if (!memory[i / 2][i % 2]) memory[i / 2][i % 2] = malloc(BYTES);
    assert_non_null(memory[i / 2][i % 2]);
    world.memory[i / 2][i % 2] = memset(memory[i / 2][i % 2], 0x55, BYTES);
  }
  fail_clear();
  return 0;
}

static int release(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 2 * GPUS; i++) free(world.memory[i / 2][i % 2]);
  return 0;
}

static void expect_closed(void) {
  assert_int_equal(world.opened, world.closed);
  assert_int_equal(world.bound, 0);
}

static bool is_near(double value, uint32_t expected) { return value > expected - 1e-6 && value < expected + 1e-6; }

static void every_direction_is_measured(void **state) {
  (void)state;
  links_report r = {0};
  assert_int_equal(links_measure(0, GPUS, NULL, &r), OK);
  for (uint32_t i = 0; i < GPUS; i++)
    for (uint32_t j = 0; j < GPUS; j++) {
      assert_true(is_near(r.speed[i][j].gb_per_s, i == j ? 0 : 100 + 10 * i + j));
      assert_true(is_near(r.speed[i][j].latency_us, i == j ? 0 : 1 + i));
    }
  assert_true(r.free_bytes == 70 && r.total_bytes == 101);
  assert_int_equal(world.opened, GPUS);
  assert_int_equal(world.peers, GPUS * (GPUS - 1));
  expect_closed();
}

static void a_changed_bit_is_found_and_named(void **state) {
  (void)state;
  for (uint32_t i = 0; i < GPUS * GPUS; i++) {
    links_report r = {0};
    if (i / GPUS == i % GPUS) continue;
    reset(NULL);
    world.is_broken = true;
    world.broken_from = i / GPUS;
    world.broken_to = i % GPUS;
    char expected[64];
    snprintf(expected, sizeof expected, "a copy from GPU %u to GPU %u: byte 999: expected ", i / GPUS, i % GPUS);
    assert_int_equal(links_measure(0, GPUS, NULL, &r), ERR_MISMATCH);
    if (!strstr(fail_text(), expected)) fail_msg("%s", fail_text());
    assert_int_equal(r.free_bytes, 0); /* untouched */
    expect_closed();
  }
}

static void what_cannot_be_opened_is_an_error(void **state) {
  (void)state;
  links_report r;
  for (uint32_t i = 0; i < GPUS; i++) {
    reset(NULL);
    world.fail_open = i;
    assert_int_equal(links_measure(0, GPUS, NULL, &r), ERR_DEVICE);
    assert_int_equal(world.opened, i);
    expect_closed();
  }
  reset(NULL);
  world.has_no_way = true;
  assert_int_equal(links_measure(1, 2, NULL, &r), ERR_DEVICE);
  assert_non_null(strstr(fail_text(), "GPU 1 cannot use the memory of GPU 2"));
  expect_closed();
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(every_direction_is_measured, reset),
    cmocka_unit_test_setup(a_changed_bit_is_found_and_named, reset),
    cmocka_unit_test_setup(what_cannot_be_opened_is_an_error, reset),
  };
  return cmocka_run_group_tests(tests, NULL, release);
}
