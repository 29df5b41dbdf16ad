/* late_backend.h - a backend for the scheduler's tests, in place of exec.h: link with --wrap for its functions and for watch_step.
 *
 * It is late: it reads host memory and runs steps only when a result is waited for, as late as any device may. Its model's token is a
 * function of all token ids that the KV pages hold for the sequence, of the context of each when it was computed, and of the slot's token
 * list. So one wrong page, row, slot, list, token or overwritten input changes the result of a request. Values that are not finite spread
 * as in the attention. There is one backend per process, as there is one engine in a process that tests it. */
#ifndef VERBATIM_TESTS_LATE_BACKEND_H
#define VERBATIM_TESTS_LATE_BACKEND_H
#include "tests/unit/unit.h"
#include "engine/requests/schedule.h"

#define SEQS 6u
#define TOKENS 24u
#define LOGITS 7u
#define PAGES_PER_SEQ 4u
#define PAGES_MAX 24u
#define VOCAB 50u
#define EOS 7u
#define DROPPED (-1)    /* content of a page that no sequence may read */
#define BROKEN 49       /* a prompt token whose KV row is not finite: nor are the logits after it, and before it in its tile */
#define WEAK 48         /* a token of which only the logits are not finite */
#define REQUESTS 40u
#define STEPS_MAX 4000u

typedef struct image { /* of one side, in host memory */
  step_in head[STEP_PARTS];
  int32_t token[TOKENS];
  uint32_t position[TOKENS], seq[TOKENS], logit_row[LOGITS];
  attn_tile tiles[TOKENS], prompt_tiles[TOKENS];
  step_context contexts[SEQS];
  sample_param sample[LOGITS];
} image;

typedef struct queued_step { /* what a driver copies at submission; staging buffers and rows are read when the step runs */
  uint32_t side, sent[SEQS];  /* 0: the slot's row is not uploaded; else 1 + entries of its list to upload */
  uint32_t dropped[2 * PAGES_MAX], dropped_count; /* after the step */
} queued_step;

typedef struct step_log { uint32_t tokens, logits, seqs, decode; } step_log;

typedef struct late_backend {
  bool eager;                      /* runs a step when it is submitted */
  bool ignore_rows, ignore_lists, ignore_growth; /* planted faults    */
  bool ignore_reading; /* another: reports rows as read at once */
  image image[2];
  uint32_t block_host[SEQS * PAGES_PER_SEQ], block[2][SEQS * PAGES_PER_SEQ]; /* the device's copy, by side */
  token_bias list_host[SEQS][TOKEN_LIST_MAX], list[2][SEQS][TOKEN_LIST_MAX];
  block_table table;           /* over block_host and list_host */
  uint32_t waiting[2]; /* steps of a side that have not run */
  queued_step queue[4];
  uint32_t queued;
  int32_t kv[PAGES_MAX * 64], sampled[SEQS];
  uint64_t context[PAGES_MAX * 64]; /* of each KV row: the sum over the rows before it and itself, when it was computed */
  uint8_t spoilt[PAGES_MAX * 64]; /* KV rows that are not finite */
  sample_result result[2][LOGITS];
  top_logprob top[2][LOGITS][TOP_LOGPROBS_MAX];
  uint64_t digest[2][LOGITS];
  float logits[2][LOGITS * VOCAB];
  step_log steps[STEPS_MAX];
  uint32_t step_count, dropped_pages, watched_steps, longest_prompt_tile;
} late_backend;

typedef struct asked {
  verbatim_request request;
  int32_t prompt[200];
  verbatim_token tokens[200], scores[200];
  verbatim_alternative alternatives[400 * 2];
  uint32_t logits_seen, tokens_seen, rows_seen, finish_order;
  char text[200];
} asked;
extern late_backend late;
extern schedule batching; /* the scheduler under test */
extern plan_header late_header;
extern request_model late_model;
extern arena late_host;
extern uint32_t step_side; /* of the next step */
extern bool step_outstanding[2];
extern asked asks[REQUESTS];
extern const plan_limits LIMITS;
extern const verbatim_bias BIASES[3];

/* === The model ============================================================================================================== */

uint64_t mix(uint64_t sum, int32_t id);
int32_t token_of(uint64_t sum); /* neither BROKEN nor WEAK */

/* === Requests =============================================================================================================== */

/* Request i: a greedy one, or one with scores, alternatives, token lists and logits in turn. Its callbacks count. */
asked *ask(uint32_t i, uint32_t prompt_count, uint32_t max_tokens, bool logits);
asked *ask_all(uint32_t i);
void on_token(verbatim_request *r, uint32_t index);
void on_logits(verbatim_request *r, uint32_t position, const float *row);

/* The request's results so far are the model's, and it ended where it should, or was cancelled or passed its deadline. */
bool is_right(const asked *a);

/* === Runs =================================================================================================================== */

void open_machine(bool eager, const plan_limits *limits, schedule_options options); /* close with arena_close(&late_host) */
void submit(asked *a);
bool step(void);    /* as verbatim_poll does */
void run_out(void); /* until all have ended; then every page is free again */

/* The set-up function for cmocka: the tokenizer of late_model; ids 0 .. 255 are bytes. */
int open_small(void **state);
int close_small(void **state);

#endif
