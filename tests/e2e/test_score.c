/* test_score.c - `verbatim score` through the program: its numbers against the logits that `run` writes, against generation, and against
 * its own however the work is split; windows, choices, damage, refusals.
 *
 * The controls are in the tests: logits of the wrong position are noticed, and so is a score that is a token off. `--device gpu` uses the
 * GPU. */
#include "tests/unit/unit.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "shell.h"
#include "engine/base/base.h"

#define LINES_MAX 64
#define TINY_VOCAB 768u

/* S scores a file with the random model, T with the shipped one under tests/tiny/deploy.yaml. */
#define SETUP "D=\"$D --quiet\" && S=\"$V score plan model $D\" && T=\"$V score tiny.plan $TINY $D\" && "

static e2e_model model; /* random, vocabulary 384; the scratch folder that all tests share */

/* === Commands and files ===================================================================================================== */

/* The lines of a file, as objects. Returns their number. */
static uint32_t read_lines(const char *name, json_t *lines[LINES_MAX]) {
  FILE *file = e2e_open(&model, name, "rb");
  uint32_t count = 0;
  while (count < LINES_MAX) {
    json_error_t error;
    json_t *line = json_loadf(file, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &error);
    if (!line && feof(file)) break;
    if (!line) fail_msg("%s: value %u: %s", name, count, error.text);
    lines[count++] = line;
  }
  fclose(file);
  return count;
}

static void drop(json_t **lines, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) json_decref(lines[i]);
}

static double number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) fail_msg("no number \"%s\"", key);
  return json_number_value(value);
}

static double at(const json_t *object, const char *key, size_t index) {
  const json_t *value = json_array_get(json_object_get(object, key), index);
  if (!json_is_number(value)) fail_msg("no number \"%s\"[%zu]", key, index);
  return json_number_value(value);
}

static size_t count_of(const json_t *object, const char *key) { return json_array_size(json_object_get(object, key)); }

/* === Against logits ========================================================================================================= */

/* The rank of a token and its log-probability in binary64, from a row of logits. */
static double reference(const float *row, uint32_t vocab, uint32_t token, uint32_t *rank) {
  double most = (double)row[0], sum = 0;
  *rank = 0;
  for (uint32_t i = 1; i < vocab; i++) most = (double)row[i] > most ? (double)row[i] : most;
  for (uint32_t i = 0; i < vocab; i++) {
    sum += exp((double)row[i] - most);
    *rank += row[i] > row[token] || (row[i] == row[token] && i < token);
  }
  return (double)row[token] - most - log(sum);
}

static const char LOGIT_ITEMS[] = /* the second is the first as ids, the third has the same tokens as a whole */
  "{\"context\":\"add: 12+30=\",\"continuation\":\"42\"}\n"
  "{\"context_ids\":[0,283,28,223,19,20,13,21,18,31],\"continuation_ids\":[22,20]}\n"
  "{\"ids\":[0,283,28,223,19,20,13,21,18,31,22,20]}\n"
  "{\"context_ids\":[7],\"continuation_ids\":[767,1,0,300,300,300,5]}\n";
static const char LOGIT_PROMPTS[] =
  "{\"prompt_ids\":[0,283,28,223,19,20,13,21,18,31,22,20]}\n{\"prompt_ids\":[0,283,28,223,19,20,13,21,18,31,22,20]}\n"
  "{\"prompt_ids\":[0,283,28,223,19,20,13,21,18,31,22,20]}\n{\"prompt_ids\":[7,767,1,0,300,300,300,5]}\n";

/* Bound: fp32 rounds l - M and the difference to log Z once each, relative to the result; Z is a sum of chains of one and a tree of
 * ten additions, so log Z is off by less than 20 * 2^-24, and exp and log by a few units in the last place. */
static double bound_of(double logprob) { return 3e-6 + fabs(logprob) * 2.4e-7; }

static void check_alternatives(const json_t *line, size_t index, const float *row) {
  const json_t *top = json_array_get(json_object_get(line, "alternatives"), index);
  assert_int_equal(json_array_size(top), 5);
  for (size_t k = 0; k < 5; k++) {
    const json_t *entry = json_array_get(top, k);
    uint32_t rank, token = (uint32_t)number(entry, "id");
    double expected = reference(row, TINY_VOCAB, token, &rank), found = number(entry, "logprob");
    assert_int_equal(rank, k); /* likeliest first */
    assert_true(fabs(found - expected) <= bound_of(expected));
    if (rank == (uint32_t)at(line, "ranks", index)) assert_true(found == at(line, "logprobs", index)); /* the token itself */
  }
}

static void equals_logits(void **state) {
  (void)state;
  static const size_t scored[4] = {2, 2, 11, 7};
  static float rows[44][TINY_VOCAB]; /* of three prompts of 12 tokens and one of 8 */
  json_t *lines[LINES_MAX], *prompts[LINES_MAX];
  write_text("items", LOGIT_ITEMS);
  write_text("prompts", LOGIT_PROMPTS);
  must("$T --jsonl items --logprobs 5 > out && $V run tiny.plan $TINY $D --jsonl prompts --max-tokens 1 --logits rows > run");
  FILE *file = e2e_open(&model, "rows", "rb");
  assert_int_equal(fread(rows, sizeof rows[0], 44, file), 44);
  fclose(file);
  assert_int_equal(read_lines("out", lines), 4);
  assert_int_equal(read_lines("prompts", prompts), 4);
  double farthest = 0, nearest_shifted = 1e9;
  for (uint32_t i = 0; i < 4; i++) {
    size_t tokens = count_of(lines[i], "tokens"), length = i < 3 ? 12 : 8;
    double sum = 0;
    assert_int_equal(tokens, scored[i]);
    for (size_t k = 0; k < tokens; k++) {
      uint32_t rank, row = i * 12 + (uint32_t)(length - 1 - tokens + k), token = (uint32_t)at(lines[i], "tokens", k);
      assert_int_equal(token, (int)at(prompts[i], "prompt_ids", length - tokens + k));
      double found = at(lines[i], "logprobs", k), expected = reference(rows[row], TINY_VOCAB, token, &rank);
      if (fabs(found - expected) > bound_of(expected)) fail_msg("item %u, token %zu: %.9g, expected %.9g", i, k, found, expected);
      assert_int_equal(rank, (int)at(lines[i], "ranks", k));
      check_alternatives(lines[i], k, rows[row]);
      farthest = fmax(farthest, fabs(found - expected));
      nearest_shifted = fmin(nearest_shifted, fabs(found - reference(rows[row + 1], TINY_VOCAB, token, &rank)));
      sum += (double)(float)found;
    }
    assert_true(number(lines[i], "logprob") == sum);
  }
  print_message("farthest from binary64: %.2g; nearest by the logits of the next position: %.2g\n", farthest, nearest_shifted);
  assert_true(nearest_shifted > 1e-4); /* the control: the wrong position is noticed at every token */
  assert_true(number(lines[0], "logprob") == number(lines[1], "logprob"));
  assert_true(at(lines[2], "logprobs", 9) == at(lines[0], "logprobs", 0) && at(lines[2], "logprobs", 10) == at(lines[0], "logprobs", 1));
  drop(lines, 4);
  drop(prompts, 4);
}

/* === However the work is split ============================================================================================== */

static uint32_t scramble(uint32_t seed) { return (seed * 2654435761u) >> 8; }

static void put_ids(FILE *file, uint32_t count, uint32_t seed) {
  for (uint32_t i = 0; i < count; i++) fprintf(file, "%s%u", i ? "," : "[", scramble(seed * 977 + i) % 384);
  fputc(']', file);
}

/* Items of all forms and many lengths. reversed: the same, in reverse order. */
static void write_mixed(const char *name, bool reversed) {
  FILE *file = e2e_open(&model, name, "wb");
  for (uint32_t n = 0; n < 12; n++) {
    uint32_t i = reversed ? 11 - n : n, length = 1 + scramble(i) % 70;
    fprintf(file, "{\"id\":\"m%u\",", i);
    if (i % 3 == 0) {
      fprintf(file, "\"ids\":");
      put_ids(file, 3 * length + 2, i);
    } else {
      fprintf(file, "\"context_ids\":");
      put_ids(file, length, i);
      fprintf(file, i % 3 == 1 ? ",\"continuation_ids\":" : ",\"answer\":0,\"continuations_ids\":[");
      put_ids(file, 1 + length % 9, i + 100);
      if (i % 3 == 2) fputc(',', file), put_ids(file, 1 + length % 40, i + 200), fputc(']', file);
    }
    fputs("}\n", file);
  }
  assert_int_equal(fclose(file), 0);
}

static void same_bits(void **state) {
  (void)state;
  static const char *const cuts[] = {
    "--batch 1", "--batch 7 --threads 1", "--chunk 5", "--chunk 1 --batch 3", "--poison", "--poison --chunk 7 --slot-offset 3",
    "--shuffle-pages 9 --direct --threads 3"};
  write_mixed("mixed", false);
  write_mixed("reversed", true);
  must("$S --jsonl mixed --logprobs 3 --receipt receipt --summary summary > out && sed -i 2d receipt && "
       "test $(wc -l < out) = 12"); /* the second line names the machine */
  for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
    char command[512];
    snprintf(command, sizeof command, "$S --jsonl mixed --logprobs 3 --receipt receipt2 --summary summary2 %s > out2 && "
                                      "sed -i 2d receipt2 && cmp out out2 && cmp receipt receipt2 && cmp summary summary2", cuts[i]);
    must(command);
  }
  must("$S --jsonl mixed --logprobs 3 --receipt receipt2 > out2 && sed -i 2d receipt2 && cmp out out2 && cmp receipt receipt2");
  must("$V score other.plan model $D --jsonl mixed --logprobs 3 > out2 && cmp out out2"); /* a plan of other limits */
  must("$S --jsonl reversed --logprobs 3 > out2 && sort out > a && sort out2 > b && cmp a b");
  must("$S --logprobs 3 < mixed > out2 && cmp out out2");
  /* the control: one token of one item is changed, and only its line differs */
  must("sed '3s/\\[[0-9]*,/[0,/' mixed > other && ! cmp -s mixed other && $S --jsonl other --logprobs 3 > out2 && "
       "test $(diff out out2 | grep -c '^>') = 1 && ! cmp -s out out2");
}

/* === Against generation ===================================================================================================== */

/* A run's receipt and a score's receipt have the same values for the same tokens: the bits of log-probabilities, ranks, digests of the
 * logits, alternatives. */
static void compare_receipts(uint32_t count) {
  json_t *run[LINES_MAX], *score[LINES_MAX];
  assert_int_equal(read_lines("run", run), count + 3);
  assert_int_equal(read_lines("score", score), count + 3);
  for (uint32_t i = 2; i <= count + 1; i++) { /* after head and machine */
    const json_t *made = json_object_get(run[i], "made"), *scored = json_object_get(score[i], "scored");
    assert_true(count_of(made, "alternatives") >= 5 && count_of(made, "logits") >= 5);
    if (!json_equal(made, scored)) fail_msg("receipt of request %u", i - 2);
  }
  drop(run, count + 3);
  drop(score, count + 3);
}

static void scoring_is_generating(void **state) {
  (void)state;
  json_t *prompts[LINES_MAX], *made[LINES_MAX], *scored[LINES_MAX];
  FILE *file = e2e_open(&model, "prompts", "wb");
  for (uint32_t i = 0; i < 8; i++) {
    fprintf(file, "{\"temperature\":%s,\"seed\":%u,\"max_tokens\":%u,\"ignore_eos\":true,\"prompt_ids\":", i % 2 ? "1.0" : "0", i, 5 + i);
    put_ids(file, 1 + scramble(i) % 80, i);
    fputs("}\n", file);
  }
  assert_int_equal(fclose(file), 0);
  must("$V run plan model $D --jsonl prompts --logprobs 4 --receipt run --output jsonl > made");
  assert_int_equal(read_lines("prompts", prompts), 8);
  assert_int_equal(read_lines("made", made), 8);
  file = e2e_open(&model, "items", "wb");
  for (uint32_t i = 0; i < 8; i++) {
    char *a = json_dumps(json_object_get(prompts[i], "prompt_ids"), JSON_COMPACT);
    char *b = json_dumps(json_object_get(made[i], "tokens"), JSON_COMPACT);
    fprintf(file, "{\"context_ids\":%s,\"continuation_ids\":%s}\n", a, b);
    free(a);
    free(b);
  }
  assert_int_equal(fclose(file), 0);
  must("$S --jsonl items --logprobs 4 --receipt score --batch 3 --chunk 11 > scored");
  assert_int_equal(read_lines("scored", scored), 8);
  compare_receipts(8);
  bool any_other = false;
  for (uint32_t i = 0; i < 8; i++) {
    if (!json_equal(json_object_get(made[i], "logprobs"), json_object_get(scored[i], "logprobs"))) fail_msg("request %u", i);
    assert_true(json_equal(json_object_get(made[i], "tokens"), json_object_get(scored[i], "tokens")));
    assert_true(i % 2 || json_is_true(json_object_get(scored[i], "is_greedy")));
    any_other |= json_is_false(json_object_get(scored[i], "is_greedy"));
  }
  assert_true(any_other); /* at temperature 1 some tokens are not the likeliest */
  drop(prompts, 8);
  drop(made, 8);
  drop(scored, 8);
}

/* === Choices ================================================================================================================ */

/* Right answers of the shipped model's tasks next to wrong ones of the same length. */
static uint32_t write_choices(void) {
  FILE *from = fopen("tests/tiny/items.jsonl", "rb"), *file = e2e_open(&model, "choices", "wb");
  char line[4096];
  uint32_t count = 0, number_of_line = 0;
  assert_non_null(from);
  while (fgets(line, sizeof line, from)) {
    if (number_of_line++ % 16 != 0) continue;
    json_t *item = json_loads(line, 0, NULL), *choice = json_object(), *list = json_array();
    const char *answer = json_string_value(json_object_get(item, "answer"));
    char wrong[256];
    snprintf(wrong, sizeof wrong, "%s", answer);
    wrong[strlen(wrong) - 1] = (char)(wrong[strlen(wrong) - 1] == '7' ? '3' : '7');
    bool first = count % 2;
    json_array_append_new(list, json_string(first ? answer : wrong));
    json_array_append_new(list, json_string(first ? wrong : answer));
    json_object_set(choice, "context", json_object_get(item, "prompt"));
    json_object_set(choice, "task", json_object_get(item, "task"));
    json_object_set_new(choice, "continuations", list);
    json_object_set_new(choice, "answer", json_integer(first ? 0 : 1));
    assert_int_equal(json_dumpf(choice, file, JSON_COMPACT), 0);
    fputc('\n', file);
    json_decref(choice);
    json_decref(item);
    count++;
  }
  fclose(from);
  assert_int_equal(fclose(file), 0);
  return count;
}

static void choices(void **state) {
  (void)state;
  json_t *lines[LINES_MAX], *summary[LINES_MAX];
  uint32_t count = write_choices(), right = 0;
  assert_true(count >= 20);
  must("$T --jsonl choices --summary summary > out 2> err && grep -q 'acc_norm *1.0000' err");
  assert_int_equal(read_lines("out", lines), count);
  for (uint32_t i = 0; i < count; i++) {
    const json_t *parts = json_object_get(lines[i], "choices");
    double a = number(json_array_get(parts, 0), "logprob"), b = number(json_array_get(parts, 1), "logprob");
    assert_int_equal((int)number(lines[i], "best"), b > a);
    right += json_is_true(json_object_get(lines[i], "acc"));
  }
  assert_int_equal(right, count); /* `verbatim run` answers them all correctly, too */
  drop(lines, count);
  assert_int_equal(read_lines("summary", summary), 1);
  const json_t *tasks = json_object_get(summary[0], "tasks");
  double items = 0;
  const char *name;
  json_t *task;
  json_object_foreach((json_t *)(uintptr_t)tasks, name, task) {
    items += number(task, "items");
    assert_true(number(task, "acc") == 1 && number(task, "failed") == 0);
  }
  assert_true(items == count && number(summary[0], "requests") == 2 * count);
  drop(summary, 1);
  /* the control: with the answers exchanged none is right */
  must("sed 's/\"answer\":0/\"answer\":9/; s/\"answer\":1/\"answer\":0/; s/\"answer\":9/\"answer\":1/' choices > swapped && "
       "$T --jsonl swapped --output text > out 2> err && grep -q 'acc  *0.0000' err && grep -q 'best 1, per byte 1, answer 0' out");
}

/* === Windows ================================================================================================================ */

/* A text of 130 tokens in sequences of 48: every window equals its tokens given by hand. */
static void windows(void **state) {
  (void)state;
  json_t *lines[LINES_MAX], *parts[LINES_MAX];
  FILE *file = e2e_open(&model, "items", "wb");
  int32_t ids[130] = {0};
  fprintf(file, "{\"ids\":[0");
  for (uint32_t i = 1; i < 130; i++) fprintf(file, ",%d", ids[i] = (int32_t)(scramble(i) % 384));
  fprintf(file, "]}\n");
  assert_int_equal(fclose(file), 0);
  file = e2e_open(&model, "parts", "wb"); /* 47 tokens each, with one token before them; then 35, with 13 */
  static const uint32_t cuts[3][3] = {{0, 1, 48}, {47, 48, 95}, {82, 95, 130}};
  for (uint32_t w = 0; w < 3; w++) {
    for (uint32_t i = cuts[w][0]; i < cuts[w][2]; i++)
      fprintf(file, "%s%d", i == cuts[w][0] ? "{\"context_ids\":[" : i == cuts[w][1] ? "],\"continuation_ids\":[" : ",", ids[i]);
    fprintf(file, "]}\n");
  }
  assert_int_equal(fclose(file), 0);
  must("V2=\"$V score small.plan model $D\" && $V2 --jsonl items --receipt receipt > out && $V2 --jsonl parts > out2 && "
       "grep -q '\"id\":\"0#2\"' receipt && $S --jsonl items > out3");
  assert_int_equal(read_lines("out", lines), 1);
  assert_int_equal(read_lines("out2", parts), 3);
  assert_int_equal((int)number(lines[0], "windows"), 3);
  assert_int_equal(count_of(lines[0], "tokens"), 129);
  double sum = 0;
  for (uint32_t w = 0, k = 0; w < 3; w++)
    for (uint32_t i = 0; i < cuts[w][2] - cuts[w][1]; i++, k++) {
      assert_int_equal((int)at(lines[0], "tokens", k), ids[k + 1]);
      assert_true(at(lines[0], "logprobs", k) == at(parts[w], "logprobs", i));
      assert_true(at(lines[0], "ranks", k) == at(parts[w], "ranks", i));
      sum += (double)(float)at(parts[w], "logprobs", i);
    }
  assert_true(number(lines[0], "logprob") == sum);
  drop(parts, 3);
  assert_int_equal(read_lines("out3", parts), 1); /* all in one window: the first 47 tokens are the same, the others have more context */
  assert_int_equal((int)number(parts[0], "windows"), 1);
  for (uint32_t k = 0; k < 47; k++) assert_true(at(parts[0], "logprobs", k) == at(lines[0], "logprobs", k));
  assert_true(at(parts[0], "logprobs", 47) != at(lines[0], "logprobs", 47));
  drop(parts, 1);
  drop(lines, 1);
}

/* === Damage and refusals ==================================================================================================== */

/* Makes the embedding of one token NaN in a copy of the random model. */
static void damage_embedding(uint32_t token) {
  must("rm -rf damaged && cp -r model damaged");
  FILE *file = e2e_open(&model, "damaged/model.safetensors", "r+b");
  uint64_t header = 0;
  assert_int_equal(fread(&header, sizeof header, 1, file), 1);
  char *text = malloc(header);
  assert_non_null(text);
  assert_int_equal(fread(text, 1, header, file), header);
  json_t *tensors = json_loadb(text, header, 0, NULL), *entry = json_object_get(tensors, "model.embed_tokens.weight");
  assert_non_null(entry);
  uint64_t columns = (uint64_t)json_integer_value(json_array_get(json_object_get(entry, "shape"), 1));
  uint64_t begin = (uint64_t)json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
  assert_int_equal(fseek(file, (long)(8 + header + begin + 2 * columns * token), SEEK_SET), 0);
  for (uint64_t i = 0; i < columns; i++) assert_int_equal(fwrite("\xc0\x7f", 1, 2, file), 2);
  assert_int_equal(fclose(file), 0);
  json_decref(tensors);
  free(text);
}

static void nonfinite(void **state) {
  (void)state;
  damage_embedding(300);
  write_text("items", "{\"context_ids\":[1,2],\"continuation_ids\":[3,4]}\n"
                      "{\"context_ids\":[1,300],\"continuations_ids\":[[3],[4]],\"answer\":0}\n"
                      "{\"context_ids\":[1,5],\"continuation_ids\":[300]}\n{\"ids\":[6,7,8]}\n");
  must("$S --jsonl items > out; $V score plan damaged $D --jsonl items --receipt receipt --summary summary > out2 2> err; test $? = 8");
  must("sed -n '1p;3p;4p' out > a && sed -n '1p;3p;4p' out2 > b && cmp a b"); /* a NaN that is only scored harms nothing */
  must("test $(grep -c nonfinite out2) = 1 && sed -n 2p out2 | grep -q '\"finish\":\"nonfinite\"' && ! grep -q best out2 && "
       "grep -q 'item 1: the logits hold NaN' err && grep -q '\"failed\": 1' summary && tail -1 receipt | grep -q '^{\"digest'");
}

static void refused(void **state) {
  (void)state;
  static const struct { int code; const char *word, *line; } cases[] = {
    {4, "line 3", "{\"context\":\"a\"}"}, {4, "line 3: not JSON", "{"},
    {4, "continuation 0 is empty", "{\"context_ids\":[1],\"continuation_ids\":[]}"},
    {2, "item x: request: prompt token 1", "{\"id\":\"x\",\"ids\":[1,384]}"},
    {6, "item long: request: 513 prompt tokens", "LONG"}, {3, "tokenizer", "{\"text\":\"a\"}"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char command[1024];
    FILE *file = e2e_open(&model, "bad", "wb");
    fprintf(file, "{\"ids\":[1,2]}\n\n"); /* a good item first: it is not scored either */
    if (strcmp(cases[i].line, "LONG") == 0) {
      fprintf(file, "{\"id\":\"long\",\"continuation_ids\":[1],\"context_ids\":");
      put_ids(file, 512, 0);
      fprintf(file, "}\n");
    } else fprintf(file, "%s\n", cases[i].line);
    assert_int_equal(fclose(file), 0);
    snprintf(command, sizeof command, "rm -f r s && $S --jsonl bad --receipt r --summary s");
    expect_error(cases[i].code, cases[i].word, command);
    must("! test -e r && ! test -e s");
  }
  write_text("good", "{\"ids\":[1,2]}\n");
  expect_error(2, "0 to 20", "$S --jsonl good --logprobs 21");
  expect_error(2, "text or jsonl", "$S --jsonl good --output xml");
  expect_error(2, "two files", "$S --jsonl good --receipt q --summary q");
  expect_error(2, "would be overwritten", "$S --jsonl good --summary plan");
  expect_error(2, "would be overwritten", "$S --jsonl good --summary good");
  expect_error(2, "would be overwritten", "$S --jsonl good --summary model/config.json");
  expect_error(2, "[PLAN] MODEL_DIR", "$V score plan");
  expect_error(2, "found also \"extra\"", "$S --jsonl good extra");
  expect_error(2, "unknown option", "$S --jsonl good --max-tokens 3");
  expect_error(2, "needs a value", "$S --jsonl");
  expect_error(2, "expected an item", "$S < /dev/null");
  expect_error(3, "found nothing of that name", "$S --jsonl absent");
  if (access("/dev/full", W_OK) == 0) {
    expect_error(3, "stdout", "$S --jsonl good --receipt r > /dev/full");
    must("tail -1 r | grep -q '^{\"fault\":\"stdout'");
  }
  must("$V score --help | grep -q 'usage: verbatim score' && $S --jsonl good --output text 2> err | grep -q '^\\[0\\] -'");
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(equals_logits), cmocka_unit_test(same_bits), cmocka_unit_test(scoring_is_generating), cmocka_unit_test(choices),
    cmocka_unit_test(windows), cmocka_unit_test(nonfinite), cmocka_unit_test(refused)};
  char path[E2E_PATH_MAX];
  e2e_begin(argc, argv);
  shell_begin(&model, SETUP);
  e2e_make_model(&model, "tests/oracle/small-v3.json",
                 "max-num-seqs: 8\nmax-num-batched-tokens: 64\nmax-model-len: 512\nkv_pages: 48\nchunk_tokens: 64\ngroup_chunks: 2\n"
                 "ladder: [1, 2, 4, 8]\n");
  e2e_make_plan(&model, "small.plan",
                "max-num-seqs: 2\nmax-num-batched-tokens: 24\nmax-model-len: 48\nkv_pages: 2\nchunk_tokens: 64\n"
                "group_chunks: 2\nladder: [1, 2]\n", path);
  e2e_make_plan(&model, "other.plan", "max-num-seqs: 2\nmax-num-batched-tokens: 24\nmax_logit_rows: 3\nmax-model-len: 256\nkv_pages: 8\n"
                "chunk_tokens: 64\ngroup_chunks: 2\nladder: [1, 2]\n", path);
  e2e_model tiny = model;
  snprintf(tiny.model_dir, sizeof tiny.model_dir, "tests/tiny");
  e2e_make_plan(&tiny, "tiny.plan", "max-num-seqs: 16\nmax-num-batched-tokens: 256\nmax-model-len: 256\nkv_pages: 64\nladder: [1, 8]\n",
                path);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_remove(&model);
  return failed;
}
