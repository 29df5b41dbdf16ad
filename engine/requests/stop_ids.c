/* stop_ids.c - see stop_ids.h.
 *
 * The lists are short: each id is put in its place among those before it. */
#include "requests/stop_ids.h"
#include <string.h>

uint32_t stop_ids_join(const uint32_t *own, uint32_t own_count, const int32_t *given, uint32_t given_count, int32_t *ids) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < own_count + given_count; i++) {
    int32_t id = i < own_count ? (int32_t)own[i] : given[i - own_count];
    uint32_t at = count;
    while (at > 0 && ids[at - 1] > id) at--;
    if (at > 0 && ids[at - 1] == id) continue;
    memmove(ids + at + 1, ids + at, (count - at) * sizeof *ids);
    ids[at] = id;
    count++;
  }
  return count;
}
