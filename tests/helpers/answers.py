"""Answers made by hand: a step whose parts are known."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from decodescope.analyzer.schema.answer import Answer, AnswerPart, PartGroup
from decodescope.analyzer.schema.report import GAP_CLASSES, StepReport

_HOST = ("host_wait", "launch_call", "launch_latency", "unlinked")


def group_of(part: str) -> PartGroup:
    if part in _HOST:
        return "host"
    return part if part in ("communication", "copies", "profiler") else "kernels"  # type: ignore[return-value]


def answer_of(
    parts: Mapping[str, int], ops: Mapping[str, int] | None = None, **changes: Any
) -> Answer:
    """The answer of a trace whose median step has these parts, with their GPU ops (one each, none
    of idle time)."""
    counts = dict.fromkeys(parts, 1) | dict.fromkeys(GAP_CLASSES, 0) | dict(ops or {})
    whole_ns = sum(parts.values())
    answer = Answer(
        kind="decode",
        steps=3,
        step=1,
        step_ns=whole_ns,
        whole_ns=whole_ns,
        tokens_per_s=None,
        batch=None,
        limit_ns=None,
        limit_is_lower_bound=False,
        limit_bound=None,
        model=None,
        model_source=None,
        bound="kernels",
        parts=tuple(
            AnswerPart(part, group_of(part), ns, None, None, ns / (whole_ns or 1), counts[part])
            for part, ns in parts.items()
        ),
        interruptions_ns=0,
        host=(),
        because=(),
        next=(),
    )
    return msgspec.structs.replace(answer, **changes)


def answer_of_steps(steps: Sequence[StepReport], **changes: Any) -> Answer:
    """The answer of a trace with these steps: busy time is one role, and the rest idle time, that
    of the classes of the median step's gaps first. Without timed steps it is that of a window."""
    timed = sorted((step for step in steps if step.timed), key=lambda step: step.time_ns or 0)
    if not timed:
        whole: dict[str, Any] = {"step": None, "step_ns": None, "steps": len(steps)}
        return answer_of({"gate_up": sum(step.busy_ns for step in steps)}, **(whole | changes))
    median = timed[(len(timed) - 1) // 2]
    parts = {"gate_up": median.busy_ns} | median.gaps
    parts["host_wait"] = parts.get("host_wait", 0) + (median.time_ns or 0) - sum(parts.values())
    fields: dict[str, Any] = {"steps": len(timed), "step": median.index}
    return answer_of(parts, {"gate_up": median.gpu_ops}, **(fields | changes))
