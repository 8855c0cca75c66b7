"""A step by part: the rows of both sides add up exactly, whatever the traces are."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations_with_replacement
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer import analyze
from decodescope.analyzer.comparing.diff import diff_reports
from decodescope.analyzer.comparing.pair_changes import step_changes
from decodescope.analyzer.names.rules import ROLES
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.schema.comparison_report import Diff, PartChange
from decodescope.analyzer.schema.report import GAP_CLASSES, Report
from decodescope.analyzer.schema.step_report import StepKindReport
from tests.helpers.planted.holds import ran_long
from tests.helpers.planted.step_reports import (
    analysed,
    assert_adds_up,
    bundled,
    slowed,
    step_report,
    swapped,
)

FOREIGN = (
    "mi300x_vllm_decode_graph.json.gz",
    "h200_llama1b_hf_eager.json.gz",
    "h100_qwen1.5_0.5b_eager.json.gz",
    "v100_cuda_graph.json.gz",
    "a100_eager.json.gz",
    "h100_2gpu_1s.sqlite",
    "cpu_only.json.gz",
)
NS = st.integers(0, 2**50)
ROLE_TIMES = st.dictionaries(st.sampled_from(ROLES), st.tuples(st.integers(0, 500), NS), min_size=1)
IDLE = st.none() | st.dictionaries(st.sampled_from(GAP_CLASSES), NS)


@cache
def recorded() -> dict[str, Report]:
    return {path.stem: analysed(path) for path in bundled_recordings()}


@st.composite
def reports(draw: st.DrawFn) -> Report:
    roles, idle = draw(ROLE_TIMES), draw(IDLE)
    layers: dict[int | str, tuple[int | None, int]] = {}
    for number in range(draw(st.integers(0, 9))):
        layers[number] = (draw(st.integers(0, 2)), draw(NS))
    if layers:
        places = draw(st.lists(st.sampled_from(("prologue", "epilogue", "outside")), unique=True))
        layers |= {place: (None, draw(NS)) for place in places}
    step_ns = draw(st.none() | st.integers(0, 2**52))
    return step_report(roles, layers, idle, step_ns=step_ns)


@given(reports(), reports())
def test_rows_add_up_and_exchanged_sides_negate_them(base: Report, other: Report) -> None:
    step, back = step_changes(base, other), step_changes(other, base)
    assert step is not None
    assert back is not None
    assert_adds_up(step)
    assert (back.base_step_ns, back.other_step_ns) == (step.other_step_ns, step.base_step_ns)
    assert list(back.parts) == swapped(step.parts)
    same = step_changes(base, base)
    assert same is not None
    assert not any(row.change_ns for row in same.parts)


def test_every_pair_of_recordings_adds_up() -> None:
    for one, two in combinations_with_replacement(recorded().values(), 2):
        step = step_changes(one, two)
        assert step is not None
        assert_adds_up(step)


def test_every_pair_of_foreign_traces_and_recordings_adds_up(foreign_traces: Path) -> None:
    every = {name: analysed(foreign_traces / name) for name in FOREIGN} | recorded()
    compared = 0
    for one, two in combinations_with_replacement(every.values(), 2):
        step = step_changes(one, two)
        assert step is not None
        timed = {each.answer.step_ns is not None and bool(each.devices) for each in (one, two)}
        if timed == {True}:
            compared += 1
            assert_adds_up(step)
        elif True in timed:
            assert step.parts == ()
    assert compared > 50


def test_an_engine_is_compared_with_a_recording_of_ours(foreign_traces: Path) -> None:
    engine, own = analysed(foreign_traces / FOREIGN[0]), recorded()["h200-llama-3.2-1b-fused+graph"]
    diff = diff_reports(engine, own)
    parts = {row.part: row for row in diff.answer.parts}
    assert parts["experts"].other_ns is None
    assert parts["down"].base_ns is None
    assert (parts["attention"].base_ops or 0) >= 24
    messages = {found.code: found.message for found in diff.findings}
    assert "batch 32 against 1" in messages["different_workloads"]
    assert "55,086 KV tokens" in messages["different_kv"]
    assert "MI300X against NVIDIA H200" in messages["different_workloads"]


def first(rows: Sequence[PartChange]) -> tuple[str, int]:
    return rows[0].part, rows[0].change_ns


@pytest.mark.parametrize("role", ["attention", "norm", "down"])
def test_a_planted_slow_role_is_first(role: str) -> None:
    trace = bundled("compiled")
    before = analyze(trace)
    chosen = before.structure.role == ROLES.index(role)
    ops = next(part.ops for part in before.report.answer.parts if part.part == role)
    step = step_changes(before.report, analyze(slowed(trace, chosen, 2_000)).report)
    assert step is not None
    assert_adds_up(step)
    assert first(step.parts) == (role, 2_000 * ops)
    assert not any(row.change_ns for row in step.parts[1:])
    back = step_changes(analyze(slowed(trace, chosen, 2_000)).report, before.report)
    assert back is not None
    assert first(back.parts) == (role, -2_000 * ops)


@pytest.mark.parametrize("variant", ["compiled", "eager"])
def test_a_step_that_is_always_interrupted_is_compared_without_that(variant: str) -> None:
    trace = bundled(variant)
    before = analyze(trace)
    held = trace
    for index, place in enumerate((40, 90, 150)):
        op = int(np.flatnonzero(before.steps.op_step == index)[place])
        held = ran_long(held, op, 50_000_000)
    report = analyze(held).report
    assert len(report.interruptions) == 3
    step = step_changes(before.report, report)
    assert step is not None
    assert_adds_up(step)
    assert abs((step.other_step_ns or 0) - (step.base_step_ns or 0)) < 1_000
    assert all(abs(row.change_ns) < 1_000 for row in step.parts if row.base_ops)


def findings(base: Report, other: Report) -> Iterator[tuple[str, str]]:
    yield from ((one.code, one.message) for one in diff_reports(base, other).findings)


def test_what_limits_the_comparison_is_said() -> None:
    layered = step_report({"o": (1, 100)}, {0: (0, 50), 1: (0, 50)})
    answer = msgspec.structs.replace(layered.answer, step=None, step_ns=None)
    whole = msgspec.structs.replace(layered, steps=(), layers=(), answer=answer)
    said = dict(findings(whole, layered))
    assert "steps_on_one_side" in said
    assert step_changes(whole, layered).parts == ()  # type: ignore[union-attr]
    assert step_changes(None, layered) is None


@pytest.mark.parametrize(
    ("one", "two", "words"),
    [(1000, 2000, "1,000 KV tokens, those of B 2,000"), (1000, 1090, ""), (None, 7, "")],
)
def test_other_kv_lengths_are_a_finding(one: int | None, two: int | None, words: str) -> None:
    base, other = (
        step_report({"o": (1, 9)}, step_kinds=(StepKindReport("decode", 3, 1, kv, None, 9),))
        for kv in (one, two)
    )
    message = dict(findings(base, other)).get("different_kv", "")
    assert words in message
    assert bool(words) == bool(message)
    assert diff_reports(base, other).answer.differences == ()


def test_the_json_round_trips() -> None:
    reports = recorded()
    diff = diff_reports(reports["h200-llama-3.2-1b-eager"], reports["h200-llama-3.2-1b-compiled"])
    assert msgspec.json.decode(msgspec.json.encode(diff), type=Diff) == diff
    answer = msgspec.json.decode(msgspec.json.encode(diff))["answer"]
    changes_ns = sum(row["change_ns"] for row in answer["parts"])
    assert changes_ns == answer["other_step_ns"] - answer["base_step_ns"]
