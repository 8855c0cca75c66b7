"""The process that `bench analyzer` measures: reads one trace, analyses it, encodes the report.

Run as `python -m decodescope.analyzer.benchmark_child FILE`; its last line is one JSON object.
"""

import sys
import time
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_rss_bytes() -> int:
    """The most memory this process ever had resident.

    Linux keeps it for the running program in VmHWM; getrusage would include what the parent had
    resident when it started this process.
    """
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main(path: str) -> None:
    """Measure one pass over `path`."""
    began = time.perf_counter_ns()
    import msgspec

    from decodescope.analyzer.analysis import analyze
    from decodescope.analyzer.reading import load

    imported = time.perf_counter_ns()
    trace = load(path)
    read = time.perf_counter_ns()
    report = analyze(trace).report
    analysed = time.perf_counter_ns()
    encoded_bytes = len(msgspec.json.encode(report))
    encoded = time.perf_counter_ns()
    figures = {
        "import_ns": imported - began,
        "read_ns": read - imported,
        "analyze_ns": analysed - read,
        "encode_ns": encoded - analysed,
        "peak_rss_bytes": peak_rss_bytes(),
        "events": trace.source.events,
        "report_bytes": encoded_bytes,
    }
    sys.stdout.write(msgspec.json.encode(figures).decode() + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
