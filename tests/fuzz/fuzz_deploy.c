/* fuzz_deploy.c - deployment files. The values that the reader of flat mappings returns are within their bounds, and are the same when they
 * are written out, quoted, and read again; it reads whatever the planner accepts. A file that the planner accepts has values in the stated
 * ranges, survives being written out and read again, and makes a plan of the smallest model, or is refused by name; the engine accepts
 * every plan that is made. */
#include "fuzz.h"
#include "kernels_src/abi.h"
#include "make_plan.h"
#include "planner/deploy_config.h"
#include "planner/flat_yaml.h"
#include "engine/base/utf8.h"

#define WRITTEN_BYTES 2048u

/* libfyaml 0.7.12 leaks a buffer on some malformed quoted scalars; leaks of our own are still found. */
const char *__lsan_default_suppressions(void) { return "leak:fy_"; }

static void check_range(uint64_t value, uint64_t low, uint64_t high) { ASSERT(value == 0 || (value >= low && value <= high)); }

static void check_values(const deploy_config *c) {
  check_range(c->max_seqs, 1, SEQS_MAX);
  check_range(c->max_batch_tokens, 1, BATCH_TOKENS_MAX);
  check_range(c->max_len, 2, LENGTH_MAX);
  check_range(c->max_logit_rows, 1, BATCH_TOKENS_MAX);
  check_range(c->kv_pages, 1, KV_PAGES_MAX);
  check_range(c->memory_ppm, 1, 1000000);
  check_range(c->kv_memory_bytes, 1, UINT64_C(1) << 48);
  check_range(c->device_memory_bytes, 1u << 20, UINT64_C(1) << 48);
  check_range(c->chunk_tokens, 64, 2048);
  check_range(c->group_chunks, 1, 64);
  check_range(c->expand_tokens, PAGE_TOKENS, LENGTH_MAX);
  ASSERT(c->expand_tokens % PAGE_TOKENS == 0);
  ASSERT(c->parity == PARITY_STRICT || c->parity == PARITY_FAST_PREFILL);
  ASSERT((c->chunk_tokens & (c->chunk_tokens - 1)) == 0 && (c->group_chunks & (c->group_chunks - 1)) == 0);
  ASSERT(c->transport == TRANSPORT_PEER || c->transport == TRANSPORT_NCCL);
  ASSERT(c->kv_dtype <= DEPLOY_KV_FP8_DS_MLA && c->kv_scales_f32 <= 1);
  ASSERT(c->latent_eps_of_config <= 1 && c->ladder_count <= LADDER_MAX);
  ASSERT(!c->kv_pages || !c->kv_memory_bytes);
  for (uint32_t i = 0; i < c->ladder_count; i++) ASSERT(c->ladder[i] > (i ? c->ladder[i - 1] : 0) && c->ladder[i] <= BATCH_TOKENS_MAX);
}

static size_t put(char *text, size_t used, const char *name, uint64_t value) {
  if (value == 0) return used;
  return used + (size_t)snprintf(text + used, WRITTEN_BYTES - used, "%s: %llu\n", name, (unsigned long long)value);
}

static size_t write_config(const deploy_config *c, char *text) {
  size_t used = put(text, 0, "max-num-seqs", c->max_seqs);
  used = put(text, used, "max-num-batched-tokens", c->max_batch_tokens);
  used = put(text, used, "max-model-len", c->max_len);
  used = put(text, used, "max_logit_rows", c->max_logit_rows);
  used = put(text, used, "kv_pages", c->kv_pages);
  used = put(text, used, "kv_memory_bytes", c->kv_memory_bytes);
  used = put(text, used, "device_memory_bytes", c->device_memory_bytes);
  used = put(text, used, "chunk_tokens", c->chunk_tokens);
  used = put(text, used, "group_chunks", c->group_chunks);
  used = put(text, used, "expand_tokens", c->expand_tokens);
  used = put(text, used, "tensor-parallel-size", c->tensor_parallel);
  if (c->speculation == SPECULATION_NGRAM) used += (size_t)sprintf(text + used, "speculative_config: {method: ngram}\n");
  if (c->speculation == DEPLOY_SPECULATION_AUTO) used += (size_t)sprintf(text + used, "speculative_config: {method: auto}\n");
  if (c->speculation == SPECULATION_MTP) used += (size_t)sprintf(text + used, "speculative_config: {method: deepseek_mtp}\n");
  used = put(text, used, "speculative-config.num_speculative_tokens", c->draft_tokens);
  used = put(text, used, "speculative-config.prompt-lookup-min", c->match_min);
  used = put(text, used, "speculative-config.prompt-lookup-max", c->match_max);
  if (c->transport == TRANSPORT_NCCL) used += (size_t)sprintf(text + used, "exchange-transport: nccl\n");
  if (c->parity == PARITY_FAST_PREFILL) used += (size_t)sprintf(text + used, "parity: fast-prefill\n");
  if (c->memory_ppm) used += (size_t)sprintf(text + used, "gpu-memory-utilization: %u.%06u\n", c->memory_ppm / 1000000,
                                             c->memory_ppm % 1000000);
  static const char *const dtypes[] = {"auto", "bfloat16", "fp8_e4m3", "fp8_ds_mla"};
  used += (size_t)sprintf(text + used, "kv-cache-dtype: %s\n", dtypes[c->kv_dtype]);
  if (c->kv_scales_f32) used += (size_t)sprintf(text + used, "kv-cache-scales: float32\n");
  if (c->latent_eps_of_config) used += (size_t)sprintf(text + used, "latent_norm_eps: config\n");
  for (uint32_t i = 0; i < c->ladder_count; i++) used += (size_t)sprintf(text + used, "%s%u", i ? ", " : "ladder: [", c->ladder[i]);
  if (c->ladder_count) used += (size_t)sprintf(text + used, "]\n");
  ASSERT(used < WRITTEN_BYTES);
  return used;
}

static void put_quoted(FILE *to, const char *text) {
  putc('"', to);
  for (size_t i = 0, bytes = strlen(text); i < bytes;) {
    int length = utf8_scan((const uint8_t *)text + i, bytes - i);
    ASSERT(length > 0);
    fprintf(to, "\\U%08x", utf8_code_point((const uint8_t *)text + i, length));
    i += (size_t)length;
  }
  putc('"', to);
}

static bool is_same(const flat_yaml *a, const flat_yaml *b) {
  if (a->count != b->count) return false;
  for (uint32_t i = 0; i < a->count; i++) {
    if (strcmp(a->rows[i].key, b->rows[i].key) != 0 || a->rows[i].is_list != b->rows[i].is_list || a->rows[i].count != b->rows[i].count)
      return false;
    for (uint32_t j = 0; j < a->rows[i].count; j++)
      if (strcmp(a->rows[i].values[j], b->rows[i].values[j]) != 0) return false;
  }
  return true;
}

/* Returns whether the reader accepts the text. */
static bool check_reader(const char *text, size_t bytes) {
  flat_yaml file = {0}, again = {0};
  char *written = NULL;
  size_t written_bytes = 0;
  if (!fuzz_is_ok(flat_yaml_read("file", text, bytes, &file))) {
    ASSERT(file.rows == NULL && file.count == 0);
    return false;
  }
  ASSERT(file.count <= FLAT_YAML_KEYS_MAX);
  FILE *to = open_memstream(&written, &written_bytes);
  ASSERT(to != NULL);
  for (uint32_t i = 0; i < file.count; i++) {
    const flat_yaml_row *row = &file.rows[i];
    ASSERT(flat_yaml_find(&file, row->key) == row && strlen(row->key) < FLAT_YAML_KEY_BYTES && row->count <= FLAT_YAML_LIST_MAX);
    ASSERT(row->is_list || row->count == 1);
    put_quoted(to, row->key);
    fputs(row->is_list ? ": [" : ": ", to);
    for (uint32_t j = 0; j < row->count; j++) {
      ASSERT(strlen(row->values[j]) < FLAT_YAML_VALUE_BYTES);
      if (j > 0) fputs(", ", to);
      put_quoted(to, row->values[j]);
    }
    fputs(row->is_list ? "]\n" : "\n", to);
  }
  ASSERT(fclose(to) == 0);
  if (written_bytes <= FILE_CONFIG_BYTES_MAX) {
    fail_clear();
    if (flat_yaml_read("file", written, written_bytes, &again) != OK) fprintf(stderr, "%s\n", fail_text());
    ASSERT(is_same(&file, &again));
  }
  flat_yaml_close(&again);
  flat_yaml_close(&file);
  free(written);
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  const char *text = (const char *)data;
  char written[WRITTEN_BYTES];
  deploy_config config, again, untouched;
  memset(&config, 0x5a, sizeof config);
  untouched = config;
  fail_clear();
  bool is_flat = check_reader(text, bytes);
  fail_clear();
  if (!fuzz_is_ok(deploy_config_parse(text, bytes, &config))) {
    ASSERT(memcmp(&config, &untouched, sizeof config) == 0);
    return 0;
  }
  ASSERT(is_flat);
  check_values(&config);
  ASSERT(deploy_config_parse(written, write_config(&config, written), &again) == OK);
  ASSERT(memcmp(&config, &again, sizeof config) == 0);
  status result = make_plan((planner_text){text, bytes}, (planner_text){0});
  /* of a cache that this model cannot have; of a workspace that is useless for bf16 rows without fast-prefill */
  const bool may_be_refused = config.kv_dtype > DEPLOY_KV_BF16 || config.kv_scales_f32 ||
                              (config.parity == PARITY_STRICT && config.expand_tokens);
  ASSERT(result == OK || result == ERR_LIMIT || (may_be_refused && (result == ERR_UNSUPPORTED || result == ERR_FORMAT)));
  (void)fuzz_is_ok(result);
  return 0;
}
