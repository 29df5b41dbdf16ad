/* system.h - what the program asks of the operating system where Linux and macOS differ.
 *
 * Everything else uses what both have. Only this header and its file tell systems apart, as processor.h tells processors apart. Includes
 * libc only. Read next: LIMITS.md, "Processors". */
#ifndef VERBATIM_SYSTEM_H
#define VERBATIM_SYSTEM_H
#include <stdbool.h>
#include <stddef.h>

/* Who computes SHA-256, by functions of the same names: macOS brings its own and no libcrypto. */
#if defined(__APPLE__)
#define COMMON_DIGEST_FOR_OPENSSL /* gives CommonCrypto's functions libcrypto's names */
#define SYSTEM_SHA256_HEADER <CommonCrypto/CommonDigest.h>
#define SYSTEM_SHA256_LIBRARY "CommonCrypto"
#define SYSTEM_SHA256_VERSION "of the system"
#define SYSTEM_LIBC "macOS"
#elif defined(__linux__)
#define OPENSSL_SUPPRESS_DEPRECATED
#define SYSTEM_SHA256_HEADER <openssl/sha.h>
#define SYSTEM_SHA256_LIBRARY "libcrypto"
#define SYSTEM_SHA256_VERSION OPENSSL_VERSION_STR /* of the headers: to ask the archive would link all of it */
#define SYSTEM_LIBC "glibc"
#else
#error "expected Linux or macOS; see LIMITS.md"
#endif

/* "2.36"; of macOS the system's, which its C library is a part of: "15.1". Empty: unknown. */
void system_libc_version(char *text, size_t bytes);

/* The file of a library that dlopen opened; NULL: unknown. Valid until it is closed. */
const char *system_library_path(void *handle);

/* Asks for large pages for a mapping, where the system does not choose them itself. */
void system_want_huge_pages(void *mapping, size_t bytes);

/* Whether the other side of a socket has ended its stream, also while unread bytes lie before that end. */
bool system_is_hung_up(int descriptor);

/* Of a TCP socket with SO_KEEPALIVE: after how many idle seconds it asks for the other side. */
void system_set_keep_alive(int descriptor, int idle_seconds);

#endif
