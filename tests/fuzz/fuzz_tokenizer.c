/* fuzz_tokenizer.c - hostile tokenizer files, split patterns and texts. The first byte of the input chooses what the rest is:
 *   0 mod 3   a tokenizer.json: read, and opened when it is accepted
 *   1 mod 3   a split pattern, NUL, a text to split with it
 *   2 mod 3   a text for the committed tokenizer: what is encoded must decode to it, or to U+FFFD where it is not UTF-8
 * but for 0xFE: lines of a tiktoken.model behind those of the 256 bytes, NUL, a tokenizer_config.json; and 0xFF: as 0xFE without the lines
 * of the bytes.
 * With clang -fsanitize=fuzzer it is a fuzzer; with -DCORPUS_RUNNER a program that runs the files it is given. */
#include "detokenizer.h"
#include "pretokenize.h"
#include "tests/unit/tokenizer_fixture.h"
#include "tokenizer.h"
#include "utf8.h"

#define TEXT_MAX 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_json(const char *json, size_t bytes) {
  tokenizer *t = NULL;
  int32_t ids[64];
  size_t count = 0;
  if (tokenizer_open_memory(&t, json, bytes, NULL, 0) == OK)
    ASSERT(tokenizer_encode(t, "ab1 <s>", 7, true, true, ids, ARRAY_LEN(ids), &count) == OK);
  tokenizer_close(t);
}

/* Every byte's token; at least 256 * 9 bytes. Returns the bytes written. */
static size_t put_byte_lines(char *out) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  size_t used = 0;
  for (unsigned b = 0; b < 256; b++)
    used += (size_t)sprintf(out + used, "%c%c== %u\n", digits[b >> 2], digits[b << 4 & 63], b);
  return used;
}

static void fuzz_tiktoken(const char *input, size_t bytes, bool has_bytes) {
  const char *end = memchr(input, 0, bytes);
  size_t line_bytes = end == NULL ? bytes : (size_t)(end - input), used = 0, count = 0;
  char *model = malloc(4096 + line_bytes);
  tokenizer *t = NULL;
  int32_t ids[64];
  ASSERT(model != NULL);
  if (has_bytes) used = put_byte_lines(model);
  memcpy(model + used, input, line_bytes);
  const char *config = end == NULL ? "{\"tokenizer_class\":\"TikTokenTokenizer\",\"added_tokens_decoder\":{}}" : end + 1;
  size_t config_bytes = end == NULL ? strlen(config) : bytes - line_bytes - 1;
  if (tokenizer_open_tiktoken(&t, model, used + line_bytes, config, config_bytes) == OK)
    ASSERT(tokenizer_encode(t, "ab1 [BOS]", 9, true, true, ids, ARRAY_LEN(ids), &count) == OK);
  tokenizer_close(t);
  free(model);
}

typedef struct cover {
  const char *next;
} cover;

static status check_piece(void *context, const char *piece, size_t bytes) {
  cover *c = context;
  ASSERT(piece == c->next);
  ASSERT(bytes > 0);
  c->next = piece + bytes;
  return OK;
}

static void fuzz_pattern(const char *input, size_t bytes) {
  const char *end = memchr(input, 0, bytes);
  size_t pattern_bytes = end == NULL ? bytes : (size_t)(end - input);
  pretokenize_split split = {PRETOKENIZE_PATTERN, input, pattern_bytes};
  pretokenizer *p = NULL;
  if (end == NULL || utf8_valid_bytes((const uint8_t *)input, bytes) != bytes || bytes > TEXT_MAX) return;
  if (pretokenize_open(&p, &split, 1, true) != OK) return;
  size_t text_bytes = bytes - pattern_bytes - 1;
  cover c = {end + 1};
  status s = pretokenize_run(p, end + 1, text_bytes, check_piece, &c);
  ASSERT(s == ERR_LIMIT || c.next == input + bytes);
  pretokenize_close(p);
}

static bool contains(const char *text, size_t bytes, const char *word) {
  size_t size = strlen(word);
  for (size_t i = 0; i + size <= bytes; i++)
    if (memcmp(text + i, word, size) == 0) return true;
  return false;
}

static void fuzz_text(const char *text, size_t bytes) {
  static tokenizer *t; /* opened once; the fuzzer never ends */
  static int32_t ids[TEXT_MAX + 8];
  static char back[3 * TEXT_MAX];
  size_t count = 0, used = 0, added = 0;
  detokenizer d = {0};
  if (bytes > TEXT_MAX) return;
  if (t == NULL) ASSERT(tokenizer_open(&t, FIXTURE_DIR) == OK);
  size_t valid = utf8_valid_bytes((const uint8_t *)text, bytes);
  status s = tokenizer_encode(t, text, bytes, false, false, ids, ARRAY_LEN(ids), &count);
  ASSERT((s == OK) == (valid == bytes));
  for (size_t i = 0; s != OK && i < bytes; i++) ids[count++] = 0; /* ids of any kind must decode */
  for (size_t i = 0; i < count; i++, used += added)
    if (detokenizer_push(t, &d, ids[i], back + used, sizeof back - used, &added) != OK) return;
  ASSERT(utf8_valid_bytes((const uint8_t *)back, used) == used);
  bool strips = contains(back, used, "<mask>") || contains(back, used, "<|left|>"); /* they drop white space beside them */
  if (s == OK && !strips) {
    ASSERT(used == bytes);
    ASSERT(bytes == 0 || memcmp(back, text, bytes) == 0);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  char *rest = malloc(size); /* a block of its own, so that a read beyond it is seen */
  ASSERT(rest != NULL);
  memcpy(rest, data + 1, size - 1);
  fail_clear();
  if (data[0] >= 0xFE) fuzz_tiktoken(rest, size - 1, data[0] == 0xFE);
  else if (data[0] % 3 == 0) fuzz_json(rest, size - 1);
  else if (data[0] % 3 == 1) fuzz_pattern(rest, size - 1);
  else fuzz_text(rest, size - 1);
  free(rest);
  return 0;
}

#ifdef CORPUS_RUNNER
int main(int argc, char **argv) {
  static uint8_t data[1u << 20];
  for (int i = 1; i < argc; i++) {
    FILE *file = fopen(argv[i], "rb");
    if (file == NULL) return 1;
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
  }
  printf("%d inputs\n", argc - 1);
  return 0;
}
#endif
