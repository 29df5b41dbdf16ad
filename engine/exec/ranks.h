/* ranks.h - what a plan of several ranks adds to exec: the start of their exchange, and what finds a rank that differs or does not answer.
 * Private to exec.
 *
 * Three checks. Before the first step, a known pattern goes through every kind of exchange between every two ranks. The waits of an
 * exchange are bounded, and a wait that is too long records who waited for whom. After every step, the ranks compare digests of the rows
 * that all of them compute alike, and every few steps a digest of the exchanges that are sampled. With one rank nothing here does anything.
 * Read next: backend_ranks.c, kernels_src/ranks/README.md. */
#ifndef VERBATIM_EXEC_RANKS_H
#define VERBATIM_EXEC_RANKS_H
#include "exec/state.h"

/* Host memory of a rank, which its device can write. */
uint64_t ranks_host_bytes(const plan *p);

/* Exchanges through NCCL leave in host memory how far each rank is, for ranks_explain. */
void ranks_mark(exec *self);

/* The longest wait of a rank for another. */
double ranks_timeout_s(const exec *self);

/* Writes what the exchange needs to every rank: the way to the others, and zeros where it starts. Part of the start-up fills. */
void ranks_start_tables(exec *self);

/* After the tables: sends a known pattern through every kind of exchange. ERR_MISMATCH names the rank that received other bytes, and from
 * whom. */
status ranks_start_check(exec *self);

/* After the ops of a step: fetches the digests of all ranks; once the step was waited for, compares them. A rank with another digest is a
 * fault: the process ends. */
void ranks_fetch(exec *self, uint32_t side, const step_in *head);
void ranks_compare(exec *self, uint32_t side);

/* After the ops of a step, and before the next one's: every few steps, fetches the digest of the sampled exchanges so far. */
void ranks_fetch_links(exec *self, uint32_t side);

/* Before a step: at long intervals, waits for all ranks and restarts the count of exchanges (the epoch), long before it could wrap. */
void ranks_renew(exec *self);

/* A gpu_explain_hook: replaces the text if a rank waited too long for another. context: exec. */
void ranks_explain(void *context, char *text, size_t text_bytes);

#endif
