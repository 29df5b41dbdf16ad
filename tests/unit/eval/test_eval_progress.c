/* test_eval_progress.c - what an interrupted evaluation keeps: exactly the items whose bytes are those that were written. Files of random
 * lines, then 2,000 flipped bits and 2,000 cuts in any of the three files. */
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "engine/eval/run/progress.h"

enum { ITEMS = 24, FILES = 3, PROGRESS = 0, RESULTS = 1, RECEIPT = 2, TRIES = 2000, ROOM = 1 << 14 };

static char paths[FILES][64];
static char bytes[FILES][ROOM];         /* the sound files */
static size_t counts[FILES], ends[FILES][ITEMS + 1]; /* ends: after that many items */

static void write_file(int which, const char *content, size_t count) {
  int file = open(paths[which], O_WRONLY | O_CREAT, 0600); /* in place: some file systems flush a file that is made empty first */
  assert_true(file >= 0 && pwrite(file, content, count, 0) == (ssize_t)count && ftruncate(file, (off_t)count) == 0);
  close(file);
}

static void add(int which, const char *text) {
  size_t count = strlen(text);
  assert_true(counts[which] + count < ROOM);
  memcpy(bytes[which] + counts[which], text, count);
  counts[which] += count;
}

/* A receipt begins before its first item. The progress is read back from the file that was written. */
static int make_files(void **state) {
  (void)state;
  static const char *const names[] = {"progress", "results", "receipt"};
  uint64_t seed = 11;
  eval_progress progress;
  digest_state receipt;
  for (int i = 0; i < FILES; i++) snprintf(paths[i], sizeof paths[i], "/tmp/verbatim-%s-%ld", names[i], (long)getpid());
  FILE *file = fopen(paths[PROGRESS], "wb");
  assert_non_null(file);
  eval_progress_start(&progress);
  digest_start(&receipt);
  add(RECEIPT, "{\"head\":1}\n{\"machine\":{}}\n");
  digest_add(&receipt, bytes[RECEIPT], counts[RECEIPT]);
  for (int i = 0; i < ITEMS; i++) {
    char line[160];
    size_t before = counts[RECEIPT];
    for (uint64_t k = random_next(&seed) % 3 + 1; k > 0; k--) {
      snprintf(line, sizeof line, "{\"id\":\"%d\",\"tokens\":[%llu]}\n", i, (unsigned long long)random_next(&seed));
      add(RECEIPT, line);
    }
    digest_add(&receipt, bytes[RECEIPT] + before, counts[RECEIPT] - before);
    snprintf(line, sizeof line, "{\"id\":\"%d\",\"logprob\":-0.%llu}\n", i, (unsigned long long)random_next(&seed));
    add(RESULTS, line);
    assert_int_equal(eval_progress_add(&progress, file, paths[PROGRESS], line, strlen(line), &receipt, counts[RECEIPT]), OK);
    ends[PROGRESS][i + 1] = (size_t)progress.own_bytes;
    for (int k = RESULTS; k <= RECEIPT; k++) ends[k][i + 1] = counts[k];
  }
  fclose(file);
  file = fopen(paths[PROGRESS], "rb");
  assert_non_null(file);
  counts[PROGRESS] = fread(bytes[PROGRESS], 1, ROOM, file);
  fclose(file);
  assert_int_equal(counts[PROGRESS], ends[PROGRESS][ITEMS]);
  return 0;
}

static int drop_files(void **state) {
  (void)state;
  for (int i = 0; i < FILES; i++) unlink(paths[i]);
  return 0;
}

static void restore(void) {
  for (int i = 0; i < FILES; i++) write_file(i, bytes[i], counts[i]);
}

/* Reads and checks that what is kept is whole items with sound bytes: `changed` is the first byte that differs in that file. */
static eval_progress read_with(int which, size_t changed) {
  eval_progress found;
  assert_int_equal(eval_progress_read(&found, paths[PROGRESS], paths[RESULTS], paths[RECEIPT]), OK);
  assert_true(found.items <= ITEMS);
  if (found.items == 0) return found;
  assert_int_equal(found.own_bytes, ends[PROGRESS][found.items]);
  assert_int_equal(found.results_bytes, ends[RESULTS][found.items]);
  assert_int_equal(found.receipt_bytes, ends[RECEIPT][found.items]);
  assert_true(ends[which][found.items] <= changed);
  assert_true(found.items == ITEMS || ends[which][found.items + 1] > changed); /* nothing sound is dropped */
  return found;
}

static void sound_files_are_kept(void **state) {
  (void)state;
  restore();
  assert_int_equal(read_with(RESULTS, SIZE_MAX).items, ITEMS);
  unlink(paths[PROGRESS]);
  eval_progress found;
  assert_int_equal(eval_progress_read(&found, paths[PROGRESS], paths[RESULTS], paths[RECEIPT]), OK);
  assert_true(found.items == 0 && !found.is_damaged);
}

static void a_flipped_bit_is_seen(void **state) {
  (void)state;
  uint64_t seed = 20261127;
  for (int i = 0; i < TRIES; i++) {
    int which = (int)(random_next(&seed) % FILES);
    size_t at = (size_t)(random_next(&seed) % counts[which]);
    char damaged[ROOM];
    restore();
    memcpy(damaged, bytes[which], counts[which]);
    damaged[at] = (char)(damaged[at] ^ 1 << random_next(&seed) % 8);
    write_file(which, damaged, counts[which]);
    const eval_progress found = read_with(which, at);
    assert_true(found.items < ITEMS);
    assert_true(found.is_damaged || (which == PROGRESS && at == counts[PROGRESS] - 1)); /* a last line without its end */
  }
}

static void a_cut_is_seen(void **state) {
  (void)state;
  uint64_t seed = 7;
  for (int i = 0; i < TRIES; i++) {
    int which = (int)(random_next(&seed) % FILES);
    size_t at = (size_t)(random_next(&seed) % counts[which]);
    restore();
    write_file(which, bytes[which], at);
    assert_true(read_with(which, at).items < ITEMS);
  }
}

/* What follows the items of a run that was interrupted inside an item is not taken over. */
static void more_bytes_are_left_out(void **state) {
  (void)state;
  restore();
  for (int i = 0; i < FILES; i++) {
    FILE *file = fopen(paths[i], "ab");
    assert_non_null(file);
    assert_true(fputs("{\"id\":\"x\"", file) >= 0 && fclose(file) == 0);
  }
  const eval_progress found = read_with(RESULTS, SIZE_MAX);
  assert_true(found.items == ITEMS && !found.is_damaged);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sound_files_are_kept), cmocka_unit_test(a_flipped_bit_is_seen),
                                     cmocka_unit_test(a_cut_is_seen), cmocka_unit_test(more_bytes_are_left_out)};
  return cmocka_run_group_tests(tests, make_files, drop_files);
}
