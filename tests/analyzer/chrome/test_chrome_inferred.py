"""Layers and roles above ops, and interruptions, in a Chrome trace."""

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decodescope.analyzer import Analysis, Given, analyze, load
from decodescope.analyzer.chrome.chrome_export import export_chrome
from tests.analyzer.chrome.test_chrome_export import assert_nested, figures
from tests.helpers.foreign.layered import (
    EPILOGUE,
    LAYER,
    LAYER_ROLES,
    PROLOGUE,
    layered,
    slow_layered,
)
from tests.helpers.hostile import HOSTILE
from tests.helpers.kineto_events import Event, call, op, span, trace_of
from tests.helpers.planted.holds import held_before, launching_calls, ran_long, with_pause

MS = 1_000_000


def exported(analysis: Analysis, folder: Path) -> list[Event]:
    export_chrome(analysis, folder / "out.json")
    text = (folder / "out.json").read_text()
    events: list[Event] = json.loads(text, parse_float=Decimal)["traceEvents"]
    assert_nested(events)
    again = load(folder / "out.json")
    assert "not_understood" not in {one.code for one in again.findings}
    assert figures(analyze(again)) == figures(analysis)
    return events


def of_category(events: list[Event], category: str) -> list[Event]:
    return [one for one in events if one.get("cat") == category]


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("name", ["step_{}", ""])
def test_layers_and_roles_stand_above_their_ops(tmp_path: Path, graph: bool, name: str) -> None:
    analysis = analyze(trace_of(*layered(graph=graph, name=name, steps=3)))
    events = exported(analysis, tmp_path)
    assert len(analysis.report.steps) == 3
    found = of_category(events, "inferred_range")
    layers = [one for one in found if one["name"].startswith("layer.")]
    assert Counter(one["name"] for one in layers) == {f"layer.{n}": 3 for n in range(4)}
    ops = [(one["ts"], one["ts"] + one["dur"]) for one in of_category(events, "kernel")]
    for layer in layers:
        start, end = layer["ts"], layer["ts"] + layer["dur"]
        inside = [one for one in ops if start <= one[0] < end]
        assert (inside[0][0], inside[-1][1], len(inside)) == (start, end, len(LAYER))
        roles = [one["name"] for one in found if start <= one["ts"] < end and one is not layer]
        assert tuple(roles) == LAYER_ROLES
    assert {one["args"]["confidence"] for one in found} == {"partial"}
    assert {one["args"]["inferred from"] for one in found} == {"kernel names"}
    known = {
        one["args"]["role"]: one["args"]["role known by"] for one in found if "role" in one["args"]
    }
    assert known["attention"] == "name"
    assert known["qkv"] == known["down"] == "place"
    outer = Counter(one["name"] for one in of_category(events, "model_range"))
    assert outer == ({"step": 3} if name else {})


def test_ops_say_their_role_and_layer(tmp_path: Path) -> None:
    events = exported(analyze(trace_of(*layered(steps=1))), tmp_path)
    args = [one["args"] for one in of_category(events, "kernel")]
    inside = args[len(PROLOGUE) : -len(EPILOGUE)]
    assert [one["role"] for one in inside] == list(LAYER_ROLES) * 4
    assert [one["layer"] for one in inside] == [n for n in range(4) for _ in LAYER]
    assert all("layer" not in one for one in (args[0], args[-1]))


def test_an_op_with_a_range_of_the_model_interrupts_the_inferred_ones(tmp_path: Path) -> None:
    """A host range inside the step names its op, and no layer is drawn over it."""
    events = layered(graph=False, steps=1)
    kernels = [one for one in events if one["cat"] == "kernel"]
    target = next(one for one in kernels if one["name"].startswith("flash"))
    launch = next(
        one
        for one in events
        if one["cat"] == "cuda_runtime"
        and one["args"]["correlation"] == target["args"]["correlation"]
    )
    at = int(Decimal(launch["ts"].strip("@")) * 1000)
    analysis = analyze(trace_of(*events, span(at - 10, at + 400, "my attention")))
    found = exported(analysis, tmp_path)
    assert [one["name"] for one in of_category(found, "model_range")] == ["step"]
    first = min(of_category(found, "kernel"), key=lambda one: one["ts"])
    assert of_category(found, "model_range")[0]["ts"] == first["ts"]
    middle = next(one for one in of_category(found, "kernel") if one["name"] == target["name"])
    covering = [
        one["name"]
        for one in of_category(found, "inferred_range")
        if one["ts"] <= middle["ts"] < one["ts"] + one["dur"]
    ]
    assert covering == []
    assert middle["args"]["range"] == "step/my attention"


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 30), st.sampled_from((7, 9))),
        min_size=44,
        max_size=44,
    ),
    st.booleans(),
)
@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_slices_nest_whatever_overlaps(
    tmp_path: Path, times: list[tuple[int, int, int]], graph: bool
) -> None:
    events = [span(0, 9_000, "step_0")]
    if graph:
        events.append(call(5, 9, 1, name="cudaGraphLaunch"))
    at = 100
    for place, (name, (after, length, stream)) in enumerate(
        zip((*PROLOGUE, *LAYER * 4, *EPILOGUE), times, strict=True)
    ):
        at += after
        number = 1 if graph else place + 1
        if not graph:
            events.append(call(10 + 2 * place, 11 + 2 * place, number))
        events.append(op(at, at + length, number, name=name, stream=stream))
    analysis = analyze(trace_of(*events))
    kernels = of_category(exported(analysis, tmp_path), "kernel")
    assert len(kernels) == len(analysis.trace.ops)


def held(analysis: Analysis, folder: Path) -> list[Event]:
    events = exported(analysis, folder)
    labels = [one["args"]["name"] for one in events if one["name"] == "thread_name"]
    assert labels.count("interruptions") == bool(analysis.interruptions)
    return of_category(events, "interruption")


def test_interruptions_have_a_track(tmp_path: Path) -> None:
    trace = slow_layered()
    clean = analyze(trace)
    assert held(clean, tmp_path) == []
    kinds = {
        "wait": held_before(trace, launching_calls(trace)[40], 463 * MS, "cudaEventSynchronize"),
        "long_op": ran_long(trace, 60, 463 * MS),
    }
    for cause, planted in kinds.items():
        analysis = analyze(planted)
        (one,) = held(analysis, tmp_path)
        (expected,) = analysis.report.interruptions
        assert one["name"] == f"interruption: {cause.replace('_', ' ')}"
        assert one["args"]["cause"] == cause == expected.cause
        assert one["args"]["evidence"] == expected.evidence
        assert one["args"].get("call") == expected.call
        assert one["args"]["step"] == expected.step
        assert int(one["dur"] * 1000) == expected.ns


def test_a_pause_of_the_profiler_survives_the_export(tmp_path: Path) -> None:
    trace = slow_layered()
    first = launching_calls(trace)[40]
    at = int(trace.calls.start_ns[first])
    planted = held_before(trace, first, 463 * MS, None)
    analysis = analyze(with_pause(planted, "Buffer Flush", at, at + 463 * MS))
    (one,) = held(analysis, tmp_path)
    assert one["args"]["cause"] == "profiler"


def test_names_that_are_code_stay_text(tmp_path: Path) -> None:
    analysis = analyze(trace_of(*layered(more=HOSTILE, name=f"step_{{}}{HOSTILE}")))
    events = exported(analysis, tmp_path)
    assert of_category(events, "inferred_range")
    text = (tmp_path / "out.json").read_bytes()
    assert b"\x1b" not in text
    assert b"\x07" not in text


@pytest.mark.parametrize("with_capture", [False, True])
def test_every_layer_of_a_vllm_step_stands_above_its_ops(
    foreign_traces: Path, tmp_path: Path, with_capture: bool
) -> None:
    capture = foreign_traces / "mi300x_vllm_graph_capture.json.gz"
    if not capture.exists():
        pytest.skip(f"needs the foreign trace {capture}")
    given = Given((load(capture),)) if with_capture else Given()
    analysis = analyze(load(foreign_traces / "mi300x_vllm_decode_graph.json.gz"), given)
    events = exported(analysis, tmp_path)
    layers = Counter(
        one["name"]
        for one in of_category(events, "inferred_range")
        if one["name"].startswith("layer.")
    )
    assert layers == ({} if with_capture else {f"layer.{n}": 1 for n in range(24)})
    roles = Counter(one["args"].get("role") for one in of_category(events, "kernel"))
    assert roles["attention"] == 36
    assert roles["experts"] == 72
