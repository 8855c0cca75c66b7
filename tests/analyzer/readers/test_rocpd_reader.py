"""rocpd databases: the same trace as from rocprofv3's JSON, several processes, schemas, damage."""

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import analyze, load
from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.trace import Columns, Trace
from tests.analyzer.readers.test_rocprof_reader import names_of, one_step
from tests.helpers.foreign import rocpd_files, rocprof_files
from tests.helpers.foreign.rocprof_files import CPU, GPU, Process
from tests.helpers.kineto_events import codes


def same_trace(one: Trace, other: Trace) -> bool:
    """Whether all but the sources are equal."""
    pairs = [(getattr(one, key.name), getattr(other, key.name)) for key in fields(one)]
    equal = one.names == other.names and one.shapes == other.shapes
    equal = equal and one.device_names == other.device_names and one.findings == other.findings
    return equal and all(
        np.array_equal(getattr(first, column.name), getattr(second, column.name))
        for first, second in pairs
        if isinstance(first, Columns)
        for column in fields(first)  # type: ignore[arg-type]
    )


def test_one_step(tmp_path: Path) -> None:
    trace = load(rocpd_files.write(tmp_path / "results.db", one_step()))
    # A mark has no length, and is no region.
    assert (trace.source.format, trace.source.events) == ("rocpd", 9)
    assert trace.ops.start_ns.tolist() == [30, 70, 100, 135]
    assert names_of(trace, trace.calls.name[trace.ops.launch]) == [
        "hipLaunchKernel",
        "hipMemcpyAsync",
        "hipGraphLaunch",
        "hipGraphLaunch",
    ]
    assert (trace.calls.pid.tolist(), trace.calls.tid.tolist()) == ([100] * 3, [101] * 3)
    assert names_of(trace, trace.ranges.name) == ["decode_step"]
    report = analyze(trace).report
    assert [(step.gpu_ops, step.launch_calls) for step in report.steps] == [(4, 3)]
    assert report.health.unlinked_gpu_ops == 0


def drawn_process(rng: random.Random, pid: int) -> Process:
    process = Process(pid, gpus=rng.choice((1, 3)), streams=rng.random() < 0.7)
    for number in range(1, rng.randrange(2, 30)):
        at = rng.randrange(1, 5_000)
        kind = rng.randrange(5)
        if kind == 0:
            ends = rng.choice(((CPU, GPU), (GPU, CPU), (GPU, GPU), (CPU, CPU)))
            process.copy(at, at + rng.randrange(9), number, source=ends[0], target=ends[1])
        elif kind == 1:
            process.marker(at, at + rng.randrange(1, 90), 100 + number, rng.choice(("a", "b é")))
        elif kind == 2:
            process.call(at, at + 9, number, name="hsa_queue_create", tid=rng.choice((101, 102)))
        else:
            process.call(at, at + 9, number, tid=rng.choice((101, 102)))
        end = at + rng.choice((0, 7, 40, -3))
        process.kernel(
            at,
            end,
            number,
            kernel=rng.choice((7, 8, 9)),
            queue=rng.choice((3, 4)),
            agent=GPU + rng.choice((0, 0, 1)),
            threads=(rng.choice((64, 100)), 2, 1),
            block=rng.choice((None, (64, 1, 1))),
            lds=rng.choice((None, 1024)),
        )
    return process


@given(st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_the_trace_is_that_of_the_json(
    tmp_path_factory: pytest.TempPathFactory, rng: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("rocpd")
    processes = [drawn_process(rng, 100 + number) for number in range(rng.choice((1, 1, 3)))]
    database = load(rocpd_files.write(folder / "results.db", *processes))
    assert same_trace(database, load(rocprof_files.write(folder / "results.json", *processes)))


@pytest.mark.parametrize("guid", ["", "018f_b2"])
def test_names_of_tables_may_end_with_a_guid(guid: str, tmp_path: Path) -> None:
    path = rocpd_files.write(tmp_path / "results.db", one_step(), guids=[guid])
    assert len(load(path).ops) == 4


def test_several_processes_in_the_same_tables_are_kept_apart(tmp_path: Path) -> None:
    """Files that were merged keep the ids of each process, which may be equal."""
    path = rocpd_files.write(tmp_path / "results.db", one_step(), guids=[""])
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO rocpd_info_process (id, nid, pid) VALUES (2, 1, 222)")
        for table in ("kernel_dispatch", "region", "info_agent"):
            columns = [
                row[1]
                for row in database.execute(f"PRAGMA table_info(rocpd_{table})")
                if row[1] not in ("id", "pid")
            ]
            listed = ", ".join(f'"{column}"' for column in columns)
            database.execute(
                f"INSERT INTO rocpd_{table} (pid, {listed}) SELECT 2, {listed} FROM rocpd_{table}"
            )
    trace = load(path)
    assert len(trace.ops) == 4 + 3
    assert sorted(set(trace.calls.pid.tolist())) == [100, 222]
    # The process with the smaller id is the first.
    assert np.count_nonzero(trace.ops.correlation >= 1 << 32) == 4
    assert trace.calls.pid[trace.ops.launch[trace.ops.correlation >= 1 << 32]].tolist() == [100] * 4


def changed(sql: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(sql)

    return change


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (
            "UPDATE rocpd_metadata_0 SET value = '4.1.0' WHERE tag = 'schema_version'",
            r"schema version 4\.1\.0, where 3 is expected",
        ),
        ("DELETE FROM rocpd_metadata_0", "schema version none, where 3 is expected"),
        ("DROP TABLE rocpd_info_process_0", "without rocpd_info_process"),
        (
            "INSERT INTO rocpd_info_node_0 (id, hash, machine_id) VALUES (9, 9, 'another')",
            "processes of 2 machines, whose clocks differ",
        ),
    ],
)
def test_what_is_no_database_of_one_machine_in_the_known_schema(
    sql: str, says: str, tmp_path: Path
) -> None:
    path = rocpd_files.write(tmp_path / "results.db", one_step(), guids=["0"])
    changed(sql)(path)
    with pytest.raises(TraceError, match=says) as raised:
        load(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("version", ["3", "3.0.5"])
def test_versions_of_the_known_schema_are_read(version: str, tmp_path: Path) -> None:
    path = rocpd_files.write(tmp_path / "results.db", one_step(), version=version)
    assert len(load(path).ops) == 4


def test_rows_without_an_event_or_of_other_domains(tmp_path: Path) -> None:
    path = rocpd_files.write(tmp_path / "results.db", one_step(), guids=["0"])
    changed("UPDATE rocpd_kernel_dispatch_0 SET event_id = NULL")(path)
    changed("UPDATE rocpd_string_0 SET string = 'KFD_PAGE_FAULT' WHERE string GLOB 'HIP*'")(path)
    trace = load(path)
    assert (len(trace.ops), len(trace.calls)) == (4, 0)
    assert trace.ops.launch.tolist() == [-1] * 4
    assert "no_hip_trace" in codes(trace)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE rocpd_kernel_dispatch_0 SET start = 'soon'",
        "UPDATE rocpd_kernel_dispatch_0 SET end = start - 1",
        "UPDATE rocpd_kernel_dispatch_0 SET start = x'00', end = 1.5",
    ],
)
def test_unusable_times_are_left_out_and_said(sql: str, tmp_path: Path) -> None:
    path = rocpd_files.write(tmp_path / "results.db", one_step(), guids=["0"])
    changed(sql)(path)
    trace = load(path)
    assert len(trace.ops) == 1
    assert "dropped_events" in codes(trace)


def test_two_events_of_one_id_are_damage(tmp_path: Path) -> None:
    path = rocpd_files.write(tmp_path / "results.db", one_step(), guids=["0"])
    changed("ALTER TABLE rocpd_event_0 RENAME TO old")(path)
    changed("CREATE TABLE rocpd_event_0 AS SELECT * FROM old UNION ALL SELECT * FROM old")(path)
    with pytest.raises(TraceError, match="several events of one id"):
        load(path)


@given(st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_damaged_cells_give_a_trace_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, rng: random.Random
) -> None:
    path = tmp_path_factory.mktemp("rocpd") / "results.db"
    rocpd_files.write(path, one_step(), guids=["0"])
    table = rng.choice([*rocpd_files.TABLES])
    column = rng.choice([one.partition(" ")[0] for one in (*rocpd_files.TABLES[table], "id ")])
    cell = rng.choice(("NULL", "-1", "9223372036854775807", "1e300", "''", "x'ff00'", "'3'"))
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(path.read_bytes())
        for change in (
            f'UPDATE OR IGNORE {{}} SET "{column}" = {cell}',
            f'ALTER TABLE {{}} DROP COLUMN "{column}"',
        ):
            if rng.random() < 0.6:
                with suppress(sqlite3.Error):
                    database.execute(change.format(f"rocpd_{table}_0"))
        database.commit()
        path.write_bytes(database.serialize())
    with suppress(TraceError):
        assert all(kernel.total_ns >= 0 for kernel in analyze(load(path)).report.kernels)
