/* receipts/resume.c - see receipts/resume.h. The digest of the kept lines is computed again from the file. */
#include "receipts/resume.h"
#include "receipts/read.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

static status check_head(const receipt_read *old, const char *path, const receipt_source *source) {
  const receipt_head *head = &old->head;
  const verbatim_info *info = source->info;
  bool same = memcmp(head->numerics_id, info->numerics_id, DIGEST_BYTES) == 0 &&
              memcmp(head->config_digest, info->config_digest, DIGEST_BYTES) == 0 &&
              memcmp(head->weights_digest, info->weights_digest, DIGEST_BYTES) == 0 &&
              head->has_tokenizer == (source->tokenizer_digest != NULL);
  if (same && head->has_tokenizer) same = memcmp(head->tokenizer_digest, source->tokenizer_digest, DIGEST_BYTES) == 0;
  return same ? OK : FAIL(ERR_MISMATCH, "receipt %s: it is of another model, tokenizer or numerics", path);
}

/* Sums the digests of the first `count` lines. *end: offset just after the last of them. */
static status sum_up(receipt_read *old, uint32_t count, receipt_sum *sum, uint64_t *end) {
  for (uint32_t i = 0; i < count; i++) {
    receipt_record record;
    TRY(receipt_read_get(old, i, &record));
    digest line = digest_of(record.line, record.line_bytes);
    *end = old->places[i].offset + record.line_bytes;
    receipt_sum_add(sum, &line);
    receipt_read_drop(&record);
  }
  return OK;
}

/* The digest of the file's first `end` bytes. */
static status digest_bytes(const char *path, uint64_t end, digest_state *state) {
  char bytes[1 << 14];
  FILE *file = fopen(path, "rb");
  if (!file) return FAIL(ERR_IO, "receipt %s: cannot be opened: %s", path, strerror(errno));
  digest_start(state);
  for (size_t count; end && (count = fread(bytes, 1, (size_t)min_u64(end, sizeof bytes), file)) > 0; end -= count)
    digest_add(state, bytes, count);
  fclose(file);
  return end == 0 ? OK : FAIL(ERR_IO, "receipt %s: cannot be read again", path);
}

status receipt_resume(receipt *self, const char *path, const receipt_source *source, uint32_t count) {
  receipt_read old = {0};
  receipt resumed;
  uint64_t end = 0;
  if (count == 0) return receipt_begin(self, path, source);
  TRY(receipt_begin(&resumed, NULL, source));
  status result = receipt_read_open(&old, path);
  if (result == OK) result = check_head(&old, path, source);
  if (result == OK && old.count < count) result = FAIL(ERR_FORMAT, "receipt %s: %u requests, expected %u", path, old.count, count);
  if (result == OK) result = sum_up(&old, count, &resumed.sum, &end);
  receipt_read_close(&old);
  if (result == OK) result = digest_bytes(path, end, &resumed.written);
  TRY(result);
  resumed.bytes = end;
  resumed.path = path;
  resumed.file = fopen(path, "r+b");
  if (resumed.file && ftruncate(fileno(resumed.file), (off_t)end) == 0 && fseeko(resumed.file, 0, SEEK_END) == 0) {
    *self = resumed;
    return OK;
  }
  result = FAIL(ERR_IO, "receipt %s: cannot be resumed: %s", path, strerror(errno));
  if (resumed.file) fclose(resumed.file);
  return result;
}
