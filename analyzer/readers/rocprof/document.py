"""The parts of a rocprofv3 JSON document that analyses need; every other key is skipped.

Source: ROCm's rocprofiler-sdk, which writes it (`generateJSON.cpp`), and its JSON schema. Keys that
only some versions write have a default.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct, field

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.json_text import Broken, Entries, Incomplete, JsonText, Stopped
from decodescope.analyzer.readers.kineto.event import clean

# The only key of the document, so its first bytes say what it is.
_ROOT = "rocprofiler-sdk-tool"
GPU_AGENT = 2
_Value = TypeVar("_Value")
_MAX_DEVICES = 1 << 16


class Handle(Struct, gc=False):
    handle: int


class CorrelationId(Struct, gc=False):
    """`internal` joins a GPU op, or a marker's text, with the call that it came from."""

    internal: int


class Record(Struct, gc=False):
    """The fields of all records. Times are ns on the clock of the machine since it booted."""

    start_timestamp: int
    end_timestamp: int
    correlation_id: CorrelationId


class Extent(Struct, gc=False):
    """Sizes along three axes; 0 is unknown."""

    x: int = 0
    y: int = 0
    z: int = 0


class DispatchInfo(Struct, gc=False):
    """Where a kernel ran, and which; both sizes are in work-items (threads)."""

    agent_id: Handle
    queue_id: Handle
    kernel_id: int
    workgroup_size: Extent = field(default_factory=Extent)
    grid_size: Extent = field(default_factory=Extent)
    group_segment_size: int | None = None


class Dispatch(Record, gc=False):
    """One execution of a kernel; `stream_id` is 0 or missing where HIP streams are not known."""

    dispatch_info: DispatchInfo
    stream_id: Handle = field(default_factory=lambda: Handle(0))


class Copy(Record, gc=False):
    src_agent_id: Handle
    dst_agent_id: Handle
    stream_id: Handle = field(default_factory=lambda: Handle(0))


class ApiCall(Record, gc=False):
    """A call of HIP or HSA, or a marker; `kind` and `operation` index the `OperationNames`."""

    kind: int
    operation: int
    thread_id: int


class Agent(Struct, gc=False):
    """A CPU (type 1) or a GPU (2); `logical_node_type_id` counts the agents of a type from 0."""

    id: Handle
    type: int
    name: str = ""
    product_name: str = ""
    logical_node_type_id: int | None = None


class KernelSymbol(Struct, gc=False):
    """The names of a kernel; the formatted one is what rocprofv3 itself shows. The counts are its
    vector registers."""

    kernel_id: int
    kernel_name: str = ""
    demangled_kernel_name: str = ""
    formatted_kernel_name: str = ""
    arch_vgpr_count: int | None = None
    accum_vgpr_count: int = 0


class OperationNames(Struct, gc=False):
    """The names of a kind's operations, by number."""

    operations: list[str | None] = []


class Entry(Struct, Generic[_Value], gc=False):
    """One entry of a map with numbers as keys."""

    key: int
    value: _Value


def _entries(kind: type[_Value]) -> Entries[_Value]:
    return Entries(
        msgspec.json.Decoder(list[kind]),  # type: ignore[valid-type]
        lambda value: msgspec.convert(clean(value), kind),
    )


# The lists of a process that are read. `buffer_records` are its records, where `marker_api` holds
# roctx ranges and marks; in `strings` it holds their texts, by their internal correlation ids.
_LISTS: dict[str, Entries[Any]] = {
    "agents": _entries(Agent),
    "strings.buffer_records": _entries(OperationNames),
    "strings.marker_api": _entries(Entry[str]),
    "kernel_symbols": _entries(KernelSymbol),
    "buffer_records.kernel_dispatch": _entries(Dispatch),
    "buffer_records.memory_copy": _entries(Copy),
    "buffer_records.hip_api": _entries(ApiCall),
    "buffer_records.hsa_api": _entries(ApiCall),
    "buffer_records.marker_api": _entries(ApiCall),
}
_PID = "metadata.pid"
_INSIDE = frozenset(path.split(".")[0] for path in (*_LISTS, _PID) if "." in path)
Part = tuple[str, Any]


def read_parts(source: ByteSource) -> Iterator[Part]:
    """The parts of a document in its order: (path in a process, a batch of that list's entries),
    and ("", pid) behind each process.

    Raises:
        TraceError: it is cut short, no JSON, or not as rocprofv3 writes it.
    """
    text = JsonText(source)
    try:
        if text.peek() != b"{":
            raise Broken
        for key in text.members():
            if key != _ROOT:
                text.pass_over()
                continue
            _expect(text, b"[", _ROOT)
            for _ in text.items():
                yield from _process(text)
        if text.peek():
            raise Broken
    except Incomplete:
        raise _unreadable(source, "it ends early") from None
    except Broken:
        raise _unreadable(source, f"no JSON at byte {text.offset}") from None
    except (Stopped, RecursionError) as error:
        raise _unreadable(source, f"{error} at byte {text.offset}") from None
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        # msgspec converts no string with half of a surrogate pair.
        raise TraceError(
            f"{source.path}: not as rocprofv3 writes its JSON ({error}); record it again with "
            "--output-format json"
        ) from None
    if source.truncated:
        raise _unreadable(source, "the compressed file is cut short or broken")


def _process(text: JsonText) -> Iterator[Part]:
    pid = -1
    _expect(text, b"{", "a process")
    for key in text.members():
        if key not in _INSIDE:
            yield from _value(text, key)
            continue
        _expect(text, b"{", key)
        for inner in text.members():
            if f"{key}.{inner}" == _PID:
                pid = msgspec.convert(text.value(), int)
            else:
                yield from _value(text, f"{key}.{inner}")
    yield "", pid


def _value(text: JsonText, path: str) -> Iterator[Part]:
    entries = _LISTS.get(path)
    if entries is None:
        text.pass_over()
        return
    _expect(text, b"[", path)
    for batch in text.entries(entries):
        text.check()
        yield path, batch


def _expect(text: JsonText, begins: bytes, what: str) -> None:
    if text.expect() != begins:
        kind = "object" if begins == b"{" else "array"
        raise msgspec.ValidationError(f"Expected `{kind}` - at `{what}`")


def _unreadable(source: ByteSource, why: str) -> TraceError:
    return TraceError(f"{source.path}: broken JSON of rocprofv3 ({why}); copy or record it again")


class Devices:
    """Numbers the GPUs as rocprofv3 does, from 0; `names` holds their names.

    An agent that the document does not list counts as one more GPU.
    """

    def __init__(self, agents: Sequence[Agent] = ()) -> None:
        self.names: dict[int, str] = {}
        self._hosts: set[int] = set()
        self._numbers: dict[int, int] = {}
        self._taken: set[int] = set()
        self._next = 0
        self.add(agents)

    def add(self, agents: Sequence[Agent]) -> None:
        for agent in agents:
            if agent.type != GPU_AGENT:
                self._hosts.add(agent.id.handle)
            else:
                number = self._assign(agent.id.handle, agent.logical_node_type_id)
                self.names[number] = agent.product_name or agent.name

    def is_gpu(self, handle: int) -> bool:
        return handle not in self._hosts

    def number(self, handle: int) -> int:
        known = self._numbers.get(handle)
        return self._assign(handle, None) if known is None else known

    def way(self, source: int, target: int) -> str:
        if self.is_gpu(source) and self.is_gpu(target):
            return "DtoD" if source == target else "PtoP"
        return "DtoH" if self.is_gpu(source) else "HtoD"

    def _assign(self, handle: int, number: int | None) -> int:
        """Number a GPU as the document does, else with the first number that is free."""
        if number is None or not 0 <= number < _MAX_DEVICES or number in self._taken:
            while self._next in self._taken:
                self._next += 1
            number = self._next
        self._taken.add(number)
        self._numbers[handle] = number
        return number
