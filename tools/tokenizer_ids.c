/* tokenizer_ids.c - text in, token ids out, for tools/tokenizer_compare.py.
 *
 *   tokenizer_ids --text CASE                                     writes the text of a case of tests/unit/text/tokenizer_text.h
 *   tokenizer_ids MODEL_DIR [around] [plain] [time | many] < text > ids   writes int32 ids, little-endian
 *       around   with the ids that the model puts around a text      plain   special tokens in the text are text
 *       time     on stderr, in seconds of processor time: the first encoding, and the best of five more
 *       many     each text stands behind its length, an int32, and so do its ids behind their number: one start for many short texts
 * Knows nothing of the library that it is compared with. Read next: engine/text/tokenizer.h. */
#include "tests/unit/text/tokenizer_text.h"
#include "engine/text/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool has_word(int count, char **words, const char *word) {
  for (int i = 0; i < count; i++)
    if (strcmp(words[i], word) == 0) return true;
  return false;
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int write_text(const char *name, char *text) {
  size_t bytes = tokenizer_text_make(name, text);
  if (bytes == 0) {
    fprintf(stderr, "tokenizer_ids: expected a case (points-0..4, mix-SEED, edge-SEED), found \"%s\"\n", name);
    return 1;
  }
  return fwrite(text, 1, bytes, stdout) == bytes ? 0 : 1;
}

static status write_many(tokenizer *t, int argc, char **argv, char *text, int32_t *ids, size_t ids_max) {
  for (uint32_t bytes; fread(&bytes, sizeof bytes, 1, stdin) == 1;) {
    size_t count = 0;
    if (bytes > TOKENIZER_TEXT_BYTES_MAX || fread(text, 1, bytes, stdin) != bytes) return FAIL(ERR_FORMAT, "stdin: a text ends early");
    TRY(tokenizer_encode(t, text, bytes, has_word(argc, argv, "around"), !has_word(argc, argv, "plain"), ids, ids_max, &count));
    if (fwrite(&(uint32_t){(uint32_t)count}, 4, 1, stdout) != 1 || fwrite(ids, sizeof *ids, count, stdout) != count)
      return FAIL(ERR_IO, "stdout: cannot write %zu ids", count);
  }
  return OK;
}

static status write_ids(int argc, char **argv, char *text, int32_t *ids, size_t ids_max) {
  tokenizer *t = NULL;
  TRY(tokenizer_open(&t, argv[1]));
  if (has_word(argc, argv, "many")) {
    const status result = write_many(t, argc, argv, text, ids, ids_max);
    tokenizer_close(t);
    return result;
  }
  size_t bytes = fread(text, 1, TOKENIZER_TEXT_BYTES_MAX, stdin), count = 0;
  bool is_timed = has_word(argc, argv, "time");
  double first_s = 0, best_s = 1e9;
  status s = OK;
  for (int i = 0; s == OK && i < (is_timed ? 6 : 1); i++) {
    double start_s = now_s();
    s = tokenizer_encode(t, text, bytes, has_word(argc, argv, "around"), !has_word(argc, argv, "plain"), ids, ids_max, &count);
    double used_s = now_s() - start_s;
    if (i == 0) first_s = used_s;
    else if (used_s < best_s) best_s = used_s;
  }
  if (s == OK && is_timed) fprintf(stderr, "%.6f %.6f\n", first_s, best_s);
  if (s == OK && fwrite(ids, sizeof *ids, count, stdout) != count) s = FAIL(ERR_IO, "stdout: cannot write %zu ids", count);
  tokenizer_close(t);
  return s;
}

int main(int argc, char **argv) {
  size_t ids_max = TOKENIZER_TEXT_BYTES_MAX + 8;
  char *text = malloc(TOKENIZER_TEXT_BYTES_MAX);
  int32_t *ids = malloc(ids_max * sizeof *ids);
  int result = 1;
  if (argc < 2 || text == NULL || ids == NULL) {
    fprintf(stderr, "usage: tokenizer_ids --text CASE | tokenizer_ids MODEL_DIR [around] [plain] [time | many] < text > ids\n");
  } else if (argc == 3 && strcmp(argv[1], "--text") == 0) {
    result = write_text(argv[2], text);
  } else {
    result = fail_exit_code(write_ids(argc, argv, text, ids, ids_max));
    if (result != 0) fprintf(stderr, "tokenizer_ids: %s\n", fail_text());
  }
  free(text);
  free(ids);
  return result;
}
