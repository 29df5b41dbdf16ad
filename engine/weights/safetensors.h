/* safetensors.h - the tensors of a model directory: model.safetensors, or shards listed in model.safetensors.index.json; and the scales of
 * an fp8 KV cache, in a separate file.
 *
 * Files are mapped read-only after their headers have been checked whole: bounded, every offset inside the file, the data area
 * covered without hole or overlap, sizes equal to shape times dtype, no name twice in all files together.
 * Experts that a file keeps in one tensor are listed one by one. Knows nothing of plans. Read next: weights.c. */
#ifndef VERBATIM_SAFETENSORS_H
#define VERBATIM_SAFETENSORS_H
#include "base/base.h"

#define SAFETENSORS_RANK_MAX 8u
#define SAFETENSORS_FILES_MAX 4096u
#define SAFETENSORS_DATA_DIGEST "verbatim_data" /* key of __metadata__: the digest of the bytes after the header, checked if it is there */
#define SAFETENSORS_KV_SCALES "kv_scales.safetensors" /* read with the model's files if it stands next to them */

typedef struct safetensor {
  const char *name;  /* owned by the set */
  const char *dtype; /* as in the file: "BF16", "F32", ... */
  uint32_t rank;
  uint64_t shape[SAFETENSORS_RANK_MAX];
  const uint8_t *data; /* in the mapping; aligned to 1 byte only */
  uint64_t bytes;
  uint32_t file;     /* number of the file in the set */
} safetensor;

typedef struct safetensors safetensors; /* a set of files */

/* ERR_IO: a file is missing or unreadable; ERR_FORMAT: damaged; ERR_UNSUPPORTED: a dtype this reader does not know. */
status safetensors_open(safetensors **set, const char *model_dir);

/* The same for one file in the caller's memory, for tests; the same checks. */
status safetensors_view(safetensors **set, const void *bytes, size_t byte_count);
void safetensors_close(safetensors *set); /* null: nothing */

uint32_t safetensors_count(const safetensors *set);
const safetensor *safetensors_at(const safetensors *set, uint32_t index); /* in order of names */
const safetensor *safetensors_find(const safetensors *set, const char *name); /* null: none    */

/* Copies bytes of a tensor's data, offset + bytes at most tensor->bytes. Reads the file, not the mapping, which avoids page faults; if the
 * file has been truncated since it was opened, that is an error instead of a signal. May be called by any thread. ERR_IO. */
status safetensors_read(const safetensors *set, const safetensor *tensor, uint64_t offset, void *out, size_t bytes);

#endif
