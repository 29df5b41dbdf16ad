/* bpe.c - the merge table, the heap of candidate pairs, the cache of short pieces (see bpe.h).
 *
 * Stale heap entries are left in place and recognised when popped: an entry is live when the pair that now starts at its
 * position still has its rank. Every merge removes one entry and adds at most two, so 2n entries are enough. */
#include "bpe.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define NONE (-1)
#define CACHE_SLOTS 16384u      /* a power of two; 1 MiB in all */
#define CACHE_BYTES_MAX 22u     /* of a piece; with the ids below a slot is one cache line */
#define CACHE_IDS_MAX 10u

typedef struct pair_slot {
  int32_t left, right;          /* left NONE: empty */
  uint32_t rank;
  int32_t result;
} pair_slot;

typedef struct cache_slot {
  uint8_t bytes, count;         /* bytes 0: empty */
  uint8_t piece[CACHE_BYTES_MAX];
  int32_t ids[CACHE_IDS_MAX];
} cache_slot;

_Static_assert(sizeof(cache_slot) == 64, "one cache line");

struct bpe {
  int32_t byte_ids[256];
  pair_slot *pairs;             /* [pair_mask + 1], linear probing, at most half full */
  size_t pair_mask;
  const uint8_t *const *word_bytes;
  const uint32_t *word_sizes;
  const int32_t *word_ids;
  uint32_t *word_slots;         /* [word_mask + 1] index + 1 into the word arrays, 0 empty; NULL: ignore_merges is off */
  size_t word_mask;
  cache_slot *cache;            /* [CACHE_SLOTS] */
  size_t piece_bytes_max;
  int32_t *ids;                 /* [piece_bytes_max] token that starts at this byte; NONE once merged into its left */
  int32_t *before, *after;      /* [piece_bytes_max] neighbouring positions that hold tokens; NONE at the ends */
  uint64_t *heap;               /* [2 * piece_bytes_max] rank << 32 | position, smallest first */
  size_t heap_count;
};

/* === Tables ================================================================================================== */

static size_t hash_pair(int32_t left, int32_t right, size_t mask) {
  uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
  return (size_t)(key >> 20) & mask; /* the middle bits: every bit of both ids reaches them */
}

static const pair_slot *find_pair(const bpe *b, int32_t left, int32_t right) {
  for (size_t i = hash_pair(left, right, b->pair_mask);; i = (i + 1) & b->pair_mask) {
    const pair_slot *slot = &b->pairs[i];
    if (slot->left == left && slot->right == right) return slot;
    if (slot->left == NONE) return NULL;
  }
}

static size_t table_size(size_t count) {
  size_t size = 16;
  while (size < 2 * count) size *= 2;
  return size;
}

static status take_pairs(bpe *b, size_t count) {
  size_t size = table_size(count);
  b->pairs = malloc(size * sizeof *b->pairs);
  if (b->pairs == NULL) return FAIL(ERR_LIMIT, "merges: out of memory");
  b->pair_mask = size - 1;
  for (size_t i = 0; i < size; i++) b->pairs[i] = (pair_slot){NONE, NONE, 0, NONE};
  return OK;
}

/* Precondition: the pair is not in the table. */
static void add_pair(bpe *b, pair_slot pair) {
  size_t i = hash_pair(pair.left, pair.right, b->pair_mask);
  while (b->pairs[i].left != NONE) i = (i + 1) & b->pair_mask;
  b->pairs[i] = pair;
}

static status build_pairs(bpe *b, const bpe_config *config) {
  TRY(take_pairs(b, config->merge_count));
  for (size_t rank = 0; rank < config->merge_count; rank++) {
    const bpe_merge *m = &config->merges[rank];
    ASSERT(m->left >= 0);
    ASSERT(m->right >= 0);
    ASSERT(m->result >= 0);
    if (find_pair(b, m->left, m->right) != NULL)
      return FAIL(ERR_FORMAT, "merges: expected every pair once, found (%d, %d) again at rank %zu", (int)m->left, (int)m->right, rank);
    add_pair(b, (pair_slot){m->left, m->right, (uint32_t)rank, m->result});
  }
  return OK;
}

/* Slot of the word, or the empty slot where it belongs. */
static size_t find_word_slot(const bpe *b, const uint8_t *bytes, size_t size) {
  for (size_t i = (size_t)XXH3_64bits(bytes, size) & b->word_mask;; i = (i + 1) & b->word_mask) {
    if (b->word_slots[i] == 0) return i;
    size_t word = b->word_slots[i] - 1;
    if (b->word_sizes[word] == size && memcmp(b->word_bytes[word], bytes, size) == 0) return i;
  }
}

static status build_words(bpe *b, const bpe_config *config) {
  if (config->word_bytes == NULL) return OK;
  size_t size = table_size(config->word_count);
  b->word_slots = calloc(size, sizeof *b->word_slots);
  if (b->word_slots == NULL) return FAIL(ERR_LIMIT, "vocabulary: out of memory");
  b->word_mask = size - 1;
  b->word_bytes = config->word_bytes;
  b->word_sizes = config->word_sizes;
  b->word_ids = config->word_ids;
  for (size_t i = 0; i < config->word_count; i++) {
    size_t slot = find_word_slot(b, b->word_bytes[i], b->word_sizes[i]);
    if (b->word_slots[slot] != 0) return FAIL(ERR_FORMAT, "vocabulary: token %d has the bytes of another", (int)b->word_ids[i]);
    b->word_slots[slot] = (uint32_t)i + 1;
  }
  return OK;
}

static int32_t find_word(const bpe *b, const uint8_t *bytes, size_t size) {
  uint32_t word = b->word_slots[find_word_slot(b, bytes, size)];
  return word == 0 ? NONE : b->word_ids[word - 1];
}

/* Every way to write a word as two. All splits of one word have its rank, so that of them the leftmost in a piece goes first. */
static status build_word_pairs(bpe *b, const bpe_config *config) {
  size_t count = 0;
  ASSERT(b->word_slots != NULL);
  for (int pass = 0; pass < 2; pass++) { /* counts, then fills */
    if (count > BPE_WORD_PAIRS_MAX)
      return FAIL(ERR_LIMIT, "vocabulary: expected tokens that are two others in %u ways, found %zu", BPE_WORD_PAIRS_MAX, count);
    if (pass == 1) TRY(take_pairs(b, count));
    for (size_t i = 0; i < config->word_count; i++) {
      const uint8_t *bytes = b->word_bytes[i];
      for (size_t cut = 1; cut < b->word_sizes[i]; cut++) {
        int32_t left = find_word(b, bytes, cut);
        int32_t right = left == NONE ? NONE : find_word(b, bytes + cut, b->word_sizes[i] - cut);
        if (right == NONE) continue;
        if (pass == 0) count++;
        else add_pair(b, (pair_slot){left, right, (uint32_t)b->word_ids[i], b->word_ids[i]});
      }
    }
  }
  return OK;
}

static status open_all(bpe *b, const bpe_config *config) {
  memcpy(b->byte_ids, config->byte_ids, sizeof b->byte_ids);
  b->piece_bytes_max = config->piece_bytes_max;
  b->cache = calloc(CACHE_SLOTS, sizeof *b->cache);
  b->ids = malloc(b->piece_bytes_max * sizeof *b->ids);
  b->before = malloc(b->piece_bytes_max * sizeof *b->before);
  b->after = malloc(b->piece_bytes_max * sizeof *b->after);
  b->heap = malloc(2 * b->piece_bytes_max * sizeof *b->heap);
  if (b->cache == NULL || b->ids == NULL || b->before == NULL || b->after == NULL || b->heap == NULL)
    return FAIL(ERR_LIMIT, "merging: out of memory for pieces of %zu bytes", b->piece_bytes_max);
  TRY(build_words(b, config));
  return config->ranks_words ? build_word_pairs(b, config) : build_pairs(b, config);
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
  free(b->word_slots);
  free(b->cache);
  free(b->ids);
  free(b->before);
  free(b->after);
  free(b->heap);
  free(b);
}

/* === Heap ==================================================================================================== */

static void push_heap(bpe *b, uint64_t entry) {
  ASSERT(b->heap_count < 2 * b->piece_bytes_max);
  size_t i = b->heap_count++;
  while (i > 0 && b->heap[(i - 1) / 2] > entry) {
    b->heap[i] = b->heap[(i - 1) / 2];
    i = (i - 1) / 2;
  }
  b->heap[i] = entry;
}

static uint64_t pop_heap(bpe *b) {
  ASSERT(b->heap_count > 0);
  uint64_t top = b->heap[0], moved = b->heap[--b->heap_count];
  size_t i = 0;
  for (size_t child = 1; child < b->heap_count; child = 2 * i + 1) {
    if (child + 1 < b->heap_count && b->heap[child + 1] < b->heap[child]) child++;
    if (b->heap[child] >= moved) break;
    b->heap[i] = b->heap[child];
    i = child;
  }
  b->heap[i] = moved;
  return top;
}

/* === Encoding ================================================================================================ */

/* Offers the pair of the tokens at position at and behind it. */
static void push_pair(bpe *b, int32_t at) {
  if (at == NONE || b->after[at] == NONE) return;
  const pair_slot *pair = find_pair(b, b->ids[at], b->ids[b->after[at]]);
  if (pair != NULL) push_heap(b, (uint64_t)pair->rank << 32 | (uint32_t)at);
}

static void merge_piece(bpe *b, const uint8_t *piece, int32_t bytes) {
  for (int32_t i = 0; i < bytes; i++) {
    b->ids[i] = b->byte_ids[piece[i]];
    b->before[i] = i - 1;
    b->after[i] = i + 1 < bytes ? i + 1 : NONE;
  }
  b->heap_count = 0;
  for (int32_t i = 0; i < bytes; i++) push_pair(b, i);
  while (b->heap_count > 0) {
    uint64_t top = pop_heap(b);
    int32_t at = (int32_t)(top & UINT32_MAX);
    if (b->ids[at] == NONE || b->after[at] == NONE) continue;
    int32_t right = b->after[at];
    const pair_slot *pair = find_pair(b, b->ids[at], b->ids[right]);
    if (pair == NULL || pair->rank != top >> 32) continue;
    b->ids[at] = pair->result;
    b->ids[right] = NONE;
    b->after[at] = b->after[right];
    if (b->after[at] != NONE) b->before[b->after[at]] = at;
    push_pair(b, b->before[at]);
    push_pair(b, at);
  }
}

static cache_slot *find_cache_slot(const bpe *b, const uint8_t *piece, size_t bytes) {
  return &b->cache[XXH3_64bits(piece, bytes) & (CACHE_SLOTS - 1)];
}

static void fill_cache(bpe *b, const uint8_t *piece, size_t bytes, const int32_t *ids, size_t count) {
  if (bytes > CACHE_BYTES_MAX || count > CACHE_IDS_MAX) return;
  cache_slot *slot = find_cache_slot(b, piece, bytes);
  slot->bytes = (uint8_t)bytes;
  slot->count = (uint8_t)count;
  memcpy(slot->piece, piece, bytes);
  memcpy(slot->ids, ids, count * sizeof *ids);
}

static status emit(const int32_t *found, size_t found_count, int32_t *ids, size_t ids_max, size_t *count) {
  if (found_count > ids_max) return FAIL(ERR_LIMIT, "tokens: expected room for %zu more, found %zu", found_count, ids_max);
  memcpy(ids, found, found_count * sizeof *ids);
  *count = found_count;
  return OK;
}

status bpe_encode(bpe *b, const uint8_t *piece, size_t bytes, int32_t *ids, size_t ids_max, size_t *count) {
  ASSERT(bytes > 0);
  ASSERT(bytes <= b->piece_bytes_max);
  if (bytes <= CACHE_BYTES_MAX) {
    const cache_slot *slot = find_cache_slot(b, piece, bytes);
    if (slot->bytes == bytes && memcmp(slot->piece, piece, bytes) == 0) return emit(slot->ids, slot->count, ids, ids_max, count);
  }
  if (b->word_slots != NULL) {
    int32_t word = find_word(b, piece, bytes);
    if (word != NONE) return emit(&word, 1, ids, ids_max, count);
  }
  merge_piece(b, piece, (int32_t)bytes);
  size_t found = 0;
  for (int32_t at = 0; at != NONE; at = b->after[at]) b->ids[found++] = b->ids[at]; /* found <= at: read before written */
  fill_cache(b, piece, bytes, b->ids, found);
  return emit(b->ids, found, ids, ids_max, count);
}
