/* plan/format.h - the bytes of a plan: what the planner writes and the engine maps. PLAN_FORMAT.md is the normative text.
 *
 * A plan is one file: header, then tables of plain structs, then a string table. Little-endian, naturally aligned, padding
 * explicit and zero, no pointers. It holds no weights; it names the tensors of the model directory and where each goes.
 * An op is executed when the step's launch row count (the graph size, or the exact count in a direct launch) lies in [rows_min, rows_max];
 * which of two alternatives runs never changes a bit. */
#ifndef VERBATIM_PLAN_FORMAT_H
#define VERBATIM_PLAN_FORMAT_H
#include <stdint.h>
#include "kernels_src/abi.h"
#include "base/limits.h"
#include "plan/format_grouped.h"
#include "plan/format_limits.h"
#include "plan/format_quant.h"

#define PLAN_MAGIC "VPLAN\r\n\x1a" /* 8 bytes, chosen so that a text-mode transfer damages them */
#define PLAN_FORMAT_VERSION 15u
#define NUMERICS_VERSION "verbatim-numerics 3"

typedef struct plan_span { /* a table: `count` items at `offset` (bytes from the start of the file, a multiple of 8) */
  uint64_t offset;
  uint32_t count;
  uint32_t item_bytes;
} plan_span;

/* Memory regions of the one device reservation. Region order is the order in memory. */
enum plan_region_id {
  REGION_WEIGHTS = 0, /* tensors, read-only after start-up                                   */
  REGION_TABLES = 1,  /* cos_sin and q_scale, computed at start-up, read-only after          */
  REGION_KV = 2,      /* [kept layers][pages][64] rows of the kv format, history, indexers' pages */
  REGION_STATE = 3,   /* sampled tokens by slot, grid barriers: survives between steps       */
  REGION_STEP = 4,    /* inputs of even steps, uploaded while the previous step runs         */
  REGION_RESULT = 5,  /* results of even steps, downloaded while the next step runs          */
  REGION_STEP_ODD = 6, /* the same for odd steps: ops name the even regions, and the engine substitutes these */
  REGION_RESULT_ODD = 7,
  REGION_WORK = 8,    /* activations and workspaces: undefined between steps, may be poison */
  REGION_COUNT = 9
};

typedef struct plan_region {
  uint32_t id;
  uint32_t pad;
  uint64_t offset; /* from the start of the reservation; a multiple of 256, and of 2 MiB for all but the small regions */
  uint64_t bytes;
} plan_region;

typedef struct plan_model { /* the parts of config.json that the engine needs */
  uint32_t layers, hidden, vocab, heads;
  uint32_t q_lora_rank, kv_lora_rank, nope_dim, rope_dim; /* q_lora_rank 0: one q_proj */
  uint32_t v_dim, experts, top_k, shared_experts;         /* experts 0: dense          */
  uint32_t dense_layers, moe_inter, inter, groups;
  uint32_t top_groups, scoring, group_mode, normalise;    /* enums of kernels_src/abi.h */
  uint32_t bos, eos_count;                                /* bos UINT32_MAX: none       */
  uint32_t eos[EOS_MAX];
  float norm_eps, latent_eps, routed_scale, softmax_scale_log2;
  float rope_attention_factor;
  uint32_t rope_half_split;                               /* pairs of rope columns: see abi.h */
  float embed_scale, residual_scale, head_scale;          /* 1: no effect                     */
  float q_scale_beta, q_scale_length;                     /* query scale by position; beta 0: none */
  uint32_t pad;
  float inv_freq[HEAD_DIM_MAX / 2]; /* of latent attention the first ROPE_DIM_MAX / 2 */
} plan_model;

typedef struct plan_io { /* byte offsets of the host's inputs and outputs, from the start of the named region */
  uint64_t step;        /* STEP: step_in [STEP_PARTS], with several ranks [STEP_PARTS + ranks] */
  uint64_t token;       /* STEP: i32 [max_batch_tokens]                */
  uint64_t position;    /* STEP: u32 [max_batch_tokens]                */
  uint64_t seq;         /* STEP: u32 [max_batch_tokens]                */
  uint64_t tiles;       /* STEP: attn_tile [max_batch_tokens]          */
  uint64_t logit_row;   /* STEP: u32 [max_logit_rows]                  */
  uint64_t sample;      /* STEP: sample_param [max_logit_rows]         */
  uint64_t block_table; /* STEP: u32 [max_seqs][pages_per_seq]; with token lists, these two end STEP and are uploaded by slot */
  uint64_t lists;       /* STEP: token_bias [max_seqs][TOKEN_LIST_MAX] */
  uint64_t sampled;     /* STATE: i32 [max_seqs]                       */
  uint64_t result;      /* RESULT: sample_result [max_logit_rows]      */
  uint64_t digest;      /* RESULT: u64 [max_logit_rows]                */
  uint64_t top;         /* RESULT: top_logprob [max_logit_rows][TOP_LOGPROBS_MAX] */
  uint64_t logits;      /* WORK: f32 [max_logit_rows][vocab]           */
  uint64_t cos_sin;     /* TABLES: f32 [max_len][rope_dim / 2][2]      */
  uint64_t q_scale;     /* TABLES: f32 [max_len]; 0 without it         */
  uint64_t history;     /* KV: i32 [kv_pages][64]                      */
  uint64_t prompt_tiles; /* STEP: attn_tile [max_batch_tokens]; with expand_pages, else 0 */
  uint64_t contexts;    /* STEP: step_context [max_seqs]; with expand_pages, else 0 */
  uint64_t index;       /* KV: [layers with an indexer][kv_pages][INDEX_PAGE_BYTES]; 0 without */
  uint64_t meetings;    /* STATE: u32 [ATTN_MEETINGS] grid barriers, initially zero; 0 if no attention splits a token over CTAs */
  uint64_t ranks;       /* STATE: exchange_ranks; this and the next two: with several ranks, else 0 */
  uint64_t exchange;    /* STATE: u32 [EXCHANGE_STATE_WORDS], initially zero */
  uint64_t inbox;       /* STATE: EXCHANGE_INBOX_BYTES, initially zero; written by the other ranks; 0 with NCCL */
  uint64_t rank_x;      /* RESULT: u64 [max_batch_tokens] digests of x, the same on all ranks; with several ranks, else 0 */
  uint64_t rank_head;   /* RESULT: u64 [max_logit_rows] of the head's input, as rank_x */
  uint64_t next;        /* STEP: i32 [max_batch_tokens]; this and the next two: with SPECULATION_MTP, else 0 */
  uint64_t drafts;      /* STEP: step_draft [max_seqs]                 */
  uint64_t draft;       /* RESULT: sample_result [draft_tokens][plan_draft_stride] */
  uint64_t own_tiles;   /* STEP: attn_tile [ranks][plan_own_tiles], of steps that attend by requests; 0 without them */
} plan_io;

enum plan_dtype { DTYPE_BF16 = 0, DTYPE_F32 = 1, DTYPE_E4M3 = 2 };
enum plan_transform {
  TRANSFORM_COPY = 0,     /* dest[batch][row][col] = source[row0 + batch * row_step + row][col]            */
  TRANSFORM_TRANSPOSE = 1 /* dest[batch][col][row] = source[row0 + batch * row_step + row][col]            */
};
#define PLAN_NO_SCALE UINT32_MAX
typedef struct plan_tensor { /* one source tensor (or a slice of it) and its place in REGION_WEIGHTS */
  uint32_t name;        /* string: the tensor's name in the safetensors files          */
  uint32_t dtype;       /* of source and destination                                   */
  uint32_t rows, cols;  /* shape of the whole source: [rows][cols], or [cols] (rows 1) */
  uint32_t row0, row_count, row_step, batches;
  uint32_t rank_step;   /* rank r takes rows from row0 + r * rank_step on; 0: all ranks have the same rows */
  uint32_t transform;
  uint32_t scale_name;  /* string: name of the source's scales, f32 [ceil(rows / 128)][ceil(cols / 128)]: the source is e4m3, and the
                           destination holds codes times scales in bf16; PLAN_NO_SCALE: none */
  uint32_t pad;
  uint64_t offset;      /* destination, bytes in REGION_WEIGHTS, contiguous            */
} plan_tensor;

typedef struct plan_buffer { /* for people, the checker and poisoning; ops address memory only through fixups */
  uint32_t name;
  uint32_t region;
  uint64_t offset, bytes;
  uint32_t first_op, last_op; /* lifetime, inclusive; 0 .. UINT32_MAX: always */
} plan_buffer;

typedef struct plan_spec { /* one SPEC_<name> constant of a kernel */
  uint32_t name;
  uint32_t value;
} plan_spec;

typedef struct plan_kernel { /* one specialisation of a kernel source */
  uint32_t kernel;           /* index in kernels.def                      */
  uint32_t first_spec, spec_count;
  uint32_t threads;          /* block size                                */
  uint32_t shared_bytes;     /* dynamic shared memory                     */
  uint32_t pad;
} plan_kernel;

typedef struct plan_dim { /* grid extent = min(cap or infinity, constant + ceil(rows * rows_mul / rows_div)), rows_div 0: constant */
  uint32_t constant, rows_mul, rows_div, cap;
} plan_dim;

/* Ops of the side branch and the main ops between them and the next joining op are independent of each other: in steps of at most
 * split_rows_max token rows the two branches may run concurrently. Not in steps of one row, whose kernels start early and hold the shared
 * memory that a side branch needs; there ops overlap by the order in their arguments (enum op_order). */
enum plan_branch { BRANCH_MAIN = 0, BRANCH_SIDE = 1, BRANCH_JOIN = 2 };
#define BRANCH_ROWS_MIN 2u

/* A plan is the same for all its ranks, and so is the layout of their memory. Rank r has its own rows of the tensors with a rank_step and
 * computes its own columns or heads of what these are multiplied with. rank_columns of an op: the row of a result as a plan of one rank has
 * it is rank_columns columns of rank 0, of rank 1, ..., then the columns behind them, which all ranks have. 0: all ranks compute the same;
 * more columns than a row has: all of them are divided. Results that `ops` call replicated are the same on all ranks anyway. */
typedef struct plan_op {
  uint32_t kernel;                 /* index in kernels.def: the operation               */
  uint32_t variant;                /* index in the plan's kernel table: the GPU variant */
  uint32_t name;                   /* string, e.g. "layer 3 o_proj"                     */
  uint32_t layer;                  /* UINT32_MAX: none                                  */
  uint32_t rows_kind;              /* launch rows: enum rows_kind of abi.h              */
  uint32_t rows_min, rows_max;     /* executed if the launch row count of its kind is in this range */
  uint32_t first_gemm, gemm_count; /* pinned library algorithms by row range, else our kernel */
  uint32_t args_offset, args_bytes; /* in the args blob                                 */
  uint32_t first_fixup, fixup_count;
  uint32_t branch;                 /* enum plan_branch */
  uint32_t rank_columns;           /* leading columns of each result row that only this rank computes: see above */
  uint32_t point_order;            /* of its trace points among those of all ops: the same in every plan of a model */
  plan_dim grid[3];
} plan_op;

typedef struct plan_fixup { /* args[args_offset] (8 bytes) = address of region + offset + rank * rank_step * RANK_STEP_BYTES */
  uint32_t args_offset; /* inside the op's args */
  uint16_t region;
  uint16_t rank_step;   /* only of ops of ROWS_OWN and ROWS_BY_REQUESTS, and of exchanges */
  uint64_t offset;
} plan_fixup;
#define RANK_STEP_BYTES 16u

typedef struct plan_gemm { /* a cuBLASLt algorithm that was found to give H16's bits for one op's shape */
  uint32_t rows_min, rows_max;
  uint64_t algo[8];          /* cublasLtMatmulAlgo_t                */
  uint64_t workspace_bytes;
  uint64_t library_version;  /* cublasLtGetVersion of its library */
  uint32_t is_optional;      /* without that library: 1: use our kernel, 0: the engine does not start */
  uint32_t pad;
} plan_gemm;

typedef struct plan_product { /* only in profiles, not in plans: an algorithm for all products of a shape */
  uint32_t n, k, y_f32, pad;
  plan_gemm gemm;
} plan_product;

enum plan_guarantee_status { GUARANTEE_PROVEN = 0, GUARANTEE_TESTED = 1, GUARANTEE_EXCLUDED = 2 };
typedef struct plan_guarantee {
  uint32_t axis;   /* string, e.g. "chunk_cut" */
  uint32_t status;
  uint32_t reason; /* string */
  uint32_t pad;
} plan_guarantee;

typedef struct plan_header {
  char magic[8];
  uint32_t format_version, header_bytes;
  uint64_t file_bytes;
  uint8_t digest[16];       /* XXH3-128 of the file with these 16 bytes zero */
  uint8_t numerics_id[16];
  uint8_t config_digest[16]; /* XXH3-128 of the config.json that the plan was made from */
  plan_model model;
  plan_quant quant;
  plan_grouped grouped;
  plan_limits limits;
  plan_io io;
  uint64_t device_bytes;    /* the one device reservation */
  uint64_t gemm_workspace;  /* offset of the library workspace in REGION_WORK */
  uint64_t gemm_workspace_bytes;
  plan_span regions;        /* plan_region [REGION_COUNT], in id order      */
  plan_span tensors, buffers, specs, kernels, ops, fixups, gemms, guarantees;
  plan_span ladder;         /* uint32_t, ascending token counts of captured decode graphs     */
  plan_span args;           /* bytes                                                          */
  plan_span strings;        /* bytes, each string NUL-terminated; references are byte offsets */
  plan_span notes;          /* uint32_t strings: notes on what the planner ignored or assumed */
} plan_header;
_Static_assert(sizeof(plan_span) == 16 && sizeof(plan_region) == 24 && sizeof(plan_model) == 680, "layout");
_Static_assert(sizeof(plan_limits) == 80 && sizeof(plan_io) == 240 && sizeof(plan_tensor) == 56, "layout");
_Static_assert(sizeof(plan_buffer) == 32 && sizeof(plan_kernel) == 24 && sizeof(plan_dim) == 16, "layout");
_Static_assert(sizeof(plan_op) == 112 && sizeof(plan_fixup) == 16 && sizeof(plan_gemm) == 96, "layout");
_Static_assert(sizeof(plan_guarantee) == 16 && sizeof(plan_header) % 8 == 0, "layout");

#include "plan/format_rows.h"
#include "plan/format_kv.h"

#endif
