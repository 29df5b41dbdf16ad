/* rank_streams.c - see rank_streams.h. */
#include "tests/kernel/rank_streams.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>

/* All threads of the rank have ended the launch before. */
static void between(void *context, u32 rank) {
  rank_stream *s = context;
  const u32 step = s->at[rank]++;
  u8 *zone = s->zones + rank * s->area_bytes;
  if (step > 0 && !s->is_wrong && s->wrong(s->of, step - 1, rank, zone) != s->zone_bytes) {
    s->is_wrong = true;
    s->wrong_step = step - 1;
    s->wrong_rank = rank;
  }
  if (step < s->count) s->fill(s->of, step, rank, zone);
}

static void run_thread(const void *context, const tensor_maps *maps) {
  rank_stream *s = (rank_stream *)(uintptr_t)context;
  u32 block, rank;
  (void)maps;
  emulator_place(&block, &rank);
  emulator_end(between, s);
  for (u32 step = 0; step < s->count; step++) {
    if (rank == s->absent && step + 1 == s->count) return;
    s->launch(s->of, step, rank);
    emulator_end(between, s);
  }
}

const char *rank_streams_run(rank_stream *self, u32 threads, u32 blocks, u64 seed, u64 idle_ns) {
  static char text[160];
  const emulator_kernel stream = {.stem = "ranks", .spec = "", .flaw = "", .threads = threads, .cluster = blocks * self->ranks,
                                  .cluster_x = blocks, .entry = run_thread, .seed = seed, .idle_ns = idle_ns};
  const char *fault = emulator_run(&stream, (const u32[3]){blocks, self->ranks, 1}, 0, self, NULL);
  if (fault) return fault;
  for (u32 r = 0; r < self->ranks; r++) assert_int_equal(self->at[r], self->count + 1); /* all were compared */
  if (!self->is_wrong) return NULL;
  snprintf(text, sizeof text, "rank %u has another result of launch %u", self->wrong_rank, self->wrong_step);
  return text;
}

void rank_streams_find_flaws(const char *stem, const char *(*emulate)(const emulator_kernel *kernel, u32 seed)) {
  u32 broken = 0, lost = 0;
  for (const emulator_kernel *k = emulator_kernels(); k; k = k->next) {
    if (strcmp(k->stem, stem) != 0 || !k->flaw[0]) continue;
    const char *found = NULL;
    u32 seed = 0;
    for (; seed < 200 && !found; seed++) found = emulate(k, seed);
    if (found) print_message("    %s: sequence %u: %s\n", k->flaw, seed, found);
    else print_error("no sequence finds the broken kernel: %s\n", k->flaw);
    broken++;
    lost += !found;
  }
  assert_true(broken > 0);
  assert_int_equal(lost, 0);
}
