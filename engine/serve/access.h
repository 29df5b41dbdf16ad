/* serve/access.h - who may ask: the hosts that a request may name, and the web pages (origins) that may send it.
 *
 * A browser on this computer reaches a loopback server for every page it shows. A page whose name resolves to 127.0.0.1 (DNS rebinding) is
 * of one origin with the server and could read its replies, but its requests name its own host; any other page's requests, if they do more
 * than read, name its origin. Programs send no Origin. Knows neither keys nor paths, but for /health and
 * its other name /ping. Read next: serve/router.h. */
#ifndef VERBATIM_SERVE_ACCESS_H
#define VERBATIM_SERVE_ACCESS_H
#include "base/base.h"
#include "serve/router.h"

#define SERVE_ACCESS_NAMES_MAX 32u
#define SERVE_ACCESS_NAME_BYTES_MAX 255u

typedef struct serve_access_names { /* "*": all */
  const char *list[SERVE_ACCESS_NAMES_MAX];
  uint32_t count;
} serve_access_names;

typedef struct serve_access {
  serve_access_names hosts;   /* allowed besides the server's own names; without a port */
  serve_access_names origins; /* SCHEME://HOST[:PORT], as browsers write them */
  const char *bound;          /* the host that the server was told to listen on */
  bool is_loopback;           /* it can be reached from this computer only: its own names are allowed, and no others */
} serve_access;

/* True: the request may come in. *origin: the entry of the list that allows its origin, else null. A server that is not loopback looks at
 * hosts only if some are listed. /health and /ping are for everybody. False: fault is the reply. */
bool serve_access_judge(const serve_access *self, const serve_head *head, const char **origin, serve_fault *fault);

/* A browser asks whether a page may send a request (CORS). */
bool serve_access_is_preflight(const serve_head *head);

/* The lines of a reply that let a page of this origin read it; null: no lines. */
void serve_access_headers(const char *origin, bool is_preflight, char *room, size_t room_bytes);

/* Whether the URL that a server listens on is of this computer only. */
bool serve_access_is_loopback(const char *url);

#endif
