"""The app over several servers: a row each, the sums in the strip, a window of each and of all."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from decodescope.analyzer.reports.rank_analysis import ServerTraces
from decodescope.analyzer.schema.ranks_report import ServerFigures
from decodescope.attach.door import CapturedWindow, WindowPlan
from decodescope.attach.servers.metrics import ServerMetrics
from tests.helpers.libkineto import trace
from tests.helpers.scripted import write_trace
from tests.helpers.scripted_door import ScriptedDoor, metrics

NAMES = ("10.0.0.1:8000", "10.0.0.2:8000")
GONE = "http://10.0.0.2:8000/metrics: nothing listens there; start the server"


def group(second: int, problem: str = "", tokens: float | None = None) -> ServerMetrics:
    """Two servers at 1,000 and 2,000 tokens/s; `problem` is of the second one."""
    first = replace(metrics(second), name=NAMES[0])
    second_tokens = 2000.0 * second if tokens is None else tokens
    other = replace(metrics(second, second_tokens), name=NAMES[1], problem=problem)
    return ServerMetrics(float(second), servers=(first, other))


class GroupOfTwo(ScriptedDoor):
    """Each window has a trace of each server."""

    def window(self, plan: WindowPlan, say) -> CapturedWindow:
        window = super().window(plan, say)
        parts = tuple(
            ServerTraces(ServerFigures(name), (path,), window.observer)
            for name, path in zip(NAMES, window.traces, strict=True)
        )
        return CapturedWindow(window.traces, window.observer, ServerFigures(), parts)


def on_one_clock(folder: Path, number: int) -> list[Path]:
    paths = [folder / f"w{number}-{server}.json" for server in range(2)]
    for server, path in enumerate(paths):
        path.write_bytes(trace(1 + server, 1_700_000_000_000 + 1000 * number, 10 * (1 + server)))
    return paths


def alike(folder: Path, number: int) -> list[Path]:
    """Traces that cannot be merged, as they have the same events."""
    return [write_trace(folder / f"w{number}-{server}.json") for server in range(2)]


@pytest.fixture
async def pilot(attachment):
    attachment.door.__class__ = GroupOfTwo
    attachment.door.write = on_one_clock
    attachment.door.answers = [group(1), group(2)]
    async with attachment.app.run_test(size=(120, 40)) as pilot:
        await attachment.until(pilot, lambda: attachment.view.attached.is_known)
        yield pilot


def rows(attachment) -> list[list[str]]:
    """The cells of the table of servers."""
    lines = [line.strip("│ ") for line in attachment.shown.splitlines()]
    first = next(place for place, line in enumerate(lines) if line.startswith("server "))
    return [line.split() for line in lines[first : first + 4]]


async def test_each_server_has_a_row_and_the_strip_the_sums(attachment) -> None:
    attachment.door.answers = [group(1), group(2), "stop"]
    async with attachment.app.run_test(size=(120, 40)) as pilot:
        await attachment.until(pilot, lambda: bool(attachment.view.attached.problem))
        _, first, second, together = rows(attachment)
        assert first[:5] == [NAMES[0], "1,000", "8", "3", "25.0"]
        assert second[:5] == [NAMES[1], "2,000", "8", "3", "25.0"]
        assert together[:5] == ["2", "servers", "3,000", "16", "6"]
        assert "3,000 tok/s   16 running   6 waiting" in attachment.shown
        assert [sample.tokens_per_s for sample in attachment.view.samples] == [3000.0]


async def test_one_server_has_no_table(attachment) -> None:
    attachment.door.answers = [metrics(1), metrics(2)]
    async with attachment.app.run_test(size=(120, 40)) as pilot:
        await attachment.until(pilot, lambda: attachment.view.attached.is_known)
        assert "Servers" not in attachment.shown


async def test_one_that_vanishes_restarts_and_returns_is_said(attachment, pilot) -> None:
    attachment.door.answers = [group(3, GONE, 4000.0)]
    await attachment.until(pilot, lambda: attachment.view.banner is not None)
    assert GONE in attachment.shown
    assert "nothing listens there; start the server" in attachment.shown.split(NAMES[1])[2]
    assert not attachment.view.attached.problem
    attachment.door.answers = [group(4, tokens=5.0)]
    await attachment.until(pilot, lambda: attachment.view.banner is None)
    log = [line.text for line in attachment.view.log]
    assert log.count(GONE) == 1
    assert f"{NAMES[1]} answers again" in log
    assert f"{NAMES[1]} restarted; its rates begin anew" in log


async def test_a_window_is_one_of_each_and_of_all(attachment, pilot) -> None:
    await attachment.take(pilot, 3)
    names = [choice.name for choice in attachment.view.choices]
    assert names == [f"window-1 {NAMES[0]}", f"window-1 {NAMES[1]}", "window-1"]
    assert attachment.view.variant == "window-1"
    assert len(attachment.view.window.report.devices) == 2
    for key, steps in (("1", 10), ("2", 20)):
        await pilot.press("v", key)
        await attachment.until(pilot, lambda: not attachment.view.analysing)
        assert len(attachment.view.window.report.steps) == steps
    attachment.app._feeds.select_file(2)
    await attachment.take(pilot, 6)
    assert attachment.view.variant == "window-2"


async def test_windows_of_the_server_that_is_shown_are_compared(attachment, pilot) -> None:
    await attachment.take(pilot, 6)
    await pilot.press("v", "5")
    await attachment.until(pilot, lambda: not attachment.view.analysing)
    await pilot.press("D")
    await attachment.until(pilot, lambda: attachment.view.comparison.phase == "done")
    result = attachment.view.comparison.result
    assert result.base.source.path.endswith("w1-1.json")
    assert result.other.source.path.endswith("w2-1.json")


async def test_of_traces_on_no_common_clock_the_first_server_is_shown(attachment, pilot) -> None:
    attachment.door.write = alike
    await attachment.take(pilot, 3)
    await attachment.until(pilot, lambda: attachment.view.window is not None)
    assert attachment.view.variant == f"window-1 {NAMES[0]}"
    assert any("the same events" in line.text for line in attachment.view.log)
