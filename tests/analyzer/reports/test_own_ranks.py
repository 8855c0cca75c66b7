"""The windows of our own ranks: what they communicate to the nanosecond, and one report of all."""

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Group

from decodescope.analyzer import analyze_ranks
from decodescope.analyzer.capture.profiler_session import STEP_RANGE
from decodescope.analyzer.reports.rank_analysis import RanksAnalysis
from decodescope.analyzer.schema.report import CaptureInfo
from decodescope.analyzer.views.ranks_table import ranks_report_table
from decodescope.analyzer.views.waiting_sections import waiting_sections
from tests.helpers.kineto_events import document, event, read
from tests.helpers.ranks.own import CAPTURE, STEPS, own_files
from tests.helpers.ranks.runs import ALL_REDUCE, BASE, PER_STEP, Run, a_run
from tests.helpers.rich_report import text_of

# As our kernels are traced.
OWN = "_all_reduce_residual_kernel"


def _analysed(folder: Path, run: Run, *captures: CaptureInfo, **changes: Any) -> RanksAnalysis:
    return analyze_ranks(own_files(folder, run, captures, **changes))


@pytest.mark.parametrize("name", [ALL_REDUCE, OWN])
@pytest.mark.parametrize("beside_ns", [0, 3_000])
def test_planted_communication_is_reported_to_the_nanosecond(
    tmp_path: Path, name: str, beside_ns: int
) -> None:
    run = a_run(2, STEPS * PER_STEP, np.array([0, 20_000]), transfer_ns=7_321, seed=4)
    ranks = _analysed(tmp_path, run, CAPTURE, CAPTURE, name=name, beside_ns=beside_ns)
    communication = ranks.report.communication
    entered_ns = run.start_ns.max(axis=0)
    for place, rank in enumerate(communication.ranks):
        wait_ns = entered_ns - run.start_ns[place]
        assert rank.collectives == STEPS * PER_STEP
        assert rank.transfer_ns == STEPS * PER_STEP * 7_321
        assert rank.wait_ns == wait_ns.sum()
        # The work beside begins with the collective: it covers the wait first.
        assert rank.exposed_wait_ns == np.maximum(wait_ns - beside_ns, 0).sum()
        covered_ns = np.maximum(beside_ns - wait_ns, 0)
        assert rank.exposed_transfer_ns == rank.transfer_ns - covered_ns.sum()
    assert communication.straggler is not None
    assert communication.straggler.rank == 1
    assert communication.skew is not None
    assert communication.skew.steps == STEPS
    for rank_report in ranks.report.ranks:
        answer = rank_report.report.answer
        (part,) = [part for part in answer.parts if part.group == "communication"]
        # 16 layers, two sums of 2048 values of 2 bytes each, of which each of two ranks sends one
        # whole; NVLink of an H200 takes 450 GB/s each way.
        sent_bytes = 16 * 2 * 2048 * 2
        assert part.bytes == sent_bytes
        assert (part.limit_ns, part.limit_bound) == (round(sent_bytes / 450), "links")


def test_the_merged_report_has_the_names_and_limits_of_each_rank(tmp_path: Path) -> None:
    run = a_run(2, STEPS * PER_STEP)
    ranks = _analysed(tmp_path, run, CAPTURE, CAPTURE, name=OWN)
    merged = ranks.all_merged("all").report
    alone = ranks.report.ranks[0].report
    assert len(merged.steps) == 2 * len(alone.steps) == 2 * STEPS
    assert merged.capture == alone.capture == CAPTURE
    assert merged.answer.limit_ns == alone.answer.limit_ns
    assert merged.answer.tokens_per_s == alone.answer.tokens_per_s
    assert [device.device for device in merged.devices] == ["rank 0 GPU 0", "rank 1 GPU 0"]


def test_windows_of_different_runs_have_no_capture_in_common(tmp_path: Path) -> None:
    other = msgspec.structs.replace(CAPTURE, variant="eager")
    ranks = _analysed(tmp_path, a_run(2, STEPS * PER_STEP), CAPTURE, other)
    assert ranks.all_merged("all").report.capture is None


def _cpu_files(
    folder: Path, start_ns: np.ndarray, end_ns: np.ndarray, *variants: str
) -> list[Path]:
    """Windows of ranks on CPUs, int64 [ranks, steps, sums a step]: an operator before each sum, all
    ranks with the same ids of process and thread."""
    paths = []
    for rank, variant in enumerate(variants):
        capture = msgspec.structs.replace(
            CAPTURE, device="cpu", variant=variant, steps=start_ns.shape[1]
        )
        events = []
        for starts, ends in zip(start_ns[rank].tolist(), end_ns[rank].tolist(), strict=True):
            events.append(event("user_annotation", STEP_RANGE, starts[0] - 500, ends[-1], 1, 5))
            for start, end in zip(starts, ends, strict=True):
                events.append(event("cpu_op", "aten::mm", start - 400, start - 10, 1, 5))
                events.append(event("user_annotation", "gloo:all_reduce", start, end, 1, 5))
        paths.append(folder / f"cpu.rank{rank}.json")
        info = {"backend": "gloo", "rank": rank, "world_size": len(variants)}
        keys = {"baseTimeNanoseconds": BASE, "distributedInfo": info}
        block = msgspec.to_builtins(capture)
        paths[-1].write_bytes(document(events, decodescope=block, **keys))
    return paths


def test_windows_of_cpus_are_on_one_clock(tmp_path: Path) -> None:
    """Ranks leave a sum as late as a busy CPU lets them: up to ten times later than it takes."""
    draw = np.random.default_rng(3)
    start_ns = 100_000 * np.arange(1, 13).reshape(3, 4) + draw.integers(0, 2_000, (2, 3, 4))
    end_ns = start_ns.max(axis=0) + 1_000 + draw.integers(0, 50_000, (2, 3, 4))
    ranks = analyze_ranks(_cpu_files(tmp_path, start_ns, end_ns, "eager", "eager"))
    merged, communication = ranks.all_merged("all").report, ranks.report.communication
    assert [device.device for device in merged.devices] == ["rank 0 cpu", "rank 1 cpu"]
    assert merged.on_cpu
    assert [step.gpu_ops for step in merged.steps] == [8] * 6
    assert merged.attribution is not None
    assert merged.attribution.none == 0
    (row,) = communication.collectives
    assert (row.matched, communication.clock) == (12, "common")
    waits_ns = start_ns.max(axis=0) - start_ns
    assert [rank.wait_ns for rank in communication.ranks] == waits_ns.sum(axis=(1, 2)).tolist()
    text = text_of(ranks_report_table(ranks.report))
    assert re.search("rank +file +operators", text)
    assert "eager · TP 2 · bf16" in text


def test_one_step_is_not_called_several(tmp_path: Path) -> None:
    start_ns = 100_000 * np.arange(1, 9) + np.array([[[0]], [[70]]])
    ranks = analyze_ranks(_cpu_files(tmp_path, start_ns, start_ns + 9_000, "eager", "eager"))
    text = text_of(Group(*waiting_sections(ranks.report.communication, 100, 9)))
    assert "1 step that 2 ranks recorded" in text


def test_windows_of_cpus_of_different_runs_are_not_merged(tmp_path: Path) -> None:
    start_ns = np.full((2, 3, 4), 1_000) + 100_000 * np.arange(12).reshape(3, 4)
    paths = _cpu_files(tmp_path, start_ns, start_ns + np.array([[[9]], [[8]]]), "eager", "compiled")
    (finding,) = analyze_ranks(paths).report.findings
    assert "a capture without a GPU is among them, and they are not of one run" in finding.message


def test_collectives_of_gloo_count_in_the_place_of_those_that_ask_for_them() -> None:
    capture = msgspec.to_builtins(msgspec.structs.replace(CAPTURE, device="cpu", steps=1))
    trace = read(
        document(
            [
                event("user_annotation", STEP_RANGE, 0, 10_000, 1, 5),
                event("cpu_op", "aten::mm", 100, 1_100, 1, 5),
                event("cpu_op", "c10d::allreduce_", 1_200, 1_300, 1, 5),
                event("user_annotation", "gloo:all_reduce", 1_250, 4_321, 1, 9),
                event("cpu_op", "aten::add", 4_400, 5_000, 1, 5),
            ],
            decodescope=capture,
        )
    )
    names = [trace.names[name] for name in trace.ops.name.tolist()]
    assert names == ["aten::mm", "gloo:all_reduce", "aten::add"]
    assert (trace.ops.end_ns - trace.ops.start_ns).tolist() == [1_000, 3_071, 600]
    assert set(trace.ops.stream.tolist()) == {5}
