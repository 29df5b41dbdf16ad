/* audit_backend.h - the CPU backend of an audit: runs one op of a plan on recorded rows and shows the rows that it computes.
 *
 * Before an op runs, its result rows are overwritten with NaN patterns and its inputs with the recorded rows, so that no leftover of an
 * earlier op can pass for either. All rows are of one sequence, on pages 0, 1, 2, ... Read next: audit_inputs.h, exec.h. */
#ifndef VERBATIM_AUDIT_BACKEND_H
#define VERBATIM_AUDIT_BACKEND_H
#include "base/arena.h"
#include "traces/audit_inputs.h"
#include "traces/audit_source.h"
#include "plan/points.h"
#include "weights/weights.h"

typedef struct audit_backend audit_backend;

/* The arguments must outlive the result; memory is from the arena. Loads all weights of the plan. */
status audit_backend_open(audit_backend **out, const plan *p, const points *all, const char *model_dir, uint32_t threads,
                          weights_progress *progress, void *context, arena *host);
const uint8_t *audit_backend_weights(const audit_backend *self); /* their digest */
const char *audit_backend_name(const audit_backend *self);
void audit_backend_close(audit_backend *self); /* null is allowed */

/* Writes the KV rows of the request's first `count` rows, positions 0 .. count - 1, to where the op reads them. Called before each op that
 * reads KV, since other ops may have written there. */
void audit_backend_put_kv(audit_backend *self, const audit_op *op, const audit_request *request, uint32_t count);

/* Computes rows rows[0 .. count) of the request, ascending and at most op->rows_max, whose inputs are all present; `see` gets every point
 * that the op computes for each of them, packed as in a trace. Returns the op's duration in seconds. */
typedef void audit_backend_see(void *context, uint32_t row, uint32_t point, const void *packed);
double audit_backend_run(audit_backend *self, const audit_op *op, const audit_request *request, const uint32_t *rows, uint32_t count,
                         audit_backend_see *see, void *context);

#endif
