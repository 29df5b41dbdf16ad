#!/usr/bin/env python3
"""Compares the engine's tokenizer with the tokenizers library and with tiktoken, id by id: tokenizer_compare.py [--builddir DIR] [--bench]

The variants of tests/data/tokenizer/variants.json encode the cases of tests/unit/text/tokenizer_text.h and the explicit texts of
texts.json with both; so does the folder kimi, whose tiktoken.model tiktoken reads. Any difference is printed with the text around it
and exits 1. Needs the Python modules tokenizers and tiktoken and build/tokenizer_ids. About 27 MB are compared, which takes the libraries
half a minute. Other modes:
  --full        every variant on every case: about 170 MB, some minutes
  --model DIR   compare the tokenizer in DIR alone, on the cases and on this file
  --bench       also print the encoding speed of both on the mixed text, in processor time: ours twice, first while the tokenizer meets
                the text's code points for the first time
  --record      write golden.txt: what test_tokenizer.c expects (needs the module xxhash)
  --train       write tokenizer.json: byte-level BPE with DeepSeek-V3's splits, trained on the mixed text
  --train-spaced  write spaced.json, the base of the variants that name it: BPE as in SentencePiece's models, with byte_fallback
  --train-kimi  write kimi/: the same with Kimi's pattern, some tokens that no merge of two others produces, and some that many produce
"""
import argparse
import array
import base64
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DATA = os.path.join(ROOT, "tests/data/tokenizer")
CASES = ["points-%d" % i for i in range(5)] + ["mix-%d" % i for i in range(1, 5)] + ["edge-%d" % i for i in range(1, 4)]
FLAGS = [(around, plain) for around in (False, True) for plain in (False, True)]
# Together they use every property that patterns may name, NFC, and single characters and bytes as tokens.
POINT_VARIANTS = ("deepseek", "llama3", "digit", "grammar", "kimi", "qwen2", "spaced")
VOCAB_SIZE = 3000
DEEPSEEK_SPLITS = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
    "\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)

KIMI_PATTERN = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
KIMI_RESERVED = 256


class Library:
    """The tokenizers library on a folder with a tokenizer.json."""
    name = "tokenizers"

    def __init__(self, folder):
        self.tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))

    def ids(self, text, around, plain):
        self.tokenizer.encode_special_tokens = plain
        return self.tokenizer.encode(text, add_special_tokens=around).ids

    def text(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False)


class Tiktoken:
    """tiktoken on a folder with a tiktoken.model, set up as the code that comes with Kimi's models does."""
    name = "tiktoken"

    def __init__(self, folder):
        import tiktoken
        with open(os.path.join(folder, "tiktoken.model"), "rb") as file:  # tiktoken's own loader keeps copies by path
            ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in file)}
        with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
            names = {int(i): entry["content"] for i, entry in json.load(file)["added_tokens_decoder"].items()}
        special = {names.get(i, "<|reserved_token_%d|>" % i): i for i in range(len(ranks), len(ranks) + KIMI_RESERVED)}
        self.encoding = tiktoken.Encoding(name="kimi", pat_str=KIMI_PATTERN, mergeable_ranks=ranks, special_tokens=special)

    def ids(self, text, around, plain):
        return self.encoding.encode_ordinary(text) if plain else self.encoding.encode(text, allowed_special="all")

    def text(self, ids):
        return self.encoding.decode(ids)


def open_reference(folder):
    return (Library if os.path.exists(os.path.join(folder, "tokenizer.json")) else Tiktoken)(folder)


class Ours:
    """The engine's tokenizer, through tokenizer_ids."""

    def __init__(self, builddir):
        self.program = os.path.join(ROOT, builddir, "tokenizer_ids")
        if not os.path.exists(self.program):
            sys.exit("tokenizer_compare: %s is missing; hint: ninja all" % self.program)

    def text(self, case):
        return subprocess.run([self.program, "--text", case], stdout=subprocess.PIPE, check=True).stdout.decode()

    def call(self, words, data):
        done = subprocess.run([self.program, *words], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            sys.exit("tokenizer_compare: %s: %s" % (" ".join(words), done.stderr.decode(errors="replace")))
        return done

    def times(self, folder, text):
        return [float(word) for word in self.call([folder, "time"], text.encode()).stderr.split()]

    def ids(self, folder, texts, around, plain):
        """Of each text; one process for all."""
        data = [text.encode() for text in texts]
        words = [folder, "many"] + ["around"] * around + ["plain"] * plain
        numbers, found = array.array("i"), []
        numbers.frombytes(self.call(words, b"".join(struct.pack("<I", len(text)) + text for text in data)).stdout)
        at = 0
        while at < len(numbers):
            found.append(numbers[at + 1:at + 1 + numbers[at]].tolist())
            at += 1 + numbers[at]
        return found


def read_json(name):
    with open(os.path.join(DATA, name), encoding="utf-8") as file:
        return json.load(file)


def write_variant(folder, base, variant):
    """A model directory of the base tokenizer, or of the one that the variant names, with the variant's fields instead of its own."""
    base = read_json(variant["base"]) if "base" in variant else base
    data = dict(base)
    data.update(variant.get("root", {}))
    data["model"] = dict(base["model"], **variant.get("model", {}))
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(data, file, ensure_ascii=False)


def explain(reference, text, want, found):
    at = next((i for i, (a, b) in enumerate(zip(want, found)) if a != b), min(len(want), len(found)))
    start = len(reference.text(want[:at]))
    print("  id %d of %d and %d: expected %s, found %s; about %r" %
          (at, len(want), len(found), want[at:at + 5], found[at:at + 5], text[max(0, start - 20):start + 20]))


def compare(ours, name, folder, texts, flags):
    """Returns (differences, bytes compared)."""
    reference = open_reference(folder)
    different = total = 0
    for around, plain in flags:
        all_found = ours.ids(folder, [text for _, text in texts], around, plain)
        for (label, text), found in zip(texts, all_found, strict=True):
            want = reference.ids(text, around, plain)
            total += len(text.encode())
            if want != found:
                different += 1
                print("%s %s around=%s plain=%s differs" % (name, label, around, plain))
                explain(reference, text, want, found)
    return different, total


def bench(ours, name, folder, text):
    reference = open_reference(folder)
    first_s, again_s = ours.times(folder, text)
    best_s = 1e9
    for _ in range(3):
        start = time.process_time()
        reference.ids(text, False, False)
        best_s = min(best_s, time.process_time() - start)
    megabytes = len(text.encode()) / 1e6
    speeds = (megabytes / again_s, megabytes / first_s, reference.name, megabytes / best_s)
    print("%-17s %.2f MB: verbatim %5.1f MB/s, at first %5.1f, %s %5.2f MB/s, %4.1f times as fast, at first %4.1f" %
          ((name, megabytes) + speeds + (best_s / again_s, best_s / first_s)))


def place_variant(folder, base, variant):
    """The model directory of a variant; None is kimi, which is committed as one."""
    if variant is None:
        return os.path.join(DATA, "kimi")
    write_variant(folder, base, variant)
    return folder


def select(cases, *prefixes):
    return [case for case in cases if case[0].startswith(prefixes)]


def record(ours, base, variants, cases):
    """One line per result: variant, case or "texts" (all explicit ones, one after the other), around, plain, number of ids, XXH3-128 of the
    ids as int32."""
    import xxhash
    lines = []
    for name, variant in list(variants.items()) + [("kimi", None)]:
        with tempfile.TemporaryDirectory() as folder:
            reference = open_reference(place_variant(folder, base, variant))
        groups = [(label, [text], FLAGS[:2]) for label, text in select(cases, "mix-1", "mix-2", "edge-1")]
        groups += [("texts", [text for _, text in select(cases, "#")], FLAGS)]
        if name in POINT_VARIANTS:
            groups += [(label, [text], FLAGS[:1]) for label, text in select(cases, "points-")]
        for label, texts, flags in groups:
            for around, plain in flags:
                ids = [i for text in texts for i in reference.ids(text, around, plain)]
                digest = xxhash.xxh3_128_hexdigest(b"".join(i.to_bytes(4, "little") for i in ids))
                lines.append("%s %s %d %d %d %s" % (name, label, around, plain, len(ids), digest))
    with open(os.path.join(DATA, "golden.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    print("golden.txt: %d lines" % len(lines))


def train(ours):
    tokenizer = Tokenizer(models.BPE())
    splits = [pre_tokenizers.Split(Regex(p), behavior="isolated", invert=False) for p in DEEPSEEK_SPLITS]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits + [byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE, show_progress=False, special_tokens=special,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    with open(__file__, encoding="utf-8") as file:
        tokenizer.train_from_iterator([ours.text("mix-%d" % seed) for seed in range(1000, 1006)] + [file.read()] * 20, trainer)
    tokenizer.add_tokens([
        AddedToken("<｜User｜>", normalized=False), AddedToken("<｜Assistant｜>", normalized=False),
        AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=True), AddedToken("<thinking>", normalized=True),
        AddedToken("<mask>", normalized=False, lstrip=True, rstrip=True), AddedToken("<|left|>", normalized=True, lstrip=True),
        AddedToken("<|right|>", special=True, normalized=False, rstrip=True), AddedToken("aé<dup>", special=True, normalized=False),
        AddedToken("<dup>", normalized=False), AddedToken("<｜tool▁calls▁begin｜>", special=True, normalized=False)])
    path = os.path.join(DATA, "tokenizer.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(json.loads(tokenizer.to_str()), file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")
    print("tokenizer.json: %d tokens, %d bytes" % (tokenizer.get_vocab_size(), os.path.getsize(path)))


def train_spaced(ours):
    tokens = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % byte for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=True)
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE, show_progress=False, special_tokens=tokens, limit_alphabet=600)
    with open(__file__, encoding="utf-8") as file:
        texts = [ours.text("mix-%d" % seed) for seed in range(1000, 1006)] + [file.read()] * 20
    tokenizer.train_from_iterator([text.replace("\0", "") for text in texts], trainer)
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_tokens([AddedToken("<|user|>", special=True, normalized=False, rstrip=True), AddedToken("[INST]", normalized=False),
                          AddedToken("<mask>", normalized=False, lstrip=True, rstrip=True), AddedToken("<think>", normalized=False),
                          AddedToken("<｜User｜>", normalized=False), AddedToken("<dup>", normalized=False)])
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if not token["content"].startswith("<0x")]
    with open(os.path.join(DATA, "spaced.json"), "w", encoding="utf-8") as file:
        json.dump(data, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")
    print("spaced.json: %d tokens" % tokenizer.get_vocab_size())


def train_kimi(ours):
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(KIMI_PATTERN), behavior="isolated", invert=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE, show_progress=False, max_token_length=100,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator([ours.text("mix-%d" % seed) for seed in range(1000, 1006)], trainer)
    alphabet, others = {}, 256
    for byte in range(256):
        is_itself = 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or 0xAE <= byte
        alphabet[chr(byte if is_itself else others)] = byte
        others += not is_itself
    names = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    tokens = [bytes(alphabet[c] for c in name) for name, _ in names]
    more = [b"a" * n for n in (2, 3, 5, 7, 11)] + [b" " * n for n in (2, 3, 4, 5, 7, 13)]
    more += [b"aab", b"aba", b"baa", b"abab", b"babab", b"ba"]
    more += ["漢漢漢".encode(), "é漢".encode(), "👍👍".encode(), b"qzqzq", b"\xA9a", "漢".encode()[1:], b"0000"]
    tokens += [token for token in more if token not in tokens]
    folder = os.path.join(DATA, "kimi")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tiktoken.model"), "wb") as file:
        file.writelines(b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens))
    shown = ("<think>", "</think>", "<｜tool▁calls▁begin｜>")
    special = ("[BOS]", "[EOS]", "<|im_end|>", "<｜User｜>", "<｜Assistant｜>", "<｜begin▁of▁sentence｜>", "<mask>", "<|left|>",
               "aé<dup>", "<dup>")
    config = {"added_tokens_decoder": {
        str(len(tokens) + 2 * i): {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                                   "special": content in special} for i, content in enumerate(special + shown)},
        "additional_special_tokens": ["<|im_end|>"], "bos_token": "[BOS]", "eos_token": "[EOS]", "tokenizer_class": "TikTokenTokenizer"}
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, ensure_ascii=False, indent=1)
        file.write("\n")
    print("kimi: %d tokens" % len(tokens))


def compare_all(ours, args, base, variants, cases):
    different = total = 0
    for name, variant in list(variants.items()) + [("kimi", None)]:
        with tempfile.TemporaryDirectory() as temporary:
            folder = place_variant(temporary, base, variant)
            chosen = args.full or name in ("deepseek", "kimi")
            mixed = ("mix-", "edge-") if args.full else ("mix-1", "edge-1") if name in POINT_VARIANTS else ("edge-1",)
            results = [compare(ours, name, folder, select(cases, *mixed),
                               FLAGS[:2] if chosen else FLAGS[:1]),
                       compare(ours, name, folder, select(cases, "#"), FLAGS)]
            if chosen:
                results.append(compare(ours, name, folder, select(cases, "points-"), FLAGS[:1]))
            if args.bench:
                bench(ours, name, folder, "".join(text for _, text in select(cases, "mix-")))
        different += sum(r[0] for r in results)
        total += sum(r[1] for r in results)
    print("%d variants, %.1f MB compared, %d different" % (len(variants) + 1, total / 1e6, different))
    return 1 if different else 0


def compare_model(ours, args, cases):
    with open(__file__, encoding="utf-8") as file:
        texts = cases + [("this file", file.read())]
    different, total = compare(ours, args.model, args.model, texts, FLAGS[:2])
    if args.bench:
        bench(ours, args.model, args.model, "".join(text for _, text in select(cases, "mix-")))
    print("%.1f MB compared, %d different" % (total / 1e6, different))
    return 1 if different else 0


def main():
    parser = argparse.ArgumentParser(description="Compares the engine's tokenizer with the tokenizers library.")
    parser.add_argument("--builddir", default="build")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--model", metavar="DIR")
    parser.add_argument("--bench", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--train-spaced", action="store_true")
    parser.add_argument("--train-kimi", action="store_true")
    args = parser.parse_args()
    ours = Ours(args.builddir)
    if args.train:
        train(ours)
        return 0
    if args.train_spaced:
        train_spaced(ours)
        return 0
    if args.train_kimi:
        train_kimi(ours)
        return 0
    cases = [(case, ours.text(case)) for case in CASES] + [("#%d" % i, t) for i, t in enumerate(read_json("texts.json"))]
    if args.model:
        return compare_model(ours, args, cases)
    base, variants = read_json("tokenizer.json"), read_json("variants.json")
    if args.record:
        record(ours, base, variants, cases)
        return 0
    return compare_all(ours, args, base, variants, cases)


if __name__ == "__main__":
    sys.exit(main())
