"""The banners: what happened, what is kept, and which key helps."""

from decodescope.analyzer.protocol import Failure, Hello
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.model.session import describe_death
from decodescope.tui.panels.lines import Banner

LOG_LINES = 5


def died(event: WorkerDied, fatal: Failure | None) -> Banner:
    """The worker is gone: it said why, or else the last lines of its log do."""
    hint = "R restart it   esc dismiss   q quit"
    if fatal is not None:
        return Banner("error", fatal.message, (), hint)
    return Banner(
        "error",
        f"{describe_death(event)}. The figures below are its last.",
        event.log_tail[-LOG_LINES:],
        hint,
    )


def no_cuda(hello: Hello, recordings: bool) -> Banner:
    """The model runs on the CPU because there is no CUDA device."""
    offer = "o opens a recorded H200 run   esc" if recordings else "esc dismiss"
    return Banner("warning", f"No CUDA device: running {hello.model} on the CPU", (), offer)


def failure(message: Failure) -> Banner:
    """Something failed in the worker."""
    hint = "R restart it   esc dismiss" if message.fatal else "esc dismiss"
    return Banner("error", message.message, (), hint)


def error(text: str) -> Banner:
    """Something failed in the app itself."""
    return Banner("error", text, (), "esc dismiss")
