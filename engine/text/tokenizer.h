/* tokenizer.h - text to token ids and back, exactly like the tokenizers library, or like tiktoken for Kimi's models.
 *
 * Encoding: added tokens are found first, the rest is split into pieces (pretokenize.h), each piece is merged (bpe.h). Written in C because
 * both libraries are Rust, and ids must not depend on their versions. tokenizer_open reads and allocates everything: about 32 bytes for
 * each of TOKENIZER_TEXT_BYTES_MAX plus the vocabulary, untouched until a long piece needs them; nothing allocates afterwards. A tokenizer
 * holds the scratch memory of one encoding: one tokenizer_encode at a time for it. The other functions only read. Decoded tokens are bytes;
 * detokenizer.h turns them into text. Read next: tokenizer.c, detokenizer.h. */
#ifndef VERBATIM_TOKENIZER_H
#define VERBATIM_TOKENIZER_H
#include "base/base.h"
#include "base/digest.h"

#define TOKENIZER_TEXT_BYTES_MAX (4u << 20) /* about 1M tokens, as many as LENGTH_MAX */

typedef struct tokenizer tokenizer;

/* Reads tokenizer.json of model_dir and, if present, tokenizer_config.json, special_tokens_map.json and added_tokens.json; or without
 * tokenizer.json, tiktoken.model and tokenizer_config.json. Errors: see tokenizer_json.h, tokenizer_tiktoken.h and pretokenize.h. */
status tokenizer_open(tokenizer **out, const char *model_dir);

/* The same from memory; config is NULL if there is no tokenizer_config.json. */
status tokenizer_open_memory(tokenizer **out, const char *json, size_t json_bytes, const char *config, size_t config_bytes);

/* From the bytes of tiktoken.model and of tokenizer_config.json. */
status tokenizer_open_tiktoken(tokenizer **out, const char *model, size_t model_bytes, const char *config, size_t config_bytes);
void tokenizer_close(tokenizer *t); /* NULL is allowed */

/* Encodes text[0..bytes), which may contain NULs, to ids[0..ids_max), and sets count.
 *   add_special    adds the model's ids before and after the text (usually BOS)
 *   parse_special  special tokens spelled in the text become their ids; false: they are ordinary text (for what a user wrote)
 * ERR_FORMAT: not UTF-8, with the offset of the first bad byte. ERR_LIMIT: text longer than TOKENIZER_TEXT_BYTES_MAX, more than
 * ids_max ids, or a split pattern's match limit. On error count is untouched and ids is undefined. An id takes at least one byte of
 * text, except those that add_special adds (at most 8), so bytes + 8 ids are always enough room, but for a text that NFC lengthens. */
status tokenizer_encode(const tokenizer *t, const char *text, size_t bytes, bool add_special, bool parse_special, int32_t *ids,
                        size_t ids_max, size_t *count);

uint32_t tokenizer_vocab_size(const tokenizer *t); /* ids are 0 .. this - 1, added tokens included */
int32_t tokenizer_bos(const tokenizer *t);         /* -1: the model has none */
int32_t tokenizer_eos(const tokenizer *t);

/* For whoever opened the tokenizer: a sentence about ids in which versions of transformers differ. NULL: there are none. Static. */
const char *tokenizer_remark(const tokenizer *t);

/* The ids that add_special puts before a text, usually BOS; owned by the tokenizer. Returns their number. */
size_t tokenizer_lead(const tokenizer *t, const int32_t **ids);

/* The bytes of a token, owned by the tokenizer. NULL if id is not a token: models pad their logits beyond the vocabulary. */
const uint8_t *tokenizer_token_bytes(const tokenizer *t, int32_t id, size_t *bytes);
bool tokenizer_is_special(const tokenizer *t, int32_t id);

/* Over everything that determines ids and bytes: tokens, merges, splits, added tokens, ids around a text. */
digest tokenizer_digest(const tokenizer *t);

#endif
