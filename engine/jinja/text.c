/* jinja/text.c - see jinja/text.h. */
#define _GNU_SOURCE /* memmem, which is linear */
#include "jinja/text.h"
#include <string.h>
#include "base/utf8.h"

size_t jinja_text_step(jinja_text text, size_t at) {
  int step = utf8_scan((const uint8_t *)text.bytes + at, text.count - at);
  return step > 0 ? (size_t)step : 1;
}

static uint32_t code_at(jinja_text text, size_t at) {
  return utf8_code_point((const uint8_t *)text.bytes + at, (int)jinja_text_step(text, at));
}

static size_t step_back(jinja_text text, size_t end) {
  size_t step = 1;
  while (step < end && step < 4 && ((uint8_t)text.bytes[end - step] & 0xC0) == 0x80) step++;
  return step;
}

size_t jinja_text_length(jinja_text text) {
  size_t length = 0;
  for (size_t i = 0; i < text.count; i++) length += ((uint8_t)text.bytes[i] & 0xC0) != 0x80;
  return length;
}

size_t jinja_text_offset(jinja_text text, size_t code_point) {
  size_t at = 0;
  while (code_point > 0 && at < text.count) {
    at += jinja_text_step(text, at);
    code_point--;
  }
  return at;
}

/* str.isspace has four separators that White_Space lacks. */
static bool is_space(uint32_t code) { return utf8_is_space(code) || (code >= 0x1c && code <= 0x1f); }

static bool is_stripped(uint32_t code, const jinja_text *set) {
  if (!set) return is_space(code);
  for (size_t at = 0; at < set->count; at += jinja_text_step(*set, at))
    if (code_at(*set, at) == code) return true;
  return false;
}

jinja_text jinja_text_strip(jinja_text text, const jinja_text *set, bool start, bool end) {
  while (end && text.count > 0) {
    size_t step = step_back(text, text.count);
    if (!is_stripped(code_at(text, text.count - step), set)) break;
    text.count -= step;
  }
  while (start && text.count > 0) {
    size_t step = jinja_text_step(text, 0);
    if (!is_stripped(code_at(text, 0), set)) break;
    text.bytes += step;
    text.count -= step;
  }
  return text;
}

/* === Finding ================================================================================================= */

ptrdiff_t jinja_text_find(jinja_text text, jinja_text piece, size_t from) {
  if (from > text.count) return -1;
  if (piece.count == 0) return (ptrdiff_t)from;
  const char *found = memmem(text.bytes + from, text.count - from, piece.bytes, piece.count);
  return found ? found - text.bytes : -1;
}

ptrdiff_t jinja_text_find_last(jinja_text text, jinja_text piece) {
  ptrdiff_t last = -1;
  if (piece.count == 0) return (ptrdiff_t)text.count;
  for (ptrdiff_t at = 0; (at = jinja_text_find(text, piece, (size_t)at)) >= 0; at++) last = at;
  return last;
}

bool jinja_text_starts(jinja_text text, jinja_text piece) {
  return text.count >= piece.count && (piece.count == 0 || memcmp(text.bytes, piece.bytes, piece.count) == 0);
}

bool jinja_text_ends(jinja_text text, jinja_text piece) {
  return text.count >= piece.count &&
         (piece.count == 0 || memcmp(text.bytes + text.count - piece.count, piece.bytes, piece.count) == 0);
}

/* === Splitting =============================================================================================== */

/* The next separator at or after `from`; *bytes: its size. Runs of white space are one separator. -1: none. */
static ptrdiff_t next_separator(jinja_text text, const jinja_text *separator, size_t from, size_t *bytes) {
  if (separator) {
    *bytes = separator->count;
    return jinja_text_find(text, *separator, from);
  }
  for (size_t at = from; at < text.count; at += jinja_text_step(text, at)) {
    if (!is_space(code_at(text, at))) continue;
    jinja_text rest = {text.bytes + at, text.count - at};
    *bytes = rest.count - jinja_text_strip(rest, NULL, true, false).count;
    return (ptrdiff_t)at;
  }
  return -1;
}

static size_t count_separators(jinja_text text, const jinja_text *separator) {
  size_t found = 0, bytes = 0, from = 0;
  for (ptrdiff_t at; (at = next_separator(text, separator, from, &bytes)) >= 0; found++) from = (size_t)at + bytes;
  return found;
}

/* A split from the end is one from the start whose first separators do not count. Overlapping separators ("aa" in "aaa") would differ, so
 * that is refused. */
static status check_from_end(jinja_text text, jinja_text separator, size_t skipped) {
  if (skipped == 0) return OK;
  for (size_t shift = 1; shift < separator.count; shift++)
    if (memcmp(separator.bytes, separator.bytes + shift, separator.count - shift) == 0 && text.count)
      return FAIL(ERR_UNSUPPORTED, "chat template: rsplit with a limit and a separator that can overlap itself is not implemented");
  return OK;
}

status jinja_text_split(jinja_memory *memory, jinja_text text, const jinja_text *separator, int64_t most, bool from_end, jinja_value *out) {
  if (separator && separator->count == 0) return FAIL(ERR_FORMAT, "chat template: empty separator");
  TRY(jinja_memory_step(memory, text.count));
  bool is_limited = most >= 0;
  if (!separator) text = jinja_text_strip(text, NULL, true, !is_limited);
  if (!separator && from_end && is_limited)
    return FAIL(ERR_UNSUPPORTED, "chat template: rsplit by white space with a limit is not implemented");
  size_t found = count_separators(text, separator), splits = is_limited && (uint64_t)most < found ? (size_t)most : found;
  size_t skipped = from_end ? found - splits : 0, from = 0, start = 0, bytes = 0;
  if (from_end) TRY(check_from_end(text, *separator, skipped));
  if (!separator && text.count == 0) return jinja_value_list(memory, JINJA_LIST, 0, out);
  TRY(jinja_value_list(memory, JINJA_LIST, splits + 1, out));
  for (size_t i = 0, made = 0; i < skipped + splits; i++) {
    ptrdiff_t at = next_separator(text, separator, from, &bytes);
    from = (size_t)at + bytes;
    if (i < skipped) continue;
    out->list->items[made++] = jinja_value_text(text.bytes + start, (size_t)at - start);
    start = from;
  }
  if (!separator && start == text.count) { /* white space at the end, after the last split */
    out->list->count = splits;
    return OK;
  }
  out->list->items[splits] = jinja_value_text(text.bytes + start, text.count - start);
  return OK;
}

/* The size of the line end at `at`, as str.splitlines knows them; 0: none. */
static size_t line_end(jinja_text text, size_t at) {
  uint32_t code = code_at(text, at);
  if (code == '\r') return at + 1 < text.count && text.bytes[at + 1] == '\n' ? 2 : 1;
  bool is_end = (code >= 0x0a && code <= 0x0c) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 || code == 0x2029;
  return is_end ? jinja_text_step(text, at) : 0;
}

status jinja_text_lines(jinja_memory *memory, jinja_text text, bool keeps_ends, jinja_value *out) {
  size_t count = 0, start = 0, end_bytes = 0;
  TRY(jinja_memory_step(memory, text.count));
  for (size_t at = 0; at < text.count; at += end_bytes ? end_bytes : jinja_text_step(text, at)) {
    end_bytes = line_end(text, at);
    count += end_bytes > 0;
  }
  TRY(jinja_value_list(memory, JINJA_LIST, count + 1, out));
  out->list->count = 0;
  for (size_t at = 0; at < text.count;) {
    end_bytes = line_end(text, at);
    size_t next = at + (end_bytes ? end_bytes : jinja_text_step(text, at));
    if (end_bytes || next == text.count) {
      size_t end = end_bytes && !keeps_ends ? at : next;
      out->list->items[out->list->count++] = jinja_value_text(text.bytes + start, end - start);
      start = next;
    }
    at = next;
  }
  return OK;
}

/* === Changing ================================================================================================ */

/* An empty `old` stands before every code point and at the end. */
static status replace_nothing(jinja_text text, jinja_text new, int64_t most, strbuf *made) {
  for (size_t at = 0; at <= text.count && made->count <= JINJA_TEXT_BYTES_MAX;) {
    if (most != 0) strbuf_add(made, new.bytes, new.count);
    if (most > 0) most--;
    size_t step = at < text.count ? jinja_text_step(text, at) : 1;
    if (at < text.count) strbuf_add(made, text.bytes + at, step);
    at += step;
  }
  return OK;
}

status jinja_text_replace(jinja_memory *memory, jinja_text text, jinja_text old, jinja_text new, int64_t most, jinja_value *out) {
  strbuf made = {0};
  size_t from = 0;
  TRY(jinja_memory_step(memory, text.count));
  *out = jinja_value_text(text.bytes, text.count);
  if (most == 0 || (old.count && jinja_text_find(text, old, 0) < 0)) return OK;
  if (old.count == 0) TRY(replace_nothing(text, new, most, &made));
  for (; old.count && most != 0 && made.count <= JINJA_TEXT_BYTES_MAX; most -= most > 0) {
    ptrdiff_t at = jinja_text_find(text, old, from);
    if (at < 0) break;
    strbuf_add(&made, text.bytes + from, (size_t)at - from);
    strbuf_add(&made, new.bytes, new.count);
    from = (size_t)at + old.count;
  }
  if (old.count) strbuf_add(&made, text.bytes + from, text.count - from);
  return jinja_value_take(memory, &made, out);
}

static char to_upper(char c) { return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c; }
static char to_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* Whether a letter after `before` begins a word: for str.title after what is no letter, for the filter after white space and -({[<. */
static bool begins_word(jinja_case to, char before) {
  bool is_letter = to_upper(before) >= 'A' && to_upper(before) <= 'Z';
  if (to == JINJA_TITLE) return !is_letter;
  return is_space((uint8_t)before) || (before && strchr("-({[<", before));
}

status jinja_text_change(jinja_memory *memory, jinja_text text, jinja_case to, jinja_value *out) {
  char *copy = NULL;
  for (size_t i = 0; i < text.count; i++)
    if ((uint8_t)text.bytes[i] >= 0x80)
      return FAIL(ERR_UNSUPPORTED, "chat template: changing the case of a text that is not ASCII is not implemented");
  TRY(jinja_value_copy_text(memory, text.bytes, text.count, out));
  memcpy(&copy, &out->text.bytes, sizeof copy); /* the copy is ours to change */
  for (size_t i = 0; i < text.count; i++) {
    bool has_words = to == JINJA_TITLE || to == JINJA_WORDS;
    bool is_upper = to == JINJA_UPPER || (to != JINJA_LOWER && i == 0) || (has_words && i > 0 && begins_word(to, copy[i - 1]));
    copy[i] = is_upper ? to_upper(copy[i]) : to_lower(copy[i]);
  }
  return OK;
}
