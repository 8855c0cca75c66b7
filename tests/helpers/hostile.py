"""Strings that try to do more than to be shown.

`HOSTILE` sets a title, colours, clears the screen, reverses its line, begins another one, is a
formula, an emoji code, markup, a link and HTML. `SHOWN` is how every output shows it.
"""

import re
import unicodedata
from pathlib import Path

from hypothesis import strategies as st
from msgspec.structs import replace

from decodescope.analyzer.protocol.messages import Hello, Log, Progress, State, VariantInfo
from decodescope.tui.link.base import LinkEvent
from tests.helpers.kineto_events import PID, call, document, event, op, span
from tests.helpers.rich_report import CAPTURE
from tests.helpers.scripted import capture, hello, ready, stats

HOSTILE = (
    "[/][bold]=cmd|:fire:\x1b]0;owned\x07\x1b[31m\x9b2J\u202e\u2028\n\r\tfake  row"
    "[link=https://x.example]y[/link]<b>`"
)
SHOWN = (
    r"[/][bold]=cmd|:fire:\x1b]0;owned\x07\x1b[31m\x9b2J\u202e\u2028\n\r\tfake  row"
    "[link=https://x.example]y[/link]<b>`"
)
# A file name has no slash, and may be no UTF-8.
FILE = HOSTILE.replace("/", "") + "\udce9.json"
FILE_SHOWN = SHOWN.replace("/", "") + r"\xe9.json"
# Controls, formats (bidirectional, zero width), lone surrogates, line and paragraph separators.
UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}

# What the app and the spinner send: CSI and device control sequences, the pointer's shape.
OWN_SEQUENCES = r"\x1b(\[[0-9;:?<>=]*[ -/]*[@-~]|[=>78]|P[^\x1b]*\x1b\\|\]22;\w*\x07)|\r|\x0f"

anything = st.text(st.characters(categories=("L", "N", "P", "S", "Z", "C"))) | st.text(
    st.sampled_from("\x1b[]0;m\x07\x9b\u202e\u200b\u200d\n\r\t\\/a=|é👩\udce9")
)


def unsafe(text: str, styling: str = "") -> str:
    """The characters of `text` that a terminal may obey, without line ends and `styling`."""
    rest = re.sub(styling, "", text) if styling else text
    return "".join(c for c in rest if c != "\n" and unicodedata.category(c) in UNSAFE)


def hostile_trace(path: Path, rank: int = 0) -> str:
    """Kernels, ranges, operators, calls, steps, device, model and file with hostile names."""
    events = []
    for step, at in enumerate((rank, 2000)):
        one, two = 2 * step + 1, 2 * step + 2
        events += [
            span(at, at + 1900, f"decode_step_{step}"),
            span(at + 10, at + 1800, HOSTILE),
            event("cpu_op", HOSTILE, at + 12, at + 300, PID, 1),
            call(at + 20, at + 60, one),
            op(at + 100, at + 301, one, name=HOSTILE),
            call(at + 400, at + 480, two, name=f"cudaLaunchKernel{HOSTILE}"),
            op(at + 500, at + 600, two, name=f"second{HOSTILE}", stream=9),
        ]
    texts = ("device_name", "model", "variant", "dtype", "decodescope_version")
    keys = {
        "decodescope": CAPTURE | dict.fromkeys(texts, HOSTILE),
        "deviceProperties": [{"id": 0, "name": HOSTILE}],
        "distributedInfo": {"rank": rank, "world_size": 2},
        "baseTimeNanoseconds": 10**18,
    }
    path.write_bytes(document(events, **keys))
    return str(path)


def hostile_hello() -> Hello:
    variants = (
        VariantInfo(HOSTILE, HOSTILE),
        VariantInfo(f"2{HOSTILE}", HOSTILE, HOSTILE),
        VariantInfo("eager", "[/]"),
    )
    return replace(hello(), variants=variants, device_name=HOSTILE, model=HOSTILE, dtype=HOSTILE)


def hostile_events(trace: str) -> tuple[LinkEvent, ...]:
    """What a worker with a hostile model, variants, text and window reports."""
    described = replace(
        capture(), device_name=HOSTILE, model=HOSTILE, variant=HOSTILE, dtype=HOSTILE
    )
    return (
        Progress(HOSTILE, HOSTILE),
        hostile_hello(),
        State("running", HOSTILE),
        stats(1, HOSTILE, text=f"{HOSTILE}\n{HOSTILE}\x1b"),
        Log("warning", HOSTILE),
        replace(ready(Path(trace), HOSTILE), capture=described),
    )
