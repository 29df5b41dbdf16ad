"""tiny_tasks.py - the tasks of the shipped tiny model: prompts with one exact answer each.

Owns: how a prompt and its answer are made from a random number generator, and which items are held out.
Must not know: tokenizers, models, training. Python standard library only; the same seed gives the same samples.
A prompt always ends with "=" and the answer follows directly. Read next: train_tiny.py.
"""
import datetime
import hashlib
import json
import random

UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ALPHANUMERIC = UPPER + "0123456789"
PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}
ROMAN = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"),
         (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))
WORDS = ("apple badger basket beacon birch bottle bridge bronze butter button camera candle canvas carbon castle cedar "
         "cherry circle clover cobalt copper coral cotton cradle crystal dagger desert dolphin dragon eagle ember engine "
         "falcon feather fennel fiddle flower forest fossil garden ginger glacier granite hammer harbor hazel helmet "
         "heron honey island ivory jacket jasmine jungle kernel kettle ladder lantern lemon lizard magnet maple marble "
         "meadow melon mirror monkey needle nickel nutmeg ocean olive onion orange orchid otter oyster paddle panther "
         "parrot pebble pepper pigeon pillow planet pocket poppy quartz rabbit raven ribbon river rocket saddle salmon "
         "sailor shadow silver sparrow spider spruce stone summer table temple thistle thunder tiger timber tunnel "
         "turtle valley velvet violet walnut whistle willow window winter yellow zebra zenith").split()


def number(rng, digits_max):
    """A number whose digit count is uniform in 1..digits_max, so that short ones are not rare."""
    digits = rng.randint(1, digits_max)
    return rng.randint(0 if digits == 1 else 10 ** (digits - 1), 10 ** digits - 1)


def add(rng):
    a, b = number(rng, 4), number(rng, 4)
    return f"add: {a}+{b}=", str(a + b)


def sub(rng):
    a, b = number(rng, 4), number(rng, 4)
    return f"sub: {a}-{b}=", str(a - b)


def sort_numbers(rng):
    numbers = [rng.randint(10, 99) for _ in range(rng.randint(3, 8))]
    return f"sort: {' '.join(map(str, numbers))} =", " ".join(map(str, sorted(numbers)))


def sort_words(rng):
    words = rng.sample(WORDS, rng.randint(3, 6))
    return f"words: {' '.join(words)} =", " ".join(sorted(words))


def close_brackets(rng):
    """A prefix of a balanced string; the answer closes what is still open."""
    text, open_now = [], []
    for _ in range(rng.randint(4, 24)):
        if open_now and rng.random() < 0.4:
            text.append(PAIRS[open_now.pop()])
        elif len(open_now) < 10:
            open_now.append(rng.choice("([{<"))
            text.append(open_now[-1])
    if not open_now:
        open_now.append(rng.choice("([{<"))
        text.append(open_now[-1])
    return f"close: {''.join(text)} =", "".join(PAIRS[c] for c in reversed(open_now))


def date_plus(rng):
    day = datetime.date(rng.randint(2000, 2099), 1, 1) + datetime.timedelta(days=rng.randint(0, 364))
    days = rng.randint(1, 30)
    return f"date: {day.isoformat()} + {days} days =", (day + datetime.timedelta(days=days)).isoformat()


def copy_string(rng):
    text = "".join(rng.choices(ALPHANUMERIC, k=rng.randint(8, 64)))
    return f"copy: {text} =", text


def reverse_string(rng):
    text = "".join(rng.choices(UPPER, k=rng.randint(3, 12)))
    return f"reverse: {text} =", text[::-1]


def count_letter(rng):
    letters = rng.sample(UPPER, rng.randint(2, 5))
    text = "".join(rng.choices(letters, k=rng.randint(3, 16)))
    wanted = rng.choice(letters)
    return f"count: {wanted} in {text} =", str(text.count(wanted))


def roman(rng):
    value = rest = rng.randint(1, 3999)
    text = ""
    for unit, letters in ROMAN:
        text += letters * (rest // unit)
        rest %= unit
    return f"roman: {value} =", text


def compare(rng):
    """Digits of the second number come from the first half of the time, so the deciding digit can be late."""
    a = number(rng, 6)
    b = a if rng.random() < 0.1 else number(rng, 6)
    if rng.random() < 0.5:
        digits = list(str(a))
        place = rng.randrange(len(digits))
        digits[place] = str(rng.randint(1, 9))
        b = int("".join(digits))
    return f"compare: {a} ? {b} =", "<" if a < b else ">" if a > b else "="


TASKS = {"add": add, "sub": sub, "sort": sort_numbers, "words": sort_words, "close": close_brackets, "date": date_plus,
         "copy": copy_string, "reverse": reverse_string, "count": count_letter, "roman": roman, "compare": compare}
# How often training draws a task: the hard ones more often.
WEIGHTS = {"add": 3, "sub": 3, "sort": 2, "words": 2, "close": 2, "date": 3, "copy": 2, "reverse": 2, "count": 2, "roman": 1,
           "compare": 1}


def prompt_key(prompt):
    return hashlib.blake2b(prompt.encode(), digest_size=8).digest()


def held_out(per_task=40, seed=20240229):
    """The evaluation items, prompts distinct: [{"id", "task", "prompt", "answer"}]."""
    items, seen = [], set()
    for task, make in TASKS.items():
        rng = random.Random(f"{seed}/{task}")
        made = 0
        while made < per_task:
            prompt, answer = make(rng)
            if prompt in seen:
                continue
            seen.add(prompt)
            items.append({"id": f"{task}-{made:03d}", "task": task, "prompt": prompt, "answer": answer})
            made += 1
    return items


def samples(seed, count, excluded):
    """count training samples [(task, prompt, answer)] whose prompt_key is not in excluded."""
    rng = random.Random(seed)
    names, weights = list(WEIGHTS), list(WEIGHTS.values())
    out = []
    for name in rng.choices(names, weights, k=count):
        prompt, answer = TASKS[name](rng)
        while prompt_key(prompt) in excluded:
            prompt, answer = TASKS[name](rng)
        out.append((name, prompt, answer))
    return out


if __name__ == "__main__":
    for item in held_out():
        print(json.dumps(item, ensure_ascii=False))
