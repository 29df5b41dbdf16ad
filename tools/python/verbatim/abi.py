"""The types and functions of engine/verbatim.h for ctypes, field by field, and where the shared library is found.

The only definition for Python, used by the package and tests/examples/embed.py. load() compares the size of every struct with the library's
before anything else is called; tests/unit/test_libverbatim.py compares every field with the header. Knows nothing of how requests are made.
Needs only the standard library. Read next: engine.py.
"""
import ctypes
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint8,
                    c_uint32, c_uint64, c_void_p)

VERSION = "0.1"  # major and minor of the header, part of the library's name
NAME = "libverbatim.so." + VERSION

DEVICES = {"auto": -1, "cpu": -2, "gpu": 0}
FINISHES = ["running", "stop", "length", "nonfinite", "stop_text", "cancelled", "deadline"]


class Config(Structure):
    ON_PROGRESS = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64)
    ON_FAULT = CFUNCTYPE(None, c_void_p, c_char_p)
    _fields_ = [("plan_path", c_char_p), ("model_dir", c_char_p), ("device", c_int), ("threads", c_uint32), ("cache_dir", c_char_p),
                ("library_path", c_char_p), ("program_path", c_char_p), ("logits", c_bool), ("text", c_bool),
                ("sha256", c_bool), ("trace", c_bool), ("max_active", c_uint32), ("chunk_tokens", c_uint32), ("slot_offset", c_uint32),
                ("shuffle_pages", c_uint64), ("no_prefix_cache", c_bool), ("direct", c_bool), ("poison", c_bool), ("no_drafts", c_bool),
                ("timed", c_bool),
                ("check_exchanges", c_bool), ("exchange_timeout_ms", c_uint32),
                ("on_progress", ON_PROGRESS), ("on_fault", ON_FAULT), ("context", c_void_p)]


class Stages(Structure):
    _fields_ = [(name, c_double) for name in ("plan", "text", "device", "memory", "kernels", "weights", "tables", "library", "graphs",
                                              "total")] + [
        ("kernels_cached", c_uint32), ("kernels_compiled", c_uint32), ("weights_threads", c_uint32), ("weights_bytes", c_uint64)]


class Memory(Structure):
    _fields_ = [(name, c_uint64) for name in ("planned", "reserved", "total", "free_opened", "free_ready", "free_now")]


class Gpu(Structure):
    _fields_ = [("index", c_uint32), ("total", c_uint64), ("reserved", c_uint64)]


class Kernel(Structure):
    _fields_ = [("name", c_char_p), ("digest", c_uint8 * 16)]


class Point(Structure):
    _fields_ = [("name", c_char_p), ("layer", c_uint32), ("kernel", c_uint32), ("type", c_uint32), ("count", c_uint32),
                ("of_logits", c_bool)]


class Counters(Structure):
    _fields_ = [(name, c_uint64) for name in (
        "steps", "decode_steps", "mixed_steps", "request_steps", "token_rows", "queried_tokens", "reused_tokens",
        "recomputed_tokens", "admissions", "preemptions",
        "cancellations", "deadlines", "evicted_pages", "drafts", "drafted_tokens", "accepted_tokens")] + [
        ("accepted_at", c_uint64 * 15), ("gaps", c_uint64), ("gap_us", c_double), ("gap_bins", c_uint32 * 64),
        ("most_sequences", c_uint32), ("kv_pages_used", c_uint32)]


class Info(Structure):
    _fields_ = [("device", c_char_p), ("note", c_char_p), ("numerics_id", c_uint8 * 16), ("weights_digest", c_uint8 * 16),
                ("config_digest", c_uint8 * 16), ("tokenizer_digest", c_uint8 * 16), ("plan_digest", c_uint8 * 16),
                ("plan_sha256", c_uint8 * 32), ("config_sha256", c_uint8 * 32), ("weights_sha256", c_uint8 * 32),
                ("driver_version", c_uint32), ("nvrtc_version", c_uint32), ("cublaslt_version", c_uint64), ("kernel_count", c_uint32),
                ("point_count", c_uint32), ("kernels", POINTER(Kernel)), ("points", POINTER(Point)),
                ("vocab", c_uint32), ("max_len", c_uint32),
                ("max_seqs", c_uint32), ("kv_pages", c_uint32), ("bos", c_uint32), ("eos_count", c_uint32), ("eos", POINTER(c_uint32)),
                ("graph_count", c_uint32), ("ranks", c_uint32), ("draft_tokens", c_uint32), ("constraints", c_bool),
                ("gpus", POINTER(Gpu)), ("device_bytes", c_uint64),
                ("pinned_bytes", c_uint64), ("host_bytes", c_uint64), ("stages", Stages), ("memory", Memory)]


class Text(Structure):
    _fields_ = [("bytes", POINTER(c_char)), ("count", c_size_t)]


class Bias(Structure):
    _fields_ = [("token", c_int32), ("bias", c_float)]


class Token(Structure):
    _fields_ = [("id", c_int32), ("logprob", c_float), ("rank", c_uint32), ("logit", c_float), ("digest", c_uint64)]


class Alternative(Structure):
    _fields_ = [("id", c_int32), ("logprob", c_float)]


class Request(Structure):
    """ON_LOGITS gets the row as a pointer to vocab floats, valid during the call."""


Request.ON_TOKEN = CFUNCTYPE(None, POINTER(Request), c_uint32)
Request.ON_DRAFT = CFUNCTYPE(c_uint32, POINTER(Request), POINTER(c_int32), c_uint32)
Request.ON_TEXT = CFUNCTYPE(None, POINTER(Request), POINTER(c_char), c_size_t)
Request.ON_LOGITS = CFUNCTYPE(None, POINTER(Request), c_uint32, POINTER(c_float))
Request.ON_TRACE = CFUNCTYPE(None, POINTER(Request), c_uint32, POINTER(c_uint64))
Request.WANTS_VALUES = CFUNCTYPE(c_bool, POINTER(Request), c_uint32, c_uint32)
Request.ON_VALUES = CFUNCTYPE(None, POINTER(Request), c_uint32, c_uint32, c_void_p, c_size_t)
Request._fields_ = [
    ("prompt", POINTER(c_int32)), ("prompt_count", c_uint32), ("max_tokens", c_uint32), ("score", c_bool), ("score_from", c_uint32),
    ("top_logprobs", c_uint32), ("temperature", c_float), ("top_k", c_uint32), ("top_p", c_double), ("min_p", c_double),
    ("repetition_penalty", c_float), ("presence_penalty", c_float), ("frequency_penalty", c_float), ("biases", POINTER(Bias)),
    ("bias_count", c_uint32), ("allowed_ids", POINTER(c_int32)), ("allowed_count", c_uint32),
    ("constraint", c_void_p), ("seed", c_uint64),
    ("sample_index", c_uint32), ("stop_ids", POINTER(c_int32)), ("stop_count", c_uint32), ("stop_texts", POINTER(Text)),
    ("stop_text_count", c_uint32), ("ignore_eos", c_bool), ("deadline_seconds", c_double), ("required", POINTER(c_char_p)),
    ("required_count", c_uint32), ("on_token", Request.ON_TOKEN), ("on_draft", Request.ON_DRAFT), ("on_text", Request.ON_TEXT),
    ("on_logits", Request.ON_LOGITS), ("on_trace", Request.ON_TRACE), ("wants_values", Request.WANTS_VALUES),
    ("on_values", Request.ON_VALUES), ("context", c_void_p),
    ("scores", POINTER(Token)), ("tokens", POINTER(Token)), ("alternatives", POINTER(Alternative)), ("score_count", c_uint32),
    ("token_count", c_uint32), ("drafted_count", c_uint32), ("accepted_count", c_uint32),
    ("waited_seconds", c_double), ("text_bytes", c_uint64),
    ("stop_index", c_uint32), ("finish", c_int),
    ("fault_op", c_char_p), ("fault_layer", c_uint32), ("fault_position", c_uint32), ("request_digest", c_uint8 * 16),
    ("chain", c_uint8 * 16), ("engine_state", c_uint64 * 3)]

STRUCTS = {"verbatim_config": Config, "verbatim_stages": Stages, "verbatim_memory": Memory, "verbatim_info": Info, "verbatim_text": Text,
           "verbatim_bias": Bias, "verbatim_token": Token, "verbatim_alternative": Alternative, "verbatim_request": Request,
           "verbatim_gpu": Gpu, "verbatim_kernel": Kernel, "verbatim_point": Point, "verbatim_counters": Counters}
FUNCTIONS = {  # name: type of the result, and the arguments
    "verbatim_open": (c_int, POINTER(c_void_p), POINTER(Config)), "verbatim_close": (None, c_void_p),
    "verbatim_describe": (Info, c_void_p), "verbatim_count": (Counters, c_void_p),
    "verbatim_submit": (c_int, c_void_p, POINTER(Request)), "verbatim_cancel": (c_int, c_void_p, POINTER(Request)),
    "verbatim_reset_prefix_cache": (None, c_void_p),
    "verbatim_stop_ids": (c_uint32, c_void_p, POINTER(Request), POINTER(c_int32)),
    "verbatim_encode": (c_int, c_void_p, c_char_p, c_size_t, c_bool, c_bool, POINTER(c_int32), c_size_t, POINTER(c_size_t)),
    "verbatim_decode": (c_int, c_void_p, POINTER(c_int32), c_size_t, POINTER(c_char), c_size_t, POINTER(c_size_t)),
    "verbatim_chat_open": (c_int, POINTER(c_void_p), c_char_p, c_char_p), "verbatim_chat_close": (None, c_void_p),
    "verbatim_chat_render": (c_int, c_void_p, c_char_p, c_size_t, POINTER(c_char), c_size_t, POINTER(c_size_t)),
    "verbatim_constraint_open": (c_int, POINTER(c_void_p), c_int, c_char_p, c_size_t), "verbatim_constraint_close": (None, c_void_p),
    "verbatim_constraint_text": (Text, c_void_p, POINTER(c_int)),
    "verbatim_poll": (c_int, c_void_p, POINTER(c_bool)), "verbatim_error": (c_char_p,),
    "verbatim_request_defaults": (Request,)}


class LibraryError(OSError):
    """The shared library is not found or has another version."""


def find():
    """Path or name of the library: from the variable VERBATIM_LIBRARY; next to this file, where `pip install` puts it; built in the
    repository that this file lies in; or where the system's loader searches.
    """
    named = os.environ.get("VERBATIM_LIBRARY")
    if named:
        return named
    folder = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
    paths = [os.path.join(folder, NAME)]
    if os.path.exists(os.path.join(root, "engine", "verbatim.h")):
        paths.append(os.path.join(root, "build", NAME))
    return next((path for path in paths if os.path.exists(path)), NAME)


def load(path=None):
    """The library, with the types of its functions set. path: find() if there is none."""
    path = path or find()
    try:
        library = ctypes.CDLL(path)
        library.verbatim_sizeof.restype = c_size_t
    except (OSError, AttributeError) as error:
        raise LibraryError("%s; hint: set VERBATIM_LIBRARY to the path of %s" % (error, NAME)) from error
    library.verbatim_sizeof.argtypes = [c_char_p]
    for name, struct in STRUCTS.items():
        size = library.verbatim_sizeof(name.encode())
        if size != ctypes.sizeof(struct):
            raise LibraryError("%s has %d bytes here and %d in %s: another version?" % (name, ctypes.sizeof(struct), size, path))
    for name, (result, *arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
