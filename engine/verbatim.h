/* verbatim.h - the one public header of libverbatim: an engine that turns requests into tokens, the same bits every time.
 *
 *   verbatim *engine;
 *   if (verbatim_open(&engine, &config) != 0) ... verbatim_error() ...
 *   verbatim_submit(engine, &request);            // any number, each in the caller's memory
 *   while (verbatim_poll(engine, &busy) == 0 && busy) ...;
 *   verbatim_close(engine);
 *
 * What a request yields depends on the model, the numerics id and the request's own inputs, and on nothing else here: not on the
 * other requests, the device, the threads and how they round, or any field of verbatim_config. After verbatim_open the library
 * allocates nothing: requests and their outputs live in the caller's memory. Every function that can fail returns 0 or a
 * verbatim_status; verbatim_error says why. Read next: tests/examples/embed.c. */
#ifndef VERBATIM_VERBATIM_H
#define VERBATIM_VERBATIM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Threads. The library has no state but its engines and one error text for each thread. An engine is used by one thread at a time,
 * whichever; engines are independent and may be used at once, by different threads. Callbacks run on the thread whose call causes them.
 *
 * A fault of the GPU ends the process: on_fault is called, a line goes to stderr, and _Exit(7) follows, without exit handlers. on_fault
 * may end the process in another way. Out of verbatim_poll it may also leave by longjmp: no function may then be called with that
 * engine again, and its memory stays taken. */

#define VERBATIM_VERSION "0.1.0"
#define VERBATIM_STOP_IDS_MAX 64u
#define VERBATIM_STOP_TEXTS_MAX 16u
#define VERBATIM_STOP_TEXT_BYTES_MAX 256u
#define VERBATIM_TOP_LOGPROBS_MAX 20u
#define VERBATIM_BIASES_MAX 1024u
#define VERBATIM_REQUIRED_MAX 32u
#define VERBATIM_GAP_BINS 64u

typedef struct verbatim verbatim; /* an engine */

enum verbatim_status {
  VERBATIM_ERR_USAGE = -1,       /* the call is wrong                                        */
  VERBATIM_ERR_IO = -2,          /* a file cannot be opened, read or written                 */
  VERBATIM_ERR_FORMAT = -3,      /* a file's contents are not what its format allows         */
  VERBATIM_ERR_UNSUPPORTED = -4, /* a valid input asks for something Verbatim lacks          */
  VERBATIM_ERR_LIMIT = -5,       /* a stated limit would be exceeded                         */
  VERBATIM_ERR_DEVICE = -6,      /* GPU, driver or a CUDA library is missing, wrong or fails */
  VERBATIM_ERR_MISMATCH = -7     /* two things that must agree do not (digests, bits)        */
};

enum verbatim_device { VERBATIM_DEVICE_AUTO = -1, VERBATIM_DEVICE_CPU = -2 }; /* 0 ..: that GPU. AUTO: GPU 0, else the CPU */

typedef struct verbatim_config { /* strings are read during verbatim_open only */
  const char *plan_path;
  const char *model_dir;
  int device;
  uint32_t threads;      /* CPU: 0: all cores                                                     */
  const char *cache_dir; /* compiled kernels are kept here; null: nowhere                         */
  const char *library_path; /* folders where CUDA's libraries are looked for first, separated by colons; may be null */
  const char *program_path; /* PATH: the libraries of NVIDIA's wheels beside a python3 found on it are used too; may be null */
  bool logits;           /* requests may ask for logits rows                                      */
  bool text;             /* opens the model's tokenizer: stop texts, on_text, verbatim_encode and verbatim_decode */
  bool trace;            /* requests may ask for on_trace and on_values: steps run op by op, and are slow; no prompt token is taken from the
                            prefix cache */
  /* How the work is cut. None of these changes a bit; they exist for measurements and for tests of just that. */
  uint32_t max_active;   /* sequences at once; 0: the plan's limit                                */
  uint32_t chunk_tokens; /* most prompt tokens of one request in a step; 0: the plan's limit      */
  uint32_t slot_offset;  /* the first slot taken                                                  */
  uint64_t shuffle_pages; /* not 0: KV pages are dealt in an order made from this seed            */
  bool no_prefix_cache;  /* every prompt token is computed, also where its KV row is there from an earlier request */
  bool direct;           /* launches instead of captured graphs                                   */
  bool poison;           /* NaN patterns in all memory that must not matter                       */
  bool timed;            /* GPU: verbatim_count tells the gaps between steps                      */
  void (*on_progress)(void *context, uint64_t done_bytes, uint64_t total_bytes); /* of loading; may be null */
  void (*on_fault)(void *context, const char *what); /* once, before a fault of the GPU ends the process; may be null */
  void *context;
} verbatim_config;

typedef struct verbatim_stages { /* what the start took, in seconds and in this order */
  double plan;    /* the plan, and the config.json beside the weights         */
  double text;    /* the tokenizer, with config.text                          */
  double device;  /* the driver and its context, or the threads of the CPU    */
  double memory;  /* the reservation, the pinned block, the ops' arguments    */
  double kernels; /* from the cache or compiled, loaded, and self-checked      */
  double weights; /* from the files to the device                             */
  double tables;  /* computed tables, and fills                               */
  double library; /* the check of pinned library algorithms                   */
  double graphs;  /* warm-up and captures, and what requests are kept in      */
  double total;   /* all of verbatim_open: the sum of these                   */
  uint32_t kernels_cached, kernels_compiled, weights_threads;
  uint64_t weights_bytes; /* read from the files                              */
} verbatim_stages;

typedef struct verbatim_memory { /* of the GPU, in bytes; all 0 on the CPU machine */
  uint64_t planned;     /* the one reservation, rounded up to the device's granularity    */
  uint64_t reserved;    /* by how much the free memory fell when it was made: planned     */
  uint64_t total;       /* of the device                                                  */
  uint64_t free_opened; /* with the driver's context and no reservation                   */
  uint64_t free_ready;  /* at the end of verbatim_open: kernels and graphs take space too */
  uint64_t free_now;    /* when asked: free_ready, unless another program uses the GPU    */
} verbatim_memory;

typedef struct verbatim_kernel { /* machine code that is loaded */
  const char *name;
  uint8_t digest[16];
} verbatim_kernel;

typedef struct verbatim_point { /* a row of numbers that an op makes of every token: see on_trace */
  const char *name;      /* of the op and, where it makes several, of which: "layer 3 o_proj"      */
  uint32_t layer;        /* UINT32_MAX: none                                                       */
  uint32_t kernel;       /* row of kernels.def                                                     */
  uint32_t type;         /* enum verbatim_point_type                                               */
  uint32_t count;        /* numbers in the row                                                     */
  bool of_logits;        /* only tokens with a logits row have it                                  */
} verbatim_point;
enum verbatim_point_type { VERBATIM_POINT_BF16 = 0, VERBATIM_POINT_F32 = 1, VERBATIM_POINT_U32 = 2 };

typedef struct verbatim_counters { /* since verbatim_open: what really happened. No bit of a request depends on any of it. */
  uint64_t steps, decode_steps, mixed_steps; /* mixed: with decoding and prompt tokens        */
  uint64_t token_rows;       /* computed                                                      */
  uint64_t reused_tokens;    /* taken from the prefix cache instead                           */
  uint64_t recomputed_tokens; /* token rows that had been computed before a preemption        */
  uint64_t admissions, preemptions, cancellations, deadlines, evicted_pages;
  uint64_t gaps;             /* with config.timed: steps that were submitted while the one before was under way */
  double gap_us;             /* of these, from the end of the ops of one to the beginning of the next one's: sum */
  uint32_t gap_bins[VERBATIM_GAP_BINS]; /* how many by whole microseconds, the last: or more    */
  uint32_t most_sequences;   /* in one step                                                   */
  uint32_t kv_pages_used;    /* now, by requests under way; not those that only keep rows for others */
} verbatim_counters;

typedef struct verbatim_info { /* strings live as long as the engine */
  const char *device;  /* e.g. "NVIDIA H200" or "CPU, 8 threads, avx512" */
  const char *note;    /* "" or what the user should know of this start   */
  uint8_t numerics_id[16], weights_digest[16]; /* all that a request's bits depend on, beside the request */
  uint8_t config_digest[16]; /* of the config.json the plan was made from */
  uint8_t tokenizer_digest[16]; /* zeros without config.text */
  uint8_t plan_digest[16];
  uint32_t driver_version, nvrtc_version; /* 1000 * major + 10 * minor; 0 on the CPU machine */
  uint64_t cublaslt_version; /* 0: no product is computed by it */
  uint32_t kernel_count, point_count;
  const verbatim_kernel *kernels; /* [kernel_count], in the plan's order */
  const verbatim_point *points;   /* [point_count], in the order of computation; 0 without config.trace */
  uint32_t vocab, max_len, max_seqs;
  uint32_t kv_pages;   /* of 64 tokens, for all sequences */
  uint32_t bos;        /* UINT32_MAX: none */
  uint32_t eos_count;
  const uint32_t *eos;
  uint32_t graph_count;
  uint64_t device_bytes, pinned_bytes, host_bytes;
  verbatim_stages stages;
  verbatim_memory memory;
} verbatim_info;

enum verbatim_finish {
  VERBATIM_RUNNING = 0,
  VERBATIM_STOP = 1,      /* the last token is a stop id                                      */
  VERBATIM_LENGTH = 2,    /* max_tokens were made; or max_tokens is 0 and the prompt is scored */
  VERBATIM_NONFINITE = 3, /* the logits held NaN or Inf; the tokens before are valid          */
  VERBATIM_STOP_TEXT = 4, /* the text of the tokens holds a stop text, which ends in the last token */
  VERBATIM_CANCELLED = 5, /* by verbatim_cancel; the tokens before are valid                  */
  VERBATIM_DEADLINE = 6   /* its time was over; the tokens before are valid                   */
};

typedef struct verbatim_text { /* UTF-8, not NUL-terminated */
  const char *bytes;
  size_t count;
} verbatim_text;

typedef struct verbatim_bias {
  int32_t token;
  float bias;
} verbatim_bias;

typedef struct verbatim_token { /* a token that was made, or one of the prompt that was scored */
  int32_t id;
  float logprob;   /* at temperature 1, before penalties, biases and limits             */
  uint32_t rank;   /* how many tokens have a larger logit, or an equal one and a lower id; 0: the greedy choice */
  float logit;     /* raw: before temperature, penalties, biases and limits. The logarithm of the sum of all is logit - logprob */
  uint64_t digest; /* of the logits row it was chosen from or scored by                 */
} verbatim_token;

typedef struct verbatim_alternative {
  int32_t id;
  float logprob;   /* as in verbatim_token, from the same row and the same rounding     */
} verbatim_alternative;

typedef struct verbatim_request verbatim_request;
struct verbatim_request {
  /* Inputs, set by the caller and unchanged until finish is set. Start from VERBATIM_REQUEST_DEFAULTS. */
  const int32_t *prompt; /* [prompt_count], ids 0 .. vocab - 1                                       */
  uint32_t prompt_count; /* 1 ..; prompt_count + max_tokens at most max_len                          */
  uint32_t max_tokens;   /* 1 ..; 0 with score                                                       */
  bool score;            /* prompt tokens score_from .. prompt_count - 1 get log-probabilities       */
  uint32_t score_from;   /* 1 .. prompt_count - 1: the first token of a prompt has none               */
  uint32_t top_logprobs; /* alternatives of every scored and made token, 0 .. VERBATIM_TOP_LOGPROBS_MAX */
  float temperature;     /* 0: greedy; else 1e-3 .. 100                                              */
  uint32_t top_k;        /* 0: off                                                                   */
  double top_p;          /* above 0, at most 1 (off)                                                 */
  double min_p;          /* 0: off; else 1e-30 .. 1: tokens less likely than this share of the likeliest are out */
  float repetition_penalty; /* 1: off; 1/16 .. 16; of tokens in the prompt or made                   */
  float presence_penalty, frequency_penalty; /* 0: off; -16 .. 16; of tokens made                    */
  const verbatim_bias *biases; /* [bias_count], at most VERBATIM_BIASES_MAX, -1000 .. 1000, no id twice */
  uint32_t bias_count;
  const int32_t *allowed_ids;  /* [allowed_count], at most VERBATIM_BIASES_MAX, no id twice: no others are made */
  uint32_t allowed_count;      /* 0: all                                                             */
  uint64_t seed;
  uint32_t sample_index; /* one of several samples of a prompt and a seed: 0 ..                      */
  const int32_t *stop_ids; /* [stop_count], beside the model's own                                   */
  uint32_t stop_count;
  const verbatim_text *stop_texts; /* [stop_text_count], at most VERBATIM_STOP_TEXTS_MAX, each of 1 .. VERBATIM_STOP_TEXT_BYTES_MAX
                                      bytes; of the made tokens' text; needs config.text             */
  uint32_t stop_text_count;
  bool ignore_eos;       /* the model's own stop ids do not stop                                     */
  double deadline_seconds; /* from verbatim_submit on, then its finish is VERBATIM_DEADLINE; 0: none. Not part of the request's digest */
  const char *const *required; /* [required_count], at most VERBATIM_REQUIRED_MAX: axes of the plan's guarantees ("prefix_hit") that the
                              request needs; refused by name when the plan excludes or lacks one. Not part of the request's digest */
  uint32_t required_count;
  /* Callbacks, each may be null. They run inside verbatim_poll and may submit and cancel, but not poll or close. They leave the
   * thread's rounding mode and CUDA context as they find them. */
  void (*on_token)(verbatim_request *request, uint32_t index); /* after tokens[index] is set; once finish is set, the last call */
  void (*on_text)(verbatim_request *request, const char *text, size_t bytes); /* the made text, as far as no stop text can begin in it
                            any more; before on_token of the token that makes it certain; all of it unless cancelled or late; needs
                            config.text */
  void (*on_logits)(verbatim_request *request, uint32_t position, const float *row); /* for every prompt position, in order, but for
                            the last with max_tokens 0; row: [vocab], valid during the call; needs config.logits */
  void (*on_trace)(verbatim_request *request, uint32_t position, const uint64_t *digests); /* after every step, of each of the request's
                            token rows in it: [point_count], NUMERICS.md `row_digest` of the row of each point, 0 where it has none; needs
                            config.trace. Rows that are computed again come again, with the same digests or, of_logits, 0. It, and
                            the next two, may not submit or cancel */
  bool (*wants_values)(const verbatim_request *request, uint32_t position, uint32_t point);
  void (*on_values)(verbatim_request *request, uint32_t position, uint32_t point, const void *row, size_t bytes); /* the row itself, where
                            wants_values says so; before the on_trace of its step; valid during the call; needs config.trace */
  void *context;         /* the caller's                                                             */
  /* Outputs, in the caller's memory. */
  verbatim_token *scores; /* [prompt_count - score_from] with score, else unused                     */
  verbatim_token *tokens; /* [max_tokens]                                                            */
  verbatim_alternative *alternatives; /* [scores, then tokens][top_logprobs], likeliest first; unused without top_logprobs */
  uint32_t score_count, token_count; /* set so far                                                   */
  uint64_t text_bytes;   /* VERBATIM_STOP_TEXT: of the made text, before the stop text               */
  uint32_t stop_index;   /* VERBATIM_STOP_TEXT: which of stop_texts                                  */
  enum verbatim_finish finish;
  const char *fault_op;  /* VERBATIM_NONFINITE: the first op that made NaN or Inf of the request, "layer 3 o_proj"; else "".
                            Lives as long as the engine */
  uint32_t fault_layer;  /* its layer, UINT32_MAX: none                                              */
  uint32_t fault_position; /* the first token whose row holds one there                              */
  uint8_t request_digest[16]; /* see RECEIPTS.md, "Request digest"                                   */
  uint8_t chain[16];
  struct {
    uint64_t opaque[3];
  } engine_state;        /* the engine's own: zero it, and do not touch it                           */
};

#define VERBATIM_REQUEST_DEFAULTS ((verbatim_request){.max_tokens = 1, .top_p = 1, .repetition_penalty = 1})

#pragma GCC visibility push(default) /* all that the shared library shows */

/* Reads plan and weights, prepares device and graphs; returns when ready. */
int verbatim_open(verbatim **engine, const verbatim_config *config);
void verbatim_close(verbatim *engine); /* null: nothing. Unfinished requests stay VERBATIM_RUNNING. */
verbatim_info verbatim_describe(const verbatim *engine);
verbatim_counters verbatim_count(const verbatim *engine);

/* Queues a request, which stays where it is, and is not submitted again, until it is finished. An error leaves the engine as it was; the
 * text names what is wrong with the request. */
int verbatim_submit(verbatim *engine, verbatim_request *request);

/* Ends a request that is queued or under way: its finish is VERBATIM_CANCELLED when this returns, its place is given to others, and the
 * engine does not touch it again; called from a callback, the request must outlive the verbatim_poll under way. A finished
 * request stays as it is. An error for one that is running, but not in this engine. Changes no other request's bits. */
int verbatim_cancel(verbatim *engine, verbatim_request *request);

/* The ids that stop the request, ascending: the model's own, unless ignored, and the given ones. ids: room for 8 +
 * VERBATIM_STOP_IDS_MAX. Returns how many. */
uint32_t verbatim_stop_ids(const verbatim *engine, const verbatim_request *request, int32_t *ids);

/* Text to token ids, and back, as the model's tokenizer does it; both need config.text.
 * encode: add_special puts the ids around it that the model states (BOS, as a rule); parse_special takes special tokens that are spelled
 *   in the text for what they are. ids: [ids_max]; bytes + 8 is always room enough.
 * decode: special tokens have no text, what is not UTF-8 becomes U+FFFD. Writes at most text_max bytes, without a NUL; *bytes is the size
 *   of the whole text, which may be more. */
int verbatim_encode(verbatim *engine, const char *text, size_t bytes, bool add_special, bool parse_special, int32_t *ids, size_t ids_max,
                    size_t *count);
int verbatim_decode(const verbatim *engine, const int32_t *ids, size_t count, char *text, size_t text_max, size_t *bytes);

/* Does one step of work: some requests move on, callbacks are called. *busy: false when no request is left. */
int verbatim_poll(verbatim *engine, bool *busy);

/* Why this thread's last call that failed did; "" after a later call that did not. Valid until this thread calls again. */
const char *verbatim_error(void);

/* For callers in other languages. sizeof of a type of this header by its name, e.g. "verbatim_request": compare before the first use
 * whether caller and library mean the same. 0: no such type. */
size_t verbatim_sizeof(const char *type);
verbatim_request verbatim_request_defaults(void); /* VERBATIM_REQUEST_DEFAULTS */

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
