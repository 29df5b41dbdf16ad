/* serve/tokens.c - see serve/tokens.h. Numbers and names first, then the forms of a row. */
#include "serve/tokens.h"
#include "base/utf8.h"
#include <math.h>
#include <string.h>

#define PIECE_BYTES 64u

void serve_tokens_name(const tokenizer *t, int32_t id, bool as_id, serve_text *out) {
  size_t bytes = 0;
  const uint8_t *text = tokenizer_token_bytes(t, id, &bytes);
  if (as_id || !text || bytes == 0) {
    strbuf_addf(out, "\"token_id:%d\"", (int)id);
  } else if (utf8_valid_bytes(text, bytes) == bytes && !memchr(text, 0, bytes)) { /* not every reader accepts a NUL in a key */
    serve_text_string(out, (const char *)text, bytes);
  } else {
    strbuf_addf(out, "\"bytes:");
    for (size_t i = 0; i < bytes; i++) {
      bool is_plain = text[i] >= 0x20 && text[i] < 0x7f && text[i] != '"' && text[i] != '\\';
      strbuf_addf(out, is_plain ? "%c" : "\\\\x%02x", text[i]);
    }
    strbuf_addf(out, "\"");
  }
}

void serve_tokens_bytes(const tokenizer *t, int32_t id, serve_text *out) {
  size_t bytes = 0;
  const uint8_t *text = tokenizer_token_bytes(t, id, &bytes);
  strbuf_addf(out, "[");
  for (size_t i = 0; text && i < bytes; i++) strbuf_addf(out, i ? ",%u" : "%u", text[i]);
  strbuf_addf(out, "]");
}

/* === Text =================================================================================================================== */

void serve_tokens_text(const tokenizer *t, detokenizer *d, int32_t id, bool spell, serve_text *out) {
  size_t bytes = 0;
  const uint8_t *text = !spell && tokenizer_is_special(t, id) ? NULL : tokenizer_token_bytes(t, id, &bytes);
  for (size_t at = 0, added = 0; text && at < bytes; at += PIECE_BYTES) {
    size_t count = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES, room = 3 * (count + 3);
    char *end = strbuf_reserve(out, room);
    if (!end || detokenizer_push_bytes(d, text + at, count, end, room, &added) != OK) return;
    out->count += added;
  }
}

void serve_tokens_flush(detokenizer *d, serve_text *out) {
  size_t added = 0;
  char *end = strbuf_reserve(out, 3);
  if (end && detokenizer_flush(d, end, 3, &added) == OK) out->count += added;
}

/* === Numbers ================================================================================================================ */

static float below(const serve_token *self, float logprob) {
  float largest = self->top[0].logprob;
  return logprob >= largest ? nextafterf(largest, -INFINITY) : logprob;
}

float serve_tokens_number(const serve_token *self) {
  return self->token->rank == 0 ? self->token->logprob : below(self, self->token->logprob);
}

float serve_tokens_top_number(const serve_token *self, uint32_t i) {
  return i == 0 ? self->top[0].logprob : below(self, self->top[i].logprob);
}

/* === Lists of alternatives ================================================================================================== */

static uint32_t seen_count(const serve_token *self) { return min_u32(self->shown, self->known); }

static bool is_seen(const serve_token *self) {
  for (uint32_t i = 0; i < seen_count(self); i++)
    if (self->top[i].id == self->token->id) return true;
  return false;
}

/* `names` holds the names so far, one per line; a name that occurs again is replaced by the id. */
static void put_key(const tokenizer *t, int32_t id, bool as_id, serve_text *names, serve_text *out) {
  size_t from = names->count;
  serve_tokens_name(t, id, as_id, names);
  if (names->failed) {
    out->failed = true;
    return;
  }
  size_t bytes = names->count - from;
  for (size_t at = 0; at + bytes <= from; at++) {
    bool is_start = at == 0 || names->bytes[at - 1] == '\n';
    if (!is_start || memcmp(names->bytes + at, names->bytes + from, bytes) != 0 || names->bytes[at + bytes] != '\n') continue;
    names->count = from;
    serve_tokens_name(t, id, true, names);
    break;
  }
  strbuf_add(out, names->bytes + from, names->count - from);
  strbuf_add(names, "\n", 1); /* no JSON string contains one */
}

void serve_tokens_dictionary(const tokenizer *t, const serve_token *self, bool as_ids, serve_text *out) {
  serve_text names = {0};
  strbuf_addf(out, "{");
  for (uint32_t i = 0; i < seen_count(self); i++) {
    if (i) strbuf_addf(out, ",");
    put_key(t, self->top[i].id, as_ids, &names, out);
    strbuf_addf(out, ":");
    serve_text_double(out, (double)serve_tokens_top_number(self, i));
  }
  if (!is_seen(self)) {
    if (self->shown) strbuf_addf(out, ",");
    put_key(t, self->token->id, as_ids, &names, out);
    strbuf_addf(out, ":");
    serve_text_double(out, (double)serve_tokens_number(self));
  }
  strbuf_addf(out, "}");
  strbuf_close(&names);
}

static void put_ranked(const tokenizer *t, int32_t id, float number, uint64_t rank, bool as_ids, serve_text *out) {
  strbuf_addf(out, "\"%d\":{\"logprob\":", (int)id);
  serve_text_double(out, (double)number);
  strbuf_addf(out, ",\"rank\":%llu,\"decoded_token\":", (unsigned long long)rank);
  serve_tokens_name(t, id, as_ids, out);
  strbuf_addf(out, "}");
}

void serve_tokens_ranked(const tokenizer *t, const serve_token *self, bool as_ids, serve_text *out) {
  strbuf_addf(out, "{");
  for (uint32_t i = 0; i < seen_count(self); i++) {
    if (i) strbuf_addf(out, ",");
    put_ranked(t, self->top[i].id, serve_tokens_top_number(self, i), i + 1ull, as_ids, out);
  }
  if (!is_seen(self)) {
    if (self->shown) strbuf_addf(out, ",");
    put_ranked(t, self->token->id, serve_tokens_number(self), self->token->rank + 1ull, as_ids, out);
  }
  strbuf_addf(out, "}");
}

static void put_entry(const tokenizer *t, int32_t id, float number, bool as_ids, serve_text *out) {
  strbuf_addf(out, "{\"token\":");
  serve_tokens_name(t, id, as_ids, out);
  strbuf_addf(out, ",\"logprob\":");
  serve_text_double(out, (double)number);
  strbuf_addf(out, ",\"bytes\":");
  serve_tokens_bytes(t, id, out);
}

void serve_tokens_entry(const tokenizer *t, const serve_token *self, bool as_ids, serve_text *out) {
  put_entry(t, self->token->id, serve_tokens_number(self), as_ids, out);
  strbuf_addf(out, ",\"top_logprobs\":[");
  for (uint32_t i = 0; i < seen_count(self); i++) {
    if (i) strbuf_addf(out, ",");
    put_entry(t, self->top[i].id, serve_tokens_top_number(self, i), as_ids, out);
    strbuf_addf(out, "}");
  }
  strbuf_addf(out, "]}");
}
