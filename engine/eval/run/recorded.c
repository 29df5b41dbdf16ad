/* eval/run/recorded.c - see eval/run/recorded.h. */
#include "eval/run/recorded.h"
#include "receipts/guess.h"
#include <stdlib.h>

status eval_recorded_open(eval_recorded *self, const char *path) {
  if (!path) return OK;
  if (receipt_read_open(&self->receipt, path) != OK) {
    receipt_read_close(&self->receipt);
    fail_clear();
    return OK;
  }
  self->records = calloc(self->receipt.count + 1u, sizeof *self->records);
  return self->records ? OK : FAIL(ERR_LIMIT, "receipt: no memory");
}

static uint32_t on_draft(verbatim_request *request, int32_t *ids, uint32_t most) {
  const receipt_record *record = request->context;
  return receipt_guess(&record->request, request, ids, most);
}

void eval_recorded_guide(eval_recorded *self, verbatim_request *request) {
  const uint32_t number = self->taken++;
  if (!self->records || number >= self->receipt.count || request->max_tokens == 0) return;
  if (receipt_read_get(&self->receipt, number, &self->records[number]) != OK) {
    fail_clear();
    return;
  }
  request->context = &self->records[number];
  request->on_draft = on_draft;
}

void eval_recorded_drop(eval_recorded *self, uint32_t count) {
  for (uint32_t i = 0; i < count; i++, self->dropped++)
    if (self->records && self->dropped < self->receipt.count) receipt_read_drop(&self->records[self->dropped]);
}

void eval_recorded_close(eval_recorded *self) {
  if (self->records) eval_recorded_drop(self, self->receipt.count - min_u32(self->dropped, self->receipt.count));
  free(self->records);
  receipt_read_close(&self->receipt);
  *self = (eval_recorded){0};
}
