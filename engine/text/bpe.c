/* bpe.c - the tables, merging of short and of long pieces, the cache of short ones (see bpe.h).
 *
 * A short piece is merged by scanning all its pairs for the next one. A long piece is merged in passes, each of which merges every pair of
 * the lowest rank from left to right, so a repetitive piece costs little more than its length; when passes find too little to merge, a heap
 * of the remaining pairs takes over. Stale heap entries are recognised when popped: an entry is live if the pair that now starts at its
 * position still has its rank. Every merge removes one entry and adds at most two, so 2n entries are enough. Most pieces need only one
 * cache look-up; that path is kept short and free of calls. */
#include "text/bpe.h"
#include "base/limits.h"
#include "base/utf8.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define NONE (-1)
#define KEY_BYTES_MAX 24u       /* of a piece that fits completely into its key */
#define SHORT_BYTES_MAX 128u    /* positions and the end of a piece that is scanned have 8 bits */

/* Tokens that passes may look at before the heap takes over: this many times the piece, plus more per merge, which costs the heap about as
 * much. */
#define PASSES_MIN 8u
#define PASS_TOKENS_PER_MERGE 32u

/* A slot of the pair table is one word: left, right, rank. An empty slot has all bits set, so its rank means that there is no pair. */
#define ID_BITS 18
#define RANK_BITS 23
#define RANK_NONE ((1u << RANK_BITS) - 1)
#define PAIR_EMPTY UINT64_MAX
#define FILTER_BITS_PER_SLOT 4u /* at most one in eight is set */

/* Besides the key a cache slot has one word: bytes of the piece (0: empty), number of ids, ids. */
#define CACHE_SLOTS_LOG2 15     /* 1 MiB in all */
#define CACHE_IDS_MAX 3u
#define CACHE_COUNT_AT 5
#define CACHE_IDS_AT 7

/* The bytes of a piece, as far as three words can hold them: see read_key. */
typedef struct key {
  uint64_t words[3];
} key;

typedef struct word_slot {
  key key;
  uint32_t bytes;               /* 0: empty */
  int32_t id;
} word_slot;

typedef struct cache_slot {
  key key;
  uint64_t packed;
} cache_slot;

_Static_assert(sizeof(cache_slot) == 32, "half a cache line");
_Static_assert(VOCAB_MAX <= 1u << ID_BITS && 2 * ID_BITS + RANK_BITS < 64, "a pair and its rank are one word, and never all bits of it");
_Static_assert(CACHE_IDS_AT + CACHE_IDS_MAX * ID_BITS <= 64 && KEY_BYTES_MAX < 1u << CACHE_COUNT_AT, "a cached result is one word");
_Static_assert(BPE_WORD_PAIRS_MAX < RANK_NONE && VOCAB_MAX < RANK_NONE, "every rank fits");

struct bpe {
  int32_t byte_ids[256];
  uint32_t byte_ranks[1 << 16]; /* [left << 8 | right] for pairs of single bytes */
  uint64_t *pairs;              /* [pair_mask + 1], linear probing, at most half full */
  uint64_t *filter;             /* [(filter_mask + 1) / 64] one bit per pair; stays cached when the slots of a large table do not */
  size_t pair_mask, filter_mask;
  int32_t *results;             /* [rank]; NULL: ranks are ids */
  const uint8_t *const *word_bytes;
  word_slot *word_slots;        /* [word_mask + 1], linear probing, at most half full; NULL: ignore_merges is off */
  size_t word_mask;
  bool starts_with_words;
  cache_slot *cache;            /* [1 << CACHE_SLOTS_LOG2] */
  size_t piece_bytes_max;
  int32_t *ids;                 /* [piece_bytes_max] tokens of a long piece; NONE once merged into the token to the left */
  uint32_t *ranks;              /* [piece_bytes_max] rank of this token and the next */
  int32_t *before, *after;      /* [piece_bytes_max] neighbouring positions that hold tokens; NONE at the ends */
  uint64_t *heap;               /* [2 * piece_bytes_max] rank << 32 | position, smallest first */
  size_t heap_count;
};

/* === Pairs =================================================================================================== */

static inline uint64_t join(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << ID_BITS | (uint32_t)right; }
/* every bit of both ids reaches the bits that are used */
static inline uint64_t hash_pair(uint64_t pair) { return pair * 0x9E3779B97F4A7C15u >> 20; }
static inline size_t find_filter_bit(const bpe *b, uint64_t pair) { return (size_t)(hash_pair(pair) >> 10) & b->filter_mask; }

/* The slot of a pair, or the empty slot where it belongs. */
static inline size_t find_pair_slot(const bpe *b, uint64_t pair) {
  size_t i = (size_t)hash_pair(pair) & b->pair_mask;
  while ((b->pairs[i] >> RANK_BITS != pair) & (b->pairs[i] != PAIR_EMPTY)) i = (i + 1) & b->pair_mask;
  return i;
}

/* RANK_NONE: no such pair. */
static inline uint32_t find_rank(const bpe *b, int32_t left, int32_t right) {
  uint64_t pair = join(left, right);
  size_t bit = find_filter_bit(b, pair);
  if ((b->filter[bit / 64] >> bit % 64 & 1) == 0) return RANK_NONE;
  return (uint32_t)b->pairs[find_pair_slot(b, pair)] & RANK_NONE;
}

static inline int32_t find_result(const bpe *b, uint32_t rank) { return b->results == NULL ? (int32_t)rank : b->results[rank]; }

static size_t table_size(size_t count) {
  size_t size = 16;
  while (size < 2 * count) size *= 2;
  return size;
}

static status take_pairs(bpe *b, size_t count) {
  size_t size = table_size(count);
  b->pairs = malloc(size * sizeof *b->pairs);
  b->filter = calloc(size * FILTER_BITS_PER_SLOT / 64, sizeof *b->filter);
  if (b->pairs == NULL || b->filter == NULL) return FAIL(ERR_LIMIT, "merges: out of memory");
  b->pair_mask = size - 1;
  b->filter_mask = size * FILTER_BITS_PER_SLOT - 1;
  memset(b->pairs, 0xFF, size * sizeof *b->pairs);
  return OK;
}

/* Precondition: the pair is not in the table. */
static void add_pair(bpe *b, int32_t left, int32_t right, size_t rank) {
  ASSERT((uint32_t)left < VOCAB_MAX);
  ASSERT((uint32_t)right < VOCAB_MAX);
  ASSERT(rank < RANK_NONE);
  uint64_t pair = join(left, right);
  size_t bit = find_filter_bit(b, pair);
  b->filter[bit / 64] |= (uint64_t)1 << bit % 64;
  b->pairs[find_pair_slot(b, pair)] = pair << RANK_BITS | rank;
}

static status build_pairs(bpe *b, const bpe_config *config) {
  TRY(take_pairs(b, config->merge_count));
  b->results = malloc((config->merge_count + 1) * sizeof *b->results);
  if (b->results == NULL) return FAIL(ERR_LIMIT, "merges: out of memory");
  for (size_t rank = 0; rank < config->merge_count; rank++) {
    const bpe_merge *m = &config->merges[rank];
    ASSERT((uint32_t)m->result < VOCAB_MAX);
    if (find_rank(b, m->left, m->right) != RANK_NONE)
      return FAIL(ERR_FORMAT, "merges: expected every pair once, found (%d, %d) again at rank %zu", (int)m->left, (int)m->right, rank);
    add_pair(b, m->left, m->right, rank);
    b->results[rank] = m->result;
  }
  return OK;
}

/* === Words =================================================================================================== */

static inline uint64_t read_u64(const uint8_t *p) {
  uint64_t value;
  memcpy(&value, p, sizeof value);
  return value;
}

static inline uint64_t read_u32(const uint8_t *p) {
  uint32_t value;
  memcpy(&value, p, sizeof value);
  return value;
}

/* Keys of pieces of the same size, at most KEY_BYTES_MAX, are equal exactly if the pieces are. The reads overlap. */
static inline key read_key(const uint8_t *piece, size_t bytes) {
  if (bytes > KEY_BYTES_MAX) return (key){{read_u64(piece), XXH3_64bits(piece, bytes), 0}};
  if (bytes > 16) return (key){{read_u64(piece), read_u64(piece + bytes - 8), read_u64(piece + 8)}};
  if (bytes >= 8) return (key){{read_u64(piece), read_u64(piece + bytes - 8), 0}};
  if (bytes >= 4) return (key){{read_u32(piece) << 32 | read_u32(piece + bytes - 4), 0, 0}};
  return (key){{(uint64_t)piece[0] << 16 | (uint64_t)piece[bytes / 2] << 8 | piece[bytes - 1], 0, 0}};
}

static inline bool are_equal(const key *a, const key *b) {
  return ((a->words[0] ^ b->words[0]) | (a->words[1] ^ b->words[1]) | (a->words[2] ^ b->words[2])) == 0;
}

/* Use the upper bits. */
static inline uint64_t hash_key(const key *k, size_t bytes) {
  uint64_t mixed = (k->words[0] ^ bytes) * 0x9E3779B97F4A7C15u ^ k->words[1] * 0xC2B2AE3D27D4EB4Fu ^ k->words[2] * 0xD6E8FEB86659FD93u;
  return (mixed ^ mixed >> 32) * 0x9E3779B97F4A7C15u;
}

/* The slot of the word, or the empty slot where it belongs. A word that does not fit into its key is compared in place. */
static word_slot *find_word_slot(const bpe *b, const uint8_t *piece, size_t bytes, const key *k) {
  for (size_t i = (size_t)(hash_key(k, bytes) >> 20) & b->word_mask;; i = (i + 1) & b->word_mask) {
    word_slot *slot = &b->word_slots[i];
    if (slot->bytes == 0) return slot;
    if (slot->bytes != bytes) continue;
    if (bytes <= KEY_BYTES_MAX ? are_equal(&slot->key, k)
                               : slot->key.words[1] == k->words[1] && memcmp(b->word_bytes[slot->key.words[2]], piece, bytes) == 0)
      return slot;
  }
}

static status build_words(bpe *b, const bpe_config *config) {
  if (config->word_bytes == NULL) return OK;
  size_t size = table_size(config->word_count);
  b->word_slots = calloc(size, sizeof *b->word_slots);
  if (b->word_slots == NULL) return FAIL(ERR_LIMIT, "vocabulary: out of memory");
  b->word_mask = size - 1;
  b->word_bytes = config->word_bytes;
  for (size_t i = 0; i < config->word_count; i++) {
    size_t bytes = config->word_sizes[i];
    key k = read_key(config->word_bytes[i], bytes);
    word_slot *slot = find_word_slot(b, config->word_bytes[i], bytes, &k);
    ASSERT((uint32_t)config->word_ids[i] < VOCAB_MAX);
    if (slot->bytes != 0) return FAIL(ERR_FORMAT, "vocabulary: token %d has the bytes of another", (int)config->word_ids[i]);
    if (bytes > KEY_BYTES_MAX) k.words[2] = i;
    *slot = (word_slot){k, (uint32_t)bytes, config->word_ids[i]};
  }
  return OK;
}

static int32_t find_word(const bpe *b, const uint8_t *bytes, size_t size) {
  key k = read_key(bytes, size);
  const word_slot *slot = find_word_slot(b, bytes, size, &k);
  return slot->bytes == 0 ? NONE : slot->id;
}

/* Adds every way to write a word as two. All splits of a word have its rank, so the leftmost in a piece is merged first. */
static status build_word_pairs(bpe *b, const bpe_config *config) {
  size_t count = 0;
  ASSERT(b->word_slots != NULL);
  for (int pass = 0; pass < 2; pass++) { /* first count, then fill */
    if (count > BPE_WORD_PAIRS_MAX)
      return FAIL(ERR_LIMIT, "vocabulary: expected tokens that are two others in %u ways, found %zu", BPE_WORD_PAIRS_MAX, count);
    if (pass == 1) TRY(take_pairs(b, count));
    for (size_t i = 0; i < config->word_count; i++) {
      const uint8_t *bytes = config->word_bytes[i];
      for (size_t cut = 1; cut < config->word_sizes[i]; cut++) {
        int32_t left = find_word(b, bytes, cut);
        int32_t right = left == NONE ? NONE : find_word(b, bytes + cut, config->word_sizes[i] - cut);
        if (right == NONE) continue;
        if (pass == 0) count++;
        else add_pair(b, left, right, (size_t)config->word_ids[i]);
      }
    }
  }
  return OK;
}

/* === Opening ================================================================================================= */

static status open_all(bpe *b, const bpe_config *config) {
  size_t bytes_max = b->piece_bytes_max = config->piece_bytes_max;
  b->starts_with_words = config->starts_with_words;
  memcpy(b->byte_ids, config->byte_ids, sizeof b->byte_ids);
  for (size_t i = 0; i < ARRAY_LEN(b->byte_ids); i++) ASSERT((uint32_t)b->byte_ids[i] < VOCAB_MAX);
  b->cache = calloc((size_t)1 << CACHE_SLOTS_LOG2, sizeof *b->cache);
  b->ids = malloc(bytes_max * sizeof *b->ids);
  b->ranks = malloc(bytes_max * sizeof *b->ranks);
  b->before = malloc(bytes_max * sizeof *b->before);
  b->after = malloc(bytes_max * sizeof *b->after);
  b->heap = calloc(2 * bytes_max, sizeof *b->heap); /* one entry past the last may be read */
  if (b->cache == NULL || b->ids == NULL || b->ranks == NULL || b->before == NULL || b->after == NULL || b->heap == NULL)
    return FAIL(ERR_LIMIT, "merging: out of memory for pieces of %zu bytes", bytes_max);
  TRY(build_words(b, config));
  TRY(config->ranks_words ? build_word_pairs(b, config) : build_pairs(b, config));
  for (uint32_t i = 0; i < ARRAY_LEN(b->byte_ranks); i++) b->byte_ranks[i] = find_rank(b, b->byte_ids[i >> 8], b->byte_ids[i & 255]);
  return OK;
}

status bpe_open(bpe **out, const bpe_config *config) {
  ASSERT(config->piece_bytes_max > 0);
  ASSERT(config->piece_bytes_max < INT32_MAX);
  bpe *b = calloc(1, sizeof *b);
  if (b == NULL) return FAIL(ERR_LIMIT, "merging: out of memory");
  status s = open_all(b, config);
  if (s != OK) {
    bpe_close(b);
    return s;
  }
  *out = b;
  return OK;
}

void bpe_close(bpe *b) {
  if (b == NULL) return;
  free(b->pairs);
  free(b->filter);
  free(b->results);
  free(b->word_slots);
  free(b->cache);
  free(b->ids);
  free(b->ranks);
  free(b->before);
  free(b->after);
  free(b->heap);
  free(b);
}

/* === Starting ================================================================================================ */

/* The tokens that a piece starts as, for starts_with_words; returns their number, at most bytes. */
static size_t start_words(const bpe *b, const uint8_t *piece, size_t bytes, int32_t *ids) {
  size_t count = 0;
  for (size_t at = 0; at < bytes;) {
    int length = utf8_scan(piece + at, bytes - at);
    ASSERT(length > 0);
    int32_t word = find_word(b, piece + at, (size_t)length);
    if (word != NONE) ids[count++] = word;
    for (int i = 0; i < length && word == NONE; i++) ids[count++] = b->byte_ids[piece[at + (size_t)i]];
    at += (size_t)length;
  }
  return count;
}

/* === Short pieces ============================================================================================ */

static inline uint64_t choose_less(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The least of count numbers, a multiple of four. Four running minima are independent of each other. */
static inline uint64_t find_least(const uint64_t *orders, size_t count) {
  uint64_t a = orders[0], b = orders[1], c = orders[2], d = orders[3];
  for (size_t i = 4; i < count; i += 4) {
    a = choose_less(a, orders[i]);
    b = choose_less(b, orders[i + 1]);
    c = choose_less(c, orders[i + 2]);
    d = choose_less(d, orders[i + 3]);
  }
  return choose_less(choose_less(a, b), choose_less(c, d));
}

/* Merges a piece of at most SHORT_BYTES_MAX bytes into ids[0..bytes); returns their number. */
static size_t merge_short(const bpe *b, const uint8_t *piece, size_t bytes, int32_t *ids) {
  uint64_t orders[SHORT_BYTES_MAX + 3]; /* rank << 8 | position of the pair of this token and the next; the least is merged first */
  uint8_t before[SHORT_BYTES_MAX + 1], after[SHORT_BYTES_MAX + 1];
  size_t count = 0, started = b->starts_with_words ? start_words(b, piece, bytes, ids) : bytes, padded = (started + 3) / 4 * 4;
  for (size_t i = 0; i < started; i++) {
    uint32_t rank = RANK_NONE;
    if (!b->starts_with_words) ids[i] = b->byte_ids[piece[i]];
    if (i + 1 < started) rank = b->starts_with_words ? find_rank(b, ids[i], ids[i + 1]) : b->byte_ranks[piece[i] << 8 | piece[i + 1]];
    before[i] = (uint8_t)(i - 1);
    after[i] = (uint8_t)(i + 1);
    orders[i] = (uint64_t)rank << 8 | i;
  }
  for (size_t i = 0; i < 3; i++) orders[started + i] = UINT64_MAX;
  for (;;) {
    uint64_t least = find_least(orders, padded);
    if (least >> 8 >= RANK_NONE) break;
    size_t at = least & 255, right = after[at], next = after[right];
    ids[at] = find_result(b, (uint32_t)(least >> 8));
    orders[right] = UINT64_MAX;
    after[at] = (uint8_t)next;
    before[next] = (uint8_t)at;
    orders[at] = (uint64_t)(next < started ? find_rank(b, ids[at], ids[next]) : RANK_NONE) << 8 | at;
    if (at > 0) orders[before[at]] = (uint64_t)find_rank(b, ids[before[at]], ids[at]) << 8 | before[at];
  }
  for (size_t at = 0; at < started; at = after[at]) ids[count++] = ids[at]; /* count <= at: read before written */
  return count;
}

/* === Long pieces ============================================================================================= */

/* One pass over b->ids[0..*count): merges every pair of rank *least, the lowest there is, and sets *least to the lowest rank left. Returns
 * the number of merges; 0: it stopped because a merge created a pair that precedes what is to its right. */
static size_t merge_pass(bpe *b, size_t *count, uint32_t *least) {
  size_t out = 0, at = 0, merged = 0, end = *count;
  uint32_t rank = *least, next_least = RANK_NONE;
  bool is_ordered = true;
  while (at < end) {
    int32_t id = b->ids[at];
    uint32_t right = b->ranks[at++];
    while (right == rank && is_ordered) {
      id = find_result(b, rank);
      merged++;
      right = ++at < end ? find_rank(b, id, b->ids[at]) : RANK_NONE;
      if (out > 0) b->ranks[out - 1] = find_rank(b, b->ids[out - 1], id);
      is_ordered = right >= rank && (out == 0 || b->ranks[out - 1] > rank);
    }
    if (out > 0 && b->ranks[out - 1] < next_least) next_least = b->ranks[out - 1];
    b->ids[out] = id;
    b->ranks[out++] = right;
  }
  *count = out;
  *least = next_least;
  return is_ordered ? merged : 0;
}

static void push_heap(bpe *b, uint64_t entry) {
  size_t i = b->heap_count++;
  while (i > 0 && b->heap[(i - 1) / 2] > entry) {
    b->heap[i] = b->heap[(i - 1) / 2];
    i = (i - 1) / 2;
  }
  b->heap[i] = entry;
}

static uint64_t pop_heap(bpe *b) {
  uint64_t top = b->heap[0], moved = b->heap[--b->heap_count];
  size_t i = 0;
  for (size_t child = 1; child < b->heap_count; child = 2 * i + 1) {
    child += (child + 1 < b->heap_count) & (b->heap[child + 1] < b->heap[child]); /* both are equally likely, so no branch */
    if (b->heap[child] >= moved) break;
    b->heap[i] = b->heap[child];
    i = child;
  }
  b->heap[i] = moved;
  return top;
}

/* Pushes the pair of the tokens at `at` and after it, if it has a rank. */
static void push_pair(bpe *b, int32_t at) {
  if (at == NONE || b->after[at] == NONE) return;
  uint32_t rank = find_rank(b, b->ids[at], b->ids[b->after[at]]);
  if (rank != RANK_NONE) push_heap(b, (uint64_t)rank << 32 | (uint32_t)at);
}

/* Merges b->ids[0..count); returns the number of ids left. */
static size_t merge_heap(bpe *b, int32_t count) {
  size_t found = 0;
  b->heap_count = 0;
  for (int32_t i = 0; i < count; i++) {
    b->before[i] = i - 1;
    b->after[i] = i + 1 < count ? i + 1 : NONE;
    if (b->ranks[i] != RANK_NONE) push_heap(b, (uint64_t)b->ranks[i] << 32 | (uint32_t)i);
  }
  while (b->heap_count > 0) {
    uint64_t top = pop_heap(b);
    int32_t at = (int32_t)(top & UINT32_MAX), right = b->after[at];
    if (b->ids[at] == NONE || right == NONE || find_rank(b, b->ids[at], b->ids[right]) != top >> 32) continue;
    b->ids[at] = find_result(b, (uint32_t)(top >> 32));
    b->ids[right] = NONE;
    b->after[at] = b->after[right];
    if (b->after[at] != NONE) b->before[b->after[at]] = at;
    push_pair(b, b->before[at]);
    push_pair(b, at);
  }
  for (int32_t at = 0; at != NONE; at = b->after[at]) b->ids[found++] = b->ids[at]; /* found <= at: read before written */
  return found;
}

/* Merges a piece of any size in b->ids; returns the number of its ids. */
static size_t merge_long(bpe *b, const uint8_t *piece, size_t bytes) {
  size_t count = b->starts_with_words ? start_words(b, piece, bytes, b->ids) : bytes;
  size_t credit = PASSES_MIN * count; /* tokens that passes may still look at */
  uint32_t least = RANK_NONE;
  for (size_t i = 0; i < count; i++) {
    if (!b->starts_with_words) b->ids[i] = b->byte_ids[piece[i]];
    if (i + 1 == count) b->ranks[i] = RANK_NONE;
    else b->ranks[i] = b->starts_with_words ? find_rank(b, b->ids[i], b->ids[i + 1]) : b->byte_ranks[piece[i] << 8 | piece[i + 1]];
    least = min_u32(least, b->ranks[i]);
  }
  while (least != RANK_NONE && credit >= count) {
    credit -= count;
    size_t merged = merge_pass(b, &count, &least);
    if (merged == 0) break;
    credit += PASS_TOKENS_PER_MERGE * merged;
  }
  return least == RANK_NONE ? count : merge_heap(b, (int32_t)count);
}

/* === Encoding ================================================================================================ */

static status emit(const int32_t *found, size_t found_count, int32_t *ids, size_t ids_max, size_t *count) {
  if (found_count > ids_max) return FAIL(ERR_LIMIT, "tokens: expected room for %zu more, found %zu", found_count, ids_max);
  memcpy(ids, found, found_count * sizeof *ids);
  *count = found_count;
  return OK;
}

/* Encodes a piece that is not in the cache. slot: its place there; NULL if it is too long for the cache. */
static __attribute__((noinline)) status encode_anew(bpe *b, const uint8_t *piece, size_t bytes, cache_slot *slot, int32_t *ids,
                                                    size_t ids_max, size_t *count) {
  int32_t word = b->word_slots == NULL || b->starts_with_words ? NONE : find_word(b, piece, bytes), short_ids[SHORT_BYTES_MAX];
  const int32_t *found = &word;
  size_t found_count = 1;
  if (word == NONE && bytes <= SHORT_BYTES_MAX) {
    found = short_ids;
    found_count = merge_short(b, piece, bytes, short_ids);
  } else if (word == NONE) {
    found = b->ids;
    found_count = merge_long(b, piece, bytes);
  }
  if (slot != NULL && found_count <= CACHE_IDS_MAX) {
    slot->key = read_key(piece, bytes);
    slot->packed = bytes | found_count << CACHE_COUNT_AT;
    for (size_t i = 0; i < found_count; i++) slot->packed |= (uint64_t)(uint32_t)found[i] << (CACHE_IDS_AT + ID_BITS * i);
  }
  return emit(found, found_count, ids, ids_max, count);
}

status bpe_encode(bpe *b, const uint8_t *piece, size_t bytes, int32_t *ids, size_t ids_max, size_t *count) {
  ASSERT(bytes > 0);
  ASSERT(bytes <= b->piece_bytes_max);
  if (bytes > KEY_BYTES_MAX) return encode_anew(b, piece, bytes, NULL, ids, ids_max, count);
  key k = read_key(piece, bytes);
  cache_slot *slot = &b->cache[hash_key(&k, bytes) >> (64 - CACHE_SLOTS_LOG2)];
  uint64_t packed = slot->packed;
  if ((packed & ((1u << CACHE_COUNT_AT) - 1)) != bytes || !are_equal(&slot->key, &k) || ids_max < CACHE_IDS_MAX)
    return encode_anew(b, piece, bytes, slot, ids, ids_max, count);
  for (size_t i = 0; i < CACHE_IDS_MAX; i++) /* all of them: a fixed count is faster than the exact one */
    ids[i] = (int32_t)(packed >> (CACHE_IDS_AT + ID_BITS * i) & ((1u << ID_BITS) - 1));
  *count = packed >> CACHE_COUNT_AT & ((1u << (CACHE_IDS_AT - CACHE_COUNT_AT)) - 1);
  return OK;
}
