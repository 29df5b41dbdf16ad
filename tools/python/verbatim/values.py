"""What is asked of an engine, what comes out, and its errors: plain values, without ctypes. Read next: engine.py."""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional, Union

Prompt = Union[str, Sequence[int]]  # a text, or token ids

STATUSES = {-1: "usage", -2: "io", -3: "format", -4: "unsupported", -5: "limit", -6: "device", -7: "mismatch"}


class VerbatimError(Exception):
    """What the library refused or could not do. status: a verbatim_status of the header (-1 .. -7); name: its name, e.g. "limit"."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status, self.name = status, STATUSES.get(status, "unknown")


@dataclass(frozen=True)
class Sampling:
    """What a request asks for beside its prompt; the options of `verbatim run`."""

    max_tokens: int = 128
    temperature: float = 0.0  # 0: greedy
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    min_p: float = 0.0  # 0: off
    repetition_penalty: float = 1.0  # 1: off
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_ids: Sequence[int] = ()  # no other tokens are made; empty: all
    seed: int = 0
    stop: Sequence[str] = ()  # ends before such a text
    stop_ids: Sequence[int] = ()  # beside the model's own
    ignore_eos: bool = False
    logprobs: int = 0  # likeliest tokens told at every place
    require: Sequence[str] = ()  # axes of the plan's guarantees
    deadline_seconds: float = 0.0  # 0: none


@dataclass(frozen=True)
class Token:
    """A token that was made or scored."""

    id: int
    logprob: float  # fp32, at temperature 1, before penalties, biases and limits
    rank: int  # 0: the greedy choice
    logit: float  # fp32, raw; log of the sum of exp of all logits: logit - logprob
    digest: int  # of the logits row it was chosen from or scored by
    alternatives: tuple[tuple[int, float], ...] = ()  # (id, logprob), likeliest first


@dataclass(frozen=True)
class Completion:
    """What a request has yielded."""

    prompt_ids: tuple[int, ...]
    sample_index: int
    tokens: tuple[Token, ...]  # that were made
    scores: tuple[Token, ...]  # prompt tokens that were scored
    text: str  # of the made tokens, up to a stop text; when cancelled or late, what was certain by then; "" of an engine without text
    finish: str  # stop, length, nonfinite, stop_text, cancelled, deadline
    stop: Optional[str]  # finish "stop_text": which
    fault: Optional[str]  # finish "nonfinite": where NaN or Inf began
    request_digest: str  # hex, RECEIPTS.md, "Request digest"
    chain: str  # hex, over all that was made

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def logprobs(self) -> list[float]:
        return [token.logprob for token in self.tokens]


@dataclass(frozen=True)
class Piece:
    """One token of a stream."""

    token: Token
    text: str  # that this token made certain: may be empty, and end earlier or begin earlier than the token's own


@dataclass(frozen=True)
class Score:
    """Of a continuation or a whole text. finish other than "length" (nonfinite, deadline): not scored to its end, logprob is NaN."""

    logprob: float  # sum in binary64, token by token: NUMERICS.md, "Sums of log-probabilities"
    is_greedy: bool  # every token has the largest logit
    tokens: tuple[Token, ...]
    finish: str
    fault: Optional[str]


@dataclass(frozen=True)
class EngineInfo:
    """What an engine is: all that bits depend on beside the request, and where it runs."""

    device: str
    note: str
    numerics_id: str
    weights_digest: str
    config_digest: str
    tokenizer_digest: str
    plan_digest: str
    vocab: int
    max_len: int
    max_seqs: int
    kv_pages: int
    bos: Optional[int]
    eos: tuple[int, ...]
    driver_version: int
    nvrtc_version: int
    cublaslt_version: int
