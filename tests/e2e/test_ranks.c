/* test_ranks.c - plans of several ranks give the bits of one: receipts, and traces of every row of every op.
 *
 * The CPU backend runs all ranks of a plan, so that no GPU is needed. Models are small ones of every structure with as many heads and
 * columns as the ranks divide; where columns cannot be divided evenly all ranks compute them all. The controls leave out an exchange, swap
 * two ranks or change a bit: the start finds it, or the comparison of the ranks while they run. Linked with --wrap. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "e2e.h"
#include "tests/e2e/changed.h"
#include "engine/base/base.h"
#include "engine/cpu/cpu.h"
#include "engine/ops/kernels.h"
#include "kernels_src/num.h"

#define LIMITS "max-num-seqs: 8\nmax-model-len: 192\nkv_pages: 40\nladder: [1, 2, 8]\n"
#define G "group_chunks: 2\n" /* of latent attention */
#ifdef __SANITIZE_ADDRESS__
#define REQUESTS 3u /* instrumented code is slow */
#else
#define REQUESTS 6u
#endif
#define VOCAB 384u
#define PROMPT_MAX 150u
#define TOKENS_MAX 10u

typedef struct structure {
  const char *config, *changes; /* changes: JSON, of the config or of its text_config */
  const char *deploy;           /* added to the limits */
  uint32_t chunk_tokens, batch_tokens;
  uint32_t ranks[9];            /* ends with 0; D(n): n ranks that divide rows; Q(n): that also attend by requests */
} structure;

/* In steps of more than a few rows; the others of the same requests have all rows on all ranks. */
#define D(n) ((n) | 32u)
#define DIVIDED "divide-rows-from: 7\n"
/* In steps that generate, from this context on: those of these requests are shorter and longer. */
#define Q(n) ((n) | 64u)
#define BY_REQUESTS "attention-by-requests-from: 60\n"

#define HEADS(n) "\"num_attention_heads\": " #n ", \"num_key_value_heads\": " #n
static const structure V3 = {"small-v3.json",
  "{" HEADS(48) ", \"hidden_size\": 384, \"intermediate_size\": 768, \"moe_intermediate_size\": 192}", G, 64, 48,
  {3, 8, 16, Q(2), D(4), D(16), 0}};
static const structure V3_TRACED = {"small-v3.json", "{" HEADS(6) ", \"hidden_size\": 192}", G, 64, 48, {2, Q(3), D(6), 0}};
static const structure V3_MANY = {"small-v3.json", "{" HEADS(6) ", \"hidden_size\": 192}", G, 64, 160, {2, 3, 0}};
static const structure DENSE_MANY = {"small-youtu.json", "{" HEADS(4) "}", G, 64, 160, {4, 0}};
static const structure V2LITE = {"small-v2lite.json", "{" HEADS(12) ", \"hidden_size\": 192}", G, 64, 48, {2, D(3), Q(4), 12, 0}};
static const structure FAST = {"small-v2lite.json", "{" HEADS(12) "}", G "parity: fast-prefill\nexpand-tokens: 64\n", 64, 48,
                               {2, Q(3), D(4), 0}};
static const structure DENSE = {"small-youtu.json", "{" HEADS(4) "}", G, 64, 48, {Q(2), D(4), 0}};
static const structure TIED = {"small-minicpm3.json", "{" HEADS(4) ", \"tie_word_embeddings\": true}", G, 64, 48, {2, 4, 0}};
static const structure GLM = {"small-glm4-moe-lite.json", "{}", G, 64, 48, {D(2), 0}};
static const structure MISTRAL = {"small-mistral4.json", "{}", G, 64, 48, {Q(2), 0}};
static const structure LISTS = {"small-v32.json", "{}", G, 64, 48, {2, D(4), 0}};
static const structure LISTS_FP8 = {"small-v32-fp8.json", "{\"hidden_size\": 512, \"moe_intermediate_size\": 512}", G, 64, 48,
                                    {2, D(4), 0}};
static const structure ONE_CHUNK = {"small-v32-heads-fp8.json", "{}", G, 128, 48, {2, D(3), 8, 0}};
static const structure SHARED_LISTS = {"small-glm52-fp8.json", "{\"moe_intermediate_size\": 512}", G, 64, 48, {2, D(2), 0}};
static const structure FP8 = {"small-v3-fp8.json",
  "{" HEADS(4) ", \"hidden_size\": 512, \"intermediate_size\": 1024, \"moe_intermediate_size\": 512}", G, 64, 48, {2, D(2), Q(4), 0}};
static const structure FP8_CACHE = {"small-v3-fp8.json", "{}", G "kv-cache-dtype: fp8_ds_mla\nexpand-tokens: 192\n", 64, 48,
                                    {2, Q(2), 0}};

/* Grouped-query attention. Heads that cannot be divided all ranks compute. */
#define GROUPED(heads, kv_heads) "\"num_attention_heads\": " #heads ", \"num_key_value_heads\": " #kv_heads ", \"hidden_size\": 384"
static const structure LLAMA = {"small-llama-bias.json", "{" GROUPED(12, 6) ", \"intermediate_size\": 768}", "", 64, 48,
                                {2, 3, 4, D(6), 8, 0}};
static const structure LLAMA_MANY = {"small-llama.json", "{" GROUPED(8, 4) "}", "", 64, 160, {2, 4, 0}};
static const structure QWEN2 = {"small-qwen2.json", "{" GROUPED(6, 2) "}", "", 64, 48, {2, 3, 0}};
static const structure QWEN3_MOE = {"small-qwen3-moe.json", "{" GROUPED(8, 4) "}", "", 64, 48, {2, D(4), 16, 0}};
static const structure QWEN2_MOE = {"small-qwen2-moe.json", "{" GROUPED(6, 6) "}", "", 64, 48, {2, D(3), 0}};
static const structure GLM4 = {"small-glm4.json", "{" GROUPED(8, 2) "}", "", 64, 48, {2, D(2), 0}};
static const structure GLM4_MOE = {"small-glm4-moe.json", "{" GROUPED(10, 2) "}", "", 64, 48, {2, 0}};
static const structure OLMO2 = {"small-olmo2.json", "{" GROUPED(6, 6) "}", "", 64, 48, {2, D(3), 0}};
static const structure PHI3 = {"small-phi3.json", "{\"hidden_size\": 384, \"num_attention_heads\": 4, \"num_key_value_heads\": 2}", "", 64,
                               48, {2, 0}};
static const structure QWEN3_FP8 = {"small-qwen3-fp8.json", "{}", "", 64, 48, {2, D(3), 0}};
static const structure SMOLLM3 = {"small-smollm3.json", "{" GROUPED(6, 3) "}", "", 64, 48, {3, 0}};

static e2e_requests requests;

/* === Runs ================================================================================================================= */

typedef struct outcome {
  digest receipt;
  uint64_t trace; /* sum over all rows of all points; 0 without one */
} outcome;

static uint64_t trace_sum;
static uint32_t point_count;

static void on_trace(verbatim_request *q, uint32_t position, const uint64_t *digests) {
  (void)q;
  for (uint32_t i = 0; i < point_count; i++)
    trace_sum += num_digest_word(position * point_count + i, (uint32_t)(digests[i] ^ digests[i] >> 32));
}

static bool checks_exchanges; /* of engines that run() opens */
static uint32_t by_requests_seen; /* exchanges of attention by requests on all ranks */

static outcome run(const e2e_model *model, const char *plan_path, bool traces) {
  verbatim_config config = e2e_config(model);
  config.plan_path = plan_path;
  config.trace = traces;
  config.check_exchanges = checks_exchanges;
  trace_sum = 0;
  for (uint32_t i = 0; i < requests.count; i++) requests.list[i].on_trace = traces ? on_trace : NULL;
  outcome out = {.receipt = e2e_run(&config, &requests, 0, requests.count)};
  out.trace = trace_sum;
  return out;
}

static void make_model(const structure *s, e2e_model *model) {
  char deploy[512];
  snprintf(deploy, sizeof deploy, "%s%schunk_tokens: %u\nmax-num-batched-tokens: %u\n", LIMITS, s->deploy, s->chunk_tokens,
           s->batch_tokens);
  changed_make_model(model, s->config, s->changes, deploy);
}

/* more: further lines of the deployment. */
static void plan_with(const structure *s, const e2e_model *model, uint32_t ranks, const char *more, char path[E2E_PATH_MAX]) {
  char name[32], deploy[512];
  snprintf(name, sizeof name, "ranks-%u%s.plan", ranks, *more ? "-other" : "");
  snprintf(deploy, sizeof deploy, "%s%schunk_tokens: %u\nmax-num-batched-tokens: %u\ntensor-parallel-size: %u\n%s", LIMITS, s->deploy,
           s->chunk_tokens, s->batch_tokens, ranks, more);
  e2e_make_plan(model, name, deploy, path);
}

static void plan_for(const structure *s, const e2e_model *model, uint32_t ranks, char path[E2E_PATH_MAX]) {
  plan_with(s, model, ranks, "", path);
}

static void count_points(const e2e_model *model) {
  verbatim_config config = e2e_config(model);
  verbatim *engine = NULL;
  config.trace = true;
  assert_int_equal(verbatim_open(&engine, &config), 0);
  point_count = verbatim_describe(engine).point_count;
  verbatim_close(engine);
}

/* A traced step attends by heads: a receipt without a trace judges the other form. */
static void check_ranks(const structure *s, const e2e_model *model, uint32_t form, const outcome *one, bool traces) {
  const bool by_requests = form & Q(0);
  const uint32_t ranks = form & 31;
  const char *more = by_requests ? DIVIDED BY_REQUESTS : form & D(0) ? DIVIDED : "";
  char path[E2E_PATH_MAX];
  plan_with(s, model, ranks, more, path);
  by_requests_seen = 0;
  outcome several = run(model, path, traces && !by_requests);
  if (by_requests && e2e_device() == VERBATIM_DEVICE_CPU) assert_true(by_requests_seen > 0);
  if (memcmp(several.receipt.bytes, one->receipt.bytes, DIGEST_BYTES) != 0)
    fail_msg("%s: %u ranks give another receipt; %s", s->config, ranks, more);
  if (by_requests && traces) several = run(model, path, true);
  if (several.trace != one->trace) fail_msg("%s: %u ranks give another trace; %s", s->config, ranks, more);
}

static void check(const structure *s, bool traces) {
  e2e_model model = {0};
  make_model(s, &model);
  count_points(&model);
  const outcome one = run(&model, model.plan_path, traces);
  assert_true(!traces || one.trace != 0);
  for (uint32_t i = 0; s->ranks[i]; i++) check_ranks(s, &model, s->ranks[i], &one, traces);
  e2e_remove(&model);
}

#define CASE(name, structure, traces)       \
  static void name(void **state) {          \
    (void)state;                            \
    check(&structure, traces);              \
  }
CASE(experts, V3, false)
CASE(experts_traced, V3_TRACED, true)
CASE(experts_many_rows, V3_MANY, true) /* more than norms exchange */
CASE(dense_many_rows, DENSE_MANY, true)
CASE(no_query_rank, V2LITE, false)
CASE(fast_prefill, FAST, true)
CASE(dense, DENSE, true)
CASE(tied_head, TIED, true)
CASE(glm, GLM, true)
CASE(mistral, MISTRAL, true)
CASE(lists, LISTS, true)
CASE(lists_fp8, LISTS_FP8, true)
CASE(lists_of_one_chunk, ONE_CHUNK, false)
CASE(shared_lists, SHARED_LISTS, true)
CASE(fp8, FP8, true)
CASE(fp8_cache, FP8_CACHE, true)
CASE(llama, LLAMA, true)
CASE(llama_many_rows, LLAMA_MANY, true)
CASE(qwen2, QWEN2, true)
CASE(qwen3_moe, QWEN3_MOE, true)
CASE(qwen2_moe, QWEN2_MOE, true)
CASE(glm4, GLM4, true)
CASE(glm4_moe, GLM4_MOE, true)
CASE(olmo2, OLMO2, true)
CASE(phi3, PHI3, true)
CASE(smollm3, SMOLLM3, true)
CASE(qwen3_fp8, QWEN3_FP8, true)

/* The plan that has no rank_norm and other buffers; the CPU runs it without NCCL. */
static void the_transport_changes_nothing(void **state) {
  (void)state;
  static const structure *const structures[] = {&V3_MANY, &FP8};
  for (size_t i = 0; i < ARRAY_LEN(structures); i++) {
    const structure *s = structures[i];
    e2e_model model = {0};
    char path[E2E_PATH_MAX];
    make_model(s, &model);
    count_points(&model);
    const outcome one = run(&model, model.plan_path, true);
    plan_with(s, &model, 2, "exchange-transport: nccl\n", path);
    const outcome nccl = run(&model, path, true);
    assert_memory_equal(&nccl.receipt, &one.receipt, sizeof one.receipt);
    assert_true(one.trace != 0 && nccl.trace == one.trace);
    e2e_remove(&model);
  }
}

/* === Controls ============================================================================================================= */

enum fault { FAULT_NONE, FAULT_MISSING, FAULT_SWAPPED, FAULT_BIT, FAULT_COUNT, FAULT_LINK };
static enum fault fault;
/* Of rank 1: which op is wrong, KERNEL_exchange or KERNEL_rank_norm; such ops so far, and the number of the first wrong one. */
static uint32_t faulty_op, seen, faulty;

static bool is_faulty(const exchange_ranks *ranks, uint32_t op) {
  return fault != FAULT_NONE && op == faulty_op && ranks->rank == 1 && seen++ >= faulty;
}

/* The first row of a result, `bytes` of each rank. */
static void break_row(uint8_t *row, uint32_t bytes) {
  if (fault == FAULT_BIT) row[bytes / 2 + 2] ^= 0x40; /* the first of a fraction, of bf16 or fp32: no later rounding loses it */
  for (uint32_t i = 0; i < bytes && fault == FAULT_SWAPPED; i++) {
    const uint8_t byte = row[i];
    row[i] = row[bytes + i];
    row[bytes + i] = byte;
  }
}

static uint32_t faulty_form; /* of an exchange whose link is to fail */

/* Whether the exchange, the first of which is wrong, is the first of the form since then. */
static bool is_first_of_form(const exchange_args *args) {
  static uint32_t found;
  if (seen == faulty + 1) found = 0;
  return args->form == faulty_form && args->step->token_count > 1 && found++ == 0;
}

void __real_cpu_exchange(const exchange_args *args, cpu_pool *pool);
void __wrap_cpu_exchange(const exchange_args *args, cpu_pool *pool);
void __wrap_cpu_exchange(const exchange_args *args, cpu_pool *pool) {
  const bool is_wrong = is_faulty(args->ranks, KERNEL_exchange);
  by_requests_seen += args->form == EXCHANGE_PARTS && args->ranks->record; /* not of the self-check */
  if (args->ranks->record) /* not of the self-check */
    ASSERT(args->ranks->sample_bits == (checks_exchanges ? 0 : EXCHANGE_SAMPLE_BITS));
  uint8_t *sent = (uint8_t *)(uintptr_t)((uint64_t)(uintptr_t)args->x[0] + args->ranks->peer[0]); /* by rank 0 */
  if (EXCHANGE_IS_TO_ONE(args->form)) sent += args->part_bytes[0]; /* in a row of rank 1, or in its columns */
  if (is_wrong && fault == FAULT_LINK && is_first_of_form(args)) { /* once, on the way from rank 0 to rank 1 */
    *sent ^= 1;
    __real_cpu_exchange(args, pool);
    *sent ^= 1;
    return;
  }
  if (!is_wrong || fault != FAULT_MISSING) __real_cpu_exchange(args, pool);
  if (is_wrong) break_row(args->y[0], args->part_bytes[0]);
}

void __real_cpu_rank_norm(const rank_norm_args *args, cpu_pool *pool);
void __wrap_cpu_rank_norm(const rank_norm_args *args, cpu_pool *pool);
void __wrap_cpu_rank_norm(const rank_norm_args *args, cpu_pool *pool) {
  __real_cpu_rank_norm(args, pool);
  if (is_faulty(args->ranks, KERNEL_rank_norm)) break_row((uint8_t *)args->x_out, args->part * 4);
}

/* Runs in a child, because a fault ends the process. Returns its exit code, and what it wrote to stderr. */
static int run_faulty(const e2e_model *model, const char *plan_path, char *text, size_t text_bytes) {
  int ends[2], code = 0;
  assert_int_equal(pipe(ends), 0);
  seen = 0;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    verbatim_config config = e2e_config(model);
    verbatim *engine = NULL;
    config.plan_path = plan_path;
    config.check_exchanges = checks_exchanges;
    const int result = verbatim_open(&engine, &config);
    if (result != 0) fprintf(stderr, "%s\n", verbatim_error());
    verbatim_close(engine);
    if (result != 0) _exit(100 - result);
    seen = 0;
    faulty += 4; /* behind those of this engine's start */
    run(model, plan_path, false);
    _exit(0);
  }
  close(ends[1]);
  size_t used = 0;
  for (ssize_t bytes; used + 1 < text_bytes && (bytes = read(ends[0], text + used, text_bytes - 1 - used)) > 0;) used += (size_t)bytes;
  text[used] = 0;
  close(ends[0]);
  assert_int_equal(waitpid(child, &code, 0), child);
  return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

/* The pattern that goes through every kind of exchange before the first step. */
static void a_wrong_exchange_is_found_at_the_start(void **state) {
  (void)state;
  e2e_model model = {0};
  char path[E2E_PATH_MAX], text[2048];
  make_model(&DENSE, &model);
  plan_for(&DENSE, &model, 2, path);
  faulty_op = KERNEL_exchange;
  faulty = 0;
  for (fault = FAULT_MISSING; fault < FAULT_COUNT; fault++) {
    const int code = run_faulty(&model, path, text, sizeof text);
    if (code != 100 - ERR_MISMATCH || !strstr(text, "exchange: rank 1 received from rank"))
      fail_msg("fault %d: code %d, \"%s\"", (int)fault, code, text);
  }
  plan_with(&DENSE, &model, 2, DIVIDED BY_REQUESTS, path);
  fault = FAULT_MISSING;
  for (faulty = 0; faulty < 4; faulty++) { /* words; to owners, from them, and the parts of ranks */
    const int code = run_faulty(&model, path, text, sizeof text);
    if (code != 100 - ERR_MISMATCH || !strstr(text, "exchange: rank 1 received from rank"))
      fail_msg("kind %u: code %d, \"%s\"", faulty, code, text);
  }
  fault = FAULT_NONE;
  e2e_remove(&model);
}

/* The digests that the ranks compare while they run: of what all of them compute from what they have received. */
static void a_rank_with_other_bits_is_found(void **state) {
  (void)state;
  e2e_model model = {0};
  char path[E2E_PATH_MAX], text[2048];
  make_model(&DENSE, &model);
  plan_for(&DENSE, &model, 2, path);
  for (uint32_t i = 0; i < 4; i++) { /* a missing exchange is NaN here, which ends the request on all ranks */
    fault = i % 2 ? FAULT_SWAPPED : FAULT_BIT;
    faulty_op = i / 2 ? KERNEL_exchange : KERNEL_rank_norm;
    faulty = 20;
    const int code = run_faulty(&model, path, text, sizeof text);
    if (code != 7 || !strstr(text, "ranks differ in step") || !strstr(text, "rank 1 has"))
      fail_msg("fault %d of op %u: code %d, \"%s\"", (int)fault, faulty_op, code, text);
  }
  fault = FAULT_NONE;
  assert_int_equal(run_faulty(&model, path, text, sizeof text), 0);
  e2e_remove(&model);
}

/* One bit that changes on the way from rank 0 to rank 1, in rows of which rank 1 computes columns for all: then the ranks agree on what
 * follows, and only the digests of what was exchanged differ. */
static void one_bit_of_a_link_is_found(void **state) {
  (void)state;
  e2e_model model = {0};
  char path[E2E_PATH_MAX], text[2048];
  make_model(&DENSE, &model);
  plan_for(&DENSE, &model, 2, path);
  fault = FAULT_LINK;
  faulty_op = KERNEL_exchange;
  for (uint32_t first = 1; first < 4; first++) {
    faulty = first;
    const int code = run_faulty(&model, path, text, sizeof text);
    if (code != 7 || !strstr(text, "the digest of the sampled exchanges")) fail_msg("exchange %u: code %d, \"%s\"", first, code, text);
  }
  checks_exchanges = true; /* then in the step of the fault, not in one of 16 */
  for (uint32_t first = 1; first < 4; first++) {
    faulty = first;
    const int code = run_faulty(&model, path, text, sizeof text);
    if (code != 7 || !strstr(text, "ranks differ in step 0: the digest of")) fail_msg("exchange %u: code %d, \"%s\"", first, code, text);
  }
  plan_with(&DENSE, &model, 2, DIVIDED BY_REQUESTS, path);
  faulty = 5; /* a start has as many kinds */
  for (faulty_form = EXCHANGE_OWNERS; faulty_form <= EXCHANGE_PARTS; faulty_form += 2) { /* of which no other rank gets a copy */
    const int code = run_faulty(&model, path, text, sizeof text);
    if (code != 7 || !strstr(text, "a rank has received other bytes")) fail_msg("form %u: code %d, \"%s\"", faulty_form, code, text);
  }
  checks_exchanges = false;
  faulty_form = EXCHANGE_COLUMNS;
  fault = FAULT_NONE;
  e2e_remove(&model);
}

int main(int argc, char **argv) {
  e2e_begin(argc, argv);
  e2e_requests_make(&requests, REQUESTS, VOCAB, PROMPT_MAX, TOKENS_MAX);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(experts), cmocka_unit_test(experts_traced), cmocka_unit_test(experts_many_rows),
    cmocka_unit_test(dense_many_rows), cmocka_unit_test(no_query_rank), cmocka_unit_test(fast_prefill),
    cmocka_unit_test(dense), cmocka_unit_test(tied_head), cmocka_unit_test(glm),
    cmocka_unit_test(mistral), cmocka_unit_test(lists), cmocka_unit_test(lists_fp8), cmocka_unit_test(lists_of_one_chunk),
    cmocka_unit_test(shared_lists), cmocka_unit_test(fp8), cmocka_unit_test(fp8_cache),
    cmocka_unit_test(llama), cmocka_unit_test(llama_many_rows), cmocka_unit_test(qwen2), cmocka_unit_test(qwen3_moe),
    cmocka_unit_test(qwen2_moe), cmocka_unit_test(glm4), cmocka_unit_test(glm4_moe), cmocka_unit_test(olmo2), cmocka_unit_test(phi3),
    cmocka_unit_test(smollm3), cmocka_unit_test(qwen3_fp8),
    cmocka_unit_test(the_transport_changes_nothing),
    cmocka_unit_test(a_wrong_exchange_is_found_at_the_start), cmocka_unit_test(a_rank_with_other_bits_is_found),
    cmocka_unit_test(one_bit_of_a_link_is_found),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_requests_free(&requests);
  return failed;
}
