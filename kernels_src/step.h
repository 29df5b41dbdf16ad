/* step.h - number types, and the inputs and results of a step: shared by the host (C11) and the kernels.
 *
 * The arrays of these structs are in the plan's STEP and RESULT regions (plan_io). Every struct is a multiple of 8 bytes without implicit
 * padding. Read next: abi.h. */
#ifndef VERBATIM_STEP_H
#define VERBATIM_STEP_H

#ifdef __CUDACC_RTC__
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
#else
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef int64_t i64;
#endif
typedef float f32;
typedef u16 bf16;

#define PAGE_TOKENS 64u      /* tokens of a KV page, and of a KV block of attention     */
#define TOP_LOGPROBS_MAX 20u /* most alternatives reported with a token                 */
#define TOKEN_LIST_MAX 1024u /* most entries of a request's list of biased or allowed tokens */
#define ADJUST_SLICE 8192u   /* vocabulary tokens per block of `adjust`                 */
#define ROUTER_SORTS_MAX 16u /* most tokens whose pairs `router` sorts itself          */
#define ROW_BLOCKS 8u        /* blocks that share a row in `sample` and `row_digest`  */
/* Bytes of a row that a block of `sample` holds: 128 of every 1024 logits. At least those of rows of 32768, for the self-check. */
#define SAMPLE_PART_BYTES(vocab) ((vocab) > 32768u ? ((vocab) + 1023u) / 1024u * (4096u / ROW_BLOCKS) : 16384u)

/* The head of the step inputs. Rows beyond these counts are padding: no op reads or writes them, except that a GEMM may
 * compute them into padding rows. */
typedef struct step_in {
  u32 token_count; /* T, 1 .. max_batch_tokens */
  u32 logit_count; /* R, 0 .. max_logit_rows   */
  u32 tile_count;  /* attention tiles          */
  u32 seq_count;   /* sequences with tokens in this step (information only) */
} step_in;

/* The counts are stored four times in a row: for the whole step, for its two parts where prompts have attention ops of their own, and for
 * drafts. Under parity fast-prefill the rows of generated tokens are first, then those of prompts. Under strict, where KV rows are
 * dequantized for prompts, prompt rows may be anywhere in the step; the counts are those of the other rows, then of the prompt rows. The
 * ops of a part get its counts as their `step`; for prompts seq_count is the number of contexts. */
enum step_part { STEP_ALL = 0, STEP_MADE = 1, STEP_PROMPT = 2, STEP_DRAFTS = 3, STEP_PARTS = 4 };

/* With several ranks, the counts of the rows that each of them owns come after these: entry STEP_PARTS + r is that of rank r. Rank r owns
 * the token rows r, r + ranks, r + 2 * ranks, ...; token row t is row t / ranks of rank t % ranks. Where a rank owns none, in steps of
 * fewer rows than ranks, its entry says 1: its ops compute a padding row, which no exchange moves. Where a step attends by requests, which
 * has at least one row for each rank, its tiles are the owned rows, one each: a request with several rows has several owners. */
#define STEP_OWN_ROWS(rows, rank, ranks) (((rows) + (ranks) - 1u - (rank)) / (ranks))

/* A sequence whose newest token this step chooses: its rows with logits. Each but the first is of a token that was guessed. The counts of
 * STEP_DRAFTS are all the number of these, 0 .. max_seqs; a step has no sequence twice. */
typedef struct step_draft {
  u32 first; /* logits row           */
  u32 count; /* of consecutive ones  */
  u32 slot;  /* row of the block table, which has pages for draft_tokens - 1 positions after the last of these rows */
  u32 pad;
} step_draft;

/* The tokens of a sequence that its prompt rows in this step attend to. Pages of all contexts are numbered in order. Under fast-prefill a
 * piece is as many of them as the workspace holds; dequantized pages all fit into theirs. */
typedef struct step_context {
  u32 first;  /* number of its first page: the pages of those before it */
  u32 tokens; /* positions 0 .. tokens - 1                              */
  u32 seq;    /* row of the block table                                 */
  u32 pad;
} step_context;

/* Consecutive tokens of one sequence that share their KV reads. Prompt tokens under fast-prefill: those of at most one pair of pages, and
 * seq is the number of the context; where KV rows are dequantized seq is the number of the context's first page. */
#define PROMPT_TILE_TOKENS (2u * PAGE_TOKENS)
typedef struct attn_tile {
  u32 row;      /* first token row                                  */
  u32 count;    /* tokens, 1 .. attn_tile_tokens of the plan        */
  u32 seq;      /* row of the block table                           */
  u32 position; /* absolute position of the first token             */
} attn_tile;

/* A work item of split attention (attn_cut): consecutive blocks of 64 tokens of a tile's context, for one worker. */
typedef struct attn_piece {
  attn_tile tile;
  u32 first_block, end_block;
  u32 slot;               /* of the tile's first unit; ATTN_WHOLE: the tile is not split */
  u32 early;              /* leading blocks that no op of this step writes, at most ATTN_EARLY */
} attn_piece;

/* A token of a split tile: unit u of head h is row (first + u * step) * heads + h of the partial results. */
typedef struct attn_part {
  u32 token, first, step, units;
} attn_part;

typedef struct attn_counts {
  u32 pieces, parts;
  u32 piece_chunks;       /* of every work item but the last of a tile: determines the units, attn_cut.h */
  u32 units_most;         /* most units of a part */
} attn_counts;

/* How the token of a logits row is chosen, or which token is scored. */
typedef struct sample_param {
  u64 seed;
  u64 top_p_fixed;  /* top_p * 2^32, 1 .. 2^32 (= off)            */
  f32 temperature;  /* 0: greedy                                  */
  f32 min_p_bound;  /* temperature * ln(min_p), at most 0: logits further below the largest are out; -Inf: off */
  f32 repetition;   /* penalties of `adjust`: 1, 0 and 0 are off  */
  f32 presence, frequency;
  u32 top_k;        /* 0: off                                     */
  u32 position;     /* absolute position the chosen token will have */
  u32 sample_index; /* which of the request's samples, 0 ..       */
  u32 slot;         /* holds the token for the next step; row of the block table and of the token lists */
  u32 prompt_count; /* history before this position is the prompt */
  i32 target;       /* -1: choose a token; else score this one    */
  u32 top_count;    /* alternatives wanted, 0 .. TOP_LOGPROBS_MAX */
  u32 adjusted;     /* 1: the token is chosen from the adjusted logits */
  u32 list_count;   /* entries of the slot's token list, 0 .. TOKEN_LIST_MAX */
  u32 list_only;    /* 1: only tokens in the list can be chosen             */
  u32 mask;         /* 1 + number of the step's token mask that the row has, 0: none; of `token_mask` */
} sample_param;

typedef struct token_bias { /* entry of a token list; no token is in a list twice */
  i32 token;
  f32 bias;
} token_bias;

typedef struct sample_result {
  i32 token;        /* chosen or scored                           */
  f32 logprob;      /* of the token, at temperature 1, before any adjustment or limit */
  u32 nonfinite;    /* 1: a logit was NaN or Inf; all else is 0 then */
  u32 rank;         /* number of tokens before it by logit        */
  f32 logit;        /* the token's                                */
} sample_result;

typedef struct top_logprob {
  i32 token;
  f32 logprob;
} top_logprob;

#endif
