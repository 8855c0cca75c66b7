"""Changes planted into traces: what a draw is, what is counted, and what is recorded."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gate import gate_accuracy, noise_shapes
from benchmarks.gate.gate_accuracy import CHANGES_PERCENT, measured_kind, planted
from benchmarks.gate.noise_shapes import ODD_RUNS, SHAPES, Simulated, simulated
from decodescope.analyzer.errors import DecodescopeError, InputError
from decodescope.analyzer.schema.gate_report import Sample, Subject
from tests.cli.test_diff import trace_file
from tests.helpers.command import Command


def traces(deviations: list[float]) -> Subject:
    samples = [
        Sample("t.json", tuple(round(1e7 * one * step) for step in (1, 1.01, 0.99)), {})
        for one in deviations
    ]
    return Subject("step", {"model": "tiny"}, tuple(samples))


def test_a_planted_change_lengthens_every_step_and_part() -> None:
    sample = Sample("t.json", (1000, 2000), {"attention": (300, 0), "head": (7, 9)})
    found = planted(sample, 10)
    assert found.step_times_ns == (1100, 2200)
    assert found.part_times_ns == {"attention": (330, 0), "head": (8, 10)}
    assert planted(sample, 0) == sample


def test_steady_traces_are_always_right_and_noisy_ones_never_decided() -> None:
    generator = np.random.default_rng(1)
    steady = measured_kind("a", traces((1 + generator.normal(0, 1e-3, 30)).tolist()), 12)
    assert [change.percent for change in steady.changes] == list(CHANGES_PERCENT)
    assert [change.slower for change in steady.changes[1:]] == [1.0, 1.0, 1.0]
    assert steady.changes[0].slower <= 0.1
    assert steady.noise_percent == pytest.approx(0.1, rel=0.4)
    noisy = measured_kind("b", traces((1 + generator.uniform(-0.4, 0.4, 30)).tolist()), 12)
    assert noisy.changes[1].undecided >= 0.8
    assert noisy.range_percent > noisy.noise_percent > 15
    for change in (*steady.changes, *noisy.changes):
        assert change.slower + change.within + change.undecided == pytest.approx(1)


@pytest.mark.parametrize("shape", [*SHAPES, *ODD_RUNS])
def test_simulated_noise_rarely_fails_equal_sides(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise_shapes, "DRAWS", 200)
    found = simulated(shape, 0.5, (5, 5))
    assert found == simulated(shape, 0.5, (5, 5))
    assert found.false_alarms <= 0.06
    assert found.found > 0.7


@pytest.mark.parametrize("shape", SHAPES)
def test_noise_has_the_deviation_that_its_record_says(shape: str) -> None:
    generator = np.random.default_rng(2)
    drawn = np.concatenate([SHAPES[shape](generator, 50) for _ in range(400)])
    assert drawn.std() == pytest.approx(1, abs=0.2)


def test_the_record_has_each_folder_and_the_simulated_noise(
    benchmarks: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gate_accuracy, "RESULTS", tmp_path)
    one = Simulated("normal", 0.5, (5, 5), 0.02, 1.0)
    monkeypatch.setattr(gate_accuracy, "all_simulated", lambda: [one])
    (tmp_path / "eager").mkdir()
    for number in range(10):
        trace_file(tmp_path / "eager" / f"{number}.json", *(200 + number, 203, 199, 201, 202))
    done = benchmarks("gate-accuracy", str(tmp_path / "eager"), "--draws", "5")
    assert done.code == 0, done.err
    assert "10 of eager" in done.out
    record = json.loads((tmp_path / "gate-accuracy.json").read_bytes())
    (kind,) = record["kinds"]
    assert (kind["name"], kind["traces"], record["draws"]) == ("eager", 10, 5)
    assert kind["changes"][-1]["slower"] == 1.0
    assert record["simulated"][0]["found"] == 1.0
    assert record["environment"]["date"]


def test_too_few_traces_are_one_line(benchmarks: Command, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a: holds 9 traces; two sides of 5 need 10"):
        measured_kind("a", traces([1.0] * 9), 5)
    done = benchmarks("gate-accuracy", str(tmp_path / "none"))
    assert "holds no traces; name a folder of traces, or give --make" in done.only_line
    done = benchmarks("gate-accuracy", str(tmp_path), "b", "--make", "3")
    assert "--make 3: 2 folders are given; name one" in done.only_line


def test_traces_are_recorded_until_there_are_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "001.json.gz").write_bytes(b"kept")
    program = "import sys; from pathlib import Path; Path(sys.argv[-1]).write_text(sys.argv[-2])"
    monkeypatch.setattr(gate_accuracy, "RECORDER", ("-c", program))
    gate_accuracy.make_traces(tmp_path, 3, ("tiny", "20"))
    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert files == {"000.json.gz": "20", "001.json.gz": "kept", "002.json.gz": "20"}
    monkeypatch.setattr(gate_accuracy, "RECORDER", ("-c", "raise SystemExit(3)"))
    with pytest.raises(DecodescopeError, match=r"003\.json\.gz: its run failed; see above"):
        gate_accuracy.make_traces(tmp_path, 4, ())
