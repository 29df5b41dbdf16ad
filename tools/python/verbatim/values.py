"""An engine's inputs, results and errors: plain values, without ctypes. Read next: engine.py."""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, Union

Prompt = Union[str, Sequence[int]]  # a text, or token ids

STATUSES = {-1: "usage", -2: "io", -3: "format", -4: "unsupported", -5: "limit", -6: "device", -7: "mismatch"}


class VerbatimError(Exception):
    """A request or call that the library refused, or that failed. status: a verbatim_status of the header (-1 .. -7); name: its name, e.g.
    "limit"."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status, self.name = status, STATUSES.get(status, "unknown")


@dataclass(frozen=True)
class Sampling:
    """The options of a request, which are those of `verbatim run`."""

    max_tokens: int = 128
    temperature: float = 0.0  # 0: greedy
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    min_p: float = 0.0  # 0: off
    repetition_penalty: float = 1.0  # 1: off
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_ids: Sequence[int] = ()  # only these tokens are generated; empty: all
    choice: Sequence[str] = ()  # the answer is one of these texts; at most one of these four; they need a plan with structured-outputs
    regex: Optional[str] = None  # it matches this expression as a whole
    json_schema: Union[str, Mapping[str, Any], None] = None  # it is JSON of this schema
    json_object: bool = False  # it is a JSON object
    seed: int = 0
    stop: Sequence[str] = ()  # the text ends before any of these
    stop_ids: Sequence[int] = ()  # in addition to the model's own
    ignore_eos: bool = False
    logprobs: int = 0  # number of likeliest tokens reported at every position
    require: Sequence[str] = ()  # axes of the plan's guarantees
    deadline_seconds: float = 0.0  # 0: none


@dataclass(frozen=True)
class Token:
    """A generated or scored token."""

    id: int
    logprob: float  # fp32, at temperature 1, before penalties, biases and limits
    rank: int  # 0: the greedy choice
    logit: float  # fp32, raw; log of the sum of exp of all logits: logit - logprob
    digest: int  # of the logits row that it was chosen from or scored by
    alternatives: tuple[tuple[int, float], ...] = ()  # (id, logprob), likeliest first


@dataclass(frozen=True)
class Completion:
    """The result of a request."""

    prompt_ids: tuple[int, ...]
    sample_index: int
    tokens: tuple[Token, ...]  # generated tokens
    scores: tuple[Token, ...]  # scored prompt tokens
    text: str  # generated text up to a stop text; if cancelled or late, the part certain by then; "" for an engine without text
    finish: str  # stop, length, nonfinite, stop_text, cancelled, deadline
    stop: Optional[str]  # finish "stop_text": the stop text found
    fault: Optional[str]  # finish "nonfinite": the op where NaN or Inf began
    request_digest: str  # hex, RECEIPTS.md, "Request digest"
    chain: str  # hex, over all generated tokens

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
    text: str  # the text that this token made certain: may be empty, and may begin or end earlier than the token's own text


@dataclass(frozen=True)
class Score:
    """The score of a continuation or a whole text. If finish is not "length" (nonfinite, deadline), it was not scored to its end and
    logprob is NaN."""

    logprob: float  # sum in binary64, token by token: NUMERICS.md, "Sums of log-probabilities"
    is_greedy: bool  # whether every token has the largest logit
    tokens: tuple[Token, ...]
    finish: str
    fault: Optional[str]


@dataclass(frozen=True)
class EngineInfo:
    """The properties of an engine: everything besides the request that determines the bits, and where it runs."""

    device: str
    note: str
    numerics_id: str
    weights_digest: str
    config_digest: str
    tokenizer_digest: str
    plan_digest: str
    plan_sha256: str  # hex, what sha256sum prints of the file
    config_sha256: Optional[str]  # likewise; None without a config.json
    weights_sha256: Optional[str]  # RECEIPTS.md, "SHA-256"; None unless asked for
    vocab: int
    max_len: int
    max_seqs: int
    kv_pages: int
    ranks: int
    bos: Optional[int]
    eos: tuple[int, ...]
    driver_version: int
    nvrtc_version: int
    cublaslt_version: int
