"""Reads the JSON of rocprofv3 (`--output-format json`) into a `Trace`."""

from collections.abc import Iterator, Sequence

from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.columns import (
    Names,
    Shapes,
    sorted_gpu_ops,
    sorted_host_events,
)
from decodescope.analyzer.readers.rocprof.columns import ProcessColumns
from decodescope.analyzer.readers.rocprof.document import read_processes
from decodescope.analyzer.schema.report import Finding, Source
from decodescope.analyzer.trace import GpuOps, HostEvents, Trace


def read_rocprof(source: ByteSource) -> Trace:
    """Read kernel dispatches, copies, HIP and HSA calls and roctx ranges.

    A stream is a HIP stream, or a hardware queue where the file names no HIP stream. Copies that
    HIP makes with a kernel (`__amd_rocclr_copyBuffer`) are kernels here too. The times are of the
    machine's clock since it booted, so they have no wall clock.

    Raises:
        TraceError: the document is broken, too large, or not as rocprofv3 writes it.
    """
    processes = read_processes(source)
    names, shapes = Names(), Shapes()
    parts = [
        ProcessColumns(process, names, shapes, place) for place, process in enumerate(processes)
    ]
    table, moved = names.sorted_table()
    findings = [Finding(*found) for found in _findings(parts)]
    calls = sorted_host_events([part.calls for part in parts], moved)
    gpu = GpuOps.concatenate([part.gpu for part in parts])
    return Trace(
        source=Source(
            path=source.path,
            format="rocprof-json",
            events=sum(process.buffer_records.count() for process in processes),
        ),
        names=table,
        device_names={
            number: name for part in parts for number, name in part.devices.names.items() if name
        },
        ops=sorted_gpu_ops(gpu, moved, calls, findings),
        calls=calls,
        cpu_ops=HostEvents.concatenate(()),
        ranges=sorted_host_events([part.ranges for part in parts], moved),
        findings=tuple(findings),
        capture=None,
        base_ns=0,
        shapes=shapes.table(),
    )


def _findings(parts: Sequence[ProcessColumns]) -> Iterator[tuple[str, str]]:
    if not any(len(part.gpu) for part in parts):
        yield "no_kernel_trace", "the file has no kernels; record with rocprofv3 --runtime-trace"
    elif not any(len(part.calls) for part in parts):
        yield (
            "no_hip_trace",
            "the file has no HIP calls, so nothing is known of launches; record with rocprofv3 "
            "--runtime-trace",
        )
    if dropped := sum(part.dropped for part in parts):
        yield "dropped_events", f"{dropped} records without a usable start or end were left out"
    if copies := sum(part.host_copies for part in parts):
        yield "host_copies", f"{copies} copies between host memories were left out"
