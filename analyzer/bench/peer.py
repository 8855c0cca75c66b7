"""The peer that `bench analyzer` measures: HolisticTraceAnalysis, on the same file.

Run by path under a Python that has the package (`peer-python analyzer/bench/peer.py FILE`), so
nothing of decodescope is imported here. It loads the trace and asks for what `analyze` answers too:
idle time, kernel breakdown, launch statistics, queue lengths. Its last line is one JSON object.
"""

import json
import logging
import resource
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path


def main(path: str) -> None:
    """Measure one pass over `path`."""
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
    figures = {
        "name": "HolisticTraceAnalysis",
        "version": f"{version('HolisticTraceAnalysis')} (pandas {version('pandas')})",
        "import_ns": imported - began,
        "read_ns": read - imported,
        "analyze_ns": analysed - read,
        "peak_rss_bytes": _peak_rss_bytes(),
    }
    sys.stdout.write("\n" + json.dumps(figures) + "\n")


def _peak_rss_bytes() -> int:
    """As `benchmark_child.peak_rss_bytes`, which cannot be imported here."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    main(sys.argv[1])
