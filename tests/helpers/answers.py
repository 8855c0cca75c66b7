"""Answers made by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from decodescope.analyzer.schema.answer import Answer, AnswerPart, LimitBound, PartGroup
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.schema.step_report import StepReport

GROUPS: dict[str, PartGroup] = {
    **dict.fromkeys(("host_wait", "launch_call", "launch_latency", "unlinked"), "host"),
    "communication": "communication",
    "memcpy": "copies",
    "profiler": "profiler",
}


def part_of(name: str, ns: int, ops: int = 0, limit_ns: int | None = None) -> AnswerPart:
    """A part of `ns` whose share is not filled in; idle time has no ops."""
    over_ns = ns if name in GAP_CLASSES else None if limit_ns is None else ns - limit_ns
    kernel = None if name in GAP_CLASSES else f"{name}_kernel"
    bound: LimitBound | None = None if limit_ns is None else "memory"
    group = GROUPS.get(name, "kernels")
    return AnswerPart(name, group, ns, limit_ns, over_ns, 0.0, ops, kernel, limit_bound=bound)


def answer_of(parts: Mapping[str, int], ops: int = 1, **changes: Any) -> Answer:
    """The answer of a decode step with these parts, in their order; those that take time beside
    idle time have `ops` each."""
    whole_ns = sum(parts.values())
    answer = Answer(
        kind="decode",
        steps=1,
        step=0,
        step_ns=whole_ns,
        whole_ns=whole_ns,
        bound="kernels",
        parts=tuple(
            msgspec.structs.replace(
                part_of(name, ns, 0 if name in GAP_CLASSES else ops),
                share=ns / whole_ns if whole_ns else 0.0,
            )
            for name, ns in parts.items()
        ),
    )
    return msgspec.structs.replace(answer, **changes)


def answer_of_steps(steps: Sequence[StepReport], **changes: Any) -> Answer:
    """The answer of a trace with these steps: busy time is one role, the rest idle time, of the
    classes of the median step's gaps first. Without timed steps it is that of a window."""
    timed = sorted((step for step in steps if step.timed), key=lambda step: step.time_ns or 0)
    if not timed:
        whole: dict[str, Any] = {"step": None, "step_ns": None, "steps": len(steps)}
        return answer_of({"gate_up": sum(step.busy_ns for step in steps)}, **(whole | changes))
    median = timed[(len(timed) - 1) // 2]
    parts = {"gate_up": median.busy_ns} | median.gaps
    parts["host_wait"] = parts.get("host_wait", 0) + (median.time_ns or 0) - sum(parts.values())
    fields: dict[str, Any] = {"steps": len(timed), "step": median.index, "bound": "memory"}
    return answer_of(parts, median.gpu_ops, **(fields | changes))
