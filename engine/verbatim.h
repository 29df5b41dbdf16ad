/* verbatim.h - the one public header of libverbatim: an engine that turns requests into tokens, the same bits every time.
 *
 *   verbatim *engine;
 *   if (verbatim_open(&engine, &config) != 0) ... verbatim_error() ...
 *   verbatim_submit(engine, &request);            // any number, each in the caller's memory
 *   while (verbatim_step(engine, &busy) == 0 && busy) ...;
 *   verbatim_close(engine);
 *
 * What a request yields depends on the model, the numerics id and the request's own inputs, and on nothing else here: not on the
 * other requests, the device, the threads or any field of verbatim_config. After verbatim_open the library allocates nothing:
 * requests and their outputs live in the caller's memory.
 * Every function that can fail returns 0 or a negative number (`status` of base.h); verbatim_error says why. One engine per process and
 * one thread at a time. A fault of the GPU during a step ends the process, after config.on_fault was called. */
#ifndef VERBATIM_VERBATIM_H
#define VERBATIM_VERBATIM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VERBATIM_VERSION "0.1.0"
#define VERBATIM_STOP_IDS_MAX 64u

typedef struct verbatim verbatim; /* an engine */

enum verbatim_device { VERBATIM_DEVICE_AUTO = -1, VERBATIM_DEVICE_CPU = -2 }; /* 0 ..: that GPU. AUTO: GPU 0, else the CPU */

typedef struct verbatim_config {
  const char *plan_path;
  const char *model_dir;
  int device;
  uint32_t threads;      /* CPU: 0: all cores                                                     */
  const char *cache_dir; /* compiled kernels are kept here; null: nowhere                         */
  bool logits;           /* requests may ask for logits rows                                      */
  /* How the work is cut. None of these changes a bit; they exist for measurements and for tests of just that. */
  uint32_t max_active;   /* sequences at once; 0: the plan's limit                                */
  uint32_t chunk_tokens; /* most prompt tokens of one request in a step; 0: the plan's limit      */
  uint32_t slot_offset;  /* the first slot taken                                                  */
  uint64_t shuffle_pages; /* not 0: KV pages are dealt in an order made from this seed            */
  bool direct;           /* launches instead of captured graphs                                   */
  bool poison;           /* NaN patterns in all memory that must not matter                       */
  void (*on_progress)(void *context, uint64_t done_bytes, uint64_t total_bytes); /* of loading; may be null */
  void (*on_fault)(void *context, const char *what);                             /* may be null             */
  void *context;
} verbatim_config;

typedef struct verbatim_info { /* strings live as long as the engine */
  const char *device;  /* e.g. "NVIDIA H200" or "CPU, 8 threads, avx512" */
  const char *note;    /* "" or what the user should know of this start   */
  uint8_t numerics_id[16], weights_digest[16]; /* all that a request's bits depend on, beside the request */
  uint8_t config_digest[16]; /* of the config.json the plan was made from */
  uint32_t vocab, max_len, max_seqs;
  uint32_t bos;        /* UINT32_MAX: none */
  uint32_t eos_count;
  const uint32_t *eos;
  uint32_t graph_count;
  uint64_t device_bytes, pinned_bytes, host_bytes;
} verbatim_info;

enum verbatim_finish {
  VERBATIM_RUNNING = 0,
  VERBATIM_STOP = 1,     /* the last token is a stop id                                      */
  VERBATIM_LENGTH = 2,   /* max_tokens were made                                             */
  VERBATIM_NONFINITE = 3 /* the logits held NaN or Inf; the tokens before are valid          */
};

typedef struct verbatim_request verbatim_request;
struct verbatim_request {
  /* Inputs, set by the caller and unchanged until finish is set. */
  const int32_t *prompt; /* [prompt_count], ids 0 .. vocab - 1                                       */
  uint32_t prompt_count; /* 1 ..; prompt_count + max_tokens at most max_len                          */
  uint32_t max_tokens;   /* 1 ..                                                                     */
  float temperature;     /* 0: greedy; else 1e-3 .. 100                                              */
  uint32_t top_k;        /* 0: off                                                                   */
  double top_p;          /* above 0, at most 1 (off)                                                 */
  uint64_t seed;
  const int32_t *stop_ids; /* [stop_count], beside the model's own                                   */
  uint32_t stop_count;
  bool ignore_eos;       /* the model's own stop ids do not stop                                     */
  void (*on_token)(verbatim_request *request, uint32_t index); /* after tokens[index] is set; may be null */
  void (*on_logits)(verbatim_request *request, uint32_t position, const float *row); /* for every prompt position, in order;
                            row: [vocab], valid during the call; needs config.logits; may be null     */
  void *context;         /* the caller's                                                             */
  /* Outputs, in the caller's memory. */
  int32_t *tokens;       /* [max_tokens]                                                             */
  float *logprobs;       /* [max_tokens] of the chosen token at temperature 1, before any limit      */
  uint64_t *digests;     /* [max_tokens] of the logits row a token was chosen from                   */
  uint32_t token_count;
  enum verbatim_finish finish;
  uint8_t request_digest[16]; /* see PLAN_FORMAT.md, "Receipts"                                      */
  uint8_t chain[16];
  /* The engine's own. */
  verbatim_request *next;
};

/* Reads plan and weights, prepares device and graphs; returns when ready. */
int verbatim_open(verbatim **engine, const verbatim_config *config);
void verbatim_close(verbatim *engine); /* null: nothing. Unfinished requests stay VERBATIM_RUNNING. */
verbatim_info verbatim_describe(const verbatim *engine);

/* Queues a request. An error leaves the engine as it was; the text names what is wrong with the request. */
int verbatim_submit(verbatim *engine, verbatim_request *request);

/* The ids that stop the request, ascending: the model's own, unless ignored, and the given ones. ids: room for 8 +
 * VERBATIM_STOP_IDS_MAX. Returns how many. */
uint32_t verbatim_stop_ids(const verbatim *engine, const verbatim_request *request, int32_t *ids);

/* Does one step of work: some requests move on, callbacks are called. *busy: false when no request is left. */
int verbatim_step(verbatim *engine, bool *busy);

/* The first error since the last call that failed; "" if none. */
const char *verbatim_error(void);

#endif
