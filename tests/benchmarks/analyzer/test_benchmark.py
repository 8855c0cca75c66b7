"""`analyzer`: its trace, what it measures, and the peer beside it."""

import gzip
import stat
import sys
from pathlib import Path

import pytest

from benchmarks.analyzer.benchmark import AnalyzerBenchmark, run_analyzer_benchmark
from benchmarks.analyzer.large_trace import make_trace
from benchmarks.analyzer.rank_traces import make_rank_traces
from benchmarks.analyzer.result_table import benchmark_table
from decodescope.analyzer import analyze, analyze_ranks, load
from decodescope.analyzer.errors import InputError, TraceError
from decodescope.analyzer.readers.kineto.kineto_reader import read_kineto_bytes
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.recording import read_recording
from tests.helpers.kineto_events import DATA, call, document, op
from tests.helpers.rich_report import text_of

BASE = 1_661_938_466_265_032_123
SOURCE = bundled_recordings()[0]


def small_source() -> bytes:
    return gzip.decompress((DATA / "cpu_two_blocks.json.gz").read_bytes())


def test_the_benchmarks_trace_repeats_the_recorded_events(tmp_path: Path) -> None:
    source = read_kineto_bytes(small_source(), "source")
    path = tmp_path / "large.json"
    size = make_trace(small_source(), 3 * source.source.events, path)
    large = load(path)
    assert size == path.stat().st_size
    assert large.source.events == 3 * source.source.events
    assert large.findings == ()
    assert len(large.ops) == 3 * len(source.ops)
    once, thrice = analyze(source).report, analyze(large).report
    assert thrice.devices[0].busy_ns == 3 * once.devices[0].busy_ns
    assert len(thrice.steps) == 3 * len(once.steps)
    assert {k.name: k.count for k in thrice.kernels} == {k.name: 3 * k.count for k in once.kernels}
    assert len(set(large.ops.external_id.tolist())) == len(large.ops)


def test_the_benchmarks_trace_keeps_correlations_apart(tmp_path: Path) -> None:
    events = [call(BASE, BASE + 5, 1), op(BASE + 8, BASE + 20, 1), op(BASE + 30, BASE + 41, 9)]
    make_trace(document(events), 8, tmp_path / "large.json")
    trace = load(tmp_path / "large.json")
    assert (trace.ops.launch >= 0).sum() == 3
    assert len(set(trace.ops.launch.tolist()) - {-1}) == 3
    lengths = (trace.ops.end_ns - trace.ops.start_ns).tolist()
    assert lengths == [12, 11, 12, 11, 12]


def test_a_source_without_events_makes_no_benchmark(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no complete events"):
        make_trace(b'{"traceEvents": []}', 5, tmp_path / "large.json")


def fake_peer(folder: Path, body: str) -> Path:
    """A program in the place of a Python that has the peer."""
    program = folder / "peer"
    program.write_text(f"#!{sys.executable}\n{body}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def table_of(result: AnalyzerBenchmark) -> str:
    return text_of(benchmark_table(result), 200)


def test_the_benchmark_measures_separate_processes() -> None:
    result = run_analyzer_benchmark(SOURCE, repeats=2, events=2000)
    assert (result.events, result.repeats) == (2000, 2)
    assert result.file_bytes > 100_000
    for spread in (result.read_ns, result.analyze_ns, result.command_ns, result.peak_rss_bytes):
        assert 0 < spread.min <= spread.median <= spread.max
    assert result.command_ns.max > result.import_ns.min
    assert result.peak_rss_bytes.max < 200_000_000
    assert (result.target_command_ns, result.peer) == (None, None)
    assert result.environment["decodescope"]
    assert result.environment["python"]
    assert "no peer" in table_of(result)


def test_the_ranks_of_one_run_are_measured_together() -> None:
    result = run_analyzer_benchmark(SOURCE, repeats=1, events=1500, ranks=3, cache=True)
    assert result.cache is not None
    assert result.cache.kept_bytes == 0  # these are few events
    assert result.cache.first_command_ns.min > result.cache.read_ns.min > 0
    assert "with a cache, of 0 MB" in table_of(result)
    ranks = result.ranks
    assert ranks is not None
    assert (ranks.ranks, ranks.events, ranks.target_command_ns) == (3, 1500, None)
    assert ranks.file_bytes > 3 * 100_000
    assert ranks.cpu_ns.median > 0
    assert result.peak_rss_bytes.min / 2 < ranks.tree_peak_rss_bytes.max < 500_000_000
    assert "3 ranks of 1,500 events each" in table_of(result)


def test_the_benchmarks_ranks_have_collectives_and_a_straggler(tmp_path: Path) -> None:
    (recording,) = (one for one in bundled_recordings() if one.stem.endswith("-compiled"))
    packed = read_recording(recording)
    source = gzip.decompress(packed.last_packed_traces()[0])
    paths = make_rank_traces(source, 4, 20_000, tmp_path)
    report = analyze_ranks(paths).report
    assert [one.report.source.events for one in report.ranks] == [20_000] * 4
    assert [one.rank for one in report.ranks] == [0, 1, 2, 3]
    (row,) = report.communication.collectives
    assert row.operation == "all_reduce"
    assert row.matched > 100
    assert row.unmatched == 0
    assert (report.communication.clock, report.findings) == ("common", ())
    assert report.communication.straggler is not None
    assert report.communication.straggler.rank == 3


def test_the_peer_is_compared_within_each_repetition(tmp_path: Path) -> None:
    peer = fake_peer(
        tmp_path,
        "print('chatter')\n"
        'print(\'{"name": "Peer", "version": "1", "import_ns": 5, "read_ns": 3000000000000,'
        ' "analyze_ns": 7, "work_ns": 3000000000007, "peak_rss_bytes": 4000000000000}\')',
    )
    result = run_analyzer_benchmark(SOURCE, repeats=2, events=1000, peer_python=peer)
    assert result.peer is not None
    assert result.peer.work_ns.max == 3_000_000_000_007
    assert result.peer.memory_ratio.min == pytest.approx(4e12 / result.peak_rss_bytes.max)
    assert result.peer.memory_ratio.max == pytest.approx(4e12 / result.peak_rss_bytes.min)
    slowest = sum(s.max for s in (result.read_ns, result.analyze_ns, result.encode_ns))
    assert result.peer.time_ratio.min >= 3e12 / slowest
    assert "its time ÷ ours" in table_of(result)


def test_a_peer_that_cannot_be_measured_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be run"):
        run_analyzer_benchmark(SOURCE, 1, 1000, tmp_path / "nothing")
    for body in ("", "print(7)", "print('chatter')"):
        with pytest.raises(InputError, match="printed no figures; name a Python that has Holistic"):
            run_analyzer_benchmark(SOURCE, 1, 1000, fake_peer(tmp_path, body))
    with pytest.raises(InputError, match="failed: 5; name a Python"):
        run_analyzer_benchmark(SOURCE, 1, 1000, fake_peer(tmp_path, "raise SystemExit('5')"))
    lacking = fake_peer(tmp_path, "import hta")
    with pytest.raises(InputError, match="has no HolisticTraceAnalysis"):
        run_analyzer_benchmark(SOURCE, 1, 1000, lacking)
