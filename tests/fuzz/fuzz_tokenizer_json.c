/* fuzz_tokenizer_json.c - tokenizer.json, a NUL, and tokenizer_config.json; without a NUL there is none. A tokenizer that opens keeps the
 * promises of fuzz_tokens.h, and opens again to the same digest. */
#include "engine/text/tokenizer_json.h"
#include "fuzz_tokens.h"

static bool has_strips(const char *json, size_t json_bytes, const char *config, size_t config_bytes) {
  tokenizer_data data = {0};
  bool strips;
  const tokenizer_text texts[TOKENIZER_FILE_COUNT] = {[TOKENIZER_JSON] = {json, json_bytes}, [TOKENIZER_CONFIG] = {config, config_bytes}};
  ASSERT(tokenizer_json_parse(&data, texts) == OK);
  strips = data.normalizes || data.is_spaced; /* these change a text, too */
  for (uint32_t i = 0; i < data.added_count; i++) strips = strips || data.added[i].strips_left || data.added[i].strips_right;
  tokenizer_json_free(&data);
  return strips;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  const char *json = (const char *)data, *end = memchr(data, 0, bytes);
  const char *config = end ? end + 1 : NULL;
  size_t json_bytes = end ? (size_t)(end - json) : bytes, config_bytes = end ? bytes - json_bytes - 1 : 0;
  tokenizer *t = NULL, *again = NULL;
  fail_clear();
  if (!fuzz_is_ok(tokenizer_open_memory(&t, json, json_bytes, config, config_bytes))) {
    ASSERT(t == NULL);
    return 0;
  }
  fuzz_tokens_check(t, has_strips(json, json_bytes, config, config_bytes));
  ASSERT(tokenizer_open_memory(&again, json, json_bytes, config, config_bytes) == OK);
  digest first = tokenizer_digest(t), second = tokenizer_digest(again);
  ASSERT(memcmp(&first, &second, sizeof first) == 0);
  tokenizer_close(again);
  tokenizer_close(t);
  return 0;
}
