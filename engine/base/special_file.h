/* special_file.h - whether opening a path could block or affect a device. Knows nothing of what files contain. */
#ifndef VERBATIM_SPECIAL_FILE_H
#define VERBATIM_SPECIAL_FILE_H
#include <stdbool.h>

/* True if the path exists and is not a regular file: a folder, a pipe, a device. Follows links. */
bool special_file_at(const char *path);

#endif
