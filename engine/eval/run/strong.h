/* eval/run/strong.h - "sha256" of a manifest: the SHA-256 of every file that a run reads and leaves, beside the digests of XXH3-128.
 *
 * What identifies files towards people, each the number that sha256sum prints. No manifest_digest covers it; a signature of manifest.json
 * does. EVALUATION.md, "Manifest", is normative. Read next: eval/manifest.h. */
#ifndef VERBATIM_EVAL_STRONG_H
#define VERBATIM_EVAL_STRONG_H
#include <jansson.h>
#include "base/base.h"
#include "eval/manifest.h"
#include "verbatim.h"

/* Of a run that begins: the plan, config.json, the weights, the tasks' files; null for what the run's files will have. ERR_LIMIT. */
status eval_strong_begin(const verbatim_info *info, const eval_manifest_task *tasks, uint32_t count, json_t **out);

/* Of results that were scored again: that of the manifest, with these tasks. NULL if the manifest has none. ERR_LIMIT. */
status eval_strong_rescored(const json_t *manifest, const eval_manifest_task *tasks, uint32_t count, json_t **out);

/* Sets what the run has left: the file of results, <folder>/receipt, and the receipts of `others` other plans. ERR_IO, ERR_LIMIT. */
status eval_strong_end(json_t *self, const char *folder, const char *results, uint32_t others);

/* The same for results in memory. */
status eval_strong_results(json_t *self, const void *bytes, size_t count);

/* Compares results.jsonl, the receipt and the receipts of other plans in the folder with what the manifest states, if it does.
 * may_lack: files may be absent. checked, NULL or a count: those compared are added. ERR_MISMATCH names the file and both; ERR_IO. */
status eval_strong_check(const json_t *manifest, const char *folder, bool may_lack, uint32_t *checked);

/* The first difference between what two manifests state of inputs and results; receipts differ between machines, in their second line, and
 * what one of them does not state is left out. False: there is none. */
bool eval_strong_difference(const json_t *a, const json_t *b, char text[EVAL_MANIFEST_DIFFERENCE_BYTES]);

#endif
