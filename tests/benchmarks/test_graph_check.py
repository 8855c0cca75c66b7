"""Whole graph replays in a trace beside ncu's count of them."""

from pathlib import Path

import pytest

from benchmarks.counted_step import PROBE_CYCLES, WINDOW
from benchmarks.counter_figures import CountedVariants, tables
from benchmarks.graph_check import Workload, graph_figures, traced_workloads
from benchmarks.ncu_report import CountedWorkload, count_workloads, read_workloads
from decodescope.analyzer.errors import InputError
from tests.benchmarks.counter_sides import HEADER, LOG, ROWS, UNITS, fake_ncu, workloads
from tests.helpers.kineto_events import Event, call, document, op, span
from tests.helpers.rich_report import text_of


def step_events(step: int, replayed_ns: int = 700) -> list[Event]:
    """A copy, a replay of two overlapping kernels and a fill, and a kernel launched alone."""
    at, first = 100_000 * step, 10 * step
    events = [span(at, at + 50_000, "decode_step")]
    events.append(call(at + 10, at + 20, first, name="cudaMemcpyAsync"))
    events.append(op(at + 30, at + 40, first, name="Memcpy HtoD", cat="gpu_memcpy"))
    events.append(call(at + 50, at + 80, first + 1, name="cudaGraphLaunch"))
    events.append(op(at + 1_000, at + 1_400, first + 1, name="gemv", **{"graph id": 1}))
    events.append(
        op(at + 1_300, at + 1_000 + replayed_ns, first + 1, name="add", **{"graph id": 1})
    )
    events.append(
        op(at + 1_450, at + 1_500, first + 1, name="Memset", cat="gpu_memset", **{"graph id": 1})
    )
    events.append(call(at + 2_000, at + 2_100, first + 2))
    events.append(op(at + 3_000, at + 3_250, first + 2, name="void ns::norm<4>(int)"))
    return events


def write(path: Path, *replayed_ns: int) -> Path:
    steps = (step_events(number, ns) for number, ns in enumerate(replayed_ns))
    path.write_bytes(document([one for events in steps for one in events]))
    return path


def test_a_replay_lasts_from_its_first_start_to_its_last_end(tmp_path: Path) -> None:
    found = traced_workloads(write(tmp_path / "trace.json", 700, 710, 690))
    assert found == (
        Workload("gemv", True, (700, 710, 690), 3),
        Workload("void ns::norm<4>(int)", False, (250, 250, 250), 1),
    )
    assert found[0].median_ns == 700


def test_steps_that_differ_are_refused(tmp_path: Path) -> None:
    assert WINDOW.steps == 3
    with pytest.raises(InputError, match="2 steps, not 3"):
        traced_workloads(write(tmp_path / "two.json", 700, 700))
    events = [*step_events(0), *step_events(1), *step_events(2)[:-2]]
    path = tmp_path / "other.json"
    path.write_bytes(document(events))
    with pytest.raises(InputError, match=r"different work \(2, 2, 1 workloads\)"):
        traced_workloads(path)


def test_replays_are_added_up_and_what_ncu_adds_is_taken_off_once_for_each() -> None:
    found = graph_figures("compiled", *workloads(), None)
    assert (found.replays, found.ops, found.passes) == (2, 8, 2)
    assert found.trace_ns == (100_000, 99_500, 100_800)
    assert (found.ncu_ns, found.offset_ns) == (102_800, 1_000)
    assert found.trace_over_ncu == pytest.approx(100_000 / 100_800)
    assert (found.dram_read_bytes, found.dram_written_bytes) == (1_500, 150)
    assert found.claimed_bytes is None
    assert graph_figures("fused+graph", *workloads(), [7, 8]).claimed_bytes == 15
    shown = text_of(tables(CountedVariants([], [found])), width=140)
    assert "99.5 µs to 101 µs" in shown
    assert "0.992" in shown


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda traced, counted: counted.pop(), "24 workloads a step, ncu counted 23"),
        (
            lambda traced, counted: counted.__setitem__(0, CountedWorkload("norm", 1, 0, 0, 1)),
            r"workload 1 is 'void ns::copy<4>\(int\)' in the trace, but 'norm' under ncu",
        ),
        (
            lambda traced, counted: (traced.__delitem__(slice(1, 3)),
                                     counted.__delitem__(slice(1, 3))),
            "replays no graph",
        ),
        (
            lambda traced, counted: (traced.__delitem__(slice(3, None)),
                                     counted.__delitem__(slice(3, None))),
            "before the probes",
        ),
    ],
)  # fmt: skip
def test_sides_that_differ_are_refused(change: object, line: str) -> None:
    traced, counted = workloads()
    assert len(traced) == 3 + len(PROBE_CYCLES)
    change(traced, counted)  # type: ignore[operator]
    with pytest.raises(InputError, match=line):
        graph_figures("compiled", traced, counted, None)


def test_a_graph_needs_no_launch_shape_or_busy_time(tmp_path: Path) -> None:
    graph = ROWS.splitlines(keepends=True)[0].replace('"gemv"', '"Graph 5"')
    graph = graph.replace('"(128, 1, 1)","(2048, 1, 1)"', '"",""').replace('"6,912"', '"n/a"')
    (found,) = read_workloads(HEADER + UNITS + graph)
    assert found == CountedWorkload("Graph 5", 5_120, 16_777_216, 1_024, 1)
    ncu = fake_ncu(tmp_path, LOG)
    assert len(count_workloads(ncu, ["program"], tmp_path / "log.csv")) == 2
    arguments = (tmp_path / "arguments.json").read_text()
    assert '"--graph-profiling", "graph"' in arguments
    assert "sm__cycles_active" not in arguments
