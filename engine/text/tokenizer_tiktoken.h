/* tokenizer_tiktoken.h - reads tiktoken.model and tokenizer_config.json of Kimi's models into the arrays of tokenizer_json.h.
 *
 * tiktoken.model has one token per line: its bytes in base64, a space, its rank, which is also its id. Ranks start at 0, every byte has a
 * token, no bytes occur twice. There is no list of merges: see ranks_words in bpe.h. The model's own code defines the rest, which is
 * fixed here:
 *   split      TOKENIZER_TIKTOKEN_PATTERN
 *   added      TOKENIZER_TIKTOKEN_RESERVED ids after the vocabulary, named by added_tokens_decoder or else "<|reserved_token_ID|>"; each
 *              is a control token, and special where the config says so or does not name it; none strips white space
 * tokenizer_config.json must have tokenizer_class "TikTokenTokenizer"; other classes have other patterns. The model's code encodes long
 * texts in parts of 400,000 characters, and runs of 25,000 without a change between white space and other: not done here.
 * Allocates; runs at start-up. Read next: tokenizer.h. */
#ifndef VERBATIM_TOKENIZER_TIKTOKEN_H
#define VERBATIM_TOKENIZER_TIKTOKEN_H
#include "text/tokenizer_json.h"

#define TOKENIZER_TIKTOKEN_FILE_BYTES_MAX (16u << 20) /* Kimi's has 3 MB */
#define TOKENIZER_TIKTOKEN_TOKEN_BYTES_MAX 512u       /* opening costs the sum of the squares of the token sizes */
#define TOKENIZER_TIKTOKEN_RESERVED 256u
#define TOKENIZER_TIKTOKEN_PATTERN                                                                                             \
  "[\\p{Han}]+"                                                                                                                \
  "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+"       \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"                                                                                              \
  "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*"       \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"                                                                                              \
  "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Whether model_dir has a tiktoken.model and no tokenizer.json. */
bool tokenizer_tiktoken_is_in(const char *model_dir);

/* model: the bytes of tiktoken.model. config: those of tokenizer_config.json. On error data is untouched. ERR_FORMAT: not allowed by the
 * format. ERR_UNSUPPORTED: allowed, but not implemented. ERR_LIMIT: too large. */
status tokenizer_tiktoken_parse(tokenizer_data *data, const char *model, size_t model_bytes, const char *config, size_t config_bytes);

/* The same, from the two files in model_dir. ERR_IO if one cannot be read. Released by tokenizer_json_free. */
status tokenizer_tiktoken_read(tokenizer_data *data, const char *model_dir);

#endif
