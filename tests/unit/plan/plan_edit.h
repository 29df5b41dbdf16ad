/* plan_edit.h - the tables of a plan in memory, for tests that damage them and run the verifier. Finds entries by name or fails. The test
 * frees file.bytes. */
#ifndef VERBATIM_PLAN_EDIT_H
#define VERBATIM_PLAN_EDIT_H
#include "tests/unit/planner/planner_fixture.h"

typedef struct editable { /* a plan's tables, to be damaged */
  fixture_bytes file;
  plan_header *h;
  plan_region *regions;
  plan_tensor *tensors;
  plan_buffer *buffers;
  plan_spec *specs;
  plan_kernel *kernels;
  plan_op *ops;
  plan_fixup *fixups;
} editable;

static inline editable edit_plan(const char *config, const char *deploy) {
  editable e = {.file = fixture_plan(config, deploy, NULL)};
  char *bytes = e.file.bytes;
  e.h = (void *)bytes;
  e.regions = (void *)(bytes + e.h->regions.offset);
  e.tensors = (void *)(bytes + e.h->tensors.offset);
  e.buffers = (void *)(bytes + e.h->buffers.offset);
  e.specs = (void *)(bytes + e.h->specs.offset);
  e.kernels = (void *)(bytes + e.h->kernels.offset);
  e.ops = (void *)(bytes + e.h->ops.offset);
  e.fixups = (void *)(bytes + e.h->fixups.offset);
  return e;
}

static inline const char *text(const editable *e, uint32_t string) { return e->file.bytes + e->h->strings.offset + string; }

/* The nth op of that name. */
static inline plan_op *find_nth(const editable *e, const char *name, uint32_t nth) {
  for (uint32_t i = 0; i < e->h->ops.count; i++)
    if (strcmp(text(e, e->ops[i].name), name) == 0 && nth-- == 0) return &e->ops[i];
  fail_msg("no op %s", name);
  return NULL;
}
static inline plan_op *find_op(const editable *e, const char *name) { return find_nth(e, name, 0); }

static inline plan_buffer *find_buffer(const editable *e, const char *name) {
  for (uint32_t i = 0; i < e->h->buffers.count; i++)
    if (strcmp(text(e, e->buffers[i].name), name) == 0) return &e->buffers[i];
  fail_msg("no buffer %s", name);
  return NULL;
}

/* A constant of the op's kernel. */
static inline plan_spec *find_spec(const editable *e, const plan_op *op, const char *name) {
  const plan_kernel *k = &e->kernels[op->variant];
  for (uint32_t i = 0; i < k->spec_count; i++)
    if (strcmp(text(e, e->specs[k->first_spec + i].name), name) == 0) return &e->specs[k->first_spec + i];
  fail_msg("no constant %s", name);
  return NULL;
}

static inline plan_fixup *find_fixup(const editable *e, const plan_op *op, size_t field) {
  for (uint32_t i = 0; i < op->fixup_count; i++)
    if (e->fixups[op->first_fixup + i].args_offset == field) return &e->fixups[op->first_fixup + i];
  fail_msg("no pointer at %zu", field);
  return NULL;
}

static inline void *args_of(const editable *e, const plan_op *op) { return e->file.bytes + e->h->args.offset + op->args_offset; }

#endif
