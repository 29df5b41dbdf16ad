/* common/trace.h - `--trace` and `--trace-values`: collects what the engine reports for each token while requests run, and writes finished
 * requests to the trace in input order.
 *
 * Rows that are computed again after a preemption must be equal. Knows nothing of the requests' meaning; costs nothing when off. Read next:
 * traces/file.h, verbatim.h (on_trace). */
#ifndef VERBATIM_CLI_TRACE_H
#define VERBATIM_CLI_TRACE_H
#include "base/base.h"
#include "common/options.h"
#include "traces/file.h"
#include "verbatim.h"

#define CLI_TRACE_SELECTORS_MAX 32u

#define CLI_TRACE_HELP \
  "  --trace FILE        write a trace for `verbatim diff` and `audit`: a digest of every row that\n" \
  "                      every op made for every token; slow\n" \
  "  --trace-values WHAT also record values: \"layer=3,op=o_proj,position=17\", where all given parts\n" \
  "                      hold, with ranges as 0-63 and ops by the beginning of the name; \"all\"; or\n" \
  "                      \"audit:layer=3,position=17\": all that the ops of a layer read and made for a\n" \
  "                      token (the layer and the one before it, its KV rows so far); may be repeated\n" \
  "  --trace-memory MIB  memory for trace data that waits to be written (4096)\n"

typedef struct cli_trace_selector {
  const char *text;
  bool is_audit, has_layer;
  uint32_t layer_first, layer_last, position_first, position_last; /* inclusive */
  const char *op; /* [op_bytes]; 0 bytes: all ops */
  size_t op_bytes;
  uint8_t *match; /* [point_count]; set by cli_trace_begin */
} cli_trace_selector;

typedef struct cli_trace { /* zeroed at first; cli_trace_options presets memory_mib */
  const char *path;     /* NULL: off */
  uint32_t memory_mib;
  cli_trace_selector selectors[CLI_TRACE_SELECTORS_MAX];
  uint32_t selector_count;
  const verbatim_point *points; /* the engine's [point_count] trace points */
  uint32_t point_count;
  uint64_t bytes;       /* collected and not yet written */
  trace_writer *writer;
  fail_cause failure;   /* the first failure in a callback */
} cli_trace;

typedef struct cli_trace_value cli_trace_value;

typedef struct cli_trace_request { /* what was collected for one request; zeroed at first */
  cli_trace *trace;
  uint64_t *digests;    /* [row_count][point_count] */
  uint32_t row_count, row_room;
  cli_trace_value *values; /* [value_count], in order of arrival */
  uint32_t value_count, value_room;
  bool is_other;        /* set when a recomputed row first had different bits */
  uint32_t other_position, other_point;
  uint64_t other_digest;
} cli_trace_request;

/* Adds its rows to a subcommand's table, which has room for row_count rows and ends with zeros. */
void cli_trace_options(cli_trace *self, cli_option *rows, size_t row_count);

/* After the options: checks that they are consistent and the file can be written. ERR_USAGE, ERR_IO. */
status cli_trace_check(const cli_trace *self);

/* Once the engine is open: resolves the selectors and creates the file. Does nothing when off. */
status cli_trace_begin(cli_trace *self, const verbatim_info *info);

/* Sets the request's callbacks; its context must be r, or a struct that begins with r. Does nothing when off. */
void cli_trace_watch(cli_trace *self, cli_trace_request *r, verbatim_request *request);

/* Returns a failure from a callback or from cli_trace_add; call it after every verbatim_poll. ERR_LIMIT; ERR_MISMATCH: a recomputed row had
 * different bits, in a request that did not end with NaN or Inf (rows of such a request may differ: NUMERICS.md). */
status cli_trace_failure(const cli_trace *self);

/* Writes a finished request under this name and releases what was collected for it. */
void cli_trace_add(cli_trace_request *r, const char *name, const verbatim_request *request);

/* Ends the file. ERR_IO. */
status cli_trace_end(cli_trace *self);
void cli_trace_release(cli_trace_request *r);
void cli_trace_close(cli_trace *self); /* if cli_trace_end was not called, the file is marked incomplete for its readers */

#endif
