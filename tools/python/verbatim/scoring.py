"""Turns texts into scored token lists by the rules of lm-evaluation-harness, and computes the sums, as `verbatim score` does.

engine/jsonl/score_tokens.h states the rules; tests/unit/test_python.py compares with the program. Must not know the harness itself, nor how
requests run. Read next: engine.py, lm_eval.py.
"""
import functools
import json
import os
from collections.abc import Sequence
from typing import Any

from .values import Completion, Prompt, Score, VerbatimError


class Rules:
    """Of one engine's tokenizer."""

    def __init__(self, engine: Any):
        self._engine = engine

    @functools.cached_property
    def prefix(self) -> int:
        """The id before a first scored token: the tokenizer's BOS, else its EOS; -1: it names neither."""
        path, config = os.path.join(self._engine.model_dir, "tokenizer_config.json"), {}
        if os.path.exists(path):
            with open(path, encoding="utf-8-sig") as file:
                config = json.load(file)
        for name in ("bos_token", "eos_token"):
            token = config.get(name)
            text = token.get("content") if isinstance(token, dict) else token
            ids = self.ids(text) if text else []
            if len(ids) == 1:
                return ids[0]
        return -1

    @functools.cached_property
    def lead(self) -> list[int]:
        """The ids that the tokenizer puts before a text."""
        plain, whole = self.ids("0"), self._engine.encode("0", add_special=True)
        return whole[:next(i for i in range(len(whole)) if whole[i:i + len(plain)] == plain)]

    def ids(self, text: str) -> list[int]:
        return self._engine.encode(text, add_special=False)

    def context(self, text: str) -> list[int]:
        """Ids of a context, preceded by the tokenizer's ids unless the text starts with the prefix token."""
        ids = self.ids(text)
        return ids if ids and ids[0] == self.prefix else self.lead + ids

    def pair(self, context: Prompt, continuation: Prompt, bos: bool = True) -> tuple[list[int], int]:
        """The list of a pair, and the index at which the continuation begins. White space at the end of the context belongs to the
        continuation."""
        if not isinstance(context, str):
            ids, first = list(context) + list(continuation), len(context)
        else:
            own, whole = self.ids(context.rstrip()), self.ids(context + continuation)
            made = self.context(context.rstrip()) if bos and context else own
            if not made and whole[:1] != [self.prefix]:
                made = [self._needed_prefix()]
            ids, first = made + whole[len(own):], max(len(made), 1)
        if not continuation or len(ids) <= first:
            raise VerbatimError(-1, "continuation %.80r adds no token to the context" % (continuation,))
        return ids, first

    def whole(self, text: Prompt) -> list[int]:
        """The list of a text that is scored as a whole, except for the first token."""
        ids = [self._needed_prefix()] + self.ids(text) if isinstance(text, str) else list(text)
        if len(ids) < 2:
            raise VerbatimError(-1, "a text to be scored is empty; expected at least one token behind the first")
        return ids

    def _needed_prefix(self) -> int:
        if self.prefix < 0:
            raise VerbatimError(-4, "the first token needs one before it, and the tokenizer names neither a BOS nor an EOS token; "
                                "hint: give token ids")
        return self.prefix


def windows(ids: Sequence[int], max_len: int) -> list[tuple[Sequence[int], int]]:
    """(ids, first scored) of the windows of a list: each scores the next max_len - 1 tokens and has one token before them; the last has as
    many tokens before them as fit."""
    most, last, cut = max_len - 1, len(ids) - 1, []
    for begin in range(0, last, most):
        end = min(begin + most, last)
        first = max(0, end - most)
        cut.append((ids[first:end + 1], begin + 1 - first))
    return cut


def total(parts: list[Completion]) -> Score:
    """The score of one text from its windows."""
    tokens = tuple(token for part in parts for token in part.scores)
    bad = next((part for part in parts if part.finish != "length"), None)
    logprob = 0.0
    for token in tokens:  # not sum(), which compensates: NUMERICS.md specifies plain additions
        logprob += token.logprob
    return Score(float("nan") if bad else logprob, not bad and all(token.rank == 0 for token in tokens), tokens,
                 bad.finish if bad else "length", bad.fault if bad else None)
