/* eval/import/inspect.h - a log of inspect-ai in JSON to items whose prompts are the messages that were sent.
 *
 * Samples of one user message and one answer are carried over, as a task with `chat`. The rule of judging is inspect-ai's `choice`, or else
 * the whole answer; every recorded answer must get the recorded score. Must not know engines. Read next: judge.h, samples.h. */
#ifndef VERBATIM_EVAL_IMPORT_INSPECT_H
#define VERBATIM_EVAL_IMPORT_INSPECT_H
#include "eval/import/harness.h"
#include "eval/import/import.h"

/* path: of the log. The caller closes *out in any case. ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED, ERR_LIMIT. */
status eval_import_inspect(const eval_import_files *files, eval_import_accept *accept, const char *path, eval_import *out);

#endif
