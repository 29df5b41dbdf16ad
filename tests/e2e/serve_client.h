/* serve_client.h - shared by the tests of the server: a server as a child process, and a client that writes the bytes that a test gives.
 *
 * Sockets have a time limit, so that a server that does not answer fails a test instead of hanging it. */
#ifndef VERBATIM_SERVE_CLIENT_H
#define VERBATIM_SERVE_CLIENT_H
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "e2e.h"

#define SERVE_CLIENT_SECONDS 20
#define SERVE_CLIENT_ARGUMENTS 24

typedef struct served {
  pid_t child;
  uint16_t port;
  char receipt[E2E_PATH_MAX]; /* of the server */
} served;

typedef struct served_reply {
  int status;
  char head[4096]; /* status line and headers, NUL-terminated */
  char *body;      /* without the chunk headers, NUL-terminated; the caller frees it */
  size_t bytes;
  bool whole;      /* it ended as it announced */
} served_reply;

/* The shipped model, with a plan of its own: it has a tokenizer. e2e_remove removes the plan. */
void served_make_model(e2e_model *model, const char *deploy);

/* Starts `verbatim serve` with these options, a list that ends with null, and waits until it is ready. The receipt is written to
 * <folder>/<name>. */
void served_begin(served *self, const e2e_model *model, const char *name, const char *const *options);

/* Sends the signal, unless it is 0, and returns the exit code, or -1 if a signal ended it. */
int served_end(served *self, int signal);

int served_connect(const served *self);
void served_send(int socket, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads the next reply. status 0: the connection ended before there was one. */
served_reply served_read(int socket);

/* One request on a connection of its own; headers: lines that end with \r\n. */
served_reply served_ask(const served *self, const char *method, const char *path, const char *headers, const char *body);

/* Sends a POST without waiting for the reply. */
int served_post(const served *self, const char *path, const char *headers, const char *body);

/* Copies the value of a header in the head, up to the end of its line, to room; "" without it. */
const char *served_header(const served_reply *reply, const char *name, char room[256]);

/* The body of a successful reply without its time, the only part that may differ. The caller frees it. */
char *served_timeless(served_reply reply);

/* The value of a sample of /metrics; -1: it does not exist. */
double served_metric(const served *self, const char *sample);

/* Waits until a sample has the value; fails the process if it never has. */
void served_wait(const served *self, const char *sample, double value);

/* Fails the test unless the reply has this status and is whole (0: the connection ended without a reply). Frees the body. */
void served_expect_status(served_reply reply, int wanted);

/* Fails the test unless the reply has this status and is OpenAI's error object with this code and a message. Frees the body. */
void served_expect_error(served_reply reply, int wanted, const char *code);

#endif
