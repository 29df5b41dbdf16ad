/* thread.c - see thread.h. */
#include "base/thread.h"
#include <stddef.h>

#define STACK_BYTES ((size_t)8 << 20) /* address space only; what Linux gives a program's first thread */

int thread_begin(pthread_t *id, void *(*run)(void *), void *context) {
  pthread_attr_t attributes;
  int code = pthread_attr_init(&attributes);
  if (code != 0) return code;
  code = pthread_attr_setstacksize(&attributes, STACK_BYTES);
  if (code == 0) code = pthread_create(id, &attributes, run, context);
  pthread_attr_destroy(&attributes);
  return code;
}
