"""Reports of one step with roles and layers, made by hand, and trace files with planted times."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.schema.comparison_report import PartChange, StepChanges
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.schema.step_report import LayerReport, StructureReport
from decodescope.analyzer.trace import Bools, Trace
from tests.helpers.answers import answer_of
from tests.helpers.comparison_reports import step_of, window_of
from tests.helpers.read_once import analysed_once, loaded_once

Layers = Mapping[int | str, tuple[int | None, int]]


def step_report(
    roles: Mapping[str, tuple[int, int]],
    layers: Layers | None = None,
    idle: Mapping[str, int] | None = None,
    *,
    step_ns: int | None = None,
    **changes: Any,
) -> Report:
    """A report of one step. `roles` have ops and ns, `layers` motif and ns; the step takes as long
    as roles and idle time, or `step_ns`, which moves the time waiting for the host."""
    gaps = dict(idle or {})
    busy_ns = sum(ns for _, ns in roles.values())
    whole_ns = busy_ns + sum(gaps.values()) if step_ns is None else step_ns
    made = tuple(
        LayerReport(layer, motif, 3, ns)  # type: ignore[arg-type]
        for layer, (motif, ns) in (layers or {}).items()
    )
    if tail_ns := whole_ns - busy_ns - sum(gaps.values()):
        gaps["host_wait"] = gaps.get("host_wait", 0) + tail_ns
    parts = {role: ns for role, (_, ns) in roles.items()} | gaps
    answer = answer_of(parts)
    answer = msgspec.structs.replace(
        answer,
        parts=tuple(
            msgspec.structs.replace(part, ops=roles[part.part][0]) if part.part in roles else part
            for part in answer.parts
        ),
    )
    numbered = sum(isinstance(layer, int) for layer in layers or {})
    fields: dict[str, Any] = {
        "layers": made,
        "answer": answer,
        "structure": StructureReport("repetition", numbered, 0, (), 0, "exact"),
    }
    return window_of([step_of(0, whole_ns, {})], **(fields | changes))


def bundled(variant: str) -> Trace:
    """The trace of the bundled recording of a variant."""
    return loaded_once(next(p for p in bundled_recordings() if p.stem.endswith(f"1b-{variant}")))


def analysed(path: Path) -> Report:
    return analysed_once(path).report


def slowed(trace: Trace, chosen: Bools, ns: int) -> Trace:
    """The trace with `ns` more for each chosen op; all later ops of its device begin later."""
    ops = trace.ops
    start_ns, end_ns = ops.start_ns.copy(), ops.end_ns.copy()
    for device in np.unique(ops.device).tolist():
        mine = ops.device == device
        after = np.cumsum(np.where(chosen[mine], ns, 0))
        start_ns[mine] += after - np.where(chosen[mine], ns, 0)
        end_ns[mine] += after
    return replace(trace, ops=replace(ops, start_ns=start_ns, end_ns=end_ns))


def assert_adds_up(step: StepChanges) -> None:
    """The parts add up exactly, on both sides; the largest change is first."""
    assert step.base_step_ns is not None
    assert step.other_step_ns is not None
    rows = step.parts
    assert sum(row.change_ns for row in rows) == step.other_step_ns - step.base_step_ns
    assert sum(row.base_ns or 0 for row in rows) == step.base_step_ns
    assert sum(row.other_ns or 0 for row in rows) == step.other_step_ns
    moved = [abs(row.change_ns) for row in rows]
    assert moved == sorted(moved, reverse=True)
    assert len({row.part for row in rows}) == len(rows)


def swapped(rows: Sequence[PartChange]) -> list[PartChange]:
    """The rows as they are with the two sides exchanged."""
    return [
        msgspec.structs.replace(
            row,
            base_ns=row.other_ns,
            other_ns=row.base_ns,
            change_ns=-row.change_ns,
            base_ops=row.other_ops,
            other_ops=row.base_ops,
        )
        for row in rows
    ]
