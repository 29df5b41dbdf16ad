/* test_schedules.c - a short run of the schedule fuzzer (tests/schedule/README.md), and its controls: with a planted fault it must find a
 * case and shrink it, and the text of that case must fail again, and pass once the fault is gone.
 *
 * Linked with --wrap for some ops, the pages and the start: numbers drawn by slot, a KV row in a neighbour's page, a page of the prefix
 * cache that has other tokens, a page returned while others read it, a page that is never returned, columns of two ranks exchanged. */
#include "tests/unit/unit.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "e2e.h"
#include "engine/cpu/cpu.h"
#include "engine/requests/pages.h"
#include "tests/schedule/fuzz.h"

#ifdef __SANITIZE_ADDRESS__
enum { SCHEDULES = 6, FAULT_SCHEDULES = 20, SHRINK_SECONDS = 4, FAULTS_TRIED = 2 }; /* instrumented code is slow */
#else
enum { SCHEDULES = 12, FAULT_SCHEDULES = 60, SHRINK_SECONDS = 180, FAULTS_TRIED = 6 };
#endif
enum { SCHEDULES_ON_GPU = 32, ROWS_MOST = 1024, SWAPPED_STEP = 2 }; /* check/schedule_fuzz draws more of them on the CPU */

static int device; /* as verbatim_config.device */
static e2e_model scratch;
static schedule_case parsed;
static fuzz_report report;

/* === Planted faults ========================================================================================================= */

enum fault { SOUND, DRAWN_BY_SLOT, NEIGHBOURS_ROW, STALE_PAGE, SHARED_PAGE_GIVEN, PAGE_LOST, RANKS_SWAPPED };
static enum fault planted, fault; /* the chosen fault; the active one */
static uint32_t exchanges[RANKS_MAX]; /* of each rank since the start: the first of every step */

int __real_verbatim_open(verbatim **engine, const verbatim_config *config);
int __wrap_verbatim_open(verbatim **engine, const verbatim_config *config);
void __real_cpu_sample(const sample_args *args, cpu_pool *pool);
void __wrap_cpu_sample(const sample_args *args, cpu_pool *pool);
void __real_cpu_qkv_rope(const qkv_rope_args *args, cpu_pool *pool);
void __wrap_cpu_qkv_rope(const qkv_rope_args *args, cpu_pool *pool);
void __real_cpu_exchange(const exchange_args *args, cpu_pool *pool);
void __wrap_cpu_exchange(const exchange_args *args, cpu_pool *pool);
uint32_t __real_pages_find(pages *self, const digest *key);
uint32_t __wrap_pages_find(pages *self, const digest *key);
bool __real_pages_give(pages *self, uint32_t number);
bool __wrap_pages_give(pages *self, uint32_t number);

/* Off during start-up, because the self-check would notice it. */
int __wrap_verbatim_open(verbatim **engine, const verbatim_config *config) {
  fault = SOUND;
  int code = __real_verbatim_open(engine, config);
  fault = planted;
  memset(exchanges, 0, sizeof exchanges);
  return code;
}

/* A request alone has slot 0, where the fault has no effect. */
void __wrap_cpu_sample(const sample_args *args, cpu_pool *pool) {
  static sample_param params[ROWS_MOST];
  sample_args changed = *args;
  for (uint32_t i = 0; i < args->step->logit_count && fault == DRAWN_BY_SLOT; i++) {
    ASSERT(i < ROWS_MOST);
    params[i] = args->param[i];
    params[i].sample_index += params[i].slot;
    changed.param = params;
  }
  __real_cpu_sample(&changed, pool);
}

/* Of several sequences in a step the last one's last row is written where the first one's row of that position is. */
void __wrap_cpu_qkv_rope(const qkv_rope_args *args, cpu_pool *pool) {
  static u32 sequences[ROWS_MOST];
  qkv_rope_args changed = *args;
  uint32_t count = args->step->token_count;
  if (fault == NEIGHBOURS_ROW && count > 0) {
    ASSERT(count <= ROWS_MOST);
    memcpy(sequences, args->seq, count * sizeof *sequences);
    sequences[count - 1] = sequences[0];
    changed.seq = sequences;
  }
  __real_cpu_qkv_rope(&changed, pool);
}

/* In one step, of the first row and on all ranks alike: they agree with each other. */
void __wrap_cpu_exchange(const exchange_args *args, cpu_pool *pool) {
  uint8_t *row = args->y[0];
  const uint32_t bytes = args->part_bytes[0];
  __real_cpu_exchange(args, pool);
  if (args->nth > 0 || exchanges[args->ranks->rank]++ != SWAPPED_STEP) return;
  for (uint32_t i = 0; i < bytes && fault == RANKS_SWAPPED; i++) {
    const uint8_t byte = row[i];
    row[i] = row[bytes + i];
    row[bytes + i] = byte;
  }
}

/* If there is no page of that key, it returns one of another key. */
uint32_t __wrap_pages_find(pages *self, const digest *key) {
  uint32_t number = __real_pages_find(self, key);
  for (uint32_t i = 0; i < self->total && fault == STALE_PAGE && number == PAGES_NONE; i++)
    if (self->list[i].has_key) number = __real_pages_find(self, &self->list[i].key);
  return number;
}

bool __wrap_pages_give(pages *self, uint32_t number) {
  if (fault == SHARED_PAGE_GIVEN && self->list[number].users > 1) self->list[number].users = 1; /* the next reader's end ends the process */
  if (fault == PAGE_LOST && number % 2) return false; /* in the end no request is admitted */
  return __real_pages_give(self, number);
}

/* === Runs =================================================================================================================== */

static fuzz_options base_options(void) {
  fuzz_options o = {.stage = {.device = device, .alone_device = device, .program_path = getenv("PATH")}, .seed = 7,
                    .jobs = 1, .limits = {.schedules = 2, .requests = 10, .threads = 2, .len = 320, .tokens = 170}, .case_seconds = 60};
  char tool[E2E_PATH_MAX];
  e2e_binary("random_model", tool);
  o.limits.models = draw_model_count(device);
  o.limits.ranks = device == VERBATIM_DEVICE_CPU ? 0 : 1; /* there may be one GPU */
  if (models_open(&o.stage.models, scratch.folder, tool) != OK) fail_msg("%s", fail_text());
  return o;
}

static void run(const fuzz_options *o) {
  fail_clear();
  if (fuzz_run(o, &report) != OK) fail_msg("%s", fail_text());
}

static void every_receipt_is_the_one_alone(void **state) {
  (void)state;
  char text[FAIL_TEXT_MAX + 64], case_text[CASE_TEXT_MAX];
  const run_counts *c = &report.counts;
  fuzz_options o = base_options();
  o.schedules = device == VERBATIM_DEVICE_CPU ? SCHEDULES : SCHEDULES_ON_GPU;
  if (device != VERBATIM_DEVICE_CPU) o.limits.schedules = 8; /* engines are slow to open there */
  o.shrink_seconds = SHRINK_SECONDS;
  run(&o);
  if (report.failed) {
    trial_text(&report.result, text, sizeof text);
    case_print(&report.smallest, case_text);
    fail_msg("%s; build/schedule_fuzz --case '%s'", text, case_text);
  }
  print_message("%" PRIu64 " schedules, %" PRIu64 " requests (%" PRIu64 " cut), %" PRIu64 " steps (%" PRIu64 " mixed), ", c->schedules,
                c->requests, c->cut, c->engine.steps, c->engine.mixed_steps);
  print_message("at most %u sequences, %" PRIu64 " tokens reused, %" PRIu64 " preemptions, %" PRIu64 " pages evicted, %" PRIu64
                " restarts, %" PRIu64 " engines of several ranks\n",
                c->engine.most_sequences, c->engine.reused_tokens, c->engine.preemptions, c->engine.evicted_pages, c->restarts, c->divided);
  assert_true(c->schedules >= o.schedules && c->requests > o.schedules);
  if (c->schedules >= FUZZ_WITNESS_SCHEDULES && fuzz_missing(c, &o.limits)) fail_msg("never seen: %s", fuzz_missing(c, &o.limits));
}

static uint32_t submitted(const schedule_case *c) {
  uint64_t seen[(CASE_REQUESTS_MAX + 63) / 64] = {0};
  uint32_t count = 0;
  for (uint32_t i = 0; i < c->event_count; i++) {
    uint32_t r = c->events[i].value;
    if (c->events[i].kind != CASE_SUBMIT || (seen[r / 64] >> (r % 64) & 1)) continue;
    seen[r / 64] |= 1ull << (r % 64);
    count++;
  }
  return count;
}

static void is_caught(enum fault now, uint32_t requests_most, const char *name) {
  char text[FAIL_TEXT_MAX + 64], case_text[CASE_TEXT_MAX];
  trial again;
  fuzz_options o = base_options();
  o.schedules = FAULT_SCHEDULES;
  o.limits = (draw_limits){.schedules = 1, .requests = 5, .models = o.limits.models, .threads = 1, .len = 192, .tokens = 8}; /* small */
  o.shrink_seconds = requests_most ? SHRINK_SECONDS : 0;
  o.case_seconds = 20;
  o.is_quiet = true;
  planted = now;
  run(&o);
  if (!report.failed) fail_msg("%s: not caught in %" PRIu64 " schedules", name, report.counts.schedules);
  if (!report.repeats) fail_msg("%s: the case does not fail by itself", name);
  trial_text(&report.result, text, sizeof text);
  case_print(&report.smallest, case_text);
  print_message("%s: after %" PRIu64 " requests; %u cases tried to make it smaller; %s\n  %s\n", name, report.counts.requests, report.tried,
                text, case_text);
  assert_true(!requests_most || submitted(&report.smallest) <= requests_most || SHRINK_SECONDS < 10);
  assert_int_equal(case_parse(case_text, &parsed), OK); /* the text determines everything */
  assert_int_equal(trial_run(&o.stage, &parsed, o.case_seconds, true, &again), OK);
  assert_true(trial_fails(&again));
  planted = SOUND;
  assert_int_equal(trial_run(&o.stage, &parsed, o.case_seconds, true, &again), OK);
  assert_int_equal(again.end, TRIAL_SOUND);
}

static void planted_faults_are_caught(void **state) {
  (void)state;
  static const struct {
    enum fault fault;
    uint32_t requests; /* at most this many in the smallest case; 0: not shrunk, because each try takes long */
    const char *name;
  } faults[] = {{DRAWN_BY_SLOT, 2, "numbers drawn by slot"},
                {STALE_PAGE, 0, "page of other tokens"}, /* half a minute: of four requests none can be left out alone */
                {NEIGHBOURS_ROW, 2, "row in a neighbour's page"},
                {SHARED_PAGE_GIVEN, 2, "page given back while shared"},
                {PAGE_LOST, 0, "page never given back"},
                {RANKS_SWAPPED, 2, "columns of two ranks swapped"}};
  if (device != VERBATIM_DEVICE_CPU) {
    print_message("SKIPPED: the faults are planted in the CPU's ops\n");
    skip();
  }
  for (uint32_t i = 0; i < FAULTS_TRIED; i++) is_caught(faults[i].fault, faults[i].requests, faults[i].name);
}

/* === What is compared ======================================================================================================= */

static ask alone, found;

static void run_ask(ask *a, const case_request *from, verbatim *engine) {
  enum { COUNT = 70 };
  bool busy = true;
  int32_t *prompt = calloc(COUNT, sizeof *prompt);
  assert_non_null(prompt);
  for (int32_t i = 0; i < COUNT; i++) prompt[i] = 5 + i * 31 % 300;
  ask_make(a, from, 0, prompt, COUNT, 320, 384);
  assert_int_equal(ask_submit(a, engine, true), 0);
  while (busy) assert_int_equal(verbatim_poll(engine, &busy), 0);
}

/* Changes one byte of the results, which must be noticed, and changes it back. */
static void is_seen(void *byte, bool is_cut, const char *says) {
  char what[ASK_WHAT_MAX] = "";
  enum verbatim_finish finish = found.request.finish;
  *(uint8_t *)byte ^= 4;
  if (is_cut) found.request.finish = VERBATIM_CANCELLED;
  if (ask_agrees(&found, &alone, is_cut, what)) fail_msg("not seen: %s", says);
  if (!strstr(what, says)) fail_msg("expected \"%s\", found \"%s\"", says, what);
  if (is_cut) found.request.finish = finish;
  *(uint8_t *)byte ^= 4;
  assert_true(ask_agrees(&found, &alone, false, what));
}

static void every_difference_is_seen(void **state) {
  (void)state;
  char what[ASK_WHAT_MAX];
  verbatim *engine = NULL;
  case_request from = {.is_defined = true};
  case_make_plain(&from, case_request_fields);
  from.max_tokens = 6, from.top = 2, from.score = 60, from.rows = 1, from.ignore_eos = 1;
  verbatim_config config = {.plan_path = scratch.plan_path, .model_dir = scratch.model_dir, .device = VERBATIM_DEVICE_CPU, .threads = 1,
                            .logits = true, .text = true};
  if (verbatim_open(&engine, &config) != 0) fail_msg("%s", verbatim_error());
  run_ask(&alone, &from, engine);
  run_ask(&found, &from, engine);
  verbatim_request *r = &found.request;
  if (!ask_agrees(&found, &alone, false, what)) fail_msg("%s", what);
  for (int cut = 0; cut < 2; cut++) { /* also of one that was cancelled */
    is_seen(&r->tokens[5].id, cut, "tokens[5]: token");
    is_seen(&r->tokens[0].logprob, cut, "tokens[0]: token");
    is_seen(&r->tokens[3].rank, cut, "tokens[3]: token");
    is_seen(&r->tokens[2].digest, cut, "tokens[2]: logits row");
    is_seen(&r->scores[1].digest, cut, "scores[1]: logits row");
    is_seen(&r->alternatives[0].id, cut, "alternatives[0]");
    is_seen(&r->alternatives[31].logprob, cut, "alternatives[31]"); /* the last of 10 scores and 6 tokens */
    is_seen(&found.problem[0], cut, "\004");
  }
  is_seen(&r->finish, false, "\"deadline\" at the end"); /* no request asked for one */
  is_seen(&r->chain[7], false, "the receipt's line");
  is_seen(&r->text_bytes, false, "the receipt's line");
  is_seen(&found.row_count, false, "logits rows were shown");
  digest_add(&found.rows, "", 1);
  assert_false(ask_agrees(&found, &alone, false, what));
  assert_non_null(strstr(what, "logits rows shown"));
  found.rows = alone.rows;
  digest_add(&found.text, "", 1);
  assert_false(ask_agrees(&found, &alone, false, what));
  assert_non_null(strstr(what, "text shown"));
  found.text = alone.text;
  r->finish = VERBATIM_CANCELLED;
  assert_false(ask_agrees(&found, &alone, false, what)); /* by nobody */
  assert_true(ask_agrees(&found, &alone, true, what));
  r->token_count = 3, assert_true(ask_agrees(&found, &alone, true, what));
  r->token_count = 7, assert_false(ask_agrees(&found, &alone, true, what));
  r->token_count = 6, r->finish = VERBATIM_RUNNING, assert_false(ask_agrees(&found, &alone, true, what));
  ask_free(&alone);
  ask_free(&found);
  verbatim_close(engine);
}

/* === The rest of it ========================================================================================================= */

/* Every case that can be drawn is the same after being written as text and read back. */
static void a_text_is_the_whole_case(void **state) {
  (void)state;
  static schedule_case drawn;
  static char first[CASE_TEXT_MAX], second[CASE_TEXT_MAX];
  draw_limits limits = base_options().limits;
  limits.schedules = DRAW_SCHEDULES_MAX;
  limits.requests = 16;
  for (uint64_t seed = 0; seed < 300; seed++) {
    draw_case(&drawn, seed, &limits);
    case_print(&drawn, first);
    if (case_parse(first, &parsed) != OK) fail_msg("%s", fail_text());
    case_print(&parsed, second);
    assert_string_equal(first, second);
    assert_int_equal(parsed.event_count, drawn.event_count);
  }
}

static void bad_texts_are_named(void **state) {
  (void)state;
  static const struct {
    const char *text, *error;
  } bad[] = {{"open; idle", "model="},
             {"model=small-v3; idle", "\"open\" as the first"},
             {"model=small-v3; open; submit 0", "there is no r0"},
             {"model=small-v3; r0 p=1:5; r0; open", "given twice"},
             {"model=small-v3; r0 p=@0:5; open", "no part of an earlier"},
             {"model=small-v3; r1 p=@0:5; open", "there is no r0"},
             {"model=small-v3; r0 p=5; open", "seed:count"},
             {"model=small-v3; r0 max=9999; open", "integer of 0 to 512"},
             {"model=small-v3; r0 warmth=1; open", "\"warmth\" is no key"},
             {"model=small-v3; open; wait 3", "no statement"},
             {"model=../v3; open", "name of a configuration"},
             {"model=small-v3; open; poll many", "expected an integer"}};
  for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
    fail_clear();
    assert_int_equal(case_parse(bad[i].text, &parsed), ERR_FORMAT);
    if (!strstr(fail_text(), bad[i].error)) fail_msg("\"%s\": expected \"%s\" in \"%s\"", bad[i].text, bad[i].error, fail_text());
  }
  fail_clear();
}

static int command(const char *first, const char *second, char *output, size_t bytes) {
  char program[E2E_PATH_MAX];
  e2e_binary("schedule_fuzz", program);
  char *argv[] = {program, (char *)(uintptr_t)"--model-dir-cache", scratch.folder, (char *)(uintptr_t)first, (char *)(uintptr_t)second,
                  NULL};
  return e2e_command(argv, output, bytes);
}

/* A case written by hand passes; errors in its text are reported. */
static void the_program_says_what_is_wrong(void **state) {
  (void)state;
  static const struct {
    const char *first, *second;
    int code;
    const char *says;
  } calls[] = {{"--case", "model=small-v3; r0 p=1:70 max=3; open; submit 0; poll 4; submit 0", 0, "Every receipt is the one"},
               {"--case", "model=small-v9; r0; open; submit 0", 2, "small-v9.json"},
               {"--case", "model=small-v3; r0; open; submit 1", 2, "there is no r1"},
               {"--case", "no-such-file", 2, "no-such-file"},
               {"--device", "tpu", 2, "expected cpu or gpu"},
               {"--per-case", "11", 2, "expected 1 to 10"},
               {"--requests", "many", 2, "expected an integer"},
               {"--ranks", "17", 2, "expected 0 to 16"},
               {"--help", NULL, 0, "--model-dir-cache"}};
  for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
    char output[8192];
    int code = command(calls[i].first, calls[i].second, output, sizeof output);
    if (!strstr(output, calls[i].says)) fail_msg("%s: expected \"%s\", found: %s", calls[i].first, calls[i].says, output);
    assert_true(calls[i].code ? code >= calls[i].code : code == 0);
  }
}

/* Each missing witness is reported. */
static void missing_witnesses_are_named(void **state) {
  (void)state;
  const draw_limits drawn = {.ranks = 0}, one = {.ranks = 1};
  run_counts full = {.restarts = 1, .divided = 16,
                     .engine = {.mixed_steps = 1, .request_steps = 1, .reused_tokens = 1, .recomputed_tokens = 1, .preemptions = 1,
                                .cancellations = 1, .deadlines = 1, .evicted_pages = 1, .most_sequences = 2, .drafted_tokens = 2,
                                .accepted_tokens = 1}};
  assert_null(fuzz_missing(&full, &drawn));
  run_counts c = full;
  c.engine.most_sequences = 1, assert_non_null(strstr(fuzz_missing(&c, &drawn), "several sequences")), c = full;
  c.engine.accepted_tokens = 0, assert_non_null(strstr(fuzz_missing(&c, &drawn), "accepted drafts")), c = full;
  c.engine.drafted_tokens = 1, assert_non_null(strstr(fuzz_missing(&c, &drawn), "rejected drafts")), c = full;
  c.engine.mixed_steps = 0, assert_non_null(strstr(fuzz_missing(&c, &drawn), "prompt and decode")), c = full;
  c.engine.reused_tokens = 0, assert_non_null(strstr(fuzz_missing(&c, &drawn), "prefix cache")), c = full;
  c.engine.preemptions = 0, assert_non_null(strstr(fuzz_missing(&c, &drawn), "preemptions")), c = full;
  c.engine.evicted_pages = 0, assert_non_null(strstr(fuzz_missing(&c, &drawn), "evicted")), c = full;
  c.engine.cancellations = 0, assert_non_null(strstr(fuzz_missing(&c, &drawn), "cancellations")), c = full;
  c.restarts = 0, assert_non_null(strstr(fuzz_missing(&c, &drawn), "restarts")), c = full;
  c.engine.request_steps = 0, assert_non_null(strstr(fuzz_missing(&c, &drawn), "by requests")), assert_null(fuzz_missing(&c, &one));
  c = full;
  c.divided = 0, assert_non_null(strstr(fuzz_missing(&c, &drawn), "several ranks")), assert_null(fuzz_missing(&c, &one));
}

static int make_folder(void **state) {
  (void)state;
  e2e_make_text_model(&scratch, "tests/oracle/small-v3.json", "max-num-seqs: 1\nmax-num-batched-tokens: 320\n"
                                                              "max_logit_rows: 320\nmax-model-len: 320\n");
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  e2e_remove(&scratch);
  return 0;
}

/* In a process of its own: a process that has used the driver cannot have children that use it. e2e_begin prints SKIPPED. */
static bool gpu_is_there(int argc, char **argv) {
  enum { IS_THERE = 42 };
  bool was_killed;
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    e2e_begin(argc, argv);
    _exit(IS_THERE);
  }
  int state = trial_wait(child, 60, &was_killed);
  return WIFEXITED(state) && WEXITSTATUS(state) == IS_THERE;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_text_is_the_whole_case), cmocka_unit_test(bad_texts_are_named),
                                     cmocka_unit_test(missing_witnesses_are_named), cmocka_unit_test(the_program_says_what_is_wrong),
                                     cmocka_unit_test(every_difference_is_seen),
                                     cmocka_unit_test(every_receipt_is_the_one_alone),
                                     cmocka_unit_test(planted_faults_are_caught)};
  bool on_gpu = argc > 2 && strcmp(argv[1], "--device") == 0 && strcmp(argv[2], "gpu") == 0;
  if (on_gpu && !gpu_is_there(argc, argv)) return 0;
  device = on_gpu ? 0 : VERBATIM_DEVICE_CPU;
  e2e_begin(1, argv);
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
