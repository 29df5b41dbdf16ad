/* verbatim.h - the one public header of libverbatim: an engine that turns requests into tokens, with the same bits every time.
 *
 *   verbatim *engine;
 *   if (verbatim_open(&engine, &config) != 0) ... verbatim_error() ...
 *   verbatim_submit(engine, &request);            // any number, each in the caller's memory
 *   while (verbatim_poll(engine, &busy) == 0 && busy) ...;
 *   verbatim_close(engine);
 *
 * The result of a request depends only on the model, the numerics id and the request's own inputs. The other requests, the device, the
 * number of threads and their rounding mode, and every field of verbatim_config leave it unchanged. After verbatim_open the library
 * allocates nothing: requests and their outputs live in the caller's memory. Every function that can fail returns 0 or a verbatim_status;
 * verbatim_error says why. Read next: tests/examples/embed.c. */
#ifndef VERBATIM_VERBATIM_H
#define VERBATIM_VERBATIM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Threads. The library's only state is its engines and one error text per thread. An engine may be used by any thread, but only by one at a
 * time; engines are independent, and different threads may use them at once. A callback runs on the thread whose call triggers it.
 *
 * An engine belongs to the process that opened it. In a child after fork, submit, cancel and poll fail with VERBATIM_ERR_USAGE, and close
 * does nothing. A null engine, config or request is the same error.
 *
 * A fault of the GPU ends the process: on_fault is called, a line goes to stderr, and _Exit(7) follows, without exit handlers. on_fault may
 * end the process in another way. Inside verbatim_poll it may also leave by longjmp; no function may be called with that engine afterwards,
 * and its memory is never freed. */

#define VERBATIM_VERSION "0.1.0"
#define VERBATIM_STOP_IDS_MAX 64u
#define VERBATIM_STOP_TEXTS_MAX 16u
#define VERBATIM_STOP_TEXT_BYTES_MAX 256u
#define VERBATIM_TOP_LOGPROBS_MAX 20u
#define VERBATIM_BIASES_MAX 1024u
#define VERBATIM_REQUIRED_MAX 32u
#define VERBATIM_CONSTRAINT_BYTES_MAX 65536u
#define VERBATIM_GAP_BINS 64u
#define VERBATIM_DRAFT_TOKENS_MAX 15u

typedef struct verbatim verbatim; /* an engine */

enum verbatim_status {
  VERBATIM_ERR_USAGE = -1,       /* the call is wrong                                        */
  VERBATIM_ERR_IO = -2,          /* a file cannot be opened, read or written                 */
  VERBATIM_ERR_FORMAT = -3,      /* the contents of a file violate its format                */
  VERBATIM_ERR_UNSUPPORTED = -4, /* a valid input asks for something Verbatim lacks          */
  VERBATIM_ERR_LIMIT = -5,       /* a stated limit would be exceeded                         */
  VERBATIM_ERR_DEVICE = -6,      /* GPU, driver or a CUDA library is missing, wrong or fails */
  VERBATIM_ERR_MISMATCH = -7     /* two values that must agree differ (digests, bits)        */
};

enum verbatim_device { VERBATIM_DEVICE_AUTO = -1, VERBATIM_DEVICE_CPU = -2 }; /* 0 ..: number of a GPU. AUTO: GPU 0, else the CPU */

typedef struct verbatim_config { /* strings are read only during verbatim_open */
  const char *plan_path;
  const char *model_dir;
  int device;
  uint32_t threads;      /* of the CPU backend; 0: all cores                       */
  const char *cache_dir; /* folder for compiled kernels; null: they are not stored */
  const char *library_path; /* folders searched first for CUDA's libraries, separated by colons; may be null */
  const char *program_path; /* a PATH: NVIDIA's wheels installed with a python3 on it are searched too; may be null */
  bool logits;           /* requests may ask for logits rows                       */
  bool text;             /* opens the model's tokenizer: stop texts, on_text, verbatim_encode and verbatim_decode */
  bool sha256;           /* also takes the SHA-256 of the weights while they are read: slower, unless many threads read */
  bool trace;            /* requests may ask for on_trace and on_values: steps run op by op, which is slow, and the prefix cache is not
                            used */
  /* How the work is divided. None of these changes a bit of a result; they exist for measurements and for tests of that promise. */
  uint32_t max_active;   /* sequences at once; 0: the plan's limit                             */
  uint32_t chunk_tokens; /* most prompt tokens of one request in a step; 0: the plan's limit   */
  uint32_t slot_offset;  /* the first slot taken                                               */
  uint64_t shuffle_pages; /* not 0: KV pages are handed out in an order derived from this seed */
  bool no_prefix_cache;  /* compute every prompt token, even if its KV row is cached from an earlier request */
  bool direct;           /* launch kernels one by one instead of by captured graphs            */
  bool poison;           /* fill all memory that must not matter with NaN patterns             */
  bool no_drafts;        /* make every token by a step of its own, whatever plan and requests say */
  bool timed;            /* GPU: measure the gaps between steps for verbatim_count             */
  bool check_exchanges;  /* several GPUs: compare digests of all that they exchange, at every step: slower by 1 % or 2 % */
  uint32_t exchange_timeout_ms; /* several GPUs: how long one may wait for another, before that is a fault; 0: 10,000 */
  void (*on_progress)(void *context, uint64_t done_bytes, uint64_t total_bytes); /* progress of loading; may be null */
  void (*on_fault)(void *context, const char *what); /* called once, before a fault of the GPU ends the process; may be null */
  void *context;
} verbatim_config;

typedef struct verbatim_stages { /* duration of each part of the start, in seconds and in this order */
  double plan;    /* the plan, and the config.json next to the weights        */
  double text;    /* the tokenizer, with config.text                          */
  double device;  /* the driver and its context, or the threads of the CPU backend */
  double memory;  /* the reservation, the pinned block, the ops' arguments    */
  double kernels; /* from the cache or compiled, then loaded and self-checked */
  double weights; /* from the files to the device                             */
  double tables;  /* computed tables, and filling of memory                   */
  double library; /* the check of pinned library algorithms                   */
  double graphs;  /* warm-up and captures, and the memory for requests        */
  double total;   /* all of verbatim_open: the sum of the above               */
  uint32_t kernels_cached, kernels_compiled, weights_threads;
  uint64_t weights_bytes; /* read from the files                              */
} verbatim_stages;

typedef struct verbatim_memory { /* of the GPU, or of rank 0's, in bytes; all 0 on the CPU backend                  */
  uint64_t planned;     /* the one reservation, rounded up to the device's granularity              */
  uint64_t reserved;    /* decrease of free memory by the reservation: planned                      */
  uint64_t total;       /* of the device                                                            */
  uint64_t free_opened; /* free with the driver's context, before the reservation                   */
  uint64_t free_ready;  /* free at the end of verbatim_open: kernels and graphs take space too      */
  uint64_t free_now;    /* at the time of the call: free_ready, unless another program uses the GPU */
} verbatim_memory;

typedef struct verbatim_gpu { /* the GPU of one rank */
  uint32_t index;        /* as the driver counts, of the GPUs that the process sees */
  uint64_t total;        /* bytes of its memory                                      */
  uint64_t reserved;     /* decrease of its free memory by the plan's reservation    */
} verbatim_gpu;

typedef struct verbatim_kernel { /* one loaded kernel */
  const char *name;
  uint8_t digest[16];
} verbatim_kernel;

typedef struct verbatim_point { /* a trace point, a row of numbers that an op computes for every token: see on_trace */
  const char *name;      /* the op, and which of its outputs if it has several: "layer 3 o_proj" */
  uint32_t layer;        /* UINT32_MAX: none                                                     */
  uint32_t kernel;       /* row of kernels.def                                                   */
  uint32_t type;         /* enum verbatim_point_type                                             */
  uint32_t count;        /* numbers per row                                                      */
  bool of_logits;        /* only tokens with a logits row have this point                        */
} verbatim_point;
enum verbatim_point_type { VERBATIM_POINT_BF16 = 0, VERBATIM_POINT_F32 = 1, VERBATIM_POINT_U32 = 2 };

typedef struct verbatim_counters { /* totals since verbatim_open. No bit of a request's result depends on any of them. */
  uint64_t steps, decode_steps, mixed_steps; /* mixed: both decode and prompt tokens */
  uint64_t request_steps;    /* decode steps in which each GPU attended for its share of the requests */
  uint64_t token_rows;       /* computed                                             */
  uint64_t queried_tokens;   /* of admitted requests, looked for in the prefix cache as far as they fill pages */
  uint64_t reused_tokens;    /* taken from the prefix cache, not computed            */
  uint64_t recomputed_tokens; /* token rows computed again after a preemption        */
  uint64_t admissions, preemptions, cancellations, deadlines, evicted_pages;
  uint64_t drafts;           /* times that a step checked guesses of a sequence's next tokens */
  uint64_t drafted_tokens, accepted_tokens; /* guesses checked, and those of them that were right                     */
  uint64_t accepted_at[VERBATIM_DRAFT_TOKENS_MAX]; /* accepted_tokens by place in the draft; the last counts later places too */
  uint64_t gaps;             /* with config.timed: steps submitted while the previous one was running        */
  double gap_us;             /* sum over these: from the end of a step's ops to the start of the next step's */
  uint32_t gap_bins[VERBATIM_GAP_BINS]; /* histogram by whole microseconds; the last counts longer ones too  */
  uint32_t most_sequences;   /* in one step                                                                  */
  uint32_t kv_pages_used;    /* pages in use now by running requests; pages kept only for the prefix cache are not counted */
} verbatim_counters;

typedef struct verbatim_info { /* strings live as long as the engine */
  const char *device;  /* e.g. "NVIDIA H200" or "CPU, 8 threads, avx512" */
  const char *note;    /* "", or a note to the user about this start */
  uint8_t numerics_id[16], weights_digest[16]; /* together they name everything besides the request that determines its bits */
  uint8_t config_digest[16]; /* digest of the config.json that the plan was made from */
  uint8_t tokenizer_digest[16]; /* zeros without config.text         */
  uint8_t plan_digest[16];
  uint8_t plan_sha256[32], config_sha256[32]; /* of the files; config_sha256: zeros if the folder has no config.json */
  uint8_t weights_sha256[32]; /* see RECEIPTS.md, "SHA-256"; zeros without config.sha256 */
  uint32_t driver_version, nvrtc_version; /* 1000 * major + 10 * minor; 0 on the CPU backend */
  uint64_t cublaslt_version; /* 0: no product uses it                                        */
  uint32_t kernel_count, point_count;
  const verbatim_kernel *kernels; /* [kernel_count], in the plan's order */
  const verbatim_point *points;   /* [point_count], in order of computation; 0 without config.trace */
  uint32_t vocab, max_len, max_seqs;
  uint32_t kv_pages;   /* pages of 64 tokens, shared by all sequences */
  uint32_t bos;        /* UINT32_MAX: none */
  uint32_t eos_count;
  const uint32_t *eos;
  uint32_t graph_count;
  uint32_t ranks;      /* of the plan: GPUs, or what the CPU backend runs in their place. No bit depends on it */
  uint32_t draft_tokens; /* most guesses of a sequence in a step by the plan's speculation; 0: it has none */
  bool constraints;    /* requests may have one: the plan has structured-outputs, the config text */
  const verbatim_gpu *gpus; /* [ranks]; null on the CPU backend */
  uint64_t device_bytes, pinned_bytes, host_bytes; /* device_bytes: of each GPU */
  verbatim_stages stages;
  verbatim_memory memory;
} verbatim_info;

enum verbatim_finish {
  VERBATIM_RUNNING = 0,
  VERBATIM_STOP = 1,      /* the last token is a stop id                              */
  VERBATIM_LENGTH = 2,    /* max_tokens were generated, or max_tokens is 0 and the prompt is scored */
  VERBATIM_NONFINITE = 3, /* the logits held NaN or Inf; the earlier tokens are valid */
  VERBATIM_STOP_TEXT = 4, /* the generated text contains a stop text, which ends in the last token */
  VERBATIM_CANCELLED = 5, /* by verbatim_cancel; the tokens so far are valid          */
  VERBATIM_DEADLINE = 6   /* deadline exceeded; the tokens so far are valid           */
};

typedef struct verbatim_text { /* UTF-8, not NUL-terminated */
  const char *bytes;
  size_t count;
} verbatim_text;

typedef struct verbatim_bias {
  int32_t token;
  float bias;
} verbatim_bias;

typedef struct verbatim_constraint verbatim_constraint; /* what an answer must be, compiled: see verbatim_constraint_open */
enum verbatim_constraint_kind { /* and its text. SERVING.md, "Constrained output", has the syntax of each */
  VERBATIM_CHOICE = 1,          /* a JSON list of texts, one of which is the answer */
  VERBATIM_REGEX = 2,           /* a regular expression that matches the whole answer */
  VERBATIM_JSON_OBJECT = 3,     /* no text: the answer is a JSON object */
  VERBATIM_JSON_SCHEMA = 4,     /* a JSON schema of the answer */
  VERBATIM_PARTS = 5            /* a JSON list of the answer's parts in order, each {"text": TEXT}, {"regex": EXPRESSION},
                                   {"json_schema": SCHEMA}, {"until": TEXT}, any text up to and with the first TEXT, or {"any": [PARTS,
                                   ...]}, one of these lists, which may be empty. A special token that is part of a TEXT may stand there */
};

typedef struct verbatim_token { /* a generated token, or a scored token of the prompt */
  int32_t id;
  float logprob;   /* log-probability at temperature 1, before penalties, biases and limits */
  uint32_t rank;   /* number of tokens with a larger logit, or an equal one and a lower id; 0: the greedy choice */
  float logit;     /* raw: before temperature, penalties, biases and limits. logit - logprob is the log of the sum of exponentials */
  uint64_t digest; /* digest of the logits row that it was chosen from or scored by         */
} verbatim_token;

typedef struct verbatim_alternative {
  int32_t id;
  float logprob;   /* as in verbatim_token, from the same row and the same rounding     */
} verbatim_alternative;

typedef struct verbatim_request verbatim_request;
struct verbatim_request {
  /* Inputs, set by the caller and unchanged until finish is set. Start from VERBATIM_REQUEST_DEFAULTS. */
  const int32_t *prompt; /* [prompt_count], ids 0 .. vocab - 1                            */
  uint32_t prompt_count; /* 1 ..; prompt_count + max_tokens at most max_len               */
  uint32_t max_tokens;   /* 1 ..; 0 with score                                            */
  bool score;            /* prompt tokens score_from .. prompt_count - 1 are scored       */
  uint32_t score_from;   /* 1 .. prompt_count - 1: the first token has no log-probability */
  uint32_t top_logprobs; /* alternatives of every scored and generated token, 0 .. VERBATIM_TOP_LOGPROBS_MAX */
  float temperature;     /* 0: greedy; else 1e-3 .. 100                                   */
  uint32_t top_k;        /* 0: off                                                        */
  double top_p;          /* above 0, at most 1 (off)                                      */
  double min_p;          /* 0: off; else 1e-30 .. 1: excludes tokens less likely than this share of the likeliest */
  float repetition_penalty; /* 1: off; 1/16 .. 16; of prompt and generated tokens         */
  float presence_penalty, frequency_penalty; /* 0: off; -16 .. 16; of generated tokens    */
  const verbatim_bias *biases; /* [bias_count], at most VERBATIM_BIASES_MAX, -1000 .. 1000, no id twice */
  uint32_t bias_count;
  const int32_t *allowed_ids;  /* [allowed_count], at most VERBATIM_BIASES_MAX, no id twice: only these may be generated */
  uint32_t allowed_count;      /* 0: all                                                                                 */
  const verbatim_constraint *constraint; /* of the generated text, or null; not together with allowed_ids; needs config.text, a plan with
                              structured-outputs and a stop id, which may follow where the text is complete */
  uint64_t seed;
  uint32_t sample_index; /* number of this sample among several of one prompt and seed, from 0 */
  const int32_t *stop_ids; /* [stop_count], in addition to the model's own                     */
  uint32_t stop_count;
  const verbatim_text *stop_texts; /* [stop_text_count], at most VERBATIM_STOP_TEXTS_MAX, each of 1 .. VERBATIM_STOP_TEXT_BYTES_MAX
                                      bytes; searched in the generated text; needs config.text             */
  uint32_t stop_text_count;
  bool ignore_eos;       /* the model's own stop ids do not end the request */
  double deadline_seconds; /* time from verbatim_submit until it ends with VERBATIM_DEADLINE; 0: none. Not part of the request's digest */
  const char *const *required; /* [required_count], at most VERBATIM_REQUIRED_MAX: axes of the plan's guarantees ("prefix_hit") that the
                              request needs; if the plan excludes or lacks one, submit fails and names it. Not part of the request's
                              digest */
  uint32_t required_count;
  /* Callbacks; each may be null. They run inside verbatim_poll and may submit and cancel, but not poll or close. They must leave the
   * thread's rounding mode and CUDA context unchanged. */
  void (*on_token)(verbatim_request *request, uint32_t index); /* after tokens[index] is set; when finish is set, this is the last call */
  uint32_t (*on_draft)(verbatim_request *request, int32_t *ids, uint32_t most); /* before a step: guesses of the tokens behind those so far.
                            Writes up to `most` ids and returns how many. A step checks them together; those that are right save steps, and
                            no guess changes a result. Null: as the plan's speculation says. May not submit or cancel */
  void (*on_text)(verbatim_request *request, const char *text, size_t bytes); /* the next part of the generated text, once no stop text can
                            begin in it; called before the on_token of the token that decides this. The parts are the whole text unless the
                            request is cancelled or late. Needs config.text */
  void (*on_logits)(verbatim_request *request, uint32_t position, const float *row); /* for every prompt position in order, except the last
                            if max_tokens is 0; row: [vocab], valid during the call; needs config.logits */
  void (*on_trace)(verbatim_request *request, uint32_t position, const uint64_t *digests); /* after every step, once per token row of the
                            request in it: [point_count], NUMERICS.md `row_digest` of each point's row, 0 if it has none; needs
                            config.trace. Rows computed again are reported again, with the same digests, or 0 for points of logits. This
                            callback and the next two may not submit or cancel */
  bool (*wants_values)(const verbatim_request *request, uint32_t position, uint32_t point);
  void (*on_values)(verbatim_request *request, uint32_t position, uint32_t point, const void *row, size_t bytes); /* the row itself, if
                            wants_values returns true for it; before the on_trace of its step; valid during the call; needs config.trace */
  void *context;         /* for the caller's use */
  /* Outputs, in the caller's memory. */
  verbatim_token *scores; /* [prompt_count - score_from] with score, else unused            */
  verbatim_token *tokens; /* [max_tokens]                                                   */
  verbatim_alternative *alternatives; /* [scores, then tokens][top_logprobs], likeliest first; unused if top_logprobs is 0 */
  uint32_t score_count, token_count; /* set so far                                          */
  uint32_t drafted_count, accepted_count; /* guesses of tokens that steps checked, and how many were right; no bit depends on them */
  double waited_seconds; /* from verbatim_submit until the request first ran; negative until then. No bit depends on it */
  uint64_t text_bytes;   /* VERBATIM_STOP_TEXT: of the generated text, before the stop text */
  uint32_t stop_index;   /* VERBATIM_STOP_TEXT: index in stop_texts                         */
  enum verbatim_finish finish;
  const char *fault_op;  /* VERBATIM_NONFINITE: the first op whose result for the request held NaN or Inf, "layer 3 o_proj"; else "". Lives
                            as long as the engine */
  uint32_t fault_layer;  /* layer of that op, UINT32_MAX: none               */
  uint32_t fault_position; /* the first token whose row of that op holds one */
  uint8_t request_digest[16]; /* see RECEIPTS.md, "Request digest"           */
  uint8_t chain[16];
  struct {
    uint64_t opaque[3];
  } engine_state;        /* owned by the engine: zero it and do not touch it */
};

#define VERBATIM_REQUEST_DEFAULTS ((verbatim_request){.max_tokens = 1, .top_p = 1, .repetition_penalty = 1})

#pragma GCC visibility push(default) /* everything that the shared library exports */

/* Reads the plan and the weights, prepares the device and its graphs, and returns when ready. */
int verbatim_open(verbatim **engine, const verbatim_config *config);
void verbatim_close(verbatim *engine); /* Does nothing for null. Unfinished requests stay VERBATIM_RUNNING. */
verbatim_info verbatim_describe(const verbatim *engine);
verbatim_counters verbatim_count(const verbatim *engine);

/* Queues a request. Until it is finished, the struct must not move; to submit it again is an error. An error leaves the engine unchanged;
 * its text says what is wrong with the request. */
int verbatim_submit(verbatim *engine, verbatim_request *request);

/* Ends a queued or running request: when this returns, its finish is VERBATIM_CANCELLED, its slot is free for others, and the engine does
 * not touch it again. If called from a callback, the request must outlive the current verbatim_poll. A finished request is left unchanged.
 * It is an error if the request is running in another engine. No other request's bits change. */
int verbatim_cancel(verbatim *engine, verbatim_request *request);

/* Empties the prefix cache: requests submitted later compute all their tokens, as after a start. Running requests go on; no bit changes. */
void verbatim_reset_prefix_cache(verbatim *engine);

/* Writes the ids that stop the request, ascending: the model's own, unless ignored, and the request's. ids has room for 8 +
 * VERBATIM_STOP_IDS_MAX. Returns their number. */
uint32_t verbatim_stop_ids(const verbatim *engine, const verbatim_request *request, int32_t *ids);

/* Converts text to token ids, and back, as the model's tokenizer does; both need config.text.
 * encode: add_special adds the ids that the model puts around a text (usually BOS); parse_special turns special tokens spelled in the text
 * into their ids. ids: [ids_max]; room for bytes + 8 always suffices.
 * decode: special tokens have no text, and invalid UTF-8 becomes U+FFFD. Writes at most text_max bytes, without a NUL; *bytes is the size
 * of the whole text, which may be larger. */
int verbatim_encode(verbatim *engine, const char *text, size_t bytes, bool add_special, bool parse_special, int32_t *ids, size_t ids_max,
                    size_t *count);
int verbatim_decode(const verbatim *engine, const int32_t *ids, size_t count, char *text, size_t text_max, size_t *bytes);

/* Chat: a template, the model's or the Jinja text at template_path, makes a prompt of json: a list of messages, or an object with
 * "messages" as in SERVING.md. Needs no engine; allocates; once open, any thread may render. Writes at most text_max bytes to the caller's
 * text, without a NUL; *bytes is of all. Encode it with parse_special alone. Without a template: VERBATIM_ERR_UNSUPPORTED. */
typedef struct verbatim_chat verbatim_chat;
int verbatim_chat_open(verbatim_chat **chat, const char *model_dir, const char *template_path);
int verbatim_chat_render(const verbatim_chat *chat, const char *json, size_t json_bytes, char *text, size_t text_max, size_t *bytes);
void verbatim_chat_close(verbatim_chat *chat); /* Does nothing for null. */

/* Compiles what an answer must be. Takes up to half a second and allocates; on any thread, with or without an engine. Any number of
 * requests may use it at once, until verbatim_constraint_close. An error says what is wrong with the text, or what in it is not offered. */
int verbatim_constraint_open(verbatim_constraint **constraint, enum verbatim_constraint_kind kind, const char *text, size_t bytes);
void verbatim_constraint_close(verbatim_constraint *constraint); /* does nothing for null */
verbatim_text verbatim_constraint_text(const verbatim_constraint *constraint, enum verbatim_constraint_kind *kind); /* as it was given */

/* Does one step of work: advances some requests and calls their callbacks. *busy is false when no request is left. */
int verbatim_poll(verbatim *engine, bool *busy);

/* The error text of this thread's last call if it failed, else "". Valid until this thread's next call. */
const char *verbatim_error(void);

/* For callers in other languages: sizeof of a type of this header by its name, e.g. "verbatim_request". Compare it with the caller's own
 * before the first use. 0: no such type. */
size_t verbatim_sizeof(const char *type);
verbatim_request verbatim_request_defaults(void); /* VERBATIM_REQUEST_DEFAULTS */

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
