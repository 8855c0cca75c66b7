import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

torch = pytest.importorskip("torch")
from torch.profiler import profiler  # noqa: E402

from decodescope.analyzer.capture.profiler_session import ProfilerSession, annotate  # noqa: E402
from decodescope.analyzer.errors import InputError  # noqa: E402
from decodescope.analyzer.readers.reading import load  # noqa: E402
from decodescope.analyzer.schema.graph_reference import GraphReference, ReferenceOp  # noqa: E402
from decodescope.analyzer.schema.report import CaptureInfo  # noqa: E402
from tests.helpers.kineto_events import document, op  # noqa: E402

INFO = CaptureInfo(
    device="cpu",
    device_name='a "quoted" name, ünïcode',
    model="tiny",
    weights="bundled",
    variant="eager",
    dtype="fp32",
    batch=1,
    context=16,
    position=17,
    steps=3,
    bytes_per_step=123,
    unprofiled_step_ns=None,
    decodescope_version="0.0.0",
)


def step() -> None:
    with annotate("model"):
        with annotate("attention"):
            torch.ones(8, 8) @ torch.ones(8, 8)
        torch.relu(torch.ones(4))
    with annotate("sampling"):
        torch.ones(4).argmax()


def read(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return dict(json.loads(gzip.decompress(data) if path.suffix == ".gz" else data))


def spans(trace: dict[str, Any], name: str) -> list[tuple[float, float]]:
    return [
        (event["ts"], event["ts"] + event["dur"])
        for event in trace["traceEvents"]
        if event.get("ph") == "X" and event["name"] == name
    ]


@pytest.fixture(scope="module")
def session() -> ProfilerSession:
    session = ProfilerSession("cpu")
    session.warm_up()
    return session


@pytest.mark.parametrize("name", ["window.json", "window.json.gz"])
def test_a_window_holds_its_steps_ranges_and_description(
    session: ProfilerSession, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    session.capture(step, 3, path, INFO)
    trace = read(path)

    assert msgspec.convert(trace["decodescope"], CaptureInfo) == INFO
    steps = spans(trace, "decode_step")
    assert len(steps) == 3
    for inner, outer in [
        ("model", "decode_step"),
        ("attention", "model"),
        ("aten::mm", "attention"),
        ("aten::relu", "model"),
        ("sampling", "decode_step"),
        ("aten::argmax", "sampling"),
    ]:
        inside = spans(trace, inner)
        assert len(inside) == 3, inner
        for (start, end), (outer_start, outer_end) in zip(inside, spans(trace, outer), strict=True):
            assert outer_start <= start <= end <= outer_end, (inner, outer)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_warm_steps_are_run_but_not_recorded(session: ProfilerSession, tmp_path: Path) -> None:
    calls: list[int] = []

    def counted() -> None:
        calls.append(len(calls))
        step()

    session.capture(counted, 2, tmp_path / "w.json", INFO, warm_steps=3)
    trace = read(tmp_path / "w.json")
    assert len(calls) == 5
    assert len(spans(trace, "decode_step")) == 2
    assert len(spans(trace, "aten::mm")) == 2


@pytest.mark.parametrize("lead_steps", [0, 1, 2])
def test_lead_steps_are_recorded_first_and_read_by_nobody(
    session: ProfilerSession, tmp_path: Path, lead_steps: int
) -> None:
    path = tmp_path / "w.json"
    info = msgspec.structs.replace(INFO, lead_steps=lead_steps)
    session.capture(step, 3, path, info, warm_steps=1)
    trace = read(path)
    lead, steps = spans(trace, "decode_lead"), spans(trace, "decode_step")
    assert (len(lead), len(steps)) == (lead_steps, 3)
    assert all(end <= steps[0][0] for _, end in lead)
    assert len(spans(trace, "aten::mm")) == lead_steps + 3

    read_back = load(path)
    products = [read_back.names[name] for name in read_back.ops.name].count("aten::mm")
    assert products == 3
    assert "decode_lead" not in [read_back.names[name] for name in read_back.ranges.name]


def test_a_reference_travels_with_its_window(session: ProfilerSession, tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    ops = (
        ReferenceOp(7, 'a "kernel"<int>', "decode_step/model/layer.0/mlp", 4096, 2**40),
        ReferenceOp(20, "Memset (Device)", ""),
    )
    session.capture(step, 1, path, INFO, reference=GraphReference(ops))
    assert load(path).reference == GraphReference(ops)
    session.capture(step, 1, path, INFO)
    assert load(path).reference is None
    assert "decodescope_reference" not in read(path)


@pytest.mark.parametrize("name", ["w.json", "w.json.gz"])
def test_ops_of_named_nodes_have_their_paths_in_a_window(
    session: ProfilerSession, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's profiler writes a trace with graph nodes; the steps run before their names exist."""
    nodes = [op(10 * k, 10 * k + 5, 1, **{"graph node id": 7 << 32 | k}) for k in range(4)]
    kineto = b" \n" + document(nodes)
    monkeypatch.setattr(
        profiler._KinetoProfile,
        "export_chrome_trace",
        lambda self, path: Path(path).write_bytes(kineto),
    )
    path, named = tmp_path / name, {}

    def named_by_step() -> None:
        named.update({7 << 32 | 1: "model/layer.0/mlp", 7 << 32 | 3: 'a "b"\\c', 1: "other"})

    session.capture(named_by_step, 1, path, INFO, node_paths=lambda: named)
    texts = [event["args"].get("str") for event in read(path)["traceEvents"]]
    assert texts == [None, "model/layer.0/mlp", None, 'a "b"\\c']

    session.capture(lambda: None, 1, path, INFO)
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    described = msgspec.json.encode({"decodescope": INFO})[:-1]
    assert data == described + b"," + kineto.strip().removeprefix(b"{")


@pytest.mark.parametrize("record_shapes", [False, True])
def test_shapes_are_recorded_where_they_are_asked_for(
    session: ProfilerSession, tmp_path: Path, record_shapes: bool
) -> None:
    path = tmp_path / "w.json"
    session.capture(step, 2, path, INFO, record_shapes=record_shapes)
    events = read(path)["traceEvents"]
    products = [event for event in events if event["name"] == "aten::mm"]
    shapes = [event["args"].get("Input Dims") for event in products]
    assert shapes == [[[8, 8], [8, 8]] if record_shapes else None] * 2


def test_a_cpu_has_no_kernel_floor(session: ProfilerSession) -> None:
    assert session.kernel_floor_ns is None


def test_windows_follow_one_another(session: ProfilerSession, tmp_path: Path) -> None:
    for number in range(1, 4):
        path = tmp_path / "again.json"
        session.capture(step, number, path, INFO)
        assert len(spans(read(path), "decode_step")) == number


@pytest.mark.parametrize("warm_steps", [0, 1])
def test_a_failing_step_leaves_no_file_and_a_usable_session(
    session: ProfilerSession, tmp_path: Path, warm_steps: int
) -> None:
    def fail() -> None:
        raise RuntimeError("device error")

    with pytest.raises(RuntimeError, match="device error"):
        session.capture(fail, 1, tmp_path / "w.json", INFO, warm_steps)
    assert list(tmp_path.iterdir()) == []
    session.capture(step, 1, tmp_path / "w.json", INFO)
    assert len(spans(read(tmp_path / "w.json"), "decode_step")) == 1


def test_a_folder_that_is_not_there_is_told(session: ProfilerSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        session.capture(step, 1, tmp_path / "no" / "w.json", INFO)


def test_the_terminal_stays_clean(
    session: ProfilerSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    session.capture(step, 1, tmp_path / "w.json.gz", INFO)
    output = capfd.readouterr()
    assert output.out == ""
    assert output.err == ""


def test_annotations_outside_a_window_do_no_harm() -> None:
    for _ in range(3):
        step()
    with pytest.raises(ZeroDivisionError), annotate("broken"):
        raise ZeroDivisionError
