/* eval/import/shots.c - see eval/import/shots.h. */
#include "eval/import/shots.h"
#include <stdlib.h>
#include <string.h>

#define WORDS 624u
#define SHIFT 397u

/* === The Mersenne Twister =================================================================================================== */

void eval_import_shots_seed(eval_import_random *self, uint32_t seed) {
  uint32_t *s = self->state;
  s[0] = 19650218u;
  for (uint32_t i = 1; i < WORDS; i++) s[i] = 1812433253u * (s[i - 1] ^ (s[i - 1] >> 30)) + i;
  uint32_t i = 1;
  for (uint32_t k = 0; k < WORDS; k++) { /* the key is the one word of the seed */
    s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1664525u)) + seed;
    if (++i == WORDS) s[0] = s[WORDS - 1], i = 1;
  }
  for (uint32_t k = 0; k < WORDS - 1; k++) {
    s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1566083941u)) - i;
    if (++i == WORDS) s[0] = s[WORDS - 1], i = 1;
  }
  s[0] = 0x80000000u;
  self->at = WORDS;
}

static void twist(eval_import_random *self) {
  uint32_t *s = self->state;
  for (uint32_t i = 0; i < WORDS; i++) {
    const uint32_t y = (s[i] & 0x80000000u) | (s[(i + 1) % WORDS] & 0x7fffffffu);
    s[i] = s[(i + SHIFT) % WORDS] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
  }
  self->at = 0;
}

static uint32_t next_word(eval_import_random *self) {
  if (self->at == WORDS) twist(self);
  uint32_t y = self->state[self->at++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

/* === Python's sample ======================================================================================================== */

/* A number below `most`, at least 1: as many bits as it has, until they fit. */
static uint32_t below(eval_import_random *self, uint32_t most) {
  uint32_t bits = 0, drawn;
  while (bits < 32 && most >> bits) bits++;
  do drawn = next_word(self) >> (32 - bits);
  while (drawn >= most);
  return drawn;
}

static status draw_from_pool(eval_import_random *self, uint32_t population, uint32_t count, uint32_t *chosen) {
  uint32_t *pool = calloc((size_t)population + 1, sizeof *pool);
  if (!pool) return FAIL(ERR_LIMIT, "examples: no memory");
  for (uint32_t i = 0; i < population; i++) pool[i] = i;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t j = below(self, population - i);
    chosen[i] = pool[j];
    pool[j] = pool[population - i - 1];
  }
  free(pool);
  return OK;
}

static bool is_chosen(const uint32_t *chosen, uint32_t count, uint32_t one) {
  for (uint32_t i = 0; i < count; i++)
    if (chosen[i] == one) return true;
  return false;
}

/* Python takes numbers out of a list of all when that is smaller than a set of those chosen: 21 entries, and 4^ceil(log4(3 count)) more. */
status eval_import_shots_draw(eval_import_random *self, uint32_t population, uint32_t count, uint32_t *chosen) {
  uint64_t set_size = 21, power = 1;
  while (power < 3ull * count) power *= 4;
  if (count > 5) set_size += power;
  if (population <= set_size) return draw_from_pool(self, population, count, chosen);
  for (uint32_t i = 0; i < count; i++) {
    do chosen[i] = below(self, population);
    while (is_chosen(chosen, i, chosen[i]));
  }
  return OK;
}
