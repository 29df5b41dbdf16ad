/* eval/import/prompts.h - a harness task and its data to items whose prompts are those that the harness sends.
 *
 * Owns the order of description, examples and question. The data come from the user's files, or from those that dataset_kwargs names. Must
 * not know engines. Read next: shots.h, fields.h, judge.h. */
#ifndef VERBATIM_EVAL_IMPORT_PROMPTS_H
#define VERBATIM_EVAL_IMPORT_PROMPTS_H
#include "eval/import/harness.h"
#include "eval/import/import.h"

typedef struct eval_import_options {
  const char *data, *shots;   /* paths of records: of the task, of examples; NULL: as the task says */
  int64_t shot_count;         /* in place of num_fewshot; -1: as the task says */
  uint32_t seed;              /* of the examples; the harness's default is 1234 */
} eval_import_options;

/* path: of the YAML. The caller closes *out in any case. ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED, ERR_LIMIT. */
status eval_import_prompts(const eval_import_files *files, eval_import_accept *accept, const char *path, const eval_import_options *options,
                           eval_import *out);

#endif
