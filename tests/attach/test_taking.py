"""Windows that lost their kernels, and what is taken and kept instead."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from msgspec.structs import replace as with_fields

from decodescope.analyzer.errors import DecodescopeError, MissingRequirement
from decodescope.attach.door import CapturedWindow, WindowPlan
from decodescope.attach.taking import take_window
from tests.helpers.libkineto import trace
from tests.helpers.scripted_door import ScriptedDoor

GRAPHS = b'{"traceEvents": [{"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch"}]}'
COMPACT = GRAPHS.replace(b" ", b"") + b'{"ph":"X","cat":"kernel"}'
ON_A_CPU = b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm"}]}'


@dataclass
class LosingDoor(ScriptedDoor):
    """The n-th window has a trace for each character of `has_kernels[n]`, with kernels where it is
    "k". It is 10 tokens/s slower than the one before. With `fails`, the second one is no window."""

    has_kernels: Sequence[str] = ("k",)
    fails: BaseException | None = None
    said: list[str] = field(default_factory=list)
    warmups_s: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.write = self._traces

    def _traces(self, folder: Path, number: int) -> Sequence[Path]:
        paths = [folder / f"w{number}-{rank}.json" for rank in range(len(self.has_kernels[0]))]
        for path, letter in zip(paths, self.has_kernels[number - 1], strict=True):
            path.write_bytes(trace(1, 0, 20, letter == "k"))
        return paths

    def window(self, plan: WindowPlan, say: Callable[[str], None]) -> CapturedWindow:
        self.warmups_s.append(plan.added_warmup_s)
        if self.taken and self.fails is not None:
            raise self.fails
        window, slower = super().window(plan, say), 10.0 * (self.taken - 1)
        observer = with_fields(
            window.observer,
            before_tokens_per_s=1000 - slower,
            during_tokens_per_s=600 - slower,
            after_tokens_per_s=900 - slower,
        )
        return replace(window, observer=observer)

    def take(self) -> CapturedWindow:
        return take_window(self, WindowPlan(self.folder, 300), self.said.append)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_is_taken_again_and_its_trace_removed(tmp_path: Path) -> None:
    door = LosingDoor(tmp_path, has_kernels=("-", "-", "k", "k"))
    window = door.take()
    assert [path.name for path in window.traces] == left(tmp_path) == ["w3-0.json"]
    assert [line for line in door.said if "lost" in line] == [
        f"the window lost its kernels; taking it again ({number} of 2)" for number in (1, 2)
    ]
    assert door.warmups_s == [0, 4, 9]
    observer = window.observer
    measured = (observer.before_tokens_per_s, observer.during_tokens_per_s)
    assert (*measured, observer.after_tokens_per_s, observer.windows) == (1000, 590, 880, 3)


def test_a_window_with_kernels_is_the_only_one(tmp_path: Path) -> None:
    door = LosingDoor(tmp_path)
    assert door.take().observer.windows == door.taken == 1


@pytest.mark.parametrize(
    ("has_kernels", "kept"),
    [(("-", "-", "-"), 1), (("--", "-k", "k-"), 2), (("-k", "--", "kk"), 3)],
)
def test_that_with_the_fewest_is_kept(
    tmp_path: Path, has_kernels: Sequence[str], kept: int
) -> None:
    door = LosingDoor(tmp_path, has_kernels=has_kernels)
    assert sorted(path.name for path in door.take().traces) == left(tmp_path)
    assert {name[:2] for name in left(tmp_path)} == {f"w{kept}"}
    assert door.taken == 3


def test_one_is_kept_if_there_is_no_other(tmp_path: Path) -> None:
    door = LosingDoor(tmp_path, has_kernels=("-",), fails=MissingRequirement("process 7: ended"))
    assert [path.name for path in door.take().traces] == left(tmp_path) == ["w1-0.json"]
    assert door.said[-1] == "no other window: process 7: ended"


def test_an_interruption_leaves_none(tmp_path: Path) -> None:
    door = LosingDoor(tmp_path, has_kernels=("-",), fails=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        door.take()
    assert left(tmp_path) == []


def test_the_first_window_may_fail(tmp_path: Path) -> None:
    door = LosingDoor(tmp_path, refusals=[DecodescopeError("process 7: ended")])
    with pytest.raises(DecodescopeError, match="process 7: ended"):
        door.take()


def test_a_servers_own_folder_keeps_all(tmp_path: Path) -> None:
    (own := tmp_path / "own").mkdir()
    door = LosingDoor(own, has_kernels=("-", "k"))
    window = take_window(door, WindowPlan(tmp_path / "out", 300), door.said.append)
    assert [path.name for path in window.traces] == ["w2-0.json"]
    assert left(own) == ["w1-0.json", "w2-0.json"]


@pytest.mark.parametrize(
    ("data", "windows"),
    [(GRAPHS, 3), (COMPACT, 1), (ON_A_CPU, 1), (b"", 1), (b"\x1f\x8bno gzip", 1)],
)
def test_what_counts_as_lost(tmp_path: Path, data: bytes, windows: int) -> None:
    def write(folder: Path, number: int) -> Sequence[Path]:
        (path := folder / f"{number}.json").write_bytes(data)
        return (path,)

    door = ScriptedDoor(tmp_path, write=write)
    take_window(door, WindowPlan(tmp_path, 300), print)
    assert door.taken == windows
