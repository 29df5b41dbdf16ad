/* abi_ranks.h - a part of abi.h: the ops that move bytes between the ranks of one plan (a rank is one GPU of the process).
 *
 * All ranks have the same layout of memory, so an address of another rank is the own one plus a number. Read next: ranks/exchange.cu. */
#ifndef VERBATIM_ABI_RANKS_H
#define VERBATIM_ABI_RANKS_H
#include "step.h"

#define RANKS_MAX 16u
#define EXCHANGE_TABLES 4u

/* Most bytes of a rank that an exchange sends as words with tags; the grid of one that sends more; distance of flags. */
#define EXCHANGE_TAGGED_BYTES (256u << 10)
#define EXCHANGE_BLOCKS_MAX 132u
#define EXCHANGE_FLAG_BYTES 32u

/* `inbox`: flags [ranks][1 + EXCHANGE_BLOCKS_MAX], EXCHANGE_FLAG_BYTES apart, then words [2][ranks * EXCHANGE_TAGGED_BYTES * 2 bytes].
 * Epochs count exchanges by 32 bits. Before one repeats, inbox and state of all ranks are zeroed while no rank runs: at the latest after
 * EXCHANGE_STEPS_MAX steps of at most EXCHANGE_PER_STEP_MAX exchanges. */
#define EXCHANGE_FLAGS_BYTES(ranks) ((ranks) * (1u + EXCHANGE_BLOCKS_MAX) * EXCHANGE_FLAG_BYTES)
#define EXCHANGE_PARITY_BYTES(ranks) ((ranks) * EXCHANGE_TAGGED_BYTES * 2u)
#define EXCHANGE_INBOX_BYTES(ranks) (EXCHANGE_FLAGS_BYTES(ranks) + 2u * EXCHANGE_PARITY_BYTES(ranks))
#define EXCHANGE_STEPS_MAX (1u << 22)
#define EXCHANGE_PER_STEP_MAX 1023u

/* EXCHANGE_DIGEST: u64, the sum of num_digest_word over the y of sampled exchanges. EXCHANGE_IS_CHECKED takes one epoch in
 * 2^sample_bits, at irregular intervals, so that every exchange of a step is sampled at some step. Ranks whose digests differ have
 * received other bytes. EXCHANGE_BALANCE: u64, of those of forms EXCHANGE_OWNERS and EXCHANGE_PARTS, which leave other bytes on every
 * rank: the same sum over what a rank had to send, less that over what it then had. The balances of all ranks add up to 0. */
enum exchange_state {
  EXCHANGE_EPOCH = 0, EXCHANGE_TICKET = 1, EXCHANGE_LATE = 2, EXCHANGE_DIGEST = 4, EXCHANGE_BALANCE = 6, EXCHANGE_STATE_WORDS = 8
};
#define EXCHANGE_IS_CHECKED(epoch, sample_bits) ((u64)((epoch) * 0x9e3779b1u) >> (32u - (sample_bits)) == 0u)
#define EXCHANGE_SAMPLE_BITS 4u

typedef struct exchange_ranks { /* where a rank is among the ranks; written once at start-up, different on every rank */
  u32 rank, count;
  u64 peer[RANKS_MAX]; /* add to an address of this rank: the same byte of that rank's memory, modulo 2^64; 0 for itself */
  u64 record;          /* address of an exchange_record in host memory that the device can write, or 0 */
  u64 timeout_ns;      /* longest wait for another rank; 0: for ever */
  u32 sample_bits;     /* one exchange in 2^sample_bits adds to EXCHANGE_DIGEST; 0: every one */
  u32 pad;
} exchange_ranks;

typedef struct exchange_record { /* written once, by the first wait that ran out, before the kernel traps */
  u32 is_written, rank, waited_for, op; /* op: exchange_args.nth */
  u64 epoch;
} exchange_record;

enum exchange_form {
  EXCHANGE_COLUMNS = 0, /* every rank has its columns of all rows in x; afterwards all ranks have those of all in y            */
  EXCHANGE_OWNERS = 1,  /* the same, but only the rank that owns a row has the columns of all of it in y (step.h)              */
  EXCHANGE_ROWS = 2,    /* every rank has the rows that it owns in x; afterwards all ranks have those of all in y; rows_mul 1  */
  EXCHANGE_PARTS = 3    /* the reverse of EXCHANGE_OWNERS: every rank has all columns of the rows that it owns in x, in their places;
                           afterwards all ranks have their own columns of all rows in y; rows_mul 1 */
};

/* Moves what ranks have of the rows of a step. Returns once it is there. x and y may be the same rows only in form EXCHANGE_ROWS. */
typedef struct exchange_args {
  const step_in *step;
  const exchange_ranks *ranks;
  const void *x[EXCHANGE_TABLES]; /* [rows * rows_mul] of part_bytes each: what this rank has; null after the last table. In form
                                     EXCHANGE_PARTS of count * part_bytes: the columns of rank 0, of rank 1, ... */
  void *y[EXCHANGE_TABLES];       /* [rows * rows_mul] of count * part_bytes: the columns of rank 0, of rank 1, ...; or, in forms
                                     EXCHANGE_ROWS and EXCHANGE_PARTS, of part_bytes */
  void *inbox;                    /* [EXCHANGE_INBOX_BYTES], zero at first: what other ranks write                           */
  u32 *state;                     /* [EXCHANGE_STATE_WORDS], zero at first                                                   */
  u32 part_bytes[EXCHANGE_TABLES]; /* a multiple of 8; 0 after the last table, as the next three */
  u32 rows_mul[EXCHANGE_TABLES];   /* table rows for each launch row                             */
  u32 x_stride[EXCHANGE_TABLES];   /* form EXCHANGE_ROWS: bytes between rows, multiples of 8, as the next; else 0 */
  u32 y_stride[EXCHANGE_TABLES];
  u32 rows_kind;
  u32 nth;                         /* number of the exchange in the plan, for messages           */
  u32 count;                       /* of ranks                                                   */
  u32 form;                        /* enum exchange_form                                         */
} exchange_args;

/* Whether x holds the rows that a rank owns, and not its columns of all rows. */
#define EXCHANGE_HAS_OWN_ROWS(form) ((form) == EXCHANGE_ROWS || (form) == EXCHANGE_PARTS)
/* Whether each number in x goes to one rank, not to all. */
#define EXCHANGE_IS_TO_ONE(form) ((form) == EXCHANGE_OWNERS || (form) == EXCHANGE_PARTS)

/* Launch rows of rank_norm, one block each, which run all at once; and columns of a row, which its block holds whole. */
#define RANK_NORM_ROWS_MAX 128u
#define RANK_NORM_COLUMNS_MAX 8192u

/* A norm of rows of which each rank has its own columns of what is added: an exchange, and moe_fold before it, as part of the norm. */
typedef struct rank_norm_args {
  const step_in *step;
  const exchange_ranks *ranks;
  const f32 *x;           /* [T][dim]                                                                            */
  const f32 *delta;       /* [T][part] this rank's columns; with experts: those of the shared expert, or null    */
  const f32 *experts;     /* [T * top_k][part] sorted rows, weighted and added first; or null, as the next two   */
  const u32 *pair_row;    /* [T][top_k] sorted row of a token's k-th expert                                      */
  const f32 *topk_weight; /* [T][top_k]                                                                          */
  f32 *x_out;             /* [T][dim] x + delta; may be x                                                        */
  const bf16 *weight;     /* [dim]                                                                               */
  bf16 *y;                /* [T][y_stride]                                                                       */
  void *inbox;            /* these two are those of `exchange`, which takes turns with this op                   */
  u32 *state;
  u32 dim, part;          /* part: columns of a rank, a multiple of 4; dim is count times as many                */
  u32 y_stride;           /* a multiple of 4                                                                     */
  u32 top_k;              /* 0 without experts                                                                   */
  f32 eps, delta_scale, y_scale;
  u32 count, nth;         /* of ranks; number of the exchange in the plan, for messages                          */
  u32 pad;
} rank_norm_args;

#endif
