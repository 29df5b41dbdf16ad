/* fuzz_tiktoken.c - lines of a tiktoken.model, a NUL, and tokenizer_config.json; without a NUL a plain one is used. After a '+' the lines
 * follow those of the 256 bytes, which no mutation would find. A tokenizer that opens keeps the promises of fuzz_tokens.h. */
#include "fuzz_tokens.h"

#define BYTE_LINES_BYTES (256u * 9u)

static const char CONFIG[] = "{\"tokenizer_class\":\"TikTokenTokenizer\",\"added_tokens_decoder\":{}}";

static size_t put_byte_lines(char *out) {
  static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  size_t used = 0;
  for (unsigned b = 0; b < 256; b++) used += (size_t)sprintf(out + used, "%c%c== %u\n", DIGITS[b >> 2], DIGITS[b << 4 & 63], b);
  return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  const char *lines = (const char *)data, *end = memchr(data, 0, bytes);
  size_t line_bytes = end ? (size_t)(end - lines) : bytes, used = 0;
  const char *config = end ? end + 1 : CONFIG;
  size_t config_bytes = end ? bytes - line_bytes - 1 : sizeof CONFIG - 1;
  char *model = malloc(BYTE_LINES_BYTES + line_bytes + 1);
  tokenizer *t = NULL;
  ASSERT(model != NULL);
  if (line_bytes && *lines == '+') used = put_byte_lines(model), lines++, line_bytes--;
  memcpy(model + used, lines, line_bytes);
  fail_clear();
  if (fuzz_is_ok(tokenizer_open_tiktoken(&t, model, used + line_bytes, config, config_bytes))) fuzz_tokens_check(t, false);
  else ASSERT(t == NULL);
  tokenizer_close(t);
  free(model);
  return 0;
}
