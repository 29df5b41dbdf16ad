/* common/trace.h - `--trace` and `--trace-values`: collects what the engine tells of each token while requests run, and writes it as a
 * trace in the order of input when they are finished.
 *
 * Rows that come again, because a request was preempted and computed anew, must be the same. Knows nothing of what is asked of the engine;
 * costs nothing when it is off. Read next: traces/file.h, verbatim.h (on_trace). */
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
  const char *op; /* [op_bytes], none: all */
  size_t op_bytes;
  uint8_t *match; /* [point_count], after cli_trace_begin */
} cli_trace_selector;

typedef struct cli_trace { /* from zeros; memory_mib is preset by cli_trace_options */
  const char *path;     /* null: off */
  uint32_t memory_mib;
  cli_trace_selector selectors[CLI_TRACE_SELECTORS_MAX];
  uint32_t selector_count;
  const verbatim_point *points; /* [point_count] of the engine */
  uint32_t point_count;
  uint64_t bytes;       /* collected and not yet written */
  trace_writer *writer;
  fail_cause failure;   /* the first of a callback */
} cli_trace;

typedef struct cli_trace_value cli_trace_value;

typedef struct cli_trace_request { /* what was collected of one request; from zeros */
  cli_trace *trace;
  uint64_t *digests;    /* [row_count][point_count] */
  uint32_t row_count, row_room;
  cli_trace_value *values; /* [value_count], as they came */
  uint32_t value_count, value_room;
  bool is_other;        /* a row that came again had other bits: the first such */
  uint32_t other_position, other_point;
  uint64_t other_digest;
} cli_trace_request;

/* Adds its rows to a subcommand's table, which has room for row_count and ends with zeros. */
void cli_trace_options(cli_trace *self, cli_option *rows, size_t row_count);

/* After the options: that they belong together, and the file may be written. ERR_USAGE, ERR_IO. */
status cli_trace_check(const cli_trace *self);

/* With the engine open: looks up what was selected, and creates the file. Nothing to do when it is off. */
status cli_trace_begin(cli_trace *self, const verbatim_info *info);

/* Sets the request's callbacks; its context must be a struct that begins with r, or r. Nothing to do when it is off. */
void cli_trace_watch(cli_trace *self, cli_trace_request *r, verbatim_request *request);

/* What went wrong in a callback or in cli_trace_add: to be asked after every verbatim_poll. ERR_LIMIT, ERR_MISMATCH: a row that was
 * computed again had other bits, and the request is not one that ended by NaN or Inf, beside which rows may be anything (NUMERICS.md). */
status cli_trace_failure(const cli_trace *self);

/* Writes a finished request under this name and releases what was collected. */
void cli_trace_add(cli_trace_request *r, const char *name, const verbatim_request *request);

/* Ends the file. ERR_IO. */
status cli_trace_end(cli_trace *self);
void cli_trace_release(cli_trace_request *r);
void cli_trace_close(cli_trace *self); /* without cli_trace_end the file is not whole, and says so to its readers */

#endif
