/* links.h - what ranks (GPUs) store in each other's memory, on its way: a part of emulator.cpp.
 *
 * As unfavourable as the memory model of PTX allows: a store arrives at any later time, in any order with others, even after the kernel
 * that made it has ended. Three rules hold. A word of 64 bits arrives whole. Stores to the same address arrive in their order. A flag
 * (release) arrives after everything that its thread stored before, and that threads of its block stored before a barrier which its thread
 * has passed. */
#ifndef VERBATIM_EMULATOR_LINKS_H
#define VERBATIM_EMULATOR_LINKS_H
#include "num.h"
#include <vector>

struct emulator_store { /* `block`, `thread`: who made it, behind how many barriers of the block */
  u8 *to;
  u8 value[16];
  u32 bytes, block, thread, barriers;
  bool is_flag;
};

struct emulator_links {
  u64 random;
  bool at_once; /* stores arrive as they are made */
  std::vector<emulator_store> open;

  void start(u64 seed) {
    random = seed;
    at_once = seed == 0;
    open.clear();
  }
  u32 below(u32 limit) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return (u32)((random >> 33) % limit);
  }
  static bool follows(const emulator_store &later, const emulator_store &earlier) {
    const bool same_thread = later.block == earlier.block && later.thread == earlier.thread;
    const bool overlaps = later.to < earlier.to + earlier.bytes && earlier.to < later.to + later.bytes;
    return overlaps || (later.is_flag && (same_thread || (later.block == earlier.block && earlier.barriers < later.barriers)));
  }
  /* One store arrives, if there is one. */
  bool deliver() {
    if (open.empty()) return false;
    const u32 count = (u32)open.size(), first = below(3) ? below(count) : below(2) ? 0 : count - 1;
    for (u32 n = 0;; n++) { /* the oldest one may always arrive */
      const u32 i = (first + n) % count;
      bool may = true;
      for (u32 j = 0; j < i && may; j++) may = !follows(open[i], open[j]);
      if (!may) continue;
      memcpy(open[i].to, open[i].value, open[i].bytes);
      open.erase(open.begin() + i);
      return true;
    }
  }
};

#endif
