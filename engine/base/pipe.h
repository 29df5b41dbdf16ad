/* pipe.h - a pipe between threads of the program: what wakes a thread that waits for descriptors, on every system.
 *
 * Linux alone has eventfd and pipe2. Includes libc only. */
#ifndef VERBATIM_PIPE_H
#define VERBATIM_PIPE_H
#include "base/base.h"

/* [0] is to be read, [1] to be written; a program that is started inherits neither. flags: 0, or O_NONBLOCK for both. On error (ERR_IO)
 * none is open. */
status pipe_open(int ends[2], int flags);

#endif
