"""An SQLite file of a profiler, opened read-only, as rows of plain columns.

Tables and columns depend on the version of the profiler, so both are optional: a missing table has
no rows, and what is no integer reads as -1 where an integer is asked for.
"""

import os
import shutil
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.trace_columns import MAX_NAME
from decodescope.analyzer.schema.report import Finding

_HEADER_BYTES = 100
_MAX_PAGE = 65_536
TEXT_ROWS = 500
# As in a JSON trace; SQLite and Python hold a text at the same time.
MAX_TEXT_BYTES = 16 << 20
# Of a longer text the middle is left out; `Names` leaves out more, and says so.
_HALF_BYTES = 4 * MAX_NAME
# The sqlite3 module decodes SQLite's messages, which quote the broken file, strictly.
_SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
_SIDE_FILES = ("-wal", "-journal")
# The bytes of the header that name the file's write and read mode.
_MODES = slice(18, 20)
_WRITE_AHEAD_MODES = b"\x02\x02"
Row = tuple[Any, ...]


class SqliteFile:
    """An open database. `tables` maps each table to its columns; `too_long` names the columns of
    which a text was too long to be read."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self.too_long = set[str]()
        self._connection = connection
        self.tables = {
            name: tuple(row[1] for row in connection.execute(f'PRAGMA table_info("{name}")'))
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master "
                "WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
            ).fetchall()
            if isinstance(name, str) and '"' not in name
        }

    def has(self, table: str, column: str) -> bool:
        return column in self.tables.get(table, ())

    def integer(self, table: str, column: str, alias: str = "") -> str:
        """The column in a query, as an integer. `alias` is what the query calls the table."""
        if not self.has(table, column):
            return "-1"
        name = f'{alias}."{column}"' if alias else f'"{column}"'
        return f"CASE typeof({name}) WHEN 'integer' THEN {name} ELSE -1 END"

    def count(self, table: str, where: str = "1") -> int:
        if table not in self.tables:
            return 0
        (row,) = self._connection.execute(f'SELECT count(*) FROM "{table}" WHERE {where}')
        return int(row[0])

    def rows(self, table: str, columns: Sequence[str], where: str = "1") -> Iterator[Row]:
        """Rows of plain columns, up to one with a text that is too long; none if one of the columns
        is missing."""
        if not all(self.has(table, column) for column in columns):
            return
        selected = ", ".join(f'"{column}"' for column in columns)
        try:
            query = f'SELECT {selected} FROM "{table}" WHERE {where}'
            for chunk in self.chunks(query, TEXT_ROWS):
                yield from chunk
        except sqlite3.DataError:
            self.too_long.add(f"{table}.{columns[-1]}")

    def chunks(self, query: str, rows: int) -> Iterator[list[Row]]:
        cursor = self._connection.execute(query)
        while chunk := cursor.fetchmany(rows):
            yield chunk

    def findings(self) -> Iterator[Finding]:
        """The finding on texts that were not read."""
        if self.too_long:
            yield Finding(
                "too_long_texts",
                f"texts of over {MAX_TEXT_BYTES >> 20} MiB, as no profiler writes, are left out of "
                f"{', '.join(sorted(self.too_long))}, and so are texts that follow them",
            )


@contextmanager
def open_sqlite(source: ByteSource) -> Iterator[SqliteFile]:
    """Open the file without ever writing to it. A database that comes packed or through a pipe is
    first written to a temporary file, since SQLite must seek.

    Raises:
        TraceError: it is locked, cut short or damaged, also while it is read.
    """
    with ExitStack() as stack:
        try:
            yield SqliteFile(source.path, stack.enter_context(closing(_connect(source, stack))))
        except _SQLITE_ERRORS as error:
            raise _unreadable(source, error) from None


def _unreadable(source: ByteSource, error: Exception) -> TraceError:
    text = "damaged" if isinstance(error, UnicodeDecodeError) else str(error)
    if "locked" in text or "busy" in text:
        remedy = "another program is writing it; wait until it has finished"
    elif "unable to open" in text or "readonly" in text:
        remedy = "it cannot be read while it has a -wal or -journal file; export it again"
    else:
        remedy = (
            "damaged or cut short; export it again (nsys export --type sqlite), or record it again "
            "(rocprofv3)"
        )
    return TraceError(f"{source.path}: SQLite says {text!r}; {remedy}")


def _connect(source: ByteSource, stack: ExitStack) -> sqlite3.Connection:
    """`stack` keeps what must be removed afterwards."""
    if source.file is not None:
        _refuse_cut_short(source, source.head, source.file.stat().st_size)
        if source.head[_MODES] != _WRITE_AHEAD_MODES:
            return _open(source.file)
    try:
        if source.file is None:
            return _open_without_name(source)
        return _open_write_ahead(source.file, stack)
    except OSError as error:
        raise TraceError(
            f"{source.path}: cannot be copied, which SQLite needs of a pipe, a packed file and one "
            f"with a log ({error.strerror or error}); check its rights, and the space for "
            "temporary files"
        ) from None


def _refuse_cut_short(source: ByteSource, header: bytes, size: int) -> None:
    """Raise `TraceError` if the header counts more pages than there are; SQLite reads zeros for
    half pages."""
    if len(header) >= _HEADER_BYTES:
        page_bytes, changes, pages, pages_of = struct.unpack_from(">16xH6xII60xI", header)
        page_bytes = _MAX_PAGE if page_bytes == 1 else page_bytes
        known = changes == pages_of and pages > 0
        if not known or size >= pages * page_bytes:
            return
    raise TraceError(f"{source.path}: cut short; copy it again, or export or record it again")


def _open(file: Path) -> sqlite3.Connection:
    """Open with SQLite's locks if the folder allows them, else as a file that does not change,
    unless a side file shows that changes are in progress."""
    connection = _database(_location(file))
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        sides = (Path(f"{file}{side}") for side in _SIDE_FILES)
        if "locked" in str(error) or any(side.exists() and side.stat().st_size for side in sides):
            raise
        connection = _database(_immutable(file))
    return connection


def _open_write_ahead(file: Path, stack: ExitStack) -> sqlite3.Connection:
    """Open a file in write-ahead mode. SQLite makes an index of its log beside it, so a file with a
    log is copied; without one, it does not change.

    Raises:
        OSError: the file cannot be copied.
    """
    log = Path(f"{file}-wal")
    if not log.exists() or not log.stat().st_size:
        return _database(_immutable(file))
    copy = stack.enter_context(WorkFolder()) / "copy.sqlite"
    for name, source in ((copy, file), (Path(f"{copy}-wal"), log)):
        shutil.copyfile(source, name)
    return _database(f"file:{quote(os.fsencode(copy))}")


def _open_without_name(source: ByteSource) -> sqlite3.Connection:
    """Open a copy of all bytes of `source`, which is unlinked at once: however the process ends,
    nothing is left of it. A file in write-ahead mode is complete without its log.

    Raises:
        OSError: the copy cannot be written.
    """
    with WorkFolder() as folder:
        copy = source.save(folder / "copy.sqlite")
        _refuse_cut_short(source, source.head, copy.stat().st_size)
        return _database(_immutable(copy))


def _location(file: Path) -> str:
    return f"file:{quote(os.fsencode(file.absolute()))}?mode=ro"


def _immutable(file: Path) -> str:
    """The location of a file that does not change: SQLite takes no lock and looks for no log."""
    return f"{_location(file)}&immutable=1"


def _database(location: str) -> sqlite3.Connection:
    connection = sqlite3.connect(location, uri=True, timeout=0.0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT_BYTES)
    connection.text_factory = _text
    return connection


def _text(data: bytes) -> str:
    if len(data) > 2 * _HALF_BYTES:
        data = data[:_HALF_BYTES] + data[-_HALF_BYTES:]
    return data.decode("utf-8", "replace")
