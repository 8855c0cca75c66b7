"""Messages of a served page: those of the app are passed on, and nothing else is."""

import asyncio
import json
from typing import Any
from unittest.mock import AsyncMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("aiohttp")
pytest.importorskip("textual_serve")

from textual_serve.download_manager import DownloadManager

from decodescope.cli.app import MAX_CELLS
from decodescope.cli.browser_app import BrowserApp


@settings(max_examples=25)
@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.booleans() | st.floats(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_only_a_message_of_the_page_is_passed_on(value: object) -> None:
    is_one, passed = passed_on(value)
    kinds = ("stdin", "ping", "resize", "blur", "focus")
    assert is_one == bool(passed)
    assert not is_one or (isinstance(value, list) and value[0] in kinds)


@pytest.mark.parametrize("side", [1, 80, MAX_CELLS, MAX_CELLS + 1, 10**30, -1, 0])
def test_a_resize_is_clamped(side: int) -> None:
    size = {"width": min(max(side, 1), MAX_CELLS), "height": 7}
    resized = passed_on(["resize", {"width": side, "height": 7}])
    assert resized == (True, [({"type": "resize", **size},)])


def test_keys_pings_and_the_focus_are_passed_on() -> None:
    assert passed_on(["stdin", "é\ud800"]) == (True, [("é?".encode(),)])
    assert passed_on(["ping", "7"]) == (True, [(["pong", "7"],)])
    assert passed_on(["blur"]) == (True, [({"type": "blur"},)])
    for malformed in (["stdin", 7], ["resize", {"width": "x", "height": 7}], ["quit"], {}):
        assert passed_on(malformed) == (False, [])


def passed_on(message: object) -> tuple[bool, list[tuple[Any, ...]]]:
    """Whether a message is one of the page, and the arguments with which it is passed on."""
    passing = AsyncMock()
    app = BrowserApp([], passing, DownloadManager())
    app.send_bytes = app.send_meta = passing.send_json = passing  # type: ignore[method-assign]
    is_one = asyncio.run(app.pass_on(json.dumps(message)))
    return is_one, [call.args for call in passing.await_args_list]
