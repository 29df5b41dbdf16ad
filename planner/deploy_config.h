/* deploy_config.h - the deployment file (YAML, or JSON, which is YAML): sizes of the machine and of its work.
 *
 * A flat mapping of known keys; an unknown key is an error that names the nearest known one. Only chunk-tokens, group-chunks, parity,
 * latent-norm-eps, kv-cache-dtype and kv-cache-scales can change a bit. Read next: planner.h, which fills in the defaults that need the
 * model. */
#ifndef VERBATIM_DEPLOY_CONFIG_H
#define VERBATIM_DEPLOY_CONFIG_H
#include "engine/base/base.h"
#include "engine/base/limits.h"

/* AUTO, in place of a plan_speculation: MTP and prompt lookup if the model has a prediction layer, else prompt lookup alone. */
#define DEPLOY_SPECULATION_AUTO 3u

enum deploy_kv_dtype { DEPLOY_KV_AUTO = 0, DEPLOY_KV_BF16 = 1, DEPLOY_KV_FP8 = 2, DEPLOY_KV_FP8_DS_MLA = 3 };

typedef struct deploy_config { /* 0: not given, unless stated otherwise */
  uint32_t max_seqs;            /* default 64                                                    */
  uint32_t max_batch_tokens;    /* default the larger of 2048 and max_seqs                       */
  uint32_t max_len;             /* default the smaller of 4096 and the model's own               */
  uint32_t max_logit_rows;      /* default max_seqs                                              */
  uint32_t kv_pages;            /* one of kv_pages and kv_memory_bytes, or neither               */
  uint32_t memory_ppm;          /* gpu-memory-utilization in millionths; default 900000         */
  uint64_t kv_memory_bytes;
  uint64_t device_memory_bytes; /* 0: the plan's size is not checked                             */
  uint32_t chunk_tokens;        /* default 256 */
  uint32_t group_chunks;        /* default 8   */
  uint32_t parity;              /* enum plan_parity                                              */
  uint32_t expand_tokens;       /* of contexts in the prompts' workspace, a multiple of 64; default: see planner.c */
  uint32_t latent_eps_of_config; /* 0: 1e-6 as HF does, 1: rms_norm_eps of config.json          */
  uint32_t kv_dtype;            /* enum deploy_kv_dtype; auto: follows from the model                */
  uint32_t kv_scales_f32;       /* for fp8_ds_mla: 0 powers of two, 1 any fp32                       */
  uint32_t tensor_parallel;     /* tensor-parallel-size: GPUs that share the model, default 1        */
  uint32_t speculation;         /* enum plan_speculation; these four are keys of speculative-config  */
  uint32_t draft_tokens;        /* default 4; requires a method                                      */
  uint32_t match_min, match_max; /* for ngram; default 3, and the larger of 8 and match_min          */
  uint32_t requests_context;    /* attention-by-requests-from: see plan_limits; 0: never */
  uint32_t divided_rows;        /* divide-rows-from: see graph_rows.h; default: see planner.c; means nothing with one GPU */
  uint32_t transport;           /* exchange-transport: enum plan_transport; means nothing with one GPU */
  uint32_t structured;          /* structured-outputs: 0 off, 1 on: steps have token masks               */
  uint32_t ladder_count;        /* default: powers of two up to max_seqs, and max_seqs           */
  uint32_t ladder[LADDER_MAX];  /* strictly ascending                                            */
} deploy_config;

/* text: not NUL-terminated, at most FILE_CONFIG_BYTES_MAX; empty text means defaults. ERR_FORMAT names the error: not YAML, an unknown key,
 * or a value of the wrong form or out of range. ERR_UNSUPPORTED: a way of dividing a model that is not
 * offered. */
status deploy_config_parse(const char *text, size_t bytes, deploy_config *out);

/* The known keys by index; NULL after the last. */
const char *deploy_config_key(uint32_t index);

/* The present name of a renamed key; NULL: not a renamed key. */
const char *deploy_config_renamed(const char *key);

#endif
