/* eval/import/judge.h - metrics, filters and generation arguments of a harness task as keys of a task file.
 *
 * Owns which of them have the same meaning here. Must not know records or prompts. Read next: pattern.h, prompts.h. */
#ifndef VERBATIM_EVAL_IMPORT_JUDGE_H
#define VERBATIM_EVAL_IMPORT_JUDGE_H
#include "eval/answer.h"
#include "eval/import/import.h"
#include "eval/task.h"

typedef enum eval_import_output {
  EVAL_IMPORT_GENERATE, EVAL_IMPORT_CHOICE, EVAL_IMPORT_LIKELIHOOD, EVAL_IMPORT_ROLLING
} eval_import_output;

typedef struct eval_import_judge {
  eval_import_output output;
  json_t *keys;       /* of every task file: "generation", "norm" */
  json_t *pipelines;  /* list of {"name", "keys"}: a filter of the harness, and its keys of a task file; at least one */
  bool ignores_case, has_acc_norm, extracts; /* extracts: a filter looks for a pattern */
} eval_import_judge;

void eval_import_judge_close(eval_import_judge *self);

/* The judge of a task file with these keys, "items" apart; *out stays NULL unless it generates. The caller closes both in any case. */
status eval_import_judge_open(const json_t *keys, eval_task *task, eval_answer **out);

status eval_import_judge_make(eval_import_accept *accept, const json_t *config, eval_import_judge *out);

/* Keys of "generation" of the harness's generation_kwargs, as a server's client of the harness sends them. ERR_FORMAT, ERR_UNSUPPORTED. */
status eval_import_judge_generation(eval_import_accept *accept, const json_t *arguments, json_t **out);

#endif
