"""An Nsight Systems SQLite export as columns of integers and looked-up texts.

Tables and columns depend on the version of the exporter, so both are optional: a missing table has
no rows, a missing or NULL column reads as -1.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain

import numpy as np

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.sqlite_file import TEXT_ROWS, Row, SqliteFile
from decodescope.analyzer.readers.trace_columns import LIMIT_NS
from decodescope.analyzer.trace import Int64s

_CHUNK_ROWS = 8_000
# Of one query.
MAX_IDS = 500
_OF_NSIGHT = ("META_DATA_EXPORT", "StringIds")
_OF_NVPROF = "StringTable"
# Columns and the bits that each one's values take, 63 in all at most.
Packed = Sequence[tuple[str, int]]
_USABLE = (
    'typeof("start") = \'integer\' AND typeof("end") = \'integer\' AND "end" >= "start" '
    f'AND "start" >= {-LIMIT_NS} AND "end" <= {LIMIT_NS}'
)


class NsysDatabase:
    """The tables of an export. `rows_read` counts the events returned, `dropped` those left out
    because their times are not usable integers."""

    def __init__(self, file: SqliteFile) -> None:
        """Raises `TraceError` for a database that is not Nsight's."""
        self.file = file
        self.rows_read = 0
        self.dropped = 0
        if not any(table in file.tables for table in _OF_NSIGHT):
            kind = "an nvprof database" if _OF_NVPROF in file.tables else "an SQLite database"
            raise TraceError(
                f"{file.path}: {kind}, not an Nsight Systems export or a rocpd database of "
                "rocprofv3; make one with nsys export --type sqlite"
            )

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
        selected = ['"start"', '"end"', *(self.file.integer(table, column) for column in columns)]
        selected += (self._packed(table, parts) for parts in packed.values())
        selected += (self._first(table, choices) for choices in first.values())
        selected.append('"text"' if text and self.file.has(table, "text") else "NULL")
        rows, read = self.file.count(table, where), 0
        timed = self.file.has(table, "start") and self.file.has(table, "end")
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

    def _timed(self, table: str, selected: Sequence[str], where: str) -> Iterator[list[Row]]:
        """The rows with usable times, without texts, the last of `selected`, from one on that is
        too long."""
        read = 0
        columns, text = ", ".join(selected[:-1]), selected[-1]
        while True:
            query = f'SELECT {columns}, {text} FROM "{table}" WHERE ({where}) AND {_USABLE}'
            try:
                for chunk in self.file.chunks(
                    f"{query} LIMIT -1 OFFSET {read}", _CHUNK_ROWS if text == "NULL" else TEXT_ROWS
                ):
                    read += len(chunk)
                    yield chunk
                return
            except sqlite3.DataError:
                if text == "NULL":
                    raise
                self.file.too_long.add(f"{table}.text")
                text = "NULL"

    def texts(self, ids: Sequence[int]) -> dict[int, str]:
        """The strings of these ids, at most `MAX_IDS`, that the file has."""
        try:
            return self._listed_texts(ids)
        except sqlite3.DataError:
            self.file.too_long.add("StringIds.value")
        texts: dict[int, str] = {}
        for one in ids:
            with suppress(sqlite3.DataError):
                texts |= self._listed_texts([one])
        return texts

    def _listed_texts(self, ids: Sequence[int]) -> dict[int, str]:
        if not self.file.has("StringIds", "id") or not self.file.has("StringIds", "value"):
            return {}
        query = f'SELECT "id", "value" FROM "StringIds" WHERE id IN ({",".join(map(str, ids))})'
        rows = chain.from_iterable(self.file.chunks(query, TEXT_ROWS))
        return {
            key: value for key, value in rows if isinstance(key, int) and isinstance(value, str)
        }

    def _first(self, table: str, columns: Sequence[str]) -> str:
        *better, last = (self.file.integer(table, column) for column in columns)
        return f"CASE {' '.join(f'WHEN {it} > 0 THEN {it}' for it in better)} ELSE {last} END"

    def _packed(self, table: str, parts: Packed) -> str:
        if not all(self.file.has(table, column) for column, _ in parts):
            return "-1"
        fits = " AND ".join(
            f'typeof("{column}") = \'integer\' AND "{column}" BETWEEN 0 AND {(1 << bits) - 1}'
            for column, bits in parts
        )
        value = "0"
        for column, bits in parts:
            value = f'(({value}) << {bits} | "{column}")'
        return f"CASE WHEN {fits} THEN {value} ELSE -1 END"


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
