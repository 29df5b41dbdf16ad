/* fuzz_hub.c - names on the Hub, and what a file of refs/ holds. What is accepted can stand in a path: no part is empty, leads up or is too
 * long, and a commit has 40 digits. */
#include "fuzz.h"
#include "engine/common/hub.h"

static void check_part(const char *part) {
  ASSERT(*part && *part != '.' && strlen(part) < CLI_HUB_PART_BYTES);
  ASSERT(!strstr(part, "/.") && !strstr(part, "//") && *part != '/' && part[strlen(part) - 1] != '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  cli_hub_name name;
  char commit[CLI_HUB_COMMIT_BYTES], word[512];
  const size_t count = bytes < sizeof word ? bytes : sizeof word - 1;
  memcpy(word, data, count);
  word[count] = 0;
  if (cli_hub_parse(word, &name)) {
    check_part(name.organisation);
    check_part(name.name);
    check_part(name.revision);
    ASSERT(!strchr(name.organisation, '/') && !strchr(name.name, '/'));
  }
  if (cli_hub_commit((const char *)data, bytes, commit))
    ASSERT(strspn(commit, "0123456789abcdef") == CLI_HUB_COMMIT_BYTES - 1 && memcmp(commit, data, CLI_HUB_COMMIT_BYTES - 1) == 0);
  return 0;
}
