/* serve/tls.c - what stands in for GnuTLS in libmicrohttpd, so that the program holds that library whole and needs no other at run time.
 *
 * Debian's archive of libmicrohttpd can speak TLS; the server does not, a proxy before it may. configure.py makes the names of GnuTLS in a
 * copy of the archive weak, so that nothing needs to define them, and gives the three that are used without TLS these names. They are
 * the archive's and declared nowhere else. Read next: serve/http.c. */
#include <stddef.h>
#include <stdlib.h>

int serve_tls_begin(void);
void serve_tls_end(void);
extern void *(*const serve_tls_allocate)(size_t bytes);

int serve_tls_begin(void) { return 0; }
void serve_tls_end(void) {}
void *(*const serve_tls_allocate)(size_t bytes) = malloc;
