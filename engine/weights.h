/* weights.h - from the tensors of a model directory to REGION_WEIGHTS, as the plan's tensor table says, and their digest.
 *
 * The digest depends on what the plan uses and on nothing else (not on shards or on tensors it ignores): XXH3-128 over, for every
 * source tensor in plan order, without repeats, {name, NUL, dtype, NUL, rank u32, shape u64 each, XXH3-128 of the data}.
 * Start-up only. Read next: safetensors.h, plan_format.h (plan_tensor). */
#ifndef VERBATIM_WEIGHTS_H
#define VERBATIM_WEIGHTS_H
#include "base.h"
#include "digest.h"
#include "gpu.h"
#include "limits.h"
#include "plan.h"
#include "safetensors.h"

typedef struct weights_target { /* where REGION_WEIGHTS is */
  uint64_t address;             /* host address on the CPU machine, device address otherwise          */
  gpu *device;                  /* null: the CPU machine; the rest is unused then                     */
  gpu_stream *stream;
  gpu_event *event[2];          /* one per staging half                                               */
  uint8_t *staging;             /* pinned; the halves are filled and uploaded in turn                 */
  uint64_t staging_half_bytes;
} weights_target;

typedef struct weights_report {
  digest digest;
  uint32_t source_count;  /* tensors of the files that the plan uses   */
  uint32_t unused_count;  /* tensors of the files that it does not use */
  uint64_t source_bytes;
  char unused_first[NAME_BYTES_MAX]; /* a name, for the note */
} weights_report;

/* Called now and then with bytes written so far; null: never. */
typedef void weights_progress(void *context, uint64_t done_bytes, uint64_t total_bytes);

/* ERR_FORMAT: tensors are missing (named) or have another dtype or shape than the plan expects. On return the uploads are done. */
status weights_load(const plan *p, const safetensors *set, const weights_target *target, weights_progress *progress, void *context,
                    weights_report *report);

#endif
