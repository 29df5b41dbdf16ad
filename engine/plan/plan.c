/* plan.c - see plan.h. One check function per table, in the order of the header; a check states what it expected. Nothing is
 * read through an offset before the offset is checked. Must not know how a plan is made or executed. */
#include "plan/plan.h"
#include "base/digest.h"
#include "base/input_file.h"
#include "ops/kernels.h"
#include "plan/spread.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE_BYTES_MAX (1ull << 48) /* keeps sums of offsets and sizes far from overflow */
#define ITEMS_MAX (1u << 20)          /* items of a table: several times the need of the largest model, checked in seconds */
#define PLAN_MAGIC_BYTES (sizeof PLAN_MAGIC - 1)
#define SHARED_BYTES_MAX 232448u      /* dynamic shared memory of a block on compute capability 9.0 */

uint32_t plan_pointer_count(uint32_t kernel) { return kernels_row(kernel)->op->pointers; }
uint32_t plan_args_bytes(uint32_t kernel) { return kernels_row(kernel)->args_bytes; }

bool plan_has_masks(const plan *view) {
  for (uint32_t i = view->main_op_count; i > 0; i--)
    if (view->ops[i - 1].kernel == KERNEL_token_mask) return true;
  return false;
}

uint64_t plan_present(const plan *view, const plan_op *op) {
  uint64_t present = 0;
  for (uint32_t i = 0; i < op->fixup_count; i++) present |= UINT64_C(1) << (view->fixups[op->first_fixup + i].args_offset / 8);
  return present;
}

uint64_t plan_extent(const plan_dim *dim, uint32_t rows) {
  uint64_t extent = dim->constant;
  if (dim->rows_div) extent += div_up((uint64_t)rows * dim->rows_mul, dim->rows_div);
  return dim->cap && extent > dim->cap ? dim->cap : extent;
}

uint64_t plan_tensor_bytes(const plan_tensor *tensor) {
  return (uint64_t)tensor->batches * tensor->row_count * tensor->cols * plan_dtype_bytes(tensor->dtype);
}

/* The file being checked, passed to all functions below. */
typedef struct check {
  const uint8_t *bytes;
  size_t byte_count;
  const plan_header *header;
  plan *view;
} check;

static status check_header(const check *c) {
  const plan_header *h = c->header;
  if (h->format_version != PLAN_FORMAT_VERSION)
    return FAIL(ERR_UNSUPPORTED, "plan format version: expected %u, found %u; hint: make the plan again with this verbatim",
                PLAN_FORMAT_VERSION, h->format_version);
  if (h->header_bytes != sizeof *h)
    return FAIL(ERR_FORMAT, "plan header: expected %zu bytes, found %u", sizeof *h, h->header_bytes);
  if (h->file_bytes != c->byte_count)
    return FAIL(ERR_FORMAT, "plan: the header promises %llu bytes, the file has %zu; hint: it is truncated or has grown",
                (unsigned long long)h->file_bytes, c->byte_count);
  static const uint8_t zero[DIGEST_BYTES];
  size_t at = offsetof(plan_header, digest);
  digest_state state;
  digest_start(&state);
  digest_add(&state, c->bytes, at);
  digest_add(&state, zero, sizeof zero);
  digest_add(&state, c->bytes + at + sizeof zero, c->byte_count - at - sizeof zero);
  digest found = digest_end(&state);
  if (memcmp(found.bytes, h->digest, sizeof zero) == 0) return OK;
  char expected_text[DIGEST_TEXT_BYTES], found_text[DIGEST_TEXT_BYTES];
  return FAIL(ERR_FORMAT, "plan digest: expected %s, found %s; hint: the file is damaged; make the plan again",
              digest_text(h->digest, expected_text), digest_text(found.bytes, found_text));
}

/* Resolves one span to *items and *count. */
static status check_span(const check *c, const char *name, const plan_span *span, size_t item_bytes, const void **items,
                         uint32_t *count) {
  if (span->item_bytes != item_bytes)
    return FAIL(ERR_FORMAT, "plan table %s: expected items of %zu bytes, found %u", name, item_bytes, span->item_bytes);
  if (item_bytes > 1 && span->count > ITEMS_MAX)
    return FAIL(ERR_LIMIT, "plan table %s: expected at most %u items, found %u", name, ITEMS_MAX, span->count);
  uint64_t bytes = (uint64_t)span->count * item_bytes;
  if (span->offset % 8 || span->offset < sizeof(plan_header) || span->offset > c->byte_count ||
      bytes > c->byte_count - span->offset)
    return FAIL(ERR_FORMAT, "plan table %s: %u items at %llu do not lie inside the file of %zu bytes", name, span->count,
                (unsigned long long)span->offset, c->byte_count);
  *items = c->bytes + span->offset;
  *count = span->count;
  return OK;
}

static status check_spans(const check *c) {
  const plan_header *h = c->header;
  plan *v = c->view;
  uint32_t region_count, args_count, string_bytes;
  const void *regions, *tensors, *buffers, *specs, *kernels, *ops, *fixups, *gemms, *guarantees, *ladder, *args, *strings, *notes;
  TRY(check_span(c, "regions", &h->regions, sizeof(plan_region), &regions, &region_count));
  TRY(check_span(c, "tensors", &h->tensors, sizeof(plan_tensor), &tensors, &v->tensor_count));
  TRY(check_span(c, "buffers", &h->buffers, sizeof(plan_buffer), &buffers, &v->buffer_count));
  TRY(check_span(c, "specs", &h->specs, sizeof(plan_spec), &specs, &v->spec_count));
  TRY(check_span(c, "kernels", &h->kernels, sizeof(plan_kernel), &kernels, &v->kernel_count));
  TRY(check_span(c, "ops", &h->ops, sizeof(plan_op), &ops, &v->op_count));
  TRY(check_span(c, "fixups", &h->fixups, sizeof(plan_fixup), &fixups, &v->fixup_count));
  TRY(check_span(c, "gemms", &h->gemms, sizeof(plan_gemm), &gemms, &v->gemm_count));
  TRY(check_span(c, "guarantees", &h->guarantees, sizeof(plan_guarantee), &guarantees, &v->guarantee_count));
  TRY(check_span(c, "ladder", &h->ladder, sizeof(uint32_t), &ladder, &v->ladder_count));
  TRY(check_span(c, "args", &h->args, 1, &args, &args_count));
  TRY(check_span(c, "strings", &h->strings, 1, &strings, &string_bytes));
  TRY(check_span(c, "notes", &h->notes, sizeof(uint32_t), &notes, &v->note_count));
  v->header = h;
  v->regions = regions, v->tensors = tensors, v->buffers = buffers, v->specs = specs, v->kernels = kernels, v->ops = ops;
  v->fixups = fixups, v->gemms = gemms, v->guarantees = guarantees, v->ladder = ladder, v->args = args, v->strings = strings;
  v->notes = notes;
  if (region_count != REGION_COUNT) return FAIL(ERR_FORMAT, "plan: expected %d regions, found %u", REGION_COUNT, region_count);
  if (string_bytes == 0 || v->strings[string_bytes - 1] != 0)
    return FAIL(ERR_FORMAT, "plan: the string table does not end with a NUL");
  return OK;
}

static status check_string(const check *c, const char *what, uint32_t reference) {
  if (reference >= c->header->strings.count)
    return FAIL(ERR_FORMAT, "plan: %s refers to string %u of %u bytes", what, reference, c->header->strings.count);
  if (strnlen(c->view->strings + reference, NAME_BYTES_MAX * 16) >= NAME_BYTES_MAX * 16)
    return FAIL(ERR_FORMAT, "plan: %s has a string of more than %u bytes", what, NAME_BYTES_MAX * 16);
  return OK;
}

static status check_range(const char *what, uint64_t value, uint64_t least, uint64_t most) {
  if (value < least || value > most)
    return FAIL(ERR_FORMAT, "plan: %s: expected %llu to %llu, found %llu", what, (unsigned long long)least,
                (unsigned long long)most, (unsigned long long)value);
  return OK;
}

static status check_model(const plan_model *m, bool is_grouped) {
  TRY(check_range("layers", m->layers, 1, LAYERS_MAX));
  TRY(check_range("hidden", m->hidden, 1, HIDDEN_MAX));
  TRY(check_range("vocab", m->vocab, 1, VOCAB_MAX));
  TRY(check_range("heads", m->heads, 1, HEADS_MAX));
  TRY(check_range("kv_lora_rank", m->kv_lora_rank, !is_grouped, is_grouped ? 0 : KV_LORA_RANK_MAX));
  TRY(check_range("rope_dim", m->rope_dim, 2, is_grouped ? HEAD_DIM_MAX : ROPE_DIM_MAX));
  TRY(check_range("rope_dim % 2", m->rope_dim % 2, 0, 0));
  TRY(check_range("experts", m->experts, 0, EXPERTS_MAX));
  TRY(check_range("top_k", m->top_k, 0, TOP_K_EXPERTS_MAX));
  TRY(check_range("eos_count", m->eos_count, 0, EOS_MAX));
  for (uint32_t i = 0; i < m->eos_count; i++) TRY(check_range("eos", m->eos[i], 0, m->vocab - 1));
  if (m->bos != UINT32_MAX) TRY(check_range("bos", m->bos, 0, m->vocab - 1));
  for (uint32_t i = 0; i < m->rope_dim / 2; i++)
    if (!isfinite(m->inv_freq[i])) return FAIL(ERR_FORMAT, "plan: inv_freq[%u] is not a number", i);
  if (!isfinite(m->rope_attention_factor)) return FAIL(ERR_FORMAT, "plan: rope_attention_factor is not a number");
  if (!isfinite(m->embed_scale) || !isfinite(m->residual_scale) || !isfinite(m->head_scale))
    return FAIL(ERR_FORMAT, "plan: a scale of the model is not a number");
  if (!isfinite(m->q_scale_beta) || !isfinite(m->q_scale_length) || (m->q_scale_beta != 0 && !(m->q_scale_length >= 1)))
    return FAIL(ERR_FORMAT, "plan: the scale of the query by position has no length");
  return OK;
}

/* With latent attention, all of it is zero. */
static status check_grouped(const plan_header *h) {
  const plan_grouped *g = &h->grouped;
  const plan_model *m = &h->model;
  const uint32_t most = plan_is_grouped(g) ? 1 : 0, kv_heads = most ? g->kv_heads : m->heads;
  TRY(check_range("kv_heads", g->kv_heads, 0, m->heads));
  TRY(check_range("heads % kv_heads", m->heads % kv_heads, 0, 0));
  TRY(check_range("heads of a KV head", m->heads / kv_heads, 1, GROUP_HEADS_MAX));
  TRY(check_range("qk_norm", g->qk_norm, QK_NORM_NONE, most * QK_NORM_ROW));
  TRY(check_range("has_bias", g->has_bias, 0, most * BIAS_ALL));
  TRY(check_range("norms", g->norms, NORMS_BEFORE, most * NORMS_AROUND));
  TRY(check_range("shared_gate", g->shared_gate, 0, most && m->shared_experts > 0));
  TRY(check_range("pad of grouped", g->pad, 0, 0));
  for (uint32_t i = 0; i < 64 * ARRAY_LEN(g->unrotated); i++)
    if (most == 0 || i >= m->layers) TRY(check_range("unrotated", g->unrotated[i / 64] >> i % 64 & 1, 0, 0));
  if (most == 0) return OK;
  TRY(check_range("q_lora_rank of grouped heads", m->q_lora_rank, 0, 0));
  TRY(check_range("nope_dim", m->nope_dim, 0, HEAD_DIM_MAX - m->rope_dim));
  TRY(check_range("v_dim", m->v_dim, 1, HEAD_DIM_MAX));
  return check_range("index_heads of grouped heads", h->quant.index_heads, 0, 0);
}

static status check_indexer(const plan_quant *q, uint32_t layers) {
  uint32_t most = q->index_heads ? 1 : 0; /* without an indexer its fields are zero */
  TRY(check_range("index_heads", q->index_heads, most * 16, most * 64));
  TRY(check_range("index_heads, which is no power of two,", q->index_heads & (q->index_heads - most), 0, 0));
  TRY(check_range("index_topk", q->index_topk, most * PAGE_TOKENS, most * INDEX_TOPK_MAX));
  TRY(check_range("index_topk % 64", q->index_topk % PAGE_TOKENS, 0, 0));
  TRY(check_range("index_half_split", q->index_half_split, 0, most));
  TRY(check_range("index_scale", q->index_scale, SCALE_F32, most * SCALE_POW2));
  for (uint32_t i = 0; i < 64 * ARRAY_LEN(q->index_shared); i++)
    if (most == 0 || i == 0 || i >= layers) TRY(check_range("index_shared", q->index_shared[i / 64] >> i % 64 & 1, 0, 0));
  return OK;
}

static status check_quant(const plan_header *h) {
  const plan_quant *q = &h->quant;
  TRY(check_indexer(q, h->model.layers));
  TRY(check_range("weight_format", q->weight_format, WEIGHTS_BF16, WEIGHTS_E4M3));
  TRY(check_range("act_scale", q->act_scale, SCALE_F32, q->weight_format == WEIGHTS_E4M3 ? SCALE_POW2 : SCALE_F32));
  TRY(check_range("kv_format", q->kv_format, KV_BF16, KV_FP8));
  TRY(check_range("kv_scale", q->kv_scale, SCALE_F32, q->kv_format == KV_FP8_DS_MLA ? SCALE_POW2 : SCALE_F32));
  if (q->kv_format == KV_FP8_DS_MLA) TRY(check_range("kv_lora_rank of fp8_ds_mla", h->model.kv_lora_rank, 512, 512));
  const uint32_t widened = q->kv_format == KV_BF16 ? 0 : UINT32_MAX; /* rows of bf16 numbers are not gathered */
  if (h->limits.parity == PARITY_STRICT) return check_range("expand_pages of strict", h->limits.expand_pages, 0, widened);
  return check_range("index_heads of fast-prefill", q->index_heads, 0, 0);
}

static status check_speculation(const plan_limits *l) {
  const uint32_t is_on = l->speculation != SPECULATION_OFF, matches = l->speculation == SPECULATION_NGRAM || l->match_min > 0;
  TRY(check_range("speculation", l->speculation, SPECULATION_OFF, SPECULATION_MTP));
  TRY(check_range("draft_tokens", l->draft_tokens, is_on, is_on * DRAFT_TOKENS_MAX));
  TRY(check_range("match_min", l->match_min, matches * MATCH_TOKENS_MIN, matches * MATCH_TOKENS_MAX));
  TRY(check_range("match_min without drafts", l->match_min, 0, is_on * MATCH_TOKENS_MAX));
  return check_range("match_max", l->match_max, l->match_min, matches * MATCH_TOKENS_MAX);
}

/* The layer after the last has a number, too. */
static status check_prediction(const plan_header *h) {
  if (!plan_has_mtp(&h->limits)) return OK;
  TRY(check_range("parity with mtp", h->limits.parity, PARITY_STRICT, PARITY_STRICT));
  return check_range("layers with mtp", h->model.layers, 1, LAYERS_MAX - 1);
}

static status check_limits(const plan_limits *l) {
  TRY(check_range("ranks", l->ranks, 1, RANKS_MAX));
  TRY(check_range("transport", l->transport, TRANSPORT_PEER, l->ranks > 1 ? TRANSPORT_NCCL : TRANSPORT_PEER));
  TRY(check_range("max_seqs", l->max_seqs, 1, SEQS_MAX));
  TRY(check_range("max_batch_tokens", l->max_batch_tokens, 1, BATCH_TOKENS_MAX));
  TRY(check_range("max_len", l->max_len, 2, LENGTH_MAX));
  TRY(check_range("max_logit_rows", l->max_logit_rows, 1, BATCH_TOKENS_MAX));
  TRY(check_range("kv_pages", l->kv_pages, 1, UINT32_MAX / PAGE_TOKENS));
  TRY(check_range("pages_per_seq", l->pages_per_seq, div_up(l->max_len, PAGE_TOKENS), div_up(l->max_len, PAGE_TOKENS)));
  TRY(check_range("chunk_tokens", l->chunk_tokens, PAGE_TOKENS, LENGTH_MAX));
  TRY(check_range("chunk_tokens % 64", l->chunk_tokens % PAGE_TOKENS, 0, 0));
  TRY(check_range("group_chunks", l->group_chunks, 1, LENGTH_MAX));
  TRY(check_range("attn_tile_tokens", l->attn_tile_tokens, 1, PROMPT_TILE_TOKENS));
  TRY(check_range("parity", l->parity, PARITY_STRICT, PARITY_FAST_PREFILL));
  TRY(check_speculation(l));
  if (l->requests_rows || l->requests_context) {
    TRY(check_range("requests_rows", l->requests_rows, max_u32(l->ranks, 2), l->split_rows_max));
    TRY(check_range("requests_context", l->requests_context, 1, LENGTH_MAX));
  }
  return check_range("expand_pages", l->expand_pages, l->parity == PARITY_FAST_PREFILL, LENGTH_MAX / PAGE_TOKENS);
}

static status check_regions(const check *c) {
  const plan_header *h = c->header;
  TRY(check_range("device_bytes", h->device_bytes, 1, DEVICE_BYTES_MAX));
  uint64_t end = 0;
  for (uint32_t i = 0; i < REGION_COUNT; i++) {
    const plan_region *r = &c->view->regions[i];
    if (r->id != i || r->offset % 256 || r->offset < end || r->offset > h->device_bytes || r->bytes > h->device_bytes - r->offset)
      return FAIL(ERR_FORMAT, "plan region %u (id %u): %llu bytes at %llu do not lie in order inside %llu bytes", i, r->id,
                  (unsigned long long)r->bytes, (unsigned long long)r->offset, (unsigned long long)h->device_bytes);
    end = r->offset + r->bytes;
  }
  const plan_region *all = c->view->regions;
  if (all[REGION_STEP_ODD].bytes != all[REGION_STEP].bytes || all[REGION_RESULT_ODD].bytes != all[REGION_RESULT].bytes)
    return FAIL(ERR_FORMAT, "plan: the regions of odd steps are not of the size of those of even ones");
  if (h->gemm_workspace > c->view->regions[REGION_WORK].bytes ||
      h->gemm_workspace_bytes > c->view->regions[REGION_WORK].bytes - h->gemm_workspace)
    return FAIL(ERR_FORMAT, "plan: the library workspace does not lie inside the work region");
  return OK;
}

static status check_io(const check *c) {
  const plan_io *io = &c->header->io;
  const plan_limits *l = &c->header->limits;
  const plan_model *m = &c->header->model;
  const bool has_prompts = l->expand_pages > 0, has_mtp = plan_has_mtp(l);
  const uint32_t heads = plan_rank_heads(m, &c->header->grouped, l);
  const struct { const char *name; uint64_t offset, bytes; uint32_t region; } parts[] = {
    {"step", io->step, plan_step_entries(l) * sizeof(step_in), REGION_STEP},
    {"token", io->token, 4ull * l->max_batch_tokens, REGION_STEP},
    {"position", io->position, 4ull * l->max_batch_tokens, REGION_STEP},
    {"seq", io->seq, 4ull * l->max_batch_tokens, REGION_STEP},
    {"tiles", io->tiles, sizeof(attn_tile) * (uint64_t)l->max_batch_tokens, REGION_STEP},
    {"logit_row", io->logit_row, 4ull * l->max_logit_rows, REGION_STEP},
    {"sample", io->sample, sizeof(sample_param) * (uint64_t)l->max_logit_rows, REGION_STEP},
    {"block_table", io->block_table, 4ull * l->max_seqs * l->pages_per_seq, REGION_STEP},
    {"lists", io->lists, sizeof(token_bias) * TOKEN_LIST_MAX * (uint64_t)l->max_seqs, REGION_STEP},
    {"sampled", io->sampled, 4ull * l->max_seqs, REGION_STATE},
    {"result", io->result, sizeof(sample_result) * (uint64_t)l->max_logit_rows, REGION_RESULT},
    {"digest", io->digest, 8ull * l->max_logit_rows, REGION_RESULT},
    {"top", io->top, sizeof(top_logprob) * TOP_LOGPROBS_MAX * (uint64_t)l->max_logit_rows, REGION_RESULT},
    {"logits", io->logits, 4ull * l->max_logit_rows * m->vocab, REGION_WORK},
    {"cos_sin", io->cos_sin, 4ull * l->max_len * m->rope_dim, REGION_TABLES},
    {"q_scale", io->q_scale, m->q_scale_beta != 0 ? 4ull * l->max_len : 0, REGION_TABLES},
    {"history", io->history, 4ull * PAGE_TOKENS * l->kv_pages, REGION_KV},
    {"prompt_tiles", io->prompt_tiles, has_prompts ? sizeof(attn_tile) * (uint64_t)l->max_batch_tokens : 0, REGION_STEP},
    {"contexts", io->contexts, has_prompts ? sizeof(step_context) * (uint64_t)l->max_seqs : 0, REGION_STEP},
    {"index", io->index, plan_index_bytes(&c->header->quant, plan_kept_layers(m, l), l->kv_pages), REGION_KV},
    {"meetings", io->meetings, plan_may_spread(m, &c->header->quant, l, heads) ? 4ull * ATTN_MEETINGS : 0, REGION_STATE},
    {"ranks", io->ranks, l->ranks > 1 ? sizeof(exchange_ranks) : 0, REGION_STATE},
    {"exchange", io->exchange, l->ranks > 1 ? 4ull * EXCHANGE_STATE_WORDS : 0, REGION_STATE},
    {"rank_x", io->rank_x, l->ranks > 1 ? 8ull * l->max_batch_tokens : 0, REGION_RESULT},
    {"rank_head", io->rank_head, l->ranks > 1 ? 8ull * l->max_logit_rows : 0, REGION_RESULT},
    {"inbox", io->inbox, l->ranks > 1 && l->transport == TRANSPORT_PEER ? EXCHANGE_INBOX_BYTES(l->ranks) : 0, REGION_STATE},
    {"next", io->next, has_mtp ? 4ull * l->max_batch_tokens : 0, REGION_STEP},
    {"drafts", io->drafts, has_mtp ? sizeof(step_draft) * (uint64_t)l->max_seqs : 0, REGION_STEP},
    {"own_tiles", io->own_tiles, plan_has_requests(l) ? sizeof(attn_tile) * (uint64_t)l->ranks * plan_own_tiles(l) : 0, REGION_STEP},
    {"draft", io->draft, has_mtp ? sizeof(sample_result) * (uint64_t)l->draft_tokens * plan_draft_stride(l) : 0, REGION_RESULT},
  };
  for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
    uint64_t room = c->view->regions[parts[i].region].bytes;
    if (parts[i].offset % 8 || parts[i].offset > room || parts[i].bytes > room - parts[i].offset)
      return FAIL(ERR_FORMAT, "plan io %s: %llu bytes at %llu do not lie inside region %u of %llu bytes", parts[i].name,
                  (unsigned long long)parts[i].bytes, (unsigned long long)parts[i].offset, parts[i].region,
                  (unsigned long long)room);
    for (size_t j = 0; j < i; j++)
      if (parts[j].region == parts[i].region && parts[j].offset < parts[i].offset + parts[i].bytes &&
          parts[i].offset < parts[j].offset + parts[j].bytes)
        return FAIL(ERR_FORMAT, "plan io %s and %s overlap; hint: if another version made the plan, make it again with verbatim plan",
                    parts[j].name, parts[i].name);
    if (parts[i].region == REGION_STEP && (parts[i].offset > io->block_table) != (parts[i].offset == io->lists))
      return FAIL(ERR_FORMAT, "plan io %s: expected the block table and behind it the token lists last in the step region", parts[i].name);
  }
  return OK;
}

/* The end of the last slice of the last rank. */
static uint64_t last_row(const plan_tensor *t, uint64_t ranks) {
  return (uint64_t)t->row0 + (t->batches - 1ull) * t->row_step + t->row_count + (ranks - 1) * t->rank_step;
}

static status check_tensors(const check *c) {
  uint64_t room = c->view->regions[REGION_WEIGHTS].bytes, ranks = c->header->limits.ranks;
  for (uint32_t i = 0; i < c->view->tensor_count; i++) {
    const plan_tensor *t = &c->view->tensors[i];
    TRY(check_string(c, "a tensor's name", t->name));
    const char *name = plan_string(c->view, t->name);
    if (t->scale_name != PLAN_NO_SCALE) TRY(check_string(c, "the name of a tensor's scales", t->scale_name));
    if (t->scale_name != PLAN_NO_SCALE && t->dtype != DTYPE_BF16)
      return FAIL(ERR_FORMAT, "plan tensor %s: what has scales becomes bf16, found dtype %u", name, t->dtype);
    if (t->dtype > DTYPE_E4M3 || t->transform > TRANSFORM_TRANSPOSE)
      return FAIL(ERR_FORMAT, "plan tensor %s: dtype %u, transform %u are not known", name, t->dtype, t->transform);
    if (!t->rows || !t->cols || !t->row_count || !t->batches || t->rows > (1u << 24) || t->cols > (1u << 24) ||
        t->batches > (1u << 16) || last_row(t, ranks) > t->rows)
      return FAIL(ERR_FORMAT, "plan tensor %s: its slice does not lie inside [%u][%u]", name, t->rows, t->cols);
    if (t->offset % 4 || t->offset > room || plan_tensor_bytes(t) > room - t->offset)
      return FAIL(ERR_FORMAT, "plan tensor %s: its destination does not lie inside the weights region", name);
  }
  return OK;
}

static status check_buffers(const check *c) {
  for (uint32_t i = 0; i < c->view->buffer_count; i++) {
    const plan_buffer *b = &c->view->buffers[i];
    TRY(check_string(c, "a buffer's name", b->name));
    TRY(check_range("buffer region", b->region, 0, REGION_COUNT - 1));
    uint64_t room = c->view->regions[b->region].bytes;
    if (b->offset > room || b->bytes > room - b->offset || b->first_op > b->last_op)
      return FAIL(ERR_FORMAT, "plan buffer %s does not lie inside its region", plan_string(c->view, b->name));
  }
  return OK;
}

static status check_kernels(const check *c) {
  for (uint32_t i = 0; i < c->view->spec_count; i++) TRY(check_string(c, "a SPEC constant's name", c->view->specs[i].name));
  for (uint32_t i = 0; i < c->view->kernel_count; i++) {
    const plan_kernel *k = &c->view->kernels[i];
    TRY(check_range("kernel", k->kernel, 0, KERNEL_COUNT - 1));
    TRY(check_range("kernel's last SPEC constant", (uint64_t)k->first_spec + k->spec_count, 0, c->view->spec_count));
    TRY(check_range("threads of a block", k->threads, 1, 1024));
    TRY(check_range("shared memory of a block", k->shared_bytes, 0, SHARED_BYTES_MAX));
  }
  return OK;
}

/* Every pointer field of the op is either set by exactly one fixup, or null where abi.h allows it. */
static status check_fixups(const check *c, const plan_op *op, const char *name) {
  const kernel_row *kernel = kernels_row(op->kernel);
  uint32_t set = 0;
  for (uint32_t i = 0; i < op->fixup_count; i++) {
    const plan_fixup *f = &c->view->fixups[op->first_fixup + i];
    if (f->args_offset % 8 || f->args_offset / 8 >= kernel->op->pointers || (set >> (f->args_offset / 8) & 1) != 0)
      return FAIL(ERR_FORMAT, "plan op %s: fixup %u at argument byte %u is no pointer of %s, or set twice", name, i,
                  f->args_offset, kernel->name);
    if (f->region >= REGION_COUNT || f->offset >= c->view->regions[f->region].bytes)
      return FAIL(ERR_FORMAT, "plan op %s: fixup %u points outside its region", name, i);
    const uint64_t behind = (c->header->limits.ranks - UINT64_C(1)) * f->rank_step * RANK_STEP_BYTES;
    if (f->rank_step && ((op->rows_kind != ROWS_OWN && op->rows_kind != ROWS_BY_REQUESTS && op->kernel != KERNEL_exchange) ||
                         behind >= c->view->regions[f->region].bytes - f->offset))
      return FAIL(ERR_FORMAT, "plan op %s: fixup %u points to other places on other ranks, and the op is none over the rows of a rank, or "
                  "they lie outside its region", name, i);
    if (f->region == REGION_STEP_ODD || f->region == REGION_RESULT_ODD)
      return FAIL(ERR_FORMAT, "plan op %s: fixup %u names a region of odd steps, which take the place of those of even ones", name, i);
    set |= 1u << (f->args_offset / 8);
  }
  const uint8_t *args = c->view->args + op->args_offset;
  for (uint32_t i = 0; i < kernel->op->pointers; i++) {
    uint64_t raw;
    memcpy(&raw, args + 8ull * i, 8);
    if (raw != 0) return FAIL(ERR_FORMAT, "plan op %s: pointer %u is not zero in the file", name, i);
    if ((set >> i & 1) == 0 && (kernel->op->optional >> i & 1) == 0)
      return FAIL(ERR_FORMAT, "plan op %s: pointer %u of %s is missing", name, i, kernel->name);
  }
  return OK;
}

static status check_op(const check *c, const plan_op *op) {
  TRY(check_string(c, "an op's name", op->name));
  const char *name = plan_string(c->view, op->name);
  TRY(check_range("an op's kernel", op->kernel, 0, KERNEL_COUNT - 1));
  if (op->variant >= c->view->kernel_count || c->view->kernels[op->variant].kernel != op->kernel)
    return FAIL(ERR_FORMAT, "plan op %s: variant %u is not a specialisation of %s", name, op->variant, kernels_row(op->kernel)->name);
  if (op->args_bytes != plan_args_bytes(op->kernel) || op->args_offset % 8 ||
      (uint64_t)op->args_offset + op->args_bytes > c->header->args.count)
    return FAIL(ERR_FORMAT, "plan op %s: expected %u argument bytes inside the table, found %u at %u", name,
                plan_args_bytes(op->kernel), op->args_bytes, op->args_offset);
  if (op->branch > BRANCH_JOIN) return FAIL(ERR_FORMAT, "plan op %s: branch %u, at most %u", name, op->branch, BRANCH_JOIN);
  const bool is_part = op->rows_kind == ROWS_MADE || op->rows_kind == ROWS_PROMPT, is_draft = op->rows_kind == ROWS_DRAFTS;
  const bool is_offered = (!is_part || c->header->limits.expand_pages > 0) && (!is_draft || plan_has_mtp(&c->header->limits)) &&
                          (op->rows_kind != ROWS_OWN || c->header->limits.ranks > 1) &&
                          (op->rows_kind < ROWS_BY_HEADS || plan_has_requests(&c->header->limits));
  if (op->rows_kind >= ROWS_KINDS || !is_offered || op->rows_min > op->rows_max)
    return FAIL(ERR_FORMAT, "plan op %s: rows of kind %u from %u to %u", name, op->rows_kind, op->rows_min, op->rows_max);
  if ((uint64_t)op->first_fixup + op->fixup_count > c->view->fixup_count ||
      (uint64_t)op->first_gemm + op->gemm_count > c->view->gemm_count)
    return FAIL(ERR_FORMAT, "plan op %s: its fixups or library algorithms lie outside their tables", name);
  if (op->gemm_count && strcmp(kernels_row(op->kernel)->name, "gemm") != 0)
    return FAIL(ERR_FORMAT, "plan op %s: only a gemm can have library algorithms", name);
  for (int i = 0; i < 3; i++) {
    const plan_dim *d = &op->grid[i];
    uint64_t most = plan_extent(d, c->header->limits.max_batch_tokens);
    if (most > (i ? 65535u : 0x7fffffffu) || plan_extent(d, 1) == 0)
      return FAIL(ERR_FORMAT, "plan op %s: grid dimension %d has %llu blocks", name, i, (unsigned long long)most);
  }
  return check_fixups(c, op, name);
}

static status check_rest(const check *c) {
  const plan *v = c->view;
  for (uint32_t i = 0; i < v->gemm_count; i++)
    if (v->gemms[i].rows_min > v->gemms[i].rows_max || v->gemms[i].workspace_bytes > c->header->gemm_workspace_bytes ||
        v->gemms[i].is_optional > 1)
      return FAIL(ERR_FORMAT, "plan library algorithm %u: its row range is empty, its workspace too large, or is_optional not 0 or 1", i);
  for (uint32_t i = 0; i < v->guarantee_count; i++) {
    TRY(check_string(c, "a guarantee's axis", v->guarantees[i].axis));
    TRY(check_string(c, "a guarantee's reason", v->guarantees[i].reason));
    TRY(check_range("guarantee status", v->guarantees[i].status, 0, GUARANTEE_EXCLUDED));
  }
  TRY(check_range("ladder entries", v->ladder_count, 0, LADDER_MAX));
  for (uint32_t i = 0; i < v->ladder_count; i++) {
    uint32_t below = i ? v->ladder[i - 1] : 0;
    TRY(check_range("a ladder entry", v->ladder[i], below + 1ull,
                    min_u32(c->header->limits.max_batch_tokens, c->header->limits.max_logit_rows)));
  }
  for (uint32_t i = 0; i < v->note_count; i++) TRY(check_string(c, "a note", v->notes[i]));
  return OK;
}

status plan_view(const void *bytes, size_t byte_count, plan *view) {
  ASSERT((uintptr_t)bytes % 8 == 0);
  if (byte_count < PLAN_MAGIC_BYTES || memcmp(bytes, PLAN_MAGIC, PLAN_MAGIC_BYTES) != 0)
    return input_file_other(NULL, INPUT_PLAN);
  if (byte_count < sizeof(plan_header) || byte_count > FILE_PLAN_BYTES_MAX)
    return FAIL(ERR_FORMAT, "plan: expected %zu to %u bytes, found %zu", sizeof(plan_header), FILE_PLAN_BYTES_MAX, byte_count);
  plan result = {0};
  check c = {.bytes = bytes, .byte_count = byte_count, .header = bytes, .view = &result};
  TRY(check_header(&c));
  TRY(check_spans(&c));
  TRY(check_model(&c.header->model, plan_is_grouped(&c.header->grouped)));
  TRY(check_grouped(c.header));
  TRY(check_limits(&c.header->limits));
  TRY(check_quant(c.header));
  TRY(check_prediction(c.header));
  TRY(check_regions(&c));
  TRY(check_io(&c));
  TRY(check_tensors(&c));
  TRY(check_buffers(&c));
  TRY(check_kernels(&c));
  for (uint32_t i = 0; i < result.op_count; i++) TRY(check_op(&c, &result.ops[i]));
  while (result.main_op_count < result.op_count && result.ops[result.main_op_count].kernel != KERNEL_accept) result.main_op_count++;
  TRY(check_rest(&c));
  *view = result;
  return OK;
}

/* Reads instead of mapping: a plan is small, and a mapped file that shrinks would kill the process. */
static status read_whole(const char *path, void **bytes, size_t *byte_count) {
  FILE *file;
  TRY(input_file_open(path, INPUT_PLAN, &file));
  status result = OK;
  long size = -1;
  void *memory = NULL;
  if (fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0)
    result = FAIL(ERR_IO, "plan %s: cannot be read: %s", path, strerror(errno));
  else if (size > (long)FILE_PLAN_BYTES_MAX)
    result = FAIL(ERR_FORMAT, "%s: expected a plan of at most %u bytes, found %ld; hint: is it another file?", path, FILE_PLAN_BYTES_MAX,
                  size);
  else if (!(memory = malloc((size_t)size)))
    result = FAIL(ERR_LIMIT, "plan %s: no memory for %ld bytes", path, size);
  else if (fread(memory, 1, (size_t)size, file) != (size_t)size)
    result = FAIL(ERR_IO, "plan %s: cannot be read whole", path);
  fclose(file);
  if (result != OK) {
    free(memory);
    return result;
  }
  *bytes = memory;
  *byte_count = (size_t)size;
  return OK;
}

status plan_open(plan *view, const char *path) {
  void *bytes = NULL;
  size_t byte_count = 0;
  TRY(read_whole(path, &bytes, &byte_count));
  status result = plan_view(bytes, byte_count, view);
  if (result != OK) {
    free(bytes);
    fail_prefix(path);
    return result;
  }
  view->memory = bytes;
  return OK;
}

void plan_close(plan *view) {
  free(view->memory);
  *view = (plan){0};
}
