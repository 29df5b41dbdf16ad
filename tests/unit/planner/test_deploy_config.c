/* test_deploy_config.c - the deployment file: every key is read, and refused by name if it is wrong; hostile text is an error. */
#include "tests/unit/unit.h"
#include <time.h>
#include "planner/deploy_config.h"
#include "planner_fixture.h"

static status parse(const char *text, deploy_config *out) {
  fail_clear();
  return deploy_config_parse(text, strlen(text), out);
}

static void every_key_is_read(void **state) {
  (void)state;
  deploy_config c = {0};
  assert_int_equal(parse("# comment\nmax-num-seqs: 3\nmax-num-batched-tokens: 77\nmax-model-len: 1000\nmax_logit_rows: 9\nkv_pages: 40\n"
                         "device_memory_bytes: 140GiB\ngpu-memory-utilization: 0.85\nladder: [1, 2, 3]\n"
                         "parity: strict\nlatent_norm_eps: config\nchunk-tokens: 128\ngroup_chunks: 4\ntensor-parallel-size: 1\n"
                         "exchange-transport: nccl\ndivide-rows-from: 99\n"
                         "attention-by-requests-from: 4096\n", &c), OK);
  assert_true(c.divided_rows == 99 && c.requests_context == 4096);
  assert_int_equal(c.max_seqs, 3);
  assert_int_equal(c.max_batch_tokens, 77);
  assert_int_equal(c.max_len, 1000);
  assert_int_equal(c.max_logit_rows, 9);
  assert_int_equal(c.kv_pages, 40);
  assert_true(c.device_memory_bytes == UINT64_C(140) << 30);
  assert_int_equal(c.memory_ppm, 850000);
  assert_int_equal(c.ladder_count, 3);
  assert_int_equal(c.ladder[2], 3);
  assert_int_equal(c.latent_eps_of_config, 1);
  assert_int_equal(c.chunk_tokens, 128);
  assert_int_equal(c.group_chunks, 4);
  assert_int_equal(c.transport, TRANSPORT_NCCL);
  assert_int_equal(parse("exchange_transport: peer\n", &c), OK);
  assert_int_equal(c.transport, TRANSPORT_PEER);
}

static void json_is_read_too(void **state) {
  (void)state;
  deploy_config c = {0};
  assert_int_equal(parse("{\"max-num-seqs\": 5, \"ladder\": [1, 5], \"latent_norm_eps\": \"hf\"}", &c), OK);
  assert_int_equal(c.max_seqs, 5);
  assert_int_equal(c.ladder[1], 5);
}

static void kv_formats_have_the_names_that_others_give_them(void **state) {
  (void)state;
  static const struct {
    const char *text;
    uint32_t dtype, scales;
  } CASES[] = {{"kv-cache-dtype: auto", DEPLOY_KV_AUTO, 0}, {"kv_cache_dtype: bf16", DEPLOY_KV_BF16, 0},
               {"kv-cache-dtype: bfloat16", DEPLOY_KV_BF16, 0}, {"kv-cache-dtype: fp8", DEPLOY_KV_FP8, 0},
               {"kv-cache-dtype: fp8_e4m3", DEPLOY_KV_FP8, 0}, {"kv-cache-dtype: fp8_ds_mla", DEPLOY_KV_FP8_DS_MLA, 0},
               {"kv-cache-scales: ue8m0", DEPLOY_KV_AUTO, 0}, {"kv-cache-scales: float32", DEPLOY_KV_AUTO, 1}};
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    deploy_config c = {0};
    assert_int_equal(parse(CASES[i].text, &c), OK);
    assert_int_equal(c.kv_dtype, CASES[i].dtype);
    assert_int_equal(c.kv_scales_f32, CASES[i].scales);
  }
}

static void nothing_means_defaults(void **state) {
  (void)state;
  static const char *const TEXTS[] = {"", "\n \n", "# only a comment\n", "{}", "---\n"};
  for (size_t i = 0; i < ARRAY_LEN(TEXTS); i++) {
    deploy_config c = {.max_seqs = 7}, zero = {0};
    status result = parse(TEXTS[i], &c);
    if (result != OK) fail_msg("\"%s\": %s", TEXTS[i], fail_text());
    assert_memory_equal(&c, &zero, sizeof c);
  }
}

static void sizes_take_units(void **state) {
  (void)state;
  static const struct {
    const char *text;
    uint64_t bytes;
  } CASES[] = {{"kv_memory_bytes: 20GiB", UINT64_C(20) << 30}, {"kv_memory_bytes: 500 MB", 500000000}, {"kv_memory_bytes: 123", 123},
               {"kv_memory_bytes: 64KiB", 65536}, {"kv_memory_bytes: \"2 TiB\"", UINT64_C(2) << 40}, {"kv_memory_bytes: 9B", 9}};
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    deploy_config c = {0};
    assert_int_equal(parse(CASES[i].text, &c), OK);
    assert_true(c.kv_memory_bytes == CASES[i].bytes);
  }
}

static const struct {
  const char *text, *words;
  status code;
} WRONG[] = {
    {"max_num_seq: 4", "\"max-num-seqs\"", ERR_FORMAT},
    {"max_seqs: 4", "renamed to \"max-num-seqs\"", ERR_FORMAT},
    {"max-len: 4", "renamed to \"max-model-len\"", ERR_FORMAT},
    {"max_batch_tokens: 4", "renamed to \"max-num-batched-tokens\"", ERR_FORMAT},
    {"memory_fraction: 0.9", "renamed to \"gpu-memory-utilization\"", ERR_FORMAT},
    {"pipeline-parallel-size: 2", "hint: tensor-parallel-size", ERR_UNSUPPORTED},
    {"data_parallel_size: 4", "one server for each replica", ERR_UNSUPPORTED},
    {"enable-expert-parallel: true", "the columns of every expert", ERR_UNSUPPORTED},
    {"nnodes: 2", "in one machine", ERR_UNSUPPORTED},
    {"divide-rows-from: 1", "divide-rows-from", ERR_FORMAT},
    {"exchange-transport: rdma", "expected one of: peer nccl; found \"rdma\"", ERR_FORMAT},
    {"exchange-transports: nccl", "\"exchange-transport\"", ERR_FORMAT},
    {"exchange-transport: [nccl]", "exchange-transport", ERR_FORMAT},
    {"tensor-parallel-size: 0", "tensor-parallel-size", ERR_FORMAT},
    {"ladders: [1]", "\"ladder\"", ERR_FORMAT},
    {"gpu_memory_utilisation: 0.5", "\"gpu-memory-utilization\"", ERR_FORMAT},
    {"max-num-seqs: 0", "max-num-seqs", ERR_FORMAT},
    {"max-num-seqs: 1025", "max-num-seqs", ERR_FORMAT},
    {"max-num-seqs: -1", "max-num-seqs", ERR_FORMAT},
    {"max-num-seqs: 1.5", "max-num-seqs", ERR_FORMAT},
    {"max-num-seqs: many", "max-num-seqs", ERR_FORMAT},
    {"max-num-seqs: 0x10", "max-num-seqs", ERR_FORMAT},
    {"max-num-seqs: ", "max-num-seqs", ERR_FORMAT},
    {"max-num-seqs: [4]", "max-num-seqs", ERR_FORMAT},
    {"max-num-seqs: {a: 4}", "max-num-seqs", ERR_FORMAT},
    {"max-num-seqs: 4\nmax-num-seqs: 5", NULL, ERR_FORMAT},
    {"max-num-seqs: 99999999999999999999999", "max-num-seqs", ERR_FORMAT},
    {"max-num-batched-tokens: 65537", "max-num-batched-tokens", ERR_FORMAT},
    {"max-model-len: 1", "max-model-len", ERR_FORMAT},
    {"max-model-len: 1048577", "max-model-len", ERR_FORMAT},
    {"max_logit_rows: 0", "max-logit-rows", ERR_FORMAT},
    {"kv_pages: 33554433", "kv-pages", ERR_FORMAT},
    {"kv_pages: 4\nkv_memory_bytes: 1GiB", "kv-pages and kv-memory-bytes", ERR_FORMAT},
    {"kv_memory_bytes: 1 parsec", "parsec", ERR_FORMAT},
    {"kv_memory_bytes: 9000000TiB", "kv-memory-bytes", ERR_FORMAT},
    {"kv_memory_bytes: 1.5GiB", "kv-memory-bytes", ERR_FORMAT},
    {"gpu-memory-utilization: 0.9", "device-memory-bytes", ERR_FORMAT},
    {"device_memory_bytes: 1GiB\ngpu-memory-utilization: 1.1", "gpu-memory-utilization", ERR_FORMAT},
    {"device_memory_bytes: 1GiB\ngpu-memory-utilization: 0", "gpu-memory-utilization", ERR_FORMAT},
    {"device_memory_bytes: 1GiB\ngpu-memory-utilization: 0.1234567", "gpu-memory-utilization", ERR_FORMAT},
    {"device_memory_bytes: 1GiB\ngpu-memory-utilization: 90%", "gpu-memory-utilization", ERR_FORMAT},
    {"ladder: 4", "ladder", ERR_FORMAT},
    {"ladder: []", "ladder", ERR_FORMAT},
    {"ladder: [2, 1]", "ascend", ERR_FORMAT},
    {"ladder: [1, 1]", "ascend", ERR_FORMAT},
    {"ladder: [0]", "ladder", ERR_FORMAT},
    {"ladder: [[1]]", "ladder", ERR_FORMAT},
    {"parity: fast-prefill\nexpand_tokens: 100", "multiple of 64", ERR_FORMAT},
    {"parity: fast-prefill\nexpand_tokens: 32", "expand-tokens", ERR_FORMAT},
    {"parity: loose", "strict", ERR_FORMAT},
    {"latent_norm_eps: 1e-6", "hf config", ERR_FORMAT},
    {"kv-cache-dtype: fp8_e5m2", "fp8|fp8_e4m3 fp8_ds_mla; found \"fp8_e5m2\"", ERR_FORMAT},
    {"kv-cache-dtype: fp8|fp8_e4m3", "kv-cache-dtype", ERR_FORMAT},
    {"kv-cache-dtype: \"\"", "kv-cache-dtype", ERR_FORMAT},
    {"kv-cache-scales: e8m0", "ue8m0 float32", ERR_FORMAT},
    {"chunk_tokens: 192", "chunk-tokens", ERR_FORMAT},
    {"chunk_tokens: 32", "chunk-tokens", ERR_FORMAT},
    {"chunk_tokens: 4096", "chunk-tokens", ERR_FORMAT},
    {"group_chunks: 3", "group-chunks", ERR_FORMAT},
    {"group_chunks: 128", "group-chunks", ERR_FORMAT},
    {"max-num-seqs: &a 4", "anchor", ERR_FORMAT},
    {"max-num-seqs: !!int 4", "tag", ERR_FORMAT},
    {"max-num-seqs: *a", NULL, ERR_FORMAT},
    {"just words", "key: value", ERR_FORMAT},
    {"- a\n- b", "key: value", ERR_FORMAT},
    {"max-num-seqs: 4\n  max-model-len: 5: 6", NULL, ERR_FORMAT},
    {"\"unclosed", NULL, ERR_FORMAT},
    {"{max-num-seqs: 4", NULL, ERR_FORMAT},
    {"max-num-seqs: 4\n---\nmax-num-seqs: 5", "one document", ERR_FORMAT},
    {"\xff\xfe", NULL, ERR_FORMAT},
    {"%YAML 1.1\n---\nmax-num-seqs: 4", "directive", ERR_FORMAT},
    {"\t\t: 4", NULL, ERR_FORMAT},
};

static void wrong_values_are_named(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(WRONG); i++) {
    deploy_config c = {.max_seqs = 12345};
    status result = parse(WRONG[i].text, &c);
    if (result != WRONG[i].code || (WRONG[i].words && !strstr(fail_text(), WRONG[i].words)))
      fail_msg("%s: code %d, \"%s\"", WRONG[i].text, result, fail_text());
    assert_int_equal(c.max_seqs, 12345);
  }
}

static void too_many_ladder_sizes(void **state) {
  (void)state;
  char text[1024] = "ladder: [1";
  deploy_config c = {0};
  for (uint32_t i = 2; i <= LADDER_MAX + 1; i++) snprintf(text + strlen(text), 16, ", %u", i);
  strcat(text, "]");
  fixture_expect(parse(text, &c), ERR_LIMIT, "ladder");
}

static void hostile_text_is_an_error(void **state) {
  (void)state;
  deploy_config c = {0};
  fail_clear();
  fixture_expect(deploy_config_parse("max-num-seqs\0: 4", 16, &c), ERR_FORMAT, "NUL");
  size_t deep = 100000;
  char *nested = malloc(deep);
  assert_non_null(nested);
  memset(nested, '[', deep);
  fail_clear();
  assert_int_equal(deploy_config_parse(nested, deep, &c), ERR_FORMAT);
  for (size_t i = 0; i + 2 < deep; i += 3) memcpy(nested + i, "{a:", 3);
  fail_clear();
  assert_int_equal(deploy_config_parse(nested, deep, &c), ERR_FORMAT);
  free(nested);
  char *large = calloc(1, FILE_CONFIG_BYTES_MAX + 1u);
  assert_non_null(large);
  fail_clear();
  assert_int_equal(deploy_config_parse(large, FILE_CONFIG_BYTES_MAX + 1u, &c), ERR_LIMIT);
  free(large);
}

/* Keys are not compared with each other, which would take a minute. */
static void a_file_full_of_keys_is_refused_at_once(void **state) {
  (void)state;
  deploy_config c;
  char *text = malloc(FILE_CONFIG_BYTES_MAX);
  assert_non_null(text);
  size_t used = 0;
  for (unsigned i = 0; used + 16 < FILE_CONFIG_BYTES_MAX; i++) used += (size_t)sprintf(text + used, "k%u: 1\n", i);
  clock_t begin = clock();
  fail_clear();
  fixture_expect(deploy_config_parse(text, used, &c), ERR_LIMIT, "more than 256 keys");
  assert_true((clock() - begin) / CLOCKS_PER_SEC < 10);
  free(text);
}

static void truncation_and_bit_flips_never_crash(void **state) {
  (void)state;
  static const char TEXT[] = "max-num-seqs: 64\nladder: [1, 2, 4]\nkv_memory_bytes: 20GiB\nparity: \"strict\"\n";
  char text[sizeof TEXT];
  uint32_t refused = 0;
  for (size_t bytes = 0; bytes < sizeof TEXT; bytes++) {
    deploy_config c = {0};
    fail_clear();
    refused += deploy_config_parse(TEXT, bytes, &c) != OK;
  }
  for (size_t i = 0; i + 1 < sizeof TEXT; i++)
    for (int bit = 0; bit < 8; bit++) {
      deploy_config c = {0};
      memcpy(text, TEXT, sizeof TEXT);
      text[i] = (char)(text[i] ^ (1 << bit));
      fail_clear();
      refused += deploy_config_parse(text, sizeof TEXT - 1, &c) != OK;
    }
  assert_true(refused > 300);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_key_is_read),
      cmocka_unit_test(json_is_read_too),
      cmocka_unit_test(kv_formats_have_the_names_that_others_give_them), cmocka_unit_test(nothing_means_defaults),
      cmocka_unit_test(sizes_take_units),
      cmocka_unit_test(wrong_values_are_named),
      cmocka_unit_test(too_many_ladder_sizes),
      cmocka_unit_test(hostile_text_is_an_error),
      cmocka_unit_test(a_file_full_of_keys_is_refused_at_once),
      cmocka_unit_test(truncation_and_bit_flips_never_crash),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
