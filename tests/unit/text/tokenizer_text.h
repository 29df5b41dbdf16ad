/* tokenizer_text.h - the texts on which the tokenizer must agree with the tokenizers library, made the same on every machine.
 *
 * A case has a name; tokenizer_text_make writes its text:
 *   points-0 .. points-4   every code point of one fifth of Unicode, each in one of eight contexts
 *   mix-SEED               about 400 KB of samples in many scripts, code, runs, controls, random code points, special tokens
 *   edge-SEED              about 400 KB of code points that split patterns tell apart, in any order, with runs short and long
 * Used by test_tokenizer.c and tools/tokenizer_ids.c; tools/tokenizer_compare.py feeds the texts to the library. */
#ifndef VERBATIM_TOKENIZER_TEXT_H
#define VERBATIM_TOKENIZER_TEXT_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TOKENIZER_TEXT_CASE_BYTES_MAX (4u << 20)
#define TOKENIZER_TEXT_MIX_BYTES 400000u
#define TOKENIZER_TEXT_POINTS_PER_CASE 0x40000u

static const char *const tokenizer_text_samples[] = {
  "The quick brown fox jumps over the lazy dog. ", "It's what they'll've said: WE'RE HERE, I'D say, don't you'd'Ve! ",
  "Zażółć gęślą jaźń; český řízek, þórr ænd ðæt. ", "Der Fuß, die Straße, Äpfel & Öl – „gut“ … ",
  "L’été à Nîmes, cœur naïf, où ça? ", "Съешь же ещё этих мягких французских булок. ",
  "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ", "שלום עולם, מַה שְּׁלוֹמְךָ? ",
  "السَّلامُ عَلَيْكُمْ ورحمة الله ١٢٣٤٥ ",
  "नमस्ते दुनिया, क्षत्रिय १२३४ ", "আমার সোনার বাংলা ",
  "வணக்கம் உலகம் ", "สวัสดีชาวโลก ๑๒๓ ",
  "天地玄黃,宇宙洪荒。日月盈昃,辰宿列張。", "深度求索是一家人工智能公司，成立于2023年。",
  "吾輩は猫である。名前はまだ無い。カタカナとひらがなー・ヴ",
  "안녕하세요 세계! 다람쥐 헌 쳇바퀴에 타고파. ", "ᄒ\u1161\u11ABᄀ\u1173\u11AF ", "𠀀𠮷𪚥𫝀 ",
  "እንደምን አለህ ", "გამარჯობა მსოფლიო ", "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ",
  "Բարեւ աշխարհ ", "🙂👍🏽👩‍👩‍👧‍👦🏳️‍🌈🇩🇪🇯🇵✌️#️⃣ ",
  "e\u0301\u0323 a\u0308\u0304 Z\u0351\u036B\u0343 ", "\u200B\u200C\u200D\uFEFF\u00AD\u2060",
  "x = {'a': [1, 2.5e-10, 0xFF], \"b\": None}  # comment\n", "for (int i = 0; i < n; ++i) {\n\t\tsum += a[i] * b[i];\n\t}\n\n",
  "if __name__ == \"__main__\":\n    main(sys.argv[1:])\n", "https://example.com/~u/p?q=1&r=%20#frag ", "<a href=\"x\">&amp;</a>\r\n",
  "#include <stdio.h>\r\n\r\n", "SELECT * FROM t WHERE a<>b;--\n", "$$\\int_0^1 x^2\\,dx = \\frac{1}{3}$$ ",
  "ＡＢＣ１２３　全角 ", "ﬁﬂﬀ ſ K Å ǅ ŉ ", "1234567890", "3.14159 1,000,000 ٣٤ Ⅷ ½ ² ①②③ 〇一二三 ",
  "a1b22c333d4444 ", "\t", "\n", "\r", "\r\n", "\n\r\n", " ", "  ", "\xC2\xA0", "\u3000", "\u2028", "\xC2\x85", "\u180E",
  "'S'T'RE'VE'M'LL'D'ſ'\u212A", "!!!???...---___***", "«»‹›“”‘’¿¡§¶†‡•",
  "€£¥₿+−×÷=≠≤≥±∞∑√", "─│┌┐└┘█▓▒░◆◇○●", "<｜begin▁of▁sentence｜>",
  "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "<thinking>", "<think", "  <mask>  ",
  "\n<mask>\t\u3000", "<|left|>", " <|left|> ", "<|right|> \n", "<｜tool▁calls▁begin｜>", "<｜", "｜>", "aé<dup>", "<dup><dup>",
};

/* Case, marks, scripts, kinds of digit and space, what folds to ASCII, what Unicode versions differ in. */
static const uint32_t tokenizer_text_edges[] = {
  'a', 'b', 's', 'S', 'T', 't', 'r', 'E', 'v', 'm', 'L', 'l', 'D', '\'', '\'', ' ', ' ', ' ', '\t', '\r', '\n', '\n', '\v', 0x1, '/', '!',
  '-', '1', '9', 0x85, 0xA0, 0xB2, 0xC4, 0xE9, 0x17F, 0x1C5, 0x301, 0x30F, 0x3B1, 0x410, 0x436, 0x5D0, 0x661, 0xE01, 0xE31, 0x180E, 0x2003,
  0x2028, 0x200B, 0x200D, 0x2019, 0x212A, 0x2164, 0x3000, 0x3001, 0x3005, 0x3007, 0x3042, 0x30AB, 0x30FC, 0x4E00, 0x6F22, 0xAC00, 0xFF21,
  0xFF11, 0xFE0F, 0x10400, 0x1F44D, 0x1F3FD, 0x20000, 0x31350, 0xE0001, 0x10FFFF};

/* SplitMix64: one add and three mixes a number, the same everywhere. */
static inline uint64_t tokenizer_text_random(uint64_t *state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static inline size_t tokenizer_text_put_point(char *out, uint32_t c) { /* returns the bytes written, 0 for a surrogate */
  uint8_t *p = (uint8_t *)out;
  if (c >= 0xD800 && c < 0xE000) return 0;
  if (c < 0x80) return p[0] = (uint8_t)c, 1;
  if (c < 0x800) return p[0] = (uint8_t)(0xC0 | c >> 6), p[1] = (uint8_t)(0x80 | (c & 63)), 2;
  if (c < 0x10000)
    return p[0] = (uint8_t)(0xE0 | c >> 12), p[1] = (uint8_t)(0x80 | ((c >> 6) & 63)), p[2] = (uint8_t)(0x80 | (c & 63)), 3;
  p[0] = (uint8_t)(0xF0 | c >> 18);
  p[1] = (uint8_t)(0x80 | ((c >> 12) & 63));
  p[2] = (uint8_t)(0x80 | ((c >> 6) & 63));
  p[3] = (uint8_t)(0x80 | (c & 63));
  return 4;
}

/* '@' stands for the code point. */
static inline size_t tokenizer_text_make_points(uint32_t part, char *out) {
  static const char *const contexts[8] = {"a@b", " @", "1@2 ", "@@\n", "!@,", "\n@ ", "中@の", "'@"};
  size_t used = 0;
  for (uint32_t i = 0; i < TOKENIZER_TEXT_POINTS_PER_CASE; i++) {
    uint32_t c = part * TOKENIZER_TEXT_POINTS_PER_CASE + i;
    if (c > 0x10FFFF) break;
    for (const char *p = contexts[(c ^ c >> 3 ^ c >> 8) & 7]; *p != 0; p++) {
      if (*p == '@') used += tokenizer_text_put_point(out + used, c);
      else out[used++] = *p;
    }
  }
  return used;
}

/* A run of 1 to 12 code points from one block of 128 (low planes), from anywhere, or of ASCII. */
static inline size_t tokenizer_text_put_run(char *out, uint64_t *state) {
  uint64_t kind = tokenizer_text_random(state) % 3;
  uint32_t base = (uint32_t)(tokenizer_text_random(state) % 0x400) * 128;
  uint64_t count = 1 + tokenizer_text_random(state) % 12;
  size_t used = 0;
  for (uint64_t i = 0; i < count; i++) {
    uint64_t r = tokenizer_text_random(state);
    uint32_t c = kind == 0 ? base + (uint32_t)(r % 128) : kind == 1 ? (uint32_t)(r % 0x110000) : (uint32_t)(r % 128);
    used += tokenizer_text_put_point(out + used, c);
  }
  return used;
}

static inline size_t tokenizer_text_make_mix(uint64_t seed, char *out) {
  static const char *const repeated[] = {" ", "\n", "\t", "a", "A", "0", "=", "-", "\r\n", " \n", "漢", "ab", "é", "👍", "\xCC\x81"};
  size_t samples = sizeof tokenizer_text_samples / sizeof *tokenizer_text_samples, used = 0;
  uint64_t state = seed;
  while (used < TOKENIZER_TEXT_MIX_BYTES) {
    uint64_t choice = tokenizer_text_random(&state) % 16;
    if (choice < 11) {
      const char *sample = tokenizer_text_samples[tokenizer_text_random(&state) % samples];
      memcpy(out + used, sample, strlen(sample));
      used += strlen(sample);
    } else if (choice < 14) {
      used += tokenizer_text_put_run(out + used, &state);
    } else {
      const char *piece = repeated[tokenizer_text_random(&state) % (sizeof repeated / sizeof *repeated)];
      uint64_t r = tokenizer_text_random(&state);
      uint64_t count = r % 64 == 0 ? 1 + (r >> 8) % 3000 : 1 + (r >> 8) % 20;
      for (uint64_t i = 0; i < count; i++, used += strlen(piece)) memcpy(out + used, piece, strlen(piece));
    }
  }
  return used;
}

static inline size_t tokenizer_text_make_edge(uint64_t seed, char *out) {
  size_t edges = sizeof tokenizer_text_edges / sizeof *tokenizer_text_edges, used = 0;
  uint64_t state = seed;
  while (used < TOKENIZER_TEXT_MIX_BYTES) {
    uint32_t c = tokenizer_text_edges[tokenizer_text_random(&state) % edges];
    uint64_t r = tokenizer_text_random(&state);
    uint64_t count = r % 4096 == 0 ? 1 + (r >> 16) % 9000 : r % 4 == 0 ? 1 + (r >> 16) % 5 : 1;
    for (uint64_t i = 0; i < count; i++) used += tokenizer_text_put_point(out + used, c);
  }
  return used;
}

/* Writes the text of a case to out[TOKENIZER_TEXT_CASE_BYTES_MAX] and returns its size; 0: there is no such case. */
static inline size_t tokenizer_text_make(const char *name, char *out) {
  if (strncmp(name, "points-", 7) == 0 && name[7] >= '0' && name[7] <= '4' && name[8] == 0)
    return tokenizer_text_make_points((uint32_t)(name[7] - '0'), out);
  if (strncmp(name, "mix-", 4) == 0 && name[4] != 0) return tokenizer_text_make_mix(strtoull(name + 4, NULL, 10), out);
  if (strncmp(name, "edge-", 5) == 0 && name[5] != 0) return tokenizer_text_make_edge(strtoull(name + 5, NULL, 10), out);
  return 0;
}

#endif
