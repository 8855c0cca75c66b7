"""SQLite files that are locked, truncated, damaged or not Nsight's give one clear line each."""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import load
from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.sqlite_file import MAX_TEXT_BYTES, SqliteFile
from decodescope.analyzer.readers.trace_columns import MAX_NAME
from tests.helpers.foreign.nsys_files import Export
from tests.helpers.kineto_events import codes
from tests.helpers.reports import analyzed


def many() -> Export:
    export = Export()
    export.span(0, 10_000, "decode_step")
    for index in range(400):
        export.call(20 * index, 20 * index + 5, index + 1)
        export.kernel(20 * index + 8, 20 * index + 18, index + 1, name=f"kernel<{index % 9}>")
    return export


def refused(path: Path, says: str) -> None:
    with pytest.raises(TraceError) as raised:
        load(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: ")
    assert says in message
    assert "\n" not in message


def test_not_nsights(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE notes (text)")
    refused(path, "an SQLite database, not an Nsight Systems export")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE StringTable (_id_, value)")
    refused(path, "an nvprof database")


def test_views_are_no_tables(tmp_path: Path) -> None:
    path = many().write(tmp_path / "a.sqlite", without=("CUPTI_ACTIVITY_KIND_KERNEL",))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE endless(start, end) AS "
            "(SELECT 1, 2 UNION ALL SELECT start + 1, end + 1 FROM endless) SELECT * FROM endless"
        )
    assert len(load(path).ops) == 0


def test_locked_while_it_is_written(tmp_path: Path) -> None:
    path = many().write(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        refused(path, "another program is writing it")
    assert len(load(path).ops) == 400


def test_a_write_ahead_log_is_read_too_or_the_file_refused(tmp_path: Path) -> None:
    path = many().write(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE start > 4000")
        connection.commit()
        left = len(load(path).ops)
        assert left == 200
        moved = tmp_path / "moved.sqlite"
        moved.write_bytes(path.read_bytes())
        Path(f"{moved}-wal").write_bytes(Path(f"{path}-wal").read_bytes())
    assert len(load(moved).ops) == 200


@pytest.mark.parametrize("has_log", [False, True])
def test_nothing_is_made_beside_a_file_in_write_ahead_mode(tmp_path: Path, has_log: bool) -> None:
    folder, temporary = tmp_path / "inputs", tmp_path / "temporary"
    folder.mkdir()
    temporary.mkdir()
    path = many().write(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE start > 4000")
        connection.commit()
        for name in ("a.sqlite", "a.sqlite-wal")[: 1 + has_log]:
            (folder / name).write_bytes((tmp_path / name).read_bytes())
    before = {one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in folder.iterdir()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(temporary))
        assert len(load(folder / "a.sqlite").ops) == (200 if has_log else 400)
    after = {one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in folder.iterdir()}
    assert after == before
    assert list(temporary.iterdir()) == []


def test_nothing_is_left_beside_the_file(tmp_path: Path) -> None:
    path = many().write(tmp_path / "a.sqlite")
    before = path.read_bytes()
    load(path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["a.sqlite"]


@pytest.mark.parametrize("share", [0.03, 0.2, 0.5, 0.9, 0.999])
def test_cut_short(tmp_path: Path, share: float) -> None:
    path = many().write(tmp_path / "a.sqlite")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    refused(path, "cut short")


def test_more_rows_than_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages of an index and of its table may differ."""
    path = many().write(tmp_path / "counts.sqlite")
    monkeypatch.setattr(SqliteFile, "count", lambda *arguments: 7)
    refused(path, "'more rows than it counts'; damaged")


def test_odd_names_of_the_file(tmp_path: Path) -> None:
    path = many().write(tmp_path / "a?b#c %20 é.sqlite")
    assert len(load(path).ops) == 400


@pytest.mark.parametrize("suffix", [".nsys-rep", ".qdrep"])
def test_reports_that_are_not_exported_yet(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"report{suffix}"
    path.write_bytes(b"\x01\x02QuadD")
    refused(path, "nsys export --type sqlite")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return many().write(tmp_path_factory.mktemp("nsys") / "a.sqlite").read_bytes()


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_flipped_bytes_give_a_trace_or_a_trace_error(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    mutated = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 12))):
        mutated[data.draw(st.integers(16, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "flipped.sqlite"
    path.write_bytes(mutated)
    try:
        trace = load(path)
    except TraceError:
        return
    analyzed(trace)


@pytest.mark.parametrize(
    ("update", "column"),
    [
        (
            "UPDATE StringIds SET value = ? WHERE value LIKE 'kernel<1>' OR value LIKE 'x%'",
            "StringIds.value",
        ),
        ("UPDATE TARGET_INFO_GPU SET name = ?", "TARGET_INFO_GPU.name"),
        ("UPDATE DIAGNOSTIC_EVENT SET text = ?", "DIAGNOSTIC_EVENT.text"),
        ("UPDATE NVTX_EVENTS SET text = ?", "NVTX_EVENTS.text"),
    ],
)
def test_texts_that_no_profiler_writes_are_left_out_and_said(
    tmp_path: Path, update: str, column: str
) -> None:
    export = Export()
    for number in range(4):
        at = 60 * number
        export.call(at, at + 5, number + 1)
        export.kernel(at + 8, at + 20, number + 1, name=f"kernel<{number}>")
    export.span(0, 100, "step")
    export.add("DIAGNOSTIC_EVENT", timestamp=1, severity=3, text="warned")
    export.add("TARGET_INFO_GPU", vmId=0, id=0, name="H200")
    path = export.write(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(update, ("x" * (MAX_TEXT_BYTES + 1),))
    trace = load(path)
    assert len(trace.ops) == len(trace.calls) == 4
    assert {"kernel<0>", "kernel<2>", "kernel<3>"} <= {*trace.names}
    assert column in trace.findings[-1].message
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(update, ("x" * 1_000_000,))
    assert max(map(len, load(path).names)) <= MAX_NAME
    assert "too_long_texts" not in codes(load(path))
    assert all(len(finding.message) < 2 * MAX_NAME for finding in load(path).findings)
