/* test_verify.c - `verbatim verify`: receipts of runs, scores and cancelled requests are reproduced under other plans and splits;
 * alterations are found and named, and so is another model.
 *
 * Every test of equality has its control in `forgeries_are_named`: one value of a receipt is changed and its digest corrected, and verify
 * names the request, the token and the value. `--device gpu` uses the GPU. */
#include "tests/unit/unit.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "shell.h"
#include "engine/base/base.h"
#include "engine/receipts/receipt.h"

#define TEXT_MAX (1u << 20)
#define REQUESTS 26u
#define PROMPT_MAX 90u
#define TOKENS_MAX 10u
#define VOCAB 384u

static const char DEPLOY[] =
  "max-num-seqs: 8\nmax-num-batched-tokens: 64\nmax-model-len: 128\nkv_pages: 24\nchunk_tokens: 64\ngroup_chunks: 2\n"
  "ladder: [1, 2, 4, 8]\n";
static const char OTHER[] = /* other limits, pages and tiles; the same numerics */
  "max-num-seqs: 3\nmax-num-batched-tokens: 200\nmax-model-len: 256\nkv_pages: 9\nchunk_tokens: 64\ngroup_chunks: 2\nladder: [1, 3]\n";
static const char SHORT[] =
  "max-num-seqs: 2\nmax-num-batched-tokens: 64\nmax-model-len: 40\nkv_pages: 9\nchunk_tokens: 64\ngroup_chunks: 2\nladder: [1]\n";

static e2e_model model; /* random, with a tokenizer; the scratch folder that all tests share */

/* === Commands and files ===================================================================================================== */

/* The command ends with the code, and prints the words, the last of which is null. */
static void expect_all(int code, const char *const *words, const char *command) {
  expect(code, "", command);
  for (; *words; words++)
    if (!strstr(shell.output, *words)) fail_msg("%s: expected \"%s\", found \"%.2000s\"", command, *words, shell.output);
}

static char *read_text(const char *name) {
  FILE *file = e2e_open(&model, name, "rb");
  char *text = calloc(1, TEXT_MAX);
  assert_non_null(text);
  assert_true(fread(text, 1, TEXT_MAX - 1, file) < TEXT_MAX - 1);
  fclose(file);
  return text;
}

/* === A receipt with every option except text ================================================================================ */

static verbatim *open_engine(bool logits) {
  verbatim *engine;
  verbatim_config config = e2e_config(&model);
  config.logits = logits;
  assert_int_equal(verbatim_open(&engine, &config), 0);
  return engine;
}

/* The finished requests, named by their numbers, as the receipt <name>. */
static void write_receipt(const char *name, const verbatim *engine, const e2e_requests *requests) {
  char path[2 * E2E_PATH_MAX];
  receipt paper;
  digest ignored;
  verbatim_info info = verbatim_describe(engine);
  const receipt_source source = {.info = &info};
  snprintf(path, sizeof path, "%s/%s", model.folder, name);
  assert_int_equal(receipt_begin(&paper, path, &source), OK);
  for (uint32_t i = 0; i < requests->count; i++) {
    char id[16];
    int32_t stops[8 + VERBATIM_STOP_IDS_MAX];
    snprintf(id, sizeof id, "%u", i);
    receipt_add(&paper, id, &requests->list[i], stops, verbatim_stop_ids(engine, &requests->list[i], stops));
  }
  assert_int_equal(receipt_end(&paper, &ignored), OK);
}

static void run_to_end(verbatim *engine) {
  bool busy = true;
  while (busy) assert_int_equal(verbatim_poll(engine, &busy), 0);
}

static void a_batch_verifies_alone(void **state) {
  (void)state;
  e2e_requests requests;
  e2e_requests_make(&requests, REQUESTS, VOCAB, PROMPT_MAX, TOKENS_MAX);
  verbatim *engine = open_engine(false);
  for (uint32_t i = 0; i < REQUESTS; i++) {
    if (i % 4 == 1) requests.list[i].ignore_eos = true;
    assert_int_equal(verbatim_submit(engine, &requests.list[i]), 0);
  }
  run_to_end(engine);
  write_receipt("receipt", engine, &requests);
  verbatim_close(engine);
  e2e_requests_free(&requests);
  expect(0, "26 requests verified, 0 differ\n", "$V verify receipt plan model $D");
  expect(0, "26 requests verified, 0 differ\n", "$V verify receipt other model $D --chunk 7 --batch 3 --poison --threads 1");
  expect(0, "26 requests verified, 0 differ\n", "$V verify receipt plan model $D --batch 8 --shuffle-pages 5 --direct");
  expect(0, "same", "$V verify receipt other model $D --receipt again > out && sed 2d receipt > a && sed 2d again > b && cmp a b && "
                    "echo same");
}

static void choices(void **state) {
  (void)state;
  expect(0, "2 requests verified, 0 differ (of 26 in the receipt)", "$V verify receipt plan model $D --id 7 --id 21");
  expect(2, "--id 99: the receipt has no request of that name", "$V verify receipt plan model $D --id 99");
  expect(2, "--sample: expected 1 or more, found 0", "$V verify receipt plan model $D --sample 0");
  expect(0, "5 requests verified, 0 differ (of 26", "$V verify receipt plan model $D --sample 5");
  expect(0, "26 requests verified", "$V verify receipt plan model $D --sample 500");
  expect(0, "same", "S=\"$V verify receipt plan model $D --sample 6 --json\" && $S --seed 1 > a && $S --seed 1 --batch 6 > b && "
                    "$S --seed 2 > c && cmp a b && ! cmp -s a c && test $(sort -u a | wc -l) = 7 && echo same");
  expect(0, "good", "$V verify receipt plan model $D --sample 3 --json > j && python3 -c 'import json;"
                    "l = [json.loads(x) for x in open(\"j\")]; assert len(l) == 4 and all(x[\"equal\"] for x in l[:3]);"
                    "assert l[3][\"differ\"] == 0 and l[3][\"complete\"]; print(\"good\")'");
}

/* === Forgeries: the control of all ========================================================================================== */

/* The text with a new digest of its lines in place of its last line. */
static void sign(char *text) {
  char *line = text, *end;
  digest_state head;
  receipt_sum sum = {0};
  digest_start(&head);
  for (uint32_t number = 1; (end = strchr(line, '\n')) != NULL && strncmp(line, "{\"digest\"", 9) != 0; number++, line = end + 1) {
    digest d = digest_of(line, (size_t)(end + 1 - line));
    if (number == 1) digest_add(&head, line, (size_t)(end + 1 - line));
    if (number > 2) receipt_sum_add(&sum, &d);
  }
  char digits[DIGEST_TEXT_BYTES];
  digest d = receipt_sum_end(&sum, &head);
  sprintf(line, "{\"digest\":\"%s\"}\n", digest_text(d.bytes, digits));
}

/* Takes ownership of the text. */
static void write_forged(char *text) {
  sign(text);
  write_text("forged", text);
  free(text);
}

typedef struct forgery {
  const char *request;   /* its id                                          */
  const char *part, *field; /* the altered field; part null: of the line itself */
  int index, pair;       /* of the item; of the pair in alternatives: -1: none */
  const char *said[2];   /* by verify: the place; the value, before the pair */
} forgery;

/* Another value of the same form. */
static json_t *other_value(const json_t *value) {
  if (json_is_integer(value)) return json_integer(json_integer_value(value) ^ 1);
  char text[64];
  snprintf(text, sizeof text, "%s", json_string_value(value));
  size_t last = strlen(text) - 1;
  text[last] = text[last] == '0' ? '1' : '0';
  return json_string(text);
}

static void alter(json_t *line, const forgery *f) {
  json_t *object = f->part ? json_object_get(line, f->part) : line, *value = json_object_get(object, f->field);
  assert_non_null(value);
  if (!json_is_array(value)) {
    assert_int_equal(json_object_set_new(object, f->field, other_value(value)), 0);
    return;
  }
  json_t *item = json_array_get(value, (size_t)f->index);
  assert_non_null(item);
  if (f->pair < 0) assert_int_equal(json_array_set_new(value, (size_t)f->index, other_value(item)), 0);
  else {
    json_t *pair = json_array_get(item, (size_t)f->pair);
    assert_int_equal(json_array_set_new(pair, 1, other_value(json_array_get(pair, 1))), 0);
  }
}

/* Writes `forged`: the receipt with one line altered, and a correct digest. */
static void forge(const forgery *f) {
  char *from = read_text("receipt"), *to = calloc(1, TEXT_MAX), begin[64];
  assert_non_null(to);
  snprintf(begin, sizeof begin, "{\"id\":\"%s\",", f->request);
  uint32_t altered = 0;
  for (char *line = from, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
    *end = 0;
    if (strncmp(line, begin, strlen(begin)) == 0) {
      json_t *root = json_loads(line, 0, NULL);
      assert_non_null(root);
      alter(root, f);
      char *text = json_dumps(root, JSON_COMPACT);
      strcat(strcat(to, text), "\n");
      free(text);
      json_decref(root);
      altered++;
    } else {
      strcat(strcat(to, line), "\n");
    }
  }
  assert_int_equal(altered, 1);
  write_text("unsigned", to);
  write_forged(to);
  free(from);
}

/* The request's name, the message about it, and the last line. */
static void expect_forged(const forgery *f, const char *end, const char *command) {
  char name[64];
  snprintf(name, sizeof name, "request \"%s\" differs, the receipt | here:\n", f->request);
  expect_all(8, (const char *const[]){name, f->said[0], f->said[1], end, NULL}, command);
}

static void forgeries_are_named(void **state) {
  (void)state;
  /* Request 13 generates six tokens with two alternatives each; 22 is scored, with alternatives; 16 is scored and then generates tokens. */
  static const forgery LIST[] = {
    {"13", "made", "tokens", 1, -1, {" 1 tokens before it are the same; made token 1, position ", "\n  token           "}},
    {"13", "made", "logprobs", 0, -1, {" 0 tokens before it are the same; made token 0, position ", "\n  log-probability "}},
    {"13", "made", "ranks", 5, -1, {" made token 5, position ", "\n  rank            "}},
    {"13", "made", "logits", 1, -1, {" made token 1, position ", "\n  logits digest   "}},
    {"13", "made", "alternatives", 4, 1, {" made token 4, position ", "\n  alternative     1: token "}},
    {"22", "scored", "alternatives", 3, 0, {" scored token 3, position ", "\n  alternative     0: token "}},
    {"16", "scored", "logits", 2, -1, {" 2 tokens before it are the same; scored token 2, position ", "\n  logits digest   "}},
    {"16", "scored", "ranks", 0, -1, {" scored token 0, position ", "\n  rank            "}},
    {"13", NULL, "chain", 0, -1, {" all 6 tokens are the same\n", "\n  ended: chain \""}},
    {"13", NULL, "request", 0, -1, {" all 6 tokens are the same\n", "\n  asked: request \""}},
    {"13", NULL, "seed", 0, -1, {"", "\n  asked: request \""}}, /* and so would have other tokens */
    {"13", NULL, "prompt", 5, -1, {"", "\n  asked: request \""}},
    {"13", NULL, "presence_penalty", 0, -1, {"", "\n  asked: request \""}}};
  static const char some[] = "--id 9 --id 13 --id 16 --id 22";
  char command[256];
  for (size_t i = 0; i < ARRAY_LEN(LIST); i++) {
    forge(&LIST[i]);
    snprintf(command, sizeof command, "$V verify forged %s model $D %s --batch %zu", i % 2 ? "plan" : "other", some, 1 + i % 3);
    expect_forged(&LIST[i], "4 requests verified, 1 differ (of 26", command);
    expect(8, "it was altered", "$V verify unsigned plan model $D");
  }
  expect(0, "2 requests verified, 0 differ", "$V verify forged plan model $D --id 22 --id 9"); /* not attributed to others */
  expect(8, "\"first\":{\"asked\":{\"field\":\"request\",", "$V verify forged plan model $D --id 13 --json");
  forge(&LIST[1]);
  expect_all(8, (const char *const[]){"\"equal\":false", "\"asked\":null,\"tokens_same\":0,\"token\":{\"list\":\"made\",\"index\":0,",
                                      "\"logprob\":{\"bits\":[\"", "\"ended\":null", "\"verified\":1,\"differ\":1,", NULL},
             "$V verify forged plan model $D --id 13 --json");
}

/* === Another model ========================================================================================================== */

static void other_models_are_named(void **state) {
  (void)state;
  char tool[E2E_PATH_MAX];
  e2e_binary("random_model", tool);
  char script[4 * E2E_PATH_MAX], text[4096];
  snprintf(script, sizeof script, "R=$(realpath '%s') && cd '%s' && $R model/config.json weights2 --seed 2 --vocab-tokenizer", tool,
           model.folder);
  assert_int_equal(e2e_command((char *[]){(char[]){"/bin/sh"}, (char[]){"-c"}, script, NULL}, text, sizeof text), 0);
  expect(8, "verbatim: weights: the receipt has ", "$V verify receipt plan weights2 $D");
  expect(8, "verbatim: numerics id: the receipt has ",
         "$V plan $TINY --config $TINY/deploy.yaml -o tiny --force --quiet > o && $V verify receipt tiny $TINY $D");
  expect(8, "; config.json: the receipt has ", "$V verify receipt tiny $TINY $D");
  /* A tokenizer matters only if there are stop texts. */
  static const char items[] =
    "{\"id\":\"t\",\"prompt\":\"abc\",\"stop\":[\"a\\\"\\u0000\",\"\\u00e9\"],\"max_tokens\":6,\"n\":2,\"temperature\":1}\n"
    "{\"id\":\"ids\",\"prompt\":\"abd\",\"max_tokens\":6}\n";
  write_text("items", items);
  expect(0, "", "$V run plan model $D --jsonl items --receipt texts > o && cp -r model model2 && "
                "sed -i 's/<pad>/<pax>/g' model2/tokenizer.json && ! cmp -s model/tokenizer.json model2/tokenizer.json");
  expect(0, "3 requests verified, 0 differ", "$V verify texts other model $D");
  expect(8, "verbatim: tokenizer: the receipt has ", "$V verify texts plan model2 $D");
  expect(0, "1 requests verified, 0 differ", "$V verify texts plan model2 $D --id ids");
}

/* === Other endings ========================================================================================================== */

static verbatim *at_work;

static void cancel_after_tokens(verbatim_request *request, uint32_t index) {
  if (index + 1 == request->sample_index) verbatim_cancel(at_work, request);
}

static void cancel_after_scores(verbatim_request *request, uint32_t position, const float *row) {
  (void)position;
  (void)row;
  if (request->score_count == request->sample_index) verbatim_cancel(at_work, request);
}

/* Cancelled before anything, after some scores, after all scores, after some tokens; one of these with a deadline as its reason. */
static void cut_requests(void **state) {
  (void)state;
  static const char *const plans[] = {"plan", "other"}, *const cuts[] = {"", "--batch 5", "--chunk 3", "--batch 2 --chunk 11 --poison"};
  static const uint32_t after[] = {0, 4, 0, 3, 1, 2, 0, 0}; /* scores in requests of even number, tokens in others */
  e2e_requests requests;
  e2e_requests_make(&requests, 8, VOCAB, PROMPT_MAX, TOKENS_MAX);
  at_work = open_engine(true);
  for (uint32_t i = 0; i < 8; i++) {
    verbatim_request *r = &requests.list[i];
    r->prompt_count = 30;
    r->max_tokens = 8;
    r->ignore_eos = true;
    r->stop_count = 0;
    r->score = i % 2 == 0;
    r->score_from = r->score ? 26 : 0;
    r->sample_index = i == 2 ? 3 : i == 6 ? 4 : after[i]; /* 6: all four are scored, and no token is generated */
    if (i % 2 == 0 && i) r->on_logits = cancel_after_scores;
    if (i % 2) r->on_token = cancel_after_tokens;
    assert_int_equal(verbatim_submit(at_work, r), 0);
  }
  assert_int_equal(verbatim_cancel(at_work, &requests.list[0]), 0);
  run_to_end(at_work);
  for (uint32_t i = 0; i < 7; i++) assert_int_equal(requests.list[i].finish, VERBATIM_CANCELLED);
  assert_int_equal(requests.list[0].score_count + requests.list[0].token_count, 0);
  assert_int_equal(requests.list[2].score_count, 3);
  assert_int_equal(requests.list[6].score_count, 4);
  assert_int_equal(requests.list[6].token_count, 0);
  assert_int_equal(requests.list[3].token_count, 3);
  assert_int_equal(requests.list[7].finish, VERBATIM_LENGTH);
  requests.list[3].finish = requests.list[4].finish = VERBATIM_DEADLINE;
  write_receipt("receipt", at_work, &requests);
  verbatim_close(at_work);
  e2e_requests_free(&requests);
  for (size_t i = 0; i < 2 * ARRAY_LEN(cuts); i++) {
    char command[256];
    snprintf(command, sizeof command, "$V verify receipt %s model $D %s", plans[i % 2], cuts[i / 2]);
    expect(0, "8 requests verified, 0 differ", command);
  }
  static const forgery LIST[] = {{"3", "made", "logprobs", 2, -1, {" made token 2, ", "\n  log-probability "}},
                                 {"2", "scored", "logprobs", 2, -1, {" scored token 2, ", "\n  log-probability "}},
                                 {"6", "scored", "logits", 3, -1, {" scored token 3, ", "\n  logits digest   "}},
                                 {"0", NULL, "chain", 0, -1, {" all 0 tokens are the same\n", "\n  ended: chain \""}}};
  for (size_t i = 0; i < ARRAY_LEN(LIST); i++) {
    forge(&LIST[i]);
    expect_forged(&LIST[i], "8 requests verified, 1 differ\n", "$V verify forged plan model $D");
  }
  /* a finished request is not one that was cancelled */
  char *text = read_text("receipt"), *at = strstr(text, "\"finish\":\"length\"");
  assert_non_null(at);
  memmove(at + 20, at + 17, strlen(at + 17) + 1);
  memcpy(at, "\"finish\":\"cancelled\"", 20);
  write_forged(text);
  expect(8, "\n  all 8 tokens are the same\n  ended: finish \"cancelled\" | \"length\"\n", "$V verify forged plan model $D");
}

static void scores_verify(void **state) {
  (void)state;
  write_text("items", "{\"id\":\"a\",\"context_ids\":[5,6,7,8,9,10,11],\"continuations_ids\":[[12,13],[14],[15,16,17]]}\n"
                      "{\"id\":\"b\",\"ids\":[5,6,7,8,9,10,11,300,2,1,0,33,34,35,36]}\n");
  expect(0, "", "$V score plan model $D --jsonl items --logprobs 3 --receipt receipt > o");
  expect(0, "4 requests verified, 0 differ", "$V verify receipt plan model $D");
  expect(0, "4 requests verified, 0 differ", "$V verify receipt other model $D --batch 4 --chunk 2");
  const forgery f = {"b", "scored", "alternatives", 12, 1, {" scored token 12, position 13:\n", "\n  alternative     1: token "}};
  forge(&f);
  expect_forged(&f, "4 requests verified, 1 differ\n", "$V verify forged other model $D");
}

/* Cancelled at a real time: how many tokens there are by then depends on the time, but their values do not. */
static void deadlines_verify(void **state) {
  (void)state;
  expect(0, "", "$V run plan model $D --ids '1 2 3' '4 5 6 7' --ignore-eos --max-tokens 100 --deadline 0.000001 --receipt receipt > o && "
                "test $(grep -c '\"finish\":\"deadline\"' receipt) = 2");
  expect(0, "2 requests verified, 0 differ", "$V verify receipt plan model $D");
  expect(0, "", "$V run plan model $D --ids '1 2 3' '4 5 6 7' --ignore-eos --max-tokens 100 --deadline 0.02 --receipt receipt > o");
  expect(0, "2 requests verified, 0 differ", "$V verify receipt other model $D --batch 2");
}

/* A row of the embedding has NaN: requests with its token end as nonfinite, here and when verified. */
static void nonfinite_verifies(void **state) {
  (void)state;
  expect(0, "", "rm -rf nan && cp -r model nan && python3 - <<'END'\n"
                "import json, struct\n"
                "f = open('nan/model.safetensors', 'r+b')\n"
                "n = struct.unpack('<Q', f.read(8))[0]\n"
                "t = json.loads(f.read(n))['model.embed_tokens.weight']\n"
                "f.seek(8 + n + t['data_offsets'][0] + 2 * t['shape'][1] * 77)\n"
                "f.write(b'\\xc0\\x7f' * t['shape'][1])\n"
                "END\n");
  write_text("items", "{\"id\":\"good\",\"prompt_ids\":[5,6,7],\"max_tokens\":4}\n"
                      "{\"id\":\"bad\",\"prompt_ids\":[5,6,77,8],\"max_tokens\":4}\n"
                      "{\"id\":\"late\",\"prompt_ids\":[5,6,9],\"max_tokens\":6,\"allowed_ids\":[77],\"ignore_eos\":true}\n");
  expect(8, "NaN or Inf", "$V run plan nan $D --jsonl items --receipt receipt");
  expect(0, "2", "grep -c '\"finish\":\"nonfinite\"' receipt");
  expect(0, "3 requests verified, 0 differ", "$V verify receipt plan nan $D");
  expect(0, "3 requests verified, 0 differ", "$V verify receipt other nan $D --batch 3 --chunk 1");
  expect(8, "weights: the receipt has", "$V verify receipt plan model $D");
  char *text = read_text("receipt"), *at = strstr(text, "\"position\":");
  assert_non_null(at);
  at[11] = at[11] == '9' ? '8' : '9';
  write_forged(text);
  expect(8, "\n  ended: fault.position \"", "$V verify forged plan nan $D");
}

/* === Traces ================================================================================================================= */

/* The trace of a replay is the trace of the run, byte for byte; a forged request has another one, and diff finds the place. */
static void traces_are_made_again(void **state) {
  (void)state;
  write_text("items", "{\"id\":\"x\",\"prompt_ids\":[5,6,7,8,9],\"max_tokens\":9,\"temperature\":1,\"seed\":4,\"n\":2,\"logprobs\":2}\n"
                      "{\"id\":\"y\",\"prompt_ids\":[5,6,7,8,10,11,12],\"max_tokens\":5,\"ignore_eos\":true,\"stop_ids\":[3]}\n");
  expect(0, "", "$V run plan model $D --jsonl items --receipt receipt --trace a --trace-values layer=1,position=2-4 > o");
  expect(0, "same", "$V verify receipt other model $D --batch 2 --chunk 3 --trace b --trace-values layer=1,position=2-4 && cmp a b && "
                    "echo same");
  expect(0, "rows checked, 0 differ", "$V verify receipt plan model $D --trace b --trace-values all && $V audit b other model");
  expect(0, "same", "$V verify receipt plan model $D --trace b && ! cmp -s a b && $V diff a b && echo same"); /* without the numbers */
  const forgery f = {"y", NULL, "prompt", 5, -1, {"", "\n  asked: request \""}};
  forge(&f);
  expect_forged(&f, "3 requests verified, 1 differ\n", "$V verify forged plan model $D --trace b");
  expect_all(8, (const char *const[]){"1 of 3 requests differ: \"y\"\n", "first divergence: request \"y\", position 5: token 11 | 10\n",
                                      NULL}, "$V diff a b");
  expect(2, "expected two files", "rm -f new && $V verify receipt plan model $D --trace new --receipt ./new");
  expect(2, "needs --trace FILE", "$V verify receipt plan model $D --trace-values all");
}

/* === Receipts that are incomplete or invalid ================================================================================ */

static void cut_receipts(void **state) {
  (void)state;
  expect(0, "", "$V run plan model $D --ids '1 2 3' '4 5' '6' '7 8' --max-tokens 4 --receipt receipt > o");
  expect(0, "4 requests verified, 0 differ\n", "$V verify receipt plan model $D");
  expect(0, "3 requests verified, 0 differ; the receipt's run did not end",
         "head -5 receipt > cut && $V verify cut plan model $D");
  expect(0, "2 requests verified, 0 differ; the receipt's run did not end",
         "head -c $(($(head -5 receipt | wc -c) - 9)) receipt > cut && $V verify cut plan model $D");
  expect(0, "note: the receipt's run did not end: no power\n",
         "(head -4 receipt; echo '{\"fault\":\"no power\"}') > cut && $V verify cut plan model --device cpu");
  expect(4, "line 8: expected no line behind the end", "(cat receipt; sed -n 3p receipt) > cut && $V verify cut plan model $D");
  expect(0, "4 requests verified, 0 differ\n", /* the order of requests does not count */
         "sed -n '1p;2p' receipt > o && sed -n '3,6p' receipt | sort -r >> o && sed -n 7p receipt >> o && ! cmp -s o receipt && "
         "$V verify o plan model $D");
  expect(8, "it was altered", "sed 4d receipt > cut && $V verify cut plan model $D");
  expect(8, "it was altered", "sed 4p receipt > cut && $V verify cut plan model $D");
  expect(5, "receipt of version 2", "sed '1s/receipt\":3/receipt\":2/' receipt > cut && $V verify cut plan model $D");
  expect(4, "line 4: \"max_tokens\"", "sed '4s/\"max_tokens\":4/\"max_tokens\":-4/' receipt > cut && $V verify cut plan model $D");
  expect(3, "none: expected a receipt, found nothing", "$V verify none plan model $D");
  expect(3, "regular file", "timeout 20 $V verify model plan model $D");
  expect(4, "empty: expected a receipt, found an empty file", ": > empty && $V verify empty plan model $D");
  expect(4, "cut: receipt, line 3: ", "(head -2 receipt; echo nothing) > cut && $V verify cut plan model $D");
  expect(4, "there is nothing to verify", "head -2 receipt > cut && $V verify cut plan model $D");
  expect(4, "receipt: expected a plan, found another file", "$V verify receipt receipt model $D");
  expect(2, "expected RECEIPT PLAN MODEL_DIR", "$V verify receipt plan $D");
  /* Text of a receipt cannot control a terminal. */
  expect(0, "on ?[31mx, plan ", "sed '2s/\"device\":\"/&\\\\u001b[31mx\",\"gone\":\"/;2s/,\"gone\":\"[^\"]*\"//' receipt > cut && "
                                "$V verify cut plan model --device cpu");
  expect(6, "request a?[31m of the receipt: request: 3 prompt tokens",
         "$V run plan model $D --ids '1 2 3' --max-tokens 38 --receipt long > o && "
         "sed 's/{\"id\":\"0/{\"id\":\"a\\\\u001b[31m/;$d' long > cut && $V verify cut short model $D");
  expect(2, "would be overwritten", "$V verify receipt plan model $D --receipt receipt");
  expect(0, "usage: verbatim verify", "$V verify --help");
  expect(6, "request 0 of the receipt: request: 3 prompt tokens and max_tokens 38 exceed",
         "$V run plan model $D --ids '1 2 3' --max-tokens 38 --receipt long > o && $V verify long short model $D");
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_batch_verifies_alone), cmocka_unit_test(choices),
                                     cmocka_unit_test(forgeries_are_named), cmocka_unit_test(other_models_are_named),
                                     cmocka_unit_test(cut_requests), cmocka_unit_test(scores_verify),
                                     cmocka_unit_test(deadlines_verify), cmocka_unit_test(nonfinite_verifies),
                                     cmocka_unit_test(traces_are_made_again), cmocka_unit_test(cut_receipts)};
  char path[E2E_PATH_MAX];
  e2e_begin(argc, argv);
  shell_begin(&model, "D=\"$D --quiet\" && ");
  e2e_make_text_model(&model, "tests/oracle/small-v3.json", DEPLOY);
  e2e_make_plan(&model, "other", OTHER, path);
  e2e_make_plan(&model, "short", SHORT, path);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_remove(&model);
  return failed;
}
