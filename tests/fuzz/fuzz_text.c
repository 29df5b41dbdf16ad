/* fuzz_text.c - a text for the committed tokenizers, one of tokenizer.json and one of tiktoken.model (fuzz_tokens.h has the promises). For
 * a text that is not UTF-8 the ids are derived from its bytes, so that decoding also gets odd sequences. */
#include "fuzz_tokens.h"

static void check_ids(const tokenizer *t, const uint8_t *data, size_t bytes) {
  static int32_t ids[FUZZ_TOKENS_TEXT_MAX];
  static char out[FUZZ_TOKENS_TEXT_MAX];
  for (size_t i = 0; i < bytes; i++) ids[i] = data[i] % 2 ? data[i] : (int32_t)(data[i] * 37u % tokenizer_vocab_size(t));
  (void)fuzz_tokens_decode(t, ids, bytes, out, sizeof out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static tokenizer *json, *tiktoken; /* opened once; the fuzzer never ends */
  if (bytes > FUZZ_TOKENS_TEXT_MAX) return 0;
  if (!json) ASSERT(tokenizer_open(&json, "tests/tiny") == OK);
  if (!tiktoken) ASSERT(tokenizer_open(&tiktoken, "tests/data/tokenizer/kimi") == OK);
  fuzz_tokens_check_text(json, (const char *)data, bytes, false);
  fuzz_tokens_check_text(tiktoken, (const char *)data, bytes, false);
  check_ids(json, data, bytes);
  check_ids(tiktoken, data, bytes);
  return 0;
}
