/* emit.c - see emit.h. XXH3 is inlined into this file, because another archive of the link has an old copy of the same symbols. */
#define XXH_INLINE_ALL
#include <xxhash.h>
#include "emit.h"
#include <stdlib.h>
#include <string.h>

void emit_digest(const void *data, size_t bytes, uint8_t digest[16]) {
  XXH128_canonical_t text;
  XXH128_canonicalFromHash(&text, XXH3_128bits(data, bytes));
  memcpy(digest, text.digest, 16);
}

static size_t add_bytes(uint8_t *bytes, size_t at, const void *more, size_t more_bytes) {
  memcpy(bytes + at, more, more_bytes);
  return at + more_bytes;
}

void emit_numerics_id(const plan_model *model, const plan_quant *quant, const plan_grouped *grouped, const plan_limits *limits,
                      uint8_t id[16]) {
  static const plan_quant none;
  uint8_t bytes[sizeof NUMERICS_VERSION - 1 + sizeof *model + sizeof *quant + sizeof *grouped + 12];
  const bool is_grouped = plan_is_grouped(grouped);
  const size_t frequencies = (is_grouped ? HEAD_DIM_MAX : ROPE_DIM_MAX) / 2;
  const uint32_t constants[3] = {limits->chunk_tokens, limits->group_chunks, limits->parity};
  size_t at = add_bytes(bytes, 0, NUMERICS_VERSION, sizeof NUMERICS_VERSION - 1); /* the text without its NUL */
  at = add_bytes(bytes, at, model, offsetof(plan_model, inv_freq) + frequencies * sizeof model->inv_freq[0]);
  if (memcmp(quant, &none, sizeof none) != 0) at = add_bytes(bytes, at, quant, sizeof *quant);
  if (is_grouped) at = add_bytes(bytes, at, grouped, sizeof *grouped);
  at = add_bytes(bytes, at, constants, sizeof constants);
  emit_digest(bytes, at, id);
}

/* Turns draft refs into addresses within regions. */
static plan_fixup *resolve_refs(draft *plan) {
  plan_fixup *fixups = calloc(plan->refs.count + 1, sizeof *fixups);
  const draft_ref *refs = plan->refs.items;
  ASSERT(fixups != NULL);
  for (uint32_t i = 0; i < plan->refs.count; i++) {
    const plan_buffer *buffer = draft_buffer_at(plan, refs[i].buffer);
    ASSERT(refs[i].offset < buffer->bytes);
    ASSERT(refs[i].rank_step % RANK_STEP_BYTES == 0 && refs[i].rank_step / RANK_STEP_BYTES <= UINT16_MAX);
    fixups[i] = (plan_fixup){.args_offset = refs[i].args_offset, .region = (uint16_t)buffer->region,
                             .rank_step = (uint16_t)(refs[i].rank_step / RANK_STEP_BYTES), .offset = buffer->offset + refs[i].offset};
  }
  return fixups;
}

static void fill_io(draft *plan, plan_io *io) {
  uint64_t offsets[sizeof *io / 8];
  _Static_assert(sizeof offsets / 8 == sizeof plan->io_buffer / 4, "one buffer per field");
  for (size_t i = 0; i < ARRAY_LEN(offsets); i++)
    offsets[i] = plan->io_buffer[i] == DRAFT_NONE ? 0 : draft_buffer_at(plan, plan->io_buffer[i])->offset;
  memcpy(io, offsets, sizeof *io);
}

typedef struct part {
  plan_span *span;
  const void *items;
  uint32_t count;
  size_t item_bytes;
} part;

static part part_of(plan_span *span, const draft_list *list) { return (part){span, list->items, list->count, list->item_bytes}; }

static uint64_t lay_out(part *parts, size_t count) {
  uint64_t offset = sizeof(plan_header);
  for (size_t i = 0; i < count; i++) {
    *parts[i].span = (plan_span){offset, parts[i].count, (uint32_t)parts[i].item_bytes};
    offset = align_up(offset + (uint64_t)parts[i].count * parts[i].item_bytes, 8);
  }
  return offset;
}

status emit_plan(draft *plan, void **bytes, size_t *byte_count) {
  plan_header h;
  memset(&h, 0, sizeof h);
  plan_fixup *fixups = resolve_refs(plan);
  part parts[] = {
      {&h.regions, plan->regions, REGION_COUNT, sizeof(plan_region)}, part_of(&h.tensors, &plan->tensors),
      part_of(&h.buffers, &plan->buffers),       part_of(&h.specs, &plan->specs),
      part_of(&h.kernels, &plan->kernels),       part_of(&h.ops, &plan->ops),
      {&h.fixups, fixups, plan->refs.count, sizeof(plan_fixup)},      part_of(&h.gemms, &plan->gemms),
      part_of(&h.guarantees, &plan->guarantees), part_of(&h.ladder, &plan->ladder),
      part_of(&h.args, &plan->args),             part_of(&h.strings, &plan->strings),
      part_of(&h.notes, &plan->notes),
  };
  uint64_t total = lay_out(parts, ARRAY_LEN(parts));
  if (total > FILE_PLAN_BYTES_MAX) {
    free(fixups);
    return FAIL(ERR_LIMIT, "the plan would take %llu bytes, at most %u", (unsigned long long)total, FILE_PLAN_BYTES_MAX);
  }
  uint8_t *file = calloc(1, total);
  ASSERT(file != NULL);
  for (size_t i = 0; i < ARRAY_LEN(parts); i++)
    if (parts[i].count) memcpy(file + parts[i].span->offset, parts[i].items, (size_t)parts[i].count * parts[i].item_bytes);
  free(fixups);
  memcpy(h.magic, PLAN_MAGIC, sizeof h.magic);
  h.format_version = PLAN_FORMAT_VERSION;
  h.header_bytes = sizeof h;
  h.file_bytes = total;
  h.model = plan->model;
  h.quant = plan->quant;
  h.grouped = plan->grouped;
  h.limits = plan->limits;
  memcpy(h.config_digest, plan->config_digest, sizeof h.config_digest);
  emit_numerics_id(&h.model, &h.quant, &h.grouped, &h.limits, h.numerics_id);
  fill_io(plan, &h.io);
  h.device_bytes = plan->device_bytes;
  if (plan->gemm_workspace != DRAFT_NONE) {
    const plan_buffer *workspace = draft_buffer_at(plan, plan->gemm_workspace);
    h.gemm_workspace = workspace->offset;
    h.gemm_workspace_bytes = workspace->bytes;
  }
  memcpy(file, &h, sizeof h);
  emit_digest(file, total, ((plan_header *)(void *)file)->digest); /* while the digest field itself is zero */
  *bytes = file;
  *byte_count = total;
  return OK;
}
