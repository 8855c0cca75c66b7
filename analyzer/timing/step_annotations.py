"""The names that mark steps, and the facts about their step that serving engines write in them.

The formats are those that the engines' workers write:

vLLM (`execute_context_`: the profiler's annotation in v1/worker/gpu_worker.py; the longer form is
its detailed annotation, with sums over the requests of query lengths, KV lengths and products):
  execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)
  execute_context_2(6144)_generation_3(3)
  execute_context_1(888_788544)_generation_0(0)   with q² of the prefill requests
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
# vLLM's sqsk55086, SGLang's g_sk=12, ATOM's sk=14721: sums with KV lengths.
_GROWING_SUM = re.compile(r"((?:s[qk])*sk=?)[1-9][0-9]*")
_TRAILING_NUMBER = re.compile(_NUMBER)

_N = r"([0-9]{1,18})"


def _named(name: str) -> str:
    return rf"(?P<{name}>[0-9]{{1,18}})"


def _sums(of: str) -> str:
    """Sums over the requests: of q, k, q² and q·k."""
    q, k, qq, qk = (_named(f"{figure}_{of}") for figure in ("q", "k", "qq", "qk"))
    return rf"\(sq{q}sk{k}(?:sqsq{qq})?(?:sqsk{qk})?\)"


_PREFILL, _DECODE = _named("prefill"), _named("decode")
# The formats that number the requests of both kinds, by engine.
_REQUESTS = {
    "vllm": (
        re.compile(
            rf"execute_(?:[0-9]+_)?context_{_PREFILL}{_sums('prefill')}"
            rf"_generation_{_DECODE}{_sums('decode')}$"
        ),
        re.compile(
            rf"execute_(?:[0-9]+_)?context_{_PREFILL}"
            rf"\({_named('q_prefill')}(?:_{_named('qq_prefill')})?\)"
            rf"_generation_{_DECODE}\({_named('q_decode')}(?:_{_N})?\)$"
        ),
        # This format does not say whether a cached request still reads its prompt in chunks.
        re.compile(rf"execute_new_{_PREFILL}_cached_{_DECODE}$"),
    ),
    "tensorrt-llm": (
        re.compile(
            rf"\[Executor\] _forward_step(?: [0-9]+)?: {_PREFILL} ctx reqs,(?: {_N} ctx tokens,)?"
            rf" {_DECODE} gen reqs"
        ),
    ),
}
_SGLANG = re.compile(r"step\[\s*([A-Za-z_][A-Za-z_0-9]*)\b([^\]]*)\]$")
_ATOM = re.compile(rf"(prefill|decode)\[bs={_N}(?:/[0-9]+)?\s+tok={_N}\b(.*)\]$")
_PAIR = re.compile(rf"(?:^|\s)([a-z_]+)={_N}(?=\s|$)")
_KEY = re.compile(r"(?:^|\s)([a-z_]+)=")
_PLAIN = re.compile(r"(decode|prefill)(?:[_ ](?:step|iteration|iter))?" + _NUMBER, re.IGNORECASE)
_SGLANG_KINDS: dict[str, StepKind] = {
    "DECODE": "decode",
    "TARGET_VERIFY": "verify",
    "DRAFT_EXTEND": "draft",
    "DRAFT_EXTEND_V2": "draft",
    "EXTEND": "prefill",
    "SPLIT_PREFILL": "prefill",
    "DLLM_EXTEND": "prefill",
    "MIXED": "mixed",
}


@dataclass(frozen=True, slots=True)
class StepAnnotation:
    """The facts that a step's annotations tell; None for those that they do not.

    `batch` is the number of requests, `query_tokens` that of the tokens computed, `kv_tokens` the
    sum of the KV lengths of all requests; `pairs` is the number of (query, key) pairs under the
    causal mask. `engine` names who wrote it, None for a name that anyone may write. `sort` numbers
    the steps of one kind and batch that are unlike in what they launch (see `step_kinds`).
    """

    kind: StepKind = "unknown"
    batch: int | None = None
    query_tokens: int | None = None
    kv_tokens: int | None = None
    engine: str | None = None
    pairs: int | None = None
    sort: int = 0


UNKNOWN = StepAnnotation()


def is_step_name(name: str) -> bool:
    return any(pattern.match(name) for pattern in MARKERS)


def step_kind(name: str) -> str:
    """A marker's name without its number: `decode_step_7` -> `decode_step`; that of an engine with
    "*" for sums over the requests, which grow from step to step: `…(sq32sk*sqsq…)`."""
    if ENGINE_MARKER.match(name):
        name = _GROWING_SUM.sub(r"\1*", name)
    return _TRAILING_NUMBER.sub("", name) if is_step_name(name) else name


def parse_annotation(name: str) -> StepAnnotation:
    """The step that a range's name tells of; `UNKNOWN` for any other name, and for a name of the
    formats above that is malformed or holds a number over `MOST`."""
    annotation = UNKNOWN
    if match := _SGLANG.match(name):
        annotation = _sglang(match)
    elif match := _ATOM.match(name):
        annotation = _atom(match)
    elif match := _PLAIN.match(name):
        annotation = StepAnnotation("decode" if match[1].lower() == "decode" else "prefill")
    else:
        for engine, patterns in _REQUESTS.items():
            if match := next((m for pattern in patterns if (m := pattern.match(name))), None):
                annotation = _requests(engine, match)
    numbers = (annotation.batch, annotation.query_tokens, annotation.kv_tokens)
    return UNKNOWN if any((number or 0) > MOST for number in numbers) else annotation


def supplemented(outer: StepAnnotation, inner: StepAnnotation) -> StepAnnotation:
    """`outer`, with the facts that only `inner` tells."""
    lacking = {
        field: getattr(inner, field)
        for field in StepAnnotation.__slots__
        if getattr(outer, field) in (None, "unknown")
    }
    return replace(outer, **lacking)


def common(annotations: list[StepAnnotation]) -> StepAnnotation:
    """The facts that all of the annotations tell alike."""
    alike = {}
    for field in StepAnnotation.__slots__:
        values = {getattr(annotation, field) for annotation in annotations}
        if len(values) == 1:
            alike[field] = values.pop()
    return StepAnnotation(**alike)


def _kind(prefill: int, decode: int) -> StepKind:
    if prefill and decode:
        return "mixed"
    if prefill or decode:
        return "prefill" if prefill else "decode"
    return "unknown"


def _requests(engine: str, match: re.Match[str]) -> StepAnnotation:
    """The step of a format of `_REQUESTS`; a sum is known if it is given for both kinds, or for
    prefill requests where there are no others. A request of q tokens and KV length k has q * k - q
    * (q - 1) / 2 pairs; a sum of them that cannot be does not count."""
    numbers = {name: int(text) for name, text in match.groupdict().items() if text is not None}
    if not numbers["decode"]:
        numbers = dict.fromkeys(("q_decode", "k_decode", "qq_decode", "qk_decode"), 0) | numbers
    q, k, qq, qk = (
        numbers[f"{figure}_prefill"] + numbers[f"{figure}_decode"]
        if {f"{figure}_prefill", f"{figure}_decode"} <= numbers.keys()
        else None
        for figure in ("q", "k", "qq", "qk")
    )
    pairs = None if q is None or qq is None or qk is None else qk - (qq - q) // 2
    if q is None or pairs is None or not q <= pairs <= q * (k or 0):
        pairs = None
    prefill, decode = numbers["prefill"], numbers["decode"]
    return StepAnnotation(_kind(prefill, decode), prefill + decode, q, k, engine, pairs)


def _sglang(match: re.Match[str]) -> StepAnnotation:
    mode, rest = match[1].upper(), match[2]
    pairs = _PAIR.findall(rest)
    values = {key: int(value) for key, value in pairs}
    batch = values.get("bs")
    if batch is None or len(_KEY.findall(rest)) != len(values):
        return UNKNOWN
    kind: StepKind = _SGLANG_KINDS.get(mode, "unknown") if batch else "unknown"
    queries = [values[key] for key in ("c_sq", "g_sq") if key in values]
    lengths = [values[key] for key in ("c_sk", "g_sk") if key in values]
    query_tokens = sum(queries) if queries else values.get("toks")
    if query_tokens is None and mode == "DECODE":
        query_tokens = batch
    kv_tokens = sum(lengths) if lengths else None
    return StepAnnotation(kind, batch, query_tokens, kv_tokens, "sglang")


def _atom(match: re.Match[str]) -> StepAnnotation:
    batch, query_tokens = int(match[2]), int(match[3])
    values = {key: int(value) for key, value in _PAIR.findall(match[4])}
    prefill = batch if match[1] == "prefill" else values.get("p", 0)
    if prefill > batch:
        return UNKNOWN
    kind = _kind(prefill, batch - prefill)
    return StepAnnotation(kind, batch, query_tokens, values.get("sk"), "atom")
