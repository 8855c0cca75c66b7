"""Reads what rocprofv3 writes, rocpd databases and JSON, into a `Trace`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.rocprof.document import Part, read_parts
from decodescope.analyzer.readers.rocprof.process_columns import Finished, ProcessColumns
from decodescope.analyzer.readers.rocprof.rocpd import rocpd_parts
from decodescope.analyzer.readers.sqlite_file import SqliteFile
from decodescope.analyzer.readers.trace_columns import (
    Growing,
    Names,
    Shapes,
    sorted_gpu_ops,
    sorted_host_events,
)
from decodescope.analyzer.schema.report import Finding, Source, SourceFormat
from decodescope.analyzer.trace import GpuOps, HostEvents, Trace


def read_rocprof(source: ByteSource) -> Trace:
    """Read the JSON of rocprofv3.

    Raises:
        TraceError: the document is broken, cut short, or not as rocprofv3 writes it.
    """
    return assembled(source.path, "rocprof-json", read_parts(source))


def read_rocpd(file: SqliteFile) -> Trace:
    """Read the database of rocprofv3.

    Raises:
        TraceError: its schema is not the known one, or it holds several machines.
    """
    trace = assembled(file.path, "rocpd", rocpd_parts(file))
    return replace(trace, findings=(*trace.findings, *file.findings()))


def assembled(path: str, kind: SourceFormat, parts: Iterable[Part]) -> Trace:
    """Kernel dispatches, copies, HIP and HSA calls and roctx ranges.

    A stream is a HIP stream, or a hardware queue where the file names no HIP stream. Copies that
    HIP makes with a kernel (`__amd_rocclr_copyBuffer`) are kernels here too. The times are of the
    machine's clock since it booted, so they have no wall clock.
    """
    names, shapes = Names(), Shapes()
    processes = [ProcessColumns(names, shapes, 0)]
    merged: Finished = Growing(GpuOps), Growing(HostEvents), Growing(HostEvents)
    for list_name, part in parts:
        process = processes[-1]
        if not list_name:
            finished = process.finish(part)
            if len(processes) == 1:
                merged = finished
            else:
                merged[0].append(finished[0].rows())
                merged[1].append(finished[1].rows())
                merged[2].append(finished[2].rows())
            processes.append(ProcessColumns(names, shapes, len(processes)))
        elif not process.add(list_name, part):
            raise TraceError(
                f"{path}: lists its {list_name} behind the records that they name, as rocprofv3 "
                "does not; record it again with --output-format json"
            )
    gpu, host_calls, ranges = merged
    findings = [*names.findings(), *_findings(processes, len(gpu), len(host_calls))]
    table, moved = names.take_sorted()
    calls = sorted_host_events(host_calls, moved)
    return Trace(
        source=Source(
            path=path,
            format=kind,
            events=sum(process.records for process in processes),
        ),
        names=table,
        device_names={
            number: name
            for process in processes
            for number, name in process.devices.names.items()
            if name
        },
        ops=sorted_gpu_ops(gpu, moved, calls, findings),
        calls=calls,
        cpu_ops=HostEvents.concatenate(()),
        ranges=sorted_host_events(ranges, moved),
        findings=tuple(findings),
        capture=None,
        base_ns=0,
        shapes=shapes.table(),
    )


def _findings(processes: Sequence[ProcessColumns], gpu_ops: int, calls: int) -> Iterator[Finding]:
    if not gpu_ops:
        yield Finding(
            "no_kernel_trace", "the file has no kernels; record with rocprofv3 --runtime-trace"
        )
    elif not calls:
        yield Finding(
            "no_hip_trace",
            "the file has no HIP calls, so nothing is known of launches; record with rocprofv3 "
            "--runtime-trace",
        )
    if dropped := sum(process.dropped for process in processes):
        yield Finding(
            "dropped_events", f"{dropped} records without a usable start or end were left out"
        )
    if copies := sum(process.host_copies for process in processes):
        yield Finding("host_copies", f"{copies} copies between host memories were left out")
