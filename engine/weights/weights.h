/* weights.h - loads the tensors of a model directory into REGION_WEIGHTS, as the plan's tensor table states, and digests them.
 *
 * The digest depends only on the tensors that the plan uses, and not on shards, ignored tensors or the nesting of the model in another. It
 * is the XXH3-128 over every source tensor in plan order, scales after the tensor that they scale, without repeats, of {the plan's name of
 * it, NUL, dtype, NUL, rank u32, shape u64 each, XXH3-128 of the data}. Tensors of a prediction layer are loaded and not digested.
 * The SHA-256 of the weights, if it is asked for, is that of a text with a line for each of these tensors (weights_line), by
 * name.
 * Start-up only. Read next: match.h, read.h, gpu/staging.h, plan/format.h (plan_tensor). */
#ifndef VERBATIM_WEIGHTS_H
#define VERBATIM_WEIGHTS_H
#include "base/base.h"
#include "base/digest.h"
#include "base/sha256.h"
#include "base/limits.h"
#include "plan/plan.h"
#include "weights/safetensors.h"
#include "gpu/staging.h"

#define WEIGHTS_THREADS_MAX 32u

typedef struct weights_target { /* location of REGION_WEIGHTS                                 */
  uint32_t ranks;               /* as many as the plan has                                    */
  uint64_t address[RANKS_MAX];  /* of each rank's device, or of the host on the CPU           */
  uint32_t threads;             /* reading threads, 0: one per core; never changes the result */
  bool sha256;                  /* also take the SHA-256 of the weights                       */
  staging_room room;            /* its device null: CPU backend, the rest is unused           */
} weights_target;

typedef struct weights_report {
  digest digest;
  sha256 sha256;             /* zeros if it was not asked for                      */
  uint32_t source_count;     /* tensors of the files that the plan uses               */
  uint64_t source_bytes;
  uint32_t threads;          /* that read                                          */
  const char *naming;        /* of a nested model: the way its tensors are named; or null */
  uint32_t unused_count;     /* tensors of the files that the plan does not use: the sum of */
  uint32_t unused_rotary;    /*   inverse frequencies, which are in the plan       */
  uint32_t unused_scales;    /*   scales of a KV cache that the plan does not have */
  uint32_t unused_layers;    /*   tensors of prediction layers after the last      */
  uint32_t unused_other;     /*   all others, of a vision part for instance        */
  char unused_first[NAME_BYTES_MAX]; /* one of their names, preferably of an "other" tensor */
} weights_report;

/* Called by the calling thread from time to time with the bytes written so far, and at the end with all; null: never. */
typedef void weights_progress(void *context, uint64_t done_bytes, uint64_t total_bytes);

/* A tensor that the plan expects in fp32 may be bf16 in the files: it is converted, and digested as it is in the file. The scale of a
 * layer's KV rows may have other names in the files.
 * ERR_FORMAT: tensors are missing (the message names them), or have another dtype or shape than the plan expects, or the files name tensors
 * in two ways. ERR_IO: a file cannot be read. On return the uploads are done and all threads have ended. */
status weights_load(const plan *p, const safetensors *set, const weights_target *target, weights_progress *progress, void *context,
                    weights_report *report);

/* Called for every source tensor, in the order in which the digest takes them. name: the plan's; data, strong: the digest of the tensor's
 * bytes and their SHA-256, zeros if it was not asked for. */
typedef void weights_visit(void *context, const char *name, const safetensor *tensor, const digest *data, const sha256 *strong);

/* Computes the digest without loading: the same tensors are matched and read, nothing is written. visit is called at the end, by the
 * calling thread. Errors are those of weights_load. */
status weights_digest(const plan *p, const safetensors *set, uint32_t threads, bool strong, weights_progress *progress,
                      weights_visit *visit, void *context, weights_report *report);

/* Writes the beginning of a tensor's line in the text whose SHA-256 is that of the weights: "<64 digits>  <dtype> [<dimension>]... ", of
 * which the last is left out for a single number. Its name and a line feed follow. */
#define WEIGHTS_LINE_BYTES (SHA256_TEXT_BYTES + SAFETENSORS_RANK_MAX * 24u + 32u)
const char *weights_line(const safetensor *tensor, const sha256 *strong, char line[WEIGHTS_LINE_BYTES]);

/* A note for the user, one line without a newline; "" if the plan uses all tensors, under their plain names. */
void weights_note(const weights_report *report, char *text, size_t text_bytes);

#endif
