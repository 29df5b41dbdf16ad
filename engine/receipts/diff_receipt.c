/* diff_receipt.c - see diff_receipt.h. Lines with equal bytes are equal requests; all others are compared field by field. */
#include "receipts/diff_receipt.h"
#include "base/digest.h"
#include <stdlib.h>
#include <string.h>

static status list_requests(receipt_read *file, diff_requests *out) {
  for (uint32_t i = 0; i < file->count; i++) {
    receipt_record record = {0};
    TRY(receipt_read_get(file, i, &record));
    status result = diff_requests_add(out, record.id, digest_of(record.line, record.line_bytes));
    receipt_read_drop(&record);
    TRY(result);
  }
  return OK;
}

static status compare_pair(diff_receipt *self, receipt_read files[2], uint32_t index) {
  diff_request *r = &self->requests[0].list[index];
  receipt_record records[2] = {{0}, {0}};
  bool same_model = self->same_numerics && self->same_weights && self->same_tokenizer;
  receipt_difference found;
  status result = receipt_read_get(&files[0], index, &records[0]);
  if (result == OK) result = receipt_read_get(&files[1], r->match, &records[1]);
  if (result == OK) {
    r->differs = receipt_compare(&records[0].request, &records[1].request, same_model, &found);
    self->requests[1].list[r->match].differs = r->differs;
    if (r->differs && !self->has_first) self->has_first = true, self->first_request = index, self->first = found;
  }
  for (int i = 0; i < 2; i++) receipt_read_drop(&records[i]);
  return result;
}

static status compare_heads(diff_receipt *self, const receipt_read files[2]) {
  for (int i = 0; i < 2; i++) {
    const char *device = files[i].machine.device ? files[i].machine.device : "";
    self->head[i] = files[i].head;
    self->complete[i] = files[i].complete;
    if (!(self->device[i] = malloc(strlen(device) + 1))) return FAIL(ERR_LIMIT, "diff: no memory");
    strcpy(self->device[i], device);
  }
  const receipt_head *a = &self->head[0], *b = &self->head[1];
  self->same_numerics = memcmp(a->numerics_id, b->numerics_id, DIGEST_BYTES) == 0;
  self->same_config = memcmp(a->config_digest, b->config_digest, DIGEST_BYTES) == 0;
  self->same_weights = memcmp(a->weights_digest, b->weights_digest, DIGEST_BYTES) == 0;
  self->same_tokenizer = a->has_tokenizer == b->has_tokenizer && memcmp(a->tokenizer_digest, b->tokenizer_digest, DIGEST_BYTES) == 0;
  self->differs = !self->same_numerics || !self->same_config || !self->same_weights || !self->same_tokenizer ||
                  self->complete[0] != self->complete[1];
  return OK;
}

static status compare(diff_receipt *self, receipt_read files[2], const char *const paths[2]) {
  for (int i = 0; i < 2; i++) TRY(receipt_read_open(&files[i], paths[i]));
  TRY(compare_heads(self, files));
  for (int i = 0; i < 2; i++) TRY(list_requests(&files[i], &self->requests[i]));
  TRY(diff_requests_match(&self->requests[0], &self->requests[1]));
  for (uint32_t i = 0; i < self->requests[0].count; i++)
    if (self->requests[0].list[i].differs) TRY(compare_pair(self, files, i));
  for (int i = 0; i < 2; i++) self->differs |= diff_requests_differ(&self->requests[i]) || diff_requests_alone(&self->requests[i]);
  return OK;
}

status diff_receipt_compare(diff_receipt *self, const char *path_a, const char *path_b) {
  receipt_read files[2] = {{0}, {0}};
  const char *const paths[2] = {path_a, path_b};
  *self = (diff_receipt){0};
  status result = compare(self, files, paths);
  for (int i = 0; i < 2; i++) receipt_read_close(&files[i]);
  return result;
}

void diff_receipt_close(diff_receipt *self) {
  for (int i = 0; i < 2; i++) {
    diff_requests_close(&self->requests[i]);
    free(self->device[i]);
  }
  *self = (diff_receipt){0};
}
