"""Cases of Nsight Systems exports and rocpd databases: cells of odd types, tables that lack parts,
damaged bytes."""

import random
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from tests.fuzzing.case import ODD_NUMBERS, ODD_TEXTS, Case
from tests.fuzzing.damage import damage_bytes
from tests.fuzzing.traces import trace_case
from tests.helpers.foreign import rocpd_files
from tests.helpers.foreign.nsys_files import TABLES, Export, global_tid
from tests.helpers.foreign.rocprof_files import Process

_INT64 = 2**63


@cache
def _whole() -> bytes:
    """A small export with rows in every table that is read."""
    export = Export()
    export.span(0, 4_000, "decode_step")
    export.span(10, None, "left open", kind=60)
    for index in range(60):
        at = 60 * index
        export.call(
            at, at + 5, index + 1, name=("cudaLaunchKernel_v7000", "cudaGraphLaunch")[index % 2]
        )
        export.kernel(at + 8, at + 18 + index % 3, index + 1, name=f"kernel<{index % 9}>")
        export.span(at, at + 20, "layer", registered=index % 2 == 0)
    for table in ("MEMCPY", "MEMSET"):
        export.add(
            f"CUPTI_ACTIVITY_KIND_{table}",
            start=30,
            end=35,
            deviceId=0,
            streamId=7,
            bytes=64,
            correlationId=3,
            globalPid=global_tid(100, 0),
        )
    export.add("CUPTI_ACTIVITY_KIND_OVERHEAD", start=1, end=9, overheadType=1)
    export.add("TARGET_INFO_GPU", vmId=0, id=0, name="NVIDIA H200")
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=10**18, systemClockNs=5)
    export.add("DIAGNOSTIC_EVENT", timestamp=1, severity=3, text="CUPTI dropped events")
    with tempfile.TemporaryDirectory() as folder:
        return export.write(Path(folder) / "a.sqlite").read_bytes()


@cache
def _rocpd(processes: int) -> bytes:
    """A small database with rows in every table that is read."""
    written = []
    for number in range(processes):
        process = Process(100 + number)
        process.marker(1, 4_000, 900, "decode_step")
        for index in range(1, 40):
            at = 60 * index
            process.call(at, at + 5, index, name=("hipLaunchKernel", "hipGraphLaunch")[index % 2])
            process.call(at + 1, at + 3, 200 + index, name="hsa_queue_create")
            process.kernel(at + 8, at + 18 + index % 3, index, kernel=7 + index % 2)
            process.marker(at, at + 20, 500 + index, f"layer {index % 4}")
        process.copy(30, 35, 3)
        written.append(process)
    with tempfile.TemporaryDirectory() as folder:
        return rocpd_files.write(Path(folder) / "a.db", *written).read_bytes()


def database_case(rng: random.Random) -> Case:
    """A command that reads an export damaged in its cells, its tables or its bytes."""
    data = _damaged(rng, _whole(), tuple(TABLES))
    return trace_case(rng, rng.choice(("report.sqlite", "report.json")), data)


def rocpd_case(rng: random.Random) -> Case:
    """The same of a rocpd database, of one process or two."""
    data = _rocpd(rng.choice((1, 2)))
    tables = [f"rocpd_{name}_0000_{number}" for name in rocpd_files.TABLES for number in (0, 1)]
    return trace_case(rng, "results.db", _damaged(rng, data, tables))


def _damaged(rng: random.Random, data: bytes, tables: Sequence[str]) -> bytes:
    if rng.random() < 0.75:
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(data)
            for _ in range(rng.randint(0, 5)):
                with suppress(sqlite3.Error):
                    _damage(database, rng, tables)
            database.commit()
            data = database.serialize()
    return damage_bytes(data, rng) if rng.random() < 0.35 else data


def _damage(database: sqlite3.Connection, rng: random.Random, tables: Sequence[str]) -> None:
    table = rng.choice(tables)
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    column = rng.choice(columns or ["none"])
    kind = rng.randrange(10)
    if kind == 0:
        database.execute(f"DROP TABLE {table}")
    elif kind == 1:
        database.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    elif kind == 2:
        database.execute(f"DELETE FROM {table} WHERE rowid % ? = 0", (rng.choice((1, 2, 7)),))
    elif kind == 3:
        database.execute(f"UPDATE {table} SET {column} = NULL")
    elif kind == 4:
        database.execute(f"INSERT INTO {table} SELECT * FROM {table}")
    else:
        wide = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid % ? = 0"
        database.execute(wide, (_cell(rng), rng.choice((1, 2, 7))))


def _cell(rng: random.Random) -> object:
    """A value of any of SQLite's types; text need not be UTF-8."""
    value = rng.choice((*ODD_NUMBERS, *ODD_TEXTS, None, b"", b"\xff\x00\xfe"))
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        return float(min(value, 10**300))
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
