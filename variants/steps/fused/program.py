"""The launches of one step, kept so that the next step can make them again at little cost."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from decodescope.variants.steps.annotations import LayerRanges

Path = tuple[str, ...]


class StepProgram:
    """What a step launches, in order, each launch with the ranges around it.

    A step that runs for the first time opens its ranges with `range` and hands over each launch it
    has made; `repeat` makes them all again. PyTorch's own operators cannot be repeated that way: a
    step that uses some says so with `uses_torch`, and is then not `repeatable`.
    """

    def __init__(self, ranges: LayerRanges) -> None:
        self._ranges = ranges
        self._path: Path = ()
        self._launches: list[tuple[Path, Callable[[], None]]] = []
        self.repeatable = True

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """A range around launches."""
        outer = self._path
        self._path = (*outer, name)
        try:
            with self._ranges.open(name):
                yield
        finally:
            self._path = outer

    def add(self, *launches: Callable[[], None]) -> None:
        """Launches that were just made."""
        self._launches += [(self._path, launch) for launch in launches]

    def uses_torch(self) -> None:
        """An operator of PyTorch just ran."""
        self.repeatable = False

    def repeat(self) -> None:
        """Make all launches again, within their ranges where ranges are on."""
        assert self.repeatable
        if not self._ranges.enabled:
            for _, launch in self._launches:
                launch()
            return
        opened: list[AbstractContextManager[None]] = []
        inside: Path = ()
        try:
            for path, launch in self._launches:
                self._move(inside, path, opened)
                inside = path
                launch()
        finally:
            self._move(inside, (), opened)

    def _move(self, old: Path, new: Path, opened: list[AbstractContextManager[None]]) -> None:
        """Close the ranges of `old` that `new` is not in, and open those it is in besides."""
        shared = 0
        while shared < min(len(old), len(new)) and old[shared] == new[shared]:
            shared += 1
        while len(opened) > shared:
            opened.pop().__exit__(None, None, None)
        for name in new[shared:]:
            context = self._ranges.open(name)
            context.__enter__()
            opened.append(context)
