/* serve/links.h - the open connections: how long a client may take over what it sends, and whether it is still there.
 *
 * libmicrohttpd limits the pause between two bytes; this limits the time of a whole head and of a whole body, and notices that a client
 * went away while its connection is suspended. A client that closes its side counts as gone. One descriptor tells whether there is
 * something to look at. Knows nothing of HTTP. Read next: serve/http.c. */
#ifndef VERBATIM_SERVE_LINKS_H
#define VERBATIM_SERVE_LINKS_H
#include "base/base.h"

typedef struct serve_links serve_links;
typedef struct serve_link serve_link; /* one connection */

/* seconds: for a head, and for a body; on_gone: of a connection with a guest, once, on the thread that calls serve_links_look. It may
 * not call anything here. */
status serve_links_open(serve_links **out, double seconds, void (*on_gone)(void *guest));
void serve_links_close(serve_links *self); /* all links have been removed. Null: nothing */

/* By the thread of the connections. link null: no memory, or no descriptor. */
serve_link *serve_links_add(serve_links *self, int descriptor);
void serve_links_remove(serve_link *link); /* before the descriptor is closed */
void serve_links_begin(serve_link *link, void *guest); /* a head is there; its body has its time from here */
void serve_links_read(serve_link *link);               /* and is there: no hurry any more */
void serve_links_end(serve_link *link);                /* the reply is out: the guest may be gone, the next head has its time */
bool serve_links_is_gone(serve_link *link);

/* By whoever watches: readable when serve_links_look has something to do. */
int serve_links_descriptor(const serve_links *self);
void serve_links_look(serve_links *self);
void serve_links_sweep(serve_links *self); /* ends connections whose time is over: call it now and then */
void serve_links_shut(serve_links *self);  /* ends all */
uint32_t serve_links_count(serve_links *self);

#endif
