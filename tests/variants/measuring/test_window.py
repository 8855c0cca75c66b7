import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import profiler

from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.schema.graph_reference import GraphReference
from decodescope.variants.measuring.window import WindowPlan, capture_window, window_plan
from tests.helpers.kineto_events import document, op
from tests.helpers.recordings import capture


@given(st.integers(1, 50), st.integers(1, 10))
def test_a_plan_fits_and_uses_all_it_can(left: int, steps: int) -> None:
    plan = window_plan(left, steps)
    assert plan.steps >= 1
    assert plan.total <= left
    if left >= steps + 2:
        assert plan == WindowPlan(warm=1, lead=1, steps=steps)
    else:
        assert plan.total == left


@pytest.mark.parametrize(
    ("left", "expected"), [(1, (0, 0, 1)), (2, (1, 0, 1)), (3, (1, 1, 1)), (4, (1, 1, 2))]
)
def test_short_plans_drop_steps_then_the_lead_then_the_warm_step(
    left: int, expected: tuple[int, int, int]
) -> None:
    assert window_plan(left, 3) == WindowPlan(*expected)


def test_the_nodes_that_a_step_has_named_are_named_in_its_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kineto = document([op(0, 5, 1, **{"graph node id": 7})])
    monkeypatch.setattr(
        profiler._KinetoProfile,
        "export_chrome_trace",
        lambda self, path: Path(path).write_bytes(kineto),
    )
    named: dict[int, str] = {}
    step: Any = SimpleNamespace(
        step=lambda: named.update({7: "model/layer.0"}),
        node_paths=lambda: named,
        annotate_layers=lambda enabled: None,
    )
    info = msgspec.structs.replace(capture(), lead_steps=0)
    path, plan = tmp_path / "window.json", WindowPlan(0, 0, 1)
    capture_window(step, plan, info, path, ProfilerSession("cpu"), None, lambda ids: None)
    (event,) = json.loads(path.read_bytes())["traceEvents"]
    assert event["args"]["str"] == "model/layer.0"


@pytest.mark.parametrize(
    ("device", "reference", "recorded"),
    [("cpu", None, False), ("cuda", None, True), ("cuda", GraphReference(()), False)],
)
def test_shapes_are_recorded_where_limits_follow_from_them(
    device: str, reference: GraphReference | None, recorded: bool
) -> None:
    asked = []
    session: Any = SimpleNamespace(capture=lambda *given: asked.append(given[6]))
    step: Any = SimpleNamespace(annotate_layers=lambda enabled: None, node_paths=dict)
    info = msgspec.structs.replace(capture(), device=device)
    plan = WindowPlan(0, 0, 1)
    capture_window(step, plan, info, Path("w.json"), session, reference, lambda ids: None)
    assert asked == [recorded]
