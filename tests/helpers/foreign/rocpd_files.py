"""Small rocpd databases for tests: the processes of `rocprof_files`, as rocprofv3 writes them.

Tables and columns are those of ROCm's rocprofiler-sdk (`rocpd_tables.sql`, schema 3.0.x), where
each name ends with the GUID of a process, and a view of the same name joins those of all.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.helpers.foreign.rocprof_files import _OPERATIONS, HIP_RUNTIME, HSA_CORE, KERNELS, Process

_TIMES = ("start BIGINT NOT NULL", "end BIGINT NOT NULL")
_OWNER = ("nid INTEGER NOT NULL", "pid INTEGER NOT NULL")
_EXTENTS = tuple(
    f"{what}_size_{axis} INTEGER NOT NULL" for what in ("workgroup", "grid") for axis in "xyz"
)
TABLES: dict[str, tuple[str, ...]] = {
    "metadata": ("tag TEXT NOT NULL", "value TEXT NOT NULL"),
    "string": ("string TEXT NOT NULL UNIQUE ON CONFLICT ABORT",),
    "info_node": (
        "hash BIGINT NOT NULL UNIQUE",
        "machine_id TEXT NOT NULL UNIQUE",
        "hostname TEXT",
    ),
    "info_process": (
        "nid INTEGER NOT NULL",
        "ppid INTEGER",
        "pid INTEGER NOT NULL",
        "start BIGINT",
        "end BIGINT",
        "command TEXT",
    ),
    "info_thread": (*_OWNER, "tid INTEGER NOT NULL", "name TEXT"),
    "info_agent": (
        *_OWNER,
        "type TEXT CHECK (type IN ('CPU', 'GPU', 'NIC'))",
        "absolute_index INTEGER",
        "type_index INTEGER",
        "name TEXT",
        "product_name TEXT",
    ),
    "info_kernel_symbol": (
        *_OWNER,
        "code_object_id INTEGER NOT NULL",
        "kernel_name TEXT",
        "display_name TEXT",
        "arch_vgpr_count INTEGER",
        "accum_vgpr_count INTEGER",
    ),
    "event": (
        "category_id INTEGER",
        "stack_id INTEGER",
        "parent_stack_id INTEGER",
        "correlation_id INTEGER",
        "extdata JSONB DEFAULT '{}' NOT NULL",
    ),
    "region": (
        *_OWNER,
        "tid INTEGER NOT NULL",
        *_TIMES,
        "name_id INTEGER NOT NULL",
        "event_id INTEGER",
    ),
    "sample": ("track_id INTEGER NOT NULL", "timestamp BIGINT NOT NULL", "event_id INTEGER"),
    "kernel_dispatch": (
        *_OWNER,
        "tid INTEGER",
        "agent_id INTEGER NOT NULL",
        "kernel_id INTEGER NOT NULL",
        "queue_id INTEGER NOT NULL",
        "stream_id INTEGER NOT NULL",
        *_TIMES,
        "group_segment_size INTEGER",
        *_EXTENTS,
        "event_id INTEGER",
    ),
    "memory_copy": (
        *_OWNER,
        "tid INTEGER",
        *_TIMES,
        "name_id INTEGER NOT NULL",
        "dst_agent_id INTEGER",
        "src_agent_id INTEGER",
        "size INTEGER NOT NULL",
        "stream_id INTEGER",
        "event_id INTEGER",
    ),
}
_CATEGORIES = {HIP_RUNTIME: "HIP_RUNTIME_API_EXT", HSA_CORE: "HSA_CORE_API"}
# Threads have numbers of their own in the files of other writers.
_THREADS_FROM = 7_000


class Tables:
    """Fills the tables of one process, whose names end with `guid`."""

    def __init__(self, database: sqlite3.Connection, guid: str) -> None:
        self._database = database
        self._end = f"_{guid}" if guid else ""
        self._strings: dict[str, int] = {}
        for name, columns in TABLES.items():
            key = "id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT"
            guid_column = f"guid TEXT DEFAULT '{guid}' NOT NULL"
            joined = ", ".join(
                f'"{one.partition(" ")[0]}" {one.partition(" ")[2]}'
                for one in (key, guid_column, *columns)
            )
            database.execute(f'CREATE TABLE "rocpd_{name}{self._end}" ({joined})')

    def add(self, table: str, **values: Any) -> int:
        marks = ", ".join("?" * len(values))
        columns = ", ".join(f'"{column}"' for column in values)
        statement = f'INSERT INTO "rocpd_{table}{self._end}" ({columns}) VALUES ({marks})'
        return self._database.execute(statement, (*values.values(),)).lastrowid or 0

    def string(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = self.add("string", string=text)
        return self._strings[text]

    def event(self, category: str, record: Mapping[str, Any], text: str | None = None) -> int:
        internal = record["correlation_id"]["internal"]
        extra = {} if text is None else {"message": text}
        return self.add(
            "event",
            category_id=self.string(category),
            stack_id=internal,
            parent_stack_id=internal,
            correlation_id=0,
            extdata=json.dumps(extra),
        )

    def fill(self, process: Process, kernels: Mapping[int, str], version: str) -> None:
        for tag, value in (("schema_version", version), ("guid", self._end)):
            self.add("metadata", tag=tag, value=value)
        pid, owner = process.pid, {"nid": 1, "pid": process.pid}
        self.add("info_node", id=1, hash=5, machine_id="machine", hostname="host")
        self.add("info_process", id=pid, nid=1, pid=pid, command="python")
        for agent in process.agents:
            self.add(
                "info_agent",
                id=agent["id"]["handle"],
                **owner,
                name=agent["name"],
                type="GPU" if agent["type"] == 2 else "CPU",
                product_name=agent["product_name"],
                type_index=agent.get("logical_node_type_id", 0),
            )
        for number, name in kernels.items():
            counts = {"arch_vgpr_count": 32, "accum_vgpr_count": 8} if number == 7 else {}
            self.add(
                "info_kernel_symbol",
                id=number or None,
                **owner,
                code_object_id=1,
                kernel_name=f"_Z{number}.kd",
                display_name=name,
                **counts,
            )
        records = process.records
        for record in records["kernel_dispatch"]:
            self._dispatch(record, owner)
        for record in records["memory_copy"]:
            self.add(
                "memory_copy",
                **owner,
                **_times(record),
                name_id=self.string("MEMORY_COPY"),
                dst_agent_id=record["dst_agent_id"]["handle"],
                size=8,
                src_agent_id=record["src_agent_id"]["handle"],
                stream_id=record.get("stream_id", {"handle": 0})["handle"],
                event_id=self.event("MEMORY_COPY", record),
            )
        for record in (*records["hip_api"], *records["hsa_api"], *records["marker_api"]):
            self._region(record, owner, process)

    def _dispatch(self, record: Mapping[str, Any], owner: Mapping[str, int]) -> None:
        info = record["dispatch_info"]
        sizes = {
            f"{what}_size_{axis}": info.get(f"{what}_size", {}).get(axis, 0)
            for what in ("workgroup", "grid")
            for axis in "xyz"
        }
        self.add(
            "kernel_dispatch",
            **owner,
            **_times(record),
            **sizes,
            agent_id=info["agent_id"]["handle"],
            kernel_id=info["kernel_id"],
            queue_id=info["queue_id"]["handle"],
            stream_id=record.get("stream_id", {"handle": 0})["handle"],
            group_segment_size=info.get("group_segment_size"),
            event_id=self.event("KERNEL_DISPATCH", record),
        )

    def _region(
        self, record: Mapping[str, Any], owner: Mapping[str, int], process: Process
    ) -> None:
        name = _OPERATIONS[record["kind"]][record["operation"]]
        text = process.texts.get(record["correlation_id"]["internal"])
        event = self.event(_CATEGORIES.get(record["kind"], "MARKER_CORE_RANGE_API"), record, text)
        times = _times(record)
        if name.startswith("roctxMark"):
            self.add("sample", track_id=1, timestamp=times["start"], event_id=event)
            return
        thread = _THREADS_FROM + record["thread_id"]
        known = f'SELECT 1 FROM "rocpd_info_thread{self._end}" WHERE id = {thread}'
        if not self._database.execute(known).fetchall():
            self.add("info_thread", id=thread, **owner, tid=record["thread_id"])
        self.add("region", **owner, **times, tid=thread, name_id=self.string(name), event_id=event)


def _times(record: Mapping[str, Any]) -> dict[str, int]:
    return {"start": record["start_timestamp"], "end": record["end_timestamp"]}


def write(
    path: Path,
    *processes: Process,
    kernels: Mapping[int, str] = KERNELS,
    version: str = "3",
    guids: Iterable[str] = (),
) -> Path:
    """The database of these processes; by default their GUIDs are 0000_0, 0000_1 and so on."""
    ends = [*guids] or [f"0000_{number}" for number in range(len(processes))]
    with closing(sqlite3.connect(":memory:")) as database:
        for guid, process in zip(ends, processes, strict=True):
            Tables(database, guid).fill(process, kernels, version)
        if all(ends):
            for name in TABLES:
                each = (f'SELECT * FROM "rocpd_{name}_{guid}"' for guid in ends)
                database.execute(f"CREATE VIEW rocpd_{name} AS {' UNION ALL '.join(each)}")
        database.commit()
        path.write_bytes(database.serialize())
    return path
