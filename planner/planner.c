/* planner.c - see planner.h. Owns the defaults that need the model, the KV budget and the search for a setting that fits. */
#include "planner.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "abi.h"
#include "checks/check.h"
#include "deploy_config.h"
#include "draft.h"
#include "emit.h"
#include "graph.h"
#include "guarantees.h"
#include "model_config.h"
#include "place.h"
#include "engine/plan/spread.h"
#include "profile.h"

#define EXPAND_TOKENS_DEFAULT_MAX 65536u
#define WIDEN_TOKENS_DEFAULT 65536u
#define DRAFT_TOKENS_DEFAULT 4u
#define DRAFT_TOKENS_MTP 1u /* later passes of the one layer are right less often */
#define MATCH_MIN_DEFAULT 3u /* shorter matches are wrong too often to pay for their rows */
#define MATCH_MAX_DEFAULT 8u
#define NARROW_HEADS_MAX 32u /* limit of the attention form for few heads */
#define LATENT_EPS_HF 1e-6f /* HF builds the latent norms without an eps of their own */

typedef struct sources { /* parsed inputs */
  model_config model; /* with the formats chosen by the deployment */
  deploy_config deploy;
  profile known;
  const char *shipped; /* name of the profile if it ships with the program */
  uint64_t budget_bytes; /* 0: not limited */
} sources;

/* === Limits ============================================================================================================= */

static uint32_t or_default(uint32_t given, uint32_t fallback) { return given ? given : fallback; }

static uint64_t page_bytes(const sources *s, const plan_limits *l) {
  return plan_page_bytes(&s->model.plan, &s->model.quant, &s->model.grouped, l);
}

/* The pages that the deployment states, or UINT32_MAX: as many as are useful and fit. */
static status resolve_pages(const sources *s, plan_limits *l) {
  uint64_t pages = s->deploy.kv_pages;
  if (s->deploy.kv_memory_bytes) pages = s->deploy.kv_memory_bytes / page_bytes(s, l);
  bool is_given = s->deploy.kv_pages || s->deploy.kv_memory_bytes;
  uint64_t useful = (uint64_t)l->max_seqs * l->pages_per_seq;
  if (!is_given) {
    l->kv_pages = UINT32_MAX;
    return useful <= KV_PAGES_MAX ? OK
                                  : FAIL(ERR_LIMIT, "deployment: max-num-seqs * max-model-len takes %llu KV pages, at most %u; hint: "
                                                    "set kv-pages",
                                         (unsigned long long)useful, KV_PAGES_MAX);
  }
  if (pages > KV_PAGES_MAX)
    return FAIL(ERR_LIMIT, "deployment: %llu KV pages, at most %u; hint: %llu are enough for max-num-seqs sequences of max-model-len",
                (unsigned long long)pages, KV_PAGES_MAX, (unsigned long long)useful);
  if (pages < l->pages_per_seq)
    return FAIL(ERR_LIMIT, "deployment: %llu KV pages of 64 tokens do not hold one sequence of max-model-len %u, which takes %u; "
                "hint: kv-pages: %u or max-model-len: %llu", (unsigned long long)pages, l->max_len, l->pages_per_seq, l->pages_per_seq,
                (unsigned long long)(pages ? pages * PAGE_TOKENS : PAGE_TOKENS));
  l->kv_pages = (uint32_t)pages;
  return OK;
}

/* The head sizes that engine/self_check/mla_prefill.c has known answers for. */
static bool has_prefill_heads(const plan_model *m) {
  static const uint32_t HEADS[][3] = {{64, 32, 64}, {64, 64, 64}, {64, 64, 128}, {128, 64, 128}, {192, 64, 256}};
  for (size_t i = 0; i < ARRAY_LEN(HEADS); i++)
    if (HEADS[i][0] == m->nope_dim && HEADS[i][1] == m->rope_dim && HEADS[i][2] == m->v_dim) return true;
  return false;
}

/* Pages of contexts that a step may dequantize. In a model of few heads, rows of any format are read at memory speed. Not so where a rank
 * has few heads of many: 4 H200, 8 layers of DeepSeek-V3, a prompt of 8,192 tokens over fp8_ds_mla: 196 ms, dequantized 90. */
static status resolve_widening(const sources *s, plan_limits *l) {
  const bool is_narrow = s->model.quant.kv_format != KV_BF16, is_given = s->deploy.expand_tokens > 0;
  if (!is_narrow && is_given)
    return FAIL(ERR_FORMAT, "deployment: expand-tokens requires parity fast-prefill, or a KV cache other than bf16; hint: parity: "
                            "fast-prefill");
  const uint64_t useful = min_u64((uint64_t)l->max_seqs * l->max_len, WIDEN_TOKENS_DEFAULT);
  uint32_t tokens = max_u32(l->max_len, (uint32_t)useful);
  if (is_given) tokens = s->deploy.expand_tokens;
  const bool has_many_heads = s->model.plan.heads > NARROW_HEADS_MAX;
  if (is_narrow && (is_given || has_many_heads)) l->expand_pages = (uint32_t)div_up(tokens, PAGE_TOKENS);
  return OK;
}

/* Pages of contexts that are expanded at a time; longer or more contexts take several passes. */
static status resolve_parity(const sources *s, plan_limits *l) {
  const plan_model *m = &s->model.plan;
  l->parity = s->deploy.parity;
  if (l->parity == PARITY_STRICT) return resolve_widening(s, l);
  if (!has_prefill_heads(m))
    return FAIL(ERR_UNSUPPORTED, "deployment: parity: fast-prefill does not support heads of qk_nope_head_dim %u, qk_rope_head_dim %u and "
                "v_head_dim %u; hint: strict", m->nope_dim, m->rope_dim, m->v_dim);
  uint64_t useful = UINT64_C(8) * l->max_len, pages = UINT64_C(4) * l->max_seqs;
  uint64_t tokens = useful > pages * PAGE_TOKENS ? useful : pages * PAGE_TOKENS;
  if (s->deploy.expand_tokens) tokens = s->deploy.expand_tokens;
  else if (tokens > EXPAND_TOKENS_DEFAULT_MAX) tokens = EXPAND_TOKENS_DEFAULT_MAX;
  l->expand_pages = (uint32_t)div_up(tokens, PAGE_TOKENS);
  return OK;
}

/* The head sizes that engine/self_check/attn.c has known answers for. */
static bool has_grouped_heads(const plan_model *m) {
  static const uint32_t HEADS[][2] = {{64, 64}, {80, 80}, {96, 96}, {112, 112}, {128, 128}, {160, 160}, {192, 128}, {192, 192}, {256, 256}};
  for (size_t i = 0; i < ARRAY_LEN(HEADS); i++)
    if (HEADS[i][0] == m->nope_dim + m->rope_dim && HEADS[i][1] == m->v_dim) return true;
  return false;
}

/* What grouped-query attention has no use for, or not yet. */
static status check_grouped(const sources *s) {
  const plan_model *m = &s->model.plan;
  const uint32_t head_dim = m->nope_dim + m->rope_dim;
  if (s->deploy.parity != PARITY_STRICT)
    return FAIL(ERR_UNSUPPORTED, "deployment: parity: fast-prefill is for latent attention; in this model prompts and generated tokens "
                                 "have one form; hint: parity: strict");
  if (s->model.quant.kv_format == KV_FP8_DS_MLA || s->deploy.kv_scales_f32)
    return FAIL(ERR_UNSUPPORTED, "deployment: kv-cache-dtype: fp8_ds_mla is for latent attention; hint: fp8 or bf16");
  if (s->deploy.group_chunks > 1)
    return FAIL(ERR_UNSUPPORTED, "deployment: group-chunks is %u, expected 1 in a model with grouped-query attention",
                s->deploy.group_chunks);
  if (!has_grouped_heads(m))
    return FAIL(ERR_UNSUPPORTED, "config.json: heads of %u columns and values of %u are not supported; 64, 80, 96, 112, 128, 160, 192 and "
                "256 are", head_dim, m->v_dim);
  if (s->model.quant.weight_format != WEIGHTS_E4M3 || (head_dim % SCALE_COLUMNS == 0 && m->v_dim % SCALE_COLUMNS == 0)) return OK;
  return FAIL(ERR_UNSUPPORTED, "config.json: heads of %u and %u columns have no whole blocks of 128 rows of e4m3 weights; hint: use a bf16 "
                               "copy", head_dim, m->v_dim);
}

/* The format of the KV cache. DeepSeek's and Zhipu's own deployments of sparse e4m3 models keep it in fp8. */
static status resolve_formats(sources *s) {
  const deploy_config *d = &s->deploy;
  plan_quant *q = &s->model.quant;
  const bool is_sparse = q->index_heads != 0, is_e4m3 = q->weight_format == WEIGHTS_E4M3, has_rank = s->model.plan.kv_lora_rank == 512;
  const bool is_grouped = plan_is_grouped(&s->model.grouped);
  uint32_t dtype = d->kv_dtype;
  if (dtype == DEPLOY_KV_AUTO) dtype = is_sparse && is_e4m3 && has_rank ? DEPLOY_KV_FP8_DS_MLA : DEPLOY_KV_BF16;
  q->kv_format = dtype == DEPLOY_KV_FP8_DS_MLA ? KV_FP8_DS_MLA : dtype == DEPLOY_KV_FP8 ? KV_FP8 : KV_BF16;
  if (is_grouped) return check_grouped(s);
  if (q->kv_format == KV_FP8_DS_MLA && !has_rank)
    return FAIL(ERR_UNSUPPORTED, "deployment: kv-cache-dtype: fp8_ds_mla needs kv_lora_rank 512, the model has %u; hint: fp8 or bf16",
                s->model.plan.kv_lora_rank);
  if (d->kv_scales_f32 && q->kv_format != KV_FP8_DS_MLA)
    return FAIL(ERR_FORMAT, "deployment: kv-cache-scales requires kv-cache-dtype fp8_ds_mla; hint: kv-cache-dtype: fp8_ds_mla");
  if (q->kv_format == KV_FP8_DS_MLA) q->kv_scale = d->kv_scales_f32 ? SCALE_F32 : SCALE_POW2;
  if (d->parity == PARITY_STRICT || !is_sparse) return OK;
  return FAIL(ERR_UNSUPPORTED, "deployment: parity: fast-prefill requires dense attention, but the model's is sparse; hint: parity: "
                               "strict");
}

/* Whether so many ranks can divide the heads: each with the same number, and whole blocks of scales of their queries' weights. */
static bool can_divide(const sources *s, uint32_t ranks) {
  const plan_model *m = &s->model.plan;
  const uint32_t rows = m->heads / ranks * (m->nope_dim + m->rope_dim);
  if (ranks == 1 || (plan_is_grouped(&s->model.grouped) && ranks <= RANKS_MAX)) return true; /* what cannot be divided all ranks have */
  return ranks <= RANKS_MAX && m->heads % ranks == 0 && (s->model.quant.weight_format != WEIGHTS_E4M3 || rows % SCALE_COLUMNS == 0);
}

static uint32_t distance(uint32_t a, uint32_t b) { return a > b ? a - b : b - a; }

static status resolve_ranks(const sources *s, plan_limits *l) {
  const uint32_t wanted = or_default(s->deploy.tensor_parallel, 1);
  l->ranks = wanted;
  l->transport = wanted > 1 ? s->deploy.transport : TRANSPORT_PEER;
  if (can_divide(s, wanted)) return OK;
  uint32_t nearest = 1;
  for (uint32_t n = 1; n <= RANKS_MAX; n++)
    if (can_divide(s, n) && distance(n, wanted) <= distance(nearest, wanted)) nearest = n;
  return FAIL(ERR_UNSUPPORTED, "deployment: tensor-parallel-size: %u devices cannot divide %u heads of %u columns%s evenly, at most %u can "
              "share a model; hint: tensor-parallel-size: %u", wanted, s->model.plan.heads, s->model.plan.nope_dim + s->model.plan.rope_dim,
              s->model.quant.weight_format == WEIGHTS_E4M3 ? " in blocks of 128" : "", RANKS_MAX, nearest);
}

/* Token rows from which on steps divide them. A GPU then sends the fp32 columns of a row to one other rather than to all, and the norm's
 * rows, of half the bytes or a quarter, to all, which takes two exchanges more for each layer. Graphs of decode steps keep to one form. */
#define DIVIDED_ROWS_DEFAULT 512u

static uint32_t divided_rows(const sources *s, const plan_limits *l) {
  if (l->ranks == 1 || l->transport == TRANSPORT_NCCL) return 0;
  return or_default(s->deploy.divided_rows, max_u32(DIVIDED_ROWS_DEFAULT, l->split_rows_max + 1));
}

/* Attention by requests is for latent attention that reads whole contexts: top-k lists bound what is read, and KV heads are divided. */
static bool can_attend_by_requests(const sources *s, const plan_limits *l) {
  return l->ranks > 1 && l->transport == TRANSPORT_PEER && !plan_is_grouped(&s->model.grouped) && s->model.quant.index_heads == 0 &&
         l->split_rows_max >= l->ranks;
}

static void resolve_requests(const sources *s, plan_limits *l) {
  if (s->deploy.requests_context == 0 || !can_attend_by_requests(s, l)) return;
  l->requests_rows = l->ranks;
  l->requests_context = s->deploy.requests_context;
}

/* The prediction layer can be used. */
static bool can_predict(const sources *s) {
  return s->model.prediction_layers > 0 && s->model.plan.layers < LAYERS_MAX && s->deploy.parity == PARITY_STRICT;
}

/* Every sequence may have its newest token and as many guesses in a step, each with a logits row. */
static void resolve_speculation(const sources *s, plan_limits *l) {
  const deploy_config *d = &s->deploy;
  const bool is_auto = d->speculation == DEPLOY_SPECULATION_AUTO;
  l->speculation = !is_auto ? d->speculation : can_predict(s) ? SPECULATION_MTP : SPECULATION_NGRAM;
  l->max_logit_rows = or_default(d->max_logit_rows, l->max_seqs);
  if (d->speculation == SPECULATION_OFF) return;
  l->draft_tokens = or_default(d->draft_tokens, plan_has_mtp(l) ? DRAFT_TOKENS_MTP : DRAFT_TOKENS_DEFAULT);
  if (d->max_logit_rows == 0) l->max_logit_rows = max_u32(l->max_seqs, min_u32(l->max_seqs * (1 + l->draft_tokens), l->max_batch_tokens));
  if (plan_has_mtp(l) && !is_auto) return;
  l->match_min = or_default(d->match_min, MATCH_MIN_DEFAULT);
  l->match_max = or_default(d->match_max, max_u32(MATCH_MAX_DEFAULT, l->match_min));
}

/* Whether the model has the layer that drafts are to come from. */
static status check_prediction(const sources *s) {
  if (s->deploy.speculation != SPECULATION_MTP) return OK;
  if (s->model.prediction_layers == 0)
    return FAIL(ERR_UNSUPPORTED, "deployment: speculative-config: method: mtp needs a model with prediction layers, but config.json has no "
                                 "num_nextn_predict_layers above 0%s; hint: method: ngram",
                s->model.may_predict ? "" : ", which is not read of this model_type");
  if (s->model.plan.layers == LAYERS_MAX)
    return FAIL(ERR_UNSUPPORTED, "deployment: speculative-config: method: mtp supports models of at most %u layers, this one has %u; hint: "
                                 "method: ngram", LAYERS_MAX - 1, s->model.plan.layers);
  if (s->deploy.parity == PARITY_STRICT) return OK;
  return FAIL(ERR_UNSUPPORTED, "deployment: speculative-config: method: mtp requires parity: strict, found fast-prefill; hint: "
                               "parity: strict, or method: ngram");
}

/* Most tokens of a tile. Under sparse attention each token has its own list. Pages of grouped-query attention are divided evenly. */
static uint32_t tile_tokens(const sources *s, const plan_limits *l) {
  const plan_model *m = &s->model.plan;
  const plan_grouped *grouped = &s->model.grouped;
  if (s->model.quant.index_heads) return 1;
  if (!plan_is_grouped(grouped)) return max_u32(1, 64 / plan_rank_heads(m, grouped, l));
  const uint32_t most = ATTN_GROUPED_TILE_ROWS / (m->heads / grouped->kv_heads);
  return most > PAGE_TOKENS ? most : (uint32_t)div_up(PAGE_TOKENS, div_up(PAGE_TOKENS, most));
}

static status resolve_limits(const sources *s, plan_limits *l) {
  const deploy_config *d = &s->deploy;
  const plan_model *m = &s->model.plan;
  uint32_t longest = min_u32(s->model.max_position, LENGTH_MAX);
  TRY(check_prediction(s));
  TRY(resolve_ranks(s, l));
  l->max_seqs = or_default(d->max_seqs, 64);
  l->max_batch_tokens = or_default(d->max_batch_tokens, max_u32(2048, l->max_seqs));
  l->max_len = or_default(d->max_len, min_u32(min_u32(4096, longest), s->model.window ? s->model.window : longest));
  resolve_speculation(s, l);
  /* A chunk ends with a fold of all columns of all heads, so many heads favour fewer chunks, and few heads more, over which one request can
   * be split. Top-k lists of more than 64 heads, which can be split over CTAs differently, have a single chunk. */
  l->chunk_tokens = or_default(d->chunk_tokens, ATTN_SPREAD_PLACES);
  if (d->chunk_tokens == 0 && plan_is_grouped(&s->model.grouped)) l->chunk_tokens = 512;
  else if (d->chunk_tokens == 0 && !(m->heads > 64 && plan_may_spread(m, &s->model.quant, l, m->heads)))
    l->chunk_tokens = m->heads >= 64 ? 512 : 256;
  l->group_chunks = or_default(d->group_chunks, plan_is_grouped(&s->model.grouped) ? 1 : 2048 / l->chunk_tokens);
  l->attn_tile_tokens = tile_tokens(s, l);
  l->pages_per_seq = (uint32_t)div_up(l->max_len, PAGE_TOKENS);
  TRY(resolve_parity(s, l));
  if (s->model.window && l->max_len > s->model.window)
    return FAIL(ERR_UNSUPPORTED, "deployment: max-model-len is %u, but the model's queries see %u tokens (sliding_window), which is not "
                "supported; hint: max-model-len: %u", l->max_len, s->model.window, s->model.window);
  if (l->max_len > longest)
    return FAIL(ERR_LIMIT, "deployment: max-model-len is %u, the model's max_position_embeddings %u", l->max_len, s->model.max_position);
  if (l->max_batch_tokens < l->max_seqs)
    return FAIL(ERR_LIMIT, "deployment: max-num-batched-tokens is %u, less than max-num-seqs %u: a step must hold one token of each",
                l->max_batch_tokens, l->max_seqs);
  if (l->max_logit_rows < l->max_seqs || l->max_logit_rows > l->max_batch_tokens)
    return FAIL(ERR_LIMIT, "deployment: max-logit-rows is %u, expected max-num-seqs %u to max-num-batched-tokens %u", l->max_logit_rows,
                l->max_seqs,
                l->max_batch_tokens);
  return resolve_pages(s, l);
}

static status resolve_ladder(const deploy_config *d, const plan_limits *l, draft *plan) {
  const uint32_t most = max_u32(l->max_seqs, min_u32(l->max_seqs * (1 + l->draft_tokens), l->max_logit_rows));
  for (uint32_t i = 0; i < d->ladder_count; i++) {
    if (d->ladder[i] > most)
      return FAIL(ERR_LIMIT, "deployment: ladder size %u is more than %u, the most rows of a decode step: max-num-seqs%s", d->ladder[i],
                  most, l->draft_tokens ? " times a token and its drafts, or max-logit-rows" : "");
    *(uint32_t *)draft_append(&plan->ladder, 1) = d->ladder[i];
  }
  for (uint32_t size = 1; d->ladder_count == 0; size *= 2) {
    *(uint32_t *)draft_append(&plan->ladder, 1) = min_u32(size, most);
    if (size >= most) break;
  }
  plan->limits.split_rows_max = ((const uint32_t *)plan->ladder.items)[plan->ladder.count - 1];
  return OK;
}

/* === Building =========================================================================================================== */

/* Compares both forms by their products alone: expanding costs something per token of a context and step, but less per pair of a query and
 * a key. */
static void note_forms(draft *plan) {
  const plan_model *m = &plan->model;
  char note[192];
  uint64_t absorbed = UINT64_C(2) * m->kv_lora_rank + m->rope_dim, expanded = (uint64_t)m->nope_dim + m->rope_dim + m->v_dim;
  uint64_t expanding = (uint64_t)m->kv_lora_rank * (m->nope_dim + m->v_dim);
  if (absorbed <= expanded) {
    draft_note(plan, "fast-prefill: the expanded form costs more than the absorbed one in this model");
    return;
  }
  snprintf(note, sizeof note, "fast-prefill: %llu instead of %llu products a query, key and head; steps of fewer than %llu prompt tokens a "
           "context cost more than under strict", (unsigned long long)expanded, (unsigned long long)absorbed,
           (unsigned long long)div_up(expanding, absorbed - expanded));
  draft_note(plan, note);
}

static void add_notes(const sources *s, draft *plan) {
  char note[CONFIG_FIELD_NOTE_BYTES + 64];
  const config_notes *config = &s->model.notes;
  if (s->model.nested) {
    snprintf(note, sizeof note, "config.json: the model is its \"%s\"; what is around it (images, sound) is not run", s->model.nested);
    draft_note(plan, note);
  }
  if (config->ignored[0]) {
    snprintf(note, sizeof note, "config.json: without influence on inference: %s", config->ignored);
    draft_note(plan, note);
  }
  if (config->assumed[0]) {
    snprintf(note, sizeof note, "config.json: absent, taken as HF transformers does: %s", config->assumed);
    draft_note(plan, note);
  }
  if (config->chosen[0]) {
    snprintf(note, sizeof note, "config.json: %s", config->chosen);
    draft_note(plan, note);
  }
  if (plan_has_mtp(&plan->limits)) {
    snprintf(note, sizeof note, "drafts are made by model.layers.%u, the first of %u prediction layers%s", s->model.plan.layers,
             s->model.prediction_layers, s->model.prediction_layers > 1 ? "; the others are not loaded" : "");
    draft_note(plan, note);
  }
  if (s->model.plan.eos_count == 0) draft_note(plan, "config.json: no eos_token_id: generation ends by length or by the ids of a request");
  if (s->model.is_tied) draft_note(plan, "the head reads model.embed_tokens.weight (tie_word_embeddings: true)");
  if (s->model.rope.kind == ROPE_LONG) {
    snprintf(note, sizeof note, "longrope: the %s factors for every request, as max_len is %u and original_max_position_embeddings %g; HF "
             "chooses by the length of a request", rope_is_long(&s->model.rope, plan->limits.max_len) ? "long" : "short",
             plan->limits.max_len, s->model.rope.original_length);
    draft_note(plan, note);
  }
  if (s->deploy.requests_context && plan->limits.ranks > 1 && !plan_has_requests(&plan->limits))
    draft_note(plan, "attention-by-requests-from is without effect: it needs latent attention without top-k lists, peer transport and "
               "decode steps of at least a row for each GPU");
  if (plan->limits.parity == PARITY_FAST_PREFILL) note_forms(plan);
  if (plan->gemms.count && s->shipped) {
    snprintf(note, sizeof note, "library pins of the shipped profile %.40s; where they cannot run they are left out, the bits are the same",
             s->shipped);
    draft_note(plan, note);
  }
  if (s->deploy.kv_dtype == DEPLOY_KV_AUTO && s->model.quant.kv_format == KV_FP8_DS_MLA)
    draft_note(plan, "the KV cache is fp8_ds_mla, as of sparse models with e4m3 weights it is by default (kv-cache-dtype: auto)");
  if (plan_is_grouped(&plan->grouped)) return;
  snprintf(note, sizeof note, "eps of the latent norms: %g (latent_norm_eps: %s)", (double)plan->model.latent_eps,
           s->deploy.latent_eps_of_config ? "config" : "hf");
  draft_note(plan, note);
}

/* Everything before placement, for the given limits. *plan is initialised here and deinitialised by the caller. */
static status build(const sources *s, const plan_limits *limits, draft *plan) {
  draft_init(plan);
  draft_text(plan, ""); /* reference 0 is the empty string */
  plan->model = model_config_plan(&s->model, limits->max_len);
  if (!plan_is_grouped(&s->model.grouped)) plan->model.latent_eps = s->deploy.latent_eps_of_config ? s->model.plan.norm_eps : LATENT_EPS_HF;
  plan->quant = s->model.quant;
  plan->grouped = s->model.grouped;
  plan->limits = *limits;
  plan->has_masks = s->deploy.structured != 0;
  TRY(resolve_ladder(&s->deploy, limits, plan));
  resolve_requests(s, &plan->limits);
  plan->divided_rows = divided_rows(s, &plan->limits);
  graph_build(plan, &s->known, &s->model);
  guarantees_write(plan);
  add_notes(s, plan);
  place_plan(plan);
  return OK;
}

/* device_bytes of a plan with these limits. */
static status measure(const sources *s, const plan_limits *limits, uint64_t *device_bytes) {
  draft plan = {0};
  status result = build(s, limits, &plan);
  if (result == OK) *device_bytes = plan.device_bytes;
  draft_deinit(&plan);
  return result;
}

/* The most pages, up to `most`, with which the plan stays within the budget; 0 if not even one sequence fits. */
static status fit_pages(const sources *s, plan_limits limits, uint32_t most, uint32_t *pages) {
  uint64_t least_bytes = 0, bytes = 0, each = page_bytes(s, &limits);
  limits.kv_pages = limits.pages_per_seq;
  TRY(measure(s, &limits, &least_bytes));
  *pages = 0;
  if (least_bytes > s->budget_bytes) return OK;
  uint64_t more = (s->budget_bytes - least_bytes) / each;
  uint64_t fitting = min_u32(most, (uint32_t)(more > KV_PAGES_MAX ? KV_PAGES_MAX : limits.pages_per_seq + more));
  for (;; fitting--) { /* regions are aligned, so the first guess may be one page too many */
    limits.kv_pages = (uint32_t)fitting;
    TRY(measure(s, &limits, &bytes));
    if (bytes <= s->budget_bytes || fitting == limits.pages_per_seq) break;
  }
  *pages = (uint32_t)fitting;
  return OK;
}

/* === Plans that do not fit ============================================================================================== */

static double gib(uint64_t bytes) { return (double)bytes / (1u << 30); }

/* The hint for a plan that is too large: the first that fits of fewer pages, smaller steps, shorter sequences. */
static status suggest(const sources *s, plan_limits limits, char *text, size_t text_bytes) {
  uint32_t pages = 0;
  TRY(fit_pages(s, limits, limits.kv_pages, &pages));
  if (pages) {
    snprintf(text, text_bytes, "kv-pages: %u fits", pages);
    return OK;
  }
  for (limits.max_batch_tokens /= 2; limits.max_batch_tokens >= limits.max_logit_rows; limits.max_batch_tokens /= 2) {
    TRY(fit_pages(s, limits, limits.kv_pages, &pages));
    if (!pages) continue;
    snprintf(text, text_bytes, "max-num-batched-tokens: %u with kv-pages: %u fits", limits.max_batch_tokens, pages);
    return OK;
  }
  limits.max_batch_tokens = limits.max_logit_rows;
  for (limits.max_len /= 2; limits.max_len >= PAGE_TOKENS; limits.max_len /= 2) {
    limits.pages_per_seq = (uint32_t)div_up(limits.max_len, PAGE_TOKENS);
    TRY(fit_pages(s, limits, limits.kv_pages, &pages));
    if (!pages) continue;
    snprintf(text, text_bytes, "max-num-batched-tokens: %u with max-model-len: %u and kv-pages: %u fits", limits.max_batch_tokens,
             limits.max_len,
             pages);
    return OK;
  }
  snprintf(text, text_bytes, "no setting fits this model; it needs a GPU with more memory, or fewer max-num-seqs");
  return OK;
}

static status refuse(const sources *s, const draft *plan) {
  char hint[192] = "";
  const plan_region *r = plan->regions;
  TRY(suggest(s, plan->limits, hint, sizeof hint));
  return FAIL(ERR_LIMIT,
              "the plan does not fit the device:\n"
              "  weights                  %10.3f GiB\n"
              "  KV pages                 %10.3f GiB  (%u pages of 64 tokens)\n"
              "  activations, workspaces  %10.3f GiB\n"
              "  tables, step, results    %10.3f GiB\n"
              "  needed                   %10.3f GiB\n"
              "  budget                   %10.3f GiB  (gpu-memory-utilization of device-memory-bytes)\n"
              "hint: %s",
              gib(r[REGION_WEIGHTS].bytes), gib(r[REGION_KV].bytes), plan->limits.kv_pages, gib(r[REGION_WORK].bytes),
              gib(r[REGION_TABLES].bytes + r[REGION_STATE].bytes + 2 * (r[REGION_STEP].bytes + r[REGION_RESULT].bytes)),
              gib(plan->device_bytes),
              gib(s->budget_bytes), hint);
}

/* === The planner ======================================================================================================== */

static status choose_pages(const sources *s, plan_limits *limits) {
  uint32_t useful = limits->max_seqs * limits->pages_per_seq; /* resolve_pages bounded it */
  if (limits->kv_pages != UINT32_MAX) return OK;
  if (s->budget_bytes) TRY(fit_pages(s, *limits, useful, &limits->kv_pages));
  else limits->kv_pages = useful;
  if (limits->kv_pages == 0) limits->kv_pages = limits->pages_per_seq; /* does not fit: refused with the smallest size */
  return OK;
}

static status make(const planner_input *input, const sources *s, void **bytes, size_t *byte_count) {
  plan_limits limits = {0};
  draft plan = {0};
  TRY(resolve_limits(s, &limits));
  TRY(choose_pages(s, &limits));
  status result = build(s, &limits, &plan);
  if (result == OK && s->budget_bytes && plan.device_bytes > s->budget_bytes) result = refuse(s, &plan);
  if (result == OK) {
    emit_digest(input->config.text, input->config.bytes, plan.config_digest);
    result = emit_plan(&plan, bytes, byte_count);
  }
  draft_deinit(&plan);
  return result;
}

status planner_make(const planner_input *input, void **bytes, size_t *byte_count) {
  sources s = {0};
  void *file = NULL;
  size_t file_bytes = 0;
  ASSERT(input->config.text != NULL);
  TRY(model_config_parse(input->config.text, input->config.bytes, &s.model));
  if (input->deploy.text) TRY(deploy_config_parse(input->deploy.text, input->deploy.bytes, &s.deploy));
  TRY(resolve_formats(&s));
  if (input->profile.text) TRY(profile_parse(input->profile.text, input->profile.bytes, &s.known));
  s.shipped = input->shipped;
  if (s.shipped) profile_make_optional(&s.known);
  uint64_t ppm = or_default(s.deploy.memory_ppm, 900000), memory = s.deploy.device_memory_bytes;
  s.budget_bytes = memory / 1000000 * ppm + memory % 1000000 * ppm / 1000000;
  status result = make(input, &s, &file, &file_bytes);
  profile_free(&s.known);
  if (result != OK) return result;
  result = check_plan(file, file_bytes);
  if (result != OK) {
    free(file);
    return result;
  }
  *bytes = file;
  *byte_count = file_bytes;
  return OK;
}
