/* models.h - the models and plans that cases name, on disk: created once and reused by later runs.
 *
 * A model is a configuration of tests/oracle/ with random weights and, for most, other sizes; its folder has a tokenizer with a token for
 * every id. Several processes may use one folder at the same time. Read next: case.h, tools/random_model.c. */
#ifndef VERBATIM_MODELS_H
#define VERBATIM_MODELS_H
#include "case.h"

#define MODELS_PATH_MAX 1024u

typedef struct models {
  char folder[MODELS_PATH_MAX];
  char tool[MODELS_PATH_MAX]; /* the program random_model */
} models;

/* Creates the folder if there is none. */
status models_open(models *self, const char *folder, const char *tool);

/* The folder of the case's model, created if it does not exist. */
status models_folder(const models *self, const schedule_case *c, char path[MODELS_PATH_MAX]);

/* Plans the model in model_dir for a deployment. The plan's file belongs to this process and is valid until the next call. */
status models_plan(const models *self, const char *model_dir, const char *deploy, char path[MODELS_PATH_MAX]);

/* Removes this process's plan. */
void models_close(const models *self);

#endif
