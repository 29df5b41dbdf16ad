/* ranks.h - launches of several ranks, and their stores to each other: a part of emulator.cpp, which includes it where its types are known.
 *
 * Read next: links.h. */
static void wait_for(const meeting &some) {
  fiber &self = m->fibers[threadIdx.x];
  self.waits_for = &some;
  self.generation = some.generation;
  yield();
  self.waits_for = nullptr;
}

/* Something else happens first, or not. */
static void pause() {
  if (run.links.at_once) return;
  while (run.links.below(3) == 0 && run.links.deliver()) run.arrivals.generation++;
  if (run.links.below(8) == 0) wait_for(run.turns);
}

void emulator_store_far(void *to, const void *value, u32 bytes, bool is_flag) {
  const u32 block = blockIdx.y << 16 | blockIdx.x;
  emulator_store store = {static_cast<u8 *>(to), {}, bytes, block, threadIdx.x, m->block.generation, is_flag};
  memcpy(store.value, value, bytes);
  run.links.open.push_back(store);
  if (run.links.at_once && run.links.deliver()) run.arrivals.generation++;
  pause();
}

/* Before every look at memory that another rank writes. A second look at the same place comes after a change. */
void emulator_poll(const void *from) {
  fiber &self = m->fibers[threadIdx.x];
  pause();
  for (const void *seen : self.polled)
    if (seen == from && self.polled_at == run.arrivals.generation) {
      wait_for(run.arrivals);
      break;
    }
  if (self.polled_at != run.arrivals.generation) self.polled.clear();
  self.polled.push_back(from);
  self.polled_at = run.arrivals.generation;
}

u64 emulator_nanoseconds() { return run.nanoseconds; }

void emulator_place(u32 *block, u32 *rank) {
  *block = blockIdx.x;
  *rank = blockIdx.y;
}

void emulator_launch(const emulator_kernel *kernel, u32 grid, const void *args) {
  if (blockIdx.x >= grid) return;
  gridDim = m->grid = {grid, 1, 1};
  kernel->entry(args, nullptr);
}

void emulator_end(void (*between)(void *context, u32 rank), void *context) {
  const u32 rank = blockIdx.y;
  meet(run.of_rank[rank], run.kernel->cluster_x * run.kernel->threads, "end of a launch", [=] { between(context, rank); });
}
