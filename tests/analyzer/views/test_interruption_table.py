"""The section of interruptions: what it says, that it fits, and when it is absent."""

import re

import pytest
from rich.cells import cell_len

from decodescope.analyzer import analyze
from decodescope.analyzer.views.report_table import report_table
from tests.helpers.kineto_events import call, op, span, trace_of
from tests.helpers.planted.holds import held_before, launching_calls
from tests.helpers.rich_report import text_of

MS = 1_000_000
EVENTS = [
    one
    for step in range(4)
    for at in [step * 10 * MS + 1]
    for one in (
        span(at, at + 9 * MS, f"decode_step_{step}"),
        call(at, at + 5_000, step + 1),
        op(at + 9_000, at + 9 * MS, step + 1),
    )
]


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_an_interruption_is_shown_with_its_cause(width: int) -> None:
    trace = trace_of(*EVENTS)
    held = held_before(trace, launching_calls(trace)[1], 463 * MS, "cudaEventSynchronize")
    text = text_of(report_table(analyze(held).report, ["interruptions", "devices"]), width)
    assert "set apart: 463 ms of interruptions" in text_of(report_table(analyze(held).report), 80)
    (section,) = text.split("\nInterruptions\n")[1:]
    assert max(map(cell_len, section.splitlines())) <= width
    words = " ".join(section.split())
    assert re.search(r"463 ms wait 2 (\S+ )?cudaEventSynchronize took 463 ms", words)


def test_a_clean_trace_has_no_such_section() -> None:
    text = text_of(report_table(analyze(trace_of(*EVENTS)).report, ["interruptions"]))
    assert text.endswith("\nInterruptions\nnone in this trace\n")
