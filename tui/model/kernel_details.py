"""Details of a kernel and of one of its launches: figures, roles, and waits for other GPUs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from decodescope.analyzer.attribution.range_tree import host_activity
from decodescope.analyzer.names.rules import ROLES, kernel_meaning
from decodescope.analyzer.names.short_names import readable_kernel
from decodescope.analyzer.reports.kernel_launches import (
    KernelLaunches,
    kernel_group,
    kernel_profile,
    op_facts,
    op_groups,
)
from decodescope.analyzer.schema.kernel_report import KernelReport, LaunchShape, Percentiles
from decodescope.analyzer.structure.step_structure import KNOWN_BY, NO_LAYER, UNKNOWN_ROLE
from decodescope.analyzer.text.formatting import (
    UNKNOWN,
    bytes_size,
    count,
    duration,
    extent_text,
    number,
    percent,
    significant,
)
from decodescope.analyzer.trace import Bools
from decodescope.analyzer.vocabulary.words import device_words
from decodescope.tui.model.view import Window


@dataclass(frozen=True, slots=True)
class DetailLine:
    """A label and a text of any length, "" of a line that is left out; without a label the text
    starts at the left edge. `fold`: of a long name, the screen shows two lines."""

    label: str
    text: str
    tone: Literal["strong", "text", "dim", "accent", "warn", "bad"] = "text"
    fold: bool = False


_SHAPES_SHOWN = 4


def kernel_lines(window: Window, name: str, within: str | None = None) -> Iterator[DetailLine]:
    """The figures of a kernel in the window, or in the range `within`; its name is last."""
    profile = kernel_profile(window.analysis, name, within)
    if profile is None:
        where = "" if within is None else f" in range {within}"
        yield DetailLine("", f"did not run{where} ({window.steps_words})", "dim")
        yield from _name_lines(name)
        return
    kernel = profile.report
    chosen = window.analysis.trace.ops.name == window.analysis.trace.names.index(name)
    chosen &= window.analysis.ranges.ops_within(within)
    yield from kernel_time_lines(window, kernel)
    yield from _role_lines(window, chosen)
    for kernel_range in profile.ranges:
        launches, time = count(kernel_range.launches), duration(kernel_range.attributed_ns)
        yield DetailLine("in", f"{kernel_range.path}: {launches} launches, {time}")
    more = f"and {count(profile.other_ranges)} more ranges" if profile.other_ranges else ""
    yield DetailLine("", more, "dim")
    for shape, times in profile.shapes[:_SHAPES_SHOWN]:
        yield DetailLine("shape", f"{_shape_text(shape)}: {count(times)} launches")
    if len(profile.shapes) > _SHAPES_SHOWN:
        yield DetailLine("", f"and {len(profile.shapes) - _SHAPES_SHOWN} more shapes", "dim")
    yield DetailLine("launched by", ", ".join(profile.calls))
    yield DetailLine("took", spread_words(profile.lengths))
    yield DetailLine("gap before", spread_words(profile.gaps) if profile.gaps else "")
    yield from _waiting_lines(window, chosen)
    if kernel.short_calls:
        calls = f"{count(kernel.short_calls)} of {count(kernel.count)}"
        yield DetailLine("short", f"{calls} ran for less time than their launch call took", "warn")
    yield DetailLine("streams", ", ".join(map(str, profile.streams)))
    yield DetailLine("family", kernel_meaning(name).family)
    yield DetailLine("within", within or "", "dim")
    yield from _name_lines(name)


def kernel_time_lines(window: Window, kernel: KernelReport) -> Iterator[DetailLine]:
    steps = window.report.main_steps.steps
    per_step = f", {duration(kernel.total_ns / steps)} per step" if steps else ""
    share = f"{percent(kernel.share)} % of kernel time"
    yield DetailLine("total", f"{duration(kernel.total_ns)}{per_step}, {share}", "strong")
    if kernel.attributed_ns != kernel.total_ns:
        share = f"{percent(kernel.attributed_share)} % of attributed time"
        yield DetailLine("attributed", f"{duration(kernel.attributed_ns)}, {share}")
    yield from _roofline_lines(kernel)
    per_step = f", {number(kernel.count / steps)} per step" if steps else ""
    yield DetailLine("launches", f"{count(kernel.count)}{per_step}")


def kernel_group_lines(
    window: Window, by: str, name: str, within: str | None
) -> Iterator[DetailLine]:
    sums = kernel_group(window.analysis, by, name, within)
    if sums is None:
        yield DetailLine("", f"no kernel here of {by} {name}", "dim")
        return
    yield from kernel_time_lines(window, sums)
    group, names = op_groups(window.analysis, by)
    chosen = window.analysis.main_ops & (group == names.index(name))
    yield from _role_lines(window, chosen & window.analysis.ranges.ops_within(within))
    yield DetailLine(by, name, fold=True)


def op_lines(window: Window, row: int) -> Iterator[DetailLine]:
    analysis = window.analysis
    trace, facts = analysis.trace, op_facts(window.analysis, np.array([row]))
    ops, call = trace.ops, int(trace.ops.launch[row])
    yield DetailLine("took", duration(int(facts.length_ns[0])), "strong")
    if facts.attributed_ns[0] != facts.length_ns[0]:
        alone = duration(int(facts.attributed_ns[0]))
        yield DetailLine("attributed", f"{alone}; before that another op of the device ran")
    yield from op_role_lines(window, row)
    node, shape = int(analysis.ranges.op_node[row]), int(ops.shape[row])
    yield DetailLine("range", analysis.ranges.paths[node] if node >= 0 else "", fold=True)
    yield DetailLine("shape", _shape_text(trace.shapes[shape]) if shape >= 0 else "")
    yield from op_waiting_lines(window, row)
    gap_ns = int(facts.gap_ns[0])
    yield DetailLine("gap before", duration(gap_ns) if gap_ns else "none")
    yield from _launch_lines(window, facts, call)
    step = int(analysis.steps.op_step[row])
    if step >= 0:
        since_ns = int(ops.start_ns[row] - analysis.steps.span.start_ns[step])
        yield DetailLine("step", f"{step}, {duration(since_ns)} after its first op")
    yield DetailLine("at", f"{duration(int(facts.at_ns[0]))} after the first op of the trace")
    where = device_words(trace.device_label(int(ops.device[row])))
    queue = "thread" if trace.on_cpu else "stream"
    yield DetailLine("on", f"{where}, {queue} {int(ops.stream[row])}")
    yield from _name_lines(trace.names[int(ops.name[row])])


def _launch_lines(window: Window, facts: KernelLaunches, call: int) -> Iterator[DetailLine]:
    trace = window.analysis.trace
    if call < 0:
        if not trace.on_cpu:
            yield DetailLine("launch", "its launch call is not in the trace", "dim")
        return
    yield DetailLine("launched by", trace.names[int(trace.calls.name[call])])
    yield DetailLine("call took", duration(int(trace.calls.length_ns[call])))
    yield DetailLine("queued", duration(_known(int(facts.queue_ns[0]))))
    yield DetailLine("call to start", duration(_known(int(facts.latency_ns[0]))))
    pid, tid = int(trace.calls.pid[call]), int(trace.calls.tid[call])
    host = host_activity(trace, int(trace.calls.start_ns[call]), pid, tid)
    yield DetailLine("host", " / ".join(filter(None, (host.range, host.operator))))


def _name_lines(name: str) -> Iterator[DetailLine]:
    readable = readable_kernel(name)
    yield DetailLine("name", readable, fold=True)
    yield DetailLine("symbol", name if readable != name else "", "dim", fold=True)


def spread_words(times: Percentiles | None) -> str:
    if times is None:
        return UNKNOWN
    shown = (("min", times.min), ("median", times.p50), ("p99", times.p99), ("max", times.max))
    return ", ".join(f"{name} {duration(ns)}" for name, ns in shown)


def _roofline_lines(kernel: KernelReport) -> Iterator[DetailLine]:
    roof = kernel.roofline
    if roof is None:
        return
    if roof.limit is not None:
        yield DetailLine("limit", f"{roof.limit}, {percent(roof.share_of_limit)} % of its peak")
    moved = f"{bytes_size(roof.bytes / roof.calls)} a launch, {bytes_size(roof.bytes_per_s)}/s"
    yield DetailLine("moves", moved)
    yield DetailLine("computes", f"{significant(roof.flops_per_s / 1e12)} TFLOP/s")
    if roof.calls < kernel.count:
        known = f"known of {count(roof.calls)} of {count(kernel.count)} launches"
        yield DetailLine("", known, "dim")


def _shape_text(shape: LaunchShape) -> str:
    parts = [f"grid {extent_text(shape.grid)}", f"block {extent_text(shape.block)}"]
    if shape.registers_per_thread is not None:
        parts.append(f"{shape.registers_per_thread} registers a thread")
    if shape.shared_memory_bytes is not None:
        parts.append(f"{shape.shared_memory_bytes:,} B shared memory")
    return ", ".join(parts)


def _known(ns: int) -> int | None:
    return ns if ns >= 0 else None


def op_waiting_lines(window: Window, row: int) -> Iterator[DetailLine]:
    """How long an op waited for other GPUs, and its transfer; only of matched collectives."""
    waits, trace = window.tracks.waits, window.analysis.trace
    ops = trace.ops
    place = waits.of_op(row) if waits is not None else None
    if waits is None or place is None:
        return
    transfer_start_ns, last = int(waits.transfer_start_ns[place]), int(waits.last[place])
    members = f"{count(int(waits.members[place]))} GPUs"
    if last >= 0 and last == int(ops.device[row]):
        caused = duration(int(waits.caused_ns[place]))
        yield DetailLine(
            "waited",
            f"not at all: it entered last; the others of {members} waited {caused} in all",
            "warn",
        )
    else:
        whom = device_words(trace.device_label(last)) if last >= 0 else "several"
        waited = duration(transfer_start_ns - int(ops.start_ns[row]))
        yield DetailLine("waited", f"{waited} for {whom}, which entered last of {members}")
    yield DetailLine("transfer", duration(int(ops.end_ns[row]) - transfer_start_ns))


def _waiting_lines(window: Window, chosen: Bools) -> Iterator[DetailLine]:
    waits, ops = window.tracks.waits, window.analysis.trace.ops
    if waits is None:
        return
    kernel_waits = waits.take(chosen[waits.op])
    total_ns = int(ops.take(kernel_waits.op).length_ns.sum())
    if total_ns:
        waited_ns = int((kernel_waits.transfer_start_ns - ops.start_ns[kernel_waits.op]).sum())
        share = f"{percent(waited_ns / total_ns)} % of {count(len(kernel_waits))} collectives' time"
        yield DetailLine("waited", f"{duration(waited_ns)} for other GPUs, {share}")


_ROLES_SHOWN = 4
_INFERRED_LAYER = re.compile(r"(?:^|/)layer\.(\d+|\*)$")


def op_role_lines(window: Window, row: int) -> Iterator[DetailLine]:
    """The role of an op, how it is known, and its layer; nothing for what is not known."""
    structure = window.analysis.structure
    known, layer = int(structure.confidence[row]), int(structure.layer[row])
    if known != UNKNOWN_ROLE:
        yield DetailLine("role", f"{ROLES[int(structure.role[row])]}, known by {KNOWN_BY[known]}")
    if layer != NO_LAYER:
        step = int(window.analysis.steps.op_step[row])
        yield DetailLine("layer", _layer_words(window, step, layer))


def _role_lines(window: Window, chosen: Bools) -> Iterator[DetailLine]:
    roles = _roles(window, chosen)
    if roles and (roles[0][0] != "other" or len(roles) > 1):
        several = len(roles) > 1
        parts = [f"{role} {count(ops)} \u00d7" if several else role for role, ops, _ in roles]
        known = int(window.analysis.structure.confidence[chosen].max(initial=0))
        yield DetailLine("role", f"{', '.join(parts)}, known by {KNOWN_BY[known]}")


def range_role_lines(window: Window, path: str, *, inferred: bool) -> Iterator[DetailLine]:
    """The roles of a range, the longest first; of an inferred layer also its motif."""
    chosen = window.analysis.ranges.ops_within(path)
    if inferred and (layer := _INFERRED_LAYER.search(path)):
        yield from _motif_lines(window, layer[1], chosen)
    roles = _roles(window, chosen)
    if len(roles) < 2:
        yield from _role_lines(window, chosen)
        return
    all_ns = sum(ns for _, _, ns in roles) or 1
    parts = [f"{role} {percent(ns / all_ns)} %" for role, _, ns in roles[:_ROLES_SHOWN]]
    if (more := len(roles) - _ROLES_SHOWN) > 0:
        parts.append(f"{more} more")
    yield DetailLine("roles", ", ".join(parts))


def _motif_lines(window: Window, number: str, chosen: Bools) -> Iterator[DetailLine]:
    structure = window.report.structure
    if structure is None or not structure.layers:
        return
    if number != "*":
        steps = window.analysis.steps.op_step[chosen]
        yield DetailLine("layer", _layer_words(window, int(steps[0]), int(number)))
        return
    motifs = zip(structure.motif_layers, structure.layer_ops, strict=True)
    texts = [f"{count(layers)} of {count(ops)} ops" for layers, ops in motifs]
    kinds = "motif" if len(texts) == 1 else "motifs"
    yield DetailLine(
        "layers", f"{count(structure.layers)}, {len(texts)} {kinds}: {', '.join(texts)}"
    )


def _layer_words(window: Window, step: int, number: int) -> str:
    """ "3 of 24 (from 0), 17 ops, motif 1 of 2"."""
    _, step_layers = window.analysis.structure.of_step.get(step, (None, None))
    if step_layers is None or number >= len(step_layers.layers):
        return f"{number}"
    layer = step_layers.layers[number]
    text = f"{number} of {len(step_layers.layers)} (from 0), {count(layer.end - layer.start)} ops"
    motifs = len(step_layers.motif_ops)
    return text if motifs == 1 else f"{text}, motif {layer.motif + 1} of {motifs}"


def _roles(window: Window, chosen: Bools) -> list[tuple[str, int, int]]:
    """(role, ops, attributed time in ns) of the chosen ops, those with most time first."""
    role = window.analysis.structure.role[chosen]
    ops = np.bincount(role, minlength=len(ROLES))
    ns = np.bincount(role, window.analysis.attributed_ns[chosen], len(ROLES))
    order = np.lexsort((-ops, -ns))
    return [(ROLES[role], int(ops[role]), int(ns[role])) for role in order.tolist() if ops[role]]
