"""The commands that are ended, with their inputs: all that work for a while, or write."""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.analyzer.large_trace import make_trace
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.recording import read_recording

_TINY = ("--model", "tiny", "--device", "cpu")
_SHORT = ("--context", "16", "--tokens", "12")
_OPENED_S, _LIVE_S, _FIRST_S = 6.0, 10.0, 40.0


@dataclass(frozen=True, slots=True)
class Case:
    """`decodescope ARGUMENTS`, in a terminal or not; patterns of the files in its folder that it
    writes. One that takes long, or does not end by itself, is ended in its first `first_s`. A short
    one is ended `times` as often."""

    name: str
    arguments: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    terminal: bool = False
    first_s: float | None = None
    times: int = 1


def cases(inputs: Path, events: int, pid: int) -> Iterator[Case]:
    """All cases, with traces of so many events in the folder `inputs`, and a process to attach to.
    Without a GPU, `tune` only says so."""
    recording = next(one for one in bundled_recordings() if one.stem.endswith("-eager"))
    source = gzip.decompress(read_recording(recording).last_packed_trace())
    a, b, packed, dsrec = (
        str(path)
        for path in (inputs / "a.json", inputs / "b.json", inputs / "c.json.gz", recording)
    )
    make_trace(source, events, Path(a))
    make_trace(source, events // 2, Path(b))
    make_trace(source, events, Path(packed))
    compared = tuple(f"out/diff.{suffix}" for suffix in ("json", "md", "html"))
    yield Case("analyze", ("analyze", a))
    yield Case("analyze gzip", ("analyze", packed, "--json"))
    yield Case("analyze ranks", ("analyze", a, b, "--format", "html"))
    yield Case("diff", ("diff", a, b, "--out", "out"), compared, times=25)
    for target, output in (("chrome", "a.json.gz"), ("html", "a.html"), ("csv", "a.csv")):
        arguments = ("export", b, "--to", target, "-o", output)
        yield Case(f"export {target}", arguments, (output,), times=25)
    yield Case("open --once", ("open", a, "--once"))
    yield Case("open", ("open", a), terminal=True, first_s=_OPENED_S)
    yield Case("open a recording", ("open", dsrec), terminal=True, first_s=_OPENED_S)
    yield Case("serve", ("serve", a, "--port", "18765"), first_s=3.0)
    trace = ("--trace", "w.json.gz")
    yield Case("run", ("run", *_TINY, *_SHORT, *trace), ("w.json.gz",))
    fused = ("--variant", "fused")
    yield Case("run interpreted", ("run", *_TINY, *_SHORT, *fused), first_s=_FIRST_S)
    both = ("compare", *_TINY, *_SHORT, "--variants", "eager,fused", "--repeats", "2")
    written = tuple(f"out/comparison.{suffix}" for suffix in ("json", "md", "html"))
    yield Case("compare", (*both, "--out", "out"), written, first_s=_FIRST_S)
    live = ("live", *_TINY, "--record", "r.dsrec")
    yield Case("live", live, ("r.dsrec",), True, _LIVE_S, times=2)
    yield Case("live interpreted", (*live, *fused), ("r.dsrec",), True, _LIVE_S)
    windows = ("--windows", "2", "--ms", "300", "--out", "out", "--record", "r.dsrec")
    traces = ("out/*.json*", "r.dsrec")
    yield Case("attach", ("attach", str(pid), *windows), traces)
    tune = ("tune", "--model", "tiny", "-o", "tune.json")
    yield Case("tune", tune, ("tune.json",), first_s=_FIRST_S)
    yield Case("doctor", ("doctor",))
    yield Case("variants", ("variants",))
