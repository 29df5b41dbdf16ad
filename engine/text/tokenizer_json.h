/* tokenizer_json.h - reads tokenizer.json and tokenizer_config.json into plain arrays.
 *
 * Accepts byte-level BPE as the tokenizers library writes it, and SentencePiece's as spaced_json.h says; a field that is unknown, or that
 * asks for something Verbatim does not do exactly, is refused by name. Accepted of the former:
 *   added_tokens    special and not, normalized, lstrip, rstrip; not single_word; ids beyond the vocabulary continue it
 *   normalizer      null, NFC, or a Sequence of at most that
 *   pre_tokenizer   ByteLevel, alone or last in a Sequence after Split (Regex, Isolated) and Digits; no prefix space
 *   post_processor  null, ByteLevel, TemplateProcessing (its "single" puts fixed ids around the text), a Sequence of those
 *   decoder         ByteLevel
 *   model           BPE without dropout, unk_token, prefix, suffix or byte_fallback; merges as "a b" or ["a", "b"]; ignore_merges
 * Three more files are optional: tokenizer_config.json, and two that hold tokens only (declared_tokens.h). Of the first are read: its
 * tokens; add_bos_token and add_eos_token with tokenizer_class, which decides whether they or the post_processor count;
 * split_special_tokens, which must be false; add_prefix_space. Allocates; runs at start-up. Read next: tokenizer.h. */
#ifndef VERBATIM_TOKENIZER_JSON_H
#define VERBATIM_TOKENIZER_JSON_H
#include "text/added_tokens.h"
#include "base/base.h"
#include "text/bpe.h"
#include "text/pretokenize.h"

#define TOKENIZER_FILE_BYTES_MAX (64u << 20) /* tokenizer.json with a 160k vocabulary has 10 MB */
#define TOKENIZER_MERGES_MAX (1u << 20)
#define TOKENIZER_KEY_BYTES_MAX 8192u        /* of one token in the vocabulary's spelling */
#define TOKENIZER_AROUND_MAX 4u

typedef enum tokenizer_prefix { /* a space before a text, of a vocabulary that writes spaces */
  TOKENIZER_PREFIX_NEVER,
  TOKENIZER_PREFIX_ALWAYS,  /* before each text between added tokens */
  TOKENIZER_PREFIX_MISSING, /* the same, unless it begins with one */
  TOKENIZER_PREFIX_FIRST    /* the same, but only where the whole text begins */
} tokenizer_prefix;

typedef struct tokenizer_data {
  uint32_t vocab_count;    /* ids 0..vocab_count-1 are the model's */
  uint32_t token_count;    /* ids vocab_count..token_count-1 are added tokens */
  uint8_t *bytes;          /* the bytes of token id are bytes[starts[id]] .. bytes[starts[id + 1]] */
  uint32_t *starts;        /* [token_count + 1] */
  uint8_t *is_word;        /* [vocab_count] 1: spelled in the byte alphabet, so text can become it */
  int32_t byte_ids[256];
  bpe_merge *merges;       /* [merge_count] by rank */
  uint32_t merge_count;
  bool ignores_merges;
  bool normalizes;         /* to NFC */
  bool is_spaced;          /* see spaced_json.h; is_word: in the text's own spelling */
  tokenizer_prefix prefix; /* if is_spaced */
  bool ranks_words;        /* tokens merge by their own ids, see bpe.h; merge_count is 0 then */
  uint32_t split_count;
  pretokenize_split splits[PRETOKENIZE_SPLITS_MAX];
  added_token *added;      /* [added_count] in file order */
  uint32_t added_count;
  uint32_t before_count, after_count;   /* ids put before and after a text on request */
  int32_t before[TOKENIZER_AROUND_MAX], after[TOKENIZER_AROUND_MAX];
  int32_t bos, eos;        /* -1: none */
  const char *remark;      /* static: where versions of transformers put other ids around a text; NULL: they agree */
  void *strings[PRETOKENIZE_SPLITS_MAX + 1]; /* memory of the patterns and contents */
} tokenizer_data;

enum tokenizer_file { TOKENIZER_JSON, TOKENIZER_CONFIG, TOKENIZER_SPECIAL_MAP, TOKENIZER_ADDED, TOKENIZER_FILE_COUNT };

typedef struct tokenizer_text {
  const char *text; /* NULL: there is no such file; the first must be there */
  size_t bytes;
} tokenizer_text;

/* texts: [TOKENIZER_FILE_COUNT], the files' bytes. On error data is untouched. ERR_FORMAT: not allowed by the format. ERR_UNSUPPORTED:
 * allowed, but not implemented. ERR_LIMIT: too large. */
status tokenizer_json_parse(tokenizer_data *data, const tokenizer_text *texts);

/* The same, from the files in model_dir. ERR_IO if tokenizer.json cannot be read. */
status tokenizer_json_read(tokenizer_data *data, const char *model_dir);

/* Shared with tokenizer_tiktoken.c: parsing one JSON text; the fields of tokenizer_config.json named above but for the tokens that it only
 * declares; reading a whole file of model_dir, which the caller frees (is_optional: *text is unchanged if the file does not exist). */
struct json_t;
status tokenizer_json_load(const char *name, const char *text, size_t bytes, struct json_t **out);
status tokenizer_json_config(tokenizer_data *data, const struct json_t *config);
status tokenizer_json_read_file(const char *model_dir, const char *name, bool is_optional, char **text, size_t *bytes);
void tokenizer_json_free(tokenizer_data *data); /* may be zeroed */

#endif
