"""The traits of the terminal, a filter for glyphs that it cannot, and a terminal that is lost."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from rich.segment import Segment
from textual.color import Color
from textual.driver import Driver
from textual.filter import LineFilter

from decodescope.analyzer.text.plain import to_ascii


@dataclass(frozen=True, slots=True)
class TerminalTraits:
    """`unicode`: the terminal shows UTF-8. `color`: colours are wanted (NO_COLOR is not set).
    `few_colors`: it has only sixteen.

    The app receives them instead of guessing, so tests can fix both.
    """

    unicode: bool = True
    color: bool = True
    few_colors: bool = False


def printable(segments: Iterable[Segment]) -> Iterator[Segment]:
    """The same segments with "?" for every character that is not printable."""
    for text, style, control in segments:
        shown = text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
        yield Segment(shown, style, control)


class AsciiFilter(LineFilter):
    """Replaces the non-ASCII glyphs of every widget's lines."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments with ASCII text; `background` is unused."""
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]


class LosableFile:
    """The terminal, as Textual's driver writes to it; once it is gone, what is written is dropped.

    The driver's thread ends with the first error, and the app waits for it forever.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        self._try(self._file.write, text)
        return len(text)

    def flush(self) -> None:
        self._try(self._file.flush)

    def _try(self, act: Callable[..., object], *arguments: str) -> None:
        if not self._lost:
            try:
                act(*arguments)
            except OSError:
                self._lost = True


def losable(driver: type[Driver]) -> type[Driver]:
    """A driver that outlives its terminal."""

    class LosableDriver(driver):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            if (file := getattr(self, "_file", None)) is not None:
                self._file = LosableFile(file)

    return LosableDriver
