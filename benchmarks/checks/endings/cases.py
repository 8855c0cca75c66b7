"""The commands that are ended, with their inputs: all that work for a while, or write."""

import gzip
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.analyzer.large_trace import make_trace
from decodescope.analyzer.comparing.baselines import save_baseline
from decodescope.analyzer.readers.trace_cache import LEAST_EVENTS
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.cli.gate import read_subjects
from decodescope.cli.given import GivenOptions

_TINY = ("--model", "tiny", "--device", "cpu")
_SHORT = ("--context", "16", "--tokens", "12")
_OPENED_S, _LIVE_S, _FIRST_S = 6.0, 10.0, 40.0
# As often as a client asks the server of `mcp` to write.
_SAVED = 40


@dataclass(frozen=True, slots=True)
class Case:
    """`decodescope ARGUMENTS`, in a terminal or not; patterns of the files in its folder that it
    writes, also in the cache beside it. `given` is what it reads from a pipe that stays open. One
    that takes long, or does not end by itself, is ended in its first `first_s`. A short one is
    ended `times` as often."""

    name: str
    arguments: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    terminal: bool = False
    first_s: float | None = None
    times: int = 1
    given: bytes = b""


def cases(inputs: Path, events: int, pid: int) -> Iterator[Case]:
    """All cases, with traces of so many events in the folder `inputs`, and a process to attach to.
    Without a GPU, `tune` only says so."""
    recording = next(one for one in bundled_recordings() if one.stem.endswith("-eager"))
    source = gzip.decompress(read_recording(recording).last_packed_traces()[0])
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
    steps = inputs / recording.name
    shutil.copyfile(recording, steps)
    save_baseline(inputs / "baselines", "main", read_subjects((steps,), GivenOptions()))
    reports = ("gate.md", "gate.xml")
    gate = ("gate", dsrec, "--baseline", "main", "--folder", str(inputs / "baselines"))
    outputs = ("--markdown", reports[0], "--junit", reports[1])
    yield Case("gate", (*gate, *outputs), reports, times=4)
    save = ("baseline", "save", "main", dsrec, "--folder", "out")
    yield Case("baseline save", save, ("out/main.json",), times=4)
    mcp = ("mcp", ".", str(inputs), "--allow-write")
    yield Case("mcp", mcp, ("out/*.json",), first_s=_LIVE_S, times=4, given=_saves(str(steps)))
    large = inputs / "large.json"
    _write_large(large)
    yield Case("cache", ("analyze", str(large)), ("../cache/decodescope/traces/*.columns",))
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


def _saves(trace: str) -> bytes:
    """The requests of a client of `mcp` that saves one baseline after another."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
    hello["clientInfo"] = {"name": "endings", "version": "0"}
    messages: list[dict[str, object]] = [
        {"id": 0, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
    ]
    for number in range(1, _SAVED + 1):
        given = {"paths": [trace], "baseline": f"saved-{number}", "folder": "out", "save": True}
        call = {"name": "gate", "arguments": given}
        messages.append({"id": number, "method": "tools/call", "params": call})
    return b"".join(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in messages)


def _write_large(path: Path) -> None:
    """A trace of so many kernels that its columns are kept."""
    event = '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%d,"dur":1,"args":{}}'
    with path.open("w") as file:
        file.write('{"traceEvents":[')
        file.write(",".join(event % (2 * at) for at in range(LEAST_EVENTS)))
        file.write("]}")
