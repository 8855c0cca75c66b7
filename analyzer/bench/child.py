"""The processes that `bench analyzer` measures; the last line of each is one JSON object.

`python -m decodescope.analyzer.bench.child stages FILE` reads the trace, analyses it and
encodes the report, each timed. `... command FILE` runs what a user runs, `analyze FILE --json`.
`peer-python .../child.py peer FILE` runs HolisticTraceAnalysis, under a Python that has it; so this
file imports nothing of decodescope before it measures it.
"""

import os
import runpy
import sys
import time
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_rss_bytes() -> int:
    """The most memory this process ever had resident.

    Linux reports it for the running program in VmHWM; getrusage would include what the parent had
    resident when it started this process.
    """
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def stages(path: str) -> dict[str, int]:
    """One pass over `path`, stage by stage, in ns."""
    began = time.perf_counter_ns()
    import msgspec

    from decodescope.analyzer.readers.reading import load
    from decodescope.analyzer.reports.analysis import analyze

    imported = time.perf_counter_ns()
    trace = load(path)
    read = time.perf_counter_ns()
    report = analyze(trace).report
    analysed = time.perf_counter_ns()
    encoded_bytes = len(msgspec.json.encode(report))
    encoded = time.perf_counter_ns()
    return {
        "import_ns": imported - began,
        "read_ns": read - imported,
        "analyze_ns": analysed - read,
        "encode_ns": encoded - analysed,
        "work_ns": encoded - imported,
        "peak_rss_bytes": peak_rss_bytes(),
        "events": trace.source.events,
        "report_bytes": encoded_bytes,
    }


def command(path: str) -> dict[str, int]:
    """The command line on `path`, its output discarded; the parent times the whole process."""
    kept = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv = ["decodescope", "analyze", path, "--json"]
    try:
        runpy.run_module("decodescope", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
    return {"peak_rss_bytes": peak_rss_bytes()}


def peer(path: str) -> dict[str, str | int]:
    """One pass of HolisticTraceAnalysis over `path`, for what `analyze` reports too: idle time,
    kernel breakdown, launch statistics, queue lengths."""
    import logging
    import warnings

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    began = time.perf_counter_ns()
    from hta.trace_analysis import TraceAnalysis

    imported = time.perf_counter_ns()
    analysis = TraceAnalysis(trace_files={0: path})
    read = time.perf_counter_ns()
    analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False)
    analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)
    analysis.get_queue_length_summary(ranks=[0])
    analysed = time.perf_counter_ns()
    from importlib.metadata import version

    return {
        "name": "HolisticTraceAnalysis",
        "version": f"{version('HolisticTraceAnalysis')} (pandas {version('pandas')})",
        "import_ns": imported - began,
        "read_ns": read - imported,
        "analyze_ns": analysed - read,
        "work_ns": analysed - imported,
        "peak_rss_bytes": peak_rss_bytes(),
    }


def main(what: str, path: str) -> None:
    """Run one of the three and print its figures."""
    figures = {"stages": stages, "command": command, "peer": peer}[what](path)
    import json

    sys.stdout.write(f"\n{json.dumps(figures)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
