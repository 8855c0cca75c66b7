"""How the worker process starts."""

import gc
import socket
from pathlib import Path

import pytest

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.variants.live import session, worker
from decodescope.variants.live.channel import Channel


def test_what_imports_made_is_frozen_and_a_model_is_loaded_with_collections(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found: list[tuple[bool, bool]] = []

    def opened(config: WorkerConfig, say: object, ranks: object) -> None:
        found.append((gc.isenabled(), gc.get_freeze_count() > 0))
        raise InputError("enough")

    monkeypatch.setattr(session, "open_session", opened)
    app, own = socket.socketpair()
    gc.unfreeze()
    try:
        with app, own, pytest.raises(InputError, match="enough"):
            worker._decode(
                WorkerConfig(variant="eager", batch=1, tokens=8, model="tiny"),
                Channel(own),
                tmp_path,
            )
    finally:
        # The session's objects stay frozen for the tests that follow.
        gc.freeze()
    assert found == [(True, True)]
