/* eval/report/text.c - see eval/report/text.h. The only place where foreign bytes reach a page. */
#include "eval/report/text.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"

#define JSON_MOST 4096u

/* Invisible characters, and those that change how their neighbours are shown: direction marks, joiners, fillers, line and paragraph
 * separators, tags, and noncharacters, which XML forbids. */
static bool is_hidden(uint32_t c) {
  static const struct range { uint32_t first, last; } ranges[] = {
    {0x80, 0x9f},     {0xad, 0xad},     {0x34f, 0x34f},   {0x61c, 0x61c},   {0x115f, 0x1160}, {0x17b4, 0x17b5},
    {0x180b, 0x180f}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f}, {0x3164, 0x3164}, {0xfe00, 0xfe0f},
    {0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
  };
  for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
    if (c >= ranges[i].first && c <= ranges[i].last) return true;
  return (c & 0xfffe) == 0xfffe;
}

static void put_point(FILE *to, uint32_t c, const char *at, int size, bool lines) {
  if (c == '&') fputs("&amp;", to);
  else if (c == '<') fputs("&lt;", to);
  else if (c == '>') fputs("&gt;", to);
  else if (c == '"') fputs("&quot;", to);
  else if (c == '\'') fputs("&#39;", to);
  else if (lines && (c == '\n' || c == '\t')) putc((int)c, to);
  else if (c == '\n') fputs("&#8629;", to);
  else if (c < 0x20 || c == 0x7f || is_hidden(c)) fprintf(to, "&lt;U+%04" PRIX32 "&gt;", c);
  else fwrite(at, 1, (size_t)size, to);
}

void eval_report_text_put(FILE *to, const char *text, size_t bytes, size_t most, bool lines) {
  size_t at = 0;
  for (size_t points = 0; at < bytes && points < most; points++) {
    int size = utf8_scan((const uint8_t *)text + at, bytes - at);
    if (size > 0) put_point(to, utf8_code_point((const uint8_t *)text + at, size), text + at, size, lines);
    else fputs("\xef\xbf\xbd", to);
    at += size > 0 ? (size_t)size : size < 0 ? (size_t)-size : bytes - at;
  }
  if (at < bytes) fprintf(to, "&#8230; (%zu bytes more)", bytes - at);
}

void eval_report_text_value(FILE *to, const json_t *value, size_t most) {
  if (!value || json_is_null(value)) {
    fputs("&#8211;", to);
    return;
  }
  if (json_is_string(value)) {
    eval_report_text_put(to, json_string_value(value), json_string_length(value), most, false);
    return;
  }
  char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
  if (text) eval_report_text_put(to, text, strlen(text), most < JSON_MOST ? most : JSON_MOST, false);
  free(text);
}

bool eval_report_text_word(FILE *to, const json_t *text) {
  const char *word = json_string_value(text);
  size_t bytes = json_string_length(text);
  if (!word || bytes == 0 || bytes > JSON_MOST || utf8_valid_bytes((const uint8_t *)word, bytes) != bytes) return false;
  bool plain = word[0] != '-';
  for (size_t i = 0; i < bytes;) {
    int size = utf8_scan((const uint8_t *)word + i, bytes - i);
    uint32_t c = utf8_code_point((const uint8_t *)word + i, size);
    if (c < 0x20 || c == 0x7f || c == '\'' || is_hidden(c)) return false;
    bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    plain = plain && (is_letter || (c < 0x80 && strchr("/._-+,:@%=", (int)c)));
    i += (size_t)size;
  }
  if (!plain) fputs(word[0] == '-' ? "&#39;./" : "&#39;", to);
  eval_report_text_put(to, word, bytes, bytes, false);
  if (!plain) fputs("&#39;", to);
  return true;
}

void eval_report_text_share(FILE *to, double share) {
  if (!isfinite(share)) fputs("&#8211;", to);
  else if (share == 1) fputs("100&#160;%", to);
  else fprintf(to, "%.1f&#160;%%", share > 0.999 && share < 1 ? 99.9 : 100 * share); /* 100 % only if it is all of them */
}

void eval_report_text_number(FILE *to, double value) {
  if (!isfinite(value)) fputs("&#8211;", to);
  else if (fabs(value) >= 10000 || (value != 0 && fabs(value) < 1e-4)) fprintf(to, "%.2e", value);
  else fprintf(to, "%.*f", fabs(value) >= 100 ? 0 : fabs(value) >= 1 ? 2 : 4, value);
}
