/* fuzz.h - shared by the fuzz targets: libFuzzer's entry points, files, and the rules for every error.
 *
 * A target treats an accepted input as the program does, and asserts what must be true then. Paths are relative to the root of the
 * repository. Includes libc and base.h only; README.md says how targets are run. */
#ifndef VERBATIM_FUZZ_H
#define VERBATIM_FUZZ_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/base/base.h"

/* libFuzzer calls these. data is a block of its own, so that AddressSanitizer notices a read after its end. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t room); /* libFuzzer's own mutations */
const char *__lsan_default_suppressions(void);

typedef struct fuzz_text {
  char *text;
  size_t bytes;
} fuzz_text;

/* The file's content, which is never freed. */
static inline fuzz_text fuzz_read(const char *path) {
  FILE *file = fopen(path, "rb");
  fuzz_text read = {.text = malloc(1u << 20)};
  if (!file) fprintf(stderr, "%s cannot be opened; hint: run from the root of the repository\n", path);
  ASSERT(file != NULL && read.text != NULL);
  read.bytes = fread(read.text, 1, 1u << 20, file);
  fclose(file);
  return read;
}

/* An error has a message, in text that a terminal may show, and an exit code of its own. Returns whether the result is OK. */
static inline bool fuzz_is_ok(status result) {
  if (result == OK) return true;
  ASSERT(fail_text()[0] != 0);
  for (const char *c = fail_text(); *c; c++) ASSERT(((unsigned char)*c >= 0x20 || *c == '\n') && *c != 0x7f);
  ASSERT(fail_exit_code(result) >= 2 && fail_exit_code(result) <= 8);
  return false;
}

#endif
