"""The files of ranks are read in processes, which leave nothing behind."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest

from decodescope.analyzer import analyze_ranks
from decodescope.analyzer.errors import DecodescopeError, TraceError
from decodescope.analyzer.reports import rank_reading
from decodescope.analyzer.reports.rank_analysis import ServerTraces, analyze_servers
from decodescope.analyzer.reports.rank_reading import read_ranks
from decodescope.analyzer.reports.user_facts import NOTHING
from decodescope.analyzer.schema.ranks_report import ServerFigures, ServersReport
from decodescope.analyzer.schema.report import ObserverReport
from tests.helpers.kineto_events import call, document, op, span
from tests.helpers.processes import children, gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")

BASE = 1_790_857_026_000_000_000


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of any size are read in processes, also on one core."""
    monkeypatch.setattr(rank_reading, "_WORTH_BYTES", 0)
    monkeypatch.setattr(rank_reading, "_cores", lambda: 3)


def files(folder: Path, count: int) -> list[str]:
    paths = []
    for rank in range(count):
        events = [span(0, 900, "decode_step"), call(10, 20, 5), op(30, 100 + rank, 5, name="größe")]
        info = {"rank": rank, "world_size": count}
        path = folder / f"rank {rank}.json"
        path.write_bytes(document(events, baseTimeNanoseconds=BASE, distributedInfo=info))
        paths.append(str(path))
    return paths


def started_here(before: list[int]) -> list[int]:
    return [pid for pid in children(os.getpid()) if pid not in before]


@pytest.mark.usefixtures("processes")
def test_processes_import_nothing_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traces of strangers may lie beside modules of strangers."""
    paths = files(tmp_path, 3)
    for name in ("json", "msgspec", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w').close()")
    monkeypatch.chdir(tmp_path)
    assert len(read_ranks(paths)) == 3
    assert not Path("imported").exists()


@pytest.mark.usefixtures("processes")
def test_processes_read_what_this_one_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = files(tmp_path, 7)
    before = children(os.getpid())
    parted = analyze_ranks(paths)
    assert started_here(before) == []
    read = read_ranks(paths)
    assert [one.trace.source.path for one in read] == paths
    # Columns stay writable.
    read[0].trace.ops.start_ns[0] += 1
    monkeypatch.setattr(rank_reading, "_cores", lambda: 1)
    alone = analyze_ranks(paths)
    assert msgspec.json.encode(parted.report) == msgspec.json.encode(alone.report)
    for (_, one), (_, other) in zip(parted.traces, alone.traces, strict=True):
        assert one.names == other.names
        assert np.array_equal(one.ops.start_ns, other.ops.start_ns)


@pytest.mark.usefixtures("processes")
def test_one_broken_file_of_sixteen_ends_all(tmp_path: Path) -> None:
    paths = files(tmp_path, 16)
    Path(paths[11]).write_bytes(b'{"traceEvents": [{"ph"')
    before = children(os.getpid())
    with pytest.raises(TraceError, match=r"rank 11\.json: ends before its first complete event"):
        read_ranks(paths)
    assert all(gone(pid) for pid in started_here(before))


def servers_report(*servers: list[str]) -> ServersReport:
    """The report of servers with these traces."""
    observer = ObserverReport("servers", "a target", None, None, None)
    traces = [ServerTraces(ServerFigures(), tuple(map(Path, paths))) for paths in servers]
    return analyze_servers(ServerFigures(), observer, traces, NOTHING)


@pytest.mark.usefixtures("processes")
def test_a_server_with_a_broken_file_is_left_out(tmp_path: Path) -> None:
    paths = files(tmp_path, 16)
    Path(paths[11]).write_bytes(b'{"traceEvents": [{"ph"')
    Path(paths[13]).write_bytes(Path(paths[2]).read_bytes())
    report = servers_report(paths[:10], paths[10:12], paths[12:14], paths[14:])
    assert [len(server.ranks) for server in report.servers] == [10, 0, 0, 2]
    problems = [server.problem for server in report.servers]
    assert "rank 11.json: ends before its first complete event" in problems[1]
    assert "rank 13.json: the same events as " in problems[2]
    assert (problems[0], problems[3]) == ("", "")
    assert report.merged is not None
    assert len(report.merged.devices) == 12
    with pytest.raises(TraceError, match=r"rank 11\.json: ends before"):
        servers_report(paths[11:12])


def test_what_a_dead_process_was_not_sent_is_not_sent_again() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.wait()
        rank_reading._say(process, NOTHING)


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        ("import sys; sys.exit(4)", "ended with exit code 4"),
    ],
)
def test_a_process_that_dies_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, says: str
) -> None:
    monkeypatch.setattr(rank_reading, "_START", code)
    with pytest.raises(DecodescopeError, match=f"the process that read it {says}"):
        read_ranks(files(tmp_path, 3))


@pytest.mark.usefixtures("processes")
def test_what_a_process_prints_is_not_taken_for_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chatty = (
        "; from decodescope.analyzer.reports import rank_reading as w; read = w.read_rank; "
        "w.read_rank = lambda *what: (print('chatter'), read(*what))[1]; main(sys.argv[2:])"
    )
    monkeypatch.setattr(
        rank_reading, "_START", rank_reading._START.replace("; main(sys.argv[2:])", chatty)
    )
    assert len(read_ranks(files(tmp_path, 3))) == 3


@pytest.mark.usefixtures("processes")
def test_an_error_that_nobody_foresaw_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = (
        "; from decodescope.analyzer.reports import rank_reading as w; "
        "w.read_rank = lambda *what: 1 // 0; main(sys.argv[2:])"
    )
    monkeypatch.setattr(
        rank_reading, "_START", rank_reading._START.replace("; main(sys.argv[2:])", broken)
    )
    with pytest.raises(DecodescopeError, match="ZeroDivisionError") as found:
        read_ranks(files(tmp_path, 3))
    assert found.value.exit_code == 70


@pytest.mark.usefixtures("processes")
def test_a_pipe_is_read_by_this_process(tmp_path: Path) -> None:
    paths = files(tmp_path, 4)
    data = Path(paths[2]).read_bytes()
    os.unlink(paths[2])
    os.mkfifo(paths[2])
    writer = threading.Thread(target=lambda: Path(paths[2]).write_bytes(data))
    writer.start()
    report = analyze_ranks(paths).report
    writer.join()
    assert [one.report.devices[0].busy_ns for one in report.ranks] == [70, 71, 72, 73]


@pytest.mark.usefixtures("processes")
def test_nothing_is_imported_from_the_folder_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('imported from the folder')")
    paths = files(tmp_path, 3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert len(read_ranks(paths)) == 3


def test_small_files_need_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_reading, "_START", "raise SystemExit(1)")
    assert len(read_ranks(files(tmp_path, 3))) == 3
