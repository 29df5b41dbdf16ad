/* tokenizer.c - the order of encoding: added tokens, pieces, merges (see tokenizer.h).
 *
 * Follows the peculiarities of the tokenizers library: "normalized" tokens are searched in a second pass, in the text that the first pass
 * left; a control token that may not be parsed still hides text that it overlaps; white space that a token strips is dropped. Must not know
 * JSON or regular expressions. */
#include "text/tokenizer.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/nfc.h"
#include "text/spaced_json.h"
#include "base/input_file.h"
#include "base/limits.h"
#include "text/pretokenize.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_tiktoken.h"
#include "base/utf8.h"
#include <stdlib.h>
#include <string.h>

_Static_assert(TOKENIZER_TEXT_BYTES_MAX < PRETOKENIZE_MATCH_LIMIT / 2, "a match may give back the whole text twice");

struct tokenizer {
  tokenizer_data data;
  added_tokens passes[2];        /* not normalized, normalized */
  pretokenizer *pretokenizer;
  bpe *bpe;
  nfc *nfc;                      /* NULL: texts are not normalized */
  uint8_t *spaced;               /* [TOKENIZER_TEXT_BYTES_MAX + 1] a text with its prefix; NULL: the vocabulary writes no spaces */
  const uint8_t **word_bytes;    /* [word_count], with ignore_merges only */
  uint32_t *word_sizes;
  int32_t *word_ids;
  size_t word_count;
  uint8_t *is_special;           /* [token_count] */
  digest digest;
};

typedef struct encoding {
  const tokenizer *t;
  bool parse_special;
  int32_t *ids;
  size_t ids_max, count;
  const uint8_t *text; /* the whole */
} encoding;

/* === Opening ================================================================================================= */

static void add_u32(digest_state *state, uint32_t value) {
  uint8_t bytes[4] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16), (uint8_t)(value >> 24)};
  digest_add(state, bytes, sizeof bytes);
}

static void add_bytes(digest_state *state, const void *data, uint32_t bytes) {
  add_u32(state, bytes);
  if (bytes > 0) digest_add(state, data, bytes);
}

static void add_ids(digest_state *state, const int32_t *ids, uint32_t count) {
  add_u32(state, count);
  for (uint32_t i = 0; i < count; i++) add_u32(state, (uint32_t)ids[i]);
}

/* Every list is preceded by its length and every number is 4 bytes, little-endian, so different contents give different streams. */
static digest digest_contents(const tokenizer_data *d) {
  digest_state state;
  digest_start(&state);
  add_bytes(&state, "verbatim tokenizer 1", 20);
  add_u32(&state, d->vocab_count);
  add_u32(&state, d->token_count);
  for (uint32_t id = 0; id < d->token_count; id++) {
    add_u32(&state, d->is_word[id]);
    add_bytes(&state, d->bytes + d->starts[id], d->starts[id + 1] - d->starts[id]);
  }
  add_u32(&state, d->merge_count);
  for (uint32_t i = 0; i < d->merge_count; i++) {
    add_u32(&state, (uint32_t)d->merges[i].left);
    add_u32(&state, (uint32_t)d->merges[i].right);
    add_u32(&state, (uint32_t)d->merges[i].result);
  }
  add_u32(&state, (uint32_t)d->ignores_merges | (uint32_t)d->ranks_words << 1);
  if (d->normalizes || d->is_spaced)
    add_u32(&state, 1u << 31 | (uint32_t)d->normalizes | (uint32_t)d->is_spaced << 1 | (uint32_t)d->prefix << 2);
  add_u32(&state, d->split_count);
  for (uint32_t i = 0; i < d->split_count; i++) {
    add_u32(&state, (uint32_t)d->splits[i].kind);
    add_bytes(&state, d->splits[i].pattern, (uint32_t)d->splits[i].pattern_bytes);
  }
  add_u32(&state, d->added_count);
  for (uint32_t i = 0; i < d->added_count; i++) {
    const added_token *a = &d->added[i];
    add_u32(&state, (uint32_t)a->id);
    add_u32(&state, (uint32_t)a->is_special | (uint32_t)a->is_normalized << 1 | (uint32_t)a->strips_left << 2 |
                        (uint32_t)a->strips_right << 3 | (uint32_t)(a->is_control != a->is_special) << 4);
    add_bytes(&state, a->content, a->bytes);
  }
  add_ids(&state, d->before, d->before_count);
  add_ids(&state, d->after, d->after_count);
  add_u32(&state, (uint32_t)d->bos);
  add_u32(&state, (uint32_t)d->eos);
  return digest_end(&state);
}

/* Lists the tokens that a whole piece can be; of a vocabulary that writes spaces, those that a character can be. */
static status list_words(tokenizer *t) {
  const tokenizer_data *d = &t->data;
  t->word_bytes = malloc(d->vocab_count * sizeof *t->word_bytes);
  t->word_sizes = malloc(d->vocab_count * sizeof *t->word_sizes);
  t->word_ids = malloc(d->vocab_count * sizeof *t->word_ids);
  if (t->word_bytes == NULL || t->word_sizes == NULL || t->word_ids == NULL) return FAIL(ERR_LIMIT, "tokenizer: out of memory");
  for (uint32_t id = 0; id < d->vocab_count; id++) {
    size_t size = d->starts[id + 1] - d->starts[id];
    bool is_character = (size_t)utf8_scan(d->bytes + d->starts[id], size) == size;
    if (!d->is_word[id] || (d->is_spaced && !is_character)) continue;
    t->word_bytes[t->word_count] = d->bytes + d->starts[id];
    t->word_sizes[t->word_count] = d->starts[id + 1] - d->starts[id];
    t->word_ids[t->word_count++] = (int32_t)id;
  }
  return OK;
}

static status build(tokenizer *t) {
  const tokenizer_data *d = &t->data;
  for (int pass = 0; pass < 2; pass++) TRY(added_tokens_open(&t->passes[pass], d->added, d->added_count, pass == 1));
  TRY(pretokenize_open(&t->pretokenizer, d->splits, d->split_count, PRETOKENIZE_AUTOMATON));
  if (d->ignores_merges || d->is_spaced) TRY(list_words(t));
  if (d->normalizes) TRY(nfc_open(&t->nfc, TOKENIZER_TEXT_BYTES_MAX));
  if (d->is_spaced) t->spaced = malloc(TOKENIZER_TEXT_BYTES_MAX + 1);
  if (d->is_spaced && t->spaced == NULL) return FAIL(ERR_LIMIT, "tokenizer: out of memory");
  bpe_config config = {.byte_ids = d->byte_ids, .merges = d->merges, .merge_count = d->merge_count,
                       .piece_bytes_max = TOKENIZER_TEXT_BYTES_MAX + d->is_spaced, .word_bytes = t->word_bytes, .word_sizes = t->word_sizes,
                       .word_ids = t->word_ids, .word_count = t->word_count, .ranks_words = d->ranks_words,
                       .starts_with_words = d->is_spaced};
  TRY(bpe_open(&t->bpe, &config));
  t->is_special = calloc(d->token_count, 1);
  if (t->is_special == NULL) return FAIL(ERR_LIMIT, "tokenizer: out of memory");
  for (uint32_t i = 0; i < d->added_count; i++) t->is_special[d->added[i].id] = d->added[i].is_special;
  t->digest = digest_contents(d);
  return OK;
}

/* Takes ownership of data, which was read with status `read`. */
static status open_data(tokenizer **out, tokenizer_data *data) {
  tokenizer *t = calloc(1, sizeof *t);
  if (t == NULL) {
    tokenizer_json_free(data);
    return FAIL(ERR_LIMIT, "tokenizer: out of memory");
  }
  t->data = *data;
  status s = build(t);
  if (s != OK) {
    tokenizer_close(t);
    return s;
  }
  *out = t;
  return OK;
}

status tokenizer_open(tokenizer **out, const char *model_dir) {
  tokenizer_data data = {0};
  TRY(input_file_check_model(model_dir));
  if (tokenizer_tiktoken_is_in(model_dir)) TRY(tokenizer_tiktoken_read(&data, model_dir));
  else TRY(tokenizer_json_read(&data, model_dir));
  return open_data(out, &data);
}

status tokenizer_open_memory(tokenizer **out, const char *json, size_t json_bytes, const char *config, size_t config_bytes) {
  tokenizer_data data = {0};
  const tokenizer_text texts[TOKENIZER_FILE_COUNT] = {[TOKENIZER_JSON] = {json, json_bytes}, [TOKENIZER_CONFIG] = {config, config_bytes}};
  TRY(tokenizer_json_parse(&data, texts));
  return open_data(out, &data);
}

status tokenizer_open_tiktoken(tokenizer **out, const char *model, size_t model_bytes, const char *config, size_t config_bytes) {
  tokenizer_data data = {0};
  TRY(tokenizer_tiktoken_parse(&data, model, model_bytes, config, config_bytes));
  return open_data(out, &data);
}

void tokenizer_close(tokenizer *t) {
  if (t == NULL) return;
  bpe_close(t->bpe);
  nfc_close(t->nfc);
  free(t->spaced);
  pretokenize_close(t->pretokenizer);
  for (int pass = 0; pass < 2; pass++) added_tokens_close(&t->passes[pass]);
  free(t->word_bytes);
  free(t->word_sizes);
  free(t->word_ids);
  free(t->is_special);
  tokenizer_json_free(&t->data);
  free(t);
}

/* === Encoding ================================================================================================ */

static status put_id(encoding *e, int32_t id) {
  if (e->count == e->ids_max) return FAIL(ERR_LIMIT, "tokens: expected at most %zu, found more", e->ids_max);
  e->ids[e->count++] = id;
  return OK;
}

static status encode_piece(void *context, const char *piece, size_t bytes) {
  encoding *e = context;
  size_t count = 0;
  TRY(bpe_encode(e->t->bpe, (const uint8_t *)piece, bytes, e->ids + e->count, e->ids_max - e->count, &count));
  e->count += count;
  return OK;
}

/* Start of the white space at the end of text[0..bytes). */
static size_t strip_end(const uint8_t *text, size_t bytes) {
  size_t end = bytes;
  while (end > 0) {
    size_t start = end - 1;
    while (start > 0 && (text[start] & 0xC0) == 0x80) start--;
    if (!utf8_is_space(utf8_code_point(text + start, (int)(end - start)))) break;
    end = start;
  }
  return end;
}

/* End of the white space at the start of text[from..bytes). */
static size_t strip_start(const uint8_t *text, size_t bytes, size_t from) {
  while (from < bytes) {
    int length = utf8_scan(text + from, bytes - from);
    if (!utf8_is_space(utf8_code_point(text + from, length))) break;
    from += (size_t)length;
  }
  return from;
}

/* Encodes a text between added tokens of a vocabulary that writes spaces: with its prefix, and with U+2581 as a space. */
static status encode_spaced(encoding *e, const uint8_t *text, size_t bytes) {
  const size_t mark = sizeof SPACED_JSON_SPACE - 1;
  const tokenizer_prefix prefix = e->t->data.prefix;
  bool has_space = text[0] == ' ' || (bytes >= mark && memcmp(text, SPACED_JSON_SPACE, mark) == 0);
  bool is_given = prefix == TOKENIZER_PREFIX_ALWAYS || (prefix == TOKENIZER_PREFIX_MISSING && !has_space) ||
                  (prefix == TOKENIZER_PREFIX_FIRST && !has_space && text == e->text);
  uint8_t *to = e->t->spaced;
  size_t count = 0;
  if (is_given) to[count++] = ' ';
  for (size_t at = 0; at < bytes;) {
    bool is_mark = bytes - at >= mark && memcmp(text + at, SPACED_JSON_SPACE, mark) == 0;
    to[count++] = is_mark ? ' ' : text[at];
    at += is_mark ? mark : 1;
  }
  return encode_piece(e, (const char *)to, count);
}

/* Finds the added tokens of one pass in text; the text between them goes to the next pass, and after the last pass it is split. */
static status encode_pass(encoding *e, int pass, const uint8_t *text, size_t bytes) {
  if (pass == 2 && e->t->spaced != NULL) return encode_spaced(e, text, bytes);
  if (pass == 2) return pretokenize_run(e->t->pretokenizer, (const char *)text, bytes, encode_piece, e);
  if (pass == 1 && e->t->nfc != NULL) TRY(nfc_run(e->t->nfc, text, bytes, &text, &bytes));
  size_t done = 0, search = 0, start = 0;
  const added_token *found = NULL;
  while ((found = added_tokens_find(&e->t->passes[pass], text, bytes, search, &start)) != NULL) {
    size_t stop = start + found->bytes;
    search = stop;
    if (found->is_control && !e->parse_special) continue;
    if (found->strips_left) start = strip_end(text, start); /* may lie before done: then there is no text between */
    if (found->strips_right) stop = strip_start(text, bytes, stop);
    if (start > done) TRY(encode_pass(e, pass + 1, text + done, start - done));
    TRY(put_id(e, found->id));
    done = stop;
  }
  return done < bytes ? encode_pass(e, pass + 1, text + done, bytes - done) : OK;
}

status tokenizer_encode(const tokenizer *t, const char *text, size_t bytes, bool add_special, bool parse_special, int32_t *ids,
                        size_t ids_max, size_t *count) {
  const tokenizer_data *d = &t->data;
  encoding e = {.t = t, .parse_special = parse_special, .ids = ids, .ids_max = ids_max, .text = (const uint8_t *)text};
  if (bytes > TOKENIZER_TEXT_BYTES_MAX)
    return FAIL(ERR_LIMIT, "text: expected at most %u bytes, found %zu; hint: encode it in parts", TOKENIZER_TEXT_BYTES_MAX, bytes);
  size_t valid = utf8_valid_bytes((const uint8_t *)text, bytes);
  if (valid != bytes)
    return FAIL(ERR_FORMAT, "text: expected UTF-8, found byte 0x%02X at offset %zu; hint: convert the text to UTF-8",
                (unsigned)(uint8_t)text[valid], valid);
  for (uint32_t i = 0; add_special && i < d->before_count; i++) TRY(put_id(&e, d->before[i]));
  TRY(encode_pass(&e, 0, (const uint8_t *)text, bytes));
  for (uint32_t i = 0; add_special && i < d->after_count; i++) TRY(put_id(&e, d->after[i]));
  *count = e.count;
  return OK;
}

/* === Reading ================================================================================================= */

uint32_t tokenizer_vocab_size(const tokenizer *t) { return t->data.token_count; }
int32_t tokenizer_bos(const tokenizer *t) { return t->data.bos; }
int32_t tokenizer_eos(const tokenizer *t) { return t->data.eos; }
const char *tokenizer_remark(const tokenizer *t) { return t->data.remark; }

size_t tokenizer_lead(const tokenizer *t, const int32_t **ids) {
  *ids = t->data.before;
  return t->data.before_count;
}

digest tokenizer_digest(const tokenizer *t) { return t->digest; }

const uint8_t *tokenizer_token_bytes(const tokenizer *t, int32_t id, size_t *bytes) {
  if (id < 0 || (uint32_t)id >= t->data.token_count) return NULL;
  *bytes = t->data.starts[id + 1] - t->data.starts[id];
  return t->data.bytes + t->data.starts[id];
}

bool tokenizer_is_special(const tokenizer *t, int32_t id) {
  return id >= 0 && (uint32_t)id < t->data.token_count && t->is_special[id] != 0;
}
