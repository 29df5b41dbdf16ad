/* vocabulary.h - the tokens of a tokenizer as a tree of bytes, and the mask of those that an automaton takes from a state.
 *
 * A token is in the tree if it has bytes and is not special. Special tokens have no text in an answer; one is taken only if its bytes are
 * a part of one of the automaton's marks, such as that of a call of a tool, which a model writes as one token. A walk visits the tree in
 * one pass and leaves out what is behind a byte that the automaton does not take. Built once, at start-up; then it is only read. Read next:
 * masks.h. */
#ifndef VERBATIM_CONSTRAIN_VOCABULARY_H
#define VERBATIM_CONSTRAIN_VOCABULARY_H
#include "base/arena.h"
#include "constrain/automaton.h"
#include "text/tokenizer.h"

#define VOCABULARY_TOKEN_BYTES_MAX 255u /* longer tokens are not in the tree */

typedef struct vocabulary_node { /* in the order of a walk that takes a node before what is behind it */
  uint32_t after;  /* the next node that is not behind this one */
  int32_t token;   /* the first token that ends here, -1: none   */
  uint8_t byte, depth; /* depth: bytes up to and with this one   */
} vocabulary_node;

typedef struct vocabulary {
  const tokenizer *tokenizer;
  vocabulary_node *nodes; /* [node_count] */
  int32_t *same;          /* [vocab] the next token with the same bytes, -1: none */
  int32_t *specials;      /* [special_count] special tokens with bytes */
  uint32_t node_count, special_count, vocab;
  bool has_byte[256];     /* a token of this one byte */
  bool has_all;           /* of every byte that UTF-8 has */
} vocabulary;

/* [start-up] vocab: ids that the model chooses from; the tokenizer may have more or fewer. */
status vocabulary_open(vocabulary *self, const tokenizer *t, uint32_t vocab, arena *host);

/* Sets the bits of the tokens that the automaton takes from the state, and clears all others. bits: [words] */
void vocabulary_mask(const vocabulary *self, const automaton *a, uint32_t state, uint32_t *bits, uint32_t words);

/* The state after a token; after a special one that is no part of a mark it is dead. */
uint32_t vocabulary_advance(const vocabulary *self, const automaton *a, uint32_t state, int32_t token);

/* ERR_UNSUPPORTED: the automaton has a state from which no byte leads on that a token of the vocabulary can give. */
status vocabulary_check(const vocabulary *self, const automaton *a);

#endif
