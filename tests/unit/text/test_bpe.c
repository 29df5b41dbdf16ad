/* test_bpe.c - merging against the plain form of its definition: replace the leftmost pair of lowest rank until there is none. */
#include "tests/unit/unit.h"
#include "engine/text/bpe.h"
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX 64
#define PIECE_MAX 600  /* well above the length of a short piece */

typedef struct table {
  int32_t byte_ids[256];
  bpe_merge merges[TOKENS_MAX * 4];
  size_t merge_count;
  size_t ranks[TOKENS_MAX][TOKENS_MAX]; /* index of the merge of left and right; merge_count: no such pair */
  char names[TOKENS_MAX][16];           /* over the letters a, b, c */
  int32_t token_count;
} table;

static uint32_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

/* The token with the name left+right; a new one if there is none and there is room for it. -1: no room. */
static int32_t find_or_add(table *t, int32_t left, int32_t right) {
  char name[32];
  strcpy(name, t->names[left]);
  strcat(name, t->names[right]);
  if (strlen(name) >= 12) return -1;
  for (int32_t i = 0; i < t->token_count; i++)
    if (strcmp(t->names[i], name) == 0) return i;
  if (t->token_count == TOKENS_MAX) return -1;
  strcpy(t->names[t->token_count], name);
  return t->token_count++;
}

/* Random merges of existing tokens; often several pairs give the same token, as in real vocabularies. After shuffling, a merge may create a
 * pair of lower rank. */
static void make_table(table *t, uint64_t *state, bool is_shuffled) {
  memset(t, 0, sizeof *t);
  for (int i = 0; i < 3; i++) {
    t->names[i][0] = (char)('a' + i);
    t->byte_ids['a' + i] = i;
  }
  t->token_count = 3;
  for (int i = 0; i < 100; i++) {
    bpe_merge m = {(int32_t)(next_random(state) % (uint32_t)t->token_count), (int32_t)(next_random(state) % (uint32_t)t->token_count), 0};
    bool is_known = false;
    for (size_t k = 0; k < t->merge_count; k++) is_known |= t->merges[k].left == m.left && t->merges[k].right == m.right;
    m.result = is_known ? -1 : find_or_add(t, m.left, m.right);
    if (m.result >= 0) t->merges[t->merge_count++] = m;
  }
  for (size_t i = t->merge_count; is_shuffled && i > 1; i--) {
    size_t k = next_random(state) % i;
    bpe_merge m = t->merges[k];
    t->merges[k] = t->merges[i - 1];
    t->merges[i - 1] = m;
  }
  for (int32_t left = 0; left < TOKENS_MAX; left++)
    for (int32_t right = 0; right < TOKENS_MAX; right++) t->ranks[left][right] = t->merge_count;
  for (size_t rank = 0; rank < t->merge_count; rank++) t->ranks[t->merges[rank].left][t->merges[rank].right] = rank;
}

static size_t merge_slowly(const table *t, const uint8_t *piece, size_t bytes, int32_t *ids) {
  for (size_t i = 0; i < bytes; i++) ids[i] = t->byte_ids[piece[i]];
  for (;;) {
    size_t best_rank = t->merge_count, best_at = 0;
    for (size_t at = 0; at + 1 < bytes; at++)
      if (t->ranks[ids[at]][ids[at + 1]] < best_rank) best_rank = t->ranks[ids[at]][ids[at + 1]], best_at = at;
    if (best_rank == t->merge_count) return bytes;
    ids[best_at] = t->merges[best_rank].result;
    memmove(ids + best_at + 1, ids + best_at + 2, (bytes - best_at - 2) * sizeof *ids);
    bytes--;
  }
}

static bpe_config config_of(const table *t) {
  return (bpe_config){.byte_ids = t->byte_ids, .merges = t->merges, .merge_count = t->merge_count, .piece_bytes_max = PIECE_MAX};
}

static void equals_the_definition(void **state) {
  (void)state;
  uint64_t seed = 7;
  table t;
  for (int round = 0; round < 100; round++) {
    make_table(&t, &seed, round % 2 == 1);
    bpe *b = NULL;
    bpe_config config = config_of(&t);
    assert_int_equal(bpe_open(&b, &config), OK);
    for (int i = 0; i < 60; i++) {
      uint8_t piece[PIECE_MAX];
      int32_t want[PIECE_MAX], found[PIECE_MAX];
      size_t bytes = 1 + next_random(&seed) % (i % 4 == 0 ? PIECE_MAX : 12), count = 0;
      uint32_t letters = 1 + next_random(&seed) % 3, run = 1 + next_random(&seed) % 3 * 20;
      for (size_t k = 0; k < bytes; k++) {
        piece[k] = (uint8_t)('a' + next_random(&seed) % letters);
        if (k > 0 && next_random(&seed) % run != 0) piece[k] = piece[k - 1];
      }
      size_t want_count = merge_slowly(&t, piece, bytes, want);
      for (int again = 0; again < 2; again++) { /* the second time short pieces come from the cache */
        assert_int_equal(bpe_encode(b, piece, bytes, found, PIECE_MAX, &count), OK);
        assert_int_equal(count, want_count);
        assert_memory_equal(found, want, count * sizeof *found);
      }
    }
    bpe_close(b);
  }
}

/* a+a, aa+aa, ...: every level halves the piece. A quadratic encoder would take minutes. */
static void long_run_is_not_quadratic(void **state) {
  (void)state;
  enum { BYTES = 1 << 22, LEVELS = 20 };
  int32_t byte_ids[256] = {0};
  bpe_merge merges[LEVELS];
  for (int32_t i = 0; i < LEVELS; i++) merges[i] = (bpe_merge){i, i, i + 1};
  bpe_config config = {.byte_ids = byte_ids, .merges = merges, .merge_count = LEVELS, .piece_bytes_max = BYTES};
  uint8_t *piece = malloc(BYTES);
  bpe *b = NULL;
  int32_t ids[64];
  size_t count = 0;
  assert_non_null(piece);
  memset(piece, 'a', BYTES);
  assert_int_equal(bpe_open(&b, &config), OK);
  assert_int_equal(bpe_encode(b, piece, BYTES, ids, 64, &count), OK);
  assert_int_equal(count, BYTES >> LEVELS);
  for (size_t i = 0; i < count; i++) assert_int_equal(ids[i], LEVELS);
  assert_int_equal(bpe_encode(b, piece, BYTES - 1, ids, 64, &count), OK); /* 2^22 - 1 = 3 * 2^20 + 2^19 + ... + 1 */
  assert_int_equal(count, 3 + LEVELS);
  for (size_t i = 3; i < count; i++) assert_int_equal(ids[i], LEVELS - 1 - (int32_t)(i - 3));
  bpe_close(b);
  free(piece);
}

/* Random bytes, and a merge for every two of them: one pass per rank would take hours. */
static void long_piece_without_repeats_is_not_quadratic(void **state) {
  (void)state;
  enum { BYTES = 1 << 20, PAIRS = 1 << 16 };
  int32_t byte_ids[256], *ids = malloc(BYTES * sizeof *ids);
  bpe_merge *merges = malloc(PAIRS * sizeof *merges);
  uint8_t *piece = malloc(BYTES);
  uint64_t seed = 9;
  size_t count = 0, at = 0;
  bpe *b = NULL;
  assert_true(ids != NULL && merges != NULL && piece != NULL);
  for (int32_t i = 0; i < 256; i++) byte_ids[i] = i;
  for (int32_t i = 0; i < PAIRS; i++) merges[i * 25717 % PAIRS] = (bpe_merge){i >> 8, i & 255, 256 + i};
  for (size_t i = 0; i < BYTES; i++) piece[i] = (uint8_t)next_random(&seed);
  bpe_config config = {.byte_ids = byte_ids, .merges = merges, .merge_count = PAIRS, .piece_bytes_max = BYTES};
  assert_int_equal(bpe_open(&b, &config), OK);
  assert_int_equal(bpe_encode(b, piece, BYTES, ids, BYTES, &count), OK);
  for (size_t i = 0; i < count; i++) {
    if (ids[i] >= 256) {
      assert_int_equal((ids[i] - 256) >> 8, piece[at++]);
    } else {
      assert_true(i == 0 || ids[i - 1] >= 256); /* two adjacent bytes would have merged */
    }
    assert_int_equal(ids[i] & 255, piece[at++]);
  }
  assert_int_equal(at, BYTES);
  bpe_close(b);
  free(ids);
  free(merges);
  free(piece);
}

static void whole_words_come_first_when_asked(void **state) {
  (void)state;
  int32_t byte_ids[256] = {['a'] = 0, ['b'] = 1}, ids[4];
  static const bpe_merge merges[] = {{0, 1, 2}};
  static const uint8_t *const words[] = {(const uint8_t *)"aba", (const uint8_t *)"ab"};
  static const uint32_t sizes[] = {3, 2};
  static const int32_t word_ids[] = {3, 2};
  bpe_config config = {.byte_ids = byte_ids, .merges = merges, .merge_count = 1, .piece_bytes_max = 8};
  size_t count = 0;
  for (int has_words = 0; has_words < 2; has_words++) {
    bpe *b = NULL;
    if (has_words) config.word_bytes = words, config.word_sizes = sizes, config.word_ids = word_ids, config.word_count = 2;
    assert_int_equal(bpe_open(&b, &config), OK);
    assert_int_equal(bpe_encode(b, (const uint8_t *)"aba", 3, ids, 4, &count), OK);
    assert_int_equal(count, has_words ? 1 : 2);
    assert_int_equal(ids[0], has_words ? 3 : 2);
    bpe_close(b);
  }
}

/* A word of each size up to 40, and each of them with every one of its bytes changed: all are told apart, in the vocabulary and in the
 * cache, whose keys are built from overlapping parts. */
static void pieces_that_differ_in_one_byte_are_told_apart(void **state) {
  (void)state;
  enum { SIZES = 40 };
  static uint8_t letters[SIZES][SIZES];
  const uint8_t *words[SIZES];
  uint32_t sizes[SIZES];
  int32_t word_ids[SIZES], byte_ids[256], ids[SIZES];
  for (int32_t i = 0; i < 256; i++) byte_ids[i] = i;
  for (uint32_t w = 0; w < SIZES; w++) {
    for (uint32_t i = 0; i <= w; i++) letters[w][i] = (uint8_t)('a' + (w + i * i) % 26);
    words[w] = letters[w], sizes[w] = w + 1, word_ids[w] = (int32_t)(1000 + w);
  }
  bpe_config config = {.byte_ids = byte_ids, .piece_bytes_max = SIZES, .word_bytes = words, .word_sizes = sizes, .word_ids = word_ids,
                       .word_count = SIZES};
  bpe *b = NULL;
  size_t count = 0;
  assert_int_equal(bpe_open(&b, &config), OK);
  for (int again = 0; again < 2; again++) {
    for (uint32_t w = 0; w < SIZES; w++) {
      uint8_t *piece = malloc(sizes[w]); /* a block of its own, so that a read after its end is noticed */
      assert_non_null(piece);
      memcpy(piece, words[w], sizes[w]);
      assert_int_equal(bpe_encode(b, piece, sizes[w], ids, SIZES, &count), OK);
      assert_int_equal(count, 1);
      assert_int_equal(ids[0], word_ids[w]);
      for (uint32_t i = 0; i < sizes[w]; i++) {
        piece[i] = (uint8_t)(words[w][i] ^ 0x80);
        assert_int_equal(bpe_encode(b, piece, sizes[w], ids, SIZES, &count), OK);
        assert_int_equal(count, sizes[w]);
        for (uint32_t k = 0; k < count; k++) assert_int_equal(ids[k], piece[k]);
        piece[i] = words[w][i];
      }
      free(piece);
    }
  }
  bpe_close(b);
}

/* tiktoken's rule, by its definition: of all neighbours whose bytes together are a word, merge those of the lowest id, the leftmost of
 * them. */
static size_t encode_by_definition(const char *const *words, size_t count, const char *piece, int32_t *ids) {
  size_t bytes = strlen(piece), parts = bytes, starts[65];
  for (size_t i = 0; i <= bytes; i++) starts[i] = i;
  for (;;) {
    size_t best = count, at = 0;
    for (size_t i = 0; i + 1 < parts; i++)
      for (size_t w = 0; w < best; w++)
        if (strlen(words[w]) == starts[i + 2] - starts[i] && memcmp(words[w], piece + starts[i], starts[i + 2] - starts[i]) == 0)
          best = w, at = i;
    if (best == count) break;
    for (size_t i = at + 1; i < parts; i++) starts[i] = starts[i + 1];
    parts--;
  }
  for (size_t i = 0; i < parts; i++)
    for (size_t w = 0; w < count; w++)
      if (strlen(words[w]) == starts[i + 1] - starts[i] && memcmp(words[w], piece + starts[i], strlen(words[w])) == 0) ids[i] = (int32_t)w;
  return parts;
}

/* Every piece of up to 10 of two letters, with words that several pairs give; some words are reached by only one order of merges. */
static void ranked_words_merge_as_defined(void **state) {
  (void)state;
  static const char *const words[] = {"a", "b", "aa", "bab", "aaa", "ab", "aab", "ba", "abab", "aaaa", "bbbbb", "abb", "bbab"};
  enum { COUNT = ARRAY_LEN(words) };
  const uint8_t *bytes[COUNT];
  uint32_t sizes[COUNT];
  int32_t word_ids[COUNT], byte_ids[256] = {['a'] = 0, ['b'] = 1}, ids[16], want[16];
  for (size_t w = 0; w < COUNT; w++)
    bytes[w] = (const uint8_t *)words[w], sizes[w] = (uint32_t)strlen(words[w]), word_ids[w] = (int32_t)w;
  bpe_config config = {.byte_ids = byte_ids, .piece_bytes_max = 16, .word_bytes = bytes, .word_sizes = sizes, .word_ids = word_ids,
                       .word_count = COUNT, .ranks_words = true};
  bpe *b = NULL;
  size_t merged = 0;
  assert_int_equal(bpe_open(&b, &config), OK);
  for (uint32_t size = 1; size <= 10; size++) {
    for (uint32_t bits = 0; bits < 1u << size; bits++) {
      char piece[16] = "";
      size_t count = 0, want_count = 1;
      for (uint32_t i = 0; i < size; i++) piece[i] = (bits >> i & 1) != 0 ? 'b' : 'a';
      bool is_word = false;
      for (size_t w = 0; w < COUNT; w++)
        if (strcmp(words[w], piece) == 0) want[0] = (int32_t)w, is_word = true;
      if (!is_word) want_count = encode_by_definition(words, COUNT, piece, want);
      assert_int_equal(bpe_encode(b, (const uint8_t *)piece, size, ids, 16, &count), OK);
      if (count != want_count || memcmp(ids, want, count * sizeof *ids) != 0) fail_msg("\"%s\" differs", piece);
      merged += count < size;
    }
  }
  assert_true(merged > 1500);
  bpe_close(b);
  b = NULL;
  bytes[3] = bytes[2], sizes[3] = sizes[2];
  fail_clear();
  assert_int_equal(bpe_open(&b, &config), ERR_FORMAT);
  assert_null(b);
}

static void limits_and_duplicates_are_errors(void **state) {
  (void)state;
  int32_t byte_ids[256] = {0}, ids[2] = {-7, -7};
  static const bpe_merge merges[] = {{0, 1, 2}, {1, 0, 3}, {0, 1, 4}};
  bpe_config config = {.byte_ids = byte_ids, .merges = merges, .merge_count = 2, .piece_bytes_max = 8};
  bpe *b = NULL;
  size_t count = 99;
  fail_clear();
  assert_int_equal(bpe_open(&b, &config), OK);
  assert_int_equal(bpe_encode(b, (const uint8_t *)"aaa", 3, ids, 2, &count), ERR_LIMIT);
  assert_int_equal(count, 99);
  bpe_close(b);
  b = NULL;
  config.merge_count = 3;
  fail_clear();
  assert_int_equal(bpe_open(&b, &config), ERR_FORMAT);
  assert_non_null(strstr(fail_text(), "(0, 1)"));
  assert_null(b);
  bpe_close(b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(equals_the_definition),
    cmocka_unit_test(ranked_words_merge_as_defined),
    cmocka_unit_test(long_run_is_not_quadratic),
    cmocka_unit_test(long_piece_without_repeats_is_not_quadratic),
    cmocka_unit_test(whole_words_come_first_when_asked),
    cmocka_unit_test(pieces_that_differ_in_one_byte_are_told_apart),
    cmocka_unit_test(limits_and_duplicates_are_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
