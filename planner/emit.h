/* emit.h - writes a placed draft as the bytes of a plan file.
 *
 * The same draft gives the same bytes: no time, path or address is written. PLAN_FORMAT.md describes the format. */
#ifndef VERBATIM_EMIT_H
#define VERBATIM_EMIT_H
#include "draft.h"

/* The file's bytes, 8-byte aligned; the caller frees them. ERR_LIMIT: larger than FILE_PLAN_BYTES_MAX. */
status emit_plan(draft *plan, void **bytes, size_t *byte_count);

/* The numerics id (PLAN_FORMAT.md) of a model with these formats and attention constants. */
void emit_numerics_id(const plan_model *model, const plan_quant *quant, const plan_grouped *grouped, const plan_limits *limits,
                      uint8_t id[16]);

/* XXH3-128 in canonical byte order. */
void emit_digest(const void *data, size_t bytes, uint8_t digest[16]);

#endif
