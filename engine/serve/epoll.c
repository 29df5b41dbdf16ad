/* serve/epoll.c - stands in for epoll_wait in libmicrohttpd. Where as many events come as that library asks for (128), it asks again with
 * the same timeout before it looks at any (0.9.75 to 1.0.1 at least), so that 128 or 256 clients who speak at once would wait for another
 * event, or half a minute. It is given one fewer; those left come with its next call. configure.py gives the name in a copy of the archive;
 * it is declared nowhere else. Read next: serve/http.c. */
#include <sys/epoll.h>

int serve_epoll_wait(int descriptor, struct epoll_event *events, int most, int milliseconds);

int serve_epoll_wait(int descriptor, struct epoll_event *events, int most, int milliseconds) {
  return epoll_wait(descriptor, events, most > 1 ? most - 1 : most, milliseconds);
}
