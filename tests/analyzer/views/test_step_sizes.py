"""Batch and KV tokens of kinds of steps: as the trace says, else as they were given."""

import re

import pytest

from decodescope.analyzer import analyze
from decodescope.analyzer.html.report_page import VariantView, html_report
from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.modelling.weights import model_weights
from decodescope.analyzer.reports.user_facts import Given, GivenModel
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.text.formatting import UNKNOWN
from decodescope.analyzer.views.report_table import report_table
from decodescope.analyzer.vocabulary.words import step_sizes
from tests.helpers.foreign.tensor_parallel import engine_trace
from tests.helpers.kineto_events import Event, call, op, span, trace_of
from tests.helpers.rich_report import text_of

SILENT = "step[DECODE bs=4]"
TELLING = "execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq4sk404sqsq4sqsk404)"
PREFILL = "step[EXTEND bs=2 toks=64]"


def given(batch: int | None, context: int | None, name: str = "llama-3.2-1b") -> Given:
    shape = read_model_config(name)
    return Given(
        model=GivenModel(shape, model_weights(shape, "bf16")), batch=batch, context=context
    )


def steps_of(*names: str) -> list[Event]:
    events = []
    for index, name in enumerate(names):
        at = 10_000 * index
        events += [span(at, at + 9_000, name), call(at + 10, at + 20, index + 1)]
        events.append(op(at + 30, at + 5_000, index + 1, name="flash_fwd"))
    return events


def shown(report: Report) -> list[list[str]]:
    """Kind, batch and KV tokens of each row, which the page and the table agree on."""
    html = html_report("a title", [VariantView("it", report, None)], None)
    (page,) = re.findall(r"Kinds of steps</h3>.*?<tbody>(.*?)</tbody>", html, re.DOTALL)
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in page.split("</tr>")[:-1]]
    (heads,) = re.findall(r"Kinds of steps</h3>.*?<thead>(.*?)</thead>", html, re.DOTALL)
    names = re.findall(r"<th[^>]*>(.*?)</th>", heads)
    for width in (60, 80, 120):
        text = text_of(report_table(report, ["kinds"]), width)
        head, *lines = text.partition("Kinds of steps\n")[2].splitlines()[: 1 + len(rows)]
        # Narrow tables omit columns.
        kept = [names.index(name) for name in re.split(r"\s{2,}", head.strip())]
        cells = [re.split(r"\s{2,}", line.strip()) for line in lines]
        assert cells == [[row[place] for place in kept] for row in rows]
        assert {"kind", "steps", "batch", "KV tokens", "median step"} <= {names[i] for i in kept}
    return [[row[0], row[2], row[4]] for row in rows]


def test_what_the_trace_does_not_say_is_shown_as_given() -> None:
    trace = trace_of(*steps_of(SILENT, SILENT))
    assert shown(analyze(trace).report) == [["decode", "4", UNKNOWN]]
    report = analyze(trace, given(None, 1_000)).report
    assert shown(report) == [["decode", "4", "4,000 given"]]
    assert [(row.batch, row.kv_tokens) for row in report.step_kinds] == [(4, None)]


def test_a_batch_on_which_annotations_differ_is_that_which_was_given() -> None:
    inside = [
        span(10_000 * k + at, 10_000 * k + at + 50, f"step[DECODE bs={3 + at // 100}]")
        for k in range(2)
        for at in (100, 300)
    ]
    trace = trace_of(*steps_of("ProfilerStep#1", "ProfilerStep#2"), *inside)
    assert shown(analyze(trace).report) == [["decode", UNKNOWN, UNKNOWN]]
    assert shown(analyze(trace, given(8, 100)).report) == [["decode", "8 given", "800 given"]]


def test_what_the_trace_says_precedes() -> None:
    report = analyze(trace_of(*steps_of(TELLING, TELLING)), given(None, 7)).report
    assert report.step_cost is not None
    assert shown(report) == [["decode", "4", "404"]]


def test_only_the_step_that_the_model_is_used_for_has_them() -> None:
    report = analyze(trace_of(*steps_of(SILENT, SILENT, PREFILL)), given(None, 10)).report
    assert shown(report) == [["decode", "4", "40 given"], ["prefill", "2", UNKNOWN]]


@pytest.mark.parametrize(("batch", "context"), [(None, None), (5, 10)])
def test_nothing_given_or_a_batch_that_contradicts_shows_nothing(
    batch: int | None, context: int | None
) -> None:
    trace = trace_of(*steps_of(SILENT, SILENT))
    report = analyze(trace, given(batch, context)).report
    assert (report.step_cost is None) == (batch is not None)
    assert [one.code for one in report.health.findings].count("model_not_used") == (batch == 5)
    assert shown(report) == [["decode", "4", UNKNOWN]]


def test_a_batch_that_the_logits_show_is_not_called_given() -> None:
    report = analyze(engine_trace()).report
    (row,) = report.step_kinds
    assert step_sizes(row, report) == ("1 by shapes", UNKNOWN)
