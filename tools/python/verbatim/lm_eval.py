"""Verbatim as a model of lm-evaluation-harness, registered as "verbatim".

  python -m verbatim.lm_eval run --model verbatim --model_args plan=my.plan,model_dir=MODEL_DIR --tasks hellaswag

is the harness's own command line with this model registered; a program imports this module and calls lm_eval.simple_evaluate. The harness
makes the token lists of pairs itself (TemplateLM); they equal those of `verbatim score`, and so do the sums. Needs neither torch nor
transformers. Model arguments: plan, model_dir, device, threads, cache_dir, library as for Engine, and those of __init__. Read next:
engine.py, scoring.py.
"""
import json
import logging
import os
from typing import Any, Optional

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import simple_parse_args_string

from .engine import Engine
from .values import Completion, Sampling, Score, VerbatimError

log = logging.getLogger(__name__)

# Keys of gen_kwargs: the harness's names for the most tokens to generate, in its order, and the keys passed on unchanged.
MOST_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
PASSED_ON = {"top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "ignore_eos"}


@register_model("verbatim")
class VerbatimLM(TemplateLM):
    """add_bos_token=False: no BOS before a context that has tokens of its own. truncation=True: a prompt that exceeds the plan's max_len
    loses its beginning, with a warning; otherwise it is refused before any work. max_gen_toks: default if a task gives none. seed: of
    sampled answers, if a task gives none. The harness's own --device and --batch_size are ignored: its devices are torch's, and no batch
    changes a bit."""

    def __init__(self, plan: str, model_dir: str, add_bos_token: bool = True, truncation: bool = False, max_gen_toks: int = 256,
                 seed: int = 0, **options: Any):
        super().__init__()
        self.engine = Engine(plan, model_dir, **options)
        self._bos, self._truncates, self._max_gen_toks, self._seed = add_bos_token, truncation, max_gen_toks, seed

    @classmethod
    def create_from_arg_obj(cls, arg_dict: dict, additional_config: Optional[dict] = None) -> "VerbatimLM":
        return cls(**arg_dict)

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: Optional[dict] = None) -> "VerbatimLM":
        return cls(**simple_parse_args_string(arg_string))

    @property
    def eot_token_id(self) -> int:
        return self.engine.info.eos[0]

    @property
    def prefix_token_id(self) -> int:
        return self.engine.rules.prefix

    @property
    def max_length(self) -> int:
        """In the harness's terms: the most tokens before a prediction."""
        return self.engine.info.max_len - 1

    @property
    def max_gen_toks(self) -> int:
        return self._max_gen_toks

    @property
    def tokenizer_name(self) -> str:
        return "verbatim-" + self.engine.info.tokenizer_digest

    def get_model_info(self) -> dict:
        """Everything besides the requests that determines the bits of the results; the harness writes it into its results."""
        info = self.engine.info
        return {"verbatim_" + name: getattr(info, name) for name in
                ("numerics_id", "weights_digest", "config_digest", "tokenizer_digest", "plan_digest", "device", "max_len")}

    def tok_encode(self, string: str, add_special_tokens: Optional[bool] = None, **_: Any) -> list[int]:
        adds = self._bos if add_special_tokens is None else add_special_tokens
        return self.engine.rules.context(string) if adds else self.engine.rules.ids(string)

    def tok_decode(self, tokens: list[int], **_: Any) -> str:
        return self.engine.decode(tokens)

    # === Log-probabilities ==================================================================================================

    def _loglikelihood_tokens(self, requests: list, **_: Any) -> list[tuple[float, bool]]:
        pairs = [self._fit_pair(context, continuation) for _, context, continuation in requests]
        results = [_result(score) for score in self.engine.score(pairs)]
        for (texts, _, _), result in zip(requests, results):
            self.cache_hook.add_partial("loglikelihood", texts, result)
        return results

    def _fit_pair(self, context: list[int], continuation: list[int]) -> tuple[list[int], list[int]]:
        if not context:  # only white space, without a BOS
            context, continuation = (continuation[:1], continuation[1:]) if continuation[:1] == [self.prefix_token_id] else (
                [self.prefix_token_id], continuation)
        most = self.engine.info.max_len
        over = len(context) + len(continuation) - most
        if over <= 0:
            return context, continuation
        if len(continuation) >= most:
            raise VerbatimError(-5, "a continuation of %d tokens, and the plan's max_len is %d" % (len(continuation), most))
        self._refuse_or_warn("a context and continuation of %d tokens" % (most + over))
        return context[over:], continuation

    def loglikelihood_rolling(self, requests: list, disable_tqdm: bool = False) -> list[float]:
        results = [_result(score)[0] for score in self.engine.score_texts([request.args[0] for request in requests])]
        for request, result in zip(requests, results):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, result)
        return results

    # === Answers ============================================================================================================

    def generate_until(self, requests: list, disable_tqdm: bool = False) -> list[str]:
        samplings = [self._sampling(dict(request.args[1])) for request in requests]
        prompts = [self._fit_prompt(self.tok_encode(request.args[0]), sampling.max_tokens)
                   for request, sampling in zip(requests, samplings)]
        results = [_text(done) for done in self.engine.generate(prompts, samplings)]
        for request, result in zip(requests, results):
            self.cache_hook.add_partial("generate_until", request.args, result)
        return results

    def _sampling(self, asked: dict) -> Sampling:
        """The sampling for gen_kwargs as the harness understands them: greedy unless do_sample is true, or absent with a temperature."""
        most = [value for value in [asked.pop(name, None) for name in MOST_TOKENS] if value is not None]
        until, samples, temperature = asked.pop("until", None) or [], asked.pop("do_sample", None), asked.pop("temperature", None)
        if samples is None:
            samples = bool(temperature)
        unknown = set(asked) - PASSED_ON
        if unknown:
            raise VerbatimError(-4, "generation arguments that Verbatim does not have: %s" % ", ".join(sorted(unknown)))
        stop = [text for text in ([until] if isinstance(until, str) else until) if text]
        return Sampling(max_tokens=int(most[0] if most else self._max_gen_toks), stop=stop,
                        temperature=float(1 if temperature is None else temperature) if samples else 0.0, **{"seed": self._seed, **asked})

    def _fit_prompt(self, ids: list[int], max_tokens: int) -> list[int]:
        most = self.engine.info.max_len - max_tokens
        if len(ids) <= most:
            return ids
        if most < 1:
            raise VerbatimError(-5, "%d tokens are asked for, and the plan's max_len is %d" % (max_tokens, self.engine.info.max_len))
        self._refuse_or_warn("a prompt of %d tokens and %d to make" % (len(ids), max_tokens))
        return ids[-most:]

    def _refuse_or_warn(self, what: str) -> None:
        told = "%s, and the plan's max_len is %d" % (what, self.engine.info.max_len)
        if not self._truncates:
            raise VerbatimError(-5, told + "; hint: a plan with a larger max-model-len, or truncation=True")
        log.warning("%s: the beginning is cut off", told)

    # === Chat ===============================================================================================================

    def chat_template(self, chat_template: Any = False) -> Optional[str]:
        """The template of the model's folder, or the named one of several."""
        if chat_template is False or chat_template is None:
            return None
        found = _read_templates(self.engine.model_dir)
        name = chat_template if isinstance(chat_template, str) and len(found) > 1 else "default"
        if name not in found:
            raise VerbatimError(-4, "the model's folder has no chat template %r; hint: chat_template.jinja, or chat_template of "
                                "tokenizer_config.json" % name)
        return found[name]

    def apply_chat_template(self, chat_history: list[dict], add_generation_prompt: bool = True) -> str:
        """Renders with Jinja as transformers does; without add_generation_prompt the last message is left open."""
        text = _render(self.chat_template(True), messages=chat_history, add_generation_prompt=add_generation_prompt,
                       **_special_tokens(self.engine.model_dir))
        if add_generation_prompt:
            return text
        last = chat_history[-1]["content"].strip()
        return text[:text.rindex(last) + len(last)]


def _result(score: Score) -> tuple[float, bool]:
    if score.finish != "length":
        raise VerbatimError(-7, "an item was not scored to its end: %s %s" % (score.finish, score.fault or ""))
    return score.logprob, score.is_greedy


def _text(done: Completion) -> str:
    if done.finish == "nonfinite":
        raise VerbatimError(-7, "an answer did not come to its end: nonfinite %s" % done.fault)
    return done.text


def _read_json(model_dir: str, name: str) -> dict:
    path = os.path.join(model_dir, name)
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8-sig") as file:  # as the engine does: a byte order mark is skipped
        return json.load(file)


def _read_templates(model_dir: str) -> dict[str, str]:
    path = os.path.join(model_dir, "chat_template.jinja")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            return {"default": file.read()}
    found = _read_json(model_dir, "tokenizer_config.json").get("chat_template") or {}
    return {"default": found} if isinstance(found, str) else {one["name"]: one["template"] for one in found}


def _special_tokens(model_dir: str) -> dict[str, str]:
    config = _read_json(model_dir, "tokenizer_config.json")
    tokens = {name: config.get(name) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
    return {name: token["content"] if isinstance(token, dict) else token for name, token in tokens.items() if token}


def _render(template: str, **values: Any) -> str:
    try:
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise VerbatimError(-4, "chat templates need the Python module jinja2") from error

    def fail(message: str) -> None:
        raise VerbatimError(-1, "the chat template refuses the conversation: " + message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals["raise_exception"] = fail
    return environment.from_string(template).render(**values)


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
