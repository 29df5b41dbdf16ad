/* exchange.cu - every rank's columns of up to four tables, x, to all ranks, y. NUMERICS.md, `exchange`; README.md: why the waits suffice.
 * Or, only with SPEC_TAGGED 0, to the owners of the rows alone; or the rows that every rank owns, to all ranks, or each rank's columns of
 * them to that rank.
 *
 * SPEC_TAGGED 1, for few bytes: columns go as words of 32 bits of data and 32 of tag, the epoch, into the inboxes of the other ranks, whose
 * threads poll them and store the data in their own y. Half of what is sent are tags, but nothing waits for anything else: one way over the
 * link. Words are numbered over all tables; a thread sends and receives the same numbers. Grid: any number of blocks.
 * SPEC_TAGGED 0: columns go straight into the y of the other ranks once these have said that nothing there is in use, and a flag from each
 * block says that its columns are there: three ways over the link. Grid: at most EXCHANGE_BLOCKS_MAX, the same on all ranks.
 * 512 threads. Blocks need not run all at once, but begin in the order of their numbers. Bytes out: part_bytes * rows * (ranks - 1), twice
 * that with tags. Bound: the link's latency, then its bandwidth. */
#include "spec.cuh"
#include "ranks/words.cuh"

/* Units of `unit` bytes of each rank in table t. */
NUM u32 units_of(const exchange_args &a, u32 rows, u32 t, u32 unit) { return rows * a.rows_mul[t] * (a.part_bytes[t] / unit); }

/* Number of unit i of rank r's columns in y, and its place. */
NUM u64 unit_of(const exchange_args &a, u32 t, u32 i, u32 r, u32 unit) {
  const u32 of_row = a.part_bytes[t] / unit;
  return (u64)(i / of_row * a.count + r) * of_row + i % of_row;
}
NUM u8 *unit_at(const exchange_args &a, u32 t, u32 i, u32 r, u32 unit) { return (u8 *)a.y[t] + unit_of(a, t, i, r, unit) * unit; }

/* Of unit number i of 8 bytes in table t. */
NUM u64 digest_unit(u32 t, u64 i, u64 x) {
  const u32 first = (u32)i * 2u + (t << 29);
  return num_digest_word(first, (u32)x) + num_digest_word(first + 1u, (u32)(x >> 32));
}

NUM void add_digest(const exchange_args &a, u64 sum) {
  sum = reduce_sum_warp(sum);
  if (threadIdx.x % 32u == 0) reduce_add((u64 *)(a.state + (EXCHANGE_IS_TO_ONE(a.form) ? EXCHANGE_BALANCE : EXCHANGE_DIGEST)), sum);
}

/* The table of word i of all tables, one after the other; i becomes its number in that table. */
NUM u32 table_of(const exchange_args &a, u32 rows, u32 &i) {
  u32 t = 0;
#pragma unroll
  for (u32 next = 1; next < EXCHANGE_TABLES; next++) {
    const u32 units = units_of(a, rows, next - 1u, 8u);
    if (t != next - 1u || i < units) continue;
    i -= units;
    t = next;
  }
  return t;
}

NUM u32 *flag_at(const exchange_args &a, u32 sender, u32 number) {
  return (u32 *)((u8 *)a.inbox + (sender * (1u + EXCHANGE_BLOCKS_MAX) + number) * EXCHANGE_FLAG_BYTES);
}

NUM void exchange_tagged(const exchange_args &a, u32 rows, u32 rank, const u64 *peer, u64 timeout) {
  const u32 epoch = next_epoch(a), count = a.count;
  u32 words = 0;
#pragma unroll
  for (u32 t = 0; t < EXCHANGE_TABLES; t++) words += units_of(a, rows, t, 8u);
  u8 *inbox = words_inbox(a, epoch);
  const u32 first = blockIdx.x * SPEC_THREADS + threadIdx.x, step = gridDim.x * SPEC_THREADS, items = (count - 1u) * words;
  const bool is_checked = EXCHANGE_IS_CHECKED(epoch, a.ranks->sample_bits);
  u64 sum = 0;
  for (u32 i = first; i < items; i += step) {
    const u32 word = i % words, to = (rank + 1u + i / words) % count;
    u32 at = word;
    const u32 t = table_of(a, rows, at);
    const u64 x = ((const u64 *)a.x[t])[at];
    words_put(there(inbox + ((u64)rank * words + word) * 16u, peer[to]), epoch, (u32)x, (u32)(x >> 32));
    if (i >= words) continue;
    *(u64 *)unit_at(a, t, at, rank, 8u) = x;
    if (is_checked) sum += digest_unit(t, unit_of(a, t, at, rank, 8u), x);
  }
  __syncthreads();
  advance(a, epoch);
  for (u32 i = first; i < items; i += step) {
    const u32 word = i % words, from = (rank + count - 1u - i / words) % count;
    const u8 *sent = inbox + ((u64)from * words + word) * 16u;
    u32 low, high;
    patience late = {};
    while (!words_get(sent, epoch, low, high)) wait_more(a, timeout, from, epoch, late);
    u32 at = word;
    const u32 t = table_of(a, rows, at);
    *(u64 *)unit_at(a, t, at, from, 8u) = low | (u64)high << 32;
    if (is_checked) sum += digest_unit(t, unit_of(a, t, at, from, 8u), low | (u64)high << 32);
  }
  if (!is_checked) return;
  __syncwarp();
  add_digest(a, sum);
}

#define AT_ONCE 4u /* loads of a thread before its stores */

/* Whether rows consist of units of 16 bytes. */
NUM bool is_wide(const exchange_args &a, u32 t) { return (a.part_bytes[t] | a.x_stride[t] | a.y_stride[t]) % 16u == 0; }

/* Rows of a table that a rank has in x. */
NUM u32 rows_of(const exchange_args &a, u32 rows, u32 t, u32 rank) {
  return EXCHANGE_HAS_OWN_ROWS(a.form) ? (rows + a.count - 1u - rank) / a.count : rows * a.rows_mul[t];
}

/* Units of a row of x, and of a row of y that one rank gets. */
NUM u32 units_of_part(const exchange_args &a, u32 t, u32 unit) { return a.part_bytes[t] / unit; }
NUM u32 units_of_row(const exchange_args &a, u32 t, u32 unit) {
  return units_of_part(a, t, unit) * (a.form == EXCHANGE_PARTS ? a.count : 1u);
}

/* Number of unit i of what a rank has in x, among those of all ranks without gaps. */
NUM u64 number_of(const exchange_args &a, u32 t, u32 i, u32 rank, u32 unit) {
  const u32 of_row = units_of_row(a, t, unit);
  if (!EXCHANGE_HAS_OWN_ROWS(a.form)) return unit_of(a, t, i, rank, unit);
  return (u64)(i / of_row * a.count + rank) * of_row + i % of_row;
}

/* This unit, and its place in y. */
NUM const u8 *source_at(const exchange_args &a, u32 t, u32 i, u32 rank, u32 unit) {
  const u32 of_row = units_of_row(a, t, unit);
  if (a.form == EXCHANGE_PARTS) return (const u8 *)a.x[t] + number_of(a, t, i, rank, unit) * unit;
  if (a.form != EXCHANGE_ROWS) return (const u8 *)a.x[t] + (u64)i * unit;
  return (const u8 *)a.x[t] + (u64)(i / of_row) * a.x_stride[t] + i % of_row * unit;
}
NUM u8 *target_at(const exchange_args &a, u32 t, u32 i, u32 rank, u32 unit) {
  const u32 of_row = units_of_row(a, t, unit);
  if (!EXCHANGE_HAS_OWN_ROWS(a.form)) return unit_at(a, t, i, rank, unit);
  const u32 stride = a.form == EXCHANGE_PARTS ? a.part_bytes[t] : a.y_stride[t];
  return (u8 *)a.y[t] + (u64)(i / of_row * a.count + rank) * stride + i % of_row % units_of_part(a, t, unit) * unit;
}

/* The one rank that gets unit i of x: that which owns its row, or whose columns these are. */
NUM u32 receiver_of(const exchange_args &a, u32 t, u32 i, u32 unit) {
  const u32 part = i / units_of_part(a, t, unit);
  return (a.form == EXCHANGE_PARTS ? part : part / a.rows_mul[t]) % a.count;
}

/* Copies this block's share of what the rank has of a table into the y of all ranks, or of the one that gets it. */
template <class T> NUM void push(const exchange_args &a, u32 rows, u32 t, u32 rank, const u64 *peer) {
  const u32 units = rows_of(a, rows, t, rank) * units_of_row(a, t, sizeof(T)), step = gridDim.x * SPEC_THREADS;
  for (u32 first = blockIdx.x * SPEC_THREADS + threadIdx.x; first < units; first += AT_ONCE * step) {
    T held[AT_ONCE];
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++)
      if (first + k * step < units) held[k] = *(const T *)source_at(a, t, first + k * step, rank, sizeof(T));
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      if (first + k * step >= units) break;
      T *at = (T *)target_at(a, t, first + k * step, rank, sizeof(T));
      if (EXCHANGE_IS_TO_ONE(a.form)) {
        const u32 receiver = receiver_of(a, t, first + k * step, sizeof(T));
        if (receiver == rank) *at = held[k];
        else ptx_push(there(at, peer[receiver]), held[k]);
        continue;
      }
      *at = held[k];
      for (u32 j = 1; j < a.count; j++) ptx_push(there(at, peer[(rank + j) % a.count]), held[k]);
    }
  }
}

/* Digest of a unit of 16 or 8 bytes, at its number in a table without gaps. */
NUM u64 digest_wide(u32 t, u64 number, u32 wide, const u64 *at) {
  u64 sum = 0;
  for (u32 half = 0; half < wide; half++) sum += digest_unit(t, number * wide + half, ptx_load_fresh(at + half));
  return sum;
}

/* What this block and those of its number on the other ranks have stored here: of columns, unit i of every rank. Where each unit goes to
 * one rank, what this rank got, and what it has sent; a block judges the units that it sends, and those with the same number that it gets
 * from others. */
NUM void check_pushed(const exchange_args &a, u32 rows, u32 rank) {
  u64 sum = 0;
#pragma unroll 1
  for (u32 t = 0; t < EXCHANGE_TABLES; t++) {
    if (a.part_bytes[t] == 0) break;
    const u32 wide = is_wide(a, t) ? 2u : 1u, unit = 8u * wide, of_row = units_of_row(a, t, unit), step = gridDim.x * SPEC_THREADS;
#pragma unroll 1
    for (u32 r = 0; r < a.count; r++) {
      const u32 units = rows_of(a, rows, t, r) * of_row;
      for (u32 i = blockIdx.x * SPEC_THREADS + threadIdx.x; i < units; i += step) {
        const u64 number = number_of(a, t, i, r, unit);
        const bool is_to_one = EXCHANGE_IS_TO_ONE(a.form);
        if (is_to_one && r == rank) sum += digest_wide(t, number, wide, (const u64 *)source_at(a, t, i, rank, unit));
        if (is_to_one && receiver_of(a, t, i, unit) != rank) continue;
        const u64 there_now = digest_wide(t, number, wide, (const u64 *)target_at(a, t, i, r, unit));
        sum += is_to_one ? 0u - there_now : there_now;
      }
    }
  }
  __syncwarp();
  add_digest(a, sum);
}

/* Waits, in one thread per other rank, for that rank's flag. */
NUM void wait_flags(const exchange_args &a, u32 rank, u32 number, u32 epoch, u64 timeout) {
  const u32 from = threadIdx.x;
  patience late = {};
  if (from < a.count && from != rank)
    while (ptx_get_flag(flag_at(a, from, number)) != epoch) wait_more(a, timeout, from, epoch, late);
  __syncthreads();
}

NUM void exchange_flagged(const exchange_args &a, u32 rows, u32 rank, const u64 *peer, u64 timeout) {
  const u32 epoch = next_epoch(a), t = threadIdx.x;
  const bool is_other = t < a.count && t != rank;
  if (blockIdx.x == 0 && is_other) ptx_put_flag(there(flag_at(a, rank, 0), peer[t]), epoch);
  __syncthreads();
  advance(a, epoch);
  wait_flags(a, rank, 0, epoch, timeout);
#pragma unroll 1
  for (u32 i = 0; i < EXCHANGE_TABLES; i++) {
    if (is_wide(a, i)) push<uint4>(a, rows, i, rank, peer);
    else push<u64>(a, rows, i, rank, peer);
  }
  __syncthreads(); /* all columns of this block are stored */
  if (is_other) ptx_put_flag(there(flag_at(a, rank, 1u + blockIdx.x), peer[t]), epoch);
  wait_flags(a, rank, 1u + blockIdx.x, epoch, timeout);
  if (EXCHANGE_IS_CHECKED(epoch, a.ranks->sample_bits)) check_pushed(a, rows, rank);
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void exchange(const __grid_constant__ exchange_args a) {
  __shared__ u64 peer[RANKS_MAX];
  ptx_grid_next();
  const u32 rows = a.rows_kind == ROWS_LOGITS ? a.step->logit_count : a.step->token_count, rank = a.ranks->rank;
  const u64 timeout = a.ranks->timeout_ns;
  if (threadIdx.x < RANKS_MAX) peer[threadIdx.x] = a.ranks->peer[threadIdx.x];
  __syncthreads();
  ptx_settle(rows + rank);
  ptx_grid_wait();
  if (rows == 0) return; /* on all ranks: no epoch */
  if (SPEC_TAGGED) exchange_tagged(a, rows, rank, peer, timeout);
  else exchange_flagged(a, rows, rank, peer, timeout);
}
