/* draft.h - a plan under construction: growable tables, with buffers named by index instead of address.
 *
 * Owns the tables' memory. The graph adds tensors, buffers and ops; the specialiser adds kernels; the placer sets offsets; emit.c turns the
 * result into bytes. Knows nothing of models. Out of memory ends the process, because the planner is a program that runs once. Read next:
 * graph.h. */
#ifndef VERBATIM_DRAFT_H
#define VERBATIM_DRAFT_H
#include "engine/base/base.h"
#include "engine/plan/format.h"

enum draft_kernel_index { /* the numbers of kernels.def, which are stored in plans */
#define KERNEL(stem) OP_##stem,
#include "kernels_src/kernels.def"
#undef KERNEL
  OP_COUNT
};
#define DRAFT_NONE UINT32_MAX

typedef struct draft_list { /* count items of item_bytes */
  void *items;
  uint32_t count, capacity, item_bytes, pad;
} draft_list;

typedef struct draft_ref { /* what a pointer of an op's arguments points to: a byte of a buffer; buffer DRAFT_NONE: NULL */
  uint64_t offset;
  uint32_t buffer;
  uint32_t args_offset; /* of the pointer inside the argument struct */
  uint32_t rank_step;   /* bytes by which it lies further on each next rank; see plan_fixup */
  uint32_t pad;
} draft_ref;

typedef struct draft {
  plan_model model;
  plan_quant quant;
  plan_grouped grouped;
  plan_limits limits;
  plan_io io;              /* filled by emit from the io buffers */
  uint32_t io_buffer[30];  /* buffer of each plan_io field, in its order, or DRAFT_NONE */
  uint32_t gemm_workspace; /* buffer, or DRAFT_NONE */
  bool has_masks;          /* structured-outputs: the op token_mask stands before sample */
  uint32_t divided_rows;   /* steps of at least so many token rows divide them among ranks; 0: none */
  uint8_t config_digest[16];
  draft_list tensors, buffers, specs, kernels, ops, gemms, guarantees, ladder, notes; /* structs of the plan format */
  draft_list args, strings; /* bytes */
  draft_list refs;          /* draft_ref: the plan's fixups before placement, with the same indices */
  plan_region regions[REGION_COUNT]; /* set by place */
  uint64_t device_bytes;
} draft;

void draft_init(draft *self);
void draft_deinit(draft *self); /* may be zeroed */

/* Appends count zeroed items and returns the first; valid until the next call for the same list. */
void *draft_append(draft_list *list, uint32_t count);

/* Adds a string (printf form, at most NAME_BYTES_MAX - 1 bytes) and returns its reference. */
uint32_t draft_string(draft *self, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint32_t draft_text(draft *self, const char *text); /* any length */
const char *draft_string_at(const draft *self, uint32_t string);

/* Adds a note for the plan's reader: what was ignored or assumed. */
void draft_note(draft *self, const char *text);

/* A new buffer that is always alive until draft_use narrows its lifetime. */
uint32_t draft_buffer(draft *self, uint32_t region, uint64_t bytes, uint32_t name);
plan_buffer *draft_buffer_at(draft *self, uint32_t buffer);

#endif
