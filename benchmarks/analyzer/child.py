"""The processes that `analyzer` measures; the last line of each is one JSON object.

`python -m benchmarks.analyzer.child stages FILE` reads the trace, analyses it and
encodes the report, each timed. `... command FILE...` runs what a user runs, `analyze FILE...
--json`.
`peer-python .../child.py peer FILE` runs HolisticTraceAnalysis, under a Python that has it; so this
file imports nothing of decodescope before it measures it.
"""

import os
import runpy
import sys
import threading
import time
from pathlib import Path

_STATUS = Path("/proc/self/status")
_SAMPLED_EVERY_S = 0.02


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


class TreeMemory:
    """Samples what this process and all those that it starts have resident together; `peak_bytes`
    is the most that was seen, 0 where there is no /proc. Shared pages count once for each."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "TreeMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(_SAMPLED_EVERY_S):
            self.peak_bytes = max(self.peak_bytes, _resident_bytes(os.getpid()))


def _resident_bytes(pid: int) -> int:
    """What a process and its descendants have resident."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        started = [one for task in tasks for one in (task / "children").read_text().split()]
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(_resident_bytes(int(one)) for one in started)


def command(*paths: str) -> dict[str, int]:
    """The command line on `paths`, its output discarded; the parent times the whole process.

    `tree_peak_rss_bytes` is the memory of all its processes together, `cpu_ns` their CPU time.
    """
    kept = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv = ["decodescope", "analyze", *paths, "--json"]
    with TreeMemory() as memory:
        try:
            runpy.run_module("decodescope", run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise
        finally:
            sys.stdout.flush()
            os.dup2(kept, 1)
    times = os.times()
    cpu_s = times.user + times.system + times.children_user + times.children_system
    peak = peak_rss_bytes()
    tree = max(memory.peak_bytes, peak)
    return {"peak_rss_bytes": peak, "tree_peak_rss_bytes": tree, "cpu_ns": round(cpu_s * 1e9)}


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


def main(what: str, *paths: str) -> None:
    """Run one of the three and print its figures."""
    if what == "command":
        figures: dict[str, int] | dict[str, str | int] = command(*paths)
    else:
        figures = (stages if what == "stages" else peer)(*paths)
    import json

    sys.stdout.write(f"\n{json.dumps(figures)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
