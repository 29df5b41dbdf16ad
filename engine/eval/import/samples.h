/* eval/import/samples.h - a log of samples of lm-evaluation-harness (--log_samples) to items with the prompts that were sent.
 *
 * The log has prompts, right answers and results, but not the rules by which answers were judged: they come from the task's YAML, or are
 * the
 * plainest ones. Either way every recorded answer is judged by the new task and must get the recorded score. Must not know engines. Read
 * next: judge.h. */
#ifndef VERBATIM_EVAL_IMPORT_SAMPLES_H
#define VERBATIM_EVAL_IMPORT_SAMPLES_H
#include "eval/import/harness.h"
#include "eval/import/import.h"

/* path: of the log. task: of the YAML, or NULL. The caller closes *out in any case. ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED, ERR_LIMIT;
 * ERR_MISMATCH: a recorded score is another one than the new task gives. */
status eval_import_samples(const eval_import_files *files, eval_import_accept *accept, const char *path, const char *task,
                           eval_import *out);

#endif
