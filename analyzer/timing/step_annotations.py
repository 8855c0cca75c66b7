"""The names that mark steps, and what those of serving engines say about their step.

The formats are those that the engines' workers write:

vLLM (`execute_context_`: the profiler's annotation in v1/worker/gpu_worker.py; the longer form is
its detailed annotation, with sums over the requests of query lengths, KV lengths and products):
  execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)
  execute_context_2(6144)_generation_3(3)
  execute_new_1_cached_3
SGLang (`step[`: one range for each forward; the sums are those of its detailed form):
  step[DECODE bs=32]   step[EXTEND bs=15 toks=15360]
  step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 g_sq=1 g_sk=12 …]
ATOM:
  prefill[bs=2 tok=14721 ctx=[7803, 6918] sk=14721]   decode[bs=117/128 tok=117 p=2 d=115]
TensorRT-LLM:
  [Executor] _forward_step 17: 1 ctx reqs, 512 ctx tokens, 3 gen reqs
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from decodescope.analyzer.schema.step_report import StepKind

# A step of more requests or tokens than this is taken for damage.
MOST = 10**12
_NUMBER = r"(?:[\s_#:./-]*\d+)?$"
ENGINE_MARKER = re.compile(
    r"execute_(?:model\b|new_\d|(?:\d+_)?context_)"
    r"|step\[\s*[A-Za-z_]"
    r"|(?:prefill|decode)\[bs="
    r"|\[Executor\] _forward_step\b"
)
# In order of trust: the first of these that marks anything in a trace marks its steps.
MARKERS = (
    re.compile(r"decode_step" + _NUMBER),
    re.compile(r"ProfilerStep" + _NUMBER),
    ENGINE_MARKER,
    re.compile(
        r"(?:(?:train|training|inference|generation|prefill|decode|engine)[_ ])?"
        r"(?:step|iteration|iter)" + _NUMBER,
        re.IGNORECASE,
    ),
)
_TRAILING_NUMBER = re.compile(_NUMBER)

_N = r"([0-9]{1,18})"
_SUMS = rf"\(sq{_N}sk{_N}(?:sqsq{_N})?(?:sqsk{_N})?\)"
_VLLM_DETAILED = re.compile(rf"execute_(?:[0-9]+_)?context_{_N}{_SUMS}_generation_{_N}{_SUMS}$")
_VLLM = re.compile(rf"execute_(?:[0-9]+_)?context_{_N}\({_N}\)_generation_{_N}\({_N}\)$")
_VLLM_CACHED = re.compile(rf"execute_new_{_N}_cached_{_N}$")
_SGLANG = re.compile(r"step\[\s*([A-Za-z_][A-Za-z_0-9]*)\b([^\]]*)\]$")
_ATOM = re.compile(rf"(prefill|decode)\[bs={_N}(?:/[0-9]+)?\s+tok={_N}\b(.*)\]$")
_TENSORRT_LLM = re.compile(
    rf"\[Executor\] _forward_step(?: [0-9]+)?: {_N} ctx reqs,(?: {_N} ctx tokens,)? {_N} gen reqs"
)
_PAIR = re.compile(rf"(?:^|\s)([a-z_]+)={_N}(?=\s|$)")
_KEY = re.compile(r"(?:^|\s)([a-z_]+)=")
_PLAIN = re.compile(r"(decode|prefill)(?:[_ ](?:step|iteration|iter))?" + _NUMBER, re.IGNORECASE)
_SGLANG_KINDS: dict[str, StepKind] = {
    "DECODE": "decode",
    "TARGET_VERIFY": "decode",
    "EXTEND": "prefill",
    "SPLIT_PREFILL": "prefill",
    "DLLM_EXTEND": "prefill",
    "MIXED": "mixed",
}


@dataclass(frozen=True, slots=True)
class StepAnnotation:
    """What a step's annotations say; None is "not said".

    `batch` is the number of requests, `decode_requests` and `prefill_requests` are its parts.
    `query_tokens` is the number of tokens computed, `kv_tokens` the sum of the KV lengths of all
    requests; `query_squares` and `query_keys` are the sums over them of q^2 and q * k, q being a
    request's tokens and k its KV length. `engine` names who wrote it, None for a name that anyone
    may write.
    """

    kind: StepKind = "unknown"
    batch: int | None = None
    decode_requests: int | None = None
    prefill_requests: int | None = None
    query_tokens: int | None = None
    kv_tokens: int | None = None
    engine: str | None = None
    query_squares: int | None = None
    query_keys: int | None = None


UNKNOWN = StepAnnotation()


def is_step_name(name: str) -> bool:
    """Whether a range of this name marks a step."""
    return any(pattern.match(name) for pattern in MARKERS)


def step_kind(name: str) -> str:
    """A marker's name without its number: `decode_step_7` -> `decode_step`."""
    return _TRAILING_NUMBER.sub("", name) if is_step_name(name) else name


def parse_annotation(name: str) -> StepAnnotation:
    """What a range's name says about its step; `UNKNOWN` for any other name, and for a name of the
    formats above that is malformed or holds a number over `MOST`."""
    for pattern, parse in _FORMATS:
        if match := pattern.match(name):
            found = parse(match)
            return found if _plausible(found) else UNKNOWN
    return UNKNOWN


def supplemented(outer: StepAnnotation, inner: StepAnnotation) -> StepAnnotation:
    """`outer`, with what only `inner` says."""
    lacking = {
        field: getattr(inner, field)
        for field in (
            *("batch", "decode_requests", "prefill_requests", "query_tokens", "kv_tokens"),
            *("query_squares", "query_keys"),
        )
        if getattr(outer, field) is None
    }
    kind = inner.kind if outer.kind == "unknown" else outer.kind
    return replace(outer, kind=kind, engine=outer.engine or inner.engine, **lacking)


def common(annotations: list[StepAnnotation]) -> StepAnnotation:
    """What all of the annotations say alike."""
    if not annotations:
        return UNKNOWN
    first, *others = annotations
    alike = {
        field: getattr(first, field)
        for field in StepAnnotation.__slots__
        if all(getattr(one, field) == getattr(first, field) for one in others)
    }
    return StepAnnotation(**alike)


def _plausible(found: StepAnnotation) -> bool:
    numbers = (found.batch, found.query_tokens, found.kv_tokens)
    return all(number is None or number <= MOST for number in numbers)


def _of_requests(
    engine: str,
    prefill: int,
    decode: int,
    *,
    query_tokens: int | None = None,
    kv_tokens: int | None = None,
) -> StepAnnotation:
    kind: StepKind = "unknown"
    if prefill and decode:
        kind = "mixed"
    elif prefill or decode:
        kind = "prefill" if prefill else "decode"
    batch = prefill + decode
    return StepAnnotation(kind, batch, decode, prefill, query_tokens, kv_tokens, engine)


def _numbers(match: re.Match[str]) -> list[int]:
    return [int(group) for group in match.groups()]


def _vllm_detailed(match: re.Match[str]) -> StepAnnotation:
    context, *of_context, generation, g_sq, g_sk, g_sqsq, g_sqsk = match.groups()
    c_sq, c_sk, c_sqsq, c_sqsk = of_context
    return replace(
        _of_requests(
            "vllm",
            int(context),
            int(generation),
            query_tokens=int(c_sq) + int(g_sq),
            kv_tokens=int(c_sk) + int(g_sk),
        ),
        query_squares=_sum(c_sqsq, g_sqsq),
        query_keys=_sum(c_sqsk, g_sqsk),
    )


def _sum(*texts: str | None) -> int | None:
    """The sum of the numbers, None if one is not said."""
    known = [int(text) for text in texts if text is not None]
    return sum(known) if len(known) == len(texts) else None


def _vllm(match: re.Match[str]) -> StepAnnotation:
    context, context_tokens, generation, generation_tokens = _numbers(match)
    return _of_requests(
        "vllm", context, generation, query_tokens=context_tokens + generation_tokens
    )


def _vllm_cached(match: re.Match[str]) -> StepAnnotation:
    # This format does not say whether a cached request still reads its prompt in chunks.
    return _of_requests("vllm", *_numbers(match))


def _sglang(match: re.Match[str]) -> StepAnnotation:
    mode, rest = match[1].upper(), match[2]
    pairs = _PAIR.findall(rest)
    values = {key: int(value) for key, value in pairs}
    batch = values.get("bs")
    if batch is None or len(_KEY.findall(rest)) != len(values):
        return UNKNOWN
    kind: StepKind = _SGLANG_KINDS.get(mode, "unknown") if batch else "unknown"
    decode, prefill = {
        "decode": (batch, 0),
        "prefill": (0, batch),
        "mixed": (values.get("g"), values.get("c")),
    }.get(kind, (None, None))
    queries = [values[key] for key in ("c_sq", "g_sq") if key in values]
    lengths = [values[key] for key in ("c_sk", "g_sk") if key in values]
    query_tokens = sum(queries) if queries else values.get("toks")
    if query_tokens is None and mode == "DECODE":
        query_tokens = batch
    kv_tokens = sum(lengths) if lengths else None
    return StepAnnotation(kind, batch, decode, prefill, query_tokens, kv_tokens, "sglang")


def _atom(match: re.Match[str]) -> StepAnnotation:
    batch, query_tokens = int(match[2]), int(match[3])
    values = {key: int(value) for key, value in _PAIR.findall(match[4])}
    prefill = batch if match[1] == "prefill" else values.get("p", 0)
    if prefill > batch:
        return UNKNOWN
    decode = batch - prefill
    return _of_requests(
        "atom", prefill, decode, query_tokens=query_tokens, kv_tokens=values.get("sk")
    )


def _tensorrt_llm(match: re.Match[str]) -> StepAnnotation:
    return _of_requests("tensorrt-llm", int(match[1]), int(match[3]))


def _plain(match: re.Match[str]) -> StepAnnotation:
    return StepAnnotation("decode" if match[1].lower() == "decode" else "prefill")


_FORMATS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], StepAnnotation]], ...] = (
    (_VLLM_DETAILED, _vllm_detailed),
    (_VLLM, _vllm),
    (_VLLM_CACHED, _vllm_cached),
    (_SGLANG, _sglang),
    (_ATOM, _atom),
    (_TENSORRT_LLM, _tensorrt_llm),
    (_PLAIN, _plain),
)
