"""The parts of a rocpd database, as `document.read_parts` gives those of rocprofv3's JSON.

rocprofv3 writes rocpd by default since ROCm 7. Source: ROCm's rocprofiler-sdk
(`share/rocprofiler-sdk-rocpd`, and `generateRocpd.cpp`, which writes it). The tables of a process
end with its GUID, so a file can hold several. `stack_id` of a row's event is the internal
correlation id, which a GPU op shares with the call that launched it.
"""

import sqlite3
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct
from msgspec.json import Decoder

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.kineto.event import clean_text, decoded
from decodescope.analyzer.readers.rocprof.document import (
    GPU_AGENT,
    Agent,
    ApiCall,
    Copy,
    CorrelationId,
    Dispatch,
    DispatchInfo,
    Entry,
    Extent,
    Handle,
    KernelSymbol,
    OperationNames,
    Part,
)
from decodescope.analyzer.readers.sqlite_file import TEXT_ROWS, Row, SqliteFile
from decodescope.analyzer.readers.trace_columns import NOT_GIVEN

_PREFIX = "rocpd_"
_SCHEMA = "3"
_CHUNK_ROWS = 8_000
# Each is looked for in every table.
_MAX_PROCESSES = 1_000
_HOST_AGENT = 1
_AXES = "xyz"
_JSON_INSTEAD = "record it again with rocprofv3 --output-format json"


class _Extra(Struct, gc=False):
    message: str = ""


_extras = Decoder(_Extra)


def is_rocpd(tables: Collection[str]) -> bool:
    return any(table.startswith(_PREFIX) for table in tables)


def rocpd_parts(file: SqliteFile) -> Iterator[Part]:
    """The parts of each process, and ("", pid) behind it.

    Raises:
        TraceError: the schema is another one, or the file holds processes of several machines.
    """
    name = f"{_PREFIX}info_process"
    ends = [table.removeprefix(name) for table in file.tables if table.startswith(name)]
    if not ends:
        raise TraceError(
            f"{file.path}: a rocpd database without {name}, which schema {_SCHEMA} of rocprofv3 "
            f"has (rocmProfileData writes others); {_JSON_INSTEAD}"
        )
    tables = [_Tables(file, end) for end in sorted(ends)]
    machines = {machine for one in tables for (machine,) in one.rows("info_node", ("machine_id",))}
    if len(machines) > 1:
        raise TraceError(
            f"{file.path}: holds processes of {len(machines)} machines, whose clocks differ; give "
            "the file of one machine"
        )
    for one in tables:
        one.check_schema()
        yield from one.parts()


class _Tables:
    """The tables whose names end with `end`."""

    def __init__(self, file: SqliteFile, end: str) -> None:
        self._file = file
        self._end = end

    def rows(self, table: str, columns: Sequence[str], where: str = "1") -> Iterator[Row]:
        return self._file.rows(self._name(table), columns, where)

    def check_schema(self) -> None:
        """Raises `TraceError` if the version is unknown."""
        found = next(self.rows("metadata", ("tag", "value"), "\"tag\" = 'schema_version'"), None)
        version = "none" if found is None else " ".join(str(found[1])[:40].split())
        if version.partition(".")[0] != _SCHEMA:
            raise TraceError(
                f"{self._file.path}: a rocpd database with schema version {version}, where "
                f"{_SCHEMA} is expected; {_JSON_INSTEAD}"
            )

    def parts(self) -> Iterator[Part]:
        processes = [*self.rows("info_process", ("id", "pid"))]
        if len(processes) > _MAX_PROCESSES:
            raise TraceError(
                f"{self._file.path}: names {len(processes):,} processes, as no run has; "
                "record it again"
            )
        for number, pid in processes or [(NOT_GIVEN, NOT_GIVEN)]:
            several = len(processes) > 1 and isinstance(number, int)
            yield from self._process(f"={number}" if several else "")
            yield "", pid if isinstance(pid, int) else NOT_GIVEN

    def _process(self, is_own: str) -> Iterator[Part]:
        """`is_own` compares a column `pid` with the process; "" where the file has only one."""
        yield "agents", self._agents(is_own)
        operations = self._operations()
        place = {number: at for at, number in enumerate(operations)}
        yield "strings.buffer_records", [OperationNames([*operations.values()])]
        for texts in self._markers():
            yield "strings.marker_api", texts
        for symbols in self._symbols(is_own):
            yield "kernel_symbols", symbols
        for rows in self._timed("kernel_dispatch", _DISPATCH, is_own):
            yield "buffer_records.kernel_dispatch", [*map(_dispatch, rows)]
        for rows in self._timed("memory_copy", _COPY, is_own):
            yield "buffer_records.memory_copy", [*map(_copy, rows)]
        threads: dict[object, object] = dict(self.rows("info_thread", ("id", "tid")))

        def call(row: Row) -> ApiCall:
            start, end, correlation, name, thread = row
            tid = threads.get(thread, thread)
            tid = tid if isinstance(tid, int) else NOT_GIVEN
            return ApiCall(start, end, CorrelationId(correlation), 0, place.get(name, -1), tid)

        for domain in ("hip", "hsa", "marker"):
            of_domain = self._category(domain)
            for rows in self._timed("region", ("name_id", "tid"), is_own, of_domain):
                yield f"buffer_records.{domain}_api", [*map(call, rows)]

    def _agents(self, is_own: str) -> list[Agent]:
        columns = ("id", "type", "name", "product_name", "type_index")
        agents = [Agent(Handle(NOT_GIVEN), _HOST_AGENT)]
        for number, kind, name, product, index in self.rows("info_agent", columns, _of(is_own)):
            if isinstance(number, int):
                agents.append(
                    Agent(
                        Handle(number),
                        GPU_AGENT if kind == "GPU" else _HOST_AGENT,
                        name if isinstance(name, str) else "",
                        product if isinstance(product, str) else "",
                        index if isinstance(index, int) else None,
                    )
                )
        return agents

    def _symbols(self, is_own: str) -> Iterator[list[KernelSymbol]]:
        table = self._name("info_kernel_symbol")
        if not self._file.has(table, "id"):
            return
        names = [self._text(table, column) for column in ("display_name", "kernel_name")]
        counts = [self._file.integer(table, f"{kind}_vgpr_count") for kind in ("arch", "accum")]
        query = (
            f"SELECT {self._file.integer(table, 'id')}, coalesce({', '.join(names)}, ''), "
            f'{", ".join(counts)} FROM "{table}" WHERE {_of(is_own)}'
        )
        for rows in self._file.chunks(query, TEXT_ROWS):
            yield [
                KernelSymbol(
                    number,
                    name,
                    arch_vgpr_count=None if vectors < 0 else vectors,
                    accum_vgpr_count=max(accumulators, 0),
                )
                for number, name, vectors, accumulators in rows
            ]

    def _text(self, table: str, column: str) -> str:
        """The column in a query, as a text that is not empty."""
        if not self._file.has(table, column):
            return "NULL"
        return f"CASE typeof(\"{column}\") WHEN 'text' THEN nullif(\"{column}\", '') END"

    def _operations(self) -> dict[int, str | None]:
        """The names of the calls by their number."""
        region = self._name("region")
        if region not in self._file.tables:
            return {}
        used = f'"id" IN (SELECT "name_id" FROM "{region}")'
        rows = self.rows("string", ("id", "string"), used)
        return {number: text if isinstance(text, str) else None for number, text in rows}

    def _markers(self) -> Iterator[list[Entry[str]]]:
        """The messages of roctx, by correlation id."""
        event = self._name("event")
        if not all(self._file.has(event, column) for column in ("extdata", "category_id")):
            return
        query = (
            f'SELECT {self._file.integer(event, "stack_id", "e")}, e."extdata" FROM "{event}" e '
            f"WHERE typeof(e.\"extdata\") = 'text' AND {self._category('marker')}"
        )
        for rows in self._file.chunks(query, TEXT_ROWS):
            found = [(key, decoded(_extras, text)) for key, text in rows]
            yield [Entry(key, clean_text(one.message)) for key, one in found if one and one.message]

    def _category(self, domain: str) -> str:
        """The condition that an event `e` is of HIP, HSA or roctx: the names of its category are
        `HIP_RUNTIME_API_EXT`, `HSA_CORE_API`, `MARKER_CORE_RANGE_API` and the like."""
        string = self._name("string")
        if not self._file.has(string, "string"):
            return "0"
        named = f"\"string\" LIKE '%{domain}%api%'"
        return f'e."category_id" IN (SELECT "id" FROM "{string}" WHERE {named})'

    def _timed(
        self, table: str, columns: Sequence[str], is_own: str, where: str = ""
    ) -> Iterator[list[Row]]:
        """Start, end, correlation id and `columns` of rows, as integers; `where` is a condition on
        their events, without which a row needs none."""
        name, event = self._name(table), self._name("event")
        if name not in self._file.tables or event not in self._file.tables:
            return
        own = [self._file.integer(name, one, "r") for one in ("start", "end", *columns)]
        own.insert(2, self._file.integer(event, "stack_id", "e"))
        # Events are looked up for each row: the other way round, SQLite would make an index first.
        join = "CROSS" if where else "LEFT"
        query = (
            f'SELECT {", ".join(own)} FROM "{name}" r {join} JOIN "{event}" e '
            f'ON e."id" = r."event_id" WHERE {_of(is_own, "r.")} AND {where or 1}'
        )
        most, read = self._file.count(name), 0
        for rows in self._file.chunks(query, _CHUNK_ROWS):
            read += len(rows)
            if read > most:
                raise sqlite3.DatabaseError("several events of one id")
            yield rows

    def _name(self, table: str) -> str:
        return f"{_PREFIX}{table}{self._end}"


_DISPATCH = (
    "agent_id",
    "queue_id",
    "stream_id",
    "kernel_id",
    *(f"workgroup_size_{axis}" for axis in _AXES),
    *(f"grid_size_{axis}" for axis in _AXES),
    "group_segment_size",
)
_COPY = ("src_agent_id", "dst_agent_id", "stream_id")


def _dispatch(row: Row) -> Dispatch:
    start, end, correlation, agent, queue, stream, kernel, *sizes, lds = row
    info = DispatchInfo(
        Handle(agent), Handle(queue), kernel, Extent(*sizes[:3]), Extent(*sizes[3:]), lds
    )
    return Dispatch(start, end, CorrelationId(correlation), info, Handle(max(stream, 0)))


def _copy(row: Row) -> Copy:
    start, end, correlation, source, target, stream = row
    ends = Handle(source), Handle(target)
    return Copy(start, end, CorrelationId(correlation), *ends, Handle(max(stream, 0)))


def _of(is_own: str, table: str = "") -> str:
    return f'{table}"pid" {is_own}' if is_own else "1"
