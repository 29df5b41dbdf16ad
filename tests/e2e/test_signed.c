/* test_signed.c - signatures through the program, with keys that the test makes: a manifest of an evaluation, a receipt, and each way in
 * which a signature, a file or a file beside it can be wrong. Also what the manifest states of files: the numbers of sha256sum.
 *
 * Controls: an altered byte, another identity and another namespace are refused, each in its own words. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "shell.h"

/* S signs for the namespace that follows; VERIFY verifies what alice has signed. */
static const char SETUP[] =
  "S='ssh-keygen -q -Y sign -f alice -n' && VERIFY=\"$V verify --allowed-signers signers --identity\" && ";

static e2e_model model; /* its scratch folder is shared: keys, ev/, old */

static void signed_files_verify(void **state) {
  (void)state;
  expect(0, "Good \"verbatim\" signature for alice@example.org with ED25519 key SHA256:", "$VERIFY alice@example.org ev/manifest.json");
  expect(0, "files beside it that have the recorded SHA-256: 2", "$VERIFY alice@example.org ev/manifest.json");
  expect(0, "39 requests", "$VERIFY alice@example.org ev/receipt");
  expect(0, "true alice@example.org 39 True", "$VERIFY alice@example.org ev/receipt --json | python3 -c \"import json, sys; m = json.load("
         "sys.stdin); print(json.dumps(m['signed']), m['identity'], m['requests'], m['complete'])\"");
  expect(0, "sums agree", "$VERIFY alice@example.org ev/receipt | sed -n 's/^sha256 //p' | sha256sum -c --quiet && echo sums agree");
  expect(0, "440 requests", "$VERIFY alice@example.org old"); /* a receipt that states no SHA-256 */
  expect(0, "1\n", "rm -rf alone && mkdir alone && cp ev/manifest.json* ev/receipt alone && $VERIFY alice@example.org alone/manifest.json |"
         " sed -n 's/.*recorded SHA-256: //p'");
  expect(0, "Good", "cp ev/manifest.json.sig elsewhere && rm alone/*.sig && "
         "$VERIFY alice@example.org alone/manifest.json --signature elsewhere");
}

static void wrong_ones_are_refused_by_name(void **state) {
  (void)state;
  expect(8, "its bytes are not those that were signed", "sed 's/\"failed\": 0/\"failed\": 1/' ev/manifest.json > alone/manifest.json && "
         "! cmp -s ev/manifest.json alone/manifest.json && $VERIFY alice@example.org alone/manifest.json --signature elsewhere");
  expect(8, "expected a key of \"bob@example.org\" in signers, found a good signature with ED25519", "$VERIFY bob@example.org ev/receipt");
  expect(8, "expected a key of \"eve@example.org\"", "$VERIFY eve@example.org ev/receipt");
  expect(8, "expected a signature for the namespace \"verbatim\", found one for another",
         "cp old other && $S file other && $VERIFY alice@example.org other");
  expect(8, "expected a key of \"alice@example.org\"", "cp old other && rm -f other.sig && "
         "ssh-keygen -q -Y sign -f bob -n verbatim other && $VERIFY alice@example.org other");
  expect(4, "expected a signature that ssh-keygen can check", "echo nothing > other.sig && $VERIFY alice@example.org other");
  expect(3, "other.sig: expected a signature, found nothing of that name", "rm other.sig && $VERIFY alice@example.org other");
  expect(3, "expected the program ssh-keygen on the PATH, found none", "PATH=/nowhere $VERIFY alice@example.org ev/receipt");
  expect(4, "not JSON", "echo text > other && rm -f other.sig && $S verbatim other && $VERIFY alice@example.org other");
  expect(2, "found no --identity", "$V verify ev/receipt --allowed-signers signers");
  expect(2, "found 1 word", "$V verify ev/receipt");
}

/* The manifest was signed, so what it states of other files holds them too. */
static void files_beside_it_are_held(void **state) {
  (void)state;
  expect(8, "changed/results.jsonl: its SHA-256 is", "rm -rf changed && cp -r ev changed && "
         "sed -i '1s/true/false/' changed/results.jsonl && ! cmp -s ev/results.jsonl changed/results.jsonl && "
         "$VERIFY alice@example.org changed/manifest.json");
  expect(8, "changed/receipt: its SHA-256 is", "cp ev/results.jsonl changed && sed -i '2s/CPU/GPU/' changed/receipt && "
         "$VERIFY alice@example.org changed/manifest.json");
  expect(8, "changed/receipt: its SHA-256 is", "$V eval task.yaml --plan tiny.plan --model $TINY --device cpu --limit 3 --output changed "
         "--resume");
}

/* Before a replay the signature is judged; weights of which the receipt states a SHA-256 are digested again. */
static void a_replay_checks_both(void **state) {
  (void)state;
  expect(0, "Good \"verbatim\" signature", "$VERIFY alice@example.org ev/receipt tiny.plan $TINY --sample 2 --device cpu > told 2>&1 && "
         "grep -q '^2 requests verified, 0 differ' told && cat told");
  expect(8, "expected a key of \"bob@example.org\"", "$VERIFY bob@example.org ev/receipt tiny.plan $TINY --sample 2 --device cpu");
  expect(8, "SHA-256 of the weights: the receipt has 0000", "sed '2s/\"weights\":\"[0-9a-f]\\{4\\}/\"weights\":\"0000/' ev/receipt > "
         "forged && $V verify forged tiny.plan $TINY --sample 1 --device cpu");
  expect(8, "sha256          differs: weights: \"0000", "sed 's/\"weights\": \"[0-9a-f]\\{4\\}/\"weights\": \"0000/' ev/manifest.json > "
         "ev/forged.json && $V replay ev/forged.json --device cpu --quiet");
  expect(0, "sha256          equal", "$V replay ev/manifest.json --device cpu --quiet");
}

/* EVALUATION.md, "Manifest": each number is that of sha256sum; a manifest without them, as earlier programs wrote it, is read. */
static void the_manifest_states_what_sha256sum_prints(void **state) {
  (void)state;
  expect(0, "all agree", "TINY=$TINY python3 - <<'END'\n"
         "import hashlib, json, os\n"
         "m = json.load(open('ev/manifest.json'))['sha256']\n"
         "of = lambda path: hashlib.sha256(open(path, 'rb').read()).hexdigest()\n"
         "tiny = os.environ['TINY']\n"
         "assert m['plan'] == of('tiny.plan') and m['config'] == of(tiny + '/config.json')\n"
         "assert m['results'] == of('ev/results.jsonl') and m['receipt'] == of('ev/receipt') and m['perturbed'] == []\n"
         "assert m['tasks'] == [{'file': of('task.yaml'), 'items': of('items.jsonl'), 'shots': None}]\n"
         "print('all agree')\nEND");
  expect(0, "one number", "a=$($V digest tiny.plan $TINY --quiet --sha256 | head -n -1 | sha256sum | head -c 64) && "
         "grep -q \"\\\"weights\\\": \\\"$a\\\"\" ev/manifest.json && "
         "sed -n 2p ev/receipt | grep -q \"\\\"weights\\\":\\\"$a\\\"\" && echo one number");
  expect(0, "sums agree", "rm -rf again && "
         "$V eval task.yaml --plan tiny.plan --model $TINY --device cpu --limit 3 --output again 2> told && "
         "sed -n 's/^sha256 //p' told | sha256sum -c --quiet && [ $(grep -c ^sha256 told) = 2 ] && echo sums agree");
  expect(0, "\"weights\": null", "grep -A12 sha256 again/manifest.json"); /* not asked for */
  expect(0, "equal: 3 items", "python3 -c \"import json; m = json.load(open('ev/manifest.json')); del m['sha256']; "
         "json.dump(m, open('ev/old.json', 'w'))\" && $V replay ev/old.json --device cpu --quiet");
  expect(4, "sha256: weights: expected 64 hexadecimal digits", "sed 's/\"weights\": \"[0-9a-f]*/\"weights\": \"12/' ev/manifest.json > "
         "again/bad.json && $V replay again/bad.json --device cpu --quiet");
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_manifest_states_what_sha256sum_prints), cmocka_unit_test(signed_files_verify),
    cmocka_unit_test(wrong_ones_are_refused_by_name), cmocka_unit_test(files_beside_it_are_held), cmocka_unit_test(a_replay_checks_both)};
  char command[2048], here[1024];
  if (system("command -v ssh-keygen > /dev/null") != 0) {
    printf("SKIPPED: ssh-keygen is not installed\n");
    return 0;
  }
  e2e_begin(argc, argv);
  shell_begin(&model, SETUP);
  e2e_make_model(&model, "tests/oracle/llama.json", "max-num-seqs: 1\nmax-model-len: 64\nmax-num-batched-tokens: 64\n");
  snprintf(command, sizeof command,
           "for k in alice bob; do ssh-keygen -q -t ed25519 -N '' -f $k || exit 1; done; "
           "for k in alice bob; do echo \"$k@example.org namespaces=\\\"verbatim\\\" $(cut -d' ' -f1,2 $k.pub)\"; done > signers && "
           "cp %s/tests/golden/tiny.receipt old && cp $TINY/items.jsonl . && "
           "sed 's,\\.\\./tiny/,,' %s/tests/examples/count.yaml > task.yaml && "
           "$V plan $TINY --config $TINY/deploy.yaml -o tiny.plan --quiet && "
           "$V eval task.yaml --plan tiny.plan --model $TINY --device cpu --quiet --output ev --limit 3 --sha256 && "
           "for f in ev/manifest.json ev/receipt old; do $S verbatim $f || exit 1; done", getcwd(here, sizeof here), here);
  if (shell_run(command) != 0) {
    printf("%s\n", shell.output);
    return 1;
  }
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_remove(&model);
  return failed;
}
