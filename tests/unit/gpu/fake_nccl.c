/* fake_nccl.c - see fake_nccl.h. */
#include "tests/unit/gpu/fake_nccl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/unit/unit.h"

static const char TEXT[] =
  "#include <stdlib.h>\n#include <string.h>\n"
  "struct { int fail_call, calls, groups, alive, async, devices[16]; char multicast[8]; } fake;\n"
  "typedef struct comm { int rank, count; } comm;\n"
  "static struct job { const char *from; char *to; size_t bytes; int rank, count; } jobs[256];\n"
  "static int queued, is_open;\n"
  "#define CALL do { if (++fake.calls == fake.fail_call) return 2; } while (0)\n"
  "int ncclGetVersion(int *v) { *v = VERSION; return 0; }\n"
  "const char *ncclGetErrorString(int c) { return c == 2 ? \"fake system error\" : \"fake error\"; }\n"
  "const char *ncclGetLastError(void *c) { return \"no shared memory\"; }\n"
  "int ncclCommInitAll(comm **out, int n, const int *d) {\n"
  "  CALL; const char *nvls = getenv(\"NCCL_NVLS_ENABLE\"); strncpy(fake.multicast, nvls ? nvls : \"\", 7);\n"
  "  for (int i = 0; i < n; i++) out[i] = malloc(sizeof(comm)), *out[i] = (comm){i, n}, fake.devices[i] = d[i], fake.alive++;\n"
  "  return 0; }\n"
  "int ncclCommDestroy(comm *c) { free(c); fake.alive--; return 0; }\n"
  "int ncclCommGetAsyncError(comm *c, int *e) { *e = fake.async; return 0; }\n"
  "int ncclGroupStart(void) { CALL; is_open = 1; queued = 0; return 0; }\n"
  "int ncclAllGather(const void *f, void *t, size_t n, int type, comm *c, void *s) {\n"
  "  CALL; if (!is_open || type != 1 || queued == 256) return 4;\n"
  "  jobs[queued++] = (struct job){f, t, n, c->rank, c->count}; return 0; }\n"
  "static struct job *job_of(int rank, int nth) {\n"
  "  for (int i = 0; i < queued; i++) if (jobs[i].rank == rank && nth-- == 0) return &jobs[i]; return 0; }\n"
  "int ncclGroupEnd(void) {\n"
  "  CALL; is_open = 0; fake.groups++;\n"
  "  for (int nth = 0; nth < queued / jobs[0].count; nth++)\n"
  "    for (int to = 0; to < jobs[0].count; to++)\n"
  "      for (int from = 0; from < jobs[0].count; from++) {\n"
  "        struct job *a = job_of(from, nth), *b = job_of(to, nth);\n"
  "        if (!a || !b || a->bytes != b->bytes) return 5;\n"
  "        memcpy(b->to + from * b->bytes, a->from, a->bytes); }\n"
  "  return 0; }\n";

static void build(const char *options, dynlib_search *search) {
  static char folders[4][64];
  static int count;
  char command[256];
  assert_true(count < 4);
  char *folder = strcpy(folders[count++], "/tmp/verbatim-nccl-XXXXXX");
  assert_non_null(mkdtemp(folder));
  snprintf(command, sizeof command, "cc -w -shared -fPIC %s -x c -o %s/libnccl.so.2 -", options, folder);
  FILE *compiler = popen(command, "w");
  assert_non_null(compiler);
  fputs(TEXT, compiler);
  assert_int_equal(pclose(compiler), 0);
  *search = (dynlib_search){.folders = folder};
}

fake_nccl *fake_nccl_build(int version, dynlib_search *search) {
  static const char *const names[] = {"libnccl.so.2", NULL};
  char options[64];
  dynlib library = {0};
  fake_nccl *state = NULL;
  snprintf(options, sizeof options, "-DVERSION=%d", version);
  build(options, search);
  const dynlib_symbol symbol = {"fake", &state};
  assert_int_equal(dynlib_open(search, names, "NCCL", "none", &library), OK);
  assert_int_equal(dynlib_resolve(&library, &symbol, 1), OK);
  return state;
}

void fake_nccl_build_without(const char *symbol, dynlib_search *search) {
  char options[96];
  snprintf(options, sizeof options, "-DVERSION=1 -D%s=other", symbol);
  build(options, search);
}

void fake_nccl_remove(const dynlib_search *search) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", search->folders);
  assert_int_equal(system(command), 0);
}
