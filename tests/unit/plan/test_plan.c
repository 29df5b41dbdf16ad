/* test_plan.c - the plan view: a sound plan is accepted, a truncated or flipped one is refused, and one with a corrected digest is never
 * read outside its bytes (under AddressSanitizer in the sanitizer build; the copy has exactly the size of the file). */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/base/digest.h"
#include "engine/plan/plan.h"
#include "kernels_src/abi.h"
#include "planner/planner.h"

#ifdef __SANITIZE_ADDRESS__
#define STRIDE 61u
#else
#define STRIDE 5u
#endif

static uint8_t *file; /* the sound plan */
static size_t file_bytes;

static char *read_text(const char *path, size_t *bytes) {
  FILE *from = fopen(path, "rb");
  assert_non_null(from);
  char *text = malloc(1u << 20);
  assert_non_null(text);
  *bytes = fread(text, 1, 1u << 20, from);
  fclose(from);
  return text;
}

static int make_plan(void **state) {
  (void)state;
  planner_input input = {0};
  char *config = read_text("tests/tiny/config.json", &input.config.bytes);
  char *deploy = read_text("tests/tiny/deploy.yaml", &input.deploy.bytes);
  void *bytes;
  input.config.text = config;
  input.deploy.text = deploy;
  static const char known[] = "{\"library_version\": 1, \"entries\": [{\"n\": 704, \"k\": 192, \"out\": \"f32\", \"rows_min\": 1, "
                              "\"rows_max\": 64, \"algo\": [\"1\", \"0\", \"0\", \"0\", \"0\", \"0\", \"0\", \"2\"], "
                              "\"workspace_bytes\": 512, \"certified\": true, \"use\": true}]}";
  input.profile = (planner_text){known, strlen(known)}; /* for a table of library algorithms */
  assert_int_equal(planner_make(&input, &bytes, &file_bytes), OK);
  file = bytes;
  free(config);
  free(deploy);
  return 0;
}

static int free_plan(void **state) {
  (void)state;
  free(file);
  return 0;
}

static void sign(uint8_t *bytes, size_t count) {
  plan_header *h = (plan_header *)(void *)bytes;
  memset(h->digest, 0, sizeof h->digest);
  digest d = digest_of(bytes, count);
  memcpy(h->digest, d.bytes, sizeof h->digest);
}

/* Opens a view of a copy of exactly count bytes. */
static status view_copy(const uint8_t *bytes, size_t count, plan *view, void **copy) {
  *copy = malloc(count ? count : 1);
  assert_non_null(*copy);
  memcpy(*copy, bytes, count);
  fail_clear();
  return plan_view(*copy, count, view);
}

/* Reads everything that the engine would follow. */
static uint64_t walk(const plan *p) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < p->tensor_count; i++) sum += strlen(plan_string(p, p->tensors[i].name)) + plan_tensor_bytes(&p->tensors[i]);
  for (uint32_t i = 0; i < p->op_count; i++) {
    const plan_op *op = &p->ops[i];
    sum += strlen(plan_string(p, op->name));
    for (uint32_t b = 0; b < op->args_bytes; b++) sum += p->args[op->args_offset + b];
    for (uint32_t f = 0; f < op->fixup_count; f++) sum += p->fixups[op->first_fixup + f].offset;
    for (uint32_t g = 0; g < op->gemm_count; g++) sum += p->gemms[op->first_gemm + g].algo[7];
    const plan_kernel *k = &p->kernels[op->variant];
    for (uint32_t s = 0; s < k->spec_count; s++) sum += strlen(plan_string(p, p->specs[k->first_spec + s].name));
  }
  for (uint32_t i = 0; i < p->note_count; i++) sum += strlen(plan_string(p, p->notes[i]));
  for (uint32_t i = 0; i < p->guarantee_count; i++) sum += strlen(plan_string(p, p->guarantees[i].reason));
  return sum;
}

static void sound(void **state) {
  (void)state;
  plan p;
  void *copy;
  assert_int_equal(view_copy(file, file_bytes, &p, &copy), OK);
  assert_true(p.op_count > 50 && p.tensor_count > 50 && p.ladder_count == 7);
  assert_true(walk(&p) > 0);
  assert_int_equal(p.header->model.vocab, 768);
  free(copy);
}

static void every_cut(void **state) {
  (void)state;
  plan p;
  void *copy;
  for (size_t cut = 0; cut < file_bytes; cut += STRIDE / 5) {
    status result = view_copy(file, cut, &p, &copy);
    free(copy);
    assert_true(result == ERR_FORMAT);
  }
}

/* A longer file, too. */
static void grown(void **state) {
  (void)state;
  plan p;
  void *copy;
  uint8_t *longer = calloc(1, file_bytes + 8);
  assert_non_null(longer);
  memcpy(longer, file, file_bytes);
  assert_int_equal(view_copy(longer, file_bytes + 8, &p, &copy), ERR_FORMAT);
  free(copy);
  free(longer);
}

static void flips(void **state) {
  (void)state;
  plan p;
  void *copy;
  for (size_t at = 0; at < file_bytes; at += STRIDE) {
    file[at] ^= (uint8_t)(1u << (at / STRIDE % 8));
    status result = view_copy(file, file_bytes, &p, &copy);
    file[at] ^= (uint8_t)(1u << (at / STRIDE % 8));
    free(copy);
    assert_true(result == ERR_FORMAT || result == ERR_UNSUPPORTED);
  }
}

/* With a corrected digest: refused, or a valid view. Most of the header must be refused. */
static void signed_flips(void **state) {
  (void)state;
  uint32_t refused = 0, accepted = 0;
  uint8_t *changed = malloc(file_bytes);
  assert_non_null(changed);
  for (size_t at = 0; at < file_bytes; at += STRIDE) {
    plan p;
    void *copy;
    memcpy(changed, file, file_bytes);
    changed[at] ^= (uint8_t)(1u << (at / STRIDE * 5 % 8));
    sign(changed, file_bytes);
    status result = view_copy(changed, file_bytes, &p, &copy);
    if (result == OK) accepted++, (void)walk(&p);
    else refused++;
    free(copy);
  }
  free(changed);
  assert_true(refused > 100 && accepted > 100); /* both outcomes occurred */
}

/* One planted fault per check: the message names it. */
typedef void plant(plan_header *h, uint8_t *bytes);
static plan_op *op_at(plan_header *h, uint8_t *bytes, uint32_t i) { return (plan_op *)(void *)(bytes + h->ops.offset) + i; }
static void bad_magic(plan_header *h, uint8_t *b) { (void)b, h->magic[7] = '\n'; }
static void bad_span(plan_header *h, uint8_t *b) { (void)b, h->ops.count += 1u << 20; }
static void bad_item(plan_header *h, uint8_t *b) { (void)b, h->tensors.item_bytes = 40; }
static void bad_region(plan_header *h, uint8_t *b) { ((plan_region *)(void *)(b + h->regions.offset))[3].bytes = h->device_bytes + 256; }
static void bad_io(plan_header *h, uint8_t *b) { (void)b, h->io.token = h->io.position; }
static void bad_step(plan_header *h, uint8_t *b) { /* a table after the token lists, where one entry less makes room */
  (void)b;
  h->limits.max_seqs--;
  h->io.step = h->io.lists + sizeof(token_bias) * TOKEN_LIST_MAX * h->limits.max_seqs;
}
static void bad_transport(plan_header *h, uint8_t *b) { (void)b, h->limits.transport = TRANSPORT_NCCL; } /* with one rank */
static void bad_pages(plan_header *h, uint8_t *b) { (void)b, h->limits.pages_per_seq--; }
static void bad_eos(plan_header *h, uint8_t *b) { (void)b, h->model.eos[0] = h->model.vocab; }
static void bad_scale(plan_header *h, uint8_t *b) { (void)b, memset(&h->model.head_scale, 0xff, 4); }
static void bad_q_scale(plan_header *h, uint8_t *b) { (void)b, h->model.q_scale_beta = 0.1f; }
static void bad_topk(plan_header *h, uint8_t *b) { (void)b, h->quant.index_heads = 64, h->quant.index_topk = 2080; }
static void bad_workspace(plan_header *h, uint8_t *b) { (void)b, h->limits.expand_pages = 1; }
static void bad_lonely_topk(plan_header *h, uint8_t *b) { (void)b, h->quant.index_topk = 64; }
static void bad_index_heads(plan_header *h, uint8_t *b) { (void)b, h->quant.index_heads = 48, h->quant.index_topk = 64; }
static void bad_shared_first(plan_header *h, uint8_t *b) {
  (void)b;
  h->quant = (plan_quant){.index_heads = 64, .index_topk = 64, .index_shared = {1}};
}
static void bad_shared_behind(plan_header *h, uint8_t *b) {
  (void)b;
  h->quant = (plan_quant){.index_heads = 64, .index_topk = 64, .index_shared = {1ull << h->model.layers}};
}
static void bad_shared_high(plan_header *h, uint8_t *b) {
  (void)b;
  h->quant = (plan_quant){.index_heads = 64, .index_topk = 64, .index_shared = {0, 1}};
}
static void bad_weight_format(plan_header *h, uint8_t *b) { (void)b, h->quant.weight_format = 2; }
static void bad_act_scale(plan_header *h, uint8_t *b) { (void)b, h->quant.act_scale = SCALE_POW2; }
static void bad_kv_format(plan_header *h, uint8_t *b) { (void)b, h->quant.kv_format = 3; }
static void bad_kv_scale(plan_header *h, uint8_t *b) { (void)b, h->quant.kv_format = KV_FP8, h->quant.kv_scale = SCALE_POW2; }
static void bad_rank(plan_header *h, uint8_t *b) { (void)b, h->quant.kv_format = KV_FP8_DS_MLA, h->model.kv_lora_rank = 256; }
/* Latent attention has no field of grouped-query attention. */
static void bad_qk_norm(plan_header *h, uint8_t *b) { (void)b, h->grouped.qk_norm = QK_NORM_HEAD; }
static void bad_bias(plan_header *h, uint8_t *b) { (void)b, h->grouped.has_bias = 1; }
static void bad_norms(plan_header *h, uint8_t *b) { (void)b, h->grouped.norms = NORMS_AFTER; }
static void bad_shared_gate(plan_header *h, uint8_t *b) { (void)b, h->grouped.shared_gate = 1; }
static void bad_grouped_pad(plan_header *h, uint8_t *b) { (void)b, h->grouped.pad = 1; }
static void bad_unrotated(plan_header *h, uint8_t *b) { (void)b, h->grouped.unrotated[0] = 2; }
static void bad_latent(plan_header *h, uint8_t *b) { (void)b, h->model.kv_lora_rank = 0; }
static void bad_rope_dim(plan_header *h, uint8_t *b) { (void)b, h->model.rope_dim = ROPE_DIM_MAX + 2; }
/* The plan's header as of a model of 4 heads that share 2. */
static void group(plan_header *h) {
  h->model.kv_lora_rank = h->model.q_lora_rank = 0;
  h->model.nope_dim = h->model.rope_dim = 64, h->model.v_dim = 128;
  h->grouped = (plan_grouped){.kv_heads = 2, .qk_norm = QK_NORM_ROW, .has_bias = 1, .norms = NORMS_AROUND, .shared_gate = 1,
                              .unrotated = {1ull << (h->model.layers - 1)}};
}
static void bad_kv_heads(plan_header *h, uint8_t *b) { (void)b, group(h), h->grouped.kv_heads = 3; }
static void bad_more_kv_heads(plan_header *h, uint8_t *b) { (void)b, group(h), h->grouped.kv_heads = 8; }
static void bad_group(plan_header *h, uint8_t *b) { (void)b, group(h), h->model.heads = 2 * GROUP_HEADS_MAX + 2; }
static void bad_grouped_latent(plan_header *h, uint8_t *b) { (void)b, group(h), h->model.kv_lora_rank = 512; }
static void bad_grouped_q_lora(plan_header *h, uint8_t *b) { (void)b, group(h), h->model.q_lora_rank = 128; }
static void bad_grouped_rope(plan_header *h, uint8_t *b) { (void)b, group(h), h->model.rope_dim = HEAD_DIM_MAX + 2; }
static void bad_grouped_nope(plan_header *h, uint8_t *b) { (void)b, group(h), h->model.nope_dim = 194; }
static void bad_grouped_v(plan_header *h, uint8_t *b) { (void)b, group(h), h->model.v_dim = 272; }
static void bad_grouped_norm(plan_header *h, uint8_t *b) { (void)b, group(h), h->grouped.qk_norm = 3; }
static void bad_grouped_bias(plan_header *h, uint8_t *b) { (void)b, group(h), h->grouped.has_bias = 8; }
static void bad_grouped_norms(plan_header *h, uint8_t *b) { (void)b, group(h), h->grouped.norms = 3; }
static void bad_no_shared(plan_header *h, uint8_t *b) { (void)b, group(h), h->model.shared_experts = 0; }
static void bad_unrotated_behind(plan_header *h, uint8_t *b) { (void)b, group(h), h->grouped.unrotated[0] <<= 1; }
static void bad_unrotated_high(plan_header *h, uint8_t *b) { (void)b, group(h), h->grouped.unrotated[1] = 1; }
static void bad_grouped_index(plan_header *h, uint8_t *b) {
  (void)b, group(h), h->quant = (plan_quant){.index_heads = 64, .index_topk = 64};
}
static void bad_grouped_kv(plan_header *h, uint8_t *b) { (void)b, group(h), h->quant.kv_format = KV_FP8_DS_MLA; }
static void bad_grouped_frequency(plan_header *h, uint8_t *b) {
  (void)b, group(h), h->model.rope_dim = 128, memset(&h->model.inv_freq[63], 0xff, 4);
}
static void bad_parity(plan_header *h, uint8_t *b) {
  (void)b;
  h->quant = (plan_quant){.index_heads = 64, .index_topk = 64}, h->limits.parity = PARITY_FAST_PREFILL, h->limits.expand_pages = 1;
}
static void bad_dtype(plan_header *h, uint8_t *b) { ((plan_tensor *)(void *)(b + h->tensors.offset))[2].dtype = 3; }
static void bad_scale_name(plan_header *h, uint8_t *b) {
  ((plan_tensor *)(void *)(b + h->tensors.offset))[2].scale_name = h->strings.count;
}
static void bad_scaled(plan_header *h, uint8_t *b) {
  plan_tensor *t = (plan_tensor *)(void *)(b + h->tensors.offset) + 2;
  t->scale_name = t->name, t->dtype = DTYPE_E4M3;
}
static void bad_variant(plan_header *h, uint8_t *b) { op_at(h, b, 3)->variant = 60000; }
static void bad_args(plan_header *h, uint8_t *b) { op_at(h, b, 3)->args_bytes += 8; }
static void bad_rows(plan_header *h, uint8_t *b) { op_at(h, b, 3)->rows_min = op_at(h, b, 3)->rows_max + 1; }
static void bad_fixup(plan_header *h, uint8_t *b) { ((plan_fixup *)(void *)(b + h->fixups.offset))[0].args_offset = 40; }
static void bad_target(plan_header *h, uint8_t *b) { ((plan_fixup *)(void *)(b + h->fixups.offset))[5].offset = h->device_bytes; }
static void bad_missing(plan_header *h, uint8_t *b) { op_at(h, b, 1)->fixup_count--; }
static void bad_ladder(plan_header *h, uint8_t *b) { ((uint32_t *)(void *)(b + h->ladder.offset))[1] = 1; }
static void bad_tensor(plan_header *h, uint8_t *b) { ((plan_tensor *)(void *)(b + h->tensors.offset))[2].row0 += 1000; }
static plan_gemm *gemm_at(plan_header *h, uint8_t *b) { return (plan_gemm *)(void *)(b + h->gemms.offset); }
static void bad_pin_rows(plan_header *h, uint8_t *b) { gemm_at(h, b)->rows_min = gemm_at(h, b)->rows_max + 1; }
static void bad_pin_room(plan_header *h, uint8_t *b) { gemm_at(h, b)->workspace_bytes = h->gemm_workspace_bytes + 1; }
static void bad_pin_kind(plan_header *h, uint8_t *b) { gemm_at(h, b)->is_optional = 2; }
static void bad_pointer(plan_header *h, uint8_t *b) { b[h->args.offset + op_at(h, b, 0)->args_offset] = 1; }

static void planted_faults(void **state) {
  (void)state;
  static const struct { plant *fn; const char *word; } cases[] = {
    {bad_magic, "another file"}, {bad_span, "ops"}, {bad_item, "tensors"}, {bad_region, "region 3"}, {bad_io, "overlap"},
    {bad_step, "last in the step region"},
    {bad_transport, "transport"},
    {bad_pages, "pages_per_seq"}, {bad_eos, "eos"}, {bad_scale, "scale of the model"}, {bad_q_scale, "scale of the query"},
    {bad_topk, "index_topk"}, {bad_lonely_topk, "index_topk"}, {bad_workspace, "expand_pages of strict"},
    {bad_index_heads, "index_heads, which is no power"},
    {bad_shared_first, "index_shared"}, {bad_shared_behind, "index_shared"}, {bad_shared_high, "index_shared"},
    {bad_weight_format, "weight_format"},
    {bad_act_scale, "act_scale"}, {bad_kv_format, "kv_format"}, {bad_kv_scale, "kv_scale"}, {bad_rank, "kv_lora_rank of fp8"},
    {bad_qk_norm, "qk_norm"}, {bad_bias, "has_bias"}, {bad_norms, "norms"}, {bad_shared_gate, "shared_gate"},
    {bad_grouped_pad, "pad of grouped"}, {bad_unrotated, "unrotated"}, {bad_latent, "kv_lora_rank"}, {bad_rope_dim, "rope_dim"},
    {bad_kv_heads, "heads % kv_heads"}, {bad_more_kv_heads, "kv_heads"}, {bad_group, "heads of a KV head"},
    {bad_grouped_latent, "kv_lora_rank: expected 0 to 0"}, {bad_grouped_q_lora, "q_lora_rank of grouped"},
    {bad_grouped_rope, "rope_dim"}, {bad_grouped_nope, "nope_dim"}, {bad_grouped_v, "v_dim"}, {bad_grouped_norm, "qk_norm"},
    {bad_grouped_bias, "has_bias"}, {bad_grouped_norms, "norms"}, {bad_no_shared, "shared_gate"}, {bad_unrotated_behind, "unrotated"},
    {bad_unrotated_high, "unrotated"}, {bad_grouped_index, "index_heads of grouped"}, {bad_grouped_kv, "kv_lora_rank of fp8"},
    {bad_grouped_frequency, "inv_freq[63]"},
    {bad_parity, "index_heads of fast"}, {bad_dtype, "dtype 3"}, {bad_scale_name, "scales refers"}, {bad_scaled, "becomes bf16"},
    {bad_variant, "variant"}, {bad_args, "argument bytes"}, {bad_rows, "rows"},
    {bad_fixup, "pointer"}, {bad_target, "outside its region"}, {bad_missing, "missing"}, {bad_ladder, "ladder"},
    {bad_tensor, "slice"}, {bad_pointer, "not zero"}, {bad_pin_rows, "algorithm 0: its row range"},
    {bad_pin_room, "algorithm 0: its row range"}, {bad_pin_kind, "algorithm 0: its row range"},
  };
  uint8_t *changed = malloc(file_bytes);
  assert_non_null(changed);
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    plan p;
    void *copy;
    memcpy(changed, file, file_bytes);
    cases[i].fn((plan_header *)(void *)changed, changed);
    sign(changed, file_bytes);
    status result = view_copy(changed, file_bytes, &p, &copy);
    free(copy);
    if (result == OK || !strstr(fail_text(), cases[i].word))
      fail_msg("fault %zu: expected \"%s\" in \"%s\"", i, cases[i].word, fail_text());
  }
  free(changed);
}

/* The fields of grouped heads, which the faults above start from, are accepted as they are. */
static void grouped_heads_are_accepted(void **state) {
  (void)state;
  plan p;
  void *copy;
  uint8_t *changed = malloc(file_bytes);
  assert_non_null(changed);
  memcpy(changed, file, file_bytes);
  group((plan_header *)(void *)changed);
  sign(changed, file_bytes);
  if (view_copy(changed, file_bytes, &p, &copy) != OK) fail_msg("%s", fail_text());
  free(copy);
  free(changed);
}

static void extents(void **state) {
  (void)state;
  const plan_dim fixed = {.constant = 3}, by_rows = {.constant = 2, .rows_mul = 6, .rows_div = 64};
  const plan_dim capped = {.rows_mul = 8, .rows_div = 1, .cap = 10};
  assert_int_equal(plan_extent(&fixed, 1000), 3);
  assert_int_equal(plan_extent(&by_rows, 1), 3);
  assert_int_equal(plan_extent(&by_rows, 64), 8);
  assert_int_equal(plan_extent(&by_rows, 65), 9);
  assert_int_equal(plan_extent(&capped, 1), 8);
  assert_int_equal(plan_extent(&capped, 2), 10);
}

/* Pointers come first in every argument struct; the counts follow from abi.h. */
static void pointer_counts(void **state) {
  (void)state;
  static const uint32_t expected[] = {9, 11, 14, 4, 14, 8, 8, 7, 6, 7, 3, 7, 6, 8, 6};
  for (uint32_t i = 0; i < ARRAY_LEN(expected); i++) assert_int_equal(plan_pointer_count(i), expected[i]);
}

static void missing_file(void **state) {
  (void)state;
  plan p;
  fail_clear();
  assert_int_equal(plan_open(&p, "tests/no-such-plan"), ERR_IO);
  assert_non_null(strstr(fail_text(), "tests/no-such-plan"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sound), cmocka_unit_test(every_cut), cmocka_unit_test(grown), cmocka_unit_test(flips),
                                     cmocka_unit_test(signed_flips), cmocka_unit_test(planted_faults),
                                     cmocka_unit_test(grouped_heads_are_accepted), cmocka_unit_test(extents),
                                     cmocka_unit_test(pointer_counts), cmocka_unit_test(missing_file)};
  return cmocka_run_group_tests(tests, make_plan, free_plan);
}
