"""Single events of a Chrome trace as JSON text, with exact times."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from decodescope.analyzer.trace import Int64s

# Process, track and time in ns.
Place = tuple[int, int, int]


class EventText:
    """Formats events; times are integer ns and `origin_ns` becomes 0.

    `ts` and `dur` are µs with exactly three decimals, so that no digit passes through a float.
    """

    def __init__(self, names: Sequence[str], origin_ns: int) -> None:
        self._names = [_json(name) for name in names]
        self._origin_ns = origin_ns

    def name(self, index: int) -> str:
        """A name of the trace's table as JSON text."""
        return self._names[index]

    def quoted(self, name: str) -> str:
        return _json(name)

    def slice(
        self,
        category: str,
        name: str,
        pid: int,
        tid: int,
        start_ns: int,
        end_ns: int,
        args: Mapping[str, object],
    ) -> str:
        """A complete event; `name` is JSON text."""
        return (
            f'{{"ph":"X","cat":"{category}","name":{name},"pid":{pid},"tid":{tid},'
            f'"ts":{self._time(start_ns)},"dur":{timestamp_text(end_ns - start_ns)},'
            f'"args":{_json(args)}}}'
        )

    def counter(self, name: str, pid: int, at_ns: int, value: int) -> str:
        return (
            f'{{"ph":"C","name":"{name}","pid":{pid},"ts":{self._time(at_ns)},'
            f'"args":{{"{name}":{value}}}}}'
        )

    def arrow(self, arrow: int, tail: Place, head: Place) -> str:
        """A flow arrow as two events: from the slice that runs at `tail` to the slice that encloses
        `head`."""
        common = f'"id":{arrow},"cat":"ac2g","name":"ac2g"'
        return (
            f'{{"ph":"s",{common},"pid":{tail[0]},"tid":{tail[1]},"ts":{self._time(tail[2])}}},\n'
            f'{{"ph":"f","bp":"e",{common},"pid":{head[0]},"tid":{head[1]},'
            f'"ts":{self._time(head[2])}}}'
        )

    def process(self, pid: int, label: str, sort_index: int) -> str:
        """Name and order of a process, as two metadata events."""
        return _metadata("process", f'"pid":{pid}', label, sort_index)

    def thread(self, pid: int, tid: int, label: str) -> str:
        """Name and order of a track, as two metadata events; tracks sort by their number."""
        return _metadata("thread", f'"pid":{pid},"tid":{tid}', label, tid)

    def _time(self, ns: int) -> str:
        return timestamp_text(ns - self._origin_ns)


def timestamp_text(ns: int) -> str:
    """Integer nanoseconds as µs with three decimals."""
    whole, rest = divmod(abs(ns), 1000)
    return f"{'-' if ns < 0 else ''}{whole}.{rest:03d}"


def rows_of(
    columns: Iterable[np.ndarray], chosen: Int64s | slice = slice(None)
) -> Iterator[tuple[Any, ...]]:
    """The chosen rows of columns of equal length, as tuples of Python numbers."""
    return zip(*(column[chosen].tolist() for column in columns), strict=True)


def known_args(args: Mapping[str, int]) -> dict[str, object]:
    """The arguments that the trace has; -1 means none."""
    return {key: value for key, value in args.items() if value != -1}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _metadata(kind: str, place: str, label: str, sort_index: int) -> str:
    return (
        f'{{"ph":"M","name":"{kind}_name",{place},"args":{{"name":{_json(label)}}}}},\n'
        f'{{"ph":"M","name":"{kind}_sort_index",{place},"args":{{"sort_index":{sort_index}}}}}'
    )
