/* eval/manifest.h - the manifest of an evaluation: everything needed to repeat it, its outcome, and a digest over both.
 *
 * EVALUATION.md, "Manifest", is normative. A manifest that is read is hostile input: it is bounded, every key has its form, and digests
 * match texts. Knows no files and no engine: the caller passes the content. Read next: eval/task.h, eval/metric.h. */
#ifndef VERBATIM_EVAL_MANIFEST_H
#define VERBATIM_EVAL_MANIFEST_H
#include <jansson.h>
#include "base/base.h"
#include "base/digest.h"
#include "eval/task.h"

#define EVAL_MANIFEST_VERSION 2
#define EVAL_MANIFEST_BYTES_MAX (1u << 30)
#define EVAL_MANIFEST_EMBED_BYTES_MAX (8u << 20) /* a larger file of items is recorded only by its digest */
#define EVAL_MANIFEST_TASKS_MAX 4096u
#define EVAL_MANIFEST_DIFFERENCE_BYTES 512u

typedef struct eval_manifest_file { /* name NULL: none. text NULL: not embedded */
  const char *name, *text;
  size_t bytes;
  digest digest;
} eval_manifest_file;

typedef struct eval_manifest_task {
  const eval_task *task;
  eval_manifest_file file, items, shots;
  uint32_t count; /* of items */
} eval_manifest_task;

typedef struct eval_manifest_model { /* the digests have [DIGEST_BYTES] each */
  const uint8_t *numerics_id, *config_digest, *weights_digest, *tokenizer_digest;
  const char *chat_name, *chat_digest; /* of the chat template, as text; NULL: no task uses chat */
  uint32_t max_len;   /* recorded for tasks that skip or cut what is longer */
  bool without_text;  /* files of items are recorded by their digest only */
} eval_manifest_model;

/* Builds "setup". perturbed: a list of {"numerics_id", "config_digest"}; its owner keeps it. */
status eval_manifest_setup(const eval_manifest_model *model, const eval_manifest_task *tasks, uint32_t count, json_t *perturbed,
                           json_t **out);

/* Builds the "setup" of results that were scored again: that of the manifest with these tasks in place of its own, as many, without other
 * numerics, and with the digests of the manifest and of the results that were scored. */
status eval_manifest_rescored(const json_t *manifest, const eval_manifest_task *tasks, uint32_t count, json_t **out);

/* Builds the whole manifest; its parts keep their owners. outcome NULL: the run has not ended. */
status eval_manifest_make(json_t *setup, json_t *outcome, json_t *run, json_t **out);

/* Parses and checks a manifest, including the digest if the run has ended. ERR_FORMAT; ERR_UNSUPPORTED: another version; ERR_MISMATCH: the
 * digest. */
status eval_manifest_parse(const char *text, size_t bytes, json_t **out);

/* Accessors of a parsed manifest. Texts live as long as it does. */
uint32_t eval_manifest_task_count(const json_t *manifest);
eval_manifest_file eval_manifest_file_of(const json_t *manifest, uint32_t task, const char *which); /* "file", "items", "shots" */

/* Describes the first difference between two values, as "tasks[0].items.digest: A, B"; keys in the order of a. False: they are equal. */
bool eval_manifest_difference(const json_t *a, const json_t *b, char text[EVAL_MANIFEST_DIFFERENCE_BYTES]);

#endif
