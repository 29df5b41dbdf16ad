/* special_file.h - whether opening a path could wait for ever or do something to a device. */
#ifndef VERBATIM_SPECIAL_FILE_H
#define VERBATIM_SPECIAL_FILE_H
#include <stdbool.h>

/* Something is at the path and it is no regular file: a folder, a pipe, a device. Links are followed. False where nothing is. */
bool special_file_at(const char *path);

#endif
