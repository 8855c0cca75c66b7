"""The figures of one step add up to what its ops, gaps and interruptions are in each instant."""

from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from decodescope.analyzer import Analysis, analyze
from decodescope.analyzer.names.rules import ROLES
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.reports.analysis import analysis_of_step, step_limits_ns
from decodescope.analyzer.reports.gap_list import GapChoice, chosen_gaps, idle_table
from decodescope.analyzer.schema.report import GAP_CLASSES
from tests.helpers.kineto_events import DATA, read
from tests.helpers.planted.situations import SITUATIONS, situation
from tests.helpers.read_once import analysed_once

RECORDED = ("h200_compiled_replays", "h200_graph_replays", "cpu_two_blocks")
VARIANTS = ("eager", "fused+graph")
MOST_STEPS = 5


@cache
def analysis_of(name: str) -> Analysis:
    if name in SITUATIONS:
        return analyze(read(situation(name, 0).traces[0]))
    if name in RECORDED:
        return analysed_once(DATA / f"{name}.json.gz")
    (path,) = (path for path in bundled_recordings() if path.stem.endswith(f"-1b-{name}"))
    return analysed_once(path)


def launched(analysis: Analysis) -> list[int]:
    return np.flatnonzero(analysis.steps.gpu_ops).tolist()


def some_steps(analysis: Analysis) -> list[int]:
    """Steps with ops: the first ones, of each kind and interrupted, and the last one."""
    with_ops = launched(analysis)
    kinds = {analysis.step_annotations[index].kind: index for index in reversed(with_ops)}
    held = np.flatnonzero(analysis.interrupted_ns).tolist()
    return sorted({*with_ops[: MOST_STEPS - 2], *with_ops[-1:], *held[:2], *kinds.values()})


def pieces_of(analysis: Analysis, index: int) -> list[tuple[int, int]]:
    """The time of a step in pieces at every change of an op, a part of a gap or an interruption of
    its devices, without those in which all of its devices are interrupted."""
    steps, trace = analysis.steps, analysis.trace
    devices = steps.devices[index]
    following = int(steps.following[index])
    start_ns = int(steps.span.start_ns[index])
    end_ns = int(steps.span.end_ns[index] if following < 0 else steps.span.start_ns[following])
    own = [one for one in analysis.interruptions if one.device in devices]
    on_devices = np.isin(trace.ops.device, devices)
    edges = {start_ns, end_ns, *(edge for one in own for edge in (one.start_ns, one.end_ns))}
    for column in (trace.ops.start_ns, trace.ops.end_ns):
        edges.update(column[on_devices].tolist())
    edges.update(analysis.parts.start_ns.tolist())
    edges.update(analysis.parts.end_ns.tolist())
    inside = sorted(edge for edge in edges if start_ns <= edge <= end_ns)

    def interrupted(at_ns: int) -> bool:
        held = {one.device for one in own if one.start_ns <= at_ns < one.end_ns}
        return len(held) == len(devices)

    return [piece for piece in pairwise(inside) if not interrupted(piece[0])]


@pytest.mark.parametrize("name", [*SITUATIONS, *RECORDED, *VARIANTS])
def test_the_answer_of_a_step_is_what_runs_in_each_of_its_instants(name: str) -> None:
    analysis = analysis_of(name)
    trace, steps = analysis.trace, analysis.steps
    limits_ns = step_limits_ns(analysis, launched(analysis))
    for index in some_steps(analysis):
        chosen = analysis_of_step(analysis, index)
        answer, row = chosen.report.answer, analysis.report.steps[index]
        assert (answer.step, answer.kind, chosen.median_step) == (index, row.kind, index)
        assert answer.limit_ns == limits_ns.get(index)
        busy_ns, idle_ns, roles_ns = 0, Counter[str](), Counter[str]()
        alone = True
        on_devices = np.isin(trace.ops.device, steps.devices[index])
        for start_ns, end_ns in pieces_of(analysis, index):
            runs = on_devices & (trace.ops.start_ns <= start_ns) & (trace.ops.end_ns >= end_ns)
            running = np.flatnonzero(runs).tolist()
            busy_ns += (end_ns - start_ns) * bool(running)
            alone = alone and len(running) < 2
            for op in running:
                roles_ns[ROLES[analysis.structure.role[op]]] += end_ns - start_ns
            if not running and len(steps.devices[index]) == 1:
                parts = analysis.parts
                on = analysis.gaps.device[parts.gap] == steps.devices[index][0]
                (part,) = np.flatnonzero(
                    on & (parts.start_ns <= start_ns) & (parts.end_ns > start_ns)
                )
                idle_ns[GAP_CLASSES[parts.kind[part]]] += end_ns - start_ns
        of_kernels = {part.part: part.ns for part in answer.parts if part.kernel is not None}
        of_idle = {part.part: part.ns for part in answer.parts if part.kernel is None}
        assert answer.whole_ns == answer.step_ns == row.time_ns
        assert sum(of_kernels.values()) == busy_ns
        assert sum(of_idle.values()) == row.time_ns - busy_ns
        if idle_ns and not trace.on_cpu and "profiler" not in of_idle:
            assert of_idle == {name: ns for name, ns in idle_ns.items() if ns}
        for role in of_kernels.keys() & set(ROLES[1:]) if alone else ():
            if role not in ("copy", "communication"):
                assert of_kernels[role] == roles_ns[role], role


@pytest.mark.parametrize("name", [*SITUATIONS, *RECORDED, *VARIANTS])
def test_the_tables_of_a_step_count_what_it_launched(name: str) -> None:
    analysis = analysis_of(name)
    trace, steps = analysis.trace, analysis.steps
    for index in some_steps(analysis):
        chosen = analysis_of_step(analysis, index)
        report = chosen.report
        own = np.flatnonzero(steps.op_step == index).tolist()
        assert np.flatnonzero(chosen.main_ops).tolist() == own
        counts, total_ns = Counter[str](), Counter[str]()
        for op in own:
            if trace.ops.kind[op] == trace.kernel_kind:
                kernel = trace.names[trace.ops.name[op]]
                counts[kernel] += 1
                total_ns[kernel] += int(trace.ops.length_ns[op])
        assert {kernel.name: kernel.count for kernel in report.kernels} == counts
        assert {kernel.name: kernel.total_ns for kernel in report.kernels} == total_ns
        of_paths: dict[str, set[int]] = defaultdict(set)
        for op in own:
            node = int(chosen.ranges.op_node[op])
            while node >= 0:
                of_paths[chosen.ranges.paths[node]].add(op)
                node = chosen.ranges.tree.parents[node]
        assert {found.path: found.gpu_ops for found in report.ranges} == {
            path: len(ops) for path, ops in of_paths.items()
        }
        main = report.main_steps
        assert (main.steps, main.gpu_ops) == (1, len(own))
        assert main.launch_calls == report.launches.calls == report.steps[index].launch_calls
        assert sum(total.total_ns for total in main.gaps.values()) == main.all_gaps.total_ns


@pytest.mark.parametrize("name", [*SITUATIONS, *RECORDED, *VARIANTS])
def test_the_median_step_chosen_has_the_answer_of_the_trace(name: str) -> None:
    analysis = analysis_of(name)
    answer = analysis.report.answer
    if answer.step is None:
        assert step_limits_ns(analysis, launched(analysis)) == {}
        return
    chosen = analysis_of_step(analysis, answer.step)
    same = chosen.report.answer
    assert (same.parts, same.bound, same.model) == (answer.parts, answer.bound, answer.model)
    assert (same.step_ns, same.limit_ns, same.kind) == (
        answer.step_ns,
        answer.limit_ns,
        answer.kind,
    )
    report = chosen.report
    assert (report.layers, report.structure) == (analysis.report.layers, analysis.report.structure)
    assert report.step_cost == analysis.report.step_cost
    unchanged = ("steps", "devices", "step_kinds", "health", "source", "interruptions")
    assert all(getattr(report, key) is getattr(analysis.report, key) for key in unchanged)


@pytest.mark.parametrize("name", [*SITUATIONS, *RECORDED, *VARIANTS])
def test_the_gaps_of_a_step_are_its_idle_time_and_its_interruptions(name: str) -> None:
    """A gap of a step is whole, with what interrupts it."""
    analysis = analysis_of(name)
    for index in some_steps(analysis):
        if len(analysis.busy) > 1 or not analysis.report.steps[index].timed:
            continue
        choice = GapChoice(step=index)
        main = analysis_of_step(analysis, index).report.main_steps
        gaps = analysis.gaps.take(chosen_gaps(analysis, analysis.ranges, choice))
        held_ns = sum(
            max(0, min(one.end_ns, end_ns) - max(one.start_ns, start_ns))
            for one in analysis.interruptions
            for start_ns, end_ns in zip(gaps.start_ns.tolist(), gaps.end_ns.tolist(), strict=True)
        )
        assert int(gaps.length_ns.sum()) == main.all_gaps.total_ns + held_ns
        totals, of_ns = idle_table(analysis, analysis.ranges, choice)
        row = analysis.report.steps[index]
        assert of_ns == (row.time_ns or 0) + row.interrupted_ns
        if not held_ns:
            found = {name: total.total_ns for name, total in totals.gaps.items() if total.count}
            assert found == {name: total.total_ns for name, total in main.gaps.items()}


def test_the_limit_of_a_step_grows_with_its_keys_and_values() -> None:
    """Llama 3.2 1B reads K and V of one more position a step: 16 layers, 8 heads of 64, bf16."""
    analysis = analysis_of("eager")
    limits_ns, cost = step_limits_ns(analysis, launched(analysis)), analysis.report.step_cost
    assert cost is not None
    assert cost.peak_bytes_per_s is not None
    position_ns = 16 * 2 * 8 * 64 * 2 * 1e9 / cost.peak_bytes_per_s
    for first, second in pairwise(limits_ns):
        assert limits_ns[second] - limits_ns[first] == pytest.approx(position_ns, abs=1)
    assert len(limits_ns) == len(analysis.report.steps)
