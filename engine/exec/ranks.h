/* ranks.h - what a plan of several ranks adds to exec: the start of their exchange, and what finds a rank that differs or does not answer.
 * Private to exec.
 *
 * Three nets. Before the first step a known pattern goes through every kind of exchange between every two ranks. Every wait of an exchange
 * is bounded, and a wait that ends too late says who waited for whom. And after every step the ranks compare the digests of what all of
 * them have computed alike, now and then of all that was exchanged. With one rank nothing here does anything. Read next: backend_ranks.c,
 * kernels_src/ranks/README.md. */
#ifndef VERBATIM_EXEC_RANKS_H
#define VERBATIM_EXEC_RANKS_H
#include "exec/state.h"

/* Host memory of a rank, which its device can write. */
uint64_t ranks_host_bytes(const plan *p);

/* Writes what the exchange needs to every rank: the way to the others, and zeros where it starts. Part of the start-up fills. */
void ranks_start_tables(exec *self);

/* After the tables: sends a known pattern through every kind of exchange. ERR_MISMATCH names the rank that received other bytes, and from
 * whom. */
status ranks_start_check(exec *self);

/* After the ops of a step: fetches the digests of all ranks; once the step was waited for, compares them. A rank with another digest is a
 * fault: the process ends. */
void ranks_fetch(exec *self, uint32_t side, const step_in *head);
void ranks_compare(exec *self, uint32_t side);

/* After the ops of a step, and before the next one's: fetches the digest of all that was exchanged so far, now and then. */
void ranks_fetch_links(exec *self, uint32_t side);

/* Before a step: at long intervals, waits for all ranks and starts the count of exchanges anew, long before it could wrap. */
void ranks_renew(exec *self);

/* A gpu_explain_hook: replaces the text if a rank waited too long for another. context: exec. */
void ranks_explain(void *context, char *text, size_t text_bytes);

#endif
