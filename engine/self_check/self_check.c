/* self_check.c - the code common to the probes of all ops (see self_check.h).
 *
 * Must not know how a backend runs an op. Read next: self_check/cases.h. */
#include "self_check/self_check.h"
#include "ops/kernels.h"
#include "self_check/cases.h"
#include "base/trig.h"
#include <string.h>

typedef struct probe_row {
  uint32_t kernel;
  const self_check_op *op;
  const self_check_probe *probe;
} probe_row;

static const self_check_op *const ops[KERNEL_COUNT] = {
#define KERNEL(stem) &self_check_##stem,
#include "kernels_src/kernels.def"
#undef KERNEL
};

#define TABLES_ANSWER "e4aabc11db897b3edae00289bce64662"

#define KERNEL(stem) _Static_assert(sizeof(stem##_args) <= 8 * SELF_CHECK_ARGS_WORDS, "arguments");
#include "kernels_src/kernels.def"
#undef KERNEL

uint32_t self_check_count(void) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < KERNEL_COUNT; i++) count += ops[i]->probe_count;
  return count;
}

/* Probes are numbered op by op. */
static probe_row row_at(uint32_t index) {
  uint32_t kernel = 0;
  while (kernel < KERNEL_COUNT && index >= ops[kernel]->probe_count) index -= ops[kernel++]->probe_count;
  ASSERT(kernel < KERNEL_COUNT);
  return (probe_row){kernel, ops[kernel], &ops[kernel]->probes[index]};
}

bool self_check_is_for(uint32_t index, uint32_t kernel, const plan_model *model) {
  const probe_row row = row_at(index);
  const uint32_t rank = row.probe->kv_lora_rank, rope = row.probe->rope_dim;
  if (row.kernel == KERNEL_mla_prefill && row.kernel == kernel) /* its probes are for dimensions of heads: nope_dim, v_dim, and by the form
                                                                   rope_dim */
    return rank == model->nope_dim && rope == model->v_dim && (row.probe->form >= 4 ? 32 : 64) == model->rope_dim;
  if (row.kernel == KERNEL_kv_rope && row.kernel == kernel) /* kernels are for heads of at most 128 columns, or of more */
    return rank <= 128 || max_u32(model->nope_dim + model->rope_dim, model->v_dim) > 128;
  if (row.kernel == KERNEL_attn && row.kernel == kernel) /* likewise: columns of a key and of a value */
    return rank == model->nope_dim + model->rope_dim && rope == model->v_dim;
  bool fits = rank == 0 || (rank == model->kv_lora_rank && rope == model->rope_dim);
  return row.kernel == kernel && fits;
}

bool self_check_is_for_form(uint32_t index, bool is_few) {
  const probe_row row = row_at(index);
  if (row.kernel == KERNEL_qkv_rope) return self_check_qkv_rope_absorbs(row.probe->form) == is_few;
  if (row.kernel == KERNEL_mla_fold) return self_check_mla_fold_lifts(row.probe->form) == is_few;
  if (row.kernel == KERNEL_fp8_moe_gemm) return is_few || !self_check_fp8_moe_gemm_gathers(row.probe->form);
  return is_few || row.kernel != KERNEL_moe_gemm || !self_check_moe_gemm_gathers(row.probe->form);
}

bool self_check_is_for_rows(uint32_t index, uint32_t kv_format, bool lists, bool one_chunk) {
  const probe_row row = row_at(index);
  if (row.kernel == KERNEL_attn) return self_check_attn_kv_format(row.probe->form) == kv_format;
  if (row.kernel != KERNEL_mla_attn) return true;
  if (one_chunk != self_check_mla_attn_one_chunk(row.probe->form)) return false;
  return self_check_mla_attn_kv_format(row.probe->form) == kv_format && self_check_mla_attn_lists(row.probe->form) == lists;
}

bool self_check_is_for_heads(uint32_t index, uint32_t heads) {
  const probe_row row = row_at(index);
  return row.kernel != KERNEL_index_score || self_check_index_score_heads(row.probe->form) == heads;
}

bool self_check_is_for_tags(uint32_t index, bool has_tags) {
  const probe_row row = row_at(index);
  return row.kernel != KERNEL_exchange || self_check_exchange_has_tags(row.probe->form) == has_tags;
}

bool self_check_is_for_pieces(uint32_t index, bool has_pieces) {
  const probe_row row = row_at(index);
  if (row.kernel == KERNEL_kv_widen) return self_check_kv_widen_has_pieces(row.probe->form) == has_pieces;
  return row.kernel != KERNEL_mla_expand || self_check_mla_expand_has_pieces(row.probe->form) == has_pieces;
}

void self_check_build(uint32_t index, uint8_t *image, uint64_t address, self_check_launch *launch) {
  const probe_row row = row_at(index);
  *launch = (self_check_launch){.probe = row.probe->name, .kernel = row.kernel, .grid_items = {1, 1, 1}};
  self_check_image made = {.bytes = image, .random = row.probe->seed, .form = row.probe->form, .kv_lora_rank = row.probe->kv_lora_rank,
                           .rope_dim = row.probe->rope_dim, .launch = launch};
  row.op->build(&made);
  ASSERT(made.used <= SELF_CHECK_BYTES);
  launch->image_bytes = made.used;
  if (launch->judged_bytes == 0) launch->judged_bytes = made.used;
  for (uint32_t i = 0; i < plan_pointer_count(row.kernel); i++)
    if (launch->args[i]) launch->args[i] += address - (uint64_t)(uintptr_t)image;
}

void self_check_grid(const self_check_launch *launch, uint32_t tile_n, uint32_t tile_rows, const uint32_t cluster[2], uint32_t grid[3]) {
  grid[0] = (uint32_t)align_up(div_up(launch->grid_items[0], tile_n), cluster[0]);
  grid[1] = (uint32_t)align_up(launch->grid_more + div_up(launch->grid_items[1], tile_rows), cluster[1]);
  grid[2] = launch->grid_items[2];
}

static uint8_t nibble(char c) { return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10); }

static digest from_text(const char *text) {
  digest result;
  for (uint32_t i = 0; i < DIGEST_BYTES; i++) result.bytes[i] = (uint8_t)(nibble(text[2 * i]) << 4 | nibble(text[2 * i + 1]));
  return result;
}

digest self_check_answer(uint32_t index) { return from_text(row_at(index).probe->answer); }

digest self_check_digest(const self_check_launch *launch, const uint8_t *image) { return digest_of(image, launch->judged_bytes); }

digest self_check_tables(void) {
  enum { ANGLES = 512 };
  double results[ANGLES][3];
  for (uint32_t i = 0; i < ANGLES; i++) { /* angles of positions up to 2^20, frequencies down to 1 / 2^14 */
    float angle = (float)(i * 2053u) * (1.0f / (float)(1u + (i * 37u) % 16384u));
    results[i][0] = trig_sin((double)angle);
    results[i][1] = trig_cos((double)angle);
    results[i][2] = trig_log((double)angle + 0x1p-9);
  }
  return digest_of(results, sizeof results);
}

digest self_check_tables_answer(void) { return from_text(TABLES_ANSWER); }
