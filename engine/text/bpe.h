/* bpe.h - byte-pair merging of one piece of text.
 *
 * A piece starts as one token per byte, or per character where the vocabulary has it; the adjacent pair of lowest rank (ties: the
 * leftmost) is replaced by its result until no adjacent pair is in the table. A piece of n bytes takes at most O(n log n), whatever its
 * bytes and the table. Results of short pieces are kept in a fixed cache; encoding is a pure function of the piece, so a hit changes no
 * id. Knows neither text nor JSON: bytes in, ids out. bpe_open allocates all memory; only one bpe_encode at a time per bpe. Read next:
 * tokenizer_json.h. */
#ifndef VERBATIM_BPE_H
#define VERBATIM_BPE_H
#include "base/base.h"

#define BPE_WORD_PAIRS_MAX (1u << 22)

typedef struct bpe bpe;

typedef struct bpe_merge {
  int32_t left, right, result; /* token ids, like all here 0 .. VOCAB_MAX - 1; the rank is the index in the list */
} bpe_merge;

typedef struct bpe_config {
  const int32_t *byte_ids;     /* [256] the token of each byte */
  const bpe_merge *merges;     /* [merge_count] no pair twice; the bytes of result are those of left followed by those of right */
  size_t merge_count;
  size_t piece_bytes_max;      /* of the longest piece to encode; costs 32 bytes of memory each */
  /* A piece that is itself a token becomes that token without merging: "ignore_merges". NULL: off. */
  const uint8_t *const *word_bytes; /* [word_count] */
  const uint32_t *word_sizes;       /* [word_count] */
  const int32_t *word_ids;          /* [word_count] */
  size_t word_count;
  /* The words define the merges: any two tokens whose bytes together are a word merge into it, the lowest id first. merges is ignored. */
  bool ranks_words;
  /* The words are the characters that are tokens: a piece of UTF-8 starts as these, and as the bytes of other characters. */
  bool starts_with_words;
} bpe_config;

/* The word arrays must outlive the bpe; the others are copied. ERR_FORMAT for a duplicate pair or word, ERR_LIMIT for words that split in
 * more than BPE_WORD_PAIRS_MAX ways. With ranks_words, opening looks up every split of every word. */
status bpe_open(bpe **out, const bpe_config *config);
void bpe_close(bpe *b); /* NULL is allowed */

/* Writes the ids of piece to ids[0..ids_max), whose contents after them may be overwritten, and their number to count. 0 < bytes <=
 * piece_bytes_max. ERR_LIMIT: they do not fit. */
status bpe_encode(bpe *b, const uint8_t *piece, size_t bytes, int32_t *ids, size_t ids_max, size_t *count);

#endif
