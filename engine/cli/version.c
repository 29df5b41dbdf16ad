/* cli/version.c - `verbatim version`: the program's version, and those of everything that is linked into it, for reports of faults and for
 * lists of what a machine runs. NVIDIA's libraries are opened at run time; `verbatim doctor` names them. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "cli/cli.h"
#include "base/base.h"
#include "base/processor.h"
#include "base/sha256.h"
#include "base/system.h"
#include "common/options.h"
#include "common/output.h"
#include "plan/format.h"
#include "verbatim.h"
#include <event2/event.h>
#include <jansson.h>
#include <libfyaml.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>
#include <zstd.h>

#define PARTS 9u
#define VERSION_BYTES 64u

#ifdef __clang__
#define COMPILER "clang"
#define COMPILER_VERSION __clang_version__
#else
#define COMPILER "gcc"
#define COMPILER_VERSION __VERSION__
#endif

static const char HELP[] =
  "usage: verbatim version [--verbose] [--json]\n\n"
  "Prints the version of the program, of the numerics and of the format of plans, and the instruction set\n"
  "that the CPU backend uses here: avx512, avx2, neon or portable.\n\n"
  "Examples:\n"
  "  verbatim version\n"
  "  verbatim version --verbose\n\n"
  "  --verbose  also the versions of the libraries in the program, of the compiler and of the C library\n"
  "  --json     all of it, as one JSON object\n";

typedef struct part {
  const char *name;
  char version[VERSION_BYTES];
} part;

/* What was linked, not what was compiled against. */
static void find_parts(part parts[PARTS]) {
  unsigned hash = XXH_versionNumber();
  char regex[VERSION_BYTES] = "", libc[VERSION_BYTES] = "";
  pcre2_config(PCRE2_CONFIG_VERSION, regex); /* "10.42 2022-12-11": 24 bytes at most */
  system_libc_version(libc, sizeof libc);
  const char *const names[PARTS] = {"xxHash", "zstd", "jansson", "libfyaml", "PCRE2", "libevent", SYSTEM_SHA256_LIBRARY, COMPILER,
                                    SYSTEM_LIBC};
  const char *const versions[PARTS] = {NULL, ZSTD_versionString(), jansson_version_str(), fy_library_version(), regex,
                                       event_get_version(), sha256_library(), COMPILER_VERSION, libc};
  for (uint32_t i = 0; i < PARTS; i++) {
    parts[i].name = names[i];
    if (versions[i]) snprintf(parts[i].version, VERSION_BYTES, "%s", versions[i]);
    else snprintf(parts[i].version, VERSION_BYTES, "%u.%u.%u", hash / 10000, hash / 100 % 100, hash % 100);
  }
}

static status print_json(const part parts[PARTS]) {
  json_t *linked = json_object();
  for (uint32_t i = 0; i < PARTS; i++)
    if (json_object_set_new(linked, parts[i].name, json_string(parts[i].version)) != 0) return FAIL(ERR_LIMIT, "no memory for the output");
  return cli_output_json(json_pack("{s:s, s:s, s:i, s:s, s:o}", "verbatim", VERBATIM_VERSION, "numerics", NUMERICS_VERSION, "plan_format",
                                   (int)PLAN_FORMAT_VERSION, "isa", processor_isa(), "linked", linked), JSON_INDENT(2));
}

static status print(bool verbose, bool json) {
  part parts[PARTS];
  find_parts(parts);
  if (json) return print_json(parts);
  printf("verbatim %s, %s, plan format %u, %s\n", VERBATIM_VERSION, NUMERICS_VERSION, PLAN_FORMAT_VERSION, processor_isa());
  for (uint32_t i = 0; verbose && i < PARTS; i++) printf("%-10s %s\n", parts[i].name, parts[i].version);
  return cli_output_flush();
}

int cli_version(int argc, char **argv) {
  bool verbose = false, json = false;
  const cli_option table[] = {{"--verbose", NULL, &verbose}, {"--json", NULL, &json}, {0}};
  const char **words = calloc((size_t)argc, sizeof *words);
  uint32_t count = 0;
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    free(words);
    return 0;
  }
  status result = words ? cli_options_parse(table, argc, argv, words, &count) : FAIL(ERR_LIMIT, "no memory");
  if (result == OK && count) result = FAIL(ERR_USAGE, "version: expected no words, found %u; hint: verbatim version --help", count);
  free(words);
  if (result == OK) result = print(verbose, json);
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  return fail_exit_code(result);
}
