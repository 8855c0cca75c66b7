"""Reads the JSON of rocprofv3 (`--output-format json`) into a `Trace`."""

from collections.abc import Iterator, Sequence

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.rocprof.document import read_parts
from decodescope.analyzer.readers.rocprof.process_columns import Finished, ProcessColumns
from decodescope.analyzer.readers.trace_columns import (
    Growing,
    Names,
    Shapes,
    sorted_gpu_ops,
    sorted_host_events,
)
from decodescope.analyzer.schema.report import Finding, Source
from decodescope.analyzer.trace import GpuOps, HostEvents, Trace


def read_rocprof(source: ByteSource) -> Trace:
    """Read kernel dispatches, copies, HIP and HSA calls and roctx ranges.

    A stream is a HIP stream, or a hardware queue where the file names no HIP stream. Copies that
    HIP makes with a kernel (`__amd_rocclr_copyBuffer`) are kernels here too. The times are of the
    machine's clock since it booted, so they have no wall clock.

    Raises:
        TraceError: the document is broken, cut short, or not as rocprofv3 writes it.
    """
    names, shapes = Names(), Shapes()
    processes = [ProcessColumns(names, shapes, 0)]
    merged: Finished = Growing(GpuOps), Growing(HostEvents), Growing(HostEvents)
    for path, part in read_parts(source):
        process = processes[-1]
        if not path:
            finished = process.finish(part)
            if len(processes) == 1:
                merged = finished
            else:
                merged[0].append(finished[0].rows())
                merged[1].append(finished[1].rows())
                merged[2].append(finished[2].rows())
            processes.append(ProcessColumns(names, shapes, len(processes)))
        elif not process.add(path, part):
            raise TraceError(
                f"{source.path}: lists its {path} behind the records that they name, as rocprofv3 "
                "does not; record it again with --output-format json"
            )
    gpu, host_calls, ranges = merged
    findings = [*names.findings(), *_findings(processes, len(gpu), len(host_calls))]
    table, moved = names.take_sorted()
    calls = sorted_host_events(host_calls, moved)
    return Trace(
        source=Source(
            path=source.path,
            format="rocprof-json",
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
