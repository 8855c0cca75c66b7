"""What a feed remembers of a run is bounded; `benchmarks app-memory` measures the whole app."""

import gc
import tracemalloc

import pytest

from decodescope.analyzer.protocol.messages import Heartbeat, Log, Meters, State
from decodescope.tui.model.feed import HISTORY_SAMPLES
from decodescope.tui.model.notices import LOG_LINES
from decodescope.tui.model.opening import open_feed
from decodescope.tui.model.sources import LiveSource
from tests.helpers.scripted import ScriptedLink, StillClock, hello, stats

HOUR = 3600


@pytest.mark.slow
def test_two_hours_of_a_run_take_as_much_memory_as_one():
    clock = StillClock()
    feed = open_feed(LiveSource(ScriptedLink()), clock)
    feed.receive(hello(), 0.0)

    def run(start: int, end: int) -> int:
        for second in range(start, end):
            clock.now = float(second)
            if second % 300 == 0:
                variant = "eager" if second // 300 % 2 else "compiled"
                feed.receive(State("running", variant), second)
            feed.receive(stats(second, variant), second)
            feed.receive(Meters(power_w=float(second)), second)
            feed.receive(Heartbeat(), second)
            feed.receive(Log("warning", f"second {second}"), second)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        one = run(0, HOUR)
        two = run(HOUR, 2 * HOUR)
    finally:
        tracemalloc.stop()
    view = feed.view()
    assert len(view.samples) == HISTORY_SAMPLES
    assert len(view.log) == LOG_LINES
    assert view.samples[-1].at == 2 * HOUR - 1
    assert two - one < 32 * 1024
