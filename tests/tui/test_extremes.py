"""The app over traces that no one would draw: 4,000 streams, names of 100,000 characters, one op,
300 ranks."""

import re
from pathlib import Path

import pytest

from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import TraceSource
from tests.helpers.app.recorded import press
from tests.helpers.kineto_events import Event, call, document, op, span
from tests.helpers.scripted import StillClock, settle, text_of

SIZE = (120, 40)
KEYS = ("1", "2", "plus", "d", "g", "c", "3", "z", "enter", "4", "z", "5", "z", "6", "7", "8", "9")


def streams(count: int) -> list[Event]:
    events = [span(0, 20 * count, "decode_step")]
    for stream in range(count):
        at, number = 10 * stream, stream + 1
        events += [call(at, at + 5, number), op(at + 7, at + 40, number, stream=stream)]
    return events


def long_names(count: int) -> list[Event]:
    events = [span(0, 1000 * count, "decode_step" + "s" * 100_000)]
    for place in range(count):
        at, name = 1000 * place, "k" * 100_000 + str(place)
        events += [call(at, at + 5, place + 1), op(at + 10, at + 900, place + 1, name=name)]
    return events


def one_op() -> list[Event]:
    return [op(100, 350, name="alone")]


async def seen(*paths: Path) -> dict[str, str]:
    """What each key leads to, every line within the terminal."""
    app = DecodescopeApp(TraceSource(paths), clock=StillClock(), folder=paths[0].parent)
    screens = {}
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        screens["first"] = text_of(app)
        for key in KEYS:
            await press(pilot, key)
            screens[key] = text_of(app)
    for key, screen in screens.items():
        assert len(screen.splitlines()) <= SIZE[1], key
        assert max(map(len, screen.splitlines())) <= SIZE[0], key
    return screens


@pytest.fixture
def file(tmp_path: Path):
    def written(events: list[Event], name: str = "window.json", **keys: object) -> Path:
        path = tmp_path / name
        path.write_bytes(document(events, **keys))
        return path

    return written


async def test_thousands_of_streams(file) -> None:
    screens = await seen(file(streams(4_000)))
    assert "4,000 GPU ops" in screens["first"]
    tracks = re.search(r"tracks \d+\u2013\d+ of (\d+)", screens["2"])
    assert tracks is not None
    assert int(tracks[1]) > 4_000
    assert "4,000" in screens["3"]


async def test_names_of_a_hundred_thousand_characters(file) -> None:
    screens = await seen(file(long_names(3)))
    assert "over 16,384 characters" in screens["first"]
    assert "3 GPU ops" in screens["first"]
    assert "kkk\u2026kkk" in screens["3"].replace("k" * 10, "k")


async def test_one_op(file) -> None:
    screens = await seen(file(one_op()))
    assert "250 ns in all" in screens["first"]
    assert "alone" in screens["3"]


async def test_three_hundred_ranks(file) -> None:
    paths = []
    for rank in range(300):
        events = [span(0, 900, "decode_step"), call(0, 5, 1), op(100, 100 + rank + 1, 1)]
        about = {"rank": rank, "world_size": 300, "backend": "nccl"}
        paths.append(file(events, f"rank{rank:03}.json", distributedInfo=about))
    screens = await seen(*paths)
    listed = re.findall(r"rank\d{3}\.json  /", screens["first"])
    hidden = re.search(r"(\d+) more", screens["first"])
    assert hidden is not None
    # After the files comes the choice of all ranks.
    assert len(listed) + int(hidden[1]) == 300 + 1
