"""An Nsight Systems SQLite export, opened read-only, as columns of integers and looked-up texts.

Tables and columns depend on the version of the exporter, so both are optional: a missing table has
no rows, a missing or NULL column reads as -1.
"""

import os
import shutil
import sqlite3
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.trace_columns import LIMIT_NS, MAX_NAME
from decodescope.analyzer.trace import Int64s

_HEADER_BYTES = 100
_MAX_PAGE = 65_536
_CHUNK_ROWS, _TEXT_ROWS = 8_000, 500
# Of one query.
MAX_IDS = 500
# As in a JSON trace; SQLite and Python hold a text at the same time.
MAX_TEXT_BYTES = 16 << 20
# Of a longer text the middle is left out; `Names` leaves out more, and says so.
_HALF_BYTES = 4 * MAX_NAME
# The sqlite3 module decodes SQLite's messages, which quote the broken file, strictly.
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
_SIDE_FILES = ("-wal", "-journal")
_OF_NSIGHT = ("META_DATA_EXPORT", "StringIds")
_OF_NVPROF = "StringTable"
_OF_ROCPD = "rocpd_"
# The bytes of the header that name the file's write and read mode.
_MODES = slice(18, 20)
_ROLLBACK_MODES, _WRITE_AHEAD_MODES = b"\x01\x01", b"\x02\x02"
# Columns and the bits that each one's values take, 63 in all at most.
Packed = Sequence[tuple[str, int]]
_Row = tuple[Any, ...]
_USABLE = (
    'typeof("start") = \'integer\' AND typeof("end") = \'integer\' AND "end" >= "start" '
    f'AND "start" >= {-LIMIT_NS} AND "end" <= {LIMIT_NS}'
)


class NsysDatabase:
    """An open export. `tables` maps each table to its columns; `rows_read` counts the events
    returned, `dropped` those left out because their times are not usable integers. `too_long` names
    the columns of which a text was too long to be read."""

    def __init__(self, source: ByteSource) -> None:
        """Raises `TraceError` for a file that is locked, damaged or not Nsight's."""
        self.path = source.path
        self.rows_read = 0
        self.dropped = 0
        self.too_long = set[str]()
        self._closing = ExitStack()
        with ExitStack() as stack:
            try:
                self._connection = stack.enter_context(closing(self._connect(source, stack)))
                self.tables = self._schema()
            except SQLITE_ERRORS as error:
                raise self.unreadable(error) from None
            if not any(table in self.tables for table in _OF_NSIGHT):
                raise self._error(*_what_else(self.tables))
            self._closing = stack.pop_all()

    def close(self) -> None:
        self._closing.close()

    def unreadable(self, error: Exception) -> TraceError:
        """The error to raise for an error of SQLite."""
        text = "damaged" if isinstance(error, UnicodeDecodeError) else str(error)
        if "locked" in text or "busy" in text:
            remedy = "another program is writing it; wait until nsys has finished"
        elif "unable to open" in text or "readonly" in text:
            remedy = "it cannot be read while it has a -wal or -journal file; export it again"
        else:
            remedy = "damaged or cut short; export it again with nsys export --type sqlite"
        return TraceError(f"{self.path}: SQLite says {text!r}; {remedy}")

    def _error(self, problem: str, remedy: str) -> TraceError:
        return TraceError(f"{self.path}: {problem}; {remedy}")

    def _connect(self, source: ByteSource, stack: ExitStack) -> sqlite3.Connection:
        """Open the file; a pipe's or a compressed file's database is held in memory. `stack` keeps
        what must be removed afterwards."""
        if source.file is not None:
            self._refuse_cut_short(source.head, source.file.stat().st_size)
            if source.head[_MODES] != _WRITE_AHEAD_MODES:
                return _open(source.file)
            try:
                return _open_write_ahead(source.file, stack)
            except OSError as error:
                raise self._error(
                    f"cannot be copied, which its log needs ({error.strerror or error})",
                    "check its rights, and the space for temporary files",
                ) from None
        data = source.read_all("unpack it into a file and name that")
        self._refuse_cut_short(data[:_HEADER_BYTES], len(data))
        return _in_memory(data)

    def _refuse_cut_short(self, header: bytes | bytearray, size: int) -> None:
        """Raise `TraceError` if the header counts more pages than there are; SQLite reads zeros for
        half pages."""
        if len(header) >= _HEADER_BYTES:
            page_bytes, changes, pages, pages_of = struct.unpack_from(">16xH6xII60xI", header)
            page_bytes = _MAX_PAGE if page_bytes == 1 else page_bytes
            known = changes == pages_of and pages > 0
            if not known or size >= pages * page_bytes:
                return
        raise self._error("cut short", "copy it again, or repeat nsys export --type sqlite")

    def has(self, table: str, column: str) -> bool:
        return column in self.tables.get(table, ())

    def events(
        self,
        table: str,
        columns: Sequence[str],
        where: str = "1",
        text: Callable[[str], int] | None = None,
        packed: Mapping[str, Packed] | None = None,
        first: Mapping[str, Sequence[str]] | None = None,
    ) -> Iterator[dict[str, Int64s]]:
        """`start_ns`, `end_ns` and the given integer columns of the rows with usable times, in
        parts.

        With `text`, the column `text` holds that function's result for the row's text, -1 if the
        row has none. Each of `packed` is one column for several (`unpacked` takes it apart), which
        takes Python a fraction of the time; -1 if one of them is missing or too large for its bits.
        Each of `first` is the first positive value of several columns, else that of the last.
        """
        packed, first = packed or {}, first or {}
        names = ("start_ns", "end_ns", *columns, *packed, *first, "text")
        selected = ['"start"', '"end"', *(self._integer(table, column) for column in columns)]
        selected += (self._packed(table, parts) for parts in packed.values())
        selected += (self._first(table, choices) for choices in first.values())
        selected.append('"text"' if text and self.has(table, "text") else "NULL")
        rows, read = self.count(table, where), 0
        timed = self.has(table, "start") and self.has(table, "end")
        for chunk in self._timed(table, selected, where) if timed else ():
            read += len(chunk)
            if read > rows:
                raise sqlite3.DatabaseError("more rows than it counts")
            *numbers, texts = zip(*chunk, strict=True)
            part = dict(
                zip(names, (np.array(one, dtype=np.int64) for one in numbers), strict=False)
            )
            yield part | ({"text": _indices(texts, text)} if text else {})
        self.rows_read += read
        self.dropped += rows - read

    def _timed(self, table: str, selected: Sequence[str], where: str) -> Iterator[list[_Row]]:
        """The rows with usable times, without texts, the last of `selected`, from one on that is
        too long."""
        read = 0
        columns, text = ", ".join(selected[:-1]), selected[-1]
        while True:
            query = f'SELECT {columns}, {text} FROM "{table}" WHERE ({where}) AND {_USABLE}'
            try:
                for chunk in self._chunks(
                    f"{query} LIMIT -1 OFFSET {read}", _CHUNK_ROWS if text == "NULL" else _TEXT_ROWS
                ):
                    read += len(chunk)
                    yield chunk
                return
            except sqlite3.DataError:
                if text == "NULL":
                    raise
                self.too_long.add(f"{table}.text")
                text = "NULL"

    def count(self, table: str, where: str = "1") -> int:
        if table not in self.tables:
            return 0
        (row,) = self._connection.execute(f'SELECT count(*) FROM "{table}" WHERE {where}')
        return int(row[0])

    def rows(
        self, table: str, columns: Sequence[str], where: str = "1"
    ) -> Iterator[tuple[object, ...]]:
        """Rows of plain columns, up to one with a text that is too long; none if one of the columns
        is missing."""
        if not all(self.has(table, column) for column in columns):
            return
        selected = ", ".join(f'"{column}"' for column in columns)
        try:
            for chunk in self._chunks(f'SELECT {selected} FROM "{table}" WHERE {where}'):
                yield from chunk
        except sqlite3.DataError:
            self.too_long.add(f"{table}.{columns[-1]}")

    def texts(self, ids: Sequence[int]) -> dict[int, str]:
        """The strings of these ids, at most `MAX_IDS`, that the file has."""
        try:
            return self._listed_texts(ids)
        except sqlite3.DataError:
            self.too_long.add("StringIds.value")
        texts: dict[int, str] = {}
        for one in ids:
            with suppress(sqlite3.DataError):
                texts |= self._listed_texts([one])
        return texts

    def _listed_texts(self, ids: Sequence[int]) -> dict[int, str]:
        if not self.has("StringIds", "id") or not self.has("StringIds", "value"):
            return {}
        query = f'SELECT "id", "value" FROM "StringIds" WHERE id IN ({",".join(map(str, ids))})'
        rows = chain.from_iterable(self._chunks(query))
        return {
            key: value for key, value in rows if isinstance(key, int) and isinstance(value, str)
        }

    def _integer(self, table: str, column: str) -> str:
        if not self.has(table, column):
            return "-1"
        return f'CASE typeof("{column}") WHEN \'integer\' THEN "{column}" ELSE -1 END'

    def _first(self, table: str, columns: Sequence[str]) -> str:
        *better, last = (self._integer(table, column) for column in columns)
        return f"CASE {' '.join(f'WHEN {it} > 0 THEN {it}' for it in better)} ELSE {last} END"

    def _packed(self, table: str, parts: Packed) -> str:
        if not all(self.has(table, column) for column, _ in parts):
            return "-1"
        fits = " AND ".join(
            f'typeof("{column}") = \'integer\' AND "{column}" BETWEEN 0 AND {(1 << bits) - 1}'
            for column, bits in parts
        )
        value = "0"
        for column, bits in parts:
            value = f'(({value}) << {bits} | "{column}")'
        return f"CASE WHEN {fits} THEN {value} ELSE -1 END"

    def _chunks(self, query: str, rows: int = _TEXT_ROWS) -> Iterator[list[_Row]]:
        cursor = self._connection.execute(query)
        while chunk := cursor.fetchmany(rows):
            yield chunk

    def _schema(self) -> dict[str, tuple[str, ...]]:
        names = [
            name
            for (name,) in self._connection.execute(
                "SELECT name FROM sqlite_master "
                "WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
            )
            if isinstance(name, str) and '"' not in name
        ]
        return {
            name: tuple(row[1] for row in self._connection.execute(f'PRAGMA table_info("{name}")'))
            for name in names
        }


def unpacked(value: int, parts: Packed) -> list[int]:
    """The values of the columns in `value`, one of a packed column; all -1 if that is -1."""
    values = []
    for _, bits in reversed(parts):
        values.append(value & ((1 << bits) - 1) if value >= 0 else -1)
        value >>= bits
    return values[::-1]


def _indices(texts: Sequence[object], index_of: Callable[[str], int]) -> Int64s:
    numbers = (index_of(text) if isinstance(text, str) and text else -1 for text in texts)
    return np.fromiter(numbers, dtype=np.int64, count=len(texts))


def _what_else(tables: Collection[str]) -> tuple[str, str]:
    """The error for a database without Nsight's tables: what it is, and what to do."""
    if any(table.startswith(_OF_ROCPD) for table in tables):
        return "a rocpd database of rocprofv3", "record with rocprofv3 --output-format json"
    kind = "an nvprof database" if _OF_NVPROF in tables else "an SQLite database"
    return f"{kind}, not an Nsight Systems export", "make one with nsys export --type sqlite"


def _open(file: Path) -> sqlite3.Connection:
    """Open without ever writing: with SQLite's locks if the folder allows them, else as a file that
    does not change, unless a side file shows that changes are in progress."""
    location = f"file:{quote(os.fsencode(file.absolute()))}?mode=ro"
    connection = _database(location)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        sides = (Path(f"{file}{side}") for side in _SIDE_FILES)
        if "locked" in str(error) or any(side.exists() and side.stat().st_size for side in sides):
            raise
        connection = _database(location + "&immutable=1")
    return connection


def _open_write_ahead(file: Path, stack: ExitStack) -> sqlite3.Connection:
    """Open a file in write-ahead mode. SQLite makes an index of its log beside it, so a file with a
    log is copied; without one, it does not change.

    Raises:
        OSError: the file cannot be copied.
    """
    log = Path(f"{file}-wal")
    if not log.exists() or not log.stat().st_size:
        return _database(f"file:{quote(os.fsencode(file.absolute()))}?mode=ro&immutable=1")
    copy = stack.enter_context(WorkFolder()) / "copy.sqlite"
    for name, source in ((copy, file), (Path(f"{copy}-wal"), log)):
        shutil.copyfile(source, name)
    return _database(f"file:{quote(os.fsencode(copy))}")


def _in_memory(data: bytearray) -> sqlite3.Connection:
    """The database that these bytes are. Nothing is written to a disk, so nothing can be left there
    when a signal ends the program."""
    connection = _database(":memory:")
    # A file in write-ahead mode is complete without its log, but memory has no log.
    data[_MODES] = _ROLLBACK_MODES
    connection.deserialize(data)
    return connection


def _database(location: str) -> sqlite3.Connection:
    connection = sqlite3.connect(location, uri=True, timeout=0.0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT_BYTES)
    connection.text_factory = _text
    return connection


def _text(data: bytes) -> str:
    if len(data) > 2 * _HALF_BYTES:
        data = data[:_HALF_BYTES] + data[-_HALF_BYTES:]
    return data.decode("utf-8", "replace")
