"""What ncu's log says is read exactly, and what keeps it from counting is one line."""

import json
from pathlib import Path

import pytest

from benchmarks.counters.ncu_report import METRICS, Counted, count, find_ncu, read_log
from decodescope.analyzer.errors import InputError, MissingRequirement
from tests.benchmarks.counters.counter_sides import HEADER, LOG, PROGRESS, ROWS, UNITS, fake_ncu


def test_a_log_gives_every_launch_in_base_units() -> None:
    gemv, other = read_log(LOG)
    assert gemv == Counted(
        "gemv", (2048, 1, 1), (128, 1, 1), 5120, 3840, 16_777_216, 1024, 525_000.5 * 32, 1.8e9, 1
    )
    assert (other.function, other.grid, other.block) == (
        "vectorized_elementwise_kernel",
        (4, 1, 3),
        (64, 2, 1),
    )
    assert (other.busy_ns, other.sm_hz, other.passes) == (496, 2e9, 2)


def test_other_units_are_converted() -> None:
    units = UNITS.replace('"ns"', '"usecond"').replace('"byte","byte"', '"Mbyte","Kbyte"')
    gemv = read_log(HEADER + units + ROWS)[0]
    assert (gemv.duration_ns, gemv.read_bytes) == (5_120_000, 16_777_216e6)
    assert gemv.written_bytes == 1_024e3


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", "counted no kernel"),
        (PROGRESS + "==WARNING== No kernels were profiled.\n", "counted no kernel"),
        (LOG.replace("dram__bytes_read.sum", "other"), r"lacks dram__bytes_read\.sum"),
        (LOG.replace("profiler__replayer_passes", "other"), "lacks profiler__replayer_passes"),
        (LOG.replace('"9,216"', '"0"'), r"'gemv' took 0\.0 cycles"),
        (LOG.replace('"ns"', '"fortnight"'), "'fortnight'"),
        (LOG.replace('"5,120"', '"n/a"'), "'gemv' has no figure"),
        (LOG.replace('"5,120"', '"0"'), "'gemv' took 0"),
        (LOG.replace('"5,120"', '"nan"'), "'gemv' took nan"),
        (LOG.replace('"(2048, 1, 1)"', '"2048"'), "'gemv' has no figure or shape"),
        (LOG[:-40], "'vectorized_elementwise_kernel' has no figure"),
    ],
)
def test_a_broken_log_is_one_line(log: str, line: str) -> None:
    with pytest.raises(InputError, match=line):
        read_log(log)


def test_a_program_is_counted_as_it_runs_elsewhere(tmp_path: Path) -> None:
    ncu = fake_ncu(tmp_path, LOG)
    assert count(ncu, ["program", "--option"], tmp_path / "log.csv") == read_log(LOG)
    arguments = json.loads((tmp_path / "arguments.json").read_text())
    assert arguments[-2:] == ["program", "--option"]
    options = dict(zip(arguments[1:-2:2], arguments[2:-2:2], strict=True))
    assert options["--clock-control"] == options["--cache-control"] == "none"
    assert options["--metrics"] == ",".join(METRICS)
    assert options["--profile-from-start"] == "off"
    assert options["--graph-profiling"] == "node"


@pytest.mark.parametrize(
    ("log", "code", "line"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
            "Performance Counters on the target device 0.\n" + LOG,
            0,
            "may not read this GPU's counters",
        ),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n", 0, "LibraryNotLoaded"),
        ("==ERROR== Failed to find metric dram__x\n==ERROR== second\n", 1, "find metric dram__x"),
        ("==PROF== Connected to process 1\n", 3, "ended with exit code 3"),
        ("", 255, "ended with exit code 255"),
    ],
)
def test_ncu_that_cannot_count_is_a_missing_requirement(
    log: str, code: int, line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(MissingRequirement, match=line) as error:
        count(fake_ncu(tmp_path, log, code), ["program"], tmp_path / "log.csv")
    assert "\n" not in str(error.value)
    messages = [one for one in log.splitlines() if one.startswith("==")]
    assert capfd.readouterr().err.splitlines() == messages


def test_without_ncu_a_line_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("benchmarks.counters.ncu_report._DEFAULT_PATH", tmp_path / "ncu")
    with pytest.raises(MissingRequirement, match="no ncu on the PATH"):
        find_ncu()
