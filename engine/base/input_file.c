/* input_file.c - see input_file.h. */
#include "base/input_file.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const struct { const char *what, *hint; } KINDS[] = {
    [INPUT_PLAN] = {"a plan", "`verbatim plan MODEL_DIR -o PLAN` makes one; the plan comes before the model folder"},
    [INPUT_RECEIPT] = {"a receipt", "--receipt FILE writes one; the receipt comes before the plan"},
    [INPUT_TRACE] = {"a trace", "`verbatim run --trace FILE` writes one"},
    [INPUT_RUN] = {"a receipt or a trace", "`verbatim run` writes them with --receipt and --trace"},
    [INPUT_MANIFEST] = {"a manifest", "`verbatim eval` writes manifest.json into its output folder"},
    [INPUT_RESULTS] = {"the results of an evaluation", "`verbatim eval` writes results.jsonl beside its manifest"},
    [INPUT_DEPLOYMENT] = {"a deployment file", "`verbatim plan --dump-config` prints every key with its value"},
    [INPUT_PROFILE] = {"a profile", "`verbatim probe PLAN -o PROFILE.json` measures one; --profile none uses no library"},
    [INPUT_TASK] = {"a file of an evaluation", "EVALUATION.md describes tasks; items are named relative to their task"},
    [INPUT_ITEMS] = {"a file of lines", "\"-\" reads them from standard input"},
    [INPUT_CONFIG] = {"a model's config.json", "a model folder has config.json, *.safetensors and a tokenizer"},
    [INPUT_WEIGHTS] = {"the weights, a safetensors file",
                       "a model folder has model.safetensors, or model.safetensors.index.json and every file that it names"},
    [INPUT_TOKENIZER] = {"a file of the tokenizer",
                         "a model folder has tokenizer.json, or tiktoken.model and tokenizer_config.json; token ids need neither"},
    [INPUT_MODEL] = {"a model folder", "name the folder with config.json and *.safetensors"},
    [INPUT_SIGNED] = {"a manifest or a receipt", "`verbatim eval` writes manifest.json, --receipt FILE a receipt"},
    [INPUT_SIGNATURE] = {"a signature", "`ssh-keygen -Y sign -n verbatim -f KEY FILE` writes FILE.sig"},
    [INPUT_SIGNERS] = {"a file of allowed signers", "a line of it has an identity and a public key: me@example.org ssh-ed25519 AAAA..."},
};

/* What lies at the path. code: errno of stat(2) or open(2), or 0. */
static const char *name_found(const char *path, int code) {
  struct stat info;
  if (code == ENOENT && lstat(path, &info) == 0) return "a link that leads nowhere";
  if (code == ENOENT || code == ENOTDIR) return "nothing of that name";
  if (code) return strerror(code);
  if (stat(path, &info) != 0) return strerror(errno);
  return S_ISDIR(info.st_mode) ? "a folder" : S_ISREG(info.st_mode) ? "a file" : "a pipe or a device";
}

static status refuse(const char *path, input_file_kind kind, const char *extra, int code) {
  return FAIL(ERR_IO, "%s: expected %s%s, found %s; hint: %s", path, KINDS[kind].what, extra, name_found(path, code), KINDS[kind].hint);
}

status input_file_check(const char *path, input_file_kind kind) {
  struct stat info;
  if (stat(path, &info) != 0) return refuse(path, kind, "", errno);
  return S_ISREG(info.st_mode) ? OK : refuse(path, kind, ", a regular file", 0); /* opening a pipe would block */
}

status input_file_open(const char *path, input_file_kind kind, FILE **out) {
  TRY(input_file_check(path, kind));
  FILE *file = fopen(path, "rb");
  if (!file) return refuse(path, kind, "", errno);
  struct stat info;
  if (fstat(fileno(file), &info) == 0 && info.st_size == 0) {
    fclose(file);
    return input_file_empty(path, kind);
  }
  *out = file;
  return OK;
}

status input_file_open_stream(const char *path, input_file_kind kind, FILE **out) {
  struct stat info;
  FILE *file = fopen(path, "rb");
  if (!file) return refuse(path, kind, "", errno);
  if (fstat(fileno(file), &info) == 0 && S_ISDIR(info.st_mode)) {
    fclose(file);
    return refuse(path, kind, "", 0);
  }
  *out = file;
  return OK;
}

/* === Model folders ========================================================================================================== */

/* Whether a path that does not exist is written like a repository of the Hub: two words of its letters, and one slash. */
static bool is_hub_name(const char *path) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  size_t first = strspn(path, letters), second = path[first] == '/' ? strspn(path + first + 1, letters) : 0;
  return path[0] != '.' && first && second && path[first + 1] != '.' && !path[first + 1 + second];
}

status input_file_check_model(const char *model_dir) {
  struct stat info;
  if (stat(model_dir, &info) == 0) return S_ISDIR(info.st_mode) ? OK : refuse(model_dir, INPUT_MODEL, "", 0);
  int code = errno;
  if (code != ENOENT || lstat(model_dir, &info) == 0 || !is_hub_name(model_dir)) return refuse(model_dir, INPUT_MODEL, "", code);
  return FAIL(ERR_IO, "%s: expected a model folder, found nothing of that name, which looks like one of the Hugging Face Hub; hint: fetch "
                      "it with `hf download %s --local-dir DIR`, and name DIR", model_dir, model_dir);
}

/* === Contents =============================================================================================================== */

status input_file_empty(const char *path, input_file_kind kind) {
  return FAIL(ERR_FORMAT, "%s: expected %s, found an empty file; hint: %s", path, KINDS[kind].what, KINDS[kind].hint);
}

status input_file_other(const char *path, input_file_kind kind) {
  return FAIL(ERR_FORMAT, "%s%sexpected %s, found another file; hint: %s", path ? path : "", path ? ": " : "", KINDS[kind].what,
              KINDS[kind].hint);
}
