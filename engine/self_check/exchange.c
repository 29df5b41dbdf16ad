/* self_check/exchange.c - the probes of the op `exchange` and their known answers. See self_check/cases.h.
 *
 * The image is the memory of rank 0 and, after it, what the op touches of rank 1's, which has sent already: its words and flags are in rank
 * 0's inbox. Judged is what rank 0 receives; what it sends is not, since the reference copies and does not send. With flags the columns of
 * rank 1 are in place as well: then the op must end and change none. */
#include "self_check/images.h"

enum { ROWS = 3, TABLES = 2, EPOCH = 2, WORDS = ROWS * (24 / 8 + 2 * 32 / 8) }; /* an even epoch: its words are the inbox's first */
static const u32 part_bytes[TABLES] = {24, 32}, rows_mul[TABLES] = {1, 2};

bool self_check_exchange_has_tags(uint32_t form) { return form == 0; }

typedef struct memory {
  u8 *x[TABLES], *y[TABLES], *inbox;
  u32 *state;
} memory;

static void take_tables(self_check_image *image, memory *m) {
  for (u32 t = 0; t < TABLES; t++) {
    m->x[t] = take(image, (ROWS + 1) * rows_mul[t] * part_bytes[t]);
    m->y[t] = take(image, (ROWS + 1) * rows_mul[t] * part_bytes[t] * 2);
  }
}

static void take_inbox(self_check_image *image, memory *m) {
  const u32 bytes = EXCHANGE_FLAGS_BYTES(2) + 2 * WORDS * 16;
  m->inbox = take(image, bytes);
  memset(m->inbox, 0, bytes);
  m->state = take(image, EXCHANGE_STATE_WORDS * 4);
  memset(m->state, 0, EXCHANGE_STATE_WORDS * 4);
  m->state[EXCHANGE_EPOCH] = EPOCH - 1;
}

/* The columns of both ranks; and rank 1's words in rank 0's inbox or, for flags, its columns in rank 0's y. */
static void fill(self_check_image *image, const memory *ranks) {
  u64 *words = (u64 *)(ranks[0].inbox + EXCHANGE_FLAGS_BYTES(2)) + WORDS * 2;
  for (u32 t = 0; t < TABLES; t++)
    for (u32 at = 0; at < ROWS * rows_mul[t] * part_bytes[t]; at += 8, words += 2) {
      const u64 own = random_bits(image), sent = random_bits(image);
      memcpy(ranks[0].x[t] + at, &own, 8);
      memcpy(ranks[1].x[t] + at, &sent, 8);
      words[0] = (u64)EPOCH << 32 | (sent & 0xffffffffu);
      words[1] = (u64)EPOCH << 32 | sent >> 32;
      if (!self_check_exchange_has_tags(image->form))
        memcpy(ranks[0].y[t] + (at / part_bytes[t] * 2 + 1) * part_bytes[t] + at % part_bytes[t], &sent, 8);
    }
}

static void build(self_check_image *image) {
  const step_in *step = take_step(image, ROWS, 0, 0);
  exchange_ranks *ranks = take(image, sizeof *ranks);
  memory of[2];
  take_tables(image, &of[0]);
  end_judged(image);
  take_inbox(image, &of[0]);
  take_tables(image, &of[1]);
  take_inbox(image, &of[1]);
  *ranks = (exchange_ranks){.count = 2, .peer = {0, (u64)(of[1].x[0] - of[0].x[0])}, .timeout_ns = 1000000000,
                            .sample_bits = EXCHANGE_SAMPLE_BITS};
  for (u32 i = 0; i <= EXCHANGE_BLOCKS_MAX; i++)
    *(u32 *)(of[0].inbox + (1 + EXCHANGE_BLOCKS_MAX + i) * EXCHANGE_FLAG_BYTES) = EPOCH;
  fill(image, of);
  exchange_args a = {.step = step, .ranks = ranks, .inbox = of[0].inbox, .state = of[0].state, .count = 2};
  for (u32 t = 0; t < TABLES; t++) a.x[t] = of[0].x[t], a.y[t] = of[0].y[t], a.part_bytes[t] = part_bytes[t], a.rows_mul[t] = rows_mul[t];
  LAUNCH(image, a, 2, 1, 1);
}

static const self_check_probe probes[] = {
    {61, 0, 0, 0, "words of another rank", "cc5c6f4edc1373799de94f3305a82b06"},
    {62, 1, 0, 0, "flags of another rank", "38b7fb2d80e1bfce7c782993e6e3cdeb"},
};

const self_check_op self_check_exchange = {build, ARRAY_LEN(probes), probes};
