"""Reads Perfetto traces (`.pftrace`) of rocprofv3 through Perfetto's own trace_processor.

The program is asked with one query, whose rows become the parts of a process, as those of
rocprofv3's JSON. It is only used where it is: nothing is downloaded. Source of the slices' names
and arguments: ROCm's rocprofiler-sdk (`generatePerfetto.cpp`).
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.io.converters import converted
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.rocprof.document import (
    GPU_AGENT,
    Agent,
    ApiCall,
    Copy,
    CorrelationId,
    Dispatch,
    DispatchInfo,
    Entry,
    Handle,
    KernelSymbol,
    OperationNames,
    Part,
)
from decodescope.analyzer.readers.rocprof.rocprof_reader import assembled
from decodescope.analyzer.readers.trace_columns import NOT_GIVEN
from decodescope.analyzer.trace import Trace

_SHELL = "trace_processor_shell"
# Where the package `perfetto` keeps the program once it was downloaded.
_PREBUILTS = Path(".local", "share", "perfetto", "prebuilts")
_MOST_S = 600.0
_BATCH_ROWS = 8_000
_HOST_AGENT = 1
# Behind the names of kernels.
_CLONE = " [clone .kd]"
_INTEGERS = (
    *("begin_ns", "end_ns", "corr_id", "tid", "queue", "stream_ID"),
    *("LDS_Block_Size", "VGPR_Count", "Accum_VGPR_Count"),
)
_AGENTS = ("agent", "src_agent", "dst_agent")
_DOMAINS = ("kernel_dispatch", "memory_copy", "hip_api", "hsa_api", "marker_api")
_Row = tuple[str, str, list[int], list[str]]


def _text(expression: str) -> str:
    """In hexadecimal, so that the output has no quotes and line ends of names."""
    return f"hex(ifnull({expression}, ''))"


def _argument(name: str) -> str:
    return f"extract_arg(s.arg_set_id, 'debug.{name}')"


# Each row is one text that begins as no other line of the program does.
QUERY = " || '|' || ".join(
    (
        "SELECT 'row'",
        "s.category",
        _text("s.name"),
        *(f"ifnull({_argument(name)}, {NOT_GIVEN})" for name in _INTEGERS),
        *(_text(_argument(name)) for name in _AGENTS),
    )
) + " FROM slice s WHERE s.category IN ({}) ORDER BY s.ts, s.id".format(
    ", ".join(f"'{domain}'" for domain in _DOMAINS)
)


def shell() -> str | None:
    """The program on the path, else the newest one that the package `perfetto` downloaded."""
    found = shutil.which(_SHELL)
    if found is not None:
        return found
    kept = [one for one in (Path.home() / _PREBUILTS).glob(f"{_SHELL}*") if os.access(one, os.X_OK)]
    return str(max(kept, key=lambda one: one.stat().st_mtime)) if kept else None


def read_perfetto(source: ByteSource) -> Trace:
    """Read kernel dispatches, copies, HIP and HSA calls and roctx ranges.

    Raises:
        TraceError: the program is missing, fails or takes over 10 minutes, or the trace has no
            slice of rocprofv3.
    """
    program = shell()
    if program is None:
        raise TraceError(
            f"{source.path}: a Perfetto trace (protobuf), for which {_SHELL} must be on the path; "
            "install it, or record JSON (rocprofv3 --output-format json)"
        )
    with WorkFolder() as folder:
        file = source.file or source.save(folder / "trace")
        query, answer = folder / "query.sql", folder / "rows"
        query.write_text(QUERY)
        with answer.open("w+b") as output:
            command = (program, "-q", str(query), str(file.absolute()))
            converted(command, source.path, folder, _MOST_S, output)
            if next(_rows(output), None) is None:
                raise TraceError(
                    f"{source.path}: a Perfetto trace without a slice of rocprofv3, whose "
                    "traces are read; record JSON for any other profiler"
                )
            return assembled(source.path, "perfetto", _parts(output))


def _rows(output: IO[bytes]) -> Iterator[_Row]:
    """Domain, name, integers and agents of each slice."""
    output.seek(0)
    for line in output:
        mark, *fields = line.decode("ascii", "replace").strip().strip('"').split("|")
        if mark != "row" or len(fields) != 2 + len(_INTEGERS) + len(_AGENTS):
            continue
        domain, name, *rest = fields
        name = _from_hex(name).removesuffix(_CLONE)
        numbers, agents = rest[: len(_INTEGERS)], rest[len(_INTEGERS) :]
        yield domain, name, [*map(_integer, numbers)], [*map(_from_hex, agents)]


def _from_hex(text: str) -> str:
    try:
        return bytes.fromhex(text).decode("utf-8", "replace")
    except ValueError:
        return ""


def _integer(text: str) -> int:
    return int(text) if text.lstrip("-").isdecimal() and len(text) <= 20 else NOT_GIVEN


def _parts(output: IO[bytes]) -> Iterator[Part]:
    """The parts of one process: first what its records name."""
    agents, kernels = dict[str, int](), dict[tuple[str, int, int], int]()
    operations = dict[str, int]()
    texts = list[Entry[str]]()
    for domain, name, numbers, places in _rows(output):
        *_, vectors, accumulators = numbers
        if domain == "kernel_dispatch":
            agents.setdefault(places[0], len(agents))
            kernels.setdefault((name, vectors, accumulators), len(kernels))
        elif domain == "marker_api":
            texts.append(Entry(numbers[2], name))
        elif domain != "memory_copy":
            operations.setdefault(name, len(operations))
    yield (
        "agents",
        [
            Agent(Handle(NOT_GIVEN), _HOST_AGENT),
            *(Agent(Handle(number), GPU_AGENT, name) for name, number in agents.items()),
        ],
    )
    yield "strings.buffer_records", [OperationNames([*operations])]
    yield "strings.marker_api", texts
    yield (
        "kernel_symbols",
        [
            KernelSymbol(
                number, name, arch_vgpr_count=vectors, accum_vgpr_count=max(accumulators, 0)
            )
            for (name, vectors, accumulators), number in kernels.items()
        ],
    )
    batches: dict[str, list[Dispatch | Copy | ApiCall]] = {domain: [] for domain in _DOMAINS}
    for domain, name, numbers, places in _rows(output):
        start, end, correlation, tid, queue, stream, lds, vectors, accumulators = numbers
        own = CorrelationId(correlation)
        if domain == "kernel_dispatch":
            agent = Handle(agents[places[0]])
            kernel = kernels[name, vectors, accumulators]
            info = DispatchInfo(agent, Handle(queue), kernel, group_segment_size=lds)
            record: Dispatch | Copy | ApiCall = Dispatch(
                start, end, own, info, Handle(max(stream, 0))
            )
        elif domain == "memory_copy":
            source, target = (Handle(agents.get(place, NOT_GIVEN)) for place in places[1:])
            record = Copy(start, end, own, source, target, Handle(max(stream, 0)))
        elif domain == "marker_api" and start == end:
            continue
        else:
            record = ApiCall(start, end, own, 0, operations.get(name, -1), tid)
        batch = batches[domain]
        batch.append(record)
        if len(batch) == _BATCH_ROWS:
            yield f"buffer_records.{domain}", batch
            batches[domain] = []
    for domain, batch in batches.items():
        yield f"buffer_records.{domain}", batch
    yield "", NOT_GIVEN
