"""Watches what is behind a door, and says it in messages."""

import threading
from collections.abc import Callable

from decodescope.analyzer.errors import known_error
from decodescope.analyzer.protocol.attach_messages import (
    NoAnswer,
    ServerSample,
    Target,
    TracesOf,
    WindowTaken,
)
from decodescope.attach.door import CapturedWindow, Door, WindowPlan
from decodescope.attach.servers.figures import figures

POLL_S, MOST_POLL_S = 1.0, 5.0


def target_of(door: Door, plan: WindowPlan) -> Target:
    """The target behind `door`, and its windows of `plan`."""
    length = f"{plan.duration_ms} ms" if plan.iterations is None else f"{plan.iterations} steps"
    return Target(door.target, door.cost, length if door.has_windows else "", door.model)


def taken(window: CapturedWindow) -> WindowTaken:
    """The message that a window is there."""
    servers = tuple(
        TracesOf(one.figures.name, len(one.paths)) for one in window.servers if one.paths
    )
    return WindowTaken(tuple(map(str, window.traces)), window.observer, servers)


def watch(
    door: Door,
    plan: WindowPlan,
    deliver: Callable[[Target | ServerSample | NoAnswer], None],
    stop: threading.Event,
    poll_s: float = POLL_S,
) -> None:
    """Deliver the figures of the target every `poll_s`, less often while it does not answer, until
    `stop`; once if it has none. After a silence or a restart, the door looks again at what the
    target is, which is delivered if it is another one."""
    before, wait_s, target, is_known = None, 0.0, target_of(door, plan), True
    while not stop.wait(wait_s):
        try:
            if not is_known:
                door.look_again()
            metrics = door.metrics()
        except Exception as error:
            deliver(NoAnswer(str(known_error(error))))
            is_known = False
            wait_s = min(max(2 * wait_s, poll_s), MOST_POLL_S)
            continue
        if target != (target := target_of(door, plan)):
            deliver(target)
        shown = None if metrics is None else figures(before, metrics)
        deliver(ServerSample(shown))
        if metrics is None or shown is None:
            return
        is_known = not shown.restarted
        before, wait_s = metrics, poll_s
