/* plan.h - the read-only view of a plan file: opened, checked once, then trusted.
 *
 * plan_view proves of any bytes that everything the engine follows stays inside them: spans, strings, indices, offsets into
 * regions, argument sizes, pointer fields. It does not prove that ops compute something sensible; the digest guards against
 * accidents, and verbatim_open also runs the planner's own checker. Read next: plan/format.h, exec.h. */
#ifndef VERBATIM_PLAN_H
#define VERBATIM_PLAN_H
#include "base/base.h"
#include "plan/format.h"

typedef struct plan {
  const plan_header *header;
  const plan_region *regions; /* [REGION_COUNT] */
  const plan_tensor *tensors;
  const plan_buffer *buffers;
  const plan_spec *specs;
  const plan_kernel *kernels;
  const plan_op *ops;
  const plan_fixup *fixups;
  const plan_gemm *gemms;
  const plan_guarantee *guarantees;
  const uint32_t *ladder;
  const uint8_t *args;
  const char *strings;
  const uint32_t *notes;
  uint32_t tensor_count, buffer_count, spec_count, kernel_count, op_count, fixup_count, gemm_count, guarantee_count,
      ladder_count, note_count;
  uint32_t main_op_count; /* ops from this one on, which is an `accept`, are the draft section; op_count: there is none */
  void *memory; /* the file's bytes, owned after plan_open; null for a view of the caller's bytes */
} plan;

/* Checks bytes (8-byte aligned, kept by the caller as long as the view) and fills *view. ERR_FORMAT says what is wrong;
 * ERR_UNSUPPORTED for another format version, ERR_LIMIT for tables larger than any model's. */
status plan_view(const void *bytes, size_t byte_count, plan *view);

/* Reads the file into memory and views it. Close with plan_close. */
status plan_open(plan *view, const char *path);
void plan_close(plan *view);

/* A string of the plan; reference must come from the plan. */
static inline const char *plan_string(const plan *view, uint32_t reference) { return view->strings + reference; }

/* It has the op `token_mask`, so that its steps may have token masks. */
bool plan_has_masks(const plan *view);

/* Blocks of one grid dimension for `rows` launch rows. */
uint64_t plan_extent(const plan_dim *dim, uint32_t rows);

/* Bytes a tensor of the plan takes in REGION_WEIGHTS. */
uint64_t plan_tensor_bytes(const plan_tensor *tensor);
static inline uint32_t plan_dtype_bytes(uint32_t dtype) { return dtype == DTYPE_F32 ? 4 : dtype == DTYPE_E4M3 ? 1 : 2; }

/* Number of an op's leading argument fields that are pointers (abi.h keeps them first), and the size of its arguments. */
uint32_t plan_pointer_count(uint32_t kernel);
uint32_t plan_args_bytes(uint32_t kernel);

/* Bit i is set if pointer i of the op's arguments is not null. op: from a checked plan. */
uint64_t plan_present(const plan *view, const plan_op *op);

#endif
