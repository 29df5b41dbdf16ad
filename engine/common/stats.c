/* common/stats.c - see common/stats.h. Owns the wording and the JSON; every figure comes from verbatim_describe or from the caller. */
#include "common/stats.h"
#include "common/output.h"
#include "base/digest.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>

static double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }
static double weights_gb_per_s(const verbatim_stages *s) { return rate(1e-9 * (double)s->weights_bytes, s->weights); }

/* GPU memory that the driver uses for its context (including that of other programs), and for our kernels, graphs and libraries. */
static int64_t context_bytes(const verbatim_memory *m) { return (int64_t)(m->total - m->free_opened); }
static int64_t driver_bytes(const verbatim_memory *m) { return (int64_t)(m->free_opened - m->reserved - m->free_ready); }
static int64_t growth_bytes(const verbatim_memory *m) { return (int64_t)(m->free_ready - m->free_now); }

static void print_stage(const char *name, double seconds, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void print_stage(const char *name, double seconds, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "  %-8s %8.3f s  ", name, seconds);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
}

static void print_stages(const verbatim_info *info) {
  const verbatim_stages *s = &info->stages;
  print_stage("plan", s->plan, "opened and checked");
  print_stage("text", s->text, "tokenizer opened by the engine");
  print_stage("device", s->device, "opened");
  print_stage("memory", s->memory, "%" PRIu64 " bytes on the device, %" PRIu64 " pinned, %" PRIu64 " on the host", info->device_bytes,
              info->pinned_bytes, info->host_bytes);
  print_stage("kernels", s->kernels, "%u from the cache, %u compiled", s->kernels_cached, s->kernels_compiled);
  print_stage("weights", s->weights, "%.3f GB, %.2f GB/s, %u threads", 1e-9 * (double)s->weights_bytes, weights_gb_per_s(s),
              s->weights_threads);
  print_stage("tables", s->tables, "computed, memory filled");
  print_stage("library", s->library, "algorithms checked");
  print_stage("graphs", s->graphs, "%u captured", info->graph_count);
  print_stage("all", s->total, "until ready");
}

void cli_stats_print(const verbatim_info *info, bool verbose) {
  const verbatim_stages *s = &info->stages;
  const verbatim_memory *m = &info->memory;
  fprintf(stderr, "device: %s, ready in %.1f s (%.2f GB of weights in %.1f s), %u graphs\n", info->device, s->total,
          1e-9 * (double)s->weights_bytes, s->weights, info->graph_count);
  if (!verbose) return;
  print_stages(info);
  if (m->total)
    fprintf(stderr, "GPU memory: %" PRIu64 " bytes planned, %" PRIu64 " reserved, %" PRId64 " more for kernels, graphs and libraries, %"
            PRId64 " for the context and other programs\n", m->planned, m->reserved, driver_bytes(m), context_bytes(m));
}

void cli_stats_check(const verbatim_info *info) {
  const verbatim_memory *m = &info->memory;
  if (m->reserved != m->planned)
    fprintf(stderr, "verbatim: GPU memory: the reservation took %" PRIu64 " bytes, expected %" PRIu64 "; hint: did another program use the "
            "GPU?\n", m->reserved, m->planned);
  if (growth_bytes(m) != 0)
    fprintf(stderr, "verbatim: GPU memory: %" PRId64 " bytes more in use after the run than before, expected 0; hint: did another "
            "program use the GPU?\n", growth_bytes(m));
}

static json_t *stages_json(const verbatim_info *info) {
  const verbatim_stages *s = &info->stages;
  json_t *seconds = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "plan", s->plan, "text", s->text, "device",
                              s->device, "memory", s->memory, "kernels", s->kernels, "weights", s->weights, "tables", s->tables,
                              "library", s->library, "graphs", s->graphs, "all", s->total);
  return json_pack("{s:o, s:i, s:i, s:i, s:I, s:i, s:f}", "seconds", seconds, "kernels_cached", (int)s->kernels_cached,
                   "kernels_compiled", (int)s->kernels_compiled, "graphs", (int)info->graph_count, "weights_bytes",
                   (json_int_t)s->weights_bytes, "weights_threads", (int)s->weights_threads, "weights_gb_per_s", weights_gb_per_s(s));
}

static json_t *memory_json(const verbatim_info *info) {
  const verbatim_memory *m = &info->memory;
  json_t *device = m->total ? json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "plan_bytes", (json_int_t)info->device_bytes,
                                        "planned_bytes", (json_int_t)m->planned, "reserved_bytes", (json_int_t)m->reserved,
                                        "driver_bytes", (json_int_t)driver_bytes(m), "context_bytes", (json_int_t)context_bytes(m),
                                        "total_bytes", (json_int_t)m->total, "growth_bytes", (json_int_t)growth_bytes(m))
                            : json_null();
  return json_pack("{s:o, s:I, s:I}", "gpu", device, "pinned_bytes", (json_int_t)info->pinned_bytes, "host_bytes",
                   (json_int_t)info->host_bytes);
}

/* The gap in microseconds below which this share of all gaps lies, from the bins' upper ends. */
static uint32_t gap_us_below(const verbatim_counters *c, double share) {
  uint64_t seen = 0;
  uint32_t bin = 0;
  for (; bin + 1 < VERBATIM_GAP_BINS && (double)(seen += c->gap_bins[bin]) < share * (double)c->gaps; bin++) continue;
  return bin + 1;
}

/* Null in a run without drafts. */
static json_t *drafts_json(const verbatim_counters *c) {
  if (c->drafts == 0) return json_null();
  json_t *at = json_array();
  for (uint32_t i = 0; i < VERBATIM_DRAFT_TOKENS_MAX && c->accepted_at[i]; i++)
    json_array_append_new(at, json_integer((json_int_t)c->accepted_at[i]));
  return json_pack("{s:I, s:I, s:I, s:o}", "count", (json_int_t)c->drafts, "tokens", (json_int_t)c->drafted_tokens, "accepted",
                   (json_int_t)c->accepted_tokens, "accepted_by_place", at);
}

static json_t *counters_json(const verbatim_counters *c) {
  json_t *gap = c->gaps ? json_pack("{s:I, s:f, s:i, s:i}", "steps", (json_int_t)c->gaps, "mean_us", c->gap_us / (double)c->gaps,
                                    "median_below_us", (int)gap_us_below(c, 0.5), "p99_below_us", (int)gap_us_below(c, 0.99))
                        : json_null();
  return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:o, s:o}", "steps", (json_int_t)c->steps,
                   "decode_steps", (json_int_t)c->decode_steps, "mixed_steps", (json_int_t)c->mixed_steps, "request_steps",
                   (json_int_t)c->request_steps, "token_rows", (json_int_t)c->token_rows, "reused_tokens", (json_int_t)c->reused_tokens,
                   "recomputed_tokens", (json_int_t)c->recomputed_tokens, "admissions", (json_int_t)c->admissions, "preemptions",
                   (json_int_t)c->preemptions, "cancellations", (json_int_t)c->cancellations, "deadlines", (json_int_t)c->deadlines,
                   "evicted_pages", (json_int_t)c->evicted_pages, "most_sequences", (int)c->most_sequences, "drafts", drafts_json(c),
                   "gap", gap);
}

status cli_stats_write(const char *path, const verbatim_info *info, const cli_stats_run *run) {
  char digits[DIGEST_TEXT_BYTES];
  uint64_t tokens = run->prompt_tokens + run->generated_tokens;
  json_t *work = json_pack("{s:i, s:I, s:I, s:f, s:f, s:f}", "requests", (int)run->requests, "prompt_tokens",
                           (json_int_t)run->prompt_tokens, "made_tokens", (json_int_t)run->generated_tokens, "seconds", run->seconds,
                           "made_tokens_per_s", rate((double)run->generated_tokens, run->seconds), "tokens_per_s",
                           rate((double)tokens, run->seconds));
  json_t *root = json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "numerics_id", digest_text(info->numerics_id, digits), "device", info->device,
                           "start", stages_json(info), "memory", memory_json(info), "run", work, "steps", counters_json(&run->counters));
  return cli_output_file(path, root, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
}
