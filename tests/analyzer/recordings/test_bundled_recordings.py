"""The bundled recordings of real GPU runs: what every real capture must satisfy."""

from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer import Analysis, analyze, load
from decodescope.analyzer.chrome.chrome_export import export_chrome
from decodescope.analyzer.recordings.bundled import recording_head
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.analyzer.schema.report import Report

FOLDER = Path(__file__).resolve().parents[3] / "analyzer" / "recordings"
VARIANTS = {
    "eager",
    "compiled",
    "fused",
    "fused+graph",
    "fused+graph+fp8_e4m3",
    "fused+graph+fp8_e5m2",
    "fused+graph+fp8_e5m2_cast",
    "fused+graph+int4",
    "fused+graph+int8",
    "fused+graph+kv_fp8_e4m3",
    "fused+graph+w8a8",
}
LAYERS = {"llama-3.2-1b": 16, "qwen3-30b-a3b": 48, "gpt-oss-20b": 24}
RECORDINGS = sorted(FOLDER.glob("h200-*.dsrec"))
OF_TWO_RANKS = FOLDER / "h200x2-llama-3.1-8b-fused+graph.dsrec"


@pytest.fixture(scope="module", params=RECORDINGS, ids=lambda path: path.stem)
def analysis(request: pytest.FixtureRequest) -> Analysis:
    return analyze(load(request.param))


def test_there_is_one_of_each_way_to_run_the_step_and_of_each_kind_of_model() -> None:
    stems = {f"h200-llama-3.2-1b-{variant}" for variant in VARIANTS}
    mixtures = {"h200-qwen3-30b-a3b-fused+graph", "h200-gpt-oss-20b-fused+graph"}
    assert {path.stem for path in RECORDINGS} == stems | mixtures


def test_they_are_small_and_their_heads_say_what_they_are() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.dsrec")) <= 6_000_000
    assert sorted(FOLDER.glob("*.dsrec")) == sorted((*RECORDINGS, OF_TWO_RANKS))
    for path in RECORDINGS:
        head = recording_head(path)
        assert head is not None
        assert path.stem == f"h200-{head.hello.model.removesuffix('@random')}-{head.variant}"
        assert head.hello.device_name == "NVIDIA H200"
        assert head.hello.environment["date"].startswith("20")


def test_every_op_is_linked_and_belongs_to_a_step(analysis: Analysis) -> None:
    report = analysis.report
    assert report.health.status == "ok"
    assert report.health.unlinked_gpu_ops == 0
    assert report.capture is not None
    assert len(report.steps) == report.capture.steps
    assert sum(step.gpu_ops for step in report.steps) == len(analysis.trace.ops)
    assert len({step.gpu_ops for step in report.steps}) == 1


def test_parts_add_up(analysis: Analysis) -> None:
    report = analysis.report
    (device,) = report.devices
    assert sum(total.total_ns for total in device.gaps.values()) == device.idle_ns
    attributed_ns = sum(kernel.attributed_ns for kernel in report.kernels)
    assert attributed_ns + device.copies_attributed_ns == device.busy_ns
    assert sum(part.ns for part in report.answer.parts) == report.answer.step_ns
    (whole,) = (found for found in report.ranges if found.path == "decode_step")
    assert whole.gpu_ops == device.gpu_ops
    assert whole.gpu_ns == device.busy_ns


def test_the_variants_look_as_they_are(analysis: Analysis) -> None:
    report = analysis.report
    assert report.capture is not None
    variant, steps = report.capture.variant, report.capture.steps
    step_s = report.answer.unprofiled_step_ns / 1e9
    mbu = report.capture.bytes_per_step / step_s / report.capture.measured_peak_bytes_per_s
    bound = "memory" if mbu >= 0.6 else "host" if variant == "eager" else "kernels"
    assert report.answer.bound == bound
    # Our kernels start while those before them end.
    assert report.overlapping == variant.startswith("fused")
    if variant in ("eager", "fused"):
        assert report.launches.graph_launches == 0
        assert report.launches.calls == report.devices[0].gpu_ops
    else:
        assert report.launches.graph_launches == steps
        assert len(set(report.launches.gpu_ops_per_graph_launch)) == 1
    if variant != "eager":
        layers = [f for f in report.ranges if f.path.startswith("decode_step/model/layer.")]
        model = report.capture.model.removesuffix("@random")
        assert len({found.path.split("/")[2] for found in layers}) == LAYERS[model]


def test_every_op_has_a_range_path_that_is_certain(analysis: Analysis) -> None:
    attribution = analysis.report.attribution
    assert attribution is not None
    assert (attribution.partial, attribution.none) == (0, 0)
    assert attribution.exact == len(analysis.trace.ops)
    assert {found.confidence for found in analysis.report.ranges} == {"exact"}


def test_an_export_reads_back_with_the_same_figures(analysis: Analysis, tmp_path: Path) -> None:
    export_chrome(analysis, tmp_path / "exported.json.gz")
    again = analyze(load(tmp_path / "exported.json.gz"))
    assert figures(again.report) == figures(analysis.report)


def figures(report: Report) -> bytes:
    health = msgspec.structs.replace(report.health, findings=())
    return msgspec.json.encode(msgspec.structs.replace(report, source=None, health=health))


def test_the_window_of_two_ranks_is_one_trace() -> None:
    assert OF_TWO_RANKS.stat().st_size <= 600_000
    head = recording_head(OF_TWO_RANKS)
    assert head is not None
    assert (head.hello.tp, len(read_recording(OF_TWO_RANKS).last_packed_traces())) == (2, 2)
    analysis = analyze(load(OF_TWO_RANKS))
    report = analysis.report
    assert (report.source.path, report.source.format) == (str(OF_TWO_RANKS), "recording")
    assert (report.health.status, report.health.unlinked_gpu_ops) == ("ok", 0)
    assert report.capture is not None
    assert (len(report.steps), len(report.devices)) == (2 * report.capture.steps, 2)
    assert {step.gpu_ops for step in report.steps} == {227}
    assert sum(part.ns for part in report.answer.parts) == report.answer.step_ns
    # A launch for the sum of each projection, and one for the choice.
    communication = [part for part in report.answer.parts if part.part == "communication"]
    assert [part.ops for part in communication] == [65]
    waits = analysis.op_waits()
    assert waits is not None
    assert len(waits) == 2 * 65 * report.capture.steps
