"""The interpreter runs in the main thread only: what compiles in several threads runs there."""

from typing import Any

import pytest

from decodescope.variants.machine import compile_ahead


class _OneThread:
    def __init__(self, _: int) -> None: ...

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, *arguments: Any) -> Any:
        return map(*arguments)


def launch_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `launch_all` launch one after the other."""
    monkeypatch.setattr(compile_ahead, "ThreadPoolExecutor", _OneThread)
