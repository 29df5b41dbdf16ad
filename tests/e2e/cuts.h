/* cuts.h - the same requests under every way of splitting the work: one receipt.
 *
 * The ways: batches, slots, chunk sizes, pages, poison, direct launches or graph sizes, other limits of the plan, threads. A run takes
 * several at once, since none may change a bit, and a failure names them. Shared by the tests of invariance; test_control.c shows that a
 * planted fault breaks exactly this comparison. */
#ifndef VERBATIM_CUTS_H
#define VERBATIM_CUTS_H
#include "e2e.h"

/* Two deployments of one numerics, with small chunks and groups. The longest request has seven chunks of 64 in four groups, or four of 128
 * in two; steps end inside them. */
typedef struct cuts_plans { const char *plan, *other; } cuts_plans;
extern const cuts_plans CUTS_64, CUTS_128, CUTS_128_BF16; /* the last one has KV rows of bf16 numbers */
extern const cuts_plans CUTS_GROUPED; /* chunks of 64, which are not grouped, for grouped-query attention */

extern e2e_requests cuts_requests;

void cuts_begin(int argc, char **argv); /* e2e_begin, and makes the requests */
void cuts_end(void);

/* Runs the requests; the receipt must be the expected one. what: the way, for the message of a failure. */
void cuts_expect(const char *what, const verbatim_config *config, digest expected);

/* Compares a random model of the config under every way. */
void cuts_check(const char *config_path, cuts_plans plans);

#endif
