/* words.cuh - words with tags between ranks, and what every exchange has: epochs, tickets, waits with an end. README.md: why they suffice.
 *
 * A word is 8 bytes of data, sent as two words of 32 bits of data and 32 of tag, the epoch, into the inbox of another rank, where threads
 * poll it. A is the argument struct of exchange or of rank_norm: ranks, inbox, state, count, nth. Read next: exchange.cu. */
#ifndef VERBATIM_WORDS_CUH
#define VERBATIM_WORDS_CUH
#include "ptx/reduce.cuh"

typedef struct patience {
  u64 since;
  u32 tries;
} patience;

/* Called in every turn of a wait for rank `who`. The first wait of this rank that lasts too long writes the record and ends the kernel, as
 * the engine then ends the process. */
template <class A> NUM void wait_more(const A &a, u64 timeout, u32 who, u32 epoch, patience &p) {
  if (++p.tries % 256u != 0 || timeout == 0) return;
  const u64 now = ptx_nanoseconds();
  if (p.tries == 256u) p.since = now;
  if (now - p.since < timeout) return;
  exchange_record *record = (exchange_record *)a.ranks->record;
  if (reduce_take(a.state + EXCHANGE_LATE) > 0)
    for (;;) ptx_pause(1000); /* until the first one ends the kernel */
  if (record) {
    record->rank = a.ranks->rank;
    record->waited_for = who;
    record->op = a.nth;
    record->epoch = epoch;
    ptx_fence_system();
    record->is_written = 1;
    ptx_fence_system();
  }
  __trap();
}

/* After ptx_grid_wait: exchanges of a rank do not overlap. */
template <class A> NUM u32 next_epoch(const A &a) { return ptx_load_fresh(a.state + EXCHANGE_EPOCH) + 1u; }

/* After a barrier behind the block's reads of the epoch. The block that says so last, among all, advances it. */
template <class A> NUM void advance(const A &a, u32 epoch) {
  if (threadIdx.x > 0 || reduce_take(a.state + EXCHANGE_TICKET) != gridDim.x - 1) return;
  a.state[EXCHANGE_TICKET] = 0;
  a.state[EXCHANGE_EPOCH] = epoch;
}

template <class T> NUM T *there(T *p, u64 peer) { return (T *)((u64)p + peer); }

/* The half of the inbox for this epoch: 16 bytes for each word of rank 0, of rank 1, ... */
template <class A> NUM u8 *words_inbox(const A &a, u32 epoch) {
  return (u8 *)a.inbox + EXCHANGE_FLAGS_BYTES(a.count) + (u64)(epoch % 2u) * EXCHANGE_PARITY_BYTES(a.count);
}

NUM void words_put(u8 *to, u32 epoch, u32 low, u32 high) {
  const u64 tag = (u64)epoch << 32;
  ptx_put_words(to, tag | low, tag | high);
}
/* Whether the word has arrived. */
NUM bool words_get(const u8 *from, u32 epoch, u32 &low, u32 &high) {
  u64 first, second;
  ptx_get_words(from, first, second);
  low = (u32)first, high = (u32)second;
  return first >> 32 == epoch && second >> 32 == epoch;
}

#endif
