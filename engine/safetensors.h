/* safetensors.h - the tensors of a model directory: model.safetensors, or shards listed in model.safetensors.index.json.
 *
 * Files are mapped read-only after their headers have been checked whole: bounded, every offset inside the file, the data area
 * covered without hole or overlap, sizes equal to shape times dtype, no name twice in all files together.
 * Knows nothing of plans. Read next: weights.c. */
#ifndef VERBATIM_SAFETENSORS_H
#define VERBATIM_SAFETENSORS_H
#include "base.h"

#define SAFETENSORS_RANK_MAX 8u
#define SAFETENSORS_FILES_MAX 4096u

typedef struct safetensor {
  const char *name;  /* owned by the set */
  const char *dtype; /* as in the file: "BF16", "F32", ... */
  uint32_t rank;
  uint64_t shape[SAFETENSORS_RANK_MAX];
  const uint8_t *data; /* in the mapping; aligned to 1 byte only */
  uint64_t bytes;
} safetensor;

typedef struct safetensors safetensors; /* a set of files */

/* ERR_IO: a file is missing or unreadable; ERR_FORMAT: damaged; ERR_UNSUPPORTED: a dtype this reader does not know. */
status safetensors_open(safetensors **set, const char *model_dir);

/* One file held in memory by the caller, for tests: the same checks. */
status safetensors_view(safetensors **set, const void *bytes, size_t byte_count);
void safetensors_close(safetensors *set); /* null: nothing */

uint32_t safetensors_count(const safetensors *set);
const safetensor *safetensors_at(const safetensors *set, uint32_t index); /* in the order of names */
const safetensor *safetensors_find(const safetensors *set, const char *name); /* null: none */

#endif
