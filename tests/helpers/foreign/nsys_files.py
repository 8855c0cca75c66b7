"""Small Nsight Systems exports for tests: the exporter's tables, with the given rows only."""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

PUSH_POP, START_END, MARK = 59, 60, 34
TABLES = {
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,"
    " contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,"
    " demangledName INTEGER, shortName INTEGER, mangledName INTEGER, graphNodeId INTEGER,"
    " graphId INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER,"
    " blockY INTEGER, blockZ INTEGER, registersPerThread INTEGER, staticSharedMemory INTEGER,"
    " dynamicSharedMemory INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,"
    " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER,"
    " copyKind INTEGER, srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER,"
    " virtualAddress INTEGER -- Virtual base address\n",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,"
    " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, memKind INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER NOT NULL, end INTEGER NOT NULL,"
    " deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,"
    " graphId INTEGER, graphExecId INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL,"
    " eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER,"
    " returnValue INTEGER",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "start INTEGER, end INTEGER, overheadType INTEGER",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER, text TEXT,"
    " textId INTEGER, globalTid INTEGER, endGlobalTid INTEGER, domainId INTEGER",
    "TARGET_INFO_GPU": "vmId INTEGER, id INTEGER NOT NULL, name TEXT",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, systemClockNs INTEGER",
    "ANALYSIS_DETAILS": "globalVid INTEGER, duration INTEGER, startTime INTEGER, stopTime INTEGER",
    "DIAGNOSTIC_EVENT": "timestamp INTEGER, severity INTEGER, text TEXT",
}


def global_pid(pid: int) -> int:
    return (1 << 48) | (pid << 24)


def global_tid(pid: int, tid: int) -> int:
    return global_pid(pid) | tid


class Export:
    """Gathers rows; `write` makes the file. Text columns named `…Id`/`…Name` take the text."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, dict[str, Any]]] = []
        self.strings: dict[str, int] = {}

    def add(self, table: str, **values: Any) -> None:
        self.rows.append((table, values))

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, 1000 + len(self.strings))

    def kernel(
        self,
        start: int,
        end: int,
        correlation: int,
        *,
        name: str = "kernel<float>(int)",
        pid: int = 100,
        device: int = 0,
        stream: int = 7,
        node: int | None = None,
        **shape: int,
    ) -> None:
        self.add(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            start=start,
            end=end,
            deviceId=device,
            streamId=stream,
            correlationId=correlation,
            globalPid=global_pid(pid),
            demangledName=self.string(name),
            shortName=self.string("kernel"),
            graphNodeId=node,
            graphId=0,
            **shape,
        )

    def call(
        self,
        start: int,
        end: int,
        correlation: int,
        *,
        name: str = "cudaLaunchKernel_v7000",
        pid: int = 100,
        tid: int = 111,
    ) -> None:
        self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start,
            end=end,
            eventClass=0,
            returnValue=0,
            globalTid=global_tid(pid, tid),
            correlationId=correlation,
            nameId=self.string(name),
        )

    def span(
        self,
        start: int,
        end: int | None,
        text: str,
        *,
        kind: int = PUSH_POP,
        pid: int = 100,
        tid: int = 111,
        registered: bool = False,
        domain: int = 0,
    ) -> None:
        self.add(
            "NVTX_EVENTS",
            start=start,
            end=end,
            eventType=kind,
            domainId=domain,
            text=None if registered else text,
            textId=self.string(text) if registered else None,
            globalTid=global_tid(pid, tid),
        )

    def write(
        self, path: Path, *, without: Iterable[str] = (), without_columns: Sequence[str] = ()
    ) -> Path:
        with closing(sqlite3.connect(path)) as connection, connection:
            for table, declared in TABLES.items():
                if table not in without:
                    columns = [one.strip() for one in declared.split(",")]
                    kept = [one for one in columns if one.split()[0] not in without_columns]
                    connection.execute(f"CREATE TABLE {table} ({', '.join(kept)}\n)")
            strings = [("StringIds", {"id": i, "value": text}) for text, i in self.strings.items()]
            for table, values in [*strings, *self.rows]:
                if table in without:
                    continue
                row = {key: one for key, one in values.items() if key not in without_columns}
                into = f"{table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
                connection.execute(f"INSERT INTO {into}", tuple(row.values()))
        return path
