/* declared_tokens.h - the tokens that a model's folder declares outside tokenizer.json.
 *
 * transformers makes an added token of each: of tokenizer_config.json's added_tokens_decoder, bos_token and its like, and lists; and if
 * that file has no added_tokens_decoder, also of special_tokens_map.json and added_tokens.json. This file lists them in the order in which
 * transformers numbers them, and names those that its versions 4 and 5 treat differently. Knows no vocabulary. Read next:
 * tokenizer_json.c. */
#ifndef VERBATIM_DECLARED_TOKENS_H
#define VERBATIM_DECLARED_TOKENS_H
#include <jansson.h>
#include "base/base.h"

#define DECLARED_TOKENS_MAX 8192u

typedef struct declared_token {
  const char *file, *key;   /* where it is declared */
  const char *content;      /* not empty; owned by the JSON tree, as is key */
  const char *dispute;      /* NULL, or why only a token that tokenizer.json has too may be declared like this */
  int64_t id;               /* that the file states; -1: none */
  bool single_word, strips_left, strips_right, is_normalized, is_special;
  bool is_of_other_class;   /* a new id for it may follow ids of tokens that the tokenizer_class adds */
  bool goes_first;          /* its flags replace those that tokenizer.json gives the token */
  bool goes_first_in_4;     /* only in version 4 */
} declared_token;

typedef struct declared_tokens {
  declared_token *list;     /* [count] */
  uint32_t count, room;
} declared_tokens;

/* What tokenizer_class means for the tokens of a model with tokenizer.json. */
typedef enum declared_class {
  DECLARED_PLAIN, /* of the class that only loads tokenizer.json */
  DECLARED_LLAMA, /* LlamaTokenizerFast, which puts tokens around a text */
  DECLARED_OTHER  /* with code and tokens of its own, or by the model_type where the field is absent */
} declared_class;
declared_class declared_tokens_class(const json_t *config);

/* config, map, added: the roots of tokenizer_config.json, special_tokens_map.json and added_tokens.json; NULL: there is no such file. They
 * must outlive the list. ERR_FORMAT: a declaration that transformers does not read either. */
status declared_tokens_read(declared_tokens *out, const json_t *config, const json_t *map, const json_t *added);
void declared_tokens_close(declared_tokens *tokens); /* may be zeroed */

#endif
