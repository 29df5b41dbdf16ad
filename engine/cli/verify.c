/* cli/verify.c - `verbatim verify`: runs the requests of a receipt again, each alone; their lines must have the same bytes.
 *
 * Owns the subcommand's arguments, the selection of requests and the runs. receipts/read.c parses the receipt; the engine is used only
 * through verbatim.h. Read next: receipts/read.h, common/engine.h, common/compare.h. */
#include "cli/cli.h"
#include "cli/verify_signed.h"
#include "common/compare.h"
#include "common/engine.h"
#include "common/files.h"
#include "common/options.h"
#include "common/output.h"
#include "common/trace.h"
#include "base/limits.h"
#include "plan/plan.h"
#include "receipts/compare.h"
#include "receipts/guess.h"
#include "receipts/read.h"
#include "verbatim.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char HELP[] =
  "usage: verbatim verify RECEIPT PLAN MODEL_DIR [options]\n"
  "       verbatim verify FILE --allowed-signers FILE --identity ID\n\n"
  "Replays the requests of a receipt and compares every line byte for byte. Plan and machine may be\n"
  "other ones; the numerics id, config.json, the weights and, if there are stop texts, the tokenizer\n"
  "must agree. Each request runs alone unless --batch says otherwise, and all of its prompt is\n"
  "computed. A request that was cancelled or ran out of time is cancelled after the same token.\n"
  "The recorded tokens are checked many at a time: every row's choice, log-probability, rank and digest\n"
  "is computed as if it were made alone. Up to the plan's max-logit-rows fit in a step.\n"
  "Differences can be followed to their op with --trace and `verbatim diff` of the traces of both runs.\n\n"
  "With a signature it says who signed the receipt, and with one FILE, a manifest or a receipt, only\n"
  "that: no model runs.\n\n"
  "Examples:\n"
  "  verbatim verify my.receipt my.plan MODEL_DIR\n"
  "  verbatim verify out/manifest.json --allowed-signers signers --identity me@example.org\n"
  "  verbatim verify my.receipt my.plan MODEL_DIR --sample 20 --device cpu\n"
  "  verbatim verify served.receipt my.plan MODEL_DIR --id 17 --trace here.trace\n\n"
  "For each request that differs, prints the first token that differs and how the request ended, as\n"
  "\"the receipt | here\"; then a summary line. Exit code: 0 when all are equal, 8 when any differs. The\n"
  "receipt of a run that did not end is verified as far as it goes.\n\n"
  "  --id ID             only the requests of this name; may be repeated\n"
  "  --sample N          only N of the requests, drawn with --seed (all)\n"
  "  --seed S            seed of --sample (0)\n"
  "  --stepwise          make every token by a step of its own, which is slower\n"
  "  --json              one JSON object per line: one per request, and one at the end\n";
static const char MORE_HELP[] = CLI_SIGNATURE_HELP CLI_TRACE_HELP CLI_ENGINE_HELP; /* C11 guarantees only 4095 bytes in a literal */

typedef struct verify_run verify_run;

typedef struct slot { /* a request in flight */
  cli_trace_request trace; /* first member, because the request's context is this struct */
  receipt_record record;
  verbatim_request again;
  verify_run *run;
} slot;

struct verify_run {
  const char **words; /* from argv: receipt, plan and model folder */
  const char **ids;   /* [id_count], from argv */
  uint32_t id_count, sample;
  uint64_t seed;
  bool sampled, json, stepwise;
  cli_signature signature;
  cli_trace trace;
  cli_engine engine;
  receipt_read receipt;
  uint32_t *chosen;   /* [chosen_count], ascending request numbers */
  uint32_t chosen_count;
  slot *slots;        /* [slot_count] */
  uint32_t slot_count;
  uint32_t done, differing;
  uint64_t tokens;    /* generated here, for progress */
  char *refused;      /* id of the request that the engine refused, or NULL */
};

/* === Arguments ============================================================================================================== */

static status take_id(const char *name, const char *value, void *target) {
  verify_run *self = target;
  (void)name;
  self->ids[self->id_count++] = value;
  return OK;
}

static status take_sample(const char *name, const char *value, void *target) {
  verify_run *self = target;
  self->sampled = true;
  TRY(cli_options_u32(name, value, &self->sample));
  return self->sample ? OK : FAIL(ERR_USAGE, "%s: expected 1 or more, found 0", name);
}

static status parse_arguments(verify_run *self, int argc, char **argv) {
  uint32_t count = 0;
  cli_option table[40] = {
    {"--id", take_id, self}, {"--sample", take_sample, self}, {"--seed", cli_options_u64, &self->seed}, {"--json", NULL, &self->json},
    {"--stepwise", NULL, &self->stepwise}};
  cli_signature_options(&self->signature, table, ARRAY_LEN(table));
  cli_trace_options(&self->trace, table, ARRAY_LEN(table));
  cli_engine_options(&self->engine, table, ARRAY_LEN(table));
  TRY(cli_options_parse(table, argc, argv, self->words, &count));
  TRY(cli_signature_ready(&self->signature));
  if (self->signature.signers && count == 1) return OK;
  if (count != 3)
    return FAIL(ERR_USAGE, "verify: expected RECEIPT PLAN MODEL_DIR, found %u word%s; hint: verbatim verify --help",
                count, CLI_OPTIONS_PLURAL(count));
  self->engine.plan_path = self->words[1];
  self->engine.model_dir = self->words[2];
  TRY(cli_hub_resolve(&self->engine.model_dir, self->engine.model_path));
  if (self->engine.config.max_active == 0) self->engine.config.max_active = 1;
  self->engine.config.no_prefix_cache = true; /* so that no result depends on an earlier request */
  self->engine.config.no_drafts |= self->stepwise;
  self->engine.config.trace = self->trace.path != NULL;
  return cli_trace_check(&self->trace);
}

/* === Which requests ========================================================================================================= */

/* Keeps `sample` of the chosen requests; every subset of that size is equally likely. */
static void draw(verify_run *self) {
  uint32_t kept = 0, count = self->chosen_count;
  uint64_t state = self->seed;
  for (uint32_t i = 0; i < count && kept < self->sample; i++)
    if (random_next(&state) % (count - i) < self->sample - kept) self->chosen[kept++] = self->chosen[i];
  self->chosen_count = kept;
}

/* id NULL: any request. */
static status choose_named(verify_run *self, const char *id, bool *taken) {
  bool any = false;
  for (uint32_t i = 0; i < self->receipt.count; i++) {
    receipt_record record;
    TRY(receipt_read_get(&self->receipt, i, &record));
    bool same = strcmp(record.id, id) == 0;
    receipt_read_drop(&record);
    taken[i] |= same;
    any |= same;
  }
  return any ? OK : FAIL(ERR_USAGE, "--id %s: the receipt has no request of that name", id);
}

static status choose(verify_run *self) {
  uint32_t count = self->receipt.count;
  bool *taken = calloc(count + 1u, sizeof *taken);
  self->chosen = calloc(count + 1u, sizeof *self->chosen);
  status result = taken && self->chosen ? OK : FAIL(ERR_LIMIT, "verify: no memory");
  for (uint32_t i = 0; i < self->id_count && result == OK; i++) result = choose_named(self, self->ids[i], taken);
  for (uint32_t i = 0; i < count && result == OK; i++)
    if (taken[i] || self->id_count == 0) self->chosen[self->chosen_count++] = i;
  free(taken);
  TRY(result);
  if (self->sampled) draw(self);
  return OK;
}

/* Cancelled or out of time: the request must end where the record ends. */
static bool ended_early(const verbatim_request *recorded) {
  return recorded->finish == VERBATIM_CANCELLED || recorded->finish == VERBATIM_DEADLINE;
}

/* It ended between two scored tokens, or after the last one. This shows only in the logits rows: the next row tells how many were
 * scored. */
static bool ended_in_prompt(const verbatim_request *recorded) {
  return ended_early(recorded) && recorded->token_count == 0 && recorded->score_count != 0;
}

/* Sets the engine options that the requests need. */
static status require_features(verify_run *self) {
  for (uint32_t i = 0; i < self->chosen_count; i++) {
    receipt_record record;
    TRY(receipt_read_get(&self->receipt, self->chosen[i], &record));
    self->engine.config.text |= record.request.stop_text_count != 0 || record.request.constraint;
    self->engine.config.logits |= ended_in_prompt(&record.request);
    receipt_read_drop(&record);
  }
  return OK;
}

/* === The same model? ======================================================================================================== */

typedef struct identity {
  const char *name;
  const uint8_t *recorded, *here; /* [DIGEST_BYTES] */
} identity;

/* Reports all identities that differ. */
static status check_identities(const identity *list, size_t count) {
  char text[640] = "";
  for (size_t i = 0; i < count; i++) {
    char digests[2][DIGEST_TEXT_BYTES];
    size_t used = strlen(text);
    if (memcmp(list[i].recorded, list[i].here, DIGEST_BYTES) == 0) continue;
    snprintf(text + used, sizeof text - used, "%s%s: the receipt has %s, found %s", used ? "; " : "", list[i].name,
             digest_text(list[i].recorded, digests[0]), digest_text(list[i].here, digests[1]));
  }
  return *text ? FAIL(ERR_MISMATCH, "%s; hint: verify with the receipt's model, and a plan for it", text) : OK;
}

/* Checks what the plan alone determines, before weights are read. */
static status check_plan_identity(const verify_run *self) {
  const receipt_head *head = &self->receipt.head;
  plan view;
  TRY(plan_open(&view, self->engine.plan_path));
  const identity list[] = {{"numerics id", head->numerics_id, view.header->numerics_id},
                           {"config.json", head->config_digest, view.header->config_digest}};
  status result = check_identities(list, ARRAY_LEN(list));
  plan_close(&view);
  return result;
}

/* The second line says what the receipt's run had; it is not hashed, but a signature of the file covers it. */
static status check_sha256(const verify_run *self) {
  const uint8_t *recorded = self->receipt.machine.weights_sha256, *here = self->engine.info.weights_sha256;
  char texts[2][SHA256_TEXT_BYTES];
  if (sha256_is_none(recorded) || memcmp(recorded, here, SHA256_BYTES) == 0) return OK;
  return FAIL(ERR_MISMATCH, "SHA-256 of the weights: the receipt has %s, found %s; hint: verify with the receipt's model",
              sha256_text(recorded, texts[0]), sha256_text(here, texts[1]));
}

static status check_model_identity(const verify_run *self) {
  const receipt_head *head = &self->receipt.head;
  const identity list[] = {{"weights", head->weights_digest, self->engine.info.weights_digest},
                           {"tokenizer", head->tokenizer_digest, self->engine.info.tokenizer_digest}};
  TRY(check_identities(list, self->engine.config.text ? 2 : 1));
  return check_sha256(self);
}

static void tell_machines(const verify_run *self) {
  const receipt_machine *machine = &self->receipt.machine;
  char text[DIGEST_TEXT_BYTES];
  if (self->engine.quiet) return;
  fputs("receipt: made by verbatim ", stderr);
  cli_output_plain(stderr, machine->version);
  fputs(" on ", stderr);
  cli_output_plain(stderr, machine->device);
  fprintf(stderr, ", plan %s; verified on %s\n", digest_text(machine->plan_digest, text), self->engine.info.device);
  if (self->receipt.complete) return;
  fprintf(stderr, "note: the receipt's run did not end%s", self->receipt.fault ? ": " : "");
  cli_output_plain(stderr, self->receipt.fault ? self->receipt.fault : "");
  fputc('\n', stderr);
}

/* === Running ================================================================================================================ */

static void on_token(verbatim_request *request, uint32_t index) {
  slot *s = request->context;
  const verbatim_request *recorded = &s->record.request;
  s->run->tokens++;
  if (ended_early(recorded) && index + 1 == recorded->token_count) verbatim_cancel(s->run->engine.engine, request);
}

static uint32_t on_draft(verbatim_request *request, int32_t *ids, uint32_t most) {
  const slot *s = request->context;
  return receipt_guess(&s->record.request, request, ids, most);
}

static void on_logits(verbatim_request *request, uint32_t position, const float *row) {
  slot *s = request->context;
  (void)position;
  (void)row;
  if (request->score_count == s->record.request.score_count) verbatim_cancel(s->run->engine.engine, request);
}

/* Builds a request of this engine from a record's inputs; its outputs are not used. */
static status prepare(verify_run *self, uint32_t number, slot *s) {
  TRY(receipt_read_get(&self->receipt, self->chosen[number], &s->record));
  receipt_read_stops(&s->record, self->engine.info.eos, self->engine.info.eos_count);
  verbatim_request *r = &s->again;
  *r = s->record.request;
  r->scores = r->tokens = NULL;
  r->alternatives = NULL;
  r->score_count = r->token_count = r->stop_index = 0;
  r->text_bytes = 0;
  r->finish = VERBATIM_RUNNING;
  r->fault_op = NULL;
  r->fault_layer = r->fault_position = 0;
  memset(r->request_digest, 0, sizeof r->request_digest);
  memset(r->chain, 0, sizeof r->chain);
  r->context = s;
  r->on_token = on_token;
  r->on_draft = on_draft;
  r->on_logits = ended_in_prompt(&s->record.request) ? on_logits : NULL;
  s->run = self;
  cli_trace_watch(&self->trace, &s->trace, r);
  return OK;
}

static void drop_slot(slot *s) {
  cli_trace_release(&s->trace);
  free(s->again.scores);
  free(s->again.tokens);
  free(s->again.alternatives);
  receipt_read_drop(&s->record);
  *s = (slot){0};
}

static status refuse(verify_run *self, const slot *s, status result) {
  if (s->record.id && (self->refused = malloc(strlen(s->record.id) + 1))) strcpy(self->refused, s->record.id);
  return result;
}

/* Lets the engine check every request before the first one runs. The memory passed for outputs is not written, because nothing runs. */
static status check_one(verify_run *self, uint32_t number) {
  verbatim_token token;
  verbatim_alternative alternative;
  slot s = {0};
  status result = prepare(self, number, &s);
  s.again.scores = s.again.tokens = &token;
  s.again.alternatives = &alternative;
  if (result == OK) result = (status)verbatim_submit(self->engine.engine, &s.again);
  if (result == OK) result = (status)verbatim_cancel(self->engine.engine, &s.again);
  if (result != OK) refuse(self, &s, result);
  s.again.scores = s.again.tokens = NULL;
  s.again.alternatives = NULL;
  drop_slot(&s);
  return result;
}

static status take_outputs(verbatim_request *r) {
  uint64_t scored = r->score ? r->prompt_count - r->score_from : 0, all = scored + r->max_tokens;
  r->scores = calloc(scored + 1, sizeof *r->scores);
  r->tokens = calloc(r->max_tokens + 1ull, sizeof *r->tokens);
  r->alternatives = calloc(all * r->top_logprobs + 1, sizeof *r->alternatives);
  return r->scores && r->tokens && r->alternatives ? OK : FAIL(ERR_LIMIT, "verify: no memory");
}

static status submit(verify_run *self, uint32_t number, slot *s) {
  TRY(prepare(self, number, s));
  const verbatim_request *recorded = &s->record.request;
  TRY(take_outputs(&s->again));
  status result = (status)verbatim_submit(self->engine.engine, &s->again);
  if (result != OK) return refuse(self, s, result);
  if (ended_early(recorded) && recorded->token_count == 0 && recorded->score_count == 0)
    return (status)verbatim_cancel(self->engine.engine, &s->again);
  return OK;
}

/* === What differs =========================================================================================================== */

/* Whether the line has the same bytes. */
static status compare(verify_run *self, slot *s, bool *equal) {
  int32_t stops[EOS_MAX + VERBATIM_STOP_IDS_MAX];
  const verbatim_request *recorded = &s->record.request;
  char *line;
  size_t bytes;
  if (s->again.finish == VERBATIM_CANCELLED && recorded->finish == VERBATIM_DEADLINE) s->again.finish = VERBATIM_DEADLINE;
  TRY(receipt_line(s->record.id, &s->again, stops, verbatim_stop_ids(self->engine.engine, &s->again, stops), &line, &bytes));
  *equal = bytes == s->record.line_bytes && memcmp(line, s->record.line, bytes) == 0;
  free(line);
  return OK;
}

/* === Output ================================================================================================================= */

static status tell_json(const slot *s, const receipt_difference *d) {
  json_t *object = json_pack("{s:s, s:b, s:s, s:i, s:i}", "id", s->record.id, "equal", !d, "finish", receipt_finish_name(s->again.finish),
                             "scored", (int)s->again.score_count, "made", (int)s->again.token_count);
  if (d) json_object_set_new(object, "first", cli_compare_json(d));
  return cli_output_json(object, JSON_COMPACT | JSON_REAL_PRECISION(17));
}

static status tell_one(const verify_run *self, const slot *s, bool equal) {
  receipt_difference d;
  bool differs = !equal && receipt_compare(&s->record.request, &s->again, true, &d);
  if (self->json) return tell_json(s, equal ? NULL : &d);
  if (equal) return OK;
  printf("request ");
  cli_output_quoted(s->record.id);
  puts(" differs, the receipt | here:");
  if (differs) cli_compare_print(&d);
  else puts("  all values are the same; the line is not in a receipt's form");
  return OK;
}

static status tell_all(const verify_run *self) {
  char text[2][DIGEST_TEXT_BYTES];
  const receipt_read *r = &self->receipt;
  if (self->json)
    return cli_output_json(json_pack("{s:i, s:i, s:i, s:b, s:s, s:s, s:s}", "verified", (int)self->done, "differ", (int)self->differing,
                                     "of", (int)r->count, "complete", r->complete, "receipt", digest_text(r->digest.bytes, text[0]),
                                     "numerics_id", digest_text(r->head.numerics_id, text[1]), "device", self->engine.info.device),
                           JSON_COMPACT);
  printf("%" PRIu32 " requests verified, %" PRIu32 " differ", self->done, self->differing);
  if (self->done < r->count) printf(" (of %" PRIu32 " in the receipt)", r->count);
  puts(r->complete ? "" : "; the receipt's run did not end");
  return OK;
}

/* === The run ================================================================================================================ */

static status settle(verify_run *self, slot *s) {
  bool equal = false;
  TRY(compare(self, s, &equal));
  self->differing += !equal;
  self->done++;
  TRY(tell_one(self, s, equal));
  TRY(cli_engine_add(&self->engine, s->record.id, &s->again));
  cli_trace_add(&s->trace, s->record.id, &s->again);
  drop_slot(s);
  return cli_output_flush();
}

/* Settles requests in the order of the receipt, with one in flight per slot. */
static status run_all(verify_run *self) {
  uint32_t sent = 0;
  bool busy;
  while (self->done < self->chosen_count) {
    for (; sent < self->chosen_count && sent - self->done < self->slot_count; sent++)
      TRY(submit(self, sent, &self->slots[sent % self->slot_count]));
    slot *first = &self->slots[self->done % self->slot_count];
    while (first->again.finish == VERBATIM_RUNNING) {
      TRY((status)verbatim_poll(self->engine.engine, &busy));
      TRY(cli_trace_failure(&self->trace));
      ASSERT(busy || first->again.finish != VERBATIM_RUNNING);
      cli_engine_progress(&self->engine, self->done, self->chosen_count, self->tokens, false);
    }
    TRY(settle(self, first));
  }
  cli_engine_progress(&self->engine, self->done, self->chosen_count, self->tokens, true);
  TRY(cli_engine_end(&self->engine));
  TRY(cli_trace_end(&self->trace));
  TRY(tell_all(self));
  if (self->differing == 0) return OK;
  return FAIL(ERR_MISMATCH, "%s: %u of %u requests differ", self->words[0], self->differing, self->done);
}

static status check_signature(const verify_run *self) {
  char good[CLI_SIGNATURE_TEXT_BYTES];
  if (!self->signature.signers) return OK;
  TRY(cli_signature_check(&self->signature, self->words[0], good));
  if (!self->engine.quiet) fprintf(stderr, "%s\n", good);
  return OK;
}

static status verify_steps(verify_run *self) {
  if (!self->words[1]) return cli_verify_signed(&self->signature, self->words[0], self->json);
  const cli_files_row files[] = {CLI_ENGINE_FILES(&self->engine), {CLI_FILES_READ, self->words[0], "the input"},
                                 {CLI_FILES_WRITTEN, self->trace.path, "the trace"},
                                 {CLI_FILES_READ, self->signature.signers, "the allowed signers"},
                                 {CLI_FILES_READ, self->signature.path, "the signature"}};
  TRY(cli_files_check(files, ARRAY_LEN(files)));
  TRY(check_signature(self));
  TRY(receipt_read_open(&self->receipt, self->words[0]));
  if (self->receipt.count == 0) return FAIL(ERR_FORMAT, "%s: the receipt has no requests, so there is nothing to verify", self->words[0]);
  TRY(choose(self));
  TRY(require_features(self));
  TRY(check_plan_identity(self));
  self->engine.config.sha256 |= !sha256_is_none(self->receipt.machine.weights_sha256);
  TRY(cli_engine_open(&self->engine));
  TRY(check_model_identity(self));
  tell_machines(self);
  for (uint32_t i = 0; i < self->chosen_count; i++) TRY(check_one(self, i));
  self->slot_count = max_u32(1, min_u32(self->engine.config.max_active, self->chosen_count));
  self->slots = calloc(self->slot_count, sizeof *self->slots);
  if (!self->slots) return FAIL(ERR_LIMIT, "verify: no memory");
  TRY(cli_trace_begin(&self->trace, &self->engine.info));
  TRY(cli_engine_begin_as(&self->engine, self->receipt.head.has_tokenizer ? self->receipt.head.tokenizer_digest : NULL));
  return run_all(self);
}

static void close_verify(verify_run *self) {
  cli_engine_close(&self->engine);
  for (uint32_t i = 0; self->slots && i < self->slot_count; i++) drop_slot(&self->slots[i]);
  cli_trace_close(&self->trace);
  receipt_read_close(&self->receipt);
  free(self->slots);
  free(self->chosen);
  free(self->refused);
  free(self->words);
  free(self->ids);
}

int cli_verify(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    fputs(MORE_HELP, stdout);
    return 0;
  }
  verify_run self = {.words = calloc((size_t)argc, sizeof *self.words), .ids = calloc((size_t)argc, sizeof *self.ids)};
  status result = self.words && self.ids ? parse_arguments(&self, argc, argv) : FAIL(ERR_LIMIT, "no memory");
  if (result == OK) result = verify_steps(&self);
  if (result != OK) {
    fputs(self.refused ? "verbatim: request " : "verbatim: ", stderr);
    cli_output_plain(stderr, self.refused ? self.refused : "");
    fprintf(stderr, "%s%s\n", self.refused ? " of the receipt: " : "", fail_text());
  }
  close_verify(&self);
  return fail_exit_code(result);
}
