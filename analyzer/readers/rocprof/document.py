"""The parts of a rocprofv3 JSON document that analyses need; every other key is skipped.

Source: ROCm's rocprofiler-sdk, which writes it (`generateJSON.cpp`), and its JSON schema. Keys that
only some versions write have a default.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct, field

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import ByteSource

# The only key of the document, so its first bytes say what it is.
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
    """A call of HIP or HSA, or a marker; `kind` and `operation` index `Strings.buffer_records`."""

    kind: int
    operation: int
    thread_id: int


class Records(Struct, gc=False):
    """The records. `marker_api` holds roctx ranges and marks, each as one record."""

    kernel_dispatch: list[Dispatch] = []
    memory_copy: list[Copy] = []
    hip_api: list[ApiCall] = []
    hsa_api: list[ApiCall] = []
    marker_api: list[ApiCall] = []

    def count(self) -> int:
        return sum(len(getattr(self, name)) for name in self.__struct_fields__)


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


class Strings(Struct, gc=False):
    """`marker_api` holds the text of each marker, by its internal correlation id."""

    buffer_records: list[OperationNames] = []
    marker_api: list[Entry[str]] = []


class Metadata(Struct, gc=False):
    pid: int = -1


class Process(Struct, gc=False):
    metadata: Metadata = field(default_factory=Metadata)
    agents: list[Agent] = []
    strings: Strings = field(default_factory=Strings)
    kernel_symbols: list[KernelSymbol] = []
    buffer_records: Records = field(default_factory=Records)


class _Document(Struct, gc=False):
    processes: list[Process] = field(name="rocprofiler-sdk-tool")


_decoder = msgspec.json.Decoder(_Document)


def read_processes(source: ByteSource) -> list[Process]:
    """The processes of a document.

    Raises:
        TraceError: it is over 1 GiB, cut short, no JSON, or not as rocprofv3 writes it.
    """
    data = source.read_all("record fewer steps, or fewer kinds of records")
    if source.truncated:
        raise _unreadable(source, "the gzip file is cut short or broken")
    try:
        return _decode(data)
    except msgspec.ValidationError as error:
        raise TraceError(
            f"{source.path}: not as rocprofv3 writes its JSON ({error}); record it again with "
            "--output-format json"
        ) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unreadable(source, str(error)) from None


def _decode(data: bytearray) -> list[Process]:
    try:
        return _decoder.decode(data).processes
    except UnicodeDecodeError:
        return _decoder.decode(data.decode("utf-8", "replace")).processes


def _unreadable(source: ByteSource, why: str) -> TraceError:
    return TraceError(f"{source.path}: broken JSON of rocprofv3 ({why}); copy or record it again")


class Devices:
    """Numbers the GPUs as rocprofv3 does, from 0; `names` holds their names.

    An agent that the document does not list counts as one more GPU.
    """

    def __init__(self, agents: Sequence[Agent]) -> None:
        self.names: dict[int, str] = {}
        self._hosts = {agent.id.handle for agent in agents if agent.type != GPU_AGENT}
        self._numbers: dict[int, int] = {}
        self._taken: set[int] = set()
        self._next = 0
        for agent in agents:
            if agent.type == GPU_AGENT:
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
