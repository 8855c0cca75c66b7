"""Single events of a Chrome trace as JSON text, with exact times."""

from collections.abc import Mapping, Sequence

import msgspec


class EventText:
    """Formats events; times are integer ns and `origin_ns` becomes 0.

    `ts` and `dur` stand as µs with exactly three decimals, so no digit passes through a float.
    """

    def __init__(self, names: Sequence[str], origin_ns: int) -> None:
        self._names = [_json(name) for name in names]
        self._origin_ns = origin_ns

    def name(self, index: int) -> str:
        """A name of the trace's table as JSON text."""
        return self._names[index]

    def quoted(self, name: str) -> str:
        """Any other name as JSON text."""
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
            f'"ts":{self._time(start_ns)},"dur":{microseconds(end_ns - start_ns)},'
            f'"args":{_json(args)}}}'
        )

    def counter(self, name: str, pid: int, at_ns: int, value: int) -> str:
        """A counter's value from a time on."""
        return (
            f'{{"ph":"C","name":"{name}","pid":{pid},"ts":{self._time(at_ns)},'
            f'"args":{{"{name}":{value}}}}}'
        )

    def arrow_start(self, arrow: int, pid: int, tid: int, at_ns: int) -> str:
        """The tail of a flow arrow, on the slice that runs on that track at that time."""
        return self._arrow("s", "", arrow, pid, tid, at_ns)

    def arrow_end(self, arrow: int, pid: int, tid: int, at_ns: int) -> str:
        """The head of a flow arrow, bound to the slice that encloses it."""
        return self._arrow("f", '"bp":"e",', arrow, pid, tid, at_ns)

    def process(self, pid: int, label: str, sort_index: int) -> str:
        """Name and place of a process, as two metadata events."""
        return (
            f'{{"ph":"M","name":"process_name","pid":{pid},"args":{{"name":{_json(label)}}}}},\n'
            f'{{"ph":"M","name":"process_sort_index","pid":{pid},'
            f'"args":{{"sort_index":{sort_index}}}}}'
        )

    def thread(self, pid: int, tid: int, label: str) -> str:
        """Name and place of a track, as two metadata events; tracks sort by their number."""
        return (
            f'{{"ph":"M","name":"thread_name","pid":{pid},"tid":{tid},'
            f'"args":{{"name":{_json(label)}}}}},\n'
            f'{{"ph":"M","name":"thread_sort_index","pid":{pid},"tid":{tid},'
            f'"args":{{"sort_index":{tid}}}}}'
        )

    def _arrow(self, phase: str, binding: str, arrow: int, pid: int, tid: int, at_ns: int) -> str:
        return (
            f'{{"ph":"{phase}",{binding}"id":{arrow},"cat":"ac2g","name":"ac2g",'
            f'"pid":{pid},"tid":{tid},"ts":{self._time(at_ns)}}}'
        )

    def _time(self, ns: int) -> str:
        return microseconds(ns - self._origin_ns)


def microseconds(ns: int) -> str:
    """Integer nanoseconds as µs with three decimals."""
    whole, rest = divmod(abs(ns), 1000)
    return f"{'-' if ns < 0 else ''}{whole}.{rest:03d}"


def given(args: Mapping[str, int]) -> dict[str, object]:
    """The arguments that the trace gave: -1 stands for none."""
    return {key: value for key, value in args.items() if value != -1}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
