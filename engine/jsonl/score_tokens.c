/* score_tokens.c - see score_tokens.h. Contexts are encoded once per item, then each continuation together with the context's text. */
#include "jsonl/score_tokens.h"
#include "base/utf8.h"
#include <stdlib.h>
#include <string.h>

/* === White space, as Python's str.isspace =================================================================================== */

static bool is_blank(const uint8_t *p, int length) {
  uint32_t c = utf8_code_point(p, length);
  return utf8_is_space(c) || (c >= 0x1C && c <= 0x1F);
}

/* Bytes of the text without trailing white space. The text is UTF-8; jansson has checked it. */
static size_t without_end(const score_part *text) {
  const uint8_t *bytes = (const uint8_t *)text->text;
  size_t end = text->bytes;
  while (end > 0) {
    size_t start = end - 1;
    while (start > 0 && (bytes[start] & 0xC0) == 0x80) start--;
    if (!is_blank(bytes + start, (int)(end - start))) break;
    end = start;
  }
  return end;
}

uint64_t score_tokens_bytes(const score_part *continuation) {
  const uint8_t *bytes = (const uint8_t *)continuation->text;
  size_t at = 0;
  while (at < continuation->bytes) {
    int length = utf8_scan(bytes + at, continuation->bytes - at);
    if (length < 1 || !is_blank(bytes + at, length)) return continuation->bytes - at;
    at += (size_t)length;
  }
  return continuation->bytes;
}

uint64_t score_tokens_norm(const score_part *continuation) {
  uint64_t bytes = score_tokens_bytes(continuation), count = 0;
  const char *at = continuation->text + continuation->bytes - bytes;
  if (!continuation->by_characters) return bytes;
  for (uint64_t i = 0; i < bytes; i++) count += ((uint8_t)at[i] & 0xc0) != 0x80;
  return count;
}

uint64_t score_tokens_words(const score_part *text) {
  const uint8_t *bytes = (const uint8_t *)text->text;
  uint64_t words = 1;
  bool in_blanks = false;
  for (size_t at = 0; at < text->bytes;) {
    int length = utf8_scan(bytes + at, text->bytes - at);
    bool blank = length >= 1 && is_blank(bytes + at, length);
    words += blank && !in_blanks;
    in_blanks = blank;
    at += length >= 1 ? (size_t)length : 1;
  }
  return words;
}

/* === Lists ================================================================================================================== */

void score_tokens_close(score_tokens *list) {
  free(list->ids);
  *list = (score_tokens){0};
}

static status no_memory(void) { return FAIL(ERR_LIMIT, "items: no memory"); }

/* Allocates room for the text's ids and the prefix ids. */
static status take(score_tokens *list, uint64_t room) {
  if (room > INT32_MAX) return FAIL(ERR_LIMIT, "items: more than %d token ids", INT32_MAX);
  list->ids = malloc(room * sizeof *list->ids);
  return list->ids ? OK : no_memory();
}

/* -1: the tokenizer has neither. */
static int32_t prefix_token(const tokenizer *t) { return tokenizer_bos(t) >= 0 ? tokenizer_bos(t) : tokenizer_eos(t); }

static status put_prefix(const tokenizer *t, const score_item *item, score_tokens *list) {
  if (prefix_token(t) < 0)
    return FAIL(ERR_UNSUPPORTED, "line %u: the first token needs one before it, and the tokenizer names neither a BOS nor an EOS token, "
                "hint: give token ids", item->line);
  list->ids[list->count++] = prefix_token(t);
  return OK;
}

/* Appends ids of a text; list->ids has room. */
static status encode(const tokenizer *t, const char *text, size_t bytes, size_t room, score_tokens *list) {
  size_t count = 0;
  TRY(tokenizer_encode(t, text, bytes, false, true, list->ids + list->count, room - list->count, &count));
  list->count += (uint32_t)count;
  return OK;
}

static status check_scored(const score_item *item, uint32_t part, const score_tokens *list) {
  if (list->count > list->from) return OK;
  if (item->parts[part].text && item->parts[part].bytes > 0)
    return FAIL(ERR_FORMAT, "line %u: continuation %u adds no token to the context; hint: let the context end before a word",
                item->line, part);
  return FAIL(ERR_FORMAT, "line %u: continuation %u is empty; expected at least one token", item->line, part);
}

static status pair_of_ids(const score_item *item, uint32_t part, score_tokens *list) {
  const score_part *a = &item->context, *b = &item->parts[part];
  if (a->id_count == 0) return FAIL(ERR_FORMAT, "line %u: \"context_ids\" is empty; expected at least one token id", item->line);
  TRY(take(list, (uint64_t)a->id_count + b->id_count + 1));
  memcpy(list->ids, a->ids, a->id_count * sizeof *a->ids);
  memcpy(list->ids + a->id_count, b->ids, b->id_count * sizeof *b->ids);
  list->from = a->id_count;
  list->count = a->id_count + b->id_count;
  return check_scored(item, part, list);
}

/* Encodes the context without trailing white space, after the prefix ids: context->from of them. */
static status encode_context(const tokenizer *t, bool bos, const score_item *item, score_tokens *context) {
  const int32_t *lead;
  size_t lead_count = tokenizer_lead(t, &lead), bytes = without_end(&item->context), room = bytes + lead_count + 1;
  TRY(take(context, room));
  TRY(encode(t, item->context.text, bytes, room, context));
  if (!bos || item->context.bytes == 0 || (context->count > 0 && context->ids[0] == prefix_token(t))) return OK;
  memmove(context->ids + lead_count, context->ids, context->count * sizeof *context->ids);
  memcpy(context->ids, lead, lead_count * sizeof *lead);
  context->from = (uint32_t)lead_count;
  context->count += context->from;
  return OK;
}

/* context: ids [0 .. from) are the prefix ids, the rest the text's. */
static status pair_of_texts(const tokenizer *t, const score_item *item, uint32_t part, const score_tokens *context, score_tokens *list) {
  const score_part *a = &item->context, *b = &item->parts[part];
  uint32_t skipped = context->count - context->from;
  size_t bytes = a->bytes + b->bytes, room = bytes + 1;
  if (b->bytes == 0) return check_scored(item, part, list);
  char *joined = malloc(bytes);
  score_tokens whole = {0};
  status result = joined ? take(&whole, room) : no_memory();
  if (result == OK) {
    memcpy(joined, a->text, a->bytes);
    memcpy(joined + a->bytes, b->text, b->bytes);
    result = encode(t, joined, bytes, room, &whole);
  }
  uint32_t added = whole.count > skipped ? whole.count - skipped : 0;
  if (result == OK) result = take(list, (uint64_t)context->count + added + 1);
  if (result == OK) {
    memcpy(list->ids, context->ids, context->count * sizeof *list->ids);
    list->count = context->count;
    if (list->count == 0 && !(added > 0 && whole.ids[0] == prefix_token(t))) result = put_prefix(t, item, list);
    list->from = max_u32(list->count, 1);
    memcpy(list->ids + list->count, whole.ids + skipped, added * sizeof *list->ids);
    list->count += added;
  }
  free(joined);
  score_tokens_close(&whole);
  TRY(result);
  return check_scored(item, part, list);
}

status score_tokens_pairs(const tokenizer *t, bool bos, const score_item *item, score_tokens *lists) {
  score_tokens context = {0};
  status result = item->context.text ? encode_context(t, bos, item, &context) : OK;
  for (uint32_t i = 0; result == OK && i < item->part_count; i++)
    result = item->context.text ? pair_of_texts(t, item, i, &context, &lists[i]) : pair_of_ids(item, i, &lists[i]);
  score_tokens_close(&context);
  return result;
}

status score_tokens_whole(const tokenizer *t, const score_item *item, score_tokens *list) {
  const score_part *part = &item->parts[0];
  uint64_t room = (part->text ? part->bytes : part->id_count) + 2ull;
  TRY(take(list, room));
  list->from = 1;
  if (part->text) {
    TRY(put_prefix(t, item, list));
    TRY(encode(t, part->text, part->bytes, room, list));
  } else {
    memcpy(list->ids, part->ids, part->id_count * sizeof *part->ids);
    list->count = part->id_count;
  }
  if (list->count >= 2) return OK;
  return part->text ? FAIL(ERR_FORMAT, "line %u: \"text\" is empty; expected at least one token", item->line)
                    : FAIL(ERR_FORMAT, "line %u: \"ids\": expected at least two token ids, found %u", item->line, list->count);
}

/* === Windows ================================================================================================================ */

uint32_t score_tokens_window_count(uint32_t count, uint32_t max_len) { return (uint32_t)div_up(count - 1, max_len - 1); }

score_window score_tokens_window(uint32_t count, uint32_t max_len, uint32_t index) {
  uint32_t most = max_len - 1, scored = count - 1, begin = index * most; /* counted from the second token */
  uint32_t end = min_u32(begin + most, scored), first = end > most ? end - most : 0;
  return (score_window){.first = first, .count = end + 1 - first, .from = begin + 1 - first};
}
