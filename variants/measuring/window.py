"""Profiled windows of decode steps, and the names that a window gives to the ops of graph replays.

The ops of a graph replay have no ranges. They are named from a window of the same step without its
CUDA graph.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import decodescope
from decodescope.analyzer import analyze, load
from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.errors import first_line
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.reports.reference_ops import reference_from
from decodescope.analyzer.schema.graph_reference import GraphReference
from decodescope.analyzer.schema.report import CaptureInfo, ExpertsBalance
from decodescope.analyzer.timing.intervals import containing, outermost
from decodescope.analyzer.trace import Int64s
from decodescope.variants.machine.environment import device_name
from decodescope.variants.machine.read_peak import ReadPeak
from decodescope.variants.model.experts import balance_figures
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import StepFlops
from decodescope.variants.steps.decode_step import CallSite, DecodeStep

WINDOW_STEPS = 3


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """`warm` steps run before the recording, `lead` are recorded without a marker, `steps` count.

    A recording begins with a synchronisation. Without a lead step the device would wait for the
    host in the first step that counts.
    """

    warm: int
    lead: int
    steps: int

    @property
    def total(self) -> int:
        return self.warm + self.lead + self.steps


def window_plan(left: int, steps: int = WINDOW_STEPS) -> WindowPlan:
    """The plan of a window of up to `steps` steps when `left` tokens (at least 1) can be decoded.

    If too few are left, the window first has fewer `steps`, then no lead step, then no warm step.
    """
    warm = min(1, left - 1)
    lead = min(1, left - 1 - warm)
    return WindowPlan(warm, lead, min(steps, left - warm - lead))


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a measurement: a variant of a model on a device, and that device's figures."""

    loaded: LoadedModel
    workload: DecodeWorkload
    device: str
    variant: str
    read_peak: ReadPeak | None = None
    kernel_floor_ns: int | None = None


def capture_info(
    subject: Subject, step: DecodeStep, plan: WindowPlan, unprofiled_step_ns: int | None
) -> CaptureInfo:
    """Describes the window that `step` runs next; bytes and FLOPs are means over its steps."""
    loaded, workload = subject.loaded, subject.workload
    first = step.position + plan.warm + plan.lead
    positions = range(first, first + plan.steps)
    flops = StepFlops(loaded.model, workload.batch)
    peak = subject.read_peak
    return CaptureInfo(
        device=subject.device,
        device_name=device_name(subject.device),
        model=loaded.name,
        weights=loaded.weights,
        variant=subject.variant,
        dtype=workload.dtype,
        batch=workload.batch,
        context=workload.context,
        position=first,
        steps=plan.steps,
        bytes_per_step=mean_bytes_read(step, positions),
        unprofiled_step_ns=unprofiled_step_ns,
        decodescope_version=decodescope.__version__,
        measured_peak_bytes_per_s=peak.bytes_per_s if peak else None,
        measured_peak_at=peak.measured_at if peak else None,
        kernel_floor_ns=subject.kernel_floor_ns,
        flops_per_step=sum(map(flops.at, positions)) // plan.steps,
        lead_steps=plan.lead,
        experts=_balance(step),
        tp=loaded.ranks.size,
    )


def _balance(step: DecodeStep) -> ExpertsBalance | None:
    """How evenly the last step used its experts. Waits for the device."""
    if step.expert_choices is None:
        return None
    choices = step.expert_choices()
    distinct, busiest = balance_figures(choices, choices).tolist()
    return ExpertsBalance(choices.shape[1], distinct, busiest)


def mean_bytes_read(step: DecodeStep, positions: range) -> int:
    """Mean bytes that the steps at these cache lengths must read, weights and K and V. Of experts
    those that the last step used, where they are known."""
    return step.chosen_weight_bytes() + sum(map(step.kv_bytes_read, positions)) // len(positions)


def capture_window(
    step: DecodeStep,
    plan: WindowPlan,
    info: CaptureInfo,
    path: Path,
    profiler: ProfilerSession,
    reference: GraphReference | None,
    take: Callable[[torch.Tensor], object],
) -> None:
    """Profile the window of `step`, with ranges on its parts, and write it to `path`.

    `take` is called with the ids of every step. `reference` is stored in the same file, and the
    ops of graph replays have the paths of `step.node_paths`.

    Raises:
        InputError: `path` cannot be written.
    """
    # The shapes of a graph's products come with its reference. With shapes, the profiler keeps an
    # object of each tensor until the window ends. Between the tensors of a CPU they leave holes in
    # the heap that are too short for the next tensor: memory grows by all that the steps allocate.
    shapes = reference is None and info.device == "cuda"
    step.annotate_layers(True)
    try:
        profiler.capture(
            lambda: take(step.step()),
            plan.steps,
            path,
            info,
            plan.warm,
            reference,
            shapes,
            step.node_paths,
        )
    finally:
        step.annotate_layers(False)


def try_reference(
    step: DecodeStep,
    subject: Subject,
    prompt: torch.Tensor,
    session: ProfilerSession,
    say: Callable[[str], None],
) -> GraphReference | None:
    """The reference that attributes the graph replays of `step`; None if it replays none.

    Also None if the step without its graph cannot be compiled or run; stderr says why. `step` must
    be prefilled again afterwards.
    """
    try:
        ungraphed = step.ungraphed()
        if ungraphed is None:
            return None
        say("naming the kernels of the graph")
        return record_reference(ungraphed, subject, prompt, session)
    except Exception as error:  # compilers raise anything, and only names are lost
        if not subject.loaded.ranks.alone:
            # The other ranks may wait for this one.
            raise
        sys.stderr.write(f"kernels of the graph stay without ranges: {first_line(error)}\n")
        return None


def record_reference(
    step: DecodeStep, subject: Subject, prompt: torch.Tensor, session: ProfilerSession
) -> GraphReference:
    """The ops of `step`, which has no graph, from `prompt` [batch, context], with their paths."""
    step.prefill(prompt)
    step.step()
    step.reset(subject.workload.context)
    plan = window_plan(subject.workload.new_tokens, 1)
    info = capture_info(subject, step, plan, None)
    with WorkFolder() as folder:
        path = Path(folder, "ungraphed.json")
        capture_window(step, plan, info, path, session, None, lambda ids: None)
        analysis = analyze(load(path))
    return reference_from(analysis, 0, origin_paths(analysis, 0, step.call_sites()))


def origin_paths(analysis: Analysis, step: int, sites: Sequence[CallSite]) -> dict[int, str]:
    """The range path of those of the step's GPU ops that `sites` explain, by op index.

    The outermost operators of the step that have the name of a site must be the sites one for one.
    Otherwise no path is given: layers repeat the same kernels, and one call more would shift them
    all. An op has the path of the operator that launched it, below the range that the host had
    open.
    """
    operators = _operators(analysis, step, {site.operator for site in sites})
    trace = analysis.trace
    operator_names = [trace.names[name] for name in trace.cpu_ops.name[operators].tolist()]
    seen = set(operator_names)
    known = [site for site in sites if site.operator in seen]
    if not operator_names or operator_names != [site.operator for site in known]:
        return {}
    ranges = analysis.ranges
    paths = {}
    for op, operator in _launched_under(analysis, step, operators):
        node = int(ranges.op_node[op])
        if known[operator].path and node >= 0:
            paths[op] = f"{ranges.paths[node]}/{known[operator].path}"
    return paths


def _operators(analysis: Analysis, step: int, names: set[str]) -> Int64s:
    """The outermost operators of these names that began inside the step's marker, on its thread."""
    trace = analysis.trace
    operators, marker = trace.cpu_ops, int(analysis.steps.marker[step])
    if marker < 0:
        return np.zeros(0, dtype=np.int64)
    wanted = [number for number, name in enumerate(trace.names) if name in names]
    inside = np.isin(operators.name, wanted)
    inside &= operators.start_ns >= trace.ranges.start_ns[marker]
    inside &= operators.start_ns < trace.ranges.end_ns[marker]
    inside &= operators.pid == trace.ranges.pid[marker]
    inside &= operators.tid == trace.ranges.tid[marker]
    rows = np.flatnonzero(inside)
    return rows[outermost(operators.take(rows))]


def _launched_under(analysis: Analysis, step: int, operators: Int64s) -> list[tuple[int, int]]:
    """The step's ops, each with the index in `operators` of the one that launched it."""
    trace = analysis.trace
    ops = np.flatnonzero((analysis.steps.op_step == step) & (trace.ops.launch >= 0))
    calls = trace.ops.launch[ops]
    place = containing(trace.cpu_ops.take(operators), trace.calls.start_ns[calls])
    under = place >= 0
    under &= trace.calls.pid[calls] == trace.cpu_ops.pid[operators[0]]
    under &= trace.calls.tid[calls] == trace.cpu_ops.tid[operators[0]]
    return list(zip(ops[under].tolist(), place[under].tolist(), strict=True))
