"""The processes that `bench analyzer` measures; the last line of each is one JSON object.

`python -m decodescope.analyzer.bench.child stages FILE` reads the trace, analyses it and
encodes the report, each timed. `... command FILE` runs what a user runs, `analyze FILE --json`.
"""

import os
import runpy
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
        "peak_rss_bytes": peak_rss_bytes(),
        "events": trace.source.events,
        "report_bytes": encoded_bytes,
    }


def command(path: str) -> dict[str, int]:
    """The command line on `path`, its output thrown away; the parent times the whole process."""
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


def main(what: str, path: str) -> None:
    """Run one of the two and print its figures."""
    figures = {"stages": stages, "command": command}[what](path)
    import msgspec

    sys.stdout.write(msgspec.json.encode(figures).decode() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
