/* test_exchange_orders.c - the protocol of `exchange` in every order of its steps and stores, at the smallest sizes.
 *
 * A model of kernels_src/ranks/README.md, not the kernel's text (test_exchange.c runs that): R ranks of B blocks, each of which sends one
 * word. A state is what every block has done, all memory, and the stores between ranks that are on their way; from each state every step
 * that can come next is tried, until no new state is found. Between two exchanges a rank looks at its y and overwrites it. Wrong are: y
 * with anything but the columns of this exchange, and a state in which nobody can go on before all have ended. A model with one rule left
 * out is found to be wrong. Read next: kernels_src/ranks/exchange.cu. */
#include "tests/unit/unit.h"
#include "engine/base/base.h"
#include "engine/base/digest.h"
#include "kernels_src/step.h"
#include <stdlib.h>
#include <string.h>

#define RANKS 3u
#define BLOCKS 2u
#define PLACES (RANKS * BLOCKS)
#define QUEUE 12u
#define POISON 0xffu

enum rule_left_out { NONE, READY_WAIT, READY_FLAG, DONE_WAIT, DONE_ORDER, TWO_HALVES, TAG_OF_EACH, SAME_EPOCH, LAST_ADVANCES, RULES };

typedef struct setting {
  u32 ranks, blocks, count;
  u32 tagged; /* bit e: exchange e has tags */
  enum rule_left_out without;
} setting;

enum kind { TO_WORD, TO_Y, TO_READY, TO_DONE };
typedef struct store { u8 to, kind, place, tag, data; } store; /* place of a word: 2 * place + its half of 32 bits */
typedef struct word { u8 tag, data; } word;
typedef struct block { /* got: bits 2 * p and 2 * p + 1 of rank p */
  u8 at, epoch, got, queued;
  store queue[QUEUE];
} block;
typedef struct rank {
  u8 step, epoch, tickets, y[PLACES], ready[RANKS], done[PLACES];
  word inbox[2][2 * PLACES];
  block blocks[BLOCKS];
} rank;
typedef struct state { rank ranks[RANKS]; } state;

enum stage { BEGIN, TICKET, RECEIVE, PUSH, WAIT_DONE, ENDED };

/* === States seen ============================================================================================================ */

#define SEEN_SLOTS (1u << 23)
static u64 *seen; /* [SEEN_SLOTS], 0: free. Two states with the same 64 bits would hide one of them */
static u32 seen_count;
static state *stack;
static u32 stack_count, stack_room;

static void visit(const state *s) {
  digest d = digest_of(s, sizeof *s);
  u64 key;
  memcpy(&key, d.bytes, sizeof key);
  key |= key == 0;
  u32 slot = (u32)(key >> 41);
  while (seen[slot] && seen[slot] != key) slot = (slot + 1) % SEEN_SLOTS;
  if (seen[slot]) return;
  seen[slot] = key;
  assert_true(++seen_count < SEEN_SLOTS / 2);
  if (stack_count == stack_room) stack = realloc(stack, (stack_room = 2 * stack_room + 64) * sizeof *stack);
  assert_non_null(stack);
  stack[stack_count++] = *s;
}

/* === Steps ================================================================================================================== */

static u8 data_of(u32 epoch, u32 from, u32 b) { return (u8)(epoch << 4 | from << 2 | b); }

/* Where a word lies in its half of the inbox; with exchanges of other sizes the places are dealt out anew. */
static u32 place_of(const setting *m, u32 epoch, u32 from, u32 b) {
  return (from * m->blocks + b + epoch / 2) % (m->ranks * m->blocks);
}
static u32 half_of(const setting *m, u32 epoch) { return m->without == TWO_HALVES ? 0 : epoch % 2; }

static void send(block *b, u32 to, enum kind kind, u32 place, u32 tag, u32 data) {
  assert_true(b->queued < QUEUE);
  b->queue[b->queued++] = (store){(u8)to, (u8)kind, (u8)place, (u8)tag, (u8)data};
}

static bool may_arrive(const setting *m, const block *b, u32 i) {
  for (u32 j = 0; j < i; j++) {
    const store *x = &b->queue[i], *y = &b->queue[j];
    const bool is_same = x->to == y->to && x->kind == y->kind && x->place == y->place;
    if (is_same || x->kind == TO_READY || (x->kind == TO_DONE && m->without != DONE_ORDER)) return false;
  }
  return true;
}

static void arrive(const setting *m, state *s, u32 from, u32 at, u32 i) {
  block *b = &s->ranks[from].blocks[at];
  const store x = b->queue[i];
  rank *to = &s->ranks[x.to];
  if (x.kind == TO_WORD) to->inbox[half_of(m, x.data >> 4)][x.place] = (word){x.tag, x.data};
  if (x.kind == TO_Y) to->y[from * m->blocks + at] = x.data;
  if (x.kind == TO_READY) to->ready[from] = x.tag;
  if (x.kind == TO_DONE) to->done[from * m->blocks + at] = x.tag;
  memmove(b->queue + i, b->queue + i + 1, (--b->queued - i) * sizeof(store));
  b->queue[b->queued] = (store){0};
}

static void begin(const setting *m, rank *self, u32 r, u32 at) {
  block *b = &self->blocks[at];
  const bool tagged = m->tagged >> self->step & 1;
  b->epoch = (u8)(self->epoch + 1 + (m->without == SAME_EPOCH && r == 1 && self->step == 1));
  b->got = 0;
  if (tagged) self->y[r * m->blocks + at] = data_of(b->epoch, r, at);
  for (u32 p = 0; p < m->ranks; p++) {
    if (p == r) continue;
    for (u32 half = 0; half < 2 && tagged; half++)
      send(b, p, TO_WORD, 2 * place_of(m, b->epoch, r, at) + half, b->epoch, data_of(b->epoch, r, at));
    if (!tagged && at == 0 && m->without != READY_FLAG) send(b, p, TO_READY, 0, b->epoch, 0);
  }
  b->at = TICKET;
}

static void take_ticket(const setting *m, rank *self, u32 at) {
  block *b = &self->blocks[at];
  const u32 ticket = self->tickets++;
  if (self->tickets == m->blocks) self->tickets = 0;
  if (ticket == (m->without == LAST_ADVANCES ? 0 : m->blocks - 1)) self->epoch = b->epoch;
  b->at = RECEIVE;
}

/* Tries to get something from rank p: half a word, or its ready flag. False: it is not there, or was got already. */
static bool receive(const setting *m, rank *self, u32 at, u32 p, u32 half) {
  block *b = &self->blocks[at];
  const bool tagged = m->tagged >> self->step & 1;
  if (b->got >> (2 * p + half) & 1 || (half && !tagged)) return false;
  if (tagged) {
    const word w = self->inbox[half_of(m, b->epoch)][2 * place_of(m, b->epoch, p, at) + half];
    const bool is_checked = half == 0 || m->without != TAG_OF_EACH;
    if (half && !(b->got >> (2 * p) & 1)) return false;
    if (is_checked && w.tag != b->epoch) return false;
    if (half == 0 || w.data != data_of(b->epoch, p, at)) self->y[p * m->blocks + at] = w.data;
  } else if (self->ready[p] != b->epoch && m->without != READY_WAIT) return false;
  b->got |= (u8)(1u << (2 * p + half));
  return true;
}

static bool has_all(const setting *m, const rank *self, u32 r, u32 at) {
  const bool tagged = m->tagged >> self->step & 1;
  for (u32 p = 0; p < m->ranks; p++)
    if (p != r && (self->blocks[at].got >> (2 * p) & 3) != (tagged ? 3 : 1)) return false;
  return true;
}

static void push(const setting *m, rank *self, u32 r, u32 at) {
  block *b = &self->blocks[at];
  self->y[r * m->blocks + at] = data_of(b->epoch, r, at);
  for (u32 p = 0; p < m->ranks; p++)
    if (p != r) send(b, p, TO_Y, 0, 0, data_of(b->epoch, r, at));
  for (u32 p = 0; p < m->ranks; p++)
    if (p != r) send(b, p, TO_DONE, 0, b->epoch, 0);
  b->at = WAIT_DONE;
}

/* The next step of a block in *s, or false. */
static bool step_block(const setting *m, state *s, u32 r, u32 at) {
  rank *self = &s->ranks[r];
  block *b = &self->blocks[at];
  if (self->step == m->count) return false;
  switch (b->at) {
    case BEGIN: begin(m, self, r, at); return true;
    case TICKET: take_ticket(m, self, at); return true;
    case RECEIVE:
      if (!has_all(m, self, r, at)) return false;
      b->at = m->tagged >> self->step & 1 ? ENDED : PUSH;
      return true;
    case PUSH: push(m, self, r, at); return true;
    case WAIT_DONE:
      for (u32 p = 0; p < m->ranks && m->without != DONE_WAIT; p++)
        if (p != r && self->done[p * m->blocks + at] != b->epoch) return false;
      b->at = ENDED;
      return true;
    default: return false;
  }
}

/* Once all blocks have ended: looks at y, overwrites it, goes on to the next exchange. */
static bool end_step(const setting *m, state *s, u32 r, bool *is_wrong) {
  rank *self = &s->ranks[r];
  if (self->step == m->count) return false;
  for (u32 at = 0; at < m->blocks; at++)
    if (self->blocks[at].at != ENDED) return false;
  for (u32 p = 0; p < m->ranks; p++)
    for (u32 at = 0; at < m->blocks; at++) *is_wrong = *is_wrong || self->y[p * m->blocks + at] != data_of(self->step + 1u, p, at);
  memset(self->y, POISON, sizeof self->y);
  self->step++;
  for (u32 at = 0; at < m->blocks; at++) self->blocks[at].at = BEGIN, self->blocks[at].got = 0, self->blocks[at].epoch = 0;
  return true;
}

/* Visits all states that may follow; their number. */
static u32 follow(const setting *m, const state *s, bool *is_wrong) {
  u32 found = 0;
  for (u32 r = 0; r < m->ranks; r++) {
    state next = *s;
    if (end_step(m, &next, r, is_wrong)) visit(&next), found++;
    for (u32 at = 0; at < m->blocks; at++) {
      next = *s;
      if (step_block(m, &next, r, at)) visit(&next), found++;
      for (u32 i = 0; i < 2 * m->ranks && s->ranks[r].blocks[at].at == RECEIVE; i++) {
        next = *s;
        if (i / 2 != r && receive(m, &next.ranks[r], at, i / 2, i % 2)) visit(&next), found++;
      }
      for (u32 i = 0; i < s->ranks[r].blocks[at].queued; i++) {
        if (!may_arrive(m, &s->ranks[r].blocks[at], i)) continue;
        next = *s;
        arrive(m, &next, r, at, i);
        visit(&next), found++;
      }
    }
  }
  return found;
}

static bool have_ended(const setting *m, const state *s) {
  for (u32 r = 0; r < m->ranks; r++)
    if (s->ranks[r].step < m->count) return false;
  return true;
}

/* Null, or what is wrong in some order. */
static const char *try_all(const setting *m) {
  state first;
  bool is_wrong = false;
  memset(&first, 0, sizeof first);
  for (u32 r = 0; r < RANKS; r++) memset(first.ranks[r].y, POISON, PLACES);
  memset(seen, 0, SEEN_SLOTS * sizeof *seen);
  seen_count = stack_count = 0;
  visit(&first);
  while (stack_count > 0) {
    const state s = stack[--stack_count];
    const u32 found = follow(m, &s, &is_wrong);
    if (is_wrong) return "another result";
    if (found == 0 && !have_ended(m, &s)) return "all wait";
  }
  return NULL;
}

/* === Tests ================================================================================================================== */

static int open_model(void **unused) {
  (void)unused;
  seen = calloc(SEEN_SLOTS, sizeof *seen);
  return seen ? 0 : -1;
}

static int close_model(void **unused) {
  (void)unused;
  free(seen);
  free(stack);
  return 0;
}

#ifdef __SANITIZE_ADDRESS__ /* slow */
#define LARGEST 6u
#else
#define LARGEST 7u
#endif

static void no_order_is_wrong(void **unused) {
  (void)unused;
  static const setting sizes[] = {{.ranks = 2, .blocks = 1, .count = 4}, {.ranks = 2, .blocks = 2, .count = 3}};
  static const u32 of_three[] = {0, 2, 5, 7}; /* exchanges with tags: none, the middle one, the outer ones, all */
  u32 states = 0, settings = 0;
  for (size_t i = 0; i < ARRAY_LEN(sizes) + ARRAY_LEN(of_three); i++) {
    const bool is_of_three = i >= ARRAY_LEN(sizes);
    setting m = is_of_three ? (setting){.ranks = 3, .blocks = 1, .count = 3} : sizes[i];
    for (u32 tagged = 0; tagged < 1u << m.count; tagged++) {
      if (is_of_three && (tagged != of_three[i - ARRAY_LEN(sizes)] || tagged > LARGEST)) continue;
      m.tagged = tagged;
      const char *found = try_all(&m);
      if (found) fail_msg("%u ranks, %u blocks, %u exchanges, tags %x: %s", m.ranks, m.blocks, m.count, tagged, found);
      states += seen_count;
      settings++;
    }
  }
  print_message("    %u settings, %u states\n", settings, states);
}

static void every_rule_is_needed(void **unused) {
  (void)unused;
  static const char *const names[RULES] = {"", "waits for ready", "sends ready", "waits for done", "done after the stores", "two halves",
                                           "a tag of each half", "the same epoch", "the last block advances the epoch"};
  for (u32 rule = NONE + 1; rule < RULES; rule++) {
    const char *found = NULL;
    for (u32 tagged = 0; tagged < 8 && !found; tagged++)
      found = try_all(&(setting){.ranks = 2, .blocks = 2, .count = 3, .tagged = tagged, .without = (enum rule_left_out)rule});
    if (!found) fail_msg("without the rule \"%s\" nothing is wrong", names[rule]);
    print_message("    without \"%s\": %s\n", names[rule], found);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_order_is_wrong), cmocka_unit_test(every_rule_is_needed)};
  return cmocka_run_group_tests(tests, open_model, close_model);
}
