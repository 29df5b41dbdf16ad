"""An engine in Python: turns prompts into tokens, texts and log-probabilities, with the same bits every time.

Owns an open engine of the library and the memory of its requests. Must not know evaluation harnesses or the network. The options of a
request have the names and meanings of `verbatim run --help`; NUMERICS.md defines them to the bit. Needs only the standard library. Read
next: values.py, abi.py, scoring.py.
"""
import codecs
import collections
import contextlib
import functools
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, byref, c_bool, c_char, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p, cast, create_string_buffer, \
    string_at
from dataclasses import replace
from typing import Any, Optional, Union

from . import abi, scoring
from .values import Completion, EngineInfo, Piece, Prompt, Sampling, Score, Token, VerbatimError

TOP_LOGPROBS_MAX = 20  # as in the header
SAMPLES_MAX = 128  # of one prompt, as in `verbatim run`


class _Constraint:
    """What an answer must be, compiled; handle: None if anything may be answered."""

    def __init__(self, engine: "Engine", s: Sampling):
        self.handle, self._library = c_void_p(), engine._library
        compact = functools.partial(json.dumps, separators=(",", ":"), ensure_ascii=False)
        schema = compact(s.json_schema) if isinstance(s.json_schema, Mapping) else s.json_schema
        choices = compact(list(_list_of_texts("choice", s.choice))) if s.choice else None
        given = [(kind, text) for kind, text in enumerate([choices, s.regex, "" if s.json_object else None, schema], 1)
                 if text is not None]  # in the order of verbatim_constraint_kind
        if len(given) > 1:
            raise VerbatimError(-1, "expected one of choice, regex, json_object and json_schema, found %d" % len(given))
        for kind, text in given:
            data = text.encode()
            engine._check(self._library.verbatim_constraint_open(byref(self.handle), kind, data, len(data)))

    def __del__(self) -> None:
        self._library.verbatim_constraint_close(self.handle)


class _Job:
    """A request of the library, and the memory that it points to."""

    def __init__(self, engine: "Engine", ids: Sequence[int], sampling: Sampling, sample_index: int, score_from: Optional[int]):
        self.ids, self.sampling, self.kept = tuple(ids), sampling, []
        self.decoder, self.pieces = codecs.getincrementaldecoder("utf-8")("replace"), []
        r = self.request = engine._library.verbatim_request_defaults()
        for name in ("max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
                     "frequency_penalty", "seed", "ignore_eos", "deadline_seconds"):
            setattr(r, name, _checked(name, getattr(sampling, name), type(r)))
        r.sample_index, r.top_logprobs = sample_index, _checked("top_logprobs", sampling.logprobs, type(r))
        r.prompt, r.prompt_count = self.keep(c_int32, [_id(i) for i in self.ids])
        r.biases, r.bias_count = self.keep(abi.Bias, [(_id(i), x) for i, x in sampling.logit_bias.items()])
        r.allowed_ids, r.allowed_count = self.keep(c_int32, [_id(i) for i in sampling.allowed_ids])
        self.constraint = _Constraint(engine, sampling)
        r.constraint = self.constraint.handle
        r.stop_ids, r.stop_count = self.keep(c_int32, [_id(i) for i in sampling.stop_ids])
        stops = [text.encode() for text in _list_of_texts("stop", sampling.stop)]
        r.stop_texts, r.stop_text_count = self.keep(abi.Text, [(self.keep_text(text), len(text)) for text in stops])
        required = [name.encode() for name in _list_of_texts("require", sampling.require)]
        r.required, r.required_count = self.keep(c_char_p, required)
        scored = 0
        if score_from is not None:
            r.score, r.score_from, scored = True, score_from, max(0, len(self.ids) - score_from)
        room = min(r.max_tokens, engine.info.max_len)  # larger values are refused when the request is submitted
        self.scores, self.tokens = (abi.Token * scored)(), (abi.Token * room)()
        self.alternatives = (abi.Alternative * ((scored + room) * min(r.top_logprobs, TOP_LOGPROBS_MAX)))()
        r.scores, r.tokens, r.alternatives = self.scores, self.tokens, self.alternatives
        if engine.has_text:
            self.on_text = abi.Request.ON_TEXT(self.take_text)
            r.on_text = self.on_text

    def keep(self, kind: type, values: list) -> tuple[Any, int]:
        """ctypes does not keep the target of a struct's pointer alive, so this object does."""
        array = (kind * len(values))(*values)
        self.kept.append(array)
        return cast(array, POINTER(kind)), len(values)

    def keep_text(self, text: bytes) -> Any:
        buffer = create_string_buffer(text, len(text) + 1)
        self.kept.append(buffer)
        return cast(buffer, POINTER(c_char))

    def take_text(self, request: Any, text: Any, count: int) -> None:
        self.pieces.append(self.decoder.decode(string_at(text, count)))

    @property
    def finished(self) -> bool:
        return self.request.finish != 0

    def token(self, made: bool, index: int) -> Token:
        t, most = (self.tokens if made else self.scores)[index], self.request.top_logprobs
        first = index * most  # a request scores or generates tokens, never both
        return Token(t.id, t.logprob, t.rank, t.logit, t.digest, tuple((a.id, a.logprob) for a in self.alternatives[first:first + most]))

    def completion(self) -> Completion:
        r, finish = self.request, abi.FINISHES[self.request.finish]
        fault = None
        if finish == "nonfinite":
            fault = "%s, position %d" % (r.fault_op.decode(), r.fault_position)
        return Completion(
            self.ids, r.sample_index, tuple(self.token(True, i) for i in range(r.token_count)),
            tuple(self.token(False, i) for i in range(r.score_count)), "".join(self.pieces), finish,
            self.sampling.stop[r.stop_index] if finish == "stop_text" else None, fault, bytes(r.request_digest).hex(), bytes(r.chain).hex())


def _checked(name: str, value: Any, struct: type) -> Any:
    """ctypes would silently wrap an integer that does not fit its field."""
    kind = dict(struct._fields_)[name]
    if isinstance(kind(0).value, int) and not isinstance(kind(0).value, bool) and kind(value).value != value:
        raise VerbatimError(-1, "%s: expected an integer of 0 to %d, found %r" % (name, kind(-1).value, value))
    return value


def _id(value: Any) -> int:
    if not 0 <= value < 2 ** 31:
        raise VerbatimError(-1, "expected a token id, found %r" % (value,))
    return value


def _list_of_texts(name: str, texts: Any) -> Sequence[str]:
    if isinstance(texts, (str, bytes)):
        raise TypeError("%s: expected a list of texts, found one text" % name)
    return texts


class Stream(Iterator[Piece]):
    """The tokens of one request as they are generated: `for piece in stream`. Leaving it early - close(), or the end of a with block -
    cancels the request and changes nothing for others; dropping the last reference to the stream does the same at the engine's next step.
    completion: the result, once the iteration has ended or the stream is closed."""

    def __init__(self, engine: "Engine", job: _Job):
        self._engine, self._job, self._given, self._text = engine, job, 0, 0
        self.completion: Optional[Completion] = None

    def __next__(self) -> Piece:
        job = self._job
        if self.completion:
            raise StopIteration
        while self._given == job.request.token_count and not job.finished:
            self._engine._step(job)
        if self._given == job.request.token_count:
            self.close()
            raise StopIteration
        last = self._given + 1 == job.request.token_count
        pieces = job.pieces[self._text:] if last else []  # text belongs to the newest token
        self._text += len(pieces)
        self._given += 1
        return Piece(job.token(True, self._given - 1), "".join(pieces))

    def close(self) -> None:
        if not self.completion:
            self._engine._cancel([self._job])
            self.completion = self._job.completion()

    def __del__(self) -> None:
        if not self.completion:  # no lock here: this may run anywhere, even while this thread holds the lock
            self._engine._forgotten.append(self._job)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


class Engine:
    """An open plan with its model.

        with Engine("my.plan", "MODEL_DIR") as engine:
            print(engine.generate(["Once upon a time"], max_tokens=20)[0].text)
            print(engine.chat([{"role": "user", "content": "Good morning!"}], max_tokens=200).text)

    device: "auto" (GPU 0, else the CPU), "cpu", "gpu" or the number of a GPU. threads: of the CPU backend, 0: all cores. cache_dir: folder
    for compiled kernels; None: the user's cache folder, "": kernels are not stored. text=False: no tokenizer is opened, and prompts are
    token ids. chat_template: a Jinja file in place of the model's own template. library: path of libverbatim.so; None: VERBATIM_LIBRARY,
    next to the package, then the system's. The header describes the other options, which change no bit: max_active, chunk_tokens,
    no_prefix_cache, no_drafts, direct, sha256, ...

    Threads: any thread may call any method at any time. One thread at a time enters the library; requests of all threads run in the same
    steps, and each step is done by one of the waiting threads. Python's lock is released during a step. No request's bits depend on any of
    this. A fault of the GPU ends the process (see the header)."""

    def __init__(self, plan: Union[str, os.PathLike], model_dir: Union[str, os.PathLike], *, device: Union[str, int] = "auto",
                 threads: int = 0, cache_dir: Optional[str] = None, text: bool = True, chat_template: Optional[str] = None,
                 library: Optional[str] = None, **options: Any):
        self._door, self._lock, self._handle = threading.Lock(), threading.Lock(), c_void_p()
        self._jobs: set[_Job] = set()  # requests whose memory the library uses: kept alive until they finish
        self._forgotten: collections.deque[_Job] = collections.deque()
        self._library = abi.load(library)
        self.has_text, self.model_dir = text, os.fspath(model_dir)
        self._chat, self._chat_template = c_void_p(), chat_template
        unknown = set(options) - {"max_active", "chunk_tokens", "slot_offset", "shuffle_pages", "no_prefix_cache", "direct", "poison",
                                 "no_drafts", "sha256"}
        if unknown:
            raise TypeError("Engine has no option %s" % ", ".join(sorted(unknown)))
        if device not in abi.DEVICES and not (isinstance(device, int) and device >= 0):
            raise TypeError("device: expected auto, cpu, gpu or the number of a GPU, found %r" % (device,))
        config = abi.Config(
            plan_path=os.fsencode(plan), model_dir=os.fsencode(model_dir), device=abi.DEVICES.get(device, device), threads=threads,
            cache_dir=_cache_folder(cache_dir), library_path=_variable("VERBATIM_LIBRARY_PATH"), program_path=_variable("PATH"),
            text=text, **options)
        self._check(self._library.verbatim_open(byref(self._handle), byref(config)))
        self.info = self._describe()

    def close(self) -> None:
        """Closes the engine; other threads that wait for requests get an error. May be called twice."""
        with self._lock:
            self._library.verbatim_close(self._handle)
            self._library.verbatim_chat_close(self._chat)
            self._handle, self._chat = c_void_p(), c_void_p()
            self._jobs.clear()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def count(self) -> dict[str, int]:
        """Totals since the engine was opened: steps, reused_tokens, preemptions, ... (verbatim_counters of the header)."""
        with self._entered():
            counters = self._library.verbatim_count(self._handle)
        return {name: getattr(counters, name) for name, kind in abi.Counters._fields_ if name != "pad" and kind in (c_uint32, c_uint64)}

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of a text. add_special: with the ids that the model puts around a text (usually BOS). parse_special: special tokens
        spelled in the text become their ids; use False for untrusted text."""
        data = text.encode()
        ids, count = (c_int32 * (len(data) + 8))(), c_size_t()
        with self._entered():
            self._check(self._library.verbatim_encode(self._handle, data, len(data), add_special, parse_special, ids, len(ids),
                                                      byref(count)))
        return ids[:count.value]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids: special tokens have none, and invalid UTF-8 becomes U+FFFD."""
        array, size = (c_int32 * len(ids))(*[_id(i) for i in ids]), c_size_t()
        with self._entered():
            self._check(self._library.verbatim_decode(self._handle, array, len(ids), None, 0, byref(size)))
            buffer = create_string_buffer(size.value + 1)
            self._check(self._library.verbatim_decode(self._handle, array, len(ids), buffer, size.value, byref(size)))
        return buffer.raw[:size.value].decode()

    def chat_prompt(self, messages: Sequence[dict[str, Any]], **fields: Any) -> str:
        """The prompt that the model's chat template makes of messages such as {"role": "user", "content": "..."}. It spells special tokens:
        encode it with add_special=False. fields: tools, add_generation_prompt, continue_final_message, chat_template_kwargs of the HTTP
        API. A key or value that the template would ignore is an error."""
        data, size = json.dumps({"messages": list(messages), **fields}).encode(), c_size_t()
        with self._entered():
            if not self._chat:
                template = None if self._chat_template is None else os.fsencode(self._chat_template)
                self._check(self._library.verbatim_chat_open(byref(self._chat), os.fsencode(self.model_dir), template))
            self._check(self._library.verbatim_chat_render(self._chat, data, len(data), None, 0, byref(size)))
            buffer = create_string_buffer(size.value + 1)
            self._check(self._library.verbatim_chat_render(self._chat, data, len(data), buffer, size.value, byref(size)))
        return buffer.raw[:size.value].decode()

    def chat(self, messages: Sequence[dict[str, Any]], sampling: Optional[Sampling] = None, *, fields: Optional[dict[str, Any]] = None,
             **changes: Any) -> Completion:
        """The answer to a conversation: its `text` is the content of the next message, of role assistant. fields: see chat_prompt; the rest
        as in generate. For several at once, or token by token, give encode(chat_prompt(messages), add_special=False) to generate or
        stream."""
        ids = self.encode(self.chat_prompt(messages, **(fields or {})), add_special=False)
        return self.generate([ids], sampling, **changes)[0]

    def generate(self, prompts: Sequence[Prompt], sampling: Union[Sampling, Sequence[Sampling], None] = None, *, n: int = 1,
                 **changes: Any) -> list[Completion]:
        """Runs the prompts together; returns n completions of each, in order. A prompt is a text or token ids. sampling: one for all
        prompts, or one for each; changes override its fields: generate(prompts, max_tokens=5, stop=["\\n"])."""
        _list_of_texts("prompts", prompts)
        each = [sampling or Sampling()] * len(prompts) if sampling is None or isinstance(sampling, Sampling) else list(sampling)
        if len(each) != len(prompts):
            raise ValueError("%d prompts with %d samplings" % (len(prompts), len(each)))
        if not 1 <= n <= SAMPLES_MAX:
            raise ValueError("n: expected 1 to %d, found %d" % (SAMPLES_MAX, n))
        jobs = [self._job(prompt, replace(one, **changes), i) for prompt, one in zip(prompts, each) for i in range(n)]
        return self._run(jobs)

    def stream(self, prompt: Prompt, sampling: Optional[Sampling] = None, **changes: Any) -> Stream:
        """One request, token by token."""
        job = self._job(prompt, replace(sampling or Sampling(), **changes), 0)
        self._submit(job)
        return Stream(self, job)

    def score_ids(self, lists: Sequence[tuple[Sequence[int], int]], *, logprobs: int = 0, require: Sequence[str] = (),
                  deadline_seconds: float = 0.0) -> list[Completion]:
        """For each (ids, first), scores ids[first:], each token given all before it; first is at least 1. The results are in `scores` of
        the completions."""
        sampling = Sampling(max_tokens=0, logprobs=logprobs, require=require, deadline_seconds=deadline_seconds)
        return self._run([_Job(self, ids, sampling, 0, first) for ids, first in lists])

    @functools.cached_property
    def rules(self) -> scoring.Rules:
        """From texts to the token lists that are scored."""
        return scoring.Rules(self)

    def score(self, pairs: Sequence[tuple[Prompt, Prompt]], *, bos: bool = True, logprobs: int = 0) -> list[Score]:
        """For each (context, continuation), two texts or two lists of ids, scores the continuation after the context, as `verbatim score`
        does. bos=False: no BOS before a context that has tokens of its own."""
        lists = [self.rules.pair(context, continuation, bos) for context, continuation in pairs]
        return [scoring.total([done]) for done in self.score_ids(lists, logprobs=logprobs)]

    def score_texts(self, texts: Sequence[Prompt], *, logprobs: int = 0) -> list[Score]:
        """Scores each text as a whole, each token given those before it, for perplexities. A text longer than max_len is split into windows
        that score every token once. In a list of token ids, the first is not scored."""
        cuts = [scoring.windows(self.rules.whole(text), self.info.max_len) for text in _list_of_texts("texts", texts)]
        done = iter(self.score_ids([window for cut in cuts for window in cut], logprobs=logprobs))
        return [scoring.total([next(done) for _ in cut]) for cut in cuts]

    # === How requests run ===================================================================================================

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        with self._door:  # a thread that has just left queues after the waiting ones: Python's locks are not fair
            self._lock.acquire()
        try:
            if not self._handle:
                raise VerbatimError(-1, "the engine is closed")
            yield
        finally:
            self._lock.release()

    def _check(self, code: int) -> None:
        if code != 0:
            raise VerbatimError(code, self._library.verbatim_error().decode(errors="replace"))

    def _describe(self) -> EngineInfo:
        info = self._library.verbatim_describe(self._handle)
        digests = {name: bytes(getattr(info, name)).hex() for name in
                   ("numerics_id", "weights_digest", "config_digest", "tokenizer_digest", "plan_digest")}
        digests |= {name: bytes(value).hex() if any(value := getattr(info, name)) else None for name in
                    ("plan_sha256", "config_sha256", "weights_sha256")}
        numbers = {name: getattr(info, name) for name in
                   ("vocab", "max_len", "max_seqs", "kv_pages", "ranks", "driver_version", "nvrtc_version", "cublaslt_version")}
        return EngineInfo(device=info.device.decode(), note=info.note.decode(), bos=None if info.bos == 2 ** 32 - 1 else info.bos,
                          eos=tuple(info.eos[:info.eos_count]), **digests, **numbers)

    def _job(self, prompt: Prompt, sampling: Sampling, sample_index: int) -> _Job:
        ids = self.encode(prompt) if isinstance(prompt, str) else prompt
        return _Job(self, ids, sampling, sample_index, None)

    def _submit(self, job: _Job) -> None:
        with self._entered():
            self._cancel_forgotten()
            self._check(self._library.verbatim_submit(self._handle, byref(job.request)))
            self._jobs.add(job)

    def _run(self, jobs: list[_Job]) -> list[Completion]:
        submitted = []
        try:
            for job in jobs:
                self._submit(job)
                submitted.append(job)
            for job in jobs:
                while not job.finished:
                    self._step(job)
        finally:
            self._cancel(submitted)
        return [job.completion() for job in jobs]

    def _step(self, job: _Job) -> None:
        """Does one step, unless another thread's step has finished the job."""
        busy = c_bool()
        with self._entered():
            self._cancel_forgotten()
            if not job.finished:
                self._check(self._library.verbatim_poll(self._handle, byref(busy)))

    def _cancel(self, jobs: list[_Job]) -> None:
        """Cancels the unfinished ones; afterwards the library uses none of them."""
        with self._lock:
            for job in jobs:
                if self._handle and not job.finished:
                    self._check(self._library.verbatim_cancel(self._handle, byref(job.request)))
                self._jobs.discard(job)

    def _cancel_forgotten(self) -> None:
        while self._forgotten:
            job = self._forgotten.popleft()
            if not job.finished:
                self._check(self._library.verbatim_cancel(self._handle, byref(job.request)))
            self._jobs.discard(job)


def _cache_folder(given: Optional[str]) -> Optional[bytes]:
    """As `verbatim --cache-dir`."""
    if given is not None:
        return os.fsencode(given) if given else None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME", ""), ".cache")
    return os.fsencode(os.path.join(base, "verbatim")) if os.path.isabs(base) else None


def _variable(name: str) -> Optional[bytes]:
    return os.environb.get(name.encode())
