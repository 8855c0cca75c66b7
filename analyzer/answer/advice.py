"""Advice by the bound of a step, by the engine that ran it, and by why the GPU was idle."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

import msgspec

from decodescope.analyzer.answer.parts import lost_by_group
from decodescope.analyzer.schema.answer import AnswerPart, Bound
from decodescope.analyzer.schema.report import CaptureInfo
from decodescope.analyzer.text.formatting import duration
from decodescope.analyzer.vocabulary.words import part_words

_GRAPH_VARIANTS = "replay the step as one CUDA graph (variants compiled, fused+graph)"
_GRAPH = "replay the step as one CUDA graph"
GRAPH_ADVICE = (
    "the step is a graph: launch the next replay before this one ends, without reading its token"
)
# In a word of a variant's name: elements of one byte.
NARROW = ("fp8", "int8", "w8a8", "int4", "fp4")
_BETWEEN_KERNELS = ("graph_internal", "kernel_floor")
_SMALL_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The facts that advice depends on: the bound and the parts of a step, the `engine` that ran it
    ("decodescope", "vllm", …; None if unknown), our own capture, what the host did for most of the
    late time (a label of host_wait, None if it was not late), whether graphs launch the ops; times
    are `per` " a step", or "" without steps."""

    bound: Bound
    parts: Sequence[AnswerPart]
    engine: str | None
    capture: CaptureInfo | None
    late_label: str | None
    has_graphs: bool
    per: str


def next_steps(circumstances: Circumstances) -> Iterator[str]:
    """The changes to try first, and the recordings that would show more.

    The largest gain comes first: each part of the kernels has a remedy of its own, every other
    group has one for all its parts.
    """
    bound, parts = circumstances.bound, circumstances.parts
    if bound == "kernels":
        lost_ns = lost_by_group(parts)
        largest = max((part.lost_ns for part in parts if part.group == bound), default=0)
        rival = max((group for group in lost_ns if group != bound), key=lost_ns.__getitem__)
        if lost_ns[rival] > largest:
            yield from _advice(replace(circumstances, bound=rival))
    yield from _advice(circumstances)
    ns = {part.part: part.ns for part in parts}
    between_ns = sum(ns.get(name, 0) for name in _BETWEEN_KERNELS)
    if bound in ("memory", "kernels") and between_ns >= _SMALL_SHARE * sum(ns.values()) > 0:
        yield _known_advice().gap["kernel_floor"]


def _advice(circumstances: Circumstances) -> Iterator[str]:
    if circumstances.bound == "host":
        yield _host_advice(circumstances)
    elif circumstances.bound == "kernels":
        yield from _kernel_advice(circumstances.parts, circumstances.per)
    else:
        yield _of_engine(circumstances) or _own_advice(circumstances)


def _host_advice(circumstances: Circumstances) -> str:
    host_ns = {part.part: part.ns for part in circumstances.parts if part.group == "host"}
    if 2 * host_ns.get("unlinked", 0) > sum(host_ns.values()):
        return _known_advice().gap["unlinked"]
    if advice := _known_advice().host_wait.get(circumstances.late_label or ""):
        return advice
    if circumstances.engine is None or circumstances.engine == "decodescope":
        if circumstances.has_graphs:
            return GRAPH_ADVICE
        return _GRAPH if circumstances.capture is None else _GRAPH_VARIANTS
    return _of_engine(circumstances) or _GRAPH


def _own_advice(circumstances: Circumstances) -> str:
    if circumstances.bound == "memory" and circumstances.capture is not None:
        return _fewer_bytes(circumstances.capture.variant)
    return _known_advice().bound.get(circumstances.bound, "")


def _of_engine(circumstances: Circumstances) -> str | None:
    return _known_advice().engine.get(circumstances.engine or "", {}).get(circumstances.bound)


class _Advice(msgspec.Struct, frozen=True):
    """By the bound of a step, by what the host did in a host_wait, by the class of a gap, and the
    options of an engine by the bound."""

    bound: dict[str, str]
    host_wait: dict[str, str]
    gap: dict[str, str]
    engine: dict[str, dict[str, str]]


@cache
def _known_advice() -> _Advice:
    """The advice of advice.json."""
    data = files(__package__).joinpath("advice.json").read_bytes()
    return msgspec.json.decode(data, type=_Advice)


def _kernel_advice(parts: Sequence[AnswerPart], per: str) -> Iterator[str]:
    """The part of the kernels that loses most, with its rate."""
    first = next((part for part in parts if part.group == "kernels"), None)
    if first is None:
        return
    name = part_words(first.part)
    if first.limit_ns:
        of_limit = first.limit_ns / max(first.ns, 1)
        better = known_better().get(first.part)
        known = ""
        if better is not None and better.of_limit > of_limit and first.limit_bound == "memory":
            known = f"; {better.kernel} reaches {better.of_limit:.0%} ({better.where})"
        yield (
            f"start with {name}: {of_limit:.0%} of its limit; {duration(first.lost_ns)}{per} "
            f"could go{known}"
        )
    elif first.ops:
        yield f"start with {name}: {duration(first.ns)}{per}, {first.share:.0%} of it"
    else:
        yield _known_advice().gap.get(first.part, f"start with the time {name}")


class KnownBetter(msgspec.Struct, frozen=True):
    """The share of its limit that a kernel of ours reaches, and where that was measured."""

    kernel: str
    of_limit: float
    where: str


@cache
def known_better() -> dict[str, KnownBetter]:
    """The kernels of known_better.json, by the part that they are for, as the bundled recording of
    fused+graph shows them."""
    data = files(__package__).joinpath("known_better.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, KnownBetter])


def _fewer_bytes(variant: str) -> str:
    """How a step reads less: what the variant's name does not say yet."""
    words = variant.split("+")
    of_cache = [word for word in words if word.startswith("kv_")]
    of_weights = [word for word in words if any(format_word in word for format_word in NARROW)]
    less = ["a shorter KV cache"]
    if not of_cache:
        less.insert(0, "K and V in FP8 (+kv_fp8_e4m3)")
    if of_weights == of_cache:
        less.insert(0, "FP8 or INT8 weights")
    return (
        f"only fewer bytes make it faster: {', '.join(less)}; a larger batch reads the weights "
        "once for more tokens"
    )


def gap_advice(gap_class: str, label: str | None, call: str | None) -> str:
    """Advice about a gap of this class; `label` is the host's activity in a host_wait, `call` the
    launch call that ended the gap."""
    late = gap_class in ("launch_call", "launch_latency") or label == "python"
    if late and call is not None and "GraphLaunch" in call:
        return GRAPH_ADVICE
    advice = _known_advice()
    return advice.gap.get(gap_class) or advice.host_wait.get(label or "", _GRAPH)
