/* emulator.cpp - one block of CUDA threads at a time, or one cluster, as fibers that are switched only where they must wait.
 *
 * As unfavourable as the rules allow: shared memory starts as 0xff in every block and not at a multiple of 1024; the order of threads
 * changes from block to block; in one block asynchronous copies happen at their wait and MMAs at once, in the next copies at once and MMAs
 * at their wait, from what the operands hold then. A breach of the rules ends the launch with a message.
 * The sums of products are h16_gemm and h32_gemm, NUMERICS.md "H16" and "H32". Read next: README.md, kernels_src/ptx/ptx.cuh. */
#include "emulator.h"
#include "links.h"
#include "ptx.cuh"
#include "engine/mma/h16.h"
#include "engine/mma/h32.h"
#include <condition_variable>
#include <deque>
#include <link.h>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <thread>
#include <vector>

static constexpr u32 THREADS_MAX = 1024, WARP = 32, SHARED_BYTES_MAX = 232448, SHARED_START = 512, CLUSTER_MAX = 32;
static constexpr size_t STACK_BYTES = 65536 + 5 * 64; /* not a power of two: the stacks would share the same sets of the cache */

emulator_index threadIdx, blockIdx, gridDim;
alignas(1024) thread_local u8 shared[SHARED_BYTES_MAX], raw[SHARED_BYTES_MAX]; /* the kernels' names of dynamic shared memory */

/* A point where threads wait for each other. `what`: the operation that all of them must have reached. */
struct meeting { u32 come, generation; const char *what; };

struct copy { u32 shared; const void *global; u32 bytes, place; };

/* A shared address as a number holds, above this bit, 1 + the rank of its block in the cluster, or 0 for this block. */
static constexpr u32 RANK_SHIFT = 24;

/* A barrier in shared memory: arrivals and bytes that its phase still waits for. Copies in flight land when a thread waits. */
struct bulk { u32 shared; const void *global; u32 bytes; bool swizzled; };
struct barrier {
  u32 arrivals, left;
  i64 bytes;
  u32 waiting;
  meeting phase;
  std::vector<bulk> open;
};

struct fiber {
  void *at; /* its stack while another runs; null before it has begun */
  bool done;
  const meeting *waits_for; /* null: may run */
  u32 generation;           /* of that meeting, at the start of the wait */
  std::vector<copy> open;
  std::deque<std::vector<copy>> groups;
  std::vector<const void *> polled; /* since run.arrivals has been at polled_at */
  u32 polled_at;
};

/* Kinds of MMA: a's rows are k, b's rows are k, numbers are e4m3 instead of bf16, and such an MMA without addend. */
static constexpr u32 TURNED = 1, ACROSS = 2, BYTES = 4, ANEW = 8;

/* A warp's quarter of an MMA: 16 of the 64 rows. */
struct multiplication { u64 a, b; u32 n, quarter, kind; f32 *d[WARP]; const u32 *held[WARP]; }; /* held: a, or null */

struct warp {
  meeting all;
  u64 in[WARP], out[WARP];
  u32 address[WARP], matrix[WARP][4];
  multiplication next;
  std::vector<multiplication> open;
  std::deque<std::vector<multiplication>> groups;
  u64 trace; /* of all MMAs of the block: the four warps of a warpgroup must agree */
};

/* A block of the launch, on its own operating-system thread, whose thread_local memory is the block's shared memory. */
struct machine {
  u8 *stacks, *dynamic; /* dynamic: shared or raw, whichever the kernel takes the address of */
  u64 progress;
  u32 ended; /* threads of this block */
  emulator_index place, grid;
  void *scheduler; /* its stack while a fiber runs */
  fiber fibers[THREADS_MAX];
  meeting block, some[16];
  std::map<u32, barrier> barriers; /* by shared address, of this block */
  int any, block_any;
  warp warps[THREADS_MAX / WARP];
  u8 *base; /* in its thread_local memory */
  bool gone;
  std::condition_variable passed; /* the turn to this block */
};

/* The state that the blocks of a cluster share: one block runs at a time, until it needs the others. */
static struct launch {
  const emulator_kernel *kernel;
  const void *args;
  const tensor_maps *maps;
  u32 shared_bytes, launches, blocks; /* blocks: clusters so far, plus launches; determines the orders */
  bool copies_at_once; /* and MMAs at their wait; or the reverse */
  const char *fault;
  std::mutex lock;
  u32 turn, idle, ended, gone; /* idle: turns in a row without progress; ended: blocks; gone: operating-system threads */
  meeting all;
  std::map<const u32 *, meeting> met; /* by word in memory */
  emulator_links links;
  meeting arrivals, turns, of_rank[CLUSTER_MAX]; /* the first two end with each store that arrives, and each turn */
  u64 nanoseconds;
  machine machines[CLUSTER_MAX];
} run;

static machine *m; /* the running block */

/* === Fibers ============================================================================================================= */

/* Leaves this stack, after what a function must keep, in *from, and goes on with the one that was left in `to`: a tenth of the time of a
 * launch with longjmp, which also looks for the thread's cleanup handlers. */
extern "C" void emulator_switch(void **from, void *to);
__asm__(".text\n.type emulator_switch, @function\nemulator_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
static constexpr u32 KEPT = 6;

static void yield() { emulator_switch(&m->fibers[threadIdx.x].at, m->scheduler); }

[[noreturn]] static void fault(const char *text) {
  if (!run.fault) run.fault = text;
  yield();
  __builtin_unreachable(); /* the launch is over */
}

/* Waits until `count` threads have arrived; the last one does the work. */
template <class F> static void meet(meeting &all, u32 count, const char *what, F work) {
  if (all.come == 0) all.what = what;
  if (all.what != what && strcmp(all.what, what) != 0) fault("threads that must do the same do different things");
  const u32 generation = all.generation;
  if (++all.come < count) {
    fiber &self = m->fibers[threadIdx.x];
    self.waits_for = &all;
    self.generation = generation;
    yield();
    self.waits_for = nullptr;
    return;
  }
  work();
  all.come = 0;
  all.generation++;
}

static void body() {
  for (;;) {
    fiber &self = m->fibers[threadIdx.x];
    run.kernel->entry(run.args, run.maps);
    for (const auto &group : self.groups)
      if (!group.empty()) fault("a thread ends with copies under way");
    if (!self.open.empty()) fault("a thread ends with copies that were not committed");
    self.done = true;
    m->ended++;
    yield();
  }
}

/* A stack from which emulator_switch returns to the beginning of body(). */
static void *start(u32 index) {
  void **top = reinterpret_cast<void **>(m->stacks + (index + 1) * STACK_BYTES) - 2;
  *top = reinterpret_cast<void *>(body);
  return top - KEPT;
}

static void resume(u32 index) {
  threadIdx = {index, 0, 0};
  m->progress++;
  if (!m->fibers[index].at) m->fibers[index].at = start(index);
  emulator_switch(&m->scheduler, m->fibers[index].at);
}

/* Runs a warp as far as it can go alone: the farther apart threads get, the more likely a missing barrier shows. */
static void run_warp(u32 first, u32 threads) {
  for (bool ran = true; ran && !run.fault;) {
    ran = false;
    for (u32 i = first; i < first + WARP && !run.fault; i++) {
      const u32 index = run.blocks % 3 == 0 ? i : run.blocks % 3 == 1 ? threads - 1 - i : i ^ 1;
      const fiber &f = m->fibers[index];
      if (f.done || (f.waits_for && f.waits_for->generation == f.generation)) continue;
      resume(index);
      ran = true;
    }
  }
}

/* === Clusters =========================================================================================================== */

/* Passes control to the next block whose operating-system thread still runs. */
static void pass_turn() {
  const u32 blocks = run.kernel->cluster;
  run.turns.generation++;
  do run.turn = (run.kernel->seed && run.idle <= blocks ? run.links.below(blocks) : run.turn + 1) % blocks;
  while (run.machines[run.turn].gone && run.gone < blocks);
  run.machines[run.turn].passed.notify_one();
}

static void take_turn(u32 rank, std::unique_lock<std::mutex> &lock) {
  run.machines[rank].passed.wait(lock, [rank] { return run.turn == rank; });
  m = &run.machines[rank];
  blockIdx = m->place;
  gridDim = m->grid;
}

/* For threads that poll: a store of another rank arrives or, if there is none, time passes. */
static void go_on() {
  if (!run.links.deliver() && run.kernel->idle_ns == 0) return;
  run.nanoseconds += run.kernel->idle_ns;
  run.arrivals.generation++;
  run.idle = 0;
}

/* Runs the threads of a block until all have ended. In every other launch a block runs as far as it can before the next one does, in the
 * others they alternate: a missing wait of one for another shows in one of the two. If no thread of the cluster can run, it is a deadlock.
 * */
static void schedule(u32 threads, u32 rank, std::unique_lock<std::mutex> &lock) {
  while (m->ended < threads && !run.fault) {
    const u64 before = m->progress;
    for (u64 at = before - 1; at != m->progress && !run.fault && (at == before - 1 || run.launches % 2);) {
      at = m->progress;
      for (u32 first = 0; first < threads; first += WARP) run_warp(first, threads);
    }
    run.idle = m->progress == before ? run.idle + 1 : 0;
    if (run.idle > run.kernel->cluster) go_on();
    if (run.idle > 2 * run.kernel->cluster && !run.fault) run.fault = "threads wait for others that never come";
    if (m->ended == threads || run.fault) break;
    pass_turn();
    take_turn(rank, lock);
  }
}

/* === Blocks ============================================================================================================= */

/* The thread-local memory of the program's own objects on this operating-system thread: all shared memory of the kernels, and nothing else
 * that is in use on a thread that only runs kernels. */
static int poison(dl_phdr_info *program, size_t, void *) {
  for (u32 i = 0; i < program->dlpi_phnum; i++)
    if (program->dlpi_phdr[i].p_type == PT_TLS) memset(program->dlpi_tls_data, 0xff, program->dlpi_phdr[i].p_memsz);
  return 1; /* the first object is the program */
}

static void begin_block(u32 threads) {
  dl_iterate_phdr(poison, nullptr);
  run.copies_at_once = run.blocks % 2;
  m->ended = 0;
  m->barriers.clear();
  for (warp &w : m->warps) w.trace = 0;
  for (u32 i = 0; i < threads; i++) {
    fiber &f = m->fibers[i];
    f.done = false;
    f.open.clear();
    f.groups.clear();
  }
}

static void end_block() {
  bool clean = m->block.come == 0;
  for (const meeting &some : m->some) clean = clean && some.come == 0;
  for (const auto &each : m->barriers) clean = clean && each.second.open.empty() && each.second.bytes == 0;
  for (const warp &w : m->warps) clean = clean && w.all.come == 0 && w.open.empty() && w.groups.empty();
  if (!clean && !run.fault) run.fault = "the block ends with a meeting or a multiplication under way";
  for (u32 w = 0; w < THREADS_MAX / WARP; w++)
    if (m->warps[w].trace != m->warps[w / 4 * 4].trace && !run.fault) run.fault = "the warps of a warpgroup multiply differently";
}

/* The blocks of one rank. A cluster begins once all blocks of the previous one have ended. */
static void run_rank(const u32 *grid, u32 rank) {
  std::unique_lock<std::mutex> lock(run.lock);
  const u32 blocks = run.kernel->cluster, along_x = run.kernel->cluster_x;
  u32 begun = 0;
  take_turn(rank, lock);
  m->base = shared;
  for (u32 z = 0; z < grid[2]; z++)
    for (u32 y = rank / along_x; y < grid[1]; y += blocks / along_x)
      for (u32 x = rank % along_x; x < grid[0] && !run.fault; x += along_x) {
        m->place = blockIdx = {x, y, z};
        begin_block(run.kernel->threads);
        schedule(run.kernel->threads, rank, lock);
        end_block();
        if (++run.ended % blocks == 0) run.blocks++;
        for (begun += blocks; run.ended < begun && !run.fault; take_turn(rank, lock)) pass_turn();
      }
  m->gone = true;
  run.gone++;
  pass_turn();
}

/* Clears the state that a fault may have left; fibers start again, on the launch's operating-system thread. */
static void reset() {
  m->gone = false;
  m->dynamic = nullptr;
  m->block = {};
  for (meeting &some : m->some) some = {};
  m->any = m->block_any = 0;
  for (warp &w : m->warps) {
    w.all = {};
    w.open.clear();
    w.groups.clear();
  }
  for (fiber &f : m->fibers) {
    f.at = nullptr;
    f.waits_for = nullptr;
    f.polled.clear();
  }
}

const char *emulator_run(const emulator_kernel *kernel, const u32 grid[3], u32 shared_bytes, const void *args, const tensor_maps *maps) {
  if (kernel->threads > THREADS_MAX || kernel->threads % WARP != 0) return "a number of threads that a block cannot have";
  if (shared_bytes > SHARED_BYTES_MAX) return "more shared memory than a block may have";
  const u32 along_x = kernel->cluster_x;
  if (kernel->cluster > CLUSTER_MAX || grid[0] % along_x != 0 || grid[1] % (kernel->cluster / along_x) != 0)
    return "a cluster that the grid cannot have";
  run.kernel = kernel;
  run.args = args;
  run.maps = maps;
  run.shared_bytes = shared_bytes;
  run.fault = nullptr;
  run.blocks = run.launches++;
  run.all = {};
  run.met.clear();
  run.turn = run.idle = run.ended = run.gone = 0;
  run.links.start(kernel->seed);
  run.arrivals = run.turns = {};
  for (meeting &each : run.of_rank) each = {};
  run.nanoseconds = 0;
  gridDim = {grid[0], grid[1], grid[2]};
  std::vector<std::thread> ranks;
  for (u32 rank = 0; rank < kernel->cluster; rank++) {
    m = &run.machines[rank];
    if (!m->stacks) {
      void *stacks = mmap(nullptr, THREADS_MAX * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (stacks == MAP_FAILED) return "no memory for the stacks";
      m->stacks = static_cast<u8 *>(stacks);
    }
    reset();
    m->grid = gridDim;
  }
  for (u32 rank = 0; rank < kernel->cluster; rank++) ranks.emplace_back(run_rank, grid, rank);
  for (std::thread &rank : ranks) rank.join();
  return run.fault;
}

static emulator_kernel *list;
emulator_kernel *emulator_kernels() { return list; }
void emulator_add(emulator_kernel *kernel) {
  kernel->next = list;
  list = kernel;
}

/* === Block and warp operations ========================================================================================== */

int __syncthreads_or(int x) {
  m->any |= x;
  meet(m->block, run.kernel->threads, "block barrier", [] {
    m->block_any = m->any != 0;
    m->any = 0;
  });
  return m->block_any;
}

void __trap() { fault("the kernel traps"); }

void emulator_cluster_sync() {
  meet(run.all, run.kernel->threads * run.kernel->cluster, "cluster barrier", [] {});
}

/* Thread-local memory has the same layout on all operating-system threads. */
void *emulator_cluster_map(void *p, u32 rank) {
  if (rank >= run.kernel->cluster) fault("a block that the cluster does not have");
  return static_cast<u8 *>(p) - m->base + run.machines[rank].base;
}

template <class F> static u64 warp_meet(u64 x, const char *what, F work) {
  warp &w = m->warps[threadIdx.x / WARP];
  w.in[threadIdx.x % WARP] = x;
  meet(w.all, WARP, what, [&] { work(w); });
  return w.out[threadIdx.x % WARP];
}

void __syncwarp() {
  warp_meet(0, "warp barrier", [](warp &) {});
}

u64 emulator_shuffle(u64 x, u32 from) {
  warp_meet(x, "shuffle", [](warp &w) { memcpy(w.out, w.in, sizeof w.out); });
  return m->warps[threadIdx.x / WARP].out[from % WARP];
}

u32 __ballot_sync(u32, bool x) {
  return (u32)warp_meet(x, "ballot", [](warp &w) {
    u64 all = 0;
    for (u32 i = 0; i < WARP; i++) all |= w.in[i] << i;
    for (u64 &out : w.out) out = all;
  });
}

u32 __match_any_sync(u32, u32 x) {
  return (u32)warp_meet(x, "match", [](warp &w) {
    for (u32 i = 0; i < WARP; i++) {
      w.out[i] = 0;
      for (u32 j = 0; j < WARP; j++) w.out[i] |= (u64)(w.in[j] == w.in[i]) << j;
    }
  });
}

u32 __reduce_max_sync(u32, u32 x) {
  return (u32)warp_meet(x, "maximum", [](warp &w) {
    u64 max = 0;
    for (u64 in : w.in) max = in > max ? in : max;
    for (u64 &out : w.out) out = max;
  });
}

u32 __reduce_add_sync(u32, u32 x) {
  return (u32)warp_meet(x, "sum", [](warp &w) {
    u32 sum = 0;
    for (u64 in : w.in) sum += (u32)in;
    for (u64 &out : w.out) out = sum;
  });
}

/* === Shared memory and copies =========================================================================================== */

u32 emulator_address(const void *p) {
  const u8 *at = static_cast<const u8 *>(p);
  m->dynamic = at >= raw && at < raw + sizeof raw ? raw : shared;
  if (at < m->dynamic || at >= m->dynamic + run.shared_bytes) fault("the address of something that is not dynamic shared memory");
  return SHARED_START + (u32)(at - m->dynamic);
}

/* The block of a shared address, and the address within it. */
static machine &block_of(u32 address) { return address >> RANK_SHIFT ? run.machines[(address >> RANK_SHIFT) - 1] : *m; }
static u32 in_block(u32 address) { return address & ((1u << RANK_SHIFT) - 1); }

u32 emulator_peer(u32 address, u32 rank) {
  if (rank >= run.kernel->cluster) fault("a block that the cluster does not have");
  return in_block(address) | (rank + 1) << RANK_SHIFT;
}

/* The `bytes` bytes at a shared address. */
static u8 *shared_at(u32 address, u32 bytes) {
  u8 *dynamic = block_of(address).dynamic;
  const u32 at = in_block(address);
  if (at % bytes != 0) fault("a shared address that is not aligned");
  if (!dynamic || at < SHARED_START || at - SHARED_START + bytes > run.shared_bytes) fault("a shared address out of range");
  return dynamic + (at - SHARED_START);
}

f32 emulator_load(u32 address) {
  f32 x;
  memcpy(&x, shared_at(address, 4), 4);
  return x;
}

static void land(const copy &c) {
  u8 *to = shared_at(c.shared, c.place);
  memset(to, 0, c.place);
  memcpy(to, c.global, c.bytes);
}

void emulator_copy(u32 to, const void *global, u32 bytes, u32 size) {
  if (reinterpret_cast<uintptr_t>(global) % size != 0 || bytes > size) fault("a copy that is not aligned, or longer than its place");
  shared_at(to, size);
  if (run.copies_at_once)
    land({to, global, bytes, size});
  else
    m->fibers[threadIdx.x].open.push_back({to, global, bytes, size});
}

void emulator_copy_commit() {
  fiber &self = m->fibers[threadIdx.x];
  self.groups.push_back(self.open);
  self.open.clear();
}

void emulator_copy_wait(u32 left) {
  fiber &self = m->fibers[threadIdx.x];
  for (; self.groups.size() > left; self.groups.pop_front())
    for (const copy &c : self.groups.front()) land(c);
}

/* === Barriers in shared memory, and the copies that they count ========================================================== */

static barrier &barrier_at(u32 address) {
  shared_at(address, 8);
  machine &block = block_of(address);
  const auto found = block.barriers.find(in_block(address));
  if (found == block.barriers.end()) fault("a barrier that was not initialised");
  return found->second;
}

static void end_phase(barrier &b) {
  if (b.left > 0 || b.bytes != 0) return;
  b.left = b.arrivals;
  b.phase.generation++;
}

static void land(barrier &b) {
  for (const bulk &c : b.open) {
    for (u32 i = 0; i < c.bytes; i += 16) {
      u32 to = c.shared + i;
      if (c.swizzled) to ^= (to >> 7 & 7) << 4;
      u8 *at = shared_at(to, 16);
      if (c.global) memcpy(at, static_cast<const u8 *>(c.global) + i, 16);
      else memset(at, 0, 16);
    }
    b.bytes -= c.bytes;
  }
  b.open.clear();
}

void emulator_barrier_init(u32 address, u32 arrivals) {
  shared_at(address, 8);
  if (arrivals == 0) fault("a barrier of no arrivals");
  m->barriers[address] = {arrivals, arrivals, 0, 0, {}, {}};
}

void emulator_barrier_arrive(u32 address, u32 bytes) {
  barrier &b = barrier_at(address);
  if (b.left == 0) fault("more arrivals at a barrier than it has");
  b.left--;
  b.bytes += bytes;
  if (run.copies_at_once || b.waiting) land(b);
  end_phase(b);
}

/* The thread's copies must land first: here they land at once. */
void emulator_barrier_arrive_copies(u32 address) {
  fiber &self = m->fibers[threadIdx.x];
  emulator_copy_commit();
  for (; !self.groups.empty(); self.groups.pop_front())
    for (const copy &c : self.groups.front()) land(c);
  emulator_barrier_arrive(address, 0);
}

void emulator_meet(u32 *word, u32 step, u32 all) {
  meeting &some = run.met[word];
  const u32 wanted = (*word / all + 1) * all;
  *word += step;
  some.generation++;
  while (static_cast<i32>(*word - wanted) < 0) {
    fiber &self = m->fibers[threadIdx.x];
    self.waits_for = &some;
    self.generation = some.generation;
    yield();
    self.waits_for = nullptr;
  }
}

void emulator_barrier_wait(u32 address, u32 parity) {
  barrier &b = barrier_at(address);
  while ((b.phase.generation & 1) == parity) {
    land(b);
    end_phase(b);
    if ((b.phase.generation & 1) != parity) break;
    fiber &self = m->fibers[threadIdx.x];
    b.waiting++;
    self.waits_for = &b.phase;
    self.generation = b.phase.generation;
    yield();
    self.waits_for = nullptr;
    b.waiting--;
  }
}

#include "ranks.h"

/* Acts as another block of the cluster, which has passed a cluster barrier since it began. */
template <class F> static void instead_of(u32 rank, F work) {
  if (rank >= run.kernel->cluster) fault("a block that the cluster does not have");
  machine *self = m;
  run.machines[rank].scheduler = self->scheduler; /* where a fault goes */
  m = &run.machines[rank];
  work();
  m = self;
}

void emulator_barrier_arrive_peer(u32 address) {
  instead_of((address >> RANK_SHIFT) - 1, [=] { emulator_barrier_arrive(in_block(address), 0); });
}

static void start_bulk(u32 to, const void *from, u32 bytes, bool swizzled, u32 address) {
  barrier &b = barrier_at(address);
  b.open.push_back({to, from, bytes, swizzled});
  if (!run.copies_at_once && !b.waiting) return;
  land(b);
  end_phase(b);
}

void emulator_copy_bulk(u32 to, const void *from, u32 bytes, u32 address) {
  if (bytes % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0) fault("a bulk copy that is not aligned");
  start_bulk(to, from, bytes, false, address);
}

void emulator_store_peer(u32 to, const void *words, u32 bytes, u32 address) {
  barrier &b = barrier_at(address);
  if (&block_of(to) != &block_of(address)) fault("a store whose barrier is in another block");
  memcpy(shared_at(to, bytes), words, bytes);
  b.bytes -= bytes;
  end_phase(b);
}

void emulator_copy_peer(u32 to, u32 from, u32 bytes, u32 address) {
  if (&block_of(to) != &block_of(address)) fault("a copy whose barrier is in another block");
  if (bytes % 16 != 0 || to % 16 != 0 || from % 16 != 0) fault("a bulk copy that is not aligned");
  (void)shared_at(from + bytes - 16, 16);
  start_bulk(to, shared_at(from, 16), bytes, false, address);
}

void emulator_copy_box(u32 to, const tensor_map *map, u32 dims, const u32 (&at)[5], u32 address) {
  tensor_shape s;
  memcpy(&s, map, sizeof s);
  if (dims != s.dims) fault("a box of another number of dimensions than its map");
  if (to % 128u != 0) fault("a box that is not aligned");
  const u32 item_bytes = (u32)s.stride_bytes[0], piece = 16 / item_bytes, row_bytes = s.box[0] * item_bytes;
  const u32 rows = s.box[1], matrices = dims > 2 ? s.box[2] : 1, groups = dims > 3 ? s.box[3] : 1, sets = dims > 4 ? s.box[4] : 1;
  if (row_bytes % 16 != 0 || (s.swizzled && row_bytes != 128) || at[0] % piece != 0) fault("a box whose rows are no whole pieces");
  for (u32 i = 0; i < sets * groups * matrices * rows; i++)
    for (u32 c = 0; c < s.box[0]; c += piece) {
      const u64 place[5] = {at[0] + c, at[1] + i % rows, at[2] + i / rows % matrices, at[3] + i / rows / matrices % groups,
                            at[4] + i / rows / matrices / groups};
      u64 from = s.address + place[0] * item_bytes;
      bool inside = place[0] < s.extent[0];
      for (u32 d = 1; d < dims; d++) {
        inside = inside && place[d] < s.extent[d];
        from += place[d] * s.stride_bytes[d];
      }
      start_bulk(to + (i * s.box[0] + c) * item_bytes, inside ? reinterpret_cast<const void *>(from) : nullptr, 16, s.swizzled, address);
    }
}

void emulator_copy_box_to(u32 blocks, u32 to, const tensor_map *map, u32 dims, const u32 (&at)[5], u32 address) {
  if (blocks == 0 || blocks >> run.kernel->cluster != 0) fault("a block that the cluster does not have");
  for (u32 rank = 0; rank < run.kernel->cluster; rank++)
    if (blocks >> rank & 1) instead_of(rank, [&] { emulator_copy_box(to, map, dims, at, address); });
}

void emulator_warps(u32 number, u32 threads, bool wait) {
  if (number < 1 || number > 15 || threads % WARP != 0) fault("a barrier of some warps that does not exist");
  meeting &some = m->some[number];
  if (wait) {
    meet(some, threads, "barrier of some warps", [] {});
    return;
  }
  if (some.come == 0) some.what = "barrier of some warps";
  if (++some.come < threads) return;
  some.come = 0;
  some.generation++;
}

/* Lane r * 4 + c / 2 holds element [r][c] of a matrix in the half c % 2 of its register; address 8 * matrix + c gets column c. */
void emulator_store_transposed(u32 to, const u32 (&matrix)[4]) {
  warp &self = m->warps[threadIdx.x / WARP];
  self.address[threadIdx.x % WARP] = to;
  memcpy(self.matrix[threadIdx.x % WARP], matrix, sizeof matrix);
  warp_meet(0, "matrix store", [](warp &w) {
    for (u32 i = 0; i < WARP; i++) {
      const u32 c = i % 8;
      u16 column[8];
      for (u32 r = 0; r < 8; r++) column[r] = (u16)(w.matrix[r * 4 + c / 2][i / 8] >> (c % 2 * 16));
      memcpy(shared_at(w.address[i], 16), column, sizeof column);
    }
  });
}

/* === MMAs =============================================================================================================== */

/* The address of a number of an operand: row `row` (of M or N), `at_k` bytes into it, or, where rows are k, row k. */
static u32 place(u64 operand, u32 row, u32 at_k) {
  const u32 start = (u32)(operand & 0x3fffu) << 4;
  const u32 leading = (u32)(operand >> 16 & 0x3fffu) << 4, stride = (u32)(operand >> 32 & 0x3fffu) << 4;
  if (operand >> 62 == 0) return start + row / 8 * stride + row % 8 * 16 + at_k / 16 * leading + at_k % 16;
  const u32 address = start + row / 8 * stride + row % 8 * 128 + at_k;
  return operand >> 62 == 1 ? address ^ (address >> 7 & 7) << 4 : address;
}

static u32 place_across(u64 operand, u32 row, u32 k) {
  if (operand >> 62 == 0) return place(operand, row, k * 2);
  const u32 leading = (u32)(operand >> 16 & 0x3fffu) << 4, stride = (u32)(operand >> 32 & 0x3fffu) << 4;
  const u32 address = ((u32)(operand & 0x3fffu) << 4) + row / 64 * leading + row % 64 * 2 + k / 8 * stride + k % 8 * 128;
  return operand >> 62 == 1 ? address ^ (address >> 7 & 7) << 4 : address;
}

/* Numbers of an operand that lie side by side in each of its pieces of 16 bytes. */
static constexpr u32 PIECE = 8;

/* `rows` rows of an operand, 16 numbers each, from row `first` on. */
static void gather(u64 operand, u32 first, u32 rows, bool across, bf16 (*out)[16]) {
  if (!across || operand >> 62 == 0) {
    for (u32 i = 0; i < rows; i++)
      for (u32 k = 0; k < 16; k += PIECE) memcpy(&out[i][k], shared_at(place(operand, first + i, k * 2), 16), 16);
    return;
  }
  for (u32 i = 0; i < rows; i += PIECE)
    for (u32 k = 0; k < 16; k++) {
      bf16 piece[PIECE];
      memcpy(piece, shared_at(place_across(operand, first + i, k), 16), 16);
      for (u32 j = 0; j < PIECE; j++) out[i + j][k] = piece[j];
    }
}

/* Element i of a lane's d: its row in the quarter, and its column. */
static u32 row_of(u32 lane, u32 i) { return lane / 4 + i / 2 % 2 * 8; }
static u32 column_of(u32 lane, u32 i) { return i / 4 * 8 + lane % 4 * 2 + i % 2; }

static void multiply_bytes(const multiplication &job) {
  static thread_local u8 a[16][32], b[256][32];
  static thread_local f32 d[16][256];
  for (u32 k = 0; k < 32; k += 16) {
    for (u32 i = 0; i < 16; i++) memcpy(&a[i][k], shared_at(place(job.a, job.quarter * 16 + i, k), 16), 16);
    for (u32 i = 0; i < job.n; i++) memcpy(&b[i][k], shared_at(place(job.b, i, k), 16), 16);
  }
  for (u32 lane = 0; lane < WARP; lane++)
    for (u32 i = 0; i < job.n / 2; i++) d[row_of(lane, i)][column_of(lane, i)] = job.d[lane][i];
  h32_job sums = {};
  sums.x = a[0], sums.w = b[0], sums.y = d[0];
  sums.ldx = sums.ldw = 32, sums.ldy = 256;
  sums.rows = 16, sums.n = job.n, sums.k = 32;
  sums.continues = !(job.kind & ANEW);
  h32_gemm(&sums);
  for (u32 lane = 0; lane < WARP; lane++)
    for (u32 i = 0; i < job.n / 2; i++) job.d[lane][i] = d[row_of(lane, i)][column_of(lane, i)];
}

static void multiply(const multiplication &job) {
  if (job.kind & BYTES) {
    multiply_bytes(job);
    return;
  }
  static bf16 a[16][16], b[256][16]; /* static: one thread runs at a time */
  static f32 d[16][256];
  alignas(64) static u8 scratch[H16_SCRATCH_BYTES];
  if (!job.held[0]) gather(job.a, job.quarter * 16, 16, job.kind & TURNED, a);
  for (u32 i = 0; i < 16 && job.held[0]; i++)
    for (u32 k = 0; k < 16; k++) a[i][k] = (bf16)(job.held[i % 8 * 4 + k % 8 / 2][k / 8 * 2 + i / 8] >> (k % 2 * 16));
  gather(job.b, 0, job.n, job.kind & ACROSS, b);
  for (u32 lane = 0; lane < WARP; lane++)
    for (u32 i = 0; i < job.n / 2; i++) d[row_of(lane, i)][column_of(lane, i)] = job.d[lane][i];
  h16_job sums = {};
  sums.x = a[0], sums.w = b[0], sums.y = d[0];
  sums.ldx = sums.ldw = 16, sums.ldy = 256;
  sums.rows = 16, sums.n = job.n, sums.k = 16;
  sums.continues = 1;
  h16_gemm(&sums, scratch);
  for (u32 lane = 0; lane < WARP; lane++)
    for (u32 i = 0; i < job.n / 2; i++) job.d[lane][i] = d[row_of(lane, i)][column_of(lane, i)];
}

/* Each warp computes its quarter when it gets there: a warpgroup is no barrier. */
static void multiply(f32 *d, u32 n, u64 a, u64 b, u32 kind, const u32 *held) {
  warp &self = m->warps[threadIdx.x / WARP];
  if (self.all.come == 0) self.next = {a, b, n, threadIdx.x / WARP % 4, kind, {}, {}};
  if (self.next.a != a || self.next.b != b || self.next.n != n || self.next.kind != kind) fault("a warp multiplies different operands");
  self.next.d[threadIdx.x % WARP] = d;
  self.next.held[threadIdx.x % WARP] = held;
  warp_meet(0, "multiplication", [](warp &w) {
    w.trace = num_digest_word((u32)w.trace, w.next.n + w.next.kind / 2) ^ num_digest_word((u32)w.next.a, (u32)w.next.b);
    if (run.copies_at_once)
      w.open.push_back(w.next);
    else
      multiply(w.next);
  });
}

void emulator_multiply(f32 *d, u32 n, u64 a, u64 b, bool turned) { multiply(d, n, a, b, turned ? TURNED : 0u, nullptr); }
void emulator_multiply_held(f32 *d, u32 n, const u32 (&a)[4], u64 b, bool across) { multiply(d, n, 0, b, across ? ACROSS : 0u, a); }
void emulator_multiply_e4m3(f32 *d, u32 n, u64 a, u64 b, bool anew) { multiply(d, n, a, b, BYTES | (anew ? ANEW : 0u), nullptr); }

void emulator_multiply_commit() {
  warp_meet(0, "commit", [](warp &w) {
    w.groups.push_back(w.open);
    w.open.clear();
  });
}

void emulator_multiply_wait(u32 left) {
  warp_meet(left, "wait", [](warp &w) {
    for (; w.groups.size() > w.in[0]; w.groups.pop_front())
      for (const multiplication &job : w.groups.front()) multiply(job);
  });
}
