/* test_print_ranks.c - what `show` says of a plan for several GPUs: what each holds, and every exchange, as text and as JSON. */
#include "tests/unit/unit.h"
#include <jansson.h>
#include "planner/draft.h"
#include "planner/print.h"
#include "tests/unit/plan/plan_edit.h"

#define TINY "tests/data/configs/tiny.json"

static editable open_ranks(uint32_t ranks, uint32_t tokens) {
  char deploy[160];
  snprintf(deploy, sizeof deploy, "max-num-batched-tokens: %u\nmax-model-len: 1024\ntensor-parallel-size: %u\n", tokens, ranks);
  return edit_plan(TINY, deploy);
}

typedef void printer(FILE *out, const plan_header *plan);

/* The caller frees the text. */
static char *print(printer *with, const editable *e) {
  char *out = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&out, &bytes);
  assert_non_null(stream);
  with(stream, e->h);
  fclose(stream);
  return out;
}

static json_t *json_of(const editable *e) {
  char *printed = print(print_json, e);
  json_t *root = json_loads(printed, 0, NULL);
  assert_non_null(root);
  free(printed);
  return root;
}

static uint64_t number(const json_t *object, const char *name) {
  if (!json_is_integer(json_object_get(object, name))) fail_msg("no number %s", name);
  return (uint64_t)json_integer_value(json_object_get(object, name));
}

static const json_t *exchange_named(const json_t *root, const char *name) {
  size_t i;
  const json_t *one;
  json_array_foreach(json_object_get(root, "exchanges"), i, one)
    if (strcmp(json_string_value(json_object_get(one, "name")), name) == 0) return one;
  fail_msg("no exchange %s", name);
  return NULL;
}

/* === Memory ============================================================================================================= */

static void every_gpu_has_its_share_and_what_all_hold(void **state) {
  (void)state;
  editable one = open_ranks(1, 512);
  json_t *alone = json_of(&one);
  const uint64_t whole = one.regions[REGION_WEIGHTS].bytes;
  assert_int_equal(number(alone, "gpu_count"), 1);
  assert_null(json_object_get(alone, "each_gpu"));
  for (uint32_t ranks = 2; ranks <= 4; ranks *= 2) {
    editable e = open_ranks(ranks, 512);
    json_t *root = json_of(&e);
    const json_t *each = json_object_get(root, "each_gpu");
    const uint64_t own = number(each, "own_weights_bytes"), all = number(each, "replicated_weights_bytes");
    assert_int_equal(number(root, "gpu_count"), ranks);
    assert_int_equal(number(root, "parameters"), number(alone, "parameters"));
    assert_int_equal(own + all, e.regions[REGION_WEIGHTS].bytes);
    assert_in_range(own * ranks + all, whole, whole + ranks * 256 * (uint64_t)e.h->tensors.count); /* but for the alignment of tensors */
    assert_int_equal(number(each, "kv_bytes"), e.regions[REGION_KV].bytes);
    assert_in_range(number(each, "exchange_bytes"), EXCHANGE_INBOX_BYTES(ranks), e.regions[REGION_STATE].bytes);
    json_decref(root);
    free(e.file.bytes);
  }
  json_decref(alone);
  free(one.file.bytes);
}

/* === Exchanges ========================================================================================================== */

/* Bytes that an op sends to all other ranks for a row; 0: it sends nothing. */
static uint64_t sent_bytes(const editable *e, const plan_op *op) {
  uint64_t sum = 0;
  if (op->kernel == OP_rank_norm) return ((const rank_norm_args *)args_of(e, op))->part * UINT64_C(4) * (e->h->limits.ranks - 1);
  if (op->kernel != OP_exchange) return 0;
  const exchange_args *a = args_of(e, op);
  for (uint32_t t = 0; t < EXCHANGE_TABLES; t++) sum += (uint64_t)a->part_bytes[t] * a->rows_mul[t];
  sum *= e->h->limits.ranks - 1;
  return a->form == EXCHANGE_COLUMNS ? sum : sum / e->h->limits.ranks; /* each row goes to its owner alone, or comes from it */
}

/* Counted and summed op by op, for steps of few rows and of many. */
static void every_exchange_is_listed(void **state) {
  (void)state;
  for (uint32_t ranks = 2; ranks <= 4; ranks *= 2) {
    editable e = open_ranks(ranks, 2048);
    json_t *root = json_of(&e);
    for (uint32_t rows = 1; rows <= 2048; rows += 2047) {
      uint64_t exchanges = 0, bytes = 0, listed = 0, listed_bytes = 0;
      for (uint32_t i = 0; i < e.h->ops.count; i++) {
        const uint32_t most = e.ops[i].rows_kind == ROWS_LOGITS ? e.h->limits.max_logit_rows : 2048, here = rows < most ? rows : most;
        if (!sent_bytes(&e, &e.ops[i]) || here < e.ops[i].rows_min || here > e.ops[i].rows_max) continue;
        bytes += sent_bytes(&e, &e.ops[i]);
        exchanges++;
      }
      size_t i, k;
      const json_t *one, *form;
      json_array_foreach(json_object_get(root, "exchanges"), i, one) {
        const bool is_logits = strcmp(json_string_value(json_object_get(one, "rows")), "logits") == 0;
        const uint64_t most = is_logits ? e.h->limits.max_logit_rows : 2048, here = rows < most ? rows : most;
        json_array_foreach(json_object_get(one, "forms"), k, form) {
          if (here < number(form, "rows_min") || here > number(form, "rows_max")) continue;
          listed += number(one, "times");
          listed_bytes += number(one, "times") * number(one, "sent_bytes_per_row");
        }
      }
      assert_true(exchanges > 0);
      assert_int_equal(listed, exchanges);
      assert_int_equal(listed_bytes, bytes);
    }
    assert_int_equal(number(exchange_named(root, "logits exchange"), "sent_bytes_per_row"), (ranks - 1) * (e.h->model.vocab / ranks) * 4);
    assert_string_equal(json_string_value(json_object_get(exchange_named(root, "logits exchange"), "rows")), "logits");
    assert_int_equal(number(exchange_named(root, "attn_value exchange"), "times"), e.h->model.layers);
    assert_int_equal(number(exchange_named(root, "post_norm"), "times"), e.h->model.layers);
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(exchange_named(root, "post_norm"), "forms"), 0),
                                                          "form")), "in the norm");
    json_decref(root);
    free(e.file.bytes);
  }
}

static void the_text_names_attention_by_requests(void **state) {
  (void)state;
  editable e = edit_plan(TINY, "max-num-batched-tokens: 2048\nmax-model-len: 1024\nmax-num-seqs: 16\ntensor-parallel-size: 2\n"
                               "attention-by-requests-from: 512\n");
  char *summary = print(print_summary, &e), *table = print(print_exchanges, &e);
  assert_non_null(strstr(summary, "\nrequests       each GPU attends for its own in steps that generate 2 to 16 tokens, from 512 tokens of "
                                  "context on average\n"));
  assert_non_null(strstr(summary, " library pins, 9 graphs\n")); /* of 1, 2, 4, 8 and 16 rows */
  assert_non_null(strstr(table, "  q_latent exchange             4  rows            1152  to owners 2..16\n"));
  assert_non_null(strstr(table, "  attn_latent exchange          4  rows            1024  parts from owners 2..16\n"));
  json_t *root = json_of(&e);
  assert_int_equal(json_integer_value(json_object_get(root, "attention_by_requests_from")), 512);
  json_decref(root);
  free(summary);
  free(table);
  free(e.file.bytes);
}

static void the_text_names_gpus_and_exchanges(void **state) {
  (void)state;
  editable one = open_ranks(1, 2048), two = open_ranks(2, 2048);
  char *summary = print(print_summary, &two), *table = print(print_exchanges, &two);
  static const char *const LINES[] = {"\ngpu_count      2; ",
                                      "\neach of 2 GPUs weights ", " of its own and ", "\nexchanges      17 a step, peer to peer; ",
                                      "one reservation on each GPU\n"};
  for (size_t i = 0; i < ARRAY_LEN(LINES); i++)
    if (!strstr(summary, LINES[i])) fail_msg("no \"%s\" in: %s", LINES[i], summary);
  assert_non_null(strstr(table, "  attn_delta exchange           4  rows             384  words with tags 129..512\n"));
  assert_non_null(strstr(table, "  attn_delta exchange           4  rows             192  to owners 513..2048\n"));
  assert_non_null(strstr(table, "  x exchange                    1  rows             384  from owners 513..2048\n"));
  free(summary);
  free(table);
  summary = print(print_summary, &one); /* of one GPU: nothing of the kind */
  table = print(print_exchanges, &one);
  assert_null(strstr(summary, "GPU"));
  assert_null(strstr(summary, "exchange"));
  assert_string_equal(table, "");
  free(summary);
  free(table);
  editable nccl = edit_plan(TINY, "max-num-batched-tokens: 2048\nmax-model-len: 1024\ntensor-parallel-size: 2\nexchange-transport: nccl\n");
  summary = print(print_summary, &nccl);
  table = print(print_exchanges, &nccl);
  assert_non_null(strstr(summary, "\nexchanges      17 a step, through NCCL; "));
  assert_non_null(strstr(table, "  attn_delta exchange           4  rows             384  NCCL 1..682, NCCL 683..2048\n"));
  json_t *root = json_of(&nccl);
  assert_string_equal(json_string_value(json_object_get(root, "exchange_transport")), "nccl");
  json_decref(root);
  free(summary);
  free(table);
  free(one.file.bytes);
  free(two.file.bytes);
  free(nccl.file.bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_gpu_has_its_share_and_what_all_hold),
    cmocka_unit_test(every_exchange_is_listed),
    cmocka_unit_test(the_text_names_gpus_and_exchanges),
                                     cmocka_unit_test(the_text_names_attention_by_requests),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
