"""The process that the app runs in."""

import gc
from typing import Any

import click
import pytest

from decodescope.cli import app as app_command


def test_garbage_collections_do_not_visit_the_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that visits them takes over 100 ms, in which no key is answered."""
    frozen: list[int] = []

    class App:
        crash = fatal_failure = None
        return_code = 0

        def run(self) -> None:
            frozen.append(gc.get_freeze_count())

    monkeypatch.setattr(app_command, "_app", lambda *_: App())
    source: Any = None
    try:
        with click.Context(click.Command("open")):
            app_command.show_app(source, "browser", app_command.AppOptions(False, None, None))
    finally:
        gc.unfreeze()
    assert frozen[0] > 10_000
