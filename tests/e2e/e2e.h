/* e2e.h - shared by the end-to-end tests: a random model with its plan in a scratch folder, and a run of a fixed set of requests.
 *
 * A run's result is one digest: that of the receipt over all requests, in order. Equal digests mean equal tokens, log-probability bits and
 * logits digests. --device gpu on a test's command line uses the GPU; without it the CPU is used. */
#ifndef VERBATIM_E2E_H
#define VERBATIM_E2E_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "engine/base/digest.h"
#include "engine/verbatim.h"

#define E2E_PATH_MAX 1024

typedef struct e2e_model {
  char folder[E2E_PATH_MAX]; /* scratch folder of this process */
  char model_dir[E2E_PATH_MAX];
  char plan_path[E2E_PATH_MAX];
} e2e_model;

/* Reads --device from the arguments and stores where the build's binaries are. Call it first. Prints SKIPPED and ends the process if a GPU
 * is requested and there is none. */
void e2e_begin(int argc, char **argv);
int e2e_device(void); /* as verbatim_config.device */

/* The path of a binary of the build ("verbatim", "random_model"). */
void e2e_binary(const char *name, char path[E2E_PATH_MAX]);

/* A random model of the config, in a new scratch folder, and its plan. Ends the process on failure, because no test can continue. The
 * second function also makes a tokenizer with a token for every id of the vocabulary. */
void e2e_make_model(e2e_model *model, const char *config_path, const char *deploy);
void e2e_make_text_model(e2e_model *model, const char *config_path, const char *deploy);

/* A plan of the model under another deployment, as <folder>/<name>. */
void e2e_make_plan(const e2e_model *model, const char *name, const char *deploy, char path[E2E_PATH_MAX]);
void e2e_remove(const e2e_model *model);

/* Runs a command with stdout and stderr into `output` (NUL-terminated, truncated at output_bytes); returns its exit code, or -1 if a signal
 * ended it. */
int e2e_command(char *const argv[], char *output, size_t output_bytes);

/* The same for a shell command in the model's scratch folder, after `setup` ("X=1 && ", or empty): V is the program, TINY the folder of the
 * shipped model. */
int e2e_shell(const e2e_model *model, const char *setup, const char *command, char *output, size_t output_bytes);

/* A file of the model's scratch folder. Ends the process if it cannot be opened, as the next two functions do. */
FILE *e2e_open(const e2e_model *model, const char *name, const char *mode);

/* A whole file, NUL-terminated, which the caller frees; bytes may be null. */
char *e2e_read_file(const char *path, size_t *bytes);
void e2e_write_file(const char *path, const char *text);

/* count requests of many lengths that use every option except text, the same on every call; request i does not depend on count. */
#define E2E_TOP 3u
#define E2E_LIST 12u
typedef struct e2e_requests {
  uint32_t count;
  verbatim_request *list;
  int32_t *ids;                       /* [count][prompt_max]                      */
  verbatim_token *outputs;            /* [count][prompt_max + tokens_max]         */
  verbatim_alternative *alternatives; /* [count][prompt_max + tokens_max][E2E_TOP] */
  verbatim_bias *biases;              /* [count][E2E_LIST]                        */
  int32_t *allowed;                   /* [count][E2E_LIST]                        */
} e2e_requests;
void e2e_requests_make(e2e_requests *requests, uint32_t count, uint32_t vocab, uint32_t prompt_max, uint32_t tokens_max);
/* The same, but all tokens of request `longest` are scored; prompts of the others have at most other_max tokens, because they would take
 * most of the time. */
void e2e_requests_make_long(e2e_requests *requests, uint32_t count, uint32_t vocab, uint32_t longest, uint32_t prompt_max,
                            uint32_t other_max, uint32_t tokens_max);
void e2e_requests_free(e2e_requests *requests);

/* The model's own plan on the backend that the test was started with, two threads. A GPU's kernels are compiled once per build. */
verbatim_config e2e_config(const e2e_model *model);

/* Opens an engine, runs the requests [first, first + count) and returns the receipt's digest. */
digest e2e_run(const verbatim_config *config, e2e_requests *requests, uint32_t first, uint32_t count);

/* The same, with the engine's counters at the end. */
digest e2e_run_counted(const verbatim_config *config, e2e_requests *requests, uint32_t first, uint32_t count, verbatim_counters *counters);

/* Whether the digest of all requests is the expected one. */
bool e2e_is_same(const verbatim_config *config, e2e_requests *requests, digest expected);

/* Removes the machine's line, the second, from a receipt's text: the rest is the same wherever it was made. Returns the text. */
char *e2e_without_machine(char *text);

#endif
